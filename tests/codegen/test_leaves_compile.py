"""What is offered compiles, and without a warning: leaves of every tier for three architectures, in both builds."""

from __future__ import annotations

import zlib
from collections import Counter

import numpy as np
import pytest

from emmy.codegen.cuda import CudaPrinter
from emmy.codegen.nvrtc import compile_cuda
from emmy.device.cuda import compile_options
from emmy.device.cuda_targets import cuda_target
from emmy.errors import CompileFailed
from emmy.schedule.space import enumerate_space, tiers
from emmy.search.variant import Variant
from tests.codegen.compilers import require_nvrtc
from tests.gpu.cases import CASES

NAMES = {
    "matmul.f32.ragged": ("scalar", "cell"), "matmul.f16.dynM.ragged": ("scalar", "warp", "cell"),
    "bias_gelu.bf16": ("scalar", "warp", "cell"), "softmax.f16.dynM.ragged": ("row",), "layer_norm.f32": ("row",),
    "argmax.f32": ("row", "cell"), "attention.f16.causal.ragged": ("attention",),
}  # fmt: skip
"""Case → tiers that it has to sample."""

ARCHITECTURES = ("sm_80", "sm_90a", "sm_120")
LEAVES = 2
"""Of each tier."""


def compile_sampled(name: str, arch: str) -> Counter[str]:
    """Lowers, prints and compiles leaves of a case; kernels by tier. Raises CompileFailed."""
    region, caps = CASES[name].region(), cuda_target(arch)
    space = enumerate_space(region, caps, True)
    compiled: Counter[str] = Counter()
    for number, part in enumerate(space.parts):
        rng = np.random.default_rng(zlib.crc32(f"{name} {arch} {part.tier.name}".encode()))
        for row in rng.choice(len(part), min(LEAVES, len(part)), replace=False) if len(part) else ():
            leaf = int(space.starts[number] + row)
            variant = Variant(region, caps, space.knobs(leaf), space.lower(leaf))
            for kernel in variant.artefact.kernels:
                for regime in ("O3", "O1") if part.tier.o1_valid else ("O3",):
                    options = compile_options(variant.artefact.options, regime)
                    result = compile_cuda(kernel.source, arch, options)
                    assert result.cubin[:4] == b"\x7fELF"
                    said = result.log.strip("\0\n ")
                    assert "kernel.cu(" not in said, f"{part.tier.name} {variant.knobs}: the front end warns: {said}"
                    compiled[part.tier.name] += 1
    return compiled


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", NAMES)
def test_sampled_leaves_compile(name: str, arch: str) -> None:
    require_nvrtc()
    compiled = compile_sampled(name, arch)
    assert all(compiled[tier] for tier in NAMES[name])


def test_every_tier_is_sampled() -> None:
    assert {tier for tiers_of in NAMES.values() for tier in tiers_of} == {tier.name for tier in tiers()}


@pytest.mark.parametrize("name", ["matmul.f32.ragged", "matmul.f16.dynM.ragged", "softmax.f16.dynM.ragged"])
def test_a_printer_that_prints_nonsense_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_nvrtc()
    monkeypatch.setattr(CudaPrinter, "store", lambda self, stmt: f"nonsense({stmt.buffer});")
    with pytest.raises(CompileFailed, match="NVRTC"):
        compile_sampled(name, "sm_80")
    monkeypatch.undo()
    monkeypatch.setattr(CudaPrinter, "store", lambda self, stmt: "{ int nothing; }")
    with pytest.raises(AssertionError, match="the front end warns"):
        compile_sampled(name, "sm_80")
