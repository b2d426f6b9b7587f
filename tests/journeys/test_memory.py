"""``infcalc memory``: what it is held to, what it refuses, and what other tools get wrong."""

from __future__ import annotations

from typing import Any

import pytest

from infcalc.api import Ask, concurrency, memory
from infcalc.units import GIB
from tests.journeys.command import answer
from tests.journeys.command import infcalc as run

Capture = pytest.CaptureFixture[str]
KEYS = (
    "weights_bytes activation_bytes non_torch_bytes cuda_graph_bytes usable_bytes kv_pool_bytes kv_blocks "
    "kv_cache_tokens max_concurrency sequences needed_bytes fits kv_pool_bytes_low kv_pool_bytes_high sequences_low "
    "sequences_high"
)


def test_the_reference_scenario(capsys: Capture) -> None:
    result = answer(capsys, "memory").result
    assert set(KEYS.split()) <= set(result)
    assert result["fits"] is True
    assert 115 <= result["sequences"] <= 121
    assert result["sequences_low"] < result["sequences"] < result["sequences_high"]
    parts = (
        "weights_bytes",
        "activation_bytes",
        "non_torch_bytes",
        "cuda_graph_bytes",
        "kv_pool_bytes",
    )
    assert sum(result[part] for part in parts) == result["usable_bytes"]
    assert result["kv_cache_tokens"] == pytest.approx(result["max_concurrency"] * result["max_model_len"], abs=1)
    at_nine_tenths = answer(capsys, "memory", "--memory-fraction", "0.9").result
    assert 110 <= at_nine_tenths["sequences"] <= 115


def test_deepseek_v3_does_not_fit_on_eight_h100(capsys: Capture) -> None:
    ran = answer(capsys, "memory", "-m", "deepseek-v3", "-g", "h100", "-n", "8", "-c", "4k", code=3)
    assert 78 <= ran.result["weights_bytes"] / GIB <= 80
    assert ran.result["fits"] is False
    assert ran.result["missing_bytes"] > 5 * GIB
    assert "--gpus 16 (TP 16)" in {change["change"] for change in ran.result["changes"]}
    assert any("does not fit" in warning for warning in ran.document["warnings"])


def test_deepseek_v3_on_eight_h200(capsys: Capture) -> None:
    # A public answer was 1,376: the latent was split over TP, which every rank holds in full.
    result = answer(capsys, "memory", "-m", "deepseek-v3", "-g", "h200", "-n", "8", "-c", "4k").result
    assert 130 <= result["sequences"] <= 185


def test_every_change_is_what_the_same_ledger_says(capsys: Capture) -> None:
    asked = ("-m", "llama3.1-70b", "-g", "a100-80gb", "-n", "2", "--max-model-len", "131072")
    ran = answer(capsys, "memory", *asked, code=3)
    changes = {change["change"]: change for change in ran.result["changes"]}
    assert changes
    for text, change in changes.items():
        flags = text.partition(" (")[0].split()
        given = [word for word in ("-m", "llama3.1-70b", "-g", "a100-80gb", "-n", "2") if not text.startswith("--gpus")]
        given = given or ["-m", "llama3.1-70b", "-g", "a100-80gb"]
        length = () if "--max-model-len" in text else ("--max-model-len", str(ran.result["max_model_len"]))
        again = answer(capsys, "memory", *given, *flags, *length).result
        assert again["fits"] is True, text
        assert again["kv_pool_bytes"] == change["kv_pool_bytes"], text


def test_concurrency_and_memory_are_one_truth() -> None:
    for ask in (
        Ask(models=("llama3-8b",), gpus=("l40s",), num_gpus=1, kv_dtypes=("bf16",)),
        Ask(models=("qwen3-next-80b",), gpus=("h200",), num_gpus=2, kv_dtypes=("fp8",)),
        Ask(models=("gpt-oss-120b",), gpus=("h100",), num_gpus=2, kv_dtypes=("bf16",), max_num_seqs=64),
        Ask(models=("llama3-70b",), gpus=("a100-80gb",), tp=4, pp=2, kv_dtypes=("bf16",)),
    ):
        one, other = memory(ask, contexts=(4096,)).result, concurrency(ask, contexts=(4096,)).result
        assert one.kv_pool_bytes == other.rows[0].kv_pool_bytes
        assert abs(one.sequences - other.rows[0].sequences) <= 1
        # `memory` counts what the engine prints; `concurrency` the tensors alone.
        assert one.weights_bytes - one.loading_bytes == other.weights_bytes
        assert one.loading_bytes == other.loading_bytes


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("--max-model-len", "1M"), "--max-model-len"),
        (("--memory-fraction", "1.5"), "--memory-fraction"),
        (("--tp", "3"), "--tp"),
        (("--pp", "200", "--tp", "1"), "--pp"),
        (("--ep", "2"), "--ep"),
        (("--mtp-tokens", "2"), "--mtp-tokens"),
    ],
)
def test_what_cannot_be_is_refused_with_the_mend(capsys: Capture, arguments: tuple[str, ...], place: str) -> None:
    ran = run(capsys, "memory", *arguments)
    assert ran.code == 2
    assert place in ran.err
    assert "hint:" in ran.err


def test_a_context_beyond_the_model_only_warns(capsys: Capture) -> None:
    ran = answer(capsys, "memory", "-c", "64k")
    assert any("beyond it" in warning for warning in ran.document["warnings"])


def test_a_version_beyond_all_known_takes_the_newest(capsys: Capture) -> None:
    ran = answer(capsys, "memory", "--engine-version", "0.99")
    assert any("0.33" in warning for warning in ran.document["warnings"])
    core = answer(capsys, "memory", "--engine-version", "0.9.x (V0)").document["inputs"]["engine_version"]
    assert core["value"] == "0.9+v0"


def test_an_engine_that_refuses_its_own_length_is_warned_of(capsys: Capture) -> None:
    ran = answer(capsys, "memory", "-m", "llama3.1-8b", "-g", "rtx-4090", "-n", "1")
    assert ran.result["max_model_len"] < 131_072
    assert any("--max-model-len" in warning for warning in ran.document["warnings"])
    refused = answer(
        capsys, "memory", "-m", "llama3.1-8b", "-g", "rtx-4090", "-n", "1", "--max-model-len", "131072", code=3
    )
    assert any(change["change"].startswith("--max-model-len") for change in refused.result["changes"])


def test_drafts_adapters_and_pictures_are_lines(capsys: Capture) -> None:
    def lines(*arguments: str) -> dict[str, Any]:
        result = answer(capsys, "memory", "-m", "qwen3.8-27b", "-g", "h100", "-n", "1", *arguments).result
        return {line["name"]: line["num_bytes"] for line in result["lines"]} | {"pool": result["kv_pool_bytes"]}

    plain = lines()
    assert plain["towers"] > GIB / 2
    assert lines("--mtp-tokens", "1")["weights"] - plain["weights"] == pytest.approx(0.79 * GIB, rel=0.02)
    assert lines("--lora-rank", "16", "--max-loras", "4")["lora"] == 4 * lines("--lora-rank", "16")["lora"] > 0
    assert lines("--text-only", "--max-num-seqs", "8")["activation"] < plain["activation"]
    # Few sequences: what the engine admits of them, and with it the activation, does not depend on the pool.
    few = ("--max-num-seqs", "8")
    assert lines("--cpu-offload-gb", "10", *few)["pool"] - lines(*few)["pool"] == pytest.approx(10 * GIB, rel=0.02)


def test_the_bar_and_the_table(capsys: Capture) -> None:
    text = run(capsys, "memory").out
    assert "[WWW" in text
    assert "KKK" in text
    assert "left alone" in text
    markdown = run(capsys, "memory", "--format", "markdown").out
    assert "| weights |" in markdown


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llama.cpp"])
def test_every_engine_answers(capsys: Capture, engine: str) -> None:
    result = answer(capsys, "memory", "-m", "llama3.1-8b", "-g", "h100", "-n", "1", "--engine", engine).result
    assert result["fits"] is True
    assert result["kv_pool_bytes"] > 30 * GIB
    assert result["sequences"] > 50


def test_side_by_side_and_gates(capsys: Capture) -> None:
    both = answer(capsys, "memory", "-m", "llama3-8b", "-g", "h100", "-g", "h200", "-n", "1").result
    assert [one["gpu"] for one in both["side_by_side"]] == ["h100-sxm5-80gb", "h200-sxm-141gb"]
    assert run(capsys, "memory", "--require", "sequences>=1000").code == 4
    assert run(capsys, "memory", "--require", "sequences>=100").code == 0


def test_validate_memory(capsys: Capture) -> None:
    ran = answer(capsys, "validate", "memory", "tests/published/memory_logs.yaml")
    assert {"cases", "summary"} <= set(ran.result)
    case = ran.result["cases"][0]
    assert set(case) >= {"id", "status", "reason", "quantity", "measured", "predicted", "low", "high", "error_fraction"}
    wrong = run(capsys, "validate", "serving", "tests/published/memory_logs.yaml")
    assert wrong.code == 2
    assert run(capsys, "validate", "memory", "nowhere.yaml").code == 2


@pytest.mark.parametrize(
    "options",
    [
        "-m llama3-70b -g h100 -n 4 --block-size 64 -c 1000",
        "-m gemma3-27b -g h100 -n 1 --engine llama.cpp --max-model-len 131072",
        "-m gemma3-27b -g h100 -n 1 --engine vllm",
        "-m gpt-oss-120b -g h100 -n 2 --engine sglang -c 8192",
        "-m gpt-oss-120b -g h100 -n 1 --engine trtllm -c 8192",
        "-m deepseek-v4-flash -g h200 -n 4 -c 8192",
        "-m deepseek-v3 -g h200 -n 8 --dcp 8",
        "-m qwen3-next-80b -g h100 -n 4",
        "-m mamba-2.8b -g h100 -n 1",
        "-m llama3-8b -g a100 --tp 2 --pp 2 --dp 2",
    ],
)
def test_all_commands_count_the_same_sequences(capsys: pytest.CaptureFixture[str], options: str) -> None:
    asked = [*options.split(), "--kv-dtype", "bf16", "--json"]
    counts = []
    for command in ("memory", "kv", "concurrency"):
        found = run(capsys, command, *asked).result
        row = found.get("rows", [found])[0]
        counts.append((row["sequences"], row["sequences_low"], row["sequences_high"], found.get("kv_pool_bytes")))
    assert counts[0] == counts[1]
    assert counts[0][:3] == counts[2][:3]
    assert counts[0][0] > 0


def test_the_second_pool_of_sglang_holds_four_fifths_of_the_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    # Half of the 36 layers of gpt-oss keep windows: a token costs 18 + 0.8 x 18 layers of 1,024 bytes on a rank.
    options = "-m gpt-oss-120b -g h100 -n 2 --engine sglang -c 8192 --kv-dtype bf16 --json"
    found = run(capsys, "memory", *options.split()).result
    assert found["kv_cache_tokens"] == found["kv_pool_bytes"] // round(18 * 1024 * 1.8)
    assert found["sequences"] == found["kv_cache_tokens"] // 8192


# What would make it fit, by engine


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        (("-m", "llama3-70b", "-g", "h100", "-n", "2", "--engine", "sglang", "--memory-fraction", "0.8"), "0.9"),
        (("--memory-fraction", "0.4"), "0.5"),
        (
            ("-m", "llama3-8b", "-g", "h100", "-n", "1", "--engine", "tensorrt-llm", "--memory-fraction", "0.005"),
            "0.5",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_higher_fraction_is_tried_in_the_words_of_each_engine(
    capsys: Capture, asked: tuple[str, ...], flag: str
) -> None:
    asked = (*asked, "--max-model-len", "4k")
    found = answer(capsys, "memory", *asked, code=3).result
    words = {
        "vllm": "--gpu-memory-utilization",
        "sglang": "--mem-fraction-static",
        "tensorrt-llm": "--free_gpu_memory_fraction",
    }
    changes = {change["change"]: change for change in found["changes"]}
    change = changes[f"{words[found['engine']]} {flag}"]
    again = answer(capsys, "memory", *asked, "--memory-fraction", flag).result
    for key in change:
        if key != "change":
            assert again[key] == change[key], key


def test_a_fraction_that_starves_what_lives_outside_it_is_no_mend(capsys: Capture) -> None:
    asked = ("-m", "qwen3-235b-a22b", "-g", "h100", "-n", "4", "--weights", "fp8", "--engine", "sglang")
    found = answer(capsys, "memory", *asked, "--max-num-batched-tokens", "262144", "--memory-fraction", "0.5", code=3)
    shares = [change["change"] for change in found.result["changes"] if "--mem-fraction-static" in change["change"]]
    assert all(float(share.split()[1]) < 0.95 for share in shares)


def test_tp_alone_is_tried_on_the_same_gpus(capsys: Capture) -> None:
    asked = ("-m", "llama3-70b", "-g", "a100-80gb")
    found = answer(capsys, "memory", *asked, "--tp", "1", "--dp", "4", code=3).result
    changes = {change["change"]: change for change in found["changes"]}
    change = changes["--tp 4 --pp 1 --dp 1 on the same GPUs"]
    assert change["sequences"] == answer(capsys, "memory", *asked, "--tp", "4").result["sequences"]
    assert not any("same GPUs" in text for text in _texts(answer(capsys, "memory", *asked, "--tp", "1", code=3)))


def _texts(ran: Any) -> list[str]:  # noqa: ANN401 - what a command ran
    return [change["change"] for change in ran.result["changes"]]


# Bands


DEPLOYMENTS = (
    ("--engine", "vllm"),
    ("--engine", "sglang"),
    ("--engine", "tensorrt-llm"),
    ("--engine", "llama.cpp"),
    ("--gpus", "2"),
    ("--gpus", "2", "--engine", "tensorrt-llm", "--max-model-len", "8k"),
    ("--gpus", "2", "--engine", "sglang"),
    ("--gpus", "1"),
    ("--gpus", "4", "--pp", "2"),
)


@pytest.mark.parametrize("asked", DEPLOYMENTS, ids=" ".join)
def test_what_is_modelled_lies_within_its_band(asked: tuple[str, ...]) -> None:
    words = dict(zip(asked[::2], asked[1::2], strict=True))
    ask = Ask(
        engine=words.get("--engine"),
        num_gpus=int(words.get("--gpus", "4")),
        pp=int(words.get("--pp", "1")),
    )
    result = memory(ask).result
    banded = [name.removesuffix("_low") for name in result.__dataclass_fields__ if name.endswith("_low")]
    assert {"needed_bytes", "missing_bytes", "kv_blocks", "reserve_bytes", "kv_pool_bytes"} <= set(banded)
    for part in (result, *result.changes):
        for name in banded:
            if hasattr(part, name) and getattr(part, name) is not None:
                low, value, high = (getattr(part, f"{name}{end}") for end in ("_low", "", "_high"))
                assert low <= value <= high, name
    counted = concurrency(ask).result
    for name in ("activation_bytes", "non_torch_bytes", "cuda_graph_bytes", "missing_bytes"):
        low, value, high = (getattr(counted, f"{name}{end}") for end in ("_low", "", "_high"))
        assert low <= value <= high, name


def test_what_is_missing_is_what_is_needed_beyond_the_budget_at_both_ends_of_the_band() -> None:
    result = memory(Ask(num_gpus=1)).result
    for end in ("", "_low", "_high"):
        missing, needed = getattr(result, f"missing_bytes{end}"), getattr(result, f"needed_bytes{end}")
        assert missing == pytest.approx(needed - result.usable_bytes, abs=2)
    assert result.missing_bytes_low < result.missing_bytes < result.missing_bytes_high


def test_the_finding_names_what_is_too_small(capsys: Capture) -> None:
    whole = run(capsys, "memory", "-n", "1").out
    assert "and the engine uses 72.8 GiB" in whole
    share = run(capsys, "memory", "-g", "h100", "-n", "2", "--engine", "sglang", "--memory-fraction", "0.8").out
    assert "its memory fraction leaves less than that of 79.2 GiB" in share


# Fractions that leave too little outside


@pytest.mark.parametrize("command", ["kv", "concurrency", "memory", "roofline", "speculate"])
def test_a_fraction_that_leaves_too_little_is_told_by_every_command(capsys: Capture, command: str) -> None:
    asked = (command, "--memory-fraction", "1")
    assert "vllm does not start" in run(capsys, *asked).err
    assert "sglang runs out of memory under load" in run(capsys, *asked, "--engine", "sglang").err
    assert "does not start" not in run(capsys, command).err


# A context beyond the longest sequence


def test_the_default_context_beyond_the_longest_sequence_is_told(capsys: Capture) -> None:
    for command in ("memory", "kv", "concurrency"):
        assert "--max-model-len admits 1 tokens" in run(capsys, command, "--max-model-len", "1").err
