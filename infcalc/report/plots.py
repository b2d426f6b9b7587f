"""Pictures, with the ``plot`` extra: PNG or SVG by the file's ending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.errors import FileProblem, UsageError
from infcalc.report.chart import HIGHEST_FLOP_PER_BYTE, LOWEST_FLOP_PER_BYTE, roof_of
from infcalc.report.palette import GRID, INK, colours
from infcalc.report.views.memory import parts
from infcalc.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.answer import Answer
    from infcalc.api.bounds import RooflineResult
    from infcalc.api.drafting import SpeculateResult
    from infcalc.api.filling import MemoryResult
    from infcalc.api.fitting import ConcurrencyResult
    from infcalc.api.sizing import KvResult

_ENDINGS = (".png", ".svg", ".pdf")
_LABEL_ROOM = 1.4
_LABELLED_SHARE = 0.07
"""Of the longest: shorter pieces have no room for their number."""


def plot_kv(answer: Answer[KvResult], path: str) -> None:
    """Draw the size of one sequence's cache against its length, one line per result.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, axes = canvas(path)
    for result, colour in zip(answer.results, colours(len(answer.results)), strict=True):
        contexts = [row.context_tokens for row in result.rows]
        sizes = [row.kv_bytes / GIB for row in result.rows]
        axes.plot(contexts, sizes, marker="o", color=colour, label=f"{result.model}, {result.kv_dtype}")
        axes.annotate(
            f"{sizes[-1]:.3g} GiB", (contexts[-1], sizes[-1]), textcoords="offset points", xytext=(-6, 8), ha="right"
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(sorted({row.context_tokens for result in answer.results for row in result.rows}))
    axes.xaxis.set_major_formatter(lambda tokens, _position: f"{tokens:,.0f}")
    axes.yaxis.set_major_formatter(lambda size, _position: f"{size:g}")
    axes.set_xlabel("context, tokens")
    axes.set_ylabel("KV cache of one sequence, GiB")
    finish(figure, axes, path, "KV cache by context")


def plot_concurrency(answer: Answer[ConcurrencyResult], path: str) -> None:
    """Draw sequences by KV precision as bars, with their band.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, axes = canvas(path)
    groups = [
        (
            f"{result.model} on {result.num_gpus} x {result.gpu}",
            [(row.sequences, row.sequences_low, row.sequences_high, f"{row.sequences:,}") for row in result.rows],
        )
        for result in answer.results
    ]
    ticks = [f"{row.kv_dtype}\n{row.context_tokens:,} tokens" for row in answer.results[0].rows]
    _draw_bars(axes, groups, ticks)
    axes.set_ylabel("sequences that fit")
    finish(figure, axes, path, "Concurrency by KV precision")


def plot_memory(answer: Answer[MemoryResult], path: str) -> None:
    """Draw what fills the governing GPU of each result, one stacked bar each.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, axes = canvas(path)
    names = [f"{one.model} on {one.num_gpus} x {one.gpu}\n{one.kv_dtype}, {one.engine}" for one in answer.results]
    stacks = [parts(result) for result in answer.results]
    kinds = list(dict.fromkeys(name for stack in stacks for _, name, size in stack if size))
    kinds.sort(key=lambda kind: kind == "left alone")
    of_kind = dict(zip((kind for kind in kinds if kind != "left alone"), colours(len(kinds)), strict=False))
    ends = [0.0] * len(stacks)
    longest = max(sum(size for _, _, size in stack) for stack in stacks) / GIB
    for kind in kinds:
        sizes = [sum(size for _, name, size in stack if name == kind) / GIB for stack in stacks]
        drawn = axes.barh(names, sizes, left=ends, color=of_kind.get(kind, GRID), label=kind)
        shown = [f"{size:.3g}" if size > _LABELLED_SHARE * longest else "" for size in sizes]
        axes.bar_label(drawn, labels=shown, label_type="center", color="white" if kind in of_kind else INK)
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    for place, result in enumerate(answer.results):
        total = result.total_bytes / GIB
        axes.plot([total, total], [place - 0.4, place + 0.4], color=INK, linewidth=1.2)
    axes.invert_yaxis()
    axes.set_xlabel("memory of the governing GPU, GiB (line: what CUDA reports)")
    finish(figure, axes, path, "What fills each GPU", legend_columns=4, legend_below=True)


def plot_roofline(answer: Answer[RooflineResult], path: str) -> None:
    """Draw the roof of every asked GPU, in the precision its models compute in, and the points of every model on it.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, axes = canvas(path)
    result = answer.result
    low, high = LOWEST_FLOP_PER_BYTE, HIGHEST_FLOP_PER_BYTE
    names = list(dict.fromkeys(one.gpu for one in result.gpus))
    for name, colour in zip(names, colours(len(names)), strict=True):
        roof = roof_of(result, name)
        if roof is None:
            continue
        edge = roof.crossover_flop_per_byte
        rates = [roof.bandwidth_bytes_per_s * low, roof.peak_flop_per_s, roof.peak_flop_per_s]
        axes.plot([low, edge, high], rates, color=colour, linewidth=2, label=f"{name}, {roof.precision}")
        axes.plot([edge, edge], [rates[0], rates[1]], color=colour, linewidth=0.8, linestyle=":")
        axes.annotate(f"{edge:.0f} FLOP/B", (edge, rates[1]), textcoords="offset points", xytext=(4, 5), fontsize=8)
        points = [point for point in result.points if point.gpu == name and point.attention_io == "flash"]
        for phase, marker in (("decode", "o"), ("prefill", "^")):
            shown = [point for point in points if point.phase == phase]
            places = [point.flop_per_byte for point in shown]
            reached = [point.flop_per_s for point in shown]
            axes.scatter(places, reached, marker=marker, color=colour, edgecolor=INK, linewidth=0.5, zorder=3)
            labelled = 0.0
            for point, place, rate in zip(shown, places, reached, strict=True):
                # Large batches crowd together: a label needs room of its own.
                if phase == "decode" and place > _LABEL_ROOM * labelled:
                    labelled = place
                    axes.annotate(
                        f"b{point.batch}", (place, rate), textcoords="offset points", xytext=(6, -9), fontsize=7
                    )
    axes.scatter([], [], marker="o", color="white", edgecolor=INK, label="decode at batch b")
    axes.scatter([], [], marker="^", color="white", edgecolor=INK, label="prefill")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("work per byte moved, FLOP/B")
    axes.set_ylabel("rate, FLOP/s per GPU")
    models = ", ".join(dict.fromkeys(point.model for point in result.points))
    finish(figure, axes, path, f"Roofline: {models}, {result.context_tokens:,} tokens")


def plot_speculate(answer: Answer[SpeculateResult], path: str) -> None:
    """Draw the speedup of each way of drafting against the batch, each at its best draft length there.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, axes = canvas(path)
    several = len(answer.results) > 1
    lines = [
        (
            f"{method}, {result.gpu}" if several else method,
            [point for point in result.by_batch if point.method == method],
        )
        for result in answer.results
        for method in dict.fromkeys(point.method for point in result.by_batch)
    ]
    for (label, points), colour in zip(lines, colours(len(lines)), strict=True):
        batches = [point.batch for point in points]
        axes.plot(batches, [point.speedup for point in points], marker="o", color=colour, label=label)
    axes.set_xscale("log", base=2)
    sizes = sorted({point.batch for _, points in lines for point in points})
    axes.set_xticks(sizes, labels=[str(size) for size in sizes])
    axes.axhline(1, color=INK, linewidth=0.8, linestyle="--")
    for result in answer.results[:1]:
        fits = max((load.sequences_without for load in result.full_load), default=0)
        if fits:
            axes.axvline(fits, color=INK, linewidth=0.8, linestyle=":")
            axes.annotate(f" {fits} fit", (fits, axes.get_ylim()[1]), va="top", color=INK)
    axes.set_xlabel("sequences in the batch")
    axes.set_ylabel("speedup over plain decoding")
    axes.set_ylim(bottom=0)
    one = answer.results[0]
    finish(figure, axes, path, f"Speculative decoding: {one.model} on {one.num_gpus} x {one.gpu}")


_Bar = tuple[float, float, float, str]
"""Height, the ends of its band, and what is written on it."""


def _draw_bars(axes: Any, groups: Sequence[tuple[str, Sequence[_Bar]]], ticks: list[str]) -> None:  # noqa: ANN401 - optional
    """Draw groups of bars side by side, one colour and label each, a bar per tick."""
    width = 0.8 / len(groups)
    for index, ((label, bars), colour) in enumerate(zip(groups, colours(len(groups)), strict=True)):
        places = [place + index * width for place in range(len(bars))]
        heights = [height for height, _, _, _ in bars]
        drawn = axes.bar(places, heights, width * 0.9, color=colour, label=label)
        below = [max(0.0, height - low) for height, low, _, _ in bars]
        above = [max(0.0, high - height) for height, _, high, _ in bars]
        axes.errorbar(places, heights, yerr=(below, above), fmt="none", ecolor=INK, capsize=3, linewidth=1)
        axes.bar_label(drawn, labels=[text for _, _, _, text in bars], label_type="center", color="white")
    axes.set_xticks([place + width * (len(groups) - 1) / 2 for place in range(len(ticks))])
    axes.set_xticklabels(ticks)


def canvas(path: str) -> tuple[Any, Any]:
    """Return an empty figure and its axes.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.

    """
    if not path.lower().endswith(_ENDINGS):
        raise UsageError(
            f"{path!r} does not end in {', '.join(_ENDINGS)}", place="--output", hint="name it x.png or x.svg"
        )
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise UsageError(
            "matplotlib is not installed",
            place="--format plot",
            hint="pip install 'infcalc[plot]' (in a checkout: pip install '.[plot]')",
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    # A fixed salt and no date: the same answer gives the same SVG, byte for byte.
    mpl.rcParams.update({"svg.hashsalt": "infcalc", "font.size": 10, "axes.edgecolor": INK, "text.color": INK})
    return plt.subplots(figsize=(8, 5), layout="constrained")


def finish(
    figure: Any,  # noqa: ANN401 - matplotlib is optional
    axes: Any,  # noqa: ANN401
    path: str,
    title: str,
    *,
    legend_columns: int = 1,
    legend_below: bool = False,
) -> None:
    """Give a figure its title, legend and grid, and write it.

    Raises:
        FileProblem: the file cannot be written.

    """
    axes.set_title(title, loc="left", fontweight="bold")
    axes.grid(visible=True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    place: dict[str, Any] = {"loc": "best" if legend_columns == 1 else "upper center"}
    if legend_below:
        place |= {"bbox_to_anchor": (0.3, -0.13), "columnspacing": 1.0}
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, ncols=legend_columns, **place)
    metadata = {"Date": None} if path.lower().endswith(".svg") else None
    try:
        figure.savefig(path, dpi=150, metadata=metadata)
    except OSError as error:
        raise FileProblem(
            f"cannot be written: {error.strerror or error}", place=path, hint="check the folder"
        ) from None
    finally:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - an optional extra

        # pyplot keeps every figure until told otherwise.
        plt.close(figure)
