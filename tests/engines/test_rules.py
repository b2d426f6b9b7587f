from dataclasses import replace

import pytest

from infcalc.engines.rules import (
    ENGINES,
    FractionBase,
    Served,
    Since,
    at_version,
    engine_rules,
    parse_version,
)
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
H100 = replace(A100, name="h100-sxm5-80gb", title="H100", compute_capability="9.0")


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
    def buffers_gib(gpu: Gpu, tp: int) -> float:
        return engine_rules("vllm", "0.19", gpu, tp=tp).non_torch.value_bytes / GIB

    assert buffers_gib(H100, 1) == pytest.approx(0.26, rel=0.3)
    assert buffers_gib(H100, 2) == pytest.approx(2.07, rel=0.2)
    assert buffers_gib(H100, 4) == pytest.approx(2.15, rel=0.2)
    assert buffers_gib(replace(A100, scale_up=None), 2) < 1


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


@pytest.mark.parametrize(
    ("gib", "version", "expected"),
    [
        (69, "0.33", (256, 2048)),
        (71, "0.33", (1024, 8192)),
        (71, "0.7", (256, 2048)),
        (161, "0.29", (1024, 8192)),
        (161, "0.30", (1024, 16384)),
    ],
)
def test_vllm_scheduler_defaults_by_memory_and_version(gib: int, version: str, expected: tuple[int, int]) -> None:
    gpu = replace(H100, cuda_total_bytes=gib * GIB)
    defaults = engine_rules("vllm", version, gpu, tp=1).scheduler
    assert (defaults.max_num_seqs, defaults.max_num_batched_tokens) == expected


@pytest.mark.parametrize(("version", "large"), [("0.11.1", True), ("0.11.2", False)])
def test_vllm_took_the_a100_out_of_the_large_tier_at_0_11_2(version: str, large: bool) -> None:
    assert (engine_rules("vllm", version, A100, tp=1).scheduler.max_num_seqs == 1024) is large


@pytest.mark.parametrize(
    ("gib", "tp", "chunk", "reserved_mib"),
    [
        # 512 + 1.5 x chunk + 128 x TP + 2 x largest graph + 400, SGLang 0.5.23.
        (16, 1, 2048, 512 + 3072 + 128 + 16 + 400),
        (24, 1, 4096, 512 + 6144 + 128 + 96 + 400),
        (24, 4, 4096, 512 + 6144 + 512 + 320 + 400),
        (48, 1, 4096, 512 + 6144 + 128 + 64 + 400),
        (80, 4, 8192, 512 + 12288 + 512 + 1024 + 400),
        (180, 1, 16384, 512 + 24576 + 128 + 1024 + 400),
    ],
)
def test_sglang_reserves_by_tier(gib: int, tp: int, chunk: int, reserved_mib: int) -> None:
    found = engine_rules("sglang", None, replace(H100, cuda_total_bytes=gib * GIB), tp=tp)
    assert found.scheduler.max_num_batched_tokens == chunk
    assert found.fraction == round(1 - reserved_mib / 1024 / gib, 3)


def test_sglang_reserves_more_for_attention_data_parallelism() -> None:
    plain = engine_rules("sglang", None, H100, tp=4).fraction
    spread = engine_rules("sglang", None, H100, tp=4, dp=2).fraction
    assert plain is not None
    assert spread is not None
    assert (plain - spread) * 79.15 * 1024 == pytest.approx(3 * 512 * 2 * 1.5, abs=0.001 * 80 * 1024)


def test_block_sizes_and_caps_of_the_other_engines() -> None:
    trt, llama = (engine_rules(name, None, H100, tp=1) for name in ("tensorrt-llm", "llama.cpp"))
    assert (trt.block_tokens, trt.scheduler.max_num_seqs, trt.scheduler.max_num_batched_tokens) == (32, 2048, 8192)
    assert (llama.block_tokens, llama.scheduler.max_num_seqs, llama.scheduler.max_num_batched_tokens) == (256, 4, 512)


def test_buffers_by_vendor_and_memory() -> None:
    # llama.cpp copies between GPUs without a communication library.
    one, four = (engine_rules("llama.cpp", None, A100, tp=tp).non_torch for tp in (1, 4))
    assert one == four
    assert one.value_bytes == 0.25 * GIB
    rocm, unified = (
        engine_rules("llama.cpp", None, gpu, tp=1).non_torch.value_bytes
        for gpu in (replace(A100, vendor="AMD"), replace(A100, unified_memory=True))
    )
    assert (rocm, unified) == (round(0.55 * GIB), 2 * GIB)
    wide = engine_rules("vllm", None, A100, tp=8).non_torch
    assert engine_rules("vllm", None, A100, tp=1, dp=8, served=Served(experts=True)).non_torch == wide
    assert engine_rules("vllm", None, A100, tp=1, pp=4).non_torch == engine_rules("vllm", None, A100, tp=1).non_torch


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_attention_ranks_of_a_model_without_experts_have_no_buffers_for_each_other(engine: str) -> None:
    alone = engine_rules(engine, None, A100, tp=1).non_torch
    assert engine_rules(engine, None, A100, tp=1, dp=8).non_torch == alone
    assert engine_rules(engine, None, A100, tp=1, dp=8, served=Served(experts=True)).non_torch != alone


@pytest.mark.parametrize("on", [A100, H100])
def test_buffers_grow_up_to_the_ranks_that_were_measured(on: Gpu) -> None:
    eight, more = (engine_rules("vllm", "0.11", on, tp=tp).non_torch for tp in (8, 64))
    four = engine_rules("vllm", "0.11", on, tp=4).non_torch
    assert four.value_bytes < eight.value_bytes
    ends = ((one.value_bytes, one.low_bytes, one.high_bytes) for one in (eight, more))
    assert len(set(ends)) == 1
    assert "of 64 ranks taken as of 8" in more.source
    assert "taken as of" not in eight.source


@pytest.mark.parametrize("measured_gib", [0.54, 0.55, 1.38])
def test_buffers_of_two_hopper_gpus_up_to_0_11_lie_in_their_band(measured_gib: float) -> None:
    found = engine_rules("vllm", "0.11.0", H100, tp=2).non_torch
    assert found.low_bytes <= measured_gib * GIB <= found.high_bytes


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


def test_windows_keep_what_all_batches_at_work_may_add() -> None:
    def steps(version: str, pp: int) -> int:
        return engine_rules("vllm", version, A100, tp=1, pp=pp).in_flight_steps

    assert [steps("0.19.1", pp) for pp in (1, 4)] == [1, 1]
    assert [steps("0.33", pp) for pp in (1, 2, 4)] == [2, 2, 4]
    assert [steps("0.33+v2", pp) for pp in (1, 2, 4)] == [2, 3, 5]


def test_a_bridge_bought_apart_is_taken_to_be_absent() -> None:
    link = Link(name="NVLink3 bridge", bytes_per_s=56.25e9, max_domain=2)
    with_bridge = replace(A100, compute_capability="8.6", scale_up=link)
    without = replace(with_bridge, scale_up=replace(link, optional=True))
    one, two = (engine_rules("vllm", "0.24", gpu, tp=2).non_torch.value_bytes for gpu in (with_bridge, without))
    assert two < one
    assert two == engine_rules("vllm", "0.24", replace(without, scale_up=None), tp=2).non_torch.value_bytes


def test_a_gpu_that_shares_its_hosts_memory_is_a_machine_of_its_own() -> None:
    assert A100.max_per_machine == 8
    assert replace(A100, unified_memory=True).max_per_machine == 1


@pytest.mark.parametrize(
    ("capability", "version", "served", "tokens"),
    [
        ("9.0", "0.33", Served(latent=True), 64),
        ("9.0", "0.7.3", Served(latent=True), 16),
        ("9.0", "0.9", Served(latent=True), 64),
        ("10.0", "0.33", Served(latent=True), 128),
        ("12.0", "0.33", Served(latent=True), 16),
        ("8.0", "0.33", Served(latent=True), 16),
        ("8.0", "0.33", Served(compressed=True), 256),
        ("9.0", "0.33", Served(compressed=True), 256),
        ("9.0", "0.33", Served(), 16),
    ],
)
def test_attention_backends_demand_their_blocks(capability: str, version: str, served: Served, tokens: int) -> None:
    # vLLM 0.33: 16 unless the backend demands another (FlashMLA 64, CUTLASS-MLA 128, DeepSeek-V4 sparse 256).
    on = replace(H100, compute_capability=capability)
    assert engine_rules("vllm", version, on, tp=8, served=served).block_tokens == tokens


def test_sglang_leaves_more_for_prefill_graphs_of_latents_and_for_towers() -> None:
    # SGLang 0.5.23: 1,536 MiB for graphs of prefill with MLA, 400 else; a vision model keeps 0.95 of the fraction.
    on = replace(H100, cuda_total_bytes=48 * GIB)
    plain, latent, towers = (
        engine_rules("sglang", None, on, tp=1, served=served).fraction or 0.0
        for served in (Served(), Served(latent=True), Served(multimodal=True))
    )
    assert plain - latent == pytest.approx((1536 - 400) / 1024 / 48, abs=0.001)
    assert towers == pytest.approx(0.95 * plain)


@pytest.mark.parametrize(
    ("capability", "vendor", "version", "may_sort"),
    [
        ("8.9", "NVIDIA", "0.17", True),
        ("8.9", "NVIDIA", "0.25", True),
        ("8.9", "NVIDIA", "0.26", False),
        ("8.9", "NVIDIA", "0.16", False),
        ("9.0", "NVIDIA", "0.19", False),
        ("8.0", "NVIDIA", "0.19", False),
        ("gfx942", "AMD", "0.19", False),
        ("8.9", "NVIDIA", "0.19+v2", False),
    ],
)
def test_where_no_log_tells_the_sampler_may_still_sort(
    capability: str, vendor: str, version: str, *, may_sort: bool
) -> None:
    on = replace(H100, compute_capability=capability, vendor=vendor)
    found = engine_rules("vllm", version, on, tp=1)
    assert (found.sampler_high_logit_copies == 9.56) is may_sort
    assert bool(found.sampler_high_source) is may_sort


def test_only_vllm_and_llama_cpp_check_a_length_at_their_start() -> None:
    checks = {name: engine_rules(name, None, H100, tp=1).checks_longest for name in ENGINES}
    assert checks == {"vllm": True, "sglang": False, "tensorrt-llm": False, "llama.cpp": True}


def test_buffers_before_hopper_and_of_v0_on_hopper_are_told_apart() -> None:
    early, first = (
        engine_rules("vllm", version, on, tp=2).non_torch for version, on in (("0.33", A100), ("0.6.5", H100))
    )
    assert "V0 on Hopper" not in early.source
    assert early.high_bytes < 3.58 * GIB < first.high_bytes
    assert engine_rules("vllm", "0.8+v0", A100, tp=2).non_torch == early
