"""What a predicted time is made of, by cause, and what a measured difference is put down to."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.api.speed import front_end_s
from infcalc.evidence.nouns import Quantity
from infcalc.frozen import frozen
from infcalc.lowering.ops import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.api.speed import Run, SpeedResult
    from infcalc.api.steps import Step


class Loss(StrEnum):
    """What time goes into."""

    BANDWIDTH = "bandwidth"
    COMPUTE = "compute"
    OVERHEAD = "overhead"
    """Launches, fixed times of kernels, scheduling and sampling."""
    COMMUNICATION = "communication"
    QUEUEING = "queueing"
    INTERFERENCE = "prompt interference"
    """Prompts of other requests in or between decode steps."""
    FRONT_END = "front end"
    DECODE = "decode"
    """Of a whole request, where its time per token says more."""
    CLIENT = "client"
    """Fewer requests under way than were asked for."""


@frozen
class CauseShare:
    """One cause of a predicted time."""

    cause: Loss
    time_s: float
    share_fraction: float


@frozen
class Effect:
    """A part of a difference, in the unit of its quantity: above 0 the measurement is longer, or the rate higher."""

    cause: str
    effect: float
    why: str


_MESSAGES = frozenset({*(kind.value for kind in COLLECTIVES), "host"})
_BOUND = {"memory": Loss.BANDWIDTH, "compute": Loss.COMPUTE, "latency": Loss.OVERHEAD, "link": Loss.COMMUNICATION}
_MOST_OF_IT = 0.6
"""Share of a step from which on its greatest part is what a miss is most likely of."""
_RARE = 0.5
"""Below this share of steps with a prompt in them, the median gap between tokens is a step without one."""
_QUIET = 0.1
_BUSY = 0.9


def step_causes(step: Step | None) -> dict[Loss, float]:
    """Return the seconds of a step by cause."""
    found: dict[Loss, float] = {}
    for part in step.parts if step is not None else ():
        if part.kind in _MESSAGES:
            cause = Loss.COMMUNICATION
        else:
            cause = Loss.OVERHEAD if part.kind == "engine" else _BOUND.get(part.bound_by, Loss.OVERHEAD)
        found[cause] = found.get(cause, 0.0) + part.time_s.value
    return found


def token_causes(run: Run, result: SpeedResult) -> dict[Loss, float]:
    """Return the seconds of a token after the first, by cause."""
    found = step_causes(result.step)
    woven_s = run.speed.tpot_s - sum(found.values())
    if woven_s > 0:
        cause = Loss.FRONT_END if run.speed.bound_by == "front end" else Loss.INTERFERENCE
        found[cause] = found.get(cause, 0.0) + woven_s
    return found


def first_causes(run: Run, result: SpeedResult, *, front_end: bool = True) -> dict[Loss, float]:
    """Return the seconds of the time to the first token, by cause."""
    speed = run.speed
    front_s = front_end_s(run) if front_end else 0.0
    step = step_causes(result.prefill_step)
    own = sum(step.values())
    chunk = min(run.asked.prompt_tokens, run.server.budget_tokens)
    alone_s = own * run.asked.prompt_tokens / chunk if chunk else own
    room_s = max(0.0, speed.ttft_s - speed.queue_s - front_end_s(run))
    scale = min(alone_s, room_s) / own if own else 0.0
    found = {cause: value * scale for cause, value in step.items()}
    rest_s = room_s - min(alone_s, room_s)
    for cause, value in ((Loss.INTERFERENCE, rest_s), (Loss.QUEUEING, speed.queue_s), (Loss.FRONT_END, front_s)):
        if value > 0:
            found[cause] = found.get(cause, 0.0) + value
    return found


def shares_of(causes: Mapping[Loss, float]) -> tuple[CauseShare, ...]:
    """Return causes with their shares, the greatest first."""
    total = sum(causes.values())
    rows = sorted(causes.items(), key=lambda row: -row[1])
    return tuple(
        CauseShare(cause=cause, time_s=value, share_fraction=value / total) for cause, value in rows if value > 0
    )


def predicted_causes(
    run: Run, result: SpeedResult, quantity: Quantity, *, front_end: bool = True
) -> tuple[CauseShare, ...]:
    """Return what the prediction of a quantity is made of: of a rate, what the time of a request is."""
    each, first = token_causes(run, result), first_causes(run, result, front_end=front_end)
    steps = max(0.0, run.asked.answer_tokens - 1)
    match quantity:
        case Quantity.TPOT | Quantity.ITL | Quantity.PER_USER | Quantity.DECODE:
            return shares_of(each)
        case Quantity.TTFT | Quantity.PREFILL:
            return shares_of(first)
        case _:
            causes = set(each) | set(first)
            return shares_of({cause: first.get(cause, 0.0) + steps * each.get(cause, 0.0) for cause in causes})


def prompt_step_fraction(run: Run) -> float:
    """Return in what share of the steps of a lane a prompt is computed."""
    server = run.server
    chunks = max(1.0, run.asked.prompt_tokens / server.budget_tokens)
    return min(1.0, run.speed.requests_per_s / server.num_lanes * chunks * run.speed.tpot_s)


class Residuals:
    """Differences of one run between measured and predicted, taken apart by what else was measured.

    ``measured`` and ``predicted`` give a figure by quantity and statistic, None where there is none.
    """

    def __init__(
        self,
        run: Run,
        result: SpeedResult,
        measured: Callable[[Quantity, str], float | None],
        predicted: Callable[[Quantity, str], float | None],
        *,
        drafted: bool,
        front_end: bool,
    ) -> None:
        self._run, self._result, self._drafted = run, result, drafted
        self._measured, self._predicted, self._front_end = measured, predicted, front_end

    def of(self, quantity: Quantity, statistic: str) -> tuple[Effect, ...]:
        """Return the parts of a difference, which add up to measured less predicted."""
        value, guess = self._measured(quantity, statistic), self._predicted(quantity, statistic)
        if value is None or guess is None:
            return ()
        gap = value - guess
        match quantity:
            case Quantity.TTFT:
                return self._first(gap, statistic)
            case Quantity.TPOT | Quantity.ITL:
                return self._token(gap, quantity, statistic)
            case Quantity.E2E:
                return self._whole(gap, statistic)
            case Quantity.REQUESTS_PER_S | Quantity.OUTPUT_PER_S | Quantity.TOTAL_PER_S | Quantity.INPUT_PER_S:
                return self._rate(gap, quantity, value, guess)
            case _:
                waits = Effect(cause=Loss.QUEUEING, effect=gap, why="waits for a place")
                likely = self._likely(gap, predicted_causes(self._run, self._result, quantity))
                return (waits if quantity is Quantity.QUEUE else likely,)

    def _first(self, gap: float, statistic: str) -> tuple[Effect, ...]:
        """Return the parts of a first token's difference: what half of the requests see, and the long waits."""
        middle = self._gap(Quantity.TTFT, "median")
        shares = predicted_causes(self._run, self._result, Quantity.TTFT, front_end=self._front_end)
        if statistic != "mean" or middle is None:
            return (self._usual(gap, shares),)
        waits = Effect(
            cause=Loss.QUEUEING, effect=gap - middle, why="the mean is further off than the median: waits of a few"
        )
        return (self._usual(middle, shares), waits)

    def _usual(self, gap: float, shares: tuple[CauseShare, ...]) -> Effect:
        """Return what the usual first token's difference is most likely of."""
        by_cause = {share.cause: share.share_fraction for share in shares}
        crowd = by_cause.get(Loss.QUEUEING, 0.0) + by_cause.get(Loss.INTERFERENCE, 0.0)
        fixed = by_cause.get(Loss.FRONT_END, 0.0) + by_cause.get(Loss.OVERHEAD, 0.0)
        if crowd > _QUIET:
            cause = Loss.QUEUEING if by_cause.get(Loss.QUEUEING, 0.0) > crowd / 2 else Loss.INTERFERENCE
            return Effect(cause=cause, effect=gap, why=f"{crowd:.0%} of the predicted time are other requests")
        if fixed > by_cause.get(Loss.COMPUTE, 0.0) + by_cause.get(Loss.BANDWIDTH, 0.0):
            return Effect(cause=Loss.FRONT_END, effect=gap, why="prompts are short, and hardly anyone waits")
        return self._likely(gap, shares)

    def _token(self, gap: float, quantity: Quantity, statistic: str) -> tuple[Effect, ...]:
        """Return the parts of a token's difference: of steps without a prompt, and of prompts among them."""
        shares = predicted_causes(self._run, self._result, quantity)
        usual, step = self._measured(Quantity.ITL, "median"), self._result.step
        if (
            usual is None
            or step is None
            or self._drafted
            or (quantity is Quantity.ITL and statistic == "median")
            or prompt_step_fraction(self._run) >= _RARE
        ):
            return (self._likely(gap, shares),)
        alone = usual - step.time_s.value
        prompts = Effect(
            cause=Loss.INTERFERENCE,
            effect=gap - alone,
            why="what is beyond the median gap, which is a step without a prompt",
        )
        return (self._likely(alone, shares_of(step_causes(step))), prompts)

    def _likely(self, gap: float, shares: tuple[CauseShare, ...]) -> Effect:
        """Return a difference under the name of what most of the predicted time is; of several, where none is."""
        if not shares:
            return Effect(cause="not told apart", effect=gap, why="no part is predicted")
        first = shares[0]
        if first.share_fraction >= _MOST_OF_IT:
            return Effect(
                cause=first.cause, effect=gap, why=f"{first.share_fraction:.0%} of what is predicted is {first.cause}"
            )
        names = " or ".join(share.cause for share in shares[:2])
        return Effect(cause=names, effect=gap, why="one run does not tell them apart: compare several loads")

    def _whole(self, gap: float, statistic: str) -> tuple[Effect, ...]:
        first, each = self._gap(Quantity.TTFT, statistic), self._gap(Quantity.TPOT, statistic)
        steps = max(0.0, self._run.asked.answer_tokens - 1)
        if first is None or each is None:
            return (self._likely(gap, predicted_causes(self._run, self._result, Quantity.E2E)),)
        parts = [
            Effect(cause="first token", effect=first, why="its own line says what of"),
            Effect(cause=Loss.DECODE, effect=steps * each, why="tokens after the first, each as its own line says"),
        ]
        rest = gap - first - steps * each
        if abs(rest) > abs(gap) * _QUIET:
            parts.append(Effect(cause="lengths", effect=rest, why="long answers are not as the mean of all"))
        else:
            parts[1] = Effect(cause=Loss.DECODE, effect=steps * each + rest, why=parts[1].why)
        return tuple(parts)

    def _rate(self, gap: float, quantity: Quantity, value: float, guess: float) -> tuple[Effect, ...]:
        offer = self._run.load.offer
        if offer.requests_per_s is not None:
            number = offer.num_requests
            scatter = f"{number:,} arrivals scatter by {1 / math.sqrt(number):.0%}, and " if number else ""
            return (Effect(cause="arrivals", effect=gap, why=f"{scatter}the longest answers end the run"),)
        clients, whole = offer.concurrency, self._measured(Quantity.E2E, "mean")
        if whole is None:
            first, each = self._measured(Quantity.TTFT, "mean"), self._measured(Quantity.TPOT, "mean")
            if first is not None and each is not None:
                whole = first + max(0.0, self._run.asked.answer_tokens - 1) * each
        if clients is not None and whole is not None:
            answers = {
                Quantity.OUTPUT_PER_S: self._run.asked.answer_tokens,
                Quantity.INPUT_PER_S: self._run.load.prompt_tokens,
                Quantity.TOTAL_PER_S: self._run.asked.answer_tokens + self._run.load.prompt_tokens,
            }
            busy = value / answers.get(quantity, 1.0) * whole / clients
            if busy < _BUSY:
                idle = value / busy - value
                why = f"{busy:.0%} of the {clients:,} clients were busy (rate x time of a request)"
                ours = self._predicted(Quantity.E2E, "mean")
                expected = 0.0 if ours is None else guess / answers.get(quantity, 1.0) * ours / clients
                if expected - busy > 1 - _BUSY:
                    return (
                        Effect(cause=Loss.CLIENT, effect=-idle, why=why),
                        Effect(cause="time of a request", effect=gap + idle, why="rate = clients / time (Little 1961)"),
                    )
            return (Effect(cause="time of a request", effect=gap, why="rate = clients / time (Little 1961)"),)
        return (self._likely(gap, predicted_causes(self._run, self._result, quantity)),)

    def _gap(self, quantity: Quantity, statistic: str) -> float | None:
        value, guess = self._measured(quantity, statistic), self._predicted(quantity, statistic)
        return None if value is None or guess is None else value - guess
