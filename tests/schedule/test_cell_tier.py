"""The cell tier's space: what is offered is legal, lowers and is right."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from emmy.device.registry import cuda_target
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.kernel_verify import verify as verify_kernel
from emmy.ir.nest import Region
from emmy.schedule import features
from emmy.schedule.knobs import KnobMap
from emmy.schedule.tiers.base import take
from emmy.schedule.tiers.cell import CellTier
from tests.passes import plans
from tests.passes.devices import CPU
from tests.passes.plans import assert_right
from tests.passes.test_lower_scalar import matmul

TIER = CellTier()
GPU = cuda_target("sm_80")
REGIONS = [
    plans.column_sum(40, 64),
    plans.row_reduce(19, 30, "argmax"),
    plans.silu_mul(9, 50, DType.F64),
    plans.bias("m", 40),
    matmul(6, 70, 9, bias=True),
]


def offered(region: Region, caps):
    problem = TIER.match(region, caps)
    columns = TIER.grid(problem, caps, False)
    allowed, _ = TIER.legal(problem, caps, columns)
    return problem, take(columns, allowed)


@pytest.mark.parametrize("caps", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("region", REGIONS, ids=lambda r: r.name)
def test_every_offered_leaf_lowers(region: Region, caps) -> None:
    problem, leaves = offered(region, caps)
    count = len(leaves["n"])
    assert count >= (5 if caps is CPU else 3)
    for row in range(count):
        again = TIER.read(problem, KnobMap.parse(str(TIER.knobs(problem, leaves, row))))
        assert all(again[name][0] == leaves[name][row] for name in leaves)
        plan = TIER.lower(problem, caps, again)
        verify_kernel(plan.launches[0].kernel)
        assert plan.launches[0].kernel.threads <= caps.max_threads
    for row in np.random.default_rng(5).choice(count, size=min(count, 5), replace=False):
        assert_right(TIER.lower(problem, caps, take(leaves, slice(row, row + 1))), region)


@pytest.mark.parametrize(
    ("knobs", "name"),
    [
        ("TILE=n2048x1/f1x1", "threads_fit"),
        ("TILE=n1x1/f99x1", "cells_at_most_32_vectors"),
    ],
)
def test_rules_are_named(knobs: str, name: str) -> None:
    problem = TIER.match(plans.bias(4, 300), GPU)
    with pytest.raises(Refused) as caught:
        TIER.lower(problem, GPU, TIER.read(problem, KnobMap.parse(knobs)))
    assert caught.value.rule == name
    assert caught.value.where.startswith("emmy/schedule/tiers/cell.py:")


@pytest.mark.parametrize(
    "knobs", ["TILE=r1/v8/reread", "TILE=n8x1/f8x1/k4", "TILE=n8x2/f8x1", "TILE=n8x1/f8x1,REDUCE=c2"]
)
def test_knobs_of_other_tiers_are_refused(knobs: str) -> None:
    problem = TIER.match(plans.bias(4, 300), GPU)
    with pytest.raises(Refused):
        TIER.read(problem, KnobMap.parse(knobs))


def test_a_device_without_fp64_refuses_it() -> None:
    caps = dataclasses.replace(CPU, fp64=False)
    with pytest.raises(Refused, match="device_has_fp64"):
        TIER.match(plans.silu_mul(3, 4, DType.F64), caps)


@pytest.mark.parametrize("region", REGIONS, ids=lambda r: r.name)
def test_features_are_finite_and_in_the_table(region: Region) -> None:
    for caps in (CPU, GPU):
        problem, leaves = offered(region, caps)
        values = TIER.features(problem, caps, leaves)
        assert set(values) <= set(features.FEATURES)
        assert np.isfinite(features.matrix(len(leaves["n"]), values)).all()


def test_labels_tell_every_leaf_apart() -> None:
    for region in REGIONS:
        problem, leaves = offered(region, CPU)
        labels = np.stack(list(TIER.labels(problem, leaves).values()), axis=1)
        assert len(np.unique(labels, axis=0)) == len(labels)
