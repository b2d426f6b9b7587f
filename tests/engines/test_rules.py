from dataclasses import replace

import pytest

from infcalc.engines.rules import FractionBase, Since, at_version, engine_rules, non_torch, parse_version
from infcalc.engines.vllm import NEWEST
from infcalc.errors import UnknownName, UsageError
from infcalc.spec.hardware import Gpu, Link
from infcalc.units import GIB

A100 = Gpu(
    name="a100-sxm4-80gb",
    title="A100",
    vendor="NVIDIA",
    architecture="Ampere GA100",
    memory_bytes=80 * GIB,
    cuda_total_bytes=int(79.15 * GIB),
    bandwidth_bytes_per_s=2039e9,
    peak_flop_per_s=(("bf16", 312e12),),
    compute_capability="8.0",
    scale_up=Link(name="NVLink3", bytes_per_s=300e9, max_domain=8),
)
H100 = replace(A100, name="h100-sxm5-80gb", compute_capability="9.0")


@pytest.mark.parametrize(("version", "fraction"), [("0.8.5", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92), (NEWEST, 0.92)])
def test_vllm_default_fraction_moved_at_0_20(version: str, fraction: float) -> None:
    assert engine_rules("vllm", version, A100, tp=4).fraction == fraction


@pytest.mark.parametrize(("version", "charged"), [("0.19.1", False), ("0.20", True), (None, True)])
def test_vllm_charges_cuda_graphs_from_0_20(version: str | None, charged: bool) -> None:
    assert (engine_rules("vllm", version, A100, tp=1).cuda_graph_bytes > 0) is charged


def test_vllm_scheduler_tiers_leave_the_a100_out_of_the_large_one() -> None:
    assert engine_rules("vllm", None, A100, tp=1).scheduler.max_num_seqs == 256
    assert engine_rules("vllm", "0.8.5", A100, tp=1).scheduler.max_num_seqs == 1024
    h100 = engine_rules("vllm", None, H100, tp=1).scheduler
    assert (h100.max_num_seqs, h100.max_num_batched_tokens) == (1024, 8192)
    b200 = replace(H100, name="b200", cuda_total_bytes=int(178.4 * GIB))
    assert engine_rules("vllm", None, b200, tp=1).scheduler.max_num_batched_tokens == 16384
    assert engine_rules("vllm", "0.26", b200, tp=1).scheduler.max_num_batched_tokens == 8192


def test_sampler_copies_follow_the_version() -> None:
    assert engine_rules("vllm", "0.11.0", H100, tp=1).sampler_logit_copies == 9.56
    assert engine_rules("vllm", "0.16", H100, tp=1).sampler_logit_copies == 9.56
    assert engine_rules("vllm", "0.19.0", H100, tp=1).sampler_logit_copies == 3.73
    assert engine_rules("vllm", "0.19.0", A100, tp=1).sampler_logit_copies == 3.73


def test_the_four_fractions_are_not_the_same_thing() -> None:
    bases = {
        name: engine_rules(name, None, A100, tp=1).fraction_base for name in ("vllm", "sglang", "trtllm", "llama.cpp")
    }
    assert bases == {
        "vllm": FractionBase.TOTAL,
        "sglang": FractionBase.FREE_BEFORE_WEIGHTS,
        "trtllm": FractionBase.FREE_AFTER_WEIGHTS,
        "llama.cpp": FractionBase.NONE,
    }
    assert engine_rules("llama.cpp", None, A100, tp=1).fraction is None


def test_sglang_derives_its_fraction_from_chunk_and_graphs() -> None:
    # SGLang 0.5.23, MiB: 512 + 1.5 x 8192 + 1024 / 8 + 2 x 256 + 400 reserved; logs of 80 GB cards show 0.831 to 0.88.
    assert engine_rules("sglang", None, A100, tp=1).fraction == pytest.approx(0.83, abs=0.002)
    narrow, wide = (engine_rules("sglang", None, A100, tp=tp).fraction for tp in (1, 8))
    assert narrow is not None
    assert wide is not None
    assert wide < narrow


def test_buffers_outside_the_allocator_by_ranks_and_link() -> None:
    # llm-d-planner report, vLLM 0.19 on H100 (UC-015): 0.26 GiB at TP 1, 2.07 at TP 2, 2.15 at TP 4.
    assert non_torch(H100, tp=1).value_bytes / GIB == pytest.approx(0.26, rel=0.3)
    assert non_torch(H100, tp=2).value_bytes / GIB == pytest.approx(2.07, rel=0.2)
    assert non_torch(H100, tp=4).value_bytes / GIB == pytest.approx(2.15, rel=0.2)
    assert non_torch(replace(A100, scale_up=None), tp=2).value_bytes < GIB


@pytest.mark.parametrize("text", ["", "latest", "v", "-1", "1" * 9])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a version"):
        parse_version(text)


def test_an_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(UnknownName) as unknown:
        engine_rules("vlm", None, A100, tp=1)
    assert unknown.value.exit_code == 5
    assert "vllm" in str(unknown.value)


def test_steps_hold_from_their_version_on() -> None:
    steps = (Since(version=(0,), value="old", source=""), Since(version=(0, 20), value="new", source=""))
    assert [at_version(steps, version).value for version in ((0, 19, 9), (0, 20), (1,))] == ["old", "new", "new"]


def test_engine_v1_needs_ampere() -> None:
    v100 = replace(A100, name="v100-sxm2-32gb", compute_capability="7.0")
    assert engine_rules("vllm", "0.8.5", v100, tp=1).generation == "v0"
    assert engine_rules("vllm", "0.11", v100, tp=1).generation == "v1"
    assert engine_rules("vllm", "0.8.5", A100, tp=1).generation == "v1"
    assert engine_rules("vllm", "0.7.3", A100, tp=1).generation == "v0"
    assert engine_rules("vllm", "0.9+v0", A100, tp=1).generation == "v0"


def test_graphs_are_charged_by_v1_and_not_by_runner_v2() -> None:
    one, two = (engine_rules("vllm", version, A100, tp=1).cuda_graph_bytes for version in ("0.28", "0.28+v2"))
    assert one > two == 0
