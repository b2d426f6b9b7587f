"""What a search costs, in closed form and with the best confirmed by simulation. Recorded, never asserted."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

from infcalc.api.deployment import Ask
from infcalc.api.drafting import DraftAsk
from infcalc.api.objectives import parse_slo
from infcalc.api.plan_ask import PlanAsk
from infcalc.api.planning import plan

CHAT: dict[str, Any] = {"input_tokens": "lognormal:mean=1000,cv=1", "output_tokens": "lognormal:mean=300,cv=1"}
SLO = parse_slo(("ttft-p95=1s", "tpot-p95=60ms"))
SEARCHES = (
    ("100 users of Llama 3 70B", "llama3-70b", PlanAsk(num_users=100)),
    (
        "the same, fp8 and int4 allowed, three engines",
        "llama3-70b",
        PlanAsk(num_users=100, allow=("fp8", "int4"), engines_from=("vllm", "sglang", "tensorrt-llm")),
    ),
    (
        "those 100 users, EAGLE-3 and lookups as choices",
        "llama3-70b",
        PlanAsk(num_users=100, draft=DraftAsk(methods=("eagle3", "ngram"))),
    ),
    ("chat at 5 requests/s on Llama 3.1 8B", "llama3.1-8b", PlanAsk(requests_per_s=5.0, slo=SLO, **CHAT)),
    (
        "1,000 users of Qwen3 30B A3B, experts spread",
        "qwen3-30b-a3b",
        PlanAsk(num_users=1000, think_time_s=10.0, slo=SLO, allow=("fp8",), **CHAT),
    ),
)


def cpu_s() -> float:
    """Return the CPU time of this process and of the workers that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    """Print setups, candidates and seconds of each search, alone and with the best five confirmed."""
    print(f"{len(os.sched_getaffinity(0))} cores; candidates are setups times numbers of replicas")
    for name, model, asked in SEARCHES:
        for confirmed in (0, 5):
            one = replace(asked, num_confirmed=confirmed)
            start_s, used_s = time.perf_counter(), cpu_s()
            result = plan(Ask(models=(model,)), one).result
            took_s, busy_s = time.perf_counter() - start_s, cpu_s() - used_s
            what = f"{result.num_simulated} simulated" if confirmed else "closed form"
            print(
                f"{name:48} {what:12} {result.num_setups:6,} setups {result.num_candidates:10,} candidates "
                f"{took_s:6.2f} s ({busy_s:.2f} s of CPU, workers included)"
            )


if __name__ == "__main__":
    main()
