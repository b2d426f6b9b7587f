"""What no engine can do or no command can read: exit 2, with what was given, where, and the mend."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.journeys.command import infcalc

Capture = pytest.CaptureFixture[str]
MOE = ("--model", "qwen3-30b-a3b", "--gpu", "h100")


@pytest.mark.parametrize(
    ("arguments", "place", "mend"),
    [
        (
            ("memory", "--max-num-seqs", "512", "--max-num-batched-tokens", "256"),
            "--max-num-seqs: 512 sequences",
            "--max-num-seqs 256 or fewer, or --max-num-batched-tokens 512 or more",
        ),
        (("kv", "--max-num-seqs", "4096"), "the default on a100-sxm4-80gb", "--max-num-batched-tokens 4096 or more"),
        (("memory", "--mtp-tokens", "1000000", "--model", "deepseek-v3"), "--mtp-tokens: 1000000", "1 to 128"),
        (("concurrency", "--max-loras", "3"), "--max-loras: 3 adapters of no rank", "--lora-rank 16"),
        (("memory", "--lora-rank", "24"), "--lora-rank: vllm has no adapters of rank 24", "use 32"),
        (("memory", "--lora-rank", "1000"), "--lora-rank", "it takes 1, 8, 16"),
        (("memory", "--block-size", "7"), "--block-size: 7 is no block size of vllm", "1, 8 or a multiple of 16"),
        (("kv", "--block-size", "48", "--engine", "tensorrt-llm"), "--block-size: 48", "a power of two"),
        (("kv", "--block-size", "32", "--engine", "llama.cpp"), "--block-size: 32", "leave it out for llama.cpp"),
        (("memory", *MOE, "--tp", "4", "--ep", "2"), "--ep: 2 of 4 ranks", "use --ep 1 or --ep 4"),
        (("kv", "--gpus", "3"), "--gpus 3 (TP 3) cannot split llama3-70b", "1, 2, 4, 8"),
        (("kv", "--tp", "3"), "--tp 3 cannot split llama3-70b", "1, 2, 4, 8"),
        (
            ("concurrency", "--input-tokens", "normal:mean=5", "--output-tokens", "9"),
            "--input-tokens: 'normal' is no distribution",
            "lognormal:mean=500,cv=1.2",
        ),
        (
            ("memory", "--input-tokens", "5", "--output-tokens", "uniform:min=9,max=3"),
            "--output-tokens: 'uniform:min=9,max=3': min is above max",
            "uniform:min=100,max=900",
        ),
        (
            ("kv", "--engine", "sglang", "--engine-version", "..5"),
            "--engine-version: '..5' is not a version of sglang",
            "rules are known from 0.4 to 0.5.23",
        ),
        (("memory", "--input-tokens", "500"), "--output-tokens: users need both lengths", "--output-tokens"),
        (("memory", "--input-tokens", "banana"), "--input-tokens", "lognormal:mean=500,cv=1.2"),
        (("memory", "--output-tokens", "banana"), "--output-tokens: a length: 'banana'", "lognormal:mean=500,cv=1.2"),
        (("concurrency", "--users", "0"), "--users: 0 is out of range", "from 1 to 1,000,000"),
        (
            ("memory", "--context", "4k", "--input-tokens", "500", "--output-tokens", "9"),
            "--context: the lengths of requests say already",
            "leave out --context",
        ),
        (("concurrency", "--users", "99999999"), "--users: 99999999 is out of range", "from 1 to 1,000,000"),
        (("estimate", "--users", "99999999"), "--users: 99999999 is out of range", "from 1 to 1,048,576"),
        (("estimate", "--concurrency", "99999999"), "--concurrency: 99999999 is out of range", "1,048,576"),
        (("estimate", "--users", "5", "--batch", "5"), "--users: both --batch and --users", "give one"),
        (("simulate", "--users", "99999999"), "--users: 99999999 is out of range", "from 1 to 1,048,576"),
        (("workload", "--users", "99999999"), "--users: 99999999 is out of range", "from 1 to 1,048,576"),
        (("workload", "--concurrency", "99999999"), "--concurrency: 99999999 is out of range", "1,048,576"),
        (("simulate", "--users", "5", "--rate", "3"), "--users: both --rate and --users", "give one"),
        (
            ("simulate", "--users", "5", "--sweep", "rate=1"),
            "--sweep: --users is given, and rate swept",
            "drop --users",
        ),
        (("simulate", "--sweep", "users=9,99999999"), "--sweep: users: 99999999 is out of range", "1,048,576"),
        (("simulate", "--sweep", "rate=1,99999999"), "--sweep: rate: 1e+08 requests per second", "up to 1,000,000"),
        (("estimate", "--sweep", "tpp=1"), "--sweep: 'tpp' cannot be swept", "batch, concurrency, rate, users, input"),
        (("speculate", "--acceptance", "0.7,,0.5"), "--acceptance: '0.7,,0.5' has an empty item", "fill it"),
        (("kv", "--kv-dtype", "fp8,"), "--kv-dtype: 'fp8,' has an empty item", "leave out its comma"),
        (("plan", "--gpus-from", "h100,,h200"), "--gpus-from: 'h100,,h200' has an empty item", "fill it"),
        (("estimate", "--slo", "ttft=1s,,tpot=9ms"), "--slo: 'ttft=1s,,tpot=9ms' has an empty item", "fill it"),
        (("estimate", "--api-price", "in=1,,out=2"), "--api-price: 'in=1,,out=2' has an empty item", "fill it"),
        (("simulate", "--compare", "vllm,,static"), "--compare: 'vllm,,static' has an empty item", "fill it"),
        (("simulate", "--compare", "vllm,foo"), "--compare: 'foo' is not a scheduling policy", "one of static"),
        (("simulate", "--policy", "foo"), "--policy: 'foo' is not a scheduling policy", "one of static"),
        (("estimate", "--slo", "ttft=0"), "--slo: 'ttft=0': a time without a unit", "write 500ms or 500s"),
        (("plan", "--slo", "ttft-p95=0"), "--slo: 'ttft-p95=0': a time without a unit", "write 500ms or 500s"),
        (("plan", "--slo", "tpot-p95="), "--slo: 'tpot-p95=' is an objective without a limit", "tpot-p95=50ms"),
        (("plan", "--slo", "tpot-p200=1s"), "--slo: 'tpot-p200' is not a quantity", "(p1 to p99.9)"),
        (("plan", "--rate", "1e300"), "--rate: 1e+300 requests per second is out of range", "up to 1,000,000"),
        (("what-if", "--format", "plot"), "--format: infcalc what-if has no plot", "use table"),
        (("launch", "--format", "plot"), "--format: infcalc launch has no plot", "use table"),
        (("diagnose", "x", "--format", "plot"), "--format: infcalc diagnose has no plot", "use table"),
        (("compare", "x", "--format", "plot"), "--format: infcalc compare has no plot", "use table"),
        (("calibrate", "x", "--format", "plot"), "--format: infcalc calibrate has no plot", "use table"),
        (("estimate", "--slo", "ttft=20"), "--slo: 'ttft=20': a time without a unit", "write 20ms or 20s"),
        (("compare", ""), "FILE: an empty name", "- for standard input"),
        (("models", "show", " "), "NAME: an empty name", "name it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_is_refused_with_its_mend(
    capsys: Capture, arguments: tuple[str, ...], place: str, mend: str
) -> None:
    ran = infcalc(capsys, *arguments)
    assert ran.code == 2
    assert ran.out == ""
    head, hint = ran.err.rstrip().split("\n")
    assert place in head
    assert mend in hint


@pytest.mark.parametrize(
    "arguments",
    [
        ("--block-size", "48"),
        ("--block-size", "7", "--engine", "sglang"),
        ("--block-size", "64", "--engine", "tensorrt-llm"),
        ("--max-num-seqs", "512", "--max-num-batched-tokens", "512"),
        ("--max-num-seqs", "512", "--max-num-batched-tokens", "256", "--engine", "sglang"),
        (*MOE, "--tp", "4", "--ep", "4"),
        (*MOE, "--tp", "4", "--ep", "2", "--engine", "tensorrt-llm"),
        ("--lora-rank", "32", "--max-loras", "2"),
    ],
    ids=" ".join,
)
def test_what_the_engine_takes_is_answered(capsys: Capture, arguments: tuple[str, ...]) -> None:
    assert infcalc(capsys, "memory", *arguments).code == 0


def test_a_version_that_nobody_knows_is_told_with_those_that_are(capsys: Capture) -> None:
    ran = infcalc(capsys, "kv", "--engine", "sglang", "--engine-version", "nightly")
    assert ran.code == 0
    assert "sglang version 'nightly' is not known: the rules known are of 0.4 to 0.5.23" in ran.err


@pytest.mark.parametrize("command", ["models", "gpus"])
def test_a_search_that_finds_nothing_says_so(capsys: Capture, command: str) -> None:
    ran = infcalc(capsys, command, "list", "zzz")
    assert ran.code == 0
    assert "nothing in the catalog matches" in ran.out
    assert f"'zzz' in its name, id or architecture; `infcalc {command} list` lists all" in ran.err
    assert "near it: h100-" in infcalc(capsys, "gpus", "list", "h1000").err


def test_a_file_of_recorded_logs_may_come_from_standard_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "- {id: one, engine: vllm, version: '0.19', model: llama3-8b, gpu: h100, tp: 1, quality: full,\n"
    entry += "   weights_gib_per_gpu: 14.99, available_kv_gib: 53.4}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(entry.encode())))
    ran = infcalc(capsys, "validate", "memory", "-", "--json")
    assert ran.code == 0, ran.err
    assert {case["id"] for case in ran.result["cases"]} == {"one"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: [")))
    assert "standard input:2" in infcalc(capsys, "validate", "memory", "-").err


def test_an_offload_is_shown_in_its_unit(capsys: Capture) -> None:
    shown = infcalc(capsys, "memory", "--cpu-offload-gb", "10").out
    assert "given: cpu offload 10 GiB" in shown
    assert "10 GiB of the weights lie in host memory" in shown


def test_a_gate_may_pick_its_rows(capsys: Capture) -> None:
    asked = ("concurrency", "--quant", "fp16,fp8", "--require")
    assert infcalc(capsys, *asked, "rows[kv_dtype=fp8].sequences>=200").code == 0
    missed = infcalc(capsys, *asked, "rows.sequences>=200")
    assert missed.code == 4
    unknown = infcalc(capsys, *asked, "rows[kv_dtype=fp4].sequences>=200")
    assert unknown.code == 2
    assert "rows have kv_dtype: fp16, fp8" in unknown.err


@pytest.mark.parametrize(("option", "kind"), [("--model", "model"), ("--gpu", "GPU"), ("--engine", "engine")])
@pytest.mark.parametrize("name", ["bogus", "zzzz", "9"])
def test_an_unknown_name_always_comes_with_the_nearest(capsys: Capture, option: str, kind: str, name: str) -> None:
    ran = infcalc(capsys, "kv", option, name)
    assert ran.code == 5
    assert f"unknown {kind} '{name}'" in ran.err
    assert "did you mean" in ran.err


def test_what_stands_in_for_a_version_is_not_said_to_be_given(capsys: Capture) -> None:
    lead = infcalc(capsys, "memory", "--engine-version", "foo").out.splitlines()[0]
    assert "engine version" in lead.partition("given")[0]
    assert "given: engine version 0.19" in infcalc(capsys, "memory", "--engine-version", "0.19").out.splitlines()[0]


@pytest.mark.parametrize(
    ("version", "warned"),
    [
        ("0.19.1+v2", True),
        ("0.28+v2", False),
        ("0.12+v0", True),
        ("0.9+v0", False),
        ("0.7+v1", True),
        ("0.9+v1", False),
    ],
)
def test_a_runner_that_a_release_does_not_have_is_warned_of(capsys: Capture, version: str, warned: bool) -> None:
    ran = infcalc(capsys, "memory", "--engine-version", version)
    assert ran.code == 0
    assert (f"vllm {version}:" in ran.err) is warned


def test_latents_are_not_said_to_group_heads(capsys: Capture) -> None:
    for model, said in (
        ("deepseek-v3", "compressing keys and values saves"),
        ("llama3-8b", "grouping its heads saves"),
    ):
        assert said in infcalc(capsys, "kv", "--model", model).out


def test_a_gate_on_what_does_not_fit(capsys: Capture) -> None:
    ran = infcalc(capsys, "memory", "--gpu", "rtx-4090", "--gpus", "1", "--require", "sequences>=10")
    assert ran.code == 3
    assert "does not fit, and sequences>=10: found 0" in ran.err
    assert infcalc(capsys, "memory", "--require", "sequences>=100000").code == 4


def test_a_sweep_that_cannot_be_lists_only_what_the_command_sweeps(capsys: Capture) -> None:
    ran = infcalc(capsys, "simulate", "--sweep", "tpp=1,2")
    assert ran.code == 2
    hint = ran.err.splitlines()[1]
    assert hint.startswith("  hint: one of rate, concurrency, users; ")
    for variable in ("batch", "input-tokens", "tp="):
        assert variable not in hint


@pytest.mark.parametrize("command", ["compare", "diagnose", "calibrate"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ""),
        ("[]", "an empty list"),
        ('{"a": 1', "the JSON is cut off"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "GuideLLM"),
        ("hello", "GuideLLM"),
        ("\0", "not a text file"),
    ],
    ids=["nothing", "empty list", "cut off", "deep", "empty object", "prose", "binary"],
)
def test_a_file_that_is_nothing_known_is_named(
    capsys: Capture, tmp_path: Path, command: str, text: str, told: str
) -> None:
    file = tmp_path / "mine.json"
    file.write_text(text, encoding="utf-8")
    ran = infcalc(capsys, command, str(file))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {file}: ")
    assert told in ran.err
