"""All-reduces between processes, each with a device of its own: NCCL between GPUs, gloo between processes of a CPU."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from infcalc.api.lab_device_nouns import Case, LeftOut, Timing, samples_of
from infcalc.api.lab_torch import torch_module
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

LIBRARY = {"cuda": "nccl", "cpu": "gloo"}
_MOST_S = 120.0
_WARM = 3
_ELEMENT_BYTES = 2
_AIM_S = 0.02
_MOST_RUNS = 200


@frozen
class _Job:
    """What each rank does; ``meet`` is the file by which ranks find each other, so that no port need be free."""

    device: str
    num_ranks: int
    sizes_bytes: tuple[int, ...]
    num_samples: int
    meet: str


def all_reduces(
    device: str, cases: Sequence[Case], *, num_samples: int
) -> tuple[tuple[Timing, ...], tuple[LeftOut, ...]]:
    """Return the times of all-reduces between as many processes as the cases have ranks; all have the same number.

    Whatever goes wrong in a process leaves its cases out: torch without such a library, ports that are closed, memory.
    """
    if not cases:
        return (), ()
    with tempfile.TemporaryDirectory() as folder:
        job = _Job(
            device=device,
            num_ranks=cases[0].num_ranks,
            sizes_bytes=tuple(round(case.num_bytes) for case in cases),
            num_samples=num_samples,
            meet=f"{folder}/meet",
        )
        found = _ranks(job)
    if isinstance(found, str):
        return (), tuple(LeftOut(case=case.name, why=found) for case in cases)
    timings = [Timing(case=case, samples=samples_of(times_s)) for case, times_s in zip(cases, found, strict=True)]
    return tuple(timings), ()


def _ranks(job: _Job) -> list[list[float]] | str:
    # What a fork would copy, torch's threads and the driver's state, does not live through one.
    context = multiprocessing.get_context("spawn")
    ends, workers = [], []
    try:
        for rank in range(job.num_ranks):
            mine, theirs = context.Pipe(duplex=False)
            worker = context.Process(target=_rank, args=(theirs, job, rank), daemon=True)
            worker.start()
            theirs.close()
            ends.append(mine)
            workers.append(worker)
        return _heard(ends)
    finally:
        for one in workers:
            if one.is_alive():
                one.kill()
            one.join()
        for end in ends:
            end.close()


def _heard(ends: list[Connection]) -> list[list[float]] | str:
    """Return the times of the first rank, or what the first that failed has to say."""
    left: list[Connection] = list(ends)
    times: list[list[float]] | None = None
    until_s = time.monotonic() + _MOST_S
    while left:
        ready = set(wait(left, timeout=max(0.0, until_s - time.monotonic())))
        if not ready:
            return f"no answer within {_MOST_S:.0f} s"
        for end in [one for one in left if one in ready]:
            left.remove(end)
            try:
                said: list[list[float]] | str = end.recv()
            except (EOFError, OSError):
                return "a process ended without an answer"
            if isinstance(said, str):
                return said
            times = said or times
    return times if times is not None else "no process gave a time"


def _rank(pipe: Connection, job: _Job, rank: int) -> None:
    """Run one rank in a process of its own; only the first says times, and any says what went wrong."""
    try:
        torch = torch_module()
        if job.device == "cuda":
            torch.cuda.set_device(rank)
        group = torch.distributed
        group.init_process_group(
            backend=LIBRARY[job.device], init_method=f"file://{job.meet}", rank=rank, world_size=job.num_ranks
        )
        found = [_times(torch, job.device, size, job.num_samples) for size in job.sizes_bytes]
        group.destroy_process_group()
        pipe.send(found if rank == 0 else [])
    except Exception as problem:  # noqa: BLE001 - a process has nobody else to tell
        pipe.send((str(problem).strip().splitlines() or [type(problem).__name__])[0])


def _times(torch: Any, device: str, num_bytes: int, num_samples: int) -> list[float]:  # noqa: ANN401 - torch
    width = torch.bfloat16 if device == "cuda" else torch.float32
    element_bytes = _ELEMENT_BYTES if device == "cuda" else 2 * _ELEMENT_BYTES
    place = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else "cpu"
    buffer = torch.zeros(max(1, num_bytes // element_bytes), dtype=width, device=place)

    def passed_s(num: int) -> float:
        torch.distributed.barrier()
        _wait(torch, device)
        start_s = time.perf_counter()
        for _ in range(num):
            torch.distributed.all_reduce(buffer)
        _wait(torch, device)
        return (time.perf_counter() - start_s) / num

    once = torch.tensor([passed_s(_WARM)], dtype=torch.float32, device=place)
    # All ranks must run as often.
    torch.distributed.broadcast(once, 0)
    num = max(1, min(_MOST_RUNS, round(_AIM_S / max(1e-6, float(once[0])))))
    return [passed_s(num) for _ in range(num_samples)]


def _wait(torch: Any, device: str) -> None:  # noqa: ANN401 - torch
    if device == "cuda":
        torch.cuda.synchronize()
