"""Money on the command line: prices by name, own hardware, an API instead, a day with hours, old prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.command import answer, infcalc

Capture = pytest.CaptureFixture[str]
SMALL = ("-m", "llama3.1-8b", "-g", "h100", "-n", "1", "--concurrency", "8")
STALE = "gpus:\n  h100: {price: {value: 2.5 USD/h, provider: X, date: 2026-05, source: Y}}\n"


def test_prices_by_name_hold_for_their_gpu(capsys: Capture) -> None:
    ran = answer(capsys, "estimate", *SMALL, "-g", "l4", "--price", "h100=2.49", "--price", "0.7")
    hours = {row["gpu"]: row["usd_per_hour"] for row in ran.result["side_by_side"]}
    assert hours == {"h100-sxm5-80gb": 2.49, "l4": 0.7}
    assert not [text for text in ran.document["warnings"] if "price" in text]


@pytest.mark.parametrize("command", ["estimate", "simulate", "batching", "prefix-cache"])
def test_every_command_with_money_says_that_a_price_is_old_or_missing(
    capsys: Capture, tmp_path: Path, command: str
) -> None:
    overlay = tmp_path / "old.yaml"
    overlay.write_text(STALE, encoding="utf-8")
    quickly = () if command == "estimate" else ("--requests" if command != "simulate" else "--num-requests", "20")
    common = ("-m", "llama3.1-8b", "-n", "1", *quickly)
    told = answer(capsys, command, *common, "-g", "h100", "--catalog", str(overlay)).document["warnings"]
    assert [text for text in told if "213 days old (2026-05)" in text and "--price h100-sxm5-80gb=USD" in text]
    told = answer(capsys, command, *common, "-g", "gaudi3").document["warnings"]
    assert [text for text in told if "no price of gaudi3" in text]
    told = answer(capsys, command, *common, "-g", "h100").document["warnings"]
    assert not [text for text in told if "price" in text]


def test_the_day_is_that_of_the_environment(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1830000000")
    told = answer(capsys, "estimate", *SMALL).document["warnings"]
    assert any("days old" in text for text in told)


def test_the_list_of_gpus_says_which_prices_are_old(capsys: Capture) -> None:
    told = answer(capsys, "gpus", "list").document["warnings"]
    assert len(told) == 1
    assert "a10g" in told[0]
    assert "h100" not in told[0]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--price", "h10=2"), 5, "h100"),
        (("--price", "=2"), 2, "names no GPU"),
        (("--price", "h100=cheap"), 2, "not a price"),
        (("--price", "2", "--price", "3"), 2, "2 prices without a GPU"),
        (("--price", "h100=2,h100-sxm=3"), 2, "two prices"),
        (("--capex", "30000", "--price", "2"), 2, "rented or owned"),
        (("--capex", "0"), 2, "--capex"),
        (("--years", "3"), 2, "--years without --capex"),
        (("--power-price", "0.1"), 2, "--power-price without --capex"),
        (("--capex", "30000", "--pue", "0.5"), 2, "--pue"),
        (("--api-price", "in=1"), 2, "both prompt and answer"),
        (("--api-price", "in=1,out=x"), 2, "not a price"),
        (("--api-price", "in=1,in=2,out=1"), 2, "given twice"),
        (("--api-price", "input tokens=1"), 2, "no kind of token"),
        (("--peak", "3"), 2, "--peak without --profile"),
        (("--start-up", "5min"), 2, "--start-up without --profile"),
        (("--profile", "nothing.csv"), 2, "nothing.csv"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    capsys: Capture, arguments: tuple[str, ...], code: int, told: str
) -> None:
    ran = infcalc(capsys, "estimate", *SMALL, *arguments)
    assert ran.code == code
    assert told in ran.err


def test_a_price_that_nobody_needs_is_said(capsys: Capture) -> None:
    told = answer(capsys, "estimate", *SMALL, "--price", "h100=2,b200=5").document["warnings"]
    assert told == ["--price of b200-sxm-180gb is not used: it is not asked for"]


def test_an_api_and_own_hardware_are_held_against_each_other(capsys: Capture) -> None:
    given = (*SMALL, "--capex", "30000", "--years", "4", "--residual", "0.1", "--power-price", "0.12", "--pue", "1.3")
    ran = answer(capsys, "estimate", *given, "--api-price", "in=0.05,out=0.1,cached=0.01", "--explain")
    met = ran.result["break_even"]
    assert set(met["capacity_fraction"]) == {"value", "low", "high", "basis"}
    explained = {one["quantity"]: one for one in ran.document["explanations"]}
    assert "30,000 x (1 - 0.1) / (4 x 8760)" in explained["usd_per_gpu_hour"]["substituted"]
    assert {"usd_per_month", "break_even.capacity_fraction", "kwh_per_million_output_tokens"} <= set(explained)
    shown = infcalc(capsys, "estimate", *given, "--api-price", "in=0.05,out=0.1")
    assert "the API asks" in shown.out
    assert "Where GPUs and API cost the same" in shown.out


def test_a_gate_on_a_price_is_one_at_the_stated_utilisation(capsys: Capture) -> None:
    given = (*SMALL, "--price", "3", "--utilization", "0.1", "--api-price", "in=1,out=2")
    full = answer(capsys, "estimate", *given).result["at_full"]["full_usd_per_million_output_tokens"]["value"]
    for key, code in (("usd_per_million_output_tokens", 0), ("full_usd_per_million_output_tokens", 4)):
        assert infcalc(capsys, "estimate", *given, "--require", f"{key}>={5 * full}").code == code
    assert infcalc(capsys, "estimate", *given, "--require", "utilization_fraction==0.1").code == 0


def test_a_day_has_its_bill_with_and_without_autoscaling(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "day.csv"
    file.write_text("time,rate\n00:00,1\n08:00,20\n20:00,4\n", encoding="utf-8")
    given = (*SMALL, "--price", "3", "--profile", str(file), "--start-up", "5min")
    bill = answer(capsys, "estimate", *given).result["bill"]
    assert bill["starts_s"] == [0, 28_800, 72_000]
    assert bill["scaled_usd_per_month"]["value"] < bill["fixed_usd_per_month"]["value"]
    shown = infcalc(capsys, "estimate", *given)
    assert "over the day" in shown.out
    assert "08:00" in shown.out
    csv = infcalc(capsys, "estimate", *given, "--format", "csv").out
    assert f"{bill['scaled_usd_per_month']['value']}" in csv
    both = infcalc(capsys, "estimate", "-m", "llama3.1-8b", "-n", "1", "--sweep", "rate=1..2", "--profile", str(file))
    assert both.code == 2
    assert "a sweep and a profile" in both.err


def test_faults_of_a_profile_come_with_their_lines(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "day.csv"
    file.write_text("hour,rate\nx,1\n2,y\n", encoding="utf-8")
    ran = infcalc(capsys, "estimate", *SMALL, "--profile", str(file))
    assert ran.code == 2
    assert "2 faults in the profile" in ran.err
    assert "line 2" in ran.err
    assert "line 3" in ran.err


def test_the_month_of_a_simulation_is_that_of_all_its_replicas(capsys: Capture) -> None:
    result = answer(
        capsys, "simulate", "-m", "llama3.1-8b", "-g", "h100", "-n", "1", "--num-requests", "20", "--replicas", "2",
        "--price", "3",
    ).result  # fmt: skip
    assert result["usd_per_month"] == pytest.approx(2 * 3 * 730)
