"""What context does each user of llama.cpp get? ``-c`` is the cache of all its slots together, ``-np`` their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.memory.blocks import CELL_MULTIPLE

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment

SOURCE = "llama.cpp pull 17767: -np unset is 4 slots with one unified cache; -np N splits -c into N equal parts"


@frozen
class Slots:
    """How llama.cpp shares its cache: ``slot_tokens`` of ``context_tokens`` (``-c``) for each of ``num_slots``.

    ``unified_cache`` where the number was not asked for: then each slot may take all of it, and an overflow ends all.
    ``context_flag_tokens`` is the ``-c`` that gives each slot ``context_tokens`` of its own.
    """

    num_slots: int
    context_tokens: int
    slot_tokens: int
    context_flag_tokens: int
    unified_cache: bool


def slots_of(deployment: Deployment) -> Slots | None:
    """Return the slots of a deployment; None for an engine that has no such thing.

    The longest sequence (``--max-model-len``) stands for ``-c``, the cap on sequences (``--max-num-seqs``) for ``-np``.
    Source: :data:`SOURCE`.
    """
    if deployment.rules.engine != "llama.cpp":
        return None
    context, slots = deployment.max_model_len, deployment.max_num_seqs
    asked = any(item.name == "max_num_seqs" and item.origin.startswith("given") for item in deployment.inputs)
    split = -(-(context // slots) // CELL_MULTIPLE) * CELL_MULTIPLE
    return Slots(
        num_slots=slots,
        context_tokens=context,
        slot_tokens=min(context, split) if asked else context,
        context_flag_tokens=context * slots,
        unified_cache=not asked,
    )


def slot_notes(deployment: Deployment) -> list[str]:
    """Return in one sentence what each user gets; nothing where there is one slot, or none."""
    slots = slots_of(deployment)
    if slots is None or slots.num_slots == 1:
        return []
    context, number = slots.context_tokens, slots.num_slots
    shared = (
        f"-c {context} without -np: {number} slots share {context:,} tokens, and one overflow ends all"
        if slots.unified_cache
        else f"-c {context} -np {number}: {slots.slot_tokens:,} tokens for each slot"
    )
    return [f"{shared}; for {context:,} each use -c {slots.context_flag_tokens} -np {number} ({SOURCE})"]
