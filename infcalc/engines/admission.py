"""How an engine gives cache to a request: as it grows, or its whole answer at once. As data with sources."""

from __future__ import annotations

from infcalc.frozen import frozen


@frozen
class Admission:
    """How requests enter the cache."""

    reserves_answer: bool
    """Room for the longest allowed answer is held from the start."""
    overflow: str
    """What the engine does when the pool is full, as the end of a sentence."""
    source: str


_ADMISSION = {
    "vllm": Admission(
        reserves_answer=False,
        overflow="preempts: the newest request loses its blocks and is computed again",
        source="vLLM V1: blocks are allocated step by step; preemption is by recomputation",
    ),
    "sglang": Admission(
        reserves_answer=False,
        overflow="retracts: requests lose their cache and queue again",
        source="SGLang: admission by estimate, retraction_policy length",
    ),
    "tensorrt-llm": Admission(
        reserves_answer=True,
        overflow="makes new requests wait: room for the whole answer is held from the start, none is evicted",
        source="TensorRT-LLM: capacity_scheduler_policy GUARANTEED_NO_EVICT, the default",
    ),
    "llama.cpp": Admission(
        reserves_answer=False,
        overflow="fails: with a unified cache one overflow ends all that share it",
        source="llama.cpp PR 17767: unified KV by default with automatic slots",
    ),
}


def admission(engine: str) -> Admission:
    """Return how ``engine`` (by its catalog name) admits requests to the cache."""
    return _ADMISSION[engine]
