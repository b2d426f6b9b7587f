"""Targets and drafts whose next token depends on the two before it, what they write, and how far counts are off."""

from __future__ import annotations

import math

import numpy as np

from infcalc.speculation.branching import Siblings, outcomes
from infcalc.speculation.exact import Laws, Model, Tokens, match_chance, tempered
from infcalc.speculation.tree import ROOT, TreeShape

PROMPT = np.array([0, 1])


def table_model(laws: Laws) -> Model:
    """Laws (V, V, V) by the last two tokens."""
    return lambda contexts: laws[contexts[:, -2], contexts[:, -1]]


def pair(vocab_size: int, temperature: float, *, noise: float = 1.0, seed: int = 1) -> tuple[Model, Model]:
    """Return a target and a noisier draft at one temperature."""
    generator = np.random.default_rng((seed, vocab_size))
    logits = 1.5 * generator.standard_normal((vocab_size,) * 3)
    drafts = logits + noise * generator.standard_normal(logits.shape)
    return table_model(tempered(logits, temperature)), table_model(tempered(drafts, temperature))


def extended(contexts: Tokens, vocab_size: int) -> Tokens:
    """Return every context with every token behind it."""
    return np.concatenate(
        [np.repeat(contexts, vocab_size, axis=0), np.tile(np.arange(vocab_size), len(contexts))[:, None]], axis=1
    )


def law_of_continuations(target: Model, vocab_size: int, num_tokens: int) -> Laws:
    """Return the probability of each of the V ** num_tokens continuations of the prompt, in their order as numbers."""
    contexts, chances = PROMPT[None], np.ones(1)
    for _ in range(num_tokens):
        chances = (chances[:, None] * target(contexts)).ravel()
        contexts = extended(contexts, vocab_size)
    return chances


def numbered(tokens: Tokens, vocab_size: int) -> Tokens:
    """Return continuations (n, num_tokens) as numbers in base V."""
    numbers: Tokens = tokens @ vocab_size ** np.arange(tokens.shape[1])[::-1]
    return numbers


def chi_square_z(counts: Laws, chances: Laws) -> float:
    """Return how many standard deviations Pearson's chi-square is off, by the cube root of Wilson and Hilferty.

    Cells of fewer than five expected counts go together; counts where there is no chance at all are infinitely off.
    """
    expected = counts.sum() * chances
    if (counts[expected == 0] > 0).any():
        return math.inf
    rare = expected < 5
    seen, due = (np.append(one[~rare], one[rare].sum()) for one in (counts, expected))
    seen, due = seen[due > 0], due[due > 0]
    freedom = len(due) - 1
    if not freedom:
        return 0.0
    chi = float(((seen - due) ** 2 / due).sum())
    spread = 2 / (9 * freedom)
    return (math.cbrt(chi / freedom) - 1 + spread) / math.sqrt(spread)


def expected_of_chain(target: Model, draft: Model, vocab_size: int, length: int, *, by_match: bool = False) -> float:
    """Return the tokens of a round after the prompt: 1 + the chance of each accepted prefix, path by path."""
    contexts, chances, total = PROMPT[None], np.ones(1), 1.0
    for _ in range(length):
        laws = target(contexts), draft(contexts)
        shared = laws[0] * laws[1] if by_match else np.minimum(*laws)
        if by_match:
            assert np.allclose(shared.sum(axis=-1), match_chance(*laws))
        chances = (chances[:, None] * shared).ravel()
        contexts = extended(contexts, vocab_size)
        total += float(chances.sum())
    return total


def expected_of_tree(target: Model, draft: Model, shape: TreeShape, siblings: Siblings) -> float:
    """Return the tokens of a round after the prompt: every node by every path of tokens that may lead there."""

    def below(node: int, context: Tokens, chance: float) -> float:
        nodes = shape.children[node]
        if not nodes or chance == 0:
            return 0.0
        found = outcomes(target(context[None])[0], draft(context[None])[0], len(nodes), siblings)
        return math.fsum(
            chance * float(found[rank, token]) + below(child, np.append(context, token), chance * found[rank, token])
            for rank, child in enumerate(nodes)
            for token in np.flatnonzero(found[rank])
        )

    return 1 + below(ROOT, PROMPT, 1.0)


def expected_of_certain(target: Model, shape: TreeShape, tokens: Tokens) -> float:
    """Return the tokens of a round with a tree of given tokens: a node is reached as often as the target writes it."""
    reached = [1.0]
    for node, parent in enumerate(shape.parents, start=1):
        path = np.array([tokens[one - 1] for one in shape.path(parent)], dtype=np.intp)
        reached.append(reached[parent] * float(target(np.concatenate([PROMPT, path])[None])[0, tokens[node - 1]]))
    return sum(reached)
