"""Devices by name: capabilities for everyone, open devices for the bench worker."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from emmy.config import Settings, default_work_dir
from emmy.device.base import Capabilities, Device
from emmy.device.cuda_targets import TARGETS, cuda_target
from emmy.errors import InputError, MissingPrerequisite

NAMES = ("auto", "cuda", "opencl")


def capabilities(name: str | None = None, work_dir: Path | None = None) -> Capabilities:
    """Capabilities of a device or compile target, without opening it here.

    ``auto`` or None: a CUDA GPU where one is, else OpenCL. A target (``sm_90a``, …) answers on any machine.
    ``work_dir`` holds the probe's cached answer. Raises InputError for an unknown name, MissingPrerequisite with what
    to install.
    """
    name = resolve(name)
    if name in TARGETS:
        return cuda_target(name)
    if name == "cuda":
        from emmy.device.probe import cuda_capabilities

        return cuda_capabilities()
    from emmy.device.probe import opencl_capabilities

    return opencl_capabilities(work_dir or default_work_dir())


def on_this_machine(settings: Settings) -> Settings:
    """`settings` with a device that can be opened: one that is named by its own name becomes `cuda` or `opencl`.

    Raises InputError for a compile target, and for a name that no device of this machine has.
    """
    name, known = settings.device, list(NAMES)
    if name is None or name in NAMES:
        return settings
    if name in TARGETS:
        raise InputError(
            "device",
            found=f"{name}, a compile target",
            expected=", ".join(known),
            hint=f"emmy compile --target {name} compiles for it on any machine",
        )
    kind = "opencl" if name.startswith("pocl") else "cuda" if has_cuda_gpu() else None
    with suppress(MissingPrerequisite):
        if kind is not None:
            known.append(capabilities(kind, settings.work_dir).name)
    if name not in known:
        raise InputError("device", found=repr(name), expected=", ".join(known))
    return replace(settings, device=kind)


def resolve(name: str | None) -> str:
    """The device name ``open_device`` takes, or a compile target. Raises InputError for an unknown one."""
    if name is None or name == "auto":
        return "cuda" if has_cuda_gpu() else "opencl"
    if name not in NAMES and name not in TARGETS:
        raise InputError(
            "device",
            found=repr(name),
            expected=", ".join(NAMES),
            hint=f"{', '.join(TARGETS)} are targets, for emmy compile --target",
        )
    return name


_COUNT = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
if driver.cuInit(0) == driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
    print("GPU " * count.value)
"""


def has_cuda_gpu() -> bool:
    """Whether the NVIDIA driver has a GPU for this process, by its own tool; no context is created.

    A container may have the driver's library without the tool. A process of its own asks that one then; what /proc
    lists is no answer, since it is the host's and names GPUs that the container was not given.
    """
    tool = shutil.which("nvidia-smi")
    command = [tool, "-L"] if tool is not None else [sys.executable, "-I", "-S", "-c", _COUNT]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and listed.stdout.startswith("GPU ")


def open_device(name: str) -> Device:
    """Opens a device; in the bench worker only, since it creates a context. Raises MissingPrerequisite."""
    if name == "opencl":
        from emmy.device.opencl import OpenCLDevice

        return OpenCLDevice()
    if name == "cuda":
        from emmy.device.cuda import CudaDevice

        return CudaDevice()
    raise InputError("device", found=repr(name), expected="opencl or cuda")
