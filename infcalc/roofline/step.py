"""The time of one step on the roofline, and where the phases of a model stand on it.

The time of a step is the sum over its ops of the longer of compute and memory time: kernels run one after another, so
what one leaves idle another cannot use. It is a floor at efficiency 1: launches, collectives and queueing come on top.
``flop`` and ``bytes`` are sums over the ops, per GPU; their ratio places the step as a whole on the roofline.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.lowering.ops import AttentionIo, Decode, Op, OpKind, Prefill, StepShape, operations
from infcalc.lowering.tensors import inventory
from infcalc.roofline.price import IDEAL, Bound, Efficiency, OpTime, price
from infcalc.spec.explain import Explanation, Input
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.parallelism import Parallelism
from infcalc.units import format_seconds, format_si

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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


@frozen
class Point:
    """Where one phase at one batch stands on the roofline; FLOP, bytes and time are those of one GPU.

    ``tokens`` pass through the model in the step, over the whole replica; ``batch`` sequences bring them.
    """

    phase: Phase
    batch: int
    tokens: int
    flop: float
    bytes: float
    flop_per_byte: float
    bound_by: Bound
    time_s: float
    attention_io: AttentionIo


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
    for phase in Phase:
        for batch in batches:
            on_rank, busy = _per_dp_rank(batch, parallelism)
            match phase:
                case Phase.PREFILL:
                    shape = StepShape(prefills=(Prefill(new_tokens=prompt_tokens, num_sequences=on_rank),))
                case Phase.DECODE:
                    shape = StepShape(decodes=(Decode(context_tokens=context_tokens, num_sequences=on_rank),))
            for way in attention_io:
                ops = operations(
                    model, shape, parallelism=parallelism, kv=kv, attention_io=way, busy_dp_ranks=busy, tensors=tensors
                )
                step = step_time(ops, gpu, efficiency)
                found.append(
                    Point(
                        phase=phase,
                        batch=batch,
                        tokens=batch * (prompt_tokens if phase is Phase.PREFILL else 1),
                        flop=step.flop,
                        bytes=step.bytes,
                        flop_per_byte=step.flop_per_byte,
                        bound_by=step.bound_by,
                        time_s=step.time_s,
                        attention_io=way,
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

    More than one token per sequence is the verification of a draft. The batch is that of the replica. ``overhead_s`` is
    what each step takes besides its ops (launches, collectives): 0 is the roofline alone. Answers are kept.

    Raises:
        UsageError: as :func:`points`, when called.

    """
    tensors = inventory(model, quantization)
    known: dict[tuple[int, int, int], float] = {}

    def seconds(batch: int, new_tokens: int) -> float:
        on_rank, busy = _per_dp_rank(batch, parallelism)
        key = on_rank, busy, new_tokens
        if key not in known:
            decode = Decode(context_tokens=context_tokens, num_sequences=on_rank, new_tokens=new_tokens)
            ops = operations(
                model,
                StepShape(decodes=(decode,)),
                parallelism=parallelism,
                kv=kv,
                busy_dp_ranks=busy,
                tensors=tensors,
            )
            known[key] = step_time(ops, gpu, efficiency).time_s + overhead_s
        return known[key]

    return seconds


def weights_timer(
    gpu: Gpu,
    *,
    num_parameters: float,
    weight_bytes: float,
    num_ranks: int = 1,
    precision: str = "bf16",
    efficiency: Efficiency = IDEAL,
) -> Callable[[int], float]:
    """Return a function of the batch that gives the seconds of one step of a network known only by its weights.

    The step reads ``weight_bytes`` and spends 2 FLOP per parameter and sequence, divided over ``num_ranks``: for the
    heads of EAGLE and Medusa, whose attention is small beside their weights.
    """

    def seconds(batch: int) -> float:
        op = Op(
            kind=OpKind.GEMM,
            name="draft weights",
            num_layers=1,
            precision=precision,
            flop=2 * num_parameters * batch / num_ranks,
            weight_bytes=weight_bytes / num_ranks,
        )
        return price(op, gpu, efficiency).time_s

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


def _per_dp_rank(batch: int, parallelism: Parallelism) -> tuple[int, int]:
    """Return the sequences of the fullest attention-DP rank, and how many ranks have any."""
    return -(-batch // parallelism.dp), min(batch, parallelism.dp)


def _name(part: OpTime) -> str:
    return f"{part.op.name} x {part.op.num_layers}" if part.op.num_layers > 1 else part.op.name
