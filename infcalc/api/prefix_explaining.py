"""How the figures of ``prefix-cache`` came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.spec.explain import Explanation, Input

if TYPE_CHECKING:
    from infcalc.api.costing import Rent
    from infcalc.api.prefix_hits import PrefixCacheResult
    from infcalc.workload.shared_prefixes import SharedStream

_SOURCES = {
    "radix-tree": "SGLang 0.5 radix_cache.py; Zheng et al. 2024 (RadixAttention)",
    "hash-blocks": "vLLM 0.33 kv_cache_manager.py, block_pool.py",
}


def explain_prefix_cache(result: PrefixCacheResult, stream: SharedStream, rent: Rent | None) -> tuple[Explanation, ...]:
    """Return one explanation per figure: hit rates with their bounds, and what they spare."""
    number, page = result.requests, result.page_tokens
    whole = stream.prefix_tokens // page * page
    firsts = stream.num_sharing - stream.num_repeats
    hits = round(result.hit_rate_requests_fraction * number)
    found = round(result.hit_rate_tokens_fraction * result.prompt_tokens)
    source = _SOURCES[result.index]
    rates = (
        Explanation(
            quantity="hit_rate_requests_fraction",
            formula="requests that found anything / requests",
            substituted=f"{hits:,} / {number:,} = {result.hit_rate_requests_fraction:.4f}",
            inputs=(
                Input(name="index", value=result.index, origin="see inputs"),
                Input(name="policy", value=result.policy, origin="see inputs"),
            ),
            source=source,
        ),
        Explanation(
            quantity="hit_rate_tokens_fraction",
            formula="prompt tokens that were found / prompt tokens",
            substituted=f"{found:,} / {result.prompt_tokens:,} = {result.hit_rate_tokens_fraction:.4f}",
            source=source,
        ),
        Explanation(
            quantity="bound_requests_fraction",
            formula="(sharing requests - prefixes that are used) / requests",
            substituted=f"({stream.num_sharing:,} - {firsts:,}) / {number:,} = {result.bound_requests_fraction:.4f}",
        ),
        Explanation(
            quantity="bound_tokens_fraction",
            formula="(sharing requests - prefixes that are used) x whole pages of the prefix / prompt tokens",
            substituted=f"{stream.num_repeats:,} x {whole:,} / {result.prompt_tokens:,} = "
            f"{result.bound_tokens_fraction:.4f}",
            inputs=(Input(name="page_tokens", value=page, origin="see inputs"),),
        ),
    )
    spared = result.saving
    if spared is None:
        return rates
    times = (
        Explanation(
            quantity="prefill_saved_s",
            formula="sum over requests of prefill of the prompt - prefill of what was not found",
            substituted=f"{spared.prefill_without_s:,.4g} s - {spared.prefill_with_s:,.4g} s = "
            f"{spared.prefill_saved_s:,.4g} s",
            inputs=(Input(name="prefill", value="share of a full step", origin="time model of infcalc estimate"),),
        ),
        Explanation(
            quantity="gpu_saved_s_per_s",
            formula="rate x prefill_saved_s / requests x GPUs of a lane",
            substituted=f"{spared.requests_per_s:g} x {spared.prefill_saved_s:.4g} / {number:,} x "
            f"{spared.num_gpus_per_lane:g} = {spared.gpu_saved_s_per_s:.4g}",
        ),
    )
    if rent is None or spared.saved_usd_per_hour is None:
        return rates + times
    return (
        *rates,
        *times,
        Explanation(
            quantity="saved_usd_per_hour",
            formula="gpu_saved_s_per_s x price of a GPU's hour",
            substituted=f"{spared.gpu_saved_s_per_s:.4g} x {rent.usd_per_hour:.4g} = {spared.saved_usd_per_hour:.4g}",
            inputs=(Input(name="usd_per_hour", value=f"{rent.usd_per_hour:.4g}", origin=rent.source),),
        ),
    )
