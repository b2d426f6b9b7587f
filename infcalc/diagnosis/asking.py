"""How to get what a diagnosis lacks, by signal."""

from __future__ import annotations

from typing import Final

from infcalc.diagnosis.signals import Signal
from infcalc.frozen import frozen


@frozen
class Way:
    """What to give, in a word or two, and how to get it."""

    what: str
    how: str


METRICS: Final = Way(
    what="metrics", how="save them while the server is busy: curl -s localhost:8000/metrics > metrics.txt"
)
MORE_METRICS: Final = Way(
    what="more metrics", how="these do not state what it takes: another release, pools or several engines have them"
)
TWO_SCRAPES: Final = Way(
    what="a second scrape",
    how="save /metrics twice, some minutes apart, the later behind the earlier in one file (>>)",
)
INTERVALS: Final = Way(
    what="log lines",
    how="what the engine logs while it serves (vLLM 'Engine 000: Avg prompt throughput', SGLang 'Decode batch')",
)
START: Final = Way(what="start-up log", how="the engine's log from its start to its first request")
BENCHMARK: Final = Way(
    what="a benchmark", how="a result of vllm bench serve --save-result (or another tool) under the load in question"
)
DEPLOYMENT: Final = Way(
    what="the deployment",
    how="say what runs: --model, --gpu, --tp, and --max-num-seqs, --kv-dtype and the like where they are set",
)
BOTH: Final = Way(what="both sides", how="a benchmark and /metrics of the same run, given together")
PLAIN: Final = Way(what="a plain run", how="the same benchmark with drafting off, given together")

_BY_SOURCE: Final = (
    (
        METRICS,
        (
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
            Signal.FRONT_END,
            Signal.FRONT_END_SHARE,
            Signal.ABORTED_SHARE,
            Signal.IMBALANCE,
            Signal.UNDER_WAY,
            Signal.HANDOVER_QUEUE,
            Signal.RUNNING_OVER_CAPTURED,
            Signal.SEATS_TAKEN,
        ),
    ),
    (INTERVALS, (Signal.UNGRAPHED_SHARE,)),
    (START, (Signal.EAGER, Signal.PCIE_ONLY, Signal.SLOW_KERNELS, Signal.REFUSALS)),
    (
        BENCHMARK,
        (
            Signal.IMPOSSIBLE,
            Signal.THOUSANDFOLD,
            Signal.CONTRADICTIONS,
            Signal.FAILED_SHARE,
            Signal.GAP_TAIL,
            Signal.GAP_P99,
            Signal.PROMPTS_IN_STEP,
            Signal.CLIENTS_BUSY,
            Signal.TOKEN_OVER_BAND,
            Signal.SLOWER_PEERS,
            Signal.UNRANKED_OVER_BAND,
            Signal.BAND_OVER_TOKEN,
            Signal.FIRST_OVER_BAND,
            Signal.ROOFLINE,
            Signal.EXCESS_FIRST,
            Signal.EXCESS_FIRST_SHARE,
            Signal.DEMAND_OVER_ROOM,
            Signal.DEMAND_OVER_SEATS,
        ),
    ),
    (BOTH, (Signal.CLIENT_GAP, Signal.CLIENT_GAP_SHARE)),
    (PLAIN, (Signal.DRAFTING_MEASURED,)),
    (
        DEPLOYMENT,
        (
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
    ),
)
HOW: Final[dict[Signal, Way]] = {signal: way for way, signals in _BY_SOURCE for signal in signals}
"""Signal -> how to get it; a test holds that every signal has one."""
