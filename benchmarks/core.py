"""What the core costs once it is loaded: answers per second, and operations counted. Recorded, never asserted."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from infcalc.api.bounds import roofline
from infcalc.api.deployment import Ask, resolve
from infcalc.api.sizing import kv
from infcalc.catalog.codec import model_from_mapping
from infcalc.files import load_catalog
from infcalc.lowering.tensors import inventory
from infcalc.memory.kv import kv_components, sequence_bytes
from infcalc.memory.weights import weights_per_stage
from infcalc.roofline.step import points
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.parallelism import Parallelism

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 5


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
        ("kv(), catalog loading included", 1, lambda: kv(Ask())),
        ("roofline(), catalog loading included", 1, lambda: roofline(Ask())),
    ]
    print(f"{'part':42} {'ms':>8} {'us each':>9}")
    for what, number, work in rows:
        seconds = best_seconds(work)
        print(f"{what:42} {seconds * 1e3:8.2f} {seconds / number * 1e6:9.1f}")


if __name__ == "__main__":
    main()
