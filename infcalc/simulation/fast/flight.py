"""One request in the aggregate simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infcalc.simulation.fast.agenda import Ints
    from infcalc.simulation.fast.drawn import DrawnRounds
    from infcalc.simulation.fast.parts import Holding, Node, PrivateRun

NEVER = -1
"""A moment that has not come."""


class Flight:
    """A request that has arrived and not ended.

    While it decodes, its cached tokens are the replica's steps less ``lead``: nothing is written per step.
    ``output_tokens`` is what it gets, ``room_tokens`` what is reserved where a policy reserves.
    """

    # Defaults of the class, not slots: most are never set, and a request is made in half the time.
    cached_tokens = 0
    """Kept up to date while it does not decode."""
    lead: int | None = None
    """None unless it decodes."""
    end_step = 0
    serial = 0
    """Counts admissions: the order of those who run."""
    scheduled_ps = first_token_ps = last_token_ps = NEVER
    num_preemptions = computed_tokens = hit_tokens = first_hit_tokens = 0
    num_held_blocks = 0
    """Blocks of its reservation; 0 where it holds just those of its cached tokens. With drafts: those it holds."""
    num_rounds = 0
    """Rounds of drafting up to its last preemption."""
    rounds: DrawnRounds | None = None
    """While it decodes with drafts, from where it began to."""
    spared: Ints | None = None
    """Tokens that its rounds leave out where the longest sequence ends; None: none."""
    num_shared_blocks = 0
    is_open = False
    """It decodes, and others may find what it has written."""
    holdings: list[Holding] | None = None
    private: PrivateRun | None = None
    own: Node | None = None
    """What it alone can find, where blocks may have copies."""

    def __init__(  # noqa: PLR0917 - called for every request
        self, index: int, arrival_ps: int, prompt_tokens: int, output_tokens: int, room_tokens: int, content: int
    ) -> None:
        self.index = index
        self.arrival_ps = arrival_ps
        self.prompt_tokens = self.num_tokens = prompt_tokens
        """``num_tokens``: prompt and answer so far, kept up to date while it does not decode."""
        self.output_tokens = output_tokens
        self.room_tokens = room_tokens
        self.content = content
        """Deepest shared node of its prompt and answer; -1: it shares nothing."""
