"""The reports of inference-perf: request life cycles as the client saw them, or as Prometheus counted them.

Source: kubernetes-sigs/inference-perf, 2026-08. Its own time per output token counts chunks of the stream twice where
each token comes in two of them: (latency - TTFT) / (tokens - 1), of means, is taken, and where its own figure is far
from that it is left out.
"""

from __future__ import annotations

from typing import Any

from infcalc.evidence.fields import Fields, refuse
from infcalc.evidence.gathering import Gathering
from infcalc.evidence.nouns import MEAN, BenchmarkRun, Format, Quantity, StatedLoad
from infcalc.evidence.spread import lengths_by_percentiles

_FAR = 0.2
"""Between a mean of ratios and a ratio of means there is less."""


def is_inference_perf(record: dict[str, Any]) -> bool:
    """Return whether an object is a report of this tool."""
    done = record.get("successes")
    return "load_summary" in record and isinstance(done, dict) and ("latency" in done or "request_latency" in done)


def read_inference_perf(record: dict[str, Any], place: str) -> BenchmarkRun:
    """Return the run of one report.

    Raises:
        FileProblem: values that are none, all of them.

    """
    fields = Fields(record)
    run = Gathering(Format.INFERENCE_PERF, place)
    done = fields.part("successes")
    counted = "latency" not in done
    latency = done if counted else done.part("latency")
    for quantity, key in (
        (Quantity.E2E, "request_latency"),
        (Quantity.TTFT, "time_to_first_token"),
        (Quantity.TPOT, "time_per_output_token"),
    ):
        run.times(latency.part(key), quantity, 1.0)
    summary = fields.part("load_summary")
    completed, failed = done.whole("count"), fields.part("failures").whole("count")
    inputs, outputs = _rates(run, done) if counted else _client(run, done)
    rate = summary.amount("requested_rate", most=1e6) or None
    clients = summary.whole("concurrency", least=1)
    sent = summary.whole("count")
    window_s = summary.time_s("send_duration", 1.0)
    if not counted:
        run.times(latency.part("inter_token_latency"), Quantity.ITL, 1.0)
        _per_token(run, outputs)
    else:
        run.convert("times and lengths are the server's, over windows of scrapes: rates hold, counts may not")
        run.warnings.append("scrapes overlap the runs before and after: the client's report is the one to trust")
        completed = None
    refuse(fields.faults, place)
    if rate is None and clients is None:
        run.missing.append("rate or concurrency that was asked for")
    delay = summary.part("schedule_delay").amount("mean", most=1e8) if _is_late(summary) else None
    if delay is not None and window_s:
        run.warnings.append(
            f"requests were sent {delay:.3g} s late on average: the client did not keep to its rate, and waited"
        )
    load = StatedLoad(
        num_requests=sent,
        num_clients=clients,
        requests_per_s=rate,
        input_tokens=inputs,
        output_tokens=outputs,
        inputs_tokens=() if counted else lengths_by_percentiles(done.part("prompt_len")),
        outputs_tokens=() if counted else lengths_by_percentiles(done.part("output_len")),
        dataset="constant pace",
    )
    needed = (Quantity.OUTPUT_PER_S, Quantity.TTFT, Quantity.TPOT, Quantity.E2E)
    return run.run(load, fields, num_completed=completed, num_failed=failed, needed=needed)


def _is_late(summary: Fields) -> bool:
    """Return whether requests were sent late by more than a clock's jitter, which may be early too."""
    value = summary.part("schedule_delay").raw("mean")
    return isinstance(value, float) and value > 1.0


def _client(run: Gathering, done: Fields) -> tuple[float | None, float | None]:
    rates = done.part("throughput")
    for quantity, key in (
        (Quantity.INPUT_PER_S, "input_tokens_per_sec"),
        (Quantity.OUTPUT_PER_S, "output_tokens_per_sec"),
        (Quantity.TOTAL_PER_S, "total_tokens_per_sec"),
        (Quantity.REQUESTS_PER_S, "requests_per_sec"),
    ):
        run.add(quantity, MEAN, rates.per_s(key), rates.named(key))
    lengths = [done.part(key).amount("mean") or None for key in ("prompt_len", "output_len")]
    return lengths[0], lengths[1]


def _rates(run: Gathering, done: Fields) -> tuple[float | None, float | None]:
    """Return the lengths that Prometheus counted: its means are of windows, tokens over requests are of requests."""
    requests = done.per_s("rate")
    run.add(Quantity.REQUESTS_PER_S, MEAN, requests, done.named("rate"))
    found: list[float | None] = []
    for key, quantity in (("prompt_len", Quantity.INPUT_PER_S), ("output_len", Quantity.OUTPUT_PER_S)):
        part = done.part(key)
        tokens = part.per_s("rate")
        run.add(quantity, MEAN, tokens, part.named("rate"))
        found.append(None if tokens is None or requests is None else tokens / requests)
    run.convert("lengths are tokens per second over requests per second: its own means are sums over windows")
    waiting = done.part("queue_len")
    run.add(Quantity.WAITING, MEAN, waiting.amount("mean"), waiting.named("mean"))
    return found[0], found[1]


def _per_token(run: Gathering, tokens: float | None) -> None:
    whole, first = run.value(Quantity.E2E), run.value(Quantity.TTFT)
    if whole is None or first is None or tokens is None or tokens <= 1 or whole <= first:
        return
    derived = (whole - first) / (tokens - 1)
    own = run.value(Quantity.TPOT)
    if own is not None and abs(own - derived) <= _FAR * derived:
        return
    run.drop(Quantity.TPOT)
    run.drop(Quantity.ITL)
    said = "(request_latency - time_to_first_token) / (output_len - 1), of means"
    run.add(Quantity.TPOT, MEAN, derived, "successes.latency.request_latency.mean", said)
    if own is not None:
        run.convert(
            f"time_per_output_token and inter_token_latency count chunks, not tokens ({derived / own:.2f} x too "
            f"small): left out; tpot_s is {said}"
        )
