"""Build the wheel and test it in an environment of its own, in a folder where the checkout is not importable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CATALOGS = (
    "infcalc/data/models.yaml",
    "infcalc/data/gpus.yaml",
    "infcalc/data/efficiency.yaml",
    "infcalc/data/catalog.json",
)
RUNTIME = {"typer", "rich", "pyyaml", "numpy"}


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; a failure ends the script with it."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - own commands
    if done.returncode:
        sys.exit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build, install, and ask the installed command what only a complete wheel can answer."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(scratch), str(ROOT), cwd=scratch)
        (wheel,) = scratch.glob("infcalc-*.whl")
        names = set(zipfile.ZipFile(wheel).namelist())
        missing = [name for name in (*CATALOGS, "infcalc/py.typed") if name not in names]
        if missing:
            sys.exit(f"the wheel lacks {', '.join(missing)}")
        run(sys.executable, "-m", "venv", str(scratch / "venv"), cwd=scratch)
        python = str(scratch / "venv" / "bin" / "python")
        run(python, "-m", "pip", "install", "--quiet", str(wheel), cwd=scratch)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env |= {"XDG_CACHE_HOME": str(scratch / "cache"), "XDG_CONFIG_HOME": str(scratch / "config")}
        where = run(python, "-c", "import infcalc; print(infcalc.__file__)", cwd=scratch, env=env)
        if str(ROOT) in where or "site-packages" not in where:
            sys.exit(f"the wheel under test is not what was imported: {where}")
        command = str(scratch / "venv" / "bin" / "infcalc")
        answer = json.loads(run(command, "kv", "--json", cwd=scratch, env=env))
        first = answer["result"]["rows"][0]
        if (answer["result"]["kv_bytes_per_token"], first["kv_bytes"]) != (327_680, 1_342_177_280):
            sys.exit(f"wrong answer from the wheel: {answer['result']}")
        for arguments in (["concurrency"], ["roofline"], ["speculate"], ["models"], ["gpus"], ["--version"]):
            run(command, *arguments, cwd=scratch, env=env)
        if (scratch / "cache").exists():
            sys.exit("the wheel compiled its catalog at run time although it carries a compiled one")
        overlay = scratch / "mine.yaml"
        overlay.write_text("gpus: {a100-sxm4-80gb: {bandwidth: 1 TB/s}}\n")
        run(command, "roofline", "--catalog", str(overlay), cwd=scratch, env=env)
    print("wheel: 10 passed, 0 failed")


if __name__ == "__main__":
    main()
