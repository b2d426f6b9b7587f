"""Adapters from a config.json to the nouns of ``spec``: one function per architecture family, found by ``model_type``.

An adapter takes a :class:`~infcalc.catalog.architectures.reader.Reader` and returns a
:class:`~infcalc.spec.model.Model`. It reads every key that shapes the layers; what it does not read is refused.
"""

from __future__ import annotations

_DENSE = "infcalc.catalog.architectures.dense"
_CLASSIC = "infcalc.catalog.architectures.classic"
_MIXTURE = "infcalc.catalog.architectures.mixture"
_LATENT = "infcalc.catalog.architectures.latent"
_GEMMA = "infcalc.catalog.architectures.gemma"
_HYBRID = "infcalc.catalog.architectures.hybrid"
_MAMBA = "infcalc.catalog.architectures.mamba"

ADAPTERS: dict[str, str] = {
    "llama": f"{_DENSE}:llama",
    "mistral": f"{_DENSE}:mistral",
    "ministral3": f"{_DENSE}:ministral3",
    "granite": f"{_DENSE}:llama",
    "smollm3": f"{_DENSE}:smollm3",
    "internlm2": f"{_DENSE}:internlm2",
    "seed_oss": f"{_DENSE}:seed_oss",
    "qwen2": f"{_DENSE}:qwen2",
    "qwen2_vl": f"{_DENSE}:qwen2",
    "qwen2_vl_text": f"{_DENSE}:qwen2",
    "qwen2_5_vl": f"{_DENSE}:qwen2",
    "qwen2_5_vl_text": f"{_DENSE}:qwen2",
    "qwen3": f"{_DENSE}:qwen3",
    "qwen3_vl_text": f"{_DENSE}:qwen3",
    "mimo": f"{_DENSE}:mimo",
    "phi3": f"{_DENSE}:phi3",
    "olmo2": f"{_DENSE}:olmo2",
    "olmo3": f"{_DENSE}:olmo3",
    "exaone4": f"{_DENSE}:exaone4",
    "glm4": f"{_DENSE}:glm4",
    "chatglm": f"{_DENSE}:chatglm",
    "cohere": f"{_DENSE}:cohere",
    "cohere2": f"{_DENSE}:cohere2",
    "starcoder2": f"{_DENSE}:starcoder2",
    "muse_glimmer_text": f"{_DENSE}:muse_glimmer",
    "nemotron-nas": f"{_DENSE}:nemotron_nas",
    "gpt2": f"{_CLASSIC}:gpt2",
    "gptj": f"{_CLASSIC}:gptj",
    "gpt_neox": f"{_CLASSIC}:gpt_neox",
    "opt": f"{_CLASSIC}:opt",
    "bloom": f"{_CLASSIC}:bloom",
    "mpt": f"{_CLASSIC}:mpt",
    "falcon": f"{_CLASSIC}:falcon",
    "RefinedWebModel": f"{_CLASSIC}:falcon",
    "RefinedWeb": f"{_CLASSIC}:falcon",
    "phi": f"{_CLASSIC}:phi",
    "phi-msft": f"{_CLASSIC}:phi",
    "mixtral": f"{_MIXTURE}:mixtral",
    "qwen2_moe": f"{_MIXTURE}:qwen2_moe",
    "qwen3_moe": f"{_MIXTURE}:qwen3_moe",
    "qwen3_vl_moe_text": f"{_MIXTURE}:qwen3_moe",
    "phimoe": f"{_MIXTURE}:phimoe",
    "dbrx": f"{_MIXTURE}:dbrx",
    "grok-1": f"{_MIXTURE}:grok",
    "git": f"{_MIXTURE}:grok",
    "llama4_text": f"{_MIXTURE}:llama4",
    "gpt_oss": f"{_MIXTURE}:gpt_oss",
    "glm4_moe": f"{_MIXTURE}:glm4_moe",
    "minimax_m2": f"{_MIXTURE}:minimax_m2",
    "minimax_m3": f"{_MIXTURE}:minimax_m3",
    "hunyuan_v1_moe": f"{_MIXTURE}:hunyuan_moe",
    "ernie4_5_moe": f"{_MIXTURE}:ernie_moe",
    "step3_text": f"{_MIXTURE}:step3",
    "step3p7": f"{_MIXTURE}:step3p7",
    "mimo_v2_flash": f"{_MIXTURE}:mimo_v2",
    "deepseek_v2": f"{_LATENT}:deepseek",
    "deepseek_v3": f"{_LATENT}:deepseek",
    "deepseek_v32": f"{_LATENT}:deepseek",
    "kimi_k2": f"{_LATENT}:deepseek",
    "glm4_moe_lite": f"{_LATENT}:deepseek",
    "glm_moe_dsa": f"{_LATENT}:glm_dsa",
    "deepseek_v4": f"{_LATENT}:deepseek_v4",
    "gemma": f"{_GEMMA}:gemma",
    "gemma2": f"{_GEMMA}:gemma2",
    "gemma3_text": f"{_GEMMA}:gemma3",
    "gemma4_text": f"{_GEMMA}:gemma4",
    "qwen3_next": f"{_HYBRID}:qwen3_next",
    "qwen3_5_text": f"{_HYBRID}:qwen3_5",
    "qwen3_5_moe_text": f"{_HYBRID}:qwen3_5",
    "kimi_linear": f"{_HYBRID}:kimi_linear",
    "glm5_next_text": f"{_HYBRID}:glm5_next",
    "minimax_m1": f"{_HYBRID}:minimax_m1",
    "mamba": f"{_MAMBA}:mamba",
    "falcon_mamba": f"{_MAMBA}:mamba",
    "jamba": f"{_MAMBA}:jamba",
    "granitemoehybrid": f"{_MAMBA}:granite_hybrid",
    "nemotron_h": f"{_MAMBA}:nemotron_h",
}
"""``model_type`` of the (text) config to ``module:function``, as text so that only the module needed is imported."""

REFUSED: dict[str, str] = {
    "deepseek_v41": "cross-layer KV sources, candidate indexing and Engram n-gram tables need the reference code",
    "deepseek_v41_text": "cross-layer KV sources, candidate indexing and Engram n-gram tables need the reference code",
}
"""Architectures known by name whose layers cannot be derived from the config, with the reason."""
