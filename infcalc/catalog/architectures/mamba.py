"""State-space decoders: Mamba 1 and 2 alone, and beside attention (Jamba, Granite 4 hybrid, Nemotron-H).

Shapes follow the model classes of Hugging Face transformers of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.catalog.architectures.assembly import (
    EXPERTS,
    LAYERS,
    WIDTH,
    alternating,
    dense,
    experts,
    grouped,
    hidden,
    model,
    next_token_extras,
    norm_vector,
    num_layers,
    runs,
)
from infcalc.catalog.architectures.reader import MAX_LAYERS, Reader, shown
from infcalc.errors import FileProblem
from infcalc.spec.layers import (
    DenseFeedForward,
    Layer,
    LayerRun,
    Matrix,
    RecurrentKind,
    RecurrentMixer,
    Shard,
)
from infcalc.spec.model import MultiTokenPrediction
from infcalc.spec.weights import TensorRole

if TYPE_CHECKING:
    from infcalc.spec.layers import FeedForward, Mixer
    from infcalc.spec.model import Model

_LINEAR = TensorRole.RECURRENT
_STATE = TensorRole.RECURRENT_STATE
_MAX_KERNEL = 1024
_STATE_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "auto": 16}


def state_bits(reader: Reader, *keys: str, default: int) -> int:
    """Return the width of the recurrent state that the config asks for, else ``default``."""
    word = reader.text(*keys).removeprefix("torch.")
    if not word:
        return default
    if word not in _STATE_BITS:
        raise FileProblem(f"{shown(word)} is not a dtype", place=reader.place(keys[0]), hint=", ".join(_STATE_BITS))
    return _STATE_BITS[word]


def state_vector(name: str, rows: int, columns: int = 1) -> Matrix:
    """Return a vector or small table of a recurrent mixer, split by its channels."""
    return Matrix(name=name, rows=rows, columns=columns, role=_STATE, shard=Shard.ROWS)


def mamba1(
    *,
    width: int,
    inner: int,
    state: int,
    rank: int,
    kernel: int,
    conv_bias: bool,
    bias: bool = False,
    inner_norms: bool = False,
) -> RecurrentMixer:
    """Return a Mamba-1 mixer: ``inner`` channels with ``state`` elements each, time steps through ``rank``."""
    matrices = [
        Matrix(name="in_proj", rows=2 * inner, columns=width, role=_LINEAR, shard=Shard.ROWS),
        state_vector("conv", inner, kernel),
        Matrix(name="x_proj", rows=rank + 2 * state, columns=inner, role=_LINEAR, shard=Shard.COLUMNS),
        Matrix(name="dt_proj", rows=inner, columns=rank, role=_LINEAR, shard=Shard.ROWS),
        state_vector("dt_proj.bias", inner),
        state_vector("A_log", inner, state),
        state_vector("D", inner),
        Matrix(name="out_proj", rows=width, columns=inner, role=_LINEAR, shard=Shard.COLUMNS),
    ]
    if conv_bias:
        matrices.append(state_vector("conv.bias", inner))
    if bias:
        matrices.append(Matrix(name="in_proj.bias", rows=2 * inner, role=TensorRole.BIAS, shard=Shard.ROWS))
        matrices.append(Matrix(name="out_proj.bias", rows=width, role=TensorRole.BIAS))
    if inner_norms:
        matrices.append(norm_vector("inner_norms", rank + 2 * state))
    return RecurrentMixer(
        recurrent=RecurrentKind.MAMBA1,
        state_elements=inner * state,
        conv_elements=inner * (kernel - 1),
        matrices=tuple(matrices),
    )


def mamba2(
    *,
    width: int,
    num_heads: int,
    head_dim: int,
    state: int,
    groups: int,
    kernel: int,
    conv_bias: bool,
    bits: int,
    bias: bool = False,
) -> RecurrentMixer:
    """Return a Mamba-2 mixer: ``num_heads`` x ``head_dim`` channels, B and C per group, a norm before the output.

    The parts of the input projection that B and C come from are replicated when there is only one group.
    """
    inner, shared = num_heads * head_dim, 2 * groups * state
    group_shard = Shard.REPLICATED if groups == 1 else Shard.ROWS
    matrices = [
        Matrix(name="in_proj", rows=2 * inner + num_heads, columns=width, role=_LINEAR, shard=Shard.ROWS),
        Matrix(name="bc.in_proj", rows=shared, columns=width, role=_LINEAR, shard=group_shard),
        state_vector("conv", inner, kernel),
        Matrix(name="bc.conv", rows=shared, columns=kernel, role=_STATE, shard=group_shard),
        state_vector("dt_bias", num_heads),
        state_vector("A_log", num_heads),
        state_vector("D", num_heads),
        state_vector("gate_norm", inner),
        Matrix(name="out_proj", rows=width, columns=inner, role=_LINEAR, shard=Shard.COLUMNS),
    ]
    if conv_bias:
        matrices.append(state_vector("conv.bias", inner))
        matrices.append(Matrix(name="bc.conv.bias", rows=shared, role=_STATE, shard=group_shard))
    if bias:
        rows = 2 * inner + num_heads
        matrices.append(Matrix(name="in_proj.bias", rows=rows, role=TensorRole.BIAS, shard=Shard.ROWS))
        matrices.append(Matrix(name="bc.in_proj.bias", rows=shared, role=TensorRole.BIAS, shard=group_shard))
        matrices.append(Matrix(name="out_proj.bias", rows=width, role=TensorRole.BIAS))
    return RecurrentMixer(
        recurrent=RecurrentKind.MAMBA2,
        state_elements=inner * state,
        conv_elements=(inner + shared) * (kernel - 1),
        state_bits=bits,
        matrices=tuple(matrices),
    )


def mamba(reader: Reader) -> Model:
    """Mamba and Falcon-Mamba: nothing but Mamba-1 layers; ``intermediate_size`` wins over ``expand``."""
    width = hidden(reader)
    inner = reader.integer(*WIDTH, default=width * reader.integer("expand", default=2, high=100))
    reader.accept("use_associative_scan", "use_falcon_mambapy", "use_mambapy", "mixer_rms_eps", "expand")
    reader.accept("residual_in_fp32", "rescale_prenorm_residual", "time_step_scale", "time_step_init_scheme")
    reader.accept("sliding_window", "d_inner", "ssm_cfg", "state_dim")
    reader.accept("rms_norm", "fused_add_norm", "pad_vocab_size_multiple")
    mixer = mamba1(
        width=width,
        inner=inner,
        state=reader.integer("state_size"),
        rank=reader.integer("time_step_rank", default=-(-width // 16)),
        kernel=reader.integer("conv_kernel", default=4, high=_MAX_KERNEL),
        conv_bias=reader.flag("use_conv_bias", default=True),
        bias=reader.flag("use_bias", default=False),
    )
    layer = Layer(mixer=mixer, num_norms=1)
    return model(reader, (LayerRun(num_layers=num_layers(reader), layer=layer),), tie_default=True)


def jamba(reader: Reader) -> Model:
    """Jamba: attention every ``attn_layer_period``, experts every ``expert_layer_period`` layers, Mamba-1 between."""
    count = num_layers(reader)
    width = hidden(reader)
    period, offset = _pattern(reader, "attn_layer", 8, 4)
    sparse_period, sparse_offset = _pattern(reader, "expert_layer", 2, 1)
    attention = grouped(reader)
    reader.accept("sliding_window", "use_mamba_kernels", "mamba_inner_layernorms", "mamba_chunk_size")
    mixer = mamba1(
        width=width,
        inner=width * reader.integer("mamba_expand", default=2, high=100),
        state=reader.integer("mamba_d_state", default=16),
        rank=reader.integer("mamba_dt_rank", default=-(-width // 16)),
        kernel=reader.integer("mamba_d_conv", default=4, high=_MAX_KERNEL),
        conv_bias=reader.flag("mamba_conv_bias", default=True),
        bias=reader.flag("mamba_proj_bias", default=False),
        inner_norms=True,
    )
    plain = dense(reader)
    many = reader.integer(*EXPERTS, default=16) > 1
    block = experts(reader, width=reader.integer(*WIDTH)) if many else plain
    return model(
        reader,
        alternating(
            [attention if index % period == offset else mixer for index in range(count)],
            [block if index % sparse_period == sparse_offset else plain for index in range(count)],
        ),
    )


def _pattern(reader: Reader, name: str, period: int, offset: int) -> tuple[int, int]:
    return (
        reader.integer(f"{name}_period", default=period, high=MAX_LAYERS),
        reader.integer(f"{name}_offset", default=offset, low=0, high=MAX_LAYERS),
    )


def granite_hybrid(reader: Reader) -> Model:
    """Granite 4 hybrid: ``layer_types`` of Mamba-2 and attention, a shared block beside the experts in every layer."""
    count = num_layers(reader)
    width = hidden(reader)
    bias = reader.flag("attention_bias", default=False)
    num_heads = reader.integer("mamba_n_heads", default=128)
    head_dim = _mamba_head_dim(reader, width, num_heads)
    mixer = mamba2(
        width=width,
        num_heads=num_heads,
        head_dim=head_dim,
        state=reader.integer("mamba_d_state", default=256),
        groups=reader.integer("mamba_n_groups", default=1),
        kernel=reader.integer("mamba_d_conv", default=4, high=_MAX_KERNEL),
        conv_bias=reader.flag("mamba_conv_bias", default=True),
        bits=state_bits(reader, "mamba_ssm_cache_dtype", "mamba_ssm_dtype", default=16),
        bias=reader.flag("mamba_proj_bias", default=False),
    )
    reader.accept(
        "position_embedding_type",
        "normalization_function",
        "mamba_chunk_size",
        "shared_intermediate_size",
        "intermediate_size",
    )
    words = reader.words("layer_types", length=count)
    if words is None:
        raise FileProblem("key 'layer_types' is missing", place=reader.place("layer_types"))
    known: dict[str, Mixer] = {"mamba": mixer, "attention": grouped(reader, qkv_bias=bias, output_bias=bias)}
    for word in words:
        if word not in known:
            raise reader.unsupported("layer_types", word, tuple(known))
    shared = reader.integer("shared_intermediate_size", default=1024)
    sparse = reader.integer(*EXPERTS, default=0, low=0) > 0
    reader.accept("num_experts_per_tok")
    block: FeedForward = DenseFeedForward(width=shared)
    if sparse:
        block = experts(reader, width=reader.integer(*WIDTH), shared_width=shared)
    return model(reader, alternating([known[word] for word in words], [block] * count), tie_default=True)


def _mamba_head_dim(reader: Reader, width: int, num_heads: int) -> int:
    inner = width * reader.integer("mamba_expand", default=2, high=100)
    reader.accept("mamba_d_head")
    if isinstance(reader.config.get("mamba_d_head"), int):
        return reader.integer("mamba_d_head")
    if inner % num_heads:
        raise FileProblem(f"{num_heads} heads do not divide {inner} channels", place=reader.place("mamba_n_heads"))
    return inner // num_heads


_SYMBOLS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _blocks(reader: Reader, listed: str, pattern: str) -> tuple[str, ...] | None:
    """Return the kind of each layer from a list of words or a pattern of symbols."""
    words = reader.words(listed)
    letters = reader.text(pattern)
    if words is None:
        if not letters:
            return None
        if len(letters) > MAX_LAYERS:
            raise FileProblem(f"more than {MAX_LAYERS} layers", place=reader.place(pattern))
        for letter in letters:
            if letter not in _SYMBOLS:
                raise reader.unsupported(pattern, letter, tuple(_SYMBOLS))
        return tuple(_SYMBOLS[letter] for letter in letters)
    for word in words:
        if word not in _SYMBOLS.values():
            raise reader.unsupported(listed, word, tuple(_SYMBOLS.values()))
    return words


def nemotron_h(reader: Reader) -> Model:
    """Nemotron-H and Nemotron 3: each layer is ONE of Mamba-2, attention, feed-forward or experts, after one norm.

    Feed-forward blocks have two matrices (squared ReLU). ``moe_latent_size`` projects tokens down before the routed
    experts and up after them.
    """
    blocks = _blocks(reader, "layers_block_type", "hybrid_override_pattern")
    if blocks is None:
        raise FileProblem(
            "key 'hybrid_override_pattern' (or 'layers_block_type') is missing",
            place=reader.place("hybrid_override_pattern"),
        )
    count = reader.integer(*LAYERS, default=len(blocks), high=MAX_LAYERS)
    if len(blocks) != count:
        raise FileProblem(f"{len(blocks)} blocks for {count} layers", place=reader.place("hybrid_override_pattern"))
    makers = _NemotronBlocks(reader)
    layers = runs(makers.layer(kind) for kind in blocks)
    mtp_blocks = _blocks(reader, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    num_mtp = reader.integer("num_nextn_predict_layers", default=0, low=0, high=MAX_LAYERS)
    mtp = None
    if num_mtp:
        if mtp_blocks is None or sorted(mtp_blocks) != ["attention", "moe"]:
            raise reader.unsupported("mtp_layers_block_type", list(mtp_blocks or ()), ("attention, moe",))
        attention, sparse = makers.layer("attention"), makers.layer("moe")
        mtp = MultiTokenPrediction(
            num_layers=num_mtp,
            layer=Layer(mixer=attention.mixer, feed_forward=sparse.feed_forward),
            extras=next_token_extras(hidden(reader)),
        )
    return model(reader, layers, mtp=mtp)


class _NemotronBlocks:
    """The four kinds of layers of one Nemotron-H config, each made when first asked for."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._made: dict[str, Layer] = {}
        reader.accept("time_step_rank", "chunk_size", "expand", "num_logits_to_keep", "use_mamba_kernels", "head_dim")
        reader.accept("mamba_hidden_act", "sliding_window", "attention_head_dim", "residual_in_fp32", "mlp_bias")
        reader.accept("moe_shared_expert_overlap", "mamba_state_dtype", "moe_latent_size", "n_shared_experts")
        reader.accept("moe_intermediate_size", "moe_shared_expert_intermediate_size", "num_experts_per_tok", *EXPERTS)
        reader.accept("mtp_layers_block_type", "mtp_hybrid_override_pattern", *WIDTH)
        if reader.flag("use_bias", default=False):
            raise reader.unsupported("use_bias", value=True, known=("false",))

    def layer(self, kind: str) -> Layer:
        """Return the layer of ``kind``."""
        if kind not in self._made:
            maker = {"mamba": self._mamba, "attention": self._attention, "mlp": self._mlp, "moe": self._moe}[kind]
            self._made[kind] = maker()
        return self._made[kind]

    def _mamba(self) -> Layer:
        reader = self.reader
        default = 32 if reader.text("torch_dtype", "dtype") == "float32" else 16
        mixer = mamba2(
            width=hidden(reader),
            num_heads=reader.integer("mamba_num_heads"),
            head_dim=reader.integer("mamba_head_dim"),
            state=reader.integer("ssm_state_size"),
            groups=reader.integer("n_groups", default=8),
            kernel=reader.integer("conv_kernel", default=4, high=_MAX_KERNEL),
            conv_bias=reader.flag("use_conv_bias", default=True),
            bits=state_bits(reader, "mamba_ssm_cache_dtype", "mamba_ssm_dtype", default=default),
            bias=reader.flag("mamba_proj_bias", default=False),
        )
        return Layer(mixer=mixer, num_norms=1)

    def _attention(self) -> Layer:
        bias = self.reader.flag("attention_bias", default=False)
        return Layer(mixer=grouped(self.reader, qkv_bias=bias, output_bias=bias), num_norms=1)

    def _mlp(self) -> Layer:
        bias = self.reader.flag("mlp_bias", default=False)
        return Layer(feed_forward=dense(self.reader, gated=False, bias=bias), num_norms=1)

    def _moe(self) -> Layer:
        reader = self.reader
        if reader.flag("mlp_bias", default=False):
            raise reader.unsupported("mlp_bias", value=True, known=("false",))
        shared = reader.integer("moe_shared_expert_intermediate_size", default=0, low=0)
        small = reader.optional_integer("moe_latent_size")
        block = experts(
            reader,
            gated=False,
            shared_width=shared * reader.integer("n_shared_experts", default=1, low=0),
            router_bias=True,
            expert_input_dim=small,
            extras=latent_projections(hidden(reader), small) if small else (),
        )
        return Layer(feed_forward=block, num_norms=1)


def latent_projections(width: int, small: int) -> tuple[Matrix, ...]:
    """Return the projections of tokens down to the width of the routed experts and back up."""
    return (
        Matrix(name="latent_down", rows=small, columns=width, role=TensorRole.FEED_FORWARD),
        Matrix(name="latent_up", rows=width, columns=small, role=TensorRole.FEED_FORWARD),
    )
