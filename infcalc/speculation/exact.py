"""Exact speculative sampling on real distributions: what comes out has the target's law, whatever the draft is.

All functions take many rows at once. A *law* is an array (..., vocab_size) of probabilities that sum to 1 along the
last axis. Sources: Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding", ICML 2023,
algorithm 1; Chen et al., "Accelerating large language model decoding with speculative sampling", 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from numpy.random import Generator

Laws: TypeAlias = NDArray[np.float64]
"""Probabilities of the next token along the last axis."""
Tokens: TypeAlias = NDArray[np.intp]
"""Ids of tokens."""
Model: TypeAlias = Callable[[Tokens], Laws]
"""What gives the law of the next token: contexts of one length (n, tokens) to laws (n, vocab_size)."""

NO_TOKEN = -1
"""Where there is no token: after the last of a round, or where a draft has none left to propose."""


@frozen
class Verdict:
    """What verification says of n rows of drafts: how many of each are accepted, and the token that follows them.

    The token is the corrected one after a rejection, the bonus token where all drafts were accepted.
    """

    num_accepted: NDArray[np.intp]
    next_tokens: Tokens


def tempered(logits: NDArray[np.float64], temperature_fraction: float) -> Laws:
    """Return the law of ``logits`` (..., vocab_size) at a temperature; at 0 all of it is on the best token.

    >>> tempered(np.log([0.2, 0.8]), 1.0).round(3).tolist(), tempered(np.log([0.2, 0.8]), 0.0).tolist()
    ([0.2, 0.8], [0.0, 1.0])
    """
    if temperature_fraction == 0:
        return greedy(logits)
    scaled = logits / temperature_fraction
    shares = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    law: Laws = shares / shares.sum(axis=-1, keepdims=True)
    return law


def greedy(laws: Laws) -> Laws:
    """Return one-hot laws on the most probable token, the first of equals.

    A greedy target makes acceptance "the argmax matches"; a greedy draft makes it the target's own probability of the
    drafted token (vLLM ``draft_sample_method`` greedy, its default).
    """
    return one_hot(np.argmax(laws, axis=-1), laws.shape[-1])


def one_hot(tokens: Tokens, vocab_size: int) -> Laws:
    """Return laws (..., vocab_size) that are certain of ``tokens`` (...); none of it where there is no token."""
    law: Laws = (tokens[..., None] == np.arange(vocab_size)).astype(np.float64)
    return law


def sampled(laws: Laws, generator: Generator) -> Tokens:
    """Return one token from each law (..., vocab_size); ``NO_TOKEN`` where a law has no mass.

    By inversion of the distribution function: a token without probability is never drawn.
    """
    heights = np.cumsum(laws, axis=-1)
    total = heights[..., -1:]
    # A product with a number below 1 may round up to the total itself, which lies above every token.
    drawn = np.minimum(generator.random(total.shape) * total, np.nextafter(total, 0))
    tokens: Tokens = np.count_nonzero(heights <= drawn, axis=-1)
    return np.where(total[..., 0] > 0, tokens, NO_TOKEN)


def acceptance(target: NDArray[np.float64], draft: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return min(1, p / q) for probabilities of a drafted token by target and draft; 0 where it cannot be drafted.

    >>> acceptance(np.array([0.2, 0.6, 0.1]), np.array([0.4, 0.3, 0.0])).tolist()
    [0.5, 1.0, 0.0]
    """
    ratio: NDArray[np.float64] = np.divide(target, draft, out=np.zeros_like(target), where=draft > 0)
    return np.minimum(ratio, 1.0)


def residual(target: Laws, draft: Laws) -> Laws:
    """Return norm(max(0, p - q)), what a token is drawn from after a rejection; p itself where nothing is left.

    Nothing is left exactly where p equals q, and then nothing is rejected. With an empty draft law it is p.

    >>> residual(np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.4, 0.5])).tolist()
    [1.0, 0.0, 0.0]
    """
    left = np.maximum(target - draft, 0.0)
    total = left.sum(axis=-1, keepdims=True)
    law: Laws = np.divide(left, total, out=target.copy(), where=total > 0)
    return law


def overlap(target: Laws, draft: Laws) -> NDArray[np.float64]:
    """Return the chance that a drafted token is accepted: sum of min(p, q), which is 1 - TV(p, q).

    Source: Leviathan et al. 2023, theorem 3.5.

    >>> round(float(overlap(np.array([0.5, 0.5]), np.array([0.8, 0.2]))), 3)
    0.7
    """
    shared: NDArray[np.float64] = np.minimum(target, draft).sum(axis=-1)
    return shared


def match_chance(target: Laws, draft: Laws) -> NDArray[np.float64]:
    """Return the chance that a drafted token equals one sampled from the target: sum of p q, at most the overlap."""
    chance: NDArray[np.float64] = (target * draft).sum(axis=-1)
    return chance


def verify_chain(drafts: Tokens, draft_laws: Laws, target_laws: Laws, generator: Generator) -> Verdict:
    """Return what is accepted of ``drafts`` (n, k), drawn from ``draft_laws`` (n, k, V), under ``target_laws``.

    ``target_laws`` (n, k + 1, V) are those before each draft and after the last. Each draft is accepted with
    min(1, p / q) while those before it are; the first that is not is replaced from the residual, and where all are, a
    bonus token comes from the target's last law. Greedy target, greedy draft: hand in one-hot laws.
    """
    num_rows, length = drafts.shape
    picked = drafts[..., None]
    chance = acceptance(
        np.take_along_axis(target_laws[:, :length], picked, axis=-1)[..., 0],
        np.take_along_axis(draft_laws, picked, axis=-1)[..., 0],
    )
    num_accepted = _leading(generator.random(chance.shape) < chance)
    # After the last draft nothing was proposed: the residual of an empty law is the target's own.
    proposed = np.concatenate([draft_laws, np.zeros_like(target_laws[:, :1])], axis=1)
    rows = np.arange(num_rows)
    left = residual(target_laws[rows, num_accepted], proposed[rows, num_accepted])
    return Verdict(num_accepted=num_accepted, next_tokens=sampled(left, generator))


def verify_match(drafts: Tokens, target_laws: Laws, generator: Generator) -> Verdict:
    """Return what is accepted when a draft must equal the token that is sampled from the target in its place.

    The target's tokens come out whatever the draft says, so that the law is exact; acceptance is :func:`match_chance`.
    Source: TensorRT-LLM with ``use_rejection_sampling`` false, its default.
    """
    own = sampled(target_laws, generator)
    num_accepted = _leading(own[:, :-1] == drafts)
    return Verdict(num_accepted=num_accepted, next_tokens=own[np.arange(len(own)), num_accepted])


def _leading(accepted: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return how many of each row (n, k) come before its first False."""
    counts: NDArray[np.intp] = np.logical_and.accumulate(accepted, axis=1).sum(axis=1)
    return counts
