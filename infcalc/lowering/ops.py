"""THE work of one step: every op with its FLOP and its bytes, as one GPU rank does them.

What is counted, per rank:

- A matrix multiplication of m tokens with an n x k weight is 2 m n k FLOP; the weight is read once per step, the input
  and output activations once each. Shapes and bytes of weights are those of the inventory
  (:mod:`infcalc.lowering.tensors`).
- Attention multiplies queries with keys and probabilities with values over exactly the (query, key) pairs that the mask
  lets through; the cache is read once per sequence, by KV heads. MLA decodes in absorbed form (all heads share one
  latent) and prefills in expanded form (keys and values are made from the latents first).
- Routed experts: each rank reads the experts its tokens are expected to touch (:func:`experts_touched`).
- The language-model head works on sampled positions only; the input embedding is a gather of one row per token.
- Recurrent mixers read and write their state once per sequence.

Softmax, rotary embedding, short convolutions, sampling and the router's top-k are not counted: they are below a
percent of any step. Collectives (all-reduce, all-to-all, pipeline sends) are not ops yet. Under pipeline parallelism
the ops of all stages are listed unless one stage is asked for, each as one rank of its stage does it: the summed time
of all is the latency of one step through the pipeline.

Sources: Kaplan et al. 2020 (2 FLOP per weight and token); Dao et al. 2022, FlashAttention (IO of attention);
DeepSeek-V2 report, section 2.1 (latent attention and its absorbed form).
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.lowering.cache import (
    compressed_entry_bytes,
    grouped_entry_bytes,
    indexer_entry_bytes,
    kv_heads_on_rank,
    latent_entry_bytes,
    recurrent_state_bytes,
)
from infcalc.lowering.tensors import LAST_STAGE_TENSORS, inventory
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    LatentAttention,
    LayerRun,
    MoeFeedForward,
    Reach,
    RecurrentKind,
    RecurrentMixer,
    Shard,
)
from infcalc.spec.parallelism import Parallelism, stage_layers
from infcalc.spec.weights import TensorRole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.lowering.tensors import Tensor
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.layers import Indexer, Layer
    from infcalc.spec.model import Model
    from infcalc.spec.weights import WeightFormat, WeightQuantization

_WHOLE = Parallelism()
_BF16_KV = KV_FORMATS["bf16"]
_BYTE_BITS = 8
_ACTIVATION_BYTES = 2
"""Activations travel in 16 bit; kernels for narrower types quantize them on the fly."""
_LOGIT_BYTES = 4


class OpKind(StrEnum):
    """What an op does."""

    EMBEDDING = "embedding"
    NORM = "norm"
    GEMM = "gemm"
    ATTENTION_PREFILL = "attention_prefill"
    ATTENTION_DECODE = "attention_decode"
    INDEXER = "indexer"
    RECURRENT = "recurrent"
    ROUTER = "router"
    MOE = "moe"
    ACTIVATION = "activation"
    LM_HEAD = "lm_head"


class AttentionIo(StrEnum):
    """What attention moves beside the cache."""

    FLASH = "flash"
    """Queries, keys and values in, output out."""
    NAIVE = "naive"
    """Scores and probabilities are written to memory and read back too: 4 passes over heads x queries x keys."""


class ElementwiseIo(StrEnum):
    """Whether norms, residual additions and activation functions move data of their own."""

    FUSED = "fused"
    """They ride in the neighbouring matrix multiplications, whose inputs and outputs are counted: the ideal."""
    SEPARATE = "separate"
    """One kernel each: norm and residual read 2 activations and write 2, a gated activation reads 2 and writes 1."""


@frozen
class Op:
    """One kind of work of a step, summed over the ``num_layers`` layers that do it, on one rank.

    ``precision`` is what its weights and activations allow the multiplication to run in (``bf16``, ``fp8``, ``int8``,
    ``fp4`` ...); whether the GPU has units for it is a question of price. ``kv_read_bytes`` and ``kv_write_bytes`` are
    the cache's, recurrent state included.
    """

    kind: OpKind
    name: str
    num_layers: int
    precision: str
    flop: float = 0
    weight_bytes: float = 0
    activation_bytes: float = 0
    kv_read_bytes: float = 0
    kv_write_bytes: float = 0

    @property
    def total_bytes(self) -> float:
        """All bytes the op moves to and from memory."""
        return self.weight_bytes + self.activation_bytes + self.kv_read_bytes + self.kv_write_bytes


@frozen
class Prefill:
    """``num_sequences`` sequences that each bring ``new_tokens`` of their prompt, after ``cached_tokens`` of it.

    ``sampled_positions`` per sequence: 1 when the prompt ends in this step, 0 for an earlier chunk.
    """

    new_tokens: int
    cached_tokens: int = 0
    num_sequences: int = 1
    sampled_positions: int = 1


@frozen
class Decode:
    """``num_sequences`` sequences with ``context_tokens`` in their cache that each compute ``new_tokens`` more.

    ``new_tokens`` above 1 is the verification of a draft: every position is sampled.
    """

    context_tokens: int
    num_sequences: int = 1
    new_tokens: int = 1


@frozen
class StepShape:
    """What one step works on. Under attention data parallelism: the sequences of one of its ranks, all being alike."""

    prefills: tuple[Prefill, ...] = ()
    decodes: tuple[Decode, ...] = ()

    def __post_init__(self) -> None:
        """Refuse counts that no step can have."""
        counts = [
            *((part.new_tokens, part.cached_tokens, part.num_sequences) for part in self.prefills),
            *((part.new_tokens, part.context_tokens, part.num_sequences) for part in self.decodes),
        ]
        if not counts or any(new < 1 or before < 0 or num < 1 for new, before, num in counts):
            raise UsageError(
                "a step needs sequences that each compute at least one token after zero or more",
                hint="batch, prompt and context are whole numbers from 1",
            )

    @property
    def num_tokens(self) -> int:
        """Tokens that pass through every layer."""
        parts: tuple[Prefill | Decode, ...] = (*self.prefills, *self.decodes)
        return sum(part.num_sequences * part.new_tokens for part in parts)

    @property
    def num_sequences(self) -> int:
        """Sequences in the step."""
        parts: tuple[Prefill | Decode, ...] = (*self.prefills, *self.decodes)
        return sum(part.num_sequences for part in parts)

    @property
    def num_sampled(self) -> int:
        """Positions that need logits."""
        return sum(part.num_sequences * part.sampled_positions for part in self.prefills) + sum(
            part.num_sequences * part.new_tokens for part in self.decodes
        )


def experts_touched(num_local: int, num_experts: int, experts_per_token: int, num_tokens: int) -> float:
    """Return how many of a rank's ``num_local`` experts at least one of ``num_tokens`` tokens is expected to need.

    E_local * (1 - (1 - k / E)**T), for routing that is even over all E experts; T counts the tokens of all ranks that
    share the experts. It is exact at one token and saturates at E_local.

    >>> [round(experts_touched(8, 8, 2, batch), 2) for batch in (1, 2, 4, 16)]
    [2.0, 3.5, 5.47, 7.92]
    >>> [round(experts_touched(16, 128, 8, tokens), 2) for tokens in (1, 8, 32)]
    [1.0, 6.45, 13.97]
    """
    return num_local * (1 - (1 - experts_per_token / num_experts) ** num_tokens)


def attended_pairs(new_tokens: int, cached_tokens: int, window_tokens: int | None = None) -> int:
    """Return the (query, key) pairs of causal attention: each new token sees what came before it, and itself.

    Without a window: n c + n (n + 1) / 2. With one, a query sees at most ``window_tokens`` keys, itself included.

    >>> attended_pairs(4096, 0), attended_pairs(1, 4096), attended_pairs(4, 10, 8)
    (8390656, 4097, 32)
    """
    end = cached_tokens + new_tokens
    if window_tokens is None:
        return _triangle(end) - _triangle(cached_tokens)
    growing_end, growing_start = min(end, window_tokens), min(cached_tokens, window_tokens)
    saturated = (end - growing_end) - (cached_tokens - growing_start)
    return _triangle(growing_end) - _triangle(growing_start) + saturated * window_tokens


def chunked_pairs(new_tokens: int, cached_tokens: int, chunk_tokens: int) -> int:
    """Return the (query, key) pairs when a query sees only the tokens of its own chunk up to itself.

    >>> chunked_pairs(8, 0, 4), chunked_pairs(1, 4, 4)
    (20, 1)
    """

    def until(position: int) -> int:
        chunks, rest = divmod(position, chunk_tokens)
        return chunks * _triangle(chunk_tokens) + _triangle(rest)

    return until(cached_tokens + new_tokens) - until(cached_tokens)


def pooled_pairs(new_tokens: int, cached_tokens: int, pool_tokens: int, limit: int | None = None) -> int:
    """Return the (query, entry) pairs when ``pool_tokens`` tokens make one entry and a query sees whole ones only.

    At most ``limit`` entries per query.

    >>> pooled_pairs(8, 0, 4), pooled_pairs(8, 0, 4, 1), pooled_pairs(100, 900, 1) == attended_pairs(100, 900)
    (6, 5, True)
    """

    def until(position: int) -> int:
        whole = position if limit is None else min(position, limit * pool_tokens)
        quotient, rest = divmod(whole, pool_tokens)
        saturated = 0 if limit is None else (position - whole) * limit
        return pool_tokens * _triangle(quotient - 1) + quotient * (rest + 1) + saturated

    return until(cached_tokens + new_tokens) - until(cached_tokens)


def operations(
    model: Model,
    shape: StepShape,
    *,
    parallelism: Parallelism = _WHOLE,
    kv: KvFormat = _BF16_KV,
    quantization: WeightQuantization | None = None,
    attention_io: AttentionIo = AttentionIo.FLASH,
    elementwise_io: ElementwiseIo = ElementwiseIo.FUSED,
    busy_dp_ranks: int | None = None,
    tensors: tuple[Tensor, ...] | None = None,
    stage: int | None = None,
) -> tuple[Op, ...]:
    """Return the ops of one step, as the fullest rank does them: of all pipeline stages, or of ``stage`` alone.

    ``busy_dp_ranks`` attention-DP ranks have such a step (None: all of them); experts meet the tokens of all.
    ``tensors`` is the model's inventory where the caller has it already, else it is made from ``quantization``
    (None: the checkpoint's own). Ops of layers that are alike are one op.

    Raises:
        UsageError: a format of the quantization is unknown.

    """
    if tensors is None:
        tensors = inventory(model, quantization)
    step = _Step(
        shape=shape,
        parallelism=parallelism,
        kv=kv,
        attention_io=attention_io,
        elementwise_io=elementwise_io,
        hidden_size=model.hidden_size,
        routed_tokens=shape.num_tokens * (parallelism.dp if busy_dp_ranks is None else busy_dp_ranks),
    )
    held = range(model.num_layers) if stage is None else stage_layers(model.num_layers, parallelism.pp)[stage]
    layers, place_of = _distinct_layers(model, held)
    inside: list[list[Tensor]] = [[] for _ in layers]
    first: list[Op] = []
    last: list[Op] = []
    for tensor in _placed(model, tensors, held):
        if tensor.layers:
            inside[place_of[tensor.layers[0]]].append(tensor)
        elif tensor.role is TensorRole.LM_HEAD:
            last.extend(step.lm_head(tensor))
        else:
            first.extend(step.outside(tensor))
    for (layer, num_layers), members in zip(layers, inside, strict=True):
        first.extend(step.layer(layer, num_layers, members))
    return (*first, *last)


def mtp_as_model(model: Model) -> Model | None:
    """Return the multi-token-prediction layer of ``model`` as a one-layer model of its own, None without any.

    One draft step runs that layer, the weights beside it and the shared head: its ops come from the same place as the
    target's. Embedding and head are the target's, so that the weights of this model are not what drafting adds.
    """
    if model.mtp is None:
        return None
    quantization = model.quantization
    if quantization is not None:
        # MTP layers are numbered after the decoder's.
        kept = [
            rule if rule.layers is None else replace(rule, layers=(0,))
            for rule in quantization.rules
            if rule.layers is None or model.num_layers in rule.layers
        ]
        quantization = replace(quantization, rules=tuple(kept))
    layer = replace(model.mtp.layer, extras=(*model.mtp.layer.extras, *model.mtp.extras))
    return replace(
        model,
        name=f"{model.name} MTP",
        layers=(LayerRun(num_layers=1, layer=layer),),
        extras=(),
        mtp=None,
        quantization=quantization,
    )


# The parts of a projection that engines compute as one multiplication: the input is read once for all of them.
_FUSED = {
    "q": "qkv",
    "k": "qkv",
    "v": "qkv",
    "q_a": "qkv_a",
    "kv_a": "qkv_a",
    "gate": "gate_up",
    "up": "gate_up",
    "shared.gate": "shared.gate_up",
    "shared.up": "shared.gate_up",
    "experts.gate": "experts.gate_up",
    "experts.up": "experts.gate_up",
}
_GATHERED = frozenset({TensorRole.EMBEDDING, TensorRole.POSITION})
_VECTORS = frozenset({TensorRole.NORM, TensorRole.BIAS, TensorRole.RECURRENT_STATE})
# What a last pipeline stage has beside layers and head (vLLM, its model classes); the rest lies on the first.
# FLOP per state element and token: decay 1, rank-one update 2, read-out 2; a delta rule reads once more (2).
_STATE_FLOP = {
    RecurrentKind.MAMBA1: 5,
    RecurrentKind.MAMBA2: 5,
    RecurrentKind.GATED_DELTA_NET: 7,
    RecurrentKind.KIMI_DELTA: 7,
    RecurrentKind.LIGHTNING: 5,
}


@frozen
class _Step:
    """Everything the ops of a step share."""

    shape: StepShape
    parallelism: Parallelism
    kv: KvFormat
    attention_io: AttentionIo
    elementwise_io: ElementwiseIo
    hidden_size: int
    routed_tokens: int
    """Tokens of all attention-DP ranks: what the experts meet."""

    def outside(self, tensor: Tensor) -> Iterator[Op]:
        """Tensors outside the layers: tables are gathered from, the rest works on every token."""
        if tensor.role in _GATHERED:
            yield self._gather(tensor)
        elif _is_vector(tensor):
            yield self._vectors(tensor.name, [tensor])
        else:
            yield self._gemm(OpKind.GEMM, tensor.name, [tensor], self.shape.num_tokens)

    def lm_head(self, tensor: Tensor) -> Iterator[Op]:
        """Logits of the sampled positions, in 32 bit."""
        if self.shape.num_sampled:
            logits = _LOGIT_BYTES
            yield self._gemm(OpKind.LM_HEAD, "lm_head", [tensor], self.shape.num_sampled, output_bytes=logits)

    def layer(self, layer: Layer, num_layers: int, tensors: list[Tensor]) -> Iterator[Op]:
        """Ops of ``num_layers`` equal layers: their matrix multiplications, then what their mixer does."""
        groups: dict[tuple[str, str, tuple[int, ...]], list[Tensor]] = {}
        vectors: list[Tensor] = []
        for tensor in tensors:
            if tensor.role in _GATHERED:
                yield self._gather(tensor)
            elif _is_vector(tensor):
                vectors.append(tensor)
            else:
                label = _FUSED.get(tensor.name, tensor.name)
                groups.setdefault((label, tensor.format.name, tensor.layers), []).append(tensor)
        if vectors:
            yield self._norms(layer, num_layers, vectors)
        for (label, _, _), members in groups.items():
            name = label if len(members) > 1 else members[0].name
            yield self._linear(layer, name, members)
        yield from self._mixer(layer, num_layers)
        yield from self._activation(layer, num_layers)

    def _linear(self, layer: Layer, name: str, members: list[Tensor]) -> Op:
        match members[0].role:
            case TensorRole.EXPERT:
                return self._experts(name, members)
            case TensorRole.ROUTER:
                return self._gemm(OpKind.ROUTER, name, members, self.shape.num_tokens)
            case _:
                tokens = self.shape.num_tokens
                if name == "kv_b" and isinstance(layer.mixer, LatentAttention) and not _absorbs_prefill(layer.mixer):
                    # Expanded prefill makes keys and values of the cached prefix again.
                    tokens += sum(part.num_sequences * part.cached_tokens for part in self.shape.prefills)
                return self._gemm(OpKind.GEMM, name, members, tokens)

    def _gemm(
        self, kind: OpKind, name: str, members: list[Tensor], tokens: int, *, output_bytes: int = _ACTIVATION_BYTES
    ) -> Op:
        flop = weight_bytes = outputs = inputs = 0
        for tensor in members:
            rows, columns, copies = tensor.rank_shape(self.parallelism)
            flop += 2 * tokens * rows * columns * copies
            outputs += rows * copies
            inputs = max(inputs, columns)
            weight_bytes += tensor.rank_bytes(self.parallelism)
        num_layers = members[0].multiplicity
        return Op(
            kind=kind,
            name=name,
            num_layers=num_layers,
            precision=_compute_precision(members[0].format),
            flop=flop * num_layers,
            weight_bytes=weight_bytes * num_layers,
            activation_bytes=tokens * (inputs * _ACTIVATION_BYTES + outputs * output_bytes) * num_layers,
        )

    def _experts(self, name: str, members: list[Tensor]) -> Op:
        """Routed experts: the tokens of all attention-DP ranks meet the experts of this rank."""
        first = members[0]
        tokens = self.routed_tokens
        assignments = tokens * first.active_copies / self.parallelism.ep
        flop = weight_bytes = outputs = 0.0
        inputs = 0
        for tensor in members:
            rows, columns, copies = tensor.rank_shape(self.parallelism)
            touched = experts_touched(copies, tensor.copies, tensor.active_copies, tokens)
            flop += 2 * assignments * rows * columns
            outputs += rows
            inputs = max(inputs, columns)
            weight_bytes += tensor.rank_bytes(self.parallelism) / copies * touched
        num_layers = first.multiplicity
        return Op(
            kind=OpKind.MOE,
            name=name,
            num_layers=num_layers,
            precision=_compute_precision(first.format),
            flop=flop * num_layers,
            weight_bytes=weight_bytes * num_layers,
            activation_bytes=assignments * (inputs + outputs) * _ACTIVATION_BYTES * num_layers,
        )

    def _gather(self, tensor: Tensor) -> Op:
        tokens = self.shape.num_tokens
        # A split table answers each token on one rank; every rank then holds the row.
        share = self.parallelism.tp if tensor.shard is Shard.VOCABULARY else 1
        return Op(
            kind=OpKind.EMBEDDING,
            name=tensor.name,
            num_layers=tensor.multiplicity,
            precision=_compute_precision(tensor.format),
            weight_bytes=tokens * tensor.columns * tensor.format.bits / _BYTE_BITS / share * tensor.multiplicity,
            activation_bytes=tokens * tensor.columns * _ACTIVATION_BYTES * tensor.multiplicity,
        )

    def _vectors(self, name: str, vectors: list[Tensor]) -> Op:
        weight_bytes = 0.0
        for tensor in vectors:
            share = 1.0
            if tensor.shard is Shard.EXPERTS:
                # Biases of experts that no token meets are not read.
                share = experts_touched(1, tensor.copies, tensor.active_copies, self.routed_tokens)
            weight_bytes += tensor.rank_bytes(self.parallelism) * tensor.multiplicity * share
        return Op(
            kind=OpKind.NORM,
            name=name,
            num_layers=vectors[0].multiplicity,
            precision="bf16",
            weight_bytes=weight_bytes,
        )

    def _norms(self, layer: Layer, num_layers: int, vectors: list[Tensor]) -> Op:
        op = self._vectors("norms and biases", vectors)
        moved = 0
        if self.elementwise_io is ElementwiseIo.SEPARATE:
            # Norm and residual addition in one kernel: two activations in, two out.
            moved = 4 * layer.num_norms * self.shape.num_tokens * self.hidden_size * _ACTIVATION_BYTES * num_layers
        return Op(
            kind=op.kind,
            name=op.name,
            num_layers=num_layers,
            precision=op.precision,
            weight_bytes=op.weight_bytes,
            activation_bytes=moved,
        )

    def _activation(self, layer: Layer, num_layers: int) -> Iterator[Op]:
        if self.elementwise_io is ElementwiseIo.FUSED or layer.feed_forward is None:
            return
        tp, tokens = self.parallelism.tp, self.shape.num_tokens
        match layer.feed_forward:
            case DenseFeedForward(width=width, gated=gated):
                elements = tokens * width / tp
            case MoeFeedForward(gated=gated) as block:
                routed = tokens * block.experts_per_token * block.expert_width / tp
                elements = routed + tokens * block.shared_width / tp
            case _:
                assert_never(layer.feed_forward)
        yield Op(
            kind=OpKind.ACTIVATION,
            name="activation function",
            num_layers=num_layers,
            precision="bf16",
            activation_bytes=elements * (3 if gated else 2) * _ACTIVATION_BYTES * num_layers,
        )

    def _mixer(self, layer: Layer, num_layers: int) -> Iterator[Op]:
        match layer.mixer:
            case None:
                return
            case GroupedAttention() as mixer:
                yield from self._grouped(mixer, num_layers)
                yield from self._indexer(mixer.indexer, num_layers)
            case LatentAttention() as mixer:
                yield from self._latent(mixer, num_layers)
                yield from self._indexer(mixer.indexer, num_layers)
            case CompressedAttention() as mixer:
                yield from self._compressed(mixer, num_layers)
                yield from self._indexer(mixer.indexer, num_layers)
            case RecurrentMixer() as mixer:
                yield self._recurrent(mixer, num_layers)
            case _:
                assert_never(layer.mixer)

    def _grouped(self, mixer: GroupedAttention, num_layers: int) -> Iterator[Op]:
        tp = self.parallelism.tp
        heads = -(-mixer.num_heads // tp)
        kv_heads = kv_heads_on_rank(mixer.num_kv_heads, tp)
        value_dim = mixer.value_head_dim or mixer.head_dim
        entry_bytes = grouped_entry_bytes(mixer, self.kv, tp=tp)
        width = mixer.head_dim + value_dim
        for kind, parts in self._phases():
            total = _Attention()
            for sequences, new, cached in parts:
                decodes = kind is OpKind.ATTENTION_DECODE
                pairs, seen = _sight(mixer, new, cached, decodes=decodes)
                # A layer without a cache of its own finds the new keys and values in that of another.
                read, written, own_kv = (seen + new, 0, 0) if mixer.shares_kv else (seen, new, kv_heads * width)
                total.add(
                    sequences,
                    flop=2 * pairs * heads * width,
                    read=read * entry_bytes,
                    write=written * entry_bytes,
                    moved=new * (heads * width + own_kv),
                    scores=heads * new * (seen + new),
                )
            yield self._attention(kind, f"attention ({mixer.reach.value})", num_layers, total)

    def _latent(self, mixer: LatentAttention, num_layers: int) -> Iterator[Op]:
        heads = -(-mixer.num_heads // self.parallelism.tp)
        rank, rope = mixer.kv_lora_rank, mixer.qk_rope_head_dim
        entry_bytes = latent_entry_bytes(mixer, self.kv)
        topk = mixer.indexer.topk_tokens if mixer.indexer else None
        for kind, parts in self._phases():
            decodes = kind is OpKind.ATTENTION_DECODE
            absorbed = decodes or _absorbs_prefill(mixer)
            key_dim = rank + rope if absorbed else mixer.qk_nope_head_dim + rope
            value_dim = rank if absorbed else mixer.value_head_dim
            total = _Attention()
            for sequences, new, cached in parts:
                read = _selected(cached, new, topk) if topk and decodes else cached
                # Expanded keys and values of every head are read; the shared latent comes from the cache.
                expanded = 0 if absorbed else (new + cached) * heads * (key_dim + value_dim)
                total.add(
                    sequences,
                    flop=2 * attended_pairs(new, cached, topk) * heads * (key_dim + value_dim),
                    read=read * entry_bytes,
                    write=new * entry_bytes,
                    moved=new * heads * (key_dim + value_dim) + expanded,
                    scores=heads * new * (read + new),
                )
            yield self._attention(
                kind, f"attention (latent, {'absorbed' if absorbed else 'expanded'})", num_layers, total
            )

    def _compressed(self, mixer: CompressedAttention, num_layers: int) -> Iterator[Op]:
        heads = -(-mixer.num_heads // self.parallelism.tp)
        entry_bytes = compressed_entry_bytes(mixer, self.kv)
        topk = mixer.indexer.topk_tokens if mixer.indexer else None
        for kind, parts in self._phases():
            total = _Attention()
            for sequences, new, cached in parts:
                pairs = attended_pairs(new, cached, mixer.window_tokens)
                read = min(cached, mixer.window_tokens - 1)
                written = float(new)
                if mixer.compression:
                    pairs += pooled_pairs(new, cached, mixer.compression, topk)
                    entries = cached // mixer.compression
                    read += min(entries, topk * new) if topk and kind is OpKind.ATTENTION_DECODE else entries
                    written += new / mixer.compression
                total.add(
                    sequences,
                    # An entry is key and value of every head.
                    flop=2 * pairs * heads * 2 * mixer.entry_dim,
                    read=read * entry_bytes,
                    write=written * entry_bytes,
                    moved=new * (2 * heads + 1) * mixer.entry_dim,
                    scores=heads * new * (read + new),
                )
            yield self._attention(kind, "attention (compressed)", num_layers, total)

    def _attention(self, kind: OpKind, name: str, num_layers: int, total: _Attention) -> Op:
        moved = total.moved
        if self.attention_io is AttentionIo.NAIVE:
            # Scores are written, read by the softmax, written as probabilities and read again.
            moved += 4 * total.scores
        # Decode context parallelism spreads the positions of a cache over ranks that would hold copies of it.
        dcp = self.parallelism.dcp
        return Op(
            kind=kind,
            name=name,
            num_layers=num_layers,
            precision="bf16",
            flop=total.flop * num_layers,
            activation_bytes=moved * _ACTIVATION_BYTES * num_layers,
            kv_read_bytes=total.read / dcp * num_layers,
            kv_write_bytes=total.write / dcp * num_layers,
        )

    def _indexer(self, indexer: Indexer | None, num_layers: int) -> Iterator[Op]:
        """Scores of every cached key by the indexer's heads, which each rank computes in full."""
        if indexer is None or indexer.shared:
            return
        entry_bytes = indexer_entry_bytes(indexer)
        pool = indexer.pool_tokens
        flop = read = write = moved = 0.0
        for _, parts in self._phases():
            for sequences, new, cached in parts:
                pairs = pooled_pairs(new, cached, pool)
                flop += sequences * 2 * pairs * indexer.num_heads * indexer.head_dim
                read += sequences * (cached // pool) * entry_bytes
                write += sequences * new / pool * entry_bytes
                moved += sequences * new * indexer.num_heads * indexer.head_dim
        yield Op(
            kind=OpKind.INDEXER,
            name="indexer scores",
            num_layers=num_layers,
            precision="fp8" if indexer.key_bits == _BYTE_BITS else "bf16",
            flop=flop * num_layers,
            activation_bytes=moved * _ACTIVATION_BYTES * num_layers,
            kv_read_bytes=read * num_layers,
            kv_write_bytes=write * num_layers,
        )

    def _recurrent(self, mixer: RecurrentMixer, num_layers: int) -> Op:
        tp = self.parallelism.tp
        state_bytes = recurrent_state_bytes(mixer, tp=tp)
        sequences = self.shape.num_sequences
        flop = _STATE_FLOP[mixer.recurrent] * mixer.state_elements * self.shape.num_tokens / tp
        return Op(
            kind=OpKind.RECURRENT,
            name=f"state update ({mixer.recurrent.value})",
            num_layers=num_layers,
            precision="bf16",
            flop=flop * num_layers,
            kv_read_bytes=sequences * state_bytes * num_layers,
            kv_write_bytes=sequences * state_bytes * num_layers,
        )

    def _phases(self) -> Iterator[tuple[OpKind, list[tuple[int, int, int]]]]:
        """Yield each phase there is, its sequences as (number, new tokens, cached tokens)."""
        if self.shape.prefills:
            prefills = [(part.num_sequences, part.new_tokens, part.cached_tokens) for part in self.shape.prefills]
            yield OpKind.ATTENTION_PREFILL, prefills
        if self.shape.decodes:
            decodes = [(part.num_sequences, part.new_tokens, part.context_tokens) for part in self.shape.decodes]
            yield OpKind.ATTENTION_DECODE, decodes


class _Attention:
    """Running sums of one attention op: FLOP, cache bytes, activation elements and score elements."""

    __slots__ = ("flop", "moved", "read", "scores", "write")

    def __init__(self) -> None:
        self.flop = self.read = self.write = self.moved = self.scores = 0.0

    def add(self, sequences: int, *, flop: float, read: float, write: float, moved: float, scores: float) -> None:
        self.flop += sequences * flop
        self.read += sequences * read
        self.write += sequences * write
        self.moved += sequences * moved
        self.scores += sequences * scores


def _sight(mixer: GroupedAttention, new: int, cached: int, *, decodes: bool) -> tuple[int, int]:
    """Return the (query, key) pairs and the cached tokens that are read: a query is itself one key of its window."""
    topk = mixer.indexer.topk_tokens if mixer.indexer else None
    if topk is not None:
        return attended_pairs(new, cached, topk), _selected(cached, new, topk) if decodes else cached
    window = mixer.window_tokens
    if window is None or mixer.reach is Reach.FULL:
        return attended_pairs(new, cached), cached
    if mixer.reach is Reach.CHUNKED and not decodes:
        return chunked_pairs(new, cached, window), cached % window
    # A decoding chunk is priced when it is full: a round context would otherwise fall on an empty one.
    return attended_pairs(new, cached, window), min(cached, window - 1)


def _selected(cached: int, new: int, topk: int) -> int:
    """Return the cached tokens that ``new`` queries read which select ``topk`` tokens each, itself among them."""
    return min(cached, (topk - 1) * new)


def _is_vector(tensor: Tensor) -> bool:
    """Tell whether a tensor works element by element: it is read, and multiplies no matrix."""
    return tensor.columns == 1 or tensor.role in _VECTORS


def _absorbs_prefill(mixer: LatentAttention) -> bool:
    """Sparse attention prefills in absorbed form: each query picks other latents, which are not worth expanding."""
    return mixer.indexer is not None


def _compute_precision(form: WeightFormat) -> str:
    """Return the precision a multiplication with weights of ``form`` is meant to run in."""
    integer = form.name.startswith("int")
    match form.compute_bits:
        case 32:
            return "fp32"
        case 8:
            return "int8" if integer else "fp8"
        case 4:
            return "int4" if integer else "fp4"
        case _:
            return "bf16"


def _placed(model: Model, tensors: tuple[Tensor, ...], held: range) -> Iterator[Tensor]:
    """Yield the tensors that a stage with the layers ``held`` works with; tied embeddings serve as head on the last."""
    is_first, is_last = held.start == 0, held.stop == model.num_layers
    whole = is_first and is_last
    for tensor in tensors:
        if tensor.mtp:
            continue
        if tensor.layers:
            mine = tensor.layers if whole else tuple(layer for layer in tensor.layers if layer in held)
            if mine:
                yield tensor if whole else replace(tensor, layers=mine)
            continue
        at_end = tensor.name in LAST_STAGE_TENSORS
        if (at_end and is_last) or (is_first and not at_end):
            yield tensor
        if is_last and model.tied_embeddings and tensor.name == "embedding":
            yield replace(tensor, role=TensorRole.LM_HEAD)


def _distinct_layers(model: Model, held: range) -> tuple[list[tuple[Layer, int]], dict[int, int]]:
    """Return the different layers among those ``held`` with their number, and which of them each layer index is."""
    numbers: dict[Layer, int] = {}
    counts: list[int] = []
    place_of: dict[int, int] = {}
    index = 0
    for run in model.layers:
        mine = range(max(index, held.start), min(index + run.num_layers, held.stop))
        index += run.num_layers
        if not mine:
            continue
        place = numbers.setdefault(run.layer, len(numbers))
        if place == len(counts):
            counts.append(0)
        counts[place] += len(mine)
        place_of.update(dict.fromkeys(mine, place))
    return list(zip(numbers, counts, strict=True)), place_of


def _triangle(number: int) -> int:
    return number * (number + 1) // 2
