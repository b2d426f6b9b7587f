"""A run while it is read: figures, settings, what was converted and what is missing; then checked as a whole."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from infcalc.evidence.nouns import MEAN, MEDIAN, TIMES, BenchmarkRun, Format, Measured, Quantity, Stated, StatedLoad

if TYPE_CHECKING:
    from infcalc.evidence.fields import Fields

_SLACK = 0.02
"""Rates are printed in three digits or so, and the clock of a rate may run on a little."""
_PERCENTILE = re.compile(r"p(?P<number>[0-9]{1,2}(?:\.[0-9]+)?|100)")
_NEEDED = (Quantity.OUTPUT_PER_S, Quantity.TTFT, Quantity.TPOT)
MS = 1e-3


def statistic_of(word: str) -> str:
    """Return a statistic by the name it has here.

    >>> [statistic_of(word) for word in ("avg", "p50", "p100", "P99", "p05", "p001", "p999", "std_dev")]
    ['mean', 'median', 'max', 'p99', 'p5', 'p0.1', 'p99.9', 'std']
    """
    name = word.strip().lower()
    match = re.fullmatch(r"p0([1-9])", name)
    if match:
        name = f"p{match[1]}"
    names = {
        "p001": "p0.1",
        "avg": MEAN,
        "average": MEAN,
        "p50": MEDIAN,
        "p100": "max",
        "p999": "p99.9",
        "stddev": "std",
        "std_dev": "std",
        "minimum": "min",
        "maximum": "max",
    }
    return names.get(name, name)


def is_statistic(word: str) -> bool:
    """Return whether a word names a statistic."""
    name = statistic_of(word)
    return name in {MEAN, MEDIAN, "min", "max", "std"} or _PERCENTILE.fullmatch(name) is not None


class Gathering:
    """What is found of one run."""

    def __init__(self, form: Format, place: str) -> None:
        self._form, self._place = form, place
        self._measured: dict[tuple[Quantity, str], Measured] = {}
        self._settings: dict[str, Stated] = {}
        self.missing: list[str] = []
        self.conversions: list[str] = []
        self.warnings: list[str] = []

    def add(self, quantity: Quantity, statistic: str, value: float | None, key: str, said: str = "") -> None:
        """Note a figure; the first of its kind counts."""
        if value is None:
            return
        found = Measured(quantity=quantity, statistic=statistic, value=value, key=key, said=said)
        self._measured.setdefault((quantity, statistic), found)

    def drop(self, quantity: Quantity) -> None:
        """Take all figures of a quantity back."""
        self._measured = {key: value for key, value in self._measured.items() if key[0] is not quantity}

    def value(self, quantity: Quantity, statistic: str = MEAN) -> float | None:
        """Return a figure that was noted."""
        found = self._measured.get((quantity, statistic))
        return None if found is None else found.value

    def state(self, name: str, value: str | float | None, key: str) -> None:
        """Note a setting, where it is one."""
        if value is not None and value != "":
            self._settings.setdefault(name, Stated(name=name, value=value, key=key))

    def stated(self, name: str) -> str:
        """Return a setting as a text; empty where it was not noted."""
        found = self._settings.get(name)
        return "" if found is None else str(found.value)

    def times(self, part: Fields, quantity: Quantity, unit_s: float) -> None:
        """Note all statistics of a mapping from statistic to time."""
        for key in part.names():
            if is_statistic(key):
                self.add(quantity, statistic_of(key), part.time_s(key, unit_s), part.named(key))

    def convert(self, text: str) -> None:
        """Note what was converted."""
        if text not in self.conversions:
            self.conversions.append(text)

    def run(
        self,
        load: StatedLoad,
        fields: Fields,
        *,
        num_completed: int | None = None,
        num_failed: int | None = None,
        duration_s: float | None = None,
        needed: tuple[Quantity, ...] = _NEEDED,
    ) -> BenchmarkRun:
        """Return the run, with what is missing of it and what in it does not agree."""
        known = {quantity for quantity, _ in self._measured}
        missing = [str(quantity) for quantity in needed if quantity not in known]
        absent = [name for name in ("model", "engine", "gpu") if name not in self._settings]
        self._check_rates(load, num_completed, duration_s)
        self._check_times(load)
        if num_failed:
            self.warnings.append(
                f"{num_failed:,} request{'' if num_failed == 1 else 's'} failed: the figures are of the others"
            )
        unsaid = [f"{name} (no number)" for name in fields.nothing]
        return BenchmarkRun(
            form=self._form,
            place=self._place,
            load=load,
            settings=tuple(self._settings.values()),
            measured=tuple(self._measured.values()),
            num_completed=num_completed,
            num_failed=num_failed,
            duration_s=duration_s,
            missing=(*absent, *missing, *self.missing, *unsaid),
            conversions=tuple(self.conversions),
            warnings=tuple(self.warnings),
        )

    def _check_rates(self, load: StatedLoad, num_completed: int | None, duration_s: float | None) -> None:
        """Say where a rate is not what its own run makes of it."""
        if not duration_s or not num_completed:
            return
        expected = [(Quantity.REQUESTS_PER_S, num_completed / duration_s, "requests / duration")]
        if load.output_tokens is not None:
            tokens = num_completed * load.output_tokens / duration_s
            expected.append((Quantity.OUTPUT_PER_S, tokens, "output tokens / duration"))
            if load.input_tokens is not None:
                tokens += num_completed * load.input_tokens / duration_s
                expected.append((Quantity.TOTAL_PER_S, tokens, "all tokens / duration"))
        for quantity, value, name in expected:
            stated = self.value(quantity)
            if stated is not None and abs(stated - value) > _SLACK * value:
                self.warnings.append(f"{quantity} is stated as {stated:,.6g}, and {name} is {value:,.6g}: one is wrong")

    def _check_times(self, load: StatedLoad) -> None:
        """Say where times contradict one another."""
        for statistic in (MEAN, MEDIAN):
            first, whole = self.value(Quantity.TTFT, statistic), self.value(Quantity.E2E, statistic)
            if first is not None and whole is not None and first > whole * (1 + _SLACK):
                self.warnings.append(f"{statistic} ttft_s {first:.4g} is longer than {statistic} e2e_s {whole:.4g}")
        for quantity in TIMES:
            points = sorted(
                (_percent(statistic), figure.value, statistic)
                for (one, statistic), figure in self._measured.items()
                if one is quantity and _percent(statistic) is not None
            )
            for (_, low, before), (_, high, after) in pairwise(points):
                if high < low * (1 - 1e-9):
                    self.warnings.append(f"{after} of {quantity} is below its {before}: one is wrong")
        if load.output_tokens is not None and load.output_tokens <= 1:
            self.drop(Quantity.TPOT)
            self.drop(Quantity.ITL)


def _percent(statistic: str) -> float | None:
    fixed = {MEDIAN: 50.0, "min": -1.0, "max": 101.0}
    if statistic in fixed:
        return fixed[statistic]
    match = _PERCENTILE.fullmatch(statistic)
    return float(match["number"]) if match else None
