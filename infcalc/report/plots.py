"""Pictures of what memory and the roofline say, with the ``plot`` extra: PNG, SVG or PDF by the file's ending."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.errors import NothingToDraw
from infcalc.report.canvas import area, canvas, finish, line, name_bars, plain_ticks
from infcalc.report.captions import joined, said, told_apart
from infcalc.report.chart import HIGHEST_FLOP_PER_BYTE, LOWEST_FLOP_PER_BYTE, roof_of
from infcalc.report.palette import DASHES, GRID, INK, PAPER, Style, ink_on, styles
from infcalc.report.views.memory import parts
from infcalc.units import GIB, format_si

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.answer import Answer
    from infcalc.api.bounds import RooflinePoint, RooflineResult
    from infcalc.api.drafting import SpeculateResult
    from infcalc.api.filling import MemoryResult
    from infcalc.api.fitting import ConcurrencyResult, ConcurrencyRow
    from infcalc.api.sizing import KvResult
    from infcalc.roofline.crossover import Crossover

_LABELLED_SHARE = 0.07
"""Of the longest: shorter pieces have no room for their number."""
_TICK_SHARE = 0.09
"""Of an axis: what a number at it needs."""
_BAR_INCHES = 0.62
_SHAPES = "osDv^PX*"
_FEW = 2
_HEADROOM = 1.1
_TERA = 1e12


def plot_kv(answer: Answer[KvResult], path: str) -> None:
    """Draw the size of one sequence's cache against its length, one line per result.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        NothingToDraw: no model keeps anything.
        FileProblem: the file cannot be written.

    """
    if not any(row.kv_bytes for result in answer.results for row in result.rows):
        raise NothingToDraw("no model keeps a KV cache")
    figure, (axes,) = canvas(path)
    shared, names = told_apart(answer.results)
    labels = []
    for result, name, style in zip(answer.results, names, styles(len(names)), strict=True):
        contexts = [row.context_tokens for row in result.rows]
        sizes = [row.kv_bytes / GIB for row in result.rows]
        axes.plot(contexts, sizes, marker="o", label=name, **line(style))
        labels += [(f"{size:.3g} GiB", context, size) for context, size in zip(contexts, sizes, strict=True)][::-1]
    axes.set_xscale("log", base=2)
    if all(row.kv_bytes for result in answer.results for row in result.rows):
        axes.set_yscale("log", base=2)
    axes.margins(x=0.12, y=0.12)
    _ticks(axes, sorted({row.context_tokens for result in answer.results for row in result.rows}))
    axes.yaxis.set_major_formatter(lambda size, _position: f"{size:g}")
    axes.set_xlabel("context, tokens")
    axes.set_ylabel("KV cache of one sequence, GiB")
    finish(figure, path, "KV cache by context", shared, labels=[(axes, labels)])


def plot_concurrency(answer: Answer[ConcurrencyResult], path: str) -> None:
    """Draw sequences by KV precision as bars, with their band.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, (axes,) = canvas(path)
    shared, names = told_apart(answer.results)
    lengths = list(dict.fromkeys(row.context_tokens for result in answer.results for row in result.rows))
    kinds = list(dict.fromkeys((row.kv_dtype, row.context_tokens) for one in answer.results for row in one.rows))
    width = 0.8 / len(names)
    for index, (result, name, style) in enumerate(zip(answer.results, names, styles(len(names)), strict=True)):
        rows = {(row.kv_dtype, row.context_tokens): row for row in result.rows}
        bars = {place + index * width: rows[kind] for place, kind in enumerate(kinds) if kind in rows}
        _draw_bars(axes, bars, 0.9 * width, style, name)
    axes.set_xticks(
        [place + width * (len(names) - 1) / 2 for place in range(len(kinds))],
        [f"{kind}\n{tokens:,} tokens" if len(lengths) > 1 else kind for kind, tokens in kinds],
    )
    most = max(row.sequences_high for result in answer.results for row in result.rows)
    axes.set_ylim(0, _HEADROOM * max(1, most))
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter(lambda number, _position: f"{number:,.0f}")
    axes.set_xlabel("precision of the KV cache")
    axes.set_ylabel("sequences that fit")
    length = f"sequences of {lengths[0]:,} tokens" if len(lengths) == 1 else ""
    finish(figure, path, "Sequences that fit by KV precision", joined(shared, length))


def _draw_bars(axes: Any, bars: dict[float, ConcurrencyRow], width: float, style: Style, name: str) -> None:  # noqa: ANN401
    rows = list(bars.values())
    heights = [row.sequences for row in rows]
    axes.bar(list(bars), heights, width, label=name, **area(style))
    below = [row.sequences - row.sequences_low for row in rows]
    above = [row.sequences_high - row.sequences for row in rows]
    axes.errorbar(list(bars), heights, yerr=(below, above), fmt="none", ecolor=INK, capsize=3, linewidth=1)
    for place, row in bars.items():
        spot = (place, row.sequences_high)
        axes.annotate(f"{row.sequences:,}", spot, textcoords="offset points", xytext=(0, 4), ha="center", fontsize=9)


def plot_memory(answer: Answer[MemoryResult], path: str) -> None:
    """Draw what fills the governing GPU of each result, one stacked bar each.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    stacks = [parts(result) for result in answer.results]
    figure, (axes,) = canvas(path)
    shared, names = told_apart(answer.results)
    places = range(len(stacks))
    kinds = [
        kind for kind in dict.fromkeys(name for stack in stacks for _, name, size in stack if size) if kind != _LEFT
    ]
    ends = [0.0] * len(stacks)
    longest = max(sum(size for _, _, size in stack) for stack in stacks) / GIB
    for kind, style in zip([*kinds, _LEFT], [*styles(len(kinds)), Style(colour=GRID, dash="", hatch="")], strict=True):
        sizes = [sum(size for _, name, size in stack if name == kind) / GIB for stack in stacks]
        label = f"{kind} {sizes[0]:.3g} GiB" if len(stacks) == 1 else kind
        drawn = axes.barh(places, sizes, left=ends, label=label, height=0.7, **area(style))
        shown = [f"{size:.3g}" if size > _LABELLED_SHARE * longest else "" for size in sizes]
        axes.bar_label(drawn, labels=shown, label_type="center", color=ink_on(style.colour), fontsize=9)
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    for place, result in zip(places, answer.results, strict=True):
        total = result.total_bytes / GIB
        axes.plot([total, total], [place - 0.45, place + 0.45], color=INK, linewidth=1.6, label="all that CUDA reports")
    name_bars(axes, names, _BAR_INCHES)
    axes.set_xlabel("memory of the governing GPU, GiB")
    finish(figure, path, "What fills each GPU", shared)


_LEFT = "left alone"
"""The part of :func:`parts` that the engine does not touch."""


def plot_roofline(answer: Answer[RooflineResult], path: str) -> None:
    """Draw the roof of every asked GPU, in the precision its models compute in, and the points of every model on it.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, (axes,) = canvas(path, height_inches=4.5)
    result = answer.result
    drawn = [point for point in result.points if point.attention_io == "flash"]
    roofs = [roof for name in dict.fromkeys(one.gpu for one in result.gpus) if (roof := roof_of(result, name))]
    models = list(dict.fromkeys(point.model for point in drawn))
    labels = []
    for roof, style in zip(roofs, styles(len(roofs)), strict=True):
        _draw_roof(axes, roof, style)
        for index, model in enumerate(models):
            mine = [point for point in drawn if (point.gpu, point.model) == (roof.gpu, model)]
            batches = _draw_points(axes, mine, _SHAPES[index % len(_SHAPES)], style)
            # The ends first: where batches crowd together, those between them are left out; of many series all are.
            labels += (
                batches[:1] + batches[:0:-1] if len(roofs) * len(models) <= _FEW else batches[:1] + batches[1:][-1:]
            )
    for index, model in enumerate(models):
        shape = _SHAPES[index % len(_SHAPES)]
        for phase, colour in (("decode at batch b", INK), ("prefill", PAPER)):
            name = f"{model}: {phase}" if len(models) > 1 else phase
            axes.plot([], [], shape, color=colour, markeredgecolor=INK, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis)
    axes.set_xlabel("work per byte moved, FLOP/B")
    axes.set_ylabel("rate of one GPU, TFLOP/s")
    where = list(dict.fromkeys((point.num_gpus, point.gpu) for point in drawn))
    on = f"{where[0][0]} x {where[0][1]}" if len(where) == 1 else ""
    subtitle = joined(*models, on, f"context {result.context_tokens:,} tokens")
    finish(figure, path, "Roofline: what bounds each phase", subtitle, labels=[(axes, labels)])


def _draw_roof(axes: Any, roof: Crossover, style: Style) -> None:  # noqa: ANN401 - matplotlib is optional
    peak, edge = roof.peak_flop_per_s / _TERA, roof.crossover_flop_per_byte
    least = roof.bandwidth_bytes_per_s * LOWEST_FLOP_PER_BYTE / _TERA
    told = joined(
        f"{roof.gpu} in {roof.precision}: {format_si(roof.peak_flop_per_s, 'FLOP/s')}",
        format_si(roof.bandwidth_bytes_per_s, "B/s"),
        f"crossover {edge:.0f} FLOP/B",
    )
    ends = [LOWEST_FLOP_PER_BYTE, edge, HIGHEST_FLOP_PER_BYTE]
    axes.plot(ends, [least, peak, peak], linewidth=2, label=told, **line(style))
    axes.plot([edge, edge], [least, peak], color=style.colour, linewidth=0.8, linestyle=":")


def _draw_points(
    axes: Any,  # noqa: ANN401 - matplotlib is optional
    points: Sequence[RooflinePoint],
    shape: str,
    style: Style,
) -> list[tuple[str, float, float]]:
    """Draw where the points stand, those of decode full; return the batches of these, to be written beside them."""
    labels = []
    for phase, colour in (("decode", style.colour), ("prefill", PAPER)):
        shown = [point for point in points if point.phase == phase]
        places = [(point.flop_per_byte, point.flop_per_s / _TERA) for point in shown]
        if shown:
            axes.scatter(*zip(*places, strict=True), marker=shape, color=colour, edgecolor=INK, linewidth=0.7, zorder=3)
        if phase == "decode":
            labels += [(f"b{point.batch}", *place) for point, place in zip(shown, places, strict=True)]
    return labels


def plot_speculate(answer: Answer[SpeculateResult], path: str) -> None:
    """Draw the speedup of each way of drafting against the batch, each at its best draft length there.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        NothingToDraw: nothing is priced at any batch.
        FileProblem: the file cannot be written.

    """
    if not any(result.by_batch for result in answer.results):
        raise NothingToDraw("no way of drafting is priced")
    figure, (axes,) = canvas(path)
    shared, names = told_apart(answer.results)
    methods = list(dict.fromkeys(point.method for result in answer.results for point in result.by_batch))
    # A colour is a way of drafting, a dash and a shape a deployment.
    for place, (result, name) in enumerate(zip(answer.results, names, strict=True)):
        dash, shape = DASHES[place % len(DASHES)], _SHAPES[place % len(_SHAPES)]
        for method, style in zip(methods, styles(len(methods)), strict=True):
            points = [(point.batch, point.speedup) for point in result.by_batch if point.method == method]
            if points:
                looks = line(replace(style, dash=dash))
                axes.plot(*zip(*points, strict=True), marker=shape, markersize=5, label=joined(method, name), **looks)
        fits = max((load.sequences_without for load in result.full_load), default=0)
        if fits:
            told = joined(f"memory admits {fits:,}", name)
            # Upright lines are dotted where the level one of plain decoding is solid.
            axes.axvline(fits, linewidth=1.2, label=told, **line(Style(colour=INK, dash=dash or DASHES[2], hatch="")))
    axes.set_xscale("log", base=2)
    axes.axhline(1, color=INK, linewidth=1.2, label="plain decoding")
    _ticks(axes, sorted({point.batch for result in answer.results for point in result.by_batch}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch, sequences in decode")
    axes.set_ylabel("speedup over plain decoding")
    finish(figure, path, "Speculative decoding by batch", joined(shared, said(answer, "context", "acceptance")))


def _ticks(axes: Any, values: Sequence[float]) -> None:  # noqa: ANN401 - matplotlib is optional
    """Write these numbers at a logarithmic axis, as far as each has room."""
    low, high = axes.xaxis.get_transform().transform(axes.get_xlim())
    shown: list[float] = []
    for value in values:
        place = axes.xaxis.get_transform().transform(value)
        if not shown or place - axes.xaxis.get_transform().transform(shown[-1]) >= _TICK_SHARE * (high - low):
            shown.append(value)
    axes.set_xticks(shown, [f"{value:,}" for value in shown])
    axes.set_xticks([], minor=True)
