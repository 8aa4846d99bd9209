"""`python -m flows.golden_sweep` as a person runs it: its own server, a real device, real measurements."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emmy.config import project_root

pytestmark = pytest.mark.slow


def test_a_shape_is_swept_reported_and_known_the_second_time(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "flows.golden_sweep", "--kernel", "quick.reduce.1024x4096", "--patience", "2",
        "--plans-dir", str(tmp_path / "plans"), "--device", "opencl", "--group", "quick",
    ]  # fmt: skip

    def run() -> str:
        done = subprocess.run(
            command, cwd=project_root(), env=os.environ | {"PREFECT_API_URL": ""}, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    first = run()
    assert "[1/1] tune      quick.reduce.1024x4096  best" in first
    assert "tally   0 replaced" in first
    (report,) = (tmp_path / "plans").glob("golden-sweep-*-findings.md")
    assert "| quick.reduce.1024x4096 | 1024 × 4096 |" in report.read_text()
    second = run()
    assert "tune      1 of 1 known from an earlier run" in second
    assert "[1/1]" not in second
