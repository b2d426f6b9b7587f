"""Where a figure stands in its file: the line that holds its key, as the reader of its format named it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from infcalc.diagnosis.signals import Cite
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST: Final = 260
_AROUND: Final = 12
_RUN: Final = re.compile(r"\(line (?P<line>[0-9]+)\)$")
_SCRAPE: Final = re.compile(r", scrape (?P<number>[0-9]+)(?: of |$)")


@frozen
class Source:
    """A text that was given, line by line; ``place`` is what people call it."""

    place: str
    lines: tuple[str, ...]

    @staticmethod
    def of(place: str, text: str) -> Source:
        """Return a text as it is cited."""
        plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        return Source(place=place, lines=tuple(plain.split("\n")))

    def at(self, line: int) -> Cite:
        """Return a line by its number, from 1."""
        text = self.lines[line - 1] if 1 <= line <= len(self.lines) else ""
        return Cite(place=self.place, line=line, text=_cut(text.strip()))

    def of_key(self, key: str, where: str) -> tuple[Cite, ...]:
        """Return the line of a key of the run or scrape that readers call ``where``; of a histogram, sum and count.

        A key that no line holds, as one that a reader put together, is cited by its name alone.
        """
        if ":" in key:
            names = (key, f"{key}_sum", f"{key}_count")
            found = tuple(one for name in names if (one := self._of_metric(name, where)) is not None)
            if found:
                return found
        run = _RUN.search(where)
        start = int(run["line"]) if run else 1
        for word in _spellings(key):
            for number in range(start, len(self.lines) + 1):
                text = self.lines[number - 1]
                position = text.find(word)
                if position >= 0:
                    return (Cite(place=self.place, line=number, text=_around(text, position, word)),)
        return (Cite(place=self.place, line=None, text=key),)

    def _of_metric(self, key: str, where: str) -> Cite | None:
        """Return the line of a metric: in the scrape that ``where`` names, else in the last one."""
        first = next((number for number, line in enumerate(self.lines, 1) if _is_of(line, key)), None)
        if first is None:
            return None
        series = self.lines[first - 1].rpartition(" ")[0]
        same = [number for number, line in enumerate(self.lines, 1) if line.rpartition(" ")[0] == series]
        scrape = _SCRAPE.search(where)
        nth = min(int(scrape["number"]), len(same)) if scrape else len(same)
        return self.at(same[nth - 1])


def _is_of(line: str, key: str) -> bool:
    if not line.startswith(key):
        return False
    return line[len(key) : len(key) + 1] in {"{", " "}


def _spellings(key: str) -> Sequence[str]:
    """Return how a key may stand in a text: with its quotes, then bare, of a nested one the last part alone."""
    last = key.rpartition(".")[2]
    return (f'"{key}"', f'"{last}"', f'"{last}:"', key, last) if last else (key,)


def _around(line: str, position: int, word: str) -> str:
    """Return a line, of a long one the part with the word and its value."""
    if len(line) <= _LONGEST:
        return line.strip()
    end = line.find(",", position + len(word) + _AROUND)
    end = len(line) if end < 0 else end
    head = "..." if position else ""
    part = line[position : min(end, position + _LONGEST)]
    return f"{head}{part}..." if end < len(line) else f"{head}{part}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
