"""The view of ``infcalc concurrency``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.report.views.users import asked_in_words, users_table
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.fitting import ConcurrencyResult


def view(answer: Answer[ConcurrencyResult]) -> View:
    """Return the precisions side by side, and what was counted on the governing GPU."""
    several = len(answer.results) > 1
    who = (Column(key="model", heading="model", left=True), Column(key="gpu", heading="GPU", left=True))
    rows = Table(
        title="Sequences that fit by memory alone",
        columns=(
            *(who if several else ()),
            Column(key="kv_dtype", heading="KV", left=True),
            Column(key="context_tokens", heading="context", show=count),
            Column(key="kv_bytes_per_token", heading="bytes/token", show=count),
            Column(key="sequences", heading="sequences", show=count),
            Column(key="sequences_low", heading="low", show=count),
            Column(key="sequences_high", heading="high", show=count),
            Column(key="tokens", heading="tokens", show=count),
            Column(key="gain_over_fp16", heading="gain", show=_factor),
            Column(key="gain_over_fp16_nominal", heading="nominal", show=_factor, aside=True),
            Column(key="verdict_status", heading="engine", show=_spaced, left=True),
        ),
        rows=tuple(
            {
                "model": result.model,
                "gpu": f"{result.num_gpus} x {result.gpu}",
                "kv_dtype": row.kv_dtype,
                "context_tokens": row.context_tokens,
                "kv_bytes_per_token": row.kv_bytes_per_token,
                "sequences": row.sequences,
                "sequences_low": row.sequences_low,
                "sequences_high": row.sequences_high,
                "tokens": row.tokens,
                "gain_over_fp16": row.gain_over_fp16,
                "gain_over_fp16_nominal": row.gain_over_fp16_nominal,
                "verdict_status": row.verdict_status,
            }
            for result in answer.results
            for row in result.rows
        ),
    )
    counted = Table(
        title="Memory of the governing GPU",
        columns=(
            *(who if several else ()),
            Column(key="usable_bytes", heading="usable", show=_size),
            Column(key="weights_bytes", heading="weights", show=_size),
            Column(key="activation_bytes", heading="activation", show=_size),
            Column(key="non_torch_bytes", heading="buffers", show=_size),
            Column(key="cuda_graph_bytes", heading="graphs", show=_size),
            Column(key="kv_pool_bytes", heading="KV pool", show=_size),
        ),
        rows=tuple(
            {
                "model": result.model,
                "gpu": f"{result.num_gpus} x {result.gpu}",
                "usable_bytes": result.usable_bytes,
                "weights_bytes": result.weights_bytes,
                "activation_bytes": result.activation_bytes,
                "non_torch_bytes": result.non_torch_bytes,
                "cuda_graph_bytes": result.cuda_graph_bytes,
                "kv_pool_bytes": result.rows[0].kv_pool_bytes,
            }
            for result in answer.results
        ),
    )
    named = [
        ({"model": result.model, "gpu": f"{result.num_gpus} x {result.gpu}"}, row)
        for result in answer.results
        for row in result.rows
    ]
    # First where they are asked, for CSV holds the first table.
    users = users_table(named, who if several else ())
    return view_of(
        answer, tables=(*users, rows, counted), findings=tuple(_finding(result) for result in answer.results)
    )


def _finding(result: ConcurrencyResult) -> str:
    where = f"{result.model} in {result.weights} on {result.num_gpus} x {result.gpu}"
    if result.missing_bytes:
        return f"{where}: does not fit, {format_bytes(result.missing_bytes)} per GPU are missing before any KV"
    row = result.rows[0]
    asked = asked_in_words(row)
    asked = f"; {asked}" if asked else ""
    if row.requests is not None:
        served = "" if row.users is None or row.users == row.requests else f", which serves {row.users:,} users"
        return (
            f"{where}: {row.requests:,} requests of {row.mean_live_tokens:,.0f} live tokens at once with a KV cache in "
            f"{row.kv_dtype} ({row.requests_p95:,} with 95 % safety){served}{asked}"
        )
    return (
        f"{where}: {row.sequences:,} sequences of {row.context_tokens:,} tokens with a KV cache in {row.kv_dtype} "
        f"({row.sequences_low:,} to {row.sequences_high:,}){asked}"
    )


def _factor(value: object) -> str:
    return f"{value:.2f}x" if isinstance(value, int | float) else str(value)


def _spaced(value: object) -> str:
    return str(value).replace("_", " ")


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int | float) else str(value)
