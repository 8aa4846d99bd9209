"""Registers, spills and SASS out of a CUBIN, without a GPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emmy.codegen import cubin
from emmy.codegen.nvrtc import compile_cuda
from emmy.errors import MissingPrerequisite
from tests.codegen.compilers import require_nvrtc

SOURCE = """
extern "C" __global__ void small(float* x) { x[1] = 2; }
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* x) {
  float t[64];
  for (int i = 0; i < 64; i++) t[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int j = 0; j < 64; j++) for (int i = 0; i < 64; i++) t[i] = t[i] * t[63 - i] + x[j];
  for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = t[i];
}
"""

LISTING = """
Resource usage:
 Common:
  GLOBAL:0
 Function small:
  REG:8 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:536 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function spilling:
  REG:32 STACK:128 SHARED:2048 LOCAL:16 CONSTANT[0]:536 CONSTANT[2]:8 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def need(tool: str) -> None:
    require_nvrtc()
    try:
        cubin.find_tool(tool)
    except MissingPrerequisite as error:
        pytest.skip(str(error))


def test_the_listing_of_cuobjdump() -> None:
    assert cubin.parse_resources(LISTING) == {
        "small": cubin.Resources(8, 0, 0, 0), "spilling": cubin.Resources(32, 128, 16, 2048),
    }  # fmt: skip
    assert cubin.parse_resources("") == {}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_resources_of_a_real_binary(arch: str) -> None:
    need("cuobjdump")
    found = cubin.resources(compile_cuda(SOURCE, arch).cubin)
    assert set(found) == {"small", "spilling"}
    assert 0 < found["small"].registers < found["spilling"].registers
    assert found["small"].stack_bytes == 0
    assert found["spilling"].stack_bytes > 0


def test_sass_of_a_real_binary() -> None:
    need("nvdisasm")
    text = cubin.disassemble(compile_cuda(SOURCE, "sm_90a").cubin)
    assert ".text.small" in text
    assert "EXIT" in text


def test_a_tool_that_is_missing_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *args, **kwargs: None)
    monkeypatch.setattr(cubin, "_packaged", lambda tool: None)
    for tool in ("nvdisasm", "cuobjdump"):
        with pytest.raises(MissingPrerequisite, match=f"pip install nvidia-cuda-{tool}"):
            cubin.find_tool(tool)


def test_a_tool_that_cannot_read_the_binary_says_so(tmp_path: Path) -> None:
    need("cuobjdump")
    with pytest.raises(MissingPrerequisite, match="cuobjdump cannot read the binary"):
        cubin.resources(b"not a cubin")
