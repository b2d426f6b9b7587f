from __future__ import annotations

from typing import Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.drafting import DraftAsk, SpeculateResult, speculate
from infcalc.errors import UnknownName, UsageError

LLAMA_70B = Ask(models=("llama3.1-70b",))
V3 = Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8)


def origins(**options: Any) -> dict[str, str]:  # noqa: ANN401 - any of DraftAsk
    contexts = options.pop("contexts", ())
    return {item.name: item.origin for item in speculate(draft=DraftAsk(**options), contexts=contexts).inputs}


def sizes(result: SpeculateResult) -> dict[str, int]:
    return {item.name: item.num_bytes for item in result.memory}


# where a draft runs


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_a_draft_model_is_split_as_its_target(tp: int) -> None:
    ask = Ask(models=("llama3.1-70b",), tp=tp)
    (row,) = speculate(ask, DraftAsk(draft_model="llama3.1-8b")).result.rows
    assert f"at TP {tp}, the target's" in row.cost_source
    # Weights that a step reads are 7.5 to 69.5 billion; messages and launches of 32 layers weigh more beside 80.
    assert 7.5 / 69.5 < row.cost_ratio < 0.4


def test_a_draft_that_tp_does_not_divide_runs_at_the_largest_that_does() -> None:
    # 14 query heads and 2 KV heads: TP 8 and 4 leave a rest.
    ask = Ask(models=("qwen2.5-72b",), tp=8)
    answer = speculate(ask, DraftAsk(draft_model="qwen2.5-0.5b"))
    assert "at TP 2, the largest that divides it (the target's is 8)" in answer.result.rows[0].cost_source


def test_a_draft_head_is_split_as_its_target() -> None:
    one, four = (
        speculate(Ask(models=("llama3.1-70b",), tp=tp), DraftAsk(draft_model="llama3-70b-eagle3")).result.rows[0]
        for tp in (1, 4)
    )
    assert "at TP 4, the target's" in four.cost_source
    # What the engine adds to a pass is not divided.
    assert one.cost_ratio < four.cost_ratio < 3 * one.cost_ratio


def test_every_attention_rank_loads_its_own_draft() -> None:
    drafted = [
        sizes(speculate(Ask(models=("llama3.1-70b",), tp=4, dp=dp), DraftAsk(draft_model="llama3.2-1b")).result)
        for dp in (1, 2)
    ]
    assert drafted[1]["draft weights"] == 2 * drafted[0]["draft weights"] == 2 * 2_471_628_800
    assert drafted[1]["draft kv"] == drafted[0]["draft kv"]


# whether it fits


@pytest.mark.parametrize("model", ["llama3.1-70b", "meta-llama/Llama-3.3-70B-Instruct", "neuralmagic/llama3.1-70b-FP8"])
def test_a_head_for_the_target_or_its_base_is_no_doubt(model: str) -> None:
    warnings = speculate(Ask(models=(model,)), DraftAsk(draft_model="llama3-70b-eagle3")).warnings
    assert not any("eagle3" in text for text in warnings)


def test_a_head_for_another_target_is_doubtful() -> None:
    warnings = speculate(LLAMA_70B, DraftAsk(draft_model="qwen3-8b-eagle3")).warnings
    assert "qwen3-8b-eagle3 was made for qwen3-8b: llama3.1-70b is not among them" in warnings


def test_a_draft_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"qwen3-0.6b has a vocabulary of 151,936 tokens and llama3.1-70b one of"
    ) as no:
        speculate(LLAMA_70B, DraftAsk(draft_model="qwen3-0.6b"))
    assert (no.value.place, "--method ngram" in (no.value.hint or "")) == ("--draft-model", True)


def test_vocabularies_that_differ_by_padding_are_doubtful_and_equal_ones_are_not() -> None:
    warnings = speculate(Ask(models=("qwen2.5-72b",)), DraftAsk(draft_model="qwen2.5-0.5b")).warnings
    assert any("152,064" in text and "other padding" in text for text in warnings)
    equal = speculate(LLAMA_70B, DraftAsk(draft_model="llama3.2-1b")).warnings
    assert not any("vocabulary" in text for text in equal)


def test_an_unknown_draft_names_models_and_heads() -> None:
    with pytest.raises(UnknownName) as unknown:
        speculate(LLAMA_70B, DraftAsk(draft_model="llama3-70b-eagl3"))
    assert {"llama3-70b", "llama3-70b-eagle3"} <= set(unknown.value.nearest)
    assert "draft heads for llama3.1-70b: llama3-70b-eagle3" in (unknown.value.hint or "")
    with pytest.raises(UnknownName, match="zzz") as alien:
        speculate(Ask(models=("mamba-2.8b",)), DraftAsk(draft_model="zzz"))
    assert "no draft head for mamba-2.8b is known" in (alien.value.hint or "")


# what it adds


@pytest.mark.parametrize(
    ("kv", "bytes_per_token"), [("bf16", 4096), ("fp8", 2048), ("int4", 1088), ("nvfp4", 1152), ("q8_0", 2176)]
)
def test_the_cache_of_a_head_pays_for_its_scales(kv: str, bytes_per_token: int) -> None:
    ask = Ask(models=("llama3.1-70b",), kv_dtypes=(kv,))
    result = speculate(ask, DraftAsk(draft_model="llama3-70b-eagle3", batch=3), contexts=(1000,)).result
    assert sizes(result)["draft kv"] == 3 * 1000 * bytes_per_token


def test_mtp_is_priced_by_its_layer_and_adds_its_weights_and_cache() -> None:
    answer = speculate(V3, DraftAsk(methods=("mtp",)), contexts=(1000,))
    (row,) = answer.result.rows
    assert "an MTP layer of deepseek-v3" in row.cost_source
    assert 0.02 < row.cost_ratio < 0.12
    added = sizes(answer.result)
    # Published: 14 billion parameters with 1.85 of embedding and head twice, of a byte each but for norms and router.
    assert 11.3e9 < added["draft weights"] < 12e9
    assert added["draft kv"] == 1000 * 1152
    assert added["look-ahead kv"] == row.num_draft_tokens * 62 * 1152
    assert answer.result.draft_model is None


def test_mtp_of_wider_weights_costs_more() -> None:
    own, wide = (
        sizes(speculate(Ask(models=V3.models, gpus=V3.gpus, num_gpus=8, weights=w), DraftAsk(methods=("mtp",))).result)
        for w in (None, "bf16")
    )
    assert wide["draft weights"] == pytest.approx(2 * own["draft weights"], rel=0.02)


def test_mtp_that_a_model_does_not_have_is_said() -> None:
    answer = speculate(LLAMA_70B, DraftAsk(methods=("mtp",)))
    assert "llama3.1-70b is not known to have MTP layers: mtp is that of other models" in answer.warnings
    assert answer.result.memory == ()
    assert "in place of an MTP layer" in answer.result.rows[0].cost_source
    assert not any("MTP" in text for text in speculate(LLAMA_70B).warnings)


def test_two_drafts_are_told_apart_in_memory() -> None:
    draft = DraftAsk(methods=("eagle3", "mtp"), draft_model="deepseek-v3-eagle3")
    names = list(sizes(speculate(V3, draft).result))
    assert names[0] == "deepseek-v3-eagle3: draft weights"
    assert names[4] == "deepseek-v3 MTP: draft weights"
    assert len(names) == 8


# origins


def test_what_was_given_is_given_even_where_it_is_the_default() -> None:
    assert origins()["batch"] == "default"
    assert origins()["context"] == "reference scenario"
    assert origins(batch=1)["batch"].startswith("given")
    assert origins(contexts=(4096,))["context"].startswith("given")


def test_inputs_hold_every_deployment() -> None:
    inputs = {item.name: item.value for item in speculate(Ask(gpus=("h100", "h200"))).inputs}
    assert inputs["gpu"] == ("h100-sxm5-80gb", "h200-sxm-141gb")


# batches, memory and counters


def test_every_batch_has_its_best_length_and_its_speedup() -> None:
    result = speculate(LLAMA_70B, DraftAsk(methods=("eagle3", "ngram"))).result
    assert [point.batch for point in result.by_batch] == 2 * [1, 2, 4, 8, 16, 32, 64, 128, 256]
    for row in result.rows:
        first = next(point for point in result.by_batch if point.method == row.method)
        assert (first.num_draft_tokens, first.speedup) == (row.num_draft_tokens, row.speedup)
        gains = [point.speedup for point in result.by_batch if point.method == row.method]
        assert gains == sorted(gains, reverse=True)


def test_a_drafter_displaces_sequences_and_the_full_server_says_whether_it_pays() -> None:
    head, lookup = speculate(LLAMA_70B, DraftAsk(methods=("eagle3", "ngram"), num_draft_tokens=3)).result.full_load
    assert head.sequences_without == lookup.sequences_without
    assert head.sequences_with < lookup.sequences_with <= lookup.sequences_without
    assert head.sequences_forgone == head.sequences_without - head.sequences_with
    # 17 h^2 and 32,000 h of 16 bit, h 8192.
    assert head.weights_bytes == pytest.approx(2 * (17.0 * 8192**2 + 32_000 * 8192), rel=0.001)
    assert lookup.weights_bytes == 0
    assert (head.num_draft_tokens, lookup.num_draft_tokens) == (3, 3)
    assert head.pays is (head.speedup > 1)


def test_drafting_on_a_full_server_of_long_drafts_loses() -> None:
    (load,) = speculate(Ask(gpus=("h100",), num_gpus=4), DraftAsk(methods=("eagle3-tree",))).result.full_load
    assert not load.pays
    assert load.speedup < 1


@pytest.mark.parametrize(
    ("given", "length", "tokens"),
    [((63_669,), 6, 2.473), ((58, 34, 22), None, 1 + 0.58 + 0.34 + 0.22)],
)
def test_counters_of_an_engine_are_acceptance(given: tuple[int, ...], length: int | None, tokens: float) -> None:
    # vllm-project/vllm pull request 24243: 63,669 accepted in 43,221 drafts of 6.
    drafts = 43_221 if len(given) == 1 else 100
    draft = DraftAsk(
        methods=("eagle",), accepted_tokens=given, num_drafts=drafts, num_draft_tokens=length or len(given)
    )
    answer = speculate(LLAMA_70B, draft)
    assert answer.result.rows[0].tokens_per_round == pytest.approx(tokens, abs=0.0005)
    origin = next(item.origin for item in answer.inputs if item.name == "acceptance")
    assert origin == "given (--accepted, --drafted)"


@pytest.mark.parametrize(
    ("draft", "text"),
    [
        (DraftAsk(accepted_tokens=(5,)), "one counter alone"),
        (DraftAsk(num_drafts=5), "one counter alone"),
        (DraftAsk(accepted_tokens=(5,), num_drafts=10), "how long a draft"),
        (DraftAsk(accepted_tokens=(5,), num_drafts=0, num_draft_tokens=2), "in 0 drafts"),
        (DraftAsk(accepted_tokens=(50,), num_drafts=10, num_draft_tokens=2), "50 accepted in 10 drafts of 2 tokens"),
        (DraftAsk(accepted_tokens=(5,), num_drafts=10, num_draft_tokens=2, acceptance=(0.5,)), "and counters"),
        (DraftAsk(accepted_tokens=(5, 6), num_drafts=10), "5, 6 accepted in 10 drafts"),
        (DraftAsk(accepted_tokens=(11, 6), num_drafts=10), "11, 6 accepted in 10 drafts"),
    ],
)
def test_counters_that_say_nothing_are_refused(draft: DraftAsk, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        speculate(LLAMA_70B, draft)


def test_counters_are_blamed_under_their_own_option() -> None:
    for accepted, length in (((50,), 2), ((5, 6), None)):
        with pytest.raises(UsageError) as refused:
            speculate(LLAMA_70B, DraftAsk(accepted_tokens=accepted, num_drafts=10, num_draft_tokens=length))
        assert refused.value.place == "--accepted"


def test_what_does_not_fit_is_an_answer_that_says_so() -> None:
    answer = speculate(Ask(models=("llama3.1-405b",), num_gpus=1), DraftAsk(methods=("eagle3",)))
    assert (answer.exit_code, answer.result.fits, answer.result.full_load) == (3, False, ())
    assert speculate(LLAMA_70B).exit_code == 0


@pytest.mark.parametrize(("engine", "method"), [("vllm", "rest"), ("llama.cpp", "eagle3"), ("sglang", "medusa")])
def test_a_way_that_the_engine_does_not_have_is_told(engine: str, method: str) -> None:
    answer = speculate(Ask(models=("llama3-8b",), num_gpus=1, engine=engine), DraftAsk(methods=(method, "draft-model")))
    told = [text for text in answer.warnings if "does not draft by" in text]
    assert len(told) == 1
    assert method in told[0]


def test_operations_are_those_of_all_tokens_that_are_verified() -> None:
    # Leviathan et al. 2023, theorem 3.11: (gamma c + gamma + 1) / E; lookups cost none.
    draft = DraftAsk(methods=("ngram",), num_draft_tokens=4, acceptance=(0.5,))
    (row,) = speculate(LLAMA_70B, draft).result.rows
    assert row.operations_increase == pytest.approx(5 / 1.9375)
    (head,) = speculate(LLAMA_70B, DraftAsk(methods=("eagle3",), num_draft_tokens=4, acceptance=(0.5,))).result.rows
    # 17.0 h^2 and 32,000 h of a target of 69.5 billion without its embedding.
    ratio = (17.0 * 8192**2 + 32_000 * 8192) / 69.5e9
    assert head.operations_increase == pytest.approx((5 + 4 * ratio) / 1.9375, rel=0.002)


def test_a_head_reads_the_cache_of_long_contexts() -> None:
    ask = Ask(models=("llama3.1-8b",), gpus=("h100",), num_gpus=1)
    draft = DraftAsk(methods=("eagle3",), num_draft_tokens=3, batch=4)
    short, long = (speculate(ask, draft, contexts=(tokens,)).result.rows[0] for tokens in (1024, 131_072))
    grown_s = long.cost_ratio * long.plain_step_s - short.cost_ratio * short.plain_step_s
    # 130,048 tokens of 4 sequences, 4,096 B each, at 3.35 TB/s and no more.
    assert grown_s > 4 * 130_048 * 4096 / 3.35e12


def test_the_engine_is_the_source_of_what_a_round_takes_besides() -> None:
    answer = speculate(LLAMA_70B, DraftAsk(methods=("eagle3",)), explain=True)
    (gain,) = (text for text in answer.explanations if text.quantity == "speedup")
    origins = {item.name: item.origin for item in gain.inputs}
    assert "vLLM issue 20780" in origins["fixed / plain step"]
    assert "EAGLE-3 head" in origins["draft step / plain step"]


def test_a_draft_of_a_billion_for_seventy_is_no_tiny_one() -> None:
    (row,) = speculate(LLAMA_70B, DraftAsk(draft_model="llama3.2-1b")).result.rows
    assert "T5" in row.acceptance_source
