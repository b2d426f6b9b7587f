"""What a simulation costs beside others that install from the package registry. Recorded, never asserted.

Whole processes over the same trace, in turns (A B A B): requests at random times (Poisson, 12 per second), lengths
lognormal, about 500 in and 240 out, Llama 3 8B on one A100, 256 sequences, 2,048 tokens per step, no prefix cache.
Each reads the trace from a file in the form that it takes, and writes its figures to one: means, percentiles and
rates, or with ``requests`` the times of every request too. A peer lives in an environment of its own, beside the one
that this runs in; one that does not install is left out, with the reason.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from simulation import PS_PER_S, RATE_PER_S, trace

SIZES = {10_000: 5, 100_000: 3}
"""Requests, and pairs of runs."""
BLOCKS, BLOCK_TOKENS, SEQUENCES, STEP_TOKENS = 28_000, 16, 256, 2048
HASHED_TOKENS = 512
"""Tokens that one hash of a trace of hashes stands for."""
SLOW = "step by step"
GOALS: dict[str, dict[int, float]] = {
    "dynamo replay 1.6.1": {10_000: 1.5, 100_000: 5},
    "sched-sim 0.2.1": {10_000: 10, 100_000: 35},
    SLOW: {10_000: 6, 100_000: 8},
}
DYNAMO = f"""
import json, sys
from dynamo.replay import run_trace_replay
engine = dict(backend="vllm", num_gpu_blocks={BLOCKS}, block_size={BLOCK_TOKENS}, max_num_seqs={SEQUENCES},
              max_num_batched_tokens={STEP_TOKENS}, enable_prefix_caching=False)
report = run_trace_replay(sys.argv[1], extra_engine_args=dict(engine=engine), trace_block_size={HASHED_TOKENS},
                          capture_per_request=sys.argv[2] == "requests")
with open(sys.argv[3], "w") as file:
    json.dump([report.summary, report.per_request], file)
"""
INSTALLED: dict[str, list[list[str]]] = {
    # What ai-dynamo itself depends on is not all on the registry; replay needs only its runtime.
    "dynamo replay 1.6.1": [["ai-dynamo-runtime==1.6.1"], ["--no-deps", "ai-dynamo==1.6.1"]],
    "sched-sim 0.2.1": [["sched-sim==0.2.1"]],
}


class Cost(NamedTuple):
    """What a process took."""

    cpu_s: float
    wall_s: float
    peak_mib: float


def cost_of(command: list[str], out: Path) -> Cost:
    """Return what a process takes; what it prints goes to a file.

    Raises:
        subprocess.CalledProcessError: it fails.

    """
    start = time.perf_counter()
    with out.open("w") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:  # noqa: S603
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out.read_text()[-2000:])
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - start, usage.ru_maxrss / 1024)


def installed(name: str) -> Path | None:
    """Return the folder of a peer's programs; None, and the reason is printed, where it does not install."""
    home = Path(sys.prefix) / "peers" / name.split(maxsplit=1)[0]
    programs = home / "bin"
    try:
        if not (home / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True, capture_output=True)  # noqa: S603
            for packages in INSTALLED[name]:
                command = [str(programs / "python"), "-m", "pip", "install", "--quiet", *packages]
                subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
            (home / "ready").touch()
    except subprocess.CalledProcessError as failed:
        told = (failed.stderr or failed.stdout or "").strip().splitlines()
        reason = next((line for line in told if line.startswith("ERROR")), told[-1] if told else "no reason given")
        print(f"{name:20} left out: it does not install ({reason})")
        return None
    return programs


def write_traces(count: int, folder: Path) -> None:
    """Write the trace in the forms that the simulators take."""
    load = trace(count, RATE_PER_S, shared=False)
    columns = (load.arrival_ps.tolist(), load.prompt_tokens.tolist(), load.output_tokens.tolist())
    rows = [(arrival / PS_PER_S, prompt, answer) for arrival, prompt, answer in zip(*columns, strict=True)]
    with (folder / f"{count}.csv").open("w") as file:
        file.write("timestamp_s,input_tokens,output_tokens\n")
        file.writelines(f"{arrival!r},{prompt},{answer}\n" for arrival, prompt, answer in rows)
    listed = [
        {"id": str(place), "timestamp": arrival, "prompt_tokens": prompt, "output_tokens": answer}
        for place, (arrival, prompt, answer) in enumerate(rows)
    ]
    (folder / f"{count}.json").write_text(json.dumps(listed))
    number = 0
    with (folder / f"{count}.jsonl").open("w") as file:
        for arrival, prompt, answer in rows:
            # No two prompts share a hash.
            hashes = list(range(number, number + -(-prompt // HASHED_TOKENS)))
            number += len(hashes)
            line = {"timestamp": arrival * 1000, "input_length": prompt, "output_length": answer, "hash_ids": hashes}
            file.write(json.dumps(line) + "\n")


def own(count: int, folder: Path, *more: str) -> list[str]:
    """Return the command of this project."""
    infcalc = str(Path(sys.executable).parent / "infcalc")
    deployment = ["--model", "llama3-8b", "--gpu", "a100-80gb", "--gpus", "1", "--no-prefix-caching"]
    limits = ["--slots", str(SEQUENCES), "--max-num-batched-tokens", str(STEP_TOKENS)]
    return [infcalc, "simulate", str(folder / f"{count}.csv"), *deployment, *limits, "--json", *more]


def dynamo(programs: Path, count: int, folder: Path, kept: str) -> list[str]:
    """Return the command of Dynamo's replay."""
    return [str(programs / "python"), "-c", DYNAMO, str(folder / f"{count}.jsonl"), kept, str(folder / "dynamo.json")]


def sched_sim(programs: Path, count: int, folder: Path) -> list[str]:
    """Return the command of sched-sim, whose report is its figures."""
    steps = ["--token-budget", str(STEP_TOKENS), "--no-gantt"]
    return [str(programs / "sched-sim"), "trace", str(folder / f"{count}.json"), "--hardware", "a100", *steps]


def compare(name: str, count: int, mine: list[str], theirs: list[str], out: Path) -> None:
    """Print what both take, and how many times as much the other does: the median of the pairs."""
    pairs = 1 if name == SLOW and count > min(SIZES) else SIZES[count]
    taken = [(cost_of(mine, out), cost_of(theirs, out)) for _ in range(pairs)]
    own_cost, other = (middle([pair[side] for pair in taken]) for side in (0, 1))
    cpu, wall = (statistics.median(b[place] / a[place] for a, b in taken) for place in (0, 1))
    goal = GOALS.get(name, {}).get(count)
    print(
        f"{name:24} {count:9,} {own_cost.cpu_s:8.2f} {other.cpu_s:9.2f} {own_cost.peak_mib:8.0f} "
        f"{other.peak_mib:10.0f} {cpu:7.1f} {wall:7.1f} {goal or '-':>6}",
        flush=True,
    )


def middle(costs: list[Cost]) -> Cost:
    """Return the median of each figure."""
    return Cost(*(statistics.median(column) for column in zip(*costs, strict=True)))


def main() -> None:
    """Print the cost of each beside that of this project."""
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    head = ("against", "requests", "own CPU", "their CPU", "own MiB", "their MiB", "x CPU", "x wall", "goal")
    print("{:24} {:>9} {:>8} {:>9} {:>8} {:>10} {:>7} {:>7} {:>6}".format(*head))
    peers = {name: installed(name) for name in INSTALLED}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out, saved = folder / "out.txt", ("--save-requests", str(folder / "requests.csv"))
        for count in SIZES:
            write_traces(count, folder)
            if (programs := peers["dynamo replay 1.6.1"]) is not None:
                theirs = dynamo(programs, count, folder, "figures")
                compare("dynamo replay 1.6.1", count, own(count, folder), theirs, out)
                theirs = dynamo(programs, count, folder, "requests")
                compare("the same, with requests", count, own(count, folder, *saved), theirs, out)
            if (programs := peers["sched-sim 0.2.1"]) is not None:
                compare("sched-sim 0.2.1", count, own(count, folder), sched_sim(programs, count, folder), out)
            slow = own(count, folder, "--step-by-step")
            compare(SLOW, count, own(count, folder), slow, out)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
