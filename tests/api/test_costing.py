"""Prices as they are given, taken from the catalog, or reckoned from a purchase."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infcalc.api.costing import Terms, price_warnings, rent_of, settled, unused_prices
from infcalc.api.deployment import Ask, load
from infcalc.catalog.lookup import Catalog
from infcalc.errors import UnknownName, UsageError
from infcalc.planning.break_even import ApiPrice
from infcalc.planning.owning import YEAR_S, Purchase
from infcalc.spec.hardware import Gpu, Price


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load(Ask())


@pytest.fixture
def gpu(catalog: Catalog) -> Gpu:
    return catalog.gpu("h100").gpu


def test_a_price_by_name_goes_before_the_plain_one_and_that_before_the_catalog(catalog: Catalog, gpu: Gpu) -> None:
    terms = settled(Terms(usd_per_hour=9.0, gpu_prices_usd=(("h100", 2.49), ("NVIDIA-A100-SXM4-80GB", 1.5))), catalog)
    assert dict(terms.gpu_prices_usd) == {"h100-sxm5-80gb": 2.49, "a100-sxm4-80gb": 1.5}
    prices = [rent_of(catalog.gpu(name).gpu, terms) for name in ("h100", "a100", "l4")]
    assert [rent.usd_per_hour for rent in prices if rent is not None] == [2.49, 1.5, 9.0]
    shipped = rent_of(gpu, Terms())
    assert shipped is not None
    assert shipped.date
    assert "the middle one of" in shipped.chosen_from


def test_a_price_of_an_unknown_gpu_names_those_that_come_near(catalog: Catalog) -> None:
    with pytest.raises(UnknownName) as caught:
        settled(Terms(gpu_prices_usd=(("h10", 2.0),)), catalog)
    assert caught.value.exit_code == 5
    assert any("h100" in name for name in caught.value.nearest)


def test_one_gpu_has_one_price(catalog: Catalog) -> None:
    same = settled(Terms(gpu_prices_usd=(("h100", 2.0), ("h100-sxm", 2.0))), catalog)
    assert same.gpu_prices_usd == (("h100-sxm5-80gb", 2.0),)
    with pytest.raises(UsageError, match="two prices of h100-sxm5-80gb"):
        settled(Terms(gpu_prices_usd=(("h100", 2.0), ("h100-sxm", 3.0))), catalog)


def test_a_range_keeps_its_ends(gpu: Gpu) -> None:
    ranged = Price(provider="P", usd_per_hour=2.0, usd_per_hour_high=8.0, date="2026-10", source="S")
    rent = rent_of(replace(gpu, prices=(ranged,)), Terms())
    assert rent is not None
    assert (rent.usd_per_hour_low, rent.usd_per_hour, rent.usd_per_hour_high) == (2.0, 4.0, 8.0)
    assert rent.chosen_from == ""


def test_own_hardware_is_written_off_and_fed(gpu: Gpu) -> None:
    purchase = Purchase(gpu_usd=35_040.0, life_s=4 * YEAR_S, usd_per_kwh=0.1, pue=1.2)
    decoding, prefilling = (rent_of(gpu, Terms(purchase=purchase), prefill_fraction=share) for share in (0.0, 1.0))
    assert decoding is not None
    assert prefilling is not None
    assert decoding.usd_per_hour == pytest.approx(1.0 + 0.7 * 0.73 * 1.2 * 0.1)
    assert prefilling.usd_per_hour == pytest.approx(1.0 + 0.7 * 0.97 * 1.2 * 0.1)
    idle = rent_of(gpu, Terms(purchase=purchase), utilization_fraction=0.0)
    assert idle is not None
    assert idle.usd_per_hour == pytest.approx(1.0 + 0.7 * 0.14 * 1.2 * 0.1)
    assert "35,040 USD over 4 years" in decoding.source


def test_power_of_a_part_that_nobody_measured_is_refused_only_where_it_is_paid(gpu: Gpu) -> None:
    unknown, purchase = replace(gpu, tdp_watt=None), Purchase(gpu_usd=1000.0)
    assert rent_of(unknown, Terms(purchase=purchase)) is not None
    with pytest.raises(UsageError, match="how much h100-sxm5-80gb draws"):
        rent_of(unknown, Terms(purchase=replace(purchase, usd_per_kwh=0.1)))


GOOD = Purchase(gpu_usd=1000.0)


@pytest.mark.parametrize(
    "terms",
    [
        Terms(gpu_prices_usd=(("h100", 0.0),)),
        Terms(gpu_prices_usd=(("h100", float("nan")),)),
        Terms(purchase=GOOD, usd_per_hour=1.0),
        Terms(purchase=GOOD, gpu_prices_usd=(("h100", 1.0),)),
        Terms(purchase=Purchase(gpu_usd=0.0)),
        Terms(purchase=replace(GOOD, life_s=0.0)),
        Terms(purchase=replace(GOOD, residual_fraction=1.0)),
        Terms(purchase=replace(GOOD, usd_per_kwh=-0.1)),
        Terms(purchase=replace(GOOD, pue=0.9)),
        Terms(api=ApiPrice(input_usd=0.0, output_usd=0.0)),
        Terms(api=ApiPrice(input_usd=-1.0, output_usd=1.0)),
        Terms(api=ApiPrice(input_usd=1.0, output_usd=float("inf"))),
    ],
)
def test_terms_that_cannot_be_are_refused(catalog: Catalog, terms: Terms) -> None:
    with pytest.raises(UsageError):
        settled(terms, catalog)


def test_an_old_and_a_missing_price_are_said_and_a_fresh_or_given_one_is_not(gpu: Gpu) -> None:
    old = replace(gpu, prices=(Price(provider="P", usd_per_hour=2.0, date="2026-05", source="S"),))
    late, early, undated = Terms(today="2026-11-30"), Terms(today="2026-05-30"), Terms()
    assert "days old (2026-05)" in price_warnings(old, rent_of(old, late), late)[0]
    assert price_warnings(old, rent_of(old, early), early) == ()
    assert price_warnings(old, rent_of(old, undated), undated) == ()
    given = replace(late, usd_per_hour=2.0)
    assert price_warnings(old, rent_of(old, given), given) == ()
    none = replace(gpu, prices=())
    assert "--price h100-sxm5-80gb=USD" in price_warnings(none, rent_of(none, undated), undated)[0]


def test_a_price_that_nobody_needs_is_said() -> None:
    terms = Terms(gpu_prices_usd=(("h100-sxm5-80gb", 2.0), ("l4", 0.5)))
    assert unused_prices(terms, ["l4"]) == ("--price of h100-sxm5-80gb is not used: it is not asked for",)
    assert unused_prices(terms, ["l4", "h100-sxm5-80gb"]) == ()
