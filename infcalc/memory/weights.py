"""Bytes of weights on each GPU: the inventory summed over pipeline stages and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.lowering.tensors import LAST_STAGE_TENSORS, inventory
from infcalc.spec.parallelism import stage_layers

if TYPE_CHECKING:
    from infcalc.lowering.tensors import Tensor
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism
    from infcalc.spec.weights import WeightQuantization


def weights_per_stage(
    model: Model,
    parallelism: Parallelism,
    quantization: WeightQuantization | None = None,
    *,
    with_mtp: bool = False,
) -> tuple[int, ...]:
    """Return the weight bytes of the fullest rank of each pipeline stage.

    The embedding lies on the first stage, final norm and head on the last; tied embeddings lie on both when they are
    not the same. MTP layers lie on the last stage, where engines share embedding and head with the decoder.
    ``quantization`` None means the checkpoint's own. Source: vLLM ``get_pp_indices`` and its model classes.
    """
    return tuple(
        sum(tensor.rank_bytes(parallelism) * count for tensor, count in stage)
        for stage in stage_tensors(model, parallelism, quantization, with_mtp=with_mtp)
    )


def stage_tensors(
    model: Model,
    parallelism: Parallelism,
    quantization: WeightQuantization | None = None,
    *,
    with_mtp: bool = False,
) -> tuple[tuple[tuple[Tensor, int], ...], ...]:
    """Return, for each pipeline stage, its tensors with the number of the stage's layers that have them."""
    tensors = inventory(model, quantization, with_mtp=with_mtp)
    layers = stage_layers(model.num_layers, parallelism.pp)
    last = parallelism.pp - 1
    stages: list[list[tuple[Tensor, int]]] = [[] for _ in layers]
    for tensor in tensors:
        if tensor.mtp:
            stages[last].append((tensor, tensor.multiplicity))
        elif tensor.layers:
            for stage, held in enumerate(layers):
                count = sum(1 for layer in tensor.layers if layer in held)
                if count:
                    stages[stage].append((tensor, count))
        else:
            stages[last if tensor.name in LAST_STAGE_TENSORS else 0].append((tensor, 1))
            if tensor.name == "embedding" and model.tied_embeddings and last:
                stages[last].append((tensor, 1))
    return tuple(tuple(stage) for stage in stages)


def weights_total_bytes(model: Model, quantization: WeightQuantization | None = None, *, with_mtp: bool = False) -> int:
    """Return the bytes of all weights, unsharded and without vocabulary padding: what a checkpoint holds of them.

    Llama 3.1 70B in bf16 is 70,553,706,496 parameters of 2 bytes: 141,107,412,992.
    """
    return sum(tensor.bytes_total for tensor in inventory(model, quantization, with_mtp=with_mtp))
