"""Predictions against measurements: the errors of a group of cases, whatever was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

SCORED = "scored"
SKIPPED = "skipped"


class Scored(Protocol):
    """A case: what was measured, what is predicted without it, and how far off that is."""

    @property
    def id(self) -> str:
        """Of the recorded entry."""

    @property
    def status(self) -> str:
        """``scored`` or ``skipped``."""

    @property
    def measured(self) -> float | None:
        """As recorded."""

    @property
    def low(self) -> float | None:
        """Of the band."""

    @property
    def high(self) -> float | None:
        """Of the band."""

    @property
    def error_fraction(self) -> float | None:
        """(predicted - measured) / measured."""


@frozen
class ValidationSummary:
    """The errors of one quantity in one group of cases."""

    quantity: str
    group: str
    cases: int
    skipped: int
    median_abs_error_fraction: float | None
    mean_abs_error_fraction: float | None
    p90_abs_error_fraction: float | None
    worst: float | None
    worst_id: str
    band_coverage_fraction: float | None


def summary(quantity: str, group: str, cases: Iterable[Scored]) -> ValidationSummary:
    """Return the errors of a group of cases; the 90th percentile is interpolated."""
    members = list(cases)
    scored = [case for case in members if case.error_fraction is not None and case.status == "scored"]
    errors = sorted(abs(case.error_fraction or 0.0) for case in scored)
    worst = max(scored, key=lambda case: abs(case.error_fraction or 0.0), default=None)
    inside = [
        case
        for case in scored
        if case.low is not None
        and case.high is not None
        and case.measured is not None
        and case.low <= case.measured <= case.high
    ]
    return ValidationSummary(
        quantity=quantity,
        group=group,
        cases=len(scored),
        skipped=len(members) - len(scored),
        median_abs_error_fraction=_quantile(errors, 0.5),
        mean_abs_error_fraction=sum(errors) / len(errors) if errors else None,
        p90_abs_error_fraction=_quantile(errors, 0.9),
        worst=errors[-1] if errors else None,
        worst_id=worst.id if worst else "",
        band_coverage_fraction=len(inside) / len(scored) if scored else None,
    )


def _quantile(values: list[float], share: float) -> float | None:
    if not values:
        return None
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)
