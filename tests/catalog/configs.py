"""Configs that several tests start from, in the words of a config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]

SHARED_CONFIGS = Path(__file__).parents[2].parent / "shared" / "facts" / "hf_configs"
"""Configs as published; tests that read them skip where they are absent."""

LLAMA_8B: Config = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LLAMA_405B: Config = LLAMA_8B | {
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
}
QWEN_MOE: Config = {
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
DEEPSEEK: Config = {
    "model_type": "deepseek_v3",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
    "topk_method": "noaux_tc",
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 128,
    "q_lora_rank": 256,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
GEMMA: Config = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "sliding_window": 128,
        "vocab_size": 1024,
        "max_position_embeddings": 8192,
    },
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 64, "num_hidden_layers": 2},
}
MAMBA: Config = {
    "model_type": "mamba",
    "hidden_size": 256,
    "intermediate_size": 512,
    "state_size": 16,
    "conv_kernel": 4,
    "time_step_rank": 16,
    "num_hidden_layers": 3,
    "vocab_size": 1024,
}
SHAPES = (LLAMA_8B, QWEN_MOE, DEEPSEEK, GEMMA, MAMBA)


def published(name: str) -> Config | None:
    """Return a published config, None where the shared files are absent."""
    path = SHARED_CONFIGS / name
    if not path.is_file():
        return None
    found: Config = json.loads(path.read_text(encoding="utf-8"))
    return found
