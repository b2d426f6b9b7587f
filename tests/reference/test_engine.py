"""The same tokens, bit for bit, whatever the cache, the schedule, or what happened in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.radix_manager import RadixCacheManager
from infcalc.kvcache.surface import KvManager
from infcalc.reference.arithmetic import BATCHED, FLASH, Arithmetic
from infcalc.reference.engine import ContiguousEngine, Engine, PagedEngine, Sampler, UncachedEngine
from infcalc.reference.generation import generate
from infcalc.reference.transformer import Transformer
from infcalc.reference.weights import random_weights
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence
from infcalc.scheduling.sglang import SglangScheduler
from infcalc.scheduling.step_plan import Chunk, StepPlan
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.spec.layers import DenseFeedForward, GroupedAttention, Reach
from tests.reference.models import MAX_TOKENS, MODELS, model, transformer
from tests.scheduling.policies import BLOCK, POLICIES, Policy, every_policy, every_preempting_policy

if TYPE_CHECKING:
    from numpy.typing import NDArray

Trace = dict[tuple[int, int], bytes]
"""Bits of the scores behind each produced token, by sequence and position."""

BY_CHANCE = Sampler(temperature_fraction=0.8, seed=3)
"""Greedy answers of random weights fall into loops, in which a wrong token could hide."""


def prompts(num: int = 5, seed: int = 1) -> list[list[int]]:
    """Prompts of several lengths; the first tokens of most are the same."""
    generator = np.random.default_rng(seed)
    shared = generator.integers(0, 61, 11).tolist()
    return [
        [*(shared[: 11 if index % 3 else 4]), *generator.integers(0, 61, 2 + 3 * index % 7).tolist()]
        for index in range(num)
    ]


def served(scheduler: Scheduler, engine: Engine, *, answer: int = 10) -> tuple[dict[int, tuple[int, ...]], Trace]:
    trace: Trace = {}

    def execute(plan: StepPlan) -> dict[int, int]:
        produced = engine.execute(plan)
        for chunk in plan.chunks:
            if chunk.produces:
                scores = engine.logits[chunk.sequence_id]
                trace[chunk.sequence_id, chunk.cached_tokens + chunk.num_tokens] = scores.tobytes()
        return produced

    sequences = [Sequence(key, prompt, max_new_tokens=answer + key) for key, prompt in enumerate(prompts())]
    return generate(scheduler, execute, sequences), trace


def plain(name: str = "gqa", *, answer: int = 10) -> tuple[dict[int, tuple[int, ...]], Trace]:
    """One sequence after the other, with no cache at all."""
    scheduler = ContinuousScheduler(KvCacheManager(60, BLOCK, prefix_caching=False), max_num_seqs=1)
    return served(scheduler, UncachedEngine(transformer(name), BY_CHANCE), answer=answer)


ENGINES: dict[str, Callable[[Transformer], Engine]] = {
    "uncached": lambda made: UncachedEngine(made, BY_CHANCE),
    "contiguous": lambda made: ContiguousEngine(made, MAX_TOKENS, BY_CHANCE),
    "paged": lambda made: PagedEngine(made, 60, BLOCK, BY_CHANCE),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_no_cache_contiguous_and_paged_give_the_same_bits(name: str, engine: Callable[[Transformer], Engine]) -> None:
    scheduler = ContinuousScheduler(KvCacheManager(60, BLOCK, prefix_caching=False), max_num_seqs=4)
    assert served(scheduler, engine(transformer(name))) == plain(name)


@pytest.mark.parametrize("name", MODELS)
def test_chunks_and_a_prefix_cache_give_the_same_bits_for_every_model(name: str) -> None:
    kv = KvCacheManager(60, BLOCK)
    scheduler = VllmScheduler(kv, VllmLimits(max_num_seqs=3, budget_tokens=7))
    assert served(scheduler, PagedEngine(transformer(name), 60, BLOCK, BY_CHANCE)) == plain(name)
    assert kv.hits.num_hit_tokens > 0


@every_policy
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_every_policy_gives_the_same_bits(policy: Policy, engine: Callable[[Transformer], Engine]) -> None:
    scheduler = policy.make(KvCacheManager(60, BLOCK, prefix_caching=False))
    assert served(scheduler, engine(transformer("gqa"))) == plain()


@every_policy
@pytest.mark.parametrize("manager", ["chain", "radix", "radix-pages"])
def test_a_prefix_cache_changes_nothing(policy: Policy, manager: str) -> None:
    block = 1 if manager == "radix" else BLOCK
    blocks = 60 * BLOCK // block
    kv: KvManager = KvCacheManager(blocks, block) if manager == "chain" else RadixCacheManager(blocks, block)
    assert served(policy.make(kv), PagedEngine(transformer("gqa"), blocks, block, BY_CHANCE)) == plain()
    # Prompts that start together do not share what their step computes; two did not start together.
    assert kv.hits.num_hit_tokens > 0


@every_preempting_policy
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_preemption_and_recomputation_in_the_middle_change_nothing(policy: Policy, *, prefix_caching: bool) -> None:
    num_preemptions = 0
    for blocks in (12, 16, 20):
        scheduler = policy.make(KvCacheManager(blocks, BLOCK, prefix_caching=prefix_caching))
        assert served(scheduler, PagedEngine(transformer("gqa"), blocks, BLOCK, BY_CHANCE)) == plain()
        num_preemptions += scheduler.num_preemptions
    # SGLang expects so much of short answers that it retracts nobody here.
    assert isinstance(scheduler, SglangScheduler) or num_preemptions > 0


@pytest.mark.parametrize("name", ["sglang", "sglang-bold", "sglang-whole", "sglang-mixed"])
def test_retraction_changes_nothing(name: str) -> None:
    scheduler = POLICIES[name].make(RadixCacheManager(80, 1))
    assert served(scheduler, PagedEngine(transformer("gqa"), 80, 1, BY_CHANCE), answer=30) == plain(answer=30)
    assert scheduler.num_preemptions > 0


def test_an_engine_with_one_array_per_sequence_survives_preemption() -> None:
    scheduler = VllmScheduler(
        KvCacheManager(12, BLOCK, prefix_caching=False), VllmLimits(max_num_seqs=4, budget_tokens=12)
    )
    engine = ContiguousEngine(transformer("gqa"), MAX_TOKENS, BY_CHANCE)
    assert served(scheduler, engine) == plain()
    assert scheduler.num_preemptions > 0


def test_an_engine_with_one_array_per_sequence_cannot_share() -> None:
    scheduler = ContinuousScheduler(KvCacheManager(60, BLOCK), max_num_seqs=1)
    with pytest.raises(ValueError, match="engine with blocks only"):
        served(scheduler, ContiguousEngine(transformer("gqa"), MAX_TOKENS, BY_CHANCE))


@pytest.mark.parametrize("arithmetic", [BATCHED, FLASH], ids=["batched", "flash"])
@pytest.mark.parametrize("name", MODELS)
def test_faster_arithmetic_gives_the_same_scores_to_rounding(name: str, arithmetic: Arithmetic) -> None:
    plan = StepPlan(
        chunks=tuple(
            Chunk(sequence_id=key, cached_tokens=0, tokens=tuple(prompt), block_table=(), produces=True)
            for key, prompt in enumerate(prompts())
        )
    )
    exact, fast = UncachedEngine(transformer(name)), UncachedEngine(transformer(name, arithmetic))
    exact.execute(plan)
    fast.execute(plan)
    for key in range(len(prompts())):
        np.testing.assert_allclose(fast.logits[key], exact.logits[key], rtol=0, atol=1e-10)


def test_one_product_for_all_rows_would_not_give_the_same_bits() -> None:
    # The reason for row by row: here is a batch whose size shows in the bits.
    generator = np.random.default_rng(0)
    rows, weight = generator.standard_normal((65, 97)), generator.standard_normal((43, 97))
    assert any(
        not np.array_equal(BATCHED.project(rows, weight)[:n], BATCHED.project(rows[:n], weight)) for n in range(1, 65)
    )


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_blocks_given_back_behind_a_window_are_not_missed(*, prefix_caching: bool) -> None:
    attention = GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=8, reach=Reach.SLIDING, window_tokens=6)
    windowed = model(*[(attention, DenseFeedForward(width=40))] * 2)
    made = Transformer(windowed, random_weights(windowed, 0), MAX_TOKENS)
    alone = ContinuousScheduler(KvCacheManager(60, BLOCK, prefix_caching=False), max_num_seqs=1)
    expected = served(alone, UncachedEngine(made, BY_CHANCE), answer=20)
    kv = KvCacheManager(40, BLOCK, window_tokens=6, prefix_caching=prefix_caching)
    scheduler = VllmScheduler(kv, VllmLimits(max_num_seqs=4, budget_tokens=12))
    assert served(scheduler, PagedEngine(made, 40, BLOCK, BY_CHANCE), answer=20) == expected


# Forks


def decode(engine: Engine, kv: KvCacheManager, tokens: dict[int, list[int]], produced: dict[int, int]) -> None:
    """One decode step of all sequences, each after the token it produced last."""
    chunks = []
    for key, token in produced.items():
        room = kv.append(key)
        assert room is not None
        chunks.append(
            Chunk(
                sequence_id=key,
                cached_tokens=len(tokens[key]),
                tokens=(token,),
                block_table=tuple(kv.block_table(key)),
                produces=True,
            )
        )
        tokens[key].append(token)
    produced.update(engine.execute(StepPlan(chunks=tuple(chunks), copies=tuple(kv.take_copies()))))
    for chunk in chunks:
        kv.commit(chunk.sequence_id, chunk.tokens)


@settings(max_examples=15, deadline=None)
@given(prompt_tokens=st.integers(1, 13), steps=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_forks_never_write_into_each_other(prompt_tokens: int, steps: list[int]) -> None:
    kv = KvCacheManager(80, BLOCK)
    engine = PagedEngine(transformer("gqa"), 80, BLOCK, BY_CHANCE)
    prompt = prompts()[1][:prompt_tokens]
    table = kv.allocate(0, prompt)
    assert table is not None
    first = Chunk(sequence_id=0, cached_tokens=0, tokens=tuple(prompt), block_table=tuple(table), produces=True)
    produced = engine.execute(StepPlan(chunks=(first,)))
    kv.commit(0, prompt)
    tokens = {0: list(prompt)}
    for child, num_steps in enumerate(steps, start=1):
        parent = (child * 7) % child
        kv.fork(parent, child)
        tokens[child] = list(tokens[parent])
        # The child goes its own way from its first token on.
        produced[child] = (produced[parent] + child) % 61
        for _ in range(num_steps):
            decode(engine, kv, tokens, produced)
    decode(engine, kv, tokens, produced)
    kv.check_invariants()
    for key, known in tokens.items():
        alone = UncachedEngine(transformer("gqa"), BY_CHANCE)
        whole = Chunk(sequence_id=key, cached_tokens=0, tokens=tuple(known), block_table=(), produces=True)
        assert alone.execute(StepPlan(chunks=(whole,)))[key] == produced[key]
        assert np.array_equal(alone.logits[key], engine.logits[key])


def test_a_fork_in_the_middle_of_a_block_copies_it() -> None:
    kv = KvCacheManager(20, BLOCK)
    engine = PagedEngine(transformer("gqa"), 20, BLOCK)
    prompt = prompts()[1][: BLOCK + 2]
    table = kv.allocate(0, prompt)
    assert table is not None
    engine.execute(
        StepPlan(
            chunks=(
                Chunk(sequence_id=0, cached_tokens=0, tokens=tuple(prompt), block_table=tuple(table), produces=True),
            )
        )
    )
    kv.commit(0, prompt)
    kv.fork(0, 1)
    before = engine.cache.keys[:, table[1]].copy()
    tokens = {0: list(prompt), 1: list(prompt)}
    decode(engine, kv, tokens, {1: 5})
    assert kv.num_copies == 1
    assert kv.block_table(0)[0] == kv.block_table(1)[0]
    assert kv.block_table(0)[1] != kv.block_table(1)[1]
    np.testing.assert_array_equal(engine.cache.keys[:, table[1]], before)


# Work that a cache saves


def projected(
    engine_of: Callable[[Transformer], Engine], num_tokens: int, window_tokens: int | None = None
) -> tuple[Engine, int]:
    """Produce tokens up to ``num_tokens`` from a prompt of one; return the engine and the rows that K projected."""
    reach = Reach.SLIDING if window_tokens else Reach.FULL
    attention = GroupedAttention(num_heads=1, num_kv_heads=1, head_dim=2, reach=reach, window_tokens=window_tokens)
    tiny = model((attention, DenseFeedForward(width=2)), hidden_size=2)
    weights = random_weights(tiny, seed=0)
    rows_of_k = 0

    def project(rows: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal rows_of_k
        if weight is weights.layers[0]["k"]:
            rows_of_k += len(rows)
        return FLASH.project(rows, weight)

    counting = Arithmetic(project=project, attend=FLASH.attend)
    engine = engine_of(Transformer(tiny, weights, num_tokens, arithmetic=counting))
    scheduler = ContinuousScheduler(KvCacheManager(num_tokens, BLOCK, prefix_caching=False), max_num_seqs=1)
    answers = generate(scheduler, engine.execute, [Sequence(0, [1], max_new_tokens=num_tokens - 1)])
    assert len(answers[0]) == num_tokens - 1
    return engine, rows_of_k


def test_without_a_cache_the_first_token_is_projected_999_times_by_token_1000() -> None:
    # A window keeps attention cheap; what is projected does not depend on it.
    engine, rows = projected(UncachedEngine, 1000, window_tokens=16)
    assert engine.num_projected[0] == list(range(999, 0, -1))
    assert rows == 999 * 1000 // 2


def test_without_a_cache_and_with_full_attention_it_is_the_same() -> None:
    engine, rows = projected(UncachedEngine, 100)
    assert engine.num_projected[0] == list(range(99, 0, -1))
    assert rows == 99 * 100 // 2


@pytest.mark.parametrize(
    "engine_of",
    [lambda made: ContiguousEngine(made, 1000), lambda made: PagedEngine(made, 1000, BLOCK)],
    ids=["contiguous", "paged"],
)
def test_with_a_cache_every_token_is_projected_once(engine_of: Callable[[Transformer], Engine]) -> None:
    engine, rows = projected(engine_of, 1000)
    assert engine.num_projected[0] == [1] * 999
    assert rows == 999


def test_the_sampler_draws_from_the_softmax() -> None:
    logits = np.log(np.array([0.1, 0.2, 0.7]))
    draws = [Sampler(temperature_fraction=1.0, seed=1).choose(logits, key, 0) for key in range(4000)]
    shares = np.bincount(draws, minlength=3) / len(draws)
    # Three standard deviations of a share of 0.5 in 4,000 draws.
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.7], atol=3 * 0.5 / np.sqrt(len(draws)))
    assert Sampler().choose(logits, 0, 0) == 2


def test_an_empty_plan_produces_nothing() -> None:
    assert UncachedEngine(transformer("gqa")).execute(StepPlan(chunks=())) == {}
