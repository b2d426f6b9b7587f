"""What a simulation with autoscaling answers beside what every run answers."""

from __future__ import annotations

from infcalc.frozen import frozen


@frozen
class ReplicaCount:
    """How many replicas there are from a moment on: those that take requests, that start, and that are drained."""

    time_s: float
    num_serving: int
    num_starting: int
    num_draining: int


@frozen
class Scaling:
    """How replicas came and went, and what they cost.

    A replica is paid from its call to the end of its drain: ``gpu_s`` are those of all, ``fixed_peak_gpu_s`` those of
    ``num_peak`` replicas over the whole run. ``num_serving_mean`` is over time.
    """

    gauge: str
    above: float
    below: float
    num_least: int
    num_most: int
    num_peak: int
    """The most that were paid at once."""
    num_serving_mean: float
    num_added: int
    num_removed: int
    gpu_s: float
    fixed_peak_gpu_s: float
    saved_fraction: float
    """Of the GPU-seconds of the peak held fixed."""
    usd: float | None = None
    fixed_peak_usd: float | None = None
    replicas_over_time: tuple[ReplicaCount, ...] = ()
