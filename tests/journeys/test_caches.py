"""``infcalc paging`` and ``infcalc prefix-cache`` as a person and a script meet them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from tests.journeys.command import answer, infcalc

Capture = pytest.CaptureFixture[str]
FEW = ("paging", "--requests", "200", "--pool-tokens", "20k")
SHORT = ("prefix-cache", "--requests", "100", "--prefix-tokens", "200", "--input-tokens", "50")


def test_promised_keys_of_paging_are_there(capsys: Capture) -> None:
    result = answer(capsys, *FEW).result
    for row in result["allocators"]:
        assert {"allocator", "waste_fraction", "rejected", "peak_sequences"} <= set(row)
    assert any("paged" in row["allocator"] for row in result["allocators"])
    assert {"bytes_without", "bytes_with", "copies_on_write"} <= set(result["shared_prefix"])
    assert result["pool_tokens"] == 20 * 1024


def test_promised_keys_of_prefix_cache_are_there(capsys: Capture) -> None:
    result = answer(capsys, *SHORT).result
    promised = {"hit_rate_requests_fraction", "hit_rate_tokens_fraction", "evictions", "prefill_saved_s"}
    assert promised <= set(result)
    assert {"gpu_saved_s_per_s", "saved_usd_per_hour"} <= set(result["saving"])


def test_the_screen_says_what_csv_and_json_hold(capsys: Capture) -> None:
    result = answer(capsys, *FEW).result
    rows = list(csv.DictReader(io.StringIO(infcalc(capsys, *FEW, "--format", "csv").out)))
    assert [float(row["waste_fraction"]) for row in rows] == [row["waste_fraction"] for row in result["allocators"]]
    screen = infcalc(capsys, *FEW).out
    for row in result["allocators"]:
        (line,) = (text for text in screen.splitlines() if text.startswith(row["allocator"]))
        assert f"{100 * row['waste_fraction']:.1f} %" in line
        assert f"{row['rejected']:,}" in line
    assert "49 blocks are copied on write" in screen


def test_the_bound_is_stated(capsys: Capture) -> None:
    screen = " ".join(infcalc(capsys, *SHORT).out.split())
    assert "no cache finds more than 55.0 % and 44.0 %" in screen
    assert "(sharing requests - prefixes) / requests" in screen


def test_gates_reach_both(capsys: Capture) -> None:
    assert infcalc(capsys, *FEW, "--require", "copies_on_write>=49").code == 0
    assert infcalc(capsys, *SHORT, "--require", "hit_rate_requests_fraction>0.54").code == 0
    assert infcalc(capsys, *SHORT, "--max-entries", "1", "--require", "hit_rate_requests_fraction>0.54").code == 4


def test_several_deployments_stand_side_by_side(capsys: Capture) -> None:
    both = ("-m", "llama3-8b", "-m", "mistral-7b", "-g", "h100", "-n", "1")
    for command in (FEW, SHORT):
        found = answer(capsys, *command, *both).result["side_by_side"]
        assert [one["model"] for one in found] == ["llama3-8b", "mistral-7b-v0.3"]
        assert "mistral-7b" in infcalc(capsys, *command, *both).out


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ((*SHORT, "--policy", "mru"), "--policy"),
        ((*SHORT, "--index", "trie"), "--index"),
        ((*SHORT, "--engine", "vllm", "--max-entries", "10"), "--max-entries"),
        ((*FEW, "--block-size", "17"), "--block-size"),
    ],
)
def test_what_is_not_known_is_refused(capsys: Capture, arguments: tuple[str, ...], place: str) -> None:
    ran = infcalc(capsys, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert place in ran.err
    assert "hint: " in ran.err


@pytest.mark.parametrize("command", ["paging", "prefix-cache", "batching", "roofline", "kv"])
def test_a_plot_without_a_file_is_told_the_commands_own(capsys: Capture, command: str) -> None:
    few = {"paging": FEW, "prefix-cache": SHORT}.get(command, (command,))
    ran = infcalc(capsys, *few, "--format", "plot")
    assert ran.code == 2
    assert f"--output {command}.png" in ran.err


def test_models_without_pages_answer_in_every_format_and_have_no_picture(capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for command in (FEW, SHORT):
        asked = (*command, "-m", "falcon-mamba-7b")
        for form in ("table", "json", "csv", "markdown"):
            assert infcalc(capsys, *asked, "--format", form).code == 0
        ran = infcalc(capsys, *asked, "--format", "plot", "--output", str(tmp_path / "x.png"))
        assert ran.code == 2
        assert "nothing to draw" in ran.err


def test_a_pool_that_is_too_small_can_be_drawn(capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    asked = ("paging", "--requests", "20", "--pool-tokens", "15")
    ran = infcalc(capsys, *asked, "--format", "plot", "--output", str(tmp_path / "x.png"))
    assert ran.code == 3
    assert infcalc(capsys, *asked, "--require", "waste_fraction<0.04").code == 3
