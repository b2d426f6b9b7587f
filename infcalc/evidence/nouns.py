"""The nouns of what was measured: a benchmark run, a snapshot of metrics, the interval lines of a log.

Values are in base units. What a file does not say is named in ``missing``; a figure whose definition differs from ours
is converted, or called by the name it has here, and ``conversions`` say so.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from infcalc.frozen import frozen


class Format(StrEnum):
    """What wrote a text; the words of ``--benchmark-format``."""

    VLLM_SERVE = "vllm-serve"
    SERVE_TEXT = "serve-text"
    VLLM_LATENCY = "vllm-latency"
    VLLM_THROUGHPUT = "vllm-throughput"
    SGLANG_SERVE = "sglang-serve"
    GUIDELLM = "guidellm"
    GUIDELLM_CSV = "guidellm-csv"
    AIPERF = "aiperf"
    AIPERF_CSV = "aiperf-csv"
    INFERENCE_PERF = "inference-perf"
    TRTLLM_BENCH = "trtllm-bench"
    TRTLLM_TEXT = "trtllm-text"
    LLAMA_BENCH = "llama-bench"
    LLAMA_BENCH_CSV = "llama-bench-csv"
    LLAMA_BENCH_MARKDOWN = "llama-bench-markdown"
    ENGINE_TRACE = "engine-trace"
    PROMETHEUS = "prometheus"
    INTERVAL_LOG = "interval-log"


class Quantity(StrEnum):
    """What may be measured, in base units; where ``estimate`` predicts it, by the same key."""

    TTFT = "ttft_s"
    """From sending a request to its first token."""
    TPOT = "tpot_s"
    """Of a request: (last token - first token) / (tokens - 1)."""
    TPOT_INCLUSIVE = "tpot_inclusive_s"
    """Of a request: (last token - sending) / tokens: the wait for the first token is in it."""
    ITL = "itl_s"
    """Gaps between what arrives, all requests pooled: where several tokens come in one chunk, this is no TPOT."""
    E2E = "e2e_s"
    QUEUE = "queue_s"
    PREFILL = "prefill_s"
    DECODE = "decode_s"
    REQUESTS_PER_S = "requests_per_s"
    GOODPUT = "goodput_requests_per_s"
    OUTPUT_PER_S = "output_tokens_per_s"
    INPUT_PER_S = "input_tokens_per_s"
    TOTAL_PER_S = "total_tokens_per_s"
    PER_USER = "output_tokens_per_s_per_user"
    CONCURRENT = "num_concurrent"
    """Requests under way."""
    TOKENS_PER_ROUND = "tokens_per_round"
    """With drafting: the token of the target and what was accepted."""
    ACCEPTED = "draft_acceptance_fraction"
    RUNNING = "num_running"
    WAITING = "num_waiting"
    KV_USAGE = "kv_usage_fraction"
    PREFIX_HITS = "prefix_hit_fraction"
    PREEMPTIONS = "num_preemptions"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    CACHED_TOKENS = "cached_tokens"
    REQUESTS = "num_requests"
    INPUT_LENGTH = "input_length_tokens"
    OUTPUT_LENGTH = "output_length_tokens"
    MAX_TOKENS = "max_tokens"
    """What requests allow their answer to be."""
    STEP_TOKENS = "step_tokens"
    """Tokens computed in a step."""
    POOL_TOKENS = "pool_tokens"
    """What the KV pool holds."""


TIMES = frozenset(
    {
        Quantity.TTFT,
        Quantity.TPOT,
        Quantity.TPOT_INCLUSIVE,
        Quantity.ITL,
        Quantity.E2E,
        Quantity.QUEUE,
        Quantity.PREFILL,
        Quantity.DECODE,
    }
)

MEAN, MEDIAN, TOTAL, NOW = "mean", "median", "total", "now"
"""Statistics by name; percentiles are ``p90``, ``p99.9``, and there are ``std``, ``min`` and ``max``."""


@frozen
class Measured:
    """One measured figure: what, which statistic of it, and the key it was read from."""

    quantity: Quantity
    statistic: str
    value: float
    key: str
    said: str = ""
    """How it was derived or converted, where it was."""


@frozen
class Stated:
    """A setting that the text states: name as in an ask (``model``, ``gpu``, ``tp``), value, and the key it is at."""

    name: str
    value: str | int | float
    key: str


@frozen
class StatedLoad:
    """How requests came, as far as the text says; None: it does not.

    ``unlimited``: the text says that nothing paces them. Lengths are means over the answered requests, those of
    single requests where the text lists them.
    """

    num_requests: int | None = None
    num_clients: int | None = None
    requests_per_s: float | None = None
    unlimited: bool = False
    burstiness: float | None = None
    """Shape of the gamma law of gaps: 1 is Poisson, its CV is 1/sqrt(burstiness)."""
    batch: int | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    inputs_tokens: tuple[float, ...] = ()
    outputs_tokens: tuple[float, ...] = ()
    context_tokens: int | None = None
    """Already in the cache before the run."""
    dataset: str = ""
    trace: bool = False
    """Whether requests came as in a recorded trace, at no rate that could be stated."""


@frozen
class BenchmarkRun:
    """One run of a benchmark."""

    form: Format
    place: str
    """File, and which of its runs where there are several."""
    load: StatedLoad
    settings: tuple[Stated, ...] = ()
    measured: tuple[Measured, ...] = ()
    num_completed: int | None = None
    num_failed: int | None = None
    duration_s: float | None = None
    missing: tuple[str, ...] = ()
    conversions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def figure(self, quantity: Quantity, statistic: str = MEAN) -> Measured | None:
        """Return a measured figure; None where the run does not state it."""
        return figure_of(self.measured, quantity, statistic)

    def setting(self, name: str) -> Stated | None:
        """Return a setting; None where the run does not state it."""
        return next((one for one in self.settings if one.name == name), None)


@frozen
class Sample:
    """One line of a Prometheus text."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    def label(self, name: str) -> str | None:
        """Return the value of a label."""
        return next((value for key, value in self.labels if key == name), None)


@frozen
class MetricsSnapshot:
    """Metrics of one engine and model at one moment. Counters and histograms count from the start of the engine."""

    place: str
    engine: str
    model: str
    measured: tuple[Measured, ...]
    """By the names of :class:`Quantity`: gauges ``now``, counters ``total``, times by mean and percentile."""
    settings: tuple[Stated, ...]
    samples: tuple[Sample, ...]
    missing: tuple[str, ...] = ()
    conversions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def figure(self, quantity: Quantity, statistic: str) -> Measured | None:
        """Return a figure; None where it is not among the metrics."""
        return figure_of(self.measured, quantity, statistic)

    def total(self, name: str, **labels: str) -> float | None:
        """Return the sum of a metric's samples that bear ``labels``; None where there is none."""
        found = [
            one.value
            for one in self.samples
            if one.name == name and all(one.label(key) == value for key, value in labels.items())
        ]
        return sum(found) if found else None


class Phase(StrEnum):
    """What an interval line tells of."""

    ALL = "all"
    """An interval with all its steps."""
    PREFILL = "prefill"
    DECODE = "decode"
    STEP = "step"
    """One step."""


@frozen
class IntervalLine:
    """What an engine prints of its work every few seconds or steps; None: the line does not say."""

    line: int
    engine: str
    phase: Phase
    input_tokens_per_s: float | None = None
    """Of prompts, as computed: without what was found in the cache."""
    output_tokens_per_s: float | None = None
    num_running: int | None = None
    num_waiting: int | None = None
    kv_usage_fraction: float | None = None
    prefix_hit_fraction: float | None = None
    held_tokens: int | None = None
    """In the KV cache."""
    new_tokens: int | None = None
    cached_tokens: int | None = None
    num_prefills: int | None = None
    tokens_per_round: float | None = None
    draft_acceptance_fraction: float | None = None
    num_preemptions: int | None = None
    graph: bool | None = None
    """Whether the step ran from a CUDA graph."""
    step_s: float | None = None
    rank: str = ""


@frozen
class IntervalLog:
    """The interval lines of a log, in order; ``retractions`` are the lines that say that requests were put back."""

    place: str
    engine: str
    lines: tuple[IntervalLine, ...]
    retractions: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()
    conversions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


Evidence: TypeAlias = BenchmarkRun | MetricsSnapshot | IntervalLog


def figure_of(measured: tuple[Measured, ...], quantity: Quantity, statistic: str) -> Measured | None:
    """Return one of several figures; None where it is not among them."""
    return next((one for one in measured if one.quantity == quantity and one.statistic == statistic), None)
