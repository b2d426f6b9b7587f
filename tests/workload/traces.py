"""Small traces for tests, and what an endless cache finds of them, counted token by token."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from infcalc.workload.arrivals import parse_arrivals
from infcalc.workload.generation import Recipe, generated
from infcalc.workload.lengths import parse_lengths
from infcalc.workload.sessions import Sessions, parse_shared_prefixes
from infcalc.workload.trace import NONE, Floats, Sharing, Trace


def same(one: Trace, other: Trace) -> bool:
    """Return whether two traces say the same, with nodes named as they may be."""
    return (
        one.arrivals_s.tolist() == other.arrivals_s.tolist()
        and one.input_tokens.tolist() == other.input_tokens.tolist()
        and one.output_tokens.tolist() == other.output_tokens.tolist()
        and one.clients == other.clients
        and listed(one.think_s) == listed(other.think_s)
        and (one.turns is None) == (other.turns is None)
        and (
            one.turns is None
            or other.turns is None
            or (
                one.turns.follows.tolist() == other.turns.follows.tolist()
                and one.turns.pauses_s.tolist() == other.turns.pauses_s.tolist()
            )
        )
        and found_token_by_token(one) == found_token_by_token(other)
    )


def listed(column: Floats | None) -> list[float] | None:
    return None if column is None else column.tolist()


def prompt_of(sharing: Sharing, node: int) -> list[tuple[int, int]]:
    """Return the tokens that lead to a node, each named by its node and its place in it."""
    if node == NONE:
        return []
    return [(one, place) for one in sharing.tree.chain(node) for place in range(int(sharing.tree.node_tokens[one]))]


def found_token_by_token(trace: Trace) -> list[int]:
    """Return for each request the tokens that an endless cache finds: the longest prefix among all before it."""
    if trace.sharing is None:
        return [0] * len(trace)
    found = []
    held: list[list[tuple[int, int]]] = []
    for prompt, kept in zip(trace.sharing.prompt_ids.tolist(), trace.sharing.kept_ids.tolist(), strict=True):
        tokens = prompt_of(trace.sharing, prompt)
        longest = 0
        for other in held:
            shared = next(
                (place for place, (one, two) in enumerate(zip(tokens, other, strict=False)) if one != two),
                min(len(tokens), len(other)),
            )
            longest = max(longest, shared)
        found.append(longest)
        held.append(prompt_of(trace.sharing, kept))
    return found


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Traces with and without shared prefixes, sessions and closed loops."""
    turns = draw(st.sampled_from(["1", "3", "uniform:min=1,max=4"]))
    shared = draw(st.sampled_from([None, "num=1,tokens=7", "num=3,tokens=uniform:min=2;max=9,share=0.5,skew=1"]))
    arrivals = ["poisson:3", "once", "gamma:rate=2,cv=3", *(["closed:3,think=1s,think-cv=1"] if turns == "1" else [])]
    recipe = Recipe(
        num_requests=draw(st.integers(1, 30)),
        arrivals=parse_arrivals(draw(st.sampled_from(arrivals))),
        own_tokens=parse_lengths("uniform:min=1,max=6"),
        output_tokens=parse_lengths("uniform:min=1,max=5"),
        prefixes=None if shared is None else parse_shared_prefixes(shared),
        sessions=Sessions(turns=parse_lengths(turns), think_s=2.0 if turns != "1" else 0.0),
    )
    return generated(recipe, np.random.default_rng(draw(st.integers(0, 2**32))))
