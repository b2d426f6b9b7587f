"""What is said of pools of prefill and decode, and of replicas that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.spec.explain import Explanation, Input
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.disaggregation import PoolsPlace
    from infcalc.api.disaggregation_nouns import Disaggregation
    from infcalc.api.scaling_nouns import Scaling
    from infcalc.simulation.pools import Handover
    from infcalc.simulation.scaling import ScalingRule

_BUSY = 0.9
_GB = 1e9


def _speed(bytes_per_s: float) -> str:
    return f"{bytes_per_s / _GB:g} GB/s"


def pool_notes(place: PoolsPlace, router: str, rule: Handover) -> list[str]:
    """Return what a simulation of pools rests on."""
    link = place.asked.link
    whose = "each prefill replica has one" if link.shared == "replica" else "all prefill replicas share one"
    how = (
        f"room at the decode replica is taken before a prompt is computed ({rule.reserved_tokens} tokens are left free "
        "for each request there), and its chunks cross as they are computed: what shows is the last"
        if rule.room_first
        else "a cache is fetched as a whole when the prompt is computed and the decode replica has room; until then "
        "its blocks are held at the prefill replica"
    )
    speed, latency = _speed(place.bytes_per_s), format_seconds(link.latency_s)
    crossing = (
        f"link of {speed} and a latency of {latency} ({place.link_origin}; a scale-up link within one server is "
        f"faster): {whose}, caches cross one after another; what a decode replica takes in is not limited"
    )
    bound = (
        f"a request goes to a prefill replica by {router} and at the same moment to the decode replica with the fewest "
        "requests; decode replicas find no prefixes, and compute anew whom they preempt; every step is computed"
    )
    first = (
        "TTFT is what the sender sees: the first token comes from the decode replica, "
        + ("of its first step" if rule.computes_first else "when the cache is there")
        + "; prefill_done_s is when the prompt was computed"
    )
    return [crossing, f"hand-over: {how}", bound, first]


def pool_doubts(told: Disaggregation) -> list[str]:
    """Return what a reader of pools must be warned of."""
    found = []
    if told.link.utilization_fraction > _BUSY:
        found.append(f"the link is busy {told.link.utilization_fraction:.0%} of the time: caches queue on it")
    return found


def pool_explanations(place: PoolsPlace, told: Disaggregation, mean_prompt_tokens: float) -> list[Explanation]:
    """Return how the figures of pools came about."""
    link = told.link
    tokens = round(mean_prompt_tokens)
    whole = place.payload.whole_bytes(tokens)
    origin = Input(name="link", value=_speed(link.bytes_per_s), origin=place.link_origin)
    found = [
        Explanation(
            quantity="disaggregation.transfer_s",
            formula="wait for the link + bytes of the cache / bandwidth + latency",
            substituted=f"of {tokens:,} tokens alone: {whole:,} / {link.bytes_per_s:.4g} + {link.latency_s:g} = "
            f"{format_seconds(whole / link.bytes_per_s + link.latency_s)}"
            + ("" if told.transfer_s is None else f"; in the mean {format_seconds(told.transfer_s.mean)}"),
            inputs=(origin,),
        ),
        Explanation(
            quantity="disaggregation.link.utilization_fraction",
            formula="bytes that crossed / (links x bandwidth x time)",
            substituted=f"{link.sent_bytes:,} bytes of {link.num_transfers:,} caches over {link.num_links} "
            f"link{'' if link.num_links == 1 else 's'}: {link.utilization_fraction:.4g}",
        ),
    ]
    if told.gain_factor is not None:
        found.append(
            Explanation(
                quantity="disaggregation.gain_factor",
                formula=f"{told.gain_of} of the pools beside that of the best plain replicas on as many GPUs",
                substituted=told.verdict,
            )
        )
    return found


def scaling_notes(rule: ScalingRule) -> list[str]:
    """Return what a simulation with autoscaling rests on."""
    every, window, start, rest = (
        format_seconds(value / PS_PER_S) for value in (rule.every_ps, rule.window_ps, rule.start_ps, rule.rest_ps)
    )
    what = "requests waiting per replica" if rule.gauge == "queue" else "share of the cache held"
    text = (
        f"autoscaling, {rule.num_least} to {rule.num_most} replicas: every {every} the mean {what} over {window} is "
        f"compared; above {rule.above:g} one is added, which serves after {start}, below {rule.below:g} the one with "
        f"the fewest requests takes no more and ends when it has none; nothing changes for {rest} after a change; who "
        "starts counts as empty; every step is computed"
    )
    return [text]


def scaling_explanations(told: Scaling) -> list[Explanation]:
    """Return how the bill of replicas that come and go came about."""
    return [
        Explanation(
            quantity="scaling.gpu_s",
            formula="GPU-seconds of each replica from its call to the end of its drain, or of the run",
            substituted=f"{told.gpu_s:,.5g}, against {told.fixed_peak_gpu_s:,.5g} of {told.num_peak} replicas all the "
            f"time: {told.saved_fraction:.1%} saved",
        )
    ]
