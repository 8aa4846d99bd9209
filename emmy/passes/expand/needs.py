"""Which names statements use, and the split of a ring loop into what fills and what uses."""

from __future__ import annotations

from emmy.errors import EmmyError
from emmy.ir.expr import Const, Expr, Mem, Reg, Var, walk
from emmy.ir.kernel import For, If, Let, Stmt, View, rewrite, statements
from emmy.ir.pipeline import Acquire, Commit, Fill

Body = tuple[Stmt, ...]
PRODUCER = (Acquire, Fill, Commit)


def uses(body: Body) -> frozenset[str]:
    """Names that the statements of ``body`` refer to, their own definitions included."""
    found: set[str] = set()

    def expr(root: Expr) -> Expr:
        stack = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, Var | Reg):
                found.add(node.name)
            elif isinstance(node, Mem):
                found.add(node.buffer)
            elif isinstance(node, Const):
                continue
            stack += node.children
        return root

    def name(text: str) -> str:
        found.add(text)
        return text

    def inner(stmts: Body) -> Body:
        for stmt in stmts:
            rewrite(stmt, expr, inner, name)
        return stmts

    inner(body)
    return frozenset(found)


def pruned(body: Body) -> Body:
    """``body`` without Lets and Views that nothing after them uses, and without loops and conditions left empty."""
    kept: list[Stmt] = []
    used: set[str] = set()
    for stmt in reversed(body):
        if isinstance(stmt, Let | View) and stmt.name not in used:
            continue
        if isinstance(stmt, For | If):
            stmt = rewrite(stmt, lambda e: e, pruned)
            if not any(stmt.bodies):
                continue
        used |= uses((stmt,))
        kept.append(stmt)
    return tuple(reversed(kept))


def is_producer(stmt: Stmt, rings: frozenset[str]) -> bool:
    return isinstance(stmt, PRODUCER) and stmt.ring in rings


def only(body: Body, rings: frozenset[str], *, producer: bool) -> Body:
    """What fills ``rings`` in ``body``, with definitions, loops and conditions around it; or everything else."""
    out: list[Stmt] = []
    for stmt in body:
        mine = is_producer(stmt, rings)
        if isinstance(stmt, For | If):
            out.append(rewrite(stmt, lambda e: e, lambda inner: only(inner, rings, producer=producer)))
        elif mine == producer or isinstance(stmt, Let | View):
            out.append(stmt)
    return pruned(tuple(out))


def split_definitions(body: Body, rings: frozenset[str]) -> tuple[dict[str, Body], Body]:
    """(statements that fill each ring, the others), each with the definitions it needs.

    Raises EmmyError where a fill reads registers: it could not run at another time.
    """
    producers = {}
    for ring in sorted(rings):
        mine = only(body, frozenset((ring,)), producer=True)
        for stmt in statements(mine):
            for expr in stmt.exprs:
                if any(isinstance(node, Reg) for node in walk(expr)):
                    raise EmmyError(f"the fill of ring {ring} reads registers and cannot run ahead")
        producers[ring] = mine
    return producers, only(body, rings, producer=False)
