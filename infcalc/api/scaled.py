"""Replicas that come and go, from a deployment to a run and its bill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from infcalc.api.replicas import scheduler_of
from infcalc.api.scaling_nouns import ReplicaCount, Scaling
from infcalc.api.simulation_load import requests_of
from infcalc.api.simulation_nouns import Use
from infcalc.api.simulation_runs import Books, allowed_tokens, seating_of
from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.replica import Replica
from infcalc.simulation.routing import Router
from infcalc.simulation.scaling import ScaledFleet

if TYPE_CHECKING:
    from infcalc.api.simulation_load import Load
    from infcalc.api.simulation_nouns import Moment, RunResult
    from infcalc.api.simulation_runs import Progress, Setting
    from infcalc.simulation.gathered import Gathered
    from infcalc.simulation.scaling import ScalingRule
    from infcalc.simulation.summary import Floats

_MILLION = 1e6


@frozen
class ScaledRun:
    """A run whose replicas came and went. ``setting`` counts the lanes of all that there ever were."""

    setting: Setting
    gathered: Gathered
    fleet: ScaledFleet
    rule: ScalingRule
    num_gpus: int
    """Of one replica."""

    @property
    def start_ps(self) -> int:
        """When the first request was sent."""
        sent = self.gathered.sent_ps
        return int(sent[sent >= 0].min(initial=self.fleet.now_ps))

    def paid_gpu_s(self, duration_s: float) -> float:
        """Return GPU-seconds from the call of each replica to the end of its drain, within a run of that duration."""
        first_ps = self.start_ps
        return self.fleet.paid_ps(first_ps, first_ps + round(duration_s * PS_PER_S)) / PS_PER_S * self.num_gpus

    def fixed_peak_gpu_s(self, duration_s: float) -> float:
        """Return GPU-seconds of as many replicas as were paid at once at most, over a run of that duration."""
        return self.num_peak * self.num_gpus * duration_s

    @property
    def num_peak(self) -> int:
        """The most that were paid at once."""
        return max(one.num_paid for one in self.fleet.counts)


def run_scaled(
    setting: Setting, load: Load, rule: ScalingRule, *, lanes: int, num_gpus: int, progress: Progress | None
) -> ScaledRun:
    """Return the run of a load on replicas of so many lanes and GPUs that come and go by a rule."""
    seating = seating_of(setting)
    requests = requests_of(load, allowed_tokens(setting, load))
    books = Books(len(requests), progress)

    def make() -> list[Replica]:
        return [
            books.opened(Replica(scheduler_of(setting.policy, seating), setting.timer, waited=books.waits.append))
            for _ in range(lanes)
        ]

    fleet = ScaledFleet(
        make,
        rule,
        requests,
        load.sending,
        router=Router(setting.router, 0),
        front_end=setting.front_end,
        sessions=load.sessions.tolist(),
        observe=books.observe,
        num_locked=setting.num_locked,
    )
    gathered = books.gathered(fleet, requests)
    if not gathered.partial:
        fleet.check_laws()
    return ScaledRun(
        setting=replace(setting, num_lanes=len(fleet.replicas)),
        gathered=gathered,
        fleet=fleet,
        rule=rule,
        num_gpus=num_gpus,
    )


def scaled_result(ran: ScaledRun, result: RunResult, usd_per_gpu_s: float | None) -> RunResult:
    """Return the result of a run with its bill; cache and slots are shares of the replicas that were there."""
    fleet, rule = ran.fleet, ran.rule
    present_ps = sum(
        (fleet.now_ps if one.ended_ps is None else one.ended_ps) - one.serves_ps
        for one in fleet.units
        if one.serves_ps is not None
    )
    # Shares of all that there ever were, over the whole run, become shares of those that were there.
    span_ps = result.duration_s * PS_PER_S
    factor = len(fleet.units) * span_ps / present_ps if present_ps else 1.0
    use = result.kv_usage_fraction
    paid, fixed = ran.paid_gpu_s(result.duration_s), ran.fixed_peak_gpu_s(result.duration_s)
    tokens = result.output_tokens_per_s * result.duration_s
    serving, _ = _summed(fleet, np.array([0, fleet.now_ps], dtype=np.float64))
    mean = float(serving[-1]) / fleet.now_ps if fleet.now_ps else float(rule.num_least)
    added = len(fleet.units) - rule.num_least
    return replace(
        result,
        kv_usage_fraction=None if use is None else Use(mean=use.mean * factor, max=use.max),
        slot_utilization_fraction=result.slot_utilization_fraction * factor,
        usd_per_million_output_tokens=paid * usd_per_gpu_s / tokens * _MILLION if usd_per_gpu_s and tokens else None,
        over_time=_over_time(ran, result.over_time),
        scaling=Scaling(
            gauge=str(rule.gauge),
            above=rule.above,
            below=rule.below,
            num_least=rule.num_least,
            num_most=rule.num_most,
            num_peak=ran.num_peak,
            num_serving_mean=mean,
            num_added=added,
            num_removed=sum(one.drained_ps is not None for one in fleet.units),
            gpu_s=paid,
            fixed_peak_gpu_s=fixed,
            saved_fraction=1 - paid / fixed if fixed else 0.0,
            usd=None if usd_per_gpu_s is None else paid * usd_per_gpu_s,
            fixed_peak_usd=None if usd_per_gpu_s is None else fixed * usd_per_gpu_s,
            replicas_over_time=tuple(
                ReplicaCount(
                    time_s=one.time_ps / PS_PER_S,
                    num_serving=one.num_serving,
                    num_starting=one.num_starting,
                    num_draining=one.num_draining,
                )
                for one in fleet.counts
            ),
        ),
    )


def _over_time(ran: ScaledRun, moments: tuple[Moment, ...]) -> tuple[Moment, ...]:
    """Return the stretches with the replicas of each; cache and slots as shares of those that were there."""
    if not moments:
        return ()
    edges = ran.start_ps + PS_PER_S * np.array([*(one.start_s for one in moments), moments[-1].end_s])
    serving, present = (np.diff(total) / np.diff(edges) for total in _summed(ran.fleet, edges))
    ever = len(ran.fleet.units)
    return tuple(
        replace(
            one,
            kv_usage_fraction=one.kv_usage_fraction * ever / float(there),
            slot_utilization_fraction=one.slot_utilization_fraction * ever / float(there),
            num_replicas=float(serve),
        )
        for one, serve, there in zip(moments, serving, present, strict=True)
    )


def _summed(fleet: ScaledFleet, moments_ps: Floats) -> tuple[Floats, Floats]:
    """Return the replicas that take requests, and those that hold any, each summed over time up to each moment."""
    times = np.array([one.time_ps for one in fleet.counts] + [max(fleet.now_ps, 1)], dtype=np.float64)
    found = []
    for counts in (
        [one.num_serving for one in fleet.counts],
        [one.num_serving + one.num_draining for one in fleet.counts],
    ):
        sums = np.concatenate([[0.0], np.cumsum(np.diff(times) * np.array(counts, dtype=np.float64))])
        # The answer of the last request is on its way for a little longer.
        beyond = np.maximum(moments_ps - times[-1], 0) * counts[-1]
        found.append(np.interp(moments_ps, times, sums) + beyond)
    return found[0], found[1]
