"""A draft head: the small network that proposes tokens for a target model (EAGLE kinds)."""

from __future__ import annotations

from infcalc.frozen import frozen

_BYTES_PER_ELEMENT = 2


@frozen
class Draft:
    """One published draft head. It shares the target's embedding, and its head may cover a reduced vocabulary."""

    name: str
    kind: str
    """``eagle1`` or ``eagle3``."""
    title: str = ""
    targets: tuple[str, ...] = ()
    """Catalog names of the models it drafts for."""
    aliases: tuple[str, ...] = ()
    hidden_size: int
    num_layers: int
    core_parameters: int
    """Parameters of its layers and projections."""
    lm_head_parameters: int = 0
    """Parameters of its own head; 0 where it uses the target's."""
    shared_embedding_parameters: int = 0
    """Parameters of the target's embedding, which it reads too."""
    kv_bytes_per_token_bf16: int = 0
    draft_vocab_size: int | None = None
    """Tokens it can propose, where fewer than the target's."""
    source: str = ""
    date: str = ""

    @property
    def num_bytes(self) -> int:
        """Bytes of its own weights: heads are published in 16 bit."""
        return (self.core_parameters + self.lm_head_parameters) * _BYTES_PER_ELEMENT
