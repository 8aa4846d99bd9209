"""One GPU, one worker, one compile farm for all tests here; without a CUDA GPU they are skipped."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
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


_SHOWN = 6
"""Lines of a failure's reason in the last part of the output."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Says after the short summary, which cuts a line at the terminal's width, why each case here failed."""
    yield
    reports = [r for kind in ("failed", "error") for r in terminalreporter.stats.get(kind, [])]
    reasons = [(r.nodeid, r.longrepr.reprcrash.message) for r in reports if hasattr(r.longrepr, "reprcrash")]
    for nodeid, message in (pair for pair in reasons if "tests/gpu/" in pair[0]):
        lines = message.splitlines()
        more = [f"  and {len(lines) - _SHOWN} lines more"] if len(lines) > _SHOWN else []
        text = [nodeid.split("::")[-1], *(f"  {line[:400]}" for line in lines[:_SHOWN]), *more]
        terminalreporter.write_line("\n".join(text))


@pytest.fixture(scope="session")
def cores() -> int:
    return max(1, len(os.sched_getaffinity(0)) - 1)
