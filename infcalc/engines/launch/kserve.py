"""A launch as a KServe LLMInferenceService (``serving.kserve.io/v1alpha2``): vLLM behind the router of llm-d.

The top level decodes; ``prefill`` makes a disaggregated pair. What has a field of its own stands there; other options
of the engine travel in the variable ``VLLM_ADDITIONAL_ARGS``, quoted for the shell that reads it.
Source: KServe LLMInferenceService v1alpha2, commit aaac4e29.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, TypeAlias

from infcalc.engines.launch.containers import RESOURCES, image_gap, image_of, is_path
from infcalc.engines.launch.manifests import object_name, plain
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
    if spec.engine != "vllm":
        return f"KServe's LLMInferenceService runs vLLM, not {spec.engine}"
    if is_path(spec.model_id):
        return f"it takes a model of the hub or of a volume (pvc://), not the path {spec.model_id}"
    if not _HUB_ID.fullmatch(spec.model_id):
        return f"it takes the id of a model of the hub, and {spec.model_id!r} is none"
    if spec.served_name and not _NAME.fullmatch(spec.served_name):
        return f"it would fill in parts of the name {spec.served_name!r}: take letters, digits, spaces and ./:@+-_"
    if spec.vendor not in RESOURCES:
        return f"what Kubernetes calls a GPU of {spec.vendor} is not on record"
    return image_gap(spec)


def kserve_object(specs: Sequence[LaunchSpec]) -> Object:
    """Return the service of all servers."""
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
