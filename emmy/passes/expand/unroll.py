"""Replaces loops marked ``unroll="full"`` by their iterations, and conditions that became constant by their branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from emmy.errors import EmmyError
from emmy.ir.expr import Const, Expr, Mem, Reg, Var, rebuild
from emmy.ir.kernel import For, If, Kernel, Stmt, rewrite, statements


@dataclass(frozen=True, slots=True)
class Scope:
    """What names stand for at a place: loop variables by their value, names of an earlier iteration's copies."""

    values: Mapping[str, Expr] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    done: dict[int, Expr] = field(default_factory=dict, compare=False)
    """What was rewritten here already, by identity: statements share much of their index arithmetic."""

    def expr(self, root: Expr) -> Expr:
        if not self.values and not self.names:
            return root
        done, stack = self.done, [root]
        while stack:
            node = stack[-1]
            if id(node) in done:
                stack.pop()
                continue
            old = node.children
            missing = [child for child in old if id(child) not in done]
            if missing:
                stack += missing
                continue
            new = tuple(done[id(child)] for child in old)
            built = node if all(x is y for x, y in zip(old, new, strict=True)) else rebuild(node, new)
            done[id(node)] = self._rule(built) or built
            stack.pop()
        return done[id(root)]

    def _rule(self, node: Expr) -> Expr | None:
        match node:
            case Var(name, dtype, lanes):
                if name in self.values:
                    return self.values[name]
                return Var(self.names[name], dtype, lanes) if name in self.names else None
            case Mem(buffer) if buffer in self.names:
                return replace(node, buffer=self.names[buffer])
            case Reg(name, index, dtype, lanes) if name in self.names:
                return Reg(self.names[name], index, dtype, lanes)
        return None

    def name(self, name: str) -> str:
        return self.names.get(name, name)


def unroll(kernel: Kernel) -> Kernel:
    """``kernel`` without loops marked ``full``. What an iteration defines gets a name of its own.

    Raises EmmyError when the bounds of such a loop are not constant.
    """
    if not any(isinstance(stmt, For) and stmt.unroll == "full" for stmt in statements(kernel.body)):
        return kernel
    taken = {name for stmt in statements(kernel.body) for name in (*stmt.defines, getattr(stmt, "var", ""))
             if isinstance(name, str)}  # fmt: skip
    return replace(kernel, body=tuple(_run(kernel.body, Scope(), taken)))


def _run(body: tuple[Stmt, ...], scope: Scope, taken: set[str]) -> Iterator[Stmt]:
    for stmt in body:
        if isinstance(stmt, For) and stmt.unroll == "full":
            for value in _iterations(stmt, scope):
                yield from _run(stmt.body, _iteration(stmt, scope, value, taken), taken)
            continue
        new = rewrite(stmt, scope.expr, lambda inner: tuple(_run(inner, scope, taken)), scope.name)
        if isinstance(new, If) and isinstance(new.cond, Const):
            yield from new.then if new.cond.value else new.orelse
        else:
            yield new


def _iterations(stmt: For, scope: Scope) -> range:
    bounds = [scope.expr(e) for e in (stmt.start, stmt.stop, stmt.step)]
    values = [int(e.value) for e in bounds if isinstance(e, Const)]
    if len(values) != 3:
        raise EmmyError(f"the loop over {stmt.var} is to be unrolled, and its bounds are not constant")
    return range(*values)


def _iteration(stmt: For, scope: Scope, value: int, taken: set[str]) -> Scope:
    names = {**scope.names, **_fresh(stmt.body, str(value), taken, scope)}
    return Scope({**scope.values, stmt.var: Const(value, stmt.start.dtype)}, names)


def _fresh(body: tuple[Stmt, ...], suffix: str, taken: set[str], scope: Scope) -> dict[str, str]:
    names: dict[str, str] = {}
    for inner in statements(body):
        for name in inner.defines:
            fresh = f"{scope.name(name)}_{suffix}"
            while fresh in taken:
                fresh += "_"
            taken.add(fresh)
            names[name] = fresh
    return names


def copied(body: tuple[Stmt, ...], values: Mapping[str, Expr], suffix: str, taken: set[str]) -> tuple[Stmt, ...]:
    """A copy of ``body`` with variables replaced by ``values`` and definitions under names of their own."""
    return tuple(_run(body, Scope(values, _fresh(body, suffix, taken, Scope())), taken))
