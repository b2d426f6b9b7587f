"""What helps a newcomer at a prompt: help by question, examples that run, completion."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infcalc.cli.app import COMMANDS, SECTIONS, build
from infcalc.cli.completion import VARIABLE
from infcalc.cli.example import examples
from tests.journeys.command import infcalc

Capture = pytest.CaptureFixture[str]


def completed(*words: str) -> list[str]:
    """Return what a bash with these words on its line, the last not yet whole, is told."""
    variables = {VARIABLE: "bash_complete", "COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1)}
    ran = subprocess.run(
        [sys.executable, "-m", "infcalc"], check=True, capture_output=True, text=True, env=os.environ | variables
    )
    return [line.partition(",")[2] for line in ran.stdout.splitlines()]


def test_each_command_stands_in_one_section_of_the_help(capsys: Capture) -> None:
    listed = [name for _, names in SECTIONS for name in names]
    assert sorted(listed) == sorted(command.name for command in COMMANDS)
    text = infcalc(capsys, "--help").out
    at = [text.index(f"\n{title.removesuffix('?')}:") for title, _ in SECTIONS]
    assert at == sorted(at)


def test_examples_are_those_of_the_help(capsys: Capture) -> None:
    text = infcalc(capsys, "example").out
    for one in examples():
        assert f"# {one.question}" in text
        assert all(line in text for line in one.lines)
    alone = infcalc(capsys, "example", "kv").out
    assert alone.splitlines()[1:] == list(examples("kv")[0].lines)


def test_an_example_of_nothing_is_refused(capsys: Capture) -> None:
    refused = infcalc(capsys, "example", "simulat")
    assert refused.code == 2
    assert "'simulat' is not a command" in refused.err
    assert "simulate" in refused.err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("infcalc", "concurr"), ["concurrency"]),
        (("infcalc", "kv", "--model", "llama3-7"), ["llama3-70b"]),
        (("infcalc", "memory", "-g", "a10g"), ["a10g"]),
        (("infcalc", "estimate", "--engine", "tens"), ["tensorrt-llm"]),
        (("infcalc", "simulate", "--format", "ma"), ["markdown"]),
        (("infcalc", "kv", "--max-num-s"), ["--max-num-seqs"]),
    ],
    ids=lambda words: words[-1],
)
def test_a_shell_completes(words: tuple[str, ...], found: list[str]) -> None:
    assert completed(*words) == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_reads(capsys: Capture, tmp_path: Path, shell: str) -> None:
    script = infcalc(capsys, "completion", shell).out
    assert f"{VARIABLE}={shell}_complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its own reading of the script is not tried")
    path = tmp_path / "script"
    path.write_text(script, encoding="utf-8")
    subprocess.run([shell, "-n", str(path)], check=True)


def test_an_unknown_shell_is_refused(capsys: Capture) -> None:
    refused = infcalc(capsys, "completion", "cmd")
    assert refused.code == 2
    assert "bash, zsh or fish" in refused.err


@pytest.mark.parametrize("line", [line for one in examples() for line in one.lines], ids=lambda text: text[:60])
def test_each_example_is_a_line_that_its_command_takes(line: str) -> None:
    """Only parsed: what the options say is read by the command's own tests, and many need a file."""
    first, name, *words = shlex.split(line.partition(" >")[0])
    assert first == "infcalc"
    (known,) = [one for one in COMMANDS if one.name == name]
    build(known).make_context(name, words)
