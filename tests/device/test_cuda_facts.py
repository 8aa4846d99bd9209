"""What the CUDA device says of itself: the driver's release, which GPU's clock it reads, and which GPUs it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emmy.bench.roofline import plausible
from emmy.device import cuda
from emmy.device.cuda_targets import TARGETS, cuda_target
from emmy.errors import MissingPrerequisite
from tests.device.machine import pretend
from tests.device.test_cuda_open import HOST, PROPERTIES, fake_cupy

BUSES = ("00000000:18:00.0", "00000000:2A:00.0", "00000000:3B:00.0")
PROPRIETARY = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 05:24:26 UTC 2025
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
OPEN = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (dvs-builder@U22)  Wed Aug 27 2025
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
"""


class NVMLError(Exception):
    """As pynvml's."""


def fails(*_: object) -> Any:
    raise NVMLError("Insufficient Permissions")


def fake_nvml(monkeypatch: pytest.MonkeyPatch, **calls: Any) -> None:
    """An NVML that sees three GPUs; the clock of number ``n`` is ``1000 + n`` MHz, and number 2 is at its power cap."""
    module = SimpleNamespace(
        NVMLError=NVMLError, NVML_CLOCK_SM=1, nvmlInit=lambda: None, nvmlSystemGetDriverVersion=lambda: "580.82.07",
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByPciBusId=lambda bus: next(n for n, one in enumerate(BUSES) if one.endswith(bus)),
        nvmlDeviceGetClockInfo=lambda handle, kind: 1000 + handle,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 4 if handle == 2 else 0,
    )  # fmt: skip
    vars(module).update(calls)
    monkeypatch.setitem(sys.modules, "pynvml", module)


def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


def bus_of(number: int) -> dict[str, Any]:
    """A runtime whose only visible GPU is the machine's number ``number``."""
    return {**HOST, "deviceGetPCIBusId": lambda device: BUSES[number + device].removeprefix("0000")}


# ------------------------------------------------------------------------------------------------------ the driver


@pytest.mark.parametrize("told", ["580.82.07", b"580.82.07"])
def test_the_driver_is_its_release(monkeypatch: pytest.MonkeyPatch, told: str | bytes) -> None:
    fake_nvml(monkeypatch, nvmlSystemGetDriverVersion=lambda: told)
    assert cuda.describe(fake_cupy(monkeypatch, **HOST)).driver == "580.82.07"


@pytest.mark.parametrize("nvml", ["missing", "refuses", "without its library"])
@pytest.mark.parametrize(
    ("text", "release"), [(PROPRIETARY, "570.86.15"), (OPEN, "580.82.07"), ("", "CUDA 13.0"), (None, "CUDA 13.0")]
)
def test_without_nvml_it_is_the_kernel_modules_or_else_the_cuda_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nvml: str, text: str | None, release: str
) -> None:
    if nvml == "missing":
        no_nvml(monkeypatch)
    else:
        fake_nvml(monkeypatch, **{"nvmlSystemGetDriverVersion" if nvml == "refuses" else "nvmlInit": fails})
    monkeypatch.setattr(cuda, "DRIVER_FILE", tmp_path / "version")
    if text is not None:
        cuda.DRIVER_FILE.write_text(text)
    assert cuda.describe(fake_cupy(monkeypatch, **HOST)).driver == release


# ------------------------------------------------------------------------------------------------------- the clocks


@pytest.mark.parametrize(("number", "expected"), [(0, (1000, "")), (1, (1001, "")), (2, (1002, "power cap"))])
def test_the_clock_is_that_of_the_gpu_in_use(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: tuple[int, str]
) -> None:
    """CUDA's number 0 is NVML's number 2 under ``CUDA_VISIBLE_DEVICES=2``."""
    fake_nvml(monkeypatch)
    fake_cupy(monkeypatch, **bus_of(number))
    assert cuda.CudaDevice().clocks() == expected


def test_a_gpu_whose_clock_cannot_be_read_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(monkeypatch, nvmlDeviceGetHandleByPciBusId=fails)
    assert cuda.Clocks(fake_cupy(monkeypatch, **bus_of(1))).read() == (0, "")
    fake_nvml(monkeypatch, nvmlDeviceGetClockInfo=fails)
    assert cuda.Clocks(fake_cupy(monkeypatch, **bus_of(1))).read() == (0, "")
    no_nvml(monkeypatch)
    assert cuda.Clocks(fake_cupy(monkeypatch, **bus_of(1))).read() == (0, "")


# ---------------------------------------------------------------------------------------------------------- the GPU


def gpu(name: str, major: int, minor: int) -> dict[str, Any]:
    facts = {**PROPERTIES, "name": name.encode(), "major": major, "minor": minor}
    return {**HOST, "getDeviceProperties": lambda _: facts}


@pytest.mark.parametrize(("name", "major", "minor"), [("Tesla T4", 7, 5), ("Tesla V100-SXM2-16GB", 7, 0)])
def test_a_gpu_without_asynchronous_copies_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, major: int, minor: int
) -> None:
    fake_cupy(monkeypatch, **gpu(name, major, minor))
    with pytest.raises(MissingPrerequisite) as caught:
        cuda.CudaDevice()
    assert str(caught.value) == (
        f"the CUDA GPU {name} is too old: found compute capability {major}.{minor}, expected 8.0 or newer; "
        "use --device opencl"
    )


@pytest.mark.parametrize("command", ["tune", "run"])
def test_the_command_says_so_in_one_line(
    emmy: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    pretend(monkeypatch, tmp_path / "gpu", arch=[7, 5], archs=[75, 80, 90])
    done = emmy(command, "--device", "cuda", "-c", "x0 = torch.randn(64, 48); x0 + 1")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the CUDA GPU NVIDIA Stub is too old: found compute capability 7.5, expected 8.0 or")
    assert line.endswith("use --device opencl")


def test_a_gpu_of_sm_86_has_its_own_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    caps = cuda.describe(fake_cupy(monkeypatch, **gpu("NVIDIA GeForce RTX 3090", 8, 6)))
    target = cuda_target("sm_86")
    assert (caps.arch, caps.peak_flops, caps.tensor_flops, caps.peak_bytes) == ("sm_86", 35.6e12, 142e12, 0.936e12)
    assert (caps.atoms, caps.transports) == (target.atoms, ("sync", "async"))
    assert (target.units, target.smem_bytes, target.llc_bytes) == (82, 99 * 1024, 6 << 20)
    # a copy of 1 GiB in 0.2 ms would be thrice the memory's bandwidth and more than the cache's
    assert plausible(caps, 0, 1 << 30, 200.0) is not None
    assert plausible(caps, 0, 1 << 30, 1200.0) is None


def test_a_gpu_between_the_targets_has_the_oldest_ones_without_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    caps = cuda.describe(fake_cupy(monkeypatch, **gpu("NVIDIA Jetson Orin", 8, 7)))
    assert "sm_87" not in TARGETS
    assert (caps.arch, caps.atoms, caps.peak_flops) == ("sm_87", cuda_target("sm_80").atoms, 0.0)
