"""Scalar and vector expressions: one grammar for index arithmetic, nests and kernels.

    Expr ::= Const(value, dtype)
           | Var(name, dtype, lanes)             an axis, a size symbol, a kernel's let, a thread or block index
           | Call(fn, args, dtype, lanes)        a function of emmy.ir.scalar.FUNCTIONS, element-wise over lanes
           | Load(tensor, index, dtype)          nests: one element of a tensor by its logical coordinates
           | Mem(buffer, offset, dtype, lanes, guard, fill)   kernels: lanes consecutive elements from an offset
           | Reg(name, index, dtype, lanes)      kernels: one slot of a register array, by constant indices only
           | Lane(value, lane) | Pack(values) | Splat(value, lanes)

A value with ``lanes > 1`` is a short vector; a scalar operand of a vector call is broadcast. Expressions are values:
they compare and hash by content, and a shared subexpression is a shared object (a DAG), which the printers use.
The constructors at the bottom fold constants and apply the identities that keep index arithmetic small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from emmy.ir.dtype import DType

Number = int | float | bool


class Expr:
    """Base of all expressions. ``dtype``: element type of the value; ``lanes``: vector width (1 = scalar)."""

    __slots__ = ()
    dtype: DType
    lanes: int

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def __add__(self, other: Expr | Number) -> Expr:
        return add(self, lift(other, self.dtype))

    def __radd__(self, other: Number) -> Expr:
        return add(lift(other, self.dtype), self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return sub(self, lift(other, self.dtype))

    def __rsub__(self, other: Number) -> Expr:
        return sub(lift(other, self.dtype), self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return mul(self, lift(other, self.dtype))

    def __rmul__(self, other: Number) -> Expr:
        return mul(lift(other, self.dtype), self)

    def __floordiv__(self, other: Expr | Number) -> Expr:
        return floordiv(self, lift(other, self.dtype))

    def __mod__(self, other: Expr | Number) -> Expr:
        return mod(self, lift(other, self.dtype))


@dataclass(frozen=True, slots=True)
class Const(Expr):
    value: Number
    dtype: DType = DType.I32
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Var(Expr):
    name: str
    dtype: DType = DType.I32
    lanes: int = 1


@dataclass(frozen=True)
class Call(Expr):
    """``fn`` applied element-wise; ``cast`` converts its argument to ``dtype``."""

    fn: str
    args: tuple[Expr, ...]
    dtype: DType
    lanes: int = 1

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    @cached_property
    def _hash(self) -> int:
        return hash((self.fn, self.args, self.dtype, self.lanes))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """Element ``index`` (logical coordinates) of a tensor or of a computation's result (``name`` or ``name.k``)."""

    tensor: str
    index: tuple[Expr, ...]
    dtype: DType
    lanes: int = 1

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.index


@dataclass(frozen=True, slots=True)
class Mem(Expr):
    """``lanes`` consecutive elements of ``buffer`` from element ``offset`` (int32 inside a view, int64 on a parameter).

    Where ``guard`` (bool, scalar) is false nothing is read and the value is ``fill``. ``dtype`` is the storage type.
    ``aligned``: the offset is a multiple of ``lanes`` and the base is aligned, so one wide access may be used.
    ``early``: the access is not moved behind a barrier that follows it (CUDA: not through the read-only path, whose
    loads the assembler puts off to save registers).
    """

    buffer: str
    offset: Expr
    dtype: DType
    lanes: int = 1
    guard: Expr | None = None
    fill: Number = 0
    aligned: bool = False
    early: bool = False

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.offset,) if self.guard is None else (self.offset, self.guard)


@dataclass(frozen=True, slots=True)
class Reg(Expr):
    """Slot ``index`` of register array ``name``; indices are constants, or variables of loops that are unrolled."""

    name: str
    index: tuple[Expr, ...]
    dtype: DType
    lanes: int = 1

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.index


@dataclass(frozen=True, slots=True)
class Lane(Expr):
    """Scalar ``lane`` of a vector value."""

    value: Expr
    lane: int

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.value.dtype

    @property
    def lanes(self) -> int:  # type: ignore[override]
        return 1

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True, slots=True)
class Pack(Expr):
    """A vector made of scalars."""

    values: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.values[0].dtype

    @property
    def lanes(self) -> int:  # type: ignore[override]
        return len(self.values)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.values


@dataclass(frozen=True, slots=True)
class Splat(Expr):
    """A scalar repeated over ``lanes``."""

    value: Expr
    lanes: int

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.value.dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)


# ---------------------------------------------------------------------------------------------------- traversal


def walk(root: Expr) -> Iterator[Expr]:
    """Every distinct subexpression once, children before parents."""
    seen: set[int] = set()
    stack: list[tuple[Expr, tuple[Expr, ...] | None]] = [(root, root.children)]
    while stack:
        node, children = stack.pop()
        if children is None:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, None))
            for child in children[::-1]:
                below = child.children
                if below:
                    stack.append((child, below))
                elif id(child) not in seen:
                    seen.add(id(child))
                    yield child


def rebuild(node: Expr, children: tuple[Expr, ...]) -> Expr:
    """``node`` with other children, through the folding constructors; lanes and result types follow the children."""
    match node:
        case Const() | Var():
            return node
        case Call(fn, _, dtype, _):
            return call(fn, *children, dtype=dtype if fn == "cast" else None)
        case Load(tensor, _, dtype, lanes):
            return Load(tensor, children, dtype, lanes)
        case Mem(_, _, _, _, guard):
            return replace(node, offset=children[0], guard=None if guard is None else children[1])
        case Reg(name, _, dtype, lanes):
            return Reg(name, children, dtype, lanes)
        case Lane(_, lane):
            return Lane(children[0], lane)
        case Pack():
            return Pack(children)
        case Splat(_, lanes):
            return Splat(children[0], lanes)
    raise TypeError(f"not an expression: {node!r}")


def transform(root: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up rewrite: ``rule`` sees each node with its new children and returns a new node, or None to keep it.

    Sharing is kept: a subexpression that occurs twice is rewritten once.
    """
    done: dict[int, Expr] = {}
    for node in walk(root):
        old = node.children
        new = tuple(done[id(child)] for child in old)
        built = node if all(a is b for a, b in zip(old, new, strict=True)) else rebuild(node, new)
        replaced = rule(built)
        done[id(node)] = built if replaced is None else replaced
    return done[id(root)]


def substitute(root: Expr, values: Mapping[str, Expr]) -> Expr:
    """``root`` with every ``Var`` named in ``values`` replaced."""
    return transform(root, lambda node: values.get(node.name) if isinstance(node, Var) else None)


def free_vars(root: Expr) -> frozenset[str]:
    """Names of the variables in ``root``."""
    return frozenset(node.name for node in walk(root) if isinstance(node, Var))


def depth(root: Expr) -> int:
    """Levels of nesting; 1 for an expression without children."""
    levels: dict[int, int] = {}
    for node in walk(root):
        levels[id(node)] = 1 + max((levels[id(child)] for child in node.children), default=0)
    return levels[id(root)]


def tree_size(root: Expr, of_load: Callable[[Load], int] = lambda _: 1) -> int:
    """Nodes of the expression written out: what occurs twice counts twice. of_load: nodes that a load stands for."""
    sizes: dict[int, int] = {}
    for node in walk(root):
        own = of_load(node) if isinstance(node, Load) else 1
        sizes[id(node)] = own + sum(sizes[id(child)] for child in node.children)
    return sizes[id(root)]


# ------------------------------------------------------------------------------------------------- constructors


def lift(value: Expr | Number, dtype: DType) -> Expr:
    """``value`` as an expression; a Python number becomes a constant of ``dtype``."""
    return value if isinstance(value, Expr) else Const(value, dtype)


def i32(value: int) -> Const:
    return Const(int(value), DType.I32)


def f32(value: float) -> Const:
    return Const(float(value), DType.F32)


def is_const(node: Expr, value: Number | None = None) -> bool:
    return isinstance(node, Const) and (value is None or node.value == value)


def call(fn: str, *args: Expr, dtype: DType | None = None) -> Expr:
    """``fn(args)``, constants folded and the cheap identities applied. ``dtype`` is required for ``cast`` only.

    Raises KeyError for a function that emmy.ir.scalar.FUNCTIONS does not hold.
    """
    from emmy.ir.scalar import FUNCTIONS

    function = FUNCTIONS[fn]
    out = function.result(args) if dtype is None else dtype
    if fn == "cast" and args[0].dtype == out:
        return args[0]
    if all(isinstance(arg, Const) for arg in args):
        return function.fold(tuple(arg for arg in args if isinstance(arg, Const)), out)
    simple = function.simplify(args) if function.simplify else None
    if simple is not None:
        return simple
    return Call(fn, tuple(args), out, max((arg.lanes for arg in args), default=1))


def add(a: Expr, b: Expr) -> Expr:
    return call("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    return call("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return call("mul", a, b)


def floordiv(a: Expr, b: Expr) -> Expr:
    """Integer division rounded toward minus infinity (operands of index arithmetic are never negative)."""
    return call("floordiv", a, b)


def mod(a: Expr, b: Expr) -> Expr:
    return call("mod", a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    return call("min", a, b)


def lt(a: Expr, b: Expr) -> Expr:
    return call("lt", a, b)


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """Conjunction of two guards, either of which may be absent."""
    if a is None or b is None:
        return b if a is None else a
    return call("and", a, b)


def select(cond: Expr, yes: Expr, no: Expr) -> Expr:
    return call("select", cond, yes, no)


def cast(value: Expr, dtype: DType) -> Expr:
    return call("cast", value, dtype=dtype)


def ceil_div(a: Expr, b: int) -> Expr:
    """``ceil(a / b)`` for non-negative ``a``."""
    return floordiv(add(a, i32(b - 1)), i32(b))


def evaluate_int(root: Expr, values: Mapping[str, int]) -> int:
    """The integer value of an index expression, given its variables. Raises KeyError for a missing one."""
    result = substitute(root, {name: Const(int(value), DType.I32) for name, value in values.items()})
    if not isinstance(result, Const):
        raise KeyError(f"no value for {', '.join(sorted(free_vars(result)))}")
    return int(result.value)
