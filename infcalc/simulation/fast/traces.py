"""Traces of :mod:`infcalc.workload` as what is simulated: columns in aggregate, requests one by one step by step."""

from __future__ import annotations

import numpy as np

from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.fast.columns import Load
from infcalc.simulation.request import Request, Span
from infcalc.workload.trace import NONE, Trace


def load_of_trace(trace: Trace) -> Load:
    """Return a trace whose requests come at times of their own as columns.

    Raises:
        ValueError: requests wait for others, or for their clients: when they come is for the run to say.

    """
    _check(trace)
    arrivals = np.round(trace.arrivals_s * PS_PER_S).astype(np.int64)
    sharing = trace.sharing
    if sharing is None:
        return Load(arrival_ps=arrivals, prompt_tokens=trace.input_tokens, output_tokens=trace.output_tokens)
    return Load(
        arrival_ps=arrivals,
        prompt_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        contents=sharing.kept_ids,
        parents=sharing.tree.parent_ids.tolist(),
        sizes_tokens=sharing.tree.node_tokens.tolist(),
    )


def requests_of_trace(trace: Trace) -> list[Request]:
    """Return the same requests one by one: each node of the tree is a text.

    Raises:
        ValueError: as for :func:`load_of_trace`.

    """
    load = load_of_trace(trace)
    sharing = trace.sharing
    made = []
    for index, (arrival, prompt, output) in enumerate(
        zip(load.arrival_ps.tolist(), load.prompt_tokens.tolist(), load.output_tokens.tolist(), strict=True)
    ):
        spans: tuple[Span, ...] = ()
        answer = None
        if sharing is not None:
            tree, end, kept = sharing.tree, int(sharing.prompt_ids[index]), int(sharing.kept_ids[index])
            spans = tuple(Span(text=node, num_tokens=int(tree.node_tokens[node])) for node in tree.chain(end))
            answer = None if kept in {NONE, end} else kept
        made.append(Request(arrival_ps=arrival, prompt_tokens=prompt, output_tokens=output, spans=spans, answer=answer))
    return made


def _check(trace: Trace) -> None:
    waits = trace.turns is not None and bool((trace.turns.follows != NONE).any())
    if waits or trace.clients is not None:
        raise ValueError("requests that wait for others have no times of their own")
