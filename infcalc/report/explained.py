"""Explanations as lines a person reads: formula, substituted values, inputs with their origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infcalc.spec.explain import Explanation


def lines(explanations: tuple[Explanation, ...]) -> tuple[str, ...]:
    """Return one text per explanation."""
    return tuple(_line(explanation) for explanation in explanations)


def _line(explanation: Explanation) -> str:
    origins = "; ".join(
        f"{item.name} = {item.value} ({item.origin}{', ' + item.source if item.source else ''})"
        for item in explanation.inputs
    )
    text = f"{explanation.quantity} = {explanation.formula} = {explanation.substituted}"
    if origins:
        text += f" [{origins}]"
    return f"{text} (source: {explanation.source})" if explanation.source else text
