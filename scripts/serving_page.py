"""Write docs/serving_accuracy.md anew from the published runs of tests/published, or check it (``--check``).

The page holds the errors of the time model by class, engine, GPU, precision, TP and batch, beside what they are held
to, the worst runs with the cause as far as it is known, held-out bands, and errors on sources that were left out.
"""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from serving_bands import ROOT, RUNS, TABLES, drawn, held_out

from infcalc import files
from infcalc.api.bands import Kind
from infcalc.api.scoring import summary
from infcalc.api.validating_serving import AT_RATE, QUANTITIES, SPEEDUP, validated_serving
from infcalc.engines.pace import FACTORS, paces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from infcalc.api.scoring import ValidationSummary
    from infcalc.api.validating_serving import ServingCase
    from infcalc.engines.pace import Footing, Pace
    from infcalc.engines.rules import Since

PAGE = ROOT / "docs" / "serving_accuracy.md"
TARGETS = RUNS.with_name("serving_targets.yaml")
LEFT_OUT = RUNS.with_name("serving_left_out.yaml")
_NAMES = {
    "output_tokens_per_s": "output tokens/s",
    "tpot_s": "TPOT",
    "ttft_s": "TTFT",
    "e2e_s": "end to end",
    "ttft_s at a rate": "TTFT, requests at a rate",
    "tpot_s at a rate": "TPOT, requests at a rate",
}
_SPLITS: dict[str, Callable[[ServingCase], str]] = {
    "engine": lambda case: f"{case.engine} {case.version}",
    "GPU": lambda case: case.gpu,
    "precision": lambda case: case.precision or "unstated",
    "TP": lambda case: f"TP {case.tp or 'unstated'}",
    "batch, clients or requests": lambda case: _size(case.batch),
    "load": lambda case: case.load or "unstated",
    "source": lambda case: case.group,
}
_SIZES = ((1, "1"), (4, "2-4"), (16, "5-16"), (64, "17-64"), (256, "65-256"))
_WIDTH = 118
_UNKNOWN = "not explained"
_HEADS = ["figures", "median", "mean", "p90", "worst", "in band"]
_BY_HAND = (
    ("what a layer adds between kernels, a step, and each running sequence, by engine and version", "engines/pace.py"),
    ("front end: per request, per streamed token, on the way, by engine and version", "engines/pace.py"),
    *((f"{one.what}: {one.value}", "engines/pace.py") for one in FACTORS),
    ("kernels that launch one by one beyond the graphs of vLLM V0", "engines/pace.py"),
    ("requests per client where a run does not state how many there were: ten", "api/validating_serving.py"),
)


class Goal(NamedTuple):
    """One bound and what was reached."""

    text: str
    most_fraction: float
    reached_fraction: float
    why_missed: str

    @property
    def met(self) -> bool:
        """Whether it holds."""
        return self.reached_fraction <= self.most_fraction


def recorded() -> tuple[list[dict[str, Any]], tuple[ServingCase, ...]]:
    """Return the published runs and their cases; what drafting gains has docs/speculation.md."""
    entries = files.read_yaml(str(RUNS))
    if not isinstance(entries, list):
        raise TypeError(RUNS)
    cases = validated_serving(entries, files.load_catalog()).cases
    return entries, tuple(case for case in cases if case.quantity != SPEEDUP)


def targets() -> dict[str, Any]:
    """Return what the errors are held to."""
    found: dict[str, Any] = yaml.safe_load(TARGETS.read_text(encoding="utf-8"))
    return found


def left_out() -> dict[str, Any]:
    """Return the errors with sources left out."""
    found: dict[str, Any] = yaml.safe_load(LEFT_OUT.read_text(encoding="utf-8"))
    return found


def of(cases: Iterable[ServingCase], quantity: str, kind: str, loads: Sequence[str] = ()) -> list[ServingCase]:
    """Return the cases of a class, of some loads only where they are named."""
    return [
        case for case in cases if case.quantity == quantity and case.kind == kind and (not loads or case.load in loads)
    ]


def goals(cases: Sequence[ServingCase], held_to: Mapping[str, Any]) -> list[Goal]:
    """Return every bound with what is reached."""
    found = []
    for goal in held_to["goals"]:
        row = summary("", "", of(cases, goal["quantity"], goal["class"], goal.get("loads", ())))
        text = f"{_NAMES[goal['quantity']]}, {goal['class']}"
        if goal.get("loads"):
            text += f", {' or '.join(goal['loads'])} stated"
        for key, reached in (
            ("median_fraction", row.median_abs_error_fraction),
            ("p90_fraction", row.p90_abs_error_fraction),
        ):
            if key in goal:
                why_missed = goal.get("missed", {}).get(key, "")
                found.append(Goal(f"{text}: {key.partition('_')[0]}", goal[key], reached or 0.0, why_missed))
    return found


def scored_fraction(entries: Sequence[Mapping[str, Any]], cases: Sequence[ServingCase]) -> float:
    """Return the share of runs without drafting that have a prediction."""
    runs = {case.id for case in cases}
    return len({case.id for case in cases if case.status == "scored"}) / len(runs) if entries else 0.0


def page() -> str:
    """Return the text of docs/serving_accuracy.md."""
    entries, cases = recorded()
    held_to, without = targets(), left_out()
    scored = [case for case in cases if case.status == "scored"]
    sources = {entry["group"] for entry in entries}
    parts = [
        "# How right the time model is",
        "",
        *_text(
            "Generated by `python scripts/serving_page.py` from",
            "[published runs](../tests/published/serving_measured.yaml), each with its source; a test compares",
            "it. The same",
            "on these or any other runs: `infcalc validate serving tests/published/serving_measured.yaml`.",
            f"{len(entries):,} runs of {len(sources)} sources, {len(scored):,} figures. Errors are absolute, of the",
            "prediction relative to the measurement: of its median where one is stated, else of its mean. No",
            "measured figure",
            "goes into a prediction. Bands are meant to hold 80 %; how many the shipped ones hold stands in each",
            "table.",
            "Bursts (all requests at once, or 100 and more a second, without a cap on how many run) are a class",
            "of their own",
            "and count in no table but that by class.",
        ),
        "",
        *_classes(cases, held_to),
        "",
        *_goal_table(entries, cases, held_to),
        "",
        *_bands(cases, held_to),
        "",
        *_left_out(_as_shipped(without, cases), held_to),
        "",
        *_footings(),
        "",
    ]
    for name, split in _SPLITS.items():
        parts += [*_split(name, split, cases), ""]
    parts += [*_worst(entries, cases, held_to), "", *_skipped(cases)]
    return "\n".join(parts) + "\n"


def classes(cases: Sequence[ServingCase]) -> Iterator[tuple[str, Kind, tuple[str, ...], ValidationSummary]]:
    """Yield every class that was measured: quantity, kind, the loads that it is of (all where none is named)."""
    for quantity in QUANTITIES:
        for kind in Kind:
            for loads in ((), ("batch", "concurrency"), (AT_RATE,)):
                if loads and (quantity != "ttft_s" or kind is Kind.BURST):
                    continue
                row = summary(quantity, kind, of(cases, quantity, kind, loads))
                if row.cases:
                    yield quantity, kind, loads, row


def _titled(kind: Kind, loads: tuple[str, ...]) -> str:
    return {(): str(kind), (AT_RATE,): f"{kind}, at a rate"}.get(loads, f"{kind}, {' or '.join(loads)} stated")


def _classes(cases: Sequence[ServingCase], held_to: Mapping[str, Any]) -> list[str]:
    wanted = {(goal["quantity"], goal["class"], tuple(goal.get("loads", ()))): goal for goal in held_to["goals"]}
    found = ["## By class", "", *_header(["quantity", "class"], [*_HEADS, "goal (median / p90)", "met"])]
    for quantity, kind, loads, row in classes(cases):
        goal = wanted.get((quantity, kind, loads))
        found.append(_cells([_NAMES[quantity], _titled(kind, loads), *_figures(row), *_against(row, goal)]))
    return found


def _against(row: ValidationSummary, goal: Mapping[str, Any] | None) -> list[str]:
    if goal is None:
        return ["-", "-"]
    bounds = [goal["median_fraction"], goal.get("p90_fraction")]
    reached = [row.median_abs_error_fraction, row.p90_abs_error_fraction]
    met = [
        "yes" if (value or 0.0) <= bound else "**no**"
        for bound, value in zip(bounds, reached, strict=True)
        if bound is not None
    ]
    return [" / ".join(f"{bound:.0%}" for bound in bounds if bound is not None), " / ".join(met)]


def _goal_table(
    entries: Sequence[Mapping[str, Any]], cases: Sequence[ServingCase], held_to: Mapping[str, Any]
) -> list[str]:
    every = goals(cases, held_to)
    share = scored_fraction(entries, cases)
    least = held_to["least_scored_fraction"]
    missed = [one for one in every if not one.met]
    text = _text(
        f"{len(every) - len(missed)} of these {len(every)} bounds are met. Of the runs without drafting",
        f"{share:.1%} have",
        f"a prediction (goal: {least:.0%} or more).",
    )
    if missed:
        text += ["", "Missed:", ""]
        text += [
            f"- {one.text} is {one.reached_fraction:.1%}, goal {one.most_fraction:.0%}. {one.why_missed or _UNKNOWN}"
            for one in missed
        ]
    return text


def outside_as_shipped(cases: Sequence[ServingCase], low: float, high: float) -> list[str]:
    """Return the classes of whose figures the shipped bands hold too few or too many."""
    return [
        f"as shipped: {_NAMES[quantity]} of {_titled(kind, loads)} {row.band_coverage_fraction:.0%} of {row.cases}"
        for quantity, kind, loads, row in classes(cases)
        if row.band_coverage_fraction is not None and not low <= row.band_coverage_fraction <= high
    ]


def _bands(cases: Sequence[ServingCase], held_to: Mapping[str, Any]) -> list[str]:
    made = drawn(cases)
    shares = held_out(cases, made)
    low, high = held_to["band_coverage_fraction"]
    found = [
        "## Bands",
        "",
        *_text(
            "Drawn by `python scripts/serving_bands.py`: two quantiles of measured over predicted in a class",
            "(kind; whether",
            "the kernels of the GPU were measured; era of the engine), of the narrowest class of which six",
            "clusters of three",
            "sources were measured. A cluster is one source, model and GPU. Held-out coverage is that of bands",
            "drawn without",
            f"the cluster of each figure; it should lie in {low:.0%} to {high:.0%}. Where a class has fewer, a",
            "wider one",
            "serves it. Few sources state the end-to-end latency: its band is that of its parts, TTFT and the tokens",
            "after it, as if they erred independently. At a rate times scatter more, far below saturation too: the",
            "same load has a wider band there than as so many clients.",
        ),
        "",
        *_header(["quantity", "class"], ["figures", "clusters", "band", "held-out coverage"]),
    ]
    for table in TABLES:
        for name, one in made[table].items():
            cells = [_NAMES[table], name or "all", f"{one.num_figures}", f"{one.num_clusters}"]
            found.append(_cells([*cells, f"{one.low:g} to {one.high:g}", f"{one.held_out_coverage:.0%}"]))
    outside = outside_as_shipped(cases, low, high)
    outside += [
        f"held out: {_NAMES[table]} of {kind} {share:.0%}"
        for (table, kind), share in shares.items()
        if not low <= share <= high
    ]
    inside = [
        f"{_NAMES[table]} of {kind} {share:.0%}" for (table, kind), share in shares.items() if low <= share <= high
    ]
    found += [
        "",
        "By kind, each figure in the band of the class that serves it, drawn without its cluster:",
        "",
        *(f"- {one}" for one in inside),
    ]
    if outside:
        found += [
            "",
            "Outside, for few sources were measured, or one differs from the others:",
            "",
            *(f"- {one}" for one in outside),
        ]
    return found


def _as_shipped(without: Mapping[str, Any], cases: Sequence[ServingCase]) -> dict[str, Any]:
    """Return the table of left-out sources with the errors of the shipped overheads as they are now."""

    def row(one: Mapping[str, Any], members: Sequence[ServingCase]) -> dict[str, Any]:
        return dict(one) | {"shipped": summary("", "", members).median_abs_error_fraction or 0.0}

    return dict(without) | {
        "classes": [row(one, of(cases, one["quantity"], one["class"])) for one in without["classes"]],
        "sources": [
            row(one, [case for case in cases if (case.group, case.quantity) == (one["source"], one["quantity"])])
            for one in without["sources"]
        ],
    }


def _left_out(without: Mapping[str, Any], held_to: Mapping[str, Any]) -> list[str]:
    most = held_to["most_left_out_over_in_sample"]
    found = [
        "## Sources left out",
        "",
        *_text(
            "Kernels and collectives are fitted to measurements of their own ([efficiency](efficiency.md)), not",
            "to these",
            "runs. Set by hand with these runs in view were:",
        ),
        "",
        *(f"- {what} (`{where}`)" for what, where in _BY_HAND),
        "",
        *_text(
            "`python scripts/serving_left_out.py` fits one factor on each of the first two, by era of the engine:",
            "to all",
            "sources (in-sample), and to all but the one judged (left out). Medians of absolute errors. How the hand's",
            "values differ by engine and version stays as it is, and so do the others: what rests on a single",
            "source is not",
            "found out this way. Bursts are judged, but nothing is fitted to them.",
        ),
        "",
        *_header(["era", "overhead"], ["factor, all sources", "least, one left out", "most"]),
        *(
            _cells([one["era"], one["overhead"], f"{one['all']:g}", f"{one['least']:g}", f"{one['most']:g}"])
            for one in without["factors"]
        ),
        "",
        *_text(*_agreed(without)),
        "",
        f"The goal: left out at most {most - 1:.0%} above in-sample. Missed by:",
        "",
        *(
            f"- {_NAMES[one['quantity']]}, {one['class']}: {missed_left_out(one, held_to) or _UNKNOWN}"
            for one in without["classes"]
            if one["left_out"] > most * one["in_sample"]
        ),
        "",
    ]
    for title, key in (("class", "classes"), ("source", "sources")):
        found += [
            *_header(["quantity", title], ["figures", "as shipped", "in-sample", "left out", "left out / in-sample"]),
            *(
                _cells(
                    [
                        _NAMES[one["quantity"]],
                        one[title],
                        str(one["figures"]),
                        *(f"{one[name]:.1%}" for name in ("shipped", "in_sample", "left_out")),
                        f"{one['left_out'] / one['in_sample']:.2f}" if one["in_sample"] else "-",
                    ]
                )
                for one in sorted(without[key], key=lambda one: QUANTITIES.index(one["quantity"]))
            ),
            "",
        ]
    return found[:-1]


def _agreed(without: Mapping[str, Any]) -> list[str]:
    """Return which overheads every fit moves the same way: what is shipped is not what these runs would choose."""
    found = []
    for text, end in (("lower", "most"), ("higher", "least")):
        names = [
            f"{one['overhead']} ({one['era']}, x {one['all']:g})"
            for one in without["factors"]
            if (one[end] < 1 if text == "lower" else one[end] > 1)
        ]
        if names:
            found.append(f"Every fit, whatever source is left out, wants it {text}: {'; '.join(names)}.")
    return (
        [*found, "Values stay as they are until other runs say the same: these are not the only ones."] if found else []
    )


def _footings() -> list[str]:
    """Return each value that was set by hand, with the sources whose runs were in view."""
    found = [
        "## What overheads rest on",
        "",
        *_text(
            "All were set by hand with the runs of the named sources in view, by nothing better: where one source is",
            "named, or none, a value is as good as that. `estimate --explain` says it beside each value. Prompts are",
            f"tokenised at 2 us per token, {_steps_of(paces())[0][1].value.footing('prompt_token_s').text}.",
        ),
        "",
        *_header(
            ["engine"],
            ["per layer, us", "step, ms", "sequence, us", "request, ms", "token, us", "on the way, ms"],
            ["overheads of a step", "front end", "on the way"],
        ),
    ]
    for engine, step in _steps_of(paces()):
        pace = step.value
        numbers = (
            1e6 * pace.per_layer_s,
            1e3 * pace.per_step_s,
            1e6 * pace.per_sequence_s,
            1e3 * pace.request_s,
            1e6 * pace.token_s,
            1e3 * pace.latency_s,
        )
        since = ".".join(map(str, step.version))
        name = engine if not any(step.version) else f"{engine} from {since}"
        footings = [_sources(one) for one in (pace.steps, pace.front_end, pace.latency)]
        found.append(_cells([name, *(f"{number:.3g}" for number in numbers), *footings]))
    found += ["", "Kernels of an engine that are slower than those that were timed, and launches without graphs:", ""]
    found += [f"- {one.what}: {one.value}; {one.footing.text}" for one in FACTORS]
    eager = {step.value.eager: step.value for _, step in _steps_of(paces())}
    found += [
        f"- {1e6 * pace.eager_layer_s:.0f} us for a layer and {1e6 * pace.eager_message_s:.0f} us for a message at "
        f"least where kernels are launched one by one; {footing.text}"
        for footing, pace in eager.items()
    ]
    return found


def _steps_of(known: Mapping[str, Sequence[Since[Pace]]]) -> list[tuple[str, Since[Pace]]]:
    return [(engine, step) for engine, steps in known.items() for step in steps]


def _sources(footing: Footing) -> str:
    runs = f"{len(footing.sources)}: {', '.join(footing.sources)} ({', '.join(footing.quantities)})"
    return runs if footing.sources else footing.otherwise or "none"


def _split(name: str, split: Callable[[ServingCase], str], cases: Sequence[ServingCase]) -> list[str]:
    found = [f"## By {name}", "", *_header(["quantity", name], _HEADS)]
    for quantity in QUANTITIES:
        groups: dict[str, list[ServingCase]] = {}
        for case in cases:
            if case.quantity == quantity and case.kind != Kind.BURST and case.status == "scored":
                groups.setdefault(split(case), []).append(case)
        for group in sorted(groups, key=_order):
            row = summary(quantity, group, groups[group])
            found.append(_cells([_NAMES[quantity], group, *_figures(row)]))
    return found


def _order(group: str) -> tuple[int, str]:
    digits = group.removeprefix("TP ").partition("-")[0]
    return (int(digits) if digits.isdigit() else 10**6, group)


def _size(batch: int | None) -> str:
    if batch is None:
        return "unstated"
    return next((text for most, text in _SIZES if batch <= most), "257 and more")


def missed_left_out(row: Mapping[str, Any], held_to: Mapping[str, Any]) -> str:
    """Return why a class misses its goal with sources left out; empty where that is not told."""
    for one in held_to["left_out_missed"]:
        if (one["quantity"], one["class"]) == (row["quantity"], row["class"]):
            return str(one["why"]).strip()
    return ""


def factor(case: ServingCase) -> float:
    """Return how many times too high or too low a prediction is."""
    if not case.measured or not case.predicted:
        return 1.0
    return max(case.measured / case.predicted, case.predicted / case.measured)


def _worst(entries: Sequence[Mapping[str, Any]], cases: Sequence[ServingCase], held_to: Mapping[str, Any]) -> list[str]:
    known = {entry["id"]: entry for entry in entries}
    shown: dict[str, ServingCase] = {}
    for case in sorted(cases, key=lambda one: -factor(one)):
        shown.setdefault(case.id, case)
    found = [
        "## Worst runs",
        "",
        "Those that are most times too high or too low, each by its worst figure.",
        "",
        *_header(["run", "what ran", "quantity"], ["measured", "predicted", "times off"], ["why"]),
    ]
    for case in list(shown.values())[: held_to["worst"]]:
        what = f"{known[case.id]['model'].rpartition('/')[2]}, {case.engine} {case.version}, {case.tp} x {case.gpu}"
        found.append(
            _cells(
                [
                    case.id,
                    what,
                    _NAMES[case.quantity],
                    f"{case.measured:.4g}",
                    f"{case.predicted:.4g}",
                    f"{factor(case):.1f}",
                    why(case, known[case.id], held_to["causes"]),
                ]
            )
        )
    return found


def why(case: ServingCase, entry: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """Return the cause of an error as far as it is known."""
    rate = entry["workload"].get("request_rate")
    for cause in causes:
        said = {
            "request_rate": rate,
            "engine": case.engine if case.engine == cause["match"].get("engine") else f"{case.engine} {case.version}",
            **{name: getattr(case, name) for name in ("group", "load", "quantity", "kind", "gpu")},
        }
        if all(said[key] == value for key, value in cause["match"].items()):
            return str(cause["why"]).strip()
    return _UNKNOWN


def _skipped(cases: Sequence[ServingCase]) -> list[str]:
    counts: dict[tuple[str, str], int] = {}
    for case in cases:
        if case.status != "scored":
            key = (_NAMES.get(case.quantity, case.quantity), case.reason)
            counts[key] = counts.get(key, 0) + 1
    if not counts:
        return ["## Skipped", "", "None: every figure of a run without drafting is predicted."]
    return [
        "## Skipped",
        "",
        *_header(["quantity"], ["figures"], ["reason"]),
        *(_cells([name, str(number), reason]) for (name, reason), number in counts.items()),
    ]


def _header(texts: list[str], numbers: list[str], more: Sequence[str] = ()) -> list[str]:
    return [_cells([*texts, *numbers, *more]), f"|{'---|' * len(texts)}{'---:|' * len(numbers)}{'---|' * len(more)}"]


def _figures(row: ValidationSummary) -> list[str]:
    errors = (row.median_abs_error_fraction, row.mean_abs_error_fraction, row.p90_abs_error_fraction, row.worst)
    return [str(row.cases), *(_share(value) for value in errors), _share(row.band_coverage_fraction, digits=0)]


def _share(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}%}"


def _text(*sentences: str) -> list[str]:
    return textwrap.wrap(" ".join(sentences), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def main() -> int:
    """Write the page, or check it."""
    text = page()
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != text:
            print("docs/serving_accuracy.md is stale: run python scripts/serving_page.py")
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
