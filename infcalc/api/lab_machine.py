"""What this computer says of itself: processor, memory, caches and the threads of its linear algebra."""

from __future__ import annotations

import os
import platform
import re

from infcalc.api.lab_cores import num_cores
from infcalc.errors import FileProblem
from infcalc.files import read_text
from infcalc.frozen import frozen
from infcalc.units import parse_quantity

_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_MOST_LEVELS = 8
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""What the libraries behind numpy obey, each before the next."""


@frozen
class Computer:
    """A computer as its operating system describes it; what it does not tell is None."""

    title: str
    architecture: str
    num_threads: int
    """Threads that numpy's linear algebra may use."""
    memory_bytes: int | None = None
    cache_bytes: int | None = None
    """The largest cache of the first core: of the last level, shared with other cores."""


def this_computer() -> Computer:
    """Return what the operating system says of the computer that this runs on."""
    return Computer(
        title=_title(),
        architecture=platform.machine() or "unknown",
        num_threads=_num_threads(),
        memory_bytes=_memory_bytes(),
        cache_bytes=_cache_bytes(),
    )


def _title() -> str:
    named = re.search(r"^model name\s*:\s*(.+?)\s*$", _read("/proc/cpuinfo"), re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine() or "unknown processor"


def _num_threads() -> int:
    for name in _THREADS:
        text = os.environ.get(name, "")
        if text.isdecimal() and int(text):
            return int(text)
    return num_cores()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _cache_bytes() -> int | None:
    sizes = [_read(f"{_CACHES}/index{index}/size").strip() for index in range(_MOST_LEVELS)]
    found = [parse_quantity(f"{size[:-1]} {size[-1]}iB", "bytes") for size in sizes if re.fullmatch(r"\d+[KMG]", size)]
    return round(max(found)) if found else None


def _read(path: str) -> str:
    try:
        return read_text(path)
    except FileProblem:
        return ""
