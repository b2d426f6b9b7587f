"""``infcalc launch``."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from infcalc.api.launch_ask import LaunchAsk
from infcalc.api.launching import launch, save
from infcalc.cli.given import ask_from, contexts_from, listed
from infcalc.cli.options import BESIDES, CATALOG, CONTEXT, DEPLOYMENT, LAUNCH, OUTPUT
from infcalc.cli.render import check_way_out, render
from infcalc.errors import FileProblem, UsageError
from infcalc.report.table import View

OPTIONS = (*LAUNCH, *CONTEXT, *DEPLOYMENT, *BESIDES, *CATALOG, *OUTPUT)
HELP = """The text that starts a deployment with the settings its ledger counts with: a shell command, a Python snippet,
a docker line, Kubernetes objects, a KServe service; each option with its reason and its meaning in that engine, and
only options that the version has. Exit code 3 when it does not fit, with the nearest changes that would.

Example: infcalc launch -m llama3.1-8b -g h100 -n 1 --kv-dtype fp8 --target kubernetes

Example: infcalc launch -m deepseek-v3 -g h200 -n 8 --ep 8 --mtp-tokens 1 --engine sglang --save start"""


def _prefix_caching(options: dict[str, Any]) -> bool | None:
    if options["prefix_caching"] and options["no_prefix_caching"]:
        raise UsageError("with a prefix cache and without", place="--no-prefix-caching", hint="give one of the two")
    if options["prefix_caching"]:
        return True
    return False if options["no_prefix_caching"] else None


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    check_way_out(options, "launch", has_plot=False)
    targets = listed(options["target"], "--target")
    how = LaunchAsk(
        targets=targets,
        num_replicas=1 if options["replicas"] is None else options["replicas"],
        num_prefill_replicas=options["prefill_replicas"] or 0,
        drafter=options["method"],
        num_draft_tokens=options["num_draft_tokens"] if options["method"] else None,
        prefix_caching=_prefix_caching(options),
        chunked_prefill=False if options["no_chunked_prefill"] else None,
        model_id=options["model_id"],
        served_name=options["served_name"],
        port=options["port"],
    )
    deployed = options | {"method": None} | ({"num_draft_tokens": None} if options["method"] else {})
    answer = launch(ask_from(deployed), how, contexts=contexts_from(options))

    def view() -> View:
        from infcalc.report.views import launch as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer, whole=bool(targets))

    if options["save"] and answer.result.fits:
        try:
            sys.stderr.writelines(f"wrote {path}\n" for path in save(answer.result, options["save"]))
        except FileProblem as problem:
            answer = replace(answer, unsaved=(problem,))
    return render(answer, view, options)
