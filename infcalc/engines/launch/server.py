"""One process to start: the words of its command line, and the options of every machine of a replica."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from infcalc.engines.flags.flag import Place
from infcalc.engines.flags.table import has_flag, version_of
from infcalc.engines.launch import llamacpp, sglang, tensorrt_llm, vllm
from infcalc.engines.launch.want import Address, Refusal, Want, written
from infcalc.engines.rules import Since, at_version
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.engines.launch.spec import LaunchSpec
    from infcalc.engines.launch.want import Written

HEAD = Address("$HEAD")
"""The address of a replica's first machine, which its user sets."""
_WANTS = {
    "vllm": vllm.wants,
    "sglang": sglang.wants,
    "tensorrt-llm": tensorrt_llm.wants,
    "llama.cpp": llamacpp.wants,
}
DEFAULT_PORTS = {"vllm": 8000, "sglang": 30000, "tensorrt-llm": 8000, "llama.cpp": 8080}
"""Ports that servers listen on where none is stated."""
_VLLM_PROGRAM: tuple[Since[tuple[str, ...]], ...] = (
    Since(version=(0,), value=("python", "-m", "vllm.entrypoints.openai.api_server", "--model"), source="vLLM 0.5.1"),
    Since(version=(0, 5, 2), value=("vllm", "serve"), source="vLLM 0.5.2: the console script vllm"),
)
CONFIG_FILE = "config.yaml"


@frozen
class Server:
    """A process: ``program`` (with the model, where that has no option) and its options, and what its YAML holds."""

    spec: LaunchSpec
    machine: int
    program: tuple[str, ...]
    options: tuple[Written, ...]
    config_name: str
    """Name of its YAML; empty: it needs none."""
    warnings: tuple[str, ...]

    @property
    def command_options(self) -> tuple[Written, ...]:
        """The options that stand on the command line."""
        return tuple(one for one in self.options if one.place is Place.COMMAND)

    @property
    def words(self) -> tuple[str, ...]:
        """All words of the command line, not yet quoted."""
        return (*self.program, *(word for one in self.command_options for word in one.words))

    @property
    def config(self) -> dict[str, object]:
        """What the YAML of the engine holds, dotted keys as mappings."""
        found: dict[str, object] = {}
        for one in self.options:
            if one.place is Place.FILE:
                _put(found, one.flag.split("."), one.value)
        return found


def _put(target: dict[str, object], path: list[str], value: object) -> None:
    *folders, name = path
    for folder in folders:
        inner = target.setdefault(folder, {})
        if not isinstance(inner, dict):
            raise TypeError
        target = inner
    target[name] = value


def server(spec: LaunchSpec, machine: int = 0, *, head: Address = HEAD, config_folder: str = "") -> Server:
    """Return the process of one machine of a replica; ``head`` is the address of the first.

    ``config_folder`` is where the engine's YAML lies, with its slash.
    """
    options, said = written(spec.engine, spec.version, [*_WANTS[spec.engine](spec), *_machines(spec, machine, head)])
    config_name = ""
    if any(one.place is Place.FILE for one in options):
        config_name = CONFIG_FILE if spec.role == "server" else f"config-{spec.role}.yaml"
        at = version_of(spec.engine, spec.version)
        name = next(one for one in tensorrt_llm.CONFIG_NAMES if has_flag(spec.engine, one, at))
        why = "what has no option: " + ", ".join(one.flag for one in options if one.place is Place.FILE)
        more, _ = written(spec.engine, spec.version, [Want(flag=name, value=config_folder + config_name, why=why)])
        options = (*options, *more)
    return Server(
        spec=spec,
        machine=machine,
        program=_program(spec),
        options=options,
        config_name=config_name,
        warnings=said,
    )


def _program(spec: LaunchSpec) -> tuple[str, ...]:
    match spec.engine:
        case "vllm":
            program = at_version(_VLLM_PROGRAM, version_of(spec.engine, spec.version)).value
            return (*program, spec.model_id)
        case "sglang":
            return ("python", "-m", "sglang.launch_server")
        case "tensorrt-llm":
            return (*_under_slurm(spec), "trtllm-serve", spec.model_id)
        case _:
            return ("llama-server",)


def _under_slurm(spec: LaunchSpec) -> tuple[str, ...]:
    """Return what starts the ranks of several machines. Source: TensorRT-LLM docs, trtllm-serve on several nodes."""
    if spec.num_machines == 1:
        return ()
    each = str(spec.gpus_per_machine)
    return ("srun", "--nodes", str(spec.num_machines), "--ntasks-per-node", each, "--mpi=pmix", "trtllm-llmapi-launch")


def _machines(spec: LaunchSpec, machine: int, head: Address) -> Iterator[Want | Refusal]:
    """Yield the options that differ by machine, where a replica spans several."""
    number = spec.num_machines
    if number == 1:
        return
    match spec.engine:
        case "vllm":
            yield from _vllm_machines(spec, machine, head)
        case "sglang":
            yield Want(flag="--nnodes", value=number, why=_spans(spec))
            yield Want(flag="--node-rank", value=machine, why=f"machine {machine} of 0 to {number - 1}")
            yield Want(
                flag="--dist-init-addr", value=Address(f"{head}:20000"), why="where the ranks of machine 0 listen"
            )
        case "llama.cpp":
            yield Refusal(
                text=f"llama.cpp reaches {number} machines over RPC servers only, which are not written here: "
                "this command is for one machine"
            )
        case _:
            return


def _vllm_machines(spec: LaunchSpec, machine: int, head: Address) -> Iterator[Want]:
    ranks = spec.parallelism
    if ranks.dp > 1 and spec.gpus_per_machine % (ranks.tp * ranks.pp) == 0:
        local = spec.gpus_per_machine // (ranks.tp * ranks.pp)
        yield Want(flag="--data-parallel-size-local", value=local, why=f"{local} of {ranks.dp} ranks on each machine")
        yield Want(flag="--data-parallel-address", value=head, why="where the ranks of machine 0 listen")
        if machine:
            why = f"machine {machine} of 0 to {spec.num_machines - 1}"
            yield Want(flag="--data-parallel-start-rank", value=machine * local, why=why)
            yield Want(flag="--headless", value=None, why="machine 0 takes the requests")
    elif has_flag("vllm", "--nnodes", version_of(spec.engine, spec.version)):
        yield Want(flag="--nnodes", value=spec.num_machines, why=_spans(spec))
        yield Want(flag="--node-rank", value=machine, why=f"machine {machine} of 0 to {spec.num_machines - 1}")
        yield Want(flag="--master-addr", value=head, why="where the ranks of machine 0 listen")
        if machine:
            yield Want(flag="--headless", value=None, why="machine 0 takes the requests")
    else:
        why = f"{_spans(spec)}; they form a Ray cluster before this starts on the first"
        yield Want(flag="--distributed-executor-backend", value="ray", why=why)


def _spans(spec: LaunchSpec) -> str:
    return f"{spec.parallelism.num_gpus} GPUs are {spec.num_machines} machines of {spec.gpus_per_machine}"


def uses_ray(spec: LaunchSpec) -> bool:
    """Return whether the machines of a replica are joined by Ray: only the first then starts the server."""
    return any(one.flag == "--distributed-executor-backend" for one in server(spec).options)


def quoted(word: str) -> str:
    """Return a word as a shell takes it; only the address that its user sets is expanded.

    >>> quoted("my model; rm -rf /"), quoted(HEAD), quoted("$HEAD"), quoted("--tp-size")
    ("'my model; rm -rf /'", '"$HEAD"', "'$HEAD'", '--tp-size')
    """
    return f'"{word}"' if isinstance(word, Address) else shlex.quote(word)


def shell_text(one: Server, *, before: str = "", after: str = "") -> str:
    """Return the command of a server for a POSIX shell, an option on each line."""
    lines = [before + " ".join(quoted(word) for word in one.program)]
    lines += [" ".join(quoted(word) for word in option.words) for option in one.command_options]
    return " \\\n  ".join(lines) + after
