"""Which replica gets a request: what a router in front of several knows, and what it makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

from infcalc.frozen import frozen
from infcalc.simulation.request import Request

_MOST_APART, _MOST_TIMES = 64, 1.5
"""Where the replicas' loads differ by more than both, the router balances before it looks at prefixes. Source: the
defaults of SGLang's router, ``balance_abs_threshold`` and ``balance_rel_threshold``."""


class RouterKind(StrEnum):
    """How a router chooses."""

    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    PREFIX_AWARE = "prefix-aware"
    SESSION = "session"

    @property
    def meaning(self) -> str:
        """In words."""
        return _MEANINGS[self]


_MEANINGS = {
    RouterKind.ROUND_ROBIN: "one after the other",
    RouterKind.LEAST_LOADED: "to the one with the fewest requests under way",
    RouterKind.PREFIX_AWARE: "to the one that was sent most of the prompt before, unless loads differ by more than "
    f"{_MOST_APART} requests and {_MOST_TIMES:g} times",
    RouterKind.SESSION: "all turns of a session to one, sessions one after the other",
}


@frozen
class Asked:
    """What a router sees of a request: its place in the run, what its prompt begins with, and its session."""

    index: int
    request: Request
    session: int


class Router:
    """Chooses among ``num_replicas`` for one request after another."""

    def __init__(self, kind: RouterKind, num_replicas: int) -> None:
        self.kind = kind
        self._next = 0
        self._homes: dict[int, int] = {}
        self._sent: list[set[int]] = [set() for _ in range(num_replicas)]

    def add_replica(self) -> None:
        """Count one more replica, to which nothing was sent yet."""
        self._sent.append(set())

    def choose(self, asked: Asked, loads: Sequence[int], among: Sequence[int] | None = None) -> int:
        """Return the replica for a request; ``loads`` are the requests under way at each.

        ``among`` are the places of those that take requests, in order; None: all do.
        """
        places = range(len(loads)) if among is None else among
        if len(places) == 1:
            return places[0]
        match self.kind:
            case RouterKind.ROUND_ROBIN:
                return self._turn(places)
            case RouterKind.LEAST_LOADED:
                return min(places, key=lambda one: loads[one])
            case RouterKind.PREFIX_AWARE:
                return self._by_prefix(asked.request, loads, places)
            case RouterKind.SESSION:
                home = self._homes.get(asked.session)
                if home is None or home not in places:
                    home = self._homes[asked.session] = self._turn(places)
                return home
            case _:
                assert_never(self.kind)

    def _turn(self, places: Sequence[int]) -> int:
        chosen = next((place for place in places if place >= self._next), places[0])
        self._next = chosen + 1
        return chosen

    def _by_prefix(self, request: Request, loads: Sequence[int], places: Sequence[int]) -> int:
        texts = [span.text for span in request.spans]
        most, least = max(loads[one] for one in places), min(loads[one] for one in places)
        chosen = min(places, key=lambda one: loads[one])
        if not (most - least > _MOST_APART and most > _MOST_TIMES * least):
            found = {one: self._found_tokens(request, self._sent[one]) for one in places}
            if any(found.values()):
                chosen = min(places, key=lambda one: (-found[one], loads[one]))
        self._sent[chosen].update(texts)
        if request.answer is not None:
            self._sent[chosen].add(request.answer)
        return chosen

    @staticmethod
    def _found_tokens(request: Request, sent: set[int]) -> int:
        tokens = 0
        for span in request.spans:
            if span.text not in sent:
                break
            tokens += span.num_tokens
        return tokens
