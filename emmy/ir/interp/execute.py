"""Statements, for all threads of a strand at once. A statement that has to wait yields what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from emmy.ir.interp.errors import Divergence, Misuse
from emmy.ir.interp.evaluate import begin, check_offset, condition, convert, evaluate, write_register
from emmy.ir.interp.machine import Handler, Pointer, Registers, Strand
from emmy.ir.interp.memory import INTERNAL
from emmy.ir.kernel import (
    Atomic,
    Barrier,
    Combine,
    Comment,
    For,
    If,
    Let,
    RegArray,
    RegSet,
    ShuffleXor,
    Stmt,
    Store,
    View,
)
from emmy.ir.monoid import MONOIDS

Waits = Iterator[str]
HANDLERS: dict[type[Stmt], Handler] = {}
"""Statements that never wait. Those of emmy.ir.fragment and emmy.ir.pipeline add themselves."""
WAITING: dict[type[Stmt], Handler] = {}
"""Statements whose handler is a generator."""
ENDINGS: list[Callable[[Strand], None]] = []
"""What must hold when a strand has run to its end."""


def run_strand(strand: Strand, body: tuple[Stmt, ...]) -> Waits:
    """Runs a strand from beginning to end."""
    yield from run_body(strand, body)
    for check in ENDINGS:
        check(strand)


def run_body(strand: Strand, body: tuple[Stmt, ...]) -> Waits:
    for stmt in body:
        if not strand.mask.any():
            return
        strand.stmt = stmt
        begin(strand)
        handler = HANDLERS.get(type(stmt))
        if handler is not None:
            handler(strand, stmt)
        elif type(stmt) in WAITING:
            yield from WAITING[type(stmt)](strand, stmt)
        else:
            raise strand.fault(Misuse, f"no meaning for {type(stmt).__name__}")


def _comment(strand: Strand, stmt: Comment) -> None:
    pass


def _view(strand: Strand, stmt: View) -> None:
    parent = strand.pointer(stmt.buffer)
    if parent.memory.dtype != stmt.dtype:
        raise strand.fault(Misuse, "a view of another type", found=stmt.dtype.value, expected=parent.memory.dtype.value)
    base = np.asarray(evaluate(strand, stmt.base)).astype(np.int64) + np.asarray(parent.base)
    strand.pointers[stmt.name] = Pointer(parent.memory, base)


def _let(strand: Strand, stmt: Let) -> None:
    # a copy: a register is read as a view of its storage, and may be set again
    strand.names[stmt.name] = np.array(evaluate(strand, stmt.value))


def _reg_array(strand: Strand, stmt: RegArray) -> None:
    shape = (strand.block.threads, *stmt.shape, stmt.lanes)
    values: Any = np.zeros(shape, dtype=INTERNAL[stmt.dtype])
    if stmt.init is not None:
        values.fill(stmt.init)
    elif stmt.dtype.is_float:
        values.fill(np.nan)
    strand.registers[stmt.name] = Registers(stmt.dtype, values, np.full(shape, stmt.init is None))


def _reg_set(strand: Strand, stmt: RegSet) -> None:
    value = evaluate(strand, stmt.value)
    write_register(strand, stmt.target, convert(value, stmt.target.dtype) if stmt.value.dtype != stmt.target.dtype
                   else value)  # fmt: skip


def _store(strand: Strand, stmt: Store) -> None:
    pointer = strand.pointer(stmt.buffer)
    if pointer.memory.dtype != stmt.dtype:
        raise strand.fault(Misuse, f"{pointer.memory.name} is written as another type", found=stmt.dtype.value,
                           expected=pointer.memory.dtype.value)  # fmt: skip
    mask = condition(strand, stmt.guard)
    lanes = stmt.value.lanes
    offset = evaluate(strand, stmt.offset)
    check_offset(strand, stmt.offset, offset, mask)
    tids, index = strand.element_index(pointer, offset, lanes, mask, stmt.aligned)
    values = strand.threadwise(evaluate(strand, stmt.value), lanes).reshape(strand.block.threads, lanes)
    strand.write(pointer.memory, tids, index, values[tids])


_ATOMICS = {"add": np.add, "max": np.fmax, "min": np.fmin}


def _atomic(strand: Strand, stmt: Atomic) -> None:
    memory = strand.pointer(stmt.buffer).memory
    mask = condition(strand, stmt.guard)
    tids, index = strand.element_index(strand.pointer(stmt.buffer), evaluate(strand, stmt.offset), 1, mask, False)
    values = strand.threadwise(evaluate(strand, stmt.value))
    strand.note_write(memory, tids, index, atomic=True)
    for tid, at in zip(tids, index[:, 0], strict=True):
        memory.values[at] = memory.stored(_ATOMICS[stmt.op](memory.values[at], values[tid]))


def _shuffle(strand: Strand, stmt: ShuffleXor) -> None:
    strand.together(32, "a shuffle")
    lanes = stmt.value.lanes
    values = strand.threadwise(evaluate(strand, stmt.value), lanes)
    strand.names[stmt.name] = values[strand.block.tid ^ stmt.mask]


def _barrier(strand: Strand, stmt: Barrier) -> None:
    clocks = strand.block.clocks
    match stmt.scope:
        case "block":
            if not strand.mask.all():
                raise strand.fault(Divergence, f"a barrier of the block is reached by {int(strand.mask.sum())} of "
                                   f"{strand.block.threads} threads")  # fmt: skip
            if clocks is not None:
                clocks.barrier(strand.active)
                for memory in strand.block.shared.values():
                    if memory.accesses is not None:
                        memory.accesses.ordered_for_all()
        case "warp":
            strand.together(min(32, strand.block.threads), "a barrier of the warp")
            if clocks is not None:
                for first in range(0, strand.block.threads, 32):
                    warp = np.flatnonzero(strand.mask[first : first + 32]) + first
                    if warp.size:
                        clocks.barrier(warp)
        case "named":
            if int(strand.mask.sum()) != stmt.threads:
                raise strand.fault(Divergence, f"barrier {stmt.id} is reached by {int(strand.mask.sum())} threads",
                                   expected=f"{stmt.threads}")  # fmt: skip
            if clocks is not None:
                clocks.barrier(strand.active)
        case _:
            raise strand.fault(Misuse, f"no barrier of scope {stmt.scope}")


def _combine(strand: Strand, stmt: Combine) -> None:
    """The meaning of a Combine, element-wise over groups; it is a barrier of the block unless a warp can do it."""
    group = stmt.group
    strand.together(group, "a combine")
    if group > 32 and not strand.mask.all():
        raise strand.fault(Divergence, "a combine through shared memory is reached by a part of the block")
    algebra = MONOIDS[stmt.monoid]
    columns = [strand.threadwise(evaluate(strand, reg)).reshape(-1, group) for reg in stmt.regs]
    while columns[0].shape[1] > 1:
        half = columns[0].shape[1] // 2
        left = [column[:, :half] for column in columns]
        right = [column[:, half:] for column in columns]
        columns = [np.asarray(_formula(expr, left, right)) for expr in algebra.combine]
    for reg, column in zip(stmt.regs, columns, strict=True):
        write_register(strand, reg, np.repeat(column[:, 0], group).astype(INTERNAL[reg.dtype]))


def _formula(expr: Any, left: list[Any], right: list[Any]) -> Any:
    """A combine's expression over arrays."""
    from emmy.ir.expr import Call, Const, Var, walk
    from emmy.ir.scalar import FUNCTIONS

    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for node in walk(expr):
            match node:
                case Const(value, dtype):
                    values[id(node)] = INTERNAL[dtype](value)
                case Var(name):
                    values[id(node)] = (left if name[0] == "a" else right)[int(name[1:])]
                case Call(fn, args):
                    values[id(node)] = FUNCTIONS[fn].evaluate(*(values[id(arg)] for arg in args))
    return values[id(expr)]


def _if(strand: Strand, stmt: If) -> Waits:
    outer = strand.mask
    chosen = condition(strand, stmt.cond)
    rest = outer & ~chosen
    if chosen.any():
        strand.mask = chosen
        yield from run_body(strand, stmt.then)
    if stmt.orelse and rest.any():
        strand.mask = rest
        yield from run_body(strand, stmt.orelse)
    strand.mask = outer


def _for(strand: Strand, stmt: For) -> Waits:
    outer = strand.mask
    start, stop, step = (evaluate(strand, e) for e in (stmt.start, stmt.stop, stmt.step))
    if (strand.threadwise(step)[outer] <= 0).any():
        raise strand.fault(Misuse, f"the loop over {stmt.var} does not advance")
    alike = all(np.ndim(bound) == 0 for bound in (start, stop, step))
    value = start if alike else np.array(strand.threadwise(start))
    while True:
        mask = outer & (value < stop)
        if not mask.any():
            break
        strand.mask = mask
        strand.names[stmt.var] = value
        yield from run_body(strand, stmt.body)
        value = value + step
    strand.mask = outer


HANDLERS.update({
    Comment: _comment, View: _view, Let: _let, RegArray: _reg_array, RegSet: _reg_set, Store: _store,
    Atomic: _atomic, ShuffleXor: _shuffle, Barrier: _barrier, Combine: _combine,
})  # fmt: skip
WAITING.update({If: _if, For: _for})
