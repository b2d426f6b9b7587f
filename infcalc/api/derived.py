"""Figures of a start-up log that follow from those it prints: what a refusal states, and sums of printed parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.engines.logs.reading import EngineLog, FailureKind, Figure, Quantity
from infcalc.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

_HALF_STEP_BYTES = 0.005 * GIB
"""Refusals print hundredths of a GiB."""


def with_derived(log: EngineLog) -> EngineLog:
    """Return a log with the figures that its refusals and its printed parts amount to, where it prints none itself."""
    known = {(figure.quantity, figure.rank) for figure in log.figures}
    added: list[Figure] = []
    for figure in (*_of_parts(log), *_of_refusals(log)):
        if (figure.quantity, figure.rank) not in known:
            known.add((figure.quantity, figure.rank))
            added.append(figure)
    return replace(log, figures=(*log.figures, *added)) if added else log


def _of_refusals(log: EngineLog) -> Iterator[Figure]:
    """Yield what refusals state: the pool that was too small, the card's memory, the blocks.

    Where no memory was left the pool is nothing, or less.
    """
    for failure in reversed(log.failures):
        line, kind = failure.line, failure.kind
        if not log.of(Quantity.POOL):
            if kind is FailureKind.ONE_REQUEST and failure.available_bytes is not None:
                yield _figure(Quantity.POOL, failure.available_bytes, line, half_step=_HALF_STEP_BYTES)
            elif kind is FailureKind.NO_ROOM:
                yield _figure(Quantity.POOL, 0.0, line)
        if failure.total_bytes and not log.of(Quantity.DEVICE_TOTAL):
            yield _figure(Quantity.DEVICE_TOTAL, failure.total_bytes, line, half_step=_HALF_STEP_BYTES)
        if failure.num_blocks is not None and not log.of(Quantity.BLOCKS):
            yield _figure(Quantity.BLOCKS, failure.num_blocks, line)


def _of_parts(log: EngineLog) -> Iterator[Figure]:
    for rank in dict.fromkeys(figure.rank for figure in log.figures):
        held = {figure.quantity: figure for figure in log.figures if figure.rank == rank}
        yield from _pool_of(log, held)
        yield from _of_peak(log, held)


def _pool_of(log: EngineLog, held: dict[Quantity, Figure]) -> Iterator[Figure]:
    """Yield SGLang's pool of a rank: keys and values, and the states of recurrent layers, which share one budget.

    Where windowed layers have a pool of their own, keys and values are printed once for each, and only their sum tells.
    """
    parts = [held[name] for name in (Quantity.KEYS, Quantity.VALUES) if name in held]
    if len(parts) < 2 or log.setting("window_pool"):  # noqa: PLR2004 - keys and values
        return
    if Quantity.STATE in held:
        parts.append(held[Quantity.STATE])
    yield summed(Quantity.POOL, *parts)


def _of_peak(log: EngineLog, held: dict[Quantity, Figure]) -> Iterator[Figure]:
    """Yield what the peak of a profiling run tells.

    TensorRT-LLM takes its share of ``total - peak + temporary KV``; in vLLM's first engine core the peak is that of the
    framework, weights and activation.
    """
    peak = held.get(Quantity.PEAK)
    if peak is None:
        return
    if log.engine == "tensorrt-llm":
        total, temporary = held.get(Quantity.DEVICE_TOTAL), held.get(Quantity.TEMPORARY_KV)
        if total is not None and temporary is not None:
            left = total.value - peak.value + temporary.value
            half_step = total.half_step + peak.half_step + temporary.half_step
            yield replace(peak, quantity=Quantity.FREE_FOR_KV, value=left, half_step=half_step)
    elif Quantity.WEIGHTS in held:
        weights = held[Quantity.WEIGHTS]
        half_step = peak.half_step + weights.half_step
        yield replace(peak, quantity=Quantity.ACTIVATION, value=peak.value - weights.value, half_step=half_step)


def peak_without_kv(log: EngineLog) -> Figure | None:
    """Return the printed peak of the profiling run less the KV that this run alone held."""
    peak, temporary = log.figure(Quantity.PEAK), log.figure(Quantity.TEMPORARY_KV)
    if peak is None or temporary is None:
        return peak
    half_step = peak.half_step + temporary.half_step
    return replace(peak, value=peak.value - temporary.value, half_step=half_step)


def summed(quantity: Quantity, *figures: Figure) -> Figure:
    """Return the sum of some figures: of their rank, or of all devices where they name several."""
    return Figure(
        quantity=quantity,
        value=sum(figure.value for figure in figures),
        half_step=sum(figure.half_step for figure in figures),
        line=figures[0].line,
        rank=figures[0].rank if len({figure.rank for figure in figures}) == 1 else "all devices",
    )


def _figure(quantity: Quantity, value: float, line: int, *, half_step: float = 0.0) -> Figure:
    return Figure(quantity=quantity, value=value, half_step=half_step, line=line, rank="")
