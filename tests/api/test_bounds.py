from __future__ import annotations

import pytest

from infcalc.api.bounds import RooflinePoint, roofline
from infcalc.api.deployment import Ask
from infcalc.roofline.step import BATCHES


def point(ask: Ask, phase: str) -> RooflinePoint:
    found = roofline(ask, batches=(8,)).result.points
    return next(one for one in found if one.phase == phase and one.attention_io == "flash")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_pipeline_has_the_work_of_one_gpu_and_the_pace_of_its_slowest_stage(phase: str) -> None:
    four, eight = point(Ask(num_gpus=4), phase), point(Ask(num_gpus=8, pp=2), phase)
    assert eight.num_gpus == 8
    assert eight.flop == pytest.approx(four.flop / 2, rel=0.03)
    assert eight.bytes == pytest.approx(four.bytes / 2, rel=0.03)
    assert eight.time_s == pytest.approx(four.time_s)
    assert eight.tokens_per_s == eight.tokens / eight.stage_s
    assert four.tokens_per_s == four.tokens / four.time_s
    assert 1.9 * four.tokens_per_s < eight.tokens_per_s < 2 * four.tokens_per_s
    assert eight.flop_per_s == pytest.approx(four.flop_per_s, rel=0.03)


def test_a_pipeline_says_what_its_figures_are_of() -> None:
    assert any("2 such batches in flight" in note for note in roofline(Ask(num_gpus=8, pp=2), batches=(1,)).assumptions)
    assert not any("in flight" in note for note in roofline(Ask(num_gpus=8), batches=(1,)).assumptions)


def test_a_pipeline_is_explained_stage_by_stage() -> None:
    answer = roofline(Ask(num_gpus=8, pp=2), batches=(1,), explain=True)
    stages = [text for text in answer.explanations if text.quantity == "stage_s"]
    times = [text for text in answer.explanations if text.quantity == "time_s"]
    assert (len(stages), len(times)) == (2, 2)
    assert stages[1].inputs[0].origin == "gpus.yaml (shipped)"
    assert times[1].substituted == "8.48 ms + 8.74 ms = 17.2 ms"


def test_layers_that_share_a_cache_score_their_keys_once() -> None:
    ask = Ask(models=("gemma-4-e2b",), num_gpus=1)
    flash, naive = roofline(ask, batches=(1,)).result.points[:2]
    assert (flash.phase, flash.attention_io, naive.attention_io) == ("prefill", "flash", "naive")
    assert naive.bytes - flash.bytes == pytest.approx(37.6e9, rel=0.01)


def test_what_was_given_is_given_even_where_it_is_the_default() -> None:
    def origins(**options: tuple[int, ...]) -> dict[str, str]:
        return {item.name: item.origin for item in roofline(**options).inputs}  # type: ignore[arg-type]

    assert origins()["batches"] == "default"
    assert origins()["context"] == "reference scenario"
    assert origins(batches=BATCHES)["batches"].startswith("given")
    assert origins(contexts=(4096,))["context"].startswith("given")


def test_inputs_hold_every_deployment() -> None:
    inputs = {item.name: item.value for item in roofline(Ask(models=("llama3-8b", "llama3-70b")), batches=(1,)).inputs}
    assert inputs["model"] == ("llama3-8b", "llama3-70b")
    assert inputs["batches"] == (1,)
