"""Rules held against readings: which fire, which were looked at and did not, and which could not be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.diagnosis.rule import Condition, Rule
    from infcalc.diagnosis.signals import Reading, Readings, Signal


@frozen
class Fired:
    """A rule that fires, and the readings that made it. ``modelled``: one of them rests on a prediction."""

    rule: Rule
    readings: tuple[Reading, ...]

    @property
    def modelled(self) -> bool:
        """Whether the finding rests on a prediction."""
        return any(one.modelled for one in self.readings)


@frozen
class Quiet:
    """A rule that was looked at and did not fire, with the readings that speak against it."""

    rule: Rule
    readings: tuple[Reading, ...]


@frozen
class Unseen:
    """A rule that could not be looked at: the signals that no case of it is complete without."""

    rule: Rule
    lacking: tuple[Signal, ...]


@frozen
class Verdicts:
    """What became of each rule."""

    fired: tuple[Fired, ...]
    quiet: tuple[Quiet, ...]
    unseen: tuple[Unseen, ...]


def evaluate(rules: Sequence[Rule], readings: Readings) -> Verdicts:
    """Return what becomes of each rule, in the order of the rules; a rule's ``unless`` names rules before it.

    Cases that rest on measurements alone count before those that rest on a prediction.
    """
    fired: list[Fired] = []
    quiet: list[Quiet] = []
    unseen: list[Unseen] = []
    for rule in rules:
        passing = [found for case in rule.cases if (found := _passing(case, readings)) is not None]
        if passing and not {one.rule.symptom for one in fired} & set(rule.unless):
            sure = next((found for found in passing if not any(one.modelled for one in found)), passing[0])
            fired.append(Fired(rule=rule, readings=sure))
            continue
        against = _against(rule, readings)
        if passing or against:
            quiet.append(Quiet(rule=rule, readings=against or passing[0]))
        else:
            unseen.append(Unseen(rule=rule, lacking=_lacking(rule, readings)))
    return Verdicts(fired=tuple(fired), quiet=tuple(quiet), unseen=tuple(unseen))


def _passing(case: Sequence[Condition], readings: Readings) -> tuple[Reading, ...] | None:
    """Return the readings of a case whose conditions all hold; None where one does not, or cannot be told."""
    found = []
    for condition in case:
        reading = readings.get(condition.signal)
        if reading is None or not condition.op.holds(reading.value, condition.threshold):
            return None
        found.append(reading)
    return tuple(found)


def _against(rule: Rule, readings: Readings) -> tuple[Reading, ...]:
    """Return the readings that make a case fail; none where no case was refuted."""
    found: dict[Signal, Reading] = {}
    for case in rule.cases:
        for condition in case:
            reading = readings.get(condition.signal)
            if reading is not None and not condition.op.holds(reading.value, condition.threshold):
                found.setdefault(condition.signal, reading)
    return tuple(found.values())


def _lacking(rule: Rule, readings: Readings) -> tuple[Signal, ...]:
    """Return what the case lacks that lacks least."""
    by_case = [
        tuple(dict.fromkeys(one.signal for one in case if readings.get(one.signal) is None)) for case in rule.cases
    ]
    return min(by_case, key=len)
