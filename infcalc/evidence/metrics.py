"""Metrics of vLLM and SGLang by the names of our quantities, a snapshot for each scrape and model.

Source: vLLM docs/usage/metrics.md (0.6 to 0.33) and SGLang docs/references/production_metrics.md (0.4 to 0.5).
Counts of several engines of one server are added up, shares are their means.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from infcalc.errors import FileProblem
from infcalc.evidence.fields import MOST_COUNT, number_in, refuse
from infcalc.evidence.nouns import MEAN, MEDIAN, NOW, TOTAL, Measured, MetricsSnapshot, Quantity, Sample, Stated
from infcalc.evidence.prometheus import quantile, scrapes

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENGINES: Final = {"vllm": "vllm", "sglang": "sglang"}
_SIGN = re.compile(r"^\s*(?:#\s*(?:HELP|TYPE)\s+)?(?:vllm|sglang):[a-z_]", re.MULTILINE)

GAUGES: Final[dict[str, tuple[tuple[Quantity, tuple[str, ...]], ...]]] = {
    "vllm": (
        (Quantity.RUNNING, ("num_requests_running",)),
        (Quantity.WAITING, ("num_requests_waiting",)),
    ),
    "sglang": (
        (Quantity.RUNNING, ("num_running_reqs",)),
        (Quantity.WAITING, ("num_queue_reqs",)),
        (Quantity.POOL_TOKENS, ("max_total_num_tokens",)),
        (Quantity.OUTPUT_PER_S, ("gen_throughput",)),
    ),
}
SHARES: Final[dict[str, tuple[tuple[Quantity, tuple[str, ...]], ...]]] = {
    "vllm": ((Quantity.KV_USAGE, ("kv_cache_usage_perc", "gpu_cache_usage_perc")),),
    "sglang": (
        (Quantity.KV_USAGE, ("token_usage", "full_token_usage")),
        (Quantity.PREFIX_HITS, ("cache_hit_rate",)),
        (Quantity.ACCEPTED, ("spec_accept_rate",)),
    ),
}
COUNTERS: Final[dict[str, tuple[tuple[Quantity, tuple[str, ...]], ...]]] = {
    "vllm": (
        (Quantity.PREEMPTIONS, ("num_preemptions_total", "num_preemptions")),
        (Quantity.INPUT_TOKENS, ("prompt_tokens_total",)),
        (Quantity.OUTPUT_TOKENS, ("generation_tokens_total",)),
        (Quantity.CACHED_TOKENS, ("prefix_cache_hits_total",)),
        (Quantity.REQUESTS, ("request_success_total",)),
    ),
    "sglang": (
        (Quantity.PREEMPTIONS, ("num_retracted_requests_total", "num_retracted_reqs")),
        (Quantity.INPUT_TOKENS, ("prompt_tokens_total",)),
        (Quantity.OUTPUT_TOKENS, ("generation_tokens_total",)),
        (Quantity.CACHED_TOKENS, ("cached_tokens_total",)),
        (Quantity.REQUESTS, ("num_requests_total",)),
    ),
}
HISTOGRAMS: Final[dict[str, tuple[tuple[Quantity, tuple[str, ...]], ...]]] = {
    "vllm": (
        (Quantity.TTFT, ("time_to_first_token_seconds",)),
        (Quantity.ITL, ("inter_token_latency_seconds", "time_per_output_token_seconds")),
        (Quantity.TPOT, ("request_time_per_output_token_seconds",)),
        (Quantity.E2E, ("e2e_request_latency_seconds",)),
        (Quantity.QUEUE, ("request_queue_time_seconds",)),
        (Quantity.PREFILL, ("request_prefill_time_seconds",)),
        (Quantity.DECODE, ("request_decode_time_seconds",)),
        (Quantity.INPUT_LENGTH, ("request_prompt_tokens",)),
        (Quantity.OUTPUT_LENGTH, ("request_generation_tokens",)),
        (Quantity.MAX_TOKENS, ("request_params_max_tokens",)),
        (Quantity.STEP_TOKENS, ("iteration_tokens_total",)),
    ),
    "sglang": (
        (Quantity.TTFT, ("time_to_first_token_seconds",)),
        (Quantity.ITL, ("inter_token_latency_seconds", "time_per_output_token_seconds")),
        (Quantity.E2E, ("e2e_request_latency_seconds",)),
        (Quantity.QUEUE, ("queue_time_seconds",)),
        (Quantity.INPUT_LENGTH, ("prompt_tokens_histogram",)),
        (Quantity.OUTPUT_LENGTH, ("generation_tokens_histogram",)),
    ),
}
_POINTS = ((MEDIAN, 0.5), ("p90", 0.9), ("p99", 0.99))
_NEEDED = (Quantity.RUNNING, Quantity.WAITING, Quantity.KV_USAGE, Quantity.TTFT, Quantity.ITL, Quantity.E2E)
_CONFIG = {"block_size": "block_size", "num_gpu_blocks": "num_gpu_blocks", "gpu_memory_utilization": "memory_fraction"}


def is_metrics(text: str) -> bool:
    """Return whether a text holds metrics of vLLM or SGLang."""
    return _SIGN.search(text) is not None


def read_metrics(text: str, place: str) -> tuple[MetricsSnapshot, ...]:
    """Return a snapshot for each scrape and model of a text.

    Raises:
        FileProblem: lines that are no samples, values that none can be, or no metric of an engine that is known.

    """
    faults: list[str] = []
    found, cut = scrapes(text, faults)
    snapshots = []
    for number, samples in enumerate(found, start=1):
        groups: dict[tuple[str, str], list[Sample]] = {}
        for sample in samples:
            prefix, colon, name = sample.name.partition(":")
            if not colon or prefix not in _ENGINES:
                continue
            one = Sample(name=name, labels=sample.labels, value=sample.value)
            groups.setdefault((_ENGINES[prefix], sample.label("model_name") or ""), []).append(one)
        # What is said of the engine itself bears no model.
        shared = {engine: groups.pop((engine, ""), []) for engine in _ENGINES.values()}
        named = groups or {(engine, ""): [] for engine, members in shared.items() if members}
        for (engine, model), members in named.items():
            one_place = (
                place if len(found) == len(named) == 1 else f"{place}, scrape {number}{model and f' of {model}'}"
            )
            snapshots.append(snapshot_of(engine, model, [*shared[engine], *members], one_place, faults))
    refuse(faults, place)
    if not snapshots:
        raise FileProblem("no metric of vLLM or SGLang", place=place, hint="save what /metrics of the server answers")
    if cut:
        last = snapshots[-1]
        snapshots[-1] = _with_warning(last, cut)
    return tuple(snapshots)


def snapshot_of(engine: str, model: str, samples: Sequence[Sample], place: str, faults: list[str]) -> MetricsSnapshot:
    """Return what samples of one engine and model say; their names are without the engine's prefix."""
    found = _Scrape(engine, samples, place, faults)
    for table, statistic in ((GAUGES, NOW), (COUNTERS, TOTAL)):
        for quantity, names in table[engine]:
            found.note_sum(quantity, names, statistic)
    for quantity, names in SHARES[engine]:
        found.note_share(quantity, names)
    for quantity, names in HISTOGRAMS[engine]:
        found.note_histogram(quantity, names)
    if engine == "vllm":
        _derive_vllm(found)
    else:
        rounds = found.values("spec_accept_length")
        if rounds and sum(rounds) > len(rounds):
            found.note(Quantity.TOKENS_PER_ROUND, NOW, sum(rounds) / len(rounds), "spec_accept_length")
    known = {one.quantity for one in found.measured}
    pooled = ("inter-token latencies are gaps of all requests, pooled: itl_s",) if Quantity.ITL in known else ()
    return MetricsSnapshot(
        place=place,
        engine=engine,
        model=model,
        measured=tuple(found.measured),
        settings=_settings(engine, model, found.by_name),
        samples=tuple(samples),
        missing=(*(str(one) for one in _NEEDED if one not in known), *found.nothing),
        conversions=pooled,
    )


class _Scrape:
    """Samples of one moment while they are read."""

    def __init__(self, engine: str, samples: Sequence[Sample], place: str, faults: list[str]) -> None:
        self.by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            self.by_name.setdefault(sample.name, []).append(sample)
        self.measured: list[Measured] = []
        self.nothing: list[str] = []
        self._engine, self._place, self._faults = engine, place, faults
        self._ranks = {sample.label("engine") for sample in samples} - {None}

    def values(self, name: str) -> list[float]:
        """Return the values of a metric that are numbers from 0 up; none where an engine of several has no such."""
        ranks = {one.label("engine") for one in self.by_name.get(name, [])}
        if None not in ranks and ranks and ranks < self._ranks:
            self.nothing.append(f"{name} (of {len(ranks)} of {len(self._ranks)} engines)")
            return []
        sound = []
        for one in self.by_name.get(name, []):
            if math.isnan(one.value):
                self.nothing.append(f"{name} (NaN)")
            elif 0 <= one.value <= MOST_COUNT:
                sound.append(one.value)
            else:
                self.fault(name, f"is {one.value:g}, not a number from 0 up")
        return sound

    def total(self, name: str) -> float | None:
        """Return the sum of a metric over all engines of a server; None where there is none."""
        values = self.values(name)
        return sum(values) if values else None

    def fault(self, name: str, what: str) -> None:
        """Note what is wrong."""
        self._faults.append(f"{self._place}: {self._engine}:{name} {what}")

    def note(self, quantity: Quantity, statistic: str, value: float, name: str, said: str = "") -> None:
        """Note a figure."""
        key = f"{self._engine}:{name}"
        self.measured.append(Measured(quantity=quantity, statistic=statistic, value=value, key=key, said=said))

    def _first(self, names: Sequence[str], ending: str = "") -> str | None:
        return next((name for name in names if self.by_name.get(f"{name}{ending}")), None)

    def note_sum(self, quantity: Quantity, names: Sequence[str], statistic: str) -> None:
        """Note a count over all engines of a server."""
        name = self._first(names)
        values = [] if name is None else self.values(name)
        if name is not None and values:
            self.note(quantity, statistic, sum(values), name)

    def note_share(self, quantity: Quantity, names: Sequence[str]) -> None:
        """Note a share, the mean over all engines of a server."""
        name = self._first(names)
        values = [] if name is None else self.values(name)
        if name is None or not values:
            return
        if max(values) > 1:
            self.fault(name, f"is {max(values):g}, not a share from 0 to 1")
            return
        self.note(quantity, NOW, sum(values) / len(values), name)

    def note_histogram(self, quantity: Quantity, names: Sequence[str]) -> None:
        """Note mean and percentiles of a histogram."""
        name = self._first(names, "_count")
        if name is None:
            return
        count, sums = sum(self.values(f"{name}_count")), self.values(f"{name}_sum")
        if not count:
            return
        if sums:
            said = f"{name}_sum / {name}_count since the start of the engine"
            self.note(quantity, MEAN, sum(sums) / count, name, said)
        buckets = self._buckets(name)
        # A scrape that is cut has no end of the histogram.
        if buckets.get(math.inf) != count:
            return
        for statistic, share in _POINTS:
            value = quantile(buckets, share)
            if value is not None:
                self.note(quantity, statistic, value, name, "interpolated between the bounds of buckets")

    def _buckets(self, name: str) -> dict[float, float]:
        found: dict[float, float] = {}
        for sample in self.by_name.get(f"{name}_bucket", []):
            text = sample.label("le") or ""
            bound = number_in(text)
            if bound is None or not 0 <= sample.value <= MOST_COUNT:
                self.fault(f"{name}_bucket", f"with le={text!r} is {sample.value:g}")
                return {}
            found[bound] = found.get(bound, 0.0) + sample.value
        counts = [found[bound] for bound in sorted(found)]
        if counts != sorted(counts):
            self.fault(f"{name}_bucket", "falls from one bound to the next: each counts all up to its bound")
            return {}
        return found


def _derive_vllm(found: _Scrape) -> None:
    """Note the shares that vLLM leaves to be divided."""
    queries, hits = (found.total(f"prefix_cache_{word}_total") for word in ("queries", "hits"))
    if queries and hits is not None and hits <= queries:
        found.note(Quantity.PREFIX_HITS, TOTAL, hits / queries, "prefix_cache_hits_total", "hits / queries, in tokens")
    rounds, drafted, accepted = (
        found.total(f"spec_decode_num_{word}_total") for word in ("drafts", "draft_tokens", "accepted_tokens")
    )
    name = "spec_decode_num_accepted_tokens_total"
    if rounds and accepted is not None:
        found.note(Quantity.TOKENS_PER_ROUND, TOTAL, 1 + accepted / rounds, name, "1 + accepted / rounds")
    if drafted and accepted is not None and accepted <= drafted:
        found.note(Quantity.ACCEPTED, TOTAL, accepted / drafted, name, "accepted / drafted")


def _settings(engine: str, model: str, by_name: dict[str, list[Sample]]) -> tuple[Stated, ...]:
    found = [Stated(name="engine", value=engine, key=f"{engine}:")]
    if model:
        found.append(Stated(name="model", value=model, key="model_name"))
    for sample in by_name.get("cache_config_info", [])[:1]:
        for label, name in _CONFIG.items():
            text = sample.label(label)
            if text and re.fullmatch(r"[0-9]{1,12}(\.[0-9]+)?", text):
                number = float(text)
                whole = name != "memory_fraction"
                found.append(
                    Stated(name=name, value=int(number) if whole else number, key=f"cache_config_info{{{label}}}")
                )
        kv = sample.label("cache_dtype")
        if kv:
            found.append(Stated(name="kv_dtype", value=kv, key="cache_config_info{cache_dtype}"))
    return tuple(found)


def _with_warning(snapshot: MetricsSnapshot, warning: str) -> MetricsSnapshot:
    return replace(snapshot, warnings=(*snapshot.warnings, warning))
