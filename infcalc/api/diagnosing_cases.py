"""From files to cases: what was measured of one server under one load, from all files that speak of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from infcalc.diagnosis.citing import Source
from infcalc.engines.logs.reader import looked_for, read_log
from infcalc.errors import FileProblem
from infcalc.evidence.nouns import BenchmarkRun, Format, IntervalLog, MetricsSnapshot
from infcalc.evidence.reading import KNOWN, format_of, read_evidence, sniff
from infcalc.evidence.window import between, is_counter
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.diagnosis.signals import Cite
    from infcalc.engines.logs.reading import EngineLog
    from infcalc.evidence.nouns import Evidence

_STARTED: Final = re.compile(r"^process_start_time_seconds (?P<time>[0-9.eE+]+)\s*$", re.MULTILINE)
"""What every Python server says of itself: scrapes with the same are of the same process."""


@frozen
class Text:
    """One text that was given, and what it holds."""

    source: Source
    text: str
    evidence: tuple[Evidence, ...]
    start: EngineLog | None
    started: str
    """When the server's process started, as metrics say; empty where they do not."""


@frozen
class Scrape:
    """Metrics, and the text they stand in."""

    snapshot: MetricsSnapshot
    source: Source
    started: str


@frozen
class Case:
    """What is known of one server under one load; at most one of each kind, all from the user's files."""

    place: str
    run: BenchmarkRun | None = None
    run_source: Source | None = None
    metrics: MetricsSnapshot | None = None
    """Of the time between the scrapes, where there are several; else since the engine started."""
    scrapes: tuple[Scrape, ...] = ()
    windowed: bool = False
    intervals: IntervalLog | None = None
    intervals_source: Source | None = None
    intervals_text: str = ""
    starts: tuple[tuple[EngineLog, Source], ...] = ()
    sources: tuple[Source, ...] = ()
    """All texts of the case: single lines of any may tell something."""
    notes: tuple[str, ...] = ()
    talk: tuple[str, ...] = ()

    def cites_of_run(self, key: str) -> tuple[Cite, ...]:
        """Return the lines of a key of the benchmark."""
        if self.run is None or self.run_source is None:
            return ()
        return self.run_source.of_key(key, self.run.place)

    def cites_of_metrics(self, key: str) -> tuple[Cite, ...]:
        """Return the lines of a metric in the first and the last scrape."""
        ends = self.scrapes if len(self.scrapes) < 2 else (self.scrapes[0], self.scrapes[-1])  # noqa: PLR2004 - both
        return tuple(cite for one in ends for cite in one.source.of_key(key, one.snapshot.place))


def read_texts(texts: Sequence[tuple[str, str]], form: str | None) -> tuple[Text, ...]:
    """Return what each of several texts, by the name that people call it, holds.

    Raises:
        FileProblem: one is empty, damaged, or nothing that is known.
        UsageError: there is no such format.

    """
    return tuple(_read(place, text, form) for place, text in texts)


def _read(place: str, text: str, form: str | None) -> Text:
    if not text.strip():
        raise FileProblem("the file is empty", place=place, hint=f"give {KNOWN}, or the start-up log of an engine")
    named = format_of(form)
    kind = named or sniff(text, place)
    # A benchmark may quote the command of its server: that is no start of an engine.
    start = read_log(text) if kind in {None, Format.INTERVAL_LOG, Format.SERVE_TEXT} else None
    if start is not None and not (start.figures or start.failures or start.settings):
        start = None
    found = read_evidence(text, place, kind) if kind is not None else ()
    source = Source.of(place, text)
    if not found and start is None and not _tells(source):
        raise FileProblem(
            "nothing that is known as metrics, a log or a benchmark",
            place=place,
            hint=f"known are {KNOWN}; of start-up logs: {looked_for()}",
        )
    started = _STARTED.search(text)
    return Text(
        source=source, text=text, evidence=found, start=start, started="" if started is None else started["time"]
    )


def _tells(source: Source) -> bool:
    from infcalc.diagnosis.from_start import read_tells  # noqa: PLC0415 - only for texts of no other kind

    return bool(read_tells(source))


def cases_of(texts: Sequence[Text]) -> tuple[Case, ...]:
    """Return the cases: each run of a benchmark is one, and so is each server; a single one of each is of one server.

    Start-up logs are of all cases.
    """
    starts = tuple((one.start, one.source) for one in texts if one.start is not None)
    runs = [(run, one.source) for one in texts for run in one.evidence if isinstance(run, BenchmarkRun)]
    logs = [(log, one) for one in texts for log in one.evidence if isinstance(log, IntervalLog)]
    servers = _servers(
        [
            Scrape(snapshot=snapshot, source=one.source, started=one.started)
            for one in texts
            for snapshot in one.evidence
            if isinstance(snapshot, MetricsSnapshot)
        ]
    )
    beside = tuple(source for _, source in starts)
    if max(len(runs), len(logs), len(servers)) <= 1:
        whole = Case(place=", ".join(one.source.place for one in texts), sources=tuple(one.source for one in texts))
        for run, source in runs:
            whole = replace(whole, run=run, run_source=source)
        for server in servers:
            whole = _with_server(whole, server)
        for log, one in logs:
            whole = _with_log(whole, log, one)
        return (replace(whole, starts=starts),)
    cases = [
        Case(place=run.place, run=run, run_source=source, starts=starts, sources=(source, *beside))
        for run, source in runs
    ]
    cases += [
        _with_server(Case(place=server[-1].snapshot.place, starts=starts, sources=beside), server) for server in servers
    ]
    cases += [
        _with_log(Case(place=log.place, starts=starts, sources=(one.source, *beside)), log, one) for log, one in logs
    ]
    return tuple(_maybe_swapped(cases))


def _maybe_swapped(cases: Sequence[Case]) -> list[Case]:
    """Return cases, with a word where two of them may be one server whose later scrape was given first."""
    told = list(cases)
    for number, one in enumerate(told):
        for other in told[number + 1 :]:
            if one.metrics is None or other.metrics is None or not _follows(other, one):
                continue
            text = (
                f"{one.place} and {other.place} are told apart, since counts fell: of one server, give the earlier "
                "scrape first"
            )
            told[number] = replace(one, talk=(*one.talk, text))
    return told


def _follows(before: Case, after: Case) -> bool:
    """Return whether a case's scrape may be the later one of another's server, which no file denies."""
    if len(before.scrapes) != 1 or len(after.scrapes) != 1:
        return False
    one, other = before.scrapes[0], after.scrapes[0]
    same = (one.snapshot.engine, one.snapshot.model) == (other.snapshot.engine, other.snapshot.model)
    unknown = not (one.started and other.started)
    return same and unknown and between((one.snapshot, other.snapshot)) is not None


def _with_log(case: Case, log: IntervalLog, text: Text) -> Case:
    return replace(case, intervals=log, intervals_source=text.source, intervals_text=text.text)


def _with_server(case: Case, scrapes: Sequence[Scrape]) -> Case:
    """Return a case with the metrics of one server: of the time between its scrapes, where there are several."""
    notes: list[str] = []
    talk: list[str] = []
    if len(scrapes) > 1 and _is_backwards(scrapes):
        scrapes = scrapes[::-1]
        talk.append(f"{scrapes[-1].snapshot.place}: the later scrape stands first: they are taken by their counts")
    last = scrapes[-1]
    window = between([one.snapshot for one in scrapes])
    if window is not None and not _counted(scrapes):
        talk.append(
            f"{last.snapshot.place}: no count grew between the scrapes (twice the same, or nothing was answered): "
            "counts and times are of all requests since the engine started"
        )
        window, scrapes = None, (last,)
    if window is not None:
        notes.append(f"{last.snapshot.place}: counts are of the time between {len(scrapes)} scrapes")
        if not all(one.started for one in scrapes) and len({one.source.place for one in scrapes}) > 1:
            notes.append("the files of metrics are taken as scrapes of one server, one after the other")
    elif len(scrapes) > 1:
        talk.append(
            f"{last.snapshot.place}: counts fell between scrapes, so the engine was started anew, or the later scrape "
            "stands first: the last counts"
        )
    elif not talk:
        notes.append(f"{last.snapshot.place}: counts and times are of all requests since the engine started")
    return replace(
        case,
        metrics=window or last.snapshot,
        scrapes=tuple(scrapes) if window is not None else (last,),
        windowed=window is not None,
        sources=tuple(dict.fromkeys((*case.sources, *(one.source for one in scrapes)))),
        notes=(*case.notes, *notes),
        talk=(*case.talk, *talk),
    )


def _is_backwards(scrapes: Sequence[Scrape]) -> bool:
    """Return whether scrapes of one process stand in the wrong order: its counts cannot fall."""
    started = {one.started for one in scrapes}
    snapshots = [one.snapshot for one in scrapes]
    return (
        len(started) == 1 and "" not in started and between(snapshots) is None and between(snapshots[::-1]) is not None
    )


def _counted(scrapes: Sequence[Scrape]) -> bool:
    """Return whether any count grew from the first scrape to the last."""
    first, last = (
        {(one.name, one.labels): one.value for one in of.snapshot.samples} for of in (scrapes[0], scrapes[-1])
    )
    counts = [series for series in last if is_counter(series[0])]
    return not counts or any(last[series] > first.get(series, 0.0) for series in counts)


def _servers(scrapes: Sequence[Scrape]) -> list[list[Scrape]]:
    """Return the scrapes by server: of one process, or of one file, or such as may follow one another."""
    groups: list[list[Scrape]] = []
    for one in scrapes:
        for group in groups:
            if _is_next(group[-1], one):
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


def _is_next(before: Scrape, after: Scrape) -> bool:
    one, other = before.snapshot, after.snapshot
    if (one.engine, one.model) != (other.engine, other.model):
        return False
    if before.started and after.started:
        return before.started == after.started or before.source.place == after.source.place
    return before.source.place == after.source.place or between((one, other)) is not None
