"""The colours of all pictures: plots of the ``plot`` extra and drawings of a page, in light and dark.

The series are told apart by people with any common kind of colour blindness; pieces also have an outline, an order
and a label, so that nothing is said by colour alone.
"""

from __future__ import annotations

from typing import Final

SERIES: Final = ("#2a78d6", "#1baf7a", "#eda100", "#4a3aa7", "#e34948", "#eb6834")
SERIES_ON_DARK: Final = ("#5b9df0", "#2fd09a", "#ffc24d", "#7d68e8", "#d43c3b", "#eb8a5e")
"""The same, where those on light would sink into a dark ground."""
INK: Final = "#333333"
GRID: Final = "#dddddd"
GREY: Final = "#bbbbbb"
ALERT: Final = SERIES[4]


def colours(number: int) -> list[str]:
    """Return so many colours, from the start again where there are too few."""
    return [SERIES[index % len(SERIES)] for index in range(number)]
