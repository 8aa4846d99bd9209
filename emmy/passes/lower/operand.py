"""Operands of matrix atoms: how a factor lies in memory, its swizzled tile in shared memory, and how threads fill it.

A tile is held in the direction in which the factor is contiguous: ``rows × cols`` with cols along k (and rows along m
or n), or the other way round. Its columns are cut into panels of a span of at most 128 bytes; inside a panel 16-byte
chunks are permuted by the row (emmy.ir.fragment.Swizzle). That is free of bank conflicts both ways: ldmatrix reads one
chunk of eight rows that follow each other, and the permutation puts these into eight different groups of four banks; a
copy writes eight chunks of one row (of two, four rows where the span is 64, 32 bytes), which stay distinct.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Load, add, floordiv, i32, is_const, mod, mul, walk
from emmy.ir.fragment import Swizzle
from emmy.ir.kernel import TID, Shared
from emmy.ir.nest import Axis
from emmy.passes.lower.access import Memory, affine, flat_offset, upper_bound
from emmy.passes.lower.tile import loads_of, vector_fits

HALVES = (DType.F16, DType.BF16)
COPY_BYTES = (16, 8, 4)
"""What cp.async moves at once."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor of a contraction on atoms.

    load: the factor where it is a plain tensor of ``dtype``, None where it has a prologue. along_k: k is the contiguous
    axis. lanes: elements that one access moves along the contiguous axis (8: 16 bytes; 1 where nothing is aligned).
    """

    factor: Expr
    load: Load | None
    dtype: DType
    across: Axis
    along_k: bool
    lanes: int

    def inner(self, k: Axis) -> Axis:
        """The contiguous axis."""
        return k if self.along_k else self.across

    @property
    def async_copies(self) -> bool:
        """Whether cp.async can bring it: a plain tensor in pieces of at least 4 bytes."""
        return self.load is not None and self.lanes * self.dtype.nbytes in COPY_BYTES


def operand(memory: Memory, factor: Expr, across: Axis, k: Axis) -> Operand:
    """The factor as an operand. Raises Refused where it is of no single 16-bit type."""
    load = _plain(factor, memory)
    loads = [load] if load is not None else loads_of(factor)
    dtype = memory.tensors[load.tensor].dtype if load is not None else _half_of(factor)
    if dtype not in HALVES:
        raise Refused("operands_16_bit", found=dtype.value, expected="f16 or bf16")
    if (
        load is not None
        and affine(flat_offset(memory.tensors[load.tensor], load.index), frozenset(memory.extents)) is None
    ):
        raise Refused("operand_affine", found=f"{load.tensor} at computed coordinates", expected="an affine access")
    strides = [(memory.stride(one, k.name), memory.stride(one, across.name)) for one in loads]

    def runs_along(side: int) -> bool:
        steps = [pair[side] for pair in strides]
        return all(s is not None and (is_const(s, 0) or is_const(s, 1)) for s in steps) and any(
            s is not None and is_const(s, 1) for s in steps
        )

    along_k = runs_along(0) or not runs_along(1)
    inner, side = (k, 0) if along_k else (across, 1)
    lanes = 1
    if runs_along(side):
        lanes = next(v for v in (8, 4, 2, 1) if _all_fit(memory, loads, inner, v))
    return Operand(factor, load, dtype, across, along_k, lanes)


def _all_fit(memory: Memory, loads: list[Load], inner: Axis, lanes: int) -> bool:
    if lanes == 1:
        return True
    if not isinstance(inner.extent, Const) or inner.extent.value % lanes:
        return False
    for load in loads:
        step = memory.stride(load, inner.name)
        if step is not None and is_const(step, 1) and not vector_fits(memory, load, inner, lanes):
            return False
    return True


def _plain(factor: Expr, memory: Memory) -> Load | None:
    """The load that a factor is, up to exact widening."""
    while isinstance(factor, Call) and factor.fn == "cast" and factor.dtype == DType.F32:
        factor = factor.args[0]
    if isinstance(factor, Load) and factor.tensor in memory.tensors and memory.tensors[factor.tensor].dtype in HALVES:
        return factor
    return None


def _half_of(factor: Expr) -> DType:
    """The one 16-bit float type that a factor reads or rounds to; float32 where there is none, or several."""
    found = {node.dtype for node in walk(factor) if isinstance(node, Load | Call) and node.dtype in HALVES}
    return found.pop() if len(found) == 1 else DType.F32


@dataclass(frozen=True, slots=True)
class SwizzledTile:
    """``rows × cols`` of ``dtype`` in panels of ``span`` columns, chunks permuted by ``swizzle`` inside a panel."""

    name: str
    dtype: DType
    rows: int
    cols: int
    span: int
    swizzle: Swizzle

    @property
    def elements(self) -> int:
        return self.rows * self.cols

    def shared(self, copies: int) -> Shared:
        return Shared(self.name, self.dtype, self.elements * copies, 128)

    def at(self, row: Expr, col: Expr) -> Expr:
        """Element offset of (row, col)."""
        most = upper_bound(col, {})
        first = self.span == self.cols or (most is not None and most < self.span)
        within = col if first else mod(col, i32(self.span))
        inside = self.swizzle.element(add(mul(row, i32(self.span)), within), self.dtype.nbytes)
        return inside if first else add(mul(floordiv(col, i32(self.span)), i32(self.rows * self.span)), inside)


def operand_tile(name: str, dtype: DType, rows: int, cols: int) -> SwizzledTile:
    """A tile that ldmatrix reads; rows and cols are multiples of 8."""
    span = next(s for s in (64, 32, 16, 8) if cols % s == 0)
    return SwizzledTile(name, dtype, rows, cols, span, Swizzle.of_span(span * dtype.nbytes))


def result_tile(name: str, dtype: DType, rows: int, cols: int) -> SwizzledTile:
    """A tile that a warp writes out of its accumulators, two columns a lane, and reads back in rows of 16-byte chunks.

    16-bit elements: a store writes a chunk of eight rows, as ldmatrix reads it. float32: half a warp writes 32 bytes of
    four rows; the permutation moves pairs of chunks.
    """
    if dtype.nbytes == 2:
        return operand_tile(name, dtype, rows, cols)
    span = next(s for s in (32, 16, 8) if cols % s == 0)
    bits = {32: 2, 16: 1, 8: 0}[span]
    return SwizzledTile(name, dtype, rows, cols, span, Swizzle(bits, 5, 2))


@dataclass(frozen=True, slots=True)
class Part:
    """What a thread copies in one pass: ``(row + row_at, col + col_at)``, with a variable and a constant part each.

    number: of the first thread's chunk; total: chunks of the tile. whole: every thread has a chunk in this pass.
    """

    row: Expr
    col: Expr
    row_at: int
    col_at: int
    number: int
    total: int
    whole: bool


def parts(tile: SwizzledTile, threads: int, lanes: int) -> Iterator[Part]:
    """The passes in which ``threads`` threads fill a tile, ``lanes`` elements each.

    Threads walk a panel row by row. Where the passes are whole rows of whole panels, the variable part is the same for
    all of them, so that one pointer and one shared-memory offset serve them all.
    """
    per_row = tile.span // lanes
    total = tile.elements // lanes
    step = threads // per_row
    regular = threads % per_row == 0 and (tile.rows % step == 0 or step % tile.rows == 0)
    for number in range(0, total, threads):
        whole = number + threads <= total
        line: Expr
        if not regular:
            chunk = add(TID, i32(number))
            line = floordiv(chunk, i32(per_row))
            col = add(mul(floordiv(line, i32(tile.rows)), i32(tile.span)), mul(mod(chunk, i32(per_row)), i32(lanes)))
            yield Part(mod(line, i32(tile.rows)), col, 0, 0, number, total, whole)
            continue
        line, col = floordiv(TID, i32(per_row)), mul(mod(TID, i32(per_row)), i32(lanes))
        at = number // per_row
        if step > tile.rows:
            col = add(mul(floordiv(line, i32(tile.rows)), i32(tile.span)), col)
            line = mod(line, i32(tile.rows))
        yield Part(line, col, at % tile.rows, at // tile.rows * tile.span, number, total, whole)
