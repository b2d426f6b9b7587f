"""From a deployment to the replica that is simulated: the timer of its steps, its cache, and a scheduler over it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.radix_manager import RadixCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.drafts import NO_DRAFTS, Drafts
from infcalc.scheduling.sarathi import SarathiScheduler
from infcalc.scheduling.sglang import SglangLimits, SglangScheduler
from infcalc.scheduling.sglang_prefill import PrefillLimits
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.tensorrt_llm import TensorRtLimits, TensorRtScheduler
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.timing import StepTimer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infcalc.api.speed import Machine
    from infcalc.scheduling.scheduler import Scheduler
    from infcalc.simulation.prices import Floats


class Policy(StrEnum):
    """Who computes what in a step."""

    STATIC = "static"
    CONTINUOUS = "continuous"
    SARATHI = "sarathi"
    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"

    @property
    def meaning(self) -> str:
        """In words."""
        return _MEANINGS[self]


_MEANINGS = {
    Policy.STATIC: "a batch runs until its longest answer ends; nobody joins or leaves",
    Policy.CONTINUOUS: "the batch is formed anew in every step (Orca); whole prompts, room for the longest answer",
    Policy.SARATHI: "all answers first, prompts in chunks of what the step has left (Sarathi-Serve)",
    Policy.VLLM: "running requests first, prompts in chunks, the last to come is preempted when blocks run out (V1)",
    Policy.SGLANG: "prompts before answers in steps of their own; the answer with the fewest tokens is retracted",
    Policy.TENSORRT_LLM: "answers first, prompts in chunks; nobody starts without room to the end (no evict)",
}
DRAFTING = {Policy.STATIC, Policy.CONTINUOUS, Policy.VLLM}
_ALIASES = {"orca": Policy.CONTINUOUS, "tensorrt": Policy.TENSORRT_LLM, "trtllm": Policy.TENSORRT_LLM}


def policies_of(names: Iterable[str], place: str = "--policy") -> tuple[Policy, ...]:
    """Return the policies of these names, each once; all of them where none is named.

    Raises:
        UsageError: there is no such policy.

    """
    found: dict[Policy, None] = {}
    for name in names:
        word = name.strip().lower().replace("_", "-")
        try:
            found[_ALIASES.get(word) or Policy(word)] = None
        except ValueError:
            raise UsageError(
                f"{name!r} is not a scheduling policy", place=place, hint=f"one of {', '.join(Policy)}"
            ) from None
    return tuple(found or Policy)


@frozen
class Seating:
    """What a replica's scheduler works with: its cache, its slots, and the tokens of a step."""

    cache_tokens: int
    """Of one rank, as the engine counts them and prints them."""
    block_tokens: int
    max_num_seqs: int
    budget_tokens: int
    max_model_len: int
    prefix_caching: bool = True
    drafts: Drafts = NO_DRAFTS
    drops_last_hit: bool = False
    """The last block found in the cache is computed again, as heads that draft need it."""


def scheduler_of(policy: Policy, seating: Seating) -> Scheduler:
    """Return a fresh scheduler with an empty cache of its engine's kind: pages of one token for SGLang, else blocks.

    Raises:
        UsageError: the tokens of a step are too few for so many slots, or the policy does not draft.

    """
    if seating.drafts.num_tokens:
        check_drafts(policy)
    try:
        return _scheduler(policy, seating)
    except ValueError as wrong:
        raise UsageError(
            f"{policy}: {wrong}", place="--slots", hint="take fewer slots, or raise --max-num-batched-tokens"
        ) from None


def check_drafts(policy: Policy) -> None:
    """Refuse policies whose drafting is not simulated.

    Raises:
        UsageError: it is one of them.

    """
    if policy not in DRAFTING:
        known = ", ".join(sorted(DRAFTING))
        raise UsageError(
            f"drafting by the scheduler of {policy} is not simulated", place="--policy", hint=f"one of {known}"
        )


def _scheduler(policy: Policy, seating: Seating) -> Scheduler:
    seats, budget = seating.max_num_seqs, seating.budget_tokens
    if policy is Policy.SGLANG:
        # One page is the null page.
        pages = RadixCacheManager(seating.cache_tokens + 1, prefix_caching=seating.prefix_caching)
        prefill = PrefillLimits(max_prefill_tokens=budget, chunked_prefill_tokens=budget)
        return SglangScheduler(pages, SglangLimits(max_running_requests=seats, prefill=prefill))
    num_blocks = seating.cache_tokens // seating.block_tokens + 1
    blocks = KvCacheManager(
        num_blocks,
        seating.block_tokens,
        prefix_caching=seating.prefix_caching,
        drop_last_hit=seating.drops_last_hit and seating.prefix_caching,
    )
    match policy:
        case Policy.STATIC:
            return StaticScheduler(blocks, max_num_seqs=seats, drafts=seating.drafts)
        case Policy.CONTINUOUS:
            return ContinuousScheduler(blocks, max_num_seqs=seats, drafts=seating.drafts)
        case Policy.SARATHI:
            return SarathiScheduler(blocks, max_num_seqs=seats, chunk_tokens=budget)
        case Policy.VLLM:
            limits = VllmLimits(max_num_seqs=seats, budget_tokens=budget, max_model_len=seating.max_model_len)
            return VllmScheduler(blocks, limits, drafts=seating.drafts)
        case Policy.TENSORRT_LLM:
            return TensorRtScheduler(blocks, TensorRtLimits(max_batch_size=seats, budget_tokens=budget))
        case _:
            assert_never(policy)


def step_timer(machine: Machine, *, in_blocks: bool = False) -> StepTimer:
    """Return the timer of one lane of a deployment: the clock that ``estimate`` asks, at the pace of a full pipeline.

    Weights that come from the host in every step are added. ``in_blocks``: for runs of many requests; takes numpy.
    """
    clock, more_s = machine.clock.full(), machine.offload_s

    def seconds(**step: float | Floats) -> float | Floats:
        found: float | Floats = clock.step_s(**step) + more_s
        return found

    return StepTimer(seconds, in_blocks=in_blocks)
