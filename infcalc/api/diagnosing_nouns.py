"""What a diagnosis answers: findings with their evidence, what to do, what it would gain, and what was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.diagnosis.rule import Kind
    from infcalc.diagnosis.signals import Signal


@frozen
class EvidenceLine:
    """One line that a finding rests on; ``line`` is None where no line of the file states it."""

    signal: Signal
    value: float
    """In the unit that ``signal`` ends in; shares from 0 to 1, truths 1."""
    said: str
    place: str
    line: int | None
    text: str


@frozen
class Gain:
    """What a remedy would change, as the model has it: factors on the same load, above 1 more.

    ``throughput_factor`` above 1 is better, times below 1. ``gain_factor`` is the better of both sides as one number:
    of throughput where clients wait for answers, of the time of a request where they come at a rate.
    """

    gain_factor: float
    gain_factor_low: float
    gain_factor_high: float
    verdict: str
    throughput_factor: float | None
    tpot_factor: float | None
    ttft_factor: float | None
    num_gpus_before: int
    num_gpus: int
    """Of the changed deployment, all replicas."""
    why: str


@frozen
class RemedyOffer:
    """One thing to do: in words, as an option of the engine in its version, and what it would gain.

    ``flag`` is empty where no option sets it; ``flag_note`` says what else is to be known of it. ``gain`` is None where
    nothing prices it, and ``unpriced`` says why.
    """

    text: str
    flag: str
    flag_note: str
    change: str
    gain: Gain | None
    unpriced: str


@frozen
class Finding:
    """One thing that was found. ``certainty``: measured, or modelled where it rests on a prediction.

    ``remedy``, ``flag`` and ``gain_factor`` are those of the first of ``remedies``, which stand by their gain.
    """

    symptom: str
    kind: Kind
    title: str
    certainty: str
    cause: str
    evidence: tuple[EvidenceLine, ...]
    remedy: str
    flag: str
    gain_factor: float | None
    gain_factor_low: float | None
    gain_factor_high: float | None
    remedies: tuple[RemedyOffer, ...]
    source: str


@frozen
class LookedAt:
    """One rule that was held against the evidence and did not fire, with what speaks against it."""

    symptom: str
    because: str


@frozen
class Lacking:
    """One rule that could not be looked at, and how to get what it needs."""

    symptom: str
    needs: str
    what: str
    """To give, in a word or two."""
    how: str


@frozen
class Diagnosis:
    """What is wrong with one server under one load.

    ``num_findings`` counts faults and figures that cannot be relied on, not limits and what is normal.
    """

    verdict: str
    places: tuple[str, ...]
    """What was read, each with its kind."""
    model: str
    gpu: str
    num_gpus: int | None
    engine: str
    engine_version: str
    load: str
    num_findings: int
    findings: tuple[Finding, ...]
    looked_at: tuple[LookedAt, ...]
    missing: tuple[Lacking, ...]
