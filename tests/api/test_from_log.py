from __future__ import annotations

import pytest

from infcalc.api.comparing import compare_text
from tests.api.logged import GEMMA, H100, LLAMA, error, inputs, lines
from tests.engines.logs import samples


def test_the_file_type_is_the_precision() -> None:
    found = inputs(samples.LLAMA_WINDOWS, GEMMA)
    assert (found["weights"], found["max_num_seqs"]) == ("q4_k_m", 4)
    origins = {item.name: item.origin for item in compare_text(samples.LLAMA_WINDOWS, GEMMA).inputs}
    assert origins["weights"] == "given in the log, line 2"
    assert origins["max_num_seqs"] == "given in the log, line 6"
    old = samples.LLAMA_WINDOWS.replace("print_info: file type   =", "llm_load_print_meta: model ftype      =")
    assert inputs(old, GEMMA)["weights"] == "q4_k_m"


def test_a_file_type_that_is_not_known_is_told() -> None:
    odd = samples.LLAMA_WINDOWS.replace("Q4_K - Medium", "Q9_9 - odd")
    answer = compare_text(odd, GEMMA)
    assert any("'Q9_9 - odd' is not known" in text and "--weights" in text for text in answer.warnings)


def test_a_name_that_states_the_precision_is_not_asked_again() -> None:
    assert inputs(samples.LLAMA_CPP, LLAMA.__class__())["weights"] == "q8_0"


def test_a_tied_embedding_is_held_twice_where_the_head_is_on_the_device() -> None:
    assert error(lines(samples.LLAMA_WINDOWS, GEMMA)["weights_bytes"]) < 0.005
    # The head stays on the host with layers that do, and is the input embedding.
    part = samples.LLAMA_WINDOWS.replace("63/63", "40/63")
    whole = lines(samples.LLAMA_WINDOWS, GEMMA)["weights_bytes"].predicted
    once = lines(part, GEMMA)["weights_bytes"].predicted
    assert whole is not None
    assert once is not None
    # 262,208 tokens of 5,376 elements in Q6_K: 210 bytes for 256.
    assert whole - once == 262_208 * 5376 * 210 // 256


def test_cells_of_windows_are_those_of_each_stream() -> None:
    # Ten layers of 32,768 cells, and 52 of 4 x 1,024 + 512; 8,192 bytes a cell and layer.
    shared = lines(samples.LLAMA_WINDOWS, GEMMA)
    assert shared["kv_pool_bytes"].predicted == (10 * 32_768 + 52 * 4608) * 8192 == shared["kv_pool_bytes"].measured
    apart = samples.LLAMA_WINDOWS.replace("4/1 seqs", "4/4 seqs").replace("unified    = true", "unified    = false")
    apart = apart.replace("32768 cells,", " 8192 cells,").replace(" 4608 cells,", " 1536 cells,")
    found = lines(apart, GEMMA)
    # A window and a micro-batch for each of four streams.
    assert found["kv_pool_bytes"].predicted == (10 * 32_768 + 52 * 4 * 1536) * 8192
    assert found["kv_cache_tokens"].predicted == found["kv_cache_tokens"].measured == 32_768


@pytest.mark.parametrize("stated", ["", "[TensorRT-LLM][INFO] Number of tokens per block: 64.\n"])
def test_tokens_per_block_follow_from_tokens_and_blocks(stated: str) -> None:
    # 405,504 tokens in 6,336 blocks.
    text = stated + samples.TENSORRT_OLD
    assert inputs(text, LLAMA)["block_tokens"] == 64
    found = lines(text, LLAMA)
    assert error(found["kv_blocks"]) < 0.005
    assert error(found["kv_cache_tokens"]) < 0.005
    uneven = samples.TENSORRT_OLD.replace("405504", "405505")
    assert inputs(uneven, LLAMA)["block_tokens"] == 32


def test_numbered_ranks_are_counted() -> None:
    rank = (
        "[01/16/2026-06:20:17] [TRT-LLM] [RANK {}] [I] Peak memory during memory usage profiling (torch + non-torch): "
    )
    rest = "26.80 GiB, available KV cache memory when calculating max tokens: 47.40 GiB, fraction is set 0.9\n"
    text = "[TensorRT-LLM] TensorRT-LLM version: 1.0.0\n" + "".join(rank.format(n) + rest for n in range(4))
    answer = compare_text(text, LLAMA)
    assert answer.result.num_gpus == 4
    assert {item.name: item.origin for item in answer.inputs}["tp"] == "the ranks seen in the log"


def test_the_models_own_drafts_are_not_called_foreign() -> None:
    drafts = "speculative_config=SpeculativeConfig(method='mtp', num_spec_tokens=1)"
    deep = samples.V1_H100.replace("meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3")
    deep = deep.replace("tensor_parallel_size=1", "tensor_parallel_size=8")
    own = compare_text(deep.replace("speculative_config=None", drafts), H100)
    assert not any("not modelled here" in text for text in own.warnings)
    # A model without such layers drafts with another's.
    foreign = compare_text(samples.V1_H100.replace("speculative_config=None", drafts), H100)
    assert any("not modelled here" in text for text in foreign.warnings)
