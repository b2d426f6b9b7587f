from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infcalc.api import WorkloadAsk, workload
from infcalc.errors import FileProblem, InfcalcError, TraceError, UsageError

LINES = "time,input_tokens,output_tokens\n3,10,1\n1,20,2\n5,30,3\n6,5,0\n"


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(LINES, encoding="utf-8")
    return str(path)


def test_without_anything_a_stated_load_is_made() -> None:
    answer = workload()
    inputs = {item.name: (item.value, item.origin) for item in answer.inputs}
    assert inputs == {
        "num_requests": (10_000, "default"),
        "arrivals": ("poisson:rate=12", "default"),
        "input_tokens": ("lognormal:mean=500,cv=1", "default"),
        "output_tokens": ("lognormal:mean=240,cv=1", "default"),
        "seed": (0, "default"),
    }
    result = answer.result
    assert result.requests == 10_000
    # Four standard errors: the mean gap has one of a hundredth.
    assert result.rate_per_s == pytest.approx(12, rel=0.04)
    assert result.input_tokens.mean == pytest.approx(500, rel=0.04)
    assert result.output_tokens.mean == pytest.approx(240, rel=0.04)
    assert result.prefix_share_fraction == 0


def test_a_file_is_described_with_what_was_done_to_it(trace: str) -> None:
    answer = workload(WorkloadAsk(file=trace))
    result = answer.result
    assert (result.trace_format, result.requests, result.left_out) == ("csv", 3, 1)
    assert (result.duration_s, result.rate_per_s) == (4, 0.5)
    assert (result.input_tokens.min, result.input_tokens.max, result.output_tokens.mean) == (10, 30, 2)
    assert any("1 line without a prompt or an answer" in warning for warning in answer.warnings)
    assert any("times go back at 1 place;" in warning for warning in answer.warnings)


def test_a_file_may_be_cut_sped_up_or_sent_anew(trace: str) -> None:
    assert workload(WorkloadAsk(file=trace, num_requests=2)).result.duration_s == 2
    assert workload(WorkloadAsk(file=trace, speedup=4)).result.duration_s == 1
    sent = workload(WorkloadAsk(file=trace, arrivals="constant:2"))
    assert (sent.result.rate_per_s, sent.result.burstiness_cv) == (2, 0)
    assert sent.result.input_tokens == workload(WorkloadAsk(file=trace)).result.input_tokens
    looped = workload(WorkloadAsk(file=trace, num_clients=7)).result
    assert (looped.concurrency, looped.rate_per_s, looped.over_time) == (7, None, ())


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_what_is_saved_is_described_alike(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"made.{ending}"
    extra: dict[str, Any] = (
        {} if ending == "csv" else {"shared_prefix": "num=3,tokens=50", "turns": "3", "think_s": 4.0}
    )
    ask: dict[str, Any] = {"num_requests": 500, "arrivals": "weibull:rate=3,cv=2", "seed": 8} | extra
    made = workload(WorkloadAsk(save_trace=str(path), **ask)).result
    first = path.read_bytes()
    read = workload(WorkloadAsk(file=str(path))).result
    differing = [name for name in type(made).__dataclass_fields__ if getattr(made, name) != getattr(read, name)]
    assert differing == ["trace_format"]
    workload(WorkloadAsk(save_trace=str(path), **ask))
    assert path.read_bytes() == first
    workload(WorkloadAsk(save_trace=str(path), **(ask | {"seed": 9})))
    assert path.read_bytes() != first


def test_a_closed_loop_is_saved_with_its_clients(tmp_path: Path) -> None:
    path = str(tmp_path / "loop.jsonl")
    made = workload(WorkloadAsk(num_clients=5, think_s=2, num_requests=20, save_trace=path)).result
    read = workload(WorkloadAsk(file=path)).result
    assert (made.concurrency, read.concurrency, read.rate_per_s, read.requests) == (5, 5, None, 20)


def test_burstiness_is_that_of_the_benchmark_of_vllm() -> None:
    result = workload(WorkloadAsk(requests_per_s=5, burstiness=0.25, num_requests=50_000)).result
    assert result.burstiness_cv == pytest.approx(2, rel=0.03)
    assert result.burstiness == pytest.approx(0.25, rel=0.06)


def test_texts_without_times_say_what_was_estimated(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(
        '[{"conversations": [{"from": "human", "value": "What is it?!"}, '
        '{"from": "gpt", "value": "A cache of keys."}]}, {"conversations": []}]',
        encoding="utf-8",
    )
    with pytest.raises(TraceError, match="none that benchmarks would take"):
        workload(WorkloadAsk(file=str(path)))
    answer = workload(WorkloadAsk(file=str(path), trace_format="sharegpt-sessions"))
    assert (answer.result.input_tokens.mean_low, answer.result.input_tokens.mean_high) == (2.25, 3.75)
    assert answer.result.rate_per_s is None
    text = " ".join(answer.warnings)
    for words in ("0.75 to 1.25", "no times of arrival", "1 conversation which benchmarks leave out"):
        assert words in text


def test_a_grid_of_times_is_named(tmp_path: Path) -> None:
    path = tmp_path / "grid.csv"
    path.write_text("".join(f"{3 * (place // 10)},5,5\n" for place in range(100)), encoding="utf-8")
    assert any("grid of 3 s" in text for text in workload(WorkloadAsk(file=str(path))).assumptions)


def test_figures_explain_themselves(trace: str) -> None:
    said = {one.quantity: one.substituted for one in workload(WorkloadAsk(file=trace), explain=True).explanations}
    assert said == {
        "rate_per_s": "2 / 4 s = 0.5 per s",
        "burstiness_cv": "0 s / 2 s = 0",
        "prefix_share_fraction": "0 / 60 = 0",
    }


@pytest.mark.parametrize(
    ("ask", "place"),
    [
        ({"arrivals": "poisson:0"}, "--arrivals"),
        ({"arrivals": "poisson:-1"}, "--arrivals"),
        ({"arrivals": "poisson:3", "requests_per_s": 4.0}, "--rate"),
        ({"requests_per_s": 4.0, "num_clients": 3}, "--concurrency"),
        ({"requests_per_s": 0.0}, "--rate"),
        ({"requests_per_s": float("nan")}, "--rate"),
        ({"burstiness": 2.0}, "--burstiness"),
        ({"requests_per_s": 4.0, "burstiness": 0.0}, "--burstiness"),
        ({"requests_per_s": 4.0, "burstiness": float("inf")}, "--burstiness"),
        ({"think_s": 4.0}, "--think-time"),
        ({"num_clients": 0}, "--concurrency"),
        ({"num_clients": 3, "turns": "4"}, "--turns"),
        ({"input_tokens": "0"}, "--input-tokens"),
        ({"output_tokens": "some"}, "--output-tokens"),
        ({"num_requests": 0}, "--num-requests"),
        ({"num_requests": 10**8}, "--num-requests"),
        ({"shared_prefix": "many"}, "--shared-prefix"),
        ({"turns": "1M"}, "--turns"),
        ({"speedup": 2.0}, "--speedup"),
        ({"trace_format": "csv"}, "--trace-format"),
        ({"seed": -1}, "--seed"),
        ({"turns": "3", "save_trace": "x.csv"}, "--save-trace"),
    ],
)
def test_a_load_that_is_none_is_refused(ask: dict[str, Any], place: str) -> None:
    with pytest.raises(UsageError) as told:
        workload(WorkloadAsk(**ask))
    assert told.value.place == place
    assert told.value.hint


@pytest.mark.parametrize(
    ("ask", "place"),
    [
        ({"input_tokens": "5"}, "--input-tokens"),
        ({"output_tokens": "5"}, "--output-tokens"),
        ({"shared_prefix": "tokens=5"}, "--shared-prefix"),
        ({"turns": "5"}, "--turns"),
        ({"speedup": 0.0}, "--speedup"),
        ({"speedup": float("nan")}, "--speedup"),
        ({"trace_format": "parquet"}, "--trace-format"),
    ],
)
def test_what_a_file_says_is_not_said_again(trace: str, ask: dict[str, Any], place: str) -> None:
    with pytest.raises(UsageError) as told:
        workload(WorkloadAsk(file=trace, **ask))
    assert told.value.place == place


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        (None, FileProblem, "no such file"),
        (b"\x1f\x8b\x08 and more", FileProblem, "gunzip"),
        (b"\xff\xfe\x00\x01", FileProblem, "not a UTF-8 text"),
        (b"", TraceError, "empty"),
        (b"1,2,x\n1,2,3\n", TraceError, "no columns"),
        (b"1,2,3\n1,2,x\n", TraceError, "line 2: output_tokens 'x' is not a number"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, content: bytes | None, kind: type[InfcalcError], says: str
) -> None:
    path = tmp_path / "broken.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(kind, match=says) as told:
        workload(WorkloadAsk(file=str(path)))
    assert told.value.exit_code == 2
    assert str(path) in str(told.value)
