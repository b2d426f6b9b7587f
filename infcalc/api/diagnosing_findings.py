"""From rules that fired to findings: evidence, remedies by their gain, options in the engine's words and version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from infcalc.api.diagnosing_gains import NOT_PRICED
from infcalc.api.diagnosing_nouns import EvidenceLine, Finding, Gain, Lacking, LookedAt, RemedyOffer
from infcalc.diagnosis.asking import BENCHMARK, HOW, METRICS, MORE_METRICS, TWO_SCRAPES
from infcalc.diagnosis.rule import Kind
from infcalc.diagnosis.rules import RULES
from infcalc.diagnosis.signals import Signal
from infcalc.engines.flags.table import FLAGS, has_flag, version_of, why_absent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.diagnosing_facts import Facts
    from infcalc.api.diagnosing_gains import Pricer
    from infcalc.diagnosis.evaluating import Fired, Quiet, Unseen
    from infcalc.diagnosis.rule import Remedy, Turn
    from infcalc.diagnosis.signals import Reading

_MEASURED: Final = "measured"
_MODELLED: Final = "modelled"
_SAME: Final = 0.02
_SURER: Final = 0.01
"""What a measured finding counts for beside a modelled one, where neither is priced."""
_MOST_READINGS: Final = 2
_KINDS: Final = list(Kind)
_GENERAL: Final = frozenset(rule.symptom for rule in RULES if rule.general)


def finding_of(fired: Fired, facts: Facts, pricer: Pricer, *, engine: str, version: str) -> Finding:
    """Return the finding of a rule."""
    rule = fired.rule
    offers = [_offer(one, facts, pricer, engine=engine, version=version) for one in rule.remedies]
    offers = sorted((one for one in offers if one.text), key=lambda one: -_worth(one))
    first = offers[0] if offers else None
    gain = None if first is None else first.gain
    return Finding(
        symptom=rule.symptom,
        kind=rule.kind,
        title=_sentence(rule.title, facts),
        certainty=_MODELLED if fired.modelled else _MEASURED,
        cause=_sentence(rule.cause, facts),
        evidence=tuple(line for one in fired.readings for line in _evidence(one)),
        remedy="" if first is None else first.text,
        flag="" if first is None else first.flag,
        gain_factor=None if gain is None else gain.gain_factor,
        gain_factor_low=None if gain is None else gain.gain_factor_low,
        gain_factor_high=None if gain is None else gain.gain_factor_high,
        remedies=tuple(offers),
        source=rule.source,
    )


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings by kind, particular ones before general, by what the best remedy gains, by how sure they are."""
    return tuple(sorted(findings, key=_rank))


def _rank(one: Finding) -> tuple[int, bool, float]:
    sure = _SURER if one.certainty == _MEASURED else 0.0
    gain = one.remedies[0].gain if one.remedies else None
    worth = max(1.0, 1.0 if gain is None else _for_as_many(gain)) + sure
    return _KINDS.index(one.kind), one.symptom in _GENERAL, -worth


def _worth(offer: RemedyOffer) -> float:
    """Return what remedies stand by: the gain for as many GPUs.

    What is not priced stands where nothing is gained; what is pointless, or cannot be, stands last.
    """
    if offer.gain is None:
        return 1.0 if not offer.change or offer.unpriced.startswith(NOT_PRICED) else 0.0
    return _for_as_many(offer.gain)


def _for_as_many(gain: Gain) -> float:
    return gain.gain_factor * gain.num_gpus_before / gain.num_gpus


def _sentence(text: str, facts: Facts) -> str:
    return text.format_map(facts).strip()


def _evidence(reading: Reading) -> list[EvidenceLine]:
    return [
        EvidenceLine(
            signal=reading.signal,
            value=reading.value,
            said=reading.shown,
            place=cite.place,
            line=cite.line,
            text=cite.text,
        )
        for cite in reading.cites
    ] or [
        EvidenceLine(
            signal=reading.signal,
            value=reading.value,
            said=reading.shown,
            place="the prediction" if reading.modelled else "the deployment",
            line=None,
            text=reading.shown,
        )
    ]


def _offer(remedy: Remedy, facts: Facts, pricer: Pricer, *, engine: str, version: str) -> RemedyOffer:
    flag, note = _flag(remedy.flags.get(engine, ()), facts, engine, version) if engine else ("", "")
    if not note and remedy.flags and not flag:
        note = f"{engine} has no option for it" if engine else "which engine it is is not known"
    gain: Gain | None = None
    unpriced = ""
    if remedy.change is not None:
        priced = pricer.gain(remedy.change)
        if isinstance(priced, str):
            unpriced = priced
        else:
            gain = priced
    return RemedyOffer(
        text=_sentence(remedy.text, facts),
        flag=flag,
        flag_note=note,
        change="" if remedy.change is None else str(remedy.change),
        gain=gain,
        unpriced=unpriced,
    )


def _flag(turns: Sequence[Turn], facts: Facts, engine: str, version: str) -> tuple[str, str]:
    """Return options as they are written for a version, and what is to be said of those that it does not have."""
    at = version_of(engine, version)
    absent = [turn.name for turn in turns if turn.name not in FLAGS[engine] or not has_flag(engine, turn.name, at)]
    if absent:
        why = why_absent(engine, absent[0], at) if absent[0] in FLAGS[engine] else "it is not known"
        return "", f"{engine} {version} has no {absent[0]}: {why}"
    parts = []
    for turn in turns:
        value = turn.value.format_map(facts)
        if turn.leave_out:
            parts.append(f"without {turn.name}")
        elif turn.name.startswith("-"):
            parts.append(f"{turn.name} {value}".strip())
        else:
            parts.append(f"{turn.name}: {value}")
    return " ".join(parts), ""


def looked_at(quiet: Quiet) -> LookedAt:
    """Return what speaks against a rule."""
    shown = dict.fromkeys(one.shown for one in quiet.readings)
    return LookedAt(symptom=quiet.rule.symptom, because="; ".join(list(shown)[:_MOST_READINGS]))


def lacking(unseen: Unseen, *, scraped: bool, scraped_once: bool) -> Lacking:
    """Return what a rule needs, and how to get it.

    ``scraped``: metrics are there; ``scraped_once``: of all time since the start.
    """
    needs = ", ".join(unseen.lacking)
    first = unseen.lacking[0] if unseen.lacking else Signal.TOKEN_OVER_BAND
    way = HOW[first]
    if way == BENCHMARK and scraped_once:
        way = TWO_SCRAPES
    if way == METRICS and scraped:
        return Lacking(symptom=unseen.rule.symptom, needs=needs, what=MORE_METRICS.what, how=MORE_METRICS.how)
    return Lacking(symptom=unseen.rule.symptom, needs=needs, what=way.what, how=way.how)
