from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infcalc.kvcache.hit_rules import common_hit, full_hit, most_hit_blocks, state_hit, window_hit

CACHED = st.sets(st.integers(0, 12))
MOST = st.integers(0, 12)


def usable(cached: set[int], most: int, seen_from: int | None) -> int:
    """Return the longest hit by trying all: the blocks from ``seen_from`` before its end on must be there."""
    for hit in range(most, 0, -1):
        first = 0 if seen_from is None else max(0, hit - seen_from)
        if set(range(first, hit)) <= cached:
            return hit
    return 0


@given(CACHED, MOST)
def test_full_attention_needs_every_block(cached: set[int], most: int) -> None:
    assert full_hit(cached.__contains__, most) == usable(cached, most, None)


@given(CACHED, MOST, st.integers(2, 40), st.integers(1, 8), st.integers(0, 1))
def test_a_window_needs_what_the_next_token_sees(
    cached: set[int], most: int, window_tokens: int, block_tokens: int, dropped: int
) -> None:
    hit = window_hit(
        cached.__contains__,
        most,
        window_tokens=window_tokens,
        block_tokens=block_tokens,
        num_dropped_blocks=dropped,
    )
    needed = -(-(window_tokens - 1) // block_tokens) + dropped
    assert hit == usable(cached, most, needed)


@given(CACHED, MOST)
def test_a_state_is_needed_at_the_end_alone(cached: set[int], most: int) -> None:
    assert state_hit(cached.__contains__, most) == usable(cached, most, 1)


@given(CACHED, CACHED, CACHED, MOST, st.integers(2, 12))
def test_layers_of_several_kinds_agree_on_a_hit_that_each_can_use(
    full: set[int], windows: set[int], states: set[int], most: int, window_tokens: int
) -> None:
    needed = -(-(window_tokens - 1) // 2)
    hit = common_hit(
        [
            lambda limit: full_hit(full.__contains__, limit),
            lambda limit: window_hit(windows.__contains__, limit, window_tokens=window_tokens, block_tokens=2),
            lambda limit: state_hit(states.__contains__, limit),
        ],
        most,
    )
    every = [
        length
        for length in range(1, most + 1)
        if set(range(length)) <= full
        and set(range(max(0, length - needed), length)) <= windows
        and length - 1 in states
    ]
    assert hit == max(every, default=0)


def test_a_whole_prompt_in_the_cache_leaves_one_token_to_a_block() -> None:
    assert [most_hit_blocks(tokens, 16) * 16 for tokens in (1, 16, 17, 32, 33)] == [0, 0, 16, 16, 32]
