"""From nest expressions to kernel expressions: where a value sits in memory, how wide it is read, and what guards it.

A nest expression is evaluated at kernel coordinates: ``env`` gives each axis a scalar index expression. One axis may be
vectorised: its lanes are ``env[axis] + 0 … lanes - 1``, and a load whose offset has stride one along it becomes one
wide access, one with stride zero a broadcast, any other a gather of scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from emmy.ir.dtype import DType
from emmy.ir.expr import (
    Call,
    Const,
    Expr,
    Load,
    Mem,
    Pack,
    Var,
    add,
    both,
    call,
    cast,
    free_vars,
    i32,
    is_const,
    mul,
    substitute,
)
from emmy.ir.kernel import View
from emmy.ir.nest import Axis, Region, Tensor

Reader = Callable[[Load, "Point"], Expr | None]


@dataclass(frozen=True, slots=True)
class Point:
    """Where an expression is evaluated: an index an axis, the vectorised axis if any, and a guard on memory reads.

    tail: the vector may cross the end of its axis (the extent): lanes are then read one by one, each guarded.
    local: the part of each index that varies inside the block; loads with a view use it with the view's base.
    """

    env: Mapping[str, Expr]
    axis: str = ""
    lanes: int = 1
    guard: Expr | None = None
    tail: Expr | None = None
    local: Mapping[str, Expr] | None = None

    def lane(self, number: int) -> Point:
        """The scalar point of one lane."""
        if not self.axis:
            return self
        index = self.env[self.axis] + number
        guard = both(self.guard, call("lt", index, self.tail)) if self.tail is not None else self.guard
        local = None if self.local is None else {**self.local, self.axis: self.local[self.axis] + number}
        return Point({**self.env, self.axis: index}, guard=guard, local=local)

    def scalar(self) -> Point:
        """The same point without its vector axis (for values that do not depend on it)."""
        return Point(self.env, guard=self.guard, local=self.local)

    def guarded(self, guard: Expr | None) -> Point:
        """The same point with one more condition on its memory reads."""
        return replace(self, guard=both(self.guard, guard))


def affine(offset: Expr, names: frozenset[str]) -> tuple[Expr, dict[str, Expr]] | None:
    """``offset`` as (rest, coefficient of each name), or None where it is not affine in them.

    Coefficients and the rest are free of ``names``; names with no coefficient do not occur.
    """
    if not (free_vars(offset) & names):
        return offset, {}
    match offset:
        case Var(name):
            return i32(0), {name: i32(1)}
        case Call("add", (a, b)):
            left, right = affine(a, names), affine(b, names)
            if left is None or right is None:
                return None
            terms = dict(left[1])
            for name, coefficient in right[1].items():
                terms[name] = add(terms[name], coefficient) if name in terms else coefficient
            return add(left[0], right[0]), terms
        case Call("sub", (a, b)):
            return affine(add(a, mul(b, i32(-1))), names)
        case Call("cast", (a,), dtype) if dtype in (DType.I32, DType.I64):
            return affine(a, names)
        case Call("mul", (a, b)):
            if free_vars(a) & names:
                a, b = b, a
            if free_vars(a) & names:
                return None
            inner = affine(b, names)
            if inner is None:
                return None
            return mul(inner[0], a), {name: mul(c, a) for name, c in inner[1].items()}
    return None


def flat_offset(tensor: Tensor, index: tuple[Expr, ...]) -> Expr:
    """Element offset of logical coordinates, in the tensor's own strides."""
    total: Expr = i32(0)
    for coordinate, stride in zip(index, tensor.element_strides(), strict=True):
        total = add(total, mul(coordinate, stride))
    return total


def wide(expr: Expr) -> Expr:
    """``expr`` computed in int64: leaves are widened, so that no product overflows."""
    from emmy.ir.expr import transform

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Var) and node.dtype == DType.I32:
            return cast(node, DType.I64)
        if isinstance(node, Const) and node.dtype == DType.I32:
            return Const(node.value, DType.I64)
        return None

    return transform(expr, rule)


@dataclass(slots=True)
class Memory:
    """The tensors a kernel reads and writes, by name, with the views its lowering has declared.

    extents: constant extents of axes, to prove that an index stays inside its tensor.
    """

    region: Region
    tensors: dict[str, Tensor] = field(default_factory=dict)
    extents: dict[str, Expr] = field(default_factory=dict)
    big: bool = False
    views: dict[Load, tuple[str, dict[str, Expr]]] = field(default_factory=dict)

    @classmethod
    def of(cls, region: Region, extra: tuple[Tensor, ...] = ()) -> Memory:
        tensors = {t.name: t for t in region.inputs}
        tensors |= {o.tensor.name: o.tensor for o in region.outputs}
        tensors |= {t.name: t for t in extra}
        extents: dict[str, Expr] = {}
        for comp in region.comps:
            for axis in (*comp.axes, *comp.reduce, *comp.carried):
                extents[axis.name] = axis.extent
        memory = cls(region, tensors, extents)
        memory.big = any(memory._elements(t) >= 2**31 for t in tensors.values())
        return memory

    def _elements(self, tensor: Tensor) -> int:
        total = 1
        for extent in tensor.shape:
            total *= int(extent.value) if isinstance(extent, Const) else 1
        return total

    def offset(self, tensor: str, index: tuple[Expr, ...], env: Mapping[str, Expr]) -> Expr:
        """Element offset at kernel coordinates: int32, or int64 where the tensor has 2³¹ elements or more."""
        flat = flat_offset(self.tensors[tensor], index)
        placed = substitute(flat, env)
        return wide(placed) if self.big else placed

    def view(self, name: str, load: Load, block: Mapping[str, Expr]) -> View | None:
        """Declares a pointer to where ``block`` (the block's part of each axis index) puts ``load``.

        Later loads at points with a ``local`` part are read from it by 32-bit offsets. None (and no view) where the
        offset is not affine in the axes of ``block``.
        """
        if load.tensor not in self.tensors or gathers(load):
            return None
        tensor = self.tensors[load.tensor]
        parts = affine(flat_offset(tensor, load.index), frozenset(block))
        if parts is None:
            return None
        rest, coefficients = parts
        base: Expr = wide(rest)
        for axis, coefficient in coefficients.items():
            base = add(base, mul(wide(coefficient), wide(block[axis])))
        self.views[load] = (name, coefficients)
        return View(name, tensor.name, base, tensor.dtype)

    def stays_inside(self, load: Load) -> bool:
        """Whether every coordinate provably lies inside the tensor for all axis values."""
        tensor = self.tensors.get(load.tensor)
        if tensor is None:
            return True
        for coordinate, extent in zip(load.index, tensor.shape, strict=True):
            if isinstance(coordinate, Var) and self.extents.get(coordinate.name) == extent:
                continue
            bound = upper_bound(coordinate, self.extents)
            if bound is None or not isinstance(extent, Const) or bound >= extent.value or not _non_negative(coordinate):
                return False
        return True

    def value(self, expr: Expr, point: Point, read: Reader | None = None) -> Expr:
        """``expr`` at ``point``, in compute types. ``read`` supplies loads held in registers (None: from memory)."""
        return _Evaluator(self, read).run(expr, point)

    def mem(self, load: Load, point: Point, lanes: int = 1) -> Mem:
        """``lanes`` consecutive elements from a scalar point, in the storage type."""
        tensor = self.tensors[load.tensor]
        fill = False if tensor.dtype == DType.BOOL else 0
        if point.local is not None and load in self.views:
            name, coefficients = self.views[load]
            local: Expr = i32(0)
            for axis, coefficient in coefficients.items():
                local = add(local, mul(point.local[axis], coefficient))
            return Mem(name, local, tensor.dtype, lanes, point.guard, fill)
        flat = flat_offset(tensor, tuple(self.value(i, point) for i in load.index))
        return Mem(tensor.name, wide(flat) if self.big else flat, tensor.dtype, lanes, point.guard, fill)

    def load(self, load: Load, point: Point) -> Expr:
        """A tensor element or vector from memory, converted to the compute type."""
        compute = self.tensors[load.tensor].dtype.compute
        if not point.axis:
            return cast(self.mem(load, point), compute)
        stride = self.stride(load, point.axis)
        if stride is not None and is_const(stride, 0):
            return cast(self.mem(load, point.scalar()), compute)
        if stride is not None and is_const(stride, 1) and point.tail is None:
            return cast(self.mem(load, point.scalar(), point.lanes), compute)
        return cast(Pack(tuple(self.mem(load, point.lane(k)) for k in range(point.lanes))), compute)

    def stride(self, load: Load, axis: str) -> Expr | None:
        """Elements between neighbours along ``axis``; None where the offset is not affine in it."""
        flat = flat_offset(self.tensors[load.tensor], load.index)
        if gathers(load):
            inner = any(axis in free_vars(index) for index in load.index)
            if inner:
                parts = affine(flat, frozenset((axis,)))
                if parts is None or any(isinstance(n, Load) and axis in free_vars(n) for n in _walk(flat)):
                    return None
                return parts[1].get(axis, i32(0))
            return i32(0)
        parts = affine(flat, frozenset((axis,)))
        return None if parts is None else parts[1].get(axis, i32(0))


def gathers(load: Load) -> bool:
    """Whether a coordinate of ``load`` is itself read from memory."""
    return any(isinstance(node, Load) for index in load.index for node in _walk(index))


def _walk(expr: Expr) -> list[Expr]:
    from emmy.ir.expr import walk

    return list(walk(expr))


class _Evaluator:
    """One evaluation: memoised by (node, guard), so that shared subexpressions stay shared."""

    def __init__(self, memory: Memory, read: Reader | None) -> None:
        self.memory, self.read = memory, read
        self.done: dict[tuple[int, int], Expr] = {}
        self.keep: list[object] = []

    def run(self, expr: Expr, point: Point) -> Expr:
        key = (id(expr), id(point))
        if key not in self.done:
            self.keep += [expr, point]
            self.done[key] = self._run(expr, point)
        return self.done[key]

    def _run(self, expr: Expr, point: Point) -> Expr:
        match expr:
            case Const():
                return expr
            case Var(name):
                value = point.env.get(name, expr)
                if name == point.axis:
                    return Pack(tuple(value + k for k in range(point.lanes)))
                return value
            case Load():
                if self.read is not None:
                    held = self.read(expr, point)
                    if held is not None:
                        return held
                return self.memory.load(expr, point)
            case Call("select", (cond, yes, no)) if self._needs_guard(yes) or self._needs_guard(no):
                return self._guarded_select(cond, yes, no, point)
            case Call("cast", (inner,), dtype):
                return cast(cast(self.run(inner, point), dtype), dtype.compute)
            case Call(fn, args):
                return call(fn, *(self.run(arg, point) for arg in args))
        raise TypeError(f"{type(expr).__name__} does not occur in a nest expression")

    def _needs_guard(self, expr: Expr) -> bool:
        return any(isinstance(n, Load) and not self.memory.stays_inside(n) for n in _walk(expr))

    def _guarded_select(self, cond: Expr, yes: Expr, no: Expr, point: Point) -> Expr:
        if point.axis and point.axis in (free_vars(cond) | free_vars(yes) | free_vars(no)):
            return Pack(tuple(self._guarded_select(cond, yes, no, point.lane(k)) for k in range(point.lanes)))
        at = point.scalar() if point.axis else point
        test = self.run(cond, at)
        yes_value = self.run(yes, at.guarded(test))
        return call("select", test, yes_value, self.run(no, at.guarded(call("not", test))))


def upper_bound(expr: Expr, extents: Mapping[str, Expr]) -> int | None:
    """The largest value of a non-negative index expression over constant extents, or None where it is not known."""
    match expr:
        case Const(value):
            return int(value)
        case Var(name):
            extent = extents.get(name)
            return int(extent.value) - 1 if isinstance(extent, Const) else None
        case Call("add", (a, b)):
            left, right = upper_bound(a, extents), upper_bound(b, extents)
            return None if left is None or right is None else left + right
        case Call("mul", (a, b)):
            left, right = upper_bound(a, extents), upper_bound(b, extents)
            return None if left is None or right is None else left * right
        case Call("floordiv", (a, Const(c))) if c > 0:
            left = upper_bound(a, extents)
            return None if left is None else left // int(c)
        case Call("mod", (_, Const(c))) if c > 0:
            return int(c) - 1
        case Call("cast", (a,)):
            return upper_bound(a, extents)
    return None


def _non_negative(expr: Expr) -> bool:
    match expr:
        case Const(value):
            return value >= 0
        case Var():
            return True
        case Call("add" | "mul" | "floordiv", args):
            return all(_non_negative(a) for a in args)
        case Call("mod", (_, Const(c))):
            return c > 0
        case Call("cast", (a,)):
            return _non_negative(a)
    return False


def axis_size(axis: Axis) -> int | None:
    """The extent where it is a constant, else None (symbolic)."""
    return int(axis.extent.value) if isinstance(axis.extent, Const) else None
