"""Prefill and decode apart: cases one works out by hand, and laws of any load under any hand-over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.radix_manager import RadixCacheManager
from infcalc.memory.kv import KvComponent, KvKind
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sglang import SglangLimits, SglangScheduler
from infcalc.scheduling.sglang_prefill import PrefillLimits
from infcalc.scheduling.tensorrt_llm import TensorRtLimits, TensorRtScheduler
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.batch_shape import PS_PER_S, BatchShape, Timer, unit_step
from infcalc.simulation.disaggregated import DisaggregatedFleet, Pools
from infcalc.simulation.laws import check_laws
from infcalc.simulation.link import Link, Payload
from infcalc.simulation.pools import DecodeReplica, Handover, PrefillReplica
from infcalc.simulation.records import Outcome, RequestRecord, StepRecord
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Router, RouterKind
from infcalc.simulation.sending import Sending
from tests.simulation.test_oracle import by_tokens, requests

Step = tuple[int, int, int, int, tuple[tuple[int, int], ...]]
"""Second, replica, decodes, their context in all, (new, cached) of each prompt."""
THREE_BYTES = Payload(parts=(KvComponent(kind=KvKind.FULL, layers=1, entry_bytes=3),))
PULLED, PUSHED = Handover(), Handover(room_first=True)
AGAIN = Handover(computes_first=True)


def vllm(*, blocks: int = 17, seats: int = 4, prefix_caching: bool = False) -> Scheduler:
    kv = KvCacheManager(blocks, 4, prefix_caching=prefix_caching)
    return VllmScheduler(kv, VllmLimits(max_num_seqs=seats, budget_tokens=8))


def fleet_of(
    load: Sequence[Request],
    handover: Handover,
    *,
    numbers: tuple[int, int] = (1, 1),
    make: Callable[[], Scheduler] = vllm,
    make_decode: Callable[[], Scheduler] | None = None,
    timer: Timer = unit_step,
    link: Link | None = None,
    shared: bool = True,
    num_clients: int | None = None,
    steps: list[Step] | None = None,
) -> DisaggregatedFleet:
    def links() -> list[Link]:
        one = link or Link(bytes_per_s=12)
        return [one if shared else Link(bytes_per_s=12) for _ in range(numbers[0])]

    def observe(place: int, step: StepRecord) -> None:
        if steps is not None and step.shape.num_sequences:
            shape = step.shape
            chunks = tuple((one.new_tokens, one.cached_tokens) for one in shape.prefills)
            steps.append((step.start_ps // PS_PER_S, place, shape.num_decodes, shape.decode_context_tokens, chunks))

    pools = Pools(
        [PrefillReplica(make(), timer) for _ in range(numbers[0])],
        [DecodeReplica((make_decode or make)(), timer) for _ in range(numbers[1])],
        links(),
        handover=handover,
        payload=THREE_BYTES,
    )
    times = [one.arrival_ps for one in load]
    return DisaggregatedFleet(
        pools,
        load,
        Sending(times_ps=times, num_clients=num_clients),
        router=Router(RouterKind.ROUND_ROBIN, numbers[0]),
        observe=observe,
    )


def alike(count: int, *, prompt: int = 12, answer: int = 3) -> list[Request]:
    return [Request(arrival_ps=at * PS_PER_S, prompt_tokens=prompt, output_tokens=answer) for at in range(count)]


def seconds(records: Sequence[RequestRecord]) -> list[tuple[int, int, int]]:
    """First step, first token, end."""
    found = []
    for one in records:
        assert one.scheduled_ps is not None
        assert one.first_token_ps is not None
        found.append((one.scheduled_ps // PS_PER_S, one.first_token_ps // PS_PER_S, one.end_ps // PS_PER_S))
    return found


# Two prompts of 12 tokens, 8 tokens a step; a cache of 36 bytes at 12 a second: three seconds each; two more tokens.
PULLED_STEPS: list[Step] = [
    (0, 0, 0, 0, ((8, 0),)),  # A, all that a step takes
    (1, 0, 0, 0, ((4, 8), (4, 0))),  # the rest of A, which is done at 2; B
    (2, 0, 0, 0, ((8, 4),)),  # the rest of B, done at 3. A crosses until 5, B waits for the link
    (5, 1, 1, 12, ()),  # A, whose first token came along
    (6, 1, 1, 13, ()),  # A ends at 7
    (8, 1, 1, 12, ()),  # B has crossed from 5 to 8
    (9, 1, 1, 13, ()),
]
AGAIN_STEPS: list[Step] = [
    *PULLED_STEPS[:3],
    (5, 1, 1, 11, ()),  # the last token of A's prompt again: its first token is there at 6
    (6, 1, 1, 12, ()),
    (7, 1, 1, 13, ()),
    (8, 1, 1, 11, ()),  # B
    (9, 1, 1, 12, ()),
    (10, 1, 1, 13, ()),
]
PUSHED_STEPS: list[Step] = [
    (0, 0, 0, 0, ((8, 0),)),
    (1, 0, 0, 0, ((4, 8), (4, 0))),  # A's 24 bytes cross from 1 to 3
    (2, 0, 0, 0, ((8, 4),)),  # A's last 12 from 3 to 4, B's first 12 from 4 to 5
    (4, 1, 1, 12, ()),  # A, a second earlier
    (5, 1, 1, 13, ()),  # B's last 24 from 5 to 7
    (7, 1, 1, 12, ()),
    (8, 1, 1, 13, ()),
]


@pytest.mark.parametrize(
    ("handover", "wanted", "moments"),
    [
        (PULLED, PULLED_STEPS, [(0, 5, 7), (1, 8, 10)]),
        (PUSHED, PUSHED_STEPS, [(0, 4, 6), (1, 7, 9)]),
        (AGAIN, AGAIN_STEPS, [(0, 6, 8), (1, 9, 11)]),
    ],
    ids=["fetched whole", "sent in chunks", "first token computed there"],
)
def test_two_requests_change_place_as_one_works_it_out_by_hand(
    handover: Handover, wanted: list[Step], moments: list[tuple[int, int, int]]
) -> None:
    steps: list[Step] = []
    fleet = fleet_of(alike(2), handover, steps=steps)
    records = fleet.run()
    assert steps == wanted
    assert seconds(records) == moments
    assert [one.computed_tokens for one in records] == [14, 14]
    fleet.check_laws()
    assert fleet.pools.links[0].sent_bytes == 72
    assert fleet.pools.links[0].busy_ps == 6 * PS_PER_S


def test_a_link_of_its_own_spares_a_replica_the_wait_for_the_others() -> None:
    both = [Request(arrival_ps=0, prompt_tokens=8, output_tokens=2) for _ in range(2)]
    # Computed at 1, on two replicas; 24 bytes are two seconds.
    apart = fleet_of(both, PULLED, numbers=(2, 1), shared=False)
    assert [end for _, _, end in seconds(apart.run())] == [4, 4]
    assert len(apart.pools.distinct_links) == 2
    together = fleet_of(both, PULLED, numbers=(2, 1))
    assert [end for _, _, end in seconds(together.run())] == [4, 6]
    assert len(together.pools.distinct_links) == 1


def test_latency_is_no_use_of_the_link() -> None:
    both = [Request(arrival_ps=0, prompt_tokens=4, output_tokens=2) for _ in range(2)]
    fleet = fleet_of(both, PULLED, link=Link(bytes_per_s=12, latency_ps=10 * PS_PER_S))
    # Computed at 1, a second on the link each, ten more on the way, a step.
    assert [end for _, _, end in seconds(fleet.run())] == [13, 14]


def test_a_cache_waits_at_the_prefill_replica_until_there_is_room() -> None:
    # Four blocks for decode: one request of 12 + 3 tokens at a time.
    steps: list[Step] = []
    fleet = fleet_of(alike(2), PULLED, make_decode=lambda: vllm(blocks=5), steps=steps, link=Link(bytes_per_s=36))
    records = fleet.run()
    # A: computed at 2, there at 3, two steps. B is computed at 3 and has room at 5.
    assert seconds(records) == [(0, 3, 5), (1, 6, 8)]
    assert [(one.ready_ps, one.room_ps, one.landed_ps) for one in fleet.transfers] == [
        (2 * PS_PER_S, 2 * PS_PER_S, 3 * PS_PER_S),
        (3 * PS_PER_S, 5 * PS_PER_S, 6 * PS_PER_S),
    ]
    # With room first, B's prompt is computed after A's answer: its cache never waits, but for the third of a second
    # that its last four tokens take to cross.
    first = fleet_of(alike(2), PUSHED, make_decode=lambda: vllm(blocks=5), link=Link(bytes_per_s=36))
    one, other = first.run()
    assert other.scheduled_ps == one.end_ps == first.transfers[1].room_ps
    assert other.first_token_ps == first.transfers[1].landed_ps
    assert first.transfers[1].landed_ps - first.transfers[1].computed_ps == -(-PS_PER_S // 3)


def test_a_prompt_waits_for_blocks_that_are_still_to_be_read() -> None:
    # Three blocks for prefill: one prompt of 12 tokens, held from 0 until it has crossed at 2 + 3.
    fleet = fleet_of(alike(2), PULLED, make=lambda: vllm(blocks=4), make_decode=vllm)
    assert seconds(fleet.run()) == [(0, 5, 7), (5, 10, 12)]
    fleet.check_laws()


def test_reserved_tokens_keep_requests_out() -> None:
    handover = Handover(room_first=True, reserved_tokens=16)
    fleet = fleet_of(alike(3, answer=4), handover, make_decode=lambda: vllm(blocks=13), link=Link(bytes_per_s=1000))
    fleet.run()
    # 48 tokens: the first leaves 36, the second needs 12 and 2 x 16.
    rooms = [one.room_ps for one in sorted(fleet.transfers, key=lambda one: one.index)]
    assert rooms[1] > fleet.transfers[0].landed_ps
    ends = {record.index: record.end_ps for record in fleet.records}
    assert rooms[1:] == [ends[0], ends[1]]


def test_who_is_preempted_in_decode_computes_there_and_nothing_crosses_twice() -> None:
    load = [Request(arrival_ps=0, prompt_tokens=8, output_tokens=12) for _ in range(3)]
    fleet = fleet_of(load, PULLED, make_decode=lambda: vllm(blocks=8), link=Link(bytes_per_s=10**6))
    records = fleet.run()
    fleet.check_laws()
    assert sum(one.num_preemptions for one in records) > 0
    assert all(one.outcome is Outcome.FINISHED and one.output_tokens == 12 for one in records)
    assert sum(one.computed_tokens for one in records) > 3 * 19
    assert fleet.pools.links[0].sent_bytes == 3 * 24


def test_an_answer_of_one_token_needs_no_decode_replica() -> None:
    fleet = fleet_of(alike(2, answer=1), PULLED)
    assert seconds(fleet.run()) == [(0, 2, 2), (1, 3, 3)]
    assert not fleet.transfers
    assert fleet.bound == [None, None]


def test_the_first_token_that_is_seen_waits_for_transfer_and_first_step() -> None:
    # Prompt done at 420 ms, 12 ms on the link, no queue, a step of 18 ms: 450 ms, not 420.
    ms = PS_PER_S // 1000

    def timer(shape: BatchShape) -> int:
        return 420 * ms if shape.prefills else 18 * ms

    load = [Request(arrival_ps=0, prompt_tokens=8, output_tokens=3)]
    (record,) = fleet_of(load, AGAIN, timer=timer, link=Link(bytes_per_s=2000)).run()
    assert record.first_token_ps == 450 * ms
    assert record.end_ps == (450 + 2 * 18) * ms


def test_an_answer_of_one_token_is_handed_over_where_it_is_computed_there() -> None:
    fleet = fleet_of([*alike(1, answer=1), *alike(1, prompt=1, answer=1)], AGAIN, link=Link(bytes_per_s=12))
    assert [one.first_token_ps == one.end_ps for one in fleet.run()] == [True, True]
    assert len(fleet.transfers) == 2
    fleet.check_laws()


def test_what_the_decode_replica_could_never_hold_is_rejected_when_it_comes() -> None:
    fleet = fleet_of(alike(1), PULLED, make_decode=lambda: vllm(blocks=3))
    (record,) = fleet.run()
    assert record.outcome is Outcome.REJECTED
    assert "the cache has" in record.reason
    assert record.end_ps == 0


def radix(*, seats: int = 4, pages: int = 60, prefix_caching: bool = False) -> Scheduler:
    prefill = PrefillLimits(max_prefill_tokens=12, chunked_prefill_tokens=8)
    limits = SglangLimits(max_running_requests=seats, prefill=prefill)
    return SglangScheduler(RadixCacheManager(pages, prefix_caching=prefix_caching), limits)


def tensorrt(*, blocks: int = 17) -> Scheduler:
    return TensorRtScheduler(
        KvCacheManager(blocks, 4, prefix_caching=False), TensorRtLimits(max_batch_size=4, budget_tokens=12)
    )


WAYS: dict[str, tuple[Handover, Callable[[], Scheduler], Callable[[], Scheduler]]] = {
    "fetched whole": (PULLED, lambda: vllm(prefix_caching=True), vllm),
    "vllm": (AGAIN, lambda: vllm(prefix_caching=True), vllm),
    "vllm, little room": (AGAIN, lambda: vllm(blocks=12), lambda: vllm(blocks=12)),
    "sglang": (Handover(room_first=True, reserved_tokens=5), lambda: radix(prefix_caching=True), radix),
    "sglang, little room": (
        Handover(room_first=True, reserved_tokens=1),
        lambda: radix(pages=45),
        lambda: radix(pages=45),
    ),
    "tensorrt-llm": (Handover(to_the_end=True), tensorrt, tensorrt),
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40, deadline=None)
@given(
    load=requests(),
    numbers=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    bytes_per_s=st.sampled_from([10**8, 10**10, 10**12]),
    shared=st.booleans(),
    clients=st.sampled_from([None, 1, 3]),
)
def test_laws_hold_of_any_load(
    way: str, load: list[Request], numbers: tuple[int, int], bytes_per_s: int, clients: int | None, *, shared: bool
) -> None:
    handover, make, make_decode = WAYS[way]

    def ran() -> DisaggregatedFleet:
        fleet = fleet_of(
            load,
            handover,
            numbers=numbers,
            make=make,
            make_decode=make_decode,
            timer=by_tokens,
            link=Link(bytes_per_s=bytes_per_s) if shared else None,
            shared=shared,
            num_clients=clients,
        )
        fleet.run()
        return fleet

    fleet = ran()
    fleet.check_laws()
    records = sorted(fleet.records, key=lambda one: one.index)
    check_laws([_at(request, record) for request, record in zip(load, records, strict=True)], records)
    assert ran().records == fleet.records
    for one in fleet.transfers:
        record = records[one.index]
        assert record.first_token_ps is not None
        assert record.last_token_ps is not None
        assert one.computed_ps <= one.landed_ps <= record.first_token_ps <= record.last_token_ps


def _at(request: Request, record: RequestRecord) -> Request:
    return Request(
        arrival_ps=record.arrival_ps,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        max_output_tokens=request.max_output_tokens,
        spans=request.spans,
        answer=request.answer,
    )


def test_pools_need_both_kinds_and_a_link_for_each_sender() -> None:
    prefill, decode = PrefillReplica(vllm(), unit_step), DecodeReplica(vllm(), unit_step)
    with pytest.raises(ValueError, match="0 links"):
        Pools([prefill], [decode], [], handover=PULLED, payload=THREE_BYTES)
    with pytest.raises(ValueError, match="groups"):
        Pools([prefill], [decode], [Link(bytes_per_s=1)], handover=PULLED, payload=THREE_BYTES, num_locked=(1, 2))
