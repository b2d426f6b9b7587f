"""The view of ``infcalc batching``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.slots import slots_chart
from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.answer import Answer
    from infcalc.api.batching_policies import BatchingResult
    from infcalc.api.batching_runs import PolicyResult

_TIE = 1.02
"""Throughputs that differ by less are told as equal."""
_NEAR = 0.99
_HUNDRED = 100
_STATIC = "static"


def view(answer: Answer[BatchingResult]) -> View:
    """Return a row per policy, and its use of the slots over time."""
    several = len(answer.results) > 1
    unit = answer.result.unit_steps
    who = (Column(key="model", heading="model", left=True), Column(key="gpu", heading="GPU", left=True))
    first = answer.result.policies[0].policy if answer.result.policies else ""
    columns = (
        *(who if several else ()),
        Column(key="policy", heading="policy", left=True),
        Column(key="latency_mean_s", heading="latency", show=_times(unit)),
        Column(key="latency_p50_s", heading="p50", show=_times(unit)),
        Column(key="latency_p99_s", heading="p99", show=_times(unit)),
        Column(key="ttft_mean_s", heading="first token", show=_times(unit), aside=True),
        Column(key="throughput_tokens_per_s", heading="tokens/step" if unit else "tokens/s", show=rate),
        Column(key="throughput_factor", heading=f"vs {first}", show=_factor),
        Column(key="slot_utilization_fraction", heading="slots used", show=_share),
        Column(key="slot_utilization_overall_fraction", heading="with the end", show=_share, aside=True),
        Column(key="num_steps", heading="steps", show=count, aside=True),
        Column(key="num_preemptions", heading="preempted", show=count, aside=True),
        Column(key="num_rejected", heading="rejected", show=count, aside=True),
        Column(key="usd_per_million_output_tokens", heading="USD/M", show=_usd),
    )
    ran = [one for result in answer.results for one in result.policies]
    keys = [key for key in (type(ran[0]).__dataclass_fields__ if ran else ()) if key != "curve"]
    rows = tuple(
        {key: getattr(one, key) for key in keys} | {"model": result.model, "gpu": f"{result.num_gpus} x {result.gpu}"}
        for result in answer.results
        for one in result.policies
    )
    shown = tuple(column for column in columns if column.key not in _RARE or any(row[column.key] for row in rows))
    title = "Each policy (latency until the answer is returned, mean first; slots used: while requests wait)"

    def drawn(width: int) -> str:
        return "\n\n".join(_chart(result, width, named=several) for result in answer.results if result.policies)

    return view_of(
        answer,
        tables=(Table(title=title, columns=shown, rows=rows),),
        data=Table(
            title=title, columns=(*(who if several else ()), *(Column(key=key, heading=key) for key in keys)), rows=rows
        ),
        findings=tuple(line for result in answer.results for line in _findings(result)),
        drawing=drawn(_PLAIN_WIDTH),
        drawn=drawn,
    )


_RARE = {"num_preemptions", "num_rejected", "usd_per_million_output_tokens"}
"""Shown where there are any."""
_PLAIN_WIDTH = 100


def _chart(result: BatchingResult, width: int, *, named: bool) -> str:
    chart = slots_chart(result, width=width)
    return f"{_where(result)}: {chart}" if named and chart else chart


def _where(result: BatchingResult) -> str:
    """Name the deployment; where it has several lanes, what is told is of one of them."""
    whole = f"{result.model} on {result.num_gpus} x {result.gpu}"
    return whole if result.num_lanes == 1 or not result.fits else f"one of the {result.num_lanes} lanes of {whole}"


def _findings(result: BatchingResult) -> list[str]:
    """Say who wins, by how much, why, and what it saves."""
    where = _where(result)
    if not result.fits:
        return [f"{where}: does not fit, {format_bytes(result.missing_bytes)} per GPU are missing"]
    by_name = {str(one.policy): one for one in result.policies}
    best, static = by_name[str(result.fastest)], by_name.get(_STATIC)
    if best.latency_mean_s is None:
        return [f"{where}: no request fits into the cache of {result.cache_tokens:,} tokens"]
    near = [name for name, one in by_name.items() if one not in {best, static} and _close(one, best)]
    also = f" ({', '.join(near)} within 1 %)" if near else ""
    if static is None or static.latency_mean_s is None or len(result.policies) == 1:
        return [f"{where}: {_pace(best, result)}{also}"]
    factor = best.throughput_tokens_per_s / static.throughput_tokens_per_s
    sooner = static.latency_mean_s / best.latency_mean_s
    if factor < _TIE and sooner < _TIE:
        return [f"{where}: {_pace(static, result)}; no policy gains more than {_TIE - 1:.0%}"]
    lines = [
        f"{where}: {_pace(best, result)}{also}",
        f"{_pace(static, result)}: {best.policy} gives {factor:.2f}x the tokens, and an answer {sooner:.2f}x as soon",
        _why(static, best, result),
    ]
    cost, least = static.usd_per_million_output_tokens, best.usd_per_million_output_tokens
    if cost is not None and least is not None and factor >= _TIE:
        lines.append(f"a million answer tokens cost {_usd(least)} USD under {best.policy}, {_usd(cost)} under static")
    return lines


def _why(static: PolicyResult, best: PolicyResult, result: BatchingResult) -> str:
    longest = (
        f"the longest of all has {result.longest_answer_tokens:,} tokens, the mean "
        f"{result.answer_tokens / result.num_requests:,.0f}"
    )
    if static.slot_utilization_fraction is None:
        return f"why: under static answers are returned with the longest of their batch ({longest})"
    return (
        f"why: under static {used(static)}, the others wait for the longest answer of their batch ({longest}); under "
        f"{best.policy} {used(best)}"
    )


def _pace(one: PolicyResult, result: BatchingResult) -> str:
    per = "tokens/step" if result.unit_steps else "tokens/s"
    given = f"{one.policy} gives {rate(one.throughput_tokens_per_s)} {per}"
    return f"{given} and an answer after {_times(result.unit_steps)(one.latency_mean_s)} on average"


def _close(one: PolicyResult, best: PolicyResult) -> bool:
    return one.throughput_tokens_per_s > _NEAR * best.throughput_tokens_per_s


def used(one: PolicyResult) -> str:
    """Say how much of the slots a policy uses."""
    if one.slot_utilization_fraction is None:
        return f"{_share(one.slot_utilization_overall_fraction)} of the slots are in use, and nobody waits"
    return f"{_share(one.slot_utilization_fraction)} of the slots are in use while requests wait"


def _times(unit: bool) -> Callable[[object], str]:
    return seconds if not unit else _steps


def seconds(value: object) -> str:
    """Return a time as people read it."""
    return format_seconds(value) if isinstance(value, int | float) else str(value)


def _steps(value: object) -> str:
    return f"{count(value)} steps" if isinstance(value, int | float) else str(value)


def rate(value: object) -> str:
    """Return a rate as people read it."""
    return (f"{value:,.0f}" if value >= _HUNDRED else f"{value:.3g}") if isinstance(value, int | float) else str(value)


def _factor(value: object) -> str:
    return f"{value:.2f}x" if isinstance(value, int | float) else str(value)


def _share(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else str(value)


def _usd(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, int | float) else str(value)
