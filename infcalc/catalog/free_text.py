"""Models, GPUs and precisions as people write them in reports, to catalog entries.

People write ``T4 (14.56 GiB; Turing, XFormers)``, ``unsloth Qwen2.5-0.5B-Instruct (bnb 4-bit)`` or ``80GB class``.
What is in parentheses is a remark; words around a name are dropped from both ends until a name is left. A GPU that is
only described (by memory, vendor or chip) is answered with the nearest entry of its kind. Every step that is not exact
is returned as an assumption.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.catalog.lookup import GpuEntry, ModelEntry, find, fold
from infcalc.errors import UnknownName
from infcalc.frozen import frozen
from infcalc.units import GB, GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.catalog.lookup import Catalog

_REMARK = re.compile(r"\(([^()]*)\)")
_SPLIT = re.compile(r"[;,]")
_MEMORY = re.compile(r"(?<![A-Za-z0-9.,])([0-9][0-9,]*(?:\.[0-9]+)?)\s*-?\s*(GiB|GB|G|MiB|MB)\b", re.IGNORECASE)
_MEMORY_SUFFIX = re.compile(r"-[0-9]+gb$")
_MEMORY_UNITS = {"gib": GIB, "gb": GB, "g": GIB, "mib": MIB, "mb": MIB}
_UNIDENTIFIED = re.compile(
    r"(?:quant(?:ization)?|precision|id|checkpoint|recipe|size)s?\b[^;,)]*\bnot (?:read|stated|known|given)|exl[23]|"
    r"\bpatched\b|\bcomposed\b|\bgguf\b(?![:_-]?i?q[1-8])|"
    r"\blocal\b[^)]*(?:int[48]|fp[48]|w[48]a|awq|gptq)",
    re.IGNORECASE,
)
_AMD = re.compile(r"\bamd\b|rocm|\bhip\b|\bmi[0-9]{3}|\bdcu\b|hygon|radeon", re.IGNORECASE)
_MIN_SUFFIX = 8
_MIN_CLASS_RATIO = 0.75
_MAX_CLASS_RATIO = 1.34
_MARKETED_SHARE = 0.94
_MAX_TEXT = 300

# The word of `--weights` for what people call a precision; the first that matches counts.
_PRECISIONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"fp8[^+;]*\+\s*mxfp4|mxfp4[^+;]*\+\s*fp8", "auto"),
        (r"nvfp4", "nvfp4"),
        (r"mxfp4", "mxfp4"),
        (r"fp8[\s_-]*block|block[\s_-]*fp8", "fp8_block"),
        (r"fp8", "fp8"),
        (r"awq", "awq"),
        (r"gptq|auto[\s_-]?round", "gptq"),
        (r"nf4|bnb|bitsandbytes", "nf4_dq"),
        (r"w4a16|wna16|int4|4[\s-]?bit", "int4"),
        (r"w8a16|int8\s+weight", "int8_a16"),
        (r"w8a8|int8|8[\s-]?bit", "int8"),
        (r"(?:^|[\s_(-])(?P<gguf>i?q[2-8]_[0-9k](?:_[a-z]{1,3})?)", "<gguf>"),
        (r"gguf", "q4_k_m"),
        (r"bf16|bfloat16", "bf16"),
        (r"fp16|float16|half", "fp16"),
    )
)
_KV_WORDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"nvfp4_ds_mla", "nvfp4_ds_mla"),
        (r"fp8_ds_mla", "fp8_ds_mla"),
        (r"nvfp4", "nvfp4"),
        (r"q8_0", "q8_0"),
        (r"q4_0", "q4_0"),
        (r"fp8|e4m3|e5m2", "fp8"),
        (r"int8", "int8"),
        (r"int4", "int4"),
        (r"bf16|bfloat16", "bf16"),
        (r"fp16|float16|\bf16|half", "fp16"),
        (r"fp32|float32|\bf32", "fp32"),
        (r"auto", "auto"),
    )
)


_SHARED_NAMES = {"h20-96gb": ("h20-96gb", "h20-141gb")}
"""Cards that are sold under one name with far from the same memory: the name alone does not tell which it is."""
_SAYS_NOTHING = re.compile(
    r"none|null|no|n/?a|-|\?|unquantized|not (?:stated|known|given|read|printed)|unknown|unstated|default.*",
    re.IGNORECASE,
)


@frozen
class ReadModel:
    """The model that a text means; ``identified`` is False where the text leaves the checkpoint's precision open."""

    entry: ModelEntry
    identified: bool
    assumptions: tuple[str, ...] = ()


@frozen
class ReadGpu:
    """The GPU that a text means; ``exact`` is False where only its class is known."""

    entry: GpuEntry
    exact: bool
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    """Cards that the text may mean as well, where it leaves open which; ``entry`` is then only the first of them."""


def says_nothing(text: str | None) -> bool:
    """Return whether a field of a report is empty, or only says that its value is not known or not set.

    >>> says_nothing("not stated"), says_nothing("none"), says_nothing("foo4")
    (True, True, False)
    """
    return _SAYS_NOTHING.fullmatch((text or "none").strip()) is not None


def read_model_text(catalog: Catalog, text: str) -> ReadModel:
    """Return the model that ``text`` means.

    Raises:
        UnknownName: no part of it is a name that the catalog knows.

    """
    text = text.strip()[:_MAX_TEXT]
    identified = _UNIDENTIFIED.search(text) is None
    for candidate in _candidates(text):
        entry = _model(catalog, candidate)
        if entry is not None:
            said = entry.assumptions
            if fold(candidate) != fold(text):
                said = (f"{text!r} is taken to mean {candidate}", *said)
            return ReadModel(entry=entry, identified=identified, assumptions=said)
    return ReadModel(entry=catalog.model(text), identified=identified)


def _model(catalog: Catalog, candidate: str) -> ModelEntry | None:
    try:
        return catalog.model(candidate)
    except UnknownName:
        pass
    key = fold(candidate)
    if len(key) < _MIN_SUFFIX or not any(sign.isdigit() for sign in key):
        return None
    # `R1-Distill-Qwen-32B` lacks the maker's name in front.
    ends = {name for spelling, name in catalog.index("models").items() if spelling.endswith(key)}
    return catalog.model(ends.pop()) if len(ends) == 1 else None


def _candidates(text: str) -> Iterator[str]:
    """Yield the names that a text may hold: whole, without remarks, the remarks, then ever fewer words of each."""
    seen: set[str] = set()
    outside = " ".join(_REMARK.sub(" ", text).split())
    remarks = [part.strip() for remark in _REMARK.findall(text) for part in _SPLIT.split(remark)]
    wholes = [part for part in (text, outside, *remarks) if part]
    for part in wholes:
        if part not in seen:
            seen.add(part)
            yield part
    for part in wholes[1:]:
        words = part.split()
        for size in range(len(words), 0, -1):
            for start in range(len(words) - size + 1):
                for joint in ("-", " "):
                    candidate = joint.join(words[start : start + size])
                    if candidate not in seen and any(sign.isdigit() for sign in candidate):
                        seen.add(candidate)
                        yield candidate


def read_weights_text(text: str | None) -> str | None:
    """Return the word of ``--weights`` that a description of a precision means; None where it says nothing.

    >>> read_weights_text("compressed-tensors WNA16 int4 (marlin MoE)"), read_weights_text("modelopt nvfp4")
    ('int4', 'nvfp4')
    """
    for pattern, word in _PRECISIONS if text else ():
        match = pattern.search(text or "")
        if match is not None:
            return match.group("gguf").lower() if word == "<gguf>" else word
    return None


def read_kv_text(text: str | None) -> str | None:
    """Return the word of ``--kv-dtype`` that a description means; None where it says nothing.

    >>> read_kv_text("fp8 (fp8_ds_mla)"), read_kv_text("auto (bf16)")
    ('fp8_ds_mla', 'bf16')
    """
    return next((word for pattern, word in _KV_WORDS if pattern.search(text or "")), None)


def read_gpu_text(catalog: Catalog, text: str | None, total_bytes: int | None = None) -> ReadGpu:
    """Return the GPU that ``text`` means; ``total_bytes`` is what its owner's CUDA reports, where that is known.

    Raises:
        UnknownName: the text holds no name of the catalog, and neither text nor total say how much memory it has.

    """
    text = (text or "").strip()[:_MAX_TEXT]
    stated = total_bytes or _stated_memory(text)
    named = _named_gpus(catalog, text)
    if named and stated is None and named[0].gpu.name in _SHARED_NAMES:
        read = _with_total(named[0], text, None, exact=False, others=named[1:], measured=False)
        return replace(read, variants=_SHARED_NAMES[named[0].gpu.name])
    if named:
        first = named[0] if total_bytes is not None or stated is None else _of_memory(catalog, named[0], stated)
        return _with_total(first, text, stated, exact=True, others=named[1:], measured=total_bytes is not None)
    if stated is None:
        raise UnknownName("GPU", text or "(none)", hint="name it, or say how much memory it has")
    vendor = "AMD" if _AMD.search(text) else "NVIDIA"
    nearest = min(
        (catalog.gpu(name) for name in catalog.gpu_names()),
        key=lambda entry: (entry.gpu.vendor != vendor, abs(entry.gpu.cuda_total_bytes - stated), entry.gpu.name),
    )
    ratio = stated / nearest.gpu.cuda_total_bytes
    if not _MIN_CLASS_RATIO < ratio < _MAX_CLASS_RATIO:
        said = f"{text!r}: no {vendor} GPU of about {stated / GIB:.1f} GiB is known; {nearest.gpu.name} stands in"
    else:
        said = f"{text or 'the GPU'!r} names no GPU that is known; {nearest.gpu.name}, the nearest in memory, stands in"
    return _with_total(nearest, said, stated, exact=False, others=(), measured=total_bytes is not None)


def _of_memory(catalog: Catalog, entry: GpuEntry, stated: int) -> GpuEntry:
    """Return the variant of ``entry`` that has the stated memory: "A100 SXM 40GB" means the smaller A100."""

    def is_far(one: GpuEntry) -> bool:
        return not _MARKETED_SHARE < stated / one.gpu.cuda_total_bytes < 1 / _MARKETED_SHARE

    if not is_far(entry):
        return entry
    family = _MEMORY_SUFFIX.sub("", entry.gpu.name)
    siblings = (catalog.gpu(name) for name in catalog.gpu_names() if _MEMORY_SUFFIX.sub("", name) == family)
    return next((one for one in siblings if not is_far(one)), entry)


def _with_total(
    entry: GpuEntry, text: str, stated: int | None, *, exact: bool, others: tuple[GpuEntry, ...], measured: bool
) -> ReadGpu:
    said: list[str] = [] if exact else [text]
    warnings: list[str] = []
    gpu = entry.gpu
    if stated is not None:
        ratio = stated / gpu.cuda_total_bytes
        # A marketed figure in the text ("80GB") is not what CUDA reports; one that differs is another variant.
        if measured or not _MARKETED_SHARE < ratio < 1 / _MARKETED_SHARE:
            if exact and not _MARKETED_SHARE < ratio < 1 / _MARKETED_SHARE:
                warnings.append(
                    f"{gpu.name} has {gpu.cuda_total_bytes / GIB:.2f} GiB, and the report says {stated / GIB:.2f} GiB: "
                    "the report's is taken"
                )
            gpu = replace(gpu, cuda_total_bytes=stated, cuda_total_estimated=False)
            said.append(f"memory of {stated / GIB:.2f} GiB as stated")
    if others:
        names = ", ".join(other.gpu.name for other in others)
        smallest = min((entry, *others), key=lambda one: one.gpu.cuda_total_bytes)
        gpu = gpu if smallest is entry else smallest.gpu
        warnings.append(
            f"different GPUs in one group ({entry.gpu.name}, {names}): the one with the least free memory governs, "
            "and a rank's figures need not be those of another"
        )
    # Doubts of the entry about its own total do not hold where the total was given.
    doubts = () if measured else entry.warnings
    return ReadGpu(
        entry=GpuEntry(gpu=gpu, origins=entry.origins, warnings=doubts),
        exact=exact,
        assumptions=tuple(said),
        warnings=(*warnings, *doubts),
    )


def _named_gpus(catalog: Catalog, text: str) -> tuple[GpuEntry, ...]:
    """Return the GPUs whose names are in a text, in its order; names in remarks count only where none is outside."""
    if (name := find(text, catalog.index("gpus"))) is not None:
        return (catalog.gpu(name),)
    for part in (_REMARK.sub(" ", text), text.replace("(", " ").replace(")", " ").replace(";", " ")):
        found = _scan(catalog, part)
        if found:
            return found
    return ()


def _scan(catalog: Catalog, text: str) -> tuple[GpuEntry, ...]:
    index = catalog.index("gpus")
    words = [word.strip(",.;:'\"") for word in re.split(r"[\s+/]+", text) if word.strip(",.;:'\"")]
    # `80GB` tells variants apart where a name has them; else it only describes.
    found: list[str] = []
    start = 0
    while start < len(words):
        for size in range(min(6, len(words) - start), 0, -1):
            name = index.get(fold(" ".join(words[start : start + size])))
            if name is None and size == 1:
                name = _with_class_ending(words[start], index)
            if name is not None:
                if name not in found:
                    found.append(name)
                start += size
                break
        else:
            start += 1
    return tuple(catalog.gpu(name) for name in found)


def _with_class_ending(word: str, index: dict[str, str]) -> str | None:
    """Return the entry of a word such as ``Spark-class`` or ``promaxgb10`` where what is left of it is a name."""
    bare = re.sub(r"[-_](?:class|modded|like|type)$", "", word, flags=re.IGNORECASE)
    return index.get(fold(bare)) if bare != word else None


def _stated_memory(text: str) -> int | None:
    """Return the memory that a text states in bytes; the figure with the finest unit counts.

    >>> _stated_memory("RTX 4090 (48GB-modded, 47.50 GiB)") / GIB
    47.5
    """
    found = [
        (float(number.replace(",", "")) * _MEMORY_UNITS[unit.lower()], "." in number or unit.lower() in {"mib", "mb"})
        for number, unit in _MEMORY.findall(text)
    ]
    exact = [size for size, fine in found if fine]
    if exact:
        return round(exact[0])
    # "24GB-class" is a marketed size, which counts GiB for every part; CUDA reports some 2 % less.
    return round(found[0][0] * GIB / GB * 0.985) if found and found[0][0] < 2000 * GB else None
