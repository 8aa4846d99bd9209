"""What the warp tier offers: counts, rules by name, knobs that read back, features, and that every leaf compiles."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from emmy.codegen import render
from emmy.codegen.nvrtc import compile_cuda
from emmy.device.registry import cuda_target
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.nest import Region
from emmy.schedule import features
from emmy.schedule.knobs import KnobMap
from emmy.schedule.space import enumerate_space, refusal
from emmy.schedule.tiers.base import take
from emmy.schedule.tiers.warp import WarpTier
from tests.codegen.compilers import require_nvrtc
from tests.passes.devices import CPU
from tests.passes.test_lower_warp import ATOMS, F16, product

TIER = WarpTier()
H200 = cuda_target("sm_90a")
ARCHS = ("sm_80", "sm_90a", "sm_120")


def offered(region: Region, arch: str = "sm_90a", fast_math: bool = False):
    """(problem, legal columns)"""
    caps = cuda_target(arch)
    problem = TIER.match(region, caps)
    columns = TIER.grid(problem, caps, fast_math)
    allowed, _ = TIER.legal(problem, caps, columns)
    return problem, take(columns, allowed)


def refused(region: Region, knobs: str, caps=H200) -> str:
    problem = TIER.match(region, caps)
    reason = TIER.refuse(problem, caps, TIER.read(problem, KnobMap.parse(f"TILE={knobs}")))
    return reason.rule if reason else ""


def test_a_few_thousand_leaves_are_offered() -> None:
    _, columns = offered(product(1024, 1024, 1024))
    assert 1000 < len(columns["wm"]) < 8000


@pytest.mark.parametrize("size", [(32, 1024, 1024), (32, 2048, 1024), (32, 1024, 3072), (128, 1024, 2048)])
def test_few_rows_can_fill_the_device(size: tuple[int, int, int]) -> None:
    problem, columns = offered(product(*size))
    values = TIER.features(problem, H200, columns)
    full = (values["blocks"] >= 120) & (values["blocks"] <= 132)
    assert np.count_nonzero(full) > 50
    assert set(columns["split"][full]) >= {2, 4}
    assert columns["depth"][full].max() == 6


def test_knobs_read_back_and_features_are_of_the_table() -> None:
    problem, columns = offered(product(512, 3072, 1024))
    for row in range(0, len(columns["wm"]), 97):
        knobs = TIER.knobs(problem, columns, row)
        again = TIER.read(problem, KnobMap.parse(str(knobs)))
        assert {name: int(column[row]) for name, column in columns.items()} == {n: int(c[0]) for n, c in again.items()}
    matrix = features.matrix(len(columns["wm"]), TIER.features(problem, H200, columns))
    assert np.isfinite(matrix).all()
    tail = [features.NAMES.index(name) for name in ("tail_m", "tail_n", "tail_units")]
    assert (matrix[:, tail] >= 0).all()
    assert (matrix[:, tail] < 1).all()


def test_levels_tell_every_leaf_apart() -> None:
    problem, columns = offered(product(1024, 1024, 1024))
    labels = TIER.labels(problem, columns)
    stacked = np.stack([labels[name] for name in labels], axis=1)
    assert len(np.unique(stacked, axis=0)) == len(stacked)


def test_fast_math_is_a_superset_and_pins_reach_it_always() -> None:
    region = product(512, 512, 512)
    _, std = offered(region)
    _, fast = offered(region, fast_math=True)
    assert set(std["atom"]) < set(fast["atom"])
    assert len(fast["atom"]) > len(std["atom"])
    assert refused(region, "a:mma_m16n8k16_f16_f16/w2x2/f4x4/k2,STAGE=d4/async") == ""


@pytest.mark.parametrize(
    ("region", "knobs", "rule"),
    [
        (product(512, 512, 512), f"{F16}/w2x2/f8x8/k2,STAGE=d3/async", "accumulators_fit"),
        (product(512, 512, 512), f"{F16}/w4x2/f4x8/k4,STAGE=d6/async", "shared_memory_fits"),
        (product(512, 512, 512), f"{F16}/w8x8/f1x1/k2,STAGE=d2/async", "threads_fit"),
        (product(512, 512, 512), f"{F16}/w2x2/f2x2/k2,STAGE=d2/async,REDUCE=g2a", "atomics_need_plain_f32_sum"),
        (product(512, 512, 64), f"{F16}/w2x2/f2x2/k2,STAGE=d2/async,REDUCE=g4k", "split_within_k"),
        (product(512, 511, 512), f"{F16}/w2x2/f2x2/k2,STAGE=d3/async", "async_copies_aligned_words"),
        (product(512, 512, 512), f"{ATOMS[DType.BF16]}/w2x2/f2x2/k2,STAGE=d3/async", "atom_takes_the_operands"),
    ],
)
def test_rules_refuse_by_name(region: Region, knobs: str, rule: str) -> None:
    assert refused(region, knobs) == rule


@pytest.mark.parametrize("knobs", ["n8x8/f2x2/k8", f"{F16}/w2x2/f2x2/k2", f"{F16}/w2x2/f2x2/k2,STAGE=d3/tma"])
def test_values_of_other_tiers_are_not_read(knobs: str) -> None:
    problem = TIER.match(product(64, 64, 64), H200)
    with pytest.raises(Refused):
        TIER.read(problem, KnobMap.parse(f"TILE={knobs}"))


def test_what_cannot_be_on_atoms_is_declined_by_name() -> None:
    with pytest.raises(Refused, match="operands_16_bit"):
        TIER.match(product(64, 64, 64, dtype=DType.F32), H200)
    with pytest.raises(Refused, match="device_has_atoms"):
        TIER.match(product(64, 64, 64), CPU)
    with pytest.raises(Refused, match="device_has_atoms"):
        TIER.match(product(64, 64, 64, dtype=DType.BF16), replace(H200, atoms=("mma_m16n8k16_f16_f32",)))


def test_odd_sizes_are_offered_through_registers_only() -> None:
    _, columns = offered(product(100, 51, 77))
    assert len(columns["wm"]) > 20
    assert set(columns["transport"]) == {1}


def test_the_space_of_a_region_holds_the_tier() -> None:
    region = product(256, 256, 256)
    space = enumerate_space(region, H200)
    assert "warp" in {part.tier.name for part in space.parts}
    leaf = next(i for i in range(int(space.starts[1]), len(space)) if str(space.knobs(i)["TILE"]).startswith("a:mma"))
    assert space.find(space.knobs(leaf)) == leaf
    assert refusal(region, H200, space.knobs(leaf)) is None


# --------------------------------------------------------------------------------------------------- compiling

REGIONS = [
    product(1024, 1024, 1024),
    product(32, 2048, 1024, dtype=DType.BF16, b="nk"),
    product("s", 3072, 1024, hint=512, epilogue="bias+relu"),
    product(512, 1024, 1024, b="nk", epilogue="bias+residual"),
    product(128, 1024, 2048, out=DType.F32),
    product(100, 51, 77, a="km"),
    product(512, 1024, 512, prologue="silu", dtype=DType.BF16),
    product("s", 256, 256, hint=256, batch=4, epilogue="both"),
]


def sample(number: int, arch: str, seed: int) -> tuple[Region, str]:
    """A region and a random leaf that is offered for it on a target."""
    region = REGIONS[number % len(REGIONS)]
    problem, columns = offered(region, arch, fast_math=True)
    row = int(np.random.default_rng(seed).integers(len(columns["wm"])))
    return region, str(TIER.knobs(problem, columns, row))


def spilled(source: str, arch: str) -> int:
    """Bytes of spill stores and loads by ptxas's own count, over the kernels of a source."""
    log = compile_cuda(source, arch, ("--ptxas-options=-v",)).log
    counts = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    assert counts, f"ptxas does not say what it spills: {log!r}"
    return sum(map(int, counts))


SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) k(float* x) {
  float t[64];
  for (int i = 0; i < 64; i++) t[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int j = 0; j < 64; j++) for (int i = 0; i < 64; i++) t[i] = t[i] * t[63 - i] + x[j];
  for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = t[i];
}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_a_spill_is_seen(arch: str) -> None:
    require_nvrtc()
    assert spilled(SPILLING, arch) > 0
    assert spilled('extern "C" __global__ void k(float* x) { x[1] = 2; }', arch) == 0


def compiled(region: Region, knobs: str, arch: str) -> None:
    caps = cuda_target(arch)
    problem = TIER.match(region, caps)
    columns = TIER.read(problem, KnobMap.parse(knobs))
    plan = TIER.lower(problem, caps, columns)
    for launch in plan.launches:
        assert spilled(render(launch.kernel, "cuda"), arch) == 0, f"{knobs} on {arch}"


@pytest.mark.parametrize("number", range(12))
def test_offered_leaves_compile(number: int) -> None:
    arch = ARCHS[number % 3]
    compiled(*sample(number, arch, 3 + number), arch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("arch", ARCHS)
def test_many_offered_leaves_compile_for_every_target(seed: int, arch: str) -> None:
    compiled(*sample(seed, arch, 100 + seed), arch)


def test_a_good_leaf_keeps_its_loop_lean() -> None:
    """128 × 128 × 32, four slots: four warps, 64 products a step, whole copies and loads, nothing spilled."""
    region = product(1024, 1024, 1024)
    problem = TIER.match(region, H200)
    knobs = KnobMap.parse(f"TILE={F16}/w2x2/f4x8/k2,STAGE=d4/async")
    kernel = TIER.lower(problem, H200, TIER.read(problem, knobs)).launches[0].kernel
    result = compile_cuda(render(kernel, "cuda"), "sm_90a", ("--ptxas-options=-v",))
    used = re.search(r"Used (\d+) registers", result.log)
    assert used is not None
    assert int(used[1]) <= 255
    assert re.search(r"(\d+) bytes spill stores", result.log)[1] == "0"  # type: ignore[index]
    body = result.ptx[result.ptx.index("mma.sync") :]
    loop = result.ptx[: result.ptx.rindex("mma.sync")]
    assert body.count("mma.sync") == 64
    assert loop.count("ldmatrix.sync.aligned.m8n8.x4") == 8 + 16
    assert "ld.global.nc.u16" not in result.ptx
    assert "cp.async.ca" not in result.ptx
