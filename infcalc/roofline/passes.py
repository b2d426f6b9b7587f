"""The time of one pass of a draft head: a small network known by its weights, on measured curves.

It reads its weights once, and the cache of every sequence: 4 kB per token for a head of Llama 3.1 8B, whose weights are
0.8 GB, so that long contexts and large batches count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.lowering.ops import OpKind
from infcalc.roofline.curves import collective_s, kernel_s
from infcalc.spec.efficiency import CollectiveKind

if TYPE_CHECKING:
    from infcalc.roofline.curves import GpuCurves

_BYTES_PER_VALUE = 2
"""What layers hand to each other is in 16 bit."""
_MESSAGES_PER_LAYER = 2
"""One after the mixer and one after the feed-forward part, as in the target."""
_KERNELS_PER_LAYER = 5
"""Matrix multiplications: queries, keys and values; output; gate and up; down; the projection into the layer."""


@frozen
class Head:
    """A network of ``num_layers`` layers of width ``hidden_size`` that multiplies with ``num_parameters`` per token."""

    num_parameters: float
    num_layers: int
    hidden_size: int
    bits_per_element: float = 16
    """Heads are published in 16 bit."""
    kv_bytes_per_token: float = 0.0
    """What it caches of each token."""


def head_pass_s(
    head: Head,
    curves: GpuCurves,
    *,
    tokens: float,
    cached_tokens: float = 0.0,
    num_ranks: int = 1,
    library: str | None = None,
) -> float:
    """Return the seconds of one pass over ``tokens`` tokens, its weights divided over ``num_ranks`` ranks.

    ``cached_tokens`` lie in the cache of all sequences together, and are read by the pass, divided likewise.

    No less than reading its weights at the full bandwidth: no curve is above it.

    Raises:
        UsageError: the GPU states no 16-bit peak.

    """
    curve = curves.kernel(OpKind.GEMM, weight_bits=head.bits_per_element)
    number = _KERNELS_PER_LAYER * head.num_layers + 1
    parameters = head.num_parameters / num_ranks / number
    multiplied_s = number * kernel_s(
        curve, tokens=tokens, flop=2 * parameters * tokens, num_bytes=parameters * head.bits_per_element / 8
    )
    read_s = kernel_s(
        curves.kernel(OpKind.ATTENTION_DECODE),
        tokens=tokens,
        flop=0.0,
        num_bytes=head.kv_bytes_per_token * cached_tokens / num_ranks,
    )
    message_s = collective_s(
        curves,
        CollectiveKind.ALL_REDUCE,
        num_ranks=num_ranks,
        message_bytes=_BYTES_PER_VALUE * head.hidden_size * tokens,
        library=library,
    )
    return multiplied_s + read_s + _MESSAGES_PER_LAYER * head.num_layers * message_s
