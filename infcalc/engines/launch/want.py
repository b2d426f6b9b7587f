"""What is wanted of an engine, option by option, held against the options that its version has."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from infcalc.engines.flags.flag import Place
from infcalc.engines.flags.table import FLAGS, version_of, why_absent
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

Value: TypeAlias = str | int | float | bool | None


class Address(str):
    """An address that is not known here: a variable of the shell or of Kubernetes, which alone is expanded."""

    __slots__ = ()


@frozen
class Want:
    """An option to write: its name, its value (None: a switch) and why."""

    flag: str
    value: Value
    why: str


@frozen
class Written:
    """An option as it is written, with what it means in the engine; ``switch`` takes no value."""

    flag: str
    value: Value
    why: str
    meaning: str
    source: str
    place: Place
    keyword: str

    @property
    def words(self) -> tuple[str, ...]:
        """The words of a command line, not yet quoted."""
        return (self.flag,) if self.value is None else (self.flag, text_of(self.value))


@frozen
class Refusal:
    """Something that was asked and cannot be had, in words; it becomes a warning."""

    text: str


def text_of(value: Value) -> str:
    """Return a value as a command line holds it.

    >>> text_of(0.92), text_of(8192), text_of(0.5), text_of(True)
    ('0.92', '8192', '0.5', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def written(engine: str, version: str, wants: Iterable[Want | Refusal]) -> tuple[tuple[Written, ...], tuple[str, ...]]:
    """Return the options that the version has, and a sentence for each that it has not.

    >>> _, said = written("vllm", "0.7.3", [Want(flag="--data-parallel-size", value=2, why="two ranks")])
    >>> said[0]
    '--data-parallel-size 2 is left out: vllm 0.7.3 does not have it (it came with 0.8.3)'
    """
    at = version_of(engine, version)
    kept: list[Written] = []
    said: list[str] = []
    for want in wants:
        if isinstance(want, Refusal):
            said.append(want.text)
            continue
        absent = why_absent(engine, want.flag, at)
        flag = FLAGS[engine][want.flag]
        if absent:
            shown = want.flag if want.value is None else f"{want.flag} {text_of(want.value)}"
            said.append(f"{shown} is left out: {engine} {version} does not have it ({absent})")
            continue
        kept.append(
            Written(
                flag=want.flag,
                value=want.value,
                why=want.why,
                meaning=flag.meaning,
                source=flag.source,
                place=flag.place,
                keyword=flag.keyword,
            )
        )
    return tuple(kept), tuple(said)
