"""The view of ``infcalc memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.bar import memory_bar
from infcalc.report.flat import flat
from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.report.views.users import asked_in_words, users_table
from infcalc.units import KIB, format_bytes

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.filling import MemoryResult

_LETTERS = (
    ("W", "weights", ("weights", "draft", "lora", "loading")),
    ("A", "activation", ("activation",)),
    ("B", "buffers", ("non_torch",)),
    ("G", "CUDA graphs", ("cuda_graphs",)),
)
_ROUNDING_BYTES = KIB
_COLUMNS = 66
"""Of the bar, where there is room."""
_WHO = ("model", "gpu", "num_gpus", "weights", "kv_dtype", "engine", "engine_version", "context_tokens")


def view(answer: Answer[MemoryResult]) -> View:
    """Return the lines of the ledger, what the engine prints, the bar, and what would make it fit."""
    several = len(answer.results) > 1
    who = (
        Column(key="model", heading="model", left=True),
        Column(key="gpu", heading="GPU", left=True),
        Column(key="kv_dtype", heading="KV", left=True),
    )
    shown = who if several else ()
    tables = (_ledger(answer, shown), _printed(answer, shown), *_users(answer, shown), _changes(answer))

    def drawn(columns: int) -> str:
        return "\n\n".join(_bar(result, columns, named=several) for result in answer.results)

    findings = tuple(_finding(result) for result in answer.results)
    data = flat(answer.results, lists={"lines": "line", "changes": "change"}, identity=_WHO)
    return view_of(answer, tables=tables, findings=findings, drawing=drawn(_COLUMNS), drawn=drawn, data=data)


def _identity(result: MemoryResult) -> dict[str, object]:
    return {
        "model": result.model,
        "gpu": f"{result.num_gpus} x {result.gpu}",
        "kv_dtype": result.kv_dtype,
        "context_tokens": result.context_tokens,
    }


def _ledger(answer: Answer[MemoryResult], who: tuple[Column, ...]) -> Table:
    rows: list[dict[str, object]] = []
    for result in answer.results:
        rows += [
            _identity(result)
            | {
                "name": line.name.replace("_", " "),
                "num_bytes": line.num_bytes,
                "low_bytes": line.low_bytes,
                "high_bytes": line.high_bytes,
                "basis": line.basis,
                "source": line.source,
            }
            for line in result.lines
        ]
        rows.append(
            _identity(result)
            | {
                "name": "KV pool",
                "num_bytes": result.kv_pool_bytes,
                "low_bytes": result.kv_pool_bytes_low,
                "high_bytes": result.kv_pool_bytes_high,
                "basis": "what is left",
                "source": f"of {format_bytes(result.total_bytes - result.reserve_bytes)} that the engine uses",
            }
        )
        rows.append(
            _identity(result)
            | {
                "name": "reserve",
                "num_bytes": result.reserve_bytes,
                "low_bytes": result.reserve_bytes_low,
                "high_bytes": result.reserve_bytes_high,
                "basis": "left alone",
                "source": f"of {format_bytes(result.total_bytes)} that CUDA reports" + _holds(result),
            }
        )
    return Table(
        title="Memory of the governing GPU",
        columns=(
            *who,
            Column(key="name", heading="line", left=True),
            Column(key="num_bytes", heading="bytes", show=_size),
            Column(key="low_bytes", heading="low", show=_size),
            Column(key="high_bytes", heading="high", show=_size),
            Column(key="basis", heading="basis", left=True),
            Column(key="source", heading="from", left=True, aside=True),
        ),
        rows=tuple(rows),
    )


def _in_reserve_bytes(result: MemoryResult) -> int:
    """Return what of the lines lies in what the engine leaves alone: its fraction may hold weights and KV only."""
    if result.missing_bytes:
        return 0
    parts = sum(line.num_bytes for line in result.lines)
    counted_twice = parts + result.kv_pool_bytes + result.reserve_bytes - result.total_bytes
    return counted_twice if counted_twice > _ROUNDING_BYTES else 0


def _holds(result: MemoryResult) -> str:
    held = _in_reserve_bytes(result)
    return f"; the forward pass takes {format_bytes(held)} of it" if held else ""


def _printed(answer: Answer[MemoryResult], who: tuple[Column, ...]) -> Table:
    return Table(
        title="What the engine prints (blocks, tokens, concurrency), and what truly fits",
        columns=(
            *who,
            Column(key="kv_blocks", heading="blocks", show=count),
            Column(key="block_tokens", heading="block", show=count),
            Column(key="kv_cache_tokens", heading="tokens", show=count),
            Column(key="max_concurrency", heading="concurrency", show=_factor),
            Column(key="max_model_len", heading="longest", show=count),
            Column(key="sequences", heading="sequences", show=count),
            Column(key="sequences_low", heading="low", show=count),
            Column(key="sequences_high", heading="high", show=count),
            Column(key="context_tokens", heading="of tokens", show=count),
        ),
        rows=tuple(
            _identity(result)
            | {
                "kv_blocks": result.kv_blocks,
                "block_tokens": result.block_tokens,
                "kv_cache_tokens": result.kv_cache_tokens,
                "max_concurrency": result.max_concurrency,
                "max_model_len": result.max_model_len,
                "sequences": result.sequences,
                "sequences_low": result.sequences_low,
                "sequences_high": result.sequences_high,
            }
            for result in answer.results
        ),
    )


def _users(answer: Answer[MemoryResult], who: tuple[Column, ...]) -> tuple[Table, ...]:
    return users_table([(_identity(result), result) for result in answer.results], who[:-1])


def _changes(answer: Answer[MemoryResult]) -> Table:
    return Table(
        title="What would make it fit (each found with the same ledger)",
        columns=(
            Column(key="change", heading="change", left=True),
            Column(key="kv_pool_bytes", heading="KV pool", show=_size),
            Column(key="max_model_len", heading="longest", show=count),
            Column(key="sequences", heading="sequences", show=count),
            Column(key="sequences_low", heading="low", show=count),
            Column(key="sequences_high", heading="high", show=count),
        ),
        rows=tuple(
            {
                "change": change.change,
                "kv_pool_bytes": change.kv_pool_bytes,
                "max_model_len": change.max_model_len,
                "sequences": change.sequences,
                "sequences_low": change.sequences_low,
                "sequences_high": change.sequences_high,
            }
            for result in answer.results
            for change in result.changes
        ),
    )


def parts(result: MemoryResult) -> list[tuple[str, str, int]]:
    """Return what fills the GPU, in the order of the bar: a letter, a name, bytes.

    Together they are the whole GPU; where it does not fit, they exceed it by what is missing.
    """
    sizes = {line.name: line.num_bytes for line in result.lines}
    found = [(letter, name, sum(sizes.get(key, 0) for key in keys)) for letter, name, keys in _LETTERS]
    found.append(("K", "KV pool", result.kv_pool_bytes))
    lacking = result.needed_bytes - sum(size for _, _, size in found)
    if result.missing_bytes and lacking > 0:
        found.append(("!", "needed for one sequence", lacking))
    found.append(("-", "left alone", result.reserve_bytes - _in_reserve_bytes(result)))
    return found


def _bar(result: MemoryResult, columns: int, *, named: bool) -> str:
    width = min(columns, _COLUMNS)
    drawn = memory_bar(parts(result), result.total_bytes, width=width - len("[]"), legend_width=width)
    return f"{result.model} on {result.gpu}\n{drawn}" if named else drawn


def _finding(result: MemoryResult) -> str:
    where = f"{result.model} in {result.weights} on {result.num_gpus} x {result.gpu}"
    where += f", {result.engine} {result.engine_version}"
    if not result.fits:
        return (
            f"{where}: does not fit, {format_bytes(result.missing_bytes)} per GPU are missing; one sequence of "
            f"{result.needed_tokens:,} tokens needs {format_bytes(result.needed_bytes)}, and " + _allowed(result)
        )
    asked = asked_in_words(result)
    mend = f" with {' and '.join(result.starts_with)}" if result.starts_with else ""
    return (
        f"{where}: fits{mend}, {format_bytes(result.kv_pool_bytes)} for KV "
        f"({format_bytes(result.kv_pool_bytes_low)} to {format_bytes(result.kv_pool_bytes_high)}), "
        f"{result.sequences:,} {_of_length(result)} ({result.sequences_low:,} to {result.sequences_high:,})"
        + (f"; {asked}" if asked else "")
    )


def _allowed(result: MemoryResult) -> str:
    if result.needed_bytes > result.usable_bytes:
        return f"the engine uses {format_bytes(result.usable_bytes)}"
    return f"its memory fraction leaves less than that of {format_bytes(result.usable_bytes)}"


def _of_length(result: MemoryResult) -> str:
    if result.mean_live_tokens is None:
        return f"sequences of {result.context_tokens:,} tokens"
    return f"requests of {result.mean_live_tokens:,.0f} live tokens"


def _factor(value: object) -> str:
    return f"{value:.2f}x" if isinstance(value, int | float) else str(value)


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int | float) else str(value)
