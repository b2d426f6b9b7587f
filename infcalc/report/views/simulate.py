"""The view of ``infcalc simulate``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.report.as_json import value_of
from infcalc.report.table import Column, Table, View, count
from infcalc.report.timeline import columns_drawn
from infcalc.report.views.fleets import pool_findings, pool_tables, scaling_finding
from infcalc.report.views.frame import view_of
from infcalc.units import format_bytes, format_seconds, format_span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.api.answer import Answer
    from infcalc.api.simulation_nouns import RunResult, SimulationResult

_TIMES = {
    "ttft_s": "first token (TTFT)",
    "tpot_s": "per token (TPOT)",
    "itl_s": "between tokens (ITL)",
    "e2e_s": "whole request",
    "queue_s": "of it queued",
}
_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
_PLAIN_WIDTH = 80
_NARROW = 40
_HUNDRED = 100


def view(answer: Answer[SimulationResult]) -> View:
    """Return times by percentile, policies or loads side by side, and cache and queue over time."""
    several = len(answer.results) > 1
    tables: list[Table] = []
    for result in answer.results:
        if result.fits:
            name = f"{_where(result)}: " if several else ""
            tables += _tables(result, name)

    def drawn(width: int) -> str:
        return "\n\n".join(_drawing(result, width, named=several) for result in answer.results if result.over_time)

    return view_of(
        answer,
        tables=tuple(tables),
        data=_data(answer),
        findings=tuple(line for result in answer.results for line in _findings(result)),
        drawing=drawn(_PLAIN_WIDTH),
        drawn=lambda width: drawn(max(_NARROW, width)),
    )


def _where(result: SimulationResult) -> str:
    replicas = f"{result.num_replicas} x " if result.num_replicas > 1 else ""
    told, scaled = result.disaggregation, result.scaling
    if told is not None:
        parts = [f"{one.num_replicas} x {one.num_gpus}" for one in (told.prefill, told.decode)]
        return f"{result.model} on {parts[0]} (prefill) + {parts[1]} (decode) x {result.gpu}"
    if scaled is not None:
        replicas = f"{scaled.num_least} to {scaled.num_most} x "
    return f"{result.model} on {replicas}{result.num_gpus} x {result.gpu}"


def _tables(result: SimulationResult, name: str) -> list[Table]:
    if result.compare:
        what = (
            "Policies with the same requests"
            if _several_policies(result)
            else "The same requests with drafting and without"
        )
        beside = [_runs(result.compare, f"{name}{what} (times: mean, then p99)", "policy")]
        return beside if _several_policies(result) else [*beside, _times(result, f"{name}Times of requests")]
    found = []
    if result.sweep is not None:
        found.append(
            _runs(result.sweep.points, f"{name}Along {result.sweep.variable} (times: mean, then p99)", "value")
        )
    at = ""
    if result.sweep is not None:
        knee = result.sweep.knee
        at = f" at {result.sweep.variable} {result.sweep.points[0].value if knee is None else knee:g}"
    found.append(_times(result, f"{name}Times of requests{at}"))
    if result.disaggregation is not None:
        found += pool_tables(result, result.disaggregation, name)
    return found


def _several_policies(result: SimulationResult) -> bool:
    return len({run.policy for run in result.compare}) > 1


def _times(run: RunResult, title: str) -> Table:
    rows = []
    for key, label in _TIMES.items():
        summary = getattr(run, key)
        if summary is not None:
            rows.append({"time": label} | {name: getattr(summary, name) for name in _STATISTICS})
    return Table(
        title=title,
        columns=(
            Column(key="time", heading="time", left=True),
            *(Column(key=name, heading=name, show=_seconds) for name in _STATISTICS),
        ),
        rows=tuple(rows),
    )


def _runs(runs: tuple[RunResult, ...], title: str, key: str) -> Table:
    rows = tuple(_row(run) | {key: getattr(run, key), "drafting": _drafting(run)} for run in runs)
    columns: tuple[Column, ...] = (
        Column(key=key, heading=key, left=key == "policy", show=count if key == "value" else str),
        Column(key="drafting", heading="drafting", left=True),
        Column(key="ttft_s.mean", heading="TTFT", show=_seconds),
        Column(key="ttft_s.p99", heading="p99", show=_seconds),
        Column(key="tpot_s.mean", heading="TPOT", show=_seconds),
        Column(key="tpot_s.p99", heading="p99", show=_seconds, aside=True),
        Column(key="e2e_s.mean", heading="request", show=_seconds),
        Column(key="output_tokens_per_s", heading="tokens/s", show=_rate),
        Column(key="goodput_fraction", heading="good", show=_percent),
        Column(key="kv_usage_fraction.mean", heading="KV", show=_percent),
        Column(key="kv_usage_fraction.max", heading="most", show=_percent, aside=True),
        Column(key="slot_utilization_fraction", heading="slots", show=_percent, aside=True),
        Column(key="prefix_hit_rate_fraction", heading="hits", show=_percent, aside=True),
        Column(key="preemptions", heading="preempted", show=count, aside=True),
        Column(key="rejected", heading="rejected", show=count, aside=True),
        Column(key="tokens_per_round", heading="per round", show=_factor, aside=True),
        Column(key="speedup", heading="TPOT x", show=_factor),
        Column(key="speedup_e2e", heading="request x", show=_factor),
        Column(key="scaling.num_serving_mean", heading="replicas", show=_rate),
        Column(key="usd_per_million_output_tokens", heading="USD/M", show=_usd),
    )
    drafted = any(run.method for run in runs)
    if key == "value" or not drafted:
        # Of a sweep the answer says how all its runs draft.
        columns = tuple(column for column in columns if column.key != "drafting")
    if drafted:
        columns = tuple(replace(column, aside=column.aside or column.key in _LESS) for column in columns)
    shown = tuple(column for column in columns if column.key not in _RARE or any(row.get(column.key) for row in rows))
    if all(run.goodput_fraction == 1 for run in runs):
        shown = tuple(column for column in shown if column.key != "goodput_fraction")
    return Table(title=title, columns=shown, rows=rows)


_LESS = {"ttft_s.p99", "kv_usage_fraction.mean"}
"""Where a terminal is narrow, what drafting gains counts more."""


def _drafting(run: RunResult) -> str:
    return "none" if run.method is None else f"{run.method} x {run.num_draft_tokens}"


_RARE = {
    "preemptions",
    "rejected",
    "prefix_hit_rate_fraction",
    "tokens_per_round",
    "speedup",
    "speedup_e2e",
    "scaling.num_serving_mean",
    "usd_per_million_output_tokens",
}
"""Shown where there are any."""


def _row(run: RunResult) -> dict[str, object]:
    """Return a run with what is inside its times and uses beside it, as ``ttft_s.p99``."""
    return _flat(value_of(run))


def _flat(whole: object) -> dict[str, object]:
    row: dict[str, object] = {}
    for key, value in whole.items() if isinstance(whole, dict) else ():
        if isinstance(value, dict):
            row |= {f"{key}.{name}": item for name, item in _flat(value).items()}
        elif not isinstance(value, list):
            row[key] = value
    return row


def _findings(result: SimulationResult) -> list[str]:
    where = _where(result)
    if not result.fits:
        return [f"{where}: does not fit, {format_bytes(result.missing_bytes)} per GPU are missing"]
    if result.compare and _several_policies(result):
        return [_best(result, where)]
    found = []
    if result.sweep is not None:
        found.append(f"{where}: {result.sweep.knee_text}")
        found += _crossover(result)
        if result.slo:
            top = result.sweep.highest_within_slo
            text = "no value keeps the limits" if top is None else f"the limits are kept up to {top:g}"
            found.append(f"{result.sweep.variable}: {text}")
        return found
    found += [_answered(result, where), *_gained(result), *_used(result)]
    if result.disaggregation is not None:
        found += pool_findings(result.disaggregation)
    if result.scaling is not None:
        found.append(scaling_finding(result.scaling))
    return found


def _gained(result: SimulationResult) -> list[str]:
    """Return what drafting gained or lost."""
    if result.method is None or result.tokens_per_round is None:
        return []
    text = f"{_drafting(result)}: {result.tokens_per_round:.2f} tokens per round"
    if result.speedup is None or result.speedup_e2e is None:
        return [text]
    token, request = _faster(result.speedup, "a token comes"), _faster(result.speedup_e2e, "a request is answered")
    return [f"{text}; against the same requests without drafting {token}, {request}"]


def _faster(times: float, what: str) -> str:
    return f"{what} {times:.2f}x as fast" if times >= 1 else f"{what} {times:.2f}x as fast, which is slower"


def _crossover(result: SimulationResult) -> list[str]:
    """Return up to which load drafting pays."""
    curve = result.sweep
    if curve is None or result.method is None:
        return []
    loses = next((one for one in curve.points if one.speedup_e2e is not None and one.speedup_e2e < 1), None)
    if loses is None or loses.speedup_e2e is None:
        return [f"{_drafting(result)} pays at every value of the sweep"]
    pays = curve.drafting_pays_up_to
    lost = f"at {curve.variable} {loses.value:g} a request takes {1 / loses.speedup_e2e:.2f}x as long as without it"
    return [
        f"{_drafting(result)} pays "
        + (f"up to {curve.variable} {pays:g}: " if pays is not None else "nowhere: ")
        + lost
    ]


def _best(result: SimulationResult, where: str) -> str:
    ran = [run for run in result.compare if run.completed]
    if not ran:
        return f"{where}: no request got its answer under any policy"
    best = max(ran, key=lambda run: (run.goodput_fraction, run.output_tokens_per_s))
    worst = min(ran, key=lambda run: (run.goodput_fraction, run.output_tokens_per_s))
    text = f"{where}: {_told(best, result)}"
    if best is worst or best.e2e_s is None or worst.e2e_s is None:
        return text
    return f"{text}; {_told(worst, result)}, and a request takes {worst.e2e_s.mean / best.e2e_s.mean:.2f}x as long"


def _told(run: RunResult, result: SimulationResult) -> str:
    text = f"{run.policy} gives {_rate(run.output_tokens_per_s)} tokens/s"
    if run.usd_per_million_output_tokens is not None:
        text += f" at {_usd(run.usd_per_million_output_tokens)} USD per million"
    return f"{text}, {_percent(run.goodput_fraction)} of the requests within the limits" if result.slo else text


def _answered(result: SimulationResult, where: str) -> str:
    text = (
        f"{where}: {result.completed:,} of {result.requests:,} requests answered in {format_span(result.duration_s)}: "
        f"{_rate(result.output_tokens_per_s)} answer tokens/s"
    )
    if result.output_tokens_per_s_per_user is not None:
        text += f", {_rate(result.output_tokens_per_s_per_user)} for each user"
    if result.usd_per_million_output_tokens is not None:
        text += f", {_usd(result.usd_per_million_output_tokens)} USD per million"
    if result.usd_per_month is not None:
        text += f", {result.usd_per_month:,.0f} USD a month"
    return text


def _used(result: SimulationResult) -> list[str]:
    use = result.kv_usage_fraction
    found = []
    if use is not None:
        text = f"KV cache {_percent(use.mean)} used on average, {_percent(use.max)} at most; "
        slots = "the slots" if result.scaling is not None else f"{_slots(result):,} slots"
        text += f"{_percent(result.slot_utilization_fraction)} of {slots}; "
        times = "once" if result.preemptions == 1 else f"{result.preemptions:,} times"
        text += f"preempted {times}" if result.preemptions else "nobody preempted"
        if result.prefix_hit_rate_fraction:
            text += f"; the cache held {_percent(result.prefix_hit_rate_fraction)} of the prompts"
        found.append(text)
    if result.slo:
        limits = ", ".join(_limit(one.quantity, one.statistic, one.limit) for one in result.slo)
        found.append(
            f"goodput: {_percent(result.goodput_fraction)} of the requests within {limits}, "
            f"{result.goodput_requests_per_s:.3g} per s"
        )
    return found


def _slots(result: SimulationResult) -> int:
    told = result.disaggregation
    if told is None:
        return result.max_num_seqs * result.num_lanes
    return sum(one.num_slots for one in (told.prefill, told.decode))


def _limit(quantity: str, statistic: str, limit_s: float) -> str:
    of = "" if statistic == "mean" else f"-{statistic}"
    return f"{quantity.removesuffix('_s')}{of} {format_seconds(limit_s)}"


def _drawing(result: SimulationResult, width: int, *, named: bool) -> str:
    moments = result.over_time
    end = format_span(result.duration_s)
    charts = [
        ("KV cache in use over time, %", [_HUNDRED * one.kv_usage_fraction for one in moments], "%"),
        ("Requests that wait for a place, over time", [one.num_waiting for one in moments], "waiting"),
    ]
    if result.scaling is not None:
        charts.append(("Replicas that take requests, over time", [one.num_replicas or 0.0 for one in moments], ""))
    lines = [f"{_where(result)}:"] if named else []
    whose = f" ({_whose(result)})" if result.compare else ""
    for title, heights, unit in charts:
        if max(heights) >= _SEEN:
            lines.append(f"{title}{whose}\n{columns_drawn(heights, unit, end, width=width)}")
    return "\n".join(lines)


def _whose(result: SimulationResult) -> str:
    """Return of which of several runs the drawing is."""
    first = result.compare[0]
    if first.method is None:
        return str(first.policy)
    return f"{first.policy}, with drafting" if _several_policies(result) else "with drafting"


_SEEN = 0.05
"""A chart of less shows nothing."""


def _data(answer: Answer[SimulationResult]) -> Table:
    """Return all that JSON holds: a row for each run, then one for each stretch of time of the first."""
    rows: list[Mapping[str, object]] = []
    for result in answer.results:
        who = {"model": result.model, "gpu": result.gpu}
        rows.append({"row": "result", **_row(result)})
        rows += [{"row": "compare", **who, **_row(run)} for run in result.compare]
        points = () if result.sweep is None else result.sweep.points
        rows += [{"row": "sweep", **who, **_row(point)} for point in points]
        if result.disaggregation is not None:
            rows += [{"row": "aggregated", **who, **_flat(value_of(one))} for one in result.disaggregation.aggregated]
        if result.scaling is not None:
            rows += [{"row": "replicas", **who, **_flat(value_of(one))} for one in result.scaling.replicas_over_time]
        rows += [{"row": "moment", **who, **_flat(value_of(moment))} for moment in result.over_time]
    keys = dict.fromkeys(key for one in rows for key in one)
    return Table(title="", columns=tuple(Column(key=key, heading=key) for key in keys), rows=tuple(rows))


def _seconds(value: object) -> str:
    return format_seconds(value) if isinstance(value, int | float) else str(value)


def _rate(value: object) -> str:
    return (f"{value:,.0f}" if value >= _HUNDRED else f"{value:.3g}") if isinstance(value, int | float) else str(value)


def _factor(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else str(value)


def _percent(value: object) -> str:
    return f"{_HUNDRED * value:.1f} %" if isinstance(value, int | float) else str(value)


def _usd(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, int | float) else str(value)
