"""The rules, as data: what points to what, from which threshold on and by whom, what to do, and what prices it.

Order counts only for ``unless``, which names rules before. Thresholds that nobody published say that they were set by
hand, and why.
"""

from __future__ import annotations

from typing import Final

from infcalc.diagnosis.remedies import (
    FEWER_SEQUENCES,
    HALF_BUDGET,
    KV_FP8,
    LARGER_BUDGET,
    MORE_MEMORY,
    MORE_SEQUENCES,
    NO_DRAFTING,
    NO_OFFLOAD,
    PREFIXES,
    REPLICA,
    SHORTER_DRAFTS,
    SMALLER_TP,
    STAGES,
    TWICE_THE_TP,
    WEIGHTS_16,
    WEIGHTS_FP8,
    WEIGHTS_INT4,
    WITH_GRAPHS,
    advice,
)
from infcalc.diagnosis.rule import Condition, Kind, Op, Rule
from infcalc.diagnosis.signals import Signal

_FORMATS: Final = "what physics allows: api/floors.py"
_VLLM_TUNING: Final = "https://docs.vllm.ai/en/v0.14.0/configuration/optimization/"
_SGLANG_TUNING: Final = "https://docs.sglang.io/advanced_features/hyperparameter_tuning.html"
_SARATHI: Final = (
    "Sarathi-Serve (OSDI 2024): prompts between decode steps stall them; a budget of tokens bounds the stall"
)
_LITTLE: Final = "Little 1961: requests under way = rate x time of a request"


def _is(signal: Signal, source: str = "true or not") -> Condition:
    return Condition(signal=signal, op=Op.AT_LEAST, threshold=1.0, source=source)


def _from(signal: Signal, threshold: float, source: str) -> Condition:
    return Condition(signal=signal, op=Op.AT_LEAST, threshold=threshold, source=source)


def _to(signal: Signal, threshold: float, source: str) -> Condition:
    return Condition(signal=signal, op=Op.AT_MOST, threshold=threshold, source=source)


def _above(signal: Signal, threshold: float, source: str) -> Condition:
    return Condition(signal=signal, op=Op.ABOVE, threshold=threshold, source=source)


def _below(signal: Signal, threshold: float, source: str) -> Condition:
    return Condition(signal=signal, op=Op.BELOW, threshold=threshold, source=source)


_WAITS: Final = _from(Signal.WAITING, 1.0, "set by hand: a queue that is empty now, or was on average, is no queue")
_FULL: Final = _from(Signal.KV_USAGE, 0.95, f"set by hand; above 0.9 is good use ({_SGLANG_TUNING})")
_ROOM_LEFT: Final = _below(Signal.KV_USAGE, 0.9, _SGLANG_TUNING)
_BEYOND: Final = _above(Signal.TOKEN_OVER_BAND, 1.0, "beyond the band that holds 80 % of published runs")
_SLOWEST: Final = _to(Signal.SLOWER_PEERS, 0.05, "api/peer_table.py: of published runs, at most 5 % are so slow")
_FAR_BEYOND: Final = _above(
    Signal.UNRANKED_OVER_BAND, 1.25, "set by hand, where no runs of its class are published: a quarter beyond the band"
)
_MOSTLY_OVERHEAD: Final = _from(Signal.OVERHEAD_SHARE, 0.4, "set by hand: no other part of a step is larger")
_CROWDED: Final = _from(Signal.WAITING_SHARE, 0.2, "set by hand: one of five requests under way has no place")
_SEVERAL_WAIT: Final = _from(Signal.WAITING, 4.0, "set by hand: a few wait for the next step at any time")

UNGRAPHED: Final = 0.2
"""Share of decode steps without a graph from which on a server is said to run without."""

RULES: Final[tuple[Rule, ...]] = (
    # The figures themselves
    Rule(
        symptom="unit-mistaken",
        kind=Kind.MEASUREMENT,
        title="A figure is a thousandfold off: its unit may be another",
        cause="{unit}",
        cases=((_is(Signal.THOUSANDFOLD, "set by hand: a thousandth, or thousandfold, is near the prediction"),),),
        remedies=(
            advice("look at the unit of times in the file: ms as seconds, or seconds as ms, make all else worthless"),
        ),
        source="arithmetic; formats of results by their tools' documentation (infcalc/evidence)",
    ),
    Rule(
        symptom="impossible-measurement",
        kind=Kind.MEASUREMENT,
        title="A figure is physically impossible",
        cause="{impossible}",
        cases=((_is(Signal.IMPOSSIBLE, _FORMATS),),),
        remedies=(
            advice(
                "measure again: wait for the GPU before the clock is read, count tokens of the model's own tokenizer, "
                "and say model, precision, GPUs and drafting as they were"
            ),
        ),
        source="roofline: FLOP / peak and bytes / bandwidth at 100 % of both",
        general=True,
    ),
    Rule(
        symptom="contradictory-figures",
        kind=Kind.MEASUREMENT,
        title="Figures contradict one another",
        cause="{contradictions}",
        cases=((_is(Signal.CONTRADICTIONS, "arithmetic"),),),
        remedies=(advice("find out which figure is wrong before anything is changed"),),
        source="arithmetic: rates are counts over time, and parts do not exceed the whole",
    ),
    Rule(
        symptom="engine-refused",
        kind=Kind.FAULT,
        title="The engine refused to start",
        cause="{refusal}",
        cases=((_is(Signal.REFUSALS, "its own words"),),),
        remedies=(KV_FP8, MORE_MEMORY, TWICE_THE_TP, advice("{refusal_remedy}")),
        source="the engine's own refusal; infcalc compare tells it line by line",
    ),
    Rule(
        symptom="requests-failed",
        kind=Kind.FAULT,
        title="Requests failed",
        cause="figures are of the requests that were answered: those that failed took time and places too",
        cases=(
            (_from(Signal.FAILED_SHARE, 0.01, "set by hand: one in a hundred"),),
            (_from(Signal.ABORTED_SHARE, 0.05, "set by hand: one in twenty; clients hang up now and then"),),
        ),
        remedies=(advice("look for their errors in the server's log: time-outs of clients, limits, memory"),),
        source="counts of the tool or the engine",
    ),
    # Places
    Rule(
        symptom="kv-exhausted",
        kind=Kind.FAULT,
        title="The KV cache is full{or_was}",
        cause="requests wait for KV blocks, or lose theirs and are computed again{thrown_away}{kv_room}",
        cases=(
            (
                _above(Signal.PREEMPTIONS, 0.0, "the engine's count"),
                _from(Signal.PREEMPTED_SHARE, 0.01, "set by hand: one request in a hundred is computed twice"),
            ),
            (_above(Signal.PREEMPTIONS, 0.0, "the engine's count"), _FULL),
            (_FULL, _WAITS),
            (
                _from(Signal.DEMAND_OVER_ROOM, 1.1, "set by hand: a tenth more than is predicted to find room"),
                _is(Signal.ROOM_BOUND, "memory ends before the engine's cap"),
            ),
        ),
        remedies=(KV_FP8, MORE_MEMORY, TWICE_THE_TP, REPLICA, FEWER_SEQUENCES),
        source=f"{_VLLM_TUNING} (preemption); {_SGLANG_TUNING} (retracted requests)",
    ),
    Rule(
        symptom="sequences-capped",
        kind=Kind.FAULT,
        title="The cap on running sequences is reached while the KV cache has room",
        cause="requests wait although memory would hold more of them{seats}",
        cases=(
            (
                _from(Signal.SEATS_TAKEN, 0.95, "set by hand: as good as all places taken"),
                _WAITS,
                _ROOM_LEFT,
            ),
            (
                _from(Signal.DEMAND_OVER_SEATS, 1.1, "set by hand: a tenth more than may run"),
                _below(Signal.ROOM_BOUND, 1.0, "memory would hold more"),
            ),
        ),
        remedies=(MORE_SEQUENCES, REPLICA),
        source=f"{_SGLANG_TUNING}: usage below 0.9 with a queue",
        unless=("kv-exhausted",),
    ),
    Rule(
        symptom="queueing",
        kind=Kind.FAULT,
        title="Requests wait before they start",
        cause="more comes than is answered at the same time{wait}",
        cases=(
            (_CROWDED, _SEVERAL_WAIT),
            (
                _from(Signal.QUEUE_SHARE, 0.5, "set by hand: most of the first token is waiting"),
                _from(Signal.QUEUE, 0.1, "set by hand: a tenth of a second is felt"),
            ),
            (
                _from(Signal.EXCESS_FIRST_SHARE, 0.75, "set by hand: most of the first token is not its own prompt"),
                _from(Signal.EXCESS_FIRST, 1.0, "set by hand: a second, beyond what predictions miss"),
                _above(Signal.FIRST_OVER_BAND, 0.0, "a prediction to hold it against"),
            ),
        ),
        remedies=(REPLICA, TWICE_THE_TP, advice("send less at once: a queue adds waiting, not throughput")),
        source="queueing: waits grow without bound as the load nears what can be answered",
        general=True,
    ),
    Rule(
        symptom="uneven-load",
        kind=Kind.FAULT,
        title="One engine is crowded while others have room",
        cause="requests are not spread evenly: each engine has its own queue and cache",
        cases=(
            (
                _from(Signal.IMBALANCE, 1.5, "set by hand: half as many again as the mean"),
                _from(Signal.UNDER_WAY, 8.0, "set by hand: of fewer requests, chance alone does it"),
            ),
        ),
        remedies=(
            advice(
                "spread by load: where all prompts share one prefix every engine soon holds it, and affinity of a "
                "router gains nothing"
            ),
        ),
        source="https://github.com/sgl-project/sglang/issues/21199: cache-aware routing, 2.6x worse with one prefix",
    ),
    Rule(
        symptom="kv-transfer-waits",
        kind=Kind.FAULT,
        title="Requests wait between prefill and decode",
        cause="bytes of a prompt's KV take {transfer}: what is beyond that is queueing or start-up of connections",
        cases=((_from(Signal.HANDOVER_QUEUE, 4.0, "set by hand: a few are always on their way"),),),
        remedies=(
            advice("more decode replicas, or fewer for prefill: simulate --prefill-replicas shows the balance"),
            advice("check the transfer backend and its network device: some MB/s mean that RDMA is not used"),
        ),
        source="https://github.com/sgl-project/sglang/issues/6411: 22 s of waiting against 0.14 s of transfer",
    ),
    # Prompts
    Rule(
        symptom="prefix-cache-ineffective",
        kind=Kind.FAULT,
        title="The prefix cache finds next to nothing, and prompts take much of the time",
        cause="prompts share no beginning, it is not found again (order, salt, router), or it was evicted",
        cases=(
            (
                _below(Signal.PREFIX_HITS, 0.1, "set by hand: one token in ten"),
                _from(Signal.PREFILL_SHARE, 0.25, "set by hand: a quarter of the device's time goes into prompts"),
            ),
        ),
        remedies=(PREFIXES, KV_FP8),
        source="gain of hits = share of time in prefill; infcalc prefix-cache tries a trace",
    ),
    Rule(
        symptom="prefix-cache-spent",
        kind=Kind.LIMIT,
        title="The prefix cache works, and has no more to give",
        cause="hits save prefill alone, and decode takes most of the time: a high hit rate is no high speedup{hits}",
        cases=(
            (
                _from(Signal.PREFIX_HITS, 0.5, "set by hand: most prompt tokens are found"),
                _below(Signal.PREFILL_SHARE, 0.25, "set by hand: a quarter of the device's time goes into prompts"),
            ),
        ),
        remedies=(advice("make decode faster: fewer bytes per token, or drafting"), WEIGHTS_FP8),
        source="https://github.com/vllm-project/vllm/pull/53395: 94.6 % of tokens found, 6 % more throughput",
    ),
    Rule(
        symptom="token-budget-too-large",
        kind=Kind.FAULT,
        title="Prompts stall the answers of others",
        cause="steps with a large piece of a prompt take many times as long as steps without{budget}",
        cases=(
            (
                _from(Signal.GAP_TAIL, 5.0, "set by hand: five times the median gap is a stutter"),
                _from(Signal.GAP_P99, 0.1, "set by hand: a tenth of a second is seen"),
                _from(Signal.PROMPTS_IN_STEP, 0.5, "half a budget would hold fewer prompts than come at once"),
            ),
        ),
        remedies=(HALF_BUDGET,),
        source=_SARATHI,
    ),
    Rule(
        symptom="token-budget-too-small",
        kind=Kind.FAULT,
        title="The budget of tokens per step holds prompts back",
        cause="steps are full, or the budget is below the engine's own default, while first tokens wait{budget}",
        cases=(
            (_from(Signal.STEP_FILL, 0.9, "set by hand: steps are as good as full"),),
            (
                _to(Signal.BUDGET_OVER_DEFAULT, 0.5, "half of the engine's default or less"),
                _from(Signal.PREFILL_SHARE, 0.25, "set by hand: a quarter of the device's time goes into prompts"),
                _above(Signal.FIRST_OVER_BAND, 0.0, "a first token was measured"),
            ),
        ),
        remedies=(LARGER_BUDGET,),
        source=f"{_VLLM_TUNING} (chunked prefill): more batched tokens for first tokens and throughput",
    ),
    # Drafting
    Rule(
        symptom="speculation-losing",
        kind=Kind.FAULT,
        title="Speculative decoding loses time",
        cause="{rounds} per round do not pay for drafting and checking{drafting}",
        cases=(
            (
                _above(Signal.TOKENS_PER_ROUND, 0.0, "drafting is on"),
                _below(Signal.DRAFTING_MEASURED, 1.0, "slower than the same load without drafting"),
            ),
            (
                _above(Signal.TOKENS_PER_ROUND, 0.0, "drafting is on"),
                _below(Signal.DRAFTING_SPEEDUP, 1.0, "the model: a round takes longer than the steps it replaces"),
            ),
        ),
        remedies=(NO_DRAFTING, SHORTER_DRAFTS),
        source="Leviathan 2023: speedup = tokens per round / cost of a round; infcalc speculate prices it",
    ),
    # Host, graphs, links, precisions
    Rule(
        symptom="graph-capture-missed",
        kind=Kind.FAULT,
        title="Decode runs without CUDA graphs",
        cause="the host launches every kernel by itself, and the GPU waits for it{captured}",
        cases=(
            (_is(Signal.EAGER),),
            (_from(Signal.UNGRAPHED_SHARE, UNGRAPHED, "set by hand: a fifth of the steps"),),
            (
                _above(Signal.RUNNING_OVER_CAPTURED, 1.0, "vLLM vllm/config: graphs up to min(2 x max_num_seqs, 512)"),
                _from(Signal.OVERHEAD_SHARE, 0.1, "set by hand: in longer steps launches hide behind the GPU's work"),
            ),
        ),
        remedies=(
            WITH_GRAPHS,
            advice(
                "capture batches as large as those that run: vLLM cudagraph_capture_sizes, SGLang --cuda-graph-max-bs"
            ),
        ),
        source="vLLM vllm/config/compilation.py; SGLang server_args.py",
    ),
    Rule(
        symptom="front-end-bound",
        kind=Kind.FAULT,
        title="The front end or the host is the bottleneck, not the GPU",
        cause="HTTP, tokenising and streaming take their time around the engine{front}",
        cases=(
            (
                _from(Signal.FRONT_END_SHARE, 0.15, "set by hand: a seventh of a request is outside the engine"),
                _from(Signal.FRONT_END, 0.1, "set by hand: of short requests, some milliseconds are a large share"),
            ),
            (
                _from(Signal.CLIENT_GAP_SHARE, 0.3, "set by hand: a third of the client's first token"),
                _from(Signal.CLIENT_GAP, 0.05, "set by hand: beyond what a network adds"),
            ),
        ),
        remedies=(
            advice("start several processes of the front end, and look at the host's CPU (top -H)"),
            REPLICA,
        ),
        source="https://docs.vllm.ai/en/v0.14.0/configuration/optimization/ (CPU resources, API server scale-out)",
    ),
    Rule(
        symptom="client-bound",
        kind=Kind.MEASUREMENT,
        title="The client does not keep its own concurrency",
        cause="fewer requests were under way than were asked for: the load generator, not the server, sets the pace",
        cases=((_below(Signal.CLIENTS_BUSY, 0.8, "set by hand: one client in five idle"),),),
        remedies=(advice("run the client on a host of its own, with more processes; raise its limit of connections"),),
        source=_LITTLE,
    ),
    Rule(
        symptom="tp-over-pcie",
        kind=Kind.FAULT,
        title="Tensor parallelism runs over PCIe",
        cause="two all-reduces per layer cross a bus that NVLink would outrun{messages}",
        cases=(
            (_is(Signal.PCIE_ONLY, "the engine's own words"),),
            (
                _is(Signal.TP_WITHOUT_LINK, "gpus.yaml: no scale-up link"),
                _from(Signal.COMMUNICATION_SHARE, 0.2, "set by hand: a fifth of a step"),
            ),
        ),
        remedies=(STAGES, SMALLER_TP, WEIGHTS_INT4),
        source="all-reduce over PCIe: tests/published, efficiency.yaml; vLLM custom_all_reduce.py",
    ),
    Rule(
        symptom="tp-over-network",
        kind=Kind.FAULT,
        title="Tensor parallelism crosses machines",
        cause="two all-reduces per layer cross the network{messages}",
        cases=(
            (
                _is(Signal.TP_ACROSS_MACHINES, "more ranks than the scale-up link joins"),
                _from(Signal.COMMUNICATION_SHARE, 0.2, "set by hand: a fifth of a step"),
            ),
        ),
        remedies=(STAGES, SMALLER_TP, advice("check that RDMA is used (NCCL_DEBUG=INFO names the network)")),
        source="https://github.com/vllm-project/vllm/issues/17006: TP within machines, stages between them",
    ),
    Rule(
        symptom="slow-kernels",
        kind=Kind.FAULT,
        title="The engine says that its kernels for these weights are slow",
        cause="{kernels}",
        cases=((_is(Signal.SLOW_KERNELS, "the engine's own words"),),),
        remedies=(WEIGHTS_FP8, WEIGHTS_16, advice("take a format that the engine and the GPU compute in")),
        source="warnings of the engine: infcalc/diagnosis/from_start.py",
    ),
    Rule(
        symptom="weight-only-spent",
        kind=Kind.FAULT,
        title="Weight-only quantization brings nothing at this batch",
        cause="fewer bits save bandwidth, not arithmetic, and are widened in every step: with {batch} this costs more "
        "than it saves",
        cases=(
            (
                _is(Signal.WEIGHT_ONLY, "4-bit weights, arithmetic in 16 bit"),
                _from(Signal.BATCH, 64.0, "timed kernels: 4-bit gains nothing from 64 tokens on (efficiency.yaml)"),
                _from(Signal.WEIGHT_ONLY_LOSS, 1.0, "the model: 16 bit is as fast"),
            ),
        ),
        remedies=(WEIGHTS_FP8, WEIGHTS_16),
        source="https://github.com/casper-hansen/AutoAWQ/issues/106: half of FP16's throughput at batch 256",
    ),
    Rule(
        symptom="weights-offloaded",
        kind=Kind.LIMIT,
        title="Weights are read from host memory in every step",
        cause="a step takes at least offloaded bytes / bandwidth of the link; only more sequences share it{offload}",
        cases=((_above(Signal.OFFLOADED, 0.0, "the setting"),),),
        remedies=(NO_OFFLOAD, WEIGHTS_INT4, TWICE_THE_TP),
        source="https://github.com/vllm-project/vllm/pull/6317",
    ),
    # Beside the prediction
    Rule(
        symptom="cpu-bound",
        kind=Kind.FAULT,
        title="Steps take longer than predicted, and most of a step is the engine's own overhead",
        cause="launches, scheduling and sampling on the host: a slow or busy CPU shows here first",
        cases=((_BEYOND, _SLOWEST, _MOSTLY_OVERHEAD), (_FAR_BEYOND, _MOSTLY_OVERHEAD)),
        remedies=(
            WITH_GRAPHS,
            advice("look at the host (top -H, lscpu): one core per rank at full clock; a newer engine schedules ahead"),
        ),
        source="efficiencies and overheads: docs/efficiency.md",
        unless=("unit-mistaken", "impossible-measurement", "graph-capture-missed", "tp-over-network"),
    ),
    Rule(
        symptom="slower-than-predicted",
        kind=Kind.FAULT,
        title="It is slower than such a deployment is",
        cause="{slower}",
        cases=((_BEYOND, _SLOWEST), (_FAR_BEYOND,)),
        remedies=(advice("{suspects}"),),
        source="bands of published runs: docs/serving_accuracy.md",
        unless=("unit-mistaken", "impossible-measurement", "cpu-bound", "tp-over-network"),
        general=True,
    ),
    Rule(
        symptom="prefill-bound",
        kind=Kind.LIMIT,
        title="Prompts take most of the GPU's time",
        cause="prefill computes: FLOP/s bound it, not memory{prefill}",
        cases=((_from(Signal.PREFILL_SHARE, 0.5, "more than half"),),),
        remedies=(PREFIXES, WEIGHTS_FP8, REPLICA),
        source="roofline of prefill: docs/concepts/roofline.md",
    ),
    Rule(
        symptom="faster-than-predicted",
        kind=Kind.NORMAL,
        title="{measured} is faster than such a deployment is predicted to be",
        cause="what was not said would explain it (more GPUs or replicas, pools of prefill and decode, prompts found "
        "in the cache, drafting, fewer bits): {normal}",
        cases=(
            (
                _from(Signal.BAND_OVER_TOKEN, 1.25, "set by hand: a quarter beyond the band, as for what is slower"),
                _from(Signal.SLOWER_PEERS, 0.95, "api/peer_table.py: of published runs, 95 % are slower"),
            ),
            (
                _from(Signal.BAND_OVER_TOKEN, 1.25, "set by hand: a quarter beyond the band, as for what is slower"),
                _to(Signal.UNRANKED_OVER_BAND, 1.0, "no runs of its class are published"),
            ),
        ),
        remedies=(advice("say all that runs (--gpus, --tp, --weights, --prefix-hit): gains are of what was said"),),
        source="bands of published runs: docs/serving_accuracy.md",
        unless=("unit-mistaken", "impossible-measurement", "contradictory-figures"),
    ),
    Rule(
        symptom="normal",
        kind=Kind.NORMAL,
        title="{measured} is normal: {bound} bound at {roofline} of roofline",
        cause="{normal}",
        cases=(
            (_to(Signal.TOKEN_OVER_BAND, 1.0, "within the band that holds 80 % of published runs, or faster"),),
            (_above(Signal.SLOWER_PEERS, 0.05, "api/peer_table.py: more than 5 % of published runs of its class"),),
            (_to(Signal.UNRANKED_OVER_BAND, 1.25, "set by hand, as for what is slower"),),
        ),
        remedies=(WEIGHTS_FP8, TWICE_THE_TP),
        source="bands of published runs: docs/serving_accuracy.md",
        unless=(
            *("unit-mistaken", "impossible-measurement", "contradictory-figures"),
            *("slower-than-predicted", "cpu-bound", "faster-than-predicted"),
        ),
    ),
    Rule(
        symptom="decode-bound",
        kind=Kind.LIMIT,
        title="Decode takes most of the GPU's time",
        cause="every step reads weights and cache: bandwidth bounds it, and more sequences share the weights{decode}",
        cases=(
            (
                _below(Signal.PREFILL_SHARE, 0.5, "less than half"),
                _from(Signal.BANDWIDTH_SHARE, 0.5, "more than half of a token"),
            ),
        ),
        remedies=(WEIGHTS_FP8, KV_FP8, TWICE_THE_TP),
        source="roofline of decode: docs/concepts/roofline.md",
        unless=("normal", "faster-than-predicted"),
    ),
)
