"""Every kind of atom once: its operands taken to registers through their layouts, its result stored through its own."""

from __future__ import annotations

import numpy as np
import pytest

from emmy.codegen import render
from emmy.codegen.nvrtc import compile_cuda
from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Lane, Mem, Pack, cast, i32
from emmy.ir.fragment import ATOMS, Fragments, Mma, Swizzle
from emmy.ir.interp import Misuse, run_kernel
from emmy.ir.kernel import TID, Barrier, BufferParam, Kernel, RegSet, Shared, Stmt, Store
from emmy.ir.kernel_verify import verify
from emmy.ir.pipeline import AsyncFence, Matrix, Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait
from emmy.ir.scalar import round_bf16
from emmy.passes.expand import expand
from emmy.passes.legalize import legalize
from tests.codegen.compilers import require_nvrtc

WARP = ["mma_m16n8k16_f16_f32", "mma_m16n8k16_f16_f16", "mma_m16n8k16_bf16_f32"]
WARPGROUP = ["wgmma_m64n8k16_f16_f32", "wgmma_m64n32k16_bf16_f32", "wgmma_m64n16k16_f16_f16"]


def loaded(fragments: Fragments, buffer: str) -> RegSet:
    layout = fragments.layout
    values: list[Expr] = []
    for register in range(layout.registers):
        at = layout.row(TID, register) * layout.cols + layout.col(TID, register)
        values.append(Mem(buffer, at, fragments.dtype))
    return RegSet(fragments.at(), Pack(tuple(values)))


def atom_kernel(name: str, *, fence: bool = True) -> Kernel:
    """``y = a @ b``; b of a warpgroup atom goes through shared memory, transposed and swizzled."""
    atom = ATOMS[name]
    a, c = Fragments("a_frag", name, "a", ()), Fragments("c_frag", name, "c", (), 0.0)
    body: list[Stmt] = [a, c, loaded(a, "a")]
    shared: tuple[Shared, ...] = ()
    if not atom.is_wgmma:
        b = Fragments("b_frag", name, "b", ())
        body += [b, loaded(b, "b"), Mma(name, c.at(), a.at(), b.at())]
    else:
        swizzle = Swizzle.of_span(32)  # a row of 16 elements is 32 bytes
        shared = (Shared("tile", atom.operand, atom.n * atom.k, 256),)
        for first in range(0, atom.n * atom.k, 128):
            at = TID + first
            row, k = at // atom.k, at % atom.k
            body.append(Store("tile", swizzle.element(at, 2), Mem("b", k * atom.n + row, atom.operand), atom.operand))
        body += [AsyncFence()] if fence else []
        matrix = Matrix("tile", i32(0), "k", 32, 256)
        body += [Barrier(), WgmmaFence(), Wgmma(name, c.at(), a.at(), matrix), WgmmaCommit(), WgmmaWait(0)]
    for register in range(atom.c.registers):
        at = atom.c.row(TID, register) * atom.n + atom.c.col(TID, register)
        body.append(Store("y", at, cast(Lane(c.at(), register), DType.F32), DType.F32))
    params = (BufferParam("a", atom.operand), BufferParam("b", atom.operand), BufferParam("y", DType.F32, True))
    return Kernel(f"k_{name}", params, (atom.lanes, 1), tuple(body), shared)


@pytest.mark.parametrize("name", WARP + WARPGROUP)
def test_atom(name: str) -> None:
    atom, kernel = ATOMS[name], atom_kernel(name)
    verify(kernel)
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((atom.m, atom.k), (atom.k, atom.n)))
    if atom.operand == DType.F16:
        a, b = a.astype(np.float16), b.astype(np.float16)
    else:
        a, b = round_bf16(a), round_bf16(b)
    oracle = a.astype(np.float64) @ b.astype(np.float64)
    tolerance = 1e-5 if atom.acc == DType.F32 else 1e-2
    for version in (kernel, legalize(expand(kernel, "cuda"), "cuda")):
        y = np.full((atom.m, atom.n), np.nan, np.float32)
        run_kernel(version, (1,), {"a": a, "b": b, "y": y})
        np.testing.assert_allclose(y, oracle, rtol=tolerance, atol=tolerance)
    require_nvrtc()
    assert compile_cuda(render(kernel, "cuda"), "sm_90a" if atom.is_wgmma else "sm_80").cubin


def test_shared_writes_of_threads_need_a_fence() -> None:
    name = "wgmma_m64n8k16_f16_f32"
    a, b, y = np.ones((64, 16), np.float16), np.ones((16, 8), np.float16), np.zeros((64, 8), np.float32)
    with pytest.raises(Misuse, match="as threads wrote it"):
        run_kernel(atom_kernel(name, fence=False), (1,), {"a": a, "b": b, "y": y})
