from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.memory.offload import host_tokens, link_time_s, offloaded_weights
from infcalc.memory.weights import weights_per_stage
from infcalc.spec.parallelism import Parallelism
from infcalc.units import GIB
from tests.shipped import shipped

LLAMA = shipped("llama3.1-70b")


def test_the_allowance_moves_and_at_most_one_matrix_more() -> None:
    (moved,) = offloaded_weights(LLAMA, Parallelism(), allowance_bytes=55 * GIB)
    assert moved.moved_bytes == 55 * GIB
    assert moved.high_bytes - moved.moved_bytes == 8192 * 28672 * 2


def test_embedding_and_head_stay_on_the_gpu() -> None:
    (moved,) = offloaded_weights(LLAMA, Parallelism(), allowance_bytes=1000 * GIB)
    outside = 2 * 128_256 * 8192 * 2 + 8192 * 2
    (whole,) = weights_per_stage(LLAMA, Parallelism())
    assert moved.moved_bytes == moved.high_bytes == whole - outside


@pytest.mark.parametrize("tp", [2, 8])
def test_the_allowance_is_per_gpu(tp: int) -> None:
    (moved,) = offloaded_weights(LLAMA, Parallelism(tp=tp), allowance_bytes=4 * GIB)
    assert moved.moved_bytes == 4 * GIB
    assert moved.high_bytes - moved.moved_bytes == 8192 * 28672 * 2 // tp


def test_every_stage_moves_its_own() -> None:
    stages = offloaded_weights(LLAMA, Parallelism(pp=4), allowance_bytes=4 * GIB)
    assert [stage.stage for stage in stages] == [0, 1, 2, 3]
    assert {stage.moved_bytes for stage in stages} == {4 * GIB}


@given(st.integers(0, 200 * GIB))
def test_never_more_than_there_is(allowance: int) -> None:
    (moved,) = offloaded_weights(LLAMA, Parallelism(), allowance_bytes=allowance)
    (whole,) = weights_per_stage(LLAMA, Parallelism())
    assert 0 <= moved.moved_bytes <= moved.high_bytes < whole
    assert moved.moved_bytes <= allowance


def test_a_step_waits_for_the_link() -> None:
    assert link_time_s(55 * GIB, 450e9) == pytest.approx(0.131, rel=0.01)
    assert link_time_s(55 * GIB, 55e9) == pytest.approx(1.07, rel=0.01)


def test_a_host_tier_keeps_tokens() -> None:
    assert host_tokens(64 * GIB, bytes_per_token=327_680) == 209_715
    assert host_tokens(64 * GIB, bytes_per_token=0) == 0


def test_without_an_allowance_nothing_moves() -> None:
    (stays,) = offloaded_weights(LLAMA, Parallelism(), allowance_bytes=0)
    assert (stays.moved_bytes, stays.high_bytes) == (0, 0)
