"""One formula serves a number, a mean and an array of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.lowering.ops import AttentionIo, ElementwiseIo, Extent, StepShape, Template, templates
from infcalc.lowering.work import (
    FEW_EXPERTS,
    Experts,
    Load,
    Routed,
    Sequences,
    attended_pairs,
    chunked_pairs,
    experts_touched,
    experts_touched_unevenly,
    fullest_factor,
    pooled_pairs,
)
from infcalc.spec.layers import GroupedAttention, Indexer, Reach
from infcalc.spec.parallelism import Parallelism
from tests.lowering.test_ops import decode, one_layer, prefill
from tests.roofline.shapes import DEEPSEEK_V3, LLAMA_8B, MISTRAL_7B, MIXTRAL
from tests.shipped import shipped

MODELS = [
    LLAMA_8B,
    MISTRAL_7B,
    MIXTRAL,
    DEEPSEEK_V3,
    shipped("deepseek-v4-flash"),
    shipped("deepseek-v3.2"),
    shipped("llama4-scout"),
    shipped("qwen3-next-80b"),
    shipped("gpt-oss-120b"),
    one_layer(
        GroupedAttention(
            num_heads=8,
            num_kv_heads=4,
            head_dim=64,
            indexer=Indexer(num_heads=4, head_dim=64, topk_tokens=512, pool_tokens=16),
        )
    ),
    one_layer(
        GroupedAttention(
            num_heads=8, num_kv_heads=4, head_dim=64, reach=Reach.CHUNKED, window_tokens=100, shares_kv=True
        )
    ),
]
PREFILLS = np.array([0, 1, 3, 0, 2, 0])
NEW = np.array([5, 4096, 17, 1, 513, 1])
CACHED = np.array([0, 0, 12_345, 9, 1, 0])
DECODES = np.array([1, 0, 64, 300, 0, 0])
CONTEXT = np.array([4096, 7, 100_000, 127, 3, 1])


def load(prefills: Any, new: Any, cached: Any, decodes: Any, context: Any) -> Load:  # noqa: ANN401 - number or array
    tokens = prefills * new + decodes
    return Load(
        prefills=(Sequences(prefills, new, cached),),
        decodes=(Sequences(decodes, 1, context),),
        num_tokens=tokens,
        num_sequences=prefills + decodes,
        num_sampled=prefills + decodes,
        routed_tokens=4 * tokens,
        expanded_tokens=tokens + prefills * cached,
    )


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_arrays_of_steps_are_the_steps_one_by_one(model: Any) -> None:  # noqa: ANN401 - a model
    made = templates(
        model,
        parallelism=Parallelism(tp=2, pp=2, dp=4, ep=2),
        attention_io=AttentionIo.NAIVE,
        elementwise_io=ElementwiseIo.SEPARATE,
        extent=Extent.ENGINE,
    )
    columns = PREFILLS, NEW, CACHED, DECODES, CONTEXT
    # As the clock does: whole numbers of 64 bit would overflow.
    many = load(*(column.astype(float) for column in columns))
    for template in made:
        together = template.work(many)
        for place, numbers in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            for name, amount in template.work(load(*numbers))._asdict().items():
                found = np.broadcast_to(np.asarray(getattr(together, name)), PREFILLS.shape)[place]
                assert found == pytest.approx(amount, rel=1e-12), (template.name, name, numbers)


def _named(made: tuple[Template, ...]) -> dict[tuple[str, str], Template]:
    return {(template.kind.value, template.name): template for template in made}


@pytest.mark.parametrize("shape", [decode(4096, batch=3), prefill(100, cached=50, batch=2)])
def test_a_template_becomes_the_op_of_a_step(shape: StepShape) -> None:
    made = _named(templates(DEEPSEEK_V3))
    ops = [template.at(shape, num_dp_ranks=2) for template in made.values()]
    present = {(op.kind.value, op.name) for op in ops if op is not None}
    other = "attention_prefill" if shape.decodes else "attention_decode"
    assert {kind for kind, _ in set(made) - present} == {other}
    (experts,) = (op for op in ops if op is not None and op.name == "experts.down")
    touched = 256 * (1 - (1 - 8 / 256) ** (2 * shape.num_tokens))
    assert experts.tokens == pytest.approx(2 * shape.num_tokens * 8 / touched)
    assert experts.weight_bytes == pytest.approx(58 * touched * 7168 * 2048 * 2)


@given(
    new=st.integers(1, 500),
    cached=st.integers(0, 5000),
    window=st.none() | st.integers(1, 600),
    pool=st.integers(1, 64),
)
def test_pairs_are_the_same_for_arrays(new: int, cached: int, window: int | None, pool: int) -> None:
    laws: tuple[Callable[[Any], Any], ...] = (
        lambda seen: attended_pairs(new, seen, window),
        lambda seen: chunked_pairs(new, seen, pool),
        lambda seen: pooled_pairs(new, seen, pool, window),
    )
    for pairs in laws:
        assert pairs(np.array([cached, cached + 1.0])).tolist() == [pairs(cached), pairs(cached + 1)]


@given(new=st.floats(1, 500), cached=st.floats(0, 5000), window=st.none() | st.integers(1, 600))
def test_means_are_not_rounded(new: float, cached: float, window: int | None) -> None:
    low, high = attended_pairs(new, cached, window), attended_pairs(new, cached + 0.001, window)
    assert low - 1e-6 <= high <= low + 0.001 * (new + 1) + 1e-6
    assert attended_pairs(1.0, 10.5) == 11.5


def test_no_token_touches_no_expert() -> None:
    assert list(np.asarray(experts_touched(8, 8, 2, np.array([0.0, 1.0])))) == [0, 2]


# --- routing ---


@given(experts=st.integers(2, 512), topk=st.integers(1, 16), tokens=st.integers(1, 100_000))
def test_uneven_routing_touches_fewer_experts_but_those_of_one_token(experts: int, topk: int, tokens: int) -> None:
    topk = min(topk, experts)
    even, uneven = (law(experts, experts, topk, tokens) for law in (experts_touched, experts_touched_unevenly))
    assert topk * (1 - 1e-9) <= uneven <= even * (1 + 1e-9)
    assert experts_touched_unevenly(experts, experts, topk, 1) == pytest.approx(topk)
    assert experts_touched_unevenly(experts, experts, topk, tokens + 1) >= uneven * (1 - 1e-12)


def test_uneven_routing_touches_as_many_as_the_power_laws_of_the_tables() -> None:
    # Experts with a token, of 128 and 256, when loads are drawn from power laws with exponents 1.01 and 1.2.
    drawn = {
        (128, 4, 64): (90, 88),
        (128, 4, 256): (107, 109),
        (256, 8, 64): (180, 176),
        (256, 8, 256): (214, 218),
    }
    for (experts, topk, tokens), touched in drawn.items():
        found = experts_touched_unevenly(experts, experts, topk, tokens)
        assert touched == pytest.approx((found, found), rel=0.08)


@given(groups=st.integers(1, 64), local=st.integers(1, 64), assignments=st.floats(1, 1e6), uneven=st.booleans())
def test_the_fullest_rank_has_between_its_share_and_all(
    groups: int, local: int, assignments: float, *, uneven: bool
) -> None:
    factor = fullest_factor(groups, local, assignments, uneven=uneven)
    assert 1 <= factor <= groups
    assert fullest_factor(groups, local, 2 * assignments, uneven=uneven) <= factor


@pytest.mark.parametrize(("ranks", "slower"), [(4, 1.29), (8, 1.41), (16, 1.65)])
def test_the_fullest_rank_is_as_full_as_those_that_were_timed(ranks: int, slower: float) -> None:
    # nvfp4 experts 4096 x 1536 on B200 at 16,384 tokens: power laws over even routing, less 15 us of fixed time.
    assert fullest_factor(ranks, 128 // ranks, 16_384 * 8 / ranks, uneven=True) == pytest.approx(slower, rel=0.12)


def test_few_experts_are_met_evenly() -> None:
    def law(num_experts: int) -> Experts:
        routed = Routed(num_local=num_experts, num_experts=num_experts, experts_per_token=2, expert_bytes=1)
        return Experts(routed=routed, num_groups=1, assignment_flop=1, assignment_activation_bytes=0)

    assert not law(FEW_EXPERTS).as_routed.routed.uneven
    assert law(FEW_EXPERTS + 1).as_routed.routed.uneven
