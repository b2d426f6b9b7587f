"""Errors to stderr and exit codes: what a user can cause never ends in a traceback."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from infcalc.errors import InfcalcError

if TYPE_CHECKING:
    from collections.abc import Callable

_BAD_USAGE = 2
_INTERRUPTED = 130
_BUG = 1
_CLICK_BROKEN_PIPE = 1


def exit_code_of(run: Callable[[], object]) -> int:
    """Run a command and return its exit code, saying on stderr what went wrong and what to do."""
    try:
        code = run()
        sys.stdout.flush()
    except SystemExit as stop:
        # click ends the process itself when the reader of stdout has gone: for us that is no failure.
        return 0 if stop.code == _CLICK_BROKEN_PIPE else int(stop.code or 0)
    except (Exception, KeyboardInterrupt) as error:
        if _is_bug(error) and os.environ.get("INFCALC_DEBUG"):
            raise
        return _told(error)
    return code if isinstance(code, int) else 0


def _is_bug(error: BaseException) -> bool:
    return not isinstance(error, InfcalcError | click.ClickException | click.Abort | KeyboardInterrupt | OSError)


def _told(error: BaseException) -> int:
    """Say what went wrong on stderr and return the exit code for it."""
    match error:
        case InfcalcError():
            _say(f"error: {error}")
            return error.exit_code
        case click.ClickException():
            _say(_usage(error))
            return _BAD_USAGE
        case click.Abort() | KeyboardInterrupt():
            _say("interrupted")
            return _INTERRUPTED
        case OSError():
            return _unwritten(error)
        case _:
            name = type(error).__name__
            _say(f"bug: {name}: {error}\n  hint: run again with INFCALC_DEBUG=1 and report the traceback")
            return _BUG


def _unwritten(error: OSError) -> int:
    """Return the exit code where stdout takes no more: files are opened in one place, which tells its own problems."""
    if isinstance(error, BrokenPipeError):
        # The reader has gone (`infcalc models | head`): nothing more to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    _say(f"error: the answer cannot be written: {error.strerror or error}\n  hint: is the disk full?")
    return _BAD_USAGE


def _usage(error: click.ClickException) -> str:
    text = f"error: {error.format_message()}"
    context = getattr(error, "ctx", None)
    if isinstance(error, click.UsageError) and context is not None:
        text += f"\n  hint: {context.command_path} --help lists what it takes"
    return text


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
