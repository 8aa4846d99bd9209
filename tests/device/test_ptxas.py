"""Warnings of ptxas are told apart from what the front end says."""

from __future__ import annotations

from emmy.codegen.nvrtc import compile_cuda
from emmy.device.cuda import warnings
from tests.codegen.compilers import require_nvrtc

LOG = """\
kernel.cu(2): warning #177-D: variable "unused" was declared but never referenced
    int unused;
        ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

ptxas info    : 0 bytes gmem
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas warning : Registers are spilled to local memory in function 'k', 4 bytes spill stores
ptxas /tmp/k.ptx, line 5; info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas /tmp/k.ptx, line 9; info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
\0"""


def test_only_ptxas_is_heard_and_each_warning_once() -> None:
    assert warnings(LOG) == (
        "(C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.",
        "Registers are spilled to local memory in function 'k', 4 bytes spill stores",
        "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized",
    )
    assert warnings("") == warnings("\0") == ()


def test_a_real_warning() -> None:
    require_nvrtc()
    source = """
extern "C" __global__ void __launch_bounds__(384) k(float* x) {
  int unused;
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  x[0] = x[1];
}
"""
    (found,) = warnings(compile_cuda(source, "sm_90a").log)
    assert found.startswith("(C7508) ")
    (found,) = warnings(compile_cuda(source, "sm_90a", ("--Ofast-compile=min",)).log)
    assert found.startswith("(C7504) ")
