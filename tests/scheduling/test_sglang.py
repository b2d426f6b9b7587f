from __future__ import annotations

import pytest

from infcalc.kvcache.radix_manager import RadixCacheManager
from infcalc.scheduling.sequence import Sequence, Status
from infcalc.scheduling.sglang import NewTokenRatio, Order, SglangLimits, SglangScheduler
from infcalc.scheduling.sglang_order import by_longest_prefix
from infcalc.scheduling.sglang_prefill import PrefillLimits
from tests.scheduling.driving import Run, drive, say, token_of


def scheduler(
    cache_tokens: int = 10_000,
    *,
    page: int = 1,
    chunk: int | None = 10,
    batch: int = 16384,
    prefix_caching: bool = False,
    **limits: object,
) -> SglangScheduler:
    prefill = PrefillLimits(max_prefill_tokens=batch, chunked_prefill_tokens=chunk)
    given = {"max_running_requests": 8, "prefill": prefill, **limits}
    kv = RadixCacheManager(cache_tokens // page + 1, page, prefix_caching=prefix_caching)
    return SglangScheduler(kv, SglangLimits(**given))  # type: ignore[arg-type]


def prompt(key: int, tokens: int, answer: int) -> Sequence:
    return Sequence(key, [token_of(key, at) for at in range(tokens)], max_new_tokens=answer)


def step(made: SglangScheduler) -> dict[int, int]:
    plan = made.plan()
    made.update(plan, say(plan))
    return {chunk.sequence_id: chunk.num_tokens for chunk in plan.chunks}


def serve(made: SglangScheduler, *sequences: tuple[int, Sequence]) -> Run:
    return drive(made, sequences)


# Prefill first


def test_decodes_wait_while_a_batch_of_prompts_can_be_built() -> None:
    run = serve(scheduler(), (0, prompt(0, 4, 4)), (2, prompt(1, 5, 2)))
    assert run.shapes == [{0: 4}, {0: 1}, {1: 5}, {0: 1, 1: 1}, {0: 1}]


def test_decodes_stall_for_every_chunk_of_a_long_prompt() -> None:
    run = serve(scheduler(), (0, prompt(0, 4, 4)), (1, prompt(1, 25, 2)))
    assert run.shapes == [{0: 4}, {1: 10}, {1: 10}, {1: 5}, {0: 1, 1: 1}, {0: 1}, {0: 1}]


def test_mixed_chunks_carry_the_decodes_within_the_chunk() -> None:
    run = serve(scheduler(mixed_chunk=True), (0, prompt(0, 4, 4)), (1, prompt(1, 25, 2)))
    assert run.shapes == [{0: 4}, {1: 9, 0: 1}, {1: 9, 0: 1}, {1: 7, 0: 1}, {1: 1}]


def test_only_one_prompt_is_cut_and_it_goes_on_first() -> None:
    run = serve(scheduler(), *((0, prompt(key, 7, 1)) for key in range(3)))
    assert run.shapes == [{0: 7, 1: 3}, {1: 4, 2: 6}, {2: 1}]


def test_a_chunk_is_whole_pages() -> None:
    run = serve(scheduler(page=4), *((0, prompt(key, 7, 1)) for key in range(2)))
    # Seven tokens take two pages: two tokens of the chunk are left, which is no page.
    assert run.shapes == [{0: 7}, {1: 7}]
    # What a chunk is charged is whole pages as well.
    run = serve(scheduler(page=4, chunk=16), *((0, prompt(key, tokens, 1)) for key, tokens in enumerate((5, 5, 20))))
    assert run.shapes == [{0: 5, 1: 5}, {2: 16}, {2: 4}]
    run = serve(scheduler(page=4), (0, prompt(0, 30, 1)))
    assert run.shapes == [{0: 8}, {0: 8}, {0: 8}, {0: 6}]


def test_without_chunks_the_first_prompt_may_exceed_the_batch_and_the_others_may_not() -> None:
    made = scheduler(chunk=None, batch=12)
    run = serve(made, *((0, prompt(key, tokens, 1)) for key, tokens in enumerate((20, 6, 5, 2))))
    assert run.shapes == [{0: 20}, {1: 6, 2: 5}, {3: 2}]


# Admission


def test_admission_wants_room_for_the_prompt_the_answer_and_a_page_beside_what_is_expected() -> None:
    # The first lacks 10 of its answer after one token, of which 0.7 are expected: 7 tokens are spoken for.
    for free, admitted in ((6 + 8 + 1 + 7 + 1, True), (6 + 8 + 1 + 7, False)):
        made = scheduler(5 + free, chunk=None)
        made.add(prompt(0, 5, 11))
        assert step(made) == {0: 5}
        assert made.running[0].remaining_tokens == 10
        made.add(prompt(1, 6, 8))
        assert step(made) == ({1: 6} if admitted else {0: 1})


def test_in_one_batch_the_whole_answer_of_each_is_spoken_for() -> None:
    for cache, admitted in ((5 + 11 + 1 + 6 + 8 + 1 + 1, {0: 5, 1: 6}), (5 + 11 + 1 + 6 + 8 + 1, {0: 5})):
        made = scheduler(cache, chunk=None)
        made.add(prompt(0, 5, 11))
        made.add(prompt(1, 6, 8))
        assert step(made) == admitted


def test_once_full_no_prompt_is_tried_until_somebody_leaves() -> None:
    made = scheduler(60, chunk=None)
    made.add(prompt(0, 5, 6))
    assert step(made) == {0: 5}
    made.add(prompt(1, 30, 25))
    assert step(made) == {0: 1}
    # This one would fit, but the head does not, and the batch is marked full.
    made.add(prompt(2, 1, 1))
    assert [step(made) for _ in range(4)] == [{0: 1}] * 4
    assert step(made) == {1: 30, 2: 1}


def test_seats_limit_admission() -> None:
    made = scheduler(max_running_requests=2)
    run = serve(made, *((0, prompt(key, 2, 3)) for key in range(3)))
    assert run.shapes == [{0: 2, 1: 2}, {0: 1, 1: 1}, {0: 1, 1: 1}, {2: 2}, {2: 1}, {2: 1}]


# The ratio


def test_the_ratio_decays_to_its_floor_in_600_steps() -> None:
    ratio = NewTokenRatio(1.0)
    assert ratio.value == 0.7
    ratio.decay()
    assert ratio.value == pytest.approx(0.7 - (0.7 - 0.7 * 0.14) / 600)
    for _ in range(599):
        ratio.decay()
    assert ratio.value == pytest.approx(0.7 * 0.14)
    ratio.decay()
    assert ratio.value == pytest.approx(0.098)
    assert NewTokenRatio(2.0).value == 1.0


def test_a_retraction_teaches_the_ratio() -> None:
    ratio = NewTokenRatio(1.0)
    one, other = prompt(0, 1, 100), prompt(1, 1, 60)
    for sequence, generated in ((one, 12), (other, 5)):
        for token in range(generated):
            sequence.computed(sequence.uncached_tokens)
            sequence.append(token)
    ratio.learn([one, other])
    assert ratio.value == pytest.approx((12 + 5 + 20 * 2) / (160 + 1))


def test_the_ratio_decays_in_decode_steps_only() -> None:
    made = scheduler()
    made.add(prompt(0, 15, 3))
    before = made.ratio.value
    assert [step(made) for _ in range(2)] == [{0: 10}, {0: 5}]
    assert made.ratio.value == before
    step(made)
    assert made.ratio.value < before


# Retraction


def overfull(prompts: list[int], cache_tokens: int, *, prefix_caching: bool = False) -> SglangScheduler:
    """Sequences one after the other, each generating while the next come: the bold ratio lets all of them in."""
    made = scheduler(cache_tokens, chunk=None, conservativeness_fraction=0.0, prefix_caching=prefix_caching)
    for key, tokens in enumerate(prompts):
        made.add(prompt(key, tokens, 20))
        step(made)
        step(made)
    return made


def test_who_has_generated_least_is_retracted_and_goes_to_the_end_of_the_queue() -> None:
    made = overfull([5, 5, 5], 45)
    assert [one.generated_tokens for one in made.running] == [4, 3, 2]
    made.add(prompt(9, 20, 20))
    while not made.num_preemptions:
        step(made)
    assert [one.sequence_id for one in made.running] == [0, 1]
    assert [one.sequence_id for one in made.waiting] == [9, 2]
    assert made.waiting[1].status is Status.PREEMPTED
    # Where nobody was left out, 21 + 20 tokens are expected of each: more than the answers may have.
    assert made.ratio.value == 1.0


def test_of_equally_many_generated_the_longest_prompt_goes_first() -> None:
    for prompts, victim in (((3, 9), 1), ((9, 3), 0)):
        made = scheduler(46, chunk=None)
        for key, tokens in enumerate(prompts):
            made.add(prompt(key, tokens, 15))
        assert step(made) == dict(enumerate(prompts))
        # Another tenant takes what was promised to the two.
        made.kv.allocate(99, [1] * 14)
        while not made.num_preemptions:
            step(made)
        assert [one.sequence_id for one in made.waiting] == [victim]
        # Learnt, and not decayed in the same step.
        assert made.ratio.value == 1.0


def test_a_retracted_sequence_leaves_its_answer_out_of_the_tree_and_computes_it_again() -> None:
    made = overfull([5, 5, 5], 45, prefix_caching=True)
    while not made.num_preemptions:
        step(made)
    victim = made.waiting[-1]
    assert made.kv.match_prefix([*victim.tokens, 1]).num_tokens == victim.prompt_tokens


def test_a_sequence_that_does_not_fit_alone_is_aborted() -> None:
    # It asks for more than anyone is expected to need: 4,096 count at admission.
    made = scheduler(4200)
    made.add(prompt(0, 10, 6000))
    ended: tuple[Sequence, ...] = ()
    for _ in range(5000):
        plan = made.plan()
        ended = made.update(plan, say(plan))
        if ended:
            break
    assert [one.status for one in ended] == [Status.ABORTED]
    # The last token needs no room any more.
    assert ended[0].num_tokens == 4201
    assert not made.has_work
    assert made.kv.num_free_blocks == 4200


# Order


def test_longest_prefix_match_serves_what_is_cached_first() -> None:
    made = scheduler(chunk=None, batch=6, prefix_caching=True, order=Order.LONGEST_PREFIX_MATCH)
    serve(made, (0, Sequence(0, [5] * 40, max_new_tokens=1)))
    made.add(Sequence(1, [6] * 40, max_new_tokens=1))
    made.add(Sequence(2, [5] * 30 + [7] * 10, max_new_tokens=1))
    made.add(Sequence(3, [5] * 38 + [7] * 2, max_new_tokens=1))
    assert [list(step(made)) for _ in range(3)] == [[3], [2], [1]]


def test_with_more_than_128_waiting_the_order_is_that_of_arrival() -> None:
    for waiting, expected in ((128, 500), (129, 1)):
        made = scheduler(chunk=None, batch=6, prefix_caching=True, order=Order.LONGEST_PREFIX_MATCH)
        serve(made, (0, Sequence(0, [5] * 40, max_new_tokens=1)))
        for key in range(1, waiting):
            made.add(Sequence(key, [100 + key] * 6, max_new_tokens=1))
        made.add(Sequence(500, [5] * 38, max_new_tokens=1))
        assert next(iter(step(made))) == expected


def test_of_those_that_begin_alike_one_goes_before() -> None:
    shared = list(range(40))
    first, second = Sequence(0, [*shared, 1], max_new_tokens=1), Sequence(1, [*shared, 2], max_new_tokens=1)
    other = Sequence(2, [9] * 10, max_new_tokens=1)
    assert by_longest_prefix([(first, 0), (second, 0), (other, 0)]) == [first, other, second]
    just = Sequence(4, [*shared[:32], 3], max_new_tokens=1)
    assert by_longest_prefix([(first, 0), (just, 0), (other, 0)]) == [first, other, just]
    # Below 32 shared tokens, or with more than 32 cached already, nobody is put off.
    short = Sequence(3, [*shared[:31], 3], max_new_tokens=1)
    assert by_longest_prefix([(first, 0), (short, 0), (other, 0)]) == [first, short, other]
    assert by_longest_prefix([(first, 33), (second, 33), (other, 0)]) == [first, second, other]


@pytest.mark.parametrize(("chunk", "batch"), [(3, 100), (None, 3)])
def test_a_batch_that_never_takes_a_page_is_refused(chunk: int | None, batch: int) -> None:
    with pytest.raises(ValueError, match="at least 4 needed"):
        scheduler(page=4, chunk=chunk, batch=batch)
