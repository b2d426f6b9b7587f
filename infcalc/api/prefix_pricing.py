"""What prefix hits spare on a deployment: prefill time of its devices, GPU-seconds and money."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.costing import rent_of
from infcalc.api.estimator import Estimator
from infcalc.api.ledger import deployment_ledger
from infcalc.api.offer import Offer
from infcalc.api.offering import load_for
from infcalc.api.speed import machine_of, serving, site_of
from infcalc.frozen import frozen
from infcalc.serving.prefill import prefill_s

if TYPE_CHECKING:
    from infcalc.api.costing import Terms
    from infcalc.api.deployment import Ask, Deployment
    from infcalc.api.prefix_stream import PrefixAsk
    from infcalc.catalog.lookup import Catalog

_HOUR_S = 3600.0
_SHORT_ANSWER = 2


@frozen
class Saving:
    """What was spared over the whole stream, at the rate of its arrivals, and for one request.

    ``prefill_*`` are seconds of a lane of the replica (an attention-DP rank or a pipeline's share), in steps full of
    prompts; ``gpu_saved_s`` are those times the GPUs of a lane. ``busy_*`` are shares of the devices' time that prefill
    takes at the asked rate. ``ttft_*`` are of one request alone on the server, of a mean hit and without it; None where
    nothing was found. Money is None where no price is known.
    """

    prefill_without_s: float
    prefill_with_s: float
    prefill_saved_s: float
    prefill_saved_s_low: float
    prefill_saved_s_high: float
    gpu_saved_s: float
    gpu_saved_s_low: float
    gpu_saved_s_high: float
    requests_per_s: float
    gpu_saved_s_per_s: float
    gpu_saved_s_per_s_low: float
    gpu_saved_s_per_s_high: float
    busy_without_fraction: float
    busy_with_fraction: float
    num_gpus_per_lane: float
    saved_usd: float | None
    saved_usd_low: float | None
    saved_usd_high: float | None
    saved_usd_per_hour: float | None
    saved_usd_per_hour_low: float | None
    saved_usd_per_hour_high: float | None
    gpu_usd_per_hour: float | None
    ttft_without_s: float | None
    ttft_without_s_low: float | None
    ttft_without_s_high: float | None
    ttft_hit_s: float | None
    ttft_hit_s_low: float | None
    ttft_hit_s_high: float | None


def saving(
    ask: Ask,
    deployment: Deployment,
    catalog: Catalog,
    found: tuple[tuple[int, int], ...],
    *,
    wanted: PrefixAsk,
    terms: Terms,
) -> Saving | None:
    """Return what hits spare; ``found`` are prompt and found tokens of each request. None where the model does not fit.

    ``ask`` is that of this deployment alone.

    Raises:
        InfcalcError: a load that no server admits.

    """
    site = site_of(ask, deployment, catalog)
    longest = max(prompt for prompt, _ in found) + _SHORT_ANSWER
    admitting = replace(deployment, max_model_len=longest)
    if not deployment_ledger(admitting, site.form, context_tokens=longest).fits:
        return None
    machine = machine_of(site)
    number = len(found)
    mean_prompt = max(1, round(sum(prompt for prompt, _ in found) / number))
    asked = load_for(deployment, Offer(input_tokens=mean_prompt, output_tokens=_SHORT_ANSWER), ())
    server, _ = serving(machine, asked)
    clock, budget = server.full_clock, server.budget_tokens
    known: dict[tuple[int, int], float] = {}

    def spent_s(prompt: int, hit: int) -> float:
        if (prompt, hit) not in known:
            known[prompt, hit] = prefill_s(clock, new_tokens=prompt - hit, cached_tokens=hit, budget_tokens=budget)
        return known[prompt, hit]

    without_s = sum(spent_s(prompt, 0) for prompt, _ in found)
    with_s = sum(spent_s(prompt, hit) for prompt, hit in found)
    spared = machine.bands.figure("tpot_s", without_s - with_s)
    lanes = server.num_lanes
    gpus = deployment.parallelism.num_gpus / lanes
    each = wanted.requests_per_s / number
    rent = rent_of(deployment.gpu, terms)
    price = _NOTHING if rent is None else (rent.usd_per_hour, rent.usd_per_hour_low, rent.usd_per_hour_high)
    usd = _money((spared.value * gpus, spared.low * gpus, spared.high * gpus), price)
    hourly = [None if one is None else one * each * _HOUR_S for one in usd]
    first, hit_first = _first_tokens(ask, catalog, found)
    return Saving(
        prefill_without_s=without_s,
        prefill_with_s=with_s,
        prefill_saved_s=spared.value,
        prefill_saved_s_low=spared.low,
        prefill_saved_s_high=spared.high,
        gpu_saved_s=spared.value * gpus,
        gpu_saved_s_low=spared.low * gpus,
        gpu_saved_s_high=spared.high * gpus,
        requests_per_s=wanted.requests_per_s,
        gpu_saved_s_per_s=spared.value * gpus * each,
        gpu_saved_s_per_s_low=spared.low * gpus * each,
        gpu_saved_s_per_s_high=spared.high * gpus * each,
        busy_without_fraction=without_s * each / lanes,
        busy_with_fraction=with_s * each / lanes,
        num_gpus_per_lane=gpus,
        saved_usd=usd[0],
        saved_usd_low=usd[1],
        saved_usd_high=usd[2],
        saved_usd_per_hour=hourly[0],
        saved_usd_per_hour_low=hourly[1],
        saved_usd_per_hour_high=hourly[2],
        gpu_usd_per_hour=price[0],
        ttft_without_s=first[0],
        ttft_without_s_low=first[1],
        ttft_without_s_high=first[2],
        ttft_hit_s=hit_first[0],
        ttft_hit_s_low=hit_first[1],
        ttft_hit_s_high=hit_first[2],
    )


_Three = tuple[float | None, float | None, float | None]
"""Value, low and high."""
_NOTHING: _Three = (None, None, None)


def _money(gpu_s: tuple[float, float, float], price: _Three) -> list[float | None]:
    return [None if usd is None else part * usd / _HOUR_S for part, usd in zip(gpu_s, price, strict=True)]


def _first_tokens(ask: Ask, catalog: Catalog, found: tuple[tuple[int, int], ...]) -> tuple[_Three, _Three]:
    """Return the time to the first token of a mean hit alone on the server, without and with what was found."""
    hits = [(prompt, hit) for prompt, hit in found if hit]
    if not hits:
        return _NOTHING, _NOTHING
    prompt = round(sum(prompt for prompt, _ in hits) / len(hits))
    share = sum(hit for _, hit in hits) / len(hits) / prompt
    estimator = Estimator(ask, catalog)
    offer = Offer(batch=1, input_tokens=prompt, output_tokens=_SHORT_ANSWER)
    times = [
        estimator.estimate(one).ttft_s
        for one in (offer, replace(offer, prefix_hit_fraction=min(share, 1 - 1 / prompt)))
    ]
    without, with_hit = (_NOTHING if one is None else (one.value, one.low, one.high) for one in times)
    return without, with_hit
