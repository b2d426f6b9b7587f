"""The four calculators and the lists: what their results say of each other."""

from __future__ import annotations

from typing import Any

import pytest

from infcalc.api.bounds import MAX_BATCH, RooflinePoint, roofline
from infcalc.api.deployment import MAX_TOKENS, Ask
from infcalc.api.drafting import DraftAsk, speculate
from infcalc.api.fitting import concurrency
from infcalc.api.listing import gpus, models, show
from infcalc.api.sizing import check_contexts, kv
from infcalc.errors import UnknownName, UsageError
from infcalc.memory.budget import Room, room

H100 = ("h100",)


# kv


def test_room_is_asked_for_once_per_context(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counting(*given: Any, context_tokens: int, **named: Any) -> Room:  # noqa: ANN401 - whatever room takes
        asked.append(context_tokens)
        return room(*given, context_tokens=context_tokens, **named)

    monkeypatch.setattr("infcalc.api.sizing.room", counting)
    kv(Ask(), contexts=(4096, 8192, 10_000_000))
    assert asked == [4096, 8192, 10_000_000]


@pytest.mark.parametrize(
    "name", ["llama3-70b", "deepseek-v3.2", "gpt-oss-120b", "qwen3-next-80b", "deepseek-v4-flash", "mamba-2.8b"]
)
def test_a_sequence_is_the_sum_of_its_parts(name: str) -> None:
    result = kv(Ask(models=(name,), gpus=H100, num_gpus=1), contexts=(128, 65_536)).result
    for row in result.rows:
        total: float = result.kv_bytes_per_request
        for part in result.kv_components:
            if part.bytes_per_token:
                total += part.bytes_per_token * min(row.context_tokens, part.window_tokens or row.context_tokens)
        assert row.kv_bytes == pytest.approx(total)
    growing = [part.bytes_per_token for part in result.kv_components if part.max_bytes is None]
    assert result.kv_bytes_per_token == sum(growing)


def test_ranks_hold_the_cluster_together() -> None:
    whole = kv(Ask(tp=4), contexts=(4096,)).result.rows[0]
    assert whole.kv_bytes_per_gpu * 4 == whole.kv_bytes == whole.kv_bytes_cluster
    replicated = kv(Ask(tp=16), contexts=(4096,)).result.rows[0]
    assert replicated.kv_bytes_cluster == 2 * replicated.kv_bytes
    staged = kv(Ask(num_gpus=4, pp=4), contexts=(4096,)).result.rows[0]
    assert staged.kv_bytes_cluster == staged.kv_bytes == 4 * staged.kv_bytes_per_gpu


def test_the_saving_of_gqa_is_heads_over_kv_heads() -> None:
    assert kv().result.gqa_saving_factor == 64 / 8
    assert kv(Ask(models=("llama2-7b",))).result.gqa_saving_factor == 1
    assert kv(Ask(models=("deepseek-v3",), num_gpus=8)).result.gqa_saving_factor == pytest.approx(4_997_120 / 70_272)
    assert kv(Ask(models=("mamba-2.8b",), num_gpus=1)).result.gqa_saving_factor is None


def test_kv_and_concurrency_count_the_same_sequences() -> None:
    sized = kv(Ask(kv_dtypes=("bf16",)), contexts=(4096,))
    held = concurrency(Ask(kv_dtypes=("bf16",)), contexts=(4096,))
    (mine,), (other,) = sized.result.rows, held.result.rows
    assert (mine.sequences, mine.sequences_low, mine.sequences_high) == (
        other.sequences,
        other.sequences_low,
        other.sequences_high,
    )
    assert sized.result.kv_pool_bytes == other.kv_pool_bytes
    assert sized.assumptions[0] == held.assumptions[0]


@pytest.mark.parametrize("context", [0, -1, MAX_TOKENS + 1])
def test_contexts_out_of_range_are_refused(context: int) -> None:
    for question in (kv, concurrency, roofline, speculate):
        with pytest.raises(UsageError) as refused:
            question(contexts=(context,))
        assert refused.value.place == "--context"


def test_a_context_asked_twice_is_answered_once() -> None:
    assert check_contexts((8192, 4096, 8192)) == (8192, 4096)


def test_a_context_beyond_the_model_is_answered_with_a_warning() -> None:
    answer = kv(Ask(models=("llama3-8b",)), contexts=(8192, 8193))
    assert any("made for 8,192 tokens; 8,193 is beyond" in warning for warning in answer.warnings)
    assert not kv(Ask(models=("llama3-8b",)), contexts=(8192,)).warnings


# concurrency


def test_memory_of_the_governing_gpu_adds_up() -> None:
    result = concurrency().result
    parts = result.weights_bytes + result.loading_bytes + result.activation_bytes
    parts += result.non_torch_bytes + result.cuda_graph_bytes
    assert result.rows[0].kv_pool_bytes == result.usable_bytes - parts
    assert result.missing_bytes == 0


def test_gains_are_true_and_nominal() -> None:
    rows = {row.kv_dtype: row for row in concurrency(Ask(kv_dtypes=("fp16", "fp8", "int4", "nvfp4"))).result.rows}
    nominal = {"fp16": 1, "fp8": 2, "int4": 4, "nvfp4": 4}
    assert {name: row.gain_over_fp16_nominal for name, row in rows.items()} == nominal
    assert rows["fp16"].gain_over_fp16 == 1
    assert rows["fp8"].gain_over_fp16 == 2
    assert rows["int4"].gain_over_fp16 == pytest.approx(16 / 4.25)
    assert rows["nvfp4"].gain_over_fp16 == pytest.approx(16 / 4.5)


def test_recurrent_state_does_not_shrink_with_the_kv_precision() -> None:
    rows = concurrency(
        Ask(models=("qwen3-next-80b",), gpus=H100, num_gpus=4, kv_dtypes=("fp8",)), contexts=(1024, 262_144)
    ).result.rows
    short, long = (row.gain_over_fp16 for row in rows)
    assert 1 < short < 1.3
    assert 1.9 < long < 2


@pytest.mark.parametrize(("ask", "code"), [(Ask(), 0), (Ask(num_gpus=1), 3), (Ask(gpus=("t4",), num_gpus=4), 3)])
def test_the_exit_code_says_whether_all_fits(ask: Ask, code: int) -> None:
    answer = concurrency(ask)
    assert answer.exit_code == code
    assert (min(row.sequences for row in answer.result.rows) == 0) == (code == 3)
    assert (answer.result.missing_bytes > 0) == (code == 3)


def test_rows_are_every_context_at_every_precision() -> None:
    rows = concurrency(Ask(kv_dtypes=("fp8", "int4")), contexts=(1024, 2048)).result.rows
    assert [(row.context_tokens, row.kv_dtype) for row in rows] == [
        (context, kv_dtype) for context in (1024, 2048) for kv_dtype in ("fp8", "int4")
    ]


# roofline


def pointed(ask: Ask, batch: int) -> dict[str, RooflinePoint]:
    found = roofline(ask, batches=(batch,)).result.points
    return {point.phase: point for point in found if point.attention_io == "flash"}


def test_a_point_is_consistent() -> None:
    for point in roofline().result.points:
        assert point.flop_per_byte == point.flop / point.bytes
        assert point.tokens_per_s == point.tokens / point.time_s
        assert point.time_s >= max(point.flop / 1248e12, point.bytes / 2039e9) * (1 - 1e-9)
        assert point.tokens == point.batch * (4096 if point.phase == "prefill" else 1)


def test_naive_attention_moves_more_and_is_never_faster() -> None:
    points = roofline().result.points
    flash = {(point.phase, point.batch): point for point in points if point.attention_io == "flash"}
    naive = {(point.phase, point.batch): point for point in points if point.attention_io == "naive"}
    assert flash.keys() == naive.keys()
    for key, point in flash.items():
        assert naive[key].bytes > point.bytes
        assert naive[key].flop == point.flop
        assert naive[key].time_s >= point.time_s


def test_decode_is_bound_by_memory_and_prefill_by_compute() -> None:
    points = pointed(Ask(), 1)
    assert (points["decode"].bound_by, points["prefill"].bound_by) == ("memory", "compute")


def test_more_bandwidth_makes_decode_faster() -> None:
    times = [pointed(Ask(gpus=(gpu,)), 1)["decode"].time_s for gpu in ("a100-80gb", "h100", "h200")]
    assert times == sorted(times, reverse=True)
    assert times[1] / times[2] == pytest.approx(4.8 / 3.35, rel=0.01)


@pytest.mark.parametrize("batch", [0, -1, MAX_BATCH + 1])
def test_batches_out_of_range_are_refused(batch: int) -> None:
    with pytest.raises(UsageError) as refused:
        roofline(batches=(batch,))
    assert refused.value.place == "--batch"
    with pytest.raises(UsageError):
        speculate(draft=DraftAsk(batch=batch))


def test_one_length_and_one_precision_at_a_time() -> None:
    for question in (roofline, speculate):
        with pytest.raises(UsageError, match="2 contexts"):
            question(contexts=(1, 2))
        with pytest.raises(UsageError, match="2 KV precisions"):
            question(Ask(kv_dtypes=("bf16", "fp8")))


# speculate


def test_a_named_draft_model_is_priced_and_weighed() -> None:
    result = speculate(Ask(models=("llama3.1-70b",)), DraftAsk(draft_model="llama3.2-1b")).result
    (row,) = result.rows
    assert (result.draft_model, row.method) == ("llama3.2-1b", "draft-model")
    assert "llama3.2-1b" in row.cost_source
    assert 2_471_628_800 in {item.num_bytes for item in result.memory}
    larger = speculate(Ask(models=("llama3.1-70b",)), DraftAsk(draft_model="llama3.1-8b")).result.rows[0]
    assert larger.cost_ratio > row.cost_ratio


def test_methods_are_answered_in_their_order_and_once() -> None:
    rows = speculate(draft=DraftAsk(methods=("ngram", "eagle3", "ngram"))).result.rows
    assert [row.method for row in rows] == ["ngram", "eagle3"]
    assert all(row.acceptance_source and row.cost_source for row in rows)
    with pytest.raises(UsageError):
        speculate(draft=DraftAsk(methods=("guess",)))


def test_mtp_is_offered_by_models_that_have_it() -> None:
    assert "mtp" in {row.method for row in speculate(Ask(models=("deepseek-v3",), num_gpus=8)).result.rows}
    assert "mtp" not in {row.method for row in speculate().result.rows}


@pytest.mark.parametrize("length", [0, -1, 10_000])
def test_draft_lengths_out_of_range_are_refused(length: int) -> None:
    with pytest.raises(UsageError) as refused:
        speculate(draft=DraftAsk(num_draft_tokens=length))
    assert refused.value.place == "--num-draft-tokens"


# lists


def test_lists_hold_what_is_asked_for() -> None:
    everything = models().result.models
    assert len(everything) > 150
    assert len({row.name for row in everything}) == len(everything)
    assert {row.name for row in models(text="QWEN3-30B").result.models} <= {row.name for row in everything}
    assert models(text="no such text").result.models == ()
    assert gpus(text="no such text").result.gpus == ()


def test_figures_of_a_model_agree_in_list_and_entry() -> None:
    (row,) = (row for row in models(text="deepseek-v3").result.models if row.name == "deepseek-v3")
    derived = show("deepseek-ai/DeepSeek-V3").result.derived
    assert derived == {
        "parameters": row.parameters,
        "active_parameters": row.active_parameters,
        "weights_bytes": row.weights_bytes,
        "kv_bytes_per_token": row.kv_bytes_per_token,
    }
    assert row.kv_bytes_per_token == 70_272


def test_figures_of_a_gpu() -> None:
    (row,) = (row for row in gpus(text="h200").result.gpus if row.name == "h200-sxm-141gb")
    assert row.crossover_flop_per_byte == pytest.approx(206, abs=0.5)
    assert row.cuda_total_bytes < row.memory_bytes
    assert (row.price_usd_per_hour is None) == (row.price_date == "")


def test_show_looks_in_the_sections_it_is_told() -> None:
    assert show("h100").result.section == "gpus"
    assert show("llama3-70b").result.section == "models"
    for name, sections in (("h100", ("models",)), ("llama3-70b", ("gpus",)), ("nothing", ("models", "gpus"))):
        with pytest.raises(UnknownName):
            show(name, sections=sections)
