"""Every row of the function table has a text in both languages that computes what the table says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emmy.codegen import render
from emmy.codegen.cuda import TEMPLATES as CUDA
from emmy.codegen.nvrtc import compile_cuda
from emmy.codegen.opencl import TEMPLATES as OPENCL
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Mem, call, cast, i32, lt, select
from emmy.ir.interp import run_kernel
from emmy.ir.kernel import TX, BufferParam, Kernel, Let, Stmt, Store
from emmy.ir.scalar import FUNCTIONS, numpy_dtype
from tests.codegen.compilers import require_nvrtc, run_opencl

COUNT = 32
FLOAT_ONLY = {
    "div", "near_div", "atan2", "exp", "fast_exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "normcdf",
}  # fmt: skip
TYPES = (DType.F32, DType.F64, DType.U8, DType.I8, DType.I16, DType.I32, DType.I64)
INT_ONLY = {"bitand", "bitor", "bitxor", "shl", "shr"}
LOGICAL = {"and", "or", "not"}


def names(dtype: DType) -> list[str]:
    """Functions that take operands of ``dtype``."""
    skip = INT_ONLY if dtype.is_float else FLOAT_ONLY
    return [name for name in FUNCTIONS if name not in skip and name != "cast"]


def kernel(dtype: DType, lanes: int) -> Kernel:
    """One thread a vector; function number k writes the k-th stretch of ``out``."""
    body: list[Stmt] = []
    operands: list[Expr] = []
    for name in "xyz":
        load = Let(f"{name}v", Mem(name, TX * lanes, dtype, lanes))
        body.append(load)
        operands.append(load.var)
    x, y, z = operands
    for k, name in enumerate(names(dtype)):
        if name in LOGICAL:
            bools: tuple[Expr, ...] = (call("lt", x, y), call("gt", y, z))
            value: Expr = call(name, *bools[: FUNCTIONS[name].arity])
        elif name == "select":
            value = select(call("lt", x, y), y, z)
        elif name in ("shl", "shr"):
            value = call(name, x, z)  # y may be negative
        else:
            value = call(name, *operands[: FUNCTIONS[name].arity])
        if isinstance(value, Call) and value.dtype == DType.BOOL:
            value = cast(value, dtype)
        body.append(Store("out", i32(k * COUNT) + TX * lanes, value, dtype))
    params = (*(BufferParam(name, dtype) for name in "xyz"), BufferParam("out", dtype, True))
    return Kernel(f"k_functions_{dtype.value}_{lanes}", params, (COUNT // lanes, 1), tuple(body))


def arguments(dtype: DType) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    kind = numpy_dtype(dtype)
    if dtype.is_float:
        x, y, z = (rng.uniform(0.05, 0.95, COUNT).astype(kind) for _ in range(3))
        y[::5] = x[::5]
        x[3], y[4] = -x[3], -y[4]
    else:
        low = 0 if dtype == DType.U8 else -9
        x, y = (rng.integers(low, 10, COUNT).astype(kind) for _ in range(2))
        y[y == 0] = 3
        z = rng.integers(0, 4, COUNT).astype(kind)
    return {"x": x, "y": y, "z": z, "out": np.zeros(len(names(dtype)) * COUNT, kind)}


@pytest.mark.parametrize("language", ["opencl", "cuda"])
def test_every_function_has_a_text(language: str) -> None:
    table = {"opencl": OPENCL, "cuda": CUDA}[language]
    assert set(table) == set(FUNCTIONS) - {"cast"}


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", TYPES)
def test_opencl_computes_what_the_table_says(dtype: DType, lanes: int) -> None:
    wanted, got = arguments(dtype), arguments(dtype)
    run_kernel(kernel(dtype, lanes), (1,), wanted)
    run_opencl(kernel(dtype, lanes), (1,), got)
    for k, name in enumerate(names(dtype)):
        one, other = (a["out"][k * COUNT : (k + 1) * COUNT] for a in (got, wanted))
        tolerance = {"fast_exp": 1e-3}.get(name, 2e-6 if dtype == DType.F32 else 1e-12)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", TYPES)
def test_cuda_text_compiles(dtype: DType) -> None:
    require_nvrtc()
    assert compile_cuda(render(kernel(dtype, 4), "cuda"), "sm_80").cubin


@pytest.mark.parametrize("dtype", [DType.U8, DType.I8, DType.I16])
@pytest.mark.parametrize("lanes", [1, 4])
def test_opencl_finds_the_overload_of_a_narrow_integer(dtype: DType, lanes: int) -> None:
    """A literal and a guarded element are int in C, which no overload takes beside a narrower integer."""
    at = TX * lanes
    x = Mem("x", at, dtype, lanes)
    fns = ("max", "min", "fmax", "fmin")
    body = [Store("out", i32(k * COUNT) + at, call(fn, x, Const(3, dtype)), dtype) for k, fn in enumerate(fns)]
    guarded = Mem("x", at, dtype, lanes, lt(TX, i32(2)), 0)
    body.append(Store("out", i32(4 * COUNT) + at, call("max", guarded, Mem("y", at, dtype, lanes)), dtype))
    params = (BufferParam("x", dtype), BufferParam("y", dtype), BufferParam("out", dtype, True))
    args = arguments(dtype)
    values = args["x"]
    args["out"] = np.zeros(5 * COUNT, values.dtype)
    run_opencl(Kernel(f"k_clamp_{lanes}", params, (COUNT // lanes, 1), tuple(body)), (1,), args)
    seen = np.where(np.arange(COUNT) < 2 * lanes, values, 0)
    wanted = (np.maximum(values, 3), np.minimum(values, 3)) * 2 + (np.maximum(seen, args["y"]),)
    np.testing.assert_array_equal(args["out"].reshape(5, COUNT), wanted)


@pytest.mark.parametrize("lanes", [1, 4])
def test_opencl_orders_booleans(lanes: int) -> None:
    fns, at = ("max", "min", "fmax", "fmin", "lt", "le", "gt", "ge", "eq", "ne", "and", "or"), TX * lanes
    x, y = (Mem(name, at, DType.BOOL, lanes) for name in "xy")
    body = tuple(Store("out", i32(k * COUNT) + at, call(fn, x, y), DType.BOOL) for k, fn in enumerate(fns))
    params = (BufferParam("x", DType.BOOL), BufferParam("y", DType.BOOL), BufferParam("out", DType.BOOL, True))
    a, b = (np.arange(COUNT) // step % 2 == 1 for step in (1, 2))
    args = {"x": a, "y": b, "out": np.zeros(len(fns) * COUNT, np.bool_)}
    run_opencl(Kernel(f"k_order_{lanes}", params, (COUNT // lanes, 1), body), (1,), args)
    for fn, found in zip(fns, args["out"].reshape(-1, COUNT), strict=True):
        np.testing.assert_array_equal(found, FUNCTIONS[fn].evaluate(a, b), err_msg=fn)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", [DType.U8, DType.I8, DType.I16, DType.I32, DType.F32])
def test_opencl_takes_numbers_for_truths(dtype: DType, lanes: int) -> None:
    fns, at = ("and", "or", "not"), TX * lanes
    x, y = (Mem(name, at, dtype, lanes) for name in "xy")
    values = [cast(call(fn, *(x, y)[: FUNCTIONS[fn].arity]), dtype) for fn in fns]
    body = tuple(Store("out", i32(k * COUNT) + at, value, dtype) for k, value in enumerate(values))
    params = (BufferParam("x", dtype), BufferParam("y", dtype), BufferParam("out", dtype, True))
    a, b = (np.arange(COUNT) // step % 2 * 2 * step for step in (1, 2))
    kind = numpy_dtype(dtype)
    args = {"x": a.astype(kind), "y": b.astype(kind), "out": np.full(3 * COUNT, 9, kind)}
    run_opencl(Kernel(f"k_truths_{lanes}", params, (COUNT // lanes, 1), body), (1,), args)
    for fn, found in zip(fns, args["out"].reshape(-1, COUNT), strict=True):
        np.testing.assert_array_equal(found, FUNCTIONS[fn].evaluate(*(a, b)[: FUNCTIONS[fn].arity]), err_msg=fn)


@pytest.mark.parametrize("fn", ["isnan", "isinf"])
def test_an_integer_is_never_nan_or_infinite(fn: str) -> None:
    assert call(fn, Mem("x", TX, DType.I8, 4)) == Const(False, DType.BOOL, 4)


def test_extrema_keep_nan() -> None:
    body = tuple(
        Store("out", i32(k * COUNT) + TX, call(fn, Mem("x", TX, DType.F32), Mem("y", TX, DType.F32)), DType.F32)
        for k, fn in enumerate(("max", "min", "fmax", "fmin"))
    )
    params = (BufferParam("x", DType.F32), BufferParam("y", DType.F32), BufferParam("out", DType.F32, True))
    small = Kernel("k_extrema", params, (COUNT, 1), body)
    args = arguments(DType.F32)
    args["x"][1] = args["y"][2] = np.nan
    args["out"] = np.zeros(4 * COUNT, np.float32)
    run_opencl(small, (1,), args)
    out = args["out"].reshape(4, COUNT)
    assert np.isnan(out[:2, 1:3]).all()
    assert not np.isnan(out[2:]).any()
    np.testing.assert_array_equal(out[0, 3:], np.maximum(args["x"], args["y"])[3:])
