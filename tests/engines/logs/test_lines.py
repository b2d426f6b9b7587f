from __future__ import annotations

import json

import pytest

from infcalc.engines.logs.lines import MAX_LINE_CHARACTERS, lines_of

SAID = "INFO [gpu_worker.py:298] Available KV cache memory: 51.38 GiB"


def only(text: str) -> tuple[str, str]:
    (line,) = lines_of(text)
    return line.text, line.rank


@pytest.mark.parametrize(
    "wrapped",
    [
        f"\x1b[1;36m(EngineCore_0 pid=7)\x1b[0;0m {SAID}",
        f"#033[1;36m(EngineCore_0 pid=7)#033[0;0m {SAID}",
        f"[36m{SAID}[0m",
        f"^[[36m{SAID}^[[0m",
        f"vllm-1  | {SAID}",
        f"[pod/llm-0/vllm] 2026-01-01T00:00:00.123456789Z {SAID}",
        json.dumps({"log": f"{SAID}\n", "stream": "stderr", "time": "2026-01-01T00:00:00Z"}),
        json.dumps({"severity": "INFO", "jsonPayload": {"message": SAID}}),
        "2026-01-01T00:00:00Z stdout F " + json.dumps({"level": "info", "msg": SAID}),
        json.dumps({"log": json.dumps({"message": SAID})}),
        f"   {SAID}\r",
    ],
)
def test_colours_prefixes_and_json_come_off(wrapped: str) -> None:
    text, rank = only(wrapped)
    assert SAID in text
    assert "\x1b" not in text
    assert rank == ""


@pytest.mark.parametrize(
    ("head", "rank"),
    [
        ("(VllmWorker rank=3 pid=12) INFO", "rank 3"),
        ("(VllmWorker TP0 pid=12) INFO", "TP0"),
        ("(Worker_PP1_TP2 pid=12) INFO", "PP1 TP2"),
        ("(Worker_DP0_TP1_EP1 pid=12) INFO", "DP0 TP1 EP1"),
        ("(EngineCore_DP1 pid=12) INFO", "DP1"),
        ("(EngineCore pid=12) INFO", ""),
        ("(RayWorkerWrapper pid=55, ip=10.0.0.1) INFO", "pid 55"),
        ("[2026-01-01 00:00:00 TP3]", "TP3"),
        ("[01/16/2026-06:20:17] [TRT-LLM] [RANK 5] [I]", "rank 5"),
        ("[1,4]<stdout>:[TensorRT-LLM][INFO]", "rank 4"),
        ("INFO 02-01 10:00:00 worker.py:267]", ""),
    ],
)
def test_the_head_of_a_line_names_its_rank(head: str, rank: str) -> None:
    assert only(f"{head} says something")[1] == rank


def test_a_bracket_before_a_word_is_no_colour() -> None:
    assert only("INFO [model_runner.py:747] [m] [0m][1;31mdone")[0] == "INFO [model_runner.py:747] [m] ]done"


def test_lines_keep_their_number_and_empty_ones_are_passed_over() -> None:
    assert [line.number for line in lines_of("a\n\n  \nb\n")] == [1, 4]


def test_a_line_without_end_is_cut() -> None:
    text, _ = only("x" * (2 * MAX_LINE_CHARACTERS))
    assert len(text) == MAX_LINE_CHARACTERS


@pytest.mark.parametrize("odd", ['{"log": 5}', '{"a": "b"}', "{not json}", '{"log": ""}', "[" * 200 + "{" * 200 + '"}'])
def test_what_is_no_wrapping_stays_as_it_is(odd: str) -> None:
    assert only(odd)[0] == odd
