"""Pictures of ``paging`` and ``prefix-cache``: what fills a pool, and hits by the size of a cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import UsageError
from infcalc.report.palette import GRID, INK, colours
from infcalc.report.plots import canvas, finish

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.paging_waste import PagingResult
    from infcalc.api.prefix_hits import PrefixCacheResult

_FREE = GRID
_LABELLED = 4.0
"""Per cent of the pool: shorter pieces have no room for their number."""


def plot_paging(answer: Answer[PagingResult], path: str) -> None:
    """Draw what fills the pool under each allocator, one stacked bar each.

    Raises:
        UsageError: matplotlib is missing, the ending is not one of PNG, SVG, PDF, or there is nothing to draw.
        FileProblem: the file cannot be written.

    """
    if not any(one.allocators for one in answer.results):
        raise nothing_to_draw()
    figure, axes = canvas(path)
    several = len(answer.results) > 1
    bars = [
        (f"{row.allocator}\n{one.model} on {one.num_gpus} x {one.gpu}" if several else row.allocator, row)
        for one in answer.results
        for row in one.allocators
    ]
    names = [name for name, _ in bars]
    ends = [0.0] * len(bars)
    pieces = (
        ("tokens", [row.live_pool_fraction for _, row in bars]),
        ("reserved for later", [row.held_pool_fraction * (row.reserved_fraction or 0.0) for _, row in bars]),
        ("internal fragmentation", [row.held_pool_fraction * (row.internal_fraction or 0.0) for _, row in bars]),
        ("free", [1 - row.held_pool_fraction for _, row in bars]),
    )
    for (label, shares), colour in zip(pieces, (*colours(3), _FREE), strict=True):
        widths = [100 * share for share in shares]
        drawn = axes.barh(range(len(bars)), widths, left=ends, color=colour, label=label)
        texts = [f"{width:.1f}" if width > _LABELLED else "" for width in widths]
        axes.bar_label(drawn, labels=texts, label_type="center", color=INK if colour == _FREE else "white")
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    axes.set_yticks(range(len(bars)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the KV pool, %")
    finish(figure, axes, path, "What fills the KV pool under the same requests", legend_columns=4, legend_below=True)


def nothing_to_draw() -> UsageError:
    """Return what to tell where the models keep nothing per token."""
    return UsageError("nothing to draw: the model keeps nothing per token", place="--format", hint="use table or json")


def plot_prefix_cache(answer: Answer[PrefixCacheResult], path: str) -> None:
    """Draw the hit rate against the size of the cache, by requests and by tokens, with the bounds.

    Raises:
        UsageError: matplotlib is missing, the ending is not one of PNG, SVG, PDF, or there is nothing to draw.
        FileProblem: the file cannot be written.

    """
    # The stream is one for all deployments, and so are its curves.
    result = next((one for one in answer.results if one.curve), None)
    if result is None:
        raise nothing_to_draw()
    figure, axes = canvas(path)
    points = [point for point in result.curve if point.limit == "tokens"]
    by_request, by_token = colours(2)
    for label, colour, rates, bound in (
        (
            "requests",
            by_request,
            [point.found_requests_fraction for point in points],
            result.bound_requests_fraction,
        ),
        ("prompt tokens", by_token, [point.found_tokens_fraction for point in points], result.bound_tokens_fraction),
    ):
        axes.plot(
            [point.size for point in points], [100 * rate for rate in rates], marker="o", color=colour, label=label
        )
        axes.axhline(100 * bound, color=colour, linewidth=0.9, linestyle="--", label=f"bound {100 * bound:.1f} %")
    if result.max_tokens:
        axes.axvline(result.max_tokens, color=INK, linewidth=0.9, linestyle=":", label="size of this cache")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda size, _position: f"{size:,.0f}")
    axes.set_xlabel("size of the cache, tokens")
    axes.set_ylabel("found, %")
    finish(figure, axes, path, f"Prefix hits of {result.index} by the size of the cache")
