"""The view of ``infcalc compare`` on benchmarks, metrics and interval lines, and of several files side by side."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from infcalc.api.measured_nouns import RunComparison
from infcalc.report.as_json import value_of
from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infcalc.api.answer import Answer
    from infcalc.api.comparing import CompareResult
    from infcalc.api.measured_nouns import FigureLine

_WORDS = {
    "ttft_s": "time to first token",
    "tpot_s": "time per token",
    "tpot_inclusive_s": "time per token, with the first",
    "itl_s": "gap between tokens",
    "e2e_s": "whole request",
    "queue_s": "in the queue",
    "prefill_s": "prompt",
    "decode_s": "answer after its first token",
    "requests_per_s": "requests/s",
    "output_tokens_per_s": "output tokens/s",
    "input_tokens_per_s": "prompt tokens/s",
    "total_tokens_per_s": "tokens/s, prompts and answers",
    "output_tokens_per_s_per_user": "tokens/s of a user",
    "num_concurrent": "requests under way",
}
_SIDE = ("tpot_s", "ttft_s", "output_tokens_per_s", "e2e_s", "output_tokens_per_s_per_user", "input_tokens_per_s")
_MOST_SHOWN = 3
_PERCENTILES = frozenset({"p90", "p95", "p99"})
"""Put down to the same as their mean."""
_MOST_TOLD = 6
"""Runs with a sentence each; more are summed up."""
_MULTIPLE = 1.0
_ENDS = (0.05, 0.95)


def view(answer: Answer[Any]) -> View:
    """Return the verdict, the lines, what each difference is put down to; of several runs a row each before."""
    runs = [result for result in answer.results if isinstance(result, RunComparison)]
    logs = [result for result in answer.results if not isinstance(result, RunComparison)]
    if len(answer.results) == 1:
        (run,) = runs
        return view_of(
            answer,
            tables=(_lines(run), _causes(run), *_shares(run)),
            verdict=run.verdict,
            findings=_findings(run),
            data=_data(runs, logs),
        )
    tables = [_side_by_side(runs)] if runs else []
    tables += [_of_log(log) for log in logs]
    return view_of(
        answer,
        tables=tuple(tables),
        verdict=_verdict(runs, logs),
        data=_data(runs, logs),
    )


def _verdict(runs: Sequence[RunComparison], logs: Sequence[CompareResult]) -> str:
    """Return a sentence for each run and log, or, of many runs, sums."""
    short = _short([run.place for run in runs])
    told = [f"{place}: {run.verdict}" for place, run in zip(short, runs, strict=True)]
    if len(told) > _MOST_TOLD:
        told = _summed(runs)
        told += [f"{place}: {run.verdict}" for place, run in zip(short, runs, strict=True) if run.impossible]
    return "\n".join([*told, *(f"{_name(log)}: {log.verdict}" for log in logs)])


def _summed(runs: Sequence[RunComparison]) -> list[str]:
    found = []
    for name in _SIDE:
        lines = [line for run in runs for line in run.lines if line.quantity == name and line.statistic == "mean"]
        errors = sorted(abs(line.error_fraction) for line in lines if line.error_fraction is not None)
        if errors:
            within = sum(
                line.predicted_low <= line.measured <= line.predicted_high
                for line in lines
                if line.predicted_low is not None and line.predicted_high is not None
            )
            found.append(
                f"{_WORDS[name]}: {len(errors)} runs, median error {median(errors):.0%}, {within} within the band"
            )
    return found


def _short(places: Sequence[str]) -> list[str]:
    """Return places without the folders that all of them have in common."""
    if len(places) <= 1:
        return list(places)
    first, last = min(places), max(places)
    alike = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), 0)
    cut = first[:alike].rfind("/") + 1
    return [place[cut:] for place in places]


def _name(result: RunComparison | CompareResult) -> str:
    return result.place if isinstance(result, RunComparison) else f"{result.evidence} of {result.model}"


def _findings(run: RunComparison) -> tuple[str, ...]:
    where = f"{run.model} in {run.weights} on {run.num_gpus} x {run.gpu}, {run.engine} {run.engine_version}"
    lengths = ""
    if run.input_tokens is not None and run.output_tokens is not None:
        lengths = f", {count(round(run.input_tokens))} tokens in and {count(round(run.output_tokens))} out on average"
    bound = f"; bound by {run.bound_by}" if run.bound_by else ""
    return (f"{run.evidence}: {where}; {run.load}{lengths}{bound}",)


def _lines(run: RunComparison) -> Table:
    return Table(
        title="Predicted and measured (low to high holds 80 % of measurements)",
        columns=(
            Column(key="quantity", heading="", left=True, show=_named),
            Column(key="statistic", heading="of", left=True),
            Column(key="predicted", heading="predicted", text_key="predicted_text"),
            Column(key="predicted_low", heading="low", aside=True, text_key="low_text"),
            Column(key="predicted_high", heading="high", aside=True, text_key="high_text"),
            Column(key="measured", heading="measured", text_key="measured_text"),
            Column(key="error_fraction", heading="error", show=_error),
            Column(key="roofline_fraction", heading="of roofline", show=_share),
            Column(key="slower_fraction", heading="slower ones", show=_slower, aside=True),
        ),
        rows=tuple(_row(line) for line in run.lines if line.predicted is not None or line.statistic in {"mean", "p99"}),
    )


def _causes(run: RunComparison) -> Table:
    return Table(
        title="What the differences are put down to (measured less predicted)",
        columns=(
            Column(key="quantity", heading="", left=True, show=_named),
            Column(key="statistic", heading="of", left=True),
            Column(key="attributed_to", heading="cause", left=True),
        ),
        rows=tuple(
            {"quantity": line.quantity, "statistic": line.statistic, "attributed_to": line.attributed_to}
            for line in run.lines
            if line.predicted is not None and line.statistic not in _PERCENTILES
        ),
    )


def _shares(run: RunComparison) -> tuple[Table, ...]:
    found = []
    for title, shares in (
        ("What a predicted token takes", run.token_shares),
        ("What the predicted first token takes", run.first_token_shares),
    ):
        if shares:
            columns = (
                Column(key="cause", heading="cause", left=True),
                Column(key="time_s", heading="time", show=_time),
                Column(key="share_fraction", heading="share", show=_share),
            )
            rows = tuple(
                {"cause": str(one.cause), "time_s": one.time_s, "share_fraction": one.share_fraction} for one in shares
            )
            found.append(Table(title=title, columns=columns, rows=rows))
    return tuple(found)


def _side_by_side(runs: Sequence[RunComparison]) -> Table:
    """Return a row for each run: of each figure that people ask first, measured, and how far predictions are off."""
    present = {line.quantity for run in runs for line in run.lines if line.predicted is not None}
    chosen = [name for name in _SIDE if name in present][:_MOST_SHOWN]
    columns = [Column(key="place", heading="run", left=True), Column(key="load", heading="load", left=True, aside=True)]
    for name in chosen:
        columns.append(Column(key=name, heading=_WORDS.get(name, name), text_key=f"{name}_text"))
        columns.append(Column(key=f"{name}_error_fraction", heading="error", show=_error))
    columns.append(Column(key="roofline_fraction", heading="of roofline", show=_share, aside=True))
    rows: list[Mapping[str, object]] = []
    for place, run in zip(_short([run.place for run in runs]), runs, strict=True):
        row: dict[str, object] = {"place": place, "load": run.load}
        for name in chosen:
            line = next((one for one in run.lines if one.quantity == name and one.predicted is not None), None)
            if line is not None:
                row[name] = line.measured
                row[f"{name}_text"] = _shown(name, line.measured)
                row[f"{name}_error_fraction"] = line.error_fraction
                row.setdefault("roofline_fraction", line.roofline_fraction)
        rows.append(row)
    return Table(
        title="Measured, and how far the prediction is off (predicted less measured)",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _of_log(log: CompareResult) -> Table:
    from infcalc.report.views.compare import lines_table  # noqa: PLC0415 - the other way round, only for logs

    return replace(lines_table(log), title=f"Predicted and measured, per GPU: {log.model} on {log.gpu}")


def _data(runs: Sequence[RunComparison], logs: Sequence[CompareResult]) -> Table:
    """Return all lines as they are in JSON, without their parts, which ``attributed_to`` names."""
    rows: list[dict[str, object]] = []
    several = len(runs) + len(logs) > 1
    results: list[RunComparison | CompareResult] = [*runs, *logs]
    for result in results:
        for line in result.lines:
            row = value_of(line)
            if isinstance(row, dict):
                ahead = {"place": _name(result)} if several else {}
                rows.append(ahead | {key: value for key, value in row.items() if key != "parts"})
    keys = list(dict.fromkeys(key for row in rows for key in row)) or ["quantity"]
    return Table(title="", columns=tuple(Column(key=key, heading=key) for key in keys), rows=tuple(rows))


def _row(line: FigureLine) -> dict[str, object]:
    return {
        "quantity": line.quantity,
        "statistic": line.statistic,
        "predicted": line.predicted,
        "predicted_low": line.predicted_low,
        "predicted_high": line.predicted_high,
        "measured": line.measured,
        "error_fraction": line.error_fraction,
        "roofline_fraction": line.roofline_fraction,
        "slower_fraction": line.slower_fraction,
        "predicted_text": _shown(line.quantity, line.predicted),
        "low_text": _shown(line.quantity, line.predicted_low),
        "high_text": _shown(line.quantity, line.predicted_high),
        "measured_text": _shown(line.quantity, line.measured),
    }


def _named(quantity: object) -> str:
    return _WORDS.get(str(quantity), str(quantity))


def _shown(quantity: str, value: float | None) -> str:
    if value is None:
        return "-"
    if quantity.endswith("_s") and not quantity.endswith("_per_s"):
        return format_seconds(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"  # noqa: PLR2004 - four digits


def _time(value: object) -> str:
    return format_seconds(value) if isinstance(value, float) else str(value)


def _share(value: object) -> str:
    return f"{value:.0%}" if isinstance(value, float) else str(value)


def _slower(value: object) -> str:
    """Return a share of published runs; the table tells the ends no closer."""
    if isinstance(value, float) and not _ENDS[0] < value < _ENDS[1]:
        return f"<= {_ENDS[0]:.0%}" if value <= _ENDS[0] else f">= {_ENDS[1]:.0%}"
    return _share(value)


def _error(value: object) -> str:
    if isinstance(value, float) and value >= _MULTIPLE:
        return f"{1 + value:,.1f} x"
    return f"{value:+.1%}".replace("-0.0%", "0.0%").replace("+0.0%", "0.0%") if isinstance(value, float) else str(value)
