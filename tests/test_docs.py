from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infcalc import errors
from infcalc.catalog.gpus import PRECISIONS
from infcalc.cli.app import COMMANDS, run
from infcalc.errors import InfcalcError
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    Indexer,
    LatentAttention,
    Layer,
    Matrix,
    MoeFeedForward,
    RecurrentMixer,
)
from infcalc.spec.model import Model
from tests.measured import script

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
TEXTS = (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")))


render_docs, terminal_picture, accuracy_tables = map(script, ("render_docs", "terminal_picture", "accuracy_tables"))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", render_docs.pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_output_blocks_are_current(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = render_docs.main(["--check", str(path)])

    assert code == 0, f"stale: run `make docs`\n{capsys.readouterr().out}"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_shows_a_bug(path: Path) -> None:
    assert not re.search(r"^(?:bug: |Traceback )", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_a_stale_block_is_found_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n\n```console\n$ infcalc --version\ninfcalc 0.0\n```\n\nafter\n", encoding="utf-8")

    assert render_docs.main(["--check", str(page)]) == 1
    assert "-infcalc 0.0" in capsys.readouterr().out
    assert "infcalc 0.0\n" in page.read_text(encoding="utf-8")
    assert render_docs.main([str(page)]) == 0
    assert "infcalc 0.0\n" not in page.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").startswith("before\n\n```console\n$ infcalc --version\ninfcalc ")
    assert page.read_text(encoding="utf-8").endswith("\n```\n\nafter\n")
    assert render_docs.main(["--check", str(page)]) == 0


def test_outputs_do_not_depend_on_the_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = "```console\n$ infcalc gpus list h100-sxm\n$ infcalc kv --help\n```\n"
    calm = render_docs.rendered(block)
    (tmp_path / "infcalc.yaml").write_text("gpus:\n  h100: {bandwidth: 1 GB/s}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name, value in {"COLUMNS": "40", "FORCE_COLOR": "1", "HOME": str(tmp_path), "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)

    assert render_docs.rendered(block) == calm
    assert Path.cwd() == tmp_path
    assert "3,350" in calm or "3.35" in calm


def test_a_failing_command_shows_what_it_says_and_its_code() -> None:
    output = render_docs.output_of("infcalc kv --model no-such-model; echo $?")

    assert output.startswith("error: unknown model 'no-such-model'\n")
    assert output.endswith("\n5\n")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("infcalc kv --context 4k --format csv | head -1", r"context_tokens,.*\n"),
        ("infcalc kv --context 4k --format csv | grep 4096", r"4096,1342177280,.*\n"),
        ("infcalc kv | sed -n '/Parts of/,/^$/p'", r"Parts of[^\n]*\n(?:[^\n]+\n){3}"),
    ],
)
def test_filters_work_as_in_a_shell(command: str, expected: str) -> None:
    assert re.fullmatch(expected, render_docs.output_of(command))


@pytest.mark.parametrize(
    "text",
    ["```console\n$ ls\n```\n", "```console\n$ infcalc kv | wc\n```\n", '```python\nprint("lost")\n```\n\nwords\n'],
)
def test_blocks_that_cannot_be_shown_are_refused(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")

    assert render_docs.main([str(page)]) == 2
    assert page.read_text(encoding="utf-8") == text


def test_readme_opens_with_one_sentence_and_has_five_lines_of_python() -> None:
    readme = text_of("README.md")
    title, opening, *_ = readme.split("\n\n")
    blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)

    assert title == "# infcalc"
    assert re.fullmatch(r"[^.]+\.", opening)
    assert len(blocks) == 1
    assert len(blocks[0].splitlines()) == 5


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```$", text_of("README.md"), re.MULTILINE | re.DOTALL)

    exec(compile(source, "README.md", "exec"), {})  # noqa: S102 - it is our own documentation

    assert "327,680 bytes per token" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_is_documented(command: Any) -> None:  # noqa: ANN401 - the table's own class
    page = text_of("docs/commands.md")

    assert f"\n## infcalc {command.name}\n" in page
    assert f"$ infcalc {command.name}" in page
    assert re.search(rf"\b{command.name}\b", text_of("README.md"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("kv",),
        ("concurrency",),
        ("roofline", "--batch", "1"),
        ("speculate", "--draft-model", "llama3-8b"),
        ("batching", "--requests", "5"),
        ("workload", "--requests", "50"),
        ("launch",),
        ("paging", "--requests", "50"),
        ("prefix-cache", "--requests", "50"),
        ("models", "list", "llama3-8b"),
        ("gpus", "list", "h200"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_key_of_a_result_is_documented(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    section = text_of("docs/commands.md").split(f"\n## infcalc {arguments[0]}\n")[1].split("\n## ")[0]

    undocumented = sorted(key for key in set(keys(result)) if f"`{key}`" not in section and f"{key}[]" not in section)

    assert not undocumented


def keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def test_every_exit_code_is_documented_with_its_classes() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", text_of("docs/reference/exit-codes.md"), re.MULTILINE)
    documented = {(name, int(code)) for code, names in rows for name in re.findall(r"`(\w+)`", names)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, InfcalcError)]

    assert documented == {(kind.__name__, kind.exit_code) for kind in kinds}
    assert [int(code) for code, _ in rows] == [0, 1, 2, 3, 4, 5, 6, 130]


@pytest.mark.parametrize(
    "noun",
    [
        Model,
        Layer,
        GroupedAttention,
        LatentAttention,
        CompressedAttention,
        RecurrentMixer,
        Indexer,
        DenseFeedForward,
        MoeFeedForward,
        Matrix,
    ],
    ids=lambda noun: noun.__name__,
)
def test_every_key_of_a_model_entry_is_documented(noun: Any) -> None:  # noqa: ANN401 - a dataclass
    page = text_of("docs/catalog.md")

    missing = [name for name in noun.__dataclass_fields__ if name != "name" and not re.search(rf"\b{name}\b", page)]

    assert not missing


def test_every_precision_and_format_is_documented() -> None:
    catalog, concept = text_of("docs/catalog.md"), text_of("docs/concepts/kv-bytes.md")

    assert not [name for name in PRECISIONS if f"`{name}`" not in catalog]
    assert not [name for name in KV_FORMATS if f"`{name}`" not in concept]


def test_bold_figures_of_the_folklore_table_are_printed_in_their_section() -> None:
    table, *sections = re.split(r"^## ", text_of("docs/folklore.md"), flags=re.MULTILINE)
    rows = [line for line in table.splitlines() if "](#" in line]
    output = re.compile(r"^```(?:console|text output)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

    assert len(rows) == len(sections)
    for number, (row, section) in enumerate(zip(rows, sections, strict=True), start=1):
        printed = "\n".join(output.findall(section))
        figures = re.findall(r"\*\*(\d[^*]*)\*\*", row)
        assert f"[{number}](#{number}-" in row
        assert section.startswith(f"{number}. ")
        assert figures, row
        assert not [figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}", printed)], row


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name) if name else path

        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text(encoding="utf-8")), target


def blocks_of(text: str) -> list[str]:
    """Return the fences of a page: commands with their output, Python, and what it prints."""
    return re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)


def rows_of(text: str) -> list[list[str]]:
    """Return the numbers of each row of each table outside fences, and the addresses that the row names."""
    bare = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    rows = [line for line in bare.splitlines() if line.startswith("|")]
    return [re.findall(r"https?://[^)]+|(?<![\w.])\d[\d,.]*(?:\s?%)?", row) for row in rows]


def test_the_chinese_readme_keeps_step() -> None:
    english, chinese = text_of("README.md"), text_of("docs/zh/README.md")

    assert blocks_of(chinese) == blocks_of(english)
    assert rows_of(chinese) == rows_of(english)
    assert len(re.findall(r"^## ", chinese, re.MULTILINE)) == len(re.findall(r"^## ", english, re.MULTILINE))
    assert set(re.findall(r"`[^`\n]+`", chinese)) == set(re.findall(r"`[^`\n]+`", english))
    assert len(re.findall(r"^- ", chinese, re.MULTILINE)) == len(re.findall(r"^- ", english, re.MULTILINE))
    assert not [command.name for command in COMMANDS if f"`{command.name}`" not in chinese]


@pytest.mark.parametrize(
    ("old", "new"),
    [("infcalc plan --from", "infcalc plan --form"), ("0.15 秒", "0.25 秒"), ("`lab`", "`labs`"), ("\n- ", "\n")],
)
def test_a_translation_out_of_step_would_be_found(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {name: text_of(name) for name in ("README.md", "docs/zh/README.md")}
    assert old in texts["docs/zh/README.md"]
    texts["docs/zh/README.md"] = texts["docs/zh/README.md"].replace(old, new, 1)
    monkeypatch.setitem(globals(), "text_of", texts.__getitem__)

    with pytest.raises(AssertionError):
        test_the_chinese_readme_keeps_step()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_tables_of_errors_are_those_of_the_pages(language: str) -> None:
    path, _ = accuracy_tables.PAGES[language]
    text = path.read_text(encoding="utf-8")

    assert accuracy_tables.written(text, language) == text, "stale: run python scripts/accuracy_tables.py"


def test_a_row_that_its_page_lost_is_an_error(tmp_path: Path) -> None:
    source = accuracy_tables.SOURCES[0]
    page = text_of(f"docs/{source.page}").replace("| weights per GPU | ", "| weights | ")
    (tmp_path / source.page).write_text(page, encoding="utf-8")

    with pytest.raises(LookupError, match="no row"):
        accuracy_tables.figures(source, tmp_path)


def test_the_picture_of_the_terminal_is_current() -> None:
    assert terminal_picture.PICTURE.read_text(encoding="utf-8") == terminal_picture.picture(), (
        "stale: run python scripts/terminal_picture.py"
    )


def test_the_picture_asks_no_network() -> None:
    text = text_of("docs/terminal.svg")

    assert "@font-face" not in text
    assert not re.findall(r"(?:href|src)=|url\((?!#)", text)


def test_the_readme_is_short_and_every_page_is_in_the_index() -> None:
    index = text_of("docs/README.md")
    names = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]

    assert len(text_of("README.md").splitlines()) <= 150
    assert not [name for name in names if name not in {"README.md", "zh/README.md"} and f"]({name})" not in index]


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
