"""``infcalc skill``: the document that leads from the symptom of a slow service to its remedy."""

from __future__ import annotations

import sys
from typing import Any

from infcalc.cli.options import OUTPUT

OPTIONS = tuple(option for option in OUTPUT if option.name == "output")
HELP = """A skill document (Markdown with front matter) for people and language models: from symptom to measurement to
cause to remedy, with thresholds computed by these commands. Save it where skills are looked for.

Example: infcalc skill

Example: infcalc skill --output SKILL.md"""


def run(options: dict[str, Any]) -> int:
    """Print or write the document and return the exit code.

    Raises:
        FileProblem: the document is not installed, or the file cannot be written.

    """
    from infcalc.files import read_skill, write_text  # noqa: PLC0415 - help needs no file

    text, output = read_skill(), options["output"]
    if output is None:
        sys.stdout.write(text)
        return 0
    write_text(output, text)
    sys.stderr.write(f"wrote {output}\n")
    return 0
