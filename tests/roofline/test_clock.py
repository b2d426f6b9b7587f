from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.errors import InfcalcError
from infcalc.files import load_catalog
from infcalc.frozen import frozen
from infcalc.lowering.ops import (
    COLLECTIVES,
    Decode,
    ElementwiseIo,
    Extent,
    OpKind,
    Prefill,
    StepShape,
    operations,
)
from infcalc.lowering.tensors import check_divisible, inventory, parameters
from infcalc.lowering.work import experts_touched
from infcalc.memory.weights import weights_per_stage
from infcalc.roofline.clock import Batch, Overhead, StepClock
from infcalc.roofline.curves import GpuCurves, curves_of
from infcalc.roofline.price import Bound, compute_precision
from infcalc.roofline.step import decode_timer, step_time
from infcalc.spec.efficiency import (
    Algorithm,
    AlgorithmKind,
    CollectiveKind,
    CollectiveShape,
    Fractions,
    GpuEfficiency,
    KernelShape,
)
from infcalc.spec.hardware import Gpu, Link
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.model import Model
from infcalc.spec.parallelism import Parallelism
from infcalc.spec.weights import WeightQuantization
from tests.roofline.shapes import A100, B200, DEEPSEEK_V3, H100, LLAMA_8B, LLAMA_70B, MIXTRAL


def flat(compute: float, bandwidth: float, latency_s: float) -> KernelShape:
    return KernelShape(
        compute_fraction=Fractions(fractions=(compute,)),
        bandwidth_fraction=Fractions(fractions=(bandwidth,)),
        latency_s=latency_s,
        sharpness=4.0,
    )


CONSTANT = GpuEfficiency(
    name="constant",
    kernels=(
        ("gemm/bf16", flat(0.6, 0.7, 5e-6)),
        ("moe/bf16", flat(0.4, 0.6, 20e-6)),
        ("attention_prefill/bf16", flat(0.4, 0.7, 10e-6)),
        ("attention_decode/bf16", flat(0.5, 0.7, 8e-6)),
        ("elementwise/any", flat(1.0, 0.7, 2e-6)),
    ),
)
JOINED = replace(H100, scale_up=Link(name="NVLink", bytes_per_s=450e9, max_domain=8))
MIXED: Batch = {
    "num_decodes": 12,
    "context_tokens": 3000,
    "num_prefills": 1,
    "new_tokens": 500,
    "cached_tokens": 100,
}


def ideal(model: Model, gpu: Gpu, **given: Any) -> StepClock:  # noqa: ANN401 - arguments of the clock
    return StepClock(model, curves_of(gpu), extent=Extent.ROOFLINE, elementwise_io=ElementwiseIo.FUSED, **given)


@frozen
class Deployment:
    """What the laws are tested on."""

    model: Model
    curves: GpuCurves
    quantization: WeightQuantization | None
    ranks: Parallelism

    def clock(self, curves: GpuCurves | None = None) -> StepClock:
        """Return its clock, or that on other curves."""
        return StepClock(self.model, curves or self.curves, parallelism=self.ranks, quantization=self.quantization)


def constant(gpu: Gpu) -> GpuCurves:
    return curves_of(gpu, CONSTANT)


# --- the roofline is the clock on ideal curves ---


@pytest.mark.parametrize("ranks", [Parallelism(), Parallelism(tp=4), Parallelism(tp=2, pp=3)])
@pytest.mark.parametrize("model", [LLAMA_8B, MIXTRAL, DEEPSEEK_V3], ids=lambda model: model.name)
def test_on_ideal_curves_it_is_the_roofline(model: Model, ranks: Parallelism) -> None:
    shape = StepShape(
        prefills=(Prefill(new_tokens=500, cached_tokens=100),),
        decodes=(Decode(context_tokens=3000, num_sequences=12),),
    )
    roofline = step_time(operations(model, shape, parallelism=ranks), A100)
    assert ideal(model, A100, parallelism=ranks).step_s(**MIXED) == pytest.approx(roofline.time_s, rel=1e-12)


def test_decode_is_that_of_the_timer() -> None:
    ranks = Parallelism(dp=4, ep=4)
    kv = KV_FORMATS["fp8"]
    quantization = WeightQuantization(format="fp8_block")
    timer = decode_timer(DEEPSEEK_V3, H100, parallelism=ranks, kv=kv, quantization=quantization, context_tokens=777)
    clock = ideal(DEEPSEEK_V3, H100, parallelism=ranks, kv=kv, quantization=quantization)
    for batch, new in ((1, 1), (3, 5), (40, 2)):
        step_s = clock.step_s(
            num_decodes=-(-batch // 4), context_tokens=777, decode_new_tokens=new, busy_dp_ranks=min(batch, 4)
        )
        assert step_s == pytest.approx(timer(batch, new), rel=1e-12)


# --- the physics guard ---


@cache
def catalog_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    catalog = load_catalog()
    gpus = tuple(name for name in catalog.gpu_names() if catalog.gpu(name).gpu.peak("bf16"))
    return catalog.model_names(), gpus


@cache
def catalog_model(name: str) -> Model:
    return load_catalog().model(name).model


@cache
def catalog_gpu(name: str) -> Gpu:
    return load_catalog().gpu(name).gpu


WEIGHTS = (None, "bf16", "fp8", "fp8_block", "awq", "int8", "nvfp4", "mxfp4")
RANKS = (Parallelism(), Parallelism(tp=2), Parallelism(tp=8), Parallelism(tp=2, dp=4, ep=8), Parallelism(tp=4, pp=2))


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    models, gpus = catalog_names()
    model = catalog_model(draw(st.sampled_from(models)))
    weights = draw(st.sampled_from(WEIGHTS))
    ranks = draw(st.sampled_from(RANKS))
    try:
        check_divisible(model, ranks)
    except InfcalcError:
        ranks = Parallelism()
    quantization = None if weights is None else WeightQuantization(format=weights)
    gpu = catalog_gpu(draw(st.sampled_from(gpus)))
    efficiency = draw(st.sampled_from((CONSTANT, load_catalog().efficiency(gpu))))
    return Deployment(model=model, curves=curves_of(gpu, efficiency), quantization=quantization, ranks=ranks)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    decodes = draw(st.integers(0, 2000))
    prefills = draw(st.integers(0 if decodes else 1, 8))
    return {
        "num_decodes": decodes,
        "context_tokens": draw(st.integers(0, 200_000)),
        "num_prefills": prefills,
        "new_tokens": draw(st.integers(1, 20_000)),
        "cached_tokens": draw(st.integers(0, 100_000)),
        "decode_new_tokens": draw(st.integers(1, 8)),
    }


def shape_of(batch: Batch) -> StepShape:
    given = {name: int(str(value)) for name, value in batch.items()}
    prefill = (
        Prefill(
            new_tokens=given["new_tokens"], cached_tokens=given["cached_tokens"], num_sequences=given["num_prefills"]
        )
        if given["num_prefills"]
        else None
    )
    decode = (
        Decode(
            context_tokens=given["context_tokens"],
            num_sequences=given["num_decodes"],
            new_tokens=given["decode_new_tokens"],
        )
        if given["num_decodes"]
        else None
    )
    return StepShape(prefills=() if prefill is None else (prefill,), decodes=() if decode is None else (decode,))


@settings(max_examples=150, deadline=None)
@given(deployment=deployments(), batch=batches())
def test_nothing_is_faster_than_physics(deployment: Deployment, batch: Batch) -> None:
    model, gpu = deployment.model, deployment.curves.gpu
    quantization, ranks = deployment.quantization, deployment.ranks
    clock = deployment.clock()
    step_s, stages_s = clock.step_s(**batch), clock.stages_s(**batch)
    tensors = inventory(model, quantization)
    for stage in range(ranks.pp):
        ops = operations(
            model,
            shape_of(batch),
            parallelism=ranks,
            tensors=tensors,
            elementwise_io=ElementwiseIo.SEPARATE,
            extent=Extent.ENGINE,
            stage=stage if ranks.pp > 1 else None,
        )
        compute_s = math.fsum(op.flop / compute_precision(gpu, op.precision)[1] for op in ops)
        memory_s = math.fsum(op.total_bytes for op in ops) / gpu.bandwidth_bytes_per_s
        assert stages_s[stage] >= max(compute_s, memory_s) * (1 - 1e-9)
    assert step_s >= ideal(model, gpu, parallelism=ranks, quantization=quantization).step_s(**batch) * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(deployment=deployments(), decodes=st.integers(1, 512), context=st.integers(0, 50_000))
def test_no_decode_is_faster_than_its_weights(deployment: Deployment, decodes: int, context: int) -> None:
    # Counted apart from the ops: a matrix left out of them would show.
    model, gpu = deployment.model, deployment.curves.gpu
    quantization, ranks = deployment.quantization, deployment.ranks
    tensors = inventory(model, quantization)
    step_s = ideal(model, gpu, parallelism=ranks, tensors=tensors).step_s(num_decodes=decodes, context_tokens=context)
    counts = parameters(tensors)
    fastest = max(peak for _, peak in gpu.peak_flop_per_s)
    assert step_s * ranks.num_gpus >= 2 * (counts.active - counts.embedding) * decodes / fastest * 0.99
    if all(tensor.active_copies == tensor.copies for tensor in tensors) and not model.extras:
        table = sum(tensor.rank_bytes(ranks) for tensor in tensors if tensor.name == "embedding")
        read = sum(weights_per_stage(model, ranks, quantization)) - (0 if model.tied_embeddings else table)
        # In a pipeline, tied tables lie on the first stage and on the last.
        read -= table if model.tied_embeddings and ranks.pp > 1 else 0
        assert step_s >= read / gpu.bandwidth_bytes_per_s * (1 - 1e-9)


# --- laws ---


@settings(max_examples=60, deadline=None)
@given(deployment=deployments(), batch=batches(), factor=st.floats(1, 4))
def test_time_never_rises_with_bandwidth_or_peak(deployment: Deployment, batch: Batch, factor: float) -> None:
    gpu = deployment.curves.gpu
    faster = (
        replace(gpu, bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s * factor),
        replace(gpu, peak_flop_per_s=tuple((name, peak * factor) for name, peak in gpu.peak_flop_per_s)),
    )
    slow, *quick = (
        deployment.clock(curves_of(one, deployment.curves.efficiency)).step_s(**batch) for one in (gpu, *faster)
    )
    assert all(step_s <= slow * (1 + 1e-12) for step_s in quick)


@settings(max_examples=60, deadline=None)
@given(deployment=deployments(), batch=batches(), more=st.integers(1, 100))
def test_time_never_falls_with_more_sequences_or_longer_contexts(
    deployment: Deployment, batch: Batch, more: int
) -> None:
    clock = deployment.clock()
    step_s = clock.step_s(**batch)
    wider: Batch = {**batch, "num_decodes": batch["num_decodes"] + more}
    longer: Batch = {**batch, "context_tokens": batch["context_tokens"] + more}
    assert clock.step_s(**wider) >= step_s * (1 - 1e-12)
    assert clock.step_s(**longer) >= step_s * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(deployment=deployments(), rows=st.lists(batches(), min_size=1, max_size=6))
def test_many_steps_in_one_call_are_the_steps_one_by_one(deployment: Deployment, rows: list[Batch]) -> None:
    clock = deployment.clock()
    columns: Any = {name: np.array([row[name] for row in rows]) for name in rows[0]}  # type: ignore[literal-required]
    asks: tuple[Callable[..., Any], ...] = (clock.step_s, clock.slowest_s)
    for ask in asks:
        assert list(ask(**columns)) == pytest.approx([ask(**row) for row in rows], rel=1e-12)
    assert [np.asarray(stage).tolist() for stage in clock.stages_s(**columns)] == [
        pytest.approx([clock.stages_s(**row)[stage] for row in rows], rel=1e-12) for stage in range(deployment.ranks.pp)
    ]


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_ranks_split_the_work_exactly(tp: int) -> None:
    split = (OpKind.GEMM, OpKind.LM_HEAD, OpKind.ATTENTION_DECODE, OpKind.ATTENTION_PREFILL, OpKind.ACTIVATION)
    whole, rank = (
        StepClock(LLAMA_70B, curves_of(H100), parallelism=Parallelism(tp=ranks)).parts(**MIXED) for ranks in (1, tp)
    )
    for one, other in zip(whole, (part for part in rank if part.kind not in COLLECTIVES), strict=True):
        assert (one.kind, one.name, one.num_kernels) == (other.kind, other.name, other.num_kernels)
        if one.kind in split:
            assert one.compute_s == pytest.approx(tp * other.compute_s, rel=1e-12)
            assert one.ops[0].weight_bytes == tp * other.ops[0].weight_bytes
            assert one.ops[0].kv_read_bytes == tp * other.ops[0].kv_read_bytes


@pytest.mark.parametrize("pp", [1, 2, 3, 8])
def test_latency_of_a_pipeline_is_the_sum_of_its_stages(pp: int) -> None:
    ranks = Parallelism(tp=2, pp=pp)
    overhead = Overhead(per_layer_s=1e-5, per_step_s=1e-3, per_sequence_s=1e-5)
    clock = StepClock(LLAMA_70B, constant(JOINED), parallelism=ranks, overhead=overhead)
    stages = clock.stages_s(**MIXED)
    assert clock.num_stages == len(stages) == pp
    assert clock.step_s(**MIXED) == pytest.approx(sum(float(np.asarray(stage)) for stage in stages), rel=1e-12)
    # It has the head, and what the engine adds to each step.
    assert clock.slowest_s(**MIXED) == max(stages) == stages[-1]
    whole = StepClock(LLAMA_70B, constant(JOINED), parallelism=Parallelism(tp=2), overhead=overhead)
    sends = [part for part in clock.parts(**MIXED) if part.kind is OpKind.SEND]
    assert sum(part.num_kernels for part in sends) == pp - 1
    assert clock.step_s(**MIXED) == pytest.approx(whole.step_s(**MIXED) + sum(part.time_s for part in sends), rel=1e-12)


def test_an_empty_step_takes_no_time() -> None:
    overhead = Overhead(per_layer_s=1e-5, per_step_s=1e-3, per_sequence_s=1e-5)
    clock = StepClock(DEEPSEEK_V3, constant(JOINED), parallelism=Parallelism(tp=2, dp=4, ep=8), overhead=overhead)
    assert clock.step_s() == 0
    assert clock.parts() == ()
    some = np.array([0, 1, 0, 2])
    times = clock.step_s(num_decodes=some, context_tokens=100, num_prefills=some, new_tokens=50)
    assert list(np.asarray(times) > 0) == [False, True, False, True]
    assert np.isfinite(times).all()


def test_answers_have_the_shape_of_all_arguments() -> None:
    clock = StepClock(LLAMA_8B, constant(H100))
    grid = clock.step_s(num_decodes=np.arange(1, 4)[:, None], context_tokens=np.array([10, 20]))
    assert np.shape(grid) == (3, 2)
    idle = clock.step_s(num_prefills=1, new_tokens=100, context_tokens=np.array([10, 20]))
    assert list(np.asarray(idle)) == [clock.step_s(num_prefills=1, new_tokens=100)] * 2
    assert isinstance(clock.step_s(num_decodes=1, context_tokens=10), float)


def test_flop_of_the_largest_steps_do_not_overflow() -> None:
    clock = StepClock(LLAMA_70B, curves_of(H100))
    big = clock.step_s(num_prefills=np.array([2**20]), new_tokens=4096)
    assert float(np.asarray(big)[0]) == pytest.approx(clock.step_s(num_prefills=2**20, new_tokens=4096), rel=1e-12)


# --- overheads, kernels, messages ---


def test_overheads_are_added_per_layer_step_and_sequence() -> None:
    overhead = Overhead(per_layer_s=1e-5, per_step_s=1e-3, per_sequence_s=2e-5)
    bare, laden = (StepClock(LLAMA_8B, constant(H100), overhead=one) for one in (Overhead(), overhead))
    added = laden.step_s(**MIXED) - bare.step_s(**MIXED)
    assert added == pytest.approx(32 * 1e-5 + 1e-3 + 13 * 2e-5, rel=1e-9)
    parts = {part.name: part for part in laden.parts(**MIXED) if part.kind is None}
    assert [part.bound_by for part in parts.values()] == [Bound.LATENCY] * 3
    assert sum(part.time_s for part in parts.values()) == pytest.approx(added, rel=1e-9)


@pytest.mark.parametrize("ranks", [Parallelism(), Parallelism(tp=2, dp=2, ep=4), Parallelism(tp=2, pp=2)])
def test_parts_add_up_to_the_step(ranks: Parallelism) -> None:
    overhead = Overhead(per_layer_s=1e-5, per_step_s=1e-3)
    clock = StepClock(DEEPSEEK_V3, constant(JOINED), parallelism=ranks, overhead=overhead)
    parts = clock.parts(**MIXED)
    assert sum(part.time_s for part in parts) == pytest.approx(clock.step_s(**MIXED), rel=1e-12)
    assert sum(part.share_fraction for part in parts) == pytest.approx(1, rel=1e-12)
    for part in parts:
        longest = max(part.compute_s, part.memory_s) + part.link_s + part.latency_s
        assert (
            longest * (1 - 1e-9)
            <= part.time_s
            <= (part.compute_s + part.memory_s + part.link_s + part.latency_s) * (1 + 1e-9)
        )


def test_parts_say_what_they_wait_for() -> None:
    clock = StepClock(LLAMA_70B, constant(JOINED), parallelism=Parallelism(tp=4))
    alone = {(part.kind, part.name): part.bound_by for part in clock.parts(num_decodes=1, context_tokens=100)}
    assert alone[OpKind.GEMM, "gate_up"] is Bound.MEMORY
    assert alone[OpKind.ALL_REDUCE, "all-reduce of mixers"] is Bound.LATENCY
    assert alone[OpKind.ATTENTION_DECODE, "attention (full)"] is Bound.LATENCY
    prompt = {(part.kind, part.name): part.bound_by for part in clock.parts(num_prefills=1, new_tokens=8192)}
    assert prompt[OpKind.GEMM, "gate_up"] is Bound.COMPUTE
    assert prompt[OpKind.ALL_REDUCE, "all-reduce of mixers"] is Bound.LINK
    assert (OpKind.ATTENTION_DECODE, "attention (full)") not in prompt


def test_weights_alone_read_few_bytes_and_compute_in_16_bit() -> None:
    wide, narrow = (
        StepClock(LLAMA_70B, curves_of(A100), quantization=quantization)
        for quantization in (None, WeightQuantization(format="int4"))
    )
    assert narrow.step_s(num_decodes=1, context_tokens=1) < 0.32 * wide.step_s(num_decodes=1, context_tokens=1)
    prompts = [clock.step_s(num_prefills=1, new_tokens=8192) for clock in (wide, narrow)]
    assert prompts[1] == pytest.approx(prompts[0], rel=0.01)


def test_narrow_types_compute_only_where_there_are_units_for_them() -> None:
    def prompt_s(gpu: Gpu, weights: str | None) -> float:
        quantization = None if weights is None else WeightQuantization(format=weights)
        return StepClock(LLAMA_70B, curves_of(gpu), quantization=quantization).step_s(num_prefills=1, new_tokens=8192)

    assert prompt_s(A100, "fp8") == pytest.approx(prompt_s(A100, None), rel=0.01)
    assert prompt_s(H100, "fp8") < 0.65 * prompt_s(H100, None)
    assert prompt_s(H100, "nvfp4") == pytest.approx(prompt_s(H100, None), rel=0.01)
    assert prompt_s(B200, "nvfp4") < 0.65 * prompt_s(B200, "fp8")


def far(model: Model, ranks: Parallelism, *, domain: int = 8) -> dict[str, bool]:
    """Return which messages leave a machine."""
    gpu = replace(JOINED, scale_up=Link(name="NVLink", bytes_per_s=450e9, max_domain=domain))
    clock = StepClock(model, constant(gpu), parallelism=ranks)
    return {
        message.template.name: message.inter_node
        for stage in clock._stages  # noqa: SLF001 - which of them is no answer of its own
        for message in stage.messages
    }


def test_ranks_that_do_not_share_a_machine_use_the_network() -> None:
    assert set(far(LLAMA_70B, Parallelism(tp=8)).values()) == {False}
    assert set(far(LLAMA_70B, Parallelism(tp=16)).values()) == {True}
    assert set(far(LLAMA_70B, Parallelism(tp=16), domain=72).values()) == {False}
    # Cards with a bridge between two still share a machine.
    assert set(far(LLAMA_70B, Parallelism(tp=8), domain=2).values()) == {False}
    spread = far(DEEPSEEK_V3, Parallelism(tp=4, dp=4, ep=8))
    assert {name for name, leaves in spread.items() if leaves} == {"dispatch to experts", "combine of experts"}
    split = far(MIXTRAL, Parallelism(tp=4, dp=4))
    assert {name for name, leaves in split.items() if leaves} == {
        "all-gather for experts",
        "reduce-scatter of experts",
    }


@pytest.mark.parametrize(
    ("ranks", "crossing"),
    [
        (Parallelism(tp=2, pp=4), [False, False, False]),
        (Parallelism(tp=4, pp=4), [False, True, False]),
        (Parallelism(dp=3, pp=4), [False, True, True]),
    ],
)
def test_stages_of_a_pipeline_are_neighbours(ranks: Parallelism, crossing: list[bool]) -> None:
    clock = StepClock(LLAMA_70B, constant(JOINED), parallelism=ranks)
    places = clock._places[:-1]  # noqa: SLF001 - as above
    sends = [clock._stages[place].messages[-1] for place in places]  # noqa: SLF001
    assert {send.template.kind for send in sends} == {OpKind.SEND}
    assert [send.inter_node for send in sends] == crossing


def test_the_network_is_dearer() -> None:
    ranks = Parallelism(tp=4, dp=4, ep=16)
    near, apart = (
        StepClock(
            DEEPSEEK_V3,
            constant(replace(JOINED, scale_up=Link(name="NVLink", bytes_per_s=450e9, max_domain=domain))),
            parallelism=ranks,
        )
        for domain in (72, 8)
    )
    assert apart.step_s(**MIXED) > 1.1 * near.step_s(**MIXED)


@pytest.mark.parametrize(
    ("weights", "variant"), [("int4", "bf16_w4"), ("fp8_a16", "bf16_w8"), ("fp8", "fp8"), ("fp8_block", "fp8_block")]
)
def test_each_way_of_storing_weights_has_its_curve(weights: str, variant: str) -> None:
    fast, slow = flat(0.6, 0.7, 5e-6), flat(0.6, 0.35, 5e-6)
    variants = ("bf16", "bf16_w8", "bf16_w4", "fp8", "fp8_block")

    def decode_s(gpu: Gpu, slow_variant: str | None) -> float:
        gemm = tuple((f"gemm/{name}", slow if name == slow_variant else fast) for name in variants)
        curves = curves_of(gpu, replace(CONSTANT, kernels=(*CONSTANT.kernels, *gemm)))
        clock = StepClock(LLAMA_70B, curves, quantization=WeightQuantization(format=weights))
        return clock.step_s(num_decodes=1, context_tokens=1)

    assert decode_s(H100, variant) > 1.5 * decode_s(H100, None)
    # The head is stored in 16 bit.
    others = {decode_s(H100, name) for name in variants if name not in {variant, "bf16"}}
    assert others == {decode_s(H100, None)}
    # Without units for fp8 its weights, in blocks or not, are widened.
    widened = "bf16_w8" if variant.startswith("fp8") else variant
    assert decode_s(A100, widened) > 1.5 * decode_s(A100, None)


def test_messages_are_those_of_the_library() -> None:
    def reduce(library: str, latency_s: float) -> CollectiveShape:
        ring = Algorithm(kind=AlgorithmKind.RING, latency_s=latency_s, bytes_per_s=300e9)
        return CollectiveShape(kind=CollectiveKind.ALL_REDUCE, library=library, num_ranks=4, algorithms=(ring,))

    curves = curves_of(JOINED, replace(CONSTANT, collectives=(reduce("vllm", 5e-6), reduce("nccl", 25e-6))))
    ranks = Parallelism(tp=4)
    own, asked = (StepClock(LLAMA_70B, curves, parallelism=ranks, library=name) for name in (None, "nccl"))
    alone: Batch = {"num_decodes": 1, "context_tokens": 1}
    assert asked.step_s(**alone) - own.step_s(**alone) == pytest.approx(161 * 20e-6, rel=1e-9)


def test_touched_experts_set_what_a_mixture_reads_and_how_well_it_computes() -> None:
    clock = StepClock(MIXTRAL, curves_of(A100))
    (part,) = (part for part in clock.parts(num_decodes=4, context_tokens=10) if part.kind is OpKind.MOE)
    touched = experts_touched(8, 8, 2, 4)
    assert part.ops[0].tokens == pytest.approx(8 / touched)
    assert part.memory_s == pytest.approx(
        32 * (touched * 3 * 4096 * 14_336 * 2 + 8 * (2 * 4096 + 3 * 14_336) * 2) / 2039e9, rel=1e-12
    )


def test_the_fullest_rank_of_experts_sets_the_pace() -> None:
    def experts_s(ep: int, *, ideal_gpu: bool = False) -> float:
        curves = curves_of(JOINED) if ideal_gpu else constant(JOINED)
        clock = StepClock(DEEPSEEK_V3, curves, parallelism=Parallelism(dp=8, ep=ep))
        return sum(part.time_s for part in clock.parts(num_prefills=1, new_tokens=8192) if part.kind is OpKind.MOE)

    # Split inside, experts are as full on every rank; whole ones are not, but ideally.
    assert experts_s(8) > 1.15 * experts_s(1)
    assert experts_s(8, ideal_gpu=True) == pytest.approx(experts_s(1, ideal_gpu=True), rel=0.01)


def test_uneven_routing_reads_less_but_no_less_than_the_roofline() -> None:
    model = DEEPSEEK_V3
    batch: Batch = {"num_decodes": 32, "context_tokens": 10}
    (part,) = (part for part in StepClock(model, constant(A100)).parts(**batch) if part.kind is OpKind.MOE)
    (least,) = (part for part in StepClock(model, curves_of(A100)).parts(**batch) if part.kind is OpKind.MOE)
    assert part.memory_s < 0.95 * least.memory_s / 0.6
    assert part.time_s >= least.memory_s * (1 - 1e-9)


def test_a_cache_that_is_converted_takes_the_time_of_what_it_becomes_and_moves_its_own_bytes() -> None:
    bf16, fp8 = KV_FORMATS["bf16"], KV_FORMATS["fp8"]
    curves = curves_of(H100, CONSTANT)
    plain = StepClock(LLAMA_8B, curves, kv=bf16)
    native = StepClock(LLAMA_8B, curves, kv=fp8)
    converted = StepClock(LLAMA_8B, curves, kv=fp8, attended=bf16)
    for batch in (MIXED, Batch(num_decodes=64, context_tokens=8000), Batch(num_prefills=2, new_tokens=4000)):
        assert converted.step_s(**batch) == plain.step_s(**batch)
        assert native.step_s(**batch) < converted.step_s(**batch)
        read = [
            [sum(op.kv_read_bytes + op.kv_write_bytes for part in clock.parts(**batch) for op in part.ops)]
            for clock in (native, converted, plain)
        ]
        assert read[0] == read[1]
        assert 2 * read[1][0] == read[2][0]
        assert sum(part.time_s for part in converted.parts(**batch)) == pytest.approx(converted.step_s(**batch))
    assert StepClock(LLAMA_8B, curves, kv=fp8, attended=fp8).step_s(**MIXED) == native.step_s(**MIXED)
