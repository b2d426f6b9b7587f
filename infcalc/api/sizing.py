"""How big is the KV cache, and how many sequences of it fit?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import MAX_TOKENS, Ask, Deployment, kv_format, load, merged_inputs, resolve
from infcalc.api.slots import slots_of
from infcalc.engines.rules import FractionBase
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.memory.blocks import Settings, stream_cells
from infcalc.memory.budget import Budget, Room, budgets, room
from infcalc.memory.kv import (
    KvComponent,
    constant_bytes,
    grouped_bytes_per_token,
    kv_components,
    mha_bytes_per_token,
    sequence_bytes,
    slope_bytes_per_token,
)
from infcalc.spec.explain import Explanation, Input
from infcalc.units import KIB, format_bytes

if TYPE_CHECKING:
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.parallelism import Parallelism

DEFAULT_CONTEXTS = (4 * KIB, 32 * KIB, 128 * KIB)


@frozen
class KvPart:
    """One part of the cache of one sequence, whole model: see :class:`infcalc.memory.kv.KvComponent`."""

    kind: str
    layers: int
    bytes_per_token: int | float
    window_tokens: int | None
    max_bytes: int | None


@frozen
class KvRow:
    """The cache of one sequence of ``context_tokens``, and how many such sequences fit by memory alone."""

    context_tokens: int
    kv_bytes: int
    """Whole model, unsharded."""
    kv_bytes_per_gpu: int
    """On the GPU that holds most of it."""
    kv_bytes_cluster: int
    """Over all GPUs of the replica, replicated heads and latents included."""
    sequences: int
    sequences_low: int
    sequences_high: int


@frozen
class KvResult:
    """KV cache of one model at one precision. ``kv_bytes_per_token`` is the slope beyond every window."""

    model: str
    gpu: str
    num_gpus: int
    kv_dtype: str
    kv_dtype_note: str
    kv_bytes_per_token: int | float
    kv_bytes_per_token_per_gpu: int | float
    kv_bytes_per_request: int
    kv_components: tuple[KvPart, ...]
    mha_kv_bytes_per_token: int
    gqa_saving_factor: float | None
    kv_pool_bytes: int
    """KV pool of the governing GPU."""
    max_num_seqs: int
    """The engine's own cap on running sequences; never folded into ``sequences``."""
    rows: tuple[KvRow, ...]


def kv(ask: Ask | None = None, *, contexts: tuple[int, ...] = (), explain: bool = False) -> Answer[KvResult]:
    """Return the KV cache of the asked deployments at the asked context lengths (tokens; 4k, 32k, 128k by default).

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask = ask or Ask()
    context_origin = "given (--context)" if contexts else "default"
    contexts = check_contexts(contexts) or DEFAULT_CONTEXTS
    results: list[KvResult] = []
    notes: list[str] = []
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    pairs: list[tuple[Deployment, KvResult]] = []
    for asked in resolve(ask, load(ask)):
        deployment, unstarted = startable(asked)
        check_model_len(deployment)
        stages = deployment_budgets(deployment)
        notes += deployment.assumptions
        talk += [*deployment.warnings, *context_warnings(deployment, contexts), *room_warnings(deployment, stages)]
        talk += [*unstarted, *fraction_warnings(deployment, stages)]
        for word in ask.kv_dtypes or (None,):
            form, origin, said = kv_format(deployment, word)
            talk += said
            rooms = _rooms(deployment, form, stages, contexts)
            result = _result(deployment, form, stages, rooms)
            talk += _tight(deployment, form, stages, rooms, 1)
            results.append(result)
            pairs.append((deployment, result))
            notes.append(budget_note(deployment, stages[rooms[contexts[0]].stage]))
            inputs.append(
                (
                    *deployment.inputs,
                    Input(name="kv_dtype", value=form.name, origin=origin, source=form.note),
                    Input(name="contexts", value=contexts, origin=context_origin),
                )
            )
    explanations: tuple[Explanation, ...] = ()
    if explain:
        from infcalc.api.explaining import explain_kv  # noqa: PLC0415 - only when asked

        explanations = tuple(text for deployment, result in pairs for text in explain_kv(deployment, result))
    return Answer(
        command="kv",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=explanations,
    )


def check_contexts(contexts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the contexts, each once.

    Raises:
        UsageError: one is not a positive number of tokens.

    """
    for context in contexts:
        if not 1 <= context <= MAX_TOKENS:
            raise UsageError(
                f"{context} tokens", place="--context", hint="a whole number of tokens, such as 4096 or 4k"
            )
    return tuple(dict.fromkeys(contexts))


def deployment_budgets(
    deployment: Deployment, *, settings: Settings | None = None, flash: bool | None = None
) -> tuple[Budget, ...]:
    """Return the memory budget of each pipeline stage of a deployment.

    ``settings``: other pages than its own; ``flash``: whether attention holds no scores (None: not known).
    """
    pages = settings or page_settings(deployment)
    return budgets(
        deployment.model,
        deployment.gpu,
        deployment.parallelism,
        deployment.rules,
        fraction=deployment.fraction,
        quantization=deployment.quantization,
        max_num_seqs=deployment.max_num_seqs,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        additions=deployment.additions,
        score_cells=stream_cells(deployment.max_model_len, pages),
        flash=flash,
    )


def page_settings(deployment: Deployment) -> Settings:
    """Return what of a deployment shapes the pages of its cache."""
    slots = slots_of(deployment)
    return Settings(
        block_tokens=deployment.block_tokens,
        max_model_len=deployment.max_model_len,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        num_draft_tokens=deployment.num_draft_tokens,
        with_mtp=deployment.with_mtp,
        draft_layers=deployment.draft_layers,
        dcp=deployment.parallelism.dcp,
        num_slots=1 if slots is None else slots.num_slots,
        unified_cache=slots is None or slots.unified_cache,
    )


def check_model_len(deployment: Deployment) -> None:
    """Refuse a longest sequence beyond what the model was made for: engines do, too.

    Raises:
        UsageError: ``max_model_len`` is beyond the model's.

    """
    limit = deployment.model.max_context_tokens
    if limit is not None and deployment.max_model_len > limit:
        raise UsageError(
            f"{deployment.max_model_len:,} tokens: {deployment.model.name} was made for {limit:,}",
            place="--max-model-len",
            hint=f"at most {limit}; use --context to size a longer sequence, or a config.json with RoPE scaling",
        )


def fitting_room(deployment: Deployment, form: KvFormat, stages: tuple[Budget, ...], context: int) -> Room:
    """Return how many sequences of ``context`` tokens fit, and the stage that decides."""
    return room(
        deployment.model,
        form,
        deployment.parallelism,
        stages,
        rules=deployment.rules,
        settings=page_settings(deployment),
        context_tokens=context,
    )


def budget_note(deployment: Deployment, budget: Budget) -> str:
    """Return in one sentence what the pool of the governing GPU was made of."""
    rules = deployment.rules
    share = "no fraction" if deployment.fraction is None else f"{rules.fraction_flag} {deployment.fraction:g}"
    return (
        f"{deployment.model.name} on {deployment.gpu.name}: KV pool per GPU {format_bytes(budget.kv_pool_bytes)} "
        f"({format_bytes(budget.kv_pool_low_bytes)} to {format_bytes(budget.kv_pool_high_bytes)}): CUDA total "
        f"{format_bytes(deployment.gpu.cuda_total_bytes)}, {share} ({rules.fraction_base.value}), weights "
        f"{format_bytes(budget.weights_bytes)} exact, activation {format_bytes(budget.activation.value_bytes)}, "
        f"buffers {format_bytes(budget.non_torch.value_bytes)}, CUDA graphs {format_bytes(budget.cuda_graph_bytes)} "
        f"({rules.engine} {rules.version}; modelled)"
    )


def context_warnings(deployment: Deployment, contexts: tuple[int, ...]) -> list[str]:
    """Return a warning when a context is longer than the model was made for."""
    own = deployment.model.max_context_tokens
    if own is None:
        return []
    limit = min(own, deployment.max_model_len)
    beyond = [context for context in contexts if context > limit]
    if not beyond:
        return []
    lengths = ", ".join(f"{context:,}" for context in beyond)
    if limit < own:
        return [f"--max-model-len admits {limit:,} tokens; {lengths} is beyond it (sizes are still right)"]
    return [f"{deployment.model.name} was made for {limit:,} tokens; {lengths} is beyond it (sizes are still right)"]


def fraction_warnings(deployment: Deployment, stages: tuple[Budget, ...]) -> list[str]:
    """Return a warning where a fraction leaves too little of the card for the engine to start or to run."""
    rules, fraction = deployment.rules, deployment.fraction
    if fraction is None:
        return []
    total = deployment.gpu.cuda_total_bytes
    found: list[str] = []
    for budget in stages:
        left = round((total - budget.non_torch.value_bytes) * (1 - fraction))
        flag = f"{rules.fraction_flag} {fraction:g}"
        if _asks_too_much(deployment, budget):
            found.append(
                f"{flag} asks for {format_bytes(total * fraction)} of {format_bytes(total)}, of which context and "
                f"buffers take at least {format_bytes(budget.non_torch.low_bytes)}: {rules.engine} does not start"
            )
        elif rules.fraction_base is FractionBase.FREE_BEFORE_WEIGHTS and left < budget.activation.value_bytes:
            found.append(
                f"{flag} leaves {format_bytes(left)} outside the static part, and the activation takes some "
                f"{format_bytes(budget.activation.value_bytes)}: {rules.engine} runs out of memory under load"
            )
    return list(dict.fromkeys(found))


def startable(deployment: Deployment) -> tuple[Deployment, list[str]]:
    """Return the deployment with a fraction that is free at the start, and a warning where the asked one is not."""
    stages = deployment_budgets(deployment)
    fraction = startable_fraction(deployment, stages)
    if fraction is None or fraction <= 0:
        return deployment, []
    assumed = f"{deployment.rules.fraction_flag} {fraction:g}"
    said = [f"{text}; {assumed} assumed here" for text in fraction_warnings(deployment, stages)]
    inputs = tuple(
        replace(item, value=fraction, origin=f"the highest that starts; {item.value:g} {item.origin}")
        if item.name == "memory_fraction"
        else item
        for item in deployment.inputs
    )
    return replace(deployment, fraction=fraction, inputs=inputs), said


def startable_fraction(deployment: Deployment, stages: tuple[Budget, ...]) -> float | None:
    """Return the highest fraction, in hundredths, that may start; None where the one that is taken may."""
    if not any(_asks_too_much(deployment, budget) for budget in stages):
        return None
    taken = max(budget.non_torch.low_bytes for budget in stages)
    return math.floor(100 * (1 - taken / deployment.gpu.cuda_total_bytes)) / 100


def _asks_too_much(deployment: Deployment, budget: Budget) -> bool:
    """Return whether an engine that checks its share of the total for being free surely finds it is not."""
    if deployment.fraction is None or deployment.rules.fraction_base is not FractionBase.TOTAL:
        return False
    return deployment.gpu.cuda_total_bytes * (1 - deployment.fraction) < budget.non_torch.low_bytes


def room_warnings(deployment: Deployment, stages: tuple[Budget, ...]) -> list[str]:
    """Return a warning when weights and overheads leave nothing for KV."""
    worst = max(stages, key=lambda stage: stage.missing_bytes)
    if worst.missing_bytes == 0:
        return []
    text = (
        f"{deployment.model.name} in {deployment.weights} does not fit on {deployment.parallelism.num_gpus} x "
        f"{deployment.gpu.name}: {format_bytes(worst.missing_bytes)} per GPU are missing before any KV"
    )
    return [text]


def batch_warnings(
    deployment: Deployment, form: KvFormat, stages: tuple[Budget, ...], contexts: tuple[int, ...], batch: int = 1
) -> list[str]:
    """Return a warning for the contexts at which not even ``batch`` sequences fit (see :func:`room_warnings` too)."""
    return _tight(deployment, form, stages, _rooms(deployment, form, stages, contexts), batch)


def _rooms(
    deployment: Deployment, form: KvFormat, stages: tuple[Budget, ...], contexts: tuple[int, ...]
) -> dict[int, Room]:
    return {context: fitting_room(deployment, form, stages, context) for context in contexts}


def _tight(
    deployment: Deployment, form: KvFormat, stages: tuple[Budget, ...], rooms: dict[int, Room], batch: int
) -> list[str]:
    if any(stage.missing_bytes for stage in stages):
        return []
    found: list[str] = []
    for context, fits in rooms.items():
        if fits.sequences < batch:
            one = "not one sequence" if fits.sequences == 0 else f"only {fits.sequences:,} sequences"
            verb = "fit" if fits.sequences > 1 else "fits"
            found.append(
                f"{deployment.model.name}, KV in {form.name}: {one} of {context:,} tokens {verb} in the KV pool: each "
                f"takes {format_bytes(fits.kv_bytes_per_gpu)} per GPU of "
                f"{format_bytes(stages[fits.stage].least_pool_bytes)}"
            )
    return found


def _result(deployment: Deployment, form: KvFormat, stages: tuple[Budget, ...], rooms: dict[int, Room]) -> KvResult:
    model, parallelism = deployment.model, deployment.parallelism
    with_mtp = deployment.with_mtp
    whole = kv_components(model, form, with_mtp=with_mtp)
    shares = tuple(
        kv_components(model, form, parallelism=parallelism, stage=stage, with_mtp=with_mtp)
        for stage in range(parallelism.pp)
    )
    mha = mha_bytes_per_token(model, form)
    grouped = grouped_bytes_per_token(whole)
    return KvResult(
        model=model.name,
        gpu=deployment.gpu.name,
        num_gpus=parallelism.num_gpus,
        kv_dtype=form.name,
        kv_dtype_note=form.note,
        kv_bytes_per_token=slope_bytes_per_token(whole),
        kv_bytes_per_token_per_gpu=_shared(max(slope_bytes_per_token(parts) for parts in shares), parallelism.dcp),
        kv_bytes_per_request=constant_bytes(whole),
        kv_components=tuple(_part(component) for component in whole),
        mha_kv_bytes_per_token=mha,
        gqa_saving_factor=mha / grouped if grouped else None,
        kv_pool_bytes=stages[next(iter(rooms.values())).stage].kv_pool_bytes,
        max_num_seqs=deployment.max_num_seqs,
        rows=tuple(_row(parallelism, whole, shares, context, fits) for context, fits in rooms.items()),
    )


def _row(
    parallelism: Parallelism,
    whole: tuple[KvComponent, ...],
    shares: tuple[tuple[KvComponent, ...], ...],
    context: int,
    fits: Room,
) -> KvRow:
    per_rank = -(-context // parallelism.dcp)
    held = [sequence_bytes(parts, per_rank) for parts in shares]
    return KvRow(
        context_tokens=context,
        kv_bytes=sequence_bytes(whole, context),
        kv_bytes_per_gpu=max(held),
        kv_bytes_cluster=sum(held) * parallelism.tp,
        sequences=fits.sequences,
        sequences_low=fits.sequences_low,
        sequences_high=fits.sequences_high,
    )


def _shared(per_token: float, dcp: int) -> int | float:
    """Return bytes per token on one of the ranks that split a sequence by position."""
    return per_token // dcp if per_token % dcp == 0 else per_token / dcp


def _part(component: KvComponent) -> KvPart:
    return KvPart(
        kind=component.kind.value,
        layers=component.layers,
        bytes_per_token=component.bytes_per_token,
        window_tokens=component.window_tokens,
        max_bytes=component.max_bytes,
    )
