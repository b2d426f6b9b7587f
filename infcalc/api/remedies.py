"""Why an engine refused to start, in words, and what would fit: each remedy verified by the same prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.deployment import Ask, Deployment, kv_format, load, resolve
from infcalc.api.expecting import Expected, expected
from infcalc.api.sizing import deployment_budgets, page_settings
from infcalc.engines.logs.reading import EngineLog, Failure, FailureKind, Quantity
from infcalc.engines.rules import FractionBase
from infcalc.errors import InfcalcError
from infcalc.frozen import frozen
from infcalc.memory.blocks import plan
from infcalc.memory.ledger import longest_that_fits
from infcalc.spec.kv import KV_FORMATS
from infcalc.units import format_memory

if TYPE_CHECKING:
    from infcalc.spec.kv import KvFormat

_HIGHER_FRACTIONS = (0.92, 0.95, 0.97)
_HUNDREDTH = 100


@frozen
class Refusal:
    """One refusal of the engine: its line, its own words, what they mean, and what would fit."""

    kind: str
    line: int
    text: str
    explanation: str
    remedies: tuple[str, ...]


def explained(log: EngineLog, ask: Ask, deployment: Deployment, form: KvFormat) -> tuple[Refusal, ...]:
    """Return each refusal of a log with its meaning and its remedies."""
    unique = {failure.kind: failure for failure in log.failures}
    return tuple(
        Refusal(
            kind=failure.kind.value,
            line=failure.line,
            text=failure.text,
            explanation=_meaning(failure, log),
            remedies=_remedies(failure, ask, deployment, form, failure.max_model_len or deployment.max_model_len),
        )
        for failure in unique.values()
    )


def _meaning(failure: Failure, log: EngineLog) -> str:
    match failure.kind:
        case FailureKind.ONE_REQUEST:
            text = "one sequence of the maximum length"
            if failure.max_model_len:
                text += f" ({failure.max_model_len:,} tokens)"
            if failure.needed_bytes is None or failure.available_bytes is None:
                return f"{text} does not fit into the KV pool"
            return f"{text} needs {_size(failure.needed_bytes)} of KV, and {_size(failure.available_bytes)} are left"
        case FailureKind.FREE_MEMORY:
            return (
                f"{_size(failure.available_bytes)} of {_size(failure.total_bytes)} were free at the start, and the "
                f"fraction {failure.memory_fraction or 0:g} asks for {_size(failure.needed_bytes)}: another process "
                "holds the rest"
            )
        case FailureKind.NO_ROOM:
            weights = log.figure(Quantity.WEIGHTS)
            held = "" if weights is None else f" (weights alone take {_size(weights.value)})"
            return f"weights and the profiling run leave nothing of the engine's share for KV{held}"
        case FailureKind.OUT_OF_MEMORY:
            asked = "" if failure.needed_bytes is None else f" asking for {_size(failure.needed_bytes)} more"
            when = "before" if log.figure(Quantity.POOL) is None else "after"
            return f"the device ran out of memory{asked}, {when} the KV pool was set"


def _size(value: float | None) -> str:
    return "an unstated amount" if value is None else format_memory(round(value))


def _remedies(failure: Failure, ask: Ask, deployment: Deployment, form: KvFormat, length: int) -> tuple[str, ...]:
    found: list[str] = []
    if failure.kind is FailureKind.FREE_MEMORY and failure.available_bytes and failure.total_bytes:
        highest = int(failure.available_bytes / failure.total_bytes * _HUNDREDTH) / _HUNDREDTH
        flag = deployment.rules.fraction_flag
        if 0 < highest < 1:
            asked = replace(ask, memory_fraction=highest)
            pool = _pool(asked, form)
            fits = "" if pool is None else f": a KV pool of {_size(pool)} is predicted"
            found.append(f"{flag} {highest:g} is the highest that starts with what was free{fits}")
        found.append("free the memory that other processes hold, or wait until they have ended")
        return tuple(found)
    longest = _longest(deployment, form, length, failure.available_bytes)
    stated = failure.estimated_tokens if failure.kind is FailureKind.ONE_REQUEST else None
    if stated:
        agreed = " and by infcalc's" if stated == longest else ""
        found.append(f"--max-model-len {stated} is the longest by the engine's own figures{agreed}")
    if longest and longest < length and longest != stated:
        found.append(f"--max-model-len {longest} is the longest that is predicted to fit")
    found += [text for text, asked, kv in _changes(ask, deployment, form) if _fits(asked, kv, length)]
    return tuple(found) or ("none of a shorter length, another KV precision, a higher fraction or twice the GPUs fits",)


def _longest(deployment: Deployment, form: KvFormat, length: int, available: float | None) -> int:
    """Return the longest sequence that fits into what the engine had, else into what is predicted; 0 where none."""
    if deployment.rules.fraction_base is FractionBase.NONE:
        return 0
    settings = replace(page_settings(deployment), max_model_len=length)
    found = []
    for budget in deployment_budgets(deployment):
        cut = plan(deployment.model, form, deployment.parallelism, deployment.rules, settings, stage=budget.stage)
        pool = budget.kv_pool_bytes if available is None else max(0, int(available))
        found.append(longest_that_fits(pool, cut, deployment.rules, settings))
    return min(found)


def _changes(ask: Ask, deployment: Deployment, form: KvFormat) -> list[tuple[str, Ask, KvFormat]]:
    changes = []
    if form.element_bits > KV_FORMATS["fp8"].element_bits and deployment.rules.engine != "llama.cpp":
        changes.append(("--kv-cache-dtype fp8", ask, KV_FORMATS["fp8"]))
    share = deployment.fraction
    if share is not None:
        higher = next((one for one in _HIGHER_FRACTIONS if one > share), None)
        if higher is not None:
            text = f"{deployment.rules.fraction_flag} {higher:g}"
            changes.append((text, replace(ask, memory_fraction=higher), form))
    if deployment.weights in {"bf16", "fp16"}:
        changes.append(("weights in fp8", replace(ask, weights="fp8"), form))
    ranks = deployment.parallelism
    wider = replace(ask, num_gpus=None, tp=2 * ranks.tp, pp=ranks.pp, dp=ranks.dp)
    changes.append((f"tensor parallelism over {2 * ranks.tp} GPUs", wider, form))
    return changes


def _fits(ask: Ask, form: KvFormat, length: int) -> bool:
    expectation = _expected(replace(ask, max_model_len=length), form)
    if expectation is None:
        return False
    pool = expectation.span(Quantity.POOL)
    return pool is not None and pool.value > 0 and pool.value >= expectation.one_request_bytes


def _pool(ask: Ask, form: KvFormat) -> float | None:
    expectation = _expected(ask, form)
    span = None if expectation is None else expectation.span(Quantity.POOL)
    return None if span is None else span.value


def _expected(ask: Ask, form: KvFormat) -> Expected | None:
    """Return what a changed deployment is expected to have; None where it cannot be."""
    try:
        changed = resolve(ask, load(ask))[0]
        return expected(changed, kv_format(changed, form.name)[0])
    except InfcalcError:
        return None
