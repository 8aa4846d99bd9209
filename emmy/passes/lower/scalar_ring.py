"""A scalar tile's k loop over a shared-memory ring: what a slot holds, how it is filled, and the products out of it.

On a GPU a ring's tile is shared out so that few shared-memory accesses feed many products. The lanes of a warp are four
rows by eight columns of threads, numbered as ``warp_places`` says. The a tile is k-major where its elements are 32 bits
wide, and a thread's rows are fours ``(y + i * m) * 4``, each read as one vector. 16-bit elements stay in rows along k,
since cp.async moves no single one; a thread's rows are then ``y + i * m``: the four rows that a warp reads at once lie
one padded row apart, in different banks.

A step's products go through the fragment in a serpentine, along its shorter side. What a product reads is three
registers, and a register file gives two a cycle, one even and one odd; the third has to be what the product before
read. In this order, and with few registers alive beside the accumulators, the compiler's allocation comes close: on one
NVIDIA H200 the loop's share of cycles that issue an FFMA rises from 0.61 to 0.74 (2048³, 2026-11-30; cuBLAS 0.79).
With the first reads of a slot before the last products of the one before, cuBLAS's time is reached (337 and 341 us).
"""

from __future__ import annotations

from dataclasses import replace

from emmy.ir.expr import Expr, Lane, Mem, Var, add, cast, ceil_div, i32, mul, sub
from emmy.ir.kernel import For, Let, RegArray, RegSet, Stmt, View
from emmy.ir.nest import Axis
from emmy.ir.pipeline import Acquire, Commit, Fill, Release, Ring, Wait
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Point, wide
from emmy.passes.lower.scalar_threads import ScalarLeaf, ScalarThreads
from emmy.passes.lower.slices import SLICE
from emmy.passes.lower.staging import PAD, Share, StagedTile, fill, share, staged_dtype, staged_tile
from emmy.passes.lower.tile import loads_of


class ScalarRing(ScalarThreads):
    """Tiles through a ring."""

    def __init__(self, problem: Contraction, leaf: ScalarLeaf, name: str) -> None:
        super().__init__(problem, leaf, name)
        self.tiles = self.operand_tiles() if leaf.depth else None
        self.alone = bool(leaf.depth) and not leaf.cpu
        """Whether accumulators are registers of their own, and not vectors along n."""
        if self.tiles is not None and not leaf.cpu:
            self.spread = min(leaf.fm & -leaf.fm, 4) if self.tiles[0].k_major else 1

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
        body += self.overlapped(acc, tiles, slots, step, out) or [
            *self.slot_loop(acc, tiles, slots),
            Release("ring", step),
        ]
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

    def overlapped(
        self, acc: RegArray, tiles: tuple[StagedTile, StagedTile], slots: list[Let], step: Expr, out: list[Stmt]
    ) -> list[Stmt]:
        """The products of a slot, each k's factors read into registers (declared in ``out``) while the k before is
        multiplied. The slot is released before the last products, which cover the wait for the next slot and the first
        reads from it: with one block of eight warps a multiprocessor nothing else does. Empty where that does not
        apply."""
        leaf = self.leaf
        own = leaf.k // leaf.slices
        if leaf.cpu or leaf.depth < 2 or not 1 < own <= 16 or not tiles[0].k_major:
            return []
        first: Expr = mul(SLICE, i32(own)) if leaf.slices > 1 else i32(0)
        width = min(leaf.fm & -leaf.fm, 4)
        a = RegArray("a_now", self.dtype, (leaf.fm // width,), width)
        b = RegArray("b_now", self.dtype, (leaf.fn // leaf.lanes,), leaf.lanes)
        out += [a, b]

        places = [*(a.at(n) for n in range(leaf.fm // width)), *(b.at(n) for n in range(leaf.fn // leaf.lanes))]

        def read(k: Expr, tag: str) -> list[Let]:
            """What reads the factors at ``k``, in the order of ``places``."""
            lets: list[Stmt] = []
            self.rows(tiles[0], slots[0], k, tag, lets)
            self.columns(tiles[1], slots[1], k, tag, lets)
            return [let for let in lets if isinstance(let, Let)]

        def products(factors: list[Expr]) -> list[Stmt]:
            """Of one k. factors: as ``places``."""
            rows, columns = factors[: leaf.fm // width], factors[leaf.fm // width :]
            singles = [Lane(row, lane) if width > 1 else row for row in rows for lane in range(width)]
            return self.serpentine(acc, singles, columns)

        entry = [RegSet(place, let.value) for place, let in zip(places, read(first, ""), strict=True)]
        ahead = read(add(add(first, Var("kk")), i32(1)), "_next")
        onward = [RegSet(place, let.var) for place, let in zip(places, ahead, strict=True)]
        middle = For("kk", i32(0), i32(own - 1), i32(1), (*ahead, *products([*places]), *onward), "hint")
        last = [Let(f"factor_{n}", place) for n, place in enumerate(places)]
        return [*entry, middle, *last, Release("ring", step), *products([let.var for let in last])]

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
