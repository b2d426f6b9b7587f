"""How the figures of ``paging`` came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.paging_waste import PAPER
from infcalc.spec.explain import Explanation, Input

if TYPE_CHECKING:
    from infcalc.api.paging_waste import AllocatorRow, PagingResult
    from infcalc.api.pools import Pool


def explain_paging(result: PagingResult, pool: Pool) -> tuple[Explanation, ...]:
    """Return one explanation per allocator, with the closed form beside what was counted, and those of sharing."""
    shared = result.shared_prefix
    block_bytes = result.block_tokens * result.kv_bytes_per_token
    per_block = Input(
        name="bytes of a block",
        value=f"{block_bytes:,.0f}",
        origin=f"{result.block_tokens} tokens x {result.kv_bytes_per_token:,} bytes per token",
    )
    return (
        *(_waste(result, row, pool) for row in result.allocators),
        Explanation(
            quantity="bytes_without",
            formula="bytes of a block x sum over requests of ceil((shared prompt + own tokens) / block)",
            substituted=f"{block_bytes:,.0f} x {shared.bytes_without / max(block_bytes, 1):,.0f} = "
            f"{shared.bytes_without:,}",
            inputs=(per_block,),
        ),
        Explanation(
            quantity="bytes_with",
            formula="bytes of a block x blocks that forks of one prompt hold together, copies on write among them",
            substituted=f"{block_bytes:,.0f} x {shared.bytes_with / max(block_bytes, 1):,.0f} = {shared.bytes_with:,}",
            inputs=(per_block,),
            source=f"{PAPER}, section 4.4",
        ),
        Explanation(
            quantity="copies_on_write",
            formula="requests - 1 where the prompt ends inside a block (the last to write has it to itself), else 0",
            substituted=f"{shared.prefix_tokens:,} mod {result.block_tokens} = "
            f"{shared.prefix_tokens % result.block_tokens}: {shared.copies_on_write:,}",
            inputs=(Input(name="requests", value=shared.requests, origin="one prompt each"),),
            source=f"{PAPER}, section 4.4",
        ),
    )


def _waste(result: PagingResult, row: AllocatorRow, pool: Pool) -> Explanation:
    live = result.mean_live_tokens
    # Every length of the last block is equally likely.
    half = (result.block_tokens - 1) / 2
    closed = {
        "paged": (
            f"(block - 1) / 2 over (mean live tokens + (block - 1) / 2) = {half / (live + half):.4f}",
            result.block_tokens,
        ),
        "contiguous-max": (
            f"1 - mean live tokens / longest = {1 - live / result.longest_tokens:.4f}",
            result.longest_tokens,
        ),
    }
    expected, size = closed.get(row.allocator, ("depends on the spread of the lengths", result.longest_tokens))
    return Explanation(
        quantity=f"waste_fraction of {row.allocator}",
        formula="1 - sum over steps of tokens there / sum over steps of room held",
        substituted=f"1 - {row.live_token_steps:,} / {row.held_token_steps:,} = "
        f"{'no request fits' if row.waste_fraction is None else f'{row.waste_fraction:.4f}'}",
        inputs=(
            pool.given,
            Input(name="mean live tokens", value=f"{live:,.1f}", origin="sum of o (i + o/2) over sum of o, as drawn"),
            Input(name="block or longest, tokens", value=size, origin="see inputs"),
            Input(name="expected", value=expected, origin="closed form, all requests admitted"),
        ),
        source=PAPER,
    )
