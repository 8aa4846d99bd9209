"""Lowering a contraction to warps: mma.sync atoms fed by ldmatrix out of a ring of swizzled operand tiles.

A block of wm × wn warps makes a tile; each warp holds fm × fn accumulator atoms. A k step is ``steps`` atoms deep; its
fragments are loaded one atom ahead of the products that use them. Everything that depends on the thread alone
(pointers, swizzled offsets) is computed before the loop, so that the loop adds the slot and constants.
"""

from __future__ import annotations

from emmy.ir.dtype import DType
from emmy.ir.expr import (
    Const,
    Expr,
    Lane,
    Pack,
    Reg,
    Var,
    add,
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
from emmy.ir.fragment import Fragments, LdMatrix, Mma, matrix_rows
from emmy.ir.kernel import TID, Barrier, For, If, Kernel, Let, RegArray, RegSet, Stmt, View
from emmy.ir.pipeline import CopyCommit, CopyWait
from emmy.ir.plan import Plan
from emmy.passes.contraction import Contraction
from emmy.passes.lower.cluster import Exchange
from emmy.passes.lower.fill import Filler
from emmy.passes.lower.operand import Operand, SwizzledTile, operand_tile, result_tile
from emmy.passes.lower.slices import SLICE, Slices
from emmy.passes.lower.warp_leaf import (
    Rect,
    WarpLeaf,
    operands,
    shares,
    stage_dtype,
)
from emmy.passes.lower.warp_results import Cell, WarpResults

FINAL_THREADS = 64
"""Threads of a finalising kernel's block, four columns each: few, since its blocks must fill the device too."""


def lower_warp(problem: Contraction, leaf: WarpLeaf, name: str, knobs: str) -> Plan:
    """The plan of a leaf: the tile kernel, and for a split the memset or the finalising kernel."""
    return _Lowering(problem, leaf, name).plan(knobs)


class _Lowering(WarpResults):
    def __init__(self, problem: Contraction, leaf: WarpLeaf, name: str) -> None:
        super().__init__(problem, leaf, name)
        self.sides = operands(problem)
        self.tiles = (
            self.operand_tile("as", self.sides[0], leaf.block_m),
            self.operand_tile("bs", self.sides[1], leaf.block_n),
        )
        self.lets: dict[str, Let] = {}
        self.pointers: dict[str, View] = {}
        self.turn = RegArray("slot", DType.I32, (1,), init=0)

    def operand_tile(self, name: str, side: Operand, size: int) -> SwizzledTile:
        """The tile of ``size`` rows or columns and a k step, contiguous the way the operand is."""
        rows, cols = (size, self.leaf.k) if side.along_k else (self.leaf.k, size)
        return operand_tile(name, side.dtype, rows, cols)

    @property
    def acc_registers(self) -> int:
        """32-bit registers of a thread's accumulators."""
        leaf = self.leaf
        return leaf.chains * leaf.fm * leaf.fn * self.atom.c.registers * self.atom.acc.nbytes // 4

    def final_shape(self) -> tuple[int, int]:
        return FINAL_THREADS, 4 if self.divides(self.n, 4) else 1

    # ------------------------------------------------------------------------------------------ tile kernel

    def tile_kernel(self) -> Kernel:
        leaf = self.leaf
        exchange = self.exchange() if leaf.split > 1 and leaf.how == "c" else None
        body: list[Stmt] = [exchange.begin] if exchange is not None else []
        env = self.block_env(body)
        start, stop = self.k_range(body)
        shared = [tile.shared(leaf.depth) for tile in self.tiles]
        reads = self.operand_reads()
        self.memory.views.clear()
        ending: list[Stmt] = []
        if self.slices is not None:
            shared.append(self.slices.shared())
            ending += self.gather(self.slices)
        done = len(ending)
        whole = Rect(range(leaf.fm), range(leaf.fn))
        if leaf.split > 1 and leaf.how == "k":
            self.partial()
            writes = ["partial"]
            ending += self.each_pair(self.accumulators(whole), env, self.write_partial)
        elif leaf.split > 1 and leaf.how == "a":
            writes = [self.region.outputs[0].tensor.name]
            ending += self.each_pair(self.accumulators(whole), env, self.write_atomic)
        else:
            writes = [o.tensor.name for o in self.region.outputs]
            reads += self.epilogue_reads()
            staged = stage_dtype(self.p)
            tile = result_tile("turn", staged, self.atom.m, leaf.warp_n) if staged is not None else None
            if tile is not None:
                shared.append(tile.shared(2 * leaf.wm * leaf.wn))
                ending += self.turning_place(tile)
            if exchange is None:
                ending += self.results(self.accumulators(whole), whole, tile, env)
            else:
                shared.append(exchange.shared())
                ending += self.join(exchange, tile, env)
        if self.slices is not None and exchange is None:
            ending[done:] = [If(self.slices.first, tuple(ending[done:]))]
        touched, landings = self.touched(env)
        shared += landings
        # made after the ending, which says what it reads of columns
        body += self.main_loop(env, start, stop, touched)
        body += ending
        names = tuple(dict.fromkeys(reads))
        params = self.params(names, tuple(writes))
        cluster = leaf.split if exchange is not None else 1
        return Kernel(self.name, params, (leaf.threads, 1), tuple(body), tuple(shared), leaf.min_blocks, cluster)

    def exchange(self) -> Exchange:
        """How the blocks of a cluster share out a warp's atoms: four sums a thread and atom."""
        leaf = self.leaf
        return Exchange(leaf.split, leaf.threads // leaf.slices, 4, leaf.fm * leaf.fn // leaf.split)

    def gather(self, slices: Slices) -> list[Stmt]:
        """The sums over the slices, in the registers of the first."""
        atoms = Rect(range(self.leaf.fm), range(self.leaf.fn)).atoms
        out = slices.hand_over([self.accumulated(i, j) for i, j in atoms])
        added: list[Stmt] = []
        for number, (i, j) in enumerate(atoms):
            lets = [Let(f"handed{i}_{j}_{slot}", part) for slot, part in enumerate(slices.handed(number))]
            total = [cast(Lane(self.acc.at(0, i, j), register), DType.F32) for register in range(4)]
            for let in lets:
                total = [add(one, Lane(let.var, register)) for register, one in enumerate(total)]
            added += [*lets, RegSet(self.sums.at(i, j), Pack(tuple(total)))]
        return [self.sums, *out, If(slices.first, tuple(added))]

    def join(self, exchange: Exchange, tile: SwizzledTile | None, env: dict[str, Expr]) -> list[Stmt]:
        """The sums over the cluster's blocks; each block writes its share of the tile."""
        rects = shares(self.leaf.fm, self.leaf.fn, self.leaf.split)
        assert rects is not None, "the rule cluster_shares_atoms"
        able = self.slices.first if self.slices is not None else None
        out = exchange.send([[self.held(i, j) for i, j in rect.atoms] for rect in rects], able)
        for rank, rect in enumerate(rects):
            body: list[Stmt] = []
            sums: list[Cell] = []
            sent: dict[tuple[int, int], list[Expr]] = {}
            for number, at in enumerate(rect.atoms):
                lets = [Let(f"sent{at[0]}_{at[1]}_{slot}", v) for slot, v in enumerate(exchange.received(number))]
                body += lets
                sent[at] = [let.var for let in lets]
            for i, j, registers, value, row, col in self.accumulators(rect):
                lanes = []
                for lane, register in enumerate(registers):
                    total: Expr = Lane(value, lane)
                    for vector in sent[i, j]:
                        total = add(total, Lane(vector, register))
                    lanes.append(total)
                let = Let(f"sum{i}_{j}_{registers[0]}", Pack(tuple(lanes)))
                body.append(let)
                sums.append((i, j, registers, let.var, row, col))
            out.append(exchange.of_rank(rank, [*body, *self.results(sums, rect, tile, env, f"_{rank}")], able))
        return out

    def let(self, name: str, value: Expr) -> Expr:
        """``value`` by a name that is bound before the loop."""
        if isinstance(value, Const | Var):
            return value
        return self.lets.setdefault(name, Let(name, value)).var

    # ------------------------------------------------------------------------------------------------- loop

    def main_loop(self, env: dict[str, Expr], start: Expr, stop: Expr, touched: list[Stmt]) -> list[Stmt]:
        """Definitions, the first fills (``touched`` beside the last of them), then the loop over k steps.

        The ring stands here in its expanded form, for two reasons. A step's first fragments are loaded before the last
        products of the step before it (``ahead``), so that no warp waits for ldmatrix behind a barrier; for that the
        step after is waited for inside a step. And the fills carry their condition as a predicate that makes them
        write zeros beyond the last step, so that the loop is one basic block; the zeros are never multiplied.

        Before step ``s`` the groups of steps 0 … s + depth - 2 are committed. The barrier after the wait for a step
        also says that all warps have read the step before, whose slot the next fill takes.
        """
        leaf = self.leaf
        self.memory.views.clear()
        known = self.whole_steps()
        steps = Let("steps", ceil_div(sub(stop, start), leaf.k) if known is None else i32(known))
        count = steps.value if isinstance(steps.value, Const) else steps.var
        filler = Filler(self, env, start, stop, count)
        step = Var("step")
        halves = 2 if leaf.own_steps > 1 else 1
        a = Fragments("a_frag", leaf.atom, "a", (halves, leaf.fm))
        b = Fragments("b_frag", leaf.atom, "b", (halves, leaf.fn))
        ahead = leaf.own_steps % 2 == 0 and leaf.depth > 1
        commit: list[Stmt] = [CopyCommit()] if leaf.transport == "async" else []
        wait: list[Stmt] = [CopyWait(max(leaf.depth - 2, 0))] if leaf.transport == "async" else []
        wait.append(Barrier())
        first: list[Stmt] = []
        for number in range(leaf.depth - 1):
            begin, end = filler.fill(i32(number), f"_{number}")
            last = number == leaf.depth - 2
            first += [*begin, *end, *(touched if last else ()), *commit]
        begin, end = filler.fill(add(step, i32(leaf.depth - 1)), "")
        if self.acc_registers >= 64 and first:
            # every block begins inside the output; the compiler does not know, and so does not clear the accumulators,
            # an instruction a pair, before the first copies are on their way
            first = [If(call("lt", Var("m0"), self.m.extent), tuple(first))]
        # the first copies are on their way before anything that only the products need is computed
        copying = [*self.lets.values(), *filler.views, *self.pointers.values(), *first]
        self.pointers = {}
        entry: list[Stmt] = []
        body: list[Stmt] = []
        if ahead:
            entry = [*wait, *self.load_fragments(a, b, i32(0), 0)]
        elif leaf.depth > 1:
            body += [*wait, *self.load_fragments(a, b, self.slot(step), 0)]
        if leaf.depth == 1:
            early, late = ([], begin) if leaf.transport == "async" else (begin, [])
            body += [*early, Barrier(), *late, *end, *commit, *wait, *self.load_fragments(a, b, self.slot(step), 0)]
        for kk in range(leaf.own_steps):
            last = kk + 1 == leaf.own_steps
            if not last:
                body += self.load_fragments(a, b, self.slot(step), kk + 1)
            if kk == 0 and leaf.depth > 1:
                body += begin
                body += commit
            if last and ahead:
                body += [*end, *wait, *self.load_fragments(a, b, self.slot(add(step, i32(1))), 0)]
            body += self.products(a, b, kk % halves, kk % leaf.chains)
        if not ahead and leaf.depth > 1:
            body += end
        defined = [] if isinstance(steps.value, Const) else [steps]
        turn, onward, turned = self.turning()
        loop = For("step", i32(0), count, i32(1), (*onward, *body, *turned))
        # no copy outlives the loop: those in flight are zeros beyond the last step
        done: list[Stmt] = [CopyWait(0)] if leaf.transport == "async" and leaf.depth > (2 if ahead else 1) else []
        warps = floordiv(TID, i32(32))
        warp = Let("warp", mod(warps, i32(leaf.wm * leaf.wn)) if leaf.slices > 1 else warps)
        place: list[Stmt] = [
            Let("lane", mod(TID, i32(32))),
            *([self.slices.place()] if self.slices is not None else []),
            warp,
            Let("warp_m", mul(mod(warp.var, i32(leaf.wm)), i32(leaf.warp_m))),
            Let("warp_n", mul(floordiv(warp.var, i32(leaf.wm)), i32(leaf.warp_n))),
            *self.pointers.values(),
            *self.columns.values(),
        ]
        return [*defined, *copying, *place, self.acc, a, b, *turn, *entry, loop, *done, *self.joined()]

    def joined(self) -> list[Stmt]:
        """All sets of accumulators summed into the first."""
        out: list[Stmt] = []
        for i in range(self.leaf.fm):
            for j in range(self.leaf.fn):
                total: Expr = self.acc.at(0, i, j)
                for chain in range(1, self.leaf.chains):
                    total = add(total, self.acc.at(chain, i, j))
                if self.leaf.chains > 1:
                    out.append(RegSet(self.acc.at(0, i, j), total))
        return out

    def slot(self, step: Expr) -> Expr:
        """Number of the slot that holds ``step``: a step's number, or inside the loop the variable and a distance.

        A remainder by a power of two is a mask. For other depths the loop carries its slot, since a division by a
        constant is seven instructions, and three of them stood in every step.
        """
        depth = self.leaf.depth
        if isinstance(step, Const) or depth & (depth - 1) == 0:
            return mod(step, i32(depth))
        if step == Var("step"):
            return self.turn.at(0)
        return Var("slot_next") if step == add(Var("step"), i32(1)) else Var("slot_fill")

    def turning(self) -> tuple[list[Stmt], list[Stmt], list[Stmt]]:
        """Statements before the loop, at the start and at the end of its body, by which it carries its slot."""
        last = self.leaf.depth - 1
        if last & (last + 1) == 0:
            return [], [], []
        slot = self.turn.at(0)
        onward = Let("slot_next", select(call("eq", slot, i32(last)), i32(0), add(slot, i32(1))))
        before = Let("slot_fill", select(call("eq", slot, i32(0)), i32(last), sub(slot, i32(1))))
        return [self.turn], [onward, before], [RegSet(slot, onward.var)]

    def place(self, tile: SwizzledTile, row: Expr, col: Expr, row_at: int, col_at: int, name: str) -> tuple[str, int]:
        """(pointer, constant) to (row + row_at, col + col_at) of a tile's first slot.

        The pattern of a tile repeats every eight rows and every panel: multiples of these are the constant.
        """
        row_low, col_low = row_at % 8, col_at % tile.span
        label = f"{name}_{row_low}_{col_low}"
        if label not in self.pointers:
            at = tile.at(add(row, i32(row_low)), add(col, i32(col_low)))
            self.pointers[label] = View(label, tile.name, cast(at, DType.I64), tile.dtype)
        return label, (row_at - row_low) * tile.span + (col_at - col_low) * tile.rows

    # ---------------------------------------------------------------------------------------------- products

    def products(self, a: Fragments, b: Fragments, half: int, chain: int) -> list[Stmt]:
        """All atoms of the fragments in ``half``, onto one set of accumulators."""
        leaf, i, j = self.leaf, Var("i"), Var("j")
        product = Mma(leaf.atom, self.acc.at(chain, i, j), a.at(half, i), b.at(half, j))
        row = For("j", i32(0), i32(leaf.fn), i32(1), (product,), "full")
        return [For("i", i32(0), i32(leaf.fm), i32(1), (row,), "full")]

    def load_fragments(self, a: Fragments, b: Fragments, slot: Expr, kk: int) -> list[Stmt]:
        """The fragments of atom ``kk`` of a step: one ldmatrix an atom of a, one for two neighbouring atoms of b."""
        leaf, lane = self.leaf, Var("lane")
        half = kk % a.shape[0]
        out: list[Stmt] = []
        (a_side, b_side), (a_tile, b_tile) = self.sides, self.tiles

        def load(targets: tuple[Reg, ...], tile: SwizzledTile, place: tuple[str, int], trans: bool) -> LdMatrix:
            pointer, constant = place
            return LdMatrix(targets, pointer, add(mul(slot, i32(tile.elements)), i32(constant)), trans)

        first = mul(SLICE, i32(leaf.own_steps * self.atom.k)) if self.slices is not None else i32(0)
        row, col = matrix_rows(self.atom.layout("a"), lane, trans=not a_side.along_k)
        row, col = add(Var("warp_m"), row), add(col, first)
        for i in range(leaf.fm):
            place = self.matrix(a_side, a_tile, row, col, i * self.atom.m, kk * self.atom.k, "fa")
            out.append(load((a.at(half, i),), a_tile, place, not a_side.along_k))
        row, col = matrix_rows(self.atom.layout("b"), lane, trans=not b_side.along_k)
        row = add(row, first)
        for j in range(0, leaf.fn, 2):
            pair = j + 1 < leaf.fn
            across = add(Var("warp_n"), col)
            if pair:  # lanes 16 … 31 address the second atom
                across = add(across, mul(floordiv(lane, i32(16)), i32(self.atom.n)))
            tag = "fb" if pair else "fs"
            place = self.matrix(b_side, b_tile, across, row, j * self.atom.n, kk * self.atom.k, tag)
            targets = (b.at(half, j), b.at(half, j + 1)) if pair else (b.at(half, j),)
            out.append(load(targets, b_tile, place, not b_side.along_k))
        return out

    def matrix(
        self, side: Operand, tile: SwizzledTile, across: Expr, k: Expr, across_at: int, k_at: int, name: str
    ) -> tuple[str, int]:
        """Where the matrix row that a lane addresses lies: see ``place``."""
        if side.along_k:
            return self.place(tile, across, k, across_at, k_at, name)
        return self.place(tile, k, across, k_at, across_at, name)
