"""Random weights for a model, tensor by tensor from THE inventory, so that what is computed is what is counted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from infcalc.frozen import frozen
from infcalc.lowering.tensors import inventory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from infcalc.lowering.tensors import Tensor
    from infcalc.spec.model import Model

_NORM_SPREAD = 0.1


@frozen
class Weights:
    """Arrays under the names of :mod:`infcalc.lowering.tensors`: those outside the layers, and those of each layer.

    A matrix is (rows, columns) = (outputs, inputs), a vector (rows); a tensor present several times in a layer, as
    experts and norms are, has the copies as its first axis.
    """

    outside: Mapping[str, NDArray[np.float64]]
    layers: tuple[Mapping[str, NDArray[np.float64]], ...]

    @property
    def num_parameters(self) -> int:
        """Elements of all arrays."""
        return sum(array.size for group in (self.outside, *self.layers) for array in group.values())


def random_weights(model: Model, seed: int, *, dtype: type[np.floating[Any]] = np.float64) -> Weights:
    """Return weights of ``model`` drawn from ``seed``: the same seed gives the same bits.

    What is computed with them has their ``dtype`` throughout: double precision where bits are compared, single where
    speed is measured. Matrices are normal with variance 1 / inputs, which keeps activations of the order of 1; norms
    are around 1.
    """
    generator = np.random.default_rng(seed)
    outside: dict[str, NDArray[np.float64]] = {}
    layers: tuple[dict[str, NDArray[np.float64]], ...] = tuple({} for _ in range(model.num_layers))
    for tensor in inventory(model):
        for group in [layers[index] for index in tensor.layers] or [outside]:
            group[tensor.name] = _drawn(tensor, generator, dtype)
    return Weights(outside=outside, layers=layers)


def blurred(weights: Weights, noise_fraction: float, seed: int) -> Weights:
    """Return ``weights`` with normal noise on every array, ``noise_fraction`` of its spread: a draft for its target.

    >>> from infcalc.reference.weights import Weights
    >>> given = Weights(outside={"lm_head": np.eye(2)}, layers=())
    >>> bool((blurred(given, 0.0, seed=1).outside["lm_head"] == np.eye(2)).all())
    True
    """
    generator = np.random.default_rng(seed)

    def blur(group: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        return {
            name: array + noise_fraction * array.std() * generator.standard_normal(array.shape)
            for name, array in group.items()
        }

    return Weights(outside=blur(weights.outside), layers=tuple(blur(group) for group in weights.layers))


def _drawn(tensor: Tensor, generator: np.random.Generator, dtype: type[np.floating[Any]]) -> NDArray[np.float64]:
    copies = (tensor.copies,) if tensor.name == "norm" or tensor.name.startswith("experts.") else ()
    columns = (tensor.columns,) if tensor.columns > 1 else ()
    drawn = generator.standard_normal((*copies, tensor.rows, *columns), dtype=dtype)
    # Annotations name the default; single precision takes the same way.
    draws = cast("NDArray[np.float64]", drawn)
    # An embedding is a lookup, not a sum over its columns.
    if tensor.name == "embedding":
        return draws
    if tensor.columns == 1:
        return 1.0 + _NORM_SPREAD * draws
    draws /= math.sqrt(tensor.columns)
    return draws
