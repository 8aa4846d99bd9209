"""What the interpreter refuses: each fault names the statement, the block and the thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Mem, Splat, Var, call, cast, f32, i32, lt
from emmy.ir.interp import (
    DataRace,
    Deadlock,
    Divergence,
    KernelFault,
    Misuse,
    OutOfBounds,
    PoisonRead,
    run_kernel,
)
from emmy.ir.kernel import (
    BX,
    TID,
    TX,
    Barrier,
    BufferParam,
    Combine,
    For,
    If,
    Kernel,
    Let,
    RegArray,
    RegSet,
    ScalarParam,
    Shared,
    ShuffleXor,
    Stmt,
    Store,
    View,
)
from emmy.ir.pipeline import (
    BarrierArrive,
    BarrierInit,
    BarrierWait,
    Copy,
    CopyCommit,
    CopyWait,
    Role,
    Roles,
)

N = 64
TILE = Shared("tile", DType.F32, N)
ACC = RegArray("acc", DType.F32, (2,))


def run(*body: Stmt, threads: int = N, shared: tuple[Shared, ...] = (TILE,), races: bool = True, **args: Any) -> Any:
    """Runs one block over x = 0 … N-1; returns y."""
    params = (BufferParam("x", DType.F32), BufferParam("y", DType.F32, True), ScalarParam("n"))
    y = np.full(N, -1.0, np.float32)
    values = {"x": np.arange(N, dtype=np.float32), "y": y, "n": N} | args
    run_kernel(Kernel("k_small", params, (threads, 1), body, shared), (1,), values, races=races)
    return y


X = Mem("x", TX, DType.F32)
WRITE = Store("tile", TX, X, DType.F32)
READ_NEXT = Store("y", TX, Mem("tile", (TX + 1) % N, DType.F32), DType.F32)
COPY = Copy("tile", TX, "x", TX, 1, DType.F32, None, "async")

FAULTS: dict[str, tuple[type[KernelFault], tuple[Stmt, ...]]] = {
    "past the end": (OutOfBounds, (Store("y", TX, Mem("x", TX + 1, DType.F32), DType.F32),)),
    "before the start": (OutOfBounds, (Store("y", TX - 1, X, DType.F32),)),
    "vector past the end": (OutOfBounds, (Store("y", TX, Mem("x", TX, DType.F32, 4), DType.F32),)),
    "misaligned": (OutOfBounds, (If(lt(TX, i32(9)), (Let("v", Mem("x", TX * 2, DType.F32, 4, aligned=True)),)),)),
    "overflow": (OutOfBounds, (Let("v", Mem("x", TX * (1 << 28), DType.F32)),)),
    "shared before it is written": (PoisonRead, (READ_NEXT,)),
    "register before it is written": (PoisonRead, (ACC, Store("y", TX, ACC.at(1), DType.F32))),
    "missing barrier": (DataRace, (WRITE, READ_NEXT)),
    "missing second barrier": (DataRace, (WRITE, Barrier(), READ_NEXT, WRITE)),
    "two writers": (DataRace, (Store("tile", TX // 2, X, DType.F32),)),
    "a warp's barrier for a block": (DataRace, (WRITE, Barrier("warp"), READ_NEXT)),
    "divergent barrier": (Divergence, (If(lt(TX, i32(40)), (Barrier(),)),)),
    "barrier in a loop some leave": (Divergence, (For("i", i32(0), TX, i32(1), (Barrier(),)),)),
    "divergent shuffle": (Divergence, (If(lt(TX, i32(40)), (ShuffleXor("v", X, 1),)),)),
    "divergent combine": (Divergence, (RegArray("s", DType.F32, (), 1, 1.0), If(lt(TX, i32(2)), (
        Combine("sum", (RegArray("s", DType.F32, ()).at(),), 4, ()),)))),
    "read-only": (Misuse, (Store("x", TX, X, DType.F32),)),
    "another type": (Misuse, (Store("y", TX, Mem("x", TX, DType.I32), DType.F32),)),
    "unknown name": (Misuse, (Let("v", Var("q")),)),
    "endless loop": (Misuse, (For("i", i32(0), i32(4), i32(0), ()),)),
    "copy read in flight": (PoisonRead, (COPY, CopyCommit(), Barrier(), READ_NEXT)),
    "copy waited for, no barrier": (DataRace, (COPY, CopyCommit(), CopyWait(0), READ_NEXT)),
    "copy never waited for": (Misuse, (COPY, CopyCommit())),
    "copy of two bytes": (Misuse, (Copy("tile", TX, "x", TX, 8, DType.F32, lt(TX, i32(0)), "async"),)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str) -> None:
    kind, body = FAULTS[name]
    shared = (Shared("tile", DType.F32, 8 * N),) if name == "copy of two bytes" else (TILE,)
    with pytest.raises(kind, match=r"k_small, block \(0, 0, 0\)"):
        run(*body, shared=shared)


def test_what_is_in_order_passes() -> None:
    np.testing.assert_array_equal(run(WRITE, Barrier(), READ_NEXT), (np.arange(N) + 1) % N)
    np.testing.assert_array_equal(run(COPY, CopyCommit(), CopyWait(0), Barrier(), READ_NEXT), (np.arange(N) + 1) % N)
    np.testing.assert_array_equal(run(WRITE, READ_NEXT, races=False), (np.arange(N) + 1) % N)


def test_guards_keep_accesses_away() -> None:
    inside = lt(TX + 1, Var("n"))
    guarded = Mem("x", TX + 1, DType.F32, 1, inside, -7.0)
    assert run(Store("y", TX, guarded, DType.F32)).tolist() == [*range(1, N), -7.0]
    assert run(Store("y", TX + 1, X, DType.F32, inside)).tolist() == [-1.0, *range(N - 1)]


def test_inactive_threads_do_nothing() -> None:
    body = (ACC, If(lt(TX, i32(8)), (RegSet(ACC.at(0), X), Store("y", TX, ACC.at(0), DType.F32))))
    assert run(*body).tolist() == [*range(8), *[-1.0] * (N - 8)]


def test_loops_run_a_thread_s_own_number_of_times() -> None:
    total = RegArray("total", DType.F32, (), 1, 0.0)
    body = (total, For("i", i32(0), TX, i32(1), (RegSet(total.at(), total.at() + f32(1.0)),)),
            Store("y", TX, total.at(), DType.F32))  # fmt: skip
    np.testing.assert_array_equal(run(*body), np.arange(N))


def test_views_and_types() -> None:
    body = (
        View("part", "x", cast(BX, DType.I64) * 8 + 4, DType.F32),
        If(lt(TX, i32(30)), (Store("y", TX * 2, Mem("part", TX * 2, DType.F32, 2) * Splat(f32(2.0), 2), DType.F32),)),
    )
    np.testing.assert_array_equal(run(*body)[:60], 2 * np.arange(4, 64))
    with pytest.raises(Misuse, match="argument x"):
        run(x=np.zeros(N, np.float64))
    with pytest.raises(Misuse, match="not contiguous"):
        run(x=np.zeros((N, 2), np.float32)[:, 0])


def test_a_sample_of_blocks() -> None:
    kernel = Kernel("k_sample", (BufferParam("y", DType.F32, True),), (4, 1),
                    (Store("y", BX * 4 + TID, f32(1.0), DType.F32),))  # fmt: skip
    y = np.zeros(16, np.float32)
    run_kernel(kernel, (4,), {"y": y}, blocks=[(2, 0, 0)])
    assert np.flatnonzero(y).tolist() == [8, 9, 10, 11]


def roles(*bodies: tuple[Stmt, ...], setup: bool = True) -> tuple[Stmt, ...]:
    init = (If(call("eq", TID, i32(0)), (BarrierInit("bars", i32(0), 32),)), *((Barrier(),) if setup else ()))
    return (*init, Roles(tuple(Role(f"role{k}", k, 1, body) for k, body in enumerate(bodies))))


BARS = (TILE, Shared("bars", DType.I64, 1, 8))
ARRIVE, WAIT = BarrierArrive("bars", i32(0)), BarrierWait("bars", i32(0), i32(0))
PRODUCE = Store("tile", TX, X, DType.F32)
CONSUME = Store("y", TX, Mem("tile", TX - 32, DType.F32), DType.F32)


def test_an_mbarrier_orders_roles() -> None:
    for order in ((0, 1), (1, 0)):
        bodies = [(PRODUCE, ARRIVE), (WAIT, CONSUME)]
        if order == (1, 0):  # the role that waits is run first
            late = (Store("y", TX, Mem("tile", TX + 32, DType.F32), DType.F32),)
            y = run(*roles((WAIT, *late), (PRODUCE, ARRIVE)), shared=BARS)
            np.testing.assert_array_equal(y[:32], np.arange(32, 64))
        else:
            np.testing.assert_array_equal(run(*roles(*bodies), shared=BARS)[32:], np.arange(32))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (DataRace, roles((PRODUCE, ARRIVE), (CONSUME,))),
        (DataRace, roles((ARRIVE, PRODUCE), (WAIT, CONSUME))),
        (Deadlock, roles((PRODUCE,), (WAIT, CONSUME))),
        (Misuse, roles((PRODUCE, ARRIVE, ARRIVE, ARRIVE), (ARRIVE, ARRIVE))),
        (DataRace, roles((PRODUCE, ARRIVE), (WAIT, CONSUME), setup=False)),
    ],
    ids=["no wait", "arrives before it writes", "never arrives", "arrives too often", "set up without a barrier"],
)
def test_wrong_order_of_roles(kind: type[KernelFault], body: tuple[Stmt, ...]) -> None:
    if kind is Misuse:
        body = (*body[:-1], If(lt(TX, i32(48)), (ARRIVE,)))
    with pytest.raises(kind):
        run(*body, shared=BARS)


def test_roles_partition_the_block() -> None:
    with pytest.raises(Misuse, match="partition"):
        run(Roles((Role("only", 0, 1, ()),)))


def test_a_name_keeps_the_value_its_register_had() -> None:
    before = Let("before", ACC.at(0))
    body = (ACC, RegSet(ACC.at(0), Mem("x", TX, DType.F32)), before, RegSet(ACC.at(0), f32(-1.0)))
    np.testing.assert_array_equal(run(*body, Store("y", TX, before.var, DType.F32)), np.arange(N))


def test_constants_keep_their_type() -> None:
    value = cast(call("add", Const(250, DType.U8), cast(TX, DType.U8)), DType.F32)
    np.testing.assert_array_equal(run(Store("y", TX, value, DType.F32)), (np.arange(N) + 250) % 256)
