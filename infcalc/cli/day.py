"""The day that prices are held against."""

from __future__ import annotations

import os
import time


def today() -> str:
    """Return the day in ISO form: that of ``SOURCE_DATE_EPOCH``, which fixes outputs, else of the clock (UTC)."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = int(fixed) if fixed.isdecimal() and len(fixed) <= _MOST_DIGITS else time.time()
    return time.strftime("%Y-%m-%d", time.gmtime(moment))


_MOST_DIGITS = 11
"""Seconds of some three thousand years: more are no date."""
