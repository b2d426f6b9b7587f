from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infcalc import __version__, files
from infcalc.catalog.lookup import SECTIONS, catalog_from_compiled
from infcalc.errors import CatalogError, FileProblem, InfcalcError, UnknownName, UnsupportedArchitecture, UsageError
from infcalc.files import (
    check_target,
    compile_shipped,
    load_catalog,
    load_model,
    read_hub_model,
    read_model,
    read_text,
    write_text,
    yaml_text,
)

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT.parent / "shared" / "facts" / "hf_configs"

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "infcalc"


def _copies(cache: Path) -> list[Path]:
    return sorted(cache.glob("*")) if cache.exists() else []


def _problem(path: str | Path) -> FileProblem:
    with pytest.raises(FileProblem) as caught:
        load_catalog((str(path),))
    assert caught.value.exit_code == 2
    assert caught.value.place == str(path)
    return caught.value


# The compiled copy


def test_the_compiled_catalog_agrees_with_the_yaml_files(cache: Path) -> None:
    import yaml  # noqa: PLC0415

    compile_shipped(str(ROOT), str(cache.parent.parent / "catalog.json"))
    compiled = json.loads((cache.parent.parent / "catalog.json").read_text(encoding="utf-8"))
    header, rows = compiled[0], iter(compiled[1:])
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name in ("models.yaml", "gpus.yaml", "efficiency.yaml"):
        # BaseLoader keeps every scalar as text, so dates and numbers are compared as they are written.
        for section, entries in (yaml.load((ROOT / name).read_text("utf-8"), Loader=yaml.CBaseLoader) or {}).items():  # noqa: S506
            sections[section] |= entries or {}

    def as_text(value: Any) -> Any:  # noqa: ANN401
        match value:
            case dict():
                return {key: as_text(item) for key, item in value.items()}
            case list():
                return [as_text(item) for item in value]
            case bool() | None:
                return {True: "true", False: "false", None: "null"}[value]
            case _:
                return str(value)

    for section in SECTIONS:
        assert header["names"][section] == list(sections[section])
        for name in header["names"][section]:
            assert as_text(next(rows)) == sections[section][name], name
    assert next(rows, None) is None
    assert len(header["names"]["gpus"]) == 84


def test_the_second_load_reads_the_copy_and_parses_no_yaml(cache: Path) -> None:
    script = (
        "import sys; from infcalc.files import load_catalog; c = load_catalog(); c.gpu('h100');"
        "print(sorted({'yaml', 'numpy', 'rich', 'typer', 'pydantic', 'difflib', 'tempfile'} & set(sys.modules)))"
    )
    env = dict(os.environ)

    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", script], env=env, cwd=cache.parent.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert "yaml" in run()
    assert len(_copies(cache)) == 1
    assert run() == "[]"


@pytest.mark.parametrize("content", ["", "[1]\n", "{}", "\x00\x01", '[{"layout":1,"key":"other"}]\n', "[" * 100_000])
def test_a_useless_copy_is_replaced(cache: Path, content: str) -> None:
    gpus = load_catalog().gpu_names()
    (copy,) = _copies(cache)
    good = copy.read_text(encoding="utf-8")
    copy.write_text(content, encoding="utf-8")
    assert load_catalog().gpu_names() == gpus
    assert copy.read_text(encoding="utf-8") == good


def test_a_copy_whose_entries_are_damaged_is_an_error_not_a_crash(cache: Path) -> None:
    load_catalog()
    (copy,) = _copies(cache)
    copy.write_text(copy.read_text(encoding="utf-8").replace('{"title":"NVIDIA H100 SXM5', '{"title:"x'), "utf-8")
    with pytest.raises(FileProblem, match="damaged"):
        load_catalog().gpu("h100")


def test_a_cache_that_cannot_be_written_costs_only_time(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be", encoding="utf-8")
    assert load_catalog().gpu("h100").gpu.name == "h100-sxm5-80gb"
    assert cache.is_file()


def test_a_relative_cache_directory_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    load_catalog()
    assert not (cache.parent.parent / "here").exists()


def test_changed_sources_are_compiled_again(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("models.yaml", "gpus.yaml", "efficiency.yaml"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(files, "_HERE", str(tmp_path / "infcalc"))
    before = load_catalog().gpu("h100").gpu.bandwidth_bytes_per_s
    gpus = tmp_path / "gpus.yaml"
    gpus.write_text(gpus.read_text(encoding="utf-8").replace("3350 GB/s", "3351 GB/s"), encoding="utf-8")
    assert load_catalog().gpu("h100").gpu.bandwidth_bytes_per_s - before == 1e9
    assert len(_copies(cache)) == 1


def test_faults_of_the_shipped_files_are_told_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.yaml").write_text("models:\n  m: {hidden_size: x}\n", encoding="utf-8")
    (tmp_path / "gpus.yaml").write_text("gpus:\n  g:\n    memory: 3\n  h: 4\n", encoding="utf-8")
    (tmp_path / "efficiency.yaml").write_text("efficiencies:\n  e:\n    kernels: 1\n", encoding="utf-8")
    monkeypatch.setattr(files, "_HERE", str(tmp_path / "infcalc"))
    with pytest.raises(CatalogError) as caught:
        load_catalog()
    faults = caught.value.faults
    assert any(fault.startswith("models.yaml:2: models.m.hidden_size: ") for fault in faults)
    assert any(fault.startswith("gpus.yaml:3: gpus.g.memory: ") for fault in faults)
    assert any(fault.startswith("gpus.yaml:4: gpus.h: ") for fault in faults)
    assert any(fault.startswith("efficiency.yaml:3: efficiencies.e.kernels: ") for fault in faults)


def test_a_missing_catalog_says_to_install_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_HERE", str(tmp_path / "infcalc"))
    with pytest.raises(FileProblem, match="missing"):
        load_catalog()


def test_the_copy_of_a_wheel_is_taken_before_anything_else(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "infcalc" / "data"
    data.mkdir(parents=True)
    compile_shipped(str(ROOT), str(data / "catalog.json"))
    monkeypatch.setattr(files, "_HERE", str(tmp_path / "infcalc"))
    assert load_catalog().gpu("h100").gpu.name == "h100-sxm5-80gb"
    assert _copies(cache) == []
    assert catalog_from_compiled((data / "catalog.json").read_text(encoding="utf-8"), __version__) is not None


# Files that are no catalog


def test_a_missing_file(cache: Path) -> None:
    assert "no such file" in str(_problem(cache / "none.yaml"))
    assert "no such file" in str(_problem("none.yaml"))


def test_a_directory(tmp_path: Path) -> None:
    assert "directory" in str(_problem(tmp_path))


def test_a_name_with_a_zero_byte() -> None:
    with pytest.raises(FileProblem):
        load_catalog(("a\0b.yaml",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no entry"),
        (b"# nothing\n", "no entry"),
        (b"\xff\xfe\x00g\x00", "not a UTF-8 text"),
        (b"gpus: \x00", "zero bytes"),
        (b"gpus: \x01", "not a YAML text"),
        (b"[" * 100_000, None),
        (b"a: " * 100_000, None),
        (b"{a: " * 5_000, "nested more than"),
        (b"- " * 50_000, "nested more than"),
        (b"#" * (9 * 2**20), "larger than 8 MiB"),
    ],
)
def test_what_is_no_catalog_file_is_refused(tmp_path: Path, content: bytes, message: str | None) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    if message is None:
        with pytest.raises(CatalogError):
            load_catalog((str(path),))
    else:
        assert message in str(_problem(path))


def test_aliases_that_expand_to_billions_are_refused_quickly(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 30)]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert "aliases repeat" in str(_problem(path))


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfgpus: {h100: {tdp: 1 W}}")
    assert load_catalog((str(path),)).gpu("h100").gpu.tdp_watt == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("gpus: {}", encoding="utf-8")
    path.chmod(0)
    assert "permission denied" in str(_problem(path))


# Text in and out


def test_text_is_written_in_one_step_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    write_text(str(path), "grüße\n")
    write_text(str(path), "bye\n")
    assert read_text(str(path)) == "bye\n"
    assert [item.name for item in tmp_path.iterdir()] == ["out.txt"]


def test_writing_keeps_the_mode_and_follows_links(tmp_path: Path) -> None:
    path, link = tmp_path / "out.txt", tmp_path / "link.txt"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o600)
    link.symlink_to(path)
    write_text(str(link), "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600


def test_writing_to_a_device(tmp_path: Path) -> None:
    del tmp_path
    write_text(os.devnull, "text")
    assert Path(os.devnull).exists()


@pytest.mark.parametrize("path", ["none/out.txt", ".", "a\0b"])
@pytest.mark.usefixtures("cache")
def test_what_cannot_be_written_says_why(path: str) -> None:
    with pytest.raises(FileProblem) as caught:
        write_text(path, "text")
    assert caught.value.exit_code == 2


def test_yaml_text_keeps_the_order_of_keys() -> None:
    assert yaml_text({"b": 1, "a": {"rows": [1, 2]}}) == "b: 1\na:\n  rows: [1, 2]\n"


# Models on disk


def _checkpoint(folder: Path, *, scale: int = 1) -> None:
    """Write a checkpoint of CONFIG with safetensors headers but no data, its embedding ``scale`` times too tall."""
    shapes = {"model.embed_tokens.weight": [1000 * scale, 256], "model.norm.weight": [256]}
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.self_attn.q_proj.weight": [256, 256],
            f"{prefix}.self_attn.k_proj.weight": [128, 256],
            f"{prefix}.self_attn.v_proj.weight": [128, 256],
            f"{prefix}.self_attn.o_proj.weight": [256, 256],
            f"{prefix}.mlp.gate_proj.weight": [512, 256],
            f"{prefix}.mlp.up_proj.weight": [512, 256],
            f"{prefix}.mlp.down_proj.weight": [256, 512],
            f"{prefix}.input_layernorm.weight": [256],
            f"{prefix}.post_attention_layernorm.weight": [256],
        }
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")


def test_a_config_file_alone_gives_the_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    model, warnings = read_model(str(path))
    assert (model.name, model.num_layers, model.hidden_size) == ("mine", 2, 256)
    assert warnings == ()


def test_a_checkpoint_folder_is_named_after_itself_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    _checkpoint(folder)
    model, warnings = read_model(str(folder))
    assert model.name == "My-Model"
    assert warnings == ()
    assert read_model(str(folder) + "/")[0].name == "My-Model"
    assert read_model(str(folder / "config.json"))[0].name == "My-Model"


def test_headers_that_contradict_the_config_warn(tmp_path: Path) -> None:
    _checkpoint(tmp_path, scale=2)
    _, warnings = read_model(str(tmp_path))
    assert warnings
    assert all(str(tmp_path) in warning for warning in warnings)


def test_a_sidecar_states_the_precision(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    sidecar = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(sidecar), encoding="utf-8")
    for path in (tmp_path, tmp_path / "config.json"):
        model, _ = read_model(str(path))
        assert model.kv_dtype == "fp8"
        assert model.quantization is not None


def test_an_index_alone_is_checked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    index = {
        "metadata": {"total_size": 10**9},
        "weight_map": {"model.embed_tokens.weight": "model-00001-of-1.safetensors"},
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert read_model(str(tmp_path))[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.json", None, "no such file"),
        ("x.json", b"", "empty"),
        ("x.json", b"{", "not JSON"),
        ("x.json", b"[1]", "not an object"),
        ("x.json", b"\x80\x81", "not"),
        ("x.json", b"[" * 100_000, "nested too deeply"),
        ("x.gguf", b"", "ends at byte 0"),
        ("x.gguf", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64, ""),
        ("none.gguf", None, "no such file"),
        ("x.safetensors", b"12345678", "weights alone"),
    ],
)
def test_a_damaged_model_file_is_a_file_problem(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileProblem) as caught:
        read_model(str(path))
    assert message in str(caught.value)
    assert name in str(caught.value)


def test_a_folder_without_config_names_the_gguf_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(FileProblem, match=r"model\.gguf"):
        read_model(str(tmp_path))


def test_a_truncated_safetensors_file_is_a_file_problem(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1000) + b"{")
    with pytest.raises(FileProblem):
        read_model(str(tmp_path))


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(CONFIG | {"model_type": "wonder"}), encoding="utf-8")
    with pytest.raises(UnsupportedArchitecture):
        read_model(str(path))


@pytest.mark.skipif(not CONFIGS.exists(), reason="the collected configs are not beside this checkout")
def test_every_collected_config_gives_a_model_or_a_reasoned_refusal() -> None:
    read = 0
    for path in sorted(CONFIGS.glob("*.json")):
        try:
            model, _ = read_model(str(path))
        except InfcalcError as refusal:
            assert refusal.message  # noqa: PT017
            continue
        read += 1
        assert model.num_layers > 0
    assert read > 20


# What --model means


def test_a_path_is_read_and_every_key_comes_from_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    entry = load_model(load_catalog(), str(path))
    assert entry.model.name == "mine"
    assert set(entry.origins.values()) == {str(path)}
    assert entry.origins["layers"] == str(path)


@pytest.mark.usefixtures("cache")
def test_an_existing_relative_path_with_separator_is_read() -> None:
    Path("org/name").mkdir(parents=True)
    Path("org/name/config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert load_model(load_catalog(), "org/name").model.name == "name"


@pytest.mark.parametrize("name", ["./none", "none.json", "none.gguf", "/none/x", "~/none-such/x"])
@pytest.mark.usefixtures("cache")
def test_a_missing_path_is_a_file_problem(name: str) -> None:
    with pytest.raises(FileProblem, match="no such file"):
        load_model(load_catalog(), name)


@pytest.mark.usefixtures("cache")
def test_an_unknown_hub_id_without_the_extra_is_a_file_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "has_hub", lambda: False)
    with pytest.raises(FileProblem, match=r"infcalc\[hub\]") as caught:
        load_model(load_catalog(), "nobody/no-such-model-here")
    assert caught.value.exit_code == 2


@pytest.mark.usefixtures("cache")
def test_an_unknown_plain_name_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName) as caught:
        load_model(load_catalog(), "no-such-model-here")
    assert caught.value.exit_code == 5


# The hub


class EntryNotFoundError(Exception):
    """Named as the library names it."""


class FakeHub:
    """Answers like the hub library, from a folder."""

    def __init__(self, folder: Path, failure: Exception | None = None) -> None:
        self.folder = folder
        self.failure = failure
        self.asked: list[str] = []

    def hf_hub_download(self, repo_id: str, name: str) -> str:
        """Return the path of a file, as a download would."""
        assert repo_id == "org/name"
        self.asked.append(name)
        if self.failure:
            raise self.failure
        if not (self.folder / name).exists():
            raise EntryNotFoundError(name)
        return str(self.folder / name)


def _install(monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> None:
    monkeypatch.setattr(files, "has_hub", lambda: True)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


def test_a_hub_model_needs_three_small_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    hub = FakeHub(tmp_path)
    _install(monkeypatch, hub)
    model, _ = read_hub_model("org/name")
    assert model.name == "name"
    assert hub.asked == ["config.json", "hf_quant_config.json", "model.safetensors.index.json"]
    assert load_model(load_catalog(), "org/name").origins["layers"] == "org/name"


@pytest.mark.parametrize("failure", [OSError("network is down"), ValueError(""), RuntimeError("401 gated\nmore")])
def test_a_hub_that_does_not_answer_is_a_file_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    _install(monkeypatch, FakeHub(tmp_path, failure))
    with pytest.raises(FileProblem, match="cannot be fetched") as caught:
        read_hub_model("org/name")
    assert "more" not in str(caught.value)


def test_a_repository_without_config_is_a_file_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, FakeHub(tmp_path))
    with pytest.raises(FileProblem, match=r"no config\.json"):
        read_hub_model("org/name")


def test_without_the_extra_the_hint_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "has_hub", lambda: False)
    with pytest.raises(UsageError, match=r"infcalc\[hub\]"):
        read_hub_model("org/name")


def test_a_folder_that_takes_no_files_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_target(str(tmp_path / "x.csv"))
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == os.path.realpath(tmp_path) and mode == os.W_OK))
    with pytest.raises(FileProblem, match="no file can be written to the folder"):
        check_target(str(tmp_path / "x.csv"))
    check_target("/dev/null")
