from __future__ import annotations

from pathlib import Path

import pytest

from infcalc.catalog.lookup import Catalog
from infcalc.errors import CatalogError, UnknownName
from infcalc.files import load_catalog
from infcalc.units import GIB

MODEL = """
models:
  tiny:
    architecture: llama
    hidden_size: 512
    vocab_size: 1000
    layers: 2*dense
    blocks:
      dense:
        mixer: {num_heads: 8, num_kv_heads: 2, head_dim: 64}
        feed_forward: {width: 64}
    aliases: [tiny-llama]
    source: mine
    date: 2026-01-01
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "infcalc").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def _user(folder: Path, name: str, text: str) -> None:
    (folder / "config" / "infcalc" / name).write_text(text, encoding="utf-8")


def _project(text: str) -> None:
    Path("infcalc.yaml").write_text(text, encoding="utf-8")


def _flag(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def _faults(*paths: str) -> tuple[str, ...]:
    with pytest.raises(CatalogError) as caught:
        load_catalog(paths)
    assert caught.value.exit_code == 2
    return caught.value.faults


def _bandwidth(catalog: Catalog, name: str = "h100") -> float:
    return catalog.gpu(name).gpu.bandwidth_bytes_per_s


def _tb(value: int) -> str:
    return f"gpus: {{h100: {{bandwidth: {value} TB/s}}}}\n"


@pytest.mark.usefixtures("folder")
def test_without_overlays_the_shipped_catalog_answers() -> None:
    assert _bandwidth(load_catalog()) == 3.35e12


def test_flags_beat_the_project_that_beats_the_user_that_beats_the_shipped(folder: Path) -> None:
    _user(folder, "b.yaml", _tb(12))
    assert _bandwidth(load_catalog()) == 12e12
    _user(folder, "c.yml", _tb(13))
    _user(folder, "a.yaml", _tb(11))
    assert _bandwidth(load_catalog()) == 13e12
    _project(_tb(20))
    assert _bandwidth(load_catalog()) == 20e12
    first, second = _flag("first.yaml", _tb(31)), _flag("second.yaml", _tb(32))
    assert _bandwidth(load_catalog((first, second))) == 32e12
    assert _bandwidth(load_catalog((second, first))) == 31e12


@pytest.mark.usefixtures("folder")
def test_an_overlay_changes_one_key_and_leaves_the_others() -> None:
    shipped = load_catalog().gpu("h100").gpu
    _project("gpus:\n  H100:\n    price: {value: 1.89 USD/h, provider: me, date: 2026-01, source: contract}\n")
    entry = load_catalog().gpu("h100")
    assert [price.usd_per_hour for price in entry.gpu.prices] == [1.89]
    assert entry.gpu.bandwidth_bytes_per_s == shipped.bandwidth_bytes_per_s
    assert entry.gpu.name == shipped.name == "h100-sxm5-80gb"
    assert entry.origins["price"] == "infcalc.yaml:3"
    assert entry.origins["memory"] == "gpus.yaml (shipped)"


def test_each_value_remembers_the_file_that_set_it_last(folder: Path) -> None:
    _user(folder, "mine.yaml", "gpus:\n  h100:\n    tdp: 600 W\n    cache: 1 MiB\n")
    _project("\n\ngpus:\n  h100-sxm5-80gb:\n    # slower\n    cache: 2 MiB\n")
    flag = _flag("x.yaml", "gpus: {h100: {num_sms: 1}}")
    catalog = load_catalog((flag,))
    entry = catalog.gpu("h100")
    assert entry.origins["tdp"] == f"{folder}/config/infcalc/mine.yaml:3"
    assert entry.origins["cache"] == "infcalc.yaml:6"
    assert entry.origins["num_sms"] == "x.yaml:1"
    assert catalog.origin("gpus", "h100-sxm5-80gb", "cache") == "infcalc.yaml:6"
    assert catalog.origin("gpus", "h100-sxm5-80gb", "bandwidth") == "gpus.yaml (shipped)"
    assert catalog.origin("gpus", "l4", "bandwidth") == "gpus.yaml (shipped)"


@pytest.mark.usefixtures("folder")
def test_new_entries_are_found_by_name_and_alias() -> None:
    _project(MODEL + "gpus:\n  my-gpu: {memory: 10 GiB, bandwidth: 1 TB/s, bf16: 5 TFLOPS, source: s, date: d}\n")
    catalog = load_catalog()
    entry = catalog.model("Tiny_Llama")
    assert entry.model.name == "tiny"
    assert entry.model.num_layers == 2
    assert entry.model.date == "2026-01-01"
    assert entry.origins["layers"] == "infcalc.yaml:7"
    gpu = catalog.gpu("mygpu").gpu
    assert gpu.cuda_total_estimated
    assert 9 * GIB < gpu.cuda_total_bytes < 10 * GIB
    assert catalog.gpu_names()[-1] == "my-gpu"


@pytest.mark.usefixtures("folder")
def test_like_starts_from_a_known_entry_without_its_names() -> None:
    _project("gpus:\n  h100-slow:\n    like: h100\n    bandwidth: 1 TB/s\n  h100-slower: {like: h100-slow, tdp: 9 W}\n")
    catalog = load_catalog()
    shipped, slow, slower = (catalog.gpu(name) for name in ("h100", "h100-slow", "h100-slower"))
    assert slow.gpu.peak_flop_per_s == shipped.gpu.peak_flop_per_s
    assert slow.gpu.bandwidth_bytes_per_s == 1e12
    assert slow.gpu.title == "h100-slow"
    assert shipped.gpu.bandwidth_bytes_per_s == 3.35e12
    assert slow.origins["bandwidth"] == "infcalc.yaml:4"
    assert (slower.gpu.bandwidth_bytes_per_s, slower.gpu.tdp_watt) == (1e12, 9)
    assert slower.origins["bandwidth"] == "infcalc.yaml:4"
    assert catalog.gpu("NVIDIA H100").gpu.name == "h100-sxm5-80gb"


@pytest.mark.usefixtures("folder")
def test_aliases_add_up() -> None:
    _project("gpus: {h100: {aliases: [ours]}}")
    catalog = load_catalog()
    assert catalog.gpu("ours").gpu.name == catalog.gpu("h100-80gb").gpu.name == "h100-sxm5-80gb"
    assert {"ours", "h100-80gb"} <= set(catalog.gpu("ours").gpu.aliases)


@pytest.mark.usefixtures("folder")
def test_an_alias_may_be_taken_from_the_shipped_catalog_but_not_a_name() -> None:
    _project("gpus: {my-h100: {like: h100, aliases: [h100]}}")
    assert load_catalog().gpu("h100").gpu.name == "my-h100"
    _project("gpus: {my-h100: {like: h100, aliases: [l4]}}")
    assert _faults() == ("infcalc.yaml:1: gpus.my-h100.aliases: 'l4' is already a name of 'l4'",)


@pytest.mark.usefixtures("folder")
def test_one_alias_for_two_entries_of_a_file_is_a_fault() -> None:
    _project("gpus:\n  one: {like: h100, aliases: [ours]}\n  two:\n    like: h100\n    aliases: [OURS]\n")
    assert _faults() == ("infcalc.yaml:5: gpus.two.aliases: 'OURS' is already a name of 'one'",)


def test_all_faults_of_all_files_come_at_once_with_line_and_key(folder: Path) -> None:
    _user(folder, "u.yaml", "gpu:\n  h100: {}\n")
    _project("gpus:\n  h100:\n    bandwidth: 3 GB\n    tdp: -4 W\n  new:\n    memory: 1 GiB\n")
    flag = _flag("x.yaml", MODEL.replace("num_kv_heads: 2", "num_kv_heads: 3").replace("512", "five"))
    place = f"{folder}/config/infcalc/u.yaml"
    assert sorted(fault.partition(": ")[0] + " " + fault.split(": ")[1] for fault in _faults(flag)) == sorted(
        [
            f"{place}:1 gpu",
            "infcalc.yaml:3 gpus.h100-sxm5-80gb.bandwidth",
            "infcalc.yaml:4 gpus.h100-sxm5-80gb.tdp",
            "infcalc.yaml:5 gpus.new.bandwidth",
            "infcalc.yaml:5 gpus.new.source",
            "infcalc.yaml:5 gpus.new.date",
            "x.yaml:5 models.tiny.hidden_size",
            "x.yaml:10 models.tiny.blocks.dense.mixer.num_kv_heads",
        ]
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("gpus: {new: {like: h1000}}", "1: gpus.new.like: unknown entry 'h1000'; did you mean"),
        ("gpus: {h100: {like: l4}}", "1: gpus.h100.like: 'h100' is already known"),
        ("gpus: {new: {like: [h100]}}", "1: gpus.new.like: expected the name of an entry, found a list"),
        ("gpus:\n- h100", "1: gpus: expected a mapping, found a list"),
        ("gpus:\n  h100: 4", "2: gpus.h100: expected a mapping, found 4"),
        ("- h100", "1: expected a mapping, found a list"),
        ("gpus:\n  4090: {tdp: 1 W}", "key 4090 is not text"),
        ("gpus: {'-': {like: h100}}", "a name needs letters or digits"),
        ("gpus:\n  h100:\n    tdp: 1 W\n    tdp: 2 W", "3: gpus.h100.tdp: key given twice, on lines 3 and 4"),
        ("gpus: {a: !!python/object:os.system {}}", "tag 'tag:yaml.org,2002:python/object:os.system' is not allowed"),
        ("gpus: {a: !x y}", "tag '!x' is not allowed"),
        ("gpus: &a {h100: *a}", "alias *a contains itself"),
        ("gpus: {h100: *b}", "alias *b has no anchor"),
        ("gpus: {h100: {tdp: 1 W}}\n---\ngpus: {}", "a second document"),
        ("gpus: {h100: [}", "1: not valid YAML"),
        ("gpus:\n\th100: {}", "2: not valid YAML"),
        ("gpus: {? [a]: 1}", "cannot be a key"),
        ("gpus: {h100: {<<: 4}}", "<< takes a mapping"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_wrong_is_said_with_its_line(text: str, fault: str) -> None:
    _project(text)
    found = _faults()
    assert any(fault in line and line.startswith("infcalc.yaml:") for line in found), found


@pytest.mark.usefixtures("folder")
def test_anchors_and_merge_keys_work() -> None:
    _project(
        "gpus:\n"
        "  one: &one {like: h100, tdp: 1 W, cache: 1 MiB}\n"
        "  two: {<<: *one, cache: 2 MiB}\n"
        "  three: {<<: [{num_sms: 7, like: l4}, *one]}\n"
    )
    catalog = load_catalog()
    one, two, three = (catalog.gpu(name).gpu for name in ("one", "two", "three"))
    assert (one.tdp_watt, one.cache_bytes) == (1, 2**20)
    assert (two.tdp_watt, two.cache_bytes) == (1, 2**21)
    assert (three.tdp_watt, three.num_sms, three.memory_bytes) == (1, 7, 24 * GIB)


@pytest.mark.usefixtures("folder")
def test_a_file_of_comments_only_is_no_overlay_unless_named() -> None:
    _project("# later\n")
    assert _bandwidth(load_catalog()) == 3.35e12


@pytest.mark.usefixtures("folder")
def test_overlay_entries_stay_unknown_to_other_loads() -> None:
    path = _flag("x.yaml", MODEL)
    assert load_catalog((path,)).model("tiny").model.name == "tiny"
    with pytest.raises(UnknownName):
        load_catalog().model("tiny")


@pytest.mark.usefixtures("folder")
def test_another_memory_drops_what_the_driver_reported_of_the_old_one() -> None:
    _project("gpus:\n  half:\n    like: h100\n    memory: 40 GiB\n    source: mine\n    date: 2026-01-01\n")
    gpu = load_catalog().gpu("half").gpu
    assert gpu.cuda_total_estimated
    assert 0.95 * 40 * GIB < gpu.cuda_total_bytes < 40 * GIB
    assert not load_catalog().gpu("h100").gpu.cuda_total_estimated
