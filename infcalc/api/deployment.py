"""From what a user asked to a full deployment: every value resolved, each with its origin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import distinct
from infcalc.engines.rules import EngineRules, engine_rules, parse_version
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.lowering.tensors import check_divisible
from infcalc.memory.budget import NOTHING_ADDED, Additions, profile_tokens
from infcalc.spec.explain import Input
from infcalc.spec.kv import KV_ALIASES, KV_FORMATS, KvFormat
from infcalc.spec.layers import GroupedAttention
from infcalc.spec.parallelism import Parallelism
from infcalc.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.catalog.lookup import Catalog, GpuEntry, ModelEntry
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model
    from infcalc.spec.weights import WeightQuantization

REFERENCE_MODEL = "llama3-70b"
REFERENCE_GPU = "a100-sxm4-80gb"
REFERENCE_GPUS = 4
REFERENCE_ENGINE = "vllm"
_REFERENCE = "reference scenario"
_GIVEN = "given"
_WHOLE_FORMATS = frozenset({"bf16", "fp16", "fp32"})
_MAX_COUNT = 1_000_000
MAX_TOKENS = 2**40
_GPUS_OF_A_MACHINE = 8
_FALLBACK_LENGTH = 2048
"""What vLLM takes where a config names no length."""
_MAX_OFFLOAD_BYTES = 1_000_000 * GIB


@frozen
class Ask:
    """What a user may say of a deployment; None and empty mean: take the default and say so.

    ``models`` and ``gpus`` (names or paths) may hold several, for answers side by side. ``num_gpus`` is the GPUs of one
    replica: TP x PP x DP. ``weights`` and ``kv_dtypes`` are precisions as on the command line. ``catalogs`` are overlay
    files.
    """

    models: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    num_gpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    dcp: int | None = None
    weights: str | None = None
    kv_dtypes: tuple[str, ...] = ()
    engine: str | None = None
    engine_version: str | None = None
    memory_fraction: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    num_draft_tokens: int | None = None
    """Draft tokens of the model's own MTP layers; None: they are not loaded."""
    lora_rank: int | None = None
    num_adapters: int | None = None
    """LoRA adapters held at once."""
    text_only: bool = False
    """A multimodal model is served without pictures: its towers are not profiled."""
    cpu_offload_bytes: int = 0
    """Weights of each GPU that stay in host memory."""
    kv_offload_bytes: int = 0
    """Host memory for KV, of all GPUs of the replica together."""
    catalogs: tuple[str, ...] = ()


@frozen
class Deployment:
    """One model on one kind of GPU, with every choice made."""

    model: Model
    gpu: Gpu
    parallelism: Parallelism
    quantization: WeightQuantization | None
    weights: str
    """Name of the weight precision: the format of the linear layers."""
    rules: EngineRules
    fraction: float | None
    max_num_seqs: int
    max_num_batched_tokens: int
    """Tokens of one step; of the profiling run where prefill is not chunked."""
    max_model_len: int
    """Longest sequence the engine admits: as asked, else what the model was made for."""
    block_tokens: int
    additions: Additions = NOTHING_ADDED
    num_draft_tokens: int = 0
    cpu_offload_bytes: int = 0
    kv_offload_bytes: int = 0
    inputs: tuple[Input, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    model_origins: Mapping[str, str]
    """Place of each key of the model's entry."""
    gpu_origins: Mapping[str, str]


def load(ask: Ask) -> Catalog:
    """Return the catalog with the overlays of ``ask``."""
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    return files.load_catalog(ask.catalogs)


def resolve(ask: Ask, catalog: Catalog) -> tuple[Deployment, ...]:
    """Return one deployment per asked model and GPU.

    Raises:
        UsageError: a number out of range, or counts that contradict each other or the model.
        UnknownName: a model, GPU or engine the catalog does not know.

    """
    _check_numbers(ask)
    models = ask.models or (REFERENCE_MODEL,)
    gpus = ask.gpus or (REFERENCE_GPU,)
    return tuple(_resolve_one(ask, catalog, model, gpu) for model in models for gpu in gpus)


def kv_format(deployment: Deployment, word: str | None) -> tuple[KvFormat, str, tuple[str, ...]]:
    """Return the KV format of ``word`` (None or ``auto``: the checkpoint's own), its origin and any warnings.

    Raises:
        UsageError: no such format.

    """
    if word is None or word == "auto":
        own = deployment.model.kv_dtype
        if own == "fp8" and deployment.gpu.peak("fp8") is None:
            note = f"{deployment.model.name} asks for an fp8 KV cache, {deployment.gpu.name} has no fp8: bf16 taken"
            return KV_FORMATS["bf16"], "GPU without fp8", (note,)
        if own is not None:
            return KV_FORMATS[own], "the checkpoint's KV scheme", ()
        name = deployment.model.dtype if deployment.model.dtype in {"bf16", "fp16"} else "bf16"
        return KV_FORMATS[name], "model dtype (the checkpoint states no KV scheme)", ()
    name = word.strip().lower()
    name = KV_ALIASES.get(name, name)
    if name not in KV_FORMATS:
        raise UsageError(
            f"{word!r} is not a KV-cache precision", place="--kv-dtype", hint=f"one of auto, {', '.join(KV_FORMATS)}"
        )
    return KV_FORMATS[name], _GIVEN, ()


def single_kv_dtype(ask: Ask) -> str | None:
    """Return the KV precision asked for, for questions that look at one; None where none was.

    Raises:
        UsageError: several were asked.

    """
    if len(ask.kv_dtypes) > 1:
        raise UsageError(
            f"{len(ask.kv_dtypes)} KV precisions", place="--kv-dtype", hint="this question looks at one: give one"
        )
    return ask.kv_dtypes[0] if ask.kv_dtypes else None


def _check_numbers(ask: Ask) -> None:
    counts = {
        "--gpus": ask.num_gpus,
        "--tp": ask.tp,
        "--pp": ask.pp,
        "--dp": ask.dp,
        "--ep": ask.ep,
        "--dcp": ask.dcp,
        "--max-model-len": ask.max_model_len,
        "--max-num-seqs": ask.max_num_seqs,
        "--max-num-batched-tokens": ask.max_num_batched_tokens,
        "--block-size": ask.block_size,
        "--mtp-tokens": ask.num_draft_tokens,
        "--lora-rank": ask.lora_rank,
        "--max-loras": ask.num_adapters,
    }
    for option, value in counts.items():
        limit = MAX_TOKENS if option == "--max-model-len" else _MAX_COUNT
        if value is not None and not 1 <= value <= limit:
            raise UsageError(f"{value} is out of range", place=option, hint=f"a whole number from 1 to {limit:,}")
    for option, num_bytes in (("--cpu-offload-gb", ask.cpu_offload_bytes), ("--kv-offload-gib", ask.kv_offload_bytes)):
        if not 0 <= num_bytes <= _MAX_OFFLOAD_BYTES:
            raise UsageError(f"{num_bytes} bytes is out of range", place=option, hint="GiB, from 0 to 1,000,000")
    fraction = ask.memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        raise UsageError(f"{fraction} is out of range", place="--memory-fraction", hint="above 0 and at most 1")


def _resolve_one(ask: Ask, catalog: Catalog, model_name: str, gpu_name: str) -> Deployment:
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    return deploy(ask, files.load_model(catalog, model_name), catalog.gpu(gpu_name))


def deploy(ask: Ask, model_entry: ModelEntry, gpu_entry: GpuEntry, *, strict: bool = True) -> Deployment:
    """Return the deployment of one model on one kind of GPU.

    ``strict`` refuses ranks that do not divide the model; a log of an engine that did so anyway is not judged.

    Raises:
        UsageError: counts that contradict each other or the model.
        UnknownName: an engine that is not known.

    """
    model, gpu = model_entry.model, gpu_entry.gpu
    notes = list(model_entry.assumptions)
    talk = [*model_entry.warnings, *gpu_entry.warnings]
    parallelism, parallel_origin = _parallelism(ask, model, notes, strict=strict)
    if model.dtype == "fp32" and ask.weights is None:
        model = replace(model, dtype="bf16")
        notes.append(f"{model.name} is stored in fp32; engines load it in 16 bit, as assumed here")
    quantization, weights, weights_origin = _weights(ask, model)
    # Attention-DP ranks that share experts keep the same communicators as TP ranks.
    joined = parallelism.tp * (parallelism.dp if parallelism.ep > 1 else 1)
    version, version_talk = _known_version(ask.engine or REFERENCE_ENGINE, ask.engine_version)
    rules = engine_rules(ask.engine or REFERENCE_ENGINE, version, gpu, tp=joined)
    talk += version_talk
    talk += [*_version_warnings(rules), *_machine_warnings(gpu, parallelism)]
    fraction = rules.fraction if ask.memory_fraction is None else ask.memory_fraction
    if rules.fraction is None:
        fraction = None
    scheduler = rules.scheduler
    max_num_seqs = ask.max_num_seqs or scheduler.max_num_seqs
    length = ask.max_model_len or model.max_context_tokens or _FALLBACK_LENGTH
    batched = profile_tokens(
        rules,
        max_num_batched_tokens=ask.max_num_batched_tokens or scheduler.max_num_batched_tokens,
        max_model_len=length,
        given=ask.max_num_batched_tokens is not None,
    )
    drafts = ask.num_draft_tokens or 0
    if drafts and model.mtp is None:
        raise UsageError(f"{model.name} has no MTP layers", place="--mtp-tokens", hint="leave it out")

    def origin(given: object, otherwise: str) -> str:
        return _GIVEN if given is not None and given != () else otherwise

    default = f"{rules.engine} {rules.version} default"
    inputs = (
        Input(name="model", value=model.name, origin=origin(ask.models, _REFERENCE), source=model.source),
        Input(name="gpu", value=gpu.name, origin=origin(ask.gpus, _REFERENCE), source=gpu.source),
        Input(name="gpus", value=parallelism.num_gpus, origin=origin(ask.num_gpus, parallel_origin)),
        Input(name="tp", value=parallelism.tp, origin=origin(ask.tp, parallel_origin)),
        Input(name="pp", value=parallelism.pp, origin=origin(ask.pp, "default")),
        Input(name="dp", value=parallelism.dp, origin=origin(ask.dp, "default")),
        Input(name="ep", value=parallelism.ep, origin=origin(ask.ep, "default")),
        Input(name="dcp", value=parallelism.dcp, origin=origin(ask.dcp, "default")),
        Input(name="weights", value=weights, origin=weights_origin),
        Input(name="engine", value=rules.engine, origin=origin(ask.engine, _REFERENCE)),
        Input(name="engine_version", value=rules.version, origin=origin(ask.engine_version, "newest known")),
        Input(
            name="memory_fraction",
            value=fraction,
            origin=origin(ask.memory_fraction, default),
            source=f"{rules.fraction_source}; {rules.fraction_base.value}",
        ),
        Input(name="max_num_seqs", value=max_num_seqs, origin=origin(ask.max_num_seqs, default)),
        Input(name="max_num_batched_tokens", value=batched, origin=origin(ask.max_num_batched_tokens, default)),
        Input(name="max_model_len", value=length, origin=origin(ask.max_model_len, "the model's own")),
        Input(name="block_tokens", value=ask.block_size or rules.block_tokens, origin=origin(ask.block_size, default)),
    )
    return Deployment(
        model=model,
        gpu=gpu,
        parallelism=parallelism,
        quantization=quantization,
        weights=weights,
        rules=_eager(rules) if ask.enforce_eager else rules,
        fraction=fraction,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=batched,
        max_model_len=length,
        block_tokens=ask.block_size or rules.block_tokens,
        additions=Additions(
            with_mtp=drafts > 0,
            lora_rank=ask.lora_rank or 0,
            num_adapters=ask.num_adapters or 1,
            offload_bytes=ask.cpu_offload_bytes,
            with_encoder=not ask.text_only,
        ),
        num_draft_tokens=drafts,
        cpu_offload_bytes=ask.cpu_offload_bytes,
        kv_offload_bytes=ask.kv_offload_bytes,
        inputs=(*inputs, *_offload_inputs(ask)),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        model_origins=model_entry.origins,
        gpu_origins=gpu_entry.origins,
    )


def _offload_inputs(ask: Ask) -> tuple[Input, ...]:
    asked = (("cpu_offload_bytes", ask.cpu_offload_bytes), ("kv_offload_bytes", ask.kv_offload_bytes))
    return tuple(Input(name=name, value=num_bytes, origin=_GIVEN) for name, num_bytes in asked if num_bytes)


def _eager(rules: EngineRules) -> EngineRules:
    return replace(
        rules,
        cuda_graph_bytes=0,
        cuda_graph_low_bytes=0,
        cuda_graph_high_bytes=0,
        small_batch_graph_bytes=0,
        cuda_graph_source="--enforce-eager: no CUDA graphs",
    )


def _parallelism(ask: Ask, model: Model, notes: list[str], *, strict: bool = True) -> tuple[Parallelism, str]:
    """Return the ranks: TP is what ``--gpus`` leaves after PP and DP, unless it is stated itself."""
    pp, dp, dcp = ask.pp or 1, ask.dp or 1, ask.dcp or 1
    origin = "from --gpus" if ask.num_gpus else "from --tp, --pp and --dp"
    if ask.num_gpus is not None:
        tp, rest = divmod(ask.num_gpus, pp * dp) if ask.tp is None else (ask.tp, ask.num_gpus - ask.tp * pp * dp)
        if rest or tp < 1:
            raise UsageError(
                f"{ask.num_gpus} GPUs are not TP {ask.tp or '?'} x PP {pp} x DP {dp}",
                place="--gpus",
                hint="--gpus is the GPUs of one replica: TP x PP x DP; leave --tp out to have it computed",
            )
    elif ask.tp is not None or ask.pp is not None or ask.dp is not None:
        tp = ask.tp or 1
    else:
        tp, origin = _largest_tp(model, REFERENCE_GPUS), _REFERENCE
        if tp != REFERENCE_GPUS:
            notes.append(f"{model.name} cannot be split over {REFERENCE_GPUS} ranks: TP {tp} taken")
    parallelism = Parallelism(tp=tp, pp=pp, dp=dp, ep=ask.ep or 1, dcp=dcp)
    if strict:
        check_divisible(model, parallelism)
        _check_dcp(model, parallelism)
    return parallelism, origin


def _check_dcp(model: Model, parallelism: Parallelism) -> None:
    """Refuse decode context parallelism over ranks that hold different heads: it splits copies only.

    Source: vLLM's check of ``decode_context_parallel_size`` against TP and KV heads.
    """
    tp, dcp = parallelism.tp, parallelism.dcp
    if dcp == 1:
        return
    copies = tp
    for run in model.layers:
        match run.layer.mixer:
            case GroupedAttention(num_kv_heads=heads, shares_kv=False):
                copies = min(copies, max(1, tp // heads))
            case _:
                pass
    if tp % dcp or copies % dcp:
        fitting = ", ".join(str(number) for number in range(1, copies + 1) if copies % number == tp % number == 0)
        raise UsageError(
            f"{dcp} does not divide the {copies} ranks of TP {tp} that hold the same KV of {model.name}",
            place="--dcp",
            hint=f"use {fitting}",
        )


def _version_warnings(rules: EngineRules) -> list[str]:
    """Return a warning when a version is asked that is newer than all whose rules are known."""
    if rules.version == rules.newest or rules.engine == "llama.cpp":
        return []
    if parse_version(rules.version) <= parse_version(rules.newest):
        return []
    return [
        f"{rules.engine} {rules.version} is newer than {rules.newest}, the newest whose rules are known: those hold"
    ]


def _known_version(engine: str, text: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the version whose rules hold for what a user calls a version, and a warning where that is not the same."""
    # The builds of llama.cpp are called by commit; its rules are one set.
    if text is None or engine.strip().lower() in {"llama.cpp", "llamacpp", "llama-server", "llama_cpp"}:
        return text, ()
    try:
        parse_version(text)
    except UsageError as unread:
        from infcalc.engines.reported import read_version_text  # noqa: PLC0415 - only for unusual versions

        read = read_version_text(engine.strip().lower(), text)
        if read.version is None:
            raise unread from None
        return read.version, read.assumptions or (f"version {text!r}: the rules of {read.version} taken",)
    return text, ()


def _machine_warnings(gpu: Gpu, parallelism: Parallelism) -> list[str]:
    """Return what of the machine makes a pool uncertain beyond its band."""
    found = []
    if gpu.unified_memory:
        found.append(
            f"{gpu.name} has unified memory: what other processes and the file cache hold counts against the pool; "
            "logs show up to 10 GiB less"
        )
    if parallelism.num_gpus > _GPUS_OF_A_MACHINE:
        found.append(
            f"{parallelism.num_gpus} GPUs are several machines: the rank with the least free memory sets the blocks, "
            "and it may have a few GiB less than the first"
        )
    return found


def _largest_tp(model: Model, limit: int) -> int:
    """Return the largest power of two up to ``limit`` that divides the model."""
    tp = limit
    while tp > 1:
        try:
            check_divisible(model, Parallelism(tp=tp))
        except UsageError:
            tp //= 2
        else:
            break
    return tp


def stored_in(model: Model) -> str:
    """Return the name of the format most of a model's weights are stored in: of its experts where only those are."""
    own = model.quantization
    if own is None:
        return model.dtype
    named = (own.format, *(rule.format for rule in own.rules))
    return next((form for form in named if form not in _WHOLE_FORMATS), own.format)


def _weights(ask: Ask, model: Model) -> tuple[WeightQuantization | None, str, str]:
    """Return the quantization to apply, its name and origin; ``auto`` is the checkpoint's own."""
    if ask.weights is None or ask.weights == "auto":
        origin = "the checkpoint's own" if ask.weights is None else "given (auto)"
        return model.quantization, stored_in(model), origin
    from infcalc.catalog.quantization import runtime_quantization  # noqa: PLC0415 - only when a precision is asked

    quantization = runtime_quantization(ask.weights, model)
    return quantization, ask.weights, _GIVEN
