from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from infcalc.api import Ask, Estimator, Offer, estimate
from infcalc.api.estimator import Estimate
from infcalc.api.offer import Figure
from infcalc.errors import UsageError
from infcalc.files import load_catalog

SMALL = Ask(models=("llama3.1-8b",), gpus=("h100-sxm5-80gb",), tp=1)
LENGTHS: dict[str, Any] = {"input_tokens": 1000, "output_tokens": 200}


@cache
def small() -> Estimator:
    return Estimator(SMALL, load_catalog())


@pytest.mark.parametrize(
    "ask",
    [
        SMALL,
        Ask(),
        Ask(models=("qwen3-30b-a3b",), gpus=("h200-sxm-141gb",), tp=2, ep=2),
        Ask(models=("llama3-70b",), gpus=("h100-sxm5-80gb",), tp=2, pp=2),
    ],
    ids=["small", "reference", "experts", "stages"],
)
@pytest.mark.parametrize(
    "load",
    [
        {"batch": 1},
        {"batch": 48},
        {"concurrency": 40},
        {"concurrency": 30, "output_tokens": "lognormal:mean=300,cv=1"},
        {"requests_per_s": 0.7},
        {"requests_per_s": 500.0},
        {"concurrency": 16, "num_requests": 64},
        {},
    ],
    ids=str,
)
def test_figures_are_those_of_the_full_answer(ask: Ask, load: dict[str, Any]) -> None:
    offer = Offer(**({"input_tokens": 1000, "output_tokens": 200} | load))
    full, quick = estimate(ask, offer).result, Estimator(ask).estimate(offer)
    for name in ("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "requests_per_s"):
        assert getattr(quick, name) == getattr(full, name), name
    assert (quick.stable, quick.bound_by, quick.max_batch) == (full.stable, full.bound_by, full.max_batch)
    assert quick.batch == full.batch


def test_what_was_asked_before_changes_no_answer() -> None:
    estimator = Estimator(SMALL)
    before = estimator.estimate(Offer(concurrency=7, **LENGTHS))
    for clients in range(1, 60):
        estimator.estimate(Offer(concurrency=clients, **LENGTHS))
    assert (
        estimator.estimate(Offer(concurrency=7, **LENGTHS))
        == before
        == small().estimate(Offer(concurrency=7, **LENGTHS))
    )


def test_what_does_not_fit_is_a_result() -> None:
    estimator = Estimator(Ask(models=("llama3-70b",), gpus=("rtx-4090",), tp=1))
    assert estimator.estimate(Offer(concurrency=1)) == Estimate(fits=False)
    batches = estimator.batches([1, 2], Offer())
    assert batches.max_batch == 0
    assert np.isnan(batches.tpot_s).all()


@pytest.mark.parametrize("output", [200, "uniform:min=50,max=400"])
def test_batches_in_one_call_are_batches_one_by_one(output: int | str) -> None:
    offer = Offer(input_tokens=1000, output_tokens=output)
    sizes = [1, 2, 7, 32, 100, 256]
    found = small().batches(sizes, offer)
    # Where answers end one after another, single batches read what decodes between two points of a grid.
    rel = 1e-9 if output == 200 else 0.01
    for place, size in enumerate(sizes):
        one = small().estimate(Offer(batch=size, input_tokens=1000, output_tokens=output))
        for name in ("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s"):
            figure = getattr(one, name)
            assert isinstance(figure, Figure)
            assert getattr(found, name)[place] == pytest.approx(figure.value, rel=rel), (name, size)


def test_batches_in_stages_are_batches_one_by_one() -> None:
    estimator = Estimator(Ask(models=("llama3-70b",), gpus=("h100-sxm5-80gb",), tp=2, pp=2))
    found = estimator.batches([1, 8], Offer(**LENGTHS))
    for place, size in enumerate((1, 8)):
        one = estimator.estimate(Offer(batch=size, **LENGTHS)).tpot_s
        assert one is not None
        assert found.tpot_s[place] == pytest.approx(one.value)


def test_batches_that_do_not_run_at_once_are_no_numbers() -> None:
    most = small().estimate(Offer(batch=1, **LENGTHS)).max_batch
    found = small().batches([int(most), int(most) + 1], Offer(**LENGTHS))
    assert found.max_batch == most
    assert np.isfinite(found.output_tokens_per_s[0])
    assert np.isnan(found.output_tokens_per_s[1])


@pytest.mark.parametrize("sizes", [[], [0], [[1, 2]]])
def test_sizes_that_no_batch_has_are_refused(sizes: Any) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(UsageError):
        small().batches(sizes, Offer(**LENGTHS))


def test_several_deployments_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        Estimator(Ask(models=("llama3.1-8b", "llama3-70b")))
    assert caught.value.hint
