"""A block's k steps shared out over slices of its threads: every slice sums its part of each step for the whole tile.

A small tile has too few threads to keep a multiprocessor busy, and cutting k over more blocks costs traffic between
them. The slices' sums meet in shared memory: all but the first hand theirs over, cell by cell in the same places, and
the first goes on alone. Vectors of a warp are contiguous; a sum is made in one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Mem, Var, add, call, floordiv, i32, mod, mul, sub
from emmy.ir.kernel import TID, Barrier, If, Let, Shared, Stmt, Store

SLICE = Var("slice", DType.I32)
NAME = "slices"


@dataclass(frozen=True, slots=True)
class Slices:
    """``count`` slices of ``threads`` threads; a thread's fragment is ``cells`` vectors of ``lanes`` of ``dtype``."""

    count: int
    threads: int
    cells: int
    lanes: int
    dtype: DType

    def place(self) -> Let:
        """The slice of a thread, by its name."""
        return Let(SLICE.name, floordiv(TID, i32(self.threads)))

    def shared(self) -> Shared:
        return Shared(NAME, self.dtype, (self.count - 1) * self.cells * self.threads * self.lanes)

    def hand_over(self, cells: Sequence[Expr]) -> list[Stmt]:
        """Statements by which all slices but the first store ``cells``; after them everyone may read."""
        slot = sub(SLICE, i32(1))
        stores = [
            Store(NAME, self._at(slot, number), value, self.dtype, aligned=self.lanes > 1)
            for number, value in enumerate(cells)
        ]
        return [If(call("gt", SLICE, i32(0)), tuple(stores)), Barrier()]

    def handed(self, number: int) -> list[Mem]:
        """What the other slices stored for cell ``number``, in their order."""
        return [
            Mem(NAME, self._at(i32(slot), number), self.dtype, self.lanes, aligned=self.lanes > 1)
            for slot in range(self.count - 1)
        ]

    @property
    def first(self) -> Expr:
        """Whether a thread is of the slice that goes on."""
        return call("eq", SLICE, i32(0))

    def _at(self, slot: Expr, number: int) -> Expr:
        own = mod(TID, i32(self.threads))
        vector = add(mul(add(mul(slot, i32(self.cells)), i32(number)), i32(self.threads)), own)
        return mul(vector, i32(self.lanes))
