"""Does drafting pay at what was measured? As many tokens per round as were counted, priced on the deployment."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from infcalc.api.drafting import DraftAsk, speculate
from infcalc.diagnosis.signals import Signal
from infcalc.errors import InfcalcError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.api.deployment import Ask
    from infcalc.api.diagnosing_model import Modelled
    from infcalc.diagnosis.signals import Reading

_DRAFTS: Final = re.compile(r"num_spec(?:ulative)?_tokens['\"]?\s*[:=]\s*([1-9][0-9]{0,2})\b")
_METHODS: Final = (
    ("eagle3", "eagle3"),
    ("eagle", "eagle"),
    ("ngram", "ngram"),
    ("mtp", "mtp"),
    ("nextn", "mtp"),
    ("medusa", "medusa"),
    ("standalone", "draft-model"),
    ("draft_model", "draft-model"),
)
"""Words of engines for a way of drafting, and ours. Source: vLLM vllm/config/speculative.py, SGLang server_args.py."""
_TREES: Final = {"eagle": "eagle2"}
"""SGLang's EAGLE drafts a tree unless its --speculative-eagle-topk is 1."""
_COUNTED: Final = 1_000_000
_MOST_DRAFTS: Final = 64


@frozen
class Drafted:
    """What drafting gains as it was counted: ``how`` says what of it was assumed."""

    speedup: float
    low: float
    high: float
    num_best_drafts: int | None
    how: str
    is_stated: bool
    """Whether somebody says by which way; else it is the most favourable of the known ones."""


def drafted_of(model: Modelled, measured: Mapping[Signal, Reading]) -> tuple[Drafted | None, str]:
    """Return what drafting gains, or why that is not known; neither where nothing is drafted.

    Where no file says by which way tokens are drafted, the most favourable of the known ways is taken, so that what is
    called a loss is one whichever it was.
    """
    rounds = measured.get(Signal.TOKENS_PER_ROUND)
    if rounds is None or rounds.value < 1:
        return None, ""
    if model.found is None:
        return None, "drafting is not priced without a deployment"
    length = _length(model, measured, rounds.value)
    if length is None:
        return None, "how many tokens are drafted in a round: --num-draft-tokens, or the start-up log"
    ask = model.found.site.ask
    method = _method(model)
    running = measured.get(Signal.RUNNING)
    batch = 1
    if running is not None:
        batch = max(1, round(running.value))
    elif model.made is not None and model.made.run is not None:
        batch = max(1, round(model.made.result.batch))
    context = 1024
    if model.made is not None:
        context = max(1, round(model.made.result.input_tokens + model.made.result.output_tokens / 2))
    draft = DraftAsk(
        methods=(method,) if method and ask.draft_model is None else (),
        draft_model=ask.draft_model,
        num_draft_tokens=max(length, round(rounds.value - 0.5)),
        accepted_tokens=(max(1, round((rounds.value - 1) * _COUNTED)),),
        num_drafts=_COUNTED,
        batch=batch,
    )
    plain = replace(ask, draft_model=None, num_lookahead_tokens=None, num_draft_tokens=None, method=None)
    try:
        rows = speculate(plain, draft, contexts=(context,)).result.rows
    except InfcalcError as problem:
        return None, f"drafting is not priced: {problem.message}"
    if not rows:
        return None, "no way of drafting is known for this model"
    row = max(rows, key=lambda one: one.speedup)
    how = f"for {row.method} with {row.num_draft_tokens} drafted tokens at batch {batch}"
    if not (method or ask.draft_model):
        how += ", the most favourable of the known ways"
    return (
        Drafted(
            speedup=row.speedup,
            low=row.speedup_low,
            high=row.speedup_high,
            num_best_drafts=_best(plain, draft, row.method, row.survival_rates, context),
            how=how,
            is_stated=bool(method or ask.draft_model),
        ),
        "",
    )


def _best(ask: Ask, draft: DraftAsk, method: str, rates: tuple[float, ...], context: int) -> int | None:
    """Return the draft length that would be best at the same acceptance; None where it is not known."""
    if not rates:
        return None
    asked = DraftAsk(
        methods=() if draft.draft_model else (method,),
        draft_model=draft.draft_model,
        acceptance=rates,
        batch=draft.batch,
    )
    try:
        rows = speculate(ask, asked, contexts=(context,)).result.rows
    except InfcalcError:
        return None
    return rows[0].num_draft_tokens if rows else None


def _length(model: Modelled, measured: Mapping[Signal, Reading], rounds: float) -> int | None:
    if model.num_draft_tokens:
        return model.num_draft_tokens
    stated = _DRAFTS.search(model.drafting)
    if stated:
        return int(stated[1])
    accepted = measured.get(Signal.ACCEPTED)
    if accepted is not None and accepted.value > 0 and rounds > 1:
        length = round((rounds - 1) / accepted.value)
        return length if 1 <= length <= _MOST_DRAFTS else None
    return None


def _method(model: Modelled) -> str:
    if model.found is None:
        return ""
    if model.found.site.ask.method:
        return model.found.site.ask.method
    if model.found.site.ask.num_draft_tokens:
        return "mtp"
    text = model.drafting.lower()
    found = next((ours for word, ours in _METHODS if word in text), "")
    return _TREES.get(found, found) if model.found.deployment.rules.engine == "sglang" else found
