"""Lowering a contraction to scalar threads: each thread holds a register fragment of the output tile.

Thread (x, y) of an n × m block holds rows ``y * fm + i`` and, in vectors of ``lanes``, columns
``(x + j * n) * lanes``: neighbouring threads read neighbouring vectors. Operands come straight from memory, or through
a shared-memory ring of k steps. Rows and whole vectors beyond the edge are read at the last valid place (their results
are never stored); the end of the k axis is a loop of its own with step one.

On a GPU a ring's tile is shared out so that few shared-memory accesses feed many products. The lanes of a warp are four
rows by eight columns of threads, numbered as ``warp_places`` says. Where the a tile's rows run along k, a thread's rows
are ``y + i * m``: the four rows that a warp reads at once then lie one padded row apart, in different banks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from emmy.ir.expr import (
    Const,
    Expr,
    Lane,
    Mem,
    Reg,
    Var,
    add,
    both,
    call,
    cast,
    ceil_div,
    i32,
    minimum,
    mul,
    sub,
)
from emmy.ir.kernel import (
    TX,
    TY,
    Atomic,
    For,
    If,
    Kernel,
    Let,
    RegArray,
    RegSet,
    Shared,
    Stmt,
    Store,
)
from emmy.ir.pipeline import Acquire, Commit, Fill, Release, Ring, Wait
from emmy.ir.plan import Plan
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Point
from emmy.passes.lower.staging import PAD, THREAD_X, THREAD_Y, StagedTile, fill, staged_tile, warp_places
from emmy.passes.lower.tile import TileLowering, loads_of

FINAL_THREADS = 64
"""Threads of a finalising kernel's block on a GPU: few, since its blocks must fill the device too."""

Writer = Callable[[Expr, Point, Expr | None], list[Stmt]]


@dataclass(frozen=True, slots=True)
class ScalarLeaf:
    """The parameters of one scalar leaf: threads n × m, fragment fn × fm, k step, split, ring depth, block order.

    lanes: width of a fragment's vectors (fn is a multiple). depth 0: operands are read straight from memory. cpu: a is
    staged row-major, and inner loops are unrolled little (PoCL takes seconds over long bodies). min_blocks: blocks that
    a multiprocessor is to hold (a bound on registers); follows from the others.
    """

    n: int
    m: int
    fn: int
    fm: int
    k: int
    lanes: int
    split: int = 1
    atomic: bool = False
    depth: int = 0
    transport: str = "sync"
    group: int = 0
    cpu: bool = False
    min_blocks: int = 0

    @property
    def block_m(self) -> int:
        return self.m * self.fm

    @property
    def block_n(self) -> int:
        return self.n * self.fn


def lower_scalar(problem: Contraction, leaf: ScalarLeaf, name: str, knobs: str) -> Plan:
    """The plan of a leaf: the tile kernel, and for a split the memset or the finalising kernel."""
    return _Lowering(problem, leaf, name).plan(knobs)


class _Lowering(TileLowering):
    def __init__(self, problem: Contraction, leaf: ScalarLeaf, name: str) -> None:
        super().__init__(problem, leaf, name)
        self.leaf = leaf
        self.tiles = self.operand_tiles() if leaf.depth else None
        self.warped = bool(leaf.depth) and not leaf.cpu and leaf.n % 8 == 0 and leaf.m % 4 == 0
        self.spread = self.tiles is not None and not leaf.cpu and not self.tiles[0].k_major
        self.x, self.y = (THREAD_X, THREAD_Y) if self.warped else (TX, TY)

    def final_shape(self) -> tuple[int, int]:
        threads = self.leaf.n if self.leaf.cpu else FINAL_THREADS
        return threads, self.leaf.lanes if self.divides(self.n, self.leaf.lanes) else 1

    # ------------------------------------------------------------------------------------------ tile kernel

    def tile_kernel(self) -> Kernel:
        leaf = self.leaf
        split = leaf.split > 1
        body: list[Stmt] = []
        env = self.block_env(body)
        body += warp_places(leaf.n) if self.warped else []
        acc = RegArray("acc", self.dtype, (leaf.fm, leaf.fn // leaf.lanes), leaf.lanes, init=0)
        body.append(acc)
        body += self.edge_lets()
        start, stop = self.k_range(body)
        shared: tuple[Shared, ...] = ()
        rows_full = self.divides(self.n, leaf.block_n) or self.divides(self.n, leaf.lanes)
        if self.tiles is not None:
            shared = tuple(tile.shared(leaf.depth) for tile in self.tiles)
            body += self.accumulate_staged(acc, env, start, stop, self.tiles)
        elif rows_full:
            body += self.accumulate(acc, env, start, stop, ragged=False)
        else:
            inside = call("le", add(Var("n0"), i32(leaf.block_n)), self.n.extent)
            body.append(If(inside, tuple(self.accumulate(acc, env, start, stop, ragged=False)),
                           tuple(self.accumulate(acc, env, start, stop, ragged=True))))  # fmt: skip
        reads = self.operand_reads()
        if split and not leaf.atomic:
            self.partial()
            writes = ["partial"]
            body += self.store_partial(acc, env)
        elif split:
            writes = [self.region.outputs[0].tensor.name]
            body += self.store_atomic(acc, env)
        else:
            writes = [o.tensor.name for o in self.region.outputs]
            reads += self.epilogue_reads()
            body += self.store_outputs(acc, env)
        names = tuple(dict.fromkeys(reads))
        params = self.params(names, tuple(writes))
        return Kernel(self.name, params, (leaf.n, leaf.m), tuple(body), shared, leaf.min_blocks)

    def edge_lets(self) -> list[Stmt]:
        """The last valid row and vector of the tile, where the tile may cross the edge."""
        leaf = self.leaf
        out: list[Stmt] = []
        if not self.divides(self.m, leaf.block_m):
            out.append(Let("m_last", sub(sub(self.m.extent, i32(1)), Var("m0"))))
        if not self.divides(self.n, leaf.block_n):
            out.append(Let("n_last", sub(sub(self.n.extent, i32(leaf.lanes)), Var("n0"))))
        return out

    def row(self, i: int) -> Expr:
        """Row i of the thread's fragment, inside the tile."""
        if self.leaf.m == 1:
            return i32(i)
        if self.spread:
            return add(self.y, i32(i * self.leaf.m))
        return add(mul(self.y, i32(self.leaf.fm)), i32(i))

    def local_row(self, i: int) -> Expr:
        row = self.row(i)
        return row if self.divides(self.m, self.leaf.block_m) else minimum(row, Var("m_last"))

    def local_column(self, j: int, clamp: bool = True) -> Expr:
        leaf = self.leaf
        column = mul(add(self.x, i32(j * leaf.n)), i32(leaf.lanes)) if leaf.n > 1 else i32(j * leaf.lanes)
        if not clamp or self.divides(self.n, leaf.block_n):
            return column
        return minimum(column, Var("n_last"))

    def point(
        self, env: dict[str, Expr], row: Expr, column: Expr, k: Expr, k_start: Expr, outer: dict[str, Expr]
    ) -> Point:
        """Where factors are evaluated: ``row`` and ``column`` inside the tile, ``k`` absolute."""
        full: dict[str, Expr] = {**env, **outer, self.m.name: add(Var("m0"), row), self.n.name: add(Var("n0"), column)}
        full[self.k.name] = k
        zero = {name: i32(0) for name in env}
        local = {**zero, **outer, self.m.name: row, self.n.name: column, self.k.name: sub(k, k_start)}
        return Point(full, local=local)

    def accumulate(self, acc: RegArray, env: dict[str, Expr], start: Expr, stop: Expr, ragged: bool) -> list[Stmt]:
        """The k loop (inside loops over further reduce axes), and the loop over what its step leaves."""
        out: list[Stmt] = []
        tag = "r" if ragged else ""
        block = {**env, self.m.name: Var("m0"), self.n.name: Var("n0"), self.k.name: start}
        block |= {axis.name: i32(0) for axis in self.p.k_outer}
        self.memory.views.clear()
        for side, expr in (("a", self.p.a), ("b", self.p.b)):
            for number, load in enumerate(dict.fromkeys(loads_of(expr))):
                view = self.memory.view(f"p{side}{number}{tag}", load, block)
                if view is not None:
                    out.append(view)
        outer: dict[str, Expr] = {axis.name: axis.var for axis in self.p.k_outer}
        step = self.leaf.k
        kv = Var("kk")

        def loop(lo: Expr, hi: Expr, unroll: int, name: str) -> For:
            var = Var(name)
            body: list[Stmt] = []
            for u in range(unroll):
                body += self.multiply(acc, env, add(var, i32(u)), start, outer, f"{name}{u}", ragged)
            return For(name, lo, hi, i32(unroll), tuple(body))

        whole = isinstance(stop, Const) and isinstance(start, Const) and (stop.value - start.value) % step == 0
        loops: list[Stmt]
        if step == 1 or whole:
            loops = [loop(start, stop, step, kv.name)]
        else:
            main = Let(f"k_main{tag}", sub(stop, call("mod", sub(stop, start), i32(step))))
            loops = [main, loop(start, main.var, step, kv.name), loop(main.var, stop, 1, "kt")]
        for axis in reversed(self.p.k_outer):
            loops = [For(axis.name, i32(0), axis.extent, i32(1), tuple(loops))]
        return out + loops

    def multiply(
        self,
        acc: RegArray,
        env: dict[str, Expr],
        k: Expr,
        k_start: Expr,
        outer: dict[str, Expr],
        tag: str,
        ragged: bool,
    ) -> list[Stmt]:
        """One rank-1 update of the fragment at ``k``."""
        leaf = self.leaf
        out: list[Stmt] = []
        columns: list[Expr] = []
        for j in range(leaf.fn // leaf.lanes):
            at = self.point(env, i32(0), self.local_column(j, clamp=not ragged), k, k_start, outer)
            if leaf.lanes > 1:
                at = replace(at, axis=self.n.name, lanes=leaf.lanes, tail=self.n.extent if ragged else None)
            elif ragged:
                at = at.guarded(call("lt", at.env[self.n.name], self.n.extent))
            let = Let(f"b_{tag}_{j}", cast(self.memory.value(self.p.b, at), self.dtype))
            out.append(let)
            columns.append(let.var)
        for i in range(leaf.fm):
            at = self.point(env, self.local_row(i), i32(0), k, k_start, outer)
            let = Let(f"a_{tag}_{i}", cast(self.memory.value(self.p.a, at), self.dtype))
            out.append(let)
            for j, column in enumerate(columns):
                slot = acc.at(i, j)
                out.append(RegSet(slot, add(slot, mul(let.var, column))))
        return out

    # ------------------------------------------------------------------------------------------------ staged

    def operand_tiles(self) -> tuple[StagedTile, StagedTile]:
        """The operand tiles of the ring."""
        leaf, widest = self.leaf, 32 if self.leaf.cpu else 16
        k_major = False if leaf.cpu else None
        a = staged_tile("as", self.memory, self.p.a, self.m, self.k, leaf.k, leaf.block_m, PAD, widest, k_major)
        b = staged_tile("bs", self.memory, self.p.b, self.n, self.k, leaf.k, leaf.block_n, 0, widest, True)
        return a, b

    def accumulate_staged(
        self, acc: RegArray, env: dict[str, Expr], start: Expr, stop: Expr, tiles: tuple[StagedTile, StagedTile]
    ) -> list[Stmt]:
        """The loop over k steps: fill a slot of the ring, wait for it, multiply out of it."""
        leaf = self.leaf
        out: list[Stmt] = []
        block = {**env, self.m.name: Var("m0"), self.n.name: Var("n0"), self.k.name: start}
        self.memory.views.clear()
        for side, expr in (("a", self.p.a), ("b", self.p.b)):
            for number, load in enumerate(dict.fromkeys(loads_of(expr))):
                view = self.memory.view(f"p{side}{number}", load, block)
                if view is not None:
                    out.append(view)
        steps = ceil_div(sub(stop, start), leaf.k)
        step = Var("step")
        k_local = mul(step, i32(leaf.k))
        whole = isinstance(stop, Const) and isinstance(start, Const) and (stop.value - start.value) % leaf.k == 0
        k_limit = None if whole else Let("k_left", sub(sub(stop, start), k_local))
        slots = [Let(f"{tile.name}_at", tile.base(step, leaf.depth)) for tile in tiles]
        body: list[Stmt] = [*slots, *([k_limit] if k_limit else []), Acquire("ring", step)]
        copies: list[Stmt] = []
        for tile, slot in zip(tiles, slots, strict=True):
            on_m = tile is tiles[0]
            axis, block_size, origin = (self.m, leaf.block_m, "m0") if on_m else (self.n, leaf.block_n, "n0")
            exact = self.divides(axis, block_size)
            limit = None if exact else sub(axis.extent, Var(origin))

            def point(across: Expr, k: Expr, on_m: bool = on_m) -> Point:
                row, column = (across, i32(0)) if on_m else (i32(0), across)
                return self.point(env, row, column, add(add(start, k_local), k), start, {})

            copies += fill(tile, self.memory, leaf.n * leaf.m, slot.var, point,
                           (limit, k_limit.var if k_limit else None), tile.name, leaf.transport)  # fmt: skip
        body += [Fill("ring", step, tuple(copies)), Commit("ring", step), Wait("ring", step)]
        body += self.slot_loop(acc, tiles, slots)
        body.append(Release("ring", step))
        ring = Ring("ring", tuple(tile.name for tile in tiles), leaf.depth, leaf.transport, leaf.n * leaf.m)
        return [*out, ring, For("step", i32(0), steps, i32(1), tuple(body))]

    def slot_loop(self, acc: RegArray, tiles: tuple[StagedTile, StagedTile], slots: list[Let]) -> list[Stmt]:
        """The loop over one slot. The compiler unrolls up to 16 steps on a GPU; on a CPU four are written out."""
        leaf, kk = self.leaf, Var("kk")
        if leaf.cpu:
            unroll = min(leaf.k & -leaf.k, 4)
            inner: list[Stmt] = []
            for u in range(unroll):
                inner += self.multiply_staged(acc, tiles, slots, add(kk, i32(u)), f"{u}")
            return [For("kk", i32(0), i32(leaf.k), i32(unroll), tuple(inner))]
        unroll = min(leaf.k & -leaf.k, 16)
        width = 1 if tiles[0].k_major else min(leaf.k & -leaf.k, 4)
        if unroll == leaf.k:
            return [For("kk", i32(0), i32(leaf.k), i32(width), self.products(acc, tiles, slots, kk, width), "hint")]
        step = self.products(acc, tiles, slots, add(Var("k16"), kk), width)
        unrolled = For("kk", i32(0), i32(unroll), i32(width), step, "hint")
        return [For("k16", i32(0), i32(leaf.k), i32(unroll), (unrolled,))]

    def products(
        self, acc: RegArray, tiles: tuple[StagedTile, StagedTile], slots: list[Let], k: Expr, width: int
    ) -> tuple[Stmt, ...]:
        """``width`` k steps out of the slot; rows of a that run along k are read once for all of them."""
        leaf, a = self.leaf, tiles[0]
        if a.k_major:
            return tuple(self.multiply_staged(acc, tiles, slots, k, ""))
        out: list[Stmt] = []
        rows: list[Expr] = []
        for i in range(leaf.fm):
            read = Mem(a.name, a.at(slots[0].var, k, self.row(i)), a.dtype, width, aligned=a.pitch % width == 0)
            let = Let(f"a_{i}", cast(read, self.dtype))
            out.append(let)
            rows.append(let.var)
        for u in range(width):
            columns = self.columns(tiles[1], slots[1], add(k, i32(u)), f"{u}", out)
            for i, row in enumerate(rows):
                value: Expr = Lane(row, u) if width > 1 else row
                for j, column in enumerate(columns):
                    slot = acc.at(i, j)
                    out.append(RegSet(slot, add(slot, mul(value, column))))
        return tuple(out)

    def columns(self, b: StagedTile, slot: Let, k: Expr, tag: str, out: list[Stmt]) -> list[Expr]:
        """The thread's columns of the slot's b tile at ``k``, by names that ``out`` defines."""
        leaf = self.leaf
        columns: list[Expr] = []
        for j in range(leaf.fn // leaf.lanes):
            at = b.at(slot.var, k, self.local_column(j, clamp=False))
            read = Mem(b.name, at, b.dtype, leaf.lanes, aligned=b.pitch % leaf.lanes == 0)
            let = Let(f"b{tag}_{j}", cast(read, self.dtype))
            out.append(let)
            columns.append(let.var)
        return columns

    def multiply_staged(
        self, acc: RegArray, tiles: tuple[StagedTile, StagedTile], slots: list[Let], k: Expr, tag: str
    ) -> list[Stmt]:
        """One rank-1 update out of the slot; k-major rows of a are neighbours and read as vectors."""
        leaf = self.leaf
        out: list[Stmt] = []
        a, b = tiles
        columns = self.columns(b, slots[1], k, tag, out)
        width = min(leaf.fm & -leaf.fm, 4) if a.k_major else 1
        for group in range(0, leaf.fm, width):
            read = Mem(a.name, a.at(slots[0].var, k, self.row(group)), a.dtype, width, aligned=a.pitch % width == 0)
            rows = Let(f"a{tag}_{group}", cast(read, self.dtype))
            out.append(rows)
            for i in range(width):
                value: Expr = Lane(rows.var, i) if width > 1 else rows.var
                for j, column in enumerate(columns):
                    slot = acc.at(group + i, j)
                    out.append(RegSet(slot, add(slot, mul(value, column))))
        return out

    # --------------------------------------------------------------------------------------------- epilogue

    def cells(self, acc: RegArray, env: dict[str, Expr]) -> list[tuple[Reg, Point, Expr | None]]:
        """(accumulator, point, row guard) of every fragment vector; columns are not clamped."""
        leaf = self.leaf
        out = []
        for i in range(leaf.fm):
            row = self.row(i)
            at_row = add(Var("m0"), row)
            guard = None if self.divides(self.m, leaf.block_m) else call("lt", at_row, self.m.extent)
            for j in range(leaf.fn // leaf.lanes):
                column = add(Var("n0"), self.local_column(j, clamp=False))
                full: dict[str, Expr] = {**env, self.m.name: at_row, self.n.name: column}
                axis = self.n.name if leaf.lanes > 1 else ""
                out.append((acc.at(i, j), Point(full, axis, leaf.lanes), guard))
        return out

    def emit(self, cells: list[tuple[Reg, Point, Expr | None]], write: Writer) -> list[Stmt]:
        """``write(register, point, guard)`` for each cell: whole vectors, single lanes where one crosses the edge."""
        leaf = self.leaf
        out: list[Stmt] = []
        exact = self.divides(self.n, leaf.block_n)
        vectors = exact or self.divides(self.n, leaf.lanes)
        for reg, point, guard in cells:
            column = point.env[self.n.name]
            end = add(column, i32(leaf.lanes))
            fits = None if exact else call("le", end, self.n.extent)
            whole = write(reg, point.guarded(both(guard, fits)), both(guard, fits))
            if vectors or leaf.lanes == 1:
                out += whole
                continue
            assert fits is not None
            single: list[Stmt] = []
            for lane in range(leaf.lanes):
                at = point.lane(lane)
                inside = both(guard, call("lt", at.env[self.n.name], self.n.extent))
                single += write(Lane(reg, lane), at.guarded(inside), inside)
            out.append(If(fits, tuple(write(reg, point.guarded(guard), guard)), tuple(single)))
        return out

    def store_outputs(self, acc: RegArray, env: dict[str, Expr]) -> list[Stmt]:
        self.memory.views.clear()

        def write(reg: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
            return self.write_cell(reg, point, guard)

        return self.emit(self.cells(acc, env), write)

    # ------------------------------------------------------------------------------------------------ splits

    def store_partial(self, acc: RegArray, env: dict[str, Expr]) -> list[Stmt]:
        # rows of the workspace are whole 16-byte vectors; OpenCL has vectors of its own
        whole = not self.leaf.cpu and self.divides(self.n, self.leaf.lanes)

        def write(reg: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
            offset = self.partial_offset(dict(point.env))
            return [Store("partial", offset, reg, self.dtype, guard, aligned=whole and reg.lanes > 1)]

        return self.emit(self.cells(acc, env), write)

    def store_atomic(self, acc: RegArray, env: dict[str, Expr]) -> list[Stmt]:
        output, _, axes = self.p.epilogue[0]
        tensor = output.tensor
        index = tuple(Var(axis) if axis else i32(0) for axis in axes)
        out: list[Stmt] = []
        for reg, point, guard in self.cells(acc, env):
            for lane in range(self.leaf.lanes):
                at = point.lane(lane)
                inside = call("lt", at.env[self.n.name], self.n.extent)
                value: Expr = Lane(reg, lane) if self.leaf.lanes > 1 else reg
                condition = guard if self.divides(self.n, self.leaf.block_n) else both(guard, inside)
                out.append(Atomic("add", tensor.name, self.memory.offset(tensor.name, index, at.env), value,
                                  tensor.dtype, condition))  # fmt: skip
        return out
