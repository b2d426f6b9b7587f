"""The answers inside a capacity review: each with the words and tables that its own command shows, and pictures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from infcalc.report.bar import memory_bar as bar_of_letters
from infcalc.report.chart import roof_of, roofline_chart
from infcalc.report.document import Command, Commands, Passage, Picture, Points
from infcalc.report.front_chart import front_chart, split_of
from infcalc.report.svg.load_curve import Limit, Shown, load_curve
from infcalc.report.svg.memory_bar import memory_bar
from infcalc.report.svg.price_front import price_front
from infcalc.report.svg.roofline import roofline_drawing
from infcalc.report.table import Column, Table, count
from infcalc.report.views import estimate as estimate_view
from infcalc.report.views import memory as memory_view
from infcalc.report.views import plan as plan_view
from infcalc.report.views import roofline as roofline_view
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.objectives import Objective
    from infcalc.api.plan_nouns import FrontPoint, PlanResult
    from infcalc.api.reporting_nouns import ReportResult
    from infcalc.report.document import Block

_CHART_WIDTH = 78
"""Characters of a drawing in letters."""
_MOST_ROWS = 30
"""Of a front: for many replicas each number of them is a plan of its own."""
_TIMES = (("tpot_s", "time per token"), ("ttft_s", "time to first token"))


def _part(answer: Answer[ReportResult], command: str, result: object) -> Answer[Any]:
    """Return the answer of one command, which its view can show."""
    return replace(answer, command=command, results=(result,), explanations=())  # type: ignore[arg-type]


def _shown(tables: tuple[Table, ...]) -> tuple[Table, ...]:
    return tuple(table for table in tables if table.rows)


def limits(result: ReportResult) -> Table:
    """Return what the deployment makes of each limit, with as many replicas as the load takes."""
    own = result.as_deployed.plans[0] if result.as_deployed.plans else None
    simulated = {} if own is None or own.confirmation is None else {one.name: one for one in own.confirmation.slo}
    return Table(
        title="The limits under this load, as deployed",
        columns=(
            Column(key="name", heading="limit", left=True),
            Column(key="limit_s", heading="at most", show=_time),
            Column(key="value_s", heading="estimate", show=_time),
            Column(key="low_s", heading="low", show=_time),
            Column(key="high_s", heading="high", show=_time),
            Column(key="simulated_s", heading="simulated", show=_time),
            Column(key="probability_fraction", heading="kept in", show=_percent),
        ),
        rows=()
        if own is None
        else tuple(
            {
                "name": one.name,
                "limit_s": one.limit_s,
                "value_s": one.value_s,
                "low_s": one.low_s,
                "high_s": one.high_s,
                "simulated_s": simulated[one.name].value_s if one.name in simulated else None,
                "probability_fraction": one.probability_fraction,
            }
            for one in own.slo
        ),
    )


def memory(answer: Answer[ReportResult]) -> tuple[Block, ...]:
    """Return the ledger of the governing GPU."""
    result = answer.result.memory
    view = memory_view.view(_part(answer, "memory", result))
    pieces = memory_view.parts(result)
    picture = Picture(
        name="memory",
        title=f"What fills one {result.gpu}",
        caption="The governing GPU, whose pool holds the fewest sequences; pieces stand in the order of the legend.",
        description="; ".join(view.findings),
        draw=partial(memory_bar, [(part, size) for _, part, size in pieces], result.total_bytes),
        text=bar_of_letters(pieces, result.total_bytes),
    )
    return (*map(_passage, view.findings), picture, *_shown(view.tables))


def roofline(answer: Answer[ReportResult]) -> tuple[Block, ...]:
    """Return where prefill and decode stand."""
    result, speed = answer.result.roofline, answer.result.estimate
    view = roofline_view.view(_part(answer, "roofline", result))
    found: list[Block] = [_passage(text) for text in view.findings]
    roof = roof_of(result, result.points[0].gpu) if result.points else None
    if roof is not None:
        picture = Picture(
            name="roofline",
            title=f"Roofline at {result.context_tokens:,} tokens",
            caption=(
                "Floors at 100 % of peak and bandwidth: below the slope memory is the limit, below the flat part "
                f"compute. {result.context_tokens:,} tokens are what a running request of this load holds on average."
            ),
            description="; ".join(view.findings),
            draw=partial(roofline_drawing, result, roof, max(1, round(speed.batch)) if speed.fits else None),
            text=roofline_chart(result),
        )
        found.append(picture)
    stands, _, crossings = view.tables
    return (*found, stands, crossings)


def speed(answer: Answer[ReportResult]) -> tuple[Block, ...]:
    """Return how fast one replica is with its share of the load, and along the sweep."""
    result = answer.result
    alone = estimate_view.view(replace(_part(answer, "estimate", result.estimate), explanations=answer.explanations))
    first, *others = alone.tables
    found: list[Block] = [*map(_passage, alone.findings), first]
    curve = result.curve
    if curve is None:
        return (*found, *_shown(tuple(others)))
    swept = estimate_view.view(_part(answer, "estimate", replace(result.estimate, sweep=curve)))
    found += [_passage(curve.knee_text), *_curves(result)]
    if curve.skipped:
        found.append(Points(texts=tuple(f"left out: {one}" for one in curve.skipped)))
    return (*found, swept.tables[0], *_shown(tuple(others)))


def _curves(result: ReportResult) -> list[Block]:
    curve = result.curve
    if curve is None:
        return []
    found: list[Block] = []
    for quantity, what in _TIMES:
        if all(getattr(point, quantity) is None for point in curve.points):
            continue
        limits = tuple(
            Limit(limit_s=one.limit, name=f"{_named(one)} {format_seconds(one.limit)}")
            for one in result.slo
            if one.quantity == quantity
        )
        shown = Shown(quantity=quantity, axis=f"{what} (logarithmic)", limits=limits, value=result.share_per_replica)
        picture = Picture(
            name=f"curve-{quantity.removesuffix('_s')}",
            title=f"{what[0].upper()}{what[1:]} against throughput, one replica",
            caption=(
                "Means over requests with their band; a limit on a percentile is held against the percentile, which "
                "lies above the mean."
            ),
            description=curve.knee_text,
            draw=partial(load_curve, curve, shown),
        )
        found.append(picture)
    return found


def _named(objective: Objective) -> str:
    name = objective.quantity.removesuffix("_s")
    return name if objective.statistic == "mean" else f"{name}-{objective.statistic}"


def plans(answer: Answer[ReportResult]) -> tuple[Block, ...]:
    """Return the deployment with its replicas, the best plans on offer, their front, and what was rejected."""
    result = answer.result
    own = plan_view.view(_part(answer, "plan", result.as_deployed))
    best = plan_view.view(_part(answer, "plan", result.plan))
    found: list[Block] = [_passage(f"As deployed: {own.verdict}"), *_chosen(result.as_deployed)]
    ranked = len(result.as_deployed.plans[:1])
    replicas = "As deployed, with as many replicas as the load takes"
    found += [replace(ranking, title=replicas) for ranking in own.tables[:ranked]]
    found += [replace(one, title=f"As deployed: {_small(one.title)}") for one in own.tables[ranked:] if one.rows]
    found += [_passage(f"On offer: {best.verdict}"), *_chosen(result.plan)]
    if result.plan.front:
        found += [_front_picture(result), _front(result.plan.front)]
    return (*found, *_shown(best.tables))


def _small(title: str) -> str:
    return title[:1].lower() + title[1:]


def _chosen(result: PlanResult) -> list[Block]:
    """Return what binds the best plan, how it is started, and what drafting and the prefix cache are worth."""
    found: list[Block] = []
    if result.plans:
        best = result.plans[0]
        line = Command(purpose="To start it:", line=best.launch_command)
        found += [_passage(f"What binds it: {best.binding_constraint}"), Commands(commands=(line,))]
    told = (*plan_view.unlikely(result), *(one.text for one in result.options))
    return [*found, Points(texts=told)] if told else found


def _front_picture(result: ReportResult) -> Picture:
    own = result.as_deployed.plans[0] if result.as_deployed.plans else None
    return Picture(
        name="front",
        title="Time of a request against cost",
        caption="Plans for the whole load that no other beats in both cost and time, numbered as in the table.",
        description=result.plan.text,
        draw=partial(price_front, result.plan.front, own),
        text=front_chart(result.plan.front, _CHART_WIDTH),
    )


def _front(points: tuple[FrontPoint, ...]) -> Table:
    first = f" (the first {_MOST_ROWS} of {len(points)}; JSON has all)" if len(points) > _MOST_ROWS else ""
    return Table(
        title=f"The front: no plan is cheaper and quicker{first}",
        columns=(
            Column(key="number", heading="#"),
            Column(key="what", heading="plan", left=True),
            Column(key="split", heading="split", left=True),
            Column(key="precision", heading="weights/KV", left=True),
            Column(key="usd_per_month", heading="USD/month", show=count),
            Column(key="e2e_s", heading="request", show=_time),
            Column(key="ttft_s", heading="TTFT", show=_time),
            Column(key="tpot_s", heading="TPOT", show=_time),
        ),
        rows=tuple(
            {
                "number": number,
                "what": f"{one.replicas} x {one.total_gpus // one.replicas} x {one.gpu}",
                "split": "  ".join(split_of(one)),
                "precision": f"{one.weights}/{one.kv_dtype}",
                "usd_per_month": round(one.usd_per_month),
                "e2e_s": one.e2e_s,
                "ttft_s": one.ttft_s,
                "tpot_s": one.tpot_s,
            }
            for number, one in enumerate(points[:_MOST_ROWS], start=1)
        ),
    )


def _passage(text: str) -> Passage:
    return Passage(text=text if text.endswith((".", ":", "?")) else f"{text}.")


def _time(value: object) -> str:
    return format_seconds(value) if isinstance(value, int | float) else str(value)


def _percent(value: object) -> str:
    return f"{value:.0%}" if isinstance(value, int | float) else str(value)
