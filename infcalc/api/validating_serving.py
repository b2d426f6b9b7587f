"""How right is the time model? Its predictions against published measurements of servers and batches.

Only what was run goes into a prediction, never what was measured: altering a measured value alters no prediction.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.answer import Answer
from infcalc.api.bands import Kind, band, pools, request_band
from infcalc.api.offer import BURST_PER_S
from infcalc.api.recorded import FULL, Rejected, checked, measurement
from infcalc.api.recorded_runs import Prediction, amount_of, predict, text_of
from infcalc.api.scoring import SCORED, SKIPPED, ValidationSummary, summary
from infcalc.api.validating_drafting import predict_speedup
from infcalc.errors import FileProblem, InfcalcError
from infcalc.frozen import frozen
from infcalc.spec.explain import Input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from infcalc.catalog.lookup import Catalog
    from infcalc.engines.pace import Pace

SPEEDUP = "speedup"
QUANTITIES = ("output_tokens_per_s", "tpot_s", "ttft_s", "e2e_s")
AT_RATE = "rate"
"""What a case calls the load of requests that come at a rate."""
_MS = 1e-3


# Entry -> measured ---------------------------------------------------------------------------------------------------


def measured(entry: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Return what the entry measures, in base units, and which statistic of it."""
    said = entry.get("measured") or {}
    found: dict[str, tuple[float, str]] = {}
    if said.get("output_tok_s") is not None:
        found["output_tokens_per_s"] = (float(said["output_tok_s"]), "mean")
    for quantity, keys in (("tpot_s", ("tpot_ms", "itl_ms")), ("ttft_s", ("ttft_ms",)), ("e2e_s", ("e2e_ms",))):
        for key in keys:
            values = said.get(key) or {}
            statistic = next((name for name in ("median", "mean", "unspecified") if values.get(name) is not None), None)
            if statistic is not None:
                found.setdefault(quantity, (float(values[statistic]) * _MS, statistic))
    return found


def predicted(prediction: Prediction, quantity: str, statistic: str) -> float:
    """Return the prediction of a quantity in the statistic in which it was measured."""
    speed = prediction.speed
    if quantity == "e2e_s" and prediction.whole_s != speed.e2e_s:
        return prediction.whole_s
    name = quantity
    if statistic == "median" and quantity != "output_tokens_per_s":
        name = quantity.replace("_s", "_median_s")
    return float(getattr(speed, name))


# Prediction -> cases -------------------------------------------------------------------------------------------------


@frozen
class ServingCase:
    """One quantity of one measured run: what was measured, what is predicted without it, and how far off that is."""

    id: str
    kind: str
    """The class whose goals the case is held to; ``burst``: all requests at once, without a cap on how many run."""
    engine: str
    version: str
    gpu: str
    precision: str
    tp: int | None
    batch: int | None
    """Sequences, clients or requests at once, as far as the load states them."""
    group: str
    """Of the source."""
    cluster: str
    """Of the source, model and GPU: what is drawn from some clusters is judged on others."""
    load: str
    """What the entry states of its load: ``batch``, ``concurrency``, ``rate``, ``all at once``, or nothing."""
    band_class: str
    """What its band is drawn from."""
    status: str
    reason: str
    quantity: str
    statistic: str
    """``median``, ``mean`` or ``unspecified`` of the measurement; the prediction is of the same."""
    measured: float | None
    predicted: float | None
    low: float | None
    high: float | None
    error_fraction: float | None


@frozen
class ServingValidation:
    """All cases of a file and their summary."""

    cases: tuple[ServingCase, ...]
    summary: tuple[ValidationSummary, ...]
    sides: tuple[Side, ...]
    """Whether drafting is predicted to gain where it gained, and to lose where it lost."""


@frozen
class Side:
    """Published speedups above 1, or below it, and how many of them are predicted to be so."""

    measured: str
    """``gains`` or ``losses``."""
    cases: int
    predicted_so: int


def validate_serving(path: str, *, catalogs: tuple[str, ...] = ()) -> Answer[ServingValidation]:
    """Return the predictions for every entry of a file of measured runs, against what was measured.

    Raises:
        FileProblem: no such file, or not a list of entries.

    """
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    entries, rejected = checked(
        files.read_yaml(path),
        path,
        entry=measurement,
        what="measured runs",
        hint="a list of entries with id, engine, model, gpu, parallel, workload, measured and quality",
        every_quality=True,
    )
    result = validated_serving(entries, files.load_catalog(catalogs), rejected=rejected)
    if not result.cases:
        raise FileProblem(
            "none of its entries is of quality full and states a figure",
            place=path,
            hint="set quality: full, and measured.output_tok_s, tpot_ms, ttft_ms or e2e_ms",
        )
    return Answer(
        command="validate",
        results=(result,),
        inputs=(
            Input(name="file", value=path, origin="given"),
            Input(name="entries", value=len(entries) + len(rejected), origin="of any quality"),
        ),
        assumptions=(
            (
                "scored are entries of quality full that do not draft, and the speedups of those that do, of any "
                "quality; errors are of the prediction, relative to the measurement, of its median where one is "
                "stated, else of its mean"
            ),
            (
                "no measured figure goes into a prediction; tokens per round, where a run that drafts states them, are "
                "what its text and drafter are, and do"
            ),
            (
                "bursts (all requests at once, no cap on how many run) are a class of their own: what the client and "
                "the front end do then is not modelled well"
            ),
        ),
        warnings=tuple(
            f"left out: {one.problem.place}: {one.problem.message} ({one.problem.hint})" for one in rejected
        ),
    )


def validated_serving(
    entries: Sequence[Mapping[str, Any]],
    catalog: Catalog,
    adjust: Callable[[Pace], Pace] | None = None,
    *,
    rejected: Sequence[Rejected] = (),
) -> ServingValidation:
    """Return the cases and summary of a list of entries; those of ``rejected`` are skipped, with what is wrong.

    ``adjust`` gives another pace for that of each engine.
    """
    known: dict[Any, Any] = {}
    predicted = (case for entry in entries for case in _cases(entry, catalog, known, adjust))
    cases = (*predicted, *(case for one in rejected for case in _cases_of_rejected(one)))
    return ServingValidation(cases=cases, summary=_summaries(cases), sides=_sides(cases))


def _sides(cases: tuple[ServingCase, ...]) -> tuple[Side, ...]:
    both = [
        (case.measured > 1, case.predicted > 1)
        for case in cases
        if case.quantity == SPEEDUP and case.measured not in {None, 1} and case.predicted is not None
    ]
    return tuple(
        Side(measured=name, cases=len(members), predicted_so=sum(members))
        for name, gains in (("gains", True), ("losses", False))
        if (members := [predicted is measured for measured, predicted in both if measured is gains])
    )


def _cases(
    entry: Mapping[str, Any],
    catalog: Catalog,
    known: dict[Any, Any],
    adjust: Callable[[Pace], Pace] | None,
) -> list[ServingCase]:
    said, flags = entry.get("measured") or {}, entry.get("flags") or {}
    if entry.get("kind") == "speculative" or flags.get("spec"):
        if said.get("speedup") is None:
            return []
        return [_drafted(entry, float(said["speedup"]), catalog, known)]
    if entry.get("quality") != FULL:
        return []
    figures = measured(entry)
    try:
        prediction = predict(entry, catalog, known, adjust)
    except InfcalcError as problem:
        return [_case(entry, quantity, figure, None, reason=problem.message) for quantity, figure in figures.items()]
    return [_case(entry, quantity, figure, prediction) for quantity, figure in figures.items()]


_FIGURES = {
    "output_tok_s": "output_tokens_per_s",
    "tpot_ms": "tpot_s",
    "itl_ms": "tpot_s",
    "ttft_ms": "ttft_s",
    "e2e_ms": "e2e_s",
    "speedup": SPEEDUP,
}


def _cases_of_rejected(rejected: Rejected) -> list[ServingCase]:
    """Return a skipped case for each figure that an entry states, whatever cannot be read of it.

    As with readable ones, only of quality full, or of a speedup.
    """
    entry, problem = rejected.entry, rejected.problem
    said = entry.get("measured")
    stated = said if isinstance(said, dict) else {}
    full = entry.get("quality") == FULL
    names = {name for key, name in _FIGURES.items() if key in stated and (full or name == SPEEDUP)}
    known = {key: entry[key] for key in ("id", "group", "cluster") if isinstance(entry.get(key), str)}
    reason = f"{problem.message} ({problem.hint})"
    cases = [_case(known, name, (math.nan, ""), None, reason=reason) for name in sorted(names)]
    return [replace(case, id=case.id or str(problem.place), measured=None) for case in cases]


def _drafted(entry: Mapping[str, Any], value: float, catalog: Catalog, known: dict[Any, Any]) -> ServingCase:
    try:
        found = predict_speedup(entry, catalog, known)
    except InfcalcError as problem:
        return _case(entry, SPEEDUP, (value, ""), None, reason=problem.message)
    guess = found.row.speedup
    return replace(
        _case(entry, SPEEDUP, (value, ""), None),
        kind=found.kind,
        batch=found.row.batch,
        status=SCORED,
        predicted=guess,
        low=found.low,
        high=found.high,
        error_fraction=(guess - value) / value if value else None,
    )


def _case(
    entry: Mapping[str, Any],
    quantity: str,
    figure: tuple[float, str],
    prediction: Prediction | None,
    *,
    reason: str = "",
) -> ServingCase:
    engine, load, ranks = entry.get("engine") or {}, entry.get("workload") or {}, entry.get("parallel") or {}
    value, statistic = figure
    guess = low = high = None
    kind = band_class = ""
    if prediction is not None:
        guess = predicted(prediction, quantity, statistic)
        band_class = prediction.band_class
        kind = pools(band_class)[-2]
        low, high = _band(prediction, quantity, guess, at_rate=_stated_load(load) == AT_RATE)
    batch = load.get("batch") or load.get("concurrency") or load.get("num_requests")
    return ServingCase(
        id=text_of(entry.get("id")),
        kind=kind,
        engine=text_of(engine.get("name")),
        version=text_of(engine.get("version")),
        gpu=text_of((entry.get("gpu") or {}).get("name")),
        precision=text_of(entry.get("weights")),
        tp=ranks.get("tp"),
        batch=None if batch is None else int(batch),
        group=text_of(entry.get("group")),
        cluster=text_of(entry.get("cluster") or entry.get("group")),
        load=_stated_load(load),
        band_class=band_class,
        status=SKIPPED if guess is None else SCORED,
        reason=reason,
        quantity=quantity,
        statistic=statistic,
        measured=value,
        predicted=guess,
        low=low,
        high=high,
        error_fraction=None if guess is None or not value else (guess - value) / value,
    )


def _band(prediction: Prediction, quantity: str, guess: float, *, at_rate: bool) -> tuple[float, float]:
    kind, speed = prediction.band_class, prediction.speed
    if quantity != "e2e_s":
        return band(kind, quantity, guess, at_rate=at_rate)
    first = (speed.ttft_s, *band(kind, "ttft_s", speed.ttft_s, at_rate=at_rate))
    low, high = request_band(speed.e2e_s, first, band(kind, "tpot_s", 1.0, at_rate=at_rate))
    return guess * low / speed.e2e_s, guess * high / speed.e2e_s


def comes_at_rate(entry: Mapping[str, Any]) -> bool:
    """Return whether the requests of an entry come at a rate."""
    return _stated_load(entry.get("workload") or {}) == AT_RATE


def _stated_load(load: Mapping[str, Any]) -> str:
    for key, name in (("batch", "batch"), ("concurrency", "concurrency")):
        if load.get(key) is not None:
            return name
    rate = amount_of(load.get("request_rate"))
    if rate is not None and rate < BURST_PER_S:
        return AT_RATE
    return "all at once" if load.get("num_requests") is not None else ""


def _summaries(cases: tuple[ServingCase, ...]) -> tuple[ValidationSummary, ...]:
    found: list[ValidationSummary] = []
    for quantity in dict.fromkeys(case.quantity for case in cases):
        groups: dict[str, list[ServingCase]] = {}
        for case in cases:
            if case.quantity == quantity:
                for name in _groups(case):
                    groups.setdefault(name, []).append(case)
        found += [summary(quantity, name, members) for name, members in groups.items()]
    return tuple(found)


_BATCHES = ((4, "1-4"), (64, "5-64"), (256, "65-256"))


def _groups(case: ServingCase) -> tuple[str, ...]:
    """Return the groups a case belongs to; bursts without a cap count in their own class and in ``all`` only."""
    named = (f"class {case.kind or 'unknown'}", f"source {case.group}")
    if case.kind == Kind.BURST:
        return ("all", *named)
    size = next((text for most, text in _BATCHES if case.batch is not None and case.batch <= most), "above 256")
    return (
        "all",
        *named,
        f"engine {case.engine}",
        f"gpu {case.gpu}",
        f"precision {case.precision or 'unstated'}",
        f"tp {case.tp or 'unstated'}",
        f"batch {size if case.batch is not None else 'unstated'}",
        f"load {case.load or 'unstated'}",
    )
