"""Caches on a link: one after another, and what of a cache may leave before its prompt is at its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.api.deployment import Ask, kv_format, load, resolve
from infcalc.memory.kv import KvComponent, KvKind, kv_components
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.link import Link, Payload

FULL = KvComponent(kind=KvKind.FULL, layers=1, entry_bytes=10)
WINDOW = KvComponent(kind=KvKind.SLIDING, layers=1, entry_bytes=6, window_tokens=4)
STATE = KvComponent(kind=KvKind.RECURRENT, layers=1, constant_bytes=100)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10**12)), min_size=1, max_size=20))
def test_what_is_sent_later_arrives_later_and_nothing_faster_than_the_link(sent: list[tuple[int, int]]) -> None:
    link = Link(bytes_per_s=10**9, latency_ps=7)
    now_ps, before_ps = 0, 0
    for pause, num_bytes in sent:
        now_ps += pause * PS_PER_S
        landed_ps = link.landed_ps(now_ps, num_bytes)
        assert landed_ps >= max(before_ps, now_ps + 7 + num_bytes * 1000)
        before_ps = landed_ps
    assert link.sent_bytes == sum(num_bytes for _, num_bytes in sent)
    assert link.busy_ps == link.sent_bytes * 1000


def test_a_link_carries_something() -> None:
    with pytest.raises(ValueError, match="a link of 0"):
        Link(bytes_per_s=0)


def test_windows_and_states_are_final_only_at_the_end_of_a_prompt() -> None:
    payload = Payload(parts=(FULL, WINDOW, STATE))
    assert payload.early_bytes(3) == 30
    assert payload.whole_bytes(3) == 30 + 18 + 100
    assert payload.whole_bytes(9) == 90 + 24 + 100


def test_a_cache_weighs_what_the_ledger_says() -> None:
    ask = Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=4)
    (deployment,) = resolve(ask, load(ask))
    form, _, _ = kv_format(deployment, "fp8")
    payload = Payload(parts=kv_components(deployment.model, form))
    # The gateway question of 3,000 tokens on 400 Gb/s: 163,840 bytes each, 9.83 ms.
    assert payload.whole_bytes(3000) == payload.early_bytes(3000) == 3000 * 163_840
    landed_s = Link(bytes_per_s=50 * 10**9).landed_ps(0, payload.whole_bytes(3000)) / PS_PER_S
    assert landed_s == pytest.approx(9.83e-3, rel=1e-3)
