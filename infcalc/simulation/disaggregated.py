"""Prefill and decode in pools of their own: a fleet in which each request changes place once, over a link.

A request is sent to a prefill replica by the router, and bound at the same moment to the decode replica with the fewest
requests. What crosses a link crosses it whole, one after another. The blocks of a prompt are given back at the prefill
replica when the last of them has arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from infcalc.frozen import frozen
from infcalc.kvcache.invariant import holds
from infcalc.simulation.fleet import Event, Fleet, Observer, Rank
from infcalc.simulation.front_end import FrontEndTimes
from infcalc.simulation.link import Link, Payload
from infcalc.simulation.pools import DecodeReplica, Handover, PrefillReplica, whole_record
from infcalc.simulation.records import Outcome, RequestRecord
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Asked, Router, RouterKind
from infcalc.simulation.sending import Sending


@frozen
class Transfer:
    """One cache on its way. ``room_ps``: its room was taken; ``sent_ps``: its last bytes were handed to the link.

    ``computed_ps``: its prompt was computed. ``ready_ps`` is when it began to wait for room: when the prompt was
    computed, or, where room is taken first, when the request came.
    """

    index: int
    num_bytes: int
    ready_ps: int
    room_ps: int
    computed_ps: int
    sent_ps: int
    landed_ps: int


class Pools:
    """The replicas of both pools. ``links[i]`` takes what prefill replica ``i`` sends; several may be the same one."""

    def __init__(
        self,
        prefill: Sequence[PrefillReplica],
        decode: Sequence[DecodeReplica],
        links: Sequence[Link],
        *,
        handover: Handover,
        payload: Payload,
        num_locked: tuple[int, int] = (1, 1),
    ) -> None:
        if not prefill or not decode or len(links) != len(prefill):
            raise ValueError(f"{len(prefill)} and {len(decode)} replicas with {len(links)} links")
        if len(prefill) % num_locked[0] or len(decode) % num_locked[1]:
            raise ValueError(f"{len(prefill)} and {len(decode)} replicas in groups of {num_locked}")
        self.prefill = prefill
        self.decode = decode
        self.links = links
        self.handover = handover
        self.payload = payload
        self.num_locked = num_locked
        for replica in decode:
            replica.handover = handover

    @property
    def distinct_links(self) -> tuple[Link, ...]:
        """Each link once."""
        return tuple({id(link): link for link in self.links}.values())


class DisaggregatedFleet(Fleet):
    """A run of requests on two pools; ``placed`` is the prefill replica, ``bound`` the decode replica, of each.

    Replicas are numbered through: those of prefill, then those of decode.
    """

    def __init__(
        self,
        pools: Pools,
        requests: Sequence[Request],
        sending: Sending,
        *,
        router: Router,
        front_end: FrontEndTimes | None = None,
        sessions: Sequence[int] = (),
        observe: Observer | None = None,
    ) -> None:
        replicas = [*pools.prefill, *pools.decode]
        super().__init__(
            replicas, requests, sending, router=router, front_end=front_end, sessions=sessions, observe=observe
        )
        self.pools = pools
        self.bound: list[int | None] = [None] * len(requests)
        self.transfers: list[Transfer] = []
        self._num_prefill = len(pools.prefill)
        self._least_loaded = Router(RouterKind.LEAST_LOADED, len(pools.decode))
        starts = range(0, self._num_prefill, pools.num_locked[0]), range(0, len(pools.decode), pools.num_locked[1])
        self._groups = [range(first, first + pools.num_locked[0]) for first in starts[0]]
        self._groups += [
            range(self._num_prefill + first, self._num_prefill + first + pools.num_locked[1]) for first in starts[1]
        ]
        self._lining_up: list[deque[int]] = [deque() for _ in pools.decode]
        """Requests that wait for room, by decode replica."""
        self._reached_ps: dict[int, int] = {}
        self._room_ps: dict[int, int] = {}
        self._sent_bytes: dict[int, int] = {}
        self._sent_last_ps: dict[int, int] = {}
        self._firsts: dict[int, RequestRecord] = {}

    def _choose(self, asked: Asked) -> int:
        place = self._router.choose(asked, self._loads[: self._num_prefill])
        if asked.request.output_tokens > 1 or self.pools.handover.computes_first:
            bound = self._num_prefill + self._least_loaded.choose(asked, self._loads[self._num_prefill :])
            self.bound[asked.index] = bound
            self._loads[bound] += 1
        return place

    def _reached(self, place: int, index: int) -> None:
        request = self._request(index)
        bound = self.bound[index]
        refused = self.pools.prefill[place].refusal(index, request)
        if refused is None and bound is not None:
            refused = self._decode(bound).refusal(index, request)
        if refused is not None:
            self._leave(
                place,
                RequestRecord(
                    index=index,
                    outcome=Outcome.REJECTED,
                    arrival_ps=self.now_ps,
                    end_ps=self.now_ps,
                    prompt_tokens=request.prompt_tokens,
                    reason=refused.message,
                ),
            )
            return
        self._reached_ps[index] = self.now_ps
        if bound is not None and self.pools.handover.room_first:
            self._lining_up[bound - self._num_prefill].append(index)
        else:
            self._compute(place, index)

    def _compute(self, place: int, index: int) -> None:
        request = replace(self._requests[index], arrival_ps=self._reached_ps[index])
        if self.bound[index] is not None:
            self.pools.prefill[place].scheduler.kept.add(index)
        holds(self.pools.prefill[place].receive(index, request, self.now_ps) is None, "who was let in is served")

    def _settle(self) -> None:
        """Take room for those who line up, as far as there is any; first come, first served at each replica."""
        for replica, line in zip(self.pools.decode, self._lining_up, strict=True):
            while line and replica.expect(line[0], self._request(line[0])):
                index = line.popleft()
                self._room_ps[index] = self.now_ps
                if self.pools.handover.room_first:
                    self._compute(self._place(index), index)
                else:
                    self._send(index, self.pools.payload.whole_bytes(self._requests[index].prompt_tokens), last=True)

    def _end_step(self, place: int) -> None:
        super()._end_step(place)
        if place >= self._num_prefill or not self.pools.handover.room_first:
            return
        for index, num_tokens in self.pools.prefill[place].reached_tokens:
            if self.bound[index] is None:
                continue
            payload, last = self.pools.payload, num_tokens == self._requests[index].prompt_tokens
            # Who was preempted computes anew what has been sent.
            so_far = payload.whole_bytes(num_tokens) if last else payload.early_bytes(num_tokens)
            more = so_far - self._sent_bytes.get(index, 0)
            if more > 0 or last:
                self._send(index, more, last=last)

    def _send(self, index: int, num_bytes: int, *, last: bool) -> None:
        landed_ps = self.pools.links[self._place(index)].landed_ps(self.now_ps, num_bytes)
        self._sent_bytes[index] = self._sent_bytes.get(index, 0) + num_bytes
        if last:
            self._sent_last_ps[index] = self.now_ps
            self._push(landed_ps, Rank.LANDED, index=index)

    def _happen(self, event: Event) -> None:
        if event.rank is Rank.LANDED:
            self._landed(event.index)
        else:
            super()._happen(event)

    def _landed(self, index: int) -> None:
        place, bound, first = self._place(index), self.bound[index], self._firsts[index]
        if bound is None or first.first_token_ps is None:
            raise AssertionError(f"request {index} has a cache on its way, and nobody to read it")
        self.pools.prefill[place].scheduler.release(index)
        self._decode(bound).join(index, first, self.now_ps)
        room_ps = self._room_ps[index]
        self.transfers.append(
            Transfer(
                index=index,
                num_bytes=self._sent_bytes[index],
                ready_ps=self._reached_ps[index] if self.pools.handover.room_first else first.first_token_ps,
                room_ps=room_ps,
                computed_ps=first.first_token_ps,
                sent_ps=self._sent_last_ps[index],
                landed_ps=self.now_ps,
            )
        )

    def _ended(self, place: int, record: RequestRecord) -> None:
        index = record.index
        if place >= self._num_prefill:
            self._leave(self._place(index), whole_record(self._firsts[index], record, self.pools.handover))
            return
        bound = self.bound[index]
        if bound is None:
            self._leave(place, record)
            return
        holds(record.outcome is Outcome.FINISHED, f"the prompt of request {index} is computed to its end")
        self._firsts[index] = record
        if not self.pools.handover.room_first:
            self._lining_up[bound - self._num_prefill].append(index)

    def _leave(self, place: int, record: RequestRecord) -> None:
        bound = self.bound[record.index]
        if bound is not None:
            self._loads[bound] -= 1
        super()._ended(place, record)

    def _request(self, index: int) -> Request:
        return replace(self._requests[index], arrival_ps=self._reached_ps.get(index, self.now_ps))

    def _place(self, index: int) -> int:
        place = self.placed[index]
        if place is None:
            raise AssertionError(f"request {index} was not sent yet")
        return place

    def _decode(self, place: int) -> DecodeReplica:
        return self.pools.decode[place - self._num_prefill]

    def check_laws(self) -> None:
        """Check that nothing is left in either pool or on a link, and that just the caches of prompts crossed.

        Raises:
            AssertionError: a law is broken.

        """
        payload = self.pools.payload
        for one in self.transfers:
            whole = payload.whole_bytes(self._requests[one.index].prompt_tokens)
            holds(one.num_bytes == whole, f"the cache of request {one.index} crosses once")
            moments = (one.ready_ps, one.room_ps, one.sent_ps, one.landed_ps)
            holds(list(moments) == sorted(moments), f"the cache of request {one.index} goes forward in time")
        crossed = sum(link.sent_bytes for link in self.pools.distinct_links)
        holds(crossed == sum(one.num_bytes for one in self.transfers), "what crosses is caches")
        moved = {one.index for one in self.transfers}
        answered = {
            one.index for one in self.records if one.outcome is Outcome.FINISHED and self.bound[one.index] is not None
        }
        holds(answered <= moved and len(moved) == len(self.transfers), "each cache with an answer to come crosses once")
        for replica in (*self.pools.prefill, *self.pools.decode):
            scheduler = replica.scheduler
            holds(not scheduler.has_work and not scheduler.expected and not scheduler.kept, "nobody is left behind")
            holds(scheduler.kv.num_free_blocks == scheduler.num_blocks, "all blocks of both pools are given back")
