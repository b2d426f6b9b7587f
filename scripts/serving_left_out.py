"""Fit the overheads of engines without one source at a time, and write how far each is then off.

The overheads and front ends of infcalc/engines/pace.py were set by hand from published runs. How much of the errors on
those runs is owed to that shows where one factor on each of them, by era of the engine, is fitted anew: to all sources
(in-sample), and to all but the one that is then judged (left out). Kernels and collectives are fitted to measurements
of their own, never to these runs. Bursts are judged but not fitted to: what bounds them is the client.

Writes tests/published/serving_left_out.yaml, which docs/serving_accuracy.md shows.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from serving_bands import RUNS

from infcalc import files
from infcalc.api.bands import Kind
from infcalc.api.validating_serving import QUANTITIES, validated_serving

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from infcalc.api.validating_serving import ServingCase
    from infcalc.engines.pace import Pace

OUT = RUNS.with_name("serving_left_out.yaml")
FITTED = {
    "per_layer_s": "between the kernels of a layer",
    "per_step_s": "per step",
    "per_sequence_s": "per running sequence and step",
    "request_s": "front end, per request",
    "token_s": "front end, per streamed token",
    "latency_s": "front end, on the way",
}
"""What is scaled: fields of :class:`infcalc.engines.pace.Pace`, with what each stands for."""
_PRICED = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Factors that runs are predicted with; between them the effect on the logarithm of a prediction is interpolated."""
_FACTORS = tuple(2.0 ** (step / 4) for step in range(-8, 9))
_ROUNDS = 6
_MOST_LOG = math.log(3)
"""Beyond a factor of three an error says nothing of overheads: it counts as three."""
_RELUCTANCE = 0.001
"""What an e-fold of a factor must gain in mean error, so that it stays where the runs do not speak at all."""
_HEAD = """# Written by scripts/serving_left_out.py: median absolute errors of the published runs with the overheads of
# engines as shipped, with a factor on each that was fitted to all sources, and with factors fitted to all but the
# judged one.

"""

Factors = dict[tuple[str, str], float]
"""By era and field."""


def adjusted(factors: Mapping[str, float]) -> Callable[[Pace], Pace]:
    """Return the pace with its fields scaled."""
    return lambda pace: replace(pace, **{name: getattr(pace, name) * factor for name, factor in factors.items()})


def era_of(case: ServingCase) -> str:
    """Return the era of a case's engine."""
    return case.band_class.rpartition(", ")[2]


class Runs:
    """The published runs, predicted with each overhead scaled in turn."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self.catalog = files.load_catalog()
        self.entries = entries
        base = validated_serving(entries, self.catalog).cases
        kept = [number for number, case in enumerate(base) if case.predicted and case.measured]
        self.cases = [base[number] for number in kept]
        self.eras = np.array([era_of(case) for case in self.cases])
        self.sources = np.array([case.group for case in self.cases])
        self.speak = np.array([case.kind != Kind.BURST for case in self.cases])
        self.logs = self._logs(base, kept)
        # One overhead at a time: their effects on the logarithm of a prediction are taken as independent in the fit.
        # What the fitted overheads give together is then predicted, not added up.
        self.shifts = {name: self._shifts(name, kept) for name in FITTED}

    def _shifts(self, name: str, kept: Sequence[int]) -> NDArray[np.float64]:
        priced = np.array([self._shifted(name, factor, kept) for factor in _PRICED])
        places = np.log(_PRICED)
        return np.array([[np.interp(math.log(factor), places, one) for one in priced.T] for factor in _FACTORS])

    def _shifted(self, name: str, factor: float, kept: Sequence[int]) -> NDArray[np.float64]:
        if factor == 1:
            return np.zeros(len(kept))
        cases = validated_serving(self.entries, self.catalog, adjusted({name: factor})).cases
        return self._logs(cases, kept) - self.logs

    @staticmethod
    def _logs(cases: Sequence[ServingCase], kept: Sequence[int]) -> NDArray[np.float64]:
        return np.array([math.log((cases[one].predicted or 0.0) / (cases[one].measured or 1.0)) for one in kept])

    def fitted(self, left_out: str | None) -> Factors:
        """Return the factors that fit all sources but one best, each source weighing as the root of its figures."""
        found: Factors = {}
        for era in sorted(set(self.eras.tolist())):
            mine = self.speak & (self.eras == era) & (self.sources != left_out)
            counts = {source: int((self.sources[mine] == source).sum()) for source in set(self.sources[mine].tolist())}
            weights = np.array([1 / math.sqrt(counts[source]) for source in self.sources[mine].tolist()])
            chosen = dict.fromkeys(FITTED, _FACTORS.index(1.0))
            for _ in range(_ROUNDS):
                for name in FITTED:
                    others = self.logs[mine] + sum(
                        self.shifts[other][place][mine] for other, place in chosen.items() if other != name
                    )
                    losses = [
                        float(np.average(np.minimum(np.abs(others + shift[mine]), _MOST_LOG), weights=weights))
                        + _RELUCTANCE * abs(math.log(factor))
                        for factor, shift in zip(_FACTORS, self.shifts[name], strict=True)
                    ]
                    chosen[name] = losses.index(min(losses))
            found |= {(era, name): _FACTORS[place] for name, place in chosen.items()}
        return found

    def errors(self, factors: Factors, source: str | None = None) -> dict[tuple[str, str], float]:
        """Return the errors by id and quantity with such factors, of one source or of all."""
        eras = {case.id: era_of(case) for case in self.cases}
        found: dict[tuple[str, str], float] = {}
        for era in sorted(set(eras.values())):
            entries = [
                entry
                for entry in self.entries
                if eras.get(entry["id"]) == era and (source is None or entry["group"] == source)
            ]
            scaled = {name: factors[era, name] for name in FITTED}
            for case in validated_serving(entries, self.catalog, adjusted(scaled)).cases:
                if case.error_fraction is not None:
                    found[case.id, case.quantity] = abs(case.error_fraction)
        return found


def main() -> None:
    """Fit, and write the table."""
    entries = files.read_yaml(str(RUNS))
    if not isinstance(entries, list):
        raise TypeError(RUNS)
    runs = Runs(entries)
    every = runs.fitted(None)
    shipped = {(case.id, case.quantity): abs(case.error_fraction or 0.0) for case in runs.cases}
    in_sample = runs.errors(every)
    without: dict[str, Factors] = {}
    left_out: dict[tuple[str, str], float] = {}
    for source in sorted({case.group for case in runs.cases}):
        without[source] = runs.fitted(source)
        left_out |= runs.errors(without[source], source)

    def row(members: Sequence[ServingCase]) -> dict[str, Any]:
        keys = [(case.id, case.quantity) for case in members]
        return {"figures": len(keys)} | {
            name: round(statistics.median(errors[key] for key in keys), 4)
            for name, errors in (("shipped", shipped), ("in_sample", in_sample), ("left_out", left_out))
        }

    kinds = sorted({case.kind for case in runs.cases})
    found: dict[str, Any] = {
        "factors": [
            {
                "era": era,
                "overhead": FITTED[name],
                "all": round(factor, 2),
                "least": round(min(one[era, name] for one in without.values()), 2),
                "most": round(max(one[era, name] for one in without.values()), 2),
            }
            for (era, name), factor in every.items()
        ],
        "classes": [
            {"class": kind, "quantity": quantity, **row(members)}
            for quantity in QUANTITIES
            for kind in kinds
            if (members := [case for case in runs.cases if (case.kind, case.quantity) == (kind, quantity)])
        ],
        "sources": [
            {"source": source, "quantity": quantity, **row(members)}
            for source in sorted(without)
            for quantity in QUANTITIES
            if (members := [case for case in runs.cases if (case.group, case.quantity) == (source, quantity)])
        ],
    }
    text = yaml.safe_dump(found, sort_keys=False, default_flow_style=None, width=200)
    OUT.write_text(_HEAD + text, encoding="utf-8")


if __name__ == "__main__":
    main()
