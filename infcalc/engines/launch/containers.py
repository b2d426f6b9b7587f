"""What containers of an engine need: the image of the version, the model inside, and a server that listens outside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.engines.launch.server import DEFAULT_PORTS, HEAD, Server, server
from infcalc.engines.rules import parse_version
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.engines.launch.spec import LaunchSpec

_EVERYWHERE = "0.0.0.0"  # noqa: S104 - inside a container
_VERSION_PARTS = 3
_IMAGES = {
    ("vllm", "NVIDIA"): "vllm/vllm-openai:v{version}",
    ("vllm", "AMD"): "vllm/vllm-openai-rocm:v{version}",
    ("sglang", "NVIDIA"): "lmsysorg/sglang:v{version}",
    ("tensorrt-llm", "NVIDIA"): "nvcr.io/nvidia/tensorrt-llm/release:{version}",
    ("llama.cpp", "NVIDIA"): "ghcr.io/ggml-org/llama.cpp:server-cuda",
    ("llama.cpp", "AMD"): "ghcr.io/ggml-org/llama.cpp:server-rocm",
}
"""Public images by engine and vendor, as the projects' own install pages name them."""
RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
"""What Kubernetes calls a GPU."""


@frozen
class Folder:
    """A folder of the machine, and where a container sees it."""

    outside: str
    inside: str


def image_gap(spec: LaunchSpec) -> str:
    """Return why no container of a launch can be named; empty where one can."""
    if (spec.engine, spec.vendor) in _IMAGES:
        return ""
    return f"no public image of {spec.engine} for GPUs of {spec.vendor} is on record"


def image_of(spec: LaunchSpec) -> str:
    """Return the image of the engine's version: ``0.33`` is tagged ``v0.33.0``."""
    pattern = _IMAGES[spec.engine, spec.vendor]
    if spec.engine == "llama.cpp":
        return pattern
    numbers = parse_version(spec.version)
    numbers = (*numbers, *(0 for _ in range(_VERSION_PARTS - len(numbers))))
    return pattern.format(version=".".join(str(number) for number in numbers))


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


def container_server(spec: LaunchSpec, machine: int = 0, *, head: str = HEAD, config_folder: str = "") -> Server:
    """Return the process inside a container: on all addresses, with the model where the container sees it."""
    model_id = spec.model_id
    if is_path(model_id):
        file = model_id.rpartition("/")[2] if model_id.endswith(".gguf") else ""
        model_id = f"/models/{file}" if file else "/models"
    port = spec.port or DEFAULT_PORTS[spec.engine]
    inside = replace(spec, model_id=model_id, host=_EVERYWHERE, port=port)
    one = server(inside, machine, head=head, config_folder=config_folder)
    # Images have python3, not always python.
    program = tuple("python3" if word == "python" else word for word in one.program)
    return replace(one, program=program)
