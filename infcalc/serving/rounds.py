"""Rounds of drafting in place of steps: the same server and the same queues, counted in rounds.

A sequence that drafts gets E tokens in a round on average, and needs fewer rounds than tokens. A closed form that knows
steps alone then holds for rounds: an answer is as long as it takes rounds, the clock prices rounds, and the context
grows by E in each. Times per token and rates are turned back into tokens afterwards.

The last round of an answer is cut short: of n tokens that come by rounds of mean E and variance V, on average

    (n + (V + E^2 - E) / (2 E)) / E

rounds are needed (renewal theory, lattice of span 1: Feller, An Introduction to Probability Theory, vol. 1, XIII).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from infcalc.frozen import frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from infcalc.serving.nouns import Requests, Server, Speed


@frozen
class Rounds:
    """What a round yields: mean and standard deviation of its tokens. ``verified_tokens`` are computed for it."""

    mean_tokens: float
    deviation_tokens: float
    verified_tokens: float

    @property
    def scatter(self) -> float:
        """Squared coefficient of variation of the tokens of a round."""
        return (self.deviation_tokens / self.mean_tokens) ** 2

    def number_for(self, tokens: float) -> float:
        """Return the mean rounds that ``tokens`` take, one at least where there are any.

        >>> Rounds(mean_tokens=1.0, deviation_tokens=0.0, verified_tokens=1.0).number_for(100.0)
        100.0
        >>> Rounds(mean_tokens=4.0, deviation_tokens=0.0, verified_tokens=4.0).number_for(98.0)
        24.875
        """
        if tokens <= 0:
            return 0.0
        mean = self.mean_tokens
        beyond = (self.deviation_tokens**2 + mean * mean - mean) / (2 * mean)
        return max(min(1.0, tokens), (tokens + beyond) / mean)


class RoundSeconds(Protocol):
    """Seconds of one round, with prompts beside; all numbers are of one lane."""

    def __call__(
        self,
        *,
        num_decodes: float | NDArray[np.float64],
        context_tokens: float | NDArray[np.float64],
        num_prefills: float,
        new_tokens: float | NDArray[np.float64],
        cached_tokens: float,
        busy_dp_ranks: float | None = None,
    ) -> float:
        """Return the seconds."""


class RoundClock:
    """A clock whose steps are rounds: contexts beyond ``start_tokens`` are counted in rounds and priced in tokens."""

    __slots__ = ("_known", "_mean_tokens", "_seconds", "_start_tokens")

    def __init__(self, seconds: RoundSeconds, *, start_tokens: float, mean_tokens: float) -> None:
        self._seconds, self._start_tokens, self._mean_tokens = seconds, start_tokens, mean_tokens
        self._known: dict[tuple[tuple[str, Any], ...], float] = {}

    def step_s(self, **step: Any) -> Any:  # noqa: ANN401 - numbers, as those who ask for a lane give them
        """Return the seconds of one round."""
        key = tuple(step.items())
        found = self._known.get(key)
        if found is None:
            beyond = max(0.0, step["context_tokens"] - self._start_tokens)
            context = min(step["context_tokens"], self._start_tokens) + beyond * self._mean_tokens
            found = self._known[key] = self._seconds(
                num_decodes=step["num_decodes"],
                context_tokens=context,
                num_prefills=step.get("num_prefills", 0.0),
                new_tokens=step.get("new_tokens", 0.0),
                cached_tokens=step.get("cached_tokens", 0.0),
                busy_dp_ranks=step.get("busy_dp_ranks"),
            )
        return found


def in_rounds(server: Server, asked: Requests, rounds: Rounds) -> tuple[Server, Requests]:
    """Return server and requests counted in rounds; the clocks are to be those of rounds.

    The front end still handles every token of an answer.
    """
    pace = server.pace
    return (
        replace(
            server,
            verified_tokens=rounds.verified_tokens,
            pace=replace(pace, token_s=pace.token_s * rounds.mean_tokens),
        ),
        replace(asked, answers=tuple((weight, 1 + rounds.number_for(length - 1)) for weight, length in asked.answers)),
    )


def rounds_per_token(asked: Requests, counted: Requests) -> float:
    """Return the rounds that a token after the first takes; ``counted`` are the requests in rounds."""
    tokens = asked.answer_tokens - 1
    return (counted.answer_tokens - 1) / tokens if tokens > 0 else 1.0


def in_tokens(speed: Speed, asked: Requests, counted: Requests) -> Speed:
    """Return a speed that was found in rounds, in tokens."""
    share = rounds_per_token(asked, counted)
    return replace(
        speed,
        tpot_s=speed.tpot_s * share,
        tpot_median_s=speed.tpot_median_s * share,
        output_tokens_per_s=speed.requests_per_s * asked.answer_tokens,
    )
