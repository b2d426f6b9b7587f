"""When requests are sent: at times of their own, when another has ended, or as clients get their answers."""

from __future__ import annotations

from collections.abc import Sequence

from infcalc.frozen import frozen

NOBODY = -1


@frozen
class Sending:
    """How the requests of a run come.

    Request ``i`` is sent at ``times_ps[i]``; where ``follows`` names another, ``pauses_ps[i]`` after that one has ended
    instead. With ``num_clients`` none has a time of its own: each client takes the next request in order, and sends it
    ``pauses_ps`` of it after the answer before.
    """

    times_ps: Sequence[int]
    follows: Sequence[int] = ()
    pauses_ps: Sequence[int] = ()
    num_clients: int | None = None

    def __post_init__(self) -> None:
        """Check the columns."""
        count = len(self.times_ps)
        if any(len(column) not in {0, count} for column in (self.follows, self.pauses_ps)):
            raise ValueError(f"columns of {len(self.follows)} and {len(self.pauses_ps)} entries for {count} requests")
        if any(not NOBODY <= other < index for index, other in enumerate(self.follows)):
            raise ValueError("a request can only follow an earlier one")
        if self.num_clients is not None and (self.num_clients < 1 or self.follows):
            raise ValueError("clients send single requests, and there is at least one")

    @property
    def is_open(self) -> bool:
        """Whether nothing depends on when others end."""
        return self.num_clients is None and all(other == NOBODY for other in self.follows)


class Senders:
    """Those who send, over a run: what comes at first, and what an end lets come."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._followers: dict[int, list[int]] = {}
        self._next = len(sending.times_ps) if sending.num_clients is None else 0
        for index, other in enumerate(sending.follows):
            if other != NOBODY:
                self._followers.setdefault(other, []).append(index)

    def at_first(self) -> list[tuple[int, int]]:
        """Return moment and request of all that do not wait for another."""
        sending = self._sending
        if sending.num_clients is not None:
            self._next = min(sending.num_clients, len(sending.times_ps))
            return [(0, index) for index in range(self._next)]
        follows = sending.follows or [NOBODY] * len(sending.times_ps)
        return [(moment, index) for index, moment in enumerate(sending.times_ps) if follows[index] == NOBODY]

    def after(self, index: int, end_ps: int) -> list[tuple[int, int]]:
        """Return moment and request of all that the end of ``index``, as its sender sees it, lets come."""
        sending = self._sending
        if sending.num_clients is not None:
            if self._next == len(sending.times_ps):
                return []
            following, self._next = self._next, self._next + 1
            return [(end_ps + (sending.pauses_ps[following] if sending.pauses_ps else 0), following)]
        return [(end_ps + sending.pauses_ps[one], one) for one in self._followers.get(index, ())]
