"""The rules as data: each can be read, priced, explained and looked up in the options of its engines."""

from __future__ import annotations

import re
import string

import pytest

from infcalc.diagnosis.asking import HOW
from infcalc.diagnosis.from_start import TELLS
from infcalc.diagnosis.rule import Change, Kind, Rule
from infcalc.diagnosis.rules import RULES
from infcalc.diagnosis.signals import Signal
from infcalc.engines.flags.table import FLAGS

ASKED_FOR = {
    "prefill-bound",
    "decode-bound",
    "kv-exhausted",
    "queueing",
    "prefix-cache-ineffective",
    "speculation-losing",
    "cpu-bound",
    "front-end-bound",
    "tp-over-pcie",
    "graph-capture-missed",
    "token-budget-too-large",
    "token-budget-too-small",
    "impossible-measurement",
    "normal",
}
PLACED = {
    *("impossible", "contradictions", "kernels", "kv_room", "seats", "messages", "captured", "front", "prefill"),
    *("decode", "drafting", "budget", "offload", "wait", "rounds", "transfer", "hits", "batch", "refusal"),
    *("refusal_remedy", "measured", "bound", "roofline", "normal", "slower", "suspects", "best_drafts"),
    *("more_memory", "more_sequences", "fewer_sequences", "twice_tp", "half_budget"),
    *("stages", "tp_of_stage", "or_was", "unit", "thrown_away", "larger_budget", "half_tp"),
}
"""Facts that whoever evaluates fills in: infcalc/api/diagnosing_facts.py."""


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_symptom_that_people_ask_about_has_a_rule_and_one_only() -> None:
    symptoms = [rule.symptom for rule in RULES]
    assert set(symptoms) >= ASKED_FOR
    assert len(symptoms) == len(set(symptoms))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.symptom)
def test_a_rule_says_where_it_is_from_and_so_does_each_threshold(rule: Rule) -> None:
    assert rule.source
    assert rule.cases
    assert all(rule.cases)
    assert all(condition.source for case in rule.cases for condition in case)
    assert rule.title
    assert rule.cause
    assert rule.remedies


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.symptom)
def test_what_a_rule_gives_way_to_was_looked_at_before(rule: Rule) -> None:
    before = [one.symptom for one in RULES[: RULES.index(rule)]]
    assert set(rule.unless) <= set(before)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.symptom)
def test_facts_that_sentences_name_are_filled_in(rule: Rule) -> None:
    texts = [rule.title, rule.cause, *(remedy.text for remedy in rule.remedies)]
    texts += [turn.value for remedy in rule.remedies for turns in remedy.flags.values() for turn in turns]
    for text in texts:
        assert places(text) <= PLACED, text


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.symptom)
def test_options_are_those_of_the_engines(rule: Rule) -> None:
    for remedy in rule.remedies:
        for engine, turns in remedy.flags.items():
            for turn in turns:
                assert turn.name in FLAGS[engine], f"{engine} {turn.name}"
                assert not (turn.leave_out and turn.value)


def test_a_fault_that_a_setting_mends_is_priced() -> None:
    unpriced = {
        rule.symptom for rule in RULES if rule.kind is Kind.FAULT and not any(remedy.change for remedy in rule.remedies)
    }
    # None of these is a setting that the model knows: errors, routers, networks, and what nobody could name.
    assert unpriced == {"requests-failed", "uneven-load", "kv-transfer-waits", "slower-than-predicted"}


def test_every_change_is_used_and_known() -> None:
    from infcalc.api.diagnosing_changes import _CHANGES  # noqa: PLC0415

    used = {remedy.change for rule in RULES for remedy in rule.remedies} - {None}
    assert used == set(Change)
    # Drafting is priced by its own rounds.
    assert set(_CHANGES) == set(Change) - {Change.NO_DRAFTING}


def test_every_signal_says_how_to_get_it_and_is_looked_at() -> None:
    assert set(HOW) | {Signal.QUEUE} >= {
        condition.signal for rule in RULES for case in rule.cases for condition in case
    }
    for signal in HOW:
        assert HOW[signal].what
        assert HOW[signal].how


def test_lines_that_tell_by_themselves_are_patterns_with_a_source() -> None:
    for tell in TELLS:
        assert re.compile(tell.words)
        assert tell.means
        assert tell.source
