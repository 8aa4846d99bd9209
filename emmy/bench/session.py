"""The worker's side of a job: executables, buffers and data that stay warm from one job to the next."""

from __future__ import annotations

import contextlib
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from emmy.bench.artefact import Case
from emmy.bench.check import TOLERANCES, compare, sentinel
from emmy.bench.inputs import STORAGE, InputSpec, generate, laid_out, memory_image
from emmy.bench.jobs import ReferenceCase, ReferenceSet, Reply, Row, TorchSource
from emmy.bench.memory import elements, nbytes, need_memory
from emmy.bench.on_device import OnDevice
from emmy.bench.records import ProtocolSpec, Status, digest
from emmy.bench.timing import Samples, confirm_repeats, rotation_sets, screen_samples
from emmy.bench.worker import failure
from emmy.device.registry import open_device
from emmy.errors import ContextLost, EmmyError, LaunchFailed, OutOfMemory

_HOST_CACHE_BYTES = 512 << 20
_EXECUTABLES = 32
_ROTATIONS = 1
"""Rotating buffer sets are kept for one set of data: those of a region, as its variants come one after the other."""


_SHORT_S = 0.02
"""Launches shorter than this are rough-timed twice."""


_BEFORE_A_LAUNCH = ("start", "compile")
"""Phases in which nothing of the row has run on the device yet."""

_BUSY = 0.05
"""Share of the cores' time lost to other work from which a row is marked."""


class Waiting:
    """How long this process's threads could have run and had to wait for a core: on a CPU device the counterpart of a
    GPU's throttling. From the kernel's scheduler statistics; zero where it keeps none."""

    def __init__(self, cores: int) -> None:
        self.cores, self.waited_ns, self.started = cores, self._waited(), time.perf_counter()

    def share(self) -> float:
        """Time lost since the start, as a share of what the cores had."""
        passed = max(1e-3, time.perf_counter() - self.started) * self.cores
        return max(0.0, (self._waited() - self.waited_ns) * 1e-9 / passed)

    @staticmethod
    def _waited() -> int:
        total = 0
        for path in Path("/proc/self/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                total += int(path.read_text().split()[1])
        return total


class WrongResult(EmmyError):
    """The launch ended, but an output, an input or a guard page is not what it has to be."""

    status = "wrong_result"


class HostCache:
    """Inputs and references in host memory, least recently used ones dropped beyond a size."""

    def __init__(self, limit: int = _HOST_CACHE_BYTES) -> None:
        self.limit, self.held = limit, 0
        self.arrays: OrderedDict[Any, np.ndarray] = OrderedDict()

    def get(self, key: Any, make: Callable[[], np.ndarray]) -> np.ndarray:
        if key in self.arrays:
            self.arrays.move_to_end(key)
            return self.arrays[key]
        array = make()
        self.arrays[key] = array
        self.held += array.nbytes
        while self.held > self.limit and len(self.arrays) > 1:
            self.held -= self.arrays.popitem(last=False)[1].nbytes
        return array


@dataclass(slots=True)
class Rotation:
    """Buffer sets of one case: inputs and outputs by name, filled. ``sets[0]`` is the one results are checked on."""

    case: ReferenceCase
    sets: list[dict[str, Any]]


@dataclass(slots=True)
class Ready:
    """A qualified executable with its bindings at the benched size."""

    executable: Any
    reply: Reply
    work: dict[str, Any]


class Session:
    """State of one worker. ``announce`` tells the client which phase begins."""

    def __init__(self, device: str, announce: Callable[[str], None]) -> None:
        self.device = open_device(device)
        self.tell = announce
        self.phase = "start"
        self.host = HostCache()
        self.on_device = OnDevice(self.device) if hasattr(self.device, "checker") else None
        self.ready: OrderedDict[str, Ready] = OrderedDict()
        self.rotations: OrderedDict[str, Rotation] = OrderedDict()
        self.tainted = False
        """A kernel wrote where it must not, or failed on the device: nothing measured here can be trusted any more."""
        self.failed_before = ""
        """Why the device was unusable before anything of the row ran: the row deserves another worker."""

    def announce(self, phase: str) -> None:
        self.phase = phase
        self.tell(phase)

    def answer(self, job: Mapping[str, Any]) -> Any:
        """One job's reply as JSON. Failures of a row are replies; only a broken job raises."""
        started, self.phase = time.perf_counter(), "start"
        match job["job"]:
            case "qualify" | "screen" as kind:
                row, refs = Row.from_json(job["row"]), ReferenceSet.from_json(job["refs"])
                try:
                    ready = self.qualified(row, refs)
                    reply = ready.reply
                    if kind == "screen":
                        protocol = ProtocolSpec(**job["protocol"])
                        reply = self.screened(row, refs, ready, protocol, job.get("best_us"))
                except Exception as error:
                    # Every exception ends as a typed row; its traceback would keep buffers alive.
                    reply = self.failed(error)
                return replace(reply, wall_s=time.perf_counter() - started).to_json()
            case "confirm":
                return self.confirmed(job)
            case "release":
                self.release()
                return {}
        raise ValueError(f"unknown job {job['job']!r}")

    def failed(self, error: Exception) -> Reply:
        """The reply of a row that ended in ``error``. A device that failed while it ran is not to be used again."""
        lost = isinstance(error, ContextLost)
        if lost and self.phase in _BEFORE_A_LAUNCH:
            self.failed_before = str(error)
        # a stream whose capture ran out of memory is as unusable as one whose kernel failed
        if lost or (isinstance(error, LaunchFailed | OutOfMemory) and self.phase not in _BEFORE_A_LAUNCH):
            self.tainted = True
        return Reply(*failure(error))

    # -- qualify ---------------------------------------------------------------------------------------------------

    def qualified(self, row: Row, refs: ReferenceSet) -> Ready:
        """Compiles, launches once, checks every case, takes a rough time. Kept for later jobs on the same row."""
        # The plan's own digest leaves out the cases that are checked only.
        key = digest([row.artefact.to_json(), row.regime, row.lane, refs.key])
        if key in self.ready:
            self.ready.move_to_end(key)
            return self.ready[key]
        artefact = row.artefact
        if not refs.cases or refs.case(artefact.cases[0].symbols) is None:
            raise LaunchFailed(f"no reference data for {artefact.name} at {dict(artefact.cases[0].symbols)}")
        need_memory(artefact, self.device.caps.memory_bytes)
        self.announce("compile")
        executable = self.device.compile(artefact, row.regime)
        worst, first_s, rough_s = 0.0, 0.0, 0.0
        for index, case in enumerate(artefact.cases):
            data = refs.case(case.symbols)
            if data is None:
                raise LaunchFailed(f"no reference data for {artefact.name} at {dict(case.symbols)}")
            buffers = self.rotation(refs, data, case, 1).sets[0] if index == 0 else self.fill(data, case, refs.seed)
            work = self.workspaces(case)
            try:
                bound = self.device.bind(executable, case, buffers | work)
                for spec in case.buffers:
                    if spec.role == "out" and self.on_device is not None:
                        self.on_device.poison(buffers[spec.name], spec.dtype)
                    elif spec.role == "out":
                        self.device.upload(buffers[spec.name], sentinel((elements(spec),), spec.dtype))
                self.announce("first launch" if index == 0 else "launch")
                started = time.perf_counter()
                self.device.run(bound)
                first = time.perf_counter() - started
                worst = max(worst, self.check(row, case, data, refs.seed, buffers, work))
                if index == 0:
                    self.announce("launch")
                    # The first launch finishes the compilation, so the second tells how long a launch takes.
                    rough_s = self.device.sample((bound,), 1)
                    if rough_s < _SHORT_S:
                        rough_s = min(rough_s, self.device.sample((bound,), 1))
                    first_s = max(0.0, first - rough_s)
            finally:
                for buffer in (*work.values(), *(() if index == 0 else buffers.values())):
                    self.device.free(buffer)
        report = executable.report
        reply = Reply(
            Status.OK, rough_us=rough_s * 1e6, rel_error=worst, build_s=report.seconds + first_s,
            registers=report.registers, spills=report.spills, smem_bytes=report.smem_bytes, warnings=report.warnings,
        )  # fmt: skip
        self.ready[key] = Ready(executable, reply, {})
        while len(self.ready) > _EXECUTABLES:
            self.ready.popitem(last=False)
        return self.ready[key]

    def check(
        self, row: Row, case: Case, data: ReferenceCase, seed: int, buffers: Mapping[str, Any], work: Mapping[str, Any]
    ) -> float:
        """The largest relative error of the outputs. Raises WrongResult for wrong outputs, inputs or guards."""
        at = f" at {dict(case.symbols)}" if case.symbols else ""
        for name, buffer in (*buffers.items(), *work.items()):
            if not self.device.guards_intact(buffer):
                self.tainted = True
                raise WrongResult(f"wrote out of bounds of buffer {name}{at}")
        for spec in data.inputs:
            if spec.name not in buffers:  # an input of the program that no kernel reads
                continue
            if self.on_device is not None and self.on_device.unchanged(buffers[spec.name], (seed, spec)):
                continue
            image = self.image(spec, seed)
            found = np.empty_like(image)
            self.device.download(buffers[spec.name], found)
            if not np.array_equal(found.view(np.uint8), image.view(np.uint8)):
                self.device.upload(buffers[spec.name], image)
                raise WrongResult(f"wrote into its input {spec.name}{at}")
        worst = 0.0
        for out in (spec for spec in case.buffers if spec.role == "out" and spec.name in data.outputs):
            tolerance = TOLERANCES.get((row.lane, out.dtype), TOLERANCES["std", "f32"])
            if self.on_device is not None:
                paths = data.outputs[out.name], data.scales.get(out.name)
                error = self.on_device.right(buffers[out.name], out, *paths, tolerance)
                if error is not None:
                    worst = max(worst, error)
                    continue
            memory = np.empty(elements(out), STORAGE[out.dtype])
            self.device.download(buffers[out.name], memory)
            got = laid_out(memory, out.shape, out.strides)
            reference = self.loaded(data.outputs[out.name])
            if reference.shape != got.shape:
                raise WrongResult(f"output {out.name}{at} has shape {got.shape}, its reference {reference.shape}")
            scale = self.loaded(data.scales[out.name]) if out.name in data.scales else None
            verdict = compare(got, reference, scale, out.dtype, tolerance)
            if verdict.reason:
                raise WrongResult(f"output {out.name}{at}: {verdict.reason}")
            worst = max(worst, verdict.rel_error)
        return worst

    # -- data and buffers ------------------------------------------------------------------------------------------

    def image(self, spec: InputSpec, seed: int) -> np.ndarray:
        return self.host.get((seed, spec), lambda: memory_image(generate(seed, spec), spec.strides))

    def loaded(self, path: str) -> np.ndarray:
        return self.host.get(path, lambda: np.load(path, allow_pickle=False))

    def fill(self, data: ReferenceCase, case: Case, seed: int) -> dict[str, Any]:
        """Fresh buffers of a case's inputs, filled, and of its outputs."""
        specs = {spec.name: spec for spec in data.inputs}
        buffers: dict[str, Any] = {}
        for buffer in case.buffers:
            if buffer.role == "in":
                if buffer.name not in specs:
                    raise LaunchFailed(f"input {buffer.name} has no data", expected=", ".join(specs))
                image = self.image(specs[buffer.name], seed)
                buffers[buffer.name] = self.alloc(buffer.name, image.nbytes)
                self.device.upload(buffers[buffer.name], image)
                if self.on_device is not None:
                    self.on_device.note(buffers[buffer.name], (seed, specs[buffer.name]))
            elif buffer.role == "out":
                buffers[buffer.name] = self.alloc(buffer.name, nbytes(buffer))
        return buffers

    def workspaces(self, case: Case) -> dict[str, Any]:
        return {b.name: self.alloc(b.name, nbytes(b)) for b in case.buffers if b.role == "work"}

    def alloc(self, name: str, size: int) -> Any:
        try:
            return self.device.alloc(size)
        except OutOfMemory as error:
            raise OutOfMemory(f"buffer {name}: {error}") from None

    def rotation(self, refs: ReferenceSet, data: ReferenceCase, case: Case, count: int) -> Rotation:
        """At least ``count`` buffer sets for a case of this reference data, kept while its variants are timed."""
        held = self.rotations.get(refs.key)
        if held is None or held.case != data:
            while len(self.rotations) >= _ROTATIONS:
                self.drop(self.rotations.popitem()[1])
            held = self.rotations[refs.key] = Rotation(data, [self.fill(data, case, refs.seed)])
        while len(held.sets) < count:
            fresh = {name: self.alloc(name, buffer.nbytes) for name, buffer in held.sets[0].items()}
            for name, buffer in fresh.items():
                self.device.copy(held.sets[0][name], buffer)
            held.sets.append(fresh)
        return held

    def drop(self, rotation: Rotation) -> None:
        if self.on_device is not None:
            self.on_device.forget()
        for buffers in rotation.sets:
            for buffer in buffers.values():
                self.device.free(buffer)

    def release(self) -> None:
        """Gives back buffers and executables; imports and the device stay."""
        self.ready.clear()
        while self.rotations:
            self.drop(self.rotations.popitem()[1])
        self.host = HostCache()

    # -- timing ----------------------------------------------------------------------------------------------------

    def bound_sets(self, row: Row, refs: ReferenceSet, ready: Ready, cache: str) -> tuple[list[Any], dict[str, Any]]:
        case = row.artefact.cases[0]
        data = refs.case(case.symbols)
        assert data is not None
        each = sum(nbytes(b) for b in case.buffers if b.role != "work")
        count = rotation_sets(each, self.device.caps.llc_bytes, self.device.caps.memory_bytes, cache)
        sets = self.rotation(refs, data, case, count).sets[:count]
        work = self.workspaces(case)
        return [self.device.bind(ready.executable, case, buffers | work) for buffers in sets], work

    def screened(
        self, row: Row, refs: ReferenceSet, ready: Ready, protocol: ProtocolSpec, best_us: float | None
    ) -> Reply:
        bounds, work = self.bound_sets(row, refs, ready, protocol.cache)
        try:
            self.announce("timing")
            watch = Waiting(self.device.caps.units)
            rough_s = (ready.reply.rough_us or 0.0) * 1e-6
            samples = screen_samples(
                lambda repeats, first: self.device.sample(bounds, repeats, first), rough_s, protocol, best_us
            )
        finally:
            for buffer in work.values():
                self.device.free(buffer)
        return self.with_clocks(with_samples(ready.reply, replace(samples, waited=watch.share())))

    def with_clocks(self, reply: Reply) -> Reply:
        """The reply with the device's clock and reasons for throttling, read right after the samples."""
        clock, throttle = self.device.clocks()
        return replace(reply, sm_clock_mhz=clock, throttle=throttle) if clock else reply

    def confirmed(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Interleaved rounds over rows and a PyTorch reference; failures are replies of their row, the others go on."""
        refs = ReferenceSet.from_json(job["refs"])
        protocol = ProtocolSpec(**job["protocol"])
        rows = [Row.from_json(row) for row in job["rows"]]
        sources = [TorchSource(**s | {"inputs": tuple(s["inputs"])}) for s in job["sources"]]
        rng = random.Random(job["seed"])
        replies: dict[str, Reply] = {}
        timers: dict[str, Callable[[int, int], float]] = {}
        rough: dict[str, float] = {}
        owned: list[Any] = []
        for row in rows:
            try:
                ready = self.qualified(row, refs)
                bounds, work = self.bound_sets(row, refs, ready, protocol.cache)
                owned += work.values()
                timers[row.label] = partial(self.device.sample, bounds)
                rough[row.label] = (ready.reply.rough_us or 0.0) * 1e-6
                replies[row.label] = ready.reply
            except Exception as error:
                replies[row.label] = self.failed(error)
                if self.tainted:
                    # The others are measured by another process, without the row that broke this one.
                    failed = {label: reply.to_json() for label, reply in replies.items() if not reply.ok}
                    return {"replies": failed, "rounds": {}, "repeats": {}, "lost": f"{row.label}: {error}"}
        for source in sources:
            try:
                from emmy.bench.torch_rows import torch_row

                self.announce("reference")
                program = torch_row(source, refs, self.device, protocol.cache)
                rough[source.label], error_rel = program.qualify(self.loaded)
                timers[source.label] = program.sample
                replies[source.label] = Reply(Status.OK, rough_us=rough[source.label] * 1e6, rel_error=error_rel)
            except Exception as error:
                replies[source.label] = Reply(*failure(error))
        self.announce("timing")
        watch = Waiting(self.device.caps.units)
        rounds, repeats = run_rounds(timers, rough, protocol, job["rounds"], job["preheat_s"], rng)
        waited = watch.share()
        for label, series in rounds.items():
            samples = Samples([s * 1e6 for s in series], False, waited)
            replies[label] = self.with_clocks(with_samples(replies[label], samples))
        for buffer in owned:
            self.device.free(buffer)
        return {"replies": {k: r.to_json() for k, r in replies.items()}, "rounds": rounds, "repeats": repeats}


def run_rounds(
    timers: Mapping[str, Callable[[int, int], float]],
    rough: Mapping[str, float],
    protocol: ProtocolSpec,
    rounds: int,
    preheat_s: float,
    rng: random.Random,
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds an execution, by row and round. Preheats with the candidates themselves, then ABBA in random order.

    A round visits the rows in a random order and then in the reverse of it, so that a drift of the clock within a round
    falls on all rows alike; a row's value is the mean of its two visits.
    """
    turn = dict.fromkeys(timers, 0)
    speed = {label: max(rough[label], 1e-7) for label in timers}

    def visit(label: str, repeats: int) -> float:
        seconds = timers[label](repeats, turn[label])
        turn[label] += repeats
        return seconds / repeats

    started = time.perf_counter()
    slice_s = min(protocol.target_s, preheat_s / max(1, len(timers)))
    while timers and time.perf_counter() - started < preheat_s:
        for label in timers:
            speed[label] = visit(label, confirm_repeats(speed[label], slice_s))
    repeats = {label: confirm_repeats(speed[label], protocol.target_s) for label in timers}
    series: dict[str, list[float]] = {label: [] for label in timers}
    for _ in range(rounds):
        order = list(timers)
        rng.shuffle(order)
        seen: dict[str, float] = dict.fromkeys(order, 0.0)
        for label in (*order, *reversed(order)):
            seen[label] += visit(label, repeats[label]) / 2
        for label, value in seen.items():
            series[label].append(value)
    return series, repeats


def with_samples(reply: Reply, samples: Samples) -> Reply:
    low, median, high = samples.quartiles()
    busy = f"waited for cores {samples.waited:.0%}" if samples.waited > _BUSY else ""
    return replace(reply, median_us=median, low_us=low, high_us=high, samples=len(samples.values_us),
                   abandoned=samples.abandoned, throttle=busy)  # fmt: skip
