"""Command lines that give the parts of a capacity review again, quoted for a POSIX shell."""

from __future__ import annotations

import shlex
from importlib import import_module
from typing import TYPE_CHECKING, Any

from infcalc.api.reporting_nouns import ReportResult, Rerun
from infcalc.api.sweeping import Variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infcalc.cli.options import Option

_WAY_OUT = ("format", "json", "explain", "require")
_SPLIT = ("gpu", "gpus", "tp", "pp", "dp", "ep", "dcp")
_CHOICE = ("gpus_from", "engines_from", "allow", "budget", "max_gpus", "from_naive")
_DRAFTS = ("method", "draft_model", "num_draft_tokens", "acceptance", "accepted", "drafted")
"""Of the plans on offer alone."""
_SENT = ("users", "rate", "think_time", "prefix_hit")
_LENGTHS = ("input_tokens", "output_tokens")
_PROFILE = ("profile", "peak", "start_up", "min_replicas")
_SWEPT = {
    Variable.USERS: ("users", "rate"),
    Variable.CONCURRENCY: ("users", "rate"),
    Variable.RATE: ("users", "rate", "think_time"),
    Variable.BATCH: ("users", "rate", "think_time"),
    Variable.INPUT_TOKENS: ("input_tokens",),
    Variable.OUTPUT_TOKENS: ("output_tokens",),
    Variable.TP: (),
}
"""Options that a sweep over a quantity takes the place of."""


def reruns(options: Mapping[str, Any], result: ReportResult) -> tuple[Rerun, ...]:
    """Return a line for each part of the review, and one for the whole.

    ``options`` are those that ``report`` was given; what a part takes besides is written out.
    """
    load = {"rate": options["rate"]} if options.get("rate") is not None else {"users": result.plan.users}
    lines = [
        ("memory", _line("memory", options, {"context": [result.memory.context_tokens]}, without=_LENGTHS + _SENT)),
        ("roofline", _line("roofline", options, _of_roofline(result))),
        (
            "estimate, of the fullest replica",
            _line("estimate", options, _share(options, result), without=("sweep", "slo")),
        ),
        *_curve(options, result),
        ("plan, as deployed", _line("plan", options, load | _as_deployed(result), without=_CHOICE + _DRAFTS)),
        ("plan, of all on offer", _line("plan", options, load, without=_SPLIT)),
        ("the whole report", _line("report", options, {"output": options.get("output") or "capacity.html"})),
    ]
    return tuple(Rerun(part=part, command=command) for part, command in lines)


def _of_roofline(result: ReportResult) -> dict[str, Any]:
    bounds = result.roofline
    return {"context": [bounds.context_tokens], "batch": list(dict.fromkeys(point.batch for point in bounds.points))}


def _share(options: Mapping[str, Any], result: ReportResult) -> dict[str, Any]:
    """Return the load of the fullest replica."""
    share = result.share_per_replica
    return {"rate": share} if options.get("rate") is not None else {"users": int(share)}


def _curve(options: Mapping[str, Any], result: ReportResult) -> list[tuple[str, str]]:
    if result.curve is None:
        return []
    swept = _SWEPT[result.curve.variable]
    share = {name: value for name, value in _share(options, result).items() if name not in swept}
    line = _line("estimate", options, share | {"sweep": result.swept}, without=("slo", *_PROFILE, *swept))
    return [("estimate, of the curve", line)]


def _as_deployed(result: ReportResult) -> dict[str, Any]:
    """Return what pins the plan to the deployment's own kind."""
    ranks = result.ranks
    split = {"gpu": [result.memory.gpu], "gpus": result.memory.num_gpus}
    split |= {name: getattr(ranks, name) for name in ("tp", "pp", "dp", "ep")}
    return split | {"top": 1}


def _line(command: str, options: Mapping[str, Any], values: Mapping[str, Any], *, without: tuple[str, ...] = ()) -> str:
    """Return the command with those of the given options that it takes, some left out, and values of its own."""
    table: tuple[Option, ...] = import_module(f"infcalc.cli.{command}").OPTIONS
    words = ["infcalc", command]
    for option in table:
        left_out = (
            option.name in without or option.name in _WAY_OUT or (option.name == "output" and command != "report")
        )
        value = values.get(option.name, None if left_out else options.get(option.name))
        words += _words(option, value)
    return shlex.join(words)


def _words(option: Option, value: object) -> Iterator[str]:
    flag = option.flags[0]
    if value is True:
        yield flag
    for one in value if isinstance(value, list | tuple) else (value,):
        if one is None or isinstance(one, bool):
            continue
        text = _plain(one)
        if text.startswith("-"):
            yield f"{flag}={text}"
        else:
            yield flag
            yield text


def _plain(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
