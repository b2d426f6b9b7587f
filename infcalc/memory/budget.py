"""The KV pool of each GPU: what the engine's fraction, the exact weights and the stated overheads leave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from infcalc.engines.rules import FractionBase
from infcalc.frozen import frozen
from infcalc.memory.kv import kv_components, sequence_bytes
from infcalc.memory.overhead import activation_peak
from infcalc.memory.weights import weights_per_stage

if TYPE_CHECKING:
    from infcalc.engines.rules import Band, EngineRules
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism
    from infcalc.spec.weights import WeightQuantization


@frozen
class Budget:
    """The memory of one GPU of one pipeline stage, in bytes.

    ``kv_pool_bytes`` is what is left for KV (0 where nothing is: then ``missing_bytes`` says how much is lacking),
    between ``kv_pool_low_bytes`` and ``kv_pool_high_bytes`` when the modelled parts take their band's ends.
    """

    stage: int
    usable_bytes: int
    weights_bytes: int
    activation: Band
    non_torch: Band
    cuda_graph_bytes: int
    kv_pool_bytes: int
    kv_pool_low_bytes: int
    kv_pool_high_bytes: int
    missing_bytes: int


def budgets(
    model: Model,
    gpu: Gpu,
    parallelism: Parallelism,
    rules: EngineRules,
    *,
    fraction: float | None,
    quantization: WeightQuantization | None,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    with_mtp: bool = False,
) -> tuple[Budget, ...]:
    """Return the budget of a GPU of each pipeline stage.

    The fraction means what the engine means by it (:class:`FractionBase`). Worked example, vLLM 0.33, Llama 3 70B in
    bf16 on four A100-80: 0.92 x 79.15 GiB - 32.9 weights - 1.2 activation - 2.1 buffers - 0.6 graphs = 36.1 GiB.
    """
    activation = activation_peak(
        model,
        parallelism,
        rules,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    weights = weights_per_stage(model, parallelism, quantization, with_mtp=with_mtp)
    return tuple(
        _budget(
            stage=stage,
            gpu=gpu,
            rules=rules,
            fraction=fraction,
            weights_bytes=weights_bytes,
            activation=activation,
        )
        for stage, weights_bytes in enumerate(weights)
    )


def _budget(
    *, stage: int, gpu: Gpu, rules: EngineRules, fraction: float | None, weights_bytes: int, activation: Band
) -> Budget:
    def pool(*, activation_bytes: int, non_torch_bytes: int, graph_bytes: int) -> int:
        share = 1.0 if fraction is None else fraction
        total = gpu.cuda_total_bytes
        match rules.fraction_base:
            case FractionBase.TOTAL:
                return int(total * share) - weights_bytes - activation_bytes - non_torch_bytes - graph_bytes
            case FractionBase.FREE_BEFORE_WEIGHTS:
                return int((total - non_torch_bytes) * share) - weights_bytes
            case FractionBase.FREE_AFTER_WEIGHTS:
                free = total - weights_bytes - activation_bytes - non_torch_bytes - graph_bytes
                # What is lacking is lacking in whole, not in the engine's share of it.
                return int(free * share) if free > 0 else free
            case FractionBase.NONE:
                return total - weights_bytes - activation_bytes - non_torch_bytes
            case _:
                assert_never(rules.fraction_base)

    graphs = rules.cuda_graph_bytes
    buffers = rules.non_torch
    left = pool(activation_bytes=activation.value_bytes, non_torch_bytes=buffers.value_bytes, graph_bytes=graphs)
    # The band takes every modelled part at the same end at once: wide, and honest about what is not measured here.
    low = pool(activation_bytes=activation.high_bytes, non_torch_bytes=buffers.high_bytes, graph_bytes=2 * graphs)
    high = pool(activation_bytes=activation.low_bytes, non_torch_bytes=buffers.low_bytes, graph_bytes=graphs // 4)
    return Budget(
        stage=stage,
        usable_bytes=_usable_bytes(gpu, rules, fraction),
        weights_bytes=weights_bytes,
        activation=activation,
        non_torch=buffers,
        cuda_graph_bytes=graphs,
        kv_pool_bytes=max(0, left),
        kv_pool_low_bytes=max(0, low),
        kv_pool_high_bytes=max(0, high),
        missing_bytes=max(0, -left),
    )


def _usable_bytes(gpu: Gpu, rules: EngineRules, fraction: float | None) -> int:
    """Return the bytes an engine gives itself where its fraction is of the total, else the whole total."""
    if rules.fraction_base is FractionBase.TOTAL and fraction is not None:
        return int(gpu.cuda_total_bytes * fraction)
    return gpu.cuda_total_bytes


@frozen
class Room:
    """How many sequences fit, in memory terms alone.

    ``sequences`` of the replica (all attention-DP ranks), ``tokens`` they hold when the pool is full, ``stage`` whose
    pool ends first, ``kv_bytes_per_gpu`` of one sequence there, ``blocked_bytes`` of the whole blocks it takes.
    """

    sequences: int
    sequences_low: int
    sequences_high: int
    tokens: int
    stage: int
    kv_bytes_per_gpu: int
    blocked_bytes: int


def room(
    model: Model,
    kv: KvFormat,
    parallelism: Parallelism,
    stages: tuple[Budget, ...],
    *,
    context_tokens: int,
    block_tokens: int = 1,
    with_mtp: bool = False,
) -> Room:
    """Return how many sequences of ``context_tokens`` fit: the stage with the least room decides.

    A context takes whole blocks; under decode context parallelism a rank holds every ``dcp``-th token.
    """
    per_rank_tokens = -(-context_tokens // parallelism.dcp)
    blocked_tokens = -(-per_rank_tokens // block_tokens) * block_tokens
    found: list[Room] = []
    for budget in stages:
        parts = kv_components(model, kv, parallelism=parallelism, stage=budget.stage, with_mtp=with_mtp)
        needed = sequence_bytes(parts, blocked_tokens)
        if needed == 0:
            continue
        found.append(
            Room(
                sequences=budget.kv_pool_bytes // needed * parallelism.dp,
                sequences_low=budget.kv_pool_low_bytes // needed * parallelism.dp,
                sequences_high=budget.kv_pool_high_bytes // needed * parallelism.dp,
                tokens=budget.kv_pool_bytes * context_tokens // needed // block_tokens * block_tokens * parallelism.dp,
                stage=budget.stage,
                kv_bytes_per_gpu=sequence_bytes(parts, per_rank_tokens),
                blocked_bytes=needed,
            )
        )
    if not found:
        return Room(
            sequences=0, sequences_low=0, sequences_high=0, tokens=0, stage=0, kv_bytes_per_gpu=0, blocked_bytes=0
        )
    return replace(
        min(found, key=lambda stage: (stage.sequences, stage.tokens)),
        # Another stage may be the fullest at an end of the band.
        sequences_low=min(stage.sequences_low for stage in found),
        sequences_high=min(stage.sequences_high for stage in found),
    )
