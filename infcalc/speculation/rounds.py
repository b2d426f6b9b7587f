"""Rounds of drafting and verifying on any two models, many sequences at once, and what they write.

A round is a function of contexts (n, tokens) and a generator. It asks the draft for tokens, the target for its laws
before and after each of them, and returns what is emitted: the accepted drafts and the token behind them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.random import Generator

from infcalc.frozen import frozen
from infcalc.speculation.branching import Siblings, proposed, verify_tree
from infcalc.speculation.dynamic_tree import grown
from infcalc.speculation.exact import NO_TOKEN, sampled, verify_chain, verify_match
from infcalc.speculation.tree import TreeShape, chain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from infcalc.speculation.dynamic_tree import DynamicTree
    from infcalc.speculation.exact import Laws, Model, Tokens, Verdict


@frozen
class Emitted:
    """What one round of n sequences wrote: ``tokens`` (n, most), the first ``num_tokens`` (n) of each row."""

    tokens: Tokens
    num_tokens: NDArray[np.intp]


Round: TypeAlias = Callable[["Tokens", Generator], Emitted]
"""Contexts (n, tokens) and chance to what is emitted after each."""


def plain_round(target: Model) -> Round:
    """Return decoding without a draft: one token per round."""

    def run(contexts: Tokens, generator: Generator) -> Emitted:
        tokens = sampled(target(contexts), generator)[:, None]
        return Emitted(tokens=tokens, num_tokens=np.ones(len(tokens), dtype=np.intp))

    return run


def chain_round(target: Model, draft: Model, num_draft_tokens: int, *, by_match: bool = False) -> Round:
    """Return a round of linear drafting; ``by_match`` accepts a draft only where it equals the target's sample."""

    def run(contexts: Tokens, generator: Generator) -> Emitted:
        known, draft_laws = contexts, []
        for _ in range(num_draft_tokens):
            draft_laws.append(draft(known))
            known = np.concatenate([known, sampled(draft_laws[-1], generator)[:, None]], axis=1)
        length = contexts.shape[1]
        target_laws = np.stack([target(known[:, : length + step]) for step in range(num_draft_tokens + 1)], axis=1)
        drafts = known[:, length:]
        if by_match:
            return _emitted(drafts, verify_match(drafts, target_laws, generator))
        if not draft_laws:
            return plain_round(target)(contexts, generator)
        return _emitted(drafts, verify_chain(drafts, np.stack(draft_laws, axis=1), target_laws, generator))

    return run


def tree_round(target: Model, draft: Model, shape: TreeShape, siblings: Siblings) -> Round:
    """Return a round with a tree of one shape in every context."""

    def run(contexts: Tokens, generator: Generator) -> Emitted:
        tokens, draft_laws = drafted(contexts, draft, shape, siblings, generator)
        target_laws = laws_of_nodes(contexts, tokens, shape, target)
        verdict = verify_tree(tokens, draft_laws, target_laws, generator, shape=shape, siblings=siblings)
        return _along(shape, tokens, verdict.last_nodes, verdict.next_tokens)

    return run


def dynamic_round(target: Model, draft: Model, settings: DynamicTree) -> Round:
    """Return a round with the tree that the draft grows in each context, as EAGLE-2 does."""

    def grow(context: Tokens) -> tuple[TreeShape, Tokens]:
        tree = grown(context, draft, settings)
        return tree.shape, tree.tokens

    return certain_round(target, grow)


def lookup_round(target: Model, propose: Callable[[Sequence[int]], Sequence[int]]) -> Round:
    """Return a round with the chain that ``propose`` names for a context, such as a lookup of n-grams."""

    def look_up(context: Tokens) -> tuple[TreeShape, Tokens]:
        tokens = propose(context.tolist())
        return chain(len(tokens)), np.array(tokens, dtype=np.intp)

    return certain_round(target, look_up)


def certain_round(target: Model, propose: Callable[[Tokens], tuple[TreeShape, Tokens]]) -> Round:
    """Return a round with the tree that ``propose`` names for a context, and chance has no part in.

    Its tokens are tried as certain ones (``Siblings.BEST``). A tree cut by the probabilities of tokens that were drawn
    would not be exact: what is cut would depend on the draw.
    """

    def run(contexts: Tokens, generator: Generator) -> Emitted:
        kinds, which = np.unique(contexts, axis=0, return_inverse=True)
        parts: list[tuple[NDArray[np.intp], Emitted]] = []
        for index, context in enumerate(kinds):
            rows = np.flatnonzero(which.reshape(-1) == index)
            shape, own = propose(context)
            laws = laws_of_nodes(context[None], own[None], shape, target)
            nodes = np.broadcast_to(own, (len(rows), shape.num_nodes))
            laws = np.broadcast_to(laws[0], (len(rows), *laws.shape[1:]))
            verdict = verify_tree(nodes, laws, laws, generator, shape=shape, siblings=Siblings.BEST)
            parts.append((rows, _along(shape, nodes, verdict.last_nodes, verdict.next_tokens)))
        most = max((part.tokens.shape[1] for _, part in parts), default=1)
        tokens = np.full((len(contexts), most), NO_TOKEN, dtype=np.intp)
        num_tokens = np.zeros(len(contexts), dtype=np.intp)
        for rows, part in parts:
            tokens[rows, : part.tokens.shape[1]], num_tokens[rows] = part.tokens, part.num_tokens
        return Emitted(tokens=tokens, num_tokens=num_tokens)

    return run


def drafted(
    contexts: Tokens, draft: Model, shape: TreeShape, siblings: Siblings, generator: Generator
) -> tuple[Tokens, Laws]:
    """Return tokens (n, nodes) of trees and the draft's laws (n, nodes + 1, V) after each node that has children."""
    tokens = np.full((len(contexts), shape.num_nodes), NO_TOKEN, dtype=np.intp)
    found: dict[int, Laws] = {}
    for node, nodes in enumerate(shape.children):
        if nodes:
            found[node] = draft(_context(contexts, tokens, shape, node))
            tokens[:, np.array(nodes) - 1] = proposed(found[node], len(nodes), siblings, generator)
    vocab_size = next(iter(found.values())).shape[-1] if found else 0
    laws = np.zeros((len(contexts), shape.num_nodes + 1, vocab_size))
    for node, law in found.items():
        laws[:, node] = law
    return tokens, laws


def laws_of_nodes(contexts: Tokens, tokens: Tokens, shape: TreeShape, model: Model) -> Laws:
    """Return the laws (n, nodes + 1, V) of ``model`` after the root and after each node of trees."""
    return np.stack([model(_context(contexts, tokens, shape, node)) for node in range(shape.num_nodes + 1)], axis=1)


@frozen
class Written:
    """What sequences became: ``tokens`` (n, num_tokens) after the prompt, and rounds by the tokens that they emitted.

    ``first_round`` counts the rounds right after the prompt alone, whose context is the same in all sequences.
    """

    tokens: Tokens
    rounds: dict[int, int]
    first_round: dict[int, int]


def written(prompt: Tokens, num_sequences: int, num_tokens: int, run: Round, generator: Generator) -> Written:
    """Return ``num_sequences`` continuations of ``prompt`` (tokens), each in rounds until it has ``num_tokens``."""
    start = len(prompt)
    known = np.full((num_sequences, start + num_tokens), NO_TOKEN, dtype=np.intp)
    known[:, :start] = prompt
    lengths = np.full(num_sequences, start)
    rounds: Counter[int] = Counter()
    first: Counter[int] = Counter()
    while (length := int(lengths.min(initial=start + num_tokens))) < start + num_tokens:
        rows = np.flatnonzero(lengths == length)
        part = run(known[rows, :length], generator)
        counts = Counter(part.num_tokens.tolist())
        rounds += counts
        if length == start:
            first += counts
        room = min(part.tokens.shape[1], start + num_tokens - length)
        known[rows, length : length + room] = part.tokens[:, :room]
        lengths[rows] = np.minimum(length + part.num_tokens, start + num_tokens)
    return Written(tokens=known[:, start:], rounds=dict(rounds), first_round=dict(first))


def _emitted(drafts: Tokens, verdict: Verdict) -> Emitted:
    """Return the accepted drafts of each row and the token behind them."""
    columns = np.arange(drafts.shape[1] + 1)
    accepted = verdict.num_accepted[:, None]
    padded = np.pad(drafts, ((0, 0), (0, 1)), constant_values=NO_TOKEN)
    tokens = np.where(columns < accepted, padded, NO_TOKEN)
    return Emitted(
        tokens=np.where(columns == accepted, verdict.next_tokens[:, None], tokens), num_tokens=verdict.num_accepted + 1
    )


def _along(shape: TreeShape, tokens: Tokens, last_nodes: NDArray[np.intp], next_tokens: Tokens) -> Emitted:
    """Return the tokens on each row's path to its last node, and the token behind them."""
    paths = np.zeros((shape.num_nodes + 1, shape.depth), dtype=np.intp)
    for node in range(shape.num_nodes + 1):
        path = shape.path(node)
        paths[node, : len(path)] = path
    num_accepted = np.array(shape.depths, dtype=np.intp)[last_nodes]
    nodes = paths[last_nodes]
    rows = np.arange(len(tokens))
    found = np.full((len(tokens), shape.depth + 1), NO_TOKEN, dtype=np.intp)
    found[:, :-1] = np.where(nodes > 0, tokens[rows[:, None], nodes - 1], NO_TOKEN)
    found[rows, num_accepted] = next_tokens
    return Emitted(tokens=found, num_tokens=num_accepted + 1)


def _context(contexts: Tokens, tokens: Tokens, shape: TreeShape, node: int) -> Tokens:
    """Return contexts with the path to ``node`` behind them; token 0 stands where none was left to propose."""
    path = np.array(shape.path(node), dtype=np.intp) - 1
    return np.concatenate([contexts, np.maximum(tokens[:, path], 0)], axis=1)
