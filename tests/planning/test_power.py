from __future__ import annotations

import pytest

from infcalc.planning.power import DECODE, IDLE, PREFILL, busy_watt, idle_watt, kwh_per_million, mean_watt
from infcalc.planning.spread import Spread, exact

# Board power of single GEMMs by rows, in watts: reference/hardware_effects.md, section 11.
LIMIT = {"H200": 700.0, "B200": 1000.0}
DECODING = {"H200": (593.0, 380.0, 516.0), "B200": (757.0, 779.0)}
PREFILLING = {"H200": (690.0,), "B200": (940.0, 990.0)}


def shares(measured: dict[str, tuple[float, ...]]) -> list[float]:
    return [watt / LIMIT[name] for name, found in measured.items() for watt in found]


@pytest.mark.parametrize(("stated", "measured"), [(PREFILL, PREFILLING), (DECODE, DECODING)])
def test_the_shares_are_the_means_of_what_was_measured(stated: Spread, measured: dict[str, tuple[float, ...]]) -> None:
    found = shares(measured)
    assert stated.value == pytest.approx(sum(found) / len(found), abs=0.01)
    assert stated.low <= min(found) + 0.01
    assert stated.high >= max(found) - 0.01


def test_power_lies_between_idle_and_the_limit() -> None:
    for share in (0.0, 0.3, 1.0):
        busy = busy_watt(700.0, share)
        assert idle_watt(700.0).high < busy.low <= busy.value <= busy.high <= 700.0
    assert busy_watt(700.0, 1.0).value == pytest.approx(700 * PREFILL.value)
    assert busy_watt(700.0, 0.0).value == pytest.approx(700 * DECODE.value)


def test_the_mean_is_weighed_by_use() -> None:
    half = mean_watt(1000.0, 0.0, 0.5)
    assert half.value == pytest.approx(500 * (DECODE.value + IDLE.value))
    assert mean_watt(1000.0, 0.0, 1.0) == busy_watt(1000.0, 0.0)
    assert mean_watt(1000.0, 0.0, 0.0) == idle_watt(1000.0)


def test_the_energy_of_a_million_tokens_is_power_over_their_rate() -> None:
    # 1 kW for the thousand seconds that a million tokens take at 1,000 a second: 1 MJ.
    assert kwh_per_million(exact(1000.0), exact(1000.0)).value == pytest.approx(1e6 / 3.6e6)
    idle_half = kwh_per_million(mean_watt(1000.0, 0.0, 0.5), exact(1000.0), utilization_fraction=0.5)
    full = kwh_per_million(mean_watt(1000.0, 0.0, 1.0), exact(1000.0))
    # What idles for as long as it works adds its idle power to each token.
    assert idle_half.value - full.value == pytest.approx(1000 * IDLE.value / 1000 / 3.6)
