"""The one table of options: every command takes its options from here, so that a name means the same everywhere."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.cli.completion import among
from infcalc.frozen import frozen


@frozen
class Option:
    """One option: its Python parameter, its flags, type, default and help."""

    name: str
    flags: tuple[str, ...]
    kind: Any
    help: str
    default: Any = None
    group: str = "Options"
    completes: str = ""
    """The kind of names that complete it in a shell; empty: none are known."""

    def annotation(self) -> Any:  # noqa: ANN401 - an Annotated form has no nameable type
        """Return the annotation typer reads."""
        return Annotated[
            self.kind,
            typer.Option(
                *self.flags,
                help=self.help,
                rich_help_panel=self.group,
                show_default=self.default is not None,
                autocompletion=among(self.completes) if self.completes else None,
            ),
        ]


def _deployment(name: str, *flags: str, kind: Any, text: str, completes: str = "") -> Option:  # noqa: ANN401 - any
    return Option(name=name, flags=flags, kind=kind, help=text, group="Deployment", completes=completes)


_Texts = list[str] | None
_Text = str | None
_Whole = int | None
_Real = float | None

_NO_PREFIX_CACHING = Option(
    name="no_prefix_caching",
    flags=("--no-prefix-caching",),
    kind=bool,
    default=False,
    help="Compute every prompt from its beginning.",
    group="Question",
)

DEPLOYMENT = (
    _deployment(
        "model",
        "--model",
        "-m",
        kind=_Texts,
        text="Model: catalog name, Hugging Face id, config.json, checkpoint folder or .gguf. Repeatable. [llama3-70b]",
        completes="models",
    ),
    _deployment("gpu", "--gpu", "-g", kind=_Texts, text="GPU: catalog name. Repeatable. [a100-80gb]", completes="gpus"),
    _deployment("gpus", "--gpus", "-n", kind=_Whole, text="GPUs of one replica: TP x PP x DP. [4]"),
    _deployment("tp", "--tp", kind=_Whole, text="Tensor-parallel ranks. [what --gpus leaves]"),
    _deployment("pp", "--pp", kind=_Whole, text="Pipeline stages. [1]"),
    _deployment("dp", "--dp", kind=_Whole, text="Attention data-parallel ranks of one replica. [1]"),
    _deployment("ep", "--ep", kind=_Whole, text="Ranks that experts are spread over; 1: experts follow TP. [1]"),
    _deployment("dcp", "--dcp", kind=_Whole, text="Ranks that a sequence's KV is split over by position. [1]"),
    _deployment(
        "weights",
        "--weights",
        kind=_Text,
        text="Weight precision: auto, bf16, fp8, int8, int4, awq, gptq, mxfp4, nvfp4 or a GGUF type. [auto]",
    ),
    _deployment(
        "kv_dtype",
        "--kv-dtype",
        kind=_Texts,
        text="KV-cache precision: auto, bf16, fp16, fp8, int8, int4, nvfp4, fp8_ds_mla, nvfp4_ds_mla, q8_0, q4_0.",
    ),
    _deployment("quant", "--quant", kind=_Texts, text="Short for --kv-dtype; several: repeat it or use commas."),
    _deployment(
        "engine",
        "--engine",
        kind=_Text,
        text="vllm, sglang, tensorrt-llm or llama.cpp. [vllm]",
        completes="engines",
    ),
    _deployment("engine_version", "--engine-version", kind=_Text, text="Engine version. [newest known]"),
    _deployment(
        "memory_fraction", "--memory-fraction", kind=_Real, text="The engine's own memory fraction. [its default]"
    ),
    _deployment("max_model_len", "--max-model-len", kind=_Text, text="Longest sequence the engine admits, in tokens."),
    _deployment("max_num_seqs", "--max-num-seqs", kind=_Whole, text="Cap on running sequences. [the engine's]"),
    _deployment(
        "max_num_batched_tokens", "--max-num-batched-tokens", kind=_Whole, text="Tokens per step. [the engine's]"
    ),
    _deployment("block_size", "--block-size", kind=_Whole, text="Tokens per KV block. [the engine's]"),
    _deployment(
        "cpu_offload_gb",
        "--cpu-offload-gb",
        kind=_Real,
        text="GiB of each GPU's weights that stay in host memory. [0]",
    ),
    _deployment(
        "kv_offload_gib", "--kv-offload-gib", kind=_Real, text="GiB of host memory for KV, of all GPUs together. [0]"
    ),
    Option(
        name="enforce_eager",
        flags=("--enforce-eager",),
        kind=bool,
        default=False,
        help="Without CUDA graphs.",
        group="Deployment",
    ),
)

BESIDES = (
    _deployment(
        "mtp_tokens",
        "--mtp-tokens",
        kind=_Whole,
        text="Draft tokens of the model's own MTP layers, which are then loaded and cached. [none]",
    ),
    _deployment(
        "draft_model",
        "--draft-model",
        kind=_Text,
        text="A published head or a model that drafts: loaded and cached beside the model. [none]",
    ),
    _deployment("num_draft_tokens", "--num-draft-tokens", kind=_Whole, text="Tokens that it drafts in a round. [3]"),
    _deployment("lora_rank", "--lora-rank", kind=_Whole, text="Largest rank of LoRA adapters. [no adapters]"),
    _deployment("max_loras", "--max-loras", kind=_Whole, text="LoRA adapters held at once. [1]"),
    Option(
        name="text_only",
        flags=("--text-only",),
        kind=bool,
        default=False,
        help="Serve a multimodal model without pictures: none are profiled.",
        group="Deployment",
    ),
)
"""What a deployment holds beside the model."""

CONTEXT = (
    Option(
        name="context",
        flags=("--context", "-c"),
        kind=_Texts,
        help="Context length in tokens (4096, 4k, 128k). Repeatable.",
        group="Question",
    ),
)

LENGTHS = (
    Option(
        name="input_tokens",
        flags=("--input-tokens",),
        kind=_Text,
        help="Prompt length: a number, or lognormal:mean=500,cv=1.2, p50=200,p90=900, uniform:, exponential:, pareto:.",
        group="Load",
    ),
    Option(
        name="output_tokens",
        flags=("--output-tokens",),
        kind=_Text,
        help="Answer length, written the same way.",
        group="Load",
    ),
)

THINKING = (
    Option(
        name="think_time",
        flags=("--think-time",),
        kind=_Text,
        help="Pause of a user between an answer and the next request: 30s, 500ms. [0]",
        group="Load",
    ),
)

LOAD = (
    *LENGTHS,
    *THINKING,
    Option(
        name="service_time",
        flags=("--service-time",),
        kind=_Text,
        help="From request to the end of its answer: 12s. [the ideal roofline's floor]",
        group="Load",
    ),
    Option(
        name="users",
        flags=("--users",),
        kind=_Whole,
        help="Users to serve: says whether they fit, and how many sequences they need; exit 3 when they do not.",
        group="Load",
    ),
)

BATCHES = (
    Option(
        name="batch",
        flags=("--batch",),
        kind=_Texts,
        help="Sequences decoded together. Repeatable where several are looked at.",
        group="Question",
    ),
)

RATE = (
    Option(
        name="rate",
        flags=("--rate",),
        kind=_Real,
        help="Requests per second that arrive at random.",
        group="Load",
    ),
)

ARRIVALS = (
    Option(
        name="concurrency",
        flags=("--concurrency",),
        kind=_Whole,
        help="Requests under way at any time: clients that send the next when they have the answer.",
        group="Load",
    ),
    *RATE,
    Option(
        name="users",
        flags=("--users",),
        kind=_Whole,
        help="People who pause for --think-time between an answer and their next request.",
        group="Load",
    ),
    Option(
        name="num_requests",
        flags=("--num-requests",),
        kind=_Whole,
        help="A finite run of so many requests, its start and end included. [the steady state]",
        group="Load",
    ),
    Option(
        name="prefix_hit",
        flags=("--prefix-hit",),
        kind=_Real,
        help="Fraction of each prompt that the prefix cache holds. [0]",
        group="Load",
    ),
)

ARRIVAL_TIMES = (
    Option(
        name="arrivals",
        flags=("--arrivals",),
        kind=_Text,
        help="When requests come: poisson:12, gamma:rate=12,cv=2, weibull:..., constant:12, "
        "ramp:from=1,to=20,over=10min, diurnal:rate=12,ratio=3, closed:clients=100,think=30s, or once.",
        group="Load",
    ),
    Option(
        name="burstiness",
        flags=("--burstiness",),
        kind=_Real,
        help="Of --rate, as in vLLM's benchmark: 1 is Poisson, below 1 burstier. [1]",
        group="Load",
    ),
)

REPEATED = (
    Option(
        name="shared_prefix",
        flags=("--shared-prefix",),
        kind=_Text,
        help="System prompts before the prompts: num=10,tokens=1000,share=0.8,skew=1.",
        group="Load",
    ),
    Option(
        name="turns",
        flags=("--turns",),
        kind=_Text,
        help="Turns of a session, a number or a distribution; each prompt holds what was said before. [1]",
        group="Load",
    ),
)

TRACE = (
    Option(
        name="num_requests",
        flags=("--num-requests", "--requests"),
        kind=_Whole,
        help="Requests to make; of a file the first so many. [10000; of a file all]",
        group="Trace",
    ),
    Option(
        name="speedup",
        flags=("--speedup",),
        kind=_Real,
        help="Arrivals of a file closer together by this factor. [1]",
        group="Trace",
    ),
    Option(
        name="trace_format",
        flags=("--trace-format",),
        kind=_Text,
        help="azure, burstgpt, mooncake, bailian, sharegpt, sharegpt-sessions, csv, jsonl or infcalc. [by its content]",
        group="Trace",
    ),
    Option(
        name="save_trace",
        flags=("--save-trace",),
        kind=_Text,
        help="Write the requests to this file: .csv for times and lengths, else JSON lines with all.",
        group="Trace",
    ),
)

SEED = (
    Option(
        name="seed",
        flags=("--seed",),
        kind=_Whole,
        help="Of the random numbers: the same seed, the same answer. [0]",
        group="Load",
    ),
)

SCHEDULING = (
    Option(
        name="requests",
        flags=("--requests", "--num-requests"),
        kind=_Whole,
        help="Requests to serve. [50]",
        group="Load",
    ),
    Option(
        name="slots",
        flags=("--slots",),
        kind=_Whole,
        help="Requests that may run at once. [8]",
        group="Question",
    ),
    Option(
        name="policy",
        flags=("--policy",),
        kind=_Texts,
        help="static, continuous, sarathi, vllm, sglang or tensorrt-llm. Repeatable. [all]",
        group="Question",
    ),
    Option(
        name="unit_steps",
        flags=("--unit-steps",),
        kind=bool,
        default=False,
        help="Count steps: each takes one second, whatever it computes.",
        group="Question",
    ),
)

TERMS = (
    Option(
        name="price",
        flags=("--price",),
        kind=_Texts,
        help="USD per GPU-hour: 2.5, or h100=2.49 by name. Repeatable. [the middle one of the newest in the catalog]",
        group="Cost",
    ),
    Option(
        name="utilization",
        flags=("--utilization",),
        kind=_Real,
        help="Fraction of the paid hours under this load. [1]",
        group="Cost",
    ),
    Option(
        name="capex",
        flags=("--capex",),
        kind=_Real,
        help="Own hardware: USD per GPU, with its share of host and network.",
        group="Cost",
    ),
    Option(
        name="years",
        flags=("--years",),
        kind=_Real,
        help="Years that own hardware is written off over. [3]",
        group="Cost",
    ),
    Option(
        name="residual",
        flags=("--residual",),
        kind=_Real,
        help="Fraction of --capex that own hardware sells for in the end. [0]",
        group="Cost",
    ),
    Option(
        name="power_price",
        flags=("--power-price",),
        kind=_Real,
        help="USD per kWh that own hardware draws. [0]",
        group="Cost",
    ),
    Option(
        name="pue",
        flags=("--pue",),
        kind=_Real,
        help="Power of the site over that of own hardware. [1]",
        group="Cost",
    ),
)

API_PRICE = (
    Option(
        name="api_price",
        flags=("--api-price",),
        kind=_Text,
        help="An API to break even with: in=0.5,out=1.5 in USD per million tokens; also cached=0.1.",
        group="Cost",
    ),
)

PROFILE = (
    Option(
        name="profile",
        flags=("--profile",),
        kind=_Text,
        help="The bill of a day: a CSV file with the columns hour (or time) and rate, users or fraction.",
        group="Cost",
    ),
    Option(
        name="peak",
        flags=("--peak",),
        kind=_Real,
        help="Requests/s that fraction 1 of --profile stands for.",
        group="Cost",
    ),
    Option(
        name="start_up",
        flags=("--start-up",),
        kind=_Text,
        help="Time until a started replica serves: 90s or 5min. [0]",
        group="Cost",
    ),
    Option(
        name="min_replicas",
        flags=("--min-replicas",),
        kind=_Whole,
        help="Replicas that run all day. [1]",
        group="Cost",
    ),
)
"""A load that rises and falls, and how replicas follow it."""

JUDGING = (
    Option(
        name="sweep",
        flags=("--sweep",),
        kind=_Text,
        help="A curve: batch=1..1024; also concurrency, rate, users, input-tokens, output-tokens, tp; lists 1,2,4.",
        group="Question",
    ),
    Option(
        name="measured",
        flags=("--measured",),
        kind=_Texts,
        help="What you measured: tpot=12ms, ttft=0.5s, e2e=10s, output-tokens-per-s=900; says whether it can be.",
        group="Question",
    ),
    Option(
        name="slo",
        flags=("--slo",),
        kind=_Texts,
        help="Limits to keep: ttft=500ms,tpot=50ms. Exit 4 when one is not kept.",
        group="Question",
    ),
)

DRAFTING = (
    Option(
        name="method",
        flags=("--method",),
        kind=_Texts,
        help="draft-model, eagle, eagle-tree, eagle2, eagle3, eagle3-tree, mtp, medusa, hydra, ngram, lookahead, "
        "recycling or rest. Repeatable.",
        group="Question",
    ),
    Option(
        name="draft_model",
        flags=("--draft-model",),
        kind=_Text,
        help="A small model or a published head that drafts, priced by its own work.",
        group="Question",
    ),
    Option(
        name="num_draft_tokens",
        flags=("--num-draft-tokens",),
        kind=_Whole,
        help="Draft length. [the best of the measured ones]",
        group="Question",
    ),
    Option(
        name="acceptance",
        flags=("--acceptance",),
        kind=_Texts,
        help="One number: uniform. A list (0.7,0.5,0.3): survival by position, as vLLM prints. [published]",
        group="Question",
    ),
    Option(
        name="simulate",
        flags=("--simulate",),
        kind=_Whole,
        help="Run so many rounds of chains and trees with the fastest chain's acceptance. [none]",
        group="Question",
    ),
)

COUNTERS = (
    Option(
        name="accepted",
        flags=("--accepted",),
        kind=_Texts,
        help="Accepted draft tokens as counted (spec_decode_num_accepted_tokens), or a list by position.",
        group="Question",
    ),
    Option(
        name="drafted",
        flags=("--drafted",),
        kind=_Whole,
        help="Drafts (rounds) in which they were accepted (spec_decode_num_drafts).",
        group="Question",
    ),
)

MTP = (
    Option(
        name="method",
        flags=("--method",),
        kind=_Text,
        help="mtp: count the weights and the KV of the model's own MTP layers.",
        group="Question",
    ),
)


def _question(name: str, *flags: str, kind: Any, text: str) -> Option:  # noqa: ANN401 - any option type
    return Option(name=name, flags=flags, kind=kind, help=text, group="Question")


REQUESTS = (_question("requests", "--requests", kind=_Whole, text="Requests that are drawn. [enough of them]"),)

PAGING = (
    _question("pool_tokens", "--pool-tokens", kind=_Text, text="KV pool in tokens. [that of the deployment]"),
    _question(
        "load",
        "--load",
        kind=_Real,
        text="Tokens that requests would hold at once, with room for all, over those of the pool. [1]",
    ),
    _question(
        "shared_prefix_tokens",
        "--shared-prefix-tokens",
        kind=_Text,
        text="Length of the prompt that requests have in common. [1000]",
    ),
    _question("shared_requests", "--shared-requests", kind=_Whole, text="Requests that have it in common. [50]"),
)

PREFIXES = (
    _question("prefixes", "--prefixes", kind=_Whole, text="Different prefixes. [5]"),
    _question("sharing", "--sharing", kind=_Real, text="Fraction of the requests that begin with one of them. [0.6]"),
    _question("prefix_tokens", "--prefix-tokens", kind=_Text, text="Length of a prefix. [1000]"),
    _question(
        "index",
        "--index",
        kind=_Text,
        text="radix-tree or hash-blocks. [radix-tree; with --engine how that one finds prefixes]",
    ),
    _question("policy", "--policy", kind=_Text, text="What a tree evicts first: lru, lfu, fifo, size-aware. [lru]"),
    _question("page_size", "--page-size", kind=_Whole, text="Tokens of a page. [1 in a tree, else the block size]"),
    _question("max_entries", "--max-entries", kind=_Whole, text="Entries that a tree keeps. [500]"),
    _question("max_tokens", "--max-tokens", kind=_Text, text="Tokens that the cache keeps. [the KV pool]"),
)

SIMULATION = (
    _question("policy", "--policy", kind=_Text, text="Who schedules, as in batching. [as the engine does]"),
    _question(
        "compare",
        "--compare",
        kind=_Texts,
        text="Several policies side by side: static,continuous,vllm,sglang. Each gets the same requests.",
    ),
    _question("slots", "--slots", kind=_Whole, text="Requests that may run at once. [--max-num-seqs]"),
    _question("replicas", "--replicas", kind=_Whole, text="Replicas of the deployment behind a router. [1]"),
    _question(
        "router", "--router", kind=_Text, text="round-robin, least-loaded, prefix-aware or session. [round-robin]"
    ),
    _question(
        "prefill_replicas",
        "--prefill-replicas",
        kind=_Whole,
        text="Replicas that only compute prompts, beside --decode-replicas.",
    ),
    _question(
        "decode_replicas",
        "--decode-replicas",
        kind=_Whole,
        text="Replicas that only answer prompts whose cache comes from --prefill-replicas.",
    ),
    _question("prefill_tp", "--prefill-tp", kind=_Whole, text="TP of a prefill replica. [--tp]"),
    _question("decode_tp", "--decode-tp", kind=_Whole, text="TP of a decode replica. [--tp]"),
    _question(
        "kv_link",
        "--kv-link",
        kind=_Text,
        text="What caches cross: 50GB/s, or bandwidth=50GB/s,latency=20us,shared=pool. [50 GB/s for each prefill GPU]",
    ),
    _question(
        "aggregated",
        "--aggregated",
        kind=_Text,
        text="Plain replicas on as many GPUs that pools are judged against: best, same or none. [best]",
    ),
    _question(
        "autoscale",
        "--autoscale",
        kind=_Text,
        text="Replicas that come and go: min=1,max=8,queue=4,start=60s, or kv=0.8; also below, window, every, pause.",
    ),
    _NO_PREFIX_CACHING,
    Option(
        name="contiguous",
        flags=("--contiguous",),
        kind=bool,
        default=False,
        help="Static and continuous batching without paging: room for the longest sequence from the start.",
        group="Question",
    ),
    Option(
        name="step_by_step",
        flags=("--step-by-step",),
        kind=bool,
        default=False,
        help="Compute every step by the parts that the numpy engine runs: slower, with the same answer.",
        group="Question",
    ),
    _question(
        "save_requests",
        "--save-requests",
        kind=_Text,
        text="Write each request's times to this file: .csv, else JSON lines.",
    ),
    Option(
        name="no_requests",
        flags=("--no-requests",),
        kind=bool,
        default=False,
        help="Keep samples only, no record of each request: the same answer in less memory.",
        group="Question",
    ),
)

EXECUTION = (
    _question(
        "workers",
        "--workers",
        kind=_Whole,
        text="Processes for the runs of --sweep and --compare; 1: none but this. [all cores, where that is quicker]",
    ),
    _question(
        "executor",
        "--executor",
        kind=_Text,
        text="Who makes these runs: serial, processes, or dask (the dask extra). [processes]",
    ),
    _question("scheduler", "--scheduler", kind=_Text, text="Address of the dask scheduler: tcp://HOST:8786."),
)

LAUNCH = (
    _question(
        "target",
        "--target",
        kind=_Texts,
        text="What to write: shell, python, docker, kubernetes, kserve or all. Repeatable. [all]",
    ),
    _question("save", "--save", kind=_Text, text="Write the files into this folder."),
    _question("replicas", "--replicas", kind=_Whole, text="Replicas of the deployment. [1]"),
    _question(
        "prefill_replicas",
        "--prefill-replicas",
        kind=_Whole,
        text="Prefill servers of a disaggregated pair; --replicas then decode. [0]",
    ),
    _question("method", "--method", kind=_Text, text="ngram: draft by looking words up. [none]"),
    Option(
        name="prefix_caching",
        flags=("--prefix-caching",),
        kind=bool,
        default=False,
        help="Keep beginnings of prompts that come again, also where the engine's default is not to.",
        group="Question",
    ),
    _NO_PREFIX_CACHING,
    Option(
        name="no_chunked_prefill",
        flags=("--no-chunked-prefill",),
        kind=bool,
        default=False,
        help="Compute every prompt in one step.",
        group="Question",
    ),
    _question("model_id", "--model-id", kind=_Text, text="What the engine loads: a hub id or path. [the model's]"),
    _question("served_name", "--served-name", kind=_Text, text="Name of the model in requests. [its id]"),
    _question("port", "--port", kind=_Whole, text="Port to listen on. [the engine's]"),
)

MEASURED = (
    _question(
        "benchmark_format",
        "--benchmark-format",
        kind=_Text,
        text="vllm-serve, serve-text, vllm-latency, vllm-throughput, sglang-serve, guidellm, guidellm-csv, aiperf, "
        "aiperf-csv, inference-perf, trtllm-bench, trtllm-text, llama-bench, llama-bench-csv, llama-bench-markdown, "
        "engine-trace, prometheus or interval-log. [by its content]",
    ),
    Option(
        name="simulate",
        flags=("--simulate",),
        kind=bool,
        default=False,
        help="Also simulate the load of a benchmark, request by request: predicts percentiles.",
        group="Question",
    ),
)
"""Of what was measured."""

PRICE = tuple(option for option in TERMS if option.name == "price")

BENCH = (
    Option(
        name="size",
        flags=("--size",),
        kind=_Text,
        help="Model to run: small, medium, or large, which exceeds the last-level cache. [large]",
        group="Question",
    ),
    Option(
        name="hidden",
        flags=("--hidden",),
        kind=_Whole,
        help="Its hidden width. [of its size]",
        group="Question",
    ),
    Option(
        name="layers",
        flags=("--layers",),
        kind=_Whole,
        help="Its layers. [of its size]",
        group="Question",
    ),
    Option(
        name="tokens",
        flags=("--tokens",),
        kind=_Text,
        help="Tokens up to which projections are counted. [1000]",
        group="Question",
    ),
    Option(
        name="repeat",
        flags=("--repeat",),
        kind=_Whole,
        help="How often everything is timed, in each of two halves. [12]",
        group="Question",
    ),
    Option(
        name="threads",
        flags=("--threads",),
        kind=_Whole,
        help="Threads of linear algebra; one is timed by its CPU time. [1; all cores in `measure` and with --gpu]",
        group="Question",
    ),
    Option(
        name="quick",
        flags=("--quick",),
        kind=bool,
        default=False,
        help="A few seconds: a small model, few repeats, 250 tokens.",
        group="Question",
    ),
    Option(
        name="name",
        flags=("--name",),
        kind=_Text,
        help="Of the catalog entry that `lab measure` writes. [this-cpu]",
        group="Question",
    ),
    Option(
        name="device",
        flags=("--device",),
        kind=_Text,
        help="`measure` times torch's kernels on it: cuda or cpu (the torch extra). [numpy's, on this CPU]",
        group="Question",
    ),
    Option(
        name="gpu",
        flags=("--gpu", "-g"),
        kind=_Text,
        help="Predict from this catalog entry, in place of kernels timed anew; with --device, which one it is.",
        group="Catalog",
    ),
)
"""What a measurement on this computer runs."""

PLANNING = (
    _question("objective", "--objective", kind=_Text, text="cost, throughput, latency or goodput (per USD). [cost]"),
    Option(
        name="budget",
        flags=("--budget",),
        kind=_Text,
        help="Most to pay, in USD: 5000/month or 8/h. [no limit]",
        group="Cost",
    ),
    _question("headroom", "--headroom", kind=_Text, text="More than the load that limits must hold for: 20%. [0]"),
    _question("spare", "--spare", kind=_Text, text="Replicas that may fail while all limits hold: N+1. [none]"),
    _question("max_gpus", "--max-gpus", kind=_Whole, text="Most GPUs in all. [no limit]"),
    _question("gpus_from", "--gpus-from", kind=_Texts, text="GPUs to choose from: h100,a100. [all with a price]"),
    _question("engines_from", "--engines-from", kind=_Texts, text="Engines to choose from. [--engine, else vllm]"),
    _question(
        "allow",
        "--allow",
        kind=_Texts,
        text="Precisions that may be taken although they lose something: fp8,int4, weights=awq, kv=fp8. [none]",
    ),
    _question("confirm", "--confirm", kind=_Whole, text="Best plans that the simulator confirms; 0: none. [5]"),
    _question("top", "--top", kind=_Whole, text="Plans to show. [10]"),
    Option(
        name="from_naive",
        flags=("--from-naive",),
        kind=bool,
        default=False,
        help="Also the way there from a naive deployment, step by step, with what each step saves.",
        group="Question",
    ),
)

FEATURES = (
    Option(
        name="feature",
        flags=("--feature",),
        kind=_Texts,
        help="Only these: fp8-weights, int4-weights, fp8-kv, int4-kv, prefix-cache, speculation, tp-doubled, "
        "expert-parallel, dp-attention, disaggregation, chunk-halved, chunk-doubled, static-batching, contiguous-kv, "
        "naive-attention, no-kv-cache. Repeatable, or with commas. [all]",
        group="Question",
    ),
)

CATALOG = (
    Option(
        name="catalog",
        flags=("--catalog",),
        kind=_Texts,
        help="Overlay file with models and GPUs. Repeatable; a later one wins.",
        group="Catalog",
    ),
)

OUTPUT = (
    Option(
        name="format",
        flags=("--format",),
        kind=_Text,
        help="table, json, csv, markdown or plot. [table]",
        group="Output",
        completes="formats",
    ),
    Option(name="json", flags=("--json",), kind=bool, default=False, help="Short for --format json.", group="Output"),
    Option(
        name="output",
        flags=("--output", "-o"),
        kind=_Text,
        help="Write to this file instead of the screen.",
        group="Output",
    ),
    Option(
        name="explain",
        flags=("--explain",),
        kind=bool,
        default=False,
        help="Show each figure's formula, substituted values and the origin of each input.",
        group="Output",
    ),
    Option(
        name="require",
        flags=("--require",),
        kind=_Texts,
        help="Gate on a key of the result, such as 'sequences>=100'; exit 4 when not met. Repeatable.",
        group="Output",
    ),
)

DOCUMENT = (
    Option(
        name="format",
        flags=("--format",),
        kind=_Text,
        help="html, markdown or json. [by the ending of --output: .html, .md, .json; on the screen markdown]",
        group="Output",
        completes="papers",
    ),
    *(option for option in OUTPUT if option.name in {"json", "output", "require"}),
)
"""Of a command that writes a document: every figure in it is explained anyway."""
