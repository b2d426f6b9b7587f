from __future__ import annotations

import re
from dataclasses import fields
from types import ModuleType

import pytest

from infcalc.api import ledger as unstated
from infcalc.api import validating
from infcalc.engines import llamacpp, sglang, tensorrt_llm, vllm
from infcalc.engines.evidence import Evidence
from infcalc.engines.rules import Band, EngineRules, ProfileRules, Since
from infcalc.memory import blocks, budget, overhead, weights

RULES = (blocks, weights, overhead, budget, vllm, sglang, tensorrt_llm, llamacpp, unstated)
ALL = [one for module in (*RULES, validating) for one in module.evidence()]
NO_RULES = {
    "_FP32_BYTES": "the width of a number",
    "_TOWER_ELEMENT_BYTES": "the width of a number",
    "_ABSORBED_ELEMENT_BYTES": "the width of a number",
    "_LORA_ELEMENT_BYTES": "the width of a number",
    "_ELEMENT_BYTES": "the width of a number",
    "_LOGIT_BYTES": "the width of a number",
    "_STREAM_ELEMENTS": "the width of a number",
    "_CONV_TAPS": "the shape of a layer",
    "_WIDE_TP": "where one row of a table ends",
    "_HOPPER": "the name of a GPU generation",
    "_AMPERE": "the name of a GPU generation",
    "_BLACKWELL": "the name of a GPU generation",
    "_CONSUMER_BLACKWELL": "the name of a GPU generation",
    "_GENERATION": "the name of an engine core",
    "_LAST_V0": "the version of an engine core",
}
"""Constants that say how something is written or called, and not how large it is."""
STRUCTURE = frozenset(
    [
        "null_blocks",
        "recurrent_pages",
        "in_flight_steps",
        "latent_multiple",
        "absorbed_latent_copies",
        "expert_input_multiple",
        "expert_inner_multiple",
        "block_tokens",
    ]
)
"""Whole numbers of an engine's code: the rules on weights, bytes per token and blocks."""
BY_THEIR_ENGINE = frozenset(
    [
        "fraction",
        "sampler_logit_copies",
        "sampler_high_logit_copies",
        "cuda_graph_bytes",
        "cuda_graph_low_bytes",
        "cuda_graph_high_bytes",
    ]
)
"""Fields that each engine fills from constants of its own."""


def told(module: ModuleType) -> set[str]:
    return {name for one in module.evidence() for name in one.about}


def is_figure(value: object) -> bool:
    """Return whether a constant holds numbers: by itself, or in a band, a step of versions, a row or a table."""
    match value:
        case bool() | str() | re.Pattern():
            return False
        case int() | float() | Band() | Since() | ProfileRules():
            return True
        case tuple() | frozenset():
            return any(is_figure(one) or hasattr(one, "__dataclass_fields__") for one in value)
        case dict():
            return any(is_figure(one) for one in value.values())
        case _:
            return False


@pytest.mark.parametrize("module", RULES, ids=lambda module: module.__name__)
def test_every_figure_of_a_rule_is_told(module: ModuleType) -> None:
    figures = {
        name
        for name, value in vars(module).items()
        if re.fullmatch(r"_[A-Z][A-Z0-9_]*", name) and is_figure(value) and name not in NO_RULES
    }
    assert figures - told(module) == set()
    named = {name for name in told(module) if name.startswith("_")}
    assert {name for name in named if not hasattr(module, name)} == set()


@pytest.mark.parametrize("rules", [EngineRules, ProfileRules])
def test_every_field_with_a_figure_is_told(rules: type) -> None:
    numbers = {field.name for field in fields(rules) if re.search(r"\b(int|float)\b", str(field.type))}
    everything = {name for one in ALL for name in one.about}
    assert numbers - everything - STRUCTURE - BY_THEIR_ENGINE == set()


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.rule)
def test_a_rule_rests_on_a_mechanism_a_source_or_five_logs(one: Evidence) -> None:
    assert set(one.rests_on) - {"size set by hand"}
    assert one.figures


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.rule)
def test_a_mechanism_is_a_reason_and_not_a_confession(one: Evidence) -> None:
    assert not re.search(r"by hand|fitted|tuned|judgement|guess", one.mechanism)
    assert not one.mechanism or len(one.mechanism.split()) > 1


def test_rules_are_told_once() -> None:
    assert len({one.rule for one in ALL}) == len(ALL)


def test_few_logs_alone_carry_nothing() -> None:
    assert Evidence(rule="a", figures="2.1 GiB (4 logs)").rests_on == ()
    assert Evidence(rule="a", figures="2.1 GiB (5 logs)").rests_on == ("5 logs",)
    assert Evidence(rule="a", figures="2.1 GiB (1 log)", mechanism="why").rests_on == ("mechanism",)
    assert Evidence(rule="a", figures="0.9", read_in="code").rests_on == ("source",)
    assert Evidence(rule="a", figures="0.9", mechanism="why", by_hand=True).rests_on == (
        "mechanism",
        "size set by hand",
    )


def test_every_step_of_the_buffers_is_told() -> None:
    figures = {one.figures for one in vllm.evidence()}
    assert {step.source for steps in vllm._NON_TORCH.values() for step in steps} <= figures  # noqa: SLF001 - the rules
