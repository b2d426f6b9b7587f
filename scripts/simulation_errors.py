"""Simulate recorded runs of vLLM, and write what was measured and what was simulated side by side.

``DATA`` is a folder with ``engine_traces`` (a log line per request) and ``bench_vllm`` (benchmark results). The figures
go to tests/published/simulation_runs.yaml, which ``simulation_page.py`` makes docs/simulation_accuracy.md from.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import yaml

from infcalc.api import Ask, SimulationAsk, WorkloadAsk, simulate
from infcalc.workload.length_mixes import SHAREGPT_INPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.api.simulation_nouns import SimulationResult

FIGURES = Path(__file__).resolve().parents[1] / "tests" / "published" / "simulation_runs.yaml"
QUANTITIES = ("ttft_s", "tpot_s", "output_tokens_per_s", "kv_usage_fraction")
_DIGITS = 5
_ENGINE_SOURCE = "github.com/casys-kaist/LLMServingSim @5daddb21, bench/examples (MIT)"
_GRID_SOURCE = "github.com/IOG-Foundation/llm-inference-benchmarks @4990a807, results (Apache-2.0)"
_SPREAD = SHAREGPT_INPUTS.partition(",")[2]
"""Of the lengths of ShareGPT, whose means alone the results hold."""
_PRO_6000 = "rtx-pro-6000-blackwell-server"
"""The cluster files of the source give its card 1,597 GB/s."""
_DEPLOYED: dict[str, dict[str, Any]] = {
    "RTX4090_Llama-3.1-8B": {"models": ("llama3.1-8b",), "gpus": ("rtx-4090",), "num_gpus": 1},
    "RTXPRO6000_Llama-3.1-8B": {"models": ("llama3.1-8b",), "gpus": (_PRO_6000,), "num_gpus": 1},
    "RTXPRO6000_Qwen3-32B": {"models": ("qwen3-32b",), "gpus": (_PRO_6000,), "num_gpus": 2},
    "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507": {
        "models": ("qwen3-30b-a3b-2507",),
        "gpus": (_PRO_6000,),
        "num_gpus": 2,
        "dp": 2,
        "ep": 2,
    },
}


def main() -> None:
    """Write the figures and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    given = parser.parse_args()
    runs = [*engine_runs(given.data / "engine_traces"), *grid_runs(given.data / "bench_vllm")]
    FIGURES.write_text(
        "# Written by scripts/simulation_errors.py: recorded runs, and what a simulation of each says.\n"
        + yaml.safe_dump({"runs": runs}, sort_keys=False, width=200),
        encoding="utf-8",
    )
    for run in runs:
        errors = ", ".join(f"{name} {error(run, name):+.1%}" for name in QUANTITIES if name in run["measured"])
        print(f"{run['id']}: {errors}")


def error(run: dict[str, Any], quantity: str) -> float:
    """Return by how much the simulated figure is off; of a share, the difference."""
    measured, simulated = run["measured"][quantity], run["simulated"][quantity]
    return float(simulated - measured if quantity == "kv_usage_fraction" else simulated / measured - 1)


def engine_runs(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the runs with a log line per request: the very requests, at their times of arrival."""
    for name, deployed in _DEPLOYED.items():
        meta = json.loads((folder / name / "meta.json").read_text(encoding="utf-8"))
        told = meta["engine_kwargs"]
        lines = (folder / name / "requests.jsonl").read_text(encoding="utf-8").splitlines()
        requests = sorted((json.loads(line) for line in lines), key=lambda one: float(one["arrival_time"]))
        ask = Ask(
            **deployed,
            engine="vllm",
            engine_version=meta["vllm_version"],
            max_num_seqs=told["max_num_seqs"],
            max_num_batched_tokens=told["max_num_batched_tokens"],
            max_model_len=told["max_model_len"],
        )
        with tempfile.TemporaryDirectory() as place:
            trace = Path(place) / "trace.csv"
            trace.write_text(_as_csv(requests), encoding="utf-8")
            result = simulate(ask, SimulationAsk(load=WorkloadAsk(file=str(trace)))).result
        ticks = list(csv.DictReader((folder / name / "timeseries.csv").open(encoding="utf-8")))
        yield {
            "id": name,
            "group": "a log line per request",
            "source": _ENGINE_SOURCE,
            "engine": f"vllm {meta['vllm_version']}",
            "model": result.model,
            "gpu": f"{result.num_gpus} x {result.gpu}",
            "load": f"{len(requests)} requests, 10 per s",
            "measured": _measured(requests, ticks),
            "simulated": _simulated(result) | {"preempted": bool(result.preemptions)},
        }


def _as_csv(requests: list[dict[str, Any]]) -> str:
    start = requests[0]["arrival_time"]
    rows = [f"{one['arrival_time'] - start!r},{one['input_toks']},{one['output_toks']}" for one in requests]
    return "\n".join(["arrival_s,input_tokens,output_tokens", *rows, ""])


def _measured(requests: list[dict[str, Any]], ticks: list[dict[str, str]]) -> dict[str, Any]:
    """Return the means of a log; its cache gauge where it was recorded, and whether anybody was preempted.

    Times of the engine are told from its taking a request in. Nobody but the preempted comes to wait after the last
    arrival.
    """
    start = min(one["queued_ts"] for one in requests)
    lasted = max(one["last_token_ts"] for one in requests) - start
    long = [one for one in requests if one["output_toks"] > 1]
    found: dict[str, Any] = {
        "ttft_s": fmean(one["first_token_ts"] - one["queued_ts"] for one in requests),
        "tpot_s": fmean((one["last_token_ts"] - one["first_token_ts"]) / (one["output_toks"] - 1) for one in long),
        "output_tokens_per_s": sum(one["output_toks"] for one in requests) / lasted,
    }
    usage = [float(tick["kv_cache_pct"]) / 100 for tick in ticks]
    if any(usage):
        found["kv_usage_fraction"] = fmean(usage)
    arrived = requests[-1]["arrival_time"] - requests[0]["arrival_time"]
    after = [int(tick["waiting"]) for tick in ticks if float(tick["t"]) > arrived + 1]
    found["preempted"] = any(later > earlier for earlier, later in pairwise(after))
    return {name: _short(value) for name, value in found.items()}


def grid_runs(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the runs of the grid of models, TP and rates: ShareGPT lengths by their means, Poisson arrivals."""
    for line in (folder / "iog_vllm085_all.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found = record["result"]
        number, model, count = found["num_prompts"], found["model_id"], int(record["gpu_count"])
        ask = Ask(
            models=(model,),
            gpus=(record["gpu"],),
            num_gpus=count,
            engine="vllm",
            engine_version=record["engine_version"],
        )
        load = WorkloadAsk(
            requests_per_s=found["request_rate"],
            num_requests=number,
            input_tokens=f"lognormal:mean={found['total_input_tokens'] / number:.2f},{_SPREAD}",
            output_tokens=f"lognormal:mean={found['total_output_tokens'] / number:.2f},{_SPREAD}",
        )
        result = simulate(ask, SimulationAsk(load=load)).result
        yield {
            "id": f"{model.partition('/')[2]}, {count} x {record['gpu']}, {found['request_rate']:g}/s"
            + (", again" if record["record"] else ""),
            "group": "grid of models, TP and rates",
            "source": _GRID_SOURCE,
            "engine": f"vllm {record['engine_version']}",
            "model": result.model,
            "gpu": f"{count} x {result.gpu}",
            "load": f"{number} requests, {found['request_rate']:g} per s",
            "cache_tokens": result.cache_tokens,
            "measured": {
                "ttft_s": _short(found["mean_ttft_ms"] / 1000),
                "tpot_s": _short(found["mean_tpot_ms"] / 1000),
                "output_tokens_per_s": _short(found["output_throughput"]),
            },
            "simulated": _simulated(result),
        }


def _simulated(result: SimulationResult) -> dict[str, Any]:
    if result.ttft_s is None or result.tpot_s is None or result.kv_usage_fraction is None:
        raise AssertionError(f"{result.model} on {result.gpu}: nothing was answered")
    return {
        "ttft_s": _short(result.ttft_s.mean),
        "tpot_s": _short(result.tpot_s.mean),
        "output_tokens_per_s": _short(result.output_tokens_per_s),
        "kv_usage_fraction": _short(result.kv_usage_fraction.mean),
        "kv_usage_most_fraction": _short(result.kv_usage_fraction.max),
    }


def _short(value: float | bool) -> float | bool:
    return value if isinstance(value, bool) else float(f"{value:.{_DIGITS}g}")


if __name__ == "__main__":
    main()
