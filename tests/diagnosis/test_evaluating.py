"""Rules held against readings, by hand."""

from __future__ import annotations

from infcalc.diagnosis.evaluating import evaluate
from infcalc.diagnosis.remedies import advice
from infcalc.diagnosis.rule import Condition, Kind, Op, Rule
from infcalc.diagnosis.signals import Reading, Readings, Signal


def reading(signal: Signal, value: float, *, modelled: bool = False) -> Reading:
    return Reading(signal=signal, value=value, shown=f"{signal} {value}", modelled=modelled)


def above(signal: Signal, threshold: float) -> Condition:
    return Condition(signal=signal, op=Op.ABOVE, threshold=threshold, source="here")


def rule(symptom: str, *cases: tuple[Condition, ...], unless: tuple[str, ...] = ()) -> Rule:
    return Rule(
        symptom=symptom,
        kind=Kind.FAULT,
        title=symptom,
        cause="",
        cases=cases,
        remedies=(advice("do"),),
        source="here",
        unless=unless,
    )


FULL = above(Signal.KV_USAGE, 0.9)
WAITS = above(Signal.WAITING, 0.0)


def symptoms(rules: tuple[Rule, ...], *readings: Reading) -> tuple[list[str], list[str], list[str]]:
    found = evaluate(rules, Readings.of(readings))
    return (
        [one.rule.symptom for one in found.fired],
        [one.rule.symptom for one in found.quiet],
        [one.rule.symptom for one in found.unseen],
    )


def test_all_conditions_of_a_case_must_hold() -> None:
    rules = (rule("both", (FULL, WAITS)),)
    usage, waiting = reading(Signal.KV_USAGE, 0.95), reading(Signal.WAITING, 3)
    assert symptoms(rules, usage, waiting) == (["both"], [], [])
    assert symptoms(rules, usage, reading(Signal.WAITING, 0)) == ([], ["both"], [])
    assert symptoms(rules, reading(Signal.KV_USAGE, 0.9), waiting) == ([], ["both"], [])


def test_what_is_not_known_is_neither_found_nor_ruled_out() -> None:
    rules = (rule("both", (FULL, WAITS)),)
    assert symptoms(rules, reading(Signal.KV_USAGE, 0.95)) == ([], [], ["both"])
    assert symptoms(rules) == ([], [], ["both"])
    # One condition that fails rules the case out, whatever the other is.
    assert symptoms(rules, reading(Signal.KV_USAGE, 0.5)) == ([], ["both"], [])


def test_one_case_of_several_is_enough_and_measurements_count_before_predictions() -> None:
    rules = (rule("either", (above(Signal.DEMAND_OVER_ROOM, 1.0),), (FULL,)),)
    guessed, told = reading(Signal.DEMAND_OVER_ROOM, 2.0, modelled=True), reading(Signal.KV_USAGE, 0.99)
    (fired,) = evaluate(rules, Readings.of((guessed, told))).fired
    assert fired.readings == (told,)
    assert not fired.modelled
    (fired,) = evaluate(rules, Readings.of((guessed,))).fired
    assert fired.modelled


def test_a_rule_gives_way_to_one_that_fired() -> None:
    rules = (rule("first", (FULL,)), rule("second", (WAITS,), unless=("first",)))
    usage, waiting = reading(Signal.KV_USAGE, 0.95), reading(Signal.WAITING, 3)
    assert symptoms(rules, usage, waiting) == (["first"], ["second"], [])
    assert symptoms(rules, reading(Signal.KV_USAGE, 0.1), waiting) == (["second"], ["first"], [])


def test_what_lacks_is_what_the_nearest_case_lacks() -> None:
    rules = (rule("either", (FULL, WAITS), (above(Signal.PREEMPTIONS, 0.0),)),)
    (unseen,) = evaluate(rules, Readings.of(())).unseen
    assert unseen.lacking == (Signal.PREEMPTIONS,)


def test_the_first_reading_of_a_signal_counts() -> None:
    readings = Readings.of((reading(Signal.KV_USAGE, 0.95), reading(Signal.KV_USAGE, 0.1)))
    assert readings.value(Signal.KV_USAGE) == 0.95
    assert readings.value(Signal.WAITING) is None
