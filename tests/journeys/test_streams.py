"""The command as a process among others: pipes that close, disks that are full, terminals without the letters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.command import infcalc

INFCALC = (sys.executable, "-m", "infcalc")
FULL = Path("/dev/full")


def started(*arguments: str, stdout: int, cwd: Path, **variables: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*INFCALC, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"} | variables,
    )


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    process = started("models", "--json", stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"{"
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [("kv",), ("kv", "--json"), ("--help",)], ids=" ".join)
def test_a_full_disk_is_told(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        process = started(*arguments, stdout=full.fileno(), cwd=tmp_path)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"cannot be written" in err
    assert b"Traceback" not in err


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("simulate", "--num-requests", "5", "--save-requests", str(FULL)), "5 of 5 requests answered"),
        (("workload", "--num-requests", "5", "--save-trace", str(FULL)), "5 requests over"),
        (("kv", "--output", str(FULL)), "327,680 bytes per token"),
        (("kv", "--json", "--output", str(FULL)), '"kv_bytes_per_token": 327680'),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_answer_is_told_before_the_file_that_is_full(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], shown: str
) -> None:
    ran = infcalc(capsys, *arguments)
    assert ran.code == 2
    assert shown in ran.out
    assert "error: /dev/full: cannot be written: No space left on device" in ran.err
    assert "make room there" in ran.err
    assert "wrote" not in ran.err


@pytest.mark.skipif(os.name != "posix", reason="closes streams in a POSIX shell")
@pytest.mark.parametrize(
    ("command", "code"), [("kv >&-", 0), ("kv --json >&-", 0), ("kv --model nope 2>&-", 5), ("kv >&- 2>&-", 0)]
)
def test_a_closed_stream_is_no_error(tmp_path: Path, command: str, code: int) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -m infcalc {command}'], check=False, capture_output=True, cwd=tmp_path
    )
    assert ran.returncode == code
    assert b"Traceback" not in ran.stderr


def test_letters_that_the_encoding_lacks_are_written_as_escapes(tmp_path: Path) -> None:
    (tmp_path / "infcalc.yaml").write_text('models:\n  "\N{SNOWMAN}-1": {like: llama3-8b}\n', encoding="utf-8")

    def said(*arguments: str) -> bytes:
        process = started(*arguments, stdout=subprocess.PIPE, cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out

    assert b"\\u2603-1" in said("kv", "--model", "\N{SNOWMAN}-1")
    assert json.loads(said("kv", "--json", "--model", "\N{SNOWMAN}-1"))["result"]["model"] == "\N{SNOWMAN}-1"


def test_the_module_and_the_script_are_one(tmp_path: Path) -> None:
    process = started("--version", stdout=subprocess.PIPE, cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert out.startswith(b"infcalc ")
