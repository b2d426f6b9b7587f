"""What is said about the runs of ``batching``: assumptions, doubts, and how each figure came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.simulation.batch_shape import PS_PER_S, BatchShape, Prefill
from infcalc.spec.explain import Explanation, Input
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.batching_policies import BatchingResult
    from infcalc.api.batching_requests import Drawn
    from infcalc.api.batching_runs import PolicyResult, Setting
    from infcalc.api.costing import Rent, Terms


def doubts(result: BatchingResult) -> list[str]:
    """Return a warning where a policy could not serve all requests."""
    rejected = [f"{one.policy} {one.num_rejected:,}" for one in result.policies if one.num_rejected]
    text = (
        f"requests that the cache of {result.cache_tokens:,} tokens cannot hold are rejected, of "
        f"{result.num_requests:,}: {', '.join(rejected)}"
    )
    return [text] if rejected else []


def notes_of(result: BatchingResult, setting: Setting, drawn: Drawn) -> list[str]:
    """Return what was assumed of all policies."""
    pace = setting.pace
    times = (
        f"step times are those of estimate for {result.engine}, for every policy: they differ in their rules alone; "
        "front end and network are left out"
    )
    same = (
        f"every policy has {result.num_slots:,} slots, {setting.seating.budget_tokens:,} tokens per step where it "
        f"limits them, and a cache of {result.cache_tokens:,} tokens; it is told that an answer may have up to "
        f"{drawn.told_tokens:,} tokens, not how many it will have"
    )
    slots = (
        "a slot is in use while its request has not got its whole answer; under static batching the answers of a "
        "batch are returned together, and its prompts are not padded"
    )
    bands = (
        f"low and high in --json: all steps {pace.low:.2f} to {pace.high:.2f} times as long, within which 80 % of "
        f"measured times per token are meant to lie ({pace.basis})"
    )
    lanes = f"one of the {result.num_lanes} lanes of the replica is simulated, with slots and cost of its own"
    if result.unit_steps:
        return ["every step counts as one second, whatever it computes: times are steps", same, slots]
    return [times, same, slots, bands, *([lanes] if result.num_lanes > 1 else [])]


def explanations_of(
    result: BatchingResult, setting: Setting, drawn: Drawn, *, rent: Rent | None, terms: Terms
) -> list[Explanation]:
    """Return how steps are timed, and how the figures of each policy came about."""
    found = [_step(result, setting, drawn)]
    for one in result.policies:
        found += _of_policy(one, result)
        if rent is not None and one.usd_per_million_output_tokens is not None:
            found.append(_cost(one, result, rent, terms))
    return found


def _step(result: BatchingResult, setting: Setting, drawn: Drawn) -> Explanation:
    slots, number = result.num_slots, result.num_requests
    context = (result.prompt_tokens + result.answer_tokens // 2) // number
    prompt = Prefill(new_tokens=max(1, result.prompt_tokens // number), cached_tokens=0)
    decode = BatchShape(num_decodes=slots, decode_context_tokens=slots * context)
    mixed = BatchShape(num_decodes=slots - 1, decode_context_tokens=(slots - 1) * context, prefills=(prompt,))
    return Explanation(
        quantity="step",
        formula="T(decodes, their contexts, prompts): "
        + ("one second" if result.unit_steps else f"the step time of estimate for {result.engine}"),
        substituted=f"{slots} decodes with {context:,} tokens each {_time(setting, decode)}; {slots - 1} of them with "
        f"a prompt of {prompt.new_tokens:,} tokens {_time(setting, mixed)}",
        inputs=drawn.inputs,
    )


def _time(setting: Setting, shape: BatchShape) -> str:
    return format_seconds(setting.timer(shape) / PS_PER_S)


def _of_policy(one: PolicyResult, result: BatchingResult) -> list[Explanation]:
    name = f"policies[policy={one.policy}]"
    tokens = one.throughput_tokens_per_s * one.makespan_s
    rule = Input(name="rules", value=one.policy, origin=one.policy.meaning)
    found = [
        Explanation(
            quantity=f"{name}.throughput_tokens_per_s",
            formula="answer tokens / time from the first arrival to the last end",
            substituted=f"{tokens:,.0f} / {format_seconds(one.makespan_s)} = {one.throughput_tokens_per_s:.4g}, in "
            f"{one.num_steps:,} steps",
            inputs=(rule,),
        )
    ]
    if one.latency_mean_s is not None:
        total_s = one.latency_mean_s * (result.num_requests - one.num_rejected)
        found.append(
            Explanation(
                quantity=f"{name}.latency_mean_s",
                formula="sum over requests of (answer returned - arrival) / requests",
                substituted=f"{total_s:,.4g} s / {result.num_requests - one.num_rejected:,} = "
                f"{format_seconds(one.latency_mean_s)}",
            )
        )
    if one.slot_utilization_fraction is not None:
        waited = [stretch for stretch in one.curve if stretch.waits]
        steps = sum(stretch.num_steps for stretch in waited)
        live = sum(stretch.num_steps * stretch.used_fraction for stretch in waited) * result.num_slots
        found.append(
            Explanation(
                quantity=f"{name}.slot_utilization_fraction",
                formula="sum over the steps while requests wait of requests without their whole answer / slots / steps",
                substituted=f"{live:,.0f} / {result.num_slots:,} / {steps:,} = {one.slot_utilization_fraction:.4f}",
            )
        )
    return found


def _cost(one: PolicyResult, result: BatchingResult, rent: Rent, terms: Terms) -> Explanation:
    share = terms.utilization_fraction
    used = "" if share == 1 else f" / {share:g}"
    gpus = f"{result.num_gpus / result.num_lanes:g}"
    return Explanation(
        quantity=f"policies[policy={one.policy}].usd_per_million_output_tokens",
        formula="USD per GPU-hour x GPUs / 3600 / (tokens/s) x 10^6" + (" / utilization" if used else ""),
        substituted=f"{rent.usd_per_hour:.4g} x {gpus} / 3600 / {one.throughput_tokens_per_s:.4g} x 10^6{used} = "
        f"{one.usd_per_million_output_tokens:.4g}",
        inputs=(Input(name="USD per GPU-hour", value=f"{rent.usd_per_hour:.4g}", origin=rent.source),),
    )
