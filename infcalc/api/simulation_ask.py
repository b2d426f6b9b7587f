"""What is asked of a simulation: the load, who schedules, how many replicas, and what is written down."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.ranges import check_range
from infcalc.api.replicas import Policy, policies_of
from infcalc.api.sweeping import Variable
from infcalc.api.workload_ask import WorkloadAsk, times_of
from infcalc.errors import UsageError
from infcalc.files import check_target
from infcalc.frozen import frozen
from infcalc.simulation.routing import RouterKind

if TYPE_CHECKING:
    from infcalc.api.disaggregation_ask import PoolsAsk
    from infcalc.api.drafting import DraftAsk
    from infcalc.api.objectives import Objective
    from infcalc.api.sweeping import Sweep
    from infcalc.simulation.scaling import ScalingRule

DEFAULT_REQUESTS = 1000
DEFAULT_ARRIVALS = "poisson:rate=3"
"""What the reference deployment answers without a queue that grows."""
_MOST_REPLICAS = 1024
_MOST_SLOTS = 2**20
_OF_REQUESTS = {"ttft_s", "tpot_s", "e2e_s"}
SWEPT = (Variable.RATE, Variable.CONCURRENCY, Variable.USERS)
_OF_ENGINES = {"vllm": Policy.VLLM, "sglang": Policy.SGLANG, "tensorrt-llm": Policy.TENSORRT_LLM}


@frozen
class SimulationAsk:
    """A simulation; None stands for the default.

    ``policy``: who computes what in a step, as the engine does without it; ``compared`` are several, side by side.
    ``contiguous``: under static and continuous batching each request reserves the longest sequence, as engines without
    paging do. Without ``keep_requests`` nothing is kept of each request but samples: the same answer in less memory.
    ``pools``: prefill and decode on replicas of their own. ``scaling``: replicas that come and go. ``slo`` are limits
    that each request is held to (``ttft=500ms``), or of a percentile (``ttft-p95=1s``).
    """

    load: WorkloadAsk = WorkloadAsk()
    policy: str | None = None
    compared: tuple[str, ...] = ()
    num_replicas: int | None = None
    router: str | None = None
    prefix_caching: bool = True
    contiguous: bool = False
    num_slots: int | None = None
    step_by_step: bool = False
    slo: tuple[Objective, ...] = ()
    sweep: Sweep | None = None
    save_requests: str | None = None
    pools: PoolsAsk | None = None
    scaling: ScalingRule | None = None
    keep_requests: bool = True
    draft: DraftAsk | None = None
    """How answers are drafted; None: a token at a time."""


def check_simulation(asked: SimulationAsk) -> None:
    """Refuse what contradicts itself.

    Raises:
        UsageError: it does.

    """
    if asked.policy is not None and asked.compared:
        raise UsageError("a policy beside several", place="--policy", hint="name all in --compare, or one in --policy")
    if asked.sweep is not None:
        _check_sweep(asked, asked.sweep)
    _check_draft(asked)
    _check_fleet(asked)
    for one in asked.slo:
        if one.quantity not in _OF_REQUESTS:
            raise UsageError(
                f"{one.quantity} is no time of a request", place="--slo", hint="write ttft=500ms,tpot=50ms,e2e-p99=10s"
            )
    check_range("--slots", asked.num_slots, most=_MOST_SLOTS)
    check_range("--replicas", asked.num_replicas, most=_MOST_REPLICAS)
    if asked.router is not None:
        router_of(asked)
    _check_saving(asked)


def _check_saving(asked: SimulationAsk) -> None:
    if asked.save_requests is not None and not asked.keep_requests:
        raise UsageError(
            "requests are to be saved, and not kept", place="--save-requests", hint="drop --no-requests to save them"
        )
    if asked.save_requests is not None and (asked.sweep is not None or len(asked.compared) > 1):
        raise UsageError("requests of several runs", place="--save-requests", hint="simulate one alone to save it")
    if asked.save_requests is not None:
        check_target(asked.save_requests)


def _check_draft(asked: SimulationAsk) -> None:
    if asked.draft is None:
        return
    from infcalc.api.drafted_load import check_drafted  # noqa: PLC0415 - only with drafts

    check_drafted(asked.draft)
    other = "--prefill-replicas" if asked.pools is not None else "--autoscale" if asked.scaling is not None else None
    if other is not None:
        raise UsageError(
            "drafting where prefill and decode are apart, or replicas come and go, is not simulated",
            place=other,
            hint="leave out the options of drafting, or this one",
        )


def _check_fleet(asked: SimulationAsk) -> None:
    if asked.pools is not None:
        from infcalc.api.disaggregation_ask import check_pools  # noqa: PLC0415 - only with pools

        check_pools(asked, asked.pools)
    if asked.scaling is not None:
        from infcalc.api.scaling_ask import check_scaling  # noqa: PLC0415 - only where replicas come and go

        check_scaling(asked)


def _check_sweep(asked: SimulationAsk, sweep: Sweep) -> None:
    if sweep.variable not in SWEPT:
        raise UsageError(
            f"{sweep.variable} is no load of a simulation", place="--sweep", hint=f"one of {', '.join(SWEPT)}"
        )
    if asked.compared:
        raise UsageError("a sweep beside several policies", place="--compare", hint="sweep one with --policy")
    load = asked.load
    for option, value in (
        ("--rate", load.requests_per_s),
        ("--arrivals", load.arrivals),
        (load.clients_option, load.num_clients),
    ):
        if value is not None:
            raise UsageError(f"{option} is given, and {sweep.variable} swept", place="--sweep", hint=f"drop {option}")
    for value in sweep.values:
        try:
            times_of(at(load, sweep.variable, value), for_file=False)
        except UsageError as wrong:
            raise UsageError(f"{sweep.variable}: {wrong.message}", place="--sweep", hint=wrong.hint) from None


def policies_for(asked: SimulationAsk, engine: str) -> tuple[Policy, ...]:
    """Return the policies that run: those that are named, else the engine's own.

    Raises:
        UsageError: there is no such policy.

    """
    names = asked.compared or ((asked.policy,) if asked.policy is not None else ())
    if names:
        return policies_of(names, "--compare" if asked.compared else "--policy")
    return (_OF_ENGINES.get(engine, Policy.CONTINUOUS),)


def router_of(asked: SimulationAsk) -> RouterKind:
    """Return the router.

    Raises:
        UsageError: there is no such router.

    """
    word = (asked.router or RouterKind.ROUND_ROBIN).strip().lower().replace("_", "-")
    try:
        return RouterKind(word)
    except ValueError:
        raise UsageError(
            f"{asked.router!r} is no router", place="--router", hint=f"one of {', '.join(RouterKind)}"
        ) from None


def with_defaults(load: WorkloadAsk) -> WorkloadAsk:
    """Return the load with the defaults of a simulation, where it names no file."""
    if load.file is not None:
        return load
    timed = (load.arrivals, load.requests_per_s, load.num_clients)
    return replace(
        load,
        num_requests=DEFAULT_REQUESTS if load.num_requests is None else load.num_requests,
        arrivals=DEFAULT_ARRIVALS if all(one is None for one in timed) else load.arrivals,
    )


def defaulted(load: WorkloadAsk) -> tuple[str, ...]:
    """Return the names of the inputs that :func:`with_defaults` fills."""
    if load.file is not None:
        return ()
    timed = (load.arrivals, load.requests_per_s, load.num_clients)
    names = ("num_requests",) if load.num_requests is None else ()
    return (*names, "arrivals") if all(one is None for one in timed) else names


def at(load: WorkloadAsk, variable: Variable, value: float) -> WorkloadAsk:
    """Return the load at one value of a sweep."""
    if variable is Variable.RATE:
        return replace(load, requests_per_s=value)
    return replace(load, num_clients=int(value))
