"""The views of ``infcalc models``, ``infcalc gpus`` and ``infcalc show``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.listing import GpusResult, ModelsResult, ShowResult

_NOTHING = "nothing in the catalog matches"
_DOUBTFUL = "? marks an entry with a figure that is not certain; `infcalc show NAME` says which"


def models_view(answer: Answer[ModelsResult]) -> View:
    """Return the models as a table."""
    found = answer.result.models
    table = Table(
        title=f"{len(found)} models",
        columns=(
            Column(key="name", heading="model", left=True),
            Column(key="parameters", heading="parameters", show=_billions),
            Column(key="active_parameters", heading="active", show=_billions),
            Column(key="layers", heading="layers", show=count, aside=True),
            Column(key="weights", heading="stored in", left=True, aside=True),
            Column(key="weights_bytes", heading="weights", show=_size),
            Column(key="kv_bytes_per_token", heading="KV B/token", show=count),
            Column(key="max_context_tokens", heading="context", show=count),
            Column(key="doubtful", heading="?", show=_mark, left=True),
            Column(key="hf_id", heading="Hugging Face id", left=True, aside=True),
        ),
        rows=tuple({name: getattr(row, name) for name in row.__dataclass_fields__} for row in found),
    )
    return view_of(answer, tables=(table,), findings=(_DOUBTFUL if found else _NOTHING,))


def gpus_view(answer: Answer[GpusResult]) -> View:
    """Return the GPUs as a table."""
    found = answer.result.gpus
    table = Table(
        title=f"{len(found)} GPUs",
        columns=(
            Column(key="name", heading="GPU", left=True),
            Column(key="memory_bytes", heading="memory", show=_size),
            Column(key="cuda_total_bytes", heading="CUDA total", show=_size),
            Column(key="bandwidth_bytes_per_s", heading="GB/s", show=lambda value: _per(value, 1e9)),
            Column(key="peak_bf16_flop_per_s", heading="bf16 TFLOP/s", show=lambda value: _per(value, 1e12)),
            Column(key="crossover_flop_per_byte", heading="FLOP/B", show=count),
            Column(key="price_usd_per_hour", heading="USD/h", show=_price),
            Column(key="price_date", heading="as of", left=True, aside=True),
            Column(key="doubtful", heading="?", show=_mark, left=True),
        ),
        rows=tuple({name: getattr(row, name) for name in row.__dataclass_fields__} for row in found),
    )
    return view_of(answer, tables=(table,), findings=(_DOUBTFUL if found else _NOTHING,))


def show_view(answer: Answer[ShowResult]) -> View:
    """Return one entry, a line per key with its origin, and what follows from it."""
    result = answer.result
    entry = Table(
        title=f"{result.name} ({result.section})",
        columns=(
            Column(key="key", heading="key", left=True),
            Column(key="value", heading="value", left=True),
            Column(key="origin", heading="from", left=True),
        ),
        rows=tuple(
            {"key": key, "value": _written(value), "origin": result.origins.get(key, "")}
            for key, value in result.entry.items()
        ),
    )
    derived = Table(
        title="What follows from it",
        columns=(Column(key="key", heading="key", left=True), Column(key="value", heading="value", show=_figure)),
        rows=tuple({"key": key, "value": value} for key, value in result.derived.items() if value),
    )
    return view_of(answer, tables=(entry, derived))


def _written(value: object) -> str:
    """Return a value of an entry on one line, nested ones in braces."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return ", ".join(_written(item) for item in value)
    return str(value)


def _figure(value: object) -> str:
    return "yes" if value is True else count(value)


def _billions(value: object) -> str:
    return f"{float(str(value)) / 1e9:,.2f} B"


def _size(value: object) -> str:
    return format_bytes(float(str(value)))


def _per(value: object, unit: float) -> str:
    return f"{float(str(value)) / unit:,.0f}"


def _price(value: object) -> str:
    return f"{float(str(value)):.2f}"


def _mark(value: object) -> str:
    return "?" if value else ""
