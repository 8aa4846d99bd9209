"""The verifier names the rule that a kernel breaks; the printer shows every statement on a line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Lane, Load, Mem, Reg, Splat, Var, call, f32, i32, lt
from emmy.ir.fragment import Fragments, Mma
from emmy.ir.kernel import (
    TID,
    TX,
    Barrier,
    BufferParam,
    ClusterBarrier,
    Combine,
    For,
    If,
    Kernel,
    Let,
    PeerStore,
    RegArray,
    RegSet,
    ScalarParam,
    Shared,
    Stmt,
    Store,
    View,
    rewrite,
    statements,
)
from emmy.ir.kernel_print import head, text
from emmy.ir.kernel_verify import MalformedKernel, verify
from emmy.ir.pipeline import Acquire, Copy, Matrix, Ring, Role, Roles, TensorCopy, Wgmma

ACC = RegArray("acc", DType.F32, (2,), 4, 0.0)


def kernel(*body: Stmt, shared: tuple[Shared, ...] = (), threads: int = 64) -> Kernel:
    params = (
        BufferParam("x", DType.F32),
        BufferParam("h", DType.F16),
        BufferParam("y", DType.F32, True),
        ScalarParam("n"),
    )
    return Kernel("k_small", params, (threads, 1), body, shared)


X = Mem("x", TX, DType.F32)
HALVES, FLOATS = Shared("tile", DType.F16, 96), Shared("tile", DType.F32, 96)


def clustered(*body: Stmt, size: int = 4) -> Kernel:
    return replace(kernel(*body, shared=(FLOATS,)), cluster=size)


ARRIVE, WAIT, SYNC = ClusterBarrier("arrive"), ClusterBarrier("wait"), ClusterBarrier("sync")
TO_PEER = PeerStore("tile", TX, i32(1), X, DType.F32)

BROKEN: dict[str, tuple[Kernel, str]] = {
    "unknown name": (kernel(Store("y", Var("q"), X, DType.F32)), "unknown name q"),
    "out of scope": (kernel(If(lt(TX, i32(3)), (Let("v", X),)), Store("y", TX, Var("v", DType.F32), DType.F32)),
                     "unknown name v"),
    "type of a name": (kernel(Let("v", X), Store("y", Var("v"), X, DType.F32)), "another type"),
    "defined twice": (kernel(Let("v", X), Let("v", X)), "defined twice"),
    "unknown buffer": (kernel(Store("z", TX, X, DType.F32)), "unknown buffer z"),
    "read-only": (kernel(Store("x", TX, X, DType.F32)), "read-only"),
    "type of a buffer": (kernel(Store("y", TX, Mem("h", TX, DType.F32), DType.F32)), "h is of another type"),
    "offset": (kernel(Store("y", f32(1.0), X, DType.F32)), "offset"),
    "guard": (kernel(Store("y", TX, X, DType.F32, TX)), "guard"),
    "lanes": (kernel(Store("y", TX, Mem("x", TX, DType.F32, 3), DType.F32)), "lanes"),
    "lanes of operands": (kernel(Store("y", TX, call("add", Splat(X, 4), Mem("x", TX, DType.F32, 2)), DType.F32)),
                          "operands"),
    "lane": (kernel(Store("y", TX, Lane(Mem("x", TX, DType.F32, 4), 4), DType.F32)), "lane 4"),
    "register index": (kernel(ACC, RegSet(ACC.at(TX), ACC.at(0))), "not constant"),
    "register slot": (kernel(ACC, RegSet(ACC.at(2), ACC.at(0))), "2 slots"),
    "register rank": (kernel(ACC, RegSet(ACC.at(0, 0), ACC.at(0))), "1 axes"),
    "plain loop index": (kernel(ACC, For("i", i32(0), i32(2), i32(1), (RegSet(ACC.at(Var("i")), ACC.at(0)),))),
                         "not constant"),
    "unrolled bounds": (kernel(For("i", i32(0), Var("n"), i32(1), (), "full")), "bounds"),
    "load of a nest": (kernel(Store("y", TX, Load("x", (TX,), DType.F32), DType.F32)), "nests"),
    "combine group": (kernel(ACC, Combine("sum", (Reg("acc", (i32(0),), DType.F32, 4),), 3, ("s",))), "power of two"),
    "combine scratch": (kernel(RegArray("s", DType.F32, ()), Combine("sum", (Reg("s", (), DType.F32),), 64, ("t",))),
                        "scratch t"),
    "ring slots": (kernel(Ring("r", ("tile",), 5, "async", 64), shared=(HALVES,)), "5 slots"),
    "no ring": (kernel(Acquire("r", i32(0))), "no ring r"),
    "copy width": (kernel(Copy("tile", TX, "h", TX, 1, DType.F16, None, "async"), shared=(HALVES,)), "4, 8 or 16"),
    "tensor map": (kernel(TensorCopy("tile", i32(0), "m", (i32(0),)), shared=(HALVES,)), "no tensor map m"),
    "partition": (kernel(Roles((Role("one", 0, 1, ()),))), "partition"),
    "barrier in a role": (kernel(Roles((Role("one", 0, 2, (Barrier(),)),))), "inside a role"),
    "registers": (kernel(Roles((Role("one", 0, 8, (), 264),)), threads=256), "registers of all roles"),
    "operand": (kernel(Fragments("a", "mma_m16n8k16_f16_f32", "a", ()), Fragments("c", "mma_m16n8k16_f16_f32", "c", ()),
                       Mma("mma_m16n8k16_f16_f32", Reg("c", (), DType.F32, 4), Reg("a", (), DType.F16, 8),
                           Reg("a", (), DType.F16, 8))), "operand b"),
    "alignment": (kernel(Fragments("c", "wgmma_m64n8k16_f16_f32", "c", ()),
                         Wgmma("wgmma_m64n8k16_f16_f32", Reg("c", (), DType.F32, 4),
                               *(Matrix("tile", i32(0), "k", 128, 1024),) * 2), shared=(HALVES,)), "1024 bytes"),
    "threads": (kernel(threads=2048), "block size"),
    "cluster of three": (clustered(size=3), "cluster size"),
    "cluster of sixteen": (clustered(size=16), "cluster size"),
    "no cluster to wait for": (kernel(SYNC), "a barrier of the cluster in a kernel without clusters"),
    "no cluster to store to": (kernel(TO_PEER, shared=(FLOATS,)), "a store to a peer in a kernel without clusters"),
    "phase": (clustered(ClusterBarrier("leave")), "no phase leave"),
    "arrival alone": (clustered(ARRIVE), "not waited for"),
    "wait alone": (clustered(WAIT), "pair an arrive with a wait"),
    "two arrivals": (clustered(ARRIVE, ARRIVE, WAIT), "pair an arrive with a wait"),
    "wait in an inner list": (clustered(ARRIVE, If(lt(TX, i32(99)), (WAIT,))), "pair an arrive with a wait"),
    "sync in between": (clustered(ARRIVE, For("i", i32(0), i32(2), i32(1), (SYNC,)), WAIT), "between an arrive"),
    "cluster barrier in a role": (clustered(Roles((Role("one", 0, 2, (SYNC,)),))), "cluster inside a role"),
    "global of a peer": (clustered(PeerStore("y", TX, i32(1), X, DType.F32)), "not in shared memory"),
    "rank": (clustered(PeerStore("tile", TX, X, X, DType.F32)), "rank"),
    "lanes of a peer": (clustered(PeerStore("tile", TX * 8, i32(1), Splat(X, 8), DType.F32)), "1, 2 or 4 float32"),
    "halves of a peer": (replace(kernel(PeerStore("tile", TX, i32(1), Mem("h", TX, DType.F16), DType.F16),
                                        shared=(HALVES,)), cluster=2), "1, 2 or 4 float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_the_broken_rule_is_named(name: str) -> None:
    broken, rule = BROKEN[name]
    with pytest.raises(MalformedKernel, match=rule) as caught:
        verify(broken)
    assert "k_small" in str(caught.value)


def test_a_kernel_in_order_passes() -> None:
    loop = For("i", i32(0), i32(2), i32(1), (RegSet(ACC.at(Var("i")), ACC.at(Var("i")) + Splat(X, 4)),), "full")
    good = kernel(
        ACC, View("part", "x", Const(4, DType.I64), DType.F32), loop, Store("y", TX * 4, ACC.at(1), DType.F32)
    )
    verify(good)
    with pytest.raises(MalformedKernel, match="two parameters"):
        verify(replace(good, params=good.params * 2))


def test_a_kernel_of_clusters() -> None:
    store = PeerStore("tile", TX * 4, Var("n"), Splat(X, 4), DType.F32, lt(TX, i32(9)), aligned=True)
    loop = For("i", i32(0), Var("n"), i32(1), (store, SYNC, TO_PEER, SYNC))
    good = clustered(ARRIVE, Let("v", X), WAIT, loop, size=2)
    verify(good)
    shown = text(good).splitlines()
    assert shown[0] == "kernel k_small block 64x1 shared 384 B cluster 2"
    assert [line.strip() for line in shown[6:11]] == [
        "barrier cluster arrive", "let v: f32 = x[tx]", "barrier cluster wait", "for i in 0 .. n by 1",
        "store tile[(tx * 4)]:4 aligned of block n = splat4(x[tx]) if (tx < 9)",
    ]  # fmt: skip
    renamed = rewrite(SYNC, lambda e: e, lambda b: b, lambda name: f"{name}_1")
    assert renamed is SYNC, "a phase is a word, not a name"


def test_every_statement_has_a_line() -> None:
    body = (Let("v", X), If(lt(TID, Var("n")), (Barrier(),), (Store("y", TX, Var("v", DType.F32), DType.F32),)))
    shown = text(kernel(*body)).splitlines()
    assert shown[0] == "kernel k_small block 64x1 shared 0 B"
    assert shown[5:] == ["  let v: f32 = x[tx]", "  if (tid < n)", "    barrier block", "  else", "    store y[tx] = v"]
    assert head(
        Wgmma("wgmma_m64n8k16_f16_f32", Reg("c", (), DType.F32, 4), *(Matrix("t", i32(0), "k", 128, 1024),) * 2)
    ) == ("wgmma wgmma_m64n8k16_f16_f32 c<> [t 0 k 128 1024 16] [t 0 k 128 1024 16] True")


def test_rewrite_reaches_every_part() -> None:
    source = kernel(For("i", i32(0), Var("n"), i32(1), (Store("y", Var("i"), X, DType.F32),)))

    def body(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(
            rewrite(s, lambda e: Var("m") if e == Var("n") else e, body, lambda n: "z" if n == "y" else n)
            for s in stmts
        )

    loop, store = statements(body(source.body))
    assert isinstance(loop, For)
    assert isinstance(store, Store)
    assert (loop.stop, store.buffer) == (Var("m"), "z")
    assert body(source.body)[0] is not source.body[0]
    assert rewrite(source.body[0], lambda e: e, lambda b: b) is source.body[0]
