"""A leaf of the warp tier, and what of a contraction decides how its tiles are staged: the operands and the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Load, Var, free_vars, i32
from emmy.ir.fragment import ATOMS, Atom
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Memory, gathers
from emmy.passes.lower.operand import Operand, operand
from emmy.passes.lower.tile import vector_fits
from emmy.passes.rewrite import loads_of

LATE_LANES = 4
"""Columns that a thread writes at a time where the epilogue is applied after turning (see ``stage_dtype``)."""


@dataclass(frozen=True, slots=True)
class WarpLeaf:
    """The parameters of one warp leaf: warps wm × wn, atoms a warp fm × fn, ``steps`` atoms a k step, ring, splits.

    how: what joins the parts of a split (k, a, c). min_blocks: blocks that a multiprocessor is to hold (a bound on
    registers); follows from the others. slices: sets of wm × wn warps that share out the atoms of a k step.
    """

    atom: str
    wm: int
    wn: int
    fm: int
    fn: int
    steps: int
    depth: int
    transport: str
    split: int = 1
    how: str = "k"
    group: int = 0
    min_blocks: int = 0
    slices: int = 1

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
    def finished_elsewhere(self) -> bool:
        return self.split > 1 and self.how != "c"

    @property
    def threads(self) -> int:
        return 32 * self.wm * self.wn * self.slices

    @property
    def own_steps(self) -> int:
        """Atoms of a k step that a warp multiplies."""
        return self.steps // self.slices

    @property
    def chains(self) -> int:
        return int(chains(self.fm, self.fn, self.own_steps))


@dataclass(frozen=True, slots=True)
class Rect:
    """Accumulator atoms of a warp: rows ``i`` and columns ``j`` of them."""

    i: range
    j: range

    @property
    def atoms(self) -> list[tuple[int, int]]:
        return [(i, j) for i in self.i for j in self.j]


def shares(fm: int, fn: int, ranks: int) -> list[Rect] | None:
    """A warp's atoms shared out over the blocks of a cluster: rows, or parts of a row; None where they do not come out
    even."""
    if fm % ranks == 0:
        each = fm // ranks
        return [Rect(range(rank * each, (rank + 1) * each), range(fn)) for rank in range(ranks)]
    parts = ranks // fm
    if ranks % fm or fn % parts:
        return None
    each = fn // parts
    return [
        Rect(range(rank // parts, rank // parts + 1), range(rank % parts * each, (rank % parts + 1) * each))
        for rank in range(ranks)
    ]


def chains(fm: Any, fn: Any, steps: Any) -> Any:
    """Accumulator sets that the atoms of a k step go to in turn, summed at the end.

    A product waits for the one before it on the same accumulators, some 33 cycles, in which a warp can issue four to
    eight others. A warp of fewer atoms takes as many sets as make eight, if the step has the atoms to share out.
    """
    return np.minimum(steps & -steps, np.maximum(1, 8 // (fm * fn)))


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
    lanes = LATE_LANES if late else 8
    for output, _, axes in problem.epilogue:
        reference = Load(output.tensor.name, tuple(Var(a) if a else i32(0) for a in axes), output.tensor.dtype)
        if not vector_fits(memory, reference, problem.n, lanes):
            return None
    return DType.F32 if late else tensors[0].dtype


def touched_ahead(problem: Contraction) -> list[Load]:
    """What an epilogue after turning reads (see ``stage_dtype``): a word of every sector is copied ahead of it.

    Each takes shared memory in rings of asynchronous copies (see emmy.passes.lower.prefetch.landing_bytes). What is
    held in registers from before the loop is not among them.
    """
    if stage_dtype(problem) != DType.F32:
        return []
    memory = Memory.of(problem.region)
    reads = loads_of(tuple(expr for _, expr, _ in problem.epilogue if expr is not None))
    own = problem.comp.name
    return [x for x in reads if x.tensor.split(".")[0] != own and not of_columns(problem, memory, x, LATE_LANES)]


def of_columns(problem: Contraction, memory: Memory, load: Load, lanes: int) -> bool:
    """Whether ``load`` depends on the column and not on the row (a bias), inside its tensor, in whole vectors of
    ``lanes``."""
    used = {name for index in load.index for name in free_vars(index)}
    if problem.n.name not in used or problem.m.name in used or gathers(load):
        return False
    return memory.stays_inside(load) and vector_fits(memory, load, problem.n, lanes)


def _two_axes(problem: Contraction, memory: Memory, expr: Expr | None) -> bool:
    """Whether the epilogue reads an element of its own for every cell."""
    names = {problem.m.name, problem.n.name}
    own = problem.comp.name
    return expr is not None and any(
        load.tensor.split(".")[0] != own and names <= {n for i in load.index for n in free_vars(i)}
        for load in loads_of((expr,))
    )
