"""Fragments: matrix tiles held across the lanes of a warp or warpgroup, described by layouts that are data.

A layout says which element of the tile each (lane, register) holds. Epilogue coordinates, masks, row reductions, the
addresses of ldmatrix and the accumulator-to-operand recast all derive from it. A slot of a ``Fragments`` array is a
register vector (``Reg`` with one lane an element the thread holds), so that arithmetic on accumulators is ordinary
vector arithmetic.

Layouts are those of the PTX ISA: "Matrix fragments for mma.m16n8k16" and "Register fragments for wgmma.mma_async".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emmy.errors import EmmyError
from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Lane, Number, Pack, Reg, call, i32
from emmy.ir.kernel import Stmt

WARP, WARPGROUP = 32, 128


@dataclass(frozen=True, slots=True)
class Term:
    """Digit ``(source // div) % mod`` of the lane or register number, and how far it moves along rows and columns."""

    source: str
    div: int
    mod: int
    row: int
    col: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where element ``register`` of ``lane`` lies in a tile of rows × cols: the sum of its terms' moves."""

    rows: int
    cols: int
    lanes: int
    registers: int
    terms: tuple[Term, ...]

    def coords(self, lane: Any, register: Any) -> tuple[Any, Any]:
        """(row, column) for integers or integer arrays."""
        row, col = 0, 0
        for term in self.terms:
            digit = (lane if term.source == "lane" else register) // term.div % term.mod
            row, col = row + digit * term.row, col + digit * term.col
        return row, col

    def table(self) -> tuple[Any, Any]:
        """(rows, columns) of all elements as arrays of shape (lanes, registers)."""
        import numpy as np

        row, col = self.coords(np.arange(self.lanes)[:, None], np.arange(self.registers)[None, :])
        shape = (self.lanes, self.registers)
        return np.broadcast_to(row, shape), np.broadcast_to(col, shape)

    def row(self, lane: Expr, register: int) -> Expr:
        """Row of the element ``register`` of ``lane`` as an index expression."""
        return self._place(lane, register, 0)

    def col(self, lane: Expr, register: int) -> Expr:
        """Column of the element ``register`` of ``lane`` as an index expression."""
        return self._place(lane, register, 1)

    def _place(self, lane: Expr, register: int, axis: int) -> Expr:
        total: Expr = i32(0)
        constant = 0
        for term in self.terms:
            step = term.col if axis else term.row
            if not step:
                continue
            if term.source == "register":
                constant += register // term.div % term.mod * step
                continue
            digit = lane // term.div
            if term.div * term.mod < self.lanes:
                digit = digit % term.mod
            total = total + digit * step
        return total + constant

    def rows_of_thread(self) -> tuple[tuple[int, ...], ...]:
        """Registers of a thread grouped by the row they lie in, in the order of rows."""
        groups: dict[int, list[int]] = {}
        for register in range(self.registers):
            groups.setdefault(self.coords(0, register)[0], []).append(register)
        return tuple(tuple(groups[row]) for row in sorted(groups))

    def row_group(self) -> int:
        """Number of consecutive lanes that share their rows: a row reduction combines over them.

        Raises EmmyError where the lanes that share a row are not consecutive.
        """
        group = 1
        for term in sorted((t for t in self.terms if t.source == "lane"), key=lambda t: t.div):
            if term.row == 0 and term.div == group:
                group *= term.mod
        shared = [t for t in self.terms if t.source == "lane" and t.row == 0 and t.div >= group]
        if shared:
            raise EmmyError("a row of this layout is spread over lanes that are not consecutive")
        return group


def _lane(div: int, mod: int, row: int = 0, col: int = 0) -> Term:
    return Term("lane", div, mod, row, col)


def _reg(div: int, mod: int, row: int = 0, col: int = 0) -> Term:
    return Term("register", div, mod, row, col)


MMA_A = Layout(16, 16, WARP, 8, (_lane(4, 8, row=1), _lane(1, 4, col=2), _reg(1, 2, col=1), _reg(2, 2, row=8),
                                 _reg(4, 2, col=8)))  # fmt: skip
MMA_B = Layout(16, 8, WARP, 4, (_lane(4, 8, col=1), _lane(1, 4, row=2), _reg(1, 2, row=1), _reg(2, 2, row=8)))
MMA_C = Layout(16, 8, WARP, 4, (_lane(4, 8, row=1), _lane(1, 4, col=2), _reg(1, 2, col=1), _reg(2, 2, row=8)))


def wgmma_a() -> Layout:
    """A operand of a warpgroup in registers: 64×16, four warps below each other."""
    return Layout(64, 16, WARPGROUP, 8, (_lane(32, 4, row=16), *MMA_A.terms))


def wgmma_c(n: int) -> Layout:
    """Accumulator of a warpgroup: 64×n, four warps below each other, columns in eights."""
    return Layout(64, n, WARPGROUP, n // 2, (_lane(32, 4, row=16), *MMA_C.terms, _reg(4, n // 8, col=8)))


@dataclass(frozen=True, slots=True)
class Atom:
    """A matrix instruction ``c += a × b``: m×n×k, types, and the layout of each role.

    b of a warpgroup atom is always in shared memory; its layout is None. ``arch``: the first that has it.
    """

    name: str
    m: int
    n: int
    k: int
    operand: DType
    acc: DType
    a: Layout
    b: Layout | None
    c: Layout
    arch: str

    @property
    def lanes(self) -> int:
        """Threads that execute it together: a warp or a warpgroup."""
        return self.c.lanes

    @property
    def is_wgmma(self) -> bool:
        return self.lanes == WARPGROUP

    def layout(self, role: str) -> Layout:
        """Layout of role ``a``, ``b`` or ``c``. Raises KeyError where the role is not held in registers."""
        layout = {"a": self.a, "b": self.b, "c": self.c}[role]
        if layout is None:
            raise KeyError(f"{self.name} has no {role} in registers")
        return layout

    def dtype(self, role: str) -> DType:
        return self.acc if role == "c" else self.operand


def _atoms() -> dict[str, Atom]:
    rows = [
        Atom(f"mma_m16n8k16_{operand.value}_{acc.value}", 16, 8, 16, operand, acc, MMA_A, MMA_B, MMA_C, "sm_80")
        for operand, acc in ((DType.F16, DType.F32), (DType.F16, DType.F16), (DType.BF16, DType.F32))
    ]
    rows += [
        Atom(f"wgmma_m64n{n}k16_{operand.value}_{acc.value}", 64, n, 16, operand, acc, wgmma_a(), None, wgmma_c(n),
             "sm_90a")
        for operand, acc in ((DType.F16, DType.F32), (DType.F16, DType.F16), (DType.BF16, DType.F32))
        for n in range(8, 257, 8)
    ]  # fmt: skip
    return {row.name: row for row in rows}


ATOMS: dict[str, Atom] = _atoms()


@dataclass(frozen=True, slots=True)
class Swizzle:
    """XORs ``bits`` bits of a byte offset, from bit ``base`` on, with those ``shift`` higher.

    ``Swizzle(3)`` is the 128-byte pattern of tensor maps and wgmma descriptors, ``Swizzle(2)`` the 64-byte and
    ``Swizzle(1)`` the 32-byte one; ``Swizzle(0)`` leaves offsets as they are.
    """

    bits: int
    base: int = 4
    shift: int = 3

    def bytes_at(self, offset: Any) -> Any:
        """The swizzled byte offset (integers or arrays)."""
        return offset ^ ((offset >> self.shift) & (((1 << self.bits) - 1) << self.base))

    def element(self, offset: Expr, nbytes: int) -> Expr:
        """The swizzled offset in elements of ``nbytes``."""
        if not self.bits:
            return offset
        base = self.base - (nbytes.bit_length() - 1)
        mask = ((1 << self.bits) - 1) << base
        return call("bitxor", offset, call("bitand", call("shr", offset, i32(self.shift)), i32(mask)))

    @property
    def span_bytes(self) -> int:
        """Width of a row that the pattern permutes: 16 bytes when it does not."""
        return 16 << self.bits

    @classmethod
    def of_span(cls, span_bytes: int) -> Swizzle:
        """The pattern for rows of 16 (none), 32, 64 or 128 bytes. Raises KeyError for another width."""
        return cls({0: 0, 16: 0, 32: 1, 64: 2, 128: 3}[span_bytes])


# ------------------------------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Fragments(Stmt):
    """An array of ``shape`` tiles of ``atom`` in ``role`` (``a``, ``b``, ``c``), filled with ``init`` unless None."""

    name: str
    atom: str
    role: str
    shape: tuple[int, ...]
    init: Number | None = None

    @property
    def defines(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def layout(self) -> Layout:
        return ATOMS[self.atom].layout(self.role)

    @property
    def dtype(self) -> DType:
        return ATOMS[self.atom].dtype(self.role)

    @property
    def packed(self) -> bool:
        """Whether a register holds two elements."""
        return self.dtype.nbytes == 2

    def at(self, *index: Expr | int) -> Reg:
        """The tile at ``index``: a vector of the elements this thread holds."""
        exprs = tuple(Const(i, DType.I32) if isinstance(i, int) else i for i in index)
        return Reg(self.name, exprs, self.dtype, self.layout.registers)


@dataclass(frozen=True, slots=True)
class LdMatrix(Stmt):
    """Loads 8×8 matrices of 16-bit elements from shared memory into ``targets``, two elements a lane each, in order.

    Lane ``8 * i + r`` gives the ``offset`` (elements, a multiple of 8) of row r of matrix i; further lanes' offsets are
    not used. ``trans``: the matrices are transposed on the way.
    """

    targets: tuple[Reg, ...]
    buffer: str
    offset: Expr
    trans: bool = False

    @property
    def matrices(self) -> int:
        return sum(target.lanes for target in self.targets) // 2

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.offset, *(e for target in self.targets for e in target.index))


@dataclass(frozen=True, slots=True)
class Mma(Stmt):
    """``c += a × b`` by a warp."""

    atom: str
    c: Reg
    a: Reg
    b: Reg

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.c, self.a, self.b)


# ---------------------------------------------------------------------------------------------- derived from layouts


def matrix_rows(layout: Layout, lane: Expr, *, trans: bool = False) -> tuple[Expr, Expr]:
    """(row, column) in the tile of the matrix row whose address ``lane`` gives to LdMatrix.

    Matrix i fills registers 2i and 2i+1. Without ``trans`` a matrix's rows run along the tile's rows (operand a), with
    it along its columns' transpose: the returned coordinates are always the tile's own. Raises EmmyError for a layout
    that ldmatrix cannot fill.
    """
    count = layout.registers // 2
    which = lane // 8 % count if count * 8 < WARP else lane // 8
    within = lane % 8
    along_rows = layout.coords(4, 0) == (1, 0)  # lane 4 holds the next matrix row
    row: Expr = i32(0)
    col: Expr = i32(0)
    for term in layout.terms:
        if term.source != "register" or term.div == 1:
            continue
        digit = which // (term.div // 2)
        if term.div * term.mod < layout.registers:
            digit = digit % term.mod
        row, col = row + digit * term.row, col + digit * term.col
    if along_rows != trans:
        return row + within, col
    return row, col + within


def recast(atom: str, tiles: Sequence[Expr]) -> Pack:
    """Operand a of ``atom`` made of accumulator ``tiles`` side by side, each a vector of what this thread holds.

    No element changes its lane: every register of the operand is one of the accumulators' registers. Raises EmmyError
    where that is not so.
    """
    import numpy as np

    target, source = ATOMS[atom].a, ATOMS[atom].c
    lanes = np.arange(target.lanes)
    places: dict[bytes, tuple[int, int]] = {}
    for tile in range(len(tiles)):
        for register in range(source.registers):
            row, col = source.coords(lanes, register)
            places[np.stack([row, col + tile * source.cols]).tobytes()] = (tile, register)
    out: list[Expr] = []
    for register in range(target.registers):
        row, col = target.coords(lanes, register)
        found = places.get(np.stack([row, col]).tobytes())
        if found is None:
            raise EmmyError(f"{atom}: register {register} of operand a is no register of {len(tiles)} accumulators")
        out.append(Lane(tiles[found[0]], found[1]))
    return Pack(tuple(out))
