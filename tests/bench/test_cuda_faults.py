"""A CUDA GPU that fails, is lost, hangs or runs out of memory, through the whole worker, on a machine without one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from emmy.bench import client
from emmy.bench.client import Outcome, Worker
from emmy.bench.jobs import Reply, Row
from emmy.bench.protocol import Bench
from emmy.bench.records import Status
from emmy.device.cuda_targets import cuda_target
from emmy.errors import DeviceLost, MissingPrerequisite
from tests.bench.hand import add_references
from tests.bench.test_worker_faults import QUICK, reply
from tests.device.machine import pretend
from tests.gpu import hand

N = 4096


def add(kind: str = "good", n: int = N) -> Row:
    artefact = hand.add("good", (n,))
    kernel = replace(artefact.kernels[0], name=f"add_{kind}", source=artefact.kernels[0].source.replace("good", kind))
    step = replace(artefact.cases[0].steps[0], kernel=kernel.name)
    case = replace(artefact.cases[0], steps=(step,))
    return Row(kind, replace(artefact, name=kernel.name, kernels=(kernel,), cases=(case,)))


def submit(
    worker: Worker, folder: Path, kind: str, n: int = N, deadlines: Mapping[str, float] | None = None
) -> Outcome:
    refs = add_references(folder, (n,))
    job = {"job": "screen", "row": add(kind, n).to_json(), "refs": refs.to_json(), "protocol": asdict(QUICK)}
    return worker.submit(job | {"best_us": None}, deadlines)


def good(worker: Worker, folder: Path, n: int = N) -> Reply:
    answer = reply(submit(worker, folder, "good", n))
    assert answer.status == Status.OK, answer.error
    return answer


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return pretend(monkeypatch, tmp_path / "gpu")


@pytest.fixture
def worker(gpu: Path, tmp_path: Path) -> Iterator[Worker]:
    with Worker("cuda", tmp_path) as worker:
        yield worker


def test_a_row_carries_registers_spills_and_latency(worker: Worker, tmp_path: Path) -> None:
    answer = good(worker, tmp_path)
    assert (answer.registers, answer.spills) == (42, 16)
    assert answer.median_us == pytest.approx(1000)
    assert reply(submit(worker, tmp_path, "wrong")).status == Status.WRONG_RESULT


def test_ptxas_warnings_are_a_field_of_the_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = (
        'kernel.cu(3): warning #177-D: variable "k" was declared but never referenced\n'
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
    )
    pretend(monkeypatch, tmp_path / "gpu", log=log)
    with Worker("cuda", tmp_path) as worker:
        answer = good(worker, tmp_path)
    assert answer.warnings == ("(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized",)


def test_a_failed_kernel_is_a_row_and_its_process_is_not_used_again(worker: Worker, tmp_path: Path) -> None:
    good(worker, tmp_path)
    answer = reply(submit(worker, tmp_path, "illegal"))
    assert answer.status == Status.LAUNCH_FAILED
    assert "cudaErrorIllegalAddress" in answer.error
    good(worker, tmp_path)
    assert worker.starts == 2


def test_a_kernel_that_hangs_the_gpu_is_killed_and_the_next_row_is_served(worker: Worker, tmp_path: Path) -> None:
    good(worker, tmp_path)
    outcome = submit(worker, tmp_path, "endless", deadlines={"first launch": 0.5})
    assert outcome.status == Status.TIMEOUT
    assert "first launch took longer than 0.5 s" in outcome.error
    good(worker, tmp_path)


def test_a_process_that_not_even_a_kill_ends_is_left_behind(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good(worker, tmp_path)
    assert worker.process is not None
    hung, end = worker.process, worker.process.wait

    def wait(timeout: float | None = None) -> int:
        raise subprocess.TimeoutExpired("worker", timeout or 0)

    monkeypatch.setattr(hung, "wait", wait)
    monkeypatch.setattr(client, "REAP_DEADLINE_S", 0.1)
    outcome = submit(worker, tmp_path, "endless", deadlines={"first launch": 0.5})
    assert outcome.status == Status.TIMEOUT
    good(worker, tmp_path)
    end()


def test_out_of_memory_is_a_row_that_names_the_buffer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path / "gpu", memory=1 << 20)
    with Worker("cuda", tmp_path) as worker:
        good(worker, tmp_path)
        answer = reply(submit(worker, tmp_path, "good", 1 << 17))
        assert answer.status == Status.BENCH_FAIL
        assert "no buffer of 524288 bytes on NVIDIA Stub: cudaErrorMemoryAllocation" in answer.error
        assert answer.error.startswith("buffer ")
        good(worker, tmp_path)
        assert worker.starts == 1


def test_a_context_that_broke_between_two_rows_is_replaced_and_the_row_is_measured(
    worker: Worker, gpu: Path, tmp_path: Path
) -> None:
    good(worker, tmp_path)
    (gpu / "sick").touch()
    good(worker, tmp_path, 1000)
    assert worker.starts == 2


def test_a_gpu_that_is_lost_ends_the_run_and_no_row_is_blamed(worker: Worker, gpu: Path, tmp_path: Path) -> None:
    good(worker, tmp_path)
    (gpu / "lost").touch()
    with pytest.raises(DeviceLost, match=r"NVIDIA Stub was lost.*DevicesUnavailable.*what was measured is kept"):
        submit(worker, tmp_path, "good", 1000)
    (gpu / "lost").unlink()
    good(worker, tmp_path)


def test_a_gpu_that_a_kernel_takes_along(worker: Worker, gpu: Path, tmp_path: Path) -> None:
    good(worker, tmp_path)
    answer = reply(submit(worker, tmp_path, "takes_the_gpu"))
    assert answer.status == Status.LAUNCH_FAILED
    with pytest.raises(DeviceLost):
        submit(worker, tmp_path, "good")


def test_a_gpu_that_is_not_there_at_first_is_a_missing_prerequisite(worker: Worker, gpu: Path, tmp_path: Path) -> None:
    (gpu / "lost").touch()
    with pytest.raises(MissingPrerequisite, match=r"cannot be opened.*nvidia-smi"):
        submit(worker, tmp_path, "good")


def test_a_worker_that_never_starts_is_a_missing_prerequisite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with Worker("cuda") as worker, pytest.raises(MissingPrerequisite, match="did not start: exit code 1"):
        submit(worker, tmp_path, "good")


# ----------------------------------------------------------------------------------------------------- comparisons


@pytest.fixture
def bench(gpu: Path, tmp_path: Path) -> Iterator[Bench]:
    with Bench("cuda", cuda_target("sm_90a"), tmp_path / "_tune") as bench:
        yield bench


def test_a_row_that_breaks_a_process_of_a_comparison_takes_no_other_along(bench: Bench, tmp_path: Path) -> None:
    refs = add_references(tmp_path, (N,))
    rows = [add("good"), replace(add("later"), label="bad"), replace(add("good"), label="twin")]
    found = bench.confirm(rows, refs, processes=3, rounds=2)
    assert {label: reply.status for label, reply in found.replies.items()} == {
        "good": Status.OK, "bad": Status.LAUNCH_FAILED, "twin": Status.OK,
    }  # fmt: skip
    assert [len(found.seconds[label]) for label in ("good", "bad", "twin")] == [2, 0, 2]
    assert found.replies["bad"].error.startswith("kernel failed: cudaErrorIllegalAddress")
    (lost,) = found.lost
    assert lost.startswith("process 0: bad: kernel failed")


def test_a_gpu_that_is_lost_before_a_comparison(bench: Bench, gpu: Path, tmp_path: Path) -> None:
    refs = add_references(tmp_path, (N,))
    assert bench.qualify(add("good").artefact, refs).ok
    (gpu / "lost").touch()
    with pytest.raises(DeviceLost):
        bench.confirm([add("good")], refs, processes=1, rounds=1)
    with pytest.raises(DeviceLost, match="target-sm_90a was lost"):
        bench.prestart(1)
