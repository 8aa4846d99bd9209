"""Every job ends in one typed outcome, whatever the kernel, the worker or the parent does; the next job is served."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from emmy.bench.client import Outcome, Worker
from emmy.bench.jobs import Reply, Row
from emmy.bench.records import ProtocolSpec, Status
from emmy.errors import BenchClosed
from tests.bench.hand import add, add_references

QUICK = ProtocolSpec("screen", 1, cache="warm", samples=3, target_s=0.001, budget_s=0.01)


def submit(
    worker: Worker,
    folder: Path,
    kind: str,
    sizes: tuple[int, ...] = (4096,),
    deadlines: Mapping[str, float] | None = None,
) -> Outcome:
    job = {
        "job": "screen",
        "row": Row(kind, add(kind, sizes)).to_json(),
        "refs": add_references(folder, sizes).to_json(),
        "protocol": asdict(QUICK),
        "best_us": None,
    }
    return worker.submit(job, deadlines)


def reply(outcome: Outcome) -> Reply:
    assert outcome.reply is not None, outcome
    return Reply.from_json(outcome.reply)


def good(worker: Worker, folder: Path) -> None:
    answer = reply(submit(worker, folder, "good"))
    assert answer.status == Status.OK, answer.error
    assert answer.median_us is not None
    assert 0 < answer.median_us < 1e5
    assert answer.rel_error is not None
    assert answer.rel_error < 1e-6


def test_good_row_has_samples_and_spread(worker: Worker, tmp_path: Path) -> None:
    answer = reply(submit(worker, tmp_path, "good", (4096, 509, 1)))
    assert answer.status == Status.OK, answer.error
    assert answer.samples >= QUICK.samples
    assert answer.low_us is not None
    assert answer.high_us is not None
    assert answer.median_us is not None
    assert answer.low_us <= answer.median_us <= answer.high_us


def test_endless_kernel_is_killed_and_the_next_job_is_served(worker: Worker, tmp_path: Path) -> None:
    good(worker, tmp_path)
    pid = worker.pid
    outcome = submit(worker, tmp_path, "endless", deadlines={"first launch": 1.5})
    assert outcome.status == Status.TIMEOUT
    assert "first launch took longer than 1.5 s" in outcome.error
    assert outcome.wall_s < 6
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists()
    good(worker, tmp_path)


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [
        ("out_of_bounds", Status.WRONG_RESULT, "out of bounds of buffer z"),
        ("before_bounds", Status.WRONG_RESULT, "out of bounds of buffer z"),
        ("broken", Status.COMPILE_FAILED, "kernel.cl:4:17: expected expression"),
        ("silent", Status.WRONG_RESULT, "not written: nan at [0]"),
        ("half_silent", Status.WRONG_RESULT, "not written: nan at [2048]"),
        ("wrong", Status.WRONG_RESULT, "relative error"),
        ("one_wrong", Status.WRONG_RESULT, "worst at [17]: "),
        ("writes_input", Status.WRONG_RESULT, "wrote into its input x"),
    ],
)
def test_bad_kernel_is_a_typed_row(worker: Worker, tmp_path: Path, kind: str, status: Status, words: str) -> None:
    answer = reply(submit(worker, tmp_path, kind))
    assert (answer.status, words in answer.error) == (status, True), answer
    assert answer.median_us is None
    good(worker, tmp_path)


def test_worker_that_saw_a_write_out_of_bounds_is_not_used_again(worker: Worker, tmp_path: Path) -> None:
    good(worker, tmp_path)
    starts = worker.starts
    submit(worker, tmp_path, "out_of_bounds")
    good(worker, tmp_path)
    assert worker.starts == starts + 1


def test_segfault_names_the_signal(worker: Worker, tmp_path: Path) -> None:
    outcome = submit(worker, tmp_path, "segfault")
    assert outcome.status == Status.LAUNCH_FAILED
    assert "SIGSEGV" in outcome.error
    good(worker, tmp_path)


def test_kill_from_outside_in_the_middle_of_a_job(worker: Worker, tmp_path: Path) -> None:
    good(worker, tmp_path)
    pid = worker.pid
    assert pid is not None
    timer = threading.Timer(0.8, os.kill, (pid, signal.SIGKILL))
    timer.start()
    outcome = submit(worker, tmp_path, "endless", deadlines={"first launch": 20})
    timer.join()
    assert outcome.status == Status.LAUNCH_FAILED
    assert "SIGKILL" in outcome.error
    good(worker, tmp_path)


def test_closed_by_another_thread_is_no_row(worker: Worker, tmp_path: Path) -> None:
    good(worker, tmp_path)
    closer = threading.Timer(0.7, worker.kill)
    closer.start()
    with pytest.raises(BenchClosed, match="run the command again"):
        submit(worker, tmp_path, "endless")
    closer.join()
    good(worker, tmp_path)


def test_kill_between_jobs_is_a_row_or_a_respawn(worker: Worker, tmp_path: Path) -> None:
    good(worker, tmp_path)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    good(worker, tmp_path)


def test_row_without_reference_data_fails_by_name(worker: Worker, tmp_path: Path) -> None:
    job = {
        "job": "qualify",
        "row": Row("a", add("good", (4096, 77))).to_json(),
        "refs": add_references(tmp_path, (4096,)).to_json(),
    }
    answer = reply(worker.submit(job))
    assert answer.status == Status.LAUNCH_FAILED
    assert "{'n': 77}" in answer.error


@pytest.mark.parametrize("busy", [False, True])
def test_worker_dies_with_its_parent(binaries: Path, tmp_path: Path, busy: bool) -> None:
    script = f"""
import sys, threading
from pathlib import Path
from emmy.bench.client import Worker
from tests.bench.test_worker_faults import submit
worker = Worker("opencl", Path({str(binaries)!r}))
worker.wait_ready()
print(worker.pid, flush=True)
if {busy}:
    submit(worker, Path({str(tmp_path)!r}), "endless", deadlines={{"first launch": 60}})
sys.stdin.read()
"""
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(1.0 if busy else 0)
    assert Path(f"/proc/{pid}").exists()
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 3
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        if "Z" in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]:
            break  # dead, and waits for this machine's init to collect it
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{pid}").exists()


def test_worker_outlives_the_thread_that_started_it(binaries: Path, tmp_path: Path) -> None:
    with Worker("opencl", binaries) as worker:
        thread = threading.Thread(target=worker.wait_ready)
        thread.start()
        thread.join()
        time.sleep(0.7)
        starts = worker.starts
        good(worker, tmp_path)
        assert worker.starts == starts
