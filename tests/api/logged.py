"""What tests of compared logs ask of an answer."""

from __future__ import annotations

from infcalc.api.answer import Answer
from infcalc.api.comparing import CompareResult, compare_text
from infcalc.api.deployment import Ask
from infcalc.api.residuals import CompareLine

H100 = Ask(gpus=("h100",))
H200 = Ask(gpus=("h200",))
GEMMA = Ask(gpus=("h100",), models=("gemma-3-27b",))
LLAMA = Ask(gpus=("h100",), models=("llama3.1-8b",))


def lines(text: str, ask: Ask) -> dict[str, CompareLine]:
    return by_name(compare_text(text, ask))


def by_name(answer: Answer[CompareResult]) -> dict[str, CompareLine]:
    return {one.quantity: one for one in answer.result.lines}


def inputs(text: str, ask: Ask) -> dict[str, object]:
    return {item.name: item.value for item in compare_text(text, ask).inputs}


def error(one: CompareLine) -> float:
    """Return how far a prediction is off; it must be known."""
    assert one.error_fraction is not None
    return abs(one.error_fraction)
