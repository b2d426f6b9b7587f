from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.lowering.ops import (
    COLLECTIVES,
    AttentionIo,
    Decode,
    ElementwiseIo,
    Extent,
    Op,
    OpKind,
    Prefill,
    StepShape,
    mtp_as_model,
    operations,
)
from infcalc.lowering.tensors import inventory, parameters
from infcalc.lowering.work import attended_pairs, chunked_pairs, experts_touched, pooled_pairs
from infcalc.memory.kv import constant_bytes, kv_components, sequence_bytes
from infcalc.memory.weights import weights_per_stage
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    Indexer,
    LatentAttention,
    Layer,
    LayerRun,
    Matrix,
    MoeFeedForward,
    Reach,
    RecurrentKind,
    RecurrentMixer,
    Shard,
)
from infcalc.spec.model import Model
from infcalc.spec.parallelism import Parallelism
from infcalc.spec.weights import TensorRole, WeightQuantization, WeightRule
from tests.roofline.shapes import DEEPSEEK_V3, LLAMA_8B, LLAMA_70B, MISTRAL_7B, MIXTRAL


def decode(context: int, batch: int = 1, new: int = 1) -> StepShape:
    return StepShape(decodes=(Decode(context_tokens=context, num_sequences=batch, new_tokens=new),))


def prefill(new: int, cached: int = 0, batch: int = 1, sampled: int = 1) -> StepShape:
    part = Prefill(new_tokens=new, cached_tokens=cached, num_sequences=batch, sampled_positions=sampled)
    return StepShape(prefills=(part,))


_RECURRENT = RecurrentMixer(
    recurrent=RecurrentKind.GATED_DELTA_NET,
    state_elements=32 * 128 * 128,
    conv_elements=3 * 8192,
    matrices=(Matrix(name="in_proj", rows=12_288, columns=4096, role=TensorRole.RECURRENT, shard=Shard.ROWS),),
)
_EXPERTS = MoeFeedForward(num_experts=8, experts_per_token=2, expert_width=14_336)


def one_layer(mixer: GroupedAttention | LatentAttention | CompressedAttention | RecurrentMixer) -> Model:
    layer = Layer(mixer=mixer, feed_forward=DenseFeedForward(width=512))
    return replace(LLAMA_8B, layers=(LayerRun(num_layers=4, layer=layer),))


def flop(ops: tuple[Op, ...], *kinds: OpKind) -> float:
    return sum(op.flop for op in ops if op.kind in kinds)


def find(ops: tuple[Op, ...], kind: OpKind) -> Op:
    (found,) = (op for op in ops if op.kind is kind)
    return found


def moved(ops: tuple[Op, ...], *kinds: OpKind) -> float:
    return sum(op.activation_bytes for op in ops if op.kind in kinds)


def named(ops: tuple[Op, ...], name: str) -> Op:
    (found,) = (op for op in ops if op.name == name)
    return found


def kv_read(ops: tuple[Op, ...]) -> float:
    return sum(op.kv_read_bytes for op in ops)


def kv_written(ops: tuple[Op, ...]) -> float:
    return sum(op.kv_write_bytes for op in ops)


def weights_read(ops: tuple[Op, ...]) -> float:
    return sum(op.weight_bytes for op in ops)


# --- the masks ---


@given(new=st.integers(1, 40), cached=st.integers(0, 40), window=st.none() | st.integers(1, 50))
def test_pairs_of_causal_and_sliding_attention_are_those_a_mask_lets_through(
    new: int, cached: int, window: int | None
) -> None:
    reach = window or 10**6
    counted = sum(1 for query in range(cached, cached + new) for key in range(query + 1) if query - key < reach)
    assert attended_pairs(new, cached, window) == counted


@given(new=st.integers(1, 40), cached=st.integers(0, 40), chunk=st.integers(1, 50))
def test_pairs_of_chunked_attention_stay_in_the_chunk(new: int, cached: int, chunk: int) -> None:
    counted = sum(
        1 for query in range(cached, cached + new) for key in range(query + 1) if query // chunk == key // chunk
    )
    assert chunked_pairs(new, cached, chunk) == counted


@given(new=st.integers(1, 40), cached=st.integers(0, 40), pool=st.integers(1, 9), limit=st.none() | st.integers(1, 9))
def test_pairs_with_pooled_entries_count_whole_entries_up_to_the_limit(
    new: int, cached: int, pool: int, limit: int | None
) -> None:
    counted = sum(min((query + 1) // pool, limit or 10**6) for query in range(cached, cached + new))
    assert pooled_pairs(new, cached, pool, limit) == counted


# --- matrix multiplications and weights ---


def test_gemm_flop_is_two_per_linear_weight_and_token() -> None:
    counts = parameters(inventory(LLAMA_70B))
    norms = (80 * 2 + 1) * 8192
    linear = counts.total - counts.embedding - counts.lm_head - norms
    ops = operations(LLAMA_70B, prefill(100))
    assert flop(ops, OpKind.GEMM) == 2 * 100 * linear
    assert flop(ops, OpKind.LM_HEAD) == 2 * counts.lm_head


def test_decode_reads_every_weight_once_and_one_embedding_row_per_token() -> None:
    total = sum(tensor.bytes_total for tensor in inventory(LLAMA_70B))
    table = 128_256 * 8192 * 2
    for batch in (1, 64):
        assert weights_read(operations(LLAMA_70B, decode(10, batch))) == total - table + batch * 8192 * 2


@pytest.mark.parametrize("weights", ["awq", "fp8_block", "int8", "mxfp4"])
def test_quantized_weight_traffic_is_that_of_the_inventory(weights: str) -> None:
    quantization = WeightQuantization(format=weights)
    tensors = inventory(LLAMA_8B, quantization)
    linear = sum(tensor.bytes_total for tensor in tensors if tensor.role is not TensorRole.EMBEDDING)
    ops = operations(LLAMA_8B, decode(1), quantization=quantization)
    assert weights_read(ops) - 4096 * 2 == linear
    assert linear < 0.6 * sum(tensor.bytes_total for tensor in inventory(LLAMA_8B))


@pytest.mark.parametrize(
    ("weights", "precision"),
    [("bf16", "bf16"), ("awq", "bf16"), ("fp8", "fp8"), ("int8", "int8"), ("fp8_a16", "bf16"), ("nvfp4", "fp4")],
)
def test_weight_only_formats_compute_in_16_bit(weights: str, precision: str) -> None:
    ops = operations(LLAMA_8B, decode(1), quantization=WeightQuantization(format=weights))
    assert named(ops, "qkv").precision == precision
    assert find(ops, OpKind.LM_HEAD).precision == "bf16"


def test_layers_stored_otherwise_are_their_own_op() -> None:
    rule = WeightRule(layers=(0, 31), format="bf16")
    ops = operations(LLAMA_8B, decode(1), quantization=WeightQuantization(format="fp8", rules=(rule,)))
    halves = [op for op in ops if op.name == "gate_up"]
    assert sorted((op.num_layers, op.precision) for op in halves) == [(2, "bf16"), (30, "fp8")]


def test_head_works_on_sampled_positions_only() -> None:
    assert all(op.kind is not OpKind.LM_HEAD for op in operations(LLAMA_8B, prefill(512, sampled=0)))
    verified = find(operations(LLAMA_8B, decode(100, batch=3, new=5)), OpKind.LM_HEAD)
    assert verified.flop == 2 * 15 * 128_256 * 4096
    assert verified.activation_bytes == 15 * (4096 * 2 + 128_256 * 4)


def test_tied_embeddings_serve_as_head() -> None:
    tied = replace(LLAMA_8B, tied_embeddings=True)
    assert find(operations(tied, decode(1)), OpKind.LM_HEAD) == find(operations(LLAMA_8B, decode(1)), OpKind.LM_HEAD)


def test_input_of_a_fused_projection_is_read_once() -> None:
    ops = operations(LLAMA_8B, prefill(10))
    assert named(ops, "qkv").activation_bytes == 32 * 10 * (4096 + 4096 + 2 * 1024) * 2
    assert named(ops, "gate_up").activation_bytes == 32 * 10 * (4096 + 2 * 14_336) * 2


def test_the_low_rank_of_queries_is_whole_on_every_rank() -> None:
    model = one_layer(GroupedAttention(num_heads=32, num_kv_heads=8, head_dim=128, query_rank=1024))
    whole, rank = (operations(model, decode(5), parallelism=Parallelism(tp=tp)) for tp in (1, 8))
    down = named(rank, "q_a")
    assert down == named(whole, "q_a")
    assert (down.flop, down.weight_bytes) == (4 * 2 * 1024 * 4096, 4 * 2 * 1024 * 4096)
    # The way up again is divided by heads: with keys and values, 2 x 128 rows beside its 512.
    assert named(rank, "qkv").weight_bytes == 4 * 2 * (512 * 1024 + 2 * 128 * 4096)


def test_vectors_are_read_and_multiply_nothing() -> None:
    biased, bare = (
        operations(replace(MIXTRAL, layers=(LayerRun(num_layers=3, layer=layer),)), prefill(100))
        for layer in (
            replace(MIXTRAL.layers[0].layer, feed_forward=replace(_EXPERTS, router_bias=bias)) for bias in (True, False)
        )
    )
    assert sum(op.flop for op in biased) == sum(op.flop for op in bare)
    assert sum(op.activation_bytes for op in biased) == sum(op.activation_bytes for op in bare)
    assert weights_read(biased) - weights_read(bare) == 3 * 8 * 4
    state = TensorRole.RECURRENT_STATE
    small = (
        Matrix(name="A_log", rows=32, role=state),
        Matrix(name="conv1d", rows=8192, columns=4, role=state),
        Matrix(name="D", rows=32, role=TensorRole.OTHER),
    )
    plain = operations(one_layer(_RECURRENT), prefill(100))
    whole = operations(one_layer(replace(_RECURRENT, matrices=(*_RECURRENT.matrices, *small))), prefill(100))
    assert sum(op.flop for op in whole) == sum(op.flop for op in plain)
    assert sum(op.activation_bytes for op in whole) == sum(op.activation_bytes for op in plain)
    assert weights_read(whole) - weights_read(plain) == 4 * (32 + 4 * 8192 + 32) * 2


@pytest.mark.parametrize("model", [LLAMA_70B, DEEPSEEK_V3, MISTRAL_7B, replace(LLAMA_8B, tied_embeddings=True)])
@pytest.mark.parametrize("pp", [1, 3, 4])
def test_stages_do_the_work_of_the_whole(model: Model, pp: int) -> None:
    ranks = Parallelism(tp=2, pp=pp)
    shape = decode(4096, batch=3)
    whole = operations(model, shape, parallelism=ranks)
    stages = [operations(model, shape, parallelism=ranks, stage=stage) for stage in range(pp)]
    for name in ("flop", "total_bytes", "weight_bytes", "num_layers"):
        parts = sum(getattr(op, name) for ops in stages for op in ops)
        assert parts == pytest.approx(sum(getattr(op, name) for op in whole)), name
    kinds = [{op.kind for op in ops} for ops in stages]
    assert [OpKind.EMBEDDING in found for found in kinds] == [True] + [False] * (pp - 1)
    assert [OpKind.LM_HEAD in found for found in kinds] == [False] * (pp - 1) + [True]
    assert all(OpKind.ATTENTION_DECODE in found for found in kinds)


def test_stages_hold_what_memory_says_they_hold() -> None:
    ranks = Parallelism(tp=4, pp=4)
    held = weights_per_stage(LLAMA_70B, ranks)
    table = 128_256 * 8192 * 2 // 4
    read = [weights_read(operations(LLAMA_70B, decode(1), parallelism=ranks, stage=stage)) for stage in range(4)]
    # Of the embedding one row is read.
    assert read == [held[0] - table + 8192 * 2 / 4, *held[1:]]


def test_tensor_parallel_ranks_share_the_work_evenly() -> None:
    whole = operations(LLAMA_70B, decode(4096, 8))
    rank = operations(LLAMA_70B, decode(4096, 8), parallelism=Parallelism(tp=4))
    kinds = (OpKind.GEMM, OpKind.ATTENTION_DECODE, OpKind.LM_HEAD)
    assert flop(whole, *kinds) == 4 * flop(rank, *kinds)
    assert kv_read(whole) == 4 * kv_read(rank)


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    read = [kv_read(operations(LLAMA_70B, decode(100), parallelism=Parallelism(tp=tp))) for tp in (8, 16)]
    assert read[0] == read[1] == 40_960 * 100


def test_decode_context_parallelism_spreads_what_ranks_would_replicate() -> None:
    plain = operations(DEEPSEEK_V3, decode(800), parallelism=Parallelism(tp=8))
    spread = operations(DEEPSEEK_V3, decode(800), parallelism=Parallelism(tp=8, dcp=8))
    assert kv_read(spread) == kv_read(plain) / 8
    assert kv_written(spread) == kv_written(plain) / 8 == 70_272 / 8


# --- attention ---


def test_decode_reads_the_cache_by_kv_heads() -> None:
    # github.com/hahnyuan/LLM-Viewer/issues/12: 0.5 GiB, not the 2 GiB of counting query heads.
    assert kv_read(operations(LLAMA_8B, decode(4096))) == 536_870_912


def test_attention_flop_of_a_decode_step() -> None:
    attention = find(operations(LLAMA_70B, decode(4096)), OpKind.ATTENTION_DECODE)
    assert attention.flop == 80 * 4097 * 2 * 64 * 128 * 2


def test_prefill_in_two_chunks_is_the_work_of_one() -> None:
    whole = operations(LLAMA_8B, prefill(1000))
    first, second = operations(LLAMA_8B, prefill(600, sampled=0)), operations(LLAMA_8B, prefill(400, cached=600))
    for kinds in ((OpKind.GEMM,), (OpKind.ATTENTION_PREFILL,), (OpKind.LM_HEAD,)):
        assert flop(whole, *kinds) == flop(first, *kinds) + flop(second, *kinds)
    assert kv_written(whole) == kv_written(first) + kv_written(second)
    assert kv_read(whole) == 0
    assert kv_read(second) == 600 * 131_072


def test_a_mixed_step_reads_weights_once_and_adds_the_rest() -> None:
    mixed = operations(
        LLAMA_8B, StepShape(prefills=(Prefill(new_tokens=300),), decodes=(Decode(context_tokens=50, num_sequences=7),))
    )
    alone = operations(LLAMA_8B, prefill(300)), operations(LLAMA_8B, decode(50, 7))
    assert sum(op.flop for op in mixed) == sum(op.flop for ops in alone for op in ops)
    assert kv_read(mixed) == kv_read(alone[1])
    assert named(mixed, "down").weight_bytes == named(alone[0], "down").weight_bytes


def test_window_limits_reads_and_pairs() -> None:
    short, long = operations(MISTRAL_7B, decode(1000)), operations(MISTRAL_7B, decode(100_000))
    assert kv_read(short) == 1000 * 131_072
    # The token itself is the last of its window.
    assert kv_read(long) == 4095 * 131_072
    assert kv_read(operations(MISTRAL_7B, prefill(9, cached=100_000))) == 4095 * 131_072
    assert find(long, OpKind.ATTENTION_DECODE).flop == 32 * 4096 * 2 * 32 * 128 * 2


def test_chunked_attention_prefills_exactly_and_decodes_as_if_its_chunk_were_full() -> None:
    mixer = GroupedAttention(num_heads=4, num_kv_heads=4, head_dim=64, reach=Reach.CHUNKED, window_tokens=100)
    model = one_layer(mixer)
    ops = operations(model, prefill(250))
    assert find(ops, OpKind.ATTENTION_PREFILL).flop == 4 * chunked_pairs(250, 0, 100) * 2 * 4 * 128
    assert kv_read(operations(model, prefill(10, cached=130))) == 4 * 30 * 4 * 128 * 2
    assert kv_read(operations(model, decode(300))) == 4 * 99 * 4 * 128 * 2


def test_naive_attention_moves_the_scores_four_times() -> None:
    flash = find(operations(LLAMA_70B, prefill(4096)), OpKind.ATTENTION_PREFILL)
    naive = find(operations(LLAMA_70B, prefill(4096), attention_io=AttentionIo.NAIVE), OpKind.ATTENTION_PREFILL)
    assert naive.activation_bytes - flash.activation_bytes == 4 * 80 * 64 * 4096 * 4096 * 2
    assert flash.activation_bytes == 80 * 4096 * (2 * 64 * 128 + 2 * 8 * 128) * 2
    assert naive.flop == flash.flop


def test_naive_latent_and_compressed_attention_move_their_scores_too() -> None:
    def scores(model: Model, shape: StepShape) -> float:
        naive = operations(model, shape, attention_io=AttentionIo.NAIVE)
        return sum(op.activation_bytes for op in naive) - sum(op.activation_bytes for op in operations(model, shape))

    assert scores(DEEPSEEK_V3, decode(1000, batch=2, new=3)) == 61 * 2 * 4 * 128 * 3 * 1003 * 2
    mixer = CompressedAttention(num_heads=64, entry_dim=512, rope_dim=64, window_tokens=128, compression=4)
    assert scores(one_layer(mixer), decode(4000)) == 4 * 4 * 64 * (127 + 1000 + 1) * 2


@pytest.mark.parametrize("shape", [prefill(7, cached=3), decode(9)])
def test_naive_attention_scores_each_key_once_where_layers_share_a_cache(shape: StepShape) -> None:
    own = GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=64)

    def scores(mixer: GroupedAttention) -> float:
        flash, naive = (operations(one_layer(mixer), shape, attention_io=way) for way in AttentionIo)
        kinds = (OpKind.ATTENTION_PREFILL, OpKind.ATTENTION_DECODE)
        return moved(naive, *kinds) - moved(flash, *kinds)

    assert scores(replace(own, shares_kv=True)) == scores(own) == 4 * 4 * 4 * shape.num_tokens * 10 * 2


def test_sparse_grouped_attention_reads_what_it_selects() -> None:
    indexer = Indexer(num_heads=4, head_dim=128, topk_tokens=2048, pool_tokens=16)
    model = one_layer(GroupedAttention(num_heads=32, num_kv_heads=4, head_dim=128, indexer=indexer))
    ops = operations(model, decode(50_000))
    assert find(ops, OpKind.ATTENTION_DECODE).kv_read_bytes == 4 * 2047 * 4 * 256 * 2
    assert find(ops, OpKind.ATTENTION_DECODE).flop == 4 * 2048 * 2 * 32 * 256
    # One key entry of 132 bytes per 16 tokens.
    assert find(ops, OpKind.INDEXER).kv_read_bytes == 4 * 3125 * 132
    assert find(ops, OpKind.INDEXER).kv_write_bytes == 4 * 132 / 16
    whole = operations(model, prefill(100, cached=50_000))
    assert find(whole, OpKind.ATTENTION_PREFILL).kv_read_bytes == 4 * 50_000 * 4 * 256 * 2


def test_layers_that_share_a_cache_write_none_and_read_the_new_tokens_too() -> None:
    mixer = GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=64, shares_kv=True)
    ops = operations(one_layer(mixer), prefill(7, cached=3))
    assert kv_written(ops) == 0
    assert kv_read(ops) == 4 * 10 * 2 * 128 * 2


def test_latent_attention_decodes_absorbed() -> None:
    ops = operations(DEEPSEEK_V3, decode(1000, 2))
    assert kv_read(ops) == 2 * 1000 * 70_272
    # Queries of 576 in, outputs of 512 out, for each of 128 heads.
    assert moved(ops, OpKind.ATTENTION_DECODE) == 61 * 2 * 128 * (576 + 512) * 2
    assert flop(ops, OpKind.ATTENTION_DECODE) == 61 * 2 * 1001 * 2 * 128 * (512 + 64 + 512)


def test_latent_attention_prefills_expanded_and_expands_its_cached_prefix_again() -> None:
    ops = operations(DEEPSEEK_V3, prefill(100, cached=900))
    assert flop(ops, OpKind.ATTENTION_PREFILL) == 61 * attended_pairs(100, 900) * 2 * 128 * (128 + 64 + 128)
    assert kv_read(ops) == 900 * 70_272
    # Queries and outputs of the new tokens, keys and values of all of them: per head 192 + 128 elements each.
    assert moved(ops, OpKind.ATTENTION_PREFILL) == 61 * (100 + 1000) * 128 * (192 + 128) * 2
    up = [op for op in ops if op.name == "kv_b"]
    assert sum(op.flop for op in up) == 61 * 2 * 1000 * 512 * 128 * (128 + 128)
    assert (
        sum(op.flop for op in operations(DEEPSEEK_V3, decode(900)) if op.name == "kv_b")
        == sum(op.flop for op in up) / 1000
    )


def test_latent_cache_is_whole_on_every_tensor_parallel_rank() -> None:
    rank = operations(DEEPSEEK_V3, decode(1000), parallelism=Parallelism(tp=8))
    assert kv_read(rank) == 1000 * 70_272
    whole = flop(operations(DEEPSEEK_V3, decode(1000)), OpKind.ATTENTION_DECODE)
    assert flop(rank, OpKind.ATTENTION_DECODE) == whole / 8


def test_sparse_attention_reads_the_selected_tokens_and_all_indexer_keys() -> None:
    indexer = Indexer(num_heads=64, head_dim=128, topk_tokens=2048)
    layer = DEEPSEEK_V3.layers[0].layer
    assert isinstance(layer.mixer, LatentAttention)
    model = one_layer(replace(layer.mixer, indexer=indexer))
    ops = operations(model, decode(100_000))
    assert find(ops, OpKind.ATTENTION_DECODE).kv_read_bytes == 4 * 2047 * 576 * 2
    verified = find(operations(model, decode(100_000, new=3)), OpKind.ATTENTION_DECODE)
    assert verified.kv_read_bytes == 4 * 3 * 2047 * 576 * 2
    assert verified.flop == 3 * find(ops, OpKind.ATTENTION_DECODE).flop
    assert find(ops, OpKind.ATTENTION_DECODE).flop == 4 * 2048 * 2 * 128 * (576 + 512)
    scores = find(ops, OpKind.INDEXER)
    assert scores.kv_read_bytes == 4 * 100_000 * 132
    assert scores.flop == 4 * 100_001 * 2 * 64 * 128
    assert scores.activation_bytes == 4 * 64 * 128 * 2
    assert scores.precision == "fp8"
    wide = one_layer(replace(layer.mixer, indexer=replace(indexer, key_bits=16)))
    assert find(operations(wide, decode(1)), OpKind.INDEXER).precision == "bf16"
    assert find(operations(model, decode(100, batch=3, new=2)), OpKind.INDEXER).activation_bytes == 4 * 6 * 64 * 128 * 2
    shared = one_layer(replace(layer.mixer, indexer=replace(indexer, shared=True)))
    assert all(op.kind is not OpKind.INDEXER for op in operations(shared, decode(100_000)))


def test_compressed_attention_reads_its_window_and_the_selected_entries() -> None:
    mixer = CompressedAttention(
        num_heads=64,
        entry_dim=512,
        rope_dim=64,
        window_tokens=128,
        compression=4,
        indexer=Indexer(num_heads=64, head_dim=128, topk_tokens=512, pool_tokens=4),
    )
    ops = operations(one_layer(mixer), decode(40_000))
    attention = find(ops, OpKind.ATTENTION_DECODE)
    assert attention.kv_read_bytes == 4 * (127 + 512) * 1024
    assert attention.flop == 4 * (128 + 512) * 2 * 64 * 2 * 512
    # Queries in and outputs out of 64 heads, and the new entry.
    assert attention.activation_bytes == 4 * (64 + 64 + 1) * 512 * 2
    assert find(ops, OpKind.INDEXER).kv_read_bytes == 4 * 10_000 * 132


def test_recurrent_state_is_read_and_written_once_per_sequence() -> None:
    state_bytes = 32 * 128 * 128 * 4 + 3 * 8192 * 2
    for shape in (decode(50_000, batch=6), prefill(1000, batch=6)):
        ops = operations(one_layer(_RECURRENT), shape)
        assert kv_read(ops) == kv_written(ops) == 4 * 6 * state_bytes
    assert named(operations(one_layer(_RECURRENT), prefill(9)), "in_proj").flop == 4 * 2 * 9 * 12_288 * 4096


@pytest.mark.parametrize(
    ("kind", "flop_per_element"),
    [
        (RecurrentKind.MAMBA1, 5),
        (RecurrentKind.MAMBA2, 5),
        (RecurrentKind.LIGHTNING, 5),
        (RecurrentKind.GATED_DELTA_NET, 7),
        (RecurrentKind.KIMI_DELTA, 7),
    ],
)
def test_a_state_is_decayed_updated_and_read_and_once_more_by_a_delta_rule(
    kind: RecurrentKind, flop_per_element: int
) -> None:
    model = one_layer(replace(_RECURRENT, recurrent=kind))
    update = find(operations(model, decode(1, batch=3)), OpKind.RECURRENT)
    assert update.flop == 4 * 3 * flop_per_element * 32 * 128 * 128
    halved = find(operations(model, decode(1, batch=3), parallelism=Parallelism(tp=2)), OpKind.RECURRENT)
    assert halved.flop == update.flop / 2


@pytest.mark.parametrize("tp", [1, 8, 16])
@pytest.mark.parametrize("kv", ["bf16", "fp8", "int4", "q8_0"])
@pytest.mark.parametrize("model", [LLAMA_70B, MISTRAL_7B, DEEPSEEK_V3, one_layer(_RECURRENT)], ids=lambda m: m.name)
def test_a_decode_step_reads_the_cache_that_memory_holds(model: Model, kv: str, tp: int) -> None:
    ranks = Parallelism(tp=tp)
    parts = kv_components(model, KV_FORMATS[kv], parallelism=ranks)
    for context in (64, 4096, 20_000):
        ops = operations(model, decode(context), parallelism=ranks, kv=KV_FORMATS[kv])
        # With the new token, what falls out of a window makes room for it.
        assert kv_read(ops) + kv_written(ops) == sequence_bytes(parts, context + 1) + constant_bytes(parts)
        grown = sum(float(part.bytes_per_token) for part in parts) + constant_bytes(parts)
        assert kv_written(ops) == pytest.approx(grown)


@pytest.mark.parametrize("kv", ["fp8_ds_mla", "nvfp4_ds_mla"])
def test_latent_records_are_those_of_memory(kv: str) -> None:
    parts = kv_components(DEEPSEEK_V3, KV_FORMATS[kv])
    assert kv_read(operations(DEEPSEEK_V3, decode(640), kv=KV_FORMATS[kv])) == sequence_bytes(parts, 640)


def test_compressed_records_are_those_of_memory() -> None:
    mixer = CompressedAttention(num_heads=64, entry_dim=512, rope_dim=64, window_tokens=128, compression=128)
    model = one_layer(mixer)
    for kv in ("bf16", "fp8_ds_mla"):
        parts = kv_components(model, KV_FORMATS[kv])
        (window,) = (part for part in parts if part.window_tokens is not None)
        read = kv_read(operations(model, decode(12_800), kv=KV_FORMATS[kv]))
        assert read == sequence_bytes(parts, 12_800) - window.entry_bytes


# --- experts ---


def test_touched_experts_lie_between_one_token_and_all() -> None:
    # github.com/inference-sim/inference-sim/pull/561 and github.com/vllm-project/vllm/pull/54228.
    assert [round(float(experts_touched(8, 8, 2, batch)), 2) for batch in (1, 2, 4, 16)] == [2.0, 3.5, 5.47, 7.92]
    assert [round(float(experts_touched(16, 128, 8, tokens)), 2) for tokens in (1, 8, 32)] == [1.0, 6.45, 13.97]


def test_mixture_reads_active_weights_at_batch_one_and_nearly_all_at_sixteen() -> None:
    counts = parameters(inventory(MIXTRAL))
    alone = weights_read(operations(MIXTRAL, decode(1)))
    assert alone == pytest.approx(2 * counts.active_without_embedding + 4096 * 2)
    sixteen = weights_read(operations(MIXTRAL, decode(1, 16)))
    assert sixteen == pytest.approx(2 * (counts.total - counts.embedding) * 0.99, rel=0.01)


def test_mixture_computes_with_the_experts_of_each_token_only() -> None:
    ops = operations(MIXTRAL, prefill(1000))
    assert flop(ops, OpKind.MOE) == 32 * 2 * 1000 * 2 * 3 * 4096 * 14_336
    # Each token goes to two experts: gate and up take 4096 in and 2 x 14,336 out, down the other way round.
    assert moved(ops, OpKind.MOE) == 32 * 1000 * 2 * (4096 + 2 * 14_336 + 14_336 + 4096) * 2
    assert flop(ops, OpKind.ROUTER) == 32 * 2 * 1000 * 8 * 4096


def test_expert_parallel_ranks_hold_whole_experts_and_meet_the_tokens_of_all_attention_ranks() -> None:
    ranks = Parallelism(tp=1, dp=8, ep=8)
    ops = operations(DEEPSEEK_V3, decode(100, 4), parallelism=ranks)
    one_expert = 3 * 7168 * 2048
    assert flop(ops, OpKind.MOE) == 58 * 2 * (4 * 8 * 8 / 8) * one_expert
    read = sum(op.weight_bytes for op in ops if op.kind is OpKind.MOE)
    assert read == pytest.approx(58 * experts_touched(32, 256, 8, 32) * one_expert * 2)


def test_expert_tensor_parallelism_splits_each_expert() -> None:
    whole, rank = (operations(MIXTRAL, decode(1, 4), parallelism=Parallelism(tp=tp)) for tp in (1, 4))
    assert flop(whole, OpKind.MOE) == 4 * flop(rank, OpKind.MOE)
    assert sum(op.weight_bytes for op in whole if op.kind is OpKind.MOE) == pytest.approx(
        4 * sum(op.weight_bytes for op in rank if op.kind is OpKind.MOE)
    )


def test_biases_of_untouched_experts_are_not_read() -> None:
    block = MoeFeedForward(num_experts=128, experts_per_token=4, expert_width=2880, expert_bias=True)
    bare = replace(block, expert_bias=False)
    layer = MIXTRAL.layers[0].layer

    def read(part: MoeFeedForward, batch: int) -> float:
        model = replace(MIXTRAL, layers=(LayerRun(num_layers=1, layer=replace(layer, feed_forward=part)),))
        return find_norms(operations(model, decode(1, batch)))

    def find_norms(ops: tuple[Op, ...]) -> float:
        return named(ops, "norms and biases").weight_bytes

    biases = 128 * (2 * 2880 + 4096) * 2
    assert read(block, 1) - read(bare, 1) == pytest.approx(biases * 4 / 128)
    assert read(block, 10_000) - read(bare, 10_000) == pytest.approx(biases)


# --- elementwise, drafts, errors ---


def test_separate_elementwise_kernels_move_activations() -> None:
    fused = operations(LLAMA_8B, prefill(100))
    apart = operations(LLAMA_8B, prefill(100), elementwise_io=ElementwiseIo.SEPARATE)
    more = sum(op.total_bytes for op in apart) - sum(op.total_bytes for op in fused)
    assert more == 32 * 100 * 2 * (2 * 4 * 4096 + 3 * 14_336)
    assert sum(op.flop for op in apart) == sum(op.flop for op in fused)
    routed = operations(MIXTRAL, prefill(100), elementwise_io=ElementwiseIo.SEPARATE)
    assert find(routed, OpKind.ACTIVATION).activation_bytes == 32 * 100 * 2 * 14_336 * 3 * 2
    shared = operations(DEEPSEEK_V3, decode(1), elementwise_io=ElementwiseIo.SEPARATE, parallelism=Parallelism(tp=8))
    assert moved(shared, OpKind.ACTIVATION) == (3 * 18_432 + 58 * 9 * 2048) / 8 * 3 * 2


def test_multi_token_prediction_layer_is_a_model_of_one_layer() -> None:
    draft = mtp_as_model(DEEPSEEK_V3)
    assert draft is not None
    assert draft.num_layers == 1
    ops = operations(draft, decode(100))
    assert kv_read(ops) == 100 * 1152
    assert find(ops, OpKind.LM_HEAD).flop == 2 * 129_280 * 7168
    assert mtp_as_model(LLAMA_8B) is None


def test_multi_token_prediction_keeps_the_rules_of_its_own_layer() -> None:
    rules = (WeightRule(layers=(61,), format="bf16"), WeightRule(layers=(0,), format="fp32"))
    model = replace(DEEPSEEK_V3, quantization=WeightQuantization(format="fp8", rules=rules))
    draft = mtp_as_model(model)
    assert draft is not None
    assert named(operations(draft, decode(1)), "o").precision == "bf16"
    assert {op.precision for op in operations(model, decode(1)) if op.name == "o"} == {"fp32", "fp8"}


@pytest.mark.parametrize(
    ("prefills", "decodes"),
    [
        ((), ()),
        ((Prefill(new_tokens=0),), ()),
        ((Prefill(new_tokens=1, cached_tokens=-1),), ()),
        ((), (Decode(context_tokens=1, num_sequences=0),)),
    ],
)
def test_impossible_steps_are_refused(prefills: tuple[Prefill, ...], decodes: tuple[Decode, ...]) -> None:
    with pytest.raises(UsageError, match="at least one token"):
        StepShape(prefills=prefills, decodes=decodes)


# --- what an engine adds: sampling and messages between ranks ---


def engine(model: Model, shape: StepShape, ranks: Parallelism, weights: str | None = None) -> tuple[Op, ...]:
    quantization = None if weights is None else WeightQuantization(format=weights)
    return operations(model, shape, parallelism=ranks, quantization=quantization, extent=Extent.ENGINE)


def messages(ops: tuple[Op, ...]) -> dict[str, tuple[OpKind, int, int, float]]:
    return {op.name: (op.kind, op.num_layers, op.num_ranks, op.message_bytes) for op in ops if op.kind in COLLECTIVES}


@pytest.mark.parametrize("ranks", [Parallelism(), Parallelism(tp=2, dp=2, ep=4), Parallelism(tp=2, pp=2)])
@pytest.mark.parametrize("model", [LLAMA_70B, DEEPSEEK_V3])
def test_the_roofline_has_no_messages_and_no_sampling(model: Model, ranks: Parallelism) -> None:
    if model is LLAMA_70B:
        ranks = replace(ranks, ep=1)
    shape = decode(100, 4)
    ideal = operations(model, shape, parallelism=ranks)
    added = engine(model, shape, ranks)
    rest = tuple(op for op in added if op.kind not in COLLECTIVES | {OpKind.SAMPLING, OpKind.MOE})
    assert rest == tuple(op for op in ideal if op.kind is not OpKind.MOE)
    assert {op.message_bytes for op in ideal} == {0}
    assert all(op.total_bytes == op.flop == 0 for op in added if op.kind in COLLECTIVES)


def test_tensor_parallel_ranks_add_up_twice_per_layer() -> None:
    assert messages(engine(LLAMA_70B, decode(100, 4), Parallelism())) == {}
    hidden = 4 * 8192 * 2
    assert messages(engine(LLAMA_70B, decode(100, 4), Parallelism(tp=8))) == {
        "all-reduce of embedding": (OpKind.ALL_REDUCE, 1, 8, hidden),
        "all-reduce of mixers": (OpKind.ALL_REDUCE, 80, 8, hidden),
        "all-reduce of feed-forward": (OpKind.ALL_REDUCE, 80, 8, hidden),
        "all-gather of logits": (OpKind.ALL_GATHER, 1, 8, 4 * 128_256 * 2),
    }
    padded = messages(engine(replace(LLAMA_70B, vocab_size=128_001), decode(1), Parallelism(tp=8)))
    assert padded["all-gather of logits"][3] == 128_064 * 2
    chunk = messages(engine(LLAMA_70B, prefill(512, sampled=0), Parallelism(tp=8)))
    assert set(chunk) == {"all-reduce of embedding", "all-reduce of mixers", "all-reduce of feed-forward"}
    assert chunk["all-reduce of mixers"][3] == 512 * 8192 * 2


def test_expert_parallel_ranks_with_the_same_tokens_only_add_up() -> None:
    found = messages(engine(DEEPSEEK_V3, decode(100, 4), Parallelism(tp=8, ep=8)))
    assert {kind for kind, *_ in found.values()} == {OpKind.ALL_REDUCE, OpKind.ALL_GATHER}
    assert found["all-reduce of feed-forward"] == (OpKind.ALL_REDUCE, 58, 8, 4 * 7168 * 2)


@pytest.mark.parametrize(("weights", "there"), [("bf16", 7168 * 2), ("fp8_block", 7168 + 7168 // 128 * 4)])
def test_tokens_of_attention_ranks_travel_to_their_experts_and_back(weights: str, there: int) -> None:
    found = messages(engine(DEEPSEEK_V3, decode(100, 16), Parallelism(dp=16, ep=16), weights))
    assert found == {
        "dispatch to experts": (OpKind.ALL_TO_ALL, 58, 16, 16 * 8 * there),
        "combine of experts": (OpKind.ALL_TO_ALL, 58, 16, 16 * 8 * 7168 * 2),
    }
    # Ranks of a tensor-parallel group share the tokens, and collect the whole.
    shared = messages(engine(DEEPSEEK_V3, decode(100, 16), Parallelism(tp=4, dp=4, ep=16), weights))
    assert shared["dispatch to experts"] == (OpKind.ALL_TO_ALL, 58, 16, 4 * 8 * there)
    assert shared["all-gather of experts"] == (OpKind.ALL_GATHER, 58, 4, 16 * 7168 * 2)


@pytest.mark.parametrize("ep", [1, 4])
def test_experts_of_attention_ranks_in_one_machine_meet_all_tokens(ep: int) -> None:
    found = messages(engine(MIXTRAL, decode(100, 16), Parallelism(dp=4, ep=ep)))
    everything = (32, 4, 4 * 16 * 4096 * 2)
    assert found == {
        "all-gather for experts": (OpKind.ALL_GATHER, *everything),
        "reduce-scatter of experts": (OpKind.REDUCE_SCATTER, *everything),
    }


def test_each_stage_but_the_last_sends_its_hidden_states() -> None:
    ranks = Parallelism(tp=2, pp=4)
    whole = messages(engine(LLAMA_70B, decode(100, 4), ranks))
    assert whole["send to the next stage"] == (OpKind.SEND, 3, 2, 4 * 8192 * 2)
    per_stage = [
        messages(operations(LLAMA_70B, decode(100, 4), parallelism=ranks, extent=Extent.ENGINE, stage=stage))
        for stage in range(4)
    ]
    assert ["send to the next stage" in found for found in per_stage] == [True, True, True, False]


def test_sampling_reads_the_logits_of_sampled_positions() -> None:
    sampling = find(engine(LLAMA_70B, decode(100, 4, new=3), Parallelism(tp=8)), OpKind.SAMPLING)
    assert sampling.activation_bytes == 12 * 128_256 * (2 + 4 + 4)
    # Widened in one kernel, searched in the next.
    assert sampling.num_kernels == 2
    chunk = engine(LLAMA_70B, prefill(512, sampled=0), Parallelism())
    assert all(op.kind is not OpKind.SAMPLING for op in chunk)


def test_engines_run_routed_experts_as_one_op() -> None:
    def made(model: Model, extent: Extent) -> tuple[Op, ...]:
        return operations(model, decode(100, 7), elementwise_io=ElementwiseIo.SEPARATE, extent=extent)

    apart, joined = (made(DEEPSEEK_V3, extent) for extent in Extent)
    whole = find(joined, OpKind.MOE)
    parts = [op for op in apart if op.kind is OpKind.MOE]
    assert (whole.name, [op.name for op in parts]) == ("experts", ["experts.gate_up", "experts.down"])
    for name in ("flop", "weight_bytes", "activation_bytes"):
        assert getattr(whole, name) == pytest.approx(sum(getattr(op, name) for op in parts), rel=1e-12)
    assert whole.tokens == parts[0].tokens
    # What lies between the multiplications is theirs; that of shared experts is not.
    assert moved(joined, OpKind.ACTIVATION) == 7 * (3 * 18_432 + 58 * 2048) * 3 * 2
    assert moved(made(MIXTRAL, Extent.ENGINE), OpKind.ACTIVATION) == 0


def test_experts_stored_in_two_ways_are_two_ops() -> None:
    rule = WeightRule(roles=(TensorRole.EXPERT,), names=("down",), format="bf16")
    quantization = WeightQuantization(format="fp8", rules=(rule,))
    ops = operations(MIXTRAL, decode(100, 7), quantization=quantization, extent=Extent.ENGINE)
    assert [op.precision for op in ops if op.kind is OpKind.MOE] == ["fp8", "bf16"]


def test_ops_say_what_fills_their_kernels() -> None:
    ops = operations(DEEPSEEK_V3, prefill(100, cached=900, batch=3), elementwise_io=ElementwiseIo.SEPARATE)
    assert named(ops, "lm_head").tokens == 3
    assert {op.tokens for op in ops if op.name == "o"} == {300}
    assert {op.tokens for op in ops if op.name == "kv_b"} == {300 + 3 * 900}
    assert {op.tokens for op in ops if op.kind is OpKind.ATTENTION_PREFILL} == {100}
    assert named(ops, "experts.down").tokens == pytest.approx(300 * 8 / experts_touched(256, 256, 8, 300))
    # Two norms of the layer, one of queries and one of the latent.
    assert {op.num_kernels for op in ops if op.name == "norms and biases"} == {4}
    biased = replace(LLAMA_8B.layers[0].layer, norm_bias=True)
    model = replace(LLAMA_8B, layers=(LayerRun(num_layers=2, layer=biased),))
    assert (
        named(operations(model, decode(1), elementwise_io=ElementwiseIo.SEPARATE), "norms and biases").num_kernels == 2
    )
    twice = one_layer(replace(_RECURRENT, matrices=(replace(_RECURRENT.matrices[0], copies=2),)))
    assert named(operations(twice, decode(1)), "in_proj").num_kernels == 2
    assert find(operations(twice, decode(1)), OpKind.RECURRENT).weight_bits == 32
    grouped = operations(LLAMA_70B, decode(100, 5), parallelism=Parallelism(tp=4))
    assert find(grouped, OpKind.ATTENTION_DECODE).tokens == 5 * 2


@pytest.mark.parametrize(
    ("weights", "bits", "block_scaled"),
    [("bf16", 16, False), ("awq", 4, False), ("fp8", 8, False), ("fp8_block", 8, True), ("q4_k", 4, False)],
)
def test_ops_say_how_wide_their_weights_are(weights: str, bits: int, block_scaled: bool) -> None:
    ops = operations(LLAMA_8B, decode(1), kv=KV_FORMATS["fp8"], quantization=WeightQuantization(format=weights))
    assert (named(ops, "down").weight_bits, named(ops, "down").block_scaled) == (bits, block_scaled)
    assert find(ops, OpKind.ATTENTION_DECODE).weight_bits == 8
