"""Damaged, foreign, newer, locked and full: one clear error, exit code 2, and nothing overwritten or lost."""

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from emmy.bench.records import Measurement
from emmy.errors import FullDisk, StoreError
from emmy.store import Store
from emmy.store.database import Database, database_error, migrations
from emmy.store.journal import DAMAGED

Build = Callable[..., Measurement]


def refuses(store: Store, *said: str) -> None:
    """Every way in raises a StoreError with the texts, and leaves the file byte for byte."""
    before = store.path.read_bytes()
    for call in (store.check, store.measurements, store.fold, lambda: store.start_sweep("cpu-test")):
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.exit_code == 2
        assert str(store.path) in str(caught.value)
        assert caught.value.found is not None
        assert caught.value.expected is not None
        assert caught.value.hint is not None
        for text in said:
            assert text in str(caught.value)
    assert store.path.read_bytes() == before


def test_a_newer_schema(store: Store) -> None:
    store.fold()
    connection = duckdb.connect(str(store.path))
    connection.execute("UPDATE schema_version SET version = 99")
    connection.close()
    refuses(store, "schema version 99", f"{len(migrations())} or older", "update emmy")


def test_a_foreign_database(store: Store) -> None:
    connection = duckdb.connect(str(store.path))
    connection.execute("CREATE TABLE customers (id INTEGER)")
    connection.close()
    refuses(store, "customers", "EMMY_TUNE_DB")


@pytest.mark.parametrize("content", [b"", b"kernel: matmul\n", b"SQLite format 3\0" + bytes(4096)])
def test_no_database_at_all(store: Store, content: bytes) -> None:
    store.path.write_bytes(content)
    refuses(store, "move it away")


@pytest.mark.parametrize("seed", range(3))
def test_a_corrupt_database(store: Store, measurement: Build, seed: int) -> None:
    store.append(*(measurement(i) for i in range(500)))
    store.fold()
    data = bytearray(store.path.read_bytes())
    numbers = random.Random(seed)
    # The headers are the first three blocks of 4096 bytes.
    for place in range(0, min(len(data), 12288), 64):
        data[place] = numbers.randrange(256)
    store.path.write_bytes(data)
    refuses(store)


def test_what_is_measured_while_the_database_is_corrupt_is_kept(store: Store, measurement: Build) -> None:
    store.path.write_bytes(b"not a database")
    store.append(measurement(0))
    store.path.rename(store.path.with_suffix(".aside"))
    assert store.fold().rows == 1
    assert store.measurements().height == 1


def test_a_folder_in_place_of_the_file(store: Store) -> None:
    store.path.mkdir()
    with pytest.raises(StoreError):
        store.check()


def test_an_empty_database_becomes_a_store(store: Store, measurement: Build) -> None:
    duckdb.connect(str(store.path)).close()
    store.append(measurement(0))
    store.fold()
    assert store.measurements().height == 1


def test_migrations_run_in_order_and_once(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    second = "ALTER TABLE sweep ADD COLUMN host VARCHAR DEFAULT 'here'"
    with Database(path).open():
        pass
    newer = Database(path, scripts=(*migrations(), second))
    # A reader that finds an older schema migrates it, too.
    with newer.open(read_only=True) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(2,)]
        assert connection.execute("SELECT host FROM sweep").fetchall() == []
    with newer.open() as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(2,)]
    with pytest.raises(StoreError, match="newer emmy"), Database(path).open():
        pass


def test_a_migration_that_fails_leaves_the_older_schema(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with Database(path).open():
        pass
    with pytest.raises(StoreError), Database(path, scripts=(*migrations(), "DROP TABLE sweep; SELEKT")).open():
        pass
    with Database(path).open(read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM sweep").fetchall() == [(0,)]


# ----------------------------------------------------------------------------------------------------------- journal


def segment_of(store: Store) -> Path:
    (path,) = store.journal_dir.glob("*.jsonl")
    return path


def test_a_torn_last_line_is_an_append_that_never_returned(store: Store, measurement: Build) -> None:
    store.append(measurement(0), measurement(1))
    data = segment_of(store).read_bytes()
    for cut in (1, 5, len(data.splitlines()[1]) - 1):
        torn = Store(store.path.with_name(f"torn{cut}.duckdb"))
        torn.journal_dir.mkdir()
        (torn.journal_dir / "0.jsonl").write_bytes(data[:-cut])
        assert torn.measurements()["median_us"].to_list() == [10.0]
        assert torn.fold().damaged == ()
        assert torn.measurements()["median_us"].to_list() == [10.0]


@pytest.mark.parametrize("harm", ["flip", "text", "truncate", "unknown field"])
def test_a_damaged_middle_line_is_reported_skipped_and_kept(
    store: Store, measurement: Build, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.append(*(measurement(i) for i in range(3)))
    path = segment_of(store)
    lines = path.read_bytes().splitlines(keepends=True)
    match harm:
        case "flip":
            lines[1] = lines[1].replace(b'"median_us":11', b'"median_us":91')
        case "text":
            lines[1] = b"hello\n"
        case "truncate":
            lines[1] = lines[1][:40] + b"\n"
        case "unknown field":
            from emmy.store.journal import Entry, encode

            lines[1] = encode(
                Entry("measurement", "k", 1, {**dict.fromkeys(Measurement.__dataclass_fields__, ""), "x": 1})
            )
    path.unlink()
    path.write_bytes(b"".join(lines))
    assert store.measurements()["median_us"].to_list() == [10.0, 12.0]
    report = store.fold()
    assert [(line.segment, line.line) for line in report.damaged] == [(path, 2)]
    assert f"{path}:2" in caplog.text
    assert store.measurements()["median_us"].to_list() == [10.0, 12.0]
    assert (store.journal_dir / DAMAGED / path.name).read_bytes() == b"".join(lines)
    assert store.fold().damaged == ()


def test_a_full_disk_loses_nothing(store: Store, measurement: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(measurement(0))
    real_write = os.write

    def full(handle: int, data: memoryview) -> int:
        if len(data) > 100:
            return real_write(handle, data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(FullDisk) as caught:
            store.append(measurement(1), measurement(2))
        assert caught.value.exit_code == 2
        assert "free some space" in str(caught.value)
    store.append(measurement(3))
    assert store.measurements()["median_us"].to_list() == [10.0, 13.0]
    report = store.fold()
    assert (report.rows, report.damaged) == (2, ())


def test_a_database_without_room_is_a_full_disk() -> None:
    assert isinstance(database_error(duckdb.IOException("IO Error: x: No space left on device"), Path("a")), FullDisk)


def test_a_folder_that_cannot_be_written(tmp_path: Path, measurement: Build) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write the journal"):
        Store(tmp_path / "file" / "emmy.duckdb").append(measurement(0))


# ------------------------------------------------------------------------------------------------------------- locks

HOLD = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read(1); c.close()"


def test_a_lock_is_waited_for_and_then_named(store: Store, measurement: Build) -> None:
    store.append(measurement(0))
    store.fold()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    impatient = Store(store.path, lock_wait_s=0.2)
    impatient.append(measurement(1))
    with pytest.raises(StoreError) as caught:
        impatient.fold()
    assert f"PID {holder.pid}" in str(caught.value)
    assert "wait for that process" in str(caught.value)
    holder.stdin.write("x")
    holder.stdin.flush()
    # The holder needs a moment to close; a patient store waits for it.
    assert Store(store.path, lock_wait_s=10).measurements().height == 2
    assert holder.wait(10) == 0
    assert impatient.fold().rows == 1


def test_appending_does_not_wait_for_a_fold_that_waits(store: Store, measurement: Build) -> None:
    store.append(measurement(0))
    store.fold()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    folding = threading.Thread(target=store.fold)
    folding.start()
    store.append(measurement(1))
    assert folding.is_alive()
    holder.communicate("x")
    folding.join(10)
    assert not folding.is_alive()
    assert store.measurements().height == 2
