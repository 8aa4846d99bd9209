"""What a device can do, and the protocol every device backend implements.

``Capabilities`` is plain data: schedules and legality read it, no device context is needed for that. The backends
(``opencl``, ``cuda``, ``replay``) are used inside the bench worker only; the parent process never creates a context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from emmy.bench.artefact import Artefact, Case


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts about one device (or one compile target) that decide what is offered on it.

    name: what its golden file is named after (``pocl-cpu-avx512``, ``NVIDIA H200``).
    kind: ``cpu`` or ``gpu``. language: ``opencl`` or ``cuda``. arch: ``sm_90a``, ``avx512``, …
    driver, compiler: version texts that belong to a measurement's key.
    units: SMs, or cores. max_threads: threads a block. smem_bytes: shared memory a block may use.
    vector_bits: width of the widest vector value worth printing (a CPU's SIMD width; 128 on a GPU).
    registers: 32-bit registers a thread (GPU), or vector registers (CPU).
    warp: lanes that run in step (1 on a CPU). llc_bytes: last-level cache.
    peak_flops: float32 multiply-adds counted as two, a second; tensor_flops: the same of dense 16-bit matrix atoms;
    peak_bytes: memory bandwidth, bytes a second; 0 unknown.
    cache_bytes_s: bandwidth of the fastest cache a whole problem can live in, bytes a second; 0 unknown.
    atoms: names of the warp and warpgroup atoms. transports: ring transports (``sync``, ``async``, ``tma``).
    fp64, atomics_f32: whether the device has them. cluster: most blocks that form a cluster; 1: none.
    """

    name: str
    kind: str
    language: str
    arch: str
    driver: str
    compiler: str
    units: int
    max_threads: int
    smem_bytes: int
    vector_bits: int
    registers: int
    warp: int
    llc_bytes: int
    memory_bytes: int
    peak_flops: float = 0.0
    peak_bytes: float = 0.0
    tensor_flops: float = 0.0
    cache_bytes_s: float = 0.0
    atoms: tuple[str, ...] = ()
    transports: tuple[str, ...] = ("sync",)
    fp64: bool = True
    atomics_f32: bool = False
    regimes: tuple[str, ...] = ("O3",)
    cluster: int = 1

    def vector_lanes(self, nbytes: int) -> int:
        """Elements of ``nbytes`` bytes in the widest vector value."""
        return max(1, self.vector_bits // (8 * nbytes))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Capabilities:
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What the compiler said: seconds, and per kernel resource numbers where the backend can read them."""

    seconds: float
    log: str = ""
    registers: int = 0
    spills: int = 0
    smem_bytes: int = 0
    warnings: tuple[str, ...] = ()


class Executable(Protocol):
    """A compiled artefact. ``report.seconds`` is the build alone: a device may finish compiling at the first launch."""

    @property
    def report(self) -> BuildReport: ...


class Device(Protocol):
    """A backend as the bench worker sees it. Buffers and bound executions are opaque handles; sizes in bytes.

    Failures raise the typed errors of emmy.errors: CompileFailed, LaunchFailed, OutOfMemory.
    """

    caps: Capabilities

    def compile(self, artefact: Artefact, regime: str) -> Executable:
        """Builds every kernel of the artefact in a regime (``O1`` or ``O3``)."""

    def alloc(self, nbytes: int) -> Any:
        """A buffer between two guard pages of a known pattern (see ``guards_intact``)."""

    def free(self, buffer: Any) -> None: ...

    def upload(self, buffer: Any, data: np.ndarray) -> None:
        """Copies a contiguous array to the start of the buffer."""

    def download(self, buffer: Any, out: np.ndarray) -> None:
        """Fills a contiguous array from the start of the buffer."""

    def copy(self, source: Any, target: Any) -> None:
        """Copies the whole of one buffer to another of the same size, on the device."""

    def guards_intact(self, buffer: Any) -> bool:
        """Whether the pages before and after the buffer are as they were when it was allocated."""

    def bind(self, executable: Any, case: Case, buffers: Mapping[str, Any]) -> Any:
        """One execution of the plan at the case's sizes on these buffers (by name), ready to be launched often."""

    def run(self, bound: Any) -> None:
        """Executes once and waits."""

    def settle(self) -> None:
        """Waits, and brings the device to the state that every sample starts from; ``sample`` does so itself."""

    def sample(self, bounds: Sequence[Any], repeats: int, first: int = 0) -> float:
        """Seconds for ``repeats`` executions that rotate over ``bounds`` from ``first`` on, submitted as one queue."""

    def clocks(self) -> tuple[int, str]:
        """(clock of the multiprocessors in MHz, reasons for throttling); (0, "") where neither can be read."""

    def close(self) -> None: ...
