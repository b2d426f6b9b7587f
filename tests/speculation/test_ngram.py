from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.speculation.ngram import CorpusTable, Drafter, FirstKnown, PromptLookup, Replay, replayed, replayed_speedup

PROJECT = Path(__file__).parents[2]


def real_stream(name: str) -> list[int]:
    """Return a document of the project as a stream of words and signs, numbered as they first occur."""
    words = re.findall(r"\w+|[^\w ]", (PROJECT / name).read_text(encoding="utf-8"))
    numbers: dict[str, int] = {}
    return [numbers.setdefault(word, len(numbers)) for word in words]


def random_stream(num_tokens: int = 3000) -> list[int]:
    tokens: list[int] = np.random.default_rng(8).integers(0, 32_000, num_tokens).tolist()
    return tokens


def naive(tokens: list[int], longest: int, shortest: int, number: int) -> tuple[int, ...]:
    """Return what follows the first match of the longest suffix, by search."""
    for order in range(min(longest, len(tokens)), shortest - 1, -1):
        suffix = tokens[len(tokens) - order :]
        for start in range(len(tokens) - order):
            if tokens[start : start + order] == suffix:
                return tuple(tokens[start + order : start + order + number])
    return ()


@given(
    tokens=st.lists(st.integers(0, 2), max_size=30),
    orders=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    number=st.integers(0, 5),
    cut=st.integers(0, 30),
)
def test_the_index_finds_what_a_search_finds(tokens: list[int], orders: tuple[int, int], number: int, cut: int) -> None:
    longest, shortest = max(orders), min(orders)
    drafter = PromptLookup(tokens[:cut], max_ngram=longest, min_ngram=shortest)
    drafter.extend(tokens[cut:])
    assert drafter.propose(number) == naive(tokens, longest, shortest, number)


def test_the_longest_suffix_and_its_first_occurrence_decide() -> None:
    stream = [1, 2, 7, 5, 1, 2, 8, 6, 1, 2]
    assert PromptLookup(stream, max_ngram=2, min_ngram=1).propose(2) == (7, 5)
    # Three tokens match at the second place only.
    assert PromptLookup([*stream[:4], *stream[:2], 8, 5, 1, 2], max_ngram=3, min_ngram=1).propose(2) == (8, 5)
    # A match that runs into the suffix proposes what there is.
    assert PromptLookup([3, 3, 3], max_ngram=2, min_ngram=2).propose(4) == (3,)


def test_a_corpus_proposes_what_followed_most_often() -> None:
    table = CorpusTable([[1, 2, 3, 4], [1, 2, 5], [9, 1, 2, 5, 6]], max_ngram=2, min_ngram=1)
    table.extend([1, 2])
    assert table.propose(3) == (5, 6)
    table.extend([77])
    assert table.propose(3) == ()
    # 7 pairs with a follower: 12 23 | 12 | 91 12 25, and 5 single tokens.
    assert table.num_entries == len({(1, 2), (2, 3), (9, 1), (2, 5)} | {(1,), (2,), (3,), (9,), (5,)})
    both = FirstKnown(PromptLookup(max_ngram=2, min_ngram=2), table)
    both.extend([4, 1, 2])
    assert both.propose(1) == (5,)
    both.extend([8, 1, 2])
    assert both.propose(1) == (8,)


def lookup() -> Drafter:
    return PromptLookup(max_ngram=3, min_ngram=2)


def test_repetitive_text_is_accepted_and_random_text_is_not() -> None:
    chorus = random_stream(60)
    repeated = replayed(chorus * 12, 60, lookup(), 8)
    assert repeated.accepted_fraction > 0.95
    assert repeated.tokens_per_round > 7
    noise = replayed(random_stream(), 1000, lookup(), 8)
    assert (noise.num_accepted_tokens, noise.num_rounds, noise.tokens_per_round) == (0, 2000, 1)


@pytest.mark.parametrize("name", ["README.md", "docs/commands.md"])
def test_real_text_lies_between(name: str) -> None:
    stream = real_stream(name)
    found = replayed(stream, len(stream) // 2, lookup(), 5)
    # The pages change: what holds of any text is that it is neither noise (1 and 0) nor one phrase (7 and 0.95).
    assert 1.05 < found.tokens_per_round < 5
    assert 0.03 < found.accepted_fraction < 0.95
    # Its first half as a corpus, of which nothing is in the context, serves as well.
    table = CorpusTable([stream[: len(stream) // 2]], max_ngram=3, min_ngram=2)
    assert replayed(stream[len(stream) // 2 :], 2, table, 5).tokens_per_round > 1.05


@given(stream=st.lists(st.integers(0, 3), max_size=60), prompt=st.integers(0, 60), number=st.integers(0, 6))
def test_every_token_is_accounted_for(stream: list[int], prompt: int, number: int) -> None:
    prompt = min(prompt, len(stream))
    found = replayed(stream, prompt, PromptLookup(max_ngram=2, min_ngram=1), number)
    assert found.num_accepted_tokens + found.num_rounds == found.num_tokens == len(stream) - prompt
    assert found.num_verified_tokens == found.num_drafted_tokens + found.num_rounds
    assert found.num_accepted_tokens <= found.num_drafted_tokens
    assert found.operations_ratio >= 1 or not found.num_tokens
    longer = replayed(stream, prompt, PromptLookup(max_ngram=2, min_ngram=1), 0)
    assert longer.rounds_by_drafted == (len(stream) - prompt,)


def test_verification_of_proposals_is_paid_for() -> None:
    replay = Replay(num_tokens=100, num_accepted_tokens=40, rounds_by_drafted=(20, 0, 0, 0, 40))
    assert (replay.num_rounds, replay.num_drafted_tokens, replay.num_verified_tokens) == (60, 160, 220)
    assert (replay.tokens_per_round, replay.accepted_fraction, replay.operations_ratio) == (100 / 60, 0.25, 2.2)

    def flat(batch: int, tokens: int) -> float:
        return 1e-3 + 0 * batch * tokens

    def bound_by_compute(batch: int, tokens: int) -> float:
        return 1e-3 * batch * tokens

    assert replayed_speedup(replay, flat, 1) == pytest.approx(100 / 60)
    assert replayed_speedup(replay, flat, 1, lookup_s=1e-3) == pytest.approx(100 / 120)
    assert replayed_speedup(replay, bound_by_compute, 64) == pytest.approx(100 / 220)
    gains = [replayed_speedup(replay, lambda b, t: max(1e-3, 1e-4 * b * t), batch) for batch in (1, 2, 4, 16)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(gains))
    empty = Replay(num_tokens=0, num_accepted_tokens=0, rounds_by_drafted=(0,))
    assert replayed_speedup(empty, flat, 1) == 1
    assert (empty.tokens_per_round, empty.accepted_fraction, empty.operations_ratio) == (0, 0, 0)


@pytest.mark.parametrize(("longest", "shortest"), [(0, 0), (2, 3), (3, 0)])
def test_orders_that_cannot_be_are_refused(longest: int, shortest: int) -> None:
    with pytest.raises(UsageError, match="n-grams of"):
        PromptLookup(max_ngram=longest, min_ngram=shortest)
    with pytest.raises(UsageError, match="n-grams of"):
        CorpusTable([[1, 2]], max_ngram=longest, min_ngram=shortest)


@pytest.mark.parametrize(("prompt", "number"), [(4, 1), (-1, 1), (0, -1)])
def test_a_replay_of_nothing_is_refused(prompt: int, number: int) -> None:
    with pytest.raises(UsageError, match="a prompt of"):
        replayed([1, 2, 3], prompt, lookup(), number)
