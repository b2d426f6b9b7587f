"""Which arithmetic a transformer uses: the same bits in any batch, or whatever is fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.reference.attention import dense, row_by_row, tiled
from infcalc.reference.projection import all_rows, each_row

if TYPE_CHECKING:
    from infcalc.reference.attention import Attend
    from infcalc.reference.projection import Project


@frozen
class Arithmetic:
    """How rows go through linear layers, and how queries attend."""

    project: Project
    attend: Attend


EXACT = Arithmetic(project=each_row, attend=row_by_row)
"""A row has the same bits in any batch, chunk or cache."""
BATCHED = Arithmetic(project=all_rows, attend=dense)
"""One product per layer, and the whole matrix of scores: equal to rounding only."""
FLASH = Arithmetic(project=all_rows, attend=tiled)
"""One product per layer, and attention in tiles: equal to rounding only."""
