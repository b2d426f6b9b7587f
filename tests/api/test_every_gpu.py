"""Every GPU of the catalog answers under every engine: entries are many, and hand-picked ones are not all of them."""

from __future__ import annotations

import pytest

from infcalc import files
from infcalc.api.deployment import Ask
from infcalc.api.fitting import concurrency

ENGINES = ("vllm", "sglang", "trtllm", "llama.cpp")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_gpu_answers(engine: str) -> None:
    names = files.load_catalog().gpu_names()
    answer = concurrency(Ask(models=("llama3-8b",), gpus=names, num_gpus=1, engine=engine, kv_dtypes=("fp16",)))
    assert [result.gpu for result in answer.results] == list(names)
    for result in answer.results:
        (row,) = result.rows
        assert 0 <= row.sequences_low <= row.sequences <= row.sequences_high
        assert (row.sequences == 0) or result.missing_bytes == 0
