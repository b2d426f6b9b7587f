"""The process before the engine: it takes in one request after another, and the scheduler sees them after that."""

from __future__ import annotations

from infcalc.frozen import frozen


@frozen
class FrontEndTimes:
    """What a front end takes for each request, for each token of a prompt, and on the way in and out of a lone one.

    ``latency_ps`` is no work: many requests may be on their way at once. Source: ``infcalc.engines.pace``.
    """

    request_ps: int = 0
    prompt_token_ps: int = 0
    latency_ps: int = 0


class FrontEnd:
    """One queue, first come, first served: a request is done when the ones before it are, and its own work."""

    __slots__ = ("_free_ps", "_times", "busy_ps")

    def __init__(self, times: FrontEndTimes) -> None:
        self._times = times
        self._free_ps = 0
        self.busy_ps = 0

    def passed_ps(self, now_ps: int, prompt_tokens: int) -> int:
        """Return when a request that comes now reaches the scheduler; calls are in the order of coming.

        >>> door = FrontEnd(FrontEndTimes(request_ps=10, prompt_token_ps=1))
        >>> door.passed_ps(0, 5), door.passed_ps(2, 5), door.passed_ps(100, 5)
        (15, 30, 115)
        """
        work_ps = self._times.request_ps + self._times.prompt_token_ps * prompt_tokens
        self.busy_ps += work_ps
        self._free_ps = max(now_ps, self._free_ps) + work_ps
        return self._free_ps
