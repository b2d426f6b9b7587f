"""Lengths, drawn: whole tokens, at least one."""

from __future__ import annotations

from typing import assert_never

import numpy as np

from infcalc.workload.lengths import Constant, Empirical, Exponential, Lengths, Lognormal, Pareto, Uniform
from infcalc.workload.trace import Ints


def drawn_tokens(lengths: Lengths, count: int, rng: np.random.Generator) -> Ints:
    """Return ``count`` lengths of a distribution, each rounded to a whole number of tokens from 1 up.

    >>> from infcalc.workload.lengths import parse_lengths
    >>> drawn_tokens(parse_lengths("512"), 3, np.random.default_rng(1)).tolist()
    [512, 512, 512]
    """
    match lengths:
        case Constant():
            found = np.full(count, lengths.value_tokens)
        case Uniform():
            found = rng.uniform(lengths.min_tokens, lengths.max_tokens, count)
        case Exponential():
            found = rng.standard_exponential(count) * lengths.mean_tokens
        case Lognormal():
            found = lengths.median_tokens * np.exp(lengths.log_deviation * rng.standard_normal(count))
        case Pareto():
            beyond = (lengths.min_tokens / lengths.max_tokens) ** lengths.tail_index
            found = lengths.min_tokens * (1 - rng.random(count) * (1 - beyond)) ** (-1 / lengths.tail_index)
        case Empirical():
            found = np.asarray(lengths.values_tokens)[rng.integers(0, len(lengths.values_tokens), count)]
        case _:
            assert_never(lengths)
    whole: Ints = np.clip(np.rint(found), 1, _LONGEST_TOKENS).astype(np.int64)
    return whole


_LONGEST_TOKENS = 2.0**40
