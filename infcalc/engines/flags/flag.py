"""One option of an engine, and how to look it up in the version that shall take it."""

from __future__ import annotations

from enum import StrEnum

from infcalc.frozen import frozen


class Place(StrEnum):
    """Where an option is written."""

    COMMAND = "command line"
    FILE = "YAML of the engine"


@frozen
class Flag:
    """An option: name, meaning in that engine, and the versions from ``since`` to before ``until`` (empty: all).

    ``keyword`` is its argument of the engine's Python class (empty: the class does not take it); ``switch`` says that
    it takes no value. ``since`` of an option that the oldest version read has is empty.
    """

    name: str
    meaning: str
    default: str = ""
    switch: bool = False
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = ()
    keyword: str = ""
    place: Place = Place.COMMAND
    source: str = ""

    def known_at(self, version: tuple[int, ...]) -> bool:
        """Return whether ``version`` has the option.

        >>> new = Flag(name="--data-parallel-size", meaning="engines side by side", since=(0, 8, 3))
        >>> new.known_at((0, 8)), new.known_at((0, 8, 3)), new.known_at((0, 33))
        (False, True, True)
        """
        return version >= self.since and (not self.until or version < self.until)


def dotted(version: tuple[int, ...]) -> str:
    """Return a version as people write it.

    >>> dotted((0, 8, 3))
    '0.8.3'
    """
    return ".".join(str(part) for part in version)
