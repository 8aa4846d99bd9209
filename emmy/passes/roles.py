"""What a computation is to the fusing passes: a map, a row reduction or a contraction, and what it costs to repeat."""

from __future__ import annotations

from emmy.ir.expr import Call, Expr, Load, Var, free_vars, walk
from emmy.ir.nest import Axis, Comp
from emmy.ir.scalar import FUNCTIONS

GATHER_COST = 8.0
"""A load whose address is loaded first."""

LOAD_COST = 1.0
"""Every load of a body beyond its first."""


def factors(expr: Expr) -> list[Expr]:
    """The factors of a product, in order; ``[expr]`` for anything else."""
    if isinstance(expr, Call) and expr.fn == "mul":
        return factors(expr.args[0]) + factors(expr.args[1])
    return [expr]


def is_contraction(comp: Comp) -> bool:
    """Whether ``comp`` sums products of two operands, each of which is used again along an axis of the other.

    A matrix times a vector reads its matrix once: it is a row reduction.
    """
    if comp.monoid != "sum" or comp.carried:
        return False
    parts = [free_vars(factor) for factor in factors(comp.body[0])]
    reduce = {axis.name for axis in comp.reduce}
    reducing = [names for names in parts if names & reduce]
    own = {axis.name for axis in comp.axes}
    sides: list[set[str]] = [set(names & own) for names in reducing]
    return any(a - b and b - a for n, a in enumerate(sides) for b in sides[n + 1 :])


def is_attention(comp: Comp) -> bool:
    return comp.monoid == "online_attention"


def is_heavy(comp: Comp) -> bool:
    """Whether a computation is the anchor of a kernel of its own: work far beyond the memory it touches."""
    return is_contraction(comp) or is_attention(comp)


def cost(expr: Expr) -> float:
    """Cost of evaluating ``expr`` once, in float32 multiply-adds; index arithmetic is not counted."""
    total = 0.0
    loads = 0
    seen: set[Expr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Load):
            loads += 1
            if any(isinstance(inner, Load) for index in node.index for inner in walk(index)):
                total += GATHER_COST
            continue
        if isinstance(node, Call) and node.fn != "cast":
            total += FUNCTIONS[node.fn].cost
        stack.extend(node.children)
    return total + LOAD_COST * max(0, loads - 1)


def reads_same_cell(load: Load, axes: tuple[Axis, ...]) -> bool:
    """Whether ``load`` is indexed by exactly ``axes``, in order."""
    return len(load.index) == len(axes) and all(
        isinstance(index, Var) and index.name == axis.name for index, axis in zip(load.index, axes, strict=True)
    )


def extents(axes: tuple[Axis, ...]) -> tuple[Expr, ...]:
    return tuple(axis.extent for axis in axes)
