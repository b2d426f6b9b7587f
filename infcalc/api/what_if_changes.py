"""What each feature changes in a question; what it cannot be turned on for, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.replicas import Policy, drafts_simulated
from infcalc.api.simulation_ask import policies_for
from infcalc.api.what_if_drafting import best_way
from infcalc.api.what_if_nouns import Feature
from infcalc.api.what_if_pools import best_of_both
from infcalc.engines.precisions import Status
from infcalc.engines.verdicts import cache_kind, kv_verdict, weights_verdict
from infcalc.errors import UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from infcalc.api.deployment import Ask, Deployment
    from infcalc.api.simulation_ask import SimulationAsk
    from infcalc.api.what_if_runs import Runs, Seen
    from infcalc.engines.verdicts import Verdict

    _Changing: TypeAlias = Callable[["Side", "Here"], "Change"]


@frozen
class Side:
    """One side of a comparison: a deployment, a load on it, and its GPUs in all."""

    ask: Ask
    asked: SimulationAsk
    num_gpus: int


@frozen
class Here:
    """What a change is made to: the deployment as it is, and its requests, whose clients may wait for answers."""

    deployment: Deployment
    seen: Seen
    num_lanes: int
    waits: bool
    runs: Runs


@frozen
class Change:
    """A feature on: ``on`` against ``off``; ``told`` says what was chosen.

    ``crowds``: it changes how many answers are under way at once.
    """

    off: Side
    on: Side
    told: str = ""
    crowds: bool = False


class NotHere(UsageError):
    """A feature that this deployment or load has no use for."""


def change_of(feature: Feature, now: Side, here: Here) -> Change:
    """Return both sides of a feature that is simulated; ``now`` is the deployment as it is.

    Raises:
        NotHere: it cannot be turned on, with the reason.

    """
    return _CHANGES[feature](now, here)


def _weights(word: str) -> _Changing:
    def changed(now: Side, here: Here) -> Change:
        rules, gpu = here.deployment.rules, here.deployment.gpu
        told = _runs(weights_verdict(rules.engine, rules.version, gpu, word))
        return Change(off=now, on=replace(now, ask=replace(now.ask, weights=word)), told=told)

    return changed


def _kv(word: str) -> _Changing:
    def changed(now: Side, here: Here) -> Change:
        rules, gpu = here.deployment.rules, here.deployment.gpu
        told = _runs(kv_verdict(rules.engine, rules.version, gpu, word, cache=cache_kind(here.deployment.model)))
        return Change(off=now, on=replace(now, ask=replace(now.ask, kv_dtypes=(word,))), told=told)

    return changed


def _runs(verdict: Verdict) -> str:
    """Return what is to be told of a precision that runs; it is not weighed where the engine has no kernels for it.

    Raises:
        NotHere: it does not run.

    """
    if verdict.status is Status.UNSUPPORTED:
        raise _not_here(verdict.text)
    return "" if verdict.status is Status.SUPPORTED else verdict.text


def _policy(word: str, told: str, *, contiguous: bool = False) -> _Changing:
    def changed(now: Side, here: Here) -> Change:
        del here
        on = replace(now, asked=replace(now.asked, policy=word, contiguous=contiguous))
        return Change(off=now, on=on, told=told, crowds=True)

    return changed


def _expert_parallel(now: Side, here: Here) -> Change:
    parallelism = here.deployment.parallelism
    ranks = parallelism.tp * parallelism.dp
    if not here.deployment.model.has_experts or ranks == 1:
        raise _not_here("needs a mixture of experts on several GPUs")
    return Change(off=now, on=replace(now, ask=replace(now.ask, ep=ranks)))


def _dp_attention(now: Side, here: Here) -> Change:
    parallelism = here.deployment.parallelism
    ranks = parallelism.tp * parallelism.dp
    if ranks == 1 or not here.deployment.model.has_experts:
        raise _not_here("needs a mixture of experts on several GPUs: a dense model has replicas for that")
    spread = replace(now.ask, num_gpus=ranks * parallelism.pp, tp=1, dp=ranks, ep=ranks)
    told = "ranks step together, so that all wait for the prompts of one"
    return Change(off=now, on=replace(now, ask=spread), told=told)


def _not_here(why: str) -> NotHere:
    return NotHere(why, place="--feature")


def _prefix_cache(now: Side, here: Here) -> Change:
    load = now.asked.load
    if load.file is None and load.shared_prefix is None and load.turns is None:
        turns = "" if here.waits else " --turns 4,"
        raise _not_here(f"no prompt of this load shares anything: say --shared-prefix tokens=1000,{turns} or a trace")
    off = replace(now, asked=replace(now.asked, prefix_caching=False))
    return Change(off=off, on=replace(now, asked=replace(now.asked, prefix_caching=True)))


def _speculation(now: Side, here: Here) -> Change:
    found = best_way(now, here)
    if found is None:
        raise _not_here("no published way of drafting is known for it")
    draft, told = found
    off = now
    engine = here.deployment.rules.engine
    if now.asked.policy is None and not drafts_simulated(policies_for(now.asked, engine)[0]):
        off = replace(now, asked=replace(now.asked, policy=Policy.VLLM))
        told += f", on both sides by the scheduler of vLLM, for that of {engine} does not draft here"
    return Change(off=off, on=replace(off, asked=replace(off.asked, draft=draft)), told=told)


def _tp_doubled(now: Side, here: Here) -> Change:
    parallelism = here.deployment.parallelism
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


def _disaggregation(now: Side, here: Here) -> Change:
    parallelism = here.deployment.parallelism
    if parallelism.pp > 1 or parallelism.dp > 1:
        raise _not_here("pools of replicas with PP or DP are not weighed here: simulate --prefill-replicas does")
    if now.num_gpus == 1:
        raise _not_here("one GPU has no second for decode: --replicas 2")
    found = best_of_both(now, here)
    if isinstance(found, str):
        raise _not_here(found)
    off, on, told = found
    return Change(off=off, on=on, told=told)


def _chunk(now: Side, here: Here, times: float) -> Change:
    tokens = here.deployment.max_num_batched_tokens
    chosen = int(times * tokens)
    least = here.deployment.max_num_seqs
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
    Feature.CHUNK_HALVED: lambda now, here: _chunk(now, here, 0.5),
    Feature.CHUNK_DOUBLED: lambda now, here: _chunk(now, here, 2.0),
    Feature.STATIC_BATCHING: _policy("static", "a batch starts with who waits when the last has ended"),
    Feature.CONTIGUOUS_KV: _policy("continuous", "and no prefix cache", contiguous=True),
}
"""Of the features that are simulated."""
