from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.catalog.lookup import (
    Catalog,
    build_index,
    catalog_from_compiled,
    catalog_of,
    compiled_text,
    find,
    fold,
    nearest,
)
from infcalc.errors import CatalogError, UnknownName

LAYER = {"mixer": {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64}, "feed_forward": {"width": 64}}


def model(**keys: object) -> dict[str, object]:
    base = {"architecture": "llama", "hidden_size": 512, "vocab_size": 1000, "layers": "2*dense"}
    return base | {"blocks": {"dense": LAYER}} | keys


def gpu(**keys: object) -> dict[str, object]:
    return {"memory": "80 GiB", "bandwidth": "2 TB/s", "bf16": "1 TFLOPS", "source": "s", "date": "d"} | keys


def small() -> Catalog:
    catalog, faults = catalog_of(
        {
            "models": {
                "llama3-70b": model(aliases=["llama-70b"], hf_id="meta-llama/Meta-Llama-3-70B", doubts=["odd"]),
                "qwen2.5-7b": model(hf_id="Qwen/Qwen2.5-7B"),
                "qwen2-57b": model(),
            },
            "gpus": {"a100": gpu(title="NVIDIA A100 SXM", cuda_total="79 GiB"), "h100": gpu(doubts=["unsure"])},
        }
    )
    assert faults == []
    return catalog


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("RTX 4090", "rtx4090"),
        ("rtx-4090", "rtx4090"),
        ("RTX_4090", "rtx4090"),
        ("Llama-3.1-8B", "llama3.1_8b"),
        ("llama3:70b", "Llama-3-70B"),
        ("gpt-oss-120b", "gptoss-120b"),
        ("A100 80GB", "a100-80gb"),
        ("meta-llama/Llama 3", "metallama/llama3"),
        ("  h100  ", "H100"),
    ],
)
def test_spellings_that_mean_the_same_fold_to_the_same(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Qwen2.5-7B", "Qwen2-57B"), ("llama3.1", "llama31"), ("a100-40gb", "a10-040gb"), ("l4", "l40")],
)
def test_spellings_that_differ_stay_apart(one: str, other: str) -> None:
    assert fold(one) != fold(other)


@given(st.text(max_size=40))
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_names_aliases_ids_and_titles_are_found() -> None:
    catalog = small()
    for typed in ("llama3-70b", "Llama-70B", "meta-llama/Meta-Llama-3-70B", "Meta-Llama-3-70B", "META_LLAMA 3 70b"):
        assert catalog.model(typed).model.name == "llama3-70b"
    for typed in ("a100", "nvidia-a100", "NVIDIA A100 SXM", "NVIDIA_A100"):
        assert catalog.gpu(typed).gpu.name == "a100"
    assert catalog.model("qwen-2.5-7b").model.name == "qwen2.5-7b"
    assert catalog.model("qwen2-57b").model.name == "qwen2-57b"


def test_two_owners_of_a_name_are_a_fault_naming_both() -> None:
    _, faults = build_index("gpus", {"a": {"aliases": ["x-1"]}, "b": {"aliases": ["X 1", "c"]}, "c": {}})
    assert faults == [
        (("gpus", "b", "aliases"), "'X 1' is already a name of 'a'"),
        (("gpus", "c", "aliases"), "'c' is already a name of 'b'"),
    ]


def test_weak_spellings_give_way_and_ambiguous_ones_vanish() -> None:
    index, faults = build_index(
        "models",
        {
            "one": {"hf_id": "x/same"},
            "two": {"hf_id": "y/same"},
            "three": {"hf_id": "z/one"},
            "four": {"title": "Number Four"},
        },
    )
    assert faults == []
    assert find("same", index) is None
    assert find("x/same", index) == "one"
    assert find("one", index) == "one"
    assert find("number four", index) == "four"


def test_a_draft_head_names_models_that_exist() -> None:
    draft = {"kind": "eagle3", "hidden_size": 4096, "num_layers": 1, "core_parameters": 5, "targets": ["M"]}
    catalog, faults = catalog_of({"models": {"m": model()}, "drafts": {"head": draft | {"aliases": ["x/Head-1"]}}})
    assert faults == []
    assert catalog.draft("X/head-1").targets == ("M",)
    assert catalog.draft_names() == ("head",)
    _, faults = catalog_of({"models": {"m": model()}, "drafts": {"head": draft | {"targets": ["n"], "num_layers": 0}}})
    assert [fault[0][2] for fault in faults] == ["num_layers"]
    _, faults = catalog_of({"models": {"m": model()}, "drafts": {"head": draft | {"targets": ["n"]}}})
    assert faults == [(("drafts", "head", "targets"), "no model is called 'n'")]


def test_unknown_names_list_the_nearest() -> None:
    catalog = small()
    with pytest.raises(UnknownName) as caught:
        catalog.gpu("a1000")
    assert caught.value.nearest[0] == "a100"
    assert caught.value.exit_code == 5
    assert "infcalc gpus" in str(caught.value)
    with pytest.raises(UnknownName) as caught:
        catalog.model("lama3-70b")
    assert caught.value.nearest[0] == "llama3-70b"


def test_the_beginning_of_a_name_is_near_it() -> None:
    index, _ = build_index("models", {"deepseek-v3.2-experimental": {}, "other": {}})
    assert nearest("deepseek", index) == ("deepseek-v3.2-experimental",)


@given(st.text(max_size=300))
def test_any_text_is_found_or_unknown(text: str) -> None:
    catalog = small()
    name: str | None = None
    with contextlib.suppress(UnknownName):
        name = catalog.gpu(text).gpu.name
    assert name is None or name in catalog.gpu_names()


def test_a_derivative_has_the_shape_of_its_base_and_the_precision_of_its_name() -> None:
    catalog = small()
    base = catalog.model("qwen2.5-7b").model
    found = catalog.model("someone/Qwen2.5-7B-Instruct-AWQ")
    assert found.model.layers == base.layers
    assert found.model.quantization is not None
    assert found.model.quantization.format == "awq"
    assert base.quantization is None
    assert found.origins["quantization"] == "the name 'someone/Qwen2.5-7B-Instruct-AWQ'"
    assert found.origins["layers"] == "models.yaml (shipped)"
    assert len(found.assumptions) == 1
    assert "qwen2.5-7b" in found.assumptions[0]
    assert catalog.model("qwen2.5-7b").assumptions == ()


def test_doubts_become_warnings_and_keys_have_origins() -> None:
    catalog = small()
    found = catalog.model("llama3-70b")
    assert found.warnings == ("llama3-70b: odd",)
    assert found.origins["layers"] == "models.yaml (shipped)"
    entry = catalog.gpu("h100")
    assert entry.warnings[0] == "h100: unsure"
    assert len(entry.warnings) == 2
    assert entry.origins["memory"] == "gpus.yaml (shipped)"


def test_faults_of_all_sections_come_together() -> None:
    _, faults = catalog_of({"models": {"m": model(hidden_size=0)}, "gpus": {"g": gpu(bf16="1 GB")}})
    assert [fault[0] for fault in faults] == [("models", "m", "hidden_size"), ("gpus", "g", "bf16")]


def test_the_compiled_text_gives_the_same_catalog() -> None:
    catalog = small()
    text = compiled_text(catalog, "key")
    assert isinstance(json.loads(text), list)
    loaded = catalog_from_compiled(text, "key")
    assert loaded is not None
    for section in ("models", "gpus", "drafts"):
        assert loaded.names(section) == catalog.names(section)
        assert loaded.index(section) == catalog.index(section)
        for name in catalog.names(section):
            assert loaded.mapping(section, name) == catalog.mapping(section, name)
    assert loaded.cuda_ratios == catalog.cuda_ratios
    assert loaded.model("llama3-70b") == catalog.model("llama3-70b")


def test_a_compiled_text_of_other_sources_or_cut_short_is_none() -> None:
    text = compiled_text(small(), "key")
    assert catalog_from_compiled(text, "other") is None
    for cut in (0, 1, len(text) // 2, len(text) - 3):
        assert catalog_from_compiled(text[:cut], "key") is None
    assert catalog_from_compiled("[1]\n", "key") is None
    assert catalog_from_compiled("[{}]\n", "key") is None


def test_reading_an_entry_with_faults_tells_them() -> None:
    catalog, faults = catalog_of({"models": {"m": model(hidden_size=0)}})
    assert len(faults) == 1
    with pytest.raises(CatalogError):
        catalog.model("m")
