"""Runs on a dask.distributed cluster are those made here; a lost worker loses nothing, and what is wrong is told."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from infcalc.api import executing_dask
from infcalc.api.executing_dask import DaskExecutor
from infcalc.api.executors import ExecutorAsk, executor_of
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.sweeping import parse_sweep
from infcalc.errors import RunsLost, UsageError
from infcalc.report.as_json import as_json
from tests.api.test_executing import FEW, SMALL, Squaring, many

needs_dask = pytest.mark.skipif(
    find_spec("distributed") is None, reason="dask.distributed (extra dask) is not installed"
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if find_spec("distributed") is None:
        pytest.skip("dask.distributed (extra dask) is not installed")
    cluster: Any = import_module("distributed").LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    )
    with cluster:
        yield cluster.scheduler_address


@pytest.mark.parametrize(
    "asked",
    [
        SimulationAsk(load=FEW, sweep=parse_sweep("rate=2,8,32")),
        SimulationAsk(load=FEW, compared=("static", "vllm", "sglang")),
    ],
    ids=["sweep", "compare"],
)
def test_a_simulation_gives_the_same_bytes_on_a_cluster(address: str, asked: SimulationAsk) -> None:
    here, there = (simulate(SMALL, asked, explain=True, executor=one) for one in (None, DaskExecutor(address)))
    assert as_json(here) == as_json(there)


def test_a_task_whose_worker_is_killed_is_made_by_another(address: str, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    tasks = [*many(3), Squaring(value=9, num_kills=1, diary=str(diary)), *many(2)]
    seen: list[tuple[int, int]] = []
    results = DaskExecutor(address).run(tasks, lambda done, total: seen.append((done, total))).results
    assert [one.value for one in results if one is not None] == [0, 1, 4, 81, 0, 1]
    assert diary.read_text(encoding="utf-8") == "tried\ntried\n"
    assert seen[-1] == (60, 60)


def test_tasks_that_kill_their_workers_each_time_are_named(address: str, tmp_path: Path) -> None:
    fatal = Squaring(value=8, num_kills=99, diary=str(tmp_path / "diary"))
    with pytest.raises(RunsLost, match="again and again: value 8"):
        DaskExecutor(address).run([*many(2), fatal])


def test_what_a_run_refuses_is_told_as_it_is(address: str) -> None:
    with pytest.raises(UsageError, match="3 is wrong") as told:
        DaskExecutor(address).run([*many(2), Squaring(value=3, wrong=True)])
    assert (told.value.place, told.value.hint) == ("--value", "another")


def test_workers_of_another_version_are_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = executing_dask.versions
    assert there()[0]

    def here() -> tuple[str, str, str]:
        return ("0.0.0", *there()[1:])

    class Ours(DaskExecutor):
        def _client(self) -> object:
            client: Any = super()._client()
            ask = client.run
            client.run = lambda _: ask(there)
            return client

    monkeypatch.setattr(executing_dask, "versions", here)
    with pytest.raises(RunsLost, match=r"differ from infcalc 0\.0\.0 .* here") as told:
        Ours(address).run(many(2))
    assert "same versions" in str(told.value)


@needs_dask
def test_a_scheduler_without_workers_is_told() -> None:
    cluster = import_module("distributed").LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50)
    with cluster, pytest.raises(RunsLost, match="no workers") as told:
        DaskExecutor(cluster.scheduler_address, timeout_s=1.0).run(many(2))
    assert "dask worker tcp://" in str(told.value)


@needs_dask
def test_nobody_at_the_address_is_told_within_the_time() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RunsLost, match="no dask scheduler answers") as told:
        DaskExecutor(f"tcp://127.0.0.1:{port}", timeout_s=1.0).run(many(2))
    assert "dask scheduler" in str(told.value)


@needs_dask
@pytest.mark.parametrize("text", ["nonsense", "tcp://host", "http://host:80", "tcp://:8786", "tcp://host:99999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no address of a scheduler"):
        DaskExecutor(text)


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="is not installed") as told:
        executor_of(ExecutorAsk(kind="dask", scheduler="tcp://127.0.0.1:8786"))
    assert "infcalc[dask]" in str(told.value)


@pytest.mark.parametrize(
    ("asked", "several", "words"),
    [
        (ExecutorAsk(kind="dask"), True, "needs the address"),
        (ExecutorAsk(kind="threads"), True, "is no executor"),
        (ExecutorAsk(scheduler="tcp://127.0.0.1:8786"), True, "a scheduler for processes"),
        (ExecutorAsk(num_workers=0), True, "out of range"),
        (ExecutorAsk(kind="serial", num_workers=4), True, "4 workers for serial"),
        (ExecutorAsk(kind="dask", scheduler="tcp://127.0.0.1:8786"), False, "one run cannot be spread"),
    ],
    ids=str,
)
def test_executors_that_cannot_be_are_refused(asked: ExecutorAsk, several: bool, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        executor_of(asked, several=several)


def test_one_run_takes_no_executor() -> None:
    assert executor_of(ExecutorAsk(num_workers=4), several=False) is None
