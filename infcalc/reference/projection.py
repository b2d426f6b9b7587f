"""Linear layers over the rows of a batch, with or without results that depend on what else is in the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Project: TypeAlias = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
    """Rows (n, inputs) and a weight (outputs, inputs) to rows (n, outputs)."""


def each_row(rows: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``rows`` (n, inputs) times ``weight`` (outputs, inputs) transposed: (n, outputs).

    Each row is a product of its own, a vector times a matrix. BLAS picks kernels and the order of its sums by the shape
    of a product; here that shape is the same whatever n is, so the bits of a row never depend on its neighbours.
    """
    product: NDArray[np.float64] = np.matmul(rows[:, None, :], weight.T)[:, 0]
    return product


def all_rows(rows: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the same as :func:`each_row` from one matrix product: faster, and equal to rounding only."""
    product: NDArray[np.float64] = rows @ weight.T
    return product
