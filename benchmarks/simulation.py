"""What a simulation costs: whole processes and the loop alone, in aggregate and step by step. Recorded, never asserted.

One trace: requests at random times (Poisson), lengths lognormal, about 500 in and 240 out, Llama 3 8B on one A100, 256
sequences, 2,048 tokens per step, 28,000 blocks of 16. Each run is a process of its own, and runs that
are compared take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np

from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.replicas import step_timer
from infcalc.api.speed import machine_of, site_of
from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.fast.columns import Load
from infcalc.simulation.fast.recorder import Recorder, SampleRecorder
from infcalc.simulation.fast.run import run_fast
from infcalc.simulation.fast.samples import interval_quantiles, quantiles
from infcalc.simulation.oracle import run_step_by_step
from infcalc.simulation.request import Request, Span

PS_PER_S = 10**12
SHARES = (0.5, 0.9, 0.99)
RATE_PER_S = 12.0
BUSY_RATE_PER_S = 33.0
BUSY_SHARED_RATE_PER_S = 40.0
"""About 100 sequences decode at once."""
REPEATS = 5
NUM_PREFIXES = 20
PREFIX_TOKENS = 250


def trace(count: int, rate_per_s: float, *, shared: bool) -> Load:
    """Return the trace; ``shared``: half of the mean prompt is one of a few texts."""
    chance = np.random.default_rng(0)

    def lengths(mean: float, deviation: float, most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        drawn = chance.lognormal(np.log(mean) - deviation**2 / 2, deviation, count)
        return np.clip(np.round(drawn), 1, most).astype(np.int64)

    arrivals = np.cumsum(chance.exponential(1 / rate_per_s, count))
    own = lengths(500 - PREFIX_TOKENS if shared else 500, 0.8, 8000)
    answers = lengths(244, 0.7, 2000)
    return Load(
        arrival_ps=np.round(arrivals * PS_PER_S).astype(np.int64),
        prompt_tokens=own + PREFIX_TOKENS if shared else own,
        output_tokens=answers,
        contents=chance.integers(0, NUM_PREFIXES, count) if shared else None,
        parents=[-1] * NUM_PREFIXES if shared else [],
        sizes_tokens=[PREFIX_TOKENS] * NUM_PREFIXES if shared else [],
    )


def as_requests(load_: Load) -> list[Request]:
    """Return the same requests one by one."""
    contents = load_.contents.tolist() if load_.contents is not None else [-1] * len(load_)
    rows = zip(
        load_.arrival_ps.tolist(), load_.prompt_tokens.tolist(), load_.output_tokens.tolist(), contents, strict=True
    )
    return [
        Request(
            arrival_ps=arrival,
            prompt_tokens=prompt,
            output_tokens=answer,
            spans=(Span(text=content, num_tokens=PREFIX_TOKENS),) if content >= 0 else (),
        )
        for arrival, prompt, answer, content in rows
    ]


def once(kind: str, count: int, rate_per_s: float, repeats: int) -> None:
    """Run one simulation with all its figures, and print them; the loop's time is the best of ``repeats``."""
    ask = Ask(models=("llama3-8b",), gpus=("a100-80gb",))
    catalog = load(ask)
    machine = machine_of(site_of(ask, next(iter(resolve(ask, catalog))), catalog))
    timer = step_timer(machine, in_blocks=True)
    shared = kind == "shared"
    scheduler = VllmScheduler(
        KvCacheManager(28_001, 16, prefix_caching=shared or kind == "cached"),
        VllmLimits(max_num_seqs=256, budget_tokens=2048),
    )
    requests = trace(count, rate_per_s, shared=shared)
    if kind == "oracle":
        listed = as_requests(requests)
        start = time.process_time()
        records = run_step_by_step(scheduler, listed, timer)
        loop_s = time.process_time() - start
        ttft = np.array([one.first_token_ps - one.arrival_ps for one in records if one.first_token_ps is not None])
        figures: dict[str, object] = {"ttft_ps": quantiles(ttft, SHARES), "loop_s": loop_s}
    else:
        loop_s = float("inf")
        for _ in range(repeats):
            recorder = SampleRecorder() if kind == "no-requests" else Recorder()
            start = time.process_time()
            replica = run_fast(scheduler, requests, timer, recorder)
            loop_s = min(loop_s, time.process_time() - start)
        samples = recorder.samples()
        figures = {
            "ttft_ps": quantiles(samples.ttft_ps, SHARES),
            "queue_ps": quantiles(samples.queue_ps, SHARES),
            "e2e_ps": quantiles(samples.e2e_ps, SHARES),
            "tpot_ps": quantiles(samples.tpot_ps[~np.isnan(samples.tpot_ps)], SHARES),
            "itl_ps": interval_quantiles(recorder.interval_runs(), SHARES),
            "batch": replica.running_ps / replica.busy_ps,
            "steps": replica.num_computing_steps,
            "loop_s": loop_s,
        }
    json.dump(figures, sys.stdout)


def measured(kind: str, count: int, rate_per_s: float, repeats: int) -> tuple[float, float, dict[str, float]]:
    """Return CPU seconds and peak MiB of a process of its own, and what it printed."""
    command = [sys.executable, __file__, kind, str(count), str(rate_per_s), str(repeats)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - this file
        said = process.stdout.read() if process.stdout else b"{}"
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, json.loads(said)


def row(kind: str, count: int, rate_per_s: float, repeats: int = 1) -> float:
    """Print one run; return its CPU seconds."""
    cpu_s, peak_mib, said = measured(kind, count, rate_per_s, repeats)
    per_s = count / said["loop_s"]
    print(
        f"{kind:12} {count:10,} {rate_per_s:7.0f} {said.get('batch', float('nan')):7.0f} {cpu_s:9.2f} {peak_mib:9.0f} "
        f"{said['loop_s']:9.2f} {per_s:12,.0f}",
        flush=True,
    )
    return cpu_s


def main() -> None:
    """Print what runs cost; with ``long`` also a million requests and the plain simulation of 100,000."""
    head = ("run", "requests", "per s", "batch", "CPU s", "peak MiB", "loop s", "requests/s")
    print(f"{head[0]:12} {head[1]:>10} {head[2]:>7} {head[3]:>7} {head[4]:>9} {head[5]:>9} {head[6]:>9} {head[7]:>12}")
    for kind, rate in (("plain", BUSY_RATE_PER_S), ("cached", BUSY_RATE_PER_S), ("shared", BUSY_SHARED_RATE_PER_S)):
        row(kind, 20_000, rate, REPEATS)
        row(kind, 100_000, rate)
    pairs = [(row("plain", 10_000, RATE_PER_S), row("oracle", 10_000, RATE_PER_S)) for _ in range(2)]
    print(f"step by step costs {sum(slow for _, slow in pairs) / sum(quick for quick, _ in pairs):.1f} times as much")
    hundred = [row("plain", 100_000, RATE_PER_S) for _ in range(2)]
    row("no-requests", 100_000, RATE_PER_S)
    if "long" in sys.argv:
        print(f"step by step costs {row('oracle', 100_000, RATE_PER_S) / min(hundred):.1f} times as much")
        million = row("plain", 1_000_000, RATE_PER_S)
        print(f"exponent from 100k to 1M: {np.log10(million / min(hundred)):.2f}")
        row("no-requests", 1_000_000, RATE_PER_S)


if __name__ == "__main__":
    if len(sys.argv) == 5:  # noqa: PLR2004 - the four of `once`
        once(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
