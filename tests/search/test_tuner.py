import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from emmy.bench.records import CONFIRM, SCREEN, Status
from emmy.device.base import Capabilities
from emmy.ir.nest import Region, region_key
from emmy.priors.uninformed import UninformedPrior
from emmy.schedule.knobs import KnobMap, ScalarTile
from emmy.search import screening
from emmy.search.pick import Picker
from emmy.search.screening import FINALISTS, Progress
from emmy.search.tuner import Tuner
from emmy.search.variant import read_knobs
from emmy.store import Store

Record = Callable[..., Path]
Make = Callable[..., Tuner]
True_us = Callable[[KnobMap], float]


def test_a_tuned_region_reaches_the_recorded_best_and_publishes_the_confirmation(
    recording: Record, make_tuner: Make, region: Region, true_us: True_us
) -> None:
    tuned = make_tuner(recording(region), patience=60).tune(region, "toy.64")
    assert tuned.best is not None
    assert tuned.confirmed is not None
    assert true_us(tuned.best.knobs) == pytest.approx(100.0)
    assert tuned.us == pytest.approx(100.0)
    assert tuned.confirmed.protocol == CONFIRM.label
    assert tuned.live < tuned.offered


def test_two_searches_on_the_same_replies_are_the_same(
    recording: Record, make_tuner: Make, region: Region, tmp_path: Path
) -> None:
    path = recording(region, spread=0.1)
    runs: list[list[Progress]] = [[], []]
    for number, seen in enumerate(runs):
        make_tuner(path, store=Store(tmp_path / f"{number}" / "emmy.duckdb"), seen=seen).tune(region)
    assert runs[0] == runs[1]
    assert len(runs[0]) > 12


def test_every_attempt_is_a_row_the_moment_it_ends(recording: Record, make_tuner: Make, region: Region) -> None:
    tuner = make_tuner(recording(region))
    counted: list[tuple[int, int]] = []

    def count(progress: Progress) -> None:
        counted.append((progress.attempt, tuner.store.measurements(protocol=SCREEN.label).height))

    tuner.on_progress = count
    tuner.tune(region, "toy.64")
    assert counted
    assert all(attempt == rows for attempt, rows in counted)
    variants = tuner.store.frame("variant")
    assert set(variants["origin"]) == {"prior", "explore", "nearby"}
    assert variants["offered"].unique().to_list() == [counted and len(variants) and variants["offered"][0]]
    assert sorted(variants["rank"].to_list()) == sorted(set(variants["rank"].to_list()))


def test_failures_are_rows_and_attempts_and_the_search_goes_on(
    recording: Record, make_tuner: Make, region: Region
) -> None:
    def fails(knobs: KnobMap) -> Status | None:
        tile = knobs["TILE"]
        return Status.COMPILE_FAILED if isinstance(tile, ScalarTile) and tile.fn == 32 else None

    tuner = make_tuner(recording(region, fails=fails), patience=60)
    tuned = tuner.tune(region)
    statuses = set(tuner.store.measurements()["status"])
    assert statuses == {"ok", "compile_failed"}
    assert tuned.failed == tuned.statuses[Status.COMPILE_FAILED] > 0
    assert tuned.us == pytest.approx(100.0)


def test_a_leaf_that_does_not_lower_is_an_invalid_row(
    recording: Record, make_tuner: Make, region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    from emmy.schedule.space import Space

    lower = Space.lower

    def broken(space: Space, leaf: int) -> object:
        if leaf % 2:
            raise ZeroDivisionError("odd leaves")
        return lower(space, leaf)

    path = recording(region)
    monkeypatch.setattr(Space, "lower", broken)
    tuner = make_tuner(path, patience=20)
    tuned = tuner.tune(region)
    bad = tuner.store.measurements().filter(pl.col("status") == "invalid")
    assert bad.height == tuned.failed > 0
    assert set(bad["error"]) == {"ZeroDivisionError: odd leaves"}
    assert tuned.best is not None


def test_known_rows_of_the_sweep_cost_nothing(recording: Record, make_tuner: Make, region: Region) -> None:
    path = recording(region)
    first = make_tuner(path, patience=5)
    once = first.tune(region)
    seen: list[Progress] = []
    more = make_tuner(path, patience=30, store=first.store, seen=seen).tune(region)
    assert more.known == once.live
    assert [p.live for p in seen[: once.live]] == [False] * once.live
    assert more.live > 0


def test_a_finished_search_is_not_repeated(recording: Record, make_tuner: Make, region: Region) -> None:
    path = recording(region)
    first = make_tuner(path, patience=12)
    once = first.tune(region)
    again = make_tuner(path, patience=12, store=first.store).tune(region)
    assert (again.live, again.known) == (0, once.live)
    assert again.us == once.us
    rows = first.store.measurements(protocol=CONFIRM.label).height
    assert rows <= FINALISTS


def test_another_sweep_reuses_nothing(recording: Record, make_tuner: Make, region: Region) -> None:
    path = recording(region)
    first = make_tuner(path)
    once = first.tune(region)
    cold = make_tuner(path, store=first.store, sweep="s2").tune(region)
    assert (cold.live, cold.known) == (once.live, 0)


def test_a_row_whose_code_changed_is_measured_again(recording: Record, make_tuner: Make, region: Region) -> None:
    path = recording(region)
    first = make_tuner(path, patience=5)
    first.tune(region)
    rows = first.store.measurements(protocol=SCREEN.label)
    from dataclasses import replace

    from emmy.store.rows import from_mapping

    stale = [replace(from_mapping("measurement", r), plan_digest="older") for r in rows.iter_rows(named=True)]
    store = Store(first.store.path.parent / "stale" / "emmy.duckdb")
    store.append(*stale)
    again = make_tuner(path, patience=5, store=store).tune(region)
    assert (again.live, again.known) == (len(stale), 0)


def test_equal_regions_are_searched_once(recording: Record, make_tuner: Make, region_of: Callable[..., Region]) -> None:
    region, twin = region_of(64), region_of(64, "k_other_name", outputs="y")
    assert region_key(region) == region_key(twin)
    tuner = make_tuner(recording(region))
    once = tuner.tune(region)
    second = tuner.tune(twin)
    assert (second.live, second.ok, second.skipped) == (0, 0, "an equal kernel was tuned")
    assert second.us == once.us


def test_the_greedy_pick_is_the_confirmed_best_and_names_its_source(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    tuner = make_tuner(recording(region), patience=60)
    tuned = tuner.tune(region)
    tuner.store.start_sweep(toy.name, sweep="s1")
    picker = Picker(toy, UninformedPrior("a test"), tuner.store)
    pick = picker.greedy(region)
    assert (pick.source, pick.us) == ("evidence", tuned.us)
    assert tuned.best is not None
    assert pick.variant.text == tuned.best.text
    untouched = Picker(toy, UninformedPrior("a test"), Store(tuner.store.path.parent / "empty" / "emmy.duckdb"))
    assert untouched.greedy(region).source == "uninformed"


def test_evidence_that_lowers_to_other_code_is_none(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    from dataclasses import replace

    from emmy.store.rows import from_mapping

    tuner = make_tuner(recording(region))
    tuner.tune(region)
    store = Store(tuner.store.path.parent / "stale" / "emmy.duckdb")
    rows = tuner.store.measurements().iter_rows(named=True)
    store.append(*(replace(from_mapping("measurement", row), plan_digest="older") for row in rows))
    for one, source in ((tuner.store, "evidence"), (store, "uninformed")):
        one.start_sweep(toy.name, sweep="s1")
        assert Picker(toy, UninformedPrior("a test"), one).greedy(region).source == source


def test_evidence_of_an_equal_region_of_other_names_is_found(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities, region_of: Callable[..., Region]
) -> None:
    tuner = make_tuner(recording(region), patience=60)
    tuned = tuner.tune(region)
    tuner.store.start_sweep(toy.name, sweep="s1")
    twin = region_of(64, "k_other_name", outputs="y")
    pick = Picker(toy, UninformedPrior("a test"), tuner.store).greedy(twin)
    assert tuned.best is not None
    assert (pick.source, pick.us, pick.variant.text) == ("evidence", tuned.us, tuned.best.text)
    assert pick.variant.digest == tuned.best.digest
    (kernel,) = pick.variant.artefact.kernels  # what is compiled keeps its own names
    assert kernel.name.startswith("k_other_name")
    assert "y_arg" in [arg[0] for arg in kernel.args]


def test_attempts_of_an_equal_region_of_other_names_cost_nothing(
    recording: Record, make_tuner: Make, region: Region, region_of: Callable[..., Region]
) -> None:
    path = recording(region)
    first = make_tuner(path, patience=12)
    once = first.tune(region)
    again = make_tuner(path, patience=12, store=first.store).tune(region_of(64, "k_other_name", outputs="y"))
    assert (again.live, again.known, again.us) == (0, once.live, once.us)


def test_the_search_of_a_region_ends_with_a_decision(recording: Record, make_tuner: Make, region: Region) -> None:
    tuner = make_tuner(recording(region), patience=9)
    tuned = tuner.tune(region, "toy.64")
    (row,) = tuner.store.frame("decision").iter_rows(named=True)
    assert (row["kind"], row["shape"], row["us"], row["reason"]) == ("done", "toy.64", tuned.us, "patience")
    assert json.loads(row["payload"])["patience"] == 9
    assert tuned.best is not None
    assert read_knobs(row["knobs"]) == read_knobs(tuned.best.text)


def test_a_finished_search_whose_code_changed_is_done_again(
    recording: Record, make_tuner: Make, region: Region
) -> None:
    from dataclasses import replace

    from emmy.store.rows import from_mapping

    path = recording(region)
    first = make_tuner(path, patience=12)
    once = first.tune(region)
    store = Store(first.store.path.parent / "stale" / "emmy.duckdb")
    rows = first.store.measurements(protocol=SCREEN.label).iter_rows(named=True)
    store.append(*(replace(from_mapping("measurement", row), plan_digest="older") for row in rows))
    store.append(*(from_mapping("decision", row) for row in first.store.frame("decision").iter_rows(named=True)))
    again = make_tuner(path, patience=12, store=store).tune(region)
    assert again.live == once.live


def test_a_finished_search_costs_nothing_whatever_order_it_asks_in_now(
    recording: Record, make_tuner: Make, region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which leaf is next depends on how many are under way, and that on the machine."""
    path = recording(region, spread=0.1)
    first = make_tuner(path, patience=12)
    once = first.tune(region)
    monkeypatch.setattr(screening, "BATCH_PER_UNIT", 1)
    again = make_tuner(path, patience=12, store=first.store).tune(region)
    assert (again.live, again.known, again.us) == (0, once.live, once.us)
