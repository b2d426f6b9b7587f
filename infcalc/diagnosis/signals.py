"""The named signals that rules speak of: what was measured of a server, and what a model makes of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable


class Signal(StrEnum):
    """A number that rules look at. Shares are from 0 to 1, times in seconds, truths 1."""

    # Of the measurement itself
    IMPOSSIBLE = "num_impossible_figures"
    THOUSANDFOLD = "num_figures_a_thousandfold_off"
    CONTRADICTIONS = "num_contradictions"
    FAILED_SHARE = "failed_requests_fraction"
    ABORTED_SHARE = "aborted_requests_fraction"
    REFUSALS = "num_refused_starts"

    # Places and queues
    PREEMPTIONS = "num_preemptions"
    PREEMPTED_SHARE = "preemptions_per_request"
    KV_USAGE = "kv_usage_fraction"
    RUNNING = "num_running"
    WAITING = "num_waiting"
    WAITING_SHARE = "waiting_requests_fraction"
    QUEUE = "queue_s"
    QUEUE_SHARE = "queue_share_of_first_token_fraction"
    EXCESS_FIRST = "first_token_beyond_prefill_s"
    EXCESS_FIRST_SHARE = "first_token_beyond_prefill_fraction"
    SEATS_TAKEN = "running_over_max_num_seqs"
    DEMAND_OVER_ROOM = "clients_over_kv_room"
    DEMAND_OVER_SEATS = "clients_over_max_num_seqs"
    ROOM_BOUND = "kv_room_below_max_num_seqs"
    IMBALANCE = "busiest_engine_over_mean"
    UNDER_WAY = "num_under_way"
    HANDOVER_QUEUE = "num_waiting_for_kv_transfer"

    # Prompts
    PREFIX_HITS = "prefix_hit_fraction"
    PREFILL_SHARE = "prefill_time_fraction"
    INPUT_LENGTH = "input_length_tokens"
    STEP_FILL = "step_tokens_over_budget"
    BUDGET_OVER_DEFAULT = "budget_over_default"
    GAP_TAIL = "gap_p99_over_median"
    GAP_P99 = "gap_p99_s"
    PROMPTS_IN_STEP = "prompt_tokens_over_budget"

    # Drafting
    TOKENS_PER_ROUND = "tokens_per_round"
    ACCEPTED = "draft_acceptance_fraction"
    DRAFTING_SPEEDUP = "drafting_speedup"
    DRAFTING_MEASURED = "drafting_measured_speedup"

    # Host, graphs, links, precisions
    FRONT_END = "front_end_s"
    FRONT_END_SHARE = "front_end_share_of_request_fraction"
    CLIENT_GAP_SHARE = "first_token_outside_the_engine_fraction"
    CLIENT_GAP = "first_token_outside_the_engine_s"
    CLIENTS_BUSY = "clients_busy_fraction"
    EAGER = "eager_mode"
    UNGRAPHED_SHARE = "decode_without_graph_fraction"
    RUNNING_OVER_CAPTURED = "running_over_captured_batch"
    PCIE_ONLY = "pcie_only"
    TP_WITHOUT_LINK = "tp_without_scale_up_link"
    TP_ACROSS_MACHINES = "tp_across_machines"
    SLOW_KERNELS = "slow_kernel_warnings"
    OFFLOADED = "offloaded_weights_bytes"
    BATCH = "num_in_a_step"
    WEIGHT_ONLY = "weight_only_quantization"
    WEIGHT_ONLY_LOSS = "throughput_in_16_bit_over_now"

    # Beside the prediction
    TOKEN_OVER_BAND = "measured_over_band_high"  # noqa: S105 - tokens of text
    SLOWER_PEERS = "slower_published_runs_fraction"
    UNRANKED_OVER_BAND = "measured_over_band_high_without_peers"
    BAND_OVER_TOKEN = "band_low_over_measured"  # noqa: S105 - tokens of text
    FIRST_OVER_BAND = "first_token_over_band_high"
    ROOFLINE = "roofline_fraction"
    BANDWIDTH_SHARE = "bandwidth_share_fraction"
    COMPUTE_SHARE = "compute_share_fraction"
    OVERHEAD_SHARE = "overhead_share_fraction"
    COMMUNICATION_SHARE = "communication_share_fraction"
    INTERFERENCE_SHARE = "prompt_interference_share_fraction"


@frozen
class Cite:
    """Where something stands in a file; ``line`` is None where no line could be found that states it."""

    place: str
    line: int | None
    text: str


@frozen
class Reading:
    """One signal as it was found: its value, how a person reads it, and the lines that say so.

    ``modelled``: it rests on a prediction, not on a measurement alone.
    """

    signal: Signal
    value: float
    shown: str
    cites: tuple[Cite, ...] = ()
    modelled: bool = False


@frozen
class Readings:
    """All readings of one case. A signal is there once: the first reading of it counts."""

    by_signal: dict[Signal, Reading]

    @staticmethod
    def of(readings: Iterable[Reading]) -> Readings:
        """Return readings by their signals."""
        found: dict[Signal, Reading] = {}
        for one in readings:
            found.setdefault(one.signal, one)
        return Readings(by_signal=found)

    def get(self, signal: Signal) -> Reading | None:
        """Return the reading of a signal; None where it was not found."""
        return self.by_signal.get(signal)

    def value(self, signal: Signal) -> float | None:
        """Return the value of a signal; None where it was not found."""
        found = self.by_signal.get(signal)
        return None if found is None else found.value
