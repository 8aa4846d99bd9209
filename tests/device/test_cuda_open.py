"""What the CUDA device says where it cannot be opened or runs out of memory, on a machine without one."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emmy.device import cuda
from emmy.device.cuda_targets import cuda_target
from emmy.errors import ContextLost, LaunchFailed, MissingPrerequisite, OutOfMemory


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


class CUDADriverError(RuntimeError):
    """As CuPy's."""


def fails(text: str) -> Any:
    def call(*args: object, **kwargs: object) -> None:
        raise CUDARuntimeError(text)

    return call


def fake_cupy(monkeypatch: pytest.MonkeyPatch, nvrtc: Any = None, stream: Any = None, **runtime: Any) -> Any:
    """A module that answers as CuPy does on some machine."""
    calls: dict[str, Any] = {
        "getDeviceCount": lambda: 1, "driverGetVersion": lambda: 13000, "runtimeGetVersion": lambda: 13000,
        "deviceSynchronize": lambda: None, **runtime,
    }  # fmt: skip
    module: Any = ModuleType("cupy")
    module.cuda = ModuleType("cupy.cuda")
    module.cuda.runtime = SimpleNamespace(CUDARuntimeError=CUDARuntimeError, **calls)
    module.cuda.driver = SimpleNamespace(CUDADriverError=CUDADriverError)
    module.cuda.Stream = stream or (lambda **_: SimpleNamespace(ptr=0))
    module.cuda.nvrtc = nvrtc or SimpleNamespace(getVersion=lambda: (13, 0), getSupportedArchs=lambda: (80, 90))
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupy.cuda", module.cuda)
    return module


PROPERTIES = {
    "major": 9, "minor": 0, "name": b"NVIDIA H200", "multiProcessorCount": 132, "sharedMemPerBlockOptin": 232448,
    "l2CacheSize": 60 << 20, "totalGlobalMem": 141 << 30,
}  # fmt: skip
HOST = {"getDevice": lambda: 0, "getDeviceProperties": lambda _: PROPERTIES}


def refused(monkeypatch: pytest.MonkeyPatch, **machine: Any) -> str:
    fake_cupy(monkeypatch, **machine)
    with pytest.raises(MissingPrerequisite) as caught:
        cuda.CudaDevice()
    return str(caught.value)


def test_a_good_machine_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cupy(monkeypatch, **HOST)
    caps = cuda.CudaDevice().caps
    assert (caps.name, caps.arch, caps.units, caps.compiler) == ("NVIDIA H200", "sm_90a", 132, "nvrtc 13.0")


def test_no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingPrerequisite, match=r"needs CuPy.*pip install cupy-cuda13x"):
        cuda.CudaDevice()


def test_no_driver_and_an_old_driver_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
    message = refused(monkeypatch, getDeviceCount=fails(text), driverGetVersion=lambda: 0)
    assert "found no NVIDIA driver on this machine, expected one for CUDA 13.0 or newer" in message
    message = refused(monkeypatch, getDeviceCount=fails(text), driverGetVersion=lambda: 12040)
    assert "found a driver for CUDA 12.4, expected one for CUDA 13.0 or newer" in message
    assert "update the driver" in message


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nvidia-smi -L" in refused(monkeypatch, getDeviceCount=lambda: 0)
    message = refused(monkeypatch, getDeviceCount=fails("cudaErrorNoDevice: no CUDA-capable device is detected"))
    assert "no CUDA-capable device" in message


def test_a_gpu_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused(monkeypatch, stream=fails("cudaErrorDevicesUnavailable: busy or unavailable"), **HOST)
    assert "cannot be opened: cudaErrorDevicesUnavailable" in message
    assert "nvidia-smi" in message


def test_a_gpu_whose_memory_others_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused(monkeypatch, stream=fails("cudaErrorMemoryAllocation: out of memory"), **HOST)
    assert "nvidia-smi shows which processes hold its memory" in message


def test_no_nvrtc_library(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc = SimpleNamespace(getVersion=fails("libnvrtc.so.13: cannot open shared object file"))
    message = refused(monkeypatch, nvrtc=nvrtc, **HOST)
    assert "libnvrtc.so.13" in message
    assert "pip install cupy-cuda13x nvidia-cuda-nvrtc" in message


def test_an_architecture_that_nvrtc_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = {**HOST, "getDeviceProperties": lambda _: {**PROPERTIES, "major": 13, "minor": 5}}
    message = refused(monkeypatch, **newer)
    assert "NVRTC 13.0 does not compile for sm_135" in message
    assert "sm_80, sm_90" in message


def device(module: Any) -> cuda.CudaDevice:
    opened = object.__new__(cuda.CudaDevice)
    opened.cp, opened.caps, opened.graphs = module, cuda_target("sm_90a"), {}
    opened.stream = SimpleNamespace(ptr=0)
    return opened


def test_memory_that_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_cupy(monkeypatch, malloc=fails("cudaErrorMemoryAllocation: out of memory"))
    with pytest.raises(OutOfMemory, match="no buffer of 4096 bytes on target-sm_90a: cudaErrorMemoryAllocation"):
        device(module).alloc(4096)


def test_a_failure_is_told_from_a_lost_context(monkeypatch: pytest.MonkeyPatch) -> None:
    error = fails("cudaErrorInvalidValue: invalid argument")
    with pytest.raises(LaunchFailed, match=r"upload failed: cudaErrorInvalidValue") as caught:
        device(fake_cupy(monkeypatch, memcpy=error)).upload(cuda.Buffer(0, 4096, 8), np.zeros(1))
    assert not isinstance(caught.value, ContextLost)
    dead = fails("cudaErrorIllegalAddress: an illegal memory access was encountered")
    opened = device(fake_cupy(monkeypatch, malloc=dead, memcpyAsync=dead, deviceSynchronize=dead))
    with pytest.raises(ContextLost, match=r"no buffer of 64 bytes: cudaErrorIllegalAddress"):
        opened.alloc(64)
    with pytest.raises(ContextLost, match=r"copy failed"):
        opened.copy(cuda.Buffer(0, 4096, 8), cuda.Buffer(0, 4096, 8))


def test_giving_memory_back_does_not_hide_the_failure_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_cupy(monkeypatch, free=fails("cudaErrorIllegalAddress"))
    device(module).free(cuda.Buffer(4096, 8192, 64))


def test_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held: set[int] = set()

    def malloc(nbytes: int) -> int:
        held.add(1 << 20)
        return 1 << 20

    module = fake_cupy(monkeypatch, malloc=malloc, free=held.remove, memsetAsync=lambda *_: None)
    opened = device(module)
    buffer = opened.alloc(100)
    assert (buffer.pointer, buffer.nbytes) == ((1 << 20) + cuda.GUARD_BYTES, 100)
    opened.free(buffer)
    assert not held
