"""Statements of one element step of a row kernel: views, loads, row values computed once, lifted and merged tuples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from emmy.ir.dtype import DType
from emmy.ir.expr import (
    Call,
    Const,
    Expr,
    Lane,
    Load,
    Mem,
    Pack,
    Reg,
    Splat,
    Var,
    add,
    cast,
    free_vars,
    i32,
    is_const,
    mul,
    substitute,
    walk,
)
from emmy.ir.kernel import For, Let, RegArray, RegSet, Stmt, Store, View, statements
from emmy.ir.monoid import instantiate
from emmy.ir.nest import Region
from emmy.passes.lower.access import Memory, Point, affine, flat_offset, wide
from emmy.passes.lower.row_program import Reduction, RowProgram, Write


class Names:
    """Hands out names that neither the region nor the kernel uses yet.

    They never end in an underscore and a number, as the parts that vectors are split into do.
    """

    def __init__(self, region: Region) -> None:
        self.taken = {t.name for t in region.inputs} | {o.tensor.name for o in region.outputs}
        self.taken |= {s.name for s in region.symbols} | {"tid", "tx", "ty", "bx", "by", "bz"}

    def __call__(self, stem: str) -> str:
        name, count = stem, 0
        while name in self.taken:
            count += 1
            name = f"{stem}{count}"
        self.taken.add(name)
        return name


def widened(value: Expr, lanes: int) -> Expr:
    """``value`` repeated over ``lanes`` where it is a scalar."""
    if value.lanes == lanes:
        return value
    return Const(value.value, value.dtype, lanes) if isinstance(value, Const) else Splat(value, lanes)


@dataclass(slots=True)
class Row:
    """The row (or vector of rows) a thread works on: its coordinates, the values known for it, and its views.

    head: statements that stand before the loops of the current sweep; views and row values go there.
    """

    program: RowProgram
    memory: Memory
    names: Names
    env: dict[str, Expr]
    head: list[Stmt]
    vector: str = ""
    lanes: int = 1
    step: int = 1
    aligned: int = 1
    views: dict[tuple[str, Expr], str] = field(default_factory=dict)
    once: dict[Expr, Expr] = field(default_factory=dict)

    @property
    def local(self) -> frozenset[str]:
        """Axes whose part of an offset stays outside the view."""
        return self.program.inner | ({self.vector} if self.vector else frozenset())

    def point(self, env: Mapping[str, Expr] | None = None, lanes: int = 1, guard: Expr | None = None) -> Point:
        """A point of this row; ``env`` gives the columns. Vectors run along ``vector`` or the last column."""
        axis = (self.vector or self.program.columns[-1].name) if lanes > 1 else ""
        return Point({**self.env, **(env or {})}, axis, lanes, guard)

    def value(self, expr: Expr) -> Expr:
        """The value of an expression that is the same for all columns, at this row."""
        lanes = self.lanes if self.vector else 1
        return self.memory.value(expr, self.point({}, lanes))

    # ------------------------------------------------------------------------------------------- row values

    def hoisted(self, expr: Expr, risky: bool = False) -> Expr:
        """``expr`` with what does not change along the columns computed once, ahead of the loops."""
        if not free_vars(expr) & self.program.inner:
            if isinstance(expr, Const | Var):
                return expr
            loads = [n for n in walk(expr) if isinstance(n, Load)]
            if risky and not all(self.memory.stays_inside(load) for load in loads):
                return expr
            if expr not in self.once:
                let = Let(self.names("row_value"), self.value(expr))
                self.head.append(let)
                key = Var(f"{let.name}.", expr.dtype)
                self.env[key.name] = let.var
                self.once[expr] = key
            return self.once[expr]
        match expr:
            case Load():
                return expr
            case Call("select", (cond, yes, no), dtype):
                parts = (self.hoisted(cond, risky), self.hoisted(yes, True), self.hoisted(no, True))
                return Call("select", parts, dtype)
            case Call(fn, args, dtype):
                return Call(fn, tuple(self.hoisted(a, risky) for a in args), dtype)
        return expr

    def bind(self, name: str, value: Expr) -> None:
        """Names the value of variable ``name`` (a result) for the statements that follow."""
        self.env[name] = value

    # --------------------------------------------------------------------------------------------- addresses

    def address(
        self, tensor: str, index: tuple[Expr, ...], env: Mapping[str, Expr]
    ) -> tuple[str, Expr, Expr, bool] | None:
        """(buffer, local offset, stride along the vector axis, aligned) of a tensor's element.

        None where the offset is not affine in the local axes.
        """
        if any(isinstance(n, Load) and free_vars(n) & self.local for i in index for n in walk(i)):
            return None
        parts = affine(flat_offset(self.memory.tensors[tensor], index), self.local)
        if parts is None:
            return None
        rest, coefficients = parts
        buffer = tensor
        if not is_const(rest, 0):
            key = (tensor, rest)
            if key not in self.views:
                base = self.memory.value(rest, Point(self.env))
                self.views[key] = self.names(f"{tensor}_row")
                view = View(self.views[key], tensor, wide(base), self.memory.tensors[tensor].dtype)
                self.head.append(view)
            buffer = self.views[key]
        vector = self.vector or self.program.columns[-1].name
        offset: Expr = i32(0)
        for name, coefficient in coefficients.items():
            at = env[name] if name in env else self.env[name]
            offset = add(offset, mul(at, substitute(coefficient, self.env)))
        stride = coefficients.get(vector, i32(0))
        even = [c for name, c in coefficients.items() if name != vector] + self._row_strides(rest)
        aligned = all(isinstance(c, Const) and c.value % self.aligned == 0 for c in even)
        return buffer, offset, stride, aligned and self.aligned > 1

    def _row_strides(self, rest: Expr) -> list[Expr]:
        names = frozenset(free_vars(rest))
        parts = affine(rest, names)
        return [Var("unknown")] if parts is None else [parts[0], *parts[1].values()]


@dataclass(slots=True)
class Step:
    """One step of a loop over columns: ``lanes`` elements at column coordinates ``env``.

    ahead: elements of this step that were read before, as they are stored.
    """

    row: Row
    env: Mapping[str, Expr]
    lanes: int
    out: list[Stmt] = field(default_factory=list)
    known: dict[Expr, Var] = field(default_factory=dict)
    loaded: dict[tuple[Load, Expr | None], Expr] = field(default_factory=dict)
    at: Point | None = None
    ahead: Mapping[Load, Expr] = field(default_factory=dict)

    def point(self) -> Point:
        if self.at is None:
            self.at = self.row.point(self.env, self.lanes)
        return self.at

    def value(self, expr: Expr) -> Expr:
        """``expr`` at this step; loads and known values are named, each once."""
        point = self.point()
        placed = _replaced(expr, self.known) if self.known else expr
        return self.row.memory.value(placed, point, self.read)

    def know(self, expr: Expr, value: Expr) -> None:
        """Later uses of ``expr`` in this step are ``value``."""
        key = Var(f"known_{len(self.known)}.", expr.dtype.compute)
        self.known[expr] = key
        self.at = self.row.point({**self.point().env, key.name: value}, self.lanes)
        self.env = {**self.env, key.name: value}

    def named(self, stem: str, value: Expr) -> Expr:
        """``value`` under a name, unless it is one already."""
        if isinstance(value, Var | Const):
            return value
        let = Let(self.row.names(stem), value)
        self.out.append(let)
        return let.var

    def read(self, load: Load, point: Point) -> Expr | None:
        if point is not self.at:
            return None
        key = (load, point.guard)
        if key not in self.loaded:
            self.loaded[key] = self.named(f"{load.tensor}_at", self._load(load, point))
        return self.loaded[key]

    def fetch(self, load: Load) -> Expr | None:
        """The stored elements under a name, for a later step at the same columns; None: they are not one access."""
        found = self.row.address(load.tensor, load.index, self.env)
        if found is None or not is_const(found[2], 1):
            return None
        buffer, offset, _, aligned = found
        dtype = self.row.memory.tensors[load.tensor].dtype
        return self.named(f"{load.tensor}_ahead", Mem(buffer, offset, dtype, self.lanes, aligned=aligned, early=True))

    def _load(self, load: Load, point: Point) -> Expr:
        row = self.row
        if load in self.ahead and point.guard is None:
            return cast(self.ahead[load], row.memory.tensors[load.tensor].dtype.compute)
        found = row.address(load.tensor, load.index, self.env)
        if found is None:
            return row.memory.load(load, point)
        buffer, offset, stride, aligned = found
        dtype = row.memory.tensors[load.tensor].dtype
        fill = False if dtype == DType.BOOL else 0
        if point.lanes == 1 or is_const(stride, 0):
            value: Expr = Mem(buffer, offset, dtype, 1, point.guard, fill)
        elif is_const(stride, 1):
            value = Mem(buffer, offset, dtype, point.lanes, point.guard, fill, aligned)
        else:
            lanes = [
                Mem(buffer, add(offset, mul(stride, i32(k))), dtype, 1, point.guard, fill) for k in range(point.lanes)
            ]
            value = Pack(tuple(lanes))
        return cast(value, dtype.compute)

    def store(self, write: Write, guard: Expr | None = None, lanes: int | None = None) -> None:
        """Writes the value at this step; ``lanes`` 1: only that of the first lane."""
        lanes = self.lanes if lanes is None else lanes
        value = widened(self.value(write.value), self.lanes)
        if lanes < self.lanes:
            value = Lane(self.named("value", value), 0)
        row, tensor = self.row, write.tensor
        found = row.address(tensor.name, write.index, self.env)
        if found is None:
            raise TypeError(f"output {tensor.name} is not affine in its axes")
        buffer, offset, stride, aligned = found
        if lanes == 1 or is_const(stride, 1):
            self.out.append(Store(buffer, offset, value, tensor.dtype, guard, aligned and lanes > 1))
            return
        held = self.named("value", value)
        for k in range(lanes):
            self.out.append(Store(buffer, add(offset, mul(stride, i32(k))), Lane(held, k), tensor.dtype, guard))

    def position(self) -> Expr:
        """The element's place along the reduce axes, in their own order (int64)."""
        total: Expr = Const(0, DType.I64)
        columns, lanes = self.row.program, self.lanes
        for axis in columns.order:
            total = add(mul(total, wide(axis.extent)), cast(self.env[axis.name], DType.I64))
        if lanes == 1 or self.row.vector or columns.columns[-1] not in columns.order:
            return total
        inner: Expr = Const(1, DType.I64)
        for axis in reversed(columns.order):
            if axis == columns.columns[-1]:
                break
            inner = mul(inner, wide(axis.extent))
        return add(total, Pack(tuple(mul(inner, Const(k, DType.I64)) for k in range(lanes))))


def _replaced(expr: Expr, known: Mapping[Expr, Var]) -> Expr:
    """``expr`` with known subexpressions replaced, the outermost first."""
    memo: dict[int, Expr] = {}

    def visit(node: Expr) -> Expr:
        if id(node) not in memo:
            memo[id(node)] = _visit(node)
        return memo[id(node)]

    def _visit(node: Expr) -> Expr:
        if node in known:
            return known[node]
        if isinstance(node, Call):
            return Call(node.fn, tuple(visit(a) for a in node.args), node.dtype, node.lanes)
        return node

    return visit(expr)


# ------------------------------------------------------------------------------------------------ reductions


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The registers of one reduction's tuple, one array a component, ``slots`` tuples of ``lanes`` elements."""

    reduction: Reduction
    arrays: tuple[RegArray, ...]

    @classmethod
    def of(
        cls, reduction: Reduction, names: Names, stem: str, slots: int, lanes: int, blank: bool = False
    ) -> Accumulator:
        """The identity in every slot; ``blank``: nothing, each slot's first element is put there."""
        identity = reduction.algebra.identity_values(reduction.dtype)
        arrays = tuple(
            RegArray(
                names(clean(f"{stem}_{reduction.name}.{k}")), dtype, (slots,), lanes, None if blank else identity[k]
            )
            for k, dtype in enumerate(reduction.dtypes)
        )
        return cls(reduction, arrays)

    def slot(self, number: int) -> tuple[Reg, ...]:
        return tuple(array.at(number) for array in self.arrays)


def clean(name: str) -> str:
    """A result's name as an identifier."""
    return name.replace(":", "").replace(".", "")


def lifted(reduction: Reduction, values: Sequence[Expr], position: Expr | None) -> tuple[Expr, ...]:
    """The tuple of one element, its components in their own types."""
    env = {f"x{k}": value for k, value in enumerate(values)}
    if position is not None:
        env["i"] = position
    parts = instantiate(reduction.algebra, reduction.algebra.lift, env)
    return tuple(cast(part, dtype) for part, dtype in zip(parts, reduction.dtypes, strict=True))


def merged(reduction: Reduction, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
    """The tuple of two."""
    env = {f"a{k}": e for k, e in enumerate(left)} | {f"b{k}": e for k, e in enumerate(right)}
    parts = instantiate(reduction.algebra, reduction.algebra.combine, env)
    return tuple(cast(part, dtype) for part, dtype in zip(parts, reduction.dtypes, strict=True))


def assign(target: Sequence[Reg], values: Sequence[Expr], names: Names) -> list[Stmt]:
    """All components at once: each may read the old values of the others."""
    if len(target) == 1:
        return [RegSet(target[0], widened(values[0], target[0].lanes))]
    lets = [Let(names("next"), widened(value, reg.lanes)) for reg, value in zip(target, values, strict=True)]
    return [*lets, *(RegSet(reg, let.var) for reg, let in zip(target, lets, strict=True))]


def accumulate(step: Step, accumulator: Accumulator, slot: int, first: bool = False) -> None:
    """Feeds this step's elements to one of the accumulator's tuples; ``first``: they are its first."""
    reduction, names = accumulator.reduction, step.row.names
    values = [step.value(value) for value in reduction.values]
    needs_position = any(isinstance(n, Var) and n.name == "i" for e in reduction.algebra.lift for n in walk(e))
    element = lifted(reduction, values, step.position() if needs_position else None)
    if len(element) > 1:
        element = tuple(step.named("element", part) for part in element)
    target = accumulator.slot(slot)
    step.out += assign(target, element if first else merged(reduction, target, element), names)


def folded(accumulator: Accumulator, slots: int, names: Names, body: list[Stmt]) -> tuple[Expr, ...]:
    """The ``slots`` tuples of an accumulator merged pairwise into one."""
    reduction = accumulator.reduction
    tuples: list[tuple[Expr, ...]] = [accumulator.slot(k) for k in range(slots)]
    return _tree(reduction, tuples, names, body)


def across_lanes(reduction: Reduction, values: tuple[Expr, ...], names: Names, body: list[Stmt]) -> tuple[Expr, ...]:
    """The lanes of a vector tuple merged pairwise into one scalar tuple."""
    lanes = values[0].lanes
    if lanes == 1:
        return values
    return _tree(reduction, [tuple(Lane(v, k) for v in values) for k in range(lanes)], names, body)


def _tree(reduction: Reduction, tuples: list[tuple[Expr, ...]], names: Names, body: list[Stmt]) -> tuple[Expr, ...]:
    while len(tuples) > 1:
        half = (len(tuples) + 1) // 2
        joined: list[tuple[Expr, ...]] = []
        for k in range(half):
            if k + half >= len(tuples):
                joined.append(tuples[k])
                continue
            lets = [Let(names("merged"), part) for part in merged(reduction, tuples[k], tuples[k + half])]
            body += lets
            joined.append(tuple(let.var for let in lets))
        tuples = joined
    return tuples[0]


def loop(var: Var, start: Expr, stop: Expr, step: Expr, body: Iterable[Stmt]) -> list[Stmt]:
    """A loop, or nothing where its bounds are constant and it would not run."""
    stmts = tuple(body)
    if isinstance(stop, Const) and stop.value <= (start.value if isinstance(start, Const) else 0):
        return []
    return [For(var.name, start, stop, step, stmts)]


def is_multiple(extent: Expr, size: int) -> bool:
    """Whether ``extent`` is known to be a multiple of ``size``."""
    return size == 1 or (isinstance(extent, Const) and extent.value % size == 0)


def buffers(body: list[Stmt]) -> set[str]:
    """Names of all buffers that statements touch, through views or not."""
    used: set[str] = set()
    for stmt in statements(tuple(body)):
        if isinstance(stmt, View):
            used.add(stmt.buffer)
        if hasattr(stmt, "buffer"):
            used.add(stmt.buffer)
        for expr in stmt.exprs:
            used |= {node.buffer for node in walk(expr) if isinstance(node, Mem)}
    return used
