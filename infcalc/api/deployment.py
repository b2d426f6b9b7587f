"""From what a user asked to a full deployment: every value resolved, each with its origin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import distinct
from infcalc.api.ranges import check_range
from infcalc.engines.limits import limits
from infcalc.engines.rules import EngineRules, Served, engine_name, engine_rules, parse_version
from infcalc.engines.runners import runner_doubts
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.lowering.tensors import check_divisible, splits_blocks
from infcalc.memory.budget import NOTHING_ADDED, Additions, joined_gpus, profile_tokens
from infcalc.spec.explain import Input
from infcalc.spec.kv import KV_ALIASES, KV_FORMATS, KvFormat
from infcalc.spec.layers import CompressedAttention, GroupedAttention, LatentAttention
from infcalc.spec.parallelism import Parallelism
from infcalc.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infcalc.catalog.lookup import Catalog, GpuEntry, ModelEntry
    from infcalc.engines.rules import SchedulerDefaults
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.layers import Mixer
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
_MAX_DRAFT_TOKENS = 128
"""Far beyond what any engine drafts in one step."""
MAX_TOKENS = 2**40
AUTOMATIC_LENGTH = -1
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
    method: str | None = None
    """Way of drafting; ``mtp`` adds the model's own MTP layers to weights and KV."""
    num_draft_tokens: int | None = None
    """Draft tokens of the model's own MTP layers; None: they are not loaded."""
    draft_model: str | None = None
    """A published head or a model that is loaded beside it, and drafts."""
    num_lookahead_tokens: int | None = None
    """Tokens that it drafts in a round; None: the customary three."""
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
    draft_layers: tuple[tuple[Mixer, int], ...] = ()
    """Layers of a separate draft, by mixer: they cache every token too."""
    cpu_offload_bytes: int = 0
    kv_offload_bytes: int = 0
    inputs: tuple[Input, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    model_origins: Mapping[str, str]
    """Place of each key of the model's entry."""
    gpu_origins: Mapping[str, str]

    @property
    def with_mtp(self) -> bool:
        """Whether the model's own MTP layers are loaded and cached."""
        return self.additions.with_mtp


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
    check_numbers(ask)
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
    return KV_FORMATS[name], f"{_GIVEN} (--kv-dtype)", ()


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


def check_numbers(ask: Ask) -> None:
    """Refuse numbers that no deployment can have.

    Raises:
        UsageError: one is out of range.

    """
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
        "--num-draft-tokens": ask.num_lookahead_tokens,
        "--lora-rank": ask.lora_rank,
        "--max-loras": ask.num_adapters,
    }
    if ask.max_model_len == AUTOMATIC_LENGTH:
        raise UsageError(
            f"{AUTOMATIC_LENGTH} lets vLLM take the longest sequence that fits",
            place="--max-model-len",
            hint="leave it out: `infcalc memory` then names that length where the model's own does not fit",
        )
    most = {"--max-model-len": MAX_TOKENS, "--mtp-tokens": _MAX_DRAFT_TOKENS, "--num-draft-tokens": _MAX_DRAFT_TOKENS}
    for option, value in counts.items():
        check_range(option, value, most=most.get(option, _MAX_COUNT))
    for option, num_bytes in (("--cpu-offload-gb", ask.cpu_offload_bytes), ("--kv-offload-gib", ask.kv_offload_bytes)):
        if not 0 <= num_bytes <= _MAX_OFFLOAD_BYTES:
            raise UsageError(f"{num_bytes} bytes is out of range", place=option, hint="GiB, from 0 to 1,000,000")
    fraction = ask.memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        raise UsageError(f"{fraction} is out of range", place="--memory-fraction", hint="above 0 and at most 1")


def _resolve_one(ask: Ask, catalog: Catalog, model_name: str, gpu_name: str) -> Deployment:
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    return resolved(ask, catalog, files.load_model(catalog, model_name), catalog.gpu(gpu_name))


def resolved(ask: Ask, catalog: Catalog, model_entry: ModelEntry, gpu_entry: GpuEntry) -> Deployment:
    """Return the deployment of entries that are at hand, with its draft: as :func:`resolve`, for who asks often.

    Raises:
        UsageError: as :func:`resolve`.
        UnknownName: an engine or a draft that is not known.

    """
    deployment = deploy(ask, model_entry, gpu_entry)
    _check_engine(ask, deployment)
    if ask.draft_model is None and ask.num_lookahead_tokens is None:
        return deployment
    from infcalc.api.beside import with_draft  # noqa: PLC0415 - only where a draft is named

    return with_draft(deployment, ask.draft_model, ask.num_lookahead_tokens, catalog)


def _check_engine(ask: Ask, deployment: Deployment) -> None:
    """Refuse settings with which the engine does not start, whatever the memory.

    Raises:
        UsageError: one of them, with values that would do.

    """
    engine = deployment.rules.engine
    rule = limits(engine)
    sizes = rule.block_sizes
    if ask.block_size is not None and not sizes.admit(ask.block_size):
        hint = (
            f"{engine} takes {sizes.words}"
            if sizes.single_tokens or sizes.multiple_tokens
            else f"leave it out for {engine}"
        )
        raise UsageError(f"{ask.block_size} is no block size of {engine}", place="--block-size", hint=hint)
    running, step = deployment.max_num_seqs, deployment.max_num_batched_tokens
    if rule.sequences_within_step and running > step:
        own = "" if ask.max_num_batched_tokens else f", the default on {deployment.gpu.name}"
        raise UsageError(
            f"{running:,} sequences do not fit into a step of {step:,} tokens (--max-num-batched-tokens{own}): "
            f"{engine} refuses that",
            place="--max-num-seqs",
            hint=f"--max-num-seqs {step} or fewer, or --max-num-batched-tokens {running} or more",
        )
    ranks = deployment.parallelism.tp * deployment.parallelism.dp
    if rule.experts_over_all_ranks and deployment.parallelism.ep not in {1, ranks}:
        raise UsageError(
            f"{deployment.parallelism.ep} of {ranks} ranks: {engine} spreads experts over all ranks of TP x DP or none",
            place="--ep",
            hint=f"use --ep 1 or --ep {ranks}",
        )
    if ask.lora_rank is not None and rule.lora_ranks and ask.lora_rank not in rule.lora_ranks:
        wider = next((rank for rank in rule.lora_ranks if rank >= ask.lora_rank), None)
        listed = ", ".join(str(rank) for rank in rule.lora_ranks)
        raise UsageError(
            f"{engine} has no adapters of rank {ask.lora_rank}",
            place="--lora-rank",
            hint=f"use {wider}, which holds smaller ranks too; it takes {listed}" if wider else f"it takes {listed}",
        )


def _refuse_ranks(ask: Ask) -> None:
    """Refuse ranks that an engine which splits by layer does not have.

    Raises:
        UsageError: ranks of attention data, of experts or of contexts.

    """
    engine = engine_name(ask.engine or REFERENCE_ENGINE)
    if not limits(engine).splits_by_layer:
        return
    for option, number, what in (
        ("--dp", ask.dp, "attention data parallelism"),
        ("--ep", ask.ep, "expert parallelism"),
        ("--dcp", ask.dcp, "decode context parallelism"),
    ):
        if number is not None and number > 1:
            raise UsageError(
                f"{engine} has no {what}",
                place=option,
                hint="leave it out: it splits over GPUs by layer (--gpus), or by row (--tp)",
            )


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
    counted, uncounted = _parts_beside(model)
    notes += counted
    if ask.text_only and not model.unmodelled:
        notes.append(f"{model.name} takes no pictures: --text-only changes nothing")
    talk += uncounted
    parallelism, parallel_origin = _parallelism(ask, model, notes, strict=strict)
    if model.dtype == "fp32" and ask.weights != "fp32":
        model = replace(model, dtype="bf16")
        notes.append(f"{model.name} is stored in fp32; engines load it in 16 bit, as assumed here")
    quantization, weights, weights_origin = _weights(ask, model)
    talk += _block_warnings(ask, model, parallelism, quantization) if strict else ()
    ranks = {"tp": parallelism.tp, "pp": parallelism.pp, "dp": parallelism.dp}
    if ask.num_adapters is not None and ask.lora_rank is None:
        raise UsageError(
            f"{ask.num_adapters} adapters of no rank",
            place="--max-loras",
            hint="add --lora-rank, such as --lora-rank 16",
        )
    served = _served(model, text_only=ask.text_only)
    newest = engine_rules(ask.engine or REFERENCE_ENGINE, None, gpu, **ranks, served=served)
    version, version_talk = _known_version(newest, ask.engine_version)
    rules = newest
    if version is not None:
        rules = engine_rules(ask.engine or REFERENCE_ENGINE, version, gpu, **ranks, served=served)
    doubts = runner_doubts(rules.engine, rules.version)
    talk += [*version_talk, *_version_warnings(rules), *doubts, *_machine_warnings(model, gpu, parallelism)]
    fraction = _fraction(ask, rules, strict=strict)
    scheduler = rules.scheduler
    length = ask.max_model_len or model.max_context_tokens or _FALLBACK_LENGTH
    batched = profile_tokens(
        rules,
        max_num_batched_tokens=ask.max_num_batched_tokens or _batched_tokens(ask, scheduler),
        max_model_len=length,
        given=ask.max_num_batched_tokens is not None,
    )
    max_num_seqs = ask.max_num_seqs or min(scheduler.max_num_seqs, batched)
    drafts = _draft_tokens(ask, model)

    def origin(given: object, otherwise: str, option: str = "") -> str:
        if given is None or given == ():
            return otherwise
        return f"{_GIVEN} ({option})" if option else _GIVEN

    default = f"{rules.engine} {rules.version} default"
    inputs = (
        Input(name="model", value=model.name, origin=origin(ask.models, _REFERENCE, "--model"), source=model.source),
        Input(name="gpu", value=gpu.name, origin=origin(ask.gpus, _REFERENCE, "--gpu"), source=gpu.source),
        Input(name="gpus", value=parallelism.num_gpus, origin=origin(ask.num_gpus, parallel_origin, "--gpus")),
        Input(name="tp", value=parallelism.tp, origin=origin(ask.tp, parallel_origin, "--tp")),
        Input(name="pp", value=parallelism.pp, origin=origin(ask.pp, _stages_origin(ask, parallel_origin), "--pp")),
        Input(name="dp", value=parallelism.dp, origin=origin(ask.dp, "default", "--dp")),
        Input(name="ep", value=parallelism.ep, origin=origin(ask.ep, "default", "--ep")),
        Input(name="dcp", value=parallelism.dcp, origin=origin(ask.dcp, "default", "--dcp")),
        Input(name="weights", value=weights, origin=weights_origin),
        Input(name="engine", value=rules.engine, origin=origin(ask.engine, _REFERENCE, "--engine")),
        Input(
            name="engine_version",
            value=rules.version,
            origin=f"taken for {ask.engine_version!r}"
            if version_talk
            else origin(ask.engine_version, "newest known", "--engine-version"),
            source=_CORES.get(rules.generation, ""),
        ),
        Input(
            name="memory_fraction",
            value=fraction,
            origin=origin(ask.memory_fraction, default, "--memory-fraction"),
            source=f"{rules.fraction_source}; {rules.fraction_base.value}",
        ),
        Input(name="max_num_seqs", value=max_num_seqs, origin=origin(ask.max_num_seqs, default, "--max-num-seqs")),
        Input(
            name="max_num_batched_tokens",
            value=batched,
            origin=origin(ask.max_num_batched_tokens, default, "--max-num-batched-tokens"),
        ),
        Input(
            name="max_model_len", value=length, origin=origin(ask.max_model_len, "the model's own", "--max-model-len")
        ),
        Input(
            name="block_tokens",
            value=ask.block_size or rules.block_tokens,
            origin=origin(ask.block_size, default, "--block-size"),
        ),
        *_stated(ask),
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
        inputs=inputs,
        assumptions=distinct(notes),
        warnings=distinct(talk),
        model_origins=model_entry.origins,
        gpu_origins=gpu_entry.origins,
    )


_CORES = {"v0": "engine core V0", "v1": "engine core V1", "v2": "model runner V2"}


def _served(model: Model, *, text_only: bool) -> Served:
    """Return what of a model the rules of engines ask for."""
    mixers = [run.layer.mixer for run in model.layers]
    return Served(
        multimodal=bool(model.unmodelled) and not text_only,
        latent=any(isinstance(mixer, LatentAttention) for mixer in mixers),
        compressed=any(isinstance(mixer, CompressedAttention) for mixer in mixers),
        experts=model.has_experts,
    )


def _parts_beside(model: Model) -> tuple[list[str], list[str]]:
    """Return what is noted and what is warned about the parts of a model beside its decoder."""
    if not model.unmodelled:
        return [], []
    parts, number = ", ".join(model.unmodelled), model.unmodelled_parameters
    if not number:
        return [], [f"{model.name}: of unknown size, so counted neither in memory nor in work: {parts}"]
    return [f"{model.name}: {number:,} parameters of {parts} count in memory, in 16 bit, and not in work"], []


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
    """Return the ranks: TP is what ``--gpus`` leaves after PP and DP, unless it is stated itself.

    An engine that splits by layer has so many stages instead.
    """
    if strict:
        _refuse_ranks(ask)
    if _by_layer(ask):
        stages = ask.num_gpus or min(REFERENCE_GPUS, model.num_layers)
        found, origin = _parallelism(replace(ask, num_gpus=stages, tp=1, pp=stages), model, notes, strict=strict)
        if stages > 1:
            notes.append(f"{ask.engine} splits over GPUs by layer: {stages} stages, no tensor parallelism")
        return found, origin if ask.num_gpus else _REFERENCE
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
        named = f"--gpus {ask.num_gpus} (TP {tp})" if ask.num_gpus is not None and ask.tp is None else ""
        check_divisible(model, parallelism, tp_named=named)
        _check_dcp(model, parallelism)
    elif pp > model.num_layers:
        raise UsageError(f"--pp {pp} is more than the {model.num_layers} layers of {model.name}")
    return parallelism, origin


def _by_layer(ask: Ask) -> bool:
    """Return whether GPUs are stages because the engine splits by layer and nobody asked for anything else."""
    splits = limits(engine_name(ask.engine or REFERENCE_ENGINE)).splits_by_layer
    return splits and ask.tp is None and ask.pp is None and ask.dp is None


def _stages_origin(ask: Ask, parallel_origin: str) -> str:
    return parallel_origin if _by_layer(ask) else "default"


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


def _stated(ask: Ask) -> tuple[Input, ...]:
    """Return the values that have no default and were given."""
    found = (
        ("method", ask.method, "--method"),
        ("mtp_tokens", ask.num_draft_tokens, "--mtp-tokens"),
        ("draft_model", ask.draft_model, "--draft-model"),
        ("num_draft_tokens", ask.num_lookahead_tokens, "--num-draft-tokens"),
        ("lora_rank", ask.lora_rank, "--lora-rank"),
        ("max_loras", ask.num_adapters, "--max-loras"),
        ("text_only", ask.text_only, "--text-only"),
        ("cpu_offload_bytes", ask.cpu_offload_bytes, "--cpu-offload-gb"),
        ("kv_offload_bytes", ask.kv_offload_bytes, "--kv-offload-gib"),
    )
    eager = (Input(name="enforce_eager", value=True, origin=f"{_GIVEN} (--enforce-eager)"),)
    return (
        *(Input(name=name, value=value, origin=f"{_GIVEN} ({flag})") for name, value, flag in found if value),
        *(eager if ask.enforce_eager else ()),
    )


def _fraction(ask: Ask, rules: EngineRules, *, strict: bool) -> float | None:
    if ask.memory_fraction is None or (rules.fraction is None and not strict):
        return rules.fraction
    if rules.fraction is None:
        raise UsageError(
            f"{rules.engine} has no memory fraction",
            place="--memory-fraction",
            hint="leave it out: the KV cache is allocated for the asked context",
        )
    return ask.memory_fraction


def _batched_tokens(ask: Ask, scheduler: SchedulerDefaults) -> int:
    """Return the default tokens per step: no more than all sequences at full length. Source: vLLM ``arg_utils``."""
    if ask.max_model_len is None:
        return scheduler.max_num_batched_tokens
    return min(scheduler.max_num_batched_tokens, (ask.max_num_seqs or scheduler.max_num_seqs) * ask.max_model_len)


def _draft_tokens(ask: Ask, model: Model) -> int:
    """Return the draft tokens of the model's own MTP layers; 0 where they do not count.

    Raises:
        UsageError: another way of drafting, or a model without such layers.

    """
    if ask.method is not None and ask.method.strip().lower() != "mtp":
        raise UsageError(
            f"{ask.method!r} adds nothing of the model's own",
            place="--method",
            hint="mtp counts its MTP layers; `infcalc speculate` says what other drafts add",
        )
    drafts = ask.num_draft_tokens or (0 if ask.method is None else 1)
    if drafts and model.mtp is None:
        place = "--mtp-tokens" if ask.num_draft_tokens else "--method"
        raise UsageError(f"{model.name} has no MTP layers", place=place, hint="leave it out")
    return drafts


def merged_inputs(groups: Sequence[tuple[Input, ...]]) -> tuple[Input, ...]:
    """Return the inputs of several deployments as one list: where they differ, all values in their order."""
    merged: dict[str, list[Input]] = {}
    for group in groups:
        for item in group:
            merged.setdefault(item.name, []).append(item)
    return tuple(_joined(items) for items in merged.values())


def _joined(items: list[Input]) -> Input:
    values = list(dict.fromkeys(item.value for item in items))
    if len(values) == 1:
        return items[0]
    origins = "; ".join(dict.fromkeys(item.origin for item in items))
    return replace(items[0], value=tuple(values), origin=origins, source="")


def _version_warnings(rules: EngineRules) -> list[str]:
    """Return a warning when a version is asked that lies outside those whose rules were read."""
    if rules.version == rules.newest:
        return []
    if rules.oldest == rules.newest:
        return [f"{rules.engine} {rules.version}: rules are known of {rules.newest} only, and those were taken"]
    asked = parse_version(rules.version)
    if asked < parse_version(rules.oldest):
        return [f"{rules.engine} {rules.version}: the oldest rules known are of {rules.oldest}, and those were taken"]
    newest = parse_version(rules.newest)
    if asked[: len(newest)] <= newest:
        return []
    return [f"{rules.engine} {rules.version}: the newest rules known are of {rules.newest}, and those were taken"]


def _known_version(newest: EngineRules, text: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the version whose rules hold for what a user calls a version, and a warning where that is not the same.

    ``newest`` are the rules of the engine's newest known version.
    """
    # The builds of llama.cpp are called by commit; its rules are one set.
    if text is None or newest.oldest == newest.newest:
        return text, ()
    try:
        parse_version(text)
    except UsageError:
        from infcalc.engines.reported import read_version_text  # noqa: PLC0415 - only for unusual versions

        read = read_version_text(newest.engine, text)
        if read.version is None:
            if not any(letter.isalpha() for letter in text):
                raise UsageError(
                    f"{text!r} is not a version of {newest.engine}",
                    place="--engine-version",
                    hint=f"write it like {newest.newest}; rules are known from {newest.oldest} to {newest.newest}",
                ) from None
            known = f"of {newest.oldest} to {newest.newest}, and those of {newest.newest} were taken"
            return None, (f"{newest.engine} version {text!r} is not known: the rules known are {known}",)
        return read.version, read.assumptions or (f"version {text!r}: the rules of {read.version} taken",)
    return text, ()


def _machine_warnings(model: Model, gpu: Gpu, parallelism: Parallelism) -> list[str]:
    """Return what of the machine makes a pool uncertain beyond its band."""
    found = []
    if gpu.unified_memory:
        found.append(
            f"{gpu.name} has unified memory: what other processes and the file cache hold counts against the pool; "
            "logs show up to 10 GiB less"
        )
    number = joined_gpus(model, parallelism)
    if number > gpu.max_per_machine:
        found.append(
            f"{number} GPUs are several machines: the rank with the least free memory sets the blocks, "
            "and it may have a few GiB less than the first"
        )
    return found


def has_whole_blocks(
    engine: str, model: Model, parallelism: Parallelism, quantization: WeightQuantization | None
) -> bool:
    """Return whether an engine accepts the ranks' shares of weights with block scales."""
    return not limits(engine).whole_blocks_source or not splits_blocks(model, parallelism, quantization)


def _block_warnings(
    ask: Ask, model: Model, parallelism: Parallelism, quantization: WeightQuantization | None
) -> list[str]:
    """Return a warning where a rank's share of a projection ends within a block of weights, with what would do."""
    engine = engine_name(ask.engine or REFERENCE_ENGINE)
    if has_whole_blocks(engine, model, parallelism, quantization):
        return []
    tensor = splits_blocks(model, parallelism, quantization)[0]
    rows, columns, _ = tensor.rank_shape(parallelism)
    share, block = (rows, tensor.format.group_rows) if rows < tensor.rows else (columns, tensor.format.group_columns)
    tp, every = parallelism.tp, parallelism.tp * parallelism.dp
    ways = [(f"--ep {every}", replace(parallelism, ep=every))] if model.has_experts else []
    ways += [(f"TP {tp // part}", replace(parallelism, tp=tp // part, ep=1)) for part in range(2, tp) if tp % part == 0]
    mends = [text for text, ranks in ways if not splits_blocks(model, ranks, quantization)]
    mend = f": use {' or '.join(mends[:2])}" if mends else ""
    said = (
        f"{model.name}: a rank holds {share:,} of {tensor.name}, no multiple of the {block} that share a scale; "
        f"{engine} refuses that ({limits(engine).whole_blocks_source}){mend}"
    )
    return [said]


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
        origin = "the checkpoint's own" if ask.weights is None else f"{_GIVEN} (--weights auto): the checkpoint's own"
        return model.quantization, stored_in(model), origin
    from infcalc.catalog.quantization import runtime_quantization  # noqa: PLC0415 - only when a precision is asked

    quantization = runtime_quantization(ask.weights, model)
    return quantization, ask.weights, f"{_GIVEN} (--weights)"
