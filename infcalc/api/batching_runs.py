"""One policy's run of the requests, and what is read off it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.batching_requests import TURN_PROMPT_TOKENS
from infcalc.api.replicas import Policy, Seating, scheduler_of
from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.oracle import run_step_by_step
from infcalc.simulation.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infcalc.api.offer import Figure
    from infcalc.simulation.batch_shape import Timer
    from infcalc.simulation.records import StepRecord
    from infcalc.simulation.request import Request

_MILLION = 1e6
_MEDIAN, _P99 = 0.5, 0.99


@frozen
class Stretch:
    """Steps one after another with the same use of the slots."""

    start_s: float
    end_s: float
    num_steps: int
    used_fraction: float
    """Of the slots: a name of its own, so that a gate on a policy's ``slot_utilization_fraction`` leaves it alone."""
    waits: bool
    """Whether requests wait meanwhile."""


@frozen
class PolicyResult:
    """One policy. Times are from the arrival of a request until its answer is returned, over those that finished.

    Under static batching an answer is returned with its batch. ``slot_utilization_fraction`` is the share of the slots
    with a request whose answer is not complete, as a mean over the steps while requests wait (None where none ever
    waited); ``slot_utilization_overall_fraction`` over all steps, the emptying end included. ``curve`` is that share
    over all steps, those that follow one another with the same share taken together.
    """

    policy: Policy
    latency_mean_s: float | None
    latency_mean_s_low: float | None = None
    latency_mean_s_high: float | None = None
    latency_p50_s: float | None
    latency_p50_s_low: float | None = None
    latency_p50_s_high: float | None = None
    latency_p99_s: float | None
    latency_p99_s_low: float | None = None
    latency_p99_s_high: float | None = None
    ttft_mean_s: float | None
    """Until the step that produced the first token ended."""
    makespan_s: float
    """From the first arrival, at 0, to the last end."""
    throughput_tokens_per_s: float
    """Answer tokens over the makespan."""
    throughput_tokens_per_s_low: float | None = None
    throughput_tokens_per_s_high: float | None = None
    throughput_factor: float | None = None
    """Times that of the first policy."""
    requests_per_s: float
    slot_utilization_fraction: float | None
    slot_utilization_overall_fraction: float
    num_steps: int
    num_preemptions: int
    num_rejected: int
    """Longer than the cache, or aborted for want of room."""
    usd_per_million_output_tokens: float | None
    usd_per_million_output_tokens_low: float | None = None
    usd_per_million_output_tokens_high: float | None = None
    curve: tuple[Stretch, ...]


@frozen
class Setting:
    """What all policies have in common."""

    seating: Seating
    requests: tuple[Request, ...]
    timer: Timer
    pace: Figure
    """1, with the band of a step's time around it."""
    usd_per_s: float | None = None
    """What the simulated lane costs; None without a price, and where seconds are steps."""
    usd_low_fraction: float = 1.0
    usd_high_fraction: float = 1.0

    @property
    def at_once(self) -> bool:
        """Whether all requests are there at the start."""
        return not any(request.arrival_ps for request in self.requests)

    @property
    def num_runs(self) -> int:
        """Simulations of each policy: where requests come one after another, one for each end of the band too."""
        return 1 if self.at_once or self.pace.low == self.pace.high else 3


def runs_of(
    policies: Sequence[Policy], setting: Setting, advance: Callable[[int], None] = lambda _: None
) -> tuple[PolicyResult, ...]:
    """Return the run of each policy, with its band and its throughput over that of the first.

    ``advance`` is told of every step, with the turns that were taken in it.
    """
    found: list[PolicyResult] = []
    for policy in policies:
        one = _with_bands(_measured(policy, setting, advance), setting, advance)
        first = found[0].throughput_tokens_per_s if found else one.throughput_tokens_per_s
        factor = one.throughput_tokens_per_s / first if first else None
        found.append(replace(one, throughput_factor=factor))
    return tuple(found)


def _measured(policy: Policy, setting: Setting, advance: Callable[[int], None], pace: float = 1.0) -> PolicyResult:
    """Return a run whose steps all take ``pace`` times as long."""
    timer, seating = setting.timer, setting.seating
    taken = timer if pace == 1 else lambda shape: round(pace * timer(shape))
    observed: list[StepRecord] = []

    def observe(step: StepRecord) -> None:
        observed.append(step)
        advance(step.shape.num_decodes + -(-step.shape.prefill_tokens // TURN_PROMPT_TOKENS))

    records = run_step_by_step(scheduler_of(policy, seating), setting.requests, taken, observe=observe)
    steps = [step for step in observed if step.shape.num_sequences]
    done = [record for record in records if record.outcome is Outcome.FINISHED]
    latencies = sorted((record.end_ps - record.arrival_ps) / PS_PER_S for record in done)
    firsts = [
        (record.first_token_ps - record.arrival_ps) / PS_PER_S for record in done if record.first_token_ps is not None
    ]
    makespan_s = max((record.end_ps for record in done), default=0) / PS_PER_S
    tokens_per_s = sum(record.output_tokens for record in done) / makespan_s if makespan_s else 0.0
    shares = [step.num_live / seating.max_num_seqs for step in steps]
    waiting = [share for share, step in zip(shares, steps, strict=True) if step.num_waiting]
    usd = setting.usd_per_s
    return PolicyResult(
        policy=policy,
        latency_mean_s=_mean(latencies),
        latency_p50_s=percentile(latencies, _MEDIAN),
        latency_p99_s=percentile(latencies, _P99),
        ttft_mean_s=_mean(firsts),
        makespan_s=makespan_s,
        throughput_tokens_per_s=tokens_per_s,
        requests_per_s=len(done) / makespan_s if makespan_s else 0.0,
        slot_utilization_fraction=_mean(waiting),
        slot_utilization_overall_fraction=_mean(shares) or 0.0,
        num_steps=len(steps),
        num_preemptions=sum(record.num_preemptions for record in records),
        num_rejected=len(records) - len(done),
        usd_per_million_output_tokens=usd / tokens_per_s * _MILLION if usd and tokens_per_s else None,
        curve=_curve(steps, seating.max_num_seqs),
    )


def _with_bands(one: PolicyResult, setting: Setting, advance: Callable[[int], None]) -> PolicyResult:
    """Return a policy's result with the ends of its band: all steps shorter, all longer."""
    low, high = (
        # Where all are there at the start, time is but a scale; else the schedule itself follows the pace.
        _scaled(one, pace) if setting.num_runs == 1 else _measured(one.policy, setting, advance, pace)
        for pace in (setting.pace.low, setting.pace.high)
    )
    usd_low, usd_high = low.usd_per_million_output_tokens, high.usd_per_million_output_tokens
    return replace(
        one,
        latency_mean_s_low=low.latency_mean_s,
        latency_mean_s_high=high.latency_mean_s,
        latency_p50_s_low=low.latency_p50_s,
        latency_p50_s_high=high.latency_p50_s,
        latency_p99_s_low=low.latency_p99_s,
        latency_p99_s_high=high.latency_p99_s,
        throughput_tokens_per_s_low=high.throughput_tokens_per_s,
        throughput_tokens_per_s_high=low.throughput_tokens_per_s,
        usd_per_million_output_tokens_low=None if usd_low is None else usd_low * setting.usd_low_fraction,
        usd_per_million_output_tokens_high=None if usd_high is None else usd_high * setting.usd_high_fraction,
    )


def _scaled(one: PolicyResult, pace: float) -> PolicyResult:
    def times(value: float | None) -> float | None:
        return None if value is None else value * pace

    return replace(
        one,
        latency_mean_s=times(one.latency_mean_s),
        latency_p50_s=times(one.latency_p50_s),
        latency_p99_s=times(one.latency_p99_s),
        throughput_tokens_per_s=one.throughput_tokens_per_s / pace,
        usd_per_million_output_tokens=times(one.usd_per_million_output_tokens),
    )


def _curve(steps: Sequence[StepRecord], num_slots: int) -> tuple[Stretch, ...]:
    found: list[Stretch] = []
    begun: list[StepRecord] = []
    for step, following in zip(steps, (*steps[1:], None), strict=True):
        begun.append(step)
        end_ps = step.start_ps + step.duration_ps
        if following is None or (end_ps, step.num_live, not step.num_waiting) != (
            following.start_ps,
            following.num_live,
            not following.num_waiting,
        ):
            found.append(
                Stretch(
                    start_s=begun[0].start_ps / PS_PER_S,
                    end_s=end_ps / PS_PER_S,
                    num_steps=len(begun),
                    used_fraction=step.num_live / num_slots,
                    waits=bool(step.num_waiting),
                )
            )
            begun = []
    return tuple(found)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which ``share`` of the ``ordered`` ones lie, between two of them on the line through both.

    Source: the default of ``numpy.percentile``, which benchmark tools report.

    >>> percentile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
