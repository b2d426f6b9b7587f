"""What is asked of features, and what is told of each."""

from __future__ import annotations

from enum import StrEnum

from infcalc.frozen import frozen


class Feature(StrEnum):
    """Something that can be turned on, or for the learner off."""

    FP8_WEIGHTS = "fp8-weights"
    INT4_WEIGHTS = "int4-weights"
    FP8_KV = "fp8-kv"
    INT4_KV = "int4-kv"
    PREFIX_CACHE = "prefix-cache"
    SPECULATION = "speculation"
    TP_DOUBLED = "tp-doubled"
    EXPERT_PARALLEL = "expert-parallel"
    DP_ATTENTION = "dp-attention"
    DISAGGREGATION = "disaggregation"
    CHUNK_HALVED = "chunk-halved"
    CHUNK_DOUBLED = "chunk-doubled"
    STATIC_BATCHING = "static-batching"
    CONTIGUOUS_KV = "contiguous-kv"
    NAIVE_ATTENTION = "naive-attention"
    NO_KV_CACHE = "no-kv-cache"

    @property
    def meaning(self) -> str:
        """In words."""
        return _MEANINGS[self]

    @property
    def is_for_learners(self) -> bool:
        """Whether nobody would choose it, but for seeing what it costs to be without."""
        return self in _LESSONS


_LESSONS = {Feature.STATIC_BATCHING, Feature.CONTIGUOUS_KV, Feature.NAIVE_ATTENTION, Feature.NO_KV_CACHE}
_MEANINGS = {
    Feature.FP8_WEIGHTS: "weights in FP8",
    Feature.INT4_WEIGHTS: "weights in 4 bit (AWQ)",
    Feature.FP8_KV: "KV cache in FP8",
    Feature.INT4_KV: "KV cache in 4 bit",
    Feature.PREFIX_CACHE: "prompts from the prefix cache",
    Feature.SPECULATION: "speculative decoding, the best published way",
    Feature.TP_DOUBLED: "twice the TP, half the replicas",
    Feature.EXPERT_PARALLEL: "experts spread over all ranks",
    Feature.DP_ATTENTION: "attention ranks with sequences of their own",
    Feature.DISAGGREGATION: "prefill and decode on GPUs of their own",
    Feature.CHUNK_HALVED: "half the tokens per step",
    Feature.CHUNK_DOUBLED: "twice the tokens per step",
    Feature.STATIC_BATCHING: "batches that end together",
    Feature.CONTIGUOUS_KV: "room for the longest sequence from the start",
    Feature.NAIVE_ATTENTION: "scores through memory, without FlashAttention",
    Feature.NO_KV_CACHE: "every token computes its whole context again",
}


class Verdict(StrEnum):
    """Whether it pays."""

    PAYS = "pays"
    MAY_PAY = "may pay"
    SAME = "no difference"
    MAY_COST = "may cost"
    COSTS = "costs"
    CANNOT = "cannot"


@frozen
class Factor:
    """How many times as much with the feature as without; ``low`` to ``high`` is meant to hold 80 % of such ratios."""

    value: float
    low: float
    high: float


@frozen
class FeatureRow:
    """One feature against the same GPUs, requests and settings without it.

    ``throughput_factor`` above 1 is better, the others below 1. ``num_gpus`` are the GPUs of either side. Figures are
    None where it cannot be, ``why`` then says what stands against it, and where it is so already.
    """

    feature: Feature
    meaning: str
    verdict: Verdict
    why: str
    num_gpus: int
    throughput_factor: float | None = None
    throughput_factor_low: float | None = None
    throughput_factor_high: float | None = None
    tpot_factor: float | None = None
    tpot_factor_low: float | None = None
    tpot_factor_high: float | None = None
    ttft_factor: float | None = None
    ttft_factor_low: float | None = None
    ttft_factor_high: float | None = None
    e2e_factor: float | None = None
    e2e_factor_low: float | None = None
    e2e_factor_high: float | None = None
    usd_per_million_factor: float | None = None
    usd_per_million_factor_low: float | None = None
    usd_per_million_factor_high: float | None = None
    gain_factor: float | None = None
    """What the verdict goes by, above 1 for the better: throughput, or one over the time of a request."""


@frozen
class WhatIfResult:
    """The current deployment under a load, and what each feature would change."""

    model: str
    gpu: str
    num_gpus: int
    """Of all replicas."""
    engine: str
    engine_version: str
    weights: str
    kv_dtype: str
    fits: bool
    missing_bytes: int
    judged_by: str
    """What the verdict goes by: cost of a token where clients wait for answers, else the time of a request."""
    output_tokens_per_s: float | None = None
    """While requests are sent; cost goes by it."""
    tpot_s: float | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    usd_per_million_output_tokens: float | None = None
    rows: tuple[FeatureRow, ...] = ()
