"""What serves, what is asked of it, how requests come, and how fast they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.engines.pace import Pace
    from infcalc.serving.times import Clock
    from infcalc.workload.quadrature import Node


@frozen
class Server:
    """What serves: ``num_lanes`` lanes alike, each of which takes its own steps, behind one front end."""

    clock: Clock
    full_clock: Clock
    """Where every lane is busy: in a pipeline, the slowest stage sets the pace."""
    pace: Pace
    num_lanes: int
    num_locked: int = 1
    """Lanes that step together because they share experts."""
    num_stages: int = 1
    """Lanes that follow each other through a pipeline: none overtakes another."""
    budget_tokens: float
    """Tokens of one step of a lane."""
    num_places: float
    """Requests that run at once, over all lanes."""
    num_fitting: float
    """Requests that memory holds at once: no more run than that."""
    num_front_ends: int = 1
    """Processes that take requests in and send tokens out, side by side."""
    verified_tokens: float = 1.0
    """Of a step's budget, taken by each that decodes: with drafts more than one."""

    @property
    def num_coupled(self) -> int:
        """Lanes that wait for each other, be it for common experts or for a stage."""
        return self.num_locked * self.num_stages

    @property
    def num_groups(self) -> int:
        """Lanes, or groups of them that wait for each other."""
        return self.num_lanes // self.num_coupled


@frozen
class Requests:
    """What is asked: mean prompt (new, and found in the prefix cache), and weights and lengths of the answers."""

    prompt_tokens: float
    cached_tokens: float
    answers: tuple[Node, ...]
    varied: bool = False
    """Prompts differ as those of conversations do: as an exponential, unless ``prompt_scatter`` says otherwise."""
    prompt_scatter: float | None = None
    """Squared coefficient of variation of the prompts."""

    @property
    def scatter(self) -> float:
        """Squared coefficient of variation of the prompts."""
        if self.prompt_scatter is not None:
            return self.prompt_scatter
        return 1.0 if self.varied else 0.0

    @property
    def answer_tokens(self) -> float:
        """Mean answer."""
        return sum(weight * length for weight, length in self.answers)

    @property
    def answer_scatter(self) -> float:
        """Squared coefficient of variation of the answers."""
        mean = self.answer_tokens
        squares = sum(weight * length**2 for weight, length in self.answers)
        return max(0.0, squares / max(mean, 1.0) ** 2 - 1)

    @property
    def live_tokens(self) -> float:
        """Mean tokens in the cache of a request in decode, met at a random moment."""
        squares = sum(weight * length**2 for weight, length in self.answers)
        return self.prompt_tokens + self.cached_tokens + 0.5 * squares / max(self.answer_tokens, 1.0)


@frozen
class Loading:
    """How requests come: at most one of ``batch``, ``num_clients`` and ``requests_per_s``; none: as many as can run.

    ``num_requests`` makes it a run with a start and an end, of requests that all come at once where nothing paces them.
    """

    batch: int | None = None
    num_clients: float | None = None
    requests_per_s: float | None = None
    num_requests: float | None = None
    think_time_s: float = 0.0
    front_end: bool = True


@frozen
class Speed:
    """How fast requests are answered; medians equal means where one pace holds for all."""

    ttft_s: float
    ttft_median_s: float
    tpot_s: float
    tpot_median_s: float
    e2e_s: float
    e2e_median_s: float
    queue_s: float
    output_tokens_per_s: float
    requests_per_s: float
    num_decodes: float
    stable: bool
    bound_by: str


def one_pace(
    asked: Requests,
    *,
    ttft_s: float,
    tpot_s: float,
    e2e_s: float,
    queue_s: float,
    requests_per_s: float,
    num_decodes: float,
    bound_by: str,
    stable: bool = True,
) -> Speed:
    """Return the speed where one pace holds for all requests: medians are means."""
    return Speed(
        ttft_s=ttft_s,
        ttft_median_s=ttft_s,
        tpot_s=tpot_s,
        tpot_median_s=tpot_s,
        e2e_s=e2e_s,
        e2e_median_s=e2e_s,
        queue_s=queue_s,
        output_tokens_per_s=requests_per_s * asked.answer_tokens,
        requests_per_s=requests_per_s,
        num_decodes=num_decodes,
        stable=stable,
        bound_by=bound_by,
    )
