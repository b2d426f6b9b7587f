"""What metrics of a server say of each signal: counts and means over their time, gauges of their moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from infcalc.diagnosis.signals import Cite, Reading, Signal
from infcalc.evidence.nouns import MEAN, NOW, TOTAL, MetricsSnapshot, Quantity
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infcalc.evidence.nouns import Measured

    Citing = Callable[[str], tuple[Cite, ...]]

_HANDOVER: Final = (
    "num_prefill_bootstrap_queue_reqs",
    "num_prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs",
)
"""Queues of SGLang's pools between prefill and decode. Source: SGLang docs/references/production_metrics.md."""
_PLAIN: Final = (
    (Quantity.KV_USAGE, NOW, Signal.KV_USAGE),
    (Quantity.RUNNING, NOW, Signal.RUNNING),
    (Quantity.WAITING, NOW, Signal.WAITING),
    (Quantity.TOKENS_PER_ROUND, TOTAL, Signal.TOKENS_PER_ROUND),
    (Quantity.TOKENS_PER_ROUND, NOW, Signal.TOKENS_PER_ROUND),
    (Quantity.ACCEPTED, TOTAL, Signal.ACCEPTED),
    (Quantity.ACCEPTED, NOW, Signal.ACCEPTED),
    (Quantity.QUEUE, MEAN, Signal.QUEUE),
    (Quantity.INPUT_LENGTH, MEAN, Signal.INPUT_LENGTH),
)


def read_signals(snapshot: MetricsSnapshot, cites: Citing, *, budget_tokens: int | None = None) -> tuple[Reading, ...]:
    """Return what metrics say; ``budget_tokens`` are those that a step may hold, where they are known."""
    return tuple(_Found(snapshot, cites).all(budget_tokens))


class _Found:
    def __init__(self, snapshot: MetricsSnapshot, cites: Citing) -> None:
        self._snapshot, self._cites = snapshot, cites

    def all(self, budget_tokens: int | None) -> Iterator[Reading]:
        for quantity, statistic, signal in _PLAIN:
            one = self._snapshot.figure(quantity, statistic)
            if one is not None:
                yield self._reading(signal, one.value, _shown(signal, one.value), one)
        if not any(one.quantity is Quantity.TOKENS_PER_ROUND for one in self._snapshot.measured):
            yield Reading(signal=Signal.TOKENS_PER_ROUND, value=0.0, shown="no metric tells of drafting")
        yield from self._queues()
        yield from self._preemptions()
        yield from self._prefix()
        yield from self._shares()
        yield from self._ends()
        yield from self._engines()
        yield from self._handover()
        step = self._snapshot.figure(Quantity.STEP_TOKENS, MEAN)
        if step is not None and budget_tokens:
            share = step.value / budget_tokens
            shown = f"{step.value:,.0f} of {budget_tokens:,} tokens in a mean step"
            yield self._reading(Signal.STEP_FILL, share, shown, step)

    def _reading(self, signal: Signal, value: float, shown: str, *of: Measured) -> Reading:
        cites = tuple(cite for one in of for cite in self._cites(one.key))
        return Reading(signal=signal, value=value, shown=shown, cites=tuple(dict.fromkeys(cites)))

    def _queues(self) -> Iterator[Reading]:
        running, waiting = (self._snapshot.figure(one, NOW) for one in (Quantity.RUNNING, Quantity.WAITING))
        if running is not None and waiting is not None and running.value + waiting.value:
            share = waiting.value / (running.value + waiting.value)
            shown = f"{waiting.value:,.0f} wait while {running.value:,.0f} run"
            yield self._reading(Signal.WAITING_SHARE, share, shown, waiting, running)
        queue, first = (self._snapshot.figure(one, MEAN) for one in (Quantity.QUEUE, Quantity.TTFT))
        if queue is not None and first is not None and first.value:
            share = min(1.0, queue.value / first.value)
            shown = f"{format_seconds(queue.value)} of {format_seconds(first.value)} to the first token are queue"
            yield self._reading(Signal.QUEUE_SHARE, share, shown, queue, first)

    def _preemptions(self) -> Iterator[Reading]:
        preempted = self._snapshot.figure(Quantity.PREEMPTIONS, TOTAL)
        if preempted is None:
            return
        yield self._reading(Signal.PREEMPTIONS, preempted.value, f"{preempted.value:,.0f} preemptions", preempted)
        requests = self._snapshot.figure(Quantity.REQUESTS, TOTAL)
        if requests is not None and requests.value:
            each = preempted.value / requests.value
            shown = f"{preempted.value:,.0f} preemptions for {requests.value:,.0f} requests"
            yield self._reading(Signal.PREEMPTED_SHARE, each, shown, preempted, requests)

    def _prefix(self) -> Iterator[Reading]:
        for statistic in (TOTAL, NOW):
            hits = self._snapshot.figure(Quantity.PREFIX_HITS, statistic)
            if hits is not None:
                shown = f"{hits.value:.1%} of prompt tokens found in the prefix cache"
                yield self._reading(Signal.PREFIX_HITS, hits.value, shown, hits)

    def _shares(self) -> Iterator[Reading]:
        figures = [
            self._snapshot.figure(one, MEAN)
            for one in (Quantity.E2E, Quantity.QUEUE, Quantity.PREFILL, Quantity.DECODE)
        ]
        if any(one is None for one in figures):
            return
        whole, *parts = (one for one in figures if one is not None)
        rest = whole.value - sum(one.value for one in parts)
        if whole.value and rest > 0:
            shown = (
                f"{format_seconds(rest)} of {format_seconds(whole.value)} of a request are outside queue, prefill and "
                "decode"
            )
            yield self._reading(Signal.FRONT_END_SHARE, rest / whole.value, shown, whole, *parts)
            yield self._reading(Signal.FRONT_END, rest, shown, whole, *parts)

    def _ends(self) -> Iterator[Reading]:
        total = self._snapshot.total("request_success_total")
        aborted = self._snapshot.total("request_success_total", finished_reason="abort")
        if total and aborted is not None:
            cites = self._cites(f"{self._snapshot.engine}:request_success_total")
            shown = f"{aborted:,.0f} of {total:,.0f} requests ended with abort"
            yield Reading(signal=Signal.ABORTED_SHARE, value=aborted / total, shown=shown, cites=cites)

    def _engines(self) -> Iterator[Reading]:
        """Return how unevenly requests lie on the engines of one server."""
        names = ("num_requests_running", "num_requests_waiting", "num_running_reqs", "num_queue_reqs")
        loads: dict[str, float] = {}
        for one in self._snapshot.samples:
            rank = one.label("engine") or one.label("dp_rank")
            if one.name in names and rank is not None and one.value >= 0:
                loads[rank] = loads.get(rank, 0.0) + one.value
        yield from imbalance(loads, self._cites(f"{self._snapshot.engine}:{names[0]}"))

    def _handover(self) -> Iterator[Reading]:
        found = [(name, value) for name in _HANDOVER if (value := self._snapshot.total(name)) is not None]
        if found:
            number = sum(value for _, value in found)
            cites = tuple(cite for name, value in found if value for cite in self._cites(f"sglang:{name}"))
            shown = f"{number:,.0f} requests wait between prefill and decode"
            yield Reading(signal=Signal.HANDOVER_QUEUE, value=number, shown=shown, cites=cites)


def imbalance(loads: dict[str, float], cites: tuple[Cite, ...]) -> Iterator[Reading]:
    """Return how much more requests the busiest of several engines has than their mean, and how many there are."""
    total = sum(loads.values())
    if len(loads) < 2 or not total:  # noqa: PLR2004 - several
        return
    mean = total / len(loads)
    most = max(loads.values())
    shown = f"{most:,.0f} requests on the busiest of {len(loads)} engines, {mean:,.0f} on average"
    yield Reading(signal=Signal.IMBALANCE, value=most / mean, shown=shown, cites=cites)
    yield Reading(signal=Signal.UNDER_WAY, value=total, shown=f"{total:,.0f} requests under way", cites=cites)


_SAID: Final = {
    Signal.KV_USAGE: "{:.1%} of the KV cache in use",
    Signal.RUNNING: "{:,.0f} requests run",
    Signal.WAITING: "{:,.0f} requests wait",
    Signal.TOKENS_PER_ROUND: "{:.2f} tokens in a round of drafting",
    Signal.ACCEPTED: "{:.1%} of drafted tokens accepted",
    Signal.INPUT_LENGTH: "prompts of {:,.0f} tokens",
}


def _shown(signal: Signal, value: float) -> str:
    return f"{format_seconds(value)} in the queue" if signal is Signal.QUEUE else _SAID[signal].format(value)
