"""The scalar functions that expressions may call: arity, meaning (NumPy), result type, identities, cost.

One row a function. The printers hold one text template a row and language; a test runs through the table. Integer
``floordiv`` and ``mod`` round toward minus infinity as NumPy does; ``quot`` and ``rem`` round toward zero as C does,
and stand for them where operands are known not to be negative. ``max`` and ``min`` return NaN when either operand
is NaN, as torch.maximum does; ``fmax`` and ``fmin`` return the other operand. ``near_div`` is a quotient within two
units in the last place, for operands that are no more exact themselves. ``normcdf`` is the standard normal's
distribution function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Number, is_const


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    evaluate: NumPy meaning, given arrays (or Python numbers).
    kind: how the result type follows from the operands: ``same`` (the wider operand), ``bool``, ``float``, ``cast``.
    cost: rough cost in float32 multiply-adds, for features only.
    """

    name: str
    arity: int
    evaluate: Callable[..., Any]
    kind: str = "same"
    cost: float = 1.0
    simplify: Callable[[tuple[Expr, ...]], Expr | None] | None = None

    def result(self, args: tuple[Expr, ...]) -> DType:
        if self.kind == "bool":
            return DType.BOOL
        if self.kind == "cast":
            raise TypeError("cast needs a dtype")
        operands = args[1:] if self.name == "select" else args
        return _wider(tuple(arg.dtype for arg in operands))

    def fold(self, args: tuple[Const, ...], out: DType) -> Const:
        import numpy as np

        with np.errstate(all="ignore"):
            value = self.evaluate(*(_as_number(arg) for arg in args))
        if out == DType.BOOL:
            return Const(bool(value), out)
        if out.is_float:
            return Const(float(value), out)
        return Const(int(value), out)


_RANK = [DType.BOOL, DType.U8, DType.I8, DType.I16, DType.I32, DType.I64, DType.F16, DType.BF16, DType.F32, DType.F64]


def _wider(dtypes: tuple[DType, ...]) -> DType:
    return max(dtypes, key=_RANK.index)


def _as_number(arg: Const) -> Any:
    import numpy as np

    if arg.dtype.is_float:
        return np.float64(arg.value)
    return arg.value


def _np() -> Any:
    import numpy as np

    return np


def _fn(name: str) -> Callable[..., Any]:
    def evaluate(*args: Any) -> Any:
        return getattr(_np(), name)(*args)

    return evaluate


def _erf(x: Any) -> Any:
    from scipy.special import erf

    return erf(x)


def _erfc(x: Any) -> Any:
    from scipy.special import erfc

    return erfc(x)


def _normcdf(x: Any) -> Any:
    from scipy.special import ndtr

    return ndtr(x)


def _div(a: Any, b: Any) -> Any:
    return _np().true_divide(a, b)


def _floordiv(a: Any, b: Any) -> Any:
    return a // b


def _mod(a: Any, b: Any) -> Any:
    return a % b


def _sign(x: Any) -> Any:
    np = _np()
    return np.where(np.isnan(x), 0, np.sign(x))  # torch.sign(nan) is 0


def _power(a: Any, b: Any) -> Any:
    np = _np()
    if np.issubdtype(np.result_type(a, b), np.floating):
        return np.power(a, b)
    # a negative power of an integer is truncated, as torch.pow does: 0 unless the base is 1 or -1
    whole = np.power(a, np.maximum(b, 0))
    unit = np.where(np.abs(a) == 1, np.where(np.bitwise_and(b, 1) == 1, a, 1), 0)
    return np.where(np.less(b, 0), unit, whole)


def _quot(a: Any, b: Any) -> Any:
    np = _np()
    if np.issubdtype(np.result_type(a, b), np.floating):
        return np.trunc(a / b)
    return (a - np.fmod(a, b)) // b


def _add_id(args: tuple[Expr, ...]) -> Expr | None:
    a, b = args
    if is_const(b, 0) and a.dtype == _wider((a.dtype, b.dtype)):
        return a
    if is_const(a, 0) and b.dtype == _wider((a.dtype, b.dtype)):
        return b
    if (
        a.dtype.is_int
        and isinstance(b, Const)
        and isinstance(a, Call)
        and a.fn == "add"
        and isinstance(a.args[1], Const)
    ):
        return a.args[0] + (int(a.args[1].value) + int(b.value))  # (x + c) + d
    if a.dtype.is_int and isinstance(a, Const) and not isinstance(b, Const):
        return b + a  # constants to the right
    return None


def _sub_id(args: tuple[Expr, ...]) -> Expr | None:
    a, b = args
    if is_const(b, 0) and a.dtype == _wider((a.dtype, b.dtype)):
        return a
    if a.dtype.is_int and a == b:
        return Const(0, a.dtype)
    return None


def _mul_id(args: tuple[Expr, ...]) -> Expr | None:
    a, b = args
    wide = _wider((a.dtype, b.dtype))
    if is_const(b, 1) and a.dtype == wide:
        return a
    if is_const(a, 1) and b.dtype == wide:
        return b
    if wide.is_int:
        if is_const(a, 0) or is_const(b, 0):
            return Const(0, wide)
        if isinstance(b, Const) and isinstance(a, Call) and a.fn == "mul" and isinstance(a.args[1], Const):
            return a.args[0] * (int(a.args[1].value) * int(b.value))
        if isinstance(a, Const) and not isinstance(b, Const):
            return b * a
    return None


def _floordiv_id(args: tuple[Expr, ...]) -> Expr | None:
    a, b = args
    if is_const(b, 1):
        return a
    if is_const(a, 0):
        return a
    if a == b:
        return Const(1, a.dtype)
    return None


def _mod_id(args: tuple[Expr, ...]) -> Expr | None:
    a, b = args
    if is_const(b, 1) or is_const(a, 0) or a == b:
        return Const(0, a.dtype)
    return None


def _and_id(args: tuple[Expr, ...]) -> Expr | None:
    a, b = args
    if is_const(a, False) or is_const(b, True):
        return a
    if is_const(b, False) or is_const(a, True):
        return b
    return a if a == b else None


def _or_id(args: tuple[Expr, ...]) -> Expr | None:
    a, b = args
    if is_const(a, True) or is_const(b, False):
        return a
    if is_const(b, True) or is_const(a, False):
        return b
    return a if a == b else None


def _select_id(args: tuple[Expr, ...]) -> Expr | None:
    cond, yes, no = args
    if yes.dtype != no.dtype:
        return None
    if is_const(cond, True):
        return yes
    if is_const(cond, False):
        return no
    return yes if yes == no else None


def _float_only(args: tuple[Expr, ...]) -> Expr | None:
    """False for integers, which are neither NaN nor infinite: no language has a test for that."""
    (x,) = args
    return None if x.dtype.is_float else Const(False, DType.BOOL, x.lanes)


def _where(c: Any, a: Any, b: Any) -> Any:
    return _np().where(c, a, b)


def _cast(x: Number) -> Any:
    return x


_ROWS = [
    Function("add", 2, _fn("add"), simplify=_add_id),
    Function("sub", 2, _fn("subtract"), simplify=_sub_id),
    Function("mul", 2, _fn("multiply"), simplify=_mul_id),
    Function("div", 2, _div, cost=4),
    Function("near_div", 2, _div, cost=3),
    Function("floordiv", 2, _floordiv, cost=8, simplify=_floordiv_id),
    Function("mod", 2, _mod, cost=8, simplify=_mod_id),
    Function("quot", 2, _quot, cost=6),
    Function("rem", 2, _fn("fmod"), cost=6),
    Function("fmod", 2, _fn("fmod"), cost=8),
    Function("max", 2, _fn("maximum")),
    Function("min", 2, _fn("minimum")),
    Function("fmax", 2, _fn("fmax")),
    Function("fmin", 2, _fn("fmin")),
    Function("pow", 2, _power, cost=24),
    Function("atan2", 2, _fn("arctan2"), cost=24),
    Function("neg", 1, _fn("negative")),
    Function("abs", 1, _fn("abs")),
    Function("sign", 1, _sign),
    Function("floor", 1, _fn("floor")),
    Function("ceil", 1, _fn("ceil")),
    Function("trunc", 1, _fn("trunc")),
    Function("round", 1, _fn("rint")),
    Function("exp", 1, _fn("exp"), cost=10),
    Function("fast_exp", 1, _fn("exp"), cost=4),
    Function("exp2", 1, _fn("exp2"), cost=8),
    Function("expm1", 1, _fn("expm1"), cost=14),
    Function("log", 1, _fn("log"), cost=12),
    Function("log2", 1, _fn("log2"), cost=12),
    Function("log10", 1, _fn("log10"), cost=12),
    Function("log1p", 1, _fn("log1p"), cost=14),
    Function("sqrt", 1, _fn("sqrt"), cost=6),
    Function("rsqrt", 1, lambda x: 1.0 / _np().sqrt(x), cost=6),
    Function("sin", 1, _fn("sin"), cost=16),
    Function("cos", 1, _fn("cos"), cost=16),
    Function("tan", 1, _fn("tan"), cost=24),
    Function("asin", 1, _fn("arcsin"), cost=20),
    Function("acos", 1, _fn("arccos"), cost=20),
    Function("atan", 1, _fn("arctan"), cost=20),
    Function("sinh", 1, _fn("sinh"), cost=20),
    Function("cosh", 1, _fn("cosh"), cost=20),
    Function("tanh", 1, _fn("tanh"), cost=16),
    Function("erf", 1, _erf, cost=20),
    Function("erfc", 1, _erfc, cost=20),
    Function("normcdf", 1, _normcdf, cost=14),
    Function("isnan", 1, _fn("isnan"), kind="bool", simplify=_float_only),
    Function("isinf", 1, _fn("isinf"), kind="bool", simplify=_float_only),
    Function("lt", 2, _fn("less"), kind="bool"),
    Function("le", 2, _fn("less_equal"), kind="bool"),
    Function("gt", 2, _fn("greater"), kind="bool"),
    Function("ge", 2, _fn("greater_equal"), kind="bool"),
    Function("eq", 2, _fn("equal"), kind="bool"),
    Function("ne", 2, _fn("not_equal"), kind="bool"),
    Function("and", 2, _fn("logical_and"), kind="bool", simplify=_and_id),
    Function("or", 2, _fn("logical_or"), kind="bool", simplify=_or_id),
    Function("not", 1, _fn("logical_not"), kind="bool"),
    Function("bitand", 2, _fn("bitwise_and")),
    Function("bitor", 2, _fn("bitwise_or")),
    Function("bitxor", 2, _fn("bitwise_xor")),
    Function("shl", 2, _fn("left_shift")),
    Function("shr", 2, _fn("right_shift")),
    Function("select", 3, _where, simplify=_select_id),
    Function("fma", 3, lambda a, b, c: a * b + c),
    Function("cast", 1, _cast, kind="cast"),
]

FUNCTIONS: dict[str, Function] = {row.name: row for row in _ROWS}


def numpy_dtype(dtype: DType) -> Any:
    """The NumPy type that holds ``dtype``; bfloat16 is held as float32 (rounded by ``round_bf16``)."""
    np = _np()
    names = {"bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
    names |= {"f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64}
    return names[dtype.value]


def round_bf16(values: Any) -> Any:
    """float32 ``values`` rounded to the nearest bfloat16 (ties to even), still held as float32."""
    np = _np()
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    # contiguous arrays have an axis: a value without one gets its shape back
    return np.where(np.isnan(values), np.float32(math.nan), rounded.reshape(np.shape(values)))
