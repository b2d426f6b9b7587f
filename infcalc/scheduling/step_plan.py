"""The plan of one step: what an engine must know to compute it, and nothing else."""

from __future__ import annotations

from infcalc.frozen import frozen
from infcalc.kvcache.surface import BlockCopy


@frozen
class Chunk:
    """What one sequence computes in the step: a whole prompt, a piece of one, or the last token of its answer."""

    sequence_id: int
    cached_tokens: int
    """Tokens before the chunk, whose keys and values the cache holds: the position of the chunk's first token."""
    tokens: tuple[int, ...]
    """Ids of the tokens to compute."""
    block_table: tuple[int, ...]
    """Blocks of the sequence in order, those of this chunk included."""
    produces: bool
    """Whether these are the last known tokens, so that the step yields the next one. A piece of a prompt does not."""
    num_draft_tokens: int = 0
    """How many of the tokens, the last ones, are drafts: they stay as far as they are accepted."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens to compute."""
        return len(self.tokens)


@frozen
class StepPlan:
    """One step: chunks in the order in which the policy chose them."""

    chunks: tuple[Chunk, ...]
    copies: tuple[BlockCopy, ...] = ()
    """Blocks to copy before anything is written, in order."""
    released: tuple[int, ...] = ()
    """Sequences that gave their cache back since the plan before."""

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(chunk.num_tokens for chunk in self.chunks)
