"""Does speculative decoding pay, and with how many draft tokens?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, Deployment, kv_format, load, resolve, single_kv_dtype
from infcalc.api.sizing import check_contexts, context_warnings, deployment_budgets, room_warnings
from infcalc.errors import UnknownName, UsageError
from infcalc.frozen import frozen
from infcalc.memory.budget import room
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.memory.weights import weights_total_bytes
from infcalc.roofline.step import decode_timer, weights_timer
from infcalc.spec.explain import Input
from infcalc.speculation.linear import Acceptance, acceptance_of
from infcalc.speculation.priced import (
    MAX_BATCH,
    MemoryItem,
    SpeculationRow,
    draft_memory,
    drafting_of,
    explain_row,
    rows,
)
from infcalc.speculation.published import PROFILES, Method, method_of
from infcalc.units import KIB

if TYPE_CHECKING:
    from infcalc.catalog.lookup import Catalog
    from infcalc.spec.explain import Explanation
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.speculation.priced import Drafting, DraftTimer

DEFAULT_CONTEXT = 4 * KIB
DEFAULT_METHODS = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.NGRAM)
_MAX_BATCH = 2**20
_MAX_DRAFT_TOKENS = 1000
_HEAD_BYTES = 2
"""Draft heads are published in 16 bit."""


@frozen
class SpeculateResult:
    """One row per way of drafting, at its best (or the given) draft length, and what a draft model adds to memory."""

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

    ``acceptance``: one number is uniform, several are unconditional survival rates by position, as vLLM prints them.
    """

    methods: tuple[str, ...] = ()
    draft_model: str | None = None
    num_draft_tokens: int | None = None
    acceptance: tuple[float, ...] = ()
    batch: int = 1


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
            "steps are priced at 100 % of peak and bandwidth: overheads of real engines shrink the gain; "
            "acceptance is published, and a property of the task"
        )
    ]
    results: list[SpeculateResult] = []
    talk: list[str] = []
    inputs: tuple[Input, ...] = ()
    explanations: list[Explanation] = []
    word = single_kv_dtype(ask)
    for deployment in resolve(ask, catalog):
        form, origin, said = kv_format(deployment, word)
        result = _result(deployment, form, context, draft, catalog)
        results.append(result)
        notes += deployment.assumptions
        talk += [
            *deployment.warnings,
            *said,
            *context_warnings(deployment, (context,)),
            *room_warnings(deployment, deployment_budgets(deployment)),
        ]
        inputs = inputs or (
            *deployment.inputs,
            Input(name="kv_dtype", value=form.name, origin=origin, source=form.note),
            Input(name="context", value=context, origin="given" if contexts else "reference scenario"),
            Input(name="batch", value=draft.batch, origin="default" if draft.batch == 1 else "given"),
            Input(
                name="acceptance",
                value=draft.acceptance or "published",
                origin="given" if draft.acceptance else "published, per method",
            ),
        )
        if explain:
            explanations += [text for row in result.rows for text in explain_row(row)]
    return Answer(
        command="speculate",
        results=tuple(results),
        inputs=inputs,
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
    )


def _check(draft: DraftAsk) -> None:
    if not 1 <= draft.batch <= _MAX_BATCH:
        raise UsageError(f"{draft.batch} sequences", place="--batch", hint=f"a whole number from 1 to {_MAX_BATCH:,}")
    length = draft.num_draft_tokens
    if length is not None and not 1 <= length <= _MAX_DRAFT_TOKENS:
        raise UsageError(
            f"{length} draft tokens", place="--num-draft-tokens", hint=f"a whole number from 1 to {_MAX_DRAFT_TOKENS}"
        )


@frozen
class _Drafter:
    """A draft model or head that is known by its weights, so that its steps and its memory can be priced."""

    name: str
    methods: tuple[Method, ...]
    timer: DraftTimer
    cost_source: str
    weights_bytes: int
    kv_bytes_per_token: int | float


def _result(deployment: Deployment, form: KvFormat, context: int, draft: DraftAsk, catalog: Catalog) -> SpeculateResult:
    target = decode_timer(
        deployment.model,
        deployment.gpu,
        parallelism=deployment.parallelism,
        quantization=deployment.quantization,
        kv=form,
        context_tokens=context,
    )
    fitting = room(
        deployment.model,
        form,
        deployment.parallelism,
        deployment_budgets(deployment),
        context_tokens=context,
        block_tokens=deployment.block_tokens,
    ).sequences
    # A batch that does not fit is no batch: the search for the break-even ends where memory does.
    max_batch = max(draft.batch, min(MAX_BATCH, fitting)) if fitting else MAX_BATCH
    drafter = _drafter(draft, deployment, form, context, catalog)
    acceptance = acceptance_of(draft.acceptance) if draft.acceptance else None
    found = rows(
        tuple(
            _drafting(method, acceptance, draft.num_draft_tokens, drafter)
            for method in _methods(draft, deployment.model, drafter)
        ),
        target,
        batch=draft.batch,
        max_batch=max_batch,
    )
    return SpeculateResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        batch=draft.batch,
        context_tokens=context,
        max_batch=max_batch,
        draft_model=None if drafter is None else drafter.name,
        rows=found,
        memory=() if drafter is None else _memory(drafter, deployment, form, context, found),
    )


def _memory(
    drafter: _Drafter, deployment: Deployment, form: KvFormat, context: int, found: tuple[SpeculationRow, ...]
) -> tuple[MemoryItem, ...]:
    own = next((row for row in found if row.method in drafter.methods), found[0])
    return draft_memory(
        draft_weights_bytes=drafter.weights_bytes,
        draft_kv_bytes_per_token=drafter.kv_bytes_per_token,
        target_kv_bytes_per_token=slope_bytes_per_token(kv_components(deployment.model, form)),
        vocab_size=deployment.model.vocab_size,
        batch=own.batch,
        context_tokens=context,
        num_draft_tokens=own.num_draft_tokens,
    )


def _methods(draft: DraftAsk, model: Model, drafter: _Drafter | None) -> tuple[Method, ...]:
    if draft.methods:
        return tuple(dict.fromkeys(method_of(name) for name in draft.methods))
    if drafter is not None:
        return drafter.methods[:1]
    return (*DEFAULT_METHODS, *((Method.MTP,) if model.mtp is not None else ()))


def _drafter(
    draft: DraftAsk, deployment: Deployment, form: KvFormat, context: int, catalog: Catalog
) -> _Drafter | None:
    """Return the named draft: a published head of the catalog, or any model, run on one GPU.

    Engines split a draft over the target's ranks only where it divides, and small steps gain little from it.
    """
    if draft.draft_model is None:
        return None
    try:
        head = catalog.draft(draft.draft_model)
    except UnknownName:
        from infcalc import files  # noqa: PLC0415 - opening files is only needed here

        model = files.load_model(catalog, draft.draft_model).model
        steps = decode_timer(model, deployment.gpu, kv=form, context_tokens=context)
        return _Drafter(
            name=model.name,
            methods=(Method.DRAFT_MODEL,),
            timer=lambda batch: steps(batch, 1),
            cost_source=f"roofline of {model.name} on one GPU",
            weights_bytes=weights_total_bytes(model),
            kv_bytes_per_token=slope_bytes_per_token(kv_components(model, form)),
        )
    parameters = head.core_parameters + head.lm_head_parameters
    weights_bytes = parameters * _HEAD_BYTES
    return _Drafter(
        name=head.name,
        methods=(Method.EAGLE3, Method.EAGLE3_TREE) if head.kind == "eagle3" else (Method.EAGLE, Method.EAGLE2),
        timer=weights_timer(deployment.gpu, num_parameters=parameters, weight_bytes=weights_bytes),
        cost_source=f"roofline of {head.name} on one GPU ({head.source})",
        weights_bytes=weights_bytes,
        kv_bytes_per_token=head.kv_bytes_per_token_bf16 * form.element_bits / 16,
    )


def _drafting(
    method: Method, acceptance: Acceptance | None, num_draft_tokens: int | None, drafter: _Drafter | None
) -> Drafting:
    own = drafter if drafter is not None and method in drafter.methods else None
    return drafting_of(
        PROFILES[method],
        acceptance=acceptance,
        num_draft_tokens=num_draft_tokens,
        draft_timer=own.timer if own else None,
        cost_source=own.cost_source if own else "",
    )
