"""Small kernels: verified, interpreted before and after every late pass, printed, compiled, and run on OpenCL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emmy.codegen import render
from emmy.codegen.nvrtc import compile_cuda
from emmy.ir.interp import run_kernel
from emmy.ir.kernel_print import text
from emmy.ir.kernel_verify import verify
from emmy.passes.expand import expand
from emmy.passes.legalize import legalize
from emmy.passes.prune import prune
from tests.codegen.compilers import require_nvrtc, run_opencl
from tests.codegen.expected import expect
from tests.codegen.samples import SAMPLES

EXPECTED = Path(__file__).parent / "expected"


def close(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_allclose(got[name].astype(np.float64), value.astype(np.float64), rtol=3e-6, atol=3e-6,
                                       err_msg=name)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_late_passes_keep_the_meaning(name: str) -> None:
    kernel, grid, wanted = SAMPLES[name]()
    verify(kernel)
    run_kernel(kernel, grid, wanted)
    for language in ("opencl", "cuda"):
        late = expand(kernel, language)
        verify(late)
        ready = legalize(late, language)
        for version in (late, ready, prune(ready)):
            _, _, got = SAMPLES[name]()
            run_kernel(version, grid, got)
            close(got, wanted)


@pytest.mark.parametrize("name", SAMPLES)
def test_opencl_runs_as_interpreted(name: str) -> None:
    kernel, grid, wanted = SAMPLES[name]()
    _, _, got = SAMPLES[name]()
    run_kernel(kernel, grid, wanted)
    run_opencl(kernel, grid, got)
    close(got, wanted)


@pytest.mark.parametrize("width", [1, 2])
def test_opencl_with_narrow_vectors(width: int) -> None:
    kernel, grid, wanted = SAMPLES["scalar_tile"]()
    _, _, got = SAMPLES["scalar_tile"]()
    run_kernel(kernel, grid, wanted)
    run_opencl(kernel, grid, got, vector_width=width)
    close(got, wanted)
    assert "float4" not in render(kernel, "opencl", width)


@pytest.mark.parametrize("name", SAMPLES)
def test_cuda_compiles(name: str) -> None:
    require_nvrtc()
    kernel, _, _ = SAMPLES[name]()
    for arch in ("sm_80", "sm_120"):
        result = compile_cuda(render(kernel, "cuda"), arch)
        assert result.cubin
        assert not result.log.strip("\0\n "), "no warnings"


def test_matmul_is_right() -> None:
    kernel, grid, args = SAMPLES["scalar_tile"]()
    run_kernel(kernel, grid, args)
    np.testing.assert_allclose(args["c"], args["a"] @ args["b"], rtol=1e-5, atol=1e-5)


def test_reductions_are_right() -> None:
    for name, wanted in (("row_sum", np.sum), ("row_argmax", np.argmax), ("row_welford", np.mean)):
        kernel, grid, args = SAMPLES[name]()
        run_kernel(kernel, grid, args)
        out = args["out1" if name == "row_argmax" else "out0"]
        np.testing.assert_allclose(out[:, 0], wanted(args["x"], axis=1), rtol=1e-5, atol=1e-5, err_msg=name)
        assert (out == out[:, :1]).all(), "every thread holds the result"


@pytest.mark.parametrize("name", ["scalar_tile", "row_sum", "row_welford", "conversions", "storage_f16"])
def test_text(name: str) -> None:
    kernel, _, _ = SAMPLES[name]()
    expect(EXPECTED / f"{name}.kernel", text(kernel))
    expect(EXPECTED / f"{name}.cl", render(kernel, "opencl"))
    expect(EXPECTED / f"{name}.cu", render(kernel, "cuda"))
