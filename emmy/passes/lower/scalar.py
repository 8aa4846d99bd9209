"""Lowering a contraction to scalar threads: each thread holds a register fragment of the output tile.

Thread (x, y) of an n × m block holds rows ``y * fm + i`` and, in vectors of ``lanes``, columns
``(x + j * n) * lanes``: neighbouring threads read neighbouring vectors. Operands come straight from memory, or through
a shared-memory ring of k steps. Rows and whole vectors beyond the edge are read at the last valid place (their results
are never stored); the end of the k axis is a loop of its own with step one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
    i32,
    mul,
    sub,
)
from emmy.ir.kernel import (
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
from emmy.ir.plan import Plan
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Point
from emmy.passes.lower.cluster import Exchange
from emmy.passes.lower.scalar_ring import ScalarRing
from emmy.passes.lower.scalar_threads import ScalarLeaf
from emmy.passes.lower.slices import Slices
from emmy.passes.lower.staging import warp_places
from emmy.passes.lower.tile import loads_of

FINAL_THREADS = 64
"""Threads of a finalising kernel's block on a GPU: few, since its blocks must fill the device too."""

Writer = Callable[[Expr, Point, Expr | None], list[Stmt]]


def lower_scalar(problem: Contraction, leaf: ScalarLeaf, name: str, knobs: str) -> Plan:
    """The plan of a leaf: the tile kernel, and for a split the memset or the finalising kernel."""
    return _Lowering(problem, leaf, name).plan(knobs)


class _Lowering(ScalarRing):
    def __init__(self, problem: Contraction, leaf: ScalarLeaf, name: str) -> None:
        super().__init__(problem, leaf, name)
        self.slices: Slices | None = None
        if leaf.slices > 1:
            cells = leaf.fm * leaf.fn // leaf.lanes
            self.slices = Slices(leaf.slices, leaf.n * leaf.m, cells, leaf.lanes, self.dtype)

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
