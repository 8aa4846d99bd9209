"""The model of how long a multiprocessor is busy with a scalar tile."""

from __future__ import annotations

import numpy as np
import pytest

from emmy.device.registry import cuda_target
from emmy.schedule import features
from emmy.schedule.space import enumerate_space
from emmy.schedule.tiers.base import Columns
from emmy.schedule.tiers.scalar_busy import busy
from tests.passes.devices import CPU
from tests.passes.test_lower_scalar import matmul

LEAF = {"n": 16, "m": 16, "fn": 8, "fm": 8, "k": 16, "depth": 3, "split": 1, "slices": 1}


def columns(**changes: int) -> Columns:
    return {name: np.array([value]) for name, value in (LEAF | changes).items()}


def cycles(tiles: int, held: int = 1, joined: bool = False, **changes: int) -> float:
    """Of the busiest of 100 units, over those of the products, with ``tiles`` tiles of 128 x 128 side by side."""
    c = columns(**changes)
    return 1.0 + float(busy(c, (1, 128, 128 * tiles, 4096), 100, np.array([float(held)]), np.array([joined]))[0])


def test_by_hand() -> None:
    # a step: 2 warps a part, 64 products and 4 reads; a slot: 16 steps, 10 copies a thread, a barrier
    step = max(2 * (64 * 0.87 + 5), 8 * 4 * 1.28, 64 * 0.87 + 4 + 4.35)
    slot = 16 * step + 2 * (128 + 32) * 16 / 256 * 12.9 + 60
    fewest = 128 * 128 * 4096 / 128
    assert cycles(100) == pytest.approx((256 * slot + 4700) / fewest, rel=1e-6)


def test_a_block_more_than_a_wave_is_another_wave() -> None:
    one, other = cycles(100) * 100, cycles(101) * 101
    assert other == pytest.approx(2 * one, rel=0.02)


def test_a_split_fills_idle_units_and_costs_a_kernel_or_a_cluster() -> None:
    assert cycles(25, split=4) < 0.4 * cycles(25)
    assert cycles(50, split=2, joined=True) < cycles(50, split=2)


def test_a_fragment_that_reads_less_is_less_busy() -> None:
    assert cycles(100) < cycles(100, n=32, fn=4) < cycles(100, n=32, fn=4, m=32, fm=4)


def test_on_a_cpu_it_says_nothing() -> None:
    region = matmul(64, 64, 64)
    place = enumerate_space(region, CPU).features
    assert not place[:, features.NAMES.index("busy")].any()
    assert enumerate_space(region, cuda_target("sm_90a")).features[:, features.NAMES.index("busy")].any()
