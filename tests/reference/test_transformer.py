"""The transformer against its formulas, written a second time without arrays of tokens."""

from __future__ import annotations

import cmath
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from infcalc.errors import UnsupportedArchitecture
from infcalc.lowering.tensors import inventory, parameters
from infcalc.reference.arithmetic import BATCHED, EXACT, FLASH, Arithmetic
from infcalc.reference.cache import KVCache, NoCache
from infcalc.reference.elementwise import rms_norm, rope_table, rotate
from infcalc.reference.engine import ContiguousEngine
from infcalc.reference.feed_forward import routed
from infcalc.reference.mixers import Segment
from infcalc.reference.projection import all_rows, each_row
from infcalc.reference.transformer import Transformer
from infcalc.reference.weights import Weights, random_weights
from infcalc.scheduling.step_plan import Chunk, StepPlan
from infcalc.spec.layers import (
    DenseFeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    LayerRun,
    MoeFeedForward,
    RecurrentKind,
    RecurrentMixer,
)
from tests.reference.models import DENSE, GQA, MAX_TOKENS, MODELS, model, transformer

Vector = NDArray[np.float64]


def scores(made: Transformer, tokens: list[int]) -> NDArray[np.float64]:
    """Scores after each of ``tokens``, from one pass without a cache."""
    segment = Segment(rows=slice(0, len(tokens)), store=NoCache(made.cache_shape))
    return made.logits(made.hidden(np.array(tokens), np.arange(len(tokens)), (segment,)))


# The formulas, token by token


def norm(row: Vector, weight: Vector) -> Vector:
    return row / math.sqrt(float(np.mean(row**2)) + 1e-6) * weight


def turned(head: Vector, position: int) -> Vector:
    """RoPE by complex numbers."""
    half = len(head) // 2
    pairs = [
        complex(head[i], head[i + half]) * cmath.exp(1j * position * 10_000.0 ** (-2 * i / len(head)))
        for i in range(half)
    ]
    return np.array([pair.real for pair in pairs] + [pair.imag for pair in pairs])


def feed(block: DenseFeedForward | MoeFeedForward, weights: dict[str, Vector], row: Vector) -> Vector:
    def one(gate: Vector, up: Vector, down: Vector) -> Vector:
        opened = gate @ row
        result: Vector = down @ (opened / (1 + np.exp(-opened)) * (up @ row))
        return result

    if isinstance(block, DenseFeedForward):
        return one(weights["gate"], weights["up"], weights["down"])
    output = np.zeros_like(row)
    if block.shared_width:
        output += one(weights["shared.gate"], weights["shared.up"], weights["shared.down"])
    router = weights["router"] @ row
    best = sorted(range(block.num_experts), key=lambda expert: -router[expert])[: block.experts_per_token]
    total = sum(math.exp(router[expert]) for expert in best)
    for expert in best:
        share = math.exp(router[expert]) / total
        output += share * one(*(weights[f"experts.{name}"][expert] for name in ("gate", "up", "down")))
    return output


def heads_of(
    mixer: GroupedAttention | LatentAttention, weights: dict[str, Vector], row: Vector, position: int
) -> tuple[list[Vector], list[Vector], list[Vector]]:
    """Return queries, keys and values of one token, one of each for every query head: MLA is not absorbed here."""
    if isinstance(mixer, GroupedAttention):
        queries, keys, values = (
            list((weights[name] @ row).reshape(heads, -1))
            for name, heads in (("q", mixer.num_heads), ("k", mixer.num_kv_heads), ("v", mixer.num_kv_heads))
        )
        if "q_norm" in weights:
            queries = [norm(head, weights["q_norm"]) for head in queries]
            keys = [norm(head, weights["k_norm"]) for head in keys]
        group = mixer.num_heads // mixer.num_kv_heads
        keys = [turned(keys[head // group], position) for head in range(mixer.num_heads)]
        values = [values[head // group] for head in range(mixer.num_heads)]
        return [turned(head, position) for head in queries], keys, values
    nope = mixer.qk_nope_head_dim
    if mixer.q_lora_rank is None:
        projected = weights["q"] @ row
    else:
        projected = weights["q_b"] @ norm(weights["q_a"] @ row, weights["q_a_norm"])
    queries = [np.concatenate([h[:nope], turned(h[nope:], position)]) for h in projected.reshape(mixer.num_heads, -1)]
    compressed = weights["kv_a"] @ row
    latent = norm(compressed[: mixer.kv_lora_rank], weights["kv_a_norm"])
    shared = turned(compressed[mixer.kv_lora_rank :], position)
    expanded = (weights["kv_b"] @ latent).reshape(mixer.num_heads, -1)
    keys = [np.concatenate([head[:nope], shared]) for head in expanded]
    return queries, keys, [head[nope:] for head in expanded]


def by_formula(made: Transformer, tokens: list[int]) -> NDArray[np.float64]:
    weights = made.weights
    states = [weights.outside["embedding"][token] for token in tokens]
    for (mixer, block), layer in zip(made.layers, weights.layers, strict=True):
        named = dict(layer)
        cached = [heads_of(mixer, named, norm(s, layer["norm"][0]), at) for at, s in enumerate(states)]
        for at, (queries, _, _) in enumerate(cached):
            outputs: list[Vector] = []
            for head, query in enumerate(queries):
                lowest = 0
                if isinstance(mixer, GroupedAttention) and mixer.window_tokens:
                    window = mixer.window_tokens
                    lowest = max(0, at - window + 1) if mixer.reach == "sliding" else at // window * window
                seen = cached[lowest : at + 1]
                shares = np.exp([float(query @ keys[head]) / math.sqrt(len(query)) for _, keys, _ in seen])
                parts = [s * v[head] for s, (_, _, v) in zip(shares / shares.sum(), seen, strict=True)]
                outputs.append(np.sum(parts, axis=0))
            states[at] = states[at] + layer["o"] @ np.concatenate(outputs)
        states = [state + feed(block, named, norm(state, layer["norm"][1])) for state in states]
    unembedding = weights.outside["embedding" if made.model.tied_embeddings else "lm_head"]
    return np.array([unembedding @ norm(state, weights.outside["final_norm"]) for state in states])


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_formulas(name: str) -> None:
    tokens = np.random.default_rng(5).integers(0, 61, 17).tolist()
    made = transformer(name)
    np.testing.assert_allclose(scores(made, tokens), by_formula(made, tokens), rtol=0, atol=1e-10)


# Grouped heads


def test_gqa_is_mha_with_repeated_kv_heads_and_an_eighth_of_its_cache() -> None:
    grouped = GroupedAttention(num_heads=64, num_kv_heads=8, head_dim=4)
    gqa, mha = (model((mixer, DENSE), hidden_size=32) for mixer in (grouped, replace(grouped, num_kv_heads=64)))
    weights = random_weights(gqa, seed=2)

    def repeated(weight: Vector) -> Vector:
        return weight.reshape(8, 4, 32).repeat(8, axis=0).reshape(64 * 4, 32)

    layer = weights.layers[0]
    copied = {**layer, "k": repeated(layer["k"]), "v": repeated(layer["v"])}
    one = Transformer(gqa, weights, MAX_TOKENS)
    other = Transformer(mha, Weights(outside=weights.outside, layers=(copied,)), MAX_TOKENS)
    tokens = np.random.default_rng(1).integers(0, 61, 12).tolist()
    assert np.array_equal(scores(one, tokens), scores(other, tokens))
    caches = [KVCache(made.cache_shape, MAX_TOKENS) for made in (one, other)]
    assert 8 * caches[0].reserved_bytes == caches[1].reserved_bytes
    assert caches[1].keys.shape == (1, 64, MAX_TOKENS, 4)


# Weights


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_the_inventory(name: str) -> None:
    assert random_weights(MODELS[name], 0).num_parameters == parameters(inventory(MODELS[name])).total


def test_a_seed_gives_the_same_bits_again() -> None:
    one, again, other = (random_weights(MODELS["moe"], seed) for seed in (4, 4, 5))
    assert all(np.array_equal(one.layers[1][name], again.layers[1][name]) for name in one.layers[1])
    assert not np.array_equal(one.outside["embedding"], other.outside["embedding"])
    assert not np.array_equal(one.layers[0]["q"], one.layers[1]["q"])


# Parts


@settings(max_examples=40, deadline=None)
@given(num_rows=st.integers(1, 40), inputs=st.integers(1, 40), outputs=st.integers(1, 40), cut=st.integers(0, 40))
def test_a_row_has_the_same_bits_in_any_batch(num_rows: int, inputs: int, outputs: int, cut: int) -> None:
    generator = np.random.default_rng(num_rows)
    rows, weight = generator.standard_normal((num_rows, inputs)), generator.standard_normal((outputs, inputs))
    whole = each_row(rows, weight)
    assert np.array_equal(np.concatenate([each_row(rows[:cut], weight), each_row(rows[cut:], weight)]), whole)
    np.testing.assert_allclose(whole, all_rows(rows, weight), rtol=0, atol=1e-10)
    gain = np.ones(inputs)
    assert np.array_equal(
        np.concatenate([rms_norm(rows[:cut], gain), rms_norm(rows[cut:], gain)]), rms_norm(rows, gain)
    )


def test_rotation_keeps_lengths_and_only_distance_counts() -> None:
    generator = np.random.default_rng(0)
    query, key = generator.standard_normal((2, 1, 1, 8))
    table = rope_table(50, 8)

    def score(at: int, to: int) -> float:
        return float(np.sum(rotate(query, np.array([at]), table) * rotate(key, np.array([to]), table)))

    assert score(30, 20) == pytest.approx(score(10, 0), abs=1e-12)
    assert score(30, 20) != pytest.approx(score(30, 19), abs=1e-3)
    assert np.sum(rotate(query, np.array([17]), table) ** 2) == pytest.approx(np.sum(query**2))
    with pytest.raises(ValueError, match="7 is odd"):
        rope_table(4, 7)


def test_of_equal_scores_the_lower_expert_wins() -> None:
    block = MoeFeedForward(num_experts=4, experts_per_token=2, expert_width=4)
    chosen, shares = routed(block, np.zeros((4, 3)), np.ones((1, 3)), each_row)
    assert chosen.tolist() == [[0, 1]]
    assert shares.tolist() == [[0.5, 0.5]]


# What is not computed is refused


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (Layer(mixer=replace(GQA, qkv_bias=True), feed_forward=DENSE), "biases or an output gate"),
        (Layer(mixer=replace(GQA, value_from_key=True), feed_forward=DENSE), "factored, shared"),
        (Layer(mixer=GQA, feed_forward=replace(DENSE, gated=False)), "without gate"),
        (Layer(mixer=GQA, feed_forward=replace(DENSE, bias=True)), "biases of the feed-forward"),
        (
            Layer(
                mixer=GQA,
                feed_forward=MoeFeedForward(num_experts=2, experts_per_token=1, expert_width=4, shared_gate=True),
            ),
            "a gate on shared experts",
        ),
        (Layer(mixer=GQA, feed_forward=DENSE, num_norms=4), "other norms"),
        (Layer(mixer=GQA), "without a feed-forward block"),
        (
            Layer(mixer=RecurrentMixer(recurrent=RecurrentKind.MAMBA2, state_elements=4), feed_forward=DENSE),
            "a layer without attention",
        ),
    ],
)
def test_what_is_not_computed_is_refused_by_name(layer: Layer, named: str) -> None:
    odd = replace(MODELS["gqa"], layers=(LayerRun(num_layers=1, layer=layer),))
    with pytest.raises(UnsupportedArchitecture, match=named):
        Transformer(odd, random_weights(odd, 0), MAX_TOKENS)


def test_layers_must_cache_alike_and_nothing_may_be_left_out() -> None:
    uneven = model((GQA, DENSE), (replace(GQA, num_kv_heads=4), DENSE))
    with pytest.raises(UnsupportedArchitecture, match="different shapes"):
        Transformer(uneven, random_weights(uneven, 0), MAX_TOKENS)
    for odd in (replace(MODELS["gqa"], embedding_dim=8), replace(MODELS["gqa"], final_norm=False), model()):
        with pytest.raises(UnsupportedArchitecture):
            Transformer(odd, random_weights(MODELS["gqa"], 0), MAX_TOKENS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("arithmetic", [EXACT, BATCHED, FLASH], ids=["exact", "batched", "flash"])
def test_single_precision_stays_single_and_near_double(name: str, arithmetic: Arithmetic) -> None:
    made = MODELS[name]
    scores = []
    for dtype in (np.float32, np.float64):
        single = Transformer(made, random_weights(made, 0), MAX_TOKENS, arithmetic=arithmetic)
        weights = Weights(
            outside={key: array.astype(dtype) for key, array in single.weights.outside.items()},
            layers=tuple({key: array.astype(dtype) for key, array in layer.items()} for layer in single.weights.layers),
        )
        engine = ContiguousEngine(Transformer(made, weights, MAX_TOKENS, arithmetic=arithmetic), MAX_TOKENS)
        for start, tokens in ((0, (1, 2, 3)), (3, (4,))):
            chunk = Chunk(sequence_id=0, cached_tokens=start, tokens=tokens, block_table=(), produces=True)
            engine.execute(StepPlan(chunks=(chunk,)))
        assert engine.logits[0].dtype == engine.caches[0].keys.dtype == dtype
        scores.append(engine.logits[0])
    # Two layers of some forty sums each: far above rounding in single precision, far below a wrong term.
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-4)


def test_weights_are_drawn_in_the_precision_asked_for() -> None:
    drawn = random_weights(MODELS["gqa"], 0, dtype=np.float32)
    assert {array.dtype for layer in drawn.layers for array in layer.values()} == {np.dtype(np.float32)}
