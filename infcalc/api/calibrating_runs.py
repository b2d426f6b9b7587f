"""Measured runs as a calibration takes them: their figures, and what any choice of factors predicts of them.

Benchmarks are read as ``compare`` reads them, entries of a file of measured runs as ``validate serving`` does; both are
predicted on machines that are made once, and whose clock and pace are made anew for every choice of factors.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from infcalc.api.bands import table_of
from infcalc.api.judging import Verdict
from infcalc.api.measured_ask import settled
from infcalc.api.measured_comparing import compared_run
from infcalc.api.measured_figures import slowest
from infcalc.api.measured_load import load_of_run
from infcalc.api.recorded_runs import machine_of as recorded_machine
from infcalc.api.recorded_runs import predict_on
from infcalc.api.servers import clock_of
from infcalc.api.speed import machine_of, result_on
from infcalc.api.validating_serving import comes_at_rate
from infcalc.api.validating_serving import measured as recorded_figures
from infcalc.api.validating_serving import predicted as recorded_prediction
from infcalc.catalog.efficiency import BANDED
from infcalc.engines.pace import stretched
from infcalc.errors import FileProblem, InfcalcError
from infcalc.evidence.nouns import MEAN, MEDIAN, BenchmarkRun, Quantity
from infcalc.frozen import frozen
from infcalc.spec.efficiency import calibrated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.api.deployment import Ask, Deployment
    from infcalc.api.measured_load import Loaded
    from infcalc.api.offer import Offer
    from infcalc.api.recorded_runs import Machine as RecordedMachine
    from infcalc.api.speed import Machine
    from infcalc.catalog.lookup import Catalog
    from infcalc.spec.efficiency import Calibration

_FITTED = (Quantity.TPOT, Quantity.TTFT, Quantity.OUTPUT_PER_S, Quantity.INPUT_PER_S)
"""What is fitted of a benchmark. A whole request is its first token and the others, and would count both twice."""
_FITTED_OF_ENTRIES = ("tpot_s", "ttft_s", "output_tokens_per_s", "e2e_s")
_SUSPECT = "one is wrong"
"""How a reader warns that two figures of a run contradict each other."""
_LEAST = 1e-12
_DRAFTS = "it drafts, and what drafting gains is not of the machine"


@frozen
class Figured:
    """A figure of a run: what was measured, in which statistic."""

    quantity: str
    statistic: str
    measured: float
    table: str = ""
    """The band that it is of; empty where it is of a burst, or of what estimates have no band of."""


class Subject(Protocol):
    """A run that is predicted under any calibration."""

    place: str
    figures: tuple[Figured, ...]
    warnings: list[str]
    load: str
    """What ran under what load, as a text that is the same for the same."""
    content: str
    """All that the run states: a copy of it has the same."""

    @property
    def deployment(self) -> Deployment:
        """What ran."""

    @property
    def paced(self) -> str:
        """The engine whose pace it has."""

    def predict(self, tried: Calibration) -> tuple[float, ...]:
        """Return what is predicted of each figure; not a number where nothing is."""


class BenchmarkSubject:
    """A run of a benchmark."""

    def __init__(self, run: BenchmarkRun, ask: Ask, given: Offer, catalog: Catalog, sites: dict[Any, Any]) -> None:
        self.place = run.place
        self.warnings: list[str] = []
        compared = compared_run(run, ask, given, catalog)
        self._loaded: Loaded = load_of_run(run, given)
        self._machine = _shared_machine(run, ask, catalog, sites)
        self._cache: dict[Calibration, Machine] = sites.setdefault(("tried", id(self._machine)), {})
        loads = [replace(one, num_requests=None) for one in self._loaded.offers]
        self.load = f"{id(self._machine)} {loads}"
        self.content = repr(replace(run, place="", warnings=()))
        made = slowest(self._machine.site, self._loaded, lambda asked: result_on(self._machine, asked))
        at_rate = None if made.run is None or made.run.burst else made.run.at_rate
        self.figures = tuple(
            replace(one, table=_table(one.quantity, at_rate=at_rate))
            for one in self._figures(run, compared.result.lines)
        )

    @property
    def deployment(self) -> Deployment:
        """What ran."""
        return self._machine.deployment

    @property
    def paced(self) -> str:
        """The engine whose pace it has."""
        return self._machine.deployment.rules.engine

    def _figures(self, run: BenchmarkRun, lines: Any) -> list[Figured]:  # noqa: ANN401 - lines of a comparison
        found = []
        for quantity in _FITTED:
            line = next(
                (
                    one
                    for statistic in (MEAN, MEDIAN)
                    for one in lines
                    if one.quantity == quantity and one.statistic == statistic
                ),
                None,
            )
            if line is None or line.measured is None or line.predicted is None or not line.measured > _LEAST:
                continue
            if line.verdict is Verdict.IMPOSSIBLE:
                self.warnings.append(f"{run.place}: {quantity} {line.measured:g} is impossible, and left out")
                continue
            found.append(Figured(quantity=str(quantity), statistic=line.statistic, measured=line.measured))
        return found

    def predict(self, tried: Calibration) -> tuple[float, ...]:
        """Return what is predicted of each figure."""
        machine = self._tried(tried)
        made = slowest(machine.site, self._loaded, lambda asked: result_on(machine, asked))
        figures = [made.figure(Quantity(one.quantity), one.statistic) for one in self.figures]
        return tuple(math.nan if one is None else one.value for one in figures)

    def _tried(self, tried: Calibration) -> Machine:
        found = self._cache.get(tried)
        if found is None:
            machine = self._machine
            site, own = machine.site, tried.of_engine(self.paced)
            steps = stretched(machine.pace.value, step_factor=own.step_factor, front_end_factor=own.front_end_factor)
            efficiency = calibrated(site.catalog.efficiency(machine.deployment.gpu), tried)
            found = replace(
                machine,
                pace=replace(machine.pace, value=steps),
                clock=clock_of(machine.deployment, site.form, steps, efficiency),
            )
            self._cache.clear()
            self._cache[tried] = found
        return found


def _shared_machine(run: BenchmarkRun, ask: Ask, catalog: Catalog, sites: dict[Any, Any]) -> Machine:
    site = settled(run.settings, ask, catalog, run.place).site
    key = (site.deployment, site.form, site.ask.enforce_eager)
    for known, machine in sites.setdefault("machines", []):
        if known == key:
            found: Machine = machine
            return found
    made = machine_of(site)
    sites["machines"].append((key, made))
    return made


class EntrySubject:
    """An entry of a file of measured runs."""

    def __init__(self, entry: Mapping[str, Any], catalog: Catalog, known: dict[Any, Any], place: str) -> None:
        if entry.get("kind") == "speculative" or (entry.get("flags") or {}).get("spec"):
            raise FileProblem(_DRAFTS, place=place, hint="calibrate on runs of the same server without drafting")
        self.place = place
        self.warnings: list[str] = []
        self._entry, self._known = entry, known
        self._machine: RecordedMachine = recorded_machine(entry, catalog, known, None)
        self._cache: dict[Calibration, RecordedMachine] = known.setdefault(("tried", id(self._machine)), {})
        self.load = f"{id(self._machine)} {entry.get('workload')}"
        self.content = repr({key: value for key, value in entry.items() if key != "id"})
        # Whatever is wrong with it shows here, not in the middle of a fit.
        burst = predict_on(self._machine, entry, known).burst
        at_rate = None if burst else comes_at_rate(entry)
        self.figures = tuple(
            Figured(quantity=quantity, statistic=statistic, measured=value, table=_table(quantity, at_rate=at_rate))
            for quantity, (value, statistic) in recorded_figures(entry).items()
            if quantity in _FITTED_OF_ENTRIES and value > _LEAST
        )

    @property
    def deployment(self) -> Deployment:
        """What ran."""
        return self._machine.deployment

    @property
    def paced(self) -> str:
        """The engine whose pace it has."""
        return self._machine.paced

    def predict(self, tried: Calibration) -> tuple[float, ...]:
        """Return what is predicted of each figure."""
        made = predict_on(self._tried(tried), self._entry, self._known)
        return tuple(recorded_prediction(made, one.quantity, one.statistic) for one in self.figures)

    def _tried(self, tried: Calibration) -> RecordedMachine:
        found = self._cache.get(tried)
        if found is None:
            machine, own = self._machine, tried.of_engine(self.paced)
            steps = stretched(machine.pace, step_factor=own.step_factor, front_end_factor=own.front_end_factor)
            efficiency = calibrated(machine.efficiency, tried)
            found = replace(
                machine,
                pace=steps,
                efficiency=efficiency,
                clock=clock_of(machine.deployment, machine.form, steps, efficiency, machine.paced),
            )
            self._cache.clear()
            self._cache[tried] = found
        return found


def _table(quantity: str, *, at_rate: bool | None) -> str:
    """Return the band that a figure is of; ``at_rate`` is None of a burst, whose figures spread in their own way."""
    if at_rate is None:
        return ""
    name = table_of(quantity, at_rate=at_rate)
    return name if name in BANDED else ""


def refusal(run: BenchmarkRun) -> FileProblem | None:
    """Return why a run is no measurement of the machine, with the mend; None where it is one."""
    if run.num_failed:
        return FileProblem(
            f"{run.num_failed:,} of its requests failed",
            place=run.place,
            hint="mend what fails, and measure it again: requests that end early make a server look fast",
        )
    wrong = next((text for text in run.warnings if _SUSPECT in text), None)
    if wrong is not None:
        return FileProblem(wrong, place=run.place, hint="measure it again, or leave the file out")
    rounds = (one.value for one in run.measured if one.quantity is Quantity.TOKENS_PER_ROUND)
    if any(value > 1 for value in rounds):
        return FileProblem(_DRAFTS, place=run.place, hint="calibrate on runs of the same server without drafting")
    return None


def told(problem: InfcalcError) -> str:
    """Return an error as one line."""
    head = f"{problem.place}: {problem.message}" if problem.place else problem.message
    return f"{head} ({problem.hint})" if problem.hint else head
