"""Write rows: a tensor with some elements taken from another, which is what an assignment to a slice is traced as."""

from __future__ import annotations

from typing import Any

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, both, call, floordiv, i32, lt, mod, select
from emmy.passes.ops.core import (
    SINGLE,
    ZERO,
    Builder,
    Coords,
    T,
    Val,
    axis,
    convert,
    drop,
    normalised,
    rounded,
    row,
    sample,
    size,
)
from emmy.passes.ops.index import LAST, bound

_X = T((3, 5, 4))


def _written(b: Builder, self: Val, part: Val, inside: Any, coords: Any) -> Val:
    """``self`` with the elements where ``inside(c)`` taken from ``part`` at ``coords(c)``."""
    kind = b.out.dtype
    return b.map(
        self.shape, kind, lambda c: select(inside(c), convert(part.at(coords(c)), kind), convert(self.at(c), kind))
    )


def _copy(b: Builder, self: Val, src: Val, **_: Any) -> Val:
    wide = src.over(self.shape)
    return b.map(self.shape, self.dtype, lambda c: rounded(wide.at(c), self.dtype))


def _select_scatter(b: Builder, self: Val, src: Val, dim: int, index: Any) -> Val:
    at = axis(dim, self.rank)
    where = normalised(self.shape[at] + index) if isinstance(index, int) and index < 0 else size(index)
    return _written(b, self, src, lambda c: call("eq", c[at], where), lambda c: drop(c, (at,)))


def _slice_scatter(
    b: Builder, self: Val, src: Val, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Val:
    at = axis(dim, self.rank)
    first = ZERO if start is None else bound(start, self.shape[at])
    last = self.shape[at] if end is None else bound(end, self.shape[at])

    def inside(c: Coords) -> Expr:
        within = both(call("ge", c[at], first), lt(c[at], last))
        hit = within if step == 1 else both(within, call("eq", mod(c[at] - first, i32(step)), ZERO))
        assert hit is not None
        return hit

    return _written(b, self, src, inside, lambda c: (*c[:at], floordiv(c[at] - first, i32(step)), *c[at + 1 :]))


row(
    "aten.copy.default",
    "index",
    _copy,
    (sample(x=_X, src=T((5, 1))), sample(SINGLE, x=T((4,), DType.F16), src=T((4,)))),
)
row(
    "aten.select_scatter.default",
    "index",
    _select_scatter,
    (sample(x=_X, src=T((3, 4)), dim=1, index=-2), sample(SINGLE, x=T((1, 3)), src=T((3,)), dim=0, index=0)),
)
row(
    "aten.slice_scatter.default",
    "index",
    _slice_scatter,
    (
        sample(x=_X, src=T((3, 2, 4)), dim=1, start=1, end=3),
        sample(SINGLE, x=_X, src=T((3, 2, 4)), dim=1, start=0, end=LAST, step=3),
        sample(SINGLE, x=_X, src=T((3, 5, 4)), dim=0),
    ),
)
