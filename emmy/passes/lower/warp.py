"""Lowering a contraction to warps: mma.sync atoms fed by ldmatrix out of a ring of swizzled operand tiles.

A block of wm × wn warps makes a tile; each warp holds fm × fn accumulator atoms. A k step is ``steps`` atoms deep; its
fragments are loaded one atom ahead of the products that use them. Everything that depends on the thread alone
(pointers, swizzled offsets) is computed before the loop, so that the loop adds the slot and constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from emmy.ir.dtype import DType
from emmy.ir.expr import (
    Const,
    Expr,
    Lane,
    Load,
    Mem,
    Pack,
    Reg,
    Var,
    add,
    both,
    call,
    cast,
    ceil_div,
    floordiv,
    i32,
    mod,
    mul,
    select,
    sub,
)
from emmy.ir.fragment import ATOMS, Atom, Fragments, LdMatrix, Mma, matrix_rows
from emmy.ir.kernel import TID, Atomic, Barrier, For, If, Kernel, Let, Stmt, Store, View
from emmy.ir.pipeline import Acquire, Commit, Copy, Fill, Release, Ring, Wait
from emmy.ir.plan import Plan
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Memory, Point, wide
from emmy.passes.lower.operand import Operand, SwizzledTile, operand, operand_tile, parts, result_tile
from emmy.passes.lower.tile import TileLowering, loads_of, vector_fits, with_aligned

Writer = Callable[[Expr, Point, Expr | None], list[Stmt]]

FINAL_THREADS = 128
"""Threads of a finalising kernel's block, four columns each."""


@dataclass(frozen=True, slots=True)
class WarpLeaf:
    """The parameters of one warp leaf: warps wm × wn, atoms a warp fm × fn, ``steps`` atoms a k step, ring, splits."""

    atom: str
    wm: int
    wn: int
    fm: int
    fn: int
    steps: int
    depth: int
    transport: str
    split: int = 1
    atomic: bool = False
    group: int = 0

    @property
    def shape(self) -> Atom:
        return ATOMS[self.atom]

    @property
    def warp_m(self) -> int:
        return self.fm * self.shape.m

    @property
    def warp_n(self) -> int:
        return self.fn * self.shape.n

    @property
    def block_m(self) -> int:
        return self.wm * self.warp_m

    @property
    def block_n(self) -> int:
        return self.wn * self.warp_n

    @property
    def k(self) -> int:
        return self.steps * self.shape.k

    @property
    def threads(self) -> int:
        return 32 * self.wm * self.wn


def lower_warp(problem: Contraction, leaf: WarpLeaf, name: str, knobs: str) -> Plan:
    """The plan of a leaf: the tile kernel, and for a split the memset or the finalising kernel."""
    return _Lowering(problem, leaf, name).plan(knobs)


def operands(problem: Contraction) -> tuple[Operand, Operand]:
    """Both factors as operands of atoms. Raises Refused."""
    memory = Memory.of(problem.region)
    return operand(memory, problem.a, problem.m, problem.k), operand(memory, problem.b, problem.n, problem.k)


def stage_dtype(problem: Contraction) -> DType | None:
    """The type in which a warp turns its results round in shared memory; None: stores straight from accumulators.

    A 16-bit output written straight from accumulators covers half of every 32-byte sector a store touches, so twice the
    sectors go to the L2 cache; turned round, a lane has 16 contiguous bytes. float32 outputs fill their sectors as they
    are. An epilogue that reads a whole matrix (a residual) is applied after turning, where its reads are as wide as the
    stores: the accumulators are then staged as float32. Any other is applied before, and its rounded result staged.
    """
    memory = Memory.of(problem.region)
    tensors = [output.tensor for output, _, _ in problem.epilogue]
    if not any(tensor.dtype.nbytes == 2 for tensor in tensors):
        return None
    late = len(tensors) > 1 or any(_two_axes(problem, memory, expr) for _, expr, _ in problem.epilogue)
    lanes = 4 if late else 8
    for output, _, axes in problem.epilogue:
        reference = Load(output.tensor.name, tuple(Var(a) if a else i32(0) for a in axes), output.tensor.dtype)
        if not vector_fits(memory, reference, problem.n, lanes):
            return None
    return DType.F32 if late else tensors[0].dtype


def _two_axes(problem: Contraction, memory: Memory, expr: Expr | None) -> bool:
    """Whether the epilogue reads an element of its own for every cell."""
    from emmy.ir.expr import free_vars

    names = {problem.m.name, problem.n.name}
    own = problem.comp.name
    return expr is not None and any(
        load.tensor.split(".")[0] != own and names <= {n for i in load.index for n in free_vars(i)}
        for load in loads_of(expr)
    )


class _Lowering(TileLowering):
    def __init__(self, problem: Contraction, leaf: WarpLeaf, name: str) -> None:
        super().__init__(problem, leaf, name)
        self.leaf, self.atom = leaf, leaf.shape
        self.sides = operands(problem)
        self.tiles = tuple(
            operand_tile(label, side.dtype, *((size, leaf.k) if side.along_k else (leaf.k, size)))
            for label, side, size in zip(("as", "bs"), self.sides, (leaf.block_m, leaf.block_n), strict=True)
        )
        self.acc = Fragments("acc", leaf.atom, "c", (leaf.fm, leaf.fn), 0.0)
        self.lets: dict[str, Let] = {}

    def final_shape(self) -> tuple[int, int]:
        return FINAL_THREADS, 4 if self.divides(self.n, 4) else 1

    # ------------------------------------------------------------------------------------------ tile kernel

    def tile_kernel(self) -> Kernel:
        leaf = self.leaf
        body: list[Stmt] = []
        env = self.block_env(body)
        start, stop = self.k_range(body)
        warp = Let("warp", floordiv(TID, i32(32)))
        body += [Let("lane", mod(TID, i32(32))), warp]
        body.append(Let("warp_m", mul(mod(warp.var, i32(leaf.wm)), i32(leaf.warp_m))))
        body.append(Let("warp_n", mul(floordiv(warp.var, i32(leaf.wm)), i32(leaf.warp_n))))
        loop = self.main_loop(env, start, stop)
        ring = Ring("ring", tuple(tile.name for tile in self.tiles), leaf.depth, leaf.transport, leaf.threads)
        body += [*loop[:-1], ring, self.acc, loop[-1]]
        shared = [tile.shared(leaf.depth) for tile in self.tiles]
        reads = self.operand_reads()
        self.memory.views.clear()
        if leaf.split > 1 and not leaf.atomic:
            self.partial()
            writes = ["partial"]
            body += self.each_pair(env, self.write_partial)
        elif leaf.split > 1:
            writes = [self.region.outputs[0].tensor.name]
            body += self.each_pair(env, self.write_atomic)
        else:
            writes = [o.tensor.name for o in self.region.outputs]
            reads += self.epilogue_reads()
            staged = stage_dtype(self.p)
            if staged is None:
                body += self.each_pair(env, self.write_cell)
            else:
                tile = result_tile("turn", staged, self.atom.m, leaf.warp_n)
                shared.append(tile.shared(2 * leaf.wm * leaf.wn))
                body += self.turned(tile, env)
        names = tuple(dict.fromkeys(reads))
        return Kernel(self.name, self.params(names, tuple(writes)), (leaf.threads, 1), tuple(body), tuple(shared))

    def let(self, name: str, value: Expr) -> Expr:
        """``value`` by a name that is bound before the loop."""
        if isinstance(value, Const | Var):
            return value
        return self.lets.setdefault(name, Let(name, value)).var

    # ------------------------------------------------------------------------------------------------- loop

    def main_loop(self, env: dict[str, Expr], start: Expr, stop: Expr) -> list[Stmt]:
        """Definitions, then the loop over k steps: fill a slot of the ring, wait for it, multiply out of it."""
        leaf = self.leaf
        self.memory.views.clear()
        step = Var("step")
        k_at = Let("k_at", mul(step, i32(leaf.k)))
        whole = isinstance(stop, Const) and isinstance(start, Const) and (stop.value - start.value) % leaf.k == 0
        k_left = None if whole else Let("k_left", sub(sub(stop, start), k_at.var))
        slots = [Let(f"{t.name}_slot", mul(mod(step, i32(leaf.depth)), i32(t.elements))) for t in self.tiles]
        views: list[Stmt] = []
        fills: list[Stmt] = []
        for side, tile, slot in zip(self.sides, self.tiles, slots, strict=True):
            fills += self.fill(side, tile, slot.var, env, start, k_at.var, k_left.var if k_left else None, views)
        products = self.products(slots)
        body = [
            k_at,
            *([k_left] if k_left else []),
            *slots,
            Acquire("ring", step),
            Fill("ring", step, tuple(fills)),
            Commit("ring", step),
            Wait("ring", step),
            *products,
            Release("ring", step),
        ]
        steps = ceil_div(sub(stop, start), leaf.k)
        return [*self.lets.values(), *views, For("step", i32(0), steps, i32(1), tuple(body))]

    def fill(
        self, side: Operand, tile: SwizzledTile, slot: Expr, env: dict[str, Expr], start: Expr, k_at: Expr,
        k_left: Expr | None, views: list[Stmt],
    ) -> list[Stmt]:  # fmt: skip
        """Copies of one operand's tile into the slot. Elements beyond an edge become zero, the identity of the sum."""
        origin, size = ("m0", self.leaf.block_m) if side.across is self.m else ("n0", self.leaf.block_n)
        left = None
        if not self.divides(side.across, size):
            left = self.let(f"{tile.name}_left", sub(side.across.extent, Var(origin)))
        out: list[Stmt] = []
        seen: dict[tuple[Expr, Expr], int] = {}
        for part in parts(tile, self.leaf.threads, side.lanes):
            first = (part.row, part.col) not in seen
            group = seen.setdefault((part.row, part.col), len(seen))
            row = self.let(f"{tile.name}_row{group}", part.row)
            col = self.let(f"{tile.name}_col{group}", part.col)
            across, k = (row, col) if side.along_k else (col, row)
            across_at, k_part = (part.row_at, part.col_at) if side.along_k else (part.col_at, part.row_at)
            if first:
                self.open_views(side, f"{tile.name}{group}", env, add(Var(origin), across), add(start, k), views)
            guard: Expr | None = None
            if left is not None:
                guard = call("lt", add(across, i32(across_at)), left)
            if k_left is not None:
                guard = both(guard, call("lt", add(k, i32(k_part)), k_left))
            full = {**env, side.across.name: add(add(Var(origin), across), i32(across_at))}
            full[self.k.name] = add(add(add(start, k_at), k), i32(k_part))
            local: dict[str, Expr] = dict.fromkeys(env, i32(0))
            local |= {side.across.name: i32(across_at), self.k.name: add(k_at, i32(k_part))}
            where = add(slot, self.place(tile, row, col, part.row_at, part.col_at, f"{tile.name}_to{group}"))
            copies = self.copy(side, tile, where, Point(full, local=local), guard)
            if not part.whole:
                copies = [If(call("lt", TID, i32(part.total - part.number)), tuple(copies))]
            out += copies
        return out

    def open_views(
        self, side: Operand, tag: str, env: dict[str, Expr], across: Expr, k: Expr, views: list[Stmt]
    ) -> None:
        """Pointers to the first element that a thread copies; later ones are read at constant distances from them."""
        block = {**env, side.across.name: across, self.k.name: k}
        loads = [side.load] if side.load is not None else loads_of(side.factor)
        for number, load in enumerate(dict.fromkeys(loads)):
            view = self.memory.view(f"p{tag}_{number}", load, block)
            if view is not None:
                views.append(view)

    def copy(self, side: Operand, tile: SwizzledTile, where: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
        """One vector from memory to the tile: a copy, or the prologue's value."""
        if side.load is not None:
            source = self.memory.mem(side.load, point)
            offset = wide(source.offset) if self.memory.big else source.offset
            return [Copy(tile.name, where, source.buffer, offset, side.lanes, side.dtype, guard)]
        at = point.guarded(guard)
        if side.lanes > 1:
            at = replace(at, axis=side.inner(self.k).name, lanes=side.lanes)
        value = cast(self.memory.value(side.factor, at), DType.F32)
        if guard is not None:
            value = select(guard, value, Const(0.0, DType.F32))
        # the lanes were chosen so that every vector of the factor's tensors is aligned
        value = with_aligned(value, side.lanes, lambda _: True)
        return [Store(tile.name, where, value, side.dtype, aligned=side.lanes > 1)]

    def place(self, tile: SwizzledTile, row: Expr, col: Expr, row_at: int, col_at: int, name: str) -> Expr:
        """Offset of (row + row_at, col + col_at) in a tile, of which only multiples of the pattern are added late.

        The permutation repeats every eight rows and every panel.
        """
        row_low, col_low = row_at % 8, col_at % tile.span
        low = self.let(f"{name}_{row_low}_{col_low}", tile.at(add(row, i32(row_low)), add(col, i32(col_low))))
        return add(low, i32((row_at - row_low) * tile.span + (col_at - col_low) * tile.rows))

    # ---------------------------------------------------------------------------------------------- products

    def products(self, slots: list[Let]) -> list[Stmt]:
        """All atoms of one k step. Fragments are loaded one atom ahead, into the other half of their arrays."""
        leaf = self.leaf
        halves = 2 if leaf.steps > 1 else 1
        a = Fragments("a_frag", leaf.atom, "a", (halves, leaf.fm))
        b = Fragments("b_frag", leaf.atom, "b", (halves, leaf.fn))
        out: list[Stmt] = [a, b, *self.load_fragments(a, b, slots, 0)]
        i, j = Var("i"), Var("j")
        for kk in range(leaf.steps):
            half = kk % halves
            if kk + 1 < leaf.steps:
                out += self.load_fragments(a, b, slots, kk + 1)
            product = Mma(leaf.atom, self.acc.at(i, j), a.at(half, i), b.at(half, j))
            row = For("j", i32(0), i32(leaf.fn), i32(1), (product,), "full")
            out.append(For("i", i32(0), i32(leaf.fm), i32(1), (row,), "full"))
        return out

    def load_fragments(self, a: Fragments, b: Fragments, slots: list[Let], kk: int) -> list[Stmt]:
        """The fragments of atom ``kk`` of the step: one ldmatrix an atom of a, one for two neighbouring atoms of b."""
        leaf, lane = self.leaf, Var("lane")
        half = kk % a.shape[0]
        out: list[Stmt] = []
        (a_side, b_side), (a_tile, b_tile) = self.sides, self.tiles
        row, col = matrix_rows(self.atom.layout("a"), lane, trans=not a_side.along_k)
        for i in range(leaf.fm):
            at = self.matrix(a_side, a_tile, add(Var("warp_m"), row), col, i * self.atom.m, kk * self.atom.k, "fa")
            target = a.at(half, i)
            out.append(LdMatrix((target,), a_tile.name, add(slots[0].var, at), trans=not a_side.along_k))
        row, col = matrix_rows(self.atom.layout("b"), lane, trans=not b_side.along_k)
        for j in range(0, leaf.fn, 2):
            pair = j + 1 < leaf.fn
            across = add(Var("warp_n"), col)
            if pair:  # lanes 16 … 31 address the second atom
                across = add(across, mul(floordiv(lane, i32(16)), i32(self.atom.n)))
            tag = "fb" if pair else "fs"
            at = self.matrix(b_side, b_tile, across, row, j * self.atom.n, kk * self.atom.k, tag)
            targets = (b.at(half, j), b.at(half, j + 1)) if pair else (b.at(half, j),)
            out.append(LdMatrix(targets, b_tile.name, add(slots[1].var, at), trans=not b_side.along_k))
        return out

    def matrix(
        self, side: Operand, tile: SwizzledTile, across: Expr, k: Expr, across_at: int, k_at: int, name: str
    ) -> Expr:
        """Offset in a slot of the matrix row that a lane addresses."""
        if side.along_k:
            return self.place(tile, across, k, across_at, k_at, name)
        return self.place(tile, k, across, k_at, across_at, name)

    # ---------------------------------------------------------------------------------------------- results

    def accumulators(self) -> list[tuple[int, int, Expr, Expr, Expr]]:
        """(i, j, value, row, column) of every pair of neighbouring columns a thread holds; inside the warp's tile."""
        out = []
        for i in range(self.leaf.fm):
            for j in range(self.leaf.fn):
                for registers in self.atom.c.rows_of_thread():
                    tile: Reg = self.acc.at(i, j)
                    value = cast(Pack(tuple(Lane(tile, register) for register in registers)), self.dtype)
                    row = self.atom.c.row(Var("lane"), registers[0])
                    col = add(self.atom.c.col(Var("lane"), registers[0]), i32(j * self.atom.n))
                    out.append((i, j, value, row, col))
        return out

    def cell(self, env: dict[str, Expr], row: Expr, col: Expr, lanes: int) -> tuple[Point, Expr | None]:
        """(point, guard) of ``lanes`` columns from (row, col) of the warp's tile; N is a multiple of the lanes."""
        at_row, at_col = add(add(Var("m0"), Var("warp_m")), row), add(add(Var("n0"), Var("warp_n")), col)
        guard = None if self.divides(self.m, self.leaf.block_m) else call("lt", at_row, self.m.extent)
        if not self.divides(self.n, self.leaf.block_n):
            guard = both(guard, call("lt", at_col, self.n.extent))
        full = {**env, self.m.name: at_row, self.n.name: at_col}
        return Point(full, self.n.name if lanes > 1 else "", lanes, guard), guard

    def each_pair(self, env: dict[str, Expr], write: Writer) -> list[Stmt]:
        """``write`` for every pair of columns; for single columns where a pair may cross the edge."""
        out: list[Stmt] = []
        for i, _, value, row, col in self.accumulators():
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

    def turned(self, tile: SwizzledTile, env: dict[str, Expr]) -> list[Stmt]:
        """Results through a warp's own piece of shared memory, one row of atoms at a time, in two halves taken in turn.

        A half is written again two rows of atoms later; the barrier of the row between orders that after its reads.
        """
        leaf = self.leaf
        late = tile.dtype == DType.F32
        lanes = 4 if late else 8
        out: list[Stmt] = [
            View("mine", tile.name, cast(mul(Var("warp"), i32(2 * tile.elements)), DType.I64), tile.dtype)
        ]
        output, expr, axes = self.p.epilogue[0]
        cells = self.accumulators()
        per_row = leaf.warp_n // lanes
        for i in range(leaf.fm):
            half = i32(i % 2 * tile.elements)
            for at, _, value, row, col in cells:
                if at != i:
                    continue
                if not late:
                    point, _ = self.cell(env, add(row, i32(i * self.atom.m)), col, 2)
                    value = cast(self.epilogue_value(expr, value, point), output.tensor.dtype.compute)
                out.append(Store("mine", add(half, tile.at(row, col)), value, tile.dtype, aligned=True))
            out.append(Barrier("warp"))
            total = self.atom.m * per_row
            for number in range(0, total, 32):
                chunk = add(Var("lane"), i32(number))
                row, col = floordiv(chunk, i32(per_row)), mul(mod(chunk, i32(per_row)), i32(lanes))
                held = Mem("mine", add(half, tile.at(row, col)), tile.dtype, lanes, aligned=True)
                point, guard = self.cell(env, add(row, i32(i * self.atom.m)), col, lanes)
                let = Let(f"held{i}_{number}", held)
                if late:
                    stores = self.write_cell(let.var, point, guard)
                else:
                    stores = self.store(output.tensor, axes, let.var, point, guard)
                block: list[Stmt] = [let, *stores]
                out += [If(call("lt", Var("lane"), i32(total)), tuple(block))] if total < 32 else block
        return out
