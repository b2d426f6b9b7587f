"""What the model makes of a case: its deployment, its load, the prediction beside it, and signals that rest on it."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from infcalc.api.from_log import asked_by
from infcalc.api.measured_ask import settled
from infcalc.api.measured_comparing import comparison_of
from infcalc.api.measured_figures import predicted
from infcalc.api.measured_load import Loaded, load_of_run, load_of_snapshot
from infcalc.api.offer import Offer
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.errors import InfcalcError, UsageError
from infcalc.evidence.nouns import IntervalLog, Phase, Quantity, Stated
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.deployment import Ask
    from infcalc.api.diagnosing_cases import Case
    from infcalc.api.measured_ask import Settled
    from infcalc.api.measured_figures import Predicted
    from infcalc.api.measured_nouns import RunComparison
    from infcalc.catalog.lookup import Catalog
    from infcalc.evidence.nouns import MetricsSnapshot

_RANKS: Final = ("num_gpus", "tp", "pp", "dp", "ep", "dcp")
_LEAST_LINES: Final = 3
"""Interval lines from which on their totals tell how long prompts and answers are."""


@frozen
class Modelled:
    """What could be settled of a case: each part is None where something lacks, which ``lacking`` names.

    ``comparison`` is None for metrics since the start of an engine: their times are not of the load of now.
    """

    found: Settled | None
    loaded: Loaded | None
    made: Predicted | None
    comparison: RunComparison | None
    drafting: str
    """Way of drafting as the files state it; empty where they do not."""
    num_draft_tokens: int | None
    lacking: tuple[str, ...]
    notes: tuple[str, ...]
    talk: tuple[str, ...]


def modelled(case: Case, ask: Ask, given: Offer, catalog: Catalog) -> Modelled:
    """Return what the model makes of a case.

    Raises:
        InfcalcError: what the user says of the deployment cannot be; what files say and cannot be is named instead.

    """
    lacking: list[str] = []
    filled = _filled(case, ask, catalog, lacking)
    settings = [one for log, _ in case.starts if (one := log.setting("speculative")) is not None and one.value]
    drafting = str(settings[-1].value) if settings else ""
    length = ask.num_lookahead_tokens or ask.num_draft_tokens
    nothing = Modelled(
        found=None,
        loaded=None,
        made=None,
        comparison=None,
        drafting=drafting,
        num_draft_tokens=length,
        lacking=(),
        notes=(),
        talk=(),
    )
    try:
        found = settled(_stated(case), filled, catalog, case.place)
    except InfcalcError as problem:
        if _is_the_users(problem, ask):
            raise
        return replace(nothing, lacking=(*lacking, _told(problem)))
    loaded, made = _predicted(case, found, given, lacking)
    comparison = None
    evidence = case.run or (case.metrics if case.windowed else None)
    if made is not None and made.run is not None and evidence is not None:
        comparison = comparison_of(evidence, found, made)
    if comparison is None and case.run is None and case.intervals is not None:
        comparison = _of_intervals(case, filled, catalog, lacking)
    return replace(
        nothing,
        found=found,
        loaded=loaded,
        made=made,
        comparison=comparison,
        lacking=tuple(dict.fromkeys(lacking)),
        notes=(*found.assumptions, *(() if loaded is None else loaded.assumptions)),
        talk=found.warnings,
    )


def _filled(case: Case, ask: Ask, catalog: Catalog, lacking: list[str]) -> Ask:
    """Return the ask with what start-up logs state.

    How many tokens are drafted is for pricing the rounds that were counted: without a draft's name nothing is loaded.
    """
    if ask.draft_model is None:
        ask = replace(ask, num_lookahead_tokens=None)
    for log, source in case.starts:
        try:
            ask = asked_by(log, ask, catalog, place=source.place).ask
        except InfcalcError as problem:
            if _is_the_users(problem, ask):
                raise
            lacking.append(_told(problem))
        eager = log.setting("enforce_eager")
        if eager is not None and eager.value is True:
            ask = replace(ask, enforce_eager=True)
    return ask


def _predicted(case: Case, found: Settled, given: Offer, lacking: list[str]) -> tuple[Loaded | None, Predicted | None]:
    """Return the load of a case and its prediction; neither where something lacks, which is noted."""
    try:
        loaded = _load(case, found, given)
        if loaded is None:
            return None, None
        made = predicted(found.site, loaded)
    except InfcalcError as problem:
        lacking.append(_told(problem))
        return None, None
    if made.run is None:
        lacking.append(
            f"{found.deployment.model.name} in {found.deployment.weights} is not predicted to fit on "
            f"{made.result.num_gpus} x {made.result.gpu}, and it ran: --tp, --weights or --gpu say what it was"
        )
    return loaded, made


def _is_the_users(problem: InfcalcError, ask: Ask) -> bool:
    """Return whether a problem is of what the user asked, and not of what a file says or does not say."""
    if not isinstance(problem, UsageError):
        return False
    ranks = any(getattr(ask, name) is not None for name in _RANKS)
    return ranks and bool(ask.models) and bool(ask.gpus)


def _told(problem: InfcalcError) -> str:
    head = f"{problem.place}: {problem.message}" if problem.place else problem.message
    return f"{head} ({problem.hint})" if problem.hint else head


def _stated(case: Case) -> tuple[Stated, ...]:
    """Return what the measurements of a case state; of two the more particular first."""
    found: dict[str, Stated] = {}
    parts = [
        *(() if case.run is None else case.run.settings),
        *(() if case.metrics is None else case.metrics.settings),
    ]
    if case.intervals is not None:
        parts.append(Stated(name="engine", value=case.intervals.engine, key="lines of the log"))
    for one in parts:
        found.setdefault(one.name, one)
    return tuple(found.values())


def _load(case: Case, found: Settled, given: Offer) -> Loaded | None:
    """Return the load of a case: of its benchmark, else of its metrics, else as its interval lines tell.

    Raises:
        InfcalcError: neither files nor options say how many requests come, or how long they are.

    """
    if case.run is not None:
        return load_of_run(case.run, _with_hits(given, case.metrics))
    if case.metrics is not None:
        return load_of_snapshot(case.metrics, _with_hits(given, case.metrics))
    if case.intervals is not None:
        return _load_of_lines(case.intervals, found, given)
    if case.starts and given.input_tokens is not None and given.output_tokens is not None:
        return Loaded(offers=(given,), workload=WorkloadAsk(), text="as given", assumptions=())
    return None


def _with_hits(given: Offer, metrics: MetricsSnapshot | None) -> Offer:
    """Return the offer with the share of prompt tokens that the prefix cache held, as metrics say."""
    if metrics is None or given.prefix_hit_fraction:
        return given
    for statistic in ("total", "now"):
        hits = metrics.figure(Quantity.PREFIX_HITS, statistic)
        if hits is not None:
            return replace(given, prefix_hit_fraction=min(hits.value, _MOST_HITS))
    return given


_MOST_HITS: Final = 0.99
"""The last block of a prompt is always computed."""


def _load_of_lines(log: IntervalLog, found: Settled, given: Offer) -> Loaded:
    """Return the load that interval lines tell of: as many under way as run and wait, as long as what they hold.

    With r answer tokens for each of a prompt, requests hold I (1 + r / 2) tokens in the middle of their answers.

    Raises:
        UsageError: the lines do not tell how long requests are.

    """
    busy = [line for line in log.lines if line.num_running]
    notes: list[str] = []
    offer = given
    if offer.input_tokens is None or offer.output_tokens is None:
        prompt, answer = _lengths_of_lines(log, found)
        offer = replace(
            offer,
            input_tokens=prompt if offer.input_tokens is None else offer.input_tokens,
            output_tokens=answer if offer.output_tokens is None else offer.output_tokens,
        )
        notes.append(
            f"lengths are derived from the lines (tokens held, and tokens computed of prompts and answers): prompts of "
            f"{prompt:,.0f} tokens, answers of {answer:,.0f} (--input-tokens, --output-tokens)"
        )
    if offer.batch is offer.concurrency is offer.requests_per_s is None:
        number = round(median((line.num_running or 0) + (line.num_waiting or 0) for line in busy)) if busy else 0
        if not number:
            raise UsageError("no line has a request", place=log.place, hint="add --concurrency or --rate")
        offer = replace(offer, concurrency=number)
        notes.append(f"{number} requests run or wait in the median line: as many are taken to be under way")
    return Loaded(
        offers=(offer,), workload=WorkloadAsk(), text="as the lines tell", assumptions=tuple(notes), front_end=False
    )


def _lengths_of_lines(log: IntervalLog, found: Settled) -> tuple[float, float]:
    from infcalc.api.pools import pool_of  # noqa: PLC0415 - only here

    problem = UsageError(
        "how long prompts and answers are is not told by the lines",
        place=log.place,
        hint="add --input-tokens and --output-tokens, or give /metrics as well",
    )
    if len(log.lines) < _LEAST_LINES:
        raise problem
    deployment = found.deployment
    pool = pool_of(
        deployment,
        found.site.form,
        longest_tokens=deployment.max_model_len,
        given_tokens=None,
        option="--max-model-len",
    )
    held = [
        (float(line.held_tokens) if line.held_tokens is not None else (line.kv_usage_fraction or 0.0) * pool.num_tokens)
        / line.num_running
        for line in log.lines
        if line.num_running and (line.held_tokens is not None or line.kv_usage_fraction is not None)
    ]
    prompts = sum(line.input_tokens_per_s or 0.0 for line in log.lines)
    answers = sum(line.output_tokens_per_s or 0.0 for line in log.lines)
    # SGLang's lines are of batches, not of equal times: their rates do not add up.
    if not prompts or not answers or not held or any(line.phase is not Phase.ALL for line in log.lines):
        raise problem
    hits = [line.prefix_hit_fraction for line in log.lines if line.prefix_hit_fraction is not None]
    computed = 1 - (hits[-1] if hits else 0.0)
    ratio = answers / prompts * max(computed, 0.01)
    prompt = median(held) / (1 + ratio / 2)
    return max(1.0, prompt), max(1.0, prompt * ratio)


def _of_intervals(case: Case, ask: Ask, catalog: Catalog, lacking: list[str]) -> RunComparison | None:
    from infcalc.api.measured_intervals import compared_log  # noqa: PLC0415 - only for such lines

    if case.intervals is None:
        return None
    try:
        return compared_log(case.intervals, case.intervals_text, ask, catalog).result
    except InfcalcError as problem:
        lacking.append(_told(problem))
        return None
