"""What every test gets: no configuration of the user who runs them, and one compiled catalog for all."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Tests share the cores among themselves: threads of linear algebra would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A machine with much else to do is slow: no test fails for the time it took.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

TODAY_S = "1795996800"
"""2026-11-30, the day of the newest facts of the catalog."""


@pytest.fixture(autouse=True, scope="session")
def _isolation(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        # Prices of the catalog are held against the day: a test must not fail because time goes by.
        patch.setenv("SOURCE_DATE_EPOCH", TODAY_S)
        yield
