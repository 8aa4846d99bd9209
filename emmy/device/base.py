"""What a device can do, and the protocol every device backend implements.

``Capabilities`` is plain data: schedules and legality read it, no device context is needed for that. The backends
(``opencl``, ``cuda``, ``replay``) are used inside the bench worker only; the parent process never creates a context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol


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
    peak_flops: float32 multiply-adds counted as two, a second; peak_bytes: memory bandwidth, bytes a second; 0 unknown.
    cache_bytes_s: bandwidth of the fastest cache a whole problem can live in, bytes a second; 0 unknown.
    atoms: names of the warp and warpgroup atoms. transports: ring transports (``sync``, ``async``, ``tma``).
    fp64, atomics_f32: whether the device has them.
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
    cache_bytes_s: float = 0.0
    atoms: tuple[str, ...] = ()
    transports: tuple[str, ...] = ("sync",)
    fp64: bool = True
    atomics_f32: bool = False
    regimes: tuple[str, ...] = ("O3",)

    def vector_lanes(self, nbytes: int) -> int:
        """Elements of ``nbytes`` bytes in the widest vector value."""
        return max(1, self.vector_bits // (8 * nbytes))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Capabilities:
        known = {f.name for f in fields(cls)}
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known}
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
    """A compiled artefact, ready to be launched on buffers."""

    report: BuildReport


class Device(Protocol):
    """A backend as the bench worker sees it. Buffers are opaque handles; sizes in bytes.

    Failures raise the typed errors of emmy.errors: CompileFailed, LaunchFailed, OutOfMemory.
    """

    caps: Capabilities

    def compile(self, artefact: Any, regime: str) -> Executable:
        """Builds every kernel of the artefact; the first launch's lazy compilation is included."""

    def alloc(self, nbytes: int) -> Any: ...

    def free(self, buffer: Any) -> None: ...

    def upload(self, buffer: Any, array: Any, offset: int = 0) -> None: ...

    def download(self, buffer: Any, nbytes: int, offset: int = 0) -> bytes: ...

    def run(self, executable: Executable, bindings: Sequence[Mapping[str, Any]], symbols: Mapping[str, int]) -> None:
        """Enqueues one execution of the plan for each buffer set in ``bindings`` and waits."""

    def sample(
        self, executable: Executable, bindings: Sequence[Mapping[str, Any]], symbols: Mapping[str, int], repeats: int
    ) -> float:
        """Seconds for ``repeats`` executions that rotate over ``bindings``, launch overhead amortised."""

    def close(self) -> None: ...
