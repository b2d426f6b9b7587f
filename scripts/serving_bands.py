"""Draw the bands of the time model from published runs: write infcalc/api/band_table.py, or check it (``--check``).

A band is two quantiles of measured over predicted in one class. Classes nest: kind; whether the GPU's kernels were
measured; era of the engine. The narrowest class with enough clusters of enough sources is used, else the next wider.
How far out quantiles lie is chosen so that, drawn without a cluster, they hold eight of ten of its figures: the runs
of one source, model and GPU are never on both sides. Each cluster weighs as the root of its number of figures.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from infcalc import files
from infcalc.api.bands import pools, table_of
from infcalc.api.validating_serving import AT_RATE, QUANTITIES, validated_serving

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from infcalc.api.validating_serving import ServingCase

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "tests" / "published" / "serving_measured.yaml"
TABLE = ROOT / "infcalc" / "api" / "band_table.py"
GOAL = 0.8
LEAST, MOST = 0.72, 0.88
_TAILS = tuple(step / 200 for step in range(1, 31))
_NARROWEST = 0.05
_LEAST_CLUSTERS = 6
_LEAST_SOURCES = 3
_EVERY = ""
_LEAST_CLUSTERS_OF_ALL = 12
DRAWN = tuple(name for name in QUANTITIES if name != "e2e_s")
"""The band of a whole request is that of its parts."""
TABLES = tuple(dict.fromkeys(table_of(name, at_rate=paced) for name in DRAWN for paced in (False, True)))
_HEAD = '''"""Bands of the time model by quantity and class: measured over predicted, low and high. Data, see ``bands``.

Written by ``scripts/serving_bands.py`` from tests/published/serving_measured.yaml; the class without a name is of all.
"""

from typing import Final

BANDS: Final[dict[str, dict[str, tuple[float, float]]]] = {
'''


class Figure(NamedTuple):
    """One measured figure: its class, where it comes from, and measured over predicted as a logarithm."""

    name: str
    source: str
    cluster: str
    log_ratio: float


class Pool(NamedTuple):
    """The band of one class, and the share of its figures that bands drawn without their cluster hold."""

    low: float
    high: float
    tail: float
    num_figures: int
    num_clusters: int
    num_sources: int
    held_out_coverage: float


def figures(cases: Iterable[ServingCase], name: str) -> list[Figure]:
    """Return the figures of a table of bands."""
    return [
        Figure(case.band_class, case.group, case.cluster, math.log(case.measured / case.predicted))
        for case in cases
        if case.measured and case.predicted and table_of(case.quantity, at_rate=case.load == AT_RATE) == name
    ]


def quantiles(members: Sequence[Figure], tail: float) -> tuple[float, float]:
    """Return the ratio below which a share ``tail`` of the figures lies, and that above which one lies."""
    sizes: dict[str, int] = {}
    for one in members:
        sizes[one.cluster] = sizes.get(one.cluster, 0) + 1
    ordered = sorted((one.log_ratio, 1 / math.sqrt(sizes[one.cluster])) for one in members)
    total = sum(weight for _, weight in ordered)
    places: list[tuple[float, float]] = []
    below = 0.0
    for value, weight in ordered:
        places.append(((below + 0.5 * weight) / total, value))
        below += weight
    low, high = (math.exp(_at(places, share)) for share in (tail, 1 - tail))
    return min(low, 1 - _NARROWEST), max(high, 1 + _NARROWEST)


def _at(places: list[tuple[float, float]], share: float) -> float:
    first, last = places[0], places[-1]
    if share <= first[0]:
        return first[1]
    for (left, low), (right, high) in itertools.pairwise(places):
        if share <= right:
            return low + (high - low) * (share - left) / (right - left)
    return last[1]


def without(members: Sequence[Figure], cluster: str) -> list[Figure]:
    """Return the figures of other clusters."""
    return [one for one in members if one.cluster != cluster]


def held(members: Iterable[Figure], low: float, high: float) -> int:
    """Return how many figures lie in a band."""
    return sum(low <= math.exp(one.log_ratio) <= high for one in members)


def held_out_coverage(members: Sequence[Figure], tail: float) -> float:
    """Return the share of figures in bands that were drawn without their clusters."""
    inside = 0
    for cluster in sorted({one.cluster for one in members}):
        rest = without(members, cluster)
        if rest:
            inside += held((one for one in members if one.cluster == cluster), *quantiles(rest, tail))
    return inside / len(members)


def pool(members: Sequence[Figure]) -> Pool:
    """Return the band of one class, its quantiles as far out as held-out figures ask."""
    found = {tail: held_out_coverage(members, tail) for tail in _TAILS}
    tail = min(_TAILS, key=lambda one: (round(abs(found[one] - GOAL), 6), -one))
    low, high = quantiles(members, tail)
    return Pool(
        low=math.floor(low * 100) / 100,
        high=math.ceil(high * 100) / 100,
        tail=tail,
        num_figures=len(members),
        num_clusters=len({one.cluster for one in members}),
        num_sources=len({one.source for one in members}),
        held_out_coverage=found[tail],
    )


def drawn(cases: Sequence[ServingCase]) -> dict[str, dict[str, Pool]]:
    """Return the bands by table and class: of classes that rest on enough, and of all figures."""
    found: dict[str, dict[str, Pool]] = {}
    for quantity in TABLES:
        every = figures(cases, quantity)
        named: dict[str, list[Figure]] = {}
        for one in every:
            for name in pools(one.name):
                named.setdefault(name, []).append(one)
        made = {name: pool(members) for name, members in sorted(named.items())}
        found[quantity] = {name: one for name, one in made.items() if _enough(name, one)}
    return found


def _enough(name: str, one: Pool) -> bool:
    if name == _EVERY:
        return one.num_clusters >= _LEAST_CLUSTERS_OF_ALL
    return (
        one.num_clusters >= _LEAST_CLUSTERS
        and one.num_sources >= _LEAST_SOURCES
        and LEAST <= one.held_out_coverage <= MOST
    )


def held_out(cases: Sequence[ServingCase], made: Mapping[str, Mapping[str, Pool]]) -> dict[tuple[str, str], float]:
    """Return by table and kind the share of figures in bands that were drawn without their clusters.

    Each from the class that serves it, at that class's tail.
    """
    found: dict[tuple[str, str], float] = {}
    for table in TABLES:
        every = figures(cases, table)
        inside: dict[str, list[int]] = {}
        for cluster in sorted({one.cluster for one in every}):
            rest = without(every, cluster)
            bands: dict[str, tuple[float, float]] = {}
            for one in (one for one in every if one.cluster == cluster):
                name = next(name for name in pools(one.name) if name in made[table])
                if name not in bands:
                    others = [other for other in rest if name in pools(other.name)]
                    bands[name] = quantiles(others, made[table][name].tail) if others else (0.0, 0.0)
                inside.setdefault(pools(one.name)[-2], []).append(held([one], *bands[name]))
        found |= {(table, kind): sum(each) / len(each) for kind, each in inside.items()}
    return found


def table(made: Mapping[str, Mapping[str, Pool]]) -> str:
    """Return the text of infcalc/api/band_table.py."""
    lines = [_HEAD]
    for quantity, bands in made.items():
        if not bands:
            continue
        lines.append(f'    "{quantity}": {{\n')
        lines += [f'        "{name}": ({one.low}, {one.high}),\n' for name, one in bands.items()]
        lines.append("    },\n")
    return "".join([*lines, "}\n"])


def recorded_cases() -> tuple[ServingCase, ...]:
    """Return the cases of the published runs."""
    entries = files.read_yaml(str(RUNS))
    if not isinstance(entries, list):
        raise TypeError(RUNS)
    return validated_serving(entries, files.load_catalog()).cases


def main() -> int:
    """Write the table, or check it."""
    text = table(drawn(recorded_cases()))
    if "--check" in sys.argv[1:]:
        if TABLE.read_text(encoding="utf-8") != text:
            print("infcalc/api/band_table.py is stale: run python scripts/serving_bands.py")
            return 1
        return 0
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
