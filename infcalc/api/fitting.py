"""How many sequences fit at each KV-cache precision?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, Deployment, kv_format, load, merged_inputs, resolve
from infcalc.api.offloading import kv_host_tokens, offload_notes
from infcalc.api.sizing import (
    batch_warnings,
    budget_note,
    check_contexts,
    check_model_len,
    context_warnings,
    deployment_budgets,
    fitting_room,
    fraction_warnings,
    room_warnings,
    startable,
)
from infcalc.api.slots import slot_notes
from infcalc.engines.precisions import Status
from infcalc.engines.verdicts import Verdict, cache_kind, kv_verdict, weights_verdict
from infcalc.frozen import frozen
from infcalc.memory.budget import Budget
from infcalc.memory.kv import kv_components, sequence_bytes, slope_bytes_per_token
from infcalc.spec.explain import Explanation, Input
from infcalc.spec.kv import KV_FORMATS, KvFormat
from infcalc.units import KIB

if TYPE_CHECKING:
    from infcalc.api.users import Load, Service, Traffic
    from infcalc.spec.model import Model

DEFAULT_CONTEXT = 4 * KIB
DEFAULT_PRECISIONS = ("fp16", "fp8", "int4")
_DOES_NOT_FIT = 3
_SIXTEEN_BITS = 16


@frozen
class ConcurrencyRow:
    """Sequences of one length at one KV precision, by memory alone.

    ``tokens`` is what the pool holds of such sequences. ``gain_over_fp16`` is the true gain in sequence length per
    byte, scales included; ``gain_over_fp16_nominal`` what the element width promises.
    """

    kv_dtype: str
    context_tokens: int
    kv_bytes_per_token: int | float
    kv_bytes_per_gpu: int
    """Of one sequence, on the governing GPU."""
    kv_pool_bytes: int
    kv_pool_bytes_low: int
    kv_pool_bytes_high: int
    sequences: int
    sequences_low: int
    sequences_high: int
    tokens: int
    gain_over_fp16: float
    gain_over_fp16_nominal: float
    note: str
    supported: bool | None
    """Whether the engine can store this precision on this GPU; None where that is not on record."""
    verdict_status: str
    verdict: str
    verdict_source: str
    kv_host_tokens: int = 0
    """Tokens of requests that are not running, kept in host memory (``--kv-offload-gib``)."""
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
class ConcurrencyResult:
    """Concurrency of one deployment; the memory parts are of a GPU of the stage that decides the first row."""

    model: str
    gpu: str
    num_gpus: int
    weights: str
    usable_bytes: int
    weights_bytes: int
    """The tensors on that GPU, exact; engines print them together with ``loading_bytes``, as ``memory`` does."""
    activation_bytes: int
    activation_bytes_low: int
    activation_bytes_high: int
    non_torch_bytes: int
    non_torch_bytes_low: int
    non_torch_bytes_high: int
    cuda_graph_bytes: int
    cuda_graph_bytes_low: int
    cuda_graph_bytes_high: int
    loading_bytes: int
    """Taken by loading besides the weights: rotary tables, idle ends of large tensors."""
    missing_bytes: int
    missing_bytes_low: int
    missing_bytes_high: int
    max_num_seqs: int
    """The engine's own cap on running sequences: a limit of its own, never folded into ``sequences``."""
    weights_supported: bool | None
    weights_verdict: str
    weights_verdict_source: str
    rows: tuple[ConcurrencyRow, ...]


def concurrency(
    ask: Ask | None = None,
    *,
    contexts: tuple[int, ...] = (),
    requests: Load | None = None,
    explain: bool = False,
) -> Answer[ConcurrencyResult]:
    """Return how many sequences fit at FP16, FP8 and INT4 (or the asked precisions), with all that was counted.

    With the lengths of ``requests`` also how many of those run at once, and how many users that serves. Exit code 3
    when in some asked row not even one sequence fits, or not all the asked users do.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask = ask or Ask()
    traffic = _traffic(requests)
    length, length_origin = (DEFAULT_CONTEXT, "default") if traffic is None else _whole_length(traffic)
    context_origin = "given (--context)" if contexts else length_origin
    contexts = check_contexts(contexts) or (length,)
    results: list[ConcurrencyResult] = []
    notes: list[str] = []
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    pairs: list[tuple[Deployment, ConcurrencyResult]] = []
    for asked in resolve(ask, load(ask)):
        deployment, unstarted = startable(asked)
        check_model_len(deployment)
        _check_lengths(deployment, traffic)
        stages = deployment_budgets(deployment)
        formats: list[KvFormat] = []
        origin = "default"
        for word in ask.kv_dtypes or DEFAULT_PRECISIONS:
            form, origin, said = kv_format(deployment, word)
            formats.append(form)
            talk += [*said, *batch_warnings(deployment, form, stages, contexts)]
        users = None if requests is None else requests.users
        result = _result(deployment, stages, tuple(formats), contexts, traffic=traffic, users=users)
        results.append(result)
        pairs.append((deployment, result))
        governing = stages[fitting_room(deployment, formats[0], stages, contexts[0]).stage]
        notes += [*deployment.assumptions, budget_note(deployment, governing), _cap_note(deployment, result)]
        notes += [*_verdict_notes(result), *_offloaded(deployment, result), *slot_notes(deployment)]
        talk += _refusals(deployment, result) if ask.kv_dtypes else ()
        talk += [*deployment.warnings, *context_warnings(deployment, contexts), *room_warnings(deployment, stages)]
        talk += [*unstarted, *fraction_warnings(deployment, stages)]
        found = (
            *deployment.inputs,
            Input(
                name="kv_dtypes",
                value=tuple(form.name for form in formats),
                origin=origin if ask.kv_dtypes else "default",
            ),
            Input(name="contexts", value=contexts, origin=context_origin),
        )
        if users is not None:
            from infcalc.api.users import asked_warnings  # noqa: PLC0415 - with --users

            found = (*found, Input(name="users", value=users, origin="given (--users)"))
            talk += [text for row in result.rows for text in asked_warnings(deployment, row)]
        if traffic is not None:
            from infcalc.api.users import service_notes, service_warnings, traffic_inputs  # noqa: PLC0415 - with lengths

            notes += service_notes(deployment, traffic)
            talk += service_warnings(deployment, traffic)
            found = (*found, *traffic_inputs(traffic))
        inputs.append(found)
    explanations: tuple[Explanation, ...] = ()
    if explain:
        from infcalc.api.explaining import explain_concurrency  # noqa: PLC0415 - only when asked

        explanations = tuple(text for deployment, result in pairs for text in explain_concurrency(deployment, result))
        if traffic is not None:
            from infcalc.api.users import explain_service  # noqa: PLC0415 - with lengths

            explanations += tuple(text for _, result in pairs for text in explain_service(result.rows[0], traffic))
    empty = any(row.sequences == 0 or row.users_fit is False for result in results for row in result.rows)
    return Answer(
        command="concurrency",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=explanations,
        exit_code=_DOES_NOT_FIT if empty else 0,
    )


def _traffic(requests: Load | None) -> Traffic | None:
    if requests is None:
        return None
    from infcalc.api.users import read_load  # noqa: PLC0415 - only with lengths

    return read_load(requests)


def _check_lengths(deployment: Deployment, traffic: Traffic | None) -> None:
    if traffic is not None:
        from infcalc.api.users import check_lengths  # noqa: PLC0415 - only with lengths

        check_lengths(deployment, traffic)


def _whole_length(traffic: Traffic) -> tuple[int, str]:
    return max(1, round(traffic.mean_total_tokens)), "mean prompt and answer"


def _verdict_notes(result: ConcurrencyResult) -> list[str]:
    """Return what the engine makes of each precision that is not plain 16 bit."""
    found = [
        f"KV in {row.kv_dtype}: {row.verdict_status.replace('_', ' ')}, {_cited(row.verdict, row.verdict_source)}"
        for row in result.rows
        if row.verdict_status != Status.SUPPORTED or row.gain_over_fp16_nominal != 1
    ]
    if result.weights_supported is not True or not result.weights.endswith(("16", "32")):
        found.append(f"weights in {result.weights}: {_cited(result.weights_verdict, result.weights_verdict_source)}")
    return found


def _offloaded(deployment: Deployment, result: ConcurrencyResult) -> list[str]:
    row = result.rows[0]
    return offload_notes(deployment, row.kv_dtype, host_tokens=row.kv_host_tokens, gpu_tokens=row.tokens)


def _refusals(deployment: Deployment, result: ConcurrencyResult) -> list[str]:
    """Return a warning for each asked KV precision that the engine cannot store on this GPU."""
    server = f"{deployment.rules.engine} {deployment.rules.version}"
    return [
        f"{server} has no KV cache in {row.kv_dtype} on {result.gpu}: {row.verdict}"
        for row in result.rows
        if row.supported is False
    ]


def _cited(text: str, source: str) -> str:
    return f"{text} ({source})" if source else text


def _cap_note(deployment: Deployment, result: ConcurrencyResult) -> str:
    over = [row for row in result.rows if max(row.sequences, row.requests or 0) > deployment.max_num_seqs]
    text = (
        f"{deployment.rules.engine} runs at most {deployment.max_num_seqs} sequences at once (max_num_seqs), "
        "a cap apart from memory"
    )
    return f"{text}: rows above it need the flag raised" if over else text


def _result(
    deployment: Deployment,
    stages: tuple[Budget, ...],
    formats: tuple[KvFormat, ...],
    contexts: tuple[int, ...],
    *,
    traffic: Traffic | None,
    users: int | None,
) -> ConcurrencyResult:
    engine, version, gpu = deployment.rules.engine, deployment.rules.version, deployment.gpu
    kind = cache_kind(deployment.model)
    weights = weights_verdict(engine, version, gpu, deployment.weights)
    verdicts = {form.name: kv_verdict(engine, version, gpu, form.name, cache=kind) for form in formats}
    served = {form.name: _service(deployment, stages, form, traffic) for form in formats}
    # The memory shown is that of the stage which decides the first row.
    tightest = stages[fitting_room(deployment, formats[0], stages, contexts[0]).stage]
    return ConcurrencyResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        weights=deployment.weights,
        usable_bytes=tightest.usable_bytes,
        weights_bytes=tightest.weights_bytes,
        activation_bytes=tightest.activation.value_bytes,
        activation_bytes_low=tightest.activation.low_bytes,
        activation_bytes_high=tightest.activation.high_bytes,
        non_torch_bytes=tightest.non_torch.value_bytes,
        non_torch_bytes_low=tightest.non_torch.low_bytes,
        non_torch_bytes_high=tightest.non_torch.high_bytes,
        cuda_graph_bytes=tightest.cuda_graph_bytes,
        cuda_graph_bytes_low=tightest.graphs.low_bytes,
        cuda_graph_bytes_high=tightest.graphs.high_bytes,
        loading_bytes=tightest.loading_bytes,
        missing_bytes=max(stage.missing_bytes for stage in stages),
        missing_bytes_low=max(stage.missing_low_bytes for stage in stages),
        missing_bytes_high=max(stage.missing_high_bytes for stage in stages),
        max_num_seqs=deployment.max_num_seqs,
        weights_supported=weights.supported,
        weights_verdict=weights.text,
        weights_verdict_source=weights.source,
        rows=tuple(
            _with_users(deployment, form, row, traffic=traffic, users=users, served=served[form.name])
            for context in contexts
            for form in formats
            for row in (_row(deployment, stages, form, context, verdict=verdicts[form.name]),)
        ),
    )


def _service(
    deployment: Deployment, stages: tuple[Budget, ...], form: KvFormat, traffic: Traffic | None
) -> Service | None:
    if traffic is None:
        return None
    from infcalc.api.users import service, stage_pools  # noqa: PLC0415 - only with lengths

    return service(deployment, form, stage_pools(stages), traffic)


def _with_users(
    deployment: Deployment,
    form: KvFormat,
    row: ConcurrencyRow,
    *,
    traffic: Traffic | None,
    users: int | None,
    served: Service | None,
) -> ConcurrencyRow:
    """Return the row with the requests and users it serves, and whether those fit that were asked for."""
    if served is None and users is None:
        return row
    from infcalc.api.users import asked_users, service_fields  # noqa: PLC0415 - only with a load

    asked = None
    if users is not None:
        asked = asked_users(deployment, form, users, traffic=traffic, served=served, sequences=row.sequences)
    return replace(row, **service_fields(served, asked))


def _row(
    deployment: Deployment,
    stages: tuple[Budget, ...],
    form: KvFormat,
    context: int,
    *,
    verdict: Verdict,
) -> ConcurrencyRow:
    fits = fitting_room(deployment, form, stages, context)
    budget = stages[fits.stage]
    return ConcurrencyRow(
        kv_dtype=form.name,
        context_tokens=context,
        kv_bytes_per_token=slope_bytes_per_token(kv_components(deployment.model, form, with_mtp=deployment.with_mtp)),
        kv_bytes_per_gpu=fits.kv_bytes_per_gpu,
        kv_pool_bytes=budget.kv_pool_bytes,
        kv_pool_bytes_low=budget.kv_pool_low_bytes,
        kv_pool_bytes_high=budget.kv_pool_high_bytes,
        sequences=fits.sequences,
        sequences_low=fits.sequences_low,
        sequences_high=fits.sequences_high,
        tokens=fits.tokens,
        gain_over_fp16=_gain(deployment.model, form, context),
        gain_over_fp16_nominal=_SIXTEEN_BITS / form.element_bits,
        note=form.note,
        supported=verdict.supported,
        verdict_status=verdict.status.value,
        verdict=verdict.text,
        verdict_source=verdict.source,
        kv_host_tokens=kv_host_tokens(deployment, form),
    )


def _gain(model: Model, form: KvFormat, context: int) -> float:
    """Return how many times fewer bytes a sequence takes than in fp16; recurrent state does not shrink."""
    in_fp16 = sequence_bytes(kv_components(model, KV_FORMATS["fp16"]), context)
    here = sequence_bytes(kv_components(model, form), context)
    return in_fp16 / here if here else 1.0
