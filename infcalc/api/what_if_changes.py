"""What each feature changes in a question; what it cannot be turned on for, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.disaggregation_ask import Beside, PoolsAsk
from infcalc.api.drafting import DraftAsk, speculate
from infcalc.api.what_if_nouns import Feature
from infcalc.errors import UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from infcalc.api.deployment import Ask, Deployment
    from infcalc.api.simulation_ask import SimulationAsk

    _Changing: TypeAlias = Callable[["Side", Deployment], "Change"]


@frozen
class Side:
    """One side of a comparison: a deployment, a load on it, and its GPUs in all."""

    ask: Ask
    asked: SimulationAsk
    num_gpus: int


@frozen
class Change:
    """A feature on: ``on`` against ``off``; ``told`` says what was chosen."""

    off: Side
    on: Side
    told: str = ""


class NotHere(UsageError):
    """A feature that this deployment or load has no use for."""


def change_of(feature: Feature, now: Side, deployment: Deployment) -> Change:
    """Return both sides of a feature that is simulated; ``now`` is the deployment as it is.

    Raises:
        NotHere: it cannot be turned on, with the reason.

    """
    return _CHANGES[feature](now, deployment)


def _weights(word: str) -> _Changing:
    return lambda now, _: Change(off=now, on=replace(now, ask=replace(now.ask, weights=word)))


def _kv(word: str) -> _Changing:
    return lambda now, _: Change(off=now, on=replace(now, ask=replace(now.ask, kv_dtypes=(word,))))


def _policy(word: str, *, contiguous: bool = False) -> _Changing:
    def changed(now: Side, deployment: Deployment) -> Change:
        del deployment
        return Change(off=now, on=replace(now, asked=replace(now.asked, policy=word, contiguous=contiguous)))

    return changed


def _expert_parallel(now: Side, deployment: Deployment) -> Change:
    parallelism = deployment.parallelism
    ranks = parallelism.tp * parallelism.dp
    if not deployment.model.has_experts or ranks == 1:
        raise _not_here("needs a mixture of experts on several GPUs")
    if parallelism.ep > 1:
        raise _not_here(f"experts are spread over {parallelism.ep} ranks already")
    return Change(off=now, on=replace(now, ask=replace(now.ask, ep=ranks)))


def _dp_attention(now: Side, deployment: Deployment) -> Change:
    parallelism = deployment.parallelism
    if parallelism.tp == 1 or not deployment.model.has_experts:
        raise _not_here("needs a mixture of experts under TP: a dense model has replicas for that")
    ranks = parallelism.tp * parallelism.dp
    spread = replace(now.ask, num_gpus=ranks * parallelism.pp, tp=1, dp=ranks, ep=ranks)
    return Change(off=now, on=replace(now, ask=spread))


def _not_here(why: str) -> NotHere:
    return NotHere(why, place="--feature")


def _prefix_cache(now: Side, deployment: Deployment) -> Change:
    del deployment
    load = now.asked.load
    if load.file is None and load.shared_prefix is None and load.turns is None:
        raise _not_here(
            "no prompt of this load shares anything: say --shared-prefix tokens=1000, --turns 4, or a trace"
        )
    off = replace(now, asked=replace(now.asked, prefix_caching=False))
    return Change(off=off, on=replace(now, asked=replace(now.asked, prefix_caching=True)))


def _speculation(now: Side, deployment: Deployment) -> Change:
    del deployment
    batch = max(1, (now.asked.load.num_clients or 1) // (now.asked.num_replicas or 1))
    rows = speculate(now.ask, DraftAsk(batch=batch)).result.rows
    if not rows:
        raise _not_here("no published way of drafting is known for it")
    best = max(rows, key=lambda row: row.speedup)
    draft = DraftAsk(methods=(best.method,), num_draft_tokens=best.num_draft_tokens)
    told = f"{best.method} with {best.num_draft_tokens} drafts, the best published way at batch {batch}"
    return Change(off=now, on=replace(now, asked=replace(now.asked, draft=draft)), told=told)


def _tp_doubled(now: Side, deployment: Deployment) -> Change:
    parallelism = deployment.parallelism
    wider = replace(
        now.ask, tp=2 * parallelism.tp, num_gpus=2 * parallelism.num_gpus, pp=parallelism.pp, dp=parallelism.dp
    )
    number = now.asked.num_replicas or 1
    if number % 2 == 0:
        return Change(
            off=now, on=replace(now, ask=wider, asked=replace(now.asked, num_replicas=number // 2)), told="as many GPUs"
        )
    both = 2 * now.num_gpus
    off = replace(now, asked=replace(now.asked, num_replicas=2 * number), num_gpus=both)
    return Change(off=off, on=replace(now, ask=wider, num_gpus=both), told=f"{both} GPUs on either side, the same load")


def _disaggregation(now: Side, deployment: Deployment) -> Change:
    number, parallelism = now.asked.num_replicas or 1, deployment.parallelism
    if parallelism.pp > 1 or parallelism.dp > 1:
        raise _not_here("pools of replicas with PP or DP are not weighed here: simulate --prefill-replicas does")
    if number > 1:
        # Decode takes most of the time of most loads; simulate tries others.
        first = max(1, number // 4)
        pools = PoolsAsk(num_prefill=first, num_decode=number - first, beside=Beside.NONE)
        told = f"{first} replicas for prefill and {number - first} for decode"
    elif parallelism.tp > 1:
        half = parallelism.tp // 2
        pools = PoolsAsk(num_prefill=1, num_decode=1, prefill_tp=half, decode_tp=half, beside=Beside.NONE)
        told = f"one replica of TP {half} for each"
    else:
        raise _not_here("one GPU has no second for decode: --replicas 2")
    return Change(off=now, on=replace(now, asked=replace(now.asked, num_replicas=None, pools=pools)), told=told)


def _chunk(now: Side, deployment: Deployment, times: float) -> Change:
    tokens = deployment.max_num_batched_tokens
    chosen = int(times * tokens)
    least = deployment.max_num_seqs
    if chosen < least:
        raise _not_here(f"{chosen} tokens per step are fewer than its {least} sequences")
    on = replace(now, ask=replace(now.ask, max_num_batched_tokens=chosen))
    return Change(off=now, on=on, told=f"{chosen:,} for {tokens:,} tokens per step")


_CHANGES: Mapping[Feature, _Changing] = {
    Feature.FP8_WEIGHTS: _weights("fp8"),
    Feature.INT4_WEIGHTS: _weights("awq"),
    Feature.FP8_KV: _kv("fp8"),
    Feature.INT4_KV: _kv("int4"),
    Feature.PREFIX_CACHE: _prefix_cache,
    Feature.SPECULATION: _speculation,
    Feature.TP_DOUBLED: _tp_doubled,
    Feature.EXPERT_PARALLEL: _expert_parallel,
    Feature.DP_ATTENTION: _dp_attention,
    Feature.DISAGGREGATION: _disaggregation,
    Feature.CHUNK_HALVED: lambda now, deployment: _chunk(now, deployment, 0.5),
    Feature.CHUNK_DOUBLED: lambda now, deployment: _chunk(now, deployment, 2.0),
    Feature.STATIC_BATCHING: _policy("static"),
    Feature.CONTIGUOUS_KV: _policy("continuous", contiguous=True),
}
"""Of the features that are simulated."""
