from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emmy.bench.client import Worker


@pytest.fixture(scope="session")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of compiled kernels for all tests: what is compiled once is not compiled again."""
    return tmp_path_factory.mktemp("binaries")


@pytest.fixture(scope="module")
def worker(binaries: Path) -> Iterator[Worker]:
    with Worker("opencl", binaries) as worker:
        yield worker
