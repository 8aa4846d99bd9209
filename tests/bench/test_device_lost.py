"""A device that goes away in the middle of a run ends it with one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from emmy.bench.client import Worker
from emmy.errors import DeviceLost, MissingPrerequisite
from tests.bench.test_worker_faults import good, submit


def test_a_device_that_cannot_be_opened_again_is_lost(binaries: Path, tmp_path: Path) -> None:
    with Worker("opencl", binaries) as worker:
        good(worker, tmp_path)
        name = worker.name
        worker.kill()
        worker.device = "gone"
        with pytest.raises(DeviceLost, match=r"was lost.*what was measured is kept") as caught:
            submit(worker, tmp_path, "good")
        assert name in str(caught.value)
        worker.device = "opencl"
        good(worker, tmp_path)


def test_a_worker_that_does_not_start_again_is_a_lost_device(
    binaries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Worker("opencl", binaries) as worker:
        good(worker, tmp_path)
        worker.kill()
        monkeypatch.setattr("sys.executable", "/bin/false")
        with pytest.raises(DeviceLost, match="did not start"):
            submit(worker, tmp_path, "good")


def test_a_device_that_never_opened_is_a_missing_prerequisite(tmp_path: Path) -> None:
    with Worker("gone") as worker, pytest.raises(MissingPrerequisite, match="gone"):
        submit(worker, tmp_path, "good")
