"""An accelerator: memory, bandwidth, peak rates by precision, links and prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.spec.efficiency import Calibration, GpuEfficiency


_MOST_IN_A_SERVER = 8


@frozen
class Link:
    """The scale-up link of a GPU: bytes/s per direction and how many GPUs it joins."""

    name: str
    bytes_per_s: float
    max_domain: int = 1
    optional: bool = False
    """A bridge that is bought apart: machines without one reach the other GPU over PCIe."""


@frozen
class Price:
    """An hourly price of one accelerator (or a range), with its provider, date and source."""

    provider: str
    usd_per_hour: float
    usd_per_hour_high: float | None = None
    date: str = ""
    source: str = ""
    note: str = ""


@frozen
class Gpu:
    """One accelerator. Peak rates are dense (no structured sparsity), with FP32 accumulation for 16-bit types."""

    name: str
    title: str
    vendor: str
    architecture: str
    memory_bytes: int
    """Marketed memory."""
    cuda_total_bytes: int
    """What CUDA reports as total: the base of the engines' memory fractions."""
    cuda_total_estimated: bool = False
    """True when the total was not read anywhere and comes from the ratio of its family."""
    driver_total_bytes: int | None = None
    """What the driver's own tool (``nvidia-smi``) prints as total, where it is known."""
    bandwidth_bytes_per_s: float
    peak_flop_per_s: tuple[tuple[str, float], ...]
    """Pairs of precision (``fp32``, ``tf32``, ``bf16``, ``fp8``, ``int8``, ``fp4``, ``int4``) and dense peak."""
    compute_capability: str | None = None
    scale_up: Link | None = None
    pcie_bytes_per_s: float | None = None
    tdp_watt: float | None = None
    num_sms: int | None = None
    cache_bytes: int | None = None
    unified_memory: bool = False
    prices: tuple[Price, ...] = ()
    aliases: tuple[str, ...] = ()
    source: str = ""
    date: str = ""
    doubts: tuple[str, ...] = ()
    """What is not certain about the figures that answers rest on; printed whenever the GPU is used."""
    recalled: tuple[str, ...] = ()
    """Keys of secondary figures that were not read again in a source; not printed."""
    efficiency: GpuEfficiency | None = None
    """Efficiency curves that the entry itself states; they go before those of ``efficiency.yaml``."""
    calibration: Calibration | None = None
    """Factors that ``infcalc calibrate`` fitted to measurements of this accelerator."""

    @property
    def max_per_machine(self) -> int:
        """How many a machine has at most: 8 in a server, 1 where it shares the memory of its host."""
        return 1 if self.unified_memory else _MOST_IN_A_SERVER

    def peak(self, precision: str) -> float | None:
        """Return the dense peak of ``precision`` in FLOP/s, or None where the GPU has no such unit."""
        return dict(self.peak_flop_per_s).get(precision)
