"""What lies in host memory: KV of requests that are not running, and weights that each step reads over the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.spec.kv import KvFormat


def kv_host_tokens(deployment: Deployment, form: KvFormat) -> int:
    """Return the tokens that the asked host memory keeps of requests that are not running."""
    if not deployment.kv_offload_bytes:
        return 0
    from infcalc.memory.offload import host_tokens  # noqa: PLC0415 - only with a host tier

    parallelism = deployment.parallelism
    slope = sum(
        slope_bytes_per_token(kv_components(deployment.model, form, parallelism=parallelism, stage=stage))
        for stage in range(parallelism.pp)
    )
    # A rank stores what it caches: its share of the heads, or a copy of them. Under DCP it is every dcp-th token.
    return host_tokens(deployment.kv_offload_bytes, bytes_per_token=slope * parallelism.tp / parallelism.dcp)


def offload_notes(deployment: Deployment, kv_dtype: str, *, host_tokens: int, gpu_tokens: int) -> list[str]:
    """Return what lies in host memory, and what that costs."""
    found = []
    if deployment.kv_offload_bytes:
        found.append(
            f"{format_bytes(deployment.kv_offload_bytes)} of host memory keep {host_tokens:,} tokens in {kv_dtype} of "
            f"requests that are not running (beside {gpu_tokens:,} on the GPUs); they add no running request, and "
            "come back by copy instead of computation"
        )
    if deployment.cpu_offload_bytes:
        from infcalc.memory.offload import link_time_s, offloaded_weights  # noqa: PLC0415 - only with an offload

        moved = offloaded_weights(
            deployment.model,
            deployment.parallelism,
            deployment.quantization,
            allowance_bytes=deployment.cpu_offload_bytes,
        )
        most = max(stage.moved_bytes for stage in moved)
        link = deployment.gpu.pcie_bytes_per_s
        over = "" if link is None else f": each step lasts at least {format_seconds(link_time_s(most, link))} over PCIe"
        found.append(f"{format_bytes(most)} of each GPU's weights are read from host memory in every step{over}")
    return found
