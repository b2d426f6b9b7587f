"""The view of ``infcalc what-if``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.what_if_nouns import WhatIfResult

_KEYS = (
    "throughput_factor",
    "throughput_factor_low",
    "throughput_factor_high",
    "tpot_factor",
    "tpot_factor_low",
    "tpot_factor_high",
    "ttft_factor",
    "ttft_factor_low",
    "ttft_factor_high",
    "e2e_factor",
    "e2e_factor_low",
    "e2e_factor_high",
    "usd_per_million_factor",
    "usd_per_million_factor_low",
    "usd_per_million_factor_high",
    "gain_factor",
)


def view(answer: Answer[WhatIfResult]) -> View:
    """Return the features side by side, and the reason of each verdict."""
    one = answer.result
    where = f"{one.model} on {one.num_gpus} x {one.gpu}"
    if not one.fits:
        missing = f"{where}: does not fit, {format_bytes(one.missing_bytes)} per GPU are missing"
        return view_of(answer, tables=(), findings=(missing,))
    rows = tuple(
        {"feature": str(row.feature), "meaning": row.meaning, "verdict": str(row.verdict), "num_gpus": row.num_gpus}
        | {key: getattr(row, key) for key in _KEYS}
        | {"why": row.why}
        for row in one.rows
    )
    table = Table(
        title="Against the same GPUs and requests without it (tokens/s: more is better; the others: less is)",
        columns=(
            Column(key="feature", heading="feature", left=True),
            Column(key="verdict", heading="verdict", left=True),
            Column(key="num_gpus", heading="GPUs", show=count, aside=True),
            Column(key="throughput_factor", heading="tokens/s", show=_times),
            Column(key="tpot_factor", heading="TPOT", show=_times),
            Column(key="ttft_factor", heading="TTFT", show=_times),
            Column(key="e2e_factor", heading="request", show=_times, aside=True),
            Column(key="usd_per_million_factor", heading="USD/M", show=_times),
            Column(key="usd_per_million_factor_low", heading="low", show=_times, aside=True),
            Column(key="usd_per_million_factor_high", heading="high", show=_times, aside=True),
        ),
        rows=rows,
    )
    reasons = Table(
        title="Why",
        columns=(
            Column(key="feature", heading="feature", left=True),
            Column(key="meaning", heading="what it is", left=True, aside=True),
            Column(key="why", heading="why", left=True),
        ),
        rows=rows,
    )
    return view_of(answer, findings=(_now(one, where), _best(one)), tables=(table, reasons))


def _now(one: WhatIfResult, where: str) -> str:
    parts = [f"{one.output_tokens_per_s:,.0f} tokens/s"]
    parts += [f"first token after {format_seconds(one.ttft_s)}"] if one.ttft_s is not None else []
    parts += [f"{format_seconds(one.tpot_s)} per token"] if one.tpot_s is not None else []
    if one.usd_per_million_output_tokens is not None:
        parts.append(f"{one.usd_per_million_output_tokens:.2f} USD per million")
    return f"now, {where}: {', '.join(parts)}"


def _best(one: WhatIfResult) -> str:
    gains = [row for row in one.rows if row.verdict in {"pays", "may pay"} and row.gain_factor is not None]
    if not gains:
        return "nothing that was asked about pays here"
    gains.sort(key=lambda row: -(row.gain_factor or 0))
    named = ", ".join(f"{row.feature} ({row.verdict})" for row in gains)
    return f"what helps, most first: {named}"


def _times(value: object) -> str:
    """Return a factor as people read it.

    >>> _times(1.234), _times(182.33), _times(0.00549), _times(None)
    ('1.23x', '182x', '0.0055x', '-')
    """
    if not isinstance(value, float):
        return "-"
    if value >= 100:  # noqa: PLR2004 - three digits
        return f"{value:.0f}x"
    return f"{value:.2f}x" if value >= 0.1 else f"{value:.2g}x"  # noqa: PLR2004 - at least two digits
