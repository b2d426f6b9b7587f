"""What drafting did in a run, and against the same requests without it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.speculation.linear import alpha_of_tokens_per_round

if TYPE_CHECKING:
    from infcalc.api.drafted_load import DraftedLoad
    from infcalc.api.simulation_nouns import LoadCurve, RunResult
    from infcalc.simulation.chance import RoundCounts
    from infcalc.simulation.summary import TimeSummary


def with_rounds(run: RunResult, counts: RoundCounts, drafted: DraftedLoad) -> RunResult:
    """Return a run with what its rounds yielded."""
    tokens, length = counts.tokens_per_round, drafted.num_draft_tokens
    return replace(
        run,
        method=str(drafted.way.method),
        num_draft_tokens=length,
        rounds=counts.num_rounds,
        tokens_per_round=tokens,
        acceptance=None if tokens is None else alpha_of_tokens_per_round(tokens, length),
    )


def compared_with(run: RunResult, plain: RunResult) -> RunResult:
    """Return a run with how many times as fast it is as the same requests without drafting."""
    throughput = run.output_tokens_per_s / plain.output_tokens_per_s if plain.output_tokens_per_s else None
    return replace(
        run,
        speedup=_times(plain.tpot_s, run.tpot_s),
        speedup_e2e=_times(plain.e2e_s, run.e2e_s),
        speedup_throughput=throughput,
    )


def _times(plain: TimeSummary | None, drafted: TimeSummary | None) -> float | None:
    return plain.mean / drafted.mean if plain is not None and drafted is not None and drafted.mean else None


def with_crossover(curve: LoadCurve) -> LoadCurve:
    """Return a curve with the greatest value up to which drafting makes no request slower in the mean."""
    pays = None
    for point in curve.points:
        if point.speedup_e2e is None or point.speedup_e2e < 1:
            break
        pays = point.value
    return replace(curve, drafting_pays_up_to=pays)
