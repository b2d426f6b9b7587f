"""The numbers the foundation is held to, read from the JSON of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.command import answer

Capture = pytest.CaptureFixture[str]


def points(result: dict[str, Any], phase: str) -> Iterator[dict[str, Any]]:
    return (point for point in result["points"] if (point["phase"], point["attention_io"]) == (phase, "flash"))


def test_kv_of_llama3_70b(capsys: Capture) -> None:
    result = answer(capsys, "kv", "--context", "4096", "-c", "128k").result
    assert result["model"] == "llama3-70b"
    assert result["kv_bytes_per_token"] == 327_680
    assert [row["kv_bytes"] for row in result["rows"]] == [1_342_177_280, 42_949_672_960]
    assert result["rows"][1]["kv_bytes"] == 40 * 2**30
    assert result["mha_kv_bytes_per_token"] == 8 * 327_680
    assert result["gqa_saving_factor"] == 8


def test_kv_grows_in_proportion_to_the_context(capsys: Capture) -> None:
    rows = answer(capsys, "kv", "-c", "1", "-c", "1000").result["rows"]
    assert [row["kv_bytes"] for row in rows] == [327_680, 327_680_000]


@pytest.mark.parametrize(("model", "bytes_per_token"), [("llama3-8b", 131_072), ("llama3.1-405b", 516_096)])
def test_kv_of_the_other_llamas(capsys: Capture, model: str, bytes_per_token: int) -> None:
    assert answer(capsys, "kv", "--model", model).result["kv_bytes_per_token"] == bytes_per_token


@pytest.mark.parametrize(("kv_dtype", "bytes_per_token"), [("bf16", 70_272), ("fp8", 35_136), ("fp8_ds_mla", 40_016)])
def test_kv_of_deepseek_v3_is_whole_on_every_rank(capsys: Capture, kv_dtype: str, bytes_per_token: int) -> None:
    result = answer(capsys, "kv", "-m", "deepseek-v3", "-g", "h200", "-n", "8", "--kv-dtype", kv_dtype).result
    assert result["kv_bytes_per_token"] == bytes_per_token
    assert result["kv_bytes_per_token_per_gpu"] == bytes_per_token
    (row, *_) = result["rows"]
    assert row["kv_bytes"] == row["kv_bytes_per_gpu"] == row["kv_bytes_cluster"] / 8


def test_kv_of_mistral_stops_at_its_window(capsys: Capture) -> None:
    result = answer(capsys, "kv", "-m", "mistral-7b-v0.1", "-c", "4095,4096,4097,32k").result
    assert result["kv_bytes_per_token"] == 0
    assert [row["kv_bytes"] for row in result["rows"]] == [131_072 * tokens for tokens in (4095, 4096, 4096, 4096)]
    (part,) = result["kv_components"]
    assert part == {
        "kind": "sliding",
        "layers": 32,
        "bytes_per_token": 131_072,
        "window_tokens": 4096,
        "max_bytes": 536_870_912,
    }


@pytest.mark.parametrize(("tp", "per_gpu"), [(1, 327_680), (4, 81_920), (8, 40_960), (16, 40_960)])
def test_kv_heads_are_replicated_beyond_their_number(capsys: Capture, tp: int, per_gpu: int) -> None:
    result = answer(capsys, "kv", "--tp", str(tp)).result
    assert result["kv_bytes_per_token_per_gpu"] == per_gpu
    assert result["kv_bytes_per_token"] == 327_680


def test_weights_of_llama31_70b(capsys: Capture) -> None:
    shown = answer(capsys, "show", "llama3.1-70b").result["derived"]
    assert (shown["weights_bytes"], shown["parameters"]) == (141_107_412_992, 70_553_706_496)
    # One GPU cannot hold them: the figure is still exact, and the exit code says it.
    counted = answer(capsys, "concurrency", "-m", "llama3.1-70b", "-n", "1", code=3).result
    assert counted["weights_bytes"] == 141_107_412_992


@pytest.mark.parametrize(("gpu", "crossover"), [("a100-80gb", 153.0), ("h100", 295), ("h200", 206)])
def test_crossover_in_bf16(capsys: Capture, gpu: str, crossover: float) -> None:
    result = answer(capsys, "roofline", "-m", "llama3-8b", "-g", gpu, "-n", "1", "--batch", "1").result
    (found,) = (one for one in result["gpus"] if one["precision"] == "bf16")
    assert found["crossover_flop_per_byte"] == pytest.approx(crossover, rel=0.002)
    assert found["crossover_flop_per_byte"] == found["peak_flop_per_s"] / found["bandwidth_bytes_per_s"]


def test_crossover_of_the_rounded_bandwidth(capsys: Capture, tmp_path: Path) -> None:
    overlay = tmp_path / "rounded.yaml"
    overlay.write_text("gpus:\n  a100-80gb:\n    bandwidth: 2 TB/s\n", encoding="utf-8")
    result = answer(capsys, "roofline", "--batch", "1", "--catalog", str(overlay)).result
    (found,) = (one for one in result["gpus"] if one["precision"] == "bf16")
    assert found["crossover_flop_per_byte"] == 156


def test_decode_floor_on_one_a100_where_it_does_not_fit(capsys: Capture) -> None:
    ran = answer(capsys, "roofline", "-n", "1", "--batch", "1")
    (point,) = points(ran.result, "decode")
    assert 0.068 <= point["time_s"] <= 0.070
    assert point["bound_by"] == "memory"
    assert any("does not fit on 1 x a100" in warning for warning in ran.document["warnings"])


def test_decode_floor_on_four(capsys: Capture) -> None:
    ran = answer(capsys, "roofline", "--batch", "1")
    (point,) = points(ran.result, "decode")
    assert point["time_s"] == pytest.approx(0.017, abs=0.0005)
    assert not any("does not fit" in warning for warning in ran.document["warnings"])


@pytest.mark.parametrize(("gpus", "seconds"), [(1, 1.87), (4, 0.47)])
def test_prefill_of_4096_tokens_at_peak(capsys: Capture, gpus: int, seconds: float) -> None:
    result = answer(capsys, "roofline", "-n", str(gpus), "--batch", "1", "-c", "4096").result
    (point,) = points(result, "prefill")
    assert point["time_s"] == pytest.approx(seconds, abs=0.005)
    assert point["bound_by"] == "compute"


def test_400_ms_fit_2000_tokens_on_four_at_56_percent(capsys: Capture) -> None:
    result = answer(capsys, "roofline", "--batch", "1", "-c", "2000").result
    (point,) = points(result, "prefill")
    assert point["time_s"] / 0.4 == pytest.approx(0.56, abs=0.01)


def test_concurrency_of_four_a100_at_fraction_09(capsys: Capture) -> None:
    result = answer(capsys, "concurrency", "--memory-fraction", "0.9").result
    fp16, fp8, int4 = result["rows"]
    assert [row["kv_dtype"] for row in result["rows"]] == ["fp16", "fp8", "int4"]
    assert 110 <= fp16["sequences"] <= 115
    assert fp8["sequences"] in {2 * fp16["sequences"], 2 * fp16["sequences"] + 1}
    assert fp8["gain_over_fp16"] == fp8["gain_over_fp16_nominal"] == 2
    assert int4["gain_over_fp16_nominal"] == 4
    assert int4["gain_over_fp16"] == pytest.approx(16 / 4.25)


def test_concurrency_of_four_a100_at_the_default_fraction(capsys: Capture) -> None:
    ran = answer(capsys, "concurrency")
    assert 115 <= ran.result["rows"][0]["sequences"] <= 121
    assert ran.document["inputs"]["memory_fraction"]["value"] == 0.92


def test_max_num_seqs_is_a_cap_of_its_own(capsys: Capture) -> None:
    ran = answer(capsys, "concurrency")
    assert ran.result["max_num_seqs"] == 256
    assert max(row["sequences"] for row in ran.result["rows"]) > 256
    assert any("max_num_seqs" in text and "256" in text for text in ran.document["assumptions"])
    capped = answer(capsys, "concurrency", "--max-num-seqs", "8").result
    assert capped["max_num_seqs"] == 8
    assert capped["rows"][0]["sequences"] >= ran.result["rows"][0]["sequences"]


def test_speculation_with_alpha_08_and_five_draft_tokens(capsys: Capture) -> None:
    drafting = ("speculate", "--method", "draft-model", "--acceptance", "0.8", "--num-draft-tokens", "5")
    (row,) = answer(capsys, *drafting).result["rows"]
    assert row["tokens_per_round"] == pytest.approx((1 - 0.8**6) / (1 - 0.8), rel=1e-12)
    assert row["tokens_per_round"] == pytest.approx(3.689, abs=0.0005)


def test_survival_rates_as_vllm_prints_them(capsys: Capture) -> None:
    (row,) = answer(capsys, "speculate", "--method", "eagle3", "--acceptance", "0.7,0.5,0.3").result["rows"]
    assert row["tokens_per_round"] == pytest.approx(1 + 0.7 + 0.5 + 0.3)
