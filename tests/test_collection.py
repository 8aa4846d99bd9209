"""What pytest collects on a GPU host where only some packages of the project are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emmy.config import project_root

BLOCKER = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {packages!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


def collected(folder: Path, packages: tuple[str, ...], *args: str) -> subprocess.CompletedProcess[str]:
    """pytest's collection where ``packages`` are not installed."""
    (folder / "sitecustomize.py").write_text(BLOCKER.format(packages=packages))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *args],
        env=os.environ | {"PYTHONPATH": str(folder)}, cwd=project_root(), capture_output=True, text=True, check=False,
    )  # fmt: skip


ALL = ("duckdb", "polars", "prefect", "catboost")


@pytest.mark.parametrize(
    "packages", [ALL, *(pytest.param((package,), marks=pytest.mark.slow) for package in ALL)], ids=" ".join
)
def test_gpu_tests_are_collected_without_what_they_do_not_need(tmp_path: Path, packages: tuple[str, ...]) -> None:
    done = collected(tmp_path, packages, "-q", "-m", "gpu")
    assert done.returncode == 0, done.stdout + done.stderr
    cases = [line for line in done.stdout.splitlines() if "::" in line]
    assert any(line.startswith("tests/gpu/") for line in cases)
    assert re.search(rf"\b{len(cases)}/\d+ tests collected", done.stdout), done.stdout[-300:]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    done = collected(tmp_path, ("prefect",), "tests/tasks", "tests/store")
    assert "not collected without prefect: flows tasks" in done.stdout
    assert "test_store.py" in done.stdout
    assert "test_keys.py" not in done.stdout
