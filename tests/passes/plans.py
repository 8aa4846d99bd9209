"""Small regions written by hand, and ways to run a plan: the interpreter of kernel IR, and PoCL."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from emmy.codegen import render
from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Load, Var, call, cast, evaluate_int, f32, i32
from emmy.ir.interp import run_kernel
from emmy.ir.kernel import BufferParam
from emmy.ir.kernel_verify import verify as verify_kernel
from emmy.ir.nest import Axis, Comp, Output, Region, Symbol, Tensor, verify
from emmy.ir.nest_interp import run_region
from emmy.ir.plan import Memset, Plan
from emmy.ir.scalar import numpy_dtype, round_bf16

Size = int | str
"""An extent; a name is a size known at run time."""


def extent(size: Size) -> Expr:
    return Var(size) if isinstance(size, str) else i32(size)


def symbols(*sizes: Size) -> tuple[Symbol, ...]:
    return tuple(Symbol(s, 13) for s in sizes if isinstance(s, str))


class Rows:
    """Building blocks of regions over rows ``i`` and columns ``k`` of inputs in one storage type."""

    def __init__(self, rows: Size, columns: Size, dtype: DType = DType.F32) -> None:
        self.rows, self.columns, self.dtype = rows, columns, dtype
        self.i, self.k = Axis("i0", extent(rows)), Axis("i1", extent(columns))
        self.shape = (extent(rows), extent(columns))
        self.compute = dtype.compute

    def x(self, name: str = "x") -> Expr:
        return cast(Load(name, (self.i.var, self.k.var), self.dtype), self.compute)

    def row(self, name: str) -> Expr:
        return Load(name, (self.i.var,), self.compute)

    def column(self, name: str) -> Expr:
        return cast(Load(name, (self.k.var,), self.dtype), self.compute)

    def reduce(self, name: str, monoid: str, value: Expr, dtype: DType | None = None) -> Comp:
        return Comp(name, (self.i,), (value,), dtype or self.compute, (self.k,), monoid)

    def map(self, name: str, value: Expr, *, row: bool = False) -> Comp:
        return Comp(name, (self.i,) if row else (self.i, self.k), (value,), value.dtype)

    def count(self) -> Expr:
        return cast(extent(self.columns), self.compute)

    def region(self, name: str, comps: list[Comp], outputs: list[tuple[str, str, DType | None]], inputs: str = "x",
               weights: str = "") -> Region:  # fmt: skip
        """``outputs``: (tensor name, source, storage type)."""
        tensors = [Tensor(n, self.shape, self.dtype) for n in inputs.split()]
        tensors += [Tensor(n, (self.shape[1],), self.dtype) for n in weights.split()]
        outs = []
        for tensor, source, dtype in outputs:
            comp = next(c for c in comps if c.name == source.split(".")[0])
            shape = tuple(a.extent for a in comp.axes)
            outs.append(Output(Tensor(tensor, shape, dtype or self.dtype), source))
        region = Region(name, symbols(self.rows, self.columns), tuple(tensors), tuple(comps), tuple(outs))
        verify(region)
        return region


def softmax(rows: Size, columns: Size, dtype: DType = DType.F32) -> Region:
    r = Rows(rows, columns, dtype)
    value = call("div", call("exp", r.x() - r.row("ml")), r.row("ml.1"))
    return r.region("softmax", [r.reduce("ml", "online_softmax", r.x()), r.map("y", value)], [("out", "y", None)])


def rms_norm(rows: Size, columns: Size, dtype: DType = DType.F32) -> Region:
    r = Rows(rows, columns, dtype)
    scale = call("rsqrt", call("div", r.row("ss"), r.count()) + cast(f32(1e-6), r.compute))
    comps = [r.reduce("ss", "sum", r.x() * r.x()), r.map("y", r.x() * scale * r.column("w"))]
    return r.region("rms_norm", comps, [("out", "y", None)], weights="w")


def layer_norm(rows: Size, columns: Size, dtype: DType = DType.F32) -> Region:
    r = Rows(rows, columns, dtype)
    scale = call("rsqrt", call("div", r.row("s.1"), r.row("s.2")) + cast(f32(1e-5), r.compute))
    value = (r.x() - r.row("s")) * scale * r.column("w") + r.column("b")
    return r.region(
        "layer_norm", [r.reduce("s", "welford", r.x()), r.map("y", value)], [("out", "y", None)], weights="w b"
    )


def row_reduce(rows: Size, columns: Size, monoid: str = "sum", dtype: DType = DType.F32) -> Region:
    r = Rows(rows, columns, dtype)
    out = {"any": DType.BOOL, "all": DType.BOOL}.get(monoid, dtype)
    value = call("gt", r.x(), cast(i32(0), r.compute)) if out == DType.BOOL else r.x()
    kind = DType.BOOL if out == DType.BOOL else r.compute
    outputs: list[tuple[str, str, DType | None]] = [("out", "s", out)]
    if monoid in ("argmax", "argmin"):
        outputs = [("out", "s.1", DType.I64)]
    return r.region(f"row_{monoid}", [r.reduce("s", monoid, value, kind)], outputs)


def mean_and_max(rows: Size, columns: Size) -> Region:
    """Two reductions of the same row, a row map, and a reduction that needs the first."""
    r = Rows(rows, columns)
    mean = call("div", r.row("s"), r.count())
    comps = [
        r.reduce("s", "sum", r.x()),
        r.reduce("m", "max", r.x() * cast(f32(2.0), r.compute)),
        r.map("mean", mean, row=True),
        r.reduce("d", "max", call("abs", r.x() - mean)),
        r.map("y", (r.x() - mean) * r.row("m") + r.row("d")),
    ]
    outputs: list[tuple[str, str, DType | None]] = [("a", "mean", None), ("b", "d", None), ("c", "y", None)]
    return r.region("mean_and_max", comps, outputs)


def silu_mul(rows: Size, columns: Size, dtype: DType = DType.F32) -> Region:
    r = Rows(rows, columns, dtype)
    one = cast(f32(1.0), r.compute)
    value = call("div", r.x(), one + call("exp", call("neg", r.x()))) * r.x("g")
    return r.region("silu_mul", [r.map("y", value)], [("out", "y", None)], inputs="x g")


def bias(rows: Size, columns: Size, dtype: DType = DType.F32) -> Region:
    r = Rows(rows, columns, dtype)
    return r.region("bias", [r.map("y", r.x() + r.column("b"))], [("out", "y", None)], weights="b")


def column_softmax(rows: Size, columns: Size) -> Region:
    """A softmax over the leading axis: the rows are what lies side by side."""
    k, i = Axis("k0", extent(rows)), Axis("i0", extent(columns))
    x = Load("x", (k.var, i.var), DType.F32)
    m, total = Load("ml", (i.var,), DType.F32), Load("ml.1", (i.var,), DType.F32)
    comps = (
        Comp("ml", (i,), (x,), DType.F32, (k,), "online_softmax"),
        Comp("y", (k, i), (call("div", call("exp", x - m), total),), DType.F32),
    )
    shape = (extent(rows), extent(columns))
    region = Region("column_softmax", symbols(rows, columns), (Tensor("x", shape, DType.F32),), comps,
                    (Output(Tensor("out", shape, DType.F32), "y"),))  # fmt: skip
    verify(region)
    return region


def column_sum(rows: Size, columns: Size, dtype: DType = DType.F32) -> Region:
    """A sum over the leading axis."""
    k, i = Axis("k0", extent(rows)), Axis("i0", extent(columns))
    x = cast(Load("x", (k.var, i.var), dtype), dtype.compute)
    region = Region(
        "column_sum", symbols(rows, columns), (Tensor("x", (extent(rows), extent(columns)), dtype),),
        (Comp("s", (i,), (x,), dtype.compute, (k,), "sum"),),
        (Output(Tensor("out", (extent(columns),), dtype), "s"),),
    )  # fmt: skip
    verify(region)
    return region


# ------------------------------------------------------------------------------------------------------- running


def random_inputs(region: Region, sizes: Mapping[str, int], seed: int = 7) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out = {}
    for tensor in region.inputs:
        shape = [evaluate_int(e, sizes) for e in tensor.shape]
        if tensor.dtype.is_float:
            values = rng.standard_normal(shape).astype(numpy_dtype(tensor.dtype))
            out[tensor.name] = round_bf16(values) if tensor.dtype == DType.BF16 else values
        elif tensor.dtype == DType.BOOL:
            out[tensor.name] = rng.random(shape) < 0.5
        else:
            out[tensor.name] = rng.integers(-9 if tensor.dtype != DType.U8 else 0, 10, shape).astype(
                numpy_dtype(tensor.dtype)
            )
    return out


def _buffers(plan: Plan, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Flat arrays of everything the plan touches; outputs and workspaces start as NaN, or as 0x55 bytes."""
    found = {name: np.ascontiguousarray(a).ravel() for name, a in inputs.items()}
    made = [(t.name, t.dtype, t.elements()) for t in plan.outputs] + [
        (w.name, w.dtype, w.elements) for w in plan.workspaces
    ]
    for name, dtype, elements in made:
        array = np.empty(evaluate_int(elements, sizes), numpy_dtype(dtype))
        array.view(np.uint8).fill(0 if dtype == DType.BOOL else 0x55)
        if dtype.is_float:
            array.fill(np.nan)
        found[name] = array
    return found


def _outputs(plan: Plan, buffers: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    return {t.name: buffers[t.name].reshape([evaluate_int(e, sizes) for e in t.shape]) for t in plan.outputs}


def interpret(plan: Plan, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Runs a plan in the interpreter of kernel IR."""
    buffers = _buffers(plan, inputs, sizes)
    for step in plan.steps:
        if isinstance(step, Memset):
            buffers[step.buffer][:] = step.value
            continue
        verify_kernel(step.kernel)
        args = {
            p.name: buffers[a] if a in buffers else sizes[a] for p, a in zip(step.kernel.params, step.args, strict=True)
        }
        run_kernel(step.kernel, plan.grid(step, sizes), args)
    return _outputs(plan, buffers, sizes)


@cache
def _pocl() -> Any:
    from emmy.device.opencl import prepare_environment

    prepare_environment()
    import pyopencl as cl

    from emmy.device.opencl import describe, pick_device

    device = pick_device(cl)
    context = cl.Context([device])
    return cl, cl.CommandQueue(context), describe(cl, device)


def pocl_capabilities() -> Any:
    return _pocl()[2]


def on_pocl(plan: Plan, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Runs a plan on the OpenCL device."""
    cl, queue, _ = _pocl()
    arrays = _buffers(plan, inputs, sizes)
    buffers = {}
    kinds = {t.name: t.dtype for t in (*plan.inputs, *plan.outputs)} | {w.name: w.dtype for w in plan.workspaces}
    for name, array in arrays.items():
        raw = _stored(array, kinds[name])
        buffers[name] = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, max(raw.nbytes, 64))
        if raw.nbytes:
            cl.enqueue_copy(queue, buffers[name], raw)
    for step in plan.steps:
        if isinstance(step, Memset):
            arrays[step.buffer][:] = step.value
            cl.enqueue_copy(queue, buffers[step.buffer], _stored(arrays[step.buffer], kinds[step.buffer]))
            continue
        grid = plan.grid(step, sizes)
        if 0 in grid:
            continue
        program = cl.Program(queue.context, render(step.kernel, "opencl")).build()
        kernel = cl.Kernel(program, step.kernel.name)
        args = [buffers[a] if isinstance(p, BufferParam) else np.int32(sizes[a]) for p, a in
                zip(step.kernel.params, step.args, strict=True)]  # fmt: skip
        block = (*step.kernel.block, 1)
        kernel(queue, tuple(g * b for g, b in zip(grid, block, strict=True)), block, *args)
    for tensor in plan.outputs:
        raw = _stored(arrays[tensor.name], tensor.dtype)
        if raw.nbytes:
            cl.enqueue_copy(queue, raw, buffers[tensor.name])
            arrays[tensor.name] = _loaded(raw, tensor.dtype)
    queue.finish()
    return _outputs(plan, arrays, sizes)


def _stored(array: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype == DType.BF16:
        return (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(array.astype(np.uint8) if dtype == DType.BOOL else array)


def _loaded(raw: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype == DType.BF16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(bool) if dtype == DType.BOOL else raw


TOLERANCE = {DType.F64: 1e-12, DType.F32: 2e-5, DType.F16: 2e-3, DType.BF16: 2e-2}


def assert_right(plan: Plan, region: Region, sizes: Mapping[str, int] | None = None, run: Any = interpret) -> None:
    """The plan's outputs equal the oracle's (float64 arithmetic) at ``sizes``."""
    sizes = {**region.hints(), **(sizes or {})}
    inputs = random_inputs(region, sizes)
    got = run(plan, inputs, sizes)
    want = run_region(region, inputs, sizes, np.float64)
    for out in region.outputs:
        name, dtype = out.tensor.name, out.tensor.dtype
        if not dtype.is_float:
            np.testing.assert_array_equal(got[name], want[name], err_msg=plan.knobs)
            continue
        tolerance = TOLERANCE[dtype]
        scale = max(1.0, float(np.max(np.abs(want[name][np.isfinite(want[name])]), initial=0.0)))
        np.testing.assert_allclose(
            got[name].astype(np.float64), want[name], rtol=tolerance, atol=tolerance * scale, err_msg=plan.knobs
        )
