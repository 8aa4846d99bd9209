"""The attention tier: offered leaves, rules, knobs, features."""

from __future__ import annotations

import numpy as np
import pytest

from emmy.errors import Refused
from emmy.frontend.trace import trace
from emmy.ir.nest import Region
from emmy.passes.attention_parts import Attention
from emmy.passes.fuse import fuse
from emmy.schedule.features import FEATURES
from emmy.schedule.knobs import KnobMap
from emmy.schedule.tiers.attention import AttentionTier
from emmy.schedule.tiers.base import take
from emmy.target import Target, TargetKind
from tests.passes.devices import CPU

TIER = AttentionTier()


@pytest.fixture(scope="module")
def region() -> Region:
    return fuse(trace(Target(TargetKind.GOLDEN, "quick.attention.b1h4s256d64.causal")).region)


@pytest.fixture(scope="module")
def problem(region: Region) -> Attention:
    return TIER.match(region, CPU)


def test_offers_many_leaves_each_of_which_reads_back_and_lowers(problem: Attention) -> None:
    columns = TIER.grid(problem, CPU, fast_math=False)
    allowed, _ = TIER.legal(problem, CPU, columns)
    legal = take(columns, np.flatnonzero(allowed))
    count = len(legal["n"])
    assert count > 50
    assert not legal["fast"].any()
    for row in range(0, count, max(1, count // 7)):
        knobs = TIER.knobs(problem, legal, row)
        assert KnobMap.parse(str(knobs)) == knobs
        read = TIER.read(problem, knobs)
        assert {name: int(value[0]) for name, value in read.items()} == {n: int(c[row]) for n, c in legal.items()}
        plan = TIER.lower(problem, CPU, read)
        assert plan.launches[0].kernel.smem_bytes <= CPU.smem_bytes
        assert plan.flops > 0


def test_shared_memory_of_columns_is_that_of_the_kernel(problem: Attention) -> None:
    columns = TIER.grid(problem, CPU, fast_math=False)
    allowed, _ = TIER.legal(problem, CPU, columns)
    legal = take(columns, np.flatnonzero(allowed))
    said = TIER.features(problem, CPU, legal)["smem_bytes"]
    for row in range(0, len(said), max(1, len(said) // 5)):
        kernel = TIER.lower(problem, CPU, take(legal, [row])).launches[0].kernel
        spare = 4 * kernel.shared[0].elements  # columns count the odd pitch of staged keys always
        assert kernel.smem_bytes <= said[row] <= kernel.smem_bytes + spare


def test_features_are_finite_and_known(problem: Attention) -> None:
    columns = TIER.grid(problem, CPU, fast_math=True)
    features = TIER.features(problem, CPU, columns)
    assert set(features) <= set(FEATURES)
    for name, values in features.items():
        assert np.isfinite(values).all(), name
    assert columns["fast"].any()


@pytest.mark.parametrize(
    ("knobs", "rule"),
    [
        ("TILE@qk=n1x1/f4x16,TILE@pv=n1x1/f4x16", "attention_tiles"),
        ("TILE@qk=n1x1/f4x16,TILE@pv=n1x1/f4x32/k64", "attention_tiles_agree"),
        ("TILE@qk=n1x1/f4x16,TILE@pv=n1x1/f4x16/k64,STAGE=d2/sync", "attention_stage"),
        ("TILE@qk=n1x1/f4x16,TILE@pv=n1x1/f4x16/k64,RASTER=g8", "attention_families"),
    ],
)
def test_other_knobs_are_refused_by_name(problem: Attention, knobs: str, rule: str) -> None:
    with pytest.raises(Refused) as caught:
        TIER.read(problem, KnobMap.parse(knobs))
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("knobs", "rule"),
    [
        ("TILE@qk=n3x1/f4x16,TILE@pv=n3x1/f4x16/k48", "threads_power_of_two"),
        ("TILE@qk=n1x1/f6x16,TILE@pv=n1x1/f4x16/k64", "passes_cover_key_block"),
        ("TILE@qk=n1x1/f4x16,TILE@pv=n1x1/f5x16/k64", "head_dim_covered"),
        ("TILE@qk=n1x1/f64x64,TILE@pv=n1x1/f4x64/k64", "registers_fit"),
        ("TILE@qk=n64x128/f1x1,TILE@pv=n64x128/f1x1/k64", "threads_fit"),
    ],
)
def test_illegal_leaves_name_the_rule(problem: Attention, knobs: str, rule: str) -> None:
    columns = TIER.read(problem, KnobMap.parse(knobs))
    refused = TIER.refuse(problem, CPU, columns)
    assert refused is not None
    assert refused.rule == rule
    assert refused.where.startswith("emmy/schedule/tiers/attention.py:")
    with pytest.raises(Refused):
        TIER.lower(problem, CPU, columns)


def test_labels_tell_leaves_apart(problem: Attention) -> None:
    columns = TIER.grid(problem, CPU, fast_math=True)
    labels = TIER.labels(problem, columns)
    rows = np.stack([labels[name] for name in sorted(labels)], axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)
