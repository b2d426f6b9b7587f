from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.api.answer import Answer
from infcalc.api.comparing import _HEADLINES, CompareResult, compare, compare_text
from infcalc.api.deployment import Ask
from infcalc.api.residuals import CompareLine
from infcalc.errors import FileProblem, InfcalcError, UnknownName, UsageError
from infcalc.units import GIB
from tests.engines.logs import samples

H100 = Ask(gpus=("h100",))
L4 = Ask(gpus=("l4",))
SEVENTY = Ask(gpus=("h100",), models=("llama3-70b",), tp=4)
CASES = {
    "V1": (samples.V1_H100, H100),
    "V0": (samples.V0_V100, Ask(gpus=("v100",))),
    "graphs charged": (samples.GRAPHS_CHARGED, SEVENTY),
    "sglang": (samples.SGLANG, L4),
    "tensorrt-llm": (samples.TENSORRT, H100),
    "llama.cpp": (samples.LLAMA_CPP, Ask()),
    "refused": (samples.ONE_REQUEST, H100),
    "negative": (samples.NEGATIVE_GRAPHS, Ask(gpus=("gb10",))),
    "out of memory": (samples.OUT_OF_MEMORY, H100),
    "states refused": (samples.STATES_REFUSED, Ask(gpus=("h200",))),
    "pipeline": (samples.PIPELINE, H100),
    "states": (samples.SGLANG_STATES, Ask(gpus=("h200",))),
    "windows": (samples.SGLANG_WINDOWS, H100),
    "cells": (samples.LLAMA_WINDOWS, Ask(gpus=("h100",), models=("gemma-3-27b",))),
    "tensorrt-llm of old": (samples.TENSORRT_OLD, Ask(gpus=("h100",), models=("llama3.1-8b",))),
}
ALL = pytest.mark.parametrize(("text", "ask"), list(CASES.values()), ids=list(CASES))


def line(answer: Answer[CompareResult], quantity: str) -> CompareLine:
    return next(one for one in answer.result.lines if one.quantity == quantity)


def effects(one: CompareLine) -> dict[str, float]:
    return {part.part: part.effect for part in one.parts}


@ALL
def test_the_parts_of_every_residual_add_up_to_it(text: str, ask: Ask) -> None:
    split = 0
    for one in compare_text(text, ask).result.lines:
        if one.measured is None or one.predicted is None or not one.parts:
            continue
        difference = one.measured - one.predicted
        assert sum(part.effect for part in one.parts) == pytest.approx(difference, rel=1e-6, abs=4)
        split += 1
    assert split or text == samples.LLAMA_CPP


def test_what_is_predicted_is_told_in_the_verdict() -> None:
    told = {quantity for quantity, _ in _HEADLINES}
    for text, ask in CASES.values():
        for one in compare_text(text, ask).result.lines:
            assert one.predicted is None or one.quantity in told, one.quantity
    only = samples.STATES_REFUSED.replace("ValueError: max_num_seqs (9000)", "").replace("Model loading took", "")
    verdict = compare_text(only, Ask(gpus=("h200",))).result.verdict
    assert verdict == "tokens per block predicted exactly: 544"


@ALL
def test_errors_and_bands_fit_their_values(text: str, ask: Ask) -> None:
    result = compare_text(text, ask).result
    for one in result.lines:
        if one.predicted is not None:
            assert one.predicted_low is not None
            assert one.predicted_high is not None
            assert one.predicted_low <= one.predicted <= one.predicted_high
        if one.predicted is None or one.measured is None:
            assert one.error_fraction is None
        else:
            assert one.error_fraction == pytest.approx((one.predicted - one.measured) / one.measured, abs=1e-6)
    known = [abs(one.error_fraction) for one in result.lines if one.error_fraction is not None]
    assert result.worst_abs_error_fraction == max(known)


@ALL
def test_a_prediction_does_not_depend_on_what_was_measured(text: str, ask: Ask) -> None:
    changed = (
        text.replace("51.38 GiB", "21.38 GiB")
        .replace("14.9889", "11.9889")
        .replace("19.40GiB", "9.40GiB")
        .replace("33.20 GiB", "13.20 GiB")
        .replace("33.2 GiB", "13.2 GiB")
        .replace("mem usage=15.54", "mem usage=11.54")
        .replace("54.00 GiB", "44.00 GiB")
        .replace("1088.00 MiB", "2088.00 MiB")
        .replace("4.45 GiB", "2.45 GiB")
        .replace("90.60 GiB", "70.60 GiB")
        .replace("56.40 GiB", "46.40 GiB")
        .replace("74.31 GiB", "64.31 GiB")
        .replace("64.60 GiB", "54.60 GiB")
        .replace("22.55GB", "12.55GB")
        .replace("52.12 GB", "42.12 GB")
        .replace("15745.00", "14745.00")
        .replace("49.50 GiB", "39.50 GiB")
    )
    assert changed != text
    before, after = compare_text(text, ask).result.lines, compare_text(changed, ask).result.lines
    assert [(one.quantity, one.predicted) for one in before] == [(one.quantity, one.predicted) for one in after]
    assert [one.measured for one in before] != [one.measured for one in after]


def test_a_whole_log_of_v1_is_predicted_from_its_settings_alone() -> None:
    answer = compare_text(samples.V1_H100, H100)
    result = answer.result
    assert (result.engine, result.engine_version, result.model) == ("vllm", "0.11.0", "llama3.1-8b")
    assert (result.num_gpus, result.max_model_len) == (1, 16_384)
    pool = line(answer, "kv_pool_bytes")
    assert pool.measured == round(51.38 * GIB)
    assert pool.line == 11
    assert abs(pool.error_fraction or 1) < 0.05
    assert result.verdict.startswith("KV pool predicted within ")
    assert abs(line(answer, "weights_bytes").error_fraction or 1) < 0.005
    origins = {item.name: item.origin for item in answer.inputs}
    assert origins["model"] == "given in the log, line 4"
    assert origins["memory_fraction"].startswith("given in the log")
    assert origins["gpu"] == "given"
    assert origins["max_num_seqs"] == "vllm 0.11.0 default"
    assert "max num seqs 1024 (vllm 0.11.0 default)" in answer.assumptions[0]


def test_the_pool_is_split_into_what_took_more_or_less() -> None:
    # One GiB more of activation in the log, one less of KV: the difference is put down to it and to nothing else.
    before = effects(line(compare_text(samples.V1_H100, H100), "kv_pool_bytes"))
    shifted = samples.V1_H100.replace("4.76 GiB for peak", "5.76 GiB for peak").replace("51.38 GiB", "50.38 GiB")
    after = effects(line(compare_text(shifted, H100), "kv_pool_bytes"))
    assert after["activation"] - before.get("activation", 0.0) == pytest.approx(-GIB, rel=1e-6)
    for name in ("weights", "buffers", "card total"):
        assert after[name] == pytest.approx(before[name])
    assert not any(name.startswith("not explained") for name in after)


def test_what_the_log_does_not_print_shares_the_rest() -> None:
    parts = effects(line(compare_text(samples.ONE_REQUEST, H100), "kv_pool_bytes"))
    assert [name for name in parts if name.endswith("(not printed)")] == [
        "buffers, activation and card total (not printed)"
    ]


def test_a_budget_that_does_not_close_is_said_to_be_unexplained() -> None:
    broken = samples.V1_H100.replace("51.38 GiB", "41.38 GiB")
    parts = effects(line(compare_text(broken, H100), "kv_pool_bytes"))
    assert parts["not explained by the printed figures"] == pytest.approx(-10 * GIB, rel=0.01)


def test_graphs_folded_into_the_activation_are_not_charged_twice() -> None:
    # 72.82 - 35.12 - 4.50 = 33.20: the 1.50 of graphs are inside the 4.50.
    answer = compare_text(samples.GRAPHS_CHARGED, SEVENTY)
    assert line(answer, "activation_bytes").measured == pytest.approx(3.0 * GIB, rel=1e-6)
    apart = samples.GRAPHS_CHARGED.replace("4.50 GiB for peak", "3.00 GiB for peak")
    assert line(compare_text(apart, SEVENTY), "activation_bytes").measured == pytest.approx(3.0 * GIB, rel=1e-6)


def test_weights_are_taken_out_of_the_consumed_memory() -> None:
    buffers = line(compare_text(samples.GRAPHS_CHARGED, SEVENTY), "non_torch_bytes")
    assert buffers.measured == pytest.approx((35.12 - 32.9) * GIB, rel=1e-6)


def test_the_smallest_pool_of_the_ranks_is_compared() -> None:
    answer = compare_text(samples.V0_V100, Ask(gpus=("v100",)))
    assert line(answer, "kv_pool_bytes").measured == round(19.40 * GIB)
    assert any("ranks differ" in warning for warning in answer.warnings)
    assert answer.result.num_gpus == 2


def test_tokens_that_take_twice_the_bytes_are_found_out() -> None:
    answer = compare_text(samples.GRAPHS_CHARGED, SEVENTY)
    assert "2.00x the bytes per token" in line(answer, "kv_cache_tokens").attributed_to
    halved = samples.GRAPHS_CHARGED.replace("217,568", "435,136").replace("6.64x", "13.28x")
    assert "bytes per token" not in line(compare_text(halved, SEVENTY), "kv_cache_tokens").attributed_to


def test_llama_cpp_is_exact_to_the_byte() -> None:
    answer = compare_text(samples.LLAMA_CPP)
    pool = line(answer, "kv_pool_bytes")
    # 32 layers x 8 heads x 128 x 2 x 34/32 bytes x 16,384 cells.
    assert pool.predicted == pool.measured == 32 * 8 * 128 * 2 * 34 // 32 * 16_384
    assert pool.attributed_to.startswith("nothing")
    assert line(answer, "kv_cache_tokens").predicted == 16_384
    assert answer.result.gpu == "rtx-4090"
    assert answer.result.verdict == "KV pool predicted exactly: 1.06 GiB"
    # The log's buffers of GPU and host together: the input embedding, 532 MiB in Q8_0, lies on the host.
    weights = line(answer, "weights_bytes")
    assert weights.predicted == pytest.approx(weights.measured, rel=0.001)


def test_the_compute_buffer_of_llama_cpp_depends_on_flash_attention() -> None:
    # 512 x 128,256 x 4 bytes of logits and 512 x 4,096 x 4 of one hidden state: 258.5 MiB.
    with_flash = line(compare_text(samples.LLAMA_CPP), "compute_buffer_bytes")
    assert with_flash.predicted == (128_256 + 4096) * 512 * 4 == 258.5 * 2**20
    shared = samples.LLAMA_CPP.replace(" 4096 cells", "16384 cells").replace("4/4 seqs", "4/1 seqs")
    without = shared.replace("flash_attn    = 1", "flash_attn    = 0")
    # 32 heads x 512 x 16,384 cells x 4 bytes of scores.
    scores = line(compare_text(without), "compute_buffer_bytes").predicted
    assert scores is not None
    assert 2**30 < scores < 1.1 * 2**30
    unknown = line(compare_text(shared.replace("flash_attn", "flash")), "compute_buffer_bytes")
    assert unknown.predicted == with_flash.predicted
    assert unknown.predicted_high is not None
    assert unknown.predicted_high > scores


def test_sglang_is_split_by_its_own_identity() -> None:
    answer = compare_text(samples.SGLANG, L4)
    pool = line(answer, "kv_pool_bytes")
    assert pool.measured == pytest.approx(2.84 * GIB)
    assert pool.measured is not None
    assert {"weights", "memory free before the weights"} <= set(effects(pool))
    free, weights = line(answer, "free_before_weights_bytes"), line(answer, "weights_bytes")
    assert free.measured is not None
    assert free.predicted is not None
    assert effects(pool)["memory free before the weights"] == pytest.approx(
        0.85 * (free.measured - free.predicted), abs=2
    )
    assert weights.measured is not None
    assert weights.predicted is not None
    assert effects(pool)["weights"] == pytest.approx(weights.predicted - weights.measured, abs=2)


def test_what_the_user_says_wins_over_the_log() -> None:
    answer = compare_text(samples.V1_H100, replace(H100, memory_fraction=0.5, max_model_len=1024, tp=2))
    origins = {item.name: (item.value, item.origin) for item in answer.inputs}
    assert origins["memory_fraction"] == (0.5, "given")
    assert origins["max_model_len"] == (1024, "given")
    assert origins["tp"] == (2, "given")
    assert origins["model"][1].startswith("given in the log")


def test_online_quantization_is_read_from_the_config_line() -> None:
    text = samples.V1_H100.replace("quantization=None", "quantization=fp8")
    answer = compare_text(text, H100)
    assert {item.name: item.origin for item in answer.inputs}["weights"] == "given in the log, line 4"
    weights = line(answer, "weights_bytes").predicted
    assert weights is not None
    assert weights < 9 * GIB
    # The log still prints what bf16 takes: that is worth a word.
    assert any("weights are" in warning and "--weights" in warning for warning in answer.warnings)


def test_kv_precision_is_read_from_the_config_line() -> None:
    text = samples.V1_H100.replace("kv_cache_dtype=auto", "kv_cache_dtype=fp8_e4m3")
    tokens = line(compare_text(text, H100), "kv_cache_tokens").predicted
    plain = line(compare_text(samples.V1_H100, H100), "kv_cache_tokens").predicted
    assert tokens is not None
    assert plain is not None
    assert tokens == pytest.approx(2 * plain, abs=32)
    odd = compare_text(text.replace("fp8_e4m3", "fp7"), H100)
    assert any("'fp7' is not known" in warning for warning in odd.warnings)


@pytest.mark.parametrize(
    "path",
    [
        "/data/huggingface/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0a1b",
        "/models/Llama-3.1-8B-Instruct",
        "/data/meta-llama/Llama-3.1-8B-Instruct/",
        "./Llama-3.1-8B-Instruct",
        "C:\\\\models\\\\Llama-3.1-8B-Instruct",
    ],
)
def test_a_model_is_found_by_the_path_it_was_loaded_from(path: str) -> None:
    text = samples.V1_H100.replace("meta-llama/Llama-3.1-8B-Instruct", path)
    weights = line(compare_text(text, H100), "weights_bytes")
    assert abs(weights.error_fraction or 1) < 0.005


def test_a_name_served_stands_in_for_a_path_that_tells_nothing() -> None:
    text = samples.V1_H100.replace("model='meta-llama/Llama-3.1-8B-Instruct'", "model='/data/final'")
    text = text.replace("'model_tag': 'meta-llama/Llama-3.1-8B-Instruct', ", "").replace(
        "'model': 'meta-llama/Llama-3.1-8B-Instruct'", "'model': '/data/final'"
    )
    named = text.replace("enforce_eager=False", "served_model_name=Llama-3.1-8B-Instruct, enforce_eager=False")
    assert compare_text(named, H100).result.model.startswith("llama3.1-8b")
    with pytest.raises(UnknownName, match="final") as unknown:
        compare_text(text, H100)
    assert unknown.value.exit_code == 5
    assert "--model" in str(unknown.value.hint)


def test_a_gpu_is_found_where_a_line_names_it() -> None:
    told = "WARNING [fused_moe.py:1] Config file not found at E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json\n"
    assert compare_text(told + samples.V1_H100).result.gpu == "h100-sxm5-80gb"
    table = "|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:00:1E.0 Off |\n"
    assert compare_text(table + samples.V1_H100).result.gpu == "a100-sxm4-80gb"
    with pytest.raises(UnknownName, match="FooBar"):
        compare_text("device_name=NVIDIA_FooBar_9000.json\n" + samples.V1_H100)


def test_the_memory_of_another_card_than_said_is_taken_from_the_log() -> None:
    answer = compare_text(samples.V1_H100.replace("/79.18 GiB", "/47.50 GiB"), Ask(gpus=("rtx4090",)))
    assert line(answer, "device_total_bytes").predicted == round(47.5 * GIB)
    assert any("47.50 GiB" in warning and "--gpu" in warning for warning in answer.warnings)
    usual = compare_text(samples.V1_H100, H100)
    assert line(usual, "device_total_bytes").predicted != round(79.18 * GIB)
    assert not any("--gpu" in warning for warning in usual.warnings)


def test_a_log_without_model_or_gpu_says_what_to_add() -> None:
    with pytest.raises(UsageError, match="GPU") as no_gpu:
        compare_text(samples.V1_H100)
    assert "--gpu" in str(no_gpu.value.hint)
    # The total that the log prints tells which cards it may have been.
    assert "h100-sxm5-80gb" in str(no_gpu.value.hint)
    assert "l4" not in str(no_gpu.value.hint)
    with pytest.raises(UsageError, match="model") as no_model:
        compare_text(samples.GRAPHS_CHARGED, H100)
    assert "--model" in str(no_model.value.hint)
    with pytest.raises(UsageError, match="2 names"):
        compare_text(samples.V1_H100, Ask(gpus=("h100", "l4")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("  \n \n", "empty"),
        ("hello\nworld", "no line has the shape"),
        ('{"request_throughput": 1.0}', "JSON document"),
        ("INFO vLLM API server version 0.11.0", "no line of it states memory"),
    ],
)
def test_what_is_no_log_is_refused_with_the_lines_looked_for(text: str, said: str) -> None:
    with pytest.raises(FileProblem, match=said) as refused:
        compare_text(text, H100)
    assert refused.value.exit_code == 2
    for words in ("'Available KV cache memory'", "'KV Cache is allocated. #tokens'", "'KV buffer size ='"):
        assert words in str(refused.value.hint)


def test_a_refusal_for_length_is_explained_and_mended() -> None:
    answer = compare_text(samples.ONE_REQUEST, H100)
    (refusal,) = answer.result.refusals
    assert refusal.line == 4
    assert "10.00 GiB" in refusal.explanation
    assert "4.45 GiB" in refusal.explanation
    # 4.45 GiB hold 1,139 blocks of 16 tokens, of 262,144 bytes each.
    assert refusal.remedies[0] == "--max-model-len 18224 is the longest by the engine's own figures"
    # One block holds no tokens, which this engine's check leaves out.
    assert refusal.remedies[1] == "--max-model-len 18208 is the longest that fits into what the engine had"
    assert "tensor parallelism over 2 GPUs" in refusal.remedies
    # Half of ten GiB still exceeds the room.
    assert "--kv-cache-dtype fp8" not in refusal.remedies
    assert answer.result.verdict.startswith("the engine refused to start: one sequence")
    assert answer.exit_code == 0


def test_a_refusal_for_lack_of_free_memory_names_the_highest_fraction() -> None:
    (refusal,) = compare_text(samples.FREE_MEMORY, Ask(gpus=("a100",))).result.refusals
    assert refusal.remedies[0].startswith("--gpu-memory-utilization 0.75 is the highest")
    assert 0.75 * 79.15 < 60.0 < 0.76 * 79.15


def test_a_refusal_for_lack_of_room_names_changes_that_fit() -> None:
    (refusal,) = compare_text(samples.NO_ROOM, H100).result.refusals
    assert "65.74 GiB" in refusal.explanation
    assert {"weights in fp8", "tensor parallelism over 4 GPUs"} <= set(refusal.remedies)


def test_a_pool_beyond_the_budget_and_a_negative_estimate_are_contradictions() -> None:
    answer = compare_text(samples.NEGATIVE_GRAPHS, Ask(gpus=("gb10",)))
    impossible = next(warning for warning in answer.warnings if "cannot be true" in warning)
    assert "90.60 GiB" in impossible
    assert "line 5" in impossible
    assert any("20.50 GiB" in warning and "0.73 GiB" in warning for warning in answer.warnings)
    sound = samples.NEGATIVE_GRAPHS.replace("-20.50 GiB", "0.50 GiB").replace("90.60 GiB", "60.60 GiB")
    assert not any(
        "cannot be true" in text or "negative" in text for text in compare_text(sound, Ask(gpus=("gb10",))).warnings
    )


def test_a_pool_set_by_hand_is_taken_as_it_is() -> None:
    pool = 16 * 131_072 * 1000
    text = samples.V1_H100.replace("'max_model_len'", f"'kv_cache_memory_bytes': {pool}, 'max_model_len'")
    answer = compare_text(text, H100)
    assert line(answer, "kv_pool_bytes").predicted == pool
    assert line(answer, "kv_cache_tokens").predicted == 16_000
    assert any("set by hand" in warning for warning in answer.warnings)
    blocks = samples.V1_H100.replace("'max_model_len'", "'num_gpu_blocks_override': 500, 'max_model_len'")
    assert line(compare_text(blocks, H100), "kv_cache_tokens").predicted == 8000


def test_adapters_and_the_models_own_drafts_are_taken_from_the_arguments() -> None:
    lora = samples.V1_H100.replace("'max_model_len'", "'enable_lora': True, 'max_loras': 4, 'max_model_len'")
    plain = line(compare_text(samples.V1_H100, H100), "weights_bytes").predicted
    held = line(compare_text(lora, H100), "weights_bytes").predicted
    assert plain is not None
    assert held is not None
    assert held > plain
    drafts = "speculative_config=SpeculativeConfig(method='mtp', num_spec_tokens=2)"
    deep = samples.V1_H100.replace("meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3").replace(
        "tensor_parallel_size=1", "tensor_parallel_size=8"
    )
    ask = Ask(gpus=("h200",))
    without = line(compare_text(deep, ask), "weights_bytes").predicted
    answer = compare_text(deep.replace("speculative_config=None", drafts), ask)
    assert {item.name: item.value for item in answer.inputs}.get("num_draft_tokens", 2) == 2
    drafted = line(answer, "weights_bytes").predicted
    assert without is not None
    assert drafted is not None
    assert drafted > without
    eagle = samples.V1_H100.replace("speculative_config=None", drafts.replace("mtp", "eagle3"))
    assert any("not modelled" in warning for warning in compare_text(eagle, H100).warnings)


def test_a_version_that_tells_nothing_is_replaced_with_a_warning() -> None:
    text = samples.V1_H100.replace("(v0.11.0)", "(v0.1.dev1+g4b7f5ea)").replace("version 0.11.0", "version 0.1.dev1")
    answer = compare_text(text, H100)
    assert answer.result.engine_version != "0.1.dev1"
    assert any("--engine-version" in warning for warning in answer.warnings)


def test_the_engine_core_is_read_from_the_lines() -> None:
    old = samples.V0_V100.replace("(v0.7.3)", "(v0.8.5)")
    ask = Ask(gpus=("v100",))
    assert compare_text(old, ask).result.engine_version == "0.8.5+v0"
    assert compare_text(samples.V0_V100, ask).result.engine_version == "0.7.3"
    second = samples.V1_H100.replace("0.11.0", "0.28.0").replace("gpu_model_runner.py", "model_runner.py")
    assert compare_text(second, H100).result.engine_version == "0.28.0+v2"
    assert compare_text(samples.V1_H100, H100).result.engine_version == "0.11.0"


def test_explanations_name_each_line() -> None:
    answer = compare_text(samples.V1_H100, H100, explain=True)
    told = {text.quantity: text for text in answer.explanations}
    assert set(told) == {one.quantity for one in answer.result.lines if one.predicted is not None}
    assert "at line 11" in told["kv_pool_bytes"].substituted
    assert "memory_fraction" in {item.name for item in told["kv_pool_bytes"].inputs}
    assert compare_text(samples.V1_H100, H100).explanations == ()


def test_files_in_odd_encodings_are_read(tmp_path: Path) -> None:
    expected = compare_text(samples.V1_H100, H100).result
    wide = tmp_path / "wide.log"
    wide.write_bytes(samples.V1_H100.encode("utf-16"))
    torn = tmp_path / "torn.log"
    torn.write_bytes(b"\xff\xfebar"[2:] + b"\x9f\x92\n"[:2] + b"\n" + samples.V1_H100.encode())
    assert compare(str(wide), H100).result == expected
    assert compare(str(torn), H100).result.verdict == expected.verdict


@pytest.mark.parametrize(
    ("content", "said"), [(b"\x1f\x8b\x08\x00abc", "compressed"), (b"abc\x00def", "zero bytes"), (b"", "empty")]
)
def test_files_that_are_no_text_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(content)
    with pytest.raises(FileProblem, match=said):
        compare(str(path), H100)


def refusal_of(text: str, ask: Ask) -> InfcalcError | None:
    """Return the error that a text ends in; any other exception is the test's failure."""
    try:
        answer = compare_text(text, ask)
    except InfcalcError as error:
        return error
    assert answer.result.verdict
    assert answer.result.lines
    return None


SAMPLES = list(CASES.values())


@settings(max_examples=40, deadline=None)
@given(
    case=st.sampled_from(SAMPLES),
    cuts=st.lists(
        st.tuples(st.integers(0, 3000), st.text(alphabet="0123456789.,=-'({})\n abM", max_size=6)), max_size=8
    ),
    seed=st.integers(0, 2**16),
    shuffled=st.booleans(),
)
def test_only_errors_with_a_mend_come_out_of_a_mutilated_log(
    case: tuple[str, Ask], cuts: list[tuple[int, str]], seed: int, shuffled: bool
) -> None:
    text, ask = case
    for position, inserted in cuts:
        at = position % (len(text) + 1)
        text = text[:at] + inserted + text[at + len(inserted) :]
    if shuffled:
        rows = text.splitlines()
        random.Random(seed).shuffle(rows)  # noqa: S311 - reproducible disorder, no secret
        text = "\n".join(rows)
    refusal = refusal_of(text, ask)
    if refusal is not None:
        assert refusal.exit_code in {2, 5, 6}
        assert refusal.hint


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(
        st.sampled_from([row for text, _ in SAMPLES for row in text.splitlines()] + ["", "x", "[", "{", "tp_size=0"]),
        max_size=12,
    )
)
def test_any_mixture_of_lines_is_read_or_refused(words: list[str]) -> None:
    refusal = refusal_of("\n".join(words), Ask(gpus=("h100",), models=("llama3-8b",)))
    assert refusal is None or refusal.exit_code in {2, 6}


SMALLER_THAN_PREDICTED = """\
INFO 04-20 10:00:01 [core.py:90] Initializing a V1 LLM engine (v0.19.0) with config: \
model='meta-llama/Llama-3.1-8B-Instruct', dtype=torch.bfloat16, max_seq_len=65536, tensor_parallel_size=1, \
quantization=None, kv_cache_dtype=auto
ValueError: To serve at least one request with the models's max seq len (65536), (8.00 GiB KV cache is needed, which \
is larger than the available KV cache memory (3.10 GiB). Based on the available memory, the estimated maximum model \
length is 25392. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.
"""


def test_a_refusals_own_figure_is_the_measured_pool_and_governs_what_is_proposed() -> None:
    # The card of the log has less than predicted: half of 8 GiB would fit into 5.6, and not into the 3.1 it had.
    answer = compare_text(SMALLER_THAN_PREDICTED, Ask(gpus=("rtx-4090",)))
    pool = line(answer, "kv_pool_bytes")
    assert pool.measured == round(3.10 * GIB)
    assert pool.predicted is not None
    assert pool.predicted > 4.0 * GIB
    assert pool.line == 2
    assert "KV pool" in answer.result.verdict
    (refusal,) = answer.result.refusals
    assert "--kv-cache-dtype fp8" not in refusal.remedies
    assert "weights in fp8" in refusal.remedies
    enough = SMALLER_THAN_PREDICTED.replace("3.10 GiB", "4.10 GiB").replace("25392", "33584")
    (refusal,) = compare_text(enough, Ask(gpus=("rtx-4090",))).result.refusals
    assert "--kv-cache-dtype fp8" in refusal.remedies


def test_a_precision_that_the_card_cannot_compute_is_no_remedy() -> None:
    ask = Ask(gpus=("v100",), models=("llama3.1-8b",), tp=1)
    (refusal,) = compare_text(samples.ONE_REQUEST, ask).result.refusals
    assert not any("weights in fp8" in remedy for remedy in refusal.remedies)


def test_where_nothing_was_left_no_length_fits() -> None:
    # The prediction has room on this card; the log says that there was none.
    ask = Ask(gpus=("h200",))
    (refusal,) = compare_text(samples.NO_ROOM, ask).result.refusals
    assert expected_pool(samples.NO_ROOM, ask) > 0
    assert not any("--max-model-len" in remedy for remedy in refusal.remedies)
    assert "--kv-cache-dtype fp8" not in refusal.remedies


def expected_pool(text: str, ask: Ask) -> float:
    predicted = line(compare_text(text, ask), "kv_pool_bytes").predicted
    assert predicted is not None
    return predicted


def test_out_of_memory_is_mended_by_what_frees_as_much() -> None:
    ran_out = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    (refusal,) = compare_text(samples.V1_H100 + ran_out, H100).result.refusals
    # 0.9 less 2 of 79.2 GiB, in whole hundredths: 0.87 frees 2.4.
    assert refusal.remedies[0] == "--gpu-memory-utilization 0.87 leaves as much more free"
    assert not any("0.92" in remedy or "0.95" in remedy for remedy in refusal.remedies)
    assert not any("kv-cache-dtype" in remedy for remedy in refusal.remedies)


def test_a_fraction_that_passes_may_still_hold_no_sequence() -> None:
    little = samples.FREE_MEMORY.replace("60.00/", "20.00/")
    (refusal,) = compare_text(little, Ask(gpus=("a100",))).result.refusals
    assert refusal.remedies[0].startswith("--gpu-memory-utilization 0.25 ")
    assert refusal.remedies[0].endswith("too little for one sequence of 32,768 tokens or of any length")


def test_ranks_that_cannot_be_are_told() -> None:
    odd = SMALLER_THAN_PREDICTED.replace("tensor_parallel_size=1", "tensor_parallel_size=3")
    assert any("line 1: --tp 3 cannot split" in text for text in compare_text(odd, Ask(gpus=("h100",))).warnings)
    even = odd.replace("tensor_parallel_size=3", "tensor_parallel_size=2")
    assert not any("cannot split" in text for text in compare_text(even, Ask(gpus=("h100",))).warnings)


def test_versions_that_contradict_each_other_are_told() -> None:
    other = "INFO 04-20 10:00:00 [api_server.py:1289] vLLM API server version 0.18.1\n"
    answer = compare_text(other + SMALLER_THAN_PREDICTED, Ask(gpus=("h100",)))
    (told,) = (text for text in answer.warnings if "several versions" in text)
    assert "0.18.1 (line 1), 0.19.0 (line 2)" in told
    assert f"{answer.result.engine_version} is taken" in told
    same = other.replace("0.18.1", "0.19.0+cu128")
    answer = compare_text(same + SMALLER_THAN_PREDICTED, Ask(gpus=("h100",)))
    assert not any("several versions" in text for text in answer.warnings)
