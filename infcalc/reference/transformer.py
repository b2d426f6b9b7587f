"""A Llama-style decoder in numpy over any batch of rows: it knows sequences only as segments with a store each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import UnsupportedArchitecture
from infcalc.reference.arithmetic import EXACT
from infcalc.reference.elementwise import rms_norm, rope_table
from infcalc.reference.feed_forward import fed_forward
from infcalc.reference.mixers import AttentionStep, cache_shape, mixed, rope_width
from infcalc.spec.layers import DenseFeedForward, GroupedAttention, LatentAttention, MoeFeedForward, QkNorm

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from infcalc.reference.arithmetic import Arithmetic
    from infcalc.reference.cache import CacheShape
    from infcalc.reference.mixers import Segment
    from infcalc.reference.weights import Weights
    from infcalc.spec.layers import FeedForward, Layer, Mixer
    from infcalc.spec.model import Model

_NORMS = 2


class Transformer:
    """``model`` with ``weights``, able to compute positions below ``max_tokens``.

    The default arithmetic gives each row the same bits in any batch.

    Raises:
        UnsupportedArchitecture: the model has a part that this engine does not compute; the message lists them all.

    """

    def __init__(
        self,
        model: Model,
        weights: Weights,
        max_tokens: int,
        *,
        arithmetic: Arithmetic = EXACT,
    ) -> None:
        self.model = model
        self.weights = weights
        self.max_tokens = max_tokens
        self.arithmetic = arithmetic
        self.layers = tuple(_checked(model))
        mixers = [mixer for mixer, _ in self.layers]
        self.cache_shape: CacheShape = cache_shape(mixers[0], len(mixers))
        if any(cache_shape(mixer, len(mixers)) != self.cache_shape for mixer in mixers):
            raise UnsupportedArchitecture(
                f"layers of {model.name} cache entries of different shapes",
                hint="the numpy engine keeps one array for all layers: give each the same heads and widths",
            )
        self.dtype = weights.outside["embedding"].dtype
        self._ropes = {
            width: rope_table(max_tokens, width).astype(self.dtype) for width in {rope_width(mixer) for mixer in mixers}
        }

    def hidden(
        self, tokens: NDArray[np.intp], positions: NDArray[np.intp], segments: tuple[Segment, ...]
    ) -> NDArray[np.float64]:
        """Return the final normed state (n, hidden_size) of ``tokens`` (n) at ``positions`` (n).

        ``segments`` cut the rows into sequences, in order and without a gap; their stores take the keys and values.
        """
        state = self.weights.outside["embedding"][tokens]
        for index, ((mixer, block), weights) in enumerate(zip(self.layers, self.weights.layers, strict=True)):
            normed = rms_norm(state, weights["norm"][0])
            step = AttentionStep(
                layer=index,
                positions=positions,
                segments=segments,
                rope=self._ropes[rope_width(mixer)],
                arithmetic=self.arithmetic,
            )
            state = state + mixed(mixer, weights, normed, step)
            state = state + fed_forward(block, weights, rms_norm(state, weights["norm"][1]), self.arithmetic.project)
        return rms_norm(state, self.weights.outside["final_norm"])

    def logits(self, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores (n, vocab_size) of every next token after final states (n, hidden_size)."""
        outside = self.weights.outside
        return self.arithmetic.project(hidden, outside["embedding" if self.model.tied_embeddings else "lm_head"])


def _checked(model: Model) -> list[tuple[GroupedAttention | LatentAttention, FeedForward]]:
    """Return mixer and feed-forward block of each layer, or refuse with everything that is not computed."""
    found: list[tuple[GroupedAttention | LatentAttention, FeedForward]] = []
    faults: dict[str, None] = {}
    for run in model.layers:
        match run.layer.mixer, run.layer.feed_forward:
            case ((GroupedAttention() | LatentAttention() as mixer), (DenseFeedForward() | MoeFeedForward() as block)):
                found.extend([(mixer, block)] * run.num_layers)
                faults.update(dict.fromkeys((*_mixer_faults(mixer), *_block_faults(block), *_layer_faults(run.layer))))
            case _:
                faults["a layer without attention or without a feed-forward block"] = None
    if model.embedding_dim not in {None, model.hidden_size}:
        faults["an embedding narrower than the hidden size"] = None
    if model.extras or model.final_norm_bias or model.lm_head_bias or not model.final_norm:
        faults["further weights outside the layers, biases there, or no final norm"] = None
    if faults or not found:
        raise UnsupportedArchitecture(
            f"the numpy engine does not compute {model.name}: {'; '.join(faults) or 'it has no layers'}",
            hint="it computes RMSNorm, RoPE, GQA or MLA, and SwiGLU or a mixture of SwiGLU experts, without biases",
        )
    return found


def _mixer_faults(mixer: Mixer) -> list[str]:
    faults = []
    if isinstance(mixer, GroupedAttention):
        if mixer.qkv_bias or mixer.output_bias or mixer.output_gate:
            faults.append("biases or an output gate of attention")
        if mixer.query_rank is not None or mixer.value_from_key or mixer.shares_kv or mixer.extras:
            faults.append("factored, shared or further projections of attention")
        if mixer.indexer is not None or mixer.qk_norm is QkNorm.FULL:
            faults.append("sparse attention, or a norm over all heads")
    elif isinstance(mixer, LatentAttention) and (mixer.indexer is not None or mixer.extras):
        faults.append("sparse attention or further projections of MLA")
    return faults


def _block_faults(block: FeedForward) -> list[str]:
    faults = []
    if not block.gated or block.extras:
        faults.append("a feed-forward block without gate or with further weights")
    if isinstance(block, DenseFeedForward):
        biased = block.bias
    else:
        biased = block.expert_bias or block.router_bias
        if block.shared_gate or block.expert_input_dim is not None:
            faults.append("a gate on shared experts, or experts behind a projection")
    if biased:
        faults.append("biases of the feed-forward block")
    return faults


def _layer_faults(layer: Layer) -> list[str]:
    return ["other norms, or further weights of a layer"] if layer.num_norms != _NORMS or layer.extras else []
