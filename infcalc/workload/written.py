"""How distributions and arrivals are written: ``name:key=value,key=value``, or ``name:value``."""

from __future__ import annotations


def name_and_values(text: str) -> tuple[str, dict[str, str]]:
    """Return the name before the colon and the values by their keys; the key of a value without one is empty.

    Names and keys become lower case; a text without a colon has no values.

    Raises:
        ValueError: a key is given twice.

    >>> name_and_values("Gamma: rate=12, cv=2")
    ('gamma', {'rate': '12', 'cv': '2'})
    >>> name_and_values("poisson:12")
    ('poisson', {'': '12'})

    """
    word, colon, rest = text.strip().partition(":")
    name = word.strip().lower()
    return name, values_of(rest, name) if colon else {}


def values_of(text: str, name: str) -> dict[str, str]:
    """Return the values of ``key=value,key=value`` by their keys.

    Raises:
        ValueError: a key is given twice.

    """
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = "", key
        word = key.strip().lower()
        if word in found:
            raise ValueError(f"{name}: {word or 'the value'} is given twice")
        found[word] = value.strip()
    return found
