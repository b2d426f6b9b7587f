"""A draft that is loaded beside the model: its weights, and the layers that cache every token with the target's.

Engines load it on the ranks of the last pipeline stage, and its layers draw their pages from the target's pool.
Sources: vLLM ``EagleProposer.load_model`` and ``get_kv_cache_spec`` (the draft's attention layers are among the
target's); SGLang ``EAGLEWorker`` (a pool of its own for as many tokens).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.drafters import head_doubts, ranks_of, resolved_draft, vocabulary_doubts
from infcalc.errors import UsageError
from infcalc.memory.weights import weights_total_bytes
from infcalc.spec.draft import Draft
from infcalc.spec.layers import GroupedAttention

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.catalog.lookup import Catalog
    from infcalc.spec.layers import Mixer
    from infcalc.spec.model import Model

DRAFT_TOKENS = 3
"""Drafted in a round where it is not said: what engines' own examples take for heads."""
_HEAD_DIM = 128
_BYTES_OF_BOTH = 4
"""A key and a value element in 16 bit."""


def with_draft(deployment: Deployment, name: str | None, num_draft_tokens: int | None, catalog: Catalog) -> Deployment:
    """Return the deployment with the draft called ``name`` beside its model.

    Raises:
        UsageError: draft tokens without a draft, a draft of another vocabulary, or one that the ranks cannot split.
        UnknownName: neither a head nor a model has the name.

    """
    if name is None:
        raise UsageError(
            f"{num_draft_tokens} draft tokens of no draft",
            place="--num-draft-tokens",
            hint="name the --draft-model, or give --mtp-tokens for the model's own layers",
        )
    draft = resolved_draft(name, deployment, catalog)
    if isinstance(draft, Draft):
        doubts = head_doubts(draft, deployment, catalog)
    else:
        doubts = vocabulary_doubts(draft, deployment.model)
    held = loaded(deployment, draft, num_draft_tokens or DRAFT_TOKENS)
    return replace(held, warnings=(*deployment.warnings, *doubts))


def loaded(deployment: Deployment, draft: Draft | Model | None, num_draft_tokens: int) -> Deployment:
    """Return the deployment with a draft's weights, layers and slots for its tokens; without a draft with slots alone.

    Raises:
        UsageError: no number of ranks up to the target's can split it.

    """
    slots = max(deployment.num_draft_tokens, num_draft_tokens)
    if draft is None:
        return replace(deployment, num_draft_tokens=slots)
    if isinstance(draft, Draft):
        per_rank = math.ceil(draft.num_bytes / deployment.parallelism.tp)
        layers: tuple[tuple[Mixer, int], ...] = ((_mixer(draft), draft.num_layers),)
    else:
        ranks, _ = ranks_of(draft, deployment.parallelism)
        per_rank = math.ceil(weights_total_bytes(draft) / ranks.tp)
        layers = _layers(draft)
    return replace(
        deployment,
        additions=replace(deployment.additions, draft_bytes=per_rank),
        draft_layers=layers,
        num_draft_tokens=slots,
    )


def _mixer(head: Draft) -> Mixer:
    width = head.kv_bytes_per_token_bf16 // _BYTES_OF_BOTH // head.num_layers
    dim = _HEAD_DIM if width % _HEAD_DIM == 0 else width
    return GroupedAttention(num_heads=max(1, head.hidden_size // dim), num_kv_heads=max(1, width // dim), head_dim=dim)


def _layers(model: Model) -> tuple[tuple[Mixer, int], ...]:
    return tuple((run.layer.mixer, run.num_layers) for run in model.layers if run.layer.mixer is not None)
