"""The shipped models.yaml, read once, and the facts that some tests compare with."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infcalc.catalog.codec import model_from_mapping
from infcalc.spec.model import Model

ROOT = Path(__file__).parents[1]
FACTS = ROOT.parent / "shared" / "facts"


def _loaded(path: Path) -> Any:  # noqa: ANN401 - YAML
    return yaml.load(path.read_text(), Loader=yaml.CSafeLoader)


@cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = _loaded(ROOT / "models.yaml")
    return found


@cache
def published() -> tuple[dict[str, Any], ...]:
    return tuple(_loaded(ROOT / "tests" / "published" / "parameters.yaml")["models"])


@cache
def facts() -> tuple[dict[str, Any], ...]:
    return tuple(_loaded(FACTS / "models.yaml")["models"])


@cache
def shipped(name: str) -> Model:
    return model_from_mapping(name, document()["models"][name])


def names() -> tuple[str, ...]:
    return tuple(document()["models"])
