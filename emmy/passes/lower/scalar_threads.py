"""The threads of a scalar block: the leaf they realise, and which rows and columns of a tile each one holds."""

from __future__ import annotations

from dataclasses import dataclass

from emmy.ir.expr import Expr, Var, add, i32, minimum, mul, sub
from emmy.ir.kernel import TX, TY
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Point
from emmy.passes.lower.staging import THREAD_X, THREAD_Y
from emmy.passes.lower.tile import TileLowering


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
    def finished_elsewhere(self) -> bool:
        return self.split > 1 and self.how != "c"

    @property
    def threads(self) -> int:
        return self.n * self.m * self.slices


class ScalarThreads(TileLowering):
    """Where a thread stands in its block and in the tile."""

    def __init__(self, problem: Contraction, leaf: ScalarLeaf, name: str) -> None:
        super().__init__(problem, leaf, name)
        self.leaf = leaf
        self.warped = bool(leaf.depth) and not leaf.cpu and leaf.n % 8 == 0 and leaf.m % 4 == 0
        self.spread = 0
        """On a GPU, neighbouring rows that a thread reads as one vector; its next rows are a block's threads away."""
        self.x, self.y = (THREAD_X, THREAD_Y) if self.warped else (TX, TY)

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
