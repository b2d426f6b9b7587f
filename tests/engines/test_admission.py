from __future__ import annotations

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.fitting import concurrency
from infcalc.api.users import Load
from infcalc.engines.admission import admission
from infcalc.engines.rules import ENGINES


@pytest.mark.parametrize("engine", ENGINES)
def test_only_tensorrt_llm_holds_room_for_the_whole_answer(engine: str) -> None:
    found = admission(engine)
    assert found.reserves_answer is (engine == "tensorrt-llm")
    assert found.overflow
    assert found.source


@pytest.mark.parametrize(("engine", "word"), [("vllm", "preempts"), ("sglang", "retracts"), ("tensorrt-llm", "wait")])
def test_what_happens_to_a_full_pool(engine: str, word: str) -> None:
    assert word in admission(engine).overflow


@pytest.mark.parametrize(("engine", "live"), [("vllm", 1000 + 100), ("tensorrt-llm", 1000 + 200)])
def test_a_reserved_answer_is_alive_in_whole(engine: str, live: int) -> None:
    ask = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1, engine=engine, kv_dtypes=("fp16",))
    found = concurrency(ask, requests=Load(input_tokens=1000, output_tokens=200)).result
    assert found.rows[0].mean_live_tokens == live
