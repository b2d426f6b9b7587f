"""What a simulation answers: one run, several side by side, or a curve over loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.disaggregation_nouns import Disaggregation
    from infcalc.api.objectives import Outcome
    from infcalc.api.replicas import Policy
    from infcalc.api.scaling_nouns import Scaling
    from infcalc.api.sweeping import Variable
    from infcalc.simulation.routing import RouterKind
    from infcalc.simulation.summary import TimeSummary


@frozen
class Use:
    """A share: its mean over the time of the run, and its greatest."""

    mean: float
    max: float


@frozen
class Moment:
    """A stretch of the run, of equal length each: means over its time, and tokens of answers that came in it."""

    start_s: float
    end_s: float
    kv_usage_fraction: float
    slot_utilization_fraction: float
    num_waiting: float
    output_tokens_per_s: float
    num_replicas: float | None = None
    """That take requests, where they come and go."""


@frozen
class RunResult:
    """One run. Times are of the requests that got their whole answer; None where none did.

    ``ttft_s`` and ``e2e_s`` begin when a request is sent and have the front end in them, ``queue_s`` is from the
    scheduler's taking it in until its first step begins, ``tpot_s`` of one request is the time from its first token to
    its last over the tokens after the first, and ``itl_s`` is each wait for a token by itself. ``goodput_fraction`` is
    the share of all requests that got their answer within the limits of ``--slo``; without limits, that got it.
    ``kv_usage_fraction`` and ``slot_utilization_fraction`` are what running requests hold, over the time of the run.
    ``prefix_hit_rate_fraction`` is the share of prompt tokens that the cache held when a request was first admitted.
    """

    policy: Policy | None = None
    requests: int = 0
    completed: int = 0
    rejected: int = 0
    """Longer than what engine or cache admit."""
    aborted: int = 0
    unfinished: int = 0
    """Under way, or not sent yet, when the run was broken off."""
    partial: bool = False
    duration_s: float = 0.0
    """From the first request sent to the last answer."""
    ttft_s: TimeSummary | None = None
    tpot_s: TimeSummary | None = None
    itl_s: TimeSummary | None = None
    e2e_s: TimeSummary | None = None
    queue_s: TimeSummary | None = None
    requests_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    total_tokens_per_s: float = 0.0
    loaded_output_tokens_per_s: float | None = None
    """From the first request sent to the last, while there is more to come; None where most of the run is later."""
    output_tokens_per_s_per_user: float | None = None
    """1 / mean TPOT: what one user sees while an answer streams."""
    goodput_fraction: float = 0.0
    goodput_requests_per_s: float = 0.0
    preemptions: int = 0
    kv_usage_fraction: Use | None = None
    slot_utilization_fraction: float = 0.0
    prefix_hit_rate_fraction: float = 0.0
    steps: int = 0
    usd_per_million_output_tokens: float | None = None
    over_time: tuple[Moment, ...] = ()
    method: str | None = None
    """How answers are drafted; None: a token at a time."""
    num_draft_tokens: int | None = None
    rounds: int = 0
    """Of drafting: one for each request in each step that it decodes in."""
    tokens_per_round: float | None = None
    """As engines count them: 1 + accepted drafts / rounds; one that the end of an answer cuts short counts whole."""
    acceptance: float | None = None
    """The uniform acceptance that yields as many."""
    speedup: float | None = None
    """Time per token (mean TPOT) without drafting over that with it, of the same requests."""
    speedup_e2e: float | None = None
    """The same of whole requests (mean end-to-end time), queue included."""
    speedup_throughput: float | None = None
    """Tokens per second with drafting over those without."""
    disaggregation: Disaggregation | None = None
    """Where prefill and decode are in pools of their own."""
    scaling: Scaling | None = None
    """Where replicas come and go."""


@frozen
class LoadPoint(RunResult):
    """The run at one value of what is swept."""

    value: float
    slo: tuple[Outcome, ...] = ()


@frozen
class LoadCurve:
    """Runs of one load at several intensities.

    ``knee`` is the value with the most throughput per latency, ``highest_within_slo`` the greatest up to which all
    objectives are met; None where there is none.
    """

    variable: Variable
    points: tuple[LoadPoint, ...]
    knee: float | None
    knee_text: str
    highest_within_slo: float | None
    drafting_pays_up_to: float | None = None
    """Greatest value up to which whole requests take no longer with drafting; None: none, or nothing is drafted."""


@frozen
class SimulationResult(RunResult):
    """A load on one deployment: the run of the first policy, and of the others in ``compare``.

    With a sweep it is the run at its knee, else at its first value. ``step_time_low_fraction`` and
    ``step_time_high_fraction`` are the band of a step's time around what is computed with.
    """

    model: str
    gpu: str
    num_gpus: int
    """Of one replica."""
    num_replicas: int
    num_lanes: int
    """Parts of all replicas that take steps on their own."""
    router: RouterKind
    engine: str
    engine_version: str
    kv_dtype: str
    fits: bool
    missing_bytes: int
    cache_tokens: int
    """Of one lane."""
    max_num_seqs: int
    """Of one lane."""
    usd_per_month: float | None = None
    """Of all replicas, all hours paid; of those that come and go, the GPU-hours that a month of such runs pays."""
    usd_per_month_low: float | None = None
    usd_per_month_high: float | None = None
    step_time_low_fraction: float | None = None
    step_time_high_fraction: float | None = None
    slo: tuple[Outcome, ...] = ()
    compare: tuple[RunResult, ...] = ()
    sweep: LoadCurve | None = None
    not_run: tuple[str, ...] = ()
    """Policies or values whose runs are missing: broken off before they were made."""
