"""Four hand-built kernels: right at ring level and expanded, verified, printed as expected, compiled by NVRTC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emmy.codegen import render
from emmy.codegen.nvrtc import compile_cuda
from emmy.ir.dtype import DType
from emmy.ir.expr import i32
from emmy.ir.interp import TensorMap, run_kernel
from emmy.ir.kernel import Kernel
from emmy.ir.kernel_print import text
from emmy.ir.kernel_verify import verify
from emmy.ir.nest import Tensor
from emmy.ir.plan import Launch, Plan
from emmy.ir.plan import text as plan_text
from emmy.passes.expand import expand
from emmy.passes.legalize import legalize
from emmy.passes.prune import prune
from tests.codegen.compilers import require_nvrtc
from tests.codegen.expected import expect
from tests.passes.plans import interpret
from tests.programs import attention, cluster_sum, mma_matmul, wgmma_matmul

EXPECTED = Path(__file__).parent / "expected"
Half = np.float16


@dataclass(frozen=True)
class Program:
    """A kernel, the architectures it compiles for, and a run of it: (grid, arguments, output's name, oracle)."""

    kernel: Kernel
    architectures: tuple[str, ...]
    case: Callable[[], tuple[tuple[int, ...], dict[str, Any], str, Any]]
    tolerance: float


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(Half)


def mma_case() -> tuple[tuple[int, ...], dict[str, Any], str, Any]:
    m, n, k = 70, 72, 80
    a, b = draw(m, k), draw(k, n)
    args = {"a": a, "b": b, "c": np.full((m, n), np.nan, np.float32), "m": m}
    return mma_matmul.grid(m, n), args, "c", a.astype(np.float64) @ b.astype(np.float64)


def wgmma_case() -> tuple[tuple[int, ...], dict[str, Any], str, Any]:
    m, n, k = 200, 136, 320
    a, b = draw(m, k), draw(n, k)
    args = {"a_map": TensorMap(a, (128, 64), 128), "b_map": TensorMap(b, (128, 64), 128),
            "c": np.full((m, n), np.nan, np.float32), "m": m, "blocks": 3}  # fmt: skip
    return (3,), args, "c", a.astype(np.float64) @ b.astype(np.float64).T


def attention_case() -> tuple[tuple[int, ...], dict[str, Any], str, Any]:
    heads, s, d = 2, 100, attention.HEAD
    q, k, v = draw(heads, s, d), draw(heads, s, d)[:, ::-1].copy(), draw(heads, s, d)[..., ::-1].copy()
    scores = np.einsum("hsd,htd->hst", q.astype(np.float64), k.astype(np.float64)) * d**-0.5
    scores = np.where(np.tril(np.ones((s, s), dtype=bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    oracle = weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)
    args = {"q": q, "k": k, "v": v, "out": np.full((heads, s, d), np.nan, Half), "s": s}
    return (-(-s // attention.ROWS), heads), args, "out", oracle


def cluster_case() -> tuple[tuple[int, ...], dict[str, Any], str, Any]:
    n, k = 300, 37
    x = draw(k, n).astype(np.float32)
    return cluster_sum.grid(n), {"x": x, "y": np.full(n, np.nan, np.float32)}, "y", x.astype(np.float64).sum(0)


PROGRAMS = {
    "mma_matmul": Program(mma_matmul.matmul(72, 80), ("sm_80", "sm_90a", "sm_120"), mma_case, 1e-4),
    "wgmma_matmul": Program(wgmma_matmul.matmul(136, 320), ("sm_90a",), wgmma_case, 2e-4),
    "attention": Program(attention.attention(), ("sm_80", "sm_90a"), attention_case, 2e-3),
    "cluster_sum": Program(cluster_sum.column_sum(300, 37), ("sm_90", "sm_90a", "sm_120"), cluster_case, 1e-5),
}


@pytest.mark.parametrize("stage", ["rings", "expanded", "legalized", "pruned"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_matches_the_oracle(name: str, stage: str) -> None:
    program = PROGRAMS[name]
    kernel = program.kernel if stage == "rings" else expand(program.kernel, "cuda")
    verify(kernel)
    if stage in ("legalized", "pruned"):
        kernel = legalize(kernel, "cuda")
    if stage == "pruned":
        kernel = prune(kernel)
    grid, args, out, oracle = program.case()
    run_kernel(kernel, grid, args)
    np.testing.assert_allclose(args[out].astype(np.float64), oracle, atol=program.tolerance, rtol=program.tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_text(name: str) -> None:
    kernel = PROGRAMS[name].kernel
    expect(EXPECTED / f"{name}.kernel", text(kernel))
    expect(EXPECTED / f"{name}.expanded", text(expand(kernel, "cuda")))
    expect(EXPECTED / f"{name}.cu", render(kernel, "cuda"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_nvrtc_compiles(name: str) -> None:
    require_nvrtc()
    for arch in PROGRAMS[name].architectures:
        result = compile_cuda(render(PROGRAMS[name].kernel, "cuda"), arch)
        assert result.cubin[:4] == b"\x7fELF"
        assert not result.log, "no warnings"


def test_a_plan_of_clusters() -> None:
    n, k = 300, 37
    x, y = Tensor("x", (i32(k), i32(n)), DType.F32), Tensor("y", (i32(n),), DType.F32)
    across, _, cluster = cluster_sum.grid(n)
    launch = Launch(cluster_sum.column_sum(n, k), (i32(across), i32(1), i32(cluster)), ("x", "y"))
    plan = Plan("sums", (), (x,), (y,), (), (launch,))
    assert "launch k_cluster_sum<grid (2, 1, 4), block 64x1, cluster 4>(x, y)" in plan_text(plan)
    _, args, out, oracle = cluster_case()
    np.testing.assert_allclose(interpret(plan, {"x": args["x"]}, {})[out], oracle, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("m", [1, 64, 65])
def test_one_kernel_for_every_size(m: int) -> None:
    n, k = 72, 80
    a, b = draw(m, k), draw(k, n)
    c = np.full((m, n), np.nan, np.float32)
    run_kernel(expand(PROGRAMS["mma_matmul"].kernel, "cuda"), mma_matmul.grid(m, n), {"a": a, "b": b, "c": c, "m": m})
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_any_depth(depth: int) -> None:
    grid, args, out, oracle = mma_case()
    run_kernel(expand(mma_matmul.matmul(72, 80, depth), "cuda"), grid, args)
    np.testing.assert_allclose(args[out], oracle, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_copies_through_registers(depth: int) -> None:
    kernel = mma_matmul.matmul(72, 80, depth, transport="sync")
    for version in (kernel, expand(kernel, "cuda")):
        grid, args, out, oracle = mma_case()
        run_kernel(version, grid, args)
        np.testing.assert_allclose(args[out], oracle, atol=1e-4, rtol=1e-4)


def test_tensor_copies_without_roles() -> None:
    kernel = wgmma_matmul.matmul(136, 320, 3, roles=False)
    verify(kernel)
    for version in (kernel, expand(kernel, "cuda")):
        grid, args, out, oracle = wgmma_case()
        run_kernel(version, grid, args)
        np.testing.assert_allclose(args[out], oracle, atol=2e-4, rtol=2e-4)
    require_nvrtc()
    assert compile_cuda(render(kernel, "cuda"), "sm_90a").cubin


def test_operand_b_along_n() -> None:
    kernel = wgmma_matmul.matmul(136, 320, b_major="mn")
    verify(kernel)
    for version in (kernel, expand(kernel, "cuda")):
        grid, args, out, oracle = wgmma_case()
        args["b_map"] = TensorMap(args["b_map"].array.T.copy(), (64, 64), 128)
        run_kernel(version, grid, args)
        np.testing.assert_allclose(args[out], oracle, atol=2e-4, rtol=2e-4)
    require_nvrtc()
    assert compile_cuda(render(kernel, "cuda"), "sm_90a").cubin
