"""Models small enough to compute in a test, one for each part that the engine knows."""

from __future__ import annotations

from functools import cache

from infcalc.reference.arithmetic import EXACT, Arithmetic
from infcalc.reference.transformer import Transformer
from infcalc.reference.weights import random_weights
from infcalc.spec.layers import (
    DenseFeedForward,
    FeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    LayerRun,
    Mixer,
    MoeFeedForward,
    QkNorm,
    Reach,
)
from infcalc.spec.model import Model

MAX_TOKENS = 96
DENSE = DenseFeedForward(width=40)
GQA = GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=8)


def model(*layers: tuple[Mixer, FeedForward], hidden_size: int = 24, tied: bool = False) -> Model:
    return Model(
        name="small",
        architecture="llama",
        hidden_size=hidden_size,
        vocab_size=61,
        layers=tuple(LayerRun(num_layers=1, layer=Layer(mixer=mixer, feed_forward=block)) for mixer, block in layers),
        tied_embeddings=tied,
    )


MODELS = {
    "mha": model(*[(GroupedAttention(num_heads=3, num_kv_heads=3, head_dim=8), DENSE)] * 2),
    "gqa": model(*[(GQA, DENSE)] * 2),
    "mqa-tied": model(*[(GroupedAttention(num_heads=3, num_kv_heads=1, head_dim=8), DENSE)] * 2, tied=True),
    "wide-values": model((GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=8, value_head_dim=6), DENSE)),
    "qk-norm": model((GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=8, qk_norm=QkNorm.PER_HEAD), DENSE)),
    "sliding": model(
        (GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=8, reach=Reach.SLIDING, window_tokens=5), DENSE),
        (GQA, DENSE),
    ),
    "chunked": model(
        (GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=8, reach=Reach.CHUNKED, window_tokens=7), DENSE),
        (GQA, DENSE),
    ),
    "moe": model(*[(GQA, MoeFeedForward(num_experts=5, experts_per_token=2, expert_width=12))] * 2),
    "moe-shared": model(
        (GQA, MoeFeedForward(num_experts=4, experts_per_token=3, expert_width=8, shared_width=16)), (GQA, DENSE)
    ),
    "mla": model(
        *[
            (
                LatentAttention(num_heads=3, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, value_head_dim=5),
                DENSE,
            )
        ]
        * 2
    ),
    "mla-low-rank-queries": model(
        (
            LatentAttention(
                num_heads=3,
                kv_lora_rank=10,
                qk_nope_head_dim=6,
                qk_rope_head_dim=4,
                value_head_dim=5,
                q_lora_rank=7,
            ),
            MoeFeedForward(num_experts=4, experts_per_token=2, expert_width=8, shared_width=8),
        )
    ),
}


@cache
def transformer(name: str, arithmetic: Arithmetic = EXACT) -> Transformer:
    return Transformer(MODELS[name], random_weights(MODELS[name], seed=7), MAX_TOKENS, arithmetic=arithmetic)
