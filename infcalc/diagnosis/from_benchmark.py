"""What the result of a benchmark says of each signal by itself, without a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from infcalc.diagnosis.signals import Cite, Reading, Signal
from infcalc.evidence.nouns import MEAN, MEDIAN, BenchmarkRun, Quantity
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infcalc.evidence.nouns import Measured

    Citing = Callable[[str], tuple[Cite, ...]]

_LEAST_BUDGET: Final = 2048
"""Least tokens per step that engines set by themselves. Source: infcalc/engines/vllm.py, sglang.py: small GPUs."""
_CONTRADICTION: Final = ("one is wrong", "is longer than")
"""In the words of those who read results."""


def read_signals(run: BenchmarkRun, cites: Citing, *, budget_tokens: int | None = None) -> tuple[Reading, ...]:
    """Return what a result says; ``budget_tokens`` are those that a step may hold, where they are known."""
    return tuple(_Found(run, cites, budget_tokens or _LEAST_BUDGET).all())


class _Found:
    def __init__(self, run: BenchmarkRun, cites: Citing, budget_tokens: int) -> None:
        self._run, self._cites, self._budget_tokens = run, cites, budget_tokens

    def all(self) -> Iterator[Reading]:
        yield from self._contradictions()
        yield from self._failures()
        yield from self._gaps()
        yield from self._clients()
        for quantity, signal, text in (
            (Quantity.TOKENS_PER_ROUND, Signal.TOKENS_PER_ROUND, "{:.2f} tokens in a round of drafting"),
            (Quantity.ACCEPTED, Signal.ACCEPTED, "{:.1%} of drafted tokens accepted"),
            (Quantity.RUNNING, Signal.RUNNING, "{:,.3g} requests run"),
            (Quantity.WAITING, Signal.WAITING, "{:,.3g} requests wait"),
            (Quantity.KV_USAGE, Signal.KV_USAGE, "{:.1%} of the KV cache in use"),
        ):
            one = self._run.figure(quantity)
            if one is not None:
                yield self._reading(signal, one.value, text.format(one.value), one)

    def _reading(self, signal: Signal, value: float, shown: str, *of: Measured) -> Reading:
        cites = tuple(cite for one in of for cite in self._cites(one.key))
        return Reading(signal=signal, value=value, shown=shown, cites=tuple(dict.fromkeys(cites)))

    def _contradictions(self) -> Iterator[Reading]:
        found = [text for text in self._run.warnings if any(word in text for word in _CONTRADICTION)]
        # The words of the warning name the quantities, not their keys.
        named = [one for one in self._run.measured if any(str(one.quantity) in text for text in found)]
        shown = "; ".join(found) or "no figure contradicts another"
        yield self._reading(Signal.CONTRADICTIONS, float(len(found)), shown, *named)

    def _failures(self) -> Iterator[Reading]:
        run = self._run
        if run.num_failed is None or run.num_completed is None or not run.num_completed + run.num_failed:
            return
        total = run.num_completed + run.num_failed
        shown = f"{run.num_failed:,} of {total:,} requests failed"
        cites = self._cites("failed") if run.num_failed else ()
        yield Reading(signal=Signal.FAILED_SHARE, value=run.num_failed / total, shown=shown, cites=cites)

    def _gaps(self) -> Iterator[Reading]:
        middle, tail = self._run.figure(Quantity.ITL, MEDIAN), self._run.figure(Quantity.ITL, "p99")
        rounds = self._run.figure(Quantity.TOKENS_PER_ROUND)
        if middle is None or tail is None or not middle.value or (rounds is not None and rounds.value > 1):
            return
        shown = f"one gap in a hundred takes {format_seconds(tail.value)}, half take {format_seconds(middle.value)}"
        yield self._reading(Signal.GAP_TAIL, tail.value / middle.value, shown, tail, middle)
        shown = f"{format_seconds(tail.value)} between tokens, one gap in a hundred"
        yield self._reading(Signal.GAP_P99, tail.value, shown, tail)
        yield from self._prompts(tail.value)

    def _prompts(self, gap_s: float) -> Iterator[Reading]:
        """Return the tokens of the prompts that come while others wait for a token, which one step takes together."""
        load, rate = self._run.load, self._run.figure(Quantity.REQUESTS_PER_S)
        if not load.input_tokens:
            return
        number = 1.0
        if load.num_clients is None and load.requests_per_s is None:
            number = float(load.num_requests or 1)
        elif rate is not None:
            number = max(1.0, rate.value * gap_s)
        tokens = number * load.input_tokens
        shown = f"{tokens:,.0f} tokens of prompts come at once, and a step holds {self._budget_tokens:,}"
        yield Reading(signal=Signal.PROMPTS_IN_STEP, value=tokens / self._budget_tokens, shown=shown)

    def _clients(self) -> Iterator[Reading]:
        """Return the share of the clients that had a request under way (Little 1961)."""
        load, rate = self._run.load, self._run.figure(Quantity.REQUESTS_PER_S)
        clients, whole = load.num_clients, self._run.figure(Quantity.E2E)
        if clients is None or load.requests_per_s is not None or rate is None:
            return
        # Of a short run, the clients that end first count.
        number = load.num_requests or self._run.num_completed
        most = 1.0 if number is None else max(0.0, 1 - clients / (2 * number))
        of: list[Measured] = [rate]
        if whole is not None:
            whole_s = whole.value
            of.append(whole)
        else:
            first, each = self._run.figure(Quantity.TTFT, MEAN), self._run.figure(Quantity.TPOT, MEAN)
            if first is None or each is None or load.output_tokens is None:
                return
            whole_s = first.value + max(0.0, load.output_tokens - 1) * each.value
            of += [first, each]
        if not most:
            return
        busy = min(1.0, rate.value * whole_s / clients / most)
        shown = f"{busy:.0%} of the {clients:,} clients had a request under way (rate x time of a request)"
        yield self._reading(Signal.CLIENTS_BUSY, busy, shown, *of)
