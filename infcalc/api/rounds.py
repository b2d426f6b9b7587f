"""Rounds of speculative decoding on the clock of an engine: what verifies, what drafts, and what lies between.

The target's steps are those of ``estimate``: measured kernels, messages, and the engine's overheads. A drafter's passes
run on the same curves; what the engine adds to each is data (:mod:`infcalc.engines.drafting`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from infcalc.api.servers import LIBRARIES, LaneClock, attended_format, clock_of, paced_on
from infcalc.engines.drafting import draft_pace
from infcalc.engines.pace import pace
from infcalc.frozen import frozen
from infcalc.lowering.ops import mtp_as_model
from infcalc.lowering.tensors import inventory, parameters
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.memory.weights import weights_total_bytes
from infcalc.roofline.clock import Overhead, StepClock
from infcalc.roofline.curves import GpuCurves, curves_of
from infcalc.roofline.passes import Head, head_pass_s
from infcalc.speculation.heads import MEDUSA_HEADS, eagle3_head, eagle_head, medusa_parameters, proposing_parameters
from infcalc.speculation.published import Drafter

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.deployment import Deployment
    from infcalc.engines.drafting import DraftPace
    from infcalc.engines.pace import Pace
    from infcalc.spec.draft import Draft
    from infcalc.spec.efficiency import GpuEfficiency
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism
    from infcalc.speculation.priced import DraftTimer, StepTimer
    from infcalc.speculation.published import Profile


PassTimer: TypeAlias = "Callable[[float, float, float | None], float]"
"""Seconds of one pass, of sequences on a rank, cached tokens of each, and ranks that are busy (None: all)."""
_HEAD_BYTES = 2
"""Heads are published in 16 bit."""


@frozen
class Rig:
    """What rounds of a deployment run on, at one context."""

    deployment: Deployment
    form: KvFormat
    attended: KvFormat
    """Of whose cache attention takes the time."""
    context_tokens: float
    clock: LaneClock
    curves: GpuCurves
    pace: Pace
    added: DraftPace

    @property
    def library(self) -> str | None:
        """Whose collectives the engine calls."""
        return LIBRARIES.get(self.deployment.rules.engine)

    def fixed_s(self, *, tree: bool) -> float:
        """Return what the engine adds to a round, once."""
        return self.added.round_s + (self.added.tree_s if tree else 0.0)

    def on_rank(self, batch: float) -> tuple[float, float]:
        """Return the sequences of the fullest attention-DP rank, and how many ranks have any."""
        num_ranks = self.deployment.parallelism.dp
        return math.ceil(batch / num_ranks), min(num_ranks, batch)


def rig_of(
    deployment: Deployment,
    form: KvFormat,
    efficiency: GpuEfficiency,
    *,
    context_tokens: float,
    steps: Pace | None = None,
    paced: str | None = None,
) -> Rig:
    """Return what rounds run on; ``paced`` is the engine whose pace it has where that is not the one of its rules."""
    rules = deployment.rules
    engine = paced or rules.engine
    version = rules.version if engine == rules.engine else None
    own = steps or paced_on(
        pace(engine, version, rules.generation if engine == "vllm" else "").value, efficiency, engine
    )
    return Rig(
        deployment=deployment,
        form=form,
        attended=attended_format(deployment, form, engine, version),
        context_tokens=context_tokens,
        clock=clock_of(deployment, form, own, efficiency, paced),
        curves=curves_of(deployment.gpu, efficiency),
        pace=own,
        added=draft_pace(engine, version, own),
    )


def target_timer(rig: Rig) -> StepTimer:
    """Return the seconds of a step of the target by batch and tokens of each sequence.

    Engines that verify by batch expansion compute every drafted position as a sequence of its own.
    """

    def seconds(batch: int, new_tokens: int) -> float:
        on_rank, busy = rig.on_rank(batch)
        expanded = new_tokens > 1 and rig.added.expands
        return float(
            rig.clock.step_s(
                num_decodes=on_rank * (new_tokens if expanded else 1),
                context_tokens=rig.context_tokens,
                decode_new_tokens=1 if expanded else new_tokens,
                busy_dp_ranks=busy,
            )
        )

    return seconds


def by_batch(rig: Rig, one_pass: PassTimer) -> DraftTimer:
    """Return the seconds of a pass at the rig's context, by batch over all ranks."""

    def seconds(batch: int) -> float:
        on_rank, busy = rig.on_rank(batch)
        return one_pass(on_rank, rig.context_tokens, busy)

    return seconds


def model_pass(rig: Rig, model: Model, ranks: Parallelism) -> PassTimer:
    """Return the seconds of a pass of a draft model on ``ranks``; its weights are its checkpoint's."""
    clock = StepClock(
        model,
        rig.curves,
        parallelism=ranks,
        kv=rig.form,
        attended=rig.attended,
        library=rig.library,
        overhead=Overhead(
            per_layer_s=rig.pace.per_layer_s,
            per_step_s=rig.added.pass_s,
            per_sequence_s=rig.added.pass_sequence_s,
        ),
    )
    lane = LaneClock(clock, rig.clock.factor, full=False)

    def seconds(on_rank: float, context_tokens: float, busy: float | None) -> float:
        return float(lane.step_s(num_decodes=on_rank, context_tokens=context_tokens, busy_dp_ranks=busy))

    return seconds


def head_pass(rig: Rig, head: Head, *, width: int = 1) -> PassTimer:
    """Return the seconds of a pass of a head at the target's TP; ``width`` tokens of each sequence."""
    num_ranks = rig.deployment.parallelism.tp

    def seconds(on_rank: float, context_tokens: float, busy: float | None) -> float:
        del busy
        kernels_s = head_pass_s(
            head,
            rig.curves,
            tokens=on_rank * width,
            cached_tokens=on_rank * context_tokens,
            num_ranks=num_ranks,
            library=rig.library,
        )
        host_s = rig.added.pass_s + rig.added.pass_sequence_s * on_rank
        return kernels_s + rig.pace.per_layer_s * head.num_layers + host_s

    return seconds


def head_of(draft: Draft, rig: Rig) -> Head:
    """Return a published or typical head of the target as work."""
    model = rig.deployment.model
    return Head(
        num_parameters=proposing_parameters(draft, model),
        num_layers=draft.num_layers,
        hidden_size=draft.hidden_size,
        kv_bytes_per_token=_cached_bytes(draft, rig.attended),
    )


def _cached_bytes(draft: Draft, form: KvFormat) -> float:
    return float(form.vector_bytes(draft.kv_bytes_per_token_bf16 // _HEAD_BYTES))


@frozen
class Passes:
    """What one pass of a drafter takes, and what it is."""

    rig: Rig
    one_pass: PassTimer | None
    """None: known only as a fraction of the target's step."""
    source: str
    weights_bytes: int | None = None
    """What it adds to memory, over the ranks that share it; None: not known."""
    kv_bytes_per_token: float = 0.0
    loads: Draft | Model | None = None
    """The head or model that lies beside the target; None: nothing that caches."""
    own_layers: bool = False
    """It is the target's own layers for further tokens."""
    operations_ratio: float = 0.0
    """Multiplications of a pass over those of a token in the target."""

    @property
    def timer(self) -> DraftTimer | None:
        """The seconds of a pass at the rig's context, by batch."""
        return None if self.one_pass is None else by_batch(self.rig, self.one_pass)


def _none_s(on_rank: float, context_tokens: float, busy: float | None) -> float:
    del on_rank, context_tokens, busy
    return 0.0


def _multiplied(model: Model) -> int:
    return parameters(inventory(model)).active_without_embedding


def passes_of(rig: Rig, profile: Profile, draft: Draft | None = None) -> Passes:
    """Return the passes of a profile's drafter: of ``draft`` where a head is named, else of the typical shape."""
    model, ranks = rig.deployment.model, rig.deployment.parallelism
    match profile.drafter:
        case Drafter.HEAD | Drafter.WIDE_HEAD:
            made = draft or (eagle_head(model) if profile.drafter is Drafter.HEAD else eagle3_head(model))
            return Passes(
                rig=rig,
                one_pass=head_pass(rig, head_of(made, rig), width=profile.tree_width),
                source=f"{made.name} at TP {ranks.tp}, the target's ({made.source})",
                weights_bytes=made.num_bytes,
                kv_bytes_per_token=_cached_bytes(made, rig.form),
                loads=made,
                operations_ratio=profile.tree_width * proposing_parameters(made, model) / _multiplied(model),
            )
        case Drafter.AT_ONCE:
            heads = Head(num_parameters=medusa_parameters(model), num_layers=1, hidden_size=model.hidden_size)
            return Passes(
                rig=rig,
                one_pass=head_pass(rig, heads),
                source=f"{MEDUSA_HEADS} heads of h x h and h x V, run at once (Medusa)",
                weights_bytes=medusa_parameters(model) * _HEAD_BYTES,
                operations_ratio=medusa_parameters(model) / _multiplied(model),
            )
        case Drafter.LOOKUP:
            return Passes(rig=rig, one_pass=_none_s, source="looking up takes no GPU time", weights_bytes=0)
        case Drafter.OWN_LAYERS:
            return _own_layers(rig)
        case Drafter.MODEL:
            return Passes(rig=rig, one_pass=None, source=profile.cost_source)


def _own_layers(rig: Rig) -> Passes:
    """One MTP layer per pass; where the target has none, a head of the EAGLE kind stands for it."""
    model, deployment = rig.deployment.model, rig.deployment
    layer = mtp_as_model(replace(model, quantization=deployment.quantization or model.quantization))
    if layer is None:
        made = eagle_head(model)
        return Passes(
            rig=rig, one_pass=head_pass(rig, head_of(made, rig)), source=f"{made.name} in place of an MTP layer"
        )
    # Drafting is not pipelined: the layers lie on the last stage.
    ranks = replace(deployment.parallelism, pp=1)
    stored = deployment.quantization
    own = weights_total_bytes(model, stored, with_mtp=True) - weights_total_bytes(model, stored)
    cached = slope_bytes_per_token(part for part in kv_components(model, rig.form, with_mtp=True) if part.mtp)
    return Passes(
        rig=rig,
        one_pass=model_pass(rig, layer, ranks),
        source=f"an MTP layer of {model.name} and its head at TP {ranks.tp}",
        weights_bytes=own,
        kv_bytes_per_token=float(cached),
        own_layers=True,
        operations_ratio=parameters(inventory(layer)).active_without_embedding / _multiplied(model),
    )
