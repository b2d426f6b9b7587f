"""The skill document: its figures are computed, its commands run, its keys exist, and it comes with the package."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from infcalc import __version__, files
from infcalc.cli.app import COMMANDS, run
from infcalc.diagnosis.rules import RULES
from tests.journeys.command import infcalc
from tests.measured import script

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
Capture = pytest.CaptureFixture[str]

skill_page = script("skill_page")
TEXT = skill_page.PAGE.read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`(\.(?:result|inputs)[\w.\[\]]*)`")


@cache
def settings() -> dict[str, str]:
    """Return the shell variables that the first step sets, one inside another."""
    found: dict[str, str] = {}
    for name, value in re.findall(r'^(\w+)=("[^"]*"|\d+)', TEXT, re.MULTILINE):
        found[name] = Template(value.strip('"')).substitute(found)
    return found


def steps() -> dict[str, str]:
    """Return the text of each step by its heading."""
    _, *parts = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    return {part.split("\n", 1)[0]: part for part in parts}


def commands(text: str) -> list[str]:
    """Return the command lines of the shell fences of a text, variables replaced."""
    lines = [line for language, body in FENCE.findall(text) if language == "sh" for line in body.splitlines()]
    return [Template(line).substitute(settings()) for line in lines if line.startswith("infcalc ")]


def block(page: str, info: str) -> str:
    """Return the body of the fence with this info string on a page of the documentation."""
    (body,) = re.findall(
        rf"^```{re.escape(info)}\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return str(body)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the commands name."""
    folder = tmp_path_factory.mktemp("evidence")
    (folder / "bench.json").write_text(block("docs/guides/my-server-is-slow.md", "json slow.json"), encoding="utf-8")
    (folder / "vllm.log").write_text(block("docs/commands.md", "text vllm.log"), encoding="utf-8")
    sharing = ("--shared-prefix", "num=5,tokens=500,share=0.8", "--requests", "300", "--rate", "8")
    assert run(["workload", *sharing, "--save-trace", str(folder / "trace.jsonl"), "--output", str(folder / "w")]) == 0
    return folder


def answered(line: str, capsys: Capture) -> dict[str, Any]:
    """Return the document that a command line prints."""
    ran = infcalc(capsys, *shlex.split(line)[1:])
    assert ran.code == 0, f"{line}: {ran.err}"
    return ran.document


def values(document: object, path: str) -> Iterator[object]:
    """Yield what a jq path of keys, indices and ``[]`` leads to.

    >>> list(values({"a": [{"b": 1}, {"b": 2}]}, ".a[].b")), list(values({"a": [{"b": 1}]}, ".a[0].c"))
    ([1, 2], [])
    """
    found: list[object] = [document]
    for key, index in re.findall(r"\.(\w+)|\[(\d*)\]", path):
        if key:
            found = [one[key] for one in found if isinstance(one, dict) and key in one]
        elif index:
            found = [one[int(index)] for one in found if isinstance(one, list) and int(index) < len(one)]
        else:
            found = [item for one in found if isinstance(one, list) for item in one]
    yield from found


# What it says


def test_every_figure_is_computed() -> None:
    assert skill_page.current() == TEXT, "stale: run python scripts/skill_page.py"


@pytest.mark.parametrize("step", steps())
def test_the_commands_of_a_step_run_and_their_answers_have_its_keys(
    step: str, evidence: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(evidence)
    text = steps()[step]
    lines, paths = commands(text), set(PATH.findall(text))
    answers = [answered(line, capsys) for line in lines]
    empty = [path for path in paths if all(value is None for one in answers for value in values(one, path))]

    assert all(line.endswith(" --json") for line in lines)
    assert paths
    assert not empty


def test_a_key_that_is_not_there_would_be_found() -> None:
    assert list(values({"result": {"rows": [{"speedup": 2.0}]}}, ".result.rows[].speedup")) == [2.0]
    assert list(values({"result": {"rows": [{"speedup": 2.0}]}}, ".result.rows[].speed")) == []
    assert PATH.findall("`.result.rows[].speedup` and `.warnings[]`") == [".result.rows[].speedup"]


def test_every_option_and_command_that_it_names_exists() -> None:
    modules = {command.name: import_module(command.module) for command in COMMANDS}
    options = {name: {flag for one in module.OPTIONS for flag in one.flags} for name, module in modules.items()}
    known = {flag for flags in options.values() for flag in flags}
    spoken = FENCE.sub(lambda match: "" if match[1] == "text" else match[0], TEXT)

    assert not set(re.findall(r"(?<![\w-])--[a-z][\w-]*", spoken)) - known
    for name, rest in re.findall(r"`(?:infcalc )?([a-z][a-z-]+) (-[^`]*)`", spoken):
        assert name in modules, name
        assert not set(re.findall(r"(?<![\w-])--[a-z][\w-]*", rest)) - options[name], f"{name} {rest}"


def test_it_is_a_skill_in_few_lines() -> None:
    _, front, body = re.split(r"^---$", TEXT, maxsplit=2, flags=re.MULTILINE)
    matter = yaml.safe_load(front)

    assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", matter["name"])
    assert len(matter["description"]) <= 1024
    assert matter["when_to_use"]
    assert __version__ in body
    assert len(TEXT.splitlines()) <= 360


def test_every_table_is_used_and_every_hole_is_filled() -> None:
    template = skill_page.TEMPLATE.read_text(encoding="utf-8")

    assert not [name for name in skill_page.TABLES if f"{{{{ {name} }}}}" not in template]
    assert "{{" not in TEXT
    assert "<!-- with" not in TEXT
    with pytest.raises(LookupError, match="one of findings"):
        skill_page.page("{{ no such table }}", frozenset())


def test_a_step_stands_only_where_its_command_exists() -> None:
    template = "before\n<!-- with diagnose -->\ninfcalc diagnose\n<!-- end -->\nafter\n"

    assert skill_page.page(template, frozenset()) == "before\nafter\n"
    assert skill_page.page(template, frozenset({"diagnose"})) == "before\ninfcalc diagnose\nafter\n"


# That it comes along


def test_it_is_printed_and_written(capsys: Capture, tmp_path: Path) -> None:
    assert infcalc(capsys, "skill").out == TEXT
    path = tmp_path / "SKILL.md"
    written = infcalc(capsys, "skill", "--output", str(path))

    assert (written.code, written.out, written.err) == (0, "", f"wrote {path}\n")
    assert path.read_text(encoding="utf-8") == TEXT


def test_a_folder_that_is_not_there_is_told(capsys: Capture, tmp_path: Path) -> None:
    ran = infcalc(capsys, "skill", "--output", str(tmp_path / "skills" / "SKILL.md"))

    assert (ran.code, ran.out) == (2, "")
    assert "does not exist" in ran.err


def test_the_copy_of_the_wheel_comes_first_and_none_at_all_is_told(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "infcalc"
    monkeypatch.setattr(files, "_HERE", str(package))
    missing = infcalc(capsys, "skill")
    for folder, text in ((tmp_path / "outputs", "checkout"), (package / "data", "wheel")):
        folder.mkdir(parents=True)
        (folder / skill_page.PAGE.name).write_text(text, encoding="utf-8")
        assert infcalc(capsys, "skill").out == text

    assert missing.code == 2
    assert "install infcalc again" in missing.err


def test_the_document_is_packed_under_its_name() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert f'"outputs/{skill_page.PAGE.name}" = "infcalc/data/{skill_page.PAGE.name}"' in project
    assert json.dumps(skill_page.PAGE.name) in (ROOT / "infcalc" / "files.py").read_text(encoding="utf-8")


def test_every_finding_of_diagnose_leads_to_a_step() -> None:
    tables = script("skill_tables")
    numbers = {int(heading.partition(".")[0]) for heading in steps() if heading[0].isdigit()}

    assert set(tables.STEPS_OF_FINDINGS) == {rule.symptom for rule in RULES}
    assert set(tables.STEPS_OF_FINDINGS.values()) <= numbers
    for symptom, step in tables.STEPS_OF_FINDINGS.items():
        assert re.search(rf"\| [^|]*`{symptom}`[^|]* \| {step} \|", TEXT), symptom
