"""Recognising a contraction with its fused prologue and epilogue: what every matmul tier starts from."""

from __future__ import annotations

from dataclasses import dataclass

from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Load, Var, call, free_vars, i32, is_const
from emmy.ir.nest import Axis, Comp, Output, Region
from emmy.passes.lower.access import affine, flat_offset

UNIT = Axis("one", Const(1, DType.I32))
"""Stands for a missing m axis (a vector times a matrix)."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """``comp[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]``, then maps over the same axes.

    m, n: the axes a tile covers. outer: every other parallel axis (batch axes, further rows), outermost first.
    k: the reduce axis a tile steps along; k_outer: further reduce axes, looped over outside it.
    a, b: the two factors (with their prologues), a free of n, b free of m.
    order: positions in comp.axes of (outer…, m, n); -1 for a missing m.
    epilogue: per output, the map applied to the result (None: the result itself) with its axes renamed to comp's.
    """

    region: Region
    comp: Comp
    outer: tuple[Axis, ...]
    m: Axis
    n: Axis
    k: Axis
    k_outer: tuple[Axis, ...]
    a: Expr
    b: Expr
    epilogue: tuple[tuple[Output, Expr | None, tuple[str, ...]], ...]

    def size(self, axis: Axis) -> int:
        """Extent at the hints."""
        return self.region.sizes(axis)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(batch, M, N, K) at the hints, further axes multiplied in."""
        batch = 1
        for axis in self.outer:
            batch *= self.size(axis)
        k = self.size(self.k)
        for axis in self.k_outer:
            k *= self.size(axis)
        return batch, self.size(self.m), self.size(self.n), k


def match_contraction(region: Region) -> Contraction:
    """The region as a contraction. Raises Refused naming what does not fit."""
    sums = [c for c in region.comps if not c.is_map]
    if len(sums) != 1:
        raise Refused("one_reduction", found=f"{len(sums)} reductions", expected="one contraction")
    comp = sums[0]
    if comp.monoid != "sum" or comp.carried:
        raise Refused("sum_of_products", found=comp.monoid, expected="a sum of products")
    a_factors, b_factors, n = _split_factors(region, comp)
    a, b = _product(a_factors), _product(b_factors)
    k_names = {axis.name for axis in comp.reduce}
    if not (free_vars(a) & k_names and free_vars(b) & k_names):
        raise Refused("sum_of_products", found="a factor without the reduce axis")
    a_only = [axis for axis in comp.axes if axis.name in _names(a) and axis.name not in _names(b)]
    m = a_only[-1] if a_only else UNIT
    outer = tuple(axis for axis in comp.axes if axis not in (m, n))
    k = _innermost_reduce(region, comp, a, b)
    epilogue = tuple(_epilogue(region, comp, output) for output in region.outputs)
    return Contraction(region, comp, outer, m, n, k, tuple(x for x in comp.reduce if x != k), a, b, epilogue)


def _names(expr: Expr) -> frozenset[str]:
    return free_vars(expr)


def _factors(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call) and expr.fn == "mul":
        return _factors(expr.args[0]) + _factors(expr.args[1])
    return [expr]


def _product(factors: list[Expr]) -> Expr:
    value = factors[0]
    for factor in factors[1:]:
        value = call("mul", value, factor)
    return value


def _split_factors(region: Region, comp: Comp) -> tuple[list[Expr], list[Expr], Axis]:
    """Factors that hold the column axis n, the others, and n: the innermost parallel axis only one side depends on."""
    factors = _factors(comp.body[0])
    if len(factors) < 2:
        raise Refused("sum_of_products", found="one factor", expected="a product")
    names = [_names(f) for f in factors]
    k_names = {axis.name for axis in comp.reduce}
    for n in reversed(comp.axes):
        b_side = [i for i, held in enumerate(names) if n.name in held]
        a_side = [i for i in range(len(factors)) if i not in b_side]
        if not b_side or not any(names[i] & k_names for i in a_side) or not any(names[i] & k_names for i in b_side):
            continue
        return [factors[i] for i in a_side], [factors[i] for i in b_side], n
    raise Refused("separable", found="no axis that one factor alone depends on")


def _innermost_reduce(region: Region, comp: Comp, a: Expr, b: Expr) -> Axis:
    """The reduce axis with the smallest stride in a; ties go to the last."""
    if len(comp.reduce) == 1:
        return comp.reduce[0]
    best, best_stride = comp.reduce[-1], 2**62
    for axis in comp.reduce:
        for node in _loads(a):
            parts = affine(flat_offset(region.tensor(node.tensor), node.index), frozenset((axis.name,)))
            stride = parts[1].get(axis.name, i32(0)) if parts else None
            if isinstance(stride, Const) and 0 < stride.value < best_stride:
                best, best_stride = axis, int(stride.value)
    return best


def _loads(expr: Expr) -> list[Load]:
    from emmy.ir.expr import walk

    return [node for node in walk(expr) if isinstance(node, Load)]


def _epilogue(region: Region, comp: Comp, output: Output) -> tuple[Output, Expr | None, tuple[str, ...]]:
    """(output, map over comp's axes or None, for each output axis the comp axis that indexes it)."""
    from emmy.ir.expr import substitute

    own = tuple(axis.name for axis in comp.axes)
    if output.source.split(".")[0] == comp.name:
        return output, None, own
    step = region.comp(output.source)
    if not step.is_map:
        raise Refused("one_reduction", found=step.monoid)
    reads = [node for node in _loads(step.body[0]) if node.tensor.split(".")[0] == comp.name]
    others = [n for n in _loads(step.body[0]) if n.tensor not in {t.name for t in region.inputs} and n not in reads]
    if others:
        raise Refused("single_epilogue", found=f"{step.name} also reads {others[0].tensor}")
    if not reads:
        raise Refused("single_epilogue", found=f"{step.name} does not read {comp.name}")
    for node in reads:
        names = [i.name for i in node.index if isinstance(i, Var)]
        fixed = [axis for axis, i in zip(comp.axes, node.index, strict=True) if not isinstance(i, Var)]
        if len(set(names)) != len(names) or any(not is_const(axis.extent, 1) for axis in fixed):
            raise Refused("epilogue_same_cell", found=f"{step.name} reads {comp.name} at other coordinates")
        if node.index != reads[0].index or {a.name for a in step.axes if not is_const(a.extent, 1)} - set(names):
            raise Refused("epilogue_same_cell", found=f"{step.name} reads {comp.name} at several coordinates")
    back = {i.name: axis for axis, i in zip(comp.axes, reads[0].index, strict=True) if isinstance(i, Var)}
    rename: dict[str, Expr] = {name: axis.var for name, axis in back.items()}
    rename |= {axis.name: i32(0) for axis in step.axes if axis.name not in back}
    body = substitute(step.body[0], rename)
    axes = tuple(back[axis.name].name if axis.name in back else "" for axis in step.axes)
    return output, body, axes
