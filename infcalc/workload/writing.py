"""Traces as text: JSON lines with all that a trace holds, or CSV of time and lengths.

A line of JSON has ``arrival_s`` (seconds from the start), ``input_tokens`` and ``output_tokens``. Where prompts share
anything it also has ``prefix_ids``, the runs of tokens that the prompt begins with, ``prefix_tokens``, how long each
is, and ``answer_id``, the run that the answer becomes in a later prompt. A request of a session has ``follows`` (the
number of the request before it, from 0) and ``pause_s``. A closed loop stands in a first line of its own. Reading gives
the same trace again, to the last bit of each time.
"""

from __future__ import annotations

from itertools import repeat

from infcalc.workload.arrivals import described
from infcalc.workload.trace import NONE, Sharing, Trace, Turns
from infcalc.workload.trace_formats import HEADER_KEY

_VERSION = 1


def fits_csv(trace: Trace) -> bool:
    """Return whether CSV holds all of a trace."""
    return trace.sharing is None and trace.turns is None and trace.clients is None


def as_csv(trace: Trace) -> str:
    """Return a trace as CSV; what :func:`fits_csv` refuses is lost."""
    columns = (trace.arrivals_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist())
    lines = [f"{arrival!r},{given},{made}" for arrival, given, made in zip(*columns, strict=True)]
    return "\n".join(["arrival_s,input_tokens,output_tokens", *lines, ""])


def as_json_lines(trace: Trace) -> str:
    """Return a trace as JSON lines."""
    count = len(trace)
    shares = repeat("", count) if trace.sharing is None else _prefixes(trace.sharing)
    turns = repeat("", count) if trace.turns is None else _turns(trace.turns)
    thinks = (
        repeat("", count) if trace.think_s is None else [f', "think_s": {think!r}' for think in trace.think_s.tolist()]
    )
    columns = (trace.arrivals_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist())
    lines = [
        f'{{"arrival_s": {arrival!r}, "input_tokens": {given}, "output_tokens": {made}{share}{turn}{think}}}'
        for arrival, given, made, share, turn, think in zip(*columns, shares, turns, thinks, strict=True)
    ]
    if trace.clients is not None:
        lines.insert(0, f'{{"{HEADER_KEY}": {_VERSION}, "arrivals": "{described(trace.clients)}"}}')
    return "\n".join([*lines, ""])


def _prefixes(sharing: Sharing) -> list[str]:
    """Return the part of each line on its prefixes; nodes are numbered as they first appear."""
    parents, sizes = sharing.tree.parent_ids.tolist(), sharing.tree.node_tokens.tolist()
    number: dict[int, int] = {}
    chains: dict[int, list[int]] = {NONE: []}

    def chain(node: int) -> list[int]:
        above = []
        while node not in chains:
            above.append(node)
            node = parents[node]
        for one in reversed(above):
            chains[one] = [*chains[node], one]
            node = one
        return chains[node]

    found = []
    for prompt, kept in zip(sharing.prompt_ids.tolist(), sharing.kept_ids.tolist(), strict=True):
        nodes = chain(prompt)
        ids = [number.setdefault(node, len(number)) for node in nodes]
        text = f', "prefix_ids": {ids}, "prefix_tokens": {[sizes[node] for node in nodes]}'
        if kept != prompt:
            text += f', "answer_id": {number.setdefault(kept, len(number))}'
        found.append(text)
    return found


def _turns(turns: Turns) -> list[str]:
    return [
        "" if follows == NONE else f', "follows": {follows}, "pause_s": {pause!r}'
        for follows, pause in zip(turns.follows.tolist(), turns.pauses_s.tolist(), strict=True)
    ]
