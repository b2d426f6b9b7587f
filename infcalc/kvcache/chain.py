"""The hash chain of full blocks: a block is known by its own tokens and by everything before them.

Source: vLLM ``kv_cache_utils.hash_block_tokens``: the hash covers the parent's hash, the block's tokens and extra keys
(LoRA id, hashes of images, a salt). The extra keys are one ``namespace`` here, in which the chain begins. vLLM takes
sha256; 128 bits of blake2b are faster and as good as free of collisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from infcalc.kvcache.tokens import packed

_HASH_BYTES = 16


def chain_start(namespace: str = "") -> bytes:
    """Return what the first block of a sequence has as its parent: chains of two namespaces never meet."""
    return blake2b(namespace.encode(), digest_size=_HASH_BYTES).digest()


def chained(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Return the hash of a full block after ``parent``.

    >>> start = chain_start()
    >>> chained(chained(start, [1, 2]), [3, 4]) == chained(chained(start, (1, 2)), (3, 4))
    True
    >>> chained(start, [3, 4]) == chained(chained(start, [1, 2]), [3, 4])
    False
    """
    return blake2b(parent + packed(tokens), digest_size=_HASH_BYTES).digest()
