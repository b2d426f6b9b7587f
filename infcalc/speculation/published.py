"""Published acceptance and cost of drafting methods, as data with source, and the profile of each method made of them.

An entry says how many tokens a round yielded (``tokens_per_round``, bonus token included) at a draft length, and the
speedup where it was stated. Acceptance, draft cost and fixed cost of a profile are computed from its entries, never
typed in. All were measured at batch 1 unless they say otherwise.
"""

from __future__ import annotations

from enum import StrEnum

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.speculation.linear import (
    Acceptance,
    DraftCost,
    SurvivalAcceptance,
    UniformAcceptance,
    fit_draft_cost,
    survival_of_lengths,
)


class Method(StrEnum):
    """Ways of drafting."""

    DRAFT_MODEL = "draft-model"
    EAGLE = "eagle"
    EAGLE2 = "eagle2"
    EAGLE3 = "eagle3"
    EAGLE3_TREE = "eagle3-tree"
    MTP = "mtp"
    MEDUSA = "medusa"
    NGRAM = "ngram"


class Tag(StrEnum):
    """How sure a figure is."""

    PAPER = "P"
    """Stated in a paper or report."""
    VERIFIED = "V"
    """Read in a repository, blog or issue on the date given."""
    RECALLED = "R"
    """Recalled from the publication, not read again."""
    DERIVED = "D"
    """Computed from figures of the source, as the note says."""


@frozen
class Measured:
    """What one draft length gave: ``num_draft_tokens`` is the depth where a tree was drafted."""

    num_draft_tokens: int
    tokens_per_round: float
    speedup: float | None = None


@frozen
class Publication:
    """Acceptance of one method on one target: measured lengths, survival ``rates`` by position, or one ``alpha``."""

    title: str
    measured: tuple[Measured, ...] = ()
    rates: tuple[float, ...] = ()
    alpha: float | None = None
    tag: Tag
    source: str
    date: str
    note: str = ""

    def acceptance(self) -> Acceptance:
        """Return uniform acceptance where alpha is stated or one length was measured, else survival by position."""
        if self.alpha is not None:
            return UniformAcceptance(alpha=self.alpha)
        if self.rates:
            return SurvivalAcceptance(rates=self.rates)
        rates = survival_of_lengths([(one.num_draft_tokens, one.tokens_per_round) for one in self.measured])
        return UniformAcceptance(alpha=rates[0]) if len(self.measured) == 1 else SurvivalAcceptance(rates=rates)


@frozen
class Profile:
    """A drafting method with published acceptance, from low to high, and what drafting costs.

    ``tree_tokens`` are verified per round where a tree is drafted (None: a chain). ``max_draft_tokens`` is the longest
    draft that was measured: beyond it acceptance would be a guess. ``draft_cost`` is in target steps, at batch 1.
    """

    method: Method
    title: str
    low: Publication
    typical: Publication
    high: Publication
    max_draft_tokens: int
    draft_cost: DraftCost
    cost_source: str
    tree_tokens: int | None = None
    tree_source: str = ""


_SPEC_BENCH = "Spec-Bench leaderboard, hemingkx/Spec-Bench @ fd2c1cd7d2, Leaderboard.md"
_LEVIATHAN = "Leviathan et al. 2023, table 2"
_VLLM_20780 = "vllm-project/vllm issue 20780"
_READ = "2026-11-29"


def _length(num_draft_tokens: int, tokens_per_round: float, speedup: float | None = None) -> Measured:
    return Measured(num_draft_tokens=num_draft_tokens, tokens_per_round=tokens_per_round, speedup=speedup)


_TPOT_PLAIN_S = 7.07e-3

EAGLE_CHAIN = Publication(
    title="Llama-3.1-8B on H100, vLLM, chain drafts, MT-bench",
    measured=tuple(
        _length(length, tokens, _TPOT_PLAIN_S / tpot_s)
        for length, tokens, tpot_s in (
            (2, 2.10, 4.37e-3),
            (3, 2.29, 4.29e-3),
            (4, 2.39, 4.48e-3),
            (5, 2.43, 4.71e-3),
            (6, 2.45, 4.94e-3),
            (7, 2.47, 5.20e-3),
        )
    ),
    tag=Tag.VERIFIED,
    source=_VLLM_20780,
    date="2025-07",
    note="speedup is 7.07 ms per token without drafting over that with",
)
EAGLE3_CHAIN = Publication(
    title="Llama-3.1-8B on H100, vLLM, chain drafts, MT-bench",
    measured=tuple(
        _length(length, tokens, _TPOT_PLAIN_S / tpot_s)
        for length, tokens, tpot_s in (
            (2, 2.36, 4.32e-3),
            (3, 2.79, 4.09e-3),
            (4, 3.08, 4.05e-3),
            (5, 3.32, 4.13e-3),
            (6, 3.46, 4.20e-3),
            (7, 3.54, 4.29e-3),
        )
    ),
    tag=Tag.VERIFIED,
    source=_VLLM_20780,
    date="2025-07",
    note="speedup is 7.07 ms per token without drafting over that with",
)
MTP_DEEPSEEK = Publication(
    title="DeepSeek-R1 on 8 x B200, 1 to 5 draft tokens",
    measured=(
        _length(1, 1.92, 1.78),
        _length(2, 2.58, 2.25),
        _length(3, 2.82, 2.28),
        _length(4, 2.99, 2.21),
        _length(5, 3.01, 2.15),
    ),
    tag=Tag.RECALLED,
    source="measured series of one published benchmark, its address not recorded",
    date="2025",
    note="NVIDIA/TensorRT-LLM tech blog 2 states 2.16x at 3 draft tokens for the same model and GPUs",
)
SPS_13B = Publication(
    title="Vicuna-13B on A100 with a 68M draft model (SpS)",
    measured=(_length(5, 2.19, 1.54),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the benchmark lets the draft length float; 5 is its start value",
)
T5_BASE = Publication(
    title="T5-XXL drafted by T5-base, English to German, temperature 1",
    alpha=0.68,
    tag=Tag.RECALLED,
    source=_LEVIATHAN,
    date="2023",
)
T5_LARGE = Publication(
    title="T5-XXL drafted by T5-large, English to German, greedy",
    alpha=0.82,
    tag=Tag.RECALLED,
    source=_LEVIATHAN,
    date="2023",
)
EAGLE_CHAIN_LOW = Publication(
    title="Llama-3-8B, vLLM, chain drafts",
    measured=(_length(2, 1.89, 175.5 / 128.6), _length(4, 2.08, 165.7 / 128.6)),
    tag=Tag.VERIFIED,
    source="vllm-project/vllm pull request 16035",
    date="2025-04-09",
)
EAGLE_TREE_7B = Publication(
    title="Vicuna-7B on A100, static tree of depth 5",
    measured=(_length(5, 3.58, 2.10),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="a tree tries several children per position: an upper bound for a chain; the depth is recalled",
)
EAGLE2_7B = Publication(
    title="Vicuna-7B on A100", measured=(_length(6, 4.34, 2.36),), tag=Tag.VERIFIED, source=_SPEC_BENCH, date="2025-04"
)
EAGLE2_13B = Publication(
    title="Vicuna-13B on A100", measured=(_length(6, 4.43, 2.46),), tag=Tag.VERIFIED, source=_SPEC_BENCH, date="2025-04"
)
EAGLE2_33B = Publication(
    title="Vicuna-33B on A100", measured=(_length(6, 4.05, 2.59),), tag=Tag.VERIFIED, source=_SPEC_BENCH, date="2025-04"
)
EAGLE3_LOW = Publication(
    title="gpt-oss-20b, chain drafts, SPEED-Bench (the baseline of P-EAGLE)",
    measured=(_length(3, 2.24), _length(7, 2.59)),
    tag=Tag.VERIFIED,
    source="P-EAGLE, arXiv 2602.01469, and its reports",
    date=_READ,
)
EAGLE3_HIGH = Publication(
    title="MiniMax-M3, vLLM TP 4, chain drafts, HumanEval",
    rates=(0.922, 0.832, 0.744),
    tag=Tag.VERIFIED,
    source="model card of Inferact/MiniMax-M3-EAGLE3",
    date=_READ,
    note="acceptance length 3.499; 2.698 on MT-Bench",
)
EAGLE3_TREE_WRONG_TEMPLATE = Publication(
    title="Llama-3.3-70B TP 8 on H100, SGLang, with another prompt template",
    measured=(_length(8, 2.42),),
    tag=Tag.VERIFIED,
    source="sgl-project/sglang pull request 4716",
    date="2025-03",
)
EAGLE3_TREE_13B = Publication(
    title="Vicuna-13B on A100",
    measured=(_length(8, 5.71, 3.02),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
)
EAGLE3_TREE_70B = Publication(
    title="Llama-3.3-70B TP 8 on H100, SGLang, 8 steps, top 8, 64 tokens",
    measured=(_length(8, 5.88, 234.5 / 88.6),),
    tag=Tag.VERIFIED,
    source="sgl-project/sglang pull request 4716",
    date="2025-03",
)
MTP_LOW = Publication(
    title="DeepSeek-V3, SGLang",
    measured=(_length(2, 1.9, 1.76),),
    tag=Tag.VERIFIED,
    source="sgl-project/sglang pull request 3582",
    date="2025-02-14",
)
MTP_HIGH = Publication(
    title="GLM-5.x with 3 draft tokens",
    measured=(_length(3, 3.2),),
    tag=Tag.VERIFIED,
    source="GLM-5.x release notes, their address not recorded",
    date=_READ,
)
MEDUSA_7B = Publication(
    title="Vicuna-7B on A100", measured=(_length(4, 2.31, 1.71),), tag=Tag.VERIFIED, source=_SPEC_BENCH, date="2025-04"
)
MEDUSA_33B = Publication(
    title="Vicuna-33B on A100", measured=(_length(4, 2.33, 1.76),), tag=Tag.VERIFIED, source=_SPEC_BENCH, date="2025-04"
)
MEDUSA_13B = Publication(
    title="Vicuna-13B on A100", measured=(_length(4, 2.39, 1.80),), tag=Tag.VERIFIED, source=_SPEC_BENCH, date="2025-04"
)
_NGRAM_LENGTH = 10
NGRAM_7B = Publication(
    title="Vicuna-7B on A100, prompt lookup, six tasks",
    measured=(_length(_NGRAM_LENGTH, 1.75, 1.66),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the draft length of 10 is recalled",
)
_NGRAM_ROUND = 1.75 / 1.66
NGRAM_TRANSLATION = Publication(
    title="Vicuna-7B on A100, prompt lookup, translation",
    measured=(_length(_NGRAM_LENGTH, 1.06 * _NGRAM_ROUND, 1.06),),
    tag=Tag.DERIVED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="speedup of the task times the cost of a round (1.75 / 1.66) of all tasks",
)
NGRAM_SUMMARISATION = Publication(
    title="Vicuna-7B on A100, prompt lookup, summarisation",
    measured=(_length(_NGRAM_LENGTH, 2.66 * _NGRAM_ROUND, 2.66),),
    tag=Tag.DERIVED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="speedup of the task times the cost of a round (1.75 / 1.66) of all tasks",
)


def _fitted(publication: Publication) -> DraftCost:
    """Cost per draft token and once, from speedups at several draft lengths."""
    return fit_draft_cost(
        [
            (one.num_draft_tokens, one.tokens_per_round, one.speedup)
            for one in publication.measured
            if one.speedup is not None
        ]
    )


def _extra(*publications: Publication) -> tuple[float, int]:
    """Return the mean time of a round beyond its target step, in target steps, and the draft length."""
    runs = [one for publication in publications for one in publication.measured if one.speedup is not None]
    extra = [one.tokens_per_round / one.speedup - 1 for one in runs if one.speedup is not None]
    return sum(extra) / len(extra), runs[0].num_draft_tokens


def _per_step(*publications: Publication) -> DraftCost:
    """All that a round costs beyond the target step, spread over the draft steps."""
    extra, length = _extra(*publications)
    return DraftCost(cost_ratio=extra / length)


def _once(*publications: Publication) -> DraftCost:
    """All that a round costs beyond the target step, once: the heads or the lookup run a single time."""
    return DraftCost(cost_ratio=0.0, fixed_ratio=_extra(*publications)[0])


PROFILES: dict[Method, Profile] = {
    profile.method: profile
    for profile in (
        Profile(
            method=Method.DRAFT_MODEL,
            title="small draft model",
            low=SPS_13B,
            typical=T5_BASE,
            high=T5_LARGE,
            max_draft_tokens=8,
            draft_cost=DraftCost(cost_ratio=0.11),
            cost_source=f"{_LEVIATHAN}: c of T5-large for T5-XXL [R]; also the weights of 8B over those of 70B",
        ),
        Profile(
            method=Method.EAGLE,
            title="EAGLE head, chain",
            low=EAGLE_CHAIN_LOW,
            typical=EAGLE_CHAIN,
            high=EAGLE_TREE_7B,
            max_draft_tokens=7,
            draft_cost=_fitted(EAGLE_CHAIN),
            cost_source=f"{_VLLM_20780}: line through round times at 2 to 7 draft tokens",
        ),
        Profile(
            method=Method.EAGLE2,
            title="EAGLE-2 dynamic tree",
            low=EAGLE2_33B,
            typical=EAGLE2_7B,
            high=EAGLE2_13B,
            max_draft_tokens=6,
            draft_cost=_per_step(EAGLE2_7B, EAGLE2_13B, EAGLE2_33B),
            cost_source=f"{_SPEC_BENCH}: (tokens per round / speedup - 1) / depth",
            tree_tokens=60,
            tree_source="EAGLE-2 paper: 60 tokens for 7B and 8B, depth 6 [R]",
        ),
        Profile(
            method=Method.EAGLE3,
            title="EAGLE-3 head, chain",
            low=EAGLE3_LOW,
            typical=EAGLE3_CHAIN,
            high=EAGLE3_HIGH,
            max_draft_tokens=7,
            draft_cost=_fitted(EAGLE3_CHAIN),
            cost_source=f"{_VLLM_20780}: line through round times at 2 to 7 draft tokens",
        ),
        Profile(
            method=Method.EAGLE3_TREE,
            title="EAGLE-3 dynamic tree",
            low=EAGLE3_TREE_WRONG_TEMPLATE,
            typical=EAGLE3_TREE_13B,
            high=EAGLE3_TREE_70B,
            max_draft_tokens=8,
            draft_cost=_per_step(EAGLE3_TREE_13B, EAGLE3_TREE_70B),
            cost_source=f"{_SPEC_BENCH} and sglang pull request 4716: (tokens per round / speedup - 1) / depth",
            tree_tokens=64,
            tree_source="sgl-project/sglang pull request 4716: 8 steps, 64 tokens",
        ),
        Profile(
            method=Method.MTP,
            title="multi-token prediction",
            low=MTP_LOW,
            typical=MTP_DEEPSEEK,
            high=MTP_HIGH,
            max_draft_tokens=5,
            draft_cost=_fitted(MTP_DEEPSEEK),
            cost_source=f"{MTP_DEEPSEEK.title}: line through round times at 1 to 5 draft tokens",
        ),
        Profile(
            method=Method.MEDUSA,
            title="Medusa heads, static tree",
            low=MEDUSA_7B,
            typical=MEDUSA_33B,
            high=MEDUSA_13B,
            max_draft_tokens=4,
            draft_cost=_once(MEDUSA_7B, MEDUSA_13B, MEDUSA_33B),
            cost_source=f"{_SPEC_BENCH}: tokens per round / speedup - 1",
            tree_tokens=63,
            tree_source="Medusa repository, mc_sim_7b_63: 63 nodes over 4 heads [R]",
        ),
        Profile(
            method=Method.NGRAM,
            title="n-gram / prompt lookup",
            low=NGRAM_TRANSLATION,
            typical=NGRAM_7B,
            high=NGRAM_SUMMARISATION,
            max_draft_tokens=_NGRAM_LENGTH,
            draft_cost=_once(NGRAM_7B),
            cost_source=f"{_SPEC_BENCH}: tokens per round / speedup - 1; looking up costs no GPU time",
        ),
    )
}
"""The published profile of each drafting method."""


def method_of(name: str) -> Method:
    """Return the method called ``name``.

    Raises:
        UsageError: no method has that name; the hint lists all.

    >>> method_of("EAGLE-3")
    <Method.EAGLE3: 'eagle3'>

    """
    word = name.strip().lower().replace("_", "-")
    known = {method.value: method for method in Method} | {method.value.replace("-", ""): method for method in Method}
    known |= {"draft": Method.DRAFT_MODEL, "n-gram": Method.NGRAM, "prompt-lookup": Method.NGRAM}
    found = known.get(word) or known.get(word.replace("-", ""))
    if found is None:
        raise UsageError(f"{name!r} is not a way of drafting", place="--method", hint=f"one of {', '.join(Method)}")
    return found
