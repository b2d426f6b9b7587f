from __future__ import annotations

from dataclasses import replace

import pytest

from infcalc.errors import UsageError
from infcalc.lowering.tensors import (
    Tensor,
    check_divisible,
    inventory,
    padded_vocabulary,
    parameters,
    storage_bytes,
)
from infcalc.spec.layers import (
    DenseFeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    LayerRun,
    Matrix,
    MoeFeedForward,
    QkNorm,
    Shard,
)
from infcalc.spec.model import Model, MultiTokenPrediction
from infcalc.spec.parallelism import Parallelism
from infcalc.spec.weights import WEIGHT_FORMATS, TensorRole, WeightQuantization, WeightRule, weight_format
from tests.shipped import names, shipped

ATTENTION = GroupedAttention(num_heads=8, num_kv_heads=2, head_dim=16)
DENSE = Layer(mixer=ATTENTION, feed_forward=DenseFeedForward(width=384))
SPARSE = Layer(
    mixer=ATTENTION,
    feed_forward=MoeFeedForward(
        num_experts=16, experts_per_token=4, expert_width=64, shared_width=96, shared_gate=True
    ),
)


def small(*layers: Layer, **changes: object) -> Model:
    model = Model(
        name="small",
        architecture="test",
        hidden_size=128,
        vocab_size=1000,
        layers=tuple(LayerRun(num_layers=1, layer=layer) for layer in layers or (DENSE, DENSE)),
    )
    return replace(model, **changes)  # type: ignore[arg-type]


def by_name(tensors: tuple[Tensor, ...], name: str) -> Tensor:
    (found,) = (tensor for tensor in tensors if tensor.name == name)
    return found


def test_every_tensor_of_a_dense_model_by_hand() -> None:
    shapes = {t.name: (t.rows, t.columns, t.copies, len(t.layers)) for t in inventory(small())}
    assert shapes == {
        "embedding": (1000, 128, 1, 0),
        "final_norm": (128, 1, 1, 0),
        "lm_head": (1000, 128, 1, 0),
        "q": (128, 128, 1, 2),
        "k": (32, 128, 1, 2),
        "v": (32, 128, 1, 2),
        "o": (128, 128, 1, 2),
        "gate": (384, 128, 1, 2),
        "up": (384, 128, 1, 2),
        "down": (128, 384, 1, 2),
        "norm": (128, 1, 2, 2),
    }


def test_experts_are_active_only_as_far_as_a_token_uses_them() -> None:
    tensors = inventory(small(SPARSE))
    gate = by_name(tensors, "experts.gate")
    assert (gate.copies, gate.active_copies) == (16, 4)
    counts = parameters(tensors)
    assert counts.total - counts.active == 3 * 64 * 128 * (16 - 4)
    assert counts.active - counts.active_without_embedding == 1000 * 128
    assert by_name(tensors, "shared_gate").parameters == 128
    assert by_name(tensors, "router").parameters == 16 * 128


def test_tied_embeddings_are_active_because_they_are_the_head() -> None:
    counts = parameters(inventory(small(tied_embeddings=True)))
    assert counts.lm_head == 0
    assert counts.active_without_embedding == counts.active


def test_variants_of_grouped_attention_by_hand() -> None:
    mixer = replace(
        ATTENTION,
        qkv_bias=True,
        output_bias=True,
        qk_norm=QkNorm.FULL,
        output_gate=True,
        value_head_dim=8,
        query_rank=4,
    )
    shapes = {t.name: (t.rows, t.columns) for t in inventory(small(Layer(mixer=mixer, num_norms=0)))}
    assert shapes["q_a"] == (4, 128)
    assert shapes["q"] == (256, 4)
    assert shapes["v"] == (16, 128)
    assert shapes["o"] == (128, 64)
    assert (shapes["q.bias"], shapes["k.bias"], shapes["v.bias"], shapes["o.bias"]) == (
        (256, 1),
        (32, 1),
        (16, 1),
        (128, 1),
    )
    assert (shapes["q_norm"], shapes["k_norm"]) == ((128, 1), (32, 1))


def test_layers_that_share_a_cache_have_no_key_and_value_weights() -> None:
    mixer = replace(ATTENTION, shares_kv=True, qk_norm=QkNorm.PER_HEAD)
    found = {t.name for t in inventory(small(Layer(mixer=mixer)))}
    assert {"q", "o", "q_norm"} <= found
    assert not {"k", "v", "k_norm"} & found
    keys_serve = {t.name for t in inventory(small(Layer(mixer=replace(ATTENTION, value_from_key=True))))}
    assert "k" in keys_serve
    assert "v" not in keys_serve


def test_latent_attention_by_hand() -> None:
    mixer = LatentAttention(
        num_heads=4, kv_lora_rank=32, q_lora_rank=48, qk_nope_head_dim=16, qk_rope_head_dim=8, value_head_dim=12
    )
    tensors = inventory(small(Layer(mixer=mixer)))
    shapes = {t.name: (t.rows, t.columns, t.shard) for t in tensors}
    assert shapes["q_a"] == (48, 128, Shard.REPLICATED)
    assert shapes["q_b"] == (96, 48, Shard.ROWS)
    assert shapes["kv_a"] == (40, 128, Shard.REPLICATED)
    assert shapes["kv_b"] == (112, 32, Shard.ROWS)
    assert shapes["o"] == (128, 48, Shard.COLUMNS)
    plain = {t.name: (t.rows, t.columns) for t in inventory(small(Layer(mixer=replace(mixer, q_lora_rank=None))))}
    assert plain["q"] == (96, 128)
    assert "q_a" not in plain


def test_mtp_layers_come_only_when_asked_for_and_after_the_decoder() -> None:
    extras = (Matrix(name="projection", rows=128, columns=256),)
    model = small(mtp=MultiTokenPrediction(num_layers=1, layer=SPARSE, extras=extras))
    assert not [t for t in inventory(model) if t.mtp]
    found = [t for t in inventory(model, with_mtp=True) if t.mtp]
    assert {t.layers for t in found} == {(2,)}
    assert {"mtp.q", "mtp.experts.up", "mtp.projection"} <= {t.name for t in found}


@pytest.mark.parametrize(
    ("form", "low", "high"),
    [
        ("bf16", 16, 16),
        ("fp8", 8, 8.001),
        ("fp8_block", 8.0019, 8.003),
        ("awq", 4.156, 4.157),
        ("int4_g128", 4.125, 4.125),
        ("int4_g32", 4.5, 4.5),
        ("gptq", 4.156, 4.18),
        ("mxfp4", 4.25, 4.25),
        ("nvfp4", 4.5, 4.501),
        ("q4_k", 4.5, 4.5),
        ("q8_0", 8.5, 8.5),
    ],
)
def test_stored_bits_per_element_with_scales(form: str, low: float, high: float) -> None:
    rows = columns = 4096
    bits = storage_bytes(rows, columns, weight_format(form)) * 8 / (rows * columns)
    assert low <= bits <= high


def test_groups_at_the_edge_count_in_full() -> None:
    form = WEIGHT_FORMATS["fp8_block"]
    assert storage_bytes(129, 128, form) - 129 * 128 == 2 * storage_scale(form)
    assert storage_bytes(128, 128, form) - 128 * 128 == storage_scale(form)


def storage_scale(form: object) -> int:
    return storage_bytes(1, 1, form) - 1  # type: ignore[arg-type]


def test_only_linear_roles_are_quantized() -> None:
    tensors = inventory(small(SPARSE), WeightQuantization(format="int8"))
    wide = {t.name for t in tensors if t.format.name == "bf16"}
    assert wide == {"embedding", "lm_head", "final_norm", "norm", "router", "shared_gate"}


def test_a_float_type_asked_for_holds_for_everything() -> None:
    tensors = inventory(small(dtype="fp32"), WeightQuantization(format="bf16"))
    assert {t.format.name for t in tensors} == {"bf16"}
    assert {t.format.name for t in inventory(small(dtype="fp32"))} == {"fp32"}


def test_the_first_rule_that_matches_wins_and_rules_of_layers_split_entries() -> None:
    quantization = WeightQuantization(
        format="int8",
        rules=(
            WeightRule(layers=(0,), format="bf16"),
            WeightRule(roles=(TensorRole.FEED_FORWARD,), names=("down",), format="fp8"),
            WeightRule(roles=(TensorRole.LM_HEAD,), format="int8"),
        ),
    )
    tensors = inventory(small(DENSE, DENSE, DENSE), quantization)
    found = {(t.name, t.layers): t.format.name for t in tensors}
    assert found["down", (0,)] == "bf16"
    assert found["down", (1, 2)] == "fp8"
    assert found["up", (1, 2)] == "int8"
    assert found["lm_head", ()] == "int8"
    assert found["embedding", ()] == "bf16"
    assert found["norm", (0, 1, 2)] == "bf16"
    assert parameters(tensors) == parameters(inventory(small(DENSE, DENSE, DENSE)))


def test_rule_names_reach_the_last_word_of_a_tensor_name() -> None:
    quantization = WeightQuantization(
        format="bf16", rules=(WeightRule(roles=(TensorRole.EXPERT,), names=("down",), format="fp8"),)
    )
    tensors = inventory(small(SPARSE), quantization)
    assert [t.name for t in tensors if t.format.name == "fp8"] == ["experts.down"]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match="int99"):
        inventory(small(), WeightQuantization(format="int99"))


@pytest.mark.parametrize(
    ("tp", "heads"),
    [(1, 2), (2, 1), (4, 1), (8, 1)],
)
def test_kv_heads_are_replicated_when_there_are_fewer_than_ranks(tp: int, heads: int) -> None:
    key = by_name(inventory(small()), "k")
    assert key.rank_shape(Parallelism(tp=tp)) == (heads * 16, 128, 1)


def test_vocabulary_is_padded_to_64_rows_before_it_is_split() -> None:
    table = by_name(inventory(small()), "embedding")
    assert padded_vocabulary(1000) == 1024
    assert table.rank_shape(Parallelism(tp=2)) == (512, 128, 1)
    # Granite 3.3: a vocabulary of 49,159 becomes 49,216.
    granite = by_name(inventory(shipped("granite-3.3-8b")), "embedding")
    assert granite.rank_shape(Parallelism(tp=1))[0] == 49_216
    assert granite.bytes_total == 49_159 * 4096 * 2


@pytest.mark.parametrize(
    ("parallelism", "gate", "down"),
    [
        (Parallelism(tp=2), (32, 128, 16), (128, 32, 16)),
        (Parallelism(tp=4, ep=4), (64, 128, 4), (128, 64, 4)),
        (Parallelism(tp=2, dp=2, ep=4), (64, 128, 4), (128, 64, 4)),
        (Parallelism(tp=1, dp=2), (32, 128, 16), (128, 32, 16)),
        (Parallelism(tp=4, ep=2), (32, 128, 8), (128, 32, 8)),
        (Parallelism(tp=3, ep=3), (64, 128, 6), (128, 64, 6)),
    ],
)
def test_experts_are_spread_whole_or_split_inside(
    parallelism: Parallelism, gate: tuple[int, int, int], down: tuple[int, int, int]
) -> None:
    tensors = inventory(small(SPARSE))
    assert by_name(tensors, "experts.gate").rank_shape(parallelism) == gate
    assert by_name(tensors, "experts.down").rank_shape(parallelism) == down


def test_group_scales_split_along_with_their_matrix() -> None:
    tensors = inventory(small(), WeightQuantization(format="int4_g128"))
    down = by_name(tensors, "down")
    assert down.rank_bytes(Parallelism(tp=3)) * 3 == storage_bytes(128, 384, weight_format("int4_g128"))
    # One scale per output channel is not split by a row-parallel matrix: each rank holds all of them.
    channel = by_name(inventory(small(), WeightQuantization(format="fp8_channel")), "down")
    whole = storage_bytes(128, 384, WEIGHT_FORMATS["fp8_channel"])
    assert channel.rank_bytes(Parallelism(tp=2)) * 2 - whole == whole - 128 * 384


@pytest.mark.parametrize("name", names())
def test_ranks_together_hold_the_whole_model(name: str) -> None:
    model = shipped(name)
    parallelism = Parallelism(tp=2)
    try:
        check_divisible(model, parallelism)
    except UsageError:
        parallelism = Parallelism(tp=1)
    split = {Shard.ROWS, Shard.COLUMNS, Shard.EXPERTS}
    for tensor in inventory(model, WeightQuantization(format="bf16"), with_mtp=True):
        whole = tensor.rows * tensor.columns * tensor.copies * 2
        held = tensor.rank_bytes(parallelism) * parallelism.tp
        if tensor.shard in split and tensor.name.rpartition(".")[2] != "bias":
            assert held == whole, tensor
        elif tensor.shard is Shard.REPLICATED:
            assert held == whole * parallelism.tp, tensor
        else:
            assert held >= whole, tensor


def test_indivisible_tp_names_the_values_that_divide() -> None:
    with pytest.raises(UsageError, match="28 attention heads do not divide by 8") as failure:
        check_divisible(shipped("qwen2.5-7b"), Parallelism(tp=8))
    assert failure.value.hint == "TP values that divide it: 1, 2, 4"
    with pytest.raises(UsageError, match="10 KV heads neither divide by 4 nor divide it") as failure:
        check_divisible(shipped("phi-4"), Parallelism(tp=4))
    assert failure.value.hint == "TP values that divide it: 1, 2"
    check_divisible(shipped("llama3-70b"), Parallelism(tp=16))


def test_expert_parallelism_must_fit_ranks_and_experts() -> None:
    with pytest.raises(UsageError, match="not a mixture of experts"):
        check_divisible(shipped("llama3-70b"), Parallelism(tp=8, ep=8))
    with pytest.raises(UsageError, match="does not divide the 8 ranks"):
        check_divisible(shipped("mixtral-8x7b"), Parallelism(tp=8, ep=3))
    with pytest.raises(UsageError, match="--pp 33 is more than the 32 layers"):
        check_divisible(shipped("mixtral-8x7b"), Parallelism(pp=33))
    check_divisible(shipped("mixtral-8x7b"), Parallelism(tp=8, ep=8))


# https://github.com/NVIDIA/TensorRT-LLM/issues/5912: head_dim is 128, not hidden size / heads = 80.
def test_qwen3_32b_has_10240_rows_of_qkv() -> None:
    tensors = inventory(shipped("qwen3-32b"))
    assert sum(by_name(tensors, name).rows for name in ("q", "k", "v")) == 10_240
