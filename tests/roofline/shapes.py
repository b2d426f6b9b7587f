"""Models and GPUs the tests work on, written out so that they need no catalog."""

from __future__ import annotations

from infcalc.spec.hardware import Gpu
from infcalc.spec.layers import (
    DenseFeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    LayerRun,
    MoeFeedForward,
    Reach,
)
from infcalc.spec.model import Model, MultiTokenPrediction


def dense(
    name: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    width: int,
    vocab: int = 128_256,
    window: int | None = None,
) -> Model:
    mixer = GroupedAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=128,
        reach=Reach.FULL if window is None else Reach.SLIDING,
        window_tokens=window,
    )
    layer = Layer(mixer=mixer, feed_forward=DenseFeedForward(width=width))
    return Model(
        name=name,
        architecture="llama",
        hidden_size=hidden,
        vocab_size=vocab,
        layers=(LayerRun(num_layers=layers, layer=layer),),
    )


LLAMA_70B = dense("llama3-70b", layers=80, hidden=8192, heads=64, kv_heads=8, width=28_672)
LLAMA_8B = dense("llama3-8b", layers=32, hidden=4096, heads=32, kv_heads=8, width=14_336)
QWEN3_32B = dense("qwen3-32b", layers=64, hidden=5120, heads=64, kv_heads=8, width=25_600, vocab=151_936)
MISTRAL_7B = dense(
    "mistral-7b-v0.1", layers=32, hidden=4096, heads=32, kv_heads=8, width=14_336, vocab=32_000, window=4096
)

MIXTRAL = Model(
    name="mixtral-8x7b",
    architecture="mixtral",
    hidden_size=4096,
    vocab_size=32_000,
    layers=(
        LayerRun(
            num_layers=32,
            layer=Layer(
                mixer=GroupedAttention(num_heads=32, num_kv_heads=8, head_dim=128),
                feed_forward=MoeFeedForward(num_experts=8, experts_per_token=2, expert_width=14_336),
            ),
        ),
    ),
)

_MLA = LatentAttention(
    num_heads=128,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    value_head_dim=128,
    q_lora_rank=1536,
)
_DEEPSEEK_MOE = Layer(
    mixer=_MLA,
    feed_forward=MoeFeedForward(
        num_experts=256, experts_per_token=8, expert_width=2048, shared_width=2048, router_bias=True
    ),
)
DEEPSEEK_V3 = Model(
    name="deepseek-v3",
    architecture="deepseek_v3",
    hidden_size=7168,
    vocab_size=129_280,
    layers=(
        LayerRun(num_layers=3, layer=Layer(mixer=_MLA, feed_forward=DenseFeedForward(width=18_432))),
        LayerRun(num_layers=58, layer=_DEEPSEEK_MOE),
    ),
    mtp=MultiTokenPrediction(num_layers=1, layer=_DEEPSEEK_MOE),
)


def gpu(name: str, bandwidth_bytes_per_s: float, bf16: float, *, memory_gib: int = 80, **peaks: float) -> Gpu:
    return Gpu(
        name=name,
        title=name,
        vendor="NVIDIA",
        architecture="",
        memory_bytes=memory_gib * 2**30,
        cuda_total_bytes=memory_gib * 2**30,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        peak_flop_per_s=(("bf16", bf16), *peaks.items()),
    )


A100 = gpu("a100-sxm4-80gb", 2039e9, 312e12, int8=624e12)
H100 = gpu("h100-sxm-80gb", 3350e9, 989e12, fp8=1979e12, int8=1979e12)
H200 = gpu("h200-sxm-141gb", 4800e9, 989e12, memory_gib=141, fp8=1979e12, int8=1979e12)
B200 = gpu("b200", 8000e9, 2250e12, memory_gib=180, fp8=4500e12, fp4=9000e12)
GB10 = gpu("gb10", 273e9, 125e12, memory_gib=128)
