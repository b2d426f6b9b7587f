"""Runs are the same wherever they are made, and those whose worker dies are made again."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from time import sleep

import pytest

from infcalc.api import executing_processes, simulation_tasks
from infcalc.api.deployment import Ask
from infcalc.api.drafting import DraftAsk
from infcalc.api.executing import PAYS_FROM_S, Done, Executed, Executor, SerialExecutor, Task, saved_s
from infcalc.api.executing_processes import ProcessExecutor
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.sweeping import parse_sweep
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.errors import RunsLost, UsageError
from infcalc.frozen import frozen
from infcalc.report.as_json import as_json

SMALL = Ask(models=("llama3-8b",), gpus=("rtx-4090",), num_gpus=1)
FEW = WorkloadAsk(num_requests=60)


@frozen
class Squared:
    """A result."""

    value: int
    is_partial: bool = False


@frozen
class Squaring:
    """A task that kills its process as long as its tries are not used up, one line of ``diary`` each."""

    value: int
    num_kills: int = 0
    diary: str = ""
    wrong: bool = False
    interrupts: bool = False
    hangs: bool = False
    num_requests: int = 10
    expected_s: float = 1.0

    @property
    def name(self) -> str:
        return f"value {self.value}"

    def run(self, progress: object) -> Squared:
        if self.diary:
            with Path(self.diary).open("a+", encoding="utf-8") as book:
                book.seek(0)
                tries = len(book.readlines())
                book.write("tried\n")
            if tries < self.num_kills:
                os.kill(os.getpid(), signal.SIGKILL)
        if self.wrong:
            raise UsageError(f"{self.value} is wrong", place="--value", hint="another")
        if self.interrupts:
            # The others have ended by then.
            sleep(0.5)
            os.kill(os.getppid(), signal.SIGINT)
        if self.interrupts or self.hangs:
            signal.pause()
        if callable(progress):
            progress(5, 10)
        return Squared(value=self.value**2)


def many(number: int) -> list[Squaring]:
    return [Squaring(value=value) for value in range(number)]


@pytest.mark.parametrize("executor", [SerialExecutor(), ProcessExecutor(1), ProcessExecutor(3)])
def test_results_come_in_the_order_of_the_tasks_and_progress_is_of_all(executor: Executor) -> None:
    seen: list[tuple[int, int]] = []
    results = executor.run(many(7), lambda done, total: seen.append((done, total))).results
    assert [one.value for one in results if one is not None] == [value**2 for value in range(7)]
    assert {total for _, total in seen} == {70}
    assert seen == sorted(seen)
    assert seen[-1] == (70, 70)
    assert executor.run([]).results == ()


def test_a_task_whose_process_is_killed_is_made_again(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    tasks = [*many(3), Squaring(value=9, num_kills=1, diary=str(diary)), *many(2)]
    results = ProcessExecutor(2).run(tasks).results
    assert [one.value for one in results if one is not None] == [0, 1, 4, 81, 0, 1]
    assert diary.read_text(encoding="utf-8") == "tried\ntried\n"


def test_tasks_that_kill_their_process_each_time_are_named(tmp_path: Path) -> None:
    fatal = [Squaring(value=value, num_kills=99, diary=str(tmp_path / f"{value}")) for value in (8, 9)]
    with pytest.raises(RunsLost, match="died 3 times: value 8, value 9") as told:
        ProcessExecutor(2).run([*many(2), *fatal, *many(1)])
    assert told.value.exit_code == 2
    assert "--workers" in str(told.value)


@pytest.mark.parametrize("executor", [SerialExecutor(), ProcessExecutor(2)])
def test_what_a_run_refuses_is_told_as_it_is(executor: Executor) -> None:
    with pytest.raises(UsageError, match="3 is wrong") as told:
        executor.run([*many(2), Squaring(value=3, wrong=True)])
    assert (told.value.place, told.value.hint) == ("--value", "another")


def test_ctrl_c_keeps_what_is_finished() -> None:
    tasks = [*many(3), Squaring(value=3, interrupts=True), Squaring(value=4, hangs=True)]
    results = ProcessExecutor(2).run(tasks).results
    assert [one.value for one in results[:3] if one is not None] == [0, 1, 4]
    assert results[3:] == (None, None)
    with pytest.raises(KeyboardInterrupt):
        ProcessExecutor(2).run([Squaring(value=1, interrupts=True), Squaring(value=2, hangs=True)])


def test_processes_are_started_only_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> None:
        raise AssertionError("a process was started")

    quick = [Squaring(value=value, expected_s=0.6 * PAYS_FROM_S) for value in range(2)]
    slow = [Squaring(value=value, expected_s=1.1 * PAYS_FROM_S) for value in range(2)]
    assert saved_s(quick, 2) == pytest.approx(0.6 * PAYS_FROM_S)
    # One long task is as long as all.
    assert saved_s([Squaring(value=0, expected_s=9.0), *quick], 3) == pytest.approx(1.2 * PAYS_FROM_S)
    monkeypatch.setattr(executing_processes, "num_cores", lambda: 2)
    monkeypatch.setattr(executing_processes, "_Worker", forbidden)
    assert ProcessExecutor().run(quick).results[1] == Squared(value=1)
    with pytest.raises(AssertionError, match="was started"):
        ProcessExecutor().run(slow)


@pytest.mark.parametrize(
    "asked",
    [
        SimulationAsk(load=FEW, sweep=parse_sweep("rate=2,8,32")),
        SimulationAsk(load=FEW, compared=("static", "vllm", "sglang"), num_replicas=2),
        SimulationAsk(load=WorkloadAsk(num_requests=40, turns="2"), sweep=parse_sweep("rate=2,8"), slo=()),
    ],
    ids=["sweep", "compare", "sessions"],
)
def test_a_simulation_gives_the_same_bytes_on_processes(asked: SimulationAsk) -> None:
    here, there = (simulate(SMALL, asked, explain=True, executor=one) for one in (None, ProcessExecutor(2)))
    assert as_json(here) == as_json(there)


def test_a_sweep_of_a_file_needs_the_file_here_only(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,90,5\n0,50,5\n1,81,50\n", encoding="utf-8")
    asked = SimulationAsk(load=WorkloadAsk(file=str(trace)), sweep=parse_sweep("concurrency=1,2"))
    here = as_json(simulate(SMALL, asked))

    class Elsewhere(SerialExecutor):
        def run(self, tasks: Sequence[Task[Done]], progress: object = None) -> Executed[Done]:
            del progress
            trace.unlink()
            simulation_tasks._MADE.clear()  # noqa: SLF001 - as it is in another process
            return super().run([pickle.loads(pickle.dumps(task)) for task in tasks])  # noqa: S301

    assert as_json(simulate(SMALL, asked, executor=Elsewhere())) == here


def test_what_is_broken_off_is_named() -> None:
    class Half(SerialExecutor):
        def run(
            self, tasks: Sequence[Task[Done]], progress: Callable[[int, int], None] | None = None
        ) -> Executed[Done]:
            made = super().run(tasks[:1], progress).results
            return Executed(results=(*made, *[None] * (len(tasks) - 1)))

    asked = SimulationAsk(load=FEW, sweep=parse_sweep("rate=2,8,32"))
    answer = simulate(SMALL, asked, executor=Half())
    assert answer.exit_code == 130
    assert answer.result.not_run == ("rate 8", "rate 32")
    assert "broken off before these runs were made: rate 8, rate 32" in " ".join(answer.warnings)
    compared = simulate(SMALL, SimulationAsk(load=FEW, compared=("vllm", "static")), executor=Half())
    assert (compared.exit_code, compared.result.not_run, len(compared.result.compare)) == (130, ("static",), 1)


class Noting(SerialExecutor):
    """Makes the runs here, and notes what it was given."""

    def __init__(self) -> None:
        self.expected_s = 0.0
        self.names: list[str] = []

    def run(self, tasks: Sequence[Task[Done]], progress: Callable[[int, int], None] | None = None) -> Executed[Done]:
        self.expected_s = sum(task.expected_s for task in tasks)
        self.names = [task.name for task in tasks]
        return super().run(tasks, progress)


def test_beside_drafts_the_run_without_them_is_in_progress_and_in_the_expected_time() -> None:
    ask = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1)
    draft = DraftAsk(methods=("eagle3",), num_draft_tokens=3, acceptance=(0.7,))
    expected_s = []
    for times in (1, 2):
        told: list[tuple[int, int]] = []
        noting = Noting()
        asked = SimulationAsk(load=FEW, compared=("vllm", "continuous"), draft=draft if times == 2 else None)
        simulate(ask, asked, progress=lambda *one, told=told: told.append(one), executor=noting)
        done = [count for count, _ in told]
        assert done == sorted(done)
        assert {total for _, total in told} == {2 * 60 * times}
        assert done[-1] == 2 * 60 * times
        expected_s.append(noting.expected_s)
    assert expected_s[1] == 2 * expected_s[0]


@pytest.mark.parametrize(
    ("text", "names"),
    [("rate=1,1", ["rate 1"]), ("rate=2,1,1..2,1.0", ["rate 1", "rate 2"]), ("users=3,3..3", ["users 3"])],
)
def test_a_value_of_a_sweep_that_is_written_twice_is_run_once(text: str, names: list[str]) -> None:
    noting = Noting()
    result = simulate(SMALL, SimulationAsk(load=FEW, sweep=parse_sweep(text)), executor=noting).result
    assert noting.names == names
    assert result.sweep is not None
    assert len(result.sweep.points) == len(names)
