from __future__ import annotations

import contextlib
import copy
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infcalc.catalog.codec import model_from_mapping
from infcalc.catalog.gpus import gpu_from_mapping
from infcalc.catalog.lookup import Catalog
from infcalc.errors import InfcalcError
from infcalc.files import load_catalog, yaml_text
from tests.catalog.test_codec import entry as model_entry
from tests.catalog.test_gpus import entry as gpu_entry

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.sampled_from(
        [math.nan, math.inf, 0, -1, 2**63, "", "80 GiB", "1e999 TFLOPS", "-3 W", "999999999*dense", "0-9999"]
    ),
    st.text(max_size=12),
    st.binary(max_size=4),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6) | st.sampled_from(["rows", "kind", "value", "layers"]), inner, max_size=3)
        | st.dictionaries(LEAVES.filter(lambda key: not isinstance(key, float)), inner, max_size=2)
    ),
    max_leaves=8,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:  # noqa: ANN401
    """Return every place in nested mappings and lists."""
    found = [path]
    if isinstance(value, dict):
        for key, item in value.items():
            found += _paths(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            found += _paths(item, (*path, number))
    return found


def _mutate(draw: st.DrawFn, mapping: dict[str, Any]) -> object:
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(_paths(mapping)))
        if not path:
            if draw(st.integers(0, 20)) == 0:
                return draw(VALUES)
            mapping[draw(st.text(max_size=5))] = draw(VALUES)
            continue
        target: Any = mapping
        for step in path[:-1]:
            target = target[step]
        if draw(st.booleans()):
            target[path[-1]] = draw(VALUES)
        elif isinstance(target, dict):
            del target[path[-1]]
    return mapping


@st.composite
def mutated_models(draw: st.DrawFn) -> object:
    return _mutate(draw, copy.deepcopy(model_entry()))


@st.composite
def mutated_gpus(draw: st.DrawFn) -> object:
    full = gpu_entry() | {
        "scale_up": {"name": "x", "bandwidth": "1 GB/s", "max_domain": 2},
        "price": [{"value": ["1 USD/h", "2 USD/h"], "provider": "p"}],
        "aliases": ["a"],
        "doubts": ["d"],
    }
    return _mutate(draw, full)


@settings(max_examples=150, deadline=None)
@given(mutated_models())
def test_a_mutated_model_reads_or_is_refused_with_its_faults(mapping: object) -> None:
    with contextlib.suppress(InfcalcError):
        assert model_from_mapping("m", mapping).num_layers >= 1


@settings(max_examples=150, deadline=None)
@given(mutated_gpus())
def test_a_mutated_gpu_reads_or_is_refused_with_its_faults(mapping: object) -> None:
    with contextlib.suppress(InfcalcError):
        gpu = gpu_from_mapping("g", mapping, {})
        assert 0 < gpu.cuda_total_bytes <= gpu.memory_bytes


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "overlay.yaml"


def _load(path: Path, content: bytes) -> Catalog | None:
    path.write_bytes(content)
    with contextlib.suppress(InfcalcError):
        return load_catalog((str(path),))
    return None


def _use(catalog: Catalog | None) -> None:
    """Ask for everything an overlay may have touched."""
    if catalog is not None:
        for name in catalog.gpu_names():
            assert catalog.gpu(name).gpu.name == name
        for name in catalog.model_names()[-3:]:
            assert catalog.model(name).model.name == name


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["new", "h100", "l4", "", "-"]), mutated_gpus(), max_size=2), mutated_models())
def test_a_mutated_overlay_loads_or_is_refused(overlay: Path, gpus: dict[str, Any], model: object) -> None:
    text = yaml_text({"gpus": gpus, "models": {"tiny": model}})
    _use(_load(overlay, text.encode("utf-8", "surrogatepass")))


@st.composite
def damaged_texts(draw: st.DrawFn) -> bytes:
    text = bytearray(yaml_text({"gpus": {"h100": gpu_entry()}, "models": {"tiny": model_entry()}}).encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text) - 1))
        pieces = st.sampled_from(
            [b"{", b"[", b"&a ", b"*a", b"!!x ", b"\x00", b"\xff", b"- ", b": ", b"\t", b"<<: ", b"'"]
        )
        text[at : at + draw(st.integers(0, 8))] = draw(pieces | st.binary(max_size=6))
    return bytes(text)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damaged_texts() | st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace"))
)
def test_a_damaged_file_loads_or_is_refused(overlay: Path, content: bytes) -> None:
    _use(_load(overlay, content))
