"""Conversion rows: casts, and the operations that are identities on a tensor's elements."""

from __future__ import annotations

from typing import Any

from emmy.ir.dtype import DType
from emmy.passes.ops.core import Builder, T, Val, convert, rounded, row, sample


def _same(b: Builder, self: Val, **_: Any) -> Val:
    return self


def _dropout(b: Builder, input: Val, p: float, train: bool | None) -> Val:
    if train and p:
        raise b.refuse("dropout in training mode is random; call .eval() on the module")
    return input


def _to(b: Builder, self: Val, **_: Any) -> Val:
    """Widening is free and stays in the load; anything that rounds or changes kind is a computation."""
    target = b.out.dtype
    if target == self.dtype:
        return self
    if self.dtype.is_float and target in (DType.F32, DType.F64) and self.dtype != DType.F64:
        return Val(self.shape, target, lambda c: convert(self.at(c), target))
    return b.map(self.shape, target, lambda c: rounded(self.at(c), target))


for _name in ("clone", "detach", "alias", "lift_fresh_copy", "contiguous"):
    row(f"aten.{_name}.default", "index", _same, (sample(x=T((3, 5))),))
row("aten.dropout.default", "index", _dropout, (sample(input=T((3, 5)), p=0.5, train=False),))
_CASTS = [
    sample(
        DType.F32, DType.F16, DType.BF16, DType.F64, DType.I64, DType.BOOL, x=T((3, 5), low=-9, high=9), dtype=target
    )
    for target in (DType.F32, DType.F16, DType.BF16, DType.F64, DType.I64, DType.I32, DType.BOOL)
]
row("aten._to_copy.default", "pointwise", _to, _CASTS)
row("aten.to.dtype", "pointwise", _to, _CASTS)
row(
    "aten.type_as.default",
    "pointwise",
    lambda b, self, other: _to(b, self),
    (sample(x=T((3,)), other=T((2,), DType.F16)),),
)
