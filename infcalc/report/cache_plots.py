"""Pictures of ``paging`` and ``prefix-cache``: what fills a pool, and hits by the size of a cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import NothingToDraw
from infcalc.report.canvas import area, canvas, finish, line, name_bars, plain_ticks
from infcalc.report.captions import joined, said, told_apart
from infcalc.report.palette import GRID, INK, Style, ink_on, styles

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.paging_waste import PagingResult
    from infcalc.api.prefix_hits import PrefixCacheResult

_LABELLED = 4.0
"""Per cent of the pool: shorter pieces have no room for their number."""
_BAR_INCHES = 0.55


def plot_paging(answer: Answer[PagingResult], path: str) -> None:
    """Draw what fills the pool under each allocator, one stacked bar each.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        NothingToDraw: no model keeps anything per token.
        FileProblem: the file cannot be written.

    """
    if not any(one.allocators for one in answer.results):
        raise NothingToDraw(_EMPTY)
    shared, names = told_apart(answer.results)
    bars = [
        (joined(row.allocator, name), row)
        for one, name in zip(answer.results, names, strict=True)
        for row in one.allocators
    ]
    figure, (axes,) = canvas(path)
    ends = [0.0] * len(bars)
    pieces = (
        ("tokens", [row.live_pool_fraction for _, row in bars]),
        ("reserved for later", [row.held_pool_fraction * (row.reserved_fraction or 0.0) for _, row in bars]),
        ("internal fragmentation", [row.held_pool_fraction * (row.internal_fraction or 0.0) for _, row in bars]),
        ("free", [1 - row.held_pool_fraction for _, row in bars]),
    )
    for (label, shares), style in zip(pieces, (*styles(3), Style(colour=GRID, dash="", hatch="")), strict=True):
        widths = [100 * share for share in shares]
        drawn = axes.barh(range(len(bars)), widths, left=ends, label=label, **area(style))
        texts = [f"{width:.1f}" if width > _LABELLED else "" for width in widths]
        axes.bar_label(drawn, labels=texts, label_type="center", color=ink_on(style.colour), fontsize=9)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    name_bars(axes, [name for name, _ in bars], _BAR_INCHES)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the KV pool, %")
    load = said(answer, "input_tokens", "output_tokens", "requests", "load_fraction")
    finish(figure, path, "What fills the KV pool under the same requests", joined(shared, load))


_EMPTY = "no model keeps anything per token"


def plot_prefix_cache(answer: Answer[PrefixCacheResult], path: str) -> None:
    """Draw the hit rate against the size of the cache, by requests and by tokens, with the bounds.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        NothingToDraw: no model keeps anything per token.
        FileProblem: the file cannot be written.

    """
    result = next((one for one in answer.results if one.curve), None)
    if result is None:
        raise NothingToDraw(_EMPTY)
    figure, (axes,) = canvas(path)
    points = [point for point in result.curve if point.limit == "tokens"]
    rows = (
        ("requests", [point.found_requests_fraction for point in points], result.bound_requests_fraction),
        ("prompt tokens", [point.found_tokens_fraction for point in points], result.bound_tokens_fraction),
    )
    for (label, rates, bound), style in zip(rows, styles(2), strict=True):
        sizes = [point.size for point in points]
        axes.plot(sizes, [100 * rate for rate in rates], marker="o", label=f"{label} found", **line(style))
        told = f"{label}: no cache finds more than {100 * bound:.1f} %"
        axes.axhline(100 * bound, color=style.colour, linewidth=1, linestyle="--", label=told)
    if result.max_tokens:
        told = f"size of this cache, {result.max_tokens:,} tokens"
        axes.axvline(result.max_tokens, color=INK, linewidth=1, linestyle=":", label=told)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("size of the cache, tokens")
    axes.set_ylabel("share found in the cache, %")
    # The stream is one for all deployments, and so are its curves; the sizes of caches are not.
    shared, names = told_apart(answer.results)
    name = names[answer.results.index(result)]
    load = said(answer, "requests", "prefixes", "sharing_fraction", "prefix_tokens", "input_tokens", "policy")
    finish(figure, path, f"Prefix hits of {result.index} by the size of the cache", joined(shared, name, load))
