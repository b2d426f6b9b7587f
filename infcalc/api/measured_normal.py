"""Is mine normal? Where a measurement lies among published runs of its class, each relative to its own prediction."""

from __future__ import annotations

import itertools

from infcalc.api.bands import pools, table_of
from infcalc.api.peer_table import PEERS, SHARES
from infcalc.frozen import frozen


@frozen
class Position:
    """A place among published runs.

    ``slower_fraction`` of them are slower than this one, relative to what is predicted of each; it is not told closer
    than the least and the greatest share of the table, and ``open_end`` says that it lies beyond.
    """

    quantity: str
    peers: str
    """The class: kind, whether its GPU was measured, era of its engine; ``all`` where no class has enough."""
    num_figures: int
    num_clusters: int
    """Runs of one source, model and GPU each."""
    slower_fraction: float
    open_end: bool


def position(quantity: str, kind: str, ratio: float, *, at_rate: bool) -> Position | None:
    """Return where ``ratio``, measured over predicted, lies among published runs of class ``kind`` or a wider one.

    None for a quantity of which too little is published.

    >>> position("tpot_s", "NVIDIA dense", 0.5, at_rate=False).slower_fraction
    0.95
    """
    rows = PEERS.get(table_of(quantity, at_rate=at_rate)) or PEERS.get(quantity) or {}
    name = next((name for name in pools(kind) if name in rows), None)
    if name is None:
        return None
    number, clusters, ratios = rows[name]
    below = _share(ratio, ratios)
    # A time that is a greater multiple of its prediction is slower, a rate faster.
    slower = below if quantity.endswith("_per_s") else 1 - below
    return Position(
        quantity=quantity,
        peers=name or "all",
        num_figures=number,
        num_clusters=clusters,
        slower_fraction=round(slower, 3),
        open_end=not ratios[0] <= ratio <= ratios[-1],
    )


def _share(ratio: float, ratios: tuple[float, ...]) -> float:
    """Return the share of published ratios below one, linear between those of the table.

    >>> round(_share(1.0, (0.5, 0.9, 1.1, *[2.0] * 8)), 3)
    0.15
    """
    if ratio <= ratios[0]:
        return SHARES[0]
    for (low_share, low), (high_share, high) in itertools.pairwise(zip(SHARES, ratios, strict=True)):
        if ratio <= high:
            return low_share + (high_share - low_share) * ((ratio - low) / (high - low) if high > low else 1.0)
    return SHARES[-1]


def position_text(place: Position) -> str:
    """Return a place in words."""
    share = place.slower_fraction
    if place.open_end:
        told = "fewer than 5 %" if share < 0.5 else "more than 95 %"  # noqa: PLR2004 - the slower or the faster end
    else:
        told = f"{share:.0%}".replace("%", " %")
    peers = "published runs" if place.peers == "all" else f"published figures of its class ({place.peers})"
    return f"{told} of {place.num_figures} {peers} are slower, each relative to its own prediction"
