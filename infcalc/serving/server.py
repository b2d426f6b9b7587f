"""A server under any load, and batches that start and end together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.serving.batch import BatchCurve, batch_curve, batch_run
from infcalc.serving.finite import in_burst, in_closed_loop, in_open_run
from infcalc.serving.lane import times_of
from infcalc.serving.loops import PREFILL, Saturated, at_most, at_rate
from infcalc.serving.nouns import Loading, Requests, Server, Speed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "PREFILL",
    "Loading",
    "Requests",
    "Saturated",
    "Server",
    "Speed",
    "at_most",
    "at_rate",
    "decoding",
    "in_batch",
    "in_batches",
    "in_burst",
    "in_closed_loop",
    "in_open_run",
    "under",
]


def under(server: Server, asked: Requests, load: Loading, most: Saturated | None = None) -> Speed:
    """Return the speed of a server under a load; ``most`` is the server at its most, where that is at hand."""
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
        return in_open_run(server, asked, load.requests_per_s, load.num_requests, front_end=load.front_end, most=most)
    if load.num_requests is not None:
        return in_burst(server, asked, load.num_requests, front_end=load.front_end)
    return at_most(server, asked, front_end=load.front_end)


def in_batch(server: Server, asked: Requests, num_sequences: int) -> Speed:
    """Return the speed of one batch that starts and ends together, without a front end."""
    if num_sequences > server.num_places:
        return in_burst(server, asked, num_sequences, front_end=False)
    each = math.ceil(num_sequences / server.num_lanes)
    run = batch_run(
        times_of(server, asked, each, num_busy=num_sequences / each),
        num_sequences=each,
        prompt_tokens=max(asked.prompt_tokens, 1.0),
        context_tokens=asked.prompt_tokens + asked.cached_tokens,
        answers=asked.answers,
        budget_tokens=server.budget_tokens,
        others_share=_others_share(server, num_sequences / each),
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

    fits = num_sequences <= server.num_places
    if server.num_lanes == 1:
        found = batch_curve(
            times_of(server, asked, 1.0),
            num_sequences=num_sequences,
            prompt_tokens=max(asked.prompt_tokens, 1.0),
            context_tokens=asked.prompt_tokens + asked.cached_tokens,
            answers=asked.answers,
            budget_tokens=server.budget_tokens,
        )
        columns = [found.ttft_s, found.tpot_s, found.makespan_s, found.e2e_s]
    else:
        # How many lanes have how much differs from size to size.
        sizes, places = np.unique(np.where(fits, num_sequences, 1.0), return_inverse=True)
        runs = [in_batch(server, asked, int(size)) for size in sizes]
        rows = [
            (run.ttft_s, run.tpot_s, size / run.requests_per_s, run.e2e_s)
            for run, size in zip(runs, sizes, strict=True)
        ]
        columns = list(np.array(rows)[places].T)
    ttft_s, tpot_s, makespan_s, e2e_s = (np.where(fits, column, np.nan) for column in columns)
    return BatchCurve(ttft_s=ttft_s, tpot_s=tpot_s, makespan_s=makespan_s, e2e_s=e2e_s)


def _others_share(server: Server, num_busy: float) -> float:
    """Return the share of the lanes that wait for one, and have a batch too."""
    if server.num_coupled == 1:
        return 1.0
    return max(0.0, num_busy / server.num_groups - 1) / (server.num_coupled - 1)


def decoding(server: Server, asked: Requests, num_sequences: int) -> Speed:
    """Return the speed of decode alone, ``num_sequences`` at the mean of their context: no prompt is computed."""
    each = math.ceil(num_sequences / server.num_lanes)
    context = asked.prompt_tokens + asked.cached_tokens + 0.5 * asked.answer_tokens
    step_s = times_of(server, asked, each, num_busy=num_sequences / each).at(each, context)
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
