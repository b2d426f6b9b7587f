"""Build hook: puts a compiled copy of the catalog into the wheel, so that no command has to parse YAML at start."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles ``models.yaml``, ``gpus.yaml`` and ``efficiency.yaml`` into ``infcalc/data/catalog.json`` of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and include the copy; editable installs compile at first use instead."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from infcalc.files import compile_shipped  # noqa: PLC0415  found through the line above

        self._folder = tempfile.TemporaryDirectory()
        target = str(Path(self._folder.name) / "catalog.json")
        compile_shipped(self.root, target)
        build_data["force_include"][target] = "infcalc/data/catalog.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy once it is in the wheel."""
        del build_data, artifact_path
        if version != "editable":
            self._folder.cleanup()
