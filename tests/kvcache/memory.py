"""An executor that only remembers: it carries out copies, writes tokens where block tables say, and reads them back."""

from __future__ import annotations

from collections.abc import Sequence

from infcalc.kvcache.surface import BlockCopy, KvManager


class Memory:
    """What each block holds, token by token."""

    def __init__(self, block_tokens: int) -> None:
        self.size = block_tokens
        self.blocks: dict[int, dict[int, int]] = {}

    def copy(self, copies: list[BlockCopy]) -> None:
        for copy in copies:
            source = self.blocks.get(copy.source_block, {})
            self.blocks[copy.target_block] = {at: source[at] for at in range(copy.num_tokens)}

    def write(self, table: Sequence[int], start: int, tokens: Sequence[int]) -> None:
        for index, token in enumerate(tokens, start):
            self.blocks.setdefault(table[index // self.size], {})[index % self.size] = token

    def read(self, table: Sequence[int], num_tokens: int) -> list[int | None]:
        places = (divmod(index, self.size) for index in range(num_tokens))
        return [self.blocks[table[at]].get(offset) if table[at] else None for at, offset in places]

    def step(self, manager: KvManager, work: dict[int, tuple[int, ...]]) -> None:
        """Carry out one step: copies, writes of each sequence after what it has, commits."""
        self.copy(manager.take_copies())
        for name, tokens in work.items():
            self.write(manager.block_table(name), manager.num_committed_tokens(name), tokens)
        for name, tokens in work.items():
            manager.commit(name, tokens)
