"""Print where the time model errs, by class and source, and the worst runs.

``FILE`` is a list of measured runs as ``infcalc validate serving`` reads it. ``--only TEXT`` looks at runs whose id
holds the text, and prints each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from infcalc import files
from infcalc.api.scoring import summary
from infcalc.api.validating_serving import QUANTITIES, ServingCase, validated_serving

_WORST = 20


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    entries: list[dict[str, Any]] = yaml.load(given.file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    entries = [entry for entry in entries if given.only in str(entry["id"])]
    cases = validated_serving(entries, files.load_catalog()).cases
    for quantity in QUANTITIES:
        of = [case for case in cases if case.quantity == quantity]
        groups: dict[str, list[ServingCase]] = {}
        for case in of:
            for name in (case.kind or "skipped", f"  {case.kind}, {case.group}, {case.engine} {case.version}"):
                groups.setdefault(name, []).append(case)
        print(f"\n{quantity}")
        for name in sorted(groups, key=lambda text: (text.strip(), text)):
            row(quantity, name, groups[name])
    scored = [case for case in cases if case.error_fraction is not None]
    shown = scored if given.only else sorted(scored, key=lambda case: -abs(case.error_fraction or 0))[:_WORST]
    print()
    for case in shown:
        print(
            f"{case.id:24s} {case.quantity:20s} measured {case.measured:10.4g} predicted {case.predicted:10.4g} "
            f"{case.error_fraction:+8.1%}  {case.engine} {case.version} {case.gpu} TP {case.tp} {case.precision}"
        )
    for reason in sorted({case.reason for case in cases if case.reason}):
        print(f"skipped {sum(case.reason == reason for case in cases)}: {reason}")


def row(quantity: str, name: str, members: list[ServingCase]) -> None:
    """Print the errors of one group."""
    errors = summary(quantity, name, members)
    if errors.cases and errors.median_abs_error_fraction is not None and errors.p90_abs_error_fraction is not None:
        signed = sorted(case.error_fraction for case in members if case.error_fraction is not None)
        print(
            f"{name:72s} {errors.cases:4d} median {errors.median_abs_error_fraction:7.1%} "
            f"p90 {errors.p90_abs_error_fraction:7.1%} signed {signed[len(signed) // 2]:+7.1%} "
            f"in band {errors.band_coverage_fraction:5.0%}"
        )


if __name__ == "__main__":
    main()
