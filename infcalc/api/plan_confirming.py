"""The best plans under their load, request by request: percentiles of the simulator instead of a law around means."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from infcalc.api.plan_demand import DemandKind, name_of
from infcalc.api.plan_drafting import draft_of
from infcalc.api.plan_nouns import Confirmation, Simulated
from infcalc.api.replicas import Policy, drafts_simulated
from infcalc.api.simulation_ask import SimulationAsk, policies_for
from infcalc.api.simulation_results import RequestTimes
from infcalc.api.simulation_site import place_of
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.api.workloads import traced_of
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.summary import percentile_s
from infcalc.units import format_seconds
from infcalc.workload.arrival_times import arrival_times_s
from infcalc.workload.arrivals import Gaps, OpenLoop, Steady
from infcalc.workload.drawing import drawn_tokens
from infcalc.workload.generation import faster, first_requests
from infcalc.workload.trace import NONE, PrefixTree, Sharing, Trace, Turns

if TYPE_CHECKING:
    from infcalc.api.plan_demand import Demand
    from infcalc.api.plan_rig import Rig
    from infcalc.api.plan_search import Field, Found
    from infcalc.workload.trace import Ints

REQUESTS = 2000
"""Counted in a confirmation."""
_STEPPED_REQUESTS = 200
"""The same where every step is computed: by schedulers not known in aggregate."""
_WARM_TURNS = 1
_LEAST_TURNS = 3
_WARM_SHARE = 0.1
_WARM_TIMES = 2.0
"""Times of a request, after which a server at a rate is as full as it gets."""
_GRAIN_TOKENS = 64
_MEAN = "mean"
_FEW_REFUSED = 0.01
"""Of the requests, longer than the model admits, that a plan may refuse: the end of a law's tail, on any hardware."""


def confirm(field: Field, item: tuple[Found, int]) -> Confirmation:
    """Return how a plan fares under its load with its headroom, spare replicas away; ``item`` has the seed."""
    found, seed = item
    rig = field.rig(found.setup)
    policy = _policy(rig)
    stepped = policy is not Policy.VLLM
    counted_requests = _STEPPED_REQUESTS if stepped else REQUESTS
    demand, num_replicas = field.demand, found.num_needed
    if num_replicas > 1 and not demand.as_traced and (stepped or _at_once(demand, found) > REQUESTS):
        # Replicas are alike: the fullest stands for all where all of them would take long, or not fill up.
        demand, num_replicas = _of_one(demand, found, rig), 1
    trace, num_warm, num_counted = trace_of(demand, found, rig, np.random.default_rng(seed), counted_requests)
    asked = SimulationAsk(
        load=WorkloadAsk(seed=seed),
        num_replicas=num_replicas,
        slo=demand.slo,
        draft=draft_of(found.setup, field.draft),
    )
    place = place_of(rig.site, asked, field.terms, trace)
    if place.machinery is None:
        return _nothing(num_warm, "the simulated server has no room for one request")
    ran = place.run_whole(policy, trace, None, alone=True)
    times = RequestTimes(ran.gathered, ran.setting)
    done = ran.gathered.finished
    places = ran.load.asked[done.indices]
    counted = (places >= num_warm) & (places < num_warm + num_counted)
    if not bool(counted.any()):
        return _nothing(num_warm, "no simulated request got its whole answer")
    mine = {name: times[name][counted] for name in ("ttft_s", "tpot_s", "e2e_s", "queue_s")}
    mine["tpot_s"] = mine["tpot_s"][done.output_tokens[counted] > 1]
    pace_s = float(mine["tpot_s"].mean()) / PS_PER_S if len(mine["tpot_s"]) else 0.0
    ahead_s = pace_s * _steps_ahead(rig, found)
    later = {"ttft_s": round(ahead_s * PS_PER_S), "e2e_s": round(ahead_s * PS_PER_S)}
    for name, late_ps in later.items():
        mine[name] += late_ps
    slo = []
    good = np.ones(int(counted.sum()), dtype=np.bool_)
    for one in demand.slo:
        column = mine[one.quantity]
        value = None
        if len(column):
            mean = one.statistic == _MEAN
            value = (
                float(column.mean()) / PS_PER_S
                if mean
                else percentile_s(column, float(one.statistic.removeprefix("p")))
            )
        met = value is None or value <= one.limit
        slo.append(Simulated(name=name_of(one), limit_s=one.limit, value_s=value, met=met))
        good &= times[one.quantity][counted] + later.get(one.quantity, 0) <= round(one.limit * PS_PER_S)
    lost = len(ran.gathered.reasons) + ran.gathered.num_aborted
    refused = len(ran.load.refused_tokens)
    if refused > _FEW_REFUSED * len(trace):
        lost += refused
    kept = all(one.met for one in slo)
    return Confirmation(
        confirmed=kept and not lost,
        requests=int(counted.sum()),
        num_warm=num_warm,
        slo=tuple(slo),
        ttft_p95_s=percentile_s(mine["ttft_s"], 95),
        tpot_p95_s=percentile_s(mine["tpot_s"], 95) if len(mine["tpot_s"]) else 0.0,
        e2e_p95_s=percentile_s(mine["e2e_s"], 95),
        output_tokens_per_s=ran.result.output_tokens_per_s * found.num_needed / num_replicas,
        goodput_fraction=float(good.mean()),
        preemptions=ran.result.preemptions,
        scheduled_ahead_s=ahead_s,
        num_lost=lost,
        num_refused=refused,
        every_step=stepped,
        text=_text(slo, lost),
    )


def _steps_ahead(rig: Rig, found: Found) -> float:
    """Return for how many steps a first token waits that an engine has scheduled before the request came.

    The simulated schedulers plan each step when the one before has ended. An engine that schedules ahead
    (:class:`infcalc.engines.pace.Pace`) lets who comes join as many steps later as it is ahead, where anybody decodes:
    how likely that is follows from how many decode on average, each at a moment of its own. As the closed form has it.
    """
    return rig.machine.pace.value.num_steps_ahead * -math.expm1(-found.point.batch)


def _policy(rig: Rig) -> Policy:
    return policies_for(SimulationAsk(), rig.deployment.rules.engine)[0]


def unsimulated(found: Found) -> str:
    """Return why a plan cannot be simulated; empty where it can."""
    if found.setup.method is None:
        return ""
    policy = policies_for(SimulationAsk(), found.setup.engine)[0]
    return "" if drafts_simulated(policy) else f"drafting by the scheduler of {policy} is not simulated"


def _nothing(num_warm: int, text: str) -> Confirmation:
    return Confirmation(
        confirmed=False,
        requests=0,
        num_warm=num_warm,
        slo=(),
        ttft_p95_s=0.0,
        tpot_p95_s=0.0,
        e2e_p95_s=0.0,
        output_tokens_per_s=0.0,
        goodput_fraction=0.0,
        preemptions=0,
        scheduled_ahead_s=0.0,
        num_lost=0,
        text=text,
    )


def _text(slo: list[Simulated], lost: int) -> str:
    missed = [one for one in slo if not one.met and one.value_s is not None]
    if lost:
        return f"{lost:,} simulated requests got no answer: longer than what the server admits"
    if missed:
        told = ", ".join(
            f"{one.name} {format_seconds(one.value_s or 0)} (limit {format_seconds(one.limit_s)})" for one in missed
        )
        return f"not confirmed: simulated {told}"
    told = ", ".join(f"{one.name} {format_seconds(one.value_s)}" for one in slo if one.value_s is not None)
    return f"confirmed: simulated {told}"


def _at_once(demand: Demand, found: Found) -> float:
    """Return how many users or requests there are at once."""
    if demand.kind is DemandKind.RATE:
        return demand.planned_per_s * found.delay_s
    return demand.planned_users if demand.kind is DemandKind.USERS else found.share * found.num_needed


def _of_one(demand: Demand, found: Found, rig: Rig) -> Demand:
    """Return what the fullest replica has of a load, its headroom included."""
    if demand.kind is DemandKind.CAPACITY:
        return replace(demand, kind=DemandKind.USERS, num_users=round(found.share), headroom_fraction=0.0)
    share = rig.share(found.num_needed)
    one = {"num_users": round(share)} if demand.kind is DemandKind.USERS else {"requests_per_s": share}
    return replace(demand, headroom_fraction=0.0, **one)


def trace_of(
    demand: Demand, found: Found, rig: Rig, rng: np.random.Generator, num_counted: int
) -> tuple[Trace, int, int]:
    """Return requests of the load, how many of the first are not counted, and how many after them are.

    Users send the first request at a moment of their turn that is equally likely, and the next when they have the
    answer and have thought: else all would be in step for ever. Their first turn is not counted. At a rate as many
    requests fill the server as are under way in twice the time of one, a tenth at least; and so that the last which
    are counted do not find it emptying, as many follow as are under way at once.
    """
    load = rig.load
    if demand.as_traced and demand.file is not None:
        trace = first_requests(
            traced_of(WorkloadAsk(file=demand.file)).trace, num_counted + round(num_counted * _WARM_SHARE)
        )
        num_warm = min(round(num_counted * _WARM_SHARE), len(trace) // 2)
        return faster(trace, 1 + demand.headroom_fraction), num_warm, len(trace) - num_warm
    if demand.kind is DemandKind.RATE:
        under_way = _at_once(demand, found)
        num_warm = max(round(num_counted * _WARM_SHARE), math.ceil(_WARM_TIMES * under_way))
        number = num_warm + num_counted + math.floor(under_way)
    else:
        users = demand.planned_users if demand.kind is DemandKind.USERS else round(found.share) * found.num_needed
        num_warm = _WARM_TURNS * users
        number = max(num_warm + num_counted, _LEAST_TURNS * users)
        num_counted = number - num_warm
    if demand.file is None:
        prompts, answers = drawn_tokens(load.inputs, number, rng), drawn_tokens(load.outputs, number, rng)
    else:
        # As pairs: long prompts may have long answers.
        traced = traced_of(WorkloadAsk(file=demand.file)).trace
        prompts, answers = np.resize(traced.input_tokens, number), np.resize(traced.output_tokens, number)
    turns = None
    if demand.kind is DemandKind.RATE:
        steady = OpenLoop(profile=Steady(rate_per_s=demand.planned_per_s), gaps=Gaps(cv=1.0))
        times = arrival_times_s(steady, number, rng)
    else:
        turn_s = found.delay_s + demand.think_time_s
        times = np.zeros(number)
        times[:users] = np.sort(rng.uniform(0.0, turn_s, users))
        # Those who follow have no time of their own, and stand after those who have.
        times[users:] = times[users - 1]
        follows = np.arange(number) - users
        follows[:users] = NONE
        pauses = np.where(follows == NONE, 0.0, demand.think_time_s)
        turns = Turns(follows=follows, pauses_s=pauses)
    return (
        Trace(
            arrivals_s=times,
            input_tokens=prompts,
            output_tokens=answers,
            sharing=_shared(prompts, demand.prefix_hit_fraction),
            turns=turns,
        ),
        num_warm,
        num_counted,
    )


def _shared(prompts: Ints, fraction: float) -> Sharing | None:
    """Return that each prompt begins with the same text, as far as ``fraction`` of it: what the cache then finds."""
    depth = np.floor(prompts * fraction / _GRAIN_TOKENS).astype(np.int64)
    most = int(depth.max(initial=0))
    if not most:
        return None
    tree = PrefixTree(parent_ids=np.arange(most) - 1, node_tokens=np.full(most, _GRAIN_TOKENS, dtype=np.int64))
    return Sharing(tree=tree, prompt_ids=depth - 1, kept_ids=depth - 1)
