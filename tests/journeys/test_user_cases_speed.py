"""Numbers that users asked about in public on speed, mixtures of experts, parallelism and sanity, each with its source.

What the package answers outside the tolerance is marked in the file with the reason: it is the clock's to mend, never
the tolerance's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.drafting import DraftAsk, speculate
from infcalc.api.filling import memory
from infcalc.api.floors import FloorClock
from infcalc.api.offer import Offer
from infcalc.api.sizing import kv
from infcalc.api.speed import SpeedResult, estimate
from infcalc.errors import InfcalcError
from infcalc.lowering.ops import Decode, StepShape, operations
from infcalc.lowering.work import experts_touched
from infcalc.roofline.price import Efficiency
from infcalc.roofline.step import step_time
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import MoeFeedForward
from infcalc.speculation.priced import SpeculationRow
from infcalc.units import GIB
from tests.journeys.published import assert_holds, assert_unchanged, cases_of, checks_of
from tests.journeys.simulated_cases import closed_loop_over_solo, gain_of_hits, past_the_cache

PUBLISHED = Path(__file__).parents[1] / "published" / "user_cases_speed.yaml"
OTHERS = tuple(PUBLISHED.with_name(f"user_cases{room}.yaml") for room in ("", "_memory", "_disaggregation", "_plan"))
FEATURES = {"latency", "throughput", "moe", "parallel", "sanity", "spec"}
BF16 = KV_FORMATS["bf16"]

Figures = dict[str, float | bool | str]
ANSWERS: dict[str, Callable[[Path], Figures]] = {}
Answer = Callable[[Path], Figures]


def answers(case: str) -> Callable[[Answer], Answer]:
    def remember(function: Answer) -> Answer:
        ANSWERS[case] = function
        return function

    return remember


def fast(model: str, gpu: str, offer: Offer, **asked: Any) -> SpeedResult:  # noqa: ANN401 - fields of Ask
    """Return how fast a model is on one kind of GPU."""
    return estimate(Ask(models=(model,), gpus=(gpu,), **asked), offer).result


def user(result: SpeedResult) -> float:
    """Return the tokens per second of one user."""
    assert result.output_tokens_per_s_per_user is not None
    return result.output_tokens_per_s_per_user.value


def tokens(result: SpeedResult) -> float:
    """Return the tokens per second of all."""
    assert result.output_tokens_per_s is not None
    return result.output_tokens_per_s.value


def first_ms(result: SpeedResult) -> float:
    """Return the time to first token in milliseconds."""
    assert result.ttft_s is not None
    return result.ttft_s.value * 1e3


def each_ms(result: SpeedResult) -> float:
    """Return the time per token in milliseconds."""
    assert result.tpot_s is not None
    return result.tpot_s.value * 1e3


def alone(prompt: int, answer: int) -> Offer:
    return Offer(batch=1, input_tokens=prompt, output_tokens=answer)


@answers("UC-030")
def _one_node_is_enough(_: Path) -> Figures:
    offer = Offer(concurrency=100, input_tokens=1024, output_tokens=1024)
    for nodes in range(1, 12):
        found = fast("nemotron-3-ultra-550b", "h200", offer, weights="fp8", tp=8, pp=nodes)
        if found.fits and found.max_batch >= 100:
            return {"nodes": nodes}
    return {"nodes": 12}


@answers("UC-032")
def _few_active_experts_on_a_card_that_the_catalog_lacks(place: Path) -> Figures:
    overlay = place / "card.yaml"
    card = {
        "title": "AMD Radeon RX 6900 XT",
        "vendor": "AMD",
        "architecture": "RDNA2",
        "memory": "16 GiB",
        "bandwidth": "512 GB/s",
        "bf16": "46 TFLOPS",
        "source": "the case",
        "date": "2026-11-29",
    }
    overlay.write_text(yaml.safe_dump({"gpus": {"rx-6900-xt": card}}), encoding="utf-8")
    asked: dict[str, Any] = {"engine": "llama.cpp", "weights": "q2_k", "num_gpus": 1, "catalogs": (str(overlay),)}
    return {"tok_s": user(fast("qwen3.5-35b-a3b", "rx-6900-xt", alone(512, 256), **asked, max_model_len=4096))}


@answers("UC-033")
def _active_bytes_are_a_bound_and_no_estimate(_: Path) -> Figures:
    # 472 tokens/s of 2 GB each: a card of about 1 TB/s.
    asked: dict[str, Any] = {"engine": "llama.cpp", "weights": "q4_k_m", "num_gpus": 1}
    return {"tok_s": user(fast("qwen3-30b-a3b", "rtx-4090", alone(512, 256), **asked))}


@answers("UC-040")
def _experts_that_a_batch_meets(_: Path) -> Figures:
    return {f"experts_b{batch}": float(experts_touched(8, 8, 2, batch)) for batch in (1, 4, 16)}


@answers("UC-041")
def _experts_of_a_rank(_: Path) -> Figures:
    return {f"experts_T{count}": float(experts_touched(16, 128, 8, count)) for count in (1, 8, 32)}


@answers("UC-042")
def _faster_than_memory(_: Path) -> Figures:
    # One layer in 16 bit, of whose 256 experts 170 are touched; an expert is that of the model.
    catalog = load(Ask())
    model = catalog.model("kimi-k2").model
    (width,) = {
        run.layer.feed_forward.expert_width
        for run in model.layers
        if isinstance(run.layer.feed_forward, MoeFeedForward)
    }
    moved = 170 * 3 * model.hidden_size * width * 2
    assert 22.564e9 / 3.77e-3 > catalog.gpu("h200").gpu.bandwidth_bytes_per_s > moved / 3.77e-3
    return {"bytes_gb": moved / 1e9, "achieved_tb_s": moved / 3.77e-3 / 1e12}


@answers("UC-048")
def _two_metrics_of_one_name(_: Path) -> Figures:
    # The identities of a result, on the case's own times.
    found = fast("llama3-8b", "h100", Offer(concurrency=32, input_tokens=4000, output_tokens=200), num_gpus=1)
    assert found.ttft_s is not None
    assert found.tpot_s is not None
    assert found.e2e_s is not None
    assert found.tpot_inclusive_s is not None
    plain = (found.e2e_s.value - found.ttft_s.value) / 199
    assert plain == pytest.approx(found.tpot_s.value, rel=1e-6)
    whole = 2.0 + 199 * 0.025
    ratio = found.tpot_inclusive_s.value / found.e2e_s.value
    return {"tpot_decode_ms": (whole - 2.0) / 199 * 1e3, "tpot_inclusive_ms": ratio * whole * 1e3}


@answers("UC-090")
def _a_log_that_cannot_be(place: Path) -> Figures:
    # The machine of the log reports more than that of the catalog's source.
    overlay = place / "machine.yaml"
    overlay.write_text("gpus: {dgx-spark-gb10: {cuda_total: 121.63 GiB}}", encoding="utf-8")
    ask = Ask(
        catalogs=(str(overlay),),
        models=("qwen3.6-35b-a3b-nvfp4",),
        gpus=("dgx-spark-gb10",),
        num_gpus=1,
        memory_fraction=0.8,
        num_draft_tokens=3,
        max_model_len=262_144,
    )
    found = memory(ask).result
    return {"budget_gib": found.usable_bytes / GIB, "cuda_graph_gib": found.cuda_graph_bytes / GIB}


@answers("UC-093")
def _prefill_has_a_quadratic_term(_: Path) -> Figures:
    (deployment,) = resolve(ask := Ask(models=("llama3-8b",), num_gpus=1), load(ask))
    floors = FloorClock(deployment, BF16)
    lengths = {"50k": 50_000, "300k": 300_000, "1m": 1_000_000}
    return {f"floor_s_{name}": floors.prefill_s(length) for name, length in lengths.items()}


@answers("UC-094")
def _two_small_machines(_: Path) -> Figures:
    found = fast("llama3-70b", "dgx-spark-gb10", alone(64, 256), num_gpus=2)
    assert found.limits is not None
    assert found.limits.tpot_floor_s is not None
    return {"tok_s_roofline": 1 / found.limits.tpot_floor_s, "tok_s": user(found)}


@answers("UC-106")
def _pipeline_over_two_machines(_: Path) -> Figures:
    offer = Offer(requests_per_s=1.0, input_tokens=2000, output_tokens=200)
    whole, piped = (fast("deepseek-r1", "h200", offer, tp=tp, pp=16 // tp) for tp in (16, 8))
    return {"pp2_ttft_penalty_ms": first_ms(piped) - first_ms(whole)}


@answers("UC-107")
def _one_stream_over_sixteen_gpus(_: Path) -> Figures:
    found = fast("deepseek-r1", "h100", alone(128, 256), tp=16, engine="sglang", engine_version="0.4.8")
    return {"tpot_ms_ib": each_ms(found), "tpot_ms_other_setup": each_ms(found)}


@answers("UC-108")
def _experts_spread_or_split(_: Path) -> Figures:
    offer = Offer(concurrency=8, input_tokens=1600, output_tokens=600)
    split, spread = (
        fast("deepseek-r1", "h200", offer, tp=8, ep=ep, engine="sglang", engine_version="0.4.6") for ep in (1, 8)
    )
    return {"ttft_tp8_c8_ms": first_ms(split), "ttft_ep_over_tp_c8": first_ms(spread) / first_ms(split)}


def drafted(ask: Ask, method: str, length: int, tokens: float, batch: int = 1) -> SpeculationRow:
    """Return what drafting gives where so many tokens per round were counted, at 512 tokens of context."""
    draft = DraftAsk(
        methods=(method,),
        num_draft_tokens=length,
        accepted_tokens=(round((tokens - 1) * 1000),),
        num_drafts=1000,
        batch=batch,
    )
    return speculate(ask, draft, contexts=(512,)).result.rows[0]


@answers("UC-110")
def _speedup_from_accepted_length(_: Path) -> Figures:
    ask = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1, engine_version="0.8.3")
    return {
        f"speedup_k{length}": drafted(ask, "eagle", length, tokens).speedup for length, tokens in ((2, 1.89), (4, 2.08))
    }


@answers("UC-111")
def _counters_of_a_model_that_the_catalog_lacks(place: Path) -> Figures:
    overlay = place / "model.yaml"
    mixer = {"kind": "latent", "num_heads": 40, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    mixer |= {"value_head_dim": 64, "q_lora_rank": 768}
    shape = {
        "architecture": "minicpm3",
        "hidden_size": 2560,
        "vocab_size": 73448,
        "layers": "62*dense",
        "blocks": {"dense": {"mixer": mixer, "feed_forward": {"width": 6400}}},
        "max_context_tokens": 32768,
        "source": "MiniCPM3-4B, its config recalled",
        "date": "2026-11-30",
    }
    overlay.write_text(yaml.safe_dump({"models": {"minicpm3-4b": shape}}), encoding="utf-8")
    ask = Ask(
        models=("minicpm3-4b",),
        gpus=("rtx-4090",),
        num_gpus=1,
        engine_version="0.10.2",
        catalogs=(str(overlay),),
    )
    row = drafted(ask, "eagle", 6, 1 + 63_669 / 43_221, batch=10)
    return {"accept_len": row.tokens_per_round, "speedup_c10": row.speedup}


@answers("UC-112")
def _the_same_acceptance_on_more_ranks(_: Path) -> Figures:
    # Acceptance is not stated: two tokens per round of a tree of depth 6.
    return {
        f"speedup_tp{tp}": drafted(
            Ask(models=("qwq-32b",), gpus=("a100",), num_gpus=tp, engine="sglang", engine_version="0.4.6"),
            "eagle2",
            6,
            2.0,
        ).speedup
        for tp in (1, 4)
    }


@answers("UC-116")
def _own_layers_of_deepseek(_: Path) -> Figures:
    ask = Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8, engine="sglang", engine_version="0.4.3")
    return {"speedup": drafted(ask, "mtp", 2, 1.9).speedup}


@answers("UC-128")
def _a_large_mixture_at_small_batches(_: Path) -> Figures:
    asked: dict[str, Any] = {"tp": 8, "max_model_len": 200_000, "memory_fraction": 0.95}
    one, sixteen = (
        fast("glm-5.2-fp8", "h200", Offer(concurrency=clients, input_tokens=1024, output_tokens=1024), **asked)
        for clients in (1, 16)
    )
    return {"tok_s_c1": tokens(one), "tok_s_c16": tokens(sixteen), "tpot_ms_c1": each_ms(one)}


@answers("UC-139")
def _cards_for_30b(place: Path) -> Figures:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 6656,
        "intermediate_size": 17_920,
        "num_hidden_layers": 60,
        "num_attention_heads": 52,
        "vocab_size": 32_000,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
    }
    path = place / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")

    def least(gpu: str) -> int:
        for number in range(1, 9):
            try:
                if memory(Ask(models=(str(path),), gpus=(gpu,), num_gpus=number), contexts=(2048,)).result.fits:
                    return number
            except InfcalcError:
                # 52 heads are not split over three.
                continue
        return 0

    return {"rtx3090": least("rtx-3090"), "a100_80": least("a100-80gb")}


@answers("UC-146")
def _cache_over_a_network(_: Path) -> Figures:
    moved = kv(Ask(models=("deepseek-r1",), gpus=("h20-96gb",), num_gpus=8)).result.kv_bytes_per_token * 100_000
    return {"expected_transfer_ms_100k": moved / 50e9 * 1e3}


@answers("UC-151")
def _efficiency_changes_time_and_no_bytes(_: Path) -> Figures:
    (deployment,) = resolve(Ask(), load(Ask()))
    ops = operations(deployment.model, StepShape(decodes=(Decode(context_tokens=4096),)))
    ideal, real = (step_time(ops, deployment.gpu, Efficiency(bandwidth_fraction=fraction)) for fraction in (1.0, 0.6))
    return {"memory_ratio": real.bytes / ideal.bytes, "memory_bound_time_ratio": real.memory_s / ideal.memory_s}


@answers("UC-049")
def _no_factor_from_one_client_to_many(_: Path) -> Figures:
    return closed_loop_over_solo()


@answers("UC-118")
def _hits_where_decoding_dominates(_: Path) -> Figures:
    return gain_of_hits()


@answers("UC-126")
def _throughput_past_a_full_cache(_: Path) -> Figures:
    return past_the_cache()


@pytest.mark.parametrize(("case", "check"), checks_of(PUBLISHED))
def test_a_published_number_comes_out(case: str, check: dict[str, Any], tmp_path: Path) -> None:
    assert_holds(check, ANSWERS[case](tmp_path)[check["key"]])


def test_every_case_is_answered_or_left_for_later_with_a_reason() -> None:
    assert {case["id"] for case in cases_of(PUBLISHED) if case.get("checks")} == set(ANSWERS)
    later = {
        (case["id"], check["key"]): check["reason"] for case in cases_of(PUBLISHED) for check in case.get("later", ())
    }
    assert all(len(reason.split()) >= 3 for reason in later.values())
    assert {case for case, _ in later} == {"UC-106"}


def test_no_number_or_tolerance_was_changed() -> None:
    assert_unchanged(PUBLISHED, FEATURES, OTHERS)
