"""How right is the memory ledger? Its predictions against the memory figures of recorded start-up logs.

Only settings and properties of the machine go into a prediction, never a figure the engine printed about its memory.
One exception is a checkpoint that the entry does not identify: then its printed weights stand in, and are not scored.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, Deployment, deploy, kv_format
from infcalc.api.ledger import deployment_ledger, most_sequences
from infcalc.api.recorded import FRACTIONS, FULL, Rejected, checked
from infcalc.api.scoring import ValidationSummary, summary
from infcalc.catalog.free_text import (
    ReadGpu,
    ReadModel,
    read_gpu_text,
    read_kv_text,
    read_model_text,
    read_weights_text,
    says_nothing,
)
from infcalc.engines.reported import read_version_text
from infcalc.engines.rules import parse_version
from infcalc.errors import FileProblem, InfcalcError, UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Input
from infcalc.spec.layers import CompressedAttention, LatentAttention, Reach, RecurrentMixer
from infcalc.units import GIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from infcalc.catalog.lookup import Catalog
    from infcalc.engines.evidence import Evidence
    from infcalc.memory.ledger import Ledger
    from infcalc.spec.hardware import Gpu

QUANTITIES = ("weights_bytes", "kv_pool_bytes", "kv_pool_of_card_fraction", "kv_cache_tokens", "max_concurrency")
_SCORED_AS = {"kv_blocks": "kv_cache_tokens"}
"""Blocks whose size a log does not print err as their tokens would."""
_WIDE_FRACTION = 0.35
_WEIGHTS_BAND_FRACTION = 0.02
"""Precisions of single modules that a checkpoint's name does not tell: 27 of 31 logs lie within it."""
_UNSLOTH_RANK = 64
"""Rank of the adapters that Unsloth starts vLLM with where its user says none: its ``FastLanguageModel``."""
_LORA_RANK = 16
"""That of vLLM itself: its ``LoRAConfig``."""
_MOST_BLOCK_TOKENS = 256
"""Larger blocks are those an engine computes for a hybrid model: no setting."""
_DRAFT_LAYERS = 3
_GEFORCE_SEQUENCES = 8
_RECENT = (0, 20)
_DRAFT_TOKENS = re.compile(r"([0-9]+)\s*(?:draft\s*)?tokens?|k\s*=\s*([0-9]+)")


@frozen
class ValidationCase:
    """One quantity of one log: what was measured, what is predicted without it, and how far off that is."""

    id: str
    engine: str
    version: str
    attention: str
    tp: int
    status: str
    """``scored`` or ``skipped``."""
    reason: str
    quantity: str
    measured: float | None
    predicted: float | None
    low: float | None
    high: float | None
    error_fraction: float | None
    """(predicted - measured) / measured."""
    assumed: tuple[str, ...] = ()
    """Inputs that the log does not state."""
    warnings: tuple[str, ...] = ()


@frozen
class ValidationResult:
    """All cases of a file and their summary."""

    cases: tuple[ValidationCase, ...]
    summary: tuple[ValidationSummary, ...]


def validate_memory(path: str, *, catalogs: tuple[str, ...] = ()) -> Answer[ValidationResult]:
    """Return the predictions for every entry of a file of recorded logs, against what they print.

    Raises:
        FileProblem: no such file, or not a list of entries.

    """
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    entries, rejected = checked(files.read_yaml(path), path)
    result = validated(entries, files.load_catalog(catalogs), rejected=rejected)
    if not result.cases:
        raise FileProblem(
            "none of its entries is of quality full and states a figure",
            place=path,
            hint="set quality: full, and weights_gib_per_gpu, available_kv_gib, kv_cache_tokens or max_concurrency",
        )
    return Answer(
        command="validate",
        results=(result,),
        inputs=(
            Input(name="file", value=path, origin="given"),
            Input(name="entries", value=len(entries) + len(rejected), origin="of quality full"),
        ),
        assumptions=(
            "scored are entries of quality full; errors are of the prediction, relative to the measurement",
            (
                "no printed memory figure goes into a prediction; where the checkpoint is not identified its printed "
                "weights stand in and are not scored"
            ),
        ),
        warnings=(
            *(f"left out: {one.problem.place}: {one.problem.message} ({one.problem.hint})" for one in rejected),
            *_by_entry(result.cases),
        ),
    )


def _by_entry(cases: Sequence[ValidationCase]) -> tuple[str, ...]:
    """Return each warning of an entry once, with the quantities it is about."""
    about: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        for text in case.warnings:
            about.setdefault((case.id, text), []).append(case.quantity)
    return tuple(f"{name} ({', '.join(dict.fromkeys(found))}): {text}" for (name, text), found in about.items())


def validated(
    entries: Sequence[Mapping[str, Any]], catalog: Catalog, *, rejected: Sequence[Rejected] = ()
) -> ValidationResult:
    """Return the cases and summary of a list of entries; those of ``rejected`` are skipped, with what is wrong."""
    scored = (case for entry in entries if entry.get("quality") == FULL for case in _cases(entry, catalog))
    cases = (*scored, *(case for one in rejected for case in _cases_of_rejected(one)))
    return ValidationResult(cases=cases, summary=_summaries(cases))


_FIGURES = {
    "weights_gib_per_gpu": ("weights_bytes", GIB),
    "available_kv_gib": ("kv_pool_bytes", GIB),
    "kv_cache_tokens": ("kv_cache_tokens", 1),
    "max_concurrency": ("max_concurrency", 1),
}


def _cases_of_rejected(rejected: Rejected) -> list[ValidationCase]:
    """Return a skipped case for each figure that an entry states, whatever cannot be read of it."""
    entry, problem = rejected.entry, rejected.problem
    tp = entry.get("tp")
    known: dict[str, Any] = {key: value if isinstance(value, str | int | float) else "" for key, value in entry.items()}
    known["tp"] = tp if isinstance(tp, int) and tp > 0 else None
    found = []
    for key, (quantity, unit) in _FIGURES.items():
        value = entry.get(key)
        if value is None:
            continue
        measured = value * unit if isinstance(value, int | float) and math.isfinite(value) else None
        case = _case(known, quantity, measured, None, reason=f"{problem.message} ({problem.hint})")
        found.append(replace(case, id=case.id or str(problem.place), tp=known["tp"] or 0))
    return [*found, *(_skipped_share(case) for case in found if case.quantity == "kv_pool_bytes")]


def _skipped_share(case: ValidationCase) -> ValidationCase:
    """Return the skipped case of a pool as one of its share of a card that is not known."""
    return replace(case, quantity="kv_pool_of_card_fraction", measured=None)


# Entry -> prediction ------------------------------------------------------------------------------------------------


@frozen
class _Prediction:
    ledger: Ledger
    deployment: Deployment
    stands_in: bool
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]


def predict(entry: Mapping[str, Any], catalog: Catalog) -> _Prediction:
    """Return what is predicted for one entry.

    Raises:
        InfcalcError: the entry does not say enough, or names what is not known.

    """
    model = read_model_text(catalog, str(entry.get("model") or ""))
    total = entry.get("total_gpu_memory_gib")
    gpu = read_gpu_text(catalog, entry.get("gpu"), None if total is None else round(float(total) * GIB))
    checkpoint = _checkpoint(entry, model)
    if not gpu.variants:
        return _on_card(entry, model, checkpoint, gpu)
    # Cards of one name, the smaller first: people report what they expected to work.
    cards = sorted((catalog.gpu(name) for name in gpu.variants), key=lambda one: one.gpu.cuda_total_bytes)
    tried = (
        _on_card(entry, model, checkpoint, replace(gpu, entry=card, assumptions=(), warnings=card.warnings))
        for card in cards
    )
    found = None
    for found in tried:
        if found.ledger.fits:
            break
    if found is None:
        raise FileProblem(f"{gpu.entry.gpu.name} is the name of no card", place=_text(entry.get("id")))
    length = f"one sequence of {found.deployment.max_model_len:,} tokens fits"
    why = f"the smallest on which {length}" if found.ledger.fits else f"the largest, for on none {length}"
    said = (
        f"{_text(entry.get('gpu'))} is the name of {' and '.join(gpu.variants)}, and the report does not say which: "
        f"{found.deployment.gpu.name} is taken, {why}"
    )
    return replace(found, warnings=distinct([said, *found.warnings]))


@frozen
class _Checkpoint:
    """What an entry says of how its weights are stored."""

    stated: str | None
    """The word of ``--weights``; None: nothing that is understood."""
    printed_bytes: int | None
    """Printed weights, where they stand in for those of a checkpoint that is not identified."""
    warnings: tuple[str, ...]


def _checkpoint(entry: Mapping[str, Any], model: ReadModel) -> _Checkpoint:
    printed, word = entry.get("weights_gib_per_gpu"), entry.get("quantization")
    unread = _unread(entry, "quantization", read_weights_text)
    identified = model.identified and (not unread or model.entry.model.quantization is not None)
    stated = read_weights_text(word) or read_weights_text(_remarks(str(entry.get("model") or "")))
    if not identified and printed is None and stated is None:
        why = f"quantization {word!r} is not known" if unread else "the checkpoint is not identified"
        raise FileProblem(f"{why}, and its weights are not printed", place=_text(entry.get("id")))
    if identified and "mixed" not in str(word or ""):
        printed = None
    used = "the checkpoint's own is taken" if printed is None else "the printed weights stand in"
    return _Checkpoint(
        stated=stated,
        printed_bytes=None if printed is None else round(float(printed) * GIB),
        warnings=(f"quantization {word!r} is not known: {used}",) if unread else (),
    )


def _on_card(entry: Mapping[str, Any], model: ReadModel, checkpoint: _Checkpoint, gpu: ReadGpu) -> _Prediction:
    engine = str(entry.get("engine") or "vllm")
    text = str(entry.get("model") or "")
    version = read_version_text(engine, entry.get("version"), _text(entry.get("date")))
    if entry.get("tp") is None and entry.get("gpu_count") is None:
        raise FileProblem("the number of ranks is not stated", place=_text(entry.get("id")))
    drafts = _draft_tokens(entry.get("spec_decode"))
    own_drafts = drafts > 0 and "mtp" in str(entry["spec_decode"]).lower() and model.entry.model.mtp is not None
    fraction = next((entry[key] for key in FRACTIONS if entry.get(key) is not None), None)
    ask = Ask(
        tp=entry.get("tp") or 1,
        pp=entry.get("pp") or 1,
        dp=entry.get("dp") or 1,
        ep=entry.get("ep") or 1,
        dcp=entry.get("dcp") or 1,
        weights=_weights(model.entry.model.quantization, checkpoint.stated, entry),
        engine=engine,
        engine_version=version.version,
        memory_fraction=None if fraction is None else float(fraction),
        max_model_len=entry.get("max_model_len") or entry.get("context_len"),
        max_num_seqs=entry.get("max_num_seqs") or _few_sequences(entry, gpu.entry.gpu, version.version),
        max_num_batched_tokens=entry.get("max_num_batched_tokens"),
        block_size=_block_size(engine, model.entry.model, entry),
        enforce_eager=bool(entry.get("enforce_eager")),
        num_draft_tokens=drafts if own_drafts else None,
        lora_rank=_lora_rank(entry, text),
    )
    base = deploy(ask, model.entry, gpu.entry, strict=False)
    if drafts and not own_drafts:
        base = replace(base, num_draft_tokens=drafts)
    if "dspark" in str(entry.get("spec_decode") or ""):
        base = _with_draft_head(base)
    odd = (*_odd_ranks(ask, model, gpu), *model.assumptions)
    if checkpoint.printed_bytes is not None:
        base = replace(base, additions=replace(base.additions, weights_bytes=checkpoint.printed_bytes))
    form, _, _ = kv_format(base, _kv_word(entry, base))
    assumed = _assumed(entry, version.assumptions, gpu.exact, fraction is None)
    book = deployment_ledger(base, form, context_tokens=base.max_model_len, unstated=assumed)
    if "max_num_seqs" in assumed and base.max_num_seqs > (admitted := most_sequences(base.rules, book)):
        # The engine would not have started with its own default: it was asked for fewer.
        base = replace(base, max_num_seqs=2 ** (admitted.bit_length() - 1))
        book = deployment_ledger(base, form, context_tokens=base.max_model_len, unstated=assumed)
    described = () if gpu.exact else gpu.assumptions
    talk = [*odd, *described, *gpu.warnings, *version.assumptions, *base.warnings, *checkpoint.warnings]
    if entry.get("spec_decode") and not own_drafts:
        talk.append(f"a draft of its own ({entry['spec_decode']}): its weights, cache layers and steps are not known")
    return _Prediction(
        ledger=book,
        deployment=base,
        stands_in=checkpoint.printed_bytes is not None,
        assumed=assumed,
        warnings=distinct(talk),
    )


def _odd_ranks(ask: Ask, model: ReadModel, gpu: ReadGpu) -> tuple[str, ...]:
    """Return a warning where no engine could split the model as an entry says: one of the two is not what ran."""
    try:
        deploy(ask, model.entry, gpu.entry)
    except UsageError as problem:
        where = f"{problem.place}: " if problem.place else ""
        return (f"{where}{problem.message}, and that is what the entry says: is its model the right one?",)
    return ()


def _few_sequences(entry: Mapping[str, Any], gpu: Gpu, version: str | None) -> int | None:
    """Return the sequences that a report of a GeForce card most likely allows where it does not say.

    All six reports of consumer and workstation cards from vLLM 0.20 on that state it allow 1 to 8.
    """
    recent = version is not None and parse_version(version.partition("+")[0]) >= _RECENT
    return _GEFORCE_SEQUENCES if entry.get("engine") == "vllm" and recent and "GeForce" in gpu.title else None


def _unread(entry: Mapping[str, Any], key: str, read: Callable[[str | None], str | None]) -> bool:
    """Return whether a field says something that was not understood."""
    text = entry.get(key)
    return text is not None and not says_nothing(str(text)) and read(str(text)) is None


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _remarks(text: str) -> str:
    return " ".join(re.findall(r"\(([^()]*)\)", text))


def _weights(own: object, stated: str | None, entry: Mapping[str, Any]) -> str | None:
    """Return the word of ``--weights``; what the checkpoint's name already says is not asked again."""
    if own is not None and stated is not None:
        return None
    if stated is None and entry.get("dtype") == "float32":
        return "fp32"
    return None if stated == "auto" else stated


def _block_size(engine: str, model: Any, entry: Mapping[str, Any]) -> int | None:  # noqa: ANN401 - a Model
    """Return the asked block size; what a hybrid model's engine computed for itself is not a setting."""
    size = entry.get("block_size")
    hybrid = any(isinstance(run.layer.mixer, RecurrentMixer | CompressedAttention) for run in model.layers)
    return None if hybrid or (engine == "vllm" and size is not None and size > _MOST_BLOCK_TOKENS) else size


def _lora_rank(entry: Mapping[str, Any], text: str) -> int | None:
    if not entry.get("lora"):
        return None
    words = f"{text} {entry.get('version') or ''}".lower()
    return _UNSLOTH_RANK if "unsloth" in words else _LORA_RANK


def _draft_tokens(text: object) -> int:
    """Return the draft tokens that a description of speculation names; 1 where it names none."""
    said = str(text or "").lower()
    match = _DRAFT_TOKENS.search(said)
    return int(match[1] or match[2]) if match else 1 if "mtp" in said else 0


def _with_draft_head(deployment: Deployment) -> Deployment:
    """Return the deployment with a draft head of three layers like the model's own MTP layer (DSpark, two logs)."""
    mtp = deployment.model.mtp
    if mtp is None:
        return deployment
    return replace(
        deployment,
        model=replace(deployment.model, mtp=replace(mtp, num_layers=_DRAFT_LAYERS)),
        additions=replace(deployment.additions, with_mtp=True),
    )


def _kv_word(entry: Mapping[str, Any], deployment: Deployment) -> str | None:
    word = read_kv_text(entry.get("kv_cache_dtype"))
    mixers = [run.layer.mixer for run in deployment.model.layers]
    if deployment.rules.engine == "vllm" and any(isinstance(mixer, CompressedAttention) for mixer in mixers):
        # vLLM stores compressed attention only in its own records.
        return "fp8_ds_mla" if word in {None, "auto", "fp8"} else word
    if word is None or word == "auto":
        dtype = str(entry.get("dtype") or "")
        # A KV scheme of the checkpoint is only used where the engine was not told otherwise.
        return read_kv_text(dtype) if dtype == "float32" else word
    return word


def _assumed(entry: Mapping[str, Any], version: tuple[str, ...], exact_gpu: bool, no_fraction: bool) -> tuple[str, ...]:
    found = [name for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len") if entry.get(name) is None]
    if entry.get("total_gpu_memory_gib") is None:
        found.append("total_gpu_memory")
    if no_fraction:
        found.append("memory_fraction")
    if version:
        found.append("version")
    if not exact_gpu:
        found.append("gpu")
    if entry.get("spec_decode"):
        found.append("draft")
    return tuple(found)


# Prediction -> cases -------------------------------------------------------------------------------------------------


def _cases(entry: Mapping[str, Any], catalog: Catalog) -> list[ValidationCase]:
    measured = _measured(entry)
    try:
        prediction = predict(entry, catalog)
    except InfcalcError as problem:
        skipped = [_case(entry, quantity, value, None, reason=problem.message) for quantity, value in measured.items()]
        return [*skipped, *(_skipped_share(case) for case in skipped if case.quantity == "kv_pool_bytes")]
    found = [_scored(entry, quantity, value, prediction) for quantity, value in measured.items()]
    return [*found, *(_share_of_card(case, prediction) for case in found if case.quantity == "kv_pool_bytes")]


def _share_of_card(case: ValidationCase, prediction: _Prediction) -> ValidationCase:
    """Return the case of a pool as shares of the card: small pools are hard, and what is lost there is little."""
    total = prediction.ledger.total_bytes

    def share(num_bytes: float | None) -> float | None:
        return None if num_bytes is None else num_bytes / total

    measured, predicted = share(case.measured), share(case.predicted)
    return replace(
        case,
        quantity="kv_pool_of_card_fraction",
        measured=measured,
        predicted=predicted,
        low=share(case.low),
        high=share(case.high),
        error_fraction=None if measured is None or predicted is None else predicted - measured,
        warnings=(),
    )


def _measured(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return what the entry measures, by quantity; tokens are blocks x block size where only those are printed."""
    found: dict[str, float] = {}
    if entry.get("weights_gib_per_gpu") is not None:
        found["weights_bytes"] = float(entry["weights_gib_per_gpu"]) * GIB
    if entry.get("available_kv_gib") is not None:
        found["kv_pool_bytes"] = float(entry["available_kv_gib"]) * GIB
    if entry.get("kv_cache_tokens") is not None:
        found["kv_cache_tokens"] = float(entry["kv_cache_tokens"])
    elif entry.get("num_gpu_blocks") is not None:
        if entry.get("block_size") is not None:
            found["kv_cache_tokens"] = float(entry["num_gpu_blocks"]) * float(entry["block_size"])
        else:
            found["kv_blocks"] = float(entry["num_gpu_blocks"])
    if entry.get("max_concurrency") is not None:
        found["max_concurrency"] = float(entry["max_concurrency"])
    return found


def _scored(entry: Mapping[str, Any], quantity: str, measured: float, prediction: _Prediction) -> ValidationCase:
    book = prediction.ledger
    reason = _not_scored(entry, quantity, measured)
    if reason:
        return _case(entry, quantity, measured, prediction, reason=reason)
    match quantity:
        case "weights_bytes":
            if prediction.stands_in:
                return _case(entry, quantity, measured, prediction, reason="the checkpoint is not identified")
            weights = float(sum(book.line(name).num_bytes for name in ("weights", "draft", "lora", "loading")))
            span = (weights, weights * (1 - _WEIGHTS_BAND_FRACTION), weights * (1 + _WEIGHTS_BAND_FRACTION))
        case "kv_pool_bytes":
            pool = float(book.kv_pool_bytes)
            span = (pool, min(pool, float(book.kv_pool_bytes_low)), float(book.kv_pool_bytes_high))
        case "kv_blocks":
            size = book.block_bytes
            span = (
                float(book.kv_blocks),
                float(book.kv_pool_bytes_low // size),
                float(book.kv_pool_bytes_high // size),
            )
        case "kv_cache_tokens":
            span = (float(book.kv_cache_tokens), float(book.kv_cache_tokens_low), float(book.kv_cache_tokens_high))
            if entry.get("kv_cache_tokens") is None:
                tokens = book.block_tokens / book.block_bytes
                span = (
                    float(book.kv_blocks * book.block_tokens),
                    book.kv_pool_bytes_low * tokens,
                    book.kv_pool_bytes_high * tokens,
                )
        case _:
            span = (book.max_concurrency, book.max_concurrency_low, book.max_concurrency_high)
    return _case(entry, quantity, measured, prediction, span=span)


def _not_scored(entry: Mapping[str, Any], quantity: str, measured: float) -> str:
    """Return why a figure cannot be compared; empty where it can."""
    if measured <= 0:
        return "nothing was left for KV: the engine did not start"
    if quantity not in {"kv_cache_tokens", "max_concurrency", "kv_blocks"}:
        return ""
    if _unknown_draft(entry):
        return "the draft model has cache layers whose shape is not stated"
    if _unread(entry, "kv_cache_dtype", read_kv_text):
        return f"kv_cache_dtype {entry['kv_cache_dtype']!r} is not known"
    return ""


def _unknown_draft(entry: Mapping[str, Any]) -> bool:
    """Return whether a draft model with cache layers of its own is used that the entry does not describe."""
    return "dflash" in str(entry.get("spec_decode") or "").lower()


def _case(
    entry: Mapping[str, Any],
    quantity: str,
    measured: float | None,
    prediction: _Prediction | None,
    *,
    span: tuple[float, float, float] | None = None,
    reason: str = "",
) -> ValidationCase:
    low = high = predicted = None
    warnings: tuple[str, ...] = ()
    if span is not None and prediction is not None:
        predicted, low, high = span
        warnings = _warnings(quantity, span, prediction)
    return ValidationCase(
        id=_text(entry.get("id")),
        engine=_text(entry.get("engine")),
        version=prediction.deployment.rules.version if prediction else _text(entry.get("version")),
        attention=_attention(prediction.deployment) if prediction else "",
        tp=int(entry.get("tp") or 1),
        status="skipped" if span is None else "scored",
        reason=reason,
        quantity=quantity,
        measured=measured,
        predicted=predicted,
        low=low,
        high=high,
        error_fraction=None if predicted is None or not measured else (predicted - measured) / abs(measured),
        assumed=prediction.assumed if prediction else (),
        warnings=warnings,
    )


def _warnings(quantity: str, span: tuple[float, float, float], prediction: _Prediction) -> tuple[str, ...]:
    """Return what is doubtful about a prediction, known before any measurement."""
    found = list(prediction.warnings)
    predicted, low, high = span
    lacking = prediction.ledger.missing_before_kv_bytes
    if quantity != "weights_bytes" and lacking:
        found.append(f"nothing is predicted to be left for KV: {format_bytes(lacking)} are lacking before it")
    if quantity != "weights_bytes" and (
        predicted <= 0 or max(predicted - low, high - predicted) > _WIDE_FRACTION * predicted
    ):
        cause = prediction.ledger.largest_doubt
        found.append(f"uncertain by more than {_WIDE_FRACTION:.0%}: {cause}")
    return tuple(found)


def _attention(deployment: Deployment) -> str:
    """Return the kind of attention that shapes the cache."""
    mixers = [run.layer.mixer for run in deployment.model.layers]
    if any(isinstance(mixer, CompressedAttention) for mixer in mixers):
        return "compressed"
    if any(isinstance(mixer, RecurrentMixer) for mixer in mixers):
        return "recurrent hybrid"
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        return "latent"
    if any(getattr(mixer, "reach", Reach.FULL) is not Reach.FULL for mixer in mixers):
        return "windowed"
    return "grouped"


# Cases -> summary ----------------------------------------------------------------------------------------------------


def _summaries(cases: tuple[ValidationCase, ...]) -> tuple[ValidationSummary, ...]:
    found: list[ValidationSummary] = []
    for quantity in dict.fromkeys(_SCORED_AS.get(case.quantity, case.quantity) for case in cases):
        of = [case for case in cases if _SCORED_AS.get(case.quantity, case.quantity) == quantity]
        groups: dict[str, list[ValidationCase]] = {"all": of}
        for case in of:
            for group in (
                f"engine {case.engine}",
                f"attention {case.attention or 'unknown'}",
                f"tp {case.tp or 'unknown'}",
            ):
                groups.setdefault(group, []).append(case)
            groups.setdefault(f"version {version_range(case.engine, case.version)}", []).append(case)
        found += [summary(quantity, group, members) for group, members in groups.items()]
    return tuple(found)


_RANGES = (((0, 20), "vllm from 0.20"), ((0, 17), "vllm V1 0.17-0.19"), ((0, 8), "vllm V1 0.8-0.16"))


def version_range(engine: str, version: str) -> str:
    """Return the range of versions whose memory rules are the same.

    >>> version_range("vllm", "0.9+v0"), version_range("vllm", "0.19.0"), version_range("sglang", "0.5.2")
    ('vllm V0', 'vllm V1 0.17-0.19', 'sglang')
    """
    if engine != "vllm":
        return engine
    if version.endswith("+v0"):
        return "vllm V0"
    found = read_version_text(engine, version).version
    at = parse_version(found) if found else (0,)
    return next((name for start, name in _RANGES if at >= start), "vllm V0")


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence  # noqa: PLC0415 - only for the page on accuracy

    return (
        Evidence(
            rule="inputs that a report leaves open",
            figures="the engine's default for the version, or for the date where no release is named",
            mechanism="whoever does not mention a setting has most likely not set it; the band widens for each",
        ),
        Evidence(
            rule="number of sequences on GeForce cards, vLLM from 0.20",
            figures=f"{_GEFORCE_SEQUENCES} where a report does not say: 6 of 6 reports that do allow 1 to 8",
            mechanism="such a card serves one user or a few",
        ),
        Evidence(
            rule="number of sequences of hybrid models",
            figures="the largest power of two that starts, where the default is refused (2 logs)",
            mechanism="an engine that printed its pool has started: it was asked for no more than it can start with",
            read_in="vLLM `GPUModelRunner`: max_num_seqs beyond the blocks of recurrent layers is refused",
        ),
        Evidence(
            rule="rank of adapters that a report does not state",
            figures=f"{_LORA_RANK}; {_UNSLOTH_RANK} where Unsloth started the engine (2 logs)",
            mechanism="an engine holds buffers for the rank that it admits, which is this by default",
            read_in="vLLM `LoRAConfig`; Unsloth `FastLanguageModel.from_pretrained`",
            about=("_LORA_RANK", "_UNSLOTH_RANK"),
        ),
        Evidence(
            rule="DSpark heads",
            figures=f"{_DRAFT_LAYERS} layers like the model's own MTP layer (2 logs)",
            mechanism="a draft head is made of layers of the model's kind",
        ),
        Evidence(
            rule="KV of compressed attention",
            figures="fp8_ds_mla whatever a report calls it, where it says auto or fp8",
            read_in="vLLM stores it only in records of its own",
        ),
        Evidence(
            rule="block size of hybrid models",
            figures="what a log prints is not taken as a setting",
            mechanism="the engine grows it to the page of a recurrent layer",
        ),
        Evidence(
            rule="float32 runs",
            figures="weights and KV in 4 bytes where the report says dtype float32 and names no other precision",
            mechanism="--dtype sets both",
        ),
        Evidence(
            rule="cards that share a name",
            figures="the smallest on which one sequence of the asked length fits, else the largest (2 logs of H20)",
            mechanism="people report deployments that they expected to work",
        ),
        Evidence(
            rule="cards that are only described",
            figures="the card of the same vendor that is nearest in memory, with the memory that the report states",
            mechanism="defaults of an engine follow the memory; the band widens",
        ),
        Evidence(
            rule="checkpoints that are not identified",
            figures="the printed weights stand in, and are not scored",
            mechanism="names such as exl3, or 'mixed', do not tell how many bits the weights have",
        ),
        Evidence(
            rule="band of the weights",
            figures=f"{_WEIGHTS_BAND_FRACTION:.0%} either way: 27 lie within it (31 logs)",
            mechanism="a checkpoint's name does not tell the precision of single modules",
            about=("_WEIGHTS_BAND_FRACTION",),
        ),
    )
