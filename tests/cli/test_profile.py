"""``emmy run --profile``: both sides in one table and two files; where nothing can be counted: said, and no failure."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emmy.cli import profile
from emmy.report import ncu
from emmy.schedule.knobs import KnobMap
from tests.device.machine import pretend

RAW = Path(__file__).parents[1] / "report" / "ncu_raw.csv"
NO_PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see https://…"
)


def test_without_ncu_the_profile_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> str:
        raise ncu.Unavailable("ncu is not installed", hint="it comes with the CUDA toolkit (Nsight Compute)")

    monkeypatch.setattr(ncu, "find_ncu", missing)
    nothing: Any = SimpleNamespace()
    assert profile.profile_one(nothing, nothing, KnobMap(), None) == 0
    assert capsys.readouterr().out.startswith("profile skipped: ncu is not installed")


def test_a_device_without_counters_is_refused(emmy: Any) -> None:
    done = emmy("run", "--profile", "--device", "opencl", "-c", "x0 = torch.randn(4, 4); x0 + 1")
    assert done.returncode == 2
    assert "--profile" in done.stderr


# ------------------------------------------------------------------------ the whole command, with an ncu of its own


@pytest.fixture
def profiled(
    emmy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs a small product on a stub GPU under an ncu that is a Python program."""
    pretend(monkeypatch, tmp_path / "gpu", trust=True)

    def run(script: str) -> subprocess.CompletedProcess[str]:
        tool = tmp_path / "bin" / "ncu"
        tool.parent.mkdir()
        tool.write_text(f"#!{sys.executable}\nimport json, sys\nfrom pathlib import Path\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
        snippet = "x0 = torch.randn(16, 32); x1 = torch.randn(32, 16); x0 @ x1"
        done = emmy("run", "--profile", "--device", "cuda", "--dump-dir", str(tmp_path / "dump"), "-c", snippet)
        assert isinstance(done, subprocess.CompletedProcess)
        return done

    return run


def test_both_sides_stand_in_the_table_and_in_both_files(
    profiled: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = profiled(
        f"assert sys.argv[sys.argv.index('--clock-control') + 1] == 'none'\n"
        f"kernel = json.loads(Path(sys.argv[-1]).read_text())['row']['artefact']['kernels'][0]['name']\n"
        f"print(Path({str(RAW)!r}).read_text().replace('k_matmul_98874c', kernel))"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    head = next(line for line in lines if "occ %" in line)
    for column in ("us", "occ %", "SM %", "DRAM %", "FMA %", "LSU inst", "bank confl", "regs"):
        assert column in head
    sides = [line.split()[0] for line in lines[lines.index(head) + 1 :] if line.split()]
    assert "emmy" in sides
    assert "reference" in sides
    (row, *_) = csv.DictReader((tmp_path / "dump" / "61_ncu_metrics.csv").open())
    assert (row["side"], row["registers"]) == ("emmy", "128")
    content = json.loads((tmp_path / "dump" / "61_ncu_metrics.json").read_text())
    assert {kernel["side"] for kernel in content["kernels"]} == {"emmy", "reference"}


def test_no_permission_is_said_and_skipped(
    profiled: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = profiled(f"print({NO_PERMISSION!r}); sys.exit(1)")
    assert done.returncode == 0, done.stderr
    assert "relative error against eager PyTorch" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("profile skipped: no permission to read GPU performance counters (ERR_NVGPUCTRPERM)")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in last
    assert not (tmp_path / "dump" / "61_ncu_metrics.csv").exists()


def test_an_ncu_that_fails_is_a_failure(profiled: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    done = profiled("print('==ERROR== The application returned an error code (3).'); sys.exit(3)")
    assert done.returncode == 1
    assert "returned an error code (3)" in done.stderr
    assert "Traceback" not in done.stderr
