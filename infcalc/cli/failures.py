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


def exit_code_of(run: Callable[[], object]) -> int:
    """Run a command and return its exit code, saying on stderr what went wrong and what to do."""
    try:
        code = run()
    except InfcalcError as error:
        _say(f"error: {error}")
        return error.exit_code
    except click.ClickException as error:
        _say(_usage(error))
        return _BAD_USAGE
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return _INTERRUPTED
    except OSError as error:
        return _unwritten(error)
    except Exception as error:
        if os.environ.get("INFCALC_DEBUG"):
            raise
        _say(f"bug: {type(error).__name__}: {error}\n  hint: run again with INFCALC_DEBUG=1 and report the traceback")
        return _BUG
    return code if isinstance(code, int) else 0


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
