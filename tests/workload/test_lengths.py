from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.workload.lengths import (
    Constant,
    Empirical,
    Exponential,
    Lengths,
    Lognormal,
    Pareto,
    Uniform,
    described,
    mean_tokens,
    moment,
    normal_quantile,
    parse_lengths,
    quantile_tokens,
)
from infcalc.workload.quadrature import nodes

LAWS = (
    Constant(value_tokens=700),
    Uniform(min_tokens=100, max_tokens=900),
    Exponential(mean_tokens=300),
    Lognormal(median_tokens=200, log_deviation=0.4),
    Lognormal(median_tokens=200, log_deviation=1.5),
    Pareto(min_tokens=100, max_tokens=32_768, tail_index=1.2),
    Pareto(min_tokens=10, max_tokens=1000, tail_index=2),
    Pareto(min_tokens=1, max_tokens=2.0**40, tail_index=9.5),
    Empirical(values_tokens=(3, 100, 100, 7000)),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512", Constant(value_tokens=512)),
        ("4k", Constant(value_tokens=4096)),
        ("constant:1070", Constant(value_tokens=1070)),
        ("uniform:min=100,max=900", Uniform(min_tokens=100, max_tokens=900)),
        ("uniform:max=900, min=100", Uniform(min_tokens=100, max_tokens=900)),
        ("uniform:min=7,max=7", Constant(value_tokens=7)),
        ("exponential:mean=300", Exponential(mean_tokens=300)),
        ("Exponential: mean = 300", Exponential(mean_tokens=300)),
        ("lognormal:mean=500,cv=0", Constant(value_tokens=500)),
        ("p50=80,p99=80", Constant(value_tokens=80)),
        ("pareto:min=100,max=32k,alpha=1.2", Pareto(min_tokens=100, max_tokens=32_768, tail_index=1.2)),
        ("pareto:min=7,max=7,alpha=1", Constant(value_tokens=7)),
        ("empirical:900,100*2, 200", Empirical(values_tokens=(100, 100, 200, 900))),
        ("empirical:5*4", Constant(value_tokens=5)),
    ],
)
def test_a_distribution_is_read(text: str, expected: Lengths) -> None:
    assert parse_lengths(text) == expected


@pytest.mark.parametrize("text", ["p50=200,p90=900", "lognormal:p50=200,p90=900", "lognormal:p90=900,p50=200"])
def test_a_lognormal_goes_through_two_percentiles(text: str) -> None:
    law = parse_lengths(text)
    assert quantile_tokens(law, 0.5) == pytest.approx(200)
    assert quantile_tokens(law, 0.9) == pytest.approx(900)


def test_mean_and_variation_of_a_lognormal_come_back() -> None:
    law = parse_lengths("lognormal:mean=500,cv=1.2")
    assert mean_tokens(law) == pytest.approx(500)
    assert math.sqrt(moment(law, 2) - moment(law, 1) ** 2) / 500 == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("many", "not a number of tokens"),
        ("", "not a number of tokens"),
        ("0", "out of range"),
        ("zipf:a=2", "no distribution"),
        ("lognormal:mean=500", "mean and cv"),
        ("lognormal:mean=500,cv=-1", "between 0 and 20"),
        ("lognormal:mean=500,cv=x", "not a number"),
        ("lognormal:p50=900,p90=200", "higher percentile"),
        ("lognormal:p0=2,p90=200", "two percentiles"),
        ("uniform:min=900,max=100", "above"),
        ("uniform:min=900", "min and max"),
        ("exponential:rate=3", "mean=TOKENS"),
        ("exponential:mean=3,mean=4", "twice"),
        ("constant:tokens=3,mean=4", "tokens=TOKENS"),
        ("p50=200", "two percentiles"),
        ("pareto:min=100,alpha=1", "min and max and alpha"),
        ("pareto:min=100,max=10,alpha=1", "above"),
        ("pareto:min=10,max=100,alpha=0", "between 0.01 and 20"),
        ("empirical:", "not a number of tokens"),
        ("empirical:3*x", "after"),
        ("empirical:3*0", "lengths in all"),
        ("empirical:3*99999,4*2", "lengths in all"),
    ],
)
def test_what_is_no_distribution_says_what_is_missing(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_lengths(text)


@pytest.mark.parametrize("law", LAWS)
def test_a_distribution_is_written_as_it_is_read(law: Lengths) -> None:
    again = parse_lengths(described(law))
    assert mean_tokens(again) == pytest.approx(mean_tokens(law), rel=1e-4)
    assert moment(again, 2) == pytest.approx(moment(law, 2), rel=1e-3)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_nodes_give_the_moments(law: Lengths, order: int) -> None:
    assert math.fsum(weight * value**order for weight, value in nodes(law)) == pytest.approx(
        moment(law, order), rel=1e-6
    )


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("order", [1, 2])
def test_nodes_by_length_give_the_moments_of_what_runs(law: Lengths, order: int) -> None:
    found = math.fsum(weight * value**order for weight, value in nodes(law, by_length=True))
    assert found == pytest.approx(moment(law, order + 1) / moment(law, 1), rel=1e-6)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("by_length", [False, True])
def test_weights_sum_to_one(law: Lengths, by_length: bool) -> None:
    assert math.fsum(weight for weight, _ in nodes(law, by_length=by_length)) == pytest.approx(1)


@given(st.floats(0.001, 0.999))
def test_the_normal_quantile_inverts_the_normal_law(probability: float) -> None:
    assert 0.5 * math.erfc(-normal_quantile(probability) / math.sqrt(2)) == pytest.approx(probability, rel=1e-9)


@pytest.mark.parametrize("law", [law for law in LAWS[1:] if moment(law, 1) > 2])
def test_quantiles_agree_with_the_moments(law: Lengths) -> None:
    draws = [quantile_tokens(law, (index + 0.5) / 20_000) for index in range(20_000)]
    assert math.fsum(draws) / len(draws) == pytest.approx(mean_tokens(law), rel=0.01)
    assert draws == sorted(draws)
    assert random.Random(1).choice(draws) > 0  # noqa: S311 - any of them
