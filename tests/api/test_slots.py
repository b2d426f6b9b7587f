from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from infcalc.api.answer import Answer
from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.filling import memory
from infcalc.api.fitting import concurrency
from infcalc.api.slots import Slots, slots_of


def slots(**asked: int | str) -> Slots | None:
    ask = Ask(**{"models": ("llama3-8b",), "num_gpus": 1, "engine": "llama.cpp"} | asked)  # type: ignore[arg-type]
    (deployment,) = resolve(ask, load(ask))
    return slots_of(deployment)


@pytest.mark.parametrize(
    ("context", "number", "each", "flag"),
    [(4096, 4, 1024, 16_384), (16_384, 4, 4096, 65_536), (4096, 1, 4096, 4096), (4096, 3, 1536, 12_288)],
)
def test_a_number_of_slots_splits_the_context(context: int, number: int, each: int, flag: int) -> None:
    # 1,365 tokens for each of three are rounded up to whole multiples of 256 cells.
    found = slots(max_model_len=context, max_num_seqs=number)
    assert found is not None
    assert (found.slot_tokens, found.context_flag_tokens, found.unified_cache) == (each, flag, False)


def test_slots_that_nobody_asked_for_share_one_cache() -> None:
    found = slots(max_model_len=4096)
    assert found is not None
    assert (found.num_slots, found.slot_tokens, found.unified_cache) == (4, 4096, True)


def test_other_engines_have_no_slots() -> None:
    assert slots(engine="vllm", max_model_len=4096, max_num_seqs=4) is None


@pytest.mark.parametrize("question", [memory, concurrency])
def test_what_each_slot_gets_is_said(question: Callable[[Ask], Answer[Any]]) -> None:
    def told(engine: str, number: int | None) -> str:
        ask = Ask(models=("llama3-8b",), num_gpus=1, engine=engine, max_model_len=4096, max_num_seqs=number)
        return "\n".join(question(ask).assumptions)

    assert "-c 4096 -np 4: 1,024 tokens for each slot; for 4,096 each use -c 16384 -np 4" in told("llama.cpp", 4)
    assert "-c 4096 without -np: 4 slots share 4,096 tokens" in told("llama.cpp", None)
    assert "-np" not in told("llama.cpp", 1)
    assert "-np" not in told("vllm", 4)
