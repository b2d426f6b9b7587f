"""What a comparison with a measurement answers: its lines, what they are put down to, and where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.judging import Verdict
    from infcalc.api.measured_causes import CauseShare, Effect
    from infcalc.api.measured_normal import Position


@frozen
class FigureLine:
    """One measured figure: what is predicted, and what the difference is put down to.

    Values are in the unit that ``quantity`` ends in. ``error_fraction`` is (predicted - measured) / measured. ``parts``
    add up to measured - predicted. ``roofline_fraction`` is how much of what physics allows was reached; above 1 it is
    impossible. ``predicted`` is None where nothing is predicted of that quantity and statistic.
    """

    quantity: str
    statistic: str
    predicted: float | None
    predicted_low: float | None
    predicted_high: float | None
    measured: float
    error_fraction: float | None
    attributed_to: str
    verdict: Verdict | None
    roofline_fraction: float | None
    slower_fraction: float | None
    """Of published runs of its class, those that are slower relative to their own prediction."""
    parts: tuple[Effect, ...]
    at: str
    """Key or line that states the measured value."""
    said: str
    """How it was derived, where it was."""


@frozen
class RunComparison:
    """One measurement beside its prediction.

    ``token_shares`` and ``first_token_shares`` are what the predicted time per token, and to the first, is made of.
    ``impossible`` are the quantities that no such machine can reach under this load.
    """

    verdict: str
    evidence: str
    """Format of what was compared."""
    place: str
    engine: str
    engine_version: str
    model: str
    gpu: str
    num_gpus: int
    weights: str
    kv_dtype: str
    load: str
    input_tokens: float | None
    output_tokens: float | None
    batch: float | None
    """Mean requests in decode, as predicted."""
    fits: bool
    stable: bool
    bound_by: str
    worst_abs_error_fraction: float | None
    """Over means and medians of what is predicted."""
    impossible: tuple[str, ...]
    normal: Position | None
    """Of the figure that the verdict is of."""
    lines: tuple[FigureLine, ...]
    token_shares: tuple[CauseShare, ...]
    first_token_shares: tuple[CauseShare, ...]
