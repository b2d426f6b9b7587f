"""An explanation is an equation: its right-hand side, worked out, is the figure it explains."""

from __future__ import annotations

import math
import re

import pytest

from infcalc.api import Ask, concurrency, kv
from infcalc.errors import UsageError
from infcalc.files import load_catalog
from infcalc.spec.explain import Explanation

MODELS = load_catalog().model_names()


def sides(explanation: Explanation) -> tuple[float, float]:
    worked, _, stated = explanation.substituted.rpartition(" = ")
    plain = re.sub(r"(?<=[0-9]),(?=[0-9])", "", worked).replace(" x ", " * ")
    assert re.fullmatch(r"[0-9.+\-*/(), a-z]+", plain), plain
    return eval(plain, {"__builtins__": {}, "floor": math.floor, "min": min}), float(stated.replace(",", ""))  # noqa: S307


@pytest.mark.parametrize("name", MODELS)
def test_every_figure_of_kv_follows_from_its_explanation(name: str) -> None:
    answer = kv(Ask(models=(name,), tp=1, kv_dtypes=("bf16",)), contexts=(4097, 131_072), explain=True)
    assert len(answer.explanations) == 6
    for explanation in answer.explanations:
        worked, stated = sides(explanation)
        assert worked == stated, explanation.quantity
    assert sides(answer.explanations[0])[1] == answer.result.kv_bytes_per_token
    assert sides(answer.explanations[1])[1] == answer.result.rows[0].kv_bytes


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize(("tp", "pp", "dp"), [(4, 1, 1), (2, 2, 1), (2, 1, 2)])
def test_every_figure_of_concurrency_follows_from_its_explanation(engine: str, tp: int, pp: int, dp: int) -> None:
    if engine == "llama.cpp" and dp > 1:
        pytest.skip("llama.cpp has no attention data parallelism")
    answer = concurrency(Ask(models=("llama3-8b",), engine=engine, tp=tp, pp=pp, dp=dp), contexts=(5000,), explain=True)
    pool, *rows = answer.explanations
    assert sides(pool)[0] == sides(pool)[1] == answer.result.rows[0].kv_pool_bytes
    assert [sides(row)[0] for row in rows] == [row.sequences for row in answer.result.rows]


@pytest.mark.parametrize(
    "ask",
    [
        Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=16),
        Ask(models=("qwen3-next-80b",), gpus=("h200",), num_gpus=2, engine="sglang"),
    ],
)
@pytest.mark.parametrize("context", [16, 5000])
def test_sequences_follow_from_the_pool_of_the_least_rank_and_from_slots(ask: Ask, context: int) -> None:
    answer = concurrency(ask, contexts=(context,), explain=True)
    _, *rows = answer.explanations
    assert [sides(row)[0] for row in rows] == [row.sequences for row in answer.result.rows]


def test_the_memory_shown_is_that_of_the_stage_that_decides() -> None:
    result = concurrency(Ask(models=("llama3.2-3b",), tp=1, pp=3)).result
    parts = result.weights_bytes + result.activation_bytes + result.non_torch_bytes + result.cuda_graph_bytes
    parts += result.loading_bytes
    assert result.usable_bytes - parts == result.rows[0].kv_pool_bytes


def test_mtp_layers_count_in_weights_and_kv_when_they_draft() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8)
    plain, drafting = kv(ask).result, kv(Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8, method="mtp")).result
    assert drafting.kv_bytes_per_token - plain.kv_bytes_per_token == 1_152
    assert drafting.kv_pool_bytes < plain.kv_pool_bytes - 10**9
    with pytest.raises(UsageError, match="no MTP layers"):
        kv(Ask(models=("llama3-8b",), method="mtp"))
    with pytest.raises(UsageError, match="nothing of the model's own"):
        kv(Ask(models=("deepseek-v3",), method="eagle3"))


def test_decode_context_parallelism_divides_the_slope_of_a_rank() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8, dcp=8)
    assert kv(ask).result.kv_bytes_per_token_per_gpu == 70_272 // 8


def test_what_was_given_is_said_to_be_given_even_when_it_is_the_default() -> None:
    origins = {item.name: item.origin for item in kv(contexts=(4096, 32_768, 131_072)).inputs}
    assert origins["contexts"] == "given (--context)"
    assert {item.name: item.origin for item in kv().inputs}["contexts"] == "default"


def test_inputs_of_several_deployments_name_all_their_values() -> None:
    answer = kv(Ask(models=("llama3-8b", "llama3-70b"), kv_dtypes=("bf16", "fp8")))
    values = {item.name: item.value for item in answer.inputs}
    assert values["model"] == ("llama3-8b", "llama3-70b")
    assert values["kv_dtype"] == ("bf16", "fp8")
    assert len([note for note in answer.assumptions if "KV pool" in note]) == 2


def test_a_length_the_engine_does_not_admit_is_warned_about_and_limits_a_step() -> None:
    answer = kv(Ask(max_model_len=2048, max_num_seqs=1), contexts=(4096,))
    assert any("--max-model-len admits 2,048" in warning for warning in answer.warnings)
    assert {item.name: item.value for item in answer.inputs}["max_num_batched_tokens"] == 2048


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.2"), ("sglang", "0.2"), ("tensorrt-llm", "9.9")])
def test_a_version_outside_the_known_ones_warns(engine: str, version: str) -> None:
    answer = kv(Ask(engine=engine, engine_version=version))
    assert any(f"{engine} {version}" in warning and "were taken" in warning for warning in answer.warnings)


def test_a_fraction_is_refused_where_the_engine_has_none() -> None:
    with pytest.raises(UsageError, match="no memory fraction"):
        kv(Ask(engine="llama.cpp", memory_fraction=0.5))


def test_auto_weights_are_the_default_weights() -> None:
    default, auto = (concurrency(Ask(models=("mamba-2.8b",), tp=1, weights=word)).result for word in (None, "auto"))
    assert default.weights_bytes == auto.weights_bytes
