"""What traces cost: requests per second made, written, read and described. Recorded, never asserted."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import numpy as np

from infcalc.workload.arrivals import parse_arrivals
from infcalc.workload.description import length_summary, over_time, rates, shares
from infcalc.workload.generation import Recipe, generated
from infcalc.workload.lengths import parse_lengths
from infcalc.workload.reading import read_trace
from infcalc.workload.sessions import Sessions, parse_shared_prefixes
from infcalc.workload.writing import as_csv, as_json_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.workload.trace import Trace

REPEATS = 3
COUNTS = (100_000, 1_000_000)
FEW = 10**6
"""From so many requests on one run is enough."""


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the least CPU time of a few runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def recipe(count: int, *, shared: bool) -> Recipe:
    """Return a chat load, or one of sessions behind ten system prompts."""
    return Recipe(
        num_requests=count,
        arrivals=parse_arrivals("poisson:12"),
        own_tokens=parse_lengths("lognormal:mean=500,cv=1"),
        output_tokens=parse_lengths("lognormal:mean=240,cv=1"),
        prefixes=parse_shared_prefixes("num=10,tokens=1000,share=0.8") if shared else None,
        sessions=Sessions(turns=parse_lengths("uniform:min=1,max=5" if shared else "1"), think_s=30.0 * shared),
    )


def described(trace: Trace) -> None:
    """Compute all that the command shows."""
    rates(trace)
    length_summary(trace.input_tokens)
    length_summary(trace.output_tokens)
    over_time(trace)
    shares(trace)


def hashed(count: int) -> str:
    """Return JSON lines of requests with 24 block hashes each, as the traces of Mooncake have on average."""
    lines = []
    for number in range(count):
        ids = [*range(12), *range(100 + 12 * number, 112 + 12 * number)]
        lines.append(f'{{"timestamp": {80 * number}, "input_length": 12000, "output_length": 300, "hash_ids": {ids}}}')
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    # As the command does: a list of a million rows is no garbage.
    gc.disable()
    print(f"{'operation':52} {'requests':>10} {'s':>8} {'per second':>12}")
    for count in COUNTS:
        plain, shared = (generated(recipe(count, shared=flag), np.random.default_rng(1)) for flag in (False, True))
        table, lines, sessions = as_csv(plain), as_json_lines(plain), as_json_lines(shared)
        rows: list[tuple[str, Callable[[], object]]] = [
            ("made", lambda n=count: generated(recipe(n, shared=False), np.random.default_rng(1))),  # type: ignore[misc]
            ("made, sessions", lambda n=count: generated(recipe(n, shared=True), np.random.default_rng(1))),  # type: ignore[misc]
            ("written as CSV", lambda one=plain: as_csv(one)),  # type: ignore[misc]
            ("read from CSV", lambda text=table: read_trace(text, "x")),  # type: ignore[misc]
            ("read from JSON lines", lambda text=lines: read_trace(text, "x")),  # type: ignore[misc]
            ("written as JSON lines, sessions", lambda one=shared: as_json_lines(one)),  # type: ignore[misc]
            ("read from JSON lines, sessions", lambda text=sessions: read_trace(text, "x")),  # type: ignore[misc]
            ("described, sessions", lambda one=shared: described(one)),  # type: ignore[misc]
        ]
        if count == COUNTS[0]:
            blocks = hashed(count)
            rows.append(("read from JSON lines, 24 block hashes each", lambda text=blocks: read_trace(text, "x")))  # type: ignore[misc]
        for name, work in rows:
            seconds = best_seconds(work, REPEATS if count < FEW else 1)
            print(f"{name:52} {count:>10,} {seconds:>8.3f} {count / seconds:>12,.0f}")


if __name__ == "__main__":
    main()
