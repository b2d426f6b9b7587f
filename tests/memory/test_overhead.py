from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from infcalc.api.deployment import Ask, load
from infcalc.engines.rules import EngineRules, engine_rules
from infcalc.memory.overhead import activation_peak
from infcalc.spec.hardware import Gpu
from infcalc.spec.parallelism import Parallelism
from infcalc.units import GIB
from tests.shipped import shipped


@cache
def h100() -> Gpu:
    return load(Ask()).gpu("h100-sxm5-80gb").gpu


def rules(version: str | None = None, *, tp: int = 1) -> EngineRules:
    return engine_rules("vllm", version, h100(), tp=tp)


@pytest.mark.parametrize(("tp", "measured_gib", "rel_tol"), [(1, 0.26, 0.3), (2, 2.07, 0.2), (4, 2.15, 0.2)])
def test_buffers_outside_the_allocator(tp: int, measured_gib: float, rel_tol: float) -> None:
    # llm-d-planner accuracy report, vLLM 0.19 on H100, 2026-04-24 (UC-015).
    band = rules("0.19", tp=tp).non_torch
    assert band.value_bytes / GIB == pytest.approx(measured_gib, rel=rel_tol)
    assert band.low_bytes <= measured_gib * GIB <= band.high_bytes


@pytest.mark.parametrize(("name", "measured_gib"), [("llama3.1-8b", 1.89), ("qwen2.5-7b", 2.21)])
def test_activation_peak_of_a_start_up_log(name: str, measured_gib: float) -> None:
    # The same report (UC-066): the profiling run of 1,024 sequences, whose sampler is the peak.
    defaults = rules("0.19")
    band = activation_peak(
        shipped(name),
        Parallelism(),
        defaults,
        max_num_seqs=defaults.scheduler.max_num_seqs,
        max_num_batched_tokens=defaults.scheduler.max_num_batched_tokens,
    )
    assert defaults.scheduler.max_num_seqs == 1024
    assert band.value_bytes / GIB == pytest.approx(measured_gib, rel=0.03)
    assert band.low_bytes < band.value_bytes < band.high_bytes
    assert "sampler" in band.source


def test_the_sampler_is_not_divided_by_ranks() -> None:
    model = shipped("llama3.1-8b")
    peaks = {
        activation_peak(model, Parallelism(tp=tp), rules(), max_num_seqs=1024, max_num_batched_tokens=1).value_bytes
        for tp in (1, 2, 8)
    }
    copies, hidden = rules().sampler_logit_copies, rules().profile.sampler_hidden_copies * 2 * model.hidden_size
    assert peaks == {round(copies * 1024 * model.vocab_size * 4 + hidden)}


def test_the_forward_pass_of_a_dense_layer() -> None:
    # Llama 3 8B: (copies x 4,096 + 3 x 14,336) elements of 2 bytes per token; at TP 2 only the first stays whole.
    quiet = replace(rules(), sampler_logit_copies=0)
    copies = quiet.profile.hidden_copies
    one, two = (
        activation_peak(
            shipped("llama3-8b"), Parallelism(tp=tp), quiet, max_num_seqs=1, max_num_batched_tokens=1000
        ).value_bytes
        for tp in (1, 2)
    )
    assert one == round(2 * (copies * 4096 + 3 * 14_336) * 1000)
    assert two == round(2 * (copies * 4096 + 3 * 14_336 / 2) * 1000)


def test_the_forward_pass_of_routed_experts() -> None:
    # Mixtral 8x7B: two experts per token, each with its output and 3 x 14,336.
    quiet = replace(rules(), sampler_logit_copies=0)
    found = activation_peak(
        shipped("mixtral-8x7b"), Parallelism(), quiet, max_num_seqs=1, max_num_batched_tokens=10
    ).value_bytes
    assert found == round(2 * (quiet.profile.moe_hidden_copies * 4096 + 2 * (3 * 14_336 + 4096)) * 10)


def test_the_larger_of_sampler_and_forward_pass_counts() -> None:
    model, defaults = shipped("llama3-8b"), rules()

    def peak(max_num_seqs: int, max_num_batched_tokens: int) -> tuple[int, str]:
        band = activation_peak(
            model,
            Parallelism(),
            defaults,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        return band.value_bytes, band.source

    sampler, forward = peak(1024, 1), peak(1, 65_536)
    assert peak(1024, 65_536) == max(sampler, forward)
    assert "sampler" in sampler[1]
    assert "forward pass of 65,536 tokens" in forward[1]


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v4-flash", "qwen3-next-80b", "mamba-2.8b", "gemma-4-e2b"])
def test_every_kind_of_layer_has_an_activation(name: str) -> None:
    model = shipped(name)
    quiet = replace(rules(), sampler_logit_copies=0)
    band = activation_peak(model, Parallelism(), quiet, max_num_seqs=1, max_num_batched_tokens=1)
    assert band.value_bytes > 4 * model.hidden_size


@pytest.mark.parametrize(
    ("name", "version", "tokens", "measured_gib"),
    [
        # Un-chunked runs of engine V0, then a long one of V1: GiB printed as activation peak in start-up logs.
        ("qwen2.5-7b", "0.8.5+v0", 32_768, 4.35),
        ("qwen2.5-1.5b", "0.7+v0", 32_768, 2.02),
        ("llama3.1-8b", "0.6.4+v0", 20_000, 2.07),
        ("llama3.1-8b", "0.6.4+v0", 29_000, 2.99),
        ("llava-1.6-mistral-7b", "0.10.2", 16_384, 1.97),
    ],
)
def test_forward_passes_of_start_up_logs(name: str, version: str, tokens: int, measured_gib: float) -> None:
    band = activation_peak(
        shipped(name), Parallelism(), rules(version), max_num_seqs=256, max_num_batched_tokens=tokens
    )
    assert band.value_bytes / GIB == pytest.approx(measured_gib, rel=0.015)


@pytest.mark.parametrize(
    ("name", "measured_gib"),
    [("qwen3-0.6b", 5.56), ("llama3.1-8b", 4.76), ("gpt-oss-20b", 7.38), ("qwen3-32b", 5.64)],
)
def test_sampler_peaks_of_vllm_0_11(name: str, measured_gib: float) -> None:
    # llm-d-planner, vLLM 0.11 on H100, 1,024 sequences and 8,192 tokens.
    band = activation_peak(shipped(name), Parallelism(), rules("0.11"), max_num_seqs=1024, max_num_batched_tokens=8192)
    assert band.value_bytes / GIB == pytest.approx(measured_gib, rel=0.005)


def test_a_large_picture_fills_what_a_tower_needs() -> None:
    model = shipped("qwen3.8-27b")
    one, two = (
        activation_peak(
            model, Parallelism(tp=tp), rules("0.27"), max_num_seqs=4, max_num_batched_tokens=2048
        ).value_bytes
        / GIB
        for tp in (1, 2)
    )
    assert one == pytest.approx(1.84, rel=0.01)
    assert two == pytest.approx(1.46, rel=0.01)
    plain = activation_peak(
        model, Parallelism(), rules("0.27"), max_num_seqs=4, max_num_batched_tokens=2048, with_encoder=False
    )
    assert plain.value_bytes < GIB
