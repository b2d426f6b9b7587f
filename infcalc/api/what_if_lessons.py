"""What it costs to be without what every engine has: a KV cache, and attention that keeps its scores on the chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.bounds import roofline
from infcalc.api.what_if_nouns import Feature
from infcalc.frozen import frozen
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.simulation_nouns import SimulationResult
    from infcalc.api.speed import Machine


@frozen
class Lesson:
    """Factors of a server without something, and why."""

    throughput_factor: float
    tpot_factor: float
    ttft_factor: float
    e2e_factor: float
    why: str


def lesson(feature: Feature, machine: Machine, run: SimulationResult) -> Lesson:
    """Return what is lost at the batch and lengths of a run.

    Without a cache each token is a prefill of all that stands before it, as in ``transformers`` with
    ``use_cache=False``. Attention through memory writes the scores of each head and reads them again, as before
    FlashAttention (Dao et al. 2022, arXiv:2205.14135): the ratio is that of the floors of ``roofline``.
    """
    if run.tpot_s is None or run.ttft_s is None or run.e2e_s is None or not run.completed:
        raise AssertionError("the run answered nobody")
    answers = run.output_tokens_per_s * run.duration_s / run.completed
    prompts = run.total_tokens_per_s * run.duration_s / run.completed - answers
    context = max(1.0, prompts + answers / 2)
    batch = max(1.0, run.output_tokens_per_s * run.tpot_s.mean)
    if feature is Feature.NO_KV_CACHE:
        clock = machine.clock.full()
        with_s = clock.step_s(num_decodes=batch, context_tokens=context)
        without_s = clock.step_s(
            num_decodes=0, context_tokens=0, num_prefills=batch, new_tokens=context, cached_tokens=0
        )
        tpot, ttft = without_s / with_s, 1.0
        why = (
            f"a step of {batch:.0f} answers at {context:,.0f} tokens computes all of them again: "
            f"{format_seconds(without_s)} for {format_seconds(with_s)}"
        )
    else:
        tokens = max(1, round(prompts))
        points = roofline(machine.site.ask, contexts=(tokens,), batches=(1,)).result.points
        times = {point.attention_io: point.time_s for point in points if point.phase == "prefill"}
        ttft, tpot = times["naive"] / times["flash"], 1.0
        why = (
            f"a prompt of {tokens:,} tokens is bound to {format_seconds(times['naive'])} for "
            f"{format_seconds(times['flash'])}, for its scores go through memory; decode has one row of them"
        )
    decode_s = run.tpot_s.mean * max(0.0, answers - 1)
    prompt_s = max(0.0, run.e2e_s.mean - decode_s)
    e2e = (prompt_s * ttft + decode_s * tpot) / (prompt_s + decode_s)
    return Lesson(throughput_factor=1 / e2e, tpot_factor=tpot, ttft_factor=ttft, e2e_factor=e2e, why=why)
