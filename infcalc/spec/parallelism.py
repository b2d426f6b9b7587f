"""How one replica is spread over GPUs."""

from __future__ import annotations

from infcalc.frozen import frozen


@frozen
class Parallelism:
    """Ranks of one replica: ``tp`` x ``pp`` x ``dp`` GPUs; experts are spread over ``ep`` of them, KV over ``dcp``.

    ``dp`` is attention data parallelism inside one replica: each dp rank holds its own sequences.
    ``ep`` 1 means expert weights follow tensor parallelism; ``dcp`` divides ``tp`` and splits a sequence's KV by
    position.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    dcp: int = 1

    @property
    def num_gpus(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.pp * self.dp


def stage_layers(num_layers: int, pp: int) -> tuple[range, ...]:
    """Return the layer indices of each pipeline stage.

    ``num_layers // pp`` each; what is left over goes one by one to the stages from the second last backwards, since the
    last stage also holds the head. Source: vLLM ``get_pp_indices``.

    >>> [len(stage) for stage in stage_layers(61, 4)], [len(stage) for stage in stage_layers(62, 4)]
    ([15, 15, 16, 15], [15, 16, 16, 15])
    """
    sizes = [num_layers // pp] * pp
    for offset in range(num_layers % pp):
        sizes[-2 - offset] += 1
    starts = [sum(sizes[:stage]) for stage in range(pp)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))
