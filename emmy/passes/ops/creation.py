"""Creation rows: tensors whose elements are known from their coordinates. Nothing is stored; readers compute them."""

from __future__ import annotations

from typing import Any

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, call, cast, select
from emmy.passes.ops.core import Builder, T, Val, const, rounded, row, sample

NONE = (DType.F32,)
"""Rows without a tensor argument are run once."""


def _filled(b: Builder, value: Any) -> Val:
    out = b.out
    constant = cast(value, out.dtype.compute) if isinstance(value, Expr) else const(value, out.dtype.compute)
    held = rounded(constant, out.dtype)
    return Val(out.shape, out.dtype, lambda c: held)


def _full(b: Builder, fill_value: Any, **_: Any) -> Val:
    return _filled(b, fill_value)


def _zeros(b: Builder, **_: Any) -> Val:
    return _filled(b, 0)


def _ones(b: Builder, **_: Any) -> Val:
    return _filled(b, 1)


def _scalar_tensor(b: Builder, s: Any, **_: Any) -> Val:
    return _filled(b, s)


def _arange(b: Builder, end: Any, start: Any = 0, step: Any = 1, **_: Any) -> Val:
    out = b.out  # of this node: the elements are asked for while later ones are lowered
    kind = out.dtype.compute

    def value(item: Any) -> Expr:
        return cast(item, kind) if isinstance(item, Expr) else const(item, kind)

    return Val(out.shape, out.dtype, lambda c: rounded(value(start) + cast(c[0], kind) * value(step), out.dtype))


def _eye(b: Builder, **_: Any) -> Val:
    kind = b.out.dtype.compute
    return Val(b.out.shape, b.out.dtype, lambda c: select(call("eq", c[0], c[1]), const(1, kind), const(0, kind)))


_LIKE: dict[str, Any] = {"x": T((3, 5))}
row("aten.full.default", "creation", _full,
    (sample(NONE, size=(2, 3), fill_value=1.5), sample(NONE, size=(), fill_value=7),
     sample(NONE, size=(3,), fill_value=True), sample(NONE, size=(3,), fill_value=0.1, dtype=DType.F16)))  # fmt: skip
row(
    "aten.full_like.default",
    "creation",
    _full,
    (sample(**_LIKE, fill_value=0.3), sample(NONE, **_LIKE, fill_value=2, dtype=DType.I64)),
)
row("aten.zeros_like.default", "creation", _zeros, (sample(**_LIKE),))
row("aten.ones_like.default", "creation", _ones, (sample(**_LIKE),))
row("aten.zeros.default", "creation", _zeros, (sample(NONE, size=(2, 3)), sample(NONE, size=(0,), dtype=DType.I64)))
row("aten.ones.default", "creation", _ones, (sample(NONE, size=(2, 3), dtype=DType.BOOL),))
row("aten.scalar_tensor.default", "creation", _scalar_tensor, (sample(NONE, s=2.5), sample(NONE, s=3, dtype=DType.I64)))
row("aten.arange.default", "creation", _arange, (sample(NONE, end=7), sample(NONE, end=3.0)))
row("aten.arange.start", "creation", _arange, (sample(NONE, start=2, end=7),))
row("aten.arange.start_step", "creation", _arange,
    (sample(NONE, start=2, end=11, step=3), sample(NONE, start=0, end=1, step=0.25, dtype=DType.F32)))  # fmt: skip
row("aten.eye.default", "creation", _eye, (sample(NONE, n=3),))
row("aten.eye.m", "creation", _eye, (sample(NONE, n=3, m=5),))
