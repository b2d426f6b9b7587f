from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.catalog.models import (
    MAX_LAYERS,
    broken_layer_laws,
    broken_model_laws,
    compress_layers,
    expand_layers,
    name_blocks,
)
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    LayerRun,
    MoeFeedForward,
    Reach,
    RecurrentKind,
    RecurrentMixer,
)
from infcalc.spec.model import Model
from infcalc.spec.weights import WeightQuantization, WeightRule

FULL = GroupedAttention(num_heads=8, num_kv_heads=2, head_dim=64)
SLIDING = GroupedAttention(num_heads=8, num_kv_heads=2, head_dim=64, reach=Reach.SLIDING, window_tokens=512)
DENSE = DenseFeedForward(width=1024)
MOE = MoeFeedForward(num_experts=8, experts_per_token=2, expert_width=256)
NAMES = st.sampled_from(["full", "sliding", "dense_2", "m"])


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("dense", ["dense"]),
        ("3*dense 2*moe", ["dense"] * 3 + ["moe"] * 2),
        ("2*(sliding full) sliding", ["sliding", "full", "sliding", "full", "sliding"]),
        ("2*(2*(a b) c)", ["a", "b", "a", "b", "c"] * 2),
        ("(a b) c", ["a", "b", "c"]),
        ("  2 * a   b ", ["a", "a", "b"]),
    ],
)
def test_patterns_read_as_written(pattern: str, names: list[str]) -> None:
    assert list(expand_layers(pattern)) == names


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "expected the name"),
        ("3*", "ends after a count"),
        ("2*3*a", "out of place"),
        ("0*a", "a count must be"),
        ("-1*a", "out of place"),
        ("5000*a", "a count must be"),
        ("99999999999999999999*a", "a count must be"),
        ("4096*a a", "more than"),
        ("64*(64*(64*(64*a)))", "more than"),
        ("(a", "not closed"),
        ("a)", "out of place"),
        ("()", "expected the name"),
        ("a,b", "out of place"),
        ("(" * 5000 + "a", "nested too deeply"),
        ("a 1.5*b", "out of place"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expand_layers(pattern)


@given(st.lists(NAMES, min_size=1, max_size=80))
def test_compressed_patterns_expand_to_the_same_layers(names: list[str]) -> None:
    assert list(expand_layers(compress_layers(names))) == names


@given(st.lists(NAMES, min_size=1, max_size=6), st.integers(2, 40))
def test_a_repeated_group_is_never_written_out(group: list[str], repeats: int) -> None:
    assert len(compress_layers(group * repeats)) <= len(" ".join(group)) + len(f"{repeats}*()") * 2


@given(st.text(max_size=60))
def test_any_text_expands_or_is_refused_as_value_error(text: str) -> None:
    try:
        names = expand_layers(text)
    except ValueError:
        return
    assert 1 <= len(names) <= MAX_LAYERS


def test_the_known_patterns_come_out_short() -> None:
    assert compress_layers(["dense"] * 3 + ["moe"] * 58) == "3*dense 58*moe"
    assert compress_layers(["sliding", "full"] * 21) == "21*(sliding full)"
    assert compress_layers((["linear"] * 3 + ["full"]) * 12) == "12*(3*linear full)"


@pytest.mark.parametrize(
    ("layers", "names"),
    [
        ([Layer(mixer=FULL, feed_forward=DENSE)], ["dense"]),
        ([Layer(mixer=FULL, feed_forward=DENSE), Layer(mixer=FULL, feed_forward=MOE)], ["dense", "moe"]),
        ([Layer(mixer=SLIDING, feed_forward=MOE), Layer(mixer=FULL, feed_forward=MOE)], ["sliding", "full"]),
        (
            [Layer(mixer=SLIDING, feed_forward=MOE), Layer(mixer=FULL, feed_forward=DENSE)],
            ["sliding_moe", "full_dense"],
        ),
        (
            [Layer(mixer=FULL, feed_forward=DENSE), Layer(mixer=FULL, feed_forward=DenseFeedForward(width=2))],
            ["dense", "dense_2"],
        ),
        (
            [Layer(mixer=RecurrentMixer(recurrent=RecurrentKind.MAMBA2, state_elements=1)), Layer(feed_forward=DENSE)],
            ["mamba2", "dense"],
        ),
    ],
)
def test_block_names_say_what_tells_blocks_apart(layers: list[Layer], names: list[str]) -> None:
    assert list(name_blocks(layers)) == names


def _laws(layer: Layer) -> list[str]:
    return [".".join(path) for path, _ in broken_layer_laws(layer)]


@pytest.mark.parametrize(
    ("layer", "paths"),
    [
        (Layer(mixer=FULL, feed_forward=MOE), []),
        (Layer(mixer=SLIDING, feed_forward=DENSE), []),
        (Layer(), [""]),
        (Layer(mixer=GroupedAttention(num_heads=8, num_kv_heads=3, head_dim=64)), ["mixer.num_kv_heads"]),
        (
            Layer(mixer=GroupedAttention(num_heads=8, num_kv_heads=2, head_dim=64, reach=Reach.CHUNKED)),
            ["mixer.window_tokens"],
        ),
        (
            Layer(mixer=GroupedAttention(num_heads=8, num_kv_heads=2, head_dim=64, window_tokens=4)),
            ["mixer.window_tokens"],
        ),
        (
            Layer(feed_forward=MoeFeedForward(num_experts=4, experts_per_token=5, expert_width=1, shared_gate=True)),
            ["feed_forward.experts_per_token", "feed_forward.shared_gate"],
        ),
        (
            Layer(
                mixer=CompressedAttention(num_heads=1, entry_dim=64, rope_dim=65, window_tokens=8, compression=4),
            ),
            ["mixer.rope_dim"],
        ),
        (
            Layer(
                mixer=LatentAttention(
                    num_heads=8, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, value_head_dim=128
                )
            ),
            [],
        ),
    ],
)
def test_contradictions_in_a_layer_are_found_where_they_are(layer: Layer, paths: list[str]) -> None:
    assert _laws(layer) == paths


def test_contradictions_in_a_model_are_found_where_they_are() -> None:
    quantization = WeightQuantization(
        format="fp9", rules=(WeightRule(layers=(0, 1)), WeightRule(layers=(1, 2), format="fp7"))
    )
    run = LayerRun(num_layers=2, layer=Layer(mixer=FULL, feed_forward=DENSE))
    model = Model(
        name="m",
        architecture="a",
        hidden_size=8,
        vocab_size=8,
        layers=(run,),
        dtype="bfloat16",
        kv_dtype="int3",
        quantization=quantization,
    )
    assert [".".join(path) for path, _ in broken_model_laws(model)] == [
        "dtype",
        "kv_dtype",
        "quantization.format",
        "quantization.rules.1.format",
        "quantization.rules.1.layers",
    ]
