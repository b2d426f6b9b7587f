"""Who makes the runs of a sweep or a comparison, as it is asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from infcalc.api.ranges import check_range
from infcalc.errors import UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.executing import Executor

_MOST_WORKERS = 1024


class ExecutorKind(StrEnum):
    """Where runs are made."""

    SERIAL = "serial"
    PROCESSES = "processes"
    DASK = "dask"


@frozen
class ExecutorAsk:
    """Where runs are made; None stands for the default: processes, as many as cores where that is quicker."""

    kind: str | None = None
    num_workers: int | None = None
    scheduler: str | None = None


def executor_of(asked: ExecutorAsk, *, several: bool = True) -> Executor | None:
    """Return who makes the runs; None where there are not ``several``.

    Raises:
        UsageError: there is no such executor, it lacks what it needs, or there is nothing for it to do.

    """
    kind = _kind_of(asked)
    workers = asked.num_workers
    check_range("--workers", workers, most=_MOST_WORKERS)
    if kind is not ExecutorKind.PROCESSES and workers not in {None, 1}:
        raise UsageError(
            f"{workers} workers for {kind}",
            place="--workers",
            hint="processes take a number; a cluster has as many workers as it was started with",
        )
    if not several:
        if kind is ExecutorKind.DASK:
            raise UsageError(
                "one run cannot be spread", place="--executor", hint="add --sweep rate=1..16 or --compare static,vllm"
            )
        return None
    match kind:
        case ExecutorKind.SERIAL:
            from infcalc.api.executing import SerialExecutor  # noqa: PLC0415 - one of them is needed

            return SerialExecutor()
        case ExecutorKind.PROCESSES:
            from infcalc.api.executing_processes import ProcessExecutor  # noqa: PLC0415

            return ProcessExecutor(workers)
        case ExecutorKind.DASK:
            from infcalc.api.executing_dask import DaskExecutor  # noqa: PLC0415

            return DaskExecutor(asked.scheduler or "")
        case _:
            assert_never(kind)


def _kind_of(asked: ExecutorAsk) -> ExecutorKind:
    word = (asked.kind or ExecutorKind.PROCESSES).strip().lower()
    try:
        kind = ExecutorKind(word)
    except ValueError:
        raise UsageError(
            f"{asked.kind!r} is no executor", place="--executor", hint=f"one of {', '.join(ExecutorKind)}"
        ) from None
    if (kind is ExecutorKind.DASK) != bool(asked.scheduler):
        if kind is ExecutorKind.DASK:
            raise UsageError(
                "dask needs the address of its scheduler",
                place="--scheduler",
                hint="start one with `dask scheduler` and name what it prints: --scheduler tcp://HOST:8786",
            )
        raise UsageError(f"a scheduler for {kind}", place="--scheduler", hint="add --executor dask")
    return kind
