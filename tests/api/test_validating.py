from __future__ import annotations

import copy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc import files
from infcalc.api.ledger import state_warnings
from infcalc.api.validating import ValidationResult, ValidationSummary, predict, validate_memory, validated
from infcalc.errors import FileProblem
from infcalc.spec.kv import KV_FORMATS

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "tests" / "published" / "memory_logs.yaml"
PRINTED = (
    "weights_gib_per_gpu",
    "available_kv_gib",
    "num_gpu_blocks",
    "kv_cache_tokens",
    "max_concurrency",
)


@cache
def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(LOGS.read_text(encoding="utf-8"))
    return found


@cache
def result() -> ValidationResult:
    return validated(entries(), files.load_catalog())


def overall(quantity: str) -> ValidationSummary:
    return next(row for row in result().summary if (row.quantity, row.group) == (quantity, "all"))


@pytest.mark.parametrize(
    ("quantity", "median", "p90"),
    [
        ("weights_bytes", 0.005, 0.03),
        ("kv_pool_bytes", 0.03, 0.25),
        ("kv_pool_of_card_fraction", 0.008, 0.04),
        ("kv_cache_tokens", 0.03, 0.25),
        ("max_concurrency", 0.04, 0.25),
    ],
)
def test_errors_stay_within_what_is_claimed(quantity: str, median: float, p90: float) -> None:
    row = overall(quantity)
    assert row.median_abs_error_fraction is not None
    assert row.p90_abs_error_fraction is not None
    assert row.median_abs_error_fraction <= median
    assert row.p90_abs_error_fraction <= p90
    assert row.band_coverage_fraction is not None
    assert 0.72 <= row.band_coverage_fraction <= 0.92


def test_nine_of_ten_logs_are_scored() -> None:
    names = {case.id for case in result().cases}
    scored = {case.id for case in result().cases if case.status == "scored"}
    assert len(scored) >= 0.9 * len(names)
    assert all(case.reason for case in result().cases if case.status == "skipped")


def test_what_is_far_off_was_warned_of() -> None:
    far = [
        case
        for case in result().cases
        if case.error_fraction is not None and abs(case.error_fraction) > 0.35 and case.quantity != "weights_bytes"
    ]
    assert far, "a test that cannot fail"
    assert [case.id for case in far if not case.warnings] == []


def test_a_prediction_does_not_know_what_was_measured() -> None:
    altered = copy.deepcopy(entries())
    for entry in altered:
        for key in PRINTED:
            if entry.get(key) is not None:
                entry[key] = type(entry[key])(entry[key] * 1.5)
    again = {(case.id, case.quantity): case for case in validated(altered, files.load_catalog()).cases}
    stand_ins = {case.id for case in result().cases if case.reason == "the checkpoint is not identified"}
    compared = 0
    for case in result().cases:
        if case.id in stand_ins or case.predicted is None:
            continue
        other = again[case.id, case.quantity]
        assert (other.predicted, other.low, other.high) == (case.predicted, case.low, case.high), case.id
        compared += 1
    assert compared > 100


def test_exact_parts_are_exact() -> None:
    # Where the pool is right to a fraction of a percent, blocks, groups and the token line leave nothing to add.
    by_log = {(case.id, case.quantity): case for case in result().cases}
    for name in ("v0102-qwen3next-80b-h200-tp2", "v028-glm53flash-fp8-h200-tp8", "v011-gemma3-27b-mi300xclass"):
        pool, tokens = by_log[name, "kv_pool_bytes"], by_log[name, "kv_cache_tokens"]
        assert pool.error_fraction is not None
        assert tokens.error_fraction == pytest.approx(pool.error_fraction, abs=0.006), name


def test_the_page_on_accuracy_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "accuracy.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_file_that_is_no_list_of_logs_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("a: 1\n", encoding="utf-8")
    with pytest.raises(FileProblem, match="no list"):
        validate_memory(str(wrong))
    wrong.write_text("a: [\n", encoding="utf-8")
    with pytest.raises(FileProblem):
        validate_memory(str(wrong))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tp", "two"),
        ("tp", float("inf")),
        ("tp", -1),
        ("gpu_memory_utilization", 1.5),
        ("available_kv_gib", "much"),
        ("kv_cache_tokens", [1]),
        ("model", ["llama3-8b"]),
        ("block_size", ""),
    ],
)
def test_a_value_of_another_kind_is_named_with_its_entry(tmp_path: Path, key: str, value: object) -> None:
    entry = {"id": "one", "engine": "vllm", "version": "0.19", "model": "llama3-8b", "gpu": "H100", "tp": 1}
    entry |= {"quality": "full", "available_kv_gib": 50.0, key: value}
    path = tmp_path / "logs.yaml"
    path.write_text(yaml.safe_dump([entry]), encoding="utf-8")
    with pytest.raises(FileProblem, match=f"one: {key} is"):
        validate_memory(str(path))


def test_one_entry_that_cannot_be_read_does_not_lose_the_others(tmp_path: Path) -> None:
    good = {"id": "good", "engine": "vllm", "version": "0.19", "model": "llama3-8b", "gpu": "H100", "tp": 1}
    good |= {"quality": "full", "available_kv_gib": 50.0}
    path = tmp_path / "logs.yaml"
    others = [{**good, "id": "bad", "tp": "two"}, {**good, "id": "cpu", "gpu_count": 0, "quality": "partial"}]
    path.write_text(yaml.safe_dump([good, *others]), encoding="utf-8")
    answer = validate_memory(str(path))
    assert {case.id for case in answer.result.cases} == {"good"}
    assert any("bad: tp is 'two'" in text for text in answer.warnings)


def test_an_unquoted_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "logs.yaml"
    settings = "id: a, engine: vllm, version: 0.19, model: llama3-8b, gpu: H100, tp: 1"
    path.write_text(f"- {{{settings}, quality: full, available_kv_gib: 5}}\n", encoding="utf-8")
    assert validate_memory(str(path)).result.cases[0].status == "scored"


def test_a_file_without_scored_entries_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "logs.yaml"
    for text in ("[]\n", "- {id: x}\n"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(FileProblem, match="of quality full"):
            validate_memory(str(path))


def test_what_a_log_does_not_say_is_a_reason() -> None:
    odd = [
        {"id": "nameless", "engine": "vllm", "quality": "full", "available_kv_gib": 3.0, "gpu": "H100", "tp": 1},
        {"id": "no-ranks", "model": "llama3-8b", "quality": "full", "available_kv_gib": 3.0, "gpu": "H100"},
        {"id": "no-gpu", "engine": "vllm", "model": "llama3-8b", "quality": "full", "available_kv_gib": 3.0},
        {"id": "partial", "engine": "vllm", "model": "llama3-8b", "quality": "partial", "available_kv_gib": 3.0},
    ]
    cases = validated(odd, files.load_catalog()).cases
    assert [(case.id, case.status) for case in cases] == [
        ("nameless", "skipped"),
        ("no-ranks", "skipped"),
        ("no-gpu", "skipped"),
    ]
    assert "unknown model" in cases[0].reason
    assert "ranks" in cases[1].reason
    assert "unknown GPU" in cases[2].reason


def test_a_started_engine_was_asked_for_no_more_sequences_than_it_has_states_for() -> None:
    """Each sequence takes a block of recurrent layers: with its default of 1,024 this engine would not have started."""
    entry = {
        "id": "hybrid",
        "quality": "full",
        "engine": "vllm",
        "version": "0.28",
        "model": "Qwen/Qwen3.8-27B",
        "gpu": "H100-80GB",
        "tp": 1,
        "gpu_memory_utilization": 0.92,
        "max_model_len": 32768,
        "available_kv_gib": 17.0,
    }
    asked = [predict({**entry, **more}, files.load_catalog()) for more in ({}, {"max_num_seqs": 1024})]
    assert [one.deployment.max_num_seqs for one in asked] == [256, 1024]
    few, many = (state_warnings(one.deployment, KV_FORMATS["bf16"], 4096) for one in asked)
    assert few == []
    assert "--max-num-seqs" in many[0]
    assert asked[0].ledger.kv_pool_bytes > asked[1].ledger.kv_pool_bytes
