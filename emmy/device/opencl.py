"""The embedded device: OpenCL, by default PoCL on the CPU, so that everything compiles and runs on any Linux machine.

Used inside the bench worker and the probe only. PoCL finishes compiling at the first launch, once for each work-group
size, and aborts the process where it finds no linker: ``emmy.device.probe`` looks first.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emmy.device.base import BuildReport, Capabilities
from emmy.device.pocl_cpu import name_processor
from emmy.errors import CompileFailed, LaunchFailed, MissingPrerequisite, OutOfMemory

if TYPE_CHECKING:
    from emmy.bench.artefact import Artefact, Case

GUARD_BYTES = 4096
"""A page before and after each buffer. Keeps the alignment that every OpenCL device asks of a sub-buffer."""

_PATTERN = np.full(GUARD_BYTES, 0xA5, np.uint8)
_REGIME_OPTIONS = {"O1": ("-cl-opt-disable",), "O3": ()}
_IN_FLIGHT = 4000
"""Commands queued before a wait: PoCL keeps each in memory until it has run."""


def prepare_environment(cache_dir: str | None = None, environ: dict[str, str] | None = None) -> None:
    """Sets what PoCL and PyOpenCL read when they load; call it before either is imported.

    Threads are pinned (an unpinned pool moves between cores and spreads the samples). PyOpenCL's own binary cache is
    off: PoCL has one, in ``cache_dir``, which a sweep can start empty.
    """
    env: Any = os.environ if environ is None else environ
    env["POCL_AFFINITY"] = "1"
    env["PYOPENCL_NO_CACHE"] = "1"
    env.setdefault("PYOPENCL_COMPILER_OUTPUT", "0")
    if cache_dir is not None:
        env["POCL_CACHE_DIR"] = cache_dir


@dataclass(frozen=True, slots=True)
class Buffer:
    """``body`` is what kernels see, the part of ``whole`` between the guards; an empty tensor has no ``whole``."""

    whole: Any
    body: Any
    nbytes: int


@dataclass(frozen=True, slots=True)
class OpenCLExecutable:
    """Built programs by kernel name. Kernel objects are made anew for each binding, since they hold their arguments."""

    programs: Mapping[str, Any]
    blocks: Mapping[str, tuple[int, int]]
    scalars: Mapping[str, tuple[str, ...]]
    report: BuildReport


@dataclass(frozen=True, slots=True)
class Bound:
    """Commands of one execution, in order: a kernel with its sizes, or a fill of a buffer with a pattern."""

    commands: tuple[tuple[Any, Any, Any], ...]


class OpenCLDevice:
    """The first device of the first platform, PoCL where it is installed."""

    def __init__(self) -> None:
        try:
            import pyopencl as cl
        except ImportError as error:
            raise MissingPrerequisite(
                "the OpenCL device needs PyOpenCL", hint="pip install 'pyopencl[pocl]'"
            ) from error
        self.cl = cl
        self.device = pick_device(cl)
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context)
        self.caps = describe(cl, self.device)

    def compile(self, artefact: Artefact, regime: str) -> OpenCLExecutable:
        for kernel in artefact.kernels:
            if kernel.smem_bytes > self.caps.smem_bytes:
                raise LaunchFailed(
                    f"kernel {kernel.name} needs too much local memory",
                    found=f"{kernel.smem_bytes} bytes", expected=f"at most {self.caps.smem_bytes}",
                )  # fmt: skip
            if kernel.block[0] * kernel.block[1] > self.caps.max_threads:
                raise LaunchFailed(
                    f"kernel {kernel.name} has too large a block",
                    found=f"{kernel.block[0]}x{kernel.block[1]}", expected=f"at most {self.caps.max_threads} threads",
                )  # fmt: skip
        started = time.perf_counter()
        options = [*artefact.options, *_REGIME_OPTIONS[regime]]
        # A program a kernel: each source brings the helper functions that it uses.
        programs = {kernel.name: self._build(artefact.name, kernel.source, options) for kernel in artefact.kernels}
        info = self.cl.program_build_info.LOG
        logs = [str(program.get_build_info(self.device, info) or "").strip() for program in programs.values()]
        log = "\n".join(filter(None, logs))
        report = BuildReport(
            time.perf_counter() - started,
            log,
            smem_bytes=max((k.smem_bytes for k in artefact.kernels), default=0),
            warnings=tuple(line for line in log.splitlines() if "warning:" in line)[:8],
        )
        return OpenCLExecutable(
            programs,
            {k.name: k.block for k in artefact.kernels},
            {k.name: tuple("" if kind == "buffer" else dtype for _, kind, dtype in k.args) for k in artefact.kernels},
            report,
        )

    def _build(self, name: str, source: str, options: list[str]) -> Any:
        try:
            return self.cl.Program(self.context, source).build(options)
        except self.cl.Error as error:
            log = str(error)
            raise CompileFailed(f"{name} does not compile: {_first_error(log)}", log=log) from None

    def alloc(self, nbytes: int) -> Buffer:
        if nbytes == 0:
            # A kernel of an empty tensor writes nothing, but OpenCL has no buffer of size 0.
            return Buffer(None, self.alloc(GUARD_BYTES).body, 0)
        cl = self.cl
        try:
            whole = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes + 2 * GUARD_BYTES)
            body = whole.get_sub_region(GUARD_BYTES, nbytes)
            cl.enqueue_copy(self.queue, whole, _PATTERN, dst_offset=0, is_blocking=True)
            cl.enqueue_copy(self.queue, whole, _PATTERN, dst_offset=GUARD_BYTES + nbytes, is_blocking=True)
        except (cl.MemoryError, cl.LogicError, cl.RuntimeError) as error:
            raise OutOfMemory(f"no buffer of {nbytes} bytes on {self.caps.name}: {error}") from None
        return Buffer(whole, body, nbytes)

    def free(self, buffer: Buffer) -> None:
        if buffer.whole is not None:
            buffer.body.release()
            buffer.whole.release()

    def upload(self, buffer: Buffer, data: np.ndarray) -> None:
        if data.nbytes:
            self.cl.enqueue_copy(self.queue, buffer.body, data, is_blocking=True)

    def download(self, buffer: Buffer, out: np.ndarray) -> None:
        if out.nbytes:
            self.cl.enqueue_copy(self.queue, out, buffer.body, is_blocking=True)

    def copy(self, source: Buffer, target: Buffer) -> None:
        if source.nbytes:
            self.cl.enqueue_copy(self.queue, target.body, source.body, byte_count=source.nbytes).wait()

    def guards_intact(self, buffer: Buffer) -> bool:
        if buffer.whole is None:
            return True
        page = np.empty(GUARD_BYTES, np.uint8)
        for offset in (0, GUARD_BYTES + buffer.nbytes):
            self.cl.enqueue_copy(self.queue, page, buffer.whole, src_offset=offset, is_blocking=True)
            if not np.array_equal(page, _PATTERN):
                return False
        return True

    def bind(self, executable: Any, case: Case, buffers: Mapping[str, Buffer]) -> Bound:
        specs = {spec.name: spec for spec in case.buffers}
        commands: list[Any] = []
        for step in case.steps:
            if not step.kernel:
                from emmy.bench.inputs import STORAGE, store

                name = step.bindings[0]
                dtype = specs[name].dtype
                pattern = store(np.array([step.value]), dtype).astype(STORAGE[dtype])
                if buffers[name].nbytes:
                    commands.append((buffers[name].body, pattern, buffers[name].nbytes))
                continue
            if 0 in step.grid:
                continue
            try:
                kernel = self.cl.Kernel(executable.programs[step.kernel], step.kernel)
                scalars = executable.scalars[step.kernel]
                for index, (name, dtype) in enumerate(zip(step.bindings, scalars, strict=True)):
                    if dtype:
                        kernel.set_arg(
                            index, np.int64(case.symbols[name]) if dtype == "i64" else np.int32(case.symbols[name])
                        )
                    else:
                        kernel.set_arg(index, buffers[name].body)
            except self.cl.Error as error:
                raise LaunchFailed(f"arguments of {step.kernel} cannot be set: {error}") from None
            block = executable.blocks[step.kernel]
            local = (block[0], block[1], 1)
            commands.append((kernel, tuple(g * n for g, n in zip(step.grid, local, strict=True)), local))
        return Bound(tuple(commands))

    def run(self, bound: Bound) -> None:
        self.sample((bound,), 1)

    def settle(self) -> None:
        self.queue.finish()

    def sample(self, bounds: Sequence[Bound], repeats: int, first: int = 0) -> float:
        launch, fill, queue = self.cl.enqueue_nd_range_kernel, self.cl.enqueue_fill_buffer, self.queue
        count, queued = len(bounds), 0
        try:
            started = time.perf_counter()
            for turn in range(first, first + repeats):
                for handle, what, size in bounds[turn % count].commands:
                    if isinstance(what, tuple):
                        launch(queue, handle, what, size)
                    else:
                        fill(queue, handle, what, 0, size)
                    queued += 1
                if queued >= _IN_FLIGHT:
                    queue.finish()
                    queued = 0
            queue.finish()
            return time.perf_counter() - started
        except self.cl.Error as error:
            raise LaunchFailed(f"launch failed: {error}") from None

    def clocks(self) -> tuple[int, str]:
        return 0, ""

    def close(self) -> None:
        self.queue.finish()


def pick_device(cl: Any) -> Any:
    """The PoCL device where there is one, able to compile, else the first device.

    Raises MissingPrerequisite when there is none.
    """
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        platforms = []
    devices = [
        (not platform.name.startswith("Portable"), device)
        for platform in platforms
        for device in platform.get_devices()
    ]
    if not devices:
        raise MissingPrerequisite("no OpenCL device", hint="pip install 'pyopencl[pocl]'")
    other, device = min(devices, key=lambda pair: pair[0])
    if not other:
        name_processor(device)
    return device


def describe(cl: Any, device: Any) -> Capabilities:
    """What the runtime says about a device; the measured peaks are the probe's."""
    cpu = bool(device.type & cl.device_type.CPU)
    runtime = "pocl" if device.platform.name.startswith("Portable") else device.platform.name.split()[0].lower()
    bits = vector_bits(device.version, 32 * (device.native_vector_width_float or 4)) if cpu else 128
    arch = {512: "avx512", 256: "avx2", 128: "sse"}.get(bits, f"v{bits}") if cpu else device.name.replace(" ", "-")
    return Capabilities(
        name=f"{runtime}-cpu-{arch}" if cpu else f"{runtime}-{arch}",
        kind="cpu" if cpu else "gpu",
        language="opencl",
        arch=arch,
        driver=f"{device.platform.version}".strip(),
        compiler=f"{device.version} pyopencl {cl.VERSION_TEXT}",
        units=device.max_compute_units,
        max_threads=device.max_work_group_size,
        smem_bytes=device.local_mem_size,
        vector_bits=bits,
        registers=32 if bits == 512 else 16,
        warp=1 if cpu else 32,
        llc_bytes=device.global_mem_cache_size,
        memory_bytes=device.global_mem_size,
        fp64="cl_khr_fp64" in device.extensions,
        atomics_f32=False,
        regimes=("O3",),
    )


def vector_bits(version: str, reported: int) -> int:
    """Width of the vectors that the runtime's compiler really emits, in bits.

    PoCL reports the processor's width, but its LLVM compiles for the newest processor it knows: PoCL 3.0 (LLVM 14) on a
    Zen 4 reports 512, compiles for ``znver3`` and emits no 512-bit register (2 cores of an AMD EPYC, 2026-11-30: eight
    float16 accumulators spill, 113 GFLOP/s; twelve float8 do not, 191).
    """
    _, known, target = version.lower().partition("linux-gnu-")
    if reported < 512 or not known:
        return reported
    wide = ("avx512", "cascadelake", "cooperlake", "icelake", "tigerlake", "rocketlake", "rapids", "znver4", "znver5")
    return 512 if any(name in target for name in wide) else 256


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if "error:" in line]
    # PoCL compiles from a temporary file, whose name would make every failure a different one.
    lines = [re.sub(r"\S*/(tempfile_\w+)\.cl", "kernel.cl", line) for line in lines]
    return lines[0] if lines else log.strip().splitlines()[0] if log.strip() else "no message"
