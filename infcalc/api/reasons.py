"""How the figures of ``estimate`` came about: formula, substituted values, origin of each input."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.api.speed import front_end_s
from infcalc.engines.pace import (
    LATENT_EXPERTS,
    MATRIX_VECTOR,
    OF_FRONT_END,
    OF_STEPS,
    UNTUNED_CDNA3,
    compute_shares,
)
from infcalc.spec.explain import Explanation, Input
from infcalc.units import format_seconds, format_si

if TYPE_CHECKING:
    from infcalc.api.costing import Rent, Terms
    from infcalc.api.speed import Run, SpeedResult
    from infcalc.api.steps import Step
    from infcalc.engines.pace import Pace
    from infcalc.engines.rules import Since

_LEAST_S = 1e-9
_ROOFLINE = "Williams, Waterman, Patterson 2009"


def explain_speed(run: Run, result: SpeedResult, rent: Rent | None, terms: Terms) -> tuple[Explanation, ...]:
    """Return one explanation per figure."""
    found = [*_steps(run, result), *_times(run, result), *_rates(run, result), *_floors(run, result)]
    from infcalc.api.spending_reasons import explain_spending  # noqa: PLC0415 - of one question

    return (*found, *explain_spending(run.machine.deployment.gpu, result, rent, terms))


def _steps(run: Run, result: SpeedResult) -> list[Explanation]:
    deployment, pace = run.machine.deployment, run.machine.pace
    gpu = deployment.gpu
    origin = f"gpus.yaml {gpu.name}"
    inputs = (
        Input(
            name="bandwidth_bytes_per_s",
            value=gpu.bandwidth_bytes_per_s,
            origin=deployment.gpu_origins.get("bandwidth", origin),
            source=gpu.source,
        ),
        *(_overhead(name, pace) for name in OF_STEPS),
        *_slower(run),
    )
    return [
        Explanation(
            quantity=name,
            formula=(
                "sum over kernels under their efficiency curves + messages between GPUs + engine per layer, step and "
                "sequence"
            ),
            substituted=f"{_parts(step)} = {format_seconds(step.time_s.value)}",
            inputs=inputs,
            source=_ROOFLINE,
        )
        for name, step in (("step", result.step), ("prefill_step", result.prefill_step))
        if step is not None
    ]


def _overhead(name: str, pace: Since[Pace]) -> Input:
    # The source of a pace says what changed in the engine: its microseconds rest on what the footing names.
    value = float(f"{getattr(pace.value, name):.6g}")
    return Input(name=name, value=value, origin=pace.value.footing(name).text)


def _slower(run: Run) -> list[Input]:
    """Return by how much the engine's own kernels are slower than those that were timed, where they are."""
    deployment, clock, pace = run.machine.deployment, run.machine.clock, run.machine.pace.value
    rules = deployment.rules
    found = []
    if clock.factor != 1:
        one = next(one for one in (LATENT_EXPERTS, MATRIX_VECTOR) if rules.engine in one.engines)
        found.append(Input(name="kernel_factor", value=clock.factor, origin=one.footing.text, source=one.what))
    shares = compute_shares(rules.engine, rules.version, architecture=deployment.gpu.architecture)
    if shares:
        one = UNTUNED_CDNA3
        value = ", ".join(f"{kernel} {share:g}" for kernel, share in shares.items())
        found.append(Input(name="compute_shares", value=value, origin=one.footing.text, source=one.what))
    if pace.eager_beyond_tokens < math.inf:
        found += [_overhead(name, run.machine.pace) for name in ("eager_layer_s", "eager_message_s")]
    return found


def _parts(step: Step) -> str:
    """Return the addends, the small ones as one."""
    large = [part for part in step.parts if part.share_fraction >= _SMALL]
    rest = [part.time_s.value for part in step.parts if part.share_fraction < _SMALL]
    told = [f"{part.name} {format_seconds(part.time_s.value)} ({part.bound_by})" for part in large]
    return " + ".join(told + ([f"{len(rest)} smaller {format_seconds(sum(rest))}"] if rest else []))


_SMALL = 0.01


def _times(run: Run, result: SpeedResult) -> list[Explanation]:
    speed, asked, pace = run.speed, run.asked, run.machine.pace
    step = result.step
    found = []
    if result.tpot_s is not None and step is not None:
        woven_s = max(0.0, speed.tpot_s - step.time_s.value)
        found.append(
            Explanation(
                quantity="tpot_s",
                formula="decode step at the mean batch and context + prefill of other requests woven in",
                substituted=(
                    f"{format_seconds(step.time_s.value)} (batch {result.batch:,.1f}, {asked.live_tokens:,.0f} tokens) "
                    f"+ {format_seconds(woven_s)} = {format_seconds(speed.tpot_s)}"
                ),
            )
        )
    if result.ttft_s is not None:
        front_s = min(front_end_s(run), speed.ttft_s)
        queue_s = speed.queue_s if speed.queue_s > _LEAST_S else 0.0
        rest_s = max(0.0, speed.ttft_s - front_s - queue_s)
        found.append(
            Explanation(
                quantity="ttft_s",
                formula="front end + queue for a place + prefill with what runs before and beside it",
                substituted=(
                    f"{format_seconds(front_s)} + {format_seconds(queue_s)} + {format_seconds(rest_s)} = "
                    f"{format_seconds(speed.ttft_s)}"
                ),
                inputs=()
                if run.load.offer.batch is not None
                else tuple(_overhead(name, pace) for name in ("latency_s", *OF_FRONT_END, "prompt_token_s")),
            )
        )
    if result.e2e_s is not None and result.ttft_s is not None:
        found.append(
            Explanation(
                quantity="e2e_s",
                formula="ttft_s + (output tokens - 1) x tpot_s; of a batch of many lengths the mean over its requests",
                substituted=(
                    f"{format_seconds(speed.ttft_s)} + {max(0.0, asked.answer_tokens - 1):,.0f} x "
                    f"{format_seconds(speed.tpot_s)} = {format_seconds(speed.e2e_s)}"
                ),
            )
        )
    return found


def _rates(run: Run, result: SpeedResult) -> list[Explanation]:
    rate, tokens = result.requests_per_s, result.output_tokens_per_s
    if rate is None or tokens is None:
        return []
    return [
        Explanation(
            quantity="output_tokens_per_s",
            formula="requests/s x output tokens",
            substituted=f"{rate.value:,.4g} x {run.asked.answer_tokens:,.0f} = {tokens.value:,.1f}; {result.bound_by}",
        )
    ]


def _floors(run: Run, result: SpeedResult) -> list[Explanation]:
    gpu, step = run.machine.deployment.gpu, result.step
    if step is None or result.limits is None:
        return []
    flop, moved = step.floor_flop, step.floor_bytes
    return [
        Explanation(
            quantity="tpot_floor_s",
            formula="max(flop / peak, bytes / bandwidth) of one GPU, averaged over the answer",
            substituted=(
                f"one step: {format_si(flop, 'FLOP')}, {format_si(moved, 'B')} at "
                f"{format_si(gpu.bandwidth_bytes_per_s, 'B/s')} = {format_seconds(step.floor_s)}"
            ),
            inputs=(
                Input(
                    name="bandwidth_bytes_per_s",
                    value=gpu.bandwidth_bytes_per_s,
                    origin=run.machine.deployment.gpu_origins.get("bandwidth", f"gpus.yaml {gpu.name}"),
                    source=gpu.source,
                ),
            ),
            source=_ROOFLINE,
        )
    ]
