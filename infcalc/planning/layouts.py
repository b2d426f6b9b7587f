"""Ways to spread one replica over GPUs: TP x PP x DP x EP, lazily, and those that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.lowering.tensors import check_divisible
from infcalc.spec.parallelism import Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model

_POWERS = (1, 2, 4, 8, 16, 32, 64)
_STAGES = (1, 2, 4, 8)
_MACHINE = 8
SPREAD = 16
"""Most GPUs of a replica, unless its weights need more."""
MOST = 64


@frozen
class Undivided:
    """Ranks that do not divide the model, and why."""

    ranks: Parallelism
    why: str


def tightly_joined(gpu: Gpu) -> int:
    """Return how many of a GPU can be ranks of one tensor-parallel group: those of one machine or one NVLink domain.

    A bridge that is bought apart joins two; without a switch the ranks of a machine meet over PCIe.
    """
    domain = gpu.scale_up.max_domain if gpu.scale_up is not None and not gpu.scale_up.optional else 1
    return max(gpu.max_per_machine, domain)


def layouts(
    model: Model, gpu: Gpu, *, least_gpus: int = 1, most_gpus: int | None = None
) -> Iterator[Parallelism | Undivided]:
    """Yield the ways to spread a replica over ``least_gpus`` to ``most_gpus``, and powers of two that cannot be.

    TP stays within one NVLink domain or machine; stages of a pipeline may lie in several. Attention-DP and EP are for
    models with experts: of a dense model they are replicas. Experts are spread over all ranks or over none. Without
    ``most_gpus``: two machines, or twice what the least number needs.
    """
    most = min(MOST, max(SPREAD, 2 * least_gpus)) if most_gpus is None else most_gpus
    domain = min(tightly_joined(gpu), most)
    for tp in _tensor_ranks(domain):
        problem = undivided(model, Parallelism(tp=tp))
        if problem is not None:
            if tp in _POWERS:
                yield Undivided(ranks=Parallelism(tp=tp), why=problem)
            continue
        for pp in _STAGES:
            for dp in _POWERS if model.has_experts else (1,):
                number = tp * pp * dp
                if not least_gpus <= number <= most:
                    continue
                spreads = dict.fromkeys((1, tp * dp)) if model.has_experts else (1,)
                for ep in spreads:
                    ranks = Parallelism(tp=tp, pp=pp, dp=dp, ep=ep)
                    if undivided(model, ranks) is None:
                        yield ranks


def _tensor_ranks(domain: int) -> list[int]:
    """Return what TP may be: all numbers of a machine, beyond it powers of two."""
    return [*range(1, min(domain, _MACHINE) + 1), *(power for power in _POWERS if _MACHINE < power <= domain)]


def undivided(model: Model, ranks: Parallelism) -> str | None:
    """Return why ranks do not divide a model; None where they do."""
    try:
        check_divisible(model, ranks)
    except UsageError as problem:
        return problem.message
    return None
