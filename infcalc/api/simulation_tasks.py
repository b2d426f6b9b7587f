"""Runs of one deployment as tasks: what it takes to make each anywhere, and what is told of it afterwards."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from infcalc.api.replicas import Policy
from infcalc.api.simulation_ask import at, policies_for, with_defaults
from infcalc.api.simulation_runs import Setting
from infcalc.api.simulation_site import Place, Ran, place_of
from infcalc.api.workloads import traced_of
from infcalc.frozen import frozen
from infcalc.simulation.sending import Sending
from infcalc.simulation.timing import StepTimer

if TYPE_CHECKING:
    from infcalc.api.simulation_runs import Progress
    from infcalc.simulation.prices import Floats
    from infcalc.workload.trace import Trace

_NONE = np.zeros(0, dtype=np.int64)
_IN_AGGREGATE = {Policy.STATIC, Policy.CONTINUOUS, Policy.VLLM}
_REQUESTS_PER_S, _STEPPED_REQUESTS_PER_S = 20_000, 1_000
"""About what one core simulates, in aggregate and step by step."""


@frozen
class Told:
    """A run, light enough to be sent: its columns of requests are gone, but for those that explanations add up."""

    ran: Ran

    @property
    def is_partial(self) -> bool:
        """Whether the run was broken off."""
        return self.ran.result.partial


@frozen
class RunTask:
    """One run: of a policy, on the deployment and the load of ``ground``, at one value of what is swept.

    ``ground`` is pickled once for all tasks; whoever runs several makes the deployment of it once. ``trace`` is what a
    file holds, which is not read where the run is made; None: the load is drawn there.
    """

    ground: bytes
    policy: Policy
    name: str
    num_requests: int
    expected_s: float
    value: float | None = None
    trace: Trace | None = None

    def run(self, progress: Progress | None) -> Told:
        """Make the run."""
        place, first = _grounded(self.ground)
        trace = self.trace
        if trace is None:
            trace = first if self.value is None else _drawn(place, self.value)
        return Told(ran=_light(place.run(self.policy, trace, progress)))


def tasks_of(place: Place, trace: Trace) -> tuple[RunTask, ...]:
    """Return the runs at a deployment: each value of a sweep, or each policy. ``trace`` is the load of the first."""
    asked = place.asked
    read = asked.load.file is not None
    ground = pickle.dumps((place.site, asked, place.terms, trace if read else None))
    # What is here already is not made again in this process, nor in those that fork from it.
    _MADE.clear()
    _MADE[ground] = (place, trace)
    policies = policies_for(asked, place.site.deployment.rules.engine)
    found = []
    if asked.sweep is not None:
        for value in asked.sweep.values:
            mine = _drawn(place, value) if read else None
            count = len(trace if mine is None else mine)
            name = f"{asked.sweep.variable} {value:g}"
            task = RunTask(
                ground=ground,
                policy=policies[0],
                name=name,
                num_requests=count * _num_runs(place),
                expected_s=_expected_s(place, policies[0], count),
                value=value,
                trace=mine,
            )
            found.append(task)
        return tuple(found)
    return tuple(
        RunTask(
            ground=ground,
            policy=policy,
            name=str(policy),
            num_requests=len(trace) * _num_runs(place),
            expected_s=_expected_s(place, policy, len(trace)),
        )
        for policy in policies
    )


def _expected_s(place: Place, policy: Policy, num_requests: int) -> float:
    every_step = place.asked.step_by_step or place.pools is not None or place.asked.scaling is not None
    quick = policy in _IN_AGGREGATE and not every_step
    return _num_runs(place) * num_requests / (_REQUESTS_PER_S if quick else _STEPPED_REQUESTS_PER_S)


def _num_runs(place: Place) -> int:
    """Return how often the requests are simulated: beside drafting they are without it, too."""
    return 1 if place.drafted is None else 2


_MADE: dict[bytes, tuple[Place, Trace]] = {}
"""The deployment of this process's parent; one at a time."""


def _grounded(ground: bytes) -> tuple[Place, Trace]:
    return _MADE.get(ground) or _made(ground)


@lru_cache(maxsize=2)
def _made(ground: bytes) -> tuple[Place, Trace]:
    site, asked, terms, trace = pickle.loads(ground)  # noqa: S301 - what this program sent itself
    if trace is None:
        load = asked.load if asked.sweep is None else at(asked.load, asked.sweep.variable, asked.sweep.values[0])
        trace = traced_of(with_defaults(load)).trace
    return place_of(site, asked, terms, trace), trace


def _drawn(place: Place, value: float) -> Trace:
    sweep = place.asked.sweep
    if sweep is None:
        raise AssertionError("nothing is swept")
    return traced_of(with_defaults(at(place.asked.load, sweep.variable, value))).trace


def _light(ran: Ran) -> Ran:
    """Return a run without its columns of requests, but for the lengths and hits of those that ended."""
    done = ran.gathered.finished
    setting = ran.setting
    return replace(
        ran,
        setting=Setting(
            policy=setting.policy, seating=setting.seating, timer=StepTimer(_unpriced), front_end=setting.front_end
        ),
        load=replace(
            ran.load,
            asked=_NONE,
            prompt_tokens=_NONE,
            output_tokens=_NONE,
            sending=Sending(times_ps=()),
            sessions=_NONE,
            sharing=None,
        ),
        gathered=replace(
            ran.gathered,
            sent_ps=_NONE,
            interval_runs=_NONE,
            placed=_NONE,
            finished=replace(
                done, reached_ps=_NONE, scheduled_ps=_NONE, first_token_ps=_NONE, last_token_ps=_NONE, end_ps=_NONE
            ),
        ),
    )


def _unpriced(**step: float | Floats) -> float:
    raise AssertionError(f"a run that was made is not priced again: {step}")
