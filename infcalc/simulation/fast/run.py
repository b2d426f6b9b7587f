"""A run of one replica in aggregate: settings are those of a real scheduler, requests are columns."""

from __future__ import annotations

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.vllm import Order, VllmScheduler
from infcalc.simulation.chance import AcceptanceChance
from infcalc.simulation.fast.blocks import CountedBlocks
from infcalc.simulation.fast.columns import Load
from infcalc.simulation.fast.continuous import ContinuousReplica
from infcalc.simulation.fast.drafting import DraftingContinuous, DraftingStatic, DraftingVllm
from infcalc.simulation.fast.drawn import Draws, Slots
from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.gate import gate_of, reason_of
from infcalc.simulation.fast.prefixes import PrefixBlocks
from infcalc.simulation.fast.recorder import SampleRecorder
from infcalc.simulation.fast.replica import FastReplica, Listener
from infcalc.simulation.fast.static import StaticReplica
from infcalc.simulation.fast.vllm import VllmReplica
from infcalc.simulation.timing import AffineTimer

_END_OF_TIME_PS = 2**80


def is_fast(scheduler: Scheduler) -> bool:
    """Return whether a scheduler's rules are known in aggregate; the others run step by step.

    They are static, continuous and vLLM batching, first come, first served, over blocks that are found by hash chains
    of full attention; with drafts where a step has tokens for a whole round of every slot.
    """
    kv = scheduler.kv
    if not isinstance(kv, KvCacheManager) or kv.window_tokens is not None:
        return False
    if isinstance(scheduler, VllmScheduler):
        limits, drafts = scheduler.limits, scheduler.drafts.num_tokens
        whole = not drafts or (limits.max_num_seqs * (1 + drafts) <= limits.budget_tokens)
        return limits.order is Order.FCFS and whole and not (drafts and limits.long_prefill_tokens)
    return isinstance(scheduler, StaticScheduler | ContinuousScheduler)


def replica_of(
    scheduler: Scheduler,
    load: Load,
    timer: AffineTimer,
    listener: Listener,
    *,
    chance: AcceptanceChance | None = None,
) -> FastReplica:
    """Return a replica with the rules and the empty cache of a fresh scheduler, for requests of a load.

    ``chance``: where the scheduler drafts, how many drafts of a round are accepted.

    Raises:
        ValueError: its rules are not known in aggregate, or it has work already.

    """
    if not is_fast(scheduler) or scheduler.has_work:
        raise ValueError(
            f"{type(scheduler).__name__}: not one of those that are known in aggregate, or not a fresh one"
        )
    if (0 if chance is None else len(chance.rates)) != scheduler.drafts.num_tokens:
        raise ValueError(f"a scheduler of {scheduler.drafts.num_tokens} drafts, and a chance for others")
    blocks = _blocks(scheduler, load)
    if chance is None:
        if isinstance(scheduler, VllmScheduler):
            return VllmReplica(blocks, timer, listener, scheduler.limits)
        plain = StaticReplica if isinstance(scheduler, StaticScheduler) else ContinuousReplica
        return plain(blocks, timer, listener, max_num_seqs=scheduler.max_num_seqs)
    replica: DraftingVllm | DraftingStatic | DraftingContinuous
    longest = None
    if isinstance(scheduler, VllmScheduler):
        replica, longest = DraftingVllm(blocks, timer, listener, scheduler.limits), scheduler.limits.max_model_len
    else:
        kind = DraftingStatic if isinstance(scheduler, StaticScheduler) else DraftingContinuous
        replica = kind(blocks, timer, listener, max_num_seqs=scheduler.max_num_seqs)
    drafts = scheduler.drafts
    # A round computes no more than leaves room for its last token; the drafter's slots may lie there.
    most = longest if longest is None or drafts.num_lookahead_tokens else longest - 1
    slots = Slots(block_tokens=blocks.block_tokens, num_ahead=1 + drafts.num_slots, longest_tokens=most)
    replica.drafts(drafts, Draws(chance, load, gate_of(scheduler), slots), longest)
    return replica


def _blocks(scheduler: Scheduler, load: Load) -> CountedBlocks | PrefixBlocks:
    kv = scheduler.kv
    if isinstance(kv, KvCacheManager) and kv.prefix_caching:
        tree = (load.parents, load.sizes_tokens)
        return PrefixBlocks(scheduler.num_blocks, kv.block_tokens, *tree, drops_last=kv.drop_last_hit)
    return CountedBlocks(scheduler.num_blocks, kv.block_tokens)


def run_fast(
    scheduler: Scheduler,
    load: Load,
    timer: AffineTimer,
    recorder: SampleRecorder,
    *,
    chance: AcceptanceChance | None = None,
) -> FastReplica:
    """Serve a load with the rules of a fresh ``scheduler``, tell ``recorder``, and return the replica at its end.

    The records are those of :func:`infcalc.simulation.oracle.run_step_by_step`, bit for bit.

    Raises:
        ValueError: the scheduler's rules are not known in aggregate.
        AssertionError: a law is broken; never the fault of the requests.

    """
    replica = replica_of(scheduler, load, timer, recorder, chance=chance)
    advance, receive = replica.advance, replica.receive
    for index, arrival, prompt, answer, allowed, content, enters in load.rows(gate_of(scheduler)):
        if replica.now_ps < arrival:
            advance(arrival)
        if enters:
            receive(Flight(index, arrival, prompt, answer, allowed, content), arrival)
        else:
            told = load.told_tokens(index)
            reason = reason_of(scheduler, index, prompt, told)
            recorder.rejected(index, arrival, max(arrival, replica.now_ps), prompt, reason)
    advance(_END_OF_TIME_PS)
    recorder.close(len(load), replica)
    return replica
