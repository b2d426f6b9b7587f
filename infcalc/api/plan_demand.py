"""What is to be served, as every setup is asked for it: users, a rate, or as much as it can take."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.api.objectives import parse_slo
from infcalc.api.offer import Offer
from infcalc.api.offering import read_lengths
from infcalc.api.plan_ask import DEFAULT_SLO, DEFAULT_USERS, goal_of
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.planning.nouns import Goal
from infcalc.spec.explain import Input
from infcalc.workload.lengths import Empirical, described

if TYPE_CHECKING:
    from infcalc.api.objectives import Objective
    from infcalc.api.plan_ask import PlanAsk

_MOST_VALUES = 512
"""Of the lengths of a trace, those that stand for all."""


class DemandKind(StrEnum):
    """How the load is stated."""

    USERS = "users"
    """So many, each of whom waits for an answer before the next request."""
    RATE = "rate"
    """Requests per second that come at random."""
    CAPACITY = "capacity"
    """None: as many clients as the objectives admit."""


@frozen
class Demand:
    """A load with its objectives. Of ``num_users`` and ``requests_per_s`` the one of its kind is set."""

    kind: DemandKind
    num_users: int = 0
    requests_per_s: float = 0.0
    think_time_s: float = 0.0
    input_tokens: str | None = None
    output_tokens: str | None = None
    prefix_hit_fraction: float = 0.0
    slo: tuple[Objective, ...] = ()
    headroom_fraction: float = 0.0
    file: str | None = None
    """A trace that the lengths are of."""
    as_traced: bool = False
    """Requests come when those of the trace did."""

    @property
    def planned_users(self) -> int:
        """Users with the headroom."""
        return math.ceil(self.num_users * (1 + self.headroom_fraction) - _NOTHING)

    @property
    def planned_per_s(self) -> float:
        """Requests per second with the headroom."""
        return self.requests_per_s * (1 + self.headroom_fraction)

    @property
    def lengths(self) -> Offer:
        """The requests, without how many there are."""
        return Offer(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            prefix_hit_fraction=self.prefix_hit_fraction,
        )


_NOTHING = 1e-9


def demand_of(asked: PlanAsk) -> tuple[Demand, tuple[Input, ...], tuple[str, ...]]:
    """Return the load with its defaults, what was given or assumed for it, and notes.

    Raises:
        UsageError, FileProblem, TraceError: a length or a trace that is none.

    """
    inputs: list[Input] = []
    notes: list[str] = []
    texts, rate = (asked.input_tokens, asked.output_tokens), asked.requests_per_s
    hit_fraction = asked.prefix_hit_fraction or 0.0
    if asked.file is not None:
        texts, traced_per_s, shared_fraction, notes = _from_trace(asked)
        if shared_fraction and asked.prefix_hit_fraction is None:
            hit_fraction = shared_fraction
            inputs.append(Input(name="prefix_hit_fraction", value=round(hit_fraction, 4), origin="of the trace"))
            notes.append(
                f"prompts of the file share {hit_fraction:.0%} of their tokens: a prefix cache without end finds them, "
                "and so the closed form has it; --prefix-hit says otherwise"
            )
        if rate is None and asked.num_users is None:
            rate = traced_per_s
    for text, option in zip(texts, ("--input-tokens", "--output-tokens"), strict=True):
        read_lengths(text, option)
    slo, origin = asked.slo, "given (--slo)"
    if not slo:
        slo, origin = parse_slo(tuple(DEFAULT_SLO.split(","))), "assumed"
        notes.append(f"no --slo is given: {DEFAULT_SLO} is assumed")
    inputs.append(Input(name="slo", value=slo_text(slo), origin=origin))
    traced = rate is not None and asked.file is not None and asked.requests_per_s is None
    found = Demand(
        kind=DemandKind.CAPACITY,
        input_tokens=texts[0],
        output_tokens=texts[1],
        prefix_hit_fraction=hit_fraction,
        slo=slo,
        headroom_fraction=asked.headroom_fraction,
        file=asked.file,
        as_traced=traced,
    )
    if rate is not None:
        found = replace(found, kind=DemandKind.RATE, requests_per_s=rate)
        inputs.append(Input(name="rate_per_s", value=rate, origin="of the trace" if traced else "given"))
    elif asked.num_users is None and not asked.think_time_s and goal_of(asked) in {Goal.THROUGHPUT, Goal.GOODPUT}:
        inputs.append(Input(name="load", value="as many clients as the objectives admit", origin="default"))
    else:
        users = DEFAULT_USERS if asked.num_users is None else asked.num_users
        found = replace(found, kind=DemandKind.USERS, num_users=users, think_time_s=asked.think_time_s)
        origin = "reference scenario" if asked.num_users is None else "given"
        inputs.append(Input(name="users", value=users, origin=origin))
        if asked.think_time_s:
            inputs.append(Input(name="think_time_s", value=asked.think_time_s, origin="given"))
    return found, tuple(inputs), tuple(notes)


def slo_text(slo: tuple[Objective, ...]) -> str:
    """Return objectives as they are written."""
    return ",".join(
        f"{name_of(one)}={one.limit * 1000:g}ms" if one.limit < 1 else f"{name_of(one)}={one.limit:g}s" for one in slo
    )


def name_of(objective: Objective) -> str:
    """Return an objective's quantity and statistic: ``ttft-p95``; of a mean the quantity alone."""
    name = objective.quantity.removesuffix("_s")
    return name if objective.statistic == "mean" else f"{name}-{objective.statistic}"


def _from_trace(asked: PlanAsk) -> tuple[tuple[str, str], float | None, float, list[str]]:
    """Return lengths and rate of the requests of a file, and which part of their prompts they share."""
    from infcalc.api.workload_ask import WorkloadAsk  # noqa: PLC0415 - numpy, only for traces
    from infcalc.api.workloads import traced_of  # noqa: PLC0415
    from infcalc.workload.description import shares  # noqa: PLC0415

    if asked.input_tokens is not None or asked.output_tokens is not None:
        raise UsageError("the file says the lengths", place="--input-tokens", hint="leave out the option, or the file")
    traced = traced_of(WorkloadAsk(file=asked.file, seed=asked.seed))
    trace = traced.trace
    span_s = float(trace.arrivals_s[-1] - trace.arrivals_s[0]) if len(trace) > 1 else 0.0
    texts = []
    for column in (trace.input_tokens, trace.output_tokens):
        ordered = sorted(float(value) for value in column)
        step = max(1, len(ordered) // _MOST_VALUES)
        texts.append(described(Empirical(values_tokens=tuple(max(1.0, value) for value in ordered[step // 2 :: step]))))
    rate = (len(trace) - 1) / span_s if span_s > 0 else None
    notes = [
        f"lengths are those of {len(trace):,} requests of the file"
        + ("" if rate is None else f", which come at {rate:.3g} per s on average")
        + "; prompts and answers are taken as independent of one another in closed form",
        *traced.assumptions,
    ]
    return (texts[0], texts[1]), rate, shares(trace).tokens_fraction, notes
