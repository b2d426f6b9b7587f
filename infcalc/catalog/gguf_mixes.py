"""GGUF file types (``q4_k_m`` ...) as rules per tensor: an approximation of the choice llama.cpp makes.

A file type names a mix: most matrices have its base type, the output head and parts of the value and down projections
a wider one. The choice depends on details (number of experts, shape divisibility, importance matrix) that differ by
version; the table of a real file, where there is one, is exact and read by ``catalog.gguf``.
Source: ``llama_tensor_get_type`` and ``use_more_bits`` of llama.cpp's ``llama-quant.cpp``, as of 2026.
"""

from __future__ import annotations

from typing import TypeAlias

from infcalc.spec.layers import GroupedAttention
from infcalc.spec.model import Model
from infcalc.spec.weights import GGUF_BLOCKS, TensorRole, WeightQuantization, WeightRule

_DOWN_ROLES = (TensorRole.FEED_FORWARD, TensorRole.EXPERT, TensorRole.SHARED_EXPERT)
_FP32_ROLES = (
    TensorRole.NORM,
    TensorRole.ROUTER,
    TensorRole.ROUTER_BIAS,
    TensorRole.BIAS,
    TensorRole.RECURRENT_STATE,
)
_GQA_OF_WIDE_VALUES = 4

# Mix: base type, type of the head, and how the value and down projections are widened.
_Widening: TypeAlias = tuple[tuple[str, ...], tuple[TensorRole, ...], tuple[int, ...] | None, str]
_BASES = {
    "q2_k": "q2_k",
    "q3_k_s": "q3_k",
    "q3_k_m": "q3_k",
    "q3_k_l": "q3_k",
    "q4_k_s": "q4_k",
    "q4_k_m": "q4_k",
    "q5_k_s": "q5_k",
    "q5_k_m": "q5_k",
    "mxfp4_moe": "q8_0",
}
MIXES = frozenset(_BASES) | {name for name in GGUF_BLOCKS if not name.startswith("gguf_")}
"""Every word that means a GGUF file type (a plain tensor type is the mix of that name)."""


def gguf_mix(word: str, model: Model) -> WeightQuantization:
    """Return the approximate rules of GGUF file type ``word`` (one of :data:`MIXES`) for ``model``."""
    base = _BASES.get(word, word)
    num_layers = model.num_layers
    heads = next((run.layer.mixer for run in model.layers if isinstance(run.layer.mixer, GroupedAttention)), None)
    wide_values = heads is not None and heads.num_heads >= _GQA_OF_WIDE_VALUES * heads.num_kv_heads
    rules: list[WeightRule] = [WeightRule(roles=_FP32_ROLES, format="fp32")]
    # A tied embedding table is the head as well and gets the head's type.
    head = (
        base if base in {"q8_0", "q8_k", "q6_k"} else "q5_k" if base.startswith(("iq1", "iq2", "iq3_xxs")) else "q6_k"
    )
    rules.append(WeightRule(roles=(TensorRole.LM_HEAD,), format=head))
    rules.append(WeightRule(roles=(TensorRole.EMBEDDING,), format=head if model.tied_embeddings else base))
    rules.append(WeightRule(roles=(TensorRole.POSITION, TensorRole.OTHER), format="fp32"))
    if word == "mxfp4_moe":
        rules.append(WeightRule(roles=(TensorRole.EXPERT,), format="gguf_mxfp4"))
    for names, roles, layers, form in _widened(word, num_layers, wide_values=wide_values):
        if layers is None or layers:
            rules.append(WeightRule(roles=roles, names=names, layers=layers, format=form))
    return WeightQuantization(format=base, rules=tuple(rules), method=f"gguf {word} (approximate mix)")


def _widened(word: str, num_layers: int, *, wide_values: bool) -> list[_Widening]:
    """Return (tensor names, roles, layers, type) of the projections that a mix widens, first match first."""
    every = tuple(range(num_layers))
    more = tuple(layer for layer in every if use_more_bits(layer, num_layers))
    eighth = tuple(layer for layer in every if layer < num_layers // 8)
    sixteenth = tuple(layer for layer in every if layer < num_layers // 16)
    value, down, out = ("v",), ("down",), ("o",)
    attention = (TensorRole.ATTENTION,)
    recipes: dict[str, list[_Widening]] = {
        "q4_k_m": [(value, attention, more, "q6_k"), (down, _DOWN_ROLES, more, "q6_k")],
        "q4_k_s": [(value, attention, every[:4], "q5_k"), (down, _DOWN_ROLES, eighth, "q5_k")],
        "q3_k_m": [
            (value, attention, every[:2], "q5_k"),
            (value, attention, None, "q4_k"),
            (down, _DOWN_ROLES, sixteenth, "q5_k"),
            (down, _DOWN_ROLES, None, "q4_k"),
            (out, attention, None, "q4_k"),
        ],
        "q3_k_l": [
            (value, attention, None, "q5_k"),
            (down, _DOWN_ROLES, None, "q5_k"),
            (out, attention, None, "q5_k"),
        ],
        "q2_k": [
            (value, attention, None, "q4_k" if wide_values else "q3_k"),
            (down, _DOWN_ROLES, None, "q3_k"),
            (out, attention, None, "q3_k"),
        ],
        "iq4_xs": [(value, attention, None, "q5_k" if wide_values else word), (down, _DOWN_ROLES, eighth, "q5_k")],
    }
    recipes |= {"q5_k_m": recipes["q4_k_m"], "iq4_nl": recipes["iq4_xs"]}
    return recipes.get(word, [])


def use_more_bits(layer: int, num_layers: int) -> bool:
    """Return whether a mix widens this layer: the first and last eighth, and every third between."""
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2  # noqa: PLR2004 - the last of every three
