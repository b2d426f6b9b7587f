"""The feed-forward block of one layer for the rows of a batch: SwiGLU, or a mixture of SwiGLU experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np

from infcalc.reference.elementwise import swiglu
from infcalc.spec.layers import DenseFeedForward, MoeFeedForward

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from numpy.typing import NDArray

    from infcalc.reference.projection import Project
    from infcalc.spec.layers import FeedForward

    Arrays: TypeAlias = Mapping[str, NDArray[np.float64]]


def fed_forward(
    block: FeedForward, weights: Arrays, rows: NDArray[np.float64], project: Project
) -> NDArray[np.float64]:
    """Return the block's output (n, hidden_size) for normed ``rows`` (n, hidden_size)."""
    match block:
        case DenseFeedForward():
            return _gated(weights["gate"], weights["up"], weights["down"], rows, project)
        case MoeFeedForward():
            return _mixture(block, weights, rows, project)
        case _:
            assert_never(block)


def routed(
    block: MoeFeedForward, router: NDArray[np.float64], rows: NDArray[np.float64], project: Project
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the experts of each row (n, experts_per_token) and their shares, which sum to 1.

    The best scores win, the lower index first where two are equal; the softmax runs over the winners (Jiang et al.,
    "Mixtral of Experts", section 2.1).
    """
    scores = project(rows, router)
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : block.experts_per_token]
    best = np.take_along_axis(scores, chosen, axis=-1)
    shares = np.exp(best - best.max(axis=-1, keepdims=True))
    return chosen, shares / shares.sum(axis=-1, keepdims=True)


def _mixture(
    block: MoeFeedForward, weights: Arrays, rows: NDArray[np.float64], project: Project
) -> NDArray[np.float64]:
    chosen, shares = routed(block, weights["router"], rows, project)
    if block.shared_width:
        output = _gated(weights["shared.gate"], weights["shared.up"], weights["shared.down"], rows, project)
    else:
        output = np.zeros_like(rows)
    # Experts add up in the order of their index, so that the sum of a row does not depend on the other rows.
    for expert in np.unique(chosen):
        members, rank = np.nonzero(chosen == expert)
        gate, up, down = (weights[f"experts.{name}"][expert] for name in ("gate", "up", "down"))
        output[members] += shares[members, rank, None] * _gated(gate, up, down, rows[members], project)
    return output


def _gated(
    gate: NDArray[np.float64],
    up: NDArray[np.float64],
    down: NDArray[np.float64],
    rows: NDArray[np.float64],
    project: Project,
) -> NDArray[np.float64]:
    return project(swiglu(project(rows, gate), project(rows, up)), down)
