"""Traces of others, in small files of the same shape; broken ones are told line by line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.errors import TraceError
from infcalc.workload.conversations import estimated_tokens
from infcalc.workload.description import length_summary, rates, shares, time_grid_s
from infcalc.workload.reading import Reading, read_trace
from infcalc.workload.sharing import found_in_endless_cache
from infcalc.workload.trace import NONE
from infcalc.workload.trace_formats import TraceFormat, detected
from tests.workload.traces import found_token_by_token

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319600,3180,8\r\n"
    "2023-11-17 18:17:03.9799600,110,27\r\n"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
    "2024-05-10 00:00:00.509930+00:00,2399,6\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,0,0,0,API log\n118,GPT-4,417,276,693,Conversation log\n"
)
BURSTGPT_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,a,1.5,ChatGPT,472,18,490,Conversation log\n"
)
MOONCAKE = "\n".join(
    json.dumps({"timestamp": time, "input_length": size, "output_length": 5, "hash_ids": ids})
    for time, size, ids in [(0, 1024, [0, 1]), (500, 1500, [0, 1, 2]), (3000, 600, [0, 3]), (3000, 512, [9])]
)
BAILIAN = "\n".join(
    json.dumps(
        {
            "chat_id": 1,
            "parent_chat_id": -1,
            "timestamp": time,
            "input_length": size,
            "output_length": 5,
            "type": "text",
        }
        | {"turn": 1, "hash_ids": ids}
    )
    for time, size, ids in [(0.5, 32, [0, 1]), (2.5, 40, [0, 1, 2])]
)
ENGINE = json.dumps(
    {"request_id": "bench-0", "input_toks": 2358, "output_toks": 531, "arrival_time": 1787267980.5, "queued_ts": 27.5}
)
SHAREGPT = json.dumps(
    [
        {
            "id": "a",
            "conversations": [
                {"from": "human", "value": "x" * 40},
                {"from": "gpt", "value": "y" * 80},
                {"from": "human", "value": "z" * 20},
                {"from": "gpt", "value": "w" * 16},
            ],
        },
        {"id": "b", "conversations": [{"from": "human", "value": "no"}, {"from": "gpt", "value": "y" * 80}]},
        {"id": "c", "conversations": [{"from": "human", "value": "x" * 5000}, {"from": "gpt", "value": "y" * 80}]},
        {"id": "d", "conversations": []},
    ]
)
WILDCHAT = json.dumps(
    {"conversation": [{"role": "user", "content": "x" * 40}, {"role": "assistant", "content": "y" * 80}], "turn": 1}
)


def trace_or_faults(text: str, form: TraceFormat | None) -> Reading | TraceError:
    try:
        return read_trace(text, "x", form)
    except TraceError as told:
        return told


def columns(reading: Reading) -> list[tuple[float, int, int]]:
    trace = reading.trace
    return list(zip(trace.arrivals_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        (AZURE, "azure", [(0, 4808, 10), (0.052, 3180, 8), (86400, 110, 27)]),
        (AZURE_2024, "azure", [(0, 2162, 5), (0.5, 2399, 6)]),
        (BURSTGPT, "burstgpt", [(0, 472, 18), (113, 417, 276)]),
        (BURSTGPT_3, "burstgpt", [(0, 472, 18)]),
        (MOONCAKE, "mooncake", [(0, 1024, 5), (0.5, 1500, 5), (3, 600, 5), (3, 512, 5)]),
        (BAILIAN, "bailian", [(0, 32, 5), (2, 40, 5)]),
        (ENGINE, "jsonl", [(0, 2358, 531)]),
        (f"[{ENGINE}]", "jsonl", [(0, 2358, 531)]),
        (SHAREGPT, "sharegpt", [(0, 10, 20)]),
        (WILDCHAT, "sharegpt", [(0, 10, 20)]),
        ("arrival_s,input_tokens,output_tokens\n1.5,7,3\n", "csv", [(1.5, 7, 3)]),
        ("7,3,1\n9.5,4,2\n", "csv", [(0, 3, 1), (2.5, 4, 2)]),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n7,3,1\n8,4,2\n", "csv", [(0, 3, 1), (1, 4, 2)]),
        ("timestamp_ms,prompt_len,output_len\n7000,3,1\n8500,4,2\n", "csv", [(0, 3, 1), (1.5, 4, 2)]),
        ("time,input,output\n1,3,1\n2.5,4,2\n", "csv", [(0, 3, 1), (1.5, 4, 2)]),
        ('"time","input_tokens","output_tokens"\n"7","3","1"\n', "csv", [(0, 3, 1)]),
        ("time,input_tokens,output_tokens\n2024-05-10T00:00:07Z,3,1\n2024-05-10T00:01:07Z,3,1\n", "csv", None),
        ("input_tokens,output_tokens\n3,1\n\n4,2\n", "csv", [(0, 3, 1), (0, 4, 2)]),
        ('{"arrival_s": 2, "input_tokens": 3, "output_tokens": 4}\n', "jsonl", [(2, 3, 4)]),
    ],
)
def test_a_trace_is_known_by_its_content(text: str, form: str, expected: list[tuple[float, int, int]] | None) -> None:
    reading = read_trace(text, "x")
    assert (reading.form, detected(text)) == (form, form)
    found = columns(reading)
    expected = [(0, 3, 1), (60, 3, 1)] if expected is None else expected
    # Dates of today leave a tenth of a microsecond in a float of their seconds.
    assert [row[1:] for row in found] == [row[1:] for row in expected]
    assert [row[0] for row in found] == pytest.approx([row[0] for row in expected], abs=1e-6)


def test_what_failed_is_left_out_and_counted() -> None:
    assert read_trace(BURSTGPT, "x").num_left_out == 1
    assert read_trace(SHAREGPT, "x").num_left_out == 3


def test_times_are_sorted_where_they_go_back_and_equal_ones_stay() -> None:
    reading = read_trace("5,1,1\n3,2,1\n3,3,1\n4,4,1\n", "x")
    assert columns(reading) == [(0, 2, 1), (0, 3, 1), (1, 4, 1), (2, 1, 1)]
    assert reading.num_unsorted == 1


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**6), st.integers(0, 5)), min_size=1, max_size=20),
    st.booleans(),
)
def test_plain_numbers_are_read_as_quoted_ones_are(rows: list[tuple[float, int, int]], headed: bool) -> None:
    header = ["time,input_tokens,output_tokens"] if headed else []
    plain = "\n".join([*header, *(f"{time!r},{given},{made}" for time, given, made in rows)])
    quoted = "\n".join([*header, *(f'"{time!r}","{given}","{made}"' for time, given, made in rows)])
    one, other = trace_or_faults(plain, None), trace_or_faults(quoted, None)
    if isinstance(one, TraceError) or isinstance(other, TraceError):
        assert str(one) == str(other)
    else:
        assert columns(one) == columns(other)
        assert (one.num_left_out, one.num_unsorted) == (other.num_left_out, other.num_unsorted)


@pytest.mark.parametrize("wrong", ["-1,5,5", "1,5.5,5", "1,1e300,5", "nan,5,5", "1,5", "1,5,5x"])
def test_one_bad_line_among_plain_numbers_is_told_with_its_number(wrong: str) -> None:
    with pytest.raises(TraceError) as told:
        read_trace(f"time,input_tokens,output_tokens\n1,2,3\n\n2,3,4\n{wrong}\n3,4,5\n", "x")
    assert [fault.split(":")[0] for fault in told.value.faults] == ["line 5"]


# Hashed blocks


def test_block_hashes_become_prefixes() -> None:
    reading = read_trace(MOONCAKE, "x")
    assert reading.block_tokens == 512
    assert found_token_by_token(reading.trace) == [0, 1024, 512, 0]
    # 1024 of the second and 512 of the third, out of 3636.
    assert shares(reading.trace).tokens_fraction == pytest.approx(1536 / 3636)


@pytest.mark.parametrize(
    ("size", "lengths", "expected"),
    [(16, (17, 40, 16), 16), (64, (65, 640), 64), (64, (100,), 64), (512, (9000, 3), 512), (4, (7, 9), 4)],
)
def test_the_size_of_blocks_follows_from_their_counts(size: int, lengths: tuple[int, ...], expected: int) -> None:
    lines = [
        {"timestamp": 0, "input_length": length, "output_length": 1, "hash_ids": list(range(-(-length // size)))}
        for length in lengths
    ]
    assert read_trace("\n".join(map(json.dumps, lines)), "x").block_tokens == expected


def test_hashes_may_be_texts() -> None:
    text = MOONCAKE.replace("[0, 1]", '["a0", "b1"]').replace("[0, 1, 2]", '["a0", "b1", "c2"]')
    assert found_token_by_token(read_trace(text, "x").trace) == [0, 1024, 0, 0]


@pytest.mark.parametrize(
    ("ids", "says"),
    [([0], "1 hash_ids; 1,500 tokens begin 3 blocks of 512"), ("0", "not a list"), ([0, 1, 2, 3], "4 hash_ids")],
)
def test_hashes_that_do_not_fit_the_prompt_are_told(ids: object, says: str) -> None:
    line = json.dumps({"timestamp": 1, "input_length": 1500, "output_length": 5, "hash_ids": ids})
    with pytest.raises(TraceError, match=says) as told:
        read_trace(f"{MOONCAKE}\n{line}", "x")
    assert told.value.faults[0].startswith("line 5: ")


# Conversations


def test_tokens_of_texts_are_estimated_from_their_bytes() -> None:
    assert estimated_tokens("") == 0
    assert estimated_tokens("abcde") == 2
    # Three characters of three bytes.
    assert estimated_tokens("\u4f60\u597d\u5417") == 3
    assert estimated_tokens("\ud800") == 1
    reading = read_trace(SHAREGPT, "x")
    assert (reading.tokens_low_fraction, reading.tokens_high_fraction, reading.has_times) == (0.75, 1.25, False)


@pytest.mark.parametrize(
    ("prompt", "answer", "taken"),
    [(4, 4, True), (3, 4, False), (4, 3, False), (1024, 1024, True), (1025, 4, False), (1000, 1049, False)],
)
def test_the_first_turn_is_taken_within_the_limits_of_benchmarks(prompt: int, answer: int, taken: bool) -> None:
    talk = {"conversations": [{"from": "human", "value": "x" * 4 * prompt}, {"from": "gpt", "value": "y" * 4 * answer}]}
    outcome = trace_or_faults(json.dumps([talk]), None)
    assert isinstance(outcome, Reading) == taken


def test_sessions_take_every_turn_with_all_that_was_said() -> None:
    reading = read_trace(SHAREGPT, "x", TraceFormat.SHAREGPT_SESSIONS)
    trace = reading.trace
    assert trace.turns is not None
    # a: 10 and 20 tokens, then 5 and 4; b: 1 and 20; c: 1,250 and 20.
    assert trace.input_tokens.tolist() == [10, 35, 1, 1250]
    assert trace.output_tokens.tolist() == [20, 4, 20, 20]
    assert trace.turns.follows.tolist() == [NONE, 0, NONE, NONE]
    assert found_token_by_token(trace) == [0, 30, 0, 0]
    assert reading.num_left_out == 1


# Bad input


BROKEN_LINES = """{"time": 1, "input_tokens": 1, "output_tokens": 1}
{"time": 2, "input_tokens": 1

null
[1]
{"time": null, "input_tokens": 1, "output_tokens": 1}
{"time": 1, "input_tokens": 1}
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ["it is empty"]),
        (" \n\n", ["it is empty"]),
        ("arrival_s,input_tokens,output_tokens\n", ["it holds no request"]),
        ("hello\nworld\n", ["line 1: no columns of input and output tokens among hello"]),
        ("time,input_tokens,output_tokens\n1,2\n2,3,4\n", ["line 2: 2 values where 3 are needed: ['1', '2']"]),
        (
            "time,input_tokens,output_tokens\n1,2,x\nsoon,3,4\n3,-1,4\n4,1.5,2\n-5,1,1\n6,inf,1\n7,1,\n",
            [
                "line 2: output_tokens 'x' is not a number",
                "line 3: time 'soon' is not a number",
                "line 4: input_tokens '-1' is not a whole number of tokens from 0 up",
                "line 5: input_tokens '1.5' is not a whole number of tokens from 0 up",
                "line 6: time '-5' is not a time from 0 up",
                "line 7: input_tokens 'inf' is not a number",
                "line 8: output_tokens '' is not a number",
            ],
        ),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", ["line 2: TIMESTAMP 'yesterday' is not a date"]),
        ("time,input_tokens,output_tokens\n1,0,5\n2,5,0\n", ["2 lines, none with both a prompt and an answer"]),
        ('{"input_tokens": 1}\n', ["line 1: no keys of input and output tokens among input_tokens"]),
        ("{}\n", ["line 1: no keys of input and output tokens"]),
        ("[]", ["it is empty"]),
        ("[1, 2", ["line 1: not JSON"]),
        ("[" * 100_000, ["line 1: not JSON"]),
        (
            BROKEN_LINES,
            [
                "line 2: not JSON",
                "line 4: not a JSON object: null",
                "line 5: not a JSON object: [1]",
                "line 6: there is no time",
                "line 7: there is no output_tokens",
            ],
        ),
        (
            '{"time": 1, "input_tokens": 1, "output_tokens": 1}\n{"time": 1, "input_tokens": 1, "output_tokens": '
            + "9" * 5000
            + "}\n",
            ["line 2: not JSON (nested too deep, or a number too long)"],
        ),
        ('{"time": NaN, "input_tokens": 1, "output_tokens": 1}\n', ["line 1: time nan is not a number"]),
        ('[{"conversations": [{"from": "human"}]}]', ["entry 1: turn 1 has no text"]),
        ('[{"conversations": "hello"}, 3]', ["entry 1: no list of turns", "entry 2: not a JSON object: 3"]),
        ('[{"conversations": []}]', ["1 conversations, none that benchmarks would take"]),
        ('{"infcalc_trace": 1, "arrivals": "closed:0"}\n' + ENGINE, ["line 1: closed clients"]),
        ('{"infcalc_trace": 1, "arrivals": "closed:3"}\n', ["it is empty"]),
    ],
)
def test_all_faults_are_told_at_once_with_their_lines(text: str, says: list[str]) -> None:
    with pytest.raises(TraceError) as told:
        read_trace(text, "x.csv")
    assert len(told.value.faults) == len(says), told.value.faults
    for fault, start in zip(told.value.faults, says, strict=True):
        assert fault.startswith(start)
    assert told.value.place == "x.csv"
    assert told.value.hint


OWN = {"arrival_s": 1, "input_tokens": 9, "output_tokens": 2}


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"prefix_ids": [1], "prefix_tokens": []}, "1 prefix_ids and 0 prefix_tokens"),
        ({"prefix_ids": 1, "prefix_tokens": [1]}, "prefix_ids is not a list"),
        ({"prefix_ids": [1], "prefix_tokens": [10]}, "prefixes of 10 tokens in a prompt of 9"),
        ({"prefix_ids": [1], "prefix_tokens": [0]}, "a prefix of no token"),
        ({"prefix_ids": [1], "prefix_tokens": ["x"]}, "prefix_tokens 'x' is not a number"),
        ({"follows": 1}, "follows 1 is not the number of an earlier request"),
        ({"follows": "0"}, "follows '0' is not the number"),
        ({"follows": 0, "arrival_s": 0}, "it comes before request 0"),
        ({"follows": 0, "pause_s": -1}, "pause_s -1 is below 0"),
        ({"think_s": -1}, "think_s -1 is below 0"),
    ],
)
def test_what_our_own_format_cannot_hold_is_told(second: dict[str, object], says: str) -> None:
    with pytest.raises(TraceError) as told:
        read_trace(f"{json.dumps(OWN)}\n{json.dumps(OWN | second)}\n", "x")
    assert any(says in fault for fault in told.value.faults), told.value.faults
    assert all(fault.startswith("line 2: ") for fault in told.value.faults)


def test_who_follows_a_request_that_failed_begins_by_itself() -> None:
    lines = [OWN | {"output_tokens": 0}, OWN | {"follows": 0, "pause_s": 5}, OWN | {"follows": 1, "pause_s": 6}]
    trace = read_trace("\n".join(map(json.dumps, lines)), "x").trace
    assert trace.turns is not None
    assert (trace.turns.follows.tolist(), trace.turns.pauses_s.tolist()) == ([NONE, 0], [0, 6])


def test_many_faults_are_counted_and_the_first_shown() -> None:
    with pytest.raises(TraceError) as told:
        read_trace("time,input_tokens,output_tokens\n" + "1,x,1\n" * 1000, "x")
    text = str(told.value)
    assert "1,000 faults" in text
    assert "and 980 more" in text
    assert len(text.splitlines()) < 30
    assert len(told.value.faults) == 1000


@given(st.text(alphabet='0123456789.,-eE"{}[]: \nainput_kesohl\u2028\0', max_size=200))
def test_no_text_ends_in_anything_but_a_trace_or_its_faults(text: str) -> None:
    outcome = trace_or_faults(text, None)
    assert len(outcome.faults if isinstance(outcome, TraceError) else outcome.trace) > 0


@pytest.mark.parametrize("form", TraceFormat)
@pytest.mark.parametrize("text", [AZURE, BURSTGPT, MOONCAKE, BAILIAN, SHAREGPT, ENGINE])
def test_a_format_that_is_named_wrongly_is_no_traceback(text: str, form: TraceFormat) -> None:
    outcome = trace_or_faults(text, form)
    assert bool(outcome.hint) if isinstance(outcome, TraceError) else outcome.form is form


# The traces themselves, where they lie beside the checkout

TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "traces"


def published(name: str) -> Reading:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the published traces are not here: ../shared/data/traces/{name}")
    return read_trace(path.read_text(encoding="utf-8"), name)


@pytest.mark.parametrize(
    ("name", "requests", "arriving", "given", "made"),
    [
        ("azure_llm_2023_conv.csv", 19_366, (5.53, 1.09, 1.3), (1155, 1020, 2735), (211, 129, 424)),
        ("azure_llm_2023_code.csv", 8_819, (2.57, 13.2, 13.2), (2048, 1469, 5194), (28, 13, 55)),
    ],
)
def test_the_figures_of_the_azure_traces(
    name: str, requests: int, arriving: tuple[float, float, float], given: tuple[int, ...], made: tuple[int, ...]
) -> None:
    trace = published(name).trace
    found = rates(trace)
    rate_per_s, cv, dispersion = arriving
    assert len(trace) == requests
    # As they are published, to their last digit; the code trace has a CV of 13.15.
    assert found.rate_per_s == pytest.approx(rate_per_s, abs=0.006)
    assert found.cv == pytest.approx(cv, rel=0.005)
    # It depends on where the seconds begin: the conversations have 1.34 to 1.40.
    assert found.dispersion == pytest.approx(dispersion, rel=0.07)
    for tokens, expected in ((trace.input_tokens, given), (trace.output_tokens, made)):
        summary = length_summary(tokens)
        # Other percentiles between two samples move the 90th of the code trace by a thousandth.
        assert (summary.mean, summary.p50, summary.p90) == pytest.approx(expected, rel=0.002, abs=0.51)


@pytest.mark.parametrize(
    ("name", "requests", "means", "hit", "grid_s"),
    [
        ("mooncake_conversation_trace.jsonl", 12_031, (12_035, 343), 0.366, 3.0),
        ("mooncake_synthetic_trace.jsonl", 3_993, (15_325, 149), 0.640, None),
    ],
)
def test_the_figures_of_the_mooncake_traces(
    name: str, requests: int, means: tuple[int, int], hit: float, grid_s: float | None
) -> None:
    reading = published(name)
    trace = reading.trace
    assert (len(trace), reading.block_tokens, reading.num_unsorted) == (requests, 512, 0)
    assert (trace.input_tokens.mean(), trace.output_tokens.mean()) == pytest.approx(means, abs=0.5)
    assert trace.sharing is not None
    blocks = -(-trace.input_tokens // 512)
    assert found_in_endless_cache(trace.sharing).num_nodes / blocks.sum() == pytest.approx(hit, abs=0.0005)
    assert time_grid_s(trace) == grid_s


def test_the_rows_of_burstgpt_as_they_are_published() -> None:
    reading = published("burstgpt_format_example.csv")
    assert (reading.form, columns(reading)) == ("burstgpt", [(0, 472, 18), (40, 1087, 230), (113, 417, 276)])


def test_a_log_of_a_served_run_is_a_trace() -> None:
    path = TRACES.parent / "engine_traces" / "RTX4090_Llama-3.1-8B" / "requests.jsonl"
    if not path.exists():
        pytest.skip("the engine traces are not here: ../shared/data/engine_traces")
    trace = read_trace(path.read_text(encoding="utf-8"), "requests.jsonl").trace
    assert len(trace) == 300
    # 300 requests at 10 sessions a second, by its description.
    assert rates(trace).rate_per_s == pytest.approx(10, rel=0.1)
    assert np.isfinite(trace.arrivals_s).all()
