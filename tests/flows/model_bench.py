"""A bench that answers from a formula: every kernel has a latency, decided by its digest, and a fixed small spread."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from emmy.bench.artefact import Artefact
from emmy.bench.jobs import Reply, Row
from emmy.bench.protocol import ConfirmResult
from emmy.bench.records import Status
from emmy.device.base import Capabilities

EAGER_US = 1500.0

CAPS = Capabilities(
    name="model-cpu", kind="cpu", language="opencl", arch="avx2", driver="model 1", compiler="model 1", units=2,
    max_threads=4096, smem_bytes=1 << 20, vector_bits=256, registers=16, warp=1, llc_bytes=32 << 20,
    memory_bytes=8 << 30, atomics_f32=True,
)  # fmt: skip


@dataclass
class ModelBench:
    """planted: latencies, µs, by plan digest. broken: names of kernels that do not compile. asked: what was called."""

    planted: dict[str, float] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    opened: int = 0
    spread: float = 0.002

    def us(self, artefact: Artefact) -> float:
        found = self.planted.get(artefact.plan_digest)
        if found is not None:
            return found
        number = int.from_bytes(hashlib.sha256(artefact.plan_digest.encode()).digest()[:4], "little")
        return 1000.0 + 1000.0 * number / 2**32

    def qualify(self, artefact: Artefact, refs: Any, regime: str = "O3", lane: str = "std") -> Reply:
        return Reply(Status.OK, rough_us=self.us(artefact), rel_error=1e-7)

    def build_ahead(self, rows: Sequence[Row], refs: Any) -> list[Reply]:
        return [Reply(Status.OK) for _ in rows]

    def screen(
        self, artefact: Artefact, refs: Any, best_us: float | None = None, regime: str = "O3", lane: str = "std",
        cache: str = "cold",
    ) -> Reply:  # fmt: skip
        self.asked.append(("screen", artefact.name))
        if artefact.name in self.broken:
            return Reply(Status.COMPILE_FAILED, "broken by the test")
        us = self.us(artefact)
        return Reply(Status.OK, "", us, us, us, 3, us, 1e-7)

    def confirm(
        self, rows: Sequence[Row], refs: Any, sources: Sequence[Any] = (), processes: int = 6, rounds: int = 6,
        cache: str = "cold", seed: int = 0,
    ) -> ConfirmResult:  # fmt: skip
        self.asked.append(("confirm" if sources else "finalists", rows[0].artefact.name))
        speeds = {row.label: self.us(row.artefact) for row in rows} | {one.label: EAGER_US for one in sources}
        seconds, replies = {}, {}
        for label, us in speeds.items():
            series = tuple(
                tuple(self._noisy(us, label, seed * 100 + process, turn) for turn in range(rounds))
                for process in range(processes)
            )
            median = sorted(value for process in series for value in process)[processes * rounds // 2] * 1e6
            seconds[label] = series
            replies[label] = Reply(Status.OK, "", median, median, median, processes * rounds, us, 1e-7)
        return ConfirmResult(seconds, replies)

    def _noisy(self, us: float, label: str, process: int, turn: int) -> float:
        return us * 1e-6 * random.Random(f"{label} {process} {turn}").lognormvariate(0.0, self.spread)

    @contextmanager
    def open(self, *_: Any) -> Iterator[ModelBench]:
        self.opened += 1
        yield self
