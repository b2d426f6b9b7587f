from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from infcalc.api.deployment import Ask, load
from infcalc.engines.rules import EngineRules, engine_rules
from infcalc.memory.overhead import activation_peak, cuda_graphs
from infcalc.spec.hardware import Gpu
from infcalc.spec.layers import DenseFeedForward, MoeFeedForward, RecurrentMixer
from infcalc.spec.parallelism import Parallelism
from infcalc.units import GIB, MIB
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


def forward_elements(name: str, ranks: Parallelism, here: EngineRules) -> float:
    quiet = replace(here, sampler_logit_copies=0, profile=replace(here.profile, encoder=False))
    found = activation_peak(shipped(name), ranks, quiet, max_num_seqs=1, max_num_batched_tokens=1000)
    return found.value_bytes / 2000


def test_the_forward_pass_counts_what_each_kind_of_layer_holds() -> None:
    here = rules()
    dense, routed, streams = (
        here.profile.hidden_copies,
        here.profile.moe_hidden_copies,
        here.profile.stream_copies,
    )
    # DeepSeek V3: 8 experts of 3 x 2,048 with their outputs and one shared are more than its dense layers of 18,432 and
    # twice its 128 heads of 128 + 64.
    assert forward_elements("deepseek-v3", Parallelism(), here) == routed * 7168 + 3 * 2048 + 8 * (3 * 2048 + 7168)
    # Four residual streams in fp32.
    assert forward_elements("deepseek-v4-flash", Parallelism(), here) == pytest.approx(
        routed * 4096 + 3 * 2048 + 6 * (3 * 2048 + 4096) + streams * 4 * 4096 * 2
    )
    # No gate: two inner widths.
    assert forward_elements("gpt2", Parallelism(), here) == dense * 768 + 2 * 3072
    # Twice what the projections of a recurrent layer yield, which has no feed-forward.
    (mixer,) = {run.layer.mixer for run in shipped("mamba-2.8b").layers}
    assert isinstance(mixer, RecurrentMixer)
    rows = sum(matrix.rows for matrix in mixer.matrices if matrix.columns > 1)
    assert forward_elements("mamba-2.8b", Parallelism(), here) == dense * 2560 + 2 * rows


def test_twice_what_attention_yields_where_that_is_more() -> None:
    # Narrow feed-forward: 32 query, 8 key and 8 value heads of 128.
    model = shipped("llama3-8b")
    layer = replace(model.layers[0].layer, feed_forward=DenseFeedForward(width=128))
    narrow = replace(model, layers=(replace(model.layers[0], layer=layer),))
    quiet = replace(rules(), sampler_logit_copies=0)
    whole, halved = (
        activation_peak(narrow, Parallelism(tp=tp), quiet, max_num_seqs=1, max_num_batched_tokens=1).value_bytes / 2
        for tp in (1, 2)
    )
    assert whole == pytest.approx(quiet.profile.hidden_copies * 4096 + 2 * (32 + 8 + 8) * 128, abs=0.5)
    assert halved == pytest.approx(quiet.profile.hidden_copies * 4096 + (32 + 8 + 8) * 128, abs=0.5)


def test_what_latents_are_projected_to_where_that_is_more() -> None:
    # DeepSeek V3 without its feed-forward: twice 128 heads of 128 + 64.
    model = shipped("deepseek-v3")
    layer = replace(model.layers[0].layer, feed_forward=None)
    bare = replace(model, layers=(replace(model.layers[0], layer=layer),))
    quiet = replace(rules(), sampler_logit_copies=0)
    found = activation_peak(bare, Parallelism(tp=2), quiet, max_num_seqs=1, max_num_batched_tokens=1000)
    assert found.value_bytes == round((quiet.profile.hidden_copies * 7168 + 128 * (128 + 64)) * 2000)


def test_experts_without_a_gate_hold_two_inner_widths() -> None:
    model = shipped("mixtral-8x7b")
    block = model.layers[0].layer.feed_forward
    assert isinstance(block, MoeFeedForward)
    layer = replace(model.layers[0].layer, feed_forward=replace(block, gated=False))
    plain = replace(model, layers=(replace(model.layers[0], layer=layer),))
    quiet = replace(rules(), sampler_logit_copies=0)
    found = activation_peak(plain, Parallelism(), quiet, max_num_seqs=1, max_num_batched_tokens=1000)
    assert found.value_bytes == round((quiet.profile.moe_hidden_copies * 4096 + 2 * (2 * 14_336 + 4096)) * 2000)


@pytest.mark.parametrize(
    ("ranks", "within"),
    [
        (Parallelism(tp=4), 4),
        (Parallelism(tp=4, ep=4), 1),
        (Parallelism(tp=4, dp=2, ep=2), 4),
        (Parallelism(tp=2, dp=2, ep=8), 1),
    ],
)
def test_experts_are_split_within_what_expert_parallelism_leaves(ranks: Parallelism, within: int) -> None:
    here = rules(tp=ranks.tp)
    expected = here.profile.moe_hidden_copies * 4096 + 2 * (3 * 14_336 / within + 4096)
    assert forward_elements("mixtral-8x7b", ranks, here) == expected


def test_old_versions_hold_more() -> None:
    # An all-reduce of V0 in 0.7 does not work in place: one more copy with TP.
    old = rules("0.8.5+v0", tp=2)
    assert old.profile.reduced_hidden_copies == 1
    assert forward_elements("llama3-8b", Parallelism(tp=2), old) == (4.0 + 1) * 4096 + 3 * 14_336 / 2
    assert forward_elements("llama3-8b", Parallelism(), old) == 4.0 * 4096 + 3 * 14_336
    # Partial results of quantized multiplications lay side by side before 0.3.
    first = rules("0.2.7")
    assert first.profile.split_gemm_copies == 8
    assert forward_elements("mixtral-8x7b", Parallelism(), first) == 3.3 * 4096 + 8 * 3 * 14_336


def test_the_sampler_holds_logits_beside_the_hidden_states() -> None:
    model, here = shipped("llama3-8b"), rules("0.19")
    first, last = (
        activation_peak(
            model, Parallelism(pp=2), here, max_num_seqs=1024, max_num_batched_tokens=2048, last_stage=last_stage
        ).value_bytes
        for last_stage in (False, True)
    )
    assert last == round(3.73 * 1024 * 128_256 * 4 + 1.34 * 2048 * 4096 * 2)
    assert first == round((5.2 * 4096 + 3 * 14_336) * 2048 * 2)


def test_decoder_buffers_of_tensorrt_llm_lie_beside_the_forward_pass() -> None:
    here = engine_rules("tensorrt-llm", "1.4", h100(), tp=1)
    band = activation_peak(shipped("llama3-8b"), Parallelism(), here, max_num_seqs=256, max_num_batched_tokens=1000)
    assert band.value_bytes == round(4.9 * 256 * 128_256 * 4 + (4.0 * 4096 + 3 * 14_336) * 1000 * 2)


def llama_cpp(flash: bool | None, cells: int = 8192) -> tuple[float, float, float]:
    here = engine_rules("llama.cpp", None, h100(), tp=1)
    found = activation_peak(
        shipped("llama3-8b"),
        Parallelism(),
        here,
        max_num_seqs=4,
        max_num_batched_tokens=512,
        score_cells=cells,
        flash=flash,
    )
    return found.value_bytes, found.low_bytes, found.high_bytes


def test_llama_cpp_reserves_the_logits_of_a_micro_batch_or_the_scores_of_a_layer() -> None:
    logits = (128_256 + 4096) * 512 * 4
    scores = 32 * 512 * 8192 * 4 + (2 * 4096 + 3 * 14_336) * 512 * 2
    # A log of this model says 258.5 MiB.
    assert logits == 258.5 * MIB
    assert llama_cpp(True) == (logits, round(0.8 * logits), round(1.4 * logits))
    assert llama_cpp(False) == (scores, round(0.8 * scores), round(1.4 * scores))
    # Not known: expected with flash attention, which is the default, and at most without.
    assert llama_cpp(None) == (logits, round(0.8 * logits), round(1.4 * scores))
    assert llama_cpp(False, cells=256)[0] == logits


def test_ends_of_the_activation() -> None:
    model = shipped("llama3-8b")

    def peak(version: str, tp: int = 1, seqs: int = 256) -> tuple[float, float]:
        band = activation_peak(
            model, Parallelism(tp=tp), rules(version, tp=tp), max_num_seqs=seqs, max_num_batched_tokens=2048
        )
        return band.low_bytes / band.value_bytes, band.high_bytes / band.value_bytes

    assert peak("0.19") == pytest.approx((0.85, 1.2), rel=1e-6)
    assert peak("0.28+v2") == pytest.approx((0.7, 1.5), rel=1e-6)
    # In V0 only the first rank samples: another may be as low as its forward pass.
    low, high = peak("0.6.4+v0", tp=2, seqs=1024)
    assert high == pytest.approx(1.2, rel=1e-6)
    forward = (3.1 * 4096 + 3 * 14_336 / 2) * 2048 * 2
    assert low == pytest.approx(forward / (9.56 * 1024 * 128_256 * 4 + 1.34 * 2048 * 4096 * 2), rel=1e-6)
    assert peak("0.6.4+v0", seqs=1024)[0] == pytest.approx(0.85, rel=1e-6)


def test_ends_of_the_largest_picture() -> None:
    model = shipped("qwen3.8-27b")
    picture = 1.84 * GIB

    def peak(version: str, tokens: int = 2048, tp: int = 1) -> tuple[int, int, int]:
        ranks = Parallelism(tp=tp)
        band = activation_peak(model, ranks, rules(version, tp=tp), max_num_seqs=4, max_num_batched_tokens=tokens)
        return band.low_bytes, band.value_bytes, band.high_bytes

    assert peak("0.27") == pytest.approx((0.6 * picture, picture, 1.6 * picture), rel=1e-6)
    # Until 0.12 the profile took a video.
    assert peak("0.11")[2] == pytest.approx(3.2 * picture, rel=1e-6)
    # A longer step takes larger pictures.
    assert peak("0.27", 65_536, tp=8)[1] == pytest.approx(4 * (1.08 + 0.76 / 8) * GIB, rel=1e-6)
    small = replace(model, unmodelled_parameters=399_999_999)
    plain = activation_peak(small, Parallelism(), rules("0.27"), max_num_seqs=4, max_num_batched_tokens=2048)
    large = replace(model, unmodelled_parameters=400_000_000)
    towers = activation_peak(large, Parallelism(), rules("0.27"), max_num_seqs=4, max_num_batched_tokens=2048)
    assert plain.value_bytes < 0.5 * picture < towers.value_bytes


def test_fewer_graphs_are_captured_where_few_sequences_run() -> None:
    here = rules("0.33")
    few, many = (cuda_graphs(here, max_num_seqs=number) for number in (16, 17))
    assert (few.value_bytes, many.value_bytes) == (400 * MIB, 1400 * MIB)
    assert (few.low_bytes, many.low_bytes) == (100 * MIB, 100 * MIB)
    assert many.high_bytes == round(2.4 * GIB)
    assert few.high_bytes == many.high_bytes // 2
    uncharged = cuda_graphs(rules("0.19"), max_num_seqs=256)
    assert (uncharged.low_bytes, uncharged.value_bytes, uncharged.high_bytes) == (0, 0, 0)
