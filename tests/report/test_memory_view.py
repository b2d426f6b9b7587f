from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.filling import memory
from infcalc.report.as_json import document
from infcalc.report.text import as_csv, plain
from infcalc.report.views.memory import parts, view
from infcalc.units import KIB

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["llama3-8b", "gpt-oss-20b", "qwen3-32b"])
def test_the_parts_of_the_bar_are_the_whole_gpu(engine: str, model: str) -> None:
    answer = memory(Ask(models=(model,), gpus=("h100",), num_gpus=1, engine=engine))
    result = answer.result
    assert result.fits
    assert sum(size for _, _, size in parts(result)) == pytest.approx(result.total_bytes, abs=8 * KIB)
    assert "beyond the end" not in plain(view(answer))


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize(("model", "gpu"), [("deepseek-v3", "h100"), ("llama3-70b", "rtx-4090")])
def test_what_is_missing_lies_beyond_the_end(engine: str, model: str, gpu: str) -> None:
    result = memory(Ask(models=(model,), gpus=(gpu,), num_gpus=1, engine=engine)).result
    assert not result.fits
    beyond = sum(size for _, _, size in parts(result)) - result.total_bytes
    assert beyond == pytest.approx(result.missing_bytes, abs=8 * KIB)


def test_what_lies_in_the_reserve_is_said() -> None:
    answer = memory(Ask(models=("gpt-oss-120b",), gpus=("h100",), num_gpus=1, engine="sglang"))
    result = answer.result
    rows = {row["name"]: row for row in view(answer).tables[0].rows}
    assert "the forward pass takes" in str(rows["reserve"]["source"])
    assert rows["reserve"]["num_bytes"] == result.reserve_bytes
    # 79.2 GiB less the reserve: that the engine uses all of them is what it does not do.
    assert "of 65.7 GiB" in str(rows["KV pool"]["source"])


def rows_of(ask: Ask) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    answer = memory(ask)
    whole: Any = document(answer)["result"]
    return list(csv.DictReader(io.StringIO(as_csv(view(answer))))), whole.get("side_by_side", [whole])


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "; ".join(value)
    return "" if value is None else str(value)


@pytest.mark.parametrize(
    "ask",
    [
        Ask(models=("llama3-70b", "qwen3.5-27b"), gpus=("h100", "a100"), kv_dtypes=("bf16", "fp8"), num_gpus=4),
        Ask(models=("deepseek-v3",), gpus=("h100",), num_gpus=8),
    ],
)
def test_csv_holds_what_json_holds(ask: Ask) -> None:
    rows, results = rows_of(ask)
    told = [row for row in rows if row["row"] == "result"]
    assert len(told) == len(results)
    for row, result in zip(told, results, strict=True):
        for key, value in result.items():
            if key not in {"lines", "changes"}:
                assert row[key] == as_text(value), key
    for word, key in (("line", "lines"), ("change", "changes")):
        entries = [(result, entry) for result in results for entry in result[key]]
        found = [row for row in rows if row["row"] == word]
        assert len(found) == len(entries)
        for row, (result, entry) in zip(found, entries, strict=True):
            assert {name: row[name] for name in entry} == {name: as_text(value) for name, value in entry.items()}
            assert (row["model"], row["gpu"], row["kv_dtype"]) == (result["model"], result["gpu"], result["kv_dtype"])
    assert any(row["row"] == "change" for row in rows) or all(result["fits"] for result in results)
