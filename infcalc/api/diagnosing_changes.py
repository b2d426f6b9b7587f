"""What each change of a remedy makes of a deployment and its load; where it has nothing to change, why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from infcalc.diagnosis.rule import Change
from infcalc.frozen import frozen
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.api.deployment import Ask, Deployment
    from infcalc.api.measured_load import Loaded
    from infcalc.api.offer import Offer
    from infcalc.api.speed import Run, Site

_MOST_MEMORY: Final = 0.95
_HALF: Final = 0.5
_BYTE_BITS: Final = 8


class Pointless(Exception):
    """A change that this deployment or load has no use for; its text says why."""


@frozen
class AsItIs:
    """A deployment under its load, as it is. ``eager``: it was seen to run without graphs."""

    site: Site
    loaded: Loaded
    run: Run
    eager: bool


@frozen
class Other:
    """The other side of a change: deployment, load on each server, and how many servers there are."""

    ask: Ask
    loaded: Loaded
    num_servers: int = 1
    why: str = ""


def changed(change: Change, now: AsItIs) -> Other:
    """Return the other side of a change.

    Raises:
        Pointless: there is nothing to change.

    """
    return _CHANGES[change](now)


def more_memory(fraction: float) -> float:
    """Return the next higher memory fraction that engines are given.

    >>> more_memory(0.92), more_memory(0.5)
    (0.95, 0.6)
    """
    return round(min(_MOST_MEMORY, fraction + 0.1 if fraction < 0.85 else _MOST_MEMORY), 3)  # noqa: PLR2004 - near the end


def stages_of(deployment: Deployment) -> tuple[int, int]:
    """Return TP and PP that keep TP within what the scale-up link joins: one GPU where there is none."""
    ranks, link = deployment.parallelism, deployment.gpu.scale_up
    domain = 1 if link is None or link.optional else link.max_domain
    tp = max((size for size in range(1, ranks.tp + 1) if ranks.tp % size == 0 and size <= domain), default=1)
    return tp, ranks.pp * (ranks.tp // tp)


def _with_offers(loaded: Loaded, change: Callable[[Offer], Offer]) -> Loaded:
    return replace(loaded, offers=tuple(change(one) for one in loaded.offers))


def _weights(word: str) -> Callable[[AsItIs], Other]:
    def other(now: AsItIs) -> Other:
        if now.site.deployment.weights.startswith(word) or now.site.ask.weights == word:
            raise Pointless("it is so already")
        return Other(ask=replace(now.site.ask, weights=word), loaded=now.loaded)

    return other


def _kv(now: AsItIs) -> Other:
    if now.site.form.element_bits <= _BYTE_BITS:
        raise Pointless("the cache has 8 bit or fewer already")
    word = "q8_0" if now.site.deployment.rules.engine == "llama.cpp" else "fp8"
    return Other(ask=replace(now.site.ask, kv_dtypes=(word,)), loaded=now.loaded)


def _memory(now: AsItIs) -> Other:
    fraction = now.site.deployment.fraction
    if fraction is None:
        raise Pointless("the engine has no such fraction")
    if fraction >= _MOST_MEMORY:
        raise Pointless(f"it has {fraction:g} already")
    return Other(ask=replace(now.site.ask, memory_fraction=more_memory(fraction)), loaded=now.loaded)


def _more_sequences(now: AsItIs) -> Other:
    return Other(ask=replace(now.site.ask, max_num_seqs=2 * now.site.deployment.max_num_seqs), loaded=now.loaded)


def _fewer_clients(now: AsItIs) -> Other:
    clients, room = now.loaded.offers[-1].concurrency, int(now.run.server.num_fitting)
    if clients is None or room < 1:
        raise Pointless("it adds waiting, and saves the work that preemptions throw away (infcalc simulate)")
    if clients <= room:
        raise Pointless(f"all {clients:,} are predicted to find room")
    loaded = _with_offers(now.loaded, lambda one: replace(one, concurrency=room))
    why = f"{room:,} for {clients:,} clients; the work that preemptions throw away is not priced (infcalc simulate)"
    return Other(ask=now.site.ask, loaded=loaded, why=why)


def _twice_the_gpus(now: AsItIs) -> Other:
    ranks = now.site.deployment.parallelism
    ask = replace(now.site.ask, tp=2 * ranks.tp, num_gpus=2 * ranks.num_gpus, pp=ranks.pp, dp=ranks.dp)
    return Other(ask=ask, loaded=now.loaded)


def _replica(now: AsItIs) -> Other:
    counts = [one.concurrency or one.batch or one.num_requests for one in now.loaded.offers]
    if any(count == 1 for count in counts):
        raise Pointless("one request at a time has no half")
    return Other(ask=now.site.ask, loaded=_with_offers(now.loaded, _halved), num_servers=2)


def _halved(offer: Offer) -> Offer:
    def half(count: int | None) -> int | None:
        return None if count is None else max(1, count // 2)

    return replace(
        offer,
        concurrency=half(offer.concurrency),
        batch=half(offer.batch),
        num_requests=half(offer.num_requests),
        requests_per_s=None if offer.requests_per_s is None else offer.requests_per_s / 2,
    )


def larger_budget_tokens(site: Site) -> int:
    """Return the next budget of a step to try: the engine's own default where it has less, else twice what it has."""
    from infcalc.api.deployment import resolve  # noqa: PLC0415 - only here

    now = site.deployment.max_num_batched_tokens
    default = 0
    if site.ask.max_num_batched_tokens is not None:
        (other,) = resolve(replace(site.ask, max_num_batched_tokens=None), site.catalog)
        default = other.max_num_batched_tokens
    return max(2 * now, default)


def _budget(tokens_of: Callable[[Site], int]) -> Callable[[AsItIs], Other]:
    def other(now: AsItIs) -> Other:
        deployment = now.site.deployment
        tokens = tokens_of(now.site)
        if tokens < deployment.max_num_seqs:
            raise Pointless(f"{tokens:,} tokens per step are fewer than its {deployment.max_num_seqs:,} sequences")
        steps = " -> ".join(
            format_seconds(_full_step_s(now.run, budget)) for budget in (deployment.max_num_batched_tokens, tokens)
        )
        return Other(
            ask=replace(now.site.ask, max_num_batched_tokens=tokens),
            loaded=now.loaded,
            why=f"a step full of a prompt takes {steps}: the longest gaps between tokens",
        )

    return other


def _full_step_s(run: Run, budget_tokens: int) -> float:
    """Return the seconds of a step of which a piece of a prompt fills what decodes leave."""
    lane = max(1.0, run.speed.num_decodes / run.server.num_lanes)
    return float(
        run.server.clock.step_s(
            num_decodes=lane,
            context_tokens=run.asked.live_tokens,
            num_prefills=1,
            new_tokens=max(1.0, min(budget_tokens - lane, run.asked.prompt_tokens)),
            cached_tokens=run.asked.cached_tokens,
        )
    )


def _graphs(now: AsItIs) -> Other:
    if not now.eager:
        raise Pointless("no file says that it runs without them")
    return Other(ask=replace(now.site.ask, enforce_eager=False), loaded=now.loaded)


def _smaller_tp(now: AsItIs) -> Other:
    tp = now.site.deployment.parallelism.tp
    if tp < 2 or tp % 2:  # noqa: PLR2004 - halves
        raise Pointless("its ranks cannot be halved")
    halved = _replica(now)
    return replace(halved, ask=replace(now.site.ask, tp=tp // 2, num_gpus=None))


def _stages(now: AsItIs) -> Other:
    tp, pp = stages_of(now.site.deployment)
    if pp == now.site.deployment.parallelism.pp:
        raise Pointless("there is nothing to split by layers")
    return Other(ask=replace(now.site.ask, tp=tp, pp=pp, num_gpus=None), loaded=now.loaded)


def _half_cached(now: AsItIs) -> Other:
    if all(one.prefix_hit_fraction >= _HALF for one in now.loaded.offers):
        raise Pointless("half of each prompt is found already")
    loaded = _with_offers(now.loaded, lambda one: replace(one, prefix_hit_fraction=max(_HALF, one.prefix_hit_fraction)))
    return Other(ask=now.site.ask, loaded=loaded, why="if half of each prompt were found")


def _no_offload(now: AsItIs) -> Other:
    if not now.site.deployment.cpu_offload_bytes:
        raise Pointless("nothing is offloaded")
    return Other(ask=replace(now.site.ask, cpu_offload_bytes=0), loaded=now.loaded)


_CHANGES: Final[Mapping[Change, Callable[[AsItIs], Other]]] = {
    Change.KV_FP8: _kv,
    Change.MORE_MEMORY: _memory,
    Change.MORE_SEQUENCES: _more_sequences,
    Change.FEWER_CLIENTS: _fewer_clients,
    Change.TWICE_THE_GPUS: _twice_the_gpus,
    Change.REPLICA: _replica,
    Change.WEIGHTS_FP8: _weights("fp8"),
    Change.WEIGHTS_INT4: _weights("awq"),
    Change.WEIGHTS_16: _weights("bf16"),
    Change.BUDGET_RAISED: _budget(larger_budget_tokens),
    Change.BUDGET_HALVED: _budget(lambda site: site.deployment.max_num_batched_tokens // 2),
    Change.GRAPHS: _graphs,
    Change.SMALLER_TP: _smaller_tp,
    Change.STAGES: _stages,
    Change.HALF_CACHED: _half_cached,
    Change.NO_OFFLOAD: _no_offload,
}
