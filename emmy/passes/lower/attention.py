"""Lowering a fused attention: a block of query rows walks over blocks of keys with a running (m, l, O).

Threads form n × m; a thread owns ``fm`` query rows. For each block of ``bk`` keys: scores of ``fq`` keys a thread at a
time, their block maximum over the n threads, the factor by which the older part shrinks, the weights (in shared memory,
keys by rows), then ``fp`` columns of the output a thread at a time. On a CPU one thread runs a block, and the rows are
the lanes of its vectors: maximum, total and rescaling need no exchange between lanes, keys and values are scalars.

The running tuple is the monoid ``online_attention`` taken block by block. Weights are computed against the new maximum
at once, so that the block's own factor is one; a maximum of minus infinity (nothing seen yet) counts as zero there, so
that the factors are ``exp(-inf) = 0`` and never ``exp(-inf + inf)``. A row that is masked throughout ends as 0 / 0.

Blocks of keys that the causal mask lets through whole are looped over without mask and tail; a second loop does the
rest, and stops at the last key that any row of the block may see.
"""

from __future__ import annotations

from dataclasses import replace

from emmy.ir.dtype import DType
from emmy.ir.expr import (
    Const,
    Expr,
    Lane,
    Load,
    Mem,
    Pack,
    Splat,
    Var,
    add,
    both,
    call,
    cast,
    ceil_div,
    floordiv,
    i32,
    is_const,
    lt,
    minimum,
    mul,
    sub,
)
from emmy.ir.kernel import (
    TX,
    BufferParam,
    Combine,
    For,
    Kernel,
    Let,
    RegArray,
    ScalarParam,
    Shared,
    Stmt,
    Store,
)
from emmy.ir.nest import Axis
from emmy.ir.plan import Launch, Plan
from emmy.passes.attention_parts import Attention
from emmy.passes.lower.access import Point
from emmy.passes.lower.attention_block import AttentionBlock
from emmy.passes.lower.attention_leaf import AttentionLeaf, pitches, shared_elements
from emmy.passes.lower.tile import region_bytes
from emmy.passes.rewrite import base, loads_of


def lower_attention(problem: Attention, leaf: AttentionLeaf, name: str, knobs: str) -> Plan:
    """The plan of a leaf: one kernel, a block a tile of query rows of one head."""
    return _Lowering(problem, leaf, name).plan(knobs)


class _Lowering(AttentionBlock):
    # ------------------------------------------------------------------------------------------------- plan

    def plan(self, knobs: str) -> Plan:
        region, p = self.p.region, self.p
        outer, m, n, d, c = p.sizes
        kernel = self.kernel()
        blocks: Expr = ceil_div(p.m.extent, self.leaf.rows)
        for axis in p.outer:
            blocks = mul(blocks, axis.extent)
        tensors = (*region.inputs, *(out.tensor for out in region.outputs))
        launch = Launch(kernel, (blocks, i32(1), i32(1)), tuple(param.name for param in kernel.params))
        return Plan(
            self.name, region.symbols, region.inputs, tuple(out.tensor for out in region.outputs), (), (launch,), knobs,
            flops=int(2 * outer * m * n * p.visible) * (d + c),
            bytes_min=sum(region_bytes(tensor, region) for tensor in tensors),
        )  # fmt: skip

    def kernel(self) -> Kernel:
        p, leaf = self.p, self.leaf
        body: list[Stmt] = self.block_lets()
        block = {p.m.name: Var("m0"), p.n.name: i32(0), p.d.name: i32(0), p.c.name: i32(0)}
        for stem, expr in (("q", p.q), ("k", p.k), ("v", p.v)):
            for number, load in enumerate(loads_of((expr,))):
                view = self.memory.view(f"{stem}{number}_p", load, block)
                if view is not None:
                    body.append(view)
        body += self.fill_queries()
        body += [self.top, self.total]
        body += [self.result] if self.in_registers else self.clear_result()
        body += self.barrier()
        body += self.walk_keys()
        body += self.finish()
        reads = [x.tensor for x in loads_of((p.q, p.k, p.v, p.x, *(e.body for e in p.epilogues)))]
        names = dict.fromkeys(t for t in reads if t in self.memory.tensors and base(t) != p.comp.name)
        params: list[BufferParam | ScalarParam] = [BufferParam(t, self.memory.tensors[t].dtype) for t in names]
        params += [BufferParam(e.output.tensor.name, e.output.tensor.dtype, writable=True) for e in p.epilogues]
        params += [ScalarParam(symbol.name) for symbol in p.region.symbols]
        arrays = shared_elements(leaf, self.depth, self.columns)
        shared = tuple(Shared(stem, DType.F32, size, 64) for stem, size in arrays.items())
        return Kernel(self.name, tuple(params), (leaf.n, leaf.m), tuple(body), shared)

    # ---------------------------------------------------------------------------------------------- prologue

    def fill_queries(self) -> list[Stmt]:
        """``queries[d][row]``: the transposed tile of query rows; rows beyond the end are zero."""

        def write(row: Expr, d: Expr) -> list[Stmt]:
            at = self.point(row=row, d=d)
            if not self.rows_divide():
                at = at.guarded(lt(at.env[self.p.m.name], self.p.m.extent))
            value = cast(self.memory.value(self.p.q, at), DType.F32)
            return [Store("queries", add(mul(d, i32(self.leaf.rows)), row), value, DType.F32)]

        return self.shared_copy(self.leaf.rows, self.depth, 1, write)

    def clear_result(self) -> list[Stmt]:
        zero: Expr = Const(0.0, DType.F32)
        value = zero if self.leaf.lanes == 1 else Splat(zero, self.leaf.lanes)
        return self.column_loop(lambda column, j: [
            self.keep("result", self.across(column, j), i, value) for i in range(self.leaf.vectors)
        ])  # fmt: skip

    def column_loop(self, write: object) -> list[Stmt]:
        """``write(first column of the pass, j)`` for each of this thread's columns."""
        assert callable(write)
        step = self.leaf.n * self.leaf.fp
        if self.column_passes == 1:
            return [stmt for j in range(self.leaf.fp) for stmt in write(i32(0), j)]
        inner = tuple(stmt for j in range(self.leaf.fp) for stmt in write(Var("cc"), j))
        return [For("cc", i32(0), i32(self.columns), i32(step), inner)]

    # ---------------------------------------------------------------------------------------------- key loops

    def walk_keys(self) -> list[Stmt]:
        p, leaf = self.p, self.leaf
        bk = i32(leaf.bk)
        body: list[Stmt] = []
        stop: Expr = p.n.extent
        whole: Expr = p.n.extent  # keys before it are seen by every row
        if p.above is not None:
            last = add(add(Var("m0"), i32(leaf.rows - 1)), p.above)
            stop = minimum(stop, call("max", last, i32(0)))
            whole = minimum(whole, call("max", add(Var("m0"), p.above), i32(0)))
        stop_let = Let("key_stop", stop)
        body.append(stop_let)
        start: Expr = i32(0)
        if p.below is not None:
            first = call("max", add(Var("m0"), p.below), i32(0))
            start_let = Let("key_start", mul(floordiv(first, bk), bk))
            body.append(start_let)
            return [*body, self.key_loop("nb", start_let.var, stop_let.var, edge=True)]
        if is_const(whole) and isinstance(whole, Const) and whole.value % leaf.bk == 0:
            return [*body, self.key_loop("nb", start, stop_let.var, edge=False)]
        main = Let("key_main", mul(floordiv(whole, bk), bk))
        body.append(main)
        body.append(self.key_loop("nb", start, main.var, edge=False))
        body.append(self.key_loop("ne", main.var, stop_let.var, edge=True))
        return body

    def key_loop(self, var: str, start: Expr, stop: Expr, edge: bool) -> For:
        """One block of keys an iteration. ``edge``: masks and the end of the keys are looked at."""
        leaf, first = self.leaf, Var(var)
        body: list[Stmt] = []
        count: Expr = i32(leaf.bk)
        if edge:
            count_let = Let(f"{var}_count", minimum(count, sub(Var("key_stop"), first)))
            body.append(count_let)
            count = count_let.var
        if leaf.stage:
            body += self.stage(first, edge)
            body += self.barrier()
        body.append(RegArray("peak", DType.F32, (leaf.vectors,), leaf.lanes, init=float("-inf")))
        body += self.scores(first, count, edge)
        body += self.rescale()
        body += self.weights(count)
        body += self.barrier()
        body += self.accumulate(first, count)
        body += self.barrier()
        return For(var, start, stop, i32(leaf.bk), tuple(body))

    def stage(self, first: Expr, edge: bool) -> list[Stmt]:
        """Keys and values of the block, converted, into shared memory; beyond the end the last key is read again."""
        out: list[Stmt] = []
        for array, expr, axis, width, pitch in (
            ("keys", self.p.k, self.p.d, self.depth, pitches(self.leaf, self.depth)),
            ("values", self.p.v, self.p.c, self.columns, self.columns),
        ):
            vector = self.copy_lanes(expr, axis, width)

            def write(
                key: Expr, column: Expr, array: str = array, expr: Expr = expr, axis: Axis = axis, pitch: int = pitch,
                vector: int = vector,
            ) -> list[Stmt]:  # fmt: skip
                at = self.point(key=self.key_index(first, key, edge), **{"d" if axis is self.p.d else "c": column})
                if vector > 1:
                    at = replace(at, axis=axis.name, lanes=vector)
                value = cast(self.memory.value(expr, at), DType.F32)
                if vector > 1 and value.lanes == 1:
                    value = Splat(value, vector)
                return [Store(array, add(mul(key, i32(pitch)), column), value, DType.F32)]

            out += self.shared_copy(self.leaf.bk, width, vector, write)
        return out

    def copy_lanes(self, expr: Expr, axis: Axis, width: int) -> int:
        """Elements a thread copies at once: whole vectors where every load walks the axis with stride one."""
        vector = self.leaf.lanes if self.leaf.lanes > 1 else 4
        strides = [self.memory.stride(load, axis.name) for load in loads_of((expr,))]
        return vector if width % vector == 0 and all(s is not None and is_const(s, 1) for s in strides) else 1

    # ---------------------------------------------------------------------------------------------- epilogue

    def finish(self) -> list[Stmt]:
        """The total over the threads of a row, then the outputs."""
        leaf = self.leaf
        out: list[Stmt] = []
        if leaf.n > 1:
            out += [Combine("sum", (self.total.at(i),), leaf.n, ("scratch",)) for i in range(leaf.vectors)]
        last = len(self.p.epilogues) - 1
        for number, epilogue in enumerate(self.p.epilogues):
            if self.p.c.name in epilogue.axes:
                # one output may take the place of what it is computed from; the lanes of a row vector lie far apart
                # in memory, so that they are turned into rows first
                turned = leaf.lanes > 1 and number == last

                def put(column: Expr, j: int, number: int = number, turned: bool = turned) -> list[Stmt]:
                    at = self.across(column, j)
                    return [x for i in range(leaf.vectors) for x in self.write(number, i, j, at, turned=turned)]

                out += self.column_loop(put)
                out += self.copy_result(number) if turned else []
            else:
                once = None if leaf.n == 1 else call("eq", TX, i32(0))
                out += [stmt for i in range(leaf.vectors) for stmt in self.write(number, i, 0, None, once)]
        return out

    def copy_result(self, number: int) -> list[Stmt]:
        """Output ``number`` from ``result[column][row]`` to memory, row by row, whole vectors where they fit."""
        p, leaf = self.p, self.leaf
        epilogue = p.epilogues[number]
        tensor = epilogue.output.tensor
        index = tuple(Var(axis) for axis in epilogue.axes)
        stride = tensor.element_strides()[epilogue.axes.index(p.c.name)]
        width = leaf.lanes if is_const(stride, 1) and self.columns % leaf.lanes == 0 else 1
        row, first = Var("rr"), Var("rc")
        held = [Mem("result", add(mul(add(first, i32(k)), i32(leaf.rows)), row), DType.F32) for k in range(width)]
        value: Expr = Pack(tuple(held)) if width > 1 else held[0]
        place = {p.m.name: add(Var("m0"), row), p.c.name: first}
        store = Store(tensor.name, self.memory.offset(tensor.name, index, place), value, tensor.dtype)
        rows: Expr = i32(leaf.rows)
        if not self.rows_divide():
            rows = minimum(rows, sub(p.m.extent, Var("m0")))
        columns = For("rc", i32(0), i32(self.columns), i32(width), (store,))
        return [For("rr", i32(0), rows, i32(1), (columns,))]

    def write(
        self, number: int, i: int, j: int, column: Expr | None, once: Expr | None = None, turned: bool = False
    ) -> list[Stmt]:
        """Output ``number`` at row vector ``i`` and one column: lane by lane, or (``turned``) to ``result``."""
        p, leaf = self.p, self.leaf
        epilogue = p.epilogues[number]
        at = Point(self.point(row=self.row(i), c=column).env)
        row = at.env[p.m.name]
        exact = self.rows_divide()
        if leaf.lanes > 1:
            at = replace(at, axis=p.m.name, lanes=leaf.lanes, tail=None if exact else p.m.extent)
        elif not exact:
            at = at.guarded(lt(row, p.m.extent))
        lane_of = {add(row, i32(k)): k for k in range(leaf.lanes)}

        def read(load: Load, point: Point) -> Expr | None:
            if base(load.tensor) != p.comp.name:
                return None
            component = int(load.tensor.partition(".")[2] or 0)
            if component < 2:
                held: Expr = (self.top, self.total)[component].at(i)
            elif self.in_registers:
                held = self.result.at(j, i)
            else:
                assert column is not None
                held = self.held("result", column, i)
            return held if point.axis or leaf.lanes == 1 else Lane(held, lane_of[point.env[p.m.name]])

        value = cast(self.memory.value(epilogue.body, at, read), epilogue.output.tensor.dtype.compute)
        if value.lanes < leaf.lanes:
            value = Splat(value, leaf.lanes)
        let = Let(f"o{number}_{i}_{j}", value)
        out: list[Stmt] = [let]
        if turned:
            assert column is not None
            return [let, self.keep("result", column, i, let.var)]
        tensor = epilogue.output.tensor
        index = tuple(Var(axis) for axis in epilogue.axes)
        for lane in range(leaf.lanes):
            place = {**at.env, p.m.name: add(row, i32(lane))}
            guard = both(once, None if exact else lt(place[p.m.name], p.m.extent))
            part = let.var if leaf.lanes == 1 else Lane(let.var, lane)
            out.append(Store(tensor.name, self.memory.offset(tensor.name, index, place), part, tensor.dtype, guard))
        return out
