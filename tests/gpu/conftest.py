"""One GPU, one worker, one compile farm for all tests here; without a CUDA GPU they are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emmy.bench.client import Worker
from emmy.device.base import Capabilities
from emmy.device.registry import has_cuda_gpu


@pytest.fixture(scope="session")
def caps() -> Capabilities:
    """Of the GPU; asked for in a process of its own."""
    if not has_cuda_gpu():
        pytest.skip("no CUDA GPU")
    from emmy.device.probe import cuda_capabilities

    return cuda_capabilities()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Binaries and references of the whole session."""
    return tmp_path_factory.mktemp("gpu")


@pytest.fixture(scope="session")
def worker(caps: Capabilities, folder: Path) -> Iterator[Worker]:
    with Worker("cuda", folder, threads=4) as worker:
        worker.start()
        yield worker


@pytest.fixture(scope="session")
def cores() -> int:
    return max(1, len(os.sched_getaffinity(0)) - 1)
