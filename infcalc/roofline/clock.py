"""The time of one engine step of a deployment: prompts and answers in one batch, on measured curves, in one call.

A :class:`StepClock` holds the ops of a deployment as templates (:func:`infcalc.lowering.ops.templates`), each with the
curve of its kernels (:mod:`infcalc.roofline.curves`). A step is the sum over its kernels, which run one after another,
of the time of each; over its collectives, which nothing overlaps; and what the engine adds (:class:`Overhead`). Numbers
and numpy arrays go through the same formulas, so that one call prices thousands of steps.

No time is below max(FLOP / peak, bytes / bandwidth): no curve is, and a sum of maxima is no less than the maximum of
the sums.

Under pipeline parallelism a step passes one stage after the other: its latency is the sum of their times, and with as
many batches in flight as there are stages, the slowest sets the pace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict, Unpack, cast, overload

from infcalc.frozen import frozen
from infcalc.lowering.ops import COLLECTIVES, ElementwiseIo, Extent, OpKind, templates
from infcalc.lowering.tensors import inventory
from infcalc.lowering.work import Experts, Linear, Load, Sequences
from infcalc.roofline.alike import grouped, is_plain
from infcalc.roofline.curves import EVEN_EXPERTS, collective_s, kernel_s
from infcalc.roofline.price import Bound
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.parallelism import Parallelism, stage_layers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from infcalc.lowering.ops import Op, Template
    from infcalc.lowering.tensors import Tensor
    from infcalc.lowering.work import Amount, Work
    from infcalc.roofline.alike import Alike
    from infcalc.roofline.curves import GpuCurves
    from infcalc.spec.efficiency import KernelCurve
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.spec.weights import WeightQuantization

    Given: TypeAlias = Amount | NDArray[np.integer[Any]]

_WHOLE = Parallelism()
_BF16_KV = KV_FORMATS["bf16"]


@frozen
class Overhead:
    """What an engine adds to the kernels of a step.

    ``per_layer_s`` passes between the kernels of each layer, and ``per_step_s`` before and after them; each sequence of
    the step takes ``per_sequence_s`` more. In a pipeline, the latter two are of the last stage, which samples.
    """

    per_layer_s: float = 0.0
    per_step_s: float = 0.0
    per_sequence_s: float = 0.0


NO_OVERHEAD = Overhead()


class Batch(TypedDict, total=False):
    """What one step holds, on each attention-DP rank: fractions are means of many steps.

    ``num_decodes`` sequences with ``context_tokens`` in their cache compute ``decode_new_tokens`` (1) more each;
    ``num_prefills`` sequences compute ``new_tokens`` of their prompts after ``cached_tokens``. What is left out is 0.
    ``busy_dp_ranks`` attention-DP ranks have such a step (left out: all); experts meet the tokens of all of them.
    """

    num_decodes: float
    context_tokens: float
    num_prefills: float
    new_tokens: float
    cached_tokens: float
    decode_new_tokens: float
    busy_dp_ranks: float | None


class Batches(TypedDict, total=False):
    """As :class:`Batch`, for many steps: each a number or an array that broadcasts with the others."""

    num_decodes: Given
    context_tokens: Given
    num_prefills: Given
    new_tokens: Given
    cached_tokens: Given
    decode_new_tokens: Given
    busy_dp_ranks: Given | None


@frozen
class StepPart:
    """One kind of work of a step with its time, over all layers and stages.

    ``bound_by`` names the longest of ``compute_s``, ``memory_s``, ``link_s`` (messages) and ``latency_s`` (fixed times
    of kernels, messages or the engine). Their sum exceeds ``time_s`` where compute and memory overlap.
    """

    name: str
    kind: OpKind | None
    """None for what the engine adds."""
    num_kernels: int
    time_s: float
    share_fraction: float
    """Of the step's time."""
    compute_s: float = 0.0
    memory_s: float = 0.0
    link_s: float = 0.0
    latency_s: float = 0.0
    ops: tuple[Op, ...] = ()
    """One for each pipeline stage that does it."""

    @property
    def bound_by(self) -> Bound:
        """What takes longest."""
        longest = {
            Bound.COMPUTE: self.compute_s,
            Bound.MEMORY: self.memory_s,
            Bound.LINK: self.link_s,
            Bound.LATENCY: self.latency_s,
        }
        return max(longest, key=lambda bound: longest[bound])


class StepClock:
    """Seconds of the steps of one deployment.

    ``curves`` are those of its GPU. ``overhead`` is the engine's, ``library`` the collectives it calls (None: the best
    that were measured, as of :func:`infcalc.roofline.curves.collective_s`). Steps are those of one attention-DP rank,
    all being alike. ``attended`` is the format of whose cache attention takes the time (None: ``kv``): where a kernel
    converts a narrow cache in software, fewer bytes do not make it faster. ``tensors`` is the model's inventory where
    the caller has it already. ``extent`` and ``elementwise_io`` leave out what an ideal GPU would not do.

    Raises:
        UsageError: the GPU states no peak rate that could serve, or a format of the quantization is unknown.

    """

    __slots__ = ("_curves", "_overhead", "_parallelism", "_places", "_split", "_stages")

    def __init__(
        self,
        model: Model,
        curves: GpuCurves,
        *,
        parallelism: Parallelism = _WHOLE,
        kv: KvFormat = _BF16_KV,
        attended: KvFormat | None = None,
        quantization: WeightQuantization | None = None,
        overhead: Overhead = NO_OVERHEAD,
        library: str | None = None,
        tensors: tuple[Tensor, ...] | None = None,
        extent: Extent = Extent.ENGINE,
        elementwise_io: ElementwiseIo = ElementwiseIo.SEPARATE,
    ) -> None:
        self._curves = curves
        self._overhead = overhead
        self._parallelism = parallelism
        pp = parallelism.pp
        if tensors is None:
            tensors = inventory(model, quantization)
        layers = stage_layers(model.num_layers, pp)

        def made(form: KvFormat, stage: int) -> tuple[Template, ...]:
            return templates(
                model,
                parallelism=parallelism,
                kv=form,
                elementwise_io=elementwise_io,
                extent=extent,
                tensors=tensors,
                stage=stage if pp > 1 else None,
            )

        stages: dict[_Stage, int] = {}
        # Stages that do the same work are computed once.
        self._places = tuple(
            stages.setdefault(
                _stage(
                    made(kv, stage),
                    made(attended or kv, stage) if attended not in {None, kv} else None,
                    curves,
                    parallelism,
                    stage=stage,
                    num_layers=len(layers[stage]),
                    library=library,
                ),
                len(stages),
            )
            for stage in range(pp)
        )
        self._stages = tuple(stages)
        self._split = tuple(_split(stage) for stage in self._stages)

    @property
    def num_stages(self) -> int:
        """Pipeline stages."""
        return len(self._places)

    @overload
    def step_s(self, **batch: Unpack[Batch]) -> float: ...
    @overload
    def step_s(self, **batch: Unpack[Batches]) -> Amount: ...
    def step_s(self, **batch: Unpack[Batches]) -> Amount:
        """Return the seconds of one step of ``batch``, through all pipeline stages; 0 for a step without tokens.

        The answer is an array where an argument is one, as all arguments broadcast.
        """
        times = self._distinct_s(self._load(**batch))
        total_s: Amount = 0.0
        for place in self._places:
            total_s = total_s + times[place]
        return _broadcast(total_s, batch)

    def stages_s(self, **batch: Unpack[Batches]) -> tuple[Amount, ...]:
        """Return the seconds that each pipeline stage takes for a step; :meth:`step_s` is their sum."""
        times = [_broadcast(time_s, batch) for time_s in self._distinct_s(self._load(**batch))]
        return tuple(times[place] for place in self._places)

    @overload
    def slowest_s(self, **batch: Unpack[Batch]) -> float: ...
    @overload
    def slowest_s(self, **batch: Unpack[Batches]) -> Amount: ...
    def slowest_s(self, **batch: Unpack[Batches]) -> Amount:
        """Return the seconds of the slowest pipeline stage for a step: the pace with a batch in flight per stage."""
        slowest_s, *others = self._distinct_s(self._load(**batch))
        for time_s in others:
            slowest_s = _greater(slowest_s, time_s)
        return _broadcast(slowest_s, batch)

    def parts(self, **batch: Unpack[Batch]) -> tuple[StepPart, ...]:
        """Return what a step is made of, in the order of the ops; the times add up to :meth:`step_s`."""
        load = self._load(**batch)
        found: dict[tuple[OpKind | None, str], list[_Piece]] = {}
        for place in self._places:
            for piece in self._pieces(self._stages[place], load):
                if piece.time_s:
                    found.setdefault((piece.kind, piece.name), []).append(piece)
        total_s = sum(piece.time_s for pieces in found.values() for piece in pieces)
        return tuple(
            StepPart(
                name=name,
                kind=kind,
                num_kernels=sum(piece.num_kernels for piece in pieces),
                time_s=sum(piece.time_s for piece in pieces),
                share_fraction=sum(piece.time_s for piece in pieces) / total_s,
                compute_s=sum(piece.compute_s for piece in pieces),
                memory_s=sum(piece.memory_s for piece in pieces),
                link_s=sum(piece.link_s for piece in pieces),
                latency_s=sum(piece.latency_s for piece in pieces),
                ops=tuple(piece.op for piece in pieces if piece.op is not None),
            )
            for (kind, name), pieces in found.items()
        )

    def _load(
        self,
        *,
        num_decodes: Given = 0,
        context_tokens: Given = 0,
        num_prefills: Given = 0,
        new_tokens: Given = 0,
        cached_tokens: Given = 0,
        decode_new_tokens: Given = 1,
        busy_dp_ranks: Given | None = None,
    ) -> Load:
        decodes = Sequences(_number(num_decodes), _number(decode_new_tokens), _number(context_tokens))
        prefills = Sequences(_number(num_prefills), _number(new_tokens), _number(cached_tokens))
        decoded = decodes.num_sequences * decodes.new_tokens
        num_tokens = decoded + prefills.num_sequences * prefills.new_tokens
        num_dp_ranks = self._parallelism.dp if busy_dp_ranks is None else _number(busy_dp_ranks)
        return Load(
            prefills=() if _is_none(prefills.num_sequences) else (prefills,),
            decodes=() if _is_none(decodes.num_sequences) else (decodes,),
            num_tokens=num_tokens,
            num_sequences=decodes.num_sequences + prefills.num_sequences,
            # Engines compute logits for chunks that do not end their prompt too, and throw them away (vLLM).
            num_sampled=decoded + prefills.num_sequences,
            routed_tokens=num_tokens * num_dp_ranks,
            expanded_tokens=num_tokens + prefills.num_sequences * prefills.cached_tokens,
        )

    def _distinct_s(self, load: Load) -> list[Amount]:
        if isinstance(load.num_tokens, (int, float)):
            return [
                sum([group.time_s(load) for group in alike], self._stage_s(others, load))
                for alike, others in self._split
            ]
        return [self._stage_s(stage, load) for stage in self._stages]

    def _stage_s(self, stage: _Stage, load: Load) -> Amount:
        total_s = self._overhead_s(stage, load)
        for kernel in stage.kernels:
            total_s = total_s + kernel.load_s(load)
        for message in stage.messages:
            total_s = total_s + message.time_s(message.template.law.work(load), self._curves)
        return total_s

    def _overhead_s(self, stage: _Stage, load: Load) -> Amount:
        overhead = self._overhead
        fixed_s: Amount = overhead.per_layer_s * stage.num_layers
        if stage.is_last:
            fixed_s = fixed_s + overhead.per_step_s + overhead.per_sequence_s * load.num_sequences
        return _where_any(load.num_tokens, fixed_s)

    def _pieces(self, stage: _Stage, load: Load) -> list[_Piece]:
        overhead, empty = self._overhead, not load.num_tokens
        added = {"between kernels": overhead.per_layer_s * stage.num_layers}
        if stage.is_last:
            added["engine, per step"] = overhead.per_step_s
            added["engine, per sequence"] = overhead.per_sequence_s * float(load.num_sequences)
        return [
            *(kernel.piece(load) for kernel in stage.kernels),
            *(message.piece(load, self._curves) for message in stage.messages),
            *(_Piece(None, name, 0, time_s, latency_s=time_s) for name, time_s in added.items() if not empty),
        ]


class _Piece(NamedTuple):
    """One op of one stage with its time."""

    kind: OpKind | None
    name: str
    num_kernels: int
    time_s: float
    compute_s: float = 0.0
    memory_s: float = 0.0
    link_s: float = 0.0
    latency_s: float = 0.0
    op: Op | None = None


class _Kernel(NamedTuple):
    """A template whose ``num_kernels`` kernels run on one GPU."""

    template: Template
    curve: KernelCurve
    num_kernels: int
    experts: Experts | None = None
    """Experts as tokens of real models are routed, on the fullest rank; None where nothing is routed, or ideally."""
    stored: Template | None = None
    """What it does, where it takes the time of another."""

    def load_s(self, load: Load) -> Amount:
        """Return the seconds of all its kernels in a step of ``load``.

        Experts take no less than reading those that even routing touches: the roofline has them.
        """
        work = self.template.law.work(load)
        if self.experts is None:
            return self.time_s(work)
        routed_s = self.time_s(self._routed(load))
        return _greater(routed_s, (work.weight_bytes + work.activation_bytes) / self.curve.bandwidth_bytes_per_s)

    def _routed(self, load: Load) -> Work:
        if self.experts is None:
            return self.template.law.work(load)
        return self.experts.work(self.experts.fullest(load))

    def time_s(self, work: Work) -> Amount:
        """Return the seconds of all its kernels."""
        tokens, num_kernels = work.tokens, self.num_kernels
        num_bytes = work.weight_bytes + work.activation_bytes + work.kv_read_bytes + work.kv_write_bytes
        if isinstance(tokens, (int, float)) and not tokens:
            return 0.0
        one_s: Amount = kernel_s(
            self.curve, tokens=tokens, flop=work.flop / num_kernels, num_bytes=num_bytes / num_kernels
        )
        return _where_any(tokens, one_s * num_kernels)

    def piece(self, load: Load) -> _Piece:
        """Return its share of a step, and what it is made of."""
        template, num_kernels, curve = self.stored or self.template, self.num_kernels, self.curve
        op = template.under(load)
        if op is None:
            return _Piece(template.kind, template.name, 0, 0.0)
        work = self._routed(load)
        moved = work.weight_bytes + work.activation_bytes + work.kv_read_bytes + work.kv_write_bytes
        fixed_s, compute_s, memory_s = (
            float(kernel_s(curve, tokens=work.tokens, flop=flop / num_kernels, num_bytes=num_bytes / num_kernels))
            * num_kernels
            for flop, num_bytes in ((0.0, 0.0), (work.flop, 0.0), (0.0, moved))
        )
        time_s = float(self.load_s(load))
        return _Piece(
            template.kind,
            template.name,
            num_kernels,
            time_s,
            compute_s=compute_s - fixed_s,
            memory_s=max(memory_s - fixed_s, time_s - compute_s),
            latency_s=fixed_s,
            op=op,
        )


class _Message(NamedTuple):
    """A template that is a collective, run ``num_messages`` times."""

    template: Template
    num_messages: int
    inter_node: bool
    library: str | None

    def time_s(self, work: Work, curves: GpuCurves) -> Amount:
        """Return the seconds of all its messages."""
        if isinstance(work.tokens, (int, float)) and not work.tokens:
            return 0.0
        return _where_any(work.tokens, self._one_s(work.message_bytes, curves) * self.num_messages)

    def _one_s(self, message_bytes: Amount, curves: GpuCurves) -> Amount:
        return collective_s(
            curves,
            self.template.kind,
            num_ranks=self.template.num_ranks,
            message_bytes=message_bytes,
            inter_node=self.inter_node,
            library=self.library,
        )

    def piece(self, load: Load, curves: GpuCurves) -> _Piece:
        """Return its share of a step; what one byte would take is its latency."""
        template = self.template
        op = template.under(load)
        if op is None:
            return _Piece(template.kind, template.name, 0, 0.0)
        time_s = float(self.time_s(template.law.work(load), curves))
        shortest_s = self.num_messages * float(self._one_s(1.0, curves))
        latency_s = min(shortest_s, time_s)
        return _Piece(
            template.kind,
            template.name,
            self.num_messages,
            time_s,
            link_s=time_s - latency_s,
            latency_s=latency_s,
            op=op,
        )


class _Stage(NamedTuple):
    """What one rank of a pipeline stage does, whatever the step."""

    kernels: tuple[_Kernel, ...]
    messages: tuple[_Message, ...]
    num_layers: int
    is_last: bool


def _split(stage: _Stage) -> tuple[tuple[Alike, ...], _Stage]:
    """Return the kernels that are priced together in a lone step, and the stage without them, like messages as one."""
    alike = [
        (kernel.template.law, kernel.curve, kernel.num_kernels)
        for kernel in stage.kernels
        if isinstance(kernel.template.law, Linear) and is_plain(kernel.template.law)
    ]
    others = tuple(kernel for kernel in stage.kernels if not is_plain(kernel.template.law))
    messages: dict[tuple[object, ...], _Message] = {}
    for message in stage.messages:
        template, law = message.template, message.template.law
        sent = (law.driver, law.item_message_bytes) if isinstance(law, Linear) else id(message)
        key = (template.kind, template.num_ranks, message.inter_node, message.library, sent)
        known = messages.get(key)
        number = message.num_messages + (known.num_messages if known else 0)
        messages[key] = message._replace(num_messages=number)
    return grouped(alike), stage._replace(kernels=others, messages=tuple(messages.values()))


def _stage(
    made: tuple[Template, ...],
    timed: tuple[Template, ...] | None,
    curves: GpuCurves,
    parallelism: Parallelism,
    *,
    stage: int,
    num_layers: int,
    library: str | None,
) -> _Stage:
    kernels: list[_Kernel] = []
    messages: list[_Message] = []
    for stored, template in zip(made, timed or made, strict=True):
        num_kernels = template.num_layers * template.num_kernels
        if template.kind in COLLECTIVES:
            inter_node = _leaves_machine(template, curves, parallelism, stage)
            messages.append(_Message(template, num_kernels, inter_node, library))
            continue
        precision = "fp8_block" if template.block_scaled else template.precision
        experts = template.law.as_routed if isinstance(template.law, Experts) else None
        kind = EVEN_EXPERTS if experts is not None and not experts.routed.uneven else template.kind
        curve = curves.kernel(kind, precision, template.weight_bits)
        routed = None if curves.is_ideal else experts
        kernels.append(_Kernel(template, curve, num_kernels, routed, None if stored == template else stored))
    return _Stage(tuple(kernels), tuple(messages), num_layers, is_last=stage == parallelism.pp - 1)


def _leaves_machine(template: Template, curves: GpuCurves, parallelism: Parallelism, stage: int) -> bool:
    """Tell whether the ranks of a collective lie in several machines, ranks of a stage being neighbours."""
    link = curves.gpu.scale_up
    machine = max(curves.gpu.max_per_machine, link.max_domain if link else 1)
    if template.kind is not OpKind.SEND:
        return template.num_spanned > machine
    width = parallelism.tp * parallelism.dp
    first, last = stage * width, (stage + 2) * width - 1
    return first // machine != last // machine


def _number(value: Given) -> Amount:
    if isinstance(value, (int, float)):
        return value
    import numpy as np  # noqa: PLC0415 - whoever hands in arrays has loaded it

    # Whole numbers of 64 bit would overflow: FLOP of a step reach 1e20.
    return np.asarray(value, dtype=np.float64)


def _is_none(value: Amount) -> bool:
    return isinstance(value, (int, float)) and not value


def _where_any(amount: Amount, time_s: Amount) -> Amount:
    """Return ``time_s`` where there is any ``amount``, else 0: no work launches no kernel."""
    return time_s * (amount > 0)


def _broadcast(time_s: Amount, batch: Batches) -> Amount:
    """Return ``time_s`` in the shape of all arguments: those that do not matter to it have one too."""
    for value in batch.values():
        if value is not None and not isinstance(value, (int, float)):
            break
    else:
        return time_s
    import numpy as np  # noqa: PLC0415 - whoever hands in arrays has loaded it

    shape = np.broadcast_shapes(*(np.shape(cast("Given", value)) for value in batch.values() if value is not None))
    return time_s if np.shape(time_s) == shape else np.array(np.broadcast_to(time_s, shape))


def _greater(one: Amount, other: Amount) -> Amount:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return max(one, other)
    import numpy as np  # noqa: PLC0415 - whoever hands in arrays has loaded it

    return np.maximum(one, other)
