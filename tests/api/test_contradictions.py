from __future__ import annotations

from dataclasses import replace

from infcalc.api.comparing import compare_text
from infcalc.api.deployment import Ask
from tests.api.logged import H100, H200, LLAMA
from tests.engines.logs import samples


def warnings(text: str, ask: Ask) -> str:
    return "\n".join(compare_text(text, ask).warnings)


def test_tokens_and_concurrency_of_two_lengths_are_not_put_down_to_windows() -> None:
    odd = samples.V1_H100.replace("25.69x", "12.85x")
    told = warnings(odd, H100)
    assert "420,880 tokens and 12.85 requests of 16,384 differ" in told
    assert "windows, the token line of older" not in told
    assert "of another start, length or rank" in told
    windowed = odd.replace("meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b")
    assert "with windows, the token line of older versions understates" in warnings(windowed, H100)


def test_nothing_left_where_some_is_predicted_is_told() -> None:
    assert "nothing was left for KV, and" in warnings(samples.NO_ROOM, H200)
    # Predicted is nothing, too: nothing contradicts.
    heavy = samples.NO_ROOM.replace("tensor_parallel_size=2", "tensor_parallel_size=1")
    assert "nothing was left" not in warnings(heavy, H100)


def test_a_pool_below_nothing_is_no_contradiction_where_the_engine_refused() -> None:
    row = "INFO 08-05 12:01:05 [gpu_worker.py:298] Available KV cache memory: -2.28 GiB\n"
    told = warnings(samples.NO_ROOM + row, H100)
    assert "cannot be" not in told
    # Weights beyond the engine's share are why nothing was left, and no contradiction.
    assert "cannot be" not in warnings(samples.NO_ROOM.replace("65.74 GiB", "75.00 GiB"), H100)
    ran = samples.V1_H100.replace("51.38 GiB", "-2.28 GiB")
    assert "kv_pool_bytes is negative" in warnings(ran, H100)


def test_weights_that_no_line_prints_make_no_line_untrue() -> None:
    seventy = replace(H100, models=("llama3-70b",))
    text = "\n".join(row for row in samples.TENSORRT.splitlines() if "LLM Args" not in row and "model=" not in row)
    told = warnings(text, seventy)
    assert "does not agree with the prediction" in told
    assert "--tp" in told
    assert "cannot be true" not in told
    assert "does not agree" not in warnings(text, LLAMA)
