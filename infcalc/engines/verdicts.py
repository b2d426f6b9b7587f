"""Can an engine, on a GPU, store this KV precision and compute with these weights?

Memory arithmetic answers how many bytes a precision takes; whether an engine of that version has a kernel for it is a
matter of record (:mod:`infcalc.engines.precisions`). The first row that holds for engine, format, GPU generation,
version and kind of cache decides; where none does, the verdict is ``unknown`` and says so.

``memory_only`` means: it is stored at that width and saves that memory, but is multiplied at 16 bits, so that it saves
no compute. Of weights the traffic is saved as well. Of a KV cache it is not (:func:`is_widened`): what is converted in
software takes as long as it would at 16 bits. Formats that are weight-only by design (AWQ, GPTQ, INT4) are
``supported`` where they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.precisions import KV, WEIGHTS, CacheKind, Generation, Line, Status
from infcalc.engines.rules import parse_version
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.spec.layers import CompressedAttention, LatentAttention

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model


_SEVERITY = tuple(Status)
"""From good to bad: two verdicts together are as good as the worse."""


@frozen
class Verdict:
    """Whether a precision runs, in one sentence, with where that was read."""

    status: Status
    text: str
    source: str

    @property
    def supported(self) -> bool | None:
        """True where it runs (if only to save memory), False where not, None where that is not known."""
        match self.status:
            case Status.SUPPORTED | Status.MEMORY_ONLY:
                return True
            case Status.UNSUPPORTED:
                return False
            case Status.UNKNOWN:
                return None


def verdict(
    engine: str,
    version: str,
    gpu: Gpu,
    kv: str,
    weights: str | None = None,
    *,
    cache: CacheKind = CacheKind.GROUPED,
) -> Verdict:
    """Return what ``engine`` at ``version`` makes of KV format ``kv`` and, where given, of ``weights`` on ``gpu``.

    The two together are as good as the worse, whose sentence is given. Names are those of ``--kv-dtype`` and
    ``--weights``.
    """
    found = kv_verdict(engine, version, gpu, kv, cache=cache)
    if weights is None:
        return found
    other = weights_verdict(engine, version, gpu, weights)
    return max((found, other), key=lambda one: _SEVERITY.index(one.status))


def kv_verdict(engine: str, version: str, gpu: Gpu, kv: str, *, cache: CacheKind = CacheKind.GROUPED) -> Verdict:
    """Return whether ``engine`` at ``version`` can keep a KV cache in ``kv`` on ``gpu``."""
    return _look_up(KV, engine, version, gpu, kv, cache=cache, what=f"a KV cache in {kv}")


def is_widened(engine: str, version: str | None, gpu: Gpu, kv: str, *, cache: CacheKind = CacheKind.GROUPED) -> bool:
    """Return whether attention converts a cache in ``kv`` to 16 bits in software, and so takes its time.

    The record decides; where it has nothing on that version, or none is given, the units do that the GPU states.

    Measured end to end or of decode, against 16 bits. FP8 without units: 1.00 to 1.05 in FlashInfer on A100 (vLLM issue
    42058), 0.54 to 0.98 in Triton on A100 (pull request 49077), 0.49 on MI100 (issue 3981). Converted by Triton: int8
    0.93 to 1.10, int4 0.87 to 1.04 (pull requests 38378, 39074, 40633).
    """
    if version is not None:
        match kv_verdict(engine, version, gpu, kv, cache=cache).status:
            case Status.MEMORY_ONLY:
                return True
            case Status.SUPPORTED:
                return False
            case Status.UNKNOWN | Status.UNSUPPORTED:
                pass
    units = _UNITS.get(kv)
    return units is not None and units not in dict(gpu.peak_flop_per_s)


_UNITS = {"fp8": "fp8", "fp8_ds_mla": "fp8", "nvfp4": "fp4", "nvfp4_ds_mla": "fp4"}
"""What a GPU computes with that reads a format as it is. Integers become floats in one instruction on all of them."""


def weights_verdict(engine: str, version: str, gpu: Gpu, weights: str) -> Verdict:
    """Return whether ``engine`` at ``version`` can compute with ``weights`` (a format or its family) on ``gpu``."""
    return _look_up(WEIGHTS, engine, version, gpu, weight_family(weights), cache=None, what=f"weights in {weights}")


def cache_kind(model: Model) -> CacheKind:
    """Return what ``model`` caches: latents if any layer does, sparse ones if an indexer chooses among them."""
    found = CacheKind.GROUPED
    for run in model.layers:
        match run.layer.mixer:
            case CompressedAttention():
                return CacheKind.SPARSE_LATENT
            case LatentAttention(indexer=indexer):
                if indexer is not None:
                    return CacheKind.SPARSE_LATENT
                found = CacheKind.LATENT
            case _:
                pass
    return found


def weight_family(weights: str) -> str:
    """Return the family of a weight format: ``fp8`` for ``fp8_block``, ``gguf`` for ``q4_k_m``.

    >>> weight_family("fp8_block"), weight_family("Q4_K_M"), weight_family("iq2_xs"), weight_family("mxfp4_a8")
    ('fp8', 'gguf', 'gguf', 'mxfp4')
    """
    family = weights.strip().lower().replace("-", "_").partition("_")[0]
    if family[:1] in {"q", "i", "t"} and family.lstrip("itq")[:1].isdigit():
        return "gguf"
    return {"w8a8": "int8", "w4a16": "int4", "float16": "fp16", "bfloat16": "bf16"}.get(family, family)


def generation(gpu: Gpu) -> Generation:
    """Return the generation of ``gpu`` by its compute capability."""
    capability = gpu.compute_capability
    if capability is None:
        return Generation.OTHER
    if capability in _CDNA:
        return _CDNA[capability]
    try:
        at = parse_version(capability)
    except UsageError:
        return Generation.OTHER
    if gpu.vendor != "NVIDIA":
        return Generation.OTHER
    return next((name for low, high, name in _CAPABILITIES if low <= at < high), Generation.OTHER)


_CDNA = {"gfx90a": Generation.CDNA2, "gfx942": Generation.CDNA3, "gfx950": Generation.CDNA4}
_CAPABILITIES: tuple[tuple[tuple[int, ...], tuple[int, ...], Generation], ...] = (
    ((7, 0), (7, 5), Generation.VOLTA),
    ((7, 5), (8, 0), Generation.TURING),
    ((8, 0), (8, 9), Generation.AMPERE),
    ((8, 9), (9, 0), Generation.ADA),
    ((9, 0), (10, 0), Generation.HOPPER),
    ((10, 0), (11, 0), Generation.BLACKWELL),
    ((12, 0), (13, 0), Generation.BLACKWELL_SM12),
)


def _look_up(
    record: dict[str, tuple[Line, ...]],
    engine: str,
    version: str,
    gpu: Gpu,
    form: str,
    *,
    cache: CacheKind | None,
    what: str,
) -> Verdict:
    here = generation(gpu)
    # llama.cpp's rows hold for every version, and its versions are build names.
    at = () if engine == "llama.cpp" else parse_version(version)
    lines = [
        line
        for line in record.get(engine, ())
        if form in line.formats
        and (not line.generations or here in line.generations)
        and (not line.caches or cache in line.caches)
    ]
    for line in lines:
        if at >= line.since and (not line.until or at < line.until):
            return Verdict(status=line.status, text=line.text, source=line.source)
    where = gpu.architecture if here is Generation.OTHER else here.value
    known, source = _at_other_versions(lines, at)
    known = known or "check before relying on it"
    return Verdict(
        status=Status.UNKNOWN,
        text=f"nothing on record for {what} with {engine} {version} on {where}: {known}",
        source=source,
    )


def _at_other_versions(lines: list[Line], at: tuple[int, ...]) -> tuple[str, str]:
    """Return what is on record of the versions before and after one that was not read, and the sources."""
    before = max((line for line in lines if line.until and line.until <= at), key=lambda line: line.until, default=None)
    after = min((line for line in lines if line.since > at), key=lambda line: line.since, default=None)
    found = []
    if before is not None:
        found.append((f"before {_dotted(before.until)}: {before.text}", before.source))
    if after is not None:
        found.append((f"from {_dotted(after.since)} on: {after.text}", after.source))
    return "; ".join(text for text, _ in found), "; ".join(source for _, source in found)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
