"""The view of ``infcalc diagnose``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.diagnosing_nouns import Diagnosis, Finding, RemedyOffer

_MOST_VERDICTS = 12
_KEYS = (
    *("place", "symptom", "kind", "certainty", "title", "remedy", "flag"),
    *("gain_factor", "gain_factor_low", "gain_factor_high"),
)


def view(answer: Answer[Diagnosis]) -> View:
    """Return the findings, the lines that they rest on, what to do, and what else was looked at."""
    results = answer.results
    if len(results) == 1:
        (one,) = results
        tables = (_findings(one), _evidence(one), _remedies(one), _looked_at(one), _missing(one))
        return view_of(answer, tables=tables, verdict=one.verdict, data=_data(results))
    verdicts = [f"{_where(one)}: {one.verdict}" for one in results[:_MOST_VERDICTS]]
    if len(results) > _MOST_VERDICTS:
        verdicts.append(f"and {len(results) - _MOST_VERDICTS:,} more; --json has all")
    found = [one for one in results if one.findings]
    shown = tuple(
        table
        for one in found[:_MOST_VERDICTS]
        for table in (_findings(one, _where(one)), _evidence(one), _remedies(one))
    )
    return view_of(answer, tables=shown, findings=tuple(verdicts), data=_data(results))


def _where(one: Diagnosis) -> str:
    return one.places[0].rpartition(": ")[0] if one.places else "the files"


def _findings(one: Diagnosis, where: str = "") -> Table:
    server = f"{one.model} on {one.num_gpus} x {one.gpu}" if one.model else "no deployment is stated"
    return Table(
        title=f"{where + ': ' if where else ''}What was found ({server})",
        columns=(
            Column(key="symptom", heading="finding", left=True),
            Column(key="kind", heading="kind", left=True),
            Column(key="certainty", heading="by", left=True, aside=True),
            Column(key="gain_factor", heading="gain", show=_times),
            Column(key="says", heading="what it says", left=True),
        ),
        rows=tuple(
            {
                "symptom": finding.symptom,
                "kind": str(finding.kind),
                "certainty": finding.certainty,
                "gain_factor": finding.gain_factor,
                "says": f"{finding.title}: {finding.cause}" if finding.cause else finding.title,
            }
            for finding in one.findings
        ),
    )


def _evidence(one: Diagnosis) -> Table:
    """Return each line once for a finding, with all that it says."""
    rows: dict[tuple[str, str, str], dict[str, None]] = {}
    for finding in one.findings:
        told: set[str] = set()
        for line in finding.evidence:
            where = _at(line.place, line.line)
            says = rows.setdefault((finding.symptom, where, line.text if line.text != line.said else ""), {})
            # What several lines say together stands at the first of them.
            if line.said not in told:
                says[line.said] = None
            told.add(line.said)
    return Table(
        title="The lines that say so",
        columns=(
            Column(key="symptom", heading="finding", left=True),
            Column(key="where", heading="where", left=True),
            Column(key="says", heading="what it says", left=True),
            Column(key="text", heading="line", left=True),
        ),
        rows=tuple(
            {"symptom": symptom, "where": where, "says": "; ".join(says), "text": text}
            for (symptom, where, text), says in rows.items()
        ),
    )


def _at(place: str, line: int | None) -> str:
    return place if line is None else f"{place}:{line}"


def _remedies(one: Diagnosis) -> Table:
    return Table(
        title="What to do, and what it would gain by the model (tokens/s: more is better; times: less is)",
        columns=(
            Column(key="symptom", heading="finding", left=True),
            Column(key="text", heading="do", left=True),
            Column(key="flag", heading="option", left=True),
            Column(key="gain_factor", heading="gain (80 % band)", text_key="gain"),
            Column(key="num_gpus", heading="GPUs", show=count),
            Column(key="throughput_factor", heading="tokens/s", show=_times, aside=True),
            Column(key="tpot_factor", heading="TPOT", show=_times, aside=True),
            Column(key="ttft_factor", heading="TTFT", show=_times, aside=True),
        ),
        rows=tuple(_remedy(finding, offer) for finding in one.findings for offer in finding.remedies),
    )


def _remedy(finding: Finding, offer: RemedyOffer) -> dict[str, object]:
    gain = offer.gain
    notes = [text for text in (offer.unpriced, offer.flag_note) if text]
    text = f"{offer.text} ({'; '.join(notes)})" if notes else offer.text
    row: dict[str, object] = {"symptom": finding.symptom, "text": text, "flag": offer.flag or "-"}
    if gain is None:
        return row | dict.fromkeys(
            ("gain_factor", "band", "throughput_factor", "tpot_factor", "ttft_factor", "num_gpus")
        )
    return row | {
        "gain_factor": gain.gain_factor,
        "gain": f"{gain.gain_factor:.2f}x ({gain.gain_factor_low:.2f}-{gain.gain_factor_high:.2f})",
        "throughput_factor": gain.throughput_factor,
        "tpot_factor": gain.tpot_factor,
        "ttft_factor": gain.ttft_factor,
        "num_gpus": gain.num_gpus,
    }


def _looked_at(one: Diagnosis) -> Table:
    return Table(
        title="What was looked at, and speaks against it",
        columns=(
            Column(key="symptom", heading="finding", left=True),
            Column(key="because", heading="what speaks against it", left=True),
        ),
        rows=tuple({"symptom": row.symptom, "because": row.because} for row in one.looked_at),
    )


def _missing(one: Diagnosis) -> Table:
    """Return what could not be looked at, by what it takes."""
    by_way: dict[tuple[str, str], list[str]] = {}
    for row in one.missing:
        by_way.setdefault((row.what, row.how), []).append(row.symptom)
    return Table(
        title="What could not be looked at, and what it takes",
        columns=(
            Column(key="what", heading="give", left=True),
            Column(key="how", heading="how", left=True),
            Column(key="symptoms", heading="to see", left=True),
        ),
        rows=tuple(
            {"what": what, "how": how, "symptoms": ", ".join(dict.fromkeys(names))}
            for (what, how), names in by_way.items()
        ),
    )


def _data(results: tuple[Diagnosis, ...]) -> Table:
    """Return the findings of all cases, a line each."""
    rows = tuple(
        {"place": _where(one), **{key: getattr(finding, key) for key in _KEYS[1:]}}
        for one in results
        for finding in one.findings
    )
    return Table(title="", columns=tuple(Column(key=key, heading=key) for key in _KEYS), rows=rows)


def _times(value: object) -> str:
    return f"{value:.2f}x" if isinstance(value, int | float) else "-"
