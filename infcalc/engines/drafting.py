"""What an engine adds to a round of speculative decoding, by era. As data.

A round is some passes of the drafter, one step of the target that verifies what they propose, and what the host does
between them. Where the host drives every pass as it drives a step of its own (vLLM V0, research code), a pass costs the
overheads of a step; where the passes are a loop inside the model runner, scheduler and detokeniser do not run between
them, and less is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.pace import Footing
from infcalc.engines.rules import Since, at_version, parse_version
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.engines.pace import Pace


@frozen
class DraftPace:
    """What an engine adds to the kernels of a round."""

    pass_s: float
    """Of each pass of the drafter: launching it, sampling from it, preparing the next."""
    pass_sequence_s: float
    """Of each pass, for every sequence."""
    round_s: float
    """Of each round: the rejection sampler and the bookkeeping of drafts."""
    tree_s: float
    """Of each round that drafts a tree, besides: its mask, and moving the accepted path together."""
    expands: bool = False
    """Every drafted position is verified as a sequence of its own, which reads the whole context (batch expansion)."""
    footing: Footing = Footing()


@frozen
class _Loop:
    """Passes inside the model runner: what a pass and a round cost there."""

    pass_s: float
    round_s: float
    tree_s: float
    footing: Footing


_MS = 1e-3
_LOOPS: Mapping[str, tuple[Since[_Loop], ...]] = {
    "vllm": (
        Since(
            version=(0, 8),
            value=_Loop(
                pass_s=0.5 * _MS,
                round_s=0.8 * _MS,
                tree_s=0.0,
                footing=Footing(
                    otherwise="the round times of vLLM issue 20780 (Llama 3.1 8B on H100, 2 to 7 drafts) grow by 0.7 "
                    "(EAGLE) and 1.0 ms (EAGLE-3) for each pass, of which 0.6 and 0.3 are kernels, and start 0.7 to "
                    "1.1 ms above a plain step: the middle of both heads, within 16 % of either"
                ),
            ),
            source="vLLM V1: EagleProposer loops inside the model runner (vllm/v1/spec_decode/eagle.py)",
        ),
    ),
    "sglang": (
        Since(
            version=(0,),
            value=_Loop(
                pass_s=0.5 * _MS,
                round_s=0.8 * _MS,
                tree_s=1.0 * _MS,
                footing=Footing(otherwise="as vLLM V1; a tree costs what a round does once more"),
            ),
            source="SGLang: EAGLEWorker drafts inside the tensor-parallel worker",
        ),
    ),
    "tensorrt-llm": (
        Since(
            version=(0,),
            value=_Loop(
                pass_s=0.15 * _MS,
                round_s=0.3 * _MS,
                tree_s=0.5 * _MS,
                footing=Footing(
                    otherwise="drafter and target are one engine, replayed from one graph: set by hand, below vLLM's"
                ),
            ),
            source="TensorRT-LLM one-model speculation (tech blog 2: MTP layers in the target's engine)",
        ),
    ),
}
_STEPWISE = Footing(otherwise="a pass costs the host what a step of the engine does, and so does each round")


_WAYS: Mapping[str, frozenset[str]] = {
    "vllm": frozenset({"draft-model", "eagle", "eagle3", "mtp", "medusa", "ngram"}),
    "sglang": frozenset({"draft-model", "eagle", "eagle-tree", "eagle2", "eagle3", "eagle3-tree", "mtp", "ngram"}),
    "tensorrt-llm": frozenset({"draft-model", "eagle", "eagle2", "eagle3", "mtp", "medusa", "ngram", "lookahead"}),
    "llama.cpp": frozenset({"draft-model", "mtp", "ngram", "lookahead"}),
}
"""Ways of drafting that the newest version of an engine has, by the words of ``speculate --method``.

Sources: vLLM ``SpeculativeConfig.method`` (chains alone); SGLang ``--speculative-algorithm``; TensorRT-LLM
``speculative_config``; llama.cpp ``--model-draft`` and its examples ``lookup`` and ``lookahead``. Versions before it
may lack some of them.
"""


def drafts_by(engine: str, method: str) -> bool:
    """Tell whether an engine drafts that way; True for engines of which it is not known.

    >>> drafts_by("vllm", "eagle3"), drafts_by("vllm", "rest"), drafts_by("hf", "rest")
    (True, False, True)
    """
    return engine not in _WAYS or method in _WAYS[engine]


def draft_pace(engine: str, version: str | None, steps: Pace) -> DraftPace:
    """Return what ``engine`` at ``version`` (None: the newest known), whose steps are ``steps``, adds to a round.

    vLLM before 0.8 verifies by batch expansion unless CUDA graphs are off (``spec_decode_worker.py``: the MQA scorer
    needs ``enforce_eager``).
    """
    known = _LOOPS.get(engine, ())
    at: tuple[int, ...] = (999,)
    if known and version is not None:
        at = parse_version(version.partition("+")[0])
        if version.endswith("+v0"):
            at = min(at, (0, 7, 99))
    if not known or at < known[0].version:
        return DraftPace(
            pass_s=steps.per_step_s,
            pass_sequence_s=steps.per_sequence_s,
            round_s=steps.per_step_s,
            tree_s=steps.per_step_s,
            expands=engine == "vllm",
            footing=_STEPWISE,
        )
    loop = at_version(known, at).value
    return DraftPace(
        pass_s=loop.pass_s, pass_sequence_s=0.0, round_s=loop.round_s, tree_s=loop.tree_s, footing=loop.footing
    )
