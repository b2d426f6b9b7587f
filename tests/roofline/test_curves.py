from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.files import load_catalog
from infcalc.lowering.ops import OpKind
from infcalc.roofline.curves import (
    EVEN_EXPERTS,
    GpuCurves,
    collective_basis,
    collective_s,
    curves_of,
    kernel_s,
    traffic_bytes,
)
from infcalc.spec.efficiency import (
    IDEAL,
    AlgorithmKind,
    Basis,
    CollectiveKind,
    Fractions,
    GpuEfficiency,
    KernelCurve,
)
from tests.roofline.shapes import A100

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = ROOT / "tests" / "published" / "operators.yaml"
ALL_TIMINGS = ROOT.parent / "shared" / "validation" / "op_measured.yaml"

MEASURED = (
    "a100-sxm4-80gb",
    "h100-sxm5-80gb",
    "h200-sxm-141gb",
    "b200-sxm-180gb",
    "gb200",
    "l40s",
    "rtx-pro-6000-blackwell-server",
    "rtx-4090",
    "a40",
    "arc-pro-b60",
)
PRECISIONS = (
    ("bf16", 16.0),
    ("bf16", 4.5),
    ("bf16", 8.0),
    ("fp8", 8.0),
    ("fp8_block", 8.0),
    ("int8", 8.0),
    ("fp4", 4.5),
    ("mxfp4", 4.25),
)

amounts = st.floats(1.0, 1e15)
tokens_of_a_step = st.floats(1.0, 1e6)


@cache
def curves(gpu: str) -> GpuCurves:
    catalog = load_catalog()
    found = catalog.gpu(gpu).gpu
    return curves_of(found, catalog.efficiency(found))


@cache
def computing_gpus() -> tuple[str, ...]:
    catalog = load_catalog()
    sixteen = {"bf16", "fp16", "tf32", "fp32"}
    return tuple(name for name in catalog.gpu_names() if sixteen & set(dict(catalog.gpu(name).gpu.peak_flop_per_s)))


kernels = st.builds(
    lambda gpu, kind, precision: curves(gpu).kernel(kind, *precision),
    st.sampled_from(computing_gpus()),
    st.sampled_from(list(OpKind)),
    st.sampled_from(PRECISIONS),
)


# Laws


@given(curve=kernels, tokens=tokens_of_a_step, flop=amounts, moved=amounts)
def test_no_kernel_is_faster_than_its_peaks(curve: KernelCurve, tokens: float, flop: float, moved: float) -> None:
    time_s = kernel_s(curve, tokens=tokens, flop=flop, num_bytes=moved)
    assert time_s >= flop / curve.peak_flop_per_s
    assert time_s >= moved / curve.bandwidth_bytes_per_s
    assert time_s >= curve.latency_s


@given(curve=kernels, tokens=tokens_of_a_step, flop=amounts, moved=amounts, factor=st.floats(1, 100))
def test_more_work_takes_no_less_time(
    curve: KernelCurve, tokens: float, flop: float, moved: float, factor: float
) -> None:
    before = kernel_s(curve, tokens=tokens, flop=flop, num_bytes=moved) * (1 - 1e-9)
    assert kernel_s(curve, tokens=tokens, flop=flop, num_bytes=moved * factor) >= before
    assert kernel_s(curve, tokens=tokens, flop=flop * factor, num_bytes=moved) >= before
    assert kernel_s(curve, tokens=tokens * factor, flop=flop * factor, num_bytes=moved * factor) >= before


@given(curve=kernels, tokens=tokens_of_a_step, flop=amounts, moved=amounts, factor=st.floats(1, 100))
def test_a_faster_part_takes_no_more_time(
    curve: KernelCurve, tokens: float, flop: float, moved: float, factor: float
) -> None:
    before = kernel_s(curve, tokens=tokens, flop=flop, num_bytes=moved) * (1 + 1e-9)
    faster = replace(curve, bandwidth_bytes_per_s=curve.bandwidth_bytes_per_s * factor)
    assert kernel_s(faster, tokens=tokens, flop=flop, num_bytes=moved) <= before
    stronger = replace(curve, peak_flop_per_s=curve.peak_flop_per_s * factor)
    assert kernel_s(stronger, tokens=tokens, flop=flop, num_bytes=moved) <= before


@given(curve=kernels, tokens=tokens_of_a_step, flop=st.floats(0, 1e15), moved=st.floats(0, 1e15))
def test_arrays_and_numbers_agree(curve: KernelCurve, tokens: float, flop: float, moved: float) -> None:
    one = kernel_s(curve, tokens=tokens, flop=flop, num_bytes=moved)
    many = kernel_s(curve, tokens=np.array([tokens, 1.0]), flop=np.array([flop, 1.0]), num_bytes=np.array([moved, 1.0]))
    assert isinstance(many, np.ndarray)
    assert many[0] == pytest.approx(one, rel=1e-9, abs=1e-30)


@given(
    gpu=st.sampled_from(computing_gpus()),
    kind=st.sampled_from(list(CollectiveKind)),
    num_ranks=st.integers(2, 72),
    message=st.floats(1, 1e10),
    factor=st.floats(1, 100),
    inter_node=st.booleans(),
)
def test_a_larger_message_takes_no_less_time(
    *, gpu: str, kind: CollectiveKind, num_ranks: int, message: float, factor: float, inter_node: bool
) -> None:
    def time_s(message_bytes: float) -> float:
        return collective_s(curves(gpu), kind, num_ranks=num_ranks, message_bytes=message_bytes, inter_node=inter_node)

    assert 0 < time_s(message) <= time_s(message * factor) * (1 + 1e-9)
    # In-switch reduction sends a buffer once; nothing sends less than its own share.
    link = curves(gpu).gpu.scale_up
    fastest = max(link.bytes_per_s if link else 0, 64e9, 100e9)
    assert time_s(message) >= message / num_ranks / fastest / 2


@given(tokens=tokens_of_a_step, flop=amounts, moved=amounts)
def test_ideal_curves_are_the_roofline(tokens: float, flop: float, moved: float) -> None:
    ideal = curves_of(A100)
    time_s = kernel_s(ideal.kernel(OpKind.GEMM), tokens=tokens, flop=flop, num_bytes=moved)
    assert time_s == max(flop / 312e12, moved / 2039e9)
    assert collective_s(ideal, "all_reduce", num_ranks=8, message_bytes=moved) == 0
    assert ideal.is_ideal
    assert curves_of(A100, IDEAL).kernel(OpKind.MOE, "fp4", 4).peak_flop_per_s == 312e12


def test_experts_of_even_routing_have_curves_of_their_own_where_they_were_timed() -> None:
    here = curves("h200")
    even, skewed = (here.kernel(kind, "bf16", 16) for kind in (EVEN_EXPERTS, OpKind.MOE))
    work = {"tokens": 128.0, "flop": 6 * 1024 * 4096 * 14_336.0, "num_bytes": 8 * 3 * 4096 * 14_336 * 2.0}
    assert kernel_s(even, **work) < 0.9 * kernel_s(skewed, **work)
    # 4-bit weights were timed with many experts only; a part without such tables has the one curve for both.
    assert here.kernel(EVEN_EXPERTS, "bf16", 4).latency_s == here.kernel(OpKind.MOE, "bf16", 4).latency_s
    assert here.kernel(EVEN_EXPERTS, "bf16", 4).basis is Basis.MODELLED
    assert curves("mi300x").kernel(EVEN_EXPERTS) == curves("mi300x").kernel(OpKind.MOE)


def test_nothing_to_do_takes_the_fixed_time_alone() -> None:
    curve = curves("h100").kernel("gemm")
    assert kernel_s(curve, tokens=0, flop=0, num_bytes=0) == curve.latency_s


def test_one_rank_exchanges_nothing() -> None:
    assert collective_s(curves("h100"), "all_reduce", num_ranks=1, message_bytes=1e6) == 0


# Curves of fractions


@pytest.mark.parametrize(
    ("knots", "fractions"),
    [((), ()), ((0.0,), (0.0,)), ((0.0,), (1.01,)), ((1.0, 0.0), (0.5, 0.5)), ((0.0, 1.0), (0.1, 0.9)), ((0.0,), ())],
)
def test_curves_against_physics_are_refused(knots: tuple[float, ...], fractions: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="efficiency curve"):
        Fractions(knots=knots, fractions=fractions)


def test_fractions_are_linear_between_their_points_and_constant_outside() -> None:
    curve = KernelCurve(
        peak_flop_per_s=1.0,
        bandwidth_bytes_per_s=1.0,
        compute_fraction=Fractions(knots=(4.0, 6.0), fractions=(0.5, 0.7)),
    )
    expected = {1: 0.5, 16: 0.5, 32: 0.6, 64: 0.7, 4096: 0.7}
    for tokens, fraction in expected.items():
        assert kernel_s(curve, tokens=tokens, flop=1.0, num_bytes=0.0) == pytest.approx(1 / fraction)


def test_the_smooth_maximum_exceeds_the_plain_one_most_where_both_are_equal() -> None:
    curve = KernelCurve(peak_flop_per_s=1.0, bandwidth_bytes_per_s=1.0, sharpness=2.0)
    assert kernel_s(curve, tokens=1, flop=1.0, num_bytes=1.0) == pytest.approx(math.sqrt(2))
    assert kernel_s(curve, tokens=1, flop=1.0, num_bytes=1e-3) == pytest.approx(1, rel=1e-5)


# Choice of curves


def test_weight_only_types_compute_in_16_bit_and_narrow_ones_need_units() -> None:
    hopper, ampere, blackwell = (curves(name) for name in ("h100", "a100", "b200"))
    assert hopper.kernel("gemm", "bf16", 4.5).peak_flop_per_s == hopper.kernel("gemm").peak_flop_per_s
    assert hopper.kernel("gemm", "fp4", 4.25).peak_flop_per_s == hopper.kernel("gemm").peak_flop_per_s
    assert ampere.kernel("gemm", "fp8", 8).peak_flop_per_s == 312e12
    assert ampere.kernel("gemm", "int8", 8).peak_flop_per_s == 624e12
    assert hopper.kernel("gemm", "fp8_block", 8).peak_flop_per_s == hopper.kernel("gemm", "fp8", 8).peak_flop_per_s
    assert blackwell.kernel("gemm", "fp4", 4.5).peak_flop_per_s > 3.5 * blackwell.kernel("gemm").peak_flop_per_s
    assert ampere.kernel("gemm", "fp8", 8).compute_fraction == ampere.kernel("gemm", "bf16", 8).compute_fraction


def test_every_curve_says_what_it_rests_on() -> None:
    assert curves("h100").kernel("gemm").basis is Basis.CALIBRATED
    assert curves("h100").kernel("lm_head").basis is Basis.CALIBRATED
    assert curves("h100").kernel("gemm", "bf16", 4).basis is Basis.MODELLED  # as on H200
    assert curves("h100").kernel("moe", "fp8", 8).basis is Basis.MODELLED  # the block-scaled kernels
    assert curves("l40s").kernel("moe").basis is Basis.MODELLED
    assert curves("h100").kernel("norm").basis is Basis.UNCALIBRATED
    assert curves("h20").kernel("gemm").basis is Basis.UNCALIBRATED
    assert curves("mi300x").kernel("gemm", "fp8", 8).basis is Basis.UNCALIBRATED
    assert collective_basis(curves("h100"), "all_reduce") is Basis.CALIBRATED
    assert collective_basis(curves("h100"), "all_reduce", inter_node=True) is Basis.MODELLED
    assert collective_basis(curves("h800"), "all_reduce") is Basis.UNCALIBRATED
    assert collective_basis(curves("mi300x"), "all_reduce") is Basis.UNCALIBRATED
    assert curves_of(A100).kernel("gemm").basis is Basis.CALIBRATED


def test_relatives_share_fractions_and_keep_their_own_peaks() -> None:
    parent, child = curves("h200").kernel("gemm"), curves("h20").kernel("gemm")
    assert child.compute_fraction == parent.compute_fraction
    assert child.peak_flop_per_s < parent.peak_flop_per_s / 6


@pytest.mark.parametrize("gpu", MEASURED)
def test_measured_parts_are_calibrated(gpu: str) -> None:
    assert curves(gpu).kernel("gemm").basis is Basis.CALIBRATED
    assert gpu in curves(gpu).efficiency.measured_on


def test_every_accelerator_with_a_peak_has_every_curve() -> None:
    for gpu in computing_gpus():
        for kind in OpKind:
            for precision in PRECISIONS:
                assert curves(gpu).kernel(kind, *precision).latency_s > 0


def test_an_efficiency_without_a_kind_says_what_to_state() -> None:
    with pytest.raises(UsageError, match=r"mine states no efficiency of moe kernels(.|\n)*kernels\.moe"):
        curves_of(A100, GpuEfficiency(name="mine")).kernel("moe")


# Collectives


@pytest.mark.parametrize(
    ("gpu", "library", "num_ranks", "message_bytes", "measured_us"),
    [
        # NVIDIA ai-dynamo/aiconfigurator @095f58a5, read 2026-11-29; rounded.
        ("a100", "vllm", 8, 2**16, 8.4),
        ("a100", "nccl", 8, 2**26, 595),
        ("h100", "vllm", 2, 2**16, 4.5),
        ("h100", "vllm", 4, 2**20, 13),
        ("h100", "vllm", 8, 2**20, 15),
        ("h100", "vllm", 8, 2**22, 31),
        ("h100", "tensorrt-llm", 8, 2**16, 4.6),
        ("h100", "nccl", 4, 2**26, 330),
        ("b200", "vllm", 8, 2**24, 63),
        ("b200", "nccl", 8, 2**26, 278),
    ],
)
def test_all_reduces_are_near_what_was_measured(
    *, gpu: str, library: str, num_ranks: int, message_bytes: int, measured_us: float
) -> None:
    found = collective_s(curves(gpu), "all_reduce", num_ranks=num_ranks, message_bytes=message_bytes, library=library)
    assert found * 1e6 == pytest.approx(measured_us, rel=0.25)


def test_ranks_between_and_beyond_measured_ones() -> None:
    def time_s(num_ranks: int, message_bytes: float = 2**20) -> float:
        return collective_s(curves("h100"), "all_reduce", num_ranks=num_ranks, message_bytes=message_bytes)

    assert time_s(4) < time_s(6) < time_s(8) < time_s(16)


def test_bridges_join_two_and_pcie_the_rest() -> None:
    def time_s(gpu: str, num_ranks: int) -> float:
        return collective_s(curves(gpu), "all_reduce", num_ranks=num_ranks, message_bytes=2**24)

    # H100 NVL has an NVLink bridge for two; H100 PCIe has it as an option, which is not counted on.
    assert time_s("h100-nvl-94gb", 2) < 0.2 * time_s("h100-pcie-80gb", 2)
    assert time_s("h100-nvl-94gb", 8) == pytest.approx(time_s("h100-pcie-80gb", 8))
    # H800 has 200 GB/s of the 450.
    assert time_s("h800", 8) == pytest.approx(time_s("h100", 8) * 450 / 200, rel=0.1)


def test_more_ranks_over_pcie_are_slower_than_two_but_not_as_the_one_timed_machine_has_it() -> None:
    # hardware_effects: 222 us for two ranks, 1235 and 5149 for 4 and 8 of a machine whose ranks cross sockets.
    two, four, eight = (
        collective_s(curves("l40s"), "all_reduce", num_ranks=ranks, message_bytes=2**22) for ranks in (2, 4, 8)
    )
    assert two < four < eight < 0.2 * 5149e-6
    assert four == pytest.approx(two * (3 / 2) / 0.7, rel=0.1)


def test_networks_are_slower_than_links() -> None:
    for kind in CollectiveKind:
        inside = collective_s(curves("h100"), kind, num_ranks=8, message_bytes=2**24)
        across = collective_s(curves("h100"), kind, num_ranks=16, message_bytes=2**24, inter_node=True)
        assert across > inside, kind


def test_deepep_dispatch_across_machines() -> None:
    # aiconfigurator, H200, hidden 7168, top 8, 128 tokens per rank, dispatch in fp8: 2 machines 102 us, 4 143, 8 167.
    message = 128 * 8 * 7168 * (1 + 4 / 128)
    for machines, measured_us in ((2, 102), (4, 143), (8, 167)):
        found = collective_s(
            curves("h200"), "all_to_all", num_ranks=8 * machines, message_bytes=message, inter_node=True
        )
        assert found * 1e6 == pytest.approx(measured_us, rel=0.2)


def test_traffic_of_each_algorithm() -> None:
    assert [traffic_bytes(kind, 4, 100.0) for kind in AlgorithmKind] == [300, 150, 75, 100]


# Measured operators that were not fitted: other engine versions


def predicted_s(row: dict[str, Any]) -> float:
    found = curves(row["gpu"])
    match row["op"]:
        case "gemm":
            precision = {"bf16": ("bf16", 16.0), "fp8": ("fp8", 8.0), "fp4": ("fp4", 4.5), "int4": ("bf16", 4.125)}
            name, bits = precision[row["precision"]]
            m, n, k = (float(row[key]) for key in ("m", "n", "k"))
            return kernel_s(
                found.kernel("gemm", name, bits),
                tokens=m,
                flop=2 * m * n * k,
                num_bytes=n * k * bits / 8 + 2 * m * (n + k),
            )
        case "attention_decode":
            batch, context, width = float(row["batch"]), float(row["tokens"]), float(row["kv_bits"]) / 8
            num_bytes = batch * (2 * 8 * 128 * context * width + 4 * 32 * 128)
            curve = found.kernel("attention_decode", "bf16", row["kv_bits"])
            return kernel_s(curve, tokens=batch * 8, flop=4 * batch * 32 * 128 * context, num_bytes=num_bytes)
        case "attention_prefill":
            batch, new = float(row["batch"]), float(row["tokens"])
            flop, num_bytes = 2 * batch * 32 * 128 * new * (new + 1), batch * new * 128 * (4 * 32 + 8 * 8)
            return kernel_s(found.kernel("attention_prefill"), tokens=new, flop=flop, num_bytes=num_bytes)
        case _:
            return collective_s(
                found,
                row["op"],
                num_ranks=row["ranks"],
                message_bytes=float(row["bytes"]),
                library=row.get("library"),
            )


@pytest.mark.parametrize("row", yaml.safe_load(OPERATORS.read_text("utf-8"))["operators"], ids=lambda row: row["id"])
def test_operators_that_were_not_fitted_are_predicted(row: dict[str, Any]) -> None:
    assert predicted_s(row) == pytest.approx(row["measured_us"] * 1e-6, rel=row["rel_tol"])


@pytest.mark.skipif(not ALL_TIMINGS.exists(), reason="the collection of operator timings is not in the repository")
@pytest.mark.parametrize(
    ("op", "dtype", "most"),
    [
        ("gemm", "bfloat16", 0.06),
        ("gemm", "fp8", 0.2),
        ("gemm", "int4_wo", 0.1),
        ("attn_decode", "bfloat16", 0.12),
        ("attn_prefill", "bf16", 0.25),
    ],
)
def test_the_median_operator_is_near(op: str, dtype: str, most: float) -> None:
    titles = {
        "NVIDIA A100 SXM 80GB": "a100-sxm4-80gb",
        "NVIDIA H100 SXM": "h100-sxm5-80gb",
        "NVIDIA H200 SXM": "h200-sxm-141gb",
        "NVIDIA B200 SXM": "b200-sxm-180gb",
        "NVIDIA L40S": "l40s",
    }
    names = {"gemm": "gemm", "attn_decode": "attention_decode", "attn_prefill": "attention_prefill"}
    short = {"bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8", "int4_wo": "int4"}
    errors = []
    for row in yaml.safe_load(ALL_TIMINGS.read_text("utf-8"))["rows"]:
        if row["op"] == op and row["gpu"] in titles and row["dtype"] == dtype:
            given_row = row | {
                "op": names[op],
                "gpu": titles[row["gpu"]],
                "precision": short[dtype],
                "kv_bits": 16,
                "tokens": row.get("seq"),
            }
            errors.append(abs(predicted_s(given_row) / (row["us"] * 1e-6) - 1))
    assert len(errors) >= 9
    assert median(errors) <= most


def test_single_steps_need_no_numpy() -> None:
    script = (
        "import sys; from infcalc.files import load_catalog; from infcalc.roofline.curves import *;"
        "c = load_catalog(); g = c.gpu('h100').gpu; k = curves_of(g, c.efficiency(g));"
        "kernel_s(k.kernel('gemm'), tokens=1, flop=1e9, num_bytes=1e6);"
        "collective_s(k, 'all_reduce', num_ranks=8, message_bytes=1e6);"
        "print(sorted({'numpy', 'yaml'} & set(sys.modules)))"
    )
    load_catalog()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
