"""How right is the time model? Its predictions against published measurements of servers and batches.

Only what was run goes into a prediction, never what was measured: altering a measured value alters no prediction.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.answer import Answer
from infcalc.api.bands import Kind, band, class_of, pools, request_band
from infcalc.api.deployment import Ask, Deployment, deploy, kv_format
from infcalc.api.figures import burst_class
from infcalc.api.floors import FloorClock
from infcalc.api.held import held
from infcalc.api.ledger import longest_for
from infcalc.api.offer import BURST_PER_S, is_burst
from infcalc.api.recorded import FULL, checked, measurement
from infcalc.api.scoring import SCORED, SKIPPED, ValidationSummary, summary
from infcalc.api.servers import LaneClock, answer_nodes, clock_of, room_for, server_of
from infcalc.catalog.free_text import read_gpu_text, read_kv_text, read_model_text, read_weights_text
from infcalc.engines.pace import Order, pace
from infcalc.engines.reported import read_engine_text, read_version_text
from infcalc.errors import FileProblem, InfcalcError
from infcalc.frozen import frozen
from infcalc.serving.server import Loading, Requests, Server, Speed, decoding, under
from infcalc.spec.explain import Input
from infcalc.workload.lengths import Constant, Exponential, Lengths, Lognormal, Uniform, mean_tokens, parse_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from infcalc.catalog.lookup import Catalog
    from infcalc.engines.pace import Pace
    from infcalc.spec.kv import KvFormat

QUANTITIES = ("output_tokens_per_s", "tpot_s", "ttft_s", "e2e_s")
AT_RATE = "rate"
"""What a case calls the load of requests that come at a rate."""
_MS = 1e-3
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
    flags = entry.get("flags") or {}
    load = entry.get("workload") or {}
    if flags.get("disaggregated"):
        raise FileProblem("prefill and decode on servers of their own are not modelled", place=_text(entry.get("id")))
    machine = _machine(entry, catalog, known, adjust)
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
    room_key = ("room", id(clock), inputs, outputs)
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
        batch, clients, count = (_amount(load.get(key)) for key in ("batch", "concurrency", "num_requests"))
        if batch is not None and count and kind == "max_throughput":
            # So many at once out of more: what a client keeps running.
            clients, batch = batch, None
        rate = _amount(load.get("request_rate"))
        return _Load(
            kind=kind,
            online=kind == _ONLINE,
            batch=batch,
            num_clients=clients,
            requests_per_s=rate if rate is not None and math.isfinite(rate) else None,
            num_requests=count,
            place=_text(entry.get("id")),
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


def _speed(machine: _Machine, server: Server, asked: Requests, load: _Load) -> Speed:
    if load.kind == "decode_only":
        return decoding(server, asked, round(load.batch or load.num_clients or 1))
    speed = under(server, asked, load.loading)
    stages = machine.deployment.parallelism.pp
    return held(machine.floors, server, asked, load.loading, speed, num_stages=stages).speed


def _amount(value: object) -> float | None:
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
class _Machine:
    """What the runs of many entries have in common."""

    deployment: Deployment
    form: KvFormat
    pace: Pace
    clock: LaneClock
    floors: FloorClock
    band_class: str


def _machine(
    entry: Mapping[str, Any], catalog: Catalog, known: dict[Any, Any], adjust: Callable[[Pace], Pace] | None
) -> _Machine:
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
    made: _Machine = found
    return made


_SETTINGS = (
    "attention_dp",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "static_batch",
    "chunked_prefill",
)


def _resolved(entry: Mapping[str, Any], catalog: Catalog, adjust: Callable[[Pace], Pace] | None) -> _Machine:
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
    return _Machine(
        deployment=base,
        form=form,
        pace=steps,
        clock=clock_of(base, form, steps, efficiency, paced),
        floors=FloorClock(base, form),
        band_class=class_of(base, efficiency, paced),
    )


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


# Prediction -> cases -------------------------------------------------------------------------------------------------


@frozen
class ServingCase:
    """One quantity of one measured run: what was measured, what is predicted without it, and how far off that is."""

    id: str
    kind: str
    """The class whose goals the case is held to; ``burst``: all requests at once, without a cap on how many run."""
    engine: str
    version: str
    gpu: str
    precision: str
    tp: int | None
    batch: int | None
    """Sequences, clients or requests at once, as far as the load states them."""
    group: str
    """Of the source."""
    cluster: str
    """Of the source, model and GPU: what is drawn from some clusters is judged on others."""
    load: str
    """What the entry states of its load: ``batch``, ``concurrency``, ``rate``, ``all at once``, or nothing."""
    band_class: str
    """What its band is drawn from."""
    status: str
    reason: str
    quantity: str
    statistic: str
    """``median``, ``mean`` or ``unspecified`` of the measurement; the prediction is of the same."""
    measured: float | None
    predicted: float | None
    low: float | None
    high: float | None
    error_fraction: float | None


@frozen
class ServingValidation:
    """All cases of a file and their summary."""

    cases: tuple[ServingCase, ...]
    summary: tuple[ValidationSummary, ...]


def validate_serving(path: str, *, catalogs: tuple[str, ...] = ()) -> Answer[ServingValidation]:
    """Return the predictions for every entry of a file of measured runs, against what was measured.

    Raises:
        FileProblem: no such file, or not a list of entries.

    """
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    entries, rejected = checked(
        files.read_yaml(path),
        path,
        entry=measurement,
        what="measured runs",
        hint="a list of entries with id, engine, model, gpu, parallel, workload, measured and quality",
        every_quality=True,
    )
    result = validated_serving(entries, files.load_catalog(catalogs))
    if not result.cases:
        raise FileProblem(
            "none of its entries is of quality full and states a figure",
            place=path,
            hint="set quality: full, and measured.output_tok_s, tpot_ms, ttft_ms or e2e_ms",
        )
    return Answer(
        command="validate",
        results=(result,),
        inputs=(
            Input(name="file", value=path, origin="given"),
            Input(name="entries", value=len(entries), origin="of any quality"),
        ),
        assumptions=(
            (
                "scored are entries of quality full that do not draft; errors are of the prediction, relative to the "
                "measurement, of its median where one is stated, else of its mean"
            ),
            "no measured figure goes into a prediction",
            (
                "bursts (all requests at once, no cap on how many run) are a class of their own: what the client and "
                "the front end do then is not modelled well"
            ),
        ),
        warnings=tuple(
            f"left out: {one.problem.place}: {one.problem.message} ({one.problem.hint})" for one in rejected
        ),
    )


def validated_serving(
    entries: Sequence[Mapping[str, Any]], catalog: Catalog, adjust: Callable[[Pace], Pace] | None = None
) -> ServingValidation:
    """Return the cases and summary of a list of entries; ``adjust`` gives another pace for that of each engine."""
    known: dict[Any, Any] = {}
    cases = tuple(case for entry in entries for case in _cases(entry, catalog, known, adjust))
    return ServingValidation(cases=cases, summary=_summaries(cases))


def _cases(
    entry: Mapping[str, Any],
    catalog: Catalog,
    known: dict[Any, Any],
    adjust: Callable[[Pace], Pace] | None,
) -> list[ServingCase]:
    said, flags = entry.get("measured") or {}, entry.get("flags") or {}
    if entry.get("kind") == "speculative" or flags.get("spec"):
        if said.get("speedup") is None:
            return []
        reason = "the speedup of drafting in a server is not predicted yet"
        return [_case(entry, "speedup", (float(said["speedup"]), ""), None, reason=reason)]
    if entry.get("quality") != FULL:
        return []
    figures = measured(entry)
    try:
        prediction = predict(entry, catalog, known, adjust)
    except InfcalcError as problem:
        return [_case(entry, quantity, figure, None, reason=problem.message) for quantity, figure in figures.items()]
    return [_case(entry, quantity, figure, prediction) for quantity, figure in figures.items()]


def _case(
    entry: Mapping[str, Any],
    quantity: str,
    figure: tuple[float, str],
    prediction: Prediction | None,
    *,
    reason: str = "",
) -> ServingCase:
    engine, load, ranks = entry.get("engine") or {}, entry.get("workload") or {}, entry.get("parallel") or {}
    value, statistic = figure
    guess = low = high = None
    kind = band_class = ""
    if prediction is not None:
        guess = predicted(prediction, quantity, statistic)
        band_class = prediction.band_class
        kind = pools(band_class)[-2]
        low, high = _band(prediction, quantity, guess, at_rate=_stated_load(load) == AT_RATE)
    batch = load.get("batch") or load.get("concurrency") or load.get("num_requests")
    return ServingCase(
        id=_text(entry.get("id")),
        kind=kind,
        engine=_text(engine.get("name")),
        version=_text(engine.get("version")),
        gpu=_text((entry.get("gpu") or {}).get("name")),
        precision=_text(entry.get("weights")),
        tp=ranks.get("tp"),
        batch=None if batch is None else int(batch),
        group=_text(entry.get("group")),
        cluster=_text(entry.get("cluster") or entry.get("group")),
        load=_stated_load(load),
        band_class=band_class,
        status=SKIPPED if guess is None else SCORED,
        reason=reason,
        quantity=quantity,
        statistic=statistic,
        measured=value,
        predicted=guess,
        low=low,
        high=high,
        error_fraction=None if guess is None or not value else (guess - value) / value,
    )


def _band(prediction: Prediction, quantity: str, guess: float, *, at_rate: bool) -> tuple[float, float]:
    kind, speed = prediction.band_class, prediction.speed
    if quantity != "e2e_s":
        return band(kind, quantity, guess, at_rate=at_rate)
    first = (speed.ttft_s, *band(kind, "ttft_s", speed.ttft_s, at_rate=at_rate))
    low, high = request_band(speed.e2e_s, first, band(kind, "tpot_s", 1.0, at_rate=at_rate))
    return guess * low / speed.e2e_s, guess * high / speed.e2e_s


def _stated_load(load: Mapping[str, Any]) -> str:
    for key, name in (("batch", "batch"), ("concurrency", "concurrency")):
        if load.get(key) is not None:
            return name
    rate = _amount(load.get("request_rate"))
    if rate is not None and rate < BURST_PER_S:
        return AT_RATE
    return "all at once" if load.get("num_requests") is not None else ""


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _summaries(cases: tuple[ServingCase, ...]) -> tuple[ValidationSummary, ...]:
    found: list[ValidationSummary] = []
    for quantity in dict.fromkeys(case.quantity for case in cases):
        groups: dict[str, list[ServingCase]] = {}
        for case in cases:
            if case.quantity == quantity:
                for name in _groups(case):
                    groups.setdefault(name, []).append(case)
        found += [summary(quantity, name, members) for name, members in groups.items()]
    return tuple(found)


_BATCHES = ((4, "1-4"), (64, "5-64"), (256, "65-256"))


def _groups(case: ServingCase) -> tuple[str, ...]:
    """Return the groups a case belongs to; bursts without a cap count in their own class and in ``all`` only."""
    named = (f"class {case.kind or 'unknown'}", f"source {case.group}")
    if case.kind == Kind.BURST:
        return ("all", *named)
    size = next((text for most, text in _BATCHES if case.batch is not None and case.batch <= most), "above 256")
    return (
        "all",
        *named,
        f"engine {case.engine}",
        f"gpu {case.gpu}",
        f"precision {case.precision or 'unstated'}",
        f"tp {case.tp or 'unstated'}",
        f"batch {size if case.batch is not None else 'unstated'}",
        f"load {case.load or 'unstated'}",
    )
