"""A model: its decoder layers, what surrounds them, and where each figure comes from."""

from __future__ import annotations

from infcalc.frozen import frozen
from infcalc.spec.layers import Layer, LayerRun, Matrix, MoeFeedForward
from infcalc.spec.weights import WeightQuantization


@frozen
class MultiTokenPrediction:
    """MTP layers that predict further tokens: used only when speculation is on."""

    num_layers: int
    layer: Layer
    extras: tuple[Matrix, ...] = ()
    """Weights per MTP layer beside the decoder layer (norms, the 2h -> h projection)."""
    embedding_copies: int = 0
    """Copies of embedding and head stored with the MTP layers in the checkpoint; engines share them."""


@frozen
class Model:
    """A decoder-only language model.

    ``layers`` are the decoder layers in order, as runs of equal layers. ``extras`` are weights outside the layers
    (learned positions, per-layer embeddings, projections). Vision and audio towers are not modelled:
    ``unmodelled`` names them with their share.
    """

    name: str
    architecture: str
    """``model_type`` of the config it was read from."""
    hidden_size: int
    vocab_size: int
    layers: tuple[LayerRun, ...]
    tied_embeddings: bool = False
    embedding_dim: int | None = None
    """Width of the embedding table where it differs from ``hidden_size``."""
    final_norm: bool = True
    final_norm_bias: bool = False
    lm_head_bias: bool = False
    max_context_tokens: int | None = None
    dtype: str = "bf16"
    """The checkpoint's own type of unquantized tensors: bf16, fp16 or fp32."""
    quantization: WeightQuantization | None = None
    kv_dtype: str | None = None
    """KV-cache type the checkpoint asks for, if it does."""
    mtp: MultiTokenPrediction | None = None
    extras: tuple[Matrix, ...] = ()
    unmodelled: tuple[str, ...] = ()
    unmodelled_parameters: int = 0
    """Parameters of the parts not modelled, where the checkpoint total tells them."""
    hf_id: str | None = None
    aliases: tuple[str, ...] = ()
    published_parameters: int | None = None
    """Element count of the checkpoint, as published."""
    source: str = ""
    date: str = ""
    doubts: tuple[str, ...] = ()
    """What is not certain about this entry; printed whenever it is used."""

    @property
    def has_experts(self) -> bool:
        """Whether some layers route tokens to experts."""
        return any(isinstance(run.layer.feed_forward, MoeFeedForward) for run in self.layers)

    @property
    def num_layers(self) -> int:
        """Number of decoder layers."""
        return sum(run.num_layers for run in self.layers)
