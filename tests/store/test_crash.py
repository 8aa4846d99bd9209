"""Killed writers, a reader beside a writer, two writers at once: nothing lost, nothing twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from emmy.bench.records import Measurement, Status
from emmy.device.replay import export
from emmy.store import Store

Build = Callable[..., Measurement]
WRITER = Path(__file__).with_name("crash_writer.py")
ROWS = 800


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, measurement: Build) -> Path:
    """A recorded sweep of 800 variants, some of which failed."""
    folder = tmp_path_factory.mktemp("recording")
    store = Store(folder / "recorded.duckdb")
    statuses = [Status.OK] * 8 + [Status.TIMEOUT, Status.WRONG_RESULT]
    store.append(*(measurement(i, knobs=json.dumps({"TILE": f"n{i}x8", "STAGE": ""}), status=statuses[i % 10])
                   for i in range(ROWS)))  # fmt: skip
    export(store, "s1", folder / "sweep.parquet")
    return folder / "sweep.parquet"


def start(store: Store, recording: Path, first: int = 0, step: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), str(store.path), str(recording), "s2", str(first), str(step)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def content(store: Store) -> pl.DataFrame:
    return store.measurements().drop("stamp", "measured_at").sort("key")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, recording: Path) -> pl.DataFrame:
    store = Store(tmp_path_factory.mktemp("whole") / "emmy.duckdb")
    assert start(store, recording).wait(60) == 0
    frame = content(store)
    assert frame.height == ROWS
    return frame


@pytest.mark.parametrize("seed", [1])
def test_kill_9_at_ten_random_moments(store: Store, recording: Path, uninterrupted: pl.DataFrame, seed: int) -> None:
    moments = random.Random(seed)
    seen = 0
    for _ in range(10):
        process = start(store, recording)
        assert process.stdout is not None
        # A random number of rows, and then anywhere in an append or, at every fortieth row, in a fold.
        for _ in range(moments.randint(1, 70)):
            assert process.stdout.readline() == "row\n"
        time.sleep(moments.uniform(0.0, 0.03))
        assert process.poll() is None, "the writer was done before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
        count = store.measurements().height
        assert count >= seen
        seen = count
    assert 0 < seen < ROWS
    assert start(store, recording).wait(60) == 0
    assert content(store).equals(uninterrupted)
    assert list(store.journal_dir.glob("*.jsonl")) == []


def test_a_reader_sees_what_was_written_while_it_is_written(
    store: Store, recording: Path, uninterrupted: pl.DataFrame
) -> None:
    process = start(store, recording)
    counts = []
    while process.poll() is None:
        frame = store.measurements()
        counts.append(frame.height)
        assert frame["key"].n_unique() == frame.height
        time.sleep(0.02)
    assert len(counts) >= 5
    assert counts == sorted(counts)
    assert any(0 < count < ROWS for count in counts)
    assert content(store).equals(uninterrupted)


def test_two_writers_at_once(store: Store, recording: Path, uninterrupted: pl.DataFrame) -> None:
    # They overlap: each third row is written by both.
    writers = [start(store, recording, 0, 1), start(store, recording, 0, 3)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert content(store).equals(uninterrupted)


def test_the_segment_of_a_living_writer_stays(store: Store, measurement: Build) -> None:
    writer = Store(store.path)
    writer.append(measurement(0))
    assert store.fold().segments_removed == 0
    writer.append(measurement(1))
    assert store.measurements().height == 2
    assert store.fold().rows == 2
    writer.fold()
    assert list(store.journal_dir.glob("*.jsonl")) == []
    assert store.measurements().height == 2


def test_a_forked_child_writes_its_own_segment(store: Store, measurement: Build) -> None:
    store.append(measurement(0))
    child = os.fork()
    if child == 0:
        try:
            store.append(measurement(1))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    store.append(measurement(2))
    assert len(list(store.journal_dir.glob("*.jsonl"))) == 2
    store.fold()
    assert store.measurements()["median_us"].to_list() == [10.0, 11.0, 12.0]


def test_threads_share_a_store(store: Store, measurement: Build) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(index: int) -> int:
        store.append(measurement(index))
        if index % 5 == 0:
            store.fold()
        return Store(store.path).measurements().height

    with ThreadPoolExecutor(4) as pool:
        assert min(pool.map(work, range(20))) >= 1
    assert store.measurements().height == 20
