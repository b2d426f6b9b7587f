"""Requests as columns: when each arrives, its lengths, what its prompt shares with others, and what it waits for.

A million requests are a handful of arrays. What prompts share is a tree: each node is a run of tokens after its parent,
and a prompt names the deepest node that it passes, so that two prompts share what lies above their nearest common node.
Tokens beyond the node belong to the request alone. Chains of block hashes (Mooncake, vLLM) are such a tree, since a
hash stands for its block and all before it; so are system prompts, and sessions whose prompts repeat what was said.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from infcalc.frozen import frozen
from infcalc.workload.arrivals import ClosedLoop

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
N = TypeVar("N", np.int64, np.float64)
NONE = -1
"""In columns that name a node or a request: there is none."""


def summed_upwards(above: Ints, own: NDArray[N]) -> NDArray[N]:
    """Return for each entry its own value and those of all above it, by doubling the reach.

    >>> summed_upwards(np.array([NONE, 0, 1]), np.array([1, 10, 100])).tolist()
    [1, 11, 111]
    """
    above, total = above.copy(), own.copy()
    while True:
        reaching = np.flatnonzero(above != NONE)
        if not len(reaching):
            return total
        targets = above[reaching]
        total[reaching] = total[reaching] + total[targets]
        above[reaching] = above[targets]


def roots(above: Ints) -> Ints:
    """Return for each entry the one at the top of its chain.

    >>> roots(np.array([NONE, 0, 1, NONE])).tolist()
    [0, 0, 0, 3]
    """
    found = np.where(above == NONE, np.arange(len(above)), above)
    while True:
        further = found[found]
        if (further == found).all():
            return found
        found = further


class PrefixTree:
    """Runs of tokens that prompts share. Node ``n`` holds ``node_tokens[n]`` tokens after its parent's.

    A parent has a smaller number than its children; ``NONE`` is the empty beginning.

    >>> tree = PrefixTree(parent_ids=np.array([NONE, 0, 0]), node_tokens=np.array([100, 20, 30]))
    >>> tree.depth_tokens.tolist(), tree.chain(2)
    ([100, 120, 130], [0, 2])
    """

    def __init__(self, *, parent_ids: Ints, node_tokens: Ints) -> None:
        if len(parent_ids) != len(node_tokens):
            raise ValueError(f"{len(parent_ids)} parents for {len(node_tokens)} nodes")
        if ((parent_ids >= np.arange(len(parent_ids))) | (parent_ids < NONE)).any():
            raise ValueError("a parent must come before its children")
        if (node_tokens < 1).any():
            raise ValueError("a node without tokens")
        self.parent_ids = parent_ids
        self.node_tokens = node_tokens

    @cached_property
    def levels(self) -> Ints:
        """Nodes above each node."""
        return summed_upwards(self.parent_ids, (self.parent_ids != NONE).astype(np.int64))

    @cached_property
    def depth_tokens(self) -> Ints:
        """Tokens from the beginning to the end of each node."""
        return summed_upwards(self.parent_ids, self.node_tokens)

    @cached_property
    def root_ids(self) -> Ints:
        """The first node of the chain of each node."""
        return roots(self.parent_ids)

    def chain(self, node: int) -> list[int]:
        """Return the nodes from the beginning to ``node``, itself included."""
        found = []
        while node != NONE:
            found.append(node)
            node = int(self.parent_ids[node])
        return found[::-1]


@frozen
class Sharing:
    """What prompts have in common: for each request the deepest node of its prompt.

    ``kept_ids`` names the node that a cache can hold when the request has ended, where its answer will be part of a
    later prompt; it is the prompt's own node where not.
    """

    tree: PrefixTree
    prompt_ids: Ints
    kept_ids: Ints


@frozen
class Turns:
    """Requests that wait for another: the earlier turn of a session.

    Request ``i`` is sent ``pauses_s[i]`` after request ``follows[i]`` has ended; NONE: at its own time of arrival.
    """

    follows: Ints
    pauses_s: Floats


@frozen
class Trace:
    """Requests in the order of arrival.

    ``arrivals_s`` counts from the start of the trace. Of a request that follows another it is the earliest time
    possible, with answers that take no time. In a closed loop all are 0: clients take the requests in their order, and
    a request is sent ``think_s`` of it after its client has the answer before.
    """

    arrivals_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    sharing: Sharing | None = None
    turns: Turns | None = None
    clients: ClosedLoop | None = None
    think_s: Floats | None = None

    def __post_init__(self) -> None:
        """Refuse columns that no trace can have: a defect of who made them, for readers check before."""
        count = len(self.arrivals_s)
        columns = [self.input_tokens, self.output_tokens]
        if self.sharing is not None:
            columns += [self.sharing.prompt_ids, self.sharing.kept_ids]
        if self.turns is not None:
            columns.append(self.turns.follows)
        if any(len(column) != count for column in columns):
            raise ValueError(f"columns of {[len(column) for column in columns]} entries for {count} arrivals")
        if count and ((np.diff(self.arrivals_s) < 0).any() or not self.arrivals_s[0] >= 0):
            raise ValueError("arrivals must be sorted and start at 0 or later")
        if (self.input_tokens < 1).any() or (self.output_tokens < 1).any():
            raise ValueError("a request has at least one token of prompt and one of answer")
        if self.turns is not None and (self.turns.follows >= np.arange(count)).any():
            raise ValueError("a request can only follow an earlier one")

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrivals_s)
