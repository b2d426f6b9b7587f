"""``holds``: what every ``check_invariants()`` says about itself."""

from __future__ import annotations


def holds(condition: bool, what: str) -> None:
    """Raise AssertionError with ``what`` unless the condition holds; unlike ``assert`` it stays in optimised runs."""
    if not condition:
        raise AssertionError(what)
