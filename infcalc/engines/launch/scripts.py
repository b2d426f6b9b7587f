"""Launches as scripts: a shell file with all replicas, a Python snippet, a docker line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.engines.launch.containers import container_model, container_server, image_of
from infcalc.engines.launch.server import DEFAULT_PORTS, HEAD, quoted, server, shell_text, uses_ray
from infcalc.engines.launch.spec import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.engines.launch.server import Server
    from infcalc.engines.launch.spec import LaunchSpec
    from infcalc.engines.launch.want import Value

_SHEBANG = "#!/bin/sh"
_PAIR_PORTS = {Role.PREFILL: 8100, Role.DECODE: 8200}
_COMMENT = re.compile(r"[\x00-\x1f\x7f]+")
_NIXL_PORT = 5600
"""First port over which pairs of vLLM tell each other where KV lies (``VLLM_NIXL_SIDE_CHANNEL_PORT``)."""


def shell_file(specs: Sequence[LaunchSpec], *, per_machine: int) -> str:
    """Return a script that starts every replica of the servers; ``per_machine`` GPUs are in a machine."""
    lines = [_SHEBANG, "set -eu"]
    taken = 0
    for spec in specs:
        lines += ["", comment(_heading(spec, len(specs) > 1))]
        if spec.num_machines > 1:
            lines += _spanning(spec)
            continue
        gpus = spec.parallelism.num_gpus
        if taken + gpus > per_machine:
            lines.append(comment("on another machine"))
            taken = 0
        held = max(1, min(spec.num_replicas, (per_machine - taken) // gpus))
        lines += _replicas(spec, held, taken)
        taken += held * gpus
    if len(specs) > 1:
        lines += ["", *_router(specs)]
    if any(line.endswith(" &") for line in lines):
        lines.append("wait")
    return "\n".join(lines) + "\n"


def comment(text: str) -> str:
    """Return a text as a comment of one line, whatever is in it."""
    return f"# {_COMMENT.sub(' ', text)}"


def _gpus(spec: LaunchSpec) -> str:
    number = spec.parallelism.num_gpus
    return "1 GPU" if number == 1 else f"{number} GPUs"


def _heading(spec: LaunchSpec, paired: bool) -> str:
    what = f"{spec.role}: " if paired else ""
    many = f"{spec.num_replicas} replicas of " if spec.num_replicas > 1 else ""
    return f"{what}{many}{spec.model_id} on {_gpus(spec)} with {spec.engine} {spec.version}"


def _replicas(spec: LaunchSpec, held: int, taken: int) -> list[str]:
    """Return a command for each of the ``held`` replicas on a machine; those of further machines are started alike.

    ``taken`` is how many of its GPUs others have.
    """
    if not spec.is_paired and spec.num_replicas == 1:
        return [shell_text(server(spec))]
    lines = []
    if held < spec.num_replicas:
        machines = -(-spec.num_replicas // held)
        lines.append(comment(f"{held} of them on this machine; {machines} machines in all, each started alike"))
    first = spec.port or _PAIR_PORTS.get(spec.role, DEFAULT_PORTS[spec.engine])
    for number in range(held):
        one = server(replace(spec, port=first + number))
        lines.append(shell_text(one, before=_placed(spec, number, taken), after=" &"))
    return lines


def _placed(spec: LaunchSpec, number: int, taken: int) -> str:
    name = "HIP_VISIBLE_DEVICES" if spec.vendor == "AMD" else "CUDA_VISIBLE_DEVICES"
    gpus = spec.parallelism.num_gpus
    start = taken + number * gpus
    before = f"{name}={','.join(str(one) for one in range(start, start + gpus))} "
    if spec.engine == "vllm" and spec.role is not Role.SERVER:
        ports = spec.parallelism.tp * spec.parallelism.dp
        offset = 1000 if spec.role is Role.DECODE else 0
        before += f"VLLM_NIXL_SIDE_CHANNEL_PORT={_NIXL_PORT + offset + number * ports} "
    return before


def _spanning(spec: LaunchSpec) -> list[str]:
    if spec.engine in {"tensorrt-llm", "llama.cpp"}:
        return [shell_text(server(spec))]
    if uses_ray(spec):
        return [
            comment("on the other machines: ray start --address=HEAD:6379 --block, with the address of the first"),
            "ray start --head --port=6379",
            shell_text(server(spec)),
        ]
    lines = [comment("HEAD is the address of a replica's machine 0, MACHINE the number of this one, from 0")]
    lines.append('case "${MACHINE:?}" in')
    for number in range(spec.num_machines):
        lines.append(f"{number})")
        lines.append(shell_text(server(spec, number, head=HEAD)))
        lines.append(";;")
    return [*lines, "esac"]


def _router(specs: Sequence[LaunchSpec]) -> list[str]:
    """Return what sends each request to a prefill server and then to a decode server."""
    engine = specs[0].engine
    if engine == "sglang":
        words = ["python", "-m", "sglang_router.launch_router", "--pd-disaggregation"]
        for spec in specs:
            port = spec.port or _PAIR_PORTS[spec.role]
            for number in range(spec.num_replicas):
                words += [f"--{spec.role}", f"http://127.0.0.1:{port + number}"]
        return [comment("the router, once the servers answer"), " ".join(quoted(word) for word in words)]
    if engine == "tensorrt-llm":
        return [
            comment("the router, once the servers answer"),
            "trtllm-serve disaggregated -c disaggregated.yaml",
        ]
    return [comment("a proxy must send each request to a prefill server, then to a decode server (llm-d has one)")]


def pair_config(specs: Sequence[LaunchSpec]) -> dict[str, object]:
    """Return the YAML of TensorRT-LLM's router. Source: TensorRT-LLM, examples/disaggregated."""
    urls = {
        spec.role: [
            f"localhost:{(spec.port or _PAIR_PORTS[spec.role]) + number}" for number in range(spec.num_replicas)
        ]
        for spec in specs
    }
    return {
        "hostname": "localhost",
        "port": 8000,
        "backend": "pytorch",
        "context_servers": {"num_instances": len(urls[Role.PREFILL]), "urls": urls[Role.PREFILL]},
        "generation_servers": {"num_instances": len(urls[Role.DECODE]), "urls": urls[Role.DECODE]},
    }


_OPENINGS = {
    "vllm": ("from vllm import LLM, SamplingParams", "LLM", "model"),
    "sglang": ("import sglang as sgl", "sgl.Engine", "model_path"),
    "tensorrt-llm": ("from tensorrt_llm import LLM, SamplingParams", "LLM", "model"),
}
_ENDINGS = {
    "vllm": (
        '    [answer] = llm.generate(["The capital of France is"], SamplingParams(max_tokens=32))',
        "    print(answer.outputs[0].text)",
    ),
    "sglang": (
        '    answer = llm.generate("The capital of France is", {"max_new_tokens": 32})',
        '    print(answer["text"])',
    ),
    "tensorrt-llm": (
        '    [answer] = llm.generate(["The capital of France is"], SamplingParams(max_tokens=32))',
        "    print(answer.outputs[0].text)",
    ),
}


def python_gap(spec: LaunchSpec) -> str:
    """Return why there is no Python snippet of a launch; empty where there is one."""
    if spec.engine not in _OPENINGS:
        return f"{spec.engine} has no such Python class of its own"
    if spec.role is not Role.SERVER:
        return "a disaggregated pair needs servers"
    if spec.num_machines > 1:
        return "several machines need a server"
    if spec.engine == "vllm" and spec.parallelism.dp > 1:
        return "data-parallel ranks are started by the server"
    return ""


def python_file(spec: LaunchSpec) -> str:
    """Return a script that loads the model with the same settings through the engine's Python class."""
    opening, made, model_keyword = _OPENINGS[spec.engine]
    arguments: dict[str, object] = {model_keyword: spec.model_id}
    nested: dict[str, dict[str, object]] = {}
    for one in server(spec).options:
        if not one.keyword or one.keyword == model_keyword:
            continue
        outer, _, inner = one.keyword.partition(".")
        value = _python_value(one.flag, one.value)
        if inner:
            nested.setdefault(outer, {})[inner] = value
        else:
            arguments[one.keyword] = value
    lines = [opening]
    if "kv_cache_config" in nested:
        lines.append("from tensorrt_llm.llmapi import KvCacheConfig")
    lines += ["", 'if __name__ == "__main__":', f"    llm = {made}("]
    lines += [f"        {name}={value!r}," for name, value in arguments.items()]
    for outer, inner_values in nested.items():
        if outer == "kv_cache_config":
            inside = ", ".join(f"{name}={value!r}" for name, value in inner_values.items())
            lines.append(f"        {outer}=KvCacheConfig({inside}),")
        else:
            lines.append(f"        {outer}={inner_values!r},")
    lines += ["    )", *_ENDINGS[spec.engine]]
    return "\n".join(lines) + "\n"


def _python_value(flag: str, value: Value) -> object:
    if value is None:
        return not flag.startswith("--no-")
    if flag in {"--speculative-config", "--kv-transfer-config"} and isinstance(value, str):
        return json.loads(value)
    return value


def docker_file(specs: Sequence[LaunchSpec], *, per_machine: int) -> str:
    """Return a script with a docker line for a replica of each server; ``per_machine`` GPUs are in a machine."""
    lines = [_SHEBANG, "set -eu"]
    taken = 0
    for spec in specs:
        lines += ["", comment(_heading(spec, len(specs) > 1))]
        if spec.num_machines > 1:
            lines.append(comment("HEAD is the address of a replica's machine 0"))
        if taken + spec.gpus_per_machine > per_machine:
            lines.append(comment("on another machine"))
            taken = 0
        placed = replace(spec, port=spec.port or _PAIR_PORTS.get(spec.role))
        machines = 1 if uses_ray(spec) or spec.engine == "tensorrt-llm" else spec.num_machines
        for number in range(machines):
            if spec.num_machines > 1:
                lines.append(comment(f"on machine {number} of 0 to {spec.num_machines - 1}"))
            lines.append(docker_line(placed, number, first_gpu=taken))
        taken += spec.gpus_per_machine
    return "\n".join(lines) + "\n"


def docker_line(spec: LaunchSpec, machine: int = 0, *, first_gpu: int = 0) -> str:
    """Return the docker line of one server."""
    one = container_server(spec, machine, config_folder="/config/")
    words = ["docker", "run", "--rm", *_devices(spec, first_gpu), "--ipc=host"]
    words += ["--network=host"] if spec.num_machines > 1 else ["-p", f"{_port(one)}:{_port(one)}"]
    lines = [" ".join(quoted(word) for word in words)]
    if spec.vendor == "AMD":
        # By their numbers: not every image has groups of these names.
        lines += [f'--group-add "$(getent group {name} | cut -d: -f3)"' for name in ("video", "render")]
    lines += _mounts(spec, one)
    entry, *rest = one.program
    lines.append(" ".join(quoted(word) for word in ("--entrypoint", entry, image_of(spec), *rest)))
    lines += [" ".join(quoted(word) for word in option.words) for option in one.command_options]
    return " \\\n  ".join(lines)


def _port(one: Server) -> int:
    return one.spec.port or DEFAULT_PORTS[one.spec.engine]


def _devices(spec: LaunchSpec, first_gpu: int) -> list[str]:
    if spec.vendor == "AMD":
        return ["--device=/dev/kfd", "--device=/dev/dri"]
    numbers = ",".join(str(number) for number in range(first_gpu, first_gpu + spec.gpus_per_machine))
    return ["--gpus", f'"device={numbers}"']


def _mounts(spec: LaunchSpec, one: Server) -> list[str]:
    """Return the lines that hand in the model, or the hub's cache and token, and the engine's YAML."""
    folder = container_model(spec.model_id)
    if folder is None:
        lines = ['-e HF_TOKEN -v "$HOME/.cache/huggingface:/root/.cache/huggingface"']
    else:
        # A colon in a path would part it.
        bound = f"type=bind,source={folder.outside},target={folder.inside},readonly"
        short = f"{folder.outside}:{folder.inside}:ro"
        lines = [f"--mount {quoted(bound)}" if ":" in folder.outside else f"-v {quoted(short)}"]
    if one.config_name:
        lines.append(f'-v "$PWD/{one.config_name}:/config/{one.config_name}:ro"')
    if spec.engine == "vllm" and spec.role is not Role.SERVER:
        lines.append(f"-e VLLM_NIXL_SIDE_CHANNEL_PORT={_NIXL_PORT}")
    return lines
