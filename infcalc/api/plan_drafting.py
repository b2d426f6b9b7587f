"""Ways of drafting that a plan may take: each with its draft and its lengths, or why it is none for this model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.drafters import heads_for, vocabulary_doubts
from infcalc.api.drafting import acceptance_origin, checked_draft, counted
from infcalc.engines.launch.spec import Drafter
from infcalc.errors import UnknownName, UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Input
from infcalc.speculation.linear import acceptance_of
from infcalc.speculation.priced import drafting_of
from infcalc.speculation.published import PROFILES, Method, method_of

if TYPE_CHECKING:
    from infcalc.api.drafting import DraftAsk
    from infcalc.catalog.lookup import Catalog
    from infcalc.planning.nouns import Setup
    from infcalc.spec.draft import Draft
    from infcalc.spec.model import Model

_LENGTHS = (1, 3, 5)
"""Draft tokens on offer where none are named: of a round, what gains between them is less than what measurements vary.

Three is what engines' own examples take for heads; one loses least where many run, five gains most where few do.
"""
_WRITTEN = tuple(Method(word.value) for word in Drafter)
"""Ways that ``launch`` can write: a plan of any other could not be started."""
_KINDS = {Method.EAGLE: "eagle1", Method.EAGLE3: "eagle3"}


@frozen
class DraftWay:
    """One way of drafting: what drafts, and how many tokens in a round; ``why_not`` where there is none for a model."""

    method: Method
    draft_model: str | None = None
    num_draft_tokens: tuple[int, ...] = ()
    why_not: str = ""
    change: str = ""


def draft_ways(draft: DraftAsk | None, model: Model, catalog: Catalog) -> tuple[tuple[DraftWay, ...], tuple[str, ...]]:
    """Return the ways that are asked for, and what is doubtful about them.

    Heads that are not named are those of the catalog that were made for the model.

    Raises:
        UsageError: what is said of drafting cannot be, or no plan can be written with it.
        UnknownName: no method, head or model has the name.

    """
    if draft is None:
        return (), ()
    checked_draft(draft)
    draft = counted(draft)
    head, small = _named(draft.draft_model, catalog)
    methods = tuple(dict.fromkeys(method_of(name) for name in draft.methods)) or _of(head, small)
    if not methods:
        place = "--acceptance" if draft.acceptance else "--accepted" if draft.accepted_tokens else "--num-draft-tokens"
        raise UsageError("drafts, and nothing that drafts", place=place, hint="add --method eagle3, or a --draft-model")
    for method in methods:
        if method not in _WRITTEN:
            raise UsageError(
                f"no launch text drafts by {method}",
                place="--method",
                hint=f"plan takes {', '.join(sorted(_WRITTEN))}; speculate prices the others",
            )
    if draft.draft_model is not None and not {*_of(head, small)} & {*methods}:
        raise UsageError(
            f"{draft.draft_model} drafts by {', '.join(_of(head, small))}, not by {', '.join(methods)}",
            place="--draft-model",
            hint="name a draft of that kind, or leave one of the two out",
        )
    doubts = list(vocabulary_doubts(small, model)) if small is not None and Method.DRAFT_MODEL in methods else []
    own = heads_for(model.name, catalog)
    if head is not None and head.name not in own:
        made_for = ", ".join(head.targets) or "no model that is known"
        doubts.append(f"{head.name} was made for {made_for}: {model.name} is not among them")
    ways = tuple(_way(method, draft, model, head=head, heads=tuple(map(catalog.draft, own))) for method in methods)
    return ways, tuple(doubts)


def draft_of(setup: Setup, draft: DraftAsk | None) -> DraftAsk | None:
    """Return the question about the drafting of one setup; None where it drafts nothing."""
    if setup.method is None or draft is None:
        return None
    return replace(
        counted(draft),
        methods=(setup.method,),
        draft_model=setup.draft_model,
        num_draft_tokens=setup.num_draft_tokens,
        accepted_tokens=(),
        num_drafts=None,
    )


def draft_inputs(draft: DraftAsk | None) -> tuple[Input, ...]:
    """Return what was said of drafting."""
    if draft is None:
        return ()
    named = counted(draft).acceptance
    found = [
        Input(name=name, value=value, origin=f"given ({option})")
        for name, value, option in (
            ("method", ",".join(draft.methods), "--method"),
            ("draft_model", draft.draft_model, "--draft-model"),
            ("num_draft_tokens", draft.num_draft_tokens, "--num-draft-tokens"),
        )
        if value
    ]
    return (*found, Input(name="acceptance", value=named or "published", origin=acceptance_origin(draft)))


def _named(name: str | None, catalog: Catalog) -> tuple[Draft | None, Model | None]:
    """Return the head or the model of a name."""
    if name is None:
        return None, None
    try:
        return catalog.draft(name), None
    except UnknownName:
        from infcalc import files  # noqa: PLC0415 - opening files is only needed here

        return None, files.load_model(catalog, name).model


def _of(head: Draft | None, small: Model | None) -> tuple[Method, ...]:
    if head is not None:
        return tuple(method for method, kind in _KINDS.items() if kind == head.kind)
    return () if small is None else (Method.DRAFT_MODEL,)


def _way(method: Method, draft: DraftAsk, model: Model, *, head: Draft | None, heads: tuple[Draft, ...]) -> DraftWay:
    found = DraftWay(method=method, num_draft_tokens=_lengths(method, draft))
    if method in _KINDS:
        kind = _KINDS[method]
        known = (head,) if head is not None and head.kind == kind else tuple(one for one in heads if one.kind == kind)
        if known:
            return replace(found, draft_model=known[0].name)
        return replace(
            found,
            why_not=f"no {method} head for {model.name} is known",
            change="--draft-model NAME, or a head in an overlay (--catalog)",
        )
    if method is Method.DRAFT_MODEL:
        if head is None and draft.draft_model is not None:
            return replace(found, draft_model=draft.draft_model)
        return replace(found, why_not="which model drafts is not said", change="--draft-model NAME")
    if method is Method.MTP and model.mtp is None:
        return replace(found, why_not=f"{model.name} has no MTP layers")
    return found


def _lengths(method: Method, draft: DraftAsk) -> tuple[int, ...]:
    """Return the lengths on offer: the one that is named, else few of those that were measured."""
    measured = drafting_of(
        PROFILES[method],
        acceptance=acceptance_of(draft.acceptance) if draft.acceptance else None,
        num_draft_tokens=draft.num_draft_tokens,
    ).num_draft_tokens
    return measured if draft.num_draft_tokens is not None else tuple(one for one in _LENGTHS if one in measured)
