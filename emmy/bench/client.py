"""The parent's side of a bench worker: spawn, submit, kill. No device context is ever created here.

A deadline is kept by SIGKILL on the worker's process group; whatever ends a job, its caller gets a typed outcome, and
the next job finds a fresh worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emmy.bench import wire
from emmy.bench.records import Status
from emmy.errors import BenchClosed, DeviceLost, LaunchFailed, MissingPrerequisite

START_DEADLINE_S = 60.0
REAP_DEADLINE_S = 20.0
"""Of a killed worker's end. A process inside a driver call that never returns does not even end by SIGKILL."""

DEADLINES_S: dict[str, float] = {
    "start": 30.0,
    "compile": 30.0,
    "first launch": 20.0,
    "launch": 10.0,
    "reference": 120.0,
    "timing": 60.0,
}
"""Seconds a phase of a job may take, by its name; ``start`` is everything before the first phase is announced."""

_STDERR_LINES = 12
_spawners: dict[int, ThreadPoolExecutor] = {}


def _spawner() -> ThreadPoolExecutor:
    """A thread that lives as long as this process, to spawn workers from.

    The kernel sends the parent-death signal when the *thread* that spawned a child ends, and callers' threads (those of
    a flow's tasks, for example) end before the process does.
    """
    return _spawners.setdefault(os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="emmy-bench-spawn"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: the worker's reply, or a status and the reason why there is none."""

    reply: Any = None
    status: Status = Status.OK
    error: str = ""
    wall_s: float = 0.0


class Worker:
    """One worker process, started when needed and again after every death.

    device: name for ``open_device``. cache_dir: the OpenCL runtime's binary cache. torch: import torch at the start.
    """

    def __init__(
        self, device: str, cache_dir: Path | None = None, torch: bool = False, threads: int | None = None
    ) -> None:
        self.device = device
        self.cache_dir = cache_dir
        self.torch = torch
        self.threads = threads or os.cpu_count() or 1
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.name = ""
        self.opened = False
        """Whether the device could be opened once."""
        self._ready = False
        self._failed_starts = 0
        # Open for the life of the worker: every process it becomes writes there.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def start(self) -> None:
        """Spawns the process without waiting for it to be ready."""
        if self.process is not None and self.process.poll() is None:
            return
        self.kill()
        self._stderr.truncate(0)
        command = [sys.executable, "-m", "emmy.bench.worker", "--device", self.device, "--parent", str(os.getpid())]
        if self.torch:
            command.append("--torch")
        spawn = _spawner().submit(
            subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            env=worker_environment(self.cache_dir, self.threads), start_new_session=True,
        )  # fmt: skip
        self.process = spawn.result()
        self.starts += 1
        self._ready = False

    def wait_ready(self) -> None:
        """Waits until the device is open.

        Raises, with the worker's last words, LaunchFailed where it does not start, and where it cannot open the device
        MissingPrerequisite the first time, DeviceLost once it could.
        """
        self.start()
        if self._ready:
            return
        _, replies = self._pipes()
        try:
            message = wire.receive(replies, time.monotonic() + START_DEADLINE_S)
        except (wire.Closed, wire.Expired) as end:
            why = self._death() if isinstance(end, wire.Closed) else f"not ready after {START_DEADLINE_S:g} s"
            self.kill()
            self._failed_starts += 1
            raise LaunchFailed(f"the bench worker did not start: {why}") from None
        if "failed" in message:
            self.kill()
            if self.opened:
                raise DeviceLost(self.name, message["failed"])
            raise MissingPrerequisite(message["failed"])
        self.name = message["ready"]
        self._ready = self.opened = True
        self._failed_starts = 0

    def submit(self, job: Mapping[str, Any], deadlines: Mapping[str, float] | None = None) -> Outcome:
        """Runs one job to its typed end. ``deadlines``: seconds by phase, over DEADLINES_S.

        A worker that died, or found its device unusable, before it began the job is replaced once. A passed deadline is
        ``timeout``; death by a signal while compiling is ``compile_failed``, otherwise ``launch_failed``; the error
        holds the signal and the last lines of standard error. Raises MissingPrerequisite when the device cannot be
        opened or no worker starts twice in a row, DeviceLost instead where that worked earlier, and BenchClosed when
        another thread ends the worker.
        """
        limits = {**DEADLINES_S, **(deadlines or {})}
        outcome, phase = self._submit(job, limits)
        if phase == "start" and outcome.status == Status.BENCH_FAIL:
            outcome, _ = self._submit(job, limits)
            if self._failed_starts > 1:
                raise DeviceLost(self.name, outcome.error) if self.opened else MissingPrerequisite(outcome.error)
        return outcome

    def _submit(self, job: Mapping[str, Any], limits: Mapping[str, float]) -> tuple[Outcome, str]:
        """The outcome and the phase that the job had come to."""
        started, phase = time.monotonic(), "start"
        try:
            self.wait_ready()
        except LaunchFailed as error:
            return Outcome(None, Status.BENCH_FAIL, str(error), time.monotonic() - started), phase
        jobs, replies = self._pipes()
        try:
            wire.send(jobs, job)
            while True:
                message = wire.receive(replies, time.monotonic() + limits[phase])
                if "reply" in message:
                    if message.get("retire"):
                        self.kill()
                    if why := message.get("failed_before"):
                        text = f"the device had failed before: {why}"
                        return Outcome(None, Status.BENCH_FAIL, text, time.monotonic() - started), "start"
                    return Outcome(message["reply"], wall_s=time.monotonic() - started), phase
                phase = message["phase"]
        except wire.Expired:
            self.kill()
            text = f"{phase} took longer than {limits[phase]:g} s; the worker was killed"
            return Outcome(None, Status.TIMEOUT, text, time.monotonic() - started), phase
        except wire.Closed:
            why = self._death()
            status = _death_status(phase, why)
            self.kill()
            text = f"the worker died in phase {phase}: {why}"
            return Outcome(None, status, text, time.monotonic() - started), phase
        except BaseException:
            # A worker in the middle of a job cannot be asked anything else.
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL to the worker and everything it started; reaps it, unless a hung driver holds on to it."""
        process, self.process, self._ready = self.process, None, False
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REAP_DEADLINE_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def close(self) -> None:
        self.kill()
        self._stderr.close()

    def _pipes(self) -> tuple[int, int]:
        process = self.process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the worker is not started")
        return process.stdin.fileno(), process.stdout.fileno()

    def _death(self) -> str:
        """How the process ended. Raises BenchClosed where another thread ended it."""
        process = self.process
        if process is None:
            raise BenchClosed()
        try:
            code = process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._stderr.seek(0)
        lines = self._stderr.read()[-8192:].decode(errors="replace").strip().splitlines()[-_STDERR_LINES:]
        return how + ("; " + " | ".join(lines) if lines else "")


def _death_status(phase: str, why: str) -> Status:
    if phase in ("start", "reference"):
        return Status.BENCH_FAIL
    # PoCL's LLVM aborts the process for code it cannot select, mostly at the first launch, which finishes compiling.
    if phase == "compile" or (phase == "first launch" and "LLVM ERROR" in why):
        return Status.COMPILE_FAILED
    return Status.LAUNCH_FAILED


def worker_environment(cache_dir: Path | None, threads: int) -> dict[str, str]:
    """The environment a worker starts with.

    How torch's OpenMP threads wait is left at its default, whatever the parent's variables say: a passive pool makes
    torch itself slow (2 cores of an AMD EPYC, torch 2.13, a 256x256 matmul: 182 us, passive 361 us, one thread 323 us).
    That a default pool spins for a while after its work is dealt with in ``torch_rows``.
    """
    from emmy.device.opencl import prepare_environment

    env = dict(os.environ)
    prepare_environment(None if cache_dir is None else str(cache_dir), env)
    if cache_dir is not None:
        env["EMMY_BINARIES"] = str(cache_dir / "cuda")
    # NumPy's own BLAS spins as well, and the comparisons of results are too short to gain by threads.
    env["OPENBLAS_NUM_THREADS"] = "1"
    env["OMP_NUM_THREADS"] = env["MKL_NUM_THREADS"] = str(threads)
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        env.pop(name, None)
    env["PYTHONFAULTHANDLER"] = "1"
    env["PYTHONUNBUFFERED"] = "1"
    return env
