"""``infcalc report``: documents, how they are refused, and that each part can be had again by its own command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from infcalc.cli.app import run
from tests.journeys.command import Ran, infcalc

Capture = pytest.CaptureFixture[str]
QUICK = ("--gpus-from", "h100", "--confirm", "0")


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(ran: Ran, code: int, *texts: str) -> None:
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "hint: " in ran.err
    for text in texts:
        assert text in ran.err


def test_it_answers_with_no_option_at_all(capsys: Capture) -> None:
    ran = infcalc(capsys, "report")
    assert ran.code == 0
    assert ran.out.startswith("# Capacity review: llama3-70b on 4 x a100-sxm4-80gb\n")
    assert "\n- **Load**: 100 users; prompts of 2,048 tokens, answers of 2,048 tokens\n" in ran.out
    assert "\n- **Date**: 2026-11-30\n" in ran.out
    assert "confirmed by simulation" in ran.out
    assert all(line.startswith("warning: ") for line in ran.err.splitlines())


@pytest.mark.parametrize(
    ("name", "begins"), [("a.html", "<!doctype html>\n"), ("a.md", "# Capacity review: "), ("a.json", "{\n")]
)
def test_the_file_is_of_the_kind_that_its_ending_says(capsys: Capture, name: str, begins: str) -> None:
    Path(name).write_text("before", encoding="utf-8")
    ran = infcalc(capsys, "report", *QUICK, "--output", name)
    assert (ran.code, ran.out, ran.err) == (0, "", f"wrote {name}\n")
    assert Path(name).read_text(encoding="utf-8").startswith(begins)


def test_a_page_is_the_same_each_time(capsys: Capture) -> None:
    first, second = (infcalc(capsys, "report", *QUICK, "--format", "html").out for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (("--output", "none/a.html"), ("does not exist",)),
        (("--output", "."), ("directory",)),
        (("--output", "a.pdf"), ("--output", ".html")),
        (("--format", "table"), ("--format", "html, markdown, json")),
        (("-m", "llama3-8b", "-m", "llama3-70b"), ("--model", "one deployment")),
        (("-g", "h100", "-g", "h200"), ("--gpu", "--gpus-from")),
        (("--users", "5", "--rate", "2"), ("--rate",)),
        (("--users", "0"), ("--users",)),
        (("--slo", "ttft-p95"), ("--slo",)),
        (("--sweep", "colour=1..3"), ("--sweep",)),
        (("--require", "fits"), ("--require",)),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(
    capsys: Capture, arguments: tuple[str, ...], texts: tuple[str, ...]
) -> None:
    refused(infcalc(capsys, "report", *QUICK, *arguments), 2, *texts)
    assert not list(Path.cwd().iterdir())


def test_unknown_names_end_with_5(capsys: Capture) -> None:
    refused(infcalc(capsys, "report", "-m", "lama3-70b"), 5, "llama3-70b")
    refused(infcalc(capsys, "report", "--gpus-from", "h1000", "--confirm", "0"), 5, "h100")


def test_what_does_not_fit_is_a_document_with_exit_3(capsys: Capture) -> None:
    ran = infcalc(capsys, "report", *QUICK, "-n", "1", "--output", "a.html")
    assert ran.code == 3
    text = Path("a.html").read_text(encoding="utf-8")
    assert "does not fit" in text
    assert "What would make it fit" in text


def test_limits_that_are_not_kept_are_a_document_with_exit_4(capsys: Capture) -> None:
    ran = infcalc(capsys, "report", *QUICK, "-m", "llama3-8b", "-g", "l4", "-n", "1", "--slo", "tpot-p95=10ms")
    assert ran.code == 4
    assert "**limits not kept**" in ran.out
    assert infcalc(capsys, "report", *QUICK, "--require", "memory.sequences>=1e6").code == 4
    assert infcalc(capsys, "report", *QUICK, "--require", "memory.sequences>=1").code == 0


def test_without_a_price_of_the_gpu_it_says_so_and_takes_one(capsys: Capture) -> None:
    few = ("-m", "llama3-8b", "-g", "a30", "-n", "1", "--users", "4", "--slo", "tpot-p95=100ms")
    ran = infcalc(capsys, "report", *QUICK, *few)
    assert ran.code == 0
    assert "**not weighed without a price**" in ran.out
    assert "how many replicas 4 users take is not weighed, for no price of a30 is known" in ran.out
    assert "**limits kept with 1 replica**" in infcalc(capsys, "report", *QUICK, *few, "--price", "a30=0.5").out


def test_prices_of_one_gpu_and_of_others_are_used_without_a_warning(capsys: Capture) -> None:
    ran = infcalc(capsys, "report", *QUICK, "--price", "a100-80gb=1", "--price", "h100=2", "--json")
    result = json.loads(ran.out)["result"]
    assert result["as_deployed"]["plans"][0]["usd_per_hour"]["value"] == 4.0
    assert result["plan"]["plans"][0]["usd_per_hour"]["value"] == 2.0 * result["plan"]["plans"][0]["total_gpus"]
    assert not [text for text in json.loads(ran.out)["warnings"] if "not used" in text]


CASES = {
    "nothing": (),
    "users who think": ("--users", "300", "--think-time", "20s", "--input-tokens", "1000", "--output-tokens", "300"),
    "rate": ("-m", "llama3-8b", "-g", "h100", "-n", "1", "--rate", "7.77", "--slo", "ttft-p95=1s,e2e=30s"),
    "distributions": (
        *("-m", "llama3-8b", "-g", "h200", "-n", "1", "--users", "700", "--input-tokens", "lognormal:mean=500,cv=1"),
        *("--output-tokens", "250", "--prefix-hit", "0.3", "--headroom", "20%", "--spare", "N+1"),
    ),
    "pipeline": (
        "-g",
        "h100",
        "-n",
        "4",
        "--tp",
        "2",
        "--pp",
        "2",
        "--weights",
        "fp8",
        "--quant",
        "fp8",
        "--rate",
        "0.2",
    ),
    "experts": ("-m", "qwen3-30b-a3b", "-g", "h100", "--tp", "1", "--dp", "2", "--ep", "2", "--users", "40"),
    "experts at a rate": ("-m", "qwen3-30b-a3b", "-g", "h100", "-n", "2", "--engine", "sglang", "--rate", "5"),
    "another sweep": ("-m", "llama3-8b", "-g", "h100", "--sweep", "tp=1,2,4,3", "--rate", "4", "--allow", "fp8"),
    "a price and a budget": ("--price", "2.5", "--budget", "90000/month", "--api-price", "in=0.5,out=1.5"),
    "too large": ("-n", "1"),
    "drafting": ("-m", "llama3.1-8b", "-g", "h100", "-n", "1", "--users", "20", "--method", "eagle3"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_part_can_be_had_again_by_its_own_command(capsys: Capture, name: str) -> None:
    ran = infcalc(capsys, "report", *QUICK, *CASES[name], "--json")
    assert ran.code in {0, 3, 4}, ran.err
    result = json.loads(ran.out)["result"]
    for part, command in ((one["part"], shlex.split(one["command"])) for one in result["reruns"]):
        assert command[0] == "infcalc"
        if part == "the whole report":
            assert command[-2:] == ["--output", "capacity.html"]
            assert {**again(capsys, command[1:-2]), "reruns": []} == {**result, "reruns": []}
            continue
        found = again(capsys, command[1:])
        match part.partition(",")[0], part.partition(", ")[2]:
            case ("estimate", "of the curve"):
                assert found["sweep"] == result["curve"]
            case ("plan", "as deployed"):
                assert found == result["as_deployed"]
            case (key, _):
                assert found == result[key]
    parts = [one["part"].partition(",")[0] for one in result["reruns"]]
    assert set(parts) == {"memory", "roofline", "estimate", "plan", "the whole report"}


def test_drafting_and_the_prefix_cache_are_choices_of_the_plans_on_offer_alone(capsys: Capture) -> None:
    ran = infcalc(capsys, "report", *QUICK, *CASES["drafting"], "--prefix-hit", "0.5")
    assert ran.code == 0, ran.err
    assert "\n- drafting is a choice of the plans on offer: the deployment itself is reviewed without it\n" in ran.out
    own, offered = ran.out.partition("## Plans and prices\n")[2].split("\nOn offer: ")
    assert "eagle3" not in own
    assert "\n- prefix-cache: " in own
    assert "\n- speculation: 1 x h100-sxm5-80gb (eagle3, " in offered
    assert "rent 1 x h100-sxm5-80gb with eagle3 (" in ran.out
    assert "  eagle3 " in offered


def again(capsys: Capture, command: list[str]) -> dict[str, Any]:
    ran = infcalc(capsys, *command, "--json")
    assert ran.code in {0, 3, 4}, (command, ran.err)
    found: dict[str, Any] = json.loads(ran.out)["result"]
    return found


def test_commands_are_quoted_for_a_shell(capsys: Capture) -> None:
    name = "our team's $prices; rm -rf.yaml"
    Path(name).write_text("gpus:\n  h100:\n    bandwidth: 3000 GB/s\n", encoding="utf-8")
    ran = infcalc(capsys, "report", *QUICK, "--catalog", name, "--json")
    assert ran.code == 0, ran.err
    for one in json.loads(ran.out)["result"]["reruns"]:
        assert name in shlex.split(one["command"])


def test_the_load_is_shared_out_over_the_replicas_that_it_takes(capsys: Capture) -> None:
    result = again(capsys, ["report", *QUICK, "--users", "500"])
    replicas = result["as_deployed"]["plans"][0]["replicas"]
    assert replicas > 1
    assert result["share_per_replica"] == -(-500 // replicas)
    assert result["share_per_replica"] in [point["value"] for point in result["curve"]["points"]]


def test_an_interruption_leaves_no_file(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("infcalc.cli.report.report", interrupted)
    assert run(["report", "--output", "a.html"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not Path("a.html").exists()
