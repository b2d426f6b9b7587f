"""What every question is answered with: results, the inputs with their origins, assumptions and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.errors import FileProblem
    from infcalc.spec.explain import Explanation, Input

R_co = TypeVar("R_co", covariant=True)


@frozen
class Answer(Generic[R_co]):
    """The answer to one question for one deployment, or for several side by side.

    ``results`` has one entry per deployment (and KV precision, where several were asked); ``inputs`` are the resolved
    values of the first; ``explanations`` are filled only when asked for. ``exit_code`` is the contract's.
    """

    command: str
    results: tuple[R_co, ...]
    inputs: tuple[Input, ...]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    exit_code: int = 0
    unsaved: tuple[FileProblem, ...] = ()
    """Files beside the answer that could not be written: the answer is there, and is told first."""

    @property
    def result(self) -> R_co:
        """The result, where one deployment was asked; the first of several."""
        return self.results[0]


def distinct(texts: list[str]) -> tuple[str, ...]:
    """Return the texts in order, each once."""
    return tuple(dict.fromkeys(texts))
