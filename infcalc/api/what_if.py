"""Does feature X pay here? The same requests on the same GPUs, with it and without, by the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.costing import Terms, rent_inputs, rent_of, settled
from infcalc.api.deployment import Ask, load, merged_inputs, resolve, stored_in
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.speed import machine_of, site_of
from infcalc.api.what_if_changes import NotHere, Side, change_of
from infcalc.api.what_if_nouns import Factor, Feature, FeatureRow, Verdict, WhatIfResult
from infcalc.errors import DoesNotFit, InfcalcError, UsageError
from infcalc.spec.explain import Input
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from infcalc.api.simulation_nouns import SimulationResult
    from infcalc.api.speed import Site
    from infcalc.api.workload_ask import WorkloadAsk

DEFAULT_CLIENTS = 100
DEFAULT_REQUESTS = 400
TPOT_BAND = 1.17
"""Eight of ten published pairs of runs, of one source and load, that differ in weights, KV precision or split of the
same GPU and model alone, have a ratio of times per token within this factor of the predicted one (81 pairs)."""
THROUGHPUT_BAND = 1.37
"""The same of tokens per second (132 pairs)."""
_TAIL = 0.1
"""Of a run at a rate: so much its last answers, which nobody follows, may change its tokens per second."""
_SAME = 0.02
"""Differences that nobody would turn a setting for."""


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
    asked = replace(asked, load=_loaded(asked))
    now = Side(ask=ask, asked=asked, num_gpus=deployment.parallelism.num_gpus * (asked.num_replicas or 1))
    runs = _Runs(terms)
    answer = runs.answer(now)
    base = answer.result
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
        judged_by="cost per token" if _waits(asked) else "time of a request",
    )
    notes: list[str] = []
    if base.fits:
        site = site_of(ask, deployment, catalog)
        rows = []
        for count, feature in enumerate(chosen):
            if progress is not None:
                progress(count, len(chosen))
            rows.append(_row(feature, now, site, runs))
        result = replace(_filled(result, base), rows=tuple(rows))
        notes = _notes(result)
    rent = rent_of(deployment.gpu, terms)
    told = tuple(
        item for item in answer.inputs if item.name not in {"policy", "usd_per_gpu_hour", "utilization_fraction"}
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


class _Runs:
    """Simulations, each made once."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._made: dict[Side, Answer[SimulationResult]] = {}

    def answer(self, side: Side) -> Answer[SimulationResult]:
        found = self._made.get(side)
        if found is None:
            found = self._made[side] = simulate(side.ask, side.asked, terms=self._terms)
        return found


def _loaded(asked: SimulationAsk) -> WorkloadAsk:
    ask = asked.load
    if ask.file is None and ask.arrivals is None and ask.requests_per_s is None and ask.num_clients is None:
        ask = replace(ask, num_clients=DEFAULT_CLIENTS)
    if ask.num_requests is None and ask.file is None:
        ask = replace(ask, num_requests=DEFAULT_REQUESTS)
    return ask


def _waits(asked: SimulationAsk) -> bool:
    """Return whether clients wait for answers, so that a faster server does more."""
    given = asked.load
    return given.num_clients is not None or (given.arrivals or "").startswith(("closed", "once"))


def _filled(result: WhatIfResult, run: SimulationResult) -> WhatIfResult:
    return replace(
        result,
        output_tokens_per_s=run.output_tokens_per_s,
        tpot_s=None if run.tpot_s is None else run.tpot_s.mean,
        ttft_s=None if run.ttft_s is None else run.ttft_s.mean,
        e2e_s=None if run.e2e_s is None else run.e2e_s.mean,
        usd_per_million_output_tokens=run.usd_per_million_output_tokens,
    )


def _row(feature: Feature, now: Side, site: Site, runs: _Runs) -> FeatureRow:
    row = FeatureRow(feature=feature, meaning=feature.meaning, verdict=Verdict.CANNOT, why="", num_gpus=now.num_gpus)
    if feature in {Feature.NAIVE_ATTENTION, Feature.NO_KV_CACHE}:
        from infcalc.api.what_if_lessons import lesson  # noqa: PLC0415 - the clock, only for these

        times = lesson(feature, machine_of(site), runs.answer(now).result)
        return _judged(
            row,
            times.throughput_factor,
            times.tpot_factor,
            times.ttft_factor,
            times.e2e_factor,
            times.why,
            waits=_waits(now.asked),
        )
    try:
        change = change_of(feature, now, site.deployment)
        off, on = runs.answer(change.off).result, runs.answer(change.on).result
    except NotHere as problem:
        return replace(row, why=problem.message)
    except InfcalcError as problem:
        return replace(row, why=f"{problem.message}{f' ({problem.hint})' if problem.hint else ''}")
    hindrance = _hindrance(on, off)
    if hindrance:
        return replace(row, why=hindrance)
    if _is_so_already(site, change.on.ask, on, off):
        return replace(row, verdict=Verdict.SAME, why="is so already")
    row = replace(row, num_gpus=change.on.num_gpus)
    return _judged(
        row,
        on.output_tokens_per_s / off.output_tokens_per_s,
        _quotient(on.tpot_s, off.tpot_s),
        _quotient(on.ttft_s, off.ttft_s),
        _quotient(on.e2e_s, off.e2e_s) or 1.0,
        _why(off, on, change.told),
        waits=_waits(now.asked),
    )


def _hindrance(on: SimulationResult, off: SimulationResult) -> str:
    if not on.fits:
        return f"does not fit: {format_bytes(on.missing_bytes)} per GPU are missing"
    if not off.completed or not on.completed:
        return "no request got its answer within the longest sequence"
    return ""


def _is_so_already(site: Site, asked: Ask, on: SimulationResult, off: SimulationResult) -> bool:
    """Return whether a precision that is asked for is the one there is."""
    if asked.weights is not None and asked.weights != site.ask.weights:
        return stored_in(site.deployment.model).startswith(asked.weights) and site.ask.weights in {None, "auto"}
    if asked.weights == site.ask.weights and asked.kv_dtypes == site.ask.kv_dtypes:
        return False
    return on.kv_dtype == off.kv_dtype


def _quotient(one: object, other: object) -> float | None:
    mean, against = getattr(one, "mean", None), getattr(other, "mean", None)
    return mean / against if mean is not None and against else None


def _judged(  # noqa: PLR0917 - one figure after the other
    row: FeatureRow,
    throughput: float,
    tpot: float | None,
    ttft: float | None,
    e2e: float,
    why: str,
    *,
    waits: bool,
) -> FeatureRow:
    # Where both serve all that comes, the server is paid by the hour either way.
    served = not waits and abs(throughput - 1) <= _TAIL
    rate = _factor(1.0, 1.0) if served else _factor(throughput, THROUGHPUT_BAND)
    token = None if tpot is None else _factor(tpot, TPOT_BAND)
    # At equal GPUs a token costs what the hour costs over the tokens of it.
    usd = Factor(value=1 / rate.value, low=1 / rate.high, high=1 / rate.low)
    # Waits grow faster than steps where a server is nearly full: the wider of the two bands.
    gain = rate if waits else _factor(1 / e2e, THROUGHPUT_BAND)
    return replace(
        row,
        verdict=verdict_of(gain),
        why=why,
        throughput_factor=rate.value,
        throughput_factor_low=rate.low,
        throughput_factor_high=rate.high,
        tpot_factor=None if token is None else token.value,
        tpot_factor_low=None if token is None else token.low,
        tpot_factor_high=None if token is None else token.high,
        ttft_factor=ttft,
        e2e_factor=e2e,
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


def _why(off: SimulationResult, on: SimulationResult, told: str) -> str:
    parts = [told] if told else []
    if off.tpot_s is not None and on.tpot_s is not None:
        parts.append(f"a token takes {format_seconds(off.tpot_s.mean)} -> {format_seconds(on.tpot_s.mean)}")
    if off.kv_usage_fraction is not None and on.kv_usage_fraction is not None:
        before, after = off.kv_usage_fraction.mean, on.kv_usage_fraction.mean
        parts.append(f"cache in use {100 * before:.0f} -> {100 * after:.0f} %")
    if off.queue_s is not None and on.queue_s is not None and max(off.queue_s.mean, on.queue_s.mean) > 1:
        parts.append(f"queue {format_seconds(off.queue_s.mean)} -> {format_seconds(on.queue_s.mean)}")
    if max(on.prefix_hit_rate_fraction, off.prefix_hit_rate_fraction) > _SAME:
        parts.append(f"hits {100 * off.prefix_hit_rate_fraction:.0f} -> {100 * on.prefix_hit_rate_fraction:.0f} %")
    if on.tokens_per_round is not None:
        parts.append(f"{on.tokens_per_round:.2f} tokens per round")
    if off.preemptions or on.preemptions:
        parts.append(f"preemptions {off.preemptions} -> {on.preemptions}")
    return "; ".join(parts)


def _notes(result: WhatIfResult) -> list[str]:
    judged = (
        f"verdicts go by the {result.judged_by}; pays and costs: all of the band is on that side of 1, may pay and "
        f"may cost: part of it; within {100 * _SAME:.0f} % there is no difference"
    )
    bands = (
        "bands of factors: eight of ten published pairs of runs, in which weights, KV precision or split alone differ, "
        f"lie within {TPOT_BAND:g}x of the predicted ratio of times per token and {THROUGHPUT_BAND:g}x of throughput; "
        "other features have no band of their own and take these"
    )
    same = "both sides serve the same requests; what fewer bits do to the quality of answers is not judged"
    return [judged, bands, same]
