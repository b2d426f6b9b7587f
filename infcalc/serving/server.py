"""A server under a load: its lanes, its room, and the front end before them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.engines.pace import Order
from infcalc.frozen import frozen
from infcalc.serving.batch import BatchCurve, batch_curve, batch_run, prefill_s
from infcalc.serving.run import Arrivals, finite_run
from infcalc.serving.steady import Work, closed, opened
from infcalc.serving.times import StepTimes, step_times

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from infcalc.engines.pace import Pace
    from infcalc.serving.times import Clock
    from infcalc.workload.quadrature import Node

_LONG_RUN = 15.0
"""Lives of a request from which on a run at a rate is more than its start."""
_WAVES = 5.0
"""Fillings of the house that are followed of a run, before it goes on as in its steady state."""
_FEW_CLIENTS = 4
"""For each lane: of fewer a run is not followed, for it does so in parts of requests."""


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
    budget_tokens: float
    """Tokens of one step of a lane."""
    num_places: float
    """Requests that run at once, over all lanes."""
    num_fitting: float
    """Requests that memory holds at once: no more run than that."""
    num_front_ends: int = 1
    """Processes that take requests in and send tokens out, side by side."""


@frozen
class Requests:
    """What is asked: mean prompt (new, and found in the prefix cache), and weights and lengths of the answers."""

    prompt_tokens: float
    cached_tokens: float
    answers: tuple[Node, ...]
    varied: bool = False
    """Prompts differ as those of conversations do."""

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


def _times(server: Server, asked: Requests, most: float, *, busy: bool = True) -> StepTimes:
    longest = max(length for _, length in asked.answers)
    start = asked.prompt_tokens + asked.cached_tokens
    return step_times(
        server.full_clock if busy else server.clock,
        most_decodes=max(1.0, most),
        least_context_tokens=start,
        most_context_tokens=start + max(longest, 1.0),
        prompt_tokens=max(asked.prompt_tokens, 1.0),
        cached_tokens=asked.cached_tokens,
        budget_tokens=server.budget_tokens,
    )


def _work(server: Server, asked: Requests) -> Work:
    return Work(
        prompt_tokens=max(asked.prompt_tokens, 1.0),
        context_tokens=asked.live_tokens,
        decode_tokens=max(0.0, asked.answer_tokens - 1),
        budget_tokens=server.budget_tokens,
        order=server.pace.order,
        varied=asked.varied,
        num_steps_ahead=server.pace.num_steps_ahead,
        num_locked=server.num_locked,
    )


def _before_s(server: Server, asked: Requests) -> float:
    """Return what the front end does for a request before the scheduler sees it."""
    return server.pace.request_s + server.pace.prompt_token_s * (asked.prompt_tokens + asked.cached_tokens)


def _front_end_s(server: Server, asked: Requests) -> float:
    """Return the time of the front end that a request costs from taking it in to sending its last token."""
    each_s = _before_s(server, asked) + asked.answer_tokens * server.pace.token_s
    return each_s / server.num_front_ends


def in_batch(server: Server, asked: Requests, num_sequences: int) -> Speed:
    """Return the speed of one batch that starts and ends together, without a front end."""
    each = math.ceil(num_sequences / server.num_lanes)
    if num_sequences > server.num_places:
        return in_run(server, asked, num_requests=num_sequences, front_end=False)
    times = _times(server, asked, each, busy=num_sequences >= server.num_lanes)
    run = batch_run(
        times,
        num_sequences=each,
        prompt_tokens=max(asked.prompt_tokens, 1.0),
        context_tokens=asked.prompt_tokens + asked.cached_tokens,
        answers=asked.answers,
        budget_tokens=server.budget_tokens,
        together=True,
    )
    rate = num_sequences / run.makespan_s
    return Speed(
        ttft_s=run.ttft_s,
        ttft_median_s=run.ttft_s,
        tpot_s=run.tpot_s,
        tpot_median_s=run.tpot_s,
        e2e_s=run.e2e_s,
        e2e_median_s=run.e2e_s,
        queue_s=0.0,
        output_tokens_per_s=rate * asked.answer_tokens,
        requests_per_s=rate,
        num_decodes=num_sequences,
        stable=True,
        bound_by="batch",
    )


def in_batches(server: Server, asked: Requests, num_sequences: NDArray[np.float64]) -> BatchCurve:
    """Return what :func:`in_batch` does, for many batches at once; not a number for those that do not run at once."""
    import numpy as np  # noqa: PLC0415 - whoever hands in arrays has loaded it

    each = np.maximum(1.0, np.ceil(num_sequences / server.num_lanes))

    def curve(*, busy: bool) -> BatchCurve:
        return batch_curve(
            _times(server, asked, 1.0, busy=busy),
            num_sequences=each,
            prompt_tokens=max(asked.prompt_tokens, 1.0),
            context_tokens=asked.prompt_tokens + asked.cached_tokens,
            answers=asked.answers,
            budget_tokens=server.budget_tokens,
        )

    fits, full = num_sequences <= server.num_places, num_sequences >= server.num_lanes
    crowded = curve(busy=True)
    sparse = crowded if full.all() else curve(busy=False)

    def chosen(name: str) -> NDArray[np.float64]:
        return np.where(fits, np.where(full, getattr(crowded, name), getattr(sparse, name)), np.nan)

    return BatchCurve(
        ttft_s=chosen("ttft_s"), tpot_s=chosen("tpot_s"), makespan_s=chosen("makespan_s"), e2e_s=chosen("e2e_s")
    )


def decoding(server: Server, asked: Requests, num_sequences: int) -> Speed:
    """Return the speed of decode alone, ``num_sequences`` at the mean of their context: no prompt is computed."""
    each = math.ceil(num_sequences / server.num_lanes)
    context = asked.prompt_tokens + asked.cached_tokens + 0.5 * asked.answer_tokens
    step_s = float(server.clock.step_s(num_decodes=each, context_tokens=context))
    return Speed(
        ttft_s=step_s,
        ttft_median_s=step_s,
        tpot_s=step_s,
        tpot_median_s=step_s,
        e2e_s=step_s * asked.answer_tokens,
        e2e_median_s=step_s * asked.answer_tokens,
        queue_s=0.0,
        output_tokens_per_s=num_sequences / step_s,
        requests_per_s=num_sequences / step_s / max(asked.answer_tokens, 1.0),
        num_decodes=num_sequences,
        stable=True,
        bound_by="batch",
    )


def end_together(server: Server, asked: Requests) -> bool:
    """Return whether requests that came together also end together, and their clients ask together again.

    Where prefill goes first, all of them start to decode together; answers of one length then end together.
    """
    return _alike(asked) and server.pace.order is Order.PREFILL_FIRST and asked.answer_tokens > 1


def _in_waves(server: Server, asked: Requests, *, clients: float, num_requests: float, front_end: bool) -> Speed:
    """Return the speed of clients whose answers all end together.

    No prompt ever holds up a decode, and every prompt waits for the others.
    """
    lanes, pace = server.num_lanes, server.pace
    running = min(server.num_places, clients, num_requests)
    each = max(1.0, running / lanes)
    run = batch_run(
        _times(server, asked, each, busy=running >= lanes),
        num_sequences=each,
        prompt_tokens=max(asked.prompt_tokens, 1.0),
        context_tokens=asked.prompt_tokens + asked.cached_tokens,
        answers=asked.answers,
        budget_tokens=server.budget_tokens,
        together=False,
    )
    before_s = _before_s(server, asked) if front_end else 0.0
    latency_s = pace.latency_s + before_s if front_end else 0.0
    wave_s, bound_by = run.makespan_s + latency_s, _bound(server, running, clients)
    if front_end and running * _front_end_s(server, asked) > wave_s:
        wave_s, bound_by = running * _front_end_s(server, asked), "front end"
    # A front end that falls behind sends tokens later, not prompts.
    tokens_s = wave_s - latency_s - run.ttft_s
    stretch = tokens_s / (run.e2e_s - run.ttft_s)
    # Those without a place wait for whole waves.
    queue_s = (clients - running) / running * wave_s * _waiting_share(asked, running, clients, num_requests)
    ttft_s, e2e_s = queue_s + latency_s + run.ttft_s, queue_s + wave_s
    rate = running / wave_s
    return Speed(
        ttft_s=ttft_s,
        ttft_median_s=ttft_s,
        tpot_s=run.tpot_s * stretch,
        tpot_median_s=run.tpot_s * stretch,
        e2e_s=e2e_s,
        e2e_median_s=e2e_s,
        queue_s=queue_s,
        output_tokens_per_s=rate * asked.answer_tokens,
        requests_per_s=rate,
        num_decodes=running,
        stable=True,
        bound_by=bound_by,
    )


def _alike(asked: Requests) -> bool:
    return len({length for _, length in asked.answers}) == 1 and not asked.varied


def _waiting_share(asked: Requests, running: float, clients: float, num_requests: float) -> float:
    """Return how long requests of a run wait for a place on average, as a share of what they do once it is steady.

    Of the first of each client, as many as run at once find a place at once. The others wait ever longer: where answers
    are alike, for whole waves of them, else for one place after the other.
    """
    behind = clients - running
    if math.isinf(num_requests) or behind <= 0:
        return 1.0
    first = 0.5 * behind**2
    if _alike(asked):
        waves, more = divmod(clients, running)
        first = running * (0.5 * waves * (waves - 1) * running + waves * more)
    return (first + (num_requests - clients) * behind) / (num_requests * behind)


def in_run(
    server: Server,
    asked: Requests,
    *,
    num_requests: float,
    clients: float | None = None,
    requests_per_s: float | None = None,
    front_end: bool = True,
) -> Speed:
    """Return the speed of a finite run: all at once, from ``clients`` that wait for answers, or at a rate."""
    if clients is not None:
        return in_closed_loop(server, asked, clients, num_requests=num_requests, front_end=front_end)
    return _followed(server, asked, num_requests=num_requests, requests_per_s=requests_per_s, front_end=front_end)


def _followed(
    server: Server,
    asked: Requests,
    *,
    num_requests: float,
    clients: float | None = None,
    requests_per_s: float | None = None,
    front_end: bool,
) -> Speed:
    """Return the speed of a run that is followed from its start to its end."""
    lanes = server.num_lanes
    most = min(server.num_places, num_requests, clients or math.inf) / lanes
    times = _times(server, asked, most)
    times.price_all()
    work = _work(server, asked)
    run = finite_run(
        times,
        work,
        Arrivals(
            num_requests=max(1.0, num_requests / lanes),
            num_clients=None if clients is None else max(1.0, clients / lanes),
            requests_per_s=None if requests_per_s is None else requests_per_s / lanes,
        ),
        max_running=max(1.0, server.num_places / lanes),
        answers=asked.answers,
        prompt_and_cached_tokens=asked.prompt_tokens + asked.cached_tokens,
    )
    bound_by = _bound(server, most * lanes, clients)
    latency_s = delay_s = busy_s = share = 0.0
    if front_end:
        before_s = _before_s(server, asked)
        latency_s = server.pace.latency_s + before_s
        busy_s = num_requests * _front_end_s(server, asked)
        at_once = 1.0 if requests_per_s is not None else min(clients or num_requests, num_requests)
        share = at_once / num_requests
        delay_s = 0.5 * at_once * before_s / server.num_front_ends
    ahead_s, whole_s = share * delay_s, run.makespan_s
    if share == 1:
        # The last are taken in while the first are computed: who waits for the one does not wait for the other.
        ahead_s = max(0.0, delay_s - run.ttft_s)
        whole_s += 2 * ahead_s
    makespan_s = max(whole_s, busy_s)
    if busy_s > whole_s:
        bound_by = "front end"
    # A front end that falls behind holds up tokens, and at the start who has yet to be taken in.
    late = makespan_s / whole_s
    firsts, paces = 1 + share * (late - 1), late
    if run.e2e_s > run.ttft_s:
        paces = (run.e2e_s * late - run.ttft_s * firsts) / (run.e2e_s - run.ttft_s)
    else:
        firsts = late
    rate = num_requests / (makespan_s + latency_s)
    return Speed(
        ttft_s=run.ttft_s * firsts + ahead_s + latency_s,
        ttft_median_s=run.ttft_median_s * firsts + ahead_s + latency_s,
        tpot_s=run.tpot_s * paces,
        tpot_median_s=run.tpot_median_s * paces,
        e2e_s=run.e2e_s * late + ahead_s + latency_s,
        e2e_median_s=run.e2e_median_s * late + ahead_s + latency_s,
        queue_s=run.queue_s * firsts,
        output_tokens_per_s=rate * asked.answer_tokens,
        requests_per_s=rate,
        num_decodes=run.num_decodes * lanes,
        stable=True,
        bound_by=bound_by,
    )


def in_closed_loop(
    server: Server,
    asked: Requests,
    clients: float,
    *,
    think_time_s: float = 0.0,
    num_requests: float | None = None,
    front_end: bool = True,
) -> Speed:
    """Return the speed with ``clients`` that each send their next request when they have the answer.

    ``num_requests`` makes it a run with a start and an end, else it goes on for ever. The start is followed; what comes
    after it is the steady state, and the longer the run, the more of it.
    """
    count = math.inf if num_requests is None else num_requests
    clients = min(clients, count)
    if end_together(server, asked) and not think_time_s:
        return _in_waves(server, asked, clients=clients, num_requests=count, front_end=front_end)
    steady = _steady_loop(server, asked, clients, think_time_s=think_time_s, front_end=front_end)
    if num_requests is None:
        return steady
    running = min(server.num_places, clients)
    if clients < server.num_lanes * _FEW_CLIENTS:
        later_s = _first_s(server, asked, running, steady, front_end=front_end) - steady.ttft_s
        followed = clients
        start = replace(
            steady,
            ttft_s=steady.ttft_s + later_s,
            e2e_s=steady.e2e_s + later_s,
            requests_per_s=followed / (followed / steady.requests_per_s + later_s),
        )
    else:
        followed = min(count, max(_WAVES * running, 1.0))
        start = _followed(server, asked, num_requests=followed, clients=running, front_end=front_end)
    return _joined(start, steady, asked, followed=followed, running=running, clients=clients, num_requests=count)


def _first_s(server: Server, asked: Requests, running: float, steady: Speed, *, front_end: bool) -> float:
    """Return the mean time to the first token of requests that all come at once to an empty lane each."""
    each = max(1.0, running / server.num_lanes)
    times, budget = _times(server, asked, each, busy=running >= server.num_lanes), server.budget_tokens
    tokens = each * max(asked.prompt_tokens, 1.0)
    steps = max(1.0, math.ceil(tokens / budget))
    latency_s = server.pace.latency_s + _before_s(server, asked) if front_end else 0.0
    return max(steady.ttft_s - steady.queue_s, latency_s + prefill_s(times, tokens, budget) * 0.5 * (1 + 1 / steps))


def _joined(
    start: Speed,
    steady: Speed,
    asked: Requests,
    *,
    followed: float,
    running: float,
    clients: float,
    num_requests: float,
) -> Speed:
    """Return the run whose first ``followed`` requests with a place are as ``start``, and the others as ``steady``.

    Requests that find no place wait besides, as many as there are too many clients (Little's law).
    """
    share = followed / num_requests
    behind_s = steady.queue_s if clients > running else 0.0
    queue_s = behind_s * _waiting_share(asked, running, clients, num_requests)

    def time_s(first_s: float, after_s: float) -> float:
        return queue_s + share * first_s + (1 - share) * (after_s - behind_s)

    rate = num_requests / (followed / start.requests_per_s + (num_requests - followed) / steady.requests_per_s)
    return replace(
        steady,
        ttft_s=time_s(start.ttft_s, steady.ttft_s),
        ttft_median_s=time_s(start.ttft_median_s, steady.ttft_median_s),
        tpot_s=share * start.tpot_s + (1 - share) * steady.tpot_s,
        tpot_median_s=share * start.tpot_median_s + (1 - share) * steady.tpot_median_s,
        e2e_s=time_s(start.e2e_s, steady.e2e_s),
        e2e_median_s=time_s(start.e2e_median_s, steady.e2e_median_s),
        queue_s=queue_s,
        requests_per_s=rate,
        output_tokens_per_s=rate * asked.answer_tokens,
        num_decodes=share * start.num_decodes + (1 - share) * steady.num_decodes,
    )


def _steady_loop(
    server: Server,
    asked: Requests,
    clients: float,
    *,
    think_time_s: float = 0.0,
    front_end: bool = True,
    crowded: bool = False,
) -> Speed:
    """Return the steady state of so many clients, whose answers end one after the other.

    ``crowded``: others wait for each place, and whoever leaves one is followed at once.
    """
    lanes, pace = server.num_lanes, server.pace
    most = min(server.num_places, clients) / lanes
    times, work = _times(server, asked, most, busy=clients >= lanes), _work(server, asked)
    latency_s = pace.latency_s + _before_s(server, asked) if front_end else 0.0
    each_s = _front_end_s(server, asked) if front_end else 0.0
    running = max(1.0, most) if clients >= lanes else 1.0
    found = closed(times, work, running)
    active_s = found.prefill_s + found.wait_s + work.decode_tokens * found.tpot_s
    shares = min(lanes, clients)
    rate = shares * found.requests_per_s
    # Clients that think, or wait in the front end, are not in a lane.
    away_s = think_time_s + latency_s
    if not crowded and clients / (active_s + away_s) < rate:
        found = closed(times, work, clients / shares, away_s=away_s)
        active_s = found.prefill_s + found.wait_s + work.decode_tokens * found.tpot_s
        rate = shares * found.requests_per_s
    if not crowded and not work.decode_tokens:
        rate = min(rate, clients / (active_s + away_s))
    bound_by = _bound(server, most * lanes, clients)
    if each_s and rate * each_s > 1:
        rate, bound_by = 1 / each_s, "front end"
    whole_s = active_s + latency_s
    if not crowded or bound_by == "front end":
        whole_s = max(clients / rate - think_time_s, whole_s)
    queue_s = max(0.0, whole_s - active_s - latency_s) if bound_by != "front end" else 0.0
    tpot_s = found.tpot_s
    if bound_by == "front end" and work.decode_tokens:
        tpot_s = (whole_s - latency_s - found.prefill_s - found.wait_s) / work.decode_tokens
    elif bound_by == "front end":
        queue_s = max(0.0, whole_s - active_s - latency_s)
    return _steady(
        asked,
        ttft_s=latency_s + queue_s + found.wait_s + found.prefill_s,
        tpot_s=tpot_s,
        queue_s=queue_s,
        rate=rate,
        num_decodes=found.num_decodes * shares,
        bound_by=bound_by,
    )


def at_most(server: Server, asked: Requests, *, front_end: bool = True) -> Speed:
    """Return the speed where more requests wait than find a place; their wait for one is not counted."""
    return _steady_loop(server, asked, server.num_places, front_end=front_end, crowded=True)


def at_rate(server: Server, asked: Requests, requests_per_s: float, *, front_end: bool = True) -> Speed:
    """Return the steady state of requests that arrive at random at a mean rate; ``stable`` False beyond saturation."""
    lanes, pace = server.num_lanes, server.pace
    times, work = _times(server, asked, server.num_places / lanes), _work(server, asked)
    each_s = _front_end_s(server, asked) if front_end else 0.0
    latency_s = pace.latency_s + _before_s(server, asked) if front_end else 0.0
    most = max(1.0, server.num_places / lanes)
    best = closed(times, work, most)
    found = opened(times, work, requests_per_s / lanes, best)
    if found is None or requests_per_s * each_s >= 1:
        rate = min(best.requests_per_s * lanes, 1 / each_s if each_s else math.inf)
        speed = _steady(
            asked,
            ttft_s=math.inf,
            tpot_s=best.tpot_s,
            queue_s=math.inf,
            rate=rate,
            num_decodes=best.num_decodes * lanes,
            bound_by=_bound(server, server.num_places, None),
        )
        return replace(speed, stable=False)
    # The front end is a queue of its own with one server.
    load = requests_per_s * each_s
    front_s = latency_s + 0.5 * each_s * load / max(1e-9, 1 - load)
    queue_s = _place_wait_s(
        lanes * found.num_requests,
        lanes * most,
        spare_per_s=lanes * best.requests_per_s - requests_per_s,
        scatter=asked.answer_scatter,
    )
    ttft_s = front_s + queue_s + found.wait_s + found.prefill_s
    return _steady(
        asked,
        ttft_s=ttft_s,
        tpot_s=found.tpot_s,
        queue_s=queue_s,
        rate=requests_per_s,
        num_decodes=found.num_decodes * lanes,
        bound_by="arrivals",
    )


def in_open_run(
    server: Server, asked: Requests, requests_per_s: float, num_requests: float | None, *, front_end: bool = True
) -> Speed:
    """Return the speed of requests at a mean rate: of ``num_requests`` of them, or for ever.

    A run much longer than a request, at a rate the server keeps up with, is ever more the steady state and an end.
    """
    steady = at_rate(server, asked, requests_per_s, front_end=front_end)
    if num_requests is None:
        return steady
    followed = _LONG_RUN * steady.e2e_s * requests_per_s if steady.stable else _WAVES * server.num_places
    followed = min(num_requests, max(followed, 1.0))
    start = _followed(server, asked, num_requests=followed, requests_per_s=requests_per_s, front_end=front_end)
    start = replace(start, stable=steady.stable)
    if followed == num_requests:
        return start
    if steady.stable:
        after = replace(steady, requests_per_s=requests_per_s, queue_s=0.0)
        return replace(
            _joined(start, after, asked, followed=followed, running=0.0, clients=0.0, num_requests=num_requests),
            queue_s=start.queue_s + (1 - followed / num_requests) * (steady.queue_s - start.queue_s),
        )
    # Each request waits longer than the one before it, by as much as they come faster than they are answered.
    more = num_requests - followed
    wait_s = 0.5 * more * max(0.0, 1 / steady.requests_per_s - 1 / requests_per_s)
    rate = num_requests / (followed / start.requests_per_s + more / steady.requests_per_s)
    waits = ("ttft_s", "ttft_median_s", "e2e_s", "e2e_median_s", "queue_s")
    return replace(
        start,
        **{name: getattr(start, name) + wait_s for name in waits},
        requests_per_s=rate,
        output_tokens_per_s=rate * asked.answer_tokens,
    )


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


def under(server: Server, asked: Requests, load: Loading) -> Speed:
    """Return the speed of a server under a load."""
    if load.batch is not None:
        return in_batch(server, asked, load.batch)
    if load.num_clients is not None:
        return in_closed_loop(
            server,
            asked,
            load.num_clients,
            think_time_s=load.think_time_s,
            num_requests=load.num_requests,
            front_end=load.front_end,
        )
    if load.requests_per_s is not None:
        return in_open_run(server, asked, load.requests_per_s, load.num_requests, front_end=load.front_end)
    if load.num_requests is not None:
        return in_run(server, asked, num_requests=load.num_requests, front_end=load.front_end)
    return at_most(server, asked, front_end=load.front_end)


def _steady(
    asked: Requests,
    *,
    ttft_s: float,
    tpot_s: float,
    queue_s: float,
    rate: float,
    num_decodes: float,
    bound_by: str,
) -> Speed:
    e2e_s = ttft_s + max(0.0, asked.answer_tokens - 1) * tpot_s
    return Speed(
        ttft_s=ttft_s,
        ttft_median_s=ttft_s,
        tpot_s=tpot_s,
        tpot_median_s=tpot_s,
        e2e_s=e2e_s,
        e2e_median_s=e2e_s,
        queue_s=queue_s,
        output_tokens_per_s=rate * asked.answer_tokens,
        requests_per_s=rate,
        num_decodes=num_decodes,
        stable=True,
        bound_by=bound_by,
    )


def _place_wait_s(running: float, places: float, *, spare_per_s: float, scatter: float) -> float:
    """Return the wait for a free place where requests come at random: it grows without end as no rate is to spare.

    Sakasegawa (Ann. Inst. Statist. Math. 29, 1977) for many servers, with the share of places that are taken in the
    place of their use, for a server with few requests answers them sooner; ``scatter`` is the squared coefficient of
    variation of the answers.
    """
    share = min(1.0, running / places)
    return math.pow(share, math.sqrt(2 * (places + 1)) - 1) * 0.5 * (1 + scatter) / spare_per_s


def _bound(server: Server, most: float, clients: float | None) -> str:
    if clients is not None and clients < server.num_places:
        return "clients"
    if most < server.num_places:
        return "requests"
    return "KV room" if server.num_fitting < server.num_places + 1 else "max_num_seqs"
