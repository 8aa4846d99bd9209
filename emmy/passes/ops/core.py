"""What the operation table is made of: rows, the values that rows build from, and the samples that tests run.

A row turns one graph node into computations. Its operands are ``Val``s: a shape, a type and a function from coordinates
to the expression of that element. A view only changes the function, so views disappear into the loads of whoever reads
them. Element expressions are in the compute type (float32 for the 16-bit floats).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from emmy.errors import UnsupportedOp
from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Load, Number, cast, i32
from emmy.ir.graph import Node
from emmy.ir.nest import Axis, Comp, Tensor
from emmy.ir.scalar import round_bf16
from emmy.ir.simplify import Simplifier

Shape = tuple[Expr, ...]
Coords = tuple[Expr, ...]
ONE = i32(1)
ZERO = i32(0)


@dataclass(frozen=True, slots=True)
class Val:
    """A tensor while it is lowered.

    dtype: the type torch reports. at: coordinates → expression in ``dtype.compute``.
    source: the computation (``name`` or ``name.k``) that holds exactly these elements, None for a view of something.
    """

    shape: Shape
    dtype: DType
    at: Callable[[Coords], Expr]
    source: str | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def view(self, shape: Shape, coords: Callable[[Coords], Coords]) -> Val:
        """The tensor of ``shape`` whose element at ``c`` is this tensor's at ``coords(c)``."""
        return Val(tuple(shape), self.dtype, lambda c: self.at(tuple(coords(c))))

    def over(self, shape: Shape) -> Val:
        """Broadcast to ``shape``, aligned at the last axis."""
        skip = len(shape) - self.rank
        stretched = tuple(own == ONE and out != ONE for own, out in zip(self.shape, shape[skip:], strict=True))
        if skip == 0 and not any(stretched):
            return self
        return self.view(shape, lambda c: tuple(ZERO if s else i for i, s in zip(c[skip:], stretched, strict=True)))


def const(value: Number, dtype: DType) -> Const:
    """A constant of ``dtype``, the number converted to its kind."""
    if dtype.is_float:
        return Const(float(value), dtype)
    return Const(bool(value) if dtype == DType.BOOL else int(value), dtype)


def convert(value: Expr, dtype: DType) -> Expr:
    """``value`` in the compute type of ``dtype``; no rounding to a 16-bit float."""
    return cast(value, dtype.compute)


def rounded(value: Expr, dtype: DType) -> Expr:
    """``value`` as a tensor of ``dtype`` would hold it, in the compute type (a 16-bit float: down and up again)."""
    if isinstance(value, Const) and dtype in (DType.F16, DType.BF16):
        with np.errstate(over="ignore"):
            held = round_bf16(np.float32(value.value)).item() if dtype == DType.BF16 else np.float16(value.value)
        return Const(float(held), dtype.compute)
    return cast(cast(value, dtype), dtype.compute)


def promote(operands: Iterable[Val | Number | Expr]) -> DType:
    """torch's result type: the strongest operand's kind; tensors decide the size before 0-d ones and numbers."""
    ranked: list[tuple[int, int, DType]] = []
    for operand in operands:
        if isinstance(operand, Val):
            ranked.append((_kind(operand.dtype), 2 if operand.rank else 1, operand.dtype))
        elif isinstance(operand, bool):
            ranked.append((0, 0, DType.BOOL))
        elif isinstance(operand, int | Expr):
            ranked.append((1, 0, DType.I64))
        else:
            ranked.append((2, 0, DType.F32))
    kind = max(k for k, _, _ in ranked)
    strongest = [(level, dtype) for k, level, dtype in ranked if k == kind]
    # a weaker operand of a higher kind decides the kind, not the size: int tensor with a float number is float32
    level = max(level for level, _ in strongest)
    dtypes = [dtype for own, dtype in strongest if own == level]
    out = dtypes[0]
    for dtype in dtypes[1:]:
        out = _join(out, dtype)
    return out


def _kind(dtype: DType) -> int:
    return 2 if dtype.is_float else 1 if dtype.is_int else 0


def _join(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if {a, b} == {DType.F16, DType.BF16}:
        return DType.F32
    if DType.U8 in (a, b):
        other = b if a == DType.U8 else a
        return DType.I16 if other == DType.I8 else other
    order = (DType.I8, DType.I16, DType.I32, DType.I64, DType.F16, DType.BF16, DType.F32, DType.F64)
    return max(a, b, key=order.index)


# ------------------------------------------------------------------------------------------------------- builder


class Builder:
    """Collects computations while the nodes of a graph are lowered one by one."""

    def __init__(self, inputs: Iterable[Tensor], taken: Iterable[str] = ()) -> None:
        self.comps: list[Comp] = []
        self._names = set(taken) | {tensor.name for tensor in inputs}
        self.node: Node | None = None

    @property
    def out(self) -> Tensor:
        """The current node's first result."""
        assert self.node is not None
        return self.node.results[0]

    def refuse(self, why: str) -> UnsupportedOp:
        """The error for an argument of the current node that no row covers."""
        assert self.node is not None
        return UnsupportedOp(self.node.op, self.node.where, hint=why)

    def map(self, shape: Shape, dtype: DType, element: Callable[[Coords], Expr], tag: str = "") -> Val:
        """A computation whose element at ``c`` is ``element(c)``; ``tag`` names a helper of the node's result."""
        axes = _axes("i", shape)
        value = element(tuple(axis.var for axis in axes))
        return self._emit(tag, axes, (), None, (value,), dtype)[0]

    def reduce(
        self,
        shape: Shape,
        over: Shape,
        monoid: str,
        dtype: DType,
        element: Callable[[Coords, Coords], Expr | tuple[Expr, ...]],
        tag: str = "",
    ) -> tuple[Val, ...]:
        """Components of ``monoid`` over the axes ``over`` of ``element(coords, reduce coords)``."""
        axes, reduce = _axes("i", shape), _axes("k", over)
        value = element(tuple(axis.var for axis in axes), tuple(axis.var for axis in reduce))
        return self._emit(tag, axes, reduce, monoid, value if isinstance(value, tuple) else (value,), dtype)

    def _emit(
        self,
        tag: str,
        axes: tuple[Axis, ...],
        reduce: tuple[Axis, ...],
        monoid: str | None,
        body: tuple[Expr, ...],
        dtype: DType,
    ) -> tuple[Val, ...]:
        assert self.node is not None
        name = self._fresh(self.node.name + (f"_{tag}" if tag else ""))
        simplifier = Simplifier({axis.name: axis.extent for axis in (*axes, *reduce)})
        comp = Comp(
            name,
            axes,
            tuple(simplifier.body(cast(value, dtype.compute)) for value in body),
            dtype,
            reduce,
            monoid,
            origin=(short_name(self.node.op),),
        )
        self.comps.append(comp)
        shape = tuple(axis.extent for axis in axes)
        if comp.is_map:
            return (_loaded(name, shape, dtype, dtype.compute),)
        kinds = comp.algebra().component_dtypes(dtype)
        return tuple(
            _loaded(f"{name}.{k}" if k else name, shape, kind if kind == DType.I64 else dtype, kind)
            for k, kind in enumerate(kinds)
        )

    def _fresh(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self._names:
            count += 1
            candidate = f"{name}_{count}"
        self._names.add(candidate)
        return candidate


def _loaded(name: str, shape: Shape, dtype: DType, held: DType) -> Val:
    return Val(shape, dtype, lambda c: Load(name, c, held), source=name)


def _axes(prefix: str, shape: Shape) -> tuple[Axis, ...]:
    return tuple(Axis(f"{prefix}{n}", extent) for n, extent in enumerate(shape))


def short_name(op: str) -> str:
    """``aten._softmax.default`` → ``softmax``; scaled_dot_product_attention is ``sdpa``."""
    name = op.split(".")[1].lstrip("_")
    return "sdpa" if name == "scaled_dot_product_attention" else name


# ------------------------------------------------------------------------------------------------------ the table


@dataclass(frozen=True, slots=True)
class T:
    """A tensor argument of a sample: shape, type (None: the type under test), range of its values."""

    shape: tuple[int, ...]
    dtype: DType | None = None
    low: float = -2.0
    high: float = 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A call to test a row with. ``dtypes``: the types that tensors without one take in turn."""

    args: tuple[tuple[str, Any], ...]
    dtypes: tuple[DType, ...]


FLOATS = (DType.F32, DType.F16, DType.BF16, DType.F64)
INTS = (DType.I64, DType.I32)
SINGLE = (DType.F32,)


def sample(*dtypes: Any, **args: Any) -> Sample:
    """A sample; types come singly or in (nested) groups and default to all floats. ``x`` stands for ``self``."""
    renamed = tuple(("self" if name == "x" else name, value) for name, value in args.items())
    return Sample(renamed, tuple(_flat(dtypes)) or FLOATS)


def _flat(dtypes: Any) -> list[DType]:
    return [dtypes] if isinstance(dtypes, DType) else [dtype for item in dtypes for dtype in _flat(item)]


@dataclass(frozen=True, slots=True)
class Op:
    """A row of the operation table.

    name: ATen name with overload. kind: pointwise, reduction, contraction, index (views and moves), creation,
    composite (several computations: norms, softmax, attention).
    build: called as ``build(builder, **bound arguments)`` with tensors as Vals; returns a Val or a tuple of them.
    """

    name: str
    kind: str
    build: Callable[..., Val | tuple[Val, ...]]
    samples: tuple[Sample, ...] = ()


OPS: dict[str, Op] = {}


def row(name: str, kind: str, build: Callable[..., Val | tuple[Val, ...]], samples: Iterable[Sample]) -> None:
    """Adds a row. Raises ValueError when the name is taken or there is no sample to test it with."""
    row_samples = tuple(samples)
    if name in OPS:
        raise ValueError(f"{name} has two rows")
    if not row_samples:
        raise ValueError(f"{name} has no sample")
    OPS[name] = Op(name, kind, build, row_samples)


# ------------------------------------------------------------------------------------------------- shape helpers


def dims(dim: Any, rank: int) -> tuple[int, ...]:
    """Axes as non-negative numbers in ascending order; None or () means all."""
    if dim is None or dim == ():
        return tuple(range(rank))
    given = (dim,) if isinstance(dim, int) else dim
    return tuple(sorted(d % rank if rank else 0 for d in given)) if rank else ()


def axis(dim: int, rank: int) -> int:
    """One axis as a non-negative number."""
    return dim % rank if rank else 0


def size(value: Any) -> Expr:
    """A length given as number or index expression."""
    return value if isinstance(value, Expr) else i32(value)


def product(shape: Iterable[Expr]) -> Expr:
    total: Expr = ONE
    for extent in shape:
        total = total * extent
    return Simplifier({}).index(total)


def insert(coords: Coords, at: Iterable[int], values: Iterable[Expr]) -> Coords:
    """``coords`` with ``values`` put in so that they end up at the ascending positions ``at``."""
    out = list(coords)
    for position, value in zip(at, values, strict=True):
        out.insert(position, value)
    return tuple(out)


def drop(coords: Coords, at: Iterable[int]) -> Coords:
    gone = set(at)
    return tuple(c for n, c in enumerate(coords) if n not in gone)


def normalised(expr: Expr) -> Expr:
    """An extent simplified (symbols only)."""
    return Simplifier({}).index(expr)


def as_index(value: Expr) -> Expr:
    """A value used as coordinate."""
    return cast(value, DType.I32)


__all__ = [
    "FLOATS", "INTS", "ONE", "OPS", "SINGLE", "ZERO", "Builder", "Coords", "Op", "Sample", "Shape",
    "T", "Val", "as_index", "axis", "const", "convert", "dims", "drop", "insert", "normalised",
    "product", "promote", "rounded", "row", "sample", "short_name", "size",
]  # fmt: skip
