from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from infcalc.api.deployment import Ask
from infcalc.api.launch_ask import LaunchAsk
from infcalc.api.launching import launch
from infcalc.report.terminal import show
from infcalc.report.views import launch as views
from tests.journeys.command import answer, infcalc


def test_without_options_the_reference_scenario_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    result = answer(capsys, "launch").result
    assert result["command"].startswith("vllm serve meta-llama/Meta-Llama-3-70B \\\n")
    flags = {one["flag"]: one for one in result["flags"]}
    assert flags["--tensor-parallel-size"]["value"] == 4
    assert flags["--gpu-memory-utilization"]["value"] == 0.92
    assert all(one["why"] and one["meaning"] and one["source"] for one in flags.values())
    assert [one["target"] for one in result["files"]] == ["shell", "python", "docker", "kubernetes", "kserve"]


def test_a_target_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    ran = infcalc(capsys, "launch", "--target", "kubernetes")
    assert ran.code == 0
    assert "kind: Deployment" in ran.out
    assert "kind: LLMInferenceService" not in ran.out
    every = infcalc(capsys, "launch").out
    assert "kind: Deployment" not in every
    assert "kubernetes.yaml" in every


def test_a_narrow_terminal_cuts_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    found = launch(Ask(), LaunchAsk(num_prefill_replicas=1))
    show(views.view(found), out)
    assert found.result.command in out.getvalue()


@pytest.mark.parametrize("form", ["markdown", "csv"])
def test_other_formats_hold_the_same_options(capsys: pytest.CaptureFixture[str], form: str) -> None:
    flags = answer(capsys, "launch").result["flags"]
    out = infcalc(capsys, "launch", "--format", form).out
    assert all(one["flag"] in out and str(one["value"]) in out for one in flags)


def test_files_are_saved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "start"
    ran = infcalc(capsys, "launch", "--save", str(folder), "--engine", "sglang", "--json")
    assert ran.code == 0
    names = {"serve.sh", "serve.py", "docker.sh", "kubernetes.yaml", "kserve.yaml"}
    assert {file.name for file in folder.iterdir()} == names
    assert ran.err.count("wrote ") == len(names)
    saved = {one["name"]: one["content"] for one in ran.result["files"]}
    for file in folder.iterdir():
        assert file.read_text(encoding="utf-8") == saved[file.name]


def test_a_folder_that_is_a_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    ran = infcalc(capsys, "launch", "--save", str(file))
    assert ran.code == 2
    assert "the folder cannot be made" in ran.err


def test_what_does_not_fit_says_what_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "start"
    ran = infcalc(capsys, "launch", "-g", "h100", "-n", "1", "--save", str(folder))
    assert ran.code == 3
    assert "per GPU are missing" in ran.out
    assert "--gpus 2 (TP 2)" in ran.out
    assert not folder.exists()
    assert answer(capsys, "launch", "-g", "h100", "-n", "1", code=3).result["command"] == ""


def test_a_model_on_disk_is_started_from_its_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = (
        '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, '
        '"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, '
        '"max_position_embeddings": 8192, "torch_dtype": "bfloat16"}'
    )
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    result = answer(capsys, "launch", "-m", str(tmp_path / "config.json"), "-g", "h100", "-n", "1").result
    assert result["model_id"] == str(tmp_path)
    files = {one["name"]: one["content"] for one in result["files"]}
    assert f"-v {tmp_path}:/models:ro" in files["docker.sh"]
    pod = next(yaml.safe_load_all(files["kubernetes.yaml"]))["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"] == ["vllm", "serve", "/models"]
    assert {"name": "models", "hostPath": {"path": str(tmp_path), "type": "Directory"}} in pod["volumes"]
    assert "kserve.yaml" not in files


def test_drafting_and_pairs_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    looked_up = answer(capsys, "launch", "--method", "ngram", "--num-draft-tokens", "5").result["command"]
    assert '"method": "ngram"' in looked_up
    assert '"num_speculative_tokens": 5' in looked_up
    headed = answer(capsys, "launch", "--draft-model", "llama3-70b-eagle3").result["command"]
    assert '"method": "eagle3"' in headed
    assert "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3" in headed
    pair = answer(capsys, "launch", "--prefill-replicas", "1", "--replicas", "2").result
    assert pair["command"].count("vllm serve") == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--target", "helm"), 2, "is not a target"),
        (("--port", "70000"), 2, "out of range"),
        (("--method", "mtp"), 2, "--mtp-tokens"),
        (("--engine", "vlm"), 5, "did you mean vllm"),
        (("--format", "plot", "--output", "x.png"), 2, "has no plot"),
        (("--replicas", "0"), 2, "--replicas"),
    ],
)
def test_mistakes_are_told(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    ran = infcalc(capsys, "launch", *arguments)
    assert ran.code == code
    assert said in ran.err
