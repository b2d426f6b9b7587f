"""The lines of a comparison: what was predicted, what was printed, and what each difference is put down to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.attribution import Part, activation, non_torch, pool_parts
from infcalc.api.derived import peak_without_kv, summed
from infcalc.engines.logs.reading import EngineLog, Figure, Quantity
from infcalc.frozen import frozen
from infcalc.units import format_memory

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.api.expecting import Expected, Span

_CLOSE = 0.01
_ROUNDING = 1.01
"""Printed digits are rounded, some of them twice."""
_CLOSE_WEIGHTS = 0.03
"""Engines pad, and count buffers that live with the weights."""


@frozen
class CompareLine:
    """One quantity: predicted, measured, and what the difference is put down to.

    Values are in the unit that ``quantity`` ends in (``max_concurrency`` and ``kv_blocks`` are counts).
    ``error_fraction`` is (predicted - measured) / measured. ``parts`` add up to measured - predicted.
    """

    quantity: str
    predicted: int | float | None
    predicted_low: int | float | None
    predicted_high: int | float | None
    measured: int | float | None
    error_fraction: float | None
    attributed_to: str
    line: int | None
    """Line of the file that states the measured value."""
    rank: str
    parts: tuple[Part, ...]


_ORDER = (
    Quantity.DEVICE_TOTAL,
    Quantity.FREE_AT_START,
    Quantity.USABLE,
    Quantity.FREE_BEFORE_WEIGHTS,
    Quantity.WEIGHTS,
    Quantity.FREE_AFTER_WEIGHTS,
    Quantity.NON_TORCH,
    Quantity.ACTIVATION,
    Quantity.PEAK,
    Quantity.COMPUTE,
    Quantity.GRAPH_ESTIMATE,
    Quantity.GRAPHS,
    Quantity.FREE_FOR_KV,
    Quantity.STATE,
    Quantity.POOL,
    Quantity.BYTES_PER_TOKEN,
    Quantity.BLOCK_TOKENS,
    Quantity.BLOCKS,
    Quantity.TOKENS,
    Quantity.CONCURRENCY,
)
_ALWAYS = frozenset({Quantity.WEIGHTS, Quantity.NON_TORCH, Quantity.ACTIVATION, Quantity.POOL, Quantity.TOKENS})
"""Shown where the log does not print them as well: what the pool is made of."""
_BY_DESIGN = {
    Quantity.DEVICE_TOTAL: "the driver, the firmware or the catalog's figure",
    Quantity.FREE_AT_START: "",
    Quantity.USABLE: "card total, and the fraction's rounding",
    Quantity.FREE_BEFORE_WEIGHTS: "context, NCCL and other processes before the weights load",
    Quantity.FREE_AFTER_WEIGHTS: "what was free before, and the weights",
    Quantity.NON_TORCH: "device context and communication buffers, modelled",
    Quantity.ACTIVATION: "peak of the profiling run, modelled",
    Quantity.PEAK: "weights and activation of the profiling run, and in some engines buffers",
    Quantity.COMPUTE: "largest graph of a micro-batch: its logits, or its scores without flash attention; modelled",
    Quantity.GRAPH_ESTIMATE: "the engine's own estimate, charged to the pool",
    Quantity.GRAPHS: "taken when graphs were captured, after the pool was set",
    Quantity.FREE_FOR_KV: "weights, activation and buffers together",
    Quantity.STATE: "recurrent states: those of all running sequences",
    Quantity.BYTES_PER_TOKEN: "model, KV precision or TP differ",
    Quantity.BLOCK_TOKENS: "block size of another backend, or grown to the page of a recurrent layer",
}


def _measured(log: EngineLog) -> dict[Quantity, Figure]:
    """Return the measured figures, derived ones included."""
    found = {quantity: figure for quantity in Quantity if (figure := log.figure(quantity)) is not None}
    alone = {
        Quantity.NON_TORCH: non_torch(log),
        Quantity.ACTIVATION: activation(log),
        Quantity.PEAK: peak_without_kv(log),
    }
    found |= {quantity: figure for quantity, figure in alone.items() if figure is not None}
    if log.engine == "llama.cpp":
        for quantity in (Quantity.WEIGHTS, Quantity.POOL, Quantity.STATE):
            figures = log.of(quantity)
            if figures:
                found[quantity] = summed(quantity, *figures)
    return found


def residual_lines(log: EngineLog, deployment: Deployment, expectation: Expected) -> tuple[CompareLine, ...]:
    """Return every quantity that the log prints or the pool is made of, in the order of the budget."""
    measured = _measured(log)
    whole = replace(
        log, figures=(*(figure for figure in log.figures if figure.quantity not in measured), *measured.values())
    )
    parts = pool_parts(whole, expectation, base=deployment.rules.fraction_base, fraction=deployment.fraction)
    lines = []
    for quantity in _ORDER:
        figure, span = measured.get(quantity), expectation.span(quantity)
        if figure is None and (span is None or quantity not in _ALWAYS):
            continue
        causes: tuple[Part, ...] = ()
        if figure is not None and span is not None:
            causes = parts if quantity is Quantity.POOL else _causes(quantity, figure, span, measured, expectation)
        lines.append(_line(quantity, figure, span, causes))
    return tuple(lines)


def _line(quantity: Quantity, figure: Figure | None, span: Span | None, causes: tuple[Part, ...]) -> CompareLine:
    error = None
    # A pool of nothing, or less, has no share by which a prediction could be off.
    nothing = figure is None or not figure.value or (quantity is Quantity.POOL and figure.value < 0)
    if figure is not None and span is not None and not nothing:
        error = (span.value - figure.value) / figure.value
    return CompareLine(
        quantity=quantity.value,
        predicted=None if span is None else _whole(quantity, span.value),
        predicted_low=None if span is None else _whole(quantity, span.low),
        predicted_high=None if span is None else _whole(quantity, span.high),
        measured=None if figure is None else _whole(quantity, figure.value),
        error_fraction=error,
        attributed_to=_attributed(quantity, figure, span, causes),
        line=None if figure is None else figure.line,
        rank="" if figure is None else figure.rank,
        parts=causes,
    )


def _whole(quantity: Quantity, value: float) -> int | float:
    return value if quantity in {Quantity.CONCURRENCY, Quantity.BYTES_PER_TOKEN} else round(value)


def _causes(
    quantity: Quantity, figure: Figure, span: Span, measured: dict[Quantity, Figure], expectation: Expected
) -> tuple[Part, ...]:
    """Return the parts of a residual: counts follow the pool, memory lines have one cause each."""
    difference = figure.value - span.value
    if abs(difference) <= figure.half_step * _ROUNDING:
        return ()
    match quantity:
        case Quantity.BLOCKS | Quantity.TOKENS | Quantity.CONCURRENCY:
            return _counted_causes(figure, span, measured, expectation)
        case Quantity.WEIGHTS if abs(difference) <= _CLOSE_WEIGHTS * figure.value:
            return (Part(part="padding, buffers and rounding", effect=difference),)
        case Quantity.WEIGHTS:
            name = "another precision than taken, or parts that are not modelled (towers, adapters, draft layers)"
            return (Part(part=name, effect=difference),)
        case _:
            return (Part(part=_BY_DESIGN.get(quantity) or "not modelled", effect=difference),)


def _counted_causes(
    figure: Figure, span: Span, measured: dict[Quantity, Figure], expectation: Expected
) -> tuple[Part, ...]:
    difference = figure.value - span.value
    if not expectation.governs:
        name = "the pool of the stage that holds the fewest tokens (not printed)"
        return (Part(part=name, effect=difference),)
    pool, predicted = measured.get(Quantity.POOL), expectation.span(Quantity.POOL)
    if pool is None or predicted is None or not predicted.value:
        return (Part(part="KV pool (not printed)", effect=difference),)
    from_pool = (pool.value - predicted.value) * span.value / predicted.value
    rest = difference - from_pool
    explained = from_pool + span.value
    tolerance = max(_CLOSE * figure.value, pool.half_step * span.value / predicted.value)
    if abs(rest) <= tolerance:
        name = "whole blocks and rounding"
    elif not expectation.plain:
        name = "how this version counts a mixed cache"
    else:
        factor = explained / figure.value if figure.value else 0.0
        name = f"the log stores {factor:.2f}x the bytes per token: KV precision, model or another rank's pool"
    return tuple(part for part in (Part(part="KV pool", effect=from_pool), Part(part=name, effect=rest)) if part.effect)


def _attributed(quantity: Quantity, figure: Figure | None, span: Span | None, causes: tuple[Part, ...]) -> str:
    if figure is None:
        return "not printed"
    if span is None:
        return _BY_DESIGN.get(quantity) or "not predicted"
    if not causes:
        return "nothing: the log has what was predicted"
    return ", ".join(f"{part.part} {signed(quantity, part.effect)}" for part in causes)


def signed(quantity: str, value: float) -> str:
    """Return a difference in the unit of a quantity, with its sign."""
    sign = "-" if value < 0 else "+"
    if quantity.endswith("_bytes"):
        return f"{sign}{format_memory(round(abs(value)))}"
    return f"{sign}{abs(value):,.2f}" if quantity == Quantity.CONCURRENCY else f"{sign}{abs(value):,.0f}"
