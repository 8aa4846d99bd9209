"""Index rows: views and moves. A view only re-maps coordinates; a concatenation or padding is a choice between loads.

A ``select`` is lazy: its branches may hold loads whose coordinates are out of range where the branch is not taken.
"""

from __future__ import annotations

from typing import Any

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, both, call, floordiv, i32, lt, mod, select
from emmy.passes.ops.core import (
    INTS,
    ONE,
    SINGLE,
    ZERO,
    Builder,
    Coords,
    Shape,
    T,
    Val,
    as_index,
    axis,
    const,
    convert,
    dims,
    drop,
    insert,
    normalised,
    product,
    row,
    sample,
    size,
)

LAST = 2**63 - 1
"""torch's end of an open slice."""


def permuted(value: Val, order: tuple[int, ...]) -> Val:
    """Axes reordered: axis ``n`` of the result is axis ``order[n]`` of ``value``."""
    inverse = tuple(order.index(n) for n in range(len(order)))
    return value.view(tuple(value.shape[n] for n in order), lambda c: tuple(c[n] for n in inverse))


def reshaped(value: Val, shape: Shape) -> Val:
    """The same elements in row-major order under another shape; axes that stay are passed through."""
    groups = _groups(value.shape, shape)

    def coords(c: Coords) -> Coords:
        out: list[Expr] = []
        for old, new in groups:
            out += _regroup(c[new[0] : new[1]], shape[new[0] : new[1]], value.shape[old[0] : old[1]])
        return tuple(out)

    return value.view(shape, coords)


def _groups(old: Shape, new: Shape) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Runs of old and new axes that cover the same elements, as short as possible."""
    if product(old) != product(new) or ZERO in (product(old), product(new)):
        return [((0, len(old)), (0, len(new)))]
    prefix_new = {product(new[:n]): n for n in range(len(new), -1, -1)}
    out = []
    i = j = 0
    for k in range(1, len(old) + 1):
        match = prefix_new.get(product(old[:k]))
        if match is None or (match <= j and k < len(old)):
            continue
        end = len(new) if k == len(old) else match
        out.append(((i, k), (j, end)))
        i, j = k, end
    if i < len(old) or j < len(new):
        out.append(((i, len(old)), (j, len(new))))
    return out


def _regroup(coords: Coords, extents: Shape, target: Shape) -> list[Expr]:
    if extents == target:
        return list(coords)
    linear: Expr = ZERO
    for coordinate, extent in zip(coords, extents, strict=True):
        linear = linear * extent + coordinate
    out: list[Expr] = []
    for n, extent in enumerate(target):
        inner = product(target[n + 1 :])
        step = linear if inner == ONE else floordiv(linear, inner)
        out.append(step if n == 0 else mod(step, extent))
    return out


def _permute(b: Builder, self: Val, dims: tuple[int, ...]) -> Val:
    return permuted(self, tuple(axis(d, self.rank) for d in dims))


def _transpose(b: Builder, self: Val, dim0: int, dim1: int) -> Val:
    order = list(range(self.rank))
    if order:
        first, second = axis(dim0, self.rank), axis(dim1, self.rank)
        order[first], order[second] = order[second], order[first]
    return permuted(self, tuple(order))


def _t(b: Builder, self: Val) -> Val:
    return permuted(self, tuple(reversed(range(self.rank))))


def _view(b: Builder, self: Val, **_: Any) -> Val:
    return reshaped(self, b.out.shape)


def _expand(b: Builder, self: Val, **_: Any) -> Val:
    return self.over(b.out.shape)


def _unsqueeze(b: Builder, self: Val, dim: int) -> Val:
    at = dim % (self.rank + 1)
    return self.view(insert(self.shape, (at,), (ONE,)), lambda c: drop(c, (at,)))


def _squeeze(b: Builder, self: Val, dim: Any = None) -> Val:
    gone = tuple(d for d in dims(dim, self.rank) if self.shape[d] == ONE)
    return self.view(drop(self.shape, gone), lambda c: insert(c, gone, (ZERO,) * len(gone)))


def sliced(value: Val, dim: int, start: Expr, step: int, extent: Expr) -> Val:
    """``extent`` elements from ``start`` in steps of ``step`` along axis ``dim``."""
    shape = (*value.shape[:dim], extent, *value.shape[dim + 1 :])
    return value.view(shape, lambda c: (*c[:dim], c[dim] * step + start, *c[dim + 1 :]))


def bound(value: Any, extent: Expr) -> Expr:
    """A slice bound counted from the front; a negative one counts from the end. Clamped to the axis."""
    if isinstance(value, int) and value < 0:
        return normalised(call("max", extent + value, ZERO))
    return normalised(call("min", size(value), extent))


def _slice(b: Builder, self: Val, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Val:
    at = axis(dim, self.rank)
    first = ZERO if start is None else bound(start, self.shape[at])
    return sliced(self, at, first, step, b.out.shape[at])


def _select(b: Builder, self: Val, dim: int, index: Any) -> Val:
    at = axis(dim, self.rank)
    where = normalised(self.shape[at] + index) if isinstance(index, int) and index < 0 else size(index)
    return self.view(drop(self.shape, (at,)), lambda c: insert(c, (at,), (where,)))


def _pieces(b: Builder, self: Val, dim: int) -> tuple[Val, ...]:
    assert b.node is not None
    at, out = axis(dim, self.rank), []
    start: Expr = ZERO
    for result in b.node.results:
        out.append(sliced(self, at, start, 1, result.shape[at]))
        start = normalised(start + result.shape[at])
    return tuple(out)


def _split(b: Builder, self: Val, dim: int = 0, **_: Any) -> tuple[Val, ...]:
    return _pieces(b, self, dim)


def _unbind(b: Builder, self: Val, dim: int = 0) -> tuple[Val, ...]:
    assert b.node is not None
    at = axis(dim, self.rank)
    return tuple(_select(b, self, at, n) for n in range(len(b.node.results)))


def joined(b: Builder, parts: tuple[Val, ...], dim: int) -> Val:
    """Concatenation along axis ``dim``."""
    starts: list[Expr] = [ZERO]
    for part in parts:
        starts.append(normalised(starts[-1] + part.shape[dim]))

    def element(c: Coords) -> Expr:
        value: Expr | None = None
        for part, start, end in reversed(list(zip(parts, starts, starts[1:], strict=False))):
            here = convert(part.at((*c[:dim], c[dim] - start, *c[dim + 1 :])), b.out.dtype)
            value = here if value is None else select(lt(c[dim], end), here, value)
        assert value is not None
        return value

    return b.map(b.out.shape, b.out.dtype, element)


def _cat(b: Builder, tensors: tuple[Val, ...], dim: int = 0) -> Val:
    # torch lets a legacy empty 1-d tensor stand in any concatenation
    parts = tuple(t for t in tensors if not (t.rank == 1 and t.shape[0] == ZERO and b.node and len(b.out.shape) != 1))
    return joined(b, parts, axis(dim, len(b.out.shape)))


def _stack(b: Builder, tensors: tuple[Val, ...], dim: int = 0) -> Val:
    return joined(b, tuple(_unsqueeze(b, t, axis(dim, t.rank + 1)) for t in tensors), axis(dim, len(b.out.shape)))


def _unfold(b: Builder, self: Val, dimension: int, size: int, step: int) -> Val:
    at = axis(dimension, self.rank)
    return self.view(b.out.shape, lambda c: (*c[:at], c[at] * step + c[-1], *c[at + 1 : -1]))


def _flip(b: Builder, self: Val, dims: tuple[int, ...]) -> Val:
    turned = {axis(d, self.rank) for d in dims}
    return self.view(self.shape, lambda c: tuple(self.shape[n] - 1 - i if n in turned else i for n, i in enumerate(c)))


def _roll(b: Builder, self: Val, shifts: tuple[int, ...], dims: tuple[int, ...] = ()) -> Val:
    if not dims:
        flat = reshaped(self, (product(self.shape),))
        return reshaped(_rolled(flat, {0: shifts[0]}), self.shape)
    by: dict[int, int] = {}
    for d, shift in zip(dims, shifts, strict=True):
        by[axis(d, self.rank)] = by.get(axis(d, self.rank), 0) + shift
    return _rolled(self, by)


def _rolled(value: Val, by: dict[int, int]) -> Val:
    def coords(c: Coords) -> Coords:
        out = list(c)
        for d, shift in by.items():
            extent = value.shape[d]
            back = (-shift) % int(extent.value) if isinstance(extent, Const) and extent.value else -shift
            offset = i32(back) if back >= 0 else extent * (-back) + back  # never negative: the extent is at least 1
            out[d] = mod(c[d] + offset, extent)
        return tuple(out)

    return value.view(value.shape, coords)


def _repeat(b: Builder, self: Val, repeats: tuple[Any, ...]) -> Val:
    lead = len(repeats) - self.rank
    return self.view(
        b.out.shape,
        lambda c: tuple(
            mod(i, extent) if r != 1 else i for i, extent, r in zip(c[lead:], self.shape, repeats[lead:], strict=True)
        ),
    )


def _pad(b: Builder, self: Val, pad: tuple[Any, ...], value: float = 0.0) -> Val:
    before = {self.rank - 1 - n: size(pad[2 * n]) for n in range(len(pad) // 2)}
    after = {self.rank - 1 - n: size(pad[2 * n + 1]) for n in range(len(pad) // 2)}

    def element(c: Coords) -> Expr:
        inside: Expr | None = None
        at = list(c)
        for d in sorted(before):
            at[d] = c[d] - before[d]
            if before[d] != ZERO:
                inside = both(inside, call("ge", c[d], before[d]))
            if after[d] != ZERO:
                inside = both(inside, lt(c[d], before[d] + self.shape[d]))
        held = self.at(tuple(at))
        return held if inside is None else select(inside, held, const(value, held.dtype))

    return b.map(b.out.shape, b.out.dtype, element)


# ---------------------------------------------------------------------------------------- data-dependent coordinates


def _wrapped(index: Expr, extent: Expr) -> Expr:
    at = as_index(index)
    return select(lt(at, ZERO), at + extent, at)


def _embedding(b: Builder, weight: Val, indices: Val, **_: Any) -> Val:
    lead = indices.rank
    return b.map(b.out.shape, b.out.dtype, lambda c: weight.at((as_index(indices.at(c[:lead])), *c[lead:])))


def _index_select(b: Builder, self: Val, dim: int, index: Val) -> Val:
    at = axis(dim, self.rank)
    flat = index if index.rank else index.view((ONE,), lambda c: ())
    return b.map(b.out.shape, b.out.dtype, lambda c: self.at((*c[:at], as_index(flat.at((c[at],))), *c[at + 1 :])))


def _gather(b: Builder, self: Val, dim: int, index: Val, **_: Any) -> Val:
    at = axis(dim, self.rank)
    return b.map(b.out.shape, b.out.dtype, lambda c: self.at((*c[:at], as_index(index.at(c)), *c[at + 1 :])))


def _index(b: Builder, self: Val, indices: tuple[Val | None, ...]) -> Val:
    """``self[i, :, j]``: the index tensors' common shape stands where they do, or first when they are apart."""
    if any(i is not None and i.dtype == DType.BOOL for i in indices):
        raise b.refuse("a boolean index has a data-dependent shape")
    used = [n for n, i in enumerate(indices) if i is not None]
    lead = used[0] if used == list(range(used[0], used[-1] + 1)) else 0
    rank = max(i.rank for i in indices if i is not None)
    shape = b.out.shape[lead : lead + rank]

    def element(c: Coords) -> Expr:
        chosen, kept = c[lead : lead + rank], [*c[:lead], *c[lead + rank :]]
        at = []
        for n in range(self.rank):
            index = indices[n] if n < len(indices) else None
            at.append(kept.pop(0) if index is None else _wrapped(index.over(shape).at(chosen), self.shape[n]))
        return self.at(tuple(at))

    return b.map(b.out.shape, b.out.dtype, element)


def _triangle(keep: str) -> Any:
    def build(b: Builder, self: Val, diagonal: int = 0) -> Val:
        def element(c: Coords) -> Expr:
            held = self.at(c)
            return select(call(keep, c[-1], c[-2] + diagonal), held, const(0, held.dtype))

        return b.map(self.shape, self.dtype, element)

    return build


# ----------------------------------------------------------------------------------------------------------- rows

_X = T((3, 5, 4))


def _view_row(name: str, build: Any, *samples: dict[str, Any]) -> None:
    row(name, "index", build, [sample(SINGLE, INTS, **{"x": _X, **args}) for args in samples])


_view_row("aten.permute.default", _permute, {"dims": (2, 0, 1)}, {"dims": (-1, 1, 0)})
_view_row("aten.transpose.int", _transpose, {"dim0": 0, "dim1": -1})
_view_row("aten.t.default", _t, {"x": T((3, 5))}, {"x": T((4,))})
for _name, _arg in (("view", "size"), ("reshape", "shape"), ("_unsafe_view", "size")):
    _view_row(f"aten.{_name}.default", _view, {_arg: (15, 4)}, {_arg: (3, 20)}, {_arg: (2, 30)}, {_arg: (60,)},
              {_arg: (3, 5, 2, 2)}, {_arg: (5, 3, 4)}, {"x": T((0, 3)), _arg: (3, 0)}, {"x": T((1, 1)), _arg: ()},
              {"x": T((7, 1, 6)), _arg: (1, 7, 2, 3)})  # fmt: skip
row("aten.flatten.using_ints", "index", lambda b, self, **_: reshaped(self, b.out.shape),
    (sample(SINGLE, x=_X, start_dim=1),))  # fmt: skip
_view_row("aten.expand.default", _expand, {"x": T((3, 1, 4)), "size": (2, 3, 5, 4)}, {"x": T(()), "size": (3,)})
_view_row("aten.unsqueeze.default", _unsqueeze, {"dim": 0}, {"dim": -1}, {"dim": 2})
_view_row("aten.squeeze.dims", _squeeze, {"x": T((1, 5, 1)), "dim": (0, 1, 2)})
_view_row("aten.squeeze.dim", _squeeze, {"x": T((1, 5, 1)), "dim": -1}, {"dim": 0})
_view_row("aten.squeeze.default", _squeeze, {"x": T((1, 5, 1))})
_view_row(
    "aten.slice.Tensor",
    _slice,
    {"dim": 1, "start": 1, "end": 4},
    {"dim": -1, "start": -3, "end": LAST, "step": 2},
    {"dim": 0, "start": 2, "end": 2},
    {"dim": 0, "end": -1},
    {"dim": 1, "start": -99, "end": 99},
)
_view_row("aten.select.int", _select, {"dim": 0, "index": -1}, {"dim": 1, "index": 2})
_view_row("aten.split.Tensor", _split, {"split_size": 2, "dim": 1}, {"split_size": 3})
_view_row("aten.split_with_sizes.default", _split, {"split_sizes": (1, 3, 1), "dim": 1})
_view_row("aten.chunk.default", _split, {"chunks": 2, "dim": -1}, {"chunks": 3, "dim": 1})
_view_row("aten.unbind.int", _unbind, {}, {"dim": 1})
_view_row("aten.flip.default", _flip, {"dims": (0, 2)}, {"x": T((0, 2)), "dims": (0,)})
_view_row(
    "aten.roll.default", _roll, {"shifts": (1,), "dims": (1,)}, {"shifts": (-2, 7), "dims": (0, 1)}, {"shifts": (11,)}
)
_view_row("aten.repeat.default", _repeat, {"repeats": (2, 1, 3)}, {"repeats": (2, 1, 1, 2)}, {"repeats": (0, 1, 1)})
_view_row(
    "aten.unfold.default",
    _unfold,
    {"dimension": 1, "size": 3, "step": 2},
    {"dimension": -1, "size": 2, "step": 1},
)
_PARTS = (T((3, 2)), T((3, 1)), T((3, 4)))
row("aten.cat.default", "index", _cat,
    (sample(tensors=_PARTS, dim=-1), sample(INTS, tensors=_PARTS, dim=1), sample(tensors=(T((0, 2)), T((3, 2)))),
     sample(tensors=(T((2,)), T((2,), DType.F64))), sample(tensors=(T((1,)),))))  # fmt: skip
row("aten.stack.default", "index", _stack,
    (sample(tensors=(T((3, 2)), T((3, 2)))), sample(tensors=(T((3, 2)), T((3, 2)), T((3, 2))), dim=-1)))  # fmt: skip
row("aten.constant_pad_nd.default", "index", _pad,
    (sample(x=_X, pad=(1, 2), value=0.5), sample(x=_X, pad=(0, 1, 2, 0)), sample(INTS, x=_X, pad=(0, 0, 1, 1), value=3),
     sample(x=_X, pad=(-1, 1, 0, -2)), sample(x=T((0, 2)), pad=(0, 0, 1, 2))))  # fmt: skip
_IDS = T((2, 3), DType.I64, 0, 6)
row(
    "aten.embedding.default",
    "index",
    _embedding,
    (sample(weight=T((7, 5)), indices=_IDS), sample(weight=T((7, 5)), indices=T((4,), DType.I32, 0, 6), padding_idx=0)),
)
row(
    "aten.index_select.default",
    "index",
    _index_select,
    (
        sample(x=T((3, 7)), dim=-1, index=T((4,), DType.I64, 0, 6)),
        sample(x=T((3, 7)), dim=0, index=T((), DType.I64, 0, 2)),
    ),
)
row(
    "aten.gather.default",
    "index",
    _gather,
    (
        sample(x=T((3, 7)), dim=1, index=T((2, 4), DType.I64, 0, 6)),
        sample(x=T((3, 7)), dim=0, index=T((2, 4), DType.I64, 0, 2)),
    ),
)
row("aten.index.Tensor", "index", _index,
    (sample(x=_X, indices=(T((2,), DType.I64, -3, 2),)), sample(x=_X, indices=(None, T((2, 3), DType.I64, -5, 4))),
     sample(x=_X, indices=(T((2, 1), DType.I64, 0, 2), T((3,), DType.I64, 0, 4))),
     sample(x=_X, indices=(T((2,), DType.I64, 0, 2), None, T((2,), DType.I64, 0, 3)))))  # fmt: skip
row("aten.tril.default", "index", _triangle("le"), (sample(x=T((2, 5, 4))), sample(x=T((5, 5)), diagonal=-1)))
row("aten.triu.default", "index", _triangle("ge"), (sample(x=T((2, 5, 4))), sample(x=T((5, 5)), diagonal=1)))
