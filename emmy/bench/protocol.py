"""The bench as the tuner sees it: screen a variant, confirm a comparison, one thing timed at a time.

What it costs (2 cores of an AMD EPYC, 32 MiB L3, PoCL 3.0, 2026-11-30, a 256x256x256 matmul, processor time where the
machine was busy): a worker is ready after 0.28 s; a row is qualified in 0.14 to 0.19 s, nearly all of it compilation,
in 0.03 s where its binaries are found, and screened in 0.03 to 0.12 s more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from emmy.bench.artefact import Artefact
from emmy.bench.client import DEADLINES_S, Outcome, Worker
from emmy.bench.jobs import ReferenceSet, Reply, Row, TorchSource
from emmy.bench.memory import need_memory
from emmy.bench.records import CONFIRM, SCREEN, Status
from emmy.bench.roofline import plausible
from emmy.device.base import Capabilities
from emmy.device.binaries import BinaryCache, CompilePool
from emmy.errors import DeviceLost, FullDisk, MissingPrerequisite, OutOfMemory, TimedOut

PREHEAT_S = 0.2
PROCESSES = 6
ROUNDS = 6
MAX_BUILDERS = 8
MIN_FREE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ConfirmResult:
    """A comparison. ``seconds[label][process][round]`` an execution, for rows that were timed in that process.

    replies: one per label: the first failure of any process, else the row with the median and the quartiles over all
    processes and rounds. A process that died as a whole is in ``lost``; its rounds are missing from every row.
    """

    seconds: Mapping[str, tuple[tuple[float, ...], ...]]
    replies: Mapping[str, Reply]
    lost: tuple[str, ...] = ()
    wall_s: float = 0.0


@dataclass(slots=True)
class Bench:
    """A device's workers: one kept warm to screen, ``processes`` prestarted ones to confirm. A context manager.

    device: name for ``open_device``. folder: work folder (``_tune``); compiled binaries go to a part of it
    that is named after the sweep, so that a new sweep compiles cold. deadlines: seconds by phase, over DEADLINES_S.
    """

    device: str
    caps: Capabilities
    folder: Path
    sweep: str = "default"
    deadlines: Mapping[str, float] = field(default_factory=dict)
    _screen: Worker | None = None
    _confirm: list[Worker] = field(default_factory=list)
    _builders: list[Worker] = field(default_factory=list)
    _compilers: CompilePool | None = None

    def __enter__(self) -> Bench:
        self.cache_dir.mkdir(parents=True, exist_ok=True)
        self._worker().start()
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in (*([self._screen] if self._screen else []), *self._confirm, *self._builders):
            worker.close()
        self._screen, self._confirm, self._builders = None, [], []
        if self._compilers is not None:
            self._compilers.close()

    @property
    def builders(self) -> int:
        """Kernels that are compiled side by side."""
        return min(self.caps.units, MAX_BUILDERS) if self.caps.kind == "cpu" else os.cpu_count() or 1

    @property
    def cache_dir(self) -> Path:
        return self.folder / "binaries" / self.sweep

    def qualify(self, artefact: Artefact, reference_set: ReferenceSet, regime: str = "O3", lane: str = "std") -> Reply:
        """Compiles, launches once, checks every case, takes a rough time (``rough_us``)."""
        job = {
            "job": "qualify",
            "row": Row(artefact.name, artefact, lane, regime).to_json(),
            "refs": reference_set.to_json(),
        }
        return self._answer(job, artefact)

    def screen(
        self,
        artefact: Artefact,
        reference_set: ReferenceSet,
        best_us: float | None = None,
        regime: str = "O3",
        lane: str = "std",
        cache: str = "cold",
    ) -> Reply:
        """Qualifies where that was not done yet, then times adaptively; abandons what is clearly above ``best_us``."""
        job = {
            "job": "screen",
            "row": Row(artefact.name, artefact, lane, regime).to_json(),
            "refs": reference_set.to_json(),
            "protocol": asdict(replace(SCREEN, cache=cache)),
            "best_us": best_us,
        }
        return self._answer(job, artefact)

    def build_ahead(self, rows: Sequence[Row], reference_set: ReferenceSet) -> list[Reply]:
        """Qualifies rows on all cores at once, a process each; a later ``screen`` finds their binaries compiled.

        For what is to be screened next. On a CPU device nothing is timed meanwhile, since a compilation takes cores
        that the timing needs; ``rough_us`` of these replies means little. For a GPU the compilations only begin here:
        ``screen`` waits for the one it needs, and the GPU times while the others go on.
        """
        if self.caps.language == "cuda":
            self._compiling().request(job for row in rows for job in cuda_jobs(row.artefact, row.regime, self.caps))
            return [Reply(Status.OK)] * len(rows)
        waiting = list(enumerate(rows))
        replies: list[Reply] = [Reply(Status.BENCH_FAIL, "not built")] * len(rows)
        while len(self._builders) < min(self.builders, len(rows)) - 1:
            self._builders.append(Worker(self.device, self.cache_dir, threads=1))

        def drain(worker: Worker) -> None:
            while waiting:
                index, row = waiting.pop(0)
                job = {"job": "qualify", "row": row.to_json(), "refs": reference_set.to_json()}
                replies[index] = self._reply(worker.submit(job, self.deadlines), row.artefact)

        with self._alone(), ThreadPoolExecutor(MAX_BUILDERS) as pool:
            for done in [pool.submit(drain, worker) for worker in (self._worker(), *self._builders)]:
                done.result()
        return replies

    def confirm(
        self,
        rows: Sequence[Row],
        reference_set: ReferenceSet,
        sources: Sequence[TorchSource] = (),
        processes: int = PROCESSES,
        rounds: int = ROUNDS,
        cache: str = "cold",
        seed: int = 0,
    ) -> ConfirmResult:
        """Times rows and PyTorch references interleaved in ``processes`` processes, one after the other.

        Each row is qualified in a job of its own before, so that one that crashes does not take the others along.
        Raises ValueError for labels that are not unique, DeviceLost.
        """
        labels = [row.label for row in rows] + [source.label for source in sources]
        if len(set(labels)) != len(labels):
            raise ValueError(f"labels of a comparison have to be unique: {labels}")
        failed = {}
        for row in rows:
            reply = self.qualify(row.artefact, reference_set, row.regime, row.lane)
            if not reply.ok:
                failed[row.label] = reply
        timed = [row for row in rows if row.label not in failed]
        job: dict[str, Any] = {
            "job": "confirm",
            "rows": [row.to_json() for row in timed],
            "sources": [asdict(source) for source in sources],
            "refs": reference_set.to_json(),
            "protocol": asdict(replace(CONFIRM, cache=cache)),
            "rounds": rounds,
            "preheat_s": PREHEAT_S,
        }
        series: dict[str, list[tuple[float, ...]]] = {label: [] for label in labels}
        replies: dict[str, list[Reply]] = {label: [] for label in labels}
        lost: list[str] = []
        wall = 0.0
        workers = self.prestart(processes, torch=bool(sources))
        with self._alone():
            for process, worker in enumerate(workers):
                outcome = worker.submit(job | {"seed": seed * 1000 + process}, self.deadlines)
                wall += outcome.wall_s
                if outcome.reply is None:
                    lost.append(f"process {process}: {outcome.status.value}: {outcome.error}")
                    continue
                for label, data in outcome.reply["replies"].items():
                    replies[label].append(Reply.from_json(data))
                if why := outcome.reply.get("lost"):
                    lost.append(f"process {process}: {why}")
                # what failed here is left out of the processes that follow, so that it takes no other row along again
                job["rows"] = [row for row in job["rows"] if all(reply.ok for reply in replies[row["label"]])]
                for label, seconds in outcome.reply["rounds"].items():
                    series[label].append(tuple(seconds))
                if worker.pid is not None:
                    worker.submit({"job": "release"})
        artefacts = {row.label: row.artefact for row in timed}
        final = {
            label: failed.get(label) or self._summary(replies[label], series[label], lost, artefacts.get(label))
            for label in labels
        }
        return ConfirmResult({label: tuple(values) for label, values in series.items()}, final, tuple(lost), wall)

    def prestart(self, processes: int, torch: bool = True) -> list[Worker]:
        """Starts the workers of a comparison and waits until all are ready; they stay for the next.

        torch: import it at the start; a worker that was started without imports it with its first reference. Raises
        MissingPrerequisite where the device cannot be opened, DeviceLost where a worker could open it earlier.
        """
        threads = self.caps.units if self.caps.kind == "cpu" else None
        while len(self._confirm) < processes:
            self._confirm.append(Worker(self.device, self.cache_dir, torch=torch, threads=threads))
        workers = self._confirm[:processes]
        for worker in workers:
            worker.start()
        for worker in workers:
            try:
                worker.wait_ready()
            except MissingPrerequisite as error:
                if any(one.opened for one in (self._screen, *self._confirm) if one is not None):
                    raise DeviceLost(self.caps.name, str(error)) from None
                raise
        return workers

    def _summary(
        self, replies: list[Reply], series: list[tuple[float, ...]], lost: list[str], artefact: Artefact | None
    ) -> Reply:
        from emmy.bench.timing import quartiles

        bad = next((reply for reply in replies if not reply.ok), None)
        if bad is not None:
            return bad
        values = [seconds * 1e6 for process in series for seconds in process]
        if not values:
            return Reply(Status.BENCH_FAIL, "; ".join(lost) or "not timed")
        low, median, high = quartiles(values)
        reply = replace(replies[0], median_us=median, low_us=low, high_us=high, samples=len(values))
        return reply if artefact is None else self._judged(reply, artefact)

    def _answer(self, job: Mapping[str, Any], artefact: Artefact) -> Reply:
        try:
            need_memory(artefact, self.caps.memory_bytes)
        except OutOfMemory as error:
            return Reply(Status.BENCH_FAIL, str(error))
        if self._compilers is not None:
            try:
                for compile_job in cuda_jobs(artefact, job["row"]["regime"], self.caps):
                    self._compilers.wait(*compile_job, self.deadlines.get("compile", DEADLINES_S["compile"]))
            except TimedOut as error:
                return Reply(Status(error.status), str(error))
        with self._alone():
            return self._reply(self._worker().submit(job, self.deadlines), artefact)

    def _reply(self, outcome: Outcome, artefact: Artefact) -> Reply:
        reply = Reply(outcome.status, outcome.error, wall_s=outcome.wall_s)
        if outcome.reply is not None:
            reply = self._judged(Reply.from_json(outcome.reply), artefact)
        if not reply.ok:
            need_disk(self.cache_dir)
        return reply

    def _judged(self, reply: Reply, artefact: Artefact) -> Reply:
        if not reply.ok or reply.median_us is None:
            return reply
        reason = plausible(self.caps, artefact.flops, artefact.bytes_min, reply.median_us, artefact.tensor)
        return reply if reason is None else replace(reply, status=Status.IMPLAUSIBLE, error=reason)

    def _compiling(self) -> CompilePool:
        if self._compilers is None:
            self._compilers = CompilePool(BinaryCache(self.cache_dir / "cuda"), self.builders)
        return self._compilers

    def _worker(self) -> Worker:
        if self._screen is None:
            threads = self.caps.units if self.caps.kind == "cpu" else None
            self._screen = Worker(self.device, self.cache_dir, threads=threads)
        return self._screen

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One timing at a time among all processes that share the work folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / "timing.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def need_disk(folder: Path) -> None:
    """Raises FullDisk where a compiler has no room for its output: its failure then says nothing about the kernel."""
    try:
        free = shutil.disk_usage(folder).free
    except FileNotFoundError:
        return
    if free < MIN_FREE_BYTES:
        raise FullDisk(folder)


def cuda_jobs(artefact: Artefact, regime: str, caps: Capabilities) -> list[tuple[str, str, tuple[str, ...]]]:
    """(source, architecture, options) of every kernel of an artefact, as the CUDA device compiles it."""
    from emmy.device.cuda import compile_options

    options = compile_options(artefact.options, regime)
    return [(kernel.source, caps.arch, options) for kernel in artefact.kernels]
