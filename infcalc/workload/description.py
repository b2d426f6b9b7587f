"""What a trace looks like: rates, how bursty, lengths, what prompts share, and how it goes over time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from infcalc.frozen import frozen
from infcalc.workload.sharing import found_in_endless_cache
from infcalc.workload.trace import NONE, Floats, Ints, Trace

_MOST_INTERVALS = 60
_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds of an interval, such as people read from a clock; below a second and above a day powers of ten."""
_PERCENTS = (50, 90, 99)


@frozen
class LengthSummary:
    """Mean, percentiles (linear between samples) and ends of token counts; ``cv`` is deviation over mean.

    ``mean_low`` and ``mean_high`` are there where the counts are estimates.
    """

    mean: float
    p50: float
    p90: float
    p99: float
    min: int
    max: int
    cv: float
    mean_low: float | None = None
    mean_high: float | None = None


@frozen
class Interval:
    """What arrives in one stretch of time: requests, prompt tokens and answer tokens, per second too."""

    start_s: float
    requests: int
    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float


@frozen
class Rates:
    """How requests arrive.

    ``rate_per_s`` is one over the mean gap; ``cv`` the coefficient of variation of gaps, 1 for Poisson arrivals;
    ``dispersion`` the variance over the mean of counts in whole seconds, 1 for Poisson arrivals, above where they are
    bunched over longer times than a gap. None where there are no times.
    """

    duration_s: float
    rate_per_s: float | None
    cv: float | None
    dispersion: float | None


def rates(trace: Trace) -> Rates:
    """Return how the requests of a trace arrive.

    >>> trace = Trace(arrivals_s=np.array([1.0, 2, 3]), input_tokens=np.full(3, 9), output_tokens=np.full(3, 1))
    >>> rates(trace)
    Rates(duration_s=2.0, rate_per_s=1.0, cv=0.0, dispersion=0.0)
    """
    if not len(trace) or trace.clients is not None:
        return Rates(duration_s=0.0, rate_per_s=None, cv=None, dispersion=None)
    duration_s = float(trace.arrivals_s[-1] - trace.arrivals_s[0])
    if not duration_s:
        return Rates(duration_s=0.0, rate_per_s=None, cv=None, dispersion=None)
    gaps = np.diff(trace.arrivals_s)
    return Rates(
        duration_s=duration_s,
        rate_per_s=len(gaps) / duration_s,
        cv=float(gaps.std() / gaps.mean()),
        dispersion=_dispersion(trace.arrivals_s - trace.arrivals_s[0], duration_s),
    )


def _dispersion(since_s: Floats, duration_s: float) -> float | None:
    """Return variance over mean of the counts of whole seconds; of the last, which is cut, nothing is known."""
    whole = math.floor(duration_s)
    if not 1 <= whole <= _MOST_SECONDS:
        return None
    counts = np.bincount(since_s[since_s < whole].astype(np.int64), minlength=whole)
    return float(counts.var() / counts.mean())


_MOST_SECONDS = 10**8


def length_summary(tokens: Ints) -> LengthSummary:
    """Return mean and percentiles of token counts."""
    middle, high, highest = np.percentile(tokens, _PERCENTS).tolist()
    mean = float(tokens.mean())
    return LengthSummary(
        mean=mean,
        p50=middle,
        p90=high,
        p99=highest,
        min=int(tokens.min()),
        max=int(tokens.max()),
        cv=float(tokens.std() / mean),
    )


def scaled_mean(summary: LengthSummary, low: float, high: float) -> LengthSummary:
    """Return a summary of estimated counts, whose mean may be ``low`` to ``high`` times what it is."""
    return replace(summary, mean_low=low * summary.mean, mean_high=high * summary.mean)


@frozen
class Shares:
    """Shares of prompt tokens, and of requests, that an endless prefix cache finds something of."""

    tokens_fraction: float
    requests_fraction: float


def shares(trace: Trace) -> Shares:
    """Return what an endless prefix cache would find."""
    if trace.sharing is None:
        return Shares(tokens_fraction=0.0, requests_fraction=0.0)
    found = found_in_endless_cache(trace.sharing)
    return Shares(
        tokens_fraction=found.num_tokens / int(trace.input_tokens.sum()),
        requests_fraction=found.num_requests / len(trace),
    )


def time_grid_s(trace: Trace) -> float | None:
    """Return the grid on which times were written, where that bunches requests; None where it does not.

    >>> times = np.array([0.0, 0, 0, 3, 3, 3, 9, 9, 9, 12])
    >>> time_grid_s(Trace(arrivals_s=times, input_tokens=np.full(10, 9), output_tokens=np.full(10, 1)))
    3.0
    """
    gaps = np.diff(trace.arrivals_s)
    apart = gaps[gaps > 0]
    if not len(apart) or len(apart) > _BUNCHED * len(gaps):
        return None
    grid_s = float(np.median(apart))
    steps = apart / grid_s
    return grid_s if bool(np.allclose(steps, np.rint(steps), rtol=0, atol=_ON_GRID)) else None


_BUNCHED = 0.5
"""At most so many gaps are not 0 where requests lie in bunches."""
_ON_GRID = 0.02
"""Clocks that write such times jitter a little, in shares of the grid."""


def num_sessions(trace: Trace) -> int:
    """Return how many sessions there are; a request that belongs to none is one of its own."""
    return len(trace) if trace.turns is None else int((trace.turns.follows == NONE).sum())


def over_time(trace: Trace) -> tuple[Interval, ...]:
    """Return what arrives in equal stretches of time, some 25 to 60 of them; none where there are no times."""
    if trace.clients is not None or not len(trace) or trace.arrivals_s[-1] == trace.arrivals_s[0]:
        return ()
    since_s = trace.arrivals_s - trace.arrivals_s[0]
    step_s = interval_s(float(since_s[-1]))
    place = (since_s / step_s).astype(np.int64)
    number = int(place[-1]) + 1
    counts = np.bincount(place, minlength=number)
    given = np.bincount(place, weights=trace.input_tokens, minlength=number)
    made = np.bincount(place, weights=trace.output_tokens, minlength=number)
    return tuple(
        Interval(
            start_s=index * step_s,
            requests=requests,
            requests_per_s=requests / step_s,
            input_tokens_per_s=prompts / step_s,
            output_tokens_per_s=answers / step_s,
        )
        for index, (requests, prompts, answers) in enumerate(
            zip(counts.tolist(), given.tolist(), made.tolist(), strict=True)
        )
    )


def interval_s(duration_s: float) -> float:
    """Return the length of stretches of time, a round one, so that at most 60 cover ``duration_s``.

    >>> interval_s(3500), interval_s(0.9), interval_s(864_000)
    (60, 0.02, 21600)
    """
    least = duration_s / (_MOST_INTERVALS - 1)
    if _STEPS[0] / 2 < least <= _STEPS[-1]:
        return next(step for step in _STEPS if step >= least)
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
