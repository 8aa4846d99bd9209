"""What a bench yields: typed rows. Every job ends in exactly one, whatever happens."""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import dataclass
from typing import Any


class Status(enum.StrEnum):
    """How a job ended. All but OK are failures; REPLAY devices add NOT_RECORDED."""

    OK = "ok"
    INVALID = "invalid"
    COMPILE_FAILED = "compile_failed"
    LAUNCH_FAILED = "launch_failed"
    TIMEOUT = "timeout"
    WRONG_RESULT = "wrong_result"
    IMPLAUSIBLE = "implausible"
    BENCH_FAIL = "bench_fail"
    PIN_UNMATCHED = "pin_unmatched"
    NOT_RECORDED = "not_recorded"


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """How a number was taken. Name and version are in the key of every measurement; the rest are its settings.

    cache: ``cold`` (inputs rotate over buffer sets beyond the last-level cache) or ``warm``.
    target_s: length of one sample in seconds; samples: number wanted at least; budget_s: time limit of the timing part.
    """

    name: str
    version: int
    cache: str = "cold"
    target_s: float = 0.02
    samples: int = 5
    budget_s: float = 1.0

    @property
    def label(self) -> str:
        return f"{self.name}.v{self.version}.{self.cache}"


SCREEN = ProtocolSpec("screen", 2, samples=3, target_s=0.01, budget_s=0.3)
CONFIRM = ProtocolSpec("confirm", 2, samples=6, target_s=0.01, budget_s=3.0)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One variant measured in one regime under one protocol. Latencies in microseconds.

    region: region key. device: capabilities name. kernel: readable kernel name. shape: golden or dataset name, if any.
    knobs: the complete knob map as text (``KnobMap.record`` spelling); lane: ``std`` or ``fm``.
    plan_digest: digest of sources, build options, compiler version, arguments. size: benched symbol values.
    sweep: id of the sweep it belongs to. median_us, low_us, high_us: median and spread (quartiles) of the samples.
    build_s, wall_s: seconds to build, and for the whole job. error: text of a failure, empty for OK.
    ratio_abandoned: True when timing stopped early because the row was clearly slower than the best so far.
    """

    region: str
    device: str
    driver: str
    compiler: str
    kernel: str
    knobs: str
    lane: str
    regime: str
    protocol: str
    plan_digest: str
    sweep: str
    status: Status
    size: str = ""
    shape: str = ""
    median_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    samples: int = 0
    rel_error: float | None = None
    build_s: float = 0.0
    wall_s: float = 0.0
    error: str = ""
    abandoned: bool = False
    registers: int = 0
    spills: int = 0
    smem_bytes: int = 0
    sm_clock_mhz: int = 0
    throttle: str = ""
    warnings: str = ""
    measured_at: str = ""

    @property
    def key(self) -> str:
        """Content key: everything that could change the number, nothing that could not (what a symbol is called)."""
        sizes = ",".join(part.rpartition("=")[2] for part in self.size.split(","))
        parts = (self.region, self.device, self.driver, self.compiler, self.knobs, self.regime, self.protocol,
                 self.plan_digest, sizes, self.sweep)  # fmt: skip
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]

    @property
    def ok(self) -> bool:
        return self.status == Status.OK


def digest(value: Any) -> str:
    """Digest of JSON-serialisable content, key order ignored. Raises TypeError for what does not serialise."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]
