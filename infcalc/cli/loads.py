"""From parsed options to a load, its cost, a sweep, measurements and objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.api.costing import Terms
from infcalc.api.offer import Offer
from infcalc.cli.day import today
from infcalc.cli.given import listed, real_numbers, seconds, single, whole_numbers
from infcalc.errors import UsageError
from infcalc.units import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from infcalc.api.batching_requests import BatchingAsk
    from infcalc.api.disaggregation_ask import PoolsAsk
    from infcalc.api.drafting import DraftAsk
    from infcalc.api.executing import Executor
    from infcalc.api.judging import Measurement
    from infcalc.api.objectives import Objective
    from infcalc.api.plan_ask import PlanAsk
    from infcalc.api.simulation_ask import SimulationAsk
    from infcalc.api.spending import ProfileAsk
    from infcalc.api.sweeping import Sweep, Variable
    from infcalc.api.workload_ask import WorkloadAsk
    from infcalc.planning.break_even import ApiPrice
    from infcalc.planning.owning import Purchase
    from infcalc.simulation.scaling import ScalingRule


def offer_from(options: Mapping[str, Any]) -> Offer:
    """Return the load of a command's options.

    Raises:
        UsageError: users beside a concurrency, or a number that is none.

    """
    users, clients = options.get("users"), options.get("concurrency")
    if users is not None and clients is not None:
        raise UsageError(
            "both --users and --concurrency", place="--users", hint="users may think between requests; give one"
        )
    if users is not None and users < 1:
        raise UsageError(f"{users} is out of range", place="--users", hint="a whole number from 1")
    return Offer(
        input_tokens=options.get("input_tokens"),
        output_tokens=options.get("output_tokens"),
        batch=single(whole_numbers(options.get("batch"), "--batch"), "--batch"),
        concurrency=users if clients is None else clients,
        requests_per_s=options.get("rate"),
        num_requests=options.get("num_requests"),
        # Users of a sweep come with its values.
        think_time_s=seconds(options.get("think_time"), "--think-time") or 0.0,
        prefix_hit_fraction=options.get("prefix_hit") or 0.0,
        clients_option="--concurrency" if users is None else "--users",
    )


def batching_from(options: Mapping[str, Any]) -> BatchingAsk:
    """Return the requests, slots and policies of a command's options."""
    from infcalc.api.batching_requests import BatchingAsk  # noqa: PLC0415 - only where requests are drawn

    return BatchingAsk(
        num_requests=options.get("requests"),
        num_slots=options.get("slots"),
        input_tokens=options.get("input_tokens"),
        output_tokens=options.get("output_tokens"),
        requests_per_s=options.get("rate"),
        policies=listed(options.get("policy"), "--policy"),
        seed=options.get("seed"),
        unit_steps=options.get("unit_steps", False),
    )


def trace_from(options: Mapping[str, Any]) -> WorkloadAsk:
    """Return the trace of a command's options.

    Raises:
        UsageError: users beside a concurrency, or a time that is none.

    """
    from infcalc.api.workload_ask import WorkloadAsk  # noqa: PLC0415 - only for traces

    users, clients = options.get("users"), options.get("concurrency")
    if users is not None and clients is not None:
        raise UsageError("both --users and --concurrency", place="--users", hint="they mean the same here; give one")
    if users is not None and users < 1:
        raise UsageError(f"{users} is out of range", place="--users", hint="a whole number from 1")
    return WorkloadAsk(
        file=options.get("file"),
        trace_format=options.get("trace_format"),
        arrivals=options.get("arrivals"),
        requests_per_s=options.get("rate"),
        burstiness=options.get("burstiness"),
        num_clients=users if clients is None else clients,
        clients_option="--concurrency" if users is None else "--users",
        think_s=seconds(options.get("think_time"), "--think-time"),
        input_tokens=options.get("input_tokens"),
        output_tokens=options.get("output_tokens"),
        num_requests=options.get("num_requests"),
        shared_prefix=options.get("shared_prefix"),
        turns=options.get("turns"),
        speedup=options.get("speedup"),
        seed=options.get("seed"),
        save_trace=options.get("save_trace"),
    )


def simulation_from(options: Mapping[str, Any]) -> SimulationAsk:
    """Return load, policies, replicas and limits of a command's options.

    Raises:
        UsageError: a load, a sweep or an objective that is none.

    """
    from infcalc.api.simulation_ask import SWEPT, SimulationAsk  # noqa: PLC0415 - only where something is simulated

    return SimulationAsk(
        load=trace_from(options),
        policy=options.get("policy"),
        compared=tuple(dict.fromkeys(listed(options.get("compare"), "--compare"))),
        num_replicas=options.get("replicas"),
        router=options.get("router"),
        prefix_caching=not options.get("no_prefix_caching"),
        contiguous=options.get("contiguous", False),
        num_slots=options.get("slots"),
        step_by_step=options.get("step_by_step", False),
        slo=slo_from(options),
        sweep=sweep_from(options, SWEPT),
        save_requests=options.get("save_requests"),
        pools=_pools_from(options),
        scaling=_scaling_from(options),
        keep_requests=not options.get("no_requests"),
        draft=draft_from(options),
    )


def draft_from(options: Mapping[str, Any]) -> DraftAsk | None:
    """Return how answers are drafted; None where nothing is said of it.

    Raises:
        UsageError: numbers that are none.

    """
    names = ("method", "draft_model", "num_draft_tokens", "acceptance", "accepted", "drafted")
    if all(options.get(name) is None for name in names):
        return None
    from infcalc.api.drafting import DraftAsk  # noqa: PLC0415 - only with drafts

    return DraftAsk(
        methods=listed(options.get("method"), "--method"),
        draft_model=options.get("draft_model"),
        num_draft_tokens=options.get("num_draft_tokens"),
        acceptance=real_numbers(options.get("acceptance"), "--acceptance"),
        accepted_tokens=whole_numbers(options.get("accepted"), "--accepted"),
        num_drafts=options.get("drafted"),
    )


def _pools_from(options: Mapping[str, Any]) -> PoolsAsk | None:
    given = {
        "num_prefill": options.get("prefill_replicas"),
        "num_decode": options.get("decode_replicas"),
        "prefill_tp": options.get("prefill_tp"),
        "decode_tp": options.get("decode_tp"),
        "link": options.get("kv_link"),
        "beside": options.get("aggregated"),
    }
    if all(value is None for value in given.values()):
        return None
    from infcalc.api.disaggregation_ask import pools_of  # noqa: PLC0415 - only with pools

    return pools_of(**given)


def _scaling_from(options: Mapping[str, Any]) -> ScalingRule | None:
    text = options.get("autoscale")
    if text is None:
        return None
    from infcalc.api.scaling_ask import parse_autoscale  # noqa: PLC0415 - only where replicas come and go

    return parse_autoscale(text)


def executor_from(options: Mapping[str, Any]) -> Executor | None:
    """Return who makes the runs of a sweep or a comparison; None without either.

    Raises:
        UsageError: an executor that is none, or with nothing to do.

    """
    from infcalc.api.executors import ExecutorAsk, executor_of  # noqa: PLC0415 - only where something is simulated

    several = options.get("sweep") is not None or len(listed(options.get("compare"), "--compare")) > 1
    asked = ExecutorAsk(
        kind=options.get("executor"), num_workers=options.get("workers"), scheduler=options.get("scheduler")
    )
    return executor_of(asked, several=several)


def plan_from(options: Mapping[str, Any]) -> PlanAsk:
    """Return load, limits and choice of a plan.

    Raises:
        UsageError: a number, a time, a budget or an objective that is none.

    """
    from infcalc.api import plan_ask as asking  # noqa: PLC0415 - only where something is planned

    texts = {name: options.get(name) for name in ("budget", "headroom", "spare")}
    return asking.PlanAsk(
        goal=options.get("objective") or "cost",
        num_users=options.get("users"),
        think_time_s=seconds(options.get("think_time"), "--think-time") or 0.0,
        requests_per_s=options.get("rate"),
        input_tokens=options.get("input_tokens"),
        output_tokens=options.get("output_tokens"),
        prefix_hit_fraction=options.get("prefix_hit"),
        file=options.get("file"),
        slo=slo_from(options),
        gpus_from=listed(options.get("gpus_from"), "--gpus-from"),
        engines_from=listed(options.get("engines_from"), "--engines-from"),
        allow=listed(options.get("allow"), "--allow"),
        draft=draft_from(options),
        usd_per_hour=None if texts["budget"] is None else asking.parse_budget(texts["budget"]),
        headroom_fraction=0.0 if texts["headroom"] is None else asking.parse_share(texts["headroom"], "--headroom"),
        num_spare=0 if texts["spare"] is None else asking.parse_spare(texts["spare"]),
        max_gpus=options.get("max_gpus"),
        num_confirmed=5 if options.get("confirm") is None else options["confirm"],
        num_shown=10 if options.get("top") is None else options["top"],
        from_naive=options.get("from_naive", False),
        seed=options.get("seed") or 0,
    )


def terms_from(options: Mapping[str, Any]) -> Terms:
    """Return prices, utilisation, own hardware and the API to compare with; prices are held against this day.

    Raises:
        UsageError: a price that is none, or years and power of hardware that nobody bought.

    """
    share = options.get("utilization")
    plain, named = _prices(listed(options.get("price"), "--price"))
    return Terms(
        usd_per_hour=plain,
        gpu_prices_usd=named,
        utilization_fraction=1.0 if share is None else share,
        purchase=_purchase(options),
        api=_api_price(options.get("api_price")),
        today=today(),
    )


def _prices(texts: tuple[str, ...]) -> tuple[float | None, tuple[tuple[str, float], ...]]:
    """Return the price of any GPU, and those by name."""
    plain: list[float] = []
    named: list[tuple[str, float]] = []
    for text in texts:
        name, mark, usd = text.rpartition("=")
        if not mark:
            plain.append(_price(text))
        elif name.strip():
            named.append((name.strip(), _price(usd)))
        else:
            raise UsageError(f"{text!r} names no GPU", place="--price", hint="write h100=2.49")
    if len(plain) > 1:
        raise UsageError(f"{len(plain)} prices without a GPU", place="--price", hint="write h100=2.49 for each")
    return (plain[0] if plain else None), tuple(named)


def _price(text: str) -> float:
    plain = text.strip().removeprefix("$").removesuffix("/h").removesuffix("USD").strip()
    try:
        return parse_quantity(f"{plain} USD/h", "usd_per_hour")
    except ValueError:
        hint = "write 2.5, 2.5 USD/h or h100=2.49"
        raise UsageError(f"{text!r} is not a price", place="--price", hint=hint) from None


_OWNING = ("years", "residual", "power_price", "pue")


def _purchase(options: Mapping[str, Any]) -> Purchase | None:
    capex = options.get("capex")
    given = {name: options[name] for name in _OWNING if options.get(name) is not None}
    if capex is None:
        if given:
            flag = f"--{next(iter(given))}".replace("_", "-")
            raise UsageError(f"{flag} without --capex", place=flag, hint="give --capex USD per GPU of own hardware")
        return None
    from infcalc.planning.owning import YEAR_S, Purchase  # noqa: PLC0415 - only where something is owned

    return Purchase(
        gpu_usd=capex,
        life_s=given.get("years", 3.0) * YEAR_S,
        residual_fraction=given.get("residual", 0.0),
        usd_per_kwh=given.get("power_price", 0.0),
        pue=given.get("pue", 1.0),
    )


_API_KEYS = {
    "in": "input_usd",
    "input": "input_usd",
    "out": "output_usd",
    "output": "output_usd",
    "cached": "cached_usd",
    "cache": "cached_usd",
}


def _api_price(text: str | None) -> ApiPrice | None:
    if text is None:
        return None
    found: dict[str, float] = {}
    hint = "write in=0.5,out=1.5 in USD per million tokens; cached=0.1 is optional"
    for part in listed((text,), "--api-price"):
        key, _, usd = part.partition("=")
        name = _API_KEYS.get(key.strip().lower())
        if name is None or name in found:
            problem = f"{key.strip()!r} is no kind of token" if name is None else f"{key.strip()!r} is given twice"
            raise UsageError(problem, place="--api-price", hint=hint)
        try:
            found[name] = float(usd.strip().removeprefix("$"))
        except ValueError:
            raise UsageError(f"{usd.strip()!r} is not a price", place="--api-price", hint=hint) from None
    if not {"input_usd", "output_usd"} <= set(found):
        raise UsageError(f"{text!r} does not price both prompt and answer", place="--api-price", hint=hint)
    from infcalc.planning.break_even import ApiPrice  # noqa: PLC0415 - only where there is an API

    return ApiPrice(**found)


def profile_from(options: Mapping[str, Any]) -> ProfileAsk | None:
    """Return the load over the day; None where none was given.

    Raises:
        UsageError: how replicas follow it, without a profile.

    """
    file = options.get("profile")
    if file is None:
        given = [name for name in ("peak", "start_up", "min_replicas") if options.get(name) is not None]
        if given:
            flag = f"--{given[0]}".replace("_", "-")
            raise UsageError(f"{flag} without --profile", place=flag, hint="give --profile FILE.csv")
        return None
    from infcalc.api.spending import ProfileAsk  # noqa: PLC0415 - only with a profile

    return ProfileAsk(
        file=file,
        peak_per_s=options.get("peak"),
        startup_s=seconds(options.get("start_up"), "--start-up"),
        num_least_replicas=options.get("min_replicas"),
    )


def sweep_from(options: Mapping[str, Any], variables: Collection[Variable] = ()) -> Sweep | None:
    """Return what is swept, one of ``variables`` where only some can be; None where nothing is."""
    text = options.get("sweep")
    if text is None:
        return None
    from infcalc.api.sweeping import Variable, parse_sweep  # noqa: PLC0415 - only with a sweep

    return parse_sweep(text, variables or tuple(Variable))


def measured_from(options: Mapping[str, Any]) -> tuple[Measurement, ...]:
    """Return what was measured."""
    texts = listed(options.get("measured"), "--measured")
    if not texts:
        return ()
    from infcalc.api.judging import parse_measured  # noqa: PLC0415 - only with a measurement

    return parse_measured(texts)


def slo_from(options: Mapping[str, Any]) -> tuple[Objective, ...]:
    """Return what is to be kept."""
    texts = listed(options.get("slo"), "--slo")
    if not texts:
        return ()
    from infcalc.api.objectives import parse_slo  # noqa: PLC0415 - only with objectives

    return parse_slo(texts)
