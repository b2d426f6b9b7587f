"""The nouns of ``lab measure --device``: a case, its time, why one was left out, and the answer."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.units import format_memory

if TYPE_CHECKING:
    from collections.abc import Sequence


class Family(StrEnum):
    """What a case times."""

    COPY = "copy on the device"
    UPLOAD = "copy to the device"
    DOWNLOAD = "copy from the device"
    CALL = "smallest product"
    STREAM = "few rows times matrix"
    GEMM = "rows times matrix"
    PREFILL = "prefill attention"
    DECODE = "decode attention"
    ALL_REDUCE = "all-reduce"


PRODUCTS = (Family.CALL, Family.STREAM, Family.GEMM)
COPIES = (Family.COPY, Family.UPLOAD, Family.DOWNLOAD)


@frozen
class Case:
    """One kernel at one size, with ``flop`` and ``num_bytes`` as a prediction of it will count them.

    Products are of ``tokens`` rows with a matrix of ``num_columns`` by ``num_inner``; attention is of ``tokens`` new
    tokens of each of ``num_sequences`` over ``context_tokens`` (in prefill the new ones); copies and messages have
    ``num_bytes`` alone, a message between ``num_ranks``.
    """

    family: Family
    precision: str = ""
    tokens: int = 0
    num_columns: int = 0
    num_inner: int = 0
    num_sequences: int = 0
    context_tokens: int = 0
    num_ranks: int = 1
    flop: float = 0.0
    num_bytes: float = 0.0
    held_out: bool = False
    """Of a shape that no curve is made of: it tells how right the curve is."""

    @property
    def name(self) -> str:
        """What errors call it.

        >>> Case(family=Family.GEMM, precision="bf16", tokens=16, num_columns=4096, num_inner=1024).name
        'rows times matrix, bf16, 16 x 4,096 x 1,024'
        """
        head = f"{self.family}, {self.precision}" if self.precision else str(self.family)
        return f"{head}, {self.size}"

    @property
    def size(self) -> str:
        """Its size in words."""
        match self.family:
            case Family.CALL | Family.STREAM | Family.GEMM:
                return f"{self.tokens:,} x {self.num_columns:,} x {self.num_inner:,}"
            case Family.PREFILL:
                return f"{self.tokens:,} tokens"
            case Family.DECODE:
                return f"{self.num_sequences:,} x {self.context_tokens:,} tokens"
            case Family.ALL_REDUCE:
                return f"{self.num_ranks} ranks, {format_memory(self.num_bytes)}"
            case _:
                return f"{format_memory(self.num_bytes)} moved"


@frozen
class Samples:
    """Repeated times of one case: their median, and what a tenth of them keep below and above."""

    time_s: float
    low_s: float
    high_s: float
    num_samples: int

    @property
    def spread_fraction(self) -> float:
        """From low to high, of the median."""
        return (self.high_s - self.low_s) / self.time_s if self.time_s > 0 else 0.0


@frozen
class Timing:
    """A case with its times."""

    case: Case
    samples: Samples

    @property
    def time_s(self) -> float:
        """The median."""
        return self.samples.time_s

    @property
    def bytes_per_s(self) -> float:
        """Bytes that it moves per second."""
        return self.case.num_bytes / self.time_s

    @property
    def flop_per_s(self) -> float:
        """FLOP that it computes per second."""
        return self.case.flop / self.time_s


@frozen
class LeftOut:
    """A case that was not timed, or is in no curve, and why."""

    case: str
    why: str


@frozen
class Course:
    """What became of all cases: the times of those that ran, and why the others did not."""

    timings: tuple[Timing, ...]
    left_out: tuple[LeftOut, ...]

    def of(self, *families: Family, precision: str | None = None) -> tuple[Timing, ...]:
        """Return the times of some kinds of cases."""
        return tuple(
            one
            for one in self.timings
            if one.case.family in families and (precision is None or one.case.precision == precision)
        )


@frozen
class DeviceMachine:
    """The device that was measured, and the peaks that it is measured against."""

    device: str
    """``cuda`` or ``cpu``."""
    title: str
    """As torch calls it."""
    gpu: str
    """Name of its catalog entry, or of the one that is made for it."""
    known: bool
    """Whether the catalog has it: peaks are then stated ones, else the fastest that was reached."""
    num_devices: int
    torch_version: str
    bandwidth_bytes_per_s: float
    """The peak of its memory."""
    peak_flop_per_s: float
    """In 16 bit, or in single precision where it has nothing narrower."""
    reached_bytes_per_s: float
    reached_flop_per_s: float
    """The fastest in any precision."""


@frozen
class DeviceRow:
    """One kernel: its time, and what it reached of the peak that bounds it.

    ``efficiency_fraction`` is measured over peak: of the rate of its precision, or of the bandwidth where that bounds
    it; None where no peak is known. ``predicted_s`` is by the curves that the catalog had before.
    """

    kernel: str
    precision: str
    size: str
    tokens: int
    context_tokens: int
    num_ranks: int
    flop: float
    bytes: float
    time_s: float
    time_s_low: float
    time_s_high: float
    spread_fraction: float
    num_samples: int
    bytes_per_s: float
    flop_per_s: float
    bound_by: str
    efficiency_fraction: float | None
    predicted_s: float | None
    error_fraction: float | None
    """(predicted - measured) / measured."""


@frozen
class CurveRow:
    """A curve of the overlay: how far it is from what it was made of, and from shapes that it has not seen."""

    curve: str
    num_points: int
    median_abs_error_fraction: float
    worst_abs_error_fraction: float
    held_out_median_abs_error_fraction: float | None


@frozen
class DeviceResult:
    """What ``lab measure --device`` answers."""

    machine: DeviceMachine
    kernels: tuple[DeviceRow, ...]
    curves: tuple[CurveRow, ...]
    left_out: tuple[LeftOut, ...]
    overlay: str
    """YAML, for ``--catalog``; empty where nothing of it is better than what the catalog has."""


def samples_of(times_s: Sequence[float]) -> Samples:
    """Return what is kept of ``times_s``: seconds, at least one.

    >>> samples_of([1.0, 1.1, 1.2, 9.0, 9.5])
    Samples(time_s=1.2, low_s=1.0, high_s=9.5, num_samples=5)
    """
    ordered = sorted(times_s)
    last = len(ordered) - 1
    middle = len(ordered) // 2
    return Samples(
        time_s=ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2,
        low_s=ordered[round(last * 0.1)],
        high_s=ordered[round(last * 0.9)],
        num_samples=len(ordered),
    )
