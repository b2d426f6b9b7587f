"""Runs on processes of this machine, a task at a time each: one that dies costs its task a second try, nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Generic

from infcalc.api.executing import PAYS_FROM_S, Done, Executed, SerialExecutor, Whole, saved_s
from infcalc.errors import InfcalcError, RunsLost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.process import BaseProcess

    from infcalc.api.executing import Task

_MOST_DEATHS = 3
_LISTEN_S = 1.0


def num_cores() -> int:
    """Return the cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


class ProcessExecutor:
    """Runs on ``num_workers`` processes; None: as many as cores, where that saves ``PAYS_FROM_S`` seconds.

    A number that is given is kept to; of a single task or worker nothing is sent anywhere.
    """

    def __init__(self, num_workers: int | None = None) -> None:
        self._given = num_workers is not None
        self.num_workers = num_cores() if num_workers is None else num_workers

    def run(self, tasks: Sequence[Task[Done]], progress: Callable[[int, int], None] | None = None) -> Executed[Done]:
        """Return the results; Ctrl-C keeps those that are there.

        Raises:
            InfcalcError: a run was refused.
            RunsLost: tasks whose processes died, again and again; the others were made.

        """
        count = min(self.num_workers, len(tasks))
        if count < 2 or not (self._given or saved_s(tasks, count) >= PAYS_FROM_S):  # noqa: PLR2004 - two share
            return SerialExecutor().run(tasks, progress)
        return _Pool(tasks, count, progress).run()


class _Worker:
    """A process, and the task that it has."""

    def __init__(self) -> None:
        # A fork costs 10 ms, a fresh interpreter half a second; but threads do not live through a fork.
        forks = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
        context = multiprocessing.get_context("fork" if forks else "spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()
        self.place: int | None = None

    def give(self, place: int, task: object) -> None:
        self.place = place
        try:
            self.pipe.send(task)
        except (BrokenPipeError, ConnectionResetError):
            # It has died: it will be found dead.
            return

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class _Pool(Generic[Done]):
    def __init__(self, tasks: Sequence[Task[Done]], count: int, progress: Callable[[int, int], None] | None) -> None:
        self._tasks = tasks
        self._count = count
        self._whole = Whole(tasks, progress)
        self._todo = deque(range(len(tasks)))
        self._deaths = [0] * len(tasks)
        self._results: list[Done | None] = [None] * len(tasks)
        self._workers: list[_Worker] = []

    def run(self) -> Executed[Done]:
        try:
            self._serve_all()
        except KeyboardInterrupt:
            self._hear_the_finished()
            if all(one is None for one in self._results):
                raise
            return Executed(results=tuple(self._results))
        finally:
            for worker in self._workers:
                worker.stop()
        lost = [task.name for task, deaths in zip(self._tasks, self._deaths, strict=True) if deaths >= _MOST_DEATHS]
        if lost:
            raise RunsLost(
                f"the process that runs it died {_MOST_DEATHS} times: {', '.join(lost)}",
                place="--workers",
                hint="memory may have run out: take fewer --workers, or run it alone with --workers 1",
            )
        return Executed(results=tuple(self._results))

    def _serve_all(self) -> None:
        while True:
            while self._todo and len(self._workers) < self._count:
                self._workers.append(_Worker())
            for worker in self._workers:
                if worker.place is None and self._todo:
                    place = self._todo.popleft()
                    worker.give(place, self._tasks[place])
            busy = [worker for worker in self._workers if worker.place is not None]
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy])
            for worker in busy:
                if worker.pipe in ready:
                    self._hear(worker)

    def _hear_the_finished(self) -> None:
        for worker in tuple(self._workers):
            while worker.place is not None and worker in self._workers and worker.pipe.poll():
                self._hear(worker)

    def _hear(self, worker: _Worker) -> None:
        place = worker.place
        if place is None:
            raise AssertionError("nobody waits for a worker without a task")
        try:
            kind, said = worker.pipe.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.stop()
            self._deaths[place] += 1
            if self._deaths[place] < _MOST_DEATHS:
                self._todo.append(place)
            return
        if kind == _FAR:
            self._whole.tell(place, said)
        elif kind == _FAILED:
            raise said
        else:
            self._results[place] = said
            worker.place = None
            self._whole.tell(place, self._tasks[place].num_requests)


_FAR, _FAILED, _DONE = "far", "failed", "done"


def _serve(pipe: Connection, parent: int) -> None:
    """Make one run after another, until nobody wants more."""
    # Ctrl-C reaches all processes of a terminal: it is the parent's to end them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        while not pipe.poll(_LISTEN_S):
            if os.getppid() != parent:
                return
        try:
            task = pipe.recv()
        except EOFError:
            return

        def far(done: int, total: int) -> None:
            del total
            pipe.send((_FAR, done))

        try:
            said = (_DONE, task.run(far))
        except Exception as error:  # noqa: BLE001 - told to the parent, whatever it is
            said = (
                _FAILED,
                error if isinstance(error, InfcalcError) else RuntimeError(f"{type(error).__name__}: {error}"),
            )
        pipe.send(said)
