"""A GPU is found without nvidia-smi, by the driver's library; here a library of the test's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from emmy.device import registry

COMPILER = shutil.which("cc")
SOURCE = """
#include <stdio.h>
int cuInit(unsigned flags) {{ return flags ? 1 : {init}; }}
int cuDeviceGetCount(int* count) {{ *count = {count}; return {counted}; }}
int cuCtxCreate_v2() {{ fopen("{folder}/context", "w"); return 0; }}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine, which has no nvidia-smi, looks for the driver's library first."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("init", "count", "counted", "there"),
    [(0, 1, 0, True), (0, 8, 0, True), (0, 0, 0, False), (100, 1, 0, False), (999, 1, 0, False), (0, 1, 3, False)],
    ids=["one", "eight", "none", "no device", "a broken driver", "no count"],
)
def test_without_the_tool_the_drivers_library_is_asked(
    folder: Path, init: int, count: int, counted: int, there: bool
) -> None:
    source = folder / "driver.c"
    source.write_text(SOURCE.format(init=init, count=count, counted=counted, folder=folder))
    library = folder / "libcuda.so.1"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-w", "-o", str(library), str(source)], check=True)
    assert registry.has_cuda_gpu() is there
    assert registry.resolve("auto") == ("cuda" if there else "opencl")
    assert not (folder / "context").exists()


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_a_library_that_kills_its_process_is_no_gpu(folder: Path) -> None:
    source = folder / "driver.c"
    source.write_text("#include <stdlib.h>\nint cuInit(unsigned flags) { abort(); }\n")
    library = folder / "libcuda.so.1"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert registry.has_cuda_gpu() is False


def test_a_library_that_cannot_be_loaded_is_no_gpu(folder: Path) -> None:
    (folder / "libcuda.so.1").write_text("not a library")
    assert registry.has_cuda_gpu() is False
