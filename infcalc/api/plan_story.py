"""From a naive deployment to the plan: the same load at each step, and what the step saves.

Naive is the reference machine in the checkpoint's precision, with static batches and room for the longest sequence
reserved for each request. Each step changes one thing; the last takes the GPUs, split and precisions of the plan.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.deployment import REFERENCE_GPU, REFERENCE_GPUS
from infcalc.api.offering import limit_of
from infcalc.api.plan_ask import HOURS_PER_MONTH
from infcalc.api.plan_demand import DemandKind
from infcalc.api.plan_nouns import StoryStep
from infcalc.api.sizing import deployment_budgets, fitting_room
from infcalc.engines.pace import Order
from infcalc.engines.rules import engine_name
from infcalc.engines.verdicts import cache_kind, kv_verdict
from infcalc.errors import InfcalcError
from infcalc.frozen import frozen
from infcalc.planning.nouns import Setup
from infcalc.planning.replicas import least_kept
from infcalc.spec.parallelism import Parallelism
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.plan_ask import PlanAsk
    from infcalc.api.plan_rig import Point, Rig
    from infcalc.api.plan_search import Field, Found

_MOST = 4096
_DRAFTER = "eagle3"


@frozen
class _Stage:
    """One step under way: the setup, how many replicas, and the fullest of them."""

    name: str
    rig: Rig
    number: int
    point: Point
    note: str


def story_of(field: Field, asked: PlanAsk, best: Found) -> tuple[tuple[StoryStep, ...], tuple[str, ...]]:
    """Return the steps, and notes on what they are sized by; no steps where the naive deployment cannot be."""
    if field.demand.kind is DemandKind.CAPACITY:
        return (), ("the way from a naive deployment needs a load: add --users or --rate",)
    setup = Setup(
        gpu=REFERENCE_GPU, ranks=Parallelism(tp=REFERENCE_GPUS), engine=engine_name("vllm"), weights=None, kv=None
    )
    bare = replace(field, demand=replace(field.demand, prefix_hit_fraction=0.0))
    try:
        rig = bare.rig(setup)
    except InfcalcError as problem:
        return (), (f"no naive deployment on {REFERENCE_GPUS} x {REFERENCE_GPU}: {problem.message}",)
    rent = field.rent(setup)
    if rig.missing_bytes or rent is None:
        return (), (f"{field.model_entry.model.name} does not fit on {REFERENCE_GPUS} x {REFERENCE_GPU}",)
    stages, notes = _stages(field, bare, asked, rig)
    if not stages:
        return (), notes
    steps: list[StoryStep] = []
    for stage in stages:
        steps.append(_step(steps, stage.name, setup, stage, rent.usd_per_hour))
    usd = 0.0 if best.usd_per_hour is None else best.usd_per_hour.value
    last = _Stage(
        name="right GPU, split and precision", rig=rig, number=best.num_replicas, point=best.point, note=_chosen(best)
    )
    steps.append(_step(steps, last.name, best.setup, last, usd / best.num_gpus))
    return tuple(steps), notes


def _stages(field: Field, bare: Field, asked: PlanAsk, rig: Rig) -> tuple[list[_Stage], tuple[str, ...]]:
    deployment = rig.deployment
    longest = limit_of(deployment)
    slots = fitting_room(deployment, rig.site.form, deployment_budgets(deployment), longest).sequences
    if slots < 1:
        return [], (f"without paging no request of {longest:,} tokens finds room",)
    through_s = _through_s(field, rig)
    held = f"{slots:,} slots of {longest:,} tokens"

    naive = rig.altered(room=float(slots), order=Order.STATIC)
    slow = _least(naive, lambda point: _ends_by(point, through_s))
    if slow is None:
        return [], ("a naive deployment of any size does not end answers as early as the limits ask",)
    stages = [_stage("naive: static batches, no paging", naive, slow, held)]
    in_turn = rig.altered(room=float(slots))
    stages.append(_kept_stage("continuous batching", in_turn, held, slow))
    stages.append(_kept_stage("paging", rig, f"room for {rig.room:,.0f} requests at their mean demand", slow))
    setup = rig.setup
    rules = deployment.rules
    narrow = "fp8"
    allowed = any(text.strip().lower() in {"fp8", "kv=fp8"} for text in asked.allow)
    verdict = kv_verdict(rules.engine, rules.version, deployment.gpu, narrow, cache=cache_kind(field.model_entry.model))
    if allowed and verdict.supported:
        setup = replace(setup, kv=narrow)
        now = bare.rig(setup)
        stages.append(_kept_stage("KV in fp8", now, f"room for {now.room:,.0f} requests", slow))
    else:
        why = "it is not allowed: --allow kv=fp8" if not allowed else verdict.text
        stages.append(replace(stages[-1], name="KV in fp8", note=why))
    hit = field.demand.prefix_hit_fraction
    now = field.rig(setup)
    note = f"{hit:.0%} of each prompt is found" if hit else "no hits are given: --prefix-hit 0.5"
    stages.append(
        _kept_stage("prefix cache", now, note, slow) if hit else replace(stages[-1], name="prefix cache", note=note)
    )
    stages.append(_drafted(field, now, stages[-1]))
    said = (
        f"the naive step is sized so that an answer ends within {format_seconds(through_s)} on average, as the limits "
        "ask; static batches keep no limit on first tokens. All other steps keep every limit, each with whole "
        "replicas: what saves less than one shows as 1.00 x, and as room for the next step"
    )
    return stages, (said,)


def _through_s(field: Field, rig: Rig) -> float:
    """Return by when a request is through if it just keeps all limits."""
    limits = {one.quantity: one.limit for one in field.demand.slo}
    tokens = max(0.0, rig.load.answer_tokens - 1)
    if "e2e_s" in limits:
        return limits["e2e_s"]
    if {"ttft_s", "tpot_s"} <= limits.keys():
        return limits["ttft_s"] + tokens * limits["tpot_s"]
    alone = rig.with_replicas(min(_MOST, field.most_useful()))
    e2e_s = alone.e2e_s.value if alone.e2e_s is not None else math.inf
    return 2 * e2e_s


def _ends_by(point: Point, limit_s: float) -> bool:
    return point.stable and point.e2e_s is not None and point.e2e_s.value <= limit_s


def _least(rig: Rig, kept: Callable[[Point], bool]) -> int | None:
    return least_kept(lambda number: kept(rig.with_replicas(number)), 1, _MOST)


def _stage(name: str, rig: Rig, number: int, note: str) -> _Stage:
    return _Stage(name=name, rig=rig, number=number, point=rig.with_replicas(number), note=note)


def _kept_stage(name: str, rig: Rig, note: str, otherwise: int) -> _Stage:
    number = _least(rig, lambda point: point.meets)
    if number is None:
        number, note = otherwise, f"{note}; no number of replicas keeps all limits"
    return _stage(name, rig, number, note)


def _drafted(field: Field, rig: Rig, before: _Stage) -> _Stage:
    """Return what drafting saves at the batch that the step before has; nothing where it does not pay there.

    The draft's weights and its KV of each request are in the ledger: they leave less room for requests.
    """
    from infcalc.api.drafting import DraftAsk, speculate  # noqa: PLC0415 - only for this step
    from infcalc.api.plan_rig import ask_of  # noqa: PLC0415

    name = "speculation"
    ask = ask_of(rig.setup, field.ask)

    def drafted(point: Point) -> tuple[float, int, float]:
        """Return the speedup at a step's batch, that batch, and the share of the room that is left beside the draft."""
        batch = max(1, round(point.batch))
        found = speculate(ask, DraftAsk(methods=(_DRAFTER,), batch=batch), contexts=(rig.load.total_tokens,)).result
        full = next((one for one in found.full_load if one.sequences_without), None)
        left = 0.0 if full is None else full.sequences_with / full.sequences_without
        return max((row.speedup for row in found.rows), default=1.0), batch, left

    try:
        factor, batch, left = drafted(before.point)
    except InfcalcError as problem:
        return replace(before, name=name, note=f"not priced: {problem.message}")
    if factor <= 1:
        return replace(before, name=name, note=f"{_DRAFTER} at batch {batch}: {factor:.2f} x, it does not pay")
    beside = rig.altered(room=rig.room * left)
    held = f"room for {beside.room:,.0f} requests beside its weights and KV"
    if beside.room < 1:
        return replace(before, name=name, note=f"{_DRAFTER}: no request finds room beside its weights and KV")

    def kept(number: int) -> bool:
        point = beside.with_replicas(number)
        quicker = max(1.0, drafted(point)[0])
        return point.stable and all(
            one.value_s is not None and (one.value_s / (quicker if one.quantity == "tpot_s" else 1.0)) <= one.limit_s
            for one in point.kept
        )

    number = next((one for one in range(1, before.number) if kept(one)), before.number)
    note = f"{_DRAFTER} at batch {batch}: {factor:.2f} x per token; {held}"
    return replace(before, name=name, rig=beside, number=number, point=beside.with_replicas(number), note=note)


def _chosen(best: Found) -> str:
    setup, ranks = best.setup, best.setup.ranks
    words = [f"TP {ranks.tp}" + (f" x PP {ranks.pp}" if ranks.pp > 1 else "")]
    words += [f"weights {setup.weights}" for _ in range(setup.weights is not None)]
    words += [f"KV {setup.kv}" for _ in range(setup.kv is not None)]
    return ", ".join(words)


def _step(before: list[StoryStep], name: str, setup: Setup, stage: _Stage, usd_per_gpu_hour: float) -> StoryStep:
    gpus = stage.number * setup.num_gpus
    usd = gpus * usd_per_gpu_hour * HOURS_PER_MONTH
    return StoryStep(
        step=name,
        gpu=setup.gpu,
        num_gpus=gpus,
        replicas=stage.number,
        slots_per_replica=stage.point.max_batch,
        requests_per_s_per_replica=stage.point.requests_per_s.value,
        usd_per_month=usd,
        saving_factor=before[-1].usd_per_month / usd if before else 1.0,
        total_factor=before[0].usd_per_month / usd if before else 1.0,
        note=stage.note,
    )
