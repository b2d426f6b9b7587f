"""Streams with shared prefixes: exactly so many share, and nothing else is alike."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from infcalc.workload.shared_prefixes import SharedStream, prompts_of


@given(
    sharing=st.integers(0, 30),
    alone=st.integers(0, 20),
    prefixes=st.integers(1, 8),
    prefix=st.integers(1, 12),
    seed=st.integers(0, 9),
)
def test_exactly_so_many_share(sharing: int, alone: int, prefixes: int, prefix: int, seed: int) -> None:
    number = sharing + alone
    lengths = tuple(1 + index % 4 for index in range(number))
    stream = SharedStream(
        num_sharing=sharing,
        num_prefixes=prefixes,
        prefix_tokens=prefix,
        own_tokens=lengths,
        answer_tokens=tuple(index % 3 for index in range(number)),
    )
    found = prompts_of(stream, np.random.default_rng(seed))
    heads: dict[int, list[int]] = {}
    for one in found:
        if one.prefix is not None:
            assert heads.setdefault(one.prefix, list(one.tokens[:prefix])) == list(one.tokens[:prefix])
    counts = Counter(one.prefix for one in found)
    alone_count = counts.pop(None, 0)
    assert alone_count == alone
    assert sum(counts.values()) == sharing
    assert not counts or max(counts.values()) - min(counts.values()) <= 1
    assert stream.num_repeats == sharing - len(counts)
    assert [len(one.tokens) for one in found] == [prefix + own for own in lengths]
    assert stream.prompt_tokens == sum(len(one.tokens) for one in found)
    own = [token for one in found for token in [*one.tokens[prefix if one.prefix is not None else 0 :], *one.answer]]
    assert len(own) == len(set(own))
    assert not set(own) & {token for head in heads.values() for token in head}
    assert stream.distinct_tokens == len({token for one in found for token in [*one.tokens, *one.answer]})
    assert stream.longest_tokens == max((len(one.tokens) + len(one.answer) for one in found), default=prefix)


def test_the_seed_decides_the_order() -> None:
    def order(seed: int) -> list[int | None]:
        stream = SharedStream(
            num_sharing=60,
            num_prefixes=5,
            prefix_tokens=4,
            own_tokens=(2,) * 100,
            answer_tokens=(1,) * 100,
        )
        return [one.prefix for one in prompts_of(stream, np.random.default_rng(seed))]

    assert order(1) == order(1) != order(2)
