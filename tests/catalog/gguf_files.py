"""GGUF files as bytes, built by hand: metadata and tensor table, no data."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Value = bool | int | float | str | Sequence[bool] | Sequence[int] | Sequence[str]
Row = tuple[str, tuple[int, ...], int]
"""Name, shape (columns first), type id."""

F32, F16, Q4_0, Q8_0, Q4_K, Q6_K, MXFP4 = 0, 1, 2, 8, 12, 14, 39
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value: Value) -> bytes:
    """Return type and value of a metadata entry."""
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + text(value)
    items = [value_bytes(item) for item in value]
    kind = items[0][:4] if items else struct.pack("<I", _UINT32)
    return struct.pack("<I", _ARRAY) + kind + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)


def gguf_bytes(metadata: Mapping[str, Value], rows: Sequence[Row], *, version: int = 3) -> bytes:
    """Return the head of a GGUF file."""
    parts = [b"GGUF", struct.pack("<IQQ", version, len(rows), len(metadata))]
    parts += [text(key) + value_bytes(value) for key, value in metadata.items()]
    for name, shape, kind in rows:
        parts += [text(name), struct.pack("<I", len(shape)), *(struct.pack("<Q", side) for side in shape)]
        parts.append(struct.pack("<IQ", kind, 0))
    return b"".join(parts)


def llama(
    layers: int = 4, *, kv_heads: int | Sequence[int] = 2, tied: bool = False, kind: int = Q4_0
) -> tuple[dict[str, Value], list[Row]]:
    """Return metadata and table of a small Llama: hidden 256, 4 heads of 64, feed-forward 512, vocabulary 1024."""
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": layers,
        "llama.embedding_length": 256,
        "llama.feed_forward_length": 512,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": kv_heads,
        "llama.context_length": 4096,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.tokens": [f"t{index}" for index in range(1024)],
    }
    rows: list[Row] = [("token_embd.weight", (256, 1024), Q4_0), ("output_norm.weight", (256,), F32)]
    if not tied:
        rows.append(("output.weight", (256, 1024), Q8_0))
    counts = [kv_heads] * layers if isinstance(kv_heads, int) else list(kv_heads)
    for layer in range(layers):
        kv = 64 * counts[layer]
        shapes = {
            "attn_norm": (256,),
            "ffn_norm": (256,),
            "attn_q": (256, 256),
            "attn_k": (256, kv),
            "attn_v": (256, kv),
            "attn_output": (256, 256),
            "ffn_gate": (256, 512),
            "ffn_up": (256, 512),
            "ffn_down": (512, 256),
        }
        rows += [(f"blk.{layer}.{n}.weight", s, F32 if len(s) == 1 else kind) for n, s in shapes.items()]
    return metadata, rows


def qwen3_moe() -> tuple[dict[str, Value], list[Row]]:
    """Return a small Qwen3-MoE with Q6_K and Q4_K experts by layer."""
    metadata: dict[str, Value] = {
        "general.architecture": "qwen3moe",
        "qwen3moe.block_count": 3,
        "qwen3moe.embedding_length": 256,
        "qwen3moe.feed_forward_length": 512,
        "qwen3moe.expert_feed_forward_length": 256,
        "qwen3moe.expert_count": 8,
        "qwen3moe.expert_used_count": 2,
        "qwen3moe.attention.head_count": 8,
        "qwen3moe.attention.head_count_kv": 2,
        "qwen3moe.attention.key_length": 64,
        "qwen3moe.attention.value_length": 64,
        "qwen3moe.context_length": 4096,
    }
    rows: list[Row] = [
        ("token_embd.weight", (256, 1024), Q4_K),
        ("output_norm.weight", (256,), F32),
        ("output.weight", (256, 1024), Q6_K),
    ]
    for layer in range(3):
        rows += [
            (f"blk.{layer}.attn_norm.weight", (256,), F32),
            (f"blk.{layer}.ffn_norm.weight", (256,), F32),
            (f"blk.{layer}.attn_q.weight", (256, 512), Q4_K),
            (f"blk.{layer}.attn_q_norm.weight", (64,), F32),
            (f"blk.{layer}.attn_k.weight", (256, 128), Q4_K),
            (f"blk.{layer}.attn_k_norm.weight", (64,), F32),
            (f"blk.{layer}.attn_v.weight", (256, 128), Q6_K),
            (f"blk.{layer}.attn_output.weight", (512, 256), Q4_K),
            (f"blk.{layer}.ffn_gate_inp.weight", (256, 8), F32),
            (f"blk.{layer}.ffn_gate_exps.weight", (256, 256, 8), Q4_K),
            (f"blk.{layer}.ffn_up_exps.weight", (256, 256, 8), Q4_K),
            (f"blk.{layer}.ffn_down_exps.weight", (256, 256, 8), Q6_K if layer == 1 else Q4_K),
        ]
    return metadata, rows


def gpt_oss() -> tuple[dict[str, Value], list[Row]]:
    """Return a small gpt-oss: biases, sinks, MXFP4 experts, every other layer slides."""
    metadata: dict[str, Value] = {
        "general.architecture": "gpt-oss",
        "gpt-oss.block_count": 4,
        "gpt-oss.embedding_length": 256,
        "gpt-oss.feed_forward_length": 256,
        "gpt-oss.expert_feed_forward_length": 256,
        "gpt-oss.expert_count": 4,
        "gpt-oss.expert_used_count": 2,
        "gpt-oss.attention.head_count": 8,
        "gpt-oss.attention.head_count_kv": 2,
        "gpt-oss.attention.key_length": 64,
        "gpt-oss.attention.value_length": 64,
        "gpt-oss.attention.sliding_window": 128,
        "gpt-oss.context_length": 4096,
    }
    rows: list[Row] = [
        ("token_embd.weight", (256, 1024), Q8_0),
        ("output_norm.weight", (256,), F32),
        ("output.weight", (256, 1024), Q8_0),
    ]
    for layer in range(4):
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (256,),
            "post_attention_norm.weight": (256,),
            "attn_q.weight": (256, 512),
            "attn_q.bias": (512,),
            "attn_k.weight": (256, 128),
            "attn_k.bias": (128,),
            "attn_v.weight": (256, 128),
            "attn_v.bias": (128,),
            "attn_output.weight": (512, 256),
            "attn_output.bias": (256,),
            "attn_sinks.weight": (8,),
            "ffn_gate_inp.weight": (256, 4),
            "ffn_gate_inp.bias": (4,),
            "ffn_gate_exps.weight": (256, 256, 4),
            "ffn_gate_exps.bias": (256, 4),
            "ffn_up_exps.weight": (256, 256, 4),
            "ffn_up_exps.bias": (256, 4),
            "ffn_down_exps.weight": (256, 256, 4),
            "ffn_down_exps.bias": (256, 4),
        }
        for name, shape in shapes.items():
            kind = MXFP4 if name.endswith("exps.weight") else Q8_0
            plain = len(shape) == 1 or name.endswith("bias") or "gate_inp" in name
            rows.append((f"blk.{layer}.{name}", shape, F32 if plain else kind))
    return metadata, rows


def deepseek() -> tuple[dict[str, Value], list[Row]]:
    """Return a small DeepSeek V3 in the newer form: split kv_b, *_mla lengths, a leading dense layer."""
    metadata: dict[str, Value] = {
        "general.architecture": "deepseek2",
        "deepseek2.block_count": 3,
        "deepseek2.embedding_length": 512,
        "deepseek2.feed_forward_length": 1024,
        "deepseek2.expert_feed_forward_length": 256,
        "deepseek2.expert_count": 4,
        "deepseek2.expert_used_count": 2,
        "deepseek2.expert_shared_count": 1,
        "deepseek2.leading_dense_block_count": 1,
        "deepseek2.attention.head_count": 4,
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.kv_lora_rank": 256,
        "deepseek2.attention.q_lora_rank": 256,
        "deepseek2.attention.key_length": 320,
        "deepseek2.attention.value_length": 256,
        "deepseek2.attention.key_length_mla": 192,
        "deepseek2.attention.value_length_mla": 128,
        "deepseek2.rope.dimension_count": 64,
        "deepseek2.context_length": 4096,
    }
    rows: list[Row] = [
        ("token_embd.weight", (512, 1024), Q4_K),
        ("output_norm.weight", (512,), F32),
        ("output.weight", (512, 1024), Q6_K),
    ]
    for layer in range(3):
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (512,),
            "ffn_norm.weight": (512,),
            "attn_q_a.weight": (512, 256),
            "attn_q_a_norm.weight": (256,),
            "attn_q_b.weight": (256, 768),
            "attn_kv_a_mqa.weight": (512, 320),
            "attn_kv_a_norm.weight": (256,),
            "attn_k_b.weight": (128, 256, 4),
            "attn_v_b.weight": (256, 128, 4),
            "attn_output.weight": (512, 512),
        }
        if layer:
            shapes |= {
                "ffn_gate_inp.weight": (512, 4),
                "exp_probs_b.bias": (4,),
                "ffn_gate_exps.weight": (512, 256, 4),
                "ffn_up_exps.weight": (512, 256, 4),
                "ffn_down_exps.weight": (256, 512, 4),
                "ffn_gate_shexp.weight": (512, 256),
                "ffn_up_shexp.weight": (512, 256),
                "ffn_down_shexp.weight": (256, 512),
            }
        else:
            shapes |= {"ffn_gate.weight": (512, 1024), "ffn_up.weight": (512, 1024), "ffn_down.weight": (1024, 512)}
        for name, shape in shapes.items():
            plain = len(shape) == 1 or "gate_inp" in name
            small = name.startswith(("attn_k_b", "attn_v_b"))
            rows.append((f"blk.{layer}.{name}", shape, F32 if plain else Q8_0 if small else Q4_K))
    return metadata, rows


def gemma3() -> tuple[dict[str, Value], list[Row]]:
    """Return a small Gemma 3: tied, four norms, Q and K normed, five sliding layers to each full one."""
    metadata: dict[str, Value] = {
        "general.architecture": "gemma3",
        "gemma3.block_count": 6,
        "gemma3.embedding_length": 256,
        "gemma3.feed_forward_length": 512,
        "gemma3.attention.head_count": 4,
        "gemma3.attention.head_count_kv": 2,
        "gemma3.attention.key_length": 64,
        "gemma3.attention.value_length": 64,
        "gemma3.attention.sliding_window": 128,
        "gemma3.context_length": 8192,
    }
    rows: list[Row] = [("token_embd.weight", (256, 1024), Q6_K), ("output_norm.weight", (256,), F32)]
    for layer in range(6):
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm": (256,),
            "post_attention_norm": (256,),
            "ffn_norm": (256,),
            "post_ffw_norm": (256,),
            "attn_q_norm": (64,),
            "attn_k_norm": (64,),
            "attn_q": (256, 256),
            "attn_k": (256, 128),
            "attn_v": (256, 128),
            "attn_output": (256, 256),
            "ffn_gate": (256, 512),
            "ffn_up": (256, 512),
            "ffn_down": (512, 256),
        }
        rows += [(f"blk.{layer}.{n}.weight", s, F32 if len(s) == 1 else Q4_K) for n, s in shapes.items()]
    return metadata, rows


def mamba() -> tuple[dict[str, Value], list[Row]]:
    """Return a small Mamba."""
    metadata: dict[str, Value] = {
        "general.architecture": "mamba",
        "mamba.block_count": 2,
        "mamba.embedding_length": 256,
        "mamba.feed_forward_length": 0,
        "mamba.attention.head_count": 0,
        "mamba.context_length": 4096,
        "mamba.ssm.conv_kernel": 4,
        "mamba.ssm.inner_size": 512,
        "mamba.ssm.state_size": 16,
        "mamba.ssm.time_step_rank": 32,
    }
    rows: list[Row] = [("token_embd.weight", (256, 1024), Q8_0), ("output_norm.weight", (256,), F32)]
    for layer in range(2):
        rows += [
            (f"blk.{layer}.attn_norm.weight", (256,), F32),
            (f"blk.{layer}.ssm_in.weight", (256, 1024), Q4_K),
            (f"blk.{layer}.ssm_conv1d.weight", (4, 512), F32),
            (f"blk.{layer}.ssm_conv1d.bias", (512,), F32),
            (f"blk.{layer}.ssm_x.weight", (512, 64), F32),
            (f"blk.{layer}.ssm_dt.weight", (32, 512), F32),
            (f"blk.{layer}.ssm_dt.bias", (512,), F32),
            (f"blk.{layer}.ssm_a", (16, 512), F32),
            (f"blk.{layer}.ssm_d", (512,), F32),
            (f"blk.{layer}.ssm_out.weight", (512, 256), Q4_K),
        ]
    return metadata, rows
