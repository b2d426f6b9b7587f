"""What an endless prefix cache would find of the prompts of a trace, and trees made from chains of block ids.

Endless: nothing is evicted, a prompt is in the cache before the next one arrives, and an answer before the turn that
repeats it. A real cache finds at most this.
"""

from __future__ import annotations

import numpy as np

from infcalc.frozen import frozen
from infcalc.workload.trace import NONE, Ints, PrefixTree, Sharing


@frozen
class Found:
    """What an endless cache finds: tokens of all prompts together, blocks or runs of tokens, and requests with any."""

    num_tokens: int
    num_nodes: int
    num_requests: int


def found_in_endless_cache(sharing: Sharing) -> Found:
    """Return what prompts repeat of earlier prompts and answers.

    Every node that a prompt passes is computed once, by the first prompt that passes it, except those of answers: they
    were computed when they were given.
    """
    tree, prompts = sharing.tree, sharing.prompt_ids
    ends = prompts[prompts != NONE]
    computed = _passed(tree, ends)
    # Only the last node of what is kept can be an answer.
    computed[sharing.kept_ids[sharing.kept_ids != prompts]] = False
    roots = tree.root_ids[ends]
    first = np.zeros(len(ends), dtype=bool)
    first[np.unique(roots, return_index=True)[1]] = True
    return Found(
        num_tokens=int(tree.depth_tokens[ends].sum() - tree.node_tokens[computed].sum()),
        num_nodes=int((tree.levels[ends] + 1).sum() - computed.sum()),
        num_requests=len(ends) - int(first.sum()),
    )


def _passed(tree: PrefixTree, ends: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each node whether a chain that ends in one of ``ends`` passes it."""
    passed = np.zeros(len(tree.parent_ids), dtype=bool)
    frontier = np.unique(ends)
    while len(frontier):
        passed[frontier] = True
        above = tree.parent_ids[frontier]
        above = np.unique(above[above != NONE])
        frontier = above[~passed[above]]
    return passed


def shared_chains(block_ids: Ints, block_tokens: Ints, chain_lengths: Ints, num_answer_blocks: Ints) -> Sharing:
    """Return the tree of chains, one after the other in ``block_ids``; what only one chain has is left out of it.

    A block is known by its id, its size and the blocks before it. The last ``num_answer_blocks`` (0 or 1) of each
    chain are not part of the prompt but of the answer.
    """
    count = len(chain_lengths)
    starts = np.cumsum(chain_lengths) - chain_lengths
    sizes, size = np.unique(block_tokens, return_inverse=True)
    name = np.unique(block_ids, return_inverse=True)[1]
    # Id and size as one small number, so that no key outgrows its bits.
    distinct, dense = np.unique(name * len(sizes) + size, return_inverse=True)
    node_of = np.full(len(block_ids), NONE, dtype=np.int64)
    parents: list[Ints] = []
    tokens: list[Ints] = []
    num_nodes = 0
    rows = np.flatnonzero(chain_lengths > 0)
    level = 0
    while len(rows):
        places = starts[rows] + level
        above = node_of[places - 1] if level else np.full(len(rows), NONE, dtype=np.int64)
        keys = (above + 1) * len(distinct) + dense[places]
        _, first, which, times = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        shared = times > 1
        names = np.where(shared, num_nodes + np.cumsum(shared) - 1, NONE)
        node_of[places] = names[which]
        parents.append(above[first[shared]])
        tokens.append(block_tokens[places[first[shared]]])
        num_nodes += int(shared.sum())
        level += 1
        rows = rows[(names[which] != NONE) & (chain_lengths[rows] > level)]
    tree = PrefixTree(
        parent_ids=np.concatenate([np.empty(0, dtype=np.int64), *parents]),
        node_tokens=np.concatenate([np.empty(0, dtype=np.int64), *tokens]),
    )
    kept = _deepest(node_of, starts, chain_lengths, count)
    prompts = _deepest(node_of, starts, chain_lengths - num_answer_blocks, count)
    return Sharing(tree=tree, prompt_ids=prompts, kept_ids=kept)


def _deepest(node_of: Ints, starts: Ints, lengths: Ints, count: int) -> Ints:
    """Return the deepest node among the first ``lengths`` blocks of each chain."""
    owner = np.repeat(np.arange(count), lengths)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    nodes = node_of[starts[owner] + offset]
    found = np.full(count, NONE, dtype=np.int64)
    # Nodes of a chain have rising numbers.
    np.maximum.at(found, owner, nodes)
    return found
