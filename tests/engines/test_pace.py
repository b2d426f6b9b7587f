from __future__ import annotations

import pytest

from infcalc.engines.pace import PACED, Order, kernel_factor, num_front_ends, pace


def test_every_engine_has_a_pace_at_any_version() -> None:
    for engine in PACED:
        found = pace(engine, None)
        assert found.source
        assert found.value.per_step_s > 0


def test_engine_generations_of_one_version_differ() -> None:
    first, second = (pace("vllm", "0.8.5", generation).value for generation in ("v0", "v1"))
    assert (first.order, second.order) == (Order.PREFILL_FIRST, Order.MIXED)
    assert second.per_step_s < first.per_step_s


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_steps_got_cheaper_with_time(engine: str) -> None:
    costs = [pace(engine, version).value for version in ("0.1", "0.7", "0.9", "0.17", "1.0", "1.3")]
    per_step = [cost.per_layer_s * 32 + cost.per_step_s for cost in costs]
    assert per_step[-1] < per_step[0]


def test_kernels_of_the_first_months_take_longer() -> None:
    def factor(version: str, *, latent_experts: bool = True) -> float:
        return kernel_factor("vllm", version, latent_experts=latent_experts, bandwidth_bytes_per_s=4.8e12, num_sms=132)

    assert factor("0.7.3") > 1.5
    assert factor("0.11.0") == 1
    assert factor("0.7.3", latent_experts=False) == 1


def test_llama_cpp_reads_by_the_multiprocessor() -> None:
    def factor(bandwidth_bytes_per_s: float, num_sms: int | None) -> float:
        return kernel_factor(
            "llama.cpp",
            None,
            latent_experts=False,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            num_sms=num_sms,
        )

    assert factor(2.039e12, 108) > 1
    assert factor(1.008e12, 128) == 1
    assert factor(1e12, None) == 1


def test_front_ends_grow_with_data_parallel_ranks_where_the_engine_starts_them() -> None:
    assert [num_front_ends("vllm", version, 8) for version in (None, "0.33", "0.16.1+cu128", "0.11.0")] == [8, 8, 8, 1]
    assert num_front_ends("sglang", None, 8) == num_front_ends("tensorrt-llm", "1.2", 8) == 1
