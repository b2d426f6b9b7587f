"""Requests: what cannot be, and which tokens agree."""

from __future__ import annotations

from typing import Any

import pytest

from infcalc.simulation.request import STOP_TOKEN, Request, Span


def ask(**changes: Any) -> Request:  # noqa: ANN401
    return Request(**{"arrival_ps": 0, "prompt_tokens": 6, "output_tokens": 3, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"arrival_ps": -1},
        {"prompt_tokens": 0},
        {"output_tokens": 0},
        {"max_output_tokens": 2},
        {"spans": (Span(text=0, num_tokens=7),)},
        {"spans": (Span(text=0, num_tokens=0),)},
        {"spans": (Span(text=-1, num_tokens=1),)},
        {"answer": 2**30},
    ],
)
def test_a_request_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"request|answer|spans|texts"):
        ask(**changes)


def test_prompts_agree_as_far_as_their_spans_do() -> None:
    shared = ask(spans=(Span(text=4, num_tokens=2),))
    longer = ask(spans=(Span(text=4, num_tokens=5),))
    one, two = shared.prompt_ids(0), longer.prompt_ids(1)
    assert [left == right for left, right in zip(one, two, strict=True)] == [True] * 2 + [False] * 4
    assert len(set(one) | set(two)) == 3


def test_an_answer_shorter_than_allowed_ends_with_the_stop_token() -> None:
    ids = [ask(max_output_tokens=9).answer_id(1, before) for before in range(3)]
    assert ids[0] == ids[1] != ids[2] == STOP_TOKEN
    assert STOP_TOKEN not in [ask().answer_id(1, before) for before in range(3)]
    assert ids[0] not in ask().prompt_ids(1)
