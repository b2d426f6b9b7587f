"""From the bytes of a pool to blocks, the token line an engine prints, and the sequences that truly fit.

vLLM's hybrid allocator (0.10 and later): layers with the same cache spec are one type; types are cut into groups of
equal size (the smallest count, or the largest where that is below 1.5 times the smallest), short groups are filled up,
and all groups draw pages of one size from one pool. A page of a type that is smaller gets more tokens; the attention
block of a model with recurrent layers grows until its page holds one layer's state. Sources: ``kv_cache_utils`` and
the KV specs of vLLM 0.10 to 0.33; ``model_runner`` of SGLang; ``KvCacheCreator`` of TensorRT-LLM; llama.cpp's
``llama_kv_cache``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from infcalc.engines.rules import Allocator, TokenLine
from infcalc.frozen import frozen
from infcalc.lowering.cache import (
    compressed_entry_bytes,
    grouped_entry_bytes,
    indexer_entry_bytes,
    kv_heads_on_rank,
    latent_entry_bytes,
)
from infcalc.spec.layers import CompressedAttention, GroupedAttention, LatentAttention, Reach, RecurrentMixer
from infcalc.spec.parallelism import stage_layers

if TYPE_CHECKING:
    from infcalc.engines.evidence import Evidence
    from infcalc.engines.rules import EngineRules
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.layers import Mixer
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism

_HEAD_MULTIPLE = 256
"""To which old engines padded the heads of latent models they stored in full."""
_FP32_BYTES = 4
_CONV_TAPS = 3
"""Inputs a short convolution keeps; drafting keeps one more per draft token."""
_COMPRESSED_PADDING = 1.25
"""Pages of compressed caches are aligned and their windows come in whole blocks: 1.2 to 1.3 in four logs."""
_ATTENTION_ALIGNMENT, _LATENT_ALIGNMENT = 16, 128
_LOPSIDED = 1.5
CELL_MULTIPLE = 256
"""llama.cpp pads its contexts and windows to a multiple of this."""


@frozen
class Settings:
    """What of a deployment shapes its pages: ``block_tokens`` as asked, and what is in flight beside windows."""

    block_tokens: int
    max_model_len: int
    max_num_batched_tokens: int
    num_draft_tokens: int = 0
    with_mtp: bool = False
    draft_layers: tuple[tuple[Mixer, int], ...] = ()
    """Mixers of a separate draft and how many layers have each: they cache every token too, on the last stage."""
    dcp: int = 1
    prefix_caching: bool = True
    num_slots: int = 1
    """Sequences for which an engine that allocates cells keeps windows and states."""
    unified_cache: bool = True
    """The slots share one stream of cells, instead of each having a part of them."""


@frozen
class PageGroup:
    """Layers that share a block table. ``window_tokens`` None: grows with the sequence; ``recurrent``: whole pages."""

    layers: int
    block_tokens: int
    window_tokens: int | None = None
    recurrent: bool = False


@frozen
class PagePlan:
    """How one rank's pool is cut: ``block_bytes`` of all layers of a group, and the groups."""

    block_bytes: int
    block_tokens: int
    """Of the smallest block, as the token line counts."""
    groups: tuple[PageGroup, ...]
    fixed_bytes_per_request: int = 0
    """What a request holds whatever its length, where it does not come in pages (compressed caches, states).

    Of an engine that allocates cells: the windows and states of all its slots, beside the cells that grow."""
    decoding_bytes_per_request: int = 0
    """The same of one request while it decodes: without the tokens of the steps in flight, which are those of prefill.
    """
    window_pool_fraction: float = 0.0
    """Tokens of a second pool, that of the windowed layers, over those of the first; 0: there is none."""
    window_tokens: int = 0
    """Tokens of that pool that one sequence takes at most."""
    state_pool_ratio: float = 0.0
    """Recurrent states have a pool of their own, this many times what is left for the blocks; 0: they have none."""
    slot_bytes: int = 0
    """What one running sequence takes of that pool."""
    padding_fraction: float = 0.0
    """Share of a block that filled-up groups and padded pages waste."""


@frozen
class _Spec:
    """The cache of one layer: bytes per token, or a state of ``page_bytes``."""

    bytes_per_token: float
    window_tokens: int | None = None
    state_bytes: int = 0
    latent: bool = False


def plan(
    model: Model, kv: KvFormat, parallelism: Parallelism, rules: EngineRules, settings: Settings, *, stage: int = 0
) -> PagePlan:
    """Return how the pool of a rank of pipeline stage ``stage`` is cut.

    Worked example, Gemma 3 27B: 10 full and 52 sliding layers give 1 + 6 groups of 10; a block of 16 tokens takes
    10 x 16 x 8,192 = 1,310,720 bytes in bf16.
    """
    counted = _counted_mixers(model, parallelism, stage, with_mtp=settings.with_mtp)
    if stage == parallelism.pp - 1:
        counted += settings.draft_layers
    flight = rules.in_flight_steps * settings.max_num_batched_tokens
    fixed, decoding = (
        sum(_compressed_fixed(mixer, kv, tokens) * layers for mixer, layers in counted) for tokens in (flight, 0)
    )
    specs: dict[_Spec, int] = {}
    for mixer, layers in counted:
        for spec in _specs(mixer, kv, parallelism, rules, settings):
            specs[spec] = specs.get(spec, 0) + layers
    match rules.allocator:
        case Allocator.PAGE_GROUPS if not fixed:
            return _page_groups(specs, settings)
        case Allocator.TWO_POOLS | Allocator.CELLS | Allocator.UNIFORM | Allocator.PAGE_GROUPS:
            return _uniform(specs, settings, rules, fixed, decoding)
        case _:
            assert_never(rules.allocator)


def _counted_mixers(
    model: Model, parallelism: Parallelism, stage: int, *, with_mtp: bool
) -> list[tuple[Mixer | None, int]]:
    """Return the mixers of a stage in their order, runs of one object as one."""
    held = stage_layers(model.num_layers, parallelism.pp)[stage]
    counted: list[tuple[Mixer | None, int]] = []
    start = 0
    for run in model.layers:
        layers = len(range(max(start, held.start), min(start + run.num_layers, held.stop)))
        if layers:
            counted.append((run.layer.mixer, layers))
        start += run.num_layers
    if with_mtp and model.mtp is not None and stage == parallelism.pp - 1:
        counted.append((model.mtp.layer.mixer, model.mtp.num_layers))
    return counted


def _specs(
    mixer: Mixer | None, kv: KvFormat, parallelism: Parallelism, rules: EngineRules, settings: Settings
) -> list[_Spec]:
    tp = parallelism.tp
    match mixer:
        case None | GroupedAttention(shares_kv=True) | CompressedAttention(compression=0):
            return []
        case GroupedAttention():
            width: float = grouped_entry_bytes(mixer, kv, tp=tp)
            if mixer.indexer is not None and not mixer.indexer.shared:
                width += indexer_entry_bytes(mixer.indexer) / mixer.indexer.pool_tokens
            windowed = mixer.reach is not Reach.FULL and rules.allocator is not Allocator.UNIFORM
            return [_Spec(bytes_per_token=width, window_tokens=mixer.window_tokens if windowed else None)]
        case LatentAttention():
            return [_Spec(bytes_per_token=_latent_width(mixer, kv, tp, rules), latent=True)]
        case CompressedAttention():
            width = compressed_entry_bytes(mixer, kv) / mixer.compression
            if mixer.indexer is not None and not mixer.indexer.shared:
                width += indexer_entry_bytes(mixer.indexer) / mixer.indexer.pool_tokens
            return [_Spec(bytes_per_token=width)]
        case RecurrentMixer():
            taps = (_CONV_TAPS + settings.num_draft_tokens) / _CONV_TAPS
            bits = mixer.state_elements * mixer.state_bits + mixer.conv_elements * mixer.conv_bits * taps
            return [_Spec(bytes_per_token=0, state_bytes=-(-int(bits) // (8 * tp)))]
        case _:
            assert_never(mixer)


def _latent_width(mixer: LatentAttention, kv: KvFormat, tp: int, rules: EngineRules) -> float:
    if rules.latent_as_heads:
        padded = -(-(mixer.qk_nope_head_dim + mixer.qk_rope_head_dim) // _HEAD_MULTIPLE) * _HEAD_MULTIPLE
        return 2 * kv_heads_on_rank(mixer.num_heads, tp) * kv.vector_bytes(padded)
    width: float = latent_entry_bytes(mixer, kv)
    if rules.latent_multiple > 1 and kv.latent_rope_bits is None:
        elements = mixer.kv_lora_rank + mixer.qk_rope_head_dim
        width = kv.vector_bytes(-(-elements // rules.latent_multiple) * rules.latent_multiple)
    if mixer.indexer is not None and not mixer.indexer.shared:
        width += indexer_entry_bytes(mixer.indexer) / mixer.indexer.pool_tokens
    return width


def _compressed_fixed(mixer: Mixer | None, kv: KvFormat, flight: int) -> int:
    """Return what a request holds in a layer of compressed attention beside its growing entries.

    Its raw window, and the compressor's fp32 inputs, which an engine keeps like a window of 8 or of ``compression``
    tokens; both with ``flight``, the tokens of the steps in flight.
    """
    if not isinstance(mixer, CompressedAttention):
        return 0
    held = compressed_entry_bytes(mixer, kv) * (mixer.window_tokens + flight)
    inputs = [*mixer.matrices, *(mixer.indexer.matrices if mixer.indexer is not None else ())]
    width = sum(matrix.rows for matrix in inputs if matrix.name.endswith(("compressor.kv", "compressor.gate")))
    held += width * _FP32_BYTES * (max(8, mixer.compression) + flight)
    return round(held * _COMPRESSED_PADDING)


def _uniform(specs: dict[_Spec, int], settings: Settings, rules: EngineRules, fixed: int, decoding: int) -> PagePlan:
    """Return one group of all layers that grow with the sequence; states are left to the counting of sequences.

    Windowed layers have pools of their own: SGLang's second pool holds a stated share of the tokens of the first, so
    that a token costs ``full + share x windowed`` bytes; llama.cpp allocates each sequence its windows. SGLang's pool
    of recurrent states takes ``r / (1 + r)`` of all, in slots of one running sequence each, with a copy for each draft
    token.
    """
    growing = {spec: layers for spec, layers in specs.items() if not spec.state_bytes}
    full = sum(spec.bytes_per_token * layers for spec, layers in growing.items() if spec.window_tokens is None)
    windowed = {spec: layers for spec, layers in growing.items() if spec.window_tokens is not None}
    states = sum(spec.state_bytes * layers for spec, layers in specs.items())
    width, share = full, 0.0
    ratio = rules.state_pool_ratio if states and growing else 0.0
    slot = states * (1 + settings.num_draft_tokens) if ratio else 0
    if ratio:
        states = 0
    slots = settings.num_slots if rules.allocator is Allocator.CELLS else 1
    allocated, states_and_windows = states * slots, states
    if windowed and not full:
        width = sum(spec.bytes_per_token * layers for spec, layers in windowed.items())
    elif windowed and rules.allocator is Allocator.TWO_POOLS:
        share = rules.window_pool_fraction
        width += share * sum(spec.bytes_per_token * layers for spec, layers in windowed.items())
    elif windowed:
        alone = replace(settings, num_slots=1)
        allocated, states_and_windows = (
            held
            + sum(
                round(spec.bytes_per_token * window_cells(spec.window_tokens or 0, shared)) * layers
                for spec, layers in windowed.items()
            )
            for held, shared in ((allocated, settings), (states, alone))
        )
    block = settings.block_tokens
    return PagePlan(
        block_bytes=max(1, round(width * block)),
        block_tokens=block,
        groups=(PageGroup(layers=max(1, sum(growing.values())), block_tokens=block),),
        fixed_bytes_per_request=fixed + allocated,
        decoding_bytes_per_request=decoding + states_and_windows,
        window_pool_fraction=share,
        window_tokens=max((spec.window_tokens or 0 for spec in windowed), default=0) if share else 0,
        state_pool_ratio=ratio,
        slot_bytes=slot,
    )


def stream_cells(context_tokens: int, settings: Settings) -> int:
    """Return the cells of one stream of llama.cpp for ``context_tokens`` (``-c``): of all slots, or of each its part.

    >>> apart = Settings(
    ...     block_tokens=256, max_model_len=8192, max_num_batched_tokens=512, num_slots=3, unified_cache=False
    ... )
    >>> stream_cells(8192, apart), context_cells(8192, apart)
    (2816, 8448)
    """
    return _ceil(context_tokens // _streams(settings), CELL_MULTIPLE) * CELL_MULTIPLE


def context_cells(context_tokens: int, settings: Settings) -> int:
    """Return the cells that llama.cpp allocates in a layer without a window, over all its streams."""
    return stream_cells(context_tokens, settings) * _streams(settings)


def window_cells(window_tokens: int, settings: Settings) -> int:
    """Return the cells that llama.cpp allocates in a windowed layer, over all its streams.

    A stream holds the windows of its slots and one micro-batch, padded, and no more than the context. Worked example:
    a window of 1,024 and 4 slots that share one stream, 512 tokens a micro-batch: 4 x 1,024 + 512 = 4,608 cells; with a
    stream each, 4 x (1,024 + 512) = 6,144.
    """
    slots = settings.num_slots if settings.unified_cache else 1
    held = _ceil(window_tokens * slots + settings.max_num_batched_tokens, CELL_MULTIPLE) * CELL_MULTIPLE
    return min(stream_cells(settings.max_model_len, settings), held) * _streams(settings)


def _streams(settings: Settings) -> int:
    return 1 if settings.unified_cache else settings.num_slots


def _page_groups(types: dict[_Spec, int], settings: Settings) -> PagePlan:
    growing = [spec for spec in types if not spec.state_bytes]
    if len({(spec.window_tokens, spec.state_bytes > 0) for spec in types}) <= 1 and growing:
        # One kind of layer: a single group, whatever the widths.
        width = sum(spec.bytes_per_token * count for spec, count in types.items())
        group = PageGroup(
            layers=sum(types.values()), block_tokens=settings.block_tokens, window_tokens=growing[0].window_tokens
        )
        return PagePlan(
            block_bytes=round(width * settings.block_tokens), block_tokens=settings.block_tokens, groups=(group,)
        )
    block = _grown_block(types, settings)
    pages = {spec: spec.bytes_per_token * block for spec in growing}
    states = [spec.state_bytes for spec in types if spec.state_bytes]
    page = max([*pages.values(), *states], default=1)
    size = _group_size(list(types.values()))
    groups: list[PageGroup] = []
    used = 0.0
    for spec, count in types.items():
        # A smaller page takes more tokens where that fills it exactly; else it is padded.
        ratio = page / pages[spec] if not spec.state_bytes else 1.0
        tokens = int(block * ratio) if ratio == int(ratio) else block
        number = -(-count // size)
        groups += [
            PageGroup(
                layers=size,
                block_tokens=tokens,
                window_tokens=spec.window_tokens,
                recurrent=spec.state_bytes > 0,
            )
        ] * number
        used += count * (spec.state_bytes or spec.bytes_per_token * tokens)
    return PagePlan(
        block_bytes=round(page * size),
        block_tokens=min(group.block_tokens for group in groups),
        groups=tuple(groups),
        padding_fraction=1 - used / (page * size * len(groups)),
    )


def _grown_block(types: dict[_Spec, int], settings: Settings) -> int:
    """Return the tokens of an attention block: grown, in steps, until its page holds one layer's state."""
    state = max((spec.state_bytes for spec in types), default=0)
    attention = [spec for spec in types if not spec.state_bytes]
    if not state or not attention:
        return settings.block_tokens
    widest = max(attention, key=lambda spec: spec.bytes_per_token)
    step = _LATENT_ALIGNMENT if widest.latent else _ATTENTION_ALIGNMENT
    needed = -(-state // int(step * widest.bytes_per_token)) * step
    return max(needed, settings.block_tokens)


def _group_size(counts: list[int]) -> int:
    """Return the layers of a group.

    >>> _group_size([10, 52]), _group_size([12, 13])
    (10, 13)
    """
    least, most = min(counts), max(counts)
    return most if most < _LOPSIDED * least else least


def state_slots(pool_bytes: int, cut: PagePlan) -> int | None:
    """Return the running sequences that a pool of recurrent states admits; None where there is none.

    >>> state_slots(1900, PagePlan(block_bytes=1, block_tokens=1, groups=(), state_pool_ratio=0.9, slot_bytes=200))
    4
    """
    if not cut.slot_bytes:
        return None
    return int(max(0, pool_bytes) * cut.state_pool_ratio / (1 + cut.state_pool_ratio)) // cut.slot_bytes


def paged_bytes(pool_bytes: int, cut: PagePlan) -> int:
    """Return what of a pool is cut into blocks: all but the slots of recurrent states that have a pool of their own."""
    return pool_bytes - (state_slots(pool_bytes, cut) or 0) * cut.slot_bytes


def blocks_of(pool_bytes: int, cut: PagePlan) -> int:
    """Return the whole blocks of a pool."""
    return paged_bytes(pool_bytes, cut) // cut.block_bytes


def request_blocks(cut: PagePlan, num_tokens: int, rules: EngineRules, settings: Settings) -> int:
    """Return the blocks that one request of ``num_tokens`` takes at its fullest, as vLLM counts them.

    Full attention ``ceil(len / block)`` (a share of it under decode context parallelism); a window ``ceil(min(window -
    1 + in flight, len) / block) + 1``; recurrent layers their pages, with one more per draft token.
    """
    flight = rules.in_flight_steps * settings.max_num_batched_tokens
    total = 0
    for group in cut.groups:
        if group.recurrent:
            pages = rules.recurrent_pages if settings.prefix_caching else 1
            total += pages + settings.num_draft_tokens
        elif group.window_tokens is not None:
            held = min(group.window_tokens - 1 + flight, num_tokens)
            total += -(-held // group.block_tokens) + 1
        else:
            total += _ceil(_ceil(num_tokens, settings.dcp), group.block_tokens)
    return total


def printed(pool_bytes: int, cut: PagePlan, rules: EngineRules, settings: Settings) -> tuple[int, int, float]:
    """Return blocks, the token line and the maximum concurrency, as the engine prints them."""
    blocks = blocks_of(pool_bytes, cut)
    length = settings.max_model_len
    concurrency = _concurrency(pool_bytes, blocks, cut, rules, settings)
    match rules.token_line:
        case TokenLine.BLOCKS:
            tokens = blocks * cut.block_tokens * settings.dcp
            concurrency = tokens / length
        case TokenLine.GROUPS:
            tokens = blocks // len(cut.groups) * cut.block_tokens * settings.dcp
        case TokenLine.CONCURRENCY:
            tokens = int(concurrency * length)
        case TokenLine.POOL:
            tokens = blocks * cut.block_tokens
            concurrency = tokens / length
        case TokenLine.CONTEXT:
            tokens = context_cells(length, settings)
            concurrency = tokens / length
        case _:
            assert_never(rules.token_line)
    return blocks, tokens, concurrency


def _concurrency(pool_bytes: int, blocks: int, cut: PagePlan, rules: EngineRules, settings: Settings) -> float:
    length = settings.max_model_len
    if cut.fixed_bytes_per_request:
        needed = cut.fixed_bytes_per_request + cut.block_bytes * -(-length // cut.block_tokens)
        return pool_bytes / needed
    if rules.token_line is TokenLine.CONCURRENCY or rules.token_line is TokenLine.GROUPS:
        return blocks / max(1, request_blocks(cut, length, rules, settings))
    return blocks * cut.block_tokens * settings.dcp / length


def sequences_in(pool_bytes: int, cut: PagePlan, num_tokens: int, rules: EngineRules, settings: Settings) -> int:
    """Return how many sequences of ``num_tokens`` a pool truly holds while they decode, in whole pages."""
    if cut.decoding_bytes_per_request:
        return max(0, pool_bytes - held_back_bytes(cut, rules)) // decoding_bytes(cut, num_tokens, settings)
    blocks = blocks_of(pool_bytes, cut) - rules.null_blocks
    taken = max(1, decoding_blocks(cut, num_tokens, rules, settings), window_blocks(cut, num_tokens))
    fitting = max(0, blocks) // taken
    slots = state_slots(pool_bytes, cut)
    return fitting if slots is None else min(fitting, slots)


def held_back_bytes(cut: PagePlan, rules: EngineRules) -> int:
    """Return what of a pool holds no tokens: the blocks that the engine keeps empty."""
    return rules.null_blocks * cut.block_bytes


def window_blocks(cut: PagePlan, num_tokens: int) -> int:
    """Return the blocks of the first pool whose share of a second one a sequence's window takes; 0 without one."""
    if not cut.window_pool_fraction:
        return 0
    return math.ceil(min(num_tokens, cut.window_tokens) / (cut.window_pool_fraction * cut.block_tokens))


def tokens_of(pool_bytes: int, cut: PagePlan, settings: Settings) -> int:
    """Return the tokens that one kind of layer holds in a pool; 0 where there are several."""
    if len(cut.groups) > 1 or cut.decoding_bytes_per_request:
        return 0
    return blocks_of(pool_bytes, cut) * cut.block_tokens * settings.dcp


def decoding_bytes(cut: PagePlan, num_tokens: int, settings: Settings) -> int:
    """Return the bytes of a sequence that decodes, where a part of it does not come in pages."""
    pages = _ceil(_ceil(num_tokens, settings.dcp), cut.block_tokens)
    return cut.decoding_bytes_per_request + cut.slot_bytes + pages * cut.block_bytes


def decoding_blocks(cut: PagePlan, num_tokens: int, rules: EngineRules, settings: Settings) -> int:
    """Return the blocks that a sequence of ``num_tokens`` holds while it decodes.

    Drafts have slots after it before they are accepted, as far as its longest length goes. Source: vLLM
    ``num_lookahead_tokens`` of ``KVCacheManager.allocate_slots``.
    """
    taken, with_slots = 0, max(num_tokens, min(num_tokens + settings.num_draft_tokens, settings.max_model_len))
    for group in cut.groups:
        if group.recurrent:
            taken += (rules.recurrent_pages if settings.prefix_caching else 1) + settings.num_draft_tokens
        elif group.window_tokens is not None:
            # Decoding keeps the window and the block that it leaves; the steps in flight are those of prefill.
            taken += -(-min(group.window_tokens, num_tokens) // group.block_tokens) + (
                1 if num_tokens > group.window_tokens else 0
            )
        else:
            taken += _ceil(_ceil(with_slots, settings.dcp), group.block_tokens)
    return taken


def _ceil(value: int, by: int) -> int:
    return -(-value // by)


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence  # noqa: PLC0415 - only for the page on accuracy

    return (
        Evidence(
            rule="bytes per token, blocks, page groups",
            figures="exact: 8 logs of hybrid models, to the last digit from the printed pool",
            mechanism="layers of one kind form groups of equal size that share pages of one size",
            read_in="vLLM `kv_cache_utils` and KV specs; SGLang `model_runner`; llama.cpp `llama_kv_cache`",
            about=("_HEAD_MULTIPLE", "_ATTENTION_ALIGNMENT", "_LATENT_ALIGNMENT", "_LOPSIDED", "CELL_MULTIPLE"),
        ),
        Evidence(
            rule="pages of compressed caches",
            figures=f"{_COMPRESSED_PADDING} x the entries; 1.2 to 1.3 (4 logs)",
            mechanism="their pages are aligned, and windows come in whole blocks",
            about=("_COMPRESSED_PADDING",),
        ),
    )
