"""Several files side by side: their answers as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import merged_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence


def together(answers: Sequence[Answer[Any]]) -> Answer[Any]:
    """Return the answers of several files as one, their results in order."""
    from infcalc.api.measured_nouns import RunComparison  # noqa: PLC0415 - only here
    from infcalc.api.measured_pattern import pattern_of  # noqa: PLC0415

    results = tuple(result for answer in answers for result in answer.results)
    runs = [result for result in results if isinstance(result, RunComparison)]
    own = {note for answer in answers for note in answer.assumptions if note.startswith("over the ")}
    notes = [note for answer in answers for note in answer.assumptions if note not in own]
    return Answer(
        command="compare",
        results=results,
        inputs=merged_inputs([answer.inputs for answer in answers]),
        assumptions=distinct([*notes, *pattern_of(runs)]),
        warnings=distinct([talk for answer in answers for talk in answer.warnings]),
        explanations=tuple(text for answer in answers for text in answer.explanations),
        exit_code=max(answer.exit_code for answer in answers),
    )
