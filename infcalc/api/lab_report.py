"""The results of the laboratory, as every format shows them."""

from __future__ import annotations

from infcalc.api.lab_cases import Projection
from infcalc.frozen import frozen


@frozen
class MachineResult:
    """What was measured of the computer, and what it says of itself. ``gpu`` names its catalog entry."""

    gpu: str
    title: str
    bandwidth_bytes_per_s: float
    peak_flop_per_s: float
    precision: str
    num_threads: int
    clock: str
    """``wall``, or ``cpu``: the time of this process alone."""
    numpy_version: str
    memory_bytes: int | None
    cache_bytes: int | None
    drift_fraction: float
    """By how much the second half of the kernel timings differs from the first, in the median kernel."""


@frozen
class KernelRow:
    """One kernel that was timed by itself. ``tokens`` are rows, sequences or new tokens, by its kind."""

    kernel: str
    tokens: int
    context_tokens: int
    bytes: float
    time_s: float
    time_s_low: float
    time_s_high: float
    bytes_per_s: float
    flop_per_s: float


@frozen
class MeasureResult:
    """What ``lab measure`` answers: the computer, its kernels, and the overlay that makes a GPU of it."""

    machine: MachineResult
    kernels: tuple[KernelRow, ...]
    overlay: str
    """YAML, for ``--catalog``."""


@frozen
class LabRow:
    """One kind of step: measured against predicted. ``error_fraction`` is (predicted - measured) / measured."""

    case: str
    batch: int
    context_tokens: float
    new_tokens: float
    """Tokens that each sequence computes."""
    measured_s: float
    measured_s_low: float
    measured_s_high: float
    predicted_s: float
    error_fraction: float
    ideal_s: float
    """The roofline without curves: peak rates and full bandwidth."""
    bound_by: str
    num_steps: int


@frozen
class LabResult:
    """What ``lab`` answers."""

    machine: MachineResult
    model: str
    weight_bytes: int
    larger_than_cache: bool | None
    """Whether the weights exceed the last-level cache; None where its size is unknown."""
    rows: tuple[LabRow, ...]
    projections: tuple[Projection, ...]
    same_tokens: bool
    """Whether no cache, a contiguous and a paged one gave the same tokens, in double precision."""
