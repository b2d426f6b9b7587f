from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc import files
from infcalc.api.ledger import with_admitted_sequences
from infcalc.api.scoring import ValidationSummary
from infcalc.api.validating import ValidationCase, ValidationResult, evidence, predict, validate_memory, validated
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


TARGETS: dict[str, Any] = yaml.safe_load(LOGS.with_name("memory_targets.yaml").read_text(encoding="utf-8"))
CAUSES = ("uncertain by more than", "unified memory", "different GPUs in one group", "a draft of its own")
"""How warnings begin, or what they say, that name why a prediction may be far off."""


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
    "quantity",
    [
        "weights_bytes",
        "kv_pool_bytes",
        "kv_pool_of_card_fraction",
        "kv_cache_tokens",
        "max_concurrency",
    ],
)
def test_errors_stay_within_what_is_claimed(quantity: str) -> None:
    row, target = overall(quantity), TARGETS["quantities"][quantity]
    assert row.median_abs_error_fraction is not None
    assert row.p90_abs_error_fraction is not None
    assert row.median_abs_error_fraction <= target["median_fraction"]
    assert row.p90_abs_error_fraction <= target["p90_fraction"]
    assert row.band_coverage_fraction is not None
    assert TARGETS["least_coverage_fraction"] <= row.band_coverage_fraction <= TARGETS["most_coverage_fraction"]


def test_nine_of_ten_logs_are_scored() -> None:
    names = {case.id for case in result().cases}
    scored = {case.id for case in result().cases if case.status == "scored"}
    assert len(scored) >= TARGETS["least_scored_fraction"] * len(names)
    assert all(case.reason for case in result().cases if case.status == "skipped")


def far_without_a_cause(cases: Iterable[ValidationCase]) -> set[tuple[str, str]]:
    """Return the cases that are far off though no warning named what of the prediction is uncertain.

    That a figure of the catalog was not read twice is a warning, but no cause.
    """
    return {
        (case.id, case.quantity)
        for case in cases
        if abs(case.error_fraction or 0.0) > TARGETS["warned_from_fraction"]
        and not any(text in warning for warning in case.warnings for text in CAUSES)
    }


def test_what_is_far_off_was_warned_of() -> None:
    assert far_without_a_cause(result().cases) == set()


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_what_is_far_off_and_was_not_warned_of_is_found(factor: float) -> None:
    sure = next(entry for entry in entries() if entry["id"] == "ldp-qwen25-7b-tp1")
    wrong = sure | {key: sure[key] * factor for key in ("available_kv_gib", "weights_gib_per_gpu")}
    found = far_without_a_cause(validated([wrong], files.load_catalog()).cases)
    quantities = ("weights_bytes", "kv_pool_bytes", "kv_pool_of_card_fraction")
    assert found == {(sure["id"], quantity) for quantity in quantities}
    assert far_without_a_cause(validated([sure], files.load_catalog()).cases) == set()


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


def test_logs_that_state_less_are_others() -> None:
    others = yaml.safe_load(LOGS.with_name("partial_memory_logs.yaml").read_text(encoding="utf-8"))
    assert {entry["quality"] for entry in others} == {"partial"}
    assert not {entry["id"] for entry in others} & {entry["id"] for entry in entries()}
    assert all(entry["source"] and entry["date"] for entry in others)


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
    assert {(case.id, case.status) for case in answer.result.cases} == {("good", "scored"), ("bad", "skipped")}
    assert any("bad: tp is 'two'" in text for text in answer.warnings)
    # Whatever is skipped is counted, and says why.
    skipped = [case for case in answer.result.cases if case.id == "bad"]
    assert {case.quantity for case in skipped} == {"kv_pool_bytes", "kv_pool_of_card_fraction"}
    assert all("tp is 'two' (tp is a whole number" in case.reason for case in skipped)
    assert {item.name: item.value for item in answer.inputs}["entries"] == 2
    for row in answer.result.summary:
        if row.group == "all":
            assert (row.cases, row.skipped) == (1, 1), row.quantity
    groups = {row.group for row in answer.result.summary if row.skipped}
    assert "tp unknown" in groups
    assert "tp 1" not in groups


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
    every = validated(odd, files.load_catalog()).cases
    cases = [case for case in every if case.quantity == "kv_pool_bytes"]
    # Skipped as a share of the card, too: both are counted alike.
    assert len(every) == 2 * len(cases)
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
    few, many = (with_admitted_sequences(one.deployment, KV_FORMATS["bf16"], 4096)[1] for one in asked)
    assert few == []
    assert "--max-num-seqs" in many[0]
    assert asked[0].ledger.kv_pool_bytes > asked[1].ledger.kv_pool_bytes


LLAMA = {"id": "one", "engine": "vllm", "version": "0.19", "model": "llama3-8b", "gpu": "H100", "tp": 1}
LLAMA |= {"quality": "full", "available_kv_gib": 50.0}


def cases_of(**fields: object) -> dict[str, ValidationCase]:
    return {case.quantity: case for case in validated([LLAMA | fields], files.load_catalog()).cases}


@pytest.mark.parametrize("gpu", ["Foo9000", "Foo9000 80GB"])
def test_an_unknown_card_is_told_and_not_only_replaced(gpu: str) -> None:
    case = cases_of(gpu=gpu, total_gpu_memory_gib=79.2)["kv_pool_bytes"]
    assert "gpu" in case.assumed
    assert any("Foo9000" in text and "stands in" in text for text in case.warnings)


def test_a_card_of_far_other_memory_than_its_name_is_told() -> None:
    odd, sure = (cases_of(total_gpu_memory_gib=total)["kv_pool_bytes"] for total in (47.5, 79.2))
    assert any("47.50 GiB" in text for text in odd.warnings)
    assert sure.warnings == ()


def test_an_unknown_precision_is_no_other_one() -> None:
    skipped = cases_of(quantization="foo4")["kv_pool_bytes"]
    assert skipped.status == "skipped"
    assert "'foo4' is not known" in skipped.reason
    stands_in = cases_of(quantization="foo4", weights_gib_per_gpu=5.0)
    assert stands_in["weights_bytes"].status == "skipped"
    assert any("foo4" in text for text in stands_in["kv_pool_bytes"].warnings)
    assert cases_of(quantization="none")["kv_pool_bytes"].warnings == ()
    assert cases_of(quantization="foo4", model="Qwen/Qwen3-8B-FP8")["kv_pool_bytes"].status == "scored"


def test_an_unknown_kv_precision_leaves_only_what_does_not_need_it() -> None:
    cases = cases_of(kv_cache_dtype="zzz", kv_cache_tokens=400_000, max_concurrency=40.0)
    assert cases["kv_pool_bytes"].status == "scored"
    for quantity in ("kv_cache_tokens", "max_concurrency"):
        assert cases[quantity].status == "skipped"
        assert "'zzz'" in cases[quantity].reason
    assert cases_of(kv_cache_dtype="not stated", kv_cache_tokens=400_000)["kv_cache_tokens"].status == "scored"


@pytest.mark.parametrize("left", [0, -2.28])
def test_an_engine_that_had_nothing_left_is_not_scored(left: float) -> None:
    result = validated([LLAMA | {"available_kv_gib": left}], files.load_catalog())
    assert {case.status for case in result.cases} == {"skipped"}
    assert "did not start" in result.cases[0].reason
    assert all(row.cases == 0 for row in result.summary)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("total_gpu_memory_gib", 1e9),
        ("total_gpu_memory_gib", 0),
        ("weights_gib_per_gpu", -3),
        ("available_kv_gib", 1e6),
        ("kv_cache_tokens", -1),
    ],
)
def test_a_figure_that_cannot_be_is_named(tmp_path: Path, key: str, value: float) -> None:
    path = tmp_path / "logs.yaml"
    path.write_text(yaml.safe_dump([LLAMA | {key: value}]), encoding="utf-8")
    with pytest.raises(FileProblem, match=f"one: {key} is"):
        validate_memory(str(path))


def test_each_warning_of_a_case_is_told_once() -> None:
    for case in result().cases:
        assert len(set(case.warnings)) == len(case.warnings), case.id


@pytest.mark.parametrize(("length", "card"), [(8192, "h20-96gb"), (262_144, "h20-141gb")])
def test_of_cards_with_one_name_the_smallest_with_room_is_taken(length: int, card: str) -> None:
    report = LLAMA | {"model": "Qwen/Qwen2.5-32B-Instruct", "gpu": "H20", "max_model_len": length}
    found = predict(report, files.load_catalog())
    assert found.deployment.gpu.name == card
    assert any(card in text and "H20 is the name of" in text for text in found.warnings)
    assert "gpu" in found.assumed


def test_what_is_assumed_of_reports_stands_on_the_page() -> None:
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    told = page.partition("## What validation takes a report to mean")[2].partition("\n## ")[0]
    assert told
    assert all(f"| {one.rule} |" in told for one in evidence())


@pytest.mark.parametrize(
    ("key", "value"), [("tp", "2"), ("gpu_memory_utilization", "0.95"), ("kv_cache_tokens", "many"), ("model", [1])]
)
def test_every_figure_of_an_entry_that_cannot_be_read_is_skipped(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "logs.yaml"
    figures = {"weights_gib_per_gpu": 15.0, "kv_cache_tokens": 400_000, "max_concurrency": 40.0}
    bad = LLAMA | figures | {"id": "bad", key: value}
    path.write_text(yaml.safe_dump([LLAMA, bad]), encoding="utf-8")
    skipped = [case for case in validate_memory(str(path)).result.cases if case.id == "bad"]
    assert sorted(case.quantity for case in skipped) == [
        *("kv_cache_tokens", "kv_pool_bytes", "kv_pool_of_card_fraction", "max_concurrency", "weights_bytes"),
    ]
    assert all(case.status == "skipped" and f"{key} is" in case.reason for case in skipped)


def test_no_prediction_is_below_nothing() -> None:
    cases = cases_of(model="meta-llama/Llama-3.1-70B-Instruct", gpu="L4", kv_cache_tokens=400_000)
    for quantity in ("kv_pool_bytes", "kv_pool_of_card_fraction", "kv_cache_tokens"):
        case = cases[quantity]
        assert case.status == "scored"
        assert (case.predicted, case.low) == (0, 0), quantity
    (told,) = (text for text in cases["kv_pool_bytes"].warnings if "lacking" in text)
    assert "GiB are lacking" in told


def test_ranks_that_cannot_split_the_model_are_told() -> None:
    odd, even = (cases_of(tp=tp)["kv_pool_bytes"].warnings for tp in (3, 2))
    assert any("--tp 3 cannot split" in text for text in odd)
    assert not any("cannot split" in text for text in even)
