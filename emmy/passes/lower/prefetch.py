"""Touching ahead what a tile's epilogue reads.

Its reads stand at the end of the block, where nothing covers the 600 to 800 ns that device memory takes. So a word of
every sector is copied along with the first operands, to a place in shared memory that nobody reads: the copies leave
the sectors in the caches, the multiprocessor's own included, and no register is held for them.

The sum with a residual of 512 × 2048 float16 took 9.09 µs on an H200 and takes 8.53, where the plain product takes
8.31; of ten such leaves every one gained 2 to 10 % (2026-11-30, cold, one run). ``prefetch.global.L2`` in place of the
copies reaches the L2 cache alone, and gained a third less. Either way the residual's address goes into an instruction
that the compiler does not look into, so that its reads are to be printed as reads of what nobody writes: without that
they stayed behind the barriers of the epilogue, and the same leaf took 10.3 µs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emmy.ir.expr import Expr, Load, add, both, call, free_vars, i32, is_const, mul
from emmy.ir.kernel import TID, Shared, Stmt
from emmy.ir.nest import Axis
from emmy.ir.pipeline import Copy
from emmy.passes.lower.access import Memory, gathers
from emmy.passes.lower.tile import vector_fits

SECTOR, WORD = 32, 4
"""Bytes that a cache fetches at least, and bytes that are copied of them."""

MOST = 16
"""Copies a thread at most: a tile of more is left to its reads."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One side of a block's tile. start: its first index; inside: whether the axis divides into such sides."""

    axis: Axis
    start: Expr
    extent: int
    inside: bool


@dataclass(frozen=True, slots=True)
class Askers:
    """The threads that share the sectors out. block: of a block; part, parts: its number among the blocks of a tile."""

    block: int
    part: Expr
    parts: int

    @property
    def all(self) -> int:
        return self.block * self.parts

    def number(self, turn: int) -> Expr:
        """The sector that a thread asks for in its ``turn``-th turn."""
        return add(add(TID, mul(self.part, i32(self.block))), i32(turn * self.all))


def prefetches(
    memory: Memory, loads: list[Load], env: dict[str, Expr], edges: tuple[Edge, Edge], askers: Askers
) -> tuple[list[Stmt], list[Shared]]:
    """Copies of a word of every sector of ``loads`` at the tile's cells, and where they land.

    env: the outer axes' indices. Left alone are reads that may lie outside their tensor, those at places that are read
    from memory themselves, and those that do not run in whole words along a side of the tile.
    """
    out: list[Stmt] = []
    landings: list[Shared] = []
    for load in loads:
        if load.tensor not in memory.tensors or gathers(load) or not memory.stays_inside(load):
            continue
        dtype = memory.tensors[load.tensor].dtype
        name, lanes = f"landing{len(landings)}", word_bytes(dtype.nbytes) // dtype.nbytes
        sources = _sources(memory, load, lanes, env, edges, askers)
        for turn, (source, guard) in enumerate(sources):
            # a word of its own for every copy: no order is asked of two that are under way
            place = mul(add(TID, i32(turn * askers.block)), i32(lanes))
            out.append(Copy(name, place, load.tensor, source, lanes, dtype, guard, "async"))
        if sources:
            landings.append(Shared(name, dtype, lanes * askers.block * len(sources)))
    return out, landings


def _sources(
    memory: Memory, load: Load, lanes: int, env: dict[str, Expr], edges: tuple[Edge, Edge], askers: Askers
) -> list[tuple[Expr, Expr | None]]:
    """(element, guard) of a thread's copies, turn by turn."""
    used = {name for index in load.index for name in free_vars(index)}
    own = [edge for edge in edges if edge.axis.name in used]
    line = next((edge for edge in own if _runs_along(memory, load, edge.axis, lanes)), None)
    if line is None:
        return []
    nbytes = memory.tensors[load.tensor].dtype.nbytes
    each = -(-line.extent * nbytes // SECTOR)
    across = next((edge for edge in own if edge is not line), None)
    total = each * (across.extent if across is not None else 1)
    turns = -(-total // askers.all)
    out: list[tuple[Expr, Expr | None]] = []
    for turn in range(turns if turns <= MOST else 0):
        number = askers.number(turn)
        at = {**env, line.axis.name: add(line.start, mul(call("mod", number, i32(each)), i32(SECTOR // nbytes)))}
        if across is not None:
            at[across.axis.name] = add(across.start, call("floordiv", number, i32(each)))
        guard = None if (turn + 1) * askers.all <= total else call("lt", number, i32(total))
        for edge in own:
            if not edge.inside:
                guard = both(guard, call("lt", at[edge.axis.name], edge.axis.extent))
        out.append((memory.offset(load.tensor, load.index, at), guard))
    return out


def _runs_along(memory: Memory, load: Load, axis: Axis, lanes: int) -> bool:
    """Whether neighbours along ``axis`` are neighbours in memory, and whole words of ``lanes`` of them aligned."""
    stride = memory.stride(load, axis.name)
    return stride is not None and is_const(stride, 1) and vector_fits(memory, load, axis, lanes)


def word_bytes(nbytes: int) -> int:
    """Bytes of a copy of elements of ``nbytes``: cp.async takes 4 at least."""
    return max(WORD, nbytes)


def landing_bytes(
    nbytes: int, rows: NDArray[np.int64], columns: NDArray[np.int64], threads: NDArray[np.int64],
    parts: NDArray[np.int64],
) -> NDArray[np.int64]:  # fmt: skip
    """Bytes of shared memory that a block needs at most for what its tile of ``rows × columns`` touches."""
    most = np.zeros(len(rows), dtype=np.int64)
    for line, across in ((columns, rows), (rows, columns)):
        turns = -(-(-(-line * nbytes // SECTOR) * across) // (threads * parts))
        most = np.maximum(most, np.where(turns <= MOST, turns, 0))
    return most * threads * word_bytes(nbytes)
