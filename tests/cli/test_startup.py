"""What a command must not load: each of these costs as much start-up as the answer itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import infcalc

SCRIPT = """
import json, sys
from infcalc.cli.app import run
code = run(sys.argv[1:])
sys.stderr.write("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


def loaded(cache: Path, *arguments: str) -> tuple[int, str, frozenset[str]]:
    """Exit code, stdout and loaded modules of one command in a process of its own."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONSTARTUP"}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=cache,
        env=variables | {"XDG_CACHE_HOME": str(cache)},
    )
    code, modules = json.loads(ran.stderr.splitlines()[-1])
    return code, ran.stdout, frozenset(modules)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a compiled catalog, as every call after the first finds it."""
    cache = tmp_path_factory.mktemp("cache")
    code, _, modules = loaded(cache, "kv", "--json")
    assert code == 0
    # The first call may compile the catalog; from a wheel it need not.
    assert "yaml" in modules or (Path(infcalc.__file__).parent / "data" / "catalog.json").exists()
    return cache


HEAVY = frozenset({"numpy", "yaml", "pydantic", "rich", "importlib.metadata", "matplotlib"})


@pytest.mark.parametrize(
    "arguments",
    [
        ("kv", "--json"),
        ("kv", "--model", "deepseek-v3", "--gpus", "8", "--gpu", "h200", "--kv-dtype", "fp8", "--json"),
        ("concurrency", "--json"),
        ("roofline", "--json"),
        ("speculate", "--json"),
        ("batching", "--requests", "5", "--json"),
        # Into a pipe, which is no terminal.
        ("kv",),
        ("kv", "--format", "csv"),
    ],
    ids=" ".join,
)
def test_an_answer_loads_nothing_heavy(warm: Path, arguments: tuple[str, ...]) -> None:
    code, out, modules = loaded(warm, *arguments)
    assert code == 0
    assert "kv_bytes" in out or "infcalc" in out or "assumed" in out
    assert not HEAVY & modules


@pytest.mark.parametrize(
    "arguments",
    [
        ("estimate", "--json"),
        ("estimate", "--concurrency", "100"),
        ("estimate", "--sweep", "batch=1..64", "--json"),
        ("workload",),
        ("simulate", "--num-requests", "20"),
    ],
    ids=" ".join,
)
def test_an_estimate_or_a_trace_loads_numpy_and_nothing_else_that_is_heavy(
    warm: Path, arguments: tuple[str, ...]
) -> None:
    code, out, modules = loaded(warm, *arguments)
    assert code == 0
    assert "llama3-70b" in out or "poisson:rate=12" in out
    assert HEAVY & modules <= {"numpy"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("estimate", "--batch", "4", "--rate", "2"), 2),
        (("estimate", "--input-tokens", "100k"), 2),
        (("workload", "--arrivals", "poisson:0"), 2),
        (("simulate", "--policy", "fifo"), 2),
        (("simulate", "--arrivals", "poisson:0"), 2),
        (("estimate", "--gpu", "rtx-4090", "--gpus", "1", "--json"), 3),
    ],
    ids=str,
)
def test_what_is_refused_or_does_not_fit_needs_no_numpy(warm: Path, arguments: tuple[str, ...], expected: int) -> None:
    code, _, modules = loaded(warm, *arguments)
    assert code == expected
    assert not HEAVY & modules


def test_help_loads_no_command_and_nothing_heavy(warm: Path) -> None:
    code, out, modules = loaded(warm, "--help")
    assert code == 0
    assert "How big is the KV cache" in out
    assert not HEAVY & modules
    assert not any(name.startswith(("infcalc.api", "infcalc.catalog", "infcalc.cli.kv")) for name in modules)


def test_importing_the_package_loads_no_command_line() -> None:
    script = (
        "import sys, infcalc; print(*sorted(name for name in sys.modules if name.startswith(('infcalc', 'typer'))))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert not {"typer", "infcalc.cli.app"} & set(ran.stdout.split())
