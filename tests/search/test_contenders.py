"""A search that screens in the cheap build and measures its best leaves again in the deployable one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from emmy.bench.jobs import Reply, Row
from emmy.bench.protocol import ConfirmResult
from emmy.bench.records import CONFIRM, SCREEN, Status
from emmy.bench.regimes import LIMIT
from emmy.device.base import Capabilities
from emmy.device.replay import ReplayBench
from emmy.errors import CompileFailed, Refused, TimedOut
from emmy.ir.nest import Region, region_key
from emmy.priors.uninformed import UninformedPrior
from emmy.schedule import space as spaces
from emmy.schedule.knobs import OFF, KnobMap, ScalarTile
from emmy.schedule.tiers.base import product
from emmy.search import tuner as tuners
from emmy.search.ahead import Prepared
from emmy.search.pick import Picker
from emmy.search.screening import FINALISTS, Progress, TuneOptions
from emmy.search.training import training_rows
from emmy.search.tuner import Tuner
from tests.search.conftest import CAPS, ToyTier, latency_us
from tests.search.test_streamed import Inline

Record = Callable[..., Path]
Make = Callable[..., Tuner]


class CheapTier(ToyTier):
    o1_valid = True


class PlainTier(ToyTier):
    """Three leaves, n2x1/f.x1/k1, whose cheap build is not valid."""

    name = "cell"

    def grid(self, problem: Region, caps: Capabilities, fast_math: bool) -> Any:
        return product(fn=(1, 2, 4), fm=(1,), k=(1,), split=(1,))

    def knobs(self, problem: Region, columns: Any, row: int) -> KnobMap:
        tile = ScalarTile(2, 1, int(columns["fn"][row]), 1, 1)
        return super().knobs(problem, columns, row).merge(KnobMap.parse({"TILE": tile}))

    def read(self, problem: Region, knobs: KnobMap) -> Any:
        tile = knobs.get("TILE")
        if not isinstance(tile, ScalarTile) or (tile.n, tile.m, tile.fm, tile.k) != (2, 1, 1, 1):
            raise Refused("toy_cell", found=f"TILE={tile}", expected="n2x1/f.x1/k1")
        return super().read(problem, knobs.merge(KnobMap.parse({"TILE": replace(tile, n=1)})))

    def lower(self, problem: Region, caps: Capabilities, columns: Any) -> Any:
        plan = super().lower(problem, caps, columns)
        (launch,) = plan.steps
        kernel = replace(launch.kernel, name=f"{launch.kernel.name}_cell")
        return replace(plan, steps=(replace(launch, kernel=kernel),))


@pytest.fixture
def offered() -> list[ToyTier]:
    """The tiers there are; a test may append."""
    return [CheapTier()]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, offered: list[ToyTier]) -> Capabilities:
    monkeypatch.setattr(spaces, "tiers", lambda: tuple(offered))
    monkeypatch.setattr(tuners, "cuts", lambda region: ())
    return replace(CAPS, regimes=("O1", "O3"))


class Watched:
    """A bench that notes what is screened in which build, and dies before the ``dies``-th screening in O3."""

    def __init__(self, recording: Path, dies: int = 0) -> None:
        self.bench, self.dies = ReplayBench(recording), dies
        self.asked: list[tuple[str, str, float | None]] = []
        self.built: list[str] = []

    def screen(
        self, artefact: Any, reference_set: Any, best_us: float | None = None, regime: str = "O3", lane: str = "std"
    ) -> Reply:  # fmt: skip
        if self.dies and len(self.screened("O3")) + 1 == self.dies and regime == "O3":
            raise KeyboardInterrupt
        self.asked.append((regime, self.bench._leaf_of[artefact.plan_digest][1], best_us))
        return self.bench.screen(artefact, reference_set, best_us, regime, lane)

    def build_ahead(self, rows: Sequence[Row], reference_set: Any) -> list[Reply]:
        self.built += [row.regime for row in rows]
        return [Reply(Status.OK)] * len(rows)

    def confirm(
        self, rows: Sequence[Row], reference_set: Any, sources: Any = (), processes: int = 6, rounds: int = 6,
        cache: str = "cold", seed: int = 0,
    ) -> ConfirmResult:  # fmt: skip
        assert {row.regime for row in rows} == {"O3"}
        return self.bench.confirm(rows, reference_set, sources, processes, rounds, cache, seed)

    def screened(self, regime: str) -> list[str]:
        return [knobs for one, knobs, _ in self.asked if one == regime]


def tenth(knobs: KnobMap) -> float:
    """The cheap build ranks as the deployable one does, in numbers that no deployable row reaches."""
    return latency_us(knobs) / 10


def tile(knobs: KnobMap) -> ScalarTile:
    found = knobs["TILE"]
    assert isinstance(found, ScalarTile)
    return found


def tuned_with(
    make: Make, recording: Path, region: Region, *, patience: int = 60, dies: int = 0, **more: Any
) -> tuple[Tuner, Watched, tuners.Tuned]:
    tuner, watched = make(recording, patience=patience, **more), Watched(recording, dies)
    tuner.bench = watched
    return tuner, watched, tuner.tune(region, "toy.64")


def test_the_best_is_a_number_of_the_deployable_build(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    tuner, watched, tuned = tuned_with(make_tuner, recording(region, cheap=tenth), region)
    assert tuned.us == pytest.approx(100.0)
    assert tuned.confirmed is not None
    assert (tuned.confirmed.regime, tuned.confirmed.protocol) == ("O3", CONFIRM.label)
    assert len(watched.screened("O1")) == tuned.live > 10
    assert len(watched.screened("O3")) == tuned.again > 0
    tuner.store.start_sweep(toy.name, sweep="s1")
    pick = Picker(toy, UninformedPrior("a test"), tuner.store).greedy(region)
    assert (pick.source, pick.us) == ("evidence", tuned.us)


def test_every_row_says_its_regime(recording: Record, make_tuner: Make, region: Region) -> None:
    tuner, watched, tuned = tuned_with(make_tuner, recording(region, cheap=tenth), region)
    rows = tuner.store.measurements()
    for regime in ("O1", "O3"):
        screened = rows.filter(pl.col("protocol") == SCREEN.label, pl.col("regime") == regime)
        assert sorted(screened["knobs"]) == sorted(watched.screened(regime))
        factor = 0.1 if regime == "O1" else 1.0
        assert screened["median_us"].min() == pytest.approx(100.0 * factor)
    assert set(rows.filter(pl.col("protocol") == CONFIRM.label)["regime"]) == {"O3"}
    variants = tuner.store.frame("variant")
    assert variants.height == tuned.live
    assert set(variants["origin"]) <= {"prior", "explore", "nearby"}
    assert min(variants["rank"]) >= 1


def test_contenders_are_the_cheap_rows_within_the_tolerance_in_their_order(
    recording: Record, make_tuner: Make, region: Region
) -> None:
    seen: list[Progress] = []
    tuner, watched, _ = tuned_with(make_tuner, recording(region, cheap=tenth), region, seen=seen)
    rows = tuner.store.measurements(regime="O1", protocol=SCREEN.label).sort("median_us")
    near = rows.filter(pl.col("median_us") <= rows["median_us"].min() * 1.15)["knobs"].to_list()
    assert 1 < len(near) < LIMIT
    assert watched.screened("O3") == near
    contenders = [p for p in seen if p.origin == "contender"]
    assert seen[-len(contenders) :] == contenders
    assert {(p.regime, p.live) for p in contenders} == {("O3", True)}
    assert [p.best_us for p in contenders] == [pytest.approx(100.0)] * len(near)
    assert {p.regime for p in seen[: -len(contenders)]} == {"O1"}
    assert all(p.best_us is None or p.best_us < 60.0 for p in seen[: -len(contenders)])


def test_a_row_is_given_up_against_rows_of_its_own_build(recording: Record, make_tuner: Make, region: Region) -> None:
    _, watched, _ = tuned_with(make_tuner, recording(region, cheap=tenth), region)
    bests = {regime: [best for one, _, best in watched.asked if one == regime] for regime in ("O1", "O3")}
    assert [best is None for best in (bests["O1"][0], bests["O3"][0])] == [True, True]
    assert max(best for best in bests["O1"] if best is not None) < 90.0
    assert min(best for best in bests["O3"] if best is not None) == pytest.approx(100.0)


def test_the_tolerance_is_the_settings(recording: Record, make_tuner: Make, region: Region) -> None:
    path = recording(region, cheap=tenth)
    tuner, watched = make_tuner(path, patience=60), Watched(path)
    tuner.bench, tuner.options = watched, replace(tuner.options, o3_tol=0.0)
    assert tuner.tune(region).us == pytest.approx(100.0)
    assert len(watched.screened("O3")) == 1


def test_no_more_than_the_limit_are_measured_again(recording: Record, make_tuner: Make, region: Region) -> None:
    def flat(knobs: KnobMap) -> float:
        return 10.0 + latency_us(knobs) / 1000

    path = recording(region, cheap=flat, us=lambda knobs: 100.0)
    _, watched, tuned = tuned_with(make_tuner, path, region, patience=100)
    assert len(watched.screened("O3")) == tuned.again == LIMIT


def test_an_inversion_within_the_tolerance_is_found(recording: Record, make_tuner: Make, region: Region) -> None:
    """The cheap build puts f16x4/k4 first; the deployable one runs f16x4/k8 a third faster."""

    def real(knobs: KnobMap) -> float:
        found = tile(knobs)
        fast = (found.fn, found.fm, found.k) == (16, 4, 8) and knobs["REDUCE"] == OFF
        return 66.0 if fast else latency_us(knobs)

    tuner, watched, tuned = tuned_with(make_tuner, recording(region, cheap=tenth, us=real), region)
    assert tuned.us == pytest.approx(66.0)
    assert tuned.best is not None
    assert watched.screened("O3").index(tuned.best.text) > 0
    confirmed = tuner.store.measurements(protocol=CONFIRM.label)
    assert confirmed["knobs"].to_list() == [tuned.best.text]  # the others are no finalists any more


def test_a_winner_that_fails_in_the_deployable_build_makes_room_for_the_next(
    recording: Record, make_tuner: Make, region: Region
) -> None:
    def fails(knobs: KnobMap) -> Status | None:
        return Status.LAUNCH_FAILED if latency_us(knobs) == pytest.approx(100.0) else None

    seen: list[Progress] = []
    _, _, tuned = tuned_with(make_tuner, recording(region, cheap=tenth, fails=fails), region, seen=seen)
    contenders = [p.reply.status for p in seen if p.origin == "contender"]
    assert contenders[0] == Status.LAUNCH_FAILED
    assert set(contenders[1:]) == {Status.OK}
    second = min(us for p in seen if (us := p.reply.median_us) is not None and p.regime == "O3")
    assert tuned.us == pytest.approx(second)
    assert tuned.us > 100.0
    assert tuned.statuses[Status.LAUNCH_FAILED] == tuned.failed == 1
    assert tuned.ok == tuned.live - 1


def test_where_every_contender_fails_there_is_no_best(recording: Record, make_tuner: Make, region: Region) -> None:
    path = recording(region, cheap=tenth, fails=lambda knobs: Status.LAUNCH_FAILED)
    _, _, tuned = tuned_with(make_tuner, path, region)
    assert (tuned.best, tuned.us) == (None, None)
    assert tuned.failed == tuned.again > 1


@pytest.mark.parametrize("dies", [1, 2, 3])
def test_after_a_kill_only_the_contenders_that_are_left_are_measured(
    recording: Record, make_tuner: Make, region: Region, dies: int
) -> None:
    path = recording(region, cheap=tenth)
    tuner, first = make_tuner(path, patience=60), Watched(path, dies)
    tuner.bench = first
    with pytest.raises(KeyboardInterrupt):
        tuner.tune(region, "toy.64")
    assert len(first.screened("O3")) == dies - 1
    _, again, tuned = tuned_with(make_tuner, path, region, store=tuner.store)
    assert again.screened("O1") == []
    assert (tuned.live, tuned.known) == (0, len(first.screened("O1")))
    assert tuned.again == len(again.screened("O3"))
    whole = first.screened("O3") + again.screened("O3")
    assert len(set(whole)) == len(whole)
    rows = tuner.store.measurements(regime="O1").sort("median_us")
    assert whole == rows["knobs"].to_list()[: len(whole)]
    assert tuned.us == pytest.approx(100.0)


def test_a_finished_search_is_not_repeated(recording: Record, make_tuner: Make, region: Region) -> None:
    path = recording(region, cheap=tenth)
    first, _, once = tuned_with(make_tuner, path, region)
    _, watched, again = tuned_with(make_tuner, path, region, store=first.store)
    assert watched.asked == []
    assert (again.live, again.again, again.known, again.us) == (0, 0, once.live, once.us)


def test_a_search_in_the_other_regime_is_one_of_its_own(recording: Record, make_tuner: Make, region: Region) -> None:
    """EMMY_O1=0 in the middle of a sweep: what was measured in O3 is known, the cheap rows are no help."""
    path = recording(region, cheap=tenth)
    first, _, once = tuned_with(make_tuner, path, region)
    tuner, watched = make_tuner(path, patience=60, store=first.store), Watched(path)
    tuner.bench, tuner.options = watched, TuneOptions(60, o1=False)
    plain = tuner.tune(region)
    assert watched.screened("O1") == []
    assert len(watched.screened("O3")) == plain.live > once.again
    assert plain.known == once.again
    assert plain.again == 0
    assert plain.us == pytest.approx(100.0)


@pytest.mark.parametrize("off", ["setting", "device"])
def test_without_the_cheap_build_nothing_is_measured_twice(
    recording: Record, make_tuner: Make, region: Region, off: str
) -> None:
    path = recording(region, cheap=tenth)
    tuner, watched = make_tuner(path, patience=60), Watched(path)
    tuner.bench = watched
    if off == "setting":
        tuner.options = replace(tuner.options, o1=False)
    else:
        tuner.caps = replace(tuner.caps, regimes=("O3",))
    tuned = tuner.tune(region)
    assert (watched.screened("O1"), tuned.again, set(watched.built)) == ([], 0, {"O3"})
    assert set(tuner.store.measurements()["regime"]) == {"O3"}
    assert tuned.us == pytest.approx(100.0)


def test_a_few_leaves_of_another_tier_are_screened_in_the_deployable_build(
    recording: Record, make_tuner: Make, region: Region, offered: list[ToyTier]
) -> None:
    """Three leaves beside 216: the fastest of all is one of them, and no cheap number is held against it."""
    offered.append(PlainTier())

    def real(knobs: KnobMap) -> float:
        return 50.0 + tile(knobs).fn if tile(knobs).n == 2 else latency_us(knobs)

    seen: list[Progress] = []
    path = recording(region, cheap=tenth, us=real)
    tuner, watched, tuned = tuned_with(make_tuner, path, region, patience=400, seen=seen)
    rows = tuner.store.measurements(protocol=SCREEN.label)
    cells = rows.filter(pl.col("knobs").str.contains("n2x1"))
    assert (cells.height, set(cells["regime"])) == (3, {"O3"})
    assert tuned.us == pytest.approx(51.0)
    assert tuned.best is not None
    assert tile(tuned.best.knobs).n == 2
    contenders = [p for p in seen if p.origin == "contender"]
    assert len(contenders) == 1  # the first shows that the cheap rows end at 100 µs, twice what is held already
    assert len(watched.screened("O3")) == 4
    _, repeated, again = tuned_with(make_tuner, path, region, patience=400, store=tuner.store)
    assert repeated.asked == []
    assert again.us == tuned.us


def test_a_space_that_is_half_of_another_tier_is_screened_in_the_deployable_build(
    recording: Record, make_tuner: Make, region: Region, offered: list[ToyTier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        CheapTier, "grid", lambda *_: product(fn=(8, 16), fm=(2, 4), k=(4,), split=(1,))
    )  # fmt: skip
    offered.append(PlainTier())
    _, watched, tuned = tuned_with(make_tuner, recording(region, cheap=tenth), region)
    assert watched.screened("O1") == []
    assert (tuned.live, tuned.again) == (7, 0)
    assert tuned.us == pytest.approx(100.0)


def test_cuts_are_held_against_the_deployable_best(
    recording: Record, make_tuner: Make, region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuners, "cuts", lambda region: ("a cut",))
    held: list[float | None] = []

    def cut(self: Tuner, region: Region, cut: Any, shape: str, best_us: float | None, known: Any) -> Any:
        held.append(best_us)
        return None, [], []

    monkeypatch.setattr(Tuner, "_cut", cut)
    tuned_with(make_tuner, recording(region, cheap=tenth), region)
    assert held == [pytest.approx(100.0)]


def test_the_prior_is_fitted_on_rows_of_the_deployable_build(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    tuner, watched, tuned = tuned_with(make_tuner, recording(region, cheap=tenth), region)
    found = training_rows(tuner.store, toy, [("toy.64", region)])
    (data,) = found.data
    assert data.region == region_key(region)
    assert len(data.latency_us) == len(watched.screened("O3")) == tuned.again
    assert min(data.latency_us) == pytest.approx(100.0)
    assert found.used <= tuned.again + FINALISTS


def test_prepared_leaves_are_compiled_in_the_build_they_are_measured_in(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    path = recording(region, cheap=tenth)
    preparer = Inline(toy, 5)
    tuner, watched = make_tuner(path, patience=60), Watched(path)
    tuner.bench, tuner.preparer = watched, preparer  # type: ignore[assignment]
    tuned = tuner.tune(region)
    assert tuned.us == pytest.approx(100.0)
    assert watched.built == []
    assert preparer.regimes.count("O1") == tuned.live
    assert preparer.regimes.count("O3") >= tuned.again > 1


def test_a_contender_that_does_not_compile_is_a_row_and_the_next_is_measured(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    path = recording(region, cheap=tenth)
    preparer = Inline(toy, 5, lambda count: preparer.given[-1] == "O3" and preparer.given.count("O3") == 1)
    tuner, watched = make_tuner(path, patience=60), Watched(path)
    tuner.bench, tuner.preparer = watched, preparer  # type: ignore[assignment]
    tuned = tuner.tune(region)
    failed = tuner.store.measurements(regime="O3", protocol=SCREEN.label).filter(pl.col("status") == "compile_failed")
    assert failed.height == tuned.failed == 1
    assert tuned.us is not None
    assert tuned.us > 100.0


class Late(Inline):
    """The first leaf of a regime passes its deadline."""

    def __init__(self, caps: Capabilities, processes: int, regime: str) -> None:
        super().__init__(caps, processes, lambda _: self.given[-1] == regime and self.given.count(regime) == 1)

    def result(self, ticket: Any, deadline_s: float) -> Prepared:
        try:
            return super().result(ticket, deadline_s)
        except CompileFailed:
            raise TimedOut("compilation", deadline_s) from None


@pytest.mark.parametrize("regime", ["O1", "O3"])
def test_a_leaf_that_compiles_too_slowly_is_a_timeout(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities, regime: str
) -> None:
    path = recording(region, cheap=tenth)
    tuner, watched = make_tuner(path, patience=60), Watched(path)
    tuner.bench, tuner.preparer = watched, Late(toy, 5, regime)  # type: ignore[assignment]
    tuner.tune(region)
    failed = tuner.store.measurements().filter(pl.col("status") != "ok")
    assert failed.select("status", "regime", "error").rows() == [
        ("timeout", regime, "compilation exceeded its deadline of 60 s")
    ]
