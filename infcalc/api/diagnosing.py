"""Why is my server slow? Rules held against metrics, logs and benchmarks; each finding with what to do and its gain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, check_numbers, load, merged_inputs
from infcalc.api.diagnosing_cases import cases_of, read_texts
from infcalc.api.diagnosing_drafting import drafted_of
from infcalc.api.diagnosing_facts import facts_of
from infcalc.api.diagnosing_findings import finding_of, lacking, looked_at, ranked
from infcalc.api.diagnosing_gains import Pricer
from infcalc.api.diagnosing_model import modelled
from infcalc.api.diagnosing_nouns import Diagnosis, Lacking
from infcalc.api.diagnosing_readings import Sight
from infcalc.api.offer import Offer
from infcalc.api.offering import check_offer
from infcalc.diagnosis import from_benchmark, from_intervals, from_metrics, from_start
from infcalc.diagnosis.evaluating import evaluate
from infcalc.diagnosis.rule import Kind
from infcalc.diagnosis.rules import RULES, UNGRAPHED
from infcalc.diagnosis.signals import Reading, Readings, Signal
from infcalc.errors import InfcalcError, UsageError
from infcalc.evidence.nouns import MEAN, NOW, TOTAL, Quantity
from infcalc.frozen import frozen
from infcalc.spec.explain import Input
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infcalc.api.diagnosing_cases import Case
    from infcalc.api.diagnosing_model import Modelled
    from infcalc.catalog.lookup import Catalog
    from infcalc.evidence.nouns import BenchmarkRun

_MOST_CASES: Final = 1000
_STRONGEST: Final = frozenset({Signal.EAGER, Signal.CONTRADICTIONS, Signal.REFUSALS, Signal.TOKENS_PER_ROUND})
"""Signals that several files may tell: what speaks for the finding counts."""
_WORTH_TELLING: Final = 1.05
"""Gains that a first line tells: less is not worth a restart, and in two digits no gain at all."""
_SAME_RUN: Final = 0.05
_SAME_LENGTH: Final = 0.1
_UNTRUE: Final = ("cannot be", "a negative estimate")
"""In the words of :mod:`infcalc.api.contradictions`: what is false, and does not only mislead."""
_UNITS: Final = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}


@frozen
class _Told:
    """One case's diagnosis with what is said beside it."""

    result: Diagnosis
    inputs: tuple[Input, ...]
    notes: tuple[str, ...]
    talk: tuple[str, ...]


def diagnose(
    paths: str | Sequence[str],
    ask: Ask | None = None,
    given: Offer | None = None,
    *,
    form: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Answer[Diagnosis]:
    """Return what is wrong with the server that files tell of: metrics, logs, benchmarks, or several of them together.

    A single benchmark, server and log are taken to be of one run; several runs, or servers, are diagnosed side by side.
    What files do not state of the deployment comes from ``ask``, and of the load from ``given``; without a deployment
    findings rest on measurements alone, and no gain is priced.

    Raises:
        FileProblem: a file cannot be read, is damaged, or holds nothing that is known.
        UsageError: no file, too many runs, or an option that cannot be.
        UnknownName: an option names what the catalog does not know.

    """
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    names = [paths] if isinstance(paths, str) else list(paths)
    if not names:
        raise UsageError("no file", place="FILE", hint="name metrics, a log or a benchmark, or - for standard input")
    texts = [("standard input" if one == "-" else one, files.read_log_text(one)) for one in names]
    return diagnose_texts(texts, ask, given, form=form, progress=progress)


def diagnose_texts(
    texts: Sequence[tuple[str, str]],
    ask: Ask | None = None,
    given: Offer | None = None,
    *,
    form: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Answer[Diagnosis]:
    """Return the answer of :func:`diagnose` for texts, each with the name that people call it."""
    ask, given = ask or Ask(), given or Offer()
    catalog = load(ask)
    _check(ask, given, catalog)
    cases = cases_of(read_texts(texts, form))
    if len(cases) > _MOST_CASES:
        raise UsageError(f"{len(cases):,} runs", place=texts[0][0], hint=f"at most {_MOST_CASES:,} are told at a time")
    told = []
    for count, case in enumerate(cases):
        if progress is not None:
            progress(count, len(cases))
        told.append(_diagnosed(case, ask, given, catalog, [*_drafting_beside(case, cases), *_uneven(case, cases)]))
    return Answer(
        command="diagnose",
        results=tuple(one.result for one in told),
        inputs=merged_inputs([one.inputs for one in told]),
        assumptions=distinct([note for one in told for note in one.notes]),
        warnings=distinct([talk for one in told for talk in one.talk]),
    )


def _check(ask: Ask, given: Offer, catalog: Catalog) -> None:
    """Refuse what the user says and cannot be, whatever the files say."""
    check_numbers(ask)
    check_offer(given)
    for place, words in (("--model", ask.models), ("--gpu", ask.gpus), ("--kv-dtype", ask.kv_dtypes)):
        if len(words) > 1:
            raise UsageError(
                f"{len(words)} values", place=place, hint="a server is one of them: give the one that runs"
            )
    if ask.models:
        from infcalc.files import load_model  # noqa: PLC0415 - only with a model

        load_model(catalog, ask.models[0])
    if ask.gpus:
        catalog.gpu(ask.gpus[0])


# One case ------------------------------------------------------------------------------------------------------------


def _diagnosed(case: Case, ask: Ask, given: Offer, catalog: Catalog, beside: Sequence[Reading]) -> _Told:
    model = modelled(case, ask, given, catalog)
    words, starts = _of_starts(case, ask)
    measured = Readings.of(_strongest([*beside, *starts, *_measured(case, model)]))
    drafted, undrafted = drafted_of(model, measured.by_signal)
    sight = Sight(case, model, drafted, measured.by_signal)
    readings = Readings.of(_strongest([*measured.by_signal.values(), *sight.readings()]))
    verdicts = evaluate(RULES, readings)
    facts = facts_of(model, sight, drafted, readings, words)
    eager = (readings.value(Signal.EAGER) or 0) > 0 or (readings.value(Signal.UNGRAPHED_SHARE) or 0) >= UNGRAPHED
    pricer = Pricer(model, drafted, eager=eager)
    engine, version = _engine(case, model)
    findings = ranked([finding_of(one, facts, pricer, engine=engine, version=version) for one in verdicts.fired])
    scraped = case.metrics is not None
    once = scraped and not case.windowed
    missing = [lacking(one, scraped=scraped, scraped_once=once) for one in verdicts.unseen]
    missing += [
        Lacking(symptom=_PREDICTED, needs="deployment and load", what="more", how=text)
        for text in (*model.lacking, *((undrafted,) if undrafted else ()))
    ]
    seen = tuple(looked_at(one) for one in verdicts.quiet)
    faults = sum(one.kind in {Kind.MEASUREMENT, Kind.FAULT} for one in findings)
    deployment = None if model.found is None else model.found.deployment
    result = Diagnosis(
        verdict="",
        places=_places(case),
        model="" if deployment is None else deployment.model.name,
        gpu="" if deployment is None else deployment.gpu.name,
        num_gpus=None if deployment is None else deployment.parallelism.num_gpus,
        engine=engine,
        engine_version="" if deployment is None else version,
        load="" if model.loaded is None else model.loaded.text,
        num_findings=faults,
        findings=findings,
        looked_at=seen,
        missing=tuple(missing),
    )
    result = replace(result, verdict=_verdict(result))
    files = Input(name="files", value=tuple(dict.fromkeys(one.place for one in case.sources)), origin="given")
    inputs = () if model.found is None else model.found.inputs
    return _Told(
        result=result,
        inputs=(files, *inputs),
        notes=(*case.notes, *model.notes, *((_NOTE,) if _has_gains(result) else ())),
        talk=(*case.talk, *model.talk, *_warned(case)),
    )


_PREDICTED: Final = "gains and predictions"
_NOTE: Final = (
    "gains are the model's: the same load on the changed deployment against it as it is; low to high is where eight of "
    "ten published pairs of runs lie about such a ratio (what-if)"
)


def _has_gains(result: Diagnosis) -> bool:
    return any(offer.gain is not None for one in result.findings for offer in one.remedies)


def _warned(case: Case) -> tuple[str, ...]:
    found = [*(() if case.run is None else case.run.warnings), *(() if case.metrics is None else case.metrics.warnings)]
    found += [] if case.intervals is None else case.intervals.warnings
    return tuple(found)


def _engine(case: Case, model: Modelled) -> tuple[str, str]:
    """Return the engine by the name its options are known by, and its version: the newest where none is stated."""
    if model.found is not None:
        rules = model.found.deployment.rules
        return rules.engine, rules.version
    names = [log.engine for log, _ in case.starts]
    names += [] if case.metrics is None else [case.metrics.engine]
    names += [] if case.intervals is None else [case.intervals.engine]
    if case.run is not None:
        stated = case.run.setting("engine")
        names += [] if stated is None else [str(stated.value)]
    from infcalc.engines.flags.table import FLAGS  # noqa: PLC0415 - only here

    found = next((name for name in names if name in FLAGS), "")
    stated_version = next((log.version for log, _ in case.starts if log.engine == found and log.version), None)
    return found, stated_version or "999"


def _strongest(readings: Sequence[Reading]) -> list[Reading]:
    """Return readings, of those that several files tell the one that speaks for the finding first."""
    return sorted(readings, key=lambda one: -one.value if one.signal in _STRONGEST else 0.0)


def _measured(case: Case, model: Modelled) -> Iterator[Reading]:
    """Return what the files themselves say, without a prediction."""
    budget = None
    if model.found is not None:
        budget = model.found.deployment.max_num_batched_tokens
    if case.metrics is not None:
        yield from from_metrics.read_signals(case.metrics, case.cites_of_metrics, budget_tokens=budget)
    if case.intervals is not None and case.intervals_source is not None:
        yield from from_intervals.read_signals(case.intervals, case.intervals_source)
    if case.run is not None:
        yield from from_benchmark.read_signals(case.run, case.cites_of_run, budget_tokens=budget)
    for source in case.sources:
        yield from from_start.read_tells(source)
    yield from _outside(case)


def _outside(case: Case) -> Iterator[Reading]:
    """Return how much longer a first token takes at the client than in the engine, where both are of the same run."""
    run, metrics = case.run, case.metrics
    if run is None or metrics is None:
        return
    client, server = run.figure(Quantity.TTFT), metrics.figure(Quantity.TTFT, MEAN)
    requests = metrics.figure(Quantity.REQUESTS, TOTAL)
    if client is None or server is None or requests is None or not run.num_completed:
        return
    if abs(requests.value - run.num_completed) > _SAME_RUN * run.num_completed:
        return
    gap = max(0.0, client.value - server.value)
    shown = (
        f"first token after {format_seconds(client.value)} at the client, after {format_seconds(server.value)} in the "
        "engine"
    )
    cites = (*case.cites_of_run(client.key), *case.cites_of_metrics(server.key))
    yield Reading(signal=Signal.CLIENT_GAP, value=gap, shown=shown, cites=cites)
    yield Reading(signal=Signal.CLIENT_GAP_SHARE, value=gap / client.value, shown=shown, cites=cites)


def _of_starts(case: Case, ask: Ask) -> tuple[dict[str, str], list[Reading]]:
    """Return what start-up logs say: their settings and refusals, and what in them cannot be true."""
    from infcalc.api.comparing import compare_text  # noqa: PLC0415 - only with a start-up log

    words: dict[str, str] = {}
    found: list[Reading] = []
    for log, source in case.starts:
        found += from_start.read_signals(log, source)
        if not (log.figures or log.failures):
            continue
        try:
            result = compare_text("\n".join(source.lines), ask, place=source.place).result
        except InfcalcError:
            continue
        untrue = [text for text in result.contradictions if any(word in text for word in _UNTRUE)]
        lines = tuple(source.at(number) for text in untrue if (number := _line_of(text)))
        shown = "; ".join(untrue) or "no figure of the log contradicts another"
        found.append(Reading(signal=Signal.CONTRADICTIONS, value=float(len(untrue)), shown=shown, cites=lines))
        if result.refusals:
            last = result.refusals[-1]
            words["refusal"] = last.explanation
            words["refusal_remedy"] = "; ".join(last.remedies)
    return words, found


def _line_of(text: str) -> int:
    head, _, rest = text.partition(" ")
    number = rest.split(":")[0].split(" ")[0].rstrip(",")
    return int(number) if head == "line" and number.isdigit() else 0


# Several cases -------------------------------------------------------------------------------------------------------


def _drafting_beside(case: Case, cases: Sequence[Case]) -> Iterator[Reading]:
    """Return how much faster a run with drafting is than another of the same load without."""
    run = case.run
    if run is None or not _drafts(run):
        return
    for other in cases:
        plain = other.run
        if plain is None or plain is run or _drafts(plain) or not _same_load(run, plain):
            continue
        with_it, without = run.figure(Quantity.TPOT), plain.figure(Quantity.TPOT)
        if with_it is None or without is None:
            continue
        value = without.value / with_it.value
        shown = (
            f"{format_seconds(with_it.value)} per token with drafting, {format_seconds(without.value)} without: "
            f"{value:.2f}x"
        )
        cites = (*case.cites_of_run(with_it.key), *other.cites_of_run(without.key))
        yield Reading(signal=Signal.DRAFTING_MEASURED, value=value, shown=shown, cites=cites)
        return


def _drafts(run: BenchmarkRun) -> bool:
    rounds = run.figure(Quantity.TOKENS_PER_ROUND)
    return rounds is not None and rounds.value >= 1


def _same_load(one: BenchmarkRun, other: BenchmarkRun) -> bool:
    """Return whether two runs are of one model, machine and load, as far as both say."""
    for name in ("model", "gpu", "gpus", "tp", "engine"):
        left, right = one.setting(name), other.setting(name)
        if left is not None and right is not None and left.value != right.value:
            return False
    loads = one.load, other.load
    if loads[0].num_clients != loads[1].num_clients or loads[0].requests_per_s != loads[1].requests_per_s:
        return False
    for key in ("input_tokens", "output_tokens"):
        left_length, right_length = getattr(loads[0], key), getattr(loads[1], key)
        if left_length and right_length and abs(left_length - right_length) > _SAME_LENGTH * right_length:
            return False
    return True


def _uneven(case: Case, cases: Sequence[Case]) -> Iterator[Reading]:
    """Return how much more requests this server has than the mean of those of the same model."""
    if case.metrics is None:
        return
    loads: dict[str, float] = {}
    for other in cases:
        if other.metrics is None or other.metrics.model != case.metrics.model:
            continue
        parts = [other.metrics.figure(one, NOW) for one in (Quantity.RUNNING, Quantity.WAITING)]
        loads[other.place] = sum(one.value for one in parts if one is not None)
    if loads and loads.get(case.place) == max(loads.values()):
        key = next((one.key for one in case.metrics.measured if one.quantity is Quantity.RUNNING), "")
        yield from from_metrics.imbalance(loads, case.cites_of_metrics(key) if key else ())


# In words ------------------------------------------------------------------------------------------------------------


def _places(case: Case) -> tuple[str, ...]:
    found = []
    if case.run is not None:
        found.append(f"{case.run.place}: {case.run.form}")
    found += [f"{one.snapshot.place}: metrics of {_UNITS.get(one.snapshot.engine, '')}" for one in case.scrapes]
    if case.intervals is not None:
        number = len(case.intervals.lines)
        found.append(f"{case.intervals.place}: {number:,} interval line{'' if number == 1 else 's'}")
    found += [f"{source.place}: start-up log" for _, source in case.starts]
    told = {text.partition(": ")[0] for text in found}
    found += [f"{one.place}: lines of a log" for one in case.sources if one.place not in told and not found]
    return tuple(found)


def _verdict(result: Diagnosis) -> str:
    first = result.findings[0] if result.findings else None
    blind = next((one.how for one in result.missing if one.symptom == _PREDICTED), "")
    if result.num_findings and first is not None:
        number = result.num_findings
        head = f"{number} finding{'' if number == 1 else 's'}: {_lower(first.title)}"
        if first.gain_factor is not None and first.gain_factor > _WORTH_TELLING:
            low, high = first.gain_factor_low or 0.0, first.gain_factor_high or 0.0
            change = first.remedies[0].change
            head += f"; {change} would bring {first.gain_factor:.2g}x ({low:.2g} to {high:.2g})"
        elif first.remedies and (gain := first.remedies[0].gain) is not None and gain.ttft_factor is not None:
            sooner = gain.ttft_factor < 1 / _WORTH_TELLING
            head += f"; {first.remedies[0].change}: first token {1 / gain.ttft_factor:.2g}x as soon" if sooner else ""
        return f"{head}; no gain is predicted: {blind}" if blind and not _has_gains(result) else head
    told = [_lower(one.title) for one in result.findings]
    looked = f"{len(result.looked_at) + len(result.findings)} of {len(RULES)} rules could be looked at"
    return "; ".join(["nothing wrong found", *told, looked, *([f"nothing is predicted: {blind}"] if blind else [])])


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text
