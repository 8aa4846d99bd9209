"""The row tier's space: what is offered is legal, lowers and is right; what is not has a rule's name."""

from __future__ import annotations

import numpy as np
import pytest

from emmy.device.registry import cuda_target
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, walk
from emmy.ir.kernel import statements
from emmy.ir.kernel_verify import verify as verify_kernel
from emmy.ir.nest import Region
from emmy.schedule import features
from emmy.schedule.knobs import KnobMap
from emmy.schedule.tiers.base import take
from emmy.schedule.tiers.row import RowTier
from tests.passes import plans
from tests.passes.devices import CPU
from tests.passes.plans import assert_right

TIER = RowTier()
GPU = cuda_target("sm_90a")

REGIONS = [
    plans.softmax(6, 72),
    plans.softmax("m", 40),
    plans.rms_norm(5, 64, DType.F16),
    plans.layer_norm(3, 96),
    plans.row_reduce(7, 130),
    plans.row_reduce(3, 70, "argmax"),
    plans.mean_and_max(4, 33),
    plans.silu_mul(9, 50),
    plans.column_softmax(20, 70),
    plans.column_sum(40, 64),
]


def offered(region: Region, caps, fast_math: bool = False):
    problem = TIER.match(region, caps)
    columns = TIER.grid(problem, caps, fast_math)
    allowed, first = TIER.legal(problem, caps, columns)
    return problem, take(columns, allowed), first


@pytest.mark.parametrize("caps", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("region", REGIONS, ids=lambda r: r.name)
def test_offered_leaves_lower_and_knobs_round_trip(region: Region, caps) -> None:
    problem, leaves, _ = offered(region, caps, fast_math=True)
    count = len(leaves["vec"])
    assert count >= (20 if caps is CPU or problem.program.across else 2)
    for row in range(0, count, max(1, count // 60)):
        one = take(leaves, slice(row, row + 1))
        knobs = TIER.knobs(problem, leaves, row)
        again = TIER.read(problem, KnobMap.parse(str(knobs)))
        assert all(again[name][0] == one[name][0] for name in one)
        assert TIER.refuse(problem, caps, again) is None
        plan = TIER.lower(problem, caps, one)
        for launch in plan.launches:
            verify_kernel(launch.kernel)
            assert launch.kernel.threads <= caps.max_threads
            assert launch.kernel.smem_bytes <= caps.smem_bytes
    everything = {tuple(int(c[row]) for c in leaves.values()) for row in range(count)}
    assert len(everything) == count


@pytest.mark.parametrize("caps", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("region", REGIONS, ids=lambda r: r.name)
def test_a_sample_of_leaves_equals_the_oracle(region: Region, caps) -> None:
    problem, leaves, _ = offered(region, caps)
    count = len(leaves["vec"])
    for row in np.random.default_rng(3).choice(count, size=min(count, 8), replace=False):
        assert_right(TIER.lower(problem, caps, take(leaves, slice(row, row + 1))), region)


@pytest.mark.parametrize("caps", [CPU, GPU], ids=["cpu", "gpu"])
def test_shared_memory_is_what_the_rule_says(caps) -> None:
    from emmy.schedule.tiers.row_problem import smem_bytes

    problem, leaves, _ = offered(plans.softmax(64, 512), caps)
    said = smem_bytes(problem, caps, leaves)
    for row in range(0, len(said), 17):
        plan = TIER.lower(problem, caps, take(leaves, slice(row, row + 1)))
        assert plan.launches[0].kernel.smem_bytes <= said[row] + 64


REFUSED = [
    ("TILE=r1/v3/reread", "vec_is_power_of_two"),
    ("TILE=r1/v8/reread,REDUCE=c48", "threads_are_power_of_two"),
    ("TILE=r8/v4/reread,REDUCE=c512", "threads_fit"),
    ("TILE=r1/v1024/reread", "vec_at_most_32_accesses"),
    ("TILE=r1/v4/reg", "registers_fit"),
    ("TILE=r1/v8/smem,REDUCE=g2k", "split_rereads"),
    ("TILE=r1/v8/reread,REDUCE=g4a", "atomics_join_plain_sums"),
]


@pytest.mark.parametrize(("knobs", "name"), REFUSED)
def test_rules_are_named(knobs: str, name: str) -> None:
    problem = TIER.match(plans.softmax(16, 1024), GPU)
    with pytest.raises(Refused) as caught:
        TIER.lower(problem, GPU, TIER.read(problem, KnobMap.parse(knobs)))
    assert caught.value.rule == name
    assert caught.value.where.startswith("emmy/schedule/tiers/row.py:")


@pytest.mark.parametrize(
    ("region", "knobs", "name"),
    [
        (plans.softmax(16, "n"), "TILE=r1/v8/smem", "resident_row_has_constant_columns"),
        (plans.row_reduce(16, 64), "TILE=r1/v8/smem", "residency_holds_something"),
        (plans.softmax(16, 30), "TILE=r1/v4/reg", "register_row_is_whole_accesses"),
        (plans.mean_and_max(16, 64), "TILE=r1/v8/reread,REDUCE=g2k", "split_reductions_are_independent"),
        (plans.row_reduce(16, 64), "TILE=r1/v8/reread,REDUCE=g16k", "split_within_columns"),
        (plans.column_sum(16, 64), "TILE=r2/v4/reread", "rows_are_whole_vectors"),
        (plans.column_sum(16, 64), "TILE=r4/v4/reread,REDUCE=c2", "threads_share_contiguous_rows"),
        (plans.column_sum(4, 64), "TILE=r4/v4/reread,REDUCE=g8k", "split_within_columns"),
        (plans.silu_mul(16, 64), "TILE=r1/v4/reread,REDUCE=g2k", "split_reductions_are_independent"),
        (plans.rms_norm(16, 64), "TILE=r1/v4/reread,FAST_EXP=true", "fast_exp_needs_exp"),
        (plans.softmax(16, 1 << 20), "TILE=r1/v4/smem", "shared_memory_fits"),
    ],
)
def test_rules_of_other_regions(region: Region, knobs: str, name: str) -> None:
    problem = TIER.match(region, GPU)
    with pytest.raises(Refused) as caught:
        TIER.lower(problem, GPU, TIER.read(problem, KnobMap.parse(knobs)))
    assert caught.value.rule == name


def test_atomics_are_offered_where_they_join_a_plain_sum() -> None:
    _, leaves, _ = offered(plans.row_reduce(2, 4096), GPU)
    assert leaves["atomic"].any()
    _, leaves, _ = offered(plans.row_reduce(2, 4096, "max"), GPU)  # an atomic maximum would lose NaN
    assert not leaves["atomic"].any()
    _, leaves, _ = offered(plans.row_reduce(2, 4096), CPU)
    assert not leaves["atomic"].any()


@pytest.mark.parametrize("knobs", ["TILE=n8x1/f8x1", "TILE=r1/v8/reread,STAGE=d2/sync", "TILE=r1/v8/reread,REDUCE=g2c"])
def test_knobs_of_other_tiers_are_refused(knobs: str) -> None:
    problem = TIER.match(plans.softmax(16, 64), GPU)
    with pytest.raises(Refused):
        TIER.read(problem, KnobMap.parse(knobs))


@pytest.mark.parametrize("caps", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("region", REGIONS, ids=lambda r: r.name)
def test_features_are_finite_and_in_the_table(region: Region, caps) -> None:
    problem, leaves, _ = offered(region, caps, fast_math=True)
    count = len(leaves["vec"])
    values = TIER.features(problem, caps, leaves)
    assert set(values) <= set(features.FEATURES)
    matrix = features.matrix(count, values)
    assert np.isfinite(matrix).all()
    assert (np.stack(list(values.values())) >= -1e-9).all()
    varying = [name for name, v in values.items() if len(np.unique(v)) > 1]
    assert ({"blocks", "vector_share"} if caps is CPU else {"blocks", "threads"}) <= set(varying)


ROWS = [
    (plans.softmax(2048, 2048), "TILE=r1/v4/reg,REDUCE=c128", 12),
    (plans.softmax(512, 4096, DType.F16), "TILE=r1/v8/reg,REDUCE=c256", 12),
    (plans.rms_norm(16384, 8192), "TILE=r1/v4/reg,REDUCE=c512", 12),
    (plans.row_reduce(2048, 2048), "TILE=r1/v16/reread,REDUCE=c128", 40),
    (plans.row_reduce(2, 1 << 20), "TILE=r1/v16/reread,REDUCE=g64k/c256", 400),
    (plans.softmax(64, 2047), "TILE=r1/v1/reg,REDUCE=c256", 12),
    (plans.softmax("m", "n"), "TILE=r8/v1/reread,REDUCE=c16", 60),
    (plans.silu_mul(2048, 2048), "TILE=r1/v4/reread,REDUCE=c256", 20),
]


@pytest.mark.parametrize(("region", "wanted", "most"), ROWS, ids=lambda v: getattr(v, "name", v))
def test_a_gpu_tries_few_leaves(region: Region, wanted: str, most: int) -> None:
    problem, leaves, _ = offered(region, GPU)
    maps = [str(TIER.knobs(problem, leaves, row)) for row in range(len(leaves["vec"]))]
    assert len(maps) <= most
    assert any(all(part in text.split(",") for part in wanted.split(",")) for text in maps)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_exponentials_are_approximate_only_where_the_gate_says_so(dtype: DType) -> None:
    for text, approximate in (("TILE=r1/v8/reread", False), ("TILE=r1/v8/reread,FAST_EXP=True", True)):
        problem = TIER.match(plans.softmax(64, 512, dtype), GPU)
        plan = TIER.lower(problem, GPU, TIER.read(problem, KnobMap.parse(text)))
        calls = {node.fn for stmt in statements(plan.launches[0].kernel.body) for expr in stmt.exprs
                 for node in walk(expr) if isinstance(node, Call)}  # fmt: skip
        assert "exp" in calls  # rescaling a partial sum is exact in both
        assert ("fast_exp" in calls) == approximate


def test_labels_tell_every_leaf_apart() -> None:
    for region in REGIONS:
        problem, leaves, _ = offered(region, GPU, fast_math=True)
        labels = np.stack(list(TIER.labels(problem, leaves).values()), axis=1)
        assert len(np.unique(labels, axis=0)) == len(labels)


def test_traffic_counts_passes_over_memory() -> None:
    problem, leaves, _ = offered(plans.softmax(64, 512), CPU)
    values = TIER.features(problem, CPU, leaves)
    resident = leaves["residency"] != 2
    assert (values["traffic"][resident] == 1).all()
    assert (values["traffic"][~resident] == 2).all()
    assert (values["exp_elements"][resident] == 1).all()


@pytest.mark.parametrize("caps", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("region", [plans.softmax(4, 0), plans.rms_norm(4, 0)], ids=lambda r: r.name)
def test_nothing_is_held_of_an_empty_row(region: Region, caps) -> None:
    problem, leaves, _ = offered(region, caps)
    assert not leaves["residency"].any()
    for row in range(len(leaves["vec"])):
        assert TIER.lower(problem, caps, take(leaves, slice(row, row + 1))).launches
