"""What an engine does by default and what its memory fraction means, for one version."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from infcalc.errors import UnknownName, UsageError
from infcalc.frozen import frozen
from infcalc.units import GIB

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu

T = TypeVar("T")


class FractionBase(StrEnum):
    """What the engine's memory fraction is a fraction of."""

    TOTAL = "of the CUDA total; holds weights, activation, buffers and KV"
    FREE_BEFORE_WEIGHTS = "of the memory free before weights load; holds weights and KV, activation lives outside"
    FREE_AFTER_WEIGHTS = "of the memory left after weights and activation peak; holds KV only"
    NONE = "not used: KV is allocated for the asked context"


@frozen
class Since(Generic[T]):
    """A value that holds from ``version`` on, until a later entry."""

    version: tuple[int, ...]
    value: T
    source: str


@frozen
class Band:
    """A modelled number of bytes, the range that measurements span, and where both come from."""

    value_bytes: int
    low_bytes: int
    high_bytes: int
    source: str


@frozen
class SchedulerDefaults:
    """Caps an engine sets when the user does not: sequences running at once, and tokens per step."""

    max_num_seqs: int
    max_num_batched_tokens: int


@frozen
class EngineRules:
    """The rules of one engine at one version, resolved for one GPU.

    ``sampler_logit_copies`` is the peak of the profiling run's sampler in units of ``max_num_seqs x vocabulary x 4
    bytes``. ``cuda_graph_bytes`` is what the engine charges to its budget (0 where graphs come on top).
    """

    engine: str
    version: str
    oldest: str
    newest: str
    """Oldest and newest version whose rules were read."""
    fraction: float | None
    fraction_base: FractionBase
    fraction_flag: str
    fraction_source: str
    block_tokens: int
    scheduler: SchedulerDefaults
    sampler_logit_copies: float
    sampler_source: str
    cuda_graph_bytes: int
    cuda_graph_source: str
    non_torch: Band


_MAX_DIGITS = 6
_SUFFIXES = ("rc", "a", "b", "post", "dev", "+", "-")


def parse_version(text: str) -> tuple[int, ...]:
    """Return ``(0, 33)`` for ``"0.33"``, ``"v0.33.0rc1"`` gives ``(0, 33, 0)``.

    Raises:
        UsageError: the text does not start with a number.

    >>> parse_version("v0.8.5.post1")
    (0, 8, 5)

    """
    numbers: list[int] = []
    rest = ""
    for part in text.strip().lower().removeprefix("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        rest = part[len(digits) :]
        if digits and len(digits) <= _MAX_DIGITS:
            numbers.append(int(digits))
        if rest or not digits:
            break
    if rest and not rest.startswith(_SUFFIXES):
        numbers.clear()
    if not numbers:
        raise UsageError(f"{text!r} is not a version", place="--engine-version", hint="write it like 0.33 or 0.19.1")
    return tuple(numbers)


def at_version(steps: tuple[Since[T], ...], version: tuple[int, ...]) -> Since[T]:
    """Return the last step that has begun at ``version`` (the first, if none has)."""
    chosen = steps[0]
    for step in steps:
        if step.version <= version:
            chosen = step
    return chosen


def non_torch(gpu: Gpu, *, ranks: int) -> Band:
    """Return what a rank holds outside the framework's allocator: the device context and communication buffers.

    ``ranks`` are those that reduce or exchange activations together (TP x DP); pipeline neighbours only send, and add
    next to nothing: 0.07 GiB measured at PP 2 and 4.
    """
    linked = gpu.scale_up is not None and gpu.scale_up.max_domain >= ranks
    if gpu.unified_memory:
        value, low, high, what = 3.0, 2.0, 6.0, "unified memory: 2 to 6 GiB seen in engine logs"
    elif gpu.vendor == "AMD":
        value, low, high, what = 0.55, 0.5, 0.8, "ROCm: 0.5 to 0.6 GiB seen in engine logs at TP 1"
    elif ranks == 1:
        value, low, high, what = 0.25, 0.02, 0.3, "CUDA at TP 1: 0.24 to 0.27 GiB measured on H100 with vLLM 0.19"
    elif linked:
        value, low, high, what = 2.1, 0.54, 2.2, "NVLink, TP 2 and more: 2.06 to 2.17 GiB measured on H100, vLLM 0.19"
    else:
        value, low, high, what = 0.35, 0.2, 0.4, "PCIe without custom all-reduce, TP 2 and more: 0.2 to 0.4 GiB seen"
    return Band(value_bytes=round(value * GIB), low_bytes=round(low * GIB), high_bytes=round(high * GIB), source=what)


ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
_ALIASES = {
    "trt-llm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
    "tensorrt_llm": "tensorrt-llm",
    "llamacpp": "llama.cpp",
}
_ALIASES |= {"llama-server": "llama.cpp", "llama_cpp": "llama.cpp", "sgl": "sglang"}


def engine_rules(engine: str, version: str | None, gpu: Gpu, *, tp: int, pp: int = 1, dp: int = 1) -> EngineRules:
    """Return the rules of ``engine`` at ``version`` (None: the newest known) on ``gpu`` with these ranks.

    Raises:
        UnknownName: no such engine.
        UsageError: the version cannot be read.

    """
    word = engine.strip().lower()
    name = _ALIASES.get(word, word)
    match name:
        case "vllm":
            from infcalc.engines.vllm import rules  # noqa: PLC0415 - only the asked engine is loaded

            return rules(version, gpu, ranks=tp * dp)
        case "sglang":
            from infcalc.engines import sglang  # noqa: PLC0415

            return sglang.rules(version, gpu, tp=tp, pp=pp, dp=dp)
        case "tensorrt-llm":
            from infcalc.engines import tensorrt_llm  # noqa: PLC0415

            return tensorrt_llm.rules(version, gpu, ranks=tp * dp)
        case "llama.cpp":
            from infcalc.engines import llamacpp  # noqa: PLC0415

            return llamacpp.rules(version, gpu)
        case _:
            import difflib  # noqa: PLC0415

            nearest = tuple(difflib.get_close_matches(word, ENGINES)) or ENGINES
            raise UnknownName("engine", engine, nearest)
