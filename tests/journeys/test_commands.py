"""Whole commands: what works, what each format holds, and how wrong input ends."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc.cli.app import COMMANDS, run
from infcalc.cli.options import Option
from infcalc.report.text import CELL_WIDTH
from tests.catalog.configs import LLAMA_8B
from tests.journeys.command import Ran, answer, infcalc

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

CALCULATORS = ("kv", "concurrency", "roofline", "speculate")
CACHES = ("paging", "prefix-cache")
COMMAND_LINES = (
    *((name,) for name in (*CALCULATORS, "batching", *CACHES, "models", "gpus")),
    ("show", "h100"),
    ("show", "llama3-70b"),
)
ESCAPE = "\x1b"
HUGE = str(10**30)


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(ran: Ran, code: int, *texts: str) -> None:
    """Check that a command ended with ``code`` and said what, where and the mend, without a traceback."""
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "hint: " in ran.err
    assert "Traceback" not in ran.err
    for text in texts:
        assert text in ran.err


# What works


@pytest.mark.parametrize("command", COMMAND_LINES, ids=" ".join)
def test_a_command_answers_with_no_option(capsys: Capture, command: tuple[str, ...]) -> None:
    ran = infcalc(capsys, *command)
    assert ran.code == 0
    assert len(ran.out.splitlines()) > 3
    assert all(line.startswith("warning: ") for line in ran.err.splitlines())


@pytest.mark.parametrize("command", CALCULATORS)
def test_the_first_line_says_what_was_assumed(capsys: Capture, command: str) -> None:
    first = infcalc(capsys, command).out.splitlines()[0]
    assert first.startswith("assumed: ")
    for text in ("llama3-70b", "a100-sxm4-80gb", "tp 4", "vllm", "0.33", "0.92", "bf16", "4,096"):
        assert text in first.replace("context 4096", "context 4,096")
    stated = infcalc(capsys, command, "--model", "llama3-8b", "--tp", "2").out.splitlines()[0]
    assert stated.endswith("given: model llama3-8b, tp 2")


def test_help_lists_commands_by_their_question(capsys: Capture) -> None:
    ran = infcalc(capsys, "--help")
    assert ran.code == 0
    for command in COMMANDS:
        assert re.search(rf"^ +{command.name} +{re.escape(command.question.split()[0])}", ran.out, re.MULTILINE)


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_help_of_a_command_names_every_option(capsys: Capture, command: str) -> None:
    ran = infcalc(capsys, command, "--help")
    assert ran.code == 0
    module = import_module(next(one.module for one in COMMANDS if one.name == command))
    for option in module.OPTIONS:
        assert all(flag in ran.out for flag in option.flags)


# Formats


ROWS_OF = {
    "models": "models",
    "gpus": "gpus",
    "batching": "policies",
    "paging": "allocators",
    "prefix-cache": "indexes",
}
"""Where the rows of a command lie that has no ``rows``."""


def _json_rows(capsys: Capture, command: tuple[str, ...]) -> list[dict[str, Any]]:
    result = answer(capsys, *command).result
    match command[0]:
        case "roofline":
            return [point for point in result["points"] if point["attention_io"] == "flash"]
        case "show":
            return [{"key": key} for key in result["entry"]]
        case name:
            rows: list[dict[str, Any]] = result[ROWS_OF.get(name, "rows")]
            return rows


@pytest.mark.parametrize("command", COMMAND_LINES, ids=" ".join)
def test_csv_holds_the_numbers_of_json(capsys: Capture, command: tuple[str, ...]) -> None:
    written = infcalc(capsys, *command, "--format", "csv")
    assert written.code == 0
    table = list(csv.DictReader(io.StringIO(written.out)))
    rows = _json_rows(capsys, command)
    assert len(table) == len(rows)
    compared = 0
    for cells, row in zip(table, rows, strict=True):
        for key, text in cells.items():
            value = row.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert float(text) == value
                compared += 1
            elif isinstance(value, str):
                assert text == value
    assert compared or command[0] == "show"


def _markdown_tables(text: str) -> list[list[list[str]]]:
    found: list[list[list[str]]] = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if len(lines) > 1 and set(lines[1]) <= set("|-: "):
            cells = [re.split(r" ?(?<!\\)\| ?", line)[1:-1] for line in (lines[0], *lines[2:])]
            found.append([[cell.replace("\\|", "|").strip() for cell in row] for row in cells])
    return found


@pytest.mark.parametrize("command", COMMAND_LINES, ids=" ".join)
def test_markdown_holds_the_cells_of_the_screen(capsys: Capture, command: tuple[str, ...]) -> None:
    screen = infcalc(capsys, *command)
    document = infcalc(capsys, *command, "--format", "markdown")
    assert document.code == 0
    tables = _markdown_tables(document.out)
    assert tables
    lines = [" ".join(line.split()) for line in screen.out.splitlines()]
    for table in tables:
        for row in table:
            if any(len(cell) > CELL_WIDTH for cell in row[:-1]):
                # Long cells are folded: their words follow each other, those of the next cells between.
                shown = iter(screen.out.split())
                assert all(word in shown for word in row[0].split() + row[1].split())
            else:
                assert " ".join(" ".join(row).split()) in lines


def test_the_screen_holds_the_numbers_of_json(capsys: Capture) -> None:
    screen = infcalc(capsys, "concurrency").out
    for row in answer(capsys, "concurrency").result["rows"]:
        for key in ("sequences", "sequences_low", "sequences_high", "tokens", "kv_bytes_per_token"):
            assert re.search(rf"\b{row[key]:,}\b", screen)


@pytest.mark.parametrize("command", COMMAND_LINES, ids=" ".join)
def test_json_has_the_shape_of_the_contract(capsys: Capture, command: tuple[str, ...]) -> None:
    document = answer(capsys, *command).document
    assert document["schema"] == f"infcalc.{command[0]}/1"
    assert set(document) == {"schema", "inputs", "result", "assumptions", "warnings"}
    assert all({"value", "origin"} <= set(item) for item in document["inputs"].values())
    long = infcalc(capsys, *command, "--format", "json")
    assert long.out == infcalc(capsys, *command, "--json").out


@pytest.mark.parametrize(
    ("command", "keys", "row_keys"),
    [
        (
            "kv",
            "kv_bytes_per_token kv_bytes_per_request kv_components mha_kv_bytes_per_token gqa_saving_factor rows",
            "context_tokens kv_bytes kv_bytes_per_gpu sequences",
        ),
        (
            "concurrency",
            "rows",
            "kv_dtype kv_bytes_per_token kv_pool_bytes context_tokens sequences tokens gain_over_fp16",
        ),
        ("speculate", "rows", "method num_draft_tokens acceptance tokens_per_round speedup breakeven_batch"),
        (
            "batching",
            "policies",
            "policy latency_mean_s latency_p99_s throughput_tokens_per_s slot_utilization_overall_fraction curve",
        ),
    ],
)
def test_promised_keys_are_there(capsys: Capture, command: str, keys: str, row_keys: str) -> None:
    result = answer(capsys, command).result
    assert set(keys.split()) <= set(result)
    for row in result["policies" if command == "batching" else "rows"]:
        assert set(row_keys.split()) <= set(row)


def test_promised_keys_of_the_roofline_are_there(capsys: Capture) -> None:
    result = answer(capsys, "roofline").result
    for one in result["gpus"]:
        assert {"gpu", "precision", "peak_flop_per_s", "bandwidth_bytes_per_s", "crossover_flop_per_byte"} <= set(one)
    for point in result["points"]:
        assert {"phase", "batch", "tokens", "flop", "bytes", "flop_per_byte", "bound_by", "time_s"} <= set(point)
    assert {(point["phase"], point["batch"], point["attention_io"]) for point in result["points"]} == {
        (phase, batch, io)
        for phase in ("prefill", "decode")
        for batch in (1, 8, 32, 128, 256, 1024)
        for io in ("flash", "naive")
    }


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_output_goes_to_a_file(capsys: Capture, tmp_path: Path, form: str) -> None:
    path = tmp_path / "answer.txt"
    shown = infcalc(capsys, "concurrency", "--format", form)
    written = infcalc(capsys, "concurrency", "--format", form, "--output", str(path))
    assert (written.code, written.out) == (0, "")
    assert f"wrote {path}" in written.err
    assert path.read_text(encoding="utf-8") == shown.out


@pytest.mark.parametrize("command", CALCULATORS)
@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml")])
def test_a_plot_is_drawn(capsys: Capture, tmp_path: Path, command: str, ending: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"picture.{ending}"
    ran = infcalc(capsys, command, "--format", "plot", "--output", str(path))
    assert (ran.code, ran.out) == (0, "")
    assert path.read_bytes().startswith(begins)


def test_a_plot_needs_a_file_that_can_be_one(capsys: Capture, tmp_path: Path) -> None:
    refused(infcalc(capsys, "kv", "--format", "plot"), 2, "--output")
    refused(infcalc(capsys, "models", "--format", "plot", "-o", "x.png"), 2, "no plot")
    pytest.importorskip("matplotlib")
    refused(infcalc(capsys, "kv", "--format", "plot", "-o", "x.txt"), 2, "x.txt", "svg")
    refused(infcalc(capsys, "kv", "--format", "plot", "-o", str(tmp_path / "none" / "x.svg")), 2, "x.svg")


def test_where_nothing_fits_there_is_no_picture_and_the_exit_code_says_so(capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.png"
    ran = infcalc(capsys, "estimate", "-m", "deepseek-v3", "-n", "1", "--format", "plot", "--output", str(path))
    assert (ran.code, ran.out) == (3, "")
    assert "nothing to draw: the model does not fit" in ran.err
    assert "wrote" not in ran.err
    assert not path.exists()


# Exit codes


@pytest.mark.parametrize(
    "arguments",
    [
        ("concurrency", "--gpus", "1"),
        ("concurrency", "--context", "8M"),
        ("concurrency", "--gpu", "rtx4090", "--gpus", "2"),
    ],
)
def test_what_does_not_fit_is_an_answer_with_exit_3(capsys: Capture, arguments: tuple[str, ...]) -> None:
    ran = answer(capsys, *arguments, code=3)
    assert min(row["sequences"] for row in ran.result["rows"]) == 0


@pytest.mark.parametrize("command", ["kv", "roofline"])
def test_sizes_and_rooflines_are_answered_where_it_does_not_fit(capsys: Capture, command: str) -> None:
    ran = answer(capsys, command, "--gpus", "1")
    assert any("does not fit on 1 x a100-sxm4-80gb" in warning for warning in ran.document["warnings"])
    if command == "kv":
        assert {row["sequences"] for row in ran.result["rows"]} == {0}


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("sequences>=1", 0),
        ("rows.sequences >= 1", 0),
        ("kv_bytes_per_token==327680", 0),
        ("sequences>=100", 4),
        ("gqa_saving_factor<8", 4),
        ("sequenzen>=1", 2),
    ],
)
def test_gates_on_the_result(capsys: Capture, gate: str, code: int) -> None:
    ran = infcalc(capsys, "kv", "--json", "--require", gate)
    assert ran.code == code
    # The answer is written even where a gate fails.
    assert ran.result["kv_bytes_per_token"] == 327_680
    assert ("--require" in ran.err) == (code != 0)


@pytest.mark.parametrize("gate", ["sequences>=", "sequences", "sequences>=nan"])
def test_a_gate_that_cannot_be_read_is_told_before_anything_is_written(capsys: Capture, gate: str) -> None:
    ran = infcalc(capsys, "kv", "--json", "--require", gate)
    assert (ran.code, ran.out) == (2, "")
    assert "--require" in ran.err


def test_all_failed_gates_are_named(capsys: Capture) -> None:
    ran = infcalc(capsys, "kv", "--require", "sequences>=100", "--require", "kv_bytes_per_token<1")
    assert ran.code == 4
    assert "sequences>=100" in ran.err
    assert "kv_bytes_per_token<1" in ran.err


def test_gates_work_side_by_side(capsys: Capture) -> None:
    arguments = ("kv", "--model", "llama3-8b", "--model", "llama3-70b", "--require", "kv_bytes_per_token<200000")
    assert infcalc(capsys, *arguments).code == 4


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("kv", "--model", "lama3-70b"), "llama3-70b"),
        (("concurrency", "--gpu", "a100-81gb"), "a100"),
        (("roofline", "--engine", "vlm"), "vllm"),
        (("speculate", "--draft-model", "llama3.2-1"), "llama3.2-1b"),
        (("show", "qwen3-32"), "qwen3-32b"),
        (("gpus", "show", "h10"), "h100"),
        (("models", "show", "mixtrall-8x7b"), "mixtral-8x7b"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_unknown_name_ends_with_5_and_the_nearest(capsys: Capture, arguments: tuple[str, ...], near: str) -> None:
    refused(infcalc(capsys, *arguments), 5, arguments[-1], near)


def test_an_unknown_way_of_drafting_is_bad_usage_and_lists_the_known(capsys: Capture) -> None:
    refused(infcalc(capsys, "speculate", "--method", "guess"), 2, "guess", "draft-model")


@pytest.mark.parametrize("arguments", [("kv", "--model"), ("show",), ("models", "add"), ("speculate", "--draft-model")])
def test_an_unknown_architecture_ends_with_6(capsys: Capture, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "alien.json"
    path.write_text(json.dumps(LLAMA_8B | {"model_type": "alien"}), encoding="utf-8")
    refused(infcalc(capsys, *arguments, str(path)), 6, "alien", "num_key_value_heads")


def test_an_unknown_key_that_shapes_layers_ends_with_6(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B | {"num_secret_layers": 8}), encoding="utf-8")
    refused(infcalc(capsys, "kv", "--model", str(path)), 6, "num_secret_layers")


@pytest.mark.parametrize(
    "path", ["./nothing", "nothing.json", "nothing.gguf", "/nothing/here", "no/such", "~nobody/x.json"]
)
def test_a_missing_path_ends_with_2(capsys: Capture, path: str) -> None:
    refused(infcalc(capsys, "kv", "--model", path), 2, path)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("kv", "--quant", "fp8", "--kv-dtype", "fp8"), "--quant"),
        (("kv", "--json", "--format", "csv"), "--format"),
        (("kv", "--format", "xml"), "--format"),
        (("kv", "--gpus", "4", "--tp", "3"), "--gpus"),
        (("kv", "--gpus", "4", "--pp", "3"), "--gpus"),
        (("kv", "--tp", "3"), "--tp"),
        (("kv", "--pp", "1000"), "--pp"),
        (("kv", "--ep", "2"), "--ep"),
        (("kv", "--dcp", "2"), "--dcp"),
        (("kv", "--kv-dtype", "fp8_ds_mla"), "--kv-dtype"),
        (("kv", "--kv-dtype", "fp7"), "--kv-dtype"),
        (("kv", "--weights", "fp7"), "fp7"),
        (("kv", "--engine-version", "-1"), "--engine-version"),
        (("roofline", "-c", "4k", "-c", "8k"), "--context"),
        (("speculate", "--batch", "1", "--batch", "2"), "--batch"),
        (("speculate", "--acceptance", "1.5"), "1.5"),
        (("speculate", "--acceptance", "0.3,0.5"), "0.3"),
        (("speculate", "--simulate", "0"), "--simulate"),
        (("speculate", "--simulate", "many"), "--simulate"),
        (("speculate", "--seed", "1"), "--seed"),
        (("speculate", "--simulate", "10", "--method", "eagle2"), "--method eagle3"),
        (("kv", "--no-such-option"), "--no-such-option"),
        (("kv", "surplus"), "surplus"),
        (("show",), "NAME"),
        (("models", "show"), "show"),
        (("models", "add"), "add"),
        (("models", "remove", "x"), "remove"),
        (("gpus", "add", "x"), "add"),
        (("frobnicate",), "frobnicate"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_contradictions_and_typing_errors_end_with_2(capsys: Capture, arguments: tuple[str, ...], place: str) -> None:
    refused(infcalc(capsys, *arguments), 2, place)


# Every option with values it cannot have


def _options() -> list[tuple[str, Option]]:
    """Each option once, with a command that takes it."""
    found: dict[str, tuple[str, Option]] = {}
    for command in COMMANDS:
        if command.name != "show":
            for option in import_module(command.module).OPTIONS:
                found.setdefault(option.name, (command.name, option))
    return list(found.values())


NUMBERS = frozenset(
    {
        *("gpus", "tp", "pp", "dp", "ep", "dcp", "batch", "block_size", "max_num_seqs", "max_num_batched_tokens"),
        *("memory_fraction", "num_draft_tokens", "mtp_tokens", "lora_rank", "max_loras", "users"),
        *("concurrency", "rate", "num_requests", "utilization", "accepted", "drafted", "simulate"),
        *("requests", "slots", "burstiness", "speedup", "port", "max_gpus", "top"),
        *("load", "shared_requests", "prefixes", "page_size", "max_entries", "replicas"),
        *("threads", "repeat", "layers", "hidden"),
        *("prefill_replicas", "decode_replicas", "prefill_tp", "decode_tp", "workers"),
        *("capex", "years", "residual", "power_price", "pue", "peak", "min_replicas"),
    }
)
NUMBERS_FROM_ZERO = frozenset({"cpu_offload_gb", "kv_offload_gib", "prefix_hit", "sharing", "seed", "confirm"})
TOKENS = frozenset({"context", "max_model_len", "pool_tokens", "shared_prefix_tokens", "prefix_tokens", "max_tokens"})
NOT_NUMBERS = ("nan", "inf", "-inf", "many", "0x10", "1e400", "\N{SNOWMAN}")
OUT_OF_RANGE = ("0", "-1", HUGE)


def _each(names: frozenset[str] | None = None) -> list[Any]:
    """Return the options that take a value, those called ``names`` where given."""
    return [
        pytest.param(command, option.flags[0], id=option.name)
        for command, option in _options()
        if option.kind is not bool and (names is None or option.name in names)
    ]


@pytest.mark.parametrize(("command", "flag"), _each())
def test_an_empty_value_is_refused(capsys: Capture, command: str, flag: str) -> None:
    for value in ("", " "):
        refused(infcalc(capsys, command, f"{flag}={value}"), 2, flag)


@pytest.mark.parametrize(("command", "flag"), _each(NUMBERS | TOKENS))
def test_what_is_no_number_or_out_of_range_is_refused(capsys: Capture, command: str, flag: str) -> None:
    for value in (*OUT_OF_RANGE, *NOT_NUMBERS, "9" * 4000):
        refused(infcalc(capsys, command, f"{flag}={value}"), 2, flag)


QUICKLY = {
    "lab": ("--quick", "--repeat", "1", "--tokens", "4"),
    "batching": ("--requests", "5"),
    "paging": ("--requests", "20"),
    "prefix-cache": ("--requests", "20"),
    "workload": ("--requests", "20"),
    "simulate": ("--requests", "5"),
}
"""What keeps a command short whose question takes a while; the value under test comes after it, and wins."""


@pytest.mark.parametrize(("command", "flag"), _each())
def test_no_value_of_an_option_ends_in_a_traceback(capsys: Capture, command: str, flag: str) -> None:
    for value in (*OUT_OF_RANGE, *NOT_NUMBERS, ",", "/", ".", "a/b", "\0", "%s{}", "--"):
        ran = infcalc(capsys, command, *QUICKLY.get(command, ()), f"{flag}={value}")
        assert ran.code in {0, 2, 3, 4, 5, 6}, (value, ran.err)
        if ran.code in {2, 4, 5, 6}:
            assert any(line.startswith("error: ") for line in ran.err.splitlines())


def test_no_option_of_numbers_is_missing_from_the_lists() -> None:
    stated = {option.name for _, option in _options() if option.kind in {int | None, float | None}}
    assert stated <= NUMBERS | NUMBERS_FROM_ZERO


# Files that cannot be used

CYCLE = "gpus: &loop\n  a: *loop\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)
BAD_OVERLAYS = {
    "empty": b"",
    "comment": b"# nothing\n",
    "binary": bytes(range(256)) * 8,
    "zeros": b"\0" * 64,
    "list": b"- a\n- b\n",
    "text": b"hello\n",
    "number": b"42\n",
    "deep": b"gpus: " + b"[" * 20_000,
    "deep_mapping": "".join(f"{' ' * depth}a:\n" for depth in range(2000)).encode(),
    "cycle": CYCLE.encode(),
    "bomb": BOMB.encode(),
    "tab": b"gpus:\n\tx: 1\n",
    "tag": b"gpus: !!python/object/apply:os.system [exit 1]\n",
    "twice": b"gpus:\n  x: {}\n  x: {}\n",
    "section": b"models:\n  m: {}\nlorries:\n  x: {}\n",
    "entry": b"gpus:\n  x: {bandwidth: fast, memory: -3 GiB}\n",
    "two_documents": b"gpus: {}\n---\ngpus: {}\n",
}


@pytest.mark.parametrize("name", BAD_OVERLAYS)
def test_a_catalog_file_that_cannot_be_used_ends_with_2(capsys: Capture, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_bytes(BAD_OVERLAYS[name])
    refused(infcalc(capsys, "kv", "--catalog", str(path)), 2, path.name)


def test_a_missing_catalog_file_or_a_folder_ends_with_2(capsys: Capture, tmp_path: Path) -> None:
    refused(infcalc(capsys, "kv", "--catalog", "missing.yaml"), 2, "missing.yaml")
    refused(infcalc(capsys, "kv", "--catalog", str(tmp_path)), 2, str(tmp_path))


def test_all_faults_of_a_catalog_file_are_told_at_once_with_their_lines(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(
        "gpus:\n  a100-80gb:\n    bandwidth: 2039\n  h100:\n    memory: eighty\nlorries: {}\n", encoding="utf-8"
    )
    ran = infcalc(capsys, "kv", "--catalog", str(path))
    refused(ran, 2, "3 faults", f"{path}:3", f"{path}:5", f"{path}:6", "bandwidth", "memory", "lorries")


BAD_CONFIGS = {
    "empty": b"",
    "blank": b" \n",
    "binary": bytes(range(256)) * 8,
    "list": b"[]",
    "object": b"{}",
    "cut": json.dumps(LLAMA_8B).encode()[:-20],
    "deep": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "deep_list": b'{"model_type": "llama", "x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "infinite": json.dumps(LLAMA_8B | {"hidden_size": float("inf")}).encode(),
    "nan": json.dumps(LLAMA_8B | {"num_hidden_layers": float("nan")}).encode(),
    "zero": json.dumps(LLAMA_8B | {"num_hidden_layers": 0}).encode(),
    "negative": json.dumps(LLAMA_8B | {"num_attention_heads": -32}).encode(),
    "huge": json.dumps(LLAMA_8B | {"num_hidden_layers": 10**30}).encode(),
    "text": json.dumps(LLAMA_8B | {"hidden_size": "wide"}).encode(),
    "missing_key": json.dumps({key: value for key, value in LLAMA_8B.items() if key != "hidden_size"}).encode(),
    "long_number": b'{"model_type": "llama", "hidden_size": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_config_that_cannot_be_read_ends_with_2(capsys: Capture, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.json"
    path.write_bytes(BAD_CONFIGS[name])
    for command in (("kv", "--model"), ("models", "add")):
        ran = infcalc(capsys, *command, str(path))
        assert ran.code == 2, ran.err
        assert ran.err.startswith("error: ")
        assert "Traceback" not in ran.err


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64, b"ZZZZ" * 100])
def test_a_damaged_gguf_ends_with_2(capsys: Capture, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    ran = infcalc(capsys, "kv", "--model", str(path))
    assert (ran.code, ran.out) == (2, "")
    assert str(path) in ran.err


@pytest.mark.parametrize("output", ["none/x.json", "."])
def test_what_cannot_be_written_ends_with_2(capsys: Capture, output: str) -> None:
    refused(infcalc(capsys, "kv", "--json", "--output", output), 2, output)


# Side by side


def test_two_models_two_gpus_and_two_precisions_side_by_side(capsys: Capture) -> None:
    arguments = (
        *("kv", "--model", "llama3-8b", "--model", "llama3-70b", "--gpu", "h100", "--gpu", "h200"),
        *("--kv-dtype", "bf16,fp8", "--kv-dtype", "int4", "-c", "4k"),
    )
    ran = answer(capsys, *arguments)
    sets = [(one["model"], one["gpu"], one["kv_dtype"]) for one in ran.result["side_by_side"]]
    assert sets == [
        (model, gpu, kv_dtype)
        for model in ("llama3-8b", "llama3-70b")
        for gpu in ("h100-sxm5-80gb", "h200-sxm-141gb")
        for kv_dtype in ("bf16", "fp8", "int4")
    ]
    written = list(csv.DictReader(io.StringIO(infcalc(capsys, *arguments, "--format", "csv").out)))
    assert len(written) == len(sets)
    assert [(row["model"], row["kv_dtype"]) for row in written] == [(model, kv_dtype) for model, _, kv_dtype in sets]


def test_concurrency_side_by_side(capsys: Capture) -> None:
    ran = answer(capsys, "concurrency", "-m", "llama3-8b", "-m", "qwen3-8b", "--quant", "fp8", "--quant", "int4")
    assert [one["model"] for one in ran.result["side_by_side"]] == ["llama3-8b", "qwen3-8b"]
    assert [[row["kv_dtype"] for row in one["rows"]] for one in ran.result["side_by_side"]] == [["fp8", "int4"]] * 2


def test_roofline_of_two_gpus_is_one_result(capsys: Capture) -> None:
    result = answer(capsys, "roofline", "-g", "h100", "-g", "a100-80gb", "--batch", "1").result
    assert {one["gpu"] for one in result["gpus"]} == {"h100-sxm5-80gb", "a100-sxm4-80gb"}
    assert {one["gpu"] for one in result["points"]} == {"h100-sxm5-80gb", "a100-sxm4-80gb"}


# Explanations


@pytest.mark.parametrize(
    ("command", "quantity", "origin"),
    [
        ("kv", "kv_bytes_per_token", "models.yaml (shipped)"),
        ("concurrency", "kv_pool_bytes", "gpus.yaml (shipped)"),
        ("roofline", "time_s", "gpus.yaml (shipped)"),
        ("speculate", "tokens_per_round", "Leviathan"),
        ("batching", "policies[policy=vllm].throughput_tokens_per_s", "the last to come is preempted"),
    ],
)
def test_a_number_explains_itself(capsys: Capture, command: str, quantity: str, origin: str) -> None:
    explanations = answer(capsys, command, "--explain").document["explanations"]
    found = next(text for text in explanations if text["quantity"] == quantity)
    assert found["formula"]
    assert any(digit in found["substituted"] for digit in "123456789")
    assert any(origin in item["origin"] for text in explanations for item in text["inputs"])
    screen = " ".join(infcalc(capsys, command, "--explain").out.split())
    assert f"{quantity} = {found['formula']} = {found['substituted']}" in screen
    assert origin in screen
    assert "explanations" not in answer(capsys, command).document


def test_an_explanation_names_the_overlay_a_value_came_from(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("gpus:\n  a100-80gb:\n    cuda_total: 70 GiB\n    bandwidth: 2 TB/s\n", encoding="utf-8")
    pool = answer(capsys, "kv", "--explain", "--catalog", str(path)).document["explanations"]
    (total,) = (item for text in pool for item in text["inputs"] if item["name"] == "CUDA total")
    assert (total["value"], total["origin"]) == (70 * 2**30, f"{path}:3")
    step = answer(capsys, "roofline", "--explain", "--batch", "1", "--catalog", str(path)).document["explanations"]
    rates = {item["origin"] for text in step for item in text["inputs"] if item["name"] == "bandwidth_bytes_per_s"}
    assert rates == {f"{path}:4"}


# Data on stdout, talk on stderr


def test_warnings_are_on_stderr_and_inside_json(capsys: Capture) -> None:
    text = "llama3-70b was made for 8,192 tokens"
    screen = infcalc(capsys, "kv")
    assert text in screen.err
    assert text not in screen.out
    document = infcalc(capsys, "kv", "--json")
    assert document.err == ""
    assert any(text in warning for warning in document.document["warnings"])


def test_a_doubtful_entry_says_so(capsys: Capture) -> None:
    doubtful = next(row["name"] for row in answer(capsys, "models").result["models"] if row["doubtful"])
    ran = infcalc(capsys, "show", doubtful)
    assert ran.err.startswith(f"warning: {doubtful}: ")


def test_no_escape_codes_without_a_terminal(capsys: Capture) -> None:
    for command in COMMAND_LINES:
        ran = infcalc(capsys, *command)
        assert ESCAPE not in ran.out + ran.err


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return what a terminal would."""
        return True


@pytest.mark.parametrize(
    ("variables", "styled"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
)
def test_a_terminal_gets_style_unless_told_otherwise(
    monkeypatch: Patch, variables: dict[str, str], styled: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm-256color", "COLUMNS": "120"} | variables).items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    assert run(["kv"]) == 0
    assert (ESCAPE in stream.getvalue()) is styled
    assert "327,680" in stream.getvalue()


# Catalog overlays


OVERLAY = """
gpus:
  a100-80gb:
    bandwidth: 2 TB/s
    price: {value: 9.99 USD/h, provider: mine, source: contract, date: 2026-01-01}
"""


def test_an_overlay_changes_values_and_their_origin(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(OVERLAY, encoding="utf-8")
    shown = answer(capsys, "gpus", "show", "a100-80gb", "--catalog", str(path)).result
    assert shown["origins"]["bandwidth"] == f"{path}:4"
    assert shown["origins"]["price"] == f"{path}:5"
    assert shown["origins"]["memory"] == "gpus.yaml (shipped)"
    assert shown["entry"]["bandwidth"] == "2 TB/s"
    assert shown["derived"]["crossover_flop_per_byte"] == 156
    (row,) = answer(capsys, "gpus", "list", "a100-sxm4-80gb", "--catalog", str(path)).result["gpus"]
    assert row["price_usd_per_hour"] == 9.99


def test_layers_of_overlays_win_in_their_order(capsys: Capture, tmp_path: Path, monkeypatch: Patch) -> None:
    def written(path: Path, bandwidth: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"gpus:\n  a100-80gb:\n    bandwidth: {bandwidth}\n", encoding="utf-8")

    def bandwidth(*arguments: str) -> tuple[str, str]:
        shown = answer(capsys, "show", "a100-80gb", *arguments).result
        return shown["entry"]["bandwidth"], shown["origins"]["bandwidth"]

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert bandwidth()[1] == "gpus.yaml (shipped)"
    user = tmp_path / "config" / "infcalc" / "site.yaml"
    written(user, "1 TB/s")
    assert bandwidth() == ("1 TB/s", f"{user}:3")
    written(tmp_path / "infcalc.yaml", "3 TB/s")
    assert bandwidth() == ("3 TB/s", "infcalc.yaml:3")
    written(tmp_path / "flag.yaml", "4 TB/s")
    written(tmp_path / "last.yaml", "5 TB/s")
    assert bandwidth("--catalog", "flag.yaml") == ("4 TB/s", "flag.yaml:3")
    assert bandwidth("--catalog", "flag.yaml", "--catalog", "last.yaml") == ("5 TB/s", "last.yaml:3")


def test_a_faulty_project_overlay_is_named(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "infcalc.yaml").write_text("gpus: [\n", encoding="utf-8")
    refused(infcalc(capsys, "kv"), 2, "infcalc.yaml")


def test_a_gpu_is_added_with_one_entry(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "infcalc.yaml").write_text(
        "gpus:\n  dream-gpu: {like: h100, bf16: 3 PFLOPS, aliases: [dream]}\n", encoding="utf-8"
    )
    result = answer(capsys, "roofline", "-g", "dream", "--batch", "1").result
    (ridge,) = (one for one in result["gpus"] if one["precision"] == "bf16")
    assert (ridge["gpu"], ridge["peak_flop_per_s"]) == ("dream-gpu", 3e15)
    assert ridge["crossover_flop_per_byte"] == pytest.approx(3e15 / 3.35e12)


def test_more_memory_means_a_larger_cuda_total(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "infcalc.yaml").write_text("gpus:\n  dream-gpu: {like: h100, memory: 200 GiB}\n", encoding="utf-8")
    derived = answer(capsys, "show", "dream-gpu").result["derived"]
    assert derived["cuda_total_bytes"] > 190 * 2**30


# Models from disk


def test_a_model_from_disk_is_the_model_of_the_catalog(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    for model in (str(path), str(tmp_path)):
        ran = answer(capsys, "kv", "--model", model)
        assert ran.result["rows"] == answer(capsys, "kv", "--model", "llama3.1-8b").result["rows"]
        assert ran.document["inputs"]["model"]["origin"] == "given (--model)"


@pytest.mark.parametrize("name", ["llama3.1-8b", "deepseek-v3", "gpt-oss-20b", "qwen3-next-80b", "gemma-4-e2b"])
def test_what_models_add_prints_can_be_laid_over(capsys: Capture, tmp_path: Path, name: str) -> None:
    added = infcalc(capsys, "models", "add", name)
    assert added.code == 0
    document = yaml.safe_load(added.out)
    ((key, entry),) = document["models"].items()
    assert key == name
    # Under a name of its own, so that nothing of the shipped entry is left to lean on.
    renamed = {key: value for key, value in entry.items() if key not in {"aliases", "hf_id"}}
    path = tmp_path / "added.yaml"
    path.write_text(yaml.safe_dump({"models": {"my-own": renamed}}, sort_keys=False), encoding="utf-8")
    mine = answer(capsys, "show", "my-own", "--catalog", str(path)).result["derived"]
    assert mine == answer(capsys, "show", name).result["derived"]
    rows = answer(capsys, "kv", "-m", "my-own", "--gpus", "1", "--catalog", str(path)).result["rows"]
    assert rows == answer(capsys, "kv", "-m", name, "--gpus", "1").result["rows"]


def test_what_models_add_makes_of_a_config_can_be_laid_over(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "my-llama.json"
    path.write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    overlay = tmp_path / "infcalc.yaml"
    added = infcalc(capsys, "models", "add", str(path), "--output", str(overlay))
    assert (added.code, added.out) == (0, "")
    assert answer(capsys, "kv", "-m", "my-llama").result["kv_bytes_per_token"] == 131_072
    assert answer(capsys, "show", "my-llama").result["derived"]["parameters"] == 8_030_261_248


@pytest.mark.parametrize("name", [None, "h10"])
def test_what_show_does_not_know_is_told_with_models_and_gpus(capsys: Capture, name: str | None) -> None:
    ran = infcalc(capsys, "show", *([name] if name else []))
    assert ran.code == (5 if name else 2)
    assert not name or ("unknown model or GPU" in ran.err and "h100" in ran.err)


def test_an_index_of_another_shape_is_told(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a.weight": ["x"]}}', encoding="utf-8")
    ran = infcalc(capsys, "kv", "--model", str(tmp_path))
    assert ran.code == 2
    assert "index.json" in ran.err


def test_a_version_that_tells_nothing_takes_the_newest_rules_and_says_so(capsys: Capture) -> None:
    ran = answer(capsys, "kv", "--engine-version", "latest")
    assert any("'latest' is not known: the rules known are of 0.5 to 0.33" in text for text in ran.document["warnings"])
    assert ran.result["rows"] == answer(capsys, "kv").result["rows"]


def test_parts_beside_the_decoder_are_named(capsys: Capture) -> None:
    notes = answer(capsys, "kv", "--model", "gemma-3-27b").document["assumptions"]
    assert any("423,060,336 parameters of vision" in text and "not in work" in text for text in notes)


def test_acceptance_by_position_is_not_stretched(capsys: Capture) -> None:
    rows = answer(capsys, "speculate", "--acceptance", "0.9,0.85").result["rows"]
    assert max(row["num_draft_tokens"] for row in rows) <= 2
    ran = infcalc(capsys, "speculate", "--acceptance", "0.9,0.85", "--num-draft-tokens", "3")
    assert ran.code == 2
    assert "--num-draft-tokens: 3 draft tokens, but acceptance of 2 positions" in ran.err
    assert infcalc(capsys, "speculate", "--acceptance", "1.5").err.startswith("error: --acceptance:")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kv", "--context", "10m"), "not one sequence of 10,485,760 tokens fits"),
        (("concurrency", "--context", "10m"), "not one sequence of 10,485,760 tokens fits"),
        (("roofline", "--batch", "5000"), "sequences of 4,096 tokens fit in the KV pool"),
        (("speculate", "--batch", "5000"), "sequences of 4,096 tokens fit in the KV pool"),
        (("speculate", "--draft-model", "llama3-8b", "--batch", "110"), "drafting adds"),
    ],
    ids=" ".join,
)
def test_what_does_not_fit_is_said(capsys: Capture, arguments: tuple[str, ...], said: str) -> None:
    ran = infcalc(capsys, *arguments, "--json")
    assert any(said in text for text in ran.document["warnings"])


def test_points_stand_under_the_roof_they_compute_under(capsys: Capture) -> None:
    options = ("roofline", "--gpu", "h100", "--gpus", "8")
    sixteen, eight = (answer(capsys, *options, "--weights", weights).result["points"][0] for weights in ("bf16", "fp8"))
    assert (sixteen["precision"], eight["precision"]) == ("bf16", "fp8")
