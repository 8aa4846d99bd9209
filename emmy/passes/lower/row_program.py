"""What a row kernel computes: reductions over the columns of shared rows, level by level, then writes.

A region is seen as rows (parallel axes that every computation shares) and columns (the axes that reductions run over
and that output maps walk). Reductions that depend on each other's results need sweeps over the columns one after the
other; independent ones share a sweep. A result of a reduction is a variable ``name.k`` here, one value a row.

``phased`` replaces a monoid of several components by plain ones in separate sweeps (a maximum, then a sum of
exponentials), which is cheaper where a row can be walked again at no cost in memory traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Load, Var, call, cast, free_vars, i32, is_const, mul, transform, walk
from emmy.ir.monoid import MONOIDS, Monoid, instantiate
from emmy.ir.nest import Axis, Comp, Region, Tensor
from emmy.passes.lower.access import affine, flat_offset
from emmy.passes.lower.smooth import logistic
from emmy.passes.rewrite import base, component, inline, uses
from emmy.passes.roles import is_contraction


@dataclass(frozen=True, slots=True)
class Reduction:
    """``name`` = monoid over the columns of ``values``."""

    name: str
    monoid: str
    values: tuple[Expr, ...]
    dtype: DType

    @property
    def algebra(self) -> Monoid:
        return MONOIDS[self.monoid]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return self.algebra.component_dtypes(self.dtype)

    def result(self, k: int) -> Var:
        return Var(f"{self.name}.{k}", self.dtypes[k])


@dataclass(frozen=True, slots=True)
class Write:
    """``tensor[index] = value``; ``index`` over row and column axes."""

    tensor: Tensor
    index: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Sweep:
    """One walk over a row's columns: reductions fed and elements written in it.

    held: expressions whose values later sweeps want, beyond those that were held before and still are.
    """

    reductions: tuple[Reduction, ...]
    writes: tuple[Write, ...]
    held: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class RowProgram:
    """A region as rows and columns.

    columns: in loop order, the one neighbouring elements lie along last. order: in the order that positions of an
    arg-reduction count them. row_writes: outputs with one value a row. across: neighbouring elements lie along a row
    axis (the last of ``rows``), so that vectors hold one column of several rows.
    """

    region: Region
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    order: tuple[Axis, ...]
    reductions: tuple[Reduction, ...]
    writes: tuple[Write, ...]
    row_writes: tuple[Write, ...]
    across: bool

    @property
    def is_map(self) -> bool:
        return not self.reductions

    @property
    def inner(self) -> frozenset[str]:
        return frozenset(axis.name for axis in self.columns)

    def row_count(self) -> Expr:
        return _product(axis.extent for axis in self.rows)

    def column_count(self) -> Expr:
        return _product(axis.extent for axis in self.columns)

    def fast(self) -> RowProgram:
        """With the device's approximate exponential."""

        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Call) and node.fn == "exp" and node.dtype == DType.F32:
                return Call("fast_exp", node.args, node.dtype, node.lanes)
            return None

        return self.mapped(rule)

    def smooth(self) -> RowProgram:
        """With the quotients of logistic functions without a branch (see emmy.passes.lower.smooth)."""
        return self.mapped(logistic)

    def mapped(self, rule: Callable[[Expr], Expr | None]) -> RowProgram:
        """With every value transformed by ``rule``."""

        def over(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple(transform(e, rule) for e in exprs)

        return replace(
            self,
            reductions=tuple(replace(r, values=over(r.values)) for r in self.reductions),
            writes=tuple(replace(w, value=over((w.value,))[0]) for w in self.writes),
            row_writes=tuple(replace(w, value=over((w.value,))[0]) for w in self.row_writes),
        )

    def shared_out(self) -> RowProgram:
        """With a division by a softmax's sum as a product with its reciprocal, which a row computes once.

        The sum is at least one, so that no reciprocal overflows; the result is at most 2.5 units in the last place away
        from the quotient, where a division is within 0.5 and costs some twenty instructions an element.
        """
        totals = {
            r.result(1).name for r in self.reductions if r.monoid == "online_softmax" and r.dtypes[1] == DType.F32
        }

        def rule(node: Expr) -> Expr | None:
            match node:
                case Call("div", (value, Var(name) as total)) if name in totals:
                    return mul(value, call("near_div", Const(1.0, DType.F32), total))
            return None

        return replace(self, writes=tuple(replace(w, value=transform(w.value, rule)) for w in self.writes))

    def phased(self) -> RowProgram:
        """With monoids of several components as the plain phases they are equivalent to."""
        reductions: list[Reduction] = []
        results: dict[str, Expr] = {}
        count = cast(self.column_count(), DType.F32)
        for reduction in self.reductions:
            values = tuple(_bound(v, results) for v in reduction.values)
            algebra = reduction.algebra
            if not algebra.phases:
                reductions.append(replace(reduction, values=values))
                continue
            env: dict[str, Expr] = {"x0": values[0], "n": cast(count, reduction.dtype.compute)}
            for k, (monoid, value) in enumerate(algebra.phases):
                phase = Reduction(f"{reduction.name}:{k}", monoid, instantiate(algebra, (value,), env), reduction.dtype)
                reductions.append(phase)
                env[f"p{k}"] = phase.result(0)
            for k, finished in enumerate(instantiate(algebra, algebra.finish, env)):
                results[f"{reduction.name}.{k}"] = finished
        return replace(
            self,
            reductions=tuple(reductions),
            writes=tuple(replace(w, value=_bound(w.value, results)) for w in self.writes),
            row_writes=tuple(replace(w, value=_bound(w.value, results)) for w in self.row_writes),
        )

    def sweeps(self, hold: bool = False) -> tuple[Sweep, ...]:
        """The walks over the columns, in order; with ``hold``, what each keeps for later ones."""
        level: dict[str, int] = {}
        for reduction in self.reductions:
            level[reduction.name] = _level(reduction.values, level)
        write_level = [_level((w.value, *w.index), level) for w in self.writes]
        count = max([*level.values(), *write_level], default=-1) + 1
        sweeps = [
            Sweep(
                tuple(r for r in self.reductions if level[r.name] == n),
                tuple(w for w, at in zip(self.writes, write_level, strict=True) if at == n),
            )
            for n in range(count)
        ]
        if hold:
            for n in range(count - 1):
                sweeps[n] = replace(sweeps[n], held=_held(self.inner, sweeps, n))
        return tuple(sweeps)


def late_loads(sweeps: tuple[Sweep, ...], inner: frozenset[str]) -> tuple[Load, ...]:
    """What only sweeps after the first read, at addresses known from the start: it need not wait for reductions.

    Loads behind a condition are not among them.
    """
    found: dict[Load, None] = {}

    def visit(node: Expr, held: tuple[Expr, ...]) -> None:
        if node in held:
            return
        if isinstance(node, Load):
            if varies(node, inner) and not any("." in name for name in free_vars(node)):
                found.setdefault(node)
            return
        for child in node.children[:1] if isinstance(node, Call) and node.fn == "select" else node.children:
            visit(child, held)

    for before, sweep in pairwise(sweeps):
        for expr in _exprs(sweep):
            visit(expr, before.held)
    return tuple(found)


def value_nodes(expr: Expr) -> Iterator[Expr]:
    """The nodes of ``expr`` that are values, not parts of an address."""
    stack, seen = [expr], set[int]()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack += () if isinstance(node, Load) else node.children


def _exprs(sweep: Sweep) -> Iterable[Expr]:
    for reduction in sweep.reductions:
        yield from reduction.values
    for write in sweep.writes:
        yield write.value


def varies(expr: Expr, inner: frozenset[str]) -> bool:
    """Whether ``expr`` differs between columns."""
    return bool(free_vars(expr) & inner)


def _held(inner: frozenset[str], sweeps: list[Sweep], n: int) -> tuple[Expr, ...]:
    """The largest subexpressions of later sweeps that sweep ``n`` has the values of."""
    before = frozenset(sweeps[n - 1].held) if n else frozenset()
    known: set[Expr] = set(before)

    def collect(node: Expr) -> None:
        if node in known:
            return
        if isinstance(node, Call | Load) and varies(node, inner):
            known.add(node)
        if not isinstance(node, Load):
            for child in node.children:
                collect(child)

    for expr in _exprs(sweeps[n]):
        collect(expr)
    found: dict[Expr, None] = {}

    def visit(node: Expr) -> None:
        if node in known:
            found.setdefault(node)
        elif not isinstance(node, Load):
            for child in node.children:
                visit(child)

    for later in sweeps[n + 1 :]:
        for expr in _exprs(later):
            visit(expr)
    return tuple(found)


def _level(exprs: Iterable[Expr], level: dict[str, int]) -> int:
    deepest = 0
    for expr in exprs:
        for name in free_vars(expr):
            if "." in name:
                deepest = max(deepest, level[name.rsplit(".", 1)[0]] + 1)
    return deepest


def _bound(expr: Expr, results: dict[str, Expr]) -> Expr:
    return transform(expr, lambda node: results.get(node.name) if isinstance(node, Var) else None)


def _product(extents: Iterable[Expr]) -> Expr:
    total: Expr = i32(1)
    for extent in extents:
        total = mul(total, extent)
    return total


# ------------------------------------------------------------------------------------------------- analysis


def row_program(region: Region) -> RowProgram:
    """The region as rows and columns. Raises Refused where its computations do not share their rows."""
    for comp in region.comps:
        if comp.carried:
            raise Refused("components_carry_no_axes", found=comp.monoid)
        if is_contraction(comp):
            raise Refused("row_is_read_once", found=f"{comp.name}, a contraction", hint="contractions have tiles")
    region = without_inner_maps(region)
    frame = _Frame(region)
    reductions = tuple(frame.reduction(comp) for comp in region.comps if not comp.is_map)
    every = [frame.write(out.tensor, out.source) for out in region.outputs]
    inner = frozenset(axis.name for axis in frame.columns)
    walked = frozenset(name for write in every for i in write.index for name in free_vars(i)) & inner
    if frame.is_map:
        writes, row_writes = every, []
    else:
        if walked and walked != inner:
            raise Refused("one_column_space", found=f"an output over {', '.join(sorted(walked))}")
        writes = [w for w in every if any(varies(i, inner) for i in w.index)]
        row_writes = [w for w in every if w not in writes]
    columns, rows, across = _orientation(region, frame, reductions, every)
    if frame.is_map:
        rows, columns = columns[:-1], columns[-1:] or (Axis("unit", i32(1)),)
    return RowProgram(region, rows, columns, frame.columns, reductions, tuple(writes), tuple(row_writes), across)


def without_inner_maps(region: Region) -> Region:
    """Maps that other computations read, repeated inside them."""
    outputs = {base(out.source) for out in region.outputs}
    while True:
        read = uses(region)
        names = {comp.name for comp in region.comps}
        inner = next((c for c in region.comps if c.is_map and any(name in names for name in read[c.name])), None)
        if inner is None:
            return region
        comps = tuple(inline(c, inner) if c.name in read[inner.name] else c for c in region.comps)
        if inner.name not in outputs:
            comps = tuple(c for c in comps if c.name != inner.name)
        region = replace(region, comps=comps)


class _Frame:
    """The shared rows and columns, and every computation's axes renamed to them."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.reduced = [comp for comp in region.comps if not comp.is_map]
        self.is_map = not self.reduced
        if self.reduced:
            first = self.reduced[0]
            self.rows, self.columns = first.axes, first.reduce
        else:
            first = region.comps[0]
            self.rows, self.columns = (), first.axes
        self.names = {comp.name: self._names(comp) for comp in region.comps}

    def _names(self, comp: Comp) -> dict[str, Expr]:
        """The shared axis variable that each axis of ``comp`` stands for."""
        own = {axis.name: axis.extent for axis in (*comp.axes, *comp.reduce)}
        found: dict[str, Axis] = {}
        for load in comp.loads():
            if base(load.tensor) in {c.name for c in self.reduced}:
                for index, row in zip(load.index, self.rows, strict=True):
                    if not isinstance(index, Var) or found.setdefault(index.name, row) != row:
                        raise Refused("shared_rows", found=f"{comp.name} reads {load.tensor} at other rows")
        if not comp.is_map:
            for axis, row in zip(comp.axes, self.rows, strict=False):
                found.setdefault(axis.name, row)
            if len(comp.axes) != len(self.rows) or len(comp.reduce) != len(self.columns):
                raise Refused("shared_rows", found=f"{comp.name} has other axes than {self.reduced[0].name}")
            pairs = zip(comp.reduce, self.columns, strict=True)
        else:
            by_name = {axis.name: axis for axis in (*self.rows, *self.columns)}
            for axis in comp.axes:
                if axis.name in by_name and axis.extent == by_name[axis.name].extent:
                    found.setdefault(axis.name, by_name[axis.name])
            left = [axis for axis in comp.axes if axis.name not in found]
            free = [axis for axis in (*self.rows, *self.columns) if axis not in found.values()]
            pairs = zip(left, free, strict=False)
            if len(left) > len(free):
                raise Refused("one_column_space", found=f"{comp.name} walks {', '.join(a.name for a in left)}")
        for axis, shared in pairs:
            found.setdefault(axis.name, shared)
        missing = [row for row in self.rows if row not in found.values()]
        if missing:
            raise Refused("shared_rows", found=f"{comp.name} does not walk {missing[0].name}")
        if len(set(found.values())) != len(found) or any(own[n] != a.extent for n, a in found.items()):
            raise Refused("shared_rows", found=f"{comp.name} has rows of other extents")
        return {name: axis.var for name, axis in found.items()}

    def expr(self, comp: Comp, expr: Expr) -> Expr:
        """``expr`` over the shared axes, results of reductions as variables."""
        names = self.names[comp.name]
        reduced = {c.name: c for c in self.reduced}

        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Var):
                return names.get(node.name)
            if isinstance(node, Load) and base(node.tensor) in reduced:
                source, k = reduced[base(node.tensor)], component(node.tensor)
                return Var(f"{source.name}.{k}", source.algebra().component_dtypes(source.dtype)[k])
            return None

        return transform(expr, rule)

    def reduction(self, comp: Comp) -> Reduction:
        assert comp.monoid is not None
        return Reduction(comp.name, comp.monoid, tuple(self.expr(comp, e) for e in comp.body), comp.dtype)

    def write(self, tensor: Tensor, source: str) -> Write:
        comp = self.region.comp(source)
        index = tuple(self.names[comp.name][axis.name] for axis in comp.axes)
        if comp.is_map:
            return Write(tensor, index, self.expr(comp, comp.body[0]))
        k = component(source)
        return Write(tensor, index, Var(f"{comp.name}.{k}", comp.algebra().component_dtypes(comp.dtype)[k]))


def _orientation(
    region: Region, frame: _Frame, reductions: tuple[Reduction, ...], writes: list[Write]
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], bool]:
    """Columns and rows with the axis of neighbouring elements last, and whether that is a row axis."""
    exprs = [value for r in reductions for value in r.values]
    score = unit_strides(region, (*frame.rows, *frame.columns), exprs, writes)
    last_column = max(frame.columns, key=lambda a: score[a.name], default=None)
    last_row = max(frame.rows, key=lambda a: score[a.name], default=None)
    columns, rows = frame.columns, frame.rows
    if last_column is not None and score[last_column.name]:
        columns = (*(a for a in columns if a != last_column), last_column)
    across = False
    if last_row is not None and not frame.is_map:
        across = score[last_row.name] > (score[last_column.name] if last_column else 0)
        unit = isinstance(last_row.extent, Const) and last_row.extent.value == 1
        if across and not unit:
            rows = (*(a for a in rows if a != last_row), last_row)
        else:
            across = False
    return columns, rows, across


def unit_strides(
    region: Region, axes: Iterable[Axis], exprs: Iterable[Expr], writes: Iterable[Write]
) -> dict[str, int]:
    """How much each axis has neighbours beside each other in memory: unit strides, weighted by the rank accessed."""
    tensors = {t.name: t for t in region.inputs}
    score = {axis.name: 0 for axis in axes}
    values = [*exprs, *(w.value for w in writes)]
    loads = {node for value in values for node in walk(value) if isinstance(node, Load)}
    places = [(w.tensor, w.index) for w in writes] + [(tensors[load.tensor], load.index) for load in loads]
    for tensor, index in places:
        rank = sum(1 for i in index if free_vars(i))
        parts = affine(flat_offset(tensor, index), frozenset(score))
        for name, coefficient in (parts[1] if parts else {}).items():
            if is_const(coefficient, 1):
                score[name] += rank
    return score
