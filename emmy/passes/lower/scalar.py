"""Lowering a contraction to scalar threads: each thread holds a register fragment of the output tile.

Thread (x, y) of an n × m block holds rows ``y * fm + i`` and, in vectors of ``lanes``, columns
``(x + j * n) * lanes``: neighbouring threads read neighbouring vectors. Operands come straight from memory, or through
a shared-memory ring of k steps. Rows and whole vectors beyond the edge are read at the last valid place (their results
are never stored); the end of the k axis is a loop of its own with step one.

On a GPU a ring's tile is shared out so that few shared-memory accesses feed many products. The lanes of a warp are four
rows by eight columns of threads, numbered as ``warp_places`` says. The a tile is k-major where its elements are 32 bits
wide, and a thread's rows are fours ``(y + i * m) * 4``, each read as one vector. 16-bit elements stay in rows along k,
since cp.async moves no single one; a thread's rows are then ``y + i * m``: the four rows that a warp reads at once lie
one padded row apart, in different banks.

A step's products go through the fragment in a serpentine, along its shorter side. What a product reads is three
registers, and a register file gives two a cycle, one even and one odd; the third has to be what the product before
read. In this order, and with few registers alive beside the accumulators, the compiler's allocation comes close: on one
NVIDIA H200 the loop's share of cycles that issue an FFMA rises from 0.61 to 0.74 (2048³, 2026-11-30; cuBLAS 0.79).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from emmy.ir.expr import (
    Const,
    Expr,
    Lane,
    Mem,
    Pack,
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
    View,
)
from emmy.ir.nest import Axis
from emmy.ir.pipeline import Acquire, Commit, Fill, Release, Ring, Wait
from emmy.ir.plan import Plan
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Point, wide
from emmy.passes.lower.cluster import Exchange
from emmy.passes.lower.slices import SLICE, Slices
from emmy.passes.lower.staging import (
    PAD,
    THREAD_X,
    THREAD_Y,
    Share,
    StagedTile,
    fill,
    share,
    staged_dtype,
    staged_tile,
    warp_places,
)
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
    slices: parts of the block's threads, n × m each, that share out the k steps of a ring's slot.
    """

    n: int
    m: int
    fn: int
    fm: int
    k: int
    lanes: int
    split: int = 1
    how: str = "k"
    depth: int = 0
    transport: str = "sync"
    group: int = 0
    cpu: bool = False
    min_blocks: int = 0
    slices: int = 1

    @property
    def block_m(self) -> int:
        return self.m * self.fm

    @property
    def block_n(self) -> int:
        return self.n * self.fn

    @property
    def threads(self) -> int:
        return self.n * self.m * self.slices


def lower_scalar(problem: Contraction, leaf: ScalarLeaf, name: str, knobs: str) -> Plan:
    """The plan of a leaf: the tile kernel, and for a split the memset or the finalising kernel."""
    return _Lowering(problem, leaf, name).plan(knobs)


class _Lowering(TileLowering):
    def __init__(self, problem: Contraction, leaf: ScalarLeaf, name: str) -> None:
        super().__init__(problem, leaf, name)
        self.leaf = leaf
        self.tiles = self.operand_tiles() if leaf.depth else None
        self.warped = bool(leaf.depth) and not leaf.cpu and leaf.n % 8 == 0 and leaf.m % 4 == 0
        self.alone = bool(leaf.depth) and not leaf.cpu
        """Whether accumulators are registers of their own, and not vectors along n."""
        self.spread = 0
        """On a GPU, neighbouring rows that a thread reads as one vector; its next rows are a block's threads away."""
        if self.tiles is not None and not leaf.cpu:
            self.spread = min(leaf.fm & -leaf.fm, 4) if self.tiles[0].k_major else 1
        self.slices: Slices | None = None
        if leaf.slices > 1:
            cells = leaf.fm * leaf.fn // leaf.lanes
            self.slices = Slices(leaf.slices, leaf.n * leaf.m, cells, leaf.lanes, self.dtype)
        self.x, self.y = (THREAD_X, THREAD_Y) if self.warped else (TX, TY)

    def final_shape(self) -> tuple[int, int]:
        threads = self.leaf.n if self.leaf.cpu else FINAL_THREADS
        return threads, self.leaf.lanes if self.divides(self.n, self.leaf.lanes) else 1

    # ------------------------------------------------------------------------------------------ tile kernel

    def tile_kernel(self) -> Kernel:
        leaf = self.leaf
        split = leaf.split > 1
        exchange = self.exchange() if split and leaf.how == "c" else None
        body: list[Stmt] = [exchange.begin] if exchange is not None else []
        env = self.block_env(body)
        body += warp_places(leaf.n, leaf.m) if self.warped else []
        if self.slices is not None:
            body.append(self.slices.place())
        lanes = 1 if self.alone else leaf.lanes
        acc = RegArray("acc", self.dtype, (leaf.fm, leaf.fn // lanes), lanes, init=0)
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
        if self.slices is not None:
            shared += (self.slices.shared(),)
            body += self.gather(self.slices, acc, env)
        done = len(body)
        if exchange is not None:
            shared += (exchange.shared(),)
            body += self.join(exchange, acc, env)
        elif split and leaf.how == "k":
            self.partial()
            writes = ["partial"]
            body += self.store_partial(acc, env)
        elif split:
            writes = [self.region.outputs[0].tensor.name]
            body += self.store_atomic(acc, env)
        else:
            body += self.store_outputs(self.cells(acc, env))
        if self.slices is not None and exchange is None:
            body[done:] = [If(self.slices.first, tuple(body[done:]))]
        if exchange is not None or not split:
            writes = [o.tensor.name for o in self.region.outputs]
            reads += self.epilogue_reads()
        names = tuple(dict.fromkeys(reads))
        params = self.params(names, tuple(writes))
        cluster = leaf.split if exchange is not None else 1
        block = (leaf.n, leaf.m * leaf.slices)
        return Kernel(self.name, params, block, tuple(body), shared, leaf.min_blocks, cluster)

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
            group, inside = divmod(i, self.spread)
            return add(mul(add(self.y, i32(group * self.leaf.m)), i32(self.spread)), i32(inside))
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
        k_major = False if leaf.cpu else True if staged_dtype(self.memory, self.p.a).nbytes >= 4 else None
        a = staged_tile("as", self.memory, self.p.a, self.m, self.k, leaf.k, leaf.block_m, PAD, widest, k_major)
        b = staged_tile("bs", self.memory, self.p.b, self.n, self.k, leaf.k, leaf.block_n, 0, widest, True)
        return a, b

    def accumulate_staged(
        self, acc: RegArray, env: dict[str, Expr], start: Expr, stop: Expr, tiles: tuple[StagedTile, StagedTile]
    ) -> list[Stmt]:
        """The loop over k steps: fill a slot of the ring, wait for it, multiply out of it."""
        leaf = self.leaf
        out: list[Stmt] = []
        self.memory.views.clear()
        known = self.whole_steps()
        steps = ceil_div(sub(stop, start), leaf.k) if known is None else i32(known)
        step = Var("step")
        k_local = mul(step, i32(leaf.k))
        k_limit = None if known is not None else Let("k_left", sub(sub(stop, start), k_local))
        slots = [Let(f"{tile.name}_at", tile.base(step, leaf.depth)) for tile in tiles]
        body: list[Stmt] = [*slots, *([k_limit] if k_limit else []), Acquire("ring", step)]
        copies: list[Stmt] = []
        for tile, slot in zip(tiles, slots, strict=True):
            on_m = tile is tiles[0]
            axis, block_size, origin = (self.m, leaf.block_m, "m0") if on_m else (self.n, leaf.block_n, "n0")
            limit = None if self.divides(axis, block_size) else sub(axis.extent, Var(origin))
            mine = None if leaf.cpu else share(tile, leaf.threads)
            out += mine.lets if mine is not None else ()
            copies += self.open(tile, axis, origin, env, start, k_local, mine, out)

            def point(across: Expr, k: Expr, across_here: Expr, k_here: Expr, on_m: bool = on_m) -> Point:
                row, column = (across, i32(0)) if on_m else (i32(0), across)
                at = self.point(env, row, column, add(add(start, k_local), k), start, {})
                own = (self.m if on_m else self.n).name
                return replace(at, local={**(at.local or {}), own: across_here, self.k.name: k_here})

            copies += fill(tile, self.memory, leaf.threads, slot.var, mine, point,
                           (limit, k_limit.var if k_limit else None), tile.name, leaf.transport)  # fmt: skip
        body += [Fill("ring", step, tuple(copies)), Commit("ring", step), Wait("ring", step)]
        body += self.slot_loop(acc, tiles, slots)
        body.append(Release("ring", step))
        ring = Ring("ring", tuple(tile.name for tile in tiles), leaf.depth, leaf.transport, leaf.threads)
        return [*out, ring, For("step", i32(0), steps, i32(1), tuple(body))]

    def open(
        self, tile: StagedTile, axis: Axis, origin: str, env: dict[str, Expr], start: Expr, k_local: Expr,
        mine: Share | None, out: list[Stmt],
    ) -> list[Stmt]:  # fmt: skip
        """Pointers to what a tile is filled from: to the thread's share in the first step (into ``out``), and from
        there to the step that is filled (returned), so that its elements lie at constant distances."""
        block = {**env, self.m.name: Var("m0"), self.n.name: Var("n0"), self.k.name: start}
        block |= {} if mine is None else {axis.name: add(Var(origin), mine.across), self.k.name: add(start, mine.k)}
        found: list[Stmt] = []
        for number, load in enumerate(dict.fromkeys(loads_of(tile.factor))):
            view = self.memory.view(f"p{tile.name[0]}{number}", load, block)
            if view is None:
                continue
            out.append(view)
            strides = self.memory.views[load][1]
            distance = mul(wide(k_local), wide(strides.get(self.k.name, i32(0))))
            now = View(f"{view.name}_now", view.name, distance, view.dtype)
            self.memory.views[load] = (now.name, strides)
            found.append(now)
        return found

    def slot_loop(self, acc: RegArray, tiles: tuple[StagedTile, StagedTile], slots: list[Let]) -> list[Stmt]:
        """The loop over one slot. The compiler unrolls up to 16 steps on a GPU; on a CPU four are written out."""
        leaf, kk = self.leaf, Var("kk")
        if leaf.cpu:
            unroll = min(leaf.k & -leaf.k, 4)
            inner: list[Stmt] = []
            for u in range(unroll):
                inner += self.multiply_staged(acc, tiles, slots, add(kk, i32(u)), f"{u}")
            return [For("kk", i32(0), i32(leaf.k), i32(unroll), tuple(inner))]
        own = leaf.k // leaf.slices
        unroll = min(own & -own, 16)
        width = 1 if tiles[0].k_major else min(own & -own, 4)
        first: Expr = mul(SLICE, i32(own)) if leaf.slices > 1 else i32(0)
        if unroll == own:
            step = self.products(acc, tiles, slots, add(first, kk), width)
            return [For("kk", i32(0), i32(own), i32(width), step, "hint")]
        step = self.products(acc, tiles, slots, add(add(first, Var("k16")), kk), width)
        unrolled = For("kk", i32(0), i32(unroll), i32(width), step, "hint")
        return [For("k16", i32(0), i32(own), i32(unroll), (unrolled,))]

    def products(
        self, acc: RegArray, tiles: tuple[StagedTile, StagedTile], slots: list[Let], k: Expr, width: int
    ) -> tuple[Stmt, ...]:
        """``width`` k steps out of the slot; rows of a that run along k are read once for all of them."""
        leaf, a = self.leaf, tiles[0]
        out: list[Stmt] = []
        if a.k_major:
            rows = self.rows(a, slots[0], k, "", out)
            return tuple(out + self.serpentine(acc, rows, self.columns(tiles[1], slots[1], k, "", out)))
        rows = []
        for i in range(leaf.fm):
            read = Mem(a.name, a.at(slots[0].var, k, self.row(i)), a.dtype, width, aligned=a.pitch % width == 0)
            let = Let(f"a_{i}", cast(read, self.dtype))
            out.append(let)
            rows.append(let.var)
        for u in range(width):
            columns = self.columns(tiles[1], slots[1], add(k, i32(u)), f"{u}", out)
            out += self.serpentine(acc, [Lane(row, u) if width > 1 else row for row in rows], columns)
        return tuple(out)

    def serpentine(self, acc: RegArray, rows: list[Expr], vectors: list[Expr]) -> list[Stmt]:
        """The products of all rows and columns, each beside one that shares a factor with it; acc is (fm, fn)."""
        lanes = self.leaf.lanes
        columns = [Lane(vector, lane) if lanes > 1 else vector for vector in vectors for lane in range(lanes)]
        return [
            RegSet(acc.at(i, j), add(acc.at(i, j), mul(rows[i], columns[j])))
            for i, j in serpentine(len(rows), len(columns))
        ]

    def rows(self, a: StagedTile, slot: Let, k: Expr, tag: str, out: list[Stmt]) -> list[Expr]:
        """The thread's rows of the slot's k-major a tile at ``k``, by vectors that ``out`` defines."""
        width = min(self.leaf.fm & -self.leaf.fm, 4)
        found: list[Expr] = []
        for group in range(0, self.leaf.fm, width):
            read = Mem(a.name, a.at(slot.var, k, self.row(group)), a.dtype, width, aligned=a.pitch % width == 0)
            let = Let(f"a{tag}_{group}", cast(read, self.dtype))
            out.append(let)
            found += [Lane(let.var, i) for i in range(width)] if width > 1 else [let.var]
        return found

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
        """One rank-1 update out of the slot, a row of the a tile at a time (on a CPU)."""
        out: list[Stmt] = []
        a, b = tiles
        columns = self.columns(b, slots[1], k, tag, out)
        for i in range(self.leaf.fm):
            row = Let(f"a{tag}_{i}", cast(Mem(a.name, a.at(slots[0].var, k, self.row(i)), a.dtype), self.dtype))
            out.append(row)
            for j, column in enumerate(columns):
                slot = acc.at(i, j)
                out.append(RegSet(slot, add(slot, mul(row.var, column))))
        return out

    # --------------------------------------------------------------------------------------------- epilogue

    def vector(self, acc: RegArray, i: int, j: int) -> Expr:
        """Vector j of the fragment's row i."""
        lanes = self.leaf.lanes
        if not self.alone or lanes == 1:
            return acc.at(i, j)
        return Pack(tuple(acc.at(i, j * lanes + lane) for lane in range(lanes)))

    def cells(self, acc: RegArray, env: dict[str, Expr]) -> list[tuple[Expr, Point, Expr | None]]:
        """(value, point, row guard) of every fragment vector; columns are not clamped."""
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
                out.append((self.vector(acc, i, j), Point(full, axis, leaf.lanes), guard))
        return out

    def emit(self, cells: list[tuple[Expr, Point, Expr | None]], write: Writer) -> list[Stmt]:
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

    def store_outputs(self, cells: list[tuple[Expr, Point, Expr | None]]) -> list[Stmt]:
        self.memory.views.clear()

        def write(reg: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
            return self.write_cell(reg, point, guard)

        return self.emit(cells, write)

    # ------------------------------------------------------------------------------------------------ splits

    def exchange(self) -> Exchange:
        """How the blocks of a cluster share out a thread's fragment: vectors, by rows."""
        leaf = self.leaf
        vectors = leaf.fm * leaf.fn // leaf.lanes
        return Exchange(leaf.split, leaf.n * leaf.m, leaf.lanes, vectors // leaf.split)

    def gather(self, slices: Slices, acc: RegArray, env: dict[str, Expr]) -> list[Stmt]:
        """The sums over the slices, in the registers of the first."""
        out = slices.hand_over([value for value, _, _ in self.cells(acc, env)])
        sums: list[Stmt] = []
        for number in range(slices.cells):
            sums += self.added(acc, number, slices.handed(number), "handed")
        return [*out, If(slices.first, tuple(sums))]

    def added(self, acc: RegArray, number: int, parts: list[Mem], name: str) -> list[Stmt]:
        """Vectors added to the fragment's vector ``number``, counted by rows."""
        lanes = self.leaf.lanes
        i, j = divmod(number, self.leaf.fn // lanes)
        out: list[Stmt] = []
        for slot, part in enumerate(parts):
            let = Let(f"{name}{i}_{j}_{slot}", part)
            out.append(let)
            for lane in range(lanes):
                target = acc.at(i, j * lanes + lane)
                out.append(RegSet(target, add(target, Lane(let.var, lane) if lanes > 1 else let.var)))
        return out

    def join(self, exchange: Exchange, acc: RegArray, env: dict[str, Expr]) -> list[Stmt]:
        """The sums over the cluster's blocks; each block writes its share of the tile."""
        leaf, cells = self.leaf, self.cells(acc, env)
        able = self.slices.first if self.slices is not None else None
        shares = [cells[rank * exchange.each : (rank + 1) * exchange.each] for rank in range(leaf.split)]
        out = exchange.send([[value for value, _, _ in own] for own in shares], able)
        for rank, own in enumerate(shares):
            body: list[Stmt] = []
            for number in range(exchange.each):
                body += self.added(acc, rank * exchange.each + number, exchange.received(number), "sent")
            out.append(exchange.of_rank(rank, [*body, *self.store_outputs(own)], able))
        return out

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


def serpentine(fm: int, fn: int) -> list[tuple[int, int]]:
    """The places of a fragment in an order in which neighbours share a row or a column.

    Along the shorter side, there and back; a square of more than one 4 × 4 is walked by such blocks.
    """
    tall, wide = (4, 4) if fm == fn and fm % 4 == 0 else (fm, fn)
    blocks = [(i, j) for i in range(0, fm, tall) for j in range(0, fn, wide)]
    out: list[tuple[int, int]] = []
    for number, (top, left) in enumerate(blocks):
        outer, inner = (tall, wide) if tall >= wide else (wide, tall)
        for place in range(outer):
            forth = (place + number) % 2 == 0
            for at in range(inner) if forth else reversed(range(inner)):
                i, j = (place, at) if tall >= wide else (at, place)
                out.append((top + i, left + j))
    return out
