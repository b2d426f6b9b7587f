from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.api.band_table import BANDS
from infcalc.api.bands import Era, Kind, band, class_name, era_of, pools, request_band
from infcalc.api.deployment import Ask
from infcalc.api.offer import Offer
from infcalc.api.speed import estimate
from infcalc.spec.efficiency import Basis
from tests import measured

serving_bands = measured.script("serving_bands")


@cache
def drawn() -> Any:  # noqa: ANN401 - of a script
    return serving_bands.drawn(measured.cases())


def test_the_bands_are_those_that_the_published_runs_draw() -> None:
    assert serving_bands.TABLE.read_text(encoding="utf-8") == serving_bands.table(drawn()), (
        "stale: run `python scripts/serving_bands.py`, then `make docs`"
    )


def test_a_class_of_enough_clusters_holds_eight_of_ten_held_out_figures() -> None:
    shares = serving_bands.held_out(measured.cases(), drawn())
    ample = {(table, name) for table, bands in drawn().items() for name in bands if name in set(Kind)}
    assert {(table, Kind.DENSE) for table in ("output_tokens_per_s", "tpot_s", "ttft_s")} <= ample
    assert {(table, Kind.MOE) for table in ("output_tokens_per_s", "tpot_s", "ttft_s")} <= ample
    outside = {key: share for key, share in shares.items() if key in ample and not 0.72 <= share <= 0.88}
    assert not outside


def test_no_band_leaves_out_its_own_prediction() -> None:
    for bands in BANDS.values():
        for low, high in bands.values():
            assert 0 < low < 1 < high


def test_bands_are_of_the_narrowest_class_that_enough_was_measured_of() -> None:
    narrow = class_name(Kind.DENSE, Basis.CALIBRATED, Era.EARLIER)
    assert pools(narrow) == (narrow, "NVIDIA dense, calibrated", "NVIDIA dense", "")
    assert band(narrow, "output_tokens_per_s", 100.0)[0] == 100 * BANDS["output_tokens_per_s"][narrow][0]
    unknown = class_name(Kind.OTHER, Basis.MODELLED, Era.CURRENT)
    assert band(unknown, "tpot_s", 1.0) == BANDS["tpot_s"][""]


@pytest.mark.parametrize("quantity", ["ttft_s", "tpot_s"])
def test_times_spread_further_where_requests_come_at_a_rate(quantity: str) -> None:
    calm, crowded = (band(Kind.DENSE, quantity, 1.0, at_rate=paced) for paced in (False, True))
    assert crowded[1] > calm[1]


def test_rates_have_one_band_whatever_the_load() -> None:
    calm, crowded = (band(Kind.DENSE, "output_tokens_per_s", 1.0, at_rate=paced) for paced in (False, True))
    assert crowded == calm


@pytest.mark.parametrize(
    ("engine", "version", "era"),
    [
        ("vllm", "0.7.3", Era.EARLIER),
        ("vllm", "0.11.0+cu128", Era.CURRENT),
        ("vllm", None, Era.CURRENT),
        ("tensorrt-llm", "0.17.0", Era.EARLIER),
        ("hf", None, Era.EARLIER),
        ("llama.cpp", "b4000", Era.CURRENT),
    ],
)
def test_the_era_of_an_engine_is_that_of_its_host(engine: str, version: str | None, era: Era) -> None:
    assert era_of(engine, version) is era


def test_a_band_drawn_from_one_cluster_alone_holds_nothing_held_out() -> None:
    alone = [serving_bands.Figure("a", "s", "c", value) for value in (-0.1, 0.0, 0.1)]
    assert serving_bands.held_out_coverage(alone, 0.1) == 0
    spread = [serving_bands.Figure("a", "s", str(number), number / 100) for number in range(-50, 50)]
    assert serving_bands.held_out_coverage(spread, 0.1) == pytest.approx(0.8, abs=0.03)


def test_a_cluster_of_many_runs_does_not_outweigh_the_others() -> None:
    few = [serving_bands.Figure("a", "s", str(number), 0.0) for number in range(20)]
    many = [serving_bands.Figure("a", "s", "big", 1.0) for _ in range(25)]
    assert serving_bands.quantiles([*few, *many], 0.3)[1] == 1.05


FRACTIONS = st.floats(0.01, 1)
TIMES = st.floats(1e-4, 1e4)


@given(st.tuples(TIMES, TIMES), st.tuples(FRACTIONS, st.floats(1, 50)), st.tuples(FRACTIONS, st.floats(1, 5)))
def test_no_request_ends_before_its_first_token_or_its_last(
    times: tuple[float, float], first: tuple[float, float], each: tuple[float, float]
) -> None:
    (first_s, rest_s), (low, high), (each_low, each_high) = times, first, each
    e2e_s = first_s + rest_s
    found = request_band(e2e_s, (first_s, low * first_s, high * first_s), each)
    slack = 1e-9 * e2e_s
    assert low * first_s - slack <= found[0] <= e2e_s + slack
    assert e2e_s - slack <= found[1]
    assert found[1] >= max(high * first_s, each_high * rest_s) - slack
    assert found[0] >= low * first_s + each_low * rest_s - slack
    assert found[1] <= high * first_s + each_high * rest_s + slack


@pytest.mark.parametrize(
    ("model", "load"),
    [
        ("llama3-8b", {"requests_per_s": 1.0}),
        ("llama3-8b", {"requests_per_s": 15.0}),
        ("llama3-8b", {"concurrency": 64, "output_tokens": 2}),
        ("llama3-8b", {"batch": 300, "output_tokens": 1}),
        ("gpt-oss-20b", {"concurrency": 600, "output_tokens": 10}),
        ("gpt-oss-20b", {"requests_per_s": 2.0, "output_tokens": 3}),
    ],
)
def test_bands_of_one_load_fit_together(model: str, load: dict[str, Any]) -> None:
    ask = Ask(models=(model,), gpus=("h100-sxm5-80gb",), tp=1)
    result = estimate(ask, Offer(**{"input_tokens": 1000, "output_tokens": 200} | load)).result
    first, whole, queue = result.ttft_s, result.e2e_s, result.queue_s
    assert first is not None
    assert whole is not None
    assert queue is not None
    for end in ("low", "value", "high"):
        assert getattr(queue, end) <= getattr(first, end) <= getattr(whole, end) * (1 + 1e-9)
    if result.tpot_s is not None:
        rest = result.output_tokens - 1
        assert rest * result.tpot_s.high <= whole.high * (1 + 1e-9)
