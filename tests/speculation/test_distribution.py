"""What comes out has the target's law, over 200,000 continuations of several tokens, whatever drafts them.

Each kind of drafting is held to two figures: the chi-square of whole continuations, and the tokens of the rounds after
the prompt against their sum over all paths. Bugs are planted in the code and must be caught by the same check.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from infcalc.speculation import branching, exact
from infcalc.speculation.branching import Siblings
from infcalc.speculation.dynamic_tree import DynamicTree, grown
from infcalc.speculation.exact import Laws, Model, Tokens, greedy
from infcalc.speculation.ngram import PromptLookup
from infcalc.speculation.rounds import (
    Emitted,
    Round,
    chain_round,
    dynamic_round,
    lookup_round,
    plain_round,
    tree_round,
    written,
)
from infcalc.speculation.spread import measured_tokens
from infcalc.speculation.tree import TreeShape, chain, full_tree, tree_of_paths
from infcalc.speculation.tree_acceptance import best_shape
from tests.speculation.laws import (
    PROMPT,
    chi_square_z,
    expected_of_certain,
    expected_of_chain,
    expected_of_tree,
    law_of_continuations,
    numbered,
    pair,
)

NUM_SEQUENCES = 200_000
ROWS = 20_000
WORST = 3.7
"""Standard deviations of chi-square that one run in ten thousand exceeds."""
STANDARD_ERRORS = 3.0

Build = Callable[[Model, Model, int], tuple[Round, float]]
"""Target, draft and vocabulary to a round and its expected tokens after the prompt."""


@dataclass(frozen=True)
class Setting:
    vocab_size: int
    temperature: float
    num_tokens: int

    @property
    def label(self) -> str:
        return f"V{self.vocab_size}-T{self.temperature}-L{self.num_tokens}"


SMALL = (Setting(3, 0.6, 5), Setting(4, 1.0, 4))
SETTINGS = (*SMALL, Setting(16, 1.4, 2))
EAGLE2 = DynamicTree(num_expanded=3, max_depth=3, num_nodes=8)
MEDUSA = tree_of_paths([(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0)])
SEQUOIA = best_shape(9, [(0.6, 0.15, 0.05)], max_depth=4)


def linear(length: int, *, by_match: bool = False) -> Build:
    return lambda target, draft, size: (
        chain_round(target, draft, length, by_match=by_match),
        expected_of_chain(target, draft, size, length, by_match=by_match),
    )


def greedy_draft(target: Model, draft: Model, size: int) -> tuple[Round, float]:
    def one_hot(contexts: Tokens) -> Laws:
        return greedy(draft(contexts))

    return chain_round(target, one_hot, 3), expected_of_chain(target, one_hot, size, 3)


def tree(shape: TreeShape, siblings: Siblings) -> Build:
    return lambda target, draft, _: (
        tree_round(target, draft, shape, siblings),
        expected_of_tree(target, draft, shape, siblings),
    )


def eagle2(target: Model, draft: Model, _: int) -> tuple[Round, float]:
    made = grown(PROMPT, draft, EAGLE2)
    return dynamic_round(target, draft, EAGLE2), expected_of_certain(target, made.shape, made.tokens)


def ngram(target: Model, _draft: Model, size: int) -> tuple[Round, float]:
    # What the lookup finds before the prompt: the prompt itself again, and most pairs of tokens.
    before = [0, 1, 2, 0, 1, 1, 0, 2, 2, 1, size - 1, 0]

    def propose(context: object) -> tuple[int, ...]:
        assert isinstance(context, list)
        return PromptLookup([*before, *context], max_ngram=3, min_ngram=1).propose(2)

    tokens = np.array(propose(PROMPT.tolist()))
    return lookup_round(target, propose), expected_of_certain(target, chain(len(tokens)), tokens)


LINEAR: dict[str, Build] = {
    "plain": lambda target, _draft, _size: (plain_round(target), 1.0),
    "chain of 1": linear(1),
    "chain of 3": linear(3),
    "chain by match": linear(3, by_match=True),
    "chain of a greedy draft": greedy_draft,
    "n-gram": ngram,
}
TREES: dict[str, Build] = {
    "SpecInfer 3 x 2": tree(full_tree(2, 2, 2), Siblings.WITH_REPLACEMENT),
    "3 x 2 without replacement": tree(full_tree(2, 2, 2), Siblings.WITHOUT_REPLACEMENT),
    "best of 3 x 2": tree(full_tree(2, 2, 2), Siblings.BEST),
    "Medusa": tree(MEDUSA, Siblings.BEST),
    "Sequoia": tree(SEQUOIA, Siblings.WITHOUT_REPLACEMENT),
    "more children than tokens": tree(full_tree(5), Siblings.WITHOUT_REPLACEMENT),
    "EAGLE-2": eagle2,
}
KINDS = LINEAR | TREES
CASES = [
    *((name, setting) for name in LINEAR for setting in SETTINGS),
    *((name, setting) for name in TREES for setting in SMALL),
    *((name, SETTINGS[-1]) for name in ("SpecInfer 3 x 2", "Medusa", "EAGLE-2")),
    *((name, Setting(50, 0.8, 2)) for name in ("chain of 1", "chain of 3")),
]


def check(setting: Setting, target: Model, run: Round, expected: float, *, seed: int = 11) -> None:
    """Fail unless continuations have the target's law and rounds the expected tokens."""
    generator = np.random.default_rng(seed)
    size = setting.vocab_size
    counts = np.zeros(size**setting.num_tokens)
    rounds: Counter[int] = Counter()
    for _ in range(NUM_SEQUENCES // ROWS):
        part = written(PROMPT, ROWS, setting.num_tokens, run, generator)
        counts += np.bincount(numbered(part.tokens, size), minlength=len(counts))
        rounds.update(part.first_round)
    assert chi_square_z(counts, law_of_continuations(target, size, setting.num_tokens)) < WORST, "law"
    tokens = measured_tokens(rounds)
    assert tokens.num_rounds == NUM_SEQUENCES
    error = STANDARD_ERRORS * tokens.standard_error_tokens
    assert tokens.tokens_per_round == pytest.approx(expected, abs=error + 1e-12), "tokens per round"


@pytest.mark.parametrize(("name", "setting"), [pytest.param(*case, id=f"{case[0]}-{case[1].label}") for case in CASES])
def test_the_law_of_what_comes_out_is_that_of_the_target(name: str, setting: Setting) -> None:
    target, draft = pair(setting.vocab_size, setting.temperature)
    check(setting, target, *KINDS[name](target, draft, setting.vocab_size))


def without_bonus(run: Round) -> Round:
    """Leave out the last token where all drafts were accepted."""

    def bugged(contexts: Tokens, generator: np.random.Generator) -> Emitted:
        made = run(contexts, generator)
        return Emitted(tokens=made.tokens, num_tokens=np.minimum(made.num_tokens, made.tokens.shape[1] - 1))

    return bugged


RESAMPLED_FROM_P = ("residual", lambda target, _: target / target.sum(axis=-1, keepdims=True))
ACCEPTED_WITH_P = ("acceptance", lambda target, _: target)
ACCEPTED_WITH_Q_OVER_P = ("acceptance", lambda target, draft: np.minimum(1, draft / np.maximum(target, 1e-300)))
BUGGED_KINDS = ("chain of 3", "SpecInfer 3 x 2", "Sequoia")


@pytest.mark.parametrize("name", BUGGED_KINDS)
@pytest.mark.parametrize("bug", [RESAMPLED_FROM_P, ACCEPTED_WITH_P, ACCEPTED_WITH_Q_OVER_P], ids=["p", "a", "q/p"])
def test_a_planted_bug_of_the_law_is_caught(
    name: str, bug: tuple[str, Callable[[Laws, Laws], Laws]], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = SMALL[1]
    target, draft = pair(setting.vocab_size, setting.temperature)
    run, expected = KINDS[name](target, draft, setting.vocab_size)
    for module in (exact, branching):
        monkeypatch.setattr(module, *bug)
    with pytest.raises(AssertionError, match="law"):
        check(setting, target, run, expected)


@pytest.mark.parametrize("name", BUGGED_KINDS)
def test_a_skipped_bonus_is_caught(name: str) -> None:
    setting = SMALL[1]
    target, draft = pair(setting.vocab_size, setting.temperature)
    run, expected = KINDS[name](target, draft, setting.vocab_size)
    with pytest.raises(AssertionError, match="tokens per round"):
        check(setting, target, without_bonus(run), expected)


@pytest.mark.parametrize("name", ["best of 3 x 2", "EAGLE-2"])
def test_best_tokens_tried_as_if_they_had_been_drawn_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = SMALL[1]
    target, draft = pair(setting.vocab_size, setting.temperature)
    run, expected = KINDS[name](target, draft, setting.vocab_size)
    monkeypatch.setattr(branching, "one_hot", lambda tokens, size: np.full((len(tokens), size), 1 / size))
    with pytest.raises(AssertionError, match="law"):
        check(setting, target, run, expected)


# Limits


@pytest.mark.parametrize("name", [name for name in KINDS if name not in {"n-gram", "plain", "chain by match"}])
def test_a_greedy_target_is_followed_to_the_letter(name: str) -> None:
    target, draft = pair(8, 0.0)
    run, _ = KINDS[name](target, draft, 8)
    known = PROMPT[None]
    for _ in range(12):
        known = np.append(known, target(known).argmax(axis=-1)[:, None], axis=1)
    made = written(PROMPT, 50, 12, run, np.random.default_rng(0))
    assert (made.tokens == known[0, 2:]).all()


@pytest.mark.parametrize("length", [1, 4, 7])
@pytest.mark.parametrize("siblings", [Siblings.WITH_REPLACEMENT, Siblings.WITHOUT_REPLACEMENT])
def test_a_target_that_drafts_for_itself_accepts_all(length: int, siblings: Siblings) -> None:
    target, _ = pair(6, 1.0)
    shape = full_tree(2, *[1] * (length - 1))
    for run in (chain_round(target, target, length), tree_round(target, target, shape, siblings)):
        made = written(PROMPT, 3000, 3 * (length + 1), run, np.random.default_rng(1))
        assert made.rounds == {length + 1: 9000}


@pytest.mark.parametrize("shape", [chain(3), full_tree(2, 2, 2)], ids=["chain", "tree"])
@pytest.mark.parametrize("siblings", Siblings)
@pytest.mark.filterwarnings("error")
def test_disjoint_supports_yield_one_token_per_round(shape: TreeShape, siblings: Siblings) -> None:
    def target(contexts: Tokens) -> Laws:
        return np.broadcast_to(np.array([0.3, 0.7, 0.0, 0.0, 0.0]), (len(contexts), 5))

    def draft(contexts: Tokens) -> Laws:
        return np.broadcast_to(np.array([0.0, 0.0, 0.5, 0.4, 0.1]), (len(contexts), 5))

    for run in (tree_round(target, draft, shape, siblings), chain_round(target, draft, 3)):
        made = written(PROMPT, 20_000, 3, run, np.random.default_rng(2))
        assert made.rounds == {1: 60_000}
        assert (made.tokens == 1).mean() == pytest.approx(0.7, abs=3 * math.sqrt(0.21 / 60_000))


def test_the_bonus_of_a_full_round_belongs_to_the_context_that_was_accepted() -> None:
    target, _ = pair(4, 1.0)
    made = written(PROMPT, 200_000, 4, chain_round(target, target, 3), np.random.default_rng(3))
    counts = np.bincount(numbered(made.tokens, 4), minlength=4**4).astype(float)
    assert chi_square_z(counts, law_of_continuations(target, 4, 4)) < WORST
