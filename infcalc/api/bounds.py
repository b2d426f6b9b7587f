"""What bounds prefill and decode: compute or memory?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, Deployment, kv_format, load, merged_inputs, resolve, single_kv_dtype
from infcalc.api.sizing import (
    batch_warnings,
    check_contexts,
    context_warnings,
    deployment_budgets,
    fraction_warnings,
    room_warnings,
    startable,
)
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.lowering.ops import Decode, Prefill, StepShape
from infcalc.roofline.crossover import Crossover, crossover, explain_crossover
from infcalc.roofline.step import BATCHES, explain_stages, points, stage_times
from infcalc.spec.explain import Input
from infcalc.units import KIB

if TYPE_CHECKING:
    from infcalc.spec.explain import Explanation
    from infcalc.spec.kv import KvFormat

DEFAULT_CONTEXT = 4 * KIB
MAX_BATCH = 2**20


@frozen
class RooflinePoint:
    """One phase at one batch on one deployment; times are floors at 100 % of peak and bandwidth.

    FLOP, bytes, their ratio and what bounds them are of one GPU of the busiest pipeline stage, which takes ``stage_s``;
    ``time_s`` is the latency of the step through all stages (equal to ``stage_s`` without a pipeline).
    ``tokens_per_s`` is of the whole replica with its pipeline full: one such batch in flight per stage, so that the
    slowest stage sets the pace. ``attention_io`` is ``flash`` (Q, K, V and output only) or ``naive`` (the score matrix
    goes through memory).
    """

    model: str
    gpu: str
    num_gpus: int
    phase: str
    attention_io: str
    precision: str
    """That most of its FLOP are computed in."""
    batch: int
    tokens: int
    flop: float
    bytes: float
    flop_per_byte: float
    bound_by: str
    time_s: float
    stage_s: float
    tokens_per_s: float

    @property
    def flop_per_s(self) -> float:
        """Rate at which a GPU of the busiest stage computes."""
        return self.flop / self.stage_s


@frozen
class RooflineResult:
    """Crossovers of every asked GPU and precision, and where the phases of every asked model stand."""

    context_tokens: int
    gpus: tuple[Crossover, ...]
    points: tuple[RooflinePoint, ...]


def roofline(
    ask: Ask | None = None,
    *,
    contexts: tuple[int, ...] = (),
    batches: tuple[int, ...] = (),
    explain: bool = False,
) -> Answer[RooflineResult]:
    """Return crossovers and points for prompts and contexts of one length, at several batches.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask = ask or Ask()
    checked = check_contexts(contexts) or (DEFAULT_CONTEXT,)
    if len(checked) > 1:
        raise UsageError(
            f"{len(checked)} contexts", place="--context", hint="roofline looks at one length: give one --context"
        )
    for batch in batches:
        if not 1 <= batch <= MAX_BATCH:
            raise UsageError(f"{batch} sequences", place="--batch", hint=f"a whole number from 1 to {MAX_BATCH:,}")
    context = checked[0]
    batch_origin = "given (--batch)" if batches else "default"
    batches = tuple(dict.fromkeys(batches)) or BATCHES
    crossovers: dict[tuple[str, str], Crossover] = {}
    found: list[RooflinePoint] = []
    notes = [
        (
            "times are floors at 100 % of peak and bandwidth, without launches, collectives and queueing; "
            "FLOP and bytes are of one GPU"
        )
    ]
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    explanations: list[Explanation] = []
    word = single_kv_dtype(ask)
    for asked in resolve(ask, load(ask)):
        deployment, unstarted = startable(asked)
        form, origin, said = kv_format(deployment, word)
        stages = deployment_budgets(deployment)
        crossovers |= {(one.gpu, one.precision): one for one in crossover(deployment.gpu)}
        found += _points(deployment, form, context, batches)
        notes += [*deployment.assumptions, *_pipeline_note(deployment)]
        talk += [
            *deployment.warnings,
            *said,
            *context_warnings(deployment, checked),
            *room_warnings(deployment, stages),
            *unstarted,
            *fraction_warnings(deployment, stages),
            *(batch_warnings(deployment, form, stages, checked, max(batches)) if batch_origin != "default" else ()),
        ]
        inputs.append(
            (
                *deployment.inputs,
                Input(name="kv_dtype", value=form.name, origin=origin, source=form.note),
                Input(name="context", value=context, origin="given (--context)" if contexts else "reference scenario"),
                Input(name="batches", value=batches, origin=batch_origin),
            )
        )
        if explain:
            explanations += _explanations(deployment, form, context)
    return Answer(
        command="roofline",
        results=(RooflineResult(context_tokens=context, gpus=tuple(crossovers.values()), points=tuple(found)),),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
    )


def _pipeline_note(deployment: Deployment) -> list[str]:
    pp = deployment.parallelism.pp
    if pp == 1:
        return []
    note = (
        f"PP {pp}: work and traffic are of a GPU of the busiest stage, the time is that of a step through all stages, "
        f"and tokens/s are those of the replica with {pp} such batches in flight, limited by the slowest stage"
    )
    return [note]


def _points(deployment: Deployment, form: KvFormat, context: int, batches: tuple[int, ...]) -> list[RooflinePoint]:
    return [
        RooflinePoint(
            model=deployment.model.name,
            gpu=deployment.gpu.name,
            num_gpus=deployment.parallelism.num_gpus,
            phase=point.phase.value,
            attention_io=point.attention_io.value,
            precision=point.precision,
            batch=point.batch,
            tokens=point.tokens,
            flop=point.flop,
            bytes=point.bytes,
            flop_per_byte=point.flop_per_byte,
            bound_by=point.bound_by.value,
            time_s=point.time_s,
            stage_s=point.stage_s,
            tokens_per_s=point.tokens_per_s,
        )
        for point in points(
            deployment.model,
            deployment.gpu,
            parallelism=deployment.parallelism,
            quantization=deployment.quantization,
            kv=form,
            context_tokens=context,
            batches=batches,
        )
    ]


def _explanations(deployment: Deployment, form: KvFormat, context: int) -> list[Explanation]:
    """Explain crossovers, one prompt's prefill and one decode step at batch 1, op by op."""
    found = list(explain_crossover(deployment.gpu))
    for shape in (
        StepShape(prefills=(Prefill(new_tokens=context),)),
        StepShape(decodes=(Decode(context_tokens=context),)),
    ):
        stages = stage_times(
            deployment.model,
            deployment.gpu,
            shape,
            parallelism=deployment.parallelism,
            quantization=deployment.quantization,
            kv=form,
        )
        found += explain_stages(stages, deployment.gpu)
    return [
        replace(text, inputs=tuple(_with_origin(item, text.quantity, deployment) for item in text.inputs))
        for text in found
    ]


def _with_origin(item: Input, quantity: str, deployment: Deployment) -> Input:
    """Return a rate of the GPU with the place of its value, which may be an overlay."""
    stated = item.name if "[" in item.name else quantity
    key = "bandwidth" if item.name == "bandwidth_bytes_per_s" else stated.partition("[")[2].rstrip("]")
    return replace(item, origin=deployment.gpu_origins.get(key, item.origin))
