"""Random loads whose answers are drafted: every kind of head, law, cache and limit, and all that is rare."""

from __future__ import annotations

import random
from dataclasses import dataclass

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.drafts import Drafts
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.batch_shape import BatchShape
from infcalc.simulation.chance import AcceptanceChance
from infcalc.simulation.timing import AffineTimer, SteadyTimer, StepTimer
from tests.simulation.fast.cases import Case, MadeUpTimer, load
from tests.simulation.test_timing import engine


@dataclass(frozen=True)
class DraftedCase(Case):
    chance: AcceptanceChance


def drafted_case(seed: int) -> DraftedCase:
    chance = random.Random(seed)  # noqa: S311 - no secret
    block = chance.choice([1, 2, 3, 4, 8, 16])
    longest = chance.choice([6, 20, 60, 150])
    length = chance.choice([1, 2, 3, 5, 8])
    drafts = Drafts(num_tokens=length, num_lookahead_tokens=chance.choice([0, length, length]))
    blocks = -(-(2 * longest + drafts.num_slots) // block) + chance.choice([0, 1, 3, 10, 40, 200])
    seats = chance.choice([1, 2, 3, 4, 8, 20])
    cached, drops = chance.random() < 0.7, chance.random() < 0.5
    kind = chance.choice(["static", "continuous", "vllm", "vllm", "vllm"])
    budget = seats * (1 + length) + chance.choice([0, 1, 3, 8, 40, 300])
    whole = chance.random() < 0.15
    limits = VllmLimits(
        max_num_seqs=seats,
        budget_tokens=max(budget, 2 * longest) if whole else budget,
        max_model_len=chance.choice([None, None, longest, 2 * longest]),
        chunked_prefill=not whole,
        reserve_full_sequence=chance.random() < 0.75,
        watermark_fraction=chance.choice([0.0, 0.0, 0.1]),
    )
    alpha = chance.choice([0.0, 0.3, 0.7, 0.9, 1.0])
    law = AcceptanceChance(seed=seed, rates=tuple(alpha**position for position in range(1, length + 1)))

    def make() -> Scheduler:
        kv = KvCacheManager(blocks + 1, block, prefix_caching=cached, drop_last_hit=cached and drops)
        if kind == "static":
            return StaticScheduler(kv, max_num_seqs=seats, drafts=drafts)
        if kind == "continuous":
            return ContinuousScheduler(kv, max_num_seqs=seats, drafts=drafts)
        return VllmScheduler(kv, limits, drafts=drafts)

    timers: list[AffineTimer] = [
        SteadyTimer(1000),
        SteadyTimer(1),
        MadeUpTimer(64),
        MadeUpTimer(10**9),
        StepTimer(engine),
    ]
    timer = chance.choice(timers)
    step = timer(BatchShape(num_decodes=2, decode_context_tokens=longest))
    pace = chance.choice([0, 0, 1, 5, 30, 200]) * step // 4
    what = f"{seed} {kind} {limits if kind == 'vllm' else seats} {drafts} drops={drops}"
    return DraftedCase(what, make, load(chance, longest, pace), timer, law)
