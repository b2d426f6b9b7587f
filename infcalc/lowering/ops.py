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

Softmax, rotary embedding, short convolutions and the router's top-k are not counted: they are below a percent of any
step. What an engine adds (:attr:`Extent.ENGINE`) is sampling and what ranks send each other:

- Tensor parallelism adds up the hidden states of all tokens (all-reduce) after each mixer, each feed-forward block and
  the split embedding table, and collects the logits of sampled positions (all-gather).
- Experts on attention-data-parallel ranks, whole or split inside, are shown the tokens of all ranks (all-gather), and
  what they made is added up (reduce-scatter), both in 16 bit. Spread over more than 8 ranks, they are sent their tokens
  and send them back (two all-to-alls): k copies of a token in 8 bit with their scales where experts compute in 8 bit or
  less, in 16 bit otherwise, and k back in 16 bit. The ranks of one tensor-parallel group share that work and collect
  the whole afterwards. Without attention data parallelism every rank has every token, and the all-reduce is enough.
- A pipeline stage sends the hidden states of all tokens to the next.

What does not depend on the step is a :class:`Template`, made once by :func:`templates`; :meth:`Template.at` turns it
into the :class:`Op` of one step, by the formulas of :mod:`infcalc.lowering.work`, which serve arrays of steps too.

Under pipeline parallelism the ops of all stages are listed unless one stage is asked for, each as one rank of its stage
does it: the summed time of all is the latency of one step through the pipeline.

Sources: Kaplan et al. 2020 (2 FLOP per weight and token); Dao et al. 2022, FlashAttention (IO of attention);
DeepSeek-V2 report, section 2.1 (latent attention and its absorbed form); Shoeybi et al. 2019, Megatron-LM (where tensor
parallelism communicates); vLLM 0.24 ``FusedMoE`` and DeepEP (what expert parallelism sends).
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
from infcalc.lowering.tensors import LAST_STAGE_TENSORS, inventory, padded_vocabulary
from infcalc.lowering.work import (
    Attention,
    Causal,
    Chunked,
    Compressed,
    Driver,
    Experts,
    Law,
    Linear,
    Load,
    Phases,
    Pooled,
    Routed,
    Selected,
    Sequences,
)
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
    from collections.abc import Iterable, Iterator

    from infcalc.lowering.tensors import Tensor
    from infcalc.lowering.work import Mask, Work
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
_GATHERED_LOGIT_BYTES = 2
"""Ranks exchange logits before they are widened (vLLM ``LogitsProcessor``)."""
_SAMPLING_BYTES = _GATHERED_LOGIT_BYTES + 2 * _LOGIT_BYTES
"""Of each logit: read in 16 bit, written in 32 bit, read again by the argmax. Random sampling makes more passes."""
_SAMPLING_KERNELS = 2
_MOST_GATHERED = 8
"""Up to so many ranks, those of one machine, engines gather the tokens of all unless told otherwise:
vLLM's all2all backend is allgather_reducescatter by default, and TensorRT-LLM's ``select_alltoall_method_type`` enables
an all-to-all only beyond as many ranks as experts per token, with multi-node NVLink or DeepEP."""
_DISPATCH_SCALE_ELEMENTS = 128
_DISPATCH_SCALE_BYTES = 4
"""Tokens that are sent in 8 bit bring an fp32 scale per 128 elements (DeepEP)."""


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
    SAMPLING = "sampling"
    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND = "send"


COLLECTIVES = frozenset({OpKind.ALL_REDUCE, OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.ALL_TO_ALL, OpKind.SEND})
"""Kinds that wait for a link between GPUs, and neither compute nor load memory."""


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


class Extent(StrEnum):
    """How much of a step is listed."""

    ROOFLINE = "roofline"
    """What the ideal GPU must compute and move."""
    ENGINE = "engine"
    """Sampling and what ranks send each other, too. Routed experts are one op, from their first multiplication to the
    last, as engines run them: what lies between stays in one kernel or is timed with it."""


@frozen
class Op:
    """One kind of work of a step, summed over the ``num_layers`` layers that do it, on one rank.

    ``precision`` is what its weights and activations allow the multiplication to run in (``bf16``, ``fp8``, ``int8``,
    ``fp4``, ``mxfp4`` ...); whether the GPU has units for it is a question of price. ``kv_read_bytes`` and
    ``kv_write_bytes`` are the cache's, recurrent state included.

    Each of the layers launches ``num_kernels`` kernels for it. ``tokens`` fill each of them (as those of
    :class:`infcalc.lowering.work.Work`), ``weight_bits`` wide are the elements they meet, ``block_scaled`` where blocks
    of these share a scale; in attention they are those of the cache. A collective (:data:`COLLECTIVES`) joins
    ``num_ranks`` ranks in one message of ``message_bytes`` per kernel, as NCCL's own tests count it: what each rank
    holds before an all-reduce, a reduce-scatter or an all-to-all, and after an all-gather.
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
    tokens: float = 0
    weight_bits: int = 16
    block_scaled: bool = False
    num_kernels: int = 1
    num_ranks: int = 1
    message_bytes: float = 0

    @property
    def total_bytes(self) -> float:
        """All bytes the op moves to and from memory."""
        return self.weight_bytes + self.activation_bytes + self.kv_read_bytes + self.kv_write_bytes


@frozen
class Template:
    """An op before it is known what the step holds; fields as those of :class:`Op`, ``law`` gives the rest."""

    kind: OpKind
    name: str
    num_layers: int
    precision: str
    law: Law
    weight_bits: int = 16
    block_scaled: bool = False
    num_kernels: int = 1
    num_ranks: int = 1
    num_spanned: int = 1
    """Neighbouring ranks that those of a collective lie among."""

    def work(self, load: Load) -> Work:
        """Return FLOP and bytes of a step of ``load``, whose numbers may be arrays: one for each of many steps."""
        return self.law.work(load)

    def at(self, shape: StepShape, *, num_dp_ranks: int = 1) -> Op | None:
        """Return the op of a step of ``shape``, None where the step has no work for it.

        Experts meet the tokens of ``num_dp_ranks`` such steps.
        """
        return self.under(shape.load(num_dp_ranks))

    def under(self, load: Load) -> Op | None:
        """Return the op of a step of ``load``, whose numbers are no arrays; None as :meth:`at`."""
        work = self.law.work(load)
        if not work.tokens:
            return None
        return Op(
            kind=self.kind,
            name=self.name,
            num_layers=self.num_layers,
            precision=self.precision,
            weight_bits=self.weight_bits,
            block_scaled=self.block_scaled,
            num_kernels=self.num_kernels,
            num_ranks=self.num_ranks,
            **work._asdict(),
        )


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

    def load(self, num_dp_ranks: int = 1) -> Load:
        """Return what the laws of :mod:`infcalc.lowering.work` need; experts meet ``num_dp_ranks`` such steps."""
        num_tokens = self.num_tokens
        return Load(
            prefills=tuple(
                Sequences(part.num_sequences, part.new_tokens, part.cached_tokens) for part in self.prefills
            ),
            decodes=tuple(Sequences(part.num_sequences, part.new_tokens, part.context_tokens) for part in self.decodes),
            num_tokens=num_tokens,
            num_sequences=self.num_sequences,
            num_sampled=self.num_sampled,
            routed_tokens=num_tokens * num_dp_ranks,
            expanded_tokens=num_tokens + sum(part.num_sequences * part.cached_tokens for part in self.prefills),
        )


def operations(
    model: Model,
    shape: StepShape,
    *,
    parallelism: Parallelism = _WHOLE,
    kv: KvFormat = _BF16_KV,
    quantization: WeightQuantization | None = None,
    attention_io: AttentionIo = AttentionIo.FLASH,
    elementwise_io: ElementwiseIo = ElementwiseIo.FUSED,
    extent: Extent = Extent.ROOFLINE,
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
    made = templates(
        model,
        parallelism=parallelism,
        kv=kv,
        quantization=quantization,
        attention_io=attention_io,
        elementwise_io=elementwise_io,
        extent=extent,
        tensors=tensors,
        stage=stage,
    )
    return ops_of(made, shape, num_dp_ranks=parallelism.dp if busy_dp_ranks is None else busy_dp_ranks)


def ops_of(made: Iterable[Template], shape: StepShape, *, num_dp_ranks: int = 1) -> tuple[Op, ...]:
    """Return the ops that ``made`` become in a step of ``shape``, which ``num_dp_ranks`` attention-DP ranks have."""
    load = shape.load(num_dp_ranks)
    found = (template.under(load) for template in made)
    return tuple(op for op in found if op is not None)


def templates(
    model: Model,
    *,
    parallelism: Parallelism = _WHOLE,
    kv: KvFormat = _BF16_KV,
    quantization: WeightQuantization | None = None,
    attention_io: AttentionIo = AttentionIo.FLASH,
    elementwise_io: ElementwiseIo = ElementwiseIo.FUSED,
    extent: Extent = Extent.ROOFLINE,
    tensors: tuple[Tensor, ...] | None = None,
    stage: int | None = None,
) -> tuple[Template, ...]:
    """Return the ops of any step, as the fullest rank does them: of all pipeline stages, or of ``stage`` alone.

    Arguments as those of :func:`operations`.

    Raises:
        UsageError: a format of the quantization is unknown.

    """
    if tensors is None:
        tensors = inventory(model, quantization)
    lowering = _Lowering(
        model=model,
        parallelism=parallelism,
        kv=kv,
        attention_io=attention_io,
        elementwise_io=elementwise_io,
        extent=extent,
    )
    pp = parallelism.pp
    held = range(model.num_layers) if stage is None else stage_layers(model.num_layers, pp)[stage]
    layers, place_of = _distinct_layers(model, held)
    inside: list[list[Tensor]] = [[] for _ in layers]
    first: list[Template] = []
    last: list[Template] = []
    for tensor in _placed(model, tensors, held):
        if tensor.layers:
            inside[place_of[tensor.layers[0]]].append(tensor)
        elif tensor.role is TensorRole.LM_HEAD:
            last.extend(lowering.lm_head(tensor))
        else:
            first.extend(lowering.outside(tensor))
    for (layer, num_layers), members in zip(layers, inside, strict=True):
        first.extend(lowering.layer(layer, num_layers, members))
    num_boundaries = pp - 1 if stage is None else int(stage < pp - 1)
    return (*first, *last, *lowering.send(num_boundaries))


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
# FLOP per state element and token: decay 1, rank-one update 2, read-out 2; a delta rule reads once more (2).
_STATE_FLOP = {
    RecurrentKind.MAMBA1: 5,
    RecurrentKind.MAMBA2: 5,
    RecurrentKind.GATED_DELTA_NET: 7,
    RecurrentKind.KIMI_DELTA: 7,
    RecurrentKind.LIGHTNING: 5,
}


@frozen
class _Lowering:
    """Everything the templates of a deployment share."""

    model: Model
    parallelism: Parallelism
    kv: KvFormat
    attention_io: AttentionIo
    elementwise_io: ElementwiseIo
    extent: Extent

    def outside(self, tensor: Tensor) -> Iterator[Template]:
        """Tensors outside the layers: tables are gathered from, the rest works on every token."""
        if tensor.role in _GATHERED:
            yield self._gather(tensor)
            if tensor.shard is Shard.VOCABULARY:
                yield from self._collective(
                    OpKind.ALL_REDUCE,
                    f"all-reduce of {tensor.name}",
                    tensor.multiplicity,
                    ranks=self.parallelism.tp,
                    message_bytes=tensor.columns * _ACTIVATION_BYTES,
                )
        elif _is_vector(tensor):
            yield self._vectors(tensor.name, tensor.multiplicity, [tensor])
        else:
            yield self._gemm(OpKind.GEMM, tensor.name, [tensor])

    def lm_head(self, tensor: Tensor) -> Iterator[Template]:
        """Logits of the sampled positions, in 32 bit."""
        sampled = Driver.SAMPLED
        yield self._gemm(OpKind.LM_HEAD, "lm_head", [tensor], sampled, output_bytes=_LOGIT_BYTES)
        if self.extent is Extent.ROOFLINE:
            return
        yield from self._collective(
            OpKind.ALL_GATHER,
            "all-gather of logits",
            1,
            ranks=self.parallelism.tp,
            message_bytes=padded_vocabulary(tensor.rows) * _GATHERED_LOGIT_BYTES,
            driver=sampled,
        )
        yield Template(
            kind=OpKind.SAMPLING,
            name="sampling",
            num_layers=1,
            precision="bf16",
            law=Linear(driver=sampled, item_activation_bytes=self.model.vocab_size * _SAMPLING_BYTES),
            num_kernels=_SAMPLING_KERNELS,
        )

    def send(self, num_boundaries: int) -> Iterator[Template]:
        """Hidden states of all tokens, to the next pipeline stage."""
        if num_boundaries:
            message_bytes = self.model.hidden_size * _ACTIVATION_BYTES
            yield from self._collective(
                OpKind.SEND, "send to the next stage", num_boundaries, ranks=2, message_bytes=message_bytes
            )

    def layer(self, layer: Layer, num_layers: int, tensors: list[Tensor]) -> Iterator[Template]:
        """Work of ``num_layers`` equal layers: their matrix multiplications, then what their mixer does."""
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
        experts: dict[tuple[str, tuple[int, ...]], list[list[Tensor]]] = {}
        for (label, form, layers), members in groups.items():
            name = label if len(members) > 1 else members[0].name
            if members[0].role is not TensorRole.EXPERT:
                yield self._linear(layer, name, members)
            elif self.extent is Extent.ROOFLINE:
                yield self._experts(name, [members])
            else:
                experts.setdefault((form, layers), []).append(members)
        for parts in experts.values():
            yield self._experts("experts", parts)
        yield from self._mixer(layer, num_layers)
        yield from self._activation(layer, num_layers)
        yield from self._exchange(layer, num_layers, tensors)

    def _linear(self, layer: Layer, name: str, members: list[Tensor]) -> Template:
        if members[0].role is TensorRole.ROUTER:
            return self._gemm(OpKind.ROUTER, name, members)
        # Expanded prefill makes keys and values of the cached prefix again.
        latent = isinstance(layer.mixer, LatentAttention) and not _absorbs_prefill(layer.mixer)
        return self._gemm(OpKind.GEMM, name, members, Driver.EXPANDED if latent and name == "kv_b" else Driver.TOKENS)

    def _gemm(
        self,
        kind: OpKind,
        name: str,
        members: list[Tensor],
        driver: Driver = Driver.TOKENS,
        *,
        output_bytes: int = _ACTIVATION_BYTES,
    ) -> Template:
        elements = weight_bytes = outputs = inputs = 0
        for tensor in members:
            rows, columns, copies = tensor.rank_shape(self.parallelism)
            elements += rows * columns * copies
            outputs += rows * copies
            inputs = max(inputs, columns)
            weight_bytes += tensor.rank_bytes(self.parallelism)
        first = members[0]
        num_layers = first.multiplicity
        return Template(
            kind=kind,
            name=name,
            num_layers=num_layers,
            precision=_compute_precision(first.format),
            law=Linear(
                driver=driver,
                item_flop=2 * elements * num_layers,
                item_activation_bytes=(inputs * _ACTIVATION_BYTES + outputs * output_bytes) * num_layers,
                weight_bytes=weight_bytes * num_layers,
            ),
            weight_bits=int(first.format.element_bits),
            block_scaled=_is_block_scaled(first.format),
            num_kernels=max(tensor.copies for tensor in members),
        )

    def _experts(self, name: str, parts: list[list[Tensor]]) -> Template:
        """Multiply in routed experts: the tokens of all attention-DP ranks meet the experts of this rank.

        ``parts`` run one after the other, each of whose tensors are one multiplication.
        """
        elements = moved = num_local = 0
        expert_bytes = 0.0
        for members in parts:
            outputs = inputs = 0
            for tensor in members:
                rows, columns, num_local = tensor.rank_shape(self.parallelism)
                elements += rows * columns
                outputs += rows
                inputs = max(inputs, columns)
                expert_bytes += tensor.rank_bytes(self.parallelism) / num_local
            moved += inputs + outputs
        first = parts[0][0]
        num_layers = first.multiplicity
        return Template(
            kind=OpKind.MOE,
            name=name,
            num_layers=num_layers,
            precision=_compute_precision(first.format),
            law=Experts(
                routed=Routed(
                    num_local=num_local,
                    num_experts=first.copies,
                    experts_per_token=first.active_copies,
                    expert_bytes=expert_bytes * num_layers,
                ),
                num_groups=self.parallelism.ep,
                assignment_flop=2 * elements * num_layers,
                assignment_activation_bytes=moved * _ACTIVATION_BYTES * num_layers,
            ),
            weight_bits=int(first.format.element_bits),
            block_scaled=_is_block_scaled(first.format),
        )

    def _gather(self, tensor: Tensor) -> Template:
        # A split table answers each token on one rank; every rank then holds the row.
        share = self.parallelism.tp if tensor.shard is Shard.VOCABULARY else 1
        return Template(
            kind=OpKind.EMBEDDING,
            name=tensor.name,
            num_layers=tensor.multiplicity,
            precision=_compute_precision(tensor.format),
            law=Linear(
                item_weight_bytes=tensor.columns * tensor.format.bits / _BYTE_BITS / share * tensor.multiplicity,
                item_activation_bytes=tensor.columns * _ACTIVATION_BYTES * tensor.multiplicity,
            ),
            weight_bits=int(tensor.format.element_bits),
        )

    def _vectors(
        self, name: str, num_layers: int, vectors: list[Tensor], *, num_kernels: int = 1, item_activation_bytes: int = 0
    ) -> Template:
        weight_bytes = 0.0
        routed: Routed | None = None
        for tensor in vectors:
            num_bytes = tensor.rank_bytes(self.parallelism) * tensor.multiplicity
            if tensor.shard is Shard.EXPERTS:
                # Biases of experts that no token meets are not read.
                _, _, num_local = tensor.rank_shape(self.parallelism)
                routed = Routed(
                    num_local=num_local,
                    num_experts=tensor.copies,
                    experts_per_token=tensor.active_copies,
                    expert_bytes=num_bytes / num_local + (routed.expert_bytes if routed else 0),
                )
            else:
                weight_bytes += num_bytes
        return Template(
            kind=OpKind.NORM,
            name=name,
            num_layers=num_layers,
            precision="bf16",
            law=Linear(weight_bytes=weight_bytes, item_activation_bytes=item_activation_bytes, routed=routed),
            num_kernels=num_kernels,
        )

    def _norms(self, layer: Layer, num_layers: int, vectors: list[Tensor]) -> Template:
        num_kernels, moved = 1, 0
        if self.elementwise_io is ElementwiseIo.SEPARATE:
            # Norm and residual addition in one kernel: two activations in, two out.
            moved = 4 * layer.num_norms * self.model.hidden_size * _ACTIVATION_BYTES * num_layers
            weights = (tensor for tensor in vectors if tensor.role is TensorRole.NORM)
            num_kernels = max(1, sum(tensor.copies for tensor in weights if not tensor.name.endswith(".bias")))
        return self._vectors(
            "norms and biases", num_layers, vectors, num_kernels=num_kernels, item_activation_bytes=moved
        )

    def _activation(self, layer: Layer, num_layers: int) -> Iterator[Template]:
        if self.elementwise_io is ElementwiseIo.FUSED or layer.feed_forward is None:
            return
        match layer.feed_forward:
            case DenseFeedForward(width=width, gated=gated):
                elements = width
            case MoeFeedForward(gated=gated) as block:
                # An engine's operation of routed experts includes theirs.
                routed = self.extent is Extent.ROOFLINE
                elements = block.shared_width + (block.experts_per_token * block.expert_width if routed else 0)
            case _:
                assert_never(layer.feed_forward)
        if not elements:
            return
        moved = elements * (3 if gated else 2) * _ACTIVATION_BYTES * num_layers
        yield Template(
            kind=OpKind.ACTIVATION,
            name="activation function",
            num_layers=num_layers,
            precision="bf16",
            law=Linear(item_activation_bytes=moved / self.parallelism.tp),
        )

    # --- mixers ---

    def _mixer(self, layer: Layer, num_layers: int) -> Iterator[Template]:
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

    def _grouped(self, mixer: GroupedAttention, num_layers: int) -> Iterator[Template]:
        tp = self.parallelism.tp
        heads = -(-mixer.num_heads // tp)
        width = mixer.head_dim + (mixer.value_head_dim or mixer.head_dim)
        # A layer without a cache of its own finds the new keys and values in that of another.
        kv_heads = kv_heads_on_rank(mixer.num_kv_heads, tp)
        own_kv = 0 if mixer.shares_kv else kv_heads * width
        for phases in (Phases.PREFILL, Phases.DECODE):
            yield self._attention(
                f"attention ({mixer.reach.value})",
                num_layers,
                phases,
                mask=_mask(mixer, decodes=phases is Phases.DECODE),
                heads=heads,
                kv_heads=kv_heads,
                width=width,
                entry_bytes=grouped_entry_bytes(mixer, self.kv, tp=tp),
                token_elements=heads * width + own_kv,
                written=0 if mixer.shares_kv else 1,
            )

    def _latent(self, mixer: LatentAttention, num_layers: int) -> Iterator[Template]:
        heads = -(-mixer.num_heads // self.parallelism.tp)
        rank, rope = mixer.kv_lora_rank, mixer.qk_rope_head_dim
        topk = mixer.indexer.topk_tokens if mixer.indexer else None
        for phases in (Phases.PREFILL, Phases.DECODE):
            decodes = phases is Phases.DECODE
            absorbed = decodes or _absorbs_prefill(mixer)
            key_dim = rank + rope if absorbed else mixer.qk_nope_head_dim + rope
            width = key_dim + (rank if absorbed else mixer.value_head_dim)
            yield self._attention(
                f"attention (latent, {'absorbed' if absorbed else 'expanded'})",
                num_layers,
                phases,
                mask=Selected(topk_tokens=topk, gathers=decodes) if topk else Causal(),
                heads=heads,
                width=width,
                entry_bytes=latent_entry_bytes(mixer, self.kv),
                token_elements=heads * width,
                # Expanded keys and values of every head are read; the shared latent comes from the cache.
                expanded_elements=0 if absorbed else heads * width,
            )

    def _compressed(self, mixer: CompressedAttention, num_layers: int) -> Iterator[Template]:
        heads = -(-mixer.num_heads // self.parallelism.tp)
        for phases in (Phases.PREFILL, Phases.DECODE):
            yield self._attention(
                "attention (compressed)",
                num_layers,
                phases,
                mask=Compressed(
                    window_tokens=mixer.window_tokens,
                    pool_tokens=mixer.compression,
                    num_selected=mixer.indexer.topk_tokens if mixer.indexer else None,
                    gathers=phases is Phases.DECODE,
                ),
                heads=heads,
                # An entry is key and value of every head.
                width=2 * mixer.entry_dim,
                entry_bytes=compressed_entry_bytes(mixer, self.kv),
                token_elements=(2 * heads + 1) * mixer.entry_dim,
                written=1 + (1 / mixer.compression if mixer.compression else 0),
            )

    def _attention(
        self,
        name: str,
        num_layers: int,
        phases: Phases,
        *,
        mask: Mask,
        heads: int,
        kv_heads: int = 1,
        width: int,
        entry_bytes: int,
        token_elements: int,
        written: float = 1,
        expanded_elements: int = 0,
    ) -> Template:
        """Attention of ``heads`` over keys and values of ``width`` together; a token writes ``written`` entries."""
        # Decode context parallelism spreads the positions of a cache over ranks that would hold copies of it.
        read_bytes = entry_bytes / self.parallelism.dcp * num_layers
        # Scores are written, read by the softmax, written as probabilities and read again.
        passes = 4 if self.attention_io is AttentionIo.NAIVE else 0
        return Template(
            kind=OpKind.ATTENTION_DECODE if phases is Phases.DECODE else OpKind.ATTENTION_PREFILL,
            name=name,
            num_layers=num_layers,
            precision="bf16",
            law=Attention(
                phases=phases,
                mask=mask,
                pair_flop=2 * heads * width * num_layers,
                entry_read_bytes=read_bytes,
                entry_write_bytes=written * read_bytes,
                token_activation_bytes=token_elements * _ACTIVATION_BYTES * num_layers,
                sequence_blocks=kv_heads if phases is Phases.DECODE else 0,
                reads_new=not written,
                expanded_bytes=expanded_elements * _ACTIVATION_BYTES * num_layers,
                score_bytes=passes * heads * _ACTIVATION_BYTES * num_layers,
            ),
            weight_bits=self.kv.element_bits,
        )

    def _indexer(self, indexer: Indexer | None, num_layers: int) -> Iterator[Template]:
        """Scores of every cached key by the indexer's heads, which each rank computes in full."""
        if indexer is None or indexer.shared:
            return
        entry_bytes = indexer_entry_bytes(indexer) * num_layers
        elements = indexer.num_heads * indexer.head_dim * num_layers
        yield Template(
            kind=OpKind.INDEXER,
            name="indexer scores",
            num_layers=num_layers,
            precision="fp8" if indexer.key_bits == _BYTE_BITS else "bf16",
            law=Attention(
                phases=Phases.BOTH,
                mask=Pooled(pool_tokens=indexer.pool_tokens),
                pair_flop=2 * elements,
                entry_read_bytes=entry_bytes,
                entry_write_bytes=entry_bytes / indexer.pool_tokens,
                token_activation_bytes=elements * _ACTIVATION_BYTES,
            ),
            weight_bits=indexer.key_bits,
        )

    def _recurrent(self, mixer: RecurrentMixer, num_layers: int) -> Template:
        tp = self.parallelism.tp
        return Template(
            kind=OpKind.RECURRENT,
            name=f"state update ({mixer.recurrent.value})",
            num_layers=num_layers,
            precision="bf16",
            law=Linear(
                item_flop=_STATE_FLOP[mixer.recurrent] * mixer.state_elements / tp * num_layers,
                sequence_state_bytes=recurrent_state_bytes(mixer, tp=tp) * num_layers,
            ),
            weight_bits=mixer.state_bits,
        )

    # --- between ranks ---

    def _exchange(self, layer: Layer, num_layers: int, tensors: list[Tensor]) -> Iterator[Template]:
        """Yield what the ranks of ``num_layers`` equal layers send each other."""
        tp, dp = self.parallelism.tp, self.parallelism.dp
        hidden_bytes = self.model.hidden_size * _ACTIVATION_BYTES
        if layer.mixer is not None:
            yield from self._collective(
                OpKind.ALL_REDUCE, "all-reduce of mixers", num_layers, ranks=tp, message_bytes=hidden_bytes
            )
        match layer.feed_forward:
            case None:
                return
            case MoeFeedForward() as block if dp > 1 and self.parallelism.ep > 1 and tp * dp > _MOST_GATHERED:
                yield from self._dispatch(block, num_layers, tensors)
                yield from self._collective(
                    OpKind.ALL_GATHER, "all-gather of experts", num_layers, ranks=tp, message_bytes=hidden_bytes
                )
                return
            case MoeFeedForward() if dp > 1:
                for kind, name in (
                    (OpKind.ALL_GATHER, "all-gather for experts"),
                    (OpKind.REDUCE_SCATTER, "reduce-scatter of experts"),
                ):
                    yield from self._collective(
                        kind,
                        name,
                        num_layers,
                        ranks=dp,
                        spanned=tp * dp,
                        message_bytes=hidden_bytes,
                        driver=Driver.ROUTED,
                    )
            case DenseFeedForward() | MoeFeedForward():
                pass
            case _:
                assert_never(layer.feed_forward)
        yield from self._collective(
            OpKind.ALL_REDUCE, "all-reduce of feed-forward", num_layers, ranks=tp, message_bytes=hidden_bytes
        )

    def _dispatch(self, block: MoeFeedForward, num_layers: int, tensors: list[Tensor]) -> Iterator[Template]:
        """Send each token to its experts and back; the ranks of a tensor-parallel group have the same tokens."""
        width = block.expert_input_dim or self.model.hidden_size
        narrow = any(one.role is TensorRole.EXPERT and one.format.compute_bits <= _BYTE_BITS for one in tensors)
        there = (
            width + width / _DISPATCH_SCALE_ELEMENTS * _DISPATCH_SCALE_BYTES if narrow else width * _ACTIVATION_BYTES
        )
        copies = block.experts_per_token / self.parallelism.tp
        for name, num_bytes in (("dispatch to experts", there), ("combine of experts", width * _ACTIVATION_BYTES)):
            yield from self._collective(
                OpKind.ALL_TO_ALL,
                name,
                num_layers,
                ranks=self.parallelism.ep,
                spanned=self.parallelism.tp * self.parallelism.dp,
                message_bytes=copies * num_bytes,
            )

    def _collective(
        self,
        kind: OpKind,
        name: str,
        num_layers: int,
        *,
        ranks: int,
        spanned: int = 1,
        message_bytes: float,
        driver: Driver = Driver.TOKENS,
    ) -> Iterator[Template]:
        """One message per layer, of ``message_bytes`` for each item; none where there is nobody to send it to."""
        if self.extent is Extent.ENGINE and ranks > 1:
            yield Template(
                kind=kind,
                name=name,
                num_layers=num_layers,
                precision="bf16",
                law=Linear(driver=driver, item_message_bytes=message_bytes),
                num_ranks=ranks,
                num_spanned=max(ranks, spanned),
            )


def _mask(mixer: GroupedAttention, *, decodes: bool) -> Mask:
    if mixer.indexer is not None:
        return Selected(topk_tokens=mixer.indexer.topk_tokens, gathers=decodes)
    window = mixer.window_tokens
    if window is None or mixer.reach is Reach.FULL:
        return Causal()
    if mixer.reach is Reach.CHUNKED and not decodes:
        return Chunked(chunk_tokens=window)
    # A decoding chunk is priced when it is full: a round context would otherwise fall on an empty one.
    return Causal(window_tokens=window)


def _is_vector(tensor: Tensor) -> bool:
    """Tell whether a tensor works element by element: it is read, and multiplies no matrix."""
    return tensor.columns == 1 or tensor.role in _VECTORS


def _absorbs_prefill(mixer: LatentAttention) -> bool:
    """Sparse attention prefills in absorbed form: each query picks other latents, which are not worth expanding."""
    return mixer.indexer is not None


def _is_block_scaled(form: WeightFormat) -> bool:
    """Tell whether the multiplication scales its sums block by block: such kernels are slower than those of fp8."""
    return form.group_rows > 1 and form.group_columns > 1 and _compute_precision(form) == "fp8"


def _compute_precision(form: WeightFormat) -> str:
    """Return the precision a multiplication with weights of ``form`` is meant to run in."""
    integer = form.name.startswith("int")
    match form.compute_bits:
        case 32:
            return "fp32"
        case 8:
            return "int8" if integer else "fp8"
        case 4 if form.name.startswith("mxfp4"):
            # What meets it is 4 or 8 bits wide, by vendor: a question of price.
            return "mxfp4"
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
