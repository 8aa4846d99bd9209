"""NVRTC without a GPU: machine code, PTX and log come back; errors carry the compiler's own words."""

import subprocess
import sys

import pytest

from emmy.codegen.nvrtc import compile_cuda, nvrtc_version
from emmy.errors import CompileFailed
from tests.codegen.compilers import require_nvrtc

SOURCE = 'extern "C" __global__ void k(float* x) { int unused; x[0] = __expf(x[1]); }'


@pytest.fixture(autouse=True)
def _nvrtc() -> None:
    require_nvrtc()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_compiles_for_any_architecture(arch: str) -> None:
    result = compile_cuda(SOURCE, arch)
    assert result.cubin[:4] == b"\x7fELF"
    assert f".target {arch}" in result.ptx
    assert "unused" in result.log
    assert result.seconds > 0


def test_an_error_carries_the_log() -> None:
    with pytest.raises(CompileFailed, match="sm_80") as caught:
        compile_cuda("nonsense", "sm_80")
    assert "error" in caught.value.log


def test_options_reach_the_compiler() -> None:
    source = "#ifndef WANTED\n#error no\n#endif\n" + SOURCE
    with pytest.raises(CompileFailed):
        compile_cuda(source, "sm_80")
    assert compile_cuda(source, "sm_80", ("-DWANTED=1",)).cubin


def test_version() -> None:
    assert nvrtc_version() >= (12, 0)


def test_printing_needs_no_compiler() -> None:
    """The printers are used in places that have neither CuPy nor PyOpenCL."""
    code = "import sys, emmy.codegen; sys.exit(any(m in sys.modules for m in ('cupy', 'pyopencl', 'torch', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
