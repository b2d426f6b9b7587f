"""How right is the time model? Its predictions against published measurements of servers and batches.

Only what was run goes into a prediction, never what was measured: altering a measured value alters no prediction.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from infcalc.api.deployment import Ask, Deployment, deploy, kv_format
from infcalc.api.estimating import answer_nodes, clock_of, room_for, server_of
from infcalc.catalog.free_text import read_gpu_text, read_kv_text, read_model_text, read_weights_text
from infcalc.engines.pace import pace
from infcalc.engines.reported import read_engine_text, read_version_text
from infcalc.errors import FileProblem, InfcalcError
from infcalc.frozen import frozen
from infcalc.serving.server import Requests, Server, Speed, at_rate, decoding, in_batch, in_closed_loop, in_run
from infcalc.spec.layers import MoeFeedForward
from infcalc.workload.lengths import Constant, Exponential, Lengths, Lognormal, Uniform, mean_tokens, parse_lengths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.catalog.lookup import Catalog
    from infcalc.serving.times import Clock

QUANTITIES = ("output_tokens_per_s", "tpot_s", "ttft_s", "e2e_s")
_MS = 1e-3
_ONLINE = "serving"
_SHARE_OF_RANGE = re.compile(r"uniform\s+([0-9.]+)\s*-\s*([0-9.]+)\s*x", re.IGNORECASE)
_CONVERSATIONS = re.compile(r"sharegpt|orca|chat|conversation", re.IGNORECASE)
_BURST_PER_S = 100.0
_WAVES_CUSTOMARY = 10.0
"""Requests per client of a benchmark that does not state them: what public harnesses run."""


@frozen
class Prediction:
    """What is predicted for one entry."""

    deployment: Deployment
    speed: Speed
    kind: str
    whole_s: float
    """From the start of a batch to its last token."""
    burst: bool
    num_in_flight: float


def predict(entry: Mapping[str, Any], catalog: Catalog, known: dict[Any, Any] | None = None) -> Prediction:
    """Return what is predicted for one entry.

    Raises:
        InfcalcError: the entry does not say enough, or names what is not known.

    """
    known = {} if known is None else known
    flags = entry.get("flags") or {}
    load = entry.get("workload") or {}
    deployment, form, steps, clock = _machine(entry, catalog, known)
    inputs, outputs, answers = _lengths(load)
    asked = Requests(prompt_tokens=mean_tokens(inputs), cached_tokens=0.0, answers=answers)
    shared = float(flags.get("shared_prefix_fraction") or 0.0)
    if shared:
        asked = Requests(
            prompt_tokens=asked.prompt_tokens * (1 - shared),
            cached_tokens=asked.prompt_tokens * shared,
            answers=answers,
        )
    kind = str(entry.get("kind"))
    room_key = ("room", id(clock), inputs, outputs)
    if room_key not in known:
        known[room_key] = room_for(deployment, form, inputs, outputs)
    server = server_of(deployment, clock, steps, known[room_key])
    online = kind == _ONLINE
    rate = _rate(load.get("request_rate"))
    count = load.get("num_requests")
    clients = load.get("concurrency")
    batch = load.get("batch")
    if batch is not None and count and kind == "max_throughput":
        clients, batch = batch, None
    burst = False
    if kind == "decode_only":
        speed = decoding(server, asked, int(batch or clients or 1))
    elif kind == "prefill_only" or (kind == "offline_latency" and batch is not None):
        speed = in_batch(server, asked, int(batch or clients or 1))
    elif clients is not None:
        speed = _closed(server, asked, float(clients), float(count) if count else None, online=online)
    elif rate is not None and math.isfinite(rate):
        burst = rate >= _BURST_PER_S
        if count:
            speed = in_run(server, asked, num_requests=float(count), requests_per_s=rate, front_end=online)
        else:
            speed = at_rate(server, asked, rate, front_end=online)
    elif count is not None:
        burst = online
        speed = in_run(server, asked, num_requests=float(count), front_end=online)
    elif batch is not None:
        speed = in_batch(server, asked, int(batch))
    elif kind == "max_throughput":
        speed = in_closed_loop(server, asked, server.max_running, front_end=False)
    else:
        raise FileProblem("neither batch, concurrency, rate nor number of requests is stated", place=str(entry["id"]))
    flight = float(batch or clients or count or 0)
    together = not online and clients is None
    return Prediction(
        deployment=deployment,
        speed=speed,
        kind=kind,
        whole_s=float(batch or count or 1) / speed.requests_per_s if together else speed.e2e_s,
        burst=burst,
        num_in_flight=flight,
    )


def _closed(server: Server, asked: Requests, clients: float, count: float | None, *, online: bool) -> Speed:
    count = _WAVES_CUSTOMARY * clients if count is None else count
    if count > 40 * clients or clients < server.num_lanes * 4:
        return in_closed_loop(server, asked, clients, num_requests=count, front_end=online)
    return in_run(server, asked, num_requests=max(count, clients), clients=clients, front_end=online)


def _rate(value: object) -> float | None:
    if value is None:
        return None
    return float(str(value))


def _lengths(load: Mapping[str, Any]) -> tuple[Lengths, Lengths, tuple[tuple[float, float], ...]]:
    """Return prompts, answers, and the answers' nodes."""
    if load.get("input_tokens") is None or load.get("output_tokens") is None:
        raise FileProblem("the lengths of prompts and answers are not stated")
    prompt, answer = max(1.0, float(load["input_tokens"])), max(1.0, float(load["output_tokens"]))
    dataset = str(load.get("dataset") or "")
    inputs: Lengths = Constant(value_tokens=prompt)
    outputs: Lengths = Constant(value_tokens=answer)
    match = _SHARE_OF_RANGE.search(dataset)
    if match:
        low, high = float(match[1]), float(match[2])
        inputs = Uniform(min_tokens=low * prompt, max_tokens=high * prompt)
        outputs = Uniform(min_tokens=low * answer, max_tokens=high * answer)
    elif _CONVERSATIONS.search(dataset):
        inputs, outputs = Exponential(mean_tokens=prompt), Exponential(mean_tokens=answer)
    points = load.get("input_tokens_percentiles") or {}
    if "p50" in points and "p99" in points and points["p99"] > points["p50"]:
        inputs = parse_lengths(f"lognormal:p50={points['p50']},p99={points['p99']}")
    most = load.get("output_tokens_max")
    return inputs, outputs, answer_nodes(outputs, None if most is None else float(most))


# Entry -> machine --------------------------------------------------------------------------------------------------


def _machine(
    entry: Mapping[str, Any], catalog: Catalog, known: dict[Any, Any]
) -> tuple[Deployment, Any, Any, Clock]:
    engine = entry.get("engine") or {}
    gpu = entry.get("gpu") or {}
    flags = entry.get("flags") or {}
    ranks = entry.get("parallel") or {}
    key = (
        *(str(entry.get(name)) for name in ("model", "weights", "kv_precision")),
        *(str(engine.get(name)) for name in ("name", "version")),
        *(str(gpu.get(name)) for name in ("name", "memory_gb")),
        *(str(ranks.get(name)) for name in ("tp", "pp", "dp", "ep")),
        *(str(flags.get(name)) for name in _SETTINGS),
    )
    if key not in known:
        try:
            known[key] = _resolved(entry, catalog)
        except InfcalcError as problem:
            known[key] = problem
    found = known[key]
    if isinstance(found, InfcalcError):
        raise found
    made: tuple[Deployment, Any, Any, Clock] = found
    return made


_SETTINGS = ("attention_dp", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "static_batch", "chunked_prefill")


def _resolved(entry: Mapping[str, Any], catalog: Catalog) -> tuple[Deployment, Any, Any, Clock]:
    from dataclasses import replace  # noqa: PLC0415

    engine, flags = entry.get("engine") or {}, entry.get("flags") or {}
    ranks, gpu_said = entry.get("parallel") or {}, entry.get("gpu") or {}
    serves, paced = read_engine_text(str(engine.get("name") or ""))
    text = "" if engine.get("version") is None else str(engine["version"])
    version = read_version_text(serves, text, str((entry.get("source") or {}).get("date") or "")).version
    model = read_model_text(catalog, str(entry.get("model") or ""))
    gpu = read_gpu_text(catalog, str(gpu_said.get("name") or ""))
    if ranks.get("tp") is None:
        raise FileProblem("the number of ranks is not stated")
    tp, pp, dp, ep = (int(ranks.get(name) or 1) for name in ("tp", "pp", "dp", "ep"))
    spread = flags.get("attention_dp")
    if spread:
        dp = tp if spread is True else int(spread)
        tp, ep = max(1, tp // dp), max(ep, dp)
    stated = read_weights_text(None if entry.get("weights") is None else str(entry["weights"]))
    own = model.entry.model.quantization
    whole = stated in {None, "bf16", "fp16", "auto"}
    ask = Ask(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        weights=None if own is not None or whole else stated,
        engine=serves,
        engine_version=version if serves == paced else None,
        max_num_seqs=_whole(flags.get("max_num_seqs")),
        max_num_batched_tokens=_whole(flags.get("max_num_batched_tokens")),
        max_model_len=_whole(flags.get("max_model_len")),
    )
    base = deploy(ask, model.entry, gpu.entry, strict=False)
    word = read_kv_text(None if entry.get("kv_precision") is None else str(entry["kv_precision"]))
    if word in {None, "auto"} and serves == "tensorrt-llm" and base.weights in {"fp8", "nvfp4"}:
        word = "fp8"
    form, _, _ = kv_format(base, word)
    steps = pace(paced, version if serves == paced else None, base.rules.generation if paced == "vllm" else "").value
    if flags.get("static_batch"):
        from infcalc.engines.pace import Order  # noqa: PLC0415

        steps = replace(steps, order=Order.STATIC)
    return base, form, steps, clock_of(base, form, steps, paced)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


# Entry -> measured ---------------------------------------------------------------------------------------------------


def measured(entry: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Return what the entry measures, in base units, and which statistic of it."""
    said = entry.get("measured") or {}
    found: dict[str, tuple[float, str]] = {}
    if said.get("output_tok_s") is not None:
        found["output_tokens_per_s"] = (float(said["output_tok_s"]), "mean")
    for quantity, keys in (("tpot_s", ("tpot_ms", "itl_ms")), ("ttft_s", ("ttft_ms",)), ("e2e_s", ("e2e_ms",))):
        for key in keys:
            values = said.get(key) or {}
            statistic = next((name for name in ("median", "mean", "unspecified") if values.get(name) is not None), None)
            if statistic is not None:
                found.setdefault(quantity, (float(values[statistic]) * _MS, statistic))
    return found


def predicted(prediction: Prediction, quantity: str, statistic: str) -> float:
    """Return the prediction of a quantity in the statistic in which it was measured."""
    speed = prediction.speed
    if quantity == "e2e_s" and prediction.whole_s != speed.e2e_s:
        return prediction.whole_s
    name = quantity
    if statistic == "median" and quantity != "output_tokens_per_s":
        name = quantity.replace("_s", "_median_s")
    return float(getattr(speed, name))


def kind_of(prediction: Prediction) -> str:
    """Return the class whose goals a case is held to."""
    deployment = prediction.deployment
    if deployment.gpu.vendor != "NVIDIA":
        return "AMD and others"
    moe = any(isinstance(run.layer.feed_forward, MoeFeedForward) for run in deployment.model.layers)
    return "NVIDIA MoE" if moe else "NVIDIA dense"


_UNUSED = Lognormal
