"""What the modules of a layer are called in the checkpoints of each family, and which tensors they hold.

A pattern of a quantization block is matched against the names that the family really has. Names of fused modules
(``qkv_proj``, ``gate_up_proj``), under which engines and converters know parts of a family that stores them apart, are
matched only when the pattern names none of the parts. Sources: the model classes of Hugging Face transformers.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

from infcalc.frozen import frozen
from infcalc.spec.weights import TensorRole

ModuleKey: TypeAlias = tuple[TensorRole, str]
"""Role and tensor name, as ``lowering.tensors`` speaks of them."""

_LETTERS = {
    "A": TensorRole.ATTENTION,
    "F": TensorRole.FEED_FORWARD,
    "E": TensorRole.EXPERT,
    "S": TensorRole.SHARED_EXPERT,
    "R": TensorRole.ROUTER,
    "L": TensorRole.RECURRENT,
    "I": TensorRole.INDEXER,
}


@frozen
class Dialect:
    """Module paths below a layer: those the family stores, those it is also known by, and where its layers are."""

    prefix: str
    stored: dict[str, tuple[ModuleKey, ...]]
    fused: dict[str, tuple[ModuleKey, ...]]


def _below(home: str, modules: str) -> str:
    """Return ``modules`` (``q_proj=A:q ...``) with the path of their home before each."""
    return " ".join(f"{home}.{module}" for module in modules.split())


_GROUPED = "q_proj=A:q k_proj=A:k v_proj=A:v o_proj=A:o"
_ATTENTION = _below("self_attn", _GROUPED)
_LATENT = _below(
    "self_attn",
    "q_a_proj=A:q_a q_b_proj=A:q_b kv_a_proj_with_mqa=A:kv_a kv_b_proj=A:kv_b"
    " indexer.wq_b=I:q_b indexer.wk=I:k indexer.weights_proj=I:weights",
)


def _gated(home: str, role: str) -> str:
    return _below(home, f"gate_proj={role}:gate up_proj={role}:up down_proj={role}:down")


def _numbered(home: str, role: str) -> str:
    """Return the three matrices as Mixtral calls them."""
    return _below(home, f"w1={role}:gate w3={role}:up w2={role}:down")


_FEED_FORWARD = _gated("mlp", "F")
_SPARSE = f"mlp.gate=R:router {_gated('mlp.experts.0', 'E')}"
_SHARED = f"{_gated('mlp.shared_experts', 'S')} {_gated('mlp.shared_expert', 'S')} mlp.shared_expert_gate=R:shared_gate"
_DELTA = _below(
    "linear_attn",
    "in_proj_qkvz=L:in_proj_qkvz in_proj_ba=L:in_proj_ba in_proj_qkv=L:in_proj_qkv in_proj_z=L:in_proj_z"
    " in_proj_b=L:in_proj_b in_proj_a=L:in_proj_a out_proj=L:out_proj",
)
_MAMBA = "in_proj=L:in_proj x_proj=L:x_proj dt_proj=L:dt_proj out_proj=L:out_proj"
_KIMI_DELTA = _below(
    "self_attn",
    "q_proj=L:qkv k_proj=L:qkv v_proj=L:qkv o_proj=L:o_proj f_a_proj=L:f_a f_b_proj=L:f_b b_proj=L:b g_proj=A,L:g"
    " g_a_proj=L:g_a g_b_proj=L:g_b",
)
_BLOCK_SPARSE = f"block_sparse_moe.gate=R:router {_numbered('block_sparse_moe.experts.0', 'E')}"
_FOUR_WIDE = "dense_h_to_4h=F:up dense_4h_to_h=F:down"
_CLASSIC = f"{_below('self_attention', 'query_key_value=A:q,k,v dense=A:o')} {_below('mlp', _FOUR_WIDE)}"
_MODERN = f"{_ATTENTION} {_LATENT} {_FEED_FORWARD} {_SPARSE} {_SHARED} {_DELTA} {_below('mamba', _MAMBA)}"
_KIMI = (
    f"{_ATTENTION} {_LATENT} {_KIMI_DELTA} {_FEED_FORWARD} {_SPARSE} {_SHARED} {_BLOCK_SPARSE}"
    f" {_gated('block_sparse_moe.shared_experts', 'S')}"
)
_LLAMA4 = (
    f"{_ATTENTION} {_gated('feed_forward', 'F')} {_gated('feed_forward.experts.0', 'E')}"
    f" {_gated('feed_forward.shared_expert', 'S')} feed_forward.router=R:router"
)

# Family to (where its layers are, what a layer holds); a family that is not here has the modern names.
_FAMILIES: dict[str, tuple[str, str]] = {
    "phi3": (
        "model.layers.",
        f"{_below('self_attn', 'qkv_proj=A:q,k,v o_proj=A:o')} mlp.gate_up_proj=F:gate,up mlp.down_proj=F:down",
    ),
    "glm4": ("model.layers.", f"{_ATTENTION} mlp.gate_up_proj=F:gate,up mlp.down_proj=F:down"),
    "internlm2": ("model.layers.", f"{_below('attention', 'wqkv=A:q,k,v wo=A:o')} {_numbered('feed_forward', 'F')}"),
    "chatglm": (
        "transformer.encoder.layers.",
        (
            f"{_below('self_attention', 'query_key_value=A:q,k,v dense=A:o')}"
            " mlp.dense_h_to_4h=F:gate,up mlp.dense_4h_to_h=F:down"
        ),
    ),
    "starcoder2": ("model.layers.", f"{_ATTENTION} mlp.c_fc=F:up mlp.c_proj=F:down"),
    "gpt2": ("transformer.h.", "attn.c_attn=A:q,k,v attn.c_proj=A:o mlp.c_fc=F:up mlp.c_proj=F:down"),
    "gptj": (
        "transformer.h.",
        f"{_below('attn', 'q_proj=A:q k_proj=A:k v_proj=A:v out_proj=A:o')} mlp.fc_in=F:up mlp.fc_out=F:down",
    ),
    "gpt_neox": (
        "gpt_neox.layers.",
        f"{_below('attention', 'query_key_value=A:q,k,v dense=A:o')} {_below('mlp', _FOUR_WIDE)}",
    ),
    "opt": (
        "model.decoder.layers.",
        f"{_below('self_attn', 'q_proj=A:q k_proj=A:k v_proj=A:v out_proj=A:o')} fc1=F:up fc2=F:down",
    ),
    "bloom": ("transformer.h.", _CLASSIC),
    "falcon": ("transformer.h.", _CLASSIC),
    "RefinedWeb": ("transformer.h.", _CLASSIC),
    "RefinedWebModel": ("transformer.h.", _CLASSIC),
    "mpt": ("transformer.blocks.", "attn.Wqkv=A:q,k,v attn.out_proj=A:o ffn.up_proj=F:up ffn.down_proj=F:down"),
    "phi": (
        "model.layers.",
        f"{_below('self_attn', 'q_proj=A:q k_proj=A:k v_proj=A:v dense=A:o')} mlp.fc1=F:up mlp.fc2=F:down",
    ),
    "phi-msft": ("transformer.h.", "mixer.Wqkv=A:q,k,v mixer.out_proj=A:o mlp.fc1=F:up mlp.fc2=F:down"),
    "dbrx": (
        "transformer.blocks.",
        (
            f"{_below('norm_attn_norm.attn', 'Wqkv=A:q,k,v out_proj=A:o')} ffn.router.layer=R:router"
            f" {_below('ffn.experts.mlp', 'w1=E:gate v1=E:up w2=E:down')}"
        ),
    ),
    "mixtral": ("model.layers.", f"{_ATTENTION} {_BLOCK_SPARSE}"),
    "phimoe": ("model.layers.", f"{_ATTENTION} {_BLOCK_SPARSE}"),
    "minimax_m2": ("model.layers.", f"{_ATTENTION} {_BLOCK_SPARSE}"),
    "minimax_m3": (
        "model.layers.",
        f"{_ATTENTION} {_FEED_FORWARD} {_BLOCK_SPARSE} {_gated('block_sparse_moe.shared_experts', 'S')}",
    ),
    "minimax_m1": (
        "model.layers.",
        f"{_ATTENTION} {_BLOCK_SPARSE} {_below('self_attn', 'qkv_proj=L:qkv output_gate=L:g out_proj=L:out_proj')}",
    ),
    "git": ("model.layers.", f"{_ATTENTION} {_FEED_FORWARD} {_BLOCK_SPARSE}"),
    "llama4_text": ("model.layers.", _LLAMA4),
    "gpt_oss": (
        "model.layers.",
        f"{_ATTENTION} mlp.router=R:router mlp.experts.gate_up_proj=E:gate,up mlp.experts.down_proj=E:down",
    ),
    "hunyuan_v1_moe": (
        "model.layers.",
        f"{_ATTENTION} mlp.gate.wg=R:router {_gated('mlp.experts.0', 'E')} {_gated('mlp.shared_mlp', 'S')}",
    ),
    "step3_text": (
        "model.layers.",
        (
            f"{_ATTENTION} self_attn.wq=A:q self_attn.q_proj=A:q_a {_FEED_FORWARD} moe.gate=R:router"
            f" {_gated('moe', 'E')} {_gated('share_expert', 'S')}"
        ),
    ),
    "step3p7": (
        "model.layers.",
        (
            f"{_ATTENTION} self_attn.g_proj=A:head_gate {_FEED_FORWARD} moe.gate=R:router {_gated('moe', 'E')}"
            f" {_gated('share_expert', 'S')}"
        ),
    ),
    "jamba": (
        "model.layers.",
        (
            f"{_ATTENTION} {_below('mamba', _MAMBA)} {_gated('feed_forward', 'F')} feed_forward.router=R:router"
            f" {_gated('feed_forward.experts.0', 'E')}"
        ),
    ),
    "mamba": ("backbone.layers.", _below("mixer", _MAMBA)),
    "falcon_mamba": ("backbone.layers.", _below("mixer", _MAMBA)),
    "granitemoehybrid": (
        "model.layers.",
        (
            f"{_ATTENTION} {_below('mamba', 'in_proj=L:in_proj out_proj=L:out_proj')}"
            " block_sparse_moe.router.layer=R:router"
            " block_sparse_moe.input_linear=E:gate,up block_sparse_moe.output_linear=E:down"
            " shared_mlp.input_linear=F,S:gate,up shared_mlp.output_linear=F,S:down"
        ),
    ),
    "nemotron_h": (
        "backbone.layers.",
        (
            f"{_below('mixer', _GROUPED)} {_below('mixer', 'in_proj=L:in_proj out_proj=L:out_proj gate=R:router')}"
            f" {_below('mixer', 'up_proj=F:up down_proj=F:down')}"
            f" {_below('mixer.experts.0', 'up_proj=E:up down_proj=E:down')}"
            f" {_below('mixer.shared_experts', 'up_proj=S:up down_proj=S:down')}"
        ),
    ),
    "kimi_linear": ("model.layers.", _KIMI),
    "glm5_next_text": ("model.layers.", _KIMI),
}
_FUSED_ATTENTION = "qkv_proj=A:q,k,v fused_qkv_a_proj=A:q_a,kv_a"
_HOMES = ("mlp", "feed_forward", "block_sparse_moe")


def _fused(home: str) -> str:
    """Return the names of joined and stacked matrices of a feed-forward block at ``home``."""
    parts = [f"{home}.gate_up_proj=F:gate,up"] if home != "block_sparse_moe" else []
    parts += [f"{home}.experts=E:gate,up,down", f"{home}.experts.gate_up_proj=E:gate,up"]
    parts += [f"{home}.experts.down_proj=E:down", f"{home}.experts.0.gate_up_proj=E:gate,up"]
    parts += [f"{home}.{shared}.gate_up_proj=S:gate,up" for shared in ("shared_experts", "shared_expert")]
    return " ".join(parts)


def _read(text: str) -> dict[str, tuple[ModuleKey, ...]]:
    """Return the table that ``path=roles:names`` entries describe; entries of one path add up."""
    table: dict[str, tuple[ModuleKey, ...]] = {}
    for entry in text.split():
        path, _, held = entry.partition("=")
        letters, _, names = held.partition(":")
        keys = tuple((_LETTERS[letter], name) for letter in letters.split(",") for name in names.split(","))
        table[path] = table.get(path, ()) + keys
    return table


@cache
def dialect(family: str) -> Dialect:
    """Return the module names of a family, by ``model_type``; the modern ones for a family without its own.

    >>> sorted(path for path in dialect("phi3").stored if "gate" in path)
    ['mlp.gate_up_proj']
    """
    prefix, held = _FAMILIES.get(family, ("model.layers.", _MODERN))
    stored = _read(held)
    homes = [home for home in _HOMES if any(path.startswith(f"{home}.") for path in stored)]
    attention = _below("self_attn", _FUSED_ATTENTION) if any(path.startswith("self_attn.") for path in stored) else ""
    fused = _read(" ".join((attention, *(_fused(home) for home in homes))))
    return Dialect(
        prefix=prefix, stored=stored, fused={path: keys for path, keys in fused.items() if path not in stored}
    )
