"""A launch as a service of KServe: vLLM behind the router of llm-d, other engines as a container of their own.

vLLM is an LLMInferenceService (``serving.kserve.io/v1alpha2``). The top level decodes; ``prefill`` makes a
disaggregated pair. What has a field of its own stands there; other options of the engine travel in the variable
``VLLM_ADDITIONAL_ARGS``, quoted for the shell that reads it.
Source: KServe LLMInferenceService v1alpha2, commit aaac4e29.

Other engines are an InferenceService (``serving.kserve.io/v1beta1``) with the pod of the plain manifest, kept up as a
Deployment, without Knative: newer versions call that mode Standard, and take the older name too.
Source: KServe 0.16, ``pkg/constants/constants.go`` (``LegacyRawDeployment``); v1beta1 custom predictors.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, TypeAlias

from infcalc.engines.launch.containers import RESOURCES, container_server, image_gap, image_of, is_path
from infcalc.engines.launch.manifests import config_map, container_of, object_name, plain, pod_of
from infcalc.engines.launch.server import server
from infcalc.engines.launch.spec import Role
from infcalc.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.engines.launch.spec import LaunchSpec

Object: TypeAlias = dict[str, object]
ARGUMENTS = "VLLM_ADDITIONAL_ARGS"
_FIELDS = frozenset(
    {
        "--pipeline-parallel-size",
        "--data-parallel-size",
        "--data-parallel-size-local",
        "--data-parallel-address",
        "--enable-expert-parallel",
        "--nnodes",
        "--node-rank",
        "--master-addr",
        "--distributed-executor-backend",
        "--kv-offloading-size",
        "--kv-offloading-backend",
        "--served-model-name",
        "--host",
        "--port",
    }
)
"""Options that a field of the service, or KServe itself, sets."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?", re.ASCII)
_NAME = re.compile(r"[\w ./:@+-]+")
"""Fields of the service become words of a shell, after templates and variables in them are filled: none is in these."""


def kserve_gap(spec: LaunchSpec) -> str:
    """Return why there is no such service of a launch; empty where there is one."""
    if spec.engine != "vllm" and (spec.role is not Role.SERVER or spec.num_machines > 1):
        shape = "pair of pools" if spec.role is not Role.SERVER else "replica over several machines"
        return f"KServe runs a {shape} under vLLM alone, not under {spec.engine}"
    if is_path(spec.model_id):
        return f"it takes a model of the hub or of a volume (pvc://), not the path {spec.model_id}"
    if not _HUB_ID.fullmatch(spec.model_id):
        return f"it takes the id of a model of the hub, and {spec.model_id!r} is none"
    if spec.served_name and not _NAME.fullmatch(spec.served_name):
        return f"it would fill in parts of the name {spec.served_name!r}: take letters, digits, spaces and ./:@+-_"
    if spec.vendor not in RESOURCES:
        return f"what Kubernetes calls a GPU of {spec.vendor} is not on record"
    return image_gap(spec)


def kserve_objects(specs: Sequence[LaunchSpec]) -> list[Object]:
    """Return the service of all servers, and the file that its command names, where there is one."""
    return [_of_vllm(specs)] if specs[0].engine == "vllm" else _of_containers(specs[0])


def _of_containers(spec: LaunchSpec) -> list[Object]:
    name = object_name(spec.name)
    one = container_server(spec, config_folder="/config/")
    pod = pod_of(name, spec, one)
    container_of(pod)["name"] = "kserve-container"
    service: Object = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"}},
        "spec": {"predictor": {"minReplicas": spec.num_replicas, "maxReplicas": spec.num_replicas, **pod}},
    }
    return [config_map(name, one), service] if one.config_name else [service]


def _of_vllm(specs: Sequence[LaunchSpec]) -> Object:
    main = next(spec for spec in specs if spec.role is not Role.PREFILL)
    prefill = next((spec for spec in specs if spec.role is Role.PREFILL), None)
    body: Object = {
        "model": {"uri": f"hf://{main.model_id}", "name": main.served_name or main.model_id},
        **_workload(main),
    }
    if prefill is not None:
        body["prefill"] = _workload(prefill)
    if main.kv_offload_bytes:
        body["kvCacheOffloading"] = {"cpu": f"{main.kv_offload_bytes / GIB:.10g}Gi"}
    body["router"] = {"gateway": {}, "route": {}, "scheduler": {}}
    return {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": object_name(main.name)},
        "spec": body,
    }


def _workload(spec: LaunchSpec) -> Object:
    ranks = spec.parallelism
    split: Object = {"tensor": ranks.tp}
    if ranks.pp > 1:
        split["pipeline"] = ranks.pp
    if ranks.dp > 1:
        split |= {"data": ranks.dp, "dataLocal": max(1, spec.gpus_per_machine // (ranks.tp * ranks.pp))}
    if ranks.ep > 1:
        split["expert"] = True
    found: Object = {"replicas": spec.num_replicas, "parallelism": split, "template": _pod(spec)}
    if spec.num_machines > 1:
        found["worker"] = _pod(spec)
    return found


def _pod(spec: LaunchSpec) -> Object:
    options = (one for one in server(spec).command_options if one.flag not in _FIELDS)
    arguments = " ".join(shlex.quote(word) for one in options for word in one.words)
    container: Object = {
        "name": "main",
        "image": image_of(spec),
        "env": [{"name": ARGUMENTS, "value": plain(arguments)}],
        "resources": {"limits": {RESOURCES[spec.vendor]: str(spec.gpus_per_machine)}},
    }
    return {"containers": [container]}
