from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc import files
from infcalc.api.scoring import summary
from infcalc.api.validating_drafting import PUBLISHED, STATED, predict_speedup
from infcalc.api.validating_serving import SPEEDUP, ServingValidation, validate_serving, validated_serving
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


@pytest.mark.parametrize(
    ("spec", "method"),
    [
        ("Token Recycling", "recycling"),
        ("draft model", "draft-model"),
        ("EAGLE-1", "eagle-tree"),
        ("SAMD", "ngram"),
        ("P-EAGLE", "eagle3-tree"),
        ("HASS", "eagle2"),
        ("MTP-3", "mtp"),
        ("suffix decoding", "ngram"),
        ("Lookahead", "lookahead"),
    ],
)
def test_what_people_call_a_way_of_drafting(spec: str, method: str) -> None:
    entry = deepcopy(next(one for one in entries() if one["id"] == "specbench-026"))
    entry["flags"], entry["measured"] = {"spec": spec}, {"speedup": 1.5}
    assert predict_speedup(entry, files.load_catalog(), {}).row.method == method


def test_a_draft_model_says_that_a_model_drafts() -> None:
    entry = deepcopy(next(one for one in entries() if one["id"] == "vllm_spec-007"))
    entry["flags"] = {"draft_model": "a model of 1B"}
    assert predict_speedup(entry, files.load_catalog(), {}).row.method == "draft-model"


def test_steps_and_width_make_a_tree_and_many_tokens_do_too() -> None:
    # sgl-project/sglang pull request 4716: 8 steps, top 8, 64 tokens: 88.6 to 234.5 tokens/s at 5.88 per round.
    entry = deepcopy(next(one for one in entries() if one["id"] == "vllm_spec-007"))
    entry["engine"] = {"name": "SGLang", "version": "0.4.4"}
    entry["model"] = "meta-llama/Llama-3.3-70B-Instruct"
    entry["parallel"] = {"tp": 8}
    entry["workload"] = {"batch": 1}
    entry["measured"] = {"speedup": 234.5 / 88.6, "acceptance": {"mean_tokens_per_step": 5.88}}
    for flags in ({"num_steps": 8, "topk": 8, "draft_tokens": 64}, {"draft_tokens": 64}):
        entry["flags"] = {"spec": "eagle3", **flags}
        row = predict_speedup(entry, files.load_catalog(), {}).row
        assert (row.method, row.num_draft_tokens, row.verified_tokens) == ("eagle3-tree", 8, 65)
        assert row.speedup == pytest.approx(234.5 / 88.6, rel=0.3)


@pytest.mark.parametrize("name", ["draft_tokens", "num_speculative_tokens", "k", "gamma", "num_steps"])
def test_the_length_of_a_draft_goes_by_many_names(name: str) -> None:
    entry = deepcopy(next(one for one in entries() if one["id"] == "vllm_spec-007"))
    entry["flags"][name] = 2
    assert predict_speedup(entry, files.load_catalog(), {}).row.num_draft_tokens == 2


def test_an_endless_rate_fills_the_server() -> None:
    entry = deepcopy(next(one for one in entries() if one["id"] == "vllm_spec-007"))
    entry["workload"]["request_rate"] = float("inf")
    row = predict_speedup(entry, files.load_catalog(), {}).row
    assert row.batch == 256
    assert row.speedup < 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"measured": {"speedup": 2, "acceptance": "3.2"}},
        {"measured": {"speedup": 2, "acceptance": {"mean_tokens_per_step": "many"}}},
        {"measured": {"speedup": 2, "acceptance": {"mean_tokens_per_step": 0.5}}},
        {"flags": {"spec": "eagle3", "draft_tokens": [3, 5]}},
        {"flags": {"spec": "eagle3", "k": 0}},
    ],
)
def test_an_odd_entry_is_skipped_and_loses_no_other(tmp_path: Path, wrong: dict[str, Any]) -> None:
    good = entries()[0]
    path = tmp_path / "runs.yaml"
    path.write_text(yaml.safe_dump([good, {**good, "id": "odd", **wrong}]), encoding="utf-8")
    found = {case.id: case for case in validate_serving(str(path)).result.cases}
    assert found["odd"].status == "skipped"
    assert found["odd"].reason
    assert found[good["id"]].status == "scored"


def test_more_tokens_than_a_round_can_yield_are_refused() -> None:
    entry = deepcopy(next(one for one in entries() if one["id"] == "specbench-021"))
    entry["measured"]["acceptance"]["mean_tokens_per_step"] = 12
    (case,) = validated_serving([entry], files.load_catalog()).cases
    assert case.status == "skipped"
    assert "12 tokens of a round that drafts 8" in case.reason


def test_the_band_is_no_wider_than_the_cases_ask() -> None:
    stated = [case for case in validation().cases if case.kind == STATED]
    assert all(case.low and case.high and case.high / case.low < 1.5 for case in stated)


def test_published_acceptance_is_told_from_stated() -> None:
    kinds = {case.id: case.kind for case in validation().cases}
    assert kinds["specbench-021"] == STATED
    assert kinds["vllm_spec-001"] == PUBLISHED


def test_the_page_is_current() -> None:
    page = script("speculation_page")
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run python scripts/speculation_page.py"
