from __future__ import annotations

import pytest

from infcalc.api.derived import with_derived
from infcalc.engines.logs.reader import read_log
from infcalc.engines.logs.reading import EngineLog, Quantity
from infcalc.units import GIB
from tests.api.logged import H100, H200, LLAMA, error, lines
from tests.engines.logs import samples


def derived(text: str) -> EngineLog:
    log = read_log(text)
    assert log is not None
    return with_derived(log)


def value(log: EngineLog, quantity: Quantity) -> float:
    figure = log.figure(quantity)
    assert figure is not None
    return figure.value / GIB


def test_a_pool_of_sglang_is_keys_values_and_states() -> None:
    # 13.11 + 13.11 of keys and values, 1.04 + 22.55 of states.
    assert value(derived(samples.SGLANG_STATES), Quantity.POOL) == pytest.approx(49.81)
    assert value(derived(samples.SGLANG), Quantity.POOL) == pytest.approx(2.84)
    found = lines(samples.SGLANG_STATES, H200)
    for quantity in ("kv_pool_bytes", "state_bytes", "kv_cache_tokens"):
        assert error(found[quantity]) < 0.005, quantity
    assert "mixed cache" not in found["kv_cache_tokens"].attributed_to


def test_the_pool_of_windowed_layers_alone_is_no_pool() -> None:
    assert value(derived(samples.SGLANG_WINDOWS), Quantity.POOL) == pytest.approx(52.12)
    found = lines(samples.SGLANG_WINDOWS, H100)
    assert error(found["kv_pool_bytes"]) < 0.005
    assert error(found["kv_cache_tokens"]) < 0.005
    cut = "\n".join(row for row in samples.SGLANG_WINDOWS.splitlines() if "SWAKVPool" not in row)
    assert derived(cut).figure(Quantity.POOL) is None
    assert lines(cut, H100)["kv_pool_bytes"].measured is None


def test_the_peak_of_the_profiling_run_is_compared_without_its_own_kv() -> None:
    found = lines(samples.TENSORRT, H100)
    # 20.15 less 1.00 of temporary KV; weights, activation, buffers and graphs are predicted.
    assert found["peak_bytes"].measured == round(19.15 * GIB)
    parts = [found[name].predicted for name in ("weights_bytes", "activation_bytes", "non_torch_bytes")]
    assert found["peak_bytes"].predicted is not None
    assert sum(part or 0 for part in parts) <= found["peak_bytes"].predicted
    # What is left of the card, of which the engine takes its share: 79.15 - 20.15 + 1.00.
    assert found["free_for_kv_bytes"].measured == pytest.approx(60.0 * GIB)
    assert "weights, activation and buffers" in found["kv_pool_bytes"].attributed_to


def test_the_framework_peak_of_old_engines_is_weights_and_activation() -> None:
    text = (
        "INFO llm_engine.py:234] Initializing an LLM engine (v0.6.4) with config: model='Qwen/Qwen2.5-7B-Instruct', "
        "dtype=torch.float16, max_seq_len=8192, tensor_parallel_size=1\n"
        "INFO model_runner.py:1] Loading model weights took 14.25 GB\n"
        "INFO worker.py:1] Memory profiling results: total_gpu_memory=31.74GiB initial_memory_usage=14.60GiB "
        "peak_torch_memory=15.65GiB non_torch_memory=0.35GiB kv_cache_size=12.57GiB gpu_memory_utilization=0.90\n"
    )
    assert value(derived(text), Quantity.ACTIVATION) == pytest.approx(1.40)


def test_where_nothing_was_left_the_pool_is_nothing() -> None:
    found = lines(samples.NO_ROOM, H200)["kv_pool_bytes"]
    assert (found.measured, found.error_fraction) == (0, None)
    assert found.predicted
    assert sum(part.effect for part in found.parts) == pytest.approx(-found.predicted, rel=1e-6)


def test_a_refusal_states_the_blocks_that_were_there() -> None:
    blocks = lines(samples.STATES_REFUSED, H200)["kv_blocks"]
    assert (blocks.measured, blocks.line) == (5150, 4)
    assert error(blocks) < 0.02


def test_what_a_log_prints_itself_is_not_derived() -> None:
    log = read_log(samples.V1_H100)
    assert log is not None
    assert with_derived(log) is log
    assert len(derived(samples.ONE_REQUEST).of(Quantity.POOL)) == 1


def test_llama_cpp_has_no_pool_to_derive() -> None:
    assert lines(samples.LLAMA_CPP, LLAMA)["kv_pool_bytes"].measured == 1088 * 2**20
