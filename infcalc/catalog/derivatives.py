"""Fine-tunes and quantized derivatives: a name that the catalog lacks to the entry whose shape it shares.

A derivative is recognised by its name alone, so it must be the base's name to the letter but for words known to leave
shapes alone (``Instruct``, ``Chat``, ``it``) and words that state a precision (``FP8``, ``AWQ``, ``w4a16``). Sizes and
versions are never dropped, and a name that fits two entries fits none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from infcalc.catalog.lookup import fold
from infcalc.catalog.quantization import runtime_quantization
from infcalc.frozen import frozen
from infcalc.spec.model import Model
from infcalc.spec.weights import TensorRole, WeightQuantization, WeightRule

_MAX_NAME_CHARACTERS = 200
_GGUF_DEFAULT = "q4_k_m"


@frozen
class Derivative:
    """What a name says: the catalog entry of the same shape, the precision it states, and the sentence to print.

    ``format`` is a weight format or a GGUF file type; None keeps the entry's own precision.
    """

    base: str
    format: str | None
    kv_dtype: str | None
    assumption: str
    mixed_fp8: bool = False
    """Meta's own FP8 checkpoints: only feed-forward matrices of all but the first and last layer are FP8."""


@frozen
class _Precision:
    """What the precision words of a name state, and the name without them."""

    stem: str
    format: str | None = None
    kv_dtype: str | None = None
    said: str = ""


_FP8_BLOCK_ORGS = frozenset({"qwen", "deepseek-ai", "zai-org", "minimaxai", "moonshotai", "xiaomimimo", "stepfun-ai"})
_FP4_OF_ORG = {"nvidia": "nvfp4", "amd": "mxfp4"}
_GGUF_TYPE = r"(?:i?q[1-8]_[0-9a-z]+(?:_[a-z]{1,3})?|mxfp4_moe|bf16|f16|f32)"
# Endings of a name, longest first: what they state as (format, KV type). A format in angle brackets depends on more.
_ENDINGS: tuple[tuple[re.Pattern[str], str, str | None], ...] = tuple(
    (re.compile(rf"[-_.:\s]{pattern}$", re.IGNORECASE), form, kv)
    for pattern, form, kv in (
        (rf"gguf[:/](?:ud-)?(?P<type>{_GGUF_TYPE})", "<gguf>", None),
        (rf"(?:ud-)?(?P<type>{_GGUF_TYPE})\.gguf", "<gguf>", None),
        (r"(?P<type>i?q[2-8]_[0-9k](?:_(?:xxs|xs|s|m|l|nl))?)", "<gguf>", None),
        (r"gguf", _GGUF_DEFAULT, None),
        (r"fp8[-_]kv", "fp8", "fp8"),
        (r"fp8[-_]dynamic", "fp8_channel", None),
        (r"fp8[-_]block", "fp8_block", None),
        (r"fp8", "<fp8>", None),
        (r"nvfp4a16", "nvfp4_a16", None),
        (r"nvfp4", "nvfp4", None),
        (r"mxfp4", "mxfp4", None),
        (r"mxfp8", "mxfp8", None),
        (r"fp4", "<fp4>", None),
        (r"(?:quantized[-_.])?w4a16(?:[-_]g(?P<group>32|64|128))?", "<w4a16>", None),
        (r"(?:quantized[-_.])?w8a16", "int8_a16", None),
        (r"(?:quantized[-_.])?w8a8", "int8", None),
        (r"gptq[-_]int8", "gptq8_g128", None),
        (r"gptq(?:[-_](?:int4|4bit))?(?:[-_](?P<group>32|64|128)g)?", "<gptq>", None),
        (r"awq(?:[-_](?:int4|4bit))?(?:[-_]g(?P<group>32|64|128))?", "<awq>", None),
        (r"(?:unsloth[-_])?bnb[-_]4bit", "nf4_dq", None),
        (r"bnb[-_]8bit", "int8_bnb", None),
        (r"(?:auto[-_]?round(?:[-_]int4)?|int4[-_]auto[-_]?round)", "gptq", None),
        (r"int4", "int4", None),
        (r"int8", "int8_a16", None),
        (r"(?:bf16|fp16)", "bf16", None),
    )
)
_SAID = {
    "fp8": "FP8 with one scale per tensor",
    "fp8_channel": "FP8 with a scale per output channel",
    "fp8_block": "FP8 with a scale per 128 x 128 block",
    "nf4_dq": "bitsandbytes NF4 with double quantization; layers that a dynamic recipe leaves at 16 bits are not known",
    _GGUF_DEFAULT: "GGUF Q4_K_M as approximated from llama.cpp's recipe",
}
# Words that tune a model without changing any shape, as they end a folded name.
_TUNES = (
    "instruct",
    "chat",
    "thinking",
    "reasoning",
    "base",
    "preview",
    "abliterated",
    "uncensored",
    "sft",
    "dpo",
    "it",
    "pt",
    "hf",
)
_TUNE_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])(?:instruct|chat|base)(?=[0-9]+$)")
_TUNE_BEFORE_VERSION = re.compile(r"(?:instruct|chat|base)(?=v?[0-9][0-9-]*$)")
_RELEASE = re.compile(r"(?:(?<![0-9])|-)[0-9]{4}$")
_RELEASE_FAMILIES = ("qwen3", "deepseek", "kimi")
"""Families whose dated releases kept the shape of the first."""
_OTHER_SHAPE = re.compile(
    r"distill|eagle|medusa|speculator|draft|lora|adapter|minitron|pruned|sheared|merge|slerp|\bmoe\b|vision|llava|\bvl|"
    r"vl\b|internvl|omni|audio|embed|rerank|reward|mtp|[0-9]x[0-9]|[0-9]b\b",
    re.IGNORECASE,
)
_SIZED = re.compile(r"[0-9]b")
_MIN_TAIL_CHARACTERS = 7


def resolve_derivative(name: str, known: Mapping[str, str]) -> Derivative | None:
    """Return what ``name`` derives from, or None where that would be a guess.

    ``known`` maps spellings of the catalog (folded by :func:`~infcalc.catalog.lookup.fold` or not) to entry names. The
    organisation before the slash counts only for what it means by ``FP8`` and ``FP4``.

    >>> resolve_derivative("TheBloke/Qwen3-32B-AWQ", {"Qwen/Qwen3-32B": "qwen3-32b"}).format
    'awq'
    >>> resolve_derivative("Qwen/Qwen3-32B-AWQ", {"Qwen/Qwen2.5-32B": "qwen2.5-32b"}) is None
    True
    """
    if not name.strip() or len(name) > _MAX_NAME_CHARACTERS:
        return None
    head, slash, rest = name.strip().partition("/")
    org, base_name = (head.lower(), rest) if slash else ("", head)
    precision = _precision(base_name, org)
    exact, cores = _index(known)
    match = _match(precision.stem, exact, cores)
    if match is None:
        return None
    entry, how, entry_states_precision = match
    form, said = precision.format, precision.said
    if form is None and entry_states_precision:
        form, said = "bf16", "16-bit weights, since the name states no other precision"
    mixed = org == "meta-llama" and form == "fp8_channel_fp32"
    if mixed:
        said = "FP8 as Meta publishes it: feed-forward matrices only, attention and the first and last layer in bf16"
    sentence = f"{name.strip()}: {how} {entry}"
    if said:
        sentence += f", with {said}"
    if precision.kv_dtype:
        sentence += f" and a KV cache in {precision.kv_dtype}"
    return Derivative(base=entry, format=form, kv_dtype=precision.kv_dtype, assumption=sentence, mixed_fp8=mixed)


def apply_derivative(derivative: Derivative, model: Model) -> Model:
    """Return the base ``model`` with the precision that the derivative's name states."""
    quantization = model.quantization
    if derivative.format is not None:
        quantization = runtime_quantization(derivative.format, model)
        if derivative.mixed_fp8:
            edges = (0, model.num_layers - 1)
            rules = (
                WeightRule(roles=(TensorRole.ATTENTION,), format=model.dtype),
                WeightRule(roles=(TensorRole.FEED_FORWARD,), layers=edges, format=model.dtype),
            )
            quantization = WeightQuantization(format=derivative.format, rules=rules, method="fbgemm_fp8")
    # Another precision is another checkpoint: of its cache nothing is known but what the name says.
    own_cache = model.kv_dtype if derivative.format is None else None
    return replace(model, quantization=quantization, kv_dtype=derivative.kv_dtype or own_cache)


def _precision(base_name: str, org: str) -> _Precision:
    """Return the precision that the end of a name states; at most one is taken, tune words may follow it."""
    for pattern, form, kv_dtype in _ENDINGS:
        match = pattern.search(base_name)
        if match is None or not match.start():
            continue
        stem = base_name[: match.start()]
        groups = match.groupdict()
        stated = _stated(form, groups, org)
        if stated is None:
            continue
        # "...-GGUF:Q4_K_M" is one statement, and so is "...-quantized" left over by a recipe of its own spelling.
        stem = re.sub(r"[-_.](?:gguf|quantized|i1)$", "", stem, flags=re.IGNORECASE)
        said = _SAID.get(stated, f"{stated} weights")
        if form == "<gguf>":
            said = f"GGUF {stated.upper()} as approximated from llama.cpp's recipe"
        return _Precision(stem=stem, format=stated, kv_dtype=kv_dtype, said=said)
    return _Precision(stem=base_name)


def _stated(form: str, groups: Mapping[str, str | None], org: str) -> str | None:
    """Return the format of an ending, None where the ending alone does not tell."""
    group = groups.get("group")
    match form:
        case "<gguf>":
            return {"f16": "fp16", "f32": "fp32"}.get((groups["type"] or "").lower(), (groups["type"] or "").lower())
        case "<fp8>":
            return "fp8_channel_fp32" if org == "meta-llama" else "fp8_block" if org in _FP8_BLOCK_ORGS else "fp8"
        case "<fp4>":
            return _FP4_OF_ORG.get(org)
        case "<w4a16>":
            return f"int4_g{group}" if group else "int4"
        case "<gptq>" | "<awq>":
            family = form.strip("<>")
            return f"{family}_g{group}" if group and group != "128" else family
        case _:
            return form


def _index(known: Mapping[str, str]) -> tuple[dict[str, str], dict[str, dict[str, bool]]]:
    """Return entries by spelling, and by spelling without tune and precision words (True: there were the latter)."""
    exact: dict[str, str] = {}
    cores: dict[str, dict[str, bool]] = {}
    for spelling, entry in known.items():
        key = fold(spelling)
        exact[key] = entry
        bare, quantized = _without_precision(key)
        cores.setdefault(_core(bare), {}).setdefault(entry, quantized)
        name = spelling.rpartition("/")[2]
        if name != spelling:
            bare, quantized = _without_precision(fold(name))
            exact.setdefault(fold(name), entry)
            cores.setdefault(_core(bare), {}).setdefault(entry, quantized)
    return exact, cores


def _match(
    stem: str, exact: Mapping[str, str], cores: Mapping[str, Mapping[str, bool]]
) -> tuple[str, str, bool] | None:
    """Return (entry, how it was found, whether the entry's own name states a precision) of a name without precision."""
    key = fold(stem)
    for spelling in dict.fromkeys((key, key.removeprefix("meta"))):
        if spelling in exact:
            return exact[spelling], "taken to have the shape of", False
    for spelling in dict.fromkeys((key, key.removeprefix("meta"))):
        found = _of_core(_core(spelling), cores)
        if found is None and spelling.startswith(_RELEASE_FAMILIES):
            found = _of_core(_core(_RELEASE.sub("", _core(spelling))), cores)
        if found is not None:
            return found[0], "taken to have the shape of", found[1]
    return _by_tail(stem, cores)


def _by_tail(stem: str, cores: Mapping[str, Mapping[str, bool]]) -> tuple[str, str, bool] | None:
    """Return the entry whose whole name ends a fine-tune's name (``Hermes-3-Llama-3.1-8B``)."""
    parts = re.split(r"(?<=[A-Za-z0-9])[-_](?=[A-Za-z])", stem)
    for start in range(1, len(parts)):
        own, tail = "-".join(parts[:start]), _core(fold("-".join(parts[start:])))
        if len(tail) < _MIN_TAIL_CHARACTERS or not _SIZED.search(tail) or not re.search(r"[0-9].*[0-9]", tail):
            continue
        found = _of_core(tail, cores)
        if found is not None:
            return None if _OTHER_SHAPE.search(own) else (found[0], "taken to be a fine-tune of", found[1])
    return None


def _of_core(core: str, cores: Mapping[str, Mapping[str, bool]]) -> tuple[str, bool] | None:
    """Return the one entry of a core; entries whose name states a precision give way to others."""
    entries = cores.get(core, {})
    plain = [entry for entry, quantized in entries.items() if not quantized]
    chosen = plain or list(entries)
    return (chosen[0], not plain) if len(chosen) == 1 else None


def _core(folded: str) -> str:
    """Return a folded name without the tune words at its end."""
    # `Mixtral-8x7B-Instruct-v0.1` says it before the version.
    folded = _TUNE_BEFORE_VERSION.sub("", _TUNE_BETWEEN_DIGITS.sub("-", folded))
    while True:
        word = next((tune for tune in _TUNES if folded.endswith(tune) and len(folded) > len(tune)), None)
        if word is None:
            return folded
        folded = folded.removesuffix(word).rstrip("-")


def _without_precision(folded: str) -> tuple[str, bool]:
    """Return a folded name without the precision at its end, and whether there was one."""
    stem = re.sub(r"(?:nvfp4|mxfp4|fp8dynamic|fp8|fp4|awq|gptq(?:int[48])?|bf16)$", "", folded)
    return stem.rstrip("-"), stem != folded
