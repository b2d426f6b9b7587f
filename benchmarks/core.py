"""What the core costs once it is loaded: answers per second, and operations counted. Recorded, never asserted."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import numpy as np

from infcalc.api.bounds import roofline
from infcalc.api.deployment import Ask, resolve
from infcalc.api.sizing import kv
from infcalc.catalog.codec import model_from_mapping
from infcalc.files import load_catalog
from infcalc.lowering.tensors import inventory
from infcalc.memory.kv import kv_components, sequence_bytes
from infcalc.memory.weights import weights_per_stage
from infcalc.roofline.clock import StepClock
from infcalc.roofline.curves import curves_of
from infcalc.roofline.step import points
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.parallelism import Parallelism

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 5
STEPS = 1_000
POINTS = 10_000
ALONE = f"{STEPS:,} mixed steps of it, one by one"
MANY = f"{POINTS:,} mixed steps of it, one call"


def best_seconds(work: Callable[[], object]) -> float:
    """Return the least CPU time of a few runs."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Print what each part of the core costs, over the whole catalog where that is its input."""
    catalog = load_catalog()
    names = catalog.model_names()
    models = [catalog.model(name).model for name in names]
    bf16 = KV_FORMATS["bf16"]
    reference = resolve(Ask(), catalog)[0]
    mappings = [catalog.mapping("models", name) for name in names]
    tensors = sum(len(inventory(model)) for model in models)
    curves = curves_of(reference.gpu, catalog.efficiency(reference.gpu))

    def compiled() -> StepClock:
        return StepClock(reference.model, curves, parallelism=reference.parallelism)

    clock = compiled()
    decodes = np.arange(1, POINTS + 1)
    prefills = decodes % 2

    def many() -> object:
        return clock.step_s(num_decodes=decodes, context_tokens=4096, num_prefills=prefills, new_tokens=512)

    def alone() -> object:
        return [clock.step_s(num_decodes=8, context_tokens=4096, num_prefills=1, new_tokens=512) for _ in range(STEPS)]

    print(f"{len(models)} models, {tensors} tensor groups, {len(json.dumps(mappings)):,} bytes of catalog")
    rows: list[tuple[str, int, Callable[[], object]]] = [
        ("load the compiled catalog", 1, load_catalog),
        ("decode every model", len(models), lambda: [model_from_mapping("m", mapping) for mapping in mappings]),
        ("weight inventory of every model", len(models), lambda: [inventory(model) for model in models]),
        (
            "weight bytes per GPU of every model",
            len(models),
            lambda: [weights_per_stage(model, Parallelism()) for model in models],
        ),
        (
            "KV bytes at 128k of every model",
            len(models),
            lambda: [sequence_bytes(kv_components(model, bf16), 131_072) for model in models],
        ),
        (
            "24 roofline points of Llama 3 70B",
            24,
            lambda: points(reference.model, reference.gpu, parallelism=reference.parallelism),
        ),
        ("step clock of Llama 3 70B, compiled", 1, compiled),
        (ALONE, STEPS, alone),
        (MANY, POINTS, many),
        ("kv(), catalog loading included", 1, lambda: kv(Ask())),
        ("roofline(), catalog loading included", 1, lambda: roofline(Ask())),
    ]
    print(f"{'part':42} {'ms':>8} {'us each':>9}")
    each: dict[str, float] = {}
    for what, number, work in rows:
        seconds = best_seconds(work)
        each[what] = seconds / number
        print(f"{what:42} {seconds * 1e3:8.2f} {each[what] * 1e6:9.1f}")
    kinds = len(clock.parts(num_decodes=8, context_tokens=4096, num_prefills=1, new_tokens=512))
    gain = each[ALONE] / each[MANY]
    print(f"a mixed step prices {kinds} kinds of kernels and messages; as one of {POINTS:,} it costs 1/{gain:.0f}")


if __name__ == "__main__":
    main()
