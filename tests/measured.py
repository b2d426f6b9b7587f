"""The published runs of servers and their cases, predicted once; and the scripts that make data and pages of them."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from infcalc import files
from infcalc.api.validating_serving import ServingCase, validated_serving

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "tests" / "published" / "serving_measured.yaml"


def script(name: str) -> ModuleType:
    """Return a module of scripts/, which may import its neighbours."""
    folder = str(ROOT / "scripts")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


@cache
def runs() -> tuple[dict[str, Any], ...]:
    found = files.read_yaml(str(RUNS))
    assert isinstance(found, list)
    return tuple(found)


@cache
def cases() -> tuple[ServingCase, ...]:
    return validated_serving(runs(), files.load_catalog()).cases


@cache
def targets() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((RUNS.parent / "serving_targets.yaml").read_text(encoding="utf-8"))
    return found
