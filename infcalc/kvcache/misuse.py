"""``Misuse``: a call that no correct caller makes."""

from __future__ import annotations


class Misuse(RuntimeError):
    """A double free, a use after free, an unknown sequence, a write past the room asked for.

    A defect of the calling code, never of a user's input: hence outside the tree of ``infcalc.errors``.
    """
