"""Routers: who gets a request, by hand."""

from __future__ import annotations

from infcalc.simulation.request import Request, Span
from infcalc.simulation.routing import Asked, Router, RouterKind


def asked(index: int, *, session: int = 0, texts: tuple[int, ...] = (), answer: int | None = None) -> Asked:
    spans = tuple(Span(text=text, num_tokens=10) for text in texts)
    request = Request(arrival_ps=0, prompt_tokens=100, output_tokens=5, spans=spans, answer=answer)
    return Asked(index=index, request=request, session=session)


def test_round_robin_takes_turns() -> None:
    router = Router(RouterKind.ROUND_ROBIN, 3)
    assert [router.choose(asked(number), (9, 0, 0)) for number in range(5)] == [0, 1, 2, 0, 1]


def test_least_loaded_takes_the_first_of_equals() -> None:
    router = Router(RouterKind.LEAST_LOADED, 3)
    assert router.choose(asked(0), (2, 1, 1)) == 1
    assert router.choose(asked(1), (0, 0, 0)) == 0


def test_a_session_stays_where_it_began() -> None:
    router = Router(RouterKind.SESSION, 2)
    assert [router.choose(asked(0, session=one), (5, 0)) for one in (7, 8, 7, 9, 8)] == [0, 1, 0, 0, 1]


def test_a_prefix_draws_to_whom_it_was_sent() -> None:
    router = Router(RouterKind.PREFIX_AWARE, 2)
    assert router.choose(asked(0, texts=(1, 2)), (1, 0)) == 1
    # More of the prompt counts, then less load; answers count too.
    assert router.choose(asked(1, texts=(1,), answer=3), (0, 60)) == 1
    assert router.choose(asked(2, texts=(1, 3)), (0, 1)) == 1
    assert router.choose(asked(3, texts=(9,)), (0, 1)) == 0
    # Far apart and more than half as many again: it balances.
    assert router.choose(asked(4, texts=(1,)), (10, 80)) == 0
    assert router.choose(asked(5, texts=(1, 2)), (200, 265)) == 1


def test_one_replica_gets_all() -> None:
    for kind in RouterKind:
        assert Router(kind, 1).choose(asked(0), (3,)) == 0
        assert kind.meaning


def test_replicas_that_take_nobody_are_passed_over() -> None:
    turns = Router(RouterKind.ROUND_ROBIN, 4)
    assert [turns.choose(asked(number), (0,) * 4, (0, 2, 3)) for number in range(4)] == [0, 2, 3, 0]
    assert [turns.choose(asked(number), (0,) * 4, (1, 3)) for number in range(3)] == [1, 3, 1]
    assert Router(RouterKind.LEAST_LOADED, 3).choose(asked(0), (0, 5, 4), (1, 2)) == 2
    home = Router(RouterKind.SESSION, 3)
    first = home.choose(asked(7), (0, 0, 0), (0, 1))
    # Whose home is gone gets another, and keeps it.
    second = home.choose(asked(7), (0, 0, 0), tuple({1, 2} - {first}))
    assert second != first
    assert home.choose(asked(7), (0, 0, 0), (0, 1, 2)) == second
    grown = Router(RouterKind.PREFIX_AWARE, 0)
    grown.add_replica()
    grown.add_replica()
    assert grown.choose(asked(0), (3, 1), (0, 1)) == 1
