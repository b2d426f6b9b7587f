"""What a rule is: conditions over signals, what they mean, what to do, and which change of the deployment prices it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.diagnosis.signals import Signal


class Kind(StrEnum):
    """What a finding is, in the order in which they are told."""

    MEASUREMENT = "measurement"
    """The figures themselves cannot be relied on."""
    FAULT = "fault"
    """Something that a setting, or another machine, mends."""
    LIMIT = "limit"
    """What the server is bound by: only other hardware, precision or load changes it."""
    NORMAL = "normal"
    """As fast as such a deployment is."""


class Op(StrEnum):
    """How a signal is held against a threshold."""

    AT_LEAST = ">="
    AT_MOST = "<="
    ABOVE = ">"
    BELOW = "<"

    def holds(self, value: float, threshold: float) -> bool:
        """Return whether a value passes.

        >>> Op.ABOVE.holds(1.0, 1.0), Op.AT_LEAST.holds(1.0, 1.0)
        (False, True)
        """
        match self:
            case Op.AT_LEAST:
                return value >= threshold
            case Op.AT_MOST:
                return value <= threshold
            case Op.ABOVE:
                return value > threshold
            case Op.BELOW:
                return value < threshold


class Change(StrEnum):
    """A change of deployment or load that the model can price."""

    KV_FP8 = "KV cache in FP8"
    MORE_MEMORY = "a higher memory fraction"
    MORE_SEQUENCES = "twice the sequences that may run"
    FEWER_CLIENTS = "as many clients as find room"
    TWICE_THE_GPUS = "twice the TP"
    REPLICA = "a second replica, half of the load for each"
    WEIGHTS_FP8 = "weights in FP8"
    WEIGHTS_INT4 = "weights in 4 bit"
    WEIGHTS_16 = "weights in 16 bit"
    BUDGET_RAISED = "more tokens per step"
    BUDGET_HALVED = "half the tokens per step"
    GRAPHS = "with CUDA graphs"
    SMALLER_TP = "half the TP, two replicas"
    STAGES = "pipeline stages in place of TP ranks"
    NO_DRAFTING = "without drafting"
    HALF_CACHED = "half of each prompt found in the cache"
    NO_OFFLOAD = "all weights on the GPU"


@frozen
class Condition:
    """A signal beyond a threshold, and where the threshold is from."""

    signal: Signal
    op: Op
    threshold: float
    source: str


@frozen
class Turn:
    """An option of an engine to set, or to leave out; ``value`` may name facts in braces."""

    name: str
    value: str = ""
    leave_out: bool = False


@frozen
class Remedy:
    """What to do. ``flags`` are options by engine, in its own words; ``change`` is what prices it (None: nothing)."""

    text: str
    flags: Mapping[str, tuple[Turn, ...]]
    change: Change | None = None


@frozen
class Rule:
    """A rule: it fires where all conditions of one of ``cases`` hold, and no finding of ``unless`` was made.

    ``title`` and ``cause`` may name facts in braces, which whoever evaluates fills in. A ``general`` finding is what
    others bring about: it is told after the particular ones of its kind.
    """

    symptom: str
    kind: Kind
    title: str
    cause: str
    cases: tuple[tuple[Condition, ...], ...]
    remedies: tuple[Remedy, ...]
    source: str
    unless: tuple[str, ...] = ()
    general: bool = False
