"""The real compilers that tests use: OpenCL on the CPU, where kernels also run, and NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emmy.codegen import render
from emmy.codegen.abi import scalar_format
from emmy.codegen.nvrtc import include_dir, nvrtc_version
from emmy.device.opencl import pick_device
from emmy.errors import MissingPrerequisite
from emmy.ir.dtype import DType
from emmy.ir.kernel import BufferParam, Kernel, ScalarParam


def require_nvrtc() -> None:
    """Skips the test where NVRTC or the CUDA headers are missing."""
    try:
        nvrtc_version()
        include_dir()
    except MissingPrerequisite as error:
        pytest.skip(str(error))


def run_opencl(kernel: Kernel, grid: tuple[int, ...], args: dict[str, Any], vector_width: int | None = None) -> None:
    """As emmy.ir.interp.run_kernel: writes into the arrays of ``args`` (bfloat16 held as float32)."""
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    context = cl.Context([pick_device(cl)])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, render(kernel, "opencl", vector_width)).build()
    values: list[Any] = []
    buffers: dict[str, tuple[Any, np.ndarray[Any, Any]]] = {}
    for param in kernel.params:
        if isinstance(param, BufferParam):
            host = np.ascontiguousarray(args[param.name])
            if param.dtype == DType.BF16:
                host = (host.view(np.uint32) >> 16).astype(np.uint16)
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            buffers[param.name] = (cl.Buffer(context, flags, hostbuf=host), host)
            values.append(buffers[param.name][0])
        else:
            assert isinstance(param, ScalarParam)
            values.append(np.dtype(scalar_format(param)).type(args[param.name]))
    x, y = kernel.block
    threads = tuple(count * size for count, size in zip((*grid, 1, 1)[:3], (x, y, 1), strict=True))
    getattr(program, kernel.name)(queue, threads, (x, y, 1), *values)
    for name, (buffer, host) in buffers.items():
        cl.enqueue_copy(queue, host, buffer)
        queue.finish()
        if args[name].dtype == host.dtype:
            args[name].reshape(-1)[:] = host.reshape(-1)
        else:
            args[name].reshape(-1)[:] = (host.astype(np.uint32) << 16).view(np.float32).reshape(-1)
