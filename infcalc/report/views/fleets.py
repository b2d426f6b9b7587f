"""Tables and lines of ``infcalc simulate`` on pools of prefill and decode, and on replicas that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, count
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.disaggregation_nouns import Disaggregation
    from infcalc.api.scaling_nouns import Scaling
    from infcalc.api.simulation_nouns import SimulationResult

_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
_HANDED = {
    "room_wait_s": "wait for room",
    "transfer_s": "transfer",
    "handover_s": "prompt done to cache",
    "prefill_done_s": "sent to prompt done",
}
_HUNDRED = 100
_GB = 1e9


def pool_tables(result: SimulationResult, told: Disaggregation, name: str) -> list[Table]:
    """Return how caches were handed over, how both pools were used, and plain replicas beside them."""
    times = [
        {"time": label} | {part: getattr(summary, part) for part in _STATISTICS}
        for key, label in _HANDED.items()
        if (summary := getattr(told, key)) is not None
    ]
    handed = Table(
        title=f"{name}Handing over {told.link.num_transfers:,} caches",
        columns=(
            Column(key="time", heading="time", left=True),
            *(Column(key=part, heading=part, show=_seconds) for part in _STATISTICS),
        ),
        rows=tuple(times),
    )
    uses = Table(
        title=f"{name}Pools",
        columns=(
            Column(key="pool", heading="pool", left=True),
            Column(key="num_replicas", heading="replicas", show=count),
            Column(key="num_gpus", heading="GPUs each", show=count),
            Column(key="busy_fraction", heading="busy", show=_percent),
            Column(key="kv_mean", heading="KV", show=_percent),
            Column(key="kv_max", heading="most", show=_percent),
            Column(key="slot_utilization_fraction", heading="slots", show=_percent),
            Column(key="preemptions", heading="preempted", show=count),
        ),
        rows=tuple(
            {"pool": pool, "kv_mean": use.kv_usage_fraction.mean, "kv_max": use.kv_usage_fraction.max}
            | {
                key: getattr(use, key)
                for key in ("num_replicas", "num_gpus", "busy_fraction", "slot_utilization_fraction", "preemptions")
            }
            for pool, use in (("prefill", told.prefill), ("decode", told.decode))
        ),
    )
    return [*((handed,) if times else ()), uses, *((_beside(result, told, name),) if told.aggregated else ())]


def _beside(result: SimulationResult, told: Disaggregation, name: str) -> Table:
    keys = ("ttft_s", "tpot_s", "e2e_s")
    mine = {key: None if (summary := getattr(result, key)) is None else summary.mean for key in keys}
    rates = ("requests_per_s", "output_tokens_per_s", "goodput_fraction")
    rows: list[dict[str, object]] = [{"layout": "pools"} | mine | {key: getattr(result, key) for key in rates}]
    for one in told.aggregated:
        layout = f"{one.num_replicas} x {one.num_gpus}"
        rows.append({"layout": layout} | {key: getattr(one, key) for key in (*keys, *rates)})
    limits = (Column(key="goodput_fraction", heading="good", show=_percent),) if result.slo else ()
    return Table(
        title=f"{name}Beside plain replicas on {told.num_gpus} GPUs (times: means)",
        columns=(
            Column(key="layout", heading="layout", left=True),
            Column(key="ttft_s", heading="TTFT", show=_seconds),
            Column(key="tpot_s", heading="TPOT", show=_seconds),
            Column(key="e2e_s", heading="request", show=_seconds),
            Column(key="requests_per_s", heading="requests/s", show=_rate),
            *limits,
            Column(key="output_tokens_per_s", heading="tokens/s", show=_rate),
        ),
        rows=tuple(rows),
    )


def pool_findings(told: Disaggregation) -> list[str]:
    """Return what pools come to in lines."""
    link = told.link
    of = "the link" if link.num_links == 1 else f"{link.num_links} links"
    crossed = (
        f"{format_bytes(link.sent_bytes)} of cache crossed {of} of {link.bytes_per_s / _GB:g} GB/s, in use "
        f"{_percent(link.utilization_fraction)} of the time; prefill busy {_percent(told.prefill.busy_fraction)}, "
        f"decode {_percent(told.decode.busy_fraction)}"
    )
    return [crossed, told.verdict] if told.verdict else [crossed]


def scaling_finding(told: Scaling) -> str:
    """Return how replicas came and went in a line, and what it cost."""
    text = (
        f"replicas: {told.num_serving_mean:.3g} in the mean, {told.num_peak} at most; {told.num_added} added, "
        f"{told.num_removed} removed; {told.gpu_s:,.0f} GPU-seconds paid, {told.fixed_peak_gpu_s:,.0f} with "
        f"{told.num_peak} all the time: {_percent(told.saved_fraction)} saved"
    )
    if told.usd is not None and told.fixed_peak_usd is not None:
        text += f", {told.usd:,.2f} instead of {told.fixed_peak_usd:,.2f} USD"
    return text


def _seconds(value: object) -> str:
    return format_seconds(value) if isinstance(value, int | float) else "-"


def _rate(value: object) -> str:
    return (f"{value:,.0f}" if value >= _HUNDRED else f"{value:.3g}") if isinstance(value, int | float) else "-"


def _percent(value: object) -> str:
    return f"{_HUNDRED * value:.1f} %" if isinstance(value, int | float) else "-"
