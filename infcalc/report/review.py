"""The capacity review as a document: what stands where. Every number is one of the answer's; none is computed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.planning.nouns import Miss
from infcalc.report import review_parts as parts
from infcalc.report import review_sources as sources
from infcalc.report.document import Command, Commands, Document, Passage, Points, Section, Status, Tile, Tiles
from infcalc.report.table import Column, Table, named_value
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.filling import MemoryResult
    from infcalc.api.offer import Figure
    from infcalc.api.reporting_nouns import ReportResult
    from infcalc.report.document import Block


def review(answer: Answer[ReportResult]) -> Document:
    """Return the document of one answer."""
    result = answer.result
    sections = (
        Section(title="Verdict", anchor="verdict", blocks=_verdict(result)),
        Section(title="Warnings", anchor="warnings", blocks=_warnings(answer)),
        Section(title="Inputs and assumptions", anchor="inputs", blocks=_inputs(answer)),
        Section(title="Memory", anchor="memory", blocks=parts.memory(answer)),
        Section(title="Roofline", anchor="roofline", blocks=parts.roofline(answer)),
        Section(title="Latency and throughput", anchor="speed", blocks=parts.speed(answer)),
        Section(title="Plans and prices", anchor="plans", blocks=parts.plans(answer)),
        Section(title="Bands and what they rest on", anchor="bands", blocks=sources.bands(result)),
        Section(title="How to reproduce it", anchor="reproduce", blocks=_reproduce(result)),
        Section(title="Sources", anchor="sources", blocks=sources.facts(answer)),
        Section(title="Formulas", anchor="formulas", blocks=sources.formulas(answer)),
    )
    return Document(
        title=f"Capacity review: {_model(result)} on {result.memory.num_gpus} x {result.memory.gpu}",
        facts=_facts(result),
        statuses=_statuses(result),
        sections=tuple(section for section in sections if section.blocks),
    )


def _model(result: ReportResult) -> str:
    return result.memory.model


def _facts(result: ReportResult) -> tuple[tuple[str, str], ...]:
    memory = result.memory
    return (
        ("Model", f"{memory.model}, weights in {memory.weights}, KV cache in {memory.kv_dtype}"),
        ("GPU", f"{memory.num_gpus} x {memory.gpu} for each replica"),
        ("Engine", f"{memory.engine} {memory.engine_version}"),
        ("Load", result.load),
        ("Limits", result.limits.replace(",", ", ")),
        ("Date", result.date),
        ("Written by", f"infcalc {result.version}"),
    )


def _statuses(result: ReportResult) -> tuple[Status, ...]:
    fits = result.memory.fits and result.estimate.fits
    found = [Status(text="fits" if fits else "does not fit", good=fits)]
    if result.as_deployed.plans:
        number = result.as_deployed.plans[0].replicas
        many = f"{number:,} replicas" if number > 1 else "1 replica"
        found.append(Status(text=f"limits kept with {many}", good=True))
    elif fits:
        rejected = result.as_deployed.rejected
        unpriced = rejected and all(one.kind is Miss.PRICE for one in rejected)
        found.append(Status(text="not weighed without a price" if unpriced else "limits not kept", good=False))
    if not result.plan.feasible:
        found.append(Status(text="no plan on offer", good=False))
    return tuple(found)


# Verdict --------------------------------------------------------------------------------------------------------------


def _verdict(result: ReportResult) -> tuple[Block, ...]:
    return (
        Passage(text=" ".join(result.verdict)),
        Tiles(tiles=_tiles(result)),
        parts.limits(result),
    )


def _tiles(result: ReportResult) -> tuple[Tile, ...]:
    memory, speed = result.memory, result.estimate
    own = result.as_deployed.plans[0] if result.as_deployed.plans else None
    found = [_room(memory)]
    if speed.ttft_s is not None:
        found.append(_timed("First token", speed.ttft_s))
    if speed.tpot_s is not None:
        found.append(_timed("Time per token", speed.tpot_s))
    if speed.output_tokens_per_s is not None:
        rate = speed.output_tokens_per_s
        note = f"{rate.low:,.0f} to {rate.high:,.0f}, one replica"
        found.append(Tile(name="Output tokens/s", value=f"{rate.value:,.0f}", note=note))
    if own is not None:
        if own.usd_per_month is not None:
            usd = f"{own.usd_per_month.value:,.0f} USD"
            found.append(
                Tile(
                    name="A month",
                    value=usd,
                    note=f"{own.total_gpus:,} {'GPU' if own.total_gpus == 1 else 'GPUs'} as deployed",
                )
            )
        per_million = own.usd_per_million_output_tokens
        if per_million is not None:
            note = f"{per_million.low:,.2f} to {per_million.high:,.2f}"
            found.append(Tile(name="A million output tokens", value=f"{per_million.value:,.2f} USD", note=note))
    return tuple(found)


def _room(memory: MemoryResult) -> Tile:
    """Return what is there for KV; where the deployment does not fit, what is not."""
    low, high = memory.kv_pool_bytes_low, memory.kv_pool_bytes_high
    if not memory.fits:
        low, high = memory.missing_bytes_low, memory.missing_bytes_high
        note = f"{format_bytes(low)} to {format_bytes(high)}, for one sequence of {memory.needed_tokens:,} tokens"
        return Tile(name="Missing on each GPU", value=format_bytes(memory.missing_bytes), note=note)
    held = f"{memory.sequences:,} sequences of {memory.context_tokens:,} tokens"
    note = f"{format_bytes(low)} to {format_bytes(high)}; {held}"
    return Tile(name="KV cache of a GPU", value=format_bytes(memory.kv_pool_bytes), note=note)


def _timed(name: str, figure: Figure) -> Tile:
    note = f"{format_seconds(figure.low)} to {format_seconds(figure.high)}, mean"
    return Tile(name=name, value=format_seconds(figure.value), note=note)


# Around the answers ---------------------------------------------------------------------------------------------------


def _warnings(answer: Answer[ReportResult]) -> tuple[Block, ...]:
    return (Points(texts=answer.warnings) if answer.warnings else Passage(text="None."),)


def _inputs(answer: Answer[ReportResult]) -> tuple[Block, ...]:
    table = Table(
        title="Inputs, and where each value comes from",
        columns=(
            Column(key="name", heading="input", left=True),
            Column(key="value", heading="value", left=True),
            Column(key="origin", heading="from", left=True),
        ),
        rows=tuple(
            {"name": name, "value": value, "origin": item.origin}
            for item in answer.inputs
            for name, value in (named_value(item),)
        ),
    )
    return (table, Passage(text="What the figures rest on:"), Points(texts=answer.assumptions))


def _reproduce(result: ReportResult) -> tuple[Block, ...]:
    if not result.reruns:
        return ()
    commands = tuple(Command(purpose=one.part, line=one.command) for one in result.reruns)
    said = (
        f"infcalc {result.version} gives the same numbers again with these lines, for a POSIX shell; prices are held "
        f"against {result.date or 'the day'}."
    )
    return (Passage(text=said), Commands(commands=commands))
