"""Small kernels that between them use every core statement, with arguments to run them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from emmy.ir.dtype import DType
from emmy.ir.expr import Lane, Mem, Pack, Splat, Var, both, call, cast, f32, i32, lt, select
from emmy.ir.kernel import (
    BX,
    BY,
    TID,
    TX,
    TY,
    Atomic,
    Barrier,
    BufferParam,
    Combine,
    Comment,
    For,
    Kernel,
    Let,
    RegArray,
    RegSet,
    ScalarParam,
    Shared,
    Store,
    View,
)
from emmy.ir.monoid import MONOIDS, instantiate
from emmy.ir.scalar import numpy_dtype, round_bf16

Args = dict[str, Any]
Sample = tuple[Kernel, tuple[int, ...], Args]


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def scalar_tile() -> Sample:
    """c[m, n] = a[m, k] @ b[k, n] through shared memory, vectors of four columns, every edge guarded."""
    m, n, k = 19, 24, 13
    tile_m, tile_n, tile_k, rows = 8, 16, 4, 2
    acc = RegArray("acc", DType.F32, (rows,), 4, 0.0)
    k0, r, kk = Var("k0"), Var("r"), Var("kk")
    row, col = BY * tile_m, BX * tile_n
    part, inside = Var("part"), i32(k)
    at_row, at_k = (TID + part * 16) // tile_k, TID % tile_k
    load_a = Mem("a", (row + at_row) * k + (k0 + at_k), DType.F32, 1,
                 both(lt(row + at_row, i32(m)), lt(k0 + at_k, inside)))  # fmt: skip
    b_row, b_col = TID // (tile_n // 4), TID % (tile_n // 4) * 4
    load_b = Mem("b", (k0 + b_row) * n + (col + b_col), DType.F32, 4,
                 both(lt(k0 + b_row, i32(k)), lt(col + b_col, i32(n))), 0.0, aligned=True)  # fmt: skip
    step = RegSet(acc.at(r), acc.at(r) + Splat(Mem("a_tile", (TY * rows + r) * tile_k + kk, DType.F32), 4) *
                  Mem("b_tile", kk * tile_n + TX * 4, DType.F32, 4, aligned=True))  # fmt: skip
    body = (
        acc,
        For("k0", i32(0), i32(k), i32(tile_k), (
            For("part", i32(0), i32(2), i32(1), (
                Store("a_tile", at_row * tile_k + at_k, load_a, DType.F32),
            ), "full"),
            Store("b_tile", b_row * tile_n + b_col, load_b, DType.F32, aligned=True),
            Barrier(),
            For("kk", i32(0), i32(tile_k), i32(1), (For("r", i32(0), i32(rows), i32(1), (step,), "full"),), "hint"),
            Barrier(),
        )),
        *(Store("c", (row + TY * rows + j) * n + (col + TX * 4), acc.at(j), DType.F32,
                both(lt(row + TY * rows + j, i32(m)), lt(col + TX * 4, i32(n))), aligned=True) for j in range(rows)),
    )  # fmt: skip
    params = (BufferParam("a", DType.F32), BufferParam("b", DType.F32), BufferParam("c", DType.F32, True))
    shared = (Shared("a_tile", DType.F32, tile_m * tile_k), Shared("b_tile", DType.F32, tile_k * tile_n))
    kernel = Kernel("k_scalar_tile", params, (4, 4), body, shared)
    a, b = rng().standard_normal((m, k), np.float32), rng().standard_normal((k, n), np.float32)
    return kernel, (2, 3), {"a": a, "b": b, "c": np.full((m, n), np.nan, np.float32)}


def row_sum(group: int = 64, monoid: str = "sum") -> Sample:
    """Rows of x reduced by ``group`` threads each, through registers and a combine, the length known at run time."""
    rows, length = 3, 150
    algebra = MONOIDS[monoid]
    dtypes = algebra.component_dtypes(DType.F32)
    identity = algebra.identity_values(DType.F32)
    i, n = Var("i"), Var("n")
    parts = [RegArray(f"part{k}", dtype, (), 1, identity[k]) for k, dtype in enumerate(dtypes)]
    value = Let("value", Mem("x", BX * n + i, DType.F32))
    lifted = instantiate(algebra, algebra.lift, {"x0": value.var, "i": cast(i, DType.I64)})
    env = {f"a{k}": part.at() for k, part in enumerate(parts)} | {f"b{k}": e for k, e in enumerate(lifted)}
    lets = [Let(f"next{k}", e) for k, e in enumerate(instantiate(algebra, algebra.combine, env))]
    updates = [RegSet(part.at(), let.var) for part, let in zip(parts, lets, strict=True)]
    body = (
        *parts,
        For("i", TID, n, i32(group), (value, *lets, *updates)),
        Combine(monoid, tuple(p.at() for p in parts), group, tuple(f"scratch{k}" for k in range(len(parts)))),
        *(Store(f"out{k}", BX * group + TID, p.at(), p.dtype) for k, p in enumerate(parts)),
    )
    params = (BufferParam("x", DType.F32), *(BufferParam(f"out{k}", d, True) for k, d in enumerate(dtypes)),
              ScalarParam("n"))  # fmt: skip
    shared = tuple(Shared(f"scratch{k}", d, group) for k, d in enumerate(dtypes))
    kernel = Kernel(f"k_row_{monoid}", params, (group, 1), body, shared)
    args: Args = {"x": rng().standard_normal((rows, length), np.float32), "n": length}
    args |= {f"out{k}": np.zeros((rows, group), numpy_dtype(d)) for k, d in enumerate(dtypes)}
    return kernel, (rows,), args


def storage(dtype: DType, lanes: int) -> Sample:
    """y = x + x and a plain copy of x, from and to ``dtype``; the last vector is guarded away."""
    count = 32
    at = TX * lanes
    guard = lt(TX, i32(count // lanes - 1))
    value = Let("value", Mem("x", at, dtype, lanes, guard, 1, aligned=True))
    twice = call("or", value.var, value.var) if dtype == DType.BOOL else cast(value.var, dtype.compute) + value.var
    body = (
        Comment("storage types"),
        value,
        Store("y", at, twice, dtype, aligned=True),
        Store("z", at, Mem("x", at, dtype, lanes, aligned=True), dtype, guard, aligned=True),
    )
    params = (BufferParam("x", dtype), BufferParam("y", dtype, True), BufferParam("z", dtype, True))
    kernel = Kernel(f"k_storage_{dtype.value}_{lanes}", params, (count // lanes, 1), body)
    kind = numpy_dtype(dtype)
    x = (rng().standard_normal(count) * 3).astype(kind)
    if dtype == DType.BF16:
        x = round_bf16(x)
    return kernel, (1,), {"x": x, "y": np.zeros(count, kind), "z": np.zeros(count, kind)}


def conversions() -> Sample:
    """Casts between types, selects on vectors, packs and lanes, a view, a share of a subexpression."""
    x = Let("v", Mem("x_block", TX * 4, DType.F32, 4))
    v = x.var
    shared = call("exp", v) * v
    masked = select(call("and", lt(v, Splat(f32(0.5), 4)), call("not", call("isnan", v))), shared, shared + shared)
    swapped = Pack((Lane(v, 3), Lane(v, 2), Lane(v, 1), Lane(v, 0)))
    rounded = cast(cast(v, DType.F16), DType.F32) + cast(cast(v, DType.BF16), DType.F32)
    ints = cast(v * Splat(f32(10.0), 4), DType.I32)
    thirds = call("floordiv", ints, Splat(i32(-3), 4))
    body = (
        View("x_block", "x", cast(BX, DType.I64) * 16, DType.F32),
        x,
        Store("out", BX * 16 + TX * 4, masked, DType.F32),
        Store("out", BX * 16 + TX * 4 + 32, swapped, DType.F32),
        Store("out", BX * 16 + TX * 4 + 64, rounded, DType.F32),
        Store("out", BX * 16 + TX * 4 + 96, cast(cast(ints, DType.I64), DType.F32), DType.F32),
        Store("whole", BX * 16 + TX * 4, select(lt(ints, Splat(i32(2), 4)), ints, thirds), DType.I32),
        Store("flag", BX * 16 + TX * 4, lt(v, Splat(f32(0.0), 4)), DType.BOOL),
    )  # fmt: skip
    params = (BufferParam("x", DType.F32), BufferParam("out", DType.F32, True), BufferParam("whole", DType.I32, True),
              BufferParam("flag", DType.BOOL, True))  # fmt: skip
    args = {"x": rng().standard_normal(32, np.float32), "out": np.zeros(128, np.float32),
            "whole": np.zeros(32, np.int32), "flag": np.zeros(32, np.bool_)}  # fmt: skip
    return Kernel("k_conversions", params, (4, 1), body), (2,), args


def atomics() -> Sample:
    """Every thread of four blocks adds to and extends the same few elements."""
    at = TX % 4
    value = Let("value", Mem("x", BX * 16 + TX, DType.F32))
    body = (
        value,
        Atomic("add", "total", at, cast(cast(value.var * f32(8.0), DType.I32), DType.F32), DType.F32),
        Atomic("max", "top", at, value.var, DType.F32, lt(TX, i32(12))),
        Atomic("add", "count", i32(0), i32(1), DType.I32),
    )
    params = (BufferParam("x", DType.F32), BufferParam("total", DType.F32, True), BufferParam("top", DType.F32, True),
              BufferParam("count", DType.I32, True))  # fmt: skip
    args = {"x": rng().standard_normal(64, np.float32), "total": np.zeros(4, np.float32),
            "top": np.full(4, -np.inf, np.float32), "count": np.zeros(1, np.int32)}  # fmt: skip
    return Kernel("k_atomics", params, (16, 1), body), (4,), args


SAMPLES: dict[str, Callable[[], Sample]] = {
    "scalar_tile": scalar_tile,
    "row_sum": row_sum,
    "row_argmax": lambda: row_sum(64, "argmax"),
    "row_welford": lambda: row_sum(128, "welford"),
    "row_online_softmax": lambda: row_sum(32, "online_softmax"),
    "conversions": conversions,
    "atomics": atomics,
    "storage_f16": lambda: storage(DType.F16, 8),
    "storage_f16_scalar": lambda: storage(DType.F16, 1),
    "storage_bf16": lambda: storage(DType.BF16, 4),
    "storage_bf16_scalar": lambda: storage(DType.BF16, 1),
    "storage_bool": lambda: storage(DType.BOOL, 4),
    "storage_bool_scalar": lambda: storage(DType.BOOL, 1),
    "storage_u8": lambda: storage(DType.U8, 4),
    "storage_i64": lambda: storage(DType.I64, 2),
    "storage_f64": lambda: storage(DType.F64, 2),
}
