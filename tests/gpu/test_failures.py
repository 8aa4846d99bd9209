"""What goes wrong on a real GPU ends as a typed row, and the next row is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from emmy.bench.artefact import Artefact
from emmy.bench.client import Outcome, Worker
from emmy.bench.inputs import InputSpec
from emmy.bench.jobs import ReferenceCase, ReferenceSet, Reply, Row
from emmy.bench.records import ProtocolSpec, Status
from emmy.device.base import Capabilities
from tests.bench.hand import add_references
from tests.gpu.hand import add

pytestmark = pytest.mark.gpu

QUICK = ProtocolSpec("screen", 1, cache="warm", samples=3, target_s=0.001, budget_s=0.01)


def submit(
    worker: Worker, folder: Path, artefact: Artefact, deadlines: Mapping[str, float] | None = None, n: int = 4096
) -> Outcome:
    job = {
        "job": "screen",
        "row": Row(artefact.name, artefact).to_json(),
        "refs": add_references(folder, (n,)).to_json(),
        "protocol": asdict(QUICK),
        "best_us": None,
    }
    return worker.submit(job, deadlines)


def reply(outcome: Outcome) -> Reply:
    assert outcome.reply is not None, outcome
    return Reply.from_json(outcome.reply)


def good(worker: Worker, folder: Path) -> Reply:
    answer = reply(submit(worker, folder, add("good")))
    assert answer.status == Status.OK, answer.error
    assert answer.median_us is not None
    assert 0 < answer.median_us < 1000
    return answer


def test_good_row_carries_registers_and_spread(worker: Worker, tmp_path: Path) -> None:
    answer = good(worker, tmp_path)
    assert answer.registers > 0
    assert answer.low_us is not None
    assert answer.high_us is not None
    assert answer.low_us <= (answer.median_us or 0) <= answer.high_us


def test_clock_is_read_with_the_row(worker: Worker, tmp_path: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    assert good(worker, tmp_path).sm_clock_mhz > 100


def test_endless_kernel_is_killed_and_the_next_row_is_served(worker: Worker, tmp_path: Path) -> None:
    good(worker, tmp_path)
    pid = worker.pid
    outcome = submit(worker, tmp_path, add("endless"), {"first launch": 2.0})
    assert outcome.status == Status.TIMEOUT
    assert "first launch took longer than 2 s" in outcome.error
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists()
    good(worker, tmp_path)


@pytest.mark.parametrize(
    ("kind", "words"), [("illegal", "illegal"), ("misaligned", "misaligned"), ("trap", "launch|illegal instruction")]
)
def test_failed_device_is_reported_in_the_drivers_words_and_not_used_again(
    worker: Worker, tmp_path: Path, kind: str, words: str
) -> None:
    good(worker, tmp_path)
    starts = worker.starts
    answer = reply(submit(worker, tmp_path, add(kind)))
    assert answer.status == Status.LAUNCH_FAILED
    assert any(word in answer.error.lower() for word in words.split("|")), answer.error
    good(worker, tmp_path)
    assert worker.starts == starts + 1


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [
        ("out_of_bounds", Status.WRONG_RESULT, "out of bounds of buffer z"),
        ("before_bounds", Status.WRONG_RESULT, "out of bounds of buffer z"),
        ("broken", Status.COMPILE_FAILED, "expected an expression"),
        ("static_smem", Status.COMPILE_FAILED, "too much shared"),
        ("silent", Status.WRONG_RESULT, "not written: nan at [0]"),
        ("wrong", Status.WRONG_RESULT, "relative error"),
        ("writes_input", Status.WRONG_RESULT, "wrote into its input x"),
    ],
)
def test_bad_kernel_is_a_typed_row(worker: Worker, tmp_path: Path, kind: str, status: Status, words: str) -> None:
    answer = reply(submit(worker, tmp_path, add(kind)))
    assert (answer.status, words in answer.error) == (status, True), answer
    assert answer.median_us is None
    good(worker, tmp_path)


def test_too_much_dynamic_shared_memory(worker: Worker, tmp_path: Path, caps: Capabilities) -> None:
    answer = reply(submit(worker, tmp_path, add("good", smem_bytes=caps.smem_bytes + 16)))
    assert answer.status == Status.LAUNCH_FAILED
    assert f"{caps.smem_bytes + 16} bytes" in answer.error
    starts = worker.starts
    good(worker, tmp_path)
    assert worker.starts == starts


def test_block_of_too_many_threads(worker: Worker, tmp_path: Path) -> None:
    answer = reply(submit(worker, tmp_path, add("good", block=(2048, 1))))
    assert answer.status == Status.LAUNCH_FAILED
    assert "invalid" in answer.error.lower()
    good(worker, tmp_path)


def test_row_larger_than_the_memory(worker: Worker, tmp_path: Path, caps: Capabilities) -> None:
    n = caps.memory_bytes // 4
    inputs = (InputSpec("x", 0, (n,), "f32"), InputSpec("y", 1, (n,), "f32"))
    refs = ReferenceSet("huge", 0, (ReferenceCase({"n": n}, inputs),))
    row = Row("huge", add("good", sizes=(n,)))
    answer = reply(worker.submit({"job": "qualify", "row": row.to_json(), "refs": refs.to_json()}))
    assert answer.status == Status.BENCH_FAIL
    assert "GiB" in answer.error
    good(worker, tmp_path)
