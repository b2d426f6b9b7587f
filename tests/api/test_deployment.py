from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infcalc.api.changes import Candidate, Kind, can_serve
from infcalc.api.deployment import Ask, Deployment, kv_format, load, resolve, single_kv_dtype
from infcalc.api.filling import memory
from infcalc.errors import UnknownName, UsageError
from infcalc.spec.parallelism import Parallelism


def resolved(ask: Ask) -> Deployment:
    (one,) = resolve(ask, load(ask))
    return one


def origins(ask: Ask) -> dict[str, str]:
    return {item.name: item.origin for item in resolved(ask).inputs}


def test_the_reference_scenario() -> None:
    one = resolved(Ask())
    assert (one.model.name, one.gpu.name, one.parallelism) == ("llama3-70b", "a100-sxm4-80gb", Parallelism(tp=4))
    assert (one.rules.engine, one.rules.version, one.fraction, one.weights) == ("vllm", "0.33", 0.92, "bf16")
    assert (one.max_num_seqs, one.max_num_batched_tokens, one.block_tokens) == (256, 2048, 16)
    assert "given" not in origins(Ask()).values()


@pytest.mark.parametrize(
    ("ask", "parallelism"),
    [
        (Ask(num_gpus=8), Parallelism(tp=8)),
        (Ask(tp=2), Parallelism(tp=2)),
        (Ask(num_gpus=8, pp=2), Parallelism(tp=4, pp=2)),
        (Ask(num_gpus=8, pp=2, dp=2), Parallelism(tp=2, pp=2, dp=2)),
        (Ask(num_gpus=8, tp=4, pp=2), Parallelism(tp=4, pp=2)),
        (Ask(pp=4), Parallelism(pp=4)),
        (Ask(tp=16, dcp=2), Parallelism(tp=16, dcp=2)),
        (Ask(models=("deepseek-v3",), tp=8, ep=8, dcp=8), Parallelism(tp=8, ep=8, dcp=8)),
        # llama.cpp splits by layer, over any number.
        (Ask(engine="llama.cpp", num_gpus=3), Parallelism(pp=3)),
        (Ask(engine="llama-server"), Parallelism(pp=4)),
        (Ask(engine="llama.cpp", tp=2), Parallelism(tp=2)),
        (Ask(engine="llama.cpp", num_gpus=8, pp=2), Parallelism(tp=4, pp=2)),
    ],
    ids=str,
)
def test_tp_is_what_the_gpus_leave(ask: Ask, parallelism: Parallelism) -> None:
    one = resolved(ask)
    assert one.parallelism == parallelism
    assert one.parallelism.num_gpus == parallelism.tp * parallelism.pp * parallelism.dp


@pytest.mark.parametrize(
    "ask",
    [
        Ask(num_gpus=4, tp=3),
        Ask(num_gpus=4, pp=3),
        Ask(num_gpus=2, pp=4),
        Ask(tp=3),
        Ask(pp=81),
        Ask(ep=2),
        Ask(models=("mixtral-8x7b",), tp=4, ep=3),
    ],
    ids=str,
)
def test_counts_that_contradict_each_other_or_the_model_are_refused(ask: Ask) -> None:
    with pytest.raises(UsageError) as refused:
        resolved(ask)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        # 8 KV heads on 4 ranks: every rank holds its own heads, there is nothing to split by position.
        (Ask(tp=4, dcp=2), "use 1"),
        (Ask(tp=16, dcp=4), "use 1, 2"),
        (Ask(models=("deepseek-v3",), tp=8, dcp=3), "use 1, 2, 4, 8"),
    ],
    ids=str,
)
def test_decode_context_parallelism_splits_copies_only(ask: Ask, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolved(ask)
    assert (refused.value.place, refused.value.hint) == ("--dcp", hint)


def test_a_small_model_takes_as_many_ranks_of_the_reference_as_divide_it() -> None:
    # 14 attention heads and 2 KV heads divide by 2, not by 4.
    one = resolved(Ask(models=("qwen2.5-0.5b",)))
    assert one.parallelism == Parallelism(tp=2)
    assert any("TP 2 taken" in note for note in one.assumptions)
    with pytest.raises(UsageError):
        resolved(Ask(models=("qwen2.5-0.5b",), num_gpus=4))


@pytest.mark.parametrize("name", ["num_gpus", "tp", "pp", "dp", "ep", "dcp", "max_num_seqs", "block_size"])
@pytest.mark.parametrize("value", [0, -1, 10**30])
def test_counts_out_of_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(UsageError, match="out of range") as refused:
        resolved(Ask(**{name: value}))  # type: ignore[arg-type]
    assert refused.value.place


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.01, float("nan"), float("inf")])
def test_fractions_out_of_range_are_refused(fraction: float) -> None:
    with pytest.raises(UsageError, match="out of range"):
        resolved(Ask(memory_fraction=fraction))


def test_given_values_say_so() -> None:
    ask = Ask(
        models=("llama3-8b",),
        gpus=("h100",),
        tp=2,
        weights="fp8",
        engine="sglang",
        memory_fraction=0.8,
        max_num_seqs=7,
        max_num_batched_tokens=999,
        block_size=64,
    )
    one = resolved(ask)
    stated = {item.name for item in one.inputs if item.origin.startswith("given (--")}
    assert {"model", "gpu", "tp", "weights", "engine", "memory_fraction", "max_num_seqs", "block_tokens"} <= stated
    assert (one.fraction, one.max_num_seqs, one.max_num_batched_tokens, one.block_tokens) == (0.8, 7, 999, 64)
    assert origins(Ask(num_gpus=8))["tp"] == "from --gpus"


def test_defaults_are_those_of_the_engine_and_its_version() -> None:
    assert origins(Ask())["memory_fraction"] == "vllm 0.33 default"
    assert resolved(Ask(engine_version="0.19")).fraction == 0.9
    assert resolved(Ask(engine="llama.cpp")).fraction is None
    assert resolved(Ask(enforce_eager=True)).rules.cuda_graph_bytes == 0
    with pytest.raises(UnknownName, match="vlm"):
        resolved(Ask(engine="vlm"))


def test_weights_are_the_checkpoints_own_unless_asked() -> None:
    assert resolved(Ask(models=("deepseek-v3",), num_gpus=8)).weights == "fp8_block"
    assert resolved(Ask(models=("deepseek-v3",), num_gpus=8, weights="auto")).weights == "fp8_block"
    asked = resolved(Ask(weights="fp8"))
    assert asked.weights == "fp8"
    assert asked.quantization is not None
    with pytest.raises(UsageError, match="fp7"):
        resolved(Ask(weights="fp7"))


def test_a_checkpoint_in_fp32_is_served_in_16_bit_unless_asked() -> None:
    one = resolved(Ask(models=("olmo-2-7b",), num_gpus=1))
    assert one.model.dtype == "bf16"
    assert any("16 bit" in note for note in one.assumptions)
    assert resolved(Ask(models=("olmo-2-7b",), num_gpus=1, weights="fp32")).model.dtype == "fp32"


def test_the_kv_precision_is_the_models_own_unless_asked() -> None:
    plain = resolved(Ask())
    assert kv_format(plain, None)[0].name == "bf16"
    assert kv_format(plain, "auto")[0].name == "bf16"
    assert kv_format(plain, "FP8_E4M3")[:2] == (kv_format(plain, "fp8")[0], "given (--kv-dtype)")
    with pytest.raises(UsageError, match="not a KV-cache precision"):
        kv_format(plain, "fp7")


def test_a_checkpoint_that_asks_for_fp8_kv_gets_it_where_the_gpu_can() -> None:
    model = ("qwen3.6-27b-nvfp4",)
    capable = resolved(Ask(models=model, gpus=("h100",), num_gpus=1))
    assert capable.model.kv_dtype == "fp8"
    assert kv_format(capable, None) == (kv_format(capable, "fp8")[0], "the checkpoint's KV scheme", ())
    form, origin, warnings = kv_format(resolved(Ask(models=model, num_gpus=1)), None)
    assert (form.name, origin) == ("bf16", "GPU without fp8")
    assert "fp8" in warnings[0]


def test_one_precision_where_one_is_looked_at() -> None:
    assert single_kv_dtype(Ask()) is None
    assert single_kv_dtype(Ask(kv_dtypes=("fp8",))) == "fp8"
    with pytest.raises(UsageError, match="2 KV precisions"):
        single_kv_dtype(Ask(kv_dtypes=("fp8", "bf16")))


def test_every_model_stands_on_every_gpu() -> None:
    ask = Ask(models=("llama3-8b", "llama3-70b"), gpus=("h100", "h200"))
    assert [(one.model.name, one.gpu.name) for one in resolve(ask, load(ask))] == [
        (model, gpu) for model in ("llama3-8b", "llama3-70b") for gpu in ("h100-sxm5-80gb", "h200-sxm-141gb")
    ]


def test_origins_come_from_the_overlay_that_set_a_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("gpus:\n  a100-80gb:\n    bandwidth: 2 TB/s\n", encoding="utf-8")
    one = resolved(Ask(catalogs=(str(path),)))
    assert one.gpu.bandwidth_bytes_per_s == 2e12
    assert one.gpu_origins["bandwidth"] == f"{path}:3"
    assert one.model_origins["layers"] == "models.yaml (shipped)"


@pytest.mark.parametrize("ask", [Ask(dp=2, num_gpus=4), Ask(ep=4, num_gpus=4), Ask(tp=4, dcp=4)], ids=str)
def test_llama_cpp_has_neither_attention_nor_expert_ranks(ask: Ask) -> None:
    with pytest.raises(UsageError, match=r"llama\.cpp has no"):
        resolved(replace(ask, models=("deepseek-v3",), engine="llama.cpp"))


def test_the_engine_is_told_what_it_serves() -> None:
    def block(model: str, gpu: str = "h200") -> int:
        return resolved(Ask(models=(model,), gpus=(gpu,), num_gpus=8)).block_tokens

    assert [block(name) for name in ("deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash", "qwen3-32b")] == [
        64,
        64,
        256,
        16,
    ]

    def fraction(**asked: object) -> float:
        ask = Ask(**{"engine": "sglang", "gpus": ("h100",), "num_gpus": 1} | asked)  # type: ignore[arg-type]
        return resolved(ask).fraction or 0.0

    assert fraction(models=("qwen3.5-27b",)) == 0.95 * fraction(models=("qwen3.5-27b",), text_only=True)
    assert fraction(models=("deepseek-v3",)) < fraction(models=("qwen3-32b",))


@pytest.mark.parametrize(
    ("ask", "share", "mend"),
    [
        (Ask(models=("qwen3-235b-a22b-fp8",), num_gpus=8), "192 of experts.gate", "use --ep 8 or TP 4"),
        (Ask(models=("qwen3-235b-a22b-fp8",), num_gpus=8, engine="sglang"), "192 of experts.gate", "use --ep 8"),
        # The dense layers are split all the same.
        (Ask(models=("deepseek-v3",), num_gpus=32), "576 of gate", "use TP 16"),
        (Ask(models=("deepseek-v3",), num_gpus=32, ep=32), "576 of gate", "use TP 16"),
    ],
)
def test_a_share_of_half_a_block_of_weights_is_refused_by_engines(ask: Ask, share: str, mend: str) -> None:
    (said,) = (text for text in resolved(replace(ask, gpus=("h100",))).warnings if "share a scale" in text)
    assert share in said
    assert mend in said


@pytest.mark.parametrize(
    "ask",
    [
        Ask(models=("qwen3-235b-a22b-fp8",), num_gpus=4),
        Ask(models=("qwen3-235b-a22b-fp8",), num_gpus=8, ep=8),
        Ask(models=("qwen3-235b-a22b-fp8",), num_gpus=8, weights="bf16"),
        Ask(models=("deepseek-v3",), num_gpus=8),
        Ask(models=("deepseek-v3",), num_gpus=16),
    ],
)
def test_shares_of_whole_blocks_are_taken(ask: Ask) -> None:
    assert not any("share a scale" in text for text in resolved(replace(ask, gpus=("h100",))).warnings)


def test_ranks_that_split_a_block_are_no_mend() -> None:
    ask = Ask(models=("qwen3-235b-a22b-fp8",), gpus=("h100",), num_gpus=2, kv_dtypes=("bf16",))
    offered = [change.change for change in memory(ask).result.changes]
    assert any(change.startswith("--gpus 4") for change in offered)
    wider = replace(ask, num_gpus=8)
    one = resolved(wider)
    candidate = Candidate(kind=Kind.GPUS, value="8", text="--gpus 8", ask=wider)
    assert not can_serve(candidate, one, kv_format(one, "bf16")[0])
