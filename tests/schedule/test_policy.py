"""Leaves that only a rule of policy keeps out of a search: a pin reaches them, and they are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emmy.device.base import Capabilities
from emmy.device.cuda_targets import cuda_target
from emmy.ir.dtype import DType
from emmy.ir.nest import Region
from emmy.schedule.knobs import KnobMap
from emmy.schedule.space import tiers
from emmy.schedule.tiers.base import Tier, take
from tests.passes import plans, test_lower_scalar, test_lower_warp
from tests.passes.plans import assert_right

H200, A100 = cuda_target("sm_90a"), cuda_target("sm_80")
SAMPLE = 4
"""Leaves a rule and region."""

MOST_CELLS = 1 << 16
"""Threads times blocks of a launch that is interpreted."""

TIERS = {tier.name: tier for tier in tiers()}


def beyond(tier: Tier, problem: Any, caps: Capabilities) -> dict[str, dict[str, np.ndarray]]:
    """Columns of the leaves that are right and not offered, by the rules of policy that keep them out."""
    columns = tier.grid(problem, caps, fast_math=False)
    right, _ = tier.legal(problem, caps, columns, policy=False)
    columns = take(columns, np.flatnonzero(right))
    return {
        rule.name: take(columns, np.flatnonzero(~rule.check(problem, caps, columns)))
        for rule in tier.rules
        if rule.policy
    }


def sample(leaves: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    count = len(next(iter(leaves.values())))
    rows = np.random.default_rng(5).permutation(count)[: 40 * SAMPLE]
    return [take(leaves, [int(row)]) for row in rows]


def check(tier: Tier, region: Region, caps: Capabilities) -> dict[str, int]:
    """Leaves run, by rule."""
    problem = tier.match(region, caps)
    done: dict[str, int] = {}
    for rule, leaves in beyond(tier, problem, caps).items():
        for leaf in sample(leaves):
            if done.get(rule, 0) >= SAMPLE:
                break
            assert tier.refuse(problem, caps, leaf) is None
            plan = tier.lower(problem, caps, leaf)
            cells = max(one.kernel.threads * int(np.prod(plan.grid(one, region.hints()))) for one in plan.launches)
            if cells > MOST_CELLS:
                continue
            knobs = str(tier.knobs(problem, leaf, 0))
            if tier.name == "warp":
                test_lower_warp.check(region, knobs.partition("TILE=")[2], caps=caps)
            elif tier.name == "scalar":
                test_lower_scalar.check(region, knobs, caps)
            else:
                assert_right(plan, region)
            done[rule] = done.get(rule, 0) + 1
    return done


@pytest.mark.parametrize(
    ("size", "caps"),
    [((1, 24, 17), H200), ((13, 8, 40), H200), ((5, 48, 33), A100), ((24, 32, 48), H200)],
)
def test_scalar_tiles(size: tuple[int, int, int], caps: Capabilities) -> None:
    done = check(TIERS["scalar"], test_lower_scalar.matmul(*size), caps)
    assert done["tile_within_problem"] == SAMPLE


def small(caps: Capabilities, units: int) -> Capabilities:
    """The same device with few multiprocessors: what fills it is small enough to interpret."""
    from dataclasses import replace

    return replace(caps, units=units)


def test_scalar_splits_clusters_slices_and_groups_on_a_small_device() -> None:
    done = check(TIERS["scalar"], test_lower_scalar.matmul(64, 64, 64), small(H200, 1))
    assert {"split_fills_the_device", "cluster_in_one_wave", "slices_for_few_tiles"} <= set(done)
    assert "group_orders_waves" in check(TIERS["scalar"], test_lower_scalar.matmul(256, 64, 16), H200)


@pytest.mark.parametrize("size", [(5, 16, 33), (33, 24, 64), (64, 64, 128)])
def test_warp_tiles(size: tuple[int, int, int]) -> None:
    done = check(TIERS["warp"], test_lower_warp.product(*size), H200)
    assert done["tile_within_problem"] == SAMPLE
    assert done["ring_no_deeper_than_k"] == SAMPLE


def test_warp_splits_clusters_slices_and_groups_on_a_small_device() -> None:
    done = check(TIERS["warp"], test_lower_warp.product(64, 64, 128), small(H200, 1))
    assert {"split_fills_the_device", "cluster_in_one_wave", "slices_for_few_tiles"} <= set(done)
    assert "group_orders_waves" in check(TIERS["warp"], test_lower_warp.product(96, 64, 32), H200)


@pytest.mark.parametrize(
    "knobs",
    [
        "TILE=r1/v64/reread,REDUCE=c32",
        "TILE=r1/v8/reread,REDUCE=c512",
        "TILE=r16/v4/reread,REDUCE=c16",
        "TILE=r64/v1/reread,REDUCE=c4",
    ],
)
@pytest.mark.parametrize(
    "region",
    [plans.softmax(3, 37), plans.rms_norm(5, 64), plans.row_reduce(2, 5, "argmax"), plans.silu_mul(3, 20),
     plans.softmax(4, 64, DType.F16)],
    ids=lambda region: region.name,
)  # fmt: skip
def test_rows(region: Region, knobs: str) -> None:
    tier = TIERS["row"]
    problem = tier.match(region, H200)
    leaf = tier.read(problem, KnobMap.parse(knobs))
    assert tier.refuse(problem, H200, leaf) is None
    assert not tier.legal(problem, H200, leaf)[0][0]
    assert_right(tier.lower(problem, H200, leaf), region)


@pytest.mark.parametrize("region", [plans.bias(3, 20), plans.column_sum(5, 7)], ids=lambda region: region.name)
def test_cells(region: Region) -> None:
    assert check(TIERS["cell"], region, H200)["step_within_row"] == SAMPLE


F16 = "TILE=a:mma_m16n8k16_f16_f32"


@pytest.mark.parametrize(
    ("tier", "region", "knobs", "rule"),
    [
        ("scalar", test_lower_scalar.matmul(1, 64, 64), "TILE=n16x8/f2x4/k8", "tile_within_problem"),
        ("scalar", test_lower_scalar.matmul(4096, 4096, 4096), "TILE=n16x16/f8x8/k16,REDUCE=g8k",
         "split_fills_the_device"),
        ("scalar", test_lower_scalar.matmul(512, 512, 512), "TILE=n16x8/f8x8/k16,RASTER=g4", "group_orders_waves"),
        ("scalar", test_lower_scalar.matmul(1024, 1024, 1024), "TILE=n32x8/f8x8/k16,REDUCE=g4c,STAGE=d3/async",
         "cluster_in_one_wave"),
        ("warp", test_lower_warp.product(2048, 2048, 512), f"{F16}/w2x2/f2x2/k2,STAGE=d2/async,REDUCE=g2k",
         "split_fills_the_device"),
        ("warp", test_lower_warp.product(512, 512, 64), f"{F16}/w2x2/f2x2/k2,STAGE=d6/async", "ring_no_deeper_than_k"),
        ("warp", test_lower_warp.product(16, 512, 512), f"{F16}/w4x2/f4x2/k2,STAGE=d3/async", "tile_within_problem"),
        ("warp", test_lower_warp.product(512, 512, 512), f"{F16}/w2x2/f2x4/k2,STAGE=d3/async,RASTER=g8",
         "group_orders_waves"),
        ("row", plans.softmax(16, 1024), "TILE=r1/v64/reread,REDUCE=c1024", "step_within_row"),
        ("row", plans.softmax(16, 1024), "TILE=r64/v1/reread", "rows_within_problem"),
        ("cell", plans.bias(4, 300), "TILE=n512x1/f2x1", "step_within_row"),
    ],
)  # fmt: skip
def test_a_policy_binds_the_search_and_no_pin(tier: str, region: Region, knobs: str, rule: str) -> None:
    one = TIERS[tier]
    problem = one.match(region, H200)
    leaf = one.read(problem, KnobMap.parse(knobs))
    allowed, first = one.legal(problem, H200, leaf)
    assert not allowed[0]
    assert one.rules[int(first[0])].name == rule
    assert one.refuse(problem, H200, leaf) is None
    assert one.lower(problem, H200, leaf).launches


def test_every_rule_says_what_it_asks_for() -> None:
    said = {(tier.name, rule.name): rule.what for tier in tiers() for rule in tier.rules}
    assert all(len(what) > 10 for what in said.values()), said
    policies = {rule.name for tier in tiers() for rule in tier.rules if rule.policy}
    assert "threads_fit" not in policies
    assert "tile_within_problem" in policies
