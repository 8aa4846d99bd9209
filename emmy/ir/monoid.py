"""Reductions as monoids over tuples: one table of named monoids.

A monoid's ``combine`` is data: expressions over the variables ``a0, a1, …`` (left) and ``b0, b1, …`` (right). The same
expressions serve registers, a warp, a block, a cluster, a split and its finalising kernel, and the NumPy oracle.
``lift`` makes the tuple of one element from the values ``x0, x1, …`` a computation feeds in (and its position ``i``
along the reduce axis, where the monoid needs it). A component may carry axes: the output row of online attention is
one component with an axis of its own.

Sources: Welford's update in the pairwise form of Chan, Golub and LeVeque (1979); the online softmax normaliser of
Milakov and Gimelshein (2018), arXiv:1805.02867; its extension to attention by Dao et al. (2022), arXiv:2205.14135.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Number, Var, call, cast, select


@dataclass(frozen=True, slots=True)
class Monoid:
    """An associative operation over tuples with an identity.

    name: key in MONOIDS.
    identity: the identity's value a component; None stands for the smallest (``low``) or largest (``high``) value.
    lift: the tuple of one element, over ``x0…`` and ``i``.
    combine: the tuple of two, over ``a0…`` and ``b0…``.
    carried: number of axes a component carries beyond the reduction's own (0 for plain scalars).
    phases: an equivalent sequence of plain monoids with the value each reduces, when the row can be read twice:
        ``(monoid, value)`` where the value may use ``x0``, the results ``p0, p1, …`` of earlier phases and ``n``.
    finish: the components, over the results of all phases and the number ``n`` of reduced elements.
    atomic: the name of the atomic that merges partial results of component 0, where one exists.
    """

    name: str
    identity: tuple[Number | str, ...]
    lift: tuple[Expr, ...]
    combine: tuple[Expr, ...]
    carried: tuple[int, ...]
    index_dtype: DType | None = None
    phases: tuple[tuple[str, Expr], ...] = ()
    finish: tuple[Expr, ...] = ()
    atomic: str | None = None

    @property
    def arity(self) -> int:
        return len(self.combine)

    def identity_values(self, dtype: DType) -> tuple[Number, ...]:
        """The identity, ``low`` and ``high`` resolved for element type ``dtype``."""
        return tuple(extreme(dtype, v) if isinstance(v, str) else v for v in self.identity)

    def component_dtypes(self, dtype: DType) -> tuple[DType, ...]:
        """Types of the components when elements of type ``dtype`` are reduced (arg-reductions carry an int64 index)."""
        compute = dtype.compute
        if self.name in ("argmax", "argmin"):
            return (compute, DType.I64)
        return (compute,) * self.arity


def extreme(dtype: DType, which: str) -> Number:
    """The ``low``est or ``high``est value of a type: an infinity for floats, the limit for integers."""
    if dtype.is_float:
        return -math.inf if which == "low" else math.inf
    if dtype == DType.BOOL:
        return which == "high"
    bits = dtype.nbytes * 8
    if dtype == DType.U8:
        return 0 if which == "low" else 255
    return -(2 ** (bits - 1)) if which == "low" else 2 ** (bits - 1) - 1


def instantiate(monoid: Monoid, exprs: tuple[Expr, ...], env: dict[str, Expr]) -> tuple[Expr, ...]:
    """``exprs`` (a lift or a combine) with its variables bound; result types follow the bound values."""
    from emmy.ir.expr import transform

    def bind(node: Expr) -> Expr | None:
        return env.get(node.name) if isinstance(node, Var) else None

    return tuple(transform(e, bind) for e in exprs)


def _v(name: str) -> Var:
    return Var(name, DType.F32)


def _c(value: float) -> Const:
    return Const(value, DType.F32)


def _call(fn: str, *args: Expr) -> Expr:
    return call(fn, *args)


_A = tuple(_v(f"a{i}") for i in range(4))
_B = tuple(_v(f"b{i}") for i in range(4))
_X = tuple(_v(f"x{i}") for i in range(2))
_I = Var("i", DType.I64)


def _plain(name: str, fn: str, identity: Number | str, atomic: str | None = None) -> Monoid:
    return Monoid(name, (identity,), (_X[0],), (_call(fn, _A[0], _B[0]),), (0,), atomic=atomic)


def _arg(name: str, better: str, identity: str) -> Monoid:
    # NaN wins, then the better value, then the lower index: torch.argmax's rule
    nan_a, nan_b = _call("isnan", _A[0]), _call("isnan", _B[0])
    ia, ib = Var("a1", DType.I64), Var("b1", DType.I64)
    first = _call("lt", ia, ib)
    equal = _call("or", _call("eq", _A[0], _B[0]), _call("and", nan_a, nan_b))
    a_better = _call(
        "or", _call("and", nan_a, _call("not", nan_b)), _call("and", _call(better, _A[0], _B[0]), _call("not", nan_b))
    )
    keep = _call("or", a_better, _call("and", equal, first))
    lifted = (_X[0], _I)
    return Monoid(name, (identity, 2**62), lifted, (select(keep, _A[0], _B[0]), select(keep, ia, ib)), (0, 0))


def _welford() -> Monoid:
    """(mean, M2, count). Variance = M2 / count (or count - 1)."""
    mean_a, m2_a, n_a = _A[:3]
    mean_b, m2_b, n_b = _B[:3]
    n = n_a + n_b
    safe = select(_call("gt", n, _c(0.0)), n, _c(1.0))
    delta = mean_b - mean_a
    share = _call("div", n_b, safe)
    mean = _call("div", _v("p0"), _call("max", _v("n"), _c(1.0)))
    return Monoid(
        "welford",
        (0.0, 0.0, 0.0),
        (_X[0], _c(0.0), _c(1.0)),
        (mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n),
        (0, 0, 0),
        phases=(("sum", _X[0]), ("sum", (_X[0] - mean) * (_X[0] - mean))),
        finish=(mean, _v("p1"), _v("n")),
    )


def rescale(m_old: Expr, m_new: Expr) -> Expr:
    """What a sum of exponentials over maximum ``m_old`` is multiplied by where the maximum becomes ``m_new``."""
    # exp(-inf - -inf) is NaN: a part that is still the identity weighs nothing
    return select(_call("eq", m_old, _c(-math.inf)), _c(0.0), _call("exp", m_old - m_new))


def _online_softmax() -> Monoid:
    """(m, l): running maximum and the sum of exp(x - m)."""
    m = _call("max", _A[0], _B[0])
    total = _A[1] * rescale(_A[0], m) + _B[1] * rescale(_B[0], m)
    return Monoid(
        "online_softmax",
        (-math.inf, 0.0),
        (_X[0], _c(1.0)),
        (m, total),
        (0, 0),
        phases=(("max", _X[0]), ("sum", _call("exp", _X[0] - _v("p0")))),
        finish=(_v("p0"), select(_call("eq", _v("p0"), _c(-math.inf)), _c(0.0), _v("p1"))),
    )


def _online_attention() -> Monoid:
    """(m, l, O): as online_softmax, with the unnormalised output row O[d] += exp(x0 - m) * x1[d] carried along."""
    m = _call("max", _A[0], _B[0])
    wa, wb = rescale(_A[0], m), rescale(_B[0], m)
    return Monoid(
        "online_attention",
        (-math.inf, 0.0, 0.0),
        (_X[0], _c(1.0), _X[1]),
        (m, _A[1] * wa + _B[1] * wb, _A[2] * wa + _B[2] * wb),
        (0, 0, 1),
    )


_ROWS = [
    _plain("sum", "add", 0, atomic="add"),
    _plain("prod", "mul", 1),
    _plain("max", "max", "low", atomic="max"),
    _plain("min", "min", "high", atomic="min"),
    _plain("any", "or", False),
    _plain("all", "and", True),
    _arg("argmax", "gt", "low"),
    _arg("argmin", "lt", "high"),
    _welford(),
    _online_softmax(),
    _online_attention(),
]

MONOIDS: dict[str, Monoid] = {row.name: row for row in _ROWS}

__all__ = ["MONOIDS", "Monoid", "cast", "extreme", "instantiate", "rescale"]
