"""The answer of ``memory``: the ledger of the governing GPU, and what would make it fit where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.changes import Kind, can_serve, families
from infcalc.api.deployment import Ask, Deployment, kv_format, load, merged_inputs, resolve
from infcalc.api.ledger import deployment_ledger, longest_for, with_admitted_sequences
from infcalc.api.offloading import kv_host_tokens, offload_notes
from infcalc.api.sizing import (
    check_contexts,
    check_model_len,
    context_warnings,
    deployment_budgets,
    fraction_warnings,
    startable,
)
from infcalc.api.slots import slot_notes
from infcalc.engines.rules import FractionBase
from infcalc.engines.verdicts import cache_kind, kv_verdict, weights_verdict
from infcalc.errors import InfcalcError, UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Explanation, Input
from infcalc.units import KIB, format_bytes

if TYPE_CHECKING:
    from infcalc.api.changes import Candidate
    from infcalc.api.users import Asked, Load, Service, Traffic
    from infcalc.catalog.lookup import Catalog
    from infcalc.engines.rules import EngineRules
    from infcalc.memory.ledger import Ledger, Line
    from infcalc.spec.kv import KvFormat

DEFAULT_CONTEXT = 4 * KIB
_DOES_NOT_FIT = 3
_MOST_CHANGES = 8


@frozen
class MemoryLine:
    """One line of the ledger, in bytes on the governing GPU; ``basis`` is exact, modelled or measured."""

    name: str
    num_bytes: int
    low_bytes: int
    high_bytes: int
    basis: str
    source: str


@frozen
class Change:
    """One change that makes it fit, with what the same ledger then says."""

    change: str
    needed_bytes: int
    needed_bytes_low: int
    needed_bytes_high: int
    kv_pool_bytes: int
    kv_pool_bytes_low: int
    kv_pool_bytes_high: int
    max_model_len: int
    context_tokens: int
    """Length of the ``sequences``: what was asked, or the longest that the change admits."""
    sequences: int
    sequences_low: int
    sequences_high: int


@frozen
class MemoryResult:
    """What fills the governing GPU of one deployment at one KV precision, in bytes.

    ``usable_bytes`` = weights + activation + non-torch + graphs + KV pool where the fraction is of the total.
    ``kv_pool_bytes`` is what is left for KV; of it ``kv_buffer_bytes`` are allocated at the start, which is all, but
    with llama.cpp only the cells of ``max_model_len``. ``kv_cache_tokens`` and ``max_concurrency`` are what the engine
    prints, ``sequences`` of ``context_tokens`` what truly fits; with the lengths of requests, ``sequences`` are such
    requests, and ``context_tokens`` is their mean.

    ``needed_bytes`` is everything but the pool, and one sequence of ``needed_tokens``: ``max_model_len`` where the
    engine checks at its start that one such fits, else ``context_tokens``. ``fits`` is whether that is there,
    ``users_fit`` whether the asked users then fit, ``starts_as_asked`` whether the engine starts with what was asked
    and its own defaults for the rest; where it only starts with other values, ``starts_with`` are their flags.
    """

    model: str
    gpu: str
    num_gpus: int
    weights: str
    kv_dtype: str
    engine: str
    engine_version: str
    context_tokens: int
    max_model_len: int
    stage: int
    total_bytes: int
    usable_bytes: int
    reserve_bytes: int
    reserve_bytes_low: int
    reserve_bytes_high: int
    weights_bytes: int
    """What the engine prints as its weights: draft, adapters and ``loading_bytes`` are in it."""
    loading_bytes: int
    """Of ``weights_bytes``: rotary tables, idle ends of large tensors."""
    offload_bytes: int
    activation_bytes: int
    activation_bytes_low: int
    activation_bytes_high: int
    non_torch_bytes: int
    non_torch_bytes_low: int
    non_torch_bytes_high: int
    cuda_graph_bytes: int
    cuda_graph_bytes_low: int
    cuda_graph_bytes_high: int
    kv_pool_bytes: int
    kv_pool_bytes_low: int
    kv_pool_bytes_high: int
    kv_buffer_bytes: int
    kv_blocks: int
    kv_blocks_low: int
    kv_blocks_high: int
    block_tokens: int
    block_bytes: int
    kv_cache_tokens: int
    kv_cache_tokens_low: int
    kv_cache_tokens_high: int
    token_line: str
    max_concurrency: float
    max_concurrency_low: float
    max_concurrency_high: float
    sequences: int
    sequences_low: int
    sequences_high: int
    num_state_slots: int | None
    """Sequences that a pool of recurrent states admits on a rank; None where there is no such pool."""
    needed_tokens: int
    needed_bytes: int
    needed_bytes_low: int
    needed_bytes_high: int
    missing_bytes: int
    missing_bytes_low: int
    missing_bytes_high: int
    fits: bool
    starts_as_asked: bool
    starts_with: tuple[str, ...]
    lines: tuple[MemoryLine, ...]
    page_groups: tuple[str, ...]
    padding_fraction: float
    kv_host_tokens: int
    """Tokens of requests that are not running, kept in host memory (``--kv-offload-gib``)."""
    kv_supported: bool | None
    """Whether the engine can store this precision on this GPU; None where that is not on record."""
    kv_verdict: str
    kv_verdict_source: str
    weights_supported: bool | None
    weights_verdict: str
    weights_verdict_source: str
    changes: tuple[Change, ...]
    mean_live_tokens: float | None = None
    """From here on only with the lengths of requests (:class:`infcalc.api.users.Service`)."""
    p95_live_tokens: float | None = None
    requests: int | None = None
    requests_low: int | None = None
    requests_high: int | None = None
    requests_p95: int | None = None
    service_time_s: float | None = None
    users: int | None = None
    users_low: int | None = None
    users_high: int | None = None
    users_asked: int | None = None
    """From here on only with ``--users`` (:class:`infcalc.api.users.Asked`)."""
    sequences_needed: int | None = None
    users_fit: bool | None = None


@frozen
class _Wanted:
    """What shall fit: sequences of one length, or requests of such traffic; and how many users."""

    context_tokens: int
    stated: bool
    """Somebody said that this length must fit."""
    traffic: Traffic | None = None
    users: int | None = None


def memory(
    ask: Ask | None = None,
    *,
    contexts: tuple[int, ...] = (),
    requests: Load | None = None,
    explain: bool = False,
) -> Answer[MemoryResult]:
    """Return the ledger of each asked deployment at each asked KV precision.

    The longest sequence that must fit is ``max_model_len``, else the longest asked context, else what the model was
    made for; where only the last does not fit, the longest that does is taken, with a warning. Exit code 3 when
    something asked does not fit: the deployment, or the users of ``requests``.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.
        UsageError: both contexts and the lengths of requests.

    """
    ask = ask or Ask()
    wanted, wanted_inputs = _wanted(check_contexts(contexts), requests)
    lengths = tuple(one.context_tokens for one in wanted)
    traffic = wanted[0].traffic
    catalog = load(ask)
    results: list[MemoryResult] = []
    notes: list[str] = []
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    explanations: list[Explanation] = []
    for asked in resolve(ask, catalog):
        deployment, unstarted = startable(asked)
        check_model_len(deployment)
        if traffic is not None:
            from infcalc.api.users import check_lengths  # noqa: PLC0415 - only with lengths

            check_lengths(deployment, traffic)
        notes += deployment.assumptions
        talk += [*deployment.warnings, *context_warnings(deployment, lengths), *unstarted]
        for word in ask.kv_dtypes or (None,):
            form, origin, said = kv_format(deployment, word)
            talk += said
            for one in wanted:
                here, warned = _with_length(ask, deployment, form, one.context_tokens, stated=one.stated)
                here, refused = with_admitted_sequences(here, form, one.context_tokens)
                talk += warned
                result = _result(ask, catalog, here, form, one, asked=asked)
                results.append(result)
                talk += [
                    *_doubts(result),
                    *refused,
                    *fraction_warnings(here, deployment_budgets(here)),
                    *_load_warnings(here, result, one),
                ]
                notes += [*_notes(here, result), *_load_notes(here, one)]
                if explain:
                    explanations += _explained(here, result, one)
            inputs.append(
                (
                    *deployment.inputs,
                    Input(name="kv_dtype", value=form.name, origin=origin, source=form.note),
                    *wanted_inputs,
                )
            )
    return Answer(
        command="memory",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
        exit_code=0 if all(result.fits and result.users_fit is not False for result in results) else _DOES_NOT_FIT,
    )


def _wanted(contexts: tuple[int, ...], requests: Load | None) -> tuple[tuple[_Wanted, ...], tuple[Input, ...]]:
    """Return what shall fit, one after the other, and the inputs that say so."""
    users = None if requests is None else requests.users
    asked = () if users is None else (Input(name="users", value=users, origin="given (--users)"),)
    traffic = None
    if requests is not None:
        from infcalc.api.users import read_load, traffic_inputs  # noqa: PLC0415 - only with a load

        traffic = read_load(requests)
    if traffic is None:
        origin = "given (--context)" if contexts else "default"
        lengths = contexts or (DEFAULT_CONTEXT,)
        found = tuple(_Wanted(context_tokens=length, stated=bool(contexts), users=users) for length in lengths)
        return found, (Input(name="contexts", value=lengths, origin=origin), *asked)
    if contexts:
        raise UsageError(
            "the lengths of requests say already what shall fit",
            place="--context",
            hint="leave out --context, or --input-tokens and --output-tokens; --max-model-len is the longest sequence",
        )
    mean = max(1, round(traffic.mean_total_tokens))
    inputs = (
        Input(name="contexts", value=(mean,), origin="mean prompt and answer"),
        *asked,
        *traffic_inputs(traffic),
    )
    return (_Wanted(context_tokens=mean, stated=True, traffic=traffic, users=users),), inputs


def _with_length(
    ask: Ask, deployment: Deployment, form: KvFormat, context: int, *, stated: bool
) -> tuple[Deployment, list[str]]:
    """Return the deployment with the longest sequence that must fit, and a warning where the engine's own would not."""
    if not deployment.rules.checks_longest:
        admits = stated and ask.max_model_len is None
        here = _of_length(deployment, max(context, deployment.max_model_len)) if admits else deployment
        return here, _rejected(here, form)
    if ask.max_model_len is not None:
        return deployment, []
    own = deployment.max_model_len
    whole = deployment_ledger(deployment, form, context_tokens=context)
    if whole.fits:
        return _of_length(deployment, max(context, own)) if stated else deployment, []
    longest = longest_for(deployment, form)
    wanted = context if stated else min(context, own)
    if longest < wanted:
        here = _of_length(deployment, wanted)
        if wanted >= own:
            return here, []
        lacks = (
            f"{deployment.rules.engine} takes the {own:,} tokens that {deployment.model.name} was made for, and lacks "
            f"{format_bytes(whole.missing_bytes)} per GPU with them: --max-model-len {wanted} assumed here"
        )
        return here, [lacks]
    said = (
        f"{deployment.rules.engine} does not start with the {own:,} tokens that {deployment.model.name} was made for: "
        f"set --max-model-len to at most {longest:,}, as assumed here"
    )
    return _of_length(deployment, longest), [said]


def _rejected(deployment: Deployment, form: KvFormat) -> list[str]:
    """Return a warning of the sequences that an engine will reject which checks no length at its start."""
    longest, engine = longest_for(deployment, form), deployment.rules.engine
    if not 0 < longest < deployment.max_model_len:
        return []
    said = (
        f"{engine} starts with a longest sequence of {deployment.max_model_len:,} tokens, and rejects one that is "
        f"longer than the {longest:,} tokens of its pool when it comes"
    )
    return [said]


def _of_length(deployment: Deployment, length: int) -> Deployment:
    return replace(deployment, max_model_len=length)


def _result(
    ask: Ask, catalog: Catalog, deployment: Deployment, form: KvFormat, wanted: _Wanted, *, asked: Deployment
) -> MemoryResult:
    book = deployment_ledger(deployment, form, context_tokens=wanted.context_tokens)
    served, users = _served(deployment, form, book, wanted)
    low, middle, high = _sequences(book, served)
    satisfied = book.fits and (users is None or users.users_fit is not False)
    rules, gpu = deployment.rules, deployment.gpu
    cached = kv_verdict(rules.engine, rules.version, gpu, form.name, cache=cache_kind(deployment.model))
    stored = weights_verdict(rules.engine, rules.version, gpu, deployment.weights)
    activation, buffers, graphs = (book.line(name) for name in ("activation", "non_torch", "cuda_graphs"))
    starts = book.fits if rules.checks_longest else not book.missing_before_kv_bytes
    mends = tuple(_assumed_flags(asked, deployment).values()) if starts else ()
    result = MemoryResult(
        model=deployment.model.name,
        gpu=gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        weights=deployment.weights,
        kv_dtype=form.name,
        engine=rules.engine,
        engine_version=rules.version,
        context_tokens=wanted.context_tokens,
        max_model_len=deployment.max_model_len,
        stage=book.stage,
        total_bytes=book.total_bytes,
        usable_bytes=book.usable_bytes,
        reserve_bytes=book.reserve_bytes,
        reserve_bytes_low=book.reserve_bytes_low,
        reserve_bytes_high=book.reserve_bytes_high,
        weights_bytes=sum(book.line(name).num_bytes for name in ("weights", "draft", "lora", "loading")),
        loading_bytes=book.line("loading").num_bytes,
        offload_bytes=book.offload_bytes,
        activation_bytes=activation.num_bytes,
        activation_bytes_low=activation.low_bytes,
        activation_bytes_high=activation.high_bytes,
        non_torch_bytes=buffers.num_bytes,
        non_torch_bytes_low=buffers.low_bytes,
        non_torch_bytes_high=buffers.high_bytes,
        cuda_graph_bytes=graphs.num_bytes,
        cuda_graph_bytes_low=graphs.low_bytes,
        cuda_graph_bytes_high=graphs.high_bytes,
        kv_pool_bytes=book.kv_pool_bytes,
        kv_pool_bytes_low=book.kv_pool_bytes_low,
        kv_pool_bytes_high=book.kv_pool_bytes_high,
        kv_buffer_bytes=_allocated_bytes(rules, book),
        kv_blocks=book.kv_blocks,
        kv_blocks_low=book.kv_blocks_low,
        kv_blocks_high=book.kv_blocks_high,
        block_tokens=book.block_tokens,
        block_bytes=book.block_bytes,
        kv_cache_tokens=book.kv_cache_tokens,
        kv_cache_tokens_low=book.kv_cache_tokens_low,
        kv_cache_tokens_high=book.kv_cache_tokens_high,
        token_line=book.token_line,
        max_concurrency=book.max_concurrency,
        max_concurrency_low=book.max_concurrency_low,
        max_concurrency_high=book.max_concurrency_high,
        sequences=middle,
        sequences_low=low,
        sequences_high=high,
        num_state_slots=book.num_state_slots,
        needed_tokens=book.request_tokens,
        needed_bytes=book.needed_bytes,
        needed_bytes_low=book.needed_bytes_low,
        needed_bytes_high=book.needed_bytes_high,
        missing_bytes=book.missing_bytes,
        missing_bytes_low=book.missing_bytes_low,
        missing_bytes_high=book.missing_bytes_high,
        fits=book.fits,
        starts_as_asked=starts and not mends,
        starts_with=mends,
        lines=tuple(_line(line) for line in book.lines),
        page_groups=book.page_groups,
        padding_fraction=book.padding_fraction,
        kv_host_tokens=kv_host_tokens(deployment, form),
        kv_supported=cached.supported,
        kv_verdict=cached.text,
        kv_verdict_source=cached.source,
        weights_supported=stored.supported,
        weights_verdict=stored.text,
        weights_verdict_source=stored.source,
        changes=() if satisfied else _changes(ask, catalog, deployment, form, wanted, asked=asked),
    )
    if served is None and users is None:
        return result
    from infcalc.api.users import service_fields  # noqa: PLC0415 - only with a load

    return replace(result, **service_fields(served, users))


def _assumed_flags(asked: Deployment, deployment: Deployment) -> dict[Kind, str]:
    """Return the flags of what was assumed because the engine does not start with what is asked or its default."""
    rules = deployment.rules
    found = {}
    if rules.checks_longest and deployment.max_model_len < asked.max_model_len:
        found[Kind.LENGTH] = f"--max-model-len {deployment.max_model_len}"
    if deployment.max_num_seqs < asked.max_num_seqs:
        found[Kind.SEQUENCES] = f"--max-num-seqs {deployment.max_num_seqs}"
    if deployment.fraction != asked.fraction:
        found[Kind.FRACTION] = f"{rules.fraction_flag} {deployment.fraction:g}"
    return found


def _allocated_bytes(rules: EngineRules, book: Ledger) -> int:
    """Return the KV that the engine allocates at its start: all that is left, or the cells of its context."""
    if rules.fraction_base is FractionBase.NONE:
        return min(book.request_bytes, book.kv_pool_bytes)
    return book.kv_pool_bytes


def _sequences(book: Ledger, served: Service | None) -> tuple[int, int, int]:
    """Return how many truly fit, at the low end of the pool, as expected, and at its high end."""
    if served is None:
        return book.sequences_low, book.sequences, book.sequences_high
    return served.requests_low, served.requests, served.requests_high


def _served(
    deployment: Deployment, form: KvFormat, book: Ledger, wanted: _Wanted
) -> tuple[Service | None, Asked | None]:
    """Return the requests and users that the pools serve, and whether the asked users fit; None where nobody asked."""
    if wanted.traffic is None and wanted.users is None:
        return None, None
    from infcalc.api.users import asked_users, service, stage_pools  # noqa: PLC0415 - only with a load

    served = None
    if wanted.traffic is not None:
        served = service(deployment, form, stage_pools(deployment_budgets(deployment)), wanted.traffic)
    if wanted.users is None:
        return served, None
    asked = asked_users(deployment, form, wanted.users, traffic=wanted.traffic, served=served, sequences=book.sequences)
    return served, asked


def _line(line: Line) -> MemoryLine:
    return MemoryLine(
        name=line.name,
        num_bytes=line.num_bytes,
        low_bytes=line.low_bytes,
        high_bytes=line.high_bytes,
        basis=line.basis,
        source=line.source,
    )


# What would make it fit ----------------------------------------------------------------------------------------------


def _changes(
    ask: Ask, catalog: Catalog, deployment: Deployment, form: KvFormat, wanted: _Wanted, *, asked: Deployment
) -> tuple[Change, ...]:
    """Return the nearest change of each kind that fits, each found with the same ledger.

    What was assumed instead of the engine's defaults is part of each change: it was verified with that.
    """
    assumed = _assumed_flags(asked, deployment)
    one = replace(
        ask,
        models=ask.models if len(ask.models) == 1 else (deployment.model.name,),
        gpus=ask.gpus if len(ask.gpus) == 1 else (deployment.gpu.name,),
        num_gpus=deployment.parallelism.num_gpus,
        kv_dtypes=(form.name,),
        max_model_len=deployment.max_model_len,
        memory_fraction=deployment.fraction if Kind.FRACTION in assumed else ask.memory_fraction,
        max_num_seqs=deployment.max_num_seqs if Kind.SEQUENCES in assumed else ask.max_num_seqs,
    )
    # Where the change makes the engine start with the model's own length, no flag is needed.
    own_length = Kind.LENGTH in assumed
    found: list[Change] = []
    longest = longest_for(deployment, form)
    for family in families(one, deployment, form, longest=longest, serving=wanted.users is not None):
        for candidate in family:
            besides = [flag for kind, flag in assumed.items() if kind is not candidate.kind]
            change = None
            if own_length and candidate.kind is not Kind.LENGTH:
                unshortened = replace(candidate, ask=replace(candidate.ask, max_model_len=None))
                change = _verified(unshortened, catalog, wanted)
            if change is not None:
                besides.remove(assumed[Kind.LENGTH])
            else:
                change = _verified(candidate, catalog, wanted)
            if change is not None:
                found.append(replace(change, change=" ".join([change.change, *besides])))
                break
    return tuple(found[:_MOST_CHANGES])


def _verified(candidate: Candidate, catalog: Catalog, wanted: _Wanted) -> Change | None:
    """Return the change with its figures where the same ledger says that it fits, else None."""
    try:
        (deployment,) = resolve(candidate.ask, catalog)
        if wanted.traffic is not None:
            from infcalc.api.users import check_lengths  # noqa: PLC0415 - only with lengths

            check_lengths(deployment, wanted.traffic)
        form, _, _ = kv_format(deployment, candidate.ask.kv_dtypes[0])
        if not can_serve(candidate, deployment, form):
            return None
        context = min(wanted.context_tokens, deployment.max_model_len)
        book = deployment_ledger(deployment, form, context_tokens=context)
        served, asked = _served(deployment, form, book, wanted)
    except InfcalcError:
        return None
    if not book.fits or (asked is not None and asked.users_fit is False):
        return None
    low, middle, high = _sequences(book, served)
    return Change(
        change=candidate.text,
        needed_bytes=book.needed_bytes,
        needed_bytes_low=book.needed_bytes_low,
        needed_bytes_high=book.needed_bytes_high,
        kv_pool_bytes=book.kv_pool_bytes,
        kv_pool_bytes_low=book.kv_pool_bytes_low,
        kv_pool_bytes_high=book.kv_pool_bytes_high,
        max_model_len=deployment.max_model_len,
        context_tokens=context,
        sequences=middle,
        sequences_low=low,
        sequences_high=high,
    )


# What is said besides ------------------------------------------------------------------------------------------------


def _doubts(result: MemoryResult) -> list[str]:
    server = f"{result.engine} {result.engine_version}"
    found: list[str] = []
    if result.kv_supported is False:
        found.append(f"{server} has no KV cache in {result.kv_dtype} on {result.gpu}: {result.kv_verdict}")
    if result.weights_supported is False:
        found.append(
            f"{server} cannot compute with weights in {result.weights} on {result.gpu}: {result.weights_verdict}"
        )
    if not result.fits:
        found.append(
            f"{result.model} in {result.weights} does not fit on {result.num_gpus} x {result.gpu}: "
            f"{format_bytes(result.missing_bytes)} per GPU are missing for one sequence of "
            f"{result.needed_tokens:,} tokens"
        )
    return found


def _notes(deployment: Deployment, result: MemoryResult) -> list[str]:
    rules = deployment.rules
    share = "no fraction" if deployment.fraction is None else f"{rules.fraction_flag} {deployment.fraction:g}"
    found = [
        f"{share}: {rules.fraction_base.value} ({rules.fraction_source})",
        f"tokens as printed: {result.token_line}",
        f"KV cache in {result.kv_dtype}: {_cited(result.kv_verdict, result.kv_verdict_source)}",
        f"weights in {result.weights}: {_cited(result.weights_verdict, result.weights_verdict_source)}",
        f"the longest sequence that must fit is {result.needed_tokens:,} tokens",
        *slot_notes(deployment),
    ]
    found += offload_notes(
        deployment,
        result.kv_dtype,
        host_tokens=result.kv_host_tokens,
        gpu_tokens=result.sequences * result.context_tokens,
    )
    if result.num_state_slots is not None:
        found.append(
            f"recurrent states have a pool of their own, {rules.state_pool_ratio:g} times that of the tokens: "
            f"{result.num_state_slots:,} slots, and no more sequences than that run at once"
        )
    if result.kv_buffer_bytes < result.kv_pool_bytes:
        found.append(
            f"{rules.engine} allocates {format_bytes(result.kv_buffer_bytes)} of the pool, the cells of "
            f"{result.max_model_len:,} tokens; sequences are those of all that is left, with a -c as large"
        )
    if result.page_groups:
        found.append(
            f"page groups: {'; '.join(result.page_groups)}; {result.padding_fraction:.1%} of a page is padding"
        )
    if rules.cuda_graph_bytes == 0 and not rules.cuda_graph_source.startswith("--enforce-eager"):
        found.append(f"CUDA graphs: {rules.cuda_graph_source}")
    return found


def _cited(text: str, source: str) -> str:
    return f"{text} ({source})" if source else text


def _load_notes(deployment: Deployment, wanted: _Wanted) -> tuple[str, ...]:
    if wanted.traffic is None:
        return ()
    from infcalc.api.users import service_notes  # noqa: PLC0415 - only with lengths

    return service_notes(deployment, wanted.traffic)


def _load_warnings(deployment: Deployment, result: MemoryResult, wanted: _Wanted) -> list[str]:
    # Where the engine does not start, nobody asks how many it serves.
    if not result.fits or (wanted.traffic is None and wanted.users is None):
        return []
    from infcalc.api.users import asked_warnings, service_warnings  # noqa: PLC0415 - only with a load

    beyond = () if wanted.traffic is None else service_warnings(deployment, wanted.traffic)
    return [*beyond, *asked_warnings(deployment, result)]


def _explained(deployment: Deployment, result: MemoryResult, wanted: _Wanted) -> list[Explanation]:
    from infcalc.api.explaining import explain_pool  # noqa: PLC0415 - only when asked

    lines = [
        Explanation(
            quantity=line.name,
            formula=line.source,
            substituted=f"{line.num_bytes:,} bytes ({line.low_bytes:,} to {line.high_bytes:,}), {line.basis}",
        )
        for line in result.lines
    ]
    pool = explain_pool(deployment, deployment_budgets(deployment)[result.stage])
    tokens = Explanation(
        quantity="kv_cache_tokens",
        formula=result.token_line,
        substituted=(
            f"{result.kv_blocks:,} blocks of {result.block_tokens:,} tokens and {result.block_bytes:,} bytes -> "
            f"{result.kv_cache_tokens:,} tokens, {result.max_concurrency:.2f} sequences of {result.max_model_len:,}"
        ),
    )
    served: tuple[Explanation, ...] = ()
    if wanted.traffic is not None:
        from infcalc.api.users import explain_service  # noqa: PLC0415 - only with lengths

        served = explain_service(result, wanted.traffic)
    return [*lines, pool, tokens, *served]
