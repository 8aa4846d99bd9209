"""Operand tiles of a contraction in a shared-memory ring: how threads fill a slot, and how it is read back.

A slot holds the b tile as ``k × block_n``. The a tile has rows of k where k is contiguous in memory, so that rows are
copied as whole vectors and read as vectors of several k steps (element by element on a CPU); else it is k-major too,
and a thread's rows are neighbours that are read as one vector. Threads walk a tile along whichever axis is contiguous
in memory. Elements beyond an edge are filled with zero, the identity of the sum.

An ``async`` fill copies with cp.async whatever cp.async can carry: tensor elements, 4, 8 or 16 bytes of them. Factors
with a prologue, and single elements of two bytes, go through registers and are stored as the fill of a ``sync`` ring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emmy.ir.dtype import DType
from emmy.ir.expr import (
    Const,
    Expr,
    Load,
    Var,
    add,
    both,
    call,
    cast,
    floordiv,
    i32,
    is_const,
    mod,
    mul,
    select,
)
from emmy.ir.kernel import TID, For, If, Let, Shared, Stmt, Store, View
from emmy.ir.nest import Axis
from emmy.ir.pipeline import Copy
from emmy.passes.lower.access import Memory, Point

PAD = 4
"""Elements added to a row of the a tile, so that a column of it does not fall into one shared-memory bank."""

THREAD_X, THREAD_Y = Var("thread_x"), Var("thread_y")
"""A thread's column and row in its block, where warps are not rows of threads."""


def warp_places(n: int, m: int) -> list[Stmt]:
    """Lets for THREAD_X and THREAD_Y in a block (or slice of one) of ``n`` threads across, a multiple of 8, and
    ``m`` down, a multiple of 4.

    A 128-bit shared-memory access is served a half warp at a time, in one go if the half's lanes read 128 bytes in all
    and lanes i and i ^ 1, or i and i ^ 2, read the same. So bits 0 and 2 of a lane's number are its row, bits 1, 3 and
    4 its column: an access to a takes two goes, and so does one to b. With rows of sixteen threads it is two and four.
    """
    lane, warp = Let("lane", mod(TID, i32(32))), Let("warp", mod(floordiv(TID, i32(32)), i32(n * m // 32)))
    x = add(mod(floordiv(lane.var, i32(2)), i32(2)), mul(floordiv(lane.var, i32(8)), i32(2)))
    y = add(mod(lane.var, i32(2)), mul(mod(floordiv(lane.var, i32(4)), i32(2)), i32(2)))
    across = i32(n // 8)
    return [
        lane,
        warp,
        Let(THREAD_X.name, add(mul(mod(warp.var, across), i32(8)), x)),
        Let(THREAD_Y.name, add(mul(floordiv(warp.var, across), i32(4)), y)),
    ]


@dataclass(frozen=True, slots=True)
class StagedTile:
    """One operand's tile in the ring.

    k_major: ``k`` rows of ``width`` elements, else ``width`` rows of ``k``; rows are ``pitch`` apart.
    across: the tile's other axis (m or n), ``width`` long. factor: what is stored, with its prologue.
    along_k: neighbours in memory are neighbours along k. lanes: elements one thread moves at once along a row of the
    tile; 1 where rows of the operand run the other way, or are not whole vectors.
    """

    name: str
    factor: Expr
    dtype: DType
    across: Axis
    k_axis: Axis
    k: int
    width: int
    pitch: int
    along_k: bool
    lanes: int
    k_major: bool = True

    @property
    def elements(self) -> int:
        return (self.k if self.k_major else self.width) * self.pitch

    def at(self, slot: Expr, k: Expr, across: Expr) -> Expr:
        """Offset of an element of the slot that starts at ``slot``."""
        row, column = (k, across) if self.k_major else (across, k)
        return add(add(slot, mul(row, i32(self.pitch))), column)

    def shared(self, depth: int) -> Shared:
        return Shared(self.name, self.dtype, self.elements * depth)

    def base(self, step: Expr, depth: int) -> Expr:
        """First element of the slot that holds ``step``."""
        return mul(mod(step, i32(depth)), i32(self.elements)) if depth > 1 else i32(0)


def staged_tile(
    name: str,
    memory: Memory,
    factor: Expr,
    across: Axis,
    k_axis: Axis,
    k: int,
    width: int,
    pad: int,
    widest: int,
    k_major: bool | None = None,
) -> StagedTile:
    """How ``factor`` (free of the other tile axis) is staged. ``widest``: bytes of the widest access.

    k_major None: rows run along k where the factor does.
    """
    plain = isinstance(factor, Load)
    loads = [factor] if isinstance(factor, Load) else _loads(factor)
    dtype = staged_dtype(memory, factor)
    strides = [(memory.stride(load, across.name), memory.stride(load, k_axis.name)) for load in loads]
    along_k = all(k_stride is not None and is_const(k_stride, 1) for _, k_stride in strides)
    contiguous = all(stride is not None and (is_const(stride, 1) or is_const(stride, 0)) for stride, _ in strides)
    k_major = not along_k if k_major is None else k_major
    lanes = 1
    row_axis, row = (across, width) if k_major else (k_axis, k)
    straight = contiguous and not along_k if k_major else along_k
    if plain and straight and isinstance(factor, Load):
        lanes = max(1, widest // dtype.nbytes)
        while lanes > 1 and (row % lanes or not _aligned(memory, factor, row_axis, lanes)):
            lanes //= 2
    return StagedTile(name, factor, dtype, across, k_axis, k, width, row + pad, along_k, lanes, k_major)


def staged_dtype(memory: Memory, factor: Expr) -> DType:
    """The type a factor is staged in: a tensor's own, or that of the prologue's result."""
    return memory.tensors[factor.tensor].dtype if isinstance(factor, Load) else factor.dtype.compute


def _loads(expr: Expr) -> list[Load]:
    from emmy.ir.expr import walk

    return [node for node in walk(expr) if isinstance(node, Load)]


def _aligned(memory: Memory, load: Load, across: Axis, lanes: int) -> bool:
    """Whether every vector of ``lanes`` elements along ``across`` starts at a multiple of ``lanes`` and ends inside."""
    tensor = memory.tensors[load.tensor]
    if not isinstance(across.extent, Const) or across.extent.value % lanes:
        return False
    if not all(isinstance(i, Var) for i in load.index):
        return False
    strides = [s for i, s in zip(load.index, tensor.element_strides(), strict=True) if i != across.var]
    return all(isinstance(s, Const) and s.value % lanes == 0 for s in strides)


@dataclass(frozen=True, slots=True)
class Share:
    """What one thread copies of a tile: the element (or vector) at (across, k), and in each later round the one
    ``across_step`` and ``k_step`` further on. Indices inside the tile; one of the steps is zero."""

    across: Var
    k: Var
    lets: tuple[Let, Let]
    across_step: int
    k_step: int


def share(tile: StagedTile, threads: int) -> Share | None:
    """The thread's share of a tile on a GPU, by names bound once; None where its column changes between rounds."""
    per_row = _per_row(tile)
    if threads <= 32 or threads % per_row:
        return None
    row, column = floordiv(TID, i32(per_row)), mul(mod(TID, i32(per_row)), i32(tile.lanes))
    swapped = tile.k_major and not tile.along_k
    across, k = Let(f"{tile.name}_x", column if swapped else row), Let(f"{tile.name}_k", row if swapped else column)
    step = threads // per_row
    return Share(across.var, k.var, (across, k), 0 if swapped else step, step if swapped else 0)


def _per_row(tile: StagedTile) -> int:
    """Pieces that a row has, along the axis that is contiguous in memory."""
    return tile.k if tile.along_k and tile.k_major else (tile.width if tile.k_major else tile.k) // tile.lanes


def fill(
    tile: StagedTile,
    memory: Memory,
    threads: int,
    slot: Expr,
    mine: Share | None,
    point: Callable[[Expr, Expr, Expr, Expr], Point],
    limits: tuple[Expr | None, Expr | None],
    tag: str,
    transport: str,
) -> list[Stmt]:
    """Copies one tile into the slot starting at ``slot``.

    mine: the thread's share; None: pieces are dealt out one by one. point(across, k, across_here, k_here): where the
    factor is evaluated, from indices inside the tile, whole and without the thread's share of them. limits: number of
    valid indices along across and along k (inside the tile), None where all are valid.
    """  # fmt: skip
    chunks = tile.k * tile.width // tile.lanes
    turn = Var(f"f{tag}")
    index = add(TID, mul(turn, i32(threads))) if threads > 1 else turn
    if mine is not None:
        across_here, k_here = mul(turn, i32(mine.across_step)), mul(turn, i32(mine.k_step))
        k_let, across_let = Let(f"k{tag}", add(mine.k, k_here)), Let(f"x{tag}", add(mine.across, across_here))
        body: list[Stmt] = [k_let, across_let]
        target, where = f"{tile.name}_to", tile.at(i32(0), k_here, across_here)
        opened: list[Stmt] = [View(target, tile.name, cast(tile.at(slot, mine.k, mine.across), DType.I64), tile.dtype)]
    else:
        chunk = Let(f"c{tag}", index)
        per_row = _per_row(tile)
        across, k = floordiv(chunk.var, i32(per_row)), mul(mod(chunk.var, i32(per_row)), i32(tile.lanes))
        if tile.k_major and not tile.along_k:
            across, k = k, across
        k_let, across_let = Let(f"k{tag}", k), Let(f"x{tag}", across)
        across_here, k_here = across_let.var, k_let.var
        body = [chunk, k_let, across_let]
        target, where, opened = tile.name, tile.at(slot, k_let.var, across_let.var), []
    guard: Expr | None = None
    for limit, index_in_tile in zip(limits, (across_let.var, k_let.var), strict=True):
        if limit is not None:
            guard = both(guard, call("lt", index_in_tile, limit))
    at = point(across_let.var, k_let.var, across_here, k_here)
    value: Expr
    if isinstance(tile.factor, Load):
        if transport == "sync":
            value = memory.mem(tile.factor, at.guarded(guard), tile.lanes)
            body.append(Store(target, where, value, tile.dtype, aligned=tile.pitch % tile.lanes == 0))
            return opened + _rounds(body, index, chunks, threads, tag)
        source = memory.mem(tile.factor, at, tile.lanes)
        carried = "async" if tile.lanes * tile.dtype.nbytes >= 4 else "sync"
        body.append(Copy(target, where, source.buffer, source.offset, tile.lanes, tile.dtype, guard, carried))
    else:
        value = cast(memory.value(tile.factor, at.guarded(guard)), tile.dtype)
        if guard is not None:
            value = select(guard, value, Const(0, tile.dtype))
        body.append(Store(target, where, value, tile.dtype))
    return opened + _rounds(body, index, chunks, threads, tag)


def _rounds(body: list[Stmt], index: Expr, chunks: int, threads: int, tag: str) -> list[Stmt]:
    """The loop in which ``threads`` threads walk over ``chunks`` pieces of a tile."""
    inside: tuple[Stmt, ...] = tuple(body)
    if chunks % threads:
        inside = (If(call("lt", index, i32(chunks)), inside),)
    return [For(f"f{tag}", i32(0), i32(-(-chunks // threads)), i32(1), inside, "hint")]
