"""Rows of several computations: softmax, norms, attention."""

from __future__ import annotations

import math
from typing import Any

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, call, floordiv, select
from emmy.passes.ops.contraction import broadcast, contract, transposed
from emmy.passes.ops.core import (
    FLOATS,
    ONE,
    SINGLE,
    Builder,
    Coords,
    T,
    Val,
    axis,
    const,
    convert,
    drop,
    row,
    sample,
)
from emmy.passes.ops.index import reshaped
from emmy.passes.ops.reduction import count, kept, moments, reduced


def softmax(b: Builder, value: Val, dim: int, log: bool, safe: bool = False, tag: str = "") -> Val:
    """``exp(x - m) / l``, or its logarithm, over axis ``dim``. ``safe``: a row of only -inf gives zeros, not NaN."""
    kind = value.dtype
    if not value.rank:
        wide = value.view((ONE,), lambda c: ())
        return softmax(b, wide, 0, log, safe, tag).view((), lambda c: (Const(0, DType.I32),))
    at = axis(dim, value.rank)
    top, total = reduced(b, value, (at,), "online_softmax", kind, f"{tag}_ml" if tag else "ml")

    def element(c: Coords) -> Expr:
        rest = drop(c, (at,))
        m, x = top.at(rest), convert(value.at(c), kind)
        if log:
            return x - m - call("log", total.at(rest))
        share = call("div", call("exp", x - m), total.at(rest))
        return select(call("eq", m, const(-math.inf, m.dtype)), const(0, m.dtype), share) if safe else share

    return b.map(value.shape, kind, element, tag)


def _softmax(log: bool) -> Any:
    def build(b: Builder, self: Val, dim: int, **_: Any) -> Val:
        kind = b.out.dtype
        return softmax(b, Val(self.shape, kind, lambda c: convert(self.at(c), kind)), dim, log)

    return build


def _affine(value: Expr, at: Coords, weight: Val | None, bias: Val | None) -> Expr:
    scaled = value if weight is None else value * convert(weight.at(at), value.dtype)
    return scaled if bias is None else scaled + convert(bias.at(at), value.dtype)


def _layer_norm(b: Builder, input: Val, normalized_shape: Any, weight: Val | None = None, bias: Val | None = None,
                eps: float = 1e-5, **_: Any) -> tuple[Val, Val, Val]:  # fmt: skip
    first = input.rank - len(normalized_shape)
    over = tuple(range(first, input.rank))
    kind = input.dtype
    mean, squares = moments(b, input, over, kind)
    n = count(input, over, kind)

    def scale(c: Coords) -> Expr:
        return call("rsqrt", call("div", squares.at(c), n) + eps)

    def element(c: Coords) -> Expr:
        outer = c[:first]
        return _affine((input.at(c) - mean.at(outer)) * scale(outer), c[first:], weight, bias)

    out = b.map(input.shape, kind, element)
    inverse = b.map(mean.shape, kind, scale, "rstd")
    return out, kept(mean, over, True), kept(inverse, over, True)


def _layer_norm_only(b: Builder, **args: Any) -> Val:
    args.pop("cudnn_enable", None)
    return _layer_norm(b, **args)[0]


def _rms_norm(
    b: Builder, input: Val, normalized_shape: Any, weight: Val | None = None, eps: float | None = None
) -> Val:
    first = input.rank - len(normalized_shape)
    over = tuple(range(first, input.rank))
    kind = input.dtype
    small = eps if eps is not None else _epsilon(kind)
    squares = reduced(b, input, over, "sum", kind, "squares", lambda x: x * x)[0]
    n = count(input, over, kind)

    def element(c: Coords) -> Expr:
        scale = call("rsqrt", call("div", squares.at(c[:first]), n) + small)
        return _affine(input.at(c) * scale, c[first:], weight, None)

    return b.map(b.out.shape, b.out.dtype, element)


def _epsilon(dtype: DType) -> float:
    """torch.finfo of the compute type: what rms_norm adds when no eps is given."""
    return 2.0**-52 if dtype == DType.F64 else 2.0**-23


def _group_norm(b: Builder, input: Val, num_groups: int, weight: Val | None = None, bias: Val | None = None,
                eps: float = 1e-5, **_: Any) -> Val:  # fmt: skip
    groups = Const(num_groups, DType.I32)
    per = floordiv(input.shape[1], groups)
    grouped = reshaped(input, (input.shape[0], groups, per, *input.shape[2:]))
    over = tuple(range(2, grouped.rank))
    mean, squares = moments(b, grouped, over, input.dtype)
    n = count(grouped, over, input.dtype)

    def element(c: Coords) -> Expr:
        group = (c[0], floordiv(c[1], per))
        scale = call("rsqrt", call("div", squares.at(group), n) + eps)
        return _affine((input.at(c) - mean.at(group)) * scale, (c[1],), weight, bias)

    return b.map(input.shape, input.dtype, element)


def _batch_norm(
    b: Builder,
    input: Val,
    weight: Val | None = None,
    bias: Val | None = None,
    running_mean: Val | None = None,
    running_var: Val | None = None,
    training: bool = False,
    eps: float = 1e-5,
    **_: Any,
) -> Val:
    if training or running_mean is None or running_var is None:
        raise b.refuse("batch_norm in training mode updates its statistics; call .eval() on the module")
    mean, var = running_mean, running_var

    def element(c: Coords) -> Expr:
        x = input.at(c)
        at = (c[1],)
        scale = call("rsqrt", convert(var.at(at), input.dtype) + eps)
        return _affine((x - convert(mean.at(at), input.dtype)) * scale, at, weight, bias)

    return b.map(input.shape, input.dtype, element)


def _attention(b: Builder, query: Val, key: Val, value: Val, attn_mask: Val | None = None, dropout_p: float = 0.0,
               is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Val:  # fmt: skip
    """Scores by a contraction, scale and mask, softmax, a contraction with the values.

    Heads that share keys and values (grouped heads) read them at ``head // group``. Position i sees positions
    ``j <= i`` when causal. A row that is masked throughout gives zeros.
    """
    if dropout_p:
        raise b.refuse("dropout in attention is random; pass dropout_p=0.0")
    kind = query.dtype
    if enable_gqa:
        key, value = _shared(b, key, query), _shared(b, value, query)
    depth = query.shape[-1]
    if scale is None and not isinstance(depth, Const):
        raise b.refuse("the head dimension is symbolic; pass scale=")
    factor = scale if scale is not None else 1 / math.sqrt(int(depth.value)) if isinstance(depth, Const) else 1.0
    raw = contract(b, query, transposed(key), "qk")
    mask = (
        None
        if attn_mask is None
        else attn_mask.over((*broadcast(raw.shape[:-2], attn_mask.shape[:-2]), *raw.shape[-2:]))
    )

    def score(c: Coords) -> Expr:
        s = raw.at(c) * factor
        low = const(-math.inf, s.dtype)
        if mask is not None:
            held = mask.at(c)
            s = select(held, s, low) if held.dtype == DType.BOOL else s + convert(held, kind)
        return select(call("le", c[-1], c[-2]), s, low) if is_causal else s

    scores = b.map(raw.shape, kind, score, "scores")
    weights = softmax(b, scores, -1, log=False, safe=mask is not None, tag="p")
    return contract(b, weights, value)


def _shared(b: Builder, value: Val, query: Val) -> Val:
    heads, own = query.shape[-3], value.shape[-3]
    if heads == own:
        return value
    group = floordiv(heads, own)
    return value.view((*value.shape[:-3], heads, *value.shape[-2:]),
                      lambda c: (*c[:-3], floordiv(c[-3], group), *c[-2:]))  # fmt: skip


def _cumulative(b: Builder, self: Val, dim: int, **_: Any) -> Val:
    """A running sum as a sum of its own per element: quadratic, so only for what a model's masks and positions need."""
    at = axis(dim, self.rank)
    kind = b.out.dtype

    def element(i: Coords, k: Coords) -> Expr:
        held = convert(self.at((*i[:at], k[0], *i[at + 1 :])), kind)
        return select(call("le", k[0], i[at]), held, const(0, held.dtype))

    return b.reduce(self.shape, (self.shape[at],), "sum", kind, element)[0]


# ----------------------------------------------------------------------------------------------------------- rows

_X = T((3, 7, 4), low=-4, high=4)
for _name, _log in (("softmax", False), ("log_softmax", True)):
    row(f"aten._{_name}.default", "composite", _softmax(_log),
        [sample(FLOATS[:1] + FLOATS[3:], x=_X, dim=d, half_to_float=False) for d in (-1, 1, 0)])  # fmt: skip
    row(f"aten.{_name}.int", "composite", _softmax(_log),
        [sample(x=_X, dim=-1), sample(SINGLE, x=T((5, 1)), dim=1), sample(SINGLE, x=T((0, 3)), dim=1),
         sample(SINGLE, x=T(()), dim=0), sample(DType.F16, x=_X, dim=-1, dtype=DType.F32)])  # fmt: skip
_NORM: dict[str, Any] = {"input": _X, "normalized_shape": (4,), "weight": T((4,)), "bias": T((4,))}
row("aten.native_layer_norm.default", "composite", _layer_norm,
    [sample(SINGLE, DType.F64, **_NORM, eps=1e-5),
     sample(SINGLE, input=_X, normalized_shape=(7, 4), weight=None, bias=None, eps=1e-3)])  # fmt: skip
row(
    "aten.layer_norm.default",
    "composite",
    _layer_norm_only,
    [
        sample(**_NORM),
        sample(SINGLE, input=_X, normalized_shape=(7, 4)),
        sample(SINGLE, input=T((5, 1)), normalized_shape=(1,)),
    ],
)
row("aten.rms_norm.default", "composite", _rms_norm,
    [sample(input=_X, normalized_shape=(4,), weight=T((4,)), eps=1e-6), sample(input=_X, normalized_shape=(7, 4)),
     sample(SINGLE, input=T((5, 1)), normalized_shape=(1,))])  # fmt: skip
row("aten.group_norm.default", "composite", _group_norm,
    [sample(SINGLE, input=T((2, 6, 5)), num_groups=3, weight=T((6,)), bias=T((6,)))])  # fmt: skip
row(
    "aten.batch_norm.default",
    "composite",
    _batch_norm,
    [
        sample(
            SINGLE,
            input=T((2, 6, 5)),
            weight=T((6,)),
            bias=T((6,)),
            running_mean=T((6,)),
            running_var=T((6,), low=0.5),
            training=False,
            momentum=0.1,
            eps=1e-5,
            cudnn_enabled=False,
        )
    ],
)
_Q, _KV = T((2, 4, 5, 8)), T((2, 4, 7, 8))
_QKV: dict[str, Any] = {"query": _Q, "key": _KV, "value": _KV}
_GROUPED: dict[str, Any] = {"query": _Q, "key": T((2, 2, 7, 8)), "value": T((2, 2, 7, 8))}
row("aten.scaled_dot_product_attention.default", "composite", _attention,
    [sample(**_QKV), sample(**_QKV, is_causal=True), sample(**_GROUPED, enable_gqa=True),
     sample(**_QKV, attn_mask=T((5, 7), DType.BOOL)), sample(**_QKV, attn_mask=T((2, 1, 5, 7))),
     sample(SINGLE, **_QKV, attn_mask=T((2, 4, 5, 7), DType.BOOL), scale=0.3),
     sample(SINGLE, query=T((5, 8)), key=T((7, 8)), value=T((7, 3))),
     sample(SINGLE, query=T((1, 1, 1, 8)), key=T((1, 1, 1, 8)), value=T((1, 1, 1, 8)), is_causal=True)])  # fmt: skip
row(
    "aten.cumsum.default",
    "composite",
    _cumulative,
    [sample(FLOATS, DType.I64, x=_X, dim=1), sample(SINGLE, x=T((1,)), dim=0), sample(DType.I64, x=T((0, 3)), dim=0)],
)
