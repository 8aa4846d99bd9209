"""``emmy`` on machines whose CUDA GPU cannot be used, and on one whose GPU is lost in the middle of a sweep."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from emmy import config
from emmy.store import Store
from tests.device.machine import pretend

Emmy = Callable[..., subprocess.CompletedProcess[str]]

SNIPPET = "x0 = torch.randn(64, 48); x0 + 1"
INSUFFICIENT = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ({"count": INSUFFICIENT, "driver": 0},
         ("found no NVIDIA driver", "expected one for CUDA 13.0 or newer", "install it")),
        ({"count": INSUFFICIENT, "driver": 12040},
         ("found a driver for CUDA 12.4", "expected one for CUDA 13.0 or newer", "update the driver")),
        ({"count": 0}, ("no CUDA GPU", "nvidia-smi -L")),
        ({"nvrtc": "libnvrtc.so.13: cannot open shared object file"},
         ("NVRTC cannot be used", "libnvrtc.so.13", "pip install cupy-cuda13x nvidia-cuda-nvrtc")),
        ({"arch": [13, 5]},
         ("NVRTC 13.0 does not compile for sm_135", "found sm_135", "expected sm_80", "a newer one")),
        ({"lost": True}, ("the CUDA GPU cannot be opened", "busy or unavailable", "nvidia-smi")),
    ],
    ids=["no driver", "an old driver", "no GPU", "no NVRTC", "an unknown architecture", "a GPU that does not answer"],
)  # fmt: skip
@pytest.mark.parametrize("command", ["tune", "run"])
def test_one_message_and_nothing_is_started(
    emmy: Emmy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: dict[str, Any], words: tuple[str, ...],
    command: str,
) -> None:  # fmt: skip
    gpu = pretend(monkeypatch, tmp_path / "gpu", **machine)
    if machine.get("lost"):
        (gpu / "lost").touch()
    done = emmy(command, "--device", "cuda", "-c", SNIPPET)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert all(word in line for word in words), line
    assert not (tmp_path / "_tune").exists()


def test_no_nvrtc_is_said_by_compile_as_well(emmy: Emmy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path / "gpu", nvrtc="libnvrtc.so.13: cannot open shared object file")
    done = emmy("compile", "--target", "sm_90a", "--ir", "ptx", "-c", SNIPPET)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install cupy-cuda13x nvidia-cuda-nvrtc" in done.stderr.splitlines()[-1]


def test_shapes_that_are_a_cpus_default_alone_are_asked_for_by_their_group(
    emmy: Emmy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(monkeypatch, tmp_path / "gpu")
    done = emmy("tune", "--device", "cuda", "--dataset", "golden", "--kernel", "quick.matmul.256")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'quick.matmul.256' in its name in the default of NVIDIA Stub" in done.stderr


@pytest.fixture
def sweep(emmy: Emmy) -> Callable[[], subprocess.CompletedProcess[str]]:
    def run() -> subprocess.CompletedProcess[str]:
        return emmy(
            "tune",
            "--device",
            "cuda",
            "--dataset",
            "golden",
            "--group",
            "quick",
            "--kernel",
            "quick.matmul.256",
            "--patience",
            "2",
        )

    return run


def rows() -> pl.DataFrame:
    return Store(config.load().tune_db).measurements()


def test_a_sweep_whose_gpu_is_lost_stops_and_goes_on_where_it_was(
    sweep: Callable[[], subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu = pretend(monkeypatch, tmp_path / "gpu", trust=True, lost_after=300)
    done = sweep()
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("the device NVIDIA Stub was lost") == 1, done.stdout
    assert "once the device works again the same command goes on from there" in done.stdout
    (stopped,) = (line for line in done.stdout.splitlines() if line.startswith("! stopped: "))
    assert "of 2 targets are not done" in stopped
    before = rows()
    assert len(before) > 2
    assert set(before["status"]) <= {"ok", "launch_failed"}
    assert before.filter(pl.col("status") != "ok").height <= 1, "the row that was on the GPU when it went"

    (gpu / "lost").unlink()
    pretend(monkeypatch, tmp_path / "gpu", trust=True)
    done = sweep()
    assert done.returncode <= 1, done.stderr
    assert "was lost" not in done.stdout
    after = rows()
    assert after["sweep"].n_unique() == 1
    kept = before.filter(pl.col("status") == "ok", pl.col("protocol").str.starts_with("screen"))
    again = after.filter(pl.col("key").is_in(kept["key"].to_list()))
    assert again.sort("key")["measured_at"].to_list() == kept.sort("key")["measured_at"].to_list()
    assert set(after["shape"]) == {"quick.matmul.256", "quick.matmul.256.dynM"}
