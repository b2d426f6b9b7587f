"""Bytes of weights on each GPU: the inventory summed over pipeline stages and ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.lowering.tensors import LAST_STAGE_TENSORS, inventory
from infcalc.spec.layers import GroupedAttention, LatentAttention, Shard
from infcalc.spec.parallelism import stage_layers
from infcalc.spec.weights import LINEAR_ROLES, TensorRole, weight_format
from infcalc.units import MIB

if TYPE_CHECKING:
    from infcalc.engines.evidence import Evidence
    from infcalc.engines.rules import EngineRules
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


_TOWER_ELEMENT_BYTES = 2
_ABSORBED_ELEMENT_BYTES = 2
_PADDED_FORMATS = ("mxfp4",)
_LORA_ELEMENT_BYTES = 2


def loaded_per_stage(
    model: Model,
    parallelism: Parallelism,
    rules: EngineRules,
    quantization: WeightQuantization | None = None,
    *,
    with_mtp: bool = False,
) -> tuple[int, ...]:
    """Return what an engine holds of the weights on the fullest rank of each stage, once they are loaded.

    Beside the inventory: vision and audio towers in 16 bit, divided by TP, on the first stage; copies of the latent
    up-projection that engines unpack for decoding; experts in MXFP4 padded to what their kernels need. Less the input
    embedding where that stays in host memory: a tied one is on the GPU once, as the head.
    """
    stages = tuple(
        tuple((tensor, count) for tensor, count in stage if not _on_host(tensor, model, parallelism, rules, number))
        for number, stage in enumerate(stage_tensors(model, parallelism, quantization, with_mtp=with_mtp))
    )
    layers = stage_layers(model.num_layers, parallelism.pp)
    every = [run.layer for run in model.layers for _ in range(run.num_layers)]
    if with_mtp and model.mtp is not None:
        layers = (*layers[:-1], range(layers[-1].start, layers[-1].stop + model.mtp.num_layers))
        every += [model.mtp.layer] * model.mtp.num_layers
    towers = tower_bytes(model, parallelism, rules)
    return tuple(
        sum(_loaded_bytes(tensor, parallelism, rules) * count for tensor, count in stage)
        + sum(_absorbed_bytes(every[index].mixer, model, parallelism, rules) for index in held)
        + (towers if number == 0 else 0)
        for number, (stage, held) in enumerate(zip(stages, layers, strict=True))
    )


def besides_per_stage(
    model: Model, parallelism: Parallelism, rules: EngineRules, quantization: WeightQuantization | None = None
) -> tuple[int, ...]:
    """Return what loading the weights takes besides them on the fullest rank of each stage.

    The table of rotary positions, and what lies idle at the ends of large tensors. Engines print it with the weights:
    14.99 GiB for the 14.96 GiB of Llama 3.1 8B, 13.95 for the 13.76 of half of Qwen2.5 14B.
    """
    positions = _rotary_bytes(model, rules)
    stages = stage_tensors(model, parallelism, quantization)
    return tuple(_unused_bytes(stage, parallelism, rules) + positions for stage in stages)


def tower_bytes(model: Model, parallelism: Parallelism, rules: EngineRules) -> int:
    """Return the bytes of vision and audio towers on a rank; llama.cpp loads them only when asked to."""
    if rules.engine == "llama.cpp":
        return 0
    return -(-model.unmodelled_parameters * _TOWER_ELEMENT_BYTES // parallelism.tp)


def lora_bytes(model: Model, parallelism: Parallelism, *, rank: int, num_adapters: int = 1) -> int:
    """Return the buffers that an engine keeps for LoRA adapters: both factors of every linear layer, on a rank."""
    factors = sum(
        (tensor.rows + tensor.columns) * tensor.copies * tensor.multiplicity
        for tensor in inventory(model)
        if tensor.role in LINEAR_ROLES and tensor.role is not TensorRole.EXPERT
    )
    return factors * rank * num_adapters * _LORA_ELEMENT_BYTES // parallelism.tp


def _on_host(tensor: Tensor, model: Model, parallelism: Parallelism, rules: EngineRules, stage: int) -> bool:
    """Return whether a tensor of a stage is the input embedding that stays in host memory and is not the head there."""
    is_head = model.tied_embeddings and stage == parallelism.pp - 1
    return rules.host_embedding and tensor.name == "embedding" and not is_head


def _loaded_bytes(tensor: Tensor, parallelism: Parallelism, rules: EngineRules) -> int:
    """Return the bytes of one tensor in one layer, padded where the engine's kernels need it."""
    unpacked = dict(rules.loaded_as).get(tensor.format.name)
    if unpacked is not None:
        tensor = replace(tensor, format=weight_format(unpacked))
    plain = tensor.rank_bytes(parallelism)
    if tensor.role is not TensorRole.EXPERT or not tensor.format.name.startswith(_PADDED_FORMATS):
        return plain
    rows, columns, _ = tensor.rank_shape(parallelism)
    inner_is_rows = tensor.inner is Shard.ROWS
    inner, outer = (rows, columns) if inner_is_rows else (columns, rows)
    padded = _padded(inner, rules.expert_inner_multiple) * _padded(outer, rules.expert_input_multiple)
    return plain * padded // (inner * outer)


_FUSED = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}
"""Matrices that engines load into one tensor, by the last part of their names."""
_LARGE_BYTES = 10 * MIB
"""From this size on the allocator gives a tensor segments of its own."""
_SPLIT_BYTES = MIB
"""A rest of a segment above this is used for other tensors."""


def _unused_bytes(stage: tuple[tuple[Tensor, int], ...], parallelism: Parallelism, rules: EngineRules) -> int:
    """Return what lies idle at the ends of large tensors: segments are multiples of 2 MiB, small rests stay unused.

    Source: PyTorch ``CUDACachingAllocator`` (kMinLargeAlloc 10 MiB, kRoundLarge 2 MiB, kSmallSize 1 MiB). Engines that
    read the device's free memory count every started segment.
    """
    step = rules.allocation_bytes
    if not step:
        return 0
    fused: dict[tuple[str, tuple[int, ...]], int] = {}
    for tensor, _ in stage:
        head, _, last = tensor.name.rpartition(".")
        rows, columns, copies = tensor.rank_shape(parallelism)
        size = int(rows * columns * tensor.format.element_bits) // 8 * copies
        key = (f"{head}.{_FUSED.get(last, last)}", tensor.layers)
        fused[key] = fused.get(key, 0) + size
    counts = {tensor.layers: count for tensor, count in stage}
    idle = 0
    for (_, layers), size in fused.items():
        if size < _LARGE_BYTES:
            continue
        rest = -size % step
        if rest <= _SPLIT_BYTES or rules.whole_allocations:
            idle += rest * counts[layers]
    return idle


def _rotary_bytes(model: Model, rules: EngineRules) -> int:
    """Return the table of rotary positions that engines keep in 16 bit: one entry per position and rotated element."""
    if not rules.allocation_bytes:
        return 0
    for run in model.layers:
        match run.layer.mixer:
            case GroupedAttention(head_dim=width):
                return (model.max_context_tokens or 0) * min(width, _ROTARY_ELEMENTS) * _TOWER_ELEMENT_BYTES
            case LatentAttention(qk_rope_head_dim=width):
                return (model.max_context_tokens or 0) * width * _TOWER_ELEMENT_BYTES
            case _:
                pass
    return 0


_ROTARY_ELEMENTS = 128
"""Wider heads rotate a part of their elements."""


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _absorbed_bytes(mixer: object, model: Model, parallelism: Parallelism, rules: EngineRules) -> int:
    """Return the copies of latent projections that an engine keeps beside the stored ones, in one layer."""
    if not isinstance(mixer, LatentAttention):
        return 0
    heads = -(-mixer.num_heads // parallelism.tp)
    unpacked = heads * (mixer.qk_nope_head_dim + mixer.value_head_dim) * mixer.kv_lora_rank
    copies = rules.absorbed_latent_copies * unpacked * _ABSORBED_ELEMENT_BYTES
    if rules.absorbed_output:
        # One byte each where the checkpoint is in 8 bits: 0.7 stored the products in the checkpoint's own width.
        width = 1 if model.quantization is not None else _ABSORBED_ELEMENT_BYTES
        query = mixer.q_lora_rank or model.hidden_size
        copies += heads * mixer.kv_lora_rank * (model.hidden_size + query) * width
    return copies


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence  # noqa: PLC0415 - only for the page on accuracy

    return (
        Evidence(
            rule="weights as loaded",
            figures="31 logs print them",
            mechanism="inventory, rotary tables, idle ends of large tensors, unpacked MLA copies, padding, towers",
            read_in="PyTorch `CUDACachingAllocator`; model classes of the engines",
            about=("_LARGE_BYTES", "_SPLIT_BYTES", "_ROTARY_ELEMENTS", "allocation_bytes"),
        ),
    )
