"""What a call costs: CPU time of whole processes, as a ratio to ``python -c pass``. Recorded, never asserted."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path

RUNS = 21
COMMANDS = {
    "infcalc --help": ["--help"],
    "infcalc kv": ["kv"],
    "infcalc kv --json": ["kv", "--json"],
    "infcalc kv --model deepseek-v3 --gpus 8": ["kv", "--model", "deepseek-v3", "--gpus", "8"],
    "infcalc concurrency": ["concurrency"],
    "infcalc roofline": ["roofline"],
    "infcalc speculate": ["speculate"],
}


def cpu_seconds(command: list[str]) -> list[float]:
    """Return the CPU seconds of several runs of one process."""
    times = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)  # noqa: S603 - own
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return times


def main() -> None:
    """Print minimum and median CPU time of each command and its ratio to an empty interpreter."""
    infcalc = str(Path(sys.executable).parent / "infcalc")
    base = cpu_seconds([sys.executable, "-c", "pass"])
    print(f"{'command':44} {'min ms':>7} {'median':>7} {'x pass (min)':>13} {'x pass (median)':>16}")
    for name, arguments in {"python -c pass": None, **COMMANDS}.items():
        times = base if arguments is None else cpu_seconds([infcalc, *arguments])
        low, middle = min(times), statistics.median(times)
        ratios = f"{low / min(base):13.1f} {middle / statistics.median(base):16.1f}"
        print(f"{name:44} {low * 1e3:7.1f} {middle * 1e3:7.1f} {ratios}")


if __name__ == "__main__":
    main()
