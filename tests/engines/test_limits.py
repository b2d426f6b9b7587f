from __future__ import annotations

import pytest

from infcalc.engines.limits import limits
from infcalc.engines.rules import ENGINES


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_its_limits_with_a_source(engine: str) -> None:
    sizes = limits(engine).block_sizes
    assert sizes.source
    assert sizes.words


@pytest.mark.parametrize(
    ("engine", "admitted", "refused"),
    [
        ("vllm", (1, 8, 16, 48, 256, 528), (2, 7, 12, 24)),
        ("sglang", (1, 7, 64), ()),
        ("tensorrt-llm", (8, 32, 64, 128), (7, 48)),
        ("llama.cpp", (), (1, 256)),
    ],
)
def test_block_sizes(engine: str, admitted: tuple[int, ...], refused: tuple[int, ...]) -> None:
    sizes = limits(engine).block_sizes
    assert all(sizes.admit(size) for size in admitted)
    assert not any(sizes.admit(size) for size in refused)
