"""Drafts that are known by name: a published head, a model, or the target's own layers for further tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.rounds import Passes, Rig, model_pass, passes_of
from infcalc.errors import UnknownName, UsageError
from infcalc.frozen import frozen
from infcalc.lowering.ops import mtp_as_model
from infcalc.lowering.tensors import check_divisible, inventory, parameters
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.memory.weights import weights_total_bytes
from infcalc.spec.draft import Draft
from infcalc.spec.parallelism import Parallelism
from infcalc.speculation.published import PROFILES, Method

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.catalog.lookup import Catalog
    from infcalc.spec.model import Model

_WIDE = (Method.EAGLE3, Method.EAGLE3_TREE)
_NARROW = (Method.EAGLE, Method.EAGLE_TREE, Method.EAGLE2)
_NEAR = 3
"""Names of models and of heads that an unknown draft is told."""
_MAX_VOCABULARY_GAP = 0.01
"""Vocabularies that differ by less are taken for one with other padding."""


@frozen
class KnownDraft:
    """A draft that is known by its weights, so that its steps and its memory can be priced."""

    name: str
    methods: tuple[Method, ...]
    passes: Passes
    parameters: int
    head: Draft | None = None
    num_copies: int
    """Attention-DP ranks that each load it."""
    weights_why: str


def named_draft(name: str, rig: Rig, catalog: Catalog) -> tuple[KnownDraft, tuple[str, ...]]:
    """Return the draft called ``name``, and what is doubtful about it.

    Raises:
        UsageError: a draft model of another vocabulary.
        UnknownName: neither a head nor a model has the name.

    """
    draft = resolved_draft(name, rig.deployment, catalog)
    return _of_head(draft, rig, catalog) if isinstance(draft, Draft) else _of_model(draft, rig)


def resolved_draft(name: str, deployment: Deployment, catalog: Catalog) -> Draft | Model:
    """Return the draft called ``name``: a published head of the catalog, or any model.

    Raises:
        UnknownName: neither a head nor a model has the name.

    """
    try:
        return catalog.draft(name)
    except UnknownName as no_head:
        from infcalc import files  # noqa: PLC0415 - opening files is only needed here

        try:
            return files.load_model(catalog, name).model
        except UnknownName as no_model:
            near = tuple(dict.fromkeys((*no_model.nearest[:_NEAR], *no_head.nearest[:_NEAR])))
            made = heads_for(deployment, catalog)
            target = deployment.model.name
            heads = f"draft heads for {target}: {', '.join(made)}" if made else f"no draft head for {target} is known"
            raise UnknownName("draft model or head", no_model.name, near, hint=heads) from None


def _of_model(model: Model, rig: Rig) -> tuple[KnownDraft, tuple[str, ...]]:
    ranks, place = ranks_of(model, rig.deployment.parallelism)
    drafter = KnownDraft(
        name=model.name,
        methods=(Method.DRAFT_MODEL,),
        passes=Passes(
            rig=rig,
            one_pass=model_pass(rig, model, ranks),
            source=f"steps of {model.name} at {place}",
            loads=model,
            weights_bytes=weights_total_bytes(model),
            operations_ratio=_operations_ratio(model, rig.deployment.model),
            kv_bytes_per_token=float(slope_bytes_per_token(kv_components(model, rig.form))),
        ),
        parameters=parameters(inventory(model)).total,
        num_copies=ranks.dp,
        weights_why=_beside(model.name, ranks),
    )
    return drafter, vocabulary_doubts(model, rig.deployment.model)


def _operations_ratio(draft: Model, target: Model) -> float:
    """Return multiplications of a token in a draft over those in its target: of the parameters that work on it."""
    own, whole = (parameters(inventory(model)).active_without_embedding for model in (draft, target))
    return own / whole


def _of_head(head: Draft, rig: Rig, catalog: Catalog) -> tuple[KnownDraft, tuple[str, ...]]:
    deployment = rig.deployment
    held = head.core_parameters + head.lm_head_parameters
    ranks = Parallelism(tp=deployment.parallelism.tp, dp=deployment.parallelism.dp)
    methods = _WIDE if head.kind == "eagle3" else _NARROW
    drafter = KnownDraft(
        name=head.name,
        methods=methods,
        passes=passes_of(rig, PROFILES[methods[0]], head),
        head=head,
        parameters=held,
        num_copies=ranks.dp,
        weights_why=_beside(head.name, ranks),
    )
    return drafter, head_doubts(head, deployment, catalog)


def head_doubts(head: Draft, deployment: Deployment, catalog: Catalog) -> tuple[str, ...]:
    """Return a warning where a head was made for another model than the target or the one it derives from."""
    if head.name in heads_for(deployment, catalog):
        return ()
    made_for = ", ".join(head.targets) or "no model that is known"
    return (f"{head.name} was made for {made_for}: {deployment.model.name} is not among them",)


def own_layers(rig: Rig) -> KnownDraft | None:
    """Return the target's own MTP layers as a draft: one of them runs per draft token, with the target's head."""
    deployment = rig.deployment
    model, quantization = deployment.model, deployment.quantization
    layer = mtp_as_model(replace(model, quantization=quantization))
    if model.mtp is None or layer is None:
        return None
    number = model.mtp.num_layers
    layers = "1 MTP layer" if number == 1 else f"{number} MTP layers"
    return KnownDraft(
        name=layer.name,
        methods=(Method.MTP,),
        passes=passes_of(rig, PROFILES[Method.MTP]),
        parameters=0,
        num_copies=1,
        weights_why=f"{layers} of {model.name}; embedding and head are the target's",
    )


def ranks_of(model: Model, target: Parallelism) -> tuple[Parallelism, str]:
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


def vocabulary_doubts(draft: Model, target: Model) -> tuple[str, ...]:
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


def heads_for(deployment: Deployment, catalog: Catalog) -> tuple[str, ...]:
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
