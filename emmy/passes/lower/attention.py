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

from dataclasses import dataclass, replace

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
    select,
    sub,
)
from emmy.ir.kernel import (
    BX,
    TID,
    TX,
    TY,
    Barrier,
    BufferParam,
    Combine,
    For,
    Kernel,
    Let,
    RegArray,
    RegSet,
    ScalarParam,
    Shared,
    Stmt,
    Store,
)
from emmy.ir.nest import Axis
from emmy.ir.plan import Launch, Plan
from emmy.passes.attention_parts import Attention
from emmy.passes.lower.access import Memory, Point, axis_size
from emmy.passes.lower.tile import region_bytes
from emmy.passes.rewrite import base, loads_of

MINUS_INFINITY = Const(float("-inf"), DType.F32)


@dataclass(frozen=True, slots=True)
class AttentionLeaf:
    """The parameters of one leaf.

    n, m: threads; fm: query rows a thread, in vectors of ``lanes``; fq: keys a thread a pass over the scores; fp: value
    columns a thread a pass over the output; bk: keys a block. stage: keys and values go through shared memory.
    fast_exp: the device's approximate exponential.
    """

    n: int
    m: int
    fm: int
    fq: int
    fp: int
    bk: int
    lanes: int
    stage: bool = False
    fast_exp: bool = False

    @property
    def threads(self) -> int:
        return self.n * self.m

    @property
    def rows(self) -> int:
        """Query rows a block."""
        return self.m * self.fm

    @property
    def vectors(self) -> int:
        """Row vectors a thread."""
        return self.fm // self.lanes


def pitches(leaf: AttentionLeaf, d: int) -> int:
    """Elements from one staged key to the next; odd where threads read a column of them."""
    return d + 1 if leaf.n > 1 and d % 2 == 0 else d


def shared_elements(leaf: AttentionLeaf, d: int, c: int) -> dict[str, int]:
    """float32 elements of each shared array of a leaf."""
    found = {"queries": d * leaf.rows, "weights": leaf.bk * leaf.rows}
    if c != leaf.n * leaf.fp or leaf.lanes > 1:
        found["result"] = c * leaf.rows
    if leaf.stage:
        found["keys"] = leaf.bk * pitches(leaf, d)
        found["values"] = leaf.bk * c
    if leaf.n > 1:
        found["scratch"] = leaf.threads
    return found


def lower_attention(problem: Attention, leaf: AttentionLeaf, name: str, knobs: str) -> Plan:
    """The plan of a leaf: one kernel, a block a tile of query rows of one head."""
    return _Lowering(problem, leaf, name).plan(knobs)


class _Lowering:
    def __init__(self, problem: Attention, leaf: AttentionLeaf, name: str) -> None:
        self.p, self.leaf, self.name = problem, leaf, name
        self.memory = Memory.of(problem.region)
        self.depth = axis_size(problem.d) or 0
        self.columns = axis_size(problem.c) or 0
        self.score_passes = leaf.bk // (leaf.n * leaf.fq)
        self.column_passes = max(1, self.columns // (leaf.n * leaf.fp))
        self.in_registers = self.column_passes == 1
        self.top = RegArray("top", DType.F32, (leaf.vectors,), leaf.lanes, init=float("-inf"))
        self.total = RegArray("total", DType.F32, (leaf.vectors,), leaf.lanes, init=0.0)
        self.shrink = RegArray("shrink", DType.F32, (leaf.vectors,), leaf.lanes, init=0.0)
        self.peak = RegArray("peak", DType.F32, (leaf.vectors,), leaf.lanes, init=float("-inf"))
        self.result = RegArray("result_r", DType.F32, (leaf.fp, leaf.vectors), leaf.lanes, init=0.0)
        self.exp = "fast_exp" if leaf.fast_exp else "exp"

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

    # ---------------------------------------------------------------------------------------------- geometry

    def block_lets(self) -> list[Stmt]:
        """Outer indices and the first row; longer rows of blocks first where a causal mask makes work unequal."""
        p, leaf = self.p, self.leaf
        tiles = Let("tiles", ceil_div(p.m.extent, leaf.rows))
        tile: Expr = call("mod", BX, tiles.var)
        if p.above is not None:
            tile = sub(sub(tiles.var, i32(1)), tile)
        body: list[Stmt] = [tiles, Let("m0", mul(tile, i32(leaf.rows)))]
        rest: Expr = floordiv(BX, tiles.var)
        for axis in reversed(p.outer):
            first = axis is p.outer[0]
            body.append(Let(axis.name, rest if first else call("mod", rest, axis.extent)))
            rest = floordiv(rest, axis.extent)
        return body

    def barrier(self) -> list[Stmt]:
        return [Barrier()] if self.leaf.threads > 1 else []

    def row(self, i: int) -> Expr:
        """First row of a thread's vector ``i``, inside the block."""
        leaf = self.leaf
        return mul(add(TY, i32(i * leaf.m)), i32(leaf.lanes)) if leaf.m > 1 else i32(i * leaf.lanes)

    def slot(self, outer: Expr, i: int) -> Expr:
        """Where row vector ``i`` of line ``outer`` lies in a shared array of lines of rows."""
        return add(mul(outer, i32(self.leaf.rows)), self.row(i))

    def held(self, array: str, outer: Expr, i: int) -> Mem:
        return Mem(array, self.slot(outer, i), DType.F32, self.leaf.lanes, aligned=True)

    def keep(self, array: str, outer: Expr, i: int, value: Expr) -> Store:
        return Store(array, self.slot(outer, i), value, DType.F32, aligned=True)

    def across(self, line: Expr, j: int) -> Expr:
        """Key or column ``j`` of this thread in the pass that starts at ``line``."""
        own = add(TX, i32(j * self.leaf.n)) if self.leaf.n > 1 else i32(j)
        return add(line, own)

    def rows_divide(self) -> bool:
        extent = self.p.m.extent
        return isinstance(extent, Const) and extent.value % self.leaf.rows == 0

    def point(
        self, row: Expr | None = None, key: Expr | None = None, d: Expr | None = None, c: Expr | None = None
    ) -> Point:
        """A scalar point; ``row`` counts from the block's first."""
        p = self.p
        env: dict[str, Expr] = {}
        local: dict[str, Expr] = {axis.name: i32(0) for axis in (p.m, p.n, p.d, p.c)}
        for axis, value in ((p.n, key), (p.d, d), (p.c, c)):
            if value is not None:
                env[axis.name] = local[axis.name] = value
        if row is not None:
            env[p.m.name] = add(Var("m0"), row)
            local[p.m.name] = row
        return Point(env, local=local)

    def shared_copy(self, lines: int, width: int, vector: int, write: object) -> list[Stmt]:
        """Every thread's share of ``lines × width`` elements, ``vector`` at a time: ``write(line, column)``."""
        assert callable(write)
        per_line = width // vector
        if self.leaf.threads == 1:
            column = mul(Var("fc"), i32(vector))
            inner = For("fc", i32(0), i32(per_line), i32(1), tuple(write(Var("fr"), column)))
            return [For("fr", i32(0), i32(lines), i32(1), (inner,))]
        line, column = floordiv(Var("fe"), i32(per_line)), mul(call("mod", Var("fe"), i32(per_line)), i32(vector))
        return [For("fe", TID, i32(lines * per_line), i32(self.leaf.threads), tuple(write(line, column)))]

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

    def key_index(self, first: Expr, key: Expr, edge: bool) -> Expr:
        """Absolute key ``key`` of the block, at most the last one."""
        at = add(first, key)
        return minimum(at, sub(self.p.n.extent, i32(1))) if edge else at

    # ------------------------------------------------------------------------------------------------- steps

    def scores(self, first: Expr, count: Expr, edge: bool) -> list[Stmt]:
        """Scores of the block into ``weights[key][row]``, and their maximum a row into ``peak``."""
        leaf = self.leaf
        step = leaf.n * leaf.fq
        acc = RegArray("score", DType.F32, (leaf.fq, leaf.vectors), leaf.lanes, init=0.0)
        line = Var("kp") if self.score_passes > 1 else i32(0)
        keys = [self.across(line, j) for j in range(leaf.fq)]
        at_keys = [Let(f"key{j}", self.key_index(first, key, edge)) for j, key in enumerate(keys)]
        body: list[Stmt] = [acc, *at_keys]
        depth = Var("dd")
        inner: list[Stmt] = []
        queries = [Let(f"query{i}", self.held("queries", depth, i)) for i in range(leaf.vectors)]
        inner += queries
        for j in range(leaf.fq):
            if leaf.stage:
                offset = add(mul(keys[j], i32(pitches(leaf, self.depth))), depth)
                value: Expr = Mem("keys", offset, DType.F32)
            else:
                value = cast(self.memory.value(self.p.k, self.point(key=at_keys[j].var, d=depth)), DType.F32)
            let = Let(f"k{j}", value)
            inner.append(let)
            for i, query in enumerate(queries):
                inner.append(RegSet(acc.at(j, i), add(acc.at(j, i), mul(let.var, query.var))))
        body.append(For("dd", i32(0), i32(self.depth), i32(1), tuple(inner)))
        for j in range(leaf.fq):
            for i in range(leaf.vectors):
                value = self.score(acc.at(j, i), i, at_keys[j].var, edge)
                if edge:
                    inside = lt(add(first, keys[j]), self.p.n.extent)
                    value = select(inside, value, MINUS_INFINITY)
                score = Let(f"s{j}_{i}", value)
                peak = self.peak.at(i)
                body.append(score)
                body.append(self.keep("weights", keys[j], i, score.var))
                # a NaN among the scores makes its weight NaN, whatever the maximum
                body.append(RegSet(peak, select(call("gt", score.var, peak), score.var, peak)))
        if self.score_passes == 1:
            return body
        return [For("kp", i32(0), count, i32(step), tuple(body))]

    def score(self, raw: Expr, i: int, key: Expr, edge: bool) -> Expr:
        """The score expression with the contraction's result in a register."""
        p, leaf = self.p, self.leaf
        at = self.point(row=self.row(i), key=key)
        row = at.env[p.m.name]
        if leaf.lanes > 1:
            at = replace(at, axis=p.m.name, lanes=leaf.lanes, tail=None if self.rows_divide() else p.m.extent)
        elif not self.rows_divide():
            at = at.guarded(lt(row, p.m.extent))
        lane_of = {add(row, i32(k)): k for k in range(leaf.lanes)}

        def read(load: Load, point: Point) -> Expr | None:
            if base(load.tensor) != p.scores.name:
                return None
            return raw if point.axis or leaf.lanes == 1 else Lane(raw, lane_of[point.env[p.m.name]])

        value = cast(self.memory.value(p.x if edge else p.inner, at, read), DType.F32)
        return Splat(value, leaf.lanes) if value.lanes < leaf.lanes else value

    def rescale(self) -> list[Stmt]:
        """The new maximum and what the older part shrinks by."""
        leaf = self.leaf
        out: list[Stmt] = []
        regs = tuple(self.peak.at(i) for i in range(leaf.vectors))
        if leaf.n > 1:
            out += [Combine("max", (reg,), leaf.n, ("scratch",)) for reg in regs]
        out.append(RegArray("shrink", DType.F32, (leaf.vectors,), leaf.lanes))
        for i, reg in enumerate(regs):
            old = self.top.at(i)
            new = Let(f"new{i}", select(call("gt", old, reg), old, reg))
            base_ = Let(f"base{i}", select(call("eq", new.var, MINUS_INFINITY), Const(0.0, DType.F32), new.var))
            out += [new, base_, RegSet(self.shrink.at(i), call(self.exp, sub(old, base_.var)))]
            out.append(RegSet(old, new.var))
            out.append(RegSet(self.total.at(i), mul(self.total.at(i), self.shrink.at(i))))
            out.append(RegSet(self.peak.at(i), base_.var))
        return out

    def weights(self, count: Expr) -> list[Stmt]:
        """``exp(score - maximum)`` in place, and their sum a row (over this thread's keys)."""
        leaf = self.leaf
        line = Var("kw")
        body: list[Stmt] = []
        for j in range(leaf.fq):
            key = self.across(line, j)
            for i in range(leaf.vectors):
                let = Let(f"w{j}_{i}", call(self.exp, sub(self.held("weights", key, i), self.peak.at(i))))
                body += [let, self.keep("weights", key, i, let.var)]
                body.append(RegSet(self.total.at(i), add(self.total.at(i), let.var)))
        return [For("kw", i32(0), count, i32(leaf.n * leaf.fq), tuple(body))]

    def accumulate(self, first: Expr, count: Expr) -> list[Stmt]:
        """``O = O * shrink + weights @ values``, ``fp`` columns a thread at a time."""
        leaf = self.leaf
        acc = self.result if self.in_registers else replace(self.result, init=None)
        column = i32(0) if self.in_registers else Var("cc")
        key = Var("kv")
        body: list[Stmt] = [] if self.in_registers else [acc]
        for j in range(leaf.fp):
            for i in range(leaf.vectors):
                old = acc.at(j, i) if self.in_registers else self.held("result", self.across(column, j), i)
                body.append(RegSet(acc.at(j, i), mul(old, self.shrink.at(i))))
        inner: list[Stmt] = []
        weights = [Let(f"weight{i}", self.held("weights", key, i)) for i in range(leaf.vectors)]
        inner += weights
        for j in range(leaf.fp):
            at = self.across(column, j)
            if leaf.stage:
                value: Expr = Mem("values", add(mul(key, i32(self.columns)), at), DType.F32)
            else:
                value = cast(self.memory.value(self.p.v, self.point(key=add(first, key), c=at)), DType.F32)
            let = Let(f"v{j}", value)
            inner.append(let)
            for i, weight in enumerate(weights):
                inner.append(RegSet(acc.at(j, i), add(acc.at(j, i), mul(let.var, weight.var))))
        body.append(For("kv", i32(0), count, i32(1), tuple(inner)))
        if self.in_registers:
            return body
        for j in range(leaf.fp):
            for i in range(leaf.vectors):
                body.append(self.keep("result", self.across(column, j), i, acc.at(j, i)))
        return [For("cc", i32(0), i32(self.columns), i32(leaf.n * leaf.fp), tuple(body))]

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
