"""Kernel IR: one GPU kernel as statements that every thread of a block executes.

Values are scalars, short vectors (``lanes``) and fragments (see emmy.ir.fragment: a tile held across the lanes of a
warp, described by an atom, a role and a layout). Register arrays are indexed by constants only; a loop marked
``unroll="full"`` may index them with its variable, since expansion replaces it by its values.

    Kernel ::= params, shared buffers, block shape, body
    Stmt   ::= View(name, buffer, base, dtype)        a pointer into a buffer: 64-bit base, 32-bit offsets from there
             | Let(name, value)                       an immutable scalar or vector
             | RegArray(name, dtype, shape, lanes, init) | RegSet(target, value)
             | For(var, start, stop, step, body, unroll) | If(cond, then, orelse)
             | Store(buffer, offset, value, guard)    value.lanes consecutive elements
             | Atomic(op, buffer, offset, value, guard)
             | Barrier(scope) | Comment(text)
             | ClusterBarrier(phase)                  CUDA, sm_90 and later: the blocks of a cluster
             | PeerStore(buffer, offset, rank, value, guard)  into a shared array of another block of the cluster
             | Combine(...)                           a monoid over the threads of a group; expanded late
             | ShuffleXor(name, value, mask)          what expansion makes of a Combine inside a warp

Thread and block indices are the variables named in THREAD_VARS; sizes known at run time are ``ScalarParam``s.
Rings, roles, asynchronous copies and mbarriers stand in emmy.ir.pipeline, atoms and their layouts in
emmy.ir.fragment: they are statements too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Number, Reg, Var

TID = Var("tid", DType.I32)
"""Linear index of the thread in its block: ``tx + ty * bx``."""
TX, TY = Var("tx", DType.I32), Var("ty", DType.I32)
BX, BY, BZ = Var("bx", DType.I32), Var("by", DType.I32), Var("bz", DType.I32)
"""Block indices, int32."""
THREAD_VARS = frozenset(("tid", "tx", "ty", "bx", "by", "bz"))


@dataclass(frozen=True, slots=True)
class BufferParam:
    """A pointer parameter. ``writable`` False: const and restrict. ``align``: bytes its base is aligned to."""

    name: str
    dtype: DType
    writable: bool = False
    align: int = 64


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A by-value parameter: a size symbol (int32) or a number."""

    name: str
    dtype: DType = DType.I32


@dataclass(frozen=True, slots=True)
class TensorMapParam:
    """A TMA tensor map (CUtensorMap, 128 bytes, ``__grid_constant__``) of a tensor of ``dtype``.

    box: extent of one copy, outermost axis first. span_bytes: the swizzle (0, 32, 64 or 128); the innermost extent of
    the box is at most that wide.
    """

    name: str
    dtype: DType = DType.F16
    box: tuple[int, ...] = ()
    span_bytes: int = 0


Param = BufferParam | ScalarParam | TensorMapParam


@dataclass(frozen=True, slots=True)
class Shared:
    """A block-shared array of ``elements`` of ``dtype``. ``align`` in bytes."""

    name: str
    dtype: DType
    elements: int
    align: int = 16

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.nbytes


class Stmt:
    """Base of all statements."""

    __slots__ = ()

    @property
    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        """Nested statement lists."""
        return ()

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """Expressions evaluated by this statement itself."""
        return ()

    @property
    def defines(self) -> tuple[str, ...]:
        """Names that stand for something in the statements after this one."""
        return ()


class Operand:
    """Base of compound operands of statements: dataclasses of expressions, names and numbers."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Comment(Stmt):
    text: str


@dataclass(frozen=True, slots=True)
class View(Stmt):
    """``name`` = pointer to element ``base`` (int64) of ``buffer`` (a parameter, a shared array or a view)."""

    name: str
    buffer: str
    base: Expr
    dtype: DType

    @property
    def defines(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.base,)


@dataclass(frozen=True, slots=True)
class Let(Stmt):
    """``name`` = ``value``, never changed. Read as ``Var(name, value.dtype, value.lanes)``."""

    name: str
    value: Expr

    @property
    def defines(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.value,)

    @property
    def var(self) -> Var:
        return Var(self.name, self.value.dtype, self.value.lanes)


@dataclass(frozen=True, slots=True)
class RegArray(Stmt):
    """A register array of ``shape`` slots, each ``lanes`` wide; ``init`` fills every slot; None: undefined."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    lanes: int = 1
    init: Number | None = None

    @property
    def defines(self) -> tuple[str, ...]:
        return (self.name,)

    def at(self, *index: Expr | int) -> Reg:
        """The slot at ``index``."""
        exprs = tuple(Const(i, DType.I32) if isinstance(i, int) else i for i in index)
        return Reg(self.name, exprs, self.dtype, self.lanes)


@dataclass(frozen=True, slots=True)
class RegSet(Stmt):
    target: Reg
    value: Expr

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.value, *self.target.index)


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """``for var in range(start, stop, step)``. ``unroll``: ``""`` (a plain loop), ``"full"`` (replaced by its
    iterations before printing; needs constant bounds) or ``"hint"`` (a pragma)."""

    var: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Stmt, ...]
    unroll: str = ""

    @property
    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        return (self.body,)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.start, self.stop, self.step)


@dataclass(frozen=True, slots=True)
class If(Stmt):
    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()

    @property
    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        return (self.then, self.orelse)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.cond,)


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """Writes ``value.lanes`` consecutive elements, converted to the buffer's type; nothing where ``guard`` is false.

    ``value`` is evaluated either way: a load inside it needs a guard of its own. ``dtype`` is the buffer's storage
    type; ``aligned`` as in Mem.
    """

    buffer: str
    offset: Expr
    value: Expr
    dtype: DType
    guard: Expr | None = None
    aligned: bool = False

    @property
    def exprs(self) -> tuple[Expr, ...]:
        tail = () if self.guard is None else (self.guard,)
        return (self.offset, self.value, *tail)


@dataclass(frozen=True, slots=True)
class Atomic(Stmt):
    """``buffer[offset] = op(buffer[offset], value)`` atomically. ``op``: ``add``, ``max`` or ``min``; scalar."""

    op: str
    buffer: str
    offset: Expr
    value: Expr
    dtype: DType
    guard: Expr | None = None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        tail = () if self.guard is None else (self.guard,)
        return (self.offset, self.value, *tail)


@dataclass(frozen=True, slots=True)
class Barrier(Stmt):
    """All threads of ``scope`` wait for each other and see each other's shared writes.

    ``scope``: ``block``, ``warp`` (CUDA), or ``named`` (CUDA): hardware barrier ``id`` (1–15) of ``threads`` threads.
    """

    scope: str = "block"
    id: int = 0
    threads: int = 0


@dataclass(frozen=True, slots=True)
class ClusterBarrier(Stmt):
    """All threads of the cluster wait for each other; every thread of every block of the cluster reaches it.

    ``phase``: ``arrive`` (the thread says that it is here, and orders no memory), ``wait`` (it goes on when all have
    arrived) or ``sync`` (both, and all see each other's shared writes, those of PeerStore too). An arrive and its wait
    stand in one list of statements, with no other barrier of the cluster between.
    """

    phase: str


@dataclass(frozen=True, slots=True)
class PeerStore(Stmt):
    """Writes ``value.lanes`` (1, 2 or 4) consecutive float32 elements of a shared array of block ``rank`` (int32).

    ``buffer``: the shared array, or a view of it, as this block names it. ``rank``: of the block in the cluster, its
    own included. The block must be known to have started (a barrier of the cluster), and nothing orders the write
    before the cluster's next ``sync``. ``guard`` and ``aligned`` as in Store.
    """

    buffer: str
    offset: Expr
    rank: Expr
    value: Expr
    dtype: DType
    guard: Expr | None = None
    aligned: bool = False

    @property
    def exprs(self) -> tuple[Expr, ...]:
        tail = () if self.guard is None else (self.guard,)
        return (self.offset, self.rank, self.value, *tail)


@dataclass(frozen=True, slots=True)
class ShuffleXor(Stmt):
    """``name`` = the ``value`` of the thread of the same warp whose lane differs by ``mask``; CUDA only."""

    name: str
    value: Expr
    mask: int

    @property
    def defines(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.value,)

    @property
    def var(self) -> Var:
        return Var(self.name, self.value.dtype, self.value.lanes)


@dataclass(frozen=True, slots=True)
class Combine(Stmt):
    """Merges the tuples that ``group`` consecutive threads hold in ``regs`` with ``monoid``; all get the result.

    Threads ``[g * group, (g + 1) * group)`` of the linear thread index form group g. ``group`` is a power of two.
    Late expansion chooses shuffles (CUDA, inside a warp) and shared memory (``scratch``: one array a register,
    of one element a thread).
    """

    monoid: str
    regs: tuple[Reg, ...]
    group: int
    scratch: tuple[str, ...]

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return self.regs


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel. ``block``: threads (x, y). ``min_blocks``: blocks an SM should hold (``__launch_bounds__``).

    ``cluster``: so many blocks, neighbours in z, form a cluster: they run at the same time and reach each other's
    shared memory. A block's rank in its cluster is ``bz % cluster``; the grid's z extent is a multiple of ``cluster``.
    """

    name: str
    params: tuple[Param, ...]
    block: tuple[int, int]
    body: tuple[Stmt, ...]
    shared: tuple[Shared, ...] = ()
    min_blocks: int = 0
    cluster: int = 1

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1]

    @property
    def smem_bytes(self) -> int:
        """Shared memory in bytes, each array rounded up to its alignment."""
        total = 0
        for array in self.shared:
            total = -(-total // array.align) * array.align + array.nbytes
        return total


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, outer before inner."""
    for stmt in body:
        yield stmt
        for inner in stmt.bodies:
            yield from statements(inner)


_WORDS = frozenset(("text", "unroll", "op", "scope", "phase", "monoid", "dtype", "transport", "atom", "role", "major"))
"""Text fields of statements that are words of the grammar, not names of things."""


def rewrite(
    stmt: Stmt,
    expr: Callable[[Expr], Expr],
    body: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]],
    name: Callable[[str], str] = lambda name: name,
) -> Stmt:
    """``stmt`` with ``expr`` applied to its expressions, ``body`` to its statement lists and ``name`` to its names.

    ``name`` is not applied inside expressions: there ``expr`` sees to them.
    """

    def new(key: str, value: Any) -> Any:
        if isinstance(value, Expr):
            return expr(value)
        if isinstance(value, str):
            return value if key in _WORDS else name(value)
        if isinstance(value, Operand):
            return _changed(value, new)
        if isinstance(value, tuple) and value:
            if isinstance(value[0], Stmt):
                return body(value)
            return tuple(new(key, item) for item in value)
        return value

    changed: Stmt = _changed(stmt, new)
    return changed


def _changed(node: Any, new: Callable[[str, Any], Any]) -> Any:
    keys = _keys(node.__class__)
    values = [getattr(node, key) for key in keys]
    changed = [new(key, value) for key, value in zip(keys, values, strict=True)]
    same = all(one is other for one, other in zip(changed, values, strict=True))
    return node if same else type(node)(**dict(zip(keys, changed, strict=True)))


@cache
def _keys(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
