"""Leaves prepared by processes while others are timed: lowered, printed, and for CUDA compiled into the binary cache.

Lowering and printing a leaf takes 20 to 150 ms of Python (one core of an AMD EPYC, 2026-11-30, 512x2048x1024 and
2048x2048), longer than a GPU needs to time it; compiling takes longer still. None of it needs the device.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from time import monotonic

from emmy.bench.artefact import Artefact
from emmy.device.base import Capabilities
from emmy.errors import CompileFailed, EmmyError, TimedOut
from emmy.ir.nest import Region
from emmy.schedule.knobs import KnobMap
from emmy.search.realise import realise
from emmy.search.variant import Variant, knobs_text, read_knobs

LOOK_S = 1.0
"""How often it is looked which leaves are worked on by now."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A leaf as a process left it. error: one line on why it does not lower; ``artefact`` is None then.

    That a kernel does not compile is not said here: the cache keeps the failure, and the bench makes it a row.
    """

    artefact: Artefact | None
    error: str = ""

    def variant(self, region: Region, caps: Capabilities, knobs: KnobMap) -> Variant | None:
        """The variant, its artefact already printed; None where the leaf does not lower."""
        if self.artefact is None:
            return None
        found = Variant(region, caps, knobs, None)
        found.__dict__["artefact"] = self.artefact
        return found


@dataclass(slots=True)
class Ticket:
    """A leaf under way. pool: the processes that have it. since: when it was first seen to be worked on, as
    ``time.monotonic`` has it."""

    region: Region
    knobs: KnobMap
    regime: str
    future: Future[Prepared]
    pool: ProcessPoolExecutor | None = None
    since: float | None = None

    def left(self, deadline_s: float) -> float:
        """Seconds until it has been worked on for ``deadline_s``."""
        if self.since is None and self.future.running():
            self.since = monotonic()
        return deadline_s if self.since is None else max(0.0, self.since + deadline_s - monotonic())


class Preparer:
    """A pool of processes for the leaves of one device. A context manager.

    cache: folder of CUDA binaries (``Bench.cache_dir / "cuda"``), None to print without compiling.
    """

    def __init__(self, caps: Capabilities, cache: Path | None, processes: int) -> None:
        self.caps, self.cache, self.processes = caps, cache, processes
        self._pool: ProcessPoolExecutor | None = None
        self._blobs: dict[int, tuple[Region, bytes]] = {}

    def __enter__(self) -> Preparer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def submit(self, region: Region, knobs: KnobMap, regime: str = "O3") -> Ticket:
        """Starts on a leaf; ask ``result`` for it."""
        future = self._submit(region, knobs, regime)
        return Ticket(region, knobs, regime, future, self._pool)

    def _submit(self, region: Region, knobs: KnobMap, regime: str) -> Future[Prepared]:
        arguments = (self._blob(region), self.caps, knobs_text(knobs), self.cache, regime)
        try:
            return self._started().submit(prepare, *arguments)
        except BrokenProcessPool:
            self.close()
            return self._started().submit(prepare, *arguments)

    def ready(self, tickets: Sequence[Ticket], deadline_s: float) -> int:
        """The place of the first ticket that is done, or has been worked on for ``deadline_s``; waits for one."""
        while True:
            left = [0.0 if ticket.future.done() else ticket.left(deadline_s) for ticket in tickets]
            if not all(left):
                return left.index(0.0)
            wait([ticket.future for ticket in tickets], min(*left, LOOK_S), FIRST_COMPLETED)

    def result(self, ticket: Ticket, deadline_s: float) -> Prepared:
        """Waits for a leaf. Raises TimedOut after ``deadline_s``, CompileFailed when it kills its process alone.

        A deadline is kept by killing the processes; the other leaves that were under way start again when they are
        asked for: first beside what new processes do already, and where these die too, alone.
        """
        for trial in ("first", "beside others", "alone"):
            if trial != "first":
                if trial == "alone" or ticket.pool is self._pool:
                    self.close()
                ticket.future = self._submit(ticket.region, ticket.knobs, ticket.regime)
                ticket.pool, ticket.since = self._pool, None
            try:
                return ticket.future.result(timeout=ticket.left(deadline_s))
            except TimeoutError:
                self.close()
                raise TimedOut("compilation", deadline_s) from None
            except (BrokenProcessPool, CancelledError):
                continue
        self.close()
        raise CompileFailed("the process that compiled it died, also of this leaf alone")

    def close(self) -> None:
        """Kills the processes; what they compiled stays in the cache."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)

    def _blob(self, region: Region) -> bytes:
        if id(region) not in self._blobs:
            # the region is kept with its bytes, so that its id is not used again meanwhile
            self._blobs[id(region)] = (region, pickle.dumps(region))
        return self._blobs[id(region)][1]

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.processes, mp_context=get_context("spawn"), initializer=_start)
        return self._pool


def prepare(region: bytes, caps: Capabilities, knobs: str, cache: Path | None, regime: str) -> Prepared:
    """Lowers, prints and compiles one leaf in this process. ``region`` is pickled, ``knobs`` a measurement's text."""
    try:
        variant = realise(_region(region), caps, read_knobs(knobs))
        artefact = variant.artefact
    except Exception as error:
        # A leaf that does not lower is a row like any other: the search goes on, the fault stays on record.
        text = str(error).splitlines()[0] if str(error) else ""
        return Prepared(None, text if isinstance(error, EmmyError) else f"{type(error).__name__}: {text}")
    if cache is not None and caps.language == "cuda":
        from emmy.device.binaries import BinaryCache
        from emmy.device.cuda import compile_options

        binaries = BinaryCache(cache)
        for kernel in artefact.kernels:
            binaries.compile(kernel.source, caps.arch, compile_options(artefact.options, regime))
    return Prepared(artefact)


@lru_cache(maxsize=8)
def _region(blob: bytes) -> Region:
    region: Region = pickle.loads(blob)
    return region


def _start() -> None:
    # Ctrl-C reaches the whole process group; the parent decides what ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
