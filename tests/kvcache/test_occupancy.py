"""Allocators under the same arrivals: sums against a replay token by token, and what waste must be."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.kvcache.buddy_runs import power_of_two
from infcalc.kvcache.contiguous import buddy, reserve_exact, reserve_maximum
from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.misuse import Misuse
from infcalc.kvcache.occupancy import Holder, Occupancy, PagedHolder, RunHolder, Stay, replay

CAPACITY = 96
LONGEST = 24

HOLDERS: dict[str, Callable[[], Holder]] = {
    "paged-1": lambda: PagedHolder(CAPACITY, 1),
    "paged-4": lambda: PagedHolder(CAPACITY, 4),
    "paged-16": lambda: PagedHolder(CAPACITY, 16),
    "max": lambda: RunHolder(reserve_maximum(CAPACITY, LONGEST)),
    "exact": lambda: RunHolder(reserve_exact(CAPACITY)),
    "buddy": lambda: RunHolder(buddy(CAPACITY)),
}


@dataclass
class Naive:
    """Memory as a list of owners, one step after the other, one token after the other."""

    name: str
    owners: list[int | None] = field(default_factory=lambda: [None] * CAPACITY)
    tokens: dict[int, int] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("held", "live", "later", "sequences"), 0))
    rejected: int = 0
    preempted: int = 0
    peak: int = 0
    waste: int = 0

    @property
    def block(self) -> int:
        return int(self.name.partition("-")[2] or 0)

    def room(self, name: int) -> int:
        return sum(owner == name for owner in self.owners)

    def take(self, name: int, stay: Stay) -> bool:
        if self.block:
            return self.take_blocks(name, -(-stay.prompt_tokens // self.block))
        size = {"max": LONGEST, "exact": stay.final_tokens, "buddy": power_of_two(stay.final_tokens)}[self.name]
        starts = range(0, CAPACITY - size + 1, size if self.name == "buddy" else 1)
        free = [start for start in starts if all(owner is None for owner in self.owners[start : start + size])]
        if not free:
            return False
        start = self.tightest(free, size) if self.name == "buddy" else free[0]
        self.owners[start : start + size] = [name] * size
        return True

    def tightest(self, free: list[int], size: int) -> int:
        """Return the start that a buddy allocator takes: in the smallest aligned free run, the first of them."""

        def run(start: int) -> int:
            width, found = size, size
            while width <= CAPACITY:
                base = start // width * width
                inside = base + width <= CAPACITY and all(one is None for one in self.owners[base : base + width])
                # The memory is cut into powers of two from the largest on: 64 and 32.
                if not inside or (base < 64 < base + width):
                    break
                found, width = width, 2 * width
            return found

        return min(free, key=lambda start: (run(start), start))

    def take_blocks(self, name: int, number: int) -> bool:
        starts = [start for start in range(0, CAPACITY, self.block) if self.owners[start] is None][:number]
        if len(starts) < number:
            return False
        for start in starts:
            self.owners[start : start + self.block] = [name] * self.block
        return True

    def drop(self, name: int) -> None:
        self.owners = [None if owner == name else owner for owner in self.owners]
        del self.tokens[name]

    def run(self, stays: list[Stay], window: range) -> None:
        last = max([window.stop, *(stay.first_step + stay.num_steps for stay in stays)])
        for step in range(last + 1):
            for name in [name for name in self.tokens if stays[name].first_step + stays[name].num_steps == step]:
                self.drop(name)
            self.grow()
            self.note()
            self.arrive([(name, stay) for name, stay in enumerate(stays) if stay.first_step == step])
            self.note()
            if step in window:
                self.count(stays)

    def grow(self) -> None:
        self.tokens = {name: tokens + 1 for name, tokens in self.tokens.items()}
        for name in sorted(self.tokens):
            while name in self.tokens and self.tokens[name] > self.room(name):
                if not self.take_blocks(name, 1):
                    self.preempted += 1
                    self.drop(max(self.tokens))

    def arrive(self, stays: list[tuple[int, Stay]]) -> None:
        for name, stay in stays:
            if self.take(name, stay):
                self.tokens[name] = stay.prompt_tokens
            else:
                self.rejected += 1
        self.peak = max(self.peak, len(self.tokens))

    def count(self, stays: list[Stay]) -> None:
        later = sum(stays[name].final_tokens - tokens for name, tokens in self.tokens.items())
        self.sums["held"] += sum(owner is not None for owner in self.owners)
        self.sums["live"] += sum(self.tokens.values())
        self.sums["later"] += 0 if self.block else later
        self.sums["sequences"] += len(self.tokens)

    def note(self) -> None:
        self.waste = max([self.waste, *(self.room(name) - tokens for name, tokens in self.tokens.items())])


STAYS = st.lists(
    st.builds(
        Stay,
        first_step=st.integers(0, 30),
        num_steps=st.integers(1, LONGEST // 2),
        prompt_tokens=st.integers(1, LONGEST // 2),
    ),
    min_size=1,
    max_size=25,
).map(lambda stays: sorted(stays, key=lambda stay: stay.first_step))


@pytest.mark.parametrize("name", HOLDERS)
@given(stays=STAYS, start=st.integers(0, 20), length=st.integers(1, 40))
def test_sums_are_those_of_a_replay_token_by_token(name: str, stays: list[Stay], start: int, length: int) -> None:
    window = range(start, start + length)
    naive = Naive(name)
    naive.run(stays, window)
    found = replay(stays, HOLDERS[name](), window)
    assert (found.rejected, found.preempted, found.peak_sequences) == (naive.rejected, naive.preempted, naive.peak)
    assert found.held_token_steps == naive.sums["held"]
    assert found.live_token_steps == naive.sums["live"]
    assert found.reserved_token_steps == naive.sums["later"]
    assert found.sequence_steps == naive.sums["sequences"]
    assert found.max_request_waste_tokens == naive.waste
    assert found.free_token_steps == CAPACITY * length - naive.sums["held"]
    assert 0 <= found.scattered_token_steps <= found.free_token_steps


@given(stays=STAYS, block=st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_no_request_wastes_a_whole_block(stays: list[Stay], block: int) -> None:
    found = replay(stays, PagedHolder(CAPACITY, block), range(60))
    assert found.max_request_waste_tokens < block
    assert found.scattered_token_steps == 0
    assert block > 1 or found.waste_fraction == 0


@given(stays=STAYS)
def test_everything_is_given_back(stays: list[Stay]) -> None:
    for made in HOLDERS.values():
        holder = made()
        replay(stays, holder, range(1))
        assert holder.held_tokens == 0
        assert holder.largest_free_tokens == (64 if made is HOLDERS["buddy"] else CAPACITY)


@pytest.mark.parametrize("window", [range(4), range(2, 3), range(2, 2), range(50, 60)])
def test_only_the_window_counts(window: range) -> None:
    stays = [Stay(first_step=0, num_steps=4, prompt_tokens=6)]
    found = replay(stays, PagedHolder(32, 4), window)
    held, live = (8, 8, 8, 12), (6, 7, 8, 9)
    assert found.held_token_steps == sum(held[step] for step in window if step < 4)
    assert found.live_token_steps == sum(live[step] for step in window if step < 4)
    assert found.num_steps == len(window)


def test_the_last_token_of_an_answer_takes_no_block() -> None:
    # 4 tokens of a prompt and 5 of an answer: the ninth is never computed.
    found = replay([Stay(first_step=0, num_steps=5, prompt_tokens=4)], PagedHolder(8, 4), range(5))
    assert (found.preempted, found.held_token_steps) == (0, 4 + 8 + 8 + 8 + 8)


def test_who_came_last_gives_its_blocks_back() -> None:
    stays = [Stay(first_step=0, num_steps=6, prompt_tokens=4), Stay(first_step=1, num_steps=6, prompt_tokens=4)]
    # At step 1 the first one takes the last block; at step 2 the second finds none for itself.
    found = replay(stays, PagedHolder(12, 4), range(6))
    assert (found.rejected, found.preempted, found.sequence_steps) == (0, 1, 6 + 1)


def test_nothing_fits_into_nothing() -> None:
    stays = [Stay(first_step=0, num_steps=6, prompt_tokens=4)]
    for holder in (PagedHolder(0, 16), RunHolder(reserve_exact(0)), RunHolder(buddy(0))):
        found = replay(stays, holder, range(6))
        assert (found.rejected, found.peak_sequences, found.waste_fraction) == (1, 0, None)


def test_a_run_that_is_too_short_is_a_defect() -> None:
    with pytest.raises(Misuse, match="more than were reserved"):
        RunHolder(reserve_exact(8)).grow(0, 9)


def many(seed: int) -> list[Stay]:
    chance = random.Random(seed)  # noqa: S311 - no secrets
    return [
        Stay(first_step=step // 2, num_steps=chance.randint(1, 600), prompt_tokens=chance.randint(1, 300))
        for step in range(2000)
    ]


def test_waste_is_that_of_the_closed_form() -> None:
    stays = many(1)
    window = range(500, 1000)
    held = sum(stay.num_steps * (stay.prompt_tokens + (stay.num_steps - 1) / 2) for stay in stays)
    mean = held / sum(stay.num_steps for stay in stays)

    def waste(holder: Holder) -> Occupancy:
        found = replay(stays, holder, window)
        assert found.rejected == found.preempted == 0
        return found

    paged = waste(PagedHolder(10**6, 16))
    # Every fill of the last block is equally likely; a tenth is what 600 running requests leave to chance.
    assert paged.waste_fraction == pytest.approx(7.5 / (mean + 7.5), rel=0.1)
    assert waste(RunHolder(reserve_maximum(10**7, 1024))).waste_fraction == pytest.approx(1 - mean / 1024, rel=0.05)


class Managed:
    """The blocks of the real manager, in place of those that are counted."""

    reserves = False

    def __init__(self, capacity_tokens: int, block_tokens: int) -> None:
        self.manager = KvCacheManager(capacity_tokens // block_tokens + 1, block_tokens, prefix_caching=False)
        self.capacity_tokens = capacity_tokens // block_tokens * block_tokens

    @property
    def held_tokens(self) -> int:
        return self.manager.pool.num_used * self.manager.block_tokens

    @property
    def largest_free_tokens(self) -> int:
        return self.manager.num_free_blocks * self.manager.block_tokens

    def admit(self, name: int, stay: Stay) -> int | None:
        blocks = self.manager.allocate(name, range(stay.prompt_tokens))
        return None if blocks is None else len(blocks) * self.manager.block_tokens

    def grow(self, name: int, num_tokens: int) -> int | None:
        manager = self.manager
        if manager.append(name, num_tokens - manager.num_tokens(name)) is None:
            return None
        return -(-num_tokens // manager.block_tokens) * manager.block_tokens

    def leave(self, name: int) -> None:
        self.manager.free(name)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 30), st.integers(1, 40)), min_size=1, max_size=25),
    capacity=st.integers(0, 120),
    block=st.sampled_from([1, 4, 16]),
)
def test_counted_blocks_are_as_many_as_the_manager_hands_out(
    lengths: list[tuple[int, int, int]], capacity: int, block: int
) -> None:
    step, stays = 0, []
    for gap, steps, prompt in lengths:
        step += gap
        stays.append(Stay(first_step=step, num_steps=steps, prompt_tokens=prompt))
    window = range(step // 2, step + 10)
    assert replay(stays, PagedHolder(capacity, block), window) == replay(stays, Managed(capacity, block), window)
