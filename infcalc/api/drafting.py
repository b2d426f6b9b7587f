"""Does speculative decoding pay, and with how many draft tokens?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.crowding import FullLoad, full_load
from infcalc.api.deployment import Ask, Deployment, kv_format, load, merged_inputs, resolve, single_kv_dtype
from infcalc.api.drafters import KnownDraft, named_draft, own_layers
from infcalc.api.rounds import Passes, Rig, passes_of, rig_of, target_timer
from infcalc.api.simulated_drafting import SimulationAsk, contested, explained, is_chain
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
from infcalc.engines.drafting import drafts_by
from infcalc.errors import DoesNotFit, UsageError
from infcalc.frozen import frozen
from infcalc.lowering.tensors import inventory, parameters
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.spec.explain import Input
from infcalc.speculation.linear import acceptance_of, alpha_of_tokens_per_round, tokens_per_round_of_counters
from infcalc.speculation.priced import (
    MAX_BATCH,
    BatchPoint,
    MemoryItem,
    SpeculationRow,
    by_batch,
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
    from infcalc.spec.explain import Explanation
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.speculation.contest import ContestRow
    from infcalc.speculation.priced import Drafting
    from infcalc.speculation.published import Profile

DEFAULT_CONTEXT = 4 * KIB
DEFAULT_METHODS = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.NGRAM)
CURVE_BATCHES = tuple(2**power for power in range(9))
_MAX_BATCH = 2**20
_MAX_DRAFT_TOKENS = 1000


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
    fits: bool
    """The target alone leaves room for one sequence; where it does not, rows say what steps would take."""
    rows: tuple[SpeculationRow, ...]
    by_batch: tuple[BatchPoint, ...]
    """Each way of drafting at batches of powers of two, at its best length there, whether they fit or not."""
    full_load: tuple[FullLoad, ...]
    """What drafting displaces, and whether it pays on a server whose memory is full."""
    memory: tuple[MemoryItem, ...] = ()
    simulated_method: str | None = None
    """The chain whose acceptance and cost ``simulation`` takes, where one was asked for."""
    simulation: tuple[ContestRow, ...] = ()


@frozen
class DraftAsk:
    """What a user may say of drafting: methods, a draft model, a length, and how often drafts are accepted.

    ``draft_model`` is a draft head of the catalog or any model; it runs at the target's TP where that divides it.
    ``acceptance``: one number is uniform, several are unconditional survival rates by position, as vLLM prints them.
    ``accepted_tokens`` and ``num_drafts`` say it in an engine's counters instead.
    """

    methods: tuple[str, ...] = ()
    draft_model: str | None = None
    num_draft_tokens: int | None = None
    acceptance: tuple[float, ...] = ()
    accepted_tokens: tuple[int, ...] = ()
    """An engine's counters of accepted draft tokens: of all positions together, or of each."""
    num_drafts: int | None = None
    """Drafts in which they were accepted."""
    batch: int | None = None
    """Sequences in the target's step; None: one."""
    simulation: SimulationAsk | None = None
    """Chains against trees, run round by round; None: none."""


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
    checked_draft(draft)
    draft = counted(draft)
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
            *_unsupported(result, deployment),
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
                    origin=acceptance_origin(draft),
                ),
                *(draft.simulation.inputs() if draft.simulation else ()),
            )
        )
        if explain:
            explanations += [text for row in result.rows for text in explain_row(row)]
            explanations += explained(result.simulation)
    return Answer(
        command="speculate",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
        exit_code=0 if all(result.fits for result in results) else DoesNotFit.exit_code,
    )


@frozen
class Way:
    """One way of drafting on a deployment: what is priced, what passes, how many ranks load it, what is doubtful."""

    method: Method
    drafting: Drafting
    passes: Passes
    num_copies: int
    doubts: tuple[str, ...]


def way_of(draft: DraftAsk, rig: Rig, catalog: Catalog) -> Way:
    """Return the way of drafting that is asked for; where several are, the first.

    Raises:
        UsageError: what is said of it cannot be.
        UnknownName: no method, head or model has the name.

    """
    checked_draft(draft)
    draft = counted(draft)
    drafters, doubts = _drafters(draft, rig, catalog)
    own = {method: drafter for drafter in drafters for method in drafter.methods}
    method = _methods(draft, rig.deployment.model, drafters)[0]
    drafting, passes = _drafting(rig, method, draft, own.get(method))
    copies = own[method].num_copies if method in own else rig.deployment.parallelism.dp
    return Way(
        method=method,
        drafting=drafting,
        passes=passes,
        num_copies=copies,
        doubts=(*doubts, *_undrafted(rig.deployment, (method,))),
    )


def _unsupported(result: SpeculateResult, deployment: Deployment) -> list[str]:
    """Return a warning for each way of drafting that the engine does not have."""
    return _undrafted(deployment, tuple(row.method for row in result.rows))


def _undrafted(deployment: Deployment, methods: tuple[str, ...]) -> list[str]:
    engine = deployment.rules.engine
    return [
        f"{engine} does not draft by {method}: it is priced as if it did"
        for method in methods
        if not drafts_by(engine, method)
    ]


def counted(draft: DraftAsk) -> DraftAsk:
    """Return the question with what its counters say as acceptance: survival by position where they are by position.

    One counter over all positions gives the uniform acceptance that yields as many tokens per round of the stated
    length.

    Raises:
        UsageError: one counter without the other, or with acceptance; counts that no draft can yield.

    """
    if not draft.accepted_tokens and draft.num_drafts is None:
        return draft
    if not draft.accepted_tokens or draft.num_drafts is None:
        place = "--drafted" if draft.accepted_tokens else "--accepted"
        raise UsageError("one counter alone says nothing", place=place, hint="give --accepted and --drafted together")
    if draft.acceptance:
        raise UsageError("acceptance and counters", place="--acceptance", hint="give --acceptance or counters")
    if draft.num_drafts < 1 or min(draft.accepted_tokens) < 0:
        raise UsageError(
            f"{min(draft.accepted_tokens)} accepted tokens in {draft.num_drafts} drafts",
            place="--accepted",
            hint="counts from 0 on, and one draft at least",
        )
    if len(draft.accepted_tokens) > 1:
        rates = tuple(number / draft.num_drafts for number in draft.accepted_tokens)
        if rates[0] > 1 or list(rates) != sorted(rates, reverse=True):
            counts = ", ".join(f"{number:,}" for number in draft.accepted_tokens)
            raise UsageError(
                f"{counts} accepted in {draft.num_drafts:,} drafts",
                place="--accepted",
                hint="one count per position: no more than the drafts, and none above the position before it",
            )
        return replace(draft, acceptance=rates)
    if draft.num_draft_tokens is None:
        raise UsageError(
            "accepted tokens of how long a draft?",
            place="--accepted",
            hint="give --num-draft-tokens, or one count for each position",
        )
    tokens = tokens_per_round_of_counters(draft.accepted_tokens[0], draft.num_drafts)
    if tokens > draft.num_draft_tokens + 1:
        raise UsageError(
            f"{draft.accepted_tokens[0]:,} accepted in {draft.num_drafts:,} drafts of {draft.num_draft_tokens} tokens",
            place="--accepted",
            hint=f"{draft.num_drafts * draft.num_draft_tokens:,} at most",
        )
    return replace(draft, acceptance=(alpha_of_tokens_per_round(tokens, draft.num_draft_tokens),))


def acceptance_origin(draft: DraftAsk) -> str:
    """Return where the acceptance comes from."""
    if draft.accepted_tokens:
        return "given (--accepted, --drafted)"
    return "given (--acceptance)" if draft.acceptance else "published, per method"


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


def checked_draft(draft: DraftAsk) -> None:
    """Refuse numbers out of range.

    Raises:
        UsageError: a batch, a length or a number of rounds.

    """
    if draft.batch is not None and not 1 <= draft.batch <= _MAX_BATCH:
        raise UsageError(f"{draft.batch} sequences", place="--batch", hint=f"a whole number from 1 to {_MAX_BATCH:,}")
    length = draft.num_draft_tokens
    if length is not None and not 1 <= length <= _MAX_DRAFT_TOKENS:
        raise UsageError(
            f"{length} draft tokens", place="--num-draft-tokens", hint=f"a whole number from 1 to {_MAX_DRAFT_TOKENS}"
        )
    if draft.simulation is not None:
        draft.simulation.check()


def _result(
    rig: Rig, draft: DraftAsk, *, drafters: tuple[KnownDraft, ...], stages: tuple[Budget, ...]
) -> SpeculateResult:
    deployment, form, context = rig.deployment, rig.form, int(rig.context_tokens)
    fitting = fitting_room(deployment, form, stages, context).sequences
    batch = 1 if draft.batch is None else draft.batch
    # A batch that does not fit is no batch: the search for the break-even ends where memory does.
    max_batch = max(batch, min(MAX_BATCH, fitting)) if fitting else MAX_BATCH
    own = {method: drafter for drafter in drafters for method in drafter.methods}
    methods = _methods(draft, deployment.model, drafters)
    ways = tuple(_drafting(rig, method, draft, own.get(method)) for method in methods)
    draftings = tuple(drafting for drafting, _ in ways)
    target = target_timer(rig)
    loads = (
        full_load(
            rig,
            drafting,
            passes,
            target,
            sequences_without=fitting,
            num_copies=own[method].num_copies if method in own else deployment.parallelism.dp,
        )
        for method, (drafting, passes) in zip(methods, ways, strict=True)
    )
    found = rows(draftings, target, batch=batch, max_batch=max_batch)
    chain: str | None = None
    simulation: tuple[ContestRow, ...] = ()
    if draft.simulation is not None:
        pairs = tuple(zip(draftings, found, strict=True))
        # A given acceptance is taken for that of a chain, whatever method is named.
        chains = tuple(pair for pair in pairs if is_chain(pair[0])) or (pairs if draft.acceptance else ())
        chain, simulation = contested(chains, target, draft.simulation, max_batch=max_batch)
    return SpeculateResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        batch=batch,
        context_tokens=context,
        max_batch=max_batch,
        draft_model=next((one.name for one in drafters if Method.MTP not in one.methods), None),
        fits=fitting > 0,
        rows=found,
        by_batch=by_batch(draftings, target, CURVE_BATCHES),
        full_load=tuple(load for load in loads if load is not None),
        memory=_memory(drafters, deployment, form, context, found),
        simulated_method=chain,
        simulation=simulation,
    )


def _memory(
    drafters: tuple[KnownDraft, ...],
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
            draft_weights_bytes=(drafter.passes.weights_bytes or 0) * drafter.num_copies,
            draft_kv_bytes_per_token=drafter.passes.kv_bytes_per_token,
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


def _methods(draft: DraftAsk, model: Model, drafters: tuple[KnownDraft, ...]) -> tuple[Method, ...]:
    if draft.methods:
        return tuple(dict.fromkeys(method_of(name) for name in draft.methods))
    if draft.draft_model is not None:
        return drafters[0].methods[:1]
    return (*DEFAULT_METHODS, *((Method.MTP,) if model.mtp is not None else ()))


def _drafters(draft: DraftAsk, rig: Rig, catalog: Catalog) -> tuple[tuple[KnownDraft, ...], tuple[str, ...]]:
    """Return the named draft and the target's MTP layers, where they are asked for, and what is doubtful about them."""
    deployment = rig.deployment
    found: list[KnownDraft] = []
    doubts: tuple[str, ...] = ()
    if draft.draft_model is not None:
        drafter, doubts = named_draft(draft.draft_model, rig, catalog)
        found.append(drafter)
    if Method.MTP in _methods(draft, deployment.model, tuple(found)):
        mtp = own_layers(rig)
        if mtp is not None:
            found.append(mtp)
        else:
            doubts = (*doubts, f"{deployment.model.name} is not known to have MTP layers: mtp is that of other models")
    return tuple(found), doubts


def _drafting(rig: Rig, method: Method, draft: DraftAsk, own: KnownDraft | None) -> tuple[Drafting, Passes]:
    profile = _profile(rig, method, own)
    known = own is not None and own.head is None
    passes = own.passes if own is not None and known else passes_of(rig, profile, own.head if own else None)
    drafting = drafting_of(
        profile,
        acceptance=acceptance_of(draft.acceptance) if draft.acceptance else None,
        num_draft_tokens=draft.num_draft_tokens,
        draft_timer=passes.timer,
        fixed_s=rig.fixed_s(tree=profile.tree_tokens is not None),
        cost_source=passes.source,
        fixed_source=rig.added.footing.otherwise,
        operations_ratio=passes.operations_ratio,
    )
    return drafting, passes


def _profile(rig: Rig, method: Method, own: KnownDraft | None) -> Profile:
    """Return the profile of a method; a draft model far smaller than its target guesses worse than others."""
    if method is not Method.DRAFT_MODEL or own is None:
        return PROFILES[method]
    whole = parameters(inventory(rig.deployment.model)).total
    return SMALL_DRAFT if own.parameters < SMALL_FRACTION * whole else PROFILES[method]
