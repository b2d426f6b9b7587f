"""The law of physics at the door: no figure is better than max(FLOP / peak, bytes / bandwidth) allows."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.floors import FloorClock, host_link_bytes_per_s, offload_step_s
from infcalc.api.offer import Offer
from infcalc.api.speed import SpeedResult, estimate, machine_of, site_of
from infcalc.api.steps import decode_step, prefill_step
from infcalc.errors import InfcalcError
from infcalc.lowering.ops import Decode, Prefill, StepShape, operations
from infcalc.memory.weights import weights_total_bytes
from infcalc.roofline.price import compute_precision
from infcalc.spec.kv import KV_FORMATS
from infcalc.units import GIB

CATALOG = load(Ask())
LAWFUL = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@cache
def names(section: str) -> tuple[str, ...]:
    return tuple(sorted(load(Ask()).names(section)))


def asked(model: str, gpu: str, *, tp: int = 1, weights: str | None = None, kv: str | None = None) -> Ask:
    return Ask(models=(model,), gpus=(gpu,), tp=tp, weights=weights, kv_dtypes=(kv,) if kv else ())


def answered(ask: Ask, offer: Offer) -> SpeedResult:
    """Return the result, where the question can be asked and fits."""
    try:
        result = estimate(ask, offer).result
    except InfcalcError:
        assume(False)
        raise
    assume(result.fits)
    return result


LOADS = st.one_of(
    st.builds(lambda batch: Offer(batch=batch), st.integers(1, 1024)),
    st.builds(lambda clients: Offer(concurrency=clients), st.integers(1, 512)),
    st.builds(lambda rate: Offer(requests_per_s=rate), st.floats(0.01, 50)),
    st.builds(lambda count: Offer(concurrency=16, num_requests=count), st.integers(16, 400)),
    st.just(Offer()),
)


@LAWFUL
@given(data=st.data(), offer=LOADS)
def test_no_figure_beats_the_hardware(data: st.DataObject, offer: Offer) -> None:
    ask = asked(
        data.draw(st.sampled_from(names("models"))),
        data.draw(st.sampled_from(names("gpus"))),
        tp=data.draw(st.sampled_from([1, 2, 4, 8])),
        weights=data.draw(st.sampled_from([None, "fp8", "int4", "awq"])),
        kv=data.draw(st.sampled_from([None, "fp8"])),
    )
    prompt, answer = data.draw(st.integers(1, 900)), data.draw(st.integers(1, 100))
    given_load = Offer(
        input_tokens=prompt,
        output_tokens=answer,
        batch=offer.batch,
        concurrency=offer.concurrency,
        requests_per_s=offer.requests_per_s,
        num_requests=offer.num_requests,
    )
    result = answered(ask, given_load)
    (deployment,) = resolve(ask, load(ask))
    form = KV_FORMATS[result.kv_dtype]

    def floor_s(shape: StepShape) -> float:
        ops = operations(
            deployment.model,
            shape,
            parallelism=deployment.parallelism,
            kv=form,
            quantization=deployment.quantization,
        )
        compute_s = sum(op.flop / compute_precision(deployment.gpu, op.precision)[1] for op in ops)
        return max(compute_s, sum(op.total_bytes for op in ops) / deployment.gpu.bandwidth_bytes_per_s)

    slack = 1 - 1e-9
    first_s = floor_s(StepShape(prefills=(Prefill(new_tokens=prompt),)))
    token_s = floor_s(StepShape(decodes=(Decode(context_tokens=prompt),)))
    if result.ttft_s is not None:
        assert result.ttft_s.low >= slack * first_s
    if result.tpot_s is not None:
        assert result.tpot_s.low >= slack * token_s
    if result.e2e_s is not None:
        assert result.e2e_s.low >= slack * (first_s + (answer - 1) * token_s)
    assert result.step is not None
    assert result.step.time_s.low >= slack * result.step.floor_s >= slack**2 * token_s
    assert result.prefill_step is not None
    assert result.prefill_step.time_s.low >= slack * result.prefill_step.floor_s
    # The work of a request, all tokens of a step together: no rate leaves less time for it.
    rate = result.requests_per_s
    assert rate is not None
    places = max(1, min(int(result.max_batch), offer.batch or offer.concurrency or 10**9))
    step = operations(
        deployment.model,
        StepShape(decodes=(Decode(context_tokens=prompt, num_sequences=places),)),
        parallelism=deployment.parallelism,
        kv=form,
        quantization=deployment.quantization,
    )
    read_s = sum(op.total_bytes for op in step) / deployment.gpu.bandwidth_bytes_per_s
    assert rate.high * (answer - 1) * read_s / places <= 1 / slack


@LAWFUL
@given(data=st.data(), batch=st.integers(1, 256))
def test_the_model_itself_stays_above_the_floor(data: st.DataObject, batch: int) -> None:
    # The guard is a guard: on GPUs that were measured it has nothing to do.
    ask = asked(
        data.draw(st.sampled_from(["llama3.1-8b", "qwen3-8b", "mistral-7b-v0.3", "gemma-3-12b", "qwen3-30b-a3b"])),
        data.draw(st.sampled_from(["h100", "a100", "h200", "b200", "l40s"])),
    )
    try:
        answer = estimate(ask, Offer(batch=batch, input_tokens=512, output_tokens=128))
    except InfcalcError:
        assume(False)
        raise
    assert not [text for text in answer.warnings if text.startswith("held at the floor")]


def test_the_ceiling_of_the_reference_scenario() -> None:
    (deployment,) = resolve(Ask(), load(Ask()))
    clock = FloorClock(deployment, KV_FORMATS["bf16"])
    # 58.7 tokens/s at best for one sequence, 29.9 each for a hundred, at 4,096 tokens.
    assert 1 / clock.decode_s(1, 4096) == pytest.approx(58.7, rel=0.02)
    assert 1 / clock.decode_s(100, 4096) == pytest.approx(29.9, rel=0.02)
    weights = weights_total_bytes(deployment.model) / 4 / deployment.gpu.bandwidth_bytes_per_s
    assert clock.decode_s(1, 1) == pytest.approx(weights, rel=0.05)


def test_floors_grow_with_work() -> None:
    (deployment,) = resolve(Ask(), load(Ask()))
    clock = FloorClock(deployment, KV_FORMATS["bf16"])
    assert clock.decode_s(1, 100) < clock.decode_s(1, 4000) < clock.decode_s(64, 4000)
    assert clock.prefill_s(100) < clock.prefill_s(2000) < clock.prefill_s(2000, 4000) < clock.prefill_s(2000, 4000, 4)
    assert clock.answer_step_s(1, 1000, 2000) == pytest.approx(clock.decode_s(1, 2000), rel=1e-6)


def test_offloaded_weights_come_over_the_link_of_the_host() -> None:
    ask = Ask(models=("llama3-70b",), gpus=("gh200-96gb",), num_gpus=1, cpu_offload_bytes=55 * GIB)
    (deployment,) = resolve(ask, load(ask))
    # NVLink-C2C, not PCIe: 55 GiB at 450 GB/s.
    assert host_link_bytes_per_s(deployment) == 450e9
    assert offload_step_s(deployment) == pytest.approx(0.1312, rel=0.01)
    result = estimate(ask, Offer(batch=1, input_tokens=256, output_tokens=64)).result
    assert result.tpot_s is not None
    assert result.tpot_s.value > offload_step_s(deployment)
    assert result.step is not None
    host = next(part for part in result.step.parts if part.name == "weights from the host")
    assert host.bound_by == "link"


@pytest.mark.parametrize("model", sorted(load(Ask()).names("models")))
def test_every_part_of_a_step_has_the_floor_of_its_work(model: str) -> None:
    ask = Ask(models=(model,), gpus=("h200-sxm-141gb",), tp=8)
    try:
        (deployment,) = resolve(ask, CATALOG)
        machine = machine_of(site_of(ask, deployment, CATALOG))
    except InfcalcError as problem:
        pytest.skip(f"not on 8 GPUs: {problem}")
    shapes = {
        decode_step(machine.stepping, 16, 1000): StepShape(decodes=(Decode(context_tokens=1000, num_sequences=16),)),
        prefill_step(machine.stepping, 2000, 0): StepShape(prefills=(Prefill(new_tokens=2000, cached_tokens=0),)),
    }
    for step, shape in shapes.items():
        ideal = sum(part.time_s for stage in machine.floors.stages(shape) for part in stage.parts)
        # Nothing is left out, and no part is faster than its own work allows.
        assert sum(part.floor_s for part in step.parts) == pytest.approx(ideal)
        assert all(part.time_s.value >= part.floor_s * (1 - 1e-9) for part in step.parts)
