"""Pipelines: rings of shared-memory slots, roles of warps, and what late passes expand them to.

A ring loop is written once, in its plain order; how far it runs ahead and how copies travel is expansion's business:

    for step in 0 .. n:
        acquire ring, step          the slot ``step % depth`` is free
        fill ring, step: copies     into the slot
        commit ring, step           all copies of the step are issued
        wait ring, step             the slot's data are visible to all who wait
        … compute …
        release ring, step          the slot's data are no longer needed
        … what registers hold …     the next step's wait and first reads may be moved before this

``partition`` (emmy.passes.expand.roles) cuts the same loop into a producer's and a consumer's role. Transports:
``sync`` (through registers, block barriers), ``async`` (cp.async groups, block barriers), ``tma`` (tensor maps,
mbarriers).

Ring statements ::= Ring | Acquire | Fill | Commit | Wait | Release
Copies          ::= Copy(shared ← global) | TensorCopy(shared ← tensor map)
Roles           ::= Roles(Role, …)
Expanded        ::= CopyCommit | CopyWait | BarrierInit | BarrierFence | BarrierExpect | BarrierArrive | BarrierWait
Warpgroup       ::= WgmmaFence | Wgmma | WgmmaCommit | WgmmaWait | AsyncFence
"""

from __future__ import annotations

from dataclasses import dataclass

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Reg, i32
from emmy.ir.kernel import Operand, Stmt

TRANSPORTS = ("sync", "async", "tma")

_ZERO = i32(0)
_TRUE = Const(True, DType.BOOL)


@dataclass(frozen=True, slots=True)
class Ring(Stmt):
    """``depth`` slots in each of the shared arrays ``buffers``; a slot is ``elements // depth`` of an array.

    consumers: threads that wait and release, each of them once a step. All other threads, or the same ones, acquire,
    fill and commit; a ``tma`` ring is filled by the first of the threads that reach the fill.
    """

    name: str
    buffers: tuple[str, ...]
    depth: int
    transport: str
    consumers: int

    def slot(self, step: Expr) -> Expr:
        """Number of the slot that holds ``step``."""
        return step % self.depth if self.depth > 1 else i32(0)


class RingStmt(Stmt):
    """Base of the statements about one step of a ring."""

    __slots__ = ()
    ring: str
    step: Expr

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.step,)


@dataclass(frozen=True, slots=True)
class Acquire(RingStmt):
    """Waits until the consumers have released the step that held this slot before."""

    ring: str
    step: Expr


@dataclass(frozen=True, slots=True)
class Fill(RingStmt):
    """``body``: copies, or stores, into the slot of ``step``; tensor copies when the transport is ``tma``."""

    ring: str
    step: Expr
    body: tuple[Stmt, ...]

    @property
    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        return (self.body,)


@dataclass(frozen=True, slots=True)
class Commit(RingStmt):
    """All copies into the slot of ``step`` are issued."""

    ring: str
    step: Expr


@dataclass(frozen=True, slots=True)
class Wait(RingStmt):
    """Waits until the data of ``step`` are there, for all who wait."""

    ring: str
    step: Expr


@dataclass(frozen=True, slots=True)
class Release(RingStmt):
    """The data of ``step`` are no longer needed by this thread."""

    ring: str
    step: Expr


@dataclass(frozen=True, slots=True)
class Copy(Stmt):
    """``lanes`` consecutive elements from global ``source`` to shared ``buffer``; zeros where ``guard`` is false.

    ``transport``: ``sync`` (load and store) or ``async`` (cp.async of 4, 8 or 16 bytes, visible after CopyWait).
    Offsets are multiples of ``lanes``.
    """

    buffer: str
    offset: Expr
    source: str
    source_offset: Expr
    lanes: int
    dtype: DType
    guard: Expr | None = None
    transport: str = "sync"

    @property
    def nbytes(self) -> int:
        return self.lanes * self.dtype.nbytes

    @property
    def exprs(self) -> tuple[Expr, ...]:
        tail = () if self.guard is None else (self.guard,)
        return (self.offset, self.source_offset, *tail)


@dataclass(frozen=True, slots=True)
class TensorCopy(Stmt):
    """The box of tensor map ``map`` at ``coords`` (outermost first) into shared ``buffer``; zeros outside the tensor.

    One thread issues it. Inside a Fill ``barrier`` is empty; expansion names the mbarrier (array and index) that counts
    the bytes.
    """

    buffer: str
    offset: Expr
    map: str
    coords: tuple[Expr, ...]
    barrier: str = ""
    index: Expr = _ZERO

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.offset, *self.coords, self.index)


@dataclass(frozen=True, slots=True)
class Role(Stmt):
    """Warps ``first … first + warps`` of the block run ``body``. ``registers``: a thread's budget (0: left alone)."""

    name: str
    first: int
    warps: int
    body: tuple[Stmt, ...]
    registers: int = 0

    @property
    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        return (self.body,)

    @property
    def threads(self) -> range:
        """Linear indices of its threads."""
        return range(self.first * 32, (self.first + self.warps) * 32)


@dataclass(frozen=True, slots=True)
class Roles(Stmt):
    """Roles side by side. They partition the block; no barrier of the block may stand inside."""

    roles: tuple[Role, ...]

    @property
    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        return (self.roles,)


@dataclass(frozen=True, slots=True)
class SetRegisters(Stmt):
    """setmaxnreg: the warpgroup's budget becomes ``count`` registers a thread; ``up``: it grows."""

    count: int
    up: bool


# ----------------------------------------------------------------------------------------------------- expanded


@dataclass(frozen=True, slots=True)
class CopyCommit(Stmt):
    """The asynchronous copies that each thread issued since the last commit form a group."""


@dataclass(frozen=True, slots=True)
class CopyWait(Stmt):
    """All but the last ``pending`` groups of this thread are done, and visible to this thread."""

    pending: int


class BarrierStmt(Stmt):
    """Base of the statements about mbarrier ``index`` of the shared int64 array ``barrier``."""

    __slots__ = ()
    barrier: str
    index: Expr

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.index,)


@dataclass(frozen=True, slots=True)
class BarrierInit(BarrierStmt):
    """One thread sets up the mbarrier: a phase completes after ``count`` arrivals and all expected bytes."""

    barrier: str
    index: Expr
    count: int


@dataclass(frozen=True, slots=True)
class BarrierFence(Stmt):
    """Makes the thread's BarrierInit statements visible to the copy engine."""


@dataclass(frozen=True, slots=True)
class BarrierExpect(BarrierStmt):
    """Arrives, and announces ``nbytes`` that copies will bring in this phase."""

    barrier: str
    index: Expr
    nbytes: int


@dataclass(frozen=True, slots=True)
class BarrierArrive(BarrierStmt):
    """Arrives; everything the thread did before is visible to those who wait for the phase."""

    barrier: str
    index: Expr


@dataclass(frozen=True, slots=True)
class BarrierWait(BarrierStmt):
    """Waits until the phase of parity ``parity`` (0 or 1) has completed; a fresh barrier passes parity 1."""

    barrier: str
    index: Expr
    parity: Expr

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.index, self.parity)


# ---------------------------------------------------------------------------------------------------- warpgroup


@dataclass(frozen=True, slots=True)
class Matrix(Operand):
    """An operand of a warpgroup atom in shared memory, starting ``offset`` elements into ``buffer``.

    major: ``k`` (k runs along a row) or ``mn``. A row is ``span_bytes`` wide (128, 64, 32: the swizzle); eight rows
    make a block. group_bytes: from a block to the next along the rows. panel_bytes: from a span to the next along a
    row's direction (major ``mn`` only).
    """

    buffer: str
    offset: Expr
    major: str
    span_bytes: int
    group_bytes: int
    panel_bytes: int = 16


@dataclass(frozen=True, slots=True)
class WgmmaFence(Stmt):
    """Orders the warpgroup's register accesses before the Wgmma statements that follow."""


@dataclass(frozen=True, slots=True)
class AsyncFence(Stmt):
    """Makes this thread's shared-memory writes visible to copies and warpgroup atoms."""


@dataclass(frozen=True, slots=True)
class Wgmma(Stmt):
    """Begins ``c += a × b`` (``c = a × b`` where ``accumulate`` is false); operands are in use until WgmmaWait."""

    atom: str
    c: Reg
    a: Matrix | Reg
    b: Matrix
    accumulate: Expr = _TRUE

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.c, self.a if isinstance(self.a, Reg) else self.a.offset, self.b.offset, self.accumulate)


@dataclass(frozen=True, slots=True)
class WgmmaCommit(Stmt):
    """The Wgmma statements since the last commit form a group."""


@dataclass(frozen=True, slots=True)
class WgmmaWait(Stmt):
    """All but the last ``pending`` groups are done."""

    pending: int
