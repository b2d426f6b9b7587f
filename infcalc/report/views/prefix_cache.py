"""The view of ``infcalc prefix-cache``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import row_table, side_by_side, view_of
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.prefix_hits import PrefixCacheResult


def view(answer: Answer[PrefixCacheResult]) -> View:
    """Return both kinds of cache, what hits spare, the policies, and the hit rate by the size of the cache."""
    who, named = side_by_side(answer)
    hits = (
        Column(key="found_requests_fraction", heading="by request", show=_percent),
        Column(key="found_tokens_fraction", heading="by token", show=_percent),
        Column(key="evicted", heading="evicted", show=count),
    )
    caches = row_table(
        "Hit rate of each kind of cache, by request and by token",
        who,
        (
            Column(key="index", heading="cache", left=True),
            Column(key="policy", heading="policy", left=True),
            Column(key="page_tokens", heading="page", show=count),
            Column(key="max_entries", heading="entries", show=count),
            Column(key="max_tokens", heading="tokens", show=count),
            *hits,
        ),
        named,
        lambda one: one.indexes,
    )
    spared = Table(
        title="What the hits spare (low to high holds 80 % of measurements)",
        columns=(
            *who,
            Column(key="figure", heading="", left=True),
            Column(key="value", heading="estimate"),
            Column(key="low", heading="low"),
            Column(key="high", heading="high"),
        ),
        rows=tuple(names | row for names, one in named for row in _spared(one)),
    )
    few = answer.result.policies[0].tight_entries if answer.result.policies else 0
    policies = row_table(
        "Hit rate by which entry goes first",
        who,
        (
            Column(key="policy", heading="policy", left=True),
            *hits,
            Column(key="tight_found_requests_fraction", heading=f"of {few} entries", show=_percent),
        ),
        named,
        lambda one: one.policies,
    )
    sizes = row_table(
        "Hit rate by the size of the cache, each bound alone",
        who,
        (
            Column(key="limit", heading="bound", left=True),
            Column(key="size", heading="size", show=count),
            Column(key="size_bytes", heading="KV", show=_size),
            *hits,
        ),
        named,
        lambda one: one.curve,
    )
    return view_of(
        answer,
        tables=tuple(table for table in (caches, spared, policies, sizes) if table.rows),
        data=caches,
        findings=tuple(_finding(one) for one in answer.results),
    )


def _spared(result: PrefixCacheResult) -> list[dict[str, object]]:
    one = result.saving
    if one is None:
        return []
    rows: list[dict[str, object]] = []

    def add(name: str, show: object, *three: float | None) -> None:
        if three[0] is not None and callable(show):
            value, low, high = (show(part) for part in three)
            rows.append({"figure": name, "value": value, "low": low, "high": high})

    prefill = (one.prefill_saved_s, one.prefill_saved_s_low, one.prefill_saved_s_high)
    add(f"prefill of {result.requests:,} requests", format_seconds, *prefill)
    add("GPU-seconds of them", _three_digits, one.gpu_saved_s, one.gpu_saved_s_low, one.gpu_saved_s_high)
    add("USD for them", _usd, one.saved_usd, one.saved_usd_low, one.saved_usd_high)
    at = f"at a rate of {one.requests_per_s:g}/s"
    per_s = (one.gpu_saved_s_per_s, one.gpu_saved_s_per_s_low, one.gpu_saved_s_per_s_high)
    add(f"GPU-seconds per second {at}", _three_digits, *per_s)
    per_hour = (one.saved_usd_per_hour, one.saved_usd_per_hour_low, one.saved_usd_per_hour_high)
    add(f"USD per hour {at}", _usd, *per_hour)
    plain = (one.ttft_without_s, one.ttft_without_s_low, one.ttft_without_s_high)
    add("first token alone, no hit", format_seconds, *plain)
    add("first token alone, mean hit", format_seconds, one.ttft_hit_s, one.ttft_hit_s_low, one.ttft_hit_s_high)
    return rows


def _finding(result: PrefixCacheResult) -> str:
    where = f"{result.model} on {result.num_gpus} x {result.gpu}"
    if result.nothing_per_token:
        return (
            f"{where}: a cache of token prefixes finds nothing: a sequence keeps a state of "
            f"{format_bytes(result.state_bytes)} whatever its length, and nothing per token (engines that keep whole "
            "states at some points of a prompt are not simulated)"
        )
    found = (
        f"{where}: {_percent(result.hit_rate_requests_fraction)} of the requests and "
        f"{_percent(result.hit_rate_tokens_fraction)} of the prompt tokens are found (no cache finds more than "
        f"{_percent(result.bound_requests_fraction)} and {_percent(result.bound_tokens_fraction)})"
    )
    one = result.saving
    if one is None:
        return f"{found}; the model does not fit"
    money = "" if one.saved_usd_per_hour is None else f", {_usd(one.saved_usd_per_hour)} USD per hour"
    return (
        f"{found}; that spares {format_seconds(one.prefill_saved_s)} of prefill, and at a rate of "
        f"{one.requests_per_s:g}/s {_three_digits(one.gpu_saved_s_per_s)} GPU-seconds per second{money}"
    )


def _three_digits(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, int | float) and abs(value) < 1000 else count(value)  # noqa: PLR2004


def _usd(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, int | float) else str(value)


def _percent(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else str(value)


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int | float) else str(value)
