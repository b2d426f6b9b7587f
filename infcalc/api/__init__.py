"""One function per question; what the command line calls is what a library user calls.

>>> from infcalc.api import Ask, kv
>>> kv(Ask(models=("llama3-70b",), num_gpus=4)).result.kv_bytes_per_token
327680
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.batching_policies import batching
    from infcalc.api.batching_requests import BatchingAsk
    from infcalc.api.bounds import roofline
    from infcalc.api.calibrating import calibrate
    from infcalc.api.comparing import compare
    from infcalc.api.deployment import Ask
    from infcalc.api.diagnosing import diagnose
    from infcalc.api.drafting import DraftAsk, speculate
    from infcalc.api.estimator import Estimator
    from infcalc.api.filling import memory
    from infcalc.api.fitting import concurrency
    from infcalc.api.launch_ask import LaunchAsk
    from infcalc.api.launching import launch
    from infcalc.api.listing import gpus, models, show
    from infcalc.api.offer import Offer
    from infcalc.api.paging_waste import PagingAsk, paging
    from infcalc.api.plan_ask import PlanAsk
    from infcalc.api.planning import plan
    from infcalc.api.prefix_hits import prefix_cache
    from infcalc.api.prefix_stream import PrefixAsk
    from infcalc.api.simulating import simulate
    from infcalc.api.simulation_ask import SimulationAsk
    from infcalc.api.sizing import kv
    from infcalc.api.speed import estimate
    from infcalc.api.users import Load
    from infcalc.api.validating import validate_memory
    from infcalc.api.validating_serving import validate_serving
    from infcalc.api.workload_ask import WorkloadAsk
    from infcalc.api.workloads import workload
    from infcalc.errors import InfcalcError

__all__ = [
    "Answer",
    "Ask",
    "BatchingAsk",
    "DraftAsk",
    "Estimator",
    "InfcalcError",
    "LaunchAsk",
    "Load",
    "Offer",
    "PagingAsk",
    "PlanAsk",
    "PrefixAsk",
    "SimulationAsk",
    "WorkloadAsk",
    "batching",
    "calibrate",
    "compare",
    "concurrency",
    "diagnose",
    "estimate",
    "gpus",
    "kv",
    "launch",
    "memory",
    "models",
    "paging",
    "plan",
    "prefix_cache",
    "roofline",
    "show",
    "simulate",
    "speculate",
    "validate_memory",
    "validate_serving",
    "workload",
]

_HOMES = {
    "Answer": "infcalc.api.answer",
    "Ask": "infcalc.api.deployment",
    "BatchingAsk": "infcalc.api.batching_requests",
    "DraftAsk": "infcalc.api.drafting",
    "Estimator": "infcalc.api.estimator",
    "InfcalcError": "infcalc.errors",
    "LaunchAsk": "infcalc.api.launch_ask",
    "Load": "infcalc.api.users",
    "Offer": "infcalc.api.offer",
    "PagingAsk": "infcalc.api.paging_waste",
    "PlanAsk": "infcalc.api.plan_ask",
    "PrefixAsk": "infcalc.api.prefix_stream",
    "SimulationAsk": "infcalc.api.simulation_ask",
    "WorkloadAsk": "infcalc.api.workload_ask",
    "batching": "infcalc.api.batching_policies",
    "calibrate": "infcalc.api.calibrating",
    "compare": "infcalc.api.comparing",
    "concurrency": "infcalc.api.fitting",
    "diagnose": "infcalc.api.diagnosing",
    "estimate": "infcalc.api.speed",
    "gpus": "infcalc.api.listing",
    "kv": "infcalc.api.sizing",
    "launch": "infcalc.api.launching",
    "memory": "infcalc.api.filling",
    "models": "infcalc.api.listing",
    "paging": "infcalc.api.paging_waste",
    "plan": "infcalc.api.planning",
    "prefix_cache": "infcalc.api.prefix_hits",
    "roofline": "infcalc.api.bounds",
    "show": "infcalc.api.listing",
    "simulate": "infcalc.api.simulating",
    "speculate": "infcalc.api.drafting",
    "validate_memory": "infcalc.api.validating",
    "validate_serving": "infcalc.api.validating_serving",
    "workload": "infcalc.api.workloads",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used: one question does not pay for the others."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'infcalc.api' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only with the first name

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
