"""What a GPU is brought back to before each sample, so that a kernel costs the same whatever ran in the process before.

How long a kernel takes to start depends on what else its context has done since the GPU last changed to it. On an
H200 (driver 580, 2026-11-30) an empty kernel in a graph takes 0.53 us, and 0.71 us from the sixteenth stream in use
on, also when the other streams are gone again (`python -m benchmarks.launch_cost`); kernels with work to do start
0.32 to 0.36 us later. PyTorch brings a process there with its first rows: what was screened alone and then compared
with PyTorch came out up to a seventh slower, and PyTorch's own kernels as well (others see it as
pytorch/pytorch#161104). One kernel of another context, in this process or another, undoes it, for 20 us and about 0.3
ms of the GPU's way back.
"""

from __future__ import annotations

from typing import Any

from emmy.errors import CompileFailed

_SOURCE = 'extern "C" __global__ void visit() {}\n'


class OtherContext:
    """A context beside the process's own, with one empty kernel. Made on first use; some 200 MB of device memory."""

    def __init__(self, cp: Any, binaries: Any, arch: str) -> None:
        self.cp, self.driver = cp, cp.cuda.driver
        binary = binaries.compile(_SOURCE, arch, ())
        if binary.error:
            raise CompileFailed("the kernel run between samples does not compile", log=binary.log)
        own = self.driver.ctxGetCurrent()
        self.context = self.driver.ctxCreate(cp.cuda.runtime.getDevice())
        try:
            self.module = self.driver.moduleLoadData(binary.cubin)
            self.kernel = self.driver.moduleGetFunction(self.module, "visit")
        finally:
            self.driver.ctxSetCurrent(own)

    def visit(self) -> None:
        """Runs the kernel to its end. The process's own context is current again afterwards."""
        own = self.driver.ctxGetCurrent()
        self.driver.ctxSetCurrent(self.context)
        try:
            self.driver.launchKernel(self.kernel, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0)
            self.cp.cuda.runtime.deviceSynchronize()
        finally:
            self.driver.ctxSetCurrent(own)

    def close(self) -> None:
        self.driver.ctxDestroy(self.context)
