"""The KV pool of each GPU: what the engine's fraction, the weights and the stated overheads leave."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from infcalc.engines.rules import Band, FractionBase
from infcalc.frozen import frozen
from infcalc.memory.blocks import (
    PagePlan,
    Settings,
    blocks_of,
    decoding_blocks,
    decoding_bytes,
    held_back_bytes,
    paged_bytes,
    plan,
    sequences_in,
    state_slots,
    tokens_of,
    window_blocks,
)
from infcalc.memory.kv import kv_components, sequence_bytes
from infcalc.memory.overhead import activation_peak, cuda_graphs
from infcalc.memory.weights import besides_per_stage, loaded_per_stage, lora_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infcalc.engines.evidence import Evidence
    from infcalc.engines.rules import EngineRules
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism
    from infcalc.spec.weights import WeightQuantization


@frozen
class Additions:
    """What a deployment holds beside the model itself, and where its weights lie.

    ``weights_bytes`` replaces the computed weights of a rank where the checkpoint is not known (a figure from a log).
    """

    with_mtp: bool = False
    draft_bytes: int = 0
    """Weights of a separate draft model on a rank."""
    lora_rank: int = 0
    num_adapters: int = 1
    offload_bytes: int = 0
    """Weights of a rank that lie in host memory."""
    with_encoder: bool = True
    """The profiling run passes the largest picture through the tower of a multimodal model."""
    weights_bytes: int | None = None


NOTHING_ADDED = Additions()

_DEVIATION_SHARE = 0.8
"""Bands of the parts span all that was seen; of their combined deviation this share holds 72 to 92 % of the logged
pools, as bands are meant to."""


@frozen
class Budget:
    """The memory of one GPU of one pipeline stage, in bytes.

    ``kv_pool_bytes`` is what is left for KV (0 where nothing is: then ``missing_bytes`` says how much is lacking),
    between ``kv_pool_low_bytes`` and ``kv_pool_high_bytes``: each modelled part deviates on its own, so the root of the
    squared deviations counts. ``weights_bytes`` holds what ``draft_bytes``, ``lora_bytes`` and towers take of it, less
    what lies in host memory.

    Engines print the pool of one rank, mostly the first, and cut the blocks of all by that of the least: ``least_...``.
    """

    stage: int
    usable_bytes: int
    weights_bytes: int
    draft_bytes: int = 0
    lora_bytes: int = 0
    offload_bytes: int = 0
    loading_bytes: int = 0
    """Taken by loading besides the weights: rotary tables, idle ends of large tensors."""
    activation: Band
    non_torch: Band
    cuda_graph_bytes: int
    graphs: Band
    kv_pool_bytes: int
    kv_pool_low_bytes: int
    kv_pool_high_bytes: int
    missing_bytes: int
    missing_low_bytes: int
    missing_high_bytes: int
    behind_bytes: int = 0
    """By how much the least rank is expected to lie below the printed one."""
    behind_most_bytes: int = 0
    """And by how much it may."""

    @property
    def least_pool_bytes(self) -> int:
        """The pool of the least rank, which sets the blocks of all."""
        return max(0, self.least_left_bytes)

    @property
    def least_left_bytes(self) -> int:
        """The same, below zero where something is lacking before any KV."""
        return self.kv_pool_bytes - self.missing_bytes - self.behind_bytes

    @property
    def least_pool_low_bytes(self) -> int:
        """The low end of :attr:`least_pool_bytes`.

        Ranks of several machines differ independently of what the band holds; within one, the least is known to be
        lower.
        """
        below = self.kv_pool_bytes - self.kv_pool_low_bytes
        if self.behind_bytes:
            return max(0, self.kv_pool_bytes - round(math.hypot(below, self.behind_most_bytes)))
        return max(0, self.kv_pool_bytes - below - self.behind_most_bytes)

    @property
    def least_pool_high_bytes(self) -> int:
        """The high end of :attr:`least_pool_bytes`: no rank need lie below the others."""
        return self.kv_pool_high_bytes


def profile_tokens(rules: EngineRules, *, max_num_batched_tokens: int, max_model_len: int | None, given: bool) -> int:
    """Return the tokens of the profiling run.

    Where prefill is not chunked, a step must take the longest sequence whole: its length counts, unless the engine
    chunks such lengths by itself. ``given`` says that the user set ``max_num_batched_tokens``.
    """
    profile = rules.profile
    if given or not profile.unchunked or max_model_len is None:
        return max_num_batched_tokens
    if profile.chunk_from_tokens is not None and max_model_len > profile.chunk_from_tokens:
        return max_num_batched_tokens
    return max(max_model_len, 2048)


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
    additions: Additions = NOTHING_ADDED,
    score_cells: int = 0,
    flash: bool | None = None,
) -> tuple[Budget, ...]:
    """Return the budget of a GPU of each pipeline stage.

    ``score_cells`` and ``flash``: the context of a layer's scores where those are held, and whether they are not.

    The fraction means what the engine means by it (:class:`FractionBase`). Worked example, vLLM 0.33, Llama 3 70B in
    bf16 on four A100-80: 0.92 x 79.15 GiB - 32.9 weights - 0.5 activation - 1.3 buffers - 1.4 graphs = 36.8 GiB.
    """
    several = joined_gpus(model, parallelism) > gpu.max_per_machine
    share = rules.machines_spread_fraction if several else rules.rank_spread_fraction
    spread = round(share * gpu.cuda_total_bytes) if parallelism.tp * parallelism.pp > 1 else 0
    weights = loaded_per_stage(model, parallelism, rules, quantization, with_mtp=additions.with_mtp)
    besides = besides_per_stage(model, parallelism, rules, quantization)
    if additions.weights_bytes is not None:
        weights = tuple(additions.weights_bytes for _ in weights)
        besides = tuple(0 for _ in weights)
    adapters = 0
    if additions.lora_rank:
        adapters = lora_bytes(model, parallelism, rank=additions.lora_rank, num_adapters=additions.num_adapters)
        adapters //= parallelism.pp
    last = parallelism.pp - 1
    graphs = cuda_graphs(rules, max_num_seqs=max_num_seqs)
    moved = tuple(0 for _ in weights)
    if additions.offload_bytes:
        from infcalc.memory.offload import offloaded_weights  # noqa: PLC0415 - only with an offload

        allowance = additions.offload_bytes
        offloaded = offloaded_weights(model, parallelism, quantization, allowance_bytes=allowance)
        moved = tuple(part.moved_bytes for part in offloaded)
    found: list[Budget] = []
    for stage, (loaded, away) in enumerate(zip(weights, moved, strict=True)):
        activation = activation_peak(
            model,
            parallelism,
            rules,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            last_stage=stage == last,
            with_encoder=additions.with_encoder and stage == 0,
            score_cells=score_cells,
            flash=flash,
        )
        draft = additions.draft_bytes if stage == last else 0
        held = max(0, loaded + adapters + draft - away)
        found.append(
            _budget(
                stage=stage,
                gpu=gpu,
                rules=rules,
                fraction=fraction,
                weights_bytes=held,
                parts=(draft, adapters, away, besides[stage]),
                activation=activation,
                graphs=graphs,
                behind=(spread, 2 * spread) if several else (0, spread),
            )
        )
    return tuple(found)


def joined_gpus(model: Model, parallelism: Parallelism) -> int:
    """Return the GPUs that make one engine: without experts, attention-DP ranks are engines apart."""
    return parallelism.num_gpus if model.has_experts else parallelism.tp * parallelism.pp


def _budget(
    *,
    stage: int,
    gpu: Gpu,
    rules: EngineRules,
    fraction: float | None,
    weights_bytes: int,
    parts: tuple[int, int, int, int],
    activation: Band,
    graphs: Band,
    behind: tuple[int, int],
) -> Budget:
    share = 1.0 if fraction is None else fraction
    total = gpu.cuda_total_bytes
    buffers = _with_weights(rules, weights_bytes)

    held_bytes = weights_bytes + parts[3]

    def pool(activation_bytes: int, non_torch_bytes: int, graph_bytes: int) -> int:
        match rules.fraction_base:
            case FractionBase.TOTAL:
                return int(total * share) - held_bytes - activation_bytes - non_torch_bytes - graph_bytes
            case FractionBase.FREE_BEFORE_WEIGHTS:
                return int((total - non_torch_bytes) * share) - held_bytes
            case FractionBase.FREE_AFTER_WEIGHTS:
                free = total - held_bytes - activation_bytes - non_torch_bytes - graph_bytes
                # What is lacking is lacking in whole, not in the engine's share of it.
                return int(free * share) if free > 0 else free
            case FractionBase.NONE:
                return total - held_bytes - activation_bytes - non_torch_bytes
            case _:
                assert_never(rules.fraction_base)

    middle = (activation.value_bytes, buffers.value_bytes, graphs.value_bytes)
    lows = (activation.low_bytes, buffers.low_bytes, graphs.low_bytes)
    highs = (activation.high_bytes, buffers.high_bytes, graphs.high_bytes)
    left = pool(*middle)

    def deviation(ends: tuple[int, int, int]) -> float:
        alone = []
        for part in range(len(middle)):
            one = [ends[index] if index == part else value for index, value in enumerate(middle)]
            alone.append(pool(one[0], one[1], one[2]) - left)
        return combined_bytes(alone)

    least, most = round(left - deviation(highs)), round(left + deviation(lows))
    return Budget(
        stage=stage,
        usable_bytes=_usable_bytes(gpu, rules, fraction),
        weights_bytes=weights_bytes,
        draft_bytes=parts[0],
        lora_bytes=parts[1],
        offload_bytes=parts[2],
        loading_bytes=parts[3],
        activation=activation,
        non_torch=buffers,
        cuda_graph_bytes=graphs.value_bytes,
        graphs=graphs,
        kv_pool_bytes=max(0, left),
        kv_pool_low_bytes=max(0, least),
        kv_pool_high_bytes=max(0, most),
        missing_bytes=max(0, -left),
        missing_low_bytes=max(0, -most),
        missing_high_bytes=max(0, -least),
        behind_bytes=behind[0],
        behind_most_bytes=behind[1],
    )


def combined_bytes(deviations: Iterable[int]) -> float:
    """Return by how much a sum deviates whose modelled parts deviate by these bytes, each on its own."""
    return _DEVIATION_SHARE * math.hypot(*deviations)


def _with_weights(rules: EngineRules, weights_bytes: int) -> Band:
    """Return the buffers, with the share of the weights that counts as used by others on unified memory."""
    more = round(rules.non_torch_weight_fraction * weights_bytes)
    if not more:
        return rules.non_torch
    return replace(
        rules.non_torch,
        value_bytes=rules.non_torch.value_bytes + more,
        low_bytes=rules.non_torch.low_bytes + more // 2,
        high_bytes=rules.non_torch.high_bytes + more * 3 // 2,
    )


def _usable_bytes(gpu: Gpu, rules: EngineRules, fraction: float | None) -> int:
    """Return the bytes an engine gives itself where its fraction is of the total, else the whole total."""
    if rules.fraction_base is FractionBase.TOTAL and fraction is not None:
        return int(gpu.cuda_total_bytes * fraction)
    return gpu.cuda_total_bytes


@frozen
class Pages:
    """A pool in pages of one size: their bytes, how many are kept empty, and how many one sequence takes."""

    block_bytes: int
    null_blocks: int
    sequence_blocks: int
    paged_bytes: int
    """What of the pool is cut into pages."""
    num_state_slots: int | None = None
    """Sequences that a pool of recurrent states admits, beside that of the pages."""


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
    held_back_bytes: int = 0
    """Of the pool, what the engine keeps empty."""
    pages: Pages | None = None
    """How the engine cuts that pool, where its layers are of several kinds; None where bytes tell as much."""


def room(
    model: Model,
    kv: KvFormat,
    parallelism: Parallelism,
    stages: tuple[Budget, ...],
    *,
    rules: EngineRules,
    settings: Settings,
    context_tokens: int,
) -> Room:
    """Return how many sequences of ``context_tokens`` fit: the stage with the least room decides.

    The pool is cut as the engine cuts it: a context takes whole blocks, pages of one size where layers are of several
    kinds; under decode context parallelism a rank holds every ``dcp``-th token.
    """
    per_rank_tokens = -(-context_tokens // parallelism.dcp)
    found: list[Room] = []
    for budget in stages:
        parts = kv_components(model, kv, parallelism=parallelism, stage=budget.stage, with_mtp=settings.with_mtp)
        if not parts:
            continue
        cut = plan(model, kv, parallelism, rules, settings, stage=budget.stage)
        low, held, high = (
            sequences_in(pool_bytes, cut, context_tokens, rules, settings)
            for pool_bytes in (budget.least_pool_low_bytes, budget.least_pool_bytes, budget.least_pool_high_bytes)
        )
        # One kind of layer fills its pages whatever the length; several hold what whole sequences do.
        tokens = max(tokens_of(budget.least_pool_bytes, cut, settings), held * context_tokens)
        found.append(
            Room(
                sequences=held * parallelism.dp,
                sequences_low=low * parallelism.dp,
                sequences_high=high * parallelism.dp,
                tokens=tokens * parallelism.dp,
                stage=budget.stage,
                kv_bytes_per_gpu=sequence_bytes(parts, per_rank_tokens),
                blocked_bytes=decoding_bytes(cut, context_tokens, settings),
                held_back_bytes=min(held_back_bytes(cut, rules), budget.least_pool_bytes),
                pages=_pages(budget.least_pool_bytes, cut, context_tokens, rules, settings),
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


def _pages(pool_bytes: int, cut: PagePlan, context_tokens: int, rules: EngineRules, settings: Settings) -> Pages | None:
    if cut.decoding_bytes_per_request:
        return None
    blocks = blocks_of(pool_bytes, cut)
    taken = max(1, decoding_blocks(cut, context_tokens, rules, settings))
    return Pages(
        block_bytes=cut.block_bytes,
        null_blocks=min(rules.null_blocks, blocks),
        sequence_blocks=max(taken, window_blocks(cut, context_tokens)),
        paged_bytes=paged_bytes(pool_bytes, cut),
        num_state_slots=state_slots(pool_bytes, cut),
    )


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence  # noqa: PLC0415 - only for the page on accuracy

    return (
        Evidence(
            rule="band of the pool",
            figures=f"{_DEVIATION_SHARE} of the combined deviation: 72 to 92 % of the pools lie within (45 logs)",
            mechanism="the modelled parts deviate independently, and their bands span all that was seen of each",
            about=("_DEVIATION_SHARE",),
        ),
        Evidence(
            rule="ranks of one machine",
            figures="the least may lie 0.4 % of the card below the printed one",
            mechanism="other processes, contexts of other ranks and the display take more of some GPUs",
            by_hand=True,
            about=("rank_spread_fraction",),
        ),
        Evidence(
            rule="ranks on several machines",
            figures="their pools differ by 0.85 of 39.5 GiB and 2.1 of 121.6 GiB in 2 logs",
            mechanism="the rank with the least free memory sets the blocks, the first prints its pool",
            about=("machines_spread_fraction",),
        ),
    )
