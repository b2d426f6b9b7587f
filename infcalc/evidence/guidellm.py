"""The JSON report of GuideLLM: ``{benchmarks: [{config, metrics, ...}]}``, one run for each benchmark.

Source: guidellm 0.3.1, 0.5.4 and 0.8.1. What it calls time per output token has changed: 0.3 divides the time from the
first token to the last by the tokens, 0.5 to 0.8 that from sending to the last token. Its inter-token latency leaves
the first token out in all: (last - first) / (tokens - 1), which is TPOT here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from infcalc.evidence.fields import Fields, refuse
from infcalc.evidence.gathering import MS, Gathering, is_statistic, statistic_of
from infcalc.evidence.nouns import MEAN, BenchmarkRun, Format, Quantity, StatedLoad
from infcalc.evidence.spread import lengths_by_percentiles

_OF_FIRST_TOKEN = (0, 5)
"""From here on the wait for the first token is in the time per output token."""
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)")
_ANSWERED = "successful"


def is_guidellm(record: dict[str, Any]) -> bool:
    """Return whether an object is a report of this tool."""
    runs = record.get("benchmarks")
    if not isinstance(runs, list) or not runs or not isinstance(runs[0], dict):
        return False
    metrics = runs[0].get("metrics")
    return isinstance(metrics, dict) and "time_to_first_token_ms" in metrics


def read_guidellm(record: dict[str, Any], place: str) -> tuple[BenchmarkRun, ...]:
    """Return the runs of one report.

    Raises:
        FileProblem: values that are none, all of them.

    """
    report = Fields(record)
    metadata = report.part("metadata")
    version = metadata.text("guidellm_version")
    model, target = _model_of(report)
    parts = report.parts("benchmarks")
    runs = []
    for number, part in enumerate(parts, start=1):
        one = place if len(parts) == 1 else f"{place}, benchmark {number}"
        run = Gathering(Format.GUIDELLM, one)
        run.state("model", model, target)
        runs.append(_benchmark(run, part, version))
    refuse(report.faults, place)
    return tuple(runs)


def inclusive(version: str) -> bool | None:
    """Return whether a version counts the wait for the first token into its time per output token; None: not known.

    >>> inclusive("0.3.1"), inclusive("0.8.0.dev18"), inclusive("")
    (False, True, None)
    """
    match = _VERSION.match(version)
    return None if match is None else (int(match[1]), int(match[2])) >= _OF_FIRST_TOKEN


def _model_of(report: Fields) -> tuple[str, str]:
    for outer, inner in (("config", "spec"), ("args", "")):
        part = report.part(outer).part(inner) if inner else report.part(outer)
        backend = part.raw("backend")
        if isinstance(backend, dict):
            fields = part.part("backend")
            if fields.text("model"):
                return fields.text("model"), fields.named("model")
        if part.text("model"):
            return part.text("model"), part.named("model")
    return "", ""


def _benchmark(run: Gathering, part: Fields, version: str) -> BenchmarkRun:
    metrics = part.part("metrics")
    for quantity, key, unit_s in (
        (Quantity.TTFT, "time_to_first_token_ms", MS),
        (Quantity.TPOT, "inter_token_latency_ms", MS),
        (Quantity.E2E, "request_latency", 1.0),
    ):
        _times(run, metrics, quantity, key, unit_s)
    tokens = _mean(metrics, "output_token_count")
    _per_token(run, metrics, version, tokens)
    run.convert("inter_token_latency_ms is (last - first token) / (tokens - 1) of a request: it is tpot_s here")
    for quantity, key in (
        (Quantity.REQUESTS_PER_S, "requests_per_second"),
        (Quantity.OUTPUT_PER_S, "output_tokens_per_second"),
        (Quantity.INPUT_PER_S, "prompt_tokens_per_second"),
        (Quantity.TOTAL_PER_S, "tokens_per_second"),
        (Quantity.CONCURRENT, "request_concurrency"),
    ):
        answered = metrics.part(key).part(_ANSWERED)
        run.add(quantity, MEAN, answered.per_s("mean"), answered.named("mean"))
    counts = metrics.part("request_totals")
    if "successful" not in counts:
        counts = part.part("scheduler_metrics").part("requests_made")
    completed, failed = counts.whole("successful"), counts.whole("errored")
    load = replace(
        _load(part, counts.whole("total"), _mean(metrics, "prompt_token_count"), tokens),
        inputs_tokens=_spread(metrics, "prompt_token_count"),
        outputs_tokens=_spread(metrics, "output_token_count"),
    )
    if not run.stated("model"):
        model = part.part("config").part("backend").text("model") if "config" in part else ""
        run.state("model", model, "config.backend.model")
    return run.run(load, part, num_completed=completed, num_failed=failed, duration_s=part.time_s("duration", 1.0))


def _times(run: Gathering, metrics: Fields, quantity: Quantity, key: str, unit_s: float) -> None:
    answered = metrics.part(key).part(_ANSWERED)
    run.times(answered, quantity, unit_s)
    points = answered.part("percentiles")
    for name in points.names():
        if is_statistic(name):
            run.add(quantity, statistic_of(name), points.time_s(name, unit_s), points.named(name))


def _per_token(run: Gathering, metrics: Fields, version: str, tokens: float | None) -> None:
    """Note the time per output token under the name of what this version means by it."""
    key = "time_per_output_token_ms"
    if key not in metrics:
        return
    with_first = inclusive(version)
    if with_first is None:
        run.missing.append(f"version of GuideLLM: whether {key} holds the wait for the first token is not known")
        return
    if with_first:
        _times(run, metrics, Quantity.TPOT_INCLUSIVE, key, MS)
        run.convert(f"{key} of GuideLLM {version} holds the wait for the first token: it is tpot_inclusive_s here")
        return
    answered = metrics.part(key).part(_ANSWERED)
    mean_s = answered.time_s("mean", MS)
    if mean_s is not None and tokens is not None and tokens > 1:
        said = f"{key} x tokens / (tokens - 1)"
        run.add(Quantity.TPOT, MEAN, mean_s * tokens / (tokens - 1), answered.named("mean"), said)
        run.convert(f"{key} of GuideLLM {version} divides by all tokens: multiplied by tokens / (tokens - 1)")


def _mean(metrics: Fields, key: str) -> float | None:
    return metrics.part(key).part(_ANSWERED).amount("mean") or None


def _spread(metrics: Fields, key: str) -> tuple[float, ...]:
    answered = metrics.part(key).part(_ANSWERED)
    return lengths_by_percentiles(answered, answered.part("percentiles"))


def _load(part: Fields, total: int | None, prompt: float | None, answer: float | None) -> StatedLoad:
    outer = part.part("config") if "config" in part else part.part("args")
    strategy = outer.part("strategy")
    kind = strategy.text("type_") or strategy.text("kind")
    rate, clients = strategy.amount("rate", most=1e6) or None, strategy.whole("max_concurrency", least=1)
    streams = strategy.whole("streams", least=1)
    match kind:
        case "concurrent":
            return StatedLoad(
                num_requests=total, num_clients=streams or clients, input_tokens=prompt, output_tokens=answer
            )
        case "synchronous":
            return StatedLoad(num_requests=total, num_clients=1, input_tokens=prompt, output_tokens=answer)
        case "throughput":
            return StatedLoad(
                num_requests=total, num_clients=clients, unlimited=True, input_tokens=prompt, output_tokens=answer
            )
        case "constant" | "poisson" | "async":
            # The cap on requests under way is a bound of the tool there, not the load.
            return StatedLoad(
                num_requests=total,
                requests_per_s=rate,
                burstiness=1.0 if kind == "poisson" else None,
                input_tokens=prompt,
                output_tokens=answer,
                dataset="constant pace" if kind == "constant" else "",
            )
        case _:
            return StatedLoad(num_requests=total, input_tokens=prompt, output_tokens=answer)
