"""Measures the kernels of a device with torch, against the peaks of its catalog entry, and writes what they reach."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from infcalc.api.answer import Answer, distinct
from infcalc.api.lab_device_cases import cases_of, messages_of
from infcalc.api.lab_device_nouns import Course, DeviceResult, Family, LeftOut
from infcalc.api.lab_device_overlay import Target, described, device_rows, overlay_of
from infcalc.api.lab_device_timing import course_of
from infcalc.api.lab_machine import Computer, this_computer
from infcalc.api.lab_measure import DEFAULT_NAME, checked_repeat
from infcalc.api.lab_torch import TorchDevice, check_device, torch_module
from infcalc.api.lab_torch_ranks import LIBRARY, all_reduces
from infcalc.errors import DoesNotFit, UnknownName, UsageError
from infcalc.files import load_catalog, yaml_text
from infcalc.frozen import frozen
from infcalc.spec.explain import Input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infcalc.api.lab_device_nouns import Case, Timing
    from infcalc.api.lab_timing import Instruments
    from infcalc.catalog.lookup import Catalog

    Progress = Callable[[int, int], None]
    Reduce = Callable[..., tuple[tuple[Timing, ...], tuple[LeftOut, ...]]]

_BUDGET_S, _QUICK_BUDGET_S = 0.4, 0.1
_MOST_RANKS = 8
_CPU_RANKS = 2
_NOISY = 0.15
_MANY_NOISY = 0.25


@frozen
class DeviceAsk:
    """What is measured: the kind of device, and which entry of the catalog it is (None: by its name)."""

    device: str
    gpu: str | None = None
    name: str | None = None
    repeat: int | None = None
    quick: bool = False
    catalogs: tuple[str, ...] = ()


def measure_device(
    ask: DeviceAsk,
    instruments: Instruments,
    *,
    torch: Any = None,  # noqa: ANN401 - torch is not there to name its type
    computer: Computer | None = None,
    reduce: Reduce = all_reduces,
    progress: Progress | None = None,
) -> Answer[DeviceResult]:
    """Measure the kernels of a device through torch; return what they reach of its peaks, and the overlay of that.

    A GPU that the catalog knows keeps its entry, and the overlay holds the efficiency of what was measured; a CPU, or a
    GPU that it does not know, gets an entry of its own, whose peaks are the fastest that was reached. ``torch`` is the
    module (None: it is imported), ``reduce`` what times all-reduces between processes.

    Raises:
        UsageError: torch is missing, sees no such device, or an argument is out of range.
        UnknownName: ``gpu`` is not in the catalog.
        DoesNotFit: there was no memory for anything.

    """
    num = checked_repeat(ask.repeat, quick=ask.quick)
    if ask.name is not None and not any(letter.isalnum() for letter in ask.name):
        raise UsageError(f"{ask.name!r} is no name", place="--name", hint="a name needs letters or digits")
    catalog = load_catalog(ask.catalogs)
    if ask.gpu is not None:
        # A wrong name is told before anything is measured.
        catalog.gpu(ask.gpu)
    check_device(ask.device)
    device = TorchDevice(torch or torch_module(), ask.device, instruments.clock)
    computer = computer or this_computer()
    target = _target(ask, device, catalog, computer)
    cases, messages = cases_of(device.kind, quick=ask.quick), _messages(device, quick=ask.quick)
    total = len(cases) + sum(len(group) for group in messages)
    done = _Done(progress, total)
    course = course_of(
        device,
        cases,
        num_samples=2 * num,
        budget_s=_QUICK_BUDGET_S if ask.quick else _BUDGET_S,
        passed_s=instruments.passed_s,
        tell=done.at,
    )
    if not course.timings:
        raise _nothing(course.left_out)
    for group in messages:
        timings, left_out = reduce(device.kind, group, num_samples=num)
        course = Course(timings=(*course.timings, *timings), left_out=(*course.left_out, *left_out))
        done.more(len(group))
    target = described(target, course)
    block, curves, why_not = overlay_of(target, course, LIBRARY[device.kind], instruments.today)
    result = DeviceResult(
        machine=target.machine,
        kernels=device_rows(target, course),
        curves=curves,
        left_out=(*course.left_out, *why_not),
        overlay=yaml_text({"gpus": {target.machine.gpu: block}}) if block else "",
    )
    return Answer(
        command="lab",
        results=(result,),
        inputs=tuple(_inputs(ask, device, target, computer, 2 * num)),
        assumptions=tuple(_assumptions(device, target)),
        warnings=distinct(list(_warnings(device, target, result))),
    )


class _Done:
    """How many cases are done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._number = progress, total, 0

    def at(self, number: int) -> None:
        self._number = number
        if self._progress is not None:
            self._progress(number, self._total)

    def more(self, number: int) -> None:
        self.at(self._number + number)


def _target(ask: DeviceAsk, device: TorchDevice, catalog: Catalog, computer: Computer) -> Target:
    title = device.title or f"{computer.title} (torch)"
    found = None
    if ask.gpu is not None:
        found = catalog.gpu(ask.gpu).gpu
    elif device.kind == "cuda":
        try:
            found = catalog.gpu(title).gpu
        except UnknownName:
            found = None
    name = DEFAULT_NAME if device.kind == "cpu" else _slug(title)
    return Target(
        kind=device.kind,
        title=title,
        name=found.name if found is not None else ask.name or name,
        num_devices=device.num_devices,
        torch_version=device.version,
        memory_bytes=device.memory_bytes or computer.memory_bytes,
        cache_bytes=computer.cache_bytes if device.kind == "cpu" else None,
        architecture=f"torch {computer.architecture}" if device.kind == "cpu" else "unknown",
        gpu=found,
        efficiency=None if found is None else catalog.efficiency(found),
    )


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "this-gpu"


def _messages(device: TorchDevice, *, quick: bool) -> list[tuple[Case, ...]]:
    """Return the all-reduces by number of ranks: 2, 4 and so on to all GPUs; two processes on a CPU."""
    most = _CPU_RANKS if device.kind == "cpu" else min(_MOST_RANKS, device.num_devices)
    ranks = [number for number in (2, 4, 8) if number <= most]
    if most > 1 and most not in ranks:
        ranks.append(most)
    return [messages_of(device.kind, number, quick=quick) for number in ranks]


def _nothing(left_out: Sequence[LeftOut]) -> Exception:
    first = left_out[0]
    if all(one.why == "out of memory" for one in left_out):
        return DoesNotFit(
            "the device has no memory for any kernel",
            place="--device",
            hint="end what else runs on it (nvidia-smi lists it), and measure again",
        )
    return UsageError(
        f"no kernel ran on the device; the first, {first.case}: {first.why}",
        place="--device",
        hint="a build of torch for this very device is needed: python -c 'import torch; print(torch.__version__)'",
    )


def _inputs(
    ask: DeviceAsk, device: TorchDevice, target: Target, computer: Computer, num_samples: int
) -> Iterator[Input]:
    yield Input(name="device", value=device.kind, origin="given (--device)")
    if target.gpu is not None:
        yield Input(
            name="gpu", value=target.name, origin="given (--gpu)" if ask.gpu else f"by its name, {target.title}"
        )
    yield Input(name="repeat", value=num_samples, origin="given (--repeat)" if ask.repeat else "default")
    yield Input(name="torch", value=device.version, origin="installed")
    if device.kind == "cpu":
        yield Input(name="num_threads", value=computer.num_threads, origin="the computer")


def _assumptions(device: TorchDevice, target: Target) -> Iterator[str]:
    yield "a time is the median of its samples, each of many runs after a warm-up; low and high leave out a tenth each"
    if device.kind == "cuda" and not device.without_graph:
        yield "kernels run from a CUDA graph, timed by events: without what the host takes to launch them"
    yield "matrices and caches come in turns from more memory than a cache holds, as the weights of a model do"
    if target.gpu is None:
        yield "no catalog entry states its peaks: they are the fastest that was reached, so that efficiencies end at 1"
    else:
        yield f"peaks are those that the catalog states for {target.name}"
    yield "attention is torch's own (scaled_dot_product_attention), in the shape of Llama 3.1 8B, in 16 bit"


def _warnings(device: TorchDevice, target: Target, result: DeviceResult) -> Iterator[str]:
    if device.without_graph:
        yield "no CUDA graph could be made: times of small kernels hold what the host takes to launch them"
    above = [row for row in result.kernels if row.efficiency_fraction is not None and row.efficiency_fraction > _ABOVE]
    if above and target.gpu is not None:
        most = max(above, key=lambda row: row.efficiency_fraction or 0.0)
        yield (
            f"{most.kernel}, {most.precision or 'any precision'}, {most.size} reaches {most.efficiency_fraction:.0%} "
            f"of what the catalog states for {target.name}: is that the device? --gpu says which entry it is"
        )
    noisy = [row for row in result.kernels if row.spread_fraction > _NOISY]
    if len(noisy) > _MANY_NOISY * len(result.kernels):
        alone = " or with --threads 1" if device.kind == "cpu" else ""
        yield (
            f"{len(noisy)} of {len(result.kernels)} kernels scatter by more than {_NOISY:.0%}: other programs are at "
            f"work, or clocks change; measure again in a quiet moment{alone}"
        )
    if any(one.why == "out of memory" for one in result.left_out):
        names = "; ".join(one.case for one in result.left_out if one.why == "out of memory")
        yield f"out of memory, so left out: {names}"
    if not any(row.kernel == Family.ALL_REDUCE for row in result.kernels) and device.num_devices > 1:
        yield "no all-reduce was timed, though there are several devices: left_out says why"


_ABOVE = 1.02
