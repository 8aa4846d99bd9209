"""Clusters in CUDA text: every width of a store to a peer, what it is assembled to, and who refuses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emmy.codegen import render
from emmy.codegen.cubin import disassemble
from emmy.codegen.nvrtc import compile_cuda
from emmy.codegen.text import CannotPrint
from emmy.errors import CompileFailed
from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Lane, Mem, Pack, Var, cast, f32, i32, lt
from emmy.ir.kernel import BZ, TID, BufferParam, ClusterBarrier, Kernel, Let, PeerStore, Shared, Store, View
from tests.codegen.compilers import require_nvrtc
from tests.codegen.test_cubin import need

SYNC = ClusterBarrier("sync")
X = Mem("x", TID * 4, DType.F32, 4, aligned=True)


def kernel(value: Expr, *, aligned: bool = True, guard: Expr | None = None) -> Kernel:
    """A block of each cluster of two sends ``value`` to the other one's tile."""
    body = (
        ClusterBarrier("arrive"),
        View("there", "tile", cast(BZ % 2 * 256, DType.I64), DType.F32),
        Let("part", X),
        ClusterBarrier("wait"),
        PeerStore("there", TID * value.lanes, i32(1) - BZ % 2, value, DType.F32, guard, aligned),
        SYNC,
        Store("y", BZ * 64 + TID, Mem("tile", TID, DType.F32), DType.F32),
    )
    params = (BufferParam("x", DType.F32), BufferParam("y", DType.F32, True))
    return Kernel("k_peers", params, (64, 1), body, (Shared("tile", DType.F32, 512),), cluster=2)


def stores(kernel: Kernel) -> list[str]:
    """The lines of its text that store to a peer, and the conditions."""
    lines = [line.strip() for line in render(kernel, "cuda").splitlines()]
    return [line for line in lines if line.startswith(("if", "emmy_peer_store"))]


PART = Var("part", DType.F32, 4)
FEW = lt(TID, i32(9))


def test_a_vector_is_one_store() -> None:
    parts = ", ".join(f"x_v1.v[{k}]" for k in range(4))
    assert stores(kernel(PART)) == [f"emmy_peer_store_x4(there + (tid * 4), 1 - (bz & 1), {parts});"]
    pair = kernel(Pack((Lane(PART, 1), f32(2.0))))
    assert stores(pair) == ["emmy_peer_store_x2(there + (tid * 2), 1 - (bz & 1), x_v1.v[1], 2.0f);"]
    ones = kernel(Const(1.0, DType.F32, 4))
    assert stores(ones) == ["emmy_peer_store_x4(there + (tid * 4), 1 - (bz & 1), 1.0f, 1.0f, 1.0f, 1.0f);"]


def test_a_guard_keeps_the_store_away() -> None:
    one = kernel(Lane(PART, 2), guard=FEW)
    assert stores(one) == ["if (tid < 9) emmy_peer_store_x1(there + tid, 1 - (bz & 1), x_v1.v[2]);"]
    assert [line[:20] for line in stores(kernel(PART, guard=FEW))] == ["if (tid < 9) {", "emmy_peer_store_x4(t"]


def test_a_vector_that_is_not_aligned_is_stored_by_lanes() -> None:
    assert [line.split(",")[0] for line in stores(kernel(PART, aligned=False))] == [
        "emmy_peer_store_x1(there + (tid * 4)",
        *(f"emmy_peer_store_x1(there + ((tid * 4) + {k})" for k in (1, 2, 3)),
    ]


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
def test_assembled(arch: str) -> None:
    need("nvdisasm")
    result = compile_cuda(render(kernel(PART), "cuda"), arch)
    assert not result.log, "no warnings"
    assert "mapa.shared::cluster.u32" in result.ptx
    assert "st.shared::cluster.v4.f32" in result.ptx
    assert ".reqnctapercluster 1, 1, 2" in result.ptx
    code = disassemble(result.cubin)
    assert [code.count(word) for word in ("UCGABAR_ARV", "UCGABAR_WAIT", "ST.E.128")] == [2, 2, 1]


def test_an_older_gpu_is_refused() -> None:
    require_nvrtc()
    with pytest.raises(CompileFailed) as caught:
        compile_cuda(render(kernel(PART), "cuda"), "sm_80")
    assert "__cluster_dims__ is not supported" in caught.value.log


def test_opencl_has_no_clusters() -> None:
    with pytest.raises(CannotPrint, match="no clusters"):
        render(kernel(PART), "opencl")
    alone = replace(kernel(PART), body=(), shared=())
    with pytest.raises(CannotPrint, match="no clusters"):
        render(alone, "opencl")
