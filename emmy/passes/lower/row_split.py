"""A row shared by several blocks: each reduces its part; partial tuples are joined by a second kernel or by atomics.

Partial tuples lie in a workspace a component, ``[part][row]``. The finishing kernel merges a row's tuples in order of
the parts, so that the result does not depend on timing; where outputs walk the columns it does so in every block of the
row, each of which then writes its part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from emmy.ir.expr import Expr, Mem, Var, add, both, call, cast, ceil_div, i32, minimum, mul, sub
from emmy.ir.kernel import BY, TX, Atomic, For, Let, Stmt, Store
from emmy.ir.nest import Tensor
from emmy.passes.lower.row import ROW, RowKernel
from emmy.passes.lower.row_emit import Accumulator, Row, Step, assign, merged
from emmy.passes.lower.row_leaf import RowLeaf, Span
from emmy.passes.lower.row_program import Reduction, RowProgram, Sweep


@dataclass(frozen=True, slots=True)
class Partial:
    """The workspaces of one reduction, a tensor a component."""

    reduction: Reduction
    tensors: tuple[Tensor, ...]


def partials(program: RowProgram, parts: int) -> tuple[Partial, ...]:
    """The workspaces of all reductions."""
    elements = mul(program.row_count(), i32(parts))
    return tuple(
        Partial(r, tuple(Tensor(f"partial_{r.name}_{k}", (elements,), dtype) for k, dtype in enumerate(r.dtypes)))
        for r in program.reductions
    )


class SplitKernel(RowKernel):
    """What both kernels of a split have in common."""

    def __init__(self, program: RowProgram, leaf: RowLeaf, name: str, spaces: tuple[Partial, ...]) -> None:
        super().__init__(program, leaf, name, tuple(t for space in spaces for t in space.tensors))
        self.spaces = {space.reduction.name: space for space in spaces}

    def part(self, body: list[Stmt]) -> Span:
        """This block's share of the columns; shares start at whole steps."""
        extent, step = self.program.columns[-1].extent, self.leaf.threads * self.leaf.vec
        share = mul(ceil_div(ceil_div(extent, self.leaf.parts), step), i32(step))
        first = Let(self.names("first"), minimum(mul(BY, share), extent))
        count = Let(self.names("count"), minimum(sub(extent, first.var), share))
        body += [first, count]
        return Span(first.var, count.var)

    def first_sweep(self) -> Sweep:
        return self.program.sweeps()[0]

    def own(self, inside: Expr | None) -> Expr | None:
        """Guard of what one thread does for its row."""
        return both(inside, call("eq", TX, i32(0))) if self.leaf.threads > 1 else inside


class PartKernel(SplitKernel):
    """Reduces a part of each row, and writes what needs no result of a reduction."""

    def row_body(self, row: Row, inside: Expr | None) -> list[Stmt]:
        body: list[Stmt] = []
        span = self.part(body)
        body += self.sweep(row, self.first_sweep(), (), span, inside)
        place = add(mul(BY, self.program.row_count()), row.env[ROW])
        for reduction in self.program.reductions:
            for k, tensor in enumerate(self.spaces[reduction.name].tensors):
                value = row.env[reduction.result(k).name]
                body.append(Store(tensor.name, place, value, tensor.dtype, self.own(inside)))
        return body


class AtomicKernel(SplitKernel):
    """Reduces a part of each row and adds it to the output."""

    def row_body(self, row: Row, inside: Expr | None) -> list[Stmt]:
        body: list[Stmt] = []
        span = self.part(body)
        body += self.sweep(row, self.first_sweep(), (), span, inside)
        (write,) = self.program.row_writes
        (reduction,) = self.program.reductions
        step = Step(row, {}, 1)
        found = row.address(write.tensor.name, write.index, {})
        assert found is not None
        assert reduction.algebra.atomic is not None
        buffer, offset, _, _ = found
        value = cast(step.value(write.value), write.tensor.dtype.compute)
        body += [*row.head, *step.out]
        row.head = []
        op = reduction.algebra.atomic
        body.append(Atomic(op, buffer, offset, value, write.tensor.dtype, self.own(inside)))
        return body


class FinishKernel(SplitKernel):
    """Joins the parts of each row and writes what needs them."""

    def row_body(self, row: Row, inside: Expr | None) -> list[Stmt]:
        lanes = row.lanes
        part = Var(self.names("part"))
        joined = [Accumulator.of(r, self.names, "join", 1, lanes) for r in self.program.reductions]
        body: list[Stmt] = [array for accumulator in joined for array in accumulator.arrays]
        place = add(mul(part, self.program.row_count()), row.env[ROW])
        inner: list[Stmt] = []
        for accumulator in joined:
            tensors = self.spaces[accumulator.reduction.name].tensors
            values = [Let(self.names("share"), Mem(t.name, place, t.dtype, lanes)) for t in tensors]
            inner += values
            slot = accumulator.slot(0)
            inner += assign(slot, merged(accumulator.reduction, slot, [v.var for v in values]), self.names)
        body.append(For(part.name, i32(0), i32(self.leaf.parts), i32(1), tuple(inner)))
        for accumulator in joined:
            for k, reg in enumerate(accumulator.slot(0)):
                let = Let(self.names("joined"), reg)
                body.append(let)
                row.env[accumulator.reduction.result(k).name] = let.var
        rest = self.program.sweeps()[1:]
        if rest:
            span = self.part(body)
            for sweep in rest:
                body += self.sweep(row, sweep, (), span, inside)
        once = inside
        if rest:
            once = both(inside, call("eq", BY, i32(0)))
        return [*body, *self.row_writes(row, self.program.row_writes, once)]


def finish_leaf(program: RowProgram, leaf: RowLeaf) -> RowLeaf:
    """The finishing kernel's parameters: where no output walks the columns, a thread a row."""
    if len(program.sweeps()) > 1:
        return leaf
    rows = leaf.rows * leaf.threads if leaf.spread else leaf.rows
    return replace(leaf, threads=1, rows=rows)


def finish_grid(program: RowProgram, leaf: RowLeaf) -> Expr:
    """Blocks along y of the finishing kernel."""
    return i32(leaf.parts) if len(program.sweeps()) > 1 else i32(1)


__all__ = ["AtomicKernel", "FinishKernel", "PartKernel", "finish_grid", "finish_leaf", "partials"]
