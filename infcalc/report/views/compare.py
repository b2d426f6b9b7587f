"""The view of ``infcalc compare``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.report.as_json import value_of
from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_memory

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.comparing import CompareResult
    from infcalc.api.residuals import CompareLine

_MULTIPLE = 1.0
"""From here on an error is shown as a multiple of what was measured."""
_WORDS = {
    "device_total_bytes": "card total",
    "free_at_start_bytes": "free at start",
    "usable_bytes": "usable",
    "free_before_weights_bytes": "free before weights",
    "free_after_weights_bytes": "free after weights",
    "weights_bytes": "weights",
    "non_torch_bytes": "buffers",
    "activation_bytes": "activation",
    "peak_bytes": "profiling peak",
    "compute_buffer_bytes": "compute buffer",
    "cuda_graph_estimate_bytes": "CUDA graphs, charged",
    "cuda_graph_bytes": "CUDA graphs, taken",
    "free_for_kv_bytes": "free for KV",
    "state_bytes": "recurrent state",
    "kv_pool_bytes": "KV pool",
    "kv_bytes_per_token": "KV bytes/token",
    "block_tokens": "tokens/block",
    "kv_blocks": "KV blocks",
    "kv_cache_tokens": "KV tokens",
    "max_concurrency": "max concurrency",
}


def view(answer: Answer[Any]) -> View:
    """Return the view of a start-up log, or of measurements and of several files."""
    from infcalc.api.measured_nouns import RunComparison  # noqa: PLC0415 - logs need none of it

    if len(answer.results) > 1 or isinstance(answer.result, RunComparison):
        from infcalc.report.views import measured  # noqa: PLC0415 - the same

        return measured.view(answer)
    return _of_log(answer)


def lines_table(result: CompareResult) -> Table:
    """Return the lines of a log."""
    return Table(
        title="Predicted and measured, per GPU",
        columns=(
            Column(key="quantity", heading="line", show=_named, left=True),
            Column(key="predicted", heading="predicted", text_key="predicted_text"),
            Column(key="predicted_low", heading="low", aside=True, text_key="low_text"),
            Column(key="predicted_high", heading="high", aside=True, text_key="high_text"),
            Column(key="measured", heading="measured", text_key="measured_text"),
            Column(key="error_fraction", heading="error", show=_share),
            Column(key="line", heading="at line", show=count),
        ),
        rows=tuple(_row(line) for line in result.lines),
    )


def _of_log(answer: Answer[CompareResult]) -> View:
    """Return the verdict, the lines, what each residual is put down to, and what the engine refused."""
    result = answer.result
    causes = Table(
        title="What the differences are put down to (measured less predicted)",
        columns=(
            Column(key="quantity", heading="line", show=_named, left=True),
            Column(key="attributed_to", heading="cause", left=True),
        ),
        rows=tuple(
            {"quantity": line.quantity, "attributed_to": line.attributed_to}
            for line in result.lines
            if line.measured is not None and line.predicted is not None
        ),
    )
    refusals = tuple(
        f"what would start instead of line {refusal.line}: {'; '.join(refusal.remedies)}" for refusal in result.refusals
    )
    return view_of(
        answer, tables=(lines_table(result), causes), verdict=result.verdict, findings=refusals, data=_data(result)
    )


def _data(result: CompareResult) -> Table:
    """Return the lines as they are in JSON, without their parts, which ``attributed_to`` names."""
    kept = [value_of(replace(line, parts=())) for line in result.lines]
    rows = tuple({key: value for key, value in row.items() if key != "parts"} for row in kept if isinstance(row, dict))
    keys = list(rows[0]) if rows else ["quantity"]
    return Table(title="", columns=tuple(Column(key=key, heading=key) for key in keys), rows=rows)


def _row(line: CompareLine) -> dict[str, object]:
    return {
        "quantity": line.quantity,
        "predicted": line.predicted,
        "predicted_low": line.predicted_low,
        "predicted_high": line.predicted_high,
        "measured": line.measured,
        "error_fraction": line.error_fraction,
        "line": line.line,
        "attributed_to": line.attributed_to,
        "predicted_text": _shown(line.quantity, line.predicted),
        "low_text": _shown(line.quantity, line.predicted_low),
        "high_text": _shown(line.quantity, line.predicted_high),
        "measured_text": _shown(line.quantity, line.measured),
    }


def _named(quantity: object) -> str:
    return _WORDS.get(str(quantity), str(quantity))


def _shown(quantity: str, value: float | None) -> str:
    if value is None:
        return "-"
    if quantity.endswith("_bytes"):
        return format_memory(value)
    return f"{value:,.2f}x" if quantity == "max_concurrency" else f"{value:,.0f}"


def _share(value: object) -> str:
    if isinstance(value, float) and value >= _MULTIPLE:
        return f"{1 + value:,.1f} x"
    return f"{value:+.1%}".replace("-0.0%", "0.0%").replace("+0.0%", "0.0%") if isinstance(value, float) else str(value)
