"""The printed exponential of float vectors, on the device: accuracy, limits, NaN."""

from __future__ import annotations

import numpy as np
import pytest

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Mem, Var, call
from emmy.ir.kernel import BX, BufferParam, Kernel, Let, Store
from emmy.ir.scalar import FUNCTIONS
from tests.codegen.compilers import run_opencl


def apply(fn: str, values: np.ndarray, lanes: int = 8) -> np.ndarray:
    """``fn`` of each value, computed in vectors of ``lanes``; the number of values is a multiple of it."""
    place: Expr = BX * lanes
    x = Let("v", Mem("x", place, DType.F32, lanes))
    params = (BufferParam("x", DType.F32), BufferParam("y", DType.F32, writable=True))
    value = call(fn, Var("v", DType.F32, lanes))
    kernel = Kernel("k", params, (1, 1), (x, Store("y", place, value, DType.F32)))
    out = np.empty_like(values)
    run_opencl(kernel, (len(values) // lanes,), {"x": values, "y": out})
    return out


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_exp_is_accurate_to_two_ulp(lanes: int) -> None:
    ends = np.linspace(-87.33, 88.72, 1 << 17)
    middle = np.linspace(-1.0, 1.0, 1 << 16)
    x = np.concatenate([ends, middle]).astype(np.float32)
    want = np.exp(x.astype(np.float64))
    ulp = np.abs(apply("exp", x, lanes) - want) / np.spacing(want.astype(np.float32))
    assert ulp.max() <= 2.0


def test_exp_of_what_is_not_ordinary() -> None:
    payload = np.array([0x7FC00001, 0xFFC00003], np.uint32).view(np.float32)
    x = np.array([np.inf, -np.inf, np.nan, 88.72283, 88.73, -87.34, -1e30, 1e30, 0.0, -0.0, 1e-40, -1e-30, 1.0, -1.0,
                  *payload], np.float32)  # fmt: skip
    got = apply("exp", x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    np.testing.assert_array_equal(got[[0, 1, 4, 5, 6, 7]], np.float32([np.inf, 0, np.inf, 0, 0, np.inf]))
    np.testing.assert_array_equal(got[8:12], np.float32([1, 1, 1, 1]))
    assert np.isfinite(got[3])
    assert got[3] > 3.4e38


def test_fast_exp_is_accurate_to_six_millionths() -> None:
    x = np.linspace(-86.9, 86.9, 1 << 16).astype(np.float32)
    want = np.exp(x.astype(np.float64))
    error = np.abs(apply("fast_exp", x) / want - 1.0).max()
    assert error < 1e-5
    assert (apply("fast_exp", np.full(8, -np.inf, np.float32)) < 2e-38).all()


FUNCTIONS_OF_ANY_FLOAT = (
    "exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan", "erf", "erfc", "log1p",
)  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS_OF_ANY_FLOAT)
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_every_half_beside_any_other(fn: str, lanes: int) -> None:
    """What one lane holds (65504, an infinity, a NaN) changes nothing in another."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = np.random.default_rng(1).permutation(halves).astype(np.float32)
    x[: 4 * lanes : 2], x[1 : 4 * lanes : 2] = 1e10, 1e-30
    with np.errstate(all="ignore"):
        want = FUNCTIONS[fn].evaluate(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(apply(fn, x, lanes), want, rtol=4e-6, atol=2e-38)


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_tanh_ends_in_one(lanes: int) -> None:
    x = np.array([65504, -65504, np.inf, -np.inf, 9.1, -9.1, 3e38, np.nan], np.float32)
    np.testing.assert_array_equal(apply("tanh", x, lanes), np.array([1, -1, 1, -1, 1, -1, 1, np.nan], np.float32))
