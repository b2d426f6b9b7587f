"""From parsed options to a load, its cost, a sweep, measurements and objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.api.costing import Terms
from infcalc.api.offer import Offer
from infcalc.cli.given import seconds, single, split, whole_numbers
from infcalc.errors import UsageError
from infcalc.units import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.api.batching_requests import BatchingAsk
    from infcalc.api.judging import Measurement
    from infcalc.api.objectives import Objective
    from infcalc.api.plan_ask import PlanAsk
    from infcalc.api.simulation_ask import SimulationAsk
    from infcalc.api.sweeping import Sweep
    from infcalc.api.workload_ask import WorkloadAsk


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
        policies=split(options.get("policy"), commas=True),
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
    return WorkloadAsk(
        file=options.get("file"),
        trace_format=options.get("trace_format"),
        arrivals=options.get("arrivals"),
        requests_per_s=options.get("rate"),
        burstiness=options.get("burstiness"),
        num_clients=users if clients is None else clients,
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
    from infcalc.api.simulation_ask import SimulationAsk  # noqa: PLC0415 - only where something is simulated

    return SimulationAsk(
        load=trace_from(options),
        policy=options.get("policy"),
        compared=split(options.get("compare"), commas=True),
        num_replicas=options.get("replicas"),
        router=options.get("router"),
        prefix_caching=not options.get("no_prefix_caching"),
        contiguous=options.get("contiguous", False),
        num_slots=options.get("slots"),
        step_by_step=options.get("step_by_step", False),
        slo=slo_from(options),
        sweep=sweep_from(options),
        save_requests=options.get("save_requests"),
    )


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
        prefix_hit_fraction=options.get("prefix_hit") or 0.0,
        file=options.get("file"),
        slo=slo_from(options),
        gpus_from=split(options.get("gpus_from"), commas=True),
        engines_from=split(options.get("engines_from"), commas=True),
        allow=split(options.get("allow"), commas=True),
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
    """Return price and utilisation.

    Raises:
        UsageError: a price that is none.

    """
    share = options.get("utilization")
    return Terms(
        usd_per_hour=_price(options.get("price")),
        utilization_fraction=1.0 if share is None else share,
    )


def _price(text: str | None) -> float | None:
    if text is None:
        return None
    plain = text.strip().removeprefix("$").removesuffix("/h").removesuffix("USD").strip()
    try:
        return parse_quantity(f"{plain} USD/h", "usd_per_hour")
    except ValueError:
        raise UsageError(f"{text!r} is not a price", place="--price", hint="write 2.5 or 2.5 USD/h") from None


def sweep_from(options: Mapping[str, Any]) -> Sweep | None:
    """Return what is swept; None where nothing is."""
    text = options.get("sweep")
    if text is None:
        return None
    from infcalc.api.sweeping import parse_sweep  # noqa: PLC0415 - only with a sweep

    return parse_sweep(text)


def measured_from(options: Mapping[str, Any]) -> tuple[Measurement, ...]:
    """Return what was measured."""
    texts = split(options.get("measured"), commas=True)
    if not texts:
        return ()
    from infcalc.api.judging import parse_measured  # noqa: PLC0415 - only with a measurement

    return parse_measured(texts)


def slo_from(options: Mapping[str, Any]) -> tuple[Objective, ...]:
    """Return what is to be kept."""
    texts = split(options.get("slo"), commas=True)
    if not texts:
        return ()
    from infcalc.api.objectives import parse_slo  # noqa: PLC0415 - only with objectives

    return parse_slo(texts)
