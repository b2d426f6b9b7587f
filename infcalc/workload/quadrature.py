"""Weights and lengths whose weighted sums are expectations over a distribution of lengths, without chance."""

from __future__ import annotations

import math
from typing import TypeAlias, assert_never

from infcalc.workload.lengths import Constant, Empirical, Exponential, Lengths, Lognormal, Pareto, Uniform

Node: TypeAlias = tuple[float, float]
"""Weight and length: weights of a distribution sum to 1."""


def nodes(lengths: Lengths, *, by_length: bool = False) -> tuple[Node, ...]:
    """Return weights and lengths whose weighted sums are expectations, without chance.

    ``by_length`` weighs each length by itself: the law of the answer that a running request is giving, for long ones
    run longer. Moments up to the third come out to 1e-6 or better.
    """
    bias = 1 if by_length else 0
    match lengths:
        case Constant():
            return ((1.0, lengths.value_tokens),)
        case Uniform():
            found = _uniform_nodes(lengths, bias)
        case Exponential():
            # Trapezoids in the logarithm: the integrand is smooth and vanishes at both ends.
            steps = [step * _LOG_STEP for step in range(-_LOG_STEPS_BELOW, _LOG_STEPS_ABOVE)]
            found = [
                (math.exp((bias + 1) * step - math.exp(step)), lengths.mean_tokens * math.exp(step)) for step in steps
            ]
        case Lognormal():
            spread = lengths.log_deviation
            centre = math.log(lengths.median_tokens) + bias * spread**2
            # Third moments lie up to three deviations further out than the law itself.
            reach = _NORMAL_REACH + 3 * spread
            count = math.ceil(2 * reach / _NORMAL_STEP)
            steps = [-reach + step * _NORMAL_STEP for step in range(count + 1)]
            found = [(math.exp(-0.5 * step**2), math.exp(centre + spread * step)) for step in steps]
        case Pareto():
            found = _pareto_nodes(lengths, bias)
        case Empirical():
            found = [(value**bias, value) for value in lengths.values_tokens]
        case _:
            assert_never(lengths)
    total = math.fsum(weight for weight, _ in found)
    return tuple((weight / total, value) for weight, value in found)


_CELLS = 32
_GAUSS = 0.5 / math.sqrt(3)
_LOG_STEP = 0.2
_LOG_STEPS_BELOW = 90
_LOG_STEPS_ABOVE = 22
_NORMAL_REACH = 7.0
_NORMAL_STEP = 0.3


def _uniform_nodes(lengths: Uniform, bias: int) -> list[Node]:
    """Two Gauss points per cell: exact for cubic integrands."""
    width = (lengths.max_tokens - lengths.min_tokens) / _CELLS
    middles = [lengths.min_tokens + (cell + 0.5) * width for cell in range(_CELLS)]
    points = [middle + side * width for middle in middles for side in (-_GAUSS, _GAUSS)]
    return [(point**bias, point) for point in points]


def _pareto_nodes(lengths: Pareto, bias: int) -> list[Node]:
    """Two Gauss points per cell of the logarithm, on which the density is an exponential."""
    ratio = math.log(lengths.max_tokens / lengths.min_tokens)
    cells = math.ceil(ratio * (lengths.tail_index + _HIGHEST_MOMENT) / _CELL_EXPONENT)
    width = ratio / cells
    steps = [(cell + 0.5 + side) * width for cell in range(cells) for side in (-_GAUSS, _GAUSS)]
    return [(math.exp((bias - lengths.tail_index) * step), lengths.min_tokens * math.exp(step)) for step in steps]


_HIGHEST_MOMENT = 3
_CELL_EXPONENT = 0.25
