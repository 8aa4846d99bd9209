"""Index arithmetic is not negative: its rounding divisions become the machine's own (``floordiv`` → ``quot``).

Divisions by powers of two become shifts and masks whatever the sign.
"""

from __future__ import annotations

from dataclasses import replace

from emmy.ir.expr import Call, Const, Expr, Var, call, transform
from emmy.ir.kernel import THREAD_VARS, For, Kernel, Let, ScalarParam, Stmt, rewrite

_KEEPS = frozenset(("add", "mul", "floordiv", "mod", "quot", "rem", "min", "max", "shr", "bitand", "cast"))


def plain_divisions(kernel: Kernel) -> Kernel:
    """``kernel`` with integer ``floordiv``/``mod`` of operands known not to be negative as ``quot``/``rem``.

    Thread indices and size symbols are not negative; so are sums, products, quotients and extrema of such values,
    loop variables that start at one, and names bound to one.
    """
    known = set(THREAD_VARS) | {p.name for p in kernel.params if isinstance(p, ScalarParam) and p.dtype.is_int}

    def nonnegative(node: Expr) -> bool:
        match node:
            case Const(value):
                return value >= 0
            case Var(name):
                return name in known
            case Call("select", (_, yes, no)):
                return nonnegative(yes) and nonnegative(no)
            case Call(fn, args):
                return fn in _KEEPS and all(nonnegative(arg) for arg in args)
        return False

    def rule(node: Expr) -> Expr | None:
        if not (isinstance(node, Call) and node.fn in ("floordiv", "mod") and node.dtype.is_int):
            return None
        value, by = node.args
        if isinstance(by, Const) and by.value > 0 and int(by.value) & (int(by.value) - 1) == 0 and by.lanes == 1:
            # exact for negative operands too, and two instructions fewer than the signed division that rounds to zero
            if node.fn == "floordiv":
                return call("shr", value, Const(int(by.value).bit_length() - 1, by.dtype))
            return call("bitand", value, Const(int(by.value) - 1, by.dtype))
        if not all(nonnegative(arg) for arg in node.args):
            return None
        return call("quot" if node.fn == "floordiv" else "rem", *node.args)

    def visit(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out = []
        for stmt in body:
            if isinstance(stmt, For) and nonnegative(stmt.start) and nonnegative(stmt.step):
                known.add(stmt.var)
            new = rewrite(stmt, lambda e: transform(e, rule), visit)
            if isinstance(new, Let) and new.value.dtype.is_int and nonnegative(new.value):
                known.add(new.name)
            out.append(new)
        return tuple(out)

    return replace(kernel, body=visit(kernel.body))
