"""The view of ``infcalc estimate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views import spending
from infcalc.report.views.frame import view_of
from infcalc.report.views.spending import show_usd
from infcalc.units import format_bytes, format_seconds, format_si

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.api.answer import Answer
    from infcalc.api.offer import Figure
    from infcalc.api.speed import SpeedResult
    from infcalc.api.steps import Step
    from infcalc.api.sweeping import Curve, SweepPoint

_FOUR_DIGITS = 1000
_LEAST_SHARE = 0.001

_FIGURES = (
    ("ttft_s", "time to first token"),
    ("tpot_s", "time per token"),
    ("e2e_s", "whole request"),
    ("queue_s", "of it in the queue"),
    ("output_tokens_per_s", "output tokens/s"),
    ("output_tokens_per_s_per_user", "output tokens/s of a user"),
    ("requests_per_s", "requests/s"),
    ("highest_stable_requests_per_s", "highest stable requests/s"),
    ("usd_per_million_output_tokens", "USD per million output tokens"),
    ("usd_per_million_input_tokens", "USD per million input tokens"),
    ("usd_per_million_cached_tokens", "USD per million cached tokens"),
    ("usd_per_million_blended_tokens", "USD per million, 3 in : 1 out"),
    ("usd_per_month", "USD per month"),
    ("kwh_per_million_output_tokens", "kWh per million output tokens"),
)
_LIMITED = {
    "ttft_s": "ttft_floor_s",
    "tpot_s": "tpot_floor_s",
    "e2e_s": "e2e_floor_s",
    "output_tokens_per_s": "output_tokens_ceiling_per_s",
}
_OF_A_POINT = (
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_user",
    "requests_per_s",
    "usd_per_million_output_tokens",
)


def view(answer: Answer[SpeedResult]) -> View:
    """Return the figures with their bands; side by side and along a sweep a row each."""
    swept = any(result.sweep is not None for result in answer.results)
    several = len(answer.results) > 1
    if swept:
        tables = tuple(_curve(result, result.sweep) for result in answer.results if result.sweep is not None)
    elif several:
        tables = (_side_by_side(answer),)
    else:
        tables = (_alone(answer.result),)
    found = [*tables, *spending.tables(answer.results), _losses(answer), _changes(answer)]
    if answer.explanations:
        found += [
            _parts(step, result, named=several)
            for result in answer.results
            for step in (result.step, result.prefill_step)
            if step is not None
        ]
    return view_of(
        answer,
        tables=tuple(found),
        data=_data(answer),
        verdict="\n".join(
            f"{_where(result)}: {one.text}" if several else one.text
            for result in answer.results
            for one in result.measured
        ),
        findings=tuple(line for result in answer.results for line in _findings(result)),
    )


def _where(result: SpeedResult) -> str:
    return f"{result.model} in {result.weights} on {result.num_gpus} x {result.gpu}"


def _findings(result: SpeedResult) -> list[str]:
    where = _where(result)
    tokens, first, each = result.output_tokens_per_s, result.ttft_s, result.tpot_s
    if not result.fits or tokens is None:
        return [f"{where}: does not fit, {format_bytes(result.missing_bytes)} per GPU are missing"]
    beside = f" with {_few(result.batch)} in decode" if each is not None else ""
    told = [f"{_rate(tokens.value)} tokens/s{beside}"]
    user = result.output_tokens_per_s_per_user
    if user is not None:
        told.append(f"{_rate(user.value)} tokens/s for each user")
    if first is not None:
        told.append(f"first token after {format_seconds(first.value)}")
    if each is None:
        told.append("answers of one token")
    lines = []
    if not result.stable:
        most = result.highest_stable_requests_per_s
        served = (
            "" if most is None else f"; stable up to {most.value:.3g} requests/s ({most.low:.3g} to {most.high:.3g})"
        )
        lines.append(f"unstable: requests arrive faster than they are answered{served}")
    at = ""
    curve = result.sweep
    if curve is not None:
        value = curve.points[0].value if curve.knee is None and curve.points else curve.knee
        at = "" if value is None else f" at {curve.variable} {value:g}"
    lines.append(f"{where}{at}: {', '.join(told)}; bound by {result.bound_by}")
    if curve is not None:
        lines.append(curve.knee_text)
    lines += spending.findings(result)
    lines += [one.text for one in result.slo]
    return lines


# Tables ---------------------------------------------------------------------------------------------------------------


def _alone(result: SpeedResult) -> Table:
    rows: list[Mapping[str, object]] = []
    for key, name in _FIGURES:
        figure: Figure | None = getattr(result, key)
        if figure is None or (key == "queue_s" and figure.value < _LEAST_QUEUE_S):
            if key not in _LIMITED or not result.fits:
                continue
            rows.append({"quantity": name, "value": "grows without end" if not result.stable else "none"})
            continue
        limit = getattr(result.limits, _LIMITED[key]) if key in _LIMITED and result.limits is not None else None
        show = _shower(key)
        rows.append(
            {
                "quantity": name,
                "value": show(figure.value),
                "low": show(figure.low),
                "high": show(figure.high),
                "limit": None
                if limit is None
                else f"{'>=' if key.endswith('_s') and 'per' not in key else '<='} {show(limit)}",
                "reached": None if limit is None else _share(_reached(key, figure.value, limit)),
            }
        )
    rows += spending.at_full_rows(result)
    return Table(
        title=f"How fast (means over requests; low to high holds 80 % of measurements; {_basis(result)})",
        columns=(
            Column(key="quantity", heading="", left=True),
            Column(key="value", heading="estimate"),
            Column(key="low", heading="low"),
            Column(key="high", heading="high"),
            Column(key="limit", heading="limit"),
            Column(key="reached", heading="reached"),
        ),
        rows=tuple(rows),
    )


_LEAST_QUEUE_S = 1e-4


def _side_by_side(answer: Answer[SpeedResult]) -> Table:
    rows = [
        _named(result)
        | _figures(result)
        | {"usd_per_month": None if result.usd_per_month is None else result.usd_per_month.value}
        for result in answer.results
    ]
    month = Column(key="usd_per_month", heading="USD/month", show=show_usd, aside=True)
    return Table(title="Side by side", columns=(*_who(), *_figure_columns(), month), rows=tuple(rows))


def _curve(result: SpeedResult, curve: Curve) -> Table:
    name = str(curve.variable)
    return Table(
        title=f"{result.model} on {result.num_gpus} x {result.gpu} by {name}"
        if name != "tp"
        else f"{result.model} by TP",
        columns=(
            Column(key="value", heading=name, show=_plain),
            Column(key="batch", heading="in decode", show=_whole, aside=True),
            *_figure_columns(),
            Column(key="bound_by", heading="bound by", left=True, aside=True),
            Column(key="mark", heading="remark", left=True),
        ),
        rows=tuple(_point(point, curve) for point in curve.points),
    )


def _point(point: SweepPoint, curve: Curve) -> dict[str, object]:
    mark = "knee" if point.value == curve.knee else "" if point.stable else "unstable"
    return {
        "value": point.value,
        "batch": point.batch,
        "bound_by": point.bound_by,
        "mark": mark,
        **_figures(point),
    }


def _figures(of: SpeedResult | SweepPoint) -> dict[str, object]:
    found: dict[str, object] = {}
    for key in _OF_A_POINT:
        figure: Figure | None = getattr(of, key)
        found[key] = None if figure is None else figure.value
    return found


def _figure_columns() -> tuple[Column, ...]:
    return (
        Column(key="ttft_s", heading="first token", show=_time),
        Column(key="tpot_s", heading="per token", show=_time),
        Column(key="e2e_s", heading="request", show=_time, aside=True),
        Column(key="output_tokens_per_s", heading="tokens/s", show=_rate),
        Column(key="output_tokens_per_s_per_user", heading="a user", show=_rate),
        Column(key="requests_per_s", heading="requests/s", show=_rate, aside=True),
        Column(key="usd_per_million_output_tokens", heading="USD/M", show=show_usd),
    )


def _who() -> tuple[Column, ...]:
    return (
        Column(key="model", heading="model", left=True),
        Column(key="gpu", heading="GPU", left=True),
    )


def _named(result: SpeedResult) -> dict[str, object]:
    return {"model": result.model, "gpu": f"{result.num_gpus} x {result.gpu}"}


def _parts(step: Step, result: SpeedResult, *, named: bool) -> Table:
    number = _rounded(step.num_sequences)
    what = f"{count(number)} sequence{'' if number == 1 else 's'} of {count(_rounded(step.context_tokens))} tokens"
    if step.phase == "prefill":
        what = f"{count(_rounded(step.new_tokens))} tokens of a prompt"
    of = f", {result.model} on {result.num_gpus} x {result.gpu}" if named else ""
    return Table(
        title=f"One {step.phase} step ({what}{of}): {format_seconds(step.time_s.value)}, floor {_time(step.floor_s)}",
        columns=(
            Column(key="name", heading="part", left=True),
            Column(key="time_s", heading="time", show=_time),
            Column(key="share_fraction", heading="share", show=_share),
            Column(key="bound_by", heading="bound by", left=True),
            Column(key="floor_s", heading="floor", show=_time),
            Column(key="flop", heading="work", show=lambda value: _si(value, "FLOP"), aside=True),
            Column(key="bytes", heading="traffic", show=lambda value: _si(value, "B")),
        ),
        rows=tuple(
            {
                "name": part.name,
                "time_s": part.time_s.value,
                "share_fraction": part.share_fraction,
                "bound_by": part.bound_by,
                "floor_s": part.floor_s or None,
                "flop": part.flop or None,
                "bytes": part.bytes or None,
            }
            for part in sorted(step.parts, key=lambda part: -part.share_fraction)
        ),
    )


def _losses(answer: Answer[SpeedResult]) -> Table:
    quantities = len({one.quantity for result in answer.results for one in result.measured}) > 1
    who = _who() if len(answer.results) > 1 else ()
    return Table(
        title="Where it is lost between the floor and what was measured",
        columns=(
            *who,
            *((Column(key="quantity", heading="of", left=True),) if quantities else ()),
            Column(key="cause", heading="likely loss", left=True),
            Column(key="gap_fraction", heading="of the gap", show=_share),
            Column(key="why", heading="why", left=True),
        ),
        rows=tuple(
            _named(result)
            | {"quantity": one.quantity, "cause": cause.cause, "gap_fraction": cause.gap_fraction, "why": cause.why}
            for result in answer.results
            for one in result.measured
            for cause in one.causes
        ),
    )


def _changes(answer: Answer[SpeedResult]) -> Table:
    return Table(
        title="What would make it fit (each found with the same ledger)",
        columns=(
            Column(key="change", heading="change", left=True),
            Column(key="kv_pool_bytes", heading="KV pool", show=_size),
            Column(key="sequences", heading="requests", show=count),
        ),
        rows=tuple(
            {"change": change.change, "kv_pool_bytes": change.kv_pool_bytes, "sequences": change.sequences}
            for result in answer.results
            for change in result.changes
        ),
    )


def _data(answer: Answer[SpeedResult]) -> Table:
    """Return a row per deployment or point, with every figure, its band and basis."""
    rows: list[dict[str, object]] = []
    keys: dict[str, None] = {}
    for result in answer.results:
        who = {
            "model": result.model,
            "gpu": result.gpu,
            "num_gpus": result.num_gpus,
            "weights": result.weights,
            "kv_dtype": result.kv_dtype,
            "load": str(result.load),
            "input_tokens": result.input_tokens,
            "output_tokens": result.output_tokens,
        }
        if result.sweep is None:
            rows.append(who | _state(result) | _banded(result, [key for key, _ in _FIGURES]) | spending.data_of(result))
        else:
            name = str(result.sweep.variable).replace("-", "_")
            rows += [
                who | {name: point.value} | _state(point) | _banded(point, _OF_A_POINT) for point in result.sweep.points
            ]
        for row in rows:
            keys |= dict.fromkeys(row)
    return Table(title="", columns=tuple(Column(key=key, heading=key) for key in keys), rows=tuple(rows))


def _state(of: SpeedResult | SweepPoint) -> dict[str, object]:
    return {"batch": of.batch, "stable": of.stable, "bound_by": of.bound_by}


def _banded(of: SpeedResult | SweepPoint, keys: list[str] | tuple[str, ...]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key in keys:
        figure: Figure | None = getattr(of, key)
        found |= {
            key: None if figure is None else figure.value,
            f"{key}_low": None if figure is None else figure.low,
            f"{key}_high": None if figure is None else figure.high,
        }
    return found


# Words ----------------------------------------------------------------------------------------------------------------


def _basis(result: SpeedResult) -> str:
    return "nothing" if result.output_tokens_per_s is None else str(result.output_tokens_per_s.basis)


def _reached(key: str, value: float, limit: float) -> float:
    return value / limit if key == "output_tokens_per_s" else limit / value


def _shower(key: str) -> Callable[[object], str]:
    if key.startswith(("usd", "kwh")):
        return show_usd
    return _rate if "per_s" in key else _time


def _rounded(value: float) -> float:
    return float(f"{value:.3g}") if value < _FOUR_DIGITS else float(round(value))


def _few(value: float) -> str:
    return f"{value:,.0f}" if value >= _TWO_DIGITS else f"{value:.2g}"


_TWO_DIGITS = 10


def _whole(value: object) -> str:
    return count(_rounded(value)) if isinstance(value, int | float) else str(value)


def _plain(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, int | float) else str(value)


def _rate(value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:.3g}" if value < _FOUR_DIGITS else f"{value:,.0f}"


def _share(value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{100 * value:.1f} %" if value >= _LEAST_SHARE else "< 0.1 %"


def _time(value: object) -> str:
    return format_seconds(value) if isinstance(value, int | float) else str(value)


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int | float) else str(value)


def _si(value: object, unit: str) -> str:
    return format_si(value, unit) if isinstance(value, int | float) else str(value)
