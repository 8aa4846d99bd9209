"""Reads of buffers whose address the compiler loses sight of are still reads of what nobody writes."""

from __future__ import annotations

import re

import pytest

from emmy.codegen import render
from emmy.codegen.cubin import disassemble
from emmy.codegen.nvrtc import compile_cuda
from emmy.device.registry import cuda_target
from emmy.schedule.knobs import KnobMap
from emmy.schedule.tiers.warp import WarpTier
from tests.codegen.compilers import require_nvrtc
from tests.codegen.test_cluster import need
from tests.passes.test_lower_warp import F16, product

CAPS = cuda_target("sm_90a")


@pytest.mark.parametrize("rows", [128, "s"])
def test_residuals_are_read_past_barriers(rows: int | str) -> None:
    require_nvrtc()
    need("nvdisasm")
    tier, region = WarpTier(), product(rows, 128, 256, epilogue="residual", hint=128)
    problem = tier.match(region, CAPS)
    pin = KnobMap.parse(f"TILE={F16}/w2x2/f2x4/k2,STAGE=d3/async")
    kernel = tier.lower(problem, CAPS, tier.read(problem, pin)).launches[0].kernel
    result = compile_cuda(render(kernel, "cuda"), "sm_90a")
    assert result.cubin
    reads = re.findall(r"\bLDG\.E\S*", disassemble(result.cubin))
    assert len(reads) == 8
    assert all(read.endswith(".CONSTANT") for read in reads), reads
