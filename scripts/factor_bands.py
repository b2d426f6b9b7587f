"""Print how well ratios of two runs are predicted: the bands of the factors of ``infcalc what-if``.

Taken are pairs of published runs of one source under the same load, on the same kind of GPU, of which weights, KV
precision or the split over GPUs alone differ (or the model, where it is named by its precision). The band is the factor
within which eight of ten predicted ratios lie of the measured ones.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from infcalc import files
from infcalc.api.validating_serving import ServingCase, validated_serving

RUNS = Path(__file__).parents[1] / "tests" / "published" / "serving_measured.yaml"
SHARE = 0.8
_CHANGES = (
    {"weights"},
    {"kv_precision"},
    {"split"},
    {"weights", "kv_precision"},
    {"model", "weights"},
    {"model", "weights", "kv_precision"},
)


def errors(entries: Iterable[Mapping[str, Any]], cases: Iterable[ServingCase], quantity: str) -> list[float]:
    """Return how far each predicted ratio is from the measured one, as a factor of 1 or more, rising."""
    by_id = {entry["id"]: entry for entry in entries}
    groups: dict[tuple[str, str], list[tuple[ServingCase, Mapping[str, Any]]]] = defaultdict(list)
    for case in cases:
        if case.quantity == quantity and case.measured and case.predicted:
            entry = by_id[case.id]
            groups[entry["group"], str(sorted(entry["workload"].items()))].append((case, entry))
    found = []
    for members in groups.values():
        for (one, first), (other, second) in itertools.combinations(members, 2):
            if _changed(first, second) in _CHANGES:
                predicted, measured = _ratio(one.predicted, other.predicted), _ratio(one.measured, other.measured)
                found.append(math.exp(abs(math.log(predicted / measured))))
    return sorted(found)


def band(found: list[float]) -> float:
    """Return the factor that eight of ten lie within.

    >>> band([1.0, 1.1, 1.2, 1.3, 2.0])
    1.3
    """
    return found[math.ceil(SHARE * len(found)) - 1]


def _changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    found = {key for key in ("weights", "kv_precision", "gpu", "engine") if one.get(key) != other.get(key)}
    if one["model"].split("/")[-1] != other["model"].split("/")[-1]:
        found.add("model")
    if (one.get("gpus"), one["parallel"]) != (other.get("gpus"), other["parallel"]):
        found.add("split")
    return found


def _ratio(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        raise AssertionError("both were checked")
    return one / other


def main() -> None:
    """Print the bands."""
    entries = yaml.load(RUNS.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    cases = validated_serving(entries, files.load_catalog()).cases
    for quantity in ("tpot_s", "output_tokens_per_s", "ttft_s", "e2e_s"):
        found = errors(entries, cases, quantity)
        print(f"{quantity}: {len(found)} pairs, median {found[len(found) // 2]:.3f}, eight of ten {band(found):.3f}")


if __name__ == "__main__":
    main()
