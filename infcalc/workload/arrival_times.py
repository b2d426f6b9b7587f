"""Times of arrival, drawn: gaps of mean 1 are added up, then the inverse of the summed rate turns them into seconds.

With gaps of an exponential law this is the inhomogeneous Poisson process of that rate; with others the process whose
gaps have that law where time runs at the speed of the rate. Source: Cinlar, Introduction to Stochastic Processes
(1975), inversion of the integrated rate function.
"""

from __future__ import annotations

import math
from typing import assert_never

import numpy as np

from infcalc.workload.arrivals import Diurnal, GapLaw, Gaps, OpenLoop, Profile, Ramp, Steady, weibull_shape
from infcalc.workload.trace import Floats

_GRID = 4096
_NEWTON_STEPS = 4


def arrival_times_s(arrivals: OpenLoop, count: int, rng: np.random.Generator) -> Floats:
    """Return ``count`` times of arrival in seconds from the start, in order; the first comes after one gap.

    >>> from infcalc.workload.arrivals import parse_arrivals
    >>> arrival_times_s(parse_arrivals("constant:4"), 3, np.random.default_rng(1)).tolist()
    [0.25, 0.5, 0.75]
    """
    passed = np.cumsum(gaps_of_mean_one(arrivals.gaps, count, rng))
    if arrivals.exact and count and passed[-1] > 0:
        passed *= count / passed[-1]
    return seconds_until(arrivals.profile, passed)


def gaps_of_mean_one(gaps: Gaps, count: int, rng: np.random.Generator) -> Floats:
    """Return gaps of the given law and variation with the mean 1."""
    if gaps.cv == 0:
        return np.ones(count)
    match gaps.law:
        case GapLaw.GAMMA:
            shape = gaps.cv**-2
            return rng.standard_gamma(shape, count) / shape
        case GapLaw.WEIBULL:
            shape = weibull_shape(gaps.cv)
            return rng.weibull(shape, count) / math.exp(math.lgamma(1 + 1 / shape))
        case _:
            assert_never(gaps.law)


def seconds_until(profile: Profile, passed: Floats) -> Floats:
    """Return when the expected number of arrivals since the start reaches each value of ``passed``."""
    match profile:
        case Steady():
            return passed / profile.rate_per_s
        case Ramp():
            return _ramp_s(profile, passed)
        case Diurnal():
            return _diurnal_s(profile, passed)
        case _:
            assert_never(profile)


def _ramp_s(ramp: Ramp, passed: Floats) -> Floats:
    """Invert r0 t + (r1 - r0) t**2 / 2T, or r0 T / L (exp(L t / T) - 1) with L = log(r1 / r0); then the last rate."""
    first, last, over = ramp.from_per_s, ramp.to_per_s, ramp.over_s
    growth = math.log(last / first)
    curved = ramp.exponential and growth != 0
    within = first * over * math.expm1(growth) / growth if curved else 0.5 * (first + last) * over
    early = np.minimum(passed, within)
    if curved:
        times = over / growth * np.log1p(early * growth / (first * over))
    else:
        # The root in the form that also holds where the rate does not change.
        root = np.sqrt(np.maximum(first**2 + 2 * (last - first) / over * early, min(first, last) ** 2))
        times = 2 * early / (first + root)
    return np.asarray(times + (passed - early) / last, dtype=np.float64)


def _diurnal_s(swing: Diurnal, passed: Floats) -> Floats:
    """Invert m (t + a P / 2 pi (sin(2 pi (t - t0) / P) + sin(2 pi t0 / P))): from a grid, then by Newton's steps."""
    amplitude = (swing.peak_ratio - 1) / (swing.peak_ratio + 1)
    period, mean = swing.period_s, swing.mean_per_s
    turn = 2 * math.pi / period

    def expected(times: Floats) -> Floats:
        swung = np.sin(turn * (times - swing.peak_s)) + math.sin(turn * swing.peak_s)
        return np.asarray(mean * (times + amplitude / turn * swung))

    whole = np.floor(passed / (mean * period))
    rest = passed - whole * mean * period
    grid = np.linspace(0, period, _GRID + 1)
    times = np.interp(rest, expected(grid), grid)
    for _ in range(_NEWTON_STEPS):
        rate = mean * (1 + amplitude * np.cos(turn * (times - swing.peak_s)))
        times = np.clip(times - (expected(times) - rest) / rate, 0, period)
    return np.asarray(np.maximum.accumulate(whole * period + times), dtype=np.float64)
