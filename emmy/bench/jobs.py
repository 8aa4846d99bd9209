"""What is sent to a bench worker and what comes back, as JSON.

A ``ReferenceSet`` says what data goes in and, by the paths of ``.npy`` files, what has to come out; a ``Row`` is one
artefact of a comparison; a ``TorchSource`` is a reference program in PyTorch; a ``Reply`` is the typed end of a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from emmy.bench.artefact import Artefact
from emmy.bench.inputs import InputSpec
from emmy.bench.records import Status


@dataclass(frozen=True, slots=True)
class ReferenceCase:
    """Data at one set of sizes. ``outputs`` and ``scales``: file by output name; a scale may be missing (integers)."""

    symbols: Mapping[str, int]
    inputs: tuple[InputSpec, ...]
    outputs: Mapping[str, str] = field(default_factory=dict)
    scales: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReferenceSet:
    """Inputs and expected outputs of a region at the benched size (first) and the other checked sizes.

    key: content key of the data; a worker keeps device buffers by it. lane: whose tolerances apply.
    """

    key: str
    seed: int
    cases: tuple[ReferenceCase, ...]

    def case(self, symbols: Mapping[str, int]) -> ReferenceCase | None:
        return next((case for case in self.cases if dict(case.symbols) == dict(symbols)), None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReferenceSet:
        cases = tuple(
            ReferenceCase(c["symbols"], tuple(InputSpec.from_json(i) for i in c["inputs"]), c["outputs"], c["scales"])
            for c in data["cases"]
        )
        return cls(data["key"], data["seed"], cases)


@dataclass(frozen=True, slots=True)
class TorchSource:
    """A PyTorch program to time beside the rows: ``source`` defines ``f(x0, x1, …)`` with torch, F, nn, math in scope.

    inputs: names of the ReferenceSet's inputs in the order ``f`` takes them (empty: all, in their order). compile: run
    it through torch.compile first.
    """

    source: str
    inputs: tuple[str, ...] = ()
    compile: bool = False
    label: str = "eager"


@dataclass(frozen=True, slots=True)
class Row:
    """One artefact of a comparison. lane: ``std`` or ``fm``, whose tolerances apply. regime: how it is built."""

    label: str
    artefact: Artefact
    lane: str = "std"
    regime: str = "O3"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        return cls(data["label"], Artefact.from_json(data["artefact"]), data["lane"], data["regime"])


@dataclass(frozen=True, slots=True)
class Reply:
    """The typed end of one job for one row. Latencies in microseconds, spread as quartiles.

    build_s: compilation, the first launch's part included. wall_s: the whole job, queueing excluded. abandoned: timing
    stopped early because the row was clearly slower than the best so far; its latency is an estimate from few samples.
    """

    status: Status
    error: str = ""
    median_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    samples: int = 0
    rough_us: float | None = None
    rel_error: float | None = None
    build_s: float = 0.0
    wall_s: float = 0.0
    abandoned: bool = False
    registers: int = 0
    spills: int = 0
    smem_bytes: int = 0
    sm_clock_mhz: int = 0
    throttle: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == Status.OK

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reply:
        return cls(**dict(data) | {"status": Status(data["status"]), "warnings": tuple(data["warnings"])})
