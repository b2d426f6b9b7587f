"""What does prefix reuse save: a stream with shared prefixes against a cache, and the prefill it spares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.costing import Terms, price_warnings, rent_of, rent_origin, settled, unused_prices
from infcalc.api.deployment import (
    Ask,
    Deployment,
    kv_format,
    load,
    merged_inputs,
    resolve,
    single_kv_dtype,
)
from infcalc.api.offering import limit_of
from infcalc.api.pools import pool_of
from infcalc.api.prefix_pricing import Saving, saving
from infcalc.api.prefix_stream import PrefixAsk, check_prefix_ask, stream_of
from infcalc.api.sizing import check_model_len
from infcalc.api.speed import asks_of
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.kvcache.prefix_index import BlockIndex, IndexKind, Policy, PrefixIndex, Served, TreeIndex, serve_all
from infcalc.spec.explain import Input
from infcalc.workload.shared_prefixes import SharedStream, prompts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.costing import Rent
    from infcalc.api.pools import Pool
    from infcalc.spec.explain import Explanation

DEFAULT_ENTRIES = 500
_DOES_NOT_FIT = 3
_ENTRIES_PER_PREFIX = 2
"""Of a tree so small that it matters which entry goes first: the prefix and what comes after it."""
_POINTS = 8
"""Of a curve of the hit rate against the size of the cache."""
_KINDS = {"sglang": IndexKind.TREE, "vllm": IndexKind.BLOCKS, "tensorrt-llm": IndexKind.BLOCKS}
"""How engines find prefixes. llama.cpp keeps the last prompt of each slot, which is neither."""


@frozen
class CacheRow:
    """What one cache found of the stream."""

    index: str
    policy: str
    page_tokens: int
    max_entries: int | None
    max_tokens: int
    found_requests_fraction: float
    found_tokens_fraction: float
    evicted: int


@frozen
class PolicyRow:
    """What a tree found that evicts by one policy: within the asked bounds, and with two entries per prefix."""

    policy: str
    found_requests_fraction: float
    found_tokens_fraction: float
    evicted: int
    tight_entries: int
    tight_found_requests_fraction: float


@frozen
class SizePoint:
    """What a cache of one size found; ``limit`` says what bounds it: its ``entries`` or its ``tokens``."""

    limit: str
    size: int
    size_bytes: int | None
    """Of a size in tokens: their KV of the whole model."""
    found_requests_fraction: float
    found_tokens_fraction: float
    evicted: int


@frozen
class PrefixCacheResult:
    """Hit rates of one cache, what they spare on one deployment, and other caches on the same stream.

    No cache finds more than the bounds: every request that is not the first of its prefix, and all of that prefix in
    whole pages. Figures of ``saving`` are None without a deployment that holds the model.
    """

    model: str
    gpu: str
    num_gpus: int
    kv_dtype: str
    kv_bytes_per_token: int | float
    index: str
    policy: str
    page_tokens: int
    max_entries: int | None
    max_tokens: int
    requests: int
    sharing_requests: int
    prefixes: int
    prompt_tokens: int
    """Of all requests together."""
    distinct_tokens: int
    """What a cache without bounds holds in the end."""
    hit_rate_requests_fraction: float
    hit_rate_tokens_fraction: float
    bound_requests_fraction: float
    bound_tokens_fraction: float
    evictions: int
    prefill_saved_s: float | None
    prefill_saved_s_low: float | None
    prefill_saved_s_high: float | None
    saving: Saving | None
    indexes: tuple[CacheRow, ...]
    policies: tuple[PolicyRow, ...]
    """Of a radix tree; blocks know one order."""
    curve: tuple[SizePoint, ...]
    nothing_per_token: bool = False
    """The model keeps a state of ``state_bytes`` for each sequence: a cache of token prefixes has nothing to keep."""
    state_bytes: int = 0

    @property
    def does_not_fit(self) -> bool:
        """Whether the deployment does not hold the model."""
        return self.saving is None and not self.nothing_per_token


def prefix_cache(
    ask: Ask | None = None,
    stream_ask: PrefixAsk | None = None,
    *,
    terms: Terms | None = None,
    explain: bool = False,
) -> Answer[PrefixCacheResult]:
    """Return hit rates, evictions and what they spare: prefill time, GPU-seconds and money.

    Exit code 3 where a deployment does not hold the model.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask, wanted, terms = ask or Ask(), stream_ask or PrefixAsk(), terms or Terms()
    check_prefix_ask(wanted)
    word = single_kv_dtype(ask)
    import numpy as np  # noqa: PLC0415 - start-up

    rng = np.random.default_rng(wanted.seed)
    stream = stream_of(wanted, rng)
    prompts: _Prompts = [(one.tokens, one.answer) for one in prompts_of(stream, rng)]
    catalog = load(ask)
    terms = settled(terms, catalog)
    results: list[PrefixCacheResult] = []
    notes: list[str] = []
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    explanations: list[Explanation] = []
    for one in asks_of(ask):
        (deployment,) = resolve(one, catalog)
        check_model_len(deployment)
        longest = stream.longest_tokens
        _check_longest(deployment, longest)
        form, origin, said = kv_format(deployment, word)
        pool = pool_of(deployment, form, longest_tokens=longest, given_tokens=wanted.max_tokens, option="--max-tokens")
        cache, cache_inputs = _cache_of(one, deployment, wanted, pool)
        if pool.nothing_per_token:
            result = _nothing_to_find(deployment, form.name, stream, cache, pool)
        else:
            served = serve_all(prompts, cache.made())
            spared = saving(one, deployment, catalog, served.found, wanted=wanted, terms=terms)
            result = _result(deployment, form.name, stream, cache, pool, served=served, spared=spared, prompts=prompts)
        results.append(result)
        rent = rent_of(deployment.gpu, terms)
        talk += [*deployment.warnings, *said, *pool.warnings, *_warnings(result, wanted)]
        talk += price_warnings(deployment.gpu, rent, terms) if result.saving is not None else ()
        notes += [*deployment.assumptions, *_notes(deployment, result, rent)]
        inputs.append(
            (
                *deployment.inputs,
                Input(name="kv_dtype", value=form.name, origin=origin, source=form.note),
                *cache_inputs,
                *_stream_inputs(wanted),
                *_rent_inputs(rent),
            )
        )
        if explain and not pool.nothing_per_token:
            from infcalc.api.prefix_explaining import explain_prefix_cache  # noqa: PLC0415 - only when asked

            explanations += explain_prefix_cache(result, stream, rent)
    talk += unused_prices(terms, (result.gpu for result in results))
    return Answer(
        command="prefix-cache",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
        exit_code=_DOES_NOT_FIT if any(result.does_not_fit for result in results) else 0,
    )


def _check_longest(deployment: Deployment, longest: int) -> None:
    limit = limit_of(deployment)
    if longest > limit:
        raise UsageError(
            f"{longest:,} tokens of prefix, own part and answer; {deployment.model.name} is served up to {limit:,}",
            place="--prefix-tokens",
            hint="give a shorter --prefix-tokens, --input-tokens or --output-tokens",
        )


@frozen
class _Cache:
    """One cache to try: how it finds, what bounds it, what goes first."""

    kind: IndexKind
    policy: Policy
    page_tokens: int
    max_entries: int | None
    max_tokens: int | None

    def made(self) -> PrefixIndex:
        """Return it, empty."""
        if self.kind is IndexKind.BLOCKS:
            return BlockIndex(block_tokens=self.page_tokens, max_tokens=self.max_tokens or 0)
        return TreeIndex(
            page_tokens=self.page_tokens,
            policy=self.policy,
            max_entries=self.max_entries,
            max_tokens=self.max_tokens,
        )


def _cache_of(ask: Ask, deployment: Deployment, wanted: PrefixAsk, pool: Pool) -> tuple[_Cache, tuple[Input, ...]]:
    """Return the cache that is asked for: that of a named engine, or a radix tree of 500 entries.

    Raises:
        UsageError: bounds or policies that such a cache does not have.

    """
    engine = deployment.rules.engine
    kind, origin = wanted.index, "given (--index)"
    if kind is None:
        named = _KINDS.get(engine) if ask.engine is not None else None
        kind, origin = (IndexKind.TREE, "default") if named is None else (named, f"how {engine} finds prefixes")
    blocks = kind is IndexKind.BLOCKS
    if blocks and wanted.max_entries is not None:
        raise UsageError(
            f"{wanted.max_entries} entries of a cache of blocks",
            place="--max-entries",
            hint="bound it with --max-tokens, or take --index radix-tree",
        )
    if blocks and wanted.policy not in {None, Policy.LRU}:
        raise UsageError(
            f"{wanted.policy} for blocks found by their hash: their order is that of the last use",
            place="--policy",
            hint="leave it out, or take --index radix-tree",
        )
    entries = None if blocks else wanted.max_entries or DEFAULT_ENTRIES
    page, page_origin = wanted.page_tokens, "given (--page-size)"
    if page is None:
        page = deployment.block_tokens if blocks or ask.block_size is not None else 1
        page_origin = f"block size of {engine}" if blocks else "SGLang's page"
    cache = _Cache(
        kind=kind, policy=wanted.policy or Policy.LRU, page_tokens=page, max_entries=entries, max_tokens=pool.num_tokens
    )
    found = [
        Input(name="index", value=str(kind), origin=origin),
        Input(
            name="policy", value=str(cache.policy), origin="default" if wanted.policy is None else "given (--policy)"
        ),
        Input(name="page_tokens", value=page, origin=page_origin),
        Input(name="max_tokens", value=pool.num_tokens, origin=pool.origin),
    ]
    if entries is not None:
        said = "default" if wanted.max_entries is None else "given (--max-entries)"
        found.insert(2, Input(name="max_entries", value=entries, origin=said))
    return cache, tuple(found)


_Prompts = list[tuple["Sequence[int]", "Sequence[int]"]]


def _result(
    deployment: Deployment,
    kv_dtype: str,
    stream: SharedStream,
    cache: _Cache,
    pool: Pool,
    *,
    served: Served,
    spared: Saving | None,
    prompts: _Prompts,
) -> PrefixCacheResult:
    number = stream.num_requests
    whole = stream.prefix_tokens // cache.page_tokens * cache.page_tokens
    other = _other(deployment, cache)
    here = _row(cache, served)
    return PrefixCacheResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        kv_dtype=kv_dtype,
        kv_bytes_per_token=pool.kv_bytes_per_token,
        index=str(cache.kind),
        policy=str(cache.policy),
        page_tokens=cache.page_tokens,
        max_entries=cache.max_entries,
        max_tokens=pool.num_tokens,
        requests=number,
        sharing_requests=stream.num_sharing,
        prefixes=stream.num_prefixes,
        prompt_tokens=stream.prompt_tokens,
        distinct_tokens=stream.distinct_tokens,
        hit_rate_requests_fraction=served.counts.request_fraction,
        hit_rate_tokens_fraction=served.counts.token_fraction,
        bound_requests_fraction=stream.num_repeats / number if whole else 0.0,
        bound_tokens_fraction=stream.num_repeats * whole / stream.prompt_tokens,
        evictions=served.num_evictions,
        prefill_saved_s=None if spared is None else spared.prefill_saved_s,
        prefill_saved_s_low=None if spared is None else spared.prefill_saved_s_low,
        prefill_saved_s_high=None if spared is None else spared.prefill_saved_s_high,
        saving=spared,
        indexes=(here, _row(other, serve_all(prompts, other.made()))),
        policies=_policies(stream, cache, served, prompts),
        curve=_curve(stream, cache, pool, prompts),
    )


def _nothing_to_find(
    deployment: Deployment, kv_dtype: str, stream: SharedStream, cache: _Cache, pool: Pool
) -> PrefixCacheResult:
    """Return the answer for a model that keeps nothing per token: there is nothing to keep of a prefix."""
    return PrefixCacheResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        kv_dtype=kv_dtype,
        kv_bytes_per_token=0,
        index=str(cache.kind),
        policy=str(cache.policy),
        page_tokens=cache.page_tokens,
        max_entries=cache.max_entries,
        max_tokens=0,
        requests=stream.num_requests,
        sharing_requests=stream.num_sharing,
        prefixes=stream.num_prefixes,
        prompt_tokens=stream.prompt_tokens,
        distinct_tokens=stream.distinct_tokens,
        hit_rate_requests_fraction=0.0,
        hit_rate_tokens_fraction=0.0,
        bound_requests_fraction=0.0,
        bound_tokens_fraction=0.0,
        evictions=0,
        prefill_saved_s=0.0,
        prefill_saved_s_low=0.0,
        prefill_saved_s_high=0.0,
        saving=None,
        indexes=(),
        policies=(),
        curve=(),
        nothing_per_token=True,
        state_bytes=pool.state_bytes,
    )


def _other(deployment: Deployment, cache: _Cache) -> _Cache:
    """Return the other kind of cache, with the same room: by tokens alone, for blocks know no entries."""
    if cache.kind is IndexKind.TREE:
        size = deployment.block_tokens if deployment.block_tokens > 1 else 16
        return replace(cache, kind=IndexKind.BLOCKS, policy=Policy.LRU, page_tokens=size, max_entries=None)
    return replace(cache, kind=IndexKind.TREE, page_tokens=1, max_entries=None)


def _policies(stream: SharedStream, cache: _Cache, served: Served, prompts: _Prompts) -> tuple[PolicyRow, ...]:
    if cache.kind is not IndexKind.TREE:
        return ()
    few = _ENTRIES_PER_PREFIX * stream.num_prefixes
    rows = []
    for policy in Policy:
        tree = replace(cache, policy=policy)
        ample = served if policy is cache.policy else serve_all(prompts, tree.made())
        tight = serve_all(prompts, replace(tree, max_entries=few).made())
        rows.append(
            PolicyRow(
                policy=str(policy),
                found_requests_fraction=ample.counts.request_fraction,
                found_tokens_fraction=ample.counts.token_fraction,
                evicted=ample.num_evictions,
                tight_entries=few,
                tight_found_requests_fraction=tight.counts.request_fraction,
            )
        )
    return tuple(rows)


def _row(cache: _Cache, served: Served) -> CacheRow:
    return CacheRow(
        index=str(cache.kind),
        policy=str(cache.policy),
        page_tokens=cache.page_tokens,
        max_entries=cache.max_entries,
        max_tokens=cache.max_tokens or 0,
        found_requests_fraction=served.counts.request_fraction,
        found_tokens_fraction=served.counts.token_fraction,
        evicted=served.num_evictions,
    )


def _curve(stream: SharedStream, cache: _Cache, pool: Pool, prompts: _Prompts) -> tuple[SizePoint, ...]:
    """Return the hit rate at sizes from one request to all that the stream holds: by tokens, and by entries of a tree.

    Each bound alone, the other one left out.
    """
    one = stream.longest_tokens
    points = []
    for size in _sizes(one, stream.distinct_tokens + cache.page_tokens):
        served = serve_all(prompts, replace(cache, max_entries=None, max_tokens=size).made())
        points.append(_point("tokens", size, round(size * pool.kv_bytes_per_token), served))
    if cache.kind is IndexKind.TREE:
        for size in _sizes(1, stream.num_requests + stream.num_prefixes):
            served = serve_all(prompts, replace(cache, max_entries=size, max_tokens=None).made())
            points.append(_point("entries", size, None, served))
    return tuple(points)


def _sizes(least: int, most: int) -> list[int]:
    """Return sizes from ``least`` to ``most``, each the same multiple of the one before."""
    ratio = (max(most, least) / least) ** (1 / (_POINTS - 1))
    return sorted({round(least * ratio**step) for step in range(_POINTS - 1)} | {max(most, least)})


def _point(limit: str, size: int, size_bytes: int | None, served: Served) -> SizePoint:
    return SizePoint(
        limit=limit,
        size=size,
        size_bytes=size_bytes,
        found_requests_fraction=served.counts.request_fraction,
        found_tokens_fraction=served.counts.token_fraction,
        evicted=served.num_evictions,
    )


def _stream_inputs(wanted: PrefixAsk) -> tuple[Input, ...]:
    own = PrefixAsk()

    def named(name: str, field: str, option: str) -> Input:
        value = getattr(wanted, field)
        return Input(name=name, value=value, origin="default" if value == getattr(own, field) else f"given ({option})")

    return (
        named("requests", "num_requests", "--requests"),
        named("prefixes", "num_prefixes", "--prefixes"),
        named("sharing_fraction", "sharing_fraction", "--sharing"),
        named("prefix_tokens", "prefix_tokens", "--prefix-tokens"),
        named("input_tokens", "input_tokens", "--input-tokens"),
        named("output_tokens", "output_tokens", "--output-tokens"),
        named("rate_per_s", "requests_per_s", "--rate"),
        named("seed", "seed", "--seed"),
    )


def _rent_inputs(rent: Rent | None) -> tuple[Input, ...]:
    if rent is None:
        return ()
    value = f"{rent.usd_per_hour:.4g}"
    if rent.usd_per_hour_low != rent.usd_per_hour_high:
        value = f"{rent.usd_per_hour_low:g}..{rent.usd_per_hour_high:g}"
    return (Input(name="usd_per_gpu_hour", value=value, origin=rent_origin(rent)),)


def _warnings(result: PrefixCacheResult, wanted: PrefixAsk) -> list[str]:
    talk: list[str] = []
    if result.nothing_per_token:
        return talk
    if not result.max_tokens // result.page_tokens:
        talk.append("the cache has not one page: nothing is ever found")
    elif wanted.prefix_tokens < result.page_tokens:
        talk.append(
            f"a prefix of {wanted.prefix_tokens:,} tokens fills no page of {result.page_tokens}: it is never found"
        )
    spared = result.saving
    if spared is not None and spared.busy_without_fraction > 1:
        talk.append(
            f"at {wanted.requests_per_s:g} requests/s prefill alone takes {spared.busy_without_fraction:.0%} of the "
            f"devices' time without a prefix cache and {spared.busy_with_fraction:.0%} with it"
        )
    return talk


def _notes(deployment: Deployment, result: PrefixCacheResult, rent: Rent | None) -> list[str]:
    if result.nothing_per_token:
        return []
    found = [
        (
            "requests come one after the other, in an order drawn from the seed: what one computes, the next one "
            "finds; of requests that run at the same time fewer are hits"
        ),
        (
            "no cache finds more than (sharing requests - prefixes) / requests: the first request of each prefix "
            "computes it"
        ),
        (
            "a radix tree keeps entries, each a run of tokens (SGLang); hash blocks are full blocks in the order of "
            "their last use (vLLM, TensorRT-LLM); both keep answers too, and compute the last token of a prompt"
        ),
        (
            "prefill time is the devices' time in steps full of such prompts, with and without what was found, on the "
            "time model of `infcalc estimate`; low to high holds 80 % of measurements"
        ),
        "the pool is taken to be the cache's alone; running requests take their room from it",
    ]
    if deployment.rules.engine == "llama.cpp":
        found.append("llama.cpp keeps the last prompt of each slot: a radix tree stands in for it")
    if rent is None:
        found.append(f"no price of {result.gpu} is known: give --price to have money")
    else:
        found.append(
            f"money: GPU-seconds at {rent.usd_per_hour:.4g} USD/h ({rent_origin(rent)}); it is saved where "
            "the time is used for other requests, or fewer GPUs are rented"
        )
    return found
