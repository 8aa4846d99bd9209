"""The A/B of a shape: who is in it, how often it is measured, and where the noise floor comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from emmy import config
from emmy.bench.protocol import ConfirmResult
from emmy.bench.records import Status
from emmy.bench.stats import Thresholds
from emmy.evaluate.ab import AGAIN, QUICK_PROCESSES, ab_shape
from emmy.goldens.entry import GoldenConfig
from emmy.pipeline import Job, Workspace, open_job
from emmy.priors.uninformed import UninformedPrior
from emmy.schedule.knobs import KnobMap
from emmy.search.variant import Variant, record_knobs
from emmy.store import Store
from emmy.target import Target, TargetKind
from tests.flows.model_bench import CAPS, EAGER_US, ModelBench

SHAPE = "quick.matmul.64x512x256"


class Watched(ModelBench):
    """Keeps what each comparison was asked for."""

    def confirm(
        self, rows: Sequence[Any], refs: Any, sources: Sequence[Any] = (), processes: int = 6, rounds: int = 6,
        cache: str = "cold", seed: int = 0,
    ) -> ConfirmResult:  # fmt: skip
        self.jobs = [*getattr(self, "jobs", []), ([row.label for row in rows], processes, seed)]
        return super().confirm(rows, refs, sources, processes, rounds, cache, seed)


@pytest.fixture(scope="module")
def job() -> Job:
    return open_job(Target(TargetKind.GOLDEN, SHAPE))


@pytest.fixture
def work() -> Workspace:
    settings = config.load()
    return Workspace(settings, "opencl", CAPS, Store(settings.tune_db), UninformedPrior("none"))


@pytest.fixture(scope="module")
def leaves(job: Job) -> list[Variant]:
    """Two schedules of the shape that differ."""
    from emmy.schedule.space import enumerate_space

    space = enumerate_space(job.regions[0], CAPS)
    return [Variant(job.regions[0], CAPS, space.knobs(leaf), space.lower(leaf)) for leaf in (0, len(space) // 2)]


def golden(job: Job, knobs: Any, us: float) -> GoldenConfig:
    assert job.shape is not None
    return GoldenConfig.of(job.shape, knobs, us, eager_us=EAGER_US)


def run(
    job: Job, work: Workspace, bench: ModelBench, goldens: Sequence[GoldenConfig], pick: Variant, **rules: Any
) -> Any:
    return ab_shape(job, work, bench, "s1", goldens, "std", pick.knobs, thresholds=Thresholds(**rules))  # type: ignore[arg-type]


def test_a_clear_ratio_takes_one_look_and_a_second_golden_row_gives_the_floor(
    job: Job, work: Workspace, leaves: list[Variant]
) -> None:
    bench = Watched(planted={leaves[0].digest: 1000.0, leaves[1].digest: 1200.0})
    result = run(job, work, bench, [golden(job, record_knobs(leaves[1].knobs), 1234.5)], leaves[0])
    ((labels, processes, _),) = bench.jobs
    assert AGAIN in labels
    assert (processes, result.looks, result.processes) == (6, 1, 6)
    (row,) = result.pinned
    assert result.look.ratios[row.label].ratio == pytest.approx(1000 / 1200, rel=0.01)
    assert (row.recorded_us, row.recorded_reference_us) == (1234.5, EAGER_US)
    assert 0 < result.floor < 0.02
    assert result.eager_us == pytest.approx(EAGER_US, rel=0.01)
    assert not result.failed


def test_a_pick_that_is_the_golden_is_its_own_noise_floor(job: Job, work: Workspace, leaves: list[Variant]) -> None:
    bench = Watched()
    result = run(job, work, bench, [golden(job, record_knobs(leaves[0].knobs), 1000.0)], leaves[0])
    assert AGAIN not in bench.jobs[0][0]
    assert result.floor is not None


def test_a_ratio_in_the_noise_is_measured_again_with_other_orders_and_pooled(
    job: Job, work: Workspace, leaves: list[Variant]
) -> None:
    bench = Watched(planted={leaves[0].digest: 1000.0, leaves[1].digest: 1030.0}, spread=0.05)
    result = run(job, work, bench, [golden(job, record_knobs(leaves[1].knobs), 1000.0)], leaves[0], looks=3)
    assert result.looks == 3
    assert result.processes == 18
    assert len({seed for _, _, seed in bench.jobs}) == 3
    (ratio,) = result.look.ratios.values()
    assert ratio.processes == 18


def test_without_a_golden_two_processes_do(job: Job, work: Workspace, leaves: list[Variant]) -> None:
    bench = Watched()
    result = run(job, work, bench, [], leaves[0])
    assert bench.jobs[0][1] == QUICK_PROCESSES
    assert result.look.ratios == {}
    assert result.floor is None
    assert result.greedy.us is not None


def test_goldens_of_the_other_lane_do_not_compete(job: Job, work: Workspace, leaves: list[Variant]) -> None:
    fast = KnobMap.parse(record_knobs(leaves[1].knobs)).merge(KnobMap.parse({"FAST_EXP": True}))
    result = run(job, work, ModelBench(), [golden(job, fast.to_dict(), 500.0)], leaves[0])
    assert result.pinned == ()


def test_a_golden_that_cannot_be_realised_is_a_row_with_its_rule(
    job: Job, work: Workspace, leaves: list[Variant]
) -> None:
    foreign = {**record_knobs(leaves[1].knobs), "TILE": "a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2"}
    result = run(job, work, ModelBench(), [golden(job, foreign, 5.0)], leaves[0])
    (row,) = result.pinned
    assert row.status is Status.PIN_UNMATCHED
    assert "refused by" in row.reason
    assert ".py:" in row.reason
    assert row.knobs["TILE"] == foreign["TILE"], "the report shows the golden's own knobs"
    assert result.failed


def test_where_a_golden_is_far_from_itself_no_look_is_wasted(job: Job, work: Workspace, leaves: list[Variant]) -> None:
    bench = Watched(spread=0.6)
    result = run(job, work, bench, [golden(job, record_knobs(leaves[1].knobs), 1000.0)], leaves[0], looks=3)
    assert result.looks == 1
    assert result.floor > Thresholds().noise_band
