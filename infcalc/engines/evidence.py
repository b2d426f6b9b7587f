"""What a modelled figure rests on, told next to the rule it belongs to and printed in docs/accuracy.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.engines.rules import Since

T = TypeVar("T")
ENOUGH_LOGS = 5
"""From this many on, logs alone carry a rule."""
_LOGS = re.compile(r"(\d+) (?:logs?|of \d+ reports)\b")


@frozen
class Evidence:
    """What one rule rests on: a mechanism that gives its form, code or a document it was read in, logs that show it.

    ``figures`` says in words what was seen; the logs behind it are counted from there. ``about`` names the constants
    and fields it stands for; ``by_hand`` says that judgement gave their size, and a mechanism only why they are.
    """

    rule: str
    figures: str
    mechanism: str = ""
    read_in: str = ""
    about: tuple[str, ...] = ()
    by_hand: bool = False

    @property
    def num_logs(self) -> int:
        """Logs that ``figures`` names.

        >>> Evidence(rule="a", figures="9.56 copies in 13 logs of V0, 3 in 8 logs").num_logs
        21
        """
        return sum(int(number) for number in _LOGS.findall(self.figures))

    @property
    def rests_on(self) -> tuple[str, ...]:
        """What carries the rule, of: mechanism, source, and logs where they are enough by themselves."""
        found = [name for name, text in (("mechanism", self.mechanism), ("source", self.read_in)) if text]
        found += ["size set by hand"] if self.by_hand else []
        return (*found, f"{self.num_logs} logs") if self.num_logs >= ENOUGH_LOGS else tuple(found)


def of_steps(
    rule: str, steps: tuple[Since[T], ...], *, mechanism: str = "", read_in: str = "", about: tuple[str, ...] = ()
) -> tuple[Evidence, ...]:
    """Return the evidence of a rule that changed with the version: one for each step, its figures the step's source."""
    return tuple(
        Evidence(rule=since(rule, step.version), figures=step.source, mechanism=mechanism, read_in=read_in, about=about)
        for step in steps
    )


def since(rule: str, version: tuple[int, ...]) -> str:
    """Return the name of a rule that holds from a version on.

    >>> since("a", (0, 17)), since("a", (0,))
    ('a, from 0.17', 'a')
    """
    return f"{rule}, from {'.'.join(map(str, version))}" if any(version) else rule
