"""What a step is made of: the time of each kind of work, its share, and what bounds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.offer import Figure
from infcalc.frozen import frozen
from infcalc.lowering.ops import Decode, OpKind, Prefill, StepShape

if TYPE_CHECKING:
    from infcalc.api.figures import Bands
    from infcalc.api.floors import FloorClock
    from infcalc.api.servers import LaneClock

_HOST = "weights from the host"
_ENGINE = "engine"
_EXPERTS = "experts"
_LEAST_S = 1e-7


@frozen
class StepPart:
    """One kind of work of a step, over all layers and stages.

    ``bound_by`` is ``compute``, ``memory``, ``link`` (messages between GPUs, or from the host) or ``latency`` (fixed
    times of kernels, messages and the engine). ``floor_s`` is its time at 100 % of peak and bandwidth.
    """

    name: str
    kind: str
    """Of its ops; ``engine`` for what the engine adds, ``host`` for weights that come from there."""
    time_s: Figure
    share_fraction: float
    """Of the step's time."""
    bound_by: str
    floor_s: float
    flop: float
    bytes: float


@frozen
class Step:
    """One step of a lane: ``decode`` of ``num_sequences`` with so many tokens in the cache, or a chunk of a prompt."""

    phase: str
    num_sequences: float
    context_tokens: float
    new_tokens: float
    time_s: Figure
    floor_s: float
    parts: tuple[StepPart, ...]
    floor_flop: float
    """What the floor counts of one GPU of each stage: what an ideal machine would compute and move."""
    floor_bytes: float


@frozen
class Stepping:
    """What the steps of one deployment are priced with."""

    clock: LaneClock
    floors: FloorClock
    bands: Bands
    offload_s: float = 0.0


def decode_step(
    steps: Stepping, num_sequences: float, context_tokens: float, *, busy_dp_ranks: float | None = None
) -> Step:
    """Return one decode step of a lane, with its parts; ``busy_dp_ranks`` attention-DP ranks have one (None: all)."""
    count, context = max(1, round(num_sequences)), max(0, round(context_tokens))
    shape = StepShape(decodes=(Decode(context_tokens=context, num_sequences=count),))
    batch: dict[str, float] = {"num_decodes": count, "context_tokens": context}
    if busy_dp_ranks is not None:
        batch["busy_dp_ranks"] = busy_dp_ranks
    return _step(steps, "decode", shape, **batch)


def prefill_step(
    steps: Stepping, new_tokens: float, cached_tokens: float, *, busy_dp_ranks: float | None = None
) -> Step:
    """Return one step that computes ``new_tokens`` of one prompt, with its parts; ``busy_dp_ranks`` as for decode."""
    new, cached = max(1, round(new_tokens)), max(0, round(cached_tokens))
    shape = StepShape(prefills=(Prefill(new_tokens=new, cached_tokens=cached),))
    batch: dict[str, float] = {
        "num_decodes": 0,
        "context_tokens": 0,
        "num_prefills": 1,
        "new_tokens": new,
        "cached_tokens": cached,
    }
    if busy_dp_ranks is not None:
        batch["busy_dp_ranks"] = busy_dp_ranks
    return _step(steps, "prefill", shape, **batch)


def _step(steps: Stepping, phase: str, shape: StepShape, **batch: float) -> Step:
    floor_s = steps.floors.step_s(shape)
    ideal: dict[str, float] = {}
    floor_flop = floor_bytes = 0.0
    for stage in steps.floors.stages(shape):
        for part in stage.parts:
            # The roofline prices each multiplication of experts, an engine all of them as one operation.
            name = _EXPERTS if part.op.kind is OpKind.MOE else part.op.name
            ideal[name] = ideal.get(name, 0.0) + part.time_s
            floor_flop, floor_bytes = floor_flop + part.op.flop, floor_bytes + part.op.total_bytes
    told: list[_Told] = [
        (
            piece.name,
            _ENGINE if piece.kind is None else piece.kind.value,
            piece.time_s,
            piece.bound_by.value,
            sum(op.flop for op in piece.ops),
            sum(op.total_bytes for op in piece.ops),
        )
        for piece in steps.clock.parts(**batch)
    ]
    more_s = float(steps.clock.step_s(**batch)) - sum(time_s for _, _, time_s, *_ in told)
    if more_s > _LEAST_S:
        told.append(("kernels launched one by one", _ENGINE, more_s, "latency", 0.0, 0.0))
    if steps.offload_s:
        ideal[_HOST] = steps.offload_s
        told.append((_HOST, "host", steps.offload_s, "link", 0.0, 0.0))
    total_s = sum(time_s for _, _, time_s, *_ in told)
    return Step(
        phase=phase,
        num_sequences=shape.num_sequences,
        context_tokens=batch.get("cached_tokens", 0) or batch.get("context_tokens", 0),
        new_tokens=batch.get("new_tokens", 0),
        time_s=steps.bands.figure("tpot_s", total_s, least=floor_s),
        floor_s=floor_s,
        floor_flop=floor_flop,
        floor_bytes=floor_bytes,
        parts=tuple(
            StepPart(
                name=name,
                kind=kind,
                time_s=steps.bands.figure("tpot_s", time_s, least=ideal.get(name, 0.0)),
                share_fraction=time_s / total_s,
                bound_by=bound_by,
                floor_s=ideal.get(name, 0.0),
                flop=flop,
                bytes=moved,
            )
            for name, kind, time_s, bound_by, flop, moved in told
        ),
    )


_Told = tuple[str, str, float, str, float, float]
"""Name, kind, seconds, what bounds it, FLOP and bytes."""
