from __future__ import annotations

import pytest

from infcalc.api.changes import Kind, can_serve, families
from infcalc.api.deployment import Ask, Deployment, kv_format, load, resolve
from infcalc.api.filling import memory


def deployed(ask: Ask) -> Deployment:
    return resolve(ask, load(ask))[0]


def test_an_engine_that_splits_by_layer_takes_any_more_gpus() -> None:
    result = memory(Ask(models=("llama3-70b",), gpus=("rtx-4090",), num_gpus=3, engine="llama.cpp")).result
    assert not result.fits
    changes = [change.change for change in result.changes]
    # 131 GiB of weights on cards of 23.6 GiB: the sixth leaves room for a sequence.
    assert changes[0] == "--gpus 6"
    assert "--weights q4_k_m" in changes
    assert not any("TP" in change or "fp8" in change for change in changes)


@pytest.mark.parametrize(("gpu", "served"), [("h100", True), ("v100", False)])
def test_a_precision_that_the_gpu_cannot_compute_is_no_mend(gpu: str, served: bool) -> None:
    ask = Ask(models=("llama3-70b",), gpus=(gpu,), num_gpus=4, kv_dtypes=("bf16",))
    deployment = deployed(ask)
    form = kv_format(deployment, "bf16")[0]
    found = [one for family in families(ask, deployment, form) for one in family if one.kind is Kind.WEIGHTS]
    narrow = next(one for one in found if one.value == "fp8")
    assert can_serve(narrow, deployed(narrow.ask), form) is served


def test_experts_stay_on_all_ranks() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h100",), num_gpus=8, ep=8, kv_dtypes=("bf16",))
    deployment = deployed(ask)
    (first, *_), *_ = families(ask, deployment, kv_format(deployment, "bf16")[0])
    assert first.text == "--gpus 16 (TP 16, EP 16)"
    assert deployed(first.ask).parallelism.ep == 16
