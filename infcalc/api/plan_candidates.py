"""What may be chosen: GPUs that serve, precisions that run there, and ways to split; the others with the reason."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.costing import rent_of
from infcalc.api.deployment import REFERENCE_ENGINE, stored_in
from infcalc.api.plan_drafting import draft_ways
from infcalc.catalog.quantization import runtime_quantization
from infcalc.engines.drafting import drafts_by
from infcalc.engines.limits import limits
from infcalc.engines.rules import FractionBase, engine_name, engine_rules
from infcalc.engines.verdicts import cache_kind, kv_verdict, weights_verdict
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.memory.weights import weights_total_bytes
from infcalc.planning.layouts import Undivided, layouts, tightly_joined, undivided
from infcalc.planning.nouns import Miss, Refusal, Setup
from infcalc.spec.kv import KV_ALIASES, KV_FORMATS
from infcalc.spec.parallelism import Parallelism
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from infcalc.api.costing import Terms
    from infcalc.api.deployment import Ask
    from infcalc.api.plan_ask import PlanAsk
    from infcalc.api.plan_drafting import DraftWay
    from infcalc.catalog.lookup import Catalog
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model
    from infcalc.spec.weights import WeightQuantization

_BOTH = frozenset({"fp8", "int8", "int4", "nvfp4"})
"""Words that name a precision of weights and of KV."""
_ONE = Parallelism()


@frozen
class Precision:
    """A weight precision: its word (None: the checkpoint's own), its name, and the bytes of all weights in it."""

    word: str | None
    name: str
    num_bytes: int


@frozen
class Choice:
    """All that a setup may be made of."""

    model: Model
    gpus: tuple[Gpu, ...]
    named: bool
    """Whether the GPUs were named: they are then taken where nothing on record speaks against them."""
    engines: tuple[str, ...]
    weights: tuple[Precision, ...]
    kv: tuple[str | None, ...]
    ask: Ask
    most_gpus: int | None
    drafts: tuple[DraftWay, ...] = ()


def choice_of(ask: Ask, asked: PlanAsk, model: Model, catalog: Catalog) -> Choice:
    """Return what may be chosen.

    Raises:
        UnknownName: a GPU or an engine that is not known.
        UsageError: a precision that is none.

    """
    names = asked.gpus_from or ask.gpus
    gpus = tuple(catalog.gpu(name).gpu for name in (names or catalog.gpu_names()))
    engines = asked.engines_from or (ask.engine or REFERENCE_ENGINE,)
    weights, kv = _precisions(ask, asked, model)
    return Choice(
        model=model,
        gpus=tuple({gpu.name: gpu for gpu in gpus}.values()),
        named=bool(names),
        engines=tuple(dict.fromkeys(engine_name(engine) for engine in engines)),
        weights=weights,
        kv=kv,
        ask=ask,
        most_gpus=ask.num_gpus or asked.max_gpus,
        drafts=draft_ways(asked.draft, model, catalog)[0],
    )


def _precisions(ask: Ask, asked: PlanAsk, model: Model) -> tuple[tuple[Precision, ...], tuple[str | None, ...]]:
    """Return the precisions of weights and of KV: those asked for, else the checkpoint's own, and what is allowed."""
    word = None if ask.weights in {None, "auto"} else ask.weights
    own = _precision(word, model)
    weights = [own]
    kv: list[str | None] = [*ask.kv_dtypes] or [None]
    for text in asked.allow:
        side, equals, form = text.strip().lower().rpartition("=")
        if equals and side not in {"weights", "kv"}:
            raise UsageError(
                f"{text!r} is nothing to allow", place="--allow", hint="write fp8, int4, weights=awq or kv=fp8"
            )
        name = KV_ALIASES.get(form, form)
        both = not equals and form in _BOTH
        if (
            side == "kv"
            or both
            or (not equals and name in KV_FORMATS and name not in {"bf16", "fp16"} and form not in _BOTH)
        ):
            if name not in KV_FORMATS:
                raise UsageError(
                    f"{form!r} is not a KV-cache precision", place="--allow", hint=f"one of {', '.join(KV_FORMATS)}"
                )
            kv.append(name)
            if not both:
                continue
        try:
            found = _precision(form, model)
        except UsageError as wrong:
            hint = wrong.hint or "write fp8, int4, weights=awq or kv=fp8"
            raise UsageError(wrong.message, place="--allow", hint=hint) from None
        # What is no narrower than the checkpoint only costs.
        if found.num_bytes < own.num_bytes:
            weights.append(found)
    return tuple(dict.fromkeys(weights)), tuple(dict.fromkeys(kv))


def _precision(word: str | None, model: Model) -> Precision:
    quantization: WeightQuantization | None = model.quantization if word is None else runtime_quantization(word, model)
    return Precision(word=word, name=word or stored_in(model), num_bytes=weights_total_bytes(model, quantization))


def setups(choice: Choice, terms: Terms, *, priced: bool) -> Iterator[Setup | Refusal]:
    """Yield every setup that memory and time must be asked of, and every other with the reason.

    ``priced``: what has no price is refused, for it cannot be compared.
    """
    yield from _undrafted(choice)
    for gpu in choice.gpus:
        first = Setup(gpu=gpu.name, ranks=_ONE, engine=choice.engines[0])
        if priced and rent_of(gpu, terms) is None:
            yield Refusal(
                setup=first,
                kind=Miss.PRICE,
                reason=f"no price of {gpu.name} is known",
                change="--price 2.5, or a price in an overlay (--catalog)",
            )
            continue
        for engine in choice.engines:
            for precision in choice.weights:
                for kv in choice.kv:
                    yield from _of_precision(choice, gpu, engine, precision, kv)


def _of_precision(
    choice: Choice, gpu: Gpu, engine: str, precision: Precision, kv: str | None
) -> Iterator[Setup | Refusal]:
    model = choice.model
    first = Setup(gpu=gpu.name, ranks=_ONE, engine=engine, weights=precision.word, kv=kv)
    rules = engine_rules(engine, choice.ask.engine_version, gpu, tp=1, pp=1, dp=1)
    refused = _unsupported(choice, gpu, first, rules.version, precision)
    if refused is not None:
        yield refused
        return
    # A fraction of what weights leave does not bound them.
    whole = rules.fraction_base in {FractionBase.FREE_AFTER_WEIGHTS, FractionBase.NONE}
    fraction = 1.0 if whole else choice.ask.memory_fraction or rules.fraction or 1.0
    usable = gpu.cuda_total_bytes * fraction
    least = max(1, math.ceil((precision.num_bytes - choice.ask.cpu_offload_bytes) / usable))
    if least > 1:
        yield _too_few(first, precision, usable, least)
    by_layer = limits(engine).splits_by_layer
    ways: Iterable[Parallelism | Undivided] = layouts(model, gpu, least_gpus=least, most_gpus=choice.most_gpus)
    found = False
    for way in ways:
        if isinstance(way, Undivided):
            yield Refusal(setup=_with(first, way.ranks), kind=Miss.DIVISION, reason=way.why)
            continue
        if _fixed(choice.ask, way) and not (by_layer and (way.dp > 1 or way.ep > 1)):
            found = True
            yield from _drafted(choice, _with(first, way))
    if not found and least > (choice.most_gpus or math.inf):
        yield Refusal(
            setup=first,
            kind=Miss.GPUS,
            reason=f"the weights need {least:,} {gpu.name}",
            quantity="num_gpus",
            limit=float(choice.most_gpus or 0),
            value=float(least),
            change=f"--max-gpus {least}",
        )
    elif not found:
        yield _unsplit(choice, gpu, first)


def _unsplit(choice: Choice, gpu: Gpu, first: Setup) -> Refusal:
    """Return why a split that was asked for is none of a GPU's."""
    ask, machine = choice.ask, tightly_joined(gpu)
    asked = [
        f"--{word} {ranks}"
        for word, ranks in (("gpus", ask.num_gpus), ("tp", ask.tp), ("pp", ask.pp), ("dp", ask.dp), ("ep", ask.ep))
        if ranks is not None
    ]
    ranks = Parallelism(tp=ask.tp or 1, pp=ask.pp or 1, dp=ask.dp or 1, ep=ask.ep or 1)
    reason = undivided(choice.model, ranks)
    if reason is None:
        why = "no split that is looked at has that"
        if ranks.tp > machine:
            why = f"a tensor-parallel group lies in one machine or NVLink domain, of {gpu.name} {machine}"
        reason = f"{' '.join(asked)}: {why}"
    return Refusal(
        setup=_with(first, ranks),
        kind=Miss.DIVISION,
        reason=reason,
        change=f"leave {' '.join(asked)} out",
    )


def _with(setup: Setup, ranks: Parallelism) -> Setup:
    return replace(setup, ranks=ranks)


def _drafted(choice: Choice, setup: Setup) -> Iterator[Setup]:
    """Yield a setup without drafting, and with each way and length that its engine has."""
    yield setup
    for way in choice.drafts:
        if not way.why_not and drafts_by(setup.engine, way.method):
            for length in way.num_draft_tokens:
                yield replace(setup, method=str(way.method), draft_model=way.draft_model, num_draft_tokens=length)


def _undrafted(choice: Choice) -> Iterator[Refusal]:
    """Yield once why a way of drafting is none for this model, or for an engine."""
    for way in choice.drafts:
        for engine in choice.engines[:1] if way.why_not else choice.engines:
            if not way.why_not and drafts_by(engine, way.method):
                continue
            yield Refusal(
                setup=Setup(gpu=choice.gpus[0].name, ranks=_ONE, engine=engine, method=str(way.method)),
                kind=Miss.DRAFTING,
                reason=way.why_not or f"{engine} does not draft by {way.method}",
                change=way.change,
            )


def _fixed(ask: Ask, ranks: Parallelism) -> bool:
    """Tell whether a split is one that was asked for."""
    asked = (
        (ask.tp, ranks.tp),
        (ask.pp, ranks.pp),
        (ask.dp, ranks.dp),
        (ask.ep, ranks.ep),
        (ask.num_gpus, ranks.num_gpus),
    )
    return all(wanted is None or wanted == value for wanted, value in asked)


def _too_few(first: Setup, precision: Precision, usable: float, least: int) -> Refusal:
    number = least - 1
    share = precision.num_bytes / number
    spread = "" if number == 1 else f" over {number} GPUs"
    return Refusal(
        setup=_with(first, Parallelism(tp=number)),
        kind=Miss.MEMORY,
        reason=(f"the weights alone are {format_bytes(share)} a GPU{spread}, of {format_bytes(usable)} for the engine"),
        quantity="weights_bytes_per_gpu",
        limit=usable,
        value=share,
        change=f"{least} GPUs",
    )


def _unsupported(choice: Choice, gpu: Gpu, first: Setup, version: str, precision: Precision) -> Refusal | None:
    """Return why an engine cannot serve these precisions on a GPU; None where it can."""
    model, engine = choice.model, first.engine
    stored = weights_verdict(engine, version, gpu, precision.name)
    named = first.kv or model.kv_dtype or (model.dtype if model.dtype in {"bf16", "fp16"} else "bf16")
    cached = kv_verdict(engine, version, gpu, named, cache=cache_kind(model))
    # What is nowhere recorded is taken where it was asked for by name, or is the plain choice.
    plain = first.kv is None
    for verdict, trusted in ((stored, choice.named), (cached, choice.named or plain)):
        if verdict.supported is False or (verdict.supported is None and not trusted):
            mend = (
                "--weights fp16"
                if precision.name == "bf16" and weights_verdict(engine, version, gpu, "fp16").supported
                else ""
            )
            return Refusal(setup=first, kind=Miss.PRECISION, reason=f"{engine} {version}: {verdict.text}", change=mend)
    return None
