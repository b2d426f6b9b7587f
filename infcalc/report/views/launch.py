"""``launch`` as a table of options with reasons, and the texts to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.launching import LaunchResult
    from infcalc.report.table import View


def view(answer: Answer[LaunchResult], *, whole: bool = False) -> View:
    """Return the view: the command, its options with reasons; ``whole`` shows the asked files, not their names."""
    result = answer.result
    if not result.fits:
        verdict = (
            f"does not fit: {format_bytes(result.missing_bytes)} per GPU are missing, so there is nothing to start"
        )
        return view_of(answer, verdict=verdict, tables=(_changes(result),), data=_options(result))
    return view_of(
        answer,
        verdict=_verdict(result),
        tables=(_options(result, shown=True), _meanings(result)),
        data=_options(result),
        pasted="\n".join(_texts(result)).rstrip() if whole else result.command,
        notes=() if whole else _saved(result),
    )


def _verdict(result: LaunchResult) -> str:
    number = result.num_replicas + result.num_prefill_replicas
    pair = f" ({result.num_prefill_replicas} prefill, {result.num_replicas} decode)" * (result.num_prefill_replicas > 0)
    replicas = "1 replica" if number == 1 else f"{number} replicas{pair}"
    what = f"{result.model_id} with {result.engine} {result.engine_version}"
    holds = f"{result.sequences:,} sequences of {result.context_tokens:,} tokens each"
    return f"{what}: {replicas} of {result.num_gpus} x {result.gpu}, {holds}"


def _saved(result: LaunchResult) -> tuple[str, ...]:
    if not result.files:
        return ()
    names = ", ".join(f"{file.name} ({file.target})" for file in result.files)
    return (f"--save FOLDER writes {names}; --target NAME shows one",)


def _texts(result: LaunchResult) -> list[str]:
    """Return the asked files, each under its name."""
    return [line for file in result.files for line in (f"# {file.name}", file.content)]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _options(result: LaunchResult, *, shown: bool = False) -> Table:
    rows = tuple(
        {
            "role": flag.role,
            "flag": flag.flag,
            "value": flag.value,
            "why": flag.why,
            "meaning": flag.meaning,
            "place": flag.place,
            "source": flag.source,
        }
        for flag in result.flags
    )
    paired = result.num_prefill_replicas > 0
    columns = (
        *((Column(key="role", heading="side", left=True),) if paired or not shown else ()),
        Column(key="flag", heading="option", left=True),
        Column(key="value", heading="value", show=_value, left=True),
        Column(key="why", heading="why", left=True),
    )
    if not shown:
        columns += tuple(Column(key=key, heading=key, left=True) for key in ("meaning", "place", "source"))
    return Table(title="Options and why", columns=columns, rows=rows)


def _meanings(result: LaunchResult) -> Table:
    meanings = {flag.flag: flag.meaning for flag in result.flags}
    return Table(
        title=f"What they mean in {result.engine}",
        columns=(
            Column(key="flag", heading="option", left=True),
            Column(key="meaning", heading="meaning", left=True),
        ),
        rows=tuple({"flag": flag, "meaning": meaning} for flag, meaning in meanings.items()),
    )


def _changes(result: LaunchResult) -> Table:
    return Table(
        title="The nearest changes with which it fits",
        columns=(
            Column(key="change", heading="change", left=True),
            Column(key="sequences", heading="sequences", show=count),
            Column(key="context_tokens", heading="of tokens", show=count),
        ),
        rows=tuple(
            {"change": one.change, "sequences": one.sequences, "context_tokens": one.context_tokens}
            for one in result.changes
        ),
    )
