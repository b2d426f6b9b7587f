"""What all pictures share, with the ``plot`` extra: an empty one, its styles, and its way into a file.

Title and legend have strips of their own above and below: nothing that is written covers what is drawn, and nothing is
cut off, however long the names are.
"""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from infcalc.errors import FileProblem, UsageError
from infcalc.report.palette import GRID, INK, PAPER, Style

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENDINGS = (".png", ".svg", ".pdf")
WIDTH_INCHES = 8.0
_EDGE_INCHES = 0.1
_LINE = 1.3
"""Height of a line of text, in heights of its font."""
_POINTS_PER_INCH = 72
_TITLE_POINTS, _SUBTITLE_POINTS, _LABEL_POINTS = 12, 9, 8
_LONGEST_LABEL = 90
"""Characters of a line in the legend."""
_LONGEST_NAME = 30
_FRAME_INCHES = 0.7
"""Of a picture of bars: its axis and the label of that."""
_MOST_COLUMNS = 4
_MANY = 8
_MARK_POINTS = 4
_BESIDE = tuple((right, up, "left" if right > 0 else "right") for up in (-10, 4, -20, 14) for right in (5, -5))
"""Where a label may stand beside its point, the best place first: right, up, and which end is at the point."""


def canvas(path: str, *, height_inches: float = 4.0, panels: int = 1) -> tuple[Any, list[Any]]:
    """Return an empty figure and its panels, one above the other, which share what goes to the right.

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

    ink: Any = dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK)
    # A fixed salt and no date: the same answer gives the same SVG, byte for byte.
    mpl.rcParams.update({"svg.hashsalt": "infcalc", "font.size": 10, "hatch.linewidth": 0.8, **ink})
    figure, axes = plt.subplots(
        panels, 1, sharex=True, squeeze=False, figsize=(WIDTH_INCHES, height_inches), layout="constrained"
    )
    return figure, list(axes[:, 0])


def line(style: Style) -> dict[str, Any]:
    """Return what a line is drawn with."""
    dash: Any = (0, tuple(float(length) for length in style.dash.split())) if style.dash else "solid"
    return {"color": style.colour, "linestyle": dash}


def area(style: Style) -> dict[str, Any]:
    """Return what an area is drawn with: a thin edge parts it from its neighbours."""
    return {"facecolor": style.colour, "hatch": style.hatch, "edgecolor": PAPER, "linewidth": 0.6}


def name_bars(axes: Any, names: Sequence[str], inches: float) -> None:  # noqa: ANN401 - matplotlib is optional
    """Write the names of bars that lie one above the other, the first on top; each part of a name on its line.

    The picture is made so high that each bar has ``inches``, and more where its name takes more.
    """
    texts = ["\n".join(textwrap.fill(part, _LONGEST_NAME) for part in name.split(", ")) for name in names]
    lines = max(text.count("\n") + 1 for text in texts)
    least = (lines + 0.5) * _SUBTITLE_POINTS * _LINE / _POINTS_PER_INCH
    axes.figure.set_figheight(_FRAME_INCHES + max(inches, least) * len(names))
    axes.set_yticks(range(len(names)), texts, fontsize=_SUBTITLE_POINTS)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)


def plain_ticks(axis: Any) -> None:  # noqa: ANN401 - matplotlib is optional
    """Write plain numbers at a logarithmic axis: of every leading digit where it spans little, else of a few."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator  # noqa: PLC0415 - an optional extra

    low, high = axis.get_view_interval()
    digits = next(digits for ratio, digits in _DIGITS if high <= ratio * low)

    def shown(value: float, _position: object = None) -> str:
        if digits and f"{value:.0e}"[0] not in digits:
            return ""
        return f"{value:,.0f}" if value >= _GROUPED else f"{value:.6g}"

    if not digits:
        axis.set_major_locator(MaxNLocator(nbins=7))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(shown))
    axis.set_minor_formatter(FuncFormatter(shown))
    axis.set_tick_params(which="both", labelsize=9)


_GROUPED = 1000
_DIGITS = ((7, ""), (20, "12357"), (1000, "125"), (math.inf, "1"))
"""Up to which ratio of the ends of an axis which leading digits are written; none: even steps, as on a linear axis."""

Labels = tuple[Any, "Sequence[tuple[str, float, float]]"]
"""A panel and what is written beside its points: text and place."""


def finish(figure: Any, path: str, title: str, subtitle: str, *, labels: Sequence[Labels] = ()) -> None:  # noqa: ANN401
    """Give a figure its grid, title and legend, write ``labels`` where they have room, and save it.

    Raises:
        FileProblem: the file cannot be written.

    """
    for panel in figure.axes:
        panel.grid(visible=True, color=GRID, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    (above, hung), below = _head(figure, title, subtitle), _legend(figure)
    height = figure.get_figheight() + above + below
    figure.set_figheight(height)
    edge = _EDGE_INCHES / WIDTH_INCHES
    for written, inches in hung:
        written.set_position((edge, 1 - inches / height))
    figure.get_layout_engine().set(rect=(edge, below / height, 1 - 2 * edge, 1 - (above + below) / height))
    figure.draw_without_rendering()
    for panel, wanted in labels:
        _write_beside(panel, wanted)
    save(figure, path)


def save(figure: Any, path: str) -> None:  # noqa: ANN401 - matplotlib is optional
    """Write a figure that is laid out, and forget it.

    Raises:
        FileProblem: the file cannot be written.

    """
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


def _head(figure: Any, title: str, subtitle: str) -> tuple[float, list[tuple[Any, float]]]:  # noqa: ANN401
    """Write title and subtitle, wrapped to the width; return the inches that they take, and where each is to hang."""
    taken = _EDGE_INCHES
    hung: list[tuple[Any, float]] = []
    for text, points, weight in ((title, _TITLE_POINTS, "bold"), (subtitle, _SUBTITLE_POINTS, "normal")):
        if not text:
            continue
        written = figure.text(0, 0, text, fontsize=points, fontweight=weight, ha="left", va="top")
        written.set_in_layout(False)
        characters = len(text)
        while characters > 1 and _width_inches(figure, written) > WIDTH_INCHES - 2 * _EDGE_INCHES:
            characters = min(characters - 1, int(characters * 0.97))
            written.set_text(textwrap.fill(text, characters))
        lines = written.get_text().count("\n") + 1
        hung.append((written, taken))
        taken += lines * points * _LINE / _POINTS_PER_INCH
    return taken + _EDGE_INCHES, hung


def _legend(figure: Any) -> float:  # noqa: ANN401
    """Put the legend of all panels below them, in as many columns as fit, and return the inches that it takes."""
    found: dict[str, Any] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(textwrap.fill(label, _LONGEST_LABEL), handle)
    if not found:
        return _EDGE_INCHES
    edge = _EDGE_INCHES / WIDTH_INCHES
    for columns in range(min(_MOST_COLUMNS, len(found)), 0, -1):
        legend = figure.legend(
            found.values(),
            found.keys(),
            loc="lower left",
            bbox_to_anchor=(edge, 0),
            ncols=columns,
            frameon=False,
            fontsize=_SUBTITLE_POINTS if len(found) <= _MANY else _LABEL_POINTS,
            borderaxespad=0.2,
            columnspacing=1.5,
            handlelength=3,
        )
        legend.set_in_layout(False)
        if columns == 1 or _width_inches(figure, legend) <= WIDTH_INCHES - 2 * _EDGE_INCHES:
            break
        legend.remove()
    box = legend.get_window_extent(figure.canvas.get_renderer())
    return float(box.height / figure.dpi) + _EDGE_INCHES


def _width_inches(figure: Any, artist: Any) -> float:  # noqa: ANN401
    return float(artist.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi)


def _write_beside(panel: Any, wanted: Sequence[tuple[str, float, float]]) -> None:  # noqa: ANN401
    """Write each text beside its point, in the first place where it meets no other text and no point, or nowhere.

    Those that come first are written first.
    """
    from matplotlib.patheffects import withStroke  # noqa: PLC0415 - an optional extra
    from matplotlib.transforms import Bbox  # noqa: PLC0415

    frame = panel.get_window_extent()
    mark = _MARK_POINTS * panel.figure.dpi / _POINTS_PER_INCH
    spots = [panel.transData.transform((x, y)) for _, x, y in wanted]
    taken = [Bbox([spot - mark / 2, spot + mark / 2]) for spot in spots] + [
        text.get_window_extent() for text in panel.texts
    ]
    for text, x, y in wanted:
        for right, up, align in _BESIDE:
            written = panel.annotate(
                text, (x, y), textcoords="offset points", xytext=(right, up), ha=align, fontsize=_LABEL_POINTS
            )
            written.set_in_layout(False)
            # Over a line it is still read.
            written.set_path_effects([withStroke(linewidth=2, foreground=PAPER)])
            box = written.get_window_extent()
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            written.remove()
