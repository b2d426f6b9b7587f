from __future__ import annotations

import pytest

from infcalc.api.comparing import compare_text
from infcalc.api.staged import stage_of
from infcalc.spec.parallelism import Parallelism
from tests.api.logged import H100, error, lines
from tests.engines.logs import samples


@pytest.mark.parametrize(
    ("rank", "stage"),
    [
        ("PP1 TP0", 1),
        ("PP0", 0),
        ("rank 0", 0),
        ("rank 5", 2),
        ("rank 6", 0),
        ("pid 77", None),
        ("", None),
        ("PP7", None),
    ],
)
def test_the_stage_of_a_rank_is_read_from_its_name(rank: str, stage: int | None) -> None:
    # Two ranks a stage, three stages: rank 6 is the first of a second replica.
    assert stage_of(rank, Parallelism(tp=2, pp=3)) == stage


def test_without_a_pipeline_every_rank_is_of_the_one_stage() -> None:
    assert {stage_of(rank, Parallelism(tp=4)) for rank in ("TP3", "", "pid 5", "rank 3")} == {0}


def test_a_rank_is_compared_with_its_own_stage() -> None:
    # The last stage has the least memory for KV, and the first, with one layer more, the fewest tokens.
    answer = compare_text(samples.PIPELINE, H100)
    found = {one.quantity: one for one in answer.result.lines}
    assert found["kv_pool_bytes"].rank == "PP0"
    for quantity in ("weights_bytes", "kv_pool_bytes", "kv_cache_tokens"):
        assert error(found[quantity]) < 0.005, quantity
    assert not any("may not be what the log loaded" in text for text in answer.warnings)
    assert not any("ranks differ" in text for text in answer.warnings)
    assert "bytes per token" not in found["kv_cache_tokens"].attributed_to


@pytest.mark.parametrize(("stage", "weights_gib"), [(1, 4.50), (2, 5.05)])
def test_a_log_of_one_stage_alone_is_compared_with_that_stage(stage: int, weights_gib: float) -> None:
    rows = [row for row in samples.PIPELINE.splitlines() if "Worker_PP" not in row or f"PP{stage}" in row]
    text = "\n".join(rows)
    answer = compare_text(text, H100)
    found = {one.quantity: one for one in answer.result.lines}
    weights = found["weights_bytes"]
    assert weights.measured == pytest.approx(weights_gib * 2**30)
    if stage == 1:
        # The last stage holds the head, which the sample has rounded down.
        assert error(weights) < 0.02
    assert found["kv_pool_bytes"].rank == f"PP{stage}"
    # Tokens are those of the first stage, which this log does not print.
    assert error(found["kv_cache_tokens"]) < 0.005
    assert "another rank" not in found["kv_cache_tokens"].attributed_to


def test_ranks_of_one_stage_that_differ_are_told() -> None:
    uneven = samples.PIPELINE + "(Worker_PP0_TP1 pid=9) INFO [gpu_worker.py:298] Available KV cache memory: 60.00 GiB\n"
    (told,) = (text for text in compare_text(uneven, H100).warnings if "ranks differ" in text)
    assert "PP0 TP1 has 60.00 GiB" in told
    assert "PP2" not in told


def test_lines_that_name_no_stage_are_taken_for_the_fullest_with_a_warning() -> None:
    rows = [row for row in samples.PIPELINE.splitlines() if "PP1" not in row and "PP2" not in row]
    text = "\n".join(rows).replace("(Worker_PP0 pid=1) ", "")
    answer = compare_text(text, H100)
    assert any("no line names its pipeline stage" in told and "stage 0" in told for told in answer.warnings)
    assert not any("pipeline stage" in told for told in compare_text(samples.PIPELINE, H100).warnings)
    assert not any("pipeline stage" in told for told in compare_text(samples.V1_H100, H100).warnings)


def test_ranks_of_one_stage_govern_by_their_least_room() -> None:
    assert lines(samples.V0_V100, H100)["kv_pool_bytes"].measured == round(19.40 * 2**30)
