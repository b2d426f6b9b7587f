"""What an estimate costs a planner: CPU time through the library, and operations counted. Recorded, never asserted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from infcalc.api import Ask, Estimator, Offer, estimate
from infcalc.files import load_catalog
from infcalc.roofline.clock import StepClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from unittest.mock import _patch

REPEATS = 3
COUNT = 400
BATCHES = 10_000
GOAL_PER_S = 2_500
"""Estimates on one core."""
GOAL_BATCHES_PER_S = 10_000
"""Batches in one call."""


def least_seconds(work: Callable[[int], object], count: int) -> float:
    """Return the least CPU time of one call in a few rounds; each call is given another number."""
    best = float("inf")
    number = 0
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(count):
            number += 1
            work(number)
        best = min(best, (time.process_time() - start) / count)
    return best


def counted(work: Callable[[int], object], count: int) -> float:
    """Return the steps that the clock prices for one call."""
    from unittest.mock import patch  # noqa: PLC0415 - only to count

    priced = 0
    real = StepClock.step_s

    def step_s(clock: StepClock, **step: Any) -> Any:  # noqa: ANN401 - numbers or arrays
        nonlocal priced
        priced += 1
        return real(clock, **step)

    counting: _patch[Any] = patch.object(StepClock, "step_s", step_s)
    with counting:
        for number in range(1, count + 1):
            # Numbers that no round has asked for.
            work(10_000 + number)
    return priced / count


def main() -> None:
    """Print what each kind of load costs."""
    catalog = load_catalog()
    reference = Estimator(Ask(), catalog)
    experts = Estimator(Ask(models=("deepseek-v3",), gpus=("h200-sxm-141gb",), tp=8), catalog)
    sizes = np.arange(1, BATCHES + 1) % 200 + 1

    def lengths(number: int) -> dict[str, Any]:
        return {"input_tokens": 500 + number % 6000, "output_tokens": 100 + number % 400}

    rows: list[tuple[str, int, Callable[[int], object]]] = [
        (
            "one length, concurrency varies",
            COUNT,
            lambda number: reference.estimate(
                Offer(concurrency=1 + number % 250, input_tokens=1024, output_tokens=256)
            ),
        ),
        (
            "static batches of any length",
            COUNT,
            lambda number: reference.estimate(Offer(batch=1 + number % 150, **lengths(number))),
        ),
        (
            "closed loops of any length",
            COUNT,
            lambda number: reference.estimate(Offer(concurrency=1 + 7 * number % 150, **lengths(number))),
        ),
        ("most throughput at any length", COUNT, lambda number: reference.estimate(Offer(**lengths(number)))),
        (
            "one length, rate varies",
            COUNT,
            lambda number: reference.estimate(
                Offer(requests_per_s=0.2 + number % 90 / 30, input_tokens=1024, output_tokens=256)
            ),
        ),
        (
            "rates at any length",
            COUNT,
            lambda number: reference.estimate(Offer(requests_per_s=0.2 + number % 20 / 20, **lengths(number))),
        ),
        (
            "DeepSeek-V3 on 8 H200, closed loops",
            COUNT,
            lambda number: experts.estimate(Offer(concurrency=1 + 7 * number % 150, **lengths(number))),
        ),
        ("another deployment", 20, lambda _: Estimator(Ask(), catalog)),
        ("the full answer, estimate()", 10, lambda number: estimate(Ask(), Offer(**lengths(number)))),
    ]
    print(f"{'estimates':38} {'us each':>8} {'per s':>7} {'x goal':>7} {'steps priced':>13}")
    for what, count, work in rows:
        seconds = least_seconds(work, count)
        ratio = f"{1 / seconds / GOAL_PER_S:7.2f}" if count == COUNT else f"{'-':>7}"
        print(f"{what:38} {seconds * 1e6:8.0f} {1 / seconds:7.0f} {ratio} {counted(work, min(count, 100)):13.1f}")
    seconds = least_seconds(lambda number: reference.batches(sizes, Offer(**lengths(number))), 5)
    rate = BATCHES / seconds
    print(f"{BATCHES:,} batches in one call: {seconds * 1e3:.1f} ms, {rate / GOAL_BATCHES_PER_S:.0f} x the goal")


if __name__ == "__main__":
    main()
