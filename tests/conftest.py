"""What every test gets: no EMMY_* variable of the caller, and a work folder of its own.

Tests of what is not installed are not collected, so that ``pytest -m gpu`` runs where only a GPU's packages are.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

_OF_THE_STORE = (
    "cli/test_cuda_machines.py",
    "cli/test_device_lost.py",
    "cli/test_fit.py",
    "device/test_replay.py",
    "evaluate",
    "flows",
    "report/test_golden_report.py",
    "search",
    "store",
)
NEEDS = {"duckdb": _OF_THE_STORE, "polars": _OF_THE_STORE, "prefect": ("flows", "tasks")}
"""Files and folders here whose modules import a package as they are imported."""

MISSING = [package for package in NEEDS if find_spec(package) is None]

LEFT_OUT = sorted({path for package in MISSING for path in NEEDS[package]})

collect_ignore_glob = [*LEFT_OUT, *(f"{path}/*" for path in LEFT_OUT)]


def pytest_report_header() -> list[str]:
    return [f"not collected without {', '.join(MISSING)}: {' '.join(LEFT_OUT)}"] if MISSING else []


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
