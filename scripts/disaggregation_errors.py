"""Simulate recorded runs of prefill and decode apart, and write what was measured and simulated side by side.

``DATA`` is a folder with ``bench_disagg`` (benchmark results). The figures go to
tests/published/disaggregation_runs.yaml, which ``simulation_page.py`` puts into docs/simulation_accuracy.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from infcalc.api import Ask, SimulationAsk, WorkloadAsk, simulate
from infcalc.api.disaggregation_ask import Beside, PoolsAsk
from infcalc.workload.length_mixes import SHAREGPT_INPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

FIGURES = Path(__file__).resolve().parents[1] / "tests" / "published" / "disaggregation_runs.yaml"
SOURCE = "github.com/dstackai/benchmarks @06c957ab, comparison/pd_ratio (Apache-2.0)"
QUANTITIES = ("ttft_s", "tpot_s", "output_tokens_per_s")
_DIGITS = 5
_SPREAD = SHAREGPT_INPUTS.partition(",")[2]
"""Of answers: the results hold their mean alone."""
_MS_PER_S = 1000


def main() -> None:
    """Write the figures and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    runs = list(simulated(parser.parse_args().data / "bench_disagg"))
    FIGURES.write_text(
        "# Written by scripts/disaggregation_errors.py: recorded runs, and what a simulation of each says.\n"
        + yaml.safe_dump({"source": SOURCE, "runs": runs}, sort_keys=False, width=200),
        encoding="utf-8",
    )
    for run in runs:
        print(run["id"], *(f"{one} {error(run, one):+.1%}" for one in QUANTITIES))


def error(run: dict[str, Any], quantity: str) -> float:
    """Return the relative error of a simulated quantity."""
    measured: float = run["measured"][quantity]
    found: float = run["simulated"][quantity]
    return found / measured - 1


def recorded(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each run as it was recorded: its layout, its load and what was measured."""
    (path,) = folder.glob("*.jsonl")
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        layout = row["source_file"].partition("_")[0]
        prompt, answer = (int(part.strip("inout")) for part in row["source_file"].split("_")[2:4])
        yield {
            "id": f"{layout}, {prompt} to {answer}, {row['max_concurrency']} at once",
            "prefill": int(layout[0]),
            "decode": int(layout[2]),
            "lengths": f"{prompt} to {answer}",
            "concurrency": row["max_concurrency"],
            "requests": row["num_prompts"],
            "input_tokens": round(row["total_input_tokens"] / row["num_prompts"]),
            "output_tokens": round(row["total_output_tokens"] / row["num_prompts"]),
            "measured": {
                "ttft_s": _short(row["mean_ttft_ms"] / _MS_PER_S),
                "tpot_s": _short(row["mean_tpot_ms"] / _MS_PER_S),
                "output_tokens_per_s": _short(row["output_throughput"]),
            },
        }


def simulated(folder: Path, ids: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield each recorded run, or those of ``ids``, with its simulation.

    SGLang on eight H200 of one server, gpt-oss-120b with two GPUs for each replica; the link is the default.
    """
    for run in recorded(folder):
        if ids and run["id"] not in ids:
            continue
        ask = Ask(models=("gpt-oss-120b",), gpus=("h200",), num_gpus=2, engine="sglang")
        load = WorkloadAsk(
            num_requests=run["requests"],
            num_clients=run["concurrency"],
            input_tokens=str(run["input_tokens"]),
            output_tokens=f"lognormal:mean={run['output_tokens']},{_SPREAD}",
        )
        pools = PoolsAsk(num_prefill=run["prefill"], num_decode=run["decode"], beside=Beside.NONE)
        result = simulate(ask, SimulationAsk(load=load, pools=pools)).result
        told = result.disaggregation
        if told is None or result.ttft_s is None or result.tpot_s is None:
            raise AssertionError("pools hand over")
        yield run | {
            "simulated": {
                "ttft_s": _short(result.ttft_s.mean),
                "tpot_s": _short(result.tpot_s.mean),
                "output_tokens_per_s": _short(result.output_tokens_per_s),
                "prefill_busy_fraction": _short(told.prefill.busy_fraction),
                "decode_busy_fraction": _short(told.decode.busy_fraction),
            }
        }


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


if __name__ == "__main__":
    main()
