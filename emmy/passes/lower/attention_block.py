"""A block of query rows: where its threads stand, and one step of its walk over keys."""

from __future__ import annotations

from dataclasses import replace

from emmy.ir.dtype import DType
from emmy.ir.expr import (
    Const,
    Expr,
    Lane,
    Load,
    Mem,
    Splat,
    Var,
    add,
    call,
    cast,
    ceil_div,
    floordiv,
    i32,
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
    Combine,
    For,
    Let,
    RegArray,
    RegSet,
    Stmt,
    Store,
)
from emmy.passes.attention_parts import Attention
from emmy.passes.lower.access import Memory, Point, axis_size
from emmy.passes.lower.attention_leaf import AttentionLeaf, pitches
from emmy.passes.rewrite import base

MINUS_INFINITY = Const(float("-inf"), DType.F32)


class AttentionBlock:
    """What a block keeps in registers and shared memory, and the statements of a step."""

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
