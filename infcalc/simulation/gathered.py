"""What a run leaves behind, in columns: the same from every step as from steps in aggregate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from infcalc.frozen import frozen
from infcalc.simulation.records import Outcome, RequestRecord, StepRecord

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@frozen
class Finished:
    """The requests that got their whole answer, in the order of the requests; times in picoseconds from the start."""

    indices: Ints
    reached_ps: Ints
    """They came to the scheduler."""
    scheduled_ps: Ints
    first_token_ps: Ints
    last_token_ps: Ints
    end_ps: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    hit_tokens: Ints
    """Without records of requests: one entry, their sum."""
    num_preemptions: Ints
    """Without records of requests: none."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.indices)


@frozen
class Meter:
    """Sums over a run up to a moment: held blocks and live requests each times the picoseconds that they lasted."""

    now_ps: int
    held_block_ps: int = 0
    live_ps: int = 0


@frozen
class Totals:
    """Sums over one replica's run. ``curve`` are its meters from the start to the end, in the order of time."""

    num_blocks: int
    most_held_blocks: int
    num_steps: int
    busy_ps: int
    num_preemptions: int
    curve: tuple[Meter, ...]

    @property
    def end(self) -> Meter:
        """The last meter."""
        return self.curve[-1]


@frozen
class Gathered:
    """A whole run. ``reasons`` says why requests were rejected, by their place in the run; ``aborted`` were given up.

    ``sent_ps`` is when each request was sent, -1 where it never was. ``partial``: the run was broken off.
    """

    sent_ps: Ints
    finished: Finished
    reasons: Mapping[int, str]
    num_aborted: int
    interval_runs: Ints
    """Times between two tokens of a request, as :class:`infcalc.simulation.fast.intervals.Intervals` has them."""
    replicas: tuple[Totals, ...]
    placed: Ints
    """The replica of each request; -1: none."""
    front_end_busy_fraction: float
    end_ps: int
    partial: bool = False


COLUMNS = {
    "indices": "index",
    "reached_ps": "arrival_ps",
    "scheduled_ps": "scheduled_ps",
    "first_token_ps": "first_token_ps",
    "last_token_ps": "last_token_ps",
    "end_ps": "end_ps",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "hit_tokens": "hit_tokens",
    "num_preemptions": "num_preemptions",
}
"""The columns of :class:`Finished`, and the fields of a record that they hold."""


def finished_of(records: Sequence[RequestRecord]) -> Finished:
    """Return the finished ones among records, as columns in the order of the requests."""
    done = sorted((one for one in records if one.outcome is Outcome.FINISHED), key=lambda one: one.index)
    return Finished(
        **{column: np.array([getattr(one, field) for one in done], dtype=np.int64) for column, field in COLUMNS.items()}
    )


class StepMeter:
    """Sums up the steps of one replica, and keeps a meter every so often: twice as seldom whenever there are many."""

    _MOST = 512

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._most_held = 0
        self._num_steps = 0
        self._busy_ps = 0
        self._held_block_ps = 0
        self._live_ps = 0
        self._end_ps = 0
        self._every = 1
        self._since = 0
        self._curve = [Meter(now_ps=0)]

    def take(self, step: StepRecord) -> None:
        """Take in a step."""
        if not step.shape.num_sequences:
            return
        if step.start_ps > self._end_ps:
            # Between two steps nothing was held.
            self._curve.append(self._meter())
            self._end_ps = step.start_ps
            self._curve.append(self._meter())
        lasted = step.duration_ps
        self._num_steps += 1
        self._busy_ps += lasted
        self._held_block_ps += step.num_held_blocks * lasted
        self._live_ps += step.num_live * lasted
        self._most_held = max(self._most_held, step.num_held_blocks)
        self._end_ps = step.start_ps + lasted
        self._since += 1
        if self._since >= self._every:
            self._since = 0
            self._curve.append(self._meter())
        if len(self._curve) > self._MOST:
            self._every *= 2
            self._curve = self._curve[::2]

    def _meter(self) -> Meter:
        return Meter(now_ps=self._end_ps, held_block_ps=self._held_block_ps, live_ps=self._live_ps)

    def totals(self, num_preemptions: int) -> Totals:
        """Return the sums up to here."""
        return Totals(
            num_blocks=self._num_blocks,
            most_held_blocks=self._most_held,
            num_steps=self._num_steps,
            busy_ps=self._busy_ps,
            num_preemptions=num_preemptions,
            curve=(*self._curve, self._meter()),
        )


def summed_until(totals: Sequence[Totals], moments_ps: Floats) -> tuple[Floats, Floats]:
    """Return held blocks and live requests of all replicas, each summed over time up to each moment."""
    held, live = np.zeros(len(moments_ps)), np.zeros(len(moments_ps))
    for one in totals:
        times = np.array([meter.now_ps for meter in one.curve], dtype=np.float64)
        held += np.interp(moments_ps, times, np.array([float(meter.held_block_ps) for meter in one.curve]))
        live += np.interp(moments_ps, times, np.array([float(meter.live_ps) for meter in one.curve]))
    return held, live
