"""A load at several intensities, and the knee of latency against throughput."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.offer import Figure
from infcalc.api.simulation_nouns import LoadCurve, LoadPoint
from infcalc.api.simulation_site import SHARED
from infcalc.api.simulation_tasks import tasks_of
from infcalc.api.sweeping import SweepPoint, knee_of
from infcalc.spec.efficiency import Basis

if TYPE_CHECKING:
    from infcalc.api.executing import Executor
    from infcalc.api.simulation_nouns import SimulationResult
    from infcalc.api.simulation_runs import Progress
    from infcalc.api.simulation_site import Place, Ran
    from infcalc.workload.trace import Trace


def swept(
    place: Place, described: SimulationResult, trace: Trace, executor: Executor, progress: Progress | None
) -> tuple[SimulationResult, Ran]:
    """Return the result of a sweep, and the run that it shows: that of the knee, else of the first value.

    ``trace`` is the load at the first value.
    """
    asked = place.asked
    sweep = asked.sweep
    if sweep is None:
        raise AssertionError("nothing is swept")
    tasks = tasks_of(place, trace)
    told = executor.run(tasks, progress).results
    runs = [(value, one.ran) for value, one in zip(sweep.values, told, strict=True) if one is not None]
    points = tuple(_point(value, ran) for value, ran in runs)
    whole = tuple(point for point in points if not point.partial)
    knee, text = knee_of(sweep.variable, [_as_estimated(point) for point in whole])
    shown = next((ran for value, ran in runs if value == knee), runs[0][1])
    curve = LoadCurve(
        variable=sweep.variable,
        points=points,
        knee=knee,
        knee_text=text,
        highest_within_slo=_highest(whole) if asked.slo else None,
    )
    missing = tuple(task.name for task, one in zip(tasks, told, strict=True) if one is None)
    return replace(place.filled(described, shown), sweep=curve, not_run=missing), shown


def _point(value: float, ran: Ran) -> LoadPoint:
    found = {name: getattr(ran.result, name) for name in SHARED}
    return LoadPoint(**(found | {"over_time": ()}), value=value, slo=ran.slo)


def _highest(points: tuple[LoadPoint, ...]) -> float | None:
    """Return the greatest value up to which all objectives are met at every one."""
    highest = None
    for point in points:
        if not all(one.met for one in point.slo):
            break
        highest = point.value
    return highest


def _as_estimated(point: LoadPoint) -> SweepPoint:
    """Return a run as a point of the curves of ``estimate``, whose rule of the knee it takes."""
    tokens = _figure(point.output_tokens_per_s)
    return SweepPoint(
        value=point.value,
        batch=0.0,
        ttft_s=None if point.ttft_s is None else _figure(point.ttft_s.mean),
        tpot_s=None if point.tpot_s is None else _figure(point.tpot_s.mean),
        e2e_s=None if point.e2e_s is None else _figure(point.e2e_s.mean),
        output_tokens_per_s=tokens,
        output_tokens_per_s_per_user=None,
        output_tokens_per_s_per_gpu=tokens,
        requests_per_s=_figure(point.requests_per_s),
        usd_per_million_output_tokens=None,
        stable=point.completed > 0,
        bound_by="",
    )


def _figure(value: float) -> Figure:
    return Figure(value=value, low=value, high=value, basis=Basis.MODELLED)
