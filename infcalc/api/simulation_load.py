"""From a trace to what replicas are asked: requests, when they are sent, and which of them an engine refuses."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.request import Request, Span
from infcalc.simulation.sending import NOBODY, Sending
from infcalc.workload.trace import NONE, Floats, Ints, roots

if TYPE_CHECKING:
    from infcalc.workload.trace import Sharing, Trace

MOST_S = 9e6
"""104 days: 64 bits of picoseconds hold 106.7, and a run ends after its last request has come."""


@frozen
class Load:
    """A trace as it is served, in columns.

    ``asked`` are the places in the trace of the requests that model and server admit: all other columns are theirs.
    ``refused_tokens`` are the prompts of the others, by their places: longer than the longest sequence. Answers end
    where that is reached; ``num_cut`` did. ``longest_tokens`` is the longest answer.
    """

    num_requests: int
    asked: Ints
    refused_tokens: dict[int, int]
    num_cut: int
    prompt_tokens: Ints
    output_tokens: Ints
    limit_tokens: int
    sending: Sending
    sessions: Ints
    sharing: Sharing | None

    @property
    def longest_tokens(self) -> int:
        """The longest answer."""
        return int(self.output_tokens.max()) if len(self.output_tokens) else 1


def load_of(trace: Trace, limit_tokens: int) -> Load:
    """Return a trace as it is served by an engine that admits ``limit_tokens`` of prompt and answer together.

    A prompt without room for a token of answer is refused, as engines do with an error to its sender; the next turn of
    its session is sent all the same.

    Raises:
        UsageError: a request comes, or a pause lasts, longer than a run can.

    """
    admitted = trace.input_tokens < limit_tokens
    asked = np.flatnonzero(admitted)
    # Nothing is copied where all of it is served.
    prompts, outputs = (
        column if len(asked) == len(trace) else column[asked] for column in (trace.input_tokens, trace.output_tokens)
    )
    room = limit_tokens - prompts
    answers = np.minimum(outputs, room) if (outputs > room).any() else outputs
    return Load(
        num_requests=len(trace),
        asked=asked,
        refused_tokens={int(one): int(trace.input_tokens[one]) for one in np.flatnonzero(~admitted)},
        num_cut=int((answers < outputs).sum()),
        prompt_tokens=prompts,
        output_tokens=answers,
        limit_tokens=limit_tokens,
        sending=_sending(trace, asked),
        sessions=_sessions(trace)[asked],
        sharing=trace.sharing,
    )


def _ps(seconds: Floats) -> array[int]:
    """Return picoseconds, 8 bytes each, that are read as whole numbers of Python."""
    if len(seconds) and not seconds.max() <= MOST_S:
        raise too_long()
    return array("q", np.rint(seconds * PS_PER_S).astype(np.int64).tobytes())


def too_long() -> UsageError:
    """Return what is said of requests that come, or wait, for longer than the clock of a run goes."""
    return UsageError(
        f"the run would last more than the {MOST_S / 86_400:.0f} days of its clock, which counts picoseconds",
        hint="of a file take the first requests (--num-requests) or bring them closer together (--speedup); else give "
        "a higher rate or shorter pauses",
    )


def _sending(trace: Trace, asked: Ints) -> Sending:
    times = _ps(trace.arrivals_s[asked])
    if trace.clients is not None:
        if trace.think_s is not None:
            pauses = _ps(trace.think_s[asked])
        else:
            pauses = _ps(np.full(len(asked), trace.clients.think_s))
        return Sending(times_ps=times, pauses_ps=pauses, num_clients=trace.clients.num_clients)
    if trace.turns is None:
        return Sending(times_ps=times)
    place = np.full(len(trace), NOBODY, dtype=np.int64)
    place[asked] = np.arange(len(asked))
    follows = trace.turns.follows[asked]
    # Whoever follows a refused one comes at its own earliest time.
    follows = np.where(follows == NONE, NOBODY, place[np.maximum(follows, 0)])
    return Sending(times_ps=times, follows=follows.tolist(), pauses_ps=_ps(trace.turns.pauses_s[asked]))


def _sessions(trace: Trace) -> Ints:
    """Return a number for each session."""
    if trace.turns is not None:
        return roots(trace.turns.follows)
    return np.arange(len(trace), dtype=np.int64)


def kept_ids(load: Load) -> Ints:
    """Return the deepest node that prompt and answer of each request pass: the prompt's own where no answer is one."""
    sharing = load.sharing
    if sharing is None:
        return np.full(len(load.asked), NONE, dtype=np.int64)
    prompts, kept = sharing.prompt_ids[load.asked], sharing.kept_ids[load.asked]
    tree = sharing.tree
    # An answer is a node of its own, right after a prompt that is shared to its end, and as long as it is told.
    some = np.flatnonzero(kept != prompts)
    fits = (
        (tree.parent_ids[kept[some]] == prompts[some])
        & (tree.depth_tokens[prompts[some]] == load.prompt_tokens[some])
        & (tree.node_tokens[kept[some]] == load.output_tokens[some])
    )
    found = prompts.copy()
    found[some[fits]] = kept[some[fits]]
    return found


def requests_of(load: Load, allowed_tokens: Ints | None = None) -> list[Request]:
    """Return the requests one by one; ``allowed_tokens`` is what engines are told to expect of each answer."""
    prompts, answers = load.prompt_tokens.tolist(), load.output_tokens.tolist()
    allowed = answers if allowed_tokens is None else allowed_tokens.tolist()
    times = load.sending.times_ps
    if load.sharing is None:
        rows = zip(times, prompts, answers, allowed, strict=True)
        return [
            Request(arrival_ps=time, prompt_tokens=prompt, output_tokens=answer, max_output_tokens=most)
            for time, prompt, answer, most in rows
        ]
    tree = load.sharing.tree
    sizes = tree.node_tokens.tolist()
    ends, kept = load.sharing.prompt_ids[load.asked].tolist(), kept_ids(load).tolist()
    chains: dict[int, tuple[Span, ...]] = {}
    found = []
    for time, prompt, answer, most, end, last in zip(times, prompts, answers, allowed, ends, kept, strict=True):
        spans = chains.get(end)
        if spans is None:
            spans = tuple(Span(text=node, num_tokens=sizes[node]) for node in tree.chain(end))
            chains[end] = spans
        found.append(
            Request(
                arrival_ps=time,
                prompt_tokens=prompt,
                output_tokens=answer,
                max_output_tokens=most,
                spans=spans,
                answer=None if last == end else last,
            )
        )
    return found
