from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.scheduling.sequence import TRANSITIONS, IllegalTransition, Sequence, Status


def fresh() -> Sequence:
    return Sequence(3, [5, 6, 7, 8], max_new_tokens=3)


PATHS = {
    Status.WAITING: [],
    Status.RUNNING: [Status.RUNNING],
    Status.PREEMPTED: [Status.RUNNING, Status.PREEMPTED],
    Status.FINISHED: [Status.RUNNING, Status.FINISHED],
    Status.ABORTED: [Status.ABORTED],
}


@pytest.mark.parametrize("before", Status)
@pytest.mark.parametrize("after", Status)
def test_only_the_transitions_of_the_table_are_taken(before: Status, after: Status) -> None:
    sequence = fresh()
    for status in PATHS[before]:
        sequence.become(status)
    legal = {
        ("waiting", "running"),
        ("waiting", "aborted"),
        ("running", "preempted"),
        ("running", "finished"),
        ("running", "aborted"),
        ("preempted", "running"),
        ("preempted", "aborted"),
    }
    if (before, after) in legal:
        sequence.become(after)
        assert sequence.status is after
    else:
        with pytest.raises(IllegalTransition, match=f"is {before} and cannot become {after}"):
            sequence.become(after)
        assert sequence.status is before


def test_every_status_has_its_row() -> None:
    assert set(TRANSITIONS) == set(Status)


def test_preemption_forgets_what_was_cached_and_keeps_what_was_said() -> None:
    sequence = fresh()
    sequence.become(Status.RUNNING)
    sequence.computed(4)
    sequence.append(9)
    assert sequence.is_decoding
    sequence.become(Status.PREEMPTED)
    assert (sequence.cached_tokens, sequence.num_tokens, sequence.num_preemptions) == (0, 5, 1)
    assert sequence.uncached_tokens == 5
    assert not sequence.is_decoding
    assert "0/5 tokens cached, 1/3 generated" in repr(sequence)


@given(chunks=st.lists(st.integers(1, 4), min_size=1))
def test_no_token_is_counted_twice(chunks: list[int]) -> None:
    sequence = fresh()
    for chunk in chunks:
        if chunk > sequence.uncached_tokens:
            with pytest.raises(ValueError, match="were left to do"):
                sequence.computed(chunk)
        else:
            sequence.computed(chunk)
    assert sequence.cached_tokens <= sequence.num_tokens


def test_a_token_comes_only_after_all_before_it_are_computed() -> None:
    sequence = fresh()
    sequence.computed(3)
    with pytest.raises(ValueError, match="1 tokens are not computed"):
        sequence.append(9)
    for token in (9, 9, 9):
        sequence.computed(sequence.uncached_tokens)
        sequence.append(token)
    assert sequence.is_complete
    assert sequence.longest_tokens == sequence.num_tokens == 7
    sequence.computed(1)
    with pytest.raises(ValueError, match="0 are left"):
        sequence.append(9)


def test_a_stop_token_ends_the_answer_but_not_in_the_prompt() -> None:
    sequence = Sequence(0, [1, 2], max_new_tokens=9, stop_tokens=[2])
    assert not sequence.is_complete
    sequence.computed(2)
    sequence.append(2)
    assert sequence.is_complete
    assert sequence.remaining_tokens == 8


@pytest.mark.parametrize(("prompt", "answer"), [([], 1), ([1], 0)])
def test_there_is_something_to_read_and_something_to_say(prompt: list[int], answer: int) -> None:
    with pytest.raises(ValueError, match="at least one of each"):
        Sequence(0, prompt, max_new_tokens=answer)
