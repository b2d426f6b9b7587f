"""What the interval lines of an engine's log say of each signal."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

from infcalc.diagnosis.signals import Reading, Signal
from infcalc.evidence.nouns import IntervalLine, IntervalLog, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infcalc.diagnosis.citing import Source
    from infcalc.diagnosis.signals import Cite

_FULL_QUANTILE: Final = 0.9
_MOST_CITED: Final = 3
_AHEAD: Final = 3
"""Lines that other ranks may write between."""


def read_signals(log: IntervalLog, source: Source) -> tuple[Reading, ...]:
    """Return what interval lines say: means over the lines with work, of the cache the ninth of ten."""
    return tuple(_Found(log, source).all())


class _Found:
    def __init__(self, log: IntervalLog, source: Source) -> None:
        self._log, self._source = log, source
        self._busy = [line for line in log.lines if line.num_running or line.num_waiting]

    def all(self) -> Iterator[Reading]:
        yield from self._places()
        yield from self._preemptions()
        yield from self._prefix()
        yield from self._drafting()
        yield from self._graphs()
        yield from self._steps()
        yield from self._ranks()

    def _cites(self, lines: Sequence[IntervalLine]) -> tuple[Cite, ...]:
        return tuple(self._source.at(line.line) for line in lines[:_MOST_CITED])

    def _places(self) -> Iterator[Reading]:
        usages = sorted((line for line in self._busy if line.kv_usage_fraction is not None), key=_usage)
        if usages:
            at = usages[min(len(usages) - 1, int(_FULL_QUANTILE * len(usages)))]
            shown = f"{_usage(at):.1%} of the KV cache in use in one of ten intervals" if len(usages) > 1 else ""
            shown = shown or f"{_usage(at):.1%} of the KV cache in use"
            yield Reading(signal=Signal.KV_USAGE, value=_usage(at), shown=shown, cites=self._cites([at]))
        both = [line for line in self._busy if line.num_running is not None and line.num_waiting is not None]
        if not both:
            return
        running, waiting = fmean(line.num_running or 0 for line in both), fmean(line.num_waiting or 0 for line in both)
        worst = sorted(both, key=lambda line: -(line.num_waiting or 0))
        cites = self._cites(worst)
        yield Reading(signal=Signal.RUNNING, value=running, shown=f"{running:,.3g} requests run", cites=cites)
        yield Reading(signal=Signal.WAITING, value=waiting, shown=f"{waiting:,.3g} requests wait", cites=cites)
        shown = f"{waiting:,.3g} wait while {running:,.3g} run, on average"
        share = waiting / (running + waiting)
        yield Reading(signal=Signal.WAITING_SHARE, value=share, shown=shown, cites=cites)

    def _preemptions(self) -> Iterator[Reading]:
        stated = [line for line in self._log.lines if line.num_preemptions is not None]
        number = float(sum(line.num_preemptions or 0 for line in stated) or len(self._log.retractions))
        if self._log.retractions:
            cites = tuple(self._source.at(line) for line in self._log.retractions[:_MOST_CITED])
        else:
            cites = self._cites([line for line in stated if line.num_preemptions] or self._log.lines[-1:])
        shown = f"requests were put back {number:,.0f} times" if number else "no line tells of a preemption"
        yield Reading(signal=Signal.PREEMPTIONS, value=number, shown=shown, cites=cites)

    def _prefix(self) -> Iterator[Reading]:
        counted = [line for line in self._log.lines if line.cached_tokens is not None and line.new_tokens is not None]
        if counted:
            cached, new = (
                sum(getattr(line, name) or 0 for line in counted) for name in ("cached_tokens", "new_tokens")
            )
            if cached + new:
                shown = f"{cached / (cached + new):.1%} of prompt tokens found in the prefix cache"
                cites = self._cites(counted)
                yield Reading(signal=Signal.PREFIX_HITS, value=cached / (cached + new), shown=shown, cites=cites)
            return
        told = [line for line in self._busy if line.prefix_hit_fraction is not None]
        if told:
            last = told[-1]
            value = last.prefix_hit_fraction or 0.0
            shown = f"{value:.1%} of prompt tokens found in the prefix cache"
            yield Reading(signal=Signal.PREFIX_HITS, value=value, shown=shown, cites=self._cites([last]))

    def _drafting(self) -> Iterator[Reading]:
        drafted = [line for line in self._busy if line.tokens_per_round is not None]
        if not drafted:
            yield Reading(signal=Signal.TOKENS_PER_ROUND, value=0.0, shown="no line tells of drafting")
            return
        rounds = fmean(line.tokens_per_round or 1.0 for line in drafted)
        shown = f"{rounds:.2f} tokens in a round of drafting"
        cites = (self._source.at(self._told_at(drafted[0].line)),)
        yield Reading(signal=Signal.TOKENS_PER_ROUND, value=rounds, shown=shown, cites=cites)
        rates = [line.draft_acceptance_fraction for line in drafted if line.draft_acceptance_fraction is not None]
        if rates:
            rate = fmean(rates)
            shown = f"{rate:.1%} of drafted tokens accepted"
            yield Reading(signal=Signal.ACCEPTED, value=rate, shown=shown, cites=cites)

    def _told_at(self, line: int) -> int:
        """Return the line that tells of drafting: vLLM writes one of its own after that of the interval."""
        ahead = range(line, min(line + _AHEAD, len(self._source.lines)) + 1)
        return next((number for number in ahead if "SpecDecoding" in self._source.lines[number - 1]), line)

    def _graphs(self) -> Iterator[Reading]:
        told = [line for line in self._log.lines if line.phase is Phase.DECODE and line.graph is not None]
        if not told:
            return
        without = [line for line in told if not line.graph]
        shown = f"{len(without):,} of {len(told):,} decode lines ran without a CUDA graph"
        cites = self._cites(without or told)
        yield Reading(signal=Signal.UNGRAPHED_SHARE, value=len(without) / len(told), shown=shown, cites=cites)

    def _steps(self) -> Iterator[Reading]:
        steps = [line for line in self._log.lines if line.phase is Phase.STEP and line.step_s]
        total = sum(line.step_s or 0.0 for line in steps)
        if not total:
            return
        prompts = [line for line in steps if line.num_prefills]
        share = sum(line.step_s or 0.0 for line in prompts) / total
        shown = f"{share:.0%} of the time of {len(steps):,} steps went into steps with a prompt"
        yield Reading(signal=Signal.PREFILL_SHARE, value=share, shown=shown, cites=self._cites(prompts or steps))

    def _ranks(self) -> Iterator[Reading]:
        from infcalc.diagnosis.from_metrics import imbalance  # noqa: PLC0415 - only here

        loads: dict[str, list[int]] = {}
        for line in self._busy:
            if line.rank and line.num_running is not None and not line.rank.startswith(("TP", "PP")):
                loads.setdefault(line.rank, []).append(line.num_running + (line.num_waiting or 0))
        yield from imbalance({rank: fmean(found) for rank, found in loads.items()}, self._cites(self._busy))


def _usage(line: IntervalLine) -> float:
    return line.kv_usage_fraction or 0.0
