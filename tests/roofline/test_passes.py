from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc import files
from infcalc.roofline.curves import GpuCurves, collective_s, curves_of
from infcalc.roofline.passes import Head, head_pass_s
from infcalc.spec.efficiency import IDEAL

CATALOG = files.load_catalog(())
HEAD = Head(num_parameters=4e8, num_layers=1, hidden_size=4096)


def curves(name: str, *, ideal: bool = False) -> GpuCurves:
    gpu = CATALOG.gpu(name).gpu
    return curves_of(gpu, IDEAL if ideal else CATALOG.efficiency(gpu))


def test_an_ideal_pass_of_one_token_reads_its_weights() -> None:
    # 0.8 GB at 3.35 TB/s.
    assert head_pass_s(HEAD, curves("h100", ideal=True), tokens=1) == pytest.approx(0.8e9 / 3.35e12, rel=1e-6)


@given(
    parameters=st.floats(1e6, 5e9),
    tokens=st.floats(1, 5000),
    ranks=st.sampled_from([1, 2, 4, 8]),
    name=st.sampled_from(["h100", "a100", "rtx-4090", "mi300x"]),
)
def test_no_pass_is_faster_than_the_roofline(parameters: float, tokens: float, ranks: int, name: str) -> None:
    gpu = CATALOG.gpu(name).gpu
    took_s = head_pass_s(replace(HEAD, num_parameters=parameters), curves(name), tokens=tokens, num_ranks=ranks)
    peak = gpu.peak("bf16") or gpu.peak("fp16")
    assert peak is not None
    read_s = 2 * parameters / ranks / gpu.bandwidth_bytes_per_s
    computed_s = 2 * parameters * tokens / ranks / peak
    assert took_s >= max(read_s, computed_s) * (1 - 1e-9)


def test_ranks_share_the_weights_and_pay_for_messages() -> None:
    alone, split = (head_pass_s(HEAD, curves("h100"), tokens=1, num_ranks=ranks) for ranks in (1, 8))
    assert alone / 8 < split < alone
    tiny = replace(HEAD, num_parameters=1e6)
    # What is too small to be shared only pays.
    assert head_pass_s(tiny, curves("h100"), tokens=1, num_ranks=8) > head_pass_s(tiny, curves("h100"), tokens=1)


def test_narrow_weights_are_read_sooner() -> None:
    narrow = head_pass_s(replace(HEAD, bits_per_element=4.5), curves("a100"), tokens=1)
    assert narrow < 0.7 * head_pass_s(HEAD, curves("a100"), tokens=1)


def test_a_layer_sends_two_messages() -> None:
    # Weights that take no time leave the messages alone: one after the mixer and one after the rest.
    tiny = replace(HEAD, num_parameters=1)
    one, two = (
        head_pass_s(replace(tiny, num_layers=number), curves("h100"), tokens=1, num_ranks=8) for number in (1, 2)
    )
    message_s = collective_s(curves("h100"), "all_reduce", num_ranks=8, message_bytes=2 * HEAD.hidden_size)
    kernels_s = head_pass_s(tiny, curves("h100"), tokens=1)
    assert one - kernels_s == pytest.approx(2 * message_s)
    assert two - one > 2 * message_s
