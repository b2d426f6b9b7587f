"""What a draft head of a target holds, where none is named: that of the published kind for a model of its shape.

Symbols: h hidden size, V vocabulary.

- EAGLE: one decoder layer of the target and a projection of 2 h x h (embedding and feature side by side); it proposes
  with the target's own head, h x V. Source: EAGLE, arXiv 2401.15077, section 4; ``eagle/train/*_config.json``.
- EAGLE-3: the same layer with an input twice as wide for queries, keys and values, a projection of 3 h x h (features of
  three layers), and a head of its own for the 32,000 most frequent tokens. Source: EAGLE-3, arXiv 2503.01840; its
  published heads for Llama 3.1 8B and 70B hold 17.5 and 17.0 h^2, which these rules give.
- Medusa: heads of one residual layer h x h and a vocabulary projection h x V each, all run at once. Source: Medusa,
  arXiv 2401.10774, section 2.1.

Published EAGLE-3 heads of mixtures of experts are dense too; where the target has no dense layer to go by, theirs hold
16.5 to 34 h^2 (nine heads of the catalog), and the median is taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.lowering.tensors import inventory
from infcalc.spec.draft import Draft
from infcalc.spec.layers import DenseFeedForward, GroupedAttention
from infcalc.spec.weights import TensorRole

if TYPE_CHECKING:
    from infcalc.spec.layers import Layer
    from infcalc.spec.model import Model

REDUCED_VOCABULARY = 32_000
"""Tokens that published EAGLE-3 heads can propose."""
MEDUSA_HEADS = 5
"""Heads of the published Medusa-1 models (``medusa_num_heads``)."""
_OF_MIXTURES = 26.0
"""Parameters of a published head of a mixture of experts, over the square of its hidden size: the median of nine."""
_BF16_BYTES = 2
_OUTSIDE = frozenset({TensorRole.EMBEDDING, TensorRole.LM_HEAD, TensorRole.POSITION})
_INPUTS = frozenset({"q", "k", "v", "q_a", "kv_a"})


def eagle_head(model: Model) -> Draft:
    """Return a head of the EAGLE kind for ``model``: one layer, proposing with the target's own head."""
    return Draft(
        name=f"EAGLE head of {model.name}",
        kind="eagle1",
        targets=(model.name,),
        hidden_size=model.hidden_size,
        num_layers=1,
        core_parameters=_layer_parameters(model) + (2 * model.hidden_size**2 if _dense_layer(model) else 0),
        kv_bytes_per_token_bf16=_kv_bytes(model),
        source="EAGLE, arXiv 2401.15077: a decoder layer of the target and a projection",
    )


def eagle3_head(model: Model) -> Draft:
    """Return a head of the EAGLE-3 kind for ``model``: one layer of wide input, and a head for frequent tokens."""
    width = model.hidden_size
    layer = _dense_layer(model)
    core = (
        round(_OF_MIXTURES * width**2)
        if layer is None
        else _layer_parameters(model) + _layer_parameters(model, _INPUTS) + 3 * width**2
    )
    return Draft(
        name=f"EAGLE-3 head of {model.name}",
        kind="eagle3",
        targets=(model.name,),
        hidden_size=width,
        num_layers=1,
        core_parameters=core,
        lm_head_parameters=min(REDUCED_VOCABULARY, model.vocab_size) * width,
        kv_bytes_per_token_bf16=_kv_bytes(model),
        draft_vocab_size=min(REDUCED_VOCABULARY, model.vocab_size),
        source="EAGLE-3, arXiv 2503.01840: a decoder layer of the target with a wider input, and a projection",
    )


def medusa_parameters(model: Model) -> int:
    """Return the parameters of the heads that are run at once."""
    width = model.hidden_size
    return MEDUSA_HEADS * (width**2 + width * model.vocab_size)


def proposing_parameters(head: Draft, model: Model) -> int:
    """Return the parameters that each pass of a head multiplies with: its own, and the head over the vocabulary."""
    return head.core_parameters + (head.lm_head_parameters or model.vocab_size * model.hidden_size)


def _dense_layer(model: Model) -> Layer | None:
    """Return the layer that a head of ``model`` copies, None where there is none that heads are made of.

    Heads of mixtures with latent attention have grouped heads of their own, whatever their dense layers are.
    """
    return next(
        (
            run.layer
            for run in model.layers
            if isinstance(run.layer.feed_forward, DenseFeedForward)
            and (isinstance(run.layer.mixer, GroupedAttention) or not model.has_experts)
        ),
        None,
    )


def _kv_bytes(model: Model) -> int:
    """Return what a token puts into the cache of a head: as in a layer of the target, where heads are grouped.

    Heads of models with latent attention have grouped heads of their own: a quarter of the hidden size for keys and as
    much for values, as in Llama 3, is taken.
    """
    mixer = next((run.layer.mixer for run in model.layers if isinstance(run.layer.mixer, GroupedAttention)), None)
    width = model.hidden_size // 4 if mixer is None else mixer.num_kv_heads * mixer.head_dim
    return 2 * _BF16_BYTES * width


def _layer_parameters(model: Model, names: frozenset[str] | None = None) -> int:
    """Return the parameters of one dense layer of the target, or of those of its matrices that have one of the names.

    A mixture without one is taken to draft with what published heads of mixtures hold.
    """
    layer = _dense_layer(model)
    if layer is None:
        return round(_OF_MIXTURES * model.hidden_size**2)
    run = replace(model.layers[0], num_layers=1, layer=layer)
    alone = replace(model, layers=(run,), mtp=None, extras=(), quantization=None)
    return sum(
        tensor.parameters
        for tensor in inventory(alone)
        if tensor.layers and tensor.role not in _OUTSIDE and (names is None or tensor.name in names)
    )
