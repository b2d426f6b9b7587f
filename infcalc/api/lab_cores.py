"""How many cores this process may use: asked before numpy is there, which reads the number of its threads but once."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Return the cores that the system lets this process use, or all of the computer where it does not tell."""
    # Not every system tells which cores a process may use.
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1
