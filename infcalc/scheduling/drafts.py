"""What drafting asks of a scheduler: tokens to verify in each step, and slots that the drafter writes into."""

from __future__ import annotations

from infcalc.frozen import frozen


@frozen
class Drafts:
    """A running sequence computes its last token and ``num_tokens`` drafts behind it; those rejected are taken back.

    ``num_lookahead_tokens`` more slots lie behind them, which the drafter fills for the next round. Source: vLLM
    ``v1/core/sched/scheduler.py``: as many as drafts for draft models, EAGLE and MTP, none where drafts are looked up.
    """

    num_tokens: int = 0
    num_lookahead_tokens: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.num_tokens < 0 or self.num_lookahead_tokens < 0:
            raise ValueError(f"{self.num_tokens} drafts with {self.num_lookahead_tokens} slots behind them")

    @property
    def num_slots(self) -> int:
        """Slots behind the last token of a sequence."""
        return self.num_tokens + self.num_lookahead_tokens


NO_DRAFTS = Drafts()
"""A token at a time."""
