"""What a view says of cost: prices at full use, an API instead, and a day whose load rises and falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.planning.break_even import Wins
from infcalc.report.table import Column, Table, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from infcalc.api.offer import Figure
    from infcalc.api.speed import SpeedResult
    from infcalc.api.spending import AgainstApi, DayBill

_AT_FULL = (
    ("full_usd_per_million_output_tokens", "USD per million output tokens"),
    ("full_usd_per_million_input_tokens", "USD per million input tokens"),
    ("full_usd_per_million_cached_tokens", "USD per million cached tokens"),
    ("full_usd_per_million_blended_tokens", "USD per million, 3 in : 1 out"),
    ("full_kwh_per_million_output_tokens", "kWh per million output tokens"),
)
_DAY_S = 86_400
_THOUSAND = 1000
_MILLION = 1e6
_BILLION = 1e9


def at_full_rows(result: SpeedResult) -> list[Mapping[str, object]]:
    """Return rows of the prices where all paid hours are used; none where they are anyway."""
    if result.at_full is None or result.utilization_fraction == 1:
        return []
    found: list[Mapping[str, object]] = []
    for key, name in _AT_FULL:
        figure: Figure | None = getattr(result.at_full, key)
        if figure is not None:
            found.append({"quantity": f"{name}, at full use"} | _shown(figure))
    return found


def _shown(figure: Figure) -> dict[str, object]:
    return {end: show_usd(getattr(figure, end)) for end in ("value", "low", "high")}


def data_of(result: SpeedResult) -> dict[str, object]:
    """Return the columns that a row of data has more for what was asked of cost."""
    found: dict[str, object] = {}
    for name in ("at_full", "break_even", "bill"):
        part = getattr(result, name)
        if part is None or (name == "at_full" and result.utilization_fraction == 1):
            continue
        for key in part.__dataclass_fields__:
            found |= _columns(f"{name}.{key}", getattr(part, key))
    return found


def _columns(key: str, value: object) -> dict[str, object]:
    if isinstance(value, str | int | float):
        return {key: str(value) if isinstance(value, str) else value}
    if value is None or isinstance(value, tuple):
        return {}
    return {key: getattr(value, "value", None)} | {f"{key}_{end}": getattr(value, end, None) for end in ("low", "high")}


def findings(result: SpeedResult) -> list[str]:
    """Return in sentences whether an API is cheaper, and what autoscaling saves."""
    lines = []
    if result.break_even is not None:
        lines.append(_met(result.break_even))
    if result.bill is not None:
        lines.append(_saved(result.bill))
    return lines


def _met(met: AgainstApi) -> str:
    api = f"the API asks {show_usd(met.api_usd_per_million_output_tokens)} USD per million output tokens with prompts"
    share, tokens = met.capacity_fraction, met.tokens_per_month
    if share is None or tokens is None:
        return f"{api}: in part of the range that is less than the power of the GPUs, so that they need not ever win"
    ends = "" if tokens.low == tokens.high else f" ({_tokens(tokens.low)} to {_tokens(tokens.high)})"
    where = f"{_tokens(tokens.value)} tokens a month{ends}"
    used = f"{_percent(share.value)} of their capacity ({_percent(share.low)} to {_percent(share.high)})"
    match met.wins:
        case Wins.YES:
            return f"{api}: the GPUs are cheaper from {where} on, {used}"
        case Wins.PERHAPS:
            return f"{api}: whether the GPUs are ever cheaper is not sure, for that takes {where}, {used}"
        case Wins.NO:
            return f"{api}: it is cheaper at any load that the GPUs can serve; they would pay at {used}"


def _saved(bill: DayBill) -> str:
    fixed, followed, number = bill.fixed_usd_per_month, bill.scaled_usd_per_month, bill.num_peak_replicas
    return (
        f"over the day: {count(number)} replica{'' if number == 1 else 's'} all the time cost {fixed.value:,.0f} USD a "
        f"month ({fixed.low:,.0f} to {fixed.high:,.0f}) and are {_percent(bill.fixed_utilization_fraction)} used; "
        f"replicas that follow the load, {bill.num_mean_replicas:.3g} in the mean, {followed.value:,.0f} USD "
        f"({followed.low:,.0f} to {followed.high:,.0f}), {_percent(bill.saved_fraction)} less"
    )


def tables(results: Iterable[SpeedResult]) -> Sequence[Table]:
    """Return the tables of break-even points and of bills over the day, where those were asked for."""
    found = list(results)
    return (_break_even(found), *(_day(one, one.bill) for one in found if one.bill is not None))


def _break_even(results: list[SpeedResult]) -> Table:
    rows: list[Mapping[str, object]] = []
    for result in results:
        met = result.break_even
        if met is None:
            continue
        who = f"{result.num_gpus} x {result.gpu}"
        for key, name, factor in (
            ("capacity_fraction", "% of capacity", 100.0),
            ("tokens_per_month", "million tokens a month", 1 / _MILLION),
            ("output_tokens_per_month", "million output tokens a month", 1 / _MILLION),
            ("requests_per_month", "requests a month", 1.0),
        ):
            figure: Figure | None = getattr(met, key)
            if figure is not None:
                ends = {end: factor * getattr(figure, end) for end in ("value", "low", "high")}
                rows.append({"gpu": who, "quantity": name} | ends)
    return Table(
        title="Where GPUs and API cost the same",
        columns=(
            Column(key="gpu", heading="GPUs", left=True),
            Column(key="quantity", heading="at", left=True),
            Column(key="value", heading="estimate", show=_number),
            Column(key="low", heading="low", show=_number),
            Column(key="high", heading="high", show=_number),
        ),
        rows=tuple(rows),
    )


def _day(result: SpeedResult, bill: DayBill) -> Table:
    unit = "requests/s" if bill.unit == "rate" else str(bill.unit)
    return Table(
        title=(
            f"Replicas of {result.num_gpus} x {result.gpu} over a {'day' if bill.period_s <= _DAY_S else 'week'} "
            f"(one serves {show_usd(bill.capacity.value)} {'users' if bill.unit == 'users' else 'requests/s'})"
        ),
        columns=(
            Column(key="start", heading="from", left=True),
            Column(key="level", heading=unit, show=_number),
            Column(key="replicas", heading="replicas", show=count),
        ),
        rows=tuple(
            {"start": _clock(start), "level": level, "replicas": number}
            for start, level, number in zip(bill.starts_s, bill.levels, bill.num_replicas, strict=True)
        ),
    )


def show_usd(value: object) -> str:
    """Return money (or energy) with cents, small amounts with three digits and thousands without cents."""
    if not isinstance(value, int | float):
        return str(value)
    if value >= _THOUSAND:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if value >= 1 else f"{value:.3g}"


def _clock(start_s: float) -> str:
    minutes = round(start_s / 60)
    day, rest = divmod(minutes, 24 * 60)
    clock = f"{rest // 60:02d}:{rest % 60:02d}"
    return f"day {day + 1} {clock}" if day else clock


def _tokens(value: float) -> str:
    return f"{value / _BILLION:,.3g} billion" if value >= _BILLION else f"{value / _MILLION:,.3g} million"


def _percent(share: float) -> str:
    return f"{_number(float(f'{100 * share:.3g}'))} %"


def _number(value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if value >= _THOUSAND else f"{value:,.4g}"
