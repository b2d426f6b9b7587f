"""Launches as Kubernetes objects: plain mappings, which the outer rooms write as YAML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from infcalc.engines.launch.containers import RESOURCES, container_model, container_server, image_gap, image_of
from infcalc.engines.launch.server import DEFAULT_PORTS, uses_ray
from infcalc.engines.launch.spec import Role
from infcalc.engines.launch.want import Address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.engines.launch.server import Server
    from infcalc.engines.launch.spec import LaunchSpec

Object: TypeAlias = dict[str, object]
_MOST_NAME = 40
_NO_NAME = re.compile(r"[^a-z0-9]+")
_LEADER = Address("$(LWS_LEADER_ADDRESS)")
_INDEX = "$(LWS_WORKER_INDEX)"
_FIRST_RANK = "--data-parallel-start-rank"
_START_TRIES = 180
_EVERY_S = 10


def object_name(text: str) -> str:
    """Return a name that Kubernetes takes.

    >>> object_name("meta-llama/Llama 3.1_8B"), object_name("7b"), object_name("///")
    ('meta-llama-llama-3-1-8b', 'm-7b', 'model')
    """
    name = _NO_NAME.sub("-", text.lower()).strip("-")[:_MOST_NAME].strip("-")
    if not name:
        return "model"
    return name if name[0].isalpha() else f"m-{name}"


def plain(word: str) -> str:
    """Return a word as Kubernetes hands it on: it would replace ``$(HF_TOKEN)`` in a name by the token itself.

    Source: Kubernetes API, Container.args: a doubled ``$$`` stands for one.

    >>> plain("$(HF_TOKEN)"), plain("a$$b"), plain(Address("$(LWS_LEADER_ADDRESS)"))
    ('$$(HF_TOKEN)', 'a$$$$b', '$(LWS_LEADER_ADDRESS)')
    """
    return str(word) if isinstance(word, Address) else word.replace("$", "$$")


def kubernetes_gap(spec: LaunchSpec) -> str:
    """Return why there is no manifest of a launch; empty where there is one."""
    missing = image_gap(spec)
    if missing:
        return missing
    if spec.vendor not in RESOURCES:
        return f"what Kubernetes calls a GPU of {spec.vendor} is not on record"
    if spec.num_machines > 1 and spec.engine in {"tensorrt-llm", "llama.cpp"}:
        return f"{spec.engine} over {spec.num_machines} machines is started under MPI or by hand"
    return ""


def kubernetes_objects(specs: Sequence[LaunchSpec]) -> list[Object]:
    """Return the objects of all servers: a Deployment each, or a LeaderWorkerSet over several machines; a Service."""
    found: list[Object] = []
    for spec in specs:
        name = object_name(spec.name) if spec.role is Role.SERVER else f"{object_name(spec.name)}-{spec.role}"
        one = container_server(spec, head=_LEADER, config_folder="/config/")
        if one.config_name:
            found.append(config_map(name, one))
        found.append(_deployment(name, spec, one) if spec.num_machines == 1 else _machines(name, spec, one))
        found.append(_service(name, spec))
    return found


def config_map(name: str, one: Server) -> Object:
    """Return the file that a server's command names, as an object."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-config"},
        "data": {one.config_name: one.config},
    }


def _deployment(name: str, spec: LaunchSpec, one: Server) -> Object:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": one.spec.num_replicas,
            "selector": {"matchLabels": labels},
            # GPUs are rarely free twice: the old pod goes before the new one comes.
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": pod_of(name, spec, one)},
        },
    }


def _machines(name: str, spec: LaunchSpec, first: Server) -> Object:
    """Return a LeaderWorkerSet: each replica is a group of as many pods as it has machines."""
    worker = container_server(spec, 1, head=_LEADER, config_folder="/config/")
    labels = {"app": name, "role": "leader"}
    leader_pod, worker_pod = pod_of(name, spec, first), pod_of(name, spec, worker, serving=False)
    if uses_ray(spec):
        _under_ray(leader_pod, worker_pod)
    else:
        _numbered(worker_pod)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": spec.num_replicas,
            "leaderWorkerTemplate": {
                "size": spec.num_machines,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": {"metadata": {"labels": labels}, "spec": leader_pod},
                "workerTemplate": {"metadata": {"labels": {"app": name, "role": "worker"}}, "spec": worker_pod},
            },
        },
    }


def container_of(pod: Object) -> Object:
    """Return the one container of a pod."""
    containers = pod["containers"]
    if not isinstance(containers, list):
        raise TypeError
    found: Object = containers[0]
    return found


def _numbered(pod: Object) -> None:
    """Let each worker take the number of its pod; a first rank is that number times the ranks of a machine."""
    container = container_of(pod)
    command, args = container["command"], container["args"]
    if not isinstance(command, list) or not isinstance(args, list):
        raise TypeError
    if "--node-rank" in args:
        args[args.index("--node-rank") + 1] = _INDEX
    if _FIRST_RANK in args:
        place = args.index(_FIRST_RANK)
        local = args[place + 1]
        # Only a shell multiplies.
        counted = f'exec "$@" {_FIRST_RANK} "$((LWS_WORKER_INDEX * {local}))"'
        container["command"] = ["sh", "-c", counted, "sh"]
        container["args"] = [*command, *args[:place], *args[place + 2 :]]


def _under_ray(leader: Object, worker: Object) -> None:
    """Let the leader's pod start a Ray cluster before the server, and the others join it."""
    first, other = container_of(leader), container_of(worker)
    command, args = first["command"], first["args"]
    if not isinstance(command, list) or not isinstance(args, list):
        raise TypeError
    first["command"] = ["sh", "-c", 'ray start --head --port=6379 && exec "$@"', "sh"]
    first["args"] = [*command, *args]
    other["command"] = ["sh", "-c", 'exec ray start --address="$LWS_LEADER_ADDRESS:6379" --block']
    other["args"] = []


def pod_of(name: str, spec: LaunchSpec, one: Server, *, serving: bool = True) -> Object:
    """Return the pod of a server, whose ConfigMap has the name ``<name>-config``."""
    port = spec.port or DEFAULT_PORTS[spec.engine]
    mounts: list[Object] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - where NCCL shares memory
    volumes: list[Object] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    _model_volume(spec, mounts, volumes)
    if one.config_name:
        mounts.append({"name": "config", "mountPath": "/config", "readOnly": True})
        volumes.append({"name": "config", "configMap": {"name": f"{name}-config"}})
    container: Object = {
        "name": "server",
        "image": image_of(spec),
        "command": [plain(word) for word in one.program],
        "args": [plain(word) for word in one.words[len(one.program) :]],
        "env": _environment(spec),
        "resources": {"limits": {RESOURCES[spec.vendor]: spec.gpus_per_machine}},
        "volumeMounts": mounts,
    }
    if serving:
        health = {"httpGet": {"path": "/health", "port": port}, "periodSeconds": _EVERY_S}
        container["ports"] = [{"name": "http", "containerPort": port}]
        container["startupProbe"] = {**health, "failureThreshold": _START_TRIES}
        container["readinessProbe"] = dict(health)
    return {"containers": [container], "volumes": volumes}


def _model_volume(spec: LaunchSpec, mounts: list[Object], volumes: list[Object]) -> None:
    folder = container_model(spec.model_id)
    if folder is None:
        mounts.append({"name": "models", "mountPath": "/root/.cache/huggingface"})
        volumes.append({"name": "models", "emptyDir": {}})
        return
    mounts.append({"name": "models", "mountPath": folder.inside, "readOnly": True})
    if not folder.outside.startswith("/"):
        # A place on the machine must be absolute: the models come from a claim of that name.
        volumes.append({"name": "models", "persistentVolumeClaim": {"claimName": "models"}})
        return
    volumes.append({"name": "models", "hostPath": {"path": folder.outside, "type": "Directory"}})


def _environment(spec: LaunchSpec) -> list[Object]:
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    found: list[Object] = [{"name": "HF_TOKEN", "valueFrom": token}]
    if spec.engine == "vllm" and spec.role is not Role.SERVER:
        found.append({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    return found


def _service(name: str, spec: LaunchSpec) -> Object:
    port = spec.port or DEFAULT_PORTS[spec.engine]
    chosen = {"app": name} if spec.num_machines == 1 else {"app": name, "role": "leader"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": chosen, "ports": [{"name": "http", "port": port, "targetPort": port}]},
    }
