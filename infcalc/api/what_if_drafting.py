"""Which way of drafting a deployment would take: one that there is for its model, where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.drafters import heads_for
from infcalc.api.drafting import DraftAsk, speculate
from infcalc.engines.drafting import drafts_by
from infcalc.speculation.published import Method

if TYPE_CHECKING:
    from infcalc.api.what_if_changes import Here, Side
    from infcalc.speculation.priced import SpeculationRow


def best_way(now: Side, here: Here) -> tuple[DraftAsk, str] | None:
    """Return the way with the greatest speedup at the batch and context of the run, and what it is; None: no way.

    A head of the catalog that was made for the model or the model's own further layers go before heads that somebody
    would first have to train; either are judged by the acceptance that is published for their method.
    """
    catalog, deployment = here.runs.catalog, here.deployment
    batch, context = max(1, round(here.seen.num_decodes)), max(1, round(here.seen.context_tokens))
    asked = DraftAsk(batch=batch)
    rows = [
        row
        for row in speculate(now.ask, asked, contexts=(context,)).result.rows
        if drafts_by(deployment.rules.engine, row.method)
    ]
    if not rows:
        return None
    heads = {catalog.draft(name).kind: name for name in heads_for(deployment.model.name, catalog)}
    there = [row for row in rows if row.method in heads or row.method == Method.MTP]
    best = max(there or rows, key=_speedup)
    head = heads.get(best.method)
    if head is not None:
        whose = f"head {head}"
    elif best.method == Method.MTP:
        whose = "the model's own layers"
    elif best.method == Method.NGRAM:
        whose = "looked up in the text"
    elif best.method == Method.DRAFT_MODEL:
        whose = "a small model of its family"
    else:
        whose = "one that would have to be made for it: none is known"
    told = f"{best.method} with {best.num_draft_tokens} drafts ({whose}), the best way at batch {batch}"
    draft = DraftAsk(methods=(best.method,), draft_model=head, num_draft_tokens=best.num_draft_tokens)
    return draft, told


def _speedup(row: SpeculationRow) -> float:
    return row.speedup
