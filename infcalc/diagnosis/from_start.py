"""What a start-up log, and single lines anywhere in a log, say of each signal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from infcalc.diagnosis.signals import Reading, Signal
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.diagnosis.citing import Source
    from infcalc.engines.logs.reading import EngineLog

_MOST_CITED: Final = 3


@frozen
class Tell:
    """A line that says something by its words alone. ``means`` is what, ``source`` who writes it."""

    signal: Signal
    words: str
    means: str
    source: str


TELLS: Final = (
    Tell(
        signal=Signal.EAGER,
        words=r"Cudagraph is disabled under eager mode|Enforce eager set, disabling torch\.compile and CUDAGraphs",
        means="the engine runs without CUDA graphs",
        source="vLLM vllm/config/vllm.py",
    ),
    Tell(
        signal=Signal.EAGER,
        words=r"Skipping CUDA graph capture",
        means="the engine runs without CUDA graphs",
        source="vLLM v1/worker/gpu_model_runner.py",
    ),
    Tell(
        signal=Signal.PCIE_ONLY,
        words=r"Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs",
        means="the ranks have no NVLink between them",
        source="vLLM distributed/device_communicators/custom_all_reduce.py",
    ),
    Tell(
        signal=Signal.PCIE_ONLY,
        words=r"Custom allreduce is disabled because your platform lacks GPU P2P",
        means="the ranks cannot reach each other's memory",
        source="vLLM distributed/device_communicators/custom_all_reduce.py",
    ),
    Tell(
        signal=Signal.SLOW_KERNELS,
        words=r"quantization is not fully optimized yet\. The speed can be slower",
        means="the engine has no fast kernel for these weights",
        source="vLLM vllm/config/model.py",
    ),
    Tell(
        signal=Signal.SLOW_KERNELS,
        words=r"does not have native support for FP8 computation but FP8 quantization is being used",
        means="FP8 weights are widened before they compute",
        source="vLLM quantization/utils/marlin_utils_fp8.py",
    ),
    Tell(
        signal=Signal.SLOW_KERNELS,
        words=r"Using default MoE config\. Performance might be sub-optimal",
        means="the kernel of the experts is not tuned for this GPU",
        source="vLLM layers/fused_moe/fused_moe.py",
    ),
)
"""Lines that engines write once, whole. Matched anywhere in a line."""
_PATTERNS: Final = tuple((tell, re.compile(tell.words)) for tell in TELLS)


def read_tells(source: Source) -> tuple[Reading, ...]:
    """Return what single lines of a text say."""
    found: dict[Signal, list[tuple[Tell, int]]] = {}
    for number, line in enumerate(source.lines, start=1):
        for tell, pattern in _PATTERNS:
            if pattern.search(line):
                found.setdefault(tell.signal, []).append((tell, number))
    return tuple(
        Reading(
            signal=signal,
            value=1.0,
            shown="; ".join(dict.fromkeys(tell.means for tell, _ in hits)),
            cites=tuple(source.at(number) for _, number in hits[:_MOST_CITED]),
        )
        for signal, hits in found.items()
    )


def read_signals(log: EngineLog, source: Source) -> tuple[Reading, ...]:
    """Return what the settings and refusals of a start-up log say."""
    return tuple(_of_log(log, source))


def _of_log(log: EngineLog, source: Source) -> Iterator[Reading]:
    eager = log.setting("enforce_eager")
    if eager is not None:
        off = eager.value is True
        shown = "the engine runs without CUDA graphs" if off else "CUDA graphs are on"
        yield Reading(signal=Signal.EAGER, value=float(off), shown=shown, cites=(source.at(eager.line),))
    shown = "; ".join(str(one.kind) for one in log.failures) or "the engine started"
    cites = tuple(source.at(one.line) for one in log.failures[-_MOST_CITED:])
    yield Reading(signal=Signal.REFUSALS, value=float(len(log.failures)), shown=shown, cites=cites)
