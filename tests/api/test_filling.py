from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from infcalc.api import Ask, Load, concurrency, kv, memory
from infcalc.api.answer import Answer
from infcalc.api.deployment import load, resolve
from infcalc.api.expecting import expected
from infcalc.api.filling import MemoryResult
from infcalc.api.servers import room_for
from infcalc.cli.app import run
from infcalc.engines.logs.reading import Quantity
from infcalc.errors import UsageError
from infcalc.report.views import memory as views
from infcalc.spec.kv import KV_FORMATS
from infcalc.workload.lengths import parse_lengths


def filled(contexts: tuple[int, ...] = (), /, **asked: object) -> Answer[MemoryResult]:
    return memory(Ask(**asked), contexts=contexts)  # type: ignore[arg-type]


def one_h100(model: str, **asked: object) -> Answer[MemoryResult]:
    return filled(**{"models": (model,), "gpus": ("h100",), "num_gpus": 1} | asked)


def one_h100_of(context: int, model: str) -> Answer[MemoryResult]:
    return filled((context,), models=(model,), gpus=("h100",), num_gpus=1)


def headline(answer: Answer[MemoryResult]) -> str:
    return " ".join(views.view(answer).findings)


def test_what_only_starts_with_other_values_says_so() -> None:
    states = one_h100("qwen3.5-27b")
    (flag,) = states.result.starts_with
    number = int(flag.removeprefix("--max-num-seqs "))
    assert number <= states.result.kv_blocks
    assert (states.result.fits, states.result.starts_as_asked) == (True, False)
    assert f"fits with {flag}" in headline(states)
    # The figures are those of a start with that flag, and one sequence more does not start.
    fewer = one_h100("qwen3.5-27b", max_num_seqs=number)
    assert (fewer.result.starts_as_asked, fewer.result.starts_with) == (True, ())
    assert fewer.result.kv_pool_bytes == states.result.kv_pool_bytes
    assert one_h100("qwen3.5-27b", max_num_seqs=number + 1).result.starts_with == (flag,)
    assert "fits," in headline(fewer)


def test_a_length_that_was_lowered_is_a_value_of_its_own() -> None:
    shorter = filled(models=("kimi-k2",), gpus=("h200",), num_gpus=8)
    assert shorter.result.starts_with == (f"--max-model-len {shorter.result.max_model_len}",)
    assert shorter.result.starts_as_asked is False
    stated = filled(models=("kimi-k2",), gpus=("h200",), num_gpus=8, max_model_len=shorter.result.max_model_len)
    assert (stated.result.starts_as_asked, stated.result.starts_with) == (True, ())


def test_a_fraction_that_is_not_free_does_not_start() -> None:
    greedy = one_h100("llama3-8b", memory_fraction=1.0)
    assert greedy.result.starts_as_asked is False
    (flag,) = greedy.result.starts_with
    assert flag.startswith("--gpu-memory-utilization 0.9")
    as_told = one_h100("llama3-8b", memory_fraction=float(flag.split()[1])).result
    assert as_told.starts_as_asked
    # The figures are those of the fraction that starts.
    assert (greedy.result.kv_pool_bytes, greedy.result.sequences) == (as_told.kv_pool_bytes, as_told.sequences)
    (asked,) = (item for item in greedy.inputs if item.name == "memory_fraction")
    assert (asked.value, "1 given" in asked.origin) == (float(flag.split()[1]), True)


@pytest.mark.parametrize("question", [kv, concurrency])
def test_pools_of_a_fraction_that_is_not_free_are_those_of_one_that_is(question: Callable[[Ask], Answer[Any]]) -> None:
    greedy, told = (question(Ask(memory_fraction=share)) for share in (0.9999, 0.99))
    assert greedy.results == told.results
    assert any("--gpu-memory-utilization 0.99 assumed here" in text for text in greedy.warnings)


def test_a_change_is_told_with_all_that_was_assumed() -> None:
    # Neither the model's own 163,840 tokens nor 4,096 fit.
    lacking = filled(models=("deepseek-v3",), gpus=("h100",), num_gpus=8)
    assert any("takes the 163,840 tokens" in text and "lacks" in text for text in lacking.warnings)
    assert lacking.result.max_model_len == 4096
    for change in lacking.result.changes:
        own = 4096 if "--max-model-len 4096" in change.change else 163_840
        assert change.max_model_len == own


def test_a_shorter_longest_sequence_holds_sequences_of_that_length() -> None:
    tight = one_h100_of(32_768, "qwen3-32b")
    (shorter,) = (change for change in tight.result.changes if change.change.startswith("--max-model-len"))
    assert (shorter.context_tokens, shorter.max_model_len) == (32_336, 32_336)
    assert shorter.sequences == 1
    others = [change for change in tight.result.changes if change is not shorter]
    assert {change.context_tokens for change in others} == {32_768}


def test_one_sequence_fits_only_beside_the_empty_block() -> None:
    asked = {"models": ("qwen3-32b",), "gpus": ("h100",), "num_gpus": 1}
    full = filled((32_352,), **asked, max_model_len=32_352)
    assert (full.exit_code, full.result.fits, full.result.sequences) == (3, False, 0)
    held = filled((32_336,), **asked, max_model_len=32_336)
    assert (held.exit_code, held.result.fits, held.result.sequences) == (0, True, 1)


def test_the_automatic_length_of_vllm_has_an_answer() -> None:
    with pytest.raises(UsageError) as caught:
        filled(max_model_len=-1)
    assert "leave it out" in str(caught.value.hint)


@pytest.mark.parametrize("model", ["llama3.1-8b", "gemma-3-27b", "qwen3-next-80b", "gpt-oss-20b"])
@pytest.mark.parametrize("slots", [None, 1, 3])
def test_memory_and_compare_have_one_rule_of_llama_cpp(model: str, slots: int | None) -> None:
    ask = Ask(models=(model,), gpus=("b300",), num_gpus=1, engine="llama.cpp", max_model_len=32_768, max_num_seqs=slots)
    (deployment,) = resolve(ask, load(ask))
    found = memory(ask).result
    number = slots or 4
    told = expected(deployment, KV_FORMATS["bf16"], sequences=number, streams=number if slots else 1).spans
    state = told[Quantity.STATE].value if Quantity.STATE in told else 0
    assert found.kv_buffer_bytes == told[Quantity.POOL].value + state
    assert found.kv_cache_tokens == told[Quantity.TOKENS].value
    compute = told[Quantity.COMPUTE]
    assert (found.activation_bytes, found.activation_bytes_low, found.activation_bytes_high) == (
        compute.value,
        compute.low,
        compute.high,
    )


def test_what_does_not_fit_does_not_start() -> None:
    found = one_h100("llama3-70b").result
    assert (found.fits, found.starts_as_asked, found.starts_with) == (False, False, ())


def test_starting_as_asked_can_be_required() -> None:
    asked = ["memory", "-m", "qwen3.5-27b", "-g", "h100", "-n", "1", "--require", "starts_as_asked==true"]
    assert run([*asked, "--max-num-seqs", "64"]) == 0
    assert run(asked) == 4


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm"])
def test_engines_that_check_no_length_start_and_reject_later(engine: str) -> None:
    here = {"models": ("llama3.1-8b",), "gpus": ("rtx-4090",), "num_gpus": 1, "weights": "fp8", "engine": engine}
    answer = filled(**here, max_model_len=131_072)
    assert (answer.exit_code, answer.result.fits, answer.result.starts_as_asked) == (0, True, True)
    assert (answer.result.max_model_len, answer.result.needed_tokens) == (131_072, 4096)
    assert any("rejects one that is longer" in text for text in answer.warnings)
    assert not any("does not start" in text for text in answer.warnings)
    beyond = filled((131_072,), **here)
    assert (beyond.exit_code, beyond.result.fits, beyond.result.starts_as_asked) == (3, False, True)
    assert not any("--max-model-len" in change.change for change in beyond.result.changes)
    refused = filled(**here | {"engine": "vllm"}, max_model_len=131_072)
    assert (refused.exit_code, refused.result.starts_as_asked) == (3, False)


@pytest.mark.parametrize("command", [memory, concurrency])
def test_a_length_that_most_requests_exceed_is_refused(command: object) -> None:
    assert callable(command)
    fixed = Load(input_tokens=500, output_tokens=250)
    with pytest.raises(UsageError, match="longer than 600 tokens") as refused:
        command(Ask(max_model_len=600), requests=fixed)
    assert (refused.value.exit_code, refused.value.place) == (2, "--max-model-len")
    assert "--max-model-len 750 " in str(refused.value.hint)
    assert command(Ask(max_model_len=750), requests=fixed).result
    # Some that are too long are only warned of.
    some = Load(input_tokens="lognormal:mean=500,cv=1", output_tokens=250)
    assert any("longer than the" in text for text in command(Ask(max_model_len=1000), requests=some).warnings)


def test_weights_are_what_the_engine_prints() -> None:
    found = filled().result
    lines = {line.name: line.num_bytes for line in found.lines}
    assert found.loading_bytes == lines["loading"] > 0
    assert found.weights_bytes == lines["weights"] + lines["loading"]
    parts = found.weights_bytes + found.activation_bytes + found.non_torch_bytes + found.cuda_graph_bytes
    assert parts + found.kv_pool_bytes == found.usable_bytes


def test_llama_cpp_allocates_the_cells_of_its_context_and_no_more() -> None:
    found = filled(models=("llama3.1-8b",), gpus=("rtx-4090",), num_gpus=1, engine="llama.cpp", max_model_len=16_384)
    # 32 layers x 8 heads x 128 x 2 x 2 bytes a token.
    assert found.result.kv_buffer_bytes == 131_072 * 16_384 < found.result.kv_pool_bytes
    assert any("allocates 2 GiB of the pool" in text for text in found.assumptions)
    other = filled().result
    assert other.kv_buffer_bytes == other.kv_pool_bytes


def test_slots_of_recurrent_states_are_told() -> None:
    answer = filled(models=("qwen3-next-80b",), gpus=("h200",), num_gpus=2, engine="sglang")
    slots = answer.result.num_state_slots
    assert slots
    assert any(f"{slots:,} slots" in text for text in answer.assumptions)
    many = memory(
        Ask(models=("qwen3-next-80b",), gpus=("h200",), num_gpus=2, engine="sglang"),
        requests=Load(input_tokens=16, output_tokens=16),
    )
    assert many.result.requests == slots


def test_requests_fill_the_pool_of_the_least_rank() -> None:
    ask = Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=16)
    found = memory(ask, requests=Load(input_tokens=4000, output_tokens=2)).result
    assert found.requests is not None
    assert found.requests * 4001 <= found.kv_blocks * found.block_tokens


def test_a_server_has_room_for_what_the_least_rank_and_the_slots_hold() -> None:
    for ask in (
        Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=16),
        Ask(models=("qwen3-next-80b",), gpus=("h200",), num_gpus=2, engine="sglang"),
    ):
        (of,) = resolve(ask, load(ask))
        held = memory(ask, requests=Load(input_tokens=16, output_tokens=16)).result.requests
        assert int(room_for(of, KV_FORMATS["bf16"], parse_lengths("16"), parse_lengths("16"))) == held


def test_a_length_is_lowered_to_what_the_least_rank_holds() -> None:
    shorter = filled(models=("deepseek-v3",), gpus=("a100-80gb",), num_gpus=16, weights="int4", memory_fraction=0.44)
    assert shorter.result.fits
    assert shorter.result.starts_with
    assert shorter.result.max_model_len == (shorter.result.kv_blocks - 1) * shorter.result.block_tokens


def test_states_are_held_whole_whatever_the_length() -> None:
    """A model of recurrent layers alone holds one state for each request: long requests fit as often as short ones."""
    ask = Ask(models=("mamba-2.8b",), gpus=("h100",), tp=1)
    short, long = (
        concurrency(ask, requests=Load(input_tokens=tokens, output_tokens=tokens)).result.rows[0]
        for tokens in (64, 4096)
    )
    assert short.requests == long.requests
    assert long.requests == pytest.approx(long.sequences, rel=0.01)
