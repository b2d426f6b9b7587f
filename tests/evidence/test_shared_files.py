"""Every benchmark result among the shared files is read; without the folder the tests are skipped."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infcalc.evidence.nouns import BenchmarkRun, Format, Quantity
from infcalc.evidence.reading import read_evidence
from tests.shipped import ROOT

DATA = ROOT.parent / "shared" / "data"
NO_RESULTS = {"engine.json", "load_config.yaml", "meta.json", "timeseries.csv"}
"""What was run, how, and a series of moments: no results."""

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the shared files with published results are not here")


def results() -> list[Path]:
    found = [path for folder in ("bench_*", "engine_traces") for path in DATA.glob(f"{folder}/**/*") if path.is_file()]
    return sorted(path for path in found if path.name not in NO_RESULTS)


def runs_of(path: Path) -> list[BenchmarkRun]:
    found = read_evidence(path.read_text(encoding="utf-8"), path.name)
    assert all(isinstance(one, BenchmarkRun) for one in found)
    return [one for one in found if isinstance(one, BenchmarkRun)]


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of a text, found with nothing of the readers."""
    decoder, place, found = json.JSONDecoder(), 0, []
    while place < len(text.rstrip()):
        value, place = decoder.raw_decode(text, place)
        found.append(value)
        place += len(text[place:]) - len(text[place:].lstrip())
    return found


def test_all_of_them_are_read() -> None:
    counts = Counter(run.form for path in results() for run in runs_of(path))
    assert counts == {
        Format.VLLM_SERVE: 193,
        Format.INFERENCE_PERF: 96,
        Format.VLLM_THROUGHPUT: 55,
        Format.VLLM_LATENCY: 7,
        Format.ENGINE_TRACE: 4,
        Format.GUIDELLM: 2,
    }


@pytest.mark.parametrize("path", sorted(DATA.glob("bench_vllm/iog_vllm085/*.json")), ids=lambda path: path.name)
def test_files_of_vllm_keep_each_of_their_runs_and_figures(path: Path) -> None:
    records = documents(path.read_text(encoding="utf-8"))
    runs = runs_of(path)
    assert len(runs) == len(records)
    for run, record in zip(runs, records, strict=True):
        for quantity, key in ((Quantity.TTFT, "ttft"), (Quantity.TPOT, "tpot"), (Quantity.ITL, "itl")):
            for statistic in ("mean", "median", "p99"):
                figure = run.figure(quantity, statistic)
                assert figure is not None
                assert figure.value == pytest.approx(record[f"{statistic}_{key}_ms"] / 1000)
        goodput = run.figure(Quantity.GOODPUT)
        assert goodput is not None
        assert goodput.value == record["request_goodput:"]
        assert {one.name for one in run.settings} >= {"model", "gpu", "gpus", "engine"}


def test_time_per_token_of_inference_perf_is_that_of_the_server() -> None:
    # Once scrapes of 15 s are of one stage: within 3 %, where its own figures are off by half. Not with drafting, where
    # the server divides by rounds, nor with V0, where half of the requests are of other stages.
    for name in ("vllm", "vllm_batch_size", "vllm_chunking_and_prefix_caching", "vllm_quantization"):
        folder = DATA / "bench_inference_perf" / name
        for stage in range(2, 7):
            (client,) = runs_of(folder / f"stage_{stage}_lifecycle_metrics.json")
            (server,) = runs_of(folder / f"stage_{stage}_prometheus_metrics.json")
            ours, theirs = client.figure(Quantity.TPOT), server.figure(Quantity.TPOT)
            assert ours is not None
            assert theirs is not None
            assert ours.value == pytest.approx(theirs.value, rel=0.03)
            assert any("count chunks" in text for text in client.conversions)


def test_lengths_that_prometheus_counted_are_those_of_the_client() -> None:
    folder = DATA / "bench_inference_perf" / "vllm"
    (client,) = runs_of(folder / "stage_3_lifecycle_metrics.json")
    (server,) = runs_of(folder / "stage_3_prometheus_metrics.json")
    assert server.load.input_tokens == pytest.approx(client.load.input_tokens, rel=0.01)
    assert server.load.output_tokens == pytest.approx(client.load.output_tokens, rel=0.05)


def test_nothing_in_them_contradicts_itself() -> None:
    doubts = [
        (path.name, warning)
        for path in results()
        for run in runs_of(path)
        for warning in run.warnings
        if "one is wrong" in warning or "longer than" in warning
    ]
    assert not doubts
