"""What is written down of a run: columns of requests, and the intervals between tokens as runs of steps."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from infcalc.kvcache.invariant import holds
from infcalc.simulation.fast.flight import NEVER, Flight
from infcalc.simulation.fast.intervals import Intervals
from infcalc.simulation.records import Outcome, RequestRecord

if TYPE_CHECKING:
    from infcalc.simulation.fast.replica import FastReplica

_FIELDS = (
    "index",
    "arrival_ps",
    "end_ps",
    "prompt_tokens",
    "output_tokens",
    "scheduled_ps",
    "first_token_ps",
    "last_token_ps",
    "num_preemptions",
    "hit_tokens",
    "computed_tokens",
)


class Recorder:
    """Told of every end, in the order of ending."""

    def __init__(self) -> None:
        self.intervals = Intervals()
        self.decoded = self.intervals.add
        self.flat = array("q")
        """The fields of one request after those of another."""
        self.rejections: dict[int, RequestRecord] = {}
        self._extend = self.flat.extend

    def ended(self, flight: Flight, end_ps: int) -> None:
        """Take in that a flight has its whole answer and gave its place back."""
        self._extend(
            (
                flight.index,
                flight.arrival_ps,
                end_ps,
                flight.prompt_tokens,
                flight.output_tokens,
                flight.scheduled_ps,
                flight.first_token_ps,
                flight.last_token_ps,
                flight.num_preemptions,
                flight.first_hit_tokens,
                flight.computed_tokens,
            )
        )

    def waited(self, interval_ps: int) -> None:
        """Take in one longer wait for a token."""
        self.intervals.add(interval_ps, 0, 1, 1)

    def rejected(self, index: int, arrival_ps: int, end_ps: int, prompt_tokens: int, reason: str) -> None:
        """Take in that a request was refused."""
        self.rejections[index] = RequestRecord(
            index=index,
            outcome=Outcome.REJECTED,
            arrival_ps=arrival_ps,
            end_ps=end_ps,
            prompt_tokens=prompt_tokens,
            reason=reason,
        )

    def close(self, num_requests: int, replica: FastReplica) -> None:
        """Check what must hold after a run.

        Raises:
            AssertionError: a law is broken.

        """
        holds(not replica.has_work, "nobody is left in the engine")
        holds(replica.num_free_blocks == replica.blocks.num_blocks, "all blocks are given back")
        holds(len(self.flat) // len(_FIELDS) + len(self.rejections) == num_requests, "every request ends once")

    def records(self) -> tuple[RequestRecord, ...]:
        """Return the records, in the order of the requests."""
        found = list(self.rejections.values())
        numbers = iter(self.flat)
        for row in zip(*[numbers] * len(_FIELDS), strict=True):
            values = dict(zip(_FIELDS, row, strict=True))
            moments = {name: values.pop(name) for name in ("scheduled_ps", "first_token_ps", "last_token_ps")}
            holds(NEVER not in moments.values(), "who ended has all its moments")
            found.append(RequestRecord(outcome=Outcome.FINISHED, **values, **moments))
        return tuple(sorted(found, key=lambda record: record.index))
