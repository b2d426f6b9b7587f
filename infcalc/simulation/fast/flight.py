"""One request in the aggregate simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infcalc.simulation.fast.parts import Holding, PrivateRun

NEVER = -1
"""A moment that has not come."""


class Flight:
    """A request that has arrived and not ended.

    While it decodes, its cached tokens are the replica's steps less ``lead``: nothing is written per step.
    ``output_tokens`` is what it gets, ``room_tokens`` what is reserved where a policy reserves.
    """

    __slots__ = (
        "arrival_ps",
        "cached_tokens",
        "computed_tokens",
        "content",
        "end_step",
        "first_hit_tokens",
        "first_token_ps",
        "hit_tokens",
        "holdings",
        "index",
        "last_token_ps",
        "lead",
        "num_held_blocks",
        "num_preemptions",
        "num_shared_blocks",
        "num_tokens",
        "output_tokens",
        "private",
        "prompt_tokens",
        "room_tokens",
        "scheduled_ps",
        "serial",
    )

    def __init__(
        self, index: int, arrival_ps: int, prompt_tokens: int, output_tokens: int, room_tokens: int, content: int
    ) -> None:
        self.index = index
        self.arrival_ps = arrival_ps
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.room_tokens = room_tokens
        self.content = content
        """Deepest shared node of its prompt and answer; -1: it shares nothing."""
        self.num_tokens = prompt_tokens
        """Prompt and answer so far; kept up to date while it does not decode."""
        self.cached_tokens = 0
        """Kept up to date while it does not decode."""
        self.lead: int | None = None
        """None unless it decodes."""
        self.end_step = 0
        self.serial = 0
        """Counts admissions: the order of those who run."""
        self.scheduled_ps = self.first_token_ps = self.last_token_ps = NEVER
        self.num_preemptions = self.computed_tokens = self.hit_tokens = self.first_hit_tokens = 0
        self.num_held_blocks = 0
        """Blocks of its reservation, where a policy reserves."""
        self.num_shared_blocks = 0
        self.holdings: list[Holding] | None = None
        self.private: PrivateRun | None = None
