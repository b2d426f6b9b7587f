"""THE weight inventory: every tensor of a model with its shape, role, storage and split over ranks.

Parameter counts, weight bytes per GPU and the weight traffic of a step all come from here. Shapes are (rows = output
features, columns = input features); vectors have one column. Fused projections of an engine are listed as their parts,
which changes neither counts nor bytes.

Names, unique within a layer: ``q k v o`` (with ``.bias``), ``q_norm k_norm``; ``q_a q_a_norm q_b kv_a kv_a_norm kv_b``
for latent attention; ``gate up down``, ``experts.gate experts.up experts.down``, ``shared.gate shared.up shared.down``,
``router``, ``router.bias``, ``shared_gate``; ``norm``; outside layers ``embedding``, ``final_norm``, ``lm_head``; and
the names of each :class:`~infcalc.spec.layers.Matrix`. Tensors of MTP layers carry the prefix ``mtp.``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    Indexer,
    LatentAttention,
    Layer,
    MoeFeedForward,
    QkNorm,
    RecurrentMixer,
    Shard,
)
from infcalc.spec.weights import LINEAR_ROLES, TensorRole, WeightFormat, weight_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from infcalc.spec.layers import FeedForward, Matrix, Mixer
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism
    from infcalc.spec.weights import WeightQuantization

VOCABULARY_PADDING_ROWS = 64
"""Rows of the vocabulary tables are padded to a multiple of this before they are split (vLLM
``DEFAULT_VOCAB_PADDING_SIZE``)."""
_FLOAT_FORMATS = frozenset({"bf16", "fp16", "fp32"})
_BITS_PER_BYTE = 8
_MAX_LISTED_TP = 128


LAST_STAGE_TENSORS = frozenset({"final_norm", "final_norm.bias", "lm_head", "lm_head.bias"})
"""Tensors outside the layers that lie on the last pipeline stage; all others of that kind lie on the first."""


@frozen
class Tensor:
    """One weight tensor, present ``copies`` times in each of ``layers`` (or once outside the layers).

    ``active_copies`` of them work on one token (routed experts: experts per token). ``shard`` says how tensor
    parallelism splits it, ``heads`` how many KV heads its rows hold (:attr:`Shard.KV_HEADS`), ``inner`` along which
    side an expert is split when experts are not spread whole (:attr:`Shard.EXPERTS`).
    """

    name: str
    role: TensorRole
    rows: int
    columns: int
    format: WeightFormat
    copies: int = 1
    active_copies: int = 1
    layers: tuple[int, ...] = ()
    """Indices of the layers that have it; empty for tensors outside the layers."""
    shard: Shard = Shard.REPLICATED
    heads: int = 1
    inner: Shard = Shard.ROWS
    mtp: bool = False
    """Belongs to the multi-token-prediction layers (their indices follow those of the decoder)."""

    @property
    def multiplicity(self) -> int:
        """How many layers have the tensor; 1 outside the layers."""
        return max(1, len(self.layers))

    @property
    def parameters(self) -> int:
        """Elements of all copies in all layers."""
        return self.rows * self.columns * self.copies * self.multiplicity

    @property
    def active_parameters(self) -> int:
        """Elements that work on one token, in all layers."""
        return self.rows * self.columns * self.active_copies * self.multiplicity

    @property
    def bytes_total(self) -> int:
        """Bytes of all copies in all layers, unsharded and without vocabulary padding, scales included."""
        return storage_bytes(self.rows, self.columns, self.format) * self.copies * self.multiplicity

    def rank_shape(self, parallelism: Parallelism) -> tuple[int, int, int]:
        """Return (rows, columns, copies) that the fullest rank holds of this tensor in one layer.

        Sources: the parallel linear layers of vLLM, ``QKVParallelLinear`` (KV heads are replicated when fewer than
        ranks), ``VocabParallelEmbedding`` (padding to 64 rows), ``FusedMoEParallelConfig`` (tp x dp ranks of a stage
        hold ep groups of whole experts, each split inside over the rest of the ranks).
        """
        rows, columns, copies, tp = self.rows, self.columns, self.copies, parallelism.tp
        match self.shard:
            case Shard.REPLICATED:
                pass
            case Shard.ROWS:
                rows = _ceil_div(rows, tp)
            case Shard.COLUMNS:
                columns = _ceil_div(columns, tp)
            case Shard.VOCABULARY:
                rows = _ceil_div(padded_vocabulary(rows), tp)
            case Shard.KV_HEADS:
                rows = rows // self.heads * _ceil_div(self.heads, tp)
            case Shard.EXPERTS:
                copies = _ceil_div(copies, parallelism.ep)
                within = _ranks_within_expert(parallelism)
                if self.inner is Shard.ROWS:
                    rows = _ceil_div(rows, within)
                elif self.inner is Shard.COLUMNS:
                    columns = _ceil_div(columns, within)
            case _:
                assert_never(self.shard)
        return rows, columns, copies

    def rank_bytes(self, parallelism: Parallelism) -> int:
        """Bytes that the fullest rank holds of this tensor in ONE layer, group scales split along with it."""
        rows, columns, copies = self.rank_shape(parallelism)
        return storage_bytes(rows, columns, self.format) * copies


@frozen
class ParameterCount:
    """Numbers of elements. ``active`` counts what works on one token, the input embedding table included.

    ``active_without_embedding`` leaves out an untied embedding table (one row of it is read per token): what vendors
    usually publish, rounded.
    """

    total: int
    active: int
    active_without_embedding: int
    embedding: int
    lm_head: int


def storage_bytes(rows: int, columns: int, form: WeightFormat) -> int:
    """Return the bytes of one rows x columns matrix stored in ``form``, scales, zero points and indices included.

    Groups at the edges count in full. Source: the layouts named in each format's ``source``.

    >>> from infcalc.spec.weights import WEIGHT_FORMATS
    >>> storage_bytes(128, 256, WEIGHT_FORMATS["bf16"])
    65536
    """
    bits = _as_bytes(rows * columns * form.element_bits)
    scales = 0
    if form.scale_bits or form.zero_point_bits:
        groups = _ceil_div(rows, form.group_rows or rows) * _ceil_div(columns, form.group_columns or columns)
        scales = _as_bytes(groups * form.scale_bits) + _as_bytes(groups * form.zero_point_bits)
    return bits + scales + _as_bytes(form.tensor_scale_bits) + _as_bytes(columns * form.index_bits)


def inventory(
    model: Model, quantization: WeightQuantization | None = None, *, with_mtp: bool = False
) -> tuple[Tensor, ...]:
    """Return every weight tensor of ``model``, tensors outside the layers first.

    ``quantization`` None means the checkpoint's own (``model.quantization``, else its 16- or 32-bit type throughout).
    Layers that are alike and stored alike share one entry. ``with_mtp`` adds the multi-token-prediction layers.

    Raises:
        UsageError: a format of the quantization is unknown.

    """
    stored = model.quantization if quantization is None else quantization
    formats = _Formats(own=model.dtype, quantization=stored)
    width = model.hidden_size
    found: list[Tensor] = []
    for part in _outside(model):
        found.extend(formats.stored(part, ()))
    places: dict[Layer, list[int]] = {}
    index = 0
    for run in model.layers:
        places.setdefault(run.layer, []).extend(range(index, index + run.num_layers))
        index += run.num_layers
    for layer, indices in places.items():
        for part in _layer(layer, width):
            found.extend(formats.stored(part, tuple(indices)))
    if with_mtp and model.mtp is not None:
        indices = list(range(index, index + model.mtp.num_layers))
        heads = _kv_heads(model.mtp.layer.mixer)
        parts = (*_layer(model.mtp.layer, width), *(_listed(matrix, heads) for matrix in model.mtp.extras))
        for part in parts:
            found.extend(formats.stored(replace(part, name=f"mtp.{part.name}", mtp=True), tuple(indices)))
    return tuple(found)


def parameters(tensors: Iterable[Tensor]) -> ParameterCount:
    """Return the parameter counts of an inventory; MTP layers count when they are in it."""
    total = active = embedding = lm_head = 0
    for tensor in tensors:
        total += tensor.parameters
        active += tensor.active_parameters
        if tensor.role is TensorRole.EMBEDDING:
            embedding += tensor.parameters
        elif tensor.role is TensorRole.LM_HEAD:
            lm_head += tensor.parameters
    return ParameterCount(
        total=total,
        active=active,
        active_without_embedding=active - embedding if lm_head else active,
        embedding=embedding,
        lm_head=lm_head,
    )


def check_divisible(model: Model, parallelism: Parallelism, *, tp_named: str = "") -> None:
    """Check that the ranks of ``parallelism`` can divide ``model``.

    Query heads, feed-forward widths and the padded vocabulary must divide by TP; KV heads must divide TP or be divided
    by it; EP divides TP x DP and is at most the number of experts; PP is at most the number of layers. ``tp_named`` is
    the option that TP came from, as an error shall call it.

    Raises:
        UsageError: they cannot; the hint lists the values that can.

    """
    if parallelism.pp > model.num_layers:
        raise UsageError(
            f"--pp {parallelism.pp} is more than the {model.num_layers} layers of {model.name}",
            hint=f"use a value from 1 to {model.num_layers}",
        )
    ep, ranks = parallelism.ep, parallelism.tp * parallelism.dp
    experts = max((_num_experts(run.layer) for run in model.layers), default=0)
    if ep > max(1, experts):
        held = f"has {experts} experts" if experts else "is not a mixture of experts"
        raise UsageError(f"--ep {ep}: {model.name} {held}", hint="use --ep 1")
    if ranks % ep:
        raise UsageError(f"--ep {ep} does not divide the {ranks} ranks of TP x DP", hint=f"use --ep 1 or --ep {ranks}")
    problem = _undivided(model, parallelism)
    if problem is not None:
        sizes = range(1, _MAX_LISTED_TP + 1)
        # Expert parallelism follows TP, so that a candidate TP is judged with its own.
        valid = [
            str(tp) for tp in sizes if _undivided(model, replace(parallelism, tp=tp, ep=1 if ep == 1 else tp)) is None
        ]
        raise UsageError(
            f"{tp_named or f'--tp {parallelism.tp}'} cannot split {model.name}: {problem}",
            hint=f"TP values that divide it: {', '.join(valid)}" if valid else "no TP value divides it",
        )


def splits_blocks(
    model: Model, parallelism: Parallelism, quantization: WeightQuantization | None = None
) -> tuple[Tensor, ...]:
    """Return the projections of which a rank's share ends within a block of weights that has one scale.

    Matrices that are listed by name are left out: which of them an engine merges is its own affair. Worked example: 8
    ranks of experts 1,536 wide hold 192 rows each, a block and a half of 128.
    """
    stored = model.quantization if quantization is None else quantization
    if stored is None or not any(word.startswith("fp8_block") for word in (stored.format, *_rule_formats(stored))):
        return ()
    found = []
    for tensor in inventory(model, quantization):
        form = tensor.format
        if tensor.name not in _SPLIT_PROJECTIONS or form.group_rows <= 1 or form.group_columns <= 1:
            continue
        rows, columns, _ = tensor.rank_shape(parallelism)
        if (rows < tensor.rows and rows % form.group_rows) or (
            columns < tensor.columns and columns % form.group_columns
        ):
            found.append(tensor)
    return tuple(found)


_SPLIT_PROJECTIONS = frozenset(
    {"q", "k", "v", "o", "q_b", "kv_b"}
    | {f"{part}{side}" for part in ("", "shared.", "experts.") for side in ("gate", "up", "down")}
)


def _rule_formats(quantization: WeightQuantization) -> tuple[str, ...]:
    return tuple(rule.format for rule in quantization.rules)


def padded_vocabulary(rows: int) -> int:
    """Return the rows of a vocabulary table after padding."""
    return _ceil_div(rows, VOCABULARY_PADDING_ROWS) * VOCABULARY_PADDING_ROWS


# A part is a tensor without its storage: `_Formats` replaces the format.
_UNSET = WeightFormat(name="unset", element_bits=0)


def _part(
    name: str,
    role: TensorRole,
    rows: int,
    columns: int = 1,
    *,
    shard: Shard = Shard.REPLICATED,
    copies: int = 1,
    active: int | None = None,
    heads: int = 1,
    inner: Shard = Shard.ROWS,
) -> Tensor:
    return Tensor(
        name=name,
        role=role,
        rows=rows,
        columns=columns,
        format=_UNSET,
        copies=copies,
        active_copies=copies if active is None else active,
        shard=shard,
        heads=heads,
        inner=inner,
    )


class _Formats:
    """Storage of each tensor: the first rule that matches, else the quantization's format for linear roles."""

    def __init__(self, *, own: str, quantization: WeightQuantization | None) -> None:
        # A float type asked for as "quantization" is the width of everything, embeddings and norms included.
        if quantization is not None and quantization.format in _FLOAT_FORMATS:
            own = quantization.format
        self.own = weight_format(own)
        self.quantization = quantization
        self.linear = weight_format(quantization.format) if quantization else self.own
        # Checkpoints hold it in 32 bits beside weights of any type; one float type for everything includes it.
        uniform = quantization is not None and quantization.format in _FLOAT_FORMATS and not quantization.rules
        self.score_correction = self.own if uniform else weight_format("fp32")
        self.rules = tuple(
            (rule, weight_format(rule.format), None if rule.layers is None else frozenset(rule.layers))
            for rule in (quantization.rules if quantization else ())
        )

    def of(self, part: Tensor, layer: int | None) -> WeightFormat:
        for rule, form, layers in self.rules:
            if layers is not None and layer not in layers:
                continue
            if part.role not in (rule.roles or LINEAR_ROLES):
                continue
            if rule.names and part.name not in rule.names and part.name.rpartition(".")[2] not in rule.names:
                continue
            return form
        if part.role is TensorRole.ROUTER_BIAS:
            return self.score_correction
        return self.linear if part.role in LINEAR_ROLES else self.own

    def stored(self, part: Tensor, layers: tuple[int, ...]) -> Iterator[Tensor]:
        if not layers or not any(indices is not None for _, _, indices in self.rules):
            yield replace(part, format=self.of(part, None), layers=layers)
            return
        groups: dict[str, tuple[WeightFormat, list[int]]] = {}
        for layer in layers:
            form = self.of(part, layer)
            groups.setdefault(form.name, (form, []))[1].append(layer)
        for form, members in groups.values():
            yield replace(part, format=form, layers=tuple(members))


def _outside(model: Model) -> Iterator[Tensor]:
    width = model.hidden_size
    yield _part(
        "embedding", TensorRole.EMBEDDING, model.vocab_size, model.embedding_dim or width, shard=Shard.VOCABULARY
    )
    for matrix in model.extras:
        yield _listed(matrix, 1)
    if model.final_norm:
        yield _part("final_norm", TensorRole.NORM, width)
        if model.final_norm_bias:
            yield _part("final_norm.bias", TensorRole.NORM, width)
    if not model.tied_embeddings:
        yield _part(
            "lm_head", TensorRole.LM_HEAD, model.vocab_size, model.embedding_dim or width, shard=Shard.VOCABULARY
        )
    if model.lm_head_bias:
        yield _part("lm_head.bias", TensorRole.BIAS, model.vocab_size, shard=Shard.VOCABULARY)


def _layer(layer: Layer, width: int) -> Iterator[Tensor]:
    if layer.mixer is not None:
        yield from _mixer(layer.mixer, width)
    if layer.feed_forward is not None:
        yield from _feed_forward(layer.feed_forward, width)
    if layer.num_norms:
        yield _part("norm", TensorRole.NORM, width, copies=layer.num_norms)
        if layer.norm_bias:
            yield _part("norm.bias", TensorRole.NORM, width, copies=layer.num_norms)
    for matrix in layer.extras:
        yield _listed(matrix, _kv_heads(layer.mixer))


def _mixer(mixer: Mixer, width: int) -> Iterator[Tensor]:
    match mixer:
        case GroupedAttention():
            yield from _grouped(mixer, width)
        case LatentAttention():
            yield from _latent(mixer, width)
        case CompressedAttention():
            for matrix in mixer.matrices:
                yield _listed(matrix, 1)
            yield from _indexer(mixer.indexer, 1)
        case RecurrentMixer():
            for matrix in mixer.matrices:
                yield _listed(matrix, 1)
        case _:
            assert_never(mixer)


def _grouped(mixer: GroupedAttention, width: int) -> Iterator[Tensor]:
    attention, bias = TensorRole.ATTENTION, TensorRole.BIAS
    value_dim = mixer.value_head_dim or mixer.head_dim
    q_rows = mixer.num_heads * mixer.head_dim * (2 if mixer.output_gate else 1)
    projections = [("q", q_rows, Shard.ROWS)]
    if mixer.query_rank is not None:
        yield _part("q_a", attention, mixer.query_rank, width)
        yield _part("q_a_norm", TensorRole.NORM, mixer.query_rank)
    if not mixer.shares_kv:
        projections.append(("k", mixer.num_kv_heads * mixer.head_dim, Shard.KV_HEADS))
        if not mixer.value_from_key:
            projections.append(("v", mixer.num_kv_heads * value_dim, Shard.KV_HEADS))
    for name, rows, shard in projections:
        columns = (mixer.query_rank or width) if name == "q" else width
        yield _part(name, attention, rows, columns, shard=shard, heads=mixer.num_kv_heads)
        if mixer.qkv_bias:
            yield _part(f"{name}.bias", bias, rows, shard=shard, heads=mixer.num_kv_heads)
    yield _part("o", attention, width, mixer.num_heads * value_dim, shard=Shard.COLUMNS)
    if mixer.output_bias:
        yield _part("o.bias", bias, width)
    yield from _qk_norms(mixer)
    yield from _indexer(mixer.indexer, mixer.num_kv_heads)
    for matrix in mixer.extras:
        yield _listed(matrix, mixer.num_kv_heads)


def _qk_norms(mixer: GroupedAttention) -> Iterator[Tensor]:
    match mixer.qk_norm:
        case QkNorm.NONE:
            return
        case QkNorm.PER_HEAD:
            yield _part("q_norm", TensorRole.NORM, mixer.head_dim)
            key = _part("k_norm", TensorRole.NORM, mixer.head_dim)
        case QkNorm.FULL:
            yield _part("q_norm", TensorRole.NORM, mixer.num_heads * mixer.head_dim, shard=Shard.ROWS)
            heads = mixer.num_kv_heads
            key = _part("k_norm", TensorRole.NORM, heads * mixer.head_dim, shard=Shard.KV_HEADS, heads=heads)
        case _:
            assert_never(mixer.qk_norm)
    if not mixer.shares_kv:
        yield key


def _latent(mixer: LatentAttention, width: int) -> Iterator[Tensor]:
    attention = TensorRole.ATTENTION
    q_rows = mixer.num_heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
    if mixer.q_lora_rank is None:
        yield _part("q", attention, q_rows, width, shard=Shard.ROWS)
    else:
        yield _part("q_a", attention, mixer.q_lora_rank, width)
        yield _part("q_a_norm", TensorRole.NORM, mixer.q_lora_rank)
        yield _part("q_b", attention, q_rows, mixer.q_lora_rank, shard=Shard.ROWS)
    yield _part("kv_a", attention, mixer.kv_lora_rank + mixer.qk_rope_head_dim, width)
    yield _part("kv_a_norm", TensorRole.NORM, mixer.kv_lora_rank)
    kv_rows = mixer.num_heads * (mixer.qk_nope_head_dim + mixer.value_head_dim)
    yield _part("kv_b", attention, kv_rows, mixer.kv_lora_rank, shard=Shard.ROWS)
    yield _part("o", attention, width, mixer.num_heads * mixer.value_head_dim, shard=Shard.COLUMNS)
    yield from _indexer(mixer.indexer, 1)
    for matrix in mixer.extras:
        yield _listed(matrix, 1)


def _indexer(indexer: Indexer | None, heads: int) -> Iterator[Tensor]:
    if indexer is not None and not indexer.shared:
        for matrix in indexer.matrices:
            yield _listed(matrix, heads)


def _feed_forward(block: FeedForward, width: int) -> Iterator[Tensor]:
    match block:
        case DenseFeedForward():
            yield from _dense("", TensorRole.FEED_FORWARD, block.width, width, gated=block.gated, bias=block.bias)
        case MoeFeedForward():
            yield from _experts(block, width)
        case _:
            assert_never(block)
    for matrix in block.extras:
        yield _listed(matrix, 1)


def _dense(prefix: str, role: TensorRole, inner: int, width: int, *, gated: bool, bias: bool) -> Iterator[Tensor]:
    for name in ("gate", "up") if gated else ("up",):
        yield _part(f"{prefix}{name}", role, inner, width, shard=Shard.ROWS)
        if bias:
            yield _part(f"{prefix}{name}.bias", TensorRole.BIAS, inner, shard=Shard.ROWS)
    yield _part(f"{prefix}down", role, width, inner, shard=Shard.COLUMNS)
    if bias:
        yield _part(f"{prefix}down.bias", TensorRole.BIAS, width)


def _experts(block: MoeFeedForward, width: int) -> Iterator[Tensor]:
    role, bias = TensorRole.EXPERT, TensorRole.BIAS
    yield _part("router", TensorRole.ROUTER, block.num_experts, width)
    if block.router_bias:
        # Beside biased experts it is the bias of a linear layer (gpt-oss); elsewhere it corrects the expert's score.
        role_of_bias = TensorRole.ROUTER if block.expert_bias else TensorRole.ROUTER_BIAS
        yield _part("router.bias", role_of_bias, block.num_experts)
    outer = block.expert_input_dim or width

    def routed(name: str, kind: TensorRole, rows: int, columns: int, inner: Shard) -> Tensor:
        return _part(
            f"experts.{name}",
            kind,
            rows,
            columns,
            shard=Shard.EXPERTS,
            copies=block.num_experts,
            active=block.experts_per_token,
            inner=inner,
        )

    for name in ("gate", "up") if block.gated else ("up",):
        yield routed(name, role, block.expert_width, outer, Shard.ROWS)
        if block.expert_bias:
            yield routed(f"{name}.bias", bias, block.expert_width, 1, Shard.ROWS)
    yield routed("down", role, outer, block.expert_width, Shard.COLUMNS)
    if block.expert_bias:
        yield routed("down.bias", bias, outer, 1, Shard.REPLICATED)
    if block.shared_width:
        shared = TensorRole.SHARED_EXPERT
        yield from _dense("shared.", shared, block.shared_width, width, gated=block.gated, bias=False)
        if block.shared_gate:
            yield _part("shared_gate", TensorRole.ROUTER, 1, width)


def _listed(matrix: Matrix, heads: int) -> Tensor:
    return _part(
        matrix.name,
        matrix.role,
        matrix.rows,
        matrix.columns,
        shard=matrix.shard,
        copies=matrix.copies,
        heads=heads,
    )


def _kv_heads(mixer: Mixer | None) -> int:
    return mixer.num_kv_heads if isinstance(mixer, GroupedAttention) else 1


def _num_experts(layer: Layer) -> int:
    return layer.feed_forward.num_experts if isinstance(layer.feed_forward, MoeFeedForward) else 0


def _ranks_within_expert(parallelism: Parallelism) -> int:
    return max(1, parallelism.tp * parallelism.dp // parallelism.ep)


def _undivided(model: Model, parallelism: Parallelism) -> str | None:
    """Return what the ranks do not divide, or None."""
    tp = parallelism.tp
    if padded_vocabulary(model.vocab_size) % tp:
        return f"the padded vocabulary of {padded_vocabulary(model.vocab_size)} rows does not divide by {tp}"
    for layer in {run.layer for run in model.layers}:
        match layer.mixer:
            case GroupedAttention(num_kv_heads=heads) if heads % tp and tp % heads:
                return f"{heads} KV heads neither divide by {tp} nor divide it"
            case GroupedAttention() | LatentAttention() | CompressedAttention() as mixer if mixer.num_heads % tp:
                return f"{mixer.num_heads} attention heads do not divide by {tp}"
            case _:
                pass
        for part in _layer(layer, model.hidden_size):
            side = part.inner if part.shard is Shard.EXPERTS else part.shard
            ranks = _ranks_within_expert(parallelism) if part.shard is Shard.EXPERTS else tp
            size = {Shard.ROWS: part.rows, Shard.COLUMNS: part.columns}.get(side, 0)
            if size % ranks:
                return f"width {size} of {part.name!r} does not divide by {ranks}"
    return None


def _ceil_div(value: int, by: int) -> int:
    return -(-value // by)


def _as_bytes(bits: float) -> int:
    whole = int(bits)
    return _ceil_div(whole if whole == bits else whole + 1, _BITS_PER_BYTE)
