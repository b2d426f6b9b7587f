from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from infcalc import files
from infcalc.api.scoring import summary
from infcalc.api.validating_drafting import PUBLISHED, STATED
from infcalc.api.validating_serving import SPEEDUP, ServingValidation, validated_serving
from tests.measured import RUNS, runs, script

PARTIAL = RUNS.with_name("speculation_measured.yaml")


@cache
def entries() -> tuple[dict[str, Any], ...]:
    found = files.read_yaml(str(PARTIAL))
    assert isinstance(found, list)
    return (*found, *(run for run in runs() if "speedup" in run["measured"]))


@cache
def validation() -> ServingValidation:
    return validated_serving(entries(), files.load_catalog())


def test_every_published_speedup_is_predicted() -> None:
    cases = validation().cases
    assert len(cases) == len(entries()) >= 46
    assert all(case.quantity == SPEEDUP and case.predicted is not None for case in cases)


def test_rounds_whose_tokens_are_stated_are_priced_within_the_goal() -> None:
    stated = [case for case in validation().cases if case.kind == STATED]
    errors = summary(SPEEDUP, STATED, stated)
    assert errors.cases >= 24
    assert errors.median_abs_error_fraction is not None
    assert errors.p90_abs_error_fraction is not None
    assert errors.band_coverage_fraction is not None
    assert errors.median_abs_error_fraction <= 0.15
    assert errors.p90_abs_error_fraction <= 0.40
    assert errors.band_coverage_fraction >= 0.72


def test_gains_and_losses_are_told_apart() -> None:
    sides = {side.measured: side for side in validation().sides}
    assert sides["gains"].cases >= 39
    assert sides["losses"].cases >= 7
    assert sides["gains"].predicted_so >= 0.95 * sides["gains"].cases
    assert sides["losses"].predicted_so >= 0.70 * sides["losses"].cases


def test_no_source_carries_the_sign_alone() -> None:
    lost = {case.group for case in validation().cases if case.measured is not None and case.measured < 1}
    assert len(lost) >= 2


def test_what_was_measured_alters_no_prediction() -> None:
    altered = deepcopy(list(entries()))
    for entry in altered:
        kept = entry["measured"].get("acceptance")
        entry["measured"] = {
            key: 3.3 if key == "speedup" else value for key, value in entry["measured"].items() if key != "output_tok_s"
        }
        if kept:
            entry["measured"]["acceptance"] = kept
    again = validated_serving(altered, files.load_catalog())
    assert [case.predicted for case in again.cases] == [case.predicted for case in validation().cases]


def test_more_tokens_per_round_at_the_same_price_gain_in_proportion() -> None:
    entry = deepcopy(next(one for one in entries() if one["id"] == "specbench-026"))
    found = []
    for tokens in (2.0, 3.0):
        entry["measured"]["acceptance"]["mean_tokens_per_step"] = tokens
        (case,) = validated_serving([entry], files.load_catalog()).cases
        found.append(case.predicted or 0.0)
    assert found[1] == pytest.approx(1.5 * found[0])


def test_the_gain_of_a_server_turns_into_a_loss_as_its_rate_grows() -> None:
    # vLLM blog 2024-10-17: 1.5x at 1 request/s, 1.4x slower at a high one, for the same model, GPUs and draft.
    entry = deepcopy(next(one for one in entries() if one["id"] == "vllm_spec-007"))
    gains = []
    for rate in (1, 4, 12, 20):
        entry["workload"]["request_rate"] = rate
        (case,) = validated_serving([entry], files.load_catalog()).cases
        gains.append(case.predicted or 0.0)
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.3
    assert gains[2] < 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"flags": {"spec": "telepathy"}}, "not a known way of drafting"),
        ({"model": "nobody/knows-this"}, "unknown model"),
        ({"engine": {"name": "mystery"}}, "unknown engine"),
    ],
)
def test_what_cannot_be_predicted_is_skipped_with_the_reason(change: dict[str, Any], reason: str) -> None:
    entry = {**deepcopy(entries()[0]), **change}
    (case,) = validated_serving([entry], files.load_catalog()).cases
    assert case.status == "skipped"
    assert reason in case.reason
    assert case.predicted is None


def test_published_acceptance_is_told_from_stated() -> None:
    kinds = {case.id: case.kind for case in validation().cases}
    assert kinds["specbench-021"] == STATED
    assert kinds["vllm_spec-001"] == PUBLISHED


def test_the_page_is_current() -> None:
    page = script("speculation_page")
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run python scripts/speculation_page.py"
