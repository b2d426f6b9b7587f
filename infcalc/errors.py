"""The whole exception tree: every error a user can cause carries what was given, where, and the mend.

Each class states the process exit code of the contract, so the command line needs one ``except``.
"""

from __future__ import annotations

from typing import ClassVar


class InfcalcError(Exception):
    """Base of every error that input can cause.

    ``message`` says what was given and what is wrong, ``place`` where (file, line, key, option), ``hint`` what to do.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        """Return the error as one text: place, message and hint."""
        head = f"{self.place}: {self.message}" if self.place else self.message
        return f"{head}\n  hint: {self.hint}" if self.hint else head


class UsageError(InfcalcError):
    """An option or argument that cannot be used (exit 2)."""


class NothingToDraw(UsageError):
    """A picture of an answer that has nothing for it (exit 2, else that of the answer)."""

    def __init__(self, why: str) -> None:
        super().__init__(f"nothing to draw: {why}", place="--format", hint="use table or json")


class FileProblem(InfcalcError):
    """A file that is missing, unreadable or not of the format it claims (exit 2)."""


class CatalogError(InfcalcError):
    """All faults of the catalog files of one load, never only the first (exit 2)."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        count = len(faults)
        super().__init__(
            f"{count} fault{'s' if count != 1 else ''} in the catalog:\n" + "\n".join(f"  {fault}" for fault in faults),
            hint="each line names file, line and key; correct them and run again",
        )
        self.faults = faults


class TraceError(InfcalcError):
    """All faults of a trace: each with its line; the first of them are shown, the others counted (exit 2)."""

    shown: ClassVar[int] = 20
    where: ClassVar[str] = "trace"

    def __init__(self, place: str, faults: tuple[str, ...], *, hint: str | None = None) -> None:
        count = len(faults)
        lines = [f"  {fault}" for fault in faults[: self.shown]]
        if count > self.shown:
            lines.append(f"  and {count - self.shown:,} more")
        super().__init__(
            f"{count:,} fault{'s' if count != 1 else ''} in the {self.where}:\n" + "\n".join(lines),
            place=place,
            hint=hint,
        )
        self.faults = faults


class ProfileError(TraceError):
    """All faults of a load profile, each with its line (exit 2)."""

    where: ClassVar[str] = "profile"


class RunsLost(InfcalcError):
    """Runs that could not be made where they were sent: workers that died, or a cluster that is not there (exit 2)."""


class DoesNotFit(InfcalcError):
    """The deployment does not fit in memory (exit 3)."""

    exit_code: ClassVar[int] = 3


class ObjectiveNotMet(InfcalcError):
    """A stated objective or ``--require`` gate is not met (exit 4)."""

    exit_code: ClassVar[int] = 4


class UnknownName(InfcalcError):
    """A model, GPU or engine the catalog does not know (exit 5); ``nearest`` lists close names."""

    exit_code: ClassVar[int] = 5

    def __init__(self, kind: str, name: str, nearest: tuple[str, ...] = (), *, hint: str | None = None) -> None:
        near = f"did you mean {', '.join(nearest)}?" if nearest else None
        super().__init__(f"unknown {kind} {name!r}", hint="; ".join(part for part in (near, hint) if part) or None)
        self.kind = kind
        self.name = name
        self.nearest = nearest


class UnsupportedArchitecture(InfcalcError):
    """A model description that is not understood (exit 6); never answered with plain attention."""

    exit_code: ClassVar[int] = 6


class CacheOverflow(DoesNotFit):
    """Tokens beyond the end of a KV cache or of a block table (exit 3)."""
