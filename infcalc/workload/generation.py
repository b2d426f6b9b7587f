"""Traces made from a recipe: arrivals, lengths, shared prefixes and sessions. The same seed gives the same trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from infcalc.frozen import frozen
from infcalc.workload.arrival_times import arrival_times_s
from infcalc.workload.arrivals import Arrivals, AtOnce, ClosedLoop, OpenLoop
from infcalc.workload.lengths import Lengths
from infcalc.workload.sessions import SINGLE, Sessions, SharedPrefixes, drawn_requests, pauses_s
from infcalc.workload.trace import NONE, Floats, Ints, Sharing, Trace, Turns, roots, summed_upwards


@frozen
class Recipe:
    """What a trace is made from.

    ``own_tokens`` is the text of a request itself, which comes after a shared prefix and after what was said in its
    session. ``arrivals`` are those of sessions, where there are any.
    """

    num_requests: int
    arrivals: Arrivals
    own_tokens: Lengths
    output_tokens: Lengths
    prefixes: SharedPrefixes | None = None
    sessions: Sessions = SINGLE


def generated(recipe: Recipe, rng: np.random.Generator) -> Trace:
    """Return the trace of a recipe.

    Raises:
        ValueError: sessions in a closed loop, where a client cannot both follow its session and take the next request.

    """
    trace = drawn_requests(
        recipe.num_requests,
        recipe.own_tokens,
        recipe.output_tokens,
        rng,
        prefixes=recipe.prefixes,
        sessions=recipe.sessions,
    )
    return with_arrivals(trace, recipe.arrivals, rng)


def with_arrivals(trace: Trace, arrivals: Arrivals, rng: np.random.Generator) -> Trace:
    """Return the requests of a trace at other times of arrival, in their order; later turns follow as they did.

    Raises:
        ValueError: sessions in a closed loop.

    """
    count = len(trace)
    trace = replace(trace, clients=None, think_s=None)
    if isinstance(arrivals, ClosedLoop):
        if trace.turns is not None:
            raise ValueError(_TWO_MASTERS)
        pauses = pauses_s(count, arrivals.think_s, arrivals.think_cv, rng) if arrivals.think_cv else None
        return replace(trace, arrivals_s=np.zeros(count), clients=arrivals, think_s=pauses)
    if trace.turns is None:
        return replace(trace, arrivals_s=_times_s(arrivals, count, rng))
    begins = np.flatnonzero(trace.turns.follows == NONE)
    times_s = summed_upwards(trace.turns.follows, trace.turns.pauses_s)
    start_s = np.zeros(count)
    start_s[begins] = _times_s(arrivals, len(begins), rng)
    return in_order(trace, times_s + start_s[roots(trace.turns.follows)])


_TWO_MASTERS = "clients of a closed loop send single requests; let sessions of several turns arrive"


def _times_s(arrivals: OpenLoop | AtOnce, count: int, rng: np.random.Generator) -> Floats:
    return arrival_times_s(arrivals, count, rng) if isinstance(arrivals, OpenLoop) else np.zeros(count)


def faster(trace: Trace, factor: float) -> Trace:
    """Return the trace with its times of arrival closer together by ``factor``; pauses inside sessions stay."""
    if trace.turns is None:
        return replace(trace, arrivals_s=trace.arrivals_s / factor)
    start_s = trace.arrivals_s[roots(trace.turns.follows)]
    return in_order(trace, trace.arrivals_s - start_s + start_s / factor)


def first_requests(trace: Trace, count: int) -> Trace:
    """Return the first ``count`` requests of a trace."""
    if count >= len(trace):
        return trace
    kept = slice(0, count)
    return replace(
        trace,
        arrivals_s=trace.arrivals_s[kept],
        input_tokens=trace.input_tokens[kept],
        output_tokens=trace.output_tokens[kept],
        sharing=None if trace.sharing is None else of_requests(trace.sharing, np.arange(count)),
        turns=None
        if trace.turns is None
        else Turns(follows=trace.turns.follows[kept], pauses_s=trace.turns.pauses_s[kept]),
        think_s=None if trace.think_s is None else trace.think_s[kept],
    )


def in_order(trace: Trace, times_s: Floats) -> Trace:
    """Return the trace with these times, sorted by them (equal ones as they were); who follows whom is kept."""
    order = np.argsort(times_s, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    turns = trace.turns
    if turns is not None:
        follows = turns.follows[order]
        turns = Turns(
            follows=np.where(follows >= 0, place[np.maximum(follows, 0)], follows), pauses_s=turns.pauses_s[order]
        )
    return replace(
        trace,
        arrivals_s=times_s[order],
        input_tokens=trace.input_tokens[order],
        output_tokens=trace.output_tokens[order],
        sharing=None if trace.sharing is None else of_requests(trace.sharing, order),
        turns=turns,
        think_s=None if trace.think_s is None else trace.think_s[order],
    )


def of_requests(sharing: Sharing, chosen: Ints) -> Sharing:
    """Return what the chosen requests share."""
    return Sharing(tree=sharing.tree, prompt_ids=sharing.prompt_ids[chosen], kept_ids=sharing.kept_ids[chosen])
