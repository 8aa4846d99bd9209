"""Fused causal attention by warps: mma.sync, online softmax, keys and values through cp.async rings of their own.

out[h, s, d] = softmax(scale * q[h, s, d] @ k[h, s, d]ᵀ, causal) @ v[h, s, d], float16 in and out; s is known at run
time, d is 64. A block of four warps makes 64 rows of one head, a warp 16 of them. The scores never leave registers: as
accumulators they are masked, reduced along rows and turned into the next product's operand, all through the layout.
"""

import math

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Lane, Mem, Pack, Var, call, cast, ceil_div, f32, i32, lt, minimum, select
from emmy.ir.fragment import ATOMS, Fragments, LdMatrix, Mma, Swizzle, matrix_rows, recast
from emmy.ir.kernel import (
    BX,
    BY,
    TID,
    BufferParam,
    Combine,
    For,
    Kernel,
    Let,
    RegArray,
    RegSet,
    ScalarParam,
    Shared,
    Stmt,
    Store,
    View,
)
from emmy.ir.pipeline import Acquire, Commit, Copy, Fill, Release, Ring, Wait

ATOM = ATOMS["mma_m16n8k16_f16_f32"]
HEAD, ROWS, COLUMNS, THREADS = 64, 64, 64, 128
SWIZZLE = Swizzle.of_span(128)
TILE = COLUMNS * HEAD
ROWS_OF_THREAD = ATOM.c.rows_of_thread()

Q = Fragments("q_frag", ATOM.name, "a", (HEAD // ATOM.k,))
P = Fragments("p_frag", ATOM.name, "a", (COLUMNS // ATOM.k,))
S = Fragments("scores", ATOM.name, "c", (COLUMNS // ATOM.n,), 0.0)
O = Fragments("out_acc", ATOM.name, "c", (HEAD // ATOM.n,), 0.0)  # noqa: E741 - the name it has in the literature
MAX = RegArray("row_max", DType.F32, (len(ROWS_OF_THREAD),), 1, -math.inf)
SUM = RegArray("row_sum", DType.F32, (len(ROWS_OF_THREAD),), 1, 0.0)
MINUS_INF = f32(-math.inf)


def attention(scale: float = HEAD**-0.5, depth: int = 2) -> Kernel:
    """The kernel, at ring level. Grid: (row blocks, heads)."""
    m0, s, lane, j = Var("m0"), Var("s"), Var("lane"), Var("j")
    keys = Ring("keys", ("k_tile",), depth, "async", THREADS)
    values = Ring("values", ("v_tile",), depth, "async", THREADS)
    head = cast(BY, DType.I64) * s
    last = minimum(ceil_div(s, COLUMNS), ceil_div(m0 + ROWS, COLUMNS))
    loop = For("j", i32(0), last, i32(1), (
        *fill(keys, "k_tile", "k_head", j),
        *fill(values, "v_tile", "v_head", j),
        Wait("keys", j),
        *scores(keys.slot(j) * TILE, lane),
        Release("keys", j),
        *softmax(j, lane, scale * math.log2(math.e)),
        Wait("values", j),
        *weighted(values.slot(j) * TILE, lane),
        Release("values", j),
    ))  # fmt: skip
    return Kernel(
        "k_attention",
        (*(BufferParam(name, DType.F16) for name in "qkv"), BufferParam("out", DType.F16, True), ScalarParam("s")),
        (THREADS, 1),
        (
            Let("m0", BX * ROWS),
            Let("lane", TID % 32),
            Let("row0", TID // 32 * ATOM.m),
            View("q_block", "q", (head + m0) * HEAD, DType.F16),
            View("k_head", "k", head * HEAD, DType.F16),
            View("v_head", "v", head * HEAD, DType.F16),
            View("out_block", "out", (head + m0) * HEAD, DType.F16),
            keys, values, Q, O, MAX, SUM,
            *queries(lane),
            loop,
            *epilogue(lane),
        ),
        (Shared("k_tile", DType.F16, depth * TILE, 128), Shared("v_tile", DType.F16, depth * TILE, 128)),
    )  # fmt: skip


def fill(ring: Ring, tile: str, source: str, j: Expr) -> list[Stmt]:
    copies: list[Stmt] = []
    for part in range(TILE // 8 // THREADS):
        chunk = TID + part * THREADS
        row, col = chunk // (HEAD // 8), chunk % (HEAD // 8) * 8
        guard = lt(j * COLUMNS + row, Var("s"))
        to = ring.slot(j) * TILE + SWIZZLE.element(row * HEAD + col, 2)
        copies.append(Copy(tile, to, source, (j * COLUMNS + row) * HEAD + col, 8, DType.F16, guard))
    return [Acquire(ring.name, j), Fill(ring.name, j, tuple(copies)), Commit(ring.name, j)]


def queries(lane: Expr) -> list[Stmt]:
    """Loads the operand a of the scores straight into its registers, two neighbouring elements at a time."""
    out: list[Stmt] = []
    for kk in range(HEAD // ATOM.k):
        values: list[Expr] = []
        for register in range(0, ATOM.a.registers, 2):
            row = Var("row0") + ATOM.a.row(lane, register)
            at = row * HEAD + (ATOM.a.col(lane, register) + kk * ATOM.k)
            pair = Mem("q_block", at, DType.F16, 2, lt(Var("m0") + row, Var("s")), 0.0, aligned=True)
            values += [Lane(pair, 0), Lane(pair, 1)]
        out.append(RegSet(Q.at(kk), Pack(tuple(values))))
    return out


def product(acc: Fragments, a: Fragments, tile: str, base: Expr, lane: Expr, name: str, *, trans: bool) -> list[Stmt]:
    """``acc[n] += a[k] @ tile``; the tile's rows are n (``trans`` False) or k."""
    count = acc.shape[0]
    b = Fragments(name, ATOM.name, "b", (2,))
    k_at, n_at = matrix_rows(ATOM.layout("b"), lane, trans=trans)
    kk, n = Var("kk"), Var("n")
    k_at, n_at = k_at + kk * ATOM.k, n_at + (n + lane // 16) * ATOM.n  # lanes 16 … 31 address the second tile
    element = k_at * HEAD + n_at if trans else n_at * HEAD + k_at
    inner = (
        LdMatrix((b.at(0), b.at(1)), tile, base + SWIZZLE.element(element, 2), trans),
        Mma(ATOM.name, acc.at(n), a.at(kk), b.at(0)),
        Mma(ATOM.name, acc.at(n + 1), a.at(kk), b.at(1)),
    )
    return [
        b,
        For("kk", i32(0), i32(a.shape[0]), i32(1), (For("n", i32(0), i32(count), i32(2), inner, "full"),), "full"),
    ]


def scores(base: Expr, lane: Expr) -> list[Stmt]:
    return [S, *product(S, Q, "k_tile", base, lane, "k_frag", trans=False)]


def softmax(j: Expr, lane: Expr, scale: float) -> list[Stmt]:
    """Scores to weights exp2(score - running maximum); rescales the sum and the output by what the maximum moved."""
    out: list[Stmt] = []
    tiles = range(S.shape[0])
    for n in tiles:
        masked: list[Expr] = []
        for register in range(ATOM.c.registers):
            row = Var("m0") + (Var("row0") + ATOM.c.row(lane, register))
            col = j * COLUMNS + (ATOM.c.col(lane, register) + n * ATOM.n)
            seen = call("and", lt(col, Var("s")), call("le", col, row))
            masked.append(select(seen, Lane(S.at(n), register) * scale, MINUS_INF))
        out.append(RegSet(S.at(n), Pack(tuple(masked))))
    tops = RegArray("tile_max", DType.F32, (len(ROWS_OF_THREAD),))
    out.append(tops)
    for r, registers in enumerate(ROWS_OF_THREAD):
        top: Expr = MAX.at(r)
        for n in tiles:
            for register in registers:
                top = call("max", top, Lane(S.at(n), register))
        out += [RegSet(tops.at(r), top), Combine("max", (tops.at(r),), ATOM.c.row_group(), ())]
        shift = select(call("eq", tops.at(r), MINUS_INF), f32(0.0), tops.at(r))
        out += [Let(f"shift{r}", shift), Let(f"shrink{r}", call("exp2", MAX.at(r) - Var(f"shift{r}", DType.F32)))]
        out.append(RegSet(MAX.at(r), tops.at(r)))
    row_of = {register: r for r, registers in enumerate(ROWS_OF_THREAD) for register in registers}
    for n in tiles:
        weights = [
            call("exp2", Lane(S.at(n), x) - Var(f"shift{row_of[x]}", DType.F32)) for x in range(ATOM.c.registers)
        ]
        out.append(RegSet(S.at(n), Pack(tuple(weights))))
    for r, registers in enumerate(ROWS_OF_THREAD):
        total = SUM.at(r) * Var(f"shrink{r}", DType.F32)
        for n in tiles:
            for register in registers:
                total = total + Lane(S.at(n), register)
        out.append(RegSet(SUM.at(r), total))
    shrink = Pack(tuple(Var(f"shrink{row_of[x]}", DType.F32) for x in range(ATOM.c.registers)))
    out += [RegSet(O.at(n), O.at(n) * shrink) for n in range(O.shape[0])]
    return out


def weighted(base: Expr, lane: Expr) -> list[Stmt]:
    out: list[Stmt] = [P]
    tiles = ATOM.k // ATOM.n
    for kk in range(P.shape[0]):
        out.append(RegSet(P.at(kk), recast(ATOM.name, [S.at(kk * tiles + t) for t in range(tiles)])))
    return [*out, *product(O, P, "v_tile", base, lane, "v_frag", trans=True)]


def epilogue(lane: Expr) -> list[Stmt]:
    out: list[Stmt] = [Combine("sum", (SUM.at(r),), ATOM.c.row_group(), ()) for r in range(len(ROWS_OF_THREAD))]
    for n in range(O.shape[0]):
        for r, registers in enumerate(ROWS_OF_THREAD):
            row = Var("row0") + ATOM.c.row(lane, registers[0])
            col = ATOM.c.col(lane, registers[0]) + n * ATOM.n
            value = Pack(tuple(call("div", Lane(O.at(n), x), SUM.at(r)) for x in registers))
            guard = lt(Var("m0") + row, Var("s"))
            out.append(Store("out_block", row * HEAD + col, value, DType.F16, guard, aligned=True))
    return out
