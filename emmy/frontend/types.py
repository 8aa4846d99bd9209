"""torch's types and sizes ⇄ the IR's."""

from __future__ import annotations

from typing import Any

import torch

from emmy.errors import InputError
from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Var, add, call, floordiv, i32, mod, mul

TORCH: dict[DType, torch.dtype] = {
    DType.BOOL: torch.bool, DType.U8: torch.uint8, DType.I8: torch.int8, DType.I16: torch.int16, DType.I32: torch.int32,
    DType.I64: torch.int64, DType.F16: torch.float16, DType.BF16: torch.bfloat16, DType.F32: torch.float32,
    DType.F64: torch.float64,
}  # fmt: skip

_OURS = {theirs: ours for ours, theirs in TORCH.items()}


def dtype_of(dtype: torch.dtype) -> DType:
    """Raises InputError for a type that emmy does not hold (complex, quantised, float8)."""
    ours = _OURS.get(dtype)
    if ours is None:
        raise InputError("element type", found=dtype, expected=", ".join(str(t).removeprefix("torch.") for t in _OURS))
    return ours


def size_expr(size: Any, names: dict[Any, str]) -> Expr:
    """A size of a traced tensor as an index expression; ``names`` maps torch's symbols to ours.

    Raises KeyError for a symbol without a name (a data-dependent size), InputError for arithmetic beyond ours.
    """
    if isinstance(size, int):
        return i32(size)
    return _from_sympy(size.node.expr, names)


def _from_sympy(expr: Any, names: dict[Any, str]) -> Expr:
    if expr.is_Integer:
        return i32(int(expr))
    if expr.is_Symbol:
        return Var(names[expr])
    args = [_from_sympy(arg, names) for arg in expr.args]
    kind = type(expr).__name__
    if kind == "Pow" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
        args = [args[0]] * int(expr.args[1])
        kind = "Mul"
    folds = {"Add": add, "Mul": mul, "Max": lambda a, b: call("max", a, b), "Min": lambda a, b: call("min", a, b)}
    if kind in folds:
        total = args[0]
        for arg in args[1:]:
            total = folds[kind](total, arg)
        return total
    if kind in ("FloorDiv", "CleanDiv", "IntTrueDiv"):
        return floordiv(args[0], args[1])
    if kind in ("Mod", "PythonMod"):
        return mod(args[0], args[1])
    if kind == "CeilDiv":
        return floordiv(add(args[0], args[1] - 1), args[1])
    raise InputError(f"size {expr}", expected="sums, products, quotients and remainders of symbolic sizes")
