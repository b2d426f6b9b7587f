"""The time of one step on the roofline, and where the phases of a model stand on it.

The time of a step is the sum over its ops of the longer of compute and memory time: kernels run one after another, so
what one leaves idle another cannot use. It is a floor at efficiency 1: launches, collectives and queueing come on top.
``flop`` and ``bytes`` are sums over the ops, per GPU; their ratio places the step as a whole on the roofline.

Under pipeline parallelism a step passes one stage after the other: its latency is the sum of their times, while each
GPU does the work of its stage only. With as many batches in flight as there are stages, the slowest sets the pace.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.lowering.ops import AttentionIo, Decode, Op, Prefill, StepShape, ops_of, templates
from infcalc.lowering.tensors import inventory
from infcalc.roofline.price import IDEAL, Bound, Efficiency, OpTime, price
from infcalc.spec.explain import Explanation, Input
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.parallelism import Parallelism
from infcalc.units import format_seconds, format_si

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from infcalc.lowering.ops import Template
    from infcalc.lowering.tensors import Tensor
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.spec.weights import WeightQuantization

BATCHES = (1, 8, 32, 128, 256, 1024)
"""Batches at which :func:`points` looks by default."""
_WHOLE = Parallelism()
_BF16_KV = KV_FORMATS["bf16"]


class Phase(StrEnum):
    """What a step does."""

    PREFILL = "prefill"
    DECODE = "decode"


@frozen
class StepTime:
    """One step on one GPU rank. ``parts`` are its ops; ``time_s`` is the sum of theirs."""

    time_s: float
    flop: float
    bytes: float
    compute_s: float
    """Sum of the ops' compute times: the step's time were it never to wait for memory."""
    memory_s: float
    parts: tuple[OpTime, ...]

    @property
    def flop_per_byte(self) -> float:
        """Arithmetic intensity of the step as a whole."""
        return self.flop / self.bytes

    @property
    def bound_by(self) -> Bound:
        """What the step as a whole waits for: the greater of its summed compute and memory times."""
        return Bound.COMPUTE if self.compute_s > self.memory_s else Bound.MEMORY

    @property
    def precision(self) -> str:
        """Precision that most of the step's FLOP are computed in."""
        flop: dict[str, float] = {}
        for part in self.parts:
            flop[part.precision] = flop.get(part.precision, 0.0) + part.op.flop
        return max(flop, key=lambda precision: flop[precision])


@frozen
class Point:
    """Where one phase at one batch stands on the roofline.

    ``tokens`` pass through the model in the step, over the whole replica; ``batch`` sequences bring them. FLOP, bytes,
    their ratio and what bounds them are those of one GPU of the busiest pipeline stage, which takes ``stage_s``.
    ``time_s`` is the latency of the step through all stages: the same as ``stage_s`` without a pipeline.
    """

    phase: Phase
    batch: int
    tokens: int
    flop: float
    bytes: float
    flop_per_byte: float
    bound_by: Bound
    time_s: float
    stage_s: float
    attention_io: AttentionIo
    precision: str
    """Precision that most of its FLOP are computed in: its roof is that one's."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the replica with its pipeline full: one such batch in flight per stage."""
        return self.tokens / self.stage_s


def step_time(ops: Iterable[Op], gpu: Gpu, efficiency: Efficiency = IDEAL) -> StepTime:
    """Return the time of a step made of ``ops``.

    Raises:
        UsageError: the GPU states no peak rate that could serve an op.

    """
    parts = tuple(price(op, gpu, efficiency) for op in ops)
    return StepTime(
        time_s=math.fsum(part.time_s for part in parts),
        flop=math.fsum(part.op.flop for part in parts),
        bytes=math.fsum(part.op.total_bytes for part in parts),
        compute_s=math.fsum(part.compute_s for part in parts),
        memory_s=math.fsum(part.memory_s for part in parts),
        parts=parts,
    )


def stage_times(
    model: Model,
    gpu: Gpu,
    shape: StepShape,
    *,
    parallelism: Parallelism = _WHOLE,
    kv: KvFormat = _BF16_KV,
    quantization: WeightQuantization | None = None,
    attention_io: AttentionIo = AttentionIo.FLASH,
    busy_dp_ranks: int | None = None,
    tensors: tuple[Tensor, ...] | None = None,
    efficiency: Efficiency = IDEAL,
) -> tuple[StepTime, ...]:
    """Return the step of ``shape`` on one rank of each pipeline stage (see :func:`infcalc.lowering.ops.operations`).

    Raises:
        UsageError: an unknown weight format, or a GPU without a peak rate.

    """
    stages = _stages(
        model, parallelism=parallelism, kv=kv, quantization=quantization, attention_io=attention_io, tensors=tensors
    )
    return _stage_times(stages, gpu, shape, parallelism.dp if busy_dp_ranks is None else busy_dp_ranks, efficiency)


def busiest(stages: Sequence[StepTime]) -> StepTime:
    """Return the stage that takes longest: the first of equals."""
    return max(stages, key=lambda stage: stage.time_s)


def points(
    model: Model,
    gpu: Gpu,
    *,
    parallelism: Parallelism = _WHOLE,
    quantization: WeightQuantization | None = None,
    kv: KvFormat = _BF16_KV,
    context_tokens: int = 4096,
    prompt_tokens: int | None = None,
    batches: Sequence[int] = BATCHES,
    attention_io: Sequence[AttentionIo] = tuple(AttentionIo),
    efficiency: Efficiency = IDEAL,
) -> tuple[Point, ...]:
    """Return prefill and decode of ``model`` at each batch and each way of attention IO.

    Prefill works on ``batch`` prompts of ``prompt_tokens`` (``context_tokens`` unless given), decode on ``batch``
    sequences that each hold ``context_tokens``. A batch is that of the replica; its attention-DP ranks share it.

    Raises:
        UsageError: a batch or a length below 1, an unknown weight format, or a GPU without a peak rate.

    """
    tensors = inventory(model, quantization)
    prompt_tokens = context_tokens if prompt_tokens is None else prompt_tokens
    found: list[Point] = []
    made = {
        way: _stages(model, parallelism=parallelism, kv=kv, attention_io=way, tensors=tensors) for way in attention_io
    }
    for phase in Phase:
        for batch in batches:
            on_rank, busy = _per_dp_rank(batch, parallelism)
            match phase:
                case Phase.PREFILL:
                    shape = StepShape(prefills=(Prefill(new_tokens=prompt_tokens, num_sequences=on_rank),))
                case Phase.DECODE:
                    shape = StepShape(decodes=(Decode(context_tokens=context_tokens, num_sequences=on_rank),))
            for way in attention_io:
                stages = _stage_times(made[way], gpu, shape, busy, efficiency)
                step = busiest(stages)
                found.append(
                    Point(
                        phase=phase,
                        batch=batch,
                        tokens=batch * (prompt_tokens if phase is Phase.PREFILL else 1),
                        flop=step.flop,
                        bytes=step.bytes,
                        flop_per_byte=step.flop_per_byte,
                        bound_by=step.bound_by,
                        time_s=math.fsum(stage.time_s for stage in stages),
                        stage_s=step.time_s,
                        attention_io=way,
                        precision=step.precision,
                    )
                )
    return tuple(found)


def decode_timer(
    model: Model,
    gpu: Gpu,
    *,
    parallelism: Parallelism = _WHOLE,
    quantization: WeightQuantization | None = None,
    kv: KvFormat = _BF16_KV,
    context_tokens: int = 4096,
    efficiency: Efficiency = IDEAL,
    overhead_s: float = 0.0,
) -> Callable[[int, int], float]:
    """Return a function of (batch, tokens per sequence) that gives the seconds of one decode step.

    More than one token per sequence is the verification of a draft. The batch is that of the replica; under pipeline
    parallelism the time is the latency through all stages. ``overhead_s`` is
    what each step takes besides its ops (launches, collectives): 0 is the roofline alone. Answers are kept.

    Raises:
        UsageError: as :func:`points`, when called.

    """
    made = templates(model, parallelism=parallelism, kv=kv, quantization=quantization)
    known: dict[tuple[int, int, int], float] = {}

    def seconds(batch: int, new_tokens: int) -> float:
        on_rank, busy = _per_dp_rank(batch, parallelism)
        key = on_rank, busy, new_tokens
        if key not in known:
            decode = Decode(context_tokens=context_tokens, num_sequences=on_rank, new_tokens=new_tokens)
            ops = ops_of(made, StepShape(decodes=(decode,)), num_dp_ranks=busy)
            known[key] = step_time(ops, gpu, efficiency).time_s + overhead_s
        return known[key]

    return seconds


def explain_step(step: StepTime, gpu: Gpu) -> tuple[Explanation, ...]:
    """Return how FLOP, bytes, intensity and time of a step came about: one addend per op."""
    flop = " + ".join(f"{_name(part)} {format_si(part.op.flop, 'FLOP')}" for part in step.parts if part.op.flop)
    moved = " + ".join(f"{_name(part)} {format_si(part.op.total_bytes, 'B')}" for part in step.parts)
    times = " + ".join(f"{_name(part)} {format_seconds(part.time_s)} ({part.bound_by})" for part in step.parts)
    origin = f"gpus.yaml {gpu.name}"
    rates = (
        Input(name="bandwidth_bytes_per_s", value=gpu.bandwidth_bytes_per_s, origin=origin, source=gpu.source),
        *(
            Input(name=f"peak_flop_per_s[{precision}]", value=peak, origin=origin, source=gpu.source)
            for precision, peak in gpu.peak_flop_per_s
            if precision in {part.precision for part in step.parts if part.op.flop}
        ),
    )
    return (
        Explanation(
            quantity="flop",
            formula="sum over ops of FLOP, per GPU",
            substituted=f"{flop} = {format_si(step.flop, 'FLOP')}",
        ),
        Explanation(
            quantity="bytes",
            formula="sum over ops of weights + activations + cache read + cache write, per GPU",
            substituted=f"{moved} = {format_si(step.bytes, 'B')}",
        ),
        Explanation(
            quantity="flop_per_byte",
            formula="flop / bytes",
            substituted=(
                f"{format_si(step.flop, 'FLOP')} / {format_si(step.bytes, 'B')} = {step.flop_per_byte:.1f} FLOP/B"
            ),
        ),
        Explanation(
            quantity="time_s",
            formula="sum over ops of max(flop / peak, bytes / bandwidth)",
            substituted=f"{times} = {format_seconds(step.time_s)}",
            inputs=rates,
            source="Williams, Waterman, Patterson 2009",
        ),
    )


def explain_stages(stages: Sequence[StepTime], gpu: Gpu) -> tuple[Explanation, ...]:
    """Return how a step came about that passes ``stages``: the work of the busiest, and the latency through all."""
    step = busiest(stages)
    explained = explain_step(step, gpu)
    if len(stages) == 1:
        return explained
    times = " + ".join(format_seconds(stage.time_s) for stage in stages)
    *work, time = explained
    return (
        *work,
        replace(time, quantity="stage_s"),
        Explanation(
            quantity="time_s",
            formula="sum over pipeline stages of stage_s",
            substituted=f"{times} = {format_seconds(math.fsum(stage.time_s for stage in stages))}",
        ),
    )


def _stages(
    model: Model,
    *,
    parallelism: Parallelism,
    kv: KvFormat,
    quantization: WeightQuantization | None = None,
    attention_io: AttentionIo,
    tensors: tuple[Tensor, ...] | None,
) -> tuple[tuple[Template, ...], ...]:
    return tuple(
        templates(
            model,
            parallelism=parallelism,
            kv=kv,
            quantization=quantization,
            attention_io=attention_io,
            tensors=tensors,
            stage=stage,
        )
        for stage in (range(parallelism.pp) if parallelism.pp > 1 else (None,))
    )


def _stage_times(
    stages: tuple[tuple[Template, ...], ...], gpu: Gpu, shape: StepShape, num_dp_ranks: int, efficiency: Efficiency
) -> tuple[StepTime, ...]:
    return tuple(step_time(ops_of(made, shape, num_dp_ranks=num_dp_ranks), gpu, efficiency) for made in stages)


def _per_dp_rank(batch: int, parallelism: Parallelism) -> tuple[int, int]:
    """Return the sequences of the fullest attention-DP rank, and how many ranks have any."""
    return -(-batch // parallelism.dp), min(batch, parallelism.dp)


def _name(part: OpTime) -> str:
    return f"{part.op.name} x {part.op.num_layers}" if part.op.num_layers > 1 else part.op.name
