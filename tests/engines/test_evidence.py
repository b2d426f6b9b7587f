from __future__ import annotations

import pytest

from infcalc.api import ledger as unstated
from infcalc.api import validating
from infcalc.engines import llamacpp, sglang, tensorrt_llm, vllm
from infcalc.engines.evidence import Evidence
from infcalc.memory import blocks, ledger, overhead, weights

ALL = [
    one
    for module in (blocks, weights, overhead, ledger, vllm, sglang, tensorrt_llm, llamacpp, unstated, validating)
    for one in module.evidence()
]


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.rule)
def test_a_rule_rests_on_a_mechanism_a_source_or_five_logs(one: Evidence) -> None:
    assert one.rests_on
    assert one.figures


def test_rules_are_told_once() -> None:
    assert len({one.rule for one in ALL}) == len(ALL)


def test_few_logs_alone_carry_nothing() -> None:
    assert Evidence(rule="a", figures="2.1 GiB (4 logs)").rests_on == ()
    assert Evidence(rule="a", figures="2.1 GiB (5 logs)").rests_on == ("5 logs",)
    assert Evidence(rule="a", figures="2.1 GiB (1 log)", mechanism="why").rests_on == ("mechanism",)
    assert Evidence(rule="a", figures="0.9", read_in="code").rests_on == ("source",)


def test_every_step_of_the_buffers_is_told() -> None:
    figures = {one.figures for one in vllm.evidence()}
    assert {step.source for steps in vllm._NON_TORCH.values() for step in steps} <= figures  # noqa: SLF001 - the rules
