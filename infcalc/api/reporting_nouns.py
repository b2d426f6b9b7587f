"""What a capacity review holds: the answers to all questions about one deployment and one load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.bounds import RooflineResult
    from infcalc.api.filling import MemoryResult
    from infcalc.api.objectives import Objective
    from infcalc.api.plan_nouns import PlanResult
    from infcalc.api.speed import SpeedResult
    from infcalc.api.sweeping import Curve
    from infcalc.spec.efficiency import Basis
    from infcalc.spec.parallelism import Parallelism


@frozen
class BandLine:
    """How far measurements lie from what is estimated: eight of ten between ``low_factor`` and ``high_factor`` of it.

    ``drawn_from`` is the class of measured runs that the factors are of, the narrowest that enough was measured of.
    """

    quantity: str
    basis: Basis
    drawn_from: str
    factor_low: float
    factor_high: float


@frozen
class Rerun:
    """A command that gives a part of the report again."""

    part: str
    command: str


@frozen
class ReportResult:
    """One deployment under one load, from memory to price; each part is the result of the command of its name.

    ``as_deployed`` is how many such replicas the load takes, ``estimate`` the fullest of them with its share of the
    load (one with the whole load, where no number of them will do), ``curve`` the sweep of one replica (None where the
    model does not fit), and ``plan`` what serves the load best of all on offer.
    """

    date: str
    """The day that prices are held against."""
    version: str
    """Of infcalc."""
    load: str
    """The load in words."""
    share_per_replica: float
    """Users, or requests per second, of ``estimate``."""
    limits: str
    """What the load must keep to, as ``--slo`` writes it."""
    slo: tuple[Objective, ...]
    """The same, each limit by itself."""
    verdict: tuple[str, ...]
    """Two sentences: the deployment, and the best plan."""
    ranks: Parallelism
    """How the GPUs of a replica are split."""
    memory: MemoryResult
    roofline: RooflineResult
    estimate: SpeedResult
    curve: Curve | None
    swept: str
    """What the curve is of, as ``--sweep`` takes it."""
    as_deployed: PlanResult
    plan: PlanResult
    bands: tuple[BandLine, ...]
    reruns: tuple[Rerun, ...] = ()
