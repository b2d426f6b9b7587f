"""Why a printed KV pool differs from the predicted one: the difference split into parts that add up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infcalc.engines.logs.reading import EngineLog, Figure, Quantity
from infcalc.engines.rules import FractionBase
from infcalc.frozen import frozen
from infcalc.units import MIB

if TYPE_CHECKING:
    from infcalc.api.expecting import Expected

_NEGLIGIBLE_BYTES = MIB
_LEAST_BYTES = 0.5


@frozen
class Part:
    """One cause of a difference. ``effect`` is what it adds to the measured value, in the unit of the quantity.

    ``consumer`` parts take memory from the pool: a negative effect means that they took more than predicted.
    """

    part: str
    effect: float
    consumer: bool = False


@frozen
class _Term:
    """A line of the budget: its effect per byte on the pool, and what was predicted and printed of it."""

    name: str
    per_byte: float
    predicted: float
    measured: float | None
    half_step: float = 0.0


def pool_parts(
    log: EngineLog, expectation: Expected, *, base: FractionBase, fraction: float | None
) -> tuple[Part, ...]:
    """Return the parts of measured minus predicted KV pool, largest first; they add up to the difference.

    What the log prints is taken from it; what it does not print shares the rest as one part.
    """
    measured, predicted = log.figure(Quantity.POOL), expectation.span(Quantity.POOL)
    if measured is None or predicted is None:
        return ()
    if expectation.set_by_hand:
        return _whole("rounding of the printed figures", measured.value - predicted.value)
    share = 1.0 if fraction is None else fraction
    match base:
        case FractionBase.TOTAL:
            parts, terms = _of_total(log, expectation, share)
        case FractionBase.FREE_BEFORE_WEIGHTS:
            parts, terms = (), _of_free_before(log, expectation, share)
        case FractionBase.FREE_AFTER_WEIGHTS:
            parts, terms = (), _of_free_after(log, expectation, share)
        case FractionBase.NONE:
            return _whole("padding of the cache", measured.value - predicted.value)
        case _:
            assert_never(base)
    found = [*parts, *(_effect(term) for term in terms if term.measured is not None)]
    rest = measured.value - predicted.value - sum(part.effect for part in found)
    unknown = [term.name for term in terms if term.measured is None]
    tolerance = measured.half_step + sum(term.half_step * abs(term.per_byte) for term in terms) + _NEGLIGIBLE_BYTES
    if unknown:
        found.append(Part(part=f"{_listed(unknown)} (not printed)", effect=rest, consumer=True))
    elif abs(rest) > tolerance:
        found.append(Part(part="not explained by the printed figures", effect=rest))
    else:
        found.append(Part(part="rounding of the printed figures", effect=rest))
    return tuple(
        sorted((part for part in found if abs(part.effect) >= _LEAST_BYTES), key=lambda part: -abs(part.effect))
    )


def charged_graphs(log: EngineLog) -> Figure | None:
    """Return the estimate of CUDA graphs where the engine took it from the pool."""
    return None if log.setting("graphs_uncharged") else log.figure(Quantity.GRAPH_ESTIMATE)


def non_torch(log: EngineLog) -> Figure | None:
    """Return what was printed of memory outside the framework, alone or with the weights."""
    found = log.figure(Quantity.NON_TORCH)
    both, weights = log.figure(Quantity.CONSUMED), log.figure(Quantity.WEIGHTS)
    if found is not None or both is None or weights is None:
        return found
    return Figure(
        quantity=Quantity.NON_TORCH,
        value=both.value - weights.value,
        half_step=both.half_step + weights.half_step,
        line=both.line,
        rank=both.rank,
    )


def activation(log: EngineLog) -> Figure | None:
    """Return the printed activation peak without the graphs that some versions fold into it.

    They are in it where the budget closes without them, and does not with them.
    """
    found = log.figure(Quantity.ACTIVATION)
    graphs = charged_graphs(log)
    if found is None or graphs is None:
        return found
    usable, pool = log.figure(Quantity.USABLE), log.figure(Quantity.POOL)
    weights, buffers = log.figure(Quantity.WEIGHTS), non_torch(log)
    if usable is None or pool is None or weights is None or buffers is None:
        return found
    left = usable.value - weights.value - buffers.value - found.value - pool.value
    if abs(left) > abs(left - graphs.value):
        return found
    return Figure(
        quantity=Quantity.ACTIVATION,
        value=found.value - graphs.value,
        half_step=found.half_step + graphs.half_step,
        line=found.line,
        rank=found.rank,
    )


def _of_total(log: EngineLog, expectation: Expected, share: float) -> tuple[tuple[Part, ...], list[_Term]]:
    usable, total = log.figure(Quantity.USABLE), log.figure(Quantity.DEVICE_TOTAL)
    predicted_total = _predicted(expectation, Quantity.DEVICE_TOTAL)
    parts: list[Part] = []
    if total is not None:
        parts.append(Part(part="card total", effect=(total.value - predicted_total) * share))
    if usable is not None:
        base = predicted_total if total is None else total.value
        name = "card total and fraction" if total is None else "fraction rounding"
        parts.append(Part(part=name, effect=usable.value - base * share))
    graphs = None if log.setting("graphs_uncharged") else _value(charged_graphs(log))
    if log.setting("graphs_uncharged"):
        graphs = 0.0
    predicted_graphs = _predicted(expectation, Quantity.GRAPH_ESTIMATE)
    if graphs is None and predicted_graphs == 0:
        # This version charges none.
        graphs = 0.0
    terms = [
        _term("weights", -1, expectation, Quantity.WEIGHTS, log.figure(Quantity.WEIGHTS)),
        _term("buffers", -1, expectation, Quantity.NON_TORCH, non_torch(log)),
        _term("activation", -1, expectation, Quantity.ACTIVATION, activation(log)),
        _Term(name="CUDA graphs", per_byte=-1, predicted=predicted_graphs, measured=graphs),
    ]
    if total is None and usable is None:
        terms.append(_Term(name="card total", per_byte=share, predicted=predicted_total, measured=None))
    return tuple(parts), terms


def _of_free_before(log: EngineLog, expectation: Expected, share: float) -> list[_Term]:
    before = log.figure(Quantity.FREE_BEFORE_WEIGHTS)
    return [
        _term("memory free before the weights", share, expectation, Quantity.FREE_BEFORE_WEIGHTS, before),
        _term("weights", -1, expectation, Quantity.WEIGHTS, log.figure(Quantity.WEIGHTS)),
    ]


def _of_free_after(log: EngineLog, expectation: Expected, share: float) -> list[_Term]:
    free = log.figure(Quantity.FREE_FOR_KV)
    if free is not None:
        return [_term("weights, activation and buffers", share, expectation, Quantity.FREE_FOR_KV, free)]
    graphs = charged_graphs(log)
    return [
        _term("card total", share, expectation, Quantity.DEVICE_TOTAL, log.figure(Quantity.DEVICE_TOTAL)),
        _term("weights", -share, expectation, Quantity.WEIGHTS, log.figure(Quantity.WEIGHTS)),
        _term("activation", -share, expectation, Quantity.ACTIVATION, log.figure(Quantity.ACTIVATION)),
        _term("buffers", -share, expectation, Quantity.NON_TORCH, log.figure(Quantity.NON_TORCH)),
        _term("CUDA graphs", -share, expectation, Quantity.GRAPH_ESTIMATE, graphs),
    ]


def _term(name: str, per_byte: float, expectation: Expected, quantity: Quantity, measured: Figure | None) -> _Term:
    return _Term(
        name=name,
        per_byte=per_byte,
        predicted=_predicted(expectation, quantity),
        measured=_value(measured),
        half_step=0.0 if measured is None else measured.half_step,
    )


def _effect(term: _Term) -> Part:
    measured = term.predicted if term.measured is None else term.measured
    return Part(part=term.name, effect=term.per_byte * (measured - term.predicted), consumer=term.per_byte < 0)


def _predicted(expectation: Expected, quantity: Quantity) -> float:
    span = expectation.span(quantity)
    return 0.0 if span is None else span.value


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value


def _whole(name: str, difference: float) -> tuple[Part, ...]:
    return (Part(part=name, effect=difference),) if difference else ()


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
