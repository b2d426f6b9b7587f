"""What a Llama-style layer does to each token by itself: RMSNorm, rotary positions, SwiGLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROPE_BASE = 10_000.0
"""Base of the rotary angles (Su et al., "RoFormer", section 3.2.2; Llama uses the same)."""
NORM_EPSILON = 1e-6
_ACTIVE = 2


def rms_norm(rows: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row (..., width) divided by its root mean square, times ``weight`` (width).

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", equation 4.
    """
    mean_square = np.mean(rows * rows, axis=-1, keepdims=True)
    normed: NDArray[np.float64] = rows / np.sqrt(mean_square + NORM_EPSILON) * weight
    return normed


def rope_table(num_positions: int, width: int) -> NDArray[np.float64]:
    """Return cosines and sines of the angles of every position: (2, num_positions, width / 2).

    The table is made once: a position then has one pair of values, however it is reached.

    Raises:
        ValueError: ``width`` is odd.

    >>> rope_table(3, 4).shape
    (2, 3, 2)

    """
    if width % _ACTIVE:
        raise ValueError(f"rotary positions turn pairs of elements, and {width} is odd")
    frequencies = ROPE_BASE ** (-np.arange(0, width, _ACTIVE) / width)
    angles = np.arange(num_positions)[:, None] * frequencies
    return np.stack([np.cos(angles), np.sin(angles)])


def rotate(heads: NDArray[np.float64], positions: NDArray[np.intp], table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``heads`` (n, num_heads, width) turned by the angles of ``positions`` (n).

    Element i pairs with element i + width / 2, as in the checkpoints of the Hugging Face Llama.
    """
    cosine, sine = table[:, positions, None, :]
    first, second = np.split(heads, _ACTIVE, axis=-1)
    turned: NDArray[np.float64] = np.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)
    return turned


def swiglu(gate: NDArray[np.float64], up: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``silu(gate) * up`` (Shazeer, "GLU Variants Improve Transformer")."""
    activated: NDArray[np.float64] = gate / (1.0 + np.exp(-gate)) * up
    return activated
