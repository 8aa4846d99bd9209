"""A CuPy for machines without a GPU: memory is the host's, a handful of kernels by name, faults on request.

``STUB_CUPY`` holds JSON: ``driver``, ``runtime`` (CUDA versions as numbers), ``count`` (GPUs; a text is raised),
``arch`` (compute capability), ``nvrtc`` (a text is raised: the library is missing), ``archs`` (that NVRTC knows),
``log`` (what NVRTC says of every kernel), ``memory`` (bytes there are), ``folder`` (for the files ``lost``: no process
can use the GPU, and ``sick``: those that run now cannot), ``lost_after`` (launches of a process after which the GPU is
lost), ``works`` (executions, by any process, after which ``add_later`` fails).

A kernel ``add_KIND`` adds, or fails as KIND says; any other leaves its outputs as they are. With ``trust`` every result
is found to be right.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

CONFIG: dict[str, Any] = {
    "driver": 13000, "runtime": 13000, "count": 1, "nvrtc": "", "archs": [80, 89, 90, 120], "memory": 1 << 30,
    "folder": "", "lost_after": 0, "works": 3, "trust": False,
} | json.loads(os.environ.get("STUB_CUPY", "{}"))  # fmt: skip
LAUNCH_S = 1e-3


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class NVRTCError(RuntimeError):
    pass


class State:
    """Of this process's context: the error that every call reports once it is set, memory, launches."""

    def __init__(self) -> None:
        self.error = ""
        self.held: dict[int, Any] = {}
        self.launches = 0
        self.context = OWN
        self.started = time.time()

    def check(self) -> None:
        """Raises what a call reports by now."""
        folder = Path(CONFIG["folder"]) if CONFIG["folder"] else None
        if folder is not None and (folder / "lost").exists():
            self.error = "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable"
        if folder is not None and (folder / "sick").exists() and (folder / "sick").stat().st_mtime > self.started:
            self.error = "cudaErrorECCUncorrectable: uncorrectable ECC error encountered"
        if self.error:
            raise CUDARuntimeError(self.error)


OWN, OTHER = 1, 2
"""Contexts: the one of rows, and the one that runs a kernel between samples."""

STATE = State()


def in_own_context() -> None:
    """Raises where memory or streams of one context are used while the other is current."""
    if STATE.context != OWN:
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
    STATE.check()


def ctxCreate(device: int) -> int:
    STATE.context = OTHER
    return OTHER


def launchKernel(function: str, *_: int) -> None:
    if STATE.context != OTHER or function != "visit":
        raise CUDADriverError("CUDA_ERROR_INVALID_HANDLE: invalid resource handle")
    STATE.check()


# --------------------------------------------------------------------------------------------------------- runtime


def getDeviceCount() -> int:
    if isinstance(CONFIG["count"], str):
        raise CUDARuntimeError(CONFIG["count"])
    return int(CONFIG["count"])


def getDeviceProperties(device: int) -> dict[str, Any]:
    STATE.check()
    arch = CONFIG.get("arch", [9, 0])
    return {"major": arch[0], "minor": arch[1], "name": b"NVIDIA Stub", "multiProcessorCount": 132,
            "l2CacheSize": 1 << 20, "sharedMemPerBlockOptin": 232448, "totalGlobalMem": 141 << 30}  # fmt: skip


def malloc(nbytes: int) -> int:
    STATE.check()
    if nbytes + sum(len(block) for block in STATE.held.values()) > CONFIG["memory"]:
        raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
    block = (ctypes.c_ubyte * nbytes)()
    STATE.held[ctypes.addressof(block)] = block
    return ctypes.addressof(block)


def free(pointer: int) -> None:
    STATE.check()
    del STATE.held[pointer]


def memcpy(target: int, source: int, nbytes: int, kind: int) -> None:
    STATE.check()
    ctypes.memmove(target, source, nbytes)


def memset(pointer: int, value: int, nbytes: int, stream: int) -> None:
    STATE.check()
    ctypes.memset(pointer, value, nbytes)


# --------------------------------------------------------------------------------------------------------- kernels


def array(pointer: int, dtype: str, count: int) -> np.ndarray:
    kind = np.dtype(dtype)
    return np.frombuffer((ctypes.c_ubyte * (count * kind.itemsize)).from_address(int(pointer)), kind)


def add(kind: str, x: int, y: int, z: int, n: int) -> None:
    if kind == "later":
        counter = Path(CONFIG["folder"]) / "executions"
        counter.write_text(f"{counter.read_text() if counter.exists() else ''}.")
        if len(counter.read_text()) > CONFIG["works"]:
            STATE.error = "cudaErrorIllegalAddress: an illegal memory access was encountered"
    match kind:
        case "endless":
            time.sleep(3600)
        case "illegal":
            STATE.error = "cudaErrorIllegalAddress: an illegal memory access was encountered"
        case "takes_the_gpu":
            (Path(CONFIG["folder"]) / "lost").touch()
        case "wrong":
            array(z, "f4", int(n))[:] = array(x, "f4", int(n))
        case _:
            array(z, "f4", int(n))[:] = array(x, "f4", int(n)) + array(y, "f4", int(n))


def compare(out: int, ref: int, scale: int, n: int, element: float, largest: float, sums: int, wrong: int) -> None:
    """``check_f32`` of emmy.device.cuda_check; trusting, it finds every type right."""
    total = array(sums, "f8", 2)
    total[:] = 0.0, 1.0
    if CONFIG["trust"]:
        return
    got, want = array(out, "f4", int(n)).astype(np.float64), array(ref, "f8", int(n))
    total[:] = np.nansum((got - want) ** 2), np.sum(want**2)
    array(wrong, "u8", 1)[0] = np.count_nonzero(~np.isfinite(got))


def checksum(pointer: int, n: int, total: int) -> None:
    array(total, "u8", 1)[0] = hash(array(pointer, "u1", int(n)).tobytes()) & 0xFFFFFFFFFFFF


class Function:
    ptr = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int = 0, stream: Any = None) -> None:
        if stream.captured is not None:
            stream.captured.append((self, grid, block, arguments))
            return
        STATE.check()
        if self.name.startswith("check_"):
            compare(*arguments)
        elif self.name == "checksum":
            checksum(*arguments)
        else:
            STATE.launches += 1
            if CONFIG["lost_after"] and STATE.launches > CONFIG["lost_after"]:
                (Path(CONFIG["folder"]) / "lost").touch()
            elif self.name.startswith("add_"):
                add(self.name.removeprefix("add_"), *arguments)


class Module:
    def load(self, cubin: bytes) -> None:
        STATE.check()

    def get_function(self, name: str) -> Function:
        return Function(name)


class Graph:
    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def upload(self, stream: Any) -> None:
        STATE.check()

    def launch(self, stream: Any) -> None:
        for function, grid, block, arguments in self.calls:
            function(grid, block, arguments, stream=stream)
            stream.clock += LAUNCH_S


class Stream:
    def __init__(self, non_blocking: bool = False) -> None:
        STATE.check()
        self.ptr, self.clock, self.captured = 0, 0.0, None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def synchronize(self) -> None:
        in_own_context()

    def begin_capture(self) -> None:
        self.captured: Any = []

    def end_capture(self) -> Graph:
        calls, self.captured = self.captured, None
        return Graph(calls)


class Event:
    def record(self, stream: Stream) -> None:
        in_own_context()
        self.at = stream.clock

    def synchronize(self) -> None:
        STATE.check()


def get_elapsed_time(start: Event, stop: Event) -> float:
    return max(LAUNCH_S, stop.at - start.at) * 1e3


# ----------------------------------------------------------------------------------------------------------- NVRTC


def getVersion() -> tuple[int, int]:
    if CONFIG["nvrtc"]:
        raise RuntimeError(CONFIG["nvrtc"])
    return (13, 0)


class Program:
    def __init__(self, source: str, *_: object) -> None:
        self.log = ""


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module
    return module


runtime = SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError, getDeviceCount=getDeviceCount, getDeviceProperties=getDeviceProperties,
    driverGetVersion=lambda: CONFIG["driver"], runtimeGetVersion=lambda: CONFIG["runtime"], getDevice=lambda: 0,
    deviceGetPCIBusId=lambda device: f"0000:{device + 1:02X}:00.0",
    malloc=malloc, free=free, memcpy=memcpy, memsetAsync=memset, deviceSynchronize=STATE.check,
    memcpyAsync=lambda target, source, nbytes, kind, stream: memcpy(target, source, nbytes, kind),
)  # fmt: skip
driver = SimpleNamespace(
    CUDADriverError=CUDADriverError, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8, CU_FUNC_ATTRIBUTE_NUM_REGS=4,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES=3, funcSetAttribute=lambda *_: None,
    funcGetAttribute=lambda attribute, function: {4: 42, 3: 16}[attribute],
    ctxCreate=ctxCreate, ctxDestroy=lambda context: None, ctxGetCurrent=lambda: STATE.context,
    ctxSetCurrent=lambda context: setattr(STATE, "context", context), moduleLoadData=lambda cubin: "module",
    moduleGetFunction=lambda module, name: name, launchKernel=launchKernel,
)  # fmt: skip
nvrtc = _module(
    "cupy.cuda.nvrtc", NVRTCError=NVRTCError, getVersion=getVersion, createProgram=Program,
    getSupportedArchs=lambda: tuple(CONFIG["archs"]), compileProgram=lambda *_: None,
    getProgramLog=lambda program: CONFIG.get("log", ""), getCUBIN=lambda program: b"\x7fELF", getPTX=lambda program: "",
    destroyProgram=lambda program: None,
)  # fmt: skip
cuda = _module(
    "cupy.cuda", runtime=runtime, driver=driver, nvrtc=nvrtc, Stream=Stream, Event=Event, Module=Module,
    get_elapsed_time=get_elapsed_time,
)  # fmt: skip
