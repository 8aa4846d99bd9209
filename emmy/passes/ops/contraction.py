"""Contraction rows: sums of products, accumulated in float32 for 16-bit floats."""

from __future__ import annotations

from typing import Any

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr
from emmy.passes.ops.core import FLOATS, ONE, SINGLE, Builder, Coords, Sample, Shape, T, Val, convert, row, sample

TYPES = (*FLOATS, DType.I64, DType.I32)


def contract(b: Builder, left: Val, right: Val, tag: str = "") -> Val:
    """``left[…, m, k] @ right[…, k, n]`` with batch axes broadcast, both of rank two or more."""
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    shape = (*batch, left.shape[-2], right.shape[-1])
    kind = b.out.dtype
    wide_left = left.over((*batch, *left.shape[-2:]))
    wide_right = right.over((*batch, *right.shape[-2:]))

    def product(i: Coords, k: Coords) -> Expr:
        *outer, m, n = i
        a, c = wide_left.at((*outer, m, k[0])), wide_right.at((*outer, k[0], n))
        return convert(a, kind) * convert(c, kind)

    return b.reduce(shape, (left.shape[-1],), "sum", kind, product, tag)[0]


def broadcast(a: Shape, c: Shape) -> Shape:
    """The common shape of two shapes aligned at the last axis."""
    rank = max(len(a), len(c))
    first, second = (ONE,) * (rank - len(a)) + a, (ONE,) * (rank - len(c)) + c
    return tuple(y if x == ONE else x for x, y in zip(first, second, strict=True))


def matmul(b: Builder, self: Val, other: Val, tag: str = "") -> Val:
    """torch.matmul: vectors act as a row on the left and as a column on the right."""
    left = self if self.rank > 1 else self.view((ONE, *self.shape), lambda c: c[1:])
    right = other if other.rank > 1 else other.view((*other.shape, ONE), lambda c: c[:-1])
    if self.rank > 1 and other.rank > 1:
        return contract(b, left, right, tag)
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    shape = (*batch, *((left.shape[-2],) if self.rank > 1 else ()), *((right.shape[-1],) if other.rank > 1 else ()))
    wide_left, wide_right = left.over((*batch, *left.shape[-2:])), right.over((*batch, *right.shape[-2:]))
    kind = b.out.dtype

    def product(i: Coords, k: Coords) -> Expr:
        outer, inner = i[: len(batch)], i[len(batch) :]
        m = inner[0] if self.rank > 1 else ONE * 0
        n = inner[-1] if other.rank > 1 else ONE * 0
        a, c = wide_left.at((*outer, m, k[0])), wide_right.at((*outer, k[0], n))
        return convert(a, kind) * convert(c, kind)

    return b.reduce(shape, (self.shape[-1],), "sum", kind, product, tag)[0]


def transposed(value: Val) -> Val:
    """The last two axes swapped."""
    return value.view((*value.shape[:-2], value.shape[-1], value.shape[-2]), lambda c: (*c[:-2], c[-1], c[-2]))


def _product(b: Builder, self: Val, **other: Val) -> Val:
    (right,) = other.values()
    return matmul(b, self, right)


def _linear(b: Builder, input: Val, weight: Val, bias: Val | None = None) -> Val:
    rows = weight if weight.rank > 1 else weight.view((ONE, *weight.shape), lambda c: c[1:])
    if weight.rank == 1:
        return matmul(b, input, weight)
    if bias is None:
        return matmul(b, input, transposed(rows))
    return plus(b, matmul(b, input, transposed(rows), "mm"), bias, 1, 1)


def plus(b: Builder, result: Val, added: Val, alpha: Any, beta: Any) -> Val:
    """``alpha * result + beta * added``, broadcast to the result."""
    kind = b.out.dtype

    def element(c: Coords) -> Expr:
        first = result.at(c)
        second = convert(added.over(result.shape).at(c), kind)
        return (first if alpha == 1 else first * alpha) + (second if beta == 1 else second * beta)

    return b.map(result.shape, kind, element)


def _addmm(b: Builder, self: Val, alpha: Any = 1, beta: Any = 1, **operands: Val) -> Val:
    left, right = operands.values()
    product = matmul(b, left, right, "mm")
    return product if beta == 0 and alpha == 1 else plus(b, product, self, alpha, beta)


def _products(left: str, right: str, *pairs: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[Sample, ...]:
    first, *others = pairs
    return (
        sample(TYPES, **{left: T(first[0]), right: T(first[1])}),
        *(sample(SINGLE, **{left: T(a), right: T(c)}) for a, c in others),
    )


row("aten.mm.default", "contraction", _product,
    _products("x", "mat2", ((7, 13), (13, 5)), ((1, 3), (3, 1)), ((0, 4), (4, 3)), ((3, 0), (0, 2))))  # fmt: skip
row("aten.bmm.default", "contraction", _product,
    _products("x", "mat2", ((3, 5, 7), (3, 7, 2)), ((1, 1, 1), (1, 1, 1)), ((0, 2, 3), (0, 3, 2))))  # fmt: skip
row("aten.mv.default", "contraction", _product, _products("x", "vec", ((5, 7), (7,)), ((1, 1), (1,))))
row("aten.dot.default", "contraction", _product, _products("x", "tensor", ((7,), (7,)), ((1,), (1,))))
row("aten.matmul.default", "contraction", _product,
    _products("x", "other", ((7, 13), (13, 5)), ((2, 3, 5, 7), (2, 3, 7, 2)), ((4, 1, 2, 3), (5, 3, 2)), ((3,), (3,)),
              ((3,), (3, 2)), ((2, 3), (3,)), ((4, 2, 3), (3,)), ((3,), (4, 3, 2)), ((2, 3, 4), (4, 5))))  # fmt: skip
row(
    "aten.linear.default",
    "contraction",
    _linear,
    (
        sample(input=T((2, 3, 7)), weight=T((5, 7)), bias=T((5,))),
        sample(input=T((3, 7)), weight=T((5, 7))),
        sample(SINGLE, input=T((7,)), weight=T((5, 7)), bias=T((5,))),
        sample(SINGLE, input=T((0, 7)), weight=T((5, 7))),
    ),
)
row("aten.addmm.default", "contraction", _addmm,
    (sample(TYPES, x=T((5,)), mat1=T((3, 7)), mat2=T((7, 5))),
     sample(SINGLE, x=T((3, 5)), mat1=T((3, 7)), mat2=T((7, 5)), beta=0.5, alpha=2)))  # fmt: skip
row("aten.addmv.default", "contraction", _addmm, (sample(x=T((3,)), mat=T((3, 7)), vec=T((7,))),))
row("aten.baddbmm.default", "contraction", _addmm,
    (sample(x=T((2, 3, 5)), batch1=T((2, 3, 7)), batch2=T((2, 7, 5))),
     sample(SINGLE, x=T((1, 5)), batch1=T((2, 3, 7)), batch2=T((2, 7, 5)), beta=0.5, alpha=2)))  # fmt: skip
