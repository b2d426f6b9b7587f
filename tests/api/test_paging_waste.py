"""What paging saves: the published wastes on the ShareGPT-like mix, and what every answer must keep."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.api.deployment import Ask
from infcalc.api.paging_waste import PagingAsk, PagingResult, paging
from infcalc.errors import UsageError
from infcalc.report.views.paging import view


def rows(result: PagingResult) -> dict[str, float]:
    """Return the waste of each allocator under which anything ran."""
    return {row.allocator: row.waste_fraction for row in result.allocators if row.waste_fraction is not None}


@pytest.mark.parametrize("seed", range(4))
def test_the_mix_wastes_what_was_published(seed: int) -> None:
    # Kwon et al. 2023: 60 to 80 % with the maximum reserved, less than 4 % with paging. A smaller pool, as full.
    result = paging(load_ask=PagingAsk(seed=seed, pool_tokens=200_000)).result
    wastes = rows(result)
    assert result.block_tokens == 16
    assert wastes["paged"] < 0.04
    assert 0.6 < wastes["contiguous-max"] < 0.8
    assert wastes["paged"] < wastes["contiguous-exact"] < wastes["buddy"] < wastes["contiguous-max"]
    found = {row.allocator: row for row in result.allocators}
    assert found["paged"].max_request_waste_tokens < 16
    assert found["paged"].rejected < found["contiguous-exact"].rejected < found["contiguous-max"].rejected
    assert found["paged"].peak_sequences > 3 * found["contiguous-max"].peak_sequences


def test_without_an_option_it_is_the_pool_of_the_reference_deployment() -> None:
    answer = paging(load_ask=PagingAsk(num_requests=1000))
    assert answer.result.pool_tokens == 482_512
    assert answer.result.longest_tokens == 2048
    assert answer.exit_code == 0
    # 1,000 requests never fill a pool with room for as many.
    assert any("do not fill a pool" in text for text in answer.warnings)
    assert any("96.3 %" in text for text in answer.assumptions)


def test_fifty_requests_store_one_prompt_once() -> None:
    shared = paging(load_ask=PagingAsk(num_requests=10)).result.shared_prefix
    block_bytes = 16 * 327_680
    # 1,000 tokens are 62 full blocks and half a block, which 49 of the 50 copy when they write into it.
    assert (shared.requests, shared.copies_on_write) == (50, 49)
    assert (shared.prompt_blocks_without, shared.prompt_blocks_with) == (50 * 63, 62 + 50)
    assert shared.bytes_without - shared.bytes_with == 49 * 62 * block_bytes
    assert shared.bytes_with == shared.bytes_with_full_blocks
    assert shared.saved_fraction == pytest.approx(1 - shared.bytes_with / shared.bytes_without)
    whole = paging(load_ask=PagingAsk(num_requests=10, shared_prefix_tokens=1024)).result.shared_prefix
    assert (whole.copies_on_write, whole.prompt_blocks_with) == (0, 64)


@settings(max_examples=10)
@given(
    number=st.integers(1, 60),
    tokens=st.integers(1, 6000),
    load=st.sampled_from([0.01, 0.5, 1.0, 10.0]),
    block=st.sampled_from([None, 32, 128]),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_answer_adds_up(number: int, tokens: int, load: float, block: int | None, seed: int) -> None:
    wanted = PagingAsk(num_requests=number, pool_tokens=tokens, load_fraction=load, num_shared_requests=3, seed=seed)
    result = paging(Ask(block_size=block), wanted).result
    for row in result.allocators:
        if row.held_token_steps:
            assert row.waste_fraction is not None
            assert row.waste_fraction == pytest.approx((row.reserved_fraction or 0) + (row.internal_fraction or 0))
            assert 0 <= row.waste_fraction < 1
        else:
            assert (row.waste_fraction, row.reserved_fraction, row.internal_fraction) == (None, None, None)
        assert 0 <= row.live_pool_fraction <= row.held_pool_fraction <= 1
        assert 0 <= row.scattered_fraction <= 1
        assert row.mean_sequences <= row.peak_sequences <= number
        assert row.rejected + row.preempted <= number
        assert row.peak_sequences or row.rejected == number
    assert [row.block_tokens for row in result.blocks] == sorted({16, 32, 64, 128, 256, result.block_tokens})
    (paged,) = (row for row in result.blocks if row.block_tokens == result.block_tokens)
    assert (paged.waste_fraction, paged.rejected) == (
        result.allocators[0].waste_fraction,
        result.allocators[0].rejected,
    )


def test_lengths_of_ones_own_come_with_the_engines_own_longest() -> None:
    wanted = PagingAsk(num_requests=20, input_tokens=300, output_tokens=100, pool_tokens=20_000)
    result = paging(load_ask=wanted).result
    assert (result.longest_tokens, result.cut_requests) == (8192, 0)
    assert result.mean_live_tokens == 350
    assert paging(Ask(max_model_len=1024), wanted).result.longest_tokens == 1024


def test_the_seed_draws_other_requests_and_the_same_one_the_same() -> None:
    one, again, other = (
        paging(load_ask=PagingAsk(num_requests=200, pool_tokens=20_000, seed=seed)).result for seed in (1, 1, 2)
    )
    assert one == again != other


def test_a_model_that_does_not_fit_has_no_pool() -> None:
    answer = paging(Ask(num_gpus=1), PagingAsk(num_requests=10))
    assert answer.exit_code == 3
    assert {row.rejected for row in answer.result.allocators} == {10}
    assert any("no KV pool" in text for text in answer.warnings)
    # With a stated pool there is one.
    assert paging(Ask(num_gpus=1), PagingAsk(num_requests=10, pool_tokens=9000)).exit_code == 0


def test_windows_and_states_are_told() -> None:
    warnings = paging(Ask(models=("gemma-3-27b",)), PagingAsk(num_requests=10)).warnings
    assert any("a window or a state" in text for text in warnings)


def test_waste_explains_itself_with_what_it_should_be() -> None:
    answer = paging(load_ask=PagingAsk(num_requests=500, pool_tokens=50_000), explain=True)
    found = {text.quantity: text for text in answer.explanations}
    paged = answer.result.allocators[0]
    text = found["waste_fraction of paged"].substituted
    assert text == f"1 - {paged.live_token_steps:,} / {paged.held_token_steps:,} = {paged.waste_fraction:.4f}"
    assert paged.waste_fraction == 1 - paged.live_token_steps / paged.held_token_steps
    assert {"bytes_without", "bytes_with", "copies_on_write"} <= set(found)


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        (PagingAsk(num_requests=0), "--requests"),
        (PagingAsk(num_requests=200_000, output_tokens=8000, input_tokens=100), "--requests"),
        (PagingAsk(pool_tokens=0), "--pool-tokens"),
        (PagingAsk(load_fraction=float("nan")), "--load"),
        (PagingAsk(shared_prefix_tokens=2047), "--shared-prefix-tokens"),
        (PagingAsk(num_shared_requests=0), "--shared-requests"),
        (PagingAsk(num_shared_requests=10_000, shared_prefix_tokens=2000), "--shared-requests"),
        (PagingAsk(input_tokens="soon"), "--input-tokens"),
        (PagingAsk(input_tokens=8000, output_tokens=8000), "--input-tokens"),
        (PagingAsk(seed=-1), "--seed"),
    ],
)
def test_what_cannot_be_is_refused(wanted: PagingAsk, place: str) -> None:
    with pytest.raises(UsageError) as refused:
        paging(load_ask=wanted)
    assert refused.value.place == place
    assert refused.value.hint


def test_a_model_that_keeps_nothing_per_token_has_nothing_to_page() -> None:
    answer = paging(Ask(models=("falcon-mamba-7b",)), explain=True)
    result = answer.result
    assert answer.exit_code == 0
    assert result.nothing_per_token
    assert not result.fits_none
    assert (result.allocators, result.blocks, result.shared_prefix.bytes_with) == ((), (), 0)
    # 64 layers: a state of 8,192 x 16 and a convolution of 8,192 x 3, in the width that the cache keeps them.
    assert result.state_bytes > 0
    (finding,) = view(answer).findings
    assert "nothing to page" in finding
    assert not view(answer).tables


def test_where_every_layer_has_a_window_there_are_pages() -> None:
    # Mistral 7B v0.1: 32 layers with 8 KV heads of 128, keys and values in 16 bits, all with a window.
    result = paging(Ask(models=("mistral-7b-v0.1",)), PagingAsk(num_requests=10, pool_tokens=5000)).result
    assert not result.nothing_per_token
    assert result.kv_bytes_per_token == 32 * 2 * 8 * 128 * 2


def test_a_pool_into_which_no_request_fits_says_so() -> None:
    answer = paging(load_ask=PagingAsk(num_requests=50, pool_tokens=15))
    assert answer.exit_code == 3
    assert answer.result.fits_none
    assert {row.waste_fraction for row in answer.result.allocators} == {None}
    assert {row.waste_fraction for row in answer.result.blocks} == {None}
    assert sum("no request fits" in text for text in answer.warnings) == 4
    assert "fits none of the 50 requests" in view(answer).findings[0]
    assert "0.0 %" not in view(answer).findings[0]


def test_a_longest_length_above_the_pool_fits_none_and_others_run() -> None:
    wanted = PagingAsk(num_requests=200, pool_tokens=5000, input_tokens=100, output_tokens=50)
    answer = paging(load_ask=wanted)
    found = {row.allocator: row for row in answer.result.allocators}
    assert answer.result.longest_tokens > 5000
    assert answer.exit_code == 0
    assert (found["contiguous-max"].rejected, found["contiguous-max"].waste_fraction) == (200, None)
    assert "reserving 8,192 tokens fits none of the 200 requests" in view(answer).findings[0]
    assert any(text.startswith("contiguous-max: no request fits") for text in answer.warnings)


def test_blocks_that_are_larger_than_the_pool_fit_none() -> None:
    answer = paging(Ask(block_size=16_000), PagingAsk(num_requests=50, pool_tokens=9000))
    assert answer.exit_code == 3
    assert "paging in blocks of 16000 fits none" in view(answer).findings[0]


def test_too_many_requests_are_refused_before_they_are_drawn_with_as_many_as_will_do() -> None:
    wanted = PagingAsk(num_requests=200_000, pool_tokens=5000)
    with pytest.raises(UsageError, match="take too long") as refused:
        paging(load_ask=wanted)
    most = int((refused.value.hint or "").split()[1].rstrip(","))
    # 2,000,000 blocks of 16 tokens, at 337.99 tokens of a mean answer.
    assert most == pytest.approx(2_000_000 * 16 / 337.99, rel=1e-3)
