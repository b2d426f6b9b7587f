"""Why an engine refused to start, in words, and what would fit.

Each remedy is verified by the same prediction, corrected by what the refusal shows of the memory that was there.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, assert_never

from infcalc.api.changes import Candidate, Kind, can_serve, families
from infcalc.api.deployment import Ask, Deployment, deploy, kv_format, single_kv_dtype
from infcalc.api.expecting import Expected, expected
from infcalc.api.ledger import longest_for
from infcalc.api.sizing import deployment_budgets, page_settings
from infcalc.engines.logs.reading import EngineLog, Failure, FailureKind, Quantity
from infcalc.engines.rules import FractionBase
from infcalc.errors import InfcalcError
from infcalc.frozen import frozen
from infcalc.memory.blocks import plan
from infcalc.memory.ledger import longest_that_fits
from infcalc.units import format_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.catalog.lookup import GpuEntry, ModelEntry
    from infcalc.spec.kv import KvFormat

Entries: TypeAlias = "tuple[ModelEntry, GpuEntry]"
_HUNDREDTH = 100
_STATED = (
    *("max_model_len", "estimated_tokens", "needed_bytes", "available_bytes", "total_bytes", "memory_fraction"),
    *("max_num_seqs", "num_blocks", "num_dummy_requests"),
)


_MORE_BLOCKS = frozenset({Kind.GPUS, Kind.RANKS, Kind.FRACTION, Kind.WEIGHTS})


@frozen
class _Refused:
    """What was refused: the log, the deployment that it states, what was expected of it, and where changes resolve."""

    log: EngineLog
    ask: Ask
    deployment: Deployment
    form: KvFormat
    base: Expected
    entries: Entries


@frozen
class Refusal:
    """One refusal of the engine: its line, its own words, what they mean, and what would fit."""

    kind: str
    line: int
    text: str
    explanation: str
    remedies: tuple[str, ...]


def explained(
    log: EngineLog, ask: Ask, deployment: Deployment, form: KvFormat, entries: Entries
) -> tuple[Refusal, ...]:
    """Return each refusal of a log with its meaning and its remedies, on the model and card of ``entries``."""
    total = log.figure(Quantity.DEVICE_TOTAL)
    if total is not None and total.value > 0:
        # The card that refused has what the log says, whatever drivers leave of others of its name.
        gpu = replace(deployment.gpu, cuda_total_bytes=round(total.value))
        deployment = replace(deployment, gpu=gpu)
        entries = (entries[0], replace(entries[1], gpu=gpu))
    case = _Refused(
        log=log, ask=ask, deployment=deployment, form=form, base=expected(deployment, form), entries=entries
    )
    unique: dict[FailureKind, Failure] = {}
    for failure in log.failures:
        # One event is worded several times: what each says belongs together, and the last says most.
        earlier = unique.get(failure.kind)
        unique[failure.kind] = failure if earlier is None else _joined(earlier, failure)
    return tuple(
        Refusal(
            kind=failure.kind.value,
            line=failure.line,
            text=failure.text,
            explanation=_meaning(failure, log),
            remedies=_remedies(failure, case),
        )
        for failure in unique.values()
    )


def _joined(earlier: Failure, later: Failure) -> Failure:
    """Return the later failure, with what only the earlier one of its kind states."""
    unsaid = {
        name: getattr(earlier, name)
        for name in _STATED
        if getattr(later, name) is None and getattr(earlier, name) is not None
    }
    return replace(later, **unsaid)


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
            doing = ""
            if failure.num_dummy_requests:
                doing = f", while {failure.num_dummy_requests:,} requests at once (max_num_seqs) were tried"
            return f"the device ran out of memory{asked}, {when} the KV pool was set{doing}"
        case FailureKind.STATES:
            return (
                f"each running sequence takes a block of the recurrent layers' cache: {failure.max_num_seqs or 0:,} "
                f"sequences are allowed (max_num_seqs), and {failure.num_blocks or 0:,} blocks are there"
            )
        case _:
            assert_never(failure.kind)


def _size(value: float | None) -> str:
    return "an unstated amount" if value is None else format_memory(round(value))


def _remedies(failure: Failure, case: _Refused) -> tuple[str, ...]:
    length = failure.max_model_len or case.deployment.max_model_len
    case = replace(case, ask=replace(case.ask, kv_dtypes=(case.form.name,), max_model_len=length))
    match failure.kind:
        case FailureKind.FREE_MEMORY:
            return _with_what_was_free(failure, case)
        case FailureKind.OUT_OF_MEMORY:
            found = _freeing(failure.needed_bytes, case)
            if failure.num_dummy_requests and failure.num_dummy_requests > 1:
                fewer = f"--max-num-seqs below {failure.num_dummy_requests} has it try fewer at once (its own advice)"
                found = (*found, fewer)
            return found or ("no lower fraction, and neither narrower weights nor more GPUs, frees as much",)
        case FailureKind.STATES:
            return _with_fewer_states(failure, case)
        case FailureKind.ONE_REQUEST | FailureKind.NO_ROOM:
            shown = _shown_by(failure, case.log, case.base)
            found = (*_shorter(failure, case, length, shown), *_changed(case, shown))
            return found or ("none of a shorter length, another precision, a higher fraction or more GPUs fits",)
        case _:
            assert_never(failure.kind)


def _with_fewer_states(failure: Failure, case: _Refused) -> tuple[str, ...]:
    """Return how many sequences the engine's own blocks admit, and what yields blocks for as many as were asked."""
    found: dict[Kind, str] = {}
    wanted, held, span = failure.max_num_seqs, failure.num_blocks, case.base.span(Quantity.BLOCKS)
    if held:
        found[Kind.SEQUENCES] = f"--max-num-seqs {held} is the most that the engine's own blocks admit"
    if wanted and held and span is not None:
        for candidate, changed in _candidates(case):
            blocks = changed.expectation.span(Quantity.BLOCKS)
            # Whatever else the card holds, it holds after a change as well.
            if candidate.kind in _MORE_BLOCKS and candidate.kind not in found and blocks is not None:
                spread = candidate.kind in {Kind.GPUS, Kind.RANKS}
                shift = held - span.value
                if blocks.value + (min(0.0, shift) if spread else shift) >= wanted:
                    found[candidate.kind] = _words(candidate, changed.deployment)
    return tuple(found.values()) or ("--max-num-seqs of no more than the blocks that are there",)


def _with_what_was_free(failure: Failure, case: _Refused) -> tuple[str, ...]:
    found = []
    if failure.available_bytes and failure.total_bytes:
        highest = int(failure.available_bytes / failure.total_bytes * _HUNDREDTH) / _HUNDREDTH
        if 0 < highest < 1:
            flag = case.deployment.rules.fraction_flag
            said = f"{flag} {highest:g} is the highest that passes with what was free"
            found.append(said + _predicted_then(replace(case.ask, memory_fraction=highest), case.entries))
    found.append("free the memory that other processes hold, or wait until they have ended")
    return tuple(found)


def _predicted_then(ask: Ask, entries: Entries) -> str:
    """Return in words what is predicted with a lower fraction: a pool, and whether it holds one sequence."""
    changed = _resolved(ask, entries)
    pool = None if changed is None else changed.expectation.span(Quantity.POOL)
    if changed is None or pool is None:
        return ""
    less = ""
    if not 0 < pool.value >= changed.expectation.one_request_bytes:
        less = f", too little for one sequence of {changed.deployment.max_model_len:,} tokens"
        longest = longest_for(changed.deployment, changed.form)
        less += f": with --max-model-len {longest} the longest fits" if longest else " or of any length"
    return f": a KV pool of {_size(pool.value)} is predicted{less}"


# What a refusal shows, over what was predicted ----------------------------------------------------------------------


@frozen
class _Shown:
    """What a log shows of the memory that the prediction does not know, on the governing GPU."""

    pool_bytes: float | None
    """KV pool that the engine had; None: the log does not tell, and the prediction holds."""
    shift_bytes: float
    """What it had more than predicted: whatever the cause, it is there after a change as well."""
    need_fraction: float
    """KV of one sequence, as the engine has it, over the predicted."""


def _shown_by(failure: Failure, log: EngineLog, base: Expected) -> _Shown:
    span, figure = base.span(Quantity.POOL), log.figure(Quantity.POOL)
    predicted = 0.0 if span is None else span.value
    pool = failure.available_bytes
    if pool is None and figure is not None:
        pool = figure.value
    if pool is None and failure.estimated_tokens and failure.max_model_len and base.plain:
        pool = base.one_request_bytes * failure.estimated_tokens / failure.max_model_len
    if pool is None and failure.kind is FailureKind.NO_ROOM:
        pool = 0.0
    factor = 1.0
    if failure.needed_bytes and base.one_request_bytes and failure.kind is FailureKind.ONE_REQUEST:
        factor = failure.needed_bytes / base.one_request_bytes
    return _Shown(pool_bytes=pool, shift_bytes=0.0 if pool is None else pool - predicted, need_fraction=factor)


def _shorter(failure: Failure, case: _Refused, length: int, shown: _Shown) -> tuple[str, ...]:
    found = []
    longest = _longest(case.deployment, case.form, length, shown)
    stated = failure.estimated_tokens if failure.kind is FailureKind.ONE_REQUEST else None
    if stated:
        agreed = " and by infcalc's" if stated == longest else ""
        found.append(f"--max-model-len {stated} is the longest by the engine's own figures{agreed}")
    if longest and longest < length and longest != stated:
        basis = "is predicted to fit" if shown.pool_bytes is None else "fits into what the engine had"
        found.append(f"--max-model-len {longest} is the longest that {basis}")
    return tuple(found)


def _longest(deployment: Deployment, form: KvFormat, length: int, shown: _Shown) -> int:
    """Return the longest sequence that fits into what the engine had, else into what is predicted; 0 where none."""
    if deployment.rules.fraction_base is FractionBase.NONE:
        return 0
    settings = replace(page_settings(deployment), max_model_len=length)
    found = []
    for budget in deployment_budgets(deployment):
        cut = plan(deployment.model, form, deployment.parallelism, deployment.rules, settings, stage=budget.stage)
        pool = budget.kv_pool_bytes if shown.pool_bytes is None else max(0.0, shown.pool_bytes)
        found.append(longest_that_fits(int(pool / shown.need_fraction), cut, deployment.rules, settings))
    return min(found)


def _changed(case: _Refused, shown: _Shown) -> tuple[str, ...]:
    """Return the nearest change of each kind with which one sequence fits, in the light of what the log shows."""
    found: dict[Kind, str] = {}
    for candidate, changed in _candidates(case):
        if candidate.kind in found or (candidate.kind is Kind.BOTH and {Kind.KV, Kind.WEIGHTS} & set(found)):
            continue
        pool = changed.expectation.span(Quantity.POOL)
        # Other ranks shift otherwise: more than predicted is not counted on.
        spread = candidate.kind in {Kind.GPUS, Kind.RANKS}
        shift = min(0.0, shown.shift_bytes) if spread else shown.shift_bytes
        needed = changed.expectation.one_request_bytes * shown.need_fraction
        if pool is not None and pool.value > 0 and pool.value + shift >= max(needed, 1):
            found[candidate.kind] = _words(candidate, changed.deployment)
    return tuple(found.values())


def _freeing(asked_bytes: float | None, case: _Refused) -> tuple[str, ...]:
    """Return what leaves the device as much more as it lacked, and still holds one sequence.

    After the pool was set a lower fraction does; before, only what takes less beside the pool. ``asked_bytes`` None:
    how much was lacking is not known.
    """
    lacked_bytes = asked_bytes or 0.0
    found: dict[Kind, str] = {}
    if case.log.figure(Quantity.POOL) is not None:
        lower = _lower_fraction(lacked_bytes, case)
        if lower is not None:
            freed = "as much more free" if asked_bytes else "more free, and the log does not say how much was lacking"
            found[Kind.FRACTION] = f"{case.deployment.rules.fraction_flag} {lower:g} leaves {freed}"
    for candidate, changed in _candidates(case):
        if candidate.kind in found or candidate.kind not in {Kind.GPUS, Kind.RANKS, Kind.WEIGHTS}:
            continue
        pool = changed.expectation.span(Quantity.POOL)
        fits = pool is not None and 0 < pool.value >= changed.expectation.one_request_bytes
        if fits and _beside(case.base) - _beside(changed.expectation) > lacked_bytes:
            found[candidate.kind] = _words(candidate, changed.deployment)
    return tuple(found.values())


def _candidates(case: _Refused) -> Iterator[tuple[Candidate, _Changed]]:
    """Yield each change that the engine can do, with what is expected of it."""
    for family in families(case.ask, case.deployment, case.form):
        for candidate in family:
            changed = _resolved(candidate.ask, case.entries)
            if changed is not None and can_serve(candidate, changed.deployment, changed.form):
                yield candidate, changed


def _lower_fraction(lacked_bytes: float, case: _Refused) -> float | None:
    """Return the highest fraction, in hundredths, whose pool is smaller by what was lacked and holds one sequence."""
    span, own = case.base.span(Quantity.POOL), case.deployment.fraction
    if span is None or own is None:
        return None
    for hundredths in range(math.ceil(own * _HUNDREDTH) - 1, 0, -1):
        changed = _resolved(replace(case.ask, memory_fraction=hundredths / _HUNDREDTH), case.entries)
        pool = None if changed is None else changed.expectation.span(Quantity.POOL)
        if changed is None or pool is None or pool.value < max(1, changed.expectation.one_request_bytes):
            return None
        if span.value - pool.value >= lacked_bytes:
            return hundredths / _HUNDREDTH
    return None


def _beside(expectation: Expected) -> float:
    spans = [expectation.span(one) for one in (Quantity.WEIGHTS, Quantity.NON_TORCH, Quantity.ACTIVATION)]
    return sum(span.value for span in spans if span is not None)


_KV_FLAGS = {"vllm": "--kv-cache-dtype fp8", "sglang": "--kv-cache-dtype fp8_e4m3"}


def _words(candidate: Candidate, deployment: Deployment) -> str:
    """Return a change as the user of an engine says it."""
    value, tp = candidate.value, deployment.parallelism.tp
    return {
        Kind.GPUS: f"tensor parallelism over {tp} GPUs" if tp > 1 else f"{deployment.parallelism.num_gpus} GPUs",
        Kind.RANKS: f"{value} on the same GPUs",
        Kind.LENGTH: candidate.text,
        Kind.FRACTION: f"{deployment.rules.fraction_flag} {value}",
        Kind.KV: _KV_FLAGS.get(deployment.rules.engine, f"a KV cache in {value}"),
        Kind.WEIGHTS: f"weights in {value}",
        Kind.SEQUENCES: f"at most {value} sequences at once",
        Kind.BOTH: f"weights and KV cache in {value}",
    }[candidate.kind]


@frozen
class _Changed:
    """A change, resolved on the same card, and what is expected of it."""

    deployment: Deployment
    form: KvFormat
    expectation: Expected


def _resolved(ask: Ask, entries: Entries) -> _Changed | None:
    """Return what a changed ask means on the same card, and what is expected of it; None where it cannot be."""
    try:
        changed = deploy(ask, *entries)
        form = kv_format(changed, single_kv_dtype(ask))[0]
        return _Changed(deployment=changed, form=form, expectation=expected(changed, form))
    except InfcalcError:
        return None
