"""Build wheel and sdist, look into them, and test them in environments where the checkout cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKILL = "skill-inference-optimization.md"
DATA = ("models.yaml", "gpus.yaml", "efficiency.yaml", "catalog.json", SKILL)
LICENCES = ("LICENSE", "NOTICE")
RUNTIME = {"typer", "rich", "pyyaml", "numpy"}
FOLDERS_OF_THE_SDIST = {"infcalc", "tests", "docs", "scripts", "benchmarks", "outputs", ".ci"}
DOWNSTREAM = """\
from infcalc.api import Ask, kv

count: int = kv(Ask(models=("llama3-70b",), num_gpus=4), contexts=(4096,)).result.rows[0].sequences
"""


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; a failure ends the script with it."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - own commands
    if done.returncode:
        sys.exit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Checks:
    """Counts what held; the first thing that does not hold ends the script."""

    def __init__(self) -> None:
        self.passed = 0

    def held(self, so: object, otherwise: str) -> None:
        """Count one more, or end with what is wrong."""
        if not so:
            sys.exit(otherwise)
        self.passed += 1


def environment(scratch: Path, name: str) -> str:
    """Return the Python of a new virtual environment."""
    run(sys.executable, "-m", "venv", str(scratch / name), cwd=scratch)
    return str(scratch / name / "bin" / "python")


def built(scratch: Path, source: str, folder: str) -> Path:
    """Return the wheel that is built of a checkout or an sdist."""
    target = scratch / folder
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(target), source, cwd=scratch)
    (wheel,) = target.glob("infcalc-*.whl")
    return wheel


def source_distribution(scratch: Path) -> Path:
    """Return the sdist, built by the back end that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    python = environment(scratch, "build")
    run(python, "-m", "pip", "install", "--quiet", *project["build-system"]["requires"], cwd=scratch)
    run(python, "-m", "hatchling", "build", "-t", "sdist", "-d", str(scratch / "sdist"), cwd=ROOT)
    (sdist,) = (scratch / "sdist").glob("infcalc-*.tar.gz")
    return sdist


def look_into_wheel(wheel: Path, checks: Checks) -> None:
    """Check that the wheel holds package, data, licences and types, and nothing else."""
    archive = zipfile.ZipFile(wheel)
    names = set(archive.namelist())
    (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    needed = {
        *(f"infcalc/data/{name}" for name in DATA),
        *(f"{info}/licenses/{name}" for name in LICENCES),
        *(str(path.relative_to(ROOT)) for path in (ROOT / "infcalc").rglob("*.py")),
        "infcalc/py.typed",
    }
    checks.held(not needed - names, f"the wheel lacks {', '.join(sorted(needed - names))}")
    known = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    more = sorted(names - needed - known)
    checks.held(not more, f"the wheel holds more than the package: {', '.join(more)}")
    metadata = archive.read(f"{info}/METADATA").decode()
    checks.held("\nLicense-Expression: Apache-2.0\n" in metadata, "the metadata state no licence")
    needs = [line.split(": ")[1] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    always = {line.split(">")[0].split("<")[0].lower() for line in needs if "extra ==" not in line}
    checks.held(always == RUNTIME, f"the wheel always needs {', '.join(sorted(always))}")
    packed = archive.read(f"infcalc/data/{SKILL}")
    checks.held(packed == (ROOT / "outputs" / SKILL).read_bytes(), "the skill document in the wheel is another")


def look_into_sdist(sdist: Path, wheel: Path, scratch: Path, checks: Checks) -> None:
    """Check that the sdist holds the sources, nothing from outside, and builds the same wheel."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {*LICENCES, *DATA[:3], f"outputs/{SKILL}", "infcalc/py.typed", "hatch_build.py", "tests/__init__.py"}
    checks.held(not needed - names, f"the sdist lacks {', '.join(sorted(needed - names))}")
    folders = {name.split("/")[0] for name in names if "/" in name}
    more = sorted(folders - FOLDERS_OF_THE_SDIST)
    checks.held(not more, f"the sdist holds folders that are not ours to give: {', '.join(more)}")
    again = zipfile.ZipFile(built(scratch, str(sdist), "again"))
    first = zipfile.ZipFile(wheel)
    differ = sorted(
        name
        for name in {*first.namelist(), *again.namelist()}
        if name not in again.namelist() or name not in first.namelist() or first.read(name) != again.read(name)
    )
    checks.held(not differ, f"sdist and checkout build different wheels: {', '.join(differ)}")


def ask_the_installed(wheel: Path, scratch: Path, checks: Checks) -> None:
    """Install the wheel and ask the command what only a complete wheel can answer."""
    python = environment(scratch, "venv")
    run(python, "-m", "pip", "install", "--quiet", str(wheel), cwd=scratch)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"XDG_CACHE_HOME": str(scratch / "cache"), "XDG_CONFIG_HOME": str(scratch / "config")}
    where = run(python, "-c", "import infcalc; print(infcalc.__file__)", cwd=scratch, env=env)
    checks.held(
        str(ROOT) not in where and "site-packages" in where, f"the wheel under test is not what was imported: {where}"
    )
    command = str(scratch / "venv" / "bin" / "infcalc")
    answer = json.loads(run(command, "kv", "--json", cwd=scratch, env=env))
    first = answer["result"]["rows"][0]
    checks.held(
        (answer["result"]["kv_bytes_per_token"], first["kv_bytes"]) == (327_680, 1_342_177_280),
        f"wrong answer from the wheel: {answer['result']}",
    )
    for arguments in (["concurrency"], ["roofline"], ["speculate"], ["models"], ["gpus"], ["--version"]):
        checks.held(run(command, *arguments, cwd=scratch, env=env), f"{arguments} says nothing")
    skill = run(command, "skill", cwd=scratch, env=env)
    checks.held(
        skill == (ROOT / "outputs" / SKILL).read_text(encoding="utf-8"), "infcalc skill prints another document"
    )
    checks.held(
        not (scratch / "cache").exists(),
        "the wheel compiled its catalog at run time although it carries a compiled one",
    )
    overlay = scratch / "mine.yaml"
    overlay.write_text("gpus: {a100-sxm4-80gb: {bandwidth: 1 TB/s}}\n")
    checks.held(run(command, "roofline", "--catalog", str(overlay), cwd=scratch, env=env), "no answer with an overlay")
    (scratch / "downstream.py").write_text(DOWNSTREAM)
    typed = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "downstream.py")
    checks.held("no issues" in run(*typed, cwd=scratch, env=env), "a program that uses the wheel is not type-checked")


def main() -> None:
    """Build both, look into them, install the wheel and ask it."""
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        wheel = built(scratch, str(ROOT), "wheel")
        look_into_wheel(wheel, checks)
        ask_the_installed(wheel, scratch, checks)
        look_into_sdist(source_distribution(scratch), wheel, scratch, checks)
    print(f"wheel and sdist: {checks.passed} passed, 0 failed")


if __name__ == "__main__":
    main()
