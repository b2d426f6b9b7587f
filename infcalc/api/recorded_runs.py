"""From an entry of a file of measured runs to what is predicted for it.

Only what was run goes into a prediction, never what was measured: altering a measured value alters no prediction.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.bands import class_of
from infcalc.api.deployment import Ask, Deployment, deploy, kv_format
from infcalc.api.figures import burst_class
from infcalc.api.floors import FloorClock
from infcalc.api.held import held
from infcalc.api.ledger import longest_for
from infcalc.api.offer import is_burst
from infcalc.api.servers import LaneClock, answer_nodes, clock_of, paced_on, room_for, server_of
from infcalc.catalog.free_text import read_gpu_text, read_kv_text, read_model_text, read_weights_text
from infcalc.engines.pace import Order, pace
from infcalc.engines.reported import read_engine_text, read_version_text
from infcalc.errors import FileProblem, InfcalcError
from infcalc.frozen import frozen
from infcalc.serving.server import Loading, Requests, Server, Speed, decoding, under
from infcalc.workload.lengths import Constant, Exponential, Lengths, Lognormal, Uniform, mean_tokens, parse_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.catalog.lookup import Catalog
    from infcalc.engines.pace import Pace
    from infcalc.spec.efficiency import GpuEfficiency
    from infcalc.spec.kv import KvFormat

_ONLINE = "serving"
_SHARE_OF_RANGE = re.compile(r"uniform\s+([0-9.]+)\s*-\s*([0-9.]+)\s*x", re.IGNORECASE)
_CONVERSATIONS = re.compile(r"sharegpt|orca|chat|conversation", re.IGNORECASE)
_RAISED_FRACTION = 0.95
_WAVES_CUSTOMARY = 10.0
"""Requests per client of a benchmark that does not state them: what public harnesses run."""


@frozen
class Prediction:
    """What is predicted for one entry."""

    deployment: Deployment
    speed: Speed
    whole_s: float
    """From the start of a batch to its last token."""
    burst: bool
    band_class: str


def predict(
    entry: Mapping[str, Any],
    catalog: Catalog,
    known: dict[Any, Any] | None = None,
    adjust: Callable[[Pace], Pace] | None = None,
) -> Prediction:
    """Return what is predicted for one entry; ``adjust`` gives another pace for that of its engine.

    Raises:
        InfcalcError: the entry does not say enough, or names what is not known.

    """
    known = {} if known is None else known
    if (entry.get("flags") or {}).get("disaggregated"):
        raise FileProblem("prefill and decode on servers of their own are not modelled", place=text_of(entry.get("id")))
    return predict_on(machine_of(entry, catalog, known, adjust), entry, known)


def predict_on(machine: Machine, entry: Mapping[str, Any], known: dict[Any, Any]) -> Prediction:
    """Return what is predicted for one entry on its machine; ``known`` keeps what machines have room for.

    Raises:
        InfcalcError: the entry does not say enough of its load.

    """
    flags, load = entry.get("flags") or {}, entry.get("workload") or {}
    deployment, clock = machine.deployment, machine.clock
    inputs, outputs, answers = _lengths(load)
    shared = float(flags.get("shared_prefix_fraction") or 0.0)
    prompt = mean_tokens(inputs)
    asked = Requests(
        prompt_tokens=prompt * (1 - shared),
        cached_tokens=prompt * shared,
        answers=answers,
        varied=isinstance(inputs, Exponential | Lognormal),
    )
    room_key = ("room", id(deployment), inputs, outputs)
    if room_key not in known:
        known[room_key] = room_for(deployment, machine.form, inputs, outputs)
    server = server_of(deployment, clock, machine.pace, known[room_key])
    loaded = _Load.read(entry)
    speed = _speed(machine, server, asked, loaded)
    together = not loaded.online and loaded.num_clients is None
    return Prediction(
        deployment=deployment,
        speed=speed,
        whole_s=(loaded.batch or loaded.num_requests or 1.0) / speed.requests_per_s if together else speed.e2e_s,
        burst=loaded.burst,
        band_class=burst_class(machine.band_class) if loaded.burst else machine.band_class,
    )


@frozen
class _Load:
    """How the requests of an entry came."""

    kind: str
    online: bool
    """Through a front end."""
    batch: float | None
    num_clients: float | None
    requests_per_s: float | None
    """None where nothing paces them."""
    num_requests: float | None
    place: str

    @staticmethod
    def read(entry: Mapping[str, Any]) -> _Load:
        """Return what an entry says of its load."""
        load, kind = entry.get("workload") or {}, str(entry.get("kind"))
        batch, clients, count = (amount_of(load.get(key)) for key in ("batch", "concurrency", "num_requests"))
        if batch is not None and count and kind == "max_throughput":
            # So many at once out of more: what a client keeps running.
            clients, batch = batch, None
        rate = amount_of(load.get("request_rate"))
        return _Load(
            kind=kind,
            online=kind == _ONLINE,
            batch=batch,
            num_clients=clients,
            requests_per_s=rate if rate is not None and math.isfinite(rate) else None,
            num_requests=count,
            place=text_of(entry.get("id")),
        )

    @property
    def burst(self) -> bool:
        """Whether all come at once, or nearly, and nothing caps how many run."""
        return self.online and is_burst(
            num_requests=self.num_requests, clients=self.num_clients, requests_per_s=self.requests_per_s
        )

    @property
    def loading(self) -> Loading:
        """What the server is under.

        Raises:
            FileProblem: the entry does not say.

        """
        if self.kind == "prefill_only" or self.batch is not None:
            return Loading(batch=round(self.batch or self.num_clients or 1), front_end=False)
        clients, count = self.num_clients, self.num_requests
        if clients is not None and count is None:
            count = _WAVES_CUSTOMARY * clients
        if clients is self.requests_per_s is count is None and self.kind != "max_throughput":
            raise FileProblem("neither batch, concurrency, rate nor number of requests is stated", place=self.place)
        return Loading(
            num_clients=clients,
            requests_per_s=None if clients is not None else self.requests_per_s,
            num_requests=count,
            front_end=self.online,
        )


def _speed(machine: Machine, server: Server, asked: Requests, load: _Load) -> Speed:
    if load.kind == "decode_only":
        return decoding(server, asked, round(load.batch or load.num_clients or 1))
    speed = under(server, asked, load.loading)
    stages = machine.deployment.parallelism.pp
    return held(machine.floors, server, asked, load.loading, speed, num_stages=stages).speed


def amount_of(value: object) -> float | None:
    """Return an amount of an entry, None where it is not stated."""
    return None if value is None else float(str(value))


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


@frozen
class Machine:
    """What the runs of many entries have in common."""

    deployment: Deployment
    form: KvFormat
    pace: Pace
    paced: str
    """The engine whose pace it has."""
    efficiency: GpuEfficiency
    clock: LaneClock
    floors: FloorClock
    band_class: str


def machine_of(
    entry: Mapping[str, Any], catalog: Catalog, known: dict[Any, Any], adjust: Callable[[Pace], Pace] | None
) -> Machine:
    """Return the machine of an entry; ``known`` keeps those that were made.

    Raises:
        InfcalcError: the entry does not say enough, or names what is not known.

    """
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
            known[key] = _resolved(entry, catalog, adjust)
        except InfcalcError as problem:
            known[key] = problem
    found = known[key]
    if isinstance(found, InfcalcError):
        raise found
    made: Machine = found
    return made


_SETTINGS = (
    "attention_dp",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "static_batch",
    "chunked_prefill",
)


def _resolved(entry: Mapping[str, Any], catalog: Catalog, adjust: Callable[[Pace], Pace] | None) -> Machine:
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
    if serves == paced == "vllm" and longest_for(base, form) < base.max_model_len:
        # By default it would have refused to start; of the two ways out that it names, this is the first.
        base = deploy(replace(ask, memory_fraction=_RAISED_FRACTION), model.entry, gpu.entry, strict=False)
    steps = pace(paced, version if serves == paced else None, base.rules.generation if paced == "vllm" else "").value
    if flags.get("static_batch"):
        steps = replace(steps, order=Order.STATIC)
    if adjust is not None:
        steps = adjust(steps)
    efficiency = catalog.efficiency(base.gpu)
    steps = paced_on(steps, efficiency, paced)
    return Machine(
        deployment=base,
        form=form,
        pace=steps,
        paced=paced,
        efficiency=efficiency,
        clock=clock_of(base, form, steps, efficiency, paced),
        floors=FloorClock(base, form),
        band_class=class_of(base, efficiency, paced),
    )


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


def text_of(value: object) -> str:
    """Return what an entry says, empty where it says nothing."""
    return "" if value is None else str(value)
