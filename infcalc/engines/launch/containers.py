"""What containers of an engine need: the image of the version, the model inside, and a server that listens outside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.engines.flags.table import version_of
from infcalc.engines.launch.server import DEFAULT_PORTS, HEAD, Server, server
from infcalc.engines.rules import Since, at_version, parse_version
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.engines.launch.spec import LaunchSpec
    from infcalc.engines.launch.want import Address

_EVERYWHERE = "0.0.0.0"  # noqa: S104 - inside a container
_VERSION_PARTS = 3
_IMAGES = {
    ("vllm", "NVIDIA"): "vllm/vllm-openai:v{version}",
    ("vllm", "AMD"): "vllm/vllm-openai-rocm:v{version}",
    ("sglang", "NVIDIA"): "lmsysorg/sglang:v{version}{cuda}",
    ("tensorrt-llm", "NVIDIA"): "nvcr.io/nvidia/tensorrt-llm/release:{version}",
    ("llama.cpp", "NVIDIA"): "ghcr.io/ggml-org/llama.cpp:server-cuda",
    ("llama.cpp", "AMD"): "ghcr.io/ggml-org/llama.cpp:server-rocm",
}
"""Public images by engine and vendor, as the projects' own install pages name them.

Sources: vLLM docs, deployment/docker; SGLang docs, get_started/install, and its release-docker.yml; TensorRT-LLM docs,
quick start; llama.cpp, docs/docker.md @ 30255fcb, whose tags follow the newest build.
"""
_SGLANG_CUDA = (
    Since(version=(0,), value="-cu124", source="SGLang release-docker.yml of 0.4: every tag names its CUDA"),
    Since(version=(0, 4, 8), value="-cu126", source="v0.4.8.post1-cu126 to v0.5.2-cu126"),
    Since(version=(0, 5, 3), value="", source="v0.5.3, v0.5.4, v0.5.14, v0.5.20: a tag for each release"),
)
_FIRST = {("vllm", "AMD"): ((0, 14), "vllm/vllm-openai-rocm begins with v0.14.0")}
"""First releases that have an image, where older ones have none."""
_PROGRAMS = {"llama.cpp": "/app/llama-server"}
"""Where an image has a program that its PATH does not hold. Source: llama.cpp, docs/docker.md and .devops."""
RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
"""What Kubernetes calls a GPU."""


@frozen
class Folder:
    """A folder of the machine, and where a container sees it."""

    outside: str
    inside: str


def image_gap(spec: LaunchSpec) -> str:
    """Return why no container of a launch can be named; empty where one can."""
    where = spec.engine, spec.vendor
    if where in _IMAGES:
        since, why = _FIRST.get(where, ((0,), ""))
        return why if version_of(spec.engine, spec.version) < since else ""
    return f"no public image of {spec.engine} for GPUs of {spec.vendor} is on record"


def image_of(spec: LaunchSpec) -> str:
    """Return the image of the engine's version: ``0.33`` is tagged ``v0.33.0``."""
    pattern = _IMAGES[spec.engine, spec.vendor]
    if spec.engine == "llama.cpp":
        return pattern
    numbers = parse_version(spec.version)
    numbers = (*numbers, *(0 for _ in range(_VERSION_PARTS - len(numbers))))
    cuda = at_version(_SGLANG_CUDA, numbers).value if spec.engine == "sglang" else ""
    return pattern.format(version=".".join(str(number) for number in numbers), cuda=cuda)


def is_path(model_id: str) -> bool:
    """Return whether a model is named by its place on the machine.

    >>> [is_path(text) for text in ("/data/m", "./m", "m.gguf", "meta-llama/Llama-3.1-8B")]
    [True, True, True, False]
    """
    return model_id.startswith(("/", "./", "../", "~")) or model_id == "." or model_id.endswith(".gguf")


def container_model(model_id: str) -> Folder | None:
    """Return the folder that a container must see; None where the model comes from the hub.

    >>> container_model("/data/m.gguf")
    Folder(outside='/data', inside='/models')
    """
    if not is_path(model_id):
        return None
    if not model_id.endswith(".gguf"):
        return Folder(outside=model_id, inside="/models")
    folder, _, _ = model_id.rpartition("/")
    return Folder(outside=folder or ("/" if model_id.startswith("/") else "."), inside="/models")


def container_server(spec: LaunchSpec, machine: int = 0, *, head: Address = HEAD, config_folder: str = "") -> Server:
    """Return the process inside a container: on all addresses, with the model where the container sees it."""
    model_id = spec.model_id
    if is_path(model_id):
        file = model_id.rpartition("/")[2] if model_id.endswith(".gguf") else ""
        model_id = f"/models/{file}" if file else "/models"
    port = spec.port or DEFAULT_PORTS[spec.engine]
    inside = replace(spec, model_id=model_id, host=_EVERYWHERE, port=port)
    one = server(inside, machine, head=head, config_folder=config_folder)
    # Images have python3, not always python.
    first, *rest = ("python3" if word == "python" else word for word in one.program)
    return replace(one, program=(_PROGRAMS.get(spec.engine, first), *rest))
