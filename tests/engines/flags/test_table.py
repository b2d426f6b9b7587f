from __future__ import annotations

import pytest

from infcalc.engines.flags.flag import Place
from infcalc.engines.flags.table import FLAGS, first_known, has_flag, version_of, why_absent
from infcalc.engines.rules import ENGINES
from tests.engines.flags.names import BESIDE, BROUGHT, REFERENCE, names_in


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_says_what_it_means_and_where_that_was_read(engine: str) -> None:
    for flag in FLAGS[engine].values():
        assert flag.meaning
        assert flag.source
        assert flag.name.startswith("-") is (flag.place is Place.COMMAND)
        assert not flag.until or flag.since < flag.until


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_is_one_of_the_engine(engine: str) -> None:
    if not REFERENCE.exists():
        pytest.skip(f"the shared reference on engines is not at {REFERENCE}")
    known = names_in(REFERENCE.read_text(encoding="utf-8"))
    beside = BESIDE[engine].split()
    unknown = [
        name
        for name in FLAGS[engine]
        if name not in beside and not set(name.split(".") if not name.startswith("-") else [name]) <= known
    ]
    assert not unknown


@pytest.mark.parametrize("engine", ENGINES)
def test_what_stands_beside_the_reference_is_in_the_table(engine: str) -> None:
    assert set(BESIDE[engine].split()) <= set(FLAGS[engine])


@pytest.mark.parametrize(("engine", "name", "before", "since"), BROUGHT)
def test_releases_that_brought_an_option(engine: str, name: str, before: str, since: str) -> None:
    assert not has_flag(engine, name, version_of(engine, before))
    assert has_flag(engine, name, version_of(engine, since))
    assert why_absent(engine, name, version_of(engine, before)).startswith("it came with ")


def test_an_option_that_went_is_told_apart() -> None:
    assert has_flag("vllm", "--speculative-model", (0, 8, 2))
    assert why_absent("vllm", "--speculative-model", (0, 9)) == "it went with 0.8.3"


def test_of_two_spellings_the_one_that_is_known_is_taken() -> None:
    names = ("--free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction")
    assert first_known("tensorrt-llm", names, (1, 4)) == names[0]
    assert first_known("tensorrt-llm", names, (1, 0)) == names[1]


def test_builds_of_llama_cpp_have_no_order() -> None:
    assert has_flag("llama.cpp", "-ctk", version_of("llama.cpp", "b4567 (abc)"))
