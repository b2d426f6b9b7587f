"""The view of ``infcalc plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.as_json import value_of
from infcalc.report.front_chart import front_chart
from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.api.answer import Answer
    from infcalc.api.plan_nouns import Plan, PlanResult, Rejected, RejectedGroup

_PLAIN_WIDTH = 80
_NARROW = 40


def view(answer: Answer[PlanResult]) -> View:
    """Return the ranking, what was rejected by reason, the way from a naive deployment, and the front as a drawing."""
    several = len(answer.results) > 1
    tables: list[Table] = []
    for result in answer.results:
        name = f"{result.model}: " if several else ""
        tables += [table for table in _tables(result, name) if table.rows]

    def drawn(width: int) -> str:
        return "\n\n".join(drawing for result in answer.results if (drawing := front_chart(result.front, width)))

    return view_of(
        answer,
        tables=tuple(tables) or (_ranking(answer.result, ""),),
        data=_data(answer),
        verdict="; ".join(result.text for result in answer.results),
        findings=tuple(line for result in answer.results for line in _findings(result)),
        drawing=drawn(_PLAIN_WIDTH),
        drawn=lambda width: drawn(max(_NARROW, min(width, 100))),
    )


def _tables(result: PlanResult, name: str) -> list[Table]:
    return [_ranking(result, name), _story(result, name), _alternatives(result, name), _rejected(result, name)]


def _ranking(result: PlanResult, name: str) -> Table:
    rows = tuple(_row(number, one) for number, one in enumerate(result.plans, start=1))
    columns = (
        Column(key="rank", heading="#"),
        Column(key="what", heading="plan", left=True),
        Column(key="split", heading="split", left=True),
        Column(key="precision", heading="weights/KV", left=True, aside=True),
        Column(key="engine", heading="engine", left=True, aside=True),
        Column(key="usd_per_month", heading="USD/month", show=count),
        Column(key="ttft_s", heading="TTFT", show=_seconds),
        Column(key="tpot_s", heading="TPOT", show=_seconds),
        Column(key="tokens_per_s", heading="tokens/s", show=count),
        Column(key="usd_per_million", heading="USD/M", show=_usd, aside=True),
        Column(key="kwh_per_million", heading="kWh/M", show=_three, aside=True),
        Column(key="sure", heading="sure", show=_percent),
        Column(key="simulated", heading="simulated", left=True, aside=True),
    )
    shown = (
        columns if len({row["engine"] for row in rows}) > 1 else tuple(one for one in columns if one.key != "engine")
    )
    return Table(title=f"{name}Plans by {result.objective}, the best first", columns=shown, rows=rows)


def _row(number: int, plan: Plan) -> dict[str, object]:
    many = f"{plan.replicas} x " if plan.replicas > 1 else ""
    split = "  ".join(
        f"{word} {ranks}"
        for word, ranks in (("TP", plan.tp), ("PP", plan.pp), ("DP", plan.dp), ("EP", plan.ep))
        if ranks > 1 or word == "TP"
    )
    if plan.method is not None:
        split += f"  {plan.method} {plan.num_draft_tokens}"
    said = plan.confirmation
    return {
        "rank": number,
        "what": f"{many}{plan.gpus_per_replica} x {plan.gpu}",
        "split": split,
        "precision": f"{plan.weights}/{plan.kv_dtype}",
        "engine": plan.engine,
        "usd_per_month": None if plan.usd_per_month is None else round(plan.usd_per_month.value),
        "ttft_s": None if plan.ttft_s is None else plan.ttft_s.value,
        "tpot_s": None if plan.tpot_s is None else plan.tpot_s.value,
        "tokens_per_s": round(plan.output_tokens_per_s.value),
        "usd_per_million": None
        if plan.usd_per_million_output_tokens is None
        else plan.usd_per_million_output_tokens.value,
        "kwh_per_million": None
        if plan.kwh_per_million_output_tokens is None
        else plan.kwh_per_million_output_tokens.value,
        "sure": plan.slo_probability_fraction,
        "simulated": "-" if said is None else said.text.partition(": simulated ")[2] or said.text,
    }


def _rejected(result: PlanResult, name: str) -> Table:
    return Table(
        title=f"{name}Rejected, by reason, with the nearest of each",
        columns=(
            Column(key="kind", heading="reason", left=True),
            Column(key="count", heading="setups", show=count),
            Column(key="nearest", heading="nearest", left=True),
            Column(key="change", heading="would pass with", left=True, aside=True),
        ),
        rows=tuple(_group(one) for one in result.rejected_groups),
    )


def _group(group: RejectedGroup) -> dict[str, object]:
    near = group.nearest
    who = f"{near.gpus_per_replica} x {near.gpu}: " if near.gpus_per_replica else ""
    return {
        "kind": group.kind.value,
        "count": group.count,
        "nearest": f"{who}{near.reason}",
        "change": _change(near),
    }


def _change(near: Rejected) -> str:
    if not near.nearest_change:
        return "-"
    return near.nearest_change if near.change_suffices else f"first {near.nearest_change}"


def _story(result: PlanResult, name: str) -> Table:
    rows = tuple(
        {
            "step": step.step,
            "what": f"{step.replicas} x {step.num_gpus // max(1, step.replicas)} x {step.gpu}",
            "slots": step.slots_per_replica,
            "rate": step.requests_per_s_per_replica,
            "usd": round(step.usd_per_month),
            "saving": step.saving_factor,
            "total": step.total_factor,
            "note": step.note,
        }
        for step in result.story
    )
    return Table(
        title=f"{name}From a naive deployment to the plan, the same load at each step",
        columns=(
            Column(key="step", heading="step", left=True),
            Column(key="what", heading="GPUs", left=True),
            Column(key="slots", heading="slots", show=count, aside=True),
            Column(key="rate", heading="requests/s", show=_three, aside=True),
            Column(key="usd", heading="USD/month", show=count),
            Column(key="saving", heading="saves", show=_factor),
            Column(key="total", heading="in all", show=_factor),
            Column(key="note", heading="how", left=True, aside=True),
        ),
        rows=rows,
    )


def _alternatives(result: PlanResult, name: str) -> Table:
    return Table(
        title=f"{name}Pools of two kinds, against the best plain plan at equal cost",
        columns=(
            Column(key="kind", heading="kind", left=True),
            Column(key="text", heading="pools", left=True),
            Column(key="usd", heading="USD/month", show=count),
            Column(key="gain", heading="load per USD", show=_factor),
            Column(key="pays", heading="pays", left=True),
            Column(key="sure", heading="sure", show=_percent),
            Column(key="why", heading="why", left=True, aside=True),
        ),
        rows=tuple(
            {
                "kind": one.kind,
                "text": one.text,
                "usd": round(one.usd_per_month),
                "gain": one.gain_factor,
                "pays": "yes" if one.pays else "no",
                "sure": one.slo_probability_fraction,
                "why": one.why,
            }
            for one in result.alternatives
        ),
    )


def _findings(result: PlanResult) -> list[str]:
    found = unlikely(result)
    if result.plans:
        best = result.plans[0]
        found.append(f"binding: {best.binding_constraint}")
        found.append(f"to start it: {best.launch_command}")
    found += [one.text for one in result.options]
    return found


def unlikely(result: PlanResult) -> list[str]:
    """Return what is to be said of plans that keep all limits only at the good end of the band."""
    numbers = [str(number) for number, one in enumerate(result.plans, start=1) if one.only_optimistic]
    if not numbers:
        return []
    noun = "plan" if len(numbers) == 1 else "plans"
    return [
        f"{noun} {', '.join(numbers)}: all limits are kept only at the good end of the band (sure is below one in two)"
    ]


def _data(answer: Answer[PlanResult]) -> Table:
    """Return all that JSON holds: a row for each plan, point of the front, step, alternative and rejected setup."""
    rows: list[Mapping[str, object]] = []
    for result in answer.results:
        who = {"model": result.model, "objective": result.objective.value}
        for word, items in (
            ("plan", result.plans),
            ("front", result.front),
            ("story", result.story),
            ("alternative", result.alternatives),
            ("option", result.options),
            ("rejected", result.rejected),
        ):
            rows += [{"row": word, **who, **_flat(value_of(one))} for one in items]
    keys = dict.fromkeys(key for one in rows for key in one)
    return Table(title="", columns=tuple(Column(key=key, heading=key) for key in keys), rows=tuple(rows))


def _flat(whole: object, prefix: str = "") -> dict[str, object]:
    """Return what is inside figures beside them, as ``ttft_s.high``; a list by the names of its entries."""
    found: dict[str, object] = {}
    for key, value in whole.items() if isinstance(whole, dict) else ():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    found |= _flat(one, f"{prefix}{key}.{one.get('name', '')}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _seconds(value: object) -> str:
    return format_seconds(value) if isinstance(value, int | float) else str(value)


def _usd(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, int | float) else str(value)


def _percent(value: object) -> str:
    return f"{value:.0%}" if isinstance(value, int | float) else str(value)


def _factor(value: object) -> str:
    return f"{value:,.2f} x" if isinstance(value, int | float) else str(value)


def _three(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)
