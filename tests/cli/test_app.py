from __future__ import annotations

import inspect
import sys

import click
import pytest

from infcalc import __main__ as entry
from infcalc.cli.app import COMMANDS, application, build, run, with_signature
from infcalc.cli.failures import exit_code_of
from infcalc.cli.options import OUTPUT, Option
from infcalc.errors import (
    CatalogError,
    DoesNotFit,
    FileProblem,
    InfcalcError,
    ObjectiveNotMet,
    UnknownName,
    UnsupportedArchitecture,
    UsageError,
)

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("u", place="--x", hint="h"), 2),
        (FileProblem("f", place="x.json"), 2),
        (CatalogError(("a:1: b", "c:2: d")), 2),
        (DoesNotFit("d"), 3),
        (ObjectiveNotMet("o"), 4),
        (UnknownName("model", "x", ("y",)), 5),
        (UnsupportedArchitecture("a"), 6),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_every_error_has_its_exit_code_and_says_all_it_knows(capsys: Capture, error: InfcalcError, code: int) -> None:
    def fail() -> None:
        raise error

    assert exit_code_of(fail) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: {error}\n"
    for part in (error.message, error.place, error.hint):
        assert part is None or part in err


def test_a_bug_is_told_as_one_and_ends_with_1(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.delenv("INFCALC_DEBUG", raising=False)
    assert exit_code_of(fail) == 1
    err = capsys.readouterr().err
    assert err.startswith("bug: ZeroDivisionError: division by zero\n")
    assert "INFCALC_DEBUG=1" in err
    monkeypatch.setenv("INFCALC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        exit_code_of(fail)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_ends_with_130(capsys: Capture, interruption: BaseException) -> None:
    def stop() -> None:
        raise interruption

    assert exit_code_of(stop) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_command_that_is_interrupted_says_so(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("infcalc.cli.simulate.simulate", stop)
    assert run(["simulate"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_command_that_returns_nothing_has_answered() -> None:
    assert exit_code_of(lambda: None) == 0
    assert exit_code_of(lambda: 3) == 3


def test_the_commands_of_the_contract_are_there() -> None:
    app = application()
    assert isinstance(app, click.Group)
    assert sorted(app.list_commands(click.Context(app))) == sorted(command.name for command in COMMANDS)
    assert {"kv", "concurrency", "roofline", "speculate", "models", "gpus", "show"} <= {one.name for one in COMMANDS}
    assert app.get_command(click.Context(app), "no-such-command") is None


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_asks_a_question_and_shows_an_example(command: object, capsys: Capture) -> None:
    name, question = getattr(command, "name"), getattr(command, "question")  # noqa: B009
    assert question.partition("(")[0].strip().endswith("?")
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example: infcalc " + name in " ".join(out.split())


TEXTS = {"example", "completion", "skill"}
"""Commands that answer with a text to copy, not with a result."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_options_reach_the_command_under_their_names(command: object) -> None:
    found = build(command)  # type: ignore[arg-type]
    names = [parameter.name for parameter in found.params]
    assert len(names) == len(set(names))
    assert {"catalog", "json", "output"} <= set(names) or getattr(command, "name") in TEXTS  # noqa: B009


def test_a_signature_is_made_of_the_table() -> None:
    taken: list[dict[str, object]] = []

    def answer(given: dict[str, object]) -> int:
        taken.append(given)
        return 4

    callback = with_signature(answer, OUTPUT, (("name", str, ...),))
    parameters = inspect.signature(callback).parameters
    assert list(parameters) == ["name", *(option.name for option in OUTPUT)]
    assert parameters["name"].default is inspect.Parameter.empty
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters.values())
    with pytest.raises(click.exceptions.Exit) as ended:
        callback(name="x", json=True)
    assert ended.value.exit_code == 4
    assert taken == [{"name": "x", "json": True}]


def test_an_empty_value_never_reaches_the_command() -> None:
    option = Option(name="x", flags=("--x",), kind=str, default=None, help="X.")
    callback = with_signature(lambda _: pytest.fail("was run"), (option,))
    with pytest.raises(UsageError, match="empty"):
        callback(x="")


def test_version_and_help_and_nothing(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("infcalc 0.")
    for arguments in (["--help"], ["-h"]):
        assert run(arguments) == 0
        assert "Works with no option at all".lower() in " ".join(capsys.readouterr().out.lower().split()).replace(
            "every command works", "works"
        )
    run([])
    out, err = capsys.readouterr()
    assert "How big is the KV cache" in out + err


def test_the_entry_point_ends_with_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["infcalc", "kv", "--model", "no-such-model"])
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", leave)
    monkeypatch.setattr("gc.disable", lambda: None)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 5
