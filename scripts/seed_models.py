"""Seed models.yaml from the compiled facts (../shared/facts): once written, models.yaml is the truth.

Run with the project's Python: ``python scripts/seed_models.py``. It overwrites models.yaml and the list of published
parameter counts in tests/published/parameters.yaml.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from infcalc.catalog.codec import model_to_mapping
from infcalc.catalog.huggingface import from_config
from infcalc.catalog.quantization import read_quantization
from infcalc.lowering.tensors import inventory, parameters
from infcalc.spec.model import Model
from infcalc.spec.weights import TensorRole, WeightQuantization, WeightRule

ROOT = Path(__file__).resolve().parents[1]
FACTS = ROOT.parent / "shared" / "facts"
READ_DATE = "2026-11-29"
_PUBLISHED_SOURCE = "Hugging Face safetensors element count, as embedded in the model database of llmfit 1.1.17"

_PLAIN = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "sliding_window",
    "torch_dtype",
)
_LETTERS = {
    "F": "full_attention",
    "S": "sliding_attention",
    "L": "linear_attention",
    "M": "mamba",
    "A": "attention",
    "D": "deepseek_sparse_attention",
}

# Keys the facts leave out of a config that the published checkpoint nevertheless shows: biases that the parameter count
# needs, MTP layers that it contains, modules that a quantization leaves alone.
_COMPLETIONS: dict[str, dict[str, Any]] = {
    "zai-org/glm-4-9b-chat": {"add_qkv_bias": True},
    "microsoft/Phi-3.5-MoE-instruct": {"lm_head_bias": True},
    "microsoft/Phi-mini-MoE-instruct": {"lm_head_bias": True},
    "baidu/ERNIE-4.5-21B-A3B-PT": {"num_nextn_predict_layers": 1},
    "XiaomiMiMo/MiMo-V2-Flash": {"num_nextn_predict_layers": 3},
}
_ONLY_EXPERTS = [
    "re:.*self_attn.*",
    "re:.*shared_experts.*",
    r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
    "lm_head",
]
_QUANTIZATIONS: dict[str, dict[str, Any]] = {
    "moonshotai/Kimi-K3": {"ignore": _ONLY_EXPERTS},
    "ibm-granite/granite-3.3-8b-instruct-FP8": {"ignore": ["lm_head"]},
}
_SIDECARS = {
    "nvidia/Gemma-4-31B-IT-NVFP4": {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
        "exclude_modules": ["model.language_model.layers.*.self_attn*", "lm_head"],
    },
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": {
        "quant_algo": "FP8",
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head"],
    },
}
_MIXED = {
    # Feed-forward and expert matrices in NVFP4, the others in FP8: the usual recipe where the list itself is missing.
    "nvidia/Qwen3.6-35B-A3B-NVFP4": ("expert",),
    "nvidia/Qwen3.6-27B-NVFP4": ("feed_forward",),
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": ("expert",),
}

LEFT_OUT = {
    "deepseek-ai/DeepSeek-V4.1-Flash": "cross-layer KV sources, candidate indexing and Engram n-gram tables are not "
    "derivable from the config",
    "nvidia/Llama-3_1-Nemotron-Ultra-253B-v1": "its per-block configuration (block_configs) was not obtained",
}

_NAMES = {
    "meta-llama/Llama-2-7b-hf": "llama2-7b",
    "meta-llama/Llama-2-13b-chat-hf": "llama2-13b",
    "meta-llama/Llama-2-70b-chat-hf": "llama2-70b",
    "codellama/CodeLlama-34b-Instruct-hf": "codellama-34b",
    "meta-llama/Meta-Llama-3-8B": "llama3-8b",
    "meta-llama/Meta-Llama-3-70B": "llama3-70b",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "llama4-scout",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": "llama4-maverick",
    "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": "llama4-scout-fp8",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "tinyllama-1.1b",
    "mistralai/Mistral-7B-Instruct-v0.2": "mistral-7b-v0.2",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b-v0.3",
    "mistralai/Mistral-Nemo-Instruct-2407": "mistral-nemo-12b",
    "mistralai/Mistral-Small-24B-Instruct-2501": "mistral-small-24b",
    "mistralai/Mistral-Large-Instruct-2407": "mistral-large-123b",
    "mistralai/Ministral-8B-Instruct-2410": "ministral-8b",
    "mistralai/Ministral-3-3B-Instruct-2512": "ministral3-3b",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "mistralai/Mixtral-8x22B-v0.1": "mixtral-8x22b",
    "Qwen/Qwen2-57B-A14B-Instruct": "qwen2-57b-a14b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b-2507",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": "qwen3-coder-480b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "qwen3-next-80b",
    "Qwen/Qwen3-Coder-Next": "qwen3-coder-next",
    "nvidia/Qwen3.6-35B-A3B-NVFP4": "qwen3.6-35b-a3b-nvfp4",
    "nvidia/Qwen3.6-27B-NVFP4": "qwen3.6-27b-nvfp4",
    "moonshotai/Kimi-K2-Instruct": "kimi-k2",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": "kimi-linear-48b",
    "zai-org/glm-4-9b-chat": "glm-4-9b-chat",
    "zai-org/GLM-4-9B-0414": "glm-4-9b-0414",
    "zai-org/GLM-4-32B-0414": "glm-4-32b-0414",
    "MiniMaxAI/MiniMax-M1-80k": "minimax-m1",
    "google/gemma-4-26B-A4B": "gemma-4-26b-a4b",
    "nvidia/Gemma-4-31B-IT-NVFP4": "gemma-4-31b-nvfp4",
    "microsoft/Phi-3-mini-4k-instruct": "phi-3-mini-4k",
    "microsoft/Phi-3-medium-128k-instruct": "phi-3-medium-128k",
    "microsoft/Phi-4-mini-instruct": "phi-4-mini",
    "CohereLabs/c4ai-command-r-v01": "command-r",
    "CohereLabs/c4ai-command-r-08-2024": "command-r-08-2024",
    "CohereLabs/c4ai-command-r-plus": "command-r-plus",
    "CohereLabs/c4ai-command-r7b-12-2024": "command-r7b",
    "CohereLabs/c4ai-command-a-03-2025": "command-a",
    "allenai/OLMo-2-1124-7B": "olmo-2-7b",
    "allenai/OLMo-2-1124-13B": "olmo-2-13b",
    "allenai/OLMo-2-0325-32B": "olmo-2-32b",
    "allenai/Olmo-3-1025-7B": "olmo-3-7b",
    "allenai/Olmo-3.1-32B-Instruct": "olmo-3.1-32b",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": "nemotron-super-49b",
    "nvidia/Nemotron-H-8B-Base-8K": "nemotron-h-8b",
    "nvidia/Nemotron-H-56B-Base-8K": "nemotron-h-56b",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "nemotron-nano-9b-v2",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron-3-nano-30b",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": "nemotron-3-super-120b-fp8",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": "nemotron-3-ultra-550b",
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": "nemotron-3.5-lightning-30b-nvfp4",
    "ai21labs/Jamba-v0.1": "jamba-v0.1",
    "ai21labs/AI21-Jamba-1.5-Mini": "jamba-1.5-mini",
    "ai21labs/AI21-Jamba-1.5-Large": "jamba-1.5-large",
    "internlm/internlm2_5-7b-chat": "internlm2.5-7b",
    "internlm/internlm2_5-20b-chat": "internlm2.5-20b",
    "tencent/Hunyuan-A13B-Instruct": "hunyuan-a13b",
    "baidu/ERNIE-4.5-21B-A3B-PT": "ernie-4.5-21b-a3b",
    "baidu/ERNIE-4.5-300B-A47B-PT": "ernie-4.5-300b-a47b",
    "ByteDance-Seed/Seed-OSS-36B-Instruct": "seed-oss-36b",
}
_ALIASES = {
    "llama2-7b": ["meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b"],
    "llama2-13b": ["meta-llama/Llama-2-13b-hf", "meta-llama/Llama-2-13b"],
    "llama2-70b": ["meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-70b"],
    "llama3-8b": ["meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Llama-3-8B", "meta-llama/Llama-3-8B-Instruct"],
    "llama3-70b": ["meta-llama/Meta-Llama-3-70B-Instruct", "meta-llama/Llama-3-70B", "meta-llama/Llama-3-70B-Instruct"],
    "llama3.1-8b": ["meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B-Instruct"],
    "llama3.1-70b": ["meta-llama/Meta-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B-Instruct"],
    "llama3.1-405b": ["meta-llama/Meta-Llama-3.1-405B", "meta-llama/Meta-Llama-3.1-405B-Instruct"],
    "llama3.3-70b": ["meta-llama/Llama-3.3-70B"],
    "llama4-scout": ["meta-llama/Llama-4-Scout-17B-16E"],
    "llama4-maverick": ["meta-llama/Llama-4-Maverick-17B-128E"],
    "mistral-7b-v0.1": ["mistralai/Mistral-7B-Instruct-v0.1"],
    "mistral-7b-v0.2": ["mistralai/Mistral-7B-v0.2"],
    "mistral-7b-v0.3": ["mistralai/Mistral-7B-v0.3", "mistral-7b"],
    "mistral-nemo-12b": ["mistralai/Mistral-Nemo-Base-2407", "mistral-nemo"],
    "mistral-small-24b": ["mistralai/Mistral-Small-24B-Base-2501"],
    "mistral-large-123b": ["mistral-large", "mistral-large-2407"],
    "mixtral-8x7b": ["mistralai/Mixtral-8x7B-Instruct-v0.1"],
    "mixtral-8x22b": ["mistralai/Mixtral-8x22B-Instruct-v0.1"],
    "qwen3-coder-480b": ["qwen3-coder-480b-a35b"],
    "qwen3-next-80b": ["Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b-a3b"],
    "qwen3-235b-a22b": ["Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B-Thinking-2507"],
    "qwen3-30b-a3b-2507": ["Qwen/Qwen3-30B-A3B-Thinking-2507"],
    "deepseek-v3": ["deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3-Base"],
    "deepseek-r1": ["deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1-Zero"],
    "deepseek-v3.1": ["deepseek-ai/DeepSeek-V3.1-Base", "deepseek-ai/DeepSeek-V3.1-Terminus"],
    "deepseek-v3.2": ["deepseek-ai/DeepSeek-V3.2-Exp"],
    "kimi-k2": ["moonshotai/Kimi-K2-Base"],
    "kimi-linear-48b": ["moonshotai/Kimi-Linear-48B-A3B-Base", "kimi-linear"],
    "gemma-4-26b-a4b": ["google/gemma-4-26B-A4B-it"],
    "falcon-180b": ["tiiuae/falcon-180B-chat"],
    "dbrx": ["databricks/dbrx-base"],
    "ernie-4.5-21b-a3b": ["baidu/ERNIE-4.5-21B-A3B-Base-PT"],
    "ernie-4.5-300b-a47b": ["baidu/ERNIE-4.5-300B-A47B-Base-PT"],
    "granite-4.0-h-small": ["ibm-granite/granite-4.0-h-small-base"],
    "nemotron-super-49b": ["llama3.3-nemotron-super-49b"],
    "bloom": ["bigscience/bloomz", "bloom-176b"],
    "bloom-7b1": ["bigscience/bloomz-7b1"],
    "hunyuan-a13b": ["tencent/Hunyuan-A13B-Pretrain"],
    "mimo-7b": ["XiaomiMiMo/MiMo-7B-RL"],
}
_SUFFIX = re.compile(r"-(instruct|chat|hf|it|base)(?=-|$)", re.IGNORECASE)

# What the checkpoint total cannot vouch for, in plain words.
_EVIDENCE = {
    "literal_copy_in_code": "read from a copy of the config written out in source code, not from a config.json",
    "reconstructed": "dimensions assembled from secondary sources, not read from a config.json",
    "reduced_or_adapted_config_copy": "read from a reduced or adapted copy of the config",
}
_DOUBTS = {
    "allenai/Olmo-3-1025-7B": "which layers slide comes from the class default (three of four); the copy does not say",
    "xai-org/grok-1": "the published total (314B) is rounded; 0.5 % below the count of the stated dimensions",
    "xai-org/grok-2": "dimensions are confirmed only by the published total of 270B, to 0.2 %",
    "stepfun-ai/Step-3.7-Flash": "sliding layers of this family have more heads (96) than the copy shows; MTP layers "
    "and vision tower are not modelled; the checkpoint holds 5.5B parameters more than counted here",
    "zai-org/GLM-5.2-FP8": "which 541 modules stay unquantized was not obtained; all linear layers are counted as FP8",
    "zai-org/GLM-5.3-Flash": "which 1509 modules stay unquantized was not obtained; all linear layers count as FP8",
    "moonshotai/Kimi-K3": "which modules stay unquantized was not obtained; as in K2.5, only experts count as MXFP4",
    "nvidia/Gemma-4-31B-IT-NVFP4": "which 63 modules stay unquantized was not obtained; attention is counted as BF16",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": "which modules stay unquantized was not obtained; all linear "
    "layers are counted as FP8",
    "MiniMaxAI/MiniMax-M3": "MTP modules and vision tower (866M together) are not modelled",
    **dict.fromkeys(
        _MIXED, "its list of precisions by module was not obtained; feed-forward is counted as NVFP4, the rest as FP8"
    ),
}
_LLAMA_405B_FP8: dict[str, Any] = {
    "hf_id": "meta-llama/Llama-3.1-405B-Instruct-FP8",
    "aliases": ["meta-llama/Meta-Llama-3.1-405B-Instruct-FP8"],
    "source": "shape of meta-llama/Llama-3.1-405B; quantized modules as reported in "
    "https://github.com/vllm-project/vllm/issues/6746 (fbgemm_fp8: feed-forward of all but the first and last layer)",
    "doubts": ["which modules are quantized comes from an issue report, not from the config"],
}


def expand(value: object) -> object:
    """Return ``{length, run_length}`` as the list it stands for, at any depth; anything else unchanged."""
    if not isinstance(value, dict):
        return value
    if set(value) != {"length", "run_length"}:
        return {key: expand(item) for key, item in value.items()}
    items: list[object] = []
    for part in value["run_length"].split():
        text, _, times = part.rpartition("x")
        items.extend([int(text) if re.fullmatch(r"-?\d+", text) else text] * int(times))
    if len(items) != value["length"]:
        raise ValueError(value)
    return items


def rebuilt(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a config.json as far as the facts of one entry give it."""
    config: dict[str, Any] = {key: entry[key] for key in _PLAIN if entry.get(key) is not None}
    config.setdefault("sliding_window", None)
    if entry.get("tie_word_embeddings") is not None:
        config["tie_word_embeddings"] = entry["tie_word_embeddings"]
    if entry.get("text_model_type"):
        config["model_type"] = entry["text_model_type"]
    for group in ("attention_extras", "moe", "mla", "hybrid_ssm", "mtp", "sparse_indexer"):
        for key, value in (entry.get(group) or {}).items():
            if key not in {"note", "model_type"}:
                config[key] = expand(value)
    if entry.get("layer_types_compact"):
        config["layer_types"] = [_LETTERS[letter] for letter in entry["layer_types_compact"]]
    if config["model_type"] == "dbrx":
        moe = ("ffn_hidden_size", "moe_num_experts", "moe_top_k", "moe_jitter_eps", "moe_loss_weight", "ffn_act_fn")
        config["ffn_config"] = {key: config.pop(key) for key in moe if key in config}
    return config | _COMPLETIONS.get(entry["hf_id"], {})


def real_config(hf_id: str) -> dict[str, Any] | None:
    """Return the config.json of ``hf_id`` as found, where the facts hold one."""
    path = FACTS / "hf_configs" / f"{hf_id.replace('/', '__')}.json"
    return json.loads(path.read_text()) if path.exists() else None


def sidecar(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return the hf_quant_config.json of an entry: as found, else as far as the facts give it."""
    path = FACTS / "hf_configs" / f"{entry['hf_id'].replace('/', '__')}.hf_quant_config.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    if entry["hf_id"] in _SIDECARS:
        return {"quantization": _SIDECARS[entry["hf_id"]]}
    stated = entry.get("hf_quant_config_sidecar")
    return {"quantization": dict(stated)} if stated else None


def without_absent(quantization: WeightQuantization, model: Model) -> WeightQuantization:
    """Return the rules without the roles and names that the model has no tensors of."""
    tensors = inventory(model, with_mtp=True)
    names = {(tensor.role, tensor.name.removeprefix("mtp.").rpartition(".")[2]) for tensor in tensors}
    roles = {tensor.role for tensor in tensors}
    rules = []
    for rule in quantization.rules:
        kept_roles = tuple(role for role in rule.roles if role in roles)
        kept_names = tuple(name for name in rule.names if any((role, name) in names for role in kept_roles))
        if (rule.roles and not kept_roles) or (rule.names and not kept_names):
            continue
        rules.append(replace(rule, roles=kept_roles, names=kept_names))
    return replace(quantization, rules=tuple(rules))


def with_quantization(entry: dict[str, Any], config: dict[str, Any], model: Model) -> Model:
    """Return ``model`` with the storage of its checkpoint."""
    hf_id = entry["hf_id"]
    if hf_id in _MIXED:
        rules = [{"roles": list(_MIXED[hf_id]), "format": "nvfp4"}]
        return replace(model, quantization=_plain_quantization("modelopt", "fp8", rules), kv_dtype="fp8")
    stated = dict(config)
    block = entry.get("quantization_config") if real_config(hf_id) is None else None
    if block is not None:
        stated["quantization_config"] = dict(block) | _QUANTIZATIONS.get(hf_id, {})
    if hf_id.startswith("MiniMaxAI/MiniMax-M2"):
        donor = real_config("MiniMaxAI/MiniMax-M2.5")
        stated["quantization_config"] = donor["quantization_config"] if donor else None
    if hf_id == "nvidia/Gemma-4-31B-IT-NVFP4":
        stated.pop("quantization_config", None)
    reading = read_quantization(stated, sidecar=sidecar(entry))
    stored = without_absent(reading.quantization, model) if reading.quantization else None
    return replace(model, quantization=stored, kv_dtype=reading.kv_dtype)


def _plain_quantization(method: str, form: str, rules: list[dict[str, Any]]) -> WeightQuantization:
    return WeightQuantization(
        format=form,
        method=method,
        rules=tuple(
            WeightRule(
                roles=tuple(TensorRole(role) for role in rule["roles"]),
                layers=rule.get("layers"),
                format=rule["format"],
            )
            for rule in rules
        ),
    )


def catalog_name(hf_id: str) -> str:
    """Return the short name people type."""
    if hf_id in _NAMES:
        return _NAMES[hf_id]
    name = _SUFFIX.sub("", hf_id.rpartition("/")[2].lower())
    return re.sub(r"^llama-(?=\d)", "llama", name)


def other_ids(hf_id: str, name: str) -> list[str]:
    """Return further ids of the same shape: with and without ``Instruct`` and the like."""
    found = list(_ALIASES.get(name, ()))
    # Only at the end: elsewhere the shorter id is of no model.
    bare = re.sub(r"-(instruct|chat|it|hf)$", "", hf_id, flags=re.IGNORECASE)
    if bare != hf_id and "distill" not in hf_id.lower():
        found.append(bare)
    elif hf_id.startswith(("meta-llama/Llama-3", "codellama/")):
        found.append(f"{hf_id}-Instruct")
    return [alias for alias in dict.fromkeys(found) if alias != hf_id]


def vision(entry: dict[str, Any], model: Model) -> tuple[tuple[str, ...], int]:
    """Return what the checkpoint holds beside the decoder, named, and its parameters."""
    check = entry.get("param_check") or {}
    causes = check.get("explained_by") or []
    rest = check.get("checkpoint_minus_computed") or 0
    table = model.vocab_size * model.hidden_size
    for cause in causes:
        if "MTP" in cause and model.mtp is not None:
            rest -= parameters(inventory(model, with_mtp=True)).total - parameters(inventory(model)).total
            rest -= 2 * table * (1 if "copies" in cause else 0)
        if "tied lm_head" in cause:
            rest -= table
    seen = [cause for cause in causes if "vision" in cause]
    if not seen:
        return model.unmodelled, 0
    return ("vision and audio towers with projector",), rest


def cleaned(source: str) -> str:
    """Return a source without the mention of identical copies elsewhere."""
    source = re.sub(r"\s*\((same bytes|fuller than)[^)]*\)", "", source)
    return source.replace("in PyPI ", "in the package ").replace("PyPI ", "package ")


def described(entry: dict[str, Any], taken: set[str]) -> tuple[str, Model]:
    """Return the catalog name and the model of one entry of the facts."""
    hf_id = entry["hf_id"]
    config = real_config(hf_id) or rebuilt(entry)
    config = config | _COMPLETIONS.get(hf_id, {})
    name = catalog_name(hf_id)
    model = with_quantization(entry, config, from_config(config, name=name))
    check = entry.get("param_check") or {}
    causes = " ".join(check.get("explained_by") or [])
    mtp = model.mtp
    if mtp is not None:
        mtp = None if hf_id == "Qwen/Qwen3-Coder-Next" else replace(mtp, embedding_copies=int("copies" in causes))
    model = replace(model, mtp=mtp)
    doubts = []
    if entry["evidence"] in _EVIDENCE:
        confirmed = check.get("status") in {"exact", "explained"}
        doubts.append(
            _EVIDENCE[entry["evidence"]] + (" (the parameter count agrees with the published one)" if confirmed else "")
        )
    if hf_id in _DOUBTS:
        doubts.append(_DOUBTS[hf_id])
    if entry["torch_dtype"] is None and model.quantization is None:
        doubts.append("the type of the stored weights is not stated; 16 bits assumed")
    unmodelled, size = vision(entry, model)
    published = (entry.get("published") or {}).get("checkpoint_total_params")
    return name, replace(
        model,
        architecture=entry["model_type"],
        hf_id=hf_id,
        aliases=tuple(alias for alias in other_ids(hf_id, name) if alias not in taken),
        published_parameters=published,
        source=cleaned(entry["source"]),
        date=READ_DATE,
        doubts=tuple(doubts),
        unmodelled=unmodelled,
        unmodelled_parameters=size,
    )


def further_models(models: dict[str, Model]) -> dict[str, Model]:
    """Return quantized checkpoints whose config (or a report of it) lies beside the facts."""
    found: dict[str, Model] = {}
    for hf_id, name, base in (
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b-fp8", "qwen3-235b-a22b"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "deepseek-v3.1-nvfp4", "deepseek-v3.1"),
    ):
        config = real_config(hf_id)
        if config is None:
            continue
        entry = {"hf_id": hf_id}
        model = with_quantization(entry, config, from_config(config, name=name))
        found[name] = replace(
            model,
            hf_id=hf_id,
            source=f"config.json of {hf_id}; shape as {base}",
            date=READ_DATE,
        )
    base_model = models["llama3.1-405b"]
    found["llama3.1-405b-fp8"] = replace(
        base_model,
        name="llama3.1-405b-fp8",
        hf_id=_LLAMA_405B_FP8["hf_id"],
        aliases=tuple(_LLAMA_405B_FP8["aliases"]),
        source=_LLAMA_405B_FP8["source"],
        doubts=tuple(_LLAMA_405B_FP8["doubts"]),
        published_parameters=None,
        quantization=_plain_quantization(
            "fbgemm_fp8",
            "fp8_channel",
            [
                {"roles": [], "layers": (0, base_model.num_layers - 1), "format": "bf16"},
                {"roles": ["attention"], "format": "bf16"},
            ],
        ),
    )
    return found


def draft_name(title: str) -> str:
    """Return the catalog name of a draft head."""
    kind, _, target = title.partition(" draft for ")
    target = re.sub(r"[^a-z0-9.]+", "-", target.lower()).strip("-")
    return f"{target.replace('llama-3.x-', 'llama3-')}-{kind.lower().replace('-', '')}"


_DRAFT_TARGETS = {
    "EAGLE-3 draft for Llama 3.x 8B": ["llama3-8b", "llama3.1-8b"],
    "EAGLE-3 draft for Llama 3.x 70B": ["llama3-70b", "llama3.1-70b", "llama3.3-70b"],
    "EAGLE-3 draft for Qwen3-8B": ["qwen3-8b"],
    "EAGLE-3 draft for Qwen3-32B": ["qwen3-32b"],
    "EAGLE-3 draft for Qwen3-30B-A3B": ["qwen3-30b-a3b"],
    "EAGLE-3 draft for Qwen3-235B-A22B": ["qwen3-235b-a22b"],
    "EAGLE-3 draft for Qwen3-Coder-480B-A35B": ["qwen3-coder-480b"],
    "EAGLE-3 draft for Qwen3-Next-80B-A3B": ["qwen3-next-80b"],
    "EAGLE-3 draft for gpt-oss-20b": ["gpt-oss-20b"],
    "EAGLE-3 draft for gpt-oss-120b": ["gpt-oss-120b"],
    "EAGLE-3 draft for DeepSeek-V3": ["deepseek-v3"],
    "EAGLE-3 draft for DeepSeek-V2-Lite": ["deepseek-v2-lite"],
    "EAGLE-3 draft for Llama-4-Scout": ["llama4-scout"],
    "EAGLE-3 draft for phi-4": ["phi-4"],
    "EAGLE-3 draft for QwQ-32B": ["qwq-32b"],
    "EAGLE-3 draft for gemma-3-1b": ["gemma-3-1b"],
    "EAGLE-1 draft for Llama-2-7B-chat": ["llama2-7b"],
    "EAGLE-1 draft for Llama-2-70B-chat": ["llama2-70b"],
    "EAGLE-1 draft for Vicuna-13B": ["llama2-13b"],
    "EAGLE-1 draft for Mixtral-8x7B": ["mixtral-8x7b"],
}


def draft(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping of one draft head, in the words of ``spec.draft.Draft``."""
    computed = entry["computed"]
    published = entry.get("published_check") or {}
    mapping = {
        "kind": entry["kind"],
        "title": entry["name"],
        "targets": _DRAFT_TARGETS[entry["name"]],
        "aliases": [published["hf_id"]] if published.get("hf_id") else None,
        "hidden_size": entry["hidden_size"],
        "num_layers": entry["num_hidden_layers"],
        "core_parameters": computed["core_params"],
        "lm_head_parameters": computed["lm_head_params"] or None,
        "shared_embedding_parameters": computed["embed_params_shared_with_target"],
        "kv_bytes_per_token_bf16": entry["kv_bytes_per_token_bf16"],
        "draft_vocab_size": entry["draft_vocab_size"],
        "source": cleaned(entry["source"]),
        "date": READ_DATE,
    }
    return {key: value for key, value in mapping.items() if value is not None}


def write_models(models: dict[str, Model], drafts: dict[str, dict[str, Any]]) -> None:
    """Write models.yaml."""
    lines = [
        "# Models by the name people type. Keys are the field names of infcalc/spec (model, layers, weights); fields",
        "# at their default are left out. `layers` is a pattern over `blocks`: `3*dense 58*moe`, `15*(sliding full)`.",
        "# A matrix is [rows, columns] or a mapping. A new model is one entry; `infcalc models add PATH` prints it.",
        "#",
        "# Left out, because a config alone does not determine them:",
        *(f"#   {hf_id}: {reason}" for hf_id, reason in LEFT_OUT.items()),
        "models:",
    ]
    for name, model in models.items():
        text = _yaml({name: model_to_mapping(model)})
        lines.append("")
        lines.extend(f"  {line}" for line in text.splitlines())
    lines.append("")
    lines.append("# Draft heads for speculative decoding; they share the target's embedding.")
    lines.append("drafts:")
    for name, mapping in drafts.items():
        lines.extend(f"  {line}" for line in _yaml({name: mapping}).splitlines())
    (ROOT / "models.yaml").write_text("\n".join(lines) + "\n")


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=115, allow_unicode=True)


def write_published(facts: list[dict[str, Any]], names: dict[str, str]) -> None:
    """Write the parameter counts that the tests hold the catalog to."""
    lines = [
        "# Parameter counts the catalog is held to. `published` is the number of elements of the checkpoint where it",
        "# must equal the decoder exactly; `total` and `active` are independent counts of the decoder.",
        f"source: {_PUBLISHED_SOURCE}",
        f"date: '{READ_DATE}'",
        "models:",
    ]
    for entry in facts:
        computed = entry["computed"]
        if entry["hf_id"] not in names or not computed:
            continue
        exact = (entry.get("param_check") or {}).get("status") == "exact"
        fields = {
            "name": names[entry["hf_id"]],
            "hf_id": entry["hf_id"],
            "total": computed["params_total_computed"],
            "active": computed["params_active_computed"],
            "active_without_embedding": computed["params_active_excl_input_embedding"],
        }
        if exact:
            fields["published"] = entry["published"]["checkpoint_total_params"]
        if computed.get("mtp_params_computed"):
            fields["mtp"] = computed["mtp_params_computed"]
        body = ", ".join(f"{key}: {value}" for key, value in fields.items())
        lines.append(f"- {{{body}}}")
    (ROOT / "tests" / "published" / "parameters.yaml").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Write models.yaml and the list of published counts."""
    facts = yaml.load((FACTS / "models.yaml").read_text(), Loader=yaml.CSafeLoader)
    taken = {entry["hf_id"] for entry in facts["models"]}
    models: dict[str, Model] = {}
    names: dict[str, str] = {}
    for entry in facts["models"]:
        if entry["hf_id"] in LEFT_OUT:
            continue
        name, model = described(entry, taken)
        if name in models:
            raise ValueError(f"{name} twice: {entry['hf_id']}")
        models[name] = model
        names[entry["hf_id"]] = name
    models.update(further_models(models))
    drafts = {draft_name(entry["name"]): draft(entry) for entry in facts["draft_heads"]}
    write_models(models, drafts)
    write_published(facts["models"], names)
    print(f"{len(models)} models, {len(drafts)} drafts")


if __name__ == "__main__":
    main()
