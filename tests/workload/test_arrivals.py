from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.workload.arrival_times import arrival_times_s, gaps_of_mean_one, seconds_until
from infcalc.workload.arrivals import (
    Arrivals,
    AtOnce,
    ClosedLoop,
    Diurnal,
    GapLaw,
    Gaps,
    OpenLoop,
    Profile,
    Ramp,
    Steady,
    described,
    mean_rate_per_s,
    parse_arrivals,
    weibull_shape,
)

STEADY = Steady(rate_per_s=12)
RAMP = Ramp(from_per_s=1, to_per_s=20, over_s=600)
DAY = Diurnal(mean_per_s=2, peak_ratio=3, period_s=86_400, peak_s=50_400)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("poisson:12", OpenLoop(profile=STEADY)),
        ("Poisson: rate = 12", OpenLoop(profile=STEADY)),
        ("constant:12", OpenLoop(profile=STEADY, gaps=Gaps(cv=0))),
        ("gamma:rate=12,cv=2", OpenLoop(profile=STEADY, gaps=Gaps(cv=2))),
        ("gamma:rate=12,burstiness=0.25", OpenLoop(profile=STEADY, gaps=Gaps(cv=2))),
        ("gamma:12,burstiness=1", OpenLoop(profile=STEADY)),
        ("weibull:rate=12,burstiness=0.25", OpenLoop(profile=STEADY, gaps=Gaps(law=GapLaw.WEIBULL, cv=2))),
        ("poisson:12,exact=yes", OpenLoop(profile=STEADY, exact=True)),
        ("ramp:from=1,to=20,over=10min", OpenLoop(profile=RAMP)),
        (
            "ramp:from=1,to=20,over=600,curve=exponential,cv=2",
            OpenLoop(profile=Ramp(from_per_s=1, to_per_s=20, over_s=600, exponential=True), gaps=Gaps(cv=2)),
        ),
        ("diurnal:rate=2,ratio=3,peak=14h", OpenLoop(profile=DAY)),
        ("closed:clients=100,think=30s", ClosedLoop(num_clients=100, think_s=30)),
        ("closed:100,think=500ms,think-cv=1", ClosedLoop(num_clients=100, think_s=0.5, think_cv=1)),
        ("once", AtOnce()),
    ],
)
def test_arrivals_are_read_and_written_again(text: str, expected: Arrivals) -> None:
    assert parse_arrivals(text) == expected
    assert parse_arrivals(described(expected)) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sometimes", "no kind of arrivals"),
        ("", "no kind of arrivals"),
        ("poisson", "needs rate"),
        ("poisson:0", "above 0"),
        ("poisson:-3", "between 0"),
        ("poisson:nan", "between 0"),
        ("poisson:inf", "between 0"),
        ("poisson:many", "not a number"),
        ("poisson:12,cv=2", "poisson takes exact, rate; given cv"),
        ("poisson:12,rate=3", "twice"),
        ("poisson:12,12", "twice"),
        ("gamma:rate=12,cv=2,burstiness=3", "say the same"),
        ("gamma:rate=12,burstiness=0", "at least"),
        ("gamma:rate=12,exact=maybe", "neither yes nor no"),
        ("weibull:rate=12,shape=0", "between 0.2"),
        ("weibull:rate=12,shape=1,cv=1", "say the same"),
        ("ramp:from=1,to=2", "needs over=TIME"),
        ("ramp:from=1,to=2,over=0s", "0 seconds"),
        ("ramp:from=1,to=2,over=soon", "ramp over"),
        ("ramp:from=1,to=2,over=9s,curve=steep", "neither linear nor exponential"),
        ("ramp:from=0,to=2,over=9s", "above 0"),
        ("diurnal:rate=2,ratio=0.5", "between 1"),
        ("diurnal:rate=2", "ratio"),
        ("diurnal:rate=2,ratio=2,period=0s", "0 seconds"),
        ("closed:", "not a number"),
        ("closed:clients=1.5", "whole number"),
        ("closed:0", "between 1"),
        ("closed:3,clients=4", "twice"),
        ("once:12", "takes nothing"),
    ],
)
def test_what_is_no_arrivals_says_what_is_missing(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_arrivals(text)


@given(st.floats(0.003, 400))
def test_burstiness_is_written_as_it_was_given(burstiness: float) -> None:
    given = parse_arrivals(f"gamma:rate=3,burstiness={burstiness!r}")
    again = parse_arrivals(described(given))
    assert isinstance(given, OpenLoop)
    assert isinstance(again, OpenLoop)
    assert again.gaps.cv == pytest.approx(given.gaps.cv, rel=1e-10)
    assert given.gaps.cv == pytest.approx(burstiness**-0.5)


def test_the_rate_in_the_long_run() -> None:
    assert mean_rate_per_s(OpenLoop(profile=RAMP)) == 20
    assert mean_rate_per_s(OpenLoop(profile=DAY)) == 2
    assert mean_rate_per_s(AtOnce()) is None
    assert mean_rate_per_s(ClosedLoop(num_clients=3)) is None


@given(st.floats(0.05, 10))
def test_a_weibull_law_has_the_asked_variation(cv: float) -> None:
    shape = weibull_shape(cv)
    second, first = math.gamma(1 + 2 / shape), math.gamma(1 + 1 / shape)
    assert math.sqrt(second / first**2 - 1) == pytest.approx(cv, rel=1e-6)


@pytest.mark.parametrize("law", GapLaw)
@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
def test_gaps_have_mean_one_and_the_asked_variation(law: GapLaw, cv: float) -> None:
    gaps = gaps_of_mean_one(Gaps(law=law, cv=cv), 400_000, np.random.default_rng(5))
    # Within some four standard errors: those of the mean are cv / sqrt(n).
    assert gaps.mean() == pytest.approx(1, abs=4 * cv / math.sqrt(len(gaps)))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.02)


def test_gamma_gaps_are_those_of_the_benchmark_of_vllm() -> None:
    # vllm bench serve: gamma(shape=burstiness, scale=1 / (rate * burstiness)), then stretched to num_prompts / rate.
    rate, burstiness, number = 12.0, 0.25, 1000
    expected = np.cumsum(np.random.default_rng(3).gamma(burstiness, 1 / (rate * burstiness), number))
    expected *= number / rate / expected[-1]
    arrivals = parse_arrivals(f"gamma:rate={rate},burstiness={burstiness},exact=yes")
    assert isinstance(arrivals, OpenLoop)
    times = arrival_times_s(arrivals, number, np.random.default_rng(3))
    assert times == pytest.approx(expected, rel=1e-12)
    assert times[-1] == pytest.approx(number / rate)


def integrated(profile: Profile, until_s: float) -> float:
    """Midpoints, on a fine grid: what the formulas invert, without them."""
    steps = 20_000
    middles = (np.arange(steps) + 0.5) * until_s / steps
    match profile:
        case Steady():
            rates = np.full(steps, profile.rate_per_s)
        case Ramp():
            share = np.minimum(middles / profile.over_s, 1)
            first, last = profile.from_per_s, profile.to_per_s
            rates = first * (last / first) ** share if profile.exponential else first + (last - first) * share
        case Diurnal():
            swing = (profile.peak_ratio - 1) / (profile.peak_ratio + 1)
            turned = 2 * np.pi * (middles - profile.peak_s) / profile.period_s
            rates = profile.mean_per_s * (1 + swing * np.cos(turned))
    return float(rates.sum() * until_s / steps)


PROFILES = (
    STEADY,
    RAMP,
    Ramp(from_per_s=20, to_per_s=1, over_s=600),
    Ramp(from_per_s=5, to_per_s=5, over_s=600),
    Ramp(from_per_s=1, to_per_s=20, over_s=600, exponential=True),
    Ramp(from_per_s=5, to_per_s=5, over_s=600, exponential=True),
    DAY,
    Diurnal(mean_per_s=0.5, peak_ratio=100, period_s=100, peak_s=0),
    Diurnal(mean_per_s=0.5, peak_ratio=1, period_s=100, peak_s=30),
)


@settings(max_examples=40)
@given(st.sampled_from(PROFILES), st.floats(0.01, 3))
def test_the_summed_rate_is_inverted(profile: Profile, share: float) -> None:
    span = profile.over_s if isinstance(profile, Ramp) else profile.period_s if isinstance(profile, Diurnal) else 10.0
    until_s = share * span
    passed = integrated(profile, until_s)
    assert seconds_until(profile, np.array([passed]))[0] == pytest.approx(until_s, rel=2e-4)


@pytest.mark.parametrize("profile", PROFILES)
def test_times_are_in_order_and_begin_after_the_start(profile: Profile) -> None:
    times = arrival_times_s(OpenLoop(profile=profile, gaps=Gaps(cv=2)), 5000, np.random.default_rng(2))
    assert times[0] > 0
    assert (np.diff(times) >= 0).all()


def test_the_same_seed_gives_the_same_times() -> None:
    first, again, other = (
        arrival_times_s(OpenLoop(profile=STEADY), 100, np.random.default_rng(seed)) for seed in (4, 4, 5)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_no_request_has_no_time() -> None:
    assert len(arrival_times_s(OpenLoop(profile=STEADY, exact=True), 0, np.random.default_rng(1))) == 0
