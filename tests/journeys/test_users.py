"""Requests and users, the engine's verdict, and host memory, asked on the command line and of the library."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.filling import memory
from infcalc.api.fitting import ConcurrencyRow, concurrency
from infcalc.api.users import Load
from infcalc.errors import UsageError
from infcalc.report.table import narrowed
from infcalc.report.views.concurrency import view
from infcalc.units import GIB
from tests.journeys.command import answer, infcalc

LENGTHS = ("--input-tokens", "lognormal:mean=500,cv=1.2", "--output-tokens", "250")
SMALL = ("--model", "llama3-8b", "--gpu", "l40s", "--gpus", "1", "--engine-version", "0.19")


def row_of(load: Load, **asked: object) -> ConcurrencyRow:
    ask = Ask(
        **{"models": ("llama3-8b",), "gpus": ("h100",), "num_gpus": 1, "engine_version": "0.19", "kv_dtypes": ("fp16",)}  # type: ignore[arg-type]
        | asked
    )
    return concurrency(ask, requests=load).result.rows[0]


def test_lengths_give_requests_and_think_time_gives_users(capsys: pytest.CaptureFixture[str]) -> None:
    ran = answer(capsys, "concurrency", *SMALL, *LENGTHS, "--think-time", "30s", "--service-time", "10")
    for row in ran.result["rows"]:
        assert row["mean_live_tokens"] == pytest.approx(625)
        assert row["p95_live_tokens"] > 1000
        assert row["requests_p95"] < row["requests"]
        assert row["requests_low"] <= row["requests"] <= row["requests_high"]
        assert row["users"] == 4 * row["requests"]
        assert row["users_low"] == 4 * row["requests_low"]
    inputs = ran.document["inputs"]
    assert inputs["input_tokens"]["value"] == "lognormal:mean=500,cv=1.2"
    assert inputs["contexts"] == {"value": [750], "origin": "mean prompt and answer"}
    assert inputs["think_time_s"]["value"] == 30


def test_without_lengths_there_is_nothing_to_say_of_users(capsys: pytest.CaptureFixture[str]) -> None:
    for row in answer(capsys, "concurrency", *SMALL).result["rows"]:
        assert row["users"] is row["requests"] is row["mean_live_tokens"] is None


def test_without_think_time_every_user_has_a_request_running(capsys: pytest.CaptureFixture[str]) -> None:
    for row in answer(capsys, "concurrency", *SMALL, *LENGTHS).result["rows"]:
        assert row["users"] == row["requests"] > 0


def test_requests_are_the_pool_over_the_mean_live_bytes() -> None:
    row = row_of(Load(input_tokens=1000, output_tokens=140))
    block_padding = 7.5
    assert row.requests == int(row.kv_pool_bytes / ((1070 + block_padding) * 131_072))


def test_a_narrow_screen_keeps_the_answer_to_the_asked_users() -> None:
    asked = Load(input_tokens=500, output_tokens=250, users=400)
    for load, kept in ((asked, True), (replace(asked, users=None), False)):
        (table, *_) = view(concurrency(Ask(kv_dtypes=("fp16",)), requests=load)).tables
        headings = {column.heading for column in narrowed(table).columns}
        assert ({"asked", "needed", "fit"} <= headings) is kept
        assert ("service" in headings) is not kept


def test_a_floor_of_service_time_makes_users_an_upper_bound(capsys: pytest.CaptureFixture[str]) -> None:
    ran = infcalc(capsys, "concurrency", *SMALL, *LENGTHS, "--think-time", "30")
    assert "service_time_s is a floor" in ran.out
    assert "users are at most that many" in " ".join(ran.out.split())
    row = row_of(Load(input_tokens=500, output_tokens=250, think_time_s=30))
    assert row.service_time_s is not None
    assert row.users is not None
    assert row.users_low is not None
    assert row.requests is not None
    assert 1 < row.service_time_s < 60
    assert row.users == pytest.approx(row.requests * (1 + 30 / row.service_time_s), abs=1)
    assert row.users_low < row.users


def test_longer_service_means_fewer_users() -> None:
    fast, slow = (
        row_of(Load(input_tokens=500, output_tokens=250, think_time_s=30, service_time_s=time_s)) for time_s in (5, 50)
    )
    assert fast.users is not None
    assert slow.users is not None
    assert fast.users > slow.users > (slow.requests or 0)


def test_an_engine_that_reserves_the_answer_runs_fewer() -> None:
    load = Load(input_tokens=500, output_tokens=500)
    grown, reserved = (
        row_of(load, engine=engine, engine_version=version)
        for engine, version in (("vllm", "0.33"), ("tensorrt-llm", "1.2"))
    )
    assert grown.mean_live_tokens == 750
    assert reserved.mean_live_tokens == 1000


def test_every_attention_rank_serves_its_own() -> None:
    load = Load(input_tokens=500, output_tokens=250)
    one, two = (row_of(load, num_gpus=gpus, dp=gpus) for gpus in (1, 2))
    assert one.requests is not None
    assert two.requests == pytest.approx(2 * one.requests, rel=0.06)


@pytest.mark.parametrize(
    ("name", "gpus", "version"),
    [
        ("llama3-70b", 4, "0.33"),
        ("gpt-oss-120b", 2, "0.33"),
        ("gpt-oss-120b", 2, "0.9"),
        ("gemma3-27b", 1, "0.33"),
        ("qwen3-next-80b-a3b", 4, "0.33"),
        ("deepseek-v3", 16, "0.33"),
        ("deepseek-v4-flash", 8, "0.33"),
    ],
)
def test_equal_requests_at_full_length_are_the_sequences_that_fit(name: str, gpus: int, version: str) -> None:
    # Answers of one token: what is alive is what a sequence of that length holds, up to half a block.
    ask = Ask(models=(name,), gpus=("h100",), num_gpus=gpus, kv_dtypes=("bf16",), engine_version=version)
    row = concurrency(ask, contexts=(4096,), requests=Load(input_tokens=4096, output_tokens=1)).result.rows[0]
    assert row.sequences > 0
    assert row.requests == pytest.approx(row.sequences, rel=0.05)


def test_windows_hold_less_than_their_tokens() -> None:
    # Half the layers of gpt-oss keep 128 tokens.
    ask = Ask(models=("gpt-oss-120b",), gpus=("h100",), num_gpus=2, kv_dtypes=("bf16",), engine_version="0.33")
    row = concurrency(ask, requests=Load(input_tokens=8000, output_tokens=400)).result.rows[0]
    assert row.requests == pytest.approx(row.kv_pool_bytes / (36_864 / 2 * (8200 + 128)), rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--input-tokens", "500"), "--output-tokens: users need both lengths"),
        (("--output-tokens", "500"), "--input-tokens: users need both lengths"),
        (("--think-time", "30s"), "--input-tokens: users need both lengths"),
        (("--input-tokens", "zipf:a=1", "--output-tokens", "9"), "--input-tokens: 'zipf' is no distribution"),
        (("--input-tokens", "9", "--output-tokens", "lognormal:mean=9"), "--output-tokens: "),
        ((*LENGTHS, "--think-time", "soon"), "--think-time: 'soon' is not a number"),
        ((*LENGTHS, "--service-time", "0"), "--service-time: 0 seconds is out of range"),
        ((*LENGTHS, "--think-time", "4 days"), "--think-time: unknown unit 'days'"),
        (("--cpu-offload-gb", "-1"), "--cpu-offload-gb: -1 GiB is out of range"),
        (("--kv-offload-gib", "nan"), "--kv-offload-gib: nan GiB is out of range"),
    ],
)
def test_what_cannot_be_understood_names_the_option(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    ran = infcalc(capsys, "concurrency", *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert "hint:" in ran.err


def test_the_library_refuses_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    del capsys
    with pytest.raises(UsageError, match="think"):
        concurrency(requests=Load(input_tokens=5, output_tokens=5, think_time_s=-1))


def test_requests_beyond_the_window_of_the_model_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    lengths = ("--input-tokens", "uniform:min=4000,max=12000", "--output-tokens", "192")
    ran = answer(capsys, "concurrency", *SMALL, *lengths)
    assert any("50.0% of the requests are longer than the 8,192 tokens" in text for text in ran.document["warnings"])


def test_csv_holds_users_where_they_are_asked(capsys: pytest.CaptureFixture[str]) -> None:
    ran = infcalc(capsys, "concurrency", *SMALL, *LENGTHS, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [row["kv_dtype"] for row in rows] == ["fp16", "fp8", "int4"]
    assert all(int(row["users"]) > int(row["sequences"]) > 0 for row in rows)


def test_users_can_be_a_gate(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("concurrency", *SMALL, *LENGTHS, "--quant", "fp16")
    assert infcalc(capsys, *arguments, "--require", "users>=100").code == 0
    assert infcalc(capsys, *arguments, "--require", "users>=1000000").code == 4


# The engine's verdict


@pytest.mark.parametrize(
    ("where", "kv", "status", "supported"),
    [
        ("0.33 a100-80gb", "fp8", "memory_only", True),
        ("0.33 h100", "fp8", "supported", True),
        ("0.19 h100", "int4", "unsupported", False),
        ("0.23 h100", "int4", "unknown", None),
    ],
)
def test_a_verdict_stands_beside_the_number(
    capsys: pytest.CaptureFixture[str], where: str, kv: str, status: str, supported: bool | None
) -> None:
    version, gpu = where.split()
    deployment = ("--gpu", gpu, "--engine-version", version, "--quant", kv)
    ran = answer(capsys, "concurrency", "--model", "llama3-8b", "--gpus", "1", *deployment)
    (row,) = ran.result["rows"]
    assert (row["verdict_status"], row["supported"]) == (status, supported)
    assert row["verdict"]
    assert row["verdict_source"]
    refused = [text for text in ran.document["warnings"] if f"has no KV cache in {kv}" in text]
    assert bool(refused) is (supported is False)


def test_a_default_precision_that_is_missing_is_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    ran = answer(capsys, "concurrency", "--engine-version", "0.19")
    assert ran.result["rows"][2]["supported"] is False
    assert ran.document["warnings"] == []
    assert any(text.startswith("KV in int4: unsupported") for text in ran.document["assumptions"])


def test_weights_have_a_verdict_too(capsys: pytest.CaptureFixture[str]) -> None:
    ran = answer(capsys, "concurrency", "--weights", "fp8", "--quant", "bf16")
    assert ran.result["weights_supported"] is True
    assert "Marlin" in ran.result["weights_verdict"]
    assert any(text.startswith("weights in fp8:") for text in ran.document["assumptions"])


def test_a_kernel_can_be_a_gate(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("concurrency", "--engine-version", "0.19", "--quant", "int4", "--require", "supported==1")
    assert infcalc(capsys, *arguments).code == 4


# Host memory


def test_weights_in_host_memory_make_room_for_kv() -> None:
    here, there = (
        concurrency(Ask(kv_dtypes=("fp16",), cpu_offload_bytes=num_bytes)).result for num_bytes in (0, 8 * GIB)
    )
    assert here.weights_bytes - there.weights_bytes == 8 * GIB
    assert there.rows[0].kv_pool_bytes - here.rows[0].kv_pool_bytes == 8 * GIB


def test_a_host_tier_keeps_tokens_and_runs_no_more_requests(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, "concurrency").result["rows"]
    ran = answer(capsys, "concurrency", "--kv-offload-gib", "64")
    assert [row["kv_host_tokens"] for row in ran.result["rows"][:2]] == [209_715, 419_430]
    assert [row["sequences"] for row in ran.result["rows"]] == [row["sequences"] for row in plain]
    assert any("add no running request" in text for text in ran.document["assumptions"])
    assert ran.document["inputs"]["kv_offload_bytes"]["value"] == 64 * GIB


def test_every_step_waits_for_weights_on_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    ran = answer(capsys, "concurrency", "--cpu-offload-gb", "8")
    assert any("8 GiB of each GPU's weights are read from host memory" in text for text in ran.document["assumptions"])


# memory, asked by lengths


def test_memory_counts_what_fits_of_the_asked_lengths_as_concurrency_does(capsys: pytest.CaptureFixture[str]) -> None:
    asked = (*SMALL, "--kv-dtype", "fp16", *LENGTHS, "--think-time", "30s")
    result = answer(capsys, "memory", *asked).result
    (row,) = answer(capsys, "concurrency", *asked).result["rows"]
    shared = ("mean_live_tokens", "p95_live_tokens", "requests", "requests_low", "requests_high", "requests_p95")
    for key in (*shared, "service_time_s", "users", "users_low", "users_high"):
        assert result[key] == row[key], key
    assert (result["sequences"], result["sequences_low"], result["sequences_high"]) == (
        row["requests"],
        row["requests_low"],
        row["requests_high"],
    )
    assert result["context_tokens"] == 750
    assert result["kv_cache_tokens"] == answer(capsys, "memory", *SMALL).result["kv_cache_tokens"]


def test_longer_tails_hold_fewer_requests_on_the_same_pool(capsys: pytest.CaptureFixture[str]) -> None:
    def held(output: str) -> int:
        asked = ("--input-tokens", "500", "--output-tokens", output)
        sequences: int = answer(capsys, "memory", *SMALL, *asked).result["sequences"]
        return sequences

    assert held("400") > held("uniform:min=1,max=799") > held("lognormal:mean=400,cv=2")


def test_memory_shows_requests_and_explains_them(capsys: pytest.CaptureFixture[str]) -> None:
    ran = infcalc(capsys, "memory", *SMALL, *LENGTHS, "--explain")
    assert "requests of 625 live tokens" in ran.out
    assert "Requests that run at once, and users who send them" in ran.out
    assert "mean_live_tokens = E[i] + E[o^2]/(2 E[o])" in ran.out
    assert "Requests that run" not in infcalc(capsys, "memory", *SMALL).out


def test_requests_longer_than_the_server_admits_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    ran = infcalc(capsys, "memory", *SMALL, *LENGTHS, "--max-model-len", "2k")
    assert "of the requests are longer than the 2,048 tokens that --max-model-len admits" in ran.err


def test_where_the_engine_does_not_start_nothing_is_said_of_its_requests(capsys: pytest.CaptureFixture[str]) -> None:
    ran = infcalc(capsys, "memory", "--model", "llama3-70b", "--gpus", "1", *LENGTHS, "--users", "50")
    assert ran.code == 3
    of_length, of_memory = ran.err.removeprefix("warning: ").split("warning: ")
    assert "takes the 8,192 tokens" in of_length
    assert "does not fit on 1 x" in of_memory


# the users that shall be served


@pytest.mark.parametrize("command", ["concurrency", "memory"])
def test_users_with_a_sequence_each(capsys: pytest.CaptureFixture[str], command: str) -> None:
    asked = (command, *SMALL, "--kv-dtype", "fp16", "--context", "8k", "--users")

    def row(users: int, code: int) -> dict[str, object]:
        result = answer(capsys, *asked, str(users), code=code).result
        found: dict[str, object] = result["rows"][0] if command == "concurrency" else result
        return found

    room = row(1, 0)["sequences"]
    assert isinstance(room, int)
    assert row(room, 0)["users_fit"] is True
    one_more = row(room + 1, 3)
    assert (one_more["users_asked"], one_more["sequences_needed"]) == (room + 1, room + 1)
    assert one_more["users_fit"] is False


def test_the_users_that_fit_are_those_that_are_counted() -> None:
    ask = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1, kv_dtypes=("fp16",))
    load = {"input_tokens": 500, "output_tokens": 250, "think_time_s": 30.0}

    def row(users: int | None) -> ConcurrencyRow:
        return concurrency(ask, requests=Load(users=users, **load)).result.rows[0]  # type: ignore[arg-type]

    served = row(None)
    assert served.users is not None
    assert served.requests is not None
    last, beyond = row(served.users), row(served.users + 1)
    assert last.users_fit
    assert last.sequences_needed is not None
    assert last.sequences_needed <= served.requests
    assert beyond.users_fit is False
    assert beyond.sequences_needed == served.requests + 1


def test_users_who_think_need_fewer_sequences_than_there_are_of_them() -> None:
    load = Load(input_tokens=500, output_tokens=250, think_time_s=30.0, service_time_s=10.0, users=400)
    assert row_of(load).sequences_needed == 100
    idle = Load(input_tokens=500, output_tokens=250, users=400)
    assert row_of(idle).sequences_needed == 400


def test_margins_and_caps_of_the_asked_users_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("concurrency", *SMALL, "--quant", "fp16", *LENGTHS)
    row = answer(capsys, *asked).result["rows"][0]
    full = infcalc(capsys, *asked, "--users", str(row["requests"]))
    assert full.code == 0
    assert f"{row['requests_p95']:,} with 95 % safety" in full.err
    assert "vllm runs at most 256 (max_num_seqs)" in full.err
    more = infcalc(capsys, *asked, "--users", str(row["requests"] + 1))
    assert more.code == 3
    assert f"sequences at once, and {row['requests']:,} fit" in more.err
    assert "do not fit" in more.out
    few = infcalc(capsys, *asked, "--users", "5")
    assert (few.code, few.err) == (0, "")
    assert "5 users fit: they need 5 sequences at once" in few.out


def test_a_floor_of_service_time_is_no_promise_to_users(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("concurrency", *SMALL, "--quant", "fp16", *LENGTHS, "--think-time", "30s")
    row = answer(capsys, *asked).result["rows"][0]
    told = infcalc(capsys, *asked, "--users", str(row["users_low"] + 1))
    assert told.code == 0
    assert f"{row['users_low']:,} do (--service-time takes a measured time instead)" in told.err


def test_what_would_serve_the_asked_users_is_found_with_the_same_ledger() -> None:
    ask = Ask(models=("llama3-8b",), gpus=("l40s",), num_gpus=1)
    load = Load(input_tokens=2000, output_tokens=500, users=150)
    found = memory(ask, requests=load)
    assert found.exit_code == 3
    assert found.result.fits
    assert found.result.users_fit is False
    changes = {change.change: change for change in found.result.changes}
    assert "--kv-dtype fp8" in changes
    assert not any("--max-num-seqs" in change for change in changes)
    again = memory(Ask(models=("llama3-8b",), gpus=("l40s",), num_gpus=1, kv_dtypes=("fp8",)), requests=load)
    assert again.exit_code == 0
    assert again.result.sequences == changes["--kv-dtype fp8"].sequences >= 150


# what a deployment holds beside the model, in every command


@pytest.mark.parametrize("command", ["kv", "concurrency", "memory"])
def test_adapters_and_draft_layers_take_from_the_pool_of_every_command(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    def pool(*asked: str) -> int:
        result = answer(capsys, command, *asked).result
        found: int = result["kv_pool_bytes"] if "kv_pool_bytes" in result else result["rows"][0]["kv_pool_bytes"]
        return found

    big = ("--model", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--kv-dtype", "bf16")
    assert pool(*big, "--mtp-tokens", "1") < pool(*big)
    plain, one, four = (
        pool(*SMALL, *more) for more in ((), ("--lora-rank", "16"), ("--lora-rank", "16", "--max-loras", "4"))
    )
    assert plain - four == pytest.approx(4 * (plain - one), rel=1e-6)
    pictures = ("--model", "gemma3-27b", "--gpu", "h100", "--gpus", "1", "--kv-dtype", "bf16")
    assert pool(*pictures, "--text-only") >= pool(*pictures)
