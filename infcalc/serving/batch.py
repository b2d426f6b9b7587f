"""A static batch: all prompts, then all answers, nobody joins."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from infcalc.serving.times import StepTimes
    from infcalc.workload.quadrature import Node

_GAUSS = ((5 / 18, 0.5 - 0.5 * math.sqrt(0.6)), (8 / 18, 0.5), (5 / 18, 0.5 + 0.5 * math.sqrt(0.6)))


@frozen
class BatchRun:
    """One batch from its start: ``prefill_s`` until the last first token, ``makespan_s`` until the last token."""

    prefill_s: float
    ttft_s: float
    tpot_s: float
    makespan_s: float
    e2e_s: float


@frozen
class BatchCurve:
    """Many batches, each from its start: as :class:`BatchRun`, one number for each."""

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    makespan_s: NDArray[np.float64]
    e2e_s: NDArray[np.float64]


def prefill_s(times: StepTimes, tokens: float, budget_tokens: float, *, others_share: float = 1.0) -> float:
    """Return the time of ``tokens`` prompt tokens in steps of at most ``budget_tokens``.

    ``others_share``: of the other lanes that step with this one, those that compute prompts too.
    """

    def taken_s(new_tokens: float) -> float:
        lone_s = times.lone.at(0, 0, new_tokens)
        return lone_s if times.lone is times else lone_s + others_share * (times.at(0, 0, new_tokens) - lone_s)

    whole, rest = divmod(tokens, budget_tokens)
    full_s = taken_s(budget_tokens) if whole else 0.0
    return whole * full_s + (taken_s(rest) if rest else 0.0)


def batch_run(
    times: StepTimes,
    *,
    num_sequences: float,
    prompt_tokens: float,
    context_tokens: float,
    answers: Sequence[Node],
    budget_tokens: float,
    others_share: float = 1.0,
) -> BatchRun:
    """Return the run of ``num_sequences`` requests whose answers have the weights and lengths ``answers``.

    All first tokens come when the whole prefill is done. The batch shrinks as answers end; each stretch between two
    ends is integrated over its growing context. ``others_share`` as in :func:`prefill_s`.
    """
    tokens = num_sequences * prompt_tokens
    ttft_s = ready_s = prefill_s(times, tokens, budget_tokens, others_share=others_share)
    now_s = seen_s = ready_s
    done, alive, weighted_s, token_s, total_tokens = 0.0, 1.0, 0.0, 0.0, 0.0
    for weight, length in sorted(answers, key=lambda node: node[1]):
        stretch = max(0.0, length - 1 - done)
        if stretch:
            # Fewer than one on average: at times there is none, and no step; whoever is left is never less than one.
            running = num_sequences * alive
            steps_s = stretch * sum(
                share * times.at(max(1.0, running), context_tokens + done + place * stretch) for share, place in _GAUSS
            )
            now_s += steps_s * min(1.0, running)
            seen_s += steps_s
        done += stretch
        alive = max(0.0, alive - weight)
        weighted_s += weight * seen_s
        token_s += weight * (seen_s - ttft_s)
        total_tokens += weight * max(0.0, length - 1)
    return BatchRun(
        prefill_s=ready_s,
        ttft_s=ttft_s,
        tpot_s=token_s / total_tokens if total_tokens else 0.0,
        makespan_s=now_s,
        e2e_s=weighted_s,
    )


def batch_curve(
    times: StepTimes,
    *,
    num_sequences: NDArray[np.float64],
    prompt_tokens: float,
    context_tokens: float,
    answers: Sequence[Node],
    budget_tokens: float,
) -> BatchCurve:
    """Return what :func:`batch_run` does for many batches at once, whose first tokens come when all prompts are done.

    The grid of ``times`` gives contexts and prompts; what decodes is priced as it is, between no two points.
    """
    import numpy as np  # noqa: PLC0415 - only where many batches are asked for

    prompts = np.array([times.at(0, 0, new) for new in times.new_tokens])
    whole, rest = np.divmod(num_sequences * prompt_tokens, budget_tokens)
    ready_s = whole * times.at(0, 0, budget_tokens) + np.interp(rest, times.new_tokens, prompts)
    now_s, seen_s, token_s, weighted_s = ready_s, ready_s, np.zeros_like(ready_s), np.zeros_like(ready_s)
    done, alive, total_tokens = 0.0, 1.0, 0.0
    contexts = np.array(times.context_tokens)
    for weight, length in sorted(answers, key=lambda node: node[1]):
        stretch = max(0.0, length - 1 - done)
        if stretch:
            # Fewer than one on average: at times there is none, and no step.
            running = num_sequences * alive
            steps = times.decodes_s(np.maximum(running, 1.0))
            for share, place in _GAUSS:
                at = context_tokens + done + place * stretch
                low = min(int(np.searchsorted(contexts, at, side="right")) - 1, len(contexts) - 2)
                part = (at - contexts[low]) / (contexts[low + 1] - contexts[low])
                taken_s = stretch * share * (steps[:, low] + part * (steps[:, low + 1] - steps[:, low]))
                now_s = now_s + taken_s * np.minimum(running, 1.0)
                seen_s = seen_s + taken_s
        done += stretch
        alive = max(0.0, alive - weight)
        weighted_s = weighted_s + weight * seen_s
        token_s = token_s + weight * (seen_s - ready_s)
        total_tokens += weight * max(0.0, length - 1)
    return BatchCurve(
        ttft_s=ready_s,
        tpot_s=token_s / total_tokens if total_tokens else np.zeros_like(ready_s),
        makespan_s=now_s,
        e2e_s=weighted_s,
    )
