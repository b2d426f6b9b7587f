"""Drafting under load as measured (tests/published/drafting_under_load.yaml), beside its simulation.

``simulation_page.py`` writes it into docs/simulation_accuracy.md.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from infcalc.api.deployment import Ask
from infcalc.api.drafting import DraftAsk
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.simulation_nouns import RunResult, SimulationResult
from infcalc.api.workload_ask import WorkloadAsk

FIGURES = Path(__file__).resolve().parents[1] / "tests" / "published" / "drafting_under_load.yaml"
_STAGE_S = 60
_LEAST_REQUESTS = 60


def published() -> dict[str, Any]:
    """Return what was measured."""
    found: dict[str, Any] = yaml.load(FIGURES.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return found


def _simulated(entry: dict[str, Any], **load: Any) -> SimulationResult:  # noqa: ANN401 - as the entry has it
    def whole(values: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

    asked = SimulationAsk(load=WorkloadAsk(**{**entry["load"], **load}), draft=DraftAsk(**whole(entry["draft"])))
    return simulate(Ask(**whole(entry["settings"])), asked).result


def at_rate(entry: dict[str, Any], rate: float) -> tuple[RunResult, RunResult]:
    """Return both runs of the ladder at one rate: a minute of requests."""
    number = max(_LEAST_REQUESTS, int(_STAGE_S * rate))
    drafted, plain = _simulated(entry, arrivals=f"constant:rate={rate:g}", num_requests=number).compare
    return drafted, plain


@cache
def rungs() -> tuple[tuple[str, float, float, float], ...]:
    """Return who (drafted or plain), rate, measured and simulated mean time of a request, in seconds."""
    entry = published()["ladder"]
    found = []
    for place, kind in enumerate(("drafted", "plain")):
        for rung in entry[kind]:
            run = at_rate(entry, rung["rate"])[place]
            if run.e2e_s is None:
                raise AssertionError("all requests are answered")
            found.append((kind, rung["rate"], rung["e2e_s"], run.e2e_s.mean))
    return tuple(found)


@cache
def answered() -> tuple[tuple[str, float, float], ...]:
    """Return who, and requests per second that are answered where more come: measured and simulated."""
    entry = published()["ladder"]
    runs = at_rate(entry, entry["overload_rate"])
    return tuple(
        (kind, entry["answered_per_s"][kind], run.requests_per_s)
        for kind, run in zip(("drafted", "plain"), runs, strict=True)
    )


@cache
def claims() -> tuple[tuple[str, str, float, float], ...]:
    """Return claim, load, measured and simulated gain."""
    found = []
    for entry in published()["claims"]:
        for name in ("low", "middle", "high"):
            if name in entry:
                load = dict(entry[name])
                measured = load.pop("measured")
                gain = getattr(_simulated(entry, **load), entry["quantity"])
                if "num_clients" in load:
                    what = f"{load['num_clients']} at a time"
                else:
                    what = "all at once" if "arrivals" in load else f"{load['requests_per_s']:g} per s"
                found.append((entry["id"], what, measured, gain))
    return tuple(found)


def section() -> list[str]:
    """Return the lines of the page."""
    figures = published()
    entry = figures["ladder"]
    drafted = [abs(simulated / measured - 1) for kind, _, measured, simulated in rungs() if kind == "drafted"]
    sides = [(measured > 1) == (simulated > 1) for _, _, measured, simulated in claims()]
    where = f"[{entry['source'].split('/tree/')[0].removeprefix('https://')}]({entry['source']})"
    typical, worst = f"{median(drafted):.1%}", f"{max(drafted):.1%}"
    lines = [
        "## Drafting under load",
        "",
        f"{entry['what']}: {entry['engine']}, {where}. {entry['assumed']}",
        "",
        f"Mean time of a request at constant rates; with drafting the median error is {typical}, the worst {worst}.",
        "",
        "| run | requests per s | measured | simulated | error |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind, rate, measured, simulated in rungs():
        lines.append(f"| {kind} | {rate:g} | {measured:.3f} s | {simulated:.3f} s | {simulated / measured - 1:+.0%} |")
    for kind, measured, simulated in answered():
        told = f"answered where {entry['overload_rate']:g} come"
        error = simulated / measured - 1
        lines.append(f"| {kind} | {told} | {measured:.1f} per s | {simulated:.1f} per s | {error:+.0%} |")
    lines += [
        "",
        (
            "How many times as fast with drafting (below 1: slower): time per token where requests come at a rate, "
            f"else throughput. {sum(sides)} of {len(sides)} are on the right side."
        ),
        "",
        "| case | load | measured | simulated | assumed |",
        "|---|---|---:|---:|---|",
    ]
    assumed = {one["id"]: f"{one['assumed']} ([source]({one['source']}))" for one in figures["claims"]}
    for name, load, measured, gain in claims():
        lines.append(f"| {name} | {load} | {measured:.2f} | {gain:.2f} | {assumed[name]} |")
    return [*lines, ""]
