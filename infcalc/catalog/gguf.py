"""GGUF models: header to :class:`~infcalc.spec.model.Model`, by way of the config of the same architecture.

The metadata is rewritten in the words of ``config.json`` (:mod:`infcalc.catalog.gguf_config`); the types in the tensor
table become rules of a :class:`~infcalc.spec.weights.WeightQuantization` that reproduce its bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from infcalc.catalog.gguf_config import IN_BLOCK, Facts, config_of
from infcalc.catalog.gguf_header import GgufHeader, GgufTensor, read_gguf
from infcalc.catalog.huggingface import from_config
from infcalc.catalog.module_dialects import ModuleKey
from infcalc.catalog.module_names import NAMES_OF_ROLE, NO_LAYER
from infcalc.catalog.quantization import compressed_rules
from infcalc.errors import UnsupportedArchitecture
from infcalc.lowering.tensors import inventory
from infcalc.spec.layers import GroupedAttention, Layer, LayerRun
from infcalc.spec.model import Model
from infcalc.spec.weights import LINEAR_ROLES, WEIGHT_FORMATS, TensorRole, WeightQuantization

__all__ = ["GgufHeader", "GgufTensor", "model_from_gguf", "read_gguf"]

TOLERANCE_FRACTION = 0.01
_SHOWN = 4


def model_from_gguf(header: GgufHeader, name: str, *, place: str = "GGUF header") -> tuple[Model, tuple[str, ...]]:
    """Return the model of a GGUF file and what is worth a warning.

    The weight rules repeat the tensor table: each tensor's type by role, name and layer. Warnings name a split file of
    which only one shard was read, tensors that the model does not have, and totals more than 1 % apart.

    Raises:
        UnsupportedArchitecture: an architecture that is not understood; never answered with another one's layers.
        FileProblem: a key or tensor is missing or has an impossible value.

    """
    facts = Facts(header, place)
    model = from_config(config_of(facts), name=name)
    num_layers = facts.num_layers
    model = _with_layer_heads(model, facts, num_layers)
    quantization, strangers = _quantization(header, facts, num_layers)
    model = replace(model, quantization=quantization, source=f"GGUF metadata of {place}")
    return model, _warnings(model, header, strangers)


def _with_layer_heads(model: Model, facts: Facts, num_layers: int) -> Model:
    """Return the model with the heads of each layer, where the metadata lists them by layer.

    Raises:
        UnsupportedArchitecture: lists that no grouped attention can have.

    """
    queries, keys = facts.items("attention.head_count"), facts.items("attention.head_count_kv")
    widths = facts.items("feed_forward_length")
    if widths is not None and len(set(widths)) > 1:
        raise _differs_by_layer(facts, "feed_forward_length")
    if queries is None and keys is None:
        return model
    layers: list[Layer] = [run.layer for run in model.layers for _ in range(run.num_layers)]
    found: list[Layer] = []
    for index, layer in enumerate(layers):
        mixer = layer.mixer
        if not isinstance(mixer, GroupedAttention):
            found.append(layer)
            continue
        heads = _at(queries, index, mixer.num_heads)
        kv_heads = _at(keys, index, mixer.num_kv_heads)
        if heads is None or kv_heads is None or heads % kv_heads:
            raise _differs_by_layer(facts, "attention.head_count_kv")
        found.append(replace(layer, mixer=replace(mixer, num_heads=heads, num_kv_heads=kv_heads)))
    runs: list[LayerRun] = []
    for layer in found[:num_layers]:
        if runs and runs[-1].layer == layer:
            runs[-1] = replace(runs[-1], num_layers=runs[-1].num_layers + 1)
        else:
            runs.append(LayerRun(num_layers=1, layer=layer))
    return replace(model, layers=tuple(runs))


def _at(items: tuple[object, ...] | None, index: int, default: int) -> int | None:
    """Return item ``index`` if it is a positive number, ``default`` without a list, None for anything else."""
    if items is None:
        return default
    value = items[index] if index < len(items) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _differs_by_layer(facts: Facts, key: str) -> UnsupportedArchitecture:
    return UnsupportedArchitecture(
        f"GGUF {facts.header.architecture} with values of {key} that differ by layer in this way is not understood",
        place=facts.place,
    )


# The tensor table as weight rules ------------------------------------------------------------------------------------

_ATTENTION, _FFN, _EXPERT = TensorRole.ATTENTION, TensorRole.FEED_FORWARD, TensorRole.EXPERT
_RECURRENT, _STATE = TensorRole.RECURRENT, TensorRole.RECURRENT_STATE
_SHARED, _ROUTER, _INDEXER = TensorRole.SHARED_EXPERT, TensorRole.ROUTER, TensorRole.INDEXER
_MATRICES: dict[str, tuple[ModuleKey, ...]] = {
    "attn_q": ((_ATTENTION, "q"),),
    "attn_k": ((_ATTENTION, "k"),),
    "attn_v": ((_ATTENTION, "v"),),
    # In hybrids it is the input projection of the linear layers.
    "attn_qkv": (
        (_ATTENTION, "q"),
        (_ATTENTION, "k"),
        (_ATTENTION, "v"),
        *((_RECURRENT, name) for name in ("qkv", "in_proj_qkv", "in_proj_qkvz")),
    ),
    "attn_gate": ((_RECURRENT, "z"), (_RECURRENT, "in_proj_z")),
    "ssm_in": tuple((_RECURRENT, name) for name in ("in", "in_bc", "in_proj", "in_proj_qkvz", "qkv", "z")),
    "ssm_x": ((_RECURRENT, "x"), (_RECURRENT, "x_proj")),
    "ssm_dt": ((_RECURRENT, "dt"), (_RECURRENT, "dt_proj")),
    "ssm_ba": ((_RECURRENT, "ba"), (_RECURRENT, "in_proj_ba")),
    "ssm_beta": ((_RECURRENT, "in_proj_b"), (_RECURRENT, "ba"), (_RECURRENT, "b")),
    "ssm_alpha": ((_RECURRENT, "in_proj_a"),),
    "ssm_out": ((_RECURRENT, "out"), (_RECURRENT, "out_proj")),
    "attn_output": ((_ATTENTION, "o"),),
    "attn_q_a": ((_ATTENTION, "q_a"),),
    "attn_q_b": ((_ATTENTION, "q_b"),),
    "attn_kv_a_mqa": ((_ATTENTION, "kv_a"),),
    "attn_kv_b": ((_ATTENTION, "kv_b"),),
    "attn_k_b": ((_ATTENTION, "kv_b"),),
    "attn_v_b": ((_ATTENTION, "kv_b"),),
    "ffn_gate": ((_FFN, "gate"),),
    "ffn_up": ((_FFN, "up"),),
    "ffn_down": ((_FFN, "down"),),
    "ffn_gate_exps": ((_EXPERT, "gate"),),
    "ffn_up_exps": ((_EXPERT, "up"),),
    "ffn_gate_up_exps": ((_EXPERT, "gate"), (_EXPERT, "up")),
    "ffn_down_exps": ((_EXPERT, "down"),),
    "ffn_gate_shexp": ((_SHARED, "gate"),),
    "ffn_up_shexp": ((_SHARED, "up"),),
    "ffn_down_shexp": ((_SHARED, "down"),),
    "ffn_gate_inp": ((_ROUTER, "router"),),
    "ffn_gate_inp_shexp": ((_ROUTER, "shared_gate"),),
    "exp_probs_b": ((TensorRole.ROUTER_BIAS, "router.bias"),),
    "indexer.attn_q_b": ((_INDEXER, "q_b"),),
    "indexer.attn_k": ((_INDEXER, "k"),),
    "indexer.proj": ((_INDEXER, "weights"),),
    "nextn.eh_proj": ((TensorRole.OTHER, "projection"),),
}
_OUTSIDE: dict[str, ModuleKey] = {
    "token_embd": (TensorRole.EMBEDDING, "embedding"),
    "output": (TensorRole.LM_HEAD, "lm_head"),
    "position_embd": (TensorRole.POSITION, "positions"),
}
_PASSED_OVER = frozenset({"rope_freqs", "rope_factors_long", "rope_factors_short"})
"""Tables of rotary frequencies: a few hundred bytes that no inventory lists."""


def _keys_of(tensor: GgufTensor, *, gated: bool) -> tuple[int, tuple[ModuleKey, ...]] | None:
    """Return (layer, tensors of the inventory) of a GGUF tensor; None where it is not known."""
    match = IN_BLOCK.fullmatch(tensor.name)
    layer, path = (int(match[1]), match[2]) if match else (NO_LAYER, tensor.name)
    stem, _, kind = path.rpartition(".")
    if stem.endswith(("norm", "norm_2", "norm_1")) or "norm" in stem:
        return layer, ((TensorRole.NORM, "norm"),)
    if kind == "bias" and stem.startswith("ssm_"):
        return layer, ((_STATE, ""),)
    if kind == "bias" and stem != "exp_probs_b":
        return layer, ((_ROUTER if stem == "ffn_gate_inp" else TensorRole.BIAS, f"{stem}.bias"),)
    if stem == "attn_sinks":
        return layer, ((TensorRole.BIAS, "sinks"),)
    if match is None:
        return (NO_LAYER, (_OUTSIDE[stem],)) if stem in _OUTSIDE else None
    keys = _MATRICES.get(stem)
    if path in {"ssm_a", "ssm_d"} or stem.startswith("ssm_conv1d"):
        keys = ((_STATE, ""),)
    if keys and stem == "ffn_up" and not gated:
        # Architectures with a fused gate store both halves in one tensor.
        keys = ((_FFN, "gate"), (_FFN, "up"))
    return (layer, keys) if keys else None


def _quantization(
    header: GgufHeader, facts: Facts, num_layers: int
) -> tuple[WeightQuantization, tuple[GgufTensor, ...]]:
    """Return base format and rules that repeat the tensor table, and the tensors that are not known."""
    gated = facts.has("ffn_gate.weight")
    formats: dict[ModuleKey, dict[int, str]] = {}
    strangers: list[GgufTensor] = []
    weight: Counter[str] = Counter()
    for tensor in header.tensors:
        found = _keys_of(tensor, gated=gated)
        if found is None or tensor.format not in WEIGHT_FORMATS:
            if tensor.name.partition(".")[0] not in _PASSED_OVER:
                strangers.append(tensor)
            continue
        layer, keys = found
        for key in keys:
            formats.setdefault(key, {})[layer] = tensor.format
            if key[0] in LINEAR_ROLES:
                weight[tensor.format] += tensor.num_elements
    base = weight.most_common(1)[0][0] if weight else "fp16"
    plain = base if base in {"fp16", "bf16", "fp32"} else "fp16"
    formats = _role_wide(formats)
    total = num_layers + facts.integer("nextn_predict_layers", 0)
    rules = compressed_rules(formats, base=base, plain=plain, num_layers=total)
    return WeightQuantization(format=base, rules=rules, method="gguf"), tuple(strangers)


def _role_wide(formats: Mapping[ModuleKey, Mapping[int, str]]) -> dict[ModuleKey, dict[int, str]]:
    """Join norms, biases and routers, which the inventory names otherwise, where each has one type throughout."""
    joined = {TensorRole.NORM, TensorRole.BIAS, _STATE, _ROUTER}
    found: dict[ModuleKey, dict[int, str]] = {}
    for role in joined:
        types = {form for key, by_layer in formats.items() if key[0] is role for form in by_layer.values()}
        if len(types) == 1:
            form = types.pop()
            found |= {(role, name): {NO_LAYER: form} for name in NAMES_OF_ROLE.get(role, ("",))}
        else:
            found |= {key: dict(by_layer) for key, by_layer in formats.items() if key[0] is role}
    return found | {key: dict(by_layer) for key, by_layer in formats.items() if key[0] not in joined}


def _warnings(model: Model, header: GgufHeader, strangers: tuple[GgufTensor, ...]) -> tuple[str, ...]:
    """Return what a user should know of this file."""
    warnings: list[str] = []
    parts = header.metadata.get("split.count")
    if isinstance(parts, int) and parts > 1:
        number = header.metadata.get("split.no")
        shown = number + 1 if isinstance(number, int) else "?"
        warnings.append(
            f"this is part {shown} of {parts} of a split model: only its tensors were read, "
            "weights of other parts have the most common type"
        )
        return tuple(warnings)
    tensors = inventory(model, with_mtp=True)
    if strangers:
        names = ", ".join(tensor.name[:60] for tensor in strangers[:_SHOWN])
        num_bytes = sum(tensor.num_bytes for tensor in strangers)
        warnings.append(f"{len(strangers)} tensors ({num_bytes:,} bytes) are not modelled: {names}")
    stored = sum(tensor.num_elements for tensor in header.tensors)
    expected = sum(tensor.parameters for tensor in tensors)
    num_bytes = sum(tensor.bytes_total for tensor in tensors)
    for what, value, own in (("parameters", stored, expected), ("bytes", header.tensor_bytes, num_bytes)):
        if abs(value - own) > TOLERANCE_FRACTION * own:
            warnings.append(
                f"the tensor table holds {value:,} {what}, the layers add up to {own:,} ({(value - own) / own:+.1%})"
            )
    return tuple(warnings)
