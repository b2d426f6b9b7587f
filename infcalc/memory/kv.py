"""The KV cache of one sequence: what grows with every token, what saturates, and what is constant per request.

The three parts are never mixed: a slope in bytes per token, windows that fill up and then stay, and recurrent state.
Formulas: cached elements per token and layer are ``kv_heads * (d_k + d_v)`` for grouped attention, one latent of
``kv_lora_rank + qk_rope_head_dim`` for MLA (K and V share it; every TP rank holds all of it), one entry per
``compression`` tokens for compressed attention. Source: ``get_num_kv_heads`` and the KV specs of vLLM; DeepSeek-V2
and DeepSeek-V4 reports.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.lowering.cache import (
    compressed_entry_bytes,
    grouped_entry_bytes,
    indexer_entry_bytes,
    latent_entry_bytes,
    recurrent_state_bytes,
    ungrouped_entry_bytes,
)
from infcalc.spec.layers import (
    CompressedAttention,
    GroupedAttention,
    Indexer,
    LatentAttention,
    Layer,
    RecurrentMixer,
)
from infcalc.spec.parallelism import Parallelism, stage_layers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model

_WHOLE = Parallelism()


class KvKind(StrEnum):
    """What one part of the cache is."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    LATENT = "latent"
    COMPRESSED = "compressed"
    INDEXER = "indexer"
    RECURRENT = "recurrent"


@frozen
class KvComponent:
    """One part of a sequence's cache, summed over ``layers`` layers.

    ``entry_bytes`` are stored per ``tokens_per_entry`` tokens, for at most ``window_tokens`` tokens where there is a
    window; ``constant_bytes`` per request whatever its length (recurrent state).
    """

    kind: KvKind
    layers: int
    entry_bytes: int = 0
    tokens_per_entry: int = 1
    window_tokens: int | None = None
    constant_bytes: int = 0
    mtp: bool = False
    """Belongs to MTP layers: there only when speculation is on."""

    @property
    def bytes_per_token(self) -> int | float:
        """Bytes that one more token adds while the part still grows; a whole number wherever it can be."""
        whole, rest = divmod(self.entry_bytes, self.tokens_per_entry)
        return self.entry_bytes / self.tokens_per_entry if rest else whole

    @property
    def slope_bytes_per_token(self) -> int | float:
        """Bytes that one more token adds in the long run: nothing once a window is full."""
        return 0 if self.window_tokens is not None else self.bytes_per_token

    @property
    def max_bytes(self) -> int | None:
        """Size at which the part stays; None where it grows without end."""
        if self.kind is KvKind.RECURRENT:
            return self.constant_bytes
        return None if self.window_tokens is None else self.bytes_at(self.window_tokens)

    def bytes_at(self, num_tokens: int, *, in_flight_tokens: int = 0) -> int:
        """Return the bytes of a sequence of ``num_tokens``.

        ``in_flight_tokens`` is what an engine keeps beside a window while it computes (its micro-batch).
        """
        kept = num_tokens
        if self.window_tokens is not None:
            kept = min(num_tokens, self.window_tokens + in_flight_tokens)
        return self.constant_bytes + self.entry_bytes * (kept // self.tokens_per_entry)


def kv_components(
    model: Model,
    kv: KvFormat,
    *,
    parallelism: Parallelism = _WHOLE,
    stage: int = 0,
    with_mtp: bool = False,
) -> tuple[KvComponent, ...]:
    """Return the parts of one sequence's cache: of the whole model, or of one rank of pipeline stage ``stage``.

    Layers of equal kind and window are one part. MTP layers count only ``with_mtp`` (on the last stage).

    Raises:
        UsageError: ``kv`` exists only for latent caches and the model has none, or only some layers can use it.

    """
    layers = [run.layer for run in model.layers for _ in range(run.num_layers)]
    indices = stage_layers(len(layers), parallelism.pp)[stage]
    known: dict[int, list[KvComponent]] = {}
    for index in indices:
        layer = layers[index]
        if id(layer) not in known:
            known[id(layer)] = _layer_parts(layer, kv, parallelism.tp, mtp=False)
    parts = [part for index in indices for part in known[id(layers[index])]]
    if with_mtp and model.mtp is not None and stage == parallelism.pp - 1:
        parts += _layer_parts(model.mtp.layer, kv, parallelism.tp, mtp=True) * model.mtp.num_layers
    if kv.latent_rope_bits is not None and not any(part.kind in _LATENT_KINDS for part in parts) and parts:
        raise UsageError(
            f"KV format {kv.name} stores latents, and {model.name} has no latent attention",
            place="--kv-dtype",
            hint="use fp8",
        )
    return _merge(parts)


_LATENT_KINDS = frozenset({KvKind.LATENT, KvKind.COMPRESSED})


def slope_bytes_per_token(components: Iterable[KvComponent]) -> int | float:
    """Return the bytes each further token adds beyond every window.

    Worked example, Llama 3 70B in bf16: 80 layers x 8 KV heads x (128 + 128) x 2 bytes = 327,680.
    """
    return sum(part.slope_bytes_per_token for part in components)


def constant_bytes(components: Iterable[KvComponent]) -> int:
    """Return the bytes a request needs whatever its length: its recurrent state."""
    return sum(part.constant_bytes for part in components)


def sequence_bytes(components: Iterable[KvComponent], num_tokens: int, *, in_flight_tokens: int = 0) -> int:
    """Return the bytes of one sequence of ``num_tokens`` tokens."""
    return sum(part.bytes_at(num_tokens, in_flight_tokens=in_flight_tokens) for part in components)


def mha_bytes_per_token(model: Model, kv: KvFormat) -> int:
    """Return bytes per token if every query head of every caching layer kept its own key and value.

    For MLA the heads' key is ``qk_nope + qk_rope`` wide and the value ``value_head_dim``: 4,997,120 for DeepSeek-V3.
    """
    return sum(run.num_layers * ungrouped_entry_bytes(run.layer.mixer, kv) for run in model.layers)


def grouped_bytes_per_token(components: Iterable[KvComponent]) -> int | float:
    """Return what a token costs before any window is full, indexer keys aside: the base of the saving against MHA."""
    return sum(part.bytes_per_token for part in components if part.kind is not KvKind.INDEXER)


def _layer_parts(layer: Layer, kv: KvFormat, tp: int, *, mtp: bool) -> list[KvComponent]:
    mixer = layer.mixer
    match mixer:
        case None:
            return []
        case GroupedAttention():
            return _grouped_parts(mixer, kv, tp, mtp=mtp)
        case LatentAttention():
            latent = KvComponent(kind=KvKind.LATENT, layers=1, entry_bytes=latent_entry_bytes(mixer, kv), mtp=mtp)
            return [latent, *_indexer_parts(mixer.indexer, mtp=mtp)]
        case CompressedAttention():
            return _compressed_parts(mixer, kv, mtp=mtp)
        case RecurrentMixer():
            held = recurrent_state_bytes(mixer, tp=tp)
            return [KvComponent(kind=KvKind.RECURRENT, layers=1, constant_bytes=held, mtp=mtp)]
        case _:
            assert_never(mixer)


def _grouped_parts(mixer: GroupedAttention, kv: KvFormat, tp: int, *, mtp: bool) -> list[KvComponent]:
    if mixer.shares_kv:
        return []
    part = KvComponent(
        kind=KvKind(mixer.reach.value),
        layers=1,
        entry_bytes=grouped_entry_bytes(mixer, kv, tp=tp),
        window_tokens=mixer.window_tokens,
        mtp=mtp,
    )
    return [part, *_indexer_parts(mixer.indexer, mtp=mtp)]


def _compressed_parts(mixer: CompressedAttention, kv: KvFormat, *, mtp: bool) -> list[KvComponent]:
    entry_bytes = compressed_entry_bytes(mixer, kv)
    window = KvComponent(
        kind=KvKind.SLIDING, layers=1, entry_bytes=entry_bytes, window_tokens=mixer.window_tokens, mtp=mtp
    )
    if mixer.compression == 0:
        return [window]
    compressed = KvComponent(
        kind=KvKind.COMPRESSED, layers=1, entry_bytes=entry_bytes, tokens_per_entry=mixer.compression, mtp=mtp
    )
    return [window, compressed, *_indexer_parts(mixer.indexer, mtp=mtp)]


def _indexer_parts(indexer: Indexer | None, *, mtp: bool) -> list[KvComponent]:
    if indexer is None or indexer.shared:
        return []
    return [
        KvComponent(
            kind=KvKind.INDEXER,
            layers=1,
            entry_bytes=indexer_entry_bytes(indexer),
            tokens_per_entry=indexer.pool_tokens,
            mtp=mtp,
        )
    ]


def _merge(parts: list[KvComponent]) -> tuple[KvComponent, ...]:
    groups: dict[tuple[KvKind, int | None, int, bool], list[KvComponent]] = {}
    for part in parts:
        groups.setdefault((part.kind, part.window_tokens, part.tokens_per_entry, part.mtp), []).append(part)
    return tuple(
        KvComponent(
            kind=kind,
            layers=sum(part.layers for part in group),
            entry_bytes=sum(part.entry_bytes for part in group),
            tokens_per_entry=tokens_per_entry,
            window_tokens=window_tokens,
            constant_bytes=sum(part.constant_bytes for part in group),
            mtp=mtp,
        )
        for (kind, window_tokens, tokens_per_entry, mtp), group in groups.items()
    )
