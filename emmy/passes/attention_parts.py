"""Taking a fused attention apart: scores, keys, values, mask bounds, epilogue. What the attention tier starts from.

qk[outer, m, n]  = sum over d of q[outer, m, d] * k[outer, n, d]
att[outer, m]    = online_attention over n of (x(qk, m, n), v[outer, n, c])      carries c
out[outer, m, c] = map of att.2 (unnormalised output), att.1 (total), att (maximum)
"""

from __future__ import annotations

from dataclasses import dataclass

from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Load, Var, add, call, free_vars, i32, is_const, sub, substitute, transform
from emmy.ir.nest import Axis, Comp, Output, Region
from emmy.passes.lower.access import affine, axis_size
from emmy.passes.rewrite import base, loads_of, scope
from emmy.passes.roles import factors, is_attention


@dataclass(frozen=True, slots=True)
class Epilogue:
    """An output and the expression it holds, over the attention's axes; ``axes`` index the output tensor."""

    output: Output
    body: Expr
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention region, everything over the axes of its ``online_attention``.

    m: query rows, n: keys, d: depth of the scores, c: columns of the values; outer: every other axis.
    q, k, v, x: expressions; ``x`` reads the score contraction as ``Load(scores.name, …)``.
    above: where not None, keys ``n >= m + above`` are masked. below: where not None, keys ``n < m + below`` are masked.
    inner: ``x`` without the masks that ``above`` and ``below`` express, for keys that both let through.
    """

    region: Region
    scores: Comp
    comp: Comp
    outer: tuple[Axis, ...]
    m: Axis
    n: Axis
    d: Axis
    c: Axis
    q: Expr
    k: Expr
    v: Expr
    x: Expr
    inner: Expr
    above: Expr | None
    below: Expr | None
    epilogues: tuple[Epilogue, ...]

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """(outer, M, N, D, C) at the hints."""
        outer = 1
        for axis in self.outer:
            outer *= self.region.sizes(axis)
        sizes = [self.region.sizes(axis) for axis in (self.m, self.n, self.d, self.c)]
        return outer, sizes[0], sizes[1], sizes[2], sizes[3]

    @property
    def visible(self) -> float:
        """Share of the (row, key) pairs that ``above`` and ``below`` let through, at the hints."""
        _, m, n, _, _ = self.sizes
        if not m or not n or (self.above is None and self.below is None):
            return 1.0
        hints = self.region.hints()
        high = _number(self.above, hints, n)
        low = _number(self.below, hints, -m)
        seen = 0
        for row in range(m):
            first = 0 if self.below is None else max(0, row + low)
            last = n if self.above is None else min(n, max(0, row + high))
            seen += max(0, last - first)
        return seen / (m * n)


def _number(expr: Expr | None, hints: dict[str, int], otherwise: int) -> int:
    from emmy.ir.expr import evaluate_int

    return otherwise if expr is None else evaluate_int(expr, hints)


def match_attention(region: Region) -> Attention:
    """The region as one attention. Raises Refused naming what does not fit."""
    attentions = [comp for comp in region.comps if is_attention(comp)]
    if len(attentions) != 1:
        raise Refused("one_attention", found=f"{len(attentions)} attentions", expected="one")
    (comp,) = attentions
    others = [c for c in region.comps if not c.is_map and c is not comp]
    if len(others) != 1 or others[0].monoid != "sum" or len(others[0].reduce) != 1:
        raise Refused("one_score_contraction", found=f"{len(others)} other reductions", expected="one")
    (scores,) = others
    if len(comp.reduce) != 1 or len(comp.carried) != 1:
        raise Refused("one_key_axis", found=f"{len(comp.reduce)} key axes", expected="one key and one value axis")
    (n,), (c,) = comp.reduce, comp.carried
    x, v = comp.body
    (d,), body = scores.reduce, _scores_body(scores, comp)
    q, k = _sides(body, n)
    m = _row_axis(comp, q, k, v)
    if n.name in free_vars(q) or m.name in free_vars(k) | free_vars(v) or c.name in free_vars(x) | free_vars(body):
        raise Refused("separable", found="rows, keys and columns that depend on each other")
    for axis in (d, c):
        if axis_size(axis) is None:
            raise Refused("head_dim_constant", found=f"symbolic {axis.name}", expected="constant head dimensions")
    above, below, inner = _bounds(x, m, n)
    outer = tuple(axis for axis in comp.axes if axis is not m)
    epilogues = tuple(_epilogue(region, comp, out) for out in region.outputs)
    _check_reads(region, comp, scores, (q, k, v), x)
    return Attention(region, scores, comp, outer, m, n, d, c, q, k, v, x, inner, above, below, epilogues)


def _scores_body(scores: Comp, comp: Comp) -> Expr:
    """The summand of the scores over the attention's axes and the scores' own reduce axis."""
    reads = [load for load in loads_of(comp.body[:1]) if base(load.tensor) == scores.name]
    if not reads or any(load.index != reads[0].index for load in reads):
        raise Refused("one_score_cell", found=f"{len(reads)} reads of {scores.name}", expected="one")
    index = reads[0].index
    names = [i.name for i in index if isinstance(i, Var)]
    if len(names) != len(index) or len(set(names)) != len(names):
        raise Refused("one_score_cell", found=f"{scores.name} read at computed coordinates")
    if scores.reduce[0].name in scope(comp):
        raise Refused("separable", found=f"axis {scores.reduce[0].name} of both contractions")
    return substitute(scores.body[0], {axis.name: i for axis, i in zip(scores.axes, index, strict=True)})


def _sides(body: Expr, n: Axis) -> tuple[Expr, Expr]:
    """(queries, keys): the factors without and with the key axis."""
    parts = factors(body)
    keys = [f for f in parts if n.name in free_vars(f)]
    queries = [f for f in parts if n.name not in free_vars(f)]
    if not keys or not queries:
        raise Refused("separable", found="scores that are no product of queries and keys")
    return _product(queries), _product(keys)


def _product(parts: list[Expr]) -> Expr:
    value = parts[0]
    for part in parts[1:]:
        value = call("mul", value, part)
    return value


def _row_axis(comp: Comp, q: Expr, k: Expr, v: Expr) -> Axis:
    shared = free_vars(k) | free_vars(v)
    rows = [axis for axis in comp.axes if axis.name in free_vars(q) and axis.name not in shared]
    if not rows:
        raise Refused("query_rows", found="no axis that the queries alone have")
    return rows[-1]


def _check_reads(region: Region, comp: Comp, scores: Comp, operands: tuple[Expr, ...], x: Expr) -> None:
    inputs = {tensor.name for tensor in region.inputs}
    for load in (*loads_of(operands), *loads_of((x,))):
        if load.tensor not in inputs and base(load.tensor) != scores.name:
            raise Refused("reads_inputs", found=f"{comp.name} reads {load.tensor}", expected="inputs of the region")
    if any(base(load.tensor) == scores.name for load in loads_of(operands)):
        raise Refused("reads_inputs", found=f"operands that read {scores.name}")


def _epilogue(region: Region, comp: Comp, output: Output) -> Epilogue:
    own = tuple(axis.name for axis in comp.axes)
    if base(output.source) == comp.name:
        carried = comp.algebra().carried[int(output.source.partition(".")[2] or 0)]
        axes = (*own, comp.carried[0].name) if carried else own
        dtype = comp.dtype.compute
        return Epilogue(output, Load(output.source, tuple(Var(a) for a in axes), dtype), axes)
    step = region.comp(output.source)
    reads = [load for load in loads_of(step.body) if base(load.tensor) == comp.name]
    if not step.is_map or not reads:
        raise Refused("attention_epilogue", found=f"{step.name} does not follow {comp.name}")
    back: dict[str, str] = {}
    for load in reads:
        for axis, index in zip((*comp.axes, *comp.carried), load.index, strict=False):
            if not isinstance(index, Var) or back.setdefault(index.name, axis.name) != axis.name:
                raise Refused("attention_epilogue", found=f"{step.name} reads {comp.name} at other cells")
    if set(back) != {axis.name for axis in step.axes} or len(set(back.values())) != len(back):
        raise Refused("attention_epilogue", found=f"{step.name} has other axes than {comp.name}")
    inputs = {tensor.name for tensor in region.inputs}
    foreign = [x.tensor for x in loads_of(step.body) if x.tensor not in inputs and base(x.tensor) != comp.name]
    if foreign:
        raise Refused("attention_epilogue", found=f"{step.name} reads {foreign[0]}")
    variables: dict[str, Expr] = {name: Var(axis) for name, axis in back.items()}
    return Epilogue(output, substitute(step.body[0], variables), tuple(back[axis.name] for axis in step.axes))


# --------------------------------------------------------------------------------------------------- mask bounds


def _bounds(x: Expr, m: Axis, n: Axis) -> tuple[Expr | None, Expr | None, Expr]:
    """(above, below, scores without the masks that these express); see Attention."""
    above: Expr | None = None
    below: Expr | None = None
    spent: list[Expr] = []
    for condition in _conditions(x):
        found = _bound(condition, m, n)
        if found is None:
            continue
        upper, lower = found
        if upper is not None:
            above = upper if above is None else call("min", above, upper)
        if lower is not None:
            below = lower if below is None else call("max", below, lower)
        spent.append(condition)
    true = Const(True, DType.BOOL)
    inner = transform(x, lambda node: true if node in spent else None) if spent else x
    return above, below, inner


def _conditions(x: Expr) -> list[Expr]:
    """Conditions without which a score is -inf."""
    match x:
        case Call("select", (cond, value, low)) if _minus_infinity(low):
            return _conjuncts(cond) + _conditions(value)
        case Call("add", (a, b)):
            return _conditions(a) + _conditions(b)
        case Call("cast", (a,)):
            return _conditions(a)
    return []


def _conjuncts(cond: Expr) -> list[Expr]:
    if isinstance(cond, Call) and cond.fn == "and":
        return _conjuncts(cond.args[0]) + _conjuncts(cond.args[1])
    return [cond]


def _minus_infinity(expr: Expr) -> bool:
    return is_const(expr, float("-inf"))


def _bound(cond: Expr, m: Axis, n: Axis) -> tuple[Expr | None, Expr | None] | None:
    """``n < m + above`` or ``n >= m + below`` as (above, None) or (None, below); None for any other condition."""
    if not isinstance(cond, Call) or cond.fn not in ("le", "lt", "ge", "gt") or not cond.args[0].dtype.is_int:
        return None
    a, b = cond.args
    small, large = (a, b) if cond.fn in ("le", "lt") else (b, a)
    slack = 0 if cond.fn in ("le", "ge") else 1
    # small + slack <= large
    parts = affine(sub(add(small, i32(slack)), large), frozenset((m.name, n.name)))
    if parts is None:
        return None
    rest, terms = parts
    if loads_of((rest,)) or free_vars(rest) & {m.name, n.name}:
        return None
    if is_const(terms.get(n.name, i32(0)), 1) and is_const(terms.get(m.name, i32(0)), -1):
        return sub(i32(1), _as_i32(rest)), None  # n <= m - rest
    if is_const(terms.get(n.name, i32(0)), -1) and is_const(terms.get(m.name, i32(0)), 1):
        return None, _as_i32(rest)  # n >= m + rest
    return None


def _as_i32(expr: Expr) -> Expr:
    return call("cast", expr, dtype=DType.I32)
