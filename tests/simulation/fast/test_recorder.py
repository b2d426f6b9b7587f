"""Records and samples of one run agree, and columns that no run can have are refused."""

from __future__ import annotations

import numpy as np
import pytest

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.fast.columns import Load, load_of
from infcalc.simulation.fast.recorder import Recorder, SampleRecorder
from infcalc.simulation.fast.run import run_fast
from infcalc.simulation.records import Outcome
from infcalc.simulation.request import Request
from tests.simulation.fast.cases import MadeUpTimer


def served(recorder: SampleRecorder, load: Load) -> None:
    kv = KvCacheManager(30, 4)
    run_fast(VllmScheduler(kv, VllmLimits(max_num_seqs=5, budget_tokens=16)), load, MadeUpTimer(64), recorder)


def several() -> list[Request]:
    lengths = [(9, 1), (20, 30), (3, 12), (200, 1), (50, 40), (7, 1)]
    return [
        Request(arrival_ps=100 * place, prompt_tokens=prompt, output_tokens=answer)
        for place, (prompt, answer) in enumerate(lengths)
    ]


def test_samples_are_the_same_with_and_without_the_requests() -> None:
    recorder, sampler = Recorder(), SampleRecorder()
    served(recorder, load_of(several()))
    served(sampler, load_of(several()))
    kept, only = recorder.samples(), sampler.samples()
    for name in ("ttft_ps", "queue_ps", "e2e_ps", "tpot_ps"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(only, name))
    assert np.isnan(only.tpot_ps).sum() == 2
    np.testing.assert_array_equal(recorder.interval_runs(), sampler.interval_runs())
    assert (recorder.num_finished, recorder.num_rejected) == (sampler.num_finished, sampler.num_rejected) == (5, 1)


def test_columns_are_the_records() -> None:
    recorder = Recorder()
    served(recorder, load_of(several()))
    finished = {one.index: one for one in recorder.records() if one.outcome is Outcome.FINISHED}
    columns = recorder.columns()
    for row, index in enumerate(columns["index"].tolist()):
        assert {name: column[row] for name, column in columns.items()} == {
            name: getattr(finished[index], name) for name in columns
        }
    assert columns["end_ps"].tolist() == sorted(columns["end_ps"].tolist())


def test_an_empty_load_ends_at_once() -> None:
    recorder = Recorder()
    served(recorder, load_of([]))
    assert recorder.records() == ()


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt_tokens": ints(1)}, "2 arrivals"),
        ({"arrival_ps": ints(-1, 0)}, "at 0 or later"),
        ({"output_tokens": ints(0, 1)}, "at least one token"),
        ({"allowed_tokens": ints(9, 0)}, "longer than what is allowed"),
        ({"parents": [0], "sizes_tokens": [4]}, "a parent comes before"),
        ({"contents": ints(0, 1), "parents": [-1], "sizes_tokens": [1]}, "not in the tree"),
        ({"contents": ints(0, -1), "parents": [-1], "sizes_tokens": [7]}, "shares more tokens than it has"),
    ],
)
def test_columns_that_no_run_can_have_are_refused(changes: dict[str, object], words: str) -> None:
    columns: dict[str, object] = {"arrival_ps": ints(0, 0), "prompt_tokens": ints(5, 5), "output_tokens": ints(1, 1)}
    with pytest.raises(ValueError, match=words):
        Load(**{**columns, **changes})  # type: ignore[arg-type]
