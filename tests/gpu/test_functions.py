"""What CUDA's printed functions compute on the GPU, where they are emmy's own and not the library's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from emmy.codegen import render
from emmy.device.base import Capabilities
from emmy.ir.dtype import DType
from emmy.ir.expr import Mem, call
from emmy.ir.kernel import BX, TX, BufferParam, Kernel, Store

pytestmark = pytest.mark.gpu


def evaluated(fn: str, x: np.ndarray) -> np.ndarray:
    """``fn`` of every element of ``x``, a multiple of 256 float32 numbers."""
    import cupy

    at = BX * 256 + TX
    params = (BufferParam("x", DType.F32), BufferParam("y", DType.F32, True))
    body = (Store("y", at, call(fn, Mem("x", at, DType.F32)), DType.F32),)
    kernel = Kernel(f"k_{fn}", params, (256, 1), body)
    given, out = cupy.asarray(x), cupy.empty(x.size, cupy.float32)
    cupy.RawKernel(render(kernel, "cuda"), kernel.name)((x.size // 256,), (256,), (given, out))
    return out.get()


def test_normal_distribution(caps: Capabilities) -> None:
    x = np.linspace(-9, 9, 1 << 22, dtype=np.float32)
    exact = ndtr(x.astype(np.float64))
    error = np.abs(evaluated("normcdf", x) - exact)
    assert error.max() < 1.8e-7
    tail = (x > -5) & (x < -2)
    assert (error[tail] / exact[tail]).max() < 1.2e-4


def test_normal_distribution_at_the_ends(caps: Capabilities) -> None:
    x = np.zeros(256, np.float32)
    x[:8] = -np.inf, np.inf, np.nan, -65504, 65504, -3e38, 3e38, -0.0
    out = evaluated("normcdf", x)
    np.testing.assert_array_equal(out[:9], [0, 1, np.nan, 0, 1, 0, 1, 0.5, 0.5])
