"""``infcalc speculate``."""

from __future__ import annotations

from typing import Any

from infcalc.api.drafting import DraftAsk, speculate
from infcalc.cli.given import (
    ask_from,
    contexts_from,
    listed,
    real_numbers,
    simulation_from,
    single,
    whole_numbers,
)
from infcalc.cli.options import BATCHES, CATALOG, CONTEXT, COUNTERS, DEPLOYMENT, DRAFTING, OUTPUT, SEED
from infcalc.cli.render import render
from infcalc.report.table import View

OPTIONS = (*DRAFTING, *COUNTERS, *SEED, *BATCHES, *CONTEXT, *DEPLOYMENT, *CATALOG, *OUTPUT)
HELP = """Tokens per round, speedup, best draft length and the batch up to which drafting pays.

Example: infcalc speculate --method eagle3 --acceptance 0.8 --num-draft-tokens 5"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    draft = DraftAsk(
        methods=listed(options["method"], "--method"),
        draft_model=options["draft_model"],
        num_draft_tokens=options["num_draft_tokens"],
        acceptance=real_numbers(options["acceptance"], "--acceptance"),
        accepted_tokens=whole_numbers(options["accepted"], "--accepted"),
        num_drafts=options["drafted"],
        batch=single(whole_numbers(options["batch"], "--batch"), "--batch"),
        simulation=simulation_from(options),
    )
    answer = speculate(ask_from(options), draft, contexts=contexts_from(options), explain=options["explain"])

    def view() -> View:
        from infcalc.report.views import speculate as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.plots import plot_speculate  # noqa: PLC0415 - the plot extra

        plot_speculate(answer, path)

    return render(answer, view, options, plot=plot)
