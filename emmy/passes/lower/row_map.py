"""Lowering a pure map: a block takes ``rows`` steps of ``threads * vec`` neighbouring elements.

Steps are counted through all rows, so that neither short rows nor few long ones leave a device idle; a row's last step
takes what is left of it.
"""

from __future__ import annotations

from emmy.ir.expr import Const, Expr, Var, add, ceil_div, floordiv, i32, lt, minimum, mod, mul
from emmy.ir.kernel import BX, TX, For, If, Let, Stmt
from emmy.passes.lower.row import RowKernel
from emmy.passes.lower.row_emit import Row, Step, loop
from emmy.passes.lower.row_program import Write


class MapKernel(RowKernel):
    """The kernel of a row program without reductions."""

    @property
    def step_elements(self) -> int:
        return self.leaf.threads * self.leaf.vec

    @property
    def block(self) -> tuple[int, int]:
        """Threads of a block: those of a step. Rows are steps here, taken one after the other."""
        return (self.leaf.threads, 1)

    def steps_a_row(self) -> Expr:
        return ceil_div(self.program.columns[-1].extent, self.step_elements)

    def step_count(self) -> Expr:
        return mul(self.program.row_count(), self.steps_a_row())

    def grid_rows(self) -> Expr:
        return ceil_div(self.step_count(), self.leaf.rows)

    def body(self) -> list[Stmt]:
        leaf, count = self.leaf, self.step_count()
        first = mul(BX, i32(leaf.rows))
        whole = isinstance(count, Const) and count.value % leaf.rows == 0
        index = Var(self.names("step"))
        if leaf.rows == 1:
            return [Let(index.name, first), *self.step(index)]
        end = add(first, i32(leaf.rows))
        stop = Let(self.names("end"), end if whole else minimum(end, count))
        return [stop, For(index.name, first, stop.var, i32(1), tuple(self.step(index)))]

    def step(self, index: Expr) -> list[Stmt]:
        """The elements of one step."""
        steps = self.steps_a_row()
        out: list[Stmt] = []
        over, piece = index, index
        if isinstance(steps, Const) and steps.value == 1:
            piece = i32(0)
        elif self.program.rows:
            row_let = Let(self.names("row"), floordiv(index, steps))
            out.append(row_let)
            over, piece = row_let.var, mod(index, steps)
        row = self.row(over)
        start: Expr = i32(0)
        if not isinstance(piece, Const):
            start_let = Let(self.names("start"), mul(piece, i32(self.step_elements)))
            out.append(start_let)
            start = start_let.var
        writes = self.write_list(row)
        extent = self.program.columns[-1].extent
        full = self.accesses(row, writes, start)
        end = add(start, i32(self.step_elements))
        if isinstance(extent, Const) and extent.value % self.step_elements == 0:
            body = full
        else:
            partial = self.partial(row, writes, start, extent)
            inside = lt(extent, end)
            body = partial if inside == Const(True, inside.dtype) else [If(inside, tuple(partial), tuple(full))]
            if isinstance(inside, Const) and not inside.value:
                body = full
        return [*out, *row.head, *body]

    def write_list(self, row: Row) -> list[Write]:
        """The writes of every element, what they share along the row computed once."""
        return [Write(w.tensor, w.index, row.hoisted(w.value)) for w in self.program.writes]

    def element(self, row: Row, writes: list[Write], column: Expr, lanes: int) -> list[Stmt]:
        step = Step(row, {self.program.columns[-1].name: column}, lanes)
        for write in writes:
            step.store(write)
        return step.out

    def accesses(self, row: Row, writes: list[Write], start: Expr) -> list[Stmt]:
        """A whole step: every thread's accesses, a block's worth apart."""
        leaf = self.leaf
        thread = mul(TX, i32(leaf.access)) if leaf.threads > 1 else i32(0)
        out: list[Stmt] = []
        for slot in range(leaf.slots):
            column = add(add(start, thread), i32(slot * leaf.threads * leaf.access))
            out += self.element(row, writes, column, leaf.access)
        return out

    def partial(self, row: Row, writes: list[Write], start: Expr, extent: Expr) -> list[Stmt]:
        """A row's last step: whole accesses while they fit, then single elements."""
        leaf = self.leaf
        out: list[Stmt] = []
        last = extent
        if leaf.access > 1:
            last = self.floor(extent, leaf.access, out)
            column = Var(self.names("column"))
            first = add(start, mul(TX, i32(leaf.access))) if leaf.threads > 1 else start
            body = self.element(row, writes, column, leaf.access)
            out += loop(column, first, last, i32(leaf.threads * leaf.access), body)
            if isinstance(extent, Const) and last == extent:
                return out
            start = last
        column = Var(self.names("column"))
        first = add(start, TX) if leaf.threads > 1 else start
        out += loop(column, first, extent, i32(leaf.threads), self.element(row, writes, column, 1))
        return out
