"""What an engine refuses at its start, whatever the memory: block sizes, step sizes, ranks of adapters and experts."""

from __future__ import annotations

from infcalc.frozen import frozen


@frozen
class BlockSizes:
    """The block sizes an engine admits: single values, and multiples of one number (0: no multiples)."""

    single_tokens: tuple[int, ...] = ()
    multiple_tokens: int = 0
    words: str
    source: str

    def admit(self, block_tokens: int) -> bool:
        """Return whether blocks of so many tokens can be asked for."""
        return block_tokens in self.single_tokens or (
            self.multiple_tokens > 0 and block_tokens % self.multiple_tokens == 0
        )


@frozen
class Limits:
    """What an engine checks of its settings before it looks at memory."""

    block_sizes: BlockSizes
    sequences_within_step: bool = False
    """A step must have room for one token of every running sequence."""
    experts_over_all_ranks: bool = False
    """Experts are spread over all ranks or over none."""
    splits_by_layer: bool = False
    """Over GPUs it puts layers by default, and it has no ranks of attention data, experts or contexts."""
    whole_blocks_source: str = ""
    """Why a rank's share of weights with block scales must be whole blocks; empty: it need not be."""
    lora_ranks: tuple[int, ...] = ()
    """Largest ranks of adapters that can be asked for; empty: any."""


_POWERS_OF_TWO = tuple(2**power for power in range(13))
_LIMITS = {
    "vllm": Limits(
        block_sizes=BlockSizes(
            single_tokens=(1, 8),
            multiple_tokens=16,
            words="1, 8 or a multiple of 16",
            source="vLLM: BlockSize 1, 8, 16 ... 256; later any that an attention backend takes, multiples of 16",
        ),
        sequences_within_step=True,
        experts_over_all_ranks=True,
        whole_blocks_source="vLLM issues 17569, 25292",
        lora_ranks=(1, 8, 16, 32, 64, 128, 256, 320, 512),
    ),
    "sglang": Limits(
        block_sizes=BlockSizes(multiple_tokens=1, words="any whole number", source="SGLang: page_size, any from 1 on"),
        whole_blocks_source="SGLang issue 3345",
    ),
    "tensorrt-llm": Limits(
        block_sizes=BlockSizes(
            single_tokens=_POWERS_OF_TWO,
            words="a power of two",
            source="TensorRT-LLM: tokens_per_block is a power of two",
        )
    ),
    "llama.cpp": Limits(
        block_sizes=BlockSizes(words="none: it has no blocks", source="llama.cpp: cells of a context, padded to 256"),
        # llama-server's --split-mode: layer by default, else row or none.
        splits_by_layer=True,
    ),
}


_UNKNOWN = Limits(block_sizes=BlockSizes(multiple_tokens=1, words="any whole number", source=""))


def limits(engine: str) -> Limits:
    """Return the limits of ``engine``, by its catalog name; of none where it is not known.

    >>> limits("vllm").block_sizes.admit(7), limits("vllm").block_sizes.admit(48)
    (False, True)
    """
    return _LIMITS.get(engine, _UNKNOWN)
