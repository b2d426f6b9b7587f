"""Work for every setup, over the cores of this machine: in the order of the setups, whoever did it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infcalc.api.plan_search import Field

T = TypeVar("T")
R = TypeVar("R")

_FEW = 48
"""Items for which starting processes takes longer than it saves."""
_CHUNK = 8
_AT_WORK: dict[str, object] = {}
"""What the processes of a pool inherit: the catalog need not be sent to them."""


def over_cores(
    field: Field,
    work: Callable[[Field, T], R],
    items: Sequence[T],
    *,
    num_workers: int | None = None,
    few: int = _FEW,
    done: Callable[[int], None] | None = None,
) -> list[R]:
    """Return ``work(field, item)`` of each item; ``done`` is told how many are done.

    ``num_workers``: processes; None: the cores that this process may use. One, few items, or a system that cannot fork:
    all in this process.
    """
    number = num_workers or _cores()
    if number <= 1 or len(items) < few or "fork" not in multiprocessing.get_all_start_methods():
        alone = []
        for item in items:
            alone.append(work(field, item))
            if done is not None:
                done(len(alone))
        return alone
    _AT_WORK["field"], _AT_WORK["work"] = field, work
    found: list[R] = []
    try:
        with multiprocessing.get_context("fork").Pool(min(number, len(items)), _leave_interrupts) as pool:
            each = max(1, min(_CHUNK, len(items) // number))
            results: Iterator[R] = pool.imap(_one, items, chunksize=each)  # type: ignore[arg-type]
            for result in results:
                found.append(result)
                if done is not None:
                    done(len(found))
    finally:
        _AT_WORK.clear()
    return found


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the process that waits for the answers: it ends the others, who else would each complain."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _one(item: object) -> object:
    work: Callable[[object, object], object] = _AT_WORK["work"]  # type: ignore[assignment]
    return work(_AT_WORK["field"], item)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
