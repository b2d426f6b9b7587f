"""A benchmark, or the metrics of a server, beside what is predicted: how far off, why, is it possible, is it normal?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.judging import Judgement, Measurement, Verdict, judge
from infcalc.api.losses import limits_of, offered_to
from infcalc.api.measured_ask import settled
from infcalc.api.measured_causes import Loss, Residuals, predicted_causes
from infcalc.api.measured_drafting import doubt, gained, limited, per_round, tokens_of
from infcalc.api.measured_figures import predicted, with_simulation
from infcalc.api.measured_limits import hard_limit
from infcalc.api.measured_load import load_of_run, load_of_snapshot
from infcalc.api.measured_normal import position, position_text
from infcalc.api.measured_nouns import FigureLine, RunComparison
from infcalc.api.offer import Offer
from infcalc.evidence.nouns import MEAN, MEDIAN, BenchmarkRun, MetricsSnapshot, Quantity
from infcalc.frozen import frozen
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.deployment import Ask
    from infcalc.api.measured_ask import Settled
    from infcalc.api.measured_causes import Effect
    from infcalc.api.measured_figures import Predicted
    from infcalc.api.measured_normal import Position
    from infcalc.api.offer import Figure
    from infcalc.api.simulation_runs import Progress
    from infcalc.catalog.lookup import Catalog
    from infcalc.evidence.nouns import Measured
    from infcalc.spec.explain import Input

_JUDGED = frozenset(
    {
        Quantity.TTFT,
        Quantity.TPOT,
        Quantity.TPOT_INCLUSIVE,
        Quantity.E2E,
        Quantity.REQUESTS_PER_S,
        Quantity.OUTPUT_PER_S,
        Quantity.PER_USER,
        Quantity.PREFILL,
        Quantity.INPUT_PER_S,
        Quantity.TOTAL_PER_S,
    }
)
"""Held against floors. Not gaps between tokens: in a chunk of several, all but the first come at once."""
_JUDGED_AS = {Quantity.PREFILL: "ttft_s"}
"""A prompt alone is what a first token waits for."""
_ESTIMATED = _JUDGED - {Quantity.PREFILL, Quantity.INPUT_PER_S, Quantity.TOTAL_PER_S}
"""Of which estimates have floors for the sequences that run together."""
_MANY = frozenset({Quantity.TTFT, Quantity.TPOT, Quantity.E2E, Quantity.OUTPUT_PER_S, Quantity.REQUESTS_PER_S})
_HEADLINES = (
    (Quantity.TPOT, MEAN, "time per token"),
    (Quantity.PER_USER, MEAN, "tokens/s of a user"),
    (Quantity.ITL, MEAN, "gap between tokens"),
    (Quantity.OUTPUT_PER_S, MEAN, "output tokens/s"),
    (Quantity.TOTAL_PER_S, MEAN, "tokens/s"),
    (Quantity.PREFILL, MEAN, "prompt"),
    (Quantity.TTFT, MEAN, "time to first token"),
    (Quantity.E2E, MEAN, "whole request"),
)
"""What people ask first; of a burst and of batches that is the throughput."""
_SHOWN = ("mean", "median", "p90", "p95", "p99")
_FAR = 0.3
_MORE = 1.1


@frozen
class Compared:
    """One comparison with what is said beside it."""

    result: RunComparison
    inputs: tuple[Input, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def compared_run(
    evidence: BenchmarkRun | MetricsSnapshot,
    ask: Ask,
    given: Offer,
    catalog: Catalog,
    *,
    simulated: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Compared:
    """Return a benchmark, or metrics, beside what is predicted for the deployment and the load that they state.

    Raises:
        InfcalcError: what is neither stated nor given, or cannot be.

    """
    found = settled(evidence.settings, ask, catalog, evidence.place)
    loaded = load_of_run(evidence, given) if isinstance(evidence, BenchmarkRun) else load_of_snapshot(evidence, given)
    made = predicted(found.site, loaded)
    if simulated:
        made = with_simulation(found.site, made, seed, progress)
    return Compared(
        result=comparison_of(evidence, found, made),
        inputs=(*found.inputs, *(() if made.run is None else made.run.load.found)),
        assumptions=(
            *found.assumptions,
            *loaded.assumptions,
            *(() if loaded.single or not loaded.front_end else (_ONE_SERVER,)),
            *evidence.conversions,
            *_missing(evidence),
        ),
        warnings=(
            *found.warnings,
            *(f"{evidence.place}: {talk}" for talk in evidence.warnings),
            *_doubts(evidence, found, made),
        ),
    )


_ONE_SERVER = (
    "taken to be one replica whose GPUs do prefill and decode both: files do not say whether several, or pools of "
    "either, shared the load (infcalc simulate predicts both)"
)


def _missing(evidence: BenchmarkRun | MetricsSnapshot) -> list[str]:
    return [f"not in the file: {', '.join(evidence.missing)}"] if evidence.missing else []


def _doubts(evidence: BenchmarkRun | MetricsSnapshot, found: Settled, made: Predicted) -> list[str]:
    talk = []
    deployment, result = found.deployment, made.result
    if made.run is None:
        talk.append(
            f"{evidence.place}: {deployment.model.name} in {deployment.weights} is not predicted to fit on "
            f"{result.num_gpus} x {result.gpu}, and it ran: --tp, --weights or --gpu say what it was"
        )
    elif not result.stable and result.ttft_s is None:
        talk.append(f"{evidence.place}: requests come faster than is predicted to be answered: no times are predicted")
    talk += _crowded(evidence, made)
    if per_round(evidence) > 1:
        talk.append(doubt(evidence.place))
    return talk


def _crowded(evidence: BenchmarkRun | MetricsSnapshot, made: Predicted) -> list[str]:
    """Return a warning where more requests were in decode at once than are predicted to find room (Little 1961)."""
    if made.run is None:
        return []
    rate, each = (evidence.figure(quantity, MEAN) for quantity in (Quantity.REQUESTS_PER_S, Quantity.TPOT))
    places = made.run.server.num_places
    if rate is None or each is None:
        return []
    number = rate.value * each.value * max(0.0, made.run.asked.answer_tokens - 1)
    if number <= _MORE * places:
        return []
    found = (
        f"{evidence.place}: some {number:,.0f} requests were in decode at once, and room for {places:,.0f} is "
        "predicted: --memory-fraction, --max-model-len, --kv-dtype or --max-num-seqs say what was set"
    )
    return [found]


def comparison_of(evidence: BenchmarkRun | MetricsSnapshot, found: Settled, made: Predicted) -> RunComparison:
    """Return what is measured beside what is predicted of the same deployment and load."""
    deployment, result, run = found.deployment, made.result, made.run
    lines, each = tuple(_lines(evidence, made)), per_round(evidence)
    errors = [
        abs(line.error_fraction)
        for line in lines
        if line.error_fraction is not None
        and line.statistic in {MEAN, MEDIAN}
        and tokens_of(Quantity(line.quantity), each) == 1
    ]
    normal = _normal(lines, made) if each == 1 else None
    shares = () if run is None else predicted_causes(run, result, Quantity.TPOT)
    first = () if run is None else predicted_causes(run, result, Quantity.TTFT, front_end=made.loaded.front_end)
    return RunComparison(
        verdict=_verdict(lines, made, normal) if each == 1 else _drafting_verdict(lines, made),
        evidence=str(evidence.form) if isinstance(evidence, BenchmarkRun) else "metrics",
        place=evidence.place,
        engine=deployment.rules.engine,
        engine_version=deployment.rules.version,
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        weights=deployment.weights,
        kv_dtype=found.site.form.name,
        load=made.loaded.text,
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens,
        batch=None if run is None else result.batch,
        fits=result.fits,
        stable=result.stable,
        bound_by=result.bound_by,
        worst_abs_error_fraction=max(errors, default=None),
        impossible=tuple(dict.fromkeys(line.quantity for line in lines if line.verdict is Verdict.IMPOSSIBLE)),
        normal=normal,
        lines=lines,
        token_shares=shares,
        first_token_shares=first,
    )


# Lines ---------------------------------------------------------------------------------------------------------------


def _lines(evidence: BenchmarkRun | MetricsSnapshot, made: Predicted) -> list[FigureLine]:
    figures = {(one.quantity, one.statistic): one for one in evidence.measured}
    each = per_round(evidence)

    def measured(quantity: Quantity, statistic: str) -> float | None:
        found = figures.get((quantity, statistic))
        return None if found is None else found.value

    def guessed(quantity: Quantity, statistic: str) -> float | None:
        found = made.figure(quantity, statistic)
        return None if found is None else found.value

    residuals = None
    if made.run is not None:
        residuals = Residuals(
            made.run,
            made.result,
            measured,
            guessed,
            drafted=each > 1,
            front_end=made.loaded.front_end,
        )
    order = list(Quantity)
    shown = [one for one in evidence.measured if one.statistic in _SHOWN and one.quantity in _PREDICTABLE]
    ranked = sorted(shown, key=lambda one: (order.index(one.quantity), _SHOWN.index(one.statistic)))
    return [_line(one, made, residuals, each) for one in ranked]


_PREDICTABLE = frozenset(
    {
        *_JUDGED,
        Quantity.ITL,
        Quantity.QUEUE,
        Quantity.DECODE,
        Quantity.CONCURRENT,
    }
)


def _line(one: Measured, made: Predicted, residuals: Residuals | None, each: float) -> FigureLine:
    """Return one line; ``each`` are the tokens of a round, more than 1 where the server drafts."""
    figure = made.figure(one.quantity, one.statistic)
    each = tokens_of(one.quantity, each)
    drafts = each > 1
    parts = () if residuals is None or figure is None or drafts else residuals.of(one.quantity, one.statistic)
    judgement = _judgement(one, made, figure, each)
    place = None if drafts else _position(one, made, figure)
    return FigureLine(
        quantity=one.quantity,
        statistic=one.statistic,
        predicted=None if figure is None else figure.value,
        predicted_low=None if figure is None or figure.low == figure.high else figure.low,
        predicted_high=None if figure is None or figure.low == figure.high else figure.high,
        measured=one.value,
        error_fraction=None if figure is None else (figure.value - one.value) / one.value,
        attributed_to=_attributed(one, made, figure, parts, judgement)
        if figure is None or not drafts or (judgement is not None and judgement.verdict is Verdict.IMPOSSIBLE)
        else gained(one, figure.value, each),
        verdict=None if judgement is None else judgement.verdict,
        roofline_fraction=(
            None if judgement is None or drafts or _is_paced(one, made) else judgement.roofline_fraction
        ),
        slower_fraction=None if place is None else place.slower_fraction,
        parts=parts,
        at=one.key,
        said=one.said,
    )


def _is_paced(one: Measured, made: Predicted) -> bool:
    """Return whether a rate is that of the arrivals, which says nothing of the machine."""
    return str(one.quantity).endswith("_per_s") and made.run is not None and made.run.at_rate


def _judgement(one: Measured, made: Predicted, figure: Figure | None, each: float) -> Judgement | None:
    """Return how a figure is judged: a round reads all weights once, so that each of its tokens has its share."""
    if made.run is None or figure is None or one.quantity not in _JUDGED or one.statistic not in {MEAN, MEDIAN}:
        return None
    if not one.value or not figure.value:
        return None
    hard = hard_limit(made.run, one.quantity, single=made.loaded.single)
    if hard is None:
        return None
    limit = limits_of(made.run, str(one.quantity))[0] if one.quantity in _ESTIMATED else hard
    hard, limit = (None if bound is None else limited(one.quantity, bound, each) for bound in (hard, limit))
    if hard is None:
        return None
    return judge(
        Measurement(quantity=_JUDGED_AS.get(one.quantity, str(one.quantity)), value=one.value),
        figure,
        limit=limit or hard,
        hard_limit=hard,
        offered=offered_to(made.run, str(one.quantity)),
        losses=(),
        suspects=tuple,
    )


def _position(one: Measured, made: Predicted, figure: Figure | None) -> Position | None:
    if made.run is None or figure is None or one.statistic != MEAN or not figure.value:
        return None
    ratio = one.value / figure.value
    if one.quantity is Quantity.PER_USER:
        return position("tpot_s", made.run.bands.kind, 1 / ratio, at_rate=made.run.at_rate)
    if one.quantity not in _MANY or one.quantity is Quantity.E2E:
        return None
    name = "output_tokens_per_s" if one.quantity is Quantity.REQUESTS_PER_S else str(one.quantity)
    return position(name, made.run.bands.kind, ratio, at_rate=made.run.at_rate)


def _attributed(
    one: Measured, made: Predicted, figure: Figure | None, parts: tuple[Effect, ...], judgement: Judgement | None
) -> str:
    if judgement is not None and judgement.verdict is Verdict.IMPOSSIBLE:
        return judgement.text
    if figure is None:
        if made.run is None:
            return "not predicted: it is not predicted to fit"
        if one.statistic not in {MEAN, MEDIAN} and made.simulated is None:
            return "percentiles are predicted by --simulate"
        return "not predicted under this load"
    if abs(figure.value - one.value) <= _EXACT * abs(one.value):
        return "as predicted"
    within = figure.low <= one.value <= figure.high and figure.low < figure.high
    head = "within the band; " if within else ""
    told = [part for part in parts if abs(part.effect) > _TOLD * abs(one.value - figure.value)]
    return head + "; ".join(f"{part.cause} {signed(one.quantity, part.effect)} ({part.why})" for part in told)


_EXACT = 0.002
_TOLD = 0.05


def signed(quantity: str, value: float) -> str:
    """Return a part of a difference with its sign and unit.

    >>> signed("tpot_s", 0.0012), signed("output_tokens_per_s", -40.5)
    ('+1.2 ms', '-40.5')
    """
    sign = "+" if value >= 0 else "-"
    if quantity.endswith("_per_s") or not quantity.endswith("_s"):
        return f"{sign}{abs(value):,.4g}"
    return f"{sign}{format_seconds(abs(value))}"


# Verdict -------------------------------------------------------------------------------------------------------------


def _headline(lines: tuple[FigureLine, ...], made: Predicted) -> tuple[FigureLine, str] | None:
    by_name = {(line.quantity, line.statistic): line for line in lines}
    order: tuple[tuple[Quantity, str, str], ...] = _HEADLINES
    if made.run is not None and (made.run.burst or made.run.load.offer.batch is not None) and not made.loaded.single:
        order = tuple(sorted(_HEADLINES, key=lambda row: row[0] not in {Quantity.OUTPUT_PER_S, Quantity.TOTAL_PER_S}))
    for quantity, statistic, name in order:
        line = by_name.get((quantity, statistic))
        if line is not None and line.predicted is not None:
            return line, name
    return None


def _normal(lines: tuple[FigureLine, ...], made: Predicted) -> Position | None:
    found = _headline(lines, made)
    if found is None or made.run is None:
        return None
    line, _ = found
    quantity = "output_tokens_per_s" if line.quantity == Quantity.TOTAL_PER_S else line.quantity
    if line.predicted is None or not line.predicted:
        return None
    ratio = line.measured / line.predicted
    if line.quantity == Quantity.PER_USER:
        quantity, ratio = "tpot_s", 1 / ratio
    return position(quantity, made.run.bands.kind, ratio, at_rate=made.run.at_rate)


def _verdict(lines: tuple[FigureLine, ...], made: Predicted, normal: Position | None) -> str:
    impossible = [line for line in lines if line.verdict is Verdict.IMPOSSIBLE]
    if impossible:
        return impossible[0].attributed_to
    found = _headline(lines, made)
    if found is None:
        return "nothing of what is measured is predicted under this load"
    line, name = found
    shown = [shown_value(line.quantity, value) for value in (line.measured, line.predicted or 0.0)]
    text = f"{name} {shown[0]} measured, {shown[1]} predicted"
    error = line.error_fraction
    if error is not None:
        text += f" ({error:+.0%})" if abs(error) < _FAR else f" ({1 + error:.2g} x)"
    band = (line.predicted_low, line.predicted_high)
    if band[0] is not None and band[1] is not None and band[0] < band[1]:
        inside = band[0] <= line.measured <= band[1]
        text += ", within the band" if inside else ", outside the band"
    if line.roofline_fraction is not None:
        text += f"; {line.roofline_fraction:.0%} of the roofline"
    if normal is not None:
        text += f"; {position_text(normal)}"
    return text


def _drafting_verdict(lines: tuple[FigureLine, ...], made: Predicted) -> str:
    """Return the verdict on a server that drafts: what that gains, for nothing is predicted of the drafting itself."""
    impossible = [line for line in lines if line.verdict is Verdict.IMPOSSIBLE]
    if impossible:
        return impossible[0].attributed_to
    found = _headline(lines, made)
    if found is None:
        return "nothing of what is measured is predicted under this load"
    line, name = found
    shown = [shown_value(line.quantity, value) for value in (line.measured, line.predicted or 0.0)]
    text = line.attributed_to.removeprefix("predicted without drafting, ")
    return f"{name} {shown[0]} measured with drafting, {shown[1]} predicted without it, {text}"


def shown_value(quantity: str, value: float) -> str:
    """Return a value with its unit.

    >>> shown_value("ttft_s", 0.025), shown_value("output_tokens_per_s", 1329.2)
    ('25 ms', '1,329')
    """
    if quantity.endswith("_s") and not quantity.endswith("_per_s"):
        return format_seconds(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.4g}"  # noqa: PLR2004 - four digits


__all__ = ["Compared", "Loss", "compared_run", "comparison_of", "shown_value", "signed"]
