"""What every test gets: no EMMY_* variable of the caller, and a work folder of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests neither read nor write the store, prior and logs of the checkout; their child processes inherit that."""
    for name in [name for name in os.environ if name.startswith("EMMY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EMMY_TUNE_DB", str(tmp_path / "_tune" / "emmy.duckdb"))
    monkeypatch.setenv("POCL_AFFINITY", "1")


@pytest.fixture
def emmy() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the `emmy` command in a process of its own: `emmy("run", "-c", "x + 1", EMMY_DEBUG="1")`."""

    def run(*args: str, timeout_s: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "emmy", *args],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    return run
