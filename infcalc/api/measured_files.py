"""The answer for one file with measurements: each run, scrape or log in it beside what is predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import check_numbers, load, merged_inputs
from infcalc.api.measured_comparing import compared_run
from infcalc.api.offer import Offer
from infcalc.errors import InfcalcError, UsageError
from infcalc.evidence.nouns import BenchmarkRun, IntervalLog
from infcalc.evidence.reading import format_of, read_evidence

if TYPE_CHECKING:
    from infcalc.api.deployment import Ask
    from infcalc.api.measured_comparing import Compared
    from infcalc.api.simulation_runs import Progress
    from infcalc.catalog.lookup import Catalog
    from infcalc.evidence.nouns import Evidence
    from infcalc.spec.explain import Explanation

_MOST_RUNS = 10_000


def compare_measured(
    text: str,
    ask: Ask,
    given: Offer | None,
    *,
    place: str,
    form: str | None = None,
    simulated: bool = False,
    seed: int | None = None,
    explain: bool = False,
    progress: Progress | None = None,
) -> Answer[Any]:
    """Return the runs, scrapes or interval lines of a text, each beside what is predicted.

    Runs that cannot be predicted are left out with a warning where others of the file can.

    Raises:
        InfcalcError: any of its kinds: the text is damaged, or none of its runs can be predicted.

    """
    check_numbers(ask)
    _check_one(ask)
    offer = given or Offer()
    found = read_evidence(text, place, format_of(form))
    if len(found) > _MOST_RUNS:
        raise UsageError(f"{len(found):,} runs", place=place, hint=f"at most {_MOST_RUNS:,} are compared at a time")
    catalog = load(ask)
    made: list[Compared] = []
    left: list[InfcalcError] = []
    for one in found:
        try:
            made.append(_compared(one, text, ask, offer, catalog, simulated=simulated, seed=seed, progress=progress))
        except InfcalcError as problem:
            left.append(problem)
    if not made:
        raise left[0]
    dropped = [f"left out: {_told(problem)}" for problem in left]
    from infcalc.api.measured_pattern import pattern_notes  # noqa: PLC0415 - only with runs

    explanations: tuple[Explanation, ...] = ()
    if explain:
        from infcalc.api.measured_reasons import explained  # noqa: PLC0415 - only when asked

        explanations = tuple(text for one in made for text in explained(one.result))
    return Answer(
        command="compare",
        results=tuple(one.result for one in made),
        inputs=merged_inputs([one.inputs for one in made]),
        assumptions=distinct([*(note for one in made for note in one.assumptions), *pattern_notes(made)]),
        warnings=distinct([*dropped, *(talk for one in made for talk in one.warnings)]),
        explanations=explanations,
    )


def _told(problem: InfcalcError) -> str:
    head = f"{problem.place}: {problem.message}" if problem.place else problem.message
    return f"{head} ({problem.hint})" if problem.hint else head


def _check_one(ask: Ask) -> None:
    for place, names in (("--model", ask.models), ("--gpu", ask.gpus), ("--kv-dtype", ask.kv_dtypes)):
        if len(names) > 1:
            raise UsageError(f"{len(names)} values", place=place, hint="a measurement is of one: give the one that ran")


def _compared(
    one: Evidence,
    text: str,
    ask: Ask,
    offer: Offer,
    catalog: Catalog,
    *,
    simulated: bool,
    seed: int | None,
    progress: Progress | None,
) -> Compared:
    if isinstance(one, IntervalLog):
        from infcalc.api.measured_intervals import compared_log  # noqa: PLC0415 - only for such lines

        return compared_log(one, text, ask, catalog)
    if simulated and not isinstance(one, BenchmarkRun):
        raise UsageError("metrics say no load that could be simulated", place="--simulate", hint="leave it out")
    return compared_run(one, ask, offer, catalog, simulated=simulated, seed=seed, progress=progress)
