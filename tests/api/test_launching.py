from __future__ import annotations

import ast
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc.api.comparing import compare_text
from infcalc.api.deployment import Ask
from infcalc.api.filling import memory
from infcalc.api.launch_ask import LaunchAsk
from infcalc.api.launching import LaunchResult, launch
from infcalc.engines.flags.table import FLAGS, version_of
from infcalc.engines.rules import ENGINES
from infcalc.errors import UsageError
from tests.api.launches import file_of, launches, words_of
from tests.engines.flags.names import BESIDE, BROUGHT, REFERENCE, names_in

FIGURES = {
    "vllm": "INFO Available KV cache memory: 1.00 GiB",
    "sglang": "KV Cache is allocated. #tokens: 1000, K size: 1.00 GB, V size: 1.00 GB",
    "tensorrt-llm": "[TensorRT-LLM][INFO] Allocated 1.00 GiB for max tokens in paged KV cache (1000).",
    "llama.cpp": "llama_kv_cache:      CUDA0 KV buffer size =   100.00 MiB",
}
"""A line with which a log of the engine is worth comparing; its figure is measured, and predicts nothing."""


# Only options that the version has


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_is_in_the_table_of_the_version(engine: str) -> None:
    for result in launches(engine):
        at = version_of(engine, result.engine_version)
        for one in result.flags:
            assert FLAGS[engine][one.flag].known_at(at), (one.flag, result.engine_version)
            assert one.why, one.flag
            assert one.meaning


@pytest.mark.parametrize(("engine", "name", "before", "since"), BROUGHT)
def test_no_release_is_given_an_option_that_came_after_it(engine: str, name: str, before: str, since: str) -> None:
    # By what was read in the releases, not by the table that options are written from.
    older = [one for one in launches(engine) if version_of(engine, one.engine_version) <= version_of(engine, before)]
    newer = [one for one in launches(engine) if version_of(engine, one.engine_version) >= version_of(engine, since)]
    assert not [one for one in older if name in {flag.flag for flag in one.flags}]
    assert all(name not in text for one in older for text in (one.command, *(file.content for file in one.files)))
    # One that nothing asks for in the grid would be absent for another reason.
    asked = [one for one in newer if name in {flag.flag for flag in one.flags}]
    assert asked or name == "--language-model-only"


def test_an_option_that_is_not_held_against_the_table_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the test over all versions rests on: without the check, older versions get what they do not have.
    monkeypatch.setattr("infcalc.engines.launch.want.why_absent", lambda *_: "")
    result = launch(Ask(models=("llama3.1-8b",), gpus=("h100",), dp=2, tp=1, engine_version="0.6.6")).result
    at = version_of("vllm", result.engine_version)
    assert [one.flag for one in result.flags if not FLAGS["vllm"][one.flag].known_at(at)] == ["--data-parallel-size"]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_is_named_by_the_reference_on_engines(engine: str) -> None:
    if not REFERENCE.exists():
        pytest.skip(f"the shared reference on engines is not at {REFERENCE}")
    known = names_in(REFERENCE.read_text(encoding="utf-8"))
    beside = BESIDE[engine].split()
    emitted = {one.flag for result in launches(engine) for one in result.flags} - set(beside)
    assert len(emitted) >= 8
    assert not [name for name in emitted if not set([name] if name.startswith("-") else name.split(".")) <= known]


def test_what_a_version_does_not_have_is_left_out_and_told() -> None:
    result = launch(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, engine_version="0.10.2", kv_offload_bytes=2**34))
    told = "--kv-offloading-size 16 is left out: vllm 0.10.2 does not have it (it came with 0.11.1)"
    assert told in result.warnings
    assert "--kv-offloading" not in result.result.command


@pytest.mark.parametrize(
    ("version", "written"),
    [("0.5.21", ["--dp-size", "4", "--enable-dp-attention"]), ("0.5.23", ["--attn-dp-size", "4"])],
)
def test_an_option_with_another_name_is_replaced(version: str, written: list[str]) -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h200",), tp=2, dp=4, ep=8, engine="sglang", engine_version=version)
    words = words_of(launch(ask).result, "server")
    start = words.index(written[0])
    assert words[start : start + len(written)] == written
    assert words[:4] == ["--model-path", "deepseek-ai/DeepSeek-V3", "--tp-size", "8"]


# What is written is what was counted


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    "ask",
    [
        Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1),
        Ask(models=("llama3.1-8b",), gpus=("h100",), tp=2, kv_dtypes=("fp8",), weights="fp8", max_num_seqs=64),
        Ask(models=("llama3.1-8b",), gpus=("a100",), pp=2, max_model_len=16384, memory_fraction=0.85, block_size=32),
        Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, enforce_eager=True, cpu_offload_bytes=2**30, lora_rank=16),
        Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, max_num_batched_tokens=4096, engine_version="0.5.6"),
        Ask(models=("deepseek-v3",), gpus=("h200",), tp=2, dp=4, ep=8),
        Ask(models=("deepseek-v3",), gpus=("h200",), tp=8, ep=8, num_draft_tokens=1),
        Ask(models=("qwen3-30b-a3b",), gpus=("h100",), tp=4, ep=4, kv_dtypes=("fp8",)),
    ],
    ids=lambda ask: f"{ask.models[0]}-{ask.tp or ask.pp}",
)
def test_the_command_read_again_has_the_same_ledger(engine: str, ask: Ask) -> None:
    ask = replace(ask, engine=engine)
    answer = launch(ask)
    text = f"{one_line(answer.result)}\n{FIGURES[engine]}\n"
    again = compare_text(text, Ask(gpus=ask.gpus, engine=engine, engine_version=answer.result.engine_version))
    book = memory(ask).result

    predicted = {line.quantity: line.predicted for line in again.result.lines}
    assert predicted["kv_pool_bytes"] == book.kv_pool_bytes == answer.result.kv_pool_bytes
    assert predicted["weights_bytes"] == book.weights_bytes
    asked = {item.name: item.value for item in answer.inputs if item.name != "contexts"}
    read = {item.name: item.value for item in again.inputs}
    assert {name: read.get(name) for name in asked} == asked


def test_a_command_of_llama_cpp_read_again_has_the_same_cells() -> None:
    ask = Ask(
        models=("llama3.1-8b",), gpus=("h100",), num_gpus=1, engine="llama.cpp", weights="q8_0", kv_dtypes=("q8_0",)
    )
    answer = launch(replace(ask, max_num_seqs=4, max_model_len=32768))
    text = f"{one_line(answer.result)}\n{FIGURES['llama.cpp']}\n"
    again = compare_text(text, Ask(gpus=ask.gpus, engine="llama.cpp"))
    predicted = {line.quantity: line.predicted for line in again.result.lines}
    assert (
        predicted["kv_pool_bytes"] == memory(replace(ask, max_num_seqs=4, max_model_len=32768)).result.kv_buffer_bytes
    )


def test_tensorrt_llm_reads_the_rest_from_its_yaml() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h200",), tp=2, dp=4, ep=8, kv_dtypes=("fp8",), engine="tensorrt-llm")
    result = launch(replace(ask, block_size=64, num_draft_tokens=2)).result
    config = yaml.safe_load(file_of(result, "config.yaml") or "")
    assert config == {
        "enable_attention_dp": True,
        "kv_cache_config": {"dtype": "fp8", "tokens_per_block": 64},
        "enable_chunked_prefill": True,
        "speculative_config": {"decoding_type": "MTP", "max_draft_len": 2},
    }
    assert words_of(result, "server")[-2:] == ["--config", "config.yaml"]
    assert words_of(result, "server")[:4] == ["--tp_size", "8", "--ep_size", "8"]
    # Where prompts fit into a step, they need not be cut.
    short = launch(replace(ask, max_model_len=4096)).result
    assert "enable_chunked_prefill" not in yaml.safe_load(file_of(short, "config.yaml") or "")


def test_a_file_of_several_targets_is_told_with_the_first() -> None:
    ask = Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, kv_dtypes=("fp8",), engine="tensorrt-llm")
    told = {file.name: file.target for file in launch(ask).result.files}
    assert told["config.yaml"] == told["serve.sh"] == "shell"
    assert list(told) == ["serve.sh", "config.yaml", "serve.py", "docker.sh", "kubernetes.yaml", "kserve.yaml"]


def test_reasons_hold_the_numbers_of_the_ledger() -> None:
    ask = Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, kv_dtypes=("fp8",))
    book = memory(ask).result
    why = {one.flag: one.why for one in launch(ask).result.flags}
    assert f"{book.sequences:,} sequences of 4,096 tokens" in why["--max-num-seqs"]
    assert "KV in fp8" in why["--kv-cache-dtype"]
    assert f"{book.kv_pool_bytes / 2**30:.1f} GiB" in why["--gpu-memory-utilization"]
    named = LaunchAsk(reasons=(("max_num_seqs", "100 users"),))
    assert {one.flag: one.why for one in launch(ask, named).result.flags}["--max-num-seqs"] == "100 users"


# Texts are what they claim to be


@pytest.mark.parametrize("engine", ENGINES)
def test_commands_are_words_of_a_shell(engine: str) -> None:
    for result in launches(engine):
        roles = dict.fromkeys(one.role for one in result.flags)
        expected = [words_of(result, role) for role in roles]
        found = [shlex.split(text) for text in commands(result)]
        assert len(found) == len(expected)
        for words, options in zip(found, expected, strict=True):
            assert words[-len(options) :] == options
            assert len(words) > len(options)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["serve.sh", "docker.sh"])
def test_scripts_are_valid_shell(engine: str, name: str) -> None:
    texts = {text for result in launches(engine) if (text := file_of(result, name))}
    assert len(texts) > 5
    for text in texts:
        ran = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
        assert ran.returncode == 0, f"{ran.stderr}\n{text}"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_snippets_are_valid_python_with_the_same_settings(engine: str) -> None:
    texts = {text for result in launches(engine) if (text := file_of(result, "serve.py"))}
    assert len(texts) > 10
    for text in texts:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        made = next(call for call in calls if {"model", "model_path"} & {word.arg for word in call.keywords})
        values = {word.arg: ast.unparse(word.value) for word in made.keywords}
        assert len(values) == len(made.keywords) > 3


@pytest.mark.parametrize("engine", ENGINES)
def test_manifests_are_valid_and_agree_with_the_options(engine: str) -> None:
    read = 0
    for result in launches(engine):
        text = file_of(result, "kubernetes.yaml")
        if text is None:
            continue
        read += 1
        objects: list[dict[str, Any]] = list(yaml.safe_load_all(text))
        workloads = [one for one in objects if one["kind"] in {"Deployment", "LeaderWorkerSet"}]
        services = [one for one in objects if one["kind"] == "Service"]
        assert len(workloads) == len(services) == 1 + (result.num_prefill_replicas > 0)
        assert sum(one["spec"]["replicas"] for one in workloads) == result.num_replicas + result.num_prefill_replicas
        for one, service in zip(workloads, services, strict=True):
            pods = pods_of(one)
            assert sum(gpus_of(pod) for pod in pods) == result.num_gpus
            first = pods[0]["spec"]["containers"][0]
            labels = pods[0]["metadata"]["labels"].items()
            assert service["spec"]["selector"].items() <= labels
            if one["kind"] == "Deployment":
                assert one["spec"]["selector"]["matchLabels"].items() <= labels
            assert all(isinstance(word, str) for word in (*first["command"], *first["args"]))
            assert {"--host", "0.0.0.0"} <= set(first["args"])  # noqa: S104 - inside a container
            assert_served(pods[0], service)
    assert read > 5


def test_kserve_services_hold_ranks_as_fields_and_the_rest_as_arguments() -> None:
    read = 0
    for result in launches("vllm"):
        text = file_of(result, "kserve.yaml")
        assert text is not None
        service: dict[str, Any] = yaml.safe_load(text)
        body = service["spec"]
        assert service["apiVersion"] == "serving.kserve.io/v1alpha2"
        assert body["replicas"] == result.num_replicas
        assert ("prefill" in body) is (result.num_prefill_replicas > 0)
        (variable,) = body["template"]["containers"][0]["env"]
        arguments = shlex.split(variable["value"])
        role = "decode" if result.num_prefill_replicas else "server"
        every = words_of(result, role)
        assert set(arguments) <= set(every)
        assert "--max-model-len" in arguments
        assert "--port" not in arguments
        read += 1
    assert read > 100


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm"])
def test_kserve_services_of_other_engines_are_the_pods_of_their_deployments(engine: str) -> None:
    """But for the name of the container, which KServe looks for; without a service for pairs and several machines."""
    read = with_config = 0
    for result in launches(engine):
        text, plain_text = file_of(result, "kserve.yaml"), file_of(result, "kubernetes.yaml")
        several = "LeaderWorkerSet" in (plain_text or "")
        if plain_text is None or several or result.num_prefill_replicas:
            assert text is None
            continue
        assert text is not None
        *configs, service = yaml.safe_load_all(text)
        objects: list[dict[str, Any]] = list(yaml.safe_load_all(plain_text))
        deployment = next(one for one in objects if one["kind"] == "Deployment")["spec"]
        assert configs == [one for one in objects if one["kind"] == "ConfigMap"]
        assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
        predictor = service["spec"]["predictor"]
        assert predictor.pop("minReplicas") == predictor.pop("maxReplicas") == deployment["replicas"]
        assert [one["name"] for one in predictor["containers"]] == ["kserve-container"]
        predictor["containers"][0]["name"] = deployment["template"]["spec"]["containers"][0]["name"]
        assert predictor == deployment["template"]["spec"]
        read += 1
        with_config += bool(configs)
    assert read > 20
    assert (with_config > 0) is (engine == "tensorrt-llm")


HOSTILE = (
    "a b; rm -rf $HOME'\"`id`",
    "$(touch owned)",
    "$(HF_TOKEN)",
    "$HEAD",
    "$$(HF_TOKEN)",
    "x\n# y",
    "a\\b\tc",
    "*",
    "#no",
    "!!",
    "\u65e5\u672c",
)
_PROGRAMS = ("vllm", "python", "docker", "trtllm-serve", "llama-server")


def words_run(script: str, place: Path) -> list[list[str]]:
    """Run a script whose programs only write down their words, and return those of each."""
    for name in _PROGRAMS:
        program = place / name
        program.write_text('#!/bin/sh\nprintf "%s\\0" "$@" "" >> "$WORDS"\n', encoding="utf-8")
        program.chmod(0o755)
    told = place / "words"
    told.unlink(missing_ok=True)
    ran = subprocess.run(
        ["sh", "-c", script],
        cwd=place,
        env={"PATH": f"{place}:/usr/bin:/bin", "HOME": "/home", "WORDS": str(told), "HEAD": "the.head"},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not (place / "owned").exists()
    return [part.split("\0") for part in told.read_bytes().decode().split("\0\0") if part]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_are_hostile_stay_words(engine: str, name: str, tmp_path: Path) -> None:
    weights = "q8_0" if engine == "llama.cpp" else None
    ask = Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, num_gpus=1, engine=engine, weights=weights)
    if engine == "llama.cpp":
        ask = replace(ask, tp=None)
    answer = launch(ask, LaunchAsk(model_id=name, served_name=name))
    result = answer.result
    # TensorRT-LLM is not given the name, and that is said.
    often = 1 if engine == "tensorrt-llm" else 2
    assert often == 2 or any("--served-name is left out" in text for text in answer.warnings)
    for script in ("serve.sh", "docker.sh"):
        (words,) = words_run(file_of(result, script) or "", tmp_path)
        assert words.count(name) == often, script
    (container,) = next(
        one for one in yaml.safe_load_all(file_of(result, "kubernetes.yaml") or "") if one["kind"] == "Deployment"
    )["spec"]["template"]["spec"]["containers"]
    words = [expanded(word) for word in (*container["command"], *container["args"])]
    assert words.count(name) == often
    snippet = file_of(result, "serve.py")
    if snippet is not None:
        compile(snippet, "serve.py", "exec")
        assert name in {node.value for node in ast.walk(ast.parse(snippet)) if isinstance(node, ast.Constant)}
    # KServe fills templates and variables in its fields: such names get no service.
    assert file_of(result, "kserve.yaml") is None


def expanded(word: str) -> str:
    """Return what Kubernetes makes of a word in a container that has a token, and nothing else, in its variables."""
    out, at = "", 0
    while at < len(word):
        if word.startswith("$$", at):
            out, at = out + "$", at + 2
        elif word.startswith("$(HF_TOKEN)", at):
            out, at = out + "the-token", at + len("$(HF_TOKEN)")
        else:
            out, at = out + word[at], at + 1
    return out


@pytest.mark.parametrize(("engine", "port"), [("vllm", "8000"), ("sglang", "30000"), ("tensorrt-llm", "8000")])
def test_a_container_has_gpus_shared_memory_the_token_and_the_cache_of_the_hub(
    engine: str, port: str, tmp_path: Path
) -> None:
    ask = Ask(models=("llama3.1-8b",), gpus=("h100",), tp=2, engine=engine)
    (words,) = words_run(file_of(launch(ask).result, "docker.sh") or "", tmp_path)
    before = words[: words.index("--entrypoint")]
    assert words[0] == "run"
    # Docker takes a list of devices in quotes of its own.
    assert before[before.index("--gpus") + 1] == '"device=0,1"'
    assert {"--ipc=host", "-e", "HF_TOKEN"} <= set(before)
    assert before[before.index("-p") + 1] == f"{port}:{port}"
    assert "/home/.cache/huggingface:/root/.cache/huggingface" in before


def test_only_the_address_that_a_user_sets_is_expanded(tmp_path: Path) -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h100",), tp=8, pp=2, max_model_len=32768)
    script = file_of(launch(ask, LaunchAsk(served_name="$HEAD")).result, "serve.sh") or ""
    (words,) = words_run(f"MACHINE=1\n{script}", tmp_path)
    assert words[words.index("--master-addr") + 1] == "the.head"
    assert words[words.index("--served-model-name") + 1] == "$HEAD"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (LaunchAsk(model_id="--trust-remote-code"), "'--trust-remote-code' would be read as an option"),
        (LaunchAsk(model_id=" "), "' ' is no name"),
        (LaunchAsk(served_name=""), "'' is no name"),
        (LaunchAsk(served_name="-x"), "'-x' would be read as an option"),
    ],
)
def test_names_that_no_command_could_take_are_refused(how: LaunchAsk, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        launch(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1), how)


def test_a_model_at_home_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # Quoted, no shell does that.
    monkeypatch.setenv("HOME", "/home/me")
    result = launch(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1), LaunchAsk(model_id="~/m")).result
    assert result.command.startswith("vllm serve /home/me/m ")
    assert "-v /home/me/m:/models:ro" in (file_of(result, "docker.sh") or "")


def test_a_colon_in_a_path_parts_no_mount() -> None:
    result = launch(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1), LaunchAsk(model_id="/data/a:b")).result
    assert "--mount type=bind,source=/data/a:b,target=/models,readonly" in (file_of(result, "docker.sh") or "")


@pytest.mark.parametrize(
    ("engine", "version", "gpu", "image"),
    [
        ("vllm", "0.33", "h100", "vllm/vllm-openai:v0.33.0"),
        ("vllm", "0.8.5", "h100", "vllm/vllm-openai:v0.8.5"),
        ("vllm", "0.14", "mi300x", "vllm/vllm-openai-rocm:v0.14.0"),
        ("sglang", "0.4.6", "h100", "lmsysorg/sglang:v0.4.6-cu124"),
        ("sglang", "0.5.2", "h100", "lmsysorg/sglang:v0.5.2-cu126"),
        ("sglang", "0.5.4", "h100", "lmsysorg/sglang:v0.5.4"),
        ("sglang", None, "h100", "lmsysorg/sglang:v0.5.23"),
        ("tensorrt-llm", "1.1", "h100", "nvcr.io/nvidia/tensorrt-llm/release:1.1.0"),
        ("llama.cpp", None, "h100", "ghcr.io/ggml-org/llama.cpp:server-cuda"),
        ("llama.cpp", None, "mi300x", "ghcr.io/ggml-org/llama.cpp:server-rocm"),
    ],
)
def test_images_are_those_that_are_published(engine: str, version: str | None, gpu: str, image: str) -> None:
    weights = "q8_0" if engine == "llama.cpp" else None
    ask = Ask(models=("llama3.1-8b",), gpus=(gpu,), num_gpus=1, engine=engine, engine_version=version, weights=weights)
    result = launch(ask).result
    assert image in (file_of(result, "docker.sh") or "").split()
    (container,) = next(
        one for one in yaml.safe_load_all(file_of(result, "kubernetes.yaml") or "") if one["kind"] == "Deployment"
    )["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    # Its folder is not on the PATH of the image.
    assert engine != "llama.cpp" or container["command"] == ["/app/llama-server"]


def test_a_release_without_an_image_says_so() -> None:
    answer = launch(Ask(models=("llama3.1-8b",), gpus=("mi300x",), tp=1, engine_version="0.10.2"))
    assert file_of(answer.result, "docker.sh") is None
    assert any("begins with v0.14.0" in text for text in answer.result.notes)


# Replicas, machines and pairs


def test_replicas_of_one_machine_have_gpus_and_ports_of_their_own() -> None:
    result = launch(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=2), LaunchAsk(num_replicas=6)).result
    script = file_of(result, "serve.sh") or ""
    assert script.count("CUDA_VISIBLE_DEVICES=") == 4
    assert "CUDA_VISIBLE_DEVICES=6,7 vllm serve" in script
    assert [port for port in range(7999, 8006) if f"--port {port}" in script] == [8000, 8001, 8002, 8003]
    assert "2 machines in all" in script


def test_a_replica_over_two_machines_numbers_them() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h100",), tp=8, pp=2, max_model_len=32768)
    result = launch(ask).result
    assert {"--nnodes", "--master-addr", "$HEAD"} <= set(shlex.split(result.command))
    leader, worker = pods_of(next(yaml.safe_load_all(file_of(result, "kubernetes.yaml") or "")))
    assert "$(LWS_LEADER_ADDRESS)" in leader["spec"]["containers"][0]["args"]
    args = worker["spec"]["containers"][0]["args"]
    assert args[args.index("--node-rank") + 1] == "$(LWS_WORKER_INDEX)"
    assert "--headless" in args


def test_ranks_of_data_parallelism_are_dealt_out_to_machines() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h200",), tp=1, dp=16, ep=16)
    result = launch(ask).result
    script = file_of(result, "serve.sh") or ""
    assert "--data-parallel-size-local 8" in script
    assert "--data-parallel-start-rank 8" in script
    kserve = yaml.safe_load(file_of(result, "kserve.yaml") or "")
    assert kserve["spec"]["parallelism"] == {"tensor": 1, "data": 16, "dataLocal": 8, "expert": True}
    assert "worker" in kserve["spec"]
    _, worker = pods_of(next(yaml.safe_load_all(file_of(result, "kubernetes.yaml") or "")))
    container = worker["spec"]["containers"][0]
    assert container["command"][2].endswith('--data-parallel-start-rank "$((LWS_WORKER_INDEX * 8))"')


def test_older_versions_span_machines_with_ray() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h100",), tp=8, pp=2, max_model_len=32768, engine_version="0.10.2")
    result = launch(ask).result
    assert "ray start --head" in (file_of(result, "serve.sh") or "")
    assert "--nnodes" not in result.command


@pytest.mark.parametrize(
    ("engine", "producing", "taking"),
    [
        ("vllm", '"kv_role": "kv_producer"', '"kv_role": "kv_consumer"'),
        ("sglang", "--disaggregation-mode prefill", "--disaggregation-mode decode"),
        ("tensorrt-llm", "config-prefill.yaml", "config-decode.yaml"),
    ],
)
def test_a_pair_has_two_sides(engine: str, producing: str, taking: str) -> None:
    how = LaunchAsk(num_replicas=2, num_prefill_replicas=1)
    result = launch(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, engine=engine), how).result
    prefill, decode = commands(result)
    assert producing in prefill
    assert taking in decode
    assert {one.role for one in result.flags} == {"prefill", "decode"}
    script, containers = file_of(result, "serve.sh") or "", file_of(result, "docker.sh") or ""
    assert [f"CUDA_VISIBLE_DEVICES={gpu} " in script for gpu in range(4)] == [True, True, True, False]
    assert [f"--port {port}" in script for port in (8100, 8200, 8201)] == [True] * 3
    assert "device=0" in containers
    assert "device=1" in containers


def test_a_pair_that_one_machine_does_not_hold_is_on_two() -> None:
    how = LaunchAsk(num_prefill_replicas=1)
    script = file_of(launch(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=8), how).result, "serve.sh") or ""
    assert script.count("CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 ") == 2
    assert "# on another machine" in script


# What cannot be


def test_what_does_not_fit_is_not_written() -> None:
    answer = launch(Ask(models=("llama3-70b",), gpus=("h100",), tp=1))
    assert answer.exit_code == 3
    assert (answer.result.command, answer.result.flags, answer.result.files) == ("", (), ())
    assert answer.result.missing_bytes > 0
    assert answer.result.changes


def test_the_longest_length_that_starts_is_the_one_that_is_written() -> None:
    ask = Ask(models=("llama3.1-8b",), gpus=("rtx-4090",), tp=1)
    book = memory(ask).result
    assert book.starts_with
    words = words_of(launch(ask).result, "server")
    assert int(words[words.index("--max-model-len") + 1]) == book.max_model_len


@pytest.mark.parametrize(
    ("how", "place"),
    [
        (LaunchAsk(targets=("helm",)), "--target"),
        (LaunchAsk(port=0), "--port"),
        (LaunchAsk(num_replicas=0), "--replicas"),
        (LaunchAsk(drafter="eagle"), "--method"),
    ],
)
def test_what_is_no_launch_is_refused(how: LaunchAsk, place: str) -> None:
    with pytest.raises(UsageError) as refused:
        launch(Ask(), how)
    assert refused.value.place == place


def test_several_deployments_are_refused() -> None:
    with pytest.raises(UsageError, match="2 values"):
        launch(Ask(gpus=("h100", "a100")))


def test_weights_that_an_engine_cannot_make_need_a_checkpoint() -> None:
    answer = launch(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, weights="awq"))
    assert any("is stored in bf16" in text and "--model-id" in text for text in answer.warnings)
    own = launch(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, weights="bf16"))
    assert "--quantization" not in own.result.command


def one_line(result: LaunchResult) -> str:
    return result.command.replace(" \\\n", " ")


def commands(result: LaunchResult) -> list[str]:
    return one_line(result).splitlines()


def pods_of(workload: dict[str, Any]) -> list[dict[str, Any]]:
    spec = workload["spec"]
    if workload["kind"] == "Deployment":
        return [spec["template"]]
    group = spec["leaderWorkerTemplate"]
    return [group["leaderTemplate"], *[group["workerTemplate"]] * (group["size"] - 1)]


def assert_served(pod: dict[str, Any], service: dict[str, Any]) -> None:
    """Hold the first pod against what a server needs: shared memory, a port that it listens on, and probes of it."""
    (container,) = pod["spec"]["containers"]
    (port,) = (one["containerPort"] for one in container["ports"])
    args = container["args"]
    assert args[args.index("--port") + 1] == str(port)
    assert [one["targetPort"] for one in service["spec"]["ports"]] == [port]
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": port}
    # Weights of hundreds of GB take a while.
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 1800
    memory = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    assert memory in pod["spec"]["volumes"]
    assert {one["name"]: one["mountPath"] for one in container["volumeMounts"]}["shm"] == "/dev/shm"  # noqa: S108 - in a pod
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["spec"]["volumes"]}
    assert "HF_TOKEN" in {one["name"] for one in container["env"]}


def gpus_of(pod: dict[str, Any]) -> int:
    (container,) = pod["spec"]["containers"]
    (number,) = container["resources"]["limits"].values()
    return int(number)
