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
    # Both divide alike: the ratio is that of the weights a step reads, at any TP.
    assert row.cost_ratio == pytest.approx(7.5 / 69.5, rel=0.05)


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
    assert four.cost_ratio == pytest.approx(one.cost_ratio, rel=0.05)


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
    assert "roofline of an MTP layer" in row.cost_source
    assert 0.02 < row.cost_ratio < 0.1
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
    assert "line through round times" in answer.result.rows[0].cost_source
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
