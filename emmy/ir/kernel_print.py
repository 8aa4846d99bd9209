"""Text of kernel IR (``--ir kernel``): one line a statement, bodies indented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

from emmy.ir.expr import Expr
from emmy.ir.kernel import (
    Atomic,
    Barrier,
    BufferParam,
    ClusterBarrier,
    Combine,
    Comment,
    For,
    If,
    Kernel,
    Let,
    Operand,
    Param,
    PeerStore,
    RegArray,
    RegSet,
    ScalarParam,
    ShuffleXor,
    Stmt,
    Store,
    View,
)
from emmy.ir.nest import show

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def head(stmt: Stmt) -> str:
    """The one-line text of ``stmt`` without its bodies."""
    match stmt:
        case Comment(text):
            return f"# {text}"
        case View(name, buffer, base, dtype):
            return f"view {name}: {dtype.value} = {buffer} + {show(base)}"
        case Let(name, value):
            return f"let {name}: {_type(value)} = {show(value)}"
        case RegArray(name, dtype, shape, lanes, init):
            width = f"x{lanes}" if lanes > 1 else ""
            fill = "" if init is None else f" = {init}"
            return f"regs {name}: {dtype.value}{width}[{', '.join(map(str, shape))}]{fill}"
        case RegSet(target, value):
            return f"{show(target)} = {show(value)}"
        case For(var, start, stop, step, _, unroll):
            return f"for {var} in {show(start)} .. {show(stop)} by {show(step)}" + (
                f" unroll {unroll}" if unroll else ""
            )
        case If(cond):
            return f"if {show(cond)}"
        case Store(buffer, offset, value, dtype, guard, aligned):
            width = f":{value.lanes}" if value.lanes > 1 else ""
            return (
                f"store {buffer}[{show(offset)}]{width}{'' if not aligned else ' aligned'} = {show(value)}{_if(guard)}"
            )
        case Atomic(op, buffer, offset, value, _, guard):
            return f"atomic {op} {buffer}[{show(offset)}], {show(value)}{_if(guard)}"
        case Barrier():
            return f"barrier {stmt.scope}" + (f" {stmt.id} of {stmt.threads}" if stmt.scope == "named" else "")
        case ClusterBarrier(phase):
            return f"barrier cluster {phase}"
        case PeerStore(buffer, offset, rank, value, _, guard, aligned):
            width = (f":{value.lanes}" if value.lanes > 1 else "") + (" aligned" if aligned else "")
            return f"store {buffer}[{show(offset)}]{width} of block {show(rank)} = {show(value)}{_if(guard)}"
        case ShuffleXor(name, value, mask):
            return f"let {name}: {_type(value)} = shuffle_xor({show(value)}, {mask})"
        case Combine(monoid, regs, group, scratch):
            return f"combine {monoid} over {group} threads ({', '.join(map(show, regs))}) through {', '.join(scratch)}"
    parts = [f"{f.name}={_field(value)}" if isinstance(value, bool | int) else _field(value)
             for f in fields(stmt) if (value := getattr(stmt, f.name)) is not None]  # type: ignore[arg-type]  # fmt: skip
    return " ".join([_WORD.sub("_", type(stmt).__name__).lower(), *(part for part in parts if part)])


def _field(value: object) -> str:
    if isinstance(value, Expr):
        return show(value)
    if isinstance(value, Operand):
        return "[" + " ".join(_field(getattr(value, f.name)) for f in fields(value)) + "]"  # type: ignore[arg-type]
    if isinstance(value, tuple):
        if value and isinstance(value[0], Stmt):
            return ""
        return "(" + ", ".join(_field(item) for item in value) + ")"
    return str(value)


def _if(guard: Expr | None) -> str:
    return "" if guard is None else f" if {show(guard)}"


def _type(value: Expr) -> str:
    return value.dtype.value + (f"x{value.lanes}" if value.lanes > 1 else "")


def _param(param: Param) -> str:
    match param:
        case BufferParam(name, dtype, writable, align):
            return f"{'out' if writable else 'in '} {name}: {dtype.value}* align {align}"
        case ScalarParam(name, dtype):
            return f"arg {name}: {dtype.value}"
    return f"map {param.name}"


def lines(kernel: Kernel) -> Iterator[str]:
    """The printed form, line by line."""
    x, y = kernel.block
    bounds = f" min_blocks {kernel.min_blocks}" if kernel.min_blocks else ""
    cluster = f" cluster {kernel.cluster}" if kernel.cluster > 1 else ""
    yield f"kernel {kernel.name} block {x}x{y} shared {kernel.smem_bytes} B{bounds}{cluster}"
    for param in kernel.params:
        yield f"  {_param(param)}"
    for array in kernel.shared:
        yield f"  shared {array.name}: {array.dtype.value}[{array.elements}] align {array.align}"
    yield from body(kernel.body, 1)


def body(stmts: tuple[Stmt, ...], depth: int) -> Iterator[str]:
    for stmt in stmts:
        yield "  " * depth + head(stmt)
        for k, inner in enumerate(stmt.bodies):
            if k and inner and isinstance(stmt, If):
                yield "  " * depth + "else"
            yield from body(inner, depth + 1)


def text(kernel: Kernel) -> str:
    """The printed form of ``kernel``."""
    return "\n".join(lines(kernel)) + "\n"
