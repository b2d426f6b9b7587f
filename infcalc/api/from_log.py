"""From a start-up log to a question: what the log says of the deployment, under what the user says."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.catalog.gguf_mixes import MIXES
from infcalc.engines.logs.reading import Quantity, Setting
from infcalc.engines.rules import parse_version
from infcalc.errors import UnknownName, UsageError
from infcalc.frozen import frozen
from infcalc.spec.kv import KV_ALIASES, KV_FORMATS
from infcalc.units import GIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.api.deployment import Ask
    from infcalc.catalog.lookup import Catalog
    from infcalc.engines.logs.reading import EngineLog
    from infcalc.spec.model import Model

    Fill = Callable[[str, object, int], None]

_HUB_CACHE = re.compile(r"models--([^/\\]+?)--([^/\\]+)")
_SHARD = re.compile(r"-[0-9]{5}-of-[0-9]{5}$")
_DRAFTS = re.compile(r"num_spec(?:ulative)?_tokens['\"]?\s*[:=]\s*([1-9][0-9]{0,2})\b")
_GUESSED = re.compile(r"\(guessed\)", re.IGNORECASE)
_RANK_NUMBER = re.compile(r"^rank [0-9]{1,5}$")
_RANKS = ("tp", "pp", "dp", "ep", "dcp")
_SEPARATORS = re.compile(r"[/\\]+")
_MAX_GPUS = 1_000
_MAX_OFFLOAD_GIB = 4096
_MAX_COUNT = 1_000_000
_MAX_LENGTH = 2**40
_MAX_BYTES = 2**50
_V1_SINCE = (0, 8)
_V1_ALONE = (0, 11)
"""From these versions on, vLLM starts its second engine core by default, and has no other."""
_SAME_CARD = 0.01
"""Totals of one card differ by less between drivers."""
_RUNTIME_WEIGHTS = {
    "awq": "awq",
    "awq_marlin": "awq",
    "bitsandbytes": "int4",
    "fp8": "fp8",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "w8a8_fp8": "fp8",
    "w8a8_int8": "int8",
}
"""The engine's word for how weights are stored -> the word of ``--weights``."""
_KV_WORDS = {"fp8_inc": "fp8", "f16": "fp16", "bf16": "bf16", "f32": "fp32"}


@frozen
class FromLog:
    """The question a log answers, where each of its values was found, and what could not be used."""

    ask: Ask
    lines: Mapping[str, int]
    """Field of the ask -> line of the log."""
    assumed: Mapping[str, str]
    """Field of the ask -> why it has its value although nobody stated it."""
    sequences: int
    num_streams: int
    """Parts of llama.cpp's cache: one that its sequences share, or one for each."""
    flash: bool | None
    """Whether llama.cpp computes attention without its score matrix; None: the log does not say."""
    copies_embedding: bool
    """Whether llama.cpp's head lies on a device, which for a tied embedding is a second copy."""
    pool_bytes: int | None
    """KV pool set by hand, per rank."""
    num_blocks: int | None
    warnings: tuple[str, ...]


@frozen
class _Bounds:
    """What a setting of a log can be: numbers between two ends, and the option that says it instead."""

    setting: str
    field: str
    low: float
    high: float
    option: str
    whole: bool = True


_BOUNDS = (
    *(_Bounds(setting=name, field=name, low=1, high=_MAX_GPUS, option=f"--{name}") for name in _RANKS),
    _Bounds(setting="max_num_seqs", field="max_num_seqs", low=1, high=_MAX_COUNT, option="--max-num-seqs"),
    _Bounds(
        setting="max_num_batched_tokens",
        field="max_num_batched_tokens",
        low=1,
        high=_MAX_COUNT,
        option="--max-num-batched-tokens",
    ),
    _Bounds(setting="block_size", field="block_size", low=1, high=_MAX_COUNT, option="--block-size"),
    # Zero is the model's own length, and no offload.
    _Bounds(setting="max_model_len", field="max_model_len", low=0, high=_MAX_LENGTH, option="--max-model-len"),
    _Bounds(
        setting="cpu_offload",
        field="cpu_offload_bytes",
        low=0,
        high=_MAX_OFFLOAD_GIB,
        option="--cpu-offload-gb",
        whole=False,
    ),
    *(
        _Bounds(setting=name, field="memory_fraction", low=1e-9, high=1, option="--memory-fraction", whole=False)
        for name in ("memory_fraction", "printed_fraction")
    ),
    _Bounds(setting="max_lora_rank", field="lora_rank", low=1, high=_MAX_GPUS, option="--lora-rank"),
    _Bounds(setting="max_loras", field="num_adapters", low=1, high=_MAX_GPUS, option="--max-loras"),
)


def _impossible(log: EngineLog, ask: Ask) -> list[str]:
    """Return a warning for each setting of a log that cannot be, and is left out: by its name and line."""
    stated = bool(ask.num_gpus or ask.tp or ask.pp or ask.dp)
    found = []
    for bounds in _BOUNDS:
        setting = log.setting(bounds.setting)
        if setting is None or getattr(ask, bounds.field) or (stated and bounds.setting in _RANKS):
            continue
        value = setting.value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and bounds.low <= float(value) <= bounds.high and (not bounds.whole or float(value).is_integer()):
            continue
        ends = f"{'a whole number ' if bounds.whole else ''}from {bounds.low:g} to {bounds.high:,}"
        if not bounds.whole and bounds.high == 1:
            ends = "above 0 and at most 1"
        found.append(
            f"line {setting.line}: {bounds.setting.replace('_', ' ')} {value} is left out, for it is not {ends}; "
            f"{bounds.option} says what it was"
        )
    return found


def asked_by(log: EngineLog, ask: Ask, catalog: Catalog, *, place: str) -> FromLog:
    """Return the deployment a log speaks of; what ``ask`` states wins over what the log says.

    Raises:
        UsageError: neither the log nor the user names the model or the GPU, or several are asked.
        UnknownName: the catalog does not know what the log names.

    """
    for option, names in (("--model", ask.models), ("--gpu", ask.gpus)):
        if len(names) > 1:
            raise UsageError(f"{len(names)} names", place=option, hint="a log is of one deployment: give one")
    filled: dict[str, object] = {}
    lines: dict[str, int] = {}
    assumed: dict[str, str] = {}
    talk = _impossible(log, ask)

    def fill(field: str, value: object, line: int) -> None:
        if value is not None and not getattr(ask, field):
            filled[field] = value
            lines[field] = line

    if ask.engine is None or ask.engine == log.engine:
        fill("engine", log.engine, 0)
        fill("engine_version", _version(log, talk), 0)
    if not ask.models:
        name, line = _model_of(log, catalog, place)
        fill("models", (name,), line)
    if not ask.gpus:
        fill("gpus", (_gpu_of(log, catalog, place),), 0)
    _fill_ranks(log, ask, fill, assumed)
    _fill_limits(log, fill)
    _fill_fraction(log, fill)
    word, line = _kv_word(log, talk)
    fill("kv_dtypes", (word,) if word else None, line)
    fill("max_model_len", *_length(log))
    _fill_adapters(log, fill)
    return FromLog(
        ask=replace(ask, **filled),  # type: ignore[arg-type]
        lines=lines,
        assumed=assumed,
        sequences=_whole(log.setting("sequences"), _MAX_COUNT) or 1,
        num_streams=_streams(log),
        flash=_flash(log),
        copies_embedding=_head_on_device(log),
        pool_bytes=_whole(log.setting("kv_pool_bytes_set"), _MAX_BYTES),
        num_blocks=_whole(log.setting("kv_blocks_set"), _MAX_LENGTH),
        warnings=tuple(talk),
    )


def runtime_weights(log: EngineLog, model: Model) -> tuple[str | None, int, tuple[str, ...]]:
    """Return the weight precision an engine makes of a checkpoint that states none, its line, and any warning."""
    if model.quantization is not None:
        return None, 0, ()
    if log.setting("file_type") is not None:
        return _file_type(log, model)
    quantization = log.setting("quantization")
    if quantization is not None:
        word = str(quantization.value).lower()
        if word in _RUNTIME_WEIGHTS:
            return _RUNTIME_WEIGHTS[word], quantization.line, ()
        doubt = (
            f"line {quantization.line} says quantization={word}, and neither it nor the name says which precision: "
            f"{model.dtype} is taken; give --weights"
        )
        return None, 0, (doubt,)
    dtype = log.setting("dtype")
    if dtype is not None and str(dtype.value) in {"float32", "fp32"}:
        return "fp32", dtype.line, ()
    return None, 0, ()


def _file_type(log: EngineLog, model: Model) -> tuple[str | None, int, tuple[str, ...]]:
    """Return the precision of the GGUF file that llama.cpp loaded, its line, and any warning."""
    setting = log.setting("file_type")
    if setting is None:
        return None, 0, ()
    word = _gguf_word(str(setting.value))
    if word is not None:
        return word, setting.line, ()
    said = f"line {setting.line}: a file type {setting.value!r} is not known"
    return None, 0, (f"{said}: {model.dtype} is taken; give --weights",)


def _gguf_word(text: str) -> str | None:
    """Return the word of ``--weights`` for a GGUF file type as llama.cpp prints it; None for one that is not known.

    >>> [_gguf_word(text) for text in ("Q4_K - Medium", "IQ4_XS - 4.25 bpw", "all F32", "Q8_0 (guessed)", "Q9_9")]
    ['q4_k_m', 'iq4_xs', 'fp32', 'q8_0', None]
    """
    base, _, more = _GUESSED.sub("", text).lower().removeprefix("all ").strip().partition(" - ")
    base = base.replace(" ", "_")
    sized = f"{base}_{more[:1]}"
    plain = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
    return plain.get(base) or next((word for word in (sized, base) if word in MIXES), None)


def _fill_ranks(log: EngineLog, ask: Ask, fill: Fill, assumed: dict[str, str]) -> None:
    """Fill TP, PP and DP; a user who states any of them, or the number of GPUs, states them all."""
    if ask.num_gpus or ask.tp or ask.pp or ask.dp:
        return
    ranks = {name: _whole(log.setting(name), _MAX_GPUS) for name in _RANKS}
    attention = log.setting("dp_attention")
    if attention is not None and attention.value is True and ranks["tp"] and ranks["dp"]:
        # SGLang counts all GPUs as TP, and attention splits them; experts stay spread over all.
        ranks["ep"] = ranks["tp"]
        ranks["tp"] = max(1, ranks["tp"] // ranks["dp"])
    elif log.engine == "sglang" and attention is None:
        # Plain data parallelism makes replicas, each with its own ranks.
        ranks["dp"] = None
    if log.engine == "llama.cpp":
        devices = [figure.rank for figure in log.of(Quantity.WEIGHTS) if not figure.rank.startswith("CPU")]
        ranks["pp"] = len(devices) or 1
        ranks["tp"] = 1
    if ranks["tp"] is None:
        seen = {int(match[1]) for figure in log.figures if (match := re.search(r"\bTP([0-9]{1,3})\b", figure.rank))}
        # MPI numbers all ranks of a start.
        numbered = {figure.rank for figure in log.figures if _RANK_NUMBER.match(figure.rank)}
        ranks["tp"] = len(seen) or max(1, len(numbered) // ((ranks["pp"] or 1) * (ranks["dp"] or 1)))
        seen |= {0} if numbered else set()
        assumed["tp"] = "the ranks seen in the log" if seen else "not stated in the log"
    for name, value in ranks.items():
        setting = log.setting(name)
        if value is not None and (value > 1 or name == "tp"):
            fill(name, value, setting.line if setting else 0)


def _fill_limits(log: EngineLog, fill: Fill) -> None:
    for field in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
        setting = log.setting(field)
        fill(field, _whole(setting, _MAX_COUNT), setting.line if setting else 0)
    if log.engine == "llama.cpp":
        slots = log.setting("sequences")
        fill("max_num_seqs", _whole(slots, _MAX_COUNT), slots.line if slots else 0)
    if log.engine == "tensorrt-llm":
        fill("block_size", *_tokens_of_a_block(log))
    for failure in log.failures:
        # A refusal may be the only line that states what was asked.
        fill("max_num_seqs", failure.max_num_seqs or None, failure.line)
    offload = log.setting("cpu_offload")
    if offload is not None and isinstance(offload.value, int | float) and 0 < offload.value <= _MAX_OFFLOAD_GIB:
        fill("cpu_offload_bytes", round(offload.value * GIB), offload.line)
    eager = log.setting("enforce_eager")
    if eager is not None and eager.value is True:
        fill("enforce_eager", True, eager.line)


def _fill_fraction(log: EngineLog, fill: Fill) -> None:
    for name in ("memory_fraction", "printed_fraction"):
        setting = log.setting(name)
        if setting is not None and isinstance(setting.value, int | float) and 0 < setting.value <= 1:
            fill("memory_fraction", float(setting.value), setting.line)
            return
    for failure in log.failures:
        if failure.memory_fraction is not None and 0 < failure.memory_fraction <= 1:
            fill("memory_fraction", failure.memory_fraction, failure.line)
            return


def _tokens_of_a_block(log: EngineLog) -> tuple[int | None, int]:
    """Return TensorRT-LLM's tokens per block, a setting: as printed, else whole tokens over blocks."""
    printed = log.figure(Quantity.BLOCK_TOKENS)
    if printed is not None:
        return int(printed.value), printed.line
    tokens, blocks = log.figure(Quantity.TOKENS), log.figure(Quantity.BLOCKS)
    if tokens is None or blocks is None or blocks.value <= 0 or tokens.value % blocks.value:
        return None, 0
    return int(tokens.value // blocks.value) or None, blocks.line


def _fill_adapters(log: EngineLog, fill: Fill) -> None:
    lora = log.setting("lora")
    if lora is None or lora.value is not True:
        return
    for field, name, otherwise in (("lora_rank", "max_lora_rank", 16), ("num_adapters", "max_loras", 1)):
        setting = log.setting(name)
        fill(field, _whole(setting, _MAX_GPUS) or otherwise, setting.line if setting else lora.line)


def draft_tokens(log: EngineLog, model: Model) -> tuple[int | None, int]:
    """Return how many tokens the model's own MTP layers draft, and the line; None where none of them does."""
    setting = log.setting("speculative")
    if setting is None or model.mtp is None:
        return None, 0
    text = str(setting.value).lower()
    if "mtp" not in text and "nextn" not in text:
        return None, 0
    count = _DRAFTS.search(text)
    return (int(count[1]) if count else 1), setting.line


def _streams(log: EngineLog) -> int:
    sequences = _whole(log.setting("sequences"), _MAX_COUNT) or 1
    streams, unified = _whole(log.setting("streams"), _MAX_COUNT), log.setting("kv_unified")
    if streams is None:
        return sequences if unified is not None and unified.value is False else 1
    return min(streams, sequences)


def _head_on_device(log: EngineLog) -> bool:
    """Return whether llama.cpp's output layer, which counts as one beyond the model's, lies on a device."""
    moved, layers = log.setting("offloaded_layers"), log.setting("layers")
    if moved is not None and layers is not None:
        return moved.value == layers.value
    return any(not figure.rank.startswith("CPU") for figure in log.of(Quantity.WEIGHTS))


def _flash(log: EngineLog) -> bool | None:
    setting = log.setting("flash_attention")
    known = {"0": False, "disabled": False, "1": True, "enabled": True}
    return None if setting is None else known.get(str(setting.value).lower())


def _kv_word(log: EngineLog, talk: list[str]) -> tuple[str | None, int]:
    setting = log.setting("kv_dtype")
    if setting is None:
        return None, 0
    word = str(setting.value).lower()
    word = _KV_WORDS.get(word, KV_ALIASES.get(word, word))
    if word in KV_FORMATS:
        return word, setting.line
    talk.append(
        f"line {setting.line}: a KV cache in {setting.value!r} is not known: the checkpoint's own is taken; "
        "--kv-dtype says what it was"
    )
    return None, 0


def _length(log: EngineLog) -> tuple[int | None, int]:
    """Return the maximum length: what the engine settled on rather than what was asked of it."""
    for name in ("printed_length", "max_model_len"):
        setting = log.setting(name)
        value = _whole(setting, _MAX_LENGTH)
        if setting is not None and value is not None:
            return value, setting.line
    stated = next((failure for failure in log.failures if failure.max_model_len), None)
    return (None, 0) if stated is None else (stated.max_model_len, stated.line)


def _whole(setting: Setting | None, limit: int) -> int | None:
    if setting is None or isinstance(setting.value, bool) or not isinstance(setting.value, int | float):
        return None
    return int(setting.value) if 1 <= setting.value <= limit else None


def _version(log: EngineLog, talk: list[str]) -> str | None:
    """Return the version whose rules hold; None, with a warning, for one that tells nothing."""
    if log.version is None:
        return None
    if log.engine == "llama.cpp":
        return log.version
    text = log.version
    try:
        parse_version(text)
    except UsageError:
        text = ""
    # Built from a checkout without tags.
    if not text or text.startswith("0.1.dev"):
        named = f"the log's version {log.version!r} tells no release"
        talk.append(f"{named}: the newest known rules hold (--engine-version)")
        return None
    return text + _runner(log, parse_version(text)) if log.engine == "vllm" else text


def _runner(log: EngineLog, version: tuple[int, ...]) -> str:
    """Return the mark of the engine core or model runner where a log shows another than its version's usual one."""
    runner = log.setting("runner")
    if runner is not None and runner.value == "V0":
        return "+v0" if version >= _V1_SINCE else ""
    return "+v2" if log.setting("runner_v2") is not None and version >= _V1_ALONE else ""


def _model_of(log: EngineLog, catalog: Catalog, place: str) -> tuple[str, int]:
    found = [setting for name in ("model", "served_name") if (setting := log.setting(name)) is not None]
    unknown: UnknownName | None = None
    for setting in found:
        for name in spellings(str(setting.value)):
            try:
                catalog.model(name)
            except UnknownName as error:
                unknown = unknown or error
            else:
                return name, setting.line
    if not found or unknown is None:
        raise UsageError("the log does not name the model", place=place, hint="add --model NAME (or a config.json)")
    first = found[0]
    raise UnknownName(
        "model",
        str(first.value),
        unknown.nearest,
        hint=f"line {first.line} of the log names it; say which model it is with --model NAME (or its config.json)",
    )


def spellings(text: str) -> list[str]:
    """Return what a model may be called in the catalog: a hub id, the parts of a path, a file's name.

    >>> spellings("/data/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0a1b")[:2]
    ['Qwen/Qwen3-8B', 'Qwen3-8B']
    >>> spellings("/models/Llama-3.1-8B-Instruct-Q4_K_M-00001-of-00002.gguf")[0]
    'Llama-3.1-8B-Instruct-Q4_K_M'
    """
    cached = _HUB_CACHE.search(text)
    if cached is not None:
        return [f"{cached[1]}/{cached[2]}", cached[2]]
    whole = text.rstrip("/\\")
    parts = [part for part in _SEPARATORS.split(whole) if part not in {"", ".", "..", "~"}]
    is_path = whole.startswith(("/", ".", "~")) or "\\" in whole or len(parts) > 2  # noqa: PLR2004 - organisation/name
    names = [] if is_path or whole.endswith(".gguf") else [whole]
    names += [_SHARD.sub("", part.removesuffix(".gguf")) for part in reversed(parts)]
    if is_path and len(parts) > 1:
        names.insert(1, "/".join(parts[-2:]))
    return [name for name in dict.fromkeys(names) if name] or [text]


def _gpu_of(log: EngineLog, catalog: Catalog, place: str) -> str:
    for name in (*log.gpu_names, *log.gpu_mentions):
        words = name.split()
        # nvidia-smi writes more words into the same line.
        for end in range(len(words), 0, -1):
            try:
                return catalog.resolve("gpus", " ".join(words[:end]))
            except UnknownName:
                continue
    if log.gpu_names:
        try:
            catalog.resolve("gpus", log.gpu_names[0])
        except UnknownName as error:
            raise UnknownName(
                "GPU", log.gpu_names[0], error.nearest, hint="the log names it; say which with --gpu NAME"
            ) from error
    total = log.figure(Quantity.DEVICE_TOTAL)
    hint = "add --gpu NAME"
    if total is not None:
        alike = [name for name in catalog.gpu_names() if _is_alike(catalog, name, total.value)]
        listed = ", ".join(alike[:6]) or "none that is known"
        hint += f"; line {total.line} says {format_bytes(total.value)}: {listed}"
    raise UsageError("the log does not name the GPU", place=place, hint=hint)


def _is_alike(catalog: Catalog, name: str, total_bytes: float) -> bool:
    return abs(catalog.gpu(name).gpu.cuda_total_bytes - total_bytes) <= _SAME_CARD * total_bytes
