from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infcalc.lowering.ops import AttentionIo, Decode, Op, OpKind, Prefill, StepShape, operations
from infcalc.lowering.work import experts_touched
from infcalc.roofline.crossover import crossover
from infcalc.roofline.price import Bound, Efficiency
from infcalc.roofline.step import (
    BATCHES,
    Phase,
    Point,
    busiest,
    decode_timer,
    explain_stages,
    explain_step,
    points,
    stage_times,
    step_time,
)
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.parallelism import Parallelism
from infcalc.spec.weights import WeightQuantization
from tests.roofline.shapes import A100, DEEPSEEK_V3, GB10, H100, H200, LLAMA_8B, LLAMA_70B, MIXTRAL, QWEN3_32B

PUBLISHED: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent.parent / "published" / "roofline.yaml").read_text(encoding="utf-8")
)
GPUS = {gpu.name: gpu for gpu in (A100, H100, H200, GB10)}
MODELS = {model.name: model for model in (LLAMA_70B, LLAMA_8B, DEEPSEEK_V3)}


def only(found: tuple[Point, ...], phase: Phase) -> Point:
    (point,) = (one for one in found if one.phase is phase and one.attention_io is AttentionIo.FLASH)
    return point


@pytest.mark.parametrize("case", PUBLISHED["prefill"], ids=lambda case: f"{case['model']}-{case['tokens']}")
def test_published_prefill_floors(case: dict[str, Any]) -> None:
    found = points(
        MODELS[case["model"]],
        GPUS[case["gpu"]],
        parallelism=Parallelism(tp=case["tp"]),
        prompt_tokens=case["tokens"],
        batches=(1,),
    )
    point = only(found, Phase.PREFILL)
    assert point.time_s == pytest.approx(case["time_s"], rel=case["rel_tol"])
    assert point.bound_by is Bound.COMPUTE


@pytest.mark.parametrize("case", PUBLISHED["decode"], ids=lambda case: f"{case['model']}-{case['gpu']}-{case['tp']}")
def test_published_decode_floors(case: dict[str, Any]) -> None:
    weights = case["weights"]
    found = points(
        MODELS[case["model"]],
        GPUS[case["gpu"]],
        parallelism=Parallelism(tp=case["tp"]),
        quantization=None if weights is None else WeightQuantization(format=weights),
        context_tokens=case["context_tokens"],
        batches=(case["batch"],),
    )
    point = only(found, Phase.DECODE)
    assert point.time_s == pytest.approx(case["time_s"], rel=case["rel_tol"])
    assert point.bound_by is Bound.MEMORY


def test_prefill_alone_needs_five_h200_at_half_of_peak() -> None:
    # github.com/ai-dynamo/aiconfigurator/pull/1369: 10 requests/s of 4,000 tokens need 5.3 H200 for Qwen3-32B.
    efficiency = Efficiency(compute_fraction=0.5)
    found = points(QWEN3_32B, H200, prompt_tokens=4000, batches=(1,), efficiency=efficiency)
    assert only(found, Phase.PREFILL).time_s * 10 == pytest.approx(5.3, rel=0.15)


def test_the_often_quoted_400_ms_prefill_is_below_the_floor_of_one_a100() -> None:
    one = points(LLAMA_70B, A100, prompt_tokens=4096, batches=(1,))
    assert only(one, Phase.PREFILL).time_s > 4 * 0.4
    four = points(
        LLAMA_70B,
        A100,
        parallelism=Parallelism(tp=4),
        prompt_tokens=2000,
        batches=(1,),
        efficiency=Efficiency(compute_fraction=0.56),
    )
    assert only(four, Phase.PREFILL).time_s == pytest.approx(0.4, rel=0.02)


def test_points_cover_phases_batches_and_attention_io() -> None:
    found = points(LLAMA_70B, A100, parallelism=Parallelism(tp=4))
    assert len(found) == 2 * len(BATCHES) * 2
    assert {point.batch for point in found} == {1, 8, 32, 128, 256, 1024}
    assert only(points(LLAMA_70B, A100, batches=(8,)), Phase.PREFILL).tokens == 8 * 4096
    assert only(points(LLAMA_70B, A100, batches=(8,)), Phase.DECODE).tokens == 8


@pytest.mark.parametrize("phase", list(Phase))
def test_naive_attention_moves_more_and_never_less_time(phase: Phase) -> None:
    found = points(LLAMA_70B, A100, batches=(8,))
    flash, naive = (
        next(one for one in found if one.phase is phase and one.attention_io is way)
        for way in (AttentionIo.FLASH, AttentionIo.NAIVE)
    )
    assert naive.bytes > flash.bytes
    assert naive.time_s > flash.time_s
    assert naive.flop == flash.flop


def test_bound_agrees_with_the_crossover_of_a_single_precision() -> None:
    ridge = crossover(A100)[0].crossover_flop_per_byte
    found = points(LLAMA_8B, A100, context_tokens=128)
    assert {point.bound_by for point in found} == {Bound.COMPUTE, Bound.MEMORY}
    for point in found:
        assert (point.flop_per_byte > ridge) == (point.bound_by is Bound.COMPUTE)


def test_points_are_those_of_the_op_list() -> None:
    shape = StepShape(decodes=(Decode(context_tokens=777, num_sequences=3),))
    kv = KV_FORMATS["fp8"]
    step = step_time(operations(LLAMA_8B, shape, kv=kv), H100)
    point = only(points(LLAMA_8B, H100, kv=kv, context_tokens=777, batches=(3,)), Phase.DECODE)
    assert (point.flop, point.bytes, point.time_s) == (step.flop, step.bytes, step.time_s)
    assert point.flop_per_byte == step.flop / step.bytes


def test_idle_attention_ranks_bring_no_tokens_to_the_experts() -> None:
    ranks = Parallelism(dp=8, ep=8)
    timer = decode_timer(DEEPSEEK_V3, H100, parallelism=ranks)
    touched = [timer(batch, 1) for batch in (1, 2, 8)]
    assert touched == sorted(touched)
    # One token meets one of its eight experts per rank, and one of 58 layers' worth of each is 88 MB.
    assert touched[2] - touched[0] == pytest.approx(
        58 * (experts_touched(32, 256, 8, 8) - 1) * 3 * 7168 * 2048 * 2 / 3350e9, rel=0.01
    )


def test_attention_data_parallel_ranks_share_the_batch() -> None:
    ranks = Parallelism(dp=8, ep=8)
    spread = only(points(DEEPSEEK_V3, H100, parallelism=ranks, batches=(64,)), Phase.DECODE)
    timer = decode_timer(DEEPSEEK_V3, H100, parallelism=ranks)
    assert timer(64, 1) == timer(57, 1) == spread.time_s
    assert timer(65, 1) > timer(64, 1)


@given(batch=st.integers(1, 500), context=st.integers(0, 50_000), factor=st.floats(1, 8))
def test_step_laws(batch: int, context: int, factor: float) -> None:
    shape = StepShape(decodes=(Decode(context_tokens=context, num_sequences=batch),))
    ops = operations(LLAMA_8B, shape)
    step = step_time(ops, A100)
    assert step.time_s >= max(step.flop / 312e12, step.bytes / 2039e9) * (1 - 1e-12)
    assert step.time_s <= step.compute_s + step.memory_s
    slower = step_time(ops, A100, Efficiency(compute_fraction=1 / factor, bandwidth_fraction=1 / factor))
    assert slower.time_s == pytest.approx(factor * step.time_s)
    assert (slower.flop, slower.bytes) == (step.flop, step.bytes)


def test_flop_and_cache_traffic_are_linear_in_the_batch() -> None:
    one, ten = (
        operations(LLAMA_8B, StepShape(decodes=(Decode(context_tokens=1000, num_sequences=batch),)))
        for batch in (1, 10)
    )
    assert sum(op.flop for op in ten) == 10 * sum(op.flop for op in one)
    assert sum(op.kv_read_bytes for op in ten) == 10 * sum(op.kv_read_bytes for op in one)
    heavy = [sum(op.weight_bytes for op in ops if op.kind is not OpKind.EMBEDDING) for ops in (one, ten)]
    assert heavy[0] == heavy[1]


def test_time_is_the_sum_of_the_parts() -> None:
    step = step_time(operations(MIXTRAL, StepShape(prefills=(Prefill(new_tokens=300),))), A100)
    assert step.time_s == pytest.approx(sum(max(part.compute_s, part.memory_s) for part in step.parts))
    assert {part.bound_by for part in step.parts} == {Bound.COMPUTE, Bound.MEMORY}


def test_a_mixed_step_is_bound_by_the_greater_sum_whatever_its_longest_op_is() -> None:
    def op(flop: float, moved: float) -> Op:
        return Op(kind=OpKind.GEMM, name="op", num_layers=1, precision="bf16", flop=flop, weight_bytes=moved)

    # One op computes for 3 s beside 1 s of memory; two move data for 2.5 s each beside half a second of compute.
    mixed = step_time([op(3 * 312e12, 2039e9), *(op(0.5 * 312e12, 2.5 * 2039e9) for _ in range(2))], A100)
    assert (mixed.compute_s, mixed.memory_s, mixed.time_s) == pytest.approx((4, 6, 8))
    assert [part.bound_by for part in mixed.parts] == [Bound.COMPUTE, Bound.MEMORY, Bound.MEMORY]
    assert mixed.bound_by is Bound.MEMORY
    longer = step_time([op(7 * 312e12, 2039e9), *(op(0.5 * 312e12, 2.5 * 2039e9) for _ in range(2))], A100)
    assert (longer.compute_s, longer.memory_s) == pytest.approx((8, 6))
    assert longer.bound_by is Bound.COMPUTE


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("pp", [2, 3, 8])
def test_a_pipeline_keeps_the_latency_and_divides_work_and_pace(phase: Phase, pp: int) -> None:
    whole = only(points(LLAMA_70B, A100, parallelism=Parallelism(tp=4), batches=(8,)), phase)
    piped = only(points(LLAMA_70B, A100, parallelism=Parallelism(tp=4, pp=pp), batches=(8,)), phase)
    assert (whole.stage_s, whole.tokens_per_s) == (whole.time_s, whole.tokens / whole.time_s)
    assert piped.time_s == pytest.approx(whole.time_s)
    assert piped.time_s / pp < piped.stage_s < 1.2 * piped.time_s / pp
    assert piped.tokens_per_s == piped.tokens / piped.stage_s
    assert 0.99 * whole.flop / pp < piped.flop < 1.2 * whole.flop / pp
    assert 0.9 * whole.bytes / pp < piped.bytes < 1.2 * whole.bytes / pp
    assert piped.flop_per_byte == piped.flop / piped.bytes
    assert piped.tokens == whole.tokens


def test_the_busiest_stage_is_the_one_with_the_head_where_layers_are_even() -> None:
    shape = StepShape(decodes=(Decode(context_tokens=100),))
    stages = stage_times(LLAMA_8B, A100, shape, parallelism=Parallelism(pp=4))
    assert busiest(stages) is stages[3]
    head = 128_256 * 4096 * 2 + 128_256 * 4 + 2 * 4096
    assert stages[3].bytes - stages[1].bytes == pytest.approx(head + 4096 * 2)
    assert decode_timer(LLAMA_8B, A100, parallelism=Parallelism(pp=4), context_tokens=100)(1, 1) == pytest.approx(
        sum(stage.time_s for stage in stages)
    )


def test_explanation_of_a_pipeline_adds_up_its_stages() -> None:
    shape = StepShape(decodes=(Decode(context_tokens=4096),))
    one = stage_times(LLAMA_70B, A100, shape)
    assert explain_stages(one, A100) == explain_step(step_time(operations(LLAMA_70B, shape), A100), A100)
    stages = stage_times(LLAMA_70B, A100, shape, parallelism=Parallelism(pp=2))
    explained = {text.quantity: text for text in explain_stages(stages, A100)}
    assert list(explained) == ["flop", "bytes", "flop_per_byte", "stage_s", "time_s"]
    assert explained["time_s"].substituted == "33.9 ms + 34.9 ms = 68.8 ms"
    assert explained["stage_s"].substituted.endswith("= 34.9 ms")
    assert "gate_up x 40 " in explained["bytes"].substituted


def test_verifying_is_free_only_left_of_the_knee_and_dearer_for_a_mixture() -> None:
    dense, mixture = decode_timer(LLAMA_8B, A100, context_tokens=100), decode_timer(MIXTRAL, A100, context_tokens=100)
    assert dense(1, 5) / dense(1, 1) < 1.01
    assert dense(128, 5) / dense(128, 1) > 3
    assert mixture(1, 5) / mixture(1, 1) > 2


def test_timer_keeps_its_answers() -> None:
    timer = decode_timer(LLAMA_8B, A100)
    assert (
        timer(4, 2)
        == timer(4, 2)
        == step_time(
            operations(LLAMA_8B, StepShape(decodes=(Decode(context_tokens=4096, num_sequences=4, new_tokens=2),))), A100
        ).time_s
    )


def test_explanation_adds_up() -> None:
    step = step_time(operations(LLAMA_70B, StepShape(decodes=(Decode(context_tokens=4096),))), A100)
    explained = {one.quantity: one for one in explain_step(step, A100)}
    assert set(explained) == {"flop", "bytes", "flop_per_byte", "time_s"}
    assert "gate_up x 80 75.2 GB" in explained["bytes"].substituted
    assert explained["time_s"].substituted.endswith("= 68.8 ms")
    assert [given.name for given in explained["time_s"].inputs] == ["bandwidth_bytes_per_s", "peak_flop_per_s[bf16]"]
