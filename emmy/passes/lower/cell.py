"""Lowering one computation cell by cell: plain loops over the reduce axes, vectors along the innermost output axis.

A block covers ``n * f`` neighbouring cells of one output row (all axes but the innermost); a thread computes ``f`` of
them, as vectors of ``access`` cells. Any element type, rank and stride: what does not lie side by side is gathered lane
by lane. An axis that a component of the monoid carries counts as an output axis; the components without it are then
computed once a cell, and written by the cells at its start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from emmy.errors import Refused
from emmy.ir.expr import Expr, Load, Var, add, both, call, i32, mul, transform
from emmy.ir.kernel import TX, For, Let, Stmt
from emmy.ir.nest import Axis, Comp, Region, Tensor
from emmy.ir.plan import Plan
from emmy.passes.lower.row_emit import Accumulator, Row, Step, accumulate
from emmy.passes.lower.row_leaf import RowLeaf
from emmy.passes.lower.row_map import MapKernel
from emmy.passes.lower.row_plan import launch, make_plan
from emmy.passes.lower.row_program import Reduction, RowProgram, Write, unit_strides, without_inner_maps
from emmy.passes.rewrite import base, component


@dataclass(frozen=True, slots=True)
class CellProgram(RowProgram):
    """At most one reduction and the maps of its result, over output axes: ``rows``, and last in ``columns``.

    The other columns are the reduce axes. carried: output axes that only some components have.
    """

    carried: tuple[Axis, ...] = ()

    @property
    def inner(self) -> frozenset[str]:
        results = (r.result(k).name for r in self.reductions for k in range(len(r.dtypes)))
        return frozenset(axis.name for axis in self.columns) | frozenset(results)

    @property
    def reduce(self) -> tuple[Axis, ...]:
        return self.columns[:-1]


def cell_program(region: Region) -> CellProgram:
    """The region as cells. Raises Refused for several reductions, or maps of one over other axes."""
    region = without_inner_maps(region)
    reduced = [comp for comp in region.comps if not comp.is_map]
    if len(reduced) > 1:
        raise Refused("one_reduction_a_cell", found=", ".join(c.name for c in reduced), expected="one computation")
    first = reduced[0] if reduced else region.comps[0]
    axes = (*first.axes, *first.carried)
    writes = tuple(_write(region, first, out.tensor, out.source) for out in region.outputs)
    reductions = tuple(Reduction(c.name, c.monoid or "", c.body, c.dtype) for c in reduced)
    values = [value for r in reductions for value in r.values]
    score = unit_strides(region, axes, values, writes)
    innermost = max(reversed(axes), key=lambda a: score[a.name], default=Axis("unit", i32(1)))
    rows = tuple(axis for axis in axes if axis != innermost)
    columns = (*first.reduce, innermost)
    return CellProgram(region, rows, columns, first.reduce, reductions, writes, (), False, first.carried)


def _write(region: Region, first: Comp, tensor: Tensor, source: str) -> Write:
    comp = region.comp(source)
    axes = (*first.axes, *first.carried)
    if comp is first and not comp.is_map:
        k = component(source)
        own = axes if comp.algebra().carried[k] else first.axes
        value: Expr = _result(first, k)
        return Write(tensor, tuple(axis.var for axis in own), value)
    names = _names(first, comp)

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return names.get(node.name)
        if isinstance(node, Load) and not first.is_map and base(node.tensor) == first.name:
            return _result(first, component(node.tensor))
        return None

    index = tuple(names[axis.name] for axis in comp.axes)
    return Write(tensor, index, transform(comp.body[0], rule))


def _result(comp: Comp, k: int) -> Var:
    return Var(f"{comp.name}.{k}", comp.algebra().component_dtypes(comp.dtype)[k])


def _names(first: Comp, comp: Comp) -> dict[str, Expr]:
    """The axis of ``first`` that each axis of map ``comp`` stands for."""
    axes = (*first.axes, *first.carried)
    found: dict[str, Axis] = {}
    reads = [load for load in comp.loads() if base(load.tensor) == first.name] if comp is not first else []
    for load in reads:
        for index, axis in zip(load.index, axes, strict=False):
            if not isinstance(index, Var) or found.setdefault(index.name, axis) != axis:
                raise Refused("epilogue_over_same_cells", found=f"{comp.name} reads {load.tensor} at other cells")
    left = [axis for axis in axes if axis not in found.values()]
    for axis in comp.axes:
        if axis.name not in found:
            same = next((a for a in left if a.name == axis.name), next(iter(left), None))
            if same is None:
                raise Refused("epilogue_over_same_cells", found=f"{comp.name} has more axes than {first.name}")
            found[axis.name] = same
            left.remove(same)
    extents = {axis.name: axis.extent for axis in comp.axes}
    if len(found) != len(axes) or any(extents.get(name) != axis.extent for name, axis in found.items()):
        raise Refused("epilogue_over_same_cells", found=f"{comp.name} has other cells than {first.name}")
    return {name: axis.var for name, axis in found.items()}


class CellKernel(MapKernel):
    """The kernel of a cell program."""

    def write_list(self, row: Row) -> list[Write]:
        return list(self.program.writes)

    def accesses(self, row: Row, writes: list[Write], start: Expr) -> list[Stmt]:
        leaf = self.leaf
        thread = mul(TX, i32(leaf.access)) if leaf.threads > 1 else i32(0)
        columns = [add(add(start, thread), i32(n * leaf.threads * leaf.access)) for n in range(leaf.slots)]
        return self.cells(row, writes, columns, leaf.access)

    def element(self, row: Row, writes: list[Write], column: Expr, lanes: int) -> list[Stmt]:
        return self.cells(row, writes, [column], lanes)

    def cells(self, row: Row, writes: list[Write], columns: list[Expr], lanes: int) -> list[Stmt]:
        """Vectors of cells at ``columns``, their reductions in one loop nest."""
        program = self.program
        assert isinstance(program, CellProgram)
        inner = program.columns[-1].name
        found: dict[int, dict[str, Expr]] = {n: {inner: column} for n, column in enumerate(columns)}
        body: list[Stmt] = []
        for reduction in program.reductions:
            hoisted = replace(reduction, values=tuple(row.hoisted(v) for v in reduction.values))
            accumulator = Accumulator.of(hoisted, self.names, "acc", len(columns), lanes)
            body += accumulator.arrays
            loops = {axis.name: Var(self.names(f"{axis.name}_at")) for axis in program.reduce}
            nest: list[Stmt] = []
            for slot, column in enumerate(columns):
                step = Step(row, {inner: column, **loops}, lanes)
                accumulate(step, accumulator, slot)
                nest += step.out
            for axis in reversed(program.reduce):
                nest = [For(loops[axis.name].name, i32(0), axis.extent, i32(1), tuple(nest))]
            body += nest
            for slot in found:
                for k, reg in enumerate(accumulator.slot(slot)):
                    let = Let(self.names("cell"), reg)
                    body.append(let)
                    found[slot][reduction.result(k).name] = let.var
        for slot, env in found.items():
            step = Step(row, env, lanes)
            for write in writes:
                self.write(step, write, columns[slot])
            body += step.out
        return body

    def write(self, step: Step, write: Write, column: Expr) -> None:
        """Stores a vector of cells; a component that lacks a carried axis is stored once, by the cells at its start."""
        program = self.program
        assert isinstance(program, CellProgram)
        missing = [axis for axis in program.carried if axis.var not in write.index]
        if not missing:
            step.store(write)
            return
        guard: Expr | None = None
        lanes = step.lanes
        for axis in missing:
            if axis == program.columns[-1]:
                guard, lanes = both(guard, call("eq", column, i32(0))), 1
            else:
                guard = both(guard, call("eq", step.row.env[axis.name], i32(0)))
        step.store(write, guard, lanes)


def lower_cell(program: CellProgram, threads: int, cells: int, access: int, name: str, knobs: str) -> Plan:
    """The plan of a leaf: ``threads`` a block, ``cells`` a thread, in vectors of ``access``."""
    leaf = RowLeaf(1, cells, access, "reread", threads)
    kernel = CellKernel(program, leaf, name)
    return make_plan(program, name, knobs, (launch(kernel.kernel(), kernel.grid_rows()),))
