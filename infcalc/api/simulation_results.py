"""What is read off a run: percentiles, goodput, use of cache and slots, and how they went over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from infcalc.api.objectives import Outcome
from infcalc.api.replicas import Policy
from infcalc.api.simulation_nouns import Moment, RunResult, Use
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.gathered import summed_until
from infcalc.simulation.summary import interval_summary, percentile_s, summary_of
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.objectives import Objective
    from infcalc.api.simulation_load import Load
    from infcalc.api.simulation_runs import Setting
    from infcalc.simulation.gathered import Gathered
    from infcalc.simulation.summary import Floats, Ints

_STRETCHES = 60
_MILLION = 1e6
_MEAN = "mean"


def result_of(
    gathered: Gathered, load: Load, setting: Setting, *, slo: tuple[Objective, ...], usd_per_s: float | None
) -> RunResult:
    """Return what is read off a run; ``usd_per_s`` is what all its replicas cost."""
    done, times = gathered.finished, RequestTimes(gathered, setting)
    sent = gathered.sent_ps[gathered.sent_ps >= 0]
    start_ps = int(sent.min()) if len(sent) else 0
    end_ps = _end_ps(gathered, setting)
    lasted_s = max(0, end_ps - start_ps) / PS_PER_S
    tokens, prompts = int(done.output_tokens.sum()), int(done.prompt_tokens.sum())
    tokens_per_s = tokens / lasted_s if lasted_s else 0.0
    rejected = len(gathered.reasons) + len(load.refused_tokens)
    good = int(_within(times, slo).sum())
    tpot = summary_of(times.samples("tpot_s"))
    return RunResult(
        policy=setting.policy,
        requests=load.num_requests,
        completed=len(done),
        rejected=rejected,
        aborted=gathered.num_aborted,
        unfinished=load.num_requests - len(done) - rejected - gathered.num_aborted if gathered.partial else 0,
        partial=gathered.partial,
        duration_s=lasted_s,
        ttft_s=summary_of(times["ttft_s"]),
        tpot_s=tpot,
        itl_s=interval_summary(gathered.interval_runs),
        e2e_s=summary_of(times["e2e_s"]),
        queue_s=summary_of(times["queue_s"]),
        requests_per_s=len(done) / lasted_s if lasted_s else 0.0,
        output_tokens_per_s=tokens_per_s,
        total_tokens_per_s=(tokens + prompts) / lasted_s if lasted_s else 0.0,
        loaded_output_tokens_per_s=_loaded_tokens_per_s(gathered, start_ps, end_ps),
        output_tokens_per_s_per_user=1 / tpot.mean if tpot is not None and tpot.mean else None,
        goodput_fraction=good / load.num_requests,
        goodput_requests_per_s=good / lasted_s if lasted_s else 0.0,
        preemptions=sum(one.num_preemptions for one in gathered.replicas),
        kv_usage_fraction=_kv_usage(gathered, end_ps - start_ps),
        slot_utilization_fraction=_slots(gathered, setting, end_ps - start_ps),
        prefix_hit_rate_fraction=int(done.hit_tokens.sum()) / prompts if prompts else 0.0,
        steps=sum(one.num_steps for one in gathered.replicas),
        usd_per_million_output_tokens=usd_per_s / tokens_per_s * _MILLION if usd_per_s and tokens_per_s else None,
        over_time=_over_time(gathered, setting, start_ps, end_ps),
    )


class RequestTimes:
    """Times of each finished request in picoseconds, by the names of the result: made when one is asked for."""

    def __init__(self, gathered: Gathered, setting: Setting) -> None:
        self._done, self._sent_ps = gathered.finished, gathered.sent_ps
        self._latency_ps = setting.front_end.latency_ps

    def __len__(self) -> int:
        """Return how many requests got their answer."""
        return len(self._done)

    def __getitem__(self, name: str) -> Ints | Floats:
        """Return one time of all of them."""
        done = self._done
        match name:
            case "ttft_s":
                return done.first_token_ps - self._sent_ps[done.indices] + self._latency_ps
            case "e2e_s":
                return done.end_ps - self._sent_ps[done.indices] + self._latency_ps
            case "queue_s":
                return done.scheduled_ps - done.reached_ps
            case "tpot_s":
                return (done.last_token_ps - done.first_token_ps) / np.maximum(done.output_tokens - 1, 1)
            case _:
                raise KeyError(name)

    def samples(self, name: str) -> Ints | Floats:
        """Return one time of those who have it: an answer of one token has no time per further token."""
        found = self[name]
        return found[self._done.output_tokens > 1] if name == "tpot_s" else found


def outcomes_of(gathered: Gathered, setting: Setting, slo: tuple[Objective, ...]) -> tuple[Outcome, ...]:
    """Return each objective with its value over the requests that got their answer."""
    times = RequestTimes(gathered, setting)
    return tuple(_outcome(times, one) for one in slo)


def _outcome(times: RequestTimes, objective: Objective) -> Outcome:
    mine = times.samples(objective.quantity)
    name = f"{objective.statistic} {objective.quantity.removesuffix('_s')}"
    value = None
    summary = summary_of(mine)
    if summary is not None:
        if objective.statistic == _MEAN:
            value = summary.mean
        else:
            value = percentile_s(mine, float(objective.statistic.removeprefix("p")))
        met = value <= objective.limit
        told = f"{'' if met else 'not '}met with {format_seconds(value)}"
    else:
        # Where all answers end with their first token, each keeps a limit of what comes after it.
        met = len(times) > 0
        told = "met, no answer has a second token" if met else "no request got its answer"
    return Outcome(
        quantity=objective.quantity,
        statistic=objective.statistic,
        limit=objective.limit,
        value=value,
        met=met,
        certain=True,
        text=f"{name} <= {format_seconds(objective.limit)}: {told}",
    )


def _within(times: RequestTimes, slo: tuple[Objective, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which requests keep all limits; that of a percentile is a limit for each too."""
    kept = np.ones(len(times), dtype=np.bool_)
    for one in slo:
        kept &= times[one.quantity] <= round(one.limit * PS_PER_S)
    return kept


def _end_ps(gathered: Gathered, setting: Setting) -> int:
    done = gathered.finished
    if gathered.partial or not len(done):
        return gathered.end_ps
    return int(done.end_ps.max()) + setting.front_end.latency_ps


def _loaded_tokens_per_s(gathered: Gathered, start_ps: int, end_ps: int) -> float | None:
    """Return the tokens per second until the last request is sent: behind it a closed loop runs empty."""
    last_ps = int(gathered.sent_ps.max()) if len(gathered.sent_ps) else start_ps
    if gathered.partial or 2 * (last_ps - start_ps) < end_ps - start_ps or last_ps == start_ps:
        return None
    (tokens,) = _tokens_until(gathered, np.array([last_ps], dtype=np.float64))
    return float(tokens) / ((last_ps - start_ps) / PS_PER_S)


def _kv_usage(gathered: Gathered, lasted_ps: int) -> Use:
    blocks = sum(one.num_blocks for one in gathered.replicas)
    held = sum(one.end.held_block_ps for one in gathered.replicas)
    most = max(one.most_held_blocks / one.num_blocks for one in gathered.replicas)
    return Use(mean=held / blocks / lasted_ps if lasted_ps else 0.0, max=most)


def _slots(gathered: Gathered, setting: Setting, lasted_ps: int) -> float:
    slots = setting.num_slots
    if not lasted_ps:
        return 0.0
    if _drains(setting):
        return float((gathered.finished.last_token_ps - gathered.finished.scheduled_ps).sum()) / slots / lasted_ps
    return sum(one.end.live_ps for one in gathered.replicas) / slots / lasted_ps


def _drains(setting: Setting) -> bool:
    """Return whether requests keep their place after their answer: those are not counted as live."""
    return setting.policy is Policy.STATIC


def _over_time(gathered: Gathered, setting: Setting, start_ps: int, end_ps: int) -> tuple[Moment, ...]:
    if end_ps <= start_ps:
        return ()
    edges = np.linspace(start_ps, end_ps, _STRETCHES + 1)
    step_ps = (end_ps - start_ps) / _STRETCHES
    held, live = (np.diff(total) / step_ps for total in summed_until(gathered.replicas, edges))
    blocks = sum(one.num_blocks for one in gathered.replicas)
    slots = setting.num_slots
    done = gathered.finished
    if _drains(setting):
        live = np.diff(_passed(done.scheduled_ps, edges) - _passed(done.last_token_ps, edges)) / step_ps
    waited = np.diff(_passed(done.reached_ps, edges) - _passed(done.scheduled_ps, edges)) / step_ps
    tokens = np.diff(_tokens_until(gathered, edges)) / (step_ps / PS_PER_S)
    return tuple(
        Moment(
            start_s=float(edges[place] - start_ps) / PS_PER_S,
            end_s=float(edges[place + 1] - start_ps) / PS_PER_S,
            kv_usage_fraction=float(held[place]) / blocks,
            slot_utilization_fraction=max(0.0, float(live[place])) / slots,
            num_waiting=max(0.0, float(waited[place])),
            output_tokens_per_s=float(tokens[place]),
        )
        for place in range(_STRETCHES)
    )


def _passed(moments_ps: Ints, edges: Floats) -> Floats:
    """Return how long it is since each moment, summed over the moments, at each edge."""
    ordered = np.sort(moments_ps)
    before = np.searchsorted(ordered, edges, side="right")
    sums = np.concatenate([[0.0], np.cumsum(ordered, dtype=np.float64)])
    passed: Floats = before * edges - sums[before]
    return passed


def _tokens_until(gathered: Gathered, edges: Floats) -> Floats:
    """Return the tokens of answers up to each edge: of one answer evenly from its first to its last."""
    done = gathered.finished
    first, last = done.first_token_ps.astype(np.float64), done.last_token_ps.astype(np.float64)
    lasted = np.maximum(last - first, 1.0)
    more = done.output_tokens - 1
    found = [float((np.clip((edge - first) / lasted, 0, 1) * more).sum() + (first <= edge).sum()) for edge in edges]
    return np.array(found)
