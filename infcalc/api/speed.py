"""How fast: time to first token, time per token, throughput and cost of deployments under a load."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.answer import Answer, distinct
from infcalc.api.costing import (
    Terms,
    price_warnings,
    rent_inputs,
    rent_of,
    rent_origin,
    settled,
    spread_of,
    unused_prices,
)
from infcalc.api.deployment import (
    REFERENCE_GPU,
    REFERENCE_MODEL,
    Ask,
    Deployment,
    kv_format,
    load,
    merged_inputs,
    resolve,
    single_kv_dtype,
)
from infcalc.api.figures import Bands, Times, bands_of, inverse, scaled
from infcalc.api.floors import FloorClock, Floors, offload_step_s
from infcalc.api.held import held
from infcalc.api.ledger import deployment_ledger, longest_for
from infcalc.api.objectives import Objective, Outcome, check_statistics, outcome
from infcalc.api.offer import Figure, LoadKind, Offer, is_burst
from infcalc.api.offering import Load, check_offer, load_for
from infcalc.api.servers import answer_nodes, clock_of, paced_on, rooms_of, server_of
from infcalc.api.sizing import check_contexts, check_model_len
from infcalc.api.spending import Day, ProfileAsk, Spending, Use, day_of_profile, spending_of
from infcalc.api.steps import Step, Stepping, decode_step, prefill_step
from infcalc.api.sweeping import Curve, Sweep, SweepPoint, Variable, knee_of
from infcalc.engines.pace import pace, without_graphs
from infcalc.engines.verdicts import cache_kind, kv_verdict, weights_verdict
from infcalc.errors import InfcalcError, UsageError
from infcalc.frozen import frozen
from infcalc.planning.money import Traffic
from infcalc.serving.lane import latency_of
from infcalc.serving.prefill import prefill_s
from infcalc.serving.server import Loading, Requests, Saturated, Server, Speed, under
from infcalc.spec.explain import Input
from infcalc.units import format_bytes, format_seconds
from infcalc.workload.lengths import scatter_of

if TYPE_CHECKING:
    from infcalc.api.costing import Rent
    from infcalc.api.filling import Change
    from infcalc.api.judging import Judgement, Measurement
    from infcalc.api.servers import LaneClock, Rooms
    from infcalc.api.spending import AgainstApi, DayBill, FullUse
    from infcalc.catalog.lookup import Catalog
    from infcalc.engines.pace import Pace
    from infcalc.engines.rules import Since
    from infcalc.serving.times import Clock
    from infcalc.spec.explain import Explanation
    from infcalc.spec.kv import KvFormat

_DOES_NOT_FIT = 3
_NOT_MET = 4
_US_PER_S = 1e6


@frozen
class Guaranteed:
    """Floors of a load as the result shows them, in seconds, and the ceiling of its throughput: exact, not modelled."""

    ttft_floor_s: float
    tpot_floor_s: float | None
    e2e_floor_s: float
    output_tokens_ceiling_per_s: float


@frozen
class SpeedResult:
    """How fast one deployment answers one load; times are means over its requests.

    ``batch`` is the mean number of requests in decode over the replica, ``max_batch`` how many memory and the engine's
    cap let run. ``stable`` is False where requests arrive faster than they can be answered: times are then None, for
    they grow as long as the load lasts; only those of a finite run are given. ``bound_by`` says what limits the
    throughput. All figures are None where the model does not fit.

    ``tpot_s`` is of each token after the first, with what other requests' prefill adds; ``step`` is one decode step
    without it. ``limits`` are the floors and ceilings that no machine of this kind can beat. With a sweep the figures
    are those of its knee, else of its first value.
    """

    model: str
    gpu: str
    num_gpus: int
    weights: str
    kv_dtype: str
    engine: str
    engine_version: str
    fits: bool
    missing_bytes: int
    changes: tuple[Change, ...]
    load: LoadKind
    input_tokens: float
    output_tokens: float
    cached_tokens: float
    """Of a prompt, found in the prefix cache."""
    ttft_s: Figure | None = None
    tpot_s: Figure | None = None
    tpot_inclusive_s: Figure | None = None
    """E2E over all tokens of the answer, which some benchmark tools print as TPOT: the first token's wait is in it."""
    e2e_s: Figure | None = None
    queue_s: Figure | None = None
    """Part of the time to first token that is waiting for a place."""
    output_tokens_per_s: Figure | None = None
    total_tokens_per_s: Figure | None = None
    """Prompts and answers."""
    output_tokens_per_s_per_user: Figure | None = None
    """1 / TPOT: what one user sees while an answer streams."""
    output_tokens_per_s_per_gpu: Figure | None = None
    requests_per_s: Figure | None = None
    highest_stable_requests_per_s: Figure | None = None
    """Where requests arrive at a rate: the highest that can be answered."""
    batch: float = 0.0
    max_batch: float = 0.0
    stable: bool = True
    bound_by: str = ""
    limits: Guaranteed | None = None
    step: Step | None = None
    prefill_step: Step | None = None
    prefill_time_fraction: float = 0.0
    """Of the devices' time."""
    usd_per_hour: float | None = None
    """Of the replica."""
    usd_per_month: Figure | None = None
    """Of the replica, all hours paid."""
    utilization_fraction: float = 1.0
    usd_per_million_output_tokens: Figure | None = None
    usd_per_million_input_tokens: Figure | None = None
    usd_per_million_cached_tokens: Figure | None = None
    """Device time of one more token of a prompt that the prefix cache holds."""
    usd_per_million_blended_tokens: Figure | None = None
    usd_per_million_total_tokens: Figure | None = None
    kwh_per_million_output_tokens: Figure | None = None
    """Of the GPUs' boards; times the PUE of own hardware."""
    at_full: FullUse | None = None
    """The same where all paid hours are used."""
    break_even: AgainstApi | None = None
    bill: DayBill | None = None
    measured: tuple[Judgement, ...] = ()
    slo: tuple[Outcome, ...] = ()
    sweep: Curve | None = None


@frozen
class Site:
    """One deployment with its KV precision, by the ask for it alone; memory needs no more than this."""

    ask: Ask
    deployment: Deployment
    form: KvFormat
    form_origin: str
    catalog: Catalog
    """Where what is known of its GPU is looked up."""


@frozen
class Machine:
    """A site whose steps can be timed."""

    site: Site
    pace: Since[Pace]
    clock: LaneClock
    floors: FloorClock
    bands: Bands
    offload_s: float
    rooms: Rooms

    @property
    def deployment(self) -> Deployment:
        """What is deployed."""
        return self.site.deployment

    @property
    def stepping(self) -> Stepping:
        """What its steps are priced with."""
        return Stepping(
            clock=self.clock,
            floors=self.floors,
            bands=self.bands,
            offload_s=self.offload_s,
        )


@frozen
class Run:
    """A load on a machine: what was asked of the server, how fast it was, and what physics allows."""

    machine: Machine
    load: Load
    server: Server
    asked: Requests
    speed: Speed
    floors: Floors
    most_per_s: float | None
    """Requests per second that can be answered, where they arrive at a rate."""
    raised: tuple[str, ...]

    @property
    def burst(self) -> bool:
        """Whether all requests come at once, or nearly, and nothing caps how many run."""
        offer = self.load.offer
        return is_burst(num_requests=offer.num_requests, clients=offer.concurrency, requests_per_s=offer.requests_per_s)

    @property
    def bands(self) -> Bands:
        """How the figures of such a load spread."""
        return self.machine.bands.of_burst if self.burst else self.machine.bands

    @property
    def at_rate(self) -> bool:
        """Whether times spread as those of requests that come at a rate."""
        return self.load.kind is LoadKind.RATE and not self.burst


def estimate(
    ask: Ask | None = None,
    offer: Offer | None = None,
    *,
    contexts: tuple[int, ...] = (),
    terms: Terms | None = None,
    profile: ProfileAsk | None = None,
    sweep: Sweep | None = None,
    measured: tuple[Measurement, ...] = (),
    slo: tuple[Objective, ...] = (),
    explain: bool = False,
) -> Answer[SpeedResult]:
    """Return how fast each asked deployment answers the offered load, and what its tokens cost.

    Without lengths, prompt and answer fill 4,096 tokens (or the asked context), half each; without a load, as many
    requests run as memory and the engine admit. Exit code 3 where a deployment does not fit, 4 where an objective of
    ``slo`` is not met.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask, offer, terms = ask or Ask(), offer or Offer(), terms or Terms()
    contexts = check_contexts(contexts)
    _check_sweep(sweep, offer, measured)
    if sweep is None:
        check_offer(offer)
    if profile is not None and sweep is not None:
        raise UsageError(
            "a sweep and a profile", place="--profile", hint="give the load of one replica, without --sweep"
        )
    day = day_of_profile(profile)
    results: list[SpeedResult] = []
    notes: list[str] = []
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    explanations: list[Explanation] = []
    catalog = load(ask)
    terms = settled(terms, catalog)
    for one in asks_of(ask):
        (deployment,) = resolve(one, catalog)
        check_model_len(deployment)
        notes += deployment.assumptions
        talk += deployment.warnings
        site = site_of(one, deployment, catalog)
        result, run, said, found = _answered(site, offer, contexts, asker=_Asker(terms, day), sweep=sweep)
        talk += said
        rent = rent_of(deployment.gpu, terms, prefill_fraction=result.prefill_time_fraction)
        talk += price_warnings(deployment.gpu, rent, terms) if run is not None else ()
        varied = {"gpus", "tp"} if sweep is not None and sweep.variable is Variable.TP else set()
        placed = tuple(item for item in deployment.inputs if item.name not in varied)
        inputs.append((*placed, *found, *rent_inputs(rent, terms)))
        notes += _notes(run, rent, terms) if run is not None else []
        if run is not None:
            judged = _judged(run, result, measured)
            kept = _kept(run, result, slo)
            result = replace(result, measured=judged, slo=kept)
            talk += [f"SLO: {one.text}" for one in kept if not one.met]
            if measured:
                from infcalc.api.losses import routing_note  # noqa: PLC0415 - only with a measurement

                notes += routing_note(deployment)
            if explain:
                from infcalc.api.reasons import explain_speed  # noqa: PLC0415 - only when asked

                explanations += explain_speed(run, result, rent, terms)
        results.append(result)
    talk += unused_prices(terms, (result.gpu for result in results))
    if not all(result.fits for result in results):
        code = _DOES_NOT_FIT
    else:
        code = _NOT_MET if any(not one.met for result in results for one in result.slo) else 0
    return Answer(
        command="estimate",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
        exit_code=code,
    )


def asks_of(ask: Ask) -> list[Ask]:
    """Return an ask for each asked model and GPU."""
    return [
        replace(ask, models=(model,) if ask.models else (), gpus=(gpu,) if ask.gpus else ())
        for model in ask.models or (REFERENCE_MODEL,)
        for gpu in ask.gpus or (REFERENCE_GPU,)
    ]


def _check_sweep(sweep: Sweep | None, offer: Offer, measured: tuple[Measurement, ...]) -> None:
    if sweep is None:
        return
    if measured:
        raise UsageError("a sweep and a measurement", place="--measured", hint="give the load that was measured alone")
    taken = {
        Variable.BATCH: offer.batch,
        Variable.CONCURRENCY: offer.concurrency,
        Variable.USERS: offer.concurrency,
        Variable.RATE: offer.requests_per_s,
        Variable.INPUT_TOKENS: offer.input_tokens,
        Variable.OUTPUT_TOKENS: offer.output_tokens,
    }
    if taken.get(sweep.variable) is not None:
        raise UsageError(
            f"--{sweep.variable} is given and swept", place="--sweep", hint=f"leave --{sweep.variable} out"
        )


# One deployment ------------------------------------------------------------------------------------------------------


def site_of(ask: Ask, deployment: Deployment, catalog: Catalog | None = None) -> Site:
    """Return a deployment with its KV precision; ``catalog`` where it is at hand."""
    form, origin, _ = kv_format(deployment, single_kv_dtype(ask))
    return Site(ask=ask, deployment=deployment, form=form, form_origin=origin, catalog=catalog or load(ask))


def machine_of(site: Site, rooms: Rooms | None = None) -> Machine:
    """Return a site whose steps can be timed; ``rooms`` are its pools, where they are at hand."""
    deployment = site.deployment
    efficiency = site.catalog.efficiency(deployment.gpu)
    known, offload_s = _pace(site), offload_step_s(deployment)
    steps = replace(known, value=paced_on(known.value, efficiency, deployment.rules.engine))
    clock = clock_of(deployment, site.form, steps.value, efficiency)
    return Machine(
        site=site,
        pace=steps,
        clock=clock,
        floors=FloorClock(deployment, site.form, offload_s=offload_s),
        bands=bands_of(deployment, efficiency),
        offload_s=offload_s,
        rooms=rooms or rooms_of(deployment, site.form),
    )


def _pace(site: Site) -> Since[Pace]:
    rules = site.deployment.rules
    found = pace(rules.engine, rules.version, rules.generation if rules.engine == "vllm" else "")
    return replace(found, value=without_graphs(found.value)) if site.ask.enforce_eager else found


class _OffloadedClock:
    """A clock whose steps also read weights over the link to the host, before they can compute with them."""

    __slots__ = ("_clock", "_more_s")

    def __init__(self, clock: Clock, more_s: float) -> None:
        self._clock, self._more_s = clock, more_s

    def step_s(self, **step: Any) -> Any:  # noqa: ANN401 - numbers or arrays
        """Return the seconds of one step."""
        return self._clock.step_s(**step) + self._more_s


def _answered(
    site: Site, offer: Offer, contexts: tuple[int, ...], *, asker: _Asker, sweep: Sweep | None
) -> tuple[SpeedResult, Run | None, list[str], tuple[Input, ...]]:
    """Return the result of one deployment, the run it is of, warnings, and the inputs it rests on."""
    if sweep is None:
        asked = load_for(site.deployment, offer, contexts)
        result, run = asker.result(site, asked)
        return result, run, _warnings(site, asked, result, run), _load_inputs(site, asked)
    tried = _swept(site, offer, contexts, asker=asker, sweep=sweep)
    ran = [one for one in tried if one.run is not None]
    skipped = tuple(f"{sweep.variable} {one.value:g}: {one.problem}" for one in tried if one.run is None)
    unfit = next((one for one in tried if one.result is not None), None)
    if not ran and unfit is None:
        raise UsageError(f"no value of the sweep can be: {skipped[0]}", place="--sweep", hint="choose other values")
    points = tuple(_point(one.value, one.result) for one in ran if one.result is not None)
    knee, text = knee_of(sweep.variable, points)
    shown = next((one for one in ran if one.value == knee), ran[0] if ran else unfit)
    if shown is None or shown.result is None or shown.asked is None:
        raise AssertionError
    curve = Curve(variable=sweep.variable, points=points, knee=knee, knee_text=text, skipped=skipped)
    talk = [warning for one in tried for warning in one.warnings]
    talk += [f"left out: {one}" for one in skipped]
    first, last = sweep.values[0], sweep.values[-1]
    swept = Input(name="sweep", value=f"{sweep.variable} {first:g}..{last:g}", origin="given (--sweep)")
    inputs = [item for item in _load_inputs(site, shown.asked) if item.name not in _LOAD_NAMES]
    inputs = [item for item in inputs if item.name != str(sweep.variable).replace("-", "_")]
    result = replace(shown.result, sweep=curve)
    return result, shown.run, talk, (*inputs, swept)


_LOAD_NAMES = {"concurrency", "users", "batch", "rate_per_s", "load"}


@frozen
class _Tried:
    """One value of a sweep: its result, or the problem that left none."""

    value: float
    problem: str = ""
    asked: Load | None = None
    result: SpeedResult | None = None
    run: Run | None = None
    warnings: tuple[str, ...] = ()


def _swept(site: Site, offer: Offer, contexts: tuple[int, ...], *, asker: _Asker, sweep: Sweep) -> list[_Tried]:
    found = []
    for value in sweep.values:
        try:
            one, offered = _varied(site, offer, sweep.variable, value)
            asked = load_for(one.deployment, offered, contexts)
            result, run = asker.result(one, asked)
        except InfcalcError as problem:
            found.append(_Tried(value=value, problem=problem.message))
            continue
        missing = "" if run is not None else f"does not fit, {format_bytes(result.missing_bytes)} per GPU are missing"
        told = () if run is None else tuple(_warnings(one, asked, result, run))
        found.append(_Tried(value=value, problem=missing, asked=asked, result=result, run=run, warnings=told))
    return found


def _varied(site: Site, offer: Offer, variable: Variable, value: float) -> tuple[Site, Offer]:
    """Return site and offer at one value of a sweep."""
    match variable:
        case Variable.BATCH:
            offer = replace(offer, batch=int(value))
        case Variable.CONCURRENCY | Variable.USERS:
            offer = replace(offer, concurrency=int(value))
        case Variable.RATE:
            offer = replace(offer, requests_per_s=value)
        case Variable.INPUT_TOKENS:
            offer = replace(offer, input_tokens=int(value))
        case Variable.OUTPUT_TOKENS:
            offer = replace(offer, output_tokens=int(value))
        case Variable.TP:
            ask = replace(site.ask, tp=int(value), num_gpus=None)
            (deployment,) = resolve(ask, site.catalog)
            site = site_of(ask, deployment, site.catalog)
    check_offer(offer)
    return site, offer


class _Asker:
    """Asks sites for loads; the clock of a site is made once, and only where a load fits."""

    def __init__(self, terms: Terms, day: Day | None = None) -> None:
        self._terms, self._day = terms, day
        self._machines: dict[int, Machine] = {}

    def result(self, site: Site, asked: Load) -> tuple[SpeedResult, Run | None]:
        """Return the result of one load; no run where it does not fit."""
        deployment, total = site.deployment, asked.total_tokens
        book = deployment_ledger(replace(deployment, max_model_len=total), site.form, context_tokens=total)
        if not book.fits:
            return _unfit(site, asked, book.missing_bytes), None
        machine = self._machines.get(id(site))
        if machine is None:
            machine = self._machines[id(site)] = machine_of(site)
        run = run_of(machine, asked)
        return _result(run, self._terms, self._day), run


def answered(site: Site, asked: Load) -> tuple[SpeedResult, Run | None]:
    """Return the result of one load on a site, and its run; no run where it does not fit."""
    return _Asker(Terms()).result(site, asked)


def result_on(machine: Machine, asked: Load) -> tuple[SpeedResult, Run]:
    """Return the result of a load on a machine that it fits on, and its run."""
    run = run_of(machine, asked)
    return _result(run, Terms()), run


def serving(machine: Machine, asked: Load, room: float | None = None) -> tuple[Server, Requests]:
    """Return the server that a machine is for the requests of a load, and what each of them asks.

    ``room`` is how many of them memory holds, where that is at hand.
    """
    deployment = machine.deployment
    if room is None:
        room = machine.rooms.requests(asked.inputs, asked.outputs)
    server = server_of(deployment, machine.clock, machine.pace.value, max(room, float(deployment.parallelism.dp)))
    if machine.offload_s:
        slow, full = (_OffloadedClock(clock, machine.offload_s) for clock in (server.clock, server.full_clock))
        server = replace(server, clock=slow, full_clock=full)
    hit = asked.offer.prefix_hit_fraction
    return server, Requests(
        prompt_tokens=asked.prompt_tokens * (1 - hit),
        cached_tokens=asked.prompt_tokens * hit,
        answers=answer_nodes(asked.outputs),
        prompt_scatter=scatter_of(asked.inputs),
    )


def run_of(machine: Machine, asked: Load, room: float | None = None) -> Run:
    """Return a load on a machine that it fits on; ``room`` as in :func:`serving`."""
    return run_on(machine, asked, *serving(machine, asked, room))


def run_on(machine: Machine, asked: Load, server: Server, requests: Requests) -> Run:
    """Return a load on a server that a machine makes."""
    offer = asked.offer
    load = Loading(
        batch=offer.batch,
        num_clients=None if offer.concurrency is None else float(offer.concurrency),
        requests_per_s=offer.requests_per_s,
        num_requests=None if offer.num_requests is None else float(offer.num_requests),
        think_time_s=offer.think_time_s,
    )
    most = Saturated.of(server, requests) if asked.kind is LoadKind.RATE else None
    found = held(
        machine.floors,
        server,
        requests,
        load,
        under(server, requests, load, most),
        num_stages=machine.deployment.parallelism.pp,
    )
    return Run(
        machine=machine,
        load=asked,
        server=server,
        asked=requests,
        speed=found.speed,
        floors=found.floors,
        most_per_s=None if most is None else most.speed().requests_per_s,
        raised=found.raised,
    )


# Run -> result -------------------------------------------------------------------------------------------------------


def _unfit(site: Site, asked: Load, missing_bytes: int) -> SpeedResult:
    from infcalc.api.filling import memory  # noqa: PLC0415 - only where something does not fit

    total = asked.total_tokens
    one = replace(site.ask, kv_dtypes=(site.form.name,), max_model_len=total)
    told = memory(one, contexts=(total,)).result
    return replace(_identified(site, asked), fits=False, missing_bytes=missing_bytes, changes=told.changes)


def _identified(site: Site, asked: Load) -> SpeedResult:
    deployment = site.deployment
    return SpeedResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        weights=deployment.weights,
        kv_dtype=site.form.name,
        engine=deployment.rules.engine,
        engine_version=deployment.rules.version,
        fits=True,
        missing_bytes=0,
        changes=(),
        load=asked.kind,
        input_tokens=asked.prompt_tokens,
        output_tokens=asked.answer_tokens,
        cached_tokens=asked.prompt_tokens * asked.offer.prefix_hit_fraction,
    )


def _result(run: Run, terms: Terms, day: Day | None = None) -> SpeedResult:
    machine, speed, floors, asked = run.machine, run.speed, run.floors, run.asked
    bands, deployment = run.bands, machine.deployment
    answer = asked.answer_tokens
    decodes = answer > 1
    rate = rate_of(run)
    tokens = scaled(rate, answer)
    times = times_of(run, rate)
    e2e, tpot = times.e2e_s, times.tpot_s if decodes else None
    lanes = run.server.num_lanes
    chunk = min(asked.prompt_tokens, run.server.budget_tokens)
    busy, num_gpus = _busy_ranks(run), deployment.parallelism.num_gpus
    use = use_of(run, rate, tokens)
    spent = spending_of(deployment.gpu, num_gpus, use, terms, day)
    return replace(
        _identified(machine.site, run.load),
        ttft_s=times.ttft_s,
        tpot_s=tpot,
        tpot_inclusive_s=None if e2e is None else scaled(e2e, 1 / answer),
        e2e_s=e2e,
        queue_s=times.queue_s,
        output_tokens_per_s=tokens,
        total_tokens_per_s=scaled(rate, answer + run.load.prompt_tokens),
        output_tokens_per_s_per_user=inverse(tpot),
        output_tokens_per_s_per_gpu=scaled(tokens, 1 / num_gpus),
        requests_per_s=rate,
        highest_stable_requests_per_s=(
            None
            if run.most_per_s is None
            else bands.figure("output_tokens_per_s", run.most_per_s, most=max(floors.requests_per_s, run.most_per_s))
        ),
        batch=speed.num_decodes,
        max_batch=run.server.num_places,
        stable=speed.stable,
        bound_by=speed.bound_by,
        limits=Guaranteed(
            ttft_floor_s=floors.ttft_s,
            tpot_floor_s=floors.tpot_s if decodes else None,
            e2e_floor_s=floors.e2e_s,
            output_tokens_ceiling_per_s=floors.requests_per_s * answer,
        ),
        step=decode_step(machine.stepping, speed.num_decodes / lanes, asked.live_tokens, busy_dp_ranks=busy),
        prefill_step=prefill_step(machine.stepping, chunk, asked.cached_tokens, busy_dp_ranks=busy),
        prefill_time_fraction=use.traffic.prefill_fraction,
        utilization_fraction=terms.utilization_fraction,
        **_money(spent, num_gpus),
    )


def _money(spent: Spending, num_gpus: int) -> dict[str, Any]:
    """Return what a result says of cost, by its keys."""
    rent, costs = spent.rent, spent.costs
    return {
        "usd_per_hour": None if rent is None else rent.usd_per_hour * num_gpus,
        "usd_per_month": spent.usd_per_month,
        "usd_per_million_output_tokens": None if costs is None else costs.output,
        "usd_per_million_input_tokens": None if costs is None else costs.input,
        "usd_per_million_cached_tokens": None if costs is None else costs.cached,
        "usd_per_million_blended_tokens": None if costs is None else costs.blended,
        "usd_per_million_total_tokens": None if costs is None else costs.total,
        "kwh_per_million_output_tokens": spent.kwh_per_million_output_tokens,
        "at_full": spent.at_full,
        "break_even": spent.break_even,
        "bill": spent.bill,
    }


def front_end_s(run: Run) -> float:
    """Return what the front end takes of the time to the first token of a lone request: none of a batch's."""
    return 0.0 if run.load.offer.batch is not None else latency_of(run.server, run.asked, front_end=True)


def _busy_ranks(run: Run) -> float | None:
    """Return how many attention-DP ranks decode, where there are not enough requests for all of them."""
    server, few = run.server, run.speed.num_decodes / run.server.num_stages
    return max(1.0, few) if server.num_locked > 1 and few < server.num_locked else None


def times_of(run: Run, rate: Figure) -> Times:
    """Return the times of a request: in an endless loop the whole is what its rate leaves (Little 1961)."""
    offer = run.load.offer
    clients = None if offer.num_requests is not None or offer.concurrency is None else float(offer.concurrency)
    return run.bands.times(
        run.speed, run.floors, at_rate=run.at_rate, rate=rate, num_clients=clients, think_s=offer.think_time_s
    )


def rate_of(run: Run) -> Figure:
    """Return the rate of answered requests: as they arrive, where all of them can be answered."""
    bands, speed, floors = run.bands, run.speed, run.floors
    offered = run.load.offer.requests_per_s
    most = floors.requests_per_s if offered is None else min(floors.requests_per_s, offered)
    if offered is None or run.most_per_s is None or run.load.offer.num_requests is not None:
        return bands.figure("output_tokens_per_s", speed.requests_per_s, most=most)
    able = bands.figure("output_tokens_per_s", run.most_per_s)
    value = min(speed.requests_per_s, most)
    return Figure(value=value, low=min(value, able.low), high=max(value, min(most, able.high)), basis=bands.basis)


def use_of(run: Run, rate: Figure, tokens: Figure) -> Use:
    """Return how a replica is used: what it gives, and how the device time of a request divides.

    Prefill is full steps of a prompt, decode a request's share of full steps. What a cached token costs is how much
    longer the prefill of the rest takes for attending to it; where none is found, half of the prompt is taken as found.
    """
    server, asked, load = run.server, run.asked, run.load

    def spent_s(new_tokens: float, cached_tokens: float) -> float:
        return prefill_s(
            server.full_clock, new_tokens=new_tokens, cached_tokens=cached_tokens, budget_tokens=server.budget_tokens
        )

    first_s = spent_s(asked.prompt_tokens, asked.cached_tokens)
    lane = max(1.0, run.speed.num_decodes / server.num_lanes)
    rest_s = (
        max(0.0, asked.answer_tokens - 1)
        * float(server.full_clock.step_s(num_decodes=lane, context_tokens=asked.live_tokens))
        / lane
    )
    found = asked.cached_tokens or asked.prompt_tokens / 2
    new = asked.prompt_tokens if asked.cached_tokens else asked.prompt_tokens / 2
    more_s = max(0.0, spent_s(new, found) - spent_s(new, 0.0))
    return Use(
        requests_per_s=rate,
        traffic=Traffic(
            output_tokens_per_s=spread_of(tokens),
            prompt_tokens=load.prompt_tokens,
            answer_tokens=asked.answer_tokens,
            prefill_fraction=first_s / (first_s + rest_s),
            cached_token_fraction=more_s / found / (first_s + rest_s),
        ),
        cached_tokens=load.prompt_tokens * load.offer.prefix_hit_fraction,
        users=None if load.offer.concurrency is None else float(load.offer.concurrency),
    )


def _point(value: float, result: SpeedResult) -> SweepPoint:
    tokens, per_gpu, rate = result.output_tokens_per_s, result.output_tokens_per_s_per_gpu, result.requests_per_s
    if tokens is None or per_gpu is None or rate is None:
        raise AssertionError
    return SweepPoint(
        value=value,
        batch=result.batch,
        ttft_s=result.ttft_s,
        tpot_s=result.tpot_s,
        e2e_s=result.e2e_s,
        output_tokens_per_s=tokens,
        output_tokens_per_s_per_user=result.output_tokens_per_s_per_user,
        output_tokens_per_s_per_gpu=per_gpu,
        requests_per_s=rate,
        usd_per_million_output_tokens=result.usd_per_million_output_tokens,
        stable=result.stable,
        bound_by=result.bound_by,
    )


# Measurements and objectives -----------------------------------------------------------------------------------------


def _judged(run: Run, result: SpeedResult, measured: tuple[Measurement, ...]) -> tuple[Judgement, ...]:
    if not measured:
        return ()
    from infcalc.api.losses import judged  # noqa: PLC0415 - only with a measurement

    return judged(run, result, measured)


def figure_of(result: SpeedResult, quantity: str) -> Figure | None:
    """Return a figure of a result by its key."""
    found: Figure | None = getattr(result, quantity)
    return found


def _kept(run: Run, result: SpeedResult, slo: tuple[Objective, ...]) -> tuple[Outcome, ...]:
    alike = run.load.kind is LoadKind.BATCH and run.load.alike and result.batch <= result.max_batch
    finite = run.load.offer.num_requests is not None
    check_statistics(slo, finite=finite, alike=alike)
    return tuple(outcome(objective, _statistic(run, result, objective, alike=alike)) for objective in slo)


def _statistic(run: Run, result: SpeedResult, objective: Objective, *, alike: bool) -> Figure | None:
    figure = figure_of(result, objective.quantity)
    if figure is None or objective.statistic == "mean" or alike:
        return figure
    medians = {"ttft_s": "ttft_median_s", "tpot_s": "tpot_median_s", "e2e_s": "e2e_median_s"}
    if objective.quantity not in medians:
        return figure
    value = max(getattr(run.speed, medians[objective.quantity]), 0.0)
    return scaled(figure, value / figure.value) if figure.value else figure


# What is said besides ------------------------------------------------------------------------------------------------


def _load_inputs(site: Site, asked: Load) -> tuple[Input, ...]:
    rules, steps = site.deployment.rules, _pace(site)
    return (
        Input(name="kv_dtype", value=site.form.name, origin=site.form_origin, source=site.form.note),
        *asked.found,
        Input(name="pace", value=str(steps.value.order), origin=f"{rules.engine} {rules.version}", source=steps.source),
    )


def _notes(run: Run, rent: Rent | None, terms: Terms) -> list[str]:
    machine, asked = run.machine, run.load
    deployment = machine.deployment
    rules, steps, number = deployment.rules, machine.pace.value, deployment.parallelism.num_gpus
    basis, footing = machine.bands.basis, steps.steps.text
    found = [
        "times are means over requests; low to high is meant to hold 80 % of measurements",
        *_own_bands(run),
        f"efficiencies of {deployment.gpu.name} are {basis}",
        f"{rules.engine} {rules.version} orders prefill and decode as: {steps.order}; its overheads are {footing}",
    ]
    if machine.site.ask.enforce_eager:
        found.append(
            "--enforce-eager: no step is shorter than its launches, "
            f"{_US_PER_S * steps.eager_layer_s:.0f} us for a layer and {_US_PER_S * steps.eager_message_s:.0f} us for "
            f"a message between GPUs ({steps.eager.text})"
        )
    if asked.kind is LoadKind.BATCH and (asked.offer.batch or 1) <= run.server.num_places:
        found.append(
            "a batch starts and ends together, without a front end: its first tokens come when all are computed"
        )
    if asked.offer.think_time_s:
        found.append(
            f"users pause {format_seconds(asked.offer.think_time_s)} on average, now more and now less, and have been "
            "at it for a while; those who all start at once and pause for just as long each time stay in step, and "
            "wait for each other: simulate --arrivals closed:clients=N,think=30s has that, with think-cv=1 pauses vary"
        )
    if asked.offer.prefix_hit_fraction:
        found.append(
            f"{asked.offer.prefix_hit_fraction:.0%} of each prompt is found in the prefix cache; every request still "
            "holds its whole context in memory, as if nothing were shared"
        )
    if rent is None:
        found.append(f"no price of {deployment.gpu.name} is known: give --price to have costs")
    else:
        gpus = f"{number} GPU{'' if number == 1 else 's'}"
        found.append(
            f"cost: {gpus} at {rent.usd_per_hour:.4g} USD/h each ({rent_origin(rent)}), "
            f"{100 * terms.utilization_fraction:g} % of the hours used; output tokens bear all of it, input tokens the "
            "share of device time that is prefill, cached tokens the time to attend to them; blended are 3 input "
            "tokens to 1 output token, each at the device time it takes; a month has 730 hours"
        )
    if deployment.gpu.tdp_watt is not None:
        found.append(
            "energy: of the GPUs' boards, whose power was measured on H200 and B200 alone; not of host and network"
        )
    return found


def _own_bands(run: Run) -> list[str]:
    """Return where bands come from that a calibration of this machine states."""
    own = run.bands.own
    known = run.machine.site.catalog.efficiency(run.machine.deployment.gpu).calibration
    if not own or known is None:
        return []
    listed = ", ".join(f"{one.of} ({one.num_figures} figures)" for one in own)
    source = known.source or "of the catalog"
    text = f"bands of {listed} are those of this model and engine on this machine, on runs that the calibration had not"
    return [f"{text} seen ({source}): they hold for loads like those"]


def _warnings(site: Site, asked: Load, result: SpeedResult, run: Run | None) -> list[str]:
    if run is None:
        unfit = (
            f"{result.model} in {result.weights} does not fit on {result.num_gpus} x {result.gpu}: "
            f"{format_bytes(result.missing_bytes)} per GPU are missing for one request of {asked.total_tokens:,} tokens"
        )
        return [*_refusals(site), unfit]
    raised = (f"held at the floor: {text}" for text in run.raised)
    return [*_refusals(site), *_length_warnings(site, asked), *_crowd_warnings(asked, result, run), *raised]


def _refusals(site: Site) -> list[str]:
    """Return what the engine cannot do, or this answer does not know."""
    deployment = site.deployment
    rules, gpu = deployment.rules, deployment.gpu
    server = f"{rules.engine} {rules.version}"
    found = []
    cached = kv_verdict(rules.engine, rules.version, gpu, site.form.name, cache=cache_kind(deployment.model))
    if cached.supported is False:
        found.append(f"{server} has no KV cache in {site.form.name} on {gpu.name}: {cached.text}")
    stored = weights_verdict(rules.engine, rules.version, gpu, deployment.weights)
    if stored.supported is False:
        found.append(f"{server} cannot compute with weights in {deployment.weights} on {gpu.name}: {stored.text}")
    if deployment.num_draft_tokens:
        found.append("drafted tokens are not priced here: see `infcalc speculate`")
    return found


def _length_warnings(site: Site, asked: Load) -> list[str]:
    from infcalc.api.users import Traffic, service_warnings  # noqa: PLC0415 - only for what runs

    deployment = site.deployment
    traffic = Traffic(inputs=asked.inputs, outputs=asked.outputs, think_time_s=0.0, service_time_s=None)
    found = list(service_warnings(deployment, traffic))
    longest = longest_for(deployment, site.form)
    if site.ask.max_model_len is None and longest < deployment.max_model_len:
        found.append(
            f"{deployment.rules.engine} does not start with the {deployment.max_model_len:,} tokens that "
            f"{deployment.model.name} was made for: set --max-model-len to at most {longest:,}, as assumed here"
        )
    return found


def _crowd_warnings(asked: Load, result: SpeedResult, run: Run) -> list[str]:
    """Return what is to be said of requests that find no place."""
    most, offer = math.floor(run.server.num_places), asked.offer
    if not result.stable:
        return [unstable_text(result)]
    if offer.batch is not None and offer.batch > most:
        text = (
            f"only {most:,} of {offer.batch:,} requests run at once ({result.bound_by}): the rest waits for a place; "
            "first tokens are then those of requests one by one, not of a batch whose prompts are all computed before"
        )
        return [text]
    if offer.concurrency is not None and not offer.think_time_s and offer.concurrency > most:
        return [f"only {most:,} of {offer.concurrency:,} requests run at once: the others wait in the queue"]
    return []


def unstable_text(result: SpeedResult) -> str:
    """Return in a sentence that a load is beyond saturation."""
    most = result.highest_stable_requests_per_s
    served = (
        "" if most is None else f"; at most {most.value:.3g} requests/s are stable ({most.low:.3g} to {most.high:.3g})"
    )
    wait = "" if result.ttft_s is None else f", up to the end of this run (mean {format_seconds(result.ttft_s.value)})"
    return f"unstable: requests arrive faster than they are answered, and the queue grows without end{wait}{served}"


__all__ = [
    "Guaranteed",
    "Machine",
    "Run",
    "Site",
    "SpeedResult",
    "Terms",
    "answered",
    "asks_of",
    "estimate",
    "figure_of",
    "front_end_s",
    "machine_of",
    "rate_of",
    "run_of",
    "run_on",
    "serving",
    "site_of",
    "unstable_text",
    "use_of",
]
