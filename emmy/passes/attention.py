"""Recognising softmax and attention by their algebra.

    m[r] = max over n of x[r, n];  l[r] = sum over n of exp(x[r, n] - m[r])        →  (m, l) = online_softmax of x
    o[r, d] = sum over n of (exp(x[r, n] - m[r]) / l[r]) * v[r, n, d]              →  online_attention of (x, v), O / l

The second needs ``x`` to come from a contraction whose result nothing else reads: then the scores, their softmax and
the weights are never stored. Factors that do not depend on ``n`` leave the sum; a row that is masked throughout keeps
its guard (``select(m == -inf, 0, …)``). Rounding of the weights to a 16-bit type is left out: fused intermediates stay
in the compute type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from emmy.ir.expr import Call, Const, Expr, Load, Var, call, free_vars, is_const, substitute, transform, walk
from emmy.ir.nest import Axis, Comp, Region
from emmy.passes.rewrite import base, element, live, map_loads, scope, simplified, uses
from emmy.passes.roles import factors, is_contraction


def fuse_softmax(region: Region) -> Region:
    """A maximum and a sum of exponentials over the same row become one ``online_softmax``."""
    by_name = {comp.name: comp for comp in region.comps}
    for total in region.comps:
        if total.monoid != "sum" or not total.reduce:
            continue
        match expand(total.body[0], by_name):
            case Call("exp", (Call("sub", (x, Load() as top)),)):
                peak = by_name.get(base(top.tensor))
                if peak is None or peak.monoid != "max" or not _is_row_of(top, peak, total):
                    continue
                if _same(expand(peak.body[0], by_name), _row_env(peak, top, total), x, total):
                    return fuse_softmax(_with_online_softmax(region, peak, top, total))
    return region


def _with_online_softmax(region: Region, peak: Comp, top: Load, total: Comp) -> Region:
    joint = replace(peak, monoid="online_softmax", origin=tuple(dict.fromkeys((*peak.origin, *total.origin))))
    # for each axis of the maximum, which axis of the sum it is
    own = [axis.name for axis in total.axes]
    order = [own.index(index.name) for index in top.index if isinstance(index, Var)]

    def rule(load: Load) -> Load | None:
        if base(load.tensor) == total.name:
            return replace(load, tensor=f"{peak.name}.1", index=tuple(load.index[n] for n in order))
        return None

    comps = []
    for comp in region.comps:
        if comp.name == peak.name:
            comps.append(joint)
        elif comp.name != total.name:
            comps.append(map_loads(comp, rule))
    outputs = tuple(
        replace(out, source=f"{peak.name}.1") if base(out.source) == total.name else out for out in region.outputs
    )
    return live(replace(region, comps=tuple(comps), outputs=outputs))


def _loads(expr: Expr) -> list[Load]:
    return [node for node in walk(expr) if isinstance(node, Load)]


def expand(expr: Expr, by_name: dict[str, Comp], only: frozenset[str] | None = None) -> Expr:
    """``expr`` with every map it reads (of those in ``only``), however deep, written out."""

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            producer = by_name.get(base(node.tensor))
            if producer is not None and producer.is_map and (only is None or producer.name in only):
                return expand(element(producer, node.index), by_name, only)
        return None

    return transform(expr, rule)


def reaching(region: Region, target: Callable[[Comp], bool]) -> frozenset[str]:
    """The maps that read a reduction with ``target``, directly or through other maps."""
    by_name = {comp.name: comp for comp in region.comps}
    found: set[str] = set()
    for comp in region.comps:
        if comp.is_map:
            for load in comp.loads():
                producer = by_name.get(base(load.tensor))
                if producer is not None and (producer.name in found or (not producer.is_map and target(producer))):
                    found.add(comp.name)
    return frozenset(found)


def _is_row_of(load: Load, row: Comp, reader: Comp) -> bool:
    """Whether ``load`` reads the statistic of the row that ``reader`` walks."""
    names = [index.name for index in load.index if isinstance(index, Var)]
    own = {axis.name: axis.extent for axis in reader.axes}
    return (
        len(names) == len(row.axes) == len(set(names))
        and all(own.get(n) == axis.extent for n, axis in zip(names, row.axes, strict=True))
        and set(names) == set(own)
    )


def _row_env(row: Comp, load: Load, reader: Comp) -> dict[str, Expr]:
    """The axes of ``row`` in terms of the axes of ``reader``: parallel ones by the load, reduce ones in order."""
    env: dict[str, Expr] = {axis.name: index for axis, index in zip(row.axes, load.index, strict=True)}
    if len(row.reduce) == len(reader.reduce):
        env |= {axis.name: other.var for axis, other in zip(row.reduce, reader.reduce, strict=True)}
    return env


def _same(left: Expr, env: dict[str, Expr], right: Expr, reader: Comp) -> bool:
    """Whether ``left``, with its axes bound, is ``right`` (both over the axes of ``reader``)."""
    a = simplified(replace(reader, body=(substitute(left, env),)))
    b = simplified(replace(reader, body=(right,)))
    return a.body == b.body


# ---------------------------------------------------------------------------------------------------- attention


@dataclass(frozen=True, slots=True)
class Weights:
    """A softmax weight, taken apart: ``guard ? zero : exp(x - m) / l * rest``, all over the reader's axes."""

    x: Expr
    m: Load
    total: Load
    guard: Expr | None
    rest: tuple[Expr, ...]


def fuse_attention(region: Region) -> Region:
    """Every attention of the region as a score contraction, an ``online_attention`` and a map that divides by l."""
    by_name = {comp.name: comp for comp in region.comps}
    for comp in region.comps:
        if comp.monoid != "sum" or len(comp.reduce) != 1:
            continue
        fused = _attention(region, comp, by_name)
        if fused is not None:
            return fuse_attention(fused)
    return region


def _attention(region: Region, pv: Comp, by_name: dict[str, Comp]) -> Region | None:
    found = _weights(expand(pv.body[0], by_name, reaching(region, lambda comp: comp.monoid == "online_softmax")))
    if found is None:
        return None
    row = by_name[base(found.m.tensor)]
    (key,) = pv.reduce
    if row.monoid != "online_softmax" or base(found.total.tensor) != row.name or found.total.index != found.m.index:
        return None
    rows = [index.name for index in found.m.index if isinstance(index, Var)]
    carried = tuple(axis for axis in pv.axes if axis.name not in rows)
    if len(rows) != len(row.axes) or len(carried) != 1 or len(set(rows)) != len(rows) or key.name in rows:
        return None
    if [scope(pv).get(n) for n in rows] != [axis.extent for axis in row.axes] or row.reduce[0].extent != key.extent:
        return None
    env = {axis.name: index for axis, index in zip(row.axes, found.m.index, strict=True)}
    env[row.reduce[0].name] = key.var
    if len(row.reduce) != 1 or not _same(expand(row.body[0], by_name), env, expand(found.x, by_name), pv):
        return None
    found = replace(found, x=expand(found.x, by_name, reaching(region, is_contraction)))
    read = [by_name[base(load.tensor)] for load in _loads(found.x) if base(load.tensor) in by_name]
    scores = [comp for comp in read if not comp.is_map]
    if not scores or not all(is_contraction(score) for score in scores) or len({s.name for s in scores}) != 1:
        return None
    if carried[0].name in free_vars(found.x):
        return None
    inside = [f for f in found.rest if key.name in free_vars(f)]
    outside = [f for f in found.rest if key.name not in free_vars(f)]
    if not inside:
        return None
    return _with_attention(region, pv, carried[0], key, found, _product(inside), outside, scores[0])


def _with_attention(
    region: Region, pv: Comp, carried: Axis, key: Axis, found: Weights, value: Expr, outside: list[Expr], scores: Comp
) -> Region | None:
    axes = tuple(axis for axis in pv.axes if axis.name != carried.name)
    name = f"{pv.name}_att"
    attention = Comp(
        name, axes, (found.x, value), pv.dtype, (key,), "online_attention", (carried,), origin=("attention",)
    )
    index = tuple(axis.var for axis in axes)
    compute = pv.dtype.compute
    output = Load(f"{name}.2", (*index, carried.var), compute)
    total, top = Load(f"{name}.1", index, compute), Load(name, index, compute)
    body = call("div", output, total)
    for factor in outside:
        body = call("mul", body, factor)
    if found.guard is not None:
        guard = transform(found.guard, lambda node: top if node == found.m else None)
        body = call("select", guard, Const(0.0, compute), body)
    final = replace(pv, body=(body,), reduce=(), monoid=None, origin=("attention",))
    comps: list[Comp] = []
    for comp in region.comps:
        comps += [attention, final] if comp.name == pv.name else [comp]
    fused = live(replace(region, comps=tuple(comps)))
    # scores, softmax and weights that something else reads are computed anyway: then nothing is gained
    left = uses(fused)
    if left.get(scores.name, []) != [name] or base(found.m.tensor) in left:
        return None
    return fused


def _product(parts: list[Expr]) -> Expr:
    value = parts[0]
    for part in parts[1:]:
        value = call("mul", value, part)
    return value


def _weights(expr: Expr) -> Weights | None:
    """A product with one softmax weight among its factors."""
    found: Weights | None = None
    rest: list[Expr] = []
    for factor in factors(expr):
        weight = _weight(_unrounded(factor)) if found is None else None
        if weight is None:
            rest.append(factor)
        else:
            found = weight
    return None if found is None or not rest else replace(found, rest=(*found.rest, *rest))


def _weight(expr: Expr) -> Weights | None:
    match expr:
        case Call("select", (guard, zero, value)) if is_const(zero, 0):
            inner = _weight(_unrounded(value))
            if inner is None or inner.guard is not None:
                return None
            # the guard must be one of the row: it may read nothing but the maximum and the total
            foreign = [load for load in _loads(guard) if base(load.tensor) != base(inner.m.tensor)]
            if foreign or free_vars(guard) - free_vars(inner.m):
                return None
            return replace(inner, guard=guard)
        case Call("div", (Call("exp", (Call("sub", (x, Load() as m)),)), Load() as total)):
            return Weights(x, m, total, None, ())
    return None


def _unrounded(expr: Expr) -> Expr:
    """Without conversions between float types around it."""
    while isinstance(expr, Call) and expr.fn == "cast" and expr.dtype.is_float and expr.args[0].dtype.is_float:
        expr = expr.args[0]
    return expr
