"""Teach it my hardware: the few factors that somebody's own measurements determine, as an overlay to keep."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.answer import Answer, distinct
from infcalc.api.calibrating_bands import LEAST_OF_A_BAND, bands_of_residuals
from infcalc.api.calibrating_runs import BenchmarkSubject, EntrySubject, refusal, told
from infcalc.api.deployment import Ask, check_numbers, load
from infcalc.api.offer import Offer
from infcalc.api.recorded import FULL, checked, measurement
from infcalc.errors import FileProblem, InfcalcError, UsageError
from infcalc.evidence.nouns import BenchmarkRun
from infcalc.evidence.reading import KNOWN, format_of, read_evidence
from infcalc.frozen import frozen
from infcalc.spec.efficiency import Calibration, EngineCalibration, MeasuredBand
from infcalc.spec.explain import Input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from infcalc.api.calibrating_runs import Subject
    from infcalc.calibration.nouns import Array, Determination, Knob, Outcome
    from infcalc.catalog.lookup import Catalog
    from infcalc.spec.hardware import Gpu

    Progress = Callable[[int, int], None]

_MACHINE = (("bandwidth", 0.15), ("compute", 0.3), ("link", 0.5), ("message", 0.5))
_ENGINE = (("step", 1.0), ("front_end", 1.0))
"""Factors, and how far from 1 each is believed to be: the deviation of its logarithm.

Kernels of one part differ little from machine to machine; what a host, its engine and its links add differs by times.
"""
_DIGITS = 4
_MOST_RUNS = 2000


@frozen
class Error:
    """The error of predictions: of what, of how many figures, and its median."""

    median_abs_error_fraction: float
    quantity: str = "all"
    num_figures: int = 0


@frozen
class FittedFactor:
    """A factor of the overlay: what it scales, its value, and why it is, or is not, determined."""

    factor: str
    """``bandwidth``, ``compute``, ``link``: of what is reached; ``message``, ``step``, ``front_end``: times as long."""
    engine: str
    value: float
    low: float
    high: float
    determined: bool
    """Whether it is fitted, and the runs tell it from all others."""
    why: str
    fitted: bool = False
    partner: str = ""
    """The fitted factor that it is most correlated with; empty where none is."""
    correlation: float = 0.0
    """Of what is known of both after the runs: near -1 or 1 they tell one combination of them."""


@frozen
class CalibrateResult:
    """A calibration of one accelerator, with its errors on runs that were held out."""

    verdict: str
    gpu: str
    engines: tuple[str, ...]
    kept_prior: bool
    """Whether the overlay changes nothing, for a fit would not be better."""
    why: str
    num_runs: int
    num_figures: int
    num_folds: int
    held_out: str
    """What was left out at a time: ``run`` or ``file``."""
    before: Error
    after: Error
    quantities_before: tuple[Error, ...]
    quantities_after: tuple[Error, ...]
    factors: tuple[FittedFactor, ...]
    trades: tuple[str, ...]
    """Factors that are hardly told apart, and which other values of them would fit nearly as well."""
    bands: tuple[MeasuredBand, ...]
    """How measurements lay about predictions that had not seen them: with the overlay, bands of estimates are these."""
    outliers: tuple[str, ...]
    """Figures that were given less weight."""
    efficiency: Mapping[str, Any]
    """The overlay, as a catalog file has it."""


def calibrate(
    paths: Sequence[str],
    ask: Ask | None = None,
    given: Offer | None = None,
    *,
    form: str | None = None,
    today: str = "",
    progress: Progress | None = None,
) -> Answer[CalibrateResult]:
    """Return the factors that measured runs determine, with errors on held-out runs before and after.

    ``paths`` are results of benchmarks, as :func:`infcalc.api.comparing.compare` reads them, or files of measured runs,
    as :func:`infcalc.api.validating_serving.validate_serving` does. What they do not state comes from ``ask`` and
    ``given``. One result for each accelerator; a factor that the catalog has already is refined.

    Raises:
        FileProblem: a file cannot be read, or none of its runs can be used.
        InfcalcError: what runs name is not known.

    """
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    ask, offer = ask or Ask(), given or Offer()
    check_numbers(ask)
    if not paths:
        raise UsageError("no file", place="FILES", hint="name results of benchmarks of one machine")
    catalog = load(ask)
    reader = _Reader(ask, offer, catalog, form)
    for number, path in enumerate(paths):
        place = "standard input" if path == "-" else path
        reader.read(files.read_log_text(path), place, f"{number}")
    if not reader.subjects:
        raise reader.nothing(paths)
    by_gpu: dict[str, list[tuple[Subject, str]]] = {}
    for subject, group in reader.subjects:
        by_gpu.setdefault(subject.deployment.gpu.name, []).append((subject, group))
    source = f"infcalc calibrate: {len(reader.subjects)} runs of {len(paths)} {'file' if len(paths) == 1 else 'files'}"
    results = tuple(_fitted(members, source, today, progress) for members in by_gpu.values())
    return Answer(
        command="calibrate",
        results=results,
        inputs=(Input(name="files", value=tuple(paths), origin="given"),),
        assumptions=(
            (
                "errors are of predictions, relative to what was measured; those before and after are of the same "
                "runs, each predicted by a fit that has not seen it"
            ),
            (
                "a factor is fitted where the runs, were all others known, leave at most half of the doubt about it; "
                "what was believed before (a lognormal about 1) divides between factors that act alike; figures far "
                "from all others count less (Huber's loss)"
            ),
            (
                f"bands of a model under an engine are those of its own held-out figures from {LEAST_OF_A_BAND} on "
                "(eight of ten of the next ones lie within, if they are like these); with fewer its class's stay"
            ),
        ),
        warnings=distinct(
            [
                *reader.warnings,
                *_contradictions(reader.subjects),
                *(talk for result in results for talk in _talk(result)),
            ]
        ),
    )


def overlay_of(answer: Answer[CalibrateResult]) -> dict[str, Any]:
    """Return the overlay of all accelerators of an answer."""
    gpus: dict[str, Any] = {}
    for result in answer.results:
        gpus.update(result.efficiency.get("gpus", {}))
    return {"gpus": gpus} if gpus else {}


# Files -> subjects ---------------------------------------------------------------------------------------------------


class _Reader:
    """Reads files into subjects; what cannot be used is told, with the reason."""

    def __init__(self, ask: Ask, given: Offer, catalog: Catalog, form: str | None) -> None:
        self._ask, self._given, self._catalog, self._form = ask, given, catalog, form
        self._sites: dict[Any, Any] = {}
        self._known: dict[Any, Any] = {}
        self.subjects: list[tuple[Subject, str]] = []
        self.warnings: list[str] = []
        self._problems: list[InfcalcError] = []
        self._seen: set[str] = set()

    def read(self, text: str, place: str, group: str) -> None:
        """Read one file."""
        if self._form is None and _is_of_runs(text):
            self._entries(text, place, group)
            return
        for one in read_evidence(text, place, format_of(self._form)):
            if not isinstance(one, BenchmarkRun):
                self._leave(
                    FileProblem(
                        "metrics and interval lines do not say which load they are of",
                        place=one.place,
                        hint="calibrate on results of a benchmark; infcalc compare reads these",
                    )
                )
                continue
            problem = refusal(one)
            if problem is not None:
                self._leave(problem)
                continue
            self._add(lambda run=one: BenchmarkSubject(run, self._ask, self._given, self._catalog, self._sites), group)  # type: ignore[misc]

    def _entries(self, text: str, place: str, group: str) -> None:
        from infcalc import files  # noqa: PLC0415 - only for such files

        entries, rejected = checked(
            files.parse_yaml(text, place),
            place,
            entry=measurement,
            what="measured runs",
            hint="a list of entries with id, engine, model, gpu, parallel, workload, measured and quality",
            every_quality=True,
        )
        self.warnings += [f"left out: {told(one.problem)}" for one in rejected]
        for entry in entries:
            name = f"{place}, {entry.get('id') or 'an entry'}"
            if entry.get("quality") != FULL:
                self._leave(FileProblem("it is not of quality full", place=name))
                continue
            self._add(lambda one=entry, at=name: EntrySubject(one, self._catalog, self._known, at), group)  # type: ignore[misc]

    def _add(self, make: Callable[[], BenchmarkSubject | EntrySubject], group: str) -> None:
        try:
            made = make()
        except InfcalcError as problem:
            self._leave(problem)
            return
        self.warnings += made.warnings
        if not made.figures:
            self._leave(FileProblem("it states nothing that is predicted", place=made.place))
            return
        if made.content in self._seen:
            self._leave(FileProblem("it is a copy of a run that was read before", place=made.place))
            return
        self._seen.add(made.content)
        self.subjects.append((made, group))
        if len(self.subjects) > _MOST_RUNS:
            raise UsageError(f"more than {_MOST_RUNS:,} runs", place="FILES", hint="a few dozen tell as much")

    def _leave(self, problem: InfcalcError) -> None:
        self._problems.append(problem)
        self.warnings.append(f"left out: {told(problem)}")

    def nothing(self, paths: Sequence[str]) -> InfcalcError:
        """Return the error where no run can be used: the first problem."""
        if self._problems:
            return self._problems[0]
        return FileProblem("there is no run in it", place=paths[0], hint=f"results that are read: {KNOWN}")


def _is_of_runs(text: str) -> bool:
    """Return whether a text is a YAML list of measured runs, which no benchmark writes."""
    head = text.lstrip("\ufeff \n")
    return head.startswith(("- id:", "- {id:", "#")) and "workload:" in text and "measured:" in text


# Subjects -> calibration ---------------------------------------------------------------------------------------------


def _fitted(
    members: Sequence[tuple[Subject, str]], source: str, today: str, progress: Progress | None
) -> CalibrateResult:
    from infcalc.calibration.calibration import calibrate as fit  # noqa: PLC0415 - numpy
    from infcalc.calibration.nouns import Knob, Observed  # noqa: PLC0415

    subjects = [subject for subject, _ in members]
    gpu = subjects[0].deployment.gpu
    engines = tuple(dict.fromkeys(subject.paced for subject in subjects))
    knobs = (
        *(Knob(name=name, log_deviation=spread) for name, spread in _MACHINE),
        *(Knob(name=name, engine=engine, log_deviation=spread) for engine in engines for name, spread in _ENGINE),
    )
    observed = tuple(
        Observed(
            run=number,
            group=group,
            quantity=figure.quantity,
            measured=figure.measured,
            load=subject.load,
            waits=figure.quantity == "ttft_s",
        )
        for number, (subject, group) in enumerate(members)
        for figure in subject.figures
    )
    outcome = fit(_Predicted(subjects, knobs), observed, knobs, _told_of(progress, len(knobs)))
    bands = () if outcome.kept_prior else bands_of_residuals(subjects, outcome.held_out_error_fraction)
    figures = [
        f"{subject.place}: {figure.quantity} {figure.measured:.4g}"
        for subject in subjects
        for figure in subject.figures
    ]
    calibration = _laid_over(gpu.calibration, _calibration(knobs, outcome.factors), source, today)
    kept = () if gpu.calibration is None else gpu.calibration.bands
    same = {(one.of, one.model, one.engine) for one in bands}
    others = tuple(one for one in kept if (one.of, one.model, one.engine) not in same)
    calibration = replace(calibration, bands=(*bands, *others))
    return _result(gpu, engines, outcome, calibration, tuple(figures[index] for index in outcome.outliers))


class _Predicted:
    """Logarithms of what all runs' figures are predicted to be, by the logarithms of the factors."""

    def __init__(self, subjects: Sequence[Subject], knobs: tuple[Knob, ...]) -> None:
        self._subjects, self._knobs = subjects, knobs
        self._of = [(number, index) for number, one in enumerate(subjects) for index in range(len(one.figures))]

    def __call__(self, knobs: Sequence[float], figures: Sequence[int] | None = None) -> Array:
        import numpy as np  # noqa: PLC0415 - heavy

        tried = _calibration(self._knobs, [float(np.exp(value)) for value in knobs])
        wanted = self._of if figures is None else [self._of[index] for index in figures]
        made: dict[int, tuple[float, ...]] = {}
        for number, _ in wanted:
            if number not in made:
                made[number] = self._subjects[number].predict(tried)
        values = np.array([made[number][index] for number, index in wanted])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(values > 0, np.log(values), np.nan))


def _told_of(progress: Progress | None, num_knobs: int) -> Callable[[], None]:
    done, total = 0, 2 * num_knobs

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(done, total), total)

    return tell


def _calibration(knobs: Sequence[Knob], factors: Sequence[float]) -> Calibration:
    of_machine = {knob.name: factor for knob, factor in zip(knobs, factors, strict=True) if not knob.engine}
    engines = tuple(dict.fromkeys(knob.engine for knob in knobs if knob.engine))
    of_engine = {(knob.engine, knob.name): factor for knob, factor in zip(knobs, factors, strict=True)}
    return Calibration(
        bandwidth_factor=of_machine["bandwidth"],
        compute_factor=of_machine["compute"],
        link_factor=of_machine["link"],
        message_factor=of_machine["message"],
        engines=tuple(
            EngineCalibration(
                engine=engine,
                step_factor=of_engine[engine, "step"],
                front_end_factor=of_engine[engine, "front_end"],
            )
            for engine in engines
        ),
    )


def _laid_over(known: Calibration | None, found: Calibration, source: str, today: str) -> Calibration:
    """Return what was found times what the catalog had already, rounded as it is written."""
    known = known or Calibration()
    names = dict.fromkeys(one.engine for one in (*known.engines, *found.engines))
    pairs = [(known.of_engine(name), found.of_engine(name)) for name in names]
    return Calibration(
        bandwidth_factor=_written(known.bandwidth_factor * found.bandwidth_factor),
        compute_factor=_written(known.compute_factor * found.compute_factor),
        link_factor=_written(known.link_factor * found.link_factor),
        message_factor=_written(known.message_factor * found.message_factor),
        engines=tuple(
            replace(
                old,
                step_factor=_written(old.step_factor * new.step_factor),
                front_end_factor=_written(old.front_end_factor * new.front_end_factor),
            )
            for old, new in pairs
        ),
        source=source,
        date=today,
    )


def _written(factor: float) -> float:
    return float(f"{factor:.{_DIGITS}g}")


# Calibration -> result -----------------------------------------------------------------------------------------------


def _result(
    gpu: Gpu, engines: tuple[str, ...], outcome: Outcome, calibration: Calibration, outliers: tuple[str, ...]
) -> CalibrateResult:
    from infcalc.catalog.efficiency import calibration_mapping  # noqa: PLC0415 - only here

    overlay = {} if outcome.kept_prior else {"gpus": {gpu.name: {"calibration": calibration_mapping(calibration)}}}
    return CalibrateResult(
        verdict=_verdict(gpu, outcome),
        gpu=gpu.name,
        engines=engines,
        kept_prior=outcome.kept_prior,
        why=outcome.why,
        num_runs=outcome.num_runs,
        num_figures=outcome.num_figures,
        num_folds=outcome.num_folds,
        held_out=outcome.held_out,
        before=Error(median_abs_error_fraction=outcome.before_median_fraction, num_figures=outcome.num_figures),
        after=Error(median_abs_error_fraction=outcome.after_median_fraction, num_figures=outcome.num_figures),
        quantities_before=tuple(
            Error(
                quantity=one.quantity,
                num_figures=one.num_figures,
                median_abs_error_fraction=one.before_median_fraction,
            )
            for one in outcome.quantities
        ),
        quantities_after=tuple(
            Error(
                quantity=one.quantity,
                num_figures=one.num_figures,
                median_abs_error_fraction=one.after_median_fraction,
            )
            for one in outcome.quantities
        ),
        factors=tuple(_factor(one) for one in outcome.determinations),
        trades=_trades(outcome),
        bands=() if outcome.kept_prior else calibration.bands,
        outliers=outliers,
        efficiency=overlay,
    )


def _factor(one: Determination) -> FittedFactor:
    return FittedFactor(
        factor=one.knob.name,
        engine=one.knob.engine,
        value=one.factor,
        low=one.factor_low,
        high=one.factor_high,
        determined=one.determined,
        why=one.why,
        fitted=one.fitted,
        partner=one.partner,
        correlation=one.correlation,
    )


def _trades(outcome: Outcome) -> tuple[str, ...]:
    """Return each pair that is hardly told apart once, of its less determined side."""
    found: dict[frozenset[str], str] = {}
    for one in outcome.determinations:
        if one.trade:
            found.setdefault(frozenset((label_of(one), one.partner)), one.trade)
    return tuple(found.values())


def label_of(one: Determination) -> str:
    """Return how a factor is called beside others."""
    from infcalc.calibration.nouns import label  # noqa: PLC0415 - numpy

    return label(one.knob)


def _verdict(gpu: Gpu, outcome: Outcome) -> str:
    runs = "1 run" if outcome.num_runs == 1 else f"{outcome.num_runs} runs"
    if outcome.kept_prior:
        return f"{gpu.name}: nothing is changed ({runs}): {outcome.why}"
    fitted = [one.knob.name.replace("_", " ") for one in outcome.determinations if one.fitted]
    return (
        f"{gpu.name}: {', '.join(fitted)} fitted to {runs}; the median error on held-out runs falls from "
        f"{outcome.before_median_fraction:.1%} to {outcome.after_median_fraction:.1%}"
    )


def _contradictions(subjects: Sequence[tuple[Subject, str]]) -> list[str]:
    """Return a warning for each load of which two runs measured what no repeated run differs by."""
    found: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
    for subject, _ in subjects:
        for figure in subject.figures:
            key = (subject.load, figure.quantity, figure.statistic)
            found.setdefault(key, []).append((figure.measured, subject.place))
    talk: dict[tuple[str, str], str] = {}
    for (_, quantity, _), values in found.items():
        (least, one), (most, other) = min(values), max(values)
        if most > _APART * least:
            text = f"{one} and {other} are of the same load, and their {quantity} differs {most / least:.2g} times"
            talk.setdefault((one, other), f"{text}: are they of one machine in one state?")
    return list(talk.values())


_APART = 1.3
"""Repeated runs of a server differ by less; first tokens too, where nothing waits."""


def _talk(result: CalibrateResult) -> list[str]:
    talk = []
    if result.outliers:
        listed = "; ".join(result.outliers[:5]) + ("; ..." if len(result.outliers) > 5 else "")  # noqa: PLR2004
        talk.append(f"{len(result.outliers)} figures lie far from where the others put them and count less: {listed}")
    return talk
