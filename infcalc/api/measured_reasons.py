"""How each line of a comparison came about, for ``--explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.measured_comparing import shown_value, signed
from infcalc.spec.explain import Explanation

if TYPE_CHECKING:
    from infcalc.api.measured_nouns import RunComparison

_PATH = "estimate's own path: serving.server under this load, on the clock of this deployment, held at the floors"


def explained(result: RunComparison) -> tuple[Explanation, ...]:
    """Return an explanation for each line with a prediction."""
    return tuple(
        Explanation(
            quantity=f"{line.quantity} {line.statistic}",
            formula="predicted + parts of the difference = measured",
            substituted=(
                f"{shown_value(line.quantity, line.predicted)}"
                + "".join(f" {signed(line.quantity, part.effect)} ({part.cause})" for part in line.parts)
                + f" = {shown_value(line.quantity, line.measured)} (at {line.at}{line.said and f', {line.said}'})"
            ),
            inputs=(),
            source=_PATH,
        )
        for line in result.lines
        if line.predicted is not None
    )
