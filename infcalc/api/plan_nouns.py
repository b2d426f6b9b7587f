"""What a planner answers: plans with their bands, what was rejected and why, and how the best were confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.offer import Figure
    from infcalc.api.plan_demand import DemandKind
    from infcalc.api.plan_rig import Kept
    from infcalc.planning.nouns import Goal, Miss


@frozen
class Simulated:
    """An objective as a simulation of the plan has it."""

    name: str
    limit_s: float
    value_s: float | None
    met: bool


@frozen
class Trial:
    """A number of replicas, those that are spare among them, and whether the simulator confirmed it."""

    replicas: int
    confirmed: bool


@frozen
class Confirmation:
    """A plan under its load, request by request: percentiles, where the closed form has means and a law around them.

    ``requests`` are those counted, after ``num_warm`` that came while it filled. ``trials`` are all numbers of replicas
    that were simulated, this one among them: more are taken to be confirmed where fewer are.
    """

    confirmed: bool
    requests: int
    num_warm: int
    slo: tuple[Simulated, ...]
    ttft_p95_s: float
    tpot_p95_s: float
    e2e_p95_s: float
    output_tokens_per_s: float
    goodput_fraction: float
    preemptions: int
    scheduled_ahead_s: float
    """Part of each first token: the step that the engine has scheduled when a request comes, which is not simulated."""
    text: str
    num_lost: int = 0
    """Requests that this plan has no room for, or more of ``num_refused`` than the end of a tail: never confirmed."""
    num_refused: int = 0
    """Requests longer than the model admits, whatever serves it."""
    trials: tuple[Trial, ...] = ()
    every_step: bool = False
    """Every step was computed, of fewer requests: by schedulers not known in aggregate."""


@frozen
class Plan:
    """What to rent: ``replicas`` of ``gpus_per_replica`` GPUs, and what comes of it.

    Times are means over the requests of the fullest replica; ``slo`` has each objective at the planned load, headroom
    included and spare replicas away. ``slo_probability_fraction`` is how likely all are kept
    (:mod:`infcalc.api.plan_odds`); ``safe_replicas`` is the least number that keeps them over the whole bands, None
    where no number does. Cost is None where no price is known.
    """

    gpu: str
    gpus_per_replica: int
    replicas: int
    spare_replicas: int
    """Of the replicas, those that may fail."""
    total_gpus: int
    tp: int
    pp: int
    dp: int
    ep: int
    weights: str
    kv_dtype: str
    engine: str
    engine_version: str
    method: str | None
    """Way of drafting; None: none."""
    draft_model: str | None
    num_draft_tokens: int
    max_model_len: int
    share_per_replica: float
    """Clients, or requests per second, of the fullest replica."""
    batch: float
    max_batch: float
    ttft_s: Figure | None
    tpot_s: Figure | None
    e2e_s: Figure | None
    output_tokens_per_s: Figure
    requests_per_s: Figure
    usd_per_hour: Figure | None
    usd_per_month: Figure | None
    usd_per_million_output_tokens: Figure | None
    kwh_per_million_output_tokens: Figure | None
    """Of the boards of all GPUs, spare replicas idle; None where it is not known what one draws."""
    price_source: str
    slo: tuple[Kept, ...]
    slo_probability_fraction: float
    safe_replicas: int | None
    safe_gpus: int | None
    binding_constraint: str
    certainty: str
    """The band's meaning for the decision, in a sentence."""
    launch_command: str
    only_optimistic: bool = False
    """Limits are kept by the values, and less likely than not: only at the good end of the bands."""
    confirmation: Confirmation | None = None
    on_front: bool = False


@frozen
class Rejected:
    """A setup that is no plan: why, by which part of the limit it missed, and the nearest change."""

    gpu: str
    gpus_per_replica: int
    replicas: int | None
    tp: int
    pp: int
    dp: int
    ep: int
    weights: str
    kv_dtype: str
    engine: str
    method: str | None
    num_draft_tokens: int
    kind: Miss
    reason: str
    quantity: str
    limit: float | None
    value: float | None
    miss_fraction: float | None
    only_optimistic: bool
    nearest_change: str
    change_suffices: bool
    """In closed form it passes with the change alone; else that is a first step, and other limits may follow."""


@frozen
class RejectedGroup:
    """All that was rejected for one kind of reason, with the nearest miss among it."""

    kind: Miss
    count: int
    nearest: Rejected


@frozen
class FrontPoint:
    """A plan that no other beats in cost and in the time of a request."""

    gpu: str
    replicas: int
    total_gpus: int
    tp: int
    pp: int
    weights: str
    kv_dtype: str
    engine: str
    method: str | None
    num_draft_tokens: int
    usd_per_hour: float
    usd_per_month: float
    e2e_s: float
    ttft_s: float
    tpot_s: float | None
    output_tokens_per_s: float


@frozen
class Alternative:
    """Another form than replicas alike: pools of two kinds, judged against the best plain plan at equal cost."""

    kind: str
    """``mixed`` or ``disaggregated``."""
    text: str
    total_gpus: int
    usd_per_hour: float
    usd_per_month: float
    plain_usd_per_hour: float
    """Of the best plain plan for the same load."""
    gain_factor: float
    """Load per USD over that of the best plain plan: above 1 it pays."""
    pays: bool
    ttft_s: float | None = None
    tpot_s: float | None = None
    kv_transfer_s: float | None = None
    slo_probability_fraction: float | None = None
    """How likely all limits are kept: the least sure of the two pools, as of a plan."""
    why: str = ""


@frozen
class OptionWorth:
    """What an option of the engine is worth for the load, in closed form: the best plan with it and the best without.

    ``prefix-cache`` compares the best plan's own setup, ``speculation`` all setups. Costs are None where no number of
    replicas keeps all limits, or no price is known.
    """

    option: str
    on: str
    """The setup with it."""
    off: str
    num_on_replicas: int | None
    num_off_replicas: int | None
    on_usd_per_month: float | None
    off_usd_per_month: float | None
    saved_fraction: float | None
    """Of the cost without it; below 0 where it costs more."""
    on_ttft_s: float | None
    off_ttft_s: float | None
    on_tpot_s: float | None
    off_tpot_s: float | None
    pays: bool
    num_requests_paying: int | None
    """Requests at once on a replica of its setup, up to which one ends sooner with it; None: not asked, 0: never."""
    text: str


@frozen
class StoryStep:
    """One change on the way from a naive deployment to the plan, and what the same load costs after it."""

    step: str
    gpu: str
    num_gpus: int
    replicas: int
    slots_per_replica: float
    requests_per_s_per_replica: float
    usd_per_month: float
    saving_factor: float
    """Over the step before."""
    total_factor: float
    """Over the naive deployment."""
    note: str


@frozen
class PlanResult:
    """Plans for one model, the best first, and all that was rejected.

    ``num_candidates`` are setups times the numbers of replicas that each of them stands for; all are weighed.
    """

    model: str
    objective: Goal
    load: DemandKind
    users: int | None
    rate_per_s: float | None
    input_tokens: float
    output_tokens: float
    feasible: bool
    plans: tuple[Plan, ...]
    front: tuple[FrontPoint, ...]
    alternatives: tuple[Alternative, ...]
    rejected_groups: tuple[RejectedGroup, ...]
    rejected: tuple[Rejected, ...]
    num_setups: int
    num_candidates: int
    num_feasible: int
    num_simulated: int
    text: str
    """The answer in a sentence."""
    story: tuple[StoryStep, ...] = ()
    options: tuple[OptionWorth, ...] = ()
