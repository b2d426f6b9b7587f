"""What the laboratory runs: the numpy engine on plans of real schedulers, each step timed beside what it held."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np

from infcalc.api.lab_probes import BLOCK_TOKENS
from infcalc.api.lab_timing import is_spent, spread
from infcalc.frozen import frozen
from infcalc.kvcache.manager import KvCacheManager
from infcalc.reference.engine import ContiguousEngine, Engine, PagedEngine, UncachedEngine
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.sequence import Sequence
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from infcalc.api.lab_timing import Instruments, Spread
    from infcalc.reference.transformer import Transformer
    from infcalc.scheduling.scheduler import Scheduler
    from infcalc.scheduling.step_plan import StepPlan

NO_CACHE, CONTIGUOUS, PAGED = "no cache", "contiguous", "paged"
_TAIL_TOKENS = 2 * BLOCK_TOKENS


class Held(TypedDict, total=False):
    """What a step held, in the words of the clock (:class:`infcalc.roofline.clock.Batch`)."""

    num_decodes: float
    context_tokens: float
    num_prefills: float
    new_tokens: float
    cached_tokens: float


@frozen
class Case:
    """Steps of one kind: a name, the cache they used, how many sequences each held, what that was, their times."""

    name: str
    cache: str
    batch: int
    held: Held
    times: Spread


@frozen
class _Step:
    plan: StepPlan
    time_s: float


def decode(
    transformer: Transformer,
    cache: str,
    instruments: Instruments,
    *,
    batch: int,
    context_tokens: int,
    num_steps: int,
    seed: int,
) -> Case:
    """Time ``num_steps`` decode steps of ``batch`` sequences that begin with ``context_tokens`` each.

    Without a cache, a step computes every token so far anew: it is the prefill of them all.
    """
    room = context_tokens + num_steps + 2
    num_blocks = 1 + batch * (-(-room // BLOCK_TOKENS) + 1)
    scheduler = ContinuousScheduler(KvCacheManager(num_blocks, BLOCK_TOKENS, prefix_caching=False), max_num_seqs=batch)
    prompts = _prompts(transformer, seed, batch, context_tokens)
    sequences = [Sequence(number, prompt, max_new_tokens=num_steps + 2) for number, prompt in enumerate(prompts)]
    engine = _engine(transformer, cache, room, num_blocks)
    # The first step computes the prompts; the first decode meets memory that nobody has touched.
    kept = _kept(_served(scheduler, engine, sequences, instruments.clock), 2, num_steps, instruments)
    context = sum(chunk.cached_tokens for step in kept for chunk in step.plan.chunks) / (len(kept) * batch)
    held: Held = {"num_decodes": batch, "context_tokens": context}
    if cache == NO_CACHE:
        held = {"num_prefills": batch, "new_tokens": context + 1, "cached_tokens": 0}
    return Case(
        name=f"decode, {_CACHE_WORDS[cache]}",
        cache=cache,
        batch=batch,
        held=held,
        times=spread([step.time_s for step in kept]),
    )


_CACHE_WORDS = {NO_CACHE: "no cache", CONTIGUOUS: "contiguous cache", PAGED: "paged cache"}


def shared_prompt(
    transformer: Transformer,
    instruments: Instruments,
    *,
    caching: bool,
    prompt_tokens: int,
    num_steps: int,
    seed: int,
) -> Case:
    """Time the prefill of prompts of ``prompt_tokens`` and a tail of their own, with prefix caching or without."""
    longest = prompt_tokens + _TAIL_TOKENS + 2
    num_blocks = 2 + (num_steps + 1) * (-(-longest // BLOCK_TOKENS))
    manager = KvCacheManager(num_blocks, BLOCK_TOKENS, prefix_caching=caching)
    scheduler = VllmScheduler(manager, VllmLimits(max_num_seqs=1, budget_tokens=longest))
    (start,) = _prompts(transformer, seed, 1, prompt_tokens)
    tails = _prompts(transformer, seed + 1, num_steps + 1, _TAIL_TOKENS)
    sequences = [Sequence(number, [*start, *tail], max_new_tokens=1) for number, tail in enumerate(tails)]
    # The first prompt fills the cache, whether it is looked into or not.
    engine = PagedEngine(transformer, num_blocks, BLOCK_TOKENS)
    kept = _kept(_served(scheduler, engine, sequences, instruments.clock), 1, num_steps, instruments)
    last = kept[-1].plan.chunks[0]
    return Case(
        name=f"prefill, prefix cache {'on' if caching else 'off'}",
        cache=PAGED,
        batch=1,
        held={"num_prefills": 1, "new_tokens": last.num_tokens, "cached_tokens": last.cached_tokens},
        times=spread([step.time_s for step in kept]),
    )


@frozen
class Projection:
    """What was computed by the time that a sequence had so many ``tokens``, its one-token prompt included."""

    cache: str
    tokens: int
    first_token_projections: int
    """How often the first token went through the layers."""
    total_projections: int
    """Rows that went through the layers."""
    elapsed_s: float


def counted(
    transformer: Transformer,
    cache: str,
    instruments: Instruments,
    *,
    num_tokens: int,
    num_points: int,
    budget_s: float = math.inf,
) -> tuple[Projection, ...]:
    """Produce tokens up to ``num_tokens`` from a prompt of one, and return what it took on the way there.

    Where ``budget_s`` are spent before, it ends at the next point: a computer this slow counts fewer.
    """
    num_blocks = 2 + -(-num_tokens // BLOCK_TOKENS)
    scheduler = ContinuousScheduler(KvCacheManager(num_blocks, BLOCK_TOKENS, prefix_caching=False), max_num_seqs=1)
    engine = _engine(transformer, cache, num_tokens, num_blocks)
    points: list[Projection] = []
    marks = {1 + round((num_tokens - 1) * (place + 1) / num_points) for place in range(num_points)}
    elapsed_s, start_s = 0.0, instruments.passed_s()
    served = _served(scheduler, engine, [Sequence(0, [1], max_new_tokens=num_tokens - 1)], instruments.clock)
    for number, step in enumerate(served, start=2):
        elapsed_s += step.time_s
        if number in marks:
            counts = engine.num_projected[0]
            points.append(
                Projection(
                    cache=cache,
                    tokens=number,
                    first_token_projections=counts[0],
                    total_projections=sum(counts),
                    elapsed_s=elapsed_s,
                )
            )
            if instruments.passed_s() - start_s > budget_s:
                break
    return tuple(points)


def answers(transformer: Transformer, cache: str, *, num_tokens: int, seed: int) -> dict[int, tuple[int, ...]]:
    """Return the answers of three sequences from one kind of cache, to compare with those of another."""
    room = 2 * num_tokens
    num_blocks = 3 * (2 + -(-room // BLOCK_TOKENS))
    scheduler = ContinuousScheduler(KvCacheManager(num_blocks, BLOCK_TOKENS, prefix_caching=False), max_num_seqs=3)
    sequences = [
        Sequence(number, prompt, max_new_tokens=num_tokens)
        for number, prompt in enumerate(_prompts(transformer, seed, 3, num_tokens))
    ]
    for _ in _served(scheduler, _engine(transformer, cache, room, num_blocks), sequences, lambda: 0.0):
        pass
    return {sequence.sequence_id: tuple(sequence.tokens) for sequence in sequences}


def _served(
    scheduler: Scheduler, engine: Engine, sequences: Iterable[Sequence], clock: Callable[[], float]
) -> Iterator[_Step]:
    """Serve ``sequences``; yield each step with the seconds that the engine took."""
    for sequence in sequences:
        scheduler.add(sequence)
    while scheduler.has_work:
        plan = scheduler.plan()
        start_s = clock()
        produced = engine.execute(plan)
        time_s = clock() - start_s
        scheduler.update(plan, produced)
        yield _Step(plan=plan, time_s=time_s)


def _kept(steps: Iterator[_Step], num_skipped: int, num_steps: int, instruments: Instruments) -> list[_Step]:
    for _ in range(num_skipped):
        next(steps)
    start_s, kept = instruments.passed_s(), []
    for step in steps:
        kept.append(step)
        if len(kept) == num_steps or is_spent(start_s, len(kept), instruments):
            break
    return kept


def _engine(transformer: Transformer, cache: str, max_tokens: int, num_blocks: int) -> Engine:
    if cache == NO_CACHE:
        return UncachedEngine(transformer)
    if cache == CONTIGUOUS:
        return ContiguousEngine(transformer, max_tokens)
    return PagedEngine(transformer, num_blocks, BLOCK_TOKENS)


def _prompts(transformer: Transformer, seed: int, num: int, num_tokens: int) -> list[list[int]]:
    drawn = np.random.default_rng(seed).integers(0, transformer.model.vocab_size, (num, num_tokens))
    return cast("list[list[int]]", drawn.tolist())
