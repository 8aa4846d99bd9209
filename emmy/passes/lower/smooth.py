"""Arithmetic that needs no branch, so that the instructions of neighbouring elements overlap."""

from __future__ import annotations

from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, call, is_const, transform


def logistic(node: Expr) -> Expr | None:
    """A rule for ``transform``: the quotient of a logistic function, ``a / (exp(b) + 1)``, within two units in the
    last place. The exponential is no more exact than that."""
    match node:
        case Call("div", (value, Call("add", (a, b)) as below), DType.F32):
            one, other = (a, b) if isinstance(a, Const) else (b, a)
            if is_const(one, 1) and isinstance(other, Call) and other.fn in ("exp", "fast_exp"):
                return call("near_div", value, below)
    return None


def smooth(expr: Expr) -> Expr:
    """``expr`` with ``logistic`` applied."""
    return transform(expr, logistic)
