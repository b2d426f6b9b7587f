"""Published acceptance and cost of drafting methods, as data with source, and the profile of each method made of them.

An entry says how many tokens a round yielded (``tokens_per_round``, bonus token included) at a draft length, and the
speedup where it was stated. Acceptance of a profile is computed from its entries; what a drafter costs is computed from
its work, and only that of a draft model nobody named is a published ratio. All were measured at batch 1 unless they say
otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.speculation.linear import (
    FREE,
    Acceptance,
    DraftCost,
    SurvivalAcceptance,
    UniformAcceptance,
    survival_of_lengths,
)


class Method(StrEnum):
    """Ways of drafting."""

    DRAFT_MODEL = "draft-model"
    EAGLE = "eagle"
    EAGLE_TREE = "eagle-tree"
    EAGLE2 = "eagle2"
    EAGLE3 = "eagle3"
    EAGLE3_TREE = "eagle3-tree"
    MTP = "mtp"
    MEDUSA = "medusa"
    HYDRA = "hydra"
    NGRAM = "ngram"
    LOOKAHEAD = "lookahead"
    RECYCLING = "recycling"
    REST = "rest"


class Drafter(StrEnum):
    """What proposes the draft tokens, hence what they cost."""

    MODEL = "a model of its own, a pass for each draft token"
    HEAD = "a head of one layer, a pass for each draft token"
    WIDE_HEAD = "a head of one layer that reads three features, a pass for each draft token"
    OWN_LAYERS = "the target's own layers for further tokens, a pass for each draft token"
    AT_ONCE = "heads side by side, one pass"
    LOOKUP = "no network: the drafts are looked up"


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
    """A drafting method with published acceptance, from low to high, and what drafts.

    ``tree_tokens`` are verified per round where a tree is drafted (None: a chain), of which each pass of the drafter
    takes ``tree_width``. ``max_draft_tokens`` is the longest draft that was measured: beyond it acceptance would be a
    guess. ``draft_cost`` (in target steps, at batch 1) is what is taken where the drafter is not known.
    """

    method: Method
    title: str
    low: Publication
    typical: Publication
    high: Publication
    max_draft_tokens: int
    drafter: Drafter
    draft_cost: DraftCost = FREE
    cost_source: str = ""
    tree_tokens: int | None = None
    tree_width: int = 1
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
SPS_7B = Publication(
    title="Vicuna-7B on A100 with a 68M draft model (SpS)",
    measured=(_length(5, 2.28, 1.52),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the benchmark lets the draft length float; 5 is its start value",
)
SPS_33B = Publication(
    title="Vicuna-33B on A100 with a 68M draft model (SpS)",
    measured=(_length(5, 2.01, 1.57),),
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
EAGLE_TREE_13B = Publication(
    title="Vicuna-13B on A100, static tree of depth 5",
    measured=(_length(5, 3.64, 2.16),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
)
EAGLE_TREE_33B = Publication(
    title="Vicuna-33B on A100, static tree of depth 5",
    measured=(_length(5, 3.39, 2.43),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
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
MEDUSA2_7B = Publication(
    title="Vicuna-7B, Medusa-2: heads trained together with the target",
    measured=(_length(4, 3.47, 2.83),),
    tag=Tag.RECALLED,
    source="Medusa, arXiv 2401.10774, table of Medusa-2",
    date="2024-01",
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
HYDRA_7B = Publication(
    title="Vicuna-7B on A100",
    measured=(_length(4, 3.26, 2.07),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the depth of 4 is recalled",
)
HYDRA_13B = Publication(
    title="Vicuna-13B on A100",
    measured=(_length(4, 3.35, 2.2),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the depth of 4 is recalled",
)
HYDRA_33B = Publication(
    title="Vicuna-33B on A100",
    measured=(_length(4, 3.24, 2.22),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the depth of 4 is recalled",
)
LOOKAHEAD_7B = Publication(
    title="Vicuna-7B on A100",
    measured=(_length(4, 1.64, 1.34),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="n-grams of 5: at most 4 drafts are accepted [R]",
)
LOOKAHEAD_13B = Publication(
    title="Vicuna-13B on A100",
    measured=(_length(4, 1.63, 1.3),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="n-grams of 5: at most 4 drafts are accepted [R]",
)
LOOKAHEAD_33B = Publication(
    title="Vicuna-33B on A100",
    measured=(_length(4, 1.61, 1.25),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="n-grams of 5: at most 4 drafts are accepted [R]",
)
RECYCLING_7B = Publication(
    title="Vicuna-7B on A100",
    measured=(_length(6, 2.73, 2.22),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the depth of 6 is recalled",
)
RECYCLING_13B = Publication(
    title="Vicuna-13B on A100",
    measured=(_length(6, 2.73, 2.17),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the depth of 6 is recalled",
)
RECYCLING_33B = Publication(
    title="Vicuna-33B on A100",
    measured=(_length(6, 2.62, 1.83),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the depth of 6 is recalled",
)
REST_7B = Publication(
    title="Vicuna-7B on A100",
    measured=(_length(10, 1.82, 1.48),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the depth of 10 is recalled",
)
REST_13B = Publication(
    title="Vicuna-13B on A100",
    measured=(_length(10, 1.82, 1.38),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the depth of 10 is recalled",
)
REST_33B = Publication(
    title="Vicuna-33B on A100",
    measured=(_length(10, 1.8, 1.48),),
    tag=Tag.VERIFIED,
    source=_SPEC_BENCH,
    date="2025-04",
    note="the depth of 10 is recalled",
)

PROFILES: dict[Method, Profile] = {
    profile.method: profile
    for profile in (
        Profile(
            method=Method.DRAFT_MODEL,
            title="small draft model",
            low=SPS_33B,
            typical=T5_BASE,
            high=T5_LARGE,
            max_draft_tokens=8,
            drafter=Drafter.MODEL,
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
            drafter=Drafter.HEAD,
        ),
        Profile(
            method=Method.EAGLE_TREE,
            title="EAGLE head, static tree",
            low=EAGLE_TREE_33B,
            typical=EAGLE_TREE_7B,
            high=EAGLE_TREE_13B,
            max_draft_tokens=5,
            drafter=Drafter.HEAD,
            tree_tokens=25,
            tree_width=4,
            tree_source="EAGLE repository, mc_sim_7b_63: 25 nodes of depth 5 [R]",
        ),
        Profile(
            method=Method.EAGLE2,
            title="EAGLE-2 dynamic tree",
            low=EAGLE2_33B,
            typical=EAGLE2_7B,
            high=EAGLE2_13B,
            max_draft_tokens=6,
            drafter=Drafter.HEAD,
            tree_tokens=60,
            tree_width=10,
            tree_source="EAGLE-2 paper: 60 tokens for 7B and 8B, depth 6 [R]",
        ),
        Profile(
            method=Method.EAGLE3,
            title="EAGLE-3 head, chain",
            low=EAGLE3_LOW,
            typical=EAGLE3_CHAIN,
            high=EAGLE3_HIGH,
            max_draft_tokens=7,
            drafter=Drafter.WIDE_HEAD,
        ),
        Profile(
            method=Method.EAGLE3_TREE,
            title="EAGLE-3 dynamic tree",
            low=EAGLE3_TREE_WRONG_TEMPLATE,
            typical=EAGLE3_TREE_13B,
            high=EAGLE3_TREE_70B,
            max_draft_tokens=8,
            drafter=Drafter.WIDE_HEAD,
            tree_tokens=64,
            tree_width=10,
            tree_source="sgl-project/sglang pull request 4716: 8 steps, 64 tokens",
        ),
        Profile(
            method=Method.MTP,
            title="multi-token prediction",
            low=MTP_LOW,
            typical=MTP_DEEPSEEK,
            high=MTP_HIGH,
            max_draft_tokens=5,
            drafter=Drafter.OWN_LAYERS,
        ),
        Profile(
            method=Method.MEDUSA,
            title="Medusa heads, static tree",
            low=MEDUSA_7B,
            typical=MEDUSA_33B,
            high=MEDUSA2_7B,
            max_draft_tokens=4,
            drafter=Drafter.AT_ONCE,
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
            drafter=Drafter.LOOKUP,
        ),
        Profile(
            method=Method.HYDRA,
            title="Hydra heads, static tree",
            low=HYDRA_33B,
            typical=HYDRA_7B,
            high=HYDRA_13B,
            max_draft_tokens=4,
            drafter=Drafter.HEAD,
            tree_tokens=63,
            tree_source="Hydra repository: the tree of Medusa [R]",
        ),
        Profile(
            method=Method.LOOKAHEAD,
            title="lookahead decoding",
            low=LOOKAHEAD_33B,
            typical=LOOKAHEAD_13B,
            high=LOOKAHEAD_7B,
            max_draft_tokens=4,
            drafter=Drafter.LOOKUP,
            tree_tokens=119,
            tree_source="Lookahead repository: window 15, n-grams of 5, 15 guesses: 2 x 15 x 4 tokens [R]",
        ),
        Profile(
            method=Method.RECYCLING,
            title="token recycling",
            low=RECYCLING_33B,
            typical=RECYCLING_7B,
            high=RECYCLING_13B,
            max_draft_tokens=6,
            drafter=Drafter.LOOKUP,
            tree_tokens=80,
            tree_source="Token Recycling, arXiv 2408.08696: a static tree of 80 nodes [R]",
        ),
        Profile(
            method=Method.REST,
            title="retrieval from a datastore",
            low=REST_33B,
            typical=REST_7B,
            high=REST_13B,
            max_draft_tokens=10,
            drafter=Drafter.LOOKUP,
            tree_tokens=64,
            tree_source="REST, arXiv 2311.08252: up to 64 draft tokens in a trie [R]",
        ),
    )
}
"""The published profile of each drafting method."""
SMALL_DRAFT = replace(PROFILES[Method.DRAFT_MODEL], title="tiny draft model", low=SPS_33B, typical=SPS_13B, high=SPS_7B)
"""Of a draft model with less than :data:`SMALL_FRACTION` of the target's parameters."""
SMALL_FRACTION = 0.0105
"""The largest of the measured ones: 68 million of 7 billion. Larger drafts are taken for typical ones."""


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
    known |= {"pld": Method.NGRAM, "sps": Method.DRAFT_MODEL, "token-recycling": Method.RECYCLING}
    found = known.get(word) or known.get(word.replace("-", ""))
    if found is None:
        raise UsageError(f"{name!r} is not a way of drafting", place="--method", hint=f"one of {', '.join(Method)}")
    return found
