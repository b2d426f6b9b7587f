"""One deployment of a simulation: runs of a trace on it, and its result."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from infcalc.api.costing import rent_of
from infcalc.api.offering import limit_of
from infcalc.api.simulation_ask import router_of
from infcalc.api.simulation_drafting import compared_with, with_rounds
from infcalc.api.simulation_load import load_of, too_long
from infcalc.api.simulation_machine import machinery_of, seats_of, usd_per_s
from infcalc.api.simulation_nouns import RunResult, SimulationResult
from infcalc.api.simulation_results import outcomes_of, result_of
from infcalc.api.simulation_runs import Setting, run_of
from infcalc.frozen import frozen
from infcalc.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from infcalc.api.costing import Rent, Terms
    from infcalc.api.disaggregation import PoolsPlace
    from infcalc.api.disaggregation_ask import PoolsAsk
    from infcalc.api.drafted_load import DraftedLoad
    from infcalc.api.objectives import Outcome
    from infcalc.api.replicas import Policy
    from infcalc.api.scaling_nouns import Scaling
    from infcalc.api.simulation_ask import SimulationAsk
    from infcalc.api.simulation_load import Load
    from infcalc.api.simulation_machine import Machinery, Seats
    from infcalc.api.simulation_runs import Progress
    from infcalc.api.speed import Site
    from infcalc.simulation.gathered import Gathered
    from infcalc.simulation.timing import StepTimer
    from infcalc.workload.trace import Trace

SHARED = tuple(field.name for field in fields(RunResult))
"""What a run has, as the result of a deployment has it too."""


@frozen
class Ran:
    """One run: what went in, what it left behind, and what is read off it."""

    setting: Setting
    load: Load
    gathered: Gathered
    result: RunResult
    slo: tuple[Outcome, ...]
    plain: RunResult | None = None
    """The same requests without drafting."""


@frozen
class Place:
    """A deployment with all that its runs have in common. ``machinery`` is None where it does not fit."""

    site: Site
    asked: SimulationAsk
    terms: Terms
    rent: Rent | None
    seats: Seats
    machinery: Machinery | None
    drafted: DraftedLoad | None = None
    drafted_timer: StepTimer | None = None
    plain_seats: Seats | None = None
    """Without what a drafter takes."""
    pools: PoolsPlace | None = None
    """Where prefill and decode are apart; all else here is then that of decode."""

    @property
    def num_replicas(self) -> int:
        """How many stand behind the router; of those that come and go, how many there may be."""
        if self.pools is not None:
            return self.pools.prefill.num_replicas + self.pools.decode.num_replicas
        if self.asked.scaling is not None:
            return self.asked.scaling.num_most
        return self.asked.num_replicas or 1

    @property
    def num_lanes(self) -> int:
        """Parts of all of them that take steps on their own."""
        if self.pools is not None:
            return self.pools.prefill.num_lanes + self.pools.decode.num_lanes
        return self.num_replicas * self.seats.lanes_per_replica

    @property
    def num_gpus(self) -> int:
        """Of all replicas."""
        if self.pools is not None:
            return self.pools.num_gpus
        return self.site.deployment.parallelism.num_gpus * self.num_replicas

    @property
    def fits(self) -> bool:
        """Whether every replica holds its model and a request."""
        return not self.missing_bytes

    @property
    def missing_bytes(self) -> int:
        """What is missing per GPU."""
        return self.seats.missing_bytes if self.pools is None else self.pools.missing_bytes

    def run(self, policy: Policy, trace: Trace, progress: Progress | None, *, alone: bool = False) -> Ran:
        """Return one run; with drafting, unless it is to stand ``alone``, also what the same requests see without it.

        Raises:
            UsageError: its load lasts longer than the clock of a run goes.

        """
        try:
            return self._run(policy, trace, progress, self.drafted) if alone else self._whole(policy, trace, progress)
        except OverflowError:
            # Each request and pause is within the clock, and all of them one after the other are not.
            raise too_long() from None

    def run_whole(self, policy: Policy, trace: Trace, progress: Progress | None, *, alone: bool = False) -> Ran:
        """Return one run, for who has no use of a part of it.

        Raises:
            UsageError: as :meth:`run`.
            KeyboardInterrupt: Ctrl-C broke it off.

        """
        ran = self.run(policy, trace, progress, alone=alone)
        if ran.gathered.partial:
            raise KeyboardInterrupt
        return ran

    def _whole(self, policy: Policy, trace: Trace, progress: Progress | None) -> Ran:
        if self.drafted is None:
            return self._run(policy, trace, progress, None)
        first, second = _halves(progress)
        ran = self._run(policy, trace, first, self.drafted)
        if ran.gathered.partial:
            return ran
        plain = self._run(policy, trace, second, None)
        if plain.gathered.partial:
            # What was to stand beside it is not whole: neither is the answer.
            return replace(
                ran,
                gathered=replace(ran.gathered, partial=True),
                result=replace(ran.result, partial=True),
                plain=plain.result,
            )
        return replace(ran, result=compared_with(ran.result, plain.result), plain=plain.result)

    def _run(self, policy: Policy, trace: Trace, progress: Progress | None, drafted: DraftedLoad | None) -> Ran:
        machinery, asked = self.machinery, self.asked
        if machinery is None:
            raise AssertionError("what does not fit runs nothing")
        parallelism = self.site.deployment.parallelism
        setting = Setting(
            policy=policy,
            seating=(self.seats if drafted is not None or self.plain_seats is None else self.plain_seats).seating,
            timer=machinery.timer if drafted is None or self.drafted_timer is None else self.drafted_timer,
            front_end=machinery.front_end,
            num_lanes=self.num_lanes,
            num_locked=parallelism.dp if self.site.deployment.model.has_experts else 1,
            router=router_of(asked),
            contiguous=asked.contiguous,
            step_by_step=asked.step_by_step,
            keep_requests=asked.keep_requests,
            chance=None if drafted is None else drafted.chance(asked.load.seed or 0),
        )
        load = load_of(trace, limit_of(self.site.deployment))
        if asked.scaling is not None:
            return self._scaled(setting, load, progress)
        told = None
        if self.pools is not None:
            from infcalc.api.disaggregation import run_pools, setting_of  # noqa: PLC0415 - only with pools

            setting = setting_of(setting, self.pools)
            gathered, told = run_pools(setting, load, progress)
        else:
            gathered = run_of(setting, load, progress)
        cost = usd_per_s(self.rent, self.terms, self.num_gpus)
        result = result_of(gathered, load, setting, slo=asked.slo, usd_per_s=cost)
        if drafted is not None:
            result = with_rounds(result, gathered.rounds, drafted)
        return Ran(
            setting=setting,
            load=load,
            gathered=gathered,
            result=result if told is None else replace(result, disaggregation=told),
            slo=outcomes_of(gathered, setting, asked.slo),
        )

    def _scaled(self, setting: Setting, load: Load, progress: Progress | None) -> Ran:
        """Return a run whose replicas come and go, at the cost of those that were there."""
        from infcalc.api.scaled import run_scaled, scaled_result  # noqa: PLC0415 - only where replicas come and go

        rule, asked = self.asked.scaling, self.asked
        if rule is None:
            raise AssertionError("replicas come and go by a rule")
        num_gpus = self.site.deployment.parallelism.num_gpus
        ran = run_scaled(setting, load, rule, lanes=self.seats.lanes_per_replica, num_gpus=num_gpus, progress=progress)
        result = result_of(ran.gathered, load, ran.setting, slo=asked.slo, usd_per_s=None)
        return Ran(
            setting=ran.setting,
            load=load,
            gathered=ran.gathered,
            result=scaled_result(ran, result, usd_per_s(self.rent, self.terms, 1)),
            slo=outcomes_of(ran.gathered, ran.setting, asked.slo),
        )

    def described(self) -> SimulationResult:
        """Return the result without a run."""
        deployment, seating = self.site.deployment, self.seats.seating
        pace = None if self.machinery is None else self.machinery.pace
        hours = HOURS_PER_MONTH * self.num_gpus
        rent = None if self.machinery is None else self.rent
        return SimulationResult(
            model=deployment.model.name,
            gpu=deployment.gpu.name,
            num_gpus=deployment.parallelism.num_gpus,
            num_replicas=self.num_replicas,
            num_lanes=self.num_lanes,
            router=router_of(self.asked),
            engine=deployment.rules.engine,
            engine_version=deployment.rules.version,
            kv_dtype=self.site.form.name,
            fits=self.fits,
            missing_bytes=self.missing_bytes,
            cache_tokens=seating.cache_tokens,
            max_num_seqs=seating.max_num_seqs,
            usd_per_month=None if rent is None else rent.usd_per_hour * hours,
            usd_per_month_low=None if rent is None else rent.usd_per_hour_low * hours,
            usd_per_month_high=None if rent is None else rent.usd_per_hour_high * hours,
            step_time_low_fraction=None if pace is None else pace.low,
            step_time_high_fraction=None if pace is None else pace.high,
        )

    @staticmethod
    def filled(described: SimulationResult, ran: Ran, *, compare: tuple[RunResult, ...] = ()) -> SimulationResult:
        """Return the result with a run in it, and others beside it."""
        found = {name: getattr(ran.result, name) for name in SHARED}
        filled = replace(described, **found, slo=ran.slo, compare=compare)
        scaling = ran.result.scaling
        return filled if scaling is None else _paid_per_month(filled, scaling)


def _paid_per_month(result: SimulationResult, scaling: Scaling) -> SimulationResult:
    """Return a result with what a month costs that goes on as the run did: who is not there is not paid."""
    paid = (1 - scaling.saved_fraction) * scaling.num_peak / scaling.num_most
    whole = (result.usd_per_month, result.usd_per_month_low, result.usd_per_month_high)
    mean, low, high = (None if usd is None else usd * paid for usd in whole)
    return replace(result, usd_per_month=mean, usd_per_month_low=low, usd_per_month_high=high)


def place_of(site: Site, asked: SimulationAsk, terms: Terms, trace: Trace) -> Place:
    """Return a deployment as the requests of a trace find it."""
    if asked.pools is not None:
        return _place_of_pools(site, asked, asked.pools, terms, trace)
    mean_tokens = float((trace.input_tokens + trace.output_tokens).mean())
    limit = limit_of(site.deployment)
    mean = min(limit, max(2, round(mean_tokens)))
    drafted = None
    if asked.draft is not None:
        from infcalc.api.drafted_load import drafted_load  # noqa: PLC0415 - only with drafts

        drafted = drafted_load(asked.draft, site)
    seats = seats_of(site, asked, mean, drafted)
    machinery = None if seats.missing_bytes else machinery_of(site)
    return Place(
        site=site,
        asked=asked,
        terms=terms,
        rent=rent_of(site.deployment.gpu, terms),
        seats=seats,
        machinery=machinery,
        drafted=drafted,
        drafted_timer=drafted.timer(machinery.machine) if drafted is not None and machinery is not None else None,
        plain_seats=None if drafted is None else seats_of(site, asked, mean),
    )


def _place_of_pools(site: Site, asked: SimulationAsk, pools: PoolsAsk, terms: Terms, trace: Trace) -> Place:
    from infcalc.api.disaggregation import pools_place  # noqa: PLC0415 - only with pools

    both = pools_place(site, asked, pools, trace)
    decode = both.decode
    return Place(
        site=decode.site,
        asked=asked,
        terms=terms,
        rent=rent_of(site.deployment.gpu, terms),
        seats=decode.seats,
        machinery=None if both.missing_bytes else decode.machinery,
        pools=both,
    )


def _halves(progress: Progress | None) -> tuple[Progress | None, Progress | None]:
    """Return what takes in the progress of two runs of the same requests, one after the other, as that of one."""
    if progress is None:
        return None, None
    return (
        lambda done, total: progress(done, 2 * total),
        lambda done, total: progress(total + done, 2 * total),
    )
