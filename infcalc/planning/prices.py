"""Which of a GPU's dated prices stands for it, and whether it is too old to be believed.

List prices move within weeks, and differ by a factor of four between providers for the same part. So neither the
cheapest nor the newest alone stands for a GPU, but the middle one of those that are about as new as the newest.
"""

from __future__ import annotations

import math
import re
from datetime import date
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.spec.hardware import Price

STALE_DAYS = 90
"""A list price older than this is said to be old: some moved by a third within a quarter (AWS P4 and P5, June 2025)."""
_MONTH_DAYS = 31
_DATE = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d{2})(?:-(?P<day>\d{2}))?)?")


@frozen
class Standing:
    """The price that stands for a GPU, and the range of those it was chosen from.

    ``low_usd_per_hour`` and ``high_usd_per_hour`` are the ends of all ``num_prices`` that are about as new.
    """

    price: Price
    num_prices: int
    low_usd_per_hour: float
    high_usd_per_hour: float


def day_of(text: str) -> date | None:
    """Return the first day that a written date can mean; None where it says that there is none.

    >>> day_of("2026-10"), day_of("2026 (early)"), day_of("undated (2026 page)")
    (datetime.date(2026, 10, 1), datetime.date(2026, 1, 1), None)
    """
    found = None if text.strip().lower().startswith("undated") else _DATE.match(text.strip())
    if found is None:
        return None
    try:
        return date(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))
    except ValueError:
        return None


def middle_usd_per_hour(price: Price) -> float:
    """Return one figure of a price; of a range the geometric mean, as far from one end as from the other."""
    return math.sqrt(price.usd_per_hour * (price.usd_per_hour_high or price.usd_per_hour))


def standing_of(prices: tuple[Price, ...]) -> Standing | None:
    """Return the middle one (of an even number the dearer of the two) of the prices within a month of the newest.

    What has no date stands only where nothing has one. None without prices.
    """
    if not prices:
        return None
    newest = max((day for day in map(_day, prices) if day is not None), default=None)
    fresh = [one for one in prices if newest is None or _within_a_month(one, newest)]
    ordered = sorted(fresh, key=lambda one: (middle_usd_per_hour(one), _day(one) or date.min))
    return Standing(
        price=ordered[len(ordered) // 2],
        num_prices=len(ordered),
        low_usd_per_hour=min(one.usd_per_hour for one in ordered),
        high_usd_per_hour=max(one.usd_per_hour_high or one.usd_per_hour for one in ordered),
    )


def age_warning(name: str, written: str, today: str) -> str | None:
    """Return what is to be said of the age of a GPU's price on the day ``today``, which is a date in ISO form.

    >>> age_warning("h100", "2026-05", "2026-11-30")
    'the price of h100 is 213 days old (2026-05), and prices move: give --price h100=USD'
    """
    now = date.fromisoformat(today)
    day = day_of(written)
    mend = f"give --price {name}=USD"
    if day is None:
        return f"the price of {name} has no date ({written or 'none stated'}), and prices move: {mend}"
    if (now - day).days > STALE_DAYS:
        return f"the price of {name} is {(now - day).days} days old ({written}), and prices move: {mend}"
    return None


def _day(price: Price) -> date | None:
    return day_of(price.date)


def _within_a_month(price: Price, newest: date) -> bool:
    day = _day(price)
    return day is not None and (newest - day).days <= _MONTH_DAYS
