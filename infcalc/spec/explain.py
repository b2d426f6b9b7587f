"""A number that can explain itself: its formula, the substituted values, and where each input came from."""

from __future__ import annotations

from infcalc.frozen import frozen


@frozen
class Input:
    """One input of a figure: its name in the formula, its value, and where the value came from.

    ``origin`` names the place: ``given (--tp)``, ``reference scenario``, ``gpus.yaml (shipped)``, ``infcalc.yaml:12``,
    ``./config.json: num_key_value_heads``; ``source`` is the publication behind it, where there is one.
    """

    name: str
    value: object
    origin: str
    source: str = ""


@frozen
class Explanation:
    """How one figure came about. ``quantity`` is its key in the JSON result."""

    quantity: str
    formula: str
    substituted: str
    inputs: tuple[Input, ...] = ()
    source: str = ""
