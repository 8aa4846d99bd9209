"""Clusters of blocks in the interpreter: what peers send arrives; what its barriers do not order is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Mem, Pack, Var, call, cast, i32, lt
from emmy.ir.interp import DataRace, Deadlock, Divergence, KernelFault, Misuse, OutOfBounds, PoisonRead, run_kernel
from emmy.ir.kernel import (
    BX,
    BZ,
    TID,
    Atomic,
    Barrier,
    BufferParam,
    ClusterBarrier,
    For,
    If,
    Kernel,
    PeerStore,
    Shared,
    Stmt,
    Store,
    View,
)
from emmy.ir.pipeline import Copy, CopyCommit, CopyWait, Role, Roles

CLUSTER, THREADS = 4, 32
RANK = BZ % CLUSTER
NEXT = (RANK + 1) % CLUSTER
ARRIVE, WAIT, SYNC = ClusterBarrier("arrive"), ClusterBarrier("wait"), ClusterBarrier("sync")
STARTED = (ARRIVE, WAIT)
TILE = Shared("tile", DType.F32, CLUSTER * THREADS)
MINE = RANK * THREADS + TID
"""Of a tile: the part that belongs to the rank."""
X = Mem("x", BZ * THREADS + TID, DType.F32)


def send(rank: Expr = NEXT, at: Expr = MINE, value: Expr = X, guard: Expr | None = None) -> PeerStore:
    return PeerStore("tile", at, rank, value, DType.F32, guard)


def read(at: Expr = MINE) -> Store:
    return Store("y", BZ * THREADS + TID, Mem("tile", at, DType.F32), DType.F32)


def only(rank: int, *body: Stmt) -> If:
    """``body`` in one block of each cluster."""
    return If(call("eq", RANK, i32(rank)), body)


PREVIOUS = (RANK + CLUSTER - 1) % CLUSTER * THREADS + TID
EVERYWHERE = For("to", i32(0), i32(CLUSTER), i32(1), (send(Var("to")),))
KEEP = Store("tile", MINE, X, DType.F32)


def run(*body: Stmt, cluster: int = CLUSTER, blocks: int = 2 * CLUSTER, **options: Any) -> Any:
    """Runs the blocks over x = 0, 1, …; returns y, (blocks, threads)."""
    params = (BufferParam("x", DType.F32), BufferParam("y", DType.F32, True))
    x, y = np.arange(blocks * THREADS, dtype=np.float32), np.full(blocks * THREADS, np.nan, np.float32)
    kernel = Kernel("k_small", params, (THREADS, 1), body, (TILE,), cluster=cluster)
    run_kernel(kernel, (1, 1, blocks), {"x": x, "y": y}, **options)
    return y.reshape(blocks, THREADS)


INPUT = np.arange(2 * CLUSTER * THREADS, dtype=np.float32).reshape(2, CLUSTER, THREADS)
ROLLED = np.roll(INPUT, 1, axis=1).reshape(2 * CLUSTER, THREADS)
"""What each rank is sent by the rank before it."""


def test_four_blocks_add_up_their_tiles() -> None:
    total = Mem("tile", TID, DType.F32)
    for rank in range(1, CLUSTER):
        total = total + Mem("tile", TID + rank * THREADS, DType.F32)
    y = run(*STARTED, EVERYWHERE, SYNC, Store("y", BZ * THREADS + TID, total, DType.F32))
    np.testing.assert_array_equal(y, INPUT.sum(axis=1).repeat(CLUSTER, axis=0))


def test_vectors_and_views() -> None:
    """Eight threads send what 32 would; a view that starts at the rank's part is the same place in the peer."""
    part = View("part", "tile", cast(RANK * THREADS, DType.I64), DType.F32)
    values = Pack(tuple(Mem("x", BZ * THREADS + TID * 4 + k, DType.F32) for k in range(4)))
    store = PeerStore("part", TID * 4, NEXT, values, DType.F32, aligned=True)
    np.testing.assert_array_equal(run(part, *STARTED, If(lt(TID, i32(8)), (store,)), SYNC, read(PREVIOUS)), ROLLED)
    with pytest.raises(OutOfBounds, match="a multiple of 4"):
        run(*STARTED, PeerStore("tile", TID * 4 % 96 + 1, NEXT, values, DType.F32, aligned=True), SYNC)


def test_work_overlaps_the_arrival() -> None:
    """Between the arrival and the wait a block uses its own part of the tile; peers write the rest."""
    body = (ARRIVE, KEEP, WAIT, send(), SYNC, read(PREVIOUS))
    np.testing.assert_array_equal(run(*body), ROLLED)


def test_a_store_to_itself_is_like_any_other() -> None:
    body = (*STARTED, send(RANK), Barrier(), read())
    np.testing.assert_array_equal(run(*body), INPUT.reshape(2 * CLUSTER, THREADS))
    with pytest.raises(DataRace):
        run(*STARTED, send(RANK), read(RANK * THREADS + (TID + 1) % THREADS))


def test_a_sync_orders_what_a_barrier_of_the_block_does() -> None:
    body = (KEEP, SYNC, read(RANK * THREADS + (TID + 1) % THREADS))
    np.testing.assert_array_equal(run(*body), np.roll(INPUT.reshape(-1, THREADS), -1, axis=1))


def test_a_tile_is_used_again_after_a_sync() -> None:
    turn = For("turn", i32(0), i32(3), i32(1), (send(at=TID), SYNC, read(TID), SYNC))
    np.testing.assert_array_equal(run(*STARTED, turn), ROLLED)


def test_a_sample_runs_whole_clusters() -> None:
    y = run(*STARTED, send(), SYNC, read(PREVIOUS), blocks=3 * CLUSTER)
    sampled = np.full_like(y, np.nan)
    params = (BufferParam("x", DType.F32), BufferParam("y", DType.F32, True))
    kernel = Kernel("k_small", params, (THREADS, 1), (*STARTED, send(), SYNC, read(PREVIOUS)), (TILE,), cluster=CLUSTER)
    args = {"x": np.arange(y.size, dtype=np.float32), "y": sampled.reshape(-1)}
    run_kernel(kernel, (1, 1, 3 * CLUSTER), args, blocks=[(0, 0, 6), (0, 0, 5)])
    np.testing.assert_array_equal(sampled[CLUSTER : 2 * CLUSTER], y[CLUSTER : 2 * CLUSTER])
    assert np.isnan(np.delete(sampled, range(CLUSTER, 2 * CLUSTER), axis=0)).all()


def test_a_grid_of_whole_clusters() -> None:
    with pytest.raises(Misuse, match="whole clusters"):
        run(SYNC, blocks=CLUSTER + 1)


COPY = (Copy("tile", TID, "x", TID, 1, DType.F32, None, "async"), CopyCommit())

FAULTS: dict[str, tuple[type[KernelFault], str, tuple[Stmt, ...]]] = {
    "a block ends early": (Deadlock, "blocks 3 at the cluster's barrier 2",
                           (*STARTED, If(lt(RANK, i32(3)), (SYNC,)))),
    "another barrier": (Misuse, "another one in other blocks", (If(lt(RANK, i32(3)), (SYNC,), STARTED),)),
    "an arrival alone": (Misuse, "between an arrival", (ARRIVE,)),
    "a wait alone": (Misuse, "pair an arrive with a wait", (WAIT,)),
    "a sync between arrival and wait": (Misuse, "pair an arrive with a wait", (ARRIVE, SYNC, WAIT)),
    "some threads of a block": (Divergence, "8 of 32 threads", (If(lt(TID, i32(8)), (SYNC,)),)),
    "a store before any barrier": (Misuse, "may not have started", (send(), SYNC)),
    "a store before the first wait": (Misuse, "may not have started", (ARRIVE, send(), WAIT, SYNC)),
    "a read with no barrier": (DataRace, "written by block 0", (*STARTED, send(), only(1, read(PREVIOUS)), SYNC)),
    "a read before it is sent": (PoisonRead, "holds nothing", (*STARTED, send(), read(PREVIOUS), SYNC)),
    "a read after a barrier of the block": (DataRace, "written by block", (*STARTED, EVERYWHERE, Barrier(),
                                                                           only(2, read(PREVIOUS)), SYNC)),
    "a read after an unordered barrier": (DataRace, "written by block", (*STARTED, send(), *STARTED, read(PREVIOUS))),
    "a read of what nobody sent": (PoisonRead, "holds nothing", (*STARTED, send(), SYNC, read())),
    "a peer reads it still": (DataRace, "touched by that block itself",
                              (KEEP, SYNC, read(), only(2, send(at=NEXT * THREADS + TID)), SYNC)),
    "a peer wrote it itself": (DataRace, "touched by that block itself",
                               (ARRIVE, KEEP, WAIT, send(at=NEXT * THREADS + TID), SYNC)),
    "a peer writes it afterwards": (DataRace, "written by block",
                                    (*STARTED, send(at=TID), Store("tile", TID, X, DType.F32), SYNC)),
    "a peer adds to it": (DataRace, "written by block",
                          (*STARTED, send(at=TID), Atomic("add", "tile", TID, X, DType.F32), SYNC)),
    "a peer's copy is on its way": (DataRace, "touched by that block itself",
                                    (ARRIVE, *COPY, WAIT, send(at=TID), CopyWait(0), SYNC)),
    "a peer's copy arrives late": (DataRace, "has copied element", (*COPY, SYNC, send(at=TID), CopyWait(0), SYNC)),
    "two ranks": (DataRace, "thread 0 of block 0", (*STARTED, If(lt(RANK, i32(3)), (send(i32(3), TID),)), SYNC)),
    "two threads": (DataRace, "touched by thread", (*STARTED, send(at=TID // 2), SYNC)),
    "a rank too many": (OutOfBounds, "found rank 4", (*STARTED, send(RANK + 1), SYNC)),
    "a rank below": (OutOfBounds, "found rank -1", (*STARTED, send(RANK - 1), SYNC)),
    "past the end": (OutOfBounds, "outside tile", (*STARTED, send(at=MINE + 1), SYNC)),
    "never ordered": (Misuse, "may have ended", (*STARTED, send())),
    "ordered for one only": (Deadlock, "the cluster's barrier 2", (*STARTED, send(), only(3, SYNC))),
    "followed by an unordered barrier": (Misuse, "may have ended", (*STARTED, send(), *STARTED)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str) -> None:
    kind, words, body = FAULTS[name]
    with pytest.raises(kind, match=words) as caught:
        run(*body)
    assert "k_small, block (0, 0, " in str(caught.value)


def test_roles_have_no_barrier_of_the_cluster() -> None:
    roles = Roles((Role("a", 0, 1, (SYNC,)), Role("b", 1, 1, (SYNC,))))
    with pytest.raises(Divergence, match="32 of 64 threads"):
        run_kernel(Kernel("k_small", (), (64, 1), (roles,), cluster=2), (1, 1, 2), {})


def test_a_kernel_without_clusters() -> None:
    for stmt in (SYNC, send()):
        with pytest.raises(Misuse, match="no clusters"):
            run(stmt, cluster=1, blocks=1)


def test_guarded_stores_stay_away() -> None:
    """Ranks outside the cluster, and elements outside the tile, where the guard is false."""
    inside = lt(RANK, i32(3))
    body = (*STARTED, send(RANK + 1, BX + RANK * 10**6 * THREADS, guard=lt(RANK + BX, i32(0))),
            send(RANK + 1, TID, guard=inside), SYNC, If(lt(i32(0), RANK), (read(TID),)))  # fmt: skip
    y = run(*body).reshape(2, CLUSTER, THREADS)
    np.testing.assert_array_equal(y[:, 1:], INPUT[:, :-1])
    assert np.isnan(y[:, 0]).all()
