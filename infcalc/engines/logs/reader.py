"""Read a start-up log: find the engine that wrote it, and its last start, and what that start printed."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from infcalc.engines.logs.arguments import flags, pairs, spaced
from infcalc.engines.logs.grammar import ArgumentList, Grammar, Keep, Shape
from infcalc.engines.logs.lines import Line, lines_of
from infcalc.engines.logs.llamacpp import GRAMMAR as LLAMA_CPP
from infcalc.engines.logs.reading import EngineLog, Failure, Figure, Quantity, Setting
from infcalc.engines.logs.sglang import GRAMMAR as SGLANG
from infcalc.engines.logs.tensorrt_llm import GRAMMAR as TENSORRT_LLM
from infcalc.engines.logs.vllm import GRAMMAR as VLLM
from infcalc.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

GRAMMARS = (VLLM, SGLANG, TENSORRT_LLM, LLAMA_CPP)
_QUANTITIES = {quantity.value: quantity for quantity in Quantity}
_TEXT_SETTINGS = frozenset({"version", "runner", "model", "served_name", "kv_dtype", "flash_attention", "file_type"})
_TRUTHS = frozenset({"graphs_uncharged", "runner_v2", "window_pool"})
_RANKS = frozenset({"device"})
_TELLING = frozenset({Quantity.WEIGHTS, Quantity.POOL, Quantity.TOKENS, Quantity.BLOCKS})
"""What every engine prints of itself: other figures stand in lines of the framework below it, too."""
_MAX_FIGURE = 1e18
_MAX_SETTING_TEXT = 500
_MAX_NAMES = 20
_MAX_NOTES = 20
_TRUTH_WORDS = {"true": True, "false": False}
_EMPTY_WORDS = frozenset({"", "none", "null", "auto", "-1"})
_UNIT_BYTES = {"GiB": GIB, "MiB": MIB, "KiB": KIB, "bytes": 1}
_RELEASE = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){1,3}")
_WHOLE = re.compile(r"^-?[0-9]{1,18}$")
_REAL = re.compile(r"^-?[0-9]{1,18}\.[0-9]{0,18}$")
_SURE_DEVICES = (
    ("device_name=", re.compile(r"device_name=([A-Za-z][\w.+-]{2,60})")),
    ("compute capability", re.compile(r"Device \d{1,3}: (.{3,60}?), compute capability")),
    ("using device", re.compile(r"using device \w{1,20} \((.{3,60}?)\)")),
)
_MENTIONED = re.compile(r"\b(?:NVIDIA|AMD Instinct|Tesla)(?:[ _][A-Za-z0-9.+-]{1,20}){1,6}")


class _Start:
    """One start of an engine while it is read."""

    __slots__ = ("asked", "failures", "figures", "lines", "models", "notes", "settings", "sure", "versions")

    def __init__(self) -> None:
        self.figures: dict[tuple[Quantity, str], Figure] = {}
        self.settings: dict[str, Setting] = {}
        self.sure: dict[str, Setting] = {}
        self.asked: dict[str, Setting] = {}
        self.failures: list[Failure] = []
        self.notes: list[str] = []
        self.models = 0
        self.lines: set[int] = set()
        self.versions: dict[str, int] = {}

    @property
    def printed(self) -> bool:
        return bool(self.figures or self.failures)


def read_log(text: str) -> EngineLog | None:
    """Return what the log says, or None where no line has the shape of any engine's.

    Lines in between, prefixes of collectors, colours, JSON wrapping and missing parts are fine. Of several starts in
    one file the last that printed figures counts.
    """
    lines = tuple(lines_of(text))
    read = [(_read(grammar, lines), grammar) for grammar in GRAMMARS]
    best = max(read, key=lambda pair: pair[0][2])
    (starts, ranked_lines, score), grammar = best
    others = tuple((other.engine, line) for (found, _, _), other in read for line in _own_line(found, starts))
    if score == 0:
        return None
    chosen = next((start for start in reversed(starts) if start.printed), starts[-1])
    settings = {**chosen.asked, **chosen.settings, **chosen.sure}
    version = settings.pop("version", None)
    sure, mentioned = _devices(lines)
    notes = list(chosen.notes[:_MAX_NOTES])
    printed = sum(start.printed for start in starts)
    left_out = [
        f"line {line} is of {engine}: only {grammar.engine} is read here; give each engine's log a file of its own"
        for engine, line in others
    ]
    if printed > 1:
        first = min((figure.line for figure in chosen.figures.values()), default=0)
        left_out.append(
            f"the log holds {printed} starts: the last is read (its figures begin at line {first}); "
            "cut the file to compare another"
        )
    left_out += _other_versions(chosen.versions, version)
    return EngineLog(
        engine=grammar.engine,
        version=str(version.value) if version else None,
        settings=tuple(settings.values()),
        figures=tuple(sorted(chosen.figures.values(), key=lambda figure: figure.line)),
        failures=tuple(chosen.failures),
        gpu_names=sure,
        gpu_mentions=mentioned,
        notes=tuple(dict.fromkeys(notes)),
        num_lines=ranked_lines,
        starts=max(1, printed),
        left_out=tuple(left_out),
    )


def _other_versions(found: dict[str, int], taken: Setting | None) -> list[str]:
    """Return a sentence where one start names releases that differ; a build may add to the name of its release."""
    told = {_release(text): line for text, line in reversed(found.items())}
    if taken is None or len(told) < 2:  # noqa: PLR2004 - a second release
        return []
    listed = ", ".join(f"{release} (line {line})" for release, line in sorted(told.items(), key=lambda pair: pair[1]))
    return [f"the log names several versions: {listed}; {taken.value} is taken; --engine-version says which ran"]


def _release(text: str) -> str:
    match = _RELEASE.search(text)
    return match[0] if match else text


def _own_line(found: list[_Start], chosen: list[_Start]) -> tuple[int, ...]:
    """Return the first line that states memory as another engine than the chosen one does; empty where none does."""
    if found is chosen:
        return ()
    taken = {line for start in chosen for line in start.lines}
    own = [
        figure.line
        for start in found
        for figure in start.figures.values()
        if figure.quantity in _TELLING and figure.line not in taken
    ]
    return (min(own),) if own else ()


def looked_for() -> str:
    """Return in words which lines each engine's log is known by."""
    return "; ".join(f"{grammar.engine}: {', '.join(grammar.looked_for)}" for grammar in GRAMMARS)


def _read(grammar: Grammar, lines: Iterable[Line]) -> tuple[list[_Start], int, int]:
    """Return the starts, how many lines said something, and how sure it is that this engine wrote them."""
    starts = [_Start()]
    known = score = 0
    for line in lines:
        start = starts[-1]
        if _begins(grammar, line, start):
            start = _Start()
            starts.append(start)
        if grammar.second_model and grammar.second_model in line.text:
            start.models += 1
            if start.models > 1:
                start.notes.append(f"a second model is loaded at line {line.number}: its lines are left out")
        if start.models > 1:
            continue
        hits = sum(_apply(grammar, shape, line, start) for shape in grammar.shapes if shape.clue in line.text)
        for listing in grammar.arguments:
            if listing.clue in line.text:
                hits += _take_arguments(grammar, listing, line, start)
        known += hits > 0
        if hits:
            start.lines.add(line.number)
        score += hits
    return starts, known, score


def _begins(grammar: Grammar, line: Line, start: _Start) -> bool:
    if not start.printed or not any(clue in line.text for clue in grammar.starts):
        return False
    # Data-parallel ranks start side by side: a rank without figures is not a second start.
    return not line.rank or any(figure.rank == line.rank for figure in start.figures.values())


def _apply(grammar: Grammar, shape: Shape, line: Line, start: _Start) -> int:
    match = shape.pattern.search(line.text)
    if match is None:
        return 0
    found = {name: text for name, text in match.groupdict().items() if text is not None}
    if shape.note:
        start.notes.append(f"line {line.number}: {match[0]}")
    if shape.failure is not None:
        start.failures.append(_failure(shape, match[0], found, line))
        return 1
    rank = next((found[name] for name in found if name in _RANKS), line.rank)
    times = _number(found.pop("times", "1")) or 1
    for name, text in found.items():
        quantity = _QUANTITIES.get(name)
        if quantity is not None:
            _keep_figure(grammar, quantity, text, shape, start, line=line.number, rank=rank, times=times)
        elif name not in _RANKS:
            if name == "version":
                start.versions.setdefault(text, line.number)
            _keep_setting(name, text, line.number, start.settings)
    return 1


def _keep_figure(
    grammar: Grammar, quantity: Quantity, text: str, shape: Shape, start: _Start, *, line: int, rank: str, times: float
) -> None:
    number = _number(text)
    if number is None:
        return
    unit = shape.unit_bytes if quantity.endswith("_bytes") else 1
    decimals = len(text.partition(".")[2])
    half_step = 0.5 * unit * 10**-decimals if decimals or unit > 1 else 0.0
    figure = Figure(quantity=quantity, value=number * unit * times, half_step=half_step, line=line, rank=rank)
    before = start.figures.get((quantity, rank))
    if before is not None:
        same = abs(before.value - figure.value) <= before.half_step + figure.half_step
        if same and before.half_step < figure.half_step:
            # Printed twice: the finer digits say more.
            return
        match grammar.keep.get(quantity, Keep.LAST):
            case Keep.FIRST:
                return
            case Keep.FIRST_LINE if before.line != line:
                return
            case Keep.LARGEST if before.value >= figure.value and not same:
                return
            case Keep.SMALLEST if before.value <= figure.value and not same:
                return
            case Keep.SUM | Keep.FIRST_LINE:
                figure = Figure(
                    quantity=quantity,
                    value=before.value + figure.value,
                    half_step=before.half_step + figure.half_step,
                    line=before.line,
                    rank=rank,
                )
            case _:
                pass
    start.figures[quantity, rank] = figure


def _number(text: str) -> float | None:
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) and abs(value) < _MAX_FIGURE else None


def _failure(shape: Shape, text: str, found: dict[str, str], line: Line) -> Failure:
    numbers = {name: _number(value) for name, value in found.items() if not name.endswith("_unit")}

    def sized(name: str) -> float | None:
        value = numbers.get(name)
        return None if value is None else value * _UNIT_BYTES.get(found.get(f"{name}_unit", ""), shape.unit_bytes)

    def whole(name: str) -> int | None:
        value = numbers.get(name)
        return None if value is None else int(value)

    if shape.failure is None:
        raise AssertionError
    return Failure(
        kind=shape.failure,
        line=line.number,
        text=text[:_MAX_SETTING_TEXT],
        max_model_len=whole("max_model_len"),
        estimated_tokens=whole("estimated"),
        needed_bytes=sized("needed"),
        available_bytes=sized("available"),
        total_bytes=sized("total"),
        memory_fraction=numbers.get("fraction"),
        max_num_seqs=whole("max_num_seqs"),
        num_blocks=whole("num_blocks"),
        num_dummy_requests=whole("dummy_requests"),
    )


def _take_arguments(grammar: Grammar, listing: ArgumentList, line: Line, start: _Start) -> int:
    rest = line.text.partition(listing.clue)[2]
    if listing.command_line:
        found = flags(rest)
        first = rest.split(maxsplit=1)[0] if rest.strip() else ""
        if first and not first.startswith("-"):
            # The model stands where a command takes its argument.
            found.setdefault("model", first.strip("'\""))
    elif listing.spaced:
        found = spaced(line.text)
    else:
        found = pairs(rest if listing.clue.endswith(("(", "{", ": ")) else rest.partition("(")[2])
    target = start.sure if listing.sure else start.asked
    taken = 0
    for key, text in found.items():
        name = grammar.names.get(key)
        if name is not None:
            taken += _keep_setting(name, text, line.number, target)
    return 1 if taken else 0


def _keep_setting(name: str, text: str, line: int, target: dict[str, Setting]) -> int:
    """Keep the first value of a setting; what says nothing (None, auto) is passed over."""
    cleaned = text.strip().removeprefix("torch.")[:_MAX_SETTING_TEXT]
    if name in target or cleaned.lower() in _EMPTY_WORDS:
        return 0
    value = _value(name, cleaned)
    if value is None:
        return 0
    target[name] = Setting(name=name, value=value, line=line)
    return 1


def _value(name: str, text: str) -> str | int | float | bool | None:
    if name in _TEXT_SETTINGS:
        return text
    if name in _TRUTHS:
        return True
    if text.lower() in _TRUTH_WORDS:
        return _TRUTH_WORDS[text.lower()]
    plain = text.replace(",", "")
    if _WHOLE.match(plain):
        return int(plain)
    if _REAL.match(plain):
        return float(plain)
    return text


def _devices(lines: Iterable[Line]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return device names that lines give as such, and those merely mentioned, each once."""
    sure: dict[str, None] = {}
    mentioned: dict[str, None] = {}
    for line in lines:
        for clue, pattern in _SURE_DEVICES:
            if clue in line.text and len(sure) < _MAX_NAMES:
                sure.update(dict.fromkeys(name.replace("_", " ") for name in pattern.findall(line.text)))
        if len(mentioned) < _MAX_NAMES and ("NVIDIA" in line.text or "AMD" in line.text or "Tesla" in line.text):
            mentioned.update(dict.fromkeys(name.replace("_", " ") for name in _MENTIONED.findall(line.text)))
    return tuple(sure)[:_MAX_NAMES], tuple(mentioned)[:_MAX_NAMES]
