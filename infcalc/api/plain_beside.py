"""Plain replicas with as many GPUs as two pools have: what prefill and decode apart are judged against."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.disaggregation import Side, spread
from infcalc.api.disaggregation_ask import Beside
from infcalc.api.disaggregation_nouns import Disaggregation, PlainRun
from infcalc.api.offering import limit_of
from infcalc.api.simulation_ask import router_of
from infcalc.api.simulation_load import load_of
from infcalc.api.simulation_machine import machinery_of, seats_of
from infcalc.api.simulation_results import result_of
from infcalc.api.simulation_runs import Setting, run_of
from infcalc.errors import UsageError
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.disaggregation import PoolsPlace
    from infcalc.api.replicas import Policy
    from infcalc.api.simulation_ask import SimulationAsk
    from infcalc.api.simulation_nouns import RunResult
    from infcalc.api.simulation_runs import Progress
    from infcalc.api.simulation_site import Place
    from infcalc.api.speed import Site
    from infcalc.workload.trace import Trace

_MOST_TP = 8
_E2E = "e2e_s"
_QUANTITIES = {
    (False, False): "output_tokens_per_s",
    (True, False): "goodput_requests_per_s",
    (False, True): _E2E,
    (True, True): "goodput_fraction",
}
"""What layouts are judged by: with limits or without, and whether requests come whatever is answered."""


def judged(
    run: RunResult, place: Place, policy: Policy, trace: Trace, progress: Progress | None
) -> Disaggregation | None:
    """Return what is said of pools with plain replicas beside them; a run that was broken off stands alone."""
    told, pools, asked = run.disaggregation, place.pools, place.asked
    if told is None or pools is None or run.partial or pools.asked.beside is Beside.NONE:
        return told
    runs: list[PlainRun] = []
    for side in _layouts(pools, asked):
        plain = _run(side, asked, policy, trace, progress)
        if plain is None:
            return replace(told, verdict="broken off before all plain replicas were simulated")
        runs.append(plain)
    if not runs:
        return replace(told, verdict=f"no plain replicas of {told.num_gpus} GPUs fit")
    is_open = load_of(trace, limit_of(place.site.deployment)).sending.is_open
    quantity = _QUANTITIES[bool(asked.slo), is_open]
    runs.sort(key=lambda one: (-_goodness(getattr(one, quantity), quantity), one.e2e_s or 0.0))
    best = runs[0]
    mine = getattr(run, quantity)
    if quantity == _E2E:
        mine = None if mine is None else mine.mean
    theirs = getattr(best, quantity)
    good, other = _goodness(mine, quantity), _goodness(theirs, quantity)
    gain = good / other if other else None
    beside = f"the best plain replicas on as many GPUs ({best.num_replicas} x {best.num_gpus})"
    text = f"pools: {_told(mine, quantity)}; {beside}: {_told(theirs, quantity)}"
    if gain is not None:
        text += f"; {gain:.3g}x as good"
    return replace(told, aggregated=tuple(runs), gain_of=quantity, gain_factor=gain, verdict=text)


def _goodness(value: float | None, quantity: str) -> float:
    """Return what is the greater the better; 0 where nothing was answered."""
    if quantity != _E2E:
        return value or 0.0
    return 1 / value if value else 0.0


def _told(value: float | None, quantity: str) -> str:
    if value is None:
        return "no answer"
    match quantity:
        case "e2e_s":
            return f"{format_seconds(value)} for a request"
        case "goodput_fraction":
            return f"{value:.1%} of the requests within the limits"
        case "goodput_requests_per_s":
            return f"{value:,.4g} requests/s within the limits"
        case _:
            return f"{value:,.4g} answer tokens/s"


def _layouts(place: PoolsPlace, asked: SimulationAsk) -> list[Side]:
    total = place.num_gpus
    sites = [side.site for side in (place.decode, place.prefill) if total % side.num_gpus == 0][:1]
    if place.asked.beside is Beside.BEST:
        sites += [site for tp in range(1, _MOST_TP + 1) if total % tp == 0 and (site := _of_tp(place, tp)) is not None]
    found: dict[object, Side] = {}
    for site in sites:
        parallelism = site.deployment.parallelism
        seats = seats_of(site, asked, place.mean_tokens)
        if parallelism not in found and not seats.missing_bytes:
            found[parallelism] = Side(
                site=site, num_replicas=total // parallelism.num_gpus, seats=seats, machinery=machinery_of(site)
            )
    return list(found.values())


def _of_tp(place: PoolsPlace, tp: int) -> Site | None:
    """Return the deployment with so many GPUs and tensor-parallel ranks; None where the model cannot be split so."""
    site = place.decode.site
    try:
        return spread(site, replace(site.ask, tp=tp, num_gpus=tp, pp=None, dp=None, ep=None, dcp=None))
    except UsageError:
        return None


def _run(side: Side, asked: SimulationAsk, policy: Policy, trace: Trace, progress: Progress | None) -> PlainRun | None:
    """Return the run of one layout; None where it was broken off."""
    if side.machinery is None:
        raise AssertionError("what does not fit runs nothing")
    setting = Setting(
        policy=policy,
        seating=side.seats.seating,
        timer=side.machinery.timer,
        front_end=side.machinery.front_end,
        num_lanes=side.num_lanes,
        num_locked=side.num_locked,
        router=router_of(asked),
        step_by_step=asked.step_by_step,
    )
    load = load_of(trace, limit_of(side.site.deployment))
    result = result_of(run_of(setting, load, progress), load, setting, slo=asked.slo, usd_per_s=None)
    if result.partial:
        return None
    return PlainRun(
        num_replicas=side.num_replicas,
        num_gpus=side.num_gpus,
        ttft_s=None if result.ttft_s is None else result.ttft_s.mean,
        tpot_s=None if result.tpot_s is None else result.tpot_s.mean,
        e2e_s=None if result.e2e_s is None else result.e2e_s.mean,
        requests_per_s=result.requests_per_s,
        output_tokens_per_s=result.output_tokens_per_s,
        goodput_fraction=result.goodput_fraction,
        goodput_requests_per_s=result.goodput_requests_per_s,
        preemptions=result.preemptions,
    )
