"""A matrix product by warps: mma.sync m16n8k16, a cp.async ring of swizzled tiles, guarded edges.

c[M, N] = a[M, K] @ b[K, N], row-major, float16 in, float32 out; M is known at run time, N and K are multiples of 8.
A block of 2×2 warps makes a 64×64 tile, in k steps of 32.
"""

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Lane, Pack, Var, both, cast, i32, lt
from emmy.ir.fragment import ATOMS, Fragments, LdMatrix, Mma, Swizzle, matrix_rows
from emmy.ir.kernel import (
    BX,
    BY,
    TID,
    BufferParam,
    For,
    Kernel,
    Let,
    ScalarParam,
    Shared,
    Stmt,
    Store,
    View,
)
from emmy.ir.pipeline import Acquire, Commit, Copy, Fill, Release, Ring, Wait

ATOM = ATOMS["mma_m16n8k16_f16_f32"]
TILE_M, TILE_N, TILE_K = 64, 64, 32
THREADS = 128
WARP_M, WARP_N = 32, 32
ATOMS_M, ATOMS_N = WARP_M // ATOM.m, WARP_N // ATOM.n
A_SWIZZLE, B_SWIZZLE = Swizzle.of_span(64), Swizzle.of_span(128)


def grid(m: int, n: int) -> tuple[int, int]:
    return (-(-n // TILE_N), -(-m // TILE_M))


def matmul(n: int, k: int, depth: int = 3, swizzle_b: Swizzle = B_SWIZZLE, transport: str = "async") -> Kernel:
    """The kernel, at ring level. ``swizzle_b``: what the copies of b use (the reads use B_SWIZZLE)."""
    m0, n0, step, lane = Var("m0"), Var("n0"), Var("step"), Var("lane")
    ring = Ring("tiles", ("a_tile", "b_tile"), depth, transport, THREADS)
    rows_a, rows_b = TILE_K // 8, TILE_N // 8  # chunks of 8 elements a row
    copies: list[Stmt] = []
    for part in range(TILE_M * rows_a // THREADS):
        chunk = TID + part * THREADS
        row, col = chunk // rows_a, chunk % rows_a * 8
        depth_at = step * TILE_K + col
        guard = both(lt(m0 + row, Var("m")), lt(depth_at, i32(k)))
        at = ring.slot(step) * (TILE_M * TILE_K) + A_SWIZZLE.element(row * TILE_K + col, 2)
        copies.append(Copy("a_tile", at, "a_block", row * k + depth_at, 8, DType.F16, guard))
    for part in range(TILE_K * rows_b // THREADS):
        chunk = TID + part * THREADS
        row, col = chunk // rows_b, chunk % rows_b * 8
        depth_at = step * TILE_K + row
        guard = both(lt(depth_at, i32(k)), lt(n0 + col, i32(n)))
        at = ring.slot(step) * (TILE_K * TILE_N) + swizzle_b.element(row * TILE_N + col, 2)
        copies.append(Copy("b_tile", at, "b_block", depth_at * n + col, 8, DType.F16, guard))
    body = (
        Acquire(ring.name, step),
        Fill(ring.name, step, tuple(copies)),
        Commit(ring.name, step),
        Wait(ring.name, step),
        *multiply(ring, step, lane),
        Release(ring.name, step),
    )
    return Kernel(
        "k_mma_matmul",
        (BufferParam("a", DType.F16), BufferParam("b", DType.F16), BufferParam("c", DType.F32, True), ScalarParam("m")),
        (THREADS, 1),
        (
            Let("m0", BY * TILE_M),
            Let("n0", BX * TILE_N),
            Let("lane", TID % 32),
            Let("warp_m", TID // 32 % 2 * WARP_M),
            Let("warp_n", TID // 64 * WARP_N),
            View("a_block", "a", cast(m0, DType.I64) * k, DType.F16),
            View("b_block", "b", cast(n0, DType.I64), DType.F16),
            View("c_block", "c", cast(m0, DType.I64) * n, DType.F32),
            ring,
            Fragments("acc", ATOM.name, "c", (ATOMS_M, ATOMS_N), 0.0),
            For("step", i32(0), i32(-(-k // TILE_K)), i32(1), body),
            *epilogue(n, m0, n0, lane),
        ),
        (
            Shared("a_tile", DType.F16, depth * TILE_M * TILE_K, 128),
            Shared("b_tile", DType.F16, depth * TILE_K * TILE_N, 128),
        ),
    )


def multiply(ring: Ring, step: Expr, lane: Expr) -> list[Stmt]:
    """All atoms of one k step of the warp's tile."""
    a = Fragments("a_frag", ATOM.name, "a", (ATOMS_M,))
    b = Fragments("b_frag", ATOM.name, "b", (ATOMS_N,))
    acc = Fragments("acc", ATOM.name, "c", (ATOMS_M, ATOMS_N))
    out: list[Stmt] = [a, b]
    a_row, a_col = matrix_rows(ATOM.a, lane)
    b_row, b_col = matrix_rows(ATOM.layout("b"), lane, trans=True)
    inner: list[Stmt] = []
    kk, i, j = Var("kk"), Var("i"), Var("j")
    a_at = A_SWIZZLE.element((Var("warp_m") + i * ATOM.m + a_row) * TILE_K + (kk * ATOM.k + a_col), 2)
    inner.append(For("i", i32(0), i32(ATOMS_M), i32(1), (
        LdMatrix((a.at(i),), "a_tile", ring.slot(step) * (TILE_M * TILE_K) + a_at),
    ), "full"))  # fmt: skip
    # one x4 load brings two neighbouring b tiles: lanes 16 … 31 address the second
    b_at = B_SWIZZLE.element((kk * ATOM.k + b_row) * TILE_N + (Var("warp_n") + (j + lane // 16) * ATOM.n + b_col), 2)
    inner.append(For("j", i32(0), i32(ATOMS_N), i32(2), (
        LdMatrix((b.at(j), b.at(j + 1)), "b_tile", ring.slot(step) * (TILE_K * TILE_N) + b_at, trans=True),
    ), "full"))  # fmt: skip
    inner.append(For("i", i32(0), i32(ATOMS_M), i32(1), (
        For("j", i32(0), i32(ATOMS_N), i32(1), (Mma(ATOM.name, acc.at(i, j), a.at(i), b.at(j)),), "full"),
    ), "full"))  # fmt: skip
    out.append(For("kk", i32(0), i32(TILE_K // ATOM.k), i32(1), tuple(inner), "full"))
    return out


def epilogue(n: int, m0: Expr, n0: Expr, lane: Expr) -> list[Stmt]:
    """Stores the accumulators where their layout says they belong, two neighbouring columns at a time."""
    acc = Fragments("acc", ATOM.name, "c", (ATOMS_M, ATOMS_N))
    out: list[Stmt] = []
    for i in range(ATOMS_M):
        for j in range(ATOMS_N):
            for registers in ATOM.c.rows_of_thread():
                row = Var("warp_m") + i * ATOM.m + ATOM.c.row(lane, registers[0])
                col = n0 + (Var("warp_n") + j * ATOM.n + ATOM.c.col(lane, registers[0]))
                value = Pack(tuple(Lane(acc.at(i, j), register) for register in registers))
                guard = both(lt(m0 + row, Var("m")), lt(col, i32(n)))
                out.append(Store("c_block", row * n + col, value, DType.F32, guard, aligned=True))
    return out
