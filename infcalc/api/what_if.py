"""Does feature X pay here? The same requests on the same GPUs, with it and without, by the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.costing import Terms, rent_inputs, rent_of, settled
from infcalc.api.deployment import Ask, load, merged_inputs, resolve
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.speed import machine_of
from infcalc.api.what_if_changes import Here, NotHere, Side, change_of
from infcalc.api.what_if_nouns import Factor, Feature, FeatureRow, Verdict, WhatIfResult
from infcalc.api.what_if_reasons import Told, reason
from infcalc.api.what_if_runs import Runs, rates_of, seen
from infcalc.errors import DoesNotFit, InfcalcError, UsageError
from infcalc.spec.explain import Input
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from infcalc.api.simulation_nouns import SimulationResult
    from infcalc.api.speed import Site
    from infcalc.api.what_if_changes import Change
    from infcalc.api.workload_ask import WorkloadAsk

DEFAULT_CLIENTS = 100
DEFAULT_REQUESTS = 400
_ROUNDS = 4
TPOT_BAND = 1.17
"""Eight of ten published pairs of runs, of one source and load, that differ in weights, KV precision or split of the
same GPU and model alone, have a ratio of times per token within this factor of the predicted one (81 pairs)."""
THROUGHPUT_BAND = 1.37
"""The same of tokens per second (132 pairs). Of the time of a request too, of which there are 4 pairs only: where
clients wait for answers it is one over the throughput, but for their number (Little 1961)."""
TTFT_BAND = 1.83
"""The same of times to first token (63 pairs, of which 57 differ in their split)."""
_QUEUED = 0.1
"""Of the time of a request: a server that lets no more of it pass in its queue keeps up with the rate."""
_SAME = 0.02
"""Differences that nobody would turn a setting for."""
ALREADY = "is so already"
_COST, _TIME = "cost per token", "time of a request"
_ENDS = "; tokens/s are those while clients ask, without the end of the run, where they have no more to ask"


def features_of(names: Iterable[str]) -> tuple[Feature, ...]:
    """Return the features of these names, in the order of the table; all of them where none is named.

    Raises:
        UsageError: there is no such feature.

    """
    found: set[Feature] = set()
    for name in names:
        word = name.strip().lower().replace("_", "-")
        try:
            found.add(Feature(word))
        except ValueError:
            raise UsageError(
                f"{name!r} is not a feature", place="--feature", hint=f"one of {', '.join(Feature)}"
            ) from None
    return tuple(one for one in Feature if one in found or not found)


def what_if(
    ask: Ask | None = None,
    asked: SimulationAsk | None = None,
    *,
    features: tuple[str, ...] = (),
    terms: Terms | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Answer[WhatIfResult]:
    """Return what each feature would change, at equal GPUs and with the same requests.

    Without a load: a hundred clients, each with the next request when it has its answer. Exit code 3 where the
    deployment does not fit as it is.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.simulating.simulate`.

    """
    ask, asked, terms = ask or Ask(), asked or SimulationAsk(), terms or Terms()
    chosen = features_of(features)
    catalog = load(ask)
    terms = settled(terms, catalog)
    deployments = resolve(ask, catalog)
    if len(deployments) > 1:
        raise UsageError(f"{len(deployments)} deployments", place="--model, --gpu", hint="ask of one at a time")
    deployment = deployments[0]
    given, asked = asked.load, replace(asked, load=_loaded(asked))
    defaults = {
        name
        for name, before, after in (
            ("num_requests", given.num_requests, asked.load.num_requests),
            ("arrivals", given.num_clients, asked.load.num_clients),
        )
        if before is None and after is not None
    }
    now = Side(ask=ask, asked=asked, num_gpus=deployment.parallelism.num_gpus * (asked.num_replicas or 1))
    runs = Runs(catalog, terms)
    answer = runs.answer(now)
    base = answer.result
    if base.fits and not base.completed:
        raise UsageError(
            next((text for text in answer.warnings if "rejected" in text), "no request gets its answer"),
            place="--input-tokens, --output-tokens",
            hint="there is nothing to compare: ask for shorter ones, or raise --max-model-len",
        )
    result = WhatIfResult(
        model=base.model,
        gpu=base.gpu,
        num_gpus=now.num_gpus,
        engine=base.engine,
        engine_version=base.engine_version,
        weights=ask.weights or "as stored",
        kv_dtype=base.kv_dtype,
        fits=base.fits,
        missing_bytes=base.missing_bytes,
        judged_by=_COST if _waits(asked) else _TIME,
    )
    notes: list[str] = []
    if base.fits:
        rows = []
        for count, feature in enumerate(chosen):
            if progress is not None:
                progress(count, len(chosen))
            rows.append(_row(feature, now, runs))
        result = replace(_filled(result, base, waits=_waits(asked)), rows=tuple(rows))
        notes = _notes(result)
    rent = rent_of(deployment.gpu, terms)
    told = tuple(
        replace(item, origin="default") if item.name in defaults else item
        for item in answer.inputs
        if item.name not in {"policy", "usd_per_gpu_hour", "utilization_fraction"}
    )
    shown = Input(
        name="features", value=", ".join(chosen) if features else "all", origin="given" if features else "default"
    )
    return Answer(
        command="what-if",
        results=(result,),
        inputs=merged_inputs([(*told, shown, *rent_inputs(rent, terms))]),
        assumptions=distinct([*notes, *deployment.assumptions]),
        warnings=answer.warnings,
        exit_code=0 if base.fits else DoesNotFit.exit_code,
    )


def _loaded(asked: SimulationAsk) -> WorkloadAsk:
    ask = asked.load
    timed = (ask.file, ask.arrivals, ask.requests_per_s, ask.num_clients)
    # Sessions of several turns arrive: a closed loop sends single requests.
    if all(one is None for one in timed) and ask.turns is None:
        ask = replace(ask, num_clients=DEFAULT_CLIENTS)
    if ask.num_requests is None and ask.file is None:
        # A client that asks once or twice is no load that lasts.
        ask = replace(ask, num_requests=max(DEFAULT_REQUESTS, _ROUNDS * (ask.num_clients or 0)))
    return ask


def _waits(asked: SimulationAsk) -> bool:
    """Return whether clients wait for answers, so that a faster server does more."""
    given = asked.load
    return given.num_clients is not None or (given.arrivals or "").startswith(("closed", "once"))


def _filled(result: WhatIfResult, run: SimulationResult, *, waits: bool) -> WhatIfResult:
    rate, _ = rates_of(run, run, waits=waits)
    usd = run.usd_per_million_output_tokens
    return replace(
        result,
        output_tokens_per_s=rate,
        tpot_s=None if run.tpot_s is None else run.tpot_s.mean,
        ttft_s=None if run.ttft_s is None else run.ttft_s.mean,
        e2e_s=None if run.e2e_s is None else run.e2e_s.mean,
        usd_per_million_output_tokens=None if usd is None or not rate else usd * run.output_tokens_per_s / rate,
    )


def _row(feature: Feature, now: Side, runs: Runs) -> FeatureRow:
    row = FeatureRow(feature=feature, meaning=feature.meaning, verdict=Verdict.CANNOT, why="", num_gpus=now.num_gpus)
    waits, base = _waits(now.asked), runs.answer(now).result
    here = Here(
        deployment=runs.site(now).deployment,
        seen=seen(base, waits=waits),
        num_lanes=base.num_lanes,
        waits=waits,
        runs=runs,
    )
    if feature in {Feature.NAIVE_ATTENTION, Feature.NO_KV_CACHE}:
        from infcalc.api.what_if_lessons import lesson  # noqa: PLC0415 - the clock, only for these

        times = lesson(feature, machine_of(runs.site(now)), base, here.seen)
        factors = (times.throughput_factor, times.tpot_factor, times.ttft_factor, times.e2e_factor)
        served = not waits and _keeps_up(base) and times.throughput_factor > 1 - _QUEUED
        return _judged(replace(row, why=times.why), *factors, served=served, waits=waits)
    try:
        change = change_of(feature, now, here)
        sites = _sites(change, runs)
        if sites is not None and change.off.asked == change.on.asked and _are_alike(*sites):
            return replace(row, verdict=Verdict.SAME, why=ALREADY)
        off, on = runs.answer(change.off).result, runs.answer(change.on).result
    except NotHere as problem:
        return replace(row, why=problem.message)
    except InfcalcError as problem:
        return replace(row, why=f"{problem.message}{f' ({problem.hint})' if problem.hint else ''}")
    hindrance = _hindrance(on, off)
    if hindrance:
        return replace(row, why=hindrance)
    before, after = rates_of(off, on, waits=waits)
    moving = sites if sites is not None and not _are_alike(*sites) else (None, None)
    first, second = (
        Told(run=run, seen=seen(run, waits=waits), site=site) for run, site in zip((off, on), moving, strict=True)
    )
    return _judged(
        replace(row, num_gpus=change.on.num_gpus, why=reason(first, second, change.told, crowds=change.crowds)),
        after / before,
        _quotient(on.tpot_s, off.tpot_s),
        _quotient(on.ttft_s, off.ttft_s),
        _quotient(on.e2e_s, off.e2e_s) or 1.0,
        served=not waits and _keeps_up(off) and _keeps_up(on),
        waits=waits,
    )


def _keeps_up(run: SimulationResult) -> bool:
    """Return whether a server takes requests in about as fast as they come."""
    if run.queue_s is None or run.e2e_s is None:
        return False
    return run.queue_s.mean <= _QUEUED * run.e2e_s.mean


def _sites(change: Change, runs: Runs) -> tuple[Site, Site] | None:
    """Return the deployments of both sides; of pools there are two, and none is meant."""
    if change.on.asked.pools is not None:
        return None
    return runs.site(change.off), runs.site(change.on)


def _are_alike(one: Site, other: Site) -> bool:
    """Return whether two deployments hold and split the same, and take as many tokens into a step."""
    mine, theirs = one.deployment, other.deployment
    return (
        one.form == other.form
        and mine.parallelism == theirs.parallelism
        and mine.max_num_batched_tokens == theirs.max_num_batched_tokens
        and (mine.quantization == theirs.quantization or _family(mine.weights) == _family(theirs.weights))
    )


def _family(weights: str) -> str:
    """Return what a precision of weights is by its bits: whatever packs 4 bit for 16-bit multiplications is alike.

    >>> _family("fp8_block"), _family("gptq") == _family("awq") == _family("int4_g32"), _family("mxfp4")
    ('fp8', True, 'mxfp4')
    """
    family = weights.partition("_")[0]
    return "int4" if family in {"awq", "gptq"} else family


def _hindrance(on: SimulationResult, off: SimulationResult) -> str:
    if not on.fits:
        return f"does not fit: {format_bytes(on.missing_bytes)} per GPU are missing"
    if not off.completed or not on.completed:
        return "no request got its answer within the longest sequence"
    return ""


def _quotient(one: object, other: object) -> float | None:
    mean, against = getattr(one, "mean", None), getattr(other, "mean", None)
    return mean / against if mean is not None and against else None


def _judged(
    row: FeatureRow,
    throughput: float,
    tpot: float | None,
    ttft: float | None,
    e2e: float,
    *,
    served: bool,
    waits: bool,
) -> FeatureRow:
    # Where both serve all that comes, the server is paid by the hour either way.
    rate = _factor(1.0, 1.0) if served else _factor(throughput, THROUGHPUT_BAND)
    # At equal GPUs a token costs what the hour costs over the tokens of it.
    usd = Factor(value=1 / rate.value, low=1 / rate.high, high=1 / rate.low)
    gain = rate if waits else _factor(1 / e2e, THROUGHPUT_BAND)
    token = None if tpot is None else _factor(tpot, TPOT_BAND)
    first = None if ttft is None else _factor(ttft, TTFT_BAND)
    whole = _factor(e2e, THROUGHPUT_BAND)
    return replace(
        row,
        verdict=verdict_of(gain),
        gain_factor=gain.value,
        throughput_factor=rate.value,
        throughput_factor_low=rate.low,
        throughput_factor_high=rate.high,
        tpot_factor=None if token is None else token.value,
        tpot_factor_low=None if token is None else token.low,
        tpot_factor_high=None if token is None else token.high,
        ttft_factor=None if first is None else first.value,
        ttft_factor_low=None if first is None else first.low,
        ttft_factor_high=None if first is None else first.high,
        e2e_factor=whole.value,
        e2e_factor_low=whole.low,
        e2e_factor_high=whole.high,
        usd_per_million_factor=usd.value,
        usd_per_million_factor_low=usd.low,
        usd_per_million_factor_high=usd.high,
    )


def _factor(value: float, band: float) -> Factor:
    return Factor(value=value, low=value / band, high=value * band)


def verdict_of(gain: Factor) -> Verdict:
    """Return the verdict of a gain, above 1 for the better.

    >>> verdict_of(Factor(value=1.3, low=0.95, high=1.8)), verdict_of(Factor(value=0.5, low=0.4, high=0.7))
    (<Verdict.MAY_PAY: 'may pay'>, <Verdict.COSTS: 'costs'>)
    """
    if abs(gain.value - 1) <= _SAME:
        return Verdict.SAME
    if gain.value > 1:
        return Verdict.PAYS if gain.low > 1 else Verdict.MAY_PAY
    return Verdict.COSTS if gain.high < 1 else Verdict.MAY_COST


def _notes(result: WhatIfResult) -> list[str]:
    judged = (
        f"verdicts go by the {result.judged_by}; pays and costs: all of the band is on that side of 1, may pay and "
        f"may cost: part of it; within {100 * _SAME:.0f} % there is no difference"
    )
    bands = (
        "bands of factors: eight of ten published pairs of runs, in which weights, KV precision or split alone differ, "
        f"lie within {TPOT_BAND:g}x of the predicted ratio of times per token, {THROUGHPUT_BAND:g}x of throughput and "
        f"{TTFT_BAND:g}x of times to first token; other features have no band of their own and take these, and the "
        "time of a request, of which there are few pairs, that of throughput"
    )
    same = (
        f"both sides serve the same requests{_ENDS if result.judged_by == _COST else ''}; what fewer bits do to the "
        "quality of answers is not judged"
    )
    return [judged, bands, same]
