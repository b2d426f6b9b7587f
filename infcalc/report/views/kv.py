"""The view of ``infcalc kv``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.sizing import KvResult


def view(answer: Answer[KvResult]) -> View:
    """Return findings in words, sizes by context, and the parts of the cache."""
    several = len(answer.results) > 1
    who = (
        Column(key="model", heading="model", left=True),
        Column(key="gpu", heading="GPU", left=True),
        Column(key="kv_dtype", heading="KV", left=True),
    )
    sizes = Table(
        title="KV cache of one sequence, and how many fit by memory alone",
        columns=(
            *(who if several else ()),
            Column(key="context_tokens", heading="context", show=count),
            Column(key="kv_bytes", heading="sequence", show=_size),
            Column(key="kv_bytes_per_gpu", heading="per GPU", show=_size),
            Column(key="kv_bytes_cluster", heading="all GPUs", show=_size),
            Column(key="sequences", heading="sequences", show=count),
            Column(key="sequences_low", heading="low", show=count),
            Column(key="sequences_high", heading="high", show=count),
        ),
        rows=tuple(
            {
                "model": result.model,
                "gpu": f"{result.num_gpus} x {result.gpu}",
                "kv_dtype": result.kv_dtype,
                "context_tokens": row.context_tokens,
                "kv_bytes": row.kv_bytes,
                "kv_bytes_per_gpu": row.kv_bytes_per_gpu,
                "kv_bytes_cluster": row.kv_bytes_cluster,
                "sequences": row.sequences,
                "sequences_low": row.sequences_low,
                "sequences_high": row.sequences_high,
            }
            for result in answer.results
            for row in result.rows
        ),
    )
    parts = Table(
        title="Parts of the cache (whole model)",
        columns=(
            *(who[::2] if several else ()),
            Column(key="kind", heading="kind", left=True),
            Column(key="layers", heading="layers", show=count),
            Column(key="bytes_per_token", heading="bytes/token", show=count),
            Column(key="window_tokens", heading="window", show=count),
            Column(key="max_bytes", heading="stays at", show=_size),
        ),
        rows=tuple(
            {
                "model": result.model,
                "kv_dtype": result.kv_dtype,
                "kind": part.kind,
                "layers": part.layers,
                "bytes_per_token": part.bytes_per_token,
                "window_tokens": part.window_tokens,
                "max_bytes": part.max_bytes,
            }
            for result in answer.results
            for part in result.kv_components
        ),
    )
    findings = tuple(line for result in answer.results for line in _findings(result))
    return view_of(answer, tables=(sizes, parts), findings=findings)


def _findings(result: KvResult) -> list[str]:
    slope = result.kv_bytes_per_token
    windowed = any(part.window_tokens is not None for part in result.kv_components)
    lines = [
        f"{result.model}, KV in {result.kv_dtype}: {count(slope)} bytes per token ({format_bytes(slope)})"
        + (
            f"; {_saving(result)} saves {result.gqa_saving_factor:.3g}x: multi-head attention would keep "
            f"{count(result.mha_kv_bytes_per_token)}" + (" before any window" if windowed else "")
            if result.gqa_saving_factor is not None and result.gqa_saving_factor > 1
            else ""
        )
    ]
    if result.kv_bytes_per_request:
        lines.append(f"plus {format_bytes(result.kv_bytes_per_request)} of recurrent state per request, at any length")
    windows = [part for part in result.kv_components if part.window_tokens is not None]
    lines += [
        f"{part.layers} {part.kind} layers stop growing at {count(part.window_tokens)} tokens "
        f"({format_bytes(part.max_bytes or 0)} per sequence)"
        for part in windows
    ]
    return lines


_COMPRESSED = frozenset({"latent", "compressed"})


def _saving(result: KvResult) -> str:
    """Return what keeps the cache below that of multi-head attention: latents have no heads that could be grouped."""
    kinds = {part.kind for part in result.kv_components}
    if not kinds & _COMPRESSED:
        return "grouping its heads"
    rest = kinds & {"grouped", "windowed"}
    return "compressing keys and values" + (" and grouping heads" if rest else "")


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int | float) else str(value)
