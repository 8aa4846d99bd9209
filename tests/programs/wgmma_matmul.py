"""A persistent matrix product by warpgroups: wgmma m64n128k16, a TMA ring, a producer and two consumer warpgroups.

c[M, N] = a[M, K] @ b[N, K]ᵀ, float16 in, float32 out; M is known at run time, K is a multiple of 64, N of 2. Each block
works through tiles of 128×128 in k steps of 64; tiles that reach over an edge are filled with zeros by the copy engine.
"""

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Lane, Pack, Var, both, call, cast, ceil_div, i32, lt
from emmy.ir.fragment import ATOMS, Fragments
from emmy.ir.kernel import (
    BX,
    TID,
    BufferParam,
    For,
    Kernel,
    Let,
    ScalarParam,
    Shared,
    Stmt,
    Store,
    TensorMapParam,
    View,
)
from emmy.ir.pipeline import (
    Acquire,
    Commit,
    Fill,
    Matrix,
    Release,
    Ring,
    TensorCopy,
    Wait,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from emmy.passes.expand.roles import partition

ATOM = ATOMS["wgmma_m64n128k16_f16_f32"]
TILE_M, TILE_N, TILE_K = 128, 128, 64
CONSUMERS = 2
ROW_BYTES = TILE_K * 2
PANEL = ROW_BYTES // 2
ACC = Fragments("acc", ATOM.name, "c", (1,))


def matmul(n: int, k: int, depth: int = 4, *, roles: bool = True, b_major: str = "k") -> Kernel:
    """The kernel, at ring level. ``blocks`` is the number of blocks of the launch.

    ``roles`` False: no producer; the consumers' first thread fills the ring. ``b_major`` ``mn``: b is b[K, N], and a
    tile of it two boxes of 64 rows and 64 columns.
    """
    group = TID // 128 - int(roles)
    job, kt, m0, n0, step = Var("job"), Var("kt"), Var("m0"), Var("n0"), Var("step")
    steps, tiles_n = k // TILE_K, -(-n // TILE_N)
    ring = Ring("tiles", ("a_tile", "b_tile"), depth, "tma", CONSUMERS * 128)
    slot = ring.slot(step)
    tile = BX + job * Var("blocks")
    loop = For("kt", i32(0), i32(steps), i32(1), (
        Let("step", job * steps + kt),
        Acquire(ring.name, step),
        Fill(ring.name, step, (
            TensorCopy("a_tile", slot * (TILE_M * TILE_K), "a_map", (m0, kt * TILE_K)),
            *copies_of_b(slot, kt, n0, b_major),
        )),
        Commit(ring.name, step),
        Wait(ring.name, step),
        *multiply(slot, kt, group, b_major),
        Release(ring.name, step),
    ))  # fmt: skip
    tiles = ceil_div(Var("m"), TILE_M) * tiles_n
    jobs = For("job", i32(0), (tiles - BX + Var("blocks") - 1) // Var("blocks"), i32(1), (
        Let("m0", tile // tiles_n * TILE_M),
        Let("n0", tile % tiles_n * TILE_N),
        loop,
        *epilogue(n, m0, n0, group),
    ))  # fmt: skip
    work: tuple[Stmt, ...] = (ACC, jobs)
    if roles:
        consumer = (4, 4 * CONSUMERS)
        work = (partition(work, (ring.name,), producer=(0, 4), consumer=consumer, registers=(40, 232)),)
    b_box = (TILE_N, TILE_K) if b_major == "k" else (TILE_K, PANEL)
    box, tiles_of = (TILE_M, TILE_K), (("a_tile", TILE_M), ("b_tile", TILE_N))
    return Kernel(
        "k_wgmma_matmul",
        (TensorMapParam("a_map", DType.F16, box, ROW_BYTES), TensorMapParam("b_map", DType.F16, b_box, ROW_BYTES),
         BufferParam("c", DType.F32, True), ScalarParam("m"), ScalarParam("blocks")),
        (128 * (int(roles) + CONSUMERS), 1),
        (ring, *work),
        tuple(Shared(name, DType.F16, depth * rows * TILE_K, 1024) for name, rows in tiles_of),
        1,
    )  # fmt: skip


def copies_of_b(slot: Expr, kt: Expr, n0: Expr, b_major: str) -> list[Stmt]:
    base = slot * (TILE_N * TILE_K)
    if b_major == "k":
        return [TensorCopy("b_tile", base, "b_map", (n0, kt * TILE_K))]
    return [TensorCopy("b_tile", base + at * TILE_K, "b_map", (kt * TILE_K, n0 + at)) for at in range(0, TILE_N, PANEL)]


def multiply(slot: Expr, kt: Expr, group: Expr, b_major: str) -> list[Stmt]:
    """The four atoms of a k step, each warpgroup on 64 rows of the tile."""
    rows = 8 * ROW_BYTES
    out: list[Stmt] = [WgmmaFence()]
    for kk in range(TILE_K // ATOM.k):
        a_at = slot * (TILE_M * TILE_K) + group * (ATOM.m * TILE_K) + kk * ATOM.k
        b_at = slot * (TILE_N * TILE_K) + kk * (ATOM.k if b_major == "k" else ATOM.k * PANEL)
        a = Matrix("a_tile", a_at, "k", ROW_BYTES, rows)
        b = Matrix("b_tile", b_at, b_major, ROW_BYTES, rows, 16 if b_major == "k" else PANEL * ROW_BYTES)
        begun = call("ne", kt, i32(0)) if kk == 0 else Const(True, DType.BOOL)
        out.append(Wgmma(ATOM.name, ACC.at(0), a, b, begun))
    return [*out, WgmmaCommit(), WgmmaWait(0)]


def epilogue(n: int, m0: Expr, n0: Expr, group: Expr) -> list[Stmt]:
    """Stores the accumulators where their layout says they belong, two neighbouring columns at a time."""
    lane = TID % 128
    out: list[Stmt] = [View("c_block", "c", cast(m0 + group * ATOM.m, DType.I64) * n, DType.F32)]
    for register in range(0, ATOM.c.registers, 2):
        row, col = ATOM.c.row(lane, register), n0 + ATOM.c.col(lane, register)
        value = Pack((Lane(ACC.at(0), register), Lane(ACC.at(0), register + 1)))
        guard = both(lt(m0 + group * ATOM.m + row, Var("m")), lt(col, i32(n)))
        out.append(Store("c_block", row * n + col, value, DType.F32, guard, aligned=True))
    return out
