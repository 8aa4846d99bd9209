"""What is offered compiles: leaves of every tier for three architectures, in the cheap build where a tier has it."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from emmy.codegen.nvrtc import compile_cuda
from emmy.device.cuda import compile_options
from emmy.device.cuda_targets import cuda_target
from emmy.schedule.space import enumerate_space
from emmy.search.variant import Variant
from tests.codegen.compilers import require_nvrtc
from tests.gpu.cases import CASES

NAMES = ("matmul.f32.ragged", "matmul.f16.dynM.ragged", "bias_gelu.bf16", "softmax.f16.dynM.ragged", "layer_norm.f32",
         "attention.f16.causal.ragged")  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("name", NAMES)
def test_sampled_leaves_compile(name: str, arch: str) -> None:
    require_nvrtc()
    region, caps = CASES[name].region(), cuda_target(arch)
    space = enumerate_space(region, caps, True)
    compiled = 0
    for number, part in enumerate(space.parts):
        if not len(part):
            continue
        rng = np.random.default_rng(zlib.crc32(f"{name} {arch} {part.tier.name}".encode()))
        leaf = int(space.starts[number] + rng.integers(len(part)))
        variant = Variant(region, caps, space.knobs(leaf), space.lower(leaf))
        for kernel in variant.artefact.kernels:
            for regime in ("O3", "O1") if part.tier.o1_valid else ("O3",):
                options = compile_options(variant.artefact.options, regime)
                assert compile_cuda(kernel.source, arch, options).cubin
                compiled += 1
    assert compiled
