"""The cell tier: any one computation, an output cell at a time, on every device and for every type.

TILE ``n{threads}x1/f{cells}x1`` without a k step: threads a block, neighbouring cells a thread. Cells of a thread form
vectors along the innermost output axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Load, evaluate_int, free_vars, walk
from emmy.ir.nest import Region
from emmy.ir.plan import Plan
from emmy.passes.lower.access import affine, flat_offset
from emmy.passes.lower.cell import CellProgram, cell_program, lower_cell
from emmy.passes.lower.row_program import value_nodes
from emmy.schedule.knobs import OFF, KnobKey, KnobMap, KnobValue, ScalarTile
from emmy.schedule.tiers.base import Columns, Rule, Tier, concat, product, rule


@dataclass(frozen=True)
class CellProblem:
    """A cell program and the numbers that schedules depend on, at the hints."""

    program: CellProgram

    @property
    def region(self) -> Region:
        return self.program.region

    @cached_property
    def inner(self) -> int:
        """Cells along the innermost output axis."""
        return evaluate_int(self.program.columns[-1].extent, self.region.hints())

    @cached_property
    def rows(self) -> int:
        return evaluate_int(self.program.row_count(), self.region.hints())

    @cached_property
    def reduced(self) -> int:
        """Elements reduced into a cell; 1 for a map."""
        total = 1
        for axis in self.program.reduce:
            total *= evaluate_int(axis.extent, self.region.hints())
        return total

    @cached_property
    def compute_bytes(self) -> int:
        """Bytes of the widest value computed with; booleans are held as int32 masks."""
        dtypes = [d for r in self.program.reductions for d in r.dtypes]
        exprs = [v for r in self.program.reductions for v in r.values] + [w.value for w in self.program.writes]
        dtypes += [n.dtype.compute for e in exprs for n in value_nodes(e)]
        return max((4 if d == DType.BOOL else d.nbytes for d in dtypes), default=4)

    @cached_property
    def storage_bytes(self) -> int:
        return min(t.dtype.nbytes for t in (*self.region.inputs, *(o.tensor for o in self.region.outputs)))

    def widest(self, caps: Capabilities) -> int:
        """Cells of a vector at most."""
        if caps.warp > 1:
            return max(1, 16 // self.storage_bytes)
        return min(16, caps.vector_lanes(self.compute_bytes))

    def access(self, caps: Capabilities, cells: Any) -> Any:
        """Cells of a vector: the largest power of two that divides a thread's cells, up to the widest."""
        cells = np.asarray(cells)
        return np.minimum(cells & -cells, self.widest(caps))

    @cached_property
    def strides(self) -> tuple[int, int, int, float]:
        """Accesses per element with stride one, zero and any other along the innermost axis; bytes an element."""
        program = self.program
        axis = program.columns[-1].name
        tensors = {t.name: t for t in self.region.inputs}
        exprs = [v for r in program.reductions for v in r.values] + [w.value for w in program.writes]
        loads = {n for e in exprs for n in walk(e) if isinstance(n, Load)}
        one = zero = other = 0
        nbytes = 0.0
        for load in loads:
            parts = affine(flat_offset(tensors[load.tensor], load.index), frozenset((axis,)))
            stride = parts[1].get(axis, Const(0)) if parts else None
            nbytes += tensors[load.tensor].dtype.nbytes if any(free_vars(i) for i in load.index) else 0.0
            if isinstance(stride, Const) and stride.value in (0, 1):
                one, zero = (one + 1, zero) if stride.value else (one, zero + 1)
            else:
                other += 1
        return one, zero, other, nbytes

    @cached_property
    def exps(self) -> int:
        exprs = [v for r in self.program.reductions for v in (*r.values, *r.algebra.combine)]
        exprs += [w.value for w in self.program.writes]
        return sum(1 for e in exprs for n in walk(e) if isinstance(n, Call) and n.fn == "exp")


@rule("threads_fit")
def _threads_fit(problem: CellProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """As many threads a block as the device takes, at most."""
    return c["n"] <= caps.max_threads


@rule("step_within_row", policy=True)
def _step_within(problem: CellProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Threads and cells that overhang a row of cells by less than a whole step: more would only idle."""
    step = c["n"].astype(np.int64) * c["fn"]
    return (step < 2 * max(problem.inner, 1)) | (step == 1)


@rule("registers_fit")
def _registers_fit(problem: CellProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """The cells' values within the registers of a thread."""
    return registers(problem, caps, c) <= caps.registers


@rule("cells_at_most_32_vectors")
def _vectors(problem: CellProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """At most 32 vectors a thread."""
    return c["fn"] // problem.access(caps, c["fn"]) <= 32


def registers(problem: CellProblem, caps: Capabilities, c: Columns) -> NDArray[Any]:
    """Registers a thread needs: of vectors on a CPU, of 32 bits on a GPU."""
    access = problem.access(caps, c["fn"])
    arity = sum(len(r.dtypes) for r in problem.program.reductions)
    vectors = c["fn"] // access * arity + 4
    return vectors if caps.warp == 1 else vectors * access * max(1, problem.compute_bytes // 4) + 16


class CellTier(Tier):
    """One computation, cell by cell; knob TILE."""

    name: ClassVar[str] = "cell"
    rules: ClassVar[tuple[Rule, ...]] = (_threads_fit, _step_within, _registers_fit, _vectors)

    def match(self, region: Region, caps: Capabilities) -> CellProblem:
        problem = CellProblem(cell_program(region))
        if problem.compute_bytes == 8 and not caps.fp64 and _has_f64(problem.program):
            raise Refused("device_has_fp64", found=f"{caps.name} has none", expected="float32 or narrower")
        return problem

    def grid(self, problem: CellProblem, caps: Capabilities, fast_math: bool) -> Columns:
        if caps.warp == 1:
            return product(n=(1, 4, 16, 64, 256), fn=(1, 2, 4, 8, 16, 32, 64, 128))
        widest = problem.widest(caps)
        cells = {max(widest // 2, 1), widest, 2 * widest} - {1}
        return concat([product(n=(64, 128, 256, 512), fn=sorted(cells)), product(n=(1, 8, 32, 128, 256), fn=(1,))])

    def knobs(self, problem: CellProblem, columns: Columns, row: int) -> KnobMap:
        values: dict[str, KnobValue] = {
            "FUSE": OFF, "TILE": ScalarTile(int(columns["n"][row]), 1, int(columns["fn"][row]), 1), "REDUCE": OFF,
            "STAGE": OFF, "WSPEC": OFF, "RASTER": OFF,
        }  # fmt: skip
        return KnobMap(tuple((KnobKey.parse(name), value) for name, value in values.items()))

    def read(self, problem: CellProblem, knobs: KnobMap) -> Columns:
        tile = knobs.get("TILE")
        if not isinstance(tile, ScalarTile) or tile.k is not None or (tile.m, tile.fm) != (1, 1):
            raise Refused("cell_tile", found=f"TILE={tile}", expected="a cell tile: n64x1/f8x1, without a k step")
        for family in ("FUSE", "REDUCE", "STAGE", "WSPEC", "RASTER", "FAST_EXP"):
            if knobs.get(family, OFF) != OFF:
                raise Refused("cell_families", found=f"{family}={knobs[family]}", expected=f"{family} off")
        return {"n": np.array([tile.n], dtype=np.int32), "fn": np.array([tile.fn], dtype=np.int32)}

    def labels(self, problem: CellProblem, columns: Columns) -> Mapping[str, NDArray[np.int64]]:
        return {"cta": columns["n"].astype(np.int64), "warp": columns["fn"].astype(np.int64)}

    def features(self, problem: CellProblem, caps: Capabilities, columns: Columns) -> dict[str, NDArray[np.float64]]:
        c = {name: column.astype(np.float64) for name, column in columns.items()}
        access = problem.access(caps, columns["fn"]).astype(np.float64)
        step = c["n"] * c["fn"]
        blocks = np.maximum(np.ceil(max(problem.inner, 1) / step) * problem.rows, 1.0)
        waves = blocks / caps.units
        one, zero, other, nbytes = problem.strides
        accesses = max(one + zero + other, 1)
        need = registers(problem, caps, columns).astype(np.float64)
        cells = float(problem.rows * problem.inner)
        written = sum(o.tensor.dtype.nbytes for o in problem.region.outputs)
        fewest = sum(
            evaluate_int(t.elements(), problem.region.hints()) * t.dtype.nbytes
            for t in (*problem.region.inputs, *(o.tensor for o in problem.region.outputs))
        )
        total = cells * (nbytes * problem.reduced + written)
        per_access = np.where(access > 1, (one + zero + other * access) / accesses, 1.0)
        return {
            "threads": c["n"],
            "blocks": blocks,
            "waves": waves,
            "tail_units": 1.0 - waves / np.ceil(waves),
            "tail_n": 1.0 - problem.inner / np.maximum(np.ceil(problem.inner / step) * step, 1.0),
            "vector_share": access / problem.widest(caps),
            "fragment": c["fn"] / access,
            "registers": need,
            "spill": np.maximum(need - caps.registers, 0.0),
            "block_bytes": step * (nbytes * problem.reduced + written),
            "traffic": np.full_like(waves, total / max(fewest, 1)),
            "work_thread": c["fn"] * problem.reduced,
            "exp_elements": np.full_like(waves, problem.exps),
            "unit_stride": np.full_like(waves, one / accesses),
            "bytes_total": np.full_like(waves, total),
            "gathers": per_access,
            "launches": np.ones_like(waves),
        }

    def lower(self, problem: CellProblem, caps: Capabilities, columns: Columns) -> Plan:
        refusal = self.refuse(problem, caps, columns)
        if refusal is not None:
            raise refusal
        threads, cells = int(columns["n"][0]), int(columns["fn"][0])
        access = int(problem.access(caps, cells))
        knobs = str(self.knobs(problem, columns, 0))
        return lower_cell(problem.program, threads, cells, access, problem.region.name, knobs)


def _has_f64(program: CellProgram) -> bool:
    exprs = [v for r in program.reductions for v in r.values] + [w.value for w in program.writes]
    return any(n.dtype == DType.F64 for e in exprs for n in walk(e))


__all__ = ["CellProblem", "CellTier"]
