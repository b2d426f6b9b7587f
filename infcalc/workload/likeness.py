"""A recipe like a trace: the options that make one with its rate, burstiness and spread of lengths.

Gaps become a Gamma law and lengths lognormal laws with the mean and the coefficient of variation that were found. It
keeps neither bursts longer than a gap nor what prompts share; the trace itself does.
"""

from __future__ import annotations

from infcalc.workload.description import LengthSummary, Rates


def options_like(rates: Rates, inputs: LengthSummary, outputs: LengthSummary) -> str:
    """Return the options of ``infcalc workload`` (and of other commands that take arrivals) for a trace like this."""
    parts = []
    if rates.rate_per_s is not None and rates.cv is not None:
        parts.append(f"--arrivals gamma:rate={rates.rate_per_s:.4g},cv={min(rates.cv, _MOST_CV):.3g}")
    parts += [f"--{name}-tokens {_law(summary)}" for name, summary in (("input", inputs), ("output", outputs))]
    return " ".join(parts)


def _law(summary: LengthSummary) -> str:
    if summary.min == summary.max:
        return str(summary.min)
    mean = f"{summary.mean:.0f}" if summary.mean >= _WHOLE else f"{summary.mean:.4g}"
    return f"lognormal:mean={mean},cv={max(0.01, min(summary.cv, _MOST_CV)):.3g}"


_MOST_CV = 20.0
_WHOLE = 1000
