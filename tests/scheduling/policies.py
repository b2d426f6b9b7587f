"""Every policy with small limits, and every manager with small blocks: what the contract is tested on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.radix_manager import RadixCacheManager
from infcalc.kvcache.surface import KvManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.sarathi import SarathiScheduler
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sglang import Order as SglangOrder
from infcalc.scheduling.sglang import SglangLimits, SglangScheduler
from infcalc.scheduling.sglang_prefill import PrefillLimits
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.tensorrt_llm import Capacity, Chunking, TensorRtLimits, TensorRtScheduler
from infcalc.scheduling.vllm import Order as VllmOrder
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler

SEATS = 4
BUDGET = 12
BLOCK = 4
LONGEST_PROMPT = 20
LONGEST_ANSWER = 12


@dataclass(frozen=True)
class Policy:
    make: Callable[[KvManager], Scheduler]
    budget_tokens: int | None = BUDGET
    in_order: bool = True
    """Sequences that nobody preempted start in the order of their arrival."""
    preempts: bool = False
    whole: bool = False
    """Prompts are computed in one piece."""


def vllm(**changes: object) -> Callable[[KvManager], Scheduler]:
    given_limits: dict[str, object] = {"max_num_seqs": SEATS, "budget_tokens": BUDGET, **changes}
    return lambda kv: VllmScheduler(kv, VllmLimits(**given_limits))  # type: ignore[arg-type]


def sglang(chunk: int | None = 8, **changes: object) -> Callable[[KvManager], Scheduler]:
    prefill = PrefillLimits(max_prefill_tokens=BUDGET, chunked_prefill_tokens=chunk)
    return lambda kv: SglangScheduler(kv, SglangLimits(max_running_requests=SEATS, prefill=prefill, **changes))  # type: ignore[arg-type]


def tensorrt(capacity: Capacity, **changes: object) -> Callable[[KvManager], Scheduler]:
    given_limits: dict[str, object] = {
        "max_batch_size": SEATS,
        "budget_tokens": BUDGET,
        "capacity": capacity,
        **changes,
    }
    return lambda kv: TensorRtScheduler(kv, TensorRtLimits(**given_limits))  # type: ignore[arg-type]


POLICIES = {
    "static": Policy(lambda kv: StaticScheduler(kv, max_num_seqs=SEATS), budget_tokens=None, whole=True),
    "continuous": Policy(lambda kv: ContinuousScheduler(kv, max_num_seqs=SEATS), budget_tokens=None, whole=True),
    "sarathi": Policy(lambda kv: SarathiScheduler(kv, max_num_seqs=SEATS, chunk_tokens=BUDGET), preempts=True),
    "vllm": Policy(vllm(), preempts=True),
    "vllm-threshold": Policy(vllm(long_prefill_tokens=3, reserve_full_sequence=False), preempts=True),
    "vllm-whole": Policy(vllm(chunked_prefill=False, budget_tokens=40), 40, preempts=True, whole=True),
    "vllm-watermark": Policy(vllm(watermark_fraction=0.1), preempts=True),
    "vllm-priority": Policy(vllm(order=VllmOrder.PRIORITY), preempts=True, in_order=False),
    "sglang": Policy(sglang(), preempts=True),
    "sglang-whole": Policy(sglang(None), None, preempts=True, whole=True),
    "sglang-mixed": Policy(sglang(8, mixed_chunk=True), preempts=True),
    "sglang-lpm": Policy(sglang(8, order=SglangOrder.LONGEST_PREFIX_MATCH), preempts=True, in_order=False),
    "sglang-bold": Policy(sglang(8, conservativeness_fraction=0.01), preempts=True),
    "tensorrt-no-evict": Policy(tensorrt(Capacity.GUARANTEED_NO_EVICT)),
    "tensorrt-equal": Policy(tensorrt(Capacity.MAX_UTILIZATION, chunking=Chunking.EQUAL_PROGRESS), preempts=True),
    "tensorrt-utilization": Policy(tensorrt(Capacity.MAX_UTILIZATION), preempts=True),
    "tensorrt-whole": Policy(
        tensorrt(Capacity.MAX_UTILIZATION, chunked_context=False, budget_tokens=40), 40, preempts=True, whole=True
    ),
}

MANAGERS: dict[str, Callable[[int], KvManager]] = {
    "chain": lambda blocks: KvCacheManager(blocks, BLOCK),
    "no-cache": lambda blocks: KvCacheManager(blocks, BLOCK, prefix_caching=False),
    "radix": lambda blocks: RadixCacheManager(blocks * BLOCK, 1),
    "radix-pages": lambda blocks: RadixCacheManager(blocks, BLOCK),
}

every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
every_preempting_policy = pytest.mark.parametrize(
    "policy",
    [policy for policy in POLICIES.values() if policy.preempts],
    ids=[name for name, policy in POLICIES.items() if policy.preempts],
)
every_manager = pytest.mark.parametrize("manager", MANAGERS.values(), ids=MANAGERS)
