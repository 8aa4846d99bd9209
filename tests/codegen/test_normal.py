"""Φ as the printers write it, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from emmy.codegen.normal import COEFFICIENTS
from emmy.ir.dtype import DType
from emmy.ir.expr import Mem, call
from emmy.ir.kernel import BX, TX, BufferParam, Kernel, Store
from tests.codegen.compilers import run_opencl

GROUP = 64


def emulated(x: np.ndarray) -> np.ndarray:
    """The formula with fused multiply-adds in float32 and an exact power."""
    t = np.abs(x).astype(np.float64)
    power = np.full(x.shape, COEFFICIENTS[-1], np.float32)
    for c in reversed(COEFFICIENTS[:-1]):
        power = (power * t + np.float64(np.float32(c))).astype(np.float32)
    q = np.exp2(power.astype(np.float64)).astype(np.float32)
    return np.where(x < 0, q, np.float32(1) - q)


def test_errors_are_as_stated() -> None:
    x = np.linspace(-8, 8, 1 << 20, dtype=np.float32)
    exact = ndtr(x.astype(np.float64))
    error = np.abs(emulated(x) - exact)
    assert error.max() <= 1.0e-7
    tail = (x >= -5) & (x < 0)
    assert (error[tail] / exact[tail]).max() <= 7e-5


def opencl(x: np.ndarray, lanes: int, below: bool = False) -> np.ndarray:
    """Φ(x), or x/Φ(x)."""
    dtype = DType.F64 if x.dtype == np.float64 else DType.F32
    at = (BX * GROUP + TX) * lanes
    params = (BufferParam("x", dtype), BufferParam("y", dtype, True))
    read = Mem("x", at, dtype, lanes)
    value = call("div", read, call("normcdf", read)) if below else call("normcdf", read)
    out = np.zeros_like(x)
    name = f"k_normcdf_{dtype.value}_{lanes}_{below}"
    kernel = Kernel(name, params, (GROUP, 1), (Store("y", at, value, dtype),))
    run_opencl(kernel, (x.size // (GROUP * lanes),), {"x": x, "y": out})
    return out


@pytest.mark.parametrize("lanes", [1, 8])
def test_opencl(lanes: int) -> None:
    x = np.linspace(-9, 9, 1 << 16, dtype=np.float32)
    exact = ndtr(x.astype(np.float64))
    error = np.abs(opencl(x, lanes) - exact)
    assert error.max() <= 1.5e-7
    tail = (x > -5) & (x < 0)
    assert (error[tail] / exact[tail]).max() <= 8e-5


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("lanes", [1, 4])
def test_opencl_float64(lanes: int, below: bool) -> None:
    x = np.linspace(-9, 9, 1 << 12)
    np.testing.assert_allclose(opencl(x, lanes, below), x / ndtr(x) if below else ndtr(x), rtol=1e-13)


@pytest.mark.parametrize("lanes", [1, 8])
def test_ends(lanes: int) -> None:
    x = np.zeros(GROUP * 8, np.float32)
    x[:8] = -np.inf, np.inf, np.nan, -65504, 65504, -3e38, 3e38, -0.0
    np.testing.assert_array_equal(opencl(x, lanes)[:9], [0, 1, np.nan, 0, 1, 0, 1, 0.5, 0.5])
