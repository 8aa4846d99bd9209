"""Sums of columns by clusters: each block sums a part of the rows, and sends its sums to the blocks that add them up.

y[N] = the sum of x[K, N] over K, row-major, float32; N is a multiple of 4. A cluster of four blocks makes 256 sums;
block r of it sums every fourth row, and adds up the four partial sums of columns 64 r … 64 r + 63.
"""

from emmy.ir.dtype import DType
from emmy.ir.expr import Mem, Var, i32, lt
from emmy.ir.kernel import (
    BX,
    BZ,
    TID,
    BufferParam,
    ClusterBarrier,
    For,
    If,
    Kernel,
    Let,
    PeerStore,
    RegArray,
    RegSet,
    Shared,
    Store,
)

CLUSTER, THREADS, LANES = 4, 64, 4
COLUMNS = THREADS * LANES
SHARE = COLUMNS // CLUSTER


def grid(n: int) -> tuple[int, int, int]:
    return (-(-n // COLUMNS), 1, CLUSTER)


def column_sum(n: int, k: int) -> Kernel:
    """The kernel for a matrix of ``k`` rows and ``n`` columns."""
    row, other = Var("row"), Var("other")
    rank, column = Let("rank", BZ % CLUSTER), Let("column", BX * COLUMNS + TID * LANES)
    sums, total = RegArray("sums", DType.F32, (), LANES, 0.0), RegArray("total", DType.F32, (), 1, 0.0)
    inside = lt(column.var, i32(n))
    value = Mem("x", row * n + column.var, DType.F32, LANES, inside, 0.0, aligned=True)
    mine = Let("mine", BX * COLUMNS + rank.var * SHARE + TID)
    body = (
        ClusterBarrier("arrive"),
        rank,
        column,
        sums,
        For("row", rank.var, i32(k), i32(CLUSTER), (RegSet(sums.at(), sums.at() + value),)),
        ClusterBarrier("wait"),
        PeerStore("parts", rank.var * SHARE + TID * LANES % SHARE, TID * LANES // SHARE, sums.at(), DType.F32, inside,
                  aligned=True),
        ClusterBarrier("sync"),
        mine,
        total,
        If(lt(mine.var, i32(n)), (
            For("other", i32(0), i32(CLUSTER), i32(1), (
                RegSet(total.at(), total.at() + Mem("parts", other * SHARE + TID, DType.F32)),), "full"),
            Store("y", mine.var, total.at(), DType.F32),
        )),
    )  # fmt: skip
    params = (BufferParam("x", DType.F32), BufferParam("y", DType.F32, True))
    shared = (Shared("parts", DType.F32, COLUMNS),)
    return Kernel("k_cluster_sum", params, (THREADS, 1), body, shared, cluster=CLUSTER)
