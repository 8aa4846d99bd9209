"""Layouts are right element by element, and what derives from them agrees with what the interpreter does."""

from __future__ import annotations

import numpy as np
import pytest

from emmy.errors import EmmyError
from emmy.ir.dtype import DType
from emmy.ir.expr import Lane, Var, cast, evaluate_int
from emmy.ir.fragment import (
    ATOMS,
    MMA_A,
    MMA_B,
    MMA_C,
    Atom,
    Fragments,
    Layout,
    LdMatrix,
    Swizzle,
    matrix_rows,
    recast,
    wgmma_c,
)
from emmy.ir.interp import run_kernel
from emmy.ir.kernel import TID, Barrier, BufferParam, Kernel, Shared, Store
from emmy.ir.pipeline import Copy

WARP_ATOMS = [atom for atom in ATOMS.values() if not atom.is_wgmma]
LAYOUTS = [MMA_A, MMA_B, MMA_C, wgmma_c(8), wgmma_c(256), ATOMS["wgmma_m64n64k16_f16_f32"].a]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.rows}x{layout.cols}x{layout.registers}")
def test_every_element_is_held_once(layout: Layout) -> None:
    rows, cols = layout.table()
    held = np.zeros((layout.rows, layout.cols), int)
    np.add.at(held, (rows, cols), 1)
    assert (held == 1).all()


@pytest.mark.parametrize(
    ("layout", "lane", "register", "place"),
    [
        (MMA_A, 0, 0, (0, 0)), (MMA_A, 5, 1, (1, 3)), (MMA_A, 31, 2, (15, 6)), (MMA_A, 31, 7, (15, 15)),
        (MMA_B, 0, 1, (1, 0)), (MMA_B, 6, 2, (12, 1)), (MMA_B, 31, 3, (15, 7)),
        (MMA_C, 4, 0, (1, 0)), (MMA_C, 3, 3, (8, 7)), (wgmma_c(16), 37, 6, (25, 10)), (wgmma_c(8), 127, 3, (63, 7)),
    ],
)  # fmt: skip
def test_places_of_the_instruction_set(layout: Layout, lane: int, register: int, place: tuple[int, int]) -> None:
    """Worked from the figures of the PTX ISA."""
    assert layout.coords(lane, register) == place


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.rows}x{layout.cols}x{layout.registers}")
def test_expressions_say_the_same(layout: Layout) -> None:
    for lane in (0, 1, 7, 30, layout.lanes - 1):
        for register in range(layout.registers):
            row, col = layout.row(Var("lane"), register), layout.col(Var("lane"), register)
            got = evaluate_int(row, {"lane": lane}), evaluate_int(col, {"lane": lane})
            assert got == layout.coords(lane, register)


def test_rows_are_shared_by_quads() -> None:
    for layout in (MMA_A, MMA_C, wgmma_c(64)):
        assert layout.row_group() == 4
        rows, _ = layout.table()
        for registers in layout.rows_of_thread():
            quads = rows[:, registers].reshape(-1, 4 * len(registers))
            assert (quads == quads[:, :1]).all()
    with pytest.raises(EmmyError, match="not consecutive"):
        MMA_B.row_group()


@pytest.mark.parametrize("atom", WARP_ATOMS, ids=lambda atom: atom.name)
def test_recast_moves_no_element(atom: Atom) -> None:
    tiles = [Var(f"t{k}", DType.F32, atom.c.registers) for k in range(2)]
    packed = recast(atom.name, tiles)
    for lane in range(32):
        for register, value in enumerate(packed.values):
            assert isinstance(value, Lane)
            assert isinstance(value.value, Var)
            row, col = atom.c.coords(lane, value.lane)
            assert (row, col + int(value.value.name[1]) * atom.n) == atom.a.coords(lane, register)
    with pytest.raises(EmmyError, match="no register"):
        recast(atom.name, tiles[:1])


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("role", ["a", "b"])
def test_ldmatrix_fills_the_layout(role: str, trans: bool) -> None:
    """A tile stored in shared memory, row-major or transposed, arrives where the layout says."""
    atom = ATOMS["mma_m16n8k16_f16_f32"]
    layout = atom.layout(role)
    fragments = Fragments("frag", atom.name, role, ())
    row, col = matrix_rows(layout, TID, trans=trans)
    rows_are_memory_rows = (role == "a") != trans
    width = layout.cols if rows_are_memory_rows else layout.rows
    offset = row * width + col if rows_are_memory_rows else col * width + row
    size = layout.rows * layout.cols
    kernel = Kernel(
        "k_ldmatrix",
        (BufferParam("x", DType.F16), BufferParam("y", DType.F32, True)),
        (32, 1),
        (
            *(Copy("tile", TID * 4 + part, "x", TID * 4 + part, 4, DType.F16) for part in range(0, size, 128)),
            Barrier("warp"),
            fragments,
            LdMatrix((fragments.at(),), "tile", offset, trans),
            *(Store("y", TID * layout.registers + r, cast(Lane(fragments.at(), r), DType.F32), DType.F32)
              for r in range(layout.registers)),
        ),
        (Shared("tile", DType.F16, size),),
    )  # fmt: skip
    tile = np.arange(size, dtype=np.float16).reshape(layout.rows, layout.cols)
    stored = tile if rows_are_memory_rows else tile.T.copy()
    y = np.zeros((32, layout.registers), np.float32)
    run_kernel(kernel, (1,), {"x": stored, "y": y})
    where = layout.table()
    np.testing.assert_array_equal(y, tile[where])


@pytest.mark.parametrize("bits", [0, 1, 2, 3])
def test_swizzle_permutes_rows_and_agrees_in_elements(bits: int) -> None:
    swizzle = Swizzle(bits)
    offsets = np.arange(1024)
    there = swizzle.bytes_at(offsets)
    np.testing.assert_array_equal(np.sort(there), offsets)
    np.testing.assert_array_equal(swizzle.bytes_at(there), offsets)
    for element in range(0, 512, 7):
        got = evaluate_int(swizzle.element(Var("x"), 2), {"x": element})
        assert got == int(swizzle.bytes_at(element * 2)) // 2


@pytest.mark.parametrize("span", [32, 64, 128])
def test_swizzled_columns_of_eight_rows_meet_all_banks(span: int) -> None:
    """What ldmatrix reads at once (eight rows, one 16-byte column) lies in different banks."""
    rows = np.arange(8) * span
    chunks = Swizzle.of_span(span).bytes_at(rows) // 16 % 8
    assert len(set(chunks.tolist())) == 8
