"""Pointwise rows: an expression over the operands' elements, broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, call, cast, select
from emmy.passes.ops.core import (
    FLOATS,
    INTS,
    SINGLE,
    Builder,
    Sample,
    T,
    Val,
    const,
    convert,
    promote,
    row,
    sample,
)

BOOL = (DType.BOOL,)


def elementwise(fn: Callable[..., Expr], attrs: tuple[str, ...] = (), types: str = "out") -> Callable[..., Val]:
    """The builder of a pointwise row.

    fn: given the operands' expressions in one compute type and the attributes ``attrs`` as they are.
    types: which type that is: ``out`` the result's, ``args`` the promoted type of the operands (comparisons).
    """

    def build(b: Builder, **args: Any) -> Val:
        operands = {name: arg for name, arg in args.items() if name not in attrs}
        fixed = {name: arg for name, arg in args.items() if name in attrs}
        kind = b.out.dtype if types == "out" else promote(a for a in operands.values() if a is not None)
        shape = b.out.shape

        def operand(arg: Any, coords: tuple[Expr, ...]) -> Any:
            if isinstance(arg, Val):
                return convert(arg.over(shape).at(coords), kind)
            if isinstance(arg, Expr):
                return cast(arg, kind.compute)
            return None if arg is None else const(arg, kind.compute)

        def element(coords: tuple[Expr, ...]) -> Expr:
            return fn(*(operand(arg, coords) for arg in operands.values()), **fixed)

        return b.map(shape, b.out.dtype, element)

    return build


def _first(dtypes: Any) -> tuple[DType, ...]:
    """Other sizes are tried in one type only."""
    return sample(*dtypes).dtypes[:1]


def unary_samples(*dtypes: Any, low: float = -2.0, high: float = 2.0, **more: Any) -> tuple[Sample, ...]:
    shapes = ((3, 5), (1,), (0, 4), (), (7, 13))
    first, *others = shapes
    return (
        sample(*dtypes, x=T(first, low=low, high=high), **more),
        *(sample(_first(dtypes), x=T(s, low=low, high=high), **more) for s in others),
    )


def binary_samples(*dtypes: Any, low: float = -2.0, high: float = 2.0, **more: Any) -> tuple[Sample, ...]:
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((3, 5), (3, 5)), ((7, 1, 4), (3, 1)), ((0, 4), (4,)), ((5,), ()), ((1, 1), (2, 3)),
    )  # fmt: skip
    first, *others = shapes
    return (
        sample(*dtypes, x=T(first[0], low=low, high=high), other=T(first[1], low=low, high=high), **more),
        *(
            sample(_first(dtypes), x=T(a, low=low, high=high), other=T(c, low=low, high=high), **more)
            for a, c in others
        ),
    )


def _unary(name: str, fn: str | Callable[[Expr], Expr], *dtypes: Any, low: float = -2.0, high: float = 2.0) -> None:
    apply = (lambda x: call(fn, x)) if isinstance(fn, str) else fn
    row(f"aten.{name}.default", "pointwise", elementwise(apply), unary_samples(*dtypes, low=low, high=high))


# ------------------------------------------------------------------------------------------------------ functions


def sigmoid(x: Expr) -> Expr:
    return call("div", const(1, x.dtype), call("exp", call("neg", x)) + 1)


def silu(x: Expr) -> Expr:
    return call("div", x, call("exp", call("neg", x)) + 1)


def _sign(x: Expr) -> Expr:
    # torch.sign(NaN) is 0, NumPy's is NaN
    if not x.dtype.is_float:
        return call("sign", x)
    return select(call("isnan", x), const(0, x.dtype), call("sign", x))


def _relu(x: Expr) -> Expr:
    # not max(x, 0): torch keeps NaN and -0.0, and a choice costs less than a maximum that propagates NaN
    return select(call("lt", x, const(0, x.dtype)), const(0, x.dtype), x)


def _gelu(x: Expr, approximate: str = "none") -> Expr:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return call("div", x, call("exp", inner * -2.0) + 1)  # (1 + tanh u) / 2 is the logistic function of 2u
    return x * call("normcdf", x)


def _softplus(x: Expr, beta: float = 1, threshold: float = 20) -> Expr:
    scaled = x * beta
    soft = call("div", call("log1p", call("exp", scaled)), const(beta, x.dtype))
    return select(call("gt", scaled, const(threshold, x.dtype)), x, soft)


def _mish(x: Expr) -> Expr:
    return x * call("tanh", _softplus(x))


def _clip(x: Expr, low: float | int, high: float | int) -> Expr:
    return call("min", call("max", x, const(low, x.dtype)), const(high, x.dtype))


def _hardsigmoid(x: Expr) -> Expr:
    return call("div", _clip(x + 3, 0, 6), const(6, x.dtype))


def _elu(x: Expr, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Expr:
    negative = call("expm1", x * input_scale) * (alpha * scale)
    return select(call("gt", x, const(0, x.dtype)), x * scale, negative)


def _leaky_relu(x: Expr, negative_slope: float = 0.01) -> Expr:
    return select(call("gt", x, const(0, x.dtype)), x, x * negative_slope)


def _hardtanh(x: Expr, min_val: float = -1, max_val: float = 1) -> Expr:
    return _clip(x, min_val, max_val)


def _logit(x: Expr, eps: float | None = None) -> Expr:
    inside = x if eps is None else _clip(x, eps, 1 - eps)
    return call("log", call("div", inside, 1 - inside))


def _log_sigmoid(x: Expr) -> Expr:
    zero = const(0, x.dtype)
    return call("min", x, zero) - call("log1p", call("exp", call("neg", call("abs", x))))


def _identity(x: Expr) -> Expr:
    return x


def _rounded(fn: str) -> Callable[[Expr], Expr]:
    return lambda x: call(fn, x) if x.dtype.is_float else x


for _name in ("exp", "expm1", "sin", "cos", "tanh", "erf", "exp2", "tan", "sinh", "cosh", "atan"):
    _unary(_name, _name, FLOATS, INTS)
for _name in ("log", "log2", "log10", "sqrt", "rsqrt"):
    _unary(_name, _name, FLOATS, low=0.1, high=4.0)
for _name in ("asin", "acos"):
    _unary(_name, _name, FLOATS, low=-0.9, high=0.9)
_unary("log1p", "log1p", FLOATS, low=-0.9)
_unary("neg", "neg", FLOATS, INTS)
_unary("abs", "abs", FLOATS, INTS)
for _name in ("floor", "ceil", "trunc", "round"):
    _unary(_name, _rounded(_name), FLOATS, INTS, low=-5, high=5)
_unary("sign", _sign, FLOATS, INTS)
_unary("sgn", _sign, FLOATS, INTS)
_unary("reciprocal", lambda x: call("div", const(1, x.dtype), x), FLOATS, low=0.2)
_unary("sigmoid", sigmoid, FLOATS, INTS)
_unary("silu", silu, FLOATS, low=-8, high=8)
_unary("relu", _relu, FLOATS, INTS)
_unary("relu6", lambda x: _clip(x, 0, 6), FLOATS, high=8)
_unary("mish", _mish, FLOATS)
_unary("hardsigmoid", _hardsigmoid, FLOATS, low=-5, high=5)
_unary("hardswish", lambda x: call("div", x * _clip(x + 3, 0, 6), const(6, x.dtype)), FLOATS, low=-5, high=5)
_unary("log_sigmoid", _log_sigmoid, FLOATS)
_unary("square", lambda x: x * x, FLOATS, INTS)
_unary("erfc", "erfc", SINGLE, (DType.F64,), low=-3, high=6)

row("aten.gelu.default", "pointwise", elementwise(_gelu, ("approximate",)),
    (*unary_samples(FLOATS), *unary_samples(FLOATS, approximate="tanh")))  # fmt: skip
row("aten.softplus.default", "pointwise", elementwise(_softplus, ("beta", "threshold")),
    (*unary_samples(FLOATS, high=30), *unary_samples(FLOATS, beta=2.0, threshold=3.0)))  # fmt: skip
row("aten.elu.default", "pointwise", elementwise(_elu, ("alpha", "scale", "input_scale")),
    (*unary_samples(FLOATS), *unary_samples(FLOATS, alpha=1.5)))  # fmt: skip
row("aten.leaky_relu.default", "pointwise", elementwise(_leaky_relu, ("negative_slope",)),
    (*unary_samples(FLOATS), *unary_samples(FLOATS, negative_slope=0.2)))  # fmt: skip
row("aten.hardtanh.default", "pointwise", elementwise(_hardtanh, ("min_val", "max_val")),
    (*unary_samples(FLOATS), *unary_samples(FLOATS, min_val=-0.5, max_val=1.5)))  # fmt: skip
row("aten.logit.default", "pointwise", elementwise(_logit, ("eps",)),
    (*unary_samples(FLOATS, low=0.1, high=0.9), *unary_samples(SINGLE, low=0, high=1, eps=0.1)))  # fmt: skip


# ------------------------------------------------------------------------------------------------- arithmetic of two


def _add(x: Expr, y: Expr, alpha: float | int = 1) -> Expr:
    if x.dtype == DType.BOOL:
        return call("or", x, y)
    return x + (y if alpha == 1 else y * alpha)


def _sub(x: Expr, y: Expr, alpha: float | int = 1) -> Expr:
    return x - (y if alpha == 1 else y * alpha)


def _mul(x: Expr, y: Expr) -> Expr:
    return call("and", x, y) if x.dtype == DType.BOOL else x * y


def _div_mode(x: Expr, y: Expr, rounding_mode: str | None = None) -> Expr:
    if rounding_mode is None:
        return call("div", x, y)
    if rounding_mode == "floor":
        return call("floordiv", x, y)
    if x.dtype.is_float:
        return call("trunc", call("div", x, y))
    return call("quot", x, y)  # not by way of abs, which the lowest integer has not


def _fmod(x: Expr, y: Expr) -> Expr:
    return call("fmod", x, y)


def _pow(x: Expr, y: Expr) -> Expr:
    """Small whole powers as products, the square and cube roots of use as such: pow() is many times dearer."""
    if isinstance(y, Const):
        exponent = float(y.value)
        if exponent == 2:
            return x * x
        if exponent == 3:
            return x * x * x
        if exponent == 1:
            return x
        if exponent == 0.5:
            return call("sqrt", x)
        if exponent == -1 and x.dtype.is_float:
            return call("div", const(1, x.dtype), x)
        if exponent == -0.5:
            return call("rsqrt", x)
    return call("pow", x, y)


def _two(name: str, fn: Callable[..., Expr], *dtypes: Any, low: float = -2.0, high: float = 2.0,
         attrs: tuple[str, ...] = (), types: str = "out", number: float | int = 1.5, scalar: bool = True,
         extra: tuple[dict[str, Any], ...] = ()) -> None:  # fmt: skip
    """Rows ``name.Tensor`` and ``name.Scalar``."""
    build = elementwise(fn, attrs, types)
    samples = list(binary_samples(*dtypes, low=low, high=high))
    for more in extra:
        samples += binary_samples(*dtypes, low=low, high=high, **more)
    row(f"aten.{name}.Tensor", "pointwise", build, samples)
    if scalar:
        row(
            f"aten.{name}.Scalar",
            "pointwise",
            build,
            (
                *unary_samples(*dtypes, low=low, high=high, other=number),
                *(s for more in extra for s in unary_samples(*dtypes, low=low, high=high, other=number, **more)),
            ),
        )


_two("add", _add, FLOATS, INTS, attrs=("alpha",), number=2, extra=({"alpha": 2},))
_two("sub", _sub, FLOATS, INTS, attrs=("alpha",), number=2, extra=({"alpha": 2},))
_two("mul", _mul, FLOATS, INTS, BOOL, number=2)
_two("div", _div_mode, FLOATS, low=0.3)
_MODES = tuple({"rounding_mode": mode} for mode in ("floor", "trunc"))
row("aten.div.Tensor_mode", "pointwise", elementwise(_div_mode, ("rounding_mode",)),
    [s for mode in _MODES for s in binary_samples(FLOATS, INTS, low=1, high=9, **mode)])  # fmt: skip
row("aten.div.Scalar_mode", "pointwise", elementwise(_div_mode, ("rounding_mode",)),
    [s for mode in _MODES for s in unary_samples(FLOATS, INTS, low=-9, high=9, other=3, **mode)])  # fmt: skip
row("aten.floor_divide.default", "pointwise", elementwise(lambda x, y: call("floordiv", x, y)),
    binary_samples(SINGLE, INTS, low=1, high=9))  # fmt: skip
_two("remainder", lambda x, y: call("mod", x, y), SINGLE, INTS, low=1, high=9, number=3)
_two("fmod", _fmod, SINGLE, INTS, low=1, high=9, number=3)
row("aten.rsub.Scalar", "pointwise", elementwise(lambda x, y, alpha=1: _sub(y, x, alpha), ("alpha",)),
    unary_samples(FLOATS, INTS, other=3))  # fmt: skip
row("aten.rsub.Tensor", "pointwise", elementwise(lambda x, y, alpha=1: _sub(y, x, alpha), ("alpha",)),
    binary_samples(FLOATS, INTS))  # fmt: skip
_power = elementwise(_pow)
row("aten.pow.Tensor_Scalar", "pointwise", _power,
    [s for e in (2, 3, 0.5, -1, -0.5, 1, 2.5, 0) for s in unary_samples(FLOATS, low=0.2, exponent=e)]
    + list(unary_samples(INTS, exponent=3)))  # fmt: skip
row(
    "aten.pow.Tensor_Tensor",
    "pointwise",
    _power,
    (sample(x=T((3, 5), low=0.2), exponent=T((5,))), sample(SINGLE, x=T((1, 7), low=0.2), exponent=T((4, 1)))),
)
row("aten.pow.Scalar", "pointwise", _power, (sample(x=2.0, exponent=T((3, 5))),))
for _name, _fn in (("maximum", "max"), ("minimum", "min")):
    row(f"aten.{_name}.default", "pointwise", elementwise(lambda x, y, fn=_fn: call(fn, x, y)),
        binary_samples(FLOATS, INTS))  # fmt: skip
for _name in ("fmax", "fmin", "atan2"):
    row(f"aten.{_name}.default", "pointwise", elementwise(lambda x, y, fn=_name: call(fn, x, y)),
        binary_samples(FLOATS))  # fmt: skip


# --------------------------------------------------------------------------------- comparisons, logic, bits, choice

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _two(_name, lambda x, y, fn=_name: call(fn, x, y), FLOATS, INTS, types="args", number=0.25)


def _truth(x: Expr) -> Expr:
    return cast(x, DType.BOOL) if x.dtype == DType.BOOL else call("ne", x, const(0, x.dtype))


for _name, _fn in (("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "ne")):
    row(f"aten.{_name}.default", "pointwise",
        elementwise(lambda x, y, fn=_fn: call(fn, _truth(x), _truth(y)), types="args"),
        binary_samples(BOOL, INTS, SINGLE))  # fmt: skip
row("aten.logical_not.default", "pointwise", elementwise(lambda x: call("not", _truth(x)), types="args"),
    unary_samples(BOOL, INTS, SINGLE))  # fmt: skip
_LOGIC = {"bitand": "and", "bitor": "or", "bitxor": "ne"}


def _bits(fn: str) -> Callable[[Expr, Expr], Expr]:
    return lambda x, y: call(_LOGIC[fn] if x.dtype == DType.BOOL else fn, x, y)


for _name, _fn in (("bitwise_and", "bitand"), ("bitwise_or", "bitor"), ("bitwise_xor", "bitxor")):
    _two(_name, _bits(_fn), INTS, BOOL, low=0, high=9, number=5)
row("aten.bitwise_not.default", "pointwise",
    elementwise(lambda x: call("not", x) if x.dtype == DType.BOOL else -1 - x), unary_samples(BOOL, INTS))  # fmt: skip
for _name in ("isnan", "isinf"):
    row(f"aten.{_name}.default", "pointwise", elementwise(lambda x, fn=_name: call(fn, x), types="args"),
        unary_samples(FLOATS))  # fmt: skip


def _where(b: Builder, condition: Val, self: Val | float | int, other: Val | float | int) -> Val:
    shape, kind = b.out.shape, b.out.dtype

    def value(arg: Val | float | int, coords: tuple[Expr, ...]) -> Expr:
        if isinstance(arg, Val):
            return convert(arg.over(shape).at(coords), kind)
        return const(arg, kind.compute)

    return b.map(shape, kind, lambda c: select(_truth(condition.over(shape).at(c)), value(self, c), value(other, c)))


_MASK = T((3, 5), DType.BOOL)
row("aten.where.self", "pointwise", _where,
    (sample(FLOATS, INTS, condition=_MASK, x=T((3, 5)), other=T((5,))),
     sample(SINGLE, condition=T((4, 1), DType.BOOL), x=T(()), other=T((1, 7)))))  # fmt: skip
row("aten.where.ScalarOther", "pointwise", _where, (sample(condition=_MASK, x=T((3, 5)), other=-1.5),))
row("aten.where.ScalarSelf", "pointwise", _where, (sample(condition=_MASK, x=2.5, other=T((3, 5))),))


def _masked_fill(b: Builder, self: Val, mask: Val, value: Val | float | int) -> Val:
    return _where(b, mask, value, self)


row(
    "aten.masked_fill.Scalar",
    "pointwise",
    _masked_fill,
    (sample(x=T((3, 5)), mask=_MASK, value=-math.inf), sample(SINGLE, x=T((3, 5)), mask=T((5,), DType.BOOL), value=3)),
)
row("aten.masked_fill.Tensor", "pointwise", _masked_fill, (sample(x=T((3, 5)), mask=_MASK, value=T(())),))


def _clamp(x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    bounded = x if low is None else call("max", x, low)
    return bounded if high is None else call("min", bounded, high)


def _clamp_build(b: Builder, self: Val, min: Any = None, max: Any = None) -> Val:
    return elementwise(_clamp)(b, x=self, low=min, high=max)


row(
    "aten.clamp.default",
    "pointwise",
    _clamp_build,
    (*unary_samples(FLOATS, INTS, min=-1, max=1), *unary_samples(FLOATS, min=0.5), *unary_samples(FLOATS, max=0.5)),
)
row("aten.clamp.Tensor", "pointwise", _clamp_build, (sample(x=T((3, 5)), min=T((5,)), max=T((3, 1))),))
row("aten.clamp_min.default", "pointwise", _clamp_build, unary_samples(FLOATS, INTS, min=0))
row("aten.clamp_max.default", "pointwise", _clamp_build, unary_samples(FLOATS, INTS, max=1))


def _addcmul(x: Expr, a: Expr, c: Expr, value: float = 1) -> Expr:
    return x + (a * c if value == 1 else a * value * c)


def _addcdiv(x: Expr, a: Expr, c: Expr, value: float = 1) -> Expr:
    return x + call("div", a if value == 1 else a * value, c)


_THREE: dict[str, Any] = {"x": T((3, 5)), "tensor1": T((5,)), "tensor2": T((3, 1), low=0.5)}
row("aten.addcmul.default", "pointwise", elementwise(_addcmul, ("value",)), (sample(**_THREE, value=0.5),))
row("aten.addcdiv.default", "pointwise", elementwise(_addcdiv, ("value",)), (sample(**_THREE, value=0.5),))
row("aten.lerp.Scalar", "pointwise", elementwise(lambda x, end, weight: x + (end - x) * weight),
    (sample(x=T((3, 5)), end=T((3, 5)), weight=0.3),))  # fmt: skip
row("aten.lerp.Tensor", "pointwise", elementwise(lambda x, end, weight: x + (end - x) * weight),
    (sample(x=T((3, 5)), end=T((3, 5)), weight=T((5,), low=0, high=0.4)),))  # fmt: skip
