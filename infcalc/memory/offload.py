"""Memory of the host in place of the GPU's: weights that stay there (``--cpu-offload-gb``), and a second tier of KV.

Offloaded weights are read over the link in every step: they cost no GPU memory, and each step lasts at least
``moved bytes / link bandwidth``. A host tier of KV adds no running requests; it keeps the cache of those that are not
running, to be copied back instead of computed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.memory.weights import stage_tensors

if TYPE_CHECKING:
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism
    from infcalc.spec.weights import WeightQuantization


@frozen
class OffloadedWeights:
    """Weights of one GPU of a pipeline stage that lie in host memory, in bytes.

    Engines offload whole parameters of decoder layers, in order, until the allowance is reached: ``moved_bytes`` is at
    least the allowance and exceeds it by less than the largest parameter (``high_bytes``); never more than the layers
    hold. Embedding and head stay on the GPU.
    """

    stage: int
    moved_bytes: int
    high_bytes: int


def offloaded_weights(
    model: Model,
    parallelism: Parallelism,
    quantization: WeightQuantization | None = None,
    *,
    allowance_bytes: int,
    with_mtp: bool = False,
) -> tuple[OffloadedWeights, ...]:
    """Return what ``--cpu-offload-gb`` (GiB per GPU, despite its name) moves from a GPU of each pipeline stage.

    Worked example, Llama 3 70B in bf16 on one GPU with 55 GiB: 59,055,800,320 bytes move, up to one more matrix of
    470 MB with them. Source: vLLM pull 6317, ``maybe_offload_to_cpu``; SGLang has the same flag.
    """
    found: list[OffloadedWeights] = []
    for stage, tensors in enumerate(stage_tensors(model, parallelism, quantization, with_mtp=with_mtp)):
        layered = [(tensor, count) for tensor, count in tensors if tensor.layers]
        whole = sum(tensor.rank_bytes(parallelism) * count for tensor, count in layered)
        largest = max((tensor.rank_bytes(parallelism) for tensor, _ in layered), default=0)
        moved = min(whole, allowance_bytes)
        high = min(whole, moved + largest) if moved else 0
        found.append(OffloadedWeights(stage=stage, moved_bytes=moved, high_bytes=high))
    return tuple(found)


def link_time_s(moved_bytes: float, link_bytes_per_s: float) -> float:
    """Return the least time of a step that reads ``moved_bytes`` over a link.

    55 GiB over PCIe 5 at 55 GB/s take 1.07 s, so at batch 1 not even one token per second:

    >>> f"{link_time_s(55 * 2**30, 55e9):.2f}"
    '1.07'
    """
    return moved_bytes / link_bytes_per_s


def host_tokens(host_bytes: int, *, bytes_per_token: float) -> int:
    """Return the tokens that ``host_bytes`` (of all ranks together) keep.

    ``bytes_per_token`` is over all GPUs of the replica, replicated heads and latents included, for each rank stores its
    own. vLLM counts ``--kv-offloading-size`` over all ranks; SGLang's ``--hicache-size`` and TensorRT-LLM's
    ``host_cache_size`` are per rank.

    >>> host_tokens(64 * 2**30, bytes_per_token=327_680)
    209715
    """
    return int(host_bytes / bytes_per_token) if bytes_per_token > 0 else 0
