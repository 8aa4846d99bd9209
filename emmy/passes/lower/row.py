"""Lowering a row program: a block handles a few rows, the threads of a row share its columns.

A thread takes ``vec`` elements a step, as ``vec / access`` accesses of the widest vector the device has; each access
feeds an accumulator tuple of its own, which hides the latency of the additions. Whole vectors come first, then single
elements; what is left of a row is never padded. On a CPU the rows of a block follow each other in one thread; on a GPU
each has threads of its own.

Where a row stays between sweeps (``reg``, ``smem``), monoids of several components are reduced in phases: walking the
row again costs no memory traffic, and a maximum followed by a sum of exponentials needs one exponential an element.
From memory (``reread``) the online form halves the traffic instead. Every thread walks the same elements in every
sweep, so what it keeps in shared memory is its own and needs no barrier.

On a GPU, a thread that keeps its part of a row in registers reads what later sweeps need of other tensors (a weight)
before the first reduction, whose barrier would otherwise hold those loads back.
"""

from __future__ import annotations

from collections.abc import Callable

from emmy.ir.expr import (
    Const,
    Expr,
    Load,
    Mem,
    Var,
    add,
    both,
    call,
    ceil_div,
    evaluate_int,
    floordiv,
    i32,
    lt,
    minimum,
    mod,
    mul,
    sub,
)
from emmy.ir.kernel import (
    BX,
    TX,
    TY,
    BufferParam,
    Combine,
    For,
    If,
    Kernel,
    Let,
    RegArray,
    RegSet,
    ScalarParam,
    Shared,
    Stmt,
    Store,
)
from emmy.ir.nest import Tensor
from emmy.passes.lower.access import Memory
from emmy.passes.lower.row_emit import (
    Accumulator,
    Names,
    Row,
    Step,
    accumulate,
    across_lanes,
    assign,
    buffers,
    clean,
    folded,
    is_multiple,
    loop,
    merged,
)
from emmy.passes.lower.row_leaf import LATE_BYTES, RowLeaf, Span
from emmy.passes.lower.row_program import Reduction, RowProgram, Sweep, Write, late_loads

ROW = "row number."
"""The variable of a row's environment that holds its number."""


class RowKernel:
    """One kernel that walks whole rows. Kernels that share a row between blocks replace ``row_body``."""

    def __init__(self, program: RowProgram, leaf: RowLeaf, name: str, extra: tuple[Tensor, ...] = ()) -> None:
        program = program.shared_out()
        if leaf.residency != "reread":
            program = program.phased()
        self.program = (program.fast() if leaf.fast_exp else program).smooth()
        self.leaf, self.name = leaf, name
        self.memory = Memory.of(program.region, extra)
        self.memory.extents |= {a.name: a.extent for a in (*program.rows, *program.columns)}
        self.names = Names(program.region)
        for tensor in extra:
            self.names.taken.add(tensor.name)
        self.shared: list[Shared] = []
        self.width = leaf.access
        self.resident: dict[Expr, RegArray | str] = {}
        self.pool: list[RegArray | str] = []
        self.ahead: dict[tuple[Load, Expr], Expr] = {}

    # --------------------------------------------------------------------------------------------- whole kernel

    def body(self) -> list[Stmt]:
        return self.each_row(self.row_body)

    @property
    def block(self) -> tuple[int, int]:
        """Threads of a block: those of a row, by rows (or vectors of rows) with threads of their own."""
        leaf = self.leaf
        return (leaf.threads, leaf.rows // (leaf.access if self.program.across else 1) if leaf.spread else 1)

    def kernel(self, reads: tuple[str, ...] = (), writes: tuple[str, ...] = ()) -> Kernel:
        """The kernel; ``reads`` and ``writes`` are workspaces."""
        body = self.body()
        used = buffers(body)
        region = self.program.region
        params = [BufferParam(t.name, t.dtype) for t in region.inputs if t.name in used]
        params += [BufferParam(n, self.memory.tensors[n].dtype) for n in reads]
        params += [BufferParam(n, self.memory.tensors[n].dtype, writable=True) for n in writes]
        outputs = [o.tensor for o in region.outputs if o.tensor.name in used]
        params += [BufferParam(t.name, t.dtype, writable=True) for t in outputs]
        scalars = tuple(ScalarParam(s.name) for s in region.symbols)
        return Kernel(self.name, (*params, *scalars), self.block, tuple(body), tuple(self.shared))

    def grid_rows(self) -> Expr:
        return ceil_div(self.program.row_count(), self.leaf.rows)

    def each_row(self, body: Callable[[Row, Expr | None], list[Stmt]]) -> list[Stmt]:
        """``body`` for every row of the block; it gets the row and a guard for its writes."""
        leaf, count = self.leaf, self.program.row_count()
        if self.program.across:
            return self.each_vector(body)
        first = mul(BX, i32(leaf.rows))
        whole = is_multiple(count, leaf.rows)
        index = Var(self.names("row"))
        if leaf.rows == 1:
            return [Let(index.name, first), *body(self.row(index), None)]
        if leaf.spread:
            at = add(first, TY)
            if whole:
                return [Let(index.name, at), *body(self.row(index), None)]
            # threads of rows beyond the last one take part in barriers: they compute that row and write nothing
            inside = Let(self.names("inside"), lt(at, count))
            return [inside, Let(index.name, minimum(at, sub(count, i32(1)))), *body(self.row(index), inside.var)]
        end = add(first, i32(leaf.rows))
        stop = Let(self.names("end"), end if whole else minimum(end, count))
        return [stop, For(index.name, first, stop.var, i32(1), tuple(body(self.row(index), None)))]

    def each_vector(self, body: Callable[[Row, Expr | None], list[Stmt]]) -> list[Stmt]:
        """``body`` for vectors of neighbouring rows; the rows that fill no vector one by one."""
        leaf, count, lanes = self.leaf, self.program.row_count(), self.width
        first = mul(BX, i32(leaf.rows))
        index = Var(self.names("row"))
        inner = body(self.row(index), None)
        last = self.program.rows[-1].extent
        if lanes > 1 and not is_multiple(last, lanes):
            single = Var(self.names("row"))
            self.width = 1
            alone = [For(single.name, index, minimum(add(index, i32(lanes)), count), i32(1),
                         tuple(body(self.row(single), None)))]  # fmt: skip
            self.width = lanes
            inner = [If(call("le", add(self.lane_of(index), i32(lanes)), last), tuple(inner), tuple(alone))]
        whole = is_multiple(count, leaf.rows)
        if leaf.spread:
            place = Let(index.name, add(first, mul(TY, i32(lanes))) if leaf.rows > lanes else first)
            return [place, *inner] if whole else [place, If(lt(index, count), tuple(inner))]
        if leaf.rows == lanes:
            return [Let(index.name, first), *inner]
        end = add(first, i32(leaf.rows))
        stop = Let(self.names("end"), end if whole else minimum(end, count))
        return [stop, For(index.name, first, stop.var, i32(lanes), tuple(inner))]

    def lane_of(self, index: Expr) -> Expr:
        """The coordinate along the vector axis of row number ``index``."""
        return mod(index, self.program.rows[-1].extent) if len(self.program.rows) > 1 else index

    def row(self, index: Expr) -> Row:
        """The row numbered ``index``; its coordinates are named at the head of its statements."""
        env: dict[str, Expr] = {ROW: index}
        head: list[Stmt] = []
        rest = index
        rows = self.program.rows
        for place in range(len(rows) - 1, -1, -1):
            axis = rows[place]
            if place == 0:
                env[axis.name] = rest
                break
            let = Let(self.names(f"{axis.name}_at"), mod(rest, axis.extent))
            over = Let(self.names(f"{axis.name}_over"), floordiv(rest, axis.extent))
            head += [let, over]
            env[axis.name], rest = let.var, over.var
        vector = rows[-1].name if self.program.across else ""
        lanes = self.width if self.program.across else 1
        straddles = len(rows) > 1 and not is_multiple(rows[-1].extent, self.width)
        aligned = 1 if vector and straddles else self.width
        return Row(self.program, self.memory, self.names, env, head, vector, lanes, aligned=aligned)

    # ------------------------------------------------------------------------------------------------- a row

    def row_body(self, row: Row, inside: Expr | None) -> list[Stmt]:
        """All sweeps over one row, then the values that a row has one of."""
        hold = self.leaf.residency != "reread"
        body: list[Stmt] = []
        span = Span(i32(0), self.program.columns[-1].extent)
        before: tuple[Expr, ...] = ()
        sweeps = self.program.sweeps(hold)
        late = self.late(sweeps)
        for sweep in sweeps:
            body += self.sweep(row, sweep, before, span, inside, late=late)
            before, late = sweep.held, ()
        body += self.row_writes(row, self.program.row_writes, inside)
        return body

    def late(self, sweeps: tuple[Sweep, ...]) -> tuple[Load, ...]:
        """The loads that the first sweep makes for later ones."""
        leaf = self.leaf
        if leaf.residency != "reg" or not leaf.spread:
            return ()
        loads = late_loads(sweeps, self.program.inner)
        per_thread, rest = divmod(int(evaluate_int(self.program.columns[-1].extent, {})), leaf.access * leaf.threads)
        nbytes = sum(self.memory.tensors[load.tensor].dtype.nbytes for load in loads)
        return () if rest or per_thread * leaf.access * nbytes > LATE_BYTES else loads

    def sweep(
        self, row: Row, sweep: Sweep, before: tuple[Expr, ...], span: Span, inside: Expr | None, finish: bool = True,
        late: tuple[Load, ...] = (),
    ) -> list[Stmt]:  # fmt: skip
        """The loops of one sweep and the results of its reductions (bound in ``row``); ``late``: loads made ahead."""
        body: list[Stmt] = []
        reductions = [
            Reduction(r.name, r.monoid, tuple(row.hoisted(v) for v in r.values), r.dtype) for r in sweep.reductions
        ]
        writes = [Write(w.tensor, w.index, row.hoisted(w.value)) for w in sweep.writes]
        held = [row.hoisted(e) for e in sweep.held]
        old = {row.hoisted(e): self.resident[e] for e in before}
        known = len(self.pool)
        places = self.places(sweep.held, before)
        body += [place for place in self.pool[known:] if isinstance(place, RegArray)]
        new = {h: places[e] for h, e in zip(held, sweep.held, strict=True)}
        ragged = not self.divides()
        blank = self.fills(span)
        wide = [Accumulator.of(r, self.names, "acc", self.leaf.slots, self.width, blank) for r in reductions]
        touched: set[int] = set()
        tail = [Accumulator.of(r, self.names, "rest", 1, 1) for r in reductions] if ragged else []
        for accumulator in (*wide, *tail):
            body += accumulator.arrays

        def element(column: Expr, lanes: int, slot: int, number: Expr) -> list[Stmt]:
            ahead = {load: value for (load, at), value in self.ahead.items() if at == number}
            step = Step(row, {**outer, self.program.columns[-1].name: column}, lanes, ahead=ahead)
            kept: list[Stmt] = []
            for load in late:
                fetched = step.fetch(load)
                if fetched is not None:
                    self.ahead[load, number] = fetched
            for expr, place in old.items():
                step.know(expr, self.held_value(place, number, lanes, step))
            for expr, place in new.items():
                if expr in old:
                    continue
                value = step.named("held", step.value(expr))
                kept.append(self.keep(place, number, value, lanes))
                step.know(expr, value)
            for accumulator in tail if lanes < row_lanes else wide:
                accumulate(step, accumulator, slot, blank and slot not in touched)
            touched.add(slot)
            for write in writes:
                step.store(write, inside)
            # what replaces an older value is kept only when nothing reads that one any more
            return step.out + kept

        row_lanes = self.width
        outer: dict[str, Expr] = {}
        loops: list[tuple[str, Expr]] = []
        for axis in self.program.columns[:-1]:
            name = self.names(axis.name)
            outer[axis.name] = Var(name)
            loops.append((name, axis.extent))
        inner = self.columns(span, element)
        for name, extent in reversed(loops):
            inner = [For(name, i32(0), extent, i32(1), tuple(inner))]
        body = [*row.head, *body, *inner]
        row.head = []
        for number, accumulator in enumerate(wide):
            values = folded(accumulator, self.leaf.slots, self.names, body)
            if not self.program.across:
                values = across_lanes(accumulator.reduction, values, self.names, body)
            if tail:
                values = merged(accumulator.reduction, values, tail[number].slot(0))
            if finish:
                self.result(row, accumulator.reduction, values, body)
            else:
                for k, value in enumerate(values):
                    row.bind(accumulator.reduction.result(k).name, value)
        return body

    def fills(self, span: Span) -> bool:
        """Whether a thread's walk is spelled out and gives every accumulator an element."""
        leaf = self.leaf
        if len(self.program.columns) > 1 or not isinstance(span.count, Const) or not self.divides():
            return False
        step = leaf.threads * (1 if self.program.across else self.width)
        if leaf.residency == "reg":
            return int(span.count.value) // step >= leaf.slots
        return span.count.value == step * leaf.slots

    def divides(self) -> bool:
        """Whether a row is whole accesses."""
        extent = self.program.columns[-1].extent
        return self.program.across or is_multiple(extent, self.width)

    def columns(self, span: Span, element: Callable[[Expr, int, int, Expr], list[Stmt]]) -> list[Stmt]:
        """Loops over the span: steps of whole vectors, then vectors, then single elements.

        ``element(column, lanes, slot, number)`` makes one access; ``number`` counts a thread's accesses.
        """
        leaf = self.leaf
        if leaf.residency == "reg":
            return self.unrolled(span, element)
        width = self.width
        lanes = 1 if self.program.across else width
        stride = leaf.threads * lanes
        big = stride * leaf.slots
        out: list[Stmt] = []

        def at(base: Expr) -> Expr:
            return add(span.start, base)

        thread = mul(TX, i32(lanes)) if leaf.threads > 1 else i32(0)
        if self.fills(span):
            for slot in range(leaf.slots):
                offset = add(thread, i32(slot * stride))
                out += element(at(offset), width, slot, offset)
            return out
        whole = self.floor(span.count, big, out)
        vectors = self.floor(span.count, lanes, out)
        column = Var(self.names("column"))
        body: list[Stmt] = []
        for slot in range(leaf.slots):
            offset = add(column, i32(slot * stride))
            body += element(at(offset), width, slot, offset)
        out += loop(column, thread, whole, i32(big), body)
        if big > lanes and whole != vectors:
            column = Var(self.names("column"))
            out += loop(column, add(whole, thread), vectors, i32(stride), element(at(column), width, 0, column))
        if lanes > 1 and not self.divides():
            column = Var(self.names("column"))
            body = element(at(column), 1, 0, column)
            start = add(vectors, TX) if leaf.threads > 1 else vectors
            out += loop(column, start, span.count, i32(leaf.threads), body)
        return out

    def floor(self, count: Expr, size: int, out: list[Stmt]) -> Expr:
        """The largest multiple of ``size`` that is at most ``count``."""
        value = mul(floordiv(count, i32(size)), i32(size)) if size > 1 else count
        if isinstance(value, Const | Var):
            return value
        let = Let(self.names("whole"), value)
        out.append(let)
        return let.var

    def unrolled(self, span: Span, element: Callable[[Expr, int, int, Expr], list[Stmt]]) -> list[Stmt]:
        """Every access of a thread spelled out, so that registers have constant indices."""
        leaf = self.leaf
        assert isinstance(span.count, Const)
        accesses = int(span.count.value) // leaf.access
        out: list[Stmt] = []
        for number in range(-(-accesses // leaf.threads)):
            place = add(TX, i32(number * leaf.threads)) if leaf.threads > 1 else i32(number)
            body = element(mul(place, i32(leaf.access)), leaf.access, number % leaf.slots, i32(number))
            if (number + 1) * leaf.threads <= accesses:
                out += body
            else:
                out.append(If(lt(place, i32(accesses)), tuple(body)))
        return out

    # --------------------------------------------------------------------------------------------- residency

    def places(self, held: tuple[Expr, ...], before: tuple[Expr, ...]) -> dict[Expr, RegArray | str]:
        """Where each held expression lives; one that replaces another takes its place, element by element."""
        free = [self.resident[e] for e in before if e not in held]
        free += [place for place in self.pool if place not in self.resident.values()]
        out: dict[Expr, RegArray | str] = {}
        for expr in held:
            out[expr] = self.resident[expr] if expr in before else (free.pop(0) if free else self.place(expr))
        self.resident = out
        return out

    def place(self, expr: Expr) -> RegArray | str:
        leaf, dtype = self.leaf, expr.dtype.compute
        count = int(evaluate_int(self.program.columns[-1].extent, {}))
        made: RegArray | str
        if leaf.residency == "reg":
            slots = -(-(count // leaf.access) // leaf.threads)
            made = RegArray(self.names("kept"), dtype, (slots,), leaf.access)
        else:
            made = self.names("kept")
            rows = leaf.rows if leaf.spread else 1
            self.shared.append(Shared(made, dtype, count * rows, align=64))
        self.pool.append(made)
        return made

    def held_value(self, place: RegArray | str, number: Expr, lanes: int, step: Step) -> Expr:
        if isinstance(place, RegArray):
            return place.at(number)
        dtype = next(s.dtype for s in self.shared if s.name == place)
        return step.named("held", Mem(place, self.slot(number), dtype, lanes, aligned=self.even(lanes)))

    def keep(self, place: RegArray | str, number: Expr, value: Expr, lanes: int) -> Stmt:
        if isinstance(place, RegArray):
            return RegSet(place.at(number), value)
        dtype = next(s.dtype for s in self.shared if s.name == place)
        return Store(place, self.slot(number), value, dtype, aligned=self.even(lanes))

    def slot(self, number: Expr) -> Expr:
        """Offset of a column in the kept row: rows of a block follow each other."""
        if self.leaf.spread and self.leaf.rows > 1:
            return add(mul(TY, self.program.columns[-1].extent), number)
        return number

    def even(self, lanes: int) -> bool:
        return lanes > 1 and (self.divides() or not (self.leaf.spread and self.leaf.rows > 1))

    # --------------------------------------------------------------------------------------------- endings

    def result(self, row: Row, reduction: Reduction, values: tuple[Expr, ...], body: list[Stmt]) -> None:
        """Combines the threads of a row and names the results."""
        leaf = self.leaf
        if leaf.threads > 1:
            arrays = [
                RegArray(self.names(clean(f"joint_{reduction.name}.{k}")), dtype, (1,))
                for k, dtype in enumerate(reduction.dtypes)
            ]
            body += arrays
            regs = tuple(array.at(0) for array in arrays)
            body += assign(regs, values, self.names)
            scratch = []
            for array in arrays:
                shared = Shared(self.names(f"{array.name}_shared"), array.dtype, leaf.threads * self.block[1])
                self.shared.append(shared)
                scratch.append(shared.name)
            body.append(Combine(reduction.monoid, regs, leaf.threads, tuple(scratch)))
            values = regs
        for k, value in enumerate(values):
            let = Let(self.names(clean(reduction.result(k).name)), value)
            body.append(let)
            row.bind(reduction.result(k).name, let.var)

    def row_writes(self, row: Row, writes: tuple[Write, ...], inside: Expr | None) -> list[Stmt]:
        """Outputs with one value a row, by the row's first thread."""
        if not writes:
            return []
        lanes = row.lanes if row.vector else 1
        step = Step(row, {}, lanes)
        guard = both(inside, call("eq", TX, i32(0))) if self.leaf.threads > 1 else inside
        for write in writes:
            step.store(write, guard)
        body = [*row.head, *step.out]
        row.head = []
        return body
