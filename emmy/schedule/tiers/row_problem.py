"""What row schedules depend on: a row program's sizes at the hints, and the resources that a leaf needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, evaluate_int, walk
from emmy.ir.nest import Region
from emmy.passes.lower.row_leaf import LATE_BYTES
from emmy.passes.lower.row_program import RowProgram, Sweep, late_loads, value_nodes
from emmy.schedule.tiers.base import Columns

RESIDENCIES = ("reg", "smem", "reread")
"""Codes of the residency column."""
REG, SMEM, REREAD = range(3)


@dataclass(frozen=True)
class RowProblem:
    """A row program and the numbers that schedules depend on, at the hints."""

    program: RowProgram

    @property
    def region(self) -> Region:
        return self.program.region

    @cached_property
    def rows(self) -> int:
        return evaluate_int(self.program.row_count(), self.region.hints())

    @cached_property
    def columns(self) -> int:
        """Columns of a row."""
        return evaluate_int(self.program.column_count(), self.region.hints())

    @cached_property
    def last(self) -> int:
        """Extent of the axis that neighbouring elements lie along."""
        axis = self.program.rows[-1] if self.program.across else self.program.columns[-1]
        return evaluate_int(axis.extent, self.region.hints())

    @cached_property
    def constant_last(self) -> bool:
        axis = self.program.rows[-1] if self.program.across else self.program.columns[-1]
        return isinstance(axis.extent, Const)

    @cached_property
    def fixed(self) -> bool:
        """Whether a row has one column axis of a size known at compile time."""
        return len(self.program.columns) == 1 and isinstance(self.program.columns[0].extent, Const)

    @cached_property
    def online(self) -> tuple[Sweep, ...]:
        return self.program.sweeps()

    @cached_property
    def phased(self) -> tuple[Sweep, ...]:
        return self.program.phased().sweeps(hold=True)

    @cached_property
    def held(self) -> int:
        """Arrays of a row that are held between sweeps."""
        return max((len(s.held) for s in self.phased), default=0)

    @cached_property
    def held_bytes(self) -> int:
        return max((e.dtype.compute.nbytes for s in self.phased for e in s.held), default=0)

    @cached_property
    def splits(self) -> bool:
        """Whether the reductions do not wait for each other, so that blocks can share a row."""
        return (
            not self.program.is_map
            and len(self.online) <= 2
            and all(not s.reductions for s in self.online[1:])
            and len(self.program.columns) == 1
        )

    @cached_property
    def plain(self) -> bool:
        """Whether the only output is one sum as it is, or an integer extreme: what atomics can join."""
        if len(self.program.reductions) != 1 or self.program.writes or len(self.program.row_writes) != 1:
            return False
        (reduction,), (write,) = self.program.reductions, self.program.row_writes
        dtype = write.tensor.dtype
        if write.value != reduction.result(0) or dtype != reduction.dtypes[0]:
            return False
        if reduction.monoid == "sum":
            return dtype in (DType.F32, DType.I32)
        return reduction.monoid in ("max", "min") and dtype == DType.I32

    @cached_property
    def compute_bytes(self) -> int:
        """Bytes of the widest value computed with; booleans are held as int32 masks."""
        dtypes = [d for r in self.program.reductions for d in r.dtypes]
        exprs = step_exprs(self.online) + [w.value for w in self.program.row_writes]
        dtypes += [n.dtype.compute for e in exprs for n in value_nodes(e)]
        return max((4 if d == DType.BOOL else d.nbytes for d in dtypes), default=4)

    @cached_property
    def storage_bytes(self) -> int:
        """Bytes of the narrowest element that varies along the columns."""
        found = [t.dtype.nbytes for t in self.region.inputs if t.shape]
        return min(found + [o.tensor.dtype.nbytes for o in self.region.outputs], default=4)

    @cached_property
    def tuple_width(self) -> int:
        """Components of all tuples that one sweep accumulates, at most."""
        return max((sum(r.algebra.arity for r in s.reductions) for s in (*self.online, *self.phased)), default=0)

    @cached_property
    def has_exp(self) -> bool:
        return self.exps(self.online) > 0

    def exps(self, sweeps: tuple[Sweep, ...]) -> int:
        """Exponentials an element."""
        return sum(1 for e in step_exprs(sweeps) for n in walk(e) if isinstance(n, Call) and n.fn == "exp")

    @cached_property
    def late_bytes(self) -> int:
        """Bytes a column that a GPU's thread reads ahead of the first reduction for later sweeps."""
        tensors = {t.name: t for t in self.region.inputs}
        return sum(tensors[load.tensor].dtype.nbytes for load in late_loads(self.phased, self.program.inner))

    def widest(self, caps: Capabilities) -> int:
        """Elements of one memory access at most: a CPU's arithmetic vector, or 16 bytes on a GPU."""
        if caps.warp > 1:
            return max(1, 16 // self.storage_bytes)
        return min(16, caps.vector_lanes(self.compute_bytes))

    def access(self, caps: Capabilities, vec: Any) -> Any:
        return np.minimum(vec, self.widest(caps))


def step_exprs(sweeps: tuple[Sweep, ...]) -> list[Expr]:
    out: list[Expr] = []
    for sweep in sweeps:
        for reduction in sweep.reductions:
            out += [*reduction.values, *reduction.algebra.combine]
        out += [w.value for w in sweep.writes]
    return out


def threads_a_block(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[Any]:
    if caps.warp == 1 or problem.program.is_map:
        return c["threads"]
    lanes = problem.access(caps, c["vec"]) if problem.program.across else 1
    return c["threads"] * np.maximum(c["rows"] // lanes, 1)


def registers(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[Any]:
    """Registers a thread needs: of vectors on a CPU, of 32 bits on a GPU."""
    access = problem.access(caps, c["vec"])
    slots = np.where(c["residency"] == REG, -(-problem.columns // (access * c["threads"])), 0) * problem.held
    accumulators = c["vec"] // access * problem.tuple_width
    working = 4 * np.ones_like(slots)
    if caps.warp == 1:
        return slots + accumulators + working
    words = max(1, problem.compute_bytes // 4)
    ahead = slots // max(problem.held, 1) * access * problem.late_bytes
    late = np.where(ahead <= LATE_BYTES, -(-ahead // 4), 0)
    return (slots + accumulators) * access * words + late + working * 6


def smem_bytes(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[Any]:
    """Shared memory of a block: rows kept there, and the tuples that threads exchange."""
    rows = c["rows"] if caps.warp > 1 else np.ones_like(c["rows"])
    row = -(-problem.columns * problem.held_bytes // 64) * 64 * problem.held
    kept = np.where(c["residency"] == SMEM, rows.astype(np.int64) * row, 0)
    sweeps = sum(_tuple_bytes(s) for s in problem.phased)
    online = sum(_tuple_bytes(s) for s in problem.online)
    each = np.where(c["residency"] == REREAD, online, sweeps)
    block = threads_a_block(problem, caps, c).astype(np.int64)
    exchanged = np.where(c["threads"] > 1, np.maximum(block * each, 16), 0)
    return kept + exchanged


def _tuple_bytes(sweep: Sweep) -> int:
    return sum(dtype.nbytes for r in sweep.reductions for dtype in r.dtypes)
