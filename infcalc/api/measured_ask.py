"""From what a measurement states of its server to a deployment: model, GPU, engine, ranks, each with its origin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.deployment import deploy, kv_format, single_kv_dtype
from infcalc.api.from_log import spellings
from infcalc.api.ledger import longest_for
from infcalc.api.speed import Site
from infcalc.catalog.free_text import read_gpu_text, read_kv_text, read_model_text, read_weights_text
from infcalc.engines.logs.arguments import flags
from infcalc.engines.reported import read_engine_text, read_version_text
from infcalc.errors import UnknownName, UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.deployment import Ask, Deployment
    from infcalc.catalog.lookup import Catalog, GpuEntry, ModelEntry
    from infcalc.evidence.nouns import Stated
    from infcalc.spec.kv import KvFormat

_WHOLE = frozenset({"bf16", "fp16", "auto"})
_RANKS = ("tp", "pp", "dp", "ep", "dcp", "num_gpus")
_ARGUMENTS = {
    "tensor_parallel_size": "tp",
    "tp_size": "tp",
    "tp": "tp",
    "pipeline_parallel_size": "pp",
    "pp_size": "pp",
    "data_parallel_size": "dp",
    "max_num_seqs": "max_num_seqs",
    "max_running_requests": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "chunked_prefill_size": "max_num_batched_tokens",
    "max_model_len": "max_model_len",
    "context_length": "max_model_len",
    "gpu_memory_utilization": "memory_fraction",
    "mem_fraction_static": "memory_fraction",
    "kv_cache_dtype": "kv_dtype",
    "quantization": "weights",
    "model": "model",
}
"""Options of engines that a file may quote, by the names of settings."""
_COUNTS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "tp", "pp", "dp", "ep")
_MOST = 2**40
_RAISED_FRACTION = 0.95


@frozen
class Settled:
    """A deployment of a measurement: where each value is from, what was assumed, what is doubtful."""

    site: Site
    inputs: tuple[Input, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    is_alone: bool = False
    """One GPU is assumed: nobody says how many there are."""

    @property
    def deployment(self) -> Deployment:
        """What is deployed."""
        return self.site.deployment


def settled(stated: Sequence[Stated], ask: Ask, catalog: Catalog, place: str) -> Settled:
    """Return the deployment that a measurement states, under what ``ask`` says.

    Raises:
        UsageError: model or GPU is neither stated nor given.
        InfcalcError: what is named is not known, or cannot be deployed.

    """
    found = _Found(stated, ask)
    model = _model(found, catalog, place)
    gpu = _gpu(found, catalog, place)
    _engine(found)
    _weights(found, model)
    _fill(found)
    judged = any(getattr(ask, name) is not None for name in _RANKS)
    deployment = deploy(found.ask, model, gpu, strict=judged)
    form, origin, doubts = kv_format(deployment, single_kv_dtype(found.ask))
    raised = _raised(found, deployment, form)
    if raised is not None:
        found.ask = raised
        deployment = deploy(raised, model, gpu, strict=judged)
    site = Site(ask=found.ask, deployment=deployment, form=form, form_origin=origin, catalog=catalog)
    inputs = (
        *(replace(item, origin=found.origin(item.name, item.origin)) for item in deployment.inputs),
        Input(name="kv_dtype", value=form.name, origin=found.origin("kv_dtype", origin), source=form.note),
    )
    assumed = [
        f"{item.name.replace('_', ' ')} {item.value} ({_derived(item.origin)})"
        for item in inputs
        if not item.origin.startswith("given") and item.value is not None and item.name in _NAMED
    ]
    notes = [f"not stated in the file, so assumed: {'; '.join(assumed)}"] if assumed else []
    return Settled(
        site=site,
        inputs=inputs,
        assumptions=(*notes, *found.notes, *deployment.assumptions),
        warnings=(*found.doubts, *doubts, *deployment.warnings),
        is_alone=found.is_alone,
    )


def _derived(origin: str) -> str:
    """Return where a value is from, without options that nobody gave: the file states these."""
    return origin.replace("--gpus", "the number of GPUs").replace("--tp, --pp and --dp", "the ranks")


_NAMED = frozenset({"engine", "engine_version", "tp", "pp", "weights", "kv_dtype", "gpus"})
_FIELDS = {"model": "models", "gpu": "gpus", "gpus": "num_gpus", "kv_dtype": "kv_dtypes", "block_tokens": "block_size"}


class _Found:
    """The ask while it is filled, and where each value is from."""

    def __init__(self, stated: Sequence[Stated], ask: Ask) -> None:
        self.ask, self._given = ask, ask
        self.notes: list[str] = []
        self.doubts: list[str] = []
        self._stated = {one.name: (one.value, one.key) for one in stated}
        self._keys: dict[str, str] = {}
        self._alone = False
        text, key = self._stated.get("engine_arguments", ("", ""))
        for name, value in flags(str(text)).items():
            if name in _ARGUMENTS:
                self._stated.setdefault(_ARGUMENTS[name], (value, f"{key} --{name.replace('_', '-')}"))
            elif name == "enforce_eager" and value == "True":
                self._stated.setdefault("enforce_eager", (1, f"{key} --enforce-eager"))

    def text(self, name: str) -> str:
        """Return what is stated; empty where nothing is."""
        return str(self._stated.get(name, ("", ""))[0]).strip()

    def key(self, name: str) -> str:
        """Return where it is stated."""
        return self._stated.get(name, ("", ""))[1]

    def number(self, name: str) -> int | None:
        """Return a stated whole number from 1 up; None where there is none."""
        text = self.text(name)
        return int(text) if text.isdigit() and 1 <= int(text) <= _MOST else None

    def is_given(self, name: str) -> bool:
        """Return whether the user says it."""
        return bool(getattr(self._given, _FIELDS.get(name, name), None))

    def fill(self, name: str, value: object) -> None:
        """Take a stated value, unless the user says another."""
        if value is not None and not self.is_given(name):
            changed: dict[str, Any] = {_FIELDS.get(name, name): value}
            self.ask = replace(self.ask, **changed)
            self._keys[name] = self.key(name)

    @property
    def is_alone(self) -> bool:
        """Whether one GPU was taken, where nobody says how many."""
        return self._alone

    def assume_one(self) -> None:
        """Take one GPU, where nobody says how many."""
        self.ask = replace(self.ask, tp=1)
        self._alone = True

    def origin(self, name: str, otherwise: str) -> str:
        """Return where the value of an input is from."""
        if self.is_given(name):
            return "given"
        if self._alone and name in {"tp", "gpus"}:
            return "no number of GPUs is stated"
        key = self._keys.get(name)
        return otherwise if key is None else f"given in the file ({key})"


def _model(found: _Found, catalog: Catalog, place: str) -> ModelEntry:
    from infcalc.files import load_model  # noqa: PLC0415 - opening files is only needed here

    if found.ask.models:
        return load_model(catalog, found.ask.models[0])
    text = found.text("model")
    if not text:
        raise UsageError("the model is neither stated nor given", place=place, hint="add --model NAME")
    unknown: UnknownName | None = None
    for name in (*spellings(text), text):
        try:
            read = read_model_text(catalog, name)
        except UnknownName as error:
            unknown = unknown or error
            continue
        found.fill("model", (name,))
        found.notes += read.assumptions
        return read.entry
    near = () if unknown is None else unknown.nearest
    raise UnknownName(
        "model", text, near, hint=f"{place} names it; say which it is with --model NAME, or a config.json"
    )


def _gpu(found: _Found, catalog: Catalog, place: str) -> GpuEntry:
    if found.ask.gpus:
        return catalog.gpu(found.ask.gpus[0])
    text = found.text("gpu")
    if not text:
        raise UsageError(
            "the GPU is neither stated nor given", place=place, hint="add --gpu NAME, and --tp of how many"
        )
    try:
        read = read_gpu_text(catalog, text)
    except UnknownName as error:
        raise UnknownName("GPU", text, error.nearest, hint=f"{place} names it; say which with --gpu NAME") from error
    found.fill("gpu", (read.entry.gpu.name,))
    found.notes += read.assumptions
    found.doubts += read.warnings
    return read.entry


def _engine(found: _Found) -> None:
    text = found.text("engine")
    if text and not found.is_given("engine"):
        serves, paced = read_engine_text(text)
        found.fill("engine", serves)
        if serves != paced:
            found.doubts.append(f"{text} is priced as {serves}, whose ledger and pace it is lent")
    engine = found.ask.engine or "vllm"
    stated, date = found.text("engine_version"), found.text("date")
    if found.is_given("engine_version") or not (stated or date):
        return
    read = read_version_text(engine, stated, date)
    if read.version is None:
        found.notes += read.assumptions
        return
    changed = replace(found.ask, engine_version=read.version)
    found.ask = changed
    if stated:
        found.fill("engine_version", read.version)
        found.notes += read.assumptions
    else:
        found.notes.append(f"the run is of {date}, and names no version: the rules of {engine} {read.version} taken")


def _weights(found: _Found, model: ModelEntry) -> None:
    word = read_weights_text(found.text("weights") or None)
    if word is None or word in _WHOLE or model.model.quantization is not None:
        return
    found.fill("weights", word)


def _fill(found: _Found) -> None:
    """Take ranks and limits; a user who states any rank, or the number of GPUs, states them all."""
    free = not any(getattr(found.ask, rank) is not None for rank in _RANKS)
    for name in _COUNTS:
        if free or name not in _RANKS:
            found.fill(name, found.number(name))
    if free and all(found.number(rank) is None for rank in ("tp", "pp", "dp")):
        number = found.number("gpus")
        found.fill("gpus", number)
        if number is None:
            found.assume_one()
    if found.text("enforce_eager"):
        found.fill("enforce_eager", True)
    word = read_kv_text(found.text("kv_dtype") or None)
    found.fill("kv_dtype", None if word in {None, "auto"} else (word,))
    found.fill("memory_fraction", _fraction(found.text("memory_fraction")))


def _raised(found: _Found, deployment: Deployment, form: KvFormat) -> Ask | None:
    """Return the ask with more memory for vLLM, where it would refuse to start by default: it ran.

    Of the two ways out that its error names, this is the first.
    """
    ask = found.ask
    if deployment.rules.engine != "vllm" or ask.memory_fraction is not None or ask.max_model_len is not None:
        return None
    if longest_for(deployment, form) >= deployment.max_model_len:
        return None
    found.notes.append(
        f"by default vLLM would not have started with {deployment.max_model_len:,} tokens: --gpu-memory-utilization "
        f"{_RAISED_FRACTION} taken (--memory-fraction, --max-model-len)"
    )
    return replace(ask, memory_fraction=_RAISED_FRACTION)


def _fraction(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None
