"""What a load costs besides its tokens: the month, energy, an API instead, and a day."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infcalc.api.costing import Terms, rent_of
from infcalc.api.deployment import Ask, load
from infcalc.api.offer import Offer
from infcalc.api.speed import SpeedResult, estimate
from infcalc.api.spending import ProfileAsk
from infcalc.errors import UsageError
from infcalc.planning.break_even import ApiPrice, Wins
from infcalc.planning.owning import YEAR_S, Purchase
from infcalc.spec.efficiency import Basis

SMALL = Ask(models=("llama3.1-8b",), gpus=("h100",), num_gpus=1)
OFFER = Offer(concurrency=32, input_tokens=1000, output_tokens=200)
RENTED = Terms(usd_per_hour=3.0)
API = ApiPrice(input_usd=0.05, output_usd=0.2)
PROFILES = {"rate": "hour,rate\n0,2\n8,30\n20,5\n", "users": "hour,users\n0,10\n8,100\n"}


def answered(terms: Terms = RENTED, offer: Offer = OFFER, profile: ProfileAsk | None = None) -> SpeedResult:
    return estimate(SMALL, offer, terms=terms, profile=profile).result


def written(folder: Path, text: str) -> str:
    file = folder / "day.csv"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_month_is_all_hours_whatever_is_used() -> None:
    half = answered(replace(RENTED, utilization_fraction=0.5))
    for result in (answered(), half):
        assert result.usd_per_month is not None
        assert result.usd_per_month.value == pytest.approx(3 * 730)


def test_at_full_use_prices_are_those_of_an_hour_that_is_used() -> None:
    full, half = answered(), answered(replace(RENTED, utilization_fraction=0.5))
    assert full.at_full is not None
    assert half.at_full is not None
    for kind in ("output", "input", "cached", "blended", "total"):
        key = f"usd_per_million_{kind}_tokens"
        assert getattr(full.at_full, f"full_{key}") == getattr(full, key) == getattr(half.at_full, f"full_{key}")
        assert getattr(half, key).value == pytest.approx(2 * getattr(full, key).value)


def test_energy_at_half_use_is_less_than_double() -> None:
    full, half = answered(), answered(replace(RENTED, utilization_fraction=0.5))
    once, twice = full.kwh_per_million_output_tokens, half.kwh_per_million_output_tokens
    assert once is not None
    assert twice is not None
    assert full.output_tokens_per_s is not None
    watt = once.value * 3.6 * full.output_tokens_per_s.value
    assert 0.73 * 700 < watt < 0.97 * 700
    assert once.value < twice.value < 2 * once.value
    assert once.low < once.value < once.high
    # On no part is power calibrated.
    assert full.output_tokens_per_s.basis is Basis.CALIBRATED
    assert once.basis is Basis.MODELLED


def test_energy_needs_no_price() -> None:
    result = estimate(Ask(models=("llama3.1-8b",), gpus=("gaudi3",), num_gpus=1), OFFER).result
    assert result.usd_per_hour is None
    assert result.usd_per_month is None
    assert result.kwh_per_million_output_tokens is not None


def test_a_cached_token_costs_something_and_less_than_one_that_is_computed() -> None:
    for share in (0.0, 0.5, 0.9):
        result = answered(offer=replace(OFFER, input_tokens=8000, prefix_hit_fraction=share))
        cached, new = result.usd_per_million_cached_tokens, result.usd_per_million_input_tokens
        assert cached is not None
        assert new is not None
        # The price of input is the mean over tokens that are found and those that are not.
        assert 0 < cached.value < new.value


def test_long_contexts_make_cached_tokens_dearer() -> None:
    short, long = (answered(offer=replace(OFFER, concurrency=1, input_tokens=size)) for size in (1000, 64_000))
    assert short.usd_per_million_cached_tokens is not None
    assert long.usd_per_million_cached_tokens is not None
    assert long.usd_per_million_cached_tokens.value > short.usd_per_million_cached_tokens.value


def test_at_the_break_even_point_both_bills_are_equal() -> None:
    result = answered(replace(RENTED, api=API))
    met, rate = result.break_even, result.requests_per_s
    assert met is not None
    assert rate is not None
    assert met.capacity_fraction is not None
    assert met.requests_per_month is not None
    assert result.usd_per_month is not None
    assert met.api_request_usd == pytest.approx((1000 * 0.05 + 200 * 0.2) / 1e6)
    assert met.requests_per_month.value * met.api_request_usd == pytest.approx(result.usd_per_month.value)
    assert met.requests_per_month.value == pytest.approx(met.capacity_fraction.value * rate.value * 3600 * 730)


def test_what_is_owned_breaks_even_earlier_than_what_is_rented_dearer() -> None:
    purchase = Purchase(gpu_usd=30_000.0, life_s=4 * YEAR_S, usd_per_kwh=0.12, pue=1.3)
    own = answered(Terms(purchase=purchase, api=API))
    rented = answered(replace(RENTED, api=API))
    assert own.usd_per_hour is not None
    assert own.usd_per_hour < 3
    assert own.break_even is not None
    assert rented.break_even is not None
    assert own.break_even.capacity_fraction is not None
    assert rented.break_even.capacity_fraction is not None
    assert own.break_even.capacity_fraction.value < rented.break_even.capacity_fraction.value
    # The range of the power is in the month's bill.
    assert own.usd_per_month is not None
    assert own.usd_per_month.low < own.usd_per_month.value < own.usd_per_month.high


def test_an_api_that_is_nearly_free_wins() -> None:
    result = answered(replace(RENTED, api=ApiPrice(input_usd=0.0001, output_usd=0.0001)))
    assert result.break_even is not None
    assert result.break_even.wins is Wins.NO


def test_a_profile_of_rates_is_served_by_replicas_filled_to_this_load(tmp_path: Path) -> None:
    result = answered(profile=ProfileAsk(file=written(tmp_path, PROFILES["rate"]), startup_s=300.0))
    bill, rate = result.bill, result.requests_per_s
    assert bill is not None
    assert rate is not None
    assert bill.capacity == rate
    assert bill.num_replicas == tuple(-(-level // rate.value) for level in (2, 30, 5))
    assert bill.scaled_usd_per_month.value < bill.fixed_usd_per_month.value
    assert bill.fixed_usd_per_month.value == pytest.approx(max(bill.num_replicas) * 3 * 730)
    assert bill.fixed_usd_per_day.value == pytest.approx(max(bill.num_replicas) * 3 * 24)
    assert bill.fixed_usd_per_month.low <= bill.fixed_usd_per_month.value <= bill.fixed_usd_per_month.high


def test_a_profile_of_users_is_served_by_those_of_this_load(tmp_path: Path) -> None:
    asked = ProfileAsk(file=written(tmp_path, PROFILES["users"]))
    bill = answered(profile=asked).bill
    assert bill is not None
    assert bill.num_replicas == (1, 4)
    with pytest.raises(UsageError, match="users"):
        answered(offer=replace(OFFER, concurrency=None, requests_per_s=1.0), profile=asked)


def test_fractions_need_a_peak_and_nothing_else_has_one(tmp_path: Path) -> None:
    file = written(tmp_path, "hour,fraction\n0,0.1\n8,1\n")
    bill = answered(profile=ProfileAsk(file=file, peak_per_s=30.0)).bill
    assert bill is not None
    same = answered(profile=ProfileAsk(file=written(tmp_path, "hour,rate\n0,3\n8,30\n"))).bill
    assert same is not None
    assert bill.num_replicas == same.num_replicas
    with pytest.raises(UsageError, match="a peak, and a profile in rate"):
        answered(profile=ProfileAsk(file=file, peak_per_s=30.0))
    with pytest.raises(UsageError, match="no peak"):
        answered(profile=ProfileAsk(file=written(tmp_path, "hour,fraction\n0,1\n")))


@pytest.mark.parametrize(
    "asked",
    [
        ProfileAsk(file="day.csv", startup_s=-1.0),
        ProfileAsk(file="day.csv", startup_s=1e9),
        ProfileAsk(file="day.csv", num_least_replicas=-1),
    ],
)
def test_replicas_that_cannot_follow_are_refused(asked: ProfileAsk) -> None:
    with pytest.raises(UsageError):
        answered(profile=asked)


def test_what_the_site_adds_is_in_the_energy() -> None:
    purchase = Purchase(gpu_usd=30_000.0, usd_per_kwh=0.1, pue=1.5)
    plain, more = (answered(Terms(purchase=replace(purchase, pue=pue))) for pue in (1.0, 1.5))
    assert plain.kwh_per_million_output_tokens is not None
    assert more.kwh_per_million_output_tokens is not None
    assert more.kwh_per_million_output_tokens.value == pytest.approx(1.5 * plain.kwh_per_million_output_tokens.value)


def test_own_hardware_that_waits_is_paid_for_the_power_it_draws_idle() -> None:
    terms = Terms(purchase=Purchase(gpu_usd=30_000.0, usd_per_kwh=0.5), api=API)
    result = answered(terms)
    met, gpu = result.break_even, load(SMALL).gpu("h100").gpu
    assert met is not None
    assert met.capacity_fraction is not None
    assert met.requests_per_month is not None
    share = met.capacity_fraction.value
    # The bill of a month in which it is used as much as it takes to break even.
    hour = rent_of(gpu, terms, prefill_fraction=result.prefill_time_fraction, utilization_fraction=share)
    assert hour is not None
    assert met.requests_per_month.value * met.api_request_usd == pytest.approx(hour.usd_per_hour * 730)
