"""Does speculative decoding pay, and with how many draft tokens?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, Deployment, kv_format, load, merged_inputs, resolve, single_kv_dtype
from infcalc.api.rounds import Passes, Rig, model_timer, passes_of, rig_of, target_timer
from infcalc.api.sizing import (
    batch_warnings,
    check_contexts,
    context_warnings,
    deployment_budgets,
    fitting_room,
    fraction_warnings,
    room_warnings,
    startable,
)
from infcalc.errors import UnknownName, UsageError
from infcalc.frozen import frozen
from infcalc.lowering.ops import mtp_as_model
from infcalc.lowering.tensors import check_divisible, inventory, parameters
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.memory.weights import weights_total_bytes
from infcalc.spec.explain import Input
from infcalc.spec.parallelism import Parallelism
from infcalc.speculation.linear import acceptance_of
from infcalc.speculation.priced import (
    MAX_BATCH,
    MemoryItem,
    SpeculationRow,
    draft_memory,
    drafting_of,
    explain_row,
    rows,
)
from infcalc.speculation.published import PROFILES, SMALL_DRAFT, SMALL_FRACTION, Method, method_of
from infcalc.units import KIB, format_bytes

if TYPE_CHECKING:
    from infcalc.catalog.lookup import Catalog
    from infcalc.memory.budget import Budget
    from infcalc.spec.draft import Draft
    from infcalc.spec.explain import Explanation
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.speculation.priced import Drafting
    from infcalc.speculation.published import Profile

DEFAULT_CONTEXT = 4 * KIB
DEFAULT_METHODS = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.NGRAM)
_MAX_BATCH = 2**20
_MAX_DRAFT_TOKENS = 1000
_WIDE = (Method.EAGLE3, Method.EAGLE3_TREE)
_NARROW = (Method.EAGLE, Method.EAGLE_TREE, Method.EAGLE2)
_HEAD_BYTES = 2
"""Draft heads are published in 16 bit."""
_NEAR = 3
"""Names of models and of heads that an unknown draft is told."""
_MAX_VOCABULARY_GAP = 0.01
"""Vocabularies that differ by less are taken for one with other padding."""


@frozen
class SpeculateResult:
    """One row per way of drafting, at its best (or the given) draft length, and what drafting adds to memory.

    ``memory`` is known for a named draft and for the target's own MTP layers, whose items then start with their name
    where there are both.
    """

    model: str
    gpu: str
    num_gpus: int
    batch: int
    context_tokens: int
    max_batch: int
    """Largest batch looked at for the break-even: the sequences that fit, where any do."""
    draft_model: str | None
    rows: tuple[SpeculationRow, ...]
    memory: tuple[MemoryItem, ...] = ()


@frozen
class DraftAsk:
    """What a user may say of drafting: methods, a draft model, a length, and how often drafts are accepted.

    ``draft_model`` is a draft head of the catalog or any model; it runs at the target's TP where that divides it.
    ``acceptance``: one number is uniform, several are unconditional survival rates by position, as vLLM prints them.
    """

    methods: tuple[str, ...] = ()
    draft_model: str | None = None
    num_draft_tokens: int | None = None
    acceptance: tuple[float, ...] = ()
    batch: int | None = None
    """Sequences in the target's step; None: one."""


def speculate(
    ask: Ask | None = None,
    draft: DraftAsk | None = None,
    *,
    contexts: tuple[int, ...] = (),
    explain: bool = False,
) -> Answer[SpeculateResult]:
    """Return tokens per round, speedup, best draft length and break-even batch of each way of drafting.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask, draft = ask or Ask(), draft or DraftAsk()
    checked = check_contexts(contexts) or (DEFAULT_CONTEXT,)
    if len(checked) > 1:
        raise UsageError(
            f"{len(checked)} contexts", place="--context", hint="speculate looks at one length: give one --context"
        )
    context = checked[0]
    _check(draft)
    catalog = load(ask)
    notes = [
        (
            "steps are those of `estimate`: measured kernels and what the engine adds to a step and to a round; "
            "acceptance is published, and a property of the task"
        )
    ]
    results: list[SpeculateResult] = []
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    explanations: list[Explanation] = []
    word = single_kv_dtype(ask)
    for asked in resolve(ask, catalog):
        deployment, unstarted = startable(asked)
        form, origin, said = kv_format(deployment, word)
        rig = rig_of(deployment, form, catalog.efficiency(deployment.gpu), context_tokens=context)
        drafters, doubts = _drafters(draft, rig, catalog)
        stages = deployment_budgets(deployment)
        result = _result(rig, draft, drafters=drafters, stages=stages)
        results.append(result)
        notes += deployment.assumptions
        talk += [
            *deployment.warnings,
            *said,
            *doubts,
            *context_warnings(deployment, (context,)),
            *room_warnings(deployment, stages),
            *unstarted,
            *fraction_warnings(deployment, stages),
            *batch_warnings(deployment, form, stages, (context,), result.batch),
            *_crowding(result, deployment, form, stages),
        ]
        inputs.append(
            (
                *deployment.inputs,
                Input(name="kv_dtype", value=form.name, origin=origin, source=form.note),
                Input(name="context", value=context, origin="given (--context)" if contexts else "reference scenario"),
                Input(name="batch", value=result.batch, origin="default" if draft.batch is None else "given (--batch)"),
                Input(
                    name="acceptance",
                    value=draft.acceptance or "published",
                    origin="given (--acceptance)" if draft.acceptance else "published, per method",
                ),
            )
        )
        if explain:
            explanations += [text for row in result.rows for text in explain_row(row)]
    return Answer(
        command="speculate",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
    )


def _crowding(result: SpeculateResult, deployment: Deployment, form: KvFormat, stages: tuple[Budget, ...]) -> list[str]:
    """Return a warning when what drafting adds exceeds what the batch leaves of the KV pool."""
    fits = fitting_room(deployment, form, stages, result.context_tokens).sequences
    if not result.memory or fits < result.batch:
        return []
    ranks = deployment.parallelism
    pool = sum(stage.kv_pool_bytes for stage in stages) * ranks.tp * ranks.dp
    left, added = pool * (1 - result.batch / fits), sum(item.num_bytes for item in result.memory)
    if added <= left:
        return []
    text = (
        f"drafting adds {format_bytes(added)}, and {result.batch:,} sequences leave {format_bytes(left)} of the KV "
        f"pool of {result.num_gpus} x {result.gpu}: it does not fit"
    )
    return [text]


def _check(draft: DraftAsk) -> None:
    if draft.batch is not None and not 1 <= draft.batch <= _MAX_BATCH:
        raise UsageError(f"{draft.batch} sequences", place="--batch", hint=f"a whole number from 1 to {_MAX_BATCH:,}")
    length = draft.num_draft_tokens
    if length is not None and not 1 <= length <= _MAX_DRAFT_TOKENS:
        raise UsageError(
            f"{length} draft tokens", place="--num-draft-tokens", hint=f"a whole number from 1 to {_MAX_DRAFT_TOKENS}"
        )


@frozen
class _Drafter:
    """A draft that is known by its weights, so that its steps and its memory can be priced."""

    name: str
    methods: tuple[Method, ...]
    passes: Passes
    parameters: int
    head: Draft | None = None
    weights_bytes: int
    weights_why: str
    kv_bytes_per_token: int | float


def _result(
    rig: Rig, draft: DraftAsk, *, drafters: tuple[_Drafter, ...], stages: tuple[Budget, ...]
) -> SpeculateResult:
    deployment, form, context = rig.deployment, rig.form, int(rig.context_tokens)
    fitting = fitting_room(deployment, form, stages, context).sequences
    batch = 1 if draft.batch is None else draft.batch
    # A batch that does not fit is no batch: the search for the break-even ends where memory does.
    max_batch = max(batch, min(MAX_BATCH, fitting)) if fitting else MAX_BATCH
    own = {method: drafter for drafter in drafters for method in drafter.methods}
    found = rows(
        tuple(_drafting(rig, method, draft, own.get(method)) for method in _methods(draft, deployment.model, drafters)),
        target_timer(rig),
        batch=batch,
        max_batch=max_batch,
    )
    return SpeculateResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        batch=batch,
        context_tokens=context,
        max_batch=max_batch,
        draft_model=next((one.name for one in drafters if Method.MTP not in one.methods), None),
        rows=found,
        memory=_memory(drafters, deployment, form, context, found),
    )


def _memory(
    drafters: tuple[_Drafter, ...],
    deployment: Deployment,
    form: KvFormat,
    context: int,
    found: tuple[SpeculationRow, ...],
) -> tuple[MemoryItem, ...]:
    """Return what each draft adds, at the length of its row; a draft that no row uses still would be loaded."""
    items: list[MemoryItem] = []
    for drafter in drafters:
        row = next((row for row in found if row.method in drafter.methods), found[0])
        added = draft_memory(
            draft_weights_bytes=drafter.weights_bytes,
            draft_kv_bytes_per_token=drafter.kv_bytes_per_token,
            target_kv_bytes_per_token=slope_bytes_per_token(kv_components(deployment.model, form)),
            vocab_size=deployment.model.vocab_size,
            batch=row.batch,
            context_tokens=context,
            num_draft_tokens=row.num_draft_tokens,
            weights_why=drafter.weights_why,
        )
        several = len(drafters) > 1
        items += [replace(item, name=f"{drafter.name}: {item.name}") if several else item for item in added]
    return tuple(items)


def _methods(draft: DraftAsk, model: Model, drafters: tuple[_Drafter, ...]) -> tuple[Method, ...]:
    if draft.methods:
        return tuple(dict.fromkeys(method_of(name) for name in draft.methods))
    if draft.draft_model is not None:
        return drafters[0].methods[:1]
    return (*DEFAULT_METHODS, *((Method.MTP,) if model.mtp is not None else ()))


def _drafters(draft: DraftAsk, rig: Rig, catalog: Catalog) -> tuple[tuple[_Drafter, ...], tuple[str, ...]]:
    """Return the named draft and the target's MTP layers, where they are asked for, and what is doubtful about them."""
    deployment = rig.deployment
    found: list[_Drafter] = []
    doubts: tuple[str, ...] = ()
    if draft.draft_model is not None:
        drafter, doubts = _named(draft.draft_model, rig, catalog)
        found.append(drafter)
    if Method.MTP in _methods(draft, deployment.model, tuple(found)):
        mtp = _mtp(rig)
        if mtp is not None:
            found.append(mtp)
        else:
            doubts = (*doubts, f"{deployment.model.name} is not known to have MTP layers: mtp is that of other models")
    return tuple(found), doubts


def _named(name: str, rig: Rig, catalog: Catalog) -> tuple[_Drafter, tuple[str, ...]]:
    """Return the draft called ``name``, a published head of the catalog or any model, and what is doubtful about it.

    Raises:
        UsageError: a draft model of another vocabulary.
        UnknownName: neither a head nor a model has the name.

    """
    try:
        head = catalog.draft(name)
    except UnknownName as no_head:
        from infcalc import files  # noqa: PLC0415 - opening files is only needed here

        try:
            model = files.load_model(catalog, name).model
        except UnknownName as no_model:
            near = tuple(dict.fromkeys((*no_model.nearest[:_NEAR], *no_head.nearest[:_NEAR])))
            made = _heads_for(rig.deployment, catalog)
            target = rig.deployment.model.name
            heads = f"draft heads for {target}: {', '.join(made)}" if made else f"no draft head for {target} is known"
            raise UnknownName("draft model or head", no_model.name, near, hint=heads) from None
        return _of_model(model, rig)
    return _of_head(head, rig, catalog)


def _of_model(model: Model, rig: Rig) -> tuple[_Drafter, tuple[str, ...]]:
    ranks, place = _ranks_of(model, rig.deployment.parallelism)
    drafter = _Drafter(
        name=model.name,
        methods=(Method.DRAFT_MODEL,),
        passes=Passes(timer=model_timer(rig, model, ranks), source=f"steps of {model.name} at {place}"),
        parameters=parameters(inventory(model)).total,
        weights_bytes=weights_total_bytes(model) * ranks.dp,
        weights_why=_beside(model.name, ranks),
        kv_bytes_per_token=slope_bytes_per_token(kv_components(model, rig.form)),
    )
    return drafter, _vocabulary_doubts(model, rig.deployment.model)


def _of_head(head: Draft, rig: Rig, catalog: Catalog) -> tuple[_Drafter, tuple[str, ...]]:
    deployment = rig.deployment
    held = head.core_parameters + head.lm_head_parameters
    ranks = Parallelism(tp=deployment.parallelism.tp, dp=deployment.parallelism.dp)
    methods = _WIDE if head.kind == "eagle3" else _NARROW
    drafter = _Drafter(
        name=head.name,
        methods=methods,
        passes=passes_of(rig, PROFILES[methods[0]], head),
        head=head,
        parameters=held,
        weights_bytes=held * _HEAD_BYTES * ranks.dp,
        weights_why=_beside(head.name, ranks),
        kv_bytes_per_token=rig.form.vector_bytes(head.kv_bytes_per_token_bf16 // _HEAD_BYTES),
    )
    if head.name in _heads_for(deployment, catalog):
        return drafter, ()
    made_for = ", ".join(head.targets) or "no model that is known"
    return drafter, (f"{head.name} was made for {made_for}: {deployment.model.name} is not among them",)


def _mtp(rig: Rig) -> _Drafter | None:
    """Return the target's own MTP layers as a draft: one of them runs per draft token, with the target's head."""
    deployment = rig.deployment
    model, quantization = deployment.model, deployment.quantization
    layer = mtp_as_model(replace(model, quantization=quantization))
    if model.mtp is None or layer is None:
        return None
    number = model.mtp.num_layers
    layers = "1 MTP layer" if number == 1 else f"{number} MTP layers"
    own = weights_total_bytes(model, quantization, with_mtp=True) - weights_total_bytes(model, quantization)
    return _Drafter(
        name=layer.name,
        methods=(Method.MTP,),
        passes=passes_of(rig, PROFILES[Method.MTP]),
        parameters=0,
        weights_bytes=own,
        weights_why=f"{layers} of {model.name}; embedding and head are the target's",
        kv_bytes_per_token=slope_bytes_per_token(
            part for part in kv_components(model, rig.form, with_mtp=True) if part.mtp
        ),
    )


def _ranks_of(model: Model, target: Parallelism) -> tuple[Parallelism, str]:
    """Return the ranks a draft model runs on: the target's TP, else the largest that divides both.

    Source: vLLM ``SpeculativeConfig._verify_and_get_draft_tp``, where an unset draft TP is that of the target.
    """
    refused: UsageError | None = None
    for tp in range(target.tp, 0, -1):
        if target.tp % tp == 0:
            ranks = Parallelism(tp=tp, dp=target.dp)
            try:
                check_divisible(model, ranks)
            except UsageError as error:
                refused = refused or error
            else:
                what = (
                    "the target's" if tp == target.tp else f"the largest that divides it (the target's is {target.tp})"
                )
                return ranks, f"TP {tp}, {what}"
    raise UsageError(
        f"{model.name} cannot draft on {target.tp * target.dp} ranks: {refused.message if refused else ''}",
        place="--draft-model",
        hint="take another draft model",
    )


def _beside(name: str, ranks: Parallelism) -> str:
    return f"{name}, loaded beside the target" + (f" on each of {ranks.dp} DP ranks" if ranks.dp > 1 else "")


def _vocabulary_doubts(draft: Model, target: Model) -> tuple[str, ...]:
    """Return a warning where two vocabularies differ by padding; a draft token must mean the same to both.

    Raises:
        UsageError: they are different vocabularies.

    """
    if draft.vocab_size == target.vocab_size:
        return ()
    differ = (
        f"{draft.name} has a vocabulary of {draft.vocab_size:,} tokens and {target.name} one of {target.vocab_size:,}"
    )
    if abs(draft.vocab_size - target.vocab_size) < _MAX_VOCABULARY_GAP * max(draft.vocab_size, target.vocab_size):
        return (f"{differ}: taken for the same one with other padding",)
    raise UsageError(
        differ, place="--draft-model", hint="take a smaller model of the target's family, or --method ngram without any"
    )


def _heads_for(deployment: Deployment, catalog: Catalog) -> tuple[str, ...]:
    """Return the draft heads that were made for the target, or for the model it derives from."""
    target = _entry_of(deployment.model.name, catalog)
    heads = (catalog.draft(name) for name in catalog.draft_names())
    return tuple(head.name for head in heads if target in {_entry_of(name, catalog) for name in head.targets})


def _entry_of(name: str, catalog: Catalog) -> str:
    """Return the catalog entry of a model's name, a derivative's being that of its base; else the name itself."""
    from infcalc.catalog.derivatives import resolve_derivative  # noqa: PLC0415 - only where a head is named
    from infcalc.catalog.lookup import find  # noqa: PLC0415 - as above

    index = catalog.index("models")
    found = find(name, index)
    if found is None:
        derivative = resolve_derivative(name, index)
        found = derivative.base if derivative else name
    return found


def _drafting(rig: Rig, method: Method, draft: DraftAsk, own: _Drafter | None) -> Drafting:
    profile = _profile(rig, method, own)
    passes = own.passes if own is not None and own.head is None else passes_of(rig, profile, own.head if own else None)
    return drafting_of(
        profile,
        acceptance=acceptance_of(draft.acceptance) if draft.acceptance else None,
        num_draft_tokens=draft.num_draft_tokens,
        draft_timer=passes.timer,
        fixed_s=rig.fixed_s(tree=profile.tree_tokens is not None),
        cost_source=passes.source,
    )


def _profile(rig: Rig, method: Method, own: _Drafter | None) -> Profile:
    """Return the profile of a method; a draft model far smaller than its target guesses worse than others."""
    if method is not Method.DRAFT_MODEL or own is None:
        return PROFILES[method]
    whole = parameters(inventory(rig.deployment.model)).total
    return SMALL_DRAFT if own.parameters < SMALL_FRACTION * whole else PROFILES[method]
