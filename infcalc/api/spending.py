"""What a load costs: tokens, the month, energy, an API instead, and a day whose load rises and falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.costing import Costs, Rent, Terms, costs_of, figure_of, rent_of, spread_of
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.planning.money import usd_per_month
from infcalc.planning.power import idle_watt, kwh_per_million, mean_watt
from infcalc.planning.spread import Spread, exact, scaled, total
from infcalc.spec.efficiency import Basis

if TYPE_CHECKING:
    from infcalc.api.offer import Figure
    from infcalc.planning.autoscaling import Bill, Scaling
    from infcalc.planning.break_even import Wins
    from infcalc.planning.money import Traffic
    from infcalc.spec.hardware import Gpu
    from infcalc.workload.day_profile import DayProfile, Unit

_MOST_STARTUP_S = 86_400.0


@frozen
class ProfileAsk:
    """A load over the day: ``file`` (a table of hours, see :mod:`infcalc.workload.day_profile`).

    ``peak_per_s`` is the requests/s that fraction 1 stands for.
    """

    file: str
    peak_per_s: float | None = None
    startup_s: float | None = None
    num_least_replicas: int | None = None


@frozen
class Day:
    """A profile that was read, and how replicas follow it."""

    profile: DayProfile
    peak_per_s: float | None
    scaling: Scaling


@frozen
class FullUse:
    """Price and energy of a million tokens where all paid hours are used; by names of their own, for gates."""

    full_usd_per_million_output_tokens: Figure
    full_usd_per_million_input_tokens: Figure
    full_usd_per_million_cached_tokens: Figure | None
    full_usd_per_million_blended_tokens: Figure
    full_usd_per_million_total_tokens: Figure
    full_kwh_per_million_output_tokens: Figure | None


@frozen
class AgainstApi:
    """Where serving the model costs as much as an API: :class:`infcalc.planning.break_even.BreakEven` with bands.

    ``capacity_fraction`` is the utilisation there: of the load of the estimate in every hour.
    """

    wins: Wins
    api_request_usd: float
    api_usd_per_million_output_tokens: float
    capacity_fraction: Figure | None
    requests_per_month: Figure | None
    tokens_per_month: Figure | None
    output_tokens_per_month: Figure | None


@frozen
class DayBill:
    """What the profile costs: :class:`infcalc.planning.autoscaling.Bill` with bands, and its levels.

    ``starts_s`` and ``levels`` are those of the profile, in ``unit``; ``num_replicas`` serve each. ``capacity`` of one
    replica is in requests/s or users.
    """

    unit: Unit
    period_s: float
    capacity: Figure
    starts_s: tuple[float, ...]
    levels: tuple[float, ...]
    num_replicas: tuple[int, ...]
    num_peak_replicas: int
    num_mean_replicas: float
    num_starts: int
    fixed_usd_per_month: Figure
    scaled_usd_per_month: Figure
    fixed_usd_per_day: Figure
    scaled_usd_per_day: Figure
    saved_fraction: float
    fixed_utilization_fraction: float
    scaled_utilization_fraction: float


@frozen
class Use:
    """How a replica is used at full load: what it gives, and how its device time divides.

    ``users`` are those it was asked to serve at once; None where none were named.
    """

    requests_per_s: Figure
    traffic: Traffic
    cached_tokens: float
    users: float | None


@frozen
class Spending:
    """All that is known of the cost of a load on one replica; without a price only its energy."""

    rent: Rent | None
    usd_per_month: Figure | None = None
    costs: Costs | None = None
    kwh_per_million_output_tokens: Figure | None = None
    at_full: FullUse | None = None
    break_even: AgainstApi | None = None
    bill: DayBill | None = None


def day_of_profile(asked: ProfileAsk | None) -> Day | None:
    """Return the profile that was asked for; None where none was.

    Raises:
        FileProblem: the file cannot be read.
        ProfileError: faults in it, all of them with their lines.
        UsageError: a start-up time, a peak or a number of replicas that cannot be.

    """
    if asked is None:
        return None
    startup_s = 0.0 if asked.startup_s is None else asked.startup_s
    least = 1 if asked.num_least_replicas is None else asked.num_least_replicas
    if not 0 <= startup_s <= _MOST_STARTUP_S:
        raise UsageError(f"{startup_s:g} s is out of range", place="--start-up", hint="0 to a day, such as 5min")
    if least < 0:
        raise UsageError(f"{least} is out of range", place="--min-replicas", hint="a whole number, 0 or more")
    from infcalc.files import read_text  # noqa: PLC0415 - only with a profile
    from infcalc.planning.autoscaling import Scaling  # noqa: PLC0415
    from infcalc.workload.day_profile import Unit, read_profile  # noqa: PLC0415

    profile = read_profile(read_text(asked.file), asked.file)
    if (profile.unit is Unit.FRACTION) != (asked.peak_per_s is not None):
        problem = (
            "a profile in fractions of a peak, and no peak"
            if asked.peak_per_s is None
            else f"a peak, and a profile in {profile.unit}"
        )
        raise UsageError(problem, place="--peak", hint="give the requests/s that fraction 1 stands for, with fractions")
    if asked.peak_per_s is not None and not asked.peak_per_s > 0:
        raise UsageError(f"{asked.peak_per_s:g} is out of range", place="--peak", hint="requests/s above 0")
    return Day(
        profile=profile,
        peak_per_s=asked.peak_per_s,
        scaling=Scaling(startup_s=startup_s, num_least_replicas=least),
    )


def spending_of(gpu: Gpu, num_gpus: int, use: Use, terms: Terms, day: Day | None = None) -> Spending:
    """Return what a load costs that ``num_gpus`` serve.

    Raises:
        UsageError: the power of own hardware is not known, or the profile does not go with the load.

    """
    share, used = use.traffic.prefill_fraction, terms.utilization_fraction
    basis = use.requests_per_s.basis
    energy = _energy(gpu, num_gpus, use, terms, used)
    rent = rent_of(gpu, terms, prefill_fraction=share)
    if rent is None:
        return Spending(rent=None, kwh_per_million_output_tokens=energy)
    hour = scaled(rent.spread, num_gpus)
    full = _hour(gpu, num_gpus, terms, share, 1.0)
    return Spending(
        rent=rent,
        usd_per_month=figure_of(usd_per_month(hour), basis),
        costs=costs_of(hour, basis=basis, traffic=use.traffic, utilization_fraction=used),
        kwh_per_million_output_tokens=energy,
        at_full=_at_full(full, use, _energy(gpu, num_gpus, use, terms, 1.0)),
        break_even=_against_api(_hour(gpu, num_gpus, terms, share, 0.0), full, use, terms),
        bill=None if day is None else _day_bill(day, hour, use),
    )


def _hour(gpu: Gpu, num_gpus: int, terms: Terms, share: float, used: float) -> Spread:
    rent = rent_of(gpu, terms, prefill_fraction=share, utilization_fraction=used)
    if rent is None:
        raise AssertionError
    return scaled(rent.spread, num_gpus)


def energy_of(gpu: Gpu, num_gpus: int, use: Use, terms: Terms, *, num_idle_gpus: int = 0) -> Figure | None:
    """Return kWh per million output tokens of GPUs that serve a load, and of others that stand by.

    None where it is not known what a board draws.
    """
    return _energy(gpu, num_gpus, use, terms, terms.utilization_fraction, num_idle_gpus=num_idle_gpus)


def _energy(gpu: Gpu, num_gpus: int, use: Use, terms: Terms, used: float, *, num_idle_gpus: int = 0) -> Figure | None:
    if gpu.tdp_watt is None:
        return None
    pue = 1.0 if terms.purchase is None else terms.purchase.pue
    watt = total(
        scaled(mean_watt(gpu.tdp_watt, use.traffic.prefill_fraction, used), num_gpus * pue),
        scaled(idle_watt(gpu.tdp_watt), num_idle_gpus * pue),
    )
    found = kwh_per_million(watt, use.traffic.output_tokens_per_s, utilization_fraction=used)
    # Power was measured on two parts with single GEMMs: it is nowhere better than a model.
    uncalibrated = use.requests_per_s.basis is Basis.UNCALIBRATED
    return figure_of(found, Basis.UNCALIBRATED if uncalibrated else Basis.MODELLED)


def _at_full(hour: Spread, use: Use, energy: Figure | None) -> FullUse:
    costs = costs_of(hour, basis=use.requests_per_s.basis, traffic=use.traffic)
    return FullUse(
        full_usd_per_million_output_tokens=costs.output,
        full_usd_per_million_input_tokens=costs.input,
        full_usd_per_million_cached_tokens=costs.cached,
        full_usd_per_million_blended_tokens=costs.blended,
        full_usd_per_million_total_tokens=costs.total,
        full_kwh_per_million_output_tokens=energy,
    )


def _against_api(idle: Spread, full: Spread, use: Use, terms: Terms) -> AgainstApi | None:
    if terms.api is None:
        return None
    from infcalc.planning.break_even import Served, break_even  # noqa: PLC0415 - only where there is an API

    served = Served(
        idle_usd_per_hour=idle,
        full_usd_per_hour=full,
        requests_per_s=spread_of(use.requests_per_s),
        prompt_tokens=use.traffic.prompt_tokens,
        cached_tokens=use.cached_tokens,
        answer_tokens=use.traffic.answer_tokens,
    )
    found, basis = break_even(terms.api, served), use.requests_per_s.basis

    def banded(spread: Spread | None) -> Figure | None:
        return None if spread is None else figure_of(spread, basis)

    return AgainstApi(
        wins=found.wins,
        api_request_usd=found.api_request_usd,
        api_usd_per_million_output_tokens=found.api_usd_per_million_output_tokens,
        capacity_fraction=banded(found.utilization_fraction),
        requests_per_month=banded(found.requests_per_month),
        tokens_per_month=banded(found.tokens_per_month),
        output_tokens_per_month=banded(found.output_tokens_per_month),
    )


def _day_bill(day: Day, hour: Spread, use: Use) -> DayBill:
    from infcalc.planning.autoscaling import bill_of  # noqa: PLC0415 - only with a profile
    from infcalc.workload.day_profile import Unit  # noqa: PLC0415

    profile, basis = day.profile, use.requests_per_s.basis
    capacity = spread_of(use.requests_per_s)
    if profile.unit is Unit.USERS:
        if use.users is None:
            raise UsageError(
                "a profile in users, and a load without", place="--profile", hint="give --users or --concurrency too"
            )
        capacity = exact(use.users)
    found = bill_of(
        profile, capacity=capacity, usd_per_hour=hour, scaling=day.scaling, demand_at_one=day.peak_per_s or 1.0
    )
    return _shown(found, profile, figure_of(capacity, basis), basis)


_DAYS_PER_MONTH = 365 / 12


def _shown(bill: Bill, profile: DayProfile, capacity: Figure, basis: Basis) -> DayBill:
    return DayBill(
        unit=profile.unit,
        period_s=profile.period_s,
        capacity=capacity,
        starts_s=profile.starts_s,
        levels=profile.levels,
        num_replicas=bill.num_replicas,
        num_peak_replicas=bill.num_peak_replicas,
        num_mean_replicas=bill.num_mean_replicas,
        num_starts=bill.num_starts,
        fixed_usd_per_month=figure_of(bill.month_fixed_usd, basis),
        scaled_usd_per_month=figure_of(bill.month_scaled_usd, basis),
        fixed_usd_per_day=figure_of(scaled(bill.month_fixed_usd, 1 / _DAYS_PER_MONTH), basis),
        scaled_usd_per_day=figure_of(scaled(bill.month_scaled_usd, 1 / _DAYS_PER_MONTH), basis),
        saved_fraction=bill.saved_fraction,
        fixed_utilization_fraction=bill.fixed_utilization_fraction,
        scaled_utilization_fraction=bill.scaled_utilization_fraction,
    )


__all__ = [
    "AgainstApi",
    "Day",
    "DayBill",
    "FullUse",
    "ProfileAsk",
    "Spending",
    "Use",
    "day_of_profile",
    "energy_of",
    "spending_of",
]
