"""Prefill and decode apart against plain replicas: the best split that was tried, against the best plain layout.

A split that leaves one pool idle says nothing about pools, and a weak layout beside them nothing either.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.disaggregation_ask import Beside, PoolsAsk
from infcalc.api.speed import machine_of
from infcalc.api.what_if_runs import rates_of
from infcalc.errors import UsageError

if TYPE_CHECKING:
    from infcalc.api.servers import LaneClock
    from infcalc.api.simulation_nouns import SimulationResult
    from infcalc.api.what_if_changes import Here, Side

_MOST_TP = 8
_MOST_TRIED = 4


def best_of_both(now: Side, here: Here) -> tuple[Side, Side, str] | str:
    """Return the best plain side, the best side of two pools, and what they are, or why there is none.

    ``now`` has ranks of TP alone. Plain are all TP that divide its GPUs. Of pools the prefill side has the least TP
    that holds the model, for messages between ranks are spent on each token.
    """
    total = now.num_gpus
    plain = {tp: one for tp in _splits(total) if (one := _plain(now, here, tp)) is not None}
    if not plain:
        return f"no plain replicas of {total} GPUs fit"
    tried = []
    for pools in _pools(now, here, min(plain), total):
        one = replace(now, asked=replace(now.asked, num_replicas=None, pools=pools))
        run = here.runs.answer(one).result
        if run.fits and run.completed:
            tried.append((_goodness(run, here), one, pools))
    if not tried:
        return f"no two pools of {total} GPUs hold the model each"
    _, on, pools = max(tried, key=lambda one: one[0])
    tp = max(plain, key=lambda one: _goodness(here.runs.answer(plain[one]).result, here))
    which = f"the best of {len(tried)} splits" if len(tried) > 1 else "the only split"
    told = (
        f"{pools.num_prefill} x TP {pools.prefill_tp} for prefill and {pools.num_decode} x TP {pools.decode_tp} for "
        f"decode, {which}, against {total // tp} x TP {tp}, the best plain replicas"
    )
    return plain[tp], on, told


def _splits(total: int) -> tuple[int, ...]:
    return tuple(tp for tp in range(1, min(total, _MOST_TP) + 1) if total % tp == 0 and tp & (tp - 1) == 0)


def _plain(now: Side, here: Here, tp: int) -> Side | None:
    """Return the side with replicas of so many ranks; None where the model is not split so, or does not fit."""
    if tp == here.deployment.parallelism.tp:
        return now
    ep = tp if here.deployment.parallelism.ep > 1 else None
    ask = replace(now.ask, tp=tp, num_gpus=tp, pp=None, dp=None, ep=ep, dcp=None)
    side = replace(now, ask=ask, asked=replace(now.asked, num_replicas=now.num_gpus // tp))
    try:
        run = here.runs.answer(side).result
    except UsageError:
        return None
    return side if run.fits and run.completed else None


def _pools(now: Side, here: Here, least_tp: int, total: int) -> list[PoolsAsk]:
    """Return the splits of the GPUs that look best by requests per second of the slower pool; no GPU is left over."""
    what = here.seen
    prefill_s = _clock(now, here, least_tp).step_s(
        num_decodes=0, context_tokens=0, num_prefills=1, new_tokens=what.prompt_tokens, cached_tokens=0
    )
    found: list[tuple[float, PoolsAsk]] = []
    for tp in _splits(_MOST_TP):
        clock = _clock(now, here, tp) if least_tp <= tp <= total - least_tp else None
        for number in range(1, (total - tp) // least_tp + 1 if clock is not None else 1):
            left, over = divmod(total - number * least_tp, tp)
            if clock is None or over:
                continue
            # All answers under way are in the decode pool.
            each = max(1.0, what.num_decodes * here.num_lanes / left)
            step_s = clock.step_s(num_decodes=each, context_tokens=what.context_tokens)
            decoded_per_s = left * each / (step_s * max(1.0, what.answer_tokens - 1))
            pools = PoolsAsk(num_prefill=number, num_decode=left, prefill_tp=least_tp, decode_tp=tp, beside=Beside.NONE)
            found.append((min(number / prefill_s, decoded_per_s), pools))
    found.sort(key=lambda one: -one[0])
    return [pools for _, pools in found[:_MOST_TRIED]]


def _clock(now: Side, here: Here, tp: int) -> LaneClock:
    side = replace(now, ask=replace(now.ask, tp=tp, num_gpus=tp))
    return machine_of(here.runs.site(side)).clock.full()


def _goodness(run: SimulationResult, here: Here) -> float:
    """Return what is the greater the better: tokens per second where clients wait, else one over the time of one."""
    if here.waits:
        return rates_of(run, run, waits=True)[0]
    return 1 / run.e2e_s.mean if run.e2e_s is not None else 0.0
