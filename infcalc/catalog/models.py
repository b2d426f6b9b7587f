"""Laws of a model entry that no single field shows, and the pattern language in which its layers are written.

A pattern such as ``3*dense 58*moe`` or ``15*(sliding full)`` lists the decoder layers in order by the names of their
blocks: items are separated by spaces; an item is a name or a parenthesised list of items, either with a count before
``*``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias, assert_never

from infcalc.errors import UsageError
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    FeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    Mixer,
    MoeFeedForward,
    Reach,
    RecurrentMixer,
)
from infcalc.spec.model import Model
from infcalc.spec.weights import WeightQuantization, weight_format

Law: TypeAlias = tuple[tuple[str, ...], str]
"""A broken law: the key path below the object examined, and what is wrong."""

MAX_LAYERS = 4096
"""Far above any published decoder (126 layers in Llama 3.1 405B); a guard against typing errors."""

_MAX_PATTERN_DEPTH = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TOKEN = re.compile(rf"[0-9]+ *\*|{_NAME.pattern}|\S")
_DTYPES = ("bf16", "fp16", "fp32")


def expand_layers(pattern: str) -> tuple[str, ...]:
    """Return the block name of every layer that ``pattern`` stands for.

    Raises:
        ValueError: the text is no pattern, or stands for no layer or for more than :data:`MAX_LAYERS`.

    >>> expand_layers("2*(sliding full) dense")
    ('sliding', 'full', 'sliding', 'full', 'dense')

    """
    tokens = _TOKEN.findall(pattern)
    names, end = _expand_items(tokens, 0, 0)
    if end < len(tokens):
        raise ValueError(f"{tokens[end]!r} is out of place")
    return tuple(names)


def _expand_items(tokens: Sequence[str], start: int, depth: int) -> tuple[list[str], int]:
    """Return the names of the items from ``start`` on, and the position of the token after them."""
    if depth > _MAX_PATTERN_DEPTH:
        raise ValueError("parentheses are nested too deeply")
    names: list[str] = []
    position = start
    while position < len(tokens) and tokens[position] != ")":
        repeats = 1
        if tokens[position].endswith("*"):
            repeats = _count(tokens[position])
            position += 1
        item, position = _expand_item(tokens, position, depth)
        if len(names) + len(item) * repeats > MAX_LAYERS:
            raise ValueError(f"more than {MAX_LAYERS} layers")
        names += item * repeats
    if not names:
        raise ValueError("expected the name of a block, such as dense in '3*dense 58*moe'")
    return names, position


def _expand_item(tokens: Sequence[str], position: int, depth: int) -> tuple[list[str], int]:
    if position >= len(tokens):
        raise ValueError("the pattern ends after a count")
    if tokens[position] == "(":
        names, end = _expand_items(tokens, position + 1, depth + 1)
        if end >= len(tokens):
            raise ValueError("a parenthesis is not closed")
        return names, end + 1
    if not _NAME.fullmatch(tokens[position]):
        raise ValueError(f"{tokens[position]!r} is out of place; a pattern looks like '3*dense 58*moe'")
    return [tokens[position]], position + 1


def _count(token: str) -> int:
    digits = token.rstrip("* ")
    if len(digits) > len(str(MAX_LAYERS)) or not 1 <= int(digits) <= MAX_LAYERS:
        raise ValueError(f"a count must be from 1 to {MAX_LAYERS}")
    return int(digits)


def compress_layers(names: Sequence[str]) -> str:
    """Return a short pattern for ``names``; :func:`expand_layers` gives the names back.

    >>> compress_layers(["dense"] * 3 + ["moe"] * 58)
    '3*dense 58*moe'
    >>> compress_layers((["sliding"] * 5 + ["full"]) * 10 + ["sliding"] * 2)
    '10*(5*sliding full) 2*sliding'
    """
    items: list[str] = []
    start = 0
    while start < len(names):
        period, repeats = _best_repeat(names, start)
        group = names[start : start + period]
        item = group[0] if period == 1 else f"({compress_layers(group)})"
        items.append(item if repeats == 1 else f"{repeats}*{item}")
        start += period * repeats
    return " ".join(items)


def _best_repeat(names: Sequence[str], start: int) -> tuple[int, int]:
    """Return the period and count of the repetition at ``start`` that covers most; the shorter period wins a tie."""
    best = (1, 1)
    saved = 0
    for period in range(1, (len(names) - start) // 2 + 1):
        group = names[start : start + period]
        repeats = 1
        while names[start + repeats * period : start + (repeats + 1) * period] == group:
            repeats += 1
        if (repeats - 1) * period > saved:
            best, saved = (period, repeats), (repeats - 1) * period
    return best


def name_blocks(layers: Sequence[Layer]) -> dict[str, Layer]:
    """Return a telling name for each of the distinct ``layers``, in their order.

    A name says what tells the layers apart: their mixers (``full``, ``sliding``, ``latent``, ``mamba2`` ...), their
    feed-forward blocks (``dense``, ``moe``), or both; equal names are numbered.
    """
    mixers = [_mixer_word(layer.mixer) for layer in layers]
    feed_forwards = [_feed_forward_word(layer.feed_forward) for layer in layers]
    by_mixer = len(set(mixers)) > 1
    by_feed_forward = len(set(feed_forwards)) > 1 or not by_mixer
    blocks: dict[str, Layer] = {}
    for layer, mixer, feed_forward in zip(layers, mixers, feed_forwards, strict=True):
        words = [word for word, used in ((mixer, by_mixer), (feed_forward, by_feed_forward)) if used and word]
        name = base = "_".join(words) or mixer or "bare"
        number = 1
        while name in blocks:
            number += 1
            name = f"{base}_{number}"
        blocks[name] = layer
    return blocks


def _mixer_word(mixer: Mixer | None) -> str:
    match mixer:
        case None:
            return ""
        case GroupedAttention():
            return mixer.reach.value
        case LatentAttention():
            return "latent"
        case CompressedAttention():
            return "compressed" if mixer.compression else "window"
        case RecurrentMixer():
            return mixer.recurrent.value
        case _:
            assert_never(mixer)


def _feed_forward_word(feed_forward: FeedForward | None) -> str:
    match feed_forward:
        case None:
            return ""
        case DenseFeedForward():
            return "dense"
        case MoeFeedForward():
            return "moe"
        case _:
            assert_never(feed_forward)


def broken_layer_laws(layer: Layer) -> Iterator[Law]:
    """Yield what contradicts itself inside one layer."""
    if layer.mixer is None and layer.feed_forward is None and not layer.extras:
        yield (), "a layer needs a mixer, a feed_forward or extras"
    if layer.mixer is not None:
        for path, message in _broken_mixer_laws(layer.mixer):
            yield ("mixer", *path), message
    match layer.feed_forward:
        case MoeFeedForward() as moe:
            if moe.experts_per_token > moe.num_experts:
                yield (
                    ("feed_forward", "experts_per_token"),
                    f"{moe.experts_per_token} experts per token of only {moe.num_experts} experts",
                )
            if moe.shared_gate and not moe.shared_width:
                yield ("feed_forward", "shared_gate"), "a gate of shared experts without shared_width"
        case DenseFeedForward() | None:
            pass
        case _:
            assert_never(layer.feed_forward)


def _broken_mixer_laws(mixer: Mixer) -> Iterator[Law]:
    match mixer:
        case GroupedAttention():
            if mixer.num_heads % mixer.num_kv_heads:
                yield (
                    ("num_kv_heads",),
                    f"num_heads {mixer.num_heads} is not a multiple of num_kv_heads {mixer.num_kv_heads}",
                )
            if mixer.reach is not Reach.FULL and mixer.window_tokens is None:
                yield ("window_tokens",), f"reach {mixer.reach} needs window_tokens"
            if mixer.reach is Reach.FULL and mixer.window_tokens is not None:
                yield ("window_tokens",), "reach full has no window; write reach: sliding or chunked"
        case CompressedAttention():
            if mixer.rope_dim > mixer.entry_dim:
                yield ("rope_dim",), f"rope_dim {mixer.rope_dim} exceeds entry_dim {mixer.entry_dim}"
        case LatentAttention() | RecurrentMixer():
            pass
        case _:
            assert_never(mixer)


def _broken_format_laws(quantization: WeightQuantization) -> Iterator[Law]:
    formats: list[Law] = [(("quantization", "format"), quantization.format)]
    for number, rule in enumerate(quantization.rules):
        formats.append((("quantization", "rules", str(number), "format"), rule.format))
    for path, name in formats:
        try:
            weight_format(name)
        except UsageError as problem:
            yield path, f"{problem.message}; {problem.hint}"


def broken_model_laws(model: Model) -> Iterator[Law]:
    """Yield what contradicts itself in a model as a whole (layers are examined by :func:`broken_layer_laws`)."""
    if model.dtype not in _DTYPES:
        yield ("dtype",), f"unknown type {model.dtype!r}: one of {', '.join(_DTYPES)}"
    if model.kv_dtype is not None and model.kv_dtype not in KV_FORMATS:
        yield ("kv_dtype",), f"unknown KV-cache type {model.kv_dtype!r}: one of {', '.join(KV_FORMATS)}"
    if model.quantization is not None:
        yield from _broken_format_laws(model.quantization)
        num_layers = model.num_layers + (model.mtp.num_layers if model.mtp else 0)
        for number, rule in enumerate(model.quantization.rules):
            outside = [index for index in rule.layers or () if index >= num_layers]
            if outside:
                yield (
                    ("quantization", "rules", str(number), "layers"),
                    f"layer {outside[0]} of a model with {num_layers} layers, counted from 0",
                )
