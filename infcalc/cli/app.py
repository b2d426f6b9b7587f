"""The command line: which commands there are, by the question they answer. A command's module loads when it runs."""

from __future__ import annotations

import inspect
import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_command_from_info
from typer.models import CommandInfo

from infcalc.cli.completion import VARIABLE, complete
from infcalc.cli.failures import exit_code_of
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import click

    from infcalc.cli.options import Option


@frozen
class Command:
    """A command: its name, the question it answers, and the module that holds its ``run`` and ``OPTIONS``."""

    name: str
    question: str
    module: str


COMMANDS = (
    Command(name="kv", question="How big is the KV cache, and how many sequences of it fit?", module="infcalc.cli.kv"),
    Command(name="concurrency", question="How many users at FP16, FP8 and INT4 KV?", module="infcalc.cli.concurrency"),
    Command(name="memory", question="What fills each GPU, and does it fit?", module="infcalc.cli.memory"),
    Command(
        name="roofline", question="What bounds prefill and decode: compute or memory?", module="infcalc.cli.roofline"
    ),
    Command(
        name="estimate",
        question="How fast is it under a load, what does a token cost, and can a measurement be true?",
        module="infcalc.cli.estimate",
    ),
    Command(
        name="speculate",
        question="Does speculative decoding pay, and with how many draft tokens?",
        module="infcalc.cli.speculate",
    ),
    Command(
        name="batching",
        question="Static or continuous batching: who answers the same requests faster, and why?",
        module="infcalc.cli.batching",
    ),
    Command(
        name="workload",
        question="What is in this trace, and can I have one like it?",
        module="infcalc.cli.workload",
    ),
    Command(
        name="simulate",
        question="What happens under this load: waits, percentiles, preemptions, use of the cache?",
        module="infcalc.cli.simulate",
    ),
    Command(
        name="plan",
        question="What should I rent: which GPUs, how many, split how, at what price?",
        module="infcalc.cli.plan",
    ),
    Command(name="paging", question="What does paging save over contiguous KV?", module="infcalc.cli.paging"),
    Command(
        name="prefix-cache",
        question="What does prefix reuse save, and how large must the cache be?",
        module="infcalc.cli.prefix_cache",
    ),
    Command(
        name="what-if",
        question="Does feature X pay here, at equal GPUs?",
        module="infcalc.cli.what_if",
    ),
    Command(
        name="report",
        question="Can I hand all of it to a review? (one page or Markdown: memory, speed, plans, prices)",
        module="infcalc.cli.report",
    ),
    Command(
        name="launch",
        question="What do I paste to start it, and why each option?",
        module="infcalc.cli.launch",
    ),
    Command(
        name="compare",
        question="Does it agree with my engine's log, my benchmark, my metrics? Is mine possible, and normal?",
        module="infcalc.cli.compare",
    ),
    Command(
        name="diagnose",
        question="Why is my server slow? (from its metrics, logs and benchmarks: what to change, and what it gains)",
        module="infcalc.cli.diagnose",
    ),
    Command(
        name="calibrate",
        question="Can it learn my hardware? (from my own benchmarks, tested on runs it has not seen)",
        module="infcalc.cli.calibrate",
    ),
    Command(name="validate", question="How right is it, on recorded start-up logs?", module="infcalc.cli.validate"),
    Command(
        name="lab",
        question="Does it hold on this machine? (numpy on this CPU against its own roofline; measure)",
        module="infcalc.cli.lab",
    ),
    Command(
        name="models", question="Which models does it know? (list, show NAME, add PATH)", module="infcalc.cli.models"
    ),
    Command(name="gpus", question="Which GPUs does it know? (list, show NAME)", module="infcalc.cli.gpus"),
    Command(name="show", question="What does it know of one model or GPU?", module="infcalc.cli.show"),
    Command(name="example", question="What can I ask? (commands to try, by question)", module="infcalc.cli.example"),
    Command(
        name="skill",
        question="How do I get from a symptom to a remedy? (a document, for people and language models)",
        module="infcalc.cli.skill",
    ),
    Command(
        name="completion", question="Can my shell complete its commands and names?", module="infcalc.cli.completion"
    ),
)

SECTIONS = (
    ("Does it fit, and for how many?", ("kv", "concurrency", "memory")),
    ("How fast is it, and what bounds it?", ("roofline", "estimate", "speculate")),
    ("What happens under load?", ("workload", "simulate")),
    ("What does a mechanism save?", ("batching", "paging", "prefix-cache")),
    ("What shall I rent and run?", ("plan", "what-if", "report", "launch")),
    ("Why is it slow?", ("diagnose",)),
    ("Can I trust it?", ("compare", "calibrate", "validate", "lab")),
    ("What does it know?", ("models", "gpus", "show", "example", "skill", "completion")),
)
"""The commands by what a reader wants to know, in the order of the help."""


class Questions(TyperGroup):
    """The commands, each loaded only when it is run; their help lists the questions."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        del ctx
        return [name for _, names in SECTIONS for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, importing its module."""
        del ctx
        for command in COMMANDS:
            if command.name == cmd_name:
                return build(command)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by question, importing none."""
        del ctx
        questions = {command.name: command.question for command in COMMANDS}
        width = max(map(len, questions))
        for title, names in SECTIONS:
            with formatter.section(title.removesuffix("?")):
                # One width, so that the sections read as one table.
                formatter.write_dl([(name.ljust(width), questions[name]) for name in names])


def build(command: Command) -> click.Command:
    """Return the click command of one entry of the table."""
    module = import_module(command.module)
    return get_command_from_info(
        CommandInfo(
            name=command.name,
            callback=with_signature(module.run, module.OPTIONS, getattr(module, "ARGUMENTS", ())),
            help=f"{command.question}\n\n{module.HELP}",
            context_settings={"max_content_width": 100},
        ),
        pretty_exceptions_short=False,
        rich_markup_mode=None,
    )


def with_signature(
    run: Callable[[dict[str, Any]], int], options: Sequence[Option], arguments: Sequence[tuple[str, Any, Any]] = ()
) -> Callable[..., None]:
    """Return a function with one keyword parameter per option, that calls ``run`` with them as a dictionary."""

    def callback(**given: Any) -> None:  # noqa: ANN401 - the parameters are those of the signature below
        from infcalc.cli.given import refuse_empty, refuse_empty_arguments  # noqa: PLC0415 - help needs no api

        refuse_empty(options, given)
        refuse_empty_arguments([name for name, _, _ in arguments], given)
        try:
            code = run(given)
        except KeyboardInterrupt:
            # typer would end it without a word.
            raise typer.Abort from None
        raise typer.Exit(code)

    parameters = [(name, annotation, default) for name, annotation, default in arguments]
    parameters += [(option.name, option.annotation(), option.default) for option in options]
    signature = inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is ... else default,
                annotation=annotation,
            )
            for name, annotation, default in parameters
        ]
    )
    # typer reads the signature, not the parameters.
    setattr(callback, "__signature__", signature)  # noqa: B010 - a function has no such attribute by type
    callback.__annotations__ = {name: annotation for name, annotation, _ in parameters}
    return callback


def _version(wanted: bool) -> None:
    if wanted:
        from infcalc import __version__  # noqa: PLC0415

        typer.echo(f"infcalc {__version__}")
        raise typer.Exit


def application() -> click.Command:
    """Return the whole command line."""
    app = typer.Typer(
        cls=Questions,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="Every command works with no option at all: llama3-70b on 4 x A100-80, TP 4, 4,096 tokens, vLLM.",
    )

    @app.callback()
    def infcalc(
        version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
    ) -> None:
        """Capacity planner and roofline analyzer for LLM inference. Offline; every number can explain itself."""

    return get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run the command line on ``arguments`` and return the exit code of the contract."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # Closed by the shell (`>&-`): the exit code is still an answer.
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            # A name in letters that the terminal's encoding lacks is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    asked = os.environ.get(VARIABLE)
    if asked is not None:
        return exit_code_of(lambda: complete(asked))
    return exit_code_of(lambda: application().main(list(arguments), prog_name="infcalc", standalone_mode=False))
