"""What a simulation of pools of prefill and decode answers beside what every run answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.simulation_nouns import Use
    from infcalc.simulation.summary import TimeSummary


@frozen
class PoolUse:
    """One pool. ``cache_tokens`` and ``max_num_seqs`` are of one lane; ``busy_fraction`` is the share in steps."""

    num_replicas: int
    num_gpus: int
    """Of one replica."""
    tp: int
    cache_tokens: int
    max_num_seqs: int
    num_slots: int
    """Of all its lanes."""
    busy_fraction: float
    kv_usage_fraction: Use
    slot_utilization_fraction: float
    steps: int
    preemptions: int


@frozen
class LinkUse:
    """The links together. ``sent_bytes`` are what crossed them, ``utilization_fraction`` the share of time in use."""

    bytes_per_s: float
    """Of one link."""
    latency_s: float
    shared: str
    num_links: int
    num_transfers: int
    sent_bytes: int
    utilization_fraction: float


@frozen
class PlainRun:
    """Plain replicas with the same number of GPUs, under the same load; times are means."""

    num_replicas: int
    num_gpus: int
    """Of one replica."""
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    requests_per_s: float
    output_tokens_per_s: float
    goodput_fraction: float
    goodput_requests_per_s: float
    preemptions: int


@frozen
class Disaggregation:
    """How caches were handed over, and how plain replicas do with the same GPUs.

    ``transfer_s`` is from the last bytes' being handed to the link until they have arrived, the wait for the link
    included; ``room_wait_s`` the wait for room at the decode replica; ``prefill_done_s`` from a request's being
    sent until its prompt is computed, which is less than the time to first token that its sender sees; ``handover_s``
    from there until the decode replica has the cache. ``gain_factor`` is how many times as good the pools are
    as the best of ``aggregated``, in ``gain_of``. Of users who wait for their answers that is throughput: tokens per
    second, with ``--slo`` requests within the limits per second. A load that comes whatever is answered has the same
    throughput everywhere: of it that is the mean time of a request, with ``--slo`` the share within the limits.
    """

    num_gpus: int
    """Of both pools."""
    prefill: PoolUse
    decode: PoolUse
    link: LinkUse
    transfer_s: TimeSummary | None = None
    room_wait_s: TimeSummary | None = None
    prefill_done_s: TimeSummary | None = None
    handover_s: TimeSummary | None = None
    aggregated: tuple[PlainRun, ...] = ()
    """Best first."""
    gain_of: str = ""
    gain_factor: float | None = None
    verdict: str = ""
