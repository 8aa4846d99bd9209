"""Reduction rows: a monoid of emmy.ir.monoid over some axes, with maps before and after."""

from __future__ import annotations

from typing import Any

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, call, cast, select
from emmy.passes.ops.core import (
    FLOATS,
    INTS,
    ONE,
    SINGLE,
    Builder,
    Coords,
    T,
    Val,
    const,
    convert,
    dims,
    drop,
    insert,
    product,
    row,
    sample,
)
from emmy.passes.ops.index import reshaped

BOOL = DType.BOOL


def reduced(
    b: Builder, value: Val, over: tuple[int, ...], monoid: str, dtype: DType, tag: str = "", before: Any = None
) -> tuple[Val, ...]:
    """Components of ``monoid`` over axes ``over`` of ``value``, whose elements are first mapped by ``before``."""

    def element(i: Coords, k: Coords) -> Expr:
        held = value.at(insert(i, over, k))
        return convert(held, dtype) if before is None else before(held)

    return b.reduce(drop(value.shape, over), tuple(value.shape[d] for d in over), monoid, dtype, element, tag)


def kept(value: Val, over: tuple[int, ...], keepdim: bool) -> Val:
    """The reduced axes back as axes of extent one, where asked for."""
    if not keepdim:
        return value
    return value.view(insert(value.shape, over, (ONE,) * len(over)), lambda c: drop(c, over))


def count(value: Val, over: tuple[int, ...], dtype: DType) -> Expr:
    """Number of reduced elements, in the compute type."""
    return cast(product(value.shape[d] for d in over), dtype.compute)


def _plain(monoid: str, before: Any = None) -> Any:
    def build(b: Builder, self: Val, dim: Any = None, keepdim: bool = False, **_: Any) -> Val:
        over = dims(dim, self.rank)
        if not over:
            return b.map(self.shape, b.out.dtype, lambda c: (before or (lambda x: convert(x, b.out.dtype)))(self.at(c)))
        return kept(reduced(b, self, over, monoid, b.out.dtype, before=before)[0], over, keepdim)

    return build


def _truth(x: Expr) -> Expr:
    return x if x.dtype == BOOL else call("ne", x, const(0, x.dtype))


def _mean(b: Builder, self: Val, dim: Any = None, keepdim: bool = False, **_: Any) -> Val:
    over, kind = dims(dim, self.rank), b.out.dtype
    if not over:
        return b.map(self.shape, kind, lambda c: convert(self.at(c), kind))
    total = reduced(b, self, over, "sum", kind, "sum")[0]
    n = count(self, over, kind)
    return kept(b.map(total.shape, kind, lambda c: call("div", total.at(c), n)), over, keepdim)


def moments(b: Builder, value: Val, over: tuple[int, ...], dtype: DType) -> tuple[Val, Val]:
    """Mean and sum of squared deviations, by Welford's monoid."""
    mean, squares, _ = reduced(b, value, over, "welford", dtype, "moments")
    return mean, squares


def _variance(root: bool, with_mean: bool = False) -> Any:
    def build(
        b: Builder, self: Val, dim: Any = None, correction: Any = 1, keepdim: bool = False, unbiased: Any = None
    ) -> Any:
        over, kind = dims(dim, self.rank), b.out.dtype
        wide = self
        if not over:  # a scalar: one element along an axis of its own
            wide, over = self.view((ONE,), lambda c: ()), (0,)
            keepdim = False
        lost = 1 if correction is None else correction
        lost = int(unbiased) if unbiased is not None else lost
        mean, squares = moments(b, wide, over, kind)
        n = count(wide, over, kind)
        left = call("max", n - lost, const(0, n.dtype)) if lost else n

        def element(c: Coords) -> Expr:
            variance = call("div", squares.at(c), left)
            return call("sqrt", variance) if root else variance

        spread = kept(b.map(mean.shape, kind, element), over, keepdim)
        return (spread, kept(mean, over, keepdim)) if with_mean else spread

    return build


def _best(monoid: str) -> Any:
    """argmax and argmin: the position along one axis, or in the flattened tensor."""

    def build(b: Builder, self: Val, dim: Any = None, keepdim: bool = False) -> Val:
        flat = dim is None
        value = reshaped(self, (product(self.shape),)) if flat or not self.rank else self
        over = (0,) if flat or not self.rank else dims(dim, self.rank)
        index = reduced(b, value, over, monoid, self.dtype)[1]
        every = tuple(range(self.rank)) if flat or not self.rank else over
        return kept(index, every, keepdim and self.rank > 0)

    return build


def _extreme_at(plain: str, monoid: str) -> Any:
    """max.dim and min.dim: the value and its position."""

    def build(b: Builder, self: Val, dim: int, keepdim: bool = False) -> tuple[Val, Val]:
        value = self if self.rank else self.view((ONE,), lambda c: ())
        over = dims(dim, value.rank)
        best = reduced(b, value, over, plain, self.dtype, "value")[0]
        position = reduced(b, value, over, monoid, self.dtype)[1]
        keep = keepdim and self.rank > 0
        return kept(best, over, keep), kept(position, over, keep)

    return build


def _logsumexp(b: Builder, self: Val, dim: Any, keepdim: bool = False) -> Val:
    over, kind = dims(dim, self.rank), b.out.dtype
    if not self.rank:
        return b.map(self.shape, kind, lambda c: convert(self.at(c), kind))
    top, total = reduced(b, self, over, "online_softmax", kind, "ml")

    def element(c: Coords) -> Expr:
        # an infinite maximum is the answer itself: inf - inf would be NaN
        m = top.at(c)
        return select(call("isinf", m), m, call("log", total.at(c)) + m)

    return kept(b.map(top.shape, kind, element), over, keepdim)


def _norm(b: Builder, self: Val, ord: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Val:
    over, kind = dims(dim, self.rank), b.out.dtype
    if ord == 2:
        squares = reduced(b, self, over, "sum", kind, "squares", lambda x: convert(x, kind) * convert(x, kind))[0]
        return kept(b.map(squares.shape, kind, lambda c: call("sqrt", squares.at(c))), over, keepdim)
    if ord == 1:
        return kept(reduced(b, self, over, "sum", kind, "", lambda x: call("abs", convert(x, kind)))[0], over, keepdim)
    if ord == float("inf"):
        return kept(reduced(b, self, over, "max", kind, "", lambda x: call("abs", convert(x, kind)))[0], over, keepdim)
    raise b.refuse("only the norms 1, 2 and inf are covered")


# ----------------------------------------------------------------------------------------------------------- rows

_X = T((3, 7, 4))
_SHAPES: tuple[dict[str, Any], ...] = (
    {"dim": (-1,)}, {"dim": (0, 2), "keepdim": True}, {"dim": (1,)}, {"x": T((1, 5)), "dim": (0,)},
)  # fmt: skip
_EMPTY: tuple[dict[str, Any], ...] = ({"x": T((0, 4)), "dim": (0,)}, {"x": T((4, 0)), "dim": (0,)})


def _samples(*types: Any, shapes: tuple[dict[str, Any], ...] = _SHAPES) -> list[Any]:
    return [sample(*(types if n == 0 else types[:1]), **{"x": _X, **args}) for n, args in enumerate(shapes)]


def _single(shapes: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    return tuple({**s, "dim": s["dim"][0]} for s in shapes if len(s["dim"]) == 1)


_ALL = (FLOATS, INTS, BOOL)
row("aten.sum.dim_IntList", "reduction", _plain("sum"), _samples(*_ALL, shapes=_SHAPES + _EMPTY))
row("aten.sum.default", "reduction", _plain("sum"), [sample(*_ALL, x=_X), sample(x=T(())), sample(x=T((0,)))])
row("aten.prod.default", "reduction", _plain("prod"), [sample(FLOATS, INTS, x=T((2, 3)))])
row("aten.prod.dim_int", "reduction", _plain("prod"), _samples(FLOATS, shapes=_single(_SHAPES)))
for _name in ("amax", "amin"):
    row(f"aten.{_name}.default", "reduction", _plain(_name[1:]), _samples(FLOATS, INTS))
for _name in ("max", "min"):
    row(f"aten.{_name}.default", "reduction", _plain(_name), [sample(FLOATS, INTS, x=_X)])
    row(
        f"aten.{_name}.dim",
        "reduction",
        _extreme_at(_name, f"arg{_name}"),
        _samples(FLOATS, INTS, shapes=_single(_SHAPES)),
    )
    row(
        f"aten.arg{_name}.default",
        "reduction",
        _best(f"arg{_name}"),
        [
            sample(FLOATS, INTS, x=_X),
            *_samples(FLOATS, shapes=_single(_SHAPES)),
            sample(SINGLE, x=T((5, 3)), dim=1, keepdim=True),
        ],
    )
for _name in ("any", "all"):
    _of = _plain(_name, _truth)
    row(f"aten.{_name}.default", "reduction", _of, [sample(BOOL, SINGLE, INTS, x=_X), sample(BOOL, x=T((0,)))])
    row(f"aten.{_name}.dim", "reduction", _of, _samples(BOOL, SINGLE, shapes=_single(_SHAPES + _EMPTY)))
    row(f"aten.{_name}.dims", "reduction", _of, _samples(BOOL, SINGLE))
row("aten.mean.dim", "reduction", _mean, _samples(FLOATS))
row("aten.mean.default", "reduction", _mean, [sample(FLOATS, x=_X), sample(x=T(()))])
_SPREAD: tuple[dict[str, Any], ...] = (*_SHAPES, {"dim": (-1,), "correction": 0}, {"dim": (1,), "correction": 2})
row("aten.var.correction", "reduction", _variance(False), _samples(FLOATS, shapes=_SPREAD))
row("aten.std.correction", "reduction", _variance(True), _samples(FLOATS, shapes=_SPREAD))
row("aten.var_mean.correction", "reduction", _variance(False, True), _samples(FLOATS, shapes=_SPREAD))
row("aten.logsumexp.default", "reduction", _logsumexp, _samples(FLOATS))
row("aten.linalg_vector_norm.default", "reduction", _norm,
    [*_samples(FLOATS), *(sample(x=_X, ord=o, dim=(1,)) for o in (1, float("inf")))])  # fmt: skip
