from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc import files
from infcalc.api import Ask, Offer, estimate
from infcalc.api.recorded_runs import predict
from infcalc.api.validating_serving import ServingValidation, validate_serving, validated_serving
from infcalc.errors import FileProblem

ENTRIES = """
- id: closed
  group: one
  kind: serving
  model: meta-llama/Llama-3.1-8B-Instruct
  weights: bf16
  kv_precision: auto (bf16)
  quality: full
  engine: {name: vLLM, version: 0.11.0}
  gpu: {name: NVIDIA H100 SXM, memory_gb: 80}
  parallel: {tp: 1, pp: 1, dp: 1, ep: null}
  workload: {input_tokens: 1024, output_tokens: 1024, concurrency: 16, num_requests: 160}
  measured: {output_tok_s: 1700, ttft_ms: {mean: 80, median: 70}, tpot_ms: {mean: 9, median: 9}}
  flags: {}
- id: burst
  group: two
  kind: serving
  model: meta-llama/Llama-3.1-8B-Instruct
  weights: bf16
  quality: full
  engine: {name: vLLM, version: 0.11.0}
  gpu: {name: NVIDIA H100 SXM}
  parallel: {tp: 1}
  workload: {dataset: ShareGPT, input_tokens: 217, output_tokens: 201, num_requests: 1000, request_rate: inf}
  measured: {output_tok_s: 5000}
- id: batch
  group: one
  kind: offline_latency
  model: meta-llama/Llama-2-7b-hf
  weights: fp16
  quality: full
  engine: {name: TensorRT-LLM, version: 0.11.0}
  gpu: {name: NVIDIA A100 SXM 80GB}
  parallel: {tp: 1}
  workload: {input_tokens: 128, output_tokens: 128, batch: 16}
  measured: {e2e_ms: {mean: 1900}}
- id: nowhere
  group: one
  kind: serving
  model: nobody/unheard-of-7b
  quality: full
  engine: {name: vLLM, version: 0.11.0}
  gpu: {name: NVIDIA H100 SXM}
  parallel: {tp: 1}
  workload: {input_tokens: 1, output_tokens: 1, concurrency: 1}
  measured: {output_tok_s: 1}
- id: drafted
  group: one
  kind: speculative
  quality: partial
  model: meta-llama/Llama-2-7b-hf
  engine: {name: vLLM}
  gpu: {name: NVIDIA H100 SXM}
  parallel: {tp: 1}
  measured: {speedup: 2.1}
- id: partial
  group: one
  kind: serving
  quality: partial
  measured: {output_tok_s: 1}
"""


def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(ENTRIES)
    return found


@cache
def result() -> ServingValidation:
    return validated_serving(entries(), files.load_catalog())


def test_full_entries_are_scored_and_others_skipped_with_the_reason() -> None:
    status = {(case.id, case.quantity): (case.status, case.reason) for case in result().cases}
    assert status["closed", "output_tokens_per_s"] == ("scored", "")
    assert status["closed", "tpot_s"][0] == status["closed", "ttft_s"][0] == "scored"
    assert status["batch", "e2e_s"][0] == "scored"
    assert "unheard-of" in status["nowhere", "output_tokens_per_s"][1]
    assert "drafting" in status["drafted", "speedup"][1]
    assert not any(name == "partial" for name, _ in status)


def test_predictions_are_near_what_was_measured() -> None:
    errors = {
        (case.id, case.quantity): abs(case.error_fraction)
        for case in result().cases
        if case.error_fraction is not None and case.id != "burst"
    }
    assert max(errors.values()) < 0.6


def test_altering_what_was_measured_alters_no_prediction() -> None:
    altered = copy.deepcopy(entries())
    for entry in altered:
        said = entry["measured"]
        for key, value in said.items():
            said[key] = {name: 7 * figure for name, figure in value.items()} if isinstance(value, dict) else 7 * value
    again = validated_serving(altered, files.load_catalog())
    assert [case.predicted for case in again.cases] == [case.predicted for case in result().cases]
    assert [case.measured for case in again.cases] != [case.measured for case in result().cases]


def test_the_median_is_scored_where_one_is_stated() -> None:
    case = next(case for case in result().cases if (case.id, case.quantity) == ("closed", "ttft_s"))
    assert (case.statistic, case.measured) == ("median", 0.07)


def test_bursts_are_a_class_of_their_own() -> None:
    kinds = {case.id: case.kind for case in result().cases}
    assert kinds["burst"] == "burst"
    assert kinds["closed"] == "NVIDIA dense"
    groups = {row.group for row in result().summary if row.quantity == "output_tokens_per_s"}
    assert {"all", "class burst", "class NVIDIA dense", "engine vLLM", "gpu NVIDIA H100 SXM", "source two"} <= groups


def test_a_wrong_entry_does_not_lose_the_others(tmp_path: Path) -> None:
    wrong = entries()[:1]
    wrong.append(copy.deepcopy(wrong[0]) | {"id": "odd", "workload": {"input_tokens": "many"}})
    path = tmp_path / "runs.yaml"
    path.write_text(yaml.safe_dump(wrong), encoding="utf-8")
    answer = validate_serving(str(path))
    assert {case.id for case in answer.result.cases if case.status == "scored"} == {"closed"}
    assert {case.id for case in answer.result.cases} == {"closed", "odd"}
    assert any("odd" in text and "input_tokens" in text for text in answer.warnings)


@pytest.mark.parametrize("text", ["a: 1", "[]", "- quality: partial"])
def test_a_file_without_measured_runs_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runs.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileProblem):
        validate_serving(str(path))


def test_what_is_scored_is_what_is_printed() -> None:
    (entry,) = (one for one in entries() if one["id"] == "closed")
    scored = predict(entry, files.load_catalog()).speed
    ask = Ask(models=("llama3.1-8b",), gpus=("h100-sxm5-80gb",), tp=1, engine="vllm", engine_version="0.11.0")
    offer = Offer(concurrency=16, num_requests=160, input_tokens=1024, output_tokens=1024)
    printed = estimate(ask, offer).result
    for name in ("ttft_s", "tpot_s", "e2e_s", "requests_per_s", "output_tokens_per_s"):
        figure = getattr(printed, name)
        assert figure.value == pytest.approx(getattr(scored, name), rel=1e-9)


def test_what_cannot_be_read_is_counted_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "runs.yaml"
    good = next(entry for entry in entries() if "output_tok_s" in entry["measured"])
    path.write_text(
        yaml.safe_dump(
            [
                good,
                {**good, "id": "half a rank", "parallel": {"tp": 1.5}, "measured": {"output_tok_s": 5, "e2e_ms": {}}},
                {"quality": "partial", "parallel": 3, "measured": {"speedup": 2, "output_tok_s": 5}},
            ]
        ),
        encoding="utf-8",
    )
    result = validate_serving(str(path)).result
    skipped = {(case.id, case.quantity): case for case in result.cases if case.status == "skipped"}
    assert set(skipped) == {
        ("half a rank", "output_tokens_per_s"),
        ("half a rank", "e2e_s"),
        (f"{path}, entry 3", "speedup"),
    }
    assert "tp is 1.5" in skipped["half a rank", "e2e_s"].reason
    assert all(case.measured is case.predicted is None for case in skipped.values())
    rows = {row.quantity: (row.cases, row.skipped) for row in result.summary if row.group == "all"}
    assert rows["output_tokens_per_s"] == (1, 1)
    assert rows["speedup"] == (0, 1)
