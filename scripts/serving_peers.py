"""Draw how published runs lie about their predictions: write infcalc/api/peer_table.py, or check it (``--check``).

For each class of ``bands`` with enough clusters of enough sources, quantiles of measured over predicted: what the
position of one more measurement among them is read off. Weights are those of the bands.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))

from serving_bands import TABLES, Figure, figures, recorded_cases

from infcalc.api.bands import pools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.validating_serving import ServingCase

TABLE = Path(__file__).resolve().parent.parent / "infcalc" / "api" / "peer_table.py"
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_LEAST_CLUSTERS = 6
_LEAST_SOURCES = 3
_HEAD = '''"""Published runs about their predictions: quantiles of measured over predicted, by quantity and class. Data.

Written by ``scripts/serving_peers.py`` from tests/published/serving_measured.yaml; the class without a name is of all.
Each class has its number of figures, of clusters (runs of one source, model and GPU), and the ratios below which each
of ``SHARES`` of the figures lies.
"""

from typing import Final

SHARES: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
# fmt: off
PEERS: Final[dict[str, dict[str, tuple[int, int, tuple[float, ...]]]]] = {
'''


def quantiles(members: Sequence[Figure]) -> tuple[float, ...]:
    """Return the ratios below which each of :data:`SHARES` of the figures lies; a cluster weighs as the root of its."""
    sizes: dict[str, int] = {}
    for one in members:
        sizes[one.cluster] = sizes.get(one.cluster, 0) + 1
    ordered = sorted((one.log_ratio, 1 / math.sqrt(sizes[one.cluster])) for one in members)
    total = sum(weight for _, weight in ordered)
    places, below = [], 0.0
    for value, weight in ordered:
        places.append(((below + 0.5 * weight) / total, value))
        below += weight
    return tuple(round(math.exp(_at(places, share)), 3) for share in SHARES)


def _at(places: list[tuple[float, float]], share: float) -> float:
    if share <= places[0][0]:
        return places[0][1]
    for (left, low), (right, high) in itertools.pairwise(places):
        if share <= right:
            return low + (high - low) * (share - left) / (right - left)
    return places[-1][1]


def drawn(cases: Sequence[ServingCase]) -> dict[str, dict[str, tuple[int, int, tuple[float, ...]]]]:
    """Return the quantiles by quantity and class, of classes that rest on enough, and of all figures."""
    found: dict[str, dict[str, tuple[int, int, tuple[float, ...]]]] = {}
    for quantity in TABLES:
        named: dict[str, list[Figure]] = {}
        for one in figures(cases, quantity):
            for name in pools(one.name):
                named.setdefault(name, []).append(one)
        rows = {}
        for name, members in sorted(named.items()):
            clusters = len({one.cluster for one in members})
            if clusters >= _LEAST_CLUSTERS and len({one.source for one in members}) >= _LEAST_SOURCES:
                rows[name] = (len(members), clusters, quantiles(members))
        if rows:
            found[quantity] = rows
    return found


def table(cases: Sequence[ServingCase]) -> str:
    """Return the text of infcalc/api/peer_table.py."""
    lines = [_HEAD]
    for quantity, rows in drawn(cases).items():
        lines.append(f'    "{quantity}": {{\n')
        for name, (number, clusters, ratios) in rows.items():
            ratios_text = ", ".join(f"{ratio}" for ratio in ratios)
            lines.append(f'        "{name}": ({number}, {clusters}, (\n            {ratios_text},\n        )),\n')
        lines.append("    },\n")
    return "".join([*lines, "}\n"])


def main() -> int:
    """Write the table, or check it."""
    text = table(recorded_cases())
    if "--check" in sys.argv[1:]:
        if TABLE.read_text(encoding="utf-8") != text:
            print("infcalc/api/peer_table.py is stale: run python scripts/serving_peers.py")
            return 1
        return 0
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
