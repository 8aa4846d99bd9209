"""What a block of warps does with its sums: epilogue, stores, and what the epilogue reads, asked for ahead.

Results lie as the atoms leave them, two neighbouring columns a register pair; 16-bit outputs are turned round in shared
memory, so that a lane stores 16 contiguous bytes (emmy.passes.lower.warp_leaf.stage_dtype).
"""

from __future__ import annotations

from collections.abc import Callable

from emmy.ir.dtype import DType
from emmy.ir.expr import (
    Expr,
    Lane,
    Load,
    Mem,
    Pack,
    Var,
    add,
    both,
    call,
    cast,
    floordiv,
    i32,
    mod,
    mul,
)
from emmy.ir.fragment import Fragments
from emmy.ir.kernel import Atomic, Barrier, If, Let, RegArray, Shared, Stmt, Store, View
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Point
from emmy.passes.lower.operand import SwizzledTile
from emmy.passes.lower.prefetch import Askers, Edge, prefetches
from emmy.passes.lower.slices import Slices
from emmy.passes.lower.tile import TileLowering
from emmy.passes.lower.warp_leaf import LATE_LANES, Rect, WarpLeaf, of_columns, touched_ahead

Cell = tuple[int, int, tuple[int, ...], Expr, Expr, Expr]
"""(i, j, registers, value, row, column) of neighbouring columns of an atom; row inside it, column inside the warp's."""

Writer = Callable[[Expr, Point, Expr | None], list[Stmt]]


class WarpResults(TileLowering):
    """Holds where a warp's accumulators lie; what fills them is the subclass's business."""

    def __init__(self, problem: Contraction, leaf: WarpLeaf, name: str) -> None:
        super().__init__(problem, leaf, name)
        self.leaf, self.atom = leaf, leaf.shape
        self.acc = Fragments("acc", leaf.atom, "c", (leaf.chains, leaf.fm, leaf.fn), 0.0)
        self.columns: dict[tuple[Load, Expr, int], Let] = {}
        """What the epilogue reads of columns alone (a bias), by read, column and lanes: held from before the loop."""
        self.slices: Slices | None = None
        if leaf.slices > 1:
            self.slices = Slices(leaf.slices, leaf.threads // leaf.slices, leaf.fm * leaf.fn, 4, DType.F32)
        self.sums = RegArray("sum", DType.F32, (leaf.fm, leaf.fn), 4)
        """With slices, an atom's four sums of a thread over all of them."""

    def held(self, i: int, j: int) -> Expr:
        """The four sums that a thread has of an atom, as float32."""
        if self.slices is not None:
            return self.sums.at(i, j)
        return self.accumulated(i, j)

    def accumulated(self, i: int, j: int) -> Expr:
        """The four accumulators that a thread has of an atom, as float32."""
        tile = self.acc.at(0, i, j)
        return Pack(tuple(cast(Lane(tile, register), DType.F32) for register in range(4)))

    def results(
        self, cells: list[Cell], rect: Rect, tile: SwizzledTile | None, env: dict[str, Expr], tag: str = ""
    ) -> list[Stmt]:
        """Epilogue and stores of ``cells``, which are the atoms of ``rect``."""
        if tile is None:
            return self.each_pair(cells, env, self.write_cell)
        return self.turned(cells, rect, tile, env, tag)

    def touched(self, env: dict[str, Expr]) -> tuple[list[Stmt], list[Shared]]:
        """What the epilogue reads from memory, copied to nowhere beside the first fills."""
        leaf = self.leaf
        if leaf.finished_elsewhere or leaf.transport != "async" or leaf.depth < 2:
            return [], []
        edges = (
            Edge(self.n, Var("n0"), leaf.block_n, self.divides(self.n, leaf.block_n)),
            Edge(self.m, Var("m0"), leaf.block_m, self.divides(self.m, leaf.block_m)),
        )
        askers = Askers(leaf.threads, Var("part") if leaf.split > 1 else i32(0), leaf.split)
        return prefetches(self.memory, touched_ahead(self.p), env, edges, askers)

    def accumulators(self, rect: Rect) -> list[Cell]:
        """Every pair of neighbouring columns that a thread holds of the atoms of ``rect``."""
        out: list[Cell] = []
        for i, j in rect.atoms:
            for registers in self.atom.c.rows_of_thread():
                tile: Expr = self.acc.at(0, i, j) if self.slices is None else self.sums.at(i, j)
                value = cast(Pack(tuple(Lane(tile, register) for register in registers)), self.dtype)
                row = self.atom.c.row(Var("lane"), registers[0])
                col = add(self.atom.c.col(Var("lane"), registers[0]), i32(j * self.atom.n))
                out.append((i, j, tuple(registers), value, row, col))
        return out

    def cell(self, env: dict[str, Expr], row: Expr, col: Expr, lanes: int) -> tuple[Point, Expr | None]:
        """(point, guard) of ``lanes`` columns from (row, col) of the warp's tile; N is a multiple of the lanes."""
        at_row, at_col = add(add(Var("m0"), Var("warp_m")), row), add(add(Var("n0"), Var("warp_n")), col)
        guard = None if self.divides(self.m, self.leaf.block_m) else call("lt", at_row, self.m.extent)
        if not self.divides(self.n, self.leaf.block_n):
            guard = both(guard, call("lt", at_col, self.n.extent))
        full = {**env, self.m.name: at_row, self.n.name: at_col}
        return Point(full, self.n.name if lanes > 1 else "", lanes, guard), guard

    def read_ahead(self, load: Load, point: Point) -> Expr | None:
        """A read of columns alone: a register a pair, and no wait for memory behind the loop."""
        if self.leaf.finished_elsewhere or not of_columns(self.p, self.memory, load, point.lanes):
            return None
        column, dtype = point.env[self.n.name], self.memory.tensors[load.tensor].dtype
        key = (load, column, point.lanes)
        if key not in self.columns:
            guard = None if self.divides(self.n, self.leaf.block_n) else call("lt", column, self.n.extent)
            offset = self.memory.offset(load.tensor, load.index, point.env)
            held = Mem(load.tensor, offset, dtype, point.lanes, guard, 0, point.lanes > 1, early=True)
            self.columns[key] = Let(f"column{len(self.columns)}", held)
        return cast(self.columns[key].var, dtype.compute)

    def each_pair(self, cells: list[Cell], env: dict[str, Expr], write: Writer) -> list[Stmt]:
        """``write`` for every pair of columns; for single columns where a pair may cross the edge."""
        out: list[Stmt] = []
        for i, _, _, value, row, col in cells:
            at_row = add(row, i32(i * self.atom.m))
            if self.divides(self.n, 2):
                point, guard = self.cell(env, at_row, col, 2)
                out += write(value, point, guard)
                continue
            for lane in range(2):
                point, guard = self.cell(env, at_row, add(col, i32(lane)), 1)
                out += write(Lane(value, lane), point, guard)
        return out

    def write_partial(self, value: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
        offset = self.partial_offset(dict(point.env))
        return [Store("partial", offset, value, self.dtype, guard, aligned=value.lanes > 1)]

    def write_atomic(self, value: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
        output, _, axes = self.p.epilogue[0]
        index = tuple(Var(axis) if axis else i32(0) for axis in axes)
        out: list[Stmt] = []
        for lane in range(value.lanes):
            offset = self.memory.offset(output.tensor.name, index, point.lane(lane).env)
            one = Lane(value, lane) if value.lanes > 1 else value
            out.append(Atomic("add", output.tensor.name, offset, one, output.tensor.dtype, guard))
        return out

    def turning_place(self, tile: SwizzledTile) -> list[Stmt]:
        """A warp's own piece of shared memory, and where a thread's accumulators lie in it.

        Within eight columns the pattern leaves a pair where it is: other columns are an exclusive or away.
        """
        own = cast(mul(Var("warp"), i32(2 * tile.elements)), DType.I64)
        start = tile.at(self.atom.c.row(Var("lane"), 0), self.atom.c.col(Var("lane"), 0))
        return [View("mine", tile.name, own, tile.dtype), Let("turn_at", start)]

    def turned(
        self, cells: list[Cell], rect: Rect, tile: SwizzledTile, env: dict[str, Expr], tag: str = ""
    ) -> list[Stmt]:
        """Results through a warp's own piece of shared memory, one row of atoms at a time, in two halves taken in turn.

        A half is written again two rows of atoms later; the barrier of the row between orders that after its reads.
        """
        late = tile.dtype == DType.F32
        lanes = LATE_LANES if late else 8
        out: list[Stmt] = []
        output, expr, axes = self.p.epilogue[0]
        first, start = rect.j.start * self.atom.n, Var("turn_at")
        per_row = len(rect.j) * self.atom.n // lanes
        for i in rect.i:
            half = i32(i % 2 * tile.elements)
            for at, j, _, value, row, col in cells:
                if at != i:
                    continue
                below = self.atom.m // 2 if row != self.atom.c.row(Var("lane"), 0) else 0
                panel, inside = divmod(j * self.atom.n, tile.span)
                place = add(call("bitxor", start, i32(inside)), half)
                place = add(place, i32(panel * tile.rows * tile.span + below * tile.span))
                if not late:
                    point, _ = self.cell(env, add(row, i32(i * self.atom.m)), col, 2)
                    value = cast(self.epilogue_value(expr, value, point), output.tensor.dtype.compute)
                out.append(Store("mine", place, value, tile.dtype, aligned=True))
            out.append(Barrier("warp"))
            total = self.atom.m * per_row
            for number in range(0, total, 32):
                chunk = add(Var("lane"), i32(number))
                row, col = floordiv(chunk, i32(per_row)), mul(mod(chunk, i32(per_row)), i32(lanes))
                col = add(col, i32(first))
                held = Mem("mine", add(half, tile.at(row, col)), tile.dtype, lanes, aligned=True)
                point, guard = self.cell(env, add(row, i32(i * self.atom.m)), col, lanes)
                let = Let(f"held{i}_{number}{tag}", held)
                if late:
                    stores = self.write_cell(let.var, point, guard)
                else:
                    stores = self.store(output.tensor, axes, let.var, point, guard)
                block: list[Stmt] = [let, *stores]
                rest = call("lt", Var("lane"), i32(total - number))
                out += [If(rest, tuple(block))] if number + 32 > total else block
        return out
