"""Measures this computer's kernels and makes a GPU of it, for the catalog and for the laboratory's predictions."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from infcalc.api.answer import Answer
from infcalc.api.lab_curves import PRECISION, Timed, bandwidth_bytes_per_s, decode_attention, entry, peak_flop_per_s
from infcalc.api.lab_machine import Computer, this_computer
from infcalc.api.lab_models import chosen_model, grouped_attention
from infcalc.api.lab_probes import Family, probes
from infcalc.api.lab_report import KernelRow, MachineResult, MeasureResult
from infcalc.api.lab_timing import Course, is_spent, spread, timed_s
from infcalc.catalog.efficiency import efficiency_for
from infcalc.catalog.gpus import gpu_from_mapping
from infcalc.errors import DoesNotFit, UsageError
from infcalc.files import yaml_text
from infcalc.frozen import frozen
from infcalc.spec.explain import Input
from infcalc.units import MIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.lab_probes import Probe
    from infcalc.api.lab_timing import Instruments
    from infcalc.spec.efficiency import GpuEfficiency
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model

DEFAULT_NAME = "this-cpu"
REPEAT, QUICK_REPEAT = 12, 4
MAX_REPEAT = 1000
_BEYOND_CACHE = 1.5
_POOL_BYTES = 256 * MIB
"""Where the size of the last-level cache is unknown, or small."""
_QUICK_POOL_BYTES = 64 * MIB
_MOST_OF_MEMORY = 0.6
_NOISE_FRACTION = 0.15
"""Kernels that change by more than this from one half of a run to the other: other programs were at work."""


@frozen
class Measured:
    """A computer whose kernels were timed: its catalog ``entry``, and what the catalog reads in it.

    ``paged`` are the curves with decode attention through block tables in place of a contiguous cache.
    """

    name: str
    computer: Computer
    timed: tuple[Timed, ...]
    drift_fraction: float
    written: dict[str, object]
    gpu: Gpu
    efficiency: GpuEfficiency
    paged: GpuEfficiency


def measure(
    instruments: Instruments,
    *,
    name: str | None = None,
    repeat: int | None = None,
    quick: bool = False,
    computer: Computer | None = None,
) -> Answer[MeasureResult]:
    """Measure the kernels of the numpy engine and return them with the overlay that makes a GPU of this computer.

    Attention and what works element by element are timed in the shape of the laboratory's large model, or of its small
    one where it must be quick.

    Raises:
        UsageError: ``repeat`` or ``name`` is out of range.
        DoesNotFit: the computer has too little memory.

    """
    computer = computer or this_computer()
    model = chosen_model("small" if quick else "large", hidden=None, layers=None, cache_bytes=None)
    num = checked_repeat(repeat, quick=quick)
    pool = pool_bytes(computer, quick=quick)
    check_memory(computer, pool)
    made = probes(model, pool, quick=quick)
    course, halves = Course(instruments, 2), []
    for half in ("first", "second"):
        course.begin(f"timing {len(made)} kernels, {half} half of at most {2 * num} times each")
        halves.append(timings(made, instruments, num))
    found = measured(made, halves, computer, model, instruments, name=name)
    rows = tuple(_row(one) for one in found.timed)
    result = MeasureResult(
        machine=machine_result(found, instruments),
        kernels=rows,
        overlay=yaml_text({"gpus": {found.name: found.written}}),
    )
    return Answer(
        command="lab",
        results=(result,),
        inputs=(
            Input(name="repeat", value=2 * num, origin="given (--repeat)" if repeat else "default"),
            Input(name="num_threads", value=computer.num_threads, origin="the computer"),
            Input(name="pool_bytes", value=pool, origin="half as large again as the last-level cache"),
        ),
        assumptions=(
            "kernels of numpy in single precision; matrices are read from memory, not from a cache",
            f"attention was timed in the shape of {model.name}: hidden width {model.hidden_size:,}",
        ),
        warnings=noise_warnings(found),
    )


def timings(made: Sequence[Probe], instruments: Instruments, repeat: int) -> list[list[float]]:
    """Return the seconds of ``repeat`` runs of each probe, taken in turns, after one that only warms up."""
    found: list[list[float]] = [[] for _ in made]
    start_s = instruments.passed_s()
    for number in range(repeat + 1):
        for probe, times_s in zip(made, found, strict=True):
            time_s = timed_s(probe.run, instruments.clock)
            if number:
                times_s.append(time_s)
        if is_spent(start_s, number, instruments):
            break
    return found


def measured(
    made: Sequence[Probe],
    halves: Sequence[list[list[float]]],
    computer: Computer,
    model: Model,
    instruments: Instruments,
    *,
    name: str | None = None,
) -> Measured:
    """Return the computer that ``halves`` of timings describe: the catalog reads its entry as it would read a file's.

    Raises:
        UsageError: ``name`` has no letter or digit.

    """
    name = DEFAULT_NAME if name is None else name
    if not any(letter.isalnum() for letter in name):
        raise UsageError(f"{name!r} is no name", place="--name", hint="a name needs letters or digits")
    timed = tuple(
        Timed(probe=probe, times=spread([time_s for half in halves for time_s in half[index]]))
        for index, probe in enumerate(made)
    )
    mixer = grouped_attention(model)
    written = entry(timed, computer, mixer, today=instruments.today, numpy_version=np.__version__)
    through_tables = decode_attention(timed, Family.PAGED, mixer, bandwidth_bytes_per_s(timed))
    gpu = gpu_from_mapping(name, written, {})
    paged = gpu_from_mapping(name, _with_decode(written, through_tables), {})
    usual = [[spread(times_s).time_s for times_s in half] for half in halves]
    return Measured(
        name=name,
        computer=computer,
        timed=timed,
        drift_fraction=median(second / first for first, second in zip(usual[0], usual[-1], strict=True)) - 1,
        written=written,
        gpu=gpu,
        efficiency=own_efficiency(gpu),
        paged=own_efficiency(paged),
    )


def own_efficiency(gpu: Gpu) -> GpuEfficiency:
    """Return the curves that an accelerator's own entry states, and no others."""
    return efficiency_for(gpu, base=None, link_of=lambda _: None)


def machine_result(found: Measured, instruments: Instruments) -> MachineResult:
    """Return what was measured of the computer."""
    computer = found.computer
    return MachineResult(
        gpu=found.name,
        title=computer.title,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s(found.timed),
        peak_flop_per_s=peak_flop_per_s(found.timed),
        precision=PRECISION,
        num_threads=computer.num_threads,
        clock=instruments.clock_name,
        numpy_version=np.__version__,
        memory_bytes=computer.memory_bytes,
        cache_bytes=computer.cache_bytes,
        drift_fraction=found.drift_fraction,
    )


def noise_warnings(found: Measured) -> tuple[str, ...]:
    """Return a warning where the computer did not run evenly."""
    if abs(found.drift_fraction) <= _NOISE_FRACTION:
        return ()
    drift = f"{found.drift_fraction:+.0%}"
    text = f"the times of kernels changed by {drift} from the beginning to the end: other programs are at work"
    return (f"{text}; measure again in a quiet moment, or with --threads 1",)


def pool_bytes(computer: Computer, *, quick: bool) -> int:
    """Return how much memory matrices are taken from: more than the last-level cache holds, less if quick."""
    if quick:
        return _QUICK_POOL_BYTES
    return max(_POOL_BYTES, round((computer.cache_bytes or 0) * _BEYOND_CACHE))


def check_memory(computer: Computer, needed_bytes: int) -> None:
    """Refuse what would push a computer into swapping.

    Raises:
        DoesNotFit: it needs more than most of the memory.

    """
    memory_bytes = computer.memory_bytes
    if memory_bytes and needed_bytes > _MOST_OF_MEMORY * memory_bytes:
        raise DoesNotFit(
            f"{format_bytes(needed_bytes)} are needed, and of {format_bytes(memory_bytes)} at most "
            f"{_MOST_OF_MEMORY:.0%} are taken",
            hint="take a smaller model: --size small, fewer --layers, or --quick",
        )


def checked_repeat(repeat: int | None, *, quick: bool) -> int:
    """Return how often kernels are timed in each half of a run.

    Raises:
        UsageError: out of range.

    """
    if repeat is None:
        return QUICK_REPEAT if quick else REPEAT
    if not 1 <= repeat <= MAX_REPEAT:
        raise UsageError(f"{repeat} times", place="--repeat", hint=f"a whole number from 1 to {MAX_REPEAT:,}")
    return repeat


def _with_decode(written: dict[str, object], curve: dict[str, object]) -> dict[str, object]:
    efficiency = dict(_mapping(written["efficiency"]))
    kernels = dict(_mapping(efficiency["kernels"])) | {"attention_decode": {"bf16": curve}}
    return written | {"efficiency": efficiency | {"kernels": kernels}}


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _row(one: Timed) -> KernelRow:
    num = one.probe.num_kernels
    return KernelRow(
        kernel=one.probe.family,
        tokens=one.probe.tokens,
        context_tokens=one.probe.context_tokens,
        bytes=one.probe.num_bytes,
        time_s=one.kernel_s,
        time_s_low=one.times.low_s / num,
        time_s_high=one.times.high_s / num,
        bytes_per_s=one.bytes_per_s,
        flop_per_s=one.flop_per_s,
    )
