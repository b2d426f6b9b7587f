"""What a capacity review rests on: bands, the source of every fact, and the formula of every figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.document import Passage
from infcalc.report.table import Column, Table, named_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.api.answer import Answer
    from infcalc.api.reporting_nouns import BandLine, ReportResult
    from infcalc.report.document import Block

_MEANS = {
    "calibrated": "fitted to measurements of this kind of kernel on this very part",
    "modelled": "derived from measurements of another kind of kernel or from published whole-model figures",
    "uncalibrated": "taken from a relative of this part, or a documented default",
}
_NAMES = {"ttft_s": "time to first token", "tpot_s": "time per token", "output_tokens_per_s": "output tokens/s"}


def bands(result: ReportResult) -> tuple[Block, ...]:
    """Return how far measurements lie from estimates of this kind, and what the estimates rest on."""
    words = " ".join(
        f"Times of this GPU are {basis}: {meaning}."
        for basis, meaning in _MEANS.items()
        if any(str(line.basis) == basis for line in result.bands)
    )
    table = Table(
        title="Measured over estimated: eight of ten published runs of the class lie between low and high",
        columns=(
            Column(key="quantity", heading="figure", left=True),
            Column(key="factor_low", heading="low", show=_factor),
            Column(key="factor_high", heading="high", show=_factor),
            Column(key="basis", heading="basis", left=True),
            Column(key="drawn_from", heading="drawn from runs of the class", left=True),
        ),
        rows=tuple(_band(line) for line in result.bands),
    )
    said = (
        "Bytes of weights and of the KV cache are exact; what is modelled in the ledger carries its own low and high. "
        f"{words} Low to high is meant to hold 80 % of measurements, held within what physics allows."
    )
    return (Passage(text=said), table)


def _band(line: BandLine) -> dict[str, object]:
    return {
        "quantity": _NAMES[line.quantity],
        "factor_low": line.factor_low,
        "factor_high": line.factor_high,
        "basis": str(line.basis),
        "drawn_from": line.drawn_from or "none was measured: as wide as the widest sixth of all errors",
    }


def facts(answer: Answer[ReportResult]) -> tuple[Block, ...]:
    """Return every fact that a publication, a file or a price list stands behind."""
    told: dict[str, dict[str, None]] = {}
    for fact, value, source in _facts(answer):
        if source:
            told.setdefault(source, {})[f"{fact} {value}".strip()] = None
    table = Table(
        title="Where the facts were read",
        columns=(
            Column(key="source", heading="source", left=True),
            Column(key="facts", heading="what is taken from it", left=True),
        ),
        rows=tuple({"source": source, "facts": "; ".join(facts)} for source, facts in told.items()),
    )
    return (table,) if told else ()


def _facts(answer: Answer[ReportResult]) -> Iterator[tuple[str, str, str]]:
    result = answer.result
    for item in answer.inputs:
        yield (*named_value(item), item.source)
    for explanation in answer.explanations:
        for item in explanation.inputs:
            yield (*named_value(item), item.source)
    for line in result.memory.lines:
        yield f"ledger: {line.name.replace('_', ' ')}", line.basis, line.source
    yield "KV cache precision", result.memory.kv_verdict, result.memory.kv_verdict_source
    yield "weight precision", result.memory.weights_verdict, result.memory.weights_verdict_source
    for plan in (*result.as_deployed.plans, *result.plan.plans):
        yield f"price of {plan.gpu}", "", plan.price_source


def formulas(answer: Answer[ReportResult]) -> tuple[Block, ...]:
    """Return each figure as formula, with its values, and the publication of the formula."""
    if not answer.explanations:
        return ()
    return (
        Table(
            title="Each figure with the values of this review",
            columns=(
                Column(key="quantity", heading="figure", left=True),
                Column(key="formula", heading="formula", left=True),
                Column(key="substituted", heading="with values", left=True),
                Column(key="source", heading="formula from", left=True),
            ),
            rows=tuple(
                {
                    "quantity": one.quantity,
                    "formula": one.formula,
                    "substituted": one.substituted,
                    "source": one.source,
                }
                for one in answer.explanations
            ),
        ),
    )


def _factor(value: object) -> str:
    return f"x {value:.2f}" if isinstance(value, int | float) else str(value)
