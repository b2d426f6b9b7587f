from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.lowering.cache import ungrouped_entry_bytes
from infcalc.memory.kv import (
    KvKind,
    constant_bytes,
    grouped_bytes_per_token,
    kv_components,
    mha_bytes_per_token,
    sequence_bytes,
    slope_bytes_per_token,
)
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    Indexer,
    LatentAttention,
    Layer,
    LayerRun,
    Mixer,
    Reach,
    RecurrentKind,
    RecurrentMixer,
)
from infcalc.spec.model import Model, MultiTokenPrediction
from infcalc.spec.parallelism import Parallelism
from tests.shipped import shipped

BF16 = KV_FORMATS["bf16"]
FP8 = KV_FORMATS["fp8"]


def model(*runs: tuple[int, Mixer | None]) -> Model:
    return Model(
        name="test",
        architecture="test",
        hidden_size=4096,
        vocab_size=32000,
        layers=tuple(
            LayerRun(num_layers=count, layer=Layer(mixer=mixer, feed_forward=DenseFeedForward(width=64)))
            for count, mixer in runs
        ),
    )


LLAMA3_70B = model((80, GroupedAttention(num_heads=64, num_kv_heads=8, head_dim=128)))
MLA = LatentAttention(
    num_heads=128, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, value_head_dim=128, q_lora_rank=1536
)
DEEPSEEK_V3 = model((61, MLA))
MISTRAL_7B = model(
    (32, GroupedAttention(num_heads=32, num_kv_heads=8, head_dim=128, reach=Reach.SLIDING, window_tokens=4096))
)


def test_llama3_70b_is_exact_at_every_context_of_the_issue() -> None:
    parts = kv_components(LLAMA3_70B, BF16)
    assert slope_bytes_per_token(parts) == 327_680
    assert sequence_bytes(parts, 4_096) == 1_342_177_280
    assert sequence_bytes(parts, 131_072) == 42_949_672_960
    assert mha_bytes_per_token(LLAMA3_70B, BF16) == 8 * 327_680


def test_mla_caches_one_latent_with_its_rope_part_on_every_tp_rank() -> None:
    assert slope_bytes_per_token(kv_components(DEEPSEEK_V3, BF16)) == 70_272
    assert slope_bytes_per_token(kv_components(DEEPSEEK_V3, BF16, parallelism=Parallelism(tp=8))) == 70_272
    assert slope_bytes_per_token(kv_components(DEEPSEEK_V3, FP8)) == 35_136
    assert slope_bytes_per_token(kv_components(DEEPSEEK_V3, KV_FORMATS["fp8_ds_mla"])) == 40_016
    assert slope_bytes_per_token(kv_components(DEEPSEEK_V3, KV_FORMATS["nvfp4_ds_mla"])) == 61 * 352
    assert mha_bytes_per_token(DEEPSEEK_V3, BF16) == 4_997_120


def test_indexer_keys_are_fp8_with_a_scale_whatever_the_kv_format() -> None:
    with_indexer = model((61, replace(MLA, indexer=Indexer(num_heads=64, head_dim=128, topk_tokens=2048))))
    assert slope_bytes_per_token(kv_components(with_indexer, KV_FORMATS["fp8_ds_mla"])) == 48_068
    assert slope_bytes_per_token(kv_components(with_indexer, BF16)) == 61 * 1284
    shared = replace(MLA, indexer=Indexer(num_heads=64, head_dim=128, topk_tokens=2048, shared=True))
    assert slope_bytes_per_token(kv_components(model((61, shared)), BF16)) == 70_272


def test_a_sliding_window_saturates() -> None:
    parts = kv_components(MISTRAL_7B, BF16)
    assert slope_bytes_per_token(parts) == 0
    assert parts[0].bytes_per_token == 131_072
    assert sequence_bytes(parts, 4_096) == 131_072 * 4_096
    assert sequence_bytes(parts, 4_097) == sequence_bytes(parts, 10**9) == sequence_bytes(parts, 4_096)
    assert sequence_bytes(parts, 4_095) == sequence_bytes(parts, 4_096) - 131_072
    assert parts[0].max_bytes == 131_072 * 4_096


def test_kv_heads_are_replicated_when_tp_exceeds_them() -> None:
    per_rank = {
        tp: slope_bytes_per_token(kv_components(LLAMA3_70B, BF16, parallelism=Parallelism(tp=tp))) for tp in (1, 8, 16)
    }
    assert per_rank == {1: 327_680, 8: 40_960, 16: 40_960}


def test_recurrent_state_is_constant_and_divided_by_tp() -> None:
    mixer = RecurrentMixer(
        recurrent=RecurrentKind.GATED_DELTA_NET, state_elements=524_288, conv_elements=24_576, state_bits=32
    )
    hybrid = model((36, mixer), (12, GroupedAttention(num_heads=16, num_kv_heads=2, head_dim=256)))
    parts = kv_components(hybrid, BF16)
    # Qwen3-Next-80B-A3B: 12 full layers, 36 recurrent ones with fp32 state and bf16 convolution.
    assert (slope_bytes_per_token(parts), constant_bytes(parts)) == (24_576, 77_266_944)
    assert sequence_bytes(parts, 100) == 24_576 * 100 + 77_266_944
    halved = kv_components(hybrid, BF16, parallelism=Parallelism(tp=2))
    assert constant_bytes(halved) == 77_266_944 // 2


def test_compressed_attention_keeps_a_window_and_one_entry_per_chunk() -> None:
    # DeepSeek-V4-Flash: 2 layers of window only, 21 of one entry per 4 tokens, 20 of one per 128.
    def layer(compression: int) -> CompressedAttention:
        indexer = Indexer(num_heads=64, head_dim=128, topk_tokens=512, pool_tokens=4) if compression == 4 else None
        return CompressedAttention(
            num_heads=64, entry_dim=512, rope_dim=64, window_tokens=128, compression=compression, indexer=indexer
        )

    flash = model((2, layer(0)), (21, layer(4)), (20, layer(128)))
    parts = kv_components(flash, BF16)
    compressed = [part for part in parts if part.kind is KvKind.COMPRESSED]
    assert sum(part.slope_bytes_per_token for part in compressed) == 5_536
    assert [part.max_bytes for part in parts if part.kind is KvKind.SLIDING] == [5_636_096]
    assert [part.slope_bytes_per_token for part in parts if part.kind is KvKind.INDEXER] == [21 * 33]
    # 584-byte records of vLLM in fp8_ds_mla: 146 bytes per token at a compression of 4.
    packed = kv_components(flash, KV_FORMATS["fp8_ds_mla"])
    assert [
        part.slope_bytes_per_token for part in packed if part.tokens_per_entry == 4 and part.kind is KvKind.COMPRESSED
    ] == [21 * 146]


def test_layers_that_share_a_cache_have_none_of_their_own() -> None:
    own = GroupedAttention(num_heads=8, num_kv_heads=1, head_dim=256)
    assert slope_bytes_per_token(kv_components(model((3, own), (20, replace(own, shares_kv=True))), BF16)) == 3 * 1024


def test_mtp_layers_count_only_when_speculation_is_on() -> None:
    layer = Layer(mixer=MLA, feed_forward=DenseFeedForward(width=64))
    with_mtp = replace(DEEPSEEK_V3, mtp=MultiTokenPrediction(num_layers=1, layer=layer))
    assert slope_bytes_per_token(kv_components(with_mtp, BF16)) == 70_272
    assert slope_bytes_per_token(kv_components(with_mtp, BF16, with_mtp=True)) == 70_272 + 1_152


@pytest.mark.parametrize(
    ("name", "expected"),
    [("int8", 163_840), ("int4", 87_040), ("nvfp4", 92_160), ("q8_0", 174_080), ("q4_0", 92_160), ("fp16", 327_680)],
)
def test_formats_pay_for_their_scales(name: str, expected: int) -> None:
    # int4: 4.25 bits with a 16-bit scale per 64 elements; q8_0: 34 bytes per 32; q4_0: 18 per 32; nvfp4: 4.5 bits.
    assert slope_bytes_per_token(kv_components(LLAMA3_70B, KV_FORMATS[name])) == expected


def test_q8_0_matches_a_llama_cpp_log_for_deepseek() -> None:
    # UC-076, ik_llama.cpp pull 259: 1,166.62 MiB at 32,768 tokens.
    assert sequence_bytes(kv_components(DEEPSEEK_V3, KV_FORMATS["q8_0"]), 32_768) == 1_223_294_976


def test_a_latent_format_without_latents_is_refused() -> None:
    with pytest.raises(UsageError, match="no latent attention"):
        kv_components(LLAMA3_70B, KV_FORMATS["fp8_ds_mla"])


@given(tokens=st.integers(0, 10**7), more=st.integers(0, 10**5))
def test_bytes_are_linear_until_the_window_and_never_fall(tokens: int, more: int) -> None:
    parts = kv_components(MISTRAL_7B, BF16)
    grown = sequence_bytes(parts, tokens + more) - sequence_bytes(parts, tokens)
    assert grown == 131_072 * (min(tokens + more, 4096) - min(tokens, 4096))


@given(pp=st.integers(1, 80), tokens=st.integers(1, 10**6))
def test_pipeline_stages_sum_to_the_whole(pp: int, tokens: int) -> None:
    stages = [kv_components(LLAMA3_70B, BF16, parallelism=Parallelism(pp=pp), stage=stage) for stage in range(pp)]
    assert sum(sequence_bytes(parts, tokens) for parts in stages) == 327_680 * tokens


def test_mtp_layers_lie_on_the_last_stage_each_with_its_cache() -> None:
    layer = Layer(mixer=MLA, feed_forward=DenseFeedForward(width=64))
    three = replace(DEEPSEEK_V3, mtp=MultiTokenPrediction(num_layers=3, layer=layer))
    ranks = Parallelism(pp=4)
    parts = [kv_components(three, BF16, parallelism=ranks, stage=stage, with_mtp=True) for stage in range(4)]
    assert [sum(part.layers for part in stage if part.mtp) for stage in parts] == [0, 0, 0, 3]
    assert [slope_bytes_per_token(stage) for stage in parts] == [layers * 1_152 for layers in (15, 15, 16, 15 + 3)]
    assert slope_bytes_per_token(kv_components(three, BF16, with_mtp=True)) == 70_272 + 3 * 1_152


COMPRESSED = CompressedAttention(num_heads=64, entry_dim=512, rope_dim=64, window_tokens=128, compression=4)


@pytest.mark.parametrize(
    ("mixer", "kv", "expected"),
    [
        # 64 heads x (128 + 128) x 2 bytes; with values half as wide; with a scale of 2 bytes per 32 elements of each.
        (GroupedAttention(num_heads=64, num_kv_heads=8, head_dim=128), "bf16", 64 * 512),
        (GroupedAttention(num_heads=64, num_kv_heads=8, head_dim=128, value_head_dim=64), "bf16", 64 * 384),
        (GroupedAttention(num_heads=64, num_kv_heads=8, head_dim=128, value_head_dim=64), "q8_0", 64 * (136 + 68)),
        (GroupedAttention(num_heads=64, num_kv_heads=8, head_dim=128, shares_kv=True), "bf16", 0),
        (MLA, "bf16", 128 * (192 + 128) * 2),
        (COMPRESSED, "bf16", 64 * 2 * 512 * 2),
        (RecurrentMixer(recurrent=RecurrentKind.MAMBA2, state_elements=64), "bf16", 0),
    ],
)
def test_every_head_with_its_own_keys_and_values(mixer: Mixer, kv: str, expected: int) -> None:
    assert mha_bytes_per_token(model((3, mixer)), KV_FORMATS[kv]) == 3 * expected
    assert ungrouped_entry_bytes(mixer, KV_FORMATS[kv]) == expected
    assert ungrouped_entry_bytes(None, KV_FORMATS[kv]) == 0


def test_value_heads_of_another_width_are_cached_at_that_width() -> None:
    mixer = GroupedAttention(num_heads=16, num_kv_heads=4, head_dim=192, value_head_dim=128)
    assert slope_bytes_per_token(kv_components(model((5, mixer)), BF16)) == 5 * 4 * (192 + 128) * 2
    assert slope_bytes_per_token(kv_components(model((5, mixer)), BF16, parallelism=Parallelism(tp=2))) == 5 * 2 * 640


def test_the_saving_against_every_head_leaves_indexer_keys_out_and_windows_in() -> None:
    indexer = Indexer(num_heads=64, head_dim=128, topk_tokens=2048)
    parts = kv_components(model((61, replace(MLA, indexer=indexer))), BF16)
    assert grouped_bytes_per_token(parts) == 70_272
    assert slope_bytes_per_token(parts) == 70_272 + 61 * 132
    assert grouped_bytes_per_token(kv_components(MISTRAL_7B, BF16)) == 131_072


def test_only_whole_entries_of_compressed_attention_are_held() -> None:
    parts = [part for part in kv_components(model((2, COMPRESSED)), BF16) if part.kind is KvKind.COMPRESSED]
    assert [sequence_bytes(parts, tokens) for tokens in (0, 3, 4, 7, 8)] == [2 * 1024 * n for n in (0, 0, 1, 1, 2)]
    assert sequence_bytes(parts, 4_000_003) == 2 * 1024 * 1_000_000


def test_a_window_keeps_the_tokens_in_flight_beside_it() -> None:
    parts = kv_components(MISTRAL_7B, BF16)
    assert sequence_bytes(parts, 10_000, in_flight_tokens=2048) == 131_072 * (4096 + 2048)
    assert sequence_bytes(parts, 5_000, in_flight_tokens=2048) == 131_072 * 5_000
    full = kv_components(LLAMA3_70B, BF16)
    assert sequence_bytes(full, 10_000, in_flight_tokens=2048) == sequence_bytes(full, 10_000)


def test_bytes_per_token_are_whole_wherever_they_can_be() -> None:
    assert isinstance(slope_bytes_per_token(kv_components(shipped("llama3-8b"), KV_FORMATS["bf16"])), int)
    parts = kv_components(shipped("deepseek-v4-flash"), KV_FORMATS["fp8_ds_mla"])
    assert slope_bytes_per_token(parts) == 21 * 584 / 4 + 20 * 584 / 128 + 21 * 132 / 4
    (whole,) = (part for part in parts if part.kind is KvKind.INDEXER)
    assert isinstance(whole.bytes_per_token, int)
