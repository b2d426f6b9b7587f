"""Runs on a dask.distributed cluster: the same tasks, each on whichever worker is free; of a lost worker, on another.

The cluster is the user's: its workers run this version of infcalc, and need none of the files that a run is made of.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

from infcalc.api.executing import Done, Executed, Whole
from infcalc.errors import RunsLost, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infcalc.api.executing import Task

_Client: TypeAlias = Any
"""Of distributed, which may not be there to name it."""
_PLACE = "--scheduler"
_TIMEOUT_S = 10.0
_SCHEMES = {"tcp", "tls"}


class DaskExecutor:
    """Runs on the cluster whose scheduler listens at ``address``: ``tcp://HOST:PORT``.

    Raises:
        UsageError: the dask extra is not installed, or this is no address.

    """

    def __init__(self, address: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        try:
            import distributed  # noqa: PLC0415 - an optional extra
        except ImportError:
            raise UsageError(
                "dask.distributed is not installed", place="--executor", hint="pip install 'infcalc[dask]'"
            ) from None
        self._dask: Any = distributed
        self._host, self._port = _host_and_port(address)
        self._address = address
        self._timeout_s = timeout_s

    def run(self, tasks: Sequence[Task[Done]], progress: Callable[[int, int], None] | None = None) -> Executed[Done]:
        """Return the results; Ctrl-C keeps those that are there, and takes the others back.

        Raises:
            InfcalcError: a run was refused.
            RunsLost: no scheduler or no worker is there, theirs is another version, or workers died again and again.

        """
        client = self._client()
        try:
            self._check_workers(client)
            return self._ran(client, tasks, progress)
        finally:
            client.close(timeout=self._timeout_s)

    def _client(self) -> _Client:
        unreachable = RunsLost(
            f"no dask scheduler answers at {self._address} within {self._timeout_s:g} s",
            place=_PLACE,
            hint="start one with `dask scheduler`, and name the address that it prints",
        )
        try:
            socket.create_connection((self._host, self._port), timeout=self._timeout_s).close()
            return self._dask.Client(self._address, timeout=self._timeout_s, set_as_default=False)
        except (OSError, ValueError):
            raise unreachable from None

    def _check_workers(self, client: _Client) -> None:
        try:
            client.wait_for_workers(1, timeout=self._timeout_s)
        except TimeoutError:
            raise RunsLost(
                f"the scheduler at {self._address} has no workers",
                place=_PLACE,
                hint=f"start some: dask worker {self._address}",
            ) from None
        mine = versions()
        try:
            theirs = client.run(versions)
        except ImportError as missing:
            raise RunsLost(
                f"a worker at {self._address} cannot import infcalc: {missing}",
                place=_PLACE,
                hint=f"install {_told(mine)} where the workers run",
            ) from None
        others = {worker: found for worker, found in theirs.items() if found != mine}
        if others:
            listed = "; ".join(f"{worker} has {_told(found)}" for worker, found in sorted(others.items()))
            raise RunsLost(
                f"workers differ from {_told(mine)} here, and may give other figures: {listed}",
                place=_PLACE,
                hint="install the same versions there as here",
            )

    def _ran(
        self,
        client: _Client,
        tasks: Sequence[Task[Done]],
        progress: Callable[[int, int], None] | None,
    ) -> Executed[Done]:
        whole = Whole(tasks, progress)
        results: list[Done | None] = [None] * len(tasks)
        futures = [client.submit(_run, task, pure=False) for task in tasks]
        place_of = {future.key: place for place, future in enumerate(futures)}
        lost: list[str] = []
        try:
            for future in self._dask.as_completed(futures, loop=client.loop):
                place = place_of[future.key]
                try:
                    results[place] = future.result()
                except self._dask.scheduler.KilledWorker:
                    lost.append(tasks[place].name)
                whole.tell(place, tasks[place].num_requests)
        except KeyboardInterrupt:
            client.cancel(futures)
            if all(one is None for one in results):
                raise
            return Executed(results=tuple(results))
        except (OSError, self._dask.CancelledError) as gone:
            raise RunsLost(
                f"the connection to {self._address} was lost: {gone}",
                place=_PLACE,
                hint="is the scheduler still there?",
            ) from None
        if lost:
            raise RunsLost(
                f"workers died of it again and again: {', '.join(lost)}",
                place="--executor",
                hint="memory may have run out: give the workers more, or fewer threads each",
            )
        return Executed(results=tuple(results))


def versions() -> tuple[str, str, str]:
    """Return the versions of what figures depend on: infcalc, Python and numpy."""
    import numpy as np  # noqa: PLC0415

    import infcalc  # noqa: PLC0415

    return infcalc.__version__, f"{sys.version_info.major}.{sys.version_info.minor}", np.__version__


def _told(found: tuple[str, str, str]) -> str:
    return f"infcalc {found[0]} (Python {found[1]}, numpy {found[2]})"


def _run(task: Task[Done]) -> Done:
    return task.run(None)


def _host_and_port(address: str) -> tuple[str, int]:
    scheme, separator, rest = address.strip().rpartition("://")
    host, colon, port = rest.rpartition(":")
    if (separator and scheme not in _SCHEMES) or not colon or not host or not port.isdecimal() or int(port) >= 2**16:
        raise UsageError(
            f"{address!r} is no address of a scheduler", place=_PLACE, hint="write tcp://HOST:PORT, as it prints it"
        )
    return host.strip("[]"), int(port)
