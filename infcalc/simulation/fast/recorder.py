"""What is written down of a run: each request, or only the samples that percentiles need; and intervals of tokens."""

from __future__ import annotations

from array import array
from itertools import pairwise
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from infcalc.kvcache.invariant import holds
from infcalc.simulation.fast.intervals import Intervals, packed
from infcalc.simulation.fast.samples import Floats, Ints, Samples
from infcalc.simulation.records import Outcome, RequestRecord

if TYPE_CHECKING:
    from infcalc.simulation.fast.flight import Flight
    from infcalc.simulation.fast.replica import FastReplica

_ONCE = packed(1, 1)
FIELDS = (
    "index",
    "arrival_ps",
    "scheduled_ps",
    "first_token_ps",
    "last_token_ps",
    "end_ps",
    "prompt_tokens",
    "output_tokens",
    "num_preemptions",
    "hit_tokens",
    "computed_tokens",
)


class SampleRecorder:
    """Keeps four samples of a request that got its answer, 8 bytes each, and forgets it."""

    def __init__(self) -> None:
        self.intervals = Intervals()
        self.decoded = self.intervals.add
        self.num_rejected = 0
        self.flat = array("q")
        self._extend = self.flat.extend
        self._tpot_ps = array("d")

    width = 3
    """Whole numbers written for each request: time to its first token, in the queue, and to its end."""

    def ended(self, flight: Flight, end_ps: int) -> None:
        """Take in that a flight has its whole answer and gave its place back."""
        arrival, first = flight.arrival_ps, flight.first_token_ps
        between, tokens = flight.last_token_ps - first, flight.output_tokens - 1
        self._extend((first - arrival, flight.scheduled_ps - arrival, end_ps - arrival))
        self._tpot_ps.append(between / tokens if tokens else nan)

    def waited(self, interval_ps: int) -> None:
        """Take in one longer wait for a token."""
        self.intervals.add((interval_ps, 0, _ONCE))

    def rejected(self, index: int, arrival_ps: int, end_ps: int, prompt_tokens: int, reason: str) -> None:
        """Take in that a request was refused."""
        del index, arrival_ps, end_ps, prompt_tokens, reason
        self.num_rejected += 1

    @property
    def num_finished(self) -> int:
        """Requests that got their answer."""
        return len(self.flat) // self.width

    def samples(self) -> Samples:
        """Return the samples of all requests that got their answer."""
        ttft, queue, e2e = np.frombuffer(self.flat, dtype=np.int64).reshape(-1, self.width).T
        return Samples(ttft_ps=ttft, queue_ps=queue, e2e_ps=e2e, tpot_ps=np.frombuffer(self._tpot_ps))

    def interval_runs(self) -> Ints:
        """Return the intervals between tokens, three numbers a run."""
        return np.frombuffer(self.intervals.flat, dtype=np.int64)

    def close(self, num_requests: int, replica: FastReplica) -> None:
        """Check what must hold after a run.

        Raises:
            AssertionError: a law is broken.

        """
        holds(not replica.has_work, "nobody is left in the engine")
        holds(replica.num_free_blocks == replica.blocks.num_blocks, "all blocks are given back")
        holds(self.num_finished + self.num_rejected == num_requests, "every request ends once")


class Recorder(SampleRecorder):
    """Keeps every request: 88 bytes each."""

    def __init__(self) -> None:
        super().__init__()
        self.rejections: list[RequestRecord] = []

    width = len(FIELDS)

    def ended(self, flight: Flight, end_ps: int) -> None:
        """Take in that a flight has its whole answer and gave its place back."""
        self._extend(
            (
                flight.index,
                flight.arrival_ps,
                flight.scheduled_ps,
                flight.first_token_ps,
                flight.last_token_ps,
                end_ps,
                flight.prompt_tokens,
                flight.output_tokens,
                flight.num_preemptions,
                flight.first_hit_tokens,
                flight.computed_tokens,
            )
        )

    def rejected(self, index: int, arrival_ps: int, end_ps: int, prompt_tokens: int, reason: str) -> None:
        """Take in that a request was refused."""
        self.num_rejected += 1
        self.rejections.append(
            RequestRecord(
                index=index,
                outcome=Outcome.REJECTED,
                arrival_ps=arrival_ps,
                end_ps=end_ps,
                prompt_tokens=prompt_tokens,
                reason=reason,
            )
        )

    def ended_since(self, number: int) -> list[tuple[int, int]]:
        """Return index and end of those that ended after the first ``number``, in the order of ending."""
        flat, width, end = self.flat, self.width, FIELDS.index("end_ps")
        return [(flat[at], flat[at + end]) for at in range(number * width, len(flat), width)]

    def columns(self) -> dict[str, Ints]:
        """Return a column for each of ``FIELDS``, in the order of ending: views, nothing is copied."""
        rows = np.frombuffer(self.flat, dtype=np.int64).reshape(-1, self.width)
        return dict(zip(FIELDS, rows.T, strict=True))

    def samples(self) -> Samples:
        """Return the samples of all requests that got their answer."""
        one = self.columns()
        return Samples(
            ttft_ps=one["first_token_ps"] - one["arrival_ps"],
            queue_ps=one["scheduled_ps"] - one["arrival_ps"],
            e2e_ps=one["end_ps"] - one["arrival_ps"],
            tpot_ps=_per_token(one["last_token_ps"] - one["first_token_ps"], one["output_tokens"] - 1),
        )

    def close(self, num_requests: int, replica: FastReplica) -> None:
        """Check what must hold after a run, of every request.

        Raises:
            AssertionError: a law is broken.

        """
        super().close(num_requests, replica)
        one = self.columns()
        indices = np.concatenate([one["index"], [record.index for record in self.rejections]])
        holds(len(np.unique(indices)) == num_requests, "every request ends once")
        for before, after in pairwise(FIELDS[1:6]):
            holds(bool((one[before] <= one[after]).all()), f"{before} is no later than {after}")
        holds(bool((one["hit_tokens"] < one["prompt_tokens"]).all()), "the last prompt token is computed")
        needed = one["prompt_tokens"] + one["output_tokens"] - 1 - one["hit_tokens"]
        calm = one["num_preemptions"] == 0
        holds(bool((one["computed_tokens"] >= one["output_tokens"]).all()), "each token takes a computation")
        holds(bool((one["computed_tokens"] == needed)[calm].all()), "each token is found or computed, once")

    def records(self) -> tuple[RequestRecord, ...]:
        """Return the records, in the order of the requests."""
        found = list(self.rejections)
        numbers = iter(self.flat)
        rows = zip(*[numbers] * self.width, strict=True)
        found += [RequestRecord(outcome=Outcome.FINISHED, **dict(zip(FIELDS, row, strict=True))) for row in rows]
        return tuple(sorted(found, key=lambda record: record.index))


def _per_token(between_ps: Ints, num_tokens: Ints) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(num_tokens > 0, between_ps / num_tokens, np.nan)
