"""Requests with one prompt: what they hold apart, forked and found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infcalc.kvcache.sharing import share


def blocks(tokens: int, size: int) -> int:
    return -(-tokens // size)


@given(
    prompt=st.integers(1, 70),
    own=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    size=st.sampled_from([1, 4, 16]),
)
def test_the_prompt_is_stored_once(prompt: int, own: list[int], size: int) -> None:
    found = share(prompt, own, size)
    full = prompt // size
    assert found.num_blocks_apart == sum(blocks(prompt + one, size) for one in own)
    # Full blocks of the prompt once; from the one that is not full on, each request has its own.
    once = full + sum(blocks(prompt + one, size) - full for one in own)
    assert found.num_blocks_forked == once
    assert found.num_blocks_found == once
    assert found.num_copies == (len(own) - 1 if prompt % size else 0)


def test_fifty_requests_after_a_prompt_of_whole_blocks_copy_nothing() -> None:
    found = share(1024, [10] * 50, 16)
    assert (found.num_copies, found.num_blocks_apart, found.num_blocks_forked) == (0, 50 * 65, 64 + 50)


def test_fifty_requests_that_diverge_inside_a_block_copy_it_forty_nine_times() -> None:
    found = share(1000, [8] * 50, 16)
    assert (found.num_copies, found.num_blocks_apart, found.num_blocks_forked) == (49, 50 * 63, 62 + 50)
