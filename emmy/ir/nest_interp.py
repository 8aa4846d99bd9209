"""The NumPy oracle of meaning: evaluates a region, computation by computation, with axes as array dimensions.

Arrays are float32 where the region computes in float32, float64 where it computes in float64 (or everywhere, with
``dtype=np.float64``, for references: then no 16-bit rounding happens either). bfloat16 is held as float32. Reductions
go through a monoid's identity, lift and combine in a tree; the usual ones take a NumPy reduction, and a sum of products
a matrix product, which tests hold equal to the tree.

A ``select`` is lazy: a load in a branch that is not taken may be out of range, any other load may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Load, Var, evaluate_int, free_vars
from emmy.ir.monoid import Monoid
from emmy.ir.nest import Axis, Comp, Region
from emmy.ir.scalar import FUNCTIONS, numpy_dtype, round_bf16
from emmy.threads import each

Array = np.ndarray[Any, Any]

CHUNK_ELEMENTS = 1 << 20
"""Elements of one evaluation of a body (8 MiB in float64); larger ones go in pieces of the first axis, in threads."""


def run_region(
    region: Region,
    inputs: Mapping[str, Array],
    symbols: Mapping[str, int] | None = None,
    dtype: Any = None,
    *,
    fast: bool = True,
) -> dict[str, Array]:
    """Outputs by name, in the region's order, in their storage types.

    inputs: an array an input tensor, of its logical shape (strides do not matter here).
    symbols: sizes of the symbolic axes; the hints by default.
    dtype: ``np.float64`` evaluates everything that is floating in float64 and leaves outputs so.
    fast: False evaluates every reduction through its monoid's combine.
    Raises KeyError for a missing input, ValueError for one of the wrong shape or a size outside a symbol's, IndexError
    for a load out of range.
    """
    sizes = dict(region.hints()) | dict(symbols or {})
    for symbol in region.symbols:
        if symbol.most is not None and sizes[symbol.name] > symbol.most:
            raise ValueError(f"{symbol.name}: found size {sizes[symbol.name]}, expected at most {symbol.most}")
        if sizes[symbol.name] < symbol.least:
            raise ValueError(f"{symbol.name}: found size {sizes[symbol.name]}, expected at least {symbol.least}")
    run = _Run(region, sizes, dtype == np.float64, fast)
    for tensor in region.inputs:
        array = np.asarray(inputs[tensor.name])
        shape = tuple(run.size(extent) for extent in tensor.shape)
        if array.shape != shape:
            raise ValueError(f"input {tensor.name}: found shape {array.shape}, expected {shape}")
        # in float64 a load converts what it reads: a copy of a whole input costs more than the arithmetic
        lazy = run.wide and array.dtype.kind == "f"
        run.arrays[tensor.name] = array if lazy else array.astype(run.held(tensor.dtype), copy=False)
    with np.errstate(all="ignore"):
        for comp in region.comps:
            run.compute(comp)
    return {out.tensor.name: run.stored(run.arrays[out.source], out.tensor.dtype) for out in region.outputs}


class _Run:
    def __init__(self, region: Region, sizes: dict[str, int], wide: bool, fast: bool) -> None:
        self.sizes = sizes
        self.wide = wide
        self.fast = fast
        self.arrays: dict[str, Array] = {}

    def size(self, extent: Expr) -> int:
        return extent.value if isinstance(extent, Const) else evaluate_int(extent, self.sizes)  # type: ignore[return-value]

    def held(self, dtype: DType) -> Any:
        return np.float64 if self.wide and dtype.is_float else numpy_dtype(dtype)

    def convert(self, value: Any, dtype: DType) -> Any:
        """``value`` as an element of ``dtype``: 16-bit floats are rounded, unless everything is float64."""
        array = np.asarray(value)
        if dtype == DType.BF16 and not self.wide:
            return round_bf16(array.astype(np.float32, copy=False))
        if dtype == DType.BOOL:
            return array != 0
        return array.astype(self.held(dtype), copy=False)

    def widened(self, value: Array) -> Array:
        return value.astype(np.float64, copy=False) if self.wide and value.dtype.kind == "f" else value

    def stored(self, array: Array, dtype: DType) -> Array:
        return np.ascontiguousarray(self.convert(array, dtype)).reshape(array.shape)

    # ------------------------------------------------------------------------------------------ computations

    def compute(self, comp: Comp) -> None:
        shape = tuple(self.size(axis.extent) for axis in comp.axes)
        over = tuple(self.size(axis.extent) for axis in comp.reduce)
        carried = tuple(self.size(axis.extent) for axis in comp.carried)
        if self.fast and comp.monoid == "sum" and 0 not in (*shape, *over):
            product = self._product(comp, shape, over)
            if product is not None:
                self.arrays[comp.name] = product
                return
        kinds = (comp.dtype.compute,) if comp.is_map else comp.algebra().component_dtypes(comp.dtype)
        per_component = (0,) if comp.is_map else comp.algebra().carried
        out = [
            np.empty(shape + (carried if c else ()), self.held(kind))
            for kind, c in zip(kinds, per_component, strict=True)
        ]

        def put(piece: slice | tuple[()]) -> None:
            with np.errstate(all="ignore"):  # of this thread
                values = self._piece(comp, shape, over, carried, piece)
                for target, value, kind in zip(out, values, kinds, strict=True):
                    target[piece] = self.convert(value, kind)

        each(put, self._pieces(shape, over + carried))
        for k, array in enumerate(out):
            self.arrays[f"{comp.name}.{k}"] = array
        self.arrays[comp.name] = out[0]

    def _pieces(self, shape: tuple[int, ...], inner: tuple[int, ...]) -> list[slice | tuple[()]]:
        total = int(np.prod(shape, dtype=np.int64)) * int(np.prod(inner, dtype=np.int64))
        if not shape or total <= CHUNK_ELEMENTS or shape[0] <= 1:
            return [slice(None)] if shape else [()]
        rows = max(1, CHUNK_ELEMENTS * shape[0] // total)
        return [slice(start, min(start + rows, shape[0])) for start in range(0, shape[0], rows)]

    def _piece(
        self,
        comp: Comp,
        shape: tuple[int, ...],
        over: tuple[int, ...],
        carried: tuple[int, ...],
        piece: slice | tuple[()],
    ) -> tuple[Any, ...]:
        starts = [0] * len(shape)
        extents = list(shape)
        if isinstance(piece, slice) and piece.start is not None:
            starts[0], extents[0] = piece.start, piece.stop - piece.start
        axes = (*comp.axes, *comp.reduce, *comp.carried)
        full = (*extents, *over, *carried)
        scope = Scope(self, axes, (*starts, *(0 for _ in over + carried)), full)
        if self.fast and comp.monoid == "online_attention" and 0 not in full:
            attended = self._attention(comp, scope, dict(zip([axis.name for axis in axes], full, strict=True)))
            if attended is not None:
                return attended
        values = [np.broadcast_to(scope.value(expr), full) for expr in comp.body]
        if comp.is_map:
            return (values[0],)
        first = len(extents)
        return self._reduce(comp, comp.algebra(), values, first, over, bool(carried))

    def _reduce(
        self, comp: Comp, monoid: Monoid, values: list[Array], first: int, over: tuple[int, ...], carried: bool
    ) -> tuple[Any, ...]:
        count = int(np.prod(over, dtype=np.int64))
        flat = [v.reshape((*v.shape[:first], count, *v.shape[first + len(over) :])) for v in values]
        direct = _DIRECT.get(monoid.name) if self.fast and count else None
        if direct is not None:
            return direct(flat[0], first)
        kinds = monoid.component_dtypes(comp.dtype)
        identity = monoid.identity_values(comp.dtype)
        position = np.arange(count).reshape((count,) + (1,) * (flat[0].ndim - first - 1))
        env: dict[str, Any] = {f"x{n}": v for n, v in enumerate(flat)} | {"i": position}
        whole = flat[0].shape
        bare = whole[: first + 1]
        parts = []
        for expr, kind, carries in zip(monoid.lift, kinds, monoid.carried, strict=True):
            value = np.broadcast_to(self._lifted(expr, env), whole)
            for _ in range(0 if carries else len(whole) - len(bare)):
                value = value[..., 0]
            parts.append(np.array(value, self.held(kind)).reshape(whole if carries or not carried else bare))
        return self._tree(monoid, parts, first, identity, kinds)

    def _tree(
        self, monoid: Monoid, parts: list[Array], first: int, identity: tuple[Any, ...], kinds: tuple[DType, ...]
    ) -> tuple[Any, ...]:
        while parts[0].shape[first] != 1:
            if parts[0].shape[first] % 2 or parts[0].shape[first] == 0:
                parts = [
                    np.concatenate(
                        [p, np.full((*p.shape[:first], 1, *p.shape[first + 1 :]), value, p.dtype)], axis=first
                    )
                    for p, value in zip(parts, identity, strict=True)
                ]
                if parts[0].shape[first] == 1:
                    break
            env: dict[str, Any] = {}
            deepest = max(p.ndim for p in parts)
            for n, p in enumerate(parts):
                wide = p.reshape(p.shape + (1,) * (deepest - p.ndim))
                env[f"a{n}"] = wide.take(range(0, p.shape[first], 2), axis=first)
                env[f"b{n}"] = wide.take(range(1, p.shape[first], 2), axis=first)
            memo: dict[int, Any] = {}
            merged = [np.asarray(_call_tree(expr, env, self, memo)) for expr in monoid.combine]
            parts = [
                m.reshape((*p.shape[:first], p.shape[first] // 2, *p.shape[first + 1 :])).astype(
                    self.held(kind), copy=False
                )
                for m, p, kind in zip(merged, parts, kinds, strict=True)
            ]
        return tuple(p.take(0, axis=first) for p in parts)

    def _lifted(self, expr: Expr, env: dict[str, Any]) -> Any:
        return _call_tree(expr, env, self, {})

    # -------------------------------------------------------------------------------------- sums of products

    def _product(self, comp: Comp, shape: tuple[int, ...], over: tuple[int, ...]) -> Array | None:
        """The sum of ``f * g`` as a matrix product, where neither factor runs over all axes."""
        match comp.body[0]:
            case Call("mul", (f, g)):
                pass
            case _:
                return None
        axes = (*comp.axes, *comp.reduce)
        names = [axis.name for axis in axes]
        if f is g:
            return None
        uses = [frozenset(names) & free_vars(side) for side in (f, g)]
        summed = {axis.name for axis in comp.reduce}
        if not summed <= uses[0] & uses[1] or uses[0] == uses[1]:
            return None
        scope = Scope(self, axes, (0,) * len(axes), (*shape, *over))
        size = dict(zip(names, (*shape, *over), strict=True))
        out, order = self._contract(scope.value(f), scope.value(g), (uses[0], uses[1]), summed, size, comp.dtype)
        unused = [axis.name for axis in comp.axes if axis.name not in order]
        whole = np.broadcast_to(
            out.reshape((*(1 for _ in unused), *out.shape)), (*(size[n] for n in unused), *out.shape)
        )
        return _ordered((whole, [*unused, *order]), [axis.name for axis in comp.axes])

    def _contract(
        self,
        left: Array,
        right: Array,
        uses: tuple[frozenset[str], frozenset[str]],
        summed: set[str],
        size: dict[str, int],
        dtype: DType,
    ) -> tuple[Array, list[str]]:
        """Sum over ``summed`` of ``left * right``, and the names of the axes of the result in order."""
        names = list(size)
        batch = [n for n in names if n in uses[0] & uses[1] and n not in summed]
        rows = [n for n in names if n in uses[0] - uses[1]]
        columns = [n for n in names if n in uses[1] - uses[0]]
        reduce = [n for n in names if n in summed]
        held = self.held(dtype.compute)
        a = _arranged(left, names, batch, rows, reduce, size).astype(held, copy=False)
        c = _arranged(right, names, batch, reduce, columns, size).astype(held, copy=False)
        order = [*batch, *rows, *columns]
        return np.matmul(a, c).reshape([size[n] for n in order]), order

    def _attention(self, comp: Comp, scope: Scope, size: dict[str, int]) -> tuple[Any, ...] | None:
        """(m, l, O) with scores and weights as whole rows, where scores do not depend on the carried axes."""
        names = list(size)
        score, value = comp.body
        rows, reduce = [axis.name for axis in comp.axes], [axis.name for axis in comp.reduce]
        carried = [axis.name for axis in comp.carried]
        uses = frozenset(names) & free_vars(value)
        if free_vars(score) & set(carried) or not {*reduce, *carried} <= uses:
            return None
        shape = [size[n] for n in (*rows, *reduce)] + [1] * len(carried)
        scores = np.broadcast_to(scope.value(score), shape).astype(self.held(comp.dtype.compute), copy=False)
        over = tuple(range(len(rows), len(rows) + len(reduce)))
        top = scores.max(axis=over, keepdims=True)
        weights = np.where(np.isneginf(scores), scores.dtype.type(0), np.exp(scores - top))
        total = weights.sum(axis=over, dtype=scores.dtype)
        out = self._contract(
            weights, scope.value(value), (frozenset((*rows, *reduce)), uses), set(reduce), size, comp.dtype
        )
        plain = tuple(size[n] for n in rows)
        return top.reshape(plain), total.reshape(plain), _ordered(out, [*rows, *carried])


def _ordered(named: tuple[Array, list[str]], wanted: list[str]) -> Array:
    array, names = named
    return np.ascontiguousarray(array.transpose([names.index(n) for n in wanted]))


def _arranged(
    value: Array, names: list[str], batch: list[str], rows: list[str], columns: list[str], size: dict[str, int]
) -> Array:
    """``value`` (a dimension an axis, one where it does not depend on it) as ``batch × rows × columns``."""
    wanted = [*batch, *rows, *columns]
    array = np.asarray(value)
    array = np.broadcast_to(array, [size[n] if n in wanted else 1 for n in names])
    rest = [n for n in names if n not in wanted]
    array = array.transpose([names.index(n) for n in (*wanted, *rest)])
    return array.reshape(
        int(np.prod([size[n] for n in batch], dtype=np.int64)),
        int(np.prod([size[n] for n in rows], dtype=np.int64)),
        int(np.prod([size[n] for n in columns], dtype=np.int64)),
    )


# -------------------------------------------------------------------------------------------- direct reductions


def _softmax_parts(values: Array, at: int) -> tuple[Any, ...]:
    top = values.max(axis=at)
    shifted = np.exp(values - np.expand_dims(top, at)).sum(axis=at, dtype=values.dtype)
    return top, np.where(np.isneginf(top), values.dtype.type(0), shifted)


def _welford_parts(values: Array, at: int) -> tuple[Any, ...]:
    mean = values.mean(axis=at, dtype=values.dtype)
    deviation = values - np.expand_dims(mean, at)
    squares = np.square(deviation).sum(axis=at, dtype=values.dtype)
    return mean, squares, np.full_like(mean, values.shape[at])


def _positioned(pick: Callable[..., Any], best: Callable[..., Any]) -> Callable[[Array, int], tuple[Any, ...]]:
    return lambda values, at: (best(values, axis=at), pick(values, axis=at))


_DIRECT: dict[str, Callable[[Array, int], tuple[Any, ...]]] = {
    "sum": lambda v, at: (v.sum(axis=at, dtype=v.dtype),),
    "prod": lambda v, at: (v.prod(axis=at, dtype=v.dtype),),
    "max": lambda v, at: (v.max(axis=at),),
    "min": lambda v, at: (v.min(axis=at),),
    "any": lambda v, at: (v.any(axis=at),),
    "all": lambda v, at: (v.all(axis=at),),
    "argmax": _positioned(np.argmax, np.max),
    "argmin": _positioned(np.argmin, np.min),
    "online_softmax": _softmax_parts,
    "welford": _welford_parts,
}


# -------------------------------------------------------------------------------------------------- expressions


class Scope:
    """Values of expressions over some axes: arrays with a dimension an axis (of one where they do not depend on it)."""

    def __init__(self, run: _Run, axes: tuple[Axis, ...], starts: tuple[int, ...], extents: tuple[int, ...]) -> None:
        self.run = run
        self.names = {axis.name: n for n, axis in enumerate(axes)}
        self.starts = starts
        self.extents = extents
        self._memo: dict[tuple[int, bool], Any] = {}

    def value(self, expr: Expr, guarded: bool = False) -> Any:
        """``guarded``: inside a branch that may not be taken, where loads may be out of range."""
        key = (id(expr), guarded)
        if key not in self._memo:
            self._memo[key] = self._compute(expr, guarded)
        return self._memo[key]

    def _compute(self, expr: Expr, guarded: bool) -> Any:
        match expr:
            case Const(value, dtype):
                return value if dtype != DType.BOOL else bool(value)
            case Var(name):
                return self._axis(name)
            case Load():
                return self.run.widened(self._load(expr, guarded))
            case Call("select", (cond, yes, no), dtype):
                test = self.value(cond, guarded)
                return self.run.convert(np.where(test, self.value(yes, True), self.value(no, True)), dtype)
            case Call(fn, args, dtype):
                return _apply(fn, [self.value(arg, guarded) for arg in args], dtype, self.run)
        raise TypeError(f"{type(expr).__name__} does not occur in a nest")

    def _axis(self, name: str) -> Any:
        at = self.names.get(name)
        if at is None:
            return self.run.sizes[name]
        shape = [1] * len(self.extents)
        shape[at] = self.extents[at]
        return np.arange(self.starts[at], self.starts[at] + self.extents[at]).reshape(shape)

    def _load(self, load: Load, guarded: bool) -> Any:
        array = self.run.arrays[load.tensor]
        if len(load.index) != array.ndim:
            raise ValueError(f"{load.tensor}: rank {array.ndim}, read with {len(load.index)} coordinates")
        direct = self._strided(array, load)
        if direct is not None:
            return direct
        rank = len(self.extents)
        if 0 in self.extents:
            return np.zeros([min(extent, 1) for extent in self.extents], array.dtype)
        at = [np.asarray(self.value(i, guarded)) for i in load.index]
        for coordinate, extent in zip(at, array.shape, strict=True):
            if not guarded and coordinate.size and (coordinate.min() < 0 or coordinate.max() >= extent):
                raise IndexError(f"{load.tensor}: coordinate {coordinate.min()} to {coordinate.max()} of {extent}")
        shape = np.broadcast_shapes((1,) * rank, *(c.shape for c in at))
        if 0 in array.shape:
            return np.zeros(shape, array.dtype)  # only a branch that is not taken reads an empty tensor
        clipped = [np.clip(c, 0, extent - 1) if guarded else c for c, extent in zip(at, array.shape, strict=True)]
        return np.broadcast_to(array[tuple(clipped)], shape) if clipped else array.reshape((1,) * rank)

    def _strided(self, array: Array, load: Load) -> Any:
        """The common case without index arrays: each coordinate is one axis (each axis once), or a constant."""
        rank = len(self.extents)
        used: list[int] = []
        index: list[Any] = []
        for coordinate, extent in zip(load.index, array.shape, strict=True):
            match coordinate:
                case Const(value) if 0 <= value < extent:
                    index.append(int(value))
                case Var(name) if name in self.names and self.names[name] not in used:
                    n = self.names[name]
                    if self.starts[n] + self.extents[n] > extent:
                        return None
                    index.append(slice(self.starts[n], self.starts[n] + self.extents[n]))
                    used.append(n)
                case _:
                    return None
        view = array[tuple(index)]
        view = view.transpose(sorted(range(len(used)), key=used.__getitem__))
        return view.reshape([self.extents[n] if n in used else 1 for n in range(rank)])


def _apply(fn: str, args: list[Any], dtype: DType, run: _Run) -> Any:
    if fn == "cast":
        source = np.asarray(args[0])
        if dtype.is_int and source.dtype.kind == "f":
            source = np.trunc(source)
        return run.convert(source, dtype)
    return run.convert(FUNCTIONS[fn].evaluate(*args), dtype)


def _call_tree(expr: Expr, env: Mapping[str, Any], run: _Run, memo: dict[int, Any]) -> Any:
    """A monoid's expression over arrays: types follow the arrays, not the float32 that the table is written in."""
    if id(expr) in memo:
        return memo[id(expr)]
    match expr:
        case Const(value):
            result: Any = value
        case Var(name):
            result = env[name]
        case Call(fn, args):
            values = [_call_tree(arg, env, run, memo) for arg in args]
            result = values[0] if fn == "cast" else FUNCTIONS[fn].evaluate(*values)
        case _:
            raise TypeError(f"{type(expr).__name__} does not occur in a monoid")
    memo[id(expr)] = result
    return result
