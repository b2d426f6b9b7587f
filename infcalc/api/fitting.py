"""How many sequences fit at each KV-cache precision?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, Deployment, kv_format, load, merged_inputs, resolve
from infcalc.api.sizing import (
    batch_warnings,
    budget_note,
    check_contexts,
    context_warnings,
    deployment_budgets,
    fitting_room,
    room_warnings,
)
from infcalc.frozen import frozen
from infcalc.memory.budget import Budget
from infcalc.memory.kv import kv_components, sequence_bytes, slope_bytes_per_token
from infcalc.spec.explain import Explanation, Input
from infcalc.spec.kv import KV_FORMATS, KvFormat
from infcalc.units import KIB

if TYPE_CHECKING:
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


@frozen
class ConcurrencyResult:
    """Concurrency of one deployment; the memory parts are of a GPU of the stage that decides the first row."""

    model: str
    gpu: str
    num_gpus: int
    weights: str
    usable_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    missing_bytes: int
    max_num_seqs: int
    """The engine's own cap on running sequences: a limit of its own, never folded into ``sequences``."""
    rows: tuple[ConcurrencyRow, ...]


def concurrency(
    ask: Ask | None = None, *, contexts: tuple[int, ...] = (), explain: bool = False
) -> Answer[ConcurrencyResult]:
    """Return how many sequences fit at FP16, FP8 and INT4 (or the asked precisions), with all that was counted.

    Exit code 3 when in some asked row not even one sequence fits.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask = ask or Ask()
    context_origin = "given (--context)" if contexts else "default"
    contexts = check_contexts(contexts) or (DEFAULT_CONTEXT,)
    results: list[ConcurrencyResult] = []
    notes: list[str] = []
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    pairs: list[tuple[Deployment, ConcurrencyResult]] = []
    for deployment in resolve(ask, load(ask)):
        stages = deployment_budgets(deployment)
        formats: list[KvFormat] = []
        origin = "default"
        for word in ask.kv_dtypes or DEFAULT_PRECISIONS:
            form, origin, said = kv_format(deployment, word)
            formats.append(form)
            talk += [*said, *batch_warnings(deployment, form, stages, contexts)]
        result = _result(deployment, stages, tuple(formats), contexts)
        results.append(result)
        pairs.append((deployment, result))
        governing = stages[fitting_room(deployment, formats[0], stages, contexts[0]).stage]
        notes += [*deployment.assumptions, budget_note(deployment, governing), _cap_note(deployment, result)]
        talk += [*deployment.warnings, *context_warnings(deployment, contexts), *room_warnings(deployment, stages)]
        inputs.append(
            (
                *deployment.inputs,
                Input(
                    name="kv_dtypes",
                    value=tuple(form.name for form in formats),
                    origin=origin if ask.kv_dtypes else "default",
                ),
                Input(name="contexts", value=contexts, origin=context_origin),
            )
        )
    explanations: tuple[Explanation, ...] = ()
    if explain:
        from infcalc.api.explaining import explain_concurrency  # noqa: PLC0415 - only when asked

        explanations = tuple(text for deployment, result in pairs for text in explain_concurrency(deployment, result))
    empty = any(row.sequences == 0 for result in results for row in result.rows)
    return Answer(
        command="concurrency",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=explanations,
        exit_code=_DOES_NOT_FIT if empty else 0,
    )


def _cap_note(deployment: Deployment, result: ConcurrencyResult) -> str:
    over = [row for row in result.rows if row.sequences > deployment.max_num_seqs]
    text = (
        f"{deployment.rules.engine} runs at most {deployment.max_num_seqs} sequences at once (max_num_seqs), "
        "a cap apart from memory"
    )
    return f"{text}: rows above it need the flag raised" if over else text


def _result(
    deployment: Deployment, stages: tuple[Budget, ...], formats: tuple[KvFormat, ...], contexts: tuple[int, ...]
) -> ConcurrencyResult:
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
        non_torch_bytes=tightest.non_torch.value_bytes,
        cuda_graph_bytes=tightest.cuda_graph_bytes,
        missing_bytes=max(stage.missing_bytes for stage in stages),
        max_num_seqs=deployment.max_num_seqs,
        rows=tuple(_row(deployment, stages, form, context) for context in contexts for form in formats),
    )


def _row(deployment: Deployment, stages: tuple[Budget, ...], form: KvFormat, context: int) -> ConcurrencyRow:
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
    )


def _gain(model: Model, form: KvFormat, context: int) -> float:
    """Return how many times fewer bytes a sequence takes than in fp16; recurrent state does not shrink."""
    in_fp16 = sequence_bytes(kv_components(model, KV_FORMATS["fp16"]), context)
    here = sequence_bytes(kv_components(model, form), context)
    return in_fp16 / here if here else 1.0
