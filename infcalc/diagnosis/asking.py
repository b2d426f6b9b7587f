"""How to get what a diagnosis lacks, by signal."""

from __future__ import annotations

from typing import Final

from infcalc.diagnosis.signals import Signal

METRICS: Final = "save /metrics while the server is busy: curl -s localhost:8000/metrics > metrics.txt"
TWO_SCRAPES: Final = (
    "save /metrics twice, some minutes apart, one behind the other in one file (>>): what happened between counts"
)
INTERVALS: Final = (
    "the lines that the engine logs while it serves (vLLM 'Engine 000: Avg prompt throughput', SGLang 'Decode batch')"
)
START: Final = "the engine's log from its start to its first request"
BENCHMARK: Final = "a result of vllm bench serve --save-result (or another benchmark) under the load in question"
DEPLOYMENT: Final = (
    "say what runs: --model, --gpu, --tp, and --max-num-seqs, --kv-dtype and the like where they are set"
)
LOAD: Final = "say the load: --input-tokens, --output-tokens and --concurrency or --rate"
BOTH: Final = "a benchmark and /metrics of the same run, given together"
PLAIN: Final = "the same benchmark with drafting off, given together"

_BY_SOURCE: Final = {
    METRICS: (
        Signal.PREEMPTIONS,
        Signal.PREEMPTED_SHARE,
        Signal.KV_USAGE,
        Signal.RUNNING,
        Signal.WAITING,
        Signal.WAITING_SHARE,
        Signal.QUEUE,
        Signal.QUEUE_SHARE,
        Signal.PREFIX_HITS,
        Signal.INPUT_LENGTH,
        Signal.STEP_FILL,
        Signal.TOKENS_PER_ROUND,
        Signal.ACCEPTED,
        Signal.FRONT_END_SHARE,
        Signal.ABORTED_SHARE,
        Signal.IMBALANCE,
        Signal.UNDER_WAY,
        Signal.HANDOVER_QUEUE,
        Signal.RUNNING_OVER_CAPTURED,
        Signal.SEATS_TAKEN,
    ),
    INTERVALS: (Signal.UNGRAPHED_SHARE,),
    START: (Signal.EAGER, Signal.PCIE_ONLY, Signal.SLOW_KERNELS, Signal.REFUSALS),
    BENCHMARK: (
        Signal.IMPOSSIBLE,
        Signal.CONTRADICTIONS,
        Signal.FAILED_SHARE,
        Signal.GAP_TAIL,
        Signal.GAP_P99,
        Signal.CLIENTS_BUSY,
        Signal.TOKEN_OVER_BAND,
        Signal.SLOWER_PEERS,
        Signal.UNRANKED_OVER_BAND,
        Signal.FIRST_OVER_BAND,
        Signal.ROOFLINE,
        Signal.EXCESS_FIRST,
        Signal.EXCESS_FIRST_SHARE,
        Signal.DEMAND_OVER_ROOM,
        Signal.DEMAND_OVER_SEATS,
    ),
    BOTH: (Signal.CLIENT_GAP, Signal.CLIENT_GAP_SHARE),
    PLAIN: (Signal.DRAFTING_MEASURED,),
    DEPLOYMENT: (
        Signal.BANDWIDTH_SHARE,
        Signal.COMPUTE_SHARE,
        Signal.OVERHEAD_SHARE,
        Signal.COMMUNICATION_SHARE,
        Signal.INTERFERENCE_SHARE,
        Signal.DRAFTING_SPEEDUP,
        Signal.TP_WITHOUT_LINK,
        Signal.TP_ACROSS_MACHINES,
        Signal.OFFLOADED,
        Signal.BATCH,
        Signal.WEIGHT_ONLY,
        Signal.WEIGHT_ONLY_LOSS,
        Signal.BUDGET_OVER_DEFAULT,
        Signal.ROOM_BOUND,
        Signal.PREFILL_SHARE,
    ),
}
HOW: Final[dict[Signal, str]] = {signal: how for how, signals in _BY_SOURCE.items() for signal in signals}
"""Signal -> how to get it; a test holds that every signal has one."""
