"""One setup under any share of a load: what does not depend on the share, nor on how many replicas, is made once."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.deployment import resolved
from infcalc.api.drafted_load import drafted_load
from infcalc.api.drafted_runs import drafted_run, round_machine
from infcalc.api.figures import scaled
from infcalc.api.ledger import deployment_ledger
from infcalc.api.offer import LoadKind
from infcalc.api.offering import load_for
from infcalc.api.plan_demand import DemandKind, name_of
from infcalc.api.plan_drafting import draft_of
from infcalc.api.servers import rooms_of
from infcalc.api.speed import machine_of, rate_of, run_of, site_of, times_of
from infcalc.frozen import frozen
from infcalc.planning.odds import quantile_factor
from infcalc.serving.lane import latency_of
from infcalc.serving.prefill import prefill_s
from infcalc.workload.lengths import normal_quantile

if TYPE_CHECKING:
    from infcalc.api.deployment import Ask, Deployment
    from infcalc.api.drafted_load import DraftedLoad
    from infcalc.api.drafted_runs import RoundMachine
    from infcalc.api.drafting import DraftAsk
    from infcalc.api.objectives import Objective
    from infcalc.api.offer import Figure
    from infcalc.api.offering import Load
    from infcalc.api.plan_demand import Demand
    from infcalc.api.speed import Machine, Run, Site
    from infcalc.catalog.lookup import Catalog, ModelEntry
    from infcalc.engines.pace import Order
    from infcalc.planning.nouns import Setup

_AMPLE = 2.0
"""Requests at their mean demand that a lane has room for, from which on one whole request surely fits."""
_MEAN, _MEDIAN = "mean", "p50"


@frozen
class Kept:
    """An objective with what a plan has: the value with its band, and how likely the limit is kept."""

    name: str
    quantity: str
    statistic: str
    limit_s: float
    value_s: float | None
    """None beyond saturation."""
    low_s: float | None = None
    high_s: float | None = None
    met: bool = False
    probability_fraction: float = 0.0


@frozen
class Point:
    """One replica with its share of the load; times are None where the share is more than it can answer.

    Odds are those of :func:`infcalc.api.plan_odds.judged`: until then a limit is kept or not.
    """

    ttft_s: Figure | None
    tpot_s: Figure | None
    e2e_s: Figure | None
    requests_per_s: Figure
    answer_tokens: float
    batch: float
    max_batch: float
    stable: bool
    bound_by: str
    kept: tuple[Kept, ...]
    load_probability_fraction: float = 1.0
    """How likely a rate is answered at all; clients wait, and always are."""

    @property
    def output_tokens_per_s(self) -> Figure:
        """Tokens of answers."""
        return scaled(self.requests_per_s, self.answer_tokens)

    @property
    def meets(self) -> bool:
        """Whether all objectives are met, by the values."""
        return self.stable and all(one.met for one in self.kept)

    @property
    def probability_fraction(self) -> float:
        """How likely all objectives are met: the least of them, since all rest on the same clock."""
        if not self.stable:
            return 0.0
        return min((self.load_probability_fraction, *(one.probability_fraction for one in self.kept)))


class Rig:
    """One setup; points are remembered by their share.

    Raises:
        UsageError: ranks, precisions or lengths that cannot be.

    """

    __slots__ = (
        "_asked",
        "_demand",
        "_drafted",
        "_drafting",
        "_known",
        "_latency_s",
        "_machine",
        "_own_s",
        "_room",
        "_rooms",
        "missing_bytes",
        "setup",
        "site",
    )

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        setup: Setup,
        ask: Ask,
        demand: Demand,
        catalog: Catalog,
        model_entry: ModelEntry,
        draft: DraftAsk | None = None,
    ) -> None:
        self.setup, self._demand = setup, demand
        mine = ask_of(setup, ask)
        deployment = resolved(mine, catalog, model_entry, catalog.gpu(setup.gpu))
        self.site: Site = site_of(mine, deployment, catalog)
        self._asked: Load = load_for(deployment, demand.lengths, ())
        self._machine: Machine | None = None
        self._known: dict[float, Point] = {}
        self._own_s = self._latency_s = 0.0
        drafts = draft_of(setup, draft)
        self._drafted: DraftedLoad | None = None if drafts is None else drafted_load(drafts, self.site)
        self._drafting: RoundMachine | None = None
        self._rooms = rooms_of(self.deployment, self.site.form)
        self._room, self.missing_bytes = self._fitted()

    @property
    def deployment(self) -> Deployment:
        """What is deployed, with its drafter."""
        return self.site.deployment if self._drafted is None else self._drafted.deployment

    @property
    def drafted(self) -> DraftedLoad | None:
        """How it drafts; None: not at all."""
        return self._drafted

    @property
    def prompt_tokens(self) -> float:
        """Mean of the prompts."""
        return self._asked.prompt_tokens

    @property
    def load(self) -> Load:
        """The requests as they are understood, without how many there are."""
        return self._asked

    @property
    def machine(self) -> Machine:
        """The setup with its clock, which is made when it is first asked for."""
        if self._machine is None:
            self._machine = machine_of(self.site, self._rooms)
        return self._machine

    def altered(self, *, room: float, order: Order | None = None) -> Rig:
        """Return the same setup with room for ``room`` requests, and another order of prefill and decode.

        What engines no longer are: without paging each request takes the room of the longest.
        """
        other = copy(self)
        other._room, other._known, other._own_s = room, {}, 0.0  # noqa: SLF001 - a copy of its own
        if order is not None:
            steps = self.machine.pace
            other._machine = replace(self.machine, pace=replace(steps, value=replace(steps.value, order=order)))  # noqa: SLF001
        return other

    @property
    def room(self) -> float:
        """Requests that memory holds at once, at their mean demand."""
        return self._room

    def _fitted(self) -> tuple[float, int]:
        """Return how many requests memory holds, and what is missing for one."""
        room = self._rooms.requests(self._asked.inputs, self._asked.outputs)
        if room >= _AMPLE * self.deployment.parallelism.dp:
            return room, 0
        total = self._asked.total_tokens
        book = deployment_ledger(replace(self.deployment, max_model_len=total), self.site.form, context_tokens=total)
        return room, 0 if book.fits else max(1, book.missing_bytes)

    def share(self, num_replicas: int) -> float:
        """Return what the fullest of so many replicas has of the planned load: users, or requests per second."""
        demand = self._demand
        if demand.kind is DemandKind.USERS:
            return math.ceil(demand.planned_users / num_replicas)
        return demand.planned_per_s / num_replicas

    def stated(self, num_replicas: int) -> float:
        """Return the same of the stated load, without its headroom."""
        demand = self._demand
        if demand.kind is DemandKind.USERS:
            return math.ceil(demand.num_users / num_replicas)
        return demand.requests_per_s / num_replicas

    def with_replicas(self, num_replicas: int) -> Point:
        """Return the fullest of so many replicas."""
        return self.at(self.share(num_replicas))

    def at(self, share: float) -> Point:
        """Return one replica with a share of the load: requests per second of a rate, else clients."""
        found = self._known.get(share)
        if found is None:
            found = self._known[share] = self._point(share)
        return found

    @property
    def paced(self) -> bool:
        """Whether requests come at a rate, whatever the replica does."""
        return self._demand.kind is DemandKind.RATE

    def run_at(self, share: float) -> Run:
        """Return the run of one replica with a share of the load."""
        demand = self._demand
        if self.paced:
            offer, kind = replace(demand.lengths, requests_per_s=share), LoadKind.RATE
        else:
            offer = replace(demand.lengths, concurrency=int(share), think_time_s=demand.think_time_s)
            kind = LoadKind.CONCURRENCY
        return self._run(self.machine, replace(self._asked, kind=kind, offer=offer))

    def _point(self, share: float) -> Point:
        run = self.run_at(share)
        rate = rate_of(run)
        times = times_of(run, rate)
        answer = run.asked.answer_tokens
        figures = {"ttft_s": times.ttft_s, "tpot_s": times.tpot_s if answer > 1 else None, "e2e_s": times.e2e_s}
        spread = self._scatters(run)
        return Point(
            ttft_s=figures["ttft_s"],
            tpot_s=figures["tpot_s"],
            e2e_s=figures["e2e_s"],
            requests_per_s=rate,
            answer_tokens=answer,
            batch=run.speed.num_decodes,
            max_batch=run.server.num_places,
            stable=run.speed.stable,
            bound_by=run.speed.bound_by,
            kept=tuple(_kept(one, figures, spread, answer) for one in self._demand.slo),
        )

    def _run(self, machine: Machine, load: Load) -> Run:
        if self._drafted is None:
            return run_of(machine, load, self._room)
        if self._drafting is None:
            self._drafting = round_machine(machine, self._drafted, load)
        return drafted_run(self._drafting, load, self._room)

    def _scatters(self, run: Run) -> dict[str, float]:
        """Return the squared coefficient of variation of each time over the requests, as far as means can tell.

        Waits vary as an exponential does (heavy traffic: Kingman 1961), the own prompt as prompts do. A request meets
        as many prompts of others as come at random (Poisson) while it decodes, each of which adds its time; the length
        of its answer varies as answers do.
        """
        server, asked, speed = run.server, run.asked, run.speed
        if not speed.stable:
            return {}
        if not self._own_s:
            self._own_s = prefill_s(
                server.full_clock,
                new_tokens=asked.prompt_tokens,
                cached_tokens=asked.cached_tokens,
                budget_tokens=server.budget_tokens,
            )
            self._latency_s = latency_of(server, asked, front_end=True)
        ttft_s = max(speed.ttft_s, 1e-12)
        own_s = min(self._own_s, ttft_s)
        wait_s = max(0.0, ttft_s - own_s - self._latency_s)
        of_first = wait_s**2 + own_s**2 * asked.scatter
        after = max(0.0, asked.answer_tokens - 1)
        rest_s = after * speed.tpot_s
        met = speed.requests_per_s / server.num_lanes * rest_s
        of_rest = met * self._own_s**2 * (1 + asked.scatter)
        if self._drafting is not None and after:
            # An answer takes more or fewer rounds as more or fewer drafts are accepted.
            of_rest += rest_s**2 * self._drafting.rounds.scatter / self._drafting.rounds.number_for(after)
        of_token = of_rest / rest_s**2 if rest_s > 0 else 0.0
        whole = of_first + of_rest + rest_s**2 * asked.answer_scatter
        return {
            "ttft_s": of_first / ttft_s**2,
            "tpot_s": of_token,
            "e2e_s": whole / max(speed.e2e_s, 1e-12) ** 2,
        }


def ask_of(setup: Setup, ask: Ask) -> Ask:
    """Return the ask for one setup; what ``ask`` says besides (step sizes, fractions) holds for all."""
    ranks = setup.ranks
    return replace(
        ask,
        gpus=(setup.gpu,),
        num_gpus=None,
        tp=ranks.tp,
        pp=ranks.pp,
        dp=ranks.dp,
        ep=ranks.ep,
        weights=setup.weights,
        kv_dtypes=() if setup.kv is None else (setup.kv,),
        engine=setup.engine,
    )


def _kept(objective: Objective, figures: dict[str, Figure | None], spread: dict[str, float], answer: float) -> Kept:
    name, limit = name_of(objective), objective.limit
    empty = Kept(name=name, quantity=objective.quantity, statistic=objective.statistic, limit_s=limit, value_s=None)
    figure = figures[objective.quantity]
    if figure is None:
        # An answer of one token has no time between tokens.
        alone = objective.quantity == "tpot_s" and answer <= 1
        return replace(empty, met=True, probability_fraction=1.0) if alone else empty
    factor = 1.0
    if objective.statistic != _MEAN:
        at = normal_quantile(float(objective.statistic.removeprefix("p")) / 100)
        factor = quantile_factor(spread.get(objective.quantity, 0.0), at)
    low, high = figure.low * factor, figure.high * factor
    return replace(
        empty,
        value_s=figure.value * factor,
        low_s=low,
        high_s=high,
        met=figure.value * factor <= limit,
        probability_fraction=1.0 if figure.value * factor <= limit else 0.0,
    )
