"""Lowering a contraction to scalar threads: each thread holds a register fragment of the output tile.

Thread (tx, ty) of an n × m block holds rows ``ty * fm + i`` and, in vectors of ``lanes``, columns
``(tx + j * n) * lanes``: neighbouring threads read neighbouring vectors. Operands come straight from memory, or through
a shared-memory ring of k steps. Rows and whole vectors beyond the edge are read at the last valid place (their results
are never stored); the end of the k axis is a loop of its own with step one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from emmy.ir.expr import (
    Const,
    Expr,
    Lane,
    Load,
    Mem,
    Reg,
    Splat,
    Var,
    add,
    both,
    call,
    cast,
    ceil_div,
    evaluate_int,
    i32,
    is_const,
    minimum,
    mul,
    sub,
    walk,
)
from emmy.ir.kernel import (
    BX,
    BY,
    BZ,
    TX,
    TY,
    Atomic,
    BufferParam,
    For,
    If,
    Kernel,
    Let,
    RegArray,
    RegSet,
    ScalarParam,
    Shared,
    Stmt,
    Store,
)
from emmy.ir.nest import Axis, Region, Tensor
from emmy.ir.pipeline import Acquire, Commit, Fill, Release, Ring, Wait
from emmy.ir.plan import Launch, Memset, Plan, Step, Workspace
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Memory, Point, flat_offset, wide
from emmy.passes.lower.staging import PAD, StagedTile, fill, staged_tile

Writer = Callable[[Expr, Point, Expr | None], list[Stmt]]


@dataclass(frozen=True, slots=True)
class ScalarLeaf:
    """The parameters of one scalar leaf: threads n × m, fragment fn × fm, k step, split, ring depth, block order.

    lanes: width of a fragment's vectors (fn is a multiple). depth 0: operands are read straight from memory.
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

    @property
    def block_m(self) -> int:
        return self.m * self.fm

    @property
    def block_n(self) -> int:
        return self.n * self.fn


def lower_scalar(problem: Contraction, leaf: ScalarLeaf, name: str, knobs: str) -> Plan:
    """The plan of a leaf: the tile kernel, and for a split the memset or the finalising kernel."""
    return _Lowering(problem, leaf, name).plan(knobs)


class _Lowering:
    def __init__(self, problem: Contraction, leaf: ScalarLeaf, name: str) -> None:
        self.p, self.leaf, self.name = problem, leaf, name
        self.region: Region = problem.region
        self.memory = Memory.of(self.region)
        self.dtype = problem.comp.dtype.compute
        self.m, self.n, self.k = problem.m, problem.n, problem.k

    # ------------------------------------------------------------------------------------------------- plan

    def plan(self, knobs: str) -> Plan:
        region, leaf = self.region, self.leaf
        batch, m, n, k = self.p.sizes
        flops = 2 * batch * m * n * k
        nbytes = sum(region_bytes(t, region) for t in (*region.inputs, *(o.tensor for o in region.outputs)))
        blocks_m, blocks_n = ceil_div(self.m.extent, leaf.block_m), ceil_div(self.n.extent, leaf.block_n)
        depth: Expr = i32(leaf.split)
        for axis in self.p.outer:
            depth = mul(depth, axis.extent)
        grid = (mul(blocks_m, blocks_n), i32(1), depth)
        steps: list[Step] = []
        workspaces: tuple[Workspace, ...] = ()
        kernel = self.tile_kernel()
        if leaf.split > 1 and leaf.atomic:
            steps.append(Memset(region.outputs[0].tensor.name, 0))
            steps.append(Launch(kernel, grid, self.bind(kernel)))
        elif leaf.split > 1:
            partial = self.partial()
            workspaces = (Workspace(partial.name, self.dtype, partial.elements()),)
            final, final_grid = self.final_kernel(partial)
            steps += [Launch(kernel, grid, self.bind(kernel)), Launch(final, final_grid, self.bind(final))]
        else:
            steps.append(Launch(kernel, grid, self.bind(kernel)))
        return Plan(
            self.name, region.symbols, region.inputs, tuple(o.tensor for o in region.outputs), workspaces,
            tuple(steps), knobs, deterministic=not (leaf.split > 1 and leaf.atomic), flops=flops, bytes_min=nbytes,
        )  # fmt: skip

    def bind(self, kernel: Kernel) -> tuple[str, ...]:
        return tuple(p.name for p in kernel.params)

    def params(self, reads: tuple[str, ...], writes: tuple[str, ...]) -> tuple[BufferParam | ScalarParam, ...]:
        buffers = [BufferParam(t, self.memory.tensors[t].dtype) for t in reads]
        buffers += [BufferParam(t, self.memory.tensors[t].dtype, writable=True) for t in writes]
        return (*buffers, *(ScalarParam(s.name) for s in self.region.symbols))

    def partial(self) -> Tensor:
        """The workspace of a split: (split, outer…, m, n) partial sums."""
        shape = (i32(self.leaf.split), *(a.extent for a in self.p.outer), self.m.extent, self.n.extent)
        tensor = Tensor("partial", shape, self.dtype)
        self.memory.tensors["partial"] = tensor
        return tensor

    # ------------------------------------------------------------------------------------------ tile kernel

    def tile_kernel(self) -> Kernel:
        leaf = self.leaf
        split = leaf.split > 1
        body: list[Stmt] = []
        env = self.block_env(body)
        acc = RegArray("acc", self.dtype, (leaf.fm, leaf.fn // leaf.lanes), leaf.lanes, init=0)
        body.append(acc)
        body += self.edge_lets()
        start, stop = self.k_range(body)
        shared: tuple[Shared, ...] = ()
        rows_full = self.divides(self.n, leaf.block_n) or self.divides(self.n, leaf.lanes)
        if leaf.depth:
            tiles = self.tiles()
            shared = tuple(tile.shared(leaf.depth) for tile in tiles)
            body += self.accumulate_staged(acc, env, start, stop, tiles)
        elif rows_full:
            body += self.accumulate(acc, env, start, stop, ragged=False)
        else:
            inside = call("le", add(Var("n0"), i32(leaf.block_n)), self.n.extent)
            body.append(If(inside, tuple(self.accumulate(acc, env, start, stop, ragged=False)),
                           tuple(self.accumulate(acc, env, start, stop, ragged=True))))  # fmt: skip
        reads = [load.tensor for expr in (self.p.a, self.p.b) for load in _loads(expr)]
        if split and not leaf.atomic:
            self.partial()
            writes = ["partial"]
            body += self.store_partial(acc, env)
        elif split:
            writes = [self.region.outputs[0].tensor.name]
            body += self.store_atomic(acc, env)
        else:
            writes = [o.tensor.name for o in self.region.outputs]
            reads += [load.tensor for _, expr, _ in self.p.epilogue if expr is not None for load in _loads(expr)]
            body += self.store_outputs(acc, env)
        names = tuple(dict.fromkeys(r for r in reads if r != self.p.comp.name))
        return Kernel(self.name, self.params(names, tuple(writes)), (leaf.n, leaf.m), tuple(body), shared)

    def divides(self, axis: Axis, size: int) -> bool:
        return isinstance(axis.extent, Const) and axis.extent.value % size == 0

    def block_env(self, body: list[Stmt]) -> dict[str, Expr]:
        """Lets for the block's tile origin (m0, n0), outer indices and split; returns the outer axes' indices."""
        leaf = self.leaf
        blocks_n = ceil_div(self.n.extent, leaf.block_n)
        blocks_m = ceil_div(self.m.extent, leaf.block_m)
        if leaf.group:
            # grouped order: `group` rows of blocks are walked column by column, so that they share b's columns
            span = Let("span", mul(i32(leaf.group), blocks_n))
            first = Let("first", mul(call("floordiv", BX, span.var), i32(leaf.group)))
            height = Let("height", minimum(i32(leaf.group), sub(blocks_m, first.var)))
            inside = Let("inside", call("mod", BX, span.var))
            body += [span, first, height, inside]
            tile_m = add(first.var, call("mod", inside.var, height.var))
            tile_n = call("floordiv", inside.var, height.var)
        else:
            tile_m, tile_n = call("floordiv", BX, blocks_n), call("mod", BX, blocks_n)
        body.append(Let("m0", mul(tile_m, i32(leaf.block_m))))
        body.append(Let("n0", mul(tile_n, i32(leaf.block_n))))
        rest: Expr = BZ
        if leaf.split > 1:
            body.append(Let("part", call("mod", rest, i32(leaf.split))))
            rest = call("floordiv", rest, i32(leaf.split))
        env: dict[str, Expr] = {}
        for axis in reversed(self.p.outer):
            let = Let(f"o_{axis.name}", call("mod", rest, axis.extent) if axis is not self.p.outer[0] else rest)
            body.append(let)
            env[axis.name] = let.var
            rest = call("floordiv", rest, axis.extent)
        return env

    def edge_lets(self) -> list[Stmt]:
        """The last valid row and vector of the tile, where the tile may cross the edge."""
        leaf = self.leaf
        out: list[Stmt] = []
        if not self.divides(self.m, leaf.block_m):
            out.append(Let("m_last", sub(sub(self.m.extent, i32(1)), Var("m0"))))
        if not self.divides(self.n, leaf.block_n):
            out.append(Let("n_last", sub(sub(self.n.extent, i32(leaf.lanes)), Var("n0"))))
        return out

    def k_range(self, body: list[Stmt]) -> tuple[Expr, Expr]:
        """First and one past the last k of this block; parts are multiples of the k step."""
        extent = self.k.extent
        if self.leaf.split == 1:
            return i32(0), extent
        share = mul(ceil_div(ceil_div(extent, self.leaf.split), self.leaf.k), i32(self.leaf.k))
        start = Let("k_begin", minimum(mul(Var("part"), share), extent))
        stop = Let("k_end", minimum(add(start.var, share), extent))
        body += [start, stop]
        return start.var, stop.var

    def row(self, i: int) -> Expr:
        """Row i of the thread's fragment, inside the tile."""
        return add(mul(TY, i32(self.leaf.fm)), i32(i)) if self.leaf.m > 1 else i32(i)

    def local_row(self, i: int) -> Expr:
        row = self.row(i)
        return row if self.divides(self.m, self.leaf.block_m) else minimum(row, Var("m_last"))

    def local_column(self, j: int, clamp: bool = True) -> Expr:
        leaf = self.leaf
        column = mul(add(TX, i32(j * leaf.n)), i32(leaf.lanes)) if leaf.n > 1 else i32(j * leaf.lanes)
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
            for number, load in enumerate(dict.fromkeys(_loads(expr))):
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

    def tiles(self) -> tuple[StagedTile, StagedTile]:
        """The operand tiles of the ring."""
        leaf, widest = self.leaf, 16 if self.leaf.lanes <= 4 else 32
        a = staged_tile("as", self.memory, self.p.a, self.m, self.k, leaf.k, leaf.block_m, PAD, widest)
        b = staged_tile("bs", self.memory, self.p.b, self.n, self.k, leaf.k, leaf.block_n, 0, widest)
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
            for number, load in enumerate(dict.fromkeys(_loads(expr))):
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
                           (limit, k_limit.var if k_limit else None), tile.name)  # fmt: skip
        body += [Fill("ring", step, tuple(copies)), Commit("ring", step), Wait("ring", step)]
        body.append(For("kk", i32(0), i32(leaf.k), i32(1), tuple(self.multiply_staged(acc, tiles, slots)), "hint"))
        body.append(Release("ring", step))
        ring = Ring("ring", tuple(tile.name for tile in tiles), leaf.depth, leaf.transport, leaf.n * leaf.m)
        return [*out, ring, For("step", i32(0), steps, i32(1), tuple(body))]

    def multiply_staged(self, acc: RegArray, tiles: tuple[StagedTile, StagedTile], slots: list[Let]) -> list[Stmt]:
        """One rank-1 update out of the slot: a's rows are neighbours and read as vectors."""
        leaf = self.leaf
        out: list[Stmt] = []
        a, b = tiles
        kk = Var("kk")
        columns: list[Expr] = []
        for j in range(leaf.fn // leaf.lanes):
            at = add(add(slots[1].var, mul(kk, i32(b.pitch))), self.local_column(j, clamp=False))
            let = Let(
                f"b_{j}", cast(Mem(b.name, at, b.dtype, leaf.lanes, aligned=b.pitch % leaf.lanes == 0), self.dtype)
            )
            out.append(let)
            columns.append(let.var)
        width = min(leaf.fm & -leaf.fm, 4)
        for group in range(0, leaf.fm, width):
            at = add(add(slots[0].var, mul(kk, i32(a.pitch))), self.row(group))
            rows = Let(f"a_{group}", cast(Mem(a.name, at, a.dtype, width, aligned=a.pitch % width == 0), self.dtype))
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

    def write_cell(self, value: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
        """Epilogue and store of one cell or vector of cells for every output."""
        out: list[Stmt] = []
        for output, expr, axes in self.p.epilogue:
            result = value
            if expr is not None:

                def read(load: Load, at: Point, held: Expr = value) -> Expr | None:
                    return held if load.tensor.split(".")[0] == self.p.comp.name else None

                result = self.memory.value(expr, point, read)
            result = cast(result, output.tensor.dtype.compute)
            out += self.store(output.tensor, axes, result, point, guard)
        return out

    def store(self, tensor: Tensor, axes: tuple[str, ...], value: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
        """Stores a vector along n: one wide store where the output's n stride is one, single lanes otherwise."""
        index = tuple(Var(axis) if axis else i32(0) for axis in axes)
        reference = Load(tensor.name, index, tensor.dtype)
        stride = self.memory.stride(reference, self.n.name)
        if value.lanes == 1 and point.lanes > 1:
            value = Splat(value, point.lanes)
        if point.lanes == 1 or (stride is not None and is_const(stride, 1)):
            return [Store(tensor.name, self.memory.offset(tensor.name, index, point.env), value, tensor.dtype, guard)]
        return [
            Store(
                tensor.name,
                self.memory.offset(tensor.name, index, point.lane(lane).env),
                Lane(value, lane),
                tensor.dtype,
                guard,
            )
            for lane in range(point.lanes)
        ]

    # ------------------------------------------------------------------------------------------------ splits

    def store_partial(self, acc: RegArray, env: dict[str, Expr]) -> list[Stmt]:
        tensor = self.memory.tensors["partial"]
        axes = (*(a.name for a in self.p.outer), self.m.name, self.n.name)

        def write(reg: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
            index = (Var("part"), *(point.env.get(a, i32(0)) for a in axes))
            flat = flat_offset(tensor, index)
            return [Store("partial", wide(flat) if self.memory.big else flat, reg, self.dtype, guard)]

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

    def final_kernel(self, partial: Tensor) -> tuple[Kernel, tuple[Expr, Expr, Expr]]:
        """Sums the partial results and applies the epilogue: one thread a vector of ``lanes`` columns of a row."""
        leaf = self.leaf
        lanes = leaf.lanes if self.divides(self.n, leaf.lanes) else 1
        body: list[Stmt] = [Let("m0", BY)]
        column = mul(add(mul(BX, i32(leaf.n)), TX), i32(lanes)) if leaf.n > 1 else mul(BX, i32(lanes))
        body.append(Let("n0", column))
        env: dict[str, Expr] = {}
        rest: Expr = BZ
        for axis in reversed(self.p.outer):
            let = Let(f"o_{axis.name}", call("mod", rest, axis.extent) if axis is not self.p.outer[0] else rest)
            body.append(let)
            env[axis.name] = let.var
            rest = call("floordiv", rest, axis.extent)
        env |= {self.m.name: Var("m0"), self.n.name: Var("n0")}
        total = RegArray("total", self.dtype, (1,), lanes, init=0)
        guard = None if self.divides(self.n, leaf.n * lanes) else call("lt", Var("n0"), self.n.extent)
        index = (Var("part"), *(env[a.name] for a in self.p.outer), env.get(self.m.name, i32(0)), env[self.n.name])
        flat = flat_offset(partial, index)
        value = Mem("partial", wide(flat) if self.memory.big else flat, self.dtype, lanes)
        total_at = total.at(0)
        inner: list[Stmt] = [total]
        inner.append(For("part", i32(0), i32(leaf.split), i32(1), (RegSet(total_at, add(total_at, value)),)))
        self.memory.views.clear()
        point = Point(env, self.n.name if lanes > 1 else "", lanes)
        inner += self.write_cell(total_at, point, None)
        body += [If(guard, tuple(inner))] if guard is not None else inner
        reads = [
            x.tensor for _, e, _ in self.p.epilogue if e is not None for x in _loads(e) if x.tensor != self.p.comp.name
        ]
        params = self.params(
            tuple(dict.fromkeys(["partial", *reads])), tuple(o.tensor.name for o in self.region.outputs)
        )
        depth: Expr = i32(1)
        for axis in self.p.outer:
            depth = mul(depth, axis.extent)
        grid = (ceil_div(self.n.extent, leaf.n * lanes), self.m.extent, depth)
        return Kernel(f"{self.name}_final", params, (leaf.n, 1), tuple(body)), grid


def _loads(expr: Expr) -> list[Load]:
    return [node for node in walk(expr) if isinstance(node, Load)]


def region_bytes(tensor: Tensor, region: Region) -> int:
    """Bytes of a tensor at the hints."""
    return evaluate_int(tensor.elements(), region.hints()) * tensor.dtype.nbytes
