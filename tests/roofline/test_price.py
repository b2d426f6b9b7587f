from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.lowering.ops import Op, OpKind
from infcalc.roofline.price import Bound, Efficiency, compute_precision, price
from tests.roofline.shapes import A100, B200, H100

amounts = st.floats(0, 1e15)
fractions = st.floats(0.01, 1)


def op(flop: float = 1e12, moved: float = 1e9, precision: str = "bf16") -> Op:
    return Op(kind=OpKind.GEMM, name="op", num_layers=1, precision=precision, flop=flop, weight_bytes=moved)


@given(flop=amounts, moved=amounts, compute=fractions, bandwidth=fractions)
def test_nothing_is_faster_than_the_hardware(flop: float, moved: float, compute: float, bandwidth: float) -> None:
    priced = price(op(flop, moved), A100, Efficiency(compute_fraction=compute, bandwidth_fraction=bandwidth))
    assert priced.time_s >= flop / 312e12
    assert priced.time_s >= moved / 2039e9
    assert priced.time_s == max(priced.compute_s, priced.memory_s)


@given(flop=amounts, moved=amounts, factor=st.floats(1, 10))
def test_time_never_rises_with_bandwidth_or_peak(flop: float, moved: float, factor: float) -> None:
    faster_memory = replace(A100, bandwidth_bytes_per_s=A100.bandwidth_bytes_per_s * factor)
    faster_units = replace(A100, peak_flop_per_s=(("bf16", 312e12 * factor),))
    before = price(op(flop, moved), A100).time_s
    assert price(op(flop, moved), faster_memory).time_s <= before
    assert price(op(flop, moved), faster_units).time_s <= before


def test_bandwidth_efficiency_changes_time_and_not_bytes() -> None:
    # github.com/cli99/llm-analysis/issues/12: 0.6 of the bandwidth is 1.67 times the time.
    ideal, real = (price(op(), A100, Efficiency(bandwidth_fraction=part)) for part in (1.0, 0.6))
    assert real.memory_s / ideal.memory_s == pytest.approx(1.667, rel=0.001)
    assert real.op.total_bytes == ideal.op.total_bytes
    assert real.compute_s == ideal.compute_s


def test_bound_is_what_takes_longer() -> None:
    ridge = 312e12 / 2039e9
    assert price(op(1.01 * ridge * 1e9, 1e9), A100).bound_by is Bound.COMPUTE
    assert price(op(0.99 * ridge * 1e9, 1e9), A100).bound_by is Bound.MEMORY


def test_all_bytes_count() -> None:
    mixed = Op(
        kind=OpKind.GEMM,
        name="op",
        num_layers=1,
        precision="bf16",
        weight_bytes=1,
        activation_bytes=20,
        kv_read_bytes=300,
        kv_write_bytes=4000,
    )
    assert price(mixed, A100).memory_s == 4321 / 2039e9


@pytest.mark.parametrize(
    ("gpu", "precision", "used", "peak"),
    [
        (A100, "fp8", "bf16", 312e12),
        (A100, "int8", "int8", 624e12),
        (H100, "fp8", "fp8", 1979e12),
        (H100, "fp4", "bf16", 989e12),
        (B200, "fp4", "fp4", 9000e12),
        (B200, "int8", "bf16", 2250e12),
        # MXFP4 weights meet 8-bit activations where there are units for both, but on AMD.
        (H100, "mxfp4", "bf16", 989e12),
        (B200, "mxfp4", "fp8", 4500e12),
        (replace(B200, vendor="AMD"), "mxfp4", "fp4", 9000e12),
        (replace(A100, peak_flop_per_s=(("fp16", 125e12), ("fp32", 15e12))), "bf16", "fp16", 125e12),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_narrow_types_compute_in_16_bit_where_the_gpu_has_no_units(
    gpu: object, precision: str, used: str, peak: float
) -> None:
    assert compute_precision(gpu, precision) == (used, peak)  # type: ignore[arg-type]


def test_a_gpu_without_any_peak_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="a100-sxm4-80gb states no peak rate"):
        compute_precision(replace(A100, peak_flop_per_s=()), "bf16")


@pytest.mark.parametrize("value", [0, -0.5, 1.01, float("nan")])
def test_efficiency_is_a_fraction(value: float) -> None:
    with pytest.raises(UsageError, match="compute efficiency"):
        Efficiency(compute_fraction=value)
    with pytest.raises(UsageError, match="bandwidth efficiency"):
        Efficiency(bandwidth_fraction=value)
