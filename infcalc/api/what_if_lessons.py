"""What it costs to be without what every engine has: a KV cache, and attention that keeps its scores on the chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.bounds import roofline
from infcalc.api.ledger import deployment_ledger
from infcalc.api.what_if_nouns import Feature
from infcalc.frozen import frozen
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.simulation_nouns import SimulationResult
    from infcalc.api.speed import Machine
    from infcalc.api.what_if_runs import Seen


_NO_SECOND = "no answer has a second token, for which the first would be computed again"


@frozen
class Lesson:
    """Factors of a server without something, and why."""

    throughput_factor: float
    tpot_factor: float | None
    ttft_factor: float
    e2e_factor: float
    why: str


def lesson(feature: Feature, machine: Machine, run: SimulationResult, what: Seen) -> Lesson:
    """Return what is lost at the batch and lengths of a run, whose requests are ``what`` was seen.

    A token's time is that of a decode step and of what prompts add to steps. Without a cache each decode step computes
    all that stands before its tokens, as in ``transformers`` with ``use_cache=False``, and a prompt is computed in such
    a step. Attention through memory writes the scores of each head and reads them again, as before FlashAttention (Dao
    et al. 2022, arXiv:2205.14135): prompts take longer by the ratio of the floors of ``roofline``.
    """
    if run.ttft_s is None:
        raise AssertionError("the run answered nobody")
    clock = machine.clock.full()
    decodes, context = what.num_decodes, what.context_tokens
    decode_s = clock.step_s(num_decodes=decodes, context_tokens=context)
    token_s = decode_s if run.tpot_s is None else max(decode_s, run.tpot_s.mean)
    first_s, prompts_s = run.ttft_s.mean, token_s - decode_s
    if feature is Feature.NO_KV_CACHE and run.tpot_s is None:
        return Lesson(throughput_factor=1.0, tpot_factor=None, ttft_factor=1.0, e2e_factor=1.0, why=_NO_SECOND)
    if feature is Feature.NO_KV_CACHE:
        step_s = clock.step_s(
            num_decodes=0, context_tokens=0, num_prefills=decodes, new_tokens=context, cached_tokens=0
        )
        new_token_s, new_first_s = step_s + prompts_s, first_s + step_s - decode_s
        why = (
            f"a step of {decodes:.0f} answers at {context:,.0f} tokens computes all of them again: "
            f"{format_seconds(step_s)} for {format_seconds(decode_s)}; "
            f"{format_bytes(_held_bytes(machine, run))} of cache need not be held"
        )
    else:
        tokens = max(1, round(what.prompt_tokens))
        points = roofline(machine.site.ask, contexts=(tokens,), batches=(1,)).result.points
        times = {point.attention_io: point.time_s for point in points if point.phase == "prefill"}
        ratio = times["naive"] / times["flash"]
        new_token_s, new_first_s = decode_s + prompts_s * ratio, first_s * ratio
        why = (
            f"a prompt of {tokens:,} tokens is bound to {format_seconds(times['naive'])} for "
            f"{format_seconds(times['flash'])}, for its scores go through memory; decode has one row of them"
        )
    steps = max(0.0, what.answer_tokens - 1)
    before_s = first_s + steps * token_s
    after_s = new_first_s + steps * new_token_s
    return Lesson(
        throughput_factor=before_s / after_s,
        tpot_factor=None if run.tpot_s is None else new_token_s / token_s,
        ttft_factor=new_first_s / first_s,
        e2e_factor=after_s / before_s,
        why=why,
    )


def _held_bytes(machine: Machine, run: SimulationResult) -> float:
    """Return what requests hold of the pools of all GPUs, over the time of the run."""
    if run.kv_usage_fraction is None:
        return 0.0
    deployment = machine.deployment
    pool = deployment_ledger(deployment, machine.site.form, context_tokens=deployment.max_model_len).kv_pool_bytes
    return run.kv_usage_fraction.mean * pool * run.num_gpus * run.num_replicas
