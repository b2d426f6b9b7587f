"""What a plan is chosen from: setups of one replica, and why one of them is none."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.spec.parallelism import Parallelism


class Goal(StrEnum):
    """What the best plan has most, or least, of."""

    COST = "cost"
    """Fewest USD per hour."""
    THROUGHPUT = "throughput"
    """Most tokens per second."""
    LATENCY = "latency"
    """Shortest time of a whole request."""
    GOODPUT = "goodput"
    """Most tokens within the objectives per USD."""


class Miss(StrEnum):
    """Why a setup is no plan."""

    PRICE = "no price"
    PRECISION = "precision"
    DIVISION = "division"
    MEMORY = "memory"
    LENGTH = "length"
    LOAD = "load"
    OBJECTIVE = "objective"
    BUDGET = "budget"
    GPUS = "GPUs"
    SIMULATION = "simulation"
    OUTRANKED = "outranked"
    DRAFTING = "drafting"


@frozen
class Setup:
    """One replica: on which GPUs, split how, in which precisions, by which engine.

    ``weights`` and ``kv`` are words of the command line; None is the checkpoint's own.
    """

    gpu: str
    ranks: Parallelism
    engine: str
    weights: str | None = None
    kv: str | None = None
    method: str | None = None
    """Way of drafting; None: none."""
    draft_model: str | None = None
    """The head or model that drafts, where the way needs one."""
    num_draft_tokens: int = 0
    """Drafted in a round."""

    @property
    def num_gpus(self) -> int:
        """GPUs of one replica."""
        return self.ranks.num_gpus


@frozen
class Refusal:
    """Why a setup is no plan, and by how much it missed.

    ``limit`` and ``value`` are those of ``quantity``, in the unit that its name ends with; None where nothing is
    measured. ``num_replicas`` is how many were tried at most.
    """

    setup: Setup
    kind: Miss
    reason: str
    quantity: str = ""
    limit: float | None = None
    value: float | None = None
    num_replicas: int | None = None
    change: str = ""
    """The nearest change that would make it pass, or a first step."""
    suffices: bool = False
    """The search lets it pass with the change alone; else other limits may follow."""
    optimistic: bool = False
    """At the good end of its band it would pass."""

    @property
    def miss_fraction(self) -> float | None:
        """By which part of the limit it is beyond it; None where nothing is measured."""
        if self.limit is None or self.value is None:
            return None
        return abs(self.value - self.limit) / abs(self.limit) if self.limit else None
