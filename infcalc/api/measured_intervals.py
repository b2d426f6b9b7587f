"""Interval lines of an engine beside what is predicted: tokens per second in decode, by how many requests run."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from infcalc.api.from_log import asked_by
from infcalc.api.judging import Measurement, Verdict, judge
from infcalc.api.measured_ask import settled
from infcalc.api.measured_causes import Effect, shares_of, step_causes
from infcalc.api.measured_comparing import Compared, shown_value
from infcalc.api.measured_nouns import FigureLine, RunComparison
from infcalc.api.offer import Figure
from infcalc.api.pools import pool_of
from infcalc.api.speed import machine_of
from infcalc.api.steps import decode_step
from infcalc.engines.logs.reader import read_log
from infcalc.errors import FileProblem, InfcalcError
from infcalc.evidence.nouns import IntervalLine, IntervalLog, Phase, Quantity, Stated
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.deployment import Ask
    from infcalc.api.measured_ask import Settled
    from infcalc.api.measured_causes import CauseShare
    from infcalc.api.speed import Machine
    from infcalc.catalog.lookup import Catalog

_MOST_ROWS = 12
_DECODE_ALONE = 0.02
"""Prompt tokens beside answer tokens, up to which an interval is of decode."""


def compared_log(log: IntervalLog, text: str, ask: Ask, catalog: Catalog) -> Compared:
    """Return the intervals of a log in which answers alone were computed, beside a decode step of as many requests.

    The deployment is that of the start-up lines, where the log has them, and of ``ask``. How many tokens are in the
    cache is read off the lines: as counted, or as the share of the pool that is used.

    Raises:
        InfcalcError: the deployment is neither stated nor given; or no interval is of decode alone.

    """
    found = settled(
        (Stated(name="engine", value=log.engine, key="lines of the log"),),
        _asked(text, ask, catalog, log),
        catalog,
        log.place,
    )
    chosen = [line for line in log.lines if _is_decode(line)]
    if not chosen:
        raise FileProblem(
            "no line is of an interval in which answers alone were computed",
            place=log.place,
            hint="give the log of a longer run, with Decode batch lines or without prompts for some ten seconds",
        )
    machine = machine_of(found.site)
    result = _result(log, found, machine, _groups(chosen, found, log.place))
    skipped = len(log.lines) - len(chosen)
    notes = [
        f"{len(chosen):,} of {len(log.lines):,} lines are of decode alone; the others hold prompts, or drafts, or stand"
    ]
    talk = list(log.warnings)
    if log.retractions:
        talk.append(f"{log.place}: line {log.retractions[0]}: requests were put back for want of memory")
    return Compared(
        result=result,
        inputs=found.inputs,
        assumptions=(*found.assumptions, *(notes if skipped else ()), *log.conversions),
        warnings=(*found.warnings, *talk),
    )


def _asked(text: str, ask: Ask, catalog: Catalog, log: IntervalLog) -> Ask:
    """Return the ask with what the start-up lines of the same text state, where it has any."""
    start = read_log(text)
    if start is None:
        return ask
    try:
        return asked_by(start, ask, catalog, place=log.place).ask
    except InfcalcError:
        return ask


def _is_decode(line: IntervalLine) -> bool:
    rate = line.output_tokens_per_s
    if not rate or not line.num_running or line.tokens_per_round is not None or line.phase is Phase.PREFILL:
        return False
    return (line.input_tokens_per_s or 0.0) <= _DECODE_ALONE * rate


@frozen
class _Group:
    """Intervals in which as many requests ran."""

    num_running: int
    context_tokens: float
    """In the cache, of each request."""
    tokens_per_s: float
    first: IntervalLine
    num_lines: int


def _groups(lines: Sequence[IntervalLine], found: Settled, place: str) -> list[_Group]:
    """Return the intervals by number of running requests: the most frequent ones."""
    deployment = found.deployment
    longest = deployment.max_model_len
    pool = pool_of(deployment, found.site.form, longest_tokens=longest, given_tokens=None, option="--max-model-len")
    by_number: dict[int, list[IntervalLine]] = {}
    for line in lines:
        by_number.setdefault(line.num_running or 0, []).append(line)
    groups = []
    for number, members in by_number.items():
        held = [one for line in members if (one := _held(line, pool.num_tokens)) is not None]
        if held:
            groups.append(
                _Group(
                    num_running=number,
                    # A line is of one attention-DP rank.
                    context_tokens=median(held) / number,
                    tokens_per_s=median(line.output_tokens_per_s or 0.0 for line in members),
                    first=members[0],
                    num_lines=len(members),
                )
            )
    if not groups:
        raise FileProblem("no line says how full the cache is", place=place, hint="lines state KV cache or token usage")
    most = sorted(groups, key=lambda one: -one.num_lines)[:_MOST_ROWS]
    return sorted(most, key=lambda one: one.num_running)


def _held(line: IntervalLine, pool_tokens: int) -> float | None:
    if line.held_tokens is not None:
        return float(line.held_tokens)
    return None if line.kv_usage_fraction is None else line.kv_usage_fraction * pool_tokens


def _line(group: _Group, machine: Machine) -> tuple[FigureLine, tuple[CauseShare, ...]]:
    """Return the line of a group, and what a step of it is made of."""
    number, rate = group.num_running, group.tokens_per_s
    step = decode_step(machine.stepping, number, group.context_tokens)
    causes = shares_of(step_causes(step))
    guess = Figure(
        value=number / step.time_s.value,
        low=number / step.time_s.high,
        high=number / step.time_s.low,
        basis=step.time_s.basis,
    )
    ceiling = number / step.floor_s
    told = judge(
        Measurement(quantity="output_tokens_per_s", value=rate),
        guess,
        limit=ceiling,
        hard_limit=ceiling,
        losses=(),
        suspects=tuple,
    )
    first = causes[0]
    why = f"{first.share_fraction:.0%} of the predicted step is {first.cause}"
    head = "within the band; " if guess.low <= rate <= guess.high else ""
    line = FigureLine(
        quantity=Quantity.OUTPUT_PER_S,
        statistic=f"{number} running, {group.context_tokens:,.0f} tokens each, median of {group.num_lines}",
        predicted=guess.value,
        predicted_low=guess.low,
        predicted_high=guess.high,
        measured=rate,
        error_fraction=(guess.value - rate) / rate,
        attributed_to=told.text if told.verdict is Verdict.IMPOSSIBLE else f"{head}{first.cause}: {why}",
        verdict=told.verdict,
        roofline_fraction=told.roofline_fraction,
        slower_fraction=None,
        parts=(Effect(cause=first.cause, effect=rate - guess.value, why=why),),
        at=f"line {group.first.line}",
        said="",
    )
    return line, causes


def _result(log: IntervalLog, found: Settled, machine: Machine, groups: Sequence[_Group]) -> RunComparison:
    deployment = found.deployment
    made = [(*_line(group, machine), group) for group in groups]
    main, shares, group = max(made, key=lambda row: row[2].num_lines)
    lines = tuple(line for line, _, _ in made)
    errors = [abs(line.error_fraction) for line in lines if line.error_fraction is not None]
    impossible = [line for line in lines if line.verdict is Verdict.IMPOSSIBLE]
    verdict = (
        f"with {group.num_running} requests in decode {shown_value(main.quantity, main.measured)} tokens/s measured, "
        f"{shown_value(main.quantity, main.predicted or 0.0)} predicted ({main.error_fraction or 0.0:+.0%}); "
        f"{main.roofline_fraction or 0.0:.0%} of the roofline"
    )
    return RunComparison(
        verdict=impossible[0].attributed_to if impossible else verdict,
        evidence="interval lines",
        place=log.place,
        engine=deployment.rules.engine,
        engine_version=deployment.rules.version,
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        weights=deployment.weights,
        kv_dtype=found.site.form.name,
        load="as the lines tell",
        input_tokens=None,
        output_tokens=None,
        batch=float(group.num_running),
        fits=True,
        stable=True,
        bound_by=str(shares[0].cause) if shares else "",
        worst_abs_error_fraction=max(errors, default=None),
        impossible=("output_tokens_per_s",) if impossible else (),
        normal=None,
        lines=lines,
        token_shares=shares,
        first_token_shares=(),
    )
