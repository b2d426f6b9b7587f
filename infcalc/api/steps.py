"""What a step is made of: the time of each kind of work, its share, and what bounds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from infcalc.api.estimating import Figure
from infcalc.frozen import frozen
from infcalc.lowering.ops import Decode, Prefill, StepShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.bands import Bands
    from infcalc.api.deployment import Deployment
    from infcalc.api.floors import FloorClock
    from infcalc.engines.pace import Pace
    from infcalc.serving.times import Clock

_ENGINE = "engine"
_REST = "links, and kernels below peak"


@frozen
class StepPart:
    """One kind of work of a step, over all layers and stages.

    ``bound_by`` is ``compute``, ``memory``, ``link`` (messages between GPUs, or from the host) or ``latency`` (fixed
    times of kernels, messages and the engine). ``floor_s`` is its time at 100 % of peak and bandwidth.
    """

    name: str
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


class Piece(Protocol):
    """A part of a step as a clock tells it."""

    @property
    def name(self) -> str:
        """What it does."""

    @property
    def time_s(self) -> float:
        """Its time."""

    @property
    def bound_by(self) -> str:
        """What takes longest."""

    @property
    def ops(self) -> Sequence[Any]:
        """Ops with their FLOP and bytes."""


@runtime_checkable
class Parted(Protocol):
    """A clock that tells what a step is made of."""

    def parts(self, **batch: float) -> Sequence[Piece]:
        """Return the parts of one step; their times add up to its time."""


@frozen
class Stepping:
    """What the steps of one deployment are priced with."""

    deployment: Deployment
    clock: Clock
    floors: FloorClock
    pace: Pace
    bands: Bands
    offload_s: float = 0.0


def decode_step(steps: Stepping, num_sequences: float, context_tokens: float) -> Step:
    """Return one decode step of a lane, with its parts."""
    count, context = max(1, round(num_sequences)), max(0, round(context_tokens))
    shape = StepShape(decodes=(Decode(context_tokens=context, num_sequences=count),))
    return _step(steps, "decode", shape, num_decodes=count, context_tokens=context)


def prefill_step(steps: Stepping, new_tokens: float, cached_tokens: float) -> Step:
    """Return one step that computes ``new_tokens`` of one prompt, with its parts."""
    new, cached = max(1, round(new_tokens)), max(0, round(cached_tokens))
    shape = StepShape(prefills=(Prefill(new_tokens=new, cached_tokens=cached),))
    batch = {"num_decodes": 0, "context_tokens": 0, "num_prefills": 1, "new_tokens": new, "cached_tokens": cached}
    return _step(steps, "prefill", shape, **batch)


def _step(steps: Stepping, phase: str, shape: StepShape, **batch: float) -> Step:
    floor_s = steps.floors.step_s(shape)
    total_s = max(float(steps.clock.step_s(**batch)), floor_s)
    spread = steps.bands.tpot
    found = _told(steps, batch) if isinstance(steps.clock, Parted) else _split(steps, shape, total_s)
    ideal = _ideal(steps, shape)
    whole_s = sum(time_s for _, time_s, *_ in found) or total_s
    parts = tuple(
        StepPart(
            name=name,
            time_s=steps.bands.figure(time_s, spread, least=min(time_s, ideal.get(name, 0.0))),
            share_fraction=time_s / whole_s,
            bound_by=bound_by,
            floor_s=min(time_s, ideal.get(name, 0.0)),
            flop=flop,
            bytes=moved,
        )
        for name, time_s, bound_by, flop, moved in found
        if time_s > 0
    )
    return Step(
        phase=phase,
        num_sequences=shape.num_sequences,
        context_tokens=batch.get("cached_tokens", 0) or batch.get("context_tokens", 0),
        new_tokens=batch.get("new_tokens", 0),
        time_s=steps.bands.figure(total_s, spread, least=floor_s),
        floor_s=floor_s,
        parts=parts,
    )


_Told = tuple[str, float, str, float, float]
"""Name, seconds, what bounds it, FLOP and bytes."""


def _told(steps: Stepping, batch: dict[str, float]) -> list[_Told]:
    """Return the parts as the clock tells them."""
    clock = steps.clock
    if not isinstance(clock, Parted):
        return []
    return [
        (
            piece.name,
            piece.time_s,
            str(piece.bound_by),
            sum(op.flop for op in piece.ops),
            sum(op.total_bytes for op in piece.ops),
        )
        for piece in clock.parts(**batch)
    ]


def _split(steps: Stepping, shape: StepShape, total_s: float) -> list[_Told]:
    """Return the parts of a step whose clock tells only the whole: ideal times of ops, what the engine adds, a rest."""
    found: dict[str, _Told] = {}
    for stage in steps.floors.stages(shape):
        for part in stage.parts:
            _, time_s, bound_by, flop, moved = found.get(part.op.name, ("", 0.0, part.bound_by.value, 0.0, 0.0))
            found[part.op.name] = (
                part.op.name,
                time_s + part.time_s,
                bound_by,
                flop + part.op.flop,
                moved + part.op.total_bytes,
            )
    layers, pace = steps.deployment.model.num_layers, steps.pace
    added = [
        (f"{_ENGINE}, between kernels", pace.per_layer_s * layers),
        (f"{_ENGINE}, per step", pace.per_step_s),
        (f"{_ENGINE}, per sequence", pace.per_sequence_s * shape.num_sequences),
    ]
    parts = list(found.values())
    if steps.offload_s:
        parts.append(("weights from the host", steps.offload_s, "link", 0.0, 0.0))
    parts += [(name, time_s, "latency", 0.0, 0.0) for name, time_s in added]
    rest_s = total_s - sum(time_s for _, time_s, *_ in parts)
    return [*parts, (_REST, rest_s, "latency", 0.0, 0.0)]


def _ideal(steps: Stepping, shape: StepShape) -> dict[str, float]:
    found: dict[str, float] = {}
    for stage in steps.floors.stages(shape):
        for part in stage.parts:
            found[part.op.name] = found.get(part.op.name, 0.0) + part.time_s
    return found
