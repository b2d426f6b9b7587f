"""The view of ``infcalc speculate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.speculation.priced import Breakeven
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.api.answer import Answer
    from infcalc.api.drafting import SpeculateResult
    from infcalc.speculation.priced import BatchPoint, SpeculationRow


def view(answer: Answer[SpeculateResult]) -> View:
    """Return one row per way of drafting, and where acceptance and cost come from."""
    several = len(answer.results) > 1
    who = (Column(key="model", heading="model", left=True), Column(key="gpu", heading="GPU", left=True))
    table = Table(
        title="Speculative decoding, at the best draft length of each method",
        columns=(
            *(who if several else ()),
            Column(key="method", heading="method", left=True),
            Column(key="batch", heading="batch", show=count),
            Column(key="num_draft_tokens", heading="drafts", show=count),
            Column(key="acceptance", heading="accepted", show=_share),
            Column(key="breakeven_acceptance", heading="needed", show=_share, aside=True),
            Column(key="tokens_per_round", heading="per round", show=_two),
            Column(key="speedup", heading="speedup", show=_factor),
            Column(key="speedup_low", heading="low", show=_factor),
            Column(key="speedup_high", heading="high", show=_factor),
            Column(key="pays_up_to_batch", heading="pays up to", show=str),
        ),
        rows=tuple(
            {
                "model": result.model,
                "gpu": f"{result.num_gpus} x {result.gpu}",
                "method": row.method,
                "batch": row.batch,
                "num_draft_tokens": row.num_draft_tokens,
                "acceptance": row.acceptance,
                "breakeven_acceptance": row.breakeven_acceptance,
                "tokens_per_round": row.tokens_per_round,
                "speedup": row.speedup,
                "speedup_low": row.speedup_low,
                "speedup_high": row.speedup_high,
                "pays_up_to_batch": _breakeven(row, result.max_batch),
            }
            for result in answer.results
            for row in result.rows
        ),
    )
    sources = tuple(
        f"{row.method}: acceptance {row.acceptance_source}; cost {row.cost_source}" for row in answer.result.rows
    )
    memory = Table(
        title="What drafting adds to memory (all GPUs)",
        columns=(
            Column(key="name", heading="part", left=True),
            Column(key="num_bytes", heading="size", show=lambda value: format_bytes(float(str(value)))),
            Column(key="why", heading="made of", left=True),
        ),
        rows=tuple(
            {"name": item.name, "num_bytes": item.num_bytes, "why": item.why}
            for result in answer.results
            for item in result.memory
        ),
    )
    return view_of(
        answer,
        tables=(
            table,
            *(_by_batch(one, several=several) for one in answer.results),
            _full_load(answer),
            memory,
            *(_contest(one) for one in answer.results if one.simulation),
        ),
        findings=(
            *(_finding(one) for one in answer.results),
            *(text for one in answer.results for text in _winners(one)),
        ),
        notes=sources,
    )


def _by_batch(result: SpeculateResult, *, several: bool) -> Table:
    """Return a row for each batch and a column for each way of drafting: its speedup at its best length."""
    methods = tuple(dict.fromkeys(point.method for point in result.by_batch))
    found = {(point.method, point.batch): point for point in result.by_batch}
    where = f", {result.model} on {result.gpu}" if several else ""
    return Table(
        title=f"Speedup by batch, best draft length in brackets{where}",
        columns=(
            Column(key="batch", heading="batch", show=count),
            *(Column(key=method, heading=method, text_key=f"{method} text", show=_factor) for method in methods),
            Column(key="fits", heading="fits", left=True),
        ),
        rows=tuple(
            {
                "batch": batch,
                **{method: found[method, batch].speedup for method in methods},
                **{f"{method} text": _point(found[method, batch]) for method in methods},
                "fits": _fits(result, batch),
            }
            for batch in dict.fromkeys(point.batch for point in result.by_batch)
        ),
    )


def _fits(result: SpeculateResult, batch: int) -> str:
    """Return whether so many sequences fit: not known where the memory of no drafter is."""
    if not result.fits:
        return "no"
    known = [load.sequences_without for load in result.full_load]
    return "unknown" if not known else "yes" if batch <= max(known) else "no"


def _point(point: BatchPoint) -> str:
    return f"{_factor(point.speedup)} ({point.num_draft_tokens})"


def _full_load(answer: Answer[SpeculateResult]) -> Table:
    several = len(answer.results) > 1
    return Table(
        title="When memory is full, on the same GPUs",
        columns=(
            *((Column(key="where", heading="where", left=True),) if several else ()),
            Column(key="method", heading="method", left=True),
            Column(key="weights_bytes", heading="loads", show=lambda value: format_bytes(float(str(value)))),
            Column(
                key="kv_bytes_per_sequence",
                heading="per sequence",
                show=lambda value: format_bytes(float(str(value))),
                aside=True,
            ),
            Column(key="sequences_without", heading="sequences", show=count),
            Column(key="sequences_with", heading="with drafts", show=count),
            Column(key="sequences_forgone", heading="forgone", show=count, aside=True),
            Column(key="num_draft_tokens", heading="drafts", show=count),
            Column(key="speedup", heading="tokens/s", show=_factor),
            Column(key="pays", heading="pays", show=lambda value: "yes" if value else "no", left=True),
        ),
        rows=tuple(
            {
                "where": f"{result.model} on {result.num_gpus} x {result.gpu}",
                "method": load.method,
                "weights_bytes": load.weights_bytes,
                "kv_bytes_per_sequence": load.kv_bytes_per_sequence,
                "sequences_without": load.sequences_without,
                "sequences_with": load.sequences_with,
                "sequences_forgone": load.sequences_forgone,
                "num_draft_tokens": load.num_draft_tokens,
                "speedup": load.speedup,
                "pays": load.pays,
            }
            for result in answer.results
            for load in result.full_load
        ),
    )


def _contest(result: SpeculateResult) -> Table:
    """Return counted against expected tokens per round of each simulated shape, and what it is worth."""
    first = result.simulation[0]
    return Table(
        title=(
            f"Chains and trees with the acceptance of {result.simulated_method} for {result.model}: "
            f"{first.num_rounds:,} simulated rounds each, and the speedup at a batch"
        ),
        columns=(
            Column(key="name", heading="shape", left=True),
            Column(key="verified_tokens", heading="verified", show=count),
            Column(key="tokens_per_round", heading="per round", text_key="counted"),
            Column(key="expected_tokens_per_round", heading="formula", show=_three),
            Column(key="standard_errors", heading="off by", show=_errors, aside=True),
            *(
                Column(key=f"speedup_at_{price.batch}", heading=f"at {price.batch:,}", show=_factor)
                for price in first.prices
            ),
        ),
        rows=tuple(
            {
                "name": row.name,
                "verified_tokens": row.verified_tokens,
                "tokens_per_round": row.tokens_per_round,
                "counted": f"{row.tokens_per_round:.3f} +/- {row.tokens_per_round_high - row.tokens_per_round:.3f}",
                "expected_tokens_per_round": row.expected_tokens_per_round,
                "standard_errors": row.standard_errors,
            }
            | {f"speedup_at_{price.batch}": price.speedup for price in row.prices}
            for row in result.simulation
        ),
    )


def _winners(result: SpeculateResult) -> Iterator[str]:
    """Yield which shape wins at each batch, by the closed form."""
    for index, price in enumerate(result.simulation[0].prices if result.simulation else ()):
        best = max(result.simulation, key=lambda row: row.prices[index].speedup)
        gain = best.prices[index].speedup
        verdict = f"is the fastest, {gain:.2f}x" if gain > 1 else f"loses least, {gain:.2f}x"
        yield f"simulated {result.simulated_method} at batch {price.batch}: {best.name} {verdict}"


def _finding(result: SpeculateResult) -> str:
    best = max(result.rows, key=lambda row: row.speedup)
    where = f"{result.model} on {result.num_gpus} x {result.gpu} at batch {result.batch}"
    if not result.fits:
        where = f"{where} it does not fit; if it did"
    if best.speedup <= 1:
        return f"{where}: drafting does not pay"
    return (
        f"{where}: {best.method} with {best.num_draft_tokens} draft tokens is the fastest, {best.speedup:.2f}x "
        f"({best.speedup_low:.2f}x to {best.speedup_high:.2f}x){_crowded(result)}"
    )


def _crowded(result: SpeculateResult) -> str:
    """Return what becomes of the gain on a full server."""
    best = max(result.full_load, key=lambda load: load.speedup, default=None)
    if best is None:
        return ""
    if not best.pays:
        return f"; with memory full ({best.sequences_without:,} sequences) none pays"
    return f"; with memory full ({best.sequences_with:,} sequences) {best.method}, {best.speedup:.2f}x"


def _breakeven(row: SpeculationRow, max_batch: int) -> str:
    if row.breakeven_batch is not None:
        return f"{row.breakeven_batch:,}"
    if row.breakeven is Breakeven.ALWAYS and row.speedup <= 1:
        # A mixture of experts reads more experts for the drafts of a small batch; a large one touches all anyway.
        return f"only {max_batch:,}"
    return f"{max_batch:,}+" if row.breakeven is Breakeven.ALWAYS else "none"


def _factor(value: object) -> str:
    return f"{value:.2f}x" if isinstance(value, int | float) else str(value)


def _three(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else str(value)


def _errors(value: object) -> str:
    return f"{value:+.1f} SE" if isinstance(value, int | float) else str(value)


def _two(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else str(value)


def _share(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else str(value)
