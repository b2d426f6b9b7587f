"""Runs a command in this process and keeps what it wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infcalc.cli.app import run

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Exit code and output of one command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def result(self) -> dict[str, Any]:
        """The result of the JSON document."""
        found: dict[str, Any] = self.document["result"]
        return found


def infcalc(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ran:
    """Run ``infcalc`` with these arguments."""
    capsys.readouterr()
    code = run(arguments)
    out, err = capsys.readouterr()
    return Ran(code=code, out=out, err=err)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Ran:
    """Run ``infcalc`` with these arguments and ``--json``; it must end with ``code`` and without a word on stderr."""
    ran = infcalc(capsys, *arguments, "--json")
    assert ran.code == code, ran.err
    assert ran.err == ""
    return ran
