"""How one replica is spread over GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Ranks of one replica: ``tp`` x ``pp`` x ``dp`` GPUs; experts are spread over ``ep`` of them, KV over ``dcp``.

    ``dp`` is attention data parallelism inside one replica: each dp rank holds its own sequences.
    ``ep`` 1 means expert weights follow tensor parallelism; ``dcp`` divides ``tp`` and splits a sequence's KV by position.
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
