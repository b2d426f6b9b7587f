"""What happens under load? The requests of a trace on the real scheduler and cache of an engine, over time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.costing import Terms, price_warnings, rent_inputs, settled, unused_prices
from infcalc.api.deployment import Ask, load, merged_inputs, resolve
from infcalc.api.executing import SerialExecutor
from infcalc.api.simulation_ask import (
    SimulationAsk,
    at,
    check_simulation,
    defaulted,
    policies_for,
    router_of,
    with_defaults,
)
from infcalc.api.simulation_nouns import SimulationResult
from infcalc.api.sizing import check_model_len
from infcalc.api.speed import site_of
from infcalc.api.workloads import save_trace, traced_of
from infcalc.errors import FileProblem
from infcalc.frozen import frozen
from infcalc.spec.explain import Input

# What loads numpy is imported where a run begins: what is refused needs none of it.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.executing import Executor
    from infcalc.api.simulation_nouns import RunResult
    from infcalc.api.simulation_runs import Progress
    from infcalc.api.simulation_site import Place, Ran
    from infcalc.api.workloads import Traced
    from infcalc.spec.explain import Explanation

_DOES_NOT_FIT = 3
_NOT_MET = 4
_INTERRUPTED = 130


def simulate(
    ask: Ask | None = None,
    asked: SimulationAsk | None = None,
    *,
    terms: Terms | None = None,
    explain: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Answer[SimulationResult]:
    """Return what the requests of a load see on each asked deployment, and what they do to its cache and slots.

    Without anything: 1,000 requests that come at random at 3 per second, on the reference deployment. Exit code 3 where
    a deployment does not fit, 4 where an objective of ``slo`` is not met, 130 where the run was broken off: what was
    simulated until then is given, marked ``partial``, and ``not_run`` names what was not begun or not finished.
    Where the requests cannot be written, ``unsaved`` of the answer holds why. ``executor`` makes the runs of a sweep or
    a comparison; None: this process, one after the other.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve` and
            :func:`infcalc.api.workloads.workload`.

    """
    ask, asked, terms = ask or Ask(), asked or SimulationAsk(), terms or Terms()
    check_simulation(asked)
    catalog = load(ask)
    terms = settled(terms, catalog)
    deployments = resolve(ask, catalog)
    if asked.save_requests is not None and len(deployments) > 1:
        from infcalc.errors import UsageError  # noqa: PLC0415

        raise UsageError("requests of several deployments", place="--save-requests", hint="ask for one")
    sites = [site_of(ask, deployment, catalog) for deployment in deployments]
    for site in sites:
        check_model_len(site.deployment)
        policies = policies_for(asked, site.deployment.rules.engine)
        if asked.draft is not None:
            from infcalc.api.replicas import check_drafts  # noqa: PLC0415 - only with drafts

            for policy in policies:
                check_drafts(policy)
        if asked.pools is not None:
            from infcalc.api.disaggregation_ask import check_hands_over  # noqa: PLC0415 - only with pools

            check_hands_over(policies[0])
    first = asked.load if asked.sweep is None else at(asked.load, asked.sweep.variable, asked.sweep.values[0])
    traced = traced_of(with_defaults(first))
    if asked.load.save_trace is not None:
        save_trace(traced.trace, asked.load.save_trace)
    results: list[SimulationResult] = []
    notes: list[str] = [*traced.assumptions]
    talk: list[str] = [*traced.warnings]
    inputs: list[tuple[Input, ...]] = []
    explanations: list[Explanation] = []
    unsaved: list[FileProblem] = []
    from infcalc.api.simulation_site import place_of  # noqa: PLC0415 - numpy

    for site in sites:
        place = place_of(site, asked, terms, traced.trace)
        placed = _at_place(place, traced, executor or SerialExecutor(), progress=progress, explain=explain)
        result = placed.result
        results.append(result)
        unsaved += placed.unsaved
        notes += [*placed.notes, *site.deployment.assumptions]
        talk += [
            *placed.doubts,
            *site.deployment.warnings,
            *(() if place.drafted is None else place.drafted.way.doubts),
        ]
        explanations += placed.explanations
        kv = Input(name="kv_dtype", value=site.form.name, origin=site.form_origin)
        priced = rent_inputs(place.rent, terms)
        talk += price_warnings(site.deployment.gpu, place.rent, terms) if result.fits else ()
        drafting = () if place.drafted is None or asked.draft is None else place.drafted.inputs(asked.draft)
        inputs.append((*site.deployment.inputs, kv, *_asked_inputs(asked, result, traced), *drafting, *priced))
    talk += unused_prices(terms, (result.gpu for result in results))
    return Answer(
        command="simulate",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
        exit_code=_code(results),
        unsaved=tuple(unsaved),
    )


def _code(results: list[SimulationResult]) -> int:
    if any(_is_partial(one) for one in results):
        return _INTERRUPTED
    if not all(one.fits for one in results):
        return _DOES_NOT_FIT
    return _NOT_MET if any(not kept.met for one in results for kept in one.slo) else 0


def _is_partial(result: SimulationResult) -> bool:
    points = () if result.sweep is None else result.sweep.points
    return bool(result.not_run) or any(run.partial for run in (result, *result.compare, *points))


@frozen
class _Placed:
    """The result at one deployment, with what is to be noted, warned of and explained, and what was not written."""

    result: SimulationResult
    notes: Sequence[str] = ()
    doubts: Sequence[str] = ()
    explanations: Sequence[Explanation] = ()
    unsaved: tuple[FileProblem, ...] = ()


def _at_place(place: Place, traced: Traced, executor: Executor, *, progress: Progress | None, explain: bool) -> _Placed:
    """Return what is answered at one deployment."""
    from infcalc.api import simulation_words as words  # noqa: PLC0415 - numpy

    described = place.described()
    if not place.fits:
        return _Placed(result=described)
    asked = place.asked
    if asked.sweep is not None:
        from infcalc.api.simulation_sweep import swept  # noqa: PLC0415

        result, ran = swept(place, described, traced.trace, executor, progress)
        if result.sweep is not None and place.drafted is not None:
            from infcalc.api.simulation_drafting import with_crossover  # noqa: PLC0415 - only with drafts

            result = replace(result, sweep=with_crossover(result.sweep))
    elif len(policies := policies_for(asked, place.site.deployment.rules.engine)) > 1:
        result, ran = _compared(place, described, traced, executor, progress)
    else:
        ran = place.run(policies[0], traced.trace, progress)
        compare = () if ran.plain is None else _side_by_side([ran])
        if place.pools is not None:
            from infcalc.api.plain_beside import judged  # noqa: PLC0415 - only with pools

            told = judged(ran.result, place, policies[0], traced.trace, progress)
            ran = replace(ran, result=replace(ran.result, disaggregation=told))
        result = place.filled(described, ran, compare=compare)
    found = words.explanations_of(place, ran) if explain else []
    return _Placed(
        result=result,
        notes=words.notes_of(result, place, ran),
        doubts=words.doubts_of(result, ran),
        explanations=found,
        unsaved=_unsaved(ran, asked),
    )


def _unsaved(ran: Ran, asked: SimulationAsk) -> tuple[FileProblem, ...]:
    """Write the requests of a run where that is asked; return why that failed: the run is not lost for it."""
    if asked.save_requests is None:
        return ()
    from infcalc.api.simulation_saving import save_requests  # noqa: PLC0415

    try:
        save_requests(ran, asked.save_requests)
    except FileProblem as problem:
        return (problem,)
    return ()


def _compared(
    place: Place, described: SimulationResult, traced: Traced, executor: Executor, progress: Progress | None
) -> tuple[SimulationResult, Ran]:
    """Return the result of several policies, and the run that it shows: that of the first."""
    from infcalc.api.simulation_tasks import tasks_of  # noqa: PLC0415 - numpy

    tasks = tasks_of(place, traced.trace)
    told = executor.run(tasks, progress).results
    runs = [one.ran for one in told if one is not None]
    missing = tuple(task.name for task, one in zip(tasks, told, strict=True) if one is None)
    filled = place.filled(described, runs[0], compare=_side_by_side(runs))
    return replace(filled, not_run=missing), runs[0]


def _side_by_side(runs: list[Ran]) -> tuple[RunResult, ...]:
    """Return the results of runs, and after each the one of the same requests without drafting, where there is one."""
    return tuple(one for ran in runs for one in (ran.result, ran.plain) if one is not None)


def _asked_inputs(asked: SimulationAsk, result: SimulationResult, traced: Traced) -> tuple[Input, ...]:
    defaults = defaulted(asked.load)
    loaded = tuple(
        replace(item, origin="default") if item.name in defaults and asked.sweep is None else item
        for item in traced.inputs
        if asked.sweep is None or item.name != "arrivals"
    )
    said = asked.compared or asked.policy
    names = ", ".join(asked.compared) if asked.compared else str(result.policy or asked.policy or "")
    found = [*loaded, Input(name="policy", value=names, origin="given" if said else "the engine's own")]
    found += _replicas(asked, result)
    if result.num_lanes > 1:
        found.append(_given("router", str(router_of(asked)), asked.router))
    if asked.sweep is not None:
        first, last = asked.sweep.values[0], asked.sweep.values[-1]
        found.append(Input(name="sweep", value=f"{asked.sweep.variable} {first:g}..{last:g}", origin="given (--sweep)"))
    if not asked.prefix_caching:
        found.append(Input(name="prefix_caching", value="off", origin="given"))
    if asked.contiguous:
        found.append(Input(name="paging", value="off", origin="given (--contiguous)"))
    return tuple(found)


def _replicas(asked: SimulationAsk, result: SimulationResult) -> list[Input]:
    """Return how many replicas serve: so many, so many of either kind, or as many as a rule says."""
    rule, pools = asked.scaling, asked.pools
    if rule is not None:
        written = f"min={rule.num_least},max={rule.num_most},{rule.gauge}={rule.above:g},below={rule.below:g}"
        return [Input(name="autoscale", value=written, origin="given (--autoscale)")]
    if pools is None:
        return [_given("replicas", result.num_replicas, asked.num_replicas)]
    link = pools.link.bytes_per_s
    told = result.disaggregation
    speed = (told.link.bytes_per_s if told is not None else link) or 0.0
    found = [
        _given("prefill_replicas", pools.num_prefill, pools.num_prefill),
        _given("decode_replicas", pools.num_decode, pools.num_decode),
        _given("kv_link", f"{speed / 1e9:g} GB/s", link),
    ]
    for name, tp in (("prefill_tp", pools.prefill_tp), ("decode_tp", pools.decode_tp)):
        if tp is not None:
            found.append(_given(name, tp, tp))
    return found


def _given(name: str, value: object, given: object) -> Input:
    return Input(name=name, value=value, origin="default" if given is None else "given")
