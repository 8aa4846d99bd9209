"""Fills of a ring of operand tiles: which thread copies what of a k step, through cp.async or through registers."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Mem, Var, add, both, call, cast, i32, mul, select, sub
from emmy.ir.kernel import TID, If, Let, Stmt, Store, View
from emmy.ir.nest import Axis
from emmy.ir.pipeline import Copy
from emmy.passes.lower.access import Memory, Point, wide
from emmy.passes.lower.operand import Operand, SwizzledTile, parts
from emmy.passes.lower.tile import TileLeaf, loads_of, with_aligned


class FilledLeaf(TileLeaf, Protocol):
    """What fills read of a leaf."""

    @property
    def threads(self) -> int: ...
    @property
    def transport(self) -> str: ...


class Filled(Protocol):
    """The lowering whose ring is filled: its operands, their tiles, and names bound before the loop."""

    sides: tuple[Operand, Operand]
    tiles: tuple[SwizzledTile, SwizzledTile]
    memory: Memory
    m: Axis
    k: Axis

    @property
    def leaf(self) -> FilledLeaf: ...
    def divides(self, axis: Axis, size: int) -> bool: ...
    def whole_steps(self) -> int | None: ...
    def let(self, name: str, value: Expr) -> Expr: ...
    def slot(self, step: Expr) -> Expr: ...
    def place(
        self, tile: SwizzledTile, row: Expr, col: Expr, row_at: int, col_at: int, name: str
    ) -> tuple[str, int]: ...


class Filler:
    """Emits the fills of one kernel: the copies of both operands' tiles for a step, each thread its parts."""

    def __init__(self, lowering: Filled, env: dict[str, Expr], start: Expr, stop: Expr, steps: Expr) -> None:
        self.low, self.leaf, self.env = lowering, lowering.leaf, env
        self.start, self.stop, self.steps = start, stop, steps
        self.views: list[Stmt] = []
        self.opened: set[str] = set()
        self.whole = lowering.whole_steps() is not None

    def fill(self, step: Expr, tag: str) -> tuple[list[Stmt], list[Stmt]]:
        """(statements that begin the fill of ``step``, statements that end it). Beyond the last step, zeros.

        Asynchronous copies have no second part. Synchronous ones load into registers first, and store at the end.
        """
        low = self.low
        begin: list[Stmt] = []
        end: list[Stmt] = []
        k_at = mul(step, i32(self.leaf.k))
        if not isinstance(k_at, Const):
            named = Let(f"k_at{tag}", k_at)
            begin.append(named)
            k_at = named.var
        if self.whole:
            inside: Expr | None = call("lt", step, self.steps)
            k_left: Expr | None = None
            if isinstance(inside, Const) and inside.value:
                inside = None
        else:
            left = Let(f"k_left{tag}", sub(sub(self.stop, self.start), k_at))
            begin.append(left)
            inside, k_left = None, left.var
        for side, tile in zip(low.sides, low.tiles, strict=True):
            base = mul(low.slot(step), i32(tile.elements))
            first, last = self.side(side, tile, base, k_at, inside, k_left, tag)
            begin += first
            end += last
        return begin, end

    def side(
        self, side: Operand, tile: SwizzledTile, slot: Expr, k_at: Expr, inside: Expr | None, k_left: Expr | None,
        tag: str,
    ) -> tuple[list[Stmt], list[Stmt]]:  # fmt: skip
        """One operand's tile. Elements beyond an edge become zero, the identity of the sum."""
        low = self.low
        origin, size = ("m0", self.leaf.block_m) if side.across is low.m else ("n0", self.leaf.block_n)
        left = None
        if not low.divides(side.across, size):
            left = low.let(f"{tile.name}_left", sub(side.across.extent, Var(origin)))
        begin: list[Stmt] = []
        end: list[Stmt] = []
        seen: dict[tuple[Expr, Expr], int] = {}
        for number, part in enumerate(parts(tile, self.leaf.threads, side.lanes)):
            group = seen.setdefault((part.row, part.col), len(seen))
            row = low.let(f"{tile.name}_row{group}", part.row)
            col = low.let(f"{tile.name}_col{group}", part.col)
            across, k = (row, col) if side.along_k else (col, row)
            across_at, k_part = (part.row_at, part.col_at) if side.along_k else (part.col_at, part.row_at)
            begin += self.open(side, f"{tile.name}{group}", add(Var(origin), across), add(self.start, k), k_at, tag)
            guard = inside
            if left is not None:
                guard = both(guard, call("lt", add(across, i32(across_at)), left))
            if k_left is not None:
                guard = both(guard, call("lt", add(k, i32(k_part)), k_left))
            full = {**self.env, side.across.name: add(add(Var(origin), across), i32(across_at))}
            full[low.k.name] = add(add(add(self.start, k_at), k), i32(k_part))
            local: dict[str, Expr] = dict.fromkeys(self.env, i32(0))
            local |= {side.across.name: i32(across_at), low.k.name: i32(k_part)}
            pointer, constant = low.place(tile, part.row, part.col, part.row_at, part.col_at, f"{tile.name}_to{group}")
            where = add(slot, i32(constant))
            mine = None if part.whole else call("lt", TID, i32(part.total - part.number))
            if self.leaf.transport == "sync":
                guard = both(mine, guard)
            first, last = self.copy(side, pointer, where, Point(full, local=local), guard, f"{tile.name}{tag}_{number}")
            if mine is not None and last:  # a value is held by all threads, and stored by those that have a chunk
                last = [If(mine, tuple(last))]
            elif mine is not None:
                first = [If(mine, tuple(first))]
            begin += first
            end += last
        return begin, end

    def open(self, side: Operand, tag: str, across: Expr, k: Expr, k_at: Expr, step_tag: str) -> list[View]:
        """Pointers to the first element that a thread copies, in the first step and in this one.

        A step's other elements are read at constant distances from the second.
        """
        loads = [side.load] if side.load is not None else loads_of(side.factor)
        block = {**self.env, side.across.name: across, self.low.k.name: k}
        memory = self.low.memory
        out: list[View] = []
        for number, load in enumerate(dict.fromkeys(loads)):
            view = memory.view(f"p{tag}_{number}", load, block)
            if view is None:
                continue
            if view.name not in self.opened:
                self.opened.add(view.name)
                self.views.append(view)
            _, strides = memory.views[load]
            distance = mul(wide(k_at), wide(strides.get(self.low.k.name, i32(0))))
            now = View(f"{view.name}_at{step_tag}", view.name, distance, view.dtype)
            memory.views[load] = (now.name, strides)
            if now.name not in self.opened:
                self.opened.add(now.name)
                out.append(now)
        return out

    def copy(
        self, side: Operand, pointer: str, where: Expr, point: Point, guard: Expr | None, tag: str
    ) -> tuple[list[Stmt], list[Stmt]]:
        """One vector from memory to the tile."""
        memory = self.low.memory
        if side.load is not None:
            source = memory.mem(side.load, point, side.lanes)
            offset = wide(source.offset) if memory.big else source.offset
            if self.leaf.transport == "async":
                return [Copy(pointer, where, source.buffer, offset, side.lanes, side.dtype, guard, "async")], []
            value: Expr = Mem(source.buffer, offset, side.dtype, side.lanes, guard, 0, side.lanes > 1)
        else:
            at = point.guarded(guard)
            if side.lanes > 1:
                at = replace(at, axis=side.inner(self.low.k).name, lanes=side.lanes)
            value = cast(memory.value(side.factor, at), DType.F32)
            if guard is not None:
                value = select(guard, value, Const(0.0, DType.F32))
            # the lanes were chosen so that every vector of the factor's tensors is aligned
            value = with_aligned(value, side.lanes, lambda _: True)
        let = Let(f"v{tag}", value)
        return [let], [Store(pointer, where, let.var, side.dtype, aligned=side.lanes > 1)]
