"""One form for equal regions: fewest axes, shared computations, nothing dead.

``canonical`` keeps what a region computes and the memory it touches. Tensors keep name, type and memory, but their
*logical* shape is viewed anew: axes of extent one are dropped and neighbours merged, so a ``[B, S, K]`` operand of a
linear becomes ``[B * S, K]``. Whoever binds arrays binds them flat, by name.

Axes with one meaning get one name throughout the region: an axis of extent ``e`` is identified with the axis of a
result, or of an input, that it indexes directly. Parallel axes are ``i0, i1, …``, reduce axes ``k0, …`` and carried
ones ``c0, …``, numbered where they first occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from emmy.ir.expr import Const, Expr, Load, Var, floordiv, free_vars, i32, is_const, mod, substitute, transform
from emmy.ir.nest import Axis, Comp, Output, Region, Tensor
from emmy.ir.simplify import Simplifier, simplify
from emmy.passes.rewrite import (
    base,
    divisions,
    flat,
    live,
    loads_of,
    map_loads,
    rename_axes,
    scope,
    simplified,
    tensors,
)

_PLAIN = ("sum", "prod", "max", "min", "any", "all")


def canonical(region: Region) -> Region:
    """The canonical form of ``region``: same results in the same memory; see the module."""
    region = live(replace(region, comps=tuple(simplified(comp) for comp in region.comps)))
    region = drop_unit_axes(region)
    region = share(region)
    region = name_axes(region)
    region = merge_axes(region)
    region = view_inputs(region)
    return name_axes(in_order(used_symbols(region)))


def in_order(region: Region) -> Region:
    """Inputs in the order in which the computations first read them."""
    first = {name: n for n, name in enumerate(dict.fromkeys(x.tensor for c in region.comps for x in c.loads()))}
    return replace(region, inputs=tuple(sorted(region.inputs, key=lambda t: first.get(t.name, len(first)))))


def used_symbols(region: Region) -> Region:
    """``region`` with only the symbols that its extents, strides or values mention."""
    exprs: list[Expr] = []
    for tensor in (*region.inputs, *(out.tensor for out in region.outputs)):
        exprs += [*tensor.shape, *(tensor.strides or ())]
    for comp in region.comps:
        exprs += [*comp.body, *(axis.extent for axis in (*comp.axes, *comp.reduce, *comp.carried))]
    names = frozenset().union(*map(free_vars, exprs))
    return replace(region, symbols=tuple(s for s in region.symbols if s.name in names))


# ------------------------------------------------------------------------------------------------ unit axes


def drop_unit_axes(region: Region) -> Region:
    """Without axes of extent one; a plain reduction over nothing else becomes a map."""
    kept: dict[str, tuple[int, ...]] = {}  # positions of a result's index that stay
    comps: list[Comp] = []
    for comp in region.comps:
        comp = map_loads(comp, lambda load: _reindexed(load, kept))
        gone = [axis for axis in comp.axes if is_const(axis.extent, 1)]
        reduce = tuple(axis for axis in comp.reduce if not is_const(axis.extent, 1))
        monoid = comp.monoid
        if monoid is not None and not reduce:
            if monoid in _PLAIN:
                gone += list(comp.reduce)
                monoid = None
            else:
                reduce = comp.reduce[:1]
                gone += list(comp.reduce[1:])
        else:
            gone += [axis for axis in comp.reduce if is_const(axis.extent, 1)]
        axes = tuple(axis for axis in comp.axes if not is_const(axis.extent, 1))
        positions = tuple(n for n, axis in enumerate(comp.axes) if not is_const(axis.extent, 1))
        if positions != tuple(range(len(comp.axes))):
            kept[comp.name] = positions
            rank = len(comp.axes)
            if monoid is not None:
                for k, carried in enumerate(comp.algebra().carried):
                    tail = tuple(range(rank, rank + (len(comp.carried) if carried else 0)))
                    kept[f"{comp.name}.{k}"] = positions + tail
        zero: dict[str, Expr] = {axis.name: i32(0) for axis in gone}
        body = tuple(substitute(expr, zero) for expr in comp.body)
        comps.append(simplified(replace(comp, axes=axes, reduce=reduce, monoid=monoid, body=body)))
    outputs = tuple(_narrowed(out, kept) for out in region.outputs)
    # a reduction that became a map has no components
    maps = {comp.name for comp in comps if comp.is_map}
    comps = [map_loads(comp, lambda load: _plain_name(load, maps)) for comp in comps]
    outputs = tuple(replace(out, source=base(out.source)) if base(out.source) in maps else out for out in outputs)
    return replace(region, comps=tuple(comps), outputs=outputs)


def _reindexed(load: Load, kept: dict[str, tuple[int, ...]]) -> Load | None:
    positions = kept.get(load.tensor)
    return None if positions is None else replace(load, index=tuple(load.index[n] for n in positions))


def _plain_name(load: Load, maps: set[str]) -> Load | None:
    name = base(load.tensor)
    return replace(load, tensor=name) if name in maps and name != load.tensor else None


def _narrowed(out: Output, kept: dict[str, tuple[int, ...]]) -> Output:
    positions = kept.get(out.source)
    if positions is None:
        return out
    tensor = out.tensor
    shape = tuple(tensor.shape[n] for n in positions)
    strides = None if tensor.strides is None else tuple(tensor.strides[n] for n in positions)
    return Output(replace(tensor, shape=shape, strides=strides), out.source)


# ----------------------------------------------------------------------------------------- common computations


def share(region: Region) -> Region:
    """Computations that are equal up to the names of their axes become one."""
    first: dict[Comp, str] = {}
    same: dict[str, str] = {}
    comps: list[Comp] = []
    for comp in region.comps:
        comp = map_loads(comp, lambda load: _renamed(load, same))
        key = replace(_positional(comp), name="", origin=())
        if key in first:
            same[comp.name] = first[key]
        else:
            first[key] = comp.name
            comps.append(comp)
    outputs = tuple(replace(out, source=_alias(out.source, same)) for out in region.outputs)
    return live(replace(region, comps=tuple(comps), outputs=outputs))


def _alias(name: str, same: dict[str, str]) -> str:
    head, dot, tail = name.partition(".")
    return same.get(head, head) + dot + tail


def _renamed(load: Load, same: dict[str, str]) -> Load | None:
    return replace(load, tensor=_alias(load.tensor, same)) if base(load.tensor) in same else None


def _positional(comp: Comp) -> Comp:
    names = {axis.name: f"%i{n}" for n, axis in enumerate(comp.axes)}
    names |= {axis.name: f"%k{n}" for n, axis in enumerate(comp.reduce)}
    names |= {axis.name: f"%c{n}" for n, axis in enumerate(comp.carried)}
    return rename_axes(comp, names)


# -------------------------------------------------------------------------------------------------- axis names


def name_axes(region: Region) -> Region:
    """Gives one name to axes that mean the same, and different names to all others."""
    parent: dict[tuple[str, str], tuple[str, str]] = {}
    members: dict[tuple[str, str], set[str]] = {}

    def find(key: tuple[str, str]) -> tuple[str, str]:
        while parent.get(key, key) != key:
            key = parent[key]
        return key

    def join(a: tuple[str, str], b: tuple[str, str]) -> None:
        a, b = find(a), find(b)
        if a != b and not (members.get(a, set()) & members.get(b, set())):  # never two axes of one computation
            parent[b] = a
            members[a] = members.get(a, set()) | members.pop(b, set())

    for comp in region.comps:
        for name in scope(comp):
            members[(comp.name, name)] = {comp.name}
    shapes = tensors(region)
    by_name = {comp.name: comp for comp in region.comps}
    for comp in region.comps:
        extents = scope(comp)
        for load in comp.loads():
            producer = by_name.get(base(load.tensor))
            if producer is not None:
                own = (*producer.axes, *producer.carried)
                for axis, index in zip(own, load.index, strict=False):
                    if isinstance(index, Var) and extents.get(index.name) == axis.extent:
                        join((producer.name, axis.name), (comp.name, index.name))
    for comp in region.comps:
        extents = scope(comp)
        for load in comp.loads():
            if base(load.tensor) not in by_name:
                for n, (extent, index) in enumerate(zip(shapes[load.tensor].shape, load.index, strict=True)):
                    if isinstance(index, Var) and extents.get(index.name) == extent:
                        join((f"%{load.tensor}", str(n)), (comp.name, index.name))
    taken = {symbol.name for symbol in region.symbols} | {t.name for t in region.inputs}
    chosen: dict[tuple[str, str], str] = {}
    comps = []
    for comp in region.comps:
        names: dict[str, str] = {}
        for prefix, axes in (("i", comp.axes), ("k", comp.reduce), ("c", comp.carried)):
            for axis in axes:
                key = find((comp.name, axis.name))
                if key not in chosen:
                    number = sum(1 for name in chosen.values() if name.startswith(prefix))
                    while f"{prefix}{number}" in taken:
                        number += 1
                    chosen[key] = f"{prefix}{number}"
                    taken.add(chosen[key])
                names[axis.name] = chosen[key]
        comps.append(rename_axes(comp, names))
    return replace(region, comps=tuple(comps))


# ------------------------------------------------------------------------------------------------ merging axes


@dataclass(frozen=True, slots=True)
class _Pair:
    outer: Axis
    inner: Axis

    @property
    def extent(self) -> Expr:
        return simplify(self.outer.extent * self.inner.extent, {})


def merge_axes(region: Region) -> Region:
    """Merges neighbouring axes wherever every offset in memory stays free of new divisions.

    Axes are merged throughout the region or not at all. A constant axis is not merged into a symbolic one outside it:
    the width of a row stays a constant.
    """
    refused: set[tuple[str, str]] = set()
    while True:
        pair = next((p for p in _pairs(region) if (p.outer.name, p.inner.name) not in refused), None)
        if pair is None:
            return region
        merged = _merge(region, pair)
        if merged is None:
            refused.add((pair.outer.name, pair.inner.name))
        else:
            region = merged


def _pairs(region: Region) -> list[_Pair]:
    found: dict[tuple[str, str], _Pair] = {}
    for comp in region.comps:
        for axes in (comp.axes, comp.reduce):
            for outer, inner in pairwise(axes):
                if isinstance(outer.extent, Const) or not isinstance(inner.extent, Const):
                    found.setdefault((outer.name, inner.name), _Pair(outer, inner))
    return list(found.values())


def _merge(region: Region, pair: _Pair) -> Region | None:
    """The region with ``pair`` as one axis, or None where an offset would need a division."""
    a, b = pair.outer.name, pair.inner.name
    if any(is_const(axis.extent, 0) for axis in (pair.outer, pair.inner)):
        return None
    merged = Axis(a, pair.extent)
    positions: dict[str, int] = {}  # results whose index loses a place
    for comp in region.comps:
        places = [_place(axes, a, b) for axes in (comp.axes, comp.reduce)]
        if any(axis.name in (a, b) for axis in comp.carried) or None in places:
            return None
        if places[0] is not None and places[0] >= 0:
            positions[comp.name] = places[0]
    before = tensors(region)
    values: dict[str, Expr] = {a: floordiv(merged.var, pair.inner.extent), b: mod(merged.var, pair.inner.extent)}
    comps: list[Comp] = []
    for comp in region.comps:
        if not any(axis.name == a for axis in (*comp.axes, *comp.reduce)):
            comps.append(_join_index(comp, positions, pair.inner.extent))
            continue
        axes, reduce = _joined(comp.axes, a, b, merged), _joined(comp.reduce, a, b, merged)
        new = replace(comp, axes=axes, reduce=reduce, body=tuple(substitute(expr, values) for expr in comp.body))
        simplifier = Simplifier(scope(new))
        for expr in comp.body:
            if not _no_new_divisions(expr, values, before, Simplifier(scope(comp)), simplifier, pair):
                return None
        comps.append(_join_index(simplified(new), positions, pair.inner.extent))
    outputs = []
    for out in region.outputs:
        place = positions.get(base(out.source))
        joined = out if place is None else _joined_output(out, place)
        if joined is None:
            return None
        outputs.append(joined)
    return replace(region, comps=tuple(comps), outputs=tuple(outputs))


def _place(axes: tuple[Axis, ...], a: str, b: str) -> int | None:
    """Where ``a, b`` stand in ``axes``; -1 where neither does; None where they are not neighbours in this order."""
    names = [axis.name for axis in axes]
    if a not in names and b not in names:
        return -1
    if a in names and b in names and names.index(b) == names.index(a) + 1:
        return names.index(a)
    return None


def _joined(axes: tuple[Axis, ...], a: str, b: str, merged: Axis) -> tuple[Axis, ...]:
    return tuple(merged if axis.name == a else axis for axis in axes if axis.name != b)


def _join_index(comp: Comp, positions: dict[str, int], inner: Expr) -> Comp:
    def rule(load: Load) -> Load | None:
        place = positions.get(base(load.tensor))
        if place is None:
            return None
        index = load.index
        joined = index[place] * inner + index[place + 1]
        return replace(load, index=(*index[:place], joined, *index[place + 2 :]))

    return map_loads(comp, rule)


def _joined_output(out: Output, place: int) -> Output | None:
    tensor = out.tensor
    strides = tensor.element_strides()
    if simplify(strides[place], {}) != simplify(tensor.shape[place + 1] * strides[place + 1], {}):
        return None
    return Output(join_dims(tensor, place), out.source)


def join_dims(tensor: Tensor, place: int) -> Tensor:
    """``tensor`` with dimensions ``place`` and ``place + 1`` as one (their strides must allow it)."""
    extent = simplify(tensor.shape[place] * tensor.shape[place + 1], {})
    shape = (*tensor.shape[:place], extent, *tensor.shape[place + 2 :])
    strides = None if tensor.strides is None else (*tensor.strides[:place], *tensor.strides[place + 1 :])
    return replace(tensor, shape=shape, strides=strides)


def _no_new_divisions(
    expr: Expr, values: dict[str, Expr], shapes: dict[str, Tensor], old: Simplifier, new: Simplifier, pair: _Pair
) -> bool:
    """Whether offsets and plain index arithmetic of ``expr`` need no more divisions after the substitution.

    Nor may the merged axis enter a division that the inner one was not in: a head's keys would then depend on the row.
    """
    parts: list[Expr] = [_without_loads(expr)]
    parts += [_without_loads(flat(shapes[load.tensor], load.index)) for load in loads_of((expr,))]
    for part in parts:
        before = divisions(old.body(part))
        after = divisions(new.body(substitute(part, values)))
        if len(after) > len(before):
            return False
        inner = any(pair.inner.name in free_vars(node) for node in before)
        if not inner and any(pair.outer.name in free_vars(node) for node in after):
            return False
    return True


def _without_loads(expr: Expr) -> Expr:
    """Loads replaced by variables of their own: their offsets are judged one by one."""
    names: dict[Load, str] = {}

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return Var(names.setdefault(node, f"%load{len(names)}"), node.dtype)
        return None

    return transform(expr, rule)


# ------------------------------------------------------------------------------------------------------ inputs


def view_inputs(region: Region) -> Region:
    """Views each input with the fewest dimensions that its loads allow."""
    for tensor in region.inputs:
        region = _view(region, tensor)
    return region


def _view(region: Region, tensor: Tensor) -> Region:
    place = 0
    while place < len(tensor.shape):
        if is_const(tensor.shape[place], 1):
            shape = (*tensor.shape[:place], *tensor.shape[place + 1 :])
            strides = None if tensor.strides is None else (*tensor.strides[:place], *tensor.strides[place + 1 :])
            region = _replace_input(region, replace(tensor, shape=shape, strides=strides), place, None)
            tensor = region.tensor(tensor.name)
        else:
            place += 1
    place = 0
    while place + 1 < len(tensor.shape):
        strides = tensor.element_strides()
        joinable = simplify(strides[place], {}) == simplify(tensor.shape[place + 1] * strides[place + 1], {})
        if joinable and _wants_join(region, tensor, place):
            region = _replace_input(region, join_dims(tensor, place), place, tensor.shape[place + 1])
            tensor = region.tensor(tensor.name)
            place = 0
        else:
            place += 1
    return region


def _joined_indices(region: Region, tensor: Tensor, place: int) -> list[tuple[Comp, Load, Expr]]:
    found = []
    for comp in region.comps:
        simplifier = Simplifier(scope(comp))
        for load in comp.loads():
            if load.tensor == tensor.name:
                joined = load.index[place] * tensor.shape[place + 1] + load.index[place + 1]
                found.append((comp, load, simplifier.index(joined)))
    return found


def _wants_join(region: Region, tensor: Tensor, place: int) -> bool:
    """All loads walk both dimensions with one axis, or joining removes divisions from some and adds none."""
    loads = _joined_indices(region, tensor, place)
    extent = simplify(tensor.shape[place] * tensor.shape[place + 1], {})
    if all(isinstance(index, Var) and scope(comp).get(index.name) == extent for comp, _, index in loads):
        return bool(loads)
    divided = False
    for _, load, index in loads:
        before = set().union(*(divisions(i) for i in load.index[place : place + 2]))
        if len(divisions(index)) > len(before):
            return False
        divided |= len(divisions(index)) < len(before)
    return divided


def _replace_input(region: Region, tensor: Tensor, place: int, inner: Expr | None) -> Region:
    """``tensor`` (same name) instead of the input; ``inner`` None drops index ``place``, else it joins the next one."""

    def rule(load: Load) -> Load | None:
        if load.tensor != tensor.name:
            return None
        index: Sequence[Expr] = load.index
        if inner is None:
            return replace(load, index=(*index[:place], *index[place + 1 :]))
        return replace(load, index=(*index[:place], index[place] * inner + index[place + 1], *index[place + 2 :]))

    inputs = tuple(tensor if t.name == tensor.name else t for t in region.inputs)
    return replace(region, inputs=inputs, comps=tuple(map_loads(comp, rule) for comp in region.comps))
