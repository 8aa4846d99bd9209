"""Drops what a kernel declares and nothing uses: the last step before printing, so that compilers have nothing to say.

Lowering and expansion name what they may need: coordinates of both operands, scratch memory for threads beyond a warp,
components of a tuple that a program does not ask for. A front end warns of each of them, and a warning that matters
must not drown.
"""

from __future__ import annotations

from dataclasses import replace

from emmy.ir.expr import Expr, Mem, Reg, Var
from emmy.ir.kernel import For, If, Kernel, Let, Stmt, View, rewrite

Body = tuple[Stmt, ...]


def prune(kernel: Kernel) -> Kernel:
    """``kernel`` without Lets, Views and shared arrays that nothing uses, and without loops and conditions that are
    left empty by that. Values have no effects, so what remains computes the same."""
    names = _Names()
    body, used = _kept(kernel.body, names)
    return replace(kernel, body=body, shared=tuple(array for array in kernel.shared if used & names.bit(array.name)))


class _Names:
    """Sets of names, each as the bits of a number. Statements share much of their arithmetic: a node is seen once."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._nodes: dict[int, int] = {}

    def bit(self, name: str) -> int:
        return self._bits.setdefault(name, 1 << len(self._bits))

    def of(self, root: Expr) -> int:
        """Names that an expression refers to."""
        known, stack = self._nodes, [root]
        while stack:
            node = stack[-1]
            found, ready = self._own(node), True
            for child in node.children:
                below = known.get(id(child))
                if below is None:
                    ready = False
                    stack.append(child)
                else:
                    found |= below
            if ready:
                known[id(node)] = found
                stack.pop()
        return known[id(root)]

    def _own(self, node: Expr) -> int:
        match node:
            case Var(name) | Reg(name) | Mem(name):
                return self.bit(name)
        return 0

    def used_by(self, stmt: Stmt) -> int:
        """Names in the statement itself, those of what it defines included, without its bodies."""
        found = 0

        def expr(root: Expr) -> Expr:
            nonlocal found
            found |= self.of(root)
            return root

        def name(text: str) -> str:
            nonlocal found
            found |= self.bit(text)
            return text

        rewrite(stmt, expr, lambda inner: inner, name)
        return found


def _kept(body: Body, names: _Names) -> tuple[Body, int]:
    """The statements that stay, and the names that they use and do not define. Sibling scopes may define one name."""
    kept: list[Stmt] = []
    used = 0
    for stmt in reversed(body):
        if isinstance(stmt, Let | View) and not used & names.bit(stmt.name):
            continue
        new, within = _inside(stmt, names) if stmt.bodies else (stmt, 0)
        if isinstance(new, For | If) and not any(new.bodies):
            continue
        used |= within | names.used_by(new)
        for name in (*new.defines, *((new.var,) if isinstance(new, For) else ())):
            used &= ~names.bit(name)
        kept.append(new)
    return tuple(reversed(kept)), used


def _inside(stmt: Stmt, names: _Names) -> tuple[Stmt, int]:
    """``stmt`` with its bodies pruned, and the names that they use from outside."""
    used = 0

    def pruned(body: Body) -> Body:
        nonlocal used
        left, below = _kept(body, names)
        used |= below
        return left

    return rewrite(stmt, lambda expr: expr, pruned), used
