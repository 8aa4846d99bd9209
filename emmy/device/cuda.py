"""CUDA GPUs through CuPy: modules from NVRTC's binaries, launches, CUDA graphs, events, clocks.

Used inside the bench worker only: the first call creates a context. A sample is the replay of graphs that hold many
executions of a plan, so that the launch overhead of a few microseconds is paid once a graph.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emmy.codegen.nvrtc import need_architecture, nvrtc_version
from emmy.device.base import BuildReport, Capabilities
from emmy.device.binaries import BinaryCache
from emmy.device.cuda_settle import OtherContext
from emmy.device.cuda_targets import OLDEST, cuda_target
from emmy.errors import (
    CompileFailed,
    ContextLost,
    EmmyError,
    InputError,
    LaunchFailed,
    MissingPrerequisite,
    OutOfMemory,
)

if TYPE_CHECKING:
    from emmy.bench.artefact import Artefact, Case
    from emmy.device.cuda_check import CudaChecker

GUARD_BYTES = 4096
"""Bytes before and after each buffer that a kernel must leave alone."""

GUARD_VALUE = 0xA5
GRAPH_LAUNCHES = 64
"""Executions of a plan a graph holds at least, where as many are wanted."""

_REGIME_OPTIONS = {"O1": ("--Ofast-compile=min",), "O3": ()}
_MAX_GRAPHS = 8


def cache_folder() -> Path:
    """Where binaries are kept: EMMY_BINARIES (set by the parent for its workers), else the work folder's."""
    from emmy.config import default_work_dir

    given = os.environ.get("EMMY_BINARIES")
    return Path(given) if given else default_work_dir() / "binaries" / "cuda"


def compile_options(options: Sequence[str], regime: str) -> tuple[str, ...]:
    """NVRTC's options for an artefact in a regime."""
    return (*options, *_REGIME_OPTIONS[regime])


@dataclass(frozen=True, slots=True)
class Buffer:
    """``pointer``: device address that kernels see; ``memory``: address of the allocation, its first guard."""

    memory: int
    pointer: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class CudaExecutable:
    """Loaded functions by kernel name, with their blocks, dynamic shared memory and by-value argument types."""

    functions: Mapping[str, Any]
    blocks: Mapping[str, tuple[int, int]]
    shared: Mapping[str, int]
    scalars: Mapping[str, tuple[str, ...]]
    report: BuildReport


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """One execution, in order: (function, grid, block, arguments, shared bytes), or (None, buffer, pattern)."""

    commands: tuple[tuple[Any, ...], ...]


class CudaDevice:
    """The current CUDA device."""

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise MissingPrerequisite("the CUDA device needs CuPy", hint="pip install cupy-cuda13x") from error
        self.cp = cupy
        runtime = cupy.cuda.runtime
        try:
            count = runtime.getDeviceCount()
        except runtime.CUDARuntimeError as error:
            raise no_gpu(cupy, str(error)) from None
        if count == 0:
            raise no_gpu(cupy, "")
        try:
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.caps = describe(cupy)
        except runtime.CUDARuntimeError as error:
            hint = "nvidia-smi shows whether the GPU is still there; a GPU that was lost needs a reset or a reboot"
            if "MemoryAllocation" in str(error):
                hint = "nvidia-smi shows which processes hold its memory"
            raise MissingPrerequisite(f"the CUDA GPU cannot be opened: {error}", hint=hint) from None
        need_architecture(self.caps.arch)
        self.binaries = BinaryCache(cache_folder())
        self.graphs: dict[tuple[int, ...], Any] = {}
        self.meter = Clocks(cupy)
        self.other: OtherContext | None = None

    # -- compile ---------------------------------------------------------------------------------------------------

    def compile(self, artefact: Artefact, regime: str) -> CudaExecutable:
        cp = self.cp
        options = compile_options(artefact.options, regime)
        functions: dict[str, Any] = {}
        shared: dict[str, int] = {}
        seconds, logs, registers, spills = 0.0, [], 0, 0
        for kernel in artefact.kernels:
            if kernel.smem_bytes > self.caps.smem_bytes:
                raise LaunchFailed(
                    f"kernel {kernel.name} needs too much shared memory",
                    found=f"{kernel.smem_bytes} bytes", expected=f"at most {self.caps.smem_bytes}",
                )  # fmt: skip
            binary = self.binaries.compile(kernel.source, self.caps.arch, options)
            if binary.error:
                raise CompileFailed(f"{kernel.name} does not compile: {_first_error(binary.log)}", log=binary.log)
            seconds += binary.seconds
            logs.append(binary.log)
            with self.calls(f"kernel {kernel.name} cannot be loaded"):
                module = cp.cuda.Module()
                module.load(binary.cubin)
                function = module.get_function(kernel.name)
                if kernel.smem_bytes > 48 * 1024:
                    shared[kernel.name] = kernel.smem_bytes
                    attribute = cp.cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                    cp.cuda.driver.funcSetAttribute(function.ptr, attribute, kernel.smem_bytes)
                get = cp.cuda.driver.funcGetAttribute
                registers = max(registers, get(cp.cuda.driver.CU_FUNC_ATTRIBUTE_NUM_REGS, function.ptr))
                spills = max(spills, get(cp.cuda.driver.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function.ptr))
            functions[kernel.name] = function
        log = "\n".join(text for text in logs if text.strip("\0 \n"))
        report = BuildReport(
            seconds, log, registers, spills, max((k.smem_bytes for k in artefact.kernels), default=0), warnings(log)
        )
        return CudaExecutable(
            functions,
            {k.name: k.block for k in artefact.kernels},
            shared,
            {k.name: tuple("" if kind == "buffer" else dtype for _, kind, dtype in k.args) for k in artefact.kernels},
            report,
        )

    # -- memory ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def calls(self, what: str) -> Iterator[None]:
        """Turns the driver's errors into typed ones that say ``what`` failed."""
        try:
            yield
        except (self.cp.cuda.runtime.CUDARuntimeError, self.cp.cuda.driver.CUDADriverError) as error:
            raise self.failure(what, error) from None

    def failure(self, what: str, error: Exception) -> EmmyError:
        """The typed error of a call that failed."""
        if re.search("cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY", str(error)):
            return OutOfMemory(f"{what} on {self.caps.name}: {error}")
        try:
            # What breaks a context is reported by every call from then on.
            self.cp.cuda.runtime.deviceSynchronize()
        except self.cp.cuda.runtime.CUDARuntimeError:
            return ContextLost(f"{what}: {error}")
        return LaunchFailed(f"{what}: {error}")

    def alloc(self, nbytes: int) -> Buffer:
        runtime = self.cp.cuda.runtime
        with self.calls(f"no buffer of {nbytes} bytes"):
            # Plain cudaMalloc: CuPy's pool would hand out what an earlier row wrote over.
            memory = int(runtime.malloc(nbytes + 2 * GUARD_BYTES))
            pointer = memory + GUARD_BYTES
            # On the stream of the launches: it does not wait for the default stream, where a plain memset would run.
            runtime.memsetAsync(memory, GUARD_VALUE, GUARD_BYTES, self.stream.ptr)
            runtime.memsetAsync(pointer + nbytes, GUARD_VALUE, GUARD_BYTES, self.stream.ptr)
        return Buffer(memory, pointer, nbytes)

    def free(self, buffer: Buffer) -> None:
        self.graphs.clear()
        # After a failed kernel every call fails, and it is the kernel's error that has to be reported.
        with contextlib.suppress(self.cp.cuda.runtime.CUDARuntimeError):
            self.cp.cuda.runtime.free(buffer.memory)

    def upload(self, buffer: Buffer, data: np.ndarray) -> None:
        if data.nbytes:
            flat = np.ascontiguousarray(data)
            with self.calls("upload failed"):
                self.cp.cuda.runtime.memcpy(buffer.pointer, flat.ctypes.data, flat.nbytes, 1)
                # The call may return before the last part has arrived, and launches do not wait for the default stream.
                self.cp.cuda.runtime.deviceSynchronize()

    def download(self, buffer: Buffer, out: np.ndarray) -> None:
        self._checked()
        if out.nbytes:
            with self.calls("download failed"):
                self.cp.cuda.runtime.memcpy(out.ctypes.data, buffer.pointer, out.nbytes, 2)

    def copy(self, source: Buffer, target: Buffer) -> None:
        if source.nbytes:
            with self.calls("copy failed"):
                self.cp.cuda.runtime.memcpyAsync(target.pointer, source.pointer, source.nbytes, 3, self.stream.ptr)

    def guards_intact(self, buffer: Buffer) -> bool:
        page = np.empty(GUARD_BYTES, np.uint8)
        for pointer in (buffer.pointer - GUARD_BYTES, buffer.pointer + buffer.nbytes):
            with self.calls("download failed"):
                self.cp.cuda.runtime.memcpy(page.ctypes.data, pointer, GUARD_BYTES, 2)
            if (page != GUARD_VALUE).any():
                return False
        return True

    # -- launch ----------------------------------------------------------------------------------------------------

    def bind(self, executable: Any, case: Case, buffers: Mapping[str, Buffer]) -> Bound:
        specs = {spec.name: spec for spec in case.buffers}
        commands: list[tuple[Any, ...]] = []
        for step in case.steps:
            if not step.kernel:
                name = step.bindings[0]
                if buffers[name].nbytes:
                    commands.append((None, buffers[name], pattern(step.value, specs[name].dtype)))
                continue
            if 0 in step.grid:
                continue
            arguments: list[Any] = []
            for name, dtype in zip(step.bindings, executable.scalars[step.kernel], strict=True):
                if dtype:
                    arguments.append(np.int64(case.symbols[name]) if dtype == "i64" else np.int32(case.symbols[name]))
                else:
                    arguments.append(np.uint64(buffers[name].pointer))
            block = executable.blocks[step.kernel]
            shared = executable.shared.get(step.kernel, 0)
            commands.append((executable.functions[step.kernel], step.grid, (*block, 1), tuple(arguments), shared))
        return Bound(tuple(commands))

    def enqueue(self, bound: Bound) -> None:
        """Puts one execution on the stream."""
        with self.stream:
            for function, *rest in bound.commands:
                if function is None:
                    buffer, (value, width) = rest
                    memset(self.cp, buffer, value, width, self.stream.ptr)
                else:
                    grid, block, arguments, shared = rest
                    function(grid, block, arguments, shared_mem=shared, stream=self.stream)

    def run(self, bound: Bound) -> None:
        with self.calls("launch failed"):
            self.enqueue(bound)
        self._checked()

    def _checked(self) -> None:
        with self.calls("kernel failed"):
            self.stream.synchronize()
            self.cp.cuda.runtime.deviceSynchronize()

    def settle(self) -> None:
        self._checked()
        with self.calls("no second context"):
            if self.other is None:
                self.other = OtherContext(self.cp, self.binaries, self.caps.arch)
            self.other.visit()

    def sample(self, bounds: Sequence[Bound], repeats: int, first: int = 0) -> float:
        """Seconds for ``repeats`` executions over ``bounds``, by events around graph replays.

        A graph holds whole turns over the bounds; where ``repeats`` is no multiple of it the time is scaled.
        """
        turns = max(1, -(-min(repeats, GRAPH_LAUNCHES) // len(bounds)))
        held = turns * len(bounds) if repeats >= len(bounds) else repeats
        if held == 1:
            self.settle()
            return self._plain(bounds[first % len(bounds)])
        graph = self.graph(bounds, held)
        replays = max(1, round(repeats / held))
        self.settle()
        start, stop = self.cp.cuda.Event(), self.cp.cuda.Event()
        with self.calls("kernel failed"):
            start.record(self.stream)
            for _ in range(replays):
                graph.launch(self.stream)
            stop.record(self.stream)
            stop.synchronize()
            seconds = self.cp.cuda.get_elapsed_time(start, stop) * 1e-3
        return float(seconds * repeats / (held * replays))

    def _plain(self, bound: Bound) -> float:
        start, stop = self.cp.cuda.Event(), self.cp.cuda.Event()
        with self.calls("kernel failed"):
            start.record(self.stream)
            self.enqueue(bound)
            stop.record(self.stream)
            stop.synchronize()
        return float(self.cp.cuda.get_elapsed_time(start, stop) * 1e-3)

    def graph(self, bounds: Sequence[Bound], held: int) -> Any:
        """The instantiated graph of ``held`` executions that rotate over ``bounds``; the latest few are kept."""
        key = (held, *(id(bound) for bound in bounds))
        if key not in self.graphs:
            while len(self.graphs) >= _MAX_GRAPHS:
                self.graphs.pop(next(iter(self.graphs)))
            with self.calls("graph capture failed"):
                self.stream.begin_capture()
                for turn in range(held):
                    self.enqueue(bounds[turn % len(bounds)])
                graph = self.stream.end_capture()
                graph.upload(self.stream)
            # the bounds are kept with their graph, so that an id is never reused while the graph lives
            self.graphs[key] = (graph, tuple(bounds))
        return self.graphs[key][0]

    def clocks(self) -> tuple[int, str]:
        return self.meter.read()

    def checker(self) -> CudaChecker:
        """Compares results on the device itself."""
        from emmy.device.cuda_check import CudaChecker

        return CudaChecker(self)

    def close(self) -> None:
        self.graphs.clear()
        self.stream.synchronize()
        if self.other is not None:
            self.other.close()


class Clocks:
    """SM clock and throttle reasons of the current GPU through NVML; zeros and empty text where it cannot be read."""

    def __init__(self, cp: Any) -> None:
        self.nvml: Any = open_nvml()
        self.handle: Any = None
        if self.nvml is None:
            return
        try:
            # NVML counts every GPU of the machine, CUDA those of CUDA_VISIBLE_DEVICES: the bus tells them apart
            bus = cp.cuda.runtime.deviceGetPCIBusId(cp.cuda.runtime.getDevice())
            self.handle = self.nvml.nvmlDeviceGetHandleByPciBusId(bus)
        except Exception:
            # without permission for this GPU rows simply carry no clock
            self.nvml = None

    def read(self) -> tuple[int, str]:
        """(SM clock in MHz, throttle reasons)."""
        if self.nvml is None:
            return 0, ""
        try:
            clock = int(self.nvml.nvmlDeviceGetClockInfo(self.handle, self.nvml.NVML_CLOCK_SM))
            mask = int(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle))
        except self.nvml.NVMLError:
            return 0, ""
        return clock, ",".join(name for bit, name in _THROTTLES.items() if mask & bit)


_THROTTLES = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal", 0x40: "hardware thermal", 0x80: "power brake",
}  # fmt: skip


def open_nvml() -> Any:
    """NVML's module, initialised; None where it cannot be used."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        # NVML is an extra: neither its package nor its library has to be there
        return None
    return pynvml


DRIVER_FILE = Path("/proc/driver/nvidia/version")


def driver_release(cp: Any) -> str:
    """The driver's release (``580.82.07``); ``CUDA 13.0`` where neither NVML nor the kernel's module tells it.

    Many releases are for one CUDA version, and evidence of one is not that of another.
    """
    nvml = open_nvml()
    if nvml is not None:
        with contextlib.suppress(nvml.NVMLError):
            told = nvml.nvmlSystemGetDriverVersion()
            return told.decode() if isinstance(told, bytes) else str(told)
    with contextlib.suppress(OSError):
        found = re.search(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s", DRIVER_FILE.read_text())
        if found is not None:
            return found[1]
    return f"CUDA {version(cp.cuda.runtime.driverGetVersion())}"


def describe(cp: Any) -> Capabilities:
    """Capabilities of the current GPU: its own numbers, on top of its architecture's compile target.

    Raises MissingPrerequisite for a GPU that is older than every target.
    """
    device = cp.cuda.runtime.getDevice()
    facts = cp.cuda.runtime.getDeviceProperties(device)
    major, minor = int(facts["major"]), int(facts["minor"])
    arch = f"sm_{major}{minor}"
    name = facts["name"].decode() if isinstance(facts["name"], bytes) else str(facts["name"])
    if (major, minor) < OLDEST:
        raise MissingPrerequisite(
            f"the CUDA GPU {name} is too old", found=f"compute capability {major}.{minor}",
            expected="{}.{} or newer".format(*OLDEST), hint="use --device opencl",
        )  # fmt: skip
    try:
        base = cuda_target("sm_90a" if arch == "sm_90" else arch)
    except InputError:
        base = replace(
            cuda_target("sm_80"), arch=arch, peak_flops=0.0, tensor_flops=0.0, peak_bytes=0.0, cache_bytes_s=0.0
        )
    return replace(
        base,
        name=name,
        driver=driver_release(cp),
        compiler="nvrtc {}.{}".format(*nvrtc_version()),
        units=int(facts["multiProcessorCount"]),
        smem_bytes=int(facts["sharedMemPerBlockOptin"]),
        llc_bytes=int(facts["l2CacheSize"]),
        memory_bytes=int(facts["totalGlobalMem"]),
    )


def pattern(value: float, dtype: str) -> tuple[int, int]:
    """(bits, bytes an element) that fill a buffer of ``dtype`` with ``value``."""
    from emmy.bench.inputs import STORAGE, store

    raw = store(np.array([value]), dtype).astype(STORAGE[dtype]).tobytes()
    return int.from_bytes(raw, "little"), len(raw)


def memset(cp: Any, buffer: Buffer, bits: int, width: int, stream: int) -> None:
    """Fills ``buffer`` with an element of ``width`` bytes, as one asynchronous memset."""
    repeated = bits.to_bytes(width, "little")
    if len(set(repeated)) > 1:
        raise LaunchFailed("only a value of equal bytes can be filled in", found=hex(bits))
    cp.cuda.runtime.memsetAsync(buffer.pointer, repeated[0], buffer.nbytes, stream)


_PTXAS = re.compile(r"^ptxas\b[^\n]*?(?:(\(C\d{4}\)[^\n]*)|\bwarning\s*:\s*([^\n]*))", re.MULTILINE)


def warnings(log: str) -> tuple[str, ...]:
    """What ptxas warned of (``(C7508) Potential Performance Loss: …``), each once. It gives a code to losses of
    performance that it calls information. What the front end says of the source is no part of it."""
    found = (coded or plain for coded, plain in _PTXAS.findall(log))
    return tuple(dict.fromkeys(text.strip("\0 ") for text in found))[:8]


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if "error" in line]
    return lines[0] if lines else log.strip()[:200] or "no message"


def no_gpu(cp: Any, error: str) -> MissingPrerequisite:
    """Why the runtime has no GPU to use, and what to do. error: its own words; empty where it counts none."""
    if "InsufficientDriver" in error:
        # Without any driver the runtime says the same as with an old one; its version tells them apart.
        driver, runtime = cp.cuda.runtime.driverGetVersion(), cp.cuda.runtime.runtimeGetVersion()
        oldest = version(runtime - runtime % 1000)  # any driver of the runtime's major version serves
        if not driver:
            return MissingPrerequisite(
                f"no usable CUDA GPU: {error}", found="no NVIDIA driver on this machine",
                expected=f"one for CUDA {oldest} or newer", hint="install it, or use --device opencl",
            )  # fmt: skip
        return MissingPrerequisite(
            f"no usable CUDA GPU: {error}", found=f"a driver for CUDA {version(driver)}",
            expected=f"one for CUDA {oldest} or newer, which the runtime {version(runtime)} needs",
            hint="update the driver, or install an older cupy-cuda package",
        )  # fmt: skip
    text = f"no usable CUDA GPU: {error}" if error else "no CUDA GPU"
    return MissingPrerequisite(text, hint="nvidia-smi -L lists the GPUs the driver sees")


def version(number: int) -> str:
    """``13.0`` of the 13000 that CUDA counts it as."""
    return f"{number // 1000}.{number % 1000 // 10}"
