from __future__ import annotations

import pytest

from infcalc.engines.drafting import draft_pace
from infcalc.engines.pace import pace


@pytest.mark.parametrize(("version", "expands"), [("0.6.3", True), ("0.7.3", True), ("0.8.0", False), ("0.33", False)])
def test_vllm_expands_the_batch_before_v1(version: str, expands: bool) -> None:
    assert draft_pace("vllm", version, pace("vllm", version).value).expands is expands


def test_the_old_engine_of_a_version_that_had_both_expands() -> None:
    steps = pace("vllm", "0.9.2", "v0").value
    assert draft_pace("vllm", "0.9.2+v0", steps).expands
    assert not draft_pace("vllm", "0.9.2", steps).expands


@pytest.mark.parametrize("engine", ["hf", "gpt-fast", "llama.cpp"])
def test_where_the_host_drives_each_pass_it_costs_what_a_step_does(engine: str) -> None:
    steps = pace(engine, None).value
    added = draft_pace(engine, None, steps)
    assert (added.pass_s, added.pass_sequence_s) == (steps.per_step_s, steps.per_sequence_s)
    assert added.round_s == added.tree_s == steps.per_step_s
    assert not added.expands


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_every_value_says_what_it_rests_on(engine: str) -> None:
    added = draft_pace(engine, None, pace(engine, None).value)
    assert added.footing.otherwise
    assert 0 < added.pass_s < 1e-3
    assert added.round_s > added.pass_s
    assert added.pass_sequence_s == 0
    # What is left of a step where no scheduler runs is less than a step of the eager host that it was taken from.
    assert added.pass_s <= 0.6e-3
    assert added.tree_s <= 1.2e-3
    assert (added.tree_s == 0) == (engine == "vllm")
