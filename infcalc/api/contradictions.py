"""What cannot be true in a start-up log: an engine's own figures can be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.attribution import activation, charged_graphs, non_torch
from infcalc.api.staged import stage_of
from infcalc.engines.logs.reading import Quantity
from infcalc.units import GIB, format_memory

if TYPE_CHECKING:
    from infcalc.api.expecting import Expected
    from infcalc.engines.logs.reading import EngineLog
    from infcalc.spec.parallelism import Parallelism

_SLACK_BYTES = 0.05 * GIB
"""The budget of vLLM's logs closes within this where all parts are printed."""
_SPREAD_BYTES = 0.1 * GIB
_SAME = 0.01


def contradictions(log: EngineLog, expectation: Expected, ranks: Parallelism) -> tuple[str, ...]:
    """Return a sentence for each group of figures that cannot be true together, or that misleads."""
    return (
        *_budget(log, expectation),
        *_negative(log),
        *_refused(log),
        *_nothing_left(log, expectation),
        *_counts(log, expectation),
        *_ranks(log, ranks),
    )


def _nothing_left(log: EngineLog, expectation: Expected) -> list[str]:
    """Return what a refusal for lack of room contradicts: a prediction that leaves some."""
    pool, predicted = log.figure(Quantity.POOL), expectation.span(Quantity.POOL)
    if pool is None or predicted is None or pool.value > 0 or predicted.value <= 0:
        return []
    held = (Quantity.WEIGHTS, Quantity.NON_TORCH, Quantity.ACTIVATION)
    unprinted = [quantity for quantity in held if log.figure(quantity) is None]
    by = f"something beside {'the printed' if len(unprinted) < len(held) else 'the predicted'} parts"
    left = f"nothing was left for KV, and {format_memory(round(predicted.value))} are predicted"
    causes = "another process on the card, a larger profiling run, another card or fraction than taken"
    return [f"line {pool.line}: {left}: {by} took at least as much ({causes})"]


def _budget(log: EngineLog, expectation: Expected) -> list[str]:
    """KV and weights share one budget: together they cannot exceed it."""
    if log.engine == "llama.cpp":
        return []
    pool, weights = log.figure(Quantity.POOL), log.figure(Quantity.WEIGHTS)
    usable, total = log.figure(Quantity.USABLE), log.figure(Quantity.DEVICE_TOTAL)
    if pool is None or pool.value <= 0:
        return []
    predicted = expectation.span(Quantity.USABLE) or expectation.span(Quantity.DEVICE_TOTAL)
    limit, name = None, "the card's memory"
    if usable is not None:
        limit, name = usable.value, "the memory the fraction allows"
    elif expectation.span(Quantity.USABLE) is not None and predicted is not None:
        limit, name = predicted.value, "the memory the fraction allows"
    elif total is not None or predicted is not None:
        limit = total.value if total is not None else predicted.value if predicted is not None else None
    span = expectation.span(Quantity.WEIGHTS)
    held = weights.value if weights is not None else 0.0 if span is None else span.value
    others = [figure for figure in (non_torch(log), activation(log)) if figure is not None and figure.value > 0]
    needed = pool.value + held + sum(figure.value for figure in others)
    if limit is None or needed <= limit + max(_SLACK_BYTES, _SAME * limit):
        return []
    listed = f"a KV pool of {format_memory(round(pool.value))} and weights of {format_memory(round(held))}"
    if others:
        listed += f" and {format_memory(round(sum(figure.value for figure in others)))} beside them"
    if weights is None:
        listed = (
            f"a KV pool of {format_memory(round(pool.value))} beside predicted weights of {format_memory(round(held))}"
        )
    over = f"exceed {name} ({format_memory(round(limit))}) by {format_memory(round(needed - limit))}"
    if weights is None:
        hint = "the model, its precision or its ranks are others than taken (--model, --weights, --tp)"
        return [f"line {pool.line} does not agree with the prediction: {listed} {over}: {hint}"]
    return [f"line {pool.line} cannot be true: {listed} {over}"]


def _negative(log: EngineLog) -> list[str]:
    talk = []
    graphs = charged_graphs(log)
    if graphs is not None and graphs.value < 0:
        real = log.figure(Quantity.GRAPHS)
        captured = f"; capture really took {format_memory(round(real.value))}" if real is not None else ""
        talk.append(
            f"line {graphs.line}: a negative estimate of CUDA-graph memory enlarged the KV pool by "
            f"{format_memory(round(-graphs.value))}{captured}: the engine may run out of memory"
        )
    captured_graphs = log.figure(Quantity.GRAPHS)
    if captured_graphs is not None and captured_graphs.value < 0:
        talk.append(
            f"line {captured_graphs.line}: CUDA graphs took less than nothing: the allocator used free blocks again, "
            "so their true size is not in this log"
        )
    buffers = log.figure(Quantity.NON_TORCH)
    if buffers is not None and buffers.value < 0:
        talk.append(f"line {buffers.line}: negative non-torch memory: with sleep mode the weights are not torch memory")
    talk += [
        f"line {figure.line}: {quantity.value} is negative, which cannot be"
        # An engine for whose KV nothing is left prints how much is lacking, and refuses.
        for quantity in (Quantity.WEIGHTS, Quantity.ACTIVATION, *(() if log.failures else (Quantity.POOL,)))
        if (figure := log.figure(quantity)) is not None and figure.value < 0
    ]
    return talk


def _refused(log: EngineLog) -> list[str]:
    start, usable = log.figure(Quantity.FREE_AT_START), log.figure(Quantity.USABLE)
    if start is None or usable is None or start.value >= usable.value or log.failures:
        return []
    free, asked = format_memory(round(start.value)), format_memory(round(usable.value))
    text = f"line {start.line}: only {free} were free at the start, less than the {asked} the fraction allows"
    return [f"{text}: another process holds the rest"]


def _counts(log: EngineLog, expectation: Expected) -> list[str]:
    tokens, times = log.figure(Quantity.TOKENS), log.figure(Quantity.CONCURRENCY)
    length = log.setting("printed_length")
    if tokens is None or times is None or length is None or not isinstance(length.value, int) or not times.value:
        return []
    meant = times.value * length.value
    if abs(meant - tokens.value) > max(_SAME * meant, times.half_step * length.value):
        text = f"line {tokens.line}: {tokens.value:,.0f} tokens and {times.value:g} requests of {length.value:,} differ"
        if expectation.plain:
            return [
                f"{text}, and without windows the one follows from the other: one is of another start, length or rank"
            ]
        return [f"{text}: with windows, the token line of older versions understates, and the concurrency is right"]
    if expectation.plain:
        return []
    text = f"line {tokens.line}: with windows or state, {tokens.value:,.0f} tokens are concurrency x maximum length"
    return [f"{text}, not a capacity: shorter requests hold fewer"]


def _ranks(log: EngineLog, ranks: Parallelism) -> list[str]:
    """Ranks of one stage hold as much of the model; those of different stages need not."""
    stage = stage_of(log.governing_rank(), ranks)
    pools = [one for one in log.of(Quantity.POOL) if stage_of(one.rank, ranks) == stage]
    if log.engine == "llama.cpp" or len(pools) < 2:  # noqa: PLR2004 - one rank has no spread
        return []
    least, most = min(pools, key=lambda one: one.value), max(pools, key=lambda one: one.value)
    if most.value - least.value <= _SPREAD_BYTES:
        return []
    held = [f"{one.rank or 'the first'} has {format_memory(round(one.value))} for KV" for one in (least, most)]
    return [f"ranks differ: {held[0]}, {held[1]}; the smallest pool holds for all, and is compared"]
