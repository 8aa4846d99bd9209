"""A split k axis summed inside a cluster: blocks of one tile hand each other parts of their sums.

Every block of the cluster has partial sums of the same tile, cell by cell in the same threads' registers. The cells of
a thread are shared out over the ranks, so many a rank. A block sends the cells of every other rank to that block's
shared memory, waits for the cluster once, and adds what it was sent to its own cells: neither a workspace nor a second
kernel, and each sum is made in one order, so that results do not change from run to run. What a thread receives lies
``threads`` vectors apart: accesses of a warp are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Mem, Var, add, call, i32, mul, select, sub
from emmy.ir.kernel import TID, ClusterBarrier, If, Let, PeerStore, Shared, Stmt

PART = Var("part", DType.I32)
"""A block's rank in the cluster, which is its part of the k axis."""
NAME = "peers"


@dataclass(frozen=True, slots=True)
class Exchange:
    """``ranks`` blocks of ``threads`` threads; a thread's cells are vectors of ``lanes`` float32, ``each`` a rank."""

    ranks: int
    threads: int
    lanes: int
    each: int

    @property
    def begin(self) -> Stmt:
        """Stands at the start of a kernel: the block's shared memory may be written by its peers from here on."""
        return ClusterBarrier("arrive")

    def shared(self) -> Shared:
        return Shared(NAME, DType.F32, (self.ranks - 1) * self.each * self.threads * self.lanes)

    def send(self, cells: Sequence[Sequence[Expr]], able: Expr | None = None) -> list[Stmt]:
        """Sends ``cells[rank]``, the vectors that belong to a rank, and waits until everyone has what it was sent.

        able: which threads have cells (the first ones); None: all.
        """
        out: list[Stmt] = [ClusterBarrier("wait")]
        for rank, values in enumerate(cells):
            # a block keeps no place for itself
            slot = Let(f"peer_slot{rank}", select(call("gt", PART, i32(rank)), sub(PART, i32(1)), PART))
            stores = [
                PeerStore(NAME, self._at(slot.var, number), i32(rank), value, DType.F32, aligned=self.lanes > 1)
                for number, value in enumerate(values)
            ]
            other = call("ne", PART, i32(rank))
            out.append(If(other if able is None else call("and", other, able), (slot, *stores)))
        return [*out, ClusterBarrier("sync")]

    def received(self, number: int) -> list[Mem]:
        """What the others sent for the block's own cell ``number``, in the order of their ranks."""
        return [
            Mem(NAME, self._at(i32(slot), number), DType.F32, self.lanes, aligned=self.lanes > 1)
            for slot in range(self.ranks - 1)
        ]

    def of_rank(self, rank: int, body: Sequence[Stmt], able: Expr | None = None) -> Stmt:
        """``body`` in the block of that rank alone."""
        mine = call("eq", PART, i32(rank))
        return If(mine if able is None else call("and", mine, able), tuple(body))

    def _at(self, slot: Expr, number: int) -> Expr:
        vector = add(mul(add(mul(slot, i32(self.each)), i32(number)), i32(self.threads)), TID)
        return mul(vector, i32(self.lanes))
