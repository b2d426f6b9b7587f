"""The models of the laboratory: Llama-style, in single precision, small enough for any computer."""

from __future__ import annotations

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.lowering.tensors import inventory
from infcalc.spec.layers import DenseFeedForward, GroupedAttention, Layer, LayerRun
from infcalc.spec.model import Model

HEAD_DIM = 64
VOCAB_SIZE = 8192
MAX_HIDDEN = 16_384
MAX_LAYERS = 128
_QUERIES_PER_KV_HEAD = 4
_BEYOND_CACHE = 1.5
"""How many times the last-level cache the largest model is: with less, much of it would still lie there."""


@frozen
class Size:
    """A size by name: its hidden width and its layers, the least of them where it grows with the computer's cache."""

    hidden_size: int
    num_layers: int
    beyond_cache: bool = False


SIZES = {
    "small": Size(hidden_size=512, num_layers=4),
    "medium": Size(hidden_size=1024, num_layers=6),
    "large": Size(hidden_size=2048, num_layers=4, beyond_cache=True),
}


def chosen_model(size: str, *, hidden: int | None, layers: int | None, cache_bytes: int | None) -> Model:
    """Return the model of a size, with other ``hidden`` width or ``layers`` where they are given.

    ``large`` has as many layers as it takes to be half as large again as a cache of ``cache_bytes``.

    Raises:
        UsageError: no such size, or a width or number of layers that the engine does not compute.

    """
    known = SIZES.get(size)
    if known is None:
        raise UsageError(f"{size!r} is not a size", place="--size", hint=f"one of {', '.join(SIZES)}")
    if hidden is not None and (hidden % HEAD_DIM or not HEAD_DIM <= hidden <= MAX_HIDDEN):
        raise UsageError(
            f"a hidden width of {hidden}", place="--hidden", hint=f"a multiple of {HEAD_DIM} up to {MAX_HIDDEN:,}"
        )
    if layers is not None and not 1 <= layers <= MAX_LAYERS:
        raise UsageError(f"{layers} layers", place="--layers", hint=f"a whole number from 1 to {MAX_LAYERS}")
    width, depth = hidden or known.hidden_size, layers or known.num_layers
    made = llama(f"lab-{size}", hidden_size=width, num_layers=depth)
    if known.beyond_cache and layers is None and cache_bytes:
        while weight_bytes(made) < _BEYOND_CACHE * cache_bytes and depth < MAX_LAYERS:
            depth += 1
            made = llama(f"lab-{size}", hidden_size=width, num_layers=depth)
    return made


def llama(name: str, *, hidden_size: int, num_layers: int, vocab_size: int = VOCAB_SIZE) -> Model:
    """Return a decoder with RMSNorm, RoPE, grouped heads and SwiGLU, whose inner width is 8/3 of ``hidden_size``.

    Source: Touvron et al., "LLaMA" (the inner width); Ainslie et al., "GQA" (four query heads to a KV head).
    """
    num_heads = hidden_size // HEAD_DIM
    num_kv_heads = num_heads // _QUERIES_PER_KV_HEAD if num_heads % _QUERIES_PER_KV_HEAD == 0 else 1
    mixer = GroupedAttention(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=HEAD_DIM)
    inner = -(-hidden_size * 8 // 3 // HEAD_DIM) * HEAD_DIM
    layer = Layer(mixer=mixer, feed_forward=DenseFeedForward(width=inner))
    return Model(
        name=name,
        architecture="llama",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        layers=(LayerRun(num_layers=num_layers, layer=layer),),
        dtype="fp32",
    )


def weight_bytes(model: Model) -> int:
    """Return the bytes of all weights of ``model``, by THE inventory."""
    return sum(tensor.bytes_total for tensor in inventory(model))


def grouped_attention(model: Model) -> GroupedAttention:
    """Return the attention of the layers, which are all alike.

    Raises:
        TypeError: they attend in another way; no model of the laboratory does.

    """
    mixer = model.layers[0].layer.mixer
    if not isinstance(mixer, GroupedAttention):
        raise TypeError(f"{model.name} does not attend in groups")
    return mixer
