"""What the values of a pace rest on, held against the published runs that they name."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from infcalc.api.bands import Kind
from infcalc.api.recorded_runs import predict
from infcalc.api.validating_serving import SPEEDUP, ServingCase
from infcalc.engines.pace import FACTORS, OF_FRONT_END, OF_STEPS, Footing, Pace, paces
from infcalc.files import load_catalog
from tests import measured

NAMES = {"output_tokens_per_s": "output tokens/s", "tpot_s": "TPOT", "ttft_s": "TTFT", "e2e_s": "end to end"}
OFFLINE = {"batch", "all at once"}
"""Loads that no front end takes."""
LADDER = [
    pytest.param(step.value, id=f"{engine} {'.'.join(map(str, step.version))}")
    for engine, steps in paces().items()
    for step in steps
]


def overheads(pace: Pace) -> tuple[Any, ...]:
    return tuple(
        getattr(pace, name) for name in (*OF_STEPS, *OF_FRONT_END, "latency_s", "steps", "front_end", "latency")
    )


@cache
def cases_by_pace() -> dict[tuple[Any, ...], list[ServingCase]]:
    """Return the cases of runs by the overheads that predict them."""
    catalog, known = load_catalog(), {run["id"]: run for run in measured.runs()}
    paces_of: dict[str, Pace] = {}
    found: dict[tuple[Any, ...], list[ServingCase]] = {}
    for case in measured.cases():
        # Overheads of steps are not set in view of what drafting gains.
        if case.status != "scored" or case.quantity == SPEEDUP:
            continue
        run = known[case.id]
        key = f"{run['engine']} {run['gpu']} {run['source']['date']}"
        if key not in paces_of:
            told: list[Pace] = []
            predict(run, catalog, adjust=lambda pace, told=told: told.append(pace) or pace)  # type: ignore[misc]
            paces_of[key] = told[0]
        found.setdefault(overheads(paces_of[key]), []).append(case)
    return found


def seen(footing: Footing) -> tuple[set[str], set[str]]:
    return set(footing.sources), set(footing.quantities)


def of(cases: list[ServingCase]) -> tuple[set[str], set[str]]:
    return {case.group for case in cases}, {NAMES[case.quantity] for case in cases}


@pytest.mark.parametrize("pace", LADDER)
def test_overheads_name_the_sources_that_were_in_view(pace: Pace) -> None:
    cases = cases_by_pace().get(overheads(pace), [])
    assert seen(pace.steps) == of([case for case in cases if case.quantity != "ttft_s"])
    bursts = [case for case in cases if case.kind == Kind.BURST]
    waits = [case for case in cases if case.quantity == "ttft_s" and case.load not in OFFLINE and case not in bursts]
    assert seen(pace.front_end) == of(waits + bursts)
    # What a lone request waits does not show where all come at once.
    assert seen(pace.latency) == of(waits)


def test_every_value_of_a_pace_has_a_footing() -> None:
    values = {field.name for field in fields(Pace) if field.name.endswith("_s")}
    for pace in (step.value for steps in paces().values() for step in steps):
        for name in values:
            assert pace.footing(name).text.startswith("set by hand: ")
    with pytest.raises(KeyError):
        pace.footing("order")


def test_factors_of_kernels_name_sources_that_were_measured() -> None:
    groups = {run["group"] for run in measured.runs()}
    assert len(FACTORS) == 3
    for factor in FACTORS:
        assert factor.footing.sources
        assert set(factor.footing.sources) <= groups
