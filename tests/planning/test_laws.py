"""Laws of layouts, odds, replicas and fronts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc import files
from infcalc.api.deployment import Ask, load
from infcalc.errors import UsageError
from infcalc.lowering.tensors import check_divisible
from infcalc.planning.frontier import front
from infcalc.planning.layouts import Undivided, layouts, tightly_joined
from infcalc.planning.odds import Z80, Law, normal_below, quantile_factor
from infcalc.planning.replicas import least_kept, most_kept, shares
from infcalc.spec.parallelism import Parallelism


@pytest.mark.parametrize("model", ["llama3-70b", "deepseek-v3", "gpt-oss-120b", "qwen2.5-7b"])
@pytest.mark.parametrize("gpu", ["h100-sxm5-80gb", "rtx-4090", "gb200"])
def test_every_layout_divides_the_model_and_tp_stays_together(model: str, gpu: str) -> None:
    catalog = load(Ask())
    shape, card = files.load_model(catalog, model).model, catalog.gpu(gpu).gpu
    ways = list(layouts(shape, card, least_gpus=2, most_gpus=32))
    good = [way for way in ways if isinstance(way, Parallelism)]
    assert len(good) == len(set(good))
    for way in good:
        check_divisible(shape, way)
        assert way.tp <= tightly_joined(card)
        assert 2 <= way.num_gpus <= 32
        assert way.ep in {1, way.tp * way.dp}
        assert shape.has_experts or way.dp == way.ep == 1
    for bad in ways:
        if isinstance(bad, Undivided):
            assert bad.why
            with pytest.raises(UsageError):
                check_divisible(shape, bad.ranks)
    # None is forgotten: TP alone, of one machine.
    for tp in range(2, 9):
        try:
            check_divisible(shape, Parallelism(tp=tp))
        except UsageError:
            continue
        assert Parallelism(tp=tp) in good


def test_nvlink_of_a_rack_joins_more_than_a_machine() -> None:
    catalog = load(Ask())
    assert tightly_joined(catalog.gpu("gb200").gpu) > tightly_joined(catalog.gpu("h100").gpu) == 8


@given(
    st.floats(0.01, 10.0), st.floats(1.01, 20.0), st.floats(1.01, 20.0), st.floats(0.001, 100.0), st.floats(1.0, 3.0)
)
def test_odds_go_through_the_ends_and_the_middle_of_a_band(
    low: float, rise: float, further: float, limit: float, more: float
) -> None:
    law = Law(low_factor=low, middle_factor=low * rise, high_factor=low * rise * further)
    below = law.probability_below(limit)
    assert 0 <= below <= 1
    assert below <= law.probability_below(limit * more)
    for deviations, share in ((-Z80, 0.1), (0.0, 0.5), (Z80, 0.9), (2 * Z80, normal_below(2 * Z80))):
        assert law.probability_below(law.at(deviations)) == pytest.approx(share, abs=1e-9)
    assert law.at(-Z80) == pytest.approx(law.low_factor)
    assert law.at(Z80) == pytest.approx(law.high_factor)


def test_a_figure_without_a_band_is_sure() -> None:
    law = Law(low_factor=1.0, middle_factor=1.0, high_factor=1.0)
    assert [law.probability_below(limit) for limit in (1.0, 0.9, 0.0)] == [1.0, 0.0, 0.0]


def test_a_quantile_over_the_mean_is_that_of_its_law() -> None:
    deviation = 0.7
    squared = math.expm1(deviation**2)
    assert quantile_factor(squared, Z80) == pytest.approx(math.exp(deviation * Z80 - deviation**2 / 2))


@given(st.integers(1, 50), st.integers(0, 80), st.integers(1, 120))
def test_halving_finds_what_counting_finds(low: int, width: int, first: int) -> None:
    high = low + width
    counted = next((number for number in range(low, high + 1) if number >= first), None)
    assert least_kept(lambda number: number >= first, low, high) == counted
    backwards = [number for number in range(low, high + 1) if number < first]
    assert most_kept(lambda number: number < first, low, high) == (backwards[-1] if backwards else None)


@given(st.integers(1, 500), st.integers(1, 60))
def test_shares_are_even_and_lose_nobody(users: int, replicas: int) -> None:
    parts = shares(users, replicas)
    assert sum(number * each for number, each in parts) == users
    assert max(each for _, each in parts) == math.ceil(users / replicas)
    assert max(each for _, each in parts) - min(each for _, each in parts) <= 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_nothing_beats_what_is_on_the_front(items: list[tuple[int, int]]) -> None:
    found = front(items, cost=lambda one: one[0], delay=lambda one: one[1])
    for one in found:
        assert not any(a <= one[0] and b <= one[1] and (a, b) != one for a, b in items)
    for a, b in items:
        assert any(x <= a and y <= b for x, y in found)
