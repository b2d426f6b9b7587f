"""Does infcalc agree with my log? Predicted against measured, line by line, each residual with its cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.answer import Answer, distinct
from infcalc.api.attribution import Part
from infcalc.api.contradictions import contradictions
from infcalc.api.deployment import Ask, Deployment, check_numbers, deploy, kv_format, load, single_kv_dtype
from infcalc.api.derived import with_derived
from infcalc.api.expecting import expected
from infcalc.api.from_log import FromLog, asked_by, draft_tokens, runtime_weights
from infcalc.api.residuals import CompareLine, residual_lines, signed
from infcalc.api.sizing import deployment_budgets, fraction_warnings
from infcalc.api.staged import on_one_stage, unnamed_stage
from infcalc.engines.logs.reader import looked_for, read_log
from infcalc.engines.logs.reading import EngineLog, Quantity
from infcalc.engines.rules import FractionBase
from infcalc.errors import FileProblem, UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Explanation, Input
from infcalc.units import format_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.offer import Offer
    from infcalc.api.remedies import Refusal
    from infcalc.api.simulation_runs import Progress
    from infcalc.catalog.lookup import GpuEntry, ModelEntry
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model

_GIVEN = "given"
_DERIVED = frozenset({"gpus", "pp", "dp", "ep", "dcp"})
_FAR = 0.08
_ANOTHER_CARD = 0.02
"""Drivers differ by less in what they leave of one card."""


@frozen
class CompareResult:
    """A start-up log against its prediction. Memory is of the rank whose pool is smallest, which governs all."""

    verdict: str
    evidence: str
    """What kind of file was compared: ``start-up log``."""
    engine: str
    engine_version: str
    model: str
    gpu: str
    num_gpus: int
    max_model_len: int
    num_lines: int
    """Lines of the log that said something."""
    worst_abs_error_fraction: float | None
    lines: tuple[CompareLine, ...]
    refusals: tuple[Refusal, ...]
    contradictions: tuple[str, ...]
    """What cannot be true in the log, or misleads: a sentence each."""


def compare(
    path: str | Sequence[str],
    ask: Ask | None = None,
    given: Offer | None = None,
    *,
    form: str | None = None,
    simulated: bool = False,
    seed: int | None = None,
    explain: bool = False,
    progress: Progress | None = None,
) -> Answer[Any]:
    """Return what files of an engine or of a benchmark say against what infcalc predicts for what they state.

    ``path`` is a file or several, ``-`` for standard input: start-up logs (:class:`CompareResult`), and results of
    benchmarks, metrics and interval lines (:class:`infcalc.api.measured_nouns.RunComparison`), told apart by content
    or by ``form``. What a file does not state of its deployment comes from ``ask`` or from defaults, what it does not
    state of its load from ``given``, and is listed among the assumptions; what they state wins. ``simulated``: the
    load of a benchmark is also simulated, request by request, which predicts percentiles.

    Raises:
        FileProblem: a file cannot be read, or holds nothing that is known.
        UsageError: a file names no model, no GPU or no load, and the options neither.
        UnknownName: what a file names is not in the catalog.

    """
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    paths = [path] if isinstance(path, str) else list(path)
    if not paths:
        raise UsageError("no file", place="FILE", hint="name a log or a result of a benchmark, or - for standard input")
    texts = [("standard input" if one == "-" else one, files.read_log_text(one)) for one in paths]
    how = {"form": form, "simulated": simulated, "seed": seed, "explain": explain, "progress": progress}
    answers = [_compared(text, place, ask, given, how) for place, text in texts]
    if len(answers) == 1:
        return answers[0]
    from infcalc.api.measured_together import together  # noqa: PLC0415 - only where there are several

    return together(answers)


def _compared(text: str, place: str, ask: Ask | None, given: Offer | None, how: dict[str, Any]) -> Answer[Any]:
    """Return the answer for one text: a start-up log, unless its content or ``form`` says another thing."""
    if how["form"] is None and _is_log(text, place):
        return compare_text(text, ask, place=place, explain=how["explain"])
    from infcalc.api.measured_files import compare_measured  # noqa: PLC0415 - only for what is measured

    return compare_measured(text, ask or Ask(), given, place=place, **how)


def _is_log(text: str, place: str) -> bool:
    """Return whether a text is to be read as a start-up log: it is one, or it is no measurement either."""
    from infcalc.evidence.reading import sniff  # noqa: PLC0415 - only for files that may be either

    log = read_log(text) if text.strip() else None
    if log is not None and (log.figures or log.failures):
        return True
    return sniff(text, place) is None


def compare_text(
    text: str, ask: Ask | None = None, *, place: str = "log", explain: bool = False
) -> Answer[CompareResult]:
    """Return the answer of :func:`compare` for the text of a log; ``place`` is what errors call it."""
    if not text.strip():
        raise FileProblem("the file is empty", place=place, hint=_known())
    log = read_log(text)
    if log is None:
        raise _not_a_log(text, place)
    if not log.figures and not log.failures:
        raise FileProblem(
            f"this looks like a log of {log.engine}, and no line of it states memory",
            place=place,
            hint=f"paste from the start of the engine to its first request; lines looked for: {looked_for()}",
        )
    return _answer(with_derived(log), ask or Ask(), place=place, explain=explain)


def _not_a_log(text: str, place: str) -> FileProblem:
    head = text.lstrip()[:1]
    if head in {"{", "["} and '"' in text[:10_000]:
        return FileProblem(
            "a JSON document, and no start-up log of an engine",
            place=place,
            hint=_known(),
        )
    return FileProblem(
        "no line has the shape of an engine's start-up log, nor is it a benchmark or metrics",
        place=place,
        hint=_known(),
    )


def _known() -> str:
    from infcalc.evidence.reading import KNOWN  # noqa: PLC0415 - only for what is nothing of it

    return f"results of benchmarks that are read: {KNOWN}; lines of logs looked for: {looked_for()}"


def _answer(log: EngineLog, ask: Ask, *, place: str, explain: bool) -> Answer[CompareResult]:
    from infcalc.files import load_model  # noqa: PLC0415 - opening files is only needed here

    check_numbers(ask)
    catalog = load(ask)
    stated = asked_by(log, ask, catalog, place=place)
    model_entry = load_model(catalog, stated.ask.models[0])
    gpu_entry, odd_card = _as_printed(log, catalog.gpu(stated.ask.gpus[0]))
    stated, said = _with_model(log, ask, stated, model_entry.model)
    # What an engine did is not judged: it ran, or said itself why not. What the user says of it is.
    judged = any(value is not None for value in (ask.num_gpus, ask.tp, ask.pp, ask.dp, ask.ep, ask.dcp))
    deployment = deploy(stated.ask, model_entry, gpu_entry, strict=judged)
    odd_ranks = () if judged else _odd_ranks(stated, model_entry, gpu_entry)
    form, kv_origin, kv_said = kv_format(deployment, single_kv_dtype(stated.ask))
    log, stage = on_one_stage(log, deployment, form)
    expectation = expected(
        deployment,
        form,
        sequences=stated.sequences,
        streams=stated.num_streams,
        flash=stated.flash,
        copies_embedding=stated.copies_embedding,
        stage=stage,
        pool_bytes=stated.pool_bytes,
        num_blocks=stated.num_blocks,
    )
    lines = residual_lines(log, deployment, expectation)
    inputs = _inputs(ask, stated, deployment, form, kv_origin=kv_origin)
    refusals: tuple[Refusal, ...] = ()
    if log.failures:
        from infcalc.api.remedies import explained  # noqa: PLC0415 - only for engines that refused

        refusals = explained(log, stated.ask, deployment, form, (model_entry, gpu_entry))
    errors = [abs(line.error_fraction) for line in lines if line.error_fraction is not None]
    odd_figures = contradictions(log, expectation, deployment.parallelism)
    result = CompareResult(
        verdict=_verdict(lines, refusals),
        evidence="start-up log",
        engine=deployment.rules.engine,
        engine_version=deployment.rules.version,
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        max_model_len=deployment.max_model_len,
        num_lines=log.num_lines,
        worst_abs_error_fraction=max(errors, default=None),
        lines=lines,
        refusals=refusals,
        contradictions=odd_figures,
    )
    assumed = [
        f"{item.name.replace('_', ' ')} {item.value} ({item.origin})"
        for item in inputs
        if not item.origin.startswith(_GIVEN) and item.value is not None and item.name not in _DERIVED
    ]
    notes = [*deployment.assumptions, *log.notes]
    if assumed:
        notes.insert(0, f"not stated in the log, so assumed: {'; '.join(assumed)}")
    talk = [
        *log.left_out,
        *odd_figures,
        *unnamed_stage(log, stage, deployment.parallelism, expectation.stage),
        *_doubts(log, deployment, lines),
        *odd_card,
        *odd_ranks,
        *stated.warnings,
        *said,
        *kv_said,
        *deployment.warnings,
        # An engine that ran has proved its own fraction; what the user asks instead is judged.
        *(fraction_warnings(deployment, deployment_budgets(deployment)) if ask.memory_fraction is not None else ()),
    ]
    return Answer(
        command="compare",
        results=(result,),
        inputs=inputs,
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(_explanation(line, deployment, inputs) for line in lines if line.predicted is not None)
        if explain
        else (),
    )


def _as_printed(log: EngineLog, entry: GpuEntry) -> tuple[GpuEntry, tuple[str, ...]]:
    """Return the card with the total the log prints where that is another card's: rebuilt memory, a slice, a mistake.

    Smaller differences are the driver's, and stay to be put down to it.
    """
    total = log.figure(Quantity.DEVICE_TOTAL)
    known = entry.gpu.cuda_total_bytes
    if total is None or total.value <= 0 or abs(total.value - known) <= _ANOTHER_CARD * known:
        return entry, ()
    warning = (
        f"line {total.line} says that the card has {format_memory(total.value)}, and {entry.gpu.name} has "
        f"{format_memory(known)}: the log's is taken; is --gpu the right one?"
    )
    return replace(entry, gpu=replace(entry.gpu, cuda_total_bytes=round(total.value))), (warning,)


def _odd_ranks(stated: FromLog, model_entry: ModelEntry, gpu_entry: GpuEntry) -> tuple[str, ...]:
    """Return a warning where the ranks of a log cannot be those of its model."""
    try:
        deploy(stated.ask, model_entry, gpu_entry)
    except UsageError as problem:
        lines = [line for field in ("tp", "pp", "dp", "ep", "dcp") if (line := stated.lines.get(field))]
        where = f"line {min(lines)}: " if lines else ""
        options = "--model, --tp, --pp, --dp or --ep says what it was"
        return (f"{where}{problem.message}, and that is what the log says: is the model the right one? {options}",)
    return ()


def _with_model(log: EngineLog, ask: Ask, stated: FromLog, model: Model) -> tuple[FromLog, tuple[str, ...]]:
    """Return the question with what can only be read in the light of the model: weights, experts, drafts."""
    filled: dict[str, object] = {}
    lines = dict(stated.lines)
    said: tuple[str, ...] = ()
    if ask.weights is None:
        word, line, said = runtime_weights(log, model)
        if word is not None:
            filled["weights"], lines["weights"] = word, line
    experts = log.setting("expert_parallel")
    if experts is not None and experts.value is True and model.has_experts and stated.ask.ep is None:
        filled["ep"], lines["ep"] = (stated.ask.tp or 1) * (stated.ask.dp or 1), experts.line
    elif not model.has_experts and stated.ask.ep is not None and ask.ep is None:
        filled["ep"] = None
    drafts, line = draft_tokens(log, model)
    if drafts is not None and ask.num_draft_tokens is None:
        filled["num_draft_tokens"], lines["num_draft_tokens"] = drafts, line
    changed: Ask = replace(stated.ask, **filled)  # type: ignore[arg-type]
    return replace(stated, ask=changed, lines=lines), said


_FIELD_OF_INPUT = {"model": "models", "gpu": "gpus", "block_tokens": "block_size"}


def _inputs(ask: Ask, stated: FromLog, deployment: Deployment, form: KvFormat, *, kv_origin: str) -> tuple[Input, ...]:
    """Return the inputs with their origin: the user, a line of the log, or a default."""

    def origin(field: str, otherwise: str) -> str:
        if getattr(ask, field, None):
            return _GIVEN
        if field in stated.assumed:
            return stated.assumed[field]
        line = stated.lines.get(field)
        if line is None:
            return otherwise
        return f"given in the log, line {line}" if line else "given in the log"

    known = tuple(
        replace(item, origin=origin(_FIELD_OF_INPUT.get(item.name, item.name), item.origin))
        for item in deployment.inputs
    )
    return (
        *known,
        Input(name="kv_dtype", value=form.name, origin=origin("kv_dtypes", kv_origin), source=form.note),
    )


_HEADLINES = (
    (Quantity.POOL, "KV pool"),
    (Quantity.TOKENS, "KV tokens"),
    (Quantity.BLOCKS, "KV blocks"),
    (Quantity.CONCURRENCY, "maximum concurrency"),
    (Quantity.WEIGHTS, "weights"),
    (Quantity.FREE_FOR_KV, "memory free for KV"),
    (Quantity.FREE_AFTER_WEIGHTS, "memory free after the weights"),
    (Quantity.FREE_BEFORE_WEIGHTS, "memory free before the weights"),
    (Quantity.PEAK, "peak of the profiling run"),
    (Quantity.ACTIVATION, "activation"),
    (Quantity.COMPUTE, "compute buffer"),
    (Quantity.STATE, "recurrent state"),
    (Quantity.NON_TORCH, "buffers"),
    (Quantity.GRAPH_ESTIMATE, "CUDA graphs as charged"),
    (Quantity.GRAPHS, "CUDA graphs as taken"),
    (Quantity.BYTES_PER_TOKEN, "KV bytes per token"),
    (Quantity.BLOCK_TOKENS, "tokens per block"),
    (Quantity.USABLE, "the engine's share"),
    (Quantity.DEVICE_TOTAL, "card total"),
)
"""All that is predicted of logs, what people ask first at the top."""
_OF_THE_CARD = frozenset({Quantity.USABLE, Quantity.DEVICE_TOTAL})
"""Beside a refusal these say nothing of the prediction."""
_TOLD_PARTS = 2
_TOLD_SHARE = 0.1
_NEAR = 0.5
"""Beyond this, a share says less than a multiple."""
_LEAST = 0.001
"""Closer than the digits of a log tell."""


def _verdict(lines: tuple[CompareLine, ...], refusals: tuple[Refusal, ...]) -> str:
    by_name = {line.quantity: line for line in lines}
    told = f"the engine refused to start: {refusals[-1].explanation}" if refusals else ""
    for quantity, name in _HEADLINES:
        line = by_name.get(quantity)
        if line is None or line.measured is None or line.predicted is None:
            continue
        if told and quantity in _OF_THE_CARD:
            break
        if line.measured == line.predicted:
            exact = f"{name} predicted exactly: {_shown(quantity, line.measured)}"
            return f"{told}; {exact}" if told else exact
        text = name
        if line.error_fraction is not None:
            text += f" predicted {_closeness(line.error_fraction)}"
        shown = [_shown(quantity, value) for value in (line.predicted, line.measured)]
        text += f": {shown[0]} predicted, {shown[1]} in the log"
        text += _because(quantity, line)
        return f"{told}; {text}" if told else text
    return told or "nothing that is predicted is printed in this log"


def _closeness(error_fraction: float) -> str:
    """Return in words how close a prediction is: a share where it is close, a multiple where it is not.

    >>> _closeness(-0.031), _closeness(22.157), _closeness(-0.75)
    ('within 3.1%', '23.2 times as large as the log has it', '4.0 times smaller than the log has it')
    """
    if abs(error_fraction) <= _NEAR:
        return f"within {max(_LEAST, abs(error_fraction)):.1%}"
    if error_fraction > 0:
        return f"{1 + error_fraction:,.1f} times as large as the log has it"
    if error_fraction > -1:
        return f"{1 / (1 + error_fraction):,.1f} times smaller than the log has it"
    return "far from what the log has"


def _because(quantity: Quantity, line: CompareLine) -> str:
    if line.measured is None or line.predicted is None or line.measured == line.predicted or not line.parts:
        return ""
    difference = line.measured - line.predicted
    word = "smaller" if difference < 0 else "larger"
    # What pulls the other way explains nothing of the difference.
    least = _TOLD_SHARE * abs(difference)
    causes = [part for part in line.parts if part.effect * difference > 0 and abs(part.effect) >= least][:_TOLD_PARTS]
    if not causes:
        return f" ({_shown(quantity, abs(difference))} {word})"
    reasons = " and ".join(_reason(quantity, part) for part in causes)
    return f" ({_shown(quantity, abs(difference))} {word}, because {reasons})"


def _reason(quantity: Quantity, part: Part) -> str:
    size = _shown(quantity, abs(part.effect))
    if part.part.startswith("not explained"):
        return f"{size} are {part.part}"
    if part.consumer:
        return f"{part.part} took {size} {'more' if part.effect < 0 else 'less'}"
    return f"{part.part} {'takes' if part.effect < 0 else 'adds'} {size}"


def _shown(quantity: Quantity, value: float) -> str:
    if quantity.endswith("_bytes"):
        return format_memory(round(value))
    return f"{value:,.2f}x" if quantity is Quantity.CONCURRENCY else f"{value:,.0f}"


def _doubts(log: EngineLog, deployment: Deployment, lines: tuple[CompareLine, ...]) -> list[str]:
    """Return warnings about the comparison itself: a model or precision that is not that of the log."""
    talk = []
    weights = next((line for line in lines if line.quantity == Quantity.WEIGHTS), None)
    if weights is not None and weights.error_fraction is not None and abs(weights.error_fraction) > _FAR:
        talk.append(
            f"weights are {abs(weights.error_fraction):.0%} off: {deployment.model.name} in {deployment.weights} "
            "may not be what the log loaded; --model and --weights say what it is"
        )
    for name, what in (
        (
            "speculative",
            "drafts that are not the model's own MTP layers add weights and KV",
        ),
        ("kv_pool_bytes_set", "the pool was set by hand, not profiled"),
        ("kv_blocks_set", "the number of blocks was set by hand"),
        ("kv_cache_tokens_set", "the number of tokens was set by hand"),
    ):
        setting = log.setting(name)
        if name == "speculative" and deployment.with_mtp:
            # The model's own layers draft, and are modelled.
            continue
        if setting is not None and setting.value != 0:
            talk.append(
                f"line {setting.line} sets {name.replace('_', ' ')} ({setting.value}): {what}, not modelled here"
            )
    return talk


def _explanation(line: CompareLine, deployment: Deployment, inputs: tuple[Input, ...]) -> Explanation:
    wanted = {
        FractionBase.TOTAL: {"memory_fraction", "gpu", "weights", "tp"},
        FractionBase.FREE_BEFORE_WEIGHTS: {"memory_fraction", "gpu", "weights", "tp"},
        FractionBase.FREE_AFTER_WEIGHTS: {"memory_fraction", "gpu", "weights", "tp"},
        FractionBase.NONE: {"max_model_len", "kv_dtype"},
    }[deployment.rules.fraction_base]
    quantity = Quantity(line.quantity)
    predicted = "nothing" if line.predicted is None else _shown(quantity, line.predicted)
    measured = "not printed"
    if line.measured is not None:
        measured = f"{_shown(quantity, line.measured)} at line {line.line}"
    parts = "".join(f" {signed(quantity, part.effect)} ({part.part})" for part in line.parts)
    is_pool = quantity is Quantity.POOL
    return Explanation(
        quantity=line.quantity,
        formula="predicted, and what the parts of the residual add, against measured",
        substituted=f"{predicted}{parts}, measured {measured}",
        inputs=tuple(item for item in inputs if item.name in wanted) if is_pool else (),
        source=deployment.rules.fraction_source if is_pool else "",
    )
