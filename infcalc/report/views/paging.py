"""The view of ``infcalc paging``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import row_table, side_by_side, view_of
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.paging_waste import AllocatorRow, PagingResult


def view(answer: Answer[PagingResult]) -> View:
    """Return allocators side by side, other block sizes, and what one shared prompt takes."""
    who, named = side_by_side(answer)
    first, prompt = answer.result, answer.result.shared_prefix
    allocators = row_table(
        "The same requests under each allocator"
        + ("" if who else f": {first.requests:,} on a pool of {first.pool_tokens:,} tokens"),
        who,
        (
            Column(key="allocator", heading="allocator", left=True),
            Column(key="waste_fraction", heading="waste", show=_percent),
            Column(key="reserved_fraction", heading="reserved", show=_percent),
            Column(key="internal_fraction", heading="internal", show=_percent),
            Column(key="scattered_fraction", heading="scattered", show=_percent, aside=True),
            Column(key="live_pool_fraction", heading="pool live", show=_percent),
            Column(key="rejected", heading="rejected", show=count),
            Column(key="preempted", heading="preempted", show=count, aside=True),
            Column(key="peak_sequences", heading="peak", show=count),
            Column(key="mean_sequences", heading="mean", show=_whole),
            Column(key="max_request_waste_tokens", heading="most wasted", show=count, aside=True),
        ),
        named,
        lambda one: one.allocators,
    )
    blocks = row_table(
        "Paging with other blocks",
        who,
        (
            Column(key="block_tokens", heading="block", show=count),
            Column(key="waste_fraction", heading="waste", show=_percent),
            Column(key="rejected", heading="rejected", show=count),
            Column(key="preempted", heading="preempted", show=count),
        ),
        named,
        lambda one: one.blocks,
    )
    shared = Table(
        title=f"{prompt.requests:,} requests with one prompt of {prompt.prefix_tokens:,} tokens",
        columns=(
            *who,
            Column(key="way", heading="stored", left=True),
            Column(key="bytes", heading="KV", show=_size),
            Column(key="prompt_blocks", heading="prompt blocks", show=count),
            Column(key="copies_on_write", heading="copies", show=count),
        ),
        rows=tuple(names | row for names, one in named if one.allocators for row in _ways(one)),
    )
    return view_of(
        answer,
        tables=tuple(table for table in (allocators, blocks, shared) if table.rows),
        data=allocators,
        findings=tuple(text for one in answer.results for text in _findings(one)),
    )


def _ways(result: PagingResult) -> list[dict[str, object]]:
    shared = result.shared_prefix
    each, own = shared.prompt_blocks_without, shared.prompt_blocks_with
    return [
        {"way": "by each request", "bytes": shared.bytes_without, "prompt_blocks": each, "copies_on_write": 0},
        {
            "way": "once, copied on write",
            "bytes": shared.bytes_with,
            "prompt_blocks": own,
            "copies_on_write": shared.copies_on_write,
        },
        {
            "way": "once, full blocks alone",
            "bytes": shared.bytes_with_full_blocks,
            "prompt_blocks": own,
            "copies_on_write": 0,
        },
    ]


def _findings(result: PagingResult) -> list[str]:
    rows = {row.allocator: row for row in result.allocators}
    where = f"{result.model} on {result.num_gpus} x {result.gpu}"
    shared = result.shared_prefix
    if result.nothing_per_token:
        state = format_bytes(result.state_bytes)
        return [f"{where}: there is nothing to page: a sequence keeps a state of {state}, and nothing per token"]
    if not result.pool_tokens:
        return [f"{where}: does not fit, and there is no KV pool to share out"]
    wastes = _wasted(rows["paged"], "wastes ", " of what requests hold")
    paged, most = rows["paged"], rows["contiguous-max"]
    return [
        (
            f"{where}: paging in blocks of {result.block_tokens} {wastes}, reserving "
            f"{result.longest_tokens:,} tokens {_wasted(most)}: {paged.peak_sequences:,} at once against "
            f"{most.peak_sequences:,}"
        ),
        (
            f"{shared.requests:,} requests with one prompt of {shared.prefix_tokens:,} tokens hold "
            f"{format_bytes(shared.bytes_with)} instead of {format_bytes(shared.bytes_without)}; "
            f"{shared.copies_on_write:,} blocks are copied on write"
        ),
    ]


def _wasted(row: AllocatorRow, before: str = "", after: str = "") -> str:
    """Say what share of the room that requests hold is wasted, or that no request found any."""
    if not row.peak_sequences:
        return f"fits none of the {row.rejected:,} requests"
    return f"{before}{'nothing' if row.waste_fraction is None else _percent(row.waste_fraction)}{after}"


def _percent(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else str(value)


def _whole(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int | float) else str(value)
