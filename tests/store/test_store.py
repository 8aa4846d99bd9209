import dataclasses
import json
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from emmy.bench.records import CONFIRM, SCREEN, Measurement, Status
from emmy.config import goldens_dir
from emmy.errors import InputError
from emmy.store import AbRow, Decision, RegionRow, Store, SweepRow, VariantRow
from emmy.store.rows import TABLES, from_mapping, schema_of

Build = Callable[..., Measurement]

ROWS = {
    "sweep": SweepRow("s1", "cpu-test", 5, "2026-07-07T00:00:00+00:00", '{"patience": 50}'),
    "region": RegionRow("r0", "k_matmul_0", "matmul", "quick.matmul.256", "region r0\n", '{"seq_len": 512}'),
    "variant": VariantRow("r0", "cpu-test", "s1", '{"TILE": "n16x8"}', "std", "prior", "offline", 12.5, 3, 400),
    "ab": AbRow("s1", "run1", "cpu-test", "r0", "quick.matmul.256", "greedy", "greedy", "std", "{}", "confirm.v2.cold",
                2, Status.OK, "[10.5, 11.25]"),
    "decision": Decision("greedy", "s1", "cpu-test", "r0", "quick.matmul.256", "std", "evidence", "{}", 10.5,
                         "measured"),
}  # fmt: skip


def test_every_column_of_the_schema_is_a_field_of_its_row(store: Store) -> None:
    store.fold()
    connection = duckdb.connect(str(store.path))
    found = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal ORDER BY table_oid, column_index"
    )
    columns: dict[str, list[str]] = {}
    for table, column in found.fetchall():
        columns.setdefault(table, []).append(column)
    connection.close()
    assert columns.pop("schema_version") == ["version"]
    assert columns == {table: list(schema_of(table)) for table in TABLES}


@pytest.mark.parametrize("table", ROWS)
@pytest.mark.parametrize("folded", [False, True])
def test_a_row_comes_back_as_it_was(store: Store, table: str, folded: bool) -> None:
    row: typing.Any = ROWS[table]
    store.append(row)
    if folded:
        store.fold()
    assert from_mapping(table, store.frame(table).row(0, named=True)) == row


@pytest.mark.parametrize("folded", [False, True])
def test_a_measurement_comes_back_with_every_field(store: Store, measurement: Build, folded: bool) -> None:
    row = measurement(1, status=Status.WRONG_RESULT, median_us=None, low_us=None, high_us=None,
                      error="rel 0.5 > 1e-3\n\x1f×", rel_error=0.5, registers=255, spills=4, warnings="C7504",
                      abandoned=True)  # fmt: skip
    store.append(row)
    if folded:
        store.fold()
    assert from_mapping("measurement", store.measurements().row(0, named=True)) == row
    assert Store(store.path).lookup(row.key) == row


def test_rows_are_the_same_before_and_after_folding(store: Store, measurement: Build) -> None:
    store.append(*(measurement(i) for i in range(50)))
    before = store.measurements()
    report = store.fold()
    assert (report.rows, report.segments_removed, report.damaged) == (50, 1, ())
    assert store.measurements().equals(before)
    assert list(store.journal_dir.glob("*.jsonl")) == []


def test_folding_twice_changes_nothing(store: Store, measurement: Build) -> None:
    store.append(*(measurement(i) for i in range(20)))
    segment = next(store.journal_dir.glob("*.jsonl"))
    copy = segment.read_bytes()
    store.fold()
    folded = store.measurements()
    # As after a crash between the commit and the removal of the segment.
    segment.write_bytes(copy)
    assert store.measurements().equals(folded)
    store.fold()
    assert store.measurements().equals(folded)


@pytest.mark.parametrize("order", ["fold between", "fold once", "never"])
def test_the_latest_row_of_a_key_stands(store: Store, measurement: Build, order: str) -> None:
    failed = measurement(0, status=Status.TIMEOUT, median_us=None, error="5 s")
    measured = measurement(0, median_us=8.0)
    store.append(failed)
    if order == "fold between":
        store.fold()
    store.append(measured)
    if order != "never":
        store.fold()
    assert store.measurements()["median_us"].to_list() == [8.0]
    assert store.lookup(failed.key) == measured


def test_an_older_segment_folded_late_does_not_overrule(store: Store, measurement: Build) -> None:
    store.append(measurement(0, median_us=20.0))
    segment = next(store.journal_dir.glob("*.jsonl"))
    old = segment.read_bytes()
    store.append(measurement(0, median_us=8.0))
    store.fold()
    segment.write_bytes(old)
    assert store.measurements()["median_us"].to_list() == [8.0]
    store.fold()
    assert store.measurements()["median_us"].to_list() == [8.0]


@pytest.mark.parametrize("folded", [False, True])
def test_filters(store: Store, measurement: Build, folded: bool) -> None:
    store.append(measurement(0), measurement(1), measurement(3, regime="O1"), measurement(4, sweep="s2"),
                 measurement(5, device="other"), measurement(6, protocol=CONFIRM.label))  # fmt: skip
    if folded:
        store.fold()
    assert store.measurements(region="r0")["median_us"].to_list() == [10.0, 13.0, 16.0]
    assert store.measurements(region="r0", regime="O1")["median_us"].to_list() == [13.0]
    assert store.measurements(sweep="s2")["median_us"].to_list() == [14.0]
    assert store.measurements(device="other")["median_us"].to_list() == [15.0]
    assert store.measurements(protocol=CONFIRM.label)["median_us"].to_list() == [16.0]


def test_lookup_sees_own_appends_and_others_after_refresh(store: Store, measurement: Build) -> None:
    assert store.lookup(measurement(0).key) is None
    store.append(measurement(0))
    assert store.lookup(measurement(0).key) == measurement(0)
    other = Store(store.path)
    other.append(measurement(1))
    assert store.lookup(measurement(1).key) is None
    store.refresh()
    assert store.lookup(measurement(1).key) == measurement(1)


def test_best_ignores_failures_abandoned_rows_and_other_lanes(store: Store, measurement: Build) -> None:
    store.append(
        measurement(0, status=Status.WRONG_RESULT),
        measurement(3, abandoned=True),
        measurement(6, lane="fm"),
        measurement(9),
        measurement(12, regime="O1"),
    )
    arguments = ("r0", "cpu-test", "s1", "O3", SCREEN.label)
    assert store.best(*arguments) == measurement(6, lane="fm")
    assert store.best(*arguments, "std") == measurement(9)
    assert store.best("r9", "cpu-test", None, "O3", SCREEN.label) is None


def test_a_node_is_the_minimum_over_the_variants_that_share_its_prefix(store: Store, measurement: Build) -> None:
    maps = [{"TILE": f"n{i // 4}x8", "STAGE": f"d{i % 4}/sync", "FAST_EXP": True} for i in range(12)]
    store.append(*(measurement(i, region="r", knobs=json.dumps(knobs)) for i, knobs in enumerate(maps)))
    store.append(measurement(0, region="r", status=Status.TIMEOUT, knobs='{"TILE": "n2x8", "STAGE": "d9/sync"}'))
    arguments = ("r", "cpu-test", "s1", "O3", SCREEN.label)
    assert store.node_best({}, *arguments) == 10.0
    assert store.node_best({"TILE": "n2x8"}, *arguments) == 18.0
    assert store.node_best({"STAGE": "d3/sync"}, *arguments) == 13.0
    assert store.node_best({"TILE": "n2x8", "STAGE": "d3/sync"}, *arguments) == 21.0
    assert store.node_best({"FAST_EXP": True}, *arguments) == 10.0
    assert store.node_best({"STAGE": "d9/sync"}, *arguments) is None
    assert store.node_best({"WSPEC": "p1c2"}, *arguments) is None


def test_the_table_of_nodes_agrees_with_node_best(store: Store, measurement: Build) -> None:
    from emmy.store.views import node_best, nodes

    store.append(*(measurement(i, region="r") for i in range(9)))
    frame = store.measurements()
    table = nodes(frame)
    assert table["depth"].unique().to_list() == [1, 2, 3]
    assert table.filter(table["depth"] == 3).height == 9
    for node in table.iter_rows(named=True):
        prefix = {name: node[name] for name in ("FUSE", "TILE", "STAGE") if node[name] is not None}
        assert node_best(frame, prefix) == node["best_us"]


# ------------------------------------------------------------------------------------------------------------ sweeps


def test_a_sweep_is_resumed_and_a_clean_one_forgets(store: Store, measurement: Build, tmp_path: Path) -> None:
    assert store.current_sweep("cpu-test") is None
    first = store.start_sweep("cpu-test", {"patience": 50})
    other = store.start_sweep("gpu-test")
    assert Store(store.path).current_sweep("cpu-test") == first
    row = measurement(0, sweep=first)
    store.append(row)
    assert store.best_evidence("r0", "cpu-test", lambda _: "d0") == row

    online, binaries = tmp_path / "online.cbm", tmp_path / "bin"
    online.write_text("model")
    (binaries / "a").mkdir(parents=True)
    second = store.clean("cpu-test", {"patience": 60}, forget=[online, binaries, tmp_path / "never existed"])
    assert not online.exists()
    assert not binaries.exists()
    assert (store.current_sweep("cpu-test"), store.current_sweep("gpu-test")) == (second, other)
    assert store.best_evidence("r0", "cpu-test", lambda _: "d0") is None
    assert store.lookup(measurement(0, sweep=second).key) is None
    # History stays readable.
    assert store.measurements(sweep=first).height == 1
    assert store.best_evidence("r0", "cpu-test", lambda _: "d0", sweep=first) == row
    assert store.sweeps("cpu-test")["sweep"].to_list() == [first, second]


def test_clean_never_deletes_goldens_or_the_store(store: Store, measurement: Build) -> None:
    store.append(measurement(0))
    for path in (
        goldens_dir(),
        goldens_dir() / "dataset.yaml",
        goldens_dir().parent,
        store.journal_dir,
        store.path.parent,
    ):
        with pytest.raises(InputError, match="list to forget"):
            store.clean("cpu-test", forget=[path])
    assert store.measurements().height == 1
    assert store.current_sweep("cpu-test") is None


def test_a_sweep_id_is_used_once(store: Store) -> None:
    assert store.start_sweep("cpu-test", sweep="night") == "night"
    with pytest.raises(InputError, match="night"):
        store.start_sweep("gpu-test", sweep="night")


# ---------------------------------------------------------------------------------------------------------- evidence


def test_evidence_needs_the_digest_of_today(store: Store, measurement: Build) -> None:
    sweep = store.start_sweep("cpu-test")
    rows = [measurement(i, sweep=sweep) for i in (0, 3, 6, 9)]
    store.append(*rows, measurement(12, sweep=sweep, regime="O1", median_us=1.0),
                 measurement(15, sweep=sweep, status=Status.BENCH_FAIL, median_us=None),
                 measurement(18, sweep=sweep, protocol="screen.v2.warm", median_us=1.0))  # fmt: skip
    digests = {rows[0].knobs: "changed", rows[1].knobs: "d3", rows[2].knobs: None, rows[3].knobs: "d9"}
    frame = store.evidence("r0", "cpu-test", digests.get)
    assert frame["median_us"].to_list() == [13.0, 19.0]


def test_best_evidence_lowers_no_more_than_it_must(store: Store, measurement: Build) -> None:
    sweep = store.start_sweep("cpu-test")
    store.append(*(measurement(i, sweep=sweep) for i in range(0, 30, 3)))
    asked: list[str] = []

    def digest_of(knobs: str) -> str:
        asked.append(knobs)
        return "d3"

    assert store.best_evidence("r0", "cpu-test", digest_of) == measurement(3, sweep=sweep)
    assert asked == [measurement(0).knobs, measurement(3).knobs]


def test_a_confirmation_stands_before_a_screening(store: Store, measurement: Build) -> None:
    sweep = store.start_sweep("cpu-test")
    lucky = measurement(0, sweep=sweep, median_us=5.0)
    confirmed = [measurement(0, sweep=sweep, protocol=CONFIRM.label, median_us=9.0),
                 measurement(3, sweep=sweep, protocol=CONFIRM.label, median_us=8.0)]  # fmt: skip
    store.append(lucky, *confirmed, measurement(6, sweep=sweep, median_us=7.0))
    digests = {measurement(i).knobs: f"d{i}" for i in (0, 3, 6)}
    frame = store.evidence("r0", "cpu-test", digests.get)
    assert frame.select("median_us", "protocol").rows() == [
        (8.0, CONFIRM.label), (9.0, CONFIRM.label), (7.0, SCREEN.label)
    ]  # fmt: skip
    assert store.best_evidence("r0", "cpu-test", digests.get, lane="fm") is None


# -------------------------------------------------------------------------------------------------------------- keys


def test_every_row_key_depends_on_what_identifies_the_row() -> None:
    decision = ROWS["decision"]
    assert isinstance(decision, Decision)
    assert dataclasses.replace(decision, us=1.0, reason="other", knobs="{}").key == decision.key
    for name in ("kind", "sweep", "device", "region", "shape", "lane", "source"):
        assert dataclasses.replace(decision, **{name: "other"}).key != decision.key
    ab = ROWS["ab"]
    assert isinstance(ab, AbRow)
    assert dataclasses.replace(ab, process=3).key != ab.key


def test_importing_the_command_loads_neither_duckdb_nor_polars() -> None:
    heavy = "('duckdb', 'polars', 'numpy', 'torch')"
    code = f"import sys, emmy, emmy.cli.main; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
