"""Drafting under load as others measured it: times within bounds, and gains and losses on the right side."""

from __future__ import annotations

from statistics import median

from tests import measured

loads = measured.script("drafting_loads")


def test_times_of_requests_with_drafting_come_out() -> None:
    errors = {rate: simulated / seen - 1 for kind, rate, seen, simulated in loads.rungs() if kind == "drafted"}
    assert len(errors) == 5
    assert median(abs(error) for error in errors.values()) <= 0.05
    assert max(abs(error) for error in errors.values()) <= 0.25


def test_what_is_answered_in_overload_with_drafting_comes_out() -> None:
    (drafted,) = [(seen, simulated) for kind, seen, simulated in loads.answered() if kind == "drafted"]
    assert abs(drafted[1] / drafted[0] - 1) <= 0.05


def test_where_nothing_is_accepted_drafting_loses_at_every_load_as_measured() -> None:
    entry = loads.published()["ladder"]
    for rate in (1.0, 31.4, 61.79, 92.19):
        drafted, plain = loads.at_rate(entry, rate)
        assert drafted.e2e_s.mean > 1.3 * plain.e2e_s.mean
    seen = entry["answered_per_s"]
    assert seen["drafted"] < 0.7 * seen["plain"]
    answered = {kind: simulated for kind, _, simulated in loads.answered()}
    assert answered["drafted"] < 0.7 * answered["plain"]


def test_gains_at_low_load_and_losses_at_high_load_are_on_the_right_side() -> None:
    found = loads.claims()
    assert {name for name, _, _, _ in found} >= {"draft model, chats", "prompt lookup, summaries"}
    for name, load, seen, simulated in found:
        assert (seen > 1) == (simulated > 1), (name, load)


def test_gains_fall_with_the_batch_as_published() -> None:
    found = [(seen, got) for name, _, seen, got in loads.claims() if name.startswith("EAGLE-3 by batch")]
    assert len(found) == 3
    assert [got for _, got in found] == sorted((got for _, got in found), reverse=True)
    assert all(abs(got / seen - 1) <= 0.15 for seen, got in found)


def test_the_gain_of_a_draft_model_at_one_request_a_second_is_near_the_published_one() -> None:
    (gain,) = [(seen, got) for name, load, seen, got in loads.claims() if name.startswith("draft") and load[0] == "1"]
    assert abs(gain[1] / gain[0] - 1) <= 0.15
