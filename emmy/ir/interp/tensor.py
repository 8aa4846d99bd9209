"""Fragments, ldmatrix and matrix atoms, evaluated through their layouts: gather, multiply, scatter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emmy.ir.expr import Reg
from emmy.ir.fragment import ATOMS, WARP, WARPGROUP, Atom, Fragments, LdMatrix, Mma, Swizzle
from emmy.ir.interp.errors import Divergence, Misuse, OutOfBounds, PoisonRead
from emmy.ir.interp.evaluate import evaluate, read_register, slot, write_register
from emmy.ir.interp.execute import ENDINGS, HANDLERS
from emmy.ir.interp.machine import Registers, Strand
from emmy.ir.interp.memory import INTERNAL, Array, Memory, rounded
from emmy.ir.pipeline import AsyncFence, Matrix, Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait


def _fragments(strand: Strand, stmt: Fragments) -> None:
    shape = (strand.block.threads, *stmt.shape, stmt.layout.registers)
    values: Any = np.full(shape, np.nan if stmt.init is None else stmt.init, dtype=INTERNAL[stmt.dtype])
    strand.registers[stmt.name] = Registers(stmt.dtype, values, np.full(shape, stmt.init is None))
    strand.touched.add(stmt.name)


def gather(values: Array, atom: Atom, role: str) -> Array:
    """(threads, registers) → (groups, rows, cols): the tile that each warp or warpgroup holds."""
    layout = atom.layout(role)
    rows, cols = layout.table()
    out = np.empty((values.shape[0] // layout.lanes, layout.rows, layout.cols), dtype=np.float32)
    out[:, rows, cols] = values.reshape(-1, layout.lanes, layout.registers)
    return out


def scatter(tiles: Array, atom: Atom, role: str) -> Array:
    """(groups, rows, cols) → (threads, registers)."""
    layout = atom.layout(role)
    rows, cols = layout.table()
    return tiles[:, rows, cols].reshape(-1, layout.registers)


def _mma(strand: Strand, stmt: Mma) -> None:
    atom = ATOMS[stmt.atom]
    strand.together(WARP, atom.name)
    c, a, b = (gather(read_register(strand, reg), atom, role) for reg, role in
               ((stmt.c, "c"), (stmt.a, "a"), (stmt.b, "b")))  # fmt: skip
    with np.errstate(all="ignore"):
        result = rounded(c + np.matmul(a, b), atom.acc).astype(np.float32)
    write_register(strand, stmt.c, scatter(result, atom, "c"))


def _ldmatrix(strand: Strand, stmt: LdMatrix) -> None:
    strand.together(WARP, "ldmatrix")
    pointer = strand.pointer(stmt.buffer)
    count = stmt.matrices
    if count not in (1, 2, 4) or pointer.memory.space != "shared":
        raise strand.fault(Misuse, f"ldmatrix of {count} matrices from {pointer.memory.space} memory",
                           expected="1, 2 or 4 from shared memory")  # fmt: skip
    lane = strand.block.tid % WARP
    mask = strand.mask & (lane < 8 * count)
    tids, index = strand.element_index(pointer, evaluate(strand, stmt.offset), 8, mask, True)
    rows = strand.read(pointer.memory, tids, index)  # one matrix row a thread
    matrices = rows.reshape(-1, count, 8, 8)
    if stmt.trans:
        matrices = matrices.swapaxes(2, 3)
    lanes = np.arange(WARP)
    pairs = matrices[:, :, lanes[:, None] // 4, (lanes[:, None] % 4) * 2 + np.arange(2)]  # warps, matrices, lanes, 2
    held = pairs.transpose(0, 2, 1, 3).reshape(-1, 2 * count)
    whole = np.zeros((strand.block.threads, 2 * count), dtype=held.dtype)
    whole[strand.mask] = held
    first = 0
    for target in stmt.targets:
        write_register(strand, target, whole[:, first : first + target.lanes])
        first += target.lanes


# ------------------------------------------------------------------------------------------------------ warpgroup


@dataclass(slots=True)
class Groups:
    """Warpgroup atoms that were begun and not waited for: those of the open group, and the committed groups."""

    open: list[Callable[[], None]] = field(default_factory=list)
    committed: list[list[Callable[[], None]]] = field(default_factory=list)
    registers: set[str] = field(default_factory=set)
    """Accumulators in use."""


def _groups(strand: Strand) -> Groups:
    groups: Groups = strand.state.setdefault("wgmma", Groups())
    return groups


def matrix_bytes(matrix: Matrix, rows: Array, k: Array, nbytes: int) -> Array:
    """Byte of element (row of m or n, k), from the matrix' start, before the swizzle."""
    span = matrix.span_bytes or 16
    along, across = (k, rows) if matrix.major == "k" else (rows, k)
    within = along * nbytes
    return (across % 8) * span + across // 8 * matrix.group_bytes + within % span + within // span * matrix.panel_bytes


def _operand(strand: Strand, matrix: Matrix, rows: int, atom: Atom) -> tuple[Memory, Array, Array]:
    """(memory, threads that read, element indices (warpgroups, rows, k)) of a shared-memory operand."""
    pointer = strand.pointer(matrix.buffer)
    nbytes = atom.operand.nbytes
    start = strand.threadwise(evaluate(strand, matrix.offset)) + strand.threadwise(pointer.base)
    first = start.reshape(-1, WARPGROUP)
    active = strand.mask.reshape(-1, WARPGROUP)[:, 0]
    if (first[active] != first[active][:, :1]).any():
        raise strand.fault(Misuse, f"the start of {matrix.buffer} differs among the threads of a warpgroup")
    start_bytes = first[active][:, 0] * nbytes
    if (start_bytes % 16).any():
        raise strand.fault(OutOfBounds, f"{matrix.buffer} starts off a multiple of 16 bytes")
    at = matrix_bytes(matrix, np.arange(rows)[:, None], np.arange(atom.k)[None, :], nbytes)
    absolute = start_bytes[:, None, None] + at[None]
    index = Swizzle.of_span(matrix.span_bytes).bytes_at(absolute) // nbytes
    if (index < 0).any() or (index >= pointer.memory.values.size).any():
        raise strand.fault(OutOfBounds, f"{atom.name} reads outside {pointer.memory.name}")
    return pointer.memory, np.flatnonzero(active) * WARPGROUP, index


def _read_operand(strand: Strand, matrix: Matrix, rows: int, atom: Atom, whole: tuple[Memory, Array, Array]) -> Array:
    memory, leaders, index = whole
    flat = index.reshape(len(leaders), -1)
    # each warp reads it. Its last lane stands for it: a release by another lane needs a barrier of the warp, as after
    # ordinary reads
    for last in range(WARP - 1, WARPGROUP, WARP):
        values = strand.read(memory, leaders + last, flat)
    if memory.unfenced is not None and memory.unfenced[flat].any():
        raise strand.fault(Misuse, f"{atom.name} reads {memory.name} as threads wrote it",
                           hint="an AsyncFence and a barrier must come between")  # fmt: skip
    return values.reshape(index.shape)


def _wgmma(strand: Strand, stmt: Wgmma) -> None:
    atom, groups = ATOMS[stmt.atom], _groups(strand)
    strand.together(WARPGROUP, atom.name)
    if stmt.c.name in strand.touched or (isinstance(stmt.a, Reg) and stmt.a.name in strand.touched):
        raise strand.fault(Misuse, f"registers of {atom.name} were touched since the last wgmma fence")
    a_reg = stmt.a if isinstance(stmt.a, Reg) else None
    a_at = None if isinstance(stmt.a, Reg) else _operand(strand, stmt.a, atom.m, atom)
    b_at = _operand(strand, stmt.b, atom.n, atom)
    values, poison = slot(strand, stmt.c)
    mask = strand.mask.copy()
    wanted = strand.threadwise(evaluate(strand, stmt.accumulate))[mask]
    if (wanted != wanted[0]).any():
        raise strand.fault(Divergence, "whether to accumulate differs among threads")
    accumulate = bool(wanted[0])
    if accumulate and poison[mask].any() and stmt.c.name not in groups.registers:
        raise strand.fault(PoisonRead, f"{atom.name} accumulates onto {stmt.c.name}, which holds nothing")
    groups.registers.add(stmt.c.name)
    active = mask.reshape(-1, WARPGROUP)[:, 0]
    a_values = None if a_reg is None else gather(read_register(strand, a_reg), atom, "a")[active]

    def finish() -> None:
        a: Any = a_values
        if a_at is not None and not isinstance(stmt.a, Reg):
            a = _read_operand(strand, stmt.a, atom.m, atom, a_at)
        b = _read_operand(strand, stmt.b, atom.n, atom, b_at)
        before = gather(values, atom, "c")[active] if accumulate else np.float32(0)
        with np.errstate(all="ignore"):
            tiles = rounded(before + np.matmul(a, b.swapaxes(1, 2)), atom.acc).astype(np.float32)
        values[mask] = scatter(tiles, atom, "c")

    groups.open.append(finish)
    poison[mask] = True


def _ended(strand: Strand) -> None:
    groups = _groups(strand)
    if groups.open or groups.committed:
        raise strand.fault(Misuse, "the kernel ends while warpgroup atoms are in flight")


def _wgmma_fence(strand: Strand, stmt: WgmmaFence) -> None:
    strand.together(WARPGROUP, "a wgmma fence")
    strand.touched.clear()


def _wgmma_commit(strand: Strand, stmt: WgmmaCommit) -> None:
    groups = _groups(strand)
    groups.committed.append(groups.open)
    groups.open = []


def _wgmma_wait(strand: Strand, stmt: WgmmaWait) -> None:
    groups = _groups(strand)
    done = groups.committed[: max(0, len(groups.committed) - stmt.pending)]
    groups.committed = groups.committed[len(done) :]
    for group in done:
        for finish in group:
            finish()
    if not groups.committed and not groups.open:
        for name in groups.registers:
            strand.slots(name).poison[strand.mask] = False
        groups.registers.clear()


def _async_fence(strand: Strand, stmt: AsyncFence) -> None:
    for memory in strand.block.shared.values():
        if memory.unfenced is not None and memory.accesses is not None:
            memory.unfenced &= ~np.isin(memory.accesses.writer, strand.active)
        elif memory.unfenced is not None:
            memory.unfenced[:] = False


ENDINGS.append(_ended)
HANDLERS.update({
    Fragments: _fragments, Mma: _mma, LdMatrix: _ldmatrix, Wgmma: _wgmma, WgmmaFence: _wgmma_fence,
    WgmmaCommit: _wgmma_commit, WgmmaWait: _wgmma_wait, AsyncFence: _async_fence,
})  # fmt: skip
