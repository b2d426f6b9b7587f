"""Random loads, schedulers and timers: small enough for the plain simulation, and full of the rare."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.batch_shape import BatchShape
from infcalc.simulation.request import Request, Span
from infcalc.simulation.timing import AffineTimer, Line, SteadyTimer, StepTimer
from tests.simulation.test_timing import engine


class MadeUpTimer:
    """Every part of the shape changes the time, and lines end every ``stretch`` tokens."""

    def __init__(self, stretch: int) -> None:
        self.stretch = stretch

    def __call__(self, shape: BatchShape) -> int:
        chunks = [(one.new_tokens, one.cached_tokens) for one in shape.prefills]
        total = shape.decode_context_tokens
        plain = self.line(shape.num_decodes, total).at(total) if shape.num_decodes else 0
        return plain + (self.chunks_ps(shape.num_decodes, chunks) if chunks else 0)

    def line(self, num_decodes: int, total_tokens: int) -> Line:
        part = total_tokens // self.stretch
        return Line(
            first_tokens=part * self.stretch,
            last_tokens=(part + 1) * self.stretch - 1,
            base_ps=1000 + 7 * num_decodes + 11 * part,
            ps_per_token=1 + part % 3,
        )

    def chunks_ps(self, num_decodes: int, chunks: Sequence[tuple[int, int]]) -> int:
        return 3 * sum(new * (cached + 1) for new, cached in chunks) + (5 if num_decodes else 900)


@dataclass(frozen=True)
class Case:
    what: str
    make: Callable[[], Scheduler]
    load: list[Request]
    timer: AffineTimer


def case_of(seed: int) -> Case:
    chance = random.Random(seed)  # noqa: S311 - no secret
    block = chance.choice([1, 2, 3, 4, 8, 16])
    longest = chance.choice([6, 20, 60, 150])
    blocks = -(-2 * longest // block) + chance.choice([0, 1, 3, 10, 40, 200])
    seats = chance.choice([1, 2, 3, 4, 8, 20])
    cached = chance.random() < 0.7
    kind = chance.choice(["static", "continuous", "vllm", "vllm", "vllm"])
    budget = chance.choice([1, 3, 8, 12, 16, 40, 300])
    whole = chance.random() < 0.15
    limits = VllmLimits(
        max_num_seqs=seats,
        budget_tokens=2 * longest if whole else budget,
        max_model_len=chance.choice([None, None, longest, 2 * longest]),
        chunked_prefill=not whole,
        long_prefill_tokens=chance.choice([0, 0, 1, 3, 10]),
        reserve_full_sequence=chance.random() < 0.75,
        watermark_fraction=chance.choice([0.0, 0.0, 0.1]),
    )

    def make() -> Scheduler:
        kv = KvCacheManager(blocks + 1, block, prefix_caching=cached)
        if kind == "static":
            return StaticScheduler(kv, max_num_seqs=seats)
        if kind == "continuous":
            return ContinuousScheduler(kv, max_num_seqs=seats)
        return VllmScheduler(kv, limits)

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
    return Case(f"{seed} {kind} {limits if kind == 'vllm' else seats}", make, load(chance, longest, pace), timer)


def load(chance: random.Random, longest: int, pace: int) -> list[Request]:
    sharing = chance.choice([0.0, 0.5, 0.9])
    texts = chance.choice([1, 2, 4])
    answers = chance.choice([1, 2, longest, longest, longest])
    now = 0
    made: list[Request] = []
    for _ in range(chance.choice([1, 3, 10, 30, 30])):
        now += chance.choice([0, chance.randint(0, 2 * pace)])
        prompt, answer = chance.randint(1, longest), chance.randint(1, answers)
        spans: list[Span] = []
        left = prompt
        while left and chance.random() < sharing and len(spans) < 4:
            size = left if chance.random() < 0.3 else chance.randint(1, left)
            spans.append(Span(text=chance.randrange(texts), num_tokens=size))
            left -= size
        if made and chance.random() < sharing / 3:
            spans, prompt = next_turn(chance, made)
        made.append(
            Request(
                arrival_ps=now,
                prompt_tokens=prompt,
                output_tokens=answer,
                max_output_tokens=answer + chance.choice([0, 0, 1, longest]),
                spans=tuple(spans),
                answer=chance.choice([None, 0, 1, 7]),
            )
        )
    if chance.random() < 0.2:
        chance.shuffle(made)
    return made


def next_turn(chance: random.Random, made: list[Request]) -> tuple[list[Span], int]:
    """Return a prompt that repeats an earlier one and its answer."""
    before = chance.choice(made)
    spans = list(before.spans)
    if not before.own_tokens and before.answer is not None:
        spans.append(Span(text=before.answer, num_tokens=chance.randint(1, before.output_tokens)))
    prompt = sum(span.num_tokens for span in spans) + chance.randint(0, 3)
    return (spans, prompt) if prompt else ([], 1)
