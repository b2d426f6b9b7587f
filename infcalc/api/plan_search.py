"""The search: every setup with the number of replicas that serves the goal best, over all cores, and the rejected."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.api.costing import rent_of
from infcalc.api.figures import scaled
from infcalc.api.offer import Figure
from infcalc.api.plan_demand import DemandKind
from infcalc.api.plan_refusals import refused, unfit
from infcalc.api.plan_rig import Rig
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.planning.nouns import Goal, Miss, Refusal
from infcalc.planning.replicas import most_kept, shares
from infcalc.planning.search import best_number, order_of
from infcalc.spec.efficiency import Basis

if TYPE_CHECKING:
    from infcalc.api.costing import Rent, Terms
    from infcalc.api.deployment import Ask
    from infcalc.api.drafting import DraftAsk
    from infcalc.api.plan_demand import Demand
    from infcalc.api.plan_rig import Kept, Point
    from infcalc.catalog.lookup import Catalog, ModelEntry
    from infcalc.planning.nouns import Setup

MOST_REPLICAS = 4096
_TOO_SLOW = 1e30


@frozen
class Field:
    """What every setup is weighed by."""

    goal: Goal
    demand: Demand
    ask: Ask
    terms: Terms
    catalog: Catalog
    model_entry: ModelEntry
    most_gpus: int | None
    most_usd_per_hour: float | None
    num_spare: int
    draft: DraftAsk | None = None
    """How those setups draft that do."""

    def rig(self, setup: Setup) -> Rig:
        """Return a setup that can be asked for any share of the load."""
        return Rig(setup, self.ask, self.demand, self.catalog, self.model_entry, self.draft)

    def rent(self, setup: Setup) -> Rent | None:
        """Return the price of one of its GPUs."""
        return rent_of(self.catalog.gpu(setup.gpu).gpu, self.terms)

    def least_usd_per_hour(self, setup: Setup) -> float:
        """Return what the fewest replicas of a setup cost: one, and those that are spare; nothing where unpriced."""
        rent = self.rent(setup)
        return 0.0 if rent is None else rent.usd_per_hour * setup.num_gpus * (1 + self.num_spare)

    def most_useful(self) -> int:
        """Return the most replicas that may differ: of users one each."""
        demand = self.demand
        return demand.planned_users if demand.kind is DemandKind.USERS else MOST_REPLICAS

    def most_affordable(self, setup: Setup) -> int:
        """Return the most replicas that GPUs and budget leave for the load, with the spare ones besides."""
        caps = []
        if self.most_gpus is not None:
            caps.append(self.most_gpus // setup.num_gpus)
        rent = self.rent(setup)
        if self.most_usd_per_hour is not None and rent is not None:
            caps.append(math.floor(self.most_usd_per_hour / (rent.usd_per_hour * setup.num_gpus) + 1e-9))
        return min(caps) - self.num_spare if caps else MOST_REPLICAS


@frozen
class Found:
    """A setup with so many replicas that keeps all limits.

    ``num_needed`` of them serve the load; the others are spare. ``point`` is the fullest replica at the stated load,
    ``kept`` are the objectives at the load with its headroom. ``least_s`` is the time of a request with one replica for
    each user, or nearly nothing to do: no number of replicas is quicker.
    """

    setup: Setup
    num_needed: int
    num_replicas: int
    share: float
    """Of the fullest replica: clients, or requests per second."""
    point: Point
    kept: tuple[Kept, ...]
    requests_per_s: Figure
    usd_per_hour: Figure | None
    least_s: float

    @property
    def num_gpus(self) -> int:
        """All GPUs, those of spare replicas too."""
        return self.num_replicas * self.setup.num_gpus

    @property
    def tokens_per_s(self) -> Figure:
        """Tokens of answers per second of all replicas."""
        return scaled(self.requests_per_s, self.point.answer_tokens)

    @property
    def delay_s(self) -> float:
        """Mean time of a whole request."""
        return self.point.e2e_s.value if self.point.e2e_s is not None else math.inf

    def order(self, goal: Goal) -> tuple[float, float, float]:
        """Return what plans are sorted by."""
        return order_of(
            goal,
            usd_per_hour=math.inf if self.usd_per_hour is None else self.usd_per_hour.value,
            tokens_per_s=self.tokens_per_s.value,
            delay_s=self.delay_s,
        )


@frozen
class Weighed:
    """What became of one setup, and how many numbers of replicas it stands for."""

    found: Found | None
    refusal: Refusal | None
    num_candidates: int


def weigh(field: Field, setup: Setup) -> Weighed:
    """Return the best number of replicas of one setup, or why there is none."""
    most = min(field.most_affordable(setup), field.most_useful())
    number = max(1, most)
    try:
        rig = field.rig(setup)
    except UsageError as problem:
        # What an engine or a model does not admit: other ranks may be.
        kinds = {"--input-tokens": Miss.LENGTH, "--draft-model": Miss.DRAFTING}
        kind = kinds.get(problem.place or "", Miss.DIVISION)
        refusal = Refusal(setup=setup, kind=kind, reason=problem.message, change=problem.hint or "")
        return Weighed(found=None, refusal=refusal, num_candidates=number)
    if rig.missing_bytes:
        return Weighed(found=None, refusal=unfit(rig), num_candidates=number)
    if most < 1:
        return Weighed(found=None, refusal=refused(field, rig, most), num_candidates=1)
    if field.demand.kind is DemandKind.CAPACITY:
        found = _at_capacity(field, rig, most)
        why = None if found is not None else refused(field, rig, most)
        return Weighed(found=found, refusal=why, num_candidates=number)
    best = best_number(
        field.goal,
        kept=lambda number: rig.with_replicas(number).meets,
        delay_s=lambda number: _delay_s(rig.at(rig.stated(number))),
        most=most,
        paced=field.demand.kind is DemandKind.RATE,
    )
    if best is not None:
        return Weighed(found=found_with(field, rig, best), refusal=None, num_candidates=number)
    return Weighed(found=None, refusal=refused(field, rig, most), num_candidates=number)


def found_with(field: Field, rig: Rig, number: int) -> Found:
    """Return a setup with so many replicas, besides those that are spare."""
    demand, setup = field.demand, rig.setup
    planned = rig.with_replicas(number)
    if demand.kind is DemandKind.USERS:
        groups = [(count, rig.at(users)) for count, users in shares(demand.num_users, number)]
        rate = _sum([scaled(point.requests_per_s, count) for count, point in groups])
        least = rig.at(1)
    else:
        rate = scaled(rig.at(rig.stated(number)).requests_per_s, number)
        least = rig.at(demand.planned_per_s / MOST_REPLICAS)
    share = rig.stated(number)
    return Found(
        setup=setup,
        num_needed=number,
        num_replicas=number + field.num_spare,
        share=share,
        point=rig.at(share),
        kept=planned.kept,
        requests_per_s=rate,
        usd_per_hour=_usd_per_hour(field, setup, number + field.num_spare),
        least_s=_delay_s(least),
    )


def _at_capacity(field: Field, rig: Rig, most: int) -> Found | None:
    """Return a setup each replica of which has as many clients as keep all limits."""
    first = rig.at(1)
    if not first.meets:
        return None
    clients = most_kept(lambda number: rig.at(number).meets, 1, max(1, math.floor(first.max_batch)))
    if clients is None:
        return None
    number = most if field.goal is Goal.THROUGHPUT and most < MOST_REPLICAS else 1
    point = rig.at(clients)
    return Found(
        setup=rig.setup,
        num_needed=number,
        num_replicas=number + field.num_spare,
        share=clients,
        point=point,
        kept=point.kept,
        requests_per_s=scaled(point.requests_per_s, number),
        usd_per_hour=_usd_per_hour(field, rig.setup, number + field.num_spare),
        least_s=_delay_s(first),
    )


def _usd_per_hour(field: Field, setup: Setup, number: int) -> Figure | None:
    rent = field.rent(setup)
    if rent is None:
        return None
    gpus = number * setup.num_gpus
    return Figure(
        value=rent.usd_per_hour * gpus,
        low=rent.usd_per_hour_low * gpus,
        high=rent.usd_per_hour_high * gpus,
        basis=Basis.CALIBRATED,
    )


def _sum(figures: list[Figure]) -> Figure:
    return Figure(
        value=math.fsum(one.value for one in figures),
        low=math.fsum(one.low for one in figures),
        high=math.fsum(one.high for one in figures),
        basis=figures[0].basis,
    )


def _delay_s(point: Point) -> float:
    return point.e2e_s.value if point.e2e_s is not None else _TOO_SLOW
