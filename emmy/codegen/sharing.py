"""Value numbering: which subexpressions of a statement occur more than once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emmy.ir.expr import Call, Const, Expr, Lane, Load, Mem, Pack, Reg, Splat, Var, walk


@dataclass(frozen=True, slots=True)
class Numbering:
    """``number`` by the object's id, then, by number: one representative node and how often it is used."""

    number: dict[int, int]
    nodes: list[Expr]
    uses: list[int]

    def of(self, node: Expr) -> int:
        return self.number[id(node)]


def _fields(node: Expr) -> tuple[object, ...]:
    """What tells ``node`` apart from another of its class with the same children."""
    match node:
        case Const(value, dtype, lanes):
            return (repr(value), dtype, lanes)
        case Var(name, dtype, lanes):
            return (name, dtype, lanes)
        case Call(fn, _, dtype, lanes):
            return (fn, dtype, lanes)
        case Mem(buffer, _, dtype, lanes, _, fill, aligned):
            return (buffer, dtype, lanes, repr(fill), aligned)
        case Reg(name, _, dtype, lanes):
            return (name, dtype, lanes)
        case Lane(_, lane):
            return (lane,)
        case Splat(_, lanes):
            return (lanes,)
        case Pack() | Load():
            return ()
    raise TypeError(f"not an expression: {node!r}")


def number(roots: Iterable[Expr]) -> Numbering:
    """Numbers every subexpression of ``roots`` so that equal ones share a number; children come before parents."""
    keys: dict[tuple[object, ...], int] = {}
    out = Numbering({}, [], [])
    for root in roots:
        for node in walk(root):
            if id(node) in out.number:
                continue
            children = tuple(out.number[id(child)] for child in node.children)
            key = (type(node).__name__, *_fields(node), children)
            if key not in keys:
                keys[key] = len(out.nodes)
                out.nodes.append(node)
                out.uses.append(0)
                for child in children:
                    out.uses[child] += 1
            out.number[id(node)] = keys[key]
        out.uses[out.number[id(root)]] += 1
    return out
